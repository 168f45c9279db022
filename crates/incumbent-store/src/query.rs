//! What may be asked of the store without the log, and what it answers. As data, in protobuf's encoding, so that it can go over a line as it is.
//!
//! A query sees the store at one revision. Whether that is the newest is the replica's business.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use prost::bytes::Bytes;

use crate::election::{Board, Holder};
use crate::event::Event;
use crate::keys::item::{Item, Span};
use crate::watch::Interest;

/// A question, as it is sent.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Question {
    /// What. `None` is what this version does not know.
    #[prost(oneof = "Query", tags = "1, 2, 3, 4, 5, 6, 7, 8")]
    pub query: Option<Query>,
}

/// What may be asked.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Query {
    /// How large the store is, and at which revision.
    #[prost(message, tag = "1")]
    Status(AskStatus),
    /// All of one election, by its name. One that nobody knows is answered as an empty one.
    #[prost(string, tag = "2")]
    Look(String),
    /// Elections in the order of their names.
    #[prost(message, tag = "3")]
    Elections(ListElections),
    /// Whose a seat is.
    #[prost(message, tag = "4")]
    Inquire(Inquire),
    /// One session.
    #[prost(uint64, tag = "5")]
    Session(u64),
    /// Sessions in the order of their numbers.
    #[prost(message, tag = "6")]
    Sessions(ListSessions),
    /// Keys.
    #[prost(message, tag = "7")]
    Range(Range),
    /// What has happened.
    #[prost(message, tag = "8")]
    Events(ReadEvents),
}

/// Asks how large the store is.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AskStatus {}

/// Asks for elections.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListElections {
    /// Those whose names begin so.
    #[prost(string, tag = "1")]
    pub prefix: String,
    /// Those behind this name.
    #[prost(string, tag = "2")]
    pub after: String,
    /// So many at most; 0 for the limit.
    #[prost(uint64, tag = "3")]
    pub limit: u64,
}

/// Asks whose a seat is.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Inquire {
    /// In which election.
    #[prost(string, tag = "1")]
    pub election: String,
    /// Who asks.
    #[prost(string, tag = "2")]
    pub identity: String,
}

/// Asks for sessions.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListSessions {
    /// Those behind this number.
    #[prost(uint64, tag = "1")]
    pub after: u64,
    /// So many at most; 0 for the limit.
    #[prost(uint64, tag = "2")]
    pub limit: u64,
}

/// Asks for keys, in their order.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Range {
    /// Which.
    #[prost(message, optional, tag = "1")]
    pub span: Option<Span>,
    /// So many at most; 0 for the limit.
    #[prost(uint64, tag = "2")]
    pub limit: u64,
    /// As they were at this revision; 0 for now. As far back as events are kept. Of a key whose children have come or gone since, nothing is known of those ([`Item::children`]).
    #[prost(uint64, tag = "3")]
    pub revision: u64,
    /// Without values.
    #[prost(bool, tag = "4")]
    pub keys_only: bool,
    /// Count all of the span, also those behind the limit. Refused if that takes more than [`crate::limits::Limits::visited_max`], in a transaction
    /// [`crate::limits::Limits::visited_in_log_max`].
    #[prost(bool, tag = "5")]
    pub counts: bool,
    /// No keys: the count alone.
    #[prost(bool, tag = "6")]
    pub count_only: bool,
    /// If not empty: keys that have it behind the span's start are passed over, a whole branch at a time, and the branches told in [`Items::branches`]. So the children of a node are read
    /// without its grandchildren.
    #[prost(bytes = "bytes", tag = "7")]
    pub separator: Bytes,
    /// If not empty: only what comes behind it, the last key or branch of the page before: the greater of the two. The separator still counts behind the span's start.
    #[prost(bytes = "bytes", tag = "8")]
    pub after: Bytes,
}

/// Asks for what has happened.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ReadEvents {
    /// From this revision on; 0 for all that are kept.
    #[prost(uint64, tag = "1")]
    pub from: u64,
    /// About what.
    #[prost(message, optional, tag = "2")]
    pub interest: Option<Interest>,
    /// So many at most, though never a part of a revision; 0 for the limit.
    #[prost(uint64, tag = "3")]
    pub limit: u64,
}

/// An answer, as it is sent.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Answered {
    /// The revision that it shows.
    #[prost(uint64, tag = "20")]
    pub revision: u64,
    /// What.
    #[prost(oneof = "Answer", tags = "1, 2, 3, 4, 5, 6, 7, 8")]
    pub answer: Option<Answer>,
}

/// What may be answered.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Answer {
    /// To [`Query::Status`].
    #[prost(message, tag = "1")]
    Status(Status),
    /// To [`Query::Look`].
    #[prost(message, tag = "2")]
    Board(Board),
    /// To [`Query::Elections`].
    #[prost(message, tag = "3")]
    Elections(Summaries),
    /// To [`Query::Inquire`].
    #[prost(message, tag = "4")]
    Seat(Seat),
    /// To [`Query::Session`].
    #[prost(message, tag = "5")]
    Session(SessionView),
    /// To [`Query::Sessions`].
    #[prost(message, tag = "6")]
    Sessions(SessionViews),
    /// To [`Query::Range`].
    #[prost(message, tag = "7")]
    Items(Items),
    /// To [`Query::Events`].
    #[prost(message, tag = "8")]
    Events(Events),
}

