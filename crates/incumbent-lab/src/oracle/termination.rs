//! Every contest comes to an end: after healing, a node that contends soon leads, follows or is rejected.
//!
//! That some contest is also *won* is what liveness asks. A node that contends while it follows a leader only asks
//! a question; the leader's next heartbeat ends it, and nobody is told.
//!
//! Sometimes: a contest was interrupted by a crash, or was still open when the faults ended.

use core::time::Duration;

use incumbent_protocol::protocol::{Event, NodeId};

use super::{Oracle, Roster, Violation, note};
use crate::observation::{Moment, Observation};

/// Sees that contests end.
#[derive(Clone, Debug)]
pub struct Termination {
    roster: Roster,
    members: Vec<NodeId>,
    within: Duration,
    /// By rank: since when the node contends, and whether it follows a leader.
    since: Vec<Option<Moment>>,
    follows: Vec<bool>,
    healed: Option<Moment>,
    interrupted: u64,
    violation: Option<Violation>,
}

impl Termination {
    /// At the beginning of a run, over these members in ascending order.
    pub fn new(members: &[NodeId], within: Duration) -> Self {
        let roster = Roster::of(members);
        let (since, follows) = (vec![None; roster.count], vec![false; roster.count]);
        Self { roster, members: members.to_vec(), within, since, follows, healed: None, interrupted: 0, violation: None }
    }

    /// The contest of `rank`, if it had one, lasted until `at`.
    fn end(&mut self, at: Moment, rank: usize) {
        let (Some(since), Some(healed)) = (self.since[rank].take(), self.healed) else { return };
        // Faults may hold a contest up for as long as they like.
        let counted = since.max(healed);
        if at.0 - counted.0 > self.within.as_nanos() as u64 {
            let node = self.members[rank];
            note(&mut self.violation, Self::NAME, at, || {
                format!("node {node} contends since {since} without an end by {at}: more than {:?} after {counted}", self.within)
            });
        }
    }
}

impl Oracle for Termination {
    const NAME: &'static str = "termination";
    const SOMETIMES: &'static str = "a contest was interrupted by a crash or was open when the faults ended";

    fn see(&mut self, at: Moment, seen: &Observation<'_>) {
        match *seen {
            Observation::Told { node, event } => {
                let rank = self.roster.rank(node);
                match event {
                    Event::Contends { .. } if self.follows[rank] => {}
                    // A node may begin again and again; it is one contest until it has an end.
                    Event::Contends { .. } => self.since[rank] = self.since[rank].or(Some(at)),
                    Event::Follows { .. } => {
                        self.follows[rank] = true;
                        self.end(at, rank);
                    }
                    Event::Elected { .. } => {
                        self.follows[rank] = false;
                        self.end(at, rank);
                    }
                    Event::Rejected { .. } => self.end(at, rank),
                    Event::LeaderGone { .. } => self.follows[rank] = false,
                    Event::Lost { .. } | Event::Asked { .. } | Event::Ignored { .. } => {}
                }
            }
            Observation::Crashed { node } | Observation::Started { node, .. } => {
                let rank = self.roster.rank(node);
                self.interrupted += u64::from(self.since[rank].take().is_some());
                self.follows[rank] = false;
            }
            Observation::Healed => {
                self.healed = Some(at);
                self.interrupted += self.since.iter().flatten().count() as u64;
            }
            Observation::InOffice { .. } | Observation::OutOfOffice { .. } | Observation::Sent { .. } => {}
        }
    }

    fn finish(&mut self, at: Moment) {
        for rank in 0..self.since.len() {
            self.end(at, rank);
        }
    }

    fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    fn sometimes(&self) -> u64 {
        self.interrupted
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::*;
    use super::*;
    use incumbent_protocol::protocol::Term;

    fn judged(end: u64, history: &[(u64, Observation<'_>)]) -> (String, u64) {
        let mut oracle = Termination::new(&MEMBERS, Duration::from_millis(500));
        let text = verdict(&mut oracle, ms(end), history);
        (text, oracle.sometimes())
    }

    #[test]
    fn a_contest_without_end_is_seen() {
        let (text, interrupted) =
            judged(900, &[(10, contends(2, 4)), (100, Observation::Healed), (300, contends(2, 4)), (400, follows(1, 3, 5))]);
        assert_eq!(text, "node 2 contends since 0.010 without an end by 0.900: more than 500ms after 0.100");
        assert_eq!(interrupted, 1);
    }

    #[test]
    fn a_contest_that_ends_too_late_is_seen() {
        let (text, _) = judged(1000, &[(100, Observation::Healed), (200, contends(2, 4)), (750, elected(2, 5))]);
        assert_eq!(text, "node 2 contends since 0.200 without an end by 0.750: more than 500ms after 0.200");
    }

    #[test]
    fn every_end_is_an_end_and_the_time_before_healing_does_not_count() {
        let rejected = Event::Rejected { term: Term(4) };
        let (text, interrupted) = judged(
            2000,
            &[
                (10, contends(1, 4)),
                (10, contends(2, 4)),
                (10, contends(3, 4)),
                (900, Observation::Healed),
                (1000, elected(1, 5)),
                (1100, told(2, rejected)),
                (1400, follows(3, 1, 5)),
                (1450, contends(3, 5)),
                (1700, contends(1, 5)),
            ],
        );
        assert_eq!((text.as_str(), interrupted), ("", 3));
    }

    #[test]
    fn a_crash_ends_a_contest_and_is_counted() {
        let (text, interrupted) = judged(900, &[(10, Observation::Healed), (20, contends(2, 4)), (30, crashed(2))]);
        assert_eq!((text.as_str(), interrupted), ("", 1));
    }
}
