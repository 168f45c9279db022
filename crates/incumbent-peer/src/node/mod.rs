//! A node: the machines of its elections, driven by real time, its lines to the others and its disk.
//!
//! ```text
//!   orders ──►┌────────┐──► notices         to and from whoever uses the node
//!             │ driver │
//!   lines ───►└────────┘◄── disk            Arrival, done
//!                │ Machine::step(now, input, effects), one machine an election
//! ```
//!
//! The driver decides nothing: it reads the clock, steps the machine, and carries the effects out in their order. What is decided here is what a machine cannot know: whether a refused
//! connection proves a death, whether the disk still answers, which members a group has.

mod change;
mod driver;
mod plan;
mod recorder;
mod roll;
mod room;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use incumbent_protocol::machine::Kind;
use incumbent_protocol::protocol::{Cause, NodeId, Reason, Term, Token};
use incumbent_protocol::time::Instant;
use tokio::sync::{mpsc, oneshot};

pub use plan::{Evidence, Plan, Unfit};
pub use roll::{Change, Roll, RollNumber};

use crate::archive::Vitals;
use crate::switchboard::{AskError, Asker, LineView, Reply, Switchboard};

/// A name of an election, shared by all that speak of it.
pub type Election = Arc<str>;

/// More elections in one group than this are refused: each has a machine on every node and a file on every disk.
pub const ELECTIONS_MAX: usize = 4096;

/// The longest name of an election, in bytes.
pub const ELECTION_LEN_MAX: usize = 255;

/// A node that runs. Clones are the same node; it ends when it is told to, or with the runtime that it was started on.
#[derive(Clone)]
pub struct Node {
    me: NodeId,
    protocol: Kind,
    /// The longest that a follower bears silence.
    patience: Duration,
    orders: mpsc::UnboundedSender<Order>,
    switchboard: Arc<Switchboard>,
}

/// What the user of a node is told.
#[derive(Debug)]
pub enum Notice {
    /// This node is in office in this election.
    Elected {
        /// Which.
        election: Election,
        /// The token of the leadership.
        token: Token,
    },
    /// It no longer is.
    Lost {
        /// Which.
        election: Election,
        /// The token of the leadership that ended.
        token: Token,
        /// Why.
        reason: Reason,
    },
    /// Another node is in office.
    Follows {
        /// Which.
        election: Election,
        /// Who.
        leader: NodeId,
        /// In which term.
        term: Term,
    },
    /// The node that was in office is thought gone.
    LeaderGone {
        /// Which.
        election: Election,
        /// Who was it.
        leader: NodeId,
        /// In which term.
        term: Term,
        /// Why.
        cause: Cause,
    },
    /// A ballot was lost, or was not held for want of answers.
    Rejected {
        /// Which.
        election: Election,
    },
    /// In office, and should hand over to this node: it has the greater id or priority, or our own disk stands still.
    ShouldHandOver {
        /// Which.
        election: Election,
        /// To whom; `None` if to anybody.
        to: Option<NodeId>,
        /// Why, for people.
        why: &'static str,
    },
    /// Another node tells something of this election that is none of the machine's business.
    Gossip {
        /// Which.
        election: Election,
        /// From whom.
        from: NodeId,
        /// What.
        body: Vec<u8>,
    },
    /// Somebody asks something.
    Question {
        /// Who.
        from: Asker,
        /// What.
        body: Vec<u8>,
        /// Where the answer goes.
        reply: Reply,
    },
    /// A line to this member is up.
    Up(NodeId),
    /// It is down.
    Down(NodeId),
    /// The members have changed.
    Members(Vec<NodeId>),
    /// This node is no member any more, and will not be again.
    Removed,
    /// The node has ended: its disk has failed.
    Broken(String),
}

/// How an election stands, as this node sees it.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Standing {
    /// The node in office, itself included.
    pub leader: Option<NodeId>,
    /// The greatest term known.
    pub term: Term,
    /// The incarnation of tokens.
    pub epoch: u16,
    /// This node's own leadership.
    pub own: Option<Mandate>,
}

/// A leadership of this node.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Mandate {
    /// Its token.
    pub token: Token,
    /// A quorum has answered what was sent then; `None` without a quorum guard, where nothing bounds a leadership.
    pub answered: Option<Instant>,
}

/// What the user of a node wants.
#[derive(Debug)]
pub(crate) enum Order {
    Stand { election: Election, answer: oneshot::Sender<Result<(), Declined>> },
    Abstain { election: Election },
    Resign { election: Election },
    HandOver { election: Election, to: NodeId },
    Look { election: Election, answer: oneshot::Sender<Standing> },
    Raise { election: Election, epoch: u16, answer: oneshot::Sender<Result<(), Declined>> },
    Report { answer: oneshot::Sender<Report> },
    Roll { answer: oneshot::Sender<Roll> },
    Install { roll: Roll, answer: oneshot::Sender<Result<(), String>> },
    Close { done: oneshot::Sender<()> },
}

