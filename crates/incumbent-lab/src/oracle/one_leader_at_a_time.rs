//! L4: at no instant of true time are two nodes in office.
//!
//! A node is in office from [`Observation::InOffice`] until the moment that it names, or until it is seen to leave. A time
//! with two or more in office is a *split*; splits are counted with their lengths. A group with a quorum guard whose clocks
//! keep the drift bound must have none; any other may, and the count is what one pays for doing without.
//!
//! Sometimes: the office passed on while the old holder was up and had not given it back.

use core::time::Duration;

use incumbent_protocol::protocol::{Event, NodeId, Reason, Term};

use super::seats::{Seat, Seats};
use super::{Oracle, Violation, note};
use crate::observation::{Moment, Observation};

/// What two leaders at one instant mean.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Exclusion {
    /// A violation: the group is guarded, and its clocks keep the drift bound.
    Demanded,
    /// A figure to count.
    Counted,
}

/// The times with two or more nodes in office.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Splits {
    /// How many there were.
    pub count: u64,
    /// How long they were together.
    pub total: Duration,
    /// How long the longest was.
    pub longest: Duration,
}

impl Splits {
    /// Adds those of another run.
    pub fn add(&mut self, other: &Splits) {
        self.count += other.count;
        self.total += other.total;
        self.longest = self.longest.max(other.longest);
    }
}

/// Sees that no two nodes are in office at one instant, and counts how often they were.
#[derive(Clone, Debug)]
pub struct OneLeaderAtATime {
    exclusion: Exclusion,
    seats: Seats,
    /// When the split began that goes on now, and the two with which it began.
    split: Option<(Moment, Seat, Seat)>,
    splits: Splits,
    /// Who took office last, and whether it has crashed or given the office back since.
    last: Option<(NodeId, Term)>,
    last_let_go: bool,
    taken_from_the_living: u64,
    violation: Option<Violation>,
}

impl OneLeaderAtATime {
    /// At the beginning of a run.
    pub fn new(exclusion: Exclusion) -> Self {
        Self {
            exclusion,
            seats: Seats::default(),
            split: None,
            splits: Splits::default(),
            last: None,
            last_let_go: false,
            taken_from_the_living: 0,
            violation: None,
        }
    }

    /// The splits so far; one that still goes on is counted when it ends, or when the run does.
    pub fn splits(&self) -> Splits {
        self.splits
    }

    /// Lets the seats run out that end by `at`, in the order in which they do.
    fn advance(&mut self, at: Moment) {
        while let Some(seat) = self.seats.lapsed(at) {
            self.judge(seat.until);
        }
    }

    /// Opens or closes the split, now that the seats have changed.
    fn judge(&mut self, at: Moment) {
        match (self.seats.as_slice(), self.split) {
            ([first, second, ..], None) => self.split = Some((at, *first, *second)),
            ([] | [_], Some((since, first, second))) => {
                self.split = None;
                self.close(since, first, second, at);
            }
            ([] | [_], None) | ([_, _, ..], Some(_)) => {}
        }
    }

    fn close(&mut self, since: Moment, first: Seat, second: Seat, at: Moment) {
        // Whoever leaves at the instant at which the next enters has not been in office together with it.
        if at <= since {
            return;
        }
        let length = Duration::from_nanos(at.0 - since.0);
        self.splits.count += 1;
        self.splits.total += length;
        self.splits.longest = self.splits.longest.max(length);
        if self.exclusion == Exclusion::Demanded {
            note(&mut self.violation, Self::NAME, since, || {
                format!(
                    "node {} (term {}) and node {} (term {}) were both in office from {since} to {at}, for {length:?}",
                    first.node, first.term, second.node, second.term
                )
            });
        }
    }

    fn on_in_office(&mut self, node: NodeId, term: Term) {
        if self.last == Some((node, term)) {
            return;
        }
        if self.last.is_some_and(|(holder, _)| holder != node) && !self.last_let_go {
            self.taken_from_the_living += 1;
        }
        self.last = Some((node, term));
        self.last_let_go = false;
    }

