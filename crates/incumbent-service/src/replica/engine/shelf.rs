//! The log as the engine reads it: in memory, from the last compaction on.
//!
//! Nothing is ever read from the disk for a node that lags: what is not here is in a snapshot. So the shelf is bounded by how often
//! snapshots are taken.

use std::cell::Cell;
use std::collections::VecDeque;

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot as RaftSnapshot};
use raft::{Error, GetEntriesContext, RaftState, Result, Storage, StorageError};

use super::super::content;
use super::super::exchange::{ClusterTime, Index, Snapshot};
use super::convert;

/// Bytes that an entry costs besides its own.
const ENTRY_OVERHEAD: u64 = 96;

pub(super) struct Shelf {
    /// What the engine is started with; not kept up to date, as it is never asked for again.
    start: (HardState, ConfState),
    /// The entry before the first that is here.
    before: (Index, u64),
    entries: VecDeque<Entry>,
    bytes: u64,
    /// The newest snapshot that is on the disk.
    saved: Snapshot,
    /// Somebody needs a newer snapshot than that.
    wanted: Cell<bool>,
}

impl Shelf {
    pub(super) fn new(hard: HardState, before: (Index, u64), entries: VecDeque<Entry>, saved: Snapshot) -> Shelf {
        let roll = convert::roll_out(&saved.roll);
        let bytes = entries.iter().map(cost).sum();
        Shelf { start: (hard, roll), before, entries, bytes, saved, wanted: Cell::new(false) }
    }

    /// Bytes of all that is here.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn saved(&self) -> &Snapshot {
        &self.saved
    }

    pub(super) fn snapshot_wanted(&self) -> bool {
        self.wanted.get()
    }

    pub(super) fn first(&self) -> Index {
        self.before.0 + 1
    }

    pub(super) fn last(&self) -> Index {
        self.before.0 + self.entries.len() as u64
    }

    /// The last time that the log says.
    pub(super) fn time(&self) -> ClusterTime {
        let written = self.entries.iter().rev().find_map(|it| content::time(&it.data));
        written.unwrap_or_default().max(self.saved.at)
    }

    /// The last time that the log says up to `index`.
    pub(super) fn time_at(&self, index: Index) -> ClusterTime {
        let until = index.saturating_sub(self.before.0).min(self.entries.len() as u64) as usize;
        let written = self.entries.range(..until).rev().find_map(|it| content::time(&it.data));
        written.unwrap_or(self.saved.at)
    }

    /// Appends; what stands at the first one's index or behind it goes.
    pub(super) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        assert!(first.index > self.before.0 && first.index <= self.last() + 1, "a gap in the log before {}", first.index);
        while self.last() >= first.index {
            self.bytes -= self.entries.pop_back().as_ref().map_or(0, cost);
        }
        self.bytes += entries.iter().map(cost).sum::<u64>();
        self.entries.extend(entries.iter().cloned());
    }

    /// A snapshot has taken the place of all there was.
    pub(super) fn reset(&mut self, snapshot: Snapshot) {
        self.before = (snapshot.index, snapshot.term.0);
        self.entries.clear();
        self.bytes = 0;
        self.saved = snapshot;
        self.wanted.set(false);
    }

    /// A snapshot is on the disk.
    pub(super) fn save(&mut self, snapshot: Snapshot) {
        if snapshot.index > self.saved.index {
            self.saved = snapshot;
            self.wanted.set(false);
        }
    }

    /// Lets go of what a snapshot on the disk holds, up to `index`. Returns up to where that is.
    pub(super) fn compact(&mut self, index: Index) -> Index {
        let until = index.min(self.saved.index);
        while self.before.0 < until {
            let Some(gone) = self.entries.pop_front() else { break };
            self.bytes -= cost(&gone);
            self.before = (gone.index, gone.term);
        }
        self.before.0
    }
}

fn cost(entry: &Entry) -> u64 {
    entry.data.len() as u64 + ENTRY_OVERHEAD
}

impl Storage for Shelf {
    fn initial_state(&self) -> Result<RaftState> {
        let (hard, roll) = self.start.clone();
        Ok(RaftState::new(hard, roll))
    }

    fn entries(&self, low: u64, high: u64, max_size: impl Into<Option<u64>>, _: GetEntriesContext) -> Result<Vec<Entry>> {
        if low <= self.before.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        if high > self.last() + 1 {
            return Err(Error::Store(StorageError::Unavailable));
        }
        let limit = max_size.into().unwrap_or(u64::MAX);
        let range = (low - self.before.0 - 1) as usize..(high - self.before.0 - 1) as usize;
        let mut taken: u64 = 0;
        let fits = |entry: &&Entry| {
            let first = taken == 0;
            taken = taken.saturating_add(cost(entry));
            first || taken <= limit
        };
        Ok(self.entries.range(range).take_while(fits).cloned().collect())
    }

    fn term(&self, index: u64) -> Result<u64> {
        if index == self.before.0 {
            return Ok(self.before.1);
        }
        let place = index.checked_sub(self.before.0 + 1).ok_or(Error::Store(StorageError::Compacted))?;
        self.entries.get(place as usize).map(|it| it.term).ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.first())
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, to: u64) -> Result<RaftSnapshot> {
        // A node does not take a snapshot that knows nothing of it: who was added since needs a newer one.
        let known = convert::node(to).is_some_and(|it| self.saved.roll.contains(it));
        if !known || self.saved.index == 0 || self.saved.index < request_index.max(self.before.0) {
            self.wanted.set(true);
            return Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        }
        Ok(convert::snapshot_out(&self.saved))
    }
}