/// A node as operators see it.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its lines to the others.
    pub lines: Vec<LineView>,
    /// Its disk.
    pub disk: Vitals,
    /// Its elections.
    pub elections: Vec<(Election, Standing)>,
    /// Who the members are.
    pub roll: Roll,
    /// Messages of machines, by name.
    pub said: Vec<Said>,
    /// Elections that it began to contend in, won and lost, since it started.
    pub contests: Contests,
}

/// Messages of one name that a node has sent and received since it started.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Said {
    /// The name.
    pub name: &'static str,
    /// To others.
    pub sent: u64,
    /// From others.
    pub received: u64,
}

/// What a node has counted since it started.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Contests {
    /// Times that it stood for office.
    pub begun: u64,
    /// Times that it was elected.
    pub won: u64,
    /// Times that it was not.
    pub lost: u64,
    /// Leaders that it gave up for their silence.
    pub silences: u64,
    /// Leaders whose death was proven.
    pub deaths: u64,
}

/// Why a node does not do what it is asked to.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Declined {
    /// It has ended.
    Ended,
    /// The group has [`ELECTIONS_MAX`] elections already, or the name is longer than [`ELECTION_LEN_MAX`].
    TooManyElections,
}

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Declined::Ended => f.write_str("the node has ended"),
            Declined::TooManyElections => write!(
                f,
                "a group holds at most {ELECTIONS_MAX} elections, whose names have at most {ELECTION_LEN_MAX} bytes: use fewer or shorter ones, or another group"
            ),
        }
    }
}

impl std::error::Error for Declined {}

impl Node {
    /// Opens the disk, binds the address, and begins to listen, vote and follow. Stands in no election until told to.
    pub async fn start(plan: Plan) -> Result<(Node, mpsc::UnboundedReceiver<Notice>), Unfit> {
        driver::start(plan).await
    }

    /// Its id.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// Its lines to the others.
    pub fn switchboard(&self) -> &Switchboard {
        &self.switchboard
    }

    /// Contends in this election from now on, at once if nobody is known to lead.
    pub async fn stand(&self, election: Election) -> Result<(), Declined> {
        self.asked(|answer| Order::Stand { election, answer }).await?
    }

    /// Votes and follows in this election, but does not contend. In office it resigns: work must have ended.
    pub fn abstain(&self, election: Election) {
        self.order(Order::Abstain { election });
    }

    /// Gives the office back: work has ended.
    pub fn resign(&self, election: Election) {
        self.order(Order::Resign { election });
    }

    /// Gives the office to another node: work has ended.
    pub fn hand_over(&self, election: Election, to: NodeId) {
        self.order(Order::HandOver { election, to });
    }

    /// How an election stands.
    pub async fn look(&self, election: Election) -> Result<Standing, Declined> {
        self.asked(|answer| Order::Look { election, answer }).await
    }

    /// Raises the epoch of an election on this node to at least this, and says when that is safe on its disk.
    pub async fn raise(&self, election: Election, epoch: u16) -> Result<(), Declined> {
        self.asked(|answer| Order::Raise { election, epoch, answer }).await?
    }

    /// The node as operators see it.
    pub async fn report(&self) -> Result<Report, Declined> {
        self.asked(|answer| Order::Report { answer }).await
    }

    /// Who the members are.
    pub async fn roll(&self) -> Result<Roll, Declined> {
        self.asked(|answer| Order::Roll { answer }).await
    }

    /// Adds or removes a member, of a group that elects by Raft. Takes a few times the patience of the group.
    pub async fn change(&self, change: &Change) -> Result<Roll, String> {
        if self.protocol != Kind::Raft {
            let protocol = self.protocol;
            return Err(format!(
                "{protocol} cannot change its members while it runs: stop all nodes and start them with the new ones"
            ));
        }
        change::change(self, change, self.patience).await
    }

    async fn install(&self, roll: Roll) -> Result<Result<(), String>, Declined> {
        self.asked(|answer| Order::Install { roll, answer }).await
    }

    /// Tells the others that it goes, and ends.
    pub async fn close(&self) {
        let _ = self.asked(|done| Order::Close { done }).await;
    }

    /// Asks another node something.
    pub async fn ask(&self, to: NodeId, body: Vec<u8>) -> Result<Vec<u8>, AskError> {
        self.switchboard.ask(to, body).await
    }

    fn order(&self, order: Order) {
        // One that has ended has said so.
        let _ = self.orders.send(order);
    }

    async fn asked<T>(&self, order: impl FnOnce(oneshot::Sender<T>) -> Order) -> Result<T, Declined> {
        let (answer, answered) = oneshot::channel();
        self.order(order(answer));
        answered.await.map_err(|_| Declined::Ended)
    }
}
