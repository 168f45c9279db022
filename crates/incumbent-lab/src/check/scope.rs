//! How far a search goes: which protocol, how many nodes, how many faults of each kind.

use core::fmt;
use core::time::Duration;

use incumbent_protocol::machine::Kind;
use incumbent_protocol::protocol::NodeId;
use incumbent_protocol::settings::{Guard, Invalid, Pace, PreVote, Settings, Stability};

/// One node elects itself; there is nothing to search.
pub const NODES_MIN: u32 = 2;

/// With more nodes not even the smallest budget can be gone through.
pub const NODES_MAX: u32 = 5;

/// What is searched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scope {
    /// The protocol.
    pub protocol: Kind,
    /// How many nodes: [`NODES_MIN`] to [`NODES_MAX`].
    pub nodes: u32,
    /// Whether a leader needs a majority.
    pub guard: Guard,
    /// Whether candidates ask before they raise the term.
    pub pre_vote: PreVote,
    /// What the disks are worth.
    pub disk: Disk,
    /// Where the search begins.
    pub begin: Begin,
    /// What may happen from there on, and how often.
    pub budget: Budget,
    /// The search is cut at this many distinct states.
    pub states_max: usize,
}

impl Scope {
    /// The fewest of which one may crash and a majority is left.
    pub const NODES: u32 = 3;

    /// A few seconds and some 150 MB.
    pub const STATES_MAX: usize = 2_000_000;

    /// A guarded group with honest disks and a leader in office, to which the default budget happens.
    pub fn of(protocol: Kind) -> Scope {
        Scope {
            protocol,
            nodes: Scope::NODES,
            guard: Guard::Majority,
            pre_vote: PreVote::On,
            disk: Disk::Honest,
            begin: Begin::Led,
            budget: Budget::default(),
            states_max: Scope::STATES_MAX,
        }
    }

    /// Settings with as little chance in them as may be: two states that differ only by what was drawn are two states to search.
    pub(super) fn settings(&self) -> Result<Settings, Refused> {
        if !(NODES_MIN..=NODES_MAX).contains(&self.nodes) {
            return Err(Refused::Nodes { given: self.nodes });
        }
        let patience = Duration::from_millis(100);
        let pace = Pace {
            // Clocks know no rates here, so the lease may be as long as the patience, and hold exactly two heartbeats.
            heartbeat: patience / 2,
            patience_min: patience,
            patience_max: patience,
            reply: patience / 4,
            drift_ppm: 0,
            margin: Duration::ZERO,
        };
        // Nobody stands aside: the courtesy would only keep nodes from contending. The rings skip a silent node for `aside_max`.
        let stability = Stability { min_tenure: Duration::ZERO, aside_min: Duration::ZERO, aside_max: patience * 8 };
        Settings::of((1..=self.nodes).map(NodeId))
            .pace(pace)
            .stability(stability)
            .guard(self.guard)
            .pre_vote(self.pre_vote)
            .build()
            .map_err(Refused::Settings)
    }

    /// Whether a node takes office by votes.
    pub(super) fn votes(&self) -> bool {
        self.protocol == Kind::Raft || self.guard != Guard::Off
    }
}

/// `raft nodes=3 guard=on pre-vote=on begin=cold crashes=1 losses=0 repeats=0 wakes=3 requests=0`
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guard = match self.guard {
            Guard::Majority => "on",
            Guard::Quorum(size) => &format!("{size}"),
            Guard::Off => "off",
        };
        write!(f, "{} nodes={} guard={guard}", self.protocol, self.nodes)?;
        if self.votes() {
            let pre_vote = match self.pre_vote {
                PreVote::On => "on",
                PreVote::Off => "off",
            };
            write!(f, " pre-vote={pre_vote}")?;
        }
        if self.disk != Disk::Honest {
            write!(f, " disk={}", self.disk.name())?;
        }
        let begin = self.begin.name();
        let Budget { crashes, losses, repeats, wakes, requests } = self.budget;
        write!(f, " begin={begin} crashes={crashes} losses={losses} repeats={repeats} wakes={wakes} requests={requests}")
    }
}

/// Where a search begins.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Begin {
    /// All nodes come up for the first time.
    Cold,
    /// A leader is in office and all follow it: the way there is taken without faults and costs nothing of the budget. What
    /// comes after a leadership is then within reach of a small budget.
    Led,
}

impl Begin {
    /// Both.
    pub const ALL: [Begin; 2] = [Begin::Cold, Begin::Led];

    /// Its name, as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Begin::Cold => "cold",
            Begin::Led => "led",
        }
    }
}

/// How often each thing that needs no cause may happen, in the whole group together.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Budget {
    /// A node crashes. It may start again for nothing.
    pub crashes: u8,
    /// A message is lost. One that never arrives needs none of these.
    pub losses: u8,
    /// A message arrives and arrives again later.
    pub repeats: u8,
    /// A node's clock comes to its deadline, and it may be woken.
    pub wakes: u8,
    /// A node's user asks for something: campaign, resign, hand over, suspect, hold for dead.
    pub requests: u8,
}

impl Default for Budget {
    /// A crash, a request and a time-out, in any order: the least that leads from a leader to every [`Case`](super::Case) in every protocol.
    fn default() -> Budget {
        Budget { crashes: 1, losses: 0, repeats: 0, wakes: 1, requests: 1 }
    }
}

/// What a disk is worth. All but the first are there to show that the check would see it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Disk {
    /// What it said is safe stays. What it was still writing may be lost in a crash or not.
    Honest,
    /// It loses everything in a crash.
    Forgets,
    /// It says that a record is safe as soon as it gets it, and writes it later.
    Hasty,
}

impl Disk {
    /// All of them.
    pub const ALL: [Disk; 3] = [Disk::Honest, Disk::Forgets, Disk::Hasty];

    /// Its name, as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Disk::Honest => "honest",
            Disk::Forgets => "forgets",
            Disk::Hasty => "hasty",
        }
    }
}

/// Why a scope cannot be searched. Each says what to change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Too few nodes, or too many.
    Nodes {
        /// How many were asked for.
        given: u32,
    },
    /// No group can be set up so.
    Settings(Invalid),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Nodes { given } => {
                write!(f, "{given} nodes cannot be searched: choose {NODES_MIN} to {NODES_MAX}")
            }
            Refused::Settings(invalid) => invalid.fmt(f),
        }
    }
}

impl std::error::Error for Refused {}
