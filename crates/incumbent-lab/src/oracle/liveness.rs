//! LV1 and LV3: a healed group soon has a leader; some time later that leader is the only one, and stays.
//!
//! Two bounds, because the first leader after healing may rightly yield once more: to a greater id that comes back, or to a
//! later term that was under way. After the second bound nothing may change, no lease may run out, not for an instant. One
//! exception: a leader that was asked to hand over may do so, and the group begins anew; but not more often than there are
//! members.
//!
//! Sometimes: nobody was in office when the faults ended.

use core::time::Duration;

use incumbent_protocol::protocol::{Event, NodeId, Reason};

use super::seats::{Seat, Seats};
use super::{Oracle, Violation, note};
use crate::observation::{Moment, Observation};

/// Sees that a healed group gets a leader and keeps it.
#[derive(Clone, Debug)]
pub struct Liveness {
    elected_within: Duration,
    settled_within: Duration,
    seats: Seats,
    phase: Phase,
    /// When the demands began: with healing, or with the last hand-over since.
    begun: Moment,
    /// How long after healing somebody was in office.
    recovery: Option<Duration>,
    /// The node in office that was asked last to hand over.
    asked: Option<NodeId>,
    /// How often a settled leader may still hand over.
    gifts_left: usize,
    leaderless: u64,
    violation: Option<Violation>,
}

/// What is demanded now.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Phase {
    /// Nothing: faults happen.
    Faults,
    /// That somebody takes office.
    Elect,
    /// That the group settles.
    Settle,
    /// That this leadership goes on; or is handed over, if that was asked for.
    Keep(Seat),
    /// That this node says that it has handed over: it was asked to, and is out of office.
    Explain(NodeId),
    /// Nothing more: a violation was found.
    Broken,
}

impl Liveness {
    /// At the beginning of a run.
    pub fn new(members: &[NodeId], elected_within: Duration, settled_within: Duration) -> Self {
        Self {
            elected_within,
            settled_within,
            seats: Seats::default(),
            phase: Phase::Faults,
            begun: Moment::NEVER,
            recovery: None,
            asked: None,
            gifts_left: members.len(),
            leaderless: 0,
            violation: None,
        }
    }

    /// How long after healing somebody was in office; `None` if nobody was, or nothing was healed.
    pub fn recovery(&self) -> Option<Duration> {
        self.recovery
    }

    fn broken(&mut self, at: Moment, text: impl FnOnce() -> String) {
        note(&mut self.violation, Self::NAME, at, text);
        self.phase = Phase::Broken;
    }

    /// Judges what had to be true before `at`.
    fn advance(&mut self, at: Moment) {
        if self.phase == Phase::Elect {
            let due = self.begun + self.elected_within;
            if at >= due {
                let (within, begun) = (self.elected_within, self.begun);
                self.broken(due, || format!("nobody was in office by {due}, {within:?} after {begun}"));
            }
        }
        if self.phase == Phase::Settle {
            let due = self.begun + self.settled_within;
            if at >= due {
                self.settle(due);
            }
        }
        if let Phase::Keep(Seat { node, term, until }) = self.phase
            && at > until
        {
            self.broken(until, || format!("node {node} let its leadership in term {term} run out at {until}, in calm"));
        }
    }

    /// The group must have settled by `due`.
    fn settle(&mut self, due: Moment) {
        while self.seats.lapsed(due).is_some() {}
        let (within, begun) = (self.settled_within, self.begun);
        match *self.seats.as_slice() {
            [seat] => self.phase = Phase::Keep(seat),
            [] => self.broken(due, || format!("nobody is in office at {due}, {within:?} after {begun}")),
            [first, second, ..] => self.broken(due, || {
                format!(
                    "node {} (term {}) and node {} (term {}) are both in office at {due}, {within:?} after {begun}",
                    first.node, first.term, second.node, second.term
                )
            }),
        }
    }

    fn on_healed(&mut self, at: Moment) {
        while self.seats.lapsed(at).is_some() {}
        self.begun = at;
        if self.seats.as_slice().is_empty() {
            self.leaderless += 1;
            self.phase = Phase::Elect;
        } else {
            self.recovery = Some(Duration::ZERO);
            self.phase = Phase::Settle;
        }
    }
}

