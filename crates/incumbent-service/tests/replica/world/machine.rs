//! The simplest thing that can be replicated: a register, and a digest of all that was ever applied.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use incumbent_service::replica::{ClusterTime, Committed, Content, Index};

/// Long enough to be sent in several parts.
const STATE_BYTES: usize = 2_500;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Machine {
    pub(crate) applied: Index,
    pub(crate) digest: u64,
    /// What was written last.
    pub(crate) value: u64,
    /// How many writes there were: the register's version.
    pub(crate) version: u64,
    pub(crate) at: ClusterTime,
}

impl Machine {
    pub(crate) fn born() -> Machine {
        Machine { applied: 1, ..Machine::default() }
    }

    /// Says what is wrong, if anything is. The versions that this entry's writes got, in their order.
    pub(crate) fn apply(&mut self, entry: &Committed) -> Result<Vec<u64>, String> {
        if entry.index != self.applied + 1 {
            return Err(format!("entry {} is applied after {}", entry.index, self.applied));
        }
        self.applied = entry.index;
        let mut versions = Vec::new();
        if let Content::Batch { at, items } = &entry.content {
            if *at < self.at {
                return Err(format!("time goes back from {:?} to {at:?} at {}", self.at, entry.index));
            }
            self.at = *at;
            for item in items {
                self.value = item.payload.clone().get_u64();
                self.version += 1;
                versions.push(self.version);
            }
        }
        self.digest = fold(self.digest, &[entry.index, hash(entry)]);
        Ok(versions)
    }

    pub(crate) fn save(&self) -> Bytes {
        let mut bytes = BytesMut::zeroed(STATE_BYTES);
        let mut head = &mut bytes[..];
        for number in [self.applied, self.digest, self.value, self.version, self.at.0] {
            head.put_u64(number);
        }
        bytes.freeze()
    }

    pub(crate) fn load(mut bytes: Bytes) -> Machine {
        // A cluster's birth is a snapshot of nothing.
        if bytes.is_empty() {
            return Machine::born();
        }
        let mut next = || bytes.get_u64();
        Machine { applied: next(), digest: next(), value: next(), version: next(), at: ClusterTime(next()) }
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
