//! L1: each leadership has a greater term than those before it, so that its token can fence them off.
//!
//! What "before" means depends on what holds the group together. With a guard and clocks within the bound it is plain:
//! leaderships follow each other in true time. Beyond the bound, a vote can arrive after a later leader has
//! begun; then only those count that began before the new leader's *contest* did. Without votes, a node knows of
//! nothing but its own past.
//!
//! Sometimes: a leadership followed another.

use std::collections::BTreeSet;

use incumbent_protocol::protocol::{Event, NodeId, Term};

use super::{Oracle, Roster, Violation, note};
use crate::observation::{Moment, Observation};

/// Which leaderships a new one must have a greater term than. None is ever used twice, in any case.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// All that began before it: guarded groups whose clocks keep the drift bound.
    Whole,
    /// All that began before its contest: guarded groups with clocks beyond the bound, and Raft, guarded or not.
    SinceContest,
    /// All of the same node: Bully and the rings without a guard.
    PerNode,
}

/// Sees that terms rise from one leadership to the next.
#[derive(Clone, Debug)]
pub struct TokensIncrease {
    roster: Roster,
    order: Order,
    nodes: Vec<Past>,
    /// The leadership with the greatest term so far.
    greatest: Option<Leadership>,
    used: BTreeSet<Term>,
    violation: Option<Violation>,
}

#[derive(Copy, Clone, Debug)]
struct Leadership {
    node: NodeId,
    term: Term,
    since: Moment,
}

/// What is known of one node.
#[derive(Copy, Clone, Debug, Default)]
struct Past {
    /// The term it holds now. Renewals, the common case, end here.
    holds: Option<Term>,
    /// Its last leadership, if it had one.
    last: Option<Leadership>,
    /// The greatest leadership of all when its present contest began.
    before_contest: Option<Leadership>,
}

impl TokensIncrease {
    /// At the beginning of a run, over these members in ascending order.
    pub fn new(members: &[NodeId], order: Order) -> Self {
        let roster = Roster::of(members);
        let nodes = vec![Past::default(); roster.count];
        Self { roster, order, nodes, greatest: None, used: BTreeSet::new(), violation: None }
    }

    fn on_leadership(&mut self, since: Moment, rank: usize, node: NodeId, term: Term) {
        let past = &mut self.nodes[rank];
        let exceeds = match self.order {
            Order::Whole => self.greatest,
            Order::SinceContest => past.before_contest,
            Order::PerNode => past.last,
        };
        let leadership = Leadership { node, term, since };
        past.last = Some(leadership);
        if let Some(earlier) = exceeds.filter(|earlier| earlier.term >= term) {
            note(&mut self.violation, Self::NAME, since, || {
                format!(
                    "node {node} took office at {since} in term {term}, which is not greater than term {} of node {} from {}",
                    earlier.term, earlier.node, earlier.since
                )
            });
        }
        if !self.used.insert(term) {
            note(&mut self.violation, Self::NAME, since, || {
                format!("node {node} took office at {since} in term {term}, which had been used before")
            });
        }
        if self.greatest.is_none_or(|greatest| greatest.term < term) {
            self.greatest = Some(leadership);
        }
    }
}

impl Oracle for TokensIncrease {
    const NAME: &'static str = "tokens_increase";
    const SOMETIMES: &'static str = "a leadership followed another";

    fn see(&mut self, at: Moment, seen: &Observation<'_>) {
        match *seen {
            Observation::InOffice { node, term, .. } => {
                let rank = self.roster.rank(node);
                if self.nodes[rank].holds != Some(term) {
                    self.nodes[rank].holds = Some(term);
                    self.on_leadership(at, rank, node, term);
                }
            }
            Observation::OutOfOffice { node, .. } | Observation::Crashed { node } | Observation::Started { node, .. } => {
                let rank = self.roster.rank(node);
                self.nodes[rank].holds = None;
            }
            Observation::Told { node, event: Event::Contends { .. } } => {
                let rank = self.roster.rank(node);
                self.nodes[rank].before_contest = self.greatest;
            }
            Observation::Told { .. } | Observation::Sent { .. } | Observation::Healed => {}
        }
    }

    fn finish(&mut self, _: Moment) {}

    fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    fn sometimes(&self) -> u64 {
        (self.used.len() as u64).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::*;
    use super::*;

    fn judged(order: Order, history: &[(u64, Observation<'_>)]) -> String {
        verdict(&mut TokensIncrease::new(&MEMBERS, order), ms(900), history)
    }

    /// Node 2 wins term 6 while the last vote for node 1 in term 5 is still on its way.
    fn overtaken() -> [(u64, Observation<'static>); 4] {
        [(50, contends(1, 4)), (60, contends(2, 5)), (100, in_office(2, 6, ms(200))), (300, in_office(1, 5, ms(400)))]
    }

    #[test]
    fn a_smaller_term_after_a_greater_one_is_seen() {
        let text = judged(Order::Whole, &overtaken());
        assert_eq!(text, "node 1 took office at 0.300 in term 5, which is not greater than term 6 of node 2 from 0.100");
    }

    #[test]
    fn the_greatest_term_counts_and_not_the_first_or_the_last() {
        let history = [(100, in_office(1, 2, ms(150))), (200, in_office(2, 6, ms(250))), (300, in_office(3, 4, ms(400)))];
        assert!(judged(Order::Whole, &history).contains("not greater than term 6 of node 2"));
    }

    #[test]
    fn beyond_the_drift_bound_only_a_later_contest_must_win_a_greater_term() {
        assert_eq!(judged(Order::SinceContest, &overtaken()), "");
        let mut late = overtaken();
        late[0] = (150, contends(1, 4));
        late.sort_by_key(|it| it.0);
        assert!(judged(Order::SinceContest, &late).contains("not greater than term 6 of node 2"));
    }

    #[test]
    fn without_votes_a_node_must_exceed_its_own_past_across_restarts() {
        assert_eq!(judged(Order::PerNode, &overtaken()), "");
        let regress = [(100, in_office(1, 6, ms(200))), (150, crashed(1)), (300, in_office(1, 5, ms(400)))];
        assert!(judged(Order::PerNode, &regress).contains("not greater than term 6 of node 1"));
    }

    #[test]
    fn a_term_used_twice_is_seen_in_any_order() {
        for order in [Order::SinceContest, Order::PerNode] {
            let text = judged(order, &[(100, in_office(1, 6, ms(200))), (300, in_office(2, 6, ms(400)))]);
            assert_eq!(text, "node 2 took office at 0.300 in term 6, which had been used before");
        }
    }

    #[test]
    fn rising_terms_and_renewals_are_fine() {
        for order in [Order::Whole, Order::SinceContest, Order::PerNode] {
            let mut oracle = TokensIncrease::new(&MEMBERS, order);
            let history = [
                (50, contends(1, 0)),
                (100, in_office(1, 1, ms(200))),
                (150, in_office(1, 1, ms(250))),
                (260, contends(3, 1)),
                (300, in_office(3, 4, ms(400))),
                (420, in_office(3, 5, ms(500))),
            ];
            assert_eq!(verdict(&mut oracle, ms(900), &history), "");
            assert_eq!(oracle.sometimes(), 2);
        }
    }
}
