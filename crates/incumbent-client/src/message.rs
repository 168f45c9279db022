//! What is said on the binary stream, in both directions, as data in protobuf's encoding.
//!
//! A client numbers what it asks; an answer carries the number, and answers come in any order. Every question gets one answer, or the connection ends. A field that one side does not
//! know is skipped, so a new field must mean "as before" when it is absent. A kind of question that a server does not know is refused; a kind of answer that a client does not know is passed over.

use incumbent_store::command::Request;
use incumbent_store::event::Event;
use incumbent_store::query::{Answered, Question};
use incumbent_store::refusal::RefusalOnWire;
use incumbent_store::reply::Outcome;
use incumbent_store::watch::Interest;

use crate::administration::{Administer, Administered};

/// The version of what is said that this crate speaks.
pub const VERSION: u32 = 1;
/// The oldest version that it still understands.
pub const VERSION_OLDEST: u32 = 1;
const _: () = assert!(VERSION_OLDEST <= VERSION);

/// From a client to a server.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ToServer {
    /// The client's number for it, which its answers carry. A watch is known by the number of its question.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// What. `None` is what this version does not know.
    #[prost(oneof = "Asked", tags = "10, 11, 12, 13, 14, 15, 16, 17, 18, 19")]
    pub asked: Option<Asked>,
}

/// What a client may say.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Asked {
    /// The first thing said. Answered by [`Told::Welcome`] or [`Told::TurnedAway`].
    #[prost(message, tag = "10")]
    Hello(Hello),
    /// A command. Answered by [`Told::Outcome`], [`Told::NotNow`] or [`Told::Unknown`]. Keep-alives are commands too.
    #[prost(message, tag = "11")]
    Submit(Request),
    /// A question. Answered by [`Told::Answered`], [`Told::Refused`] or [`Told::NotNow`].
    #[prost(message, tag = "12")]
    Ask(Inquiry),
    /// Tell what happens from now on. Answered by [`Told::Events`] again and again, the first one at once; ended by [`Told::WatchEnded`].
    #[prost(message, tag = "13")]
    Watch(WatchFrom),
    /// The watch with this number is not wanted any more. Not answered.
    #[prost(uint64, tag = "14")]
    Unwatch(u64),
    /// This connection speaks for these sessions: when the client's machine closes it without [`Asked::Goodbye`], those that wished so end. Answered by [`Told::Bound`] once no other
    /// connection can end them any more, or by [`Told::NotNow`] or [`Told::Refused`].
    #[prost(message, tag = "15")]
    Bind(Sessions),
    /// Are you there? Answered by [`Told::Pong`].
    #[prost(message, tag = "16")]
    Ping(Ping),
    /// The client leaves this connection because it wants to, and its sessions live on. Not answered: the client closes.
    #[prost(message, tag = "17")]
    Goodbye(Goodbye),
    /// This connection does not speak for these sessions any more. Not answered.
    #[prost(message, tag = "18")]
    Unbind(Sessions),
    /// Something that an operator wants. Answered by [`Told::Administered`], [`Told::Refused`], [`Told::NotNow`] or [`Told::Unknown`].
    #[prost(message, tag = "19")]
    Administer(Administer),
}

/// Who asks.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct Hello {
    /// The greatest version that the client speaks.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// The oldest that it understands.
    #[prost(uint32, tag = "2")]
    pub oldest: u32,
    /// Which cluster it must be; empty for any.
    #[prost(string, tag = "3")]
    pub cluster: String,
    /// What shows who the client is; empty for nobody. Never shown.
    #[prost(string, tag = "4")]
    pub token: String,
    /// What the client calls itself, for people.
    #[prost(string, tag = "5")]
    pub name: String,
}

/// A token is a secret: it is in no log.
impl std::fmt::Debug for Hello {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Hello { version, oldest, cluster, token, name } = self;
        let token = if token.is_empty() { "none" } else { "secret" };
        write!(f, "Hello {{ version: {version}, oldest: {oldest}, cluster: {cluster:?}, token: {token}, name: {name:?} }}")
    }
}

/// A question, and how new the answer must be.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Inquiry {
    /// What.
    #[prost(message, optional, tag = "1")]
    pub question: Option<Question>,
    /// See [`Consistency`].
    #[prost(enumeration = "Consistency", tag = "2")]
    pub consistency: i32,
    /// The answer must not be older than this revision: the client has seen it already, on another node perhaps (R2).
    #[prost(uint64, tag = "3")]
    pub seen: u64,
}

/// How new an answer is.
#[derive(Copy, Clone, PartialEq, Eq, Debug, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Consistency {
    /// It shows all that was done before the question was asked.
    Linearizable = 0,
    /// It shows what the node that is asked knows.
    Local = 1,
}

/// What a client wants to hear of.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WatchFrom {
    /// About what.
    #[prost(message, optional, tag = "1")]
    pub interest: Option<Interest>,
    /// From this revision on; 0 for what happens from now on.
    #[prost(uint64, tag = "2")]
    pub from: u64,
    /// If from now on: not before this revision, which the client has seen already.
    #[prost(uint64, tag = "3")]
    pub seen: u64,
}

