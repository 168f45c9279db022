//! A running node of the service: replica and store on real sockets, disks and clocks.
//!
//! ```text
//!   clients ─► door.rs ─► counter.rs ─┐
//!   Handle ──► Order ───►┌────────┐◄──┘──► Write ──► crew.rs, disk.rs (group commit)       ──► Report
//!   lines ───► Arrival ─►│ driver │──► Save ───► keeper.rs  (a thread: snapshots)          ──► Report
//!   threads ─► Report ──►└────────┘
//!   clock ───► Time          │ Replica::step ──► Commit ──► Store::apply ──► desk.rs: answers, watchers.rs: events
//! ```
//!
//! - One thread does everything that need not wait, one wake-up at a time (driver.rs), and another waits for the disk; they change places when that saves time (crew.rs). What takes long to answer is on others (readers.rs).
//! - Nothing is acknowledged that a majority's disks could forget, and nothing is applied that the log has not decided.
//! - What ends by time ends by an entry that the leader proposes when its store says so, and that counts in its own term alone (C08).
//!
//! ```no_run
//! # async fn example() {
//! use incumbent_service::server::{Config, Consistency, Node};
//! use incumbent_store::command::{Command, OpenSession, Request};
//! use incumbent_store::query::Query;
//!
//! let node = Node::start(Config::alone("/var/lib/incumbent")).expect("a directory of its own");
//! let handle = node.handle();
//! let open = OpenSession { ttl_ms: 5_000, owner: "web-1".into(), ..OpenSession::default() };
//! let outcome = handle.submit(Request::of(Command::OpenSession(open))).await;
//! let board = handle.ask(Query::Look("billing".into()), Consistency::Linearizable).await;
//! node.close().await;
//! # }
//! ```
//!
//! Left out: dialects of other services, which use a [`Handle`].

mod administration;
pub mod apply;
mod backup;
mod config;
mod counter;
mod crew;
mod desk;
mod disk;
mod door;
mod driver;
pub mod expiry;
mod gate;
mod handle;
mod inquiry;
mod keeper;
mod lobby;
mod members;
mod opening;
mod pool;
mod queues;
mod readers;
mod rehearsal;
mod steward;
mod tally;
#[cfg(test)]
mod tests;
mod tls;
mod tracer;

mod turnstile;
mod visit;
mod watchers;

use std::fmt;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use incumbent_protocol::protocol::NodeId;
use incumbent_store::store::Store;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

pub use incumbent_peer::switchboard::{GroupKey, Peer, Security, TlsFiles};
pub use incumbent_traces::Traces;

pub use self::administration::Unattended;
pub use self::backup::{Label, NotRestored, Restoration, Restored, restore};
pub use self::config::{Beginning, Config, NotStarted};
use self::handle::Order;
pub use self::handle::{
    Batch, Consistency, DiskStatus, End, Handle, NodeStatus, NotNow, Outcome, Unanswered, Unchanged, Watch, WatchEnd, Why,
};
pub use self::members::{Member, Members, RESERVED, is_reserved};
pub(crate) use self::pool::{Pool, Share};
pub(crate) use self::tally::Tally;
pub use self::tls::{Admission, ServerTls};
use crate::log::{self, Disk, Folder};
use crate::replica::{Extent, Index, Mark};

/// What this program calls itself to others.
const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// Where a node is reached.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Addresses {
    peers: SocketAddr,
    clients: Option<SocketAddr>,
}

/// A node that runs. Dropped, it ends as if it were killed, and its directory is free; [`Node::close`] ends it in peace.
pub struct Node {
    handle: Handle,
    addresses: Addresses,
    /// Dropped, the node ends at once.
    life: Option<oneshot::Sender<()>>,
    /// Ends when nothing is left of it.
    over: mpsc::Receiver<()>,
}

impl Node {
    /// Opens the directory, recovers the store, binds the address, and begins to vote, follow and serve. Blocks for as long as the disk needs.
    pub fn start(config: Config) -> Result<Node, NotStarted> {
        config.check()?;
        if Folder::is_nobodys(&config.directory) {
            rehearsal::rehearse(&config)?;
        }
        let folder = Folder::open(&config.directory).map_err(NotStarted::Directory)?;
        Node::begin(folder, config)
    }

    /// The same on another disk than the directory that is told: a simulated one.
    pub fn start_on<D: Disk>(disk: D, config: Config) -> Result<Node, NotStarted> {
        config.check()?;
        if log::is_nobodys(&disk).map_err(NotStarted::Directory)? {
            rehearsal::rehearse(&config)?;
        }
        Node::begin(disk, config)
    }

    fn begin<D: Disk>(disk: D, config: Config) -> Result<Node, NotStarted> {
        let (life, lives) = oneshot::channel();
        let (started, starts) = mpsc::channel();
        let (ends, over) = mpsc::channel();
        let body = move || driver::run(disk, config, lives, &started, ends);
        let thread = thread::Builder::new().name("incumbent-node".to_owned()).spawn(body);
        let thread = thread.map_err(|error| NotStarted::System(error.to_string()))?;
        match starts.recv() {
            Ok(Ok((handle, addresses))) => Ok(Node { handle, addresses, life: Some(life), over }),
            Ok(Err(why)) => {
                let _ = thread.join();
                Err(why)
            }
            Err(_) => Err(NotStarted::System("the node has ended while it started".to_owned())),
        }
    }

    /// For whoever wants something of it.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Where the other members reach it.
    pub fn address(&self) -> SocketAddr {
        self.addresses.peers
    }

    /// Where clients do, if they are served.
    pub fn clients_address(&self) -> Option<SocketAddr> {
        self.addresses.clients
    }

    /// Gives the leadership away if it has it, finishes what is in flight, and ends.
    pub async fn close(self) -> End {
        let _ = self.handle.send(Order::Close).await;
        self.handle.ended().await
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.life.take());
        // Nothing ever comes.
        let _ = self.over.recv();
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("me", &self.handle.me).field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// What the threads beside the driver have to say.
#[derive(Debug)]
enum Report {
    /// All writes up to this mark are safe.
    Persisted { mark: Mark, took: Duration },
    /// The disk is full: nothing is safe until there is room.
    Full(String),
    /// There is room again.
    Room,
    /// The disk has failed, or a thread of ours: the node must end.
    Broken(String),
    /// A snapshot is safe.
    Saved { index: Index, extent: Extent },
    /// It is not, and will not be.
    Unsaved { index: Index },
    /// A part of a snapshot for another node; empty if it cannot be read.
    Piece { to: NodeId, index: Index, offset: u64, bytes: Bytes },
    /// So much of a snapshot from another node is here.
    Expecting { index: Index, have: u64 },
    /// A part of it was kept: so much is here now.
    Kept { index: Index, have: u64 },
    /// A snapshot from another node has come, and this is its store; or it has not.
    Stored { index: Index, store: Option<Box<Store>> },
}

/// Held by a thread or a task: should it panic, the node ends instead of waiting for it for ever.
struct Alarm(UnboundedSender<Report>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = self.0.send(Report::Broken("a thread of this node has failed: see what it said".to_owned()));
        }
    }
}

/// A task without which the node would only seem to work.
async fn alarmed(reports: UnboundedSender<Report>, task: impl Future<Output = ()>) {
    let _alarm = Alarm(reports);
    task.await;
}
