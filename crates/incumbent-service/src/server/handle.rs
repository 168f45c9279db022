//! What a node's users hold: requests, questions, watches, on any thread and any runtime.
//!
//! Outcomes are three-valued: done or refused by the store, certainly not done ([`NotNow`]), or unknown. Only what was not done may be repeated blindly; what is
//! unknown may be repeated with the same number, for the store applies a numbered request once.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use incumbent_client::administration::{Administration, Attended, BackupView, ReadBackup};
use incumbent_client::serve::{Bell, Charge, Lost, Reading};
use incumbent_peer::switchboard::{LineState, LineView, Peer};
use incumbent_protocol::protocol::NodeId;
use incumbent_store::command::Request;
use incumbent_store::event::Event;
use incumbent_store::query::{Answered, Query, ReadEvents};
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::Reply;
use incumbent_store::watch::Interest;
use incumbent_traces::Context;
use tokio::sync::{mpsc, oneshot, watch};

use super::administration::Unattended;
use super::desk::{Answer, Asker};
use super::inquiry::{NodeReport, Whom};
use super::members::Members;
use super::tally::Tally;
use super::tracer::Tracer;
use super::watchers::Held;
use crate::log::{DirectoryId, Known};
use crate::replica::{Index, Origin, Role, Roll, Step};

/// A running node, for whoever wants something of it. Clones are of the same node.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(super) me: NodeId,
    pub(super) orders: mpsc::Sender<Call>,
    /// In whose name it asks.
    pub(super) guest: Arc<str>,
    pub(super) ended: watch::Receiver<Option<End>>,
    pub(super) closing: watch::Receiver<bool>,
    pub(super) role: watch::Receiver<Role>,
    pub(super) members: watch::Receiver<Members>,
    pub(super) tracer: Tracer,
    pub(super) tally: Tally,
}

/// What came of a request.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// It was done.
    Done {
        /// What the store answers.
        reply: Reply,
        /// The store's revision after it.
        revision: u64,
    },
    /// The store has refused it. Nothing has changed, except where [`Refusal::may_have_happened`] says otherwise.
    Refused(Refusal),
    /// It has not happened, and will not.
    NotNow(NotNow),
    /// It may have happened, or may yet happen.
    Unknown,
}

/// Why something has certainly not been done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotNow {
    /// Why.
    pub why: Why,
    /// Who leads, as far as is known: it may do it.
    pub leader: Option<NodeId>,
}

/// Why something has certainly not been done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Why {
    /// Nobody leads.
    NoLeader,
    /// It is for the node that leads.
    NotLeading,
    /// Others have decided first.
    Superseded,
    /// As much waits already as may.
    Full,
    /// The disk of this node is full: it only answers questions.
    ReadOnly,
    /// This node is closing, or has ended.
    Closing,
}

impl fmt::Display for NotNow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.why {
            Why::NoLeader => "no node leads at present: a majority of the members must be up and reach each other (see `incumbent cluster status`)",
            Why::NotLeading => "it is for the node that leads: ask that one",
            Why::Superseded => "another node has taken over: try again",
            Why::Full => "too much waits already: try again, more slowly",
            // Without a leader but this node there is nobody else who would do it.
            Why::ReadOnly if self.leader.is_none() => "the disk of this node is full, and it only answers questions: make room",
            Why::ReadOnly => "the disk of this node is full, and it only answers questions: make room, or ask another node",
            Why::Closing => "this node is closing: ask another",
        })?;
        self.leader.map_or(Ok(()), |leader| write!(f, " (node {leader} leads)"))
    }
}

/// Why a question was not answered.
#[derive(Clone, PartialEq, Debug)]
pub enum Unanswered {
    /// The store refuses it.
    Refused(Refusal),
    /// Ask again.
    NotNow(NotNow),
}

/// Why the members are as they were, or may be.
#[derive(Clone, PartialEq, Debug)]
pub enum Unchanged {
    /// It cannot be: what is wrong with it.
    Refused(&'static str),
    /// Another change is under way: wait for its end.
    UnderWay,
    /// It has not happened, and will not. Only the leader changes members: ask it.
    NotNow(NotNow),
    /// It may have happened, or may yet happen.
    Unknown,
}

/// How new an answer must be.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Consistency {
    /// Not older than the question.
    Linearizable,
    /// Whatever this node knows: at once, also when nobody leads.
    Local,
}

/// Some events that belong together.
#[derive(Clone, PartialEq, Debug)]
pub struct Batch {
    /// All that was wanted up to this revision has been told: a watch is resumed from the next one.
    pub revision: u64,
    /// In their order. Never a part of a revision. None, if nothing was wanted up to there and there is more to look at.
    pub events: Vec<Arc<Event>>,
}

