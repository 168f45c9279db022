//! S5 and S8: nobody is told what a crash could make untrue.
//!
//! What a message claims of its sender (its term, its vote, its office) is on the sender's disk when the message leaves. A
//! node that comes up finds on its disk at least what anyone was ever told. And no vote is told twice with two names.
//!
//! Sometimes: a node came up again with a vote on its disk.

use incumbent_protocol::protocol::{Claim, NodeId, Record, Term};

use super::{Oracle, Roster, Violation, note};
use crate::observation::{Moment, Observation};

/// Sees that what is told is on disk, and stays there.
#[derive(Clone, Debug)]
pub struct PersistedBeforeTold {
    roster: Roster,
    /// By rank: the greatest term and the last vote that anyone was told of.
    told: Vec<Told>,
    remembered: u64,
    violation: Option<Violation>,
}

#[derive(Copy, Clone, Debug, Default)]
struct Told {
    term: Term,
    vote: Option<(Term, NodeId)>,
}

impl PersistedBeforeTold {
    /// At the beginning of a run, over these members in ascending order.
    pub fn new(members: &[NodeId]) -> Self {
        let roster = Roster::of(members);
        let told = vec![Told::default(); roster.count];
        Self { roster, told, remembered: 0, violation: None }
    }

    fn on_sent(&mut self, at: Moment, from: NodeId, name: &'static str, claim: Claim, durable: Option<&Record>) {
        let (term, vote) = match claim {
            Claim::Nothing => return,
            Claim::Term(term) | Claim::Office(term) => (term, None),
            Claim::Vote { term, candidate } => (term, Some((term, candidate))),
        };
        let told = &mut self.told[self.roster.rank(from)];
        if let (Some((term, candidate)), Some((last_term, last))) = (vote, told.vote)
            && last_term == term
            && last != candidate
        {
            note(&mut self.violation, Self::NAME, at, || {
                format!(
                    "node {from} told its vote in term {term} twice: for node {last}, and at {at} for node {candidate} ({name})"
                )
            });
        }
        told.term = told.term.max(term);
        told.vote = vote.or(told.vote);
        if !covers(durable, term, vote) {
            note(&mut self.violation, Self::NAME, at, || {
                format!("node {from} sent {name} at {at} ({claim:?}) with {} on its disk", Disk(durable))
            });
        }
    }

    fn on_started(&mut self, at: Moment, node: NodeId, disk: Option<&Record>) {
        self.remembered += u64::from(disk.is_some_and(|it| it.vote.is_some()));
        let Told { term, vote } = self.told[self.roster.rank(node)];
        if term > Term(0) && !(covers(disk, term, None) && vote.is_none_or(|(voted_in, _)| covers(disk, voted_in, vote))) {
            note(&mut self.violation, Self::NAME, at, || {
                let voted =
                    vote.map_or(String::new(), |(term, candidate)| format!(" and of a vote for node {candidate} in term {term}"));
                format!("node {node} came up at {at} with {} on its disk, but others were told of term {term}{voted}", Disk(disk))
            });
        }
    }
}

/// Whether a node that comes up with `disk` can do nothing that contradicts this term and vote. A later term covers the votes of earlier ones.
fn covers(disk: Option<&Record>, term: Term, vote: Option<(Term, NodeId)>) -> bool {
    let Some(disk) = disk else {
        // A node without a record is in term 0, in which nobody votes.
        return term == Term(0) && vote.is_none();
    };
    disk.term > term || (disk.term == term && vote.is_none_or(|(_, candidate)| disk.vote == Some(candidate)))
}

/// What is on a disk, in words.
struct Disk<'a>(Option<&'a Record>);

impl core::fmt::Display for Disk<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.0 {
            None => f.write_str("nothing"),
            Some(Record { term, vote: None }) => write!(f, "term {term} and no vote"),
            Some(Record { term, vote: Some(vote) }) => write!(f, "term {term} and a vote for node {vote}"),
        }
    }
}

impl Oracle for PersistedBeforeTold {
    const NAME: &'static str = "persisted_before_told";
    const SOMETIMES: &'static str = "a node came up again with a vote on its disk";

