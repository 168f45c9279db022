//! Answers that nobody has read yet: what they take of the node's memory, and for whom.
//!
//! An answer is counted when it is there as it goes out, and for as long as any of it waits to be sent. Streams of events are not counted here: what waits for those is the node's business.

use std::sync::Arc;

use bytes::Bytes;

use super::limits::TIMES_LEFT;
use crate::server::{Pool, Share};

/// From what an answer's room is taken: the pool, and who asks.
pub(super) struct Purse {
    pool: Pool,
    guest: Arc<str>,
}

impl Purse {
    /// All strangers have one name: the empty one.
    pub(super) fn of_a_stranger(pool: &Pool) -> Purse {
        Purse { pool: pool.clone(), guest: "".into() }
    }

    /// It has said who it is.
    pub(super) fn is_of(&mut self, guest: &str) {
        self.guest = guest.into();
    }

    /// The same bytes, with the room that they take until the last of them is dropped; `None` if there is none.
    pub(super) fn weigh(&self, bytes: Bytes) -> Option<Bytes> {
        let share = self.pool.take(&self.guest, bytes.len(), TIMES_LEFT)?;
        Some(Bytes::from_owner(Weighed { bytes, _share: share }))
    }
}

/// Bytes, and the room that they take.
struct Weighed {
    bytes: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for Weighed {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
