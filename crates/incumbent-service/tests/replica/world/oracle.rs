//! What must be true of every run, asked after every event. The numbers are those of the fault catalogue: S1 to S8, R1.
//!
//! It is told plain values and sees no replica and no disk, so that each claim has a test that feeds it a history which breaks it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Buf;
use incumbent_protocol::protocol::{NodeId, Term};
use incumbent_service::replica::{Committed, Content, Entry, Index, Promise, Roll, Vote};

use super::machine;

#[derive(Default)]
pub(crate) struct Oracle {
    /// S1: who led a term, and in which life.
    leaders: BTreeMap<Term, (NodeId, u64)>,
    /// S2, S4: what is decided.
    chosen: BTreeMap<Index, (Term, u64)>,
    digests: BTreeMap<Index, u64>,
    /// S3: what an entry says, by its place and term.
    written: BTreeMap<(Index, Term), Written>,
    /// S7: who the members were, from which entry on.
    rolls: BTreeMap<Index, Roll>,
    /// S8: what a node knew last in one of its lives, how far it had applied, and what its disk had promised last.
    known: BTreeMap<(NodeId, u64), Known>,
    applied: BTreeMap<(NodeId, u64), Index>,
    durable: BTreeMap<NodeId, Vote>,
    /// Which writes were decided, and which were said never to be.
    done: BTreeMap<u64, Index>,
    refused: BTreeSet<u64>,
    /// R1: what any answered operation has seen.
    floor: u64,
}

/// An entry and, if it was seen, the term of the one before it: who agrees on both agrees on all before, one entry after the other.
struct Written {
    says: u64,
    behind: Option<Term>,
}

/// What a node knows, and must not forget while it lives.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    pub(crate) term: Term,
    pub(crate) commit: Index,
    /// How far its entries have been handed out.
    pub(crate) handed: Index,
}

impl Oracle {
    pub(crate) fn new(roll: Roll) -> Oracle {
        Oracle { rolls: BTreeMap::from([(1, roll)]), ..Oracle::default() }
    }

    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    pub(crate) fn highest(&self) -> Index {
        self.chosen.keys().next_back().copied().unwrap_or(1)
    }

    pub(crate) fn elections(&self) -> usize {
        self.leaders.len()
    }

    /// The members that were decided last.
    pub(crate) fn roll(&self) -> &Roll {
        self.rolls.values().next_back().expect("a cluster is born with members")
    }

    /// A node leads a term. It still has the entries from `first` on, and of each this is the term.
    pub(crate) fn on_leader(
        &mut self,
        node: NodeId,
        life: u64,
        leads: Term,
        first: Index,
        term_at: impl Fn(Index) -> Option<Term>,
    ) -> Result<(), String> {
        let other = self.leaders.insert(leads, (node, life));
        if other.is_some_and(|it| it != (node, life)) {
            return Err(format!("S1: {other:?} and {node} in its life {life} lead term {leads}"));
        }
        // A leader of the past may be told of its election late: what was decided in later terms is no business of its own.
        for (index, (term, _)) in self.chosen.range(first..).filter(|(_, (term, _))| *term < leads) {
            if term_at(*index) != Some(*term) {
                return Err(format!("S2: {node} leads term {leads} without entry {index} of term {term}"));
            }
        }
        Ok(())
    }

    pub(crate) fn on_commit(&mut self, node: NodeId, entry: &Committed) -> Result<(), String> {
        let said = (entry.term, machine::hash(entry));
        let before = *self.chosen.entry(entry.index).or_insert(said);
        if before != said {
            return Err(format!("S4: {node} has decided {said:?} at {}, and another {before:?}", entry.index));
        }
        if let Content::Batch { items, .. } = &entry.content {
            for item in items {
                let id = item.payload.clone().get_u64();
                if self.refused.contains(&id) {
                    return Err(format!("write {id} was refused and is decided at {}", entry.index));
                }
                let first = *self.done.entry(id).or_insert(entry.index);
                if first != entry.index {
                    return Err(format!("write {id} is decided at {first} and again at {}", entry.index));
                }
            }
        }
        Ok(())
    }

    /// S4: equal states at equal places. S8: a state is followed by a later one.
    pub(crate) fn on_applied(&mut self, node: NodeId, life: u64, index: Index, digest: u64) -> Result<(), String> {
        let last = self.applied.insert((node, life), index);
        if let Some(last) = last.filter(|it| *it >= index) {
            return Err(format!("S8: {node} goes back: its state was that after {last}, and is that after {index}"));
        }
        let before = *self.digests.entry(index).or_insert(digest);
        if before == digest {
            Ok(())
        } else {
            Err(format!("S4: the state of {node} after {index} is another than was seen before"))
        }
    }

