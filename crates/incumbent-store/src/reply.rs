//! What the store answers to a command, and an outcome (a reply or a refusal) as it is remembered and sent.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::command::Wish;
use crate::election::Holder;
use crate::keys::item::Item;
use crate::keys::transaction::{Deleted, Transacted};
use crate::refusal::{Refusal, RefusalOnWire};

/// What came of a command.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Reply {
    /// The client's number.
    #[prost(uint64, tag = "1")]
    Introduced(u64),
    /// The session is open.
    #[prost(uint64, tag = "2")]
    Opened(u64),
    /// To [`crate::command::KeepAlive`].
    #[prost(message, tag = "3")]
    KeptAlive(KeptAlive),
    /// To [`crate::command::Expire`].
    #[prost(message, tag = "4")]
    Expired(Expired),
    /// The seat is the candidate's.
    #[prost(message, tag = "5")]
    Granted(Granted),
    /// Others have it.
    #[prost(message, tag = "6")]
    InLine(InLine),
    /// To [`crate::command::Renew`].
    #[prost(message, tag = "7")]
    Renewed(Renewed),
    /// Done; the store's revision after it.
    #[prost(uint64, tag = "8")]
    Done(u64),
    /// To [`crate::keys::transaction::Put`].
    #[prost(message, tag = "9")]
    Written(Written),
    /// To [`crate::keys::transaction::Delete`].
    #[prost(message, tag = "10")]
    Deleted(Deleted),
    /// To [`crate::keys::transaction::Transaction`].
    #[prost(message, tag = "11")]
    Transacted(Transacted),
    /// To [`crate::command::Bind`].
    #[prost(message, tag = "12")]
    Bound(Bound),
}

/// Which sessions were not kept alive.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KeptAlive {
    /// They are gone.
    #[prost(uint64, repeated, tag = "1")]
    pub gone: Vec<u64>,
}

/// Sessions that another connection speaks for.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Bound {
    /// The number of the binding: greater than all before it.
    #[prost(uint64, tag = "1")]
    pub binding: u64,
    /// They are gone.
    #[prost(uint64, repeated, tag = "2")]
    pub gone: Vec<u64>,
}

/// What has ended by time.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Expired {
    /// So many sessions began to end.
    #[prost(uint64, tag = "1")]
    pub sessions: u64,
    /// There is more to do right away.
    #[prost(bool, tag = "2")]
    pub more: bool,
}

/// A seat that was given, now or before.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Granted {
    /// The token of the leadership.
    #[prost(uint64, tag = "1")]
    pub token: u64,
    /// The ttl of the session that keeps it.
    #[prost(uint64, tag = "2")]
    pub ttl_ms: u64,
}

/// How things stand for one who waits.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct InLine {
    /// 1 is first; told up to [`crate::limits::Limits::PLACE_TOLD_MAX`]. 0: not in line, as it was asked.
    #[prost(uint32, tag = "1")]
    pub place: u32,
    /// The oldest of those who lead.
    #[prost(message, optional, tag = "2")]
    pub leader: Option<Holder>,
    /// How long until a seat is free unless it is renewed; 0 if that is not known.
    #[prost(uint64, tag = "3")]
    pub free_in_ms: u64,
}

/// What became of a leadership that was to be renewed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Renewed {
    /// Whether it is in office. If not, it never will be again.
    #[prost(bool, tag = "1")]
    pub in_office: bool,
    /// The ttl of the session that keeps it.
    #[prost(uint64, tag = "2")]
    pub ttl_ms: u64,
    /// What somebody wants of it.
    #[prost(message, optional, tag = "3")]
    pub wish: Option<Wish>,
}

/// A key that was written.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Written {
    /// The key as it is now: its name too, if it is a sequential one. Without its value.
    #[prost(message, optional, tag = "1")]
    pub item: Option<Item>,
    /// What was there before, if that was asked for.
    #[prost(message, optional, boxed, tag = "2")]
    pub previous: Option<Box<Item>>,
}

/// A reply or a refusal, and the revision of the store after it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Outcome {
    /// The revision after it.
    #[prost(uint64, tag = "20")]
    pub revision: u64,
    /// The refusal, if it is one.
    #[prost(message, optional, tag = "21")]
    pub refusal: Option<RefusalOnWire>,
    /// The reply, if it is one.
    #[prost(oneof = "Reply", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12")]
    pub reply: Option<Reply>,
}

impl Outcome {
    /// What `apply` has answered, at this revision.
    pub fn of(result: &Result<Reply, Refusal>, revision: u64) -> Outcome {
        match result {
            Ok(reply) => Outcome { revision, refusal: None, reply: Some(reply.clone()) },
            Err(refusal) => Outcome { revision, refusal: Some(refusal.to_wire()), reply: None },
        }
    }

    /// As `apply` has answered it.
    pub fn result(self) -> Result<Reply, Refusal> {
        match (self.refusal, self.reply) {
            (Some(refusal), _) => Err(Refusal::from_wire(refusal)),
            (None, Some(reply)) => Ok(reply),
            (None, None) => Err(Refusal::Malformed(String::from("an answer that this version does not know"))),
        }
    }
}
