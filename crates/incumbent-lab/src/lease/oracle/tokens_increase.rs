//! L1: each leadership has a greater token than all that were granted before it; and whoever takes office on a call that was sent
//! after another had taken office has a greater token than that one.
//!
//! Both hold whatever the clocks do.
//!
//! Sometimes: a holder took office on a call that it sent after another had taken office.

use incumbent_protocol::protocol::Token;

use super::super::sighting::{HolderId, Sighting};
use super::{Oracle, note};
use crate::observation::Moment;
use crate::oracle::Violation;

/// Sees that tokens increase.
#[derive(Clone, Debug, Default)]
pub struct TokensIncrease {
    greatest_granted: Option<Token>,
    /// When each of those in office got there. As many as there were leaderships.
    entered: Vec<(Moment, HolderId, Token)>,
    succeeded: u64,
    violation: Option<Violation>,
}

impl TokensIncrease {
    fn on_granted(&mut self, at: Moment, holder: HolderId, token: Token) {
        if let Some(greatest) = self.greatest_granted.filter(|greatest| token <= *greatest) {
            note(&mut self.violation, Self::NAME, at, || format!("holder {holder} was granted token {token} after {greatest}"));
        }
        self.greatest_granted = self.greatest_granted.max(Some(token));
    }

    fn on_entered(&mut self, at: Moment, holder: HolderId, token: Token, sent: Moment) {
        for (when, before, theirs) in self.entered.iter().filter(|(when, ..)| *when < sent) {
            self.succeeded += u64::from(*before != holder);
            if token <= *theirs {
                note(&mut self.violation, Self::NAME, at, || {
                    format!(
                        "holder {holder} took office with token {token}, asked for after holder {before} had with {theirs} at {when}"
                    )
                });
            }
        }
        self.entered.push((at, holder, token));
    }
}

impl Oracle for TokensIncrease {
    const NAME: &'static str = "tokens_increase";
    const SOMETIMES: &'static str = "a holder took office on a call that it sent after another had taken office";

    fn see(&mut self, at: Moment, seen: &Sighting) {
        match *seen {
            Sighting::Granted { holder, token } => self.on_granted(at, holder, token),
            Sighting::Entered { holder, token, sent } => self.on_entered(at, holder, token, sent),
            Sighting::Started { .. }
            | Sighting::Crashed { .. }
            | Sighting::Freed { .. }
            | Sighting::Believes { .. }
            | Sighting::Ceases { .. }
            | Sighting::WorkBegan { .. }
            | Sighting::WorkEnded { .. }
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
        self.succeeded
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::*;
    use super::*;

    #[test]
    fn a_token_granted_twice_or_after_a_greater_one_is_a_violation() {
        for term in [4, 5] {
            let text = verdict(&mut TokensIncrease::default(), 9, &[(1, granted(1, 5)), (2, granted(2, term))]);
            assert!(text.contains("holder 2 was granted"), "{text}");
        }
    }

    #[test]
    fn an_older_token_entered_on_a_later_call_is_a_violation() {
        let text = verdict(&mut TokensIncrease::default(), 9, &[(3, entered(1, 5, 1)), (6, entered(2, 4, 4))]);
        assert!(text.contains("token") && text.contains("holder 1"), "{text}");
    }

    #[test]
    fn an_older_token_entered_late_on_an_earlier_call_is_none() {
        let mut it = TokensIncrease::default();
        let history =
            [(1, granted(2, 4)), (2, granted(1, 5)), (3, entered(1, 5, 1)), (6, entered(2, 4, 0)), (9, entered(3, 6, 7))];
        assert_eq!(verdict(&mut it, 9, &history), "");
        assert_eq!(it.sometimes(), 2);
    }
}
