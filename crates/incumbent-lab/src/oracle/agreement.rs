//! Some time after healing all nodes name the same leader in the same term, and it stays so.
//!
//! What a node told its user last is what it names: the leader it follows, itself when elected, nobody when its leader
//! is gone. A leader that was asked to hand over, by a greater id or one of greater priority, may do so even then, and
//! the group settles anew; but not more often than there are members.
//!
//! Sometimes: two nodes named different leaders.

use core::time::Duration;

use incumbent_protocol::protocol::{Event, NodeId, Reason, Term};

use super::{Oracle, Roster, Violation, note};
use crate::observation::{Moment, Observation};

/// Sees that a healed group comes to name one leader.
#[derive(Clone, Debug)]
pub struct Agreement {
    roster: Roster,
    members: Vec<NodeId>,
    within: Duration,
    /// By rank: whether the node is up; one that is down names nobody and need not.
    up: Vec<bool>,
    /// By rank: whom the node names.
    named: Vec<Option<(NodeId, Term)>>,
    /// By rank: how many nodes name it, in whatever term; and how many nodes are named by somebody.
    followers: Vec<u32>,
    leaders: u32,
    healed: Option<Moment>,
    /// When somebody last changed its mind.
    changed: Moment,
    /// When all must agree; never, before healing.
    due: Moment,
    settled: bool,
    /// How often a settled leader may still hand over.
    gifts_left: usize,
    disagreements: u64,
    violation: Option<Violation>,
}

impl Agreement {
    /// At the beginning of a run, over these members in ascending order.
    pub fn new(members: &[NodeId], within: Duration) -> Self {
        let roster = Roster::of(members);
        Self {
            members: members.to_vec(),
            within,
            up: vec![true; roster.count],
            named: vec![None; roster.count],
            followers: vec![0; roster.count],
            leaders: 0,
            healed: None,
            changed: Moment::ZERO,
            due: Moment::NEVER,
            settled: false,
            gifts_left: roster.count,
            disagreements: 0,
            violation: None,
            roster,
        }
    }

    /// How long after healing all agreed for good; `None` if they do not, or nothing was healed.
    pub fn settled(&self) -> Option<Duration> {
        self.healed.filter(|_| self.discord().is_none()).map(|healed| self.changed - healed)
    }

    fn names(&mut self, at: Moment, node: NodeId, leader: Option<(NodeId, Term)>) {
        let rank = self.roster.rank(node);
        let before = self.named[rank];
        if before == leader {
            return;
        }
        if self.settled {
            note(&mut self.violation, Self::NAME, at, || {
                format!("node {node} named {} and names {} from {at}, after all had agreed", Name(before), Name(leader))
            });
        }
        self.named[rank] = leader;
        self.changed = at;
        if let Some((it, _)) = before {
            let followers = &mut self.followers[self.roster.rank(it)];
            *followers -= 1;
            self.leaders -= u32::from(*followers == 0);
        }
        if let Some((it, _)) = leader {
            let followers = &mut self.followers[self.roster.rank(it)];
            self.leaders += u32::from(*followers == 0);
            *followers += 1;
        }
        self.disagreements += u64::from(self.leaders > 1);
    }

    /// A leader left office for another. That it was asked to is for liveness to see.
    fn on_handed_over(&mut self, at: Moment) {
        if self.settled && self.gifts_left > 0 {
            self.gifts_left -= 1;
            self.settled = false;
            self.due = at + self.within;
        }
    }

    /// Judges the group at the moment when it must have settled, once that has passed.
    fn settle(&mut self, at: Moment) {
        if at < self.due || self.settled {
            return;
        }
        self.settled = true;
        if let Some((first, odd)) = self.discord() {
            let named = |rank: usize| format!("node {} names {}", self.members[rank], Name(self.named[rank]));
            note(&mut self.violation, Self::NAME, self.due, || {
                let both = if first == odd { named(first) } else { format!("{} and {}", named(first), named(odd)) };
                format!("at {}, {:?} after healing, {both}", self.due, self.within)
            });
        }
    }

    /// Two nodes that name different leaders, or one, given twice, that names none; by rank.
    fn discord(&self) -> Option<(usize, usize)> {
        let mut up = (0..self.named.len()).filter(|rank| self.up[*rank]);
        let first = up.next()?;
        match self.named[first] {
            None => Some((first, first)),
            leader => up.find(|rank| self.named[*rank] != leader).map(|odd| (first, odd)),
        }
    }
}

/// Whom a node names, in words.
struct Name(Option<(NodeId, Term)>);

impl core::fmt::Display for Name {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.0 {
            Some((node, term)) => write!(f, "node {node} (term {term})"),
            None => f.write_str("nobody"),
        }
    }
}

impl Oracle for Agreement {
    const NAME: &'static str = "agreement";
    const SOMETIMES: &'static str = "two nodes named different leaders";

