//! The lines between the nodes of a group: who is connected to whom, what goes over which connection, and what is heard.
//!
//! ```text
//!   send_word, send_freight, ask ─► exchange (routes, queues) ──► line ═══ TCP ═══► line ──► Arrival
//!                                        ▲                          │
//!                               pulses: who hears whom        dial, door: who is let in
//! ```
//!
//! - A *line* is two connections, dialled by the smaller id: one [lane](crate::packet::Lane) for pulses and words, one for all that may be long. The
//!   greater id *knocks* when it misses a line, so that the other dials at once.
//! - Sending never blocks. What cannot be delivered is lost and counted, as on any network.
//! - A line on which nothing was heard for half of `patience` is *silent*. Mail then goes through others, three at most: pulses say whom each hears, and whom it could pass mail on to.
//! - [`Arrival::Refused`] is evidence, not a guess: a line that stood was ended by the other side, and then its address refused a fresh connection.
//! - Who does not belong to the group (cluster, key, certificate, id, settings, directory) is told what is wrong and heard no further.
//!
//! What the mail means is not known here. All runs on the runtime of [`Switchboard::open`], and nothing blocks it.

mod crowd;
mod dial;
mod door;
mod exchange;
mod greet;
mod guest;
mod key;
mod line;
mod post;
mod stream;
mod tls;

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use incumbent_protocol::protocol::NodeId;
use tokio::sync::mpsc;

use crate::packet::{Freight, Gossip, Mail, Passport, Word};
use exchange::Exchange;

pub use guest::Guest;
pub use key::GroupKey;

/// A node's place among the others.
#[derive(Clone, Debug)]
pub struct Lines {
    /// The group's name.
    pub cluster: String,
    /// This node.
    pub me: NodeId,
    /// The identity of the directory where this node's records are.
    pub directory: [u8; 16],
    /// How often that directory has been opened.
    pub generation: u64,
    /// How the group began, where two of one name are to be told apart; none if it is not known (yet). Who began otherwise is refused.
    pub origin: Option<[u8; 16]>,
    /// Drawn anew by every process.
    pub nonce: u64,
    /// Host and port on which to listen. Port 0 takes any.
    pub listen: String,
    /// The other members. Should this node be among them, it is left out.
    pub peers: Vec<Peer>,
    /// What must be equal on all members, as a text for people: it is shown when it is not.
    pub settings: String,
    /// Who is let in, and who can listen in.
    pub security: Security,
    /// How long a leader may be silent before it is missed: half of it makes a line silent.
    pub patience: Duration,
    /// What earlier processes of this node knew of the others.
    pub known: Vec<Known>,
}

/// Another member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its id.
    pub id: NodeId,
    /// Host and port; a name is resolved again for every dial.
    pub address: String,
}

/// What is remembered of a member, so that one with an older or another memory is found out.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Known {
    /// The member.
    pub id: NodeId,
    /// The identity of its directory.
    pub directory: [u8; 16],
    /// How often that had been opened.
    pub generation: u64,
}

/// Who is let in, and who can listen in.
#[derive(Clone, Debug)]
pub enum Security {
    /// Everybody and everybody: on loopback addresses only.
    Open,
    /// Who knows the group's key, and nobody.
    Key(GroupKey),
    /// Who shows a certificate of the group's authority, and nobody.
    Tls(TlsFiles),
}

/// Files of PEM for mutual TLS.
///
/// The certificate of node 3 of cluster `blue` must have the DNS name `node-3.blue` (a subject alternative name), and be good for both servers and
/// clients. A guest may show any certificate of the authority. The files are read again when they change; lines that stand are left.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate of the authority that has signed all others.
    pub authority: PathBuf,
    /// This node's certificate, and those between it and the authority.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Lists of revoked certificates: of each authority between a member's certificate and the group's.
    pub revoked: Option<PathBuf>,
}

/// What comes in.
#[derive(Debug)]
pub enum Arrival {
    /// A message for an election's machine.
    Word {
        /// Who said it.
        from: NodeId,
        /// What.
        word: Word,
    },
    /// News of an election.
    Gossip {
        /// Who said it.
        from: NodeId,
        /// What.
        gossip: Gossip,
    },
    /// A letter that is none of the transport's business.
    Freight {
        /// Who sent it.
        from: NodeId,
        /// What it says.
        body: Vec<u8>,
    },
    /// A peer is heard directly.
    Up {
        /// Who.
        peer: NodeId,
        /// The identity of its directory.
        directory: [u8; 16],
        /// How often that has been opened.
        generation: u64,
    },
    /// A peer is not heard directly any longer: its line has ended or is silent.
    Down {
        /// Who.
        peer: NodeId,
    },
    /// A peer ended its line, and its address then refused a fresh connection: no process listens there.
    Refused {
        /// Who.
        peer: NodeId,
    },
    /// A question.
    Asked {
        /// Who asks.
        asker: Asker,
        /// The question.
        body: Vec<u8>,
        /// Takes the answer.
        reply: Reply,
    },
    /// Something is wrong with a peer or a stranger. It has been logged, and is repeated at most once a minute.
    Complaint {
        /// The address that it is about.
        address: String,
        /// What is wrong, and what to do.
        what: String,
    },
}

/// Who asks a question.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Asker {
    /// A member.
    Member(NodeId),
    /// Somebody who was let in to ask.
    Guest(SocketAddr),
}

/// Takes the answer to a question. Dropped without one, the asker waits in vain.
pub struct Reply {
    exchange: Arc<Exchange>,
    to: ReplyTo,
    id: u64,
}

#[derive(Copy, Clone)]
enum ReplyTo {
    Member(NodeId),
    Guest { connection: u64 },
}