    fn see(&mut self, at: Moment, seen: &Observation<'_>) {
        match *seen {
            Observation::Sent { from, claim, name, durable, .. } => self.on_sent(at, from, name, claim, durable),
            Observation::Started { node, ref disk } => self.on_started(at, node, disk.as_ref()),
            Observation::InOffice { .. }
            | Observation::OutOfOffice { .. }
            | Observation::Told { .. }
            | Observation::Crashed { .. }
            | Observation::Healed => {}
        }
    }

    fn finish(&mut self, _: Moment) {}

    fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    fn sometimes(&self) -> u64 {
        self.remembered
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::*;
    use super::*;
    use incumbent_protocol::protocol::Purpose;

    fn record(term: u64, vote: Option<u32>) -> Record {
        Record { term: Term(term), vote: vote.map(NodeId) }
    }

    fn sent(claim: Claim, durable: Option<&Record>) -> Observation<'_> {
        Observation::Sent { from: NodeId(2), to: NodeId(1), claim, purpose: Purpose::Contest, name: "vote", durable }
    }

    fn vote(term: u64, candidate: u32) -> Claim {
        Claim::Vote { term: Term(term), candidate: NodeId(candidate) }
    }

    fn started(disk: Option<Record>) -> Observation<'static> {
        Observation::Started { node: NodeId(2), disk }
    }

    fn judged(history: &[(u64, Observation<'_>)]) -> String {
        verdict(&mut PersistedBeforeTold::new(&MEMBERS), ms(900), history)
    }

    #[test]
    fn a_claim_that_is_not_on_disk_is_seen() {
        let none = record(5, None);
        let other = record(5, Some(3));
        for (claim, disk, says) in [
            (Claim::Term(Term(1)), None, "(Term(Term(1))) with nothing on its disk"),
            (Claim::Term(Term(6)), Some(&none), "with term 5 and no vote on its disk"),
            (Claim::Office(Term(6)), Some(&other), "with term 5 and a vote for node 3 on its disk"),
            (vote(5, 1), Some(&none), "with term 5 and no vote on its disk"),
            (vote(5, 1), Some(&other), "with term 5 and a vote for node 3 on its disk"),
        ] {
            let text = judged(&[(10, sent(claim, disk))]);
            assert!(text.starts_with("node 2 sent vote at 0.010") && text.ends_with(says), "{text}");
        }
    }

    #[test]
    fn a_claim_that_is_on_disk_is_fine() {
        let disk = record(5, Some(3));
        for claim in [Claim::Nothing, Claim::Term(Term(5)), Claim::Office(Term(5)), vote(5, 3), vote(4, 1)] {
            assert_eq!(judged(&[(10, sent(claim, Some(&disk)))]), "", "{claim:?}");
        }
        assert_eq!(judged(&[(10, sent(Claim::Term(Term(0)), None))]), "");
    }

    #[test]
    fn a_vote_told_with_two_names_is_seen() {
        let (first, second) = (record(5, Some(3)), record(5, Some(1)));
        let text = judged(&[(10, sent(vote(5, 3), Some(&first))), (20, sent(vote(5, 1), Some(&second)))]);
        assert_eq!(text, "node 2 told its vote in term 5 twice: for node 3, and at 0.020 for node 1 (vote)");
    }

    #[test]
    fn a_disk_that_forgot_what_was_told_is_seen() {
        let disk = record(5, Some(3));
        for (kept, says) in [
            (None, "with nothing on its disk"),
            (Some(record(4, Some(3))), "with term 4"),
            (Some(record(5, None)), "with term 5 and no vote"),
            (Some(record(5, Some(1))), "with term 5 and a vote for node 1"),
        ] {
            let text = judged(&[(10, sent(vote(5, 3), Some(&disk))), (20, crashed(2)), (30, started(kept))]);
            assert!(text.contains(says) && text.ends_with("told of term 5 and of a vote for node 3 in term 5"), "{text}");
        }
    }

    #[test]
    fn a_disk_that_kept_as_much_or_more_is_fine_and_counted() {
        let disk = record(5, Some(3));
        let mut oracle = PersistedBeforeTold::new(&MEMBERS);
        let history = [
            (5, started(None)),
            (10, sent(vote(5, 3), Some(&disk))),
            (20, started(Some(record(5, Some(3))))),
            (30, started(Some(record(6, None)))),
        ];
        assert_eq!(verdict(&mut oracle, ms(900), &history), "");
        assert_eq!(oracle.sometimes(), 1);
    }
}