/// Why a watch has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchEnd {
    /// What it should be told next is not kept any more: [`Refusal::Lagged`] or [`Refusal::Compacted`]. Read how things stand, and watch from there. Or there are too
    /// many, or too much waits for those that are slow: [`Refusal::Limit`].
    Refused(Refusal),
    /// It is behind: more has happened than waits for one watch. Resume it after the last revision that was read.
    Behind,
    /// The node has ended: resume it on another.
    NodeEnded,
}

/// The node has ended.
#[derive(Copy, Clone, Debug)]
pub(super) struct Gone;

/// A watch, until it is dropped.
#[derive(Debug)]
pub struct Watch {
    pub(super) number: u64,
    pub(super) batches: mpsc::Receiver<(Batch, Held)>,
    /// What the last batch counts for: it is being told.
    pub(super) in_hand: Option<Held>,
    pub(super) end: Arc<OnceLock<WatchEnd>>,
    pub(super) unwatched: mpsc::UnboundedSender<u64>,
}

impl Watch {
    /// The next events. After the end, always the end.
    pub async fn next(&mut self) -> Result<Batch, WatchEnd> {
        self.in_hand = None;
        match self.batches.recv().await {
            Some((batch, held)) => {
                self.in_hand = Some(held);
                Ok(batch)
            }
            None => Err(self.end.get().cloned().unwrap_or(WatchEnd::NodeEnded)),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.unwatched.send(self.number);
    }
}

/// Why a node has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// It was told to.
    Closed,
    /// It is no member of its cluster any more: one line that says what to do.
    Removed(String),
    /// Its disk failed, or the log says what this program cannot read: one line that says what to do.
    Broken(String),
}

/// A node as operators see it.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// The node.
    pub node: NodeId,
    /// Who leads, as it sees it.
    pub role: Role,
    /// Why that has last changed, as far as it can tell.
    pub why: &'static str,
    /// Who the members are.
    pub roll: Roll,
    /// Up to where entries are known to be decided.
    pub commit: Index,
    /// Up to where they are applied.
    pub applied: Index,
    /// The first entry that is kept.
    pub first: Index,
    /// The last entry.
    pub last: Index,
    /// The store's revision.
    pub revision: u64,
    /// The last snapshot that was saved or installed.
    pub snapshot: Index,
    /// Its disk.
    pub disk: DiskStatus,
    /// Watches.
    pub watches: usize,
    /// Requests and questions that wait.
    pub waiting: usize,
    /// Its lines to the others.
    pub lines: Vec<LineView>,
    /// Its cluster.
    pub cluster: String,
    /// How that began, if it knows.
    pub origin: Option<Origin>,
    /// Counts the lives of the store.
    pub incarnation: u16,
    /// Where the members are, as the store has it.
    pub members: Members,
    /// Everywhere where it looks for others.
    pub places: Vec<String>,
    /// How far behind the end of the log others are, if this node leads and has heard of it from them.
    pub lags: BTreeMap<NodeId, u64>,
    /// Its directory.
    pub directory: DirectoryId,
    /// Directories of nodes that were here before.
    pub known: Vec<Known>,
}

impl NodeStatus {
    /// The other nodes that are not heard, and why not: for a node that has no leader.
    pub fn unheard(&self) -> Vec<String> {
        let down = self.lines.iter().filter(|it| it.state != LineState::Up);
        let told = down.map(|it| match &it.trouble {
            Some(why) => format!("node {} at {}: {why}", it.peer, it.address),
            None => format!("node {} at {} is not heard", it.peer, it.address),
        });
        told.collect()
    }
}

/// A disk, as its thread has measured it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DiskStatus {
    /// Writes with their syncs.
    pub writes: u64,
    /// How long the last one took, from the moment it was wanted.
    pub last: Duration,
    /// The longest.
    pub longest: Duration,
    /// Whether it is too slow for a leader.
    pub slow: bool,
    /// Set while it is full: what the system says.
    pub full: Option<String>,
}

/// What somebody wants of a node, and who.
#[derive(Debug)]
pub(super) struct Call {
    /// By this name others have their turns, too. Empty: the node itself, or anybody where no tokens are asked for.
    pub(super) guest: Arc<str>,
    pub(super) order: Order,
}

