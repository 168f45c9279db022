//! When the leader says that time has passed, which is the one thing that a node decides by its clock.
//!
//! Promises: one such proposal is under way at a time, it counts in the term of the leader that makes it and in no other (C08), and one that was not taken is made again, though not at once.
//! Left out: what ends. That is the store's to say, by the time that stands in the log.

use std::time::Duration;

use incumbent_protocol::time::Instant;
use incumbent_store::command::{Command, Expire, Request};
use incumbent_store::store::Store;

use crate::replica::{Place, Replica, Role, Tag};

/// The proposals of one node.
#[derive(Clone, Debug)]
pub struct Expiry {
    /// The one that is under way.
    under_way: Option<Tag>,
    /// None before this: the last one was not taken.
    from: Instant,
}

impl Default for Expiry {
    fn default() -> Expiry {
        Expiry { under_way: None, from: Instant::ZERO }
    }
}

impl Expiry {
    /// When the next is due, if this node leads and nothing happens before.
    pub fn due(&self, now: Instant, role: Role, replica: &Replica, store: &Store) -> Option<Instant> {
        if self.under_way.is_some() || !role.leads {
            return None;
        }
        let expiry = store.expiry()?;
        let left = expiry.as_nanos().saturating_sub(replica.cluster_time(now)?.0);
        Some((now + Duration::from_nanos(left)).max(self.from))
    }

    /// It is proposed under this tag: what, and where it may be appended.
    pub fn propose(&mut self, tag: Tag, role: Role) -> (Request, Place) {
        self.under_way = Some(tag);
        (Request::of(Command::Expire(Expire { limit: 0 })), Place::Here(role.term))
    }

    /// It has been applied. Other tags are nothing to it.
    pub fn applied(&mut self, tag: Tag) {
        self.under_way.take_if(|it| *it == tag);
    }

    /// It was not taken, or nobody knows: another is made, though only after a while, or the log would be full of them. Other tags are nothing to it.
    pub fn failed(&mut self, tag: Tag, now: Instant, wait: Duration) {
        if self.under_way.take_if(|it| *it == tag).is_some() {
            self.from = now + wait;
        }
    }
}
