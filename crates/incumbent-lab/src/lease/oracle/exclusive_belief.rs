//! L4: at no instant of true time do two holders believe.
//!
//! A holder believes from [`Sighting::Believes`] until the moment that it names, or until it is seen to cease or crash. A holder
//! that is paused goes on believing, for its clock goes on.
//!
//! Sometimes: the seat was taken over by expiry from a holder that was up and had not given it back.

use core::time::Duration;

use incumbent_protocol::protocol::Token;

use super::super::sighting::{HolderId, Sighting};
use super::{Exclusion, Oracle, note};
use crate::observation::Moment;
use crate::oracle::Violation;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Belief {
    holder: HolderId,
    token: Token,
    until: Moment,
}

/// Sees that beliefs do not overlap, and how close they came.
#[derive(Clone, Debug)]
pub struct ExclusiveBelief {
    exclusion: Exclusion,
    /// The beliefs that have not been given up; some may have run out. Never more than there are holders.
    beliefs: Vec<Belief>,
    /// The belief that ran out last without being given up.
    last: Option<Belief>,
    overlaps: u64,
    longest: Duration,
    taken_over: u64,
    closest: Option<Duration>,
    violation: Option<Violation>,
}

impl ExclusiveBelief {
    /// At the beginning of a run.
    pub fn new(exclusion: Exclusion) -> Self {
        Self {
            exclusion,
            beliefs: Vec::new(),
            last: None,
            overlaps: 0,
            longest: Duration::ZERO,
            taken_over: 0,
            closest: None,
            violation: None,
        }
    }

    /// How often a holder began, or went on, to believe while another did.
    pub fn overlaps(&self) -> u64 {
        self.overlaps
    }

    /// The longest time, as it looked when it began, that two believed.
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// The shortest time between the end of a belief that was not given up and the beginning of the next.
    pub fn closest(&self) -> Option<Duration> {
        self.closest
    }

    /// Lets beliefs run out that end by `at`.
    fn advance(&mut self, at: Moment) {
        let gone = |belief: &Belief| belief.until <= at;
        self.last = self.beliefs.iter().copied().filter(gone).chain(self.last).max_by_key(|belief| belief.until);
        self.beliefs.retain(|belief| !gone(belief));
    }

    fn on_belief(&mut self, at: Moment, belief: Belief) {
        let begins = !self.beliefs.iter().any(|it| it.holder == belief.holder);
        self.beliefs.retain(|it| it.holder != belief.holder);
        if belief.until <= at {
            return;
        }
        for other in &self.beliefs {
            let length = belief.until.min(other.until) - at;
            self.overlaps += 1;
            self.longest = self.longest.max(length);
            if self.exclusion == Exclusion::Demanded {
                note(&mut self.violation, Self::NAME, at, || {
                    format!(
                        "holder {} (token {}) believes while holder {} (token {}) does, for up to {length:?}",
                        belief.holder, belief.token, other.holder, other.token
                    )
                });
            }
        }
        if begins && let Some(last) = self.last.take_if(|last| last.holder != belief.holder) {
            self.taken_over += 1;
            let gap = at - last.until;
            self.closest = Some(self.closest.map_or(gap, |closest| closest.min(gap)));
        }
        self.beliefs.push(belief);
    }

    fn on_end(&mut self, holder: HolderId) {
        self.beliefs.retain(|it| it.holder != holder);
    }
}

impl Oracle for ExclusiveBelief {
    const NAME: &'static str = "exclusive_belief";
    const SOMETIMES: &'static str = "the seat was taken over from a holder that was up and had not given it back";

    fn see(&mut self, at: Moment, seen: &Sighting) {
        self.advance(at);
        match *seen {
            Sighting::Believes { holder, token, until } => self.on_belief(at, Belief { holder, token, until }),
            Sighting::Ceases { holder, .. } => self.on_end(holder),
            Sighting::Crashed { holder } => {
                self.on_end(holder);
                self.last = self.last.filter(|last| last.holder != holder);
            }
            Sighting::Started { .. }
            | Sighting::Granted { .. }
            | Sighting::Freed { .. }
            | Sighting::Entered { .. }
            | Sighting::WorkBegan { .. }
            | Sighting::WorkEnded { .. }
            | Sighting::Written { .. }
            | Sighting::Healed
            | Sighting::Decapitated => {}
        }
    }

    fn finish(&mut self, at: Moment) {
        self.advance(at);
    }

    fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    fn sometimes(&self) -> u64 {
        self.taken_over
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::*;
    use super::*;

    fn oracle() -> ExclusiveBelief {
        ExclusiveBelief::new(Exclusion::Demanded)
    }

    #[test]
    fn a_belief_that_begins_while_another_lasts_is_a_violation() {
        let mut it = oracle();
        let text = verdict(&mut it, 99, &[(0, believes(1, 1, 10)), (9, believes(2, 2, 20))]);
        assert!(text.starts_with("holder 2 ") && text.contains("holder 1 ") && text.ends_with("up to 1ms"), "{text}");
        assert_eq!((it.overlaps(), it.longest()), (1, Duration::from_millis(1)));
    }

    #[test]
    fn a_belief_that_is_prolonged_into_another_is_a_violation() {
        // The second begins when the first has run out, by the clock of that time; then the clock turns out to be slow.
        let history = [(0, believes(1, 1, 10)), (10, believes(2, 2, 20)), (11, believes(1, 1, 12))];
        assert!(!verdict(&mut oracle(), 99, &history).is_empty());
    }

    #[test]
    fn beliefs_that_follow_each_other_are_none_and_a_takeover_counts() {
        let mut it = oracle();
        let history = [(0, believes(1, 1, 10)), (5, believes(1, 1, 15)), (15, believes(2, 2, 30)), (40, believes(1, 3, 50))];
        assert_eq!(verdict(&mut it, 99, &history), "");
        assert_eq!((it.sometimes(), it.closest()), (2, Some(Duration::ZERO)));
    }

    #[test]
    fn one_that_gave_up_or_crashed_does_not_believe_and_is_not_taken_over_from() {
        for end in [ceases(1, 1), crashed(1)] {
            let mut it = oracle();
            assert_eq!(verdict(&mut it, 99, &[(0, believes(1, 1, 10)), (5, end), (6, believes(2, 2, 20))]), "");
            assert_eq!(it.sometimes(), 0);
        }
    }

    #[test]
    fn beyond_the_bounds_of_the_contract_overlaps_are_only_counted() {
        let mut it = ExclusiveBelief::new(Exclusion::Counted);
        assert_eq!(verdict(&mut it, 99, &[(0, believes(1, 1, 10)), (9, believes(2, 2, 20))]), "");
        assert_eq!(it.overlaps(), 1);
    }
}
