//! What is replicated: a register with a digest of all that was ever applied, and beside it, if a world wants it, a real store.
//!
//! A proposal's payload is its number, and behind that, for the store, what a node of the service writes into its log. Promises: the store is changed by the product's own function and by
//! nothing else, and what it answers and tells goes into the digest, so two replicas that differ in either are found at the same entry. Left out: who asks, and what may be asked.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use incumbent_service::replica::{ClusterTime, Committed, Content, Index};
use incumbent_service::server::apply;
use incumbent_store::Message;
use incumbent_store::event::Event;
use incumbent_store::limits::Limits;
use incumbent_store::reply::Outcome;
use incumbent_store::store::Store;

/// Long enough to be sent in several parts.
const STATE_BYTES: usize = 2_500;

/// Little of everything, so that what is too much happens: events are dropped, and sessions end over several entries.
pub(crate) const LIMITS: Limits = Limits { events_max: 60, ended_at_once_max: 3, ..Limits::STANDARD };

/// What the nodes of a world replicate.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Replicated {
    Register,
    /// The register, and a store.
    Store,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Machine {
    pub(crate) applied: Index,
    pub(crate) digest: u64,
    /// What was written last.
    pub(crate) value: u64,
    /// How many writes there were: the register's version.
    pub(crate) version: u64,
    pub(crate) at: ClusterTime,
    pub(crate) store: Option<Store>,
}

/// What came of an entry.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// The versions that its writes got, in their order.
    pub(crate) versions: Vec<u64>,
    /// What the store has answered to each, with the revision after it.
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) events: Vec<Arc<Event>>,
    /// By how much the store was behind with what ends by time, in nanoseconds of cluster time.
    pub(crate) overdue: u64,
}

impl Machine {
    /// Of a node that was never in a cluster.
    pub(crate) fn nothing(replicated: Replicated) -> Machine {
        let store = match replicated {
            Replicated::Register => None,
            Replicated::Store => Some(Store::with_limits(0, LIMITS)),
        };
        Machine { store, ..Machine::default() }
    }

    pub(crate) fn born(replicated: Replicated) -> Machine {
        Machine { applied: 1, ..Machine::nothing(replicated) }
    }

    /// Says what is wrong, if anything is.
    pub(crate) fn apply(&mut self, entry: &Committed) -> Result<Applied, String> {
        if entry.index != self.applied + 1 {
            return Err(format!("entry {} is applied after {}", entry.index, self.applied));
        }
        self.applied = entry.index;
        let mut applied = Applied::default();
        if let Content::Batch { at, items } = &entry.content {
            if *at < self.at {
                return Err(format!("time goes back from {:?} to {at:?} at {}", self.at, entry.index));
            }
            self.at = *at;
            let expiry = self.store.as_ref().and_then(Store::expiry);
            applied.overdue = expiry.map_or(0, |it| at.0.saturating_sub(it.as_nanos()));
            for item in items {
                let mut payload = item.payload.clone();
                self.value = payload.get_u64();
                self.version += 1;
                applied.versions.push(self.version);
                if let Some(store) = &mut self.store {
                    let done = apply::apply(store, *at, &payload, &mut applied.events);
                    let (result, revision) = done.map_err(|why| format!("entry {} cannot be read: {why}", entry.index))?;
                    applied.outcomes.push(Outcome::of(&result, revision));
                }
            }
        }
        self.digest = fold(self.digest, &[entry.index, hash(entry)]);
        for outcome in &applied.outcomes {
            self.digest = fold_bytes(self.digest, &outcome.encode_to_vec());
        }
        for event in &applied.events {
            self.digest = fold_bytes(self.digest, &event.encode_to_vec());
        }
        Ok(applied)
    }

    pub(crate) fn save(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        for number in [self.applied, self.digest, self.value, self.version, self.at.0] {
            bytes.put_u64(number);
        }
        for piece in self.store.iter().flat_map(Store::save) {
            bytes.put_u64(piece.len() as u64);
            bytes.put_slice(&piece);
        }
        if self.store.is_none() {
            bytes.resize(STATE_BYTES, 0);
        }
        bytes.freeze()
    }

    pub(crate) fn load(mut bytes: Bytes, replicated: Replicated) -> Result<Machine, String> {
        // A cluster's birth is a snapshot of nothing.
        if bytes.is_empty() {
            return Ok(Machine::born(replicated));
        }
        let mut next = || bytes.get_u64();
        let (applied, digest, value, version, at) = (next(), next(), next(), next(), ClusterTime(next()));
        let pieces = std::iter::from_fn(|| {
            bytes.has_remaining().then(|| {
                let len = bytes.get_u64() as usize;
                bytes.split_to(len)
            })
        });
        let store = match replicated {
            Replicated::Register => None,
            Replicated::Store => Some(Store::load_with_limits(pieces, LIMITS).map_err(|why| why.to_string())?),
        };
        Ok(Machine { applied, digest, value, version, at, store })
    }
}

/// What an entry says, the same on every node: tags are the business of one.
pub(crate) fn hash(entry: &Committed) -> u64 {
    let mut hash = fold(entry.index, &[entry.term.0]);
    match &entry.content {
        Content::Nothing => {}
        Content::Batch { at, items } => {
            hash = fold(hash, &[at.0, items.len() as u64]);
            for item in items {
                hash = fold_bytes(hash, &item.payload);
            }
        }
        Content::Members { roll, .. } => hash = fold_bytes(hash, format!("{roll:?}").as_bytes()),
    }
    hash
}

pub(crate) fn fold(hash: u64, numbers: &[u64]) -> u64 {
    numbers.iter().fold(hash, |hash, number| (hash ^ number).wrapping_mul(0x0100_0000_01B3).rotate_left(29))
}

pub(crate) fn fold_bytes(hash: u64, bytes: &[u8]) -> u64 {
    let whole = bytes.chunks_exact(8);
    let rest = whole.remainder().iter().fold(bytes.len() as u64, |rest, byte| rest << 8 | u64::from(*byte));
    let hash = whole.fold(hash, |hash, eight| fold(hash, &[u64::from_be_bytes(eight.try_into().unwrap_or_default())]));
    fold(hash, &[rest])
}
