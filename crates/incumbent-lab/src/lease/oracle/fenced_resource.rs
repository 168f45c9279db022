//! L5: what a fenced resource accepts never goes back to an earlier leadership, whatever clocks and pauses do.
//!
//! Sometimes: a write that came too late was refused.

use incumbent_protocol::protocol::Token;

use super::super::sighting::Sighting;
use super::{Oracle, note};
use crate::observation::Moment;
use crate::oracle::Violation;

/// Sees that accepted writes are in the order of their tokens.
#[derive(Clone, Debug, Default)]
pub struct FencedResource {
    greatest: Option<Token>,
    refused: u64,
    violation: Option<Violation>,
}

impl Oracle for FencedResource {
    const NAME: &'static str = "fenced_resource";
    const SOMETIMES: &'static str = "a write of an earlier leadership was refused";

    fn see(&mut self, at: Moment, seen: &Sighting) {
        let Sighting::Written { token, accepted } = *seen else { return };
        let late = self.greatest.filter(|greatest| token < *greatest);
        match (late, accepted) {
            (Some(greatest), true) => {
                note(&mut self.violation, Self::NAME, at, || {
                    format!("a write with token {token} was accepted after one with {greatest}")
                });
            }
            (Some(_), false) => self.refused += 1,
            (None, true) => self.greatest = Some(token),
            (None, false) => {
                note(&mut self.violation, Self::NAME, at, || format!("a write with token {token} was refused for no reason"));
            }
        }
    }

    fn finish(&mut self, _: Moment) {}

    fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    fn sometimes(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::*;
    use super::*;

    #[test]
    fn an_earlier_leadership_that_is_accepted_is_a_violation() {
        let text = verdict(&mut FencedResource::default(), 9, &[(1, written(5, true)), (2, written(4, true))]);
        assert!(text.contains("was accepted after"), "{text}");
    }

    #[test]
    fn a_leadership_that_is_in_time_and_refused_is_a_violation() {
        let text = verdict(&mut FencedResource::default(), 9, &[(1, written(5, true)), (2, written(5, false))]);
        assert!(text.contains("for no reason"), "{text}");
    }

    #[test]
    fn an_earlier_leadership_that_is_refused_is_the_case_it_is_there_for() {
        let mut it = FencedResource::default();
        assert_eq!(verdict(&mut it, 9, &[(1, written(5, true)), (2, written(4, false)), (3, written(6, true))]), "");
        assert_eq!(it.sometimes(), 1);
    }
}
