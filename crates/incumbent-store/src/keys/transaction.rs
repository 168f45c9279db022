//! Writes to the key space, as data: one key, a span, or a transaction of several under guards.

use alloc::string::String;
use alloc::vec::Vec;

use prost::bytes::Bytes;

use super::item::{Item, Span};
use crate::query::{Items, Range};
use crate::reply::Written;

/// Writes a key.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Put {
    /// The key; of a sequential one, all but the number.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// The value.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
    /// The session it goes with; 0 for none.
    #[prost(uint64, tag = "3")]
    pub session: u64,
    /// When the session ends the key stays, without it.
    #[prost(bool, tag = "4")]
    pub outlives_session: bool,
    /// It is a child of the key that is the first so many bytes of this one, which must be there; 0 for none.
    #[prost(uint32, tag = "5")]
    pub parent_len: u32,
    /// Append the number of the parent's next child, in ten digits.
    #[prost(bool, tag = "6")]
    pub sequential: bool,
    /// Leave the value as it is; the key must be there.
    #[prost(bool, tag = "7")]
    pub keeps_value: bool,
    /// Leave the session as it is; the key must be there.
    #[prost(bool, tag = "8")]
    pub keeps_session: bool,
    /// Answer what was there before.
    #[prost(bool, tag = "9")]
    pub wants_previous: bool,
}

/// Deletes all keys of a span.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Delete {
    /// Which.
    #[prost(message, optional, tag = "1")]
    pub span: Option<Span>,
    /// Answer what was there.
    #[prost(bool, tag = "2")]
    pub wants_previous: bool,
}

/// What was deleted.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Deleted {
    /// So many keys.
    #[prost(uint64, tag = "1")]
    pub count: u64,
    /// What was there, if that was asked for.
    #[prost(message, repeated, tag = "2")]
    pub previous: Vec<Item>,
}

/// All of `then` if every guard holds, all of `otherwise` if not. All or nothing, at one revision, in order.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Transaction {
    /// What must hold.
    #[prost(message, repeated, tag = "1")]
    pub guards: Vec<Guard>,
    /// What is done if it does.
    #[prost(message, repeated, tag = "2")]
    pub then: Vec<Operation>,
    /// What is done if it does not.
    #[prost(message, repeated, tag = "3")]
    pub otherwise: Vec<Operation>,
}

/// One thing in a transaction.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Operation {
    /// What. `None` is what this version does not know.
    #[prost(oneof = "Act", tags = "1, 2, 3, 4, 5")]
    pub act: Option<Act>,
}

/// What a transaction may do.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Act {
    /// Write a key.
    #[prost(message, tag = "1")]
    Put(Put),
    /// Delete keys.
    #[prost(message, tag = "2")]
    Delete(Delete),
    /// Read keys, as they are at this point of the transaction.
    #[prost(message, tag = "3")]
    Read(Range),
    /// Decide once more.
    #[prost(message, tag = "4")]
    Transact(Transaction),
    /// Give all of it up, as if nothing had been: [`Refusal::Aborted`](crate::refusal::Refusal::Aborted) with this number. For transactions in which each step has its own guards.
    #[prost(uint64, tag = "5")]
    Abort(u64),
}

impl From<Act> for Operation {
    fn from(act: Act) -> Operation {
        Operation { act: Some(act) }
    }
}

/// What must hold.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Guard {
    /// Of which keys: of all that are there. One key that is not there counts as one whose numbers are 0 and whose value is empty.
    #[prost(message, optional, tag = "1")]
    pub span: Option<Span>,
    /// How it is compared.
    #[prost(enumeration = "Comparison", tag = "2")]
    pub comparison: i32,
    /// With what. `None` is what this version does not know.
    #[prost(oneof = "Against", tags = "3, 4, 5, 6, 7, 8, 9, 10")]
    pub against: Option<Against>,
}

/// What a guard compares with.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Against {
    /// The version; 0 for a key that is not there.
    #[prost(uint64, tag = "3")]
    Version(u64),
    /// The revision of its creation.
    #[prost(uint64, tag = "4")]
    Created(u64),
    /// The revision of its last writing.
    #[prost(uint64, tag = "5")]
    Modified(u64),
    /// The value. A key that is not there has none: no comparison holds for it.
    #[prost(bytes = "bytes", tag = "6")]
    Value(Bytes),
    /// The session.
    #[prost(uint64, tag = "7")]
    Session(u64),
    /// How many children it has.
    #[prost(uint64, tag = "8")]
    Children(u64),
    /// That a leadership is in office; needs no span and no comparison. **The fence**: a write of a former leader finds that it does not hold.
    #[prost(message, tag = "9")]
    Holds(Holds),
    /// That the keys are (or, if false, are not) free of lock delays; needs no comparison.
    #[prost(bool, tag = "10")]
    Undelayed(bool),
}

/// A leadership.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Holds {
    /// In which election.
    #[prost(string, tag = "1")]
    pub election: String,
    /// Its token.
    #[prost(uint64, tag = "2")]
    pub token: u64,
}

/// How a guard compares what is there with what it names.
#[derive(Copy, Clone, PartialEq, Eq, Debug, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Comparison {
    /// It is equal.
    Equal = 0,
    /// It is greater than what the guard names.
    Greater = 1,
    /// It is less.
    Less = 2,
    /// It is not equal.
    NotEqual = 3,
}

impl Guard {
    /// One key, compared with a number or value.
    pub fn key(key: impl Into<Bytes>, comparison: Comparison, against: Against) -> Guard {
        Guard { span: Some(Span::key(key)), comparison: comparison as i32, against: Some(against) }
    }

    /// The key is there.
    pub fn exists(key: impl Into<Bytes>) -> Guard {
        Guard::key(key, Comparison::Greater, Against::Version(0))
    }

    /// The key is not there.
    pub fn absent(key: impl Into<Bytes>) -> Guard {
        Guard::key(key, Comparison::Equal, Against::Version(0))
    }

    /// The leadership is in office.
    pub fn holds(election: impl Into<String>, token: u64) -> Guard {
        let holds = Holds { election: election.into(), token };
        Guard { span: None, comparison: Comparison::Equal as i32, against: Some(Against::Holds(holds)) }
    }
}

/// What a transaction has done.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Transacted {
    /// Whether the guards held.
    #[prost(bool, tag = "1")]
    pub held: bool,
    /// What each operation has answered.
    #[prost(message, repeated, tag = "2")]
    pub results: Vec<ActResult>,
}

/// What an operation has answered.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ActResult {
    /// What.
    #[prost(oneof = "ActAnswer", tags = "1, 2, 3, 4")]
    pub answer: Option<ActAnswer>,
}

/// What an operation may answer.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum ActAnswer {
    /// A key was written.
    #[prost(message, tag = "1")]
    Written(Written),
    /// Keys were deleted.
    #[prost(message, tag = "2")]
    Deleted(Deleted),
    /// Keys were read.
    #[prost(message, tag = "3")]
    Read(Items),
    /// It was decided.
    #[prost(message, tag = "4")]
    Transacted(Transacted),
}
