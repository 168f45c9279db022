//! What is known of an election, as it is told and written: who leads, who waits, who led, what was noted and done.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use prost::bytes::Bytes;

use crate::command::Wish;
use crate::limits::Limits;

/// One who leads.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Holder {
    /// Who.
    #[prost(string, tag = "1")]
    pub identity: String,
    /// What people call it.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The token of the leadership.
    #[prost(uint64, tag = "3")]
    pub token: u64,
    /// What it publishes.
    #[prost(bytes = "bytes", tag = "4")]
    pub value: Bytes,
    /// Its priority.
    #[prost(sint32, tag = "5")]
    pub priority: i32,
    /// The session that keeps it in office.
    #[prost(uint64, tag = "6")]
    pub session: u64,
    /// Since when, in cluster time.
    #[prost(uint64, tag = "7")]
    pub since_ns: u64,
    /// Since when, by the wall clock. For people.
    #[prost(uint64, tag = "8")]
    pub since_wall_ms: u64,
    /// Its minimum tenure.
    #[prost(uint64, tag = "9")]
    pub tenure_ms_min: u64,
    /// What somebody wants of it.
    #[prost(message, optional, boxed, tag = "10")]
    pub wish: Option<Box<Wish>>,
}

impl Holder {
    /// What it counts for in answers, in bytes.
    pub fn size(&self) -> usize {
        self.identity.len() + self.name.len() + self.value.len()
    }

    /// What it counts for in limits, in bytes.
    pub(crate) fn kept_bytes(&self) -> usize {
        Limits::CANDIDACY_BYTES + self.size() + self.wish.as_deref().map_or(0, Wish::kept_bytes)
    }
}

/// One who waits.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Candidate {
    /// Who.
    #[prost(string, tag = "1")]
    pub identity: String,
    /// What people call it.
    #[prost(string, tag = "2")]
    pub name: String,
    /// What it will publish.
    #[prost(bytes = "bytes", tag = "3")]
    pub value: Bytes,
    /// Its priority.
    #[prost(sint32, tag = "4")]
    pub priority: i32,
    /// The session that keeps its place.
    #[prost(uint64, tag = "5")]
    pub session: u64,
    /// The revision at which it came.
    #[prost(uint64, tag = "6")]
    pub arrival: u64,
    /// Its minimum tenure.
    #[prost(uint64, tag = "7")]
    pub tenure_ms_min: u64,
}

impl Candidate {
    /// What it counts for in limits, in bytes; the same once it leads.
    pub(crate) fn kept_bytes(&self) -> usize {
        Limits::CANDIDACY_BYTES + self.identity.len() + self.name.len() + self.value.len()
    }
}

/// A leadership that has ended.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Past {
    /// Who led.
    #[prost(string, tag = "1")]
    pub identity: String,
    /// What people call it.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Its token.
    #[prost(uint64, tag = "3")]
    pub token: u64,
    /// When it began, by the wall clock.
    #[prost(uint64, tag = "4")]
    pub since_wall_ms: u64,
    /// When it ended, by the wall clock; not before it began.
    #[prost(uint64, tag = "5")]
    pub until_wall_ms: u64,
    /// How long it lasted, in cluster time.
    #[prost(uint64, tag = "6")]
    pub lasted_ms: u64,
    /// Why it ended.
    #[prost(string, tag = "7")]
    pub reason: String,
}

/// What was noted of a leadership.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Note {
    /// The leadership.
    #[prost(uint64, tag = "1")]
    pub token: u64,
    /// What was noted.
    #[prost(string, tag = "2")]
    pub text: String,
}

/// A job that was done.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Completion {
    /// Which.
    #[prost(string, tag = "1")]
    pub job: String,
    /// Under which leadership.
    #[prost(uint64, tag = "2")]
    pub token: u64,
    /// When, by the wall clock.
    #[prost(uint64, tag = "3")]
    pub wall_ms: u64,
    /// What came of it.
    #[prost(string, tag = "4")]
    pub outcome: String,
}

/// A seat that is free and yet not to be had.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Reservation {
    /// For whom it is kept: an identity or a name. Empty for nobody: a lock delay.
    #[prost(string, tag = "1")]
    pub to: String,
    /// Until when, in cluster time. Then it is anybody's.
    #[prost(uint64, tag = "2")]
    pub until_ns: u64,
}

impl Reservation {
    /// What it counts for in limits, in bytes.
    pub(crate) fn kept_bytes(&self) -> usize {
        Limits::RESERVATION_BYTES + self.to.len()
    }
}

/// All that is known of an election.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Board {
    /// Its name.
    #[prost(string, tag = "1")]
    pub election: String,
    /// How many may lead at once; 0 if nobody has said.
    #[prost(uint32, tag = "2")]
    pub seats: u32,
    /// Who leads, oldest first. In an answer, values of leaders and then of candidates for which [`crate::limits::Limits::answer_bytes_max`] leaves no room are empty.
    #[prost(message, repeated, tag = "3")]
    pub leaders: Vec<Holder>,
    /// Who waits, next one first. In an answer, cut to [`crate::limits::Limits::LISTED_MAX`].
    #[prost(message, repeated, tag = "4")]
    pub candidates: Vec<Candidate>,
    /// Leaderships that have ended, newest first.
    #[prost(message, repeated, tag = "5")]
    pub past: Vec<Past>,
    /// What was noted of leaderships, greatest token first.
    #[prost(message, repeated, tag = "6")]
    pub notes: Vec<Note>,
    /// Jobs that were done, newest first.
    #[prost(message, repeated, tag = "7")]
    pub completions: Vec<Completion>,
    /// Seats that are free and yet not to be had.
    #[prost(message, repeated, tag = "8")]
    pub reservations: Vec<Reservation>,
    /// The incarnation of its tokens, if it is above the store's.
    #[prost(uint32, tag = "9")]
    pub incarnation: u32,
    /// How many wait, also those that were cut off.
    #[prost(uint64, tag = "10")]
    pub waiting: u64,
}