/// What users want of a node.
#[derive(Debug)]
pub(super) enum Order {
    Submit {
        request: Request,
        answer: Answer,
    },
    /// The answer must not be older than the revision `seen`.
    Ask {
        query: Query,
        consistency: Consistency,
        seen: u64,
        answer: Asker<Result<Answered, Unanswered>>,
    },
    Watch {
        interest: Interest,
        /// Of whose share what waits for it is taken.
        guest: Arc<str>,
        from: u64,
        answer: oneshot::Sender<Watch>,
    },
    Status {
        answer: oneshot::Sender<NodeStatus>,
    },
    Digest {
        answer: oneshot::Sender<(Index, u64)>,
    },
    Transfer {
        to: Option<NodeId>,
    },
    Change {
        steps: Vec<Step>,
        answer: oneshot::Sender<Result<Roll, Unchanged>>,
    },
    Peers {
        peers: Vec<Peer>,
    },
    Close,
    /// A client's connection watches, under this number ...
    Attend {
        watcher: u64,
        interest: Interest,
        bell: Bell,
        charge: Charge,
    },
    /// ... and does not any more.
    Leave {
        watcher: u64,
        charge: Charge,
    },
    /// What has happened, as far as this node knows.
    Events {
        asked: ReadEvents,
        reading: Reading,
    },
    /// A client's machine has closed the connection that spoke for these sessions, in the name of this guest.
    Lost {
        guest: String,
        sessions: Vec<Lost>,
    },
    /// Something that operators want.
    Administer {
        administration: Administration,
        answer: Asker<Result<Attended, Unattended>>,
    },
    /// Ask a node how it is.
    Inquire {
        whom: Whom,
        answer: oneshot::Sender<Result<NodeReport, String>>,
    },
    /// Look in another place for members that are not found.
    LookElsewhere,
    /// This node was removed, as that one says, at or before that entry.
    Removed {
        by: NodeId,
        index: Index,
    },
    /// Make a backup.
    BackUp {
        answer: oneshot::Sender<Result<BackupView, String>>,
    },
    /// Read a part of it.
    ReadBackup {
        wanted: ReadBackup,
        answer: oneshot::Sender<Result<Bytes, String>>,
    },
}

impl Handle {
    /// The node.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// The same for a guest of this name: what guests want is done in turns.
    pub(crate) fn in_the_name_of(&self, guest: &str) -> Handle {
        Handle { guest: guest.into(), ..self.clone() }
    }

    /// Not sent if the node has ended.
    pub(super) async fn send(&self, order: Order) -> Result<(), Gone> {
        self.orders.send(Call { guest: Arc::clone(&self.guest), order }).await.map_err(|_| Gone)
    }

    /// Until it is told to end, or has ended: it takes no more requests.
    pub(crate) async fn closes(&self) {
        // Gone, it has ended.
        let _ = self.closing.clone().wait_for(|it| *it).await;
    }

    /// Has a request applied, by whoever leads. If the future is dropped, it may still happen.
    pub async fn submit(&self, request: Request) -> Outcome {
        self.submit_within(request, None).await
    }

    /// The same for a span, in whose trace it is told.
    pub(crate) async fn submit_within(&self, request: Request, span: Option<Context>) -> Outcome {
        let (answer, answered) = oneshot::channel();
        let answer = Asker::from(answer).traced(self.tracer.request_within(&request, span));
        match self.send(Order::Submit { request, answer }).await {
            Ok(()) => self.heard(answered).await.unwrap_or(Outcome::Unknown),
            Err(_) => Outcome::NotNow(self.ended_now()),
        }
    }

    /// Asks something.
    pub async fn ask(&self, query: Query, consistency: Consistency) -> Result<Answered, Unanswered> {
        self.ask_within(query, consistency, None).await
    }

    /// The same for a span, in whose trace it is told.
    pub(crate) async fn ask_within(
        &self,
        query: Query,
        consistency: Consistency,
        span: Option<Context>,
    ) -> Result<Answered, Unanswered> {
        let (answer, answered) = oneshot::channel();
        let answer = Asker::from(answer).traced(self.tracer.question_within(&query, span));
        let ended = || Unanswered::NotNow(self.ended_now());
        self.send(Order::Ask { query, consistency, seen: 0, answer }).await.map_err(|_| ended())?;
        self.heard(answered).await.unwrap_or_else(|| Err(ended()))
    }

    /// Watches what happens from a revision on; from now on if `from` is 0. It may begin in the future. `None` if the node has ended.
    pub async fn watch(&self, interest: Interest, from: u64) -> Option<Watch> {
        let (answer, answered) = oneshot::channel();
        self.send(Order::Watch { interest, guest: Arc::clone(&self.guest), from, answer }).await.ok()?;
        self.heard(answered).await
    }

    /// The node as operators see it; `None` if it has ended.
    pub async fn status(&self) -> Option<NodeStatus> {
        let (answer, answered) = oneshot::channel();
        self.send(Order::Status { answer }).await.ok()?;
        self.heard(answered).await
    }

