//! What has changed, for those who watch. Every event carries the revision at which it happened.
//!
//! Revisions never go back in the order of events. What one transaction changes has one revision, and a key at most one event in it.

use alloc::boxed::Box;
use alloc::string::String;

use prost::Message;
use prost::bytes::Bytes;

use crate::command::Wish;
use crate::election::{Completion, Holder, Note, Past};
use crate::keys::item::Item;

/// One change.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Event {
    /// When.
    #[prost(uint64, tag = "1")]
    pub revision: u64,
    /// What. `None` is what this version does not know.
    #[prost(oneof = "Change", tags = "2, 3, 4, 10, 11, 12, 13, 14, 15, 16, 17, 18")]
    pub change: Option<Change>,
}

/// What may change. What is large is boxed: many events are kept, and most are small.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Change {
    /// A key was written.
    #[prost(message, boxed, tag = "2")]
    Put(Box<KeyPut>),
    /// A key was deleted.
    #[prost(message, boxed, tag = "3")]
    Deleted(Box<KeyDeleted>),
    /// A session has ended.
    #[prost(message, tag = "4")]
    SessionEnded(SessionEnded),
    /// A candidate was given a seat.
    #[prost(message, boxed, tag = "10")]
    Elected(Box<Elected>),
    /// A leadership has ended.
    #[prost(message, boxed, tag = "11")]
    Ended(Box<Ended>),
    /// A leader publishes something else.
    #[prost(message, tag = "12")]
    Proclaimed(Proclaimed),
    /// Somebody wants something of a leader.
    #[prost(message, boxed, tag = "13")]
    Wished(Box<Wished>),
    /// A candidate stands in line.
    #[prost(message, tag = "14")]
    Joined(InLineChange),
    /// A candidate has left the line without a seat.
    #[prost(message, tag = "15")]
    Left(InLineChange),
    /// A candidate has become the first in line.
    #[prost(message, tag = "16")]
    First(InLineChange),
    /// Something was noted of a leadership.
    #[prost(message, tag = "17")]
    Noted(Noted),
    /// A job was done.
    #[prost(message, boxed, tag = "18")]
    Completed(Box<Completed>),
}

/// A key was written.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KeyPut {
    /// As it is now.
    #[prost(message, required, tag = "1")]
    pub item: Item,
    /// As it was before; `None` if it was not there.
    #[prost(message, optional, tag = "2")]
    pub previous: Option<Item>,
}

/// A key was deleted.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KeyDeleted {
    /// As it was before.
    #[prost(message, required, tag = "1")]
    pub previous: Item,
}

/// A session has ended: nothing may be attached to it any more. What was attached goes now or soon after.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SessionEnded {
    /// Which.
    #[prost(uint64, tag = "1")]
    pub session: u64,
    /// Why.
    #[prost(string, tag = "2")]
    pub reason: String,
}

/// A candidate was given a seat.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Elected {
    /// In which election.
    #[prost(string, tag = "1")]
    pub election: String,
    /// Who.
    #[prost(message, required, tag = "2")]
    pub holder: Holder,
}

/// A leadership has ended.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Ended {
    /// In which election.
    #[prost(string, tag = "1")]
    pub election: String,
    /// Whose, and why.
    #[prost(message, required, tag = "2")]
    pub past: Past,
}

/// A leader publishes something else.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Proclaimed {
    /// In which election.
    #[prost(string, tag = "1")]
    pub election: String,
    /// The leadership.
    #[prost(uint64, tag = "2")]
    pub token: u64,
    /// What.
    #[prost(bytes = "bytes", tag = "3")]
    pub value: Bytes,
}

/// Somebody wants something of a leader.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Wished {
    /// In which election.
    #[prost(string, tag = "1")]
    pub election: String,
    /// Of whom: the holder's identity.
    #[prost(string, tag = "2")]
    pub identity: String,
    /// What.
    #[prost(message, required, tag = "3")]
    pub wish: Wish,
}

/// Something about one in line.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct InLineChange {
    /// In which election.
    #[prost(string, tag = "1")]
    pub election: String,
    /// Who.
    #[prost(string, tag = "2")]
    pub identity: String,
    /// Its priority.
    #[prost(sint32, tag = "3")]
    pub priority: i32,
    /// Its session.
    #[prost(uint64, tag = "4")]
    pub session: u64,
}

/// Something was noted of a leadership.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Noted {
    /// In which election.
    #[prost(string, tag = "1")]
    pub election: String,
    /// What.
    #[prost(message, required, tag = "2")]
    pub note: Note,
}

/// A job was done.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Completed {
    /// In which election.
    #[prost(string, tag = "1")]
    pub election: String,
    /// Which, and what came of it.
    #[prost(message, required, tag = "2")]
    pub completion: Completion,
}

impl Event {
    /// What it counts for, in bytes: its content, and about what it takes to keep it.
    pub fn weight(&self) -> usize {
        self.encoded_len() + 128
    }

    /// The key it is about.
    pub fn key(&self) -> Option<&Bytes> {
        match self.change.as_ref()? {
            Change::Put(put) => Some(&put.item.key),
            Change::Deleted(deleted) => Some(&deleted.previous.key),
            Change::SessionEnded(_)
            | Change::Elected(_)
            | Change::Ended(_)
            | Change::Proclaimed(_)
            | Change::Wished(_)
            | Change::Joined(_)
            | Change::Left(_)
            | Change::First(_)
            | Change::Noted(_)
            | Change::Completed(_) => None,
        }
    }

    /// The key as it was before; `None` if it was not there, or if this is about no key.
    pub fn previous(&self) -> Option<&Item> {
        match self.change.as_ref()? {
            Change::Put(put) => put.previous.as_ref(),
            Change::Deleted(deleted) => Some(&deleted.previous),
            Change::SessionEnded(_)
            | Change::Elected(_)
            | Change::Ended(_)
            | Change::Proclaimed(_)
            | Change::Wished(_)
            | Change::Joined(_)
            | Change::Left(_)
            | Change::First(_)
            | Change::Noted(_)
            | Change::Completed(_) => None,
        }
    }

    /// The election it is about.
    pub fn election(&self) -> Option<&str> {
        match self.change.as_ref()? {
            Change::Put(_) | Change::Deleted(_) | Change::SessionEnded(_) => None,
            Change::Elected(it) => Some(&it.election),
            Change::Ended(it) => Some(&it.election),
            Change::Proclaimed(it) => Some(&it.election),
            Change::Wished(it) => Some(&it.election),
            Change::Joined(it) | Change::Left(it) | Change::First(it) => Some(&it.election),
            Change::Noted(it) => Some(&it.election),
            Change::Completed(it) => Some(&it.election),
        }
    }

    /// The candidate whose own business it is: it was elected, has become first, has lost its seat or place, or is asked for something.
    pub fn concerns(&self) -> Option<&str> {
        match self.change.as_ref()? {
            Change::Elected(it) => Some(&it.holder.identity),
            Change::Ended(it) => Some(&it.past.identity),
            Change::Wished(it) => Some(&it.identity),
            Change::Left(it) | Change::First(it) => Some(&it.identity),
            Change::Put(_)
            | Change::Deleted(_)
            | Change::SessionEnded(_)
            | Change::Proclaimed(_)
            | Change::Joined(_)
            | Change::Noted(_)
            | Change::Completed(_) => None,
        }
    }
}
