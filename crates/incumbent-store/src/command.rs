//! What may be asked of the store through the log: requests, as data in protobuf's encoding.
//!
//! A field that an older version does not know is skipped, so a new field must mean "as before" when it is absent. A command that this version does not know is
//! [`Refusal::Malformed`](crate::refusal::Refusal::Malformed).

use alloc::string::String;
use alloc::vec::Vec;

use prost::bytes::Bytes;

use crate::keys::transaction::{Delete, Put, Transaction};
use crate::limits::Limits;

/// A command, and whose it is.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Request {
    /// Who asks, as [`Introduce`] has answered; 0 for one that need not be applied only once.
    #[prost(uint64, tag = "1")]
    pub client: u64,
    /// Counts the client's requests from 1. One that was applied is not applied again: the answer is the same as before.
    #[prost(uint64, tag = "2")]
    pub sequence: u64,
    /// The client has the answers to all its requests up to this one, and will not repeat them.
    #[prost(uint64, tag = "3")]
    pub answered: u64,
    /// As whom the client was let in; empty for one that may use what is anybody's. Written by the node that lets it in, over whatever came with the request: what a guest has opened, no other
    /// guest can keep, use or end.
    #[prost(string, tag = "4")]
    pub guest: String,
    /// What is asked. `None` is what this version does not know.
    #[prost(oneof = "Command", tags = "10, 11, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 40, 41, 42, 43")]
    pub command: Option<Command>,
}

impl Request {
    /// A request that need not be applied only once.
    pub fn of(command: Command) -> Request {
        Request { command: Some(command), ..Request::default() }
    }

    /// The client's request with this number.
    pub fn numbered(client: u64, sequence: u64, command: Command) -> Request {
        Request { client, sequence, command: Some(command), ..Request::default() }
    }
}

/// What may be asked.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Command {
    /// See [`Introduce`].
    #[prost(message, tag = "10")]
    Introduce(Introduce),
    /// See [`OpenSession`].
    #[prost(message, tag = "11")]
    OpenSession(OpenSession),
    /// See [`KeepAlive`].
    #[prost(message, tag = "12")]
    KeepAlive(KeepAlive),
    /// See [`EndSession`].
    #[prost(message, tag = "13")]
    EndSession(EndSession),
    /// See [`Expire`].
    #[prost(message, tag = "14")]
    Expire(Expire),
    /// See [`Bind`].
    #[prost(message, tag = "15")]
    Bind(Bind),
    /// See [`Campaign`].
    #[prost(message, tag = "20")]
    Campaign(Campaign),
    /// See [`Renew`].
    #[prost(message, tag = "21")]
    Renew(Renew),
    /// See [`Proclaim`].
    #[prost(message, tag = "22")]
    Proclaim(Proclaim),
    /// See [`Resign`].
    #[prost(message, tag = "23")]
    Resign(Resign),
    /// See [`Withdraw`].
    #[prost(message, tag = "24")]
    Withdraw(Withdraw),
    /// See [`Ask`].
    #[prost(message, tag = "25")]
    Ask(Ask),
    /// See [`Evict`].
    #[prost(message, tag = "26")]
    Evict(Evict),
    /// See [`Annotate`].
    #[prost(message, tag = "27")]
    Annotate(Annotate),
    /// See [`Complete`].
    #[prost(message, tag = "28")]
    Complete(Complete),
    /// See [`Raise`].
    #[prost(message, tag = "29")]
    Raise(Raise),
    /// See [`Forget`].
    #[prost(message, tag = "30")]
    Forget(Forget),
    /// See [`Put`].
    #[prost(message, tag = "40")]
    Put(Put),
    /// See [`Delete`].
    #[prost(message, tag = "41")]
    Delete(Delete),
    /// See [`Transaction`].
    #[prost(message, tag = "42")]
    Transact(Transaction),
    /// See [`Compact`].
    #[prost(message, tag = "43")]
    Compact(Compact),
}

/// Makes the store remember a client, so that its requests are applied once. Answers a number that no other client has or had.
///
/// The number is the store's and not the client's own: so one that was forgotten is told from one that is new, and a late repetition is never taken for
/// something that has not happened yet.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Introduce {}