    /// Up to where entries are applied, and a number that is equal on nodes which have applied the same (S4). Reads all of the store while everything else waits: for
    /// tests and audits.
    pub async fn digest(&self) -> Option<(Index, u64)> {
        let (answer, answered) = oneshot::channel();
        self.send(Order::Digest { answer }).await.ok()?;
        self.heard(answered).await
    }

    /// Wants the leadership to go to this node, or to whoever is best prepared. Nothing happens if this node does not lead.
    pub async fn transfer(&self, to: Option<NodeId>) {
        let _ = self.send(Order::Transfer { to }).await;
    }

    /// Changes the members. Steps given together take effect together. Only the leader does it; a node that is new must be a learner before it can be a voter, and all
    /// nodes must know where it is, by its record or by [`Handle::set_peers`]. [`Handle::administer`] sees to all that.
    pub async fn change(&self, steps: Vec<Step>) -> Result<Roll, Unchanged> {
        let (answer, answered) = oneshot::channel();
        let ended = || Unchanged::NotNow(self.ended_now());
        self.send(Order::Change { steps, answer }).await.map_err(|_| ended())?;
        self.heard(answered).await.unwrap_or(Err(Unchanged::Unknown))
    }

    /// Where the other nodes are from now on, members or not yet. Not remembered: a node that is started again must be told again.
    pub async fn set_peers(&self, peers: Vec<Peer>) {
        let _ = self.send(Order::Peers { peers }).await;
    }

    /// Has something done that operators want: see [`Administration`]. It may be asked again, whatever came of it.
    pub async fn administer(&self, administration: Administration) -> Result<Attended, Unattended> {
        let (answer, answered) = oneshot::channel();
        let order = Order::Administer { administration, answer: answer.into() };
        self.send(order).await.map_err(|_| Unattended::NotNow(self.ended_now()))?;
        self.heard(answered).await.unwrap_or(Err(Unattended::Unknown))
    }

    pub(super) async fn inquire(&self, whom: Whom) -> Result<NodeReport, String> {
        let (answer, answered) = oneshot::channel();
        let ended = || "this node has ended".to_owned();
        self.send(Order::Inquire { whom, answer }).await.map_err(|_| ended())?;
        self.heard(answered).await.unwrap_or_else(|| Err(ended()))
    }

    pub(super) async fn look_elsewhere(&self) {
        let _ = self.send(Order::LookElsewhere).await;
    }

    pub(super) async fn be_removed(&self, by: NodeId, index: Index) {
        let _ = self.send(Order::Removed { by, index }).await;
    }

    pub(super) async fn back_up(&self) -> Result<BackupView, String> {
        let (answer, answered) = oneshot::channel();
        let ended = || "this node has ended, or makes another backup: try again".to_owned();
        self.send(Order::BackUp { answer }).await.map_err(|_| ended())?;
        self.heard(answered).await.unwrap_or_else(|| Err(ended()))
    }

    pub(super) async fn read_backup(&self, wanted: ReadBackup) -> Result<Bytes, String> {
        let (answer, answered) = oneshot::channel();
        let ended = || "this node has ended: begin again on another".to_owned();
        self.send(Order::ReadBackup { wanted, answer }).await.map_err(|_| ended())?;
        self.heard(answered).await.unwrap_or_else(|| Err(ended()))
    }

    /// For spans of what others ask of it.
    pub(crate) fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    /// What was asked of the node, by whichever protocol.
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Where the members are, as the store has it, and whenever that changes.
    pub fn members(&self) -> watch::Receiver<Members> {
        self.members.clone()
    }

    /// Who leads, and whenever that changes.
    pub fn role(&self) -> watch::Receiver<Role> {
        self.role.clone()
    }

    /// Waits until the node has ended, and says why.
    pub async fn ended(&self) -> End {
        let mut ended = self.ended.clone();
        // Without a word it ends only by a fault of ours.
        let end = ended.wait_for(Option::is_some).await.ok().and_then(|it| it.clone());
        end.unwrap_or_else(|| End::Broken("the node has ended without a word".to_owned()))
    }

    /// An answer; none if the node has ended without one. An order that came in the moment of its end may lie in the queue for ever.
    async fn heard<T>(&self, answer: oneshot::Receiver<T>) -> Option<T> {
        let mut ended = self.ended.clone();
        tokio::select! {
            biased;
            answered = answer => answered.ok(),
            _ = ended.wait_for(Option::is_some) => None,
        }
    }

    fn ended_now(&self) -> NotNow {
        NotNow { why: Why::Closing, leader: self.role.borrow().leader.filter(|it| *it != self.me) }
    }
}