    pub(crate) fn on_members(&mut self, node: NodeId, index: Index, roll: &Roll) -> Result<(), String> {
        if let Some(known) = self.rolls.get(&index) {
            return if known == roll {
                Ok(())
            } else {
                Err(format!("S7: {node} has other members at {index}: {roll:?}, {known:?}"))
            };
        }
        let Some((_, before)) = self.rolls.range(..index).next_back() else { return Ok(()) };
        let changed = before.voters().symmetric_difference(roll.voters()).count();
        let fits = match (before.joint(), roll.joint()) {
            // A snapshot tells again what was decided before.
            _ if before == roll => true,
            (false, false) => changed <= 1,
            (false, true) => roll.outgoing() == before.voters(),
            (true, false) => changed == 0,
            (true, true) => false,
        };
        // A snapshot may leave out what came between: then there is nothing to compare with.
        if !fits && self.rolls.range(index..).next().is_none() && self.chosen.contains_key(&index) && !self.gap(index) {
            return Err(format!("S7: {before:?} is followed by {roll:?} at {index}"));
        }
        self.rolls.insert(index, roll.clone());
        Ok(())
    }

    fn gap(&self, index: Index) -> bool {
        let from = self.rolls.range(..index).next_back().map_or(1, |(at, _)| *at);
        (self.chosen.range(from + 1..=index).count() as u64) < index - from
    }

    /// S3: one term writes one entry at a place, and always behind the same. `behind` is the term of the entry before the first of these, if that is still in the log.
    pub(crate) fn on_write(&mut self, node: NodeId, behind: Option<Term>, entries: &[Entry]) -> Result<(), String> {
        let mut behind = behind;
        for entry in entries {
            let says = machine::fold_bytes(0, &entry.bytes);
            let known = self.written.entry((entry.index, entry.term)).or_insert(Written { says, behind });
            if known.says != says {
                return Err(format!("S3: {node} writes another entry {entry:?} than was written before"));
            }
            if let (Some(other), Some(this)) = (known.behind, behind)
                && other != this
            {
                return Err(format!(
                    "S3: {node} writes {entry:?} behind one of term {this}, and it was written behind one of {other}"
                ));
            }
            known.behind = known.behind.or(behind);
            behind = Some(entry.term);
        }
        Ok(())
    }

    /// S5: nothing is promised that the disk could forget. `vote` and `last` are what it could not.
    pub(crate) fn on_promise(
        &self,
        node: NodeId,
        to: NodeId,
        promise: Option<Promise>,
        vote: Vote,
        last: Index,
    ) -> Result<(), String> {
        let kept = match promise {
            None => true,
            Some(Promise::Vote(term)) => vote.term > term || (vote.term == term && vote.candidate == Some(to)),
            Some(Promise::Candidacy(term)) => vote.term > term || (vote.term == term && vote.candidate == Some(node)),
            Some(Promise::Keeps(term, index)) => vote.term >= term && last >= index,
            Some(Promise::Leads(term)) => vote.term >= term,
        };
        if kept {
            return Ok(());
        }
        Err(format!("S5: {node} promises {promise:?} to {to}, and its disk has {vote:?} and entries up to {last}"))
    }

    /// S8: nothing that a node knows becomes less while it lives, and nothing that its disk has promised, ever.
    pub(crate) fn on_step(&mut self, node: NodeId, life: u64, now: Known, disk: Vote) -> Result<(), String> {
        let known = self.known.insert((node, life), now).unwrap_or(now);
        if now.term < known.term || now.commit < known.commit || now.handed < known.handed {
            return Err(format!("S8: {node} goes back from {known:?} to {now:?}"));
        }
        let durable = self.durable.insert(node, disk).unwrap_or(disk);
        let votes_again = disk.term == durable.term && durable.candidate.is_some() && disk.candidate != durable.candidate;
        if disk.term < durable.term || disk.commit < durable.commit || votes_again {
            return Err(format!("S8: the disk of {node} goes back from {durable:?} to {disk:?}"));
        }
        Ok(())
    }

    /// R1: an operation that saw `version` is answered; when it was asked, something up to `floor` had been answered.
    pub(crate) fn on_answer(&mut self, what: &str, floor: u64, version: u64, writes: bool) -> Result<(), String> {
        if version < floor || (writes && version == floor) {
            return Err(format!("R1: {what} has seen version {version}, and {floor} was answered before it was asked"));
        }
        self.floor = self.floor.max(version);
        Ok(())
    }