    fn see(&mut self, at: Moment, seen: &Observation<'_>) {
        self.settle(at);
        match *seen {
            Observation::Told { node, event } => match event {
                Event::Lost { reason: Reason::HandedOver { .. }, .. } => {
                    self.on_handed_over(at);
                    self.names(at, node, None);
                }
                Event::Elected { term } => self.names(at, node, Some((node, term))),
                Event::Follows { leader, term } => self.names(at, node, Some((leader, term))),
                Event::Lost { .. } | Event::LeaderGone { .. } => self.names(at, node, None),
                Event::Contends { .. } | Event::Rejected { .. } | Event::Asked { .. } | Event::Ignored { .. } => {}
            },
            Observation::Started { node, .. } => {
                let rank = self.roster.rank(node);
                self.up[rank] = true;
                self.names(at, node, None);
            }
            Observation::Crashed { node } => {
                let rank = self.roster.rank(node);
                self.up[rank] = false;
                self.names(at, node, None);
            }
            Observation::Healed => {
                self.healed = Some(at);
                self.due = at + self.within;
            }
            Observation::InOffice { .. } | Observation::OutOfOffice { .. } | Observation::Sent { .. } => {}
        }
    }

    fn finish(&mut self, at: Moment) {
        self.settle(at);
    }

    fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    fn sometimes(&self) -> u64 {
        self.disagreements
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::*;
    use super::*;
    use incumbent_protocol::protocol::Cause;

    fn oracle() -> Agreement {
        Agreement::new(&MEMBERS, Duration::from_millis(500))
    }

    #[test]
    fn two_leaders_named_after_the_bound_are_seen() {
        let history = [(10, elected(1, 5)), (20, Observation::Healed), (30, follows(2, 1, 5)), (40, elected(3, 6))];
        let text = verdict(&mut oracle(), ms(900), &history);
        assert_eq!(text, "at 0.520, 500ms after healing, node 1 names node 1 (term 5) and node 3 names node 3 (term 6)");
    }

    #[test]
    fn one_leader_in_two_terms_is_no_agreement() {
        let history = [(10, elected(1, 5)), (20, Observation::Healed), (30, follows(2, 1, 4)), (40, follows(3, 1, 5))];
        assert!(verdict(&mut oracle(), ms(900), &history).contains("node 2 names node 1 (term 4)"));
    }

    #[test]
    fn nobody_named_by_anybody_is_no_agreement() {
        let text = verdict(&mut oracle(), ms(900), &[(20, Observation::Healed)]);
        assert_eq!(text, "at 0.520, 500ms after healing, node 1 names nobody");
    }

    #[test]
    fn who_is_down_need_not_agree_and_who_comes_up_must() {
        let down = [(10, elected(3, 5)), (20, Observation::Healed), (21, crashed(1)), (30, follows(2, 3, 5))];
        assert_eq!(verdict(&mut oracle(), ms(900), &down), "");
        let started = Observation::Started { node: NodeId(1), disk: None };
        let up = [&down[..], &[(40, started)]].concat();
        assert_eq!(verdict(&mut oracle(), ms(900), &up), "at 0.520, 500ms after healing, node 1 names nobody");
    }

    #[test]
    fn a_change_after_the_bound_is_seen() {
        let gone = Event::LeaderGone { leader: NodeId(1), term: Term(5), cause: Cause::Silent };
        let history = [
            (10, elected(1, 5)),
            (20, Observation::Healed),
            (30, follows(2, 1, 5)),
            (40, follows(3, 1, 5)),
            (700, told(3, gone)),
        ];
        let text = verdict(&mut oracle(), ms(900), &history);
        assert_eq!(text, "node 3 named node 1 (term 5) and names nobody from 0.700, after all had agreed");
    }

    #[test]
    fn a_hand_over_lets_the_group_settle_anew_but_not_for_ever() {
        let change = |at: u64, from: u32, to: u32, term: u64| {
            let reason = Reason::HandedOver { to: NodeId(to) };
            let other = 6 - from - to;
            [
                (at, told(from, Event::Lost { term: Term(term), reason })),
                (at + 10, elected(to, term + 1)),
                (at + 20, follows(from, to, term + 1)),
                (at + 30, follows(other, to, term + 1)),
            ]
        };
        let mut history = vec![(10, elected(1, 1)), (11, follows(2, 1, 1)), (12, follows(3, 1, 1)), (20, Observation::Healed)];
        history.extend(change(1000, 1, 2, 1));
        history.extend(change(2000, 2, 3, 2));
        history.extend(change(3000, 3, 1, 3));
        assert_eq!(verdict(&mut oracle(), ms(4000), &history), "");
        assert!(verdict(&mut oracle(), ms(4000), &history[..history.len() - 1]).starts_with("at 3.500, 500ms after"));
        history.extend(change(4000, 1, 2, 4));
        assert!(verdict(&mut oracle(), ms(5000), &history).contains("node 1 named node 1 (term 4) and names nobody from 4.000"));
    }

    #[test]
    fn disagreement_before_the_bound_is_fine_and_counted() {
        let mut oracle = oracle();
        let history = [
            (10, elected(1, 5)),
            (11, elected(3, 6)),
            (20, Observation::Healed),
            (30, follows(2, 1, 5)),
            (400, follows(1, 3, 6)),
            (500, follows(2, 3, 6)),
            (700, follows(2, 3, 6)),
        ];
        assert_eq!(verdict(&mut oracle, ms(900), &history), "");
        assert_eq!(oracle.sometimes(), 3);
        assert_eq!(oracle.settled(), Some(Duration::from_millis(480)));
    }

    #[test]
    fn a_run_that_ends_before_the_bound_is_not_judged() {
        assert_eq!(verdict(&mut oracle(), ms(519), &[(20, Observation::Healed)]), "");
    }
}