impl Liveness {
    fn on_in_office(&mut self, at: Moment, new: Seat) {
        match self.phase {
            Phase::Elect => {
                self.recovery.get_or_insert(at - self.begun);
                self.phase = Phase::Settle;
            }
            Phase::Keep(seat) if (seat.node, seat.term) == (new.node, new.term) => self.phase = Phase::Keep(new),
            Phase::Keep(seat) => self.broken(at, || {
                let (Seat { node, term, .. }, Seat { node: before, term: term_before, .. }) = (new, seat);
                format!("node {node} took office in term {term} at {at}, in calm, after node {before} (term {term_before})")
            }),
            Phase::Faults | Phase::Settle | Phase::Explain(_) | Phase::Broken => {}
        }
    }

    fn on_out_of_office(&mut self, at: Moment, node: NodeId) {
        let asked = self.asked.take_if(|asked| *asked == node).is_some();
        let Phase::Keep(seat) = self.phase else { return };
        if seat.node != node {
            return;
        }
        if asked && self.gifts_left > 0 {
            self.gifts_left -= 1;
            self.phase = Phase::Explain(node);
        } else {
            self.broken(at, || format!("node {node} left office in term {} at {at}, in calm", seat.term));
        }
    }

    fn on_told(&mut self, at: Moment, node: NodeId, event: Event) {
        match event {
            // Its user may take its time: what was asked for before the group had settled may be done later.
            Event::Asked { .. } => self.asked = Some(node),
            Event::Lost { term, reason } if self.phase == Phase::Explain(node) => match reason {
                Reason::HandedOver { .. } => (self.phase, self.begun) = (Phase::Elect, at),
                Reason::Resigned | Reason::QuorumLost | Reason::Superseded { .. } => {
                    self.broken(at, || format!("node {node} left office in term {term} at {at}, in calm: {reason}"));
                }
            },
            Event::Lost { .. }
            | Event::Elected { .. }
            | Event::Follows { .. }
            | Event::LeaderGone { .. }
            | Event::Contends { .. }
            | Event::Rejected { .. }
            | Event::Ignored { .. } => {}
        }
    }
}

impl Oracle for Liveness {
    const NAME: &'static str = "liveness";
    const SOMETIMES: &'static str = "nobody was in office when the faults ended";

    fn see(&mut self, at: Moment, seen: &Observation<'_>) {
        match *seen {
            Observation::InOffice { node, term, until } => {
                self.advance(at);
                self.on_in_office(at, Seat { node, term, until });
                self.seats.see(seen);
            }
            Observation::OutOfOffice { node, .. } | Observation::Crashed { node } | Observation::Started { node, .. } => {
                self.advance(at);
                self.on_out_of_office(at, node);
                self.seats.see(seen);
            }
            Observation::Told { node, event } => self.on_told(at, node, event),
            Observation::Healed => self.on_healed(at),
            Observation::Sent { .. } => {}
        }
    }

    fn finish(&mut self, at: Moment) {
        self.advance(at);
    }

    fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    fn sometimes(&self) -> u64 {
        self.leaderless
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::*;
    use super::*;
    use incumbent_protocol::protocol::Term;

    fn oracle() -> Liveness {
        Liveness::new(&MEMBERS, Duration::from_millis(300), Duration::from_millis(500))
    }

    /// A healed group: its leader from before ran out, a first one rules until a second takes over.
    fn calm() -> Vec<(u64, Observation<'static>)> {
        vec![
            (10, in_office(1, 4, ms(90))),
            (100, Observation::Healed),
            (350, in_office(1, 5, ms(450))),
            (400, out_of_office(1, 5)),
            (410, in_office(3, 6, ms(800))),
            (800, in_office(3, 6, ms(1200))),
        ]
    }

    #[test]
    fn a_leader_in_time_that_stays_is_fine() {
        let mut oracle = oracle();
        assert_eq!(verdict(&mut oracle, ms(1200), &calm()), "");
        assert_eq!(oracle.recovery(), Some(Duration::from_millis(250)));
        assert_eq!(oracle.sometimes(), 1);
    }

    #[test]
    fn no_leader_in_time_is_seen() {
        let mut late = calm();
        late[2].0 = 400;
        let text = verdict(&mut oracle(), ms(1200), &late);
        assert_eq!(text, "nobody was in office by 0.400, 300ms after 0.100");
        assert!(verdict(&mut oracle(), ms(1200), &calm()[..2]).contains("nobody was in office by 0.400"));
    }

    #[test]
    fn a_group_that_does_not_settle_is_seen() {
        let mut two = calm();
        two.remove(3);
        two[2] = (350, in_office(1, 5, Moment::NEVER));
        let text = verdict(&mut oracle(), ms(1200), &two);
        assert_eq!(text, "node 1 (term 5) and node 3 (term 6) are both in office at 0.600, 500ms after 0.100");
        let text = verdict(&mut oracle(), ms(1200), &calm()[..4]);
        assert_eq!(text, "nobody is in office at 0.600, 500ms after 0.100");
        let mut just = calm();
        just[4] = (410, in_office(3, 6, ms(600)));
        assert!(verdict(&mut oracle(), ms(1200), &just[..5]).starts_with("nobody is in office at 0.600"));
    }

    #[test]
    fn every_way_to_lose_a_settled_leader_is_seen() {
        for (at, loss, says) in [
            (1300, in_office(3, 6, ms(1400)), "node 3 let its leadership in term 6 run out at 1.200, in calm"),
            (900, out_of_office(3, 6), "node 3 left office in term 6 at 0.900, in calm"),
            (900, crashed(3), "node 3 left office in term 6 at 0.900, in calm"),
            (900, in_office(3, 7, ms(1400)), "node 3 took office in term 7 at 0.900, in calm, after node 3 (term 6)"),
            (900, in_office(1, 7, ms(1400)), "node 1 took office in term 7 at 0.900, in calm, after node 3 (term 6)"),
        ] {
            let mut history = calm();
            history.push((at, loss));
            assert_eq!(verdict(&mut oracle(), ms(1400), &history), says);
        }
        assert!(verdict(&mut oracle(), ms(1201), &calm()).contains("run out at 1.200"));
    }

    #[test]
    fn a_leader_that_was_asked_may_hand_over_and_the_group_begins_anew() {
        let asked = told(3, Event::Asked { to: NodeId(2) });
        let left = |reason| told(3, Event::Lost { term: Term(6), reason });
        let given = left(Reason::HandedOver { to: NodeId(2) });
        let gift = [(900, asked), (950, out_of_office(3, 6)), (950, given), (1000, in_office(2, 7, ms(1600)))];

        let history = [calm(), gift.to_vec()].concat();
        let mut oracle = oracle();
        assert_eq!(verdict(&mut oracle, ms(1600), &history), "");
        assert_eq!(oracle.recovery(), Some(Duration::from_millis(250)), "the first one counts");

        let late = [calm(), gift[..3].to_vec(), vec![(1250, in_office(2, 7, ms(1600)))]].concat();
        assert_eq!(verdict(&mut self::oracle(), ms(1600), &late), "nobody was in office by 1.250, 300ms after 0.950");
        let unasked = [calm(), gift[1..].to_vec()].concat();
        assert_eq!(verdict(&mut self::oracle(), ms(1600), &unasked), "node 3 left office in term 6 at 0.950, in calm");
        let mut lost = history.clone();
        lost[8].1 = left(Reason::QuorumLost);
        let text = verdict(&mut self::oracle(), ms(1600), &lost);
        assert_eq!(text, "node 3 left office in term 6 at 0.950, in calm: lost quorum");
    }

    #[test]
    fn before_healing_nothing_is_demanded() {
        assert_eq!(verdict(&mut oracle(), ms(9000), &calm()[..1]), "");
        assert_eq!(verdict(&mut oracle(), ms(9000), &[]), "");
    }
}