/// How large the store is.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Status {
    /// Its revision.
    #[prost(uint64, tag = "1")]
    pub revision: u64,
    /// The oldest revision whose events are kept.
    #[prost(uint64, tag = "2")]
    pub oldest: u64,
    /// Its incarnation.
    #[prost(uint32, tag = "3")]
    pub incarnation: u32,
    /// Its cluster time.
    #[prost(uint64, tag = "4")]
    pub now_ns: u64,
    /// So many sessions.
    #[prost(uint64, tag = "5")]
    pub sessions: u64,
    /// So many elections.
    #[prost(uint64, tag = "6")]
    pub elections: u64,
    /// So many keys.
    #[prost(uint64, tag = "7")]
    pub keys: u64,
    /// So many bytes in them.
    #[prost(uint64, tag = "8")]
    pub keys_bytes: u64,
    /// So many clients are remembered.
    #[prost(uint64, tag = "9")]
    pub clients: u64,
    /// So many events are kept.
    #[prost(uint64, tag = "10")]
    pub events: u64,
}

/// Some elections.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Summaries {
    /// Each in short.
    #[prost(message, repeated, tag = "1")]
    pub elections: Vec<Summary>,
    /// There are more behind.
    #[prost(bool, tag = "2")]
    pub more: bool,
}

/// An election in short.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Summary {
    /// Its name.
    #[prost(string, tag = "1")]
    pub election: String,
    /// The oldest of those who lead.
    #[prost(message, optional, tag = "2")]
    pub leader: Option<Holder>,
    /// So many lead.
    #[prost(uint64, tag = "3")]
    pub leading: u64,
    /// So many wait.
    #[prost(uint64, tag = "4")]
    pub waiting: u64,
}

/// Whose a seat is.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Seat {
    /// The token of whoever asked, if it leads; else 0.
    #[prost(uint64, tag = "1")]
    pub token: u64,
    /// Whether a seat is free.
    #[prost(bool, tag = "2")]
    pub vacant: bool,
    /// The oldest of those who lead.
    #[prost(message, optional, tag = "3")]
    pub leader: Option<Holder>,
}

/// A session, from outside.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SessionView {
    /// Its number.
    #[prost(uint64, tag = "1")]
    pub session: u64,
    /// Its ttl.
    #[prost(uint64, tag = "2")]
    pub ttl_ms: u64,
    /// What is left of it.
    #[prost(uint64, tag = "3")]
    pub left_ms: u64,
    /// Whose it is.
    #[prost(string, tag = "4")]
    pub owner: String,
    /// It wishes to end with its connection.
    #[prost(bool, tag = "5")]
    pub ends_with_connection: bool,
    /// Its lock delay.
    #[prost(uint64, tag = "6")]
    pub lock_delay_ms: u64,
    /// It has ended, and what is attached to it is going.
    #[prost(bool, tag = "7")]
    pub ending: bool,
    /// So many candidacies and leaderships.
    #[prost(uint64, tag = "8")]
    pub candidacies: u64,
    /// The keys that go with it; cut to [`crate::limits::Limits::LISTED_MAX`], and empty in a list.
    #[prost(bytes = "bytes", repeated, tag = "9")]
    pub keys: Vec<Bytes>,
}

/// Some sessions.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SessionViews {
    /// The sessions.
    #[prost(message, repeated, tag = "1")]
    pub sessions: Vec<SessionView>,
    /// There are more behind.
    #[prost(bool, tag = "2")]
    pub more: bool,
}

/// Some keys.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Items {
    /// The keys.
    #[prost(message, repeated, tag = "1")]
    pub items: Vec<Item>,
    /// There are more behind: because of the limit, or of the greatest answer.
    #[prost(bool, tag = "2")]
    pub more: bool,
    /// How many there are in the whole span, if that was asked for. Branches are not counted.
    #[prost(uint64, tag = "3")]
    pub count: u64,
    /// What the keys that were passed over begin with, up to the separator and with it.
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub branches: Vec<Bytes>,
}

/// What has happened, shared with the store that keeps it: a revision is told as a whole, and may be long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Happened {
    /// In their order; a revision is never cut.
    pub events: Vec<Arc<Event>>,
    /// All that matters has been told up to here, without it: go on from this revision.
    pub next: u64,
    /// It was too much for one answer: more is known already.
    pub more: bool,
}

impl From<Happened> for Events {
    fn from(happened: Happened) -> Events {
        let Happened { events, next, more } = happened;
        Events { events: events.into_iter().map(Arc::unwrap_or_clone).collect(), next, more }
    }
}

/// What has happened.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Events {
    /// In their order; a revision is never cut.
    #[prost(message, repeated, tag = "1")]
    pub events: Vec<Event>,
    /// All that matters has been told up to here, without it: go on from this revision.
    #[prost(uint64, tag = "2")]
    pub next: u64,
    /// It was too much for one answer, or too much had to be looked at: more is known already, though perhaps nothing that matters.
    #[prost(bool, tag = "3")]
    pub more: bool,
}
