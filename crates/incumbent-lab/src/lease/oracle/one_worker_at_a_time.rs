//! L6, as far as a holder can promise it: work for one leadership has ended before work for the next begins.
//!
//! Demanded where clocks keep the drift bound, nobody pauses, and work dies in the time that [`Timing`] allows for it; it says
//! that the margins of the timing are enough. Elsewhere overlaps are counted: that is what fencing is for.
//!
//! Sometimes: work had to be ended because the lease could not be renewed, and other work followed.
//!
//! [`Timing`]: incumbent_protocol::timing::Timing

use incumbent_protocol::protocol::Token;

use super::super::sighting::{Freed, HolderId, Sighting};
use super::{Exclusion, Oracle, note};
use crate::observation::Moment;
use crate::oracle::Violation;

/// Sees that no two leaderships have work at once.
#[derive(Clone, Debug)]
pub struct OneWorkerAtATime {
    exclusion: Exclusion,
    working: Vec<(HolderId, Token)>,
    /// The last leadership whose work ended.
    ended: Option<Token>,
    /// The last seat became free by expiry after its work had ended, though nobody crashed.
    stopped_in_time: bool,
    overlaps: u64,
    followed: u64,
    violation: Option<Violation>,
}

impl OneWorkerAtATime {
    /// At the beginning of a run.
    pub fn new(exclusion: Exclusion) -> Self {
        Self { exclusion, working: Vec::new(), ended: None, stopped_in_time: false, overlaps: 0, followed: 0, violation: None }
    }

    /// How often work began while other work ran.
    pub fn overlaps(&self) -> u64 {
        self.overlaps
    }

    fn on_began(&mut self, at: Moment, holder: HolderId, token: Token) {
        if let Some((other, theirs)) = self.working.first() {
            self.overlaps += 1;
            if self.exclusion == Exclusion::Demanded {
                note(&mut self.violation, Self::NAME, at, || {
                    format!("holder {holder} began to work for token {token} while holder {other} worked for {theirs}")
                });
            }
        }
        self.followed += u64::from(core::mem::take(&mut self.stopped_in_time));
        self.working.push((holder, token));
    }
}

impl Oracle for OneWorkerAtATime {
    const NAME: &'static str = "one_worker_at_a_time";
    const SOMETIMES: &'static str = "work was ended before its lease ran out unrenewed, and other work followed";

    fn see(&mut self, at: Moment, seen: &Sighting) {
        match *seen {
            Sighting::WorkBegan { holder, token } => self.on_began(at, holder, token),
            Sighting::WorkEnded { token, .. } => {
                self.working.retain(|(_, theirs)| *theirs != token);
                self.ended = Some(token);
            }
            // The crash of a holder has been seen as the end of its work.
            Sighting::Crashed { .. } => self.ended = None,
            Sighting::Freed { token, how: Freed::Expired } => self.stopped_in_time = self.ended == Some(token),
            Sighting::Freed { how: Freed::Released, .. }
            | Sighting::Started { .. }
            | Sighting::Granted { .. }
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
        self.followed
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::*;
    use super::*;

    #[test]
    fn work_that_begins_beside_other_work_is_a_violation_where_it_is_demanded() {
        let history = [(1, began(1, 1)), (2, began(2, 2))];
        let mut it = OneWorkerAtATime::new(Exclusion::Demanded);
        assert!(verdict(&mut it, 9, &history).starts_with("holder 2 began to work"));
        let mut it = OneWorkerAtATime::new(Exclusion::Counted);
        assert_eq!((verdict(&mut it, 9, &history), it.overlaps()), (String::new(), 1));
    }

    #[test]
    fn work_that_follows_work_is_none_and_counts_if_the_lease_ran_out() {
        for (history, count) in [
            ([(1, began(1, 1)), (2, ended(1, 1)), (3, expired(1)), (4, began(2, 2))], 1),
            ([(1, began(1, 1)), (2, ended(1, 1)), (3, released(1)), (4, began(2, 2))], 0),
        ] {
            let mut it = OneWorkerAtATime::new(Exclusion::Demanded);
            assert_eq!((verdict(&mut it, 9, &history), it.sometimes()), (String::new(), count));
        }
    }
}
