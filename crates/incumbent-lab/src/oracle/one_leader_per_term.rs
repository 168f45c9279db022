//! S1: a term is held once, by one node. Not by two, and not by one node again after it has left office or crashed.
//!
//! Sometimes: two nodes wanted the same term.

use std::collections::BTreeMap;

use incumbent_protocol::protocol::{Claim, Event, NodeId, Term};

use super::{Oracle, Roster, Violation, note};
use crate::observation::{Moment, Observation};

/// Sees that no term is held twice.
#[derive(Clone, Debug)]
pub struct OneLeaderPerTerm {
    roster: Roster,
    /// Every term ever held: by whom, and since when.
    held: BTreeMap<Term, (NodeId, Moment)>,
    /// By rank: the term that the node holds now. Renewals, the common case, end here.
    holds: Vec<Option<Term>>,
    /// Who was last seen to want a term.
    wanted: Option<(Term, NodeId)>,
    contested: u64,
    violation: Option<Violation>,
}

impl OneLeaderPerTerm {
    /// At the beginning of a run, over these members in ascending order.
    pub fn new(members: &[NodeId]) -> Self {
        let roster = Roster::of(members);
        let holds = vec![None; roster.count];
        Self { roster, held: BTreeMap::new(), holds, wanted: None, contested: 0, violation: None }
    }

    fn on_leadership(&mut self, at: Moment, node: NodeId, term: Term) {
        if let Some((other, since)) = self.held.insert(term, (node, at)) {
            note(&mut self.violation, Self::NAME, at, || {
                if other == node {
                    format!("node {node} holds term {term} again from {at}: it had held it from {since} and then left office")
                } else {
                    format!("term {term} was held by node {other} from {since} and is held by node {node} from {at}")
                }
            });
        }
    }

    fn on_wanted(&mut self, term: Term, node: NodeId) {
        if self.wanted.is_some_and(|(earlier, other)| earlier == term && other != node) {
            self.contested += 1;
        }
        self.wanted = Some((term, node));
    }
}

impl Oracle for OneLeaderPerTerm {
    const NAME: &'static str = "one_leader_per_term";
    const SOMETIMES: &'static str = "two nodes wanted the same term";

    fn see(&mut self, at: Moment, seen: &Observation<'_>) {
        match *seen {
            Observation::InOffice { node, term, .. } => {
                let rank = self.roster.rank(node);
                if self.holds[rank] != Some(term) {
                    self.holds[rank] = Some(term);
                    self.on_leadership(at, node, term);
                }
            }
            Observation::OutOfOffice { node, .. } | Observation::Crashed { node } | Observation::Started { node, .. } => {
                let rank = self.roster.rank(node);
                self.holds[rank] = None;
            }
            Observation::Told { node, event: Event::Contends { term } } => self.on_wanted(term, node),
            Observation::Sent { claim: Claim::Vote { term, candidate }, .. } => self.on_wanted(term, candidate),
            Observation::Told { .. } | Observation::Sent { .. } | Observation::Healed => {}
        }
    }

    fn finish(&mut self, _: Moment) {}

    fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    fn sometimes(&self) -> u64 {
        self.contested
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::*;
    use super::*;

    fn oracle() -> OneLeaderPerTerm {
        OneLeaderPerTerm::new(&MEMBERS)
    }

    #[test]
    fn a_term_held_by_two_nodes_is_seen() {
        let text = verdict(
            &mut oracle(),
            ms(900),
            &[
                (100, in_office(1, 5, ms(250))),
                (150, in_office(1, 5, ms(300))),
                // Long after the first has gone: no instant has two leaders, the term has.
                (400, in_office(3, 5, ms(600))),
            ],
        );
        assert_eq!(text, "term 5 was held by node 1 from 0.100 and is held by node 3 from 0.400");
    }

    #[test]
    fn a_term_held_again_after_a_crash_is_seen() {
        let history = [
            (100, in_office(2, 5, Moment::NEVER)),
            (200, crashed(2)),
            (300, Observation::Started { node: NodeId(2), disk: None }),
            (400, in_office(2, 5, Moment::NEVER)),
        ];
        let text = verdict(&mut oracle(), ms(900), &history);
        assert_eq!(text, "node 2 holds term 5 again from 0.400: it had held it from 0.100 and then left office");
    }

    #[test]
    fn renewals_and_new_terms_are_fine() {
        let mut oracle = oracle();
        let history = [
            (90, contends(1, 4)),
            (100, in_office(1, 5, ms(250))),
            (150, in_office(1, 5, ms(300))),
            (200, out_of_office(1, 5)),
            (400, in_office(3, 6, ms(600))),
            (500, in_office(3, 7, ms(700))),
        ];
        assert_eq!(verdict(&mut oracle, ms(900), &history), "");
        assert_eq!(oracle.sometimes(), 0);
    }

    #[test]
    fn sometimes_two_nodes_want_one_term() {
        let mut oracle = oracle();
        let history = [(90, contends(1, 4)), (91, contends(1, 4)), (92, contends(3, 4)), (93, contends(2, 5))];
        assert_eq!(verdict(&mut oracle, ms(900), &history), "");
        assert_eq!(oracle.sometimes(), 1);
    }
}
