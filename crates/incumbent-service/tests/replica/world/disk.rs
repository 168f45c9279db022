//! A disk that keeps what was synced, and after a crash perhaps some of what was not: a prefix of it, never a hole.
//!
//! As in a node's directory, a snapshot from another node takes the place of the one before as soon as it is whole, and the log begins anew behind it by a write of its own: a crash may come
//! between the two. Left out: damage, which is `src/log/tests`.

use std::collections::VecDeque;

use bytes::Bytes;
use incumbent_protocol::chance::Chance;
use incumbent_protocol::protocol::Term;
use incumbent_service::replica::{Entry, Extent, Index, Mark, Recovered, Snapshot, Vote, Write};

use super::machine::fold_bytes;

/// What would be there after a crash.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    pub(crate) vote: Vote,
    pub(crate) snapshot: Snapshot,
    pub(crate) state: Bytes,
    pub(crate) entries: Vec<Entry>,
    pending: VecDeque<Write>,
    /// What has come of a snapshot. It stays after a crash, as it is told by its extent.
    arriving: Option<(Snapshot, Extent, Vec<u8>)>,
    arrived: Option<(Snapshot, Bytes)>,
    /// A snapshot from another node is in place, and the log has not begun anew behind it.
    pub(crate) between: bool,
    /// The snapshot that others are being sent, also when a newer one has taken its place.
    reading: Option<(Index, Bytes)>,
}

impl Disk {
    pub(crate) fn new(recovered: Recovered, state: Bytes) -> Disk {
        let Recovered { vote, snapshot, entries, .. } = recovered;
        Disk {
            vote,
            snapshot,
            state,
            entries,
            pending: VecDeque::new(),
            arriving: None,
            arrived: None,
            between: false,
            reading: None,
        }
    }

    /// What a node starts from. A log that does not lead to the snapshot begins anew behind it.
    pub(crate) fn recover(&mut self) -> Recovered {
        let Snapshot { index, term, .. } = self.snapshot;
        let begins_before = self.entries.first().is_some_and(|it| it.index <= index);
        if begins_before && !self.entries.iter().any(|it| (it.index, it.term) == (index, term)) {
            self.entries.clear();
        }
        self.between = false;
        // A commit goes with the entries that it speaks of.
        let commit = self.vote.commit.clamp(index, self.last());
        let (vote, snapshot, entries) = (Vote { commit, ..self.vote }, self.snapshot.clone(), self.entries.clone());
        Recovered { vote, snapshot, extent: extent(&self.state), entries }
    }

    /// What cannot be taken back. A snapshot of a later term stands for that term, too.
    pub(crate) fn promised(&self) -> Vote {
        let term = self.snapshot.term;
        if term > self.vote.term { Vote { term, candidate: None, ..self.vote } } else { self.vote }
    }

    pub(crate) fn last(&self) -> Index {
        self.entries.last().map_or(self.snapshot.index, |it| it.index).max(self.snapshot.index)
    }

    /// The term of the entry that a new write's entry at `index` will lie behind, when all before it is safe. None if that was let go of.
    pub(crate) fn term_before(&self, index: Index, new: &Write) -> Option<Term> {
        let before = index.checked_sub(1)?;
        for write in [new].into_iter().chain(self.pending.iter().rev()) {
            // Its own entries begin at `index` or behind it; those of an earlier one cut off whatever stands where they begin.
            if let Some(found) = write.entries.iter().find(|it| it.index == before) {
                return Some(found.term);
            }
            if let Some(snapshot) = &write.reset {
                return (snapshot.index == before).then_some(snapshot.term);
            }
        }
        let kept = self.entries.iter().find(|it| it.index == before).map(|it| it.term);
        kept.or_else(|| (self.snapshot.index == before).then_some(self.snapshot.term))
    }

    pub(crate) fn write(&mut self, write: Write) {
        self.pending.push_back(write);
    }