/// Opens a session: what is attached to it goes with it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct OpenSession {
    /// The number it shall have; 0 for one that the store chooses. Opening again what is open, on the same terms, answers the same.
    #[prost(uint64, tag = "1")]
    pub session: u64,
    /// It ends when it has not been heard of for so long.
    #[prost(uint64, tag = "2")]
    pub ttl_ms: u64,
    /// Whose it is, for people. Of a guest's session the store says `guest/owner`, and `/owner` of one that is no guest's, if there is a slash in it.
    #[prost(string, tag = "3")]
    pub owner: String,
    /// It wishes to end when its connection is closed by the other side. Kept for the server, which then asks for [`EndSession`]. Until [`Bind`] says otherwise it is
    /// bound to the connection that it was opened on, and the number of that binding is 0.
    #[prost(bool, tag = "4")]
    pub ends_with_connection: bool,
    /// A seat or key that it loses without having given it back is nobody's for so long.
    #[prost(uint64, tag = "5")]
    pub lock_delay_ms: u64,
}

/// Begins the ttl of many sessions anew. Takes no revision and makes no events. Answers which of them are gone.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KeepAlive {
    /// The sessions.
    #[prost(uint64, repeated, tag = "1")]
    pub sessions: Vec<u64>,
}

/// Ends a session before its time.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct EndSession {
    /// The session.
    #[prost(uint64, tag = "1")]
    pub session: u64,
    /// Why, for the record of its leaderships: "process died".
    #[prost(string, tag = "2")]
    pub reason: String,
    /// Its work may still be going on (a connection broke): lock delays hold. Otherwise its owner has ended it.
    #[prost(bool, tag = "3")]
    pub unclean: bool,
    /// Nothing happens if the session has a later binding than this one: the connection that was lost is not the one that speaks for it now. Without it, it ends however
    /// it is bound.
    #[prost(uint64, optional, tag = "4")]
    pub binding: Option<u64>,
}

/// Another connection speaks for these sessions from now on, on whichever node. Answers the number of the binding, which rises: an [`EndSession`] for a connection that was
/// left, however late it comes, does not end what has moved on. Also keeps them alive. Answers which of them are gone.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Bind {
    /// The sessions.
    #[prost(uint64, repeated, tag = "1")]
    pub sessions: Vec<u64>,
}

/// Ends sessions whose deadline is over, goes on with those that have much attached, and gives away seats whose delay is over. Nothing else ends anything by
/// time. Whoever leads the log proposes it at [`Store::expiry`](crate::store::Store::expiry).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Expire {
    /// So many sessions and attachments at most; 0 for the limit.
    #[prost(uint64, tag = "1")]
    pub limit: u64,
}

/// Takes a free seat, or a place in the line. Also keeps the session alive. Repeated, it answers how things stand: a candidate has one place.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Campaign {
    /// The candidate goes with this session. One that comes back with a newer session is the same candidate still, and goes with that one: its place stays, and so does its seat, as a leadership
    /// of its own with a token of its own and what this bid says. With an older one it does not: that is a bid of its former life which comes late, and is answered as to one that waits.
    #[prost(uint64, tag = "1")]
    pub session: u64,
    /// The election's name.
    #[prost(string, tag = "2")]
    pub election: String,
    /// Who: compared whole.
    #[prost(string, tag = "3")]
    pub identity: String,
    /// What people call it; the whole identity if empty. A seat can be handed over to a name.
    #[prost(string, tag = "4")]
    pub name: String,
    /// What it publishes once it leads.
    #[prost(bytes = "bytes", tag = "5")]
    pub value: Bytes,
    /// The greater, the further ahead in line.
    #[prost(sint32, tag = "6")]
    pub priority: i32,
    /// How many may lead at once; 0 is 1. The same for all candidates.
    #[prost(uint32, tag = "7")]
    pub seats: u32,
    /// Once it leads, it is not asked to make way for a better candidate for so long; see [`Ask::after_tenure`].
    #[prost(uint64, tag = "8")]
    pub tenure_ms_min: u64,
    /// The greatest token that the candidate has seen. It is granted a greater one, by a new incarnation of the election if need be.
    #[prost(uint64, tag = "9")]
    pub seen: u64,
    /// Do not stand in line: answer who leads.
    #[prost(bool, tag = "10")]
    pub only_if_free: bool,
}

/// Begins the session's ttl anew for a leadership, and brings what others want of the holder.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Renew {
    /// The election.
    #[prost(string, tag = "1")]
    pub election: String,
    /// The leadership.
    #[prost(uint64, tag = "2")]
    pub token: u64,
}

/// Changes what a leader publishes. Also keeps its session alive.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Proclaim {
    /// The election.
    #[prost(string, tag = "1")]
    pub election: String,
    /// The leadership.
    #[prost(uint64, tag = "2")]
    pub token: u64,
    /// What it publishes.
    #[prost(bytes = "bytes", tag = "3")]
    pub value: Bytes,
}