impl Reply {
    /// Sends the answer.
    pub fn send(self, body: Vec<u8>) {
        let mail = Mail::Answer { id: self.id, body };
        match self.to {
            ReplyTo::Member(to) => self.exchange.send(to, mail),
            ReplyTo::Guest { connection } => self.exchange.answer_guest(connection, mail),
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A question that got no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AskError {
    /// It has not been asked: there is no way to whom.
    Unreachable(String),
    /// It may have been asked: no answer came in time.
    TimedOut,
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AskError::Unreachable(why) => f.write_str(why),
            AskError::TimedOut => f.write_str("no answer in time; the question may have been heard"),
        }
    }
}

impl std::error::Error for AskError {}

/// Lines that cannot be set up as wanted: one line that says what to change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unusable(pub String);

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unusable {}

/// One line, as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineView {
    /// The other end.
    pub peer: NodeId,
    /// Its address, as configured.
    pub address: String,
    /// Whether it is heard.
    pub state: LineState,
    /// The last round trip measured on this line.
    pub round_trip: Option<Duration>,
    /// The node through which mail goes, while the line itself is not good.
    pub via: Option<NodeId>,
    /// What was sent over the line, and over others on its behalf.
    pub sent: Counts,
    /// What came over the line, or over others from its far end.
    pub received: Counts,
    /// What was passed on for others to its far end.
    pub relayed: u64,
    /// What could not be sent, and was lost.
    pub dropped: u64,
    /// Why it is not connected: what was wrong when that was last tried, if it was.
    pub trouble: Option<String>,
}

/// Whether a peer is heard.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LineState {
    /// It is.
    Up,
    /// Connected, but nothing was heard for half of the patience.
    Silent,
    /// Not connected.
    Down,
}

/// Packets by kind.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Signs of life.
    pub pulses: u64,
    /// Messages of machines.
    pub words: u64,
    /// News.
    pub gossip: u64,
    /// Questions.
    pub asks: u64,
    /// Answers.
    pub answers: u64,
    /// Letters that the transport does not look into.
    pub freight: u64,
}

/// All lines of a node. Dropped, they end at once; [`close`](Switchboard::close) sends first what is queued.
pub struct Switchboard {
    exchange: Arc<Exchange>,
    local_address: SocketAddr,
}

impl Switchboard {
    /// Listens, and dials whom it should. Must be called in a tokio runtime; what comes in goes to `arrivals`.
    ///
    /// # Errors
    /// If the address cannot be listened on, or the lines are not safe or not complete as configured.
    pub async fn open(lines: Lines, arrivals: mpsc::Sender<Arrival>) -> Result<Switchboard, Unusable> {
        let guard = stream::Guard::new(&lines)?;
        let listener = door::bind(&lines.listen).await?;
        let local_address =
            listener.local_addr().map_err(|wrong| Unusable(format!("cannot listen on {}: {wrong}", lines.listen)))?;
        let exchange = Exchange::new(&lines, guard, arrivals);
        door::open(&exchange, listener);
        stream::follow_files(&exchange);
        dial::set_peers(&exchange, lines.peers);
        Ok(Switchboard { exchange, local_address })
    }

    /// Where it listens.
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
    }

    /// Sends a word to a member. The oldest that wait are dropped when too many do.
    pub fn send_word(&self, to: NodeId, word: Word) {
        self.exchange.send(to, Mail::Word(word));
    }

    /// Sends news to a member. The oldest that wait are dropped when too many do.
    pub fn send_gossip(&self, to: NodeId, gossip: Gossip) {
        self.exchange.send(to, Mail::Gossip(gossip));
    }

    /// Sends a letter of at most [`FREIGHT_MAX`](crate::packet::FREIGHT_MAX) bytes to a member. The oldest that wait are dropped when too many do; a node that does not know freight
    /// is sent none.
    pub fn send_freight(&self, to: NodeId, freight: Freight) {
        self.exchange.send(to, Mail::Freight(freight));
    }

    /// Asks a member. The future is the caller's to await or to drop; the question is sent when it is first polled.
    pub fn ask(&self, to: NodeId, body: Vec<u8>) -> impl Future<Output = Result<Vec<u8>, AskError>> + Send + 'static {
        let exchange = Arc::clone(&self.exchange);
        async move { exchange.ask(to, body).await }
    }

    /// The other members from now on: new ones are dialled, others' lines end.
    pub fn set_peers(&self, peers: Vec<Peer>) {
        dial::set_peers(&self.exchange, peers);
    }

    /// What must be equal on all members from now on. Lines that stand are left.
    pub fn set_settings(&self, settings: String) {
        self.exchange.set_settings(settings);
    }

    /// This node has learned how the group began. Lines to nodes that say otherwise end.
    pub fn set_origin(&self, origin: [u8; 16]) {
        self.exchange.set_origin(origin);
    }

    /// Ends the peer's line and refuses it from now on, with the reason.
    pub fn banish(&self, peer: NodeId, why: &str) {
        self.exchange.banish(peer, why);
    }

    /// Every line as it is now.
    pub fn lines(&self) -> Vec<LineView> {
        self.exchange.views()
    }

    /// Sends what is queued, as far as that takes no longer than a moment, and ends all lines.
    pub async fn close(&self) {
        self.exchange.close().await;
    }
}

impl Drop for Switchboard {
    fn drop(&mut self) {
        self.exchange.abort();
    }
}

impl fmt::Debug for Switchboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Switchboard").field("local_address", &self.local_address).finish_non_exhaustive()
    }
}

impl Lines {
    fn passport(&self) -> Passport {
        let (id, origin) = (self.me, self.origin);
        Passport { id, directory: self.directory, generation: self.generation, nonce: self.nonce, origin }
    }
}
