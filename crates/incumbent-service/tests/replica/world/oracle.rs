//! What must be true of every run, asked after every event. The numbers are those of the fault catalogue: S1 to S8, R1.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, Bytes};
use incumbent_protocol::protocol::{NodeId, Term};
use incumbent_service::replica::{Committed, Content, Entry, Index, Promise, Replica, Roll, promise};

use super::disk::Disk;
use super::machine;

#[derive(Default)]
pub(crate) struct Oracle {
    /// S1: who led a term, and in which life.
    leaders: BTreeMap<Term, (NodeId, u64)>,
    /// S2, S4: what is decided.
    chosen: BTreeMap<Index, (Term, u64)>,
    digests: BTreeMap<Index, u64>,
    /// S3: what an entry says, by its place and term.
    written: BTreeMap<(Index, Term), u64>,
    /// S7: who the members were, from which entry on.
    rolls: BTreeMap<Index, Roll>,
    /// S8: the greatest term and commit index of a node's life, and the greatest term on its disk.
    terms: BTreeMap<(NodeId, u64), Term>,
    commits: BTreeMap<(NodeId, u64), Index>,
    durable: BTreeMap<NodeId, Term>,
    /// Which writes were decided, and which were said never to be.
    done: BTreeMap<u64, Index>,
    refused: BTreeSet<u64>,
    /// R1: what any answered operation has seen.
    floor: u64,
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

    pub(crate) fn on_leader(&mut self, node: NodeId, life: u64, replica: &Replica) -> Result<(), String> {
        let view = replica.view();
        let other = self.leaders.insert(view.role.term, (node, life));
        if other.is_some_and(|it| it != (node, life)) {
            return Err(format!("S1: {other:?} and {node} in its life {life} lead term {}", view.role.term));
        }
        // A leader of the past may be told of its election late: what was decided in later terms is no business of its own.
        for (index, (term, _)) in self.chosen.range(view.first..).filter(|(_, (term, _))| *term < view.role.term) {
            if replica.term_at(*index) != Some(*term) {
                return Err(format!("S2: {node} leads term {} without entry {index} of term {term}", view.role.term));
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

    /// S4: equal states at equal places.
    pub(crate) fn on_applied(&mut self, node: NodeId, index: Index, digest: u64) -> Result<(), String> {
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

    pub(crate) fn on_write(&mut self, node: NodeId, entries: &[Entry]) -> Result<(), String> {
        for entry in entries {
            let said = machine::fold_bytes(0, &entry.bytes);
            if *self.written.entry((entry.index, entry.term)).or_insert(said) != said {
                return Err(format!("S3: {node} writes another entry {entry:?} than was written before"));
            }
        }
        Ok(())
    }

    /// S5: nothing is promised that the disk could forget.
    pub(crate) fn on_send(&self, node: NodeId, to: NodeId, bytes: &Bytes, disk: &Disk) -> Result<(), String> {
        let vote = disk.promised();
        let kept = match promise(bytes) {
            None => true,
            Some(Promise::Vote(term)) => vote.term > term || (vote.term == term && vote.candidate == Some(to)),
            Some(Promise::Candidacy(term)) => vote.term > term || (vote.term == term && vote.candidate == Some(node)),
            Some(Promise::Keeps(term, index)) => vote.term >= term && disk.last() >= index,
            Some(Promise::Leads(term)) => vote.term >= term,
        };
        if kept {
            return Ok(());
        }
        Err(format!(
            "S5: {node} promises {:?} to {to}, and its disk has {vote:?} and entries up to {}",
            promise(bytes),
            disk.last()
        ))
    }

    /// S8: nothing that a node knows becomes less.
    pub(crate) fn on_step(&mut self, node: NodeId, life: u64, replica: &Replica, disk: &Disk) -> Result<(), String> {
        let view = replica.view();
        let term = self.terms.entry((node, life)).or_insert(view.role.term);
        let commit = self.commits.entry((node, life)).or_insert(view.commit);
        let durable = self.durable.entry(node).or_insert(disk.vote.term);
        if view.role.term < *term || view.commit < *commit || disk.vote.term < *durable {
            return Err(format!(
                "S8: {node} goes back: term {term} commit {commit} disk {durable}, now {view:?} {:?}",
                disk.vote
            ));
        }
        (*term, *commit, *durable) = (view.role.term, view.commit, disk.vote.term);
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
