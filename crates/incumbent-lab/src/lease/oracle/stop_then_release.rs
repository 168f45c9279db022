//! Stop, then release: a seat that is given back has no work left that acts for it.
//!
//! Sometimes: a seat was given back after work and taken by somebody else.

use std::collections::BTreeSet;

use incumbent_protocol::protocol::Token;

use super::super::sighting::{Freed, Sighting};
use super::{Oracle, note};
use crate::observation::Moment;
use crate::oracle::Violation;

/// Sees that no seat is released while its work runs.
#[derive(Clone, Debug, Default)]
pub struct StopThenRelease {
    /// The leaderships for which something acts.
    working: BTreeSet<Token>,
    /// The last leadership for which something has acted and does no more.
    worked: Option<Token>,
    /// A seat was given back after work, and is free.
    vacated: bool,
    handed_on: u64,
    violation: Option<Violation>,
}

impl Oracle for StopThenRelease {
    const NAME: &'static str = "stop_then_release";
    const SOMETIMES: &'static str = "a seat that was given back after work was granted again";

    fn see(&mut self, at: Moment, seen: &Sighting) {
        match *seen {
            Sighting::WorkBegan { token, .. } => {
                self.working.insert(token);
            }
            Sighting::WorkEnded { token, .. } => {
                self.working.remove(&token);
                self.worked = Some(token);
            }
            Sighting::Freed { token, how: Freed::Released } => {
                if self.working.contains(&token) {
                    note(&mut self.violation, Self::NAME, at, || format!("token {token} was given back while work ran for it"));
                }
                self.vacated = self.worked == Some(token);
            }
            Sighting::Granted { .. } => self.handed_on += u64::from(core::mem::take(&mut self.vacated)),
            Sighting::Freed { how: Freed::Expired, .. }
            | Sighting::Started { .. }
            | Sighting::Crashed { .. }
            | Sighting::Entered { .. }
            | Sighting::Believes { .. }
            | Sighting::Ceases { .. }
            | Sighting::Written { .. }
            | Sighting::Healed
            | Sighting::Decapitated => {}
        }
    }

    fn finish(&mut self, _: Moment) {}

    fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    fn sometimes(&self) -> u64 {
        self.handed_on
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::*;
    use super::*;

    #[test]
    fn a_release_while_work_runs_is_a_violation() {
        let text = verdict(&mut StopThenRelease::default(), 9, &[(1, began(1, 1)), (2, released(1)), (3, ended(1, 1))]);
        assert!(text.contains("given back while work ran"), "{text}");
    }

    #[test]
    fn a_release_after_the_work_or_an_expiry_during_it_is_none() {
        let mut it = StopThenRelease::default();
        let history =
            [(1, began(1, 1)), (2, ended(1, 1)), (3, released(1)), (4, granted(2, 2)), (5, began(2, 2)), (6, expired(2))];
        assert_eq!(verdict(&mut it, 9, &history), "");
        assert_eq!(it.sometimes(), 1);
    }
}