    pub(crate) fn on_refused(&mut self, id: u64) -> Result<(), String> {
        self.refused.insert(id);
        if self.done.contains_key(&id) { Err(format!("write {id} is decided and then refused")) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use incumbent_service::replica::{ClusterTime, Item};

    use super::*;

    fn id(id: u32) -> NodeId {
        NodeId(id)
    }

    fn roll(voters: &[u32]) -> Roll {
        Roll::of(voters.iter().copied().map(NodeId)).expect("some voters")
    }

    fn oracle() -> Oracle {
        Oracle::new(roll(&[0, 1, 2]))
    }

    /// An entry that says one write with this number.
    fn entry(index: Index, term: u64, write: u64) -> Committed {
        let item = Item { tag: None, payload: write.to_be_bytes().to_vec().into() };
        Committed { index, term: Term(term), content: Content::Batch { at: ClusterTime(0), items: vec![item] } }
    }

    fn line(index: Index, term: u64, says: &'static str) -> Entry {
        Entry { index, term: Term(term), bytes: Bytes::from_static(says.as_bytes()) }
    }

    fn vote(term: u64, candidate: Option<u32>, commit: Index) -> Vote {
        Vote { term: Term(term), candidate: candidate.map(NodeId), commit }
    }

    fn known(term: u64, commit: Index, handed: Index) -> Known {
        Known { term: Term(term), commit, handed }
    }

    fn wrong(what: Result<(), String>, which: &str) {
        assert!(what.as_ref().is_err_and(|it| it.starts_with(which)), "{what:?}");
    }

    #[test]
    fn two_leaders_of_a_term_and_one_without_what_was_decided_are_found() {
        let nothing = |_| None;
        let mut oracle = oracle();
        assert_eq!(oracle.on_leader(id(0), 1, Term(2), 1, nothing), Ok(()));
        assert_eq!(oracle.on_leader(id(0), 1, Term(2), 1, nothing), Ok(()), "it is told twice");
        wrong(oracle.on_leader(id(1), 1, Term(2), 1, nothing), "S1");
        let mut reborn = Oracle::new(roll(&[0, 1, 2]));
        assert_eq!(reborn.on_leader(id(0), 1, Term(2), 1, nothing), Ok(()));
        wrong(reborn.on_leader(id(0), 2, Term(2), 1, nothing), "S1");
        assert_eq!(reborn.on_commit(id(0), &entry(2, 2, 7)), Ok(()));
        assert_eq!(reborn.on_leader(id(1), 1, Term(3), 2, |_| Some(Term(2))), Ok(()));
        assert_eq!(reborn.on_leader(id(1), 1, Term(3), 3, nothing), Ok(()), "what is in a snapshot is not looked for");
        wrong(reborn.on_leader(id(2), 1, Term(4), 2, nothing), "S2");
        wrong(reborn.on_leader(id(2), 1, Term(5), 2, |_| Some(Term(1))), "S2");
    }

    #[test]
    fn an_entry_that_is_written_otherwise_or_behind_another_is_found() {
        let mut oracle = oracle();
        assert_eq!(oracle.on_write(id(0), Some(Term(1)), &[line(2, 2, "a"), line(3, 2, "b")]), Ok(()));
        assert_eq!(oracle.on_write(id(1), None, &[line(2, 2, "a")]), Ok(()), "what was before it is in a snapshot");
        assert_eq!(oracle.on_write(id(1), Some(Term(2)), &[line(3, 2, "b")]), Ok(()));
        wrong(oracle.on_write(id(1), Some(Term(2)), &[line(3, 2, "c")]), "S3");
        wrong(oracle.on_write(id(1), Some(Term(1)), &[line(3, 2, "b")]), "S3");
        // The second of two, behind an entry of another term.
        wrong(oracle.on_write(id(2), Some(Term(1)), &[line(2, 1, "a"), line(3, 2, "b")]), "S3");
        let mut late = Oracle::default();
        assert_eq!(late.on_write(id(0), None, &[line(2, 2, "a")]), Ok(()));
        assert_eq!(late.on_write(id(1), Some(Term(1)), &[line(2, 2, "a")]), Ok(()));
        wrong(late.on_write(id(2), Some(Term(2)), &[line(2, 2, "a")]), "S3");
    }

    #[test]
    fn two_decisions_at_one_place_one_twice_and_one_that_was_refused_are_found() {
        let mut oracle = oracle();
        assert_eq!(oracle.on_commit(id(0), &entry(2, 2, 7)), Ok(()));
        assert_eq!(oracle.on_commit(id(1), &entry(2, 2, 7)), Ok(()));
        wrong(oracle.on_commit(id(1), &entry(2, 2, 8)), "S4");
        wrong(oracle.on_commit(id(1), &entry(2, 3, 7)), "S4");
        wrong(oracle.on_commit(id(1), &entry(3, 2, 7)), "write 7 is decided at 2 and again at 3");
        wrong(oracle.on_refused(7), "write 7 is decided and then refused");
        assert_eq!(oracle.on_refused(9), Ok(()));
        wrong(oracle.on_commit(id(0), &entry(4, 2, 9)), "write 9 was refused");
    }

    #[test]
    fn states_that_differ_or_go_back_are_found() {
        let mut oracle = oracle();
        assert_eq!(oracle.on_applied(id(0), 1, 5, 77), Ok(()));
        assert_eq!(oracle.on_applied(id(1), 1, 5, 77), Ok(()));
        wrong(oracle.on_applied(id(2), 1, 5, 78), "S4");
        assert_eq!(oracle.on_applied(id(0), 1, 9, 79), Ok(()), "a snapshot leaves some out");
        wrong(oracle.on_applied(id(0), 1, 5, 77), "S8");
        assert_eq!(oracle.on_applied(id(1), 2, 5, 77), Ok(()), "who begins anew applies again");
    }

    #[test]
    fn a_promise_that_the_disk_could_forget_is_found() {
        let oracle = oracle();
        let promises = |promise, vote, last| oracle.on_promise(id(0), id(1), Some(promise), vote, last);
        assert_eq!(oracle.on_promise(id(0), id(1), None, vote(0, None, 0), 0), Ok(()));
        assert_eq!(promises(Promise::Vote(Term(3)), vote(3, Some(1), 0), 1), Ok(()));
        wrong(promises(Promise::Vote(Term(3)), vote(2, Some(1), 0), 1), "S5");
        wrong(promises(Promise::Vote(Term(3)), vote(3, None, 0), 1), "S5");
        wrong(promises(Promise::Vote(Term(3)), vote(3, Some(2), 0), 1), "S5");
        assert_eq!(promises(Promise::Candidacy(Term(3)), vote(3, Some(0), 0), 1), Ok(()));
        wrong(promises(Promise::Candidacy(Term(3)), vote(3, Some(1), 0), 1), "S5");
        assert_eq!(promises(Promise::Keeps(Term(3), 8), vote(3, None, 0), 8), Ok(()));
        wrong(promises(Promise::Keeps(Term(3), 8), vote(3, None, 0), 7), "S5");
        wrong(promises(Promise::Keeps(Term(3), 8), vote(2, None, 0), 8), "S5");
        wrong(promises(Promise::Leads(Term(3)), vote(2, None, 0), 8), "S5");
    }

    #[test]
    fn members_that_change_too_much_at_once_or_differ_are_found() {
        let mut oracle = oracle();
        for index in 2..6 {
            assert_eq!(oracle.on_commit(id(0), &entry(index, 2, index)), Ok(()));
        }
        assert_eq!(oracle.on_members(id(0), 3, &roll(&[0, 1, 2, 3])), Ok(()));
        assert_eq!(oracle.on_members(id(1), 3, &roll(&[0, 1, 2, 3])), Ok(()));
        wrong(oracle.on_members(id(2), 3, &roll(&[0, 1, 2])), "S7");
        wrong(oracle.on_members(id(0), 5, &roll(&[0, 1])), "S7");
        assert_eq!(oracle.on_members(id(0), 5, &roll(&[0, 1, 3])), Ok(()));
        assert_eq!(oracle.on_members(id(1), 9, &roll(&[3])), Ok(()), "a snapshot leaves out what came between");
    }

    #[test]
    fn a_node_that_forgets_what_it_knew_or_had_promised_is_found() {
        let good = || {
            let mut oracle = oracle();
            assert_eq!(oracle.on_step(id(0), 1, known(3, 8, 7), vote(3, Some(1), 6)), Ok(()));
            oracle
        };
        assert_eq!(good().on_step(id(0), 1, known(4, 9, 9), vote(4, None, 7)), Ok(()));
        assert_eq!(good().on_step(id(0), 2, known(3, 6, 2), vote(3, Some(1), 6)), Ok(()), "who begins anew has its disk alone");
        for less in [known(2, 8, 7), known(3, 7, 7), known(3, 8, 6)] {
            wrong(good().on_step(id(0), 1, less, vote(3, Some(1), 6)), "S8: 0 goes back");
        }
        for less in [vote(2, Some(1), 6), vote(3, Some(1), 5), vote(3, Some(2), 6), vote(3, None, 6)] {
            wrong(good().on_step(id(0), 2, known(3, 8, 7), less), "S8: the disk");
        }
    }

    #[test]
    fn an_answer_that_is_older_than_what_was_known_is_found() {
        let mut oracle = oracle();
        assert_eq!(oracle.on_answer("write", 0, 1, true), Ok(()));
        assert_eq!((oracle.floor(), oracle.on_answer("read", 1, 1, false)), (1, Ok(())));
        wrong(oracle.on_answer("read", 1, 0, false), "R1");
        wrong(oracle.on_answer("write", 1, 1, true), "R1");
    }
}