/// Gives a seat back, and with the same commit to the next. Nothing happens if the leadership has ended before.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Resign {
    /// The election.
    #[prost(string, tag = "1")]
    pub election: String,
    /// The leadership.
    #[prost(uint64, tag = "2")]
    pub token: u64,
    /// Why, for the record.
    #[prost(string, tag = "3")]
    pub reason: String,
    /// Who shall have the seat next: a candidate's identity or name. If it does not stand in line, the seat is kept for it for the session's ttl. Empty for
    /// the first in line.
    #[prost(string, tag = "4")]
    pub to: String,
}

/// Leaves the line. Nothing happens if it does not stand there; a seat is kept.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Withdraw {
    /// The election.
    #[prost(string, tag = "1")]
    pub election: String,
    /// Who.
    #[prost(string, tag = "2")]
    pub identity: String,
}

/// Leaves a wish for a holder, in place of the one before. The holder finds it with its next renewal and in its watch; it stops its work and resigns.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Ask {
    /// The election.
    #[prost(string, tag = "1")]
    pub election: String,
    /// What, and of whom.
    #[prost(message, optional, tag = "2")]
    pub wish: Option<Wish>,
    /// Refuse until the leadership has served its minimum tenure. For candidates who are better fit; an operator need not wait.
    #[prost(bool, tag = "3")]
    pub after_tenure: bool,
    /// Whoever asks may stand in this election and no more: the seat must be wanted for a candidate of its own that stands in line with a greater priority than the holder's. Written by the
    /// node that lets it in, like [`Request::guest`].
    #[prost(bool, tag = "4")]
    pub as_candidate: bool,
    /// Refuse to hand over to somebody who does not stand in line: the holder would stop for nobody. Written by the node that lets it in; entries of before do without.
    #[prost(bool, tag = "5")]
    pub only_in_line: bool,
}

/// What somebody wants of a holder.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Wish {
    /// The leadership it is meant for.
    #[prost(uint64, tag = "1")]
    pub token: u64,
    /// What it should do.
    #[prost(enumeration = "Demand", tag = "2")]
    pub demand: i32,
    /// To whom it should hand over; empty for the other demands.
    #[prost(string, tag = "3")]
    pub to: String,
    /// Who wants it, for the record.
    #[prost(string, tag = "4")]
    pub by: String,
}

impl Wish {
    /// What it counts for in limits, in bytes.
    pub(crate) fn kept_bytes(&self) -> usize {
        Limits::WISH_BYTES + self.to.len() + self.by.len()
    }
}

/// What a holder may be asked to do.
#[derive(Copy, Clone, PartialEq, Eq, Debug, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Demand {
    /// Stop, resign, rest.
    Resign = 0,
    /// The same, because an operator wants somebody else.
    Evict = 1,
    /// Stop, and resign in favour of [`Wish::to`].
    HandOver = 2,
}

/// Takes a seat away at once. **Not safe without fencing**: the holder may be at work still, and does not know. [`Ask`] is safe.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Evict {
    /// The election.
    #[prost(string, tag = "1")]
    pub election: String,
    /// The leadership.
    #[prost(uint64, tag = "2")]
    pub token: u64,
    /// Why, for the record.
    #[prost(string, tag = "3")]
    pub reason: String,
}

/// Puts a note on record for a leadership, in office or ended, in place of the one before. The greatest tokens keep theirs.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Annotate {
    /// The election.
    #[prost(string, tag = "1")]
    pub election: String,
    /// The leadership.
    #[prost(uint64, tag = "2")]
    pub token: u64,
    /// What.
    #[prost(string, tag = "3")]
    pub text: String,
}

/// Records that a job was done, once: refused if it is on record already, or if the leadership is not in office.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Complete {
    /// The election.
    #[prost(string, tag = "1")]
    pub election: String,
    /// The leadership under which it was done.
    #[prost(uint64, tag = "2")]
    pub token: u64,
    /// The job: a date, for example.
    #[prost(string, tag = "3")]
    pub job: String,
    /// What came of it.
    #[prost(string, tag = "4")]
    pub outcome: String,
}

/// Makes every later token greater than `above`, by a new incarnation: after a restore, or if somebody has seen greater ones.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Raise {
    /// The election; empty for all.
    #[prost(string, tag = "1")]
    pub election: String,
    /// A token.
    #[prost(uint64, tag = "2")]
    pub above: u64,
}

/// Removes all that is known of an election in which nobody leads or waits. Its tokens are not given again: of one whose incarnation is above the store's, that is kept, and nothing else.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Forget {
    /// The election.
    #[prost(string, tag = "1")]
    pub election: String,
}

/// Drops the events up to a revision: nobody will watch from there or read as of then.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Compact {
    /// The last revision to drop.
    #[prost(uint64, tag = "1")]
    pub revision: u64,
}
