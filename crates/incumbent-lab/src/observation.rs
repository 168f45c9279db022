//! What the world shows its oracles and meters: what happened, when in true time, to whom.
//!
//! Oracles know nothing of machines, queues or links. They see this stream and nothing else, so a test can feed
//! them a history that no correct machine would make.

use core::fmt;

use incumbent_protocol::protocol::{Claim, Event, NodeId, Purpose, Record, Term};

/// True time: nanoseconds since the world began. Nodes never see it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Moment(pub u64);

impl Moment {
    /// A moment that never comes.
    pub const NEVER: Moment = Moment(u64::MAX);
}

/// Seconds with a millisecond's precision: `1.250`.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000_000_000, self.0 / 1_000_000 % 1_000)
    }
}

/// One thing that happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Observation<'a> {
    /// `node` holds itself to be in office in `term`, from now until `until` in true time
    /// ([`Moment::NEVER`] without a guard). Repeated whenever `until` moves.
    InOffice {
        /// Who.
        node: NodeId,
        /// In which term.
        term: Term,
        /// Until when, if nothing else happens.
        until: Moment,
    },
    /// `node` is out of office: it stepped down or crashed. (A belief that runs out is not observed: `until` said so.)
    OutOfOffice {
        /// Who.
        node: NodeId,
        /// The term it held.
        term: Term,
    },
    /// `node` told its user something.
    Told {
        /// Who.
        node: NodeId,
        /// What.
        event: Event,
    },
    /// `node` came up with what its disk kept.
    Started {
        /// Who.
        node: NodeId,
        /// The last record on its disk.
        disk: Option<Record>,
    },
    /// `node` crashed: all but its disk is gone.
    Crashed {
        /// Who.
        node: NodeId,
    },
    /// `node` handed a message to the network.
    Sent {
        /// Who sent it.
        from: NodeId,
        /// To whom.
        to: NodeId,
        /// What the message claims of the sender's own state.
        claim: Claim,
        /// What the message is for.
        purpose: Purpose,
        /// Its name.
        name: &'static str,
        /// What is safe on the sender's disk at this moment.
        durable: Option<&'a Record>,
    },
    /// From now on no more faults happen, every link works and every node is up and keeps time.
    Healed,
}