/// Some sessions.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Sessions {
    /// Their numbers.
    #[prost(uint64, repeated, tag = "1")]
    pub sessions: Vec<u64>,
    /// To bind them: another connection may have spoken for them before this one. Without it they are new, and this is the connection that they were opened on.
    #[prost(bool, tag = "2")]
    pub again: bool,
}

/// Are you there?
#[derive(Clone, PartialEq, prost::Message)]
pub struct Ping {}

/// The client leaves.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Goodbye {}

/// From a server to a client.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ToClient {
    /// The number of the question.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// What. `None` is what this version does not know.
    #[prost(oneof = "Told", tags = "10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21")]
    pub told: Option<Told>,
}

/// What a server may say.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Told {
    /// Ask.
    #[prost(message, tag = "10")]
    Welcome(Welcome),
    /// Not here, or no more; the connection ends. Said at any time, by the number 0 if nothing was asked that it answers.
    #[prost(message, tag = "11")]
    TurnedAway(TurnedAway),
    /// What came of a command: done or refused.
    #[prost(message, tag = "12")]
    Outcome(Outcome),
    /// The answer to a question.
    #[prost(message, tag = "13")]
    Answered(Answered),
    /// Nothing was done, and asking again will not help.
    #[prost(message, tag = "14")]
    Refused(RefusalOnWire),
    /// Nothing was done **by this copy of the question**; ask again.
    #[prost(message, tag = "15")]
    NotNow(NotNow),
    /// It may have been done, or be done yet.
    #[prost(message, tag = "16")]
    Unknown(Unknown),
    /// What has happened.
    #[prost(message, tag = "17")]
    Events(Tidings),
    /// Nothing more will be told, and why: there is no going on from where it was.
    #[prost(message, tag = "18")]
    WatchEnded(RefusalOnWire),
    /// I am here.
    #[prost(message, tag = "19")]
    Pong(Pong),
    /// The sessions are bound to this connection.
    #[prost(message, tag = "20")]
    Bound(Bound),
    /// What came of something that an operator wanted.
    #[prost(message, tag = "21")]
    Administered(Administered),
}

/// Who answers.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Welcome {
    /// The version that both speak from now on.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// The node's number.
    #[prost(uint64, tag = "2")]
    pub node: u64,
    /// Its cluster.
    #[prost(string, tag = "3")]
    pub cluster: String,
    /// Whether this node leads.
    #[prost(bool, tag = "4")]
    pub leads: bool,
    /// Where the node that leads answers clients; empty if that is not known.
    #[prost(string, tag = "5")]
    pub leader: String,
    /// Where the nodes answer clients.
    #[prost(string, repeated, tag = "6")]
    pub members: Vec<String>,
}

/// Why a client is not welcome.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TurnedAway {
    /// See [`Objection`].
    #[prost(enumeration = "Objection", tag = "1")]
    pub objection: i32,
    /// A sentence for people.
    #[prost(string, tag = "2")]
    pub why: String,
}

/// Why a client is not welcome.
#[derive(Copy, Clone, PartialEq, Eq, Debug, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Objection {
    /// Something that this version has no name for.
    Other = 0,
    /// No version is spoken by both.
    Version = 1,
    /// It is another cluster.
    Cluster = 2,
    /// The token is not good.
    Token = 3,
    /// Too many connections, or the node is going down: another node may do.
    Busy = 4,
    /// What has come cannot be read: it is too long, damaged or no message.
    Unreadable = 5,
    /// Nothing has come for too long.
    Late = 6,
}

/// Nothing was done; ask again.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NotNow {
    /// A sentence for people.
    #[prost(string, tag = "1")]
    pub why: String,
    /// Where the node that leads answers clients; empty if that is not known.
    #[prost(string, tag = "2")]
    pub leader: String,
    /// Not before so many milliseconds.
    #[prost(uint64, tag = "3")]
    pub retry_after_ms: u64,
}

/// It may have been done.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Unknown {
    /// A sentence for people.
    #[prost(string, tag = "1")]
    pub why: String,
}

/// What has happened, for one watch.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Tidings {
    /// In their order.
    #[prost(message, repeated, tag = "1")]
    pub events: Vec<Event>,
    /// Everything before this revision has been told: go on from here. 0: more of the same follows, and is to be told together with this (W4).
    #[prost(uint64, tag = "2")]
    pub next: u64,
}

/// I am here.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Pong {
    /// All watches of this connection have been told everything up to this revision (W6); 0: not yet.
    #[prost(uint64, tag = "1")]
    pub told: u64,
    /// Where the node that leads answers clients; empty if that is not known.
    #[prost(string, tag = "2")]
    pub leader: String,
    /// Whether this node leads.
    #[prost(bool, tag = "3")]
    pub leads: bool,
    /// Whether this node knows of nobody who leads: it may be cut off from the others.
    #[prost(bool, tag = "4")]
    pub leaderless: bool,
}

/// The sessions are bound to this connection.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Bound {}

impl ToServer {
    /// This, under this number.
    pub fn new(id: u64, asked: Asked) -> ToServer {
        ToServer { id, asked: Some(asked) }
    }
}

impl ToClient {
    /// This, to the question with this number.
    pub fn new(id: u64, told: Told) -> ToClient {
        ToClient { id, told: Some(told) }
    }
}