    /// All up to `mark` is safe.
    pub(crate) fn sync(&mut self, mark: Mark) {
        while self.pending.front().is_some_and(|it| it.mark <= mark) {
            let Some(write) = self.pending.pop_front() else { return };
            self.keep(write);
        }
    }

    /// The machine stops. What was written and not synced is lost from some point on.
    pub(crate) fn crash(&mut self, chance: &mut Chance) {
        let survives = chance.below(self.pending.len() as u64 + 1);
        for _ in 0..survives {
            let Some(write) = self.pending.pop_front() else { break };
            self.keep(write);
        }
        self.pending.clear();
        // Of what had come and was not synced, a part is lost.
        if let Some((.., bytes)) = &mut self.arriving {
            let kept = chance.below(bytes.len() as u64 + 1) as usize;
            bytes.truncate(kept);
        }
        // What was whole is there, and not in its place.
        if let Some((snapshot, bytes)) = self.arrived.take() {
            self.arriving = Some((snapshot, extent(&bytes), bytes.to_vec()));
        }
        self.reading = None;
    }

    fn keep(&mut self, write: Write) {
        if write.reset.is_some() {
            assert_eq!(Some(&self.snapshot), write.reset.as_ref(), "a snapshot is in place before the log begins anew");
            self.entries.clear();
            self.between = false;
        }
        if let Some(first) = write.entries.first() {
            self.entries.retain(|it| it.index < first.index);
            self.entries.extend(write.entries);
        }
        if let Some(vote) = write.vote {
            self.vote = vote;
        }
    }

    /// What has come whole takes its place, unless a newer one has. False if it is not there.
    pub(crate) fn settle(&mut self) -> bool {
        let Some((snapshot, state)) = self.arrived.take().filter(|(it, _)| it.index > self.snapshot.index) else { return false };
        (self.snapshot, self.state) = (snapshot, state);
        self.between = true;
        true
    }

    pub(crate) fn save(&mut self, snapshot: Snapshot, state: Bytes) {
        (self.snapshot, self.state) = (snapshot, state);
    }

    pub(crate) fn compact(&mut self, index: Index) {
        self.entries.retain(|it| it.index > index);
    }

    pub(crate) fn piece(&mut self, index: Index, offset: u64, bytes_max: u64) -> Bytes {
        if self.reading.as_ref().is_none_or(|(it, _)| *it != index) {
            self.reading = (self.snapshot.index == index).then(|| (index, self.state.clone()));
        }
        let Some((_, state)) = &self.reading else { return Bytes::new() };
        let from = (offset as usize).min(state.len());
        let until = (from + bytes_max as usize).min(state.len());
        state.slice(from..until)
    }

    /// How much there is of a snapshot that has not come to its end.
    pub(crate) fn arriving_bytes(&self) -> usize {
        self.arriving.as_ref().map_or(0, |(.., bytes)| bytes.len())
    }

    /// A snapshot is on its way: how much of it is here.
    pub(crate) fn expect(&mut self, snapshot: Snapshot, extent: Extent) -> u64 {
        match &self.arriving {
            Some((known, same, bytes)) if *known == snapshot && *same == extent => bytes.len() as u64,
            Some(_) | None => {
                self.arriving = Some((snapshot, extent, Vec::new()));
                0
            }
        }
    }

    /// A part of a snapshot from another node. Whether it is whole, if that was the last.
    pub(crate) fn store(&mut self, offset: u64, part: &[u8], last: bool) -> bool {
        let (snapshot, expected, mut bytes) = self.arriving.take().expect("a snapshot is announced before its parts");
        assert_eq!(bytes.len() as u64, offset, "a part comes behind the one before it");
        bytes.extend_from_slice(part);
        if !last {
            self.arriving = Some((snapshot, expected, bytes));
            return false;
        }
        let whole = extent(&bytes) == expected;
        self.arrived = whole.then_some((snapshot, bytes.into()));
        whole
    }
}

pub(crate) fn extent(bytes: &[u8]) -> Extent {
    Extent { bytes: bytes.len() as u64, checksum: fold_bytes(7, bytes) as u32 }
}