    fn on_let_go(&mut self, node: NodeId) {
        self.last_let_go |= self.last.is_some_and(|(holder, _)| holder == node);
    }
}

impl Oracle for OneLeaderAtATime {
    const NAME: &'static str = "one_leader_at_a_time";
    const SOMETIMES: &'static str = "the office passed on while its holder was up and had not given it back";

    fn see(&mut self, at: Moment, seen: &Observation<'_>) {
        match *seen {
            Observation::InOffice { node, term, .. } => self.on_in_office(node, term),
            Observation::OutOfOffice { .. } | Observation::Started { .. } => {}
            Observation::Crashed { node }
            | Observation::Told { node, event: Event::Lost { reason: Reason::Resigned | Reason::HandedOver { .. }, .. } } => {
                self.on_let_go(node);
            }
            Observation::Told { .. } | Observation::Sent { .. } | Observation::Healed => return,
        }
        self.advance(at);
        self.seats.see(seen);
        self.judge(at);
    }

    fn finish(&mut self, at: Moment) {
        self.advance(at);
        if let Some((since, first, second)) = self.split.take() {
            self.close(since, first, second, at);
        }
    }

    fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    fn sometimes(&self) -> u64 {
        self.taken_from_the_living
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::*;
    use super::*;

    /// A leader that is paused at 0.150 and believes until 0.300, and two that follow it.
    fn split() -> [(u64, Observation<'static>); 4] {
        [
            (100, in_office(1, 5, ms(250))),
            (150, in_office(1, 5, ms(300))),
            (270, in_office(2, 6, ms(420))),
            (500, in_office(3, 7, ms(600))),
        ]
    }

    #[test]
    fn two_in_office_are_seen_and_measured_to_the_end_of_the_earlier_belief() {
        let mut oracle = OneLeaderAtATime::new(Exclusion::Demanded);
        let text = verdict(&mut oracle, ms(900), &split());
        assert_eq!(text, "node 1 (term 5) and node 2 (term 6) were both in office from 0.270 to 0.300, for 30ms");
        let length = Duration::from_millis(30);
        assert_eq!(oracle.splits(), Splits { count: 1, total: length, longest: length });
    }

    #[test]
    fn without_a_guard_they_are_counted_and_nothing_else() {
        let mut oracle = OneLeaderAtATime::new(Exclusion::Counted);
        assert_eq!(verdict(&mut oracle, ms(900), &split()), "");
        assert_eq!(oracle.splits().count, 1);
        assert_eq!(oracle.sometimes(), 2);
    }

    #[test]
    fn a_split_among_three_is_one_split_and_ends_with_the_run_at_the_latest() {
        let mut oracle = OneLeaderAtATime::new(Exclusion::Counted);
        let history = [
            (100, in_office(1, 5, Moment::NEVER)),
            (200, in_office(2, 6, Moment::NEVER)),
            (300, in_office(3, 7, ms(350))),
            (400, crashed(1)),
            (500, in_office(1, 8, Moment::NEVER)),
        ];
        assert_eq!(verdict(&mut oracle, ms(900), &history), "");
        assert_eq!(oracle.splits(), Splits { count: 2, total: Duration::from_millis(600), longest: Duration::from_millis(400) });
    }

    #[test]
    fn one_after_the_other_is_fine_even_at_the_same_instant() {
        let mut oracle = OneLeaderAtATime::new(Exclusion::Demanded);
        let history = [
            (100, in_office(1, 5, ms(250))),
            (250, in_office(2, 6, ms(400))),
            // Seen in this order, at one instant.
            (300, in_office(3, 7, ms(400))),
            (300, out_of_office(2, 6)),
            (350, told(3, Event::Lost { term: Term(7), reason: Reason::Resigned })),
            (350, out_of_office(3, 7)),
            (360, in_office(1, 8, ms(500))),
            (400, crashed(1)),
            (450, in_office(2, 9, ms(600))),
        ];
        assert_eq!(verdict(&mut oracle, ms(900), &history), "");
        assert_eq!(oracle.splits(), Splits::default());
        assert_eq!(oracle.sometimes(), 2, "the first two changes were no gifts");
    }
}
