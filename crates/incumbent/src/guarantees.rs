//! What an engine promises, and what it cannot, as values: printed by the command line, checked by the conformance suite.

use std::time::Duration;

pub use incumbent_protocol::timing::Lateness;
use incumbent_protocol::timing::Timing;

/// What an engine promises. What is not safe comes first in [`Guarantees::caveats`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guarantees {
    /// The engine's name, as in the URL's scheme.
    pub engine: &'static str,
    /// Under what at most one leadership is valid.
    pub exclusive: Exclusive,
    /// Under what tokens rise.
    pub tokens: Tokens,
    /// What the token is made of.
    pub token_source: &'static str,
    /// Who decides that a ttl has passed.
    pub clock: WhoseClock,
    /// How a free seat is noticed.
    pub notice: Notice,
    /// Who is next.
    pub order: Order,
    /// How many may lead at once at most.
    pub seats_max: u32,
    /// Whether [`crate::engine::Board::candidates`] is filled.
    pub lists_candidates: bool,
    /// Whether [`crate::engine::Board::past`] is filled.
    pub keeps_history: bool,
    /// The shortest ttl it grants.
    pub ttl_min: Duration,
    /// The longest.
    pub ttl_max: Duration,
    /// How long after the ttl a seat whose holder died is free at the latest, while the engine itself is well.
    pub late: Lateness,
    /// What it cannot promise, in sentences; the worst first.
    pub caveats: Vec<&'static str>,
}

impl Guarantees {
    /// The latest after a crash that a healthy candidate has the seat here, with these times.
    pub fn failover_max(&self, timing: &Timing) -> Duration {
        timing.failover_max_at(self.late)
    }
}

/// Under what at most one leadership is valid at any instant (and clock rates differ by less than the drift bound).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Exclusive {
    /// Always, as long as the engine keeps what it has acknowledged.
    Always,
    /// As long as the engine does not fail over to a replica that lags behind.
    UnlessItFailsOver,
    /// As long as every candidate can reach every other.
    UnlessTheNetworkSplits,
    /// On one machine, whose kernel decides.
    OnOneMachine,
    /// In one process.
    InOneProcess,
}

/// Under what tokens strictly rise.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Tokens {
    /// Across crashes and restarts of everybody.
    Durable,
    /// As long as the engine does not lose what it has acknowledged.
    UnlessItForgets,
    /// As long as the process lives.
    WhileTheProcessLives,
}

/// Who decides that a ttl has passed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum WhoseClock {
    /// The engine, by its own clock.
    Engine,
    /// Each candidate, by how long it has seen nothing new from the holder, on its own clock.
    Candidate,
    /// Nobody: the kernel frees the seat when the holder dies.
    Kernel,
}

/// How a candidate finds out that the seat is free.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// The engine tells it at once.
    Pushed,
    /// It asks now and then.
    Polled,
}

/// Who is next.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// Who came first; one release wakes one.
    Line,
    /// Whoever is quickest.
    Race,
}
