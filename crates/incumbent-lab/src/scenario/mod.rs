//! Scenarios: what is done to a group, as text, and the trace that must come of it.
//!
//! ```text
//! # Thesis 9.6: a node that was cut off must not depose a healthy leader when it returns.
//! cluster raft nodes=3 prevote=on seed=7
//! run until agreed
//! ----
//! t=0.183 1 contends term=0
//! t=0.187 1 leads term=1
//! t=0.188 2 3 follow 1 term=1
//!
//! cut 3
//! run 2s
//! heal
//! expect term 1
//! ----
//! ```
//!
//! A block is a list of commands, a line `----`, and the trace up to a blank line. [`parse`] reads, [`run()`] runs with all
//! oracles on, [`Outcome::differences`] compares, [`Outcome::rewritten`] writes the trace anew. The claim of a scenario stands in its
//! `expect` lines, which no rewriting changes. The language is described in docs/scenarios.md.

mod cluster;
mod difference;
mod parse;
mod run;
mod tell;
mod words;

use std::fmt;
use std::time::Duration;

use incumbent_protocol::protocol::{NodeId, Term};

use crate::fault::Fault;
use crate::world::WorldSettings;

pub use difference::Difference;
pub use parse::parse;
pub use run::{Act, Failure, Outcome, run};
pub use tell::{Told, is_routine, office_of, tell};
pub use words::Mistake;

/// A scenario that could be read.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The file, as the caller named it.
    pub file: String,
    /// What it shows and why: the comment at its head.
    pub head: String,
    /// What its world is made of.
    pub world: WorldSettings,
    /// What is done, in order.
    pub blocks: Vec<Block>,
    /// The text, by line.
    pub(crate) lines: Vec<String>,
}

impl Scenario {
    /// The same with another seed. Its traces then mean nothing; its expectations still do.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Scenario {
        self.world.seed = seed;
        self
    }

    /// All its steps, in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.blocks.iter().flat_map(|block| &block.steps)
    }
}

/// Commands and the trace that must come of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    /// The commands.
    pub steps: Vec<Step>,
    /// The trace that must come of them.
    pub expected: Vec<String>,
    /// The line number at which the trace begins, from 1: the one behind `----`.
    pub expected_line: usize,
}

/// A command and where it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The line, from 1.
    pub line: usize,
    /// The command as it is written, without the space around it.
    pub text: String,
    /// What it means.
    pub command: Command,
}

/// What a line of a scenario asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Does this to the world, now. More than one only for the shapes of networks (`star`, `chain`).
    Inject(Vec<Fault>),
    /// Lets time pass.
    Run(Duration),
    /// Lets time pass until something is true. It must become true in time.
    RunUntil {
        /// What.
        goal: Goal,
        /// How long to wait for it at most.
        within: Duration,
    },
    /// From here on, which messages stand in the trace.
    ShowMessages(Messages),
    /// Adds lines to the trace about how things stand.
    Show(Show),
    /// This must be true now.
    Expect(Expectation),
}

/// What can be waited for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Goal {
    /// Exactly one node is in office.
    Leader,
    /// This node, and no other, is in office.
    LeaderIs(NodeId),
    /// Nobody is in office.
    NoLeader,
    /// One node is in office and every node that is up takes it for the leader.
    Agreed,
    /// Some node takes part in an election that it may win.
    Contest,
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Goal::Leader => f.write_str("leader"),
            Goal::LeaderIs(node) => write!(f, "leader {node}"),
            Goal::NoLeader => f.write_str("no leader"),
            Goal::Agreed => f.write_str("agreed"),
            Goal::Contest => f.write_str("contest"),
        }
    }
}

/// Which messages stand in the trace.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Messages {
    /// None.
    Off,
    /// All but routine: heartbeats, acknowledgements.
    On,
    /// All.
    All,
}

/// What can be shown.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Show {
    /// Who is in office.
    Leader,
    /// What every node does.
    Nodes,
    /// How many messages were sent since the last such line.
    Counts,
    /// How long nobody and how long more than one was in office.
    Office,
}

/// What can be demanded.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Expectation {
    /// Exactly one node is in office.
    Leader,
    /// This node, and no other, is in office.
    LeaderIs(NodeId),
    /// Nobody is in office.
    NoLeader,
    /// More than one node is in office.
    TwoLeaders,
    /// At no moment so far was more than one node in office.
    NeverTwoLeaders,
    /// One node is in office and every node that is up takes it for the leader.
    Agreed,
    /// No node that is up knows a greater term, and one knows this.
    Term(Term),
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expectation::Leader => f.write_str("leader"),
            Expectation::LeaderIs(node) => write!(f, "leader {node}"),
            Expectation::NoLeader => f.write_str("no leader"),
            Expectation::TwoLeaders => f.write_str("two leaders"),
            Expectation::NeverTwoLeaders => f.write_str("never two leaders"),
            Expectation::Agreed => f.write_str("agreed"),
            Expectation::Term(term) => write!(f, "term {term}"),
        }
    }
}
