//! What the world shows its oracles and meters: what happened, when in true time, to whom.
//!
//! Oracles know nothing of machines, queues or links. They see this stream and nothing else, so a test can feed
//! them a history that no correct machine would make.

use core::fmt;
use core::ops::{Add, Sub};
use core::time::Duration;

use incumbent_protocol::protocol::{Claim, Event, NodeId, Purpose, Record, Term};

/// True time: nanoseconds since the world began. Nodes never see it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Moment(pub u64);

impl Moment {
    /// The beginning of the world.
    pub const ZERO: Moment = Moment(0);
    /// A moment that never comes.
    pub const NEVER: Moment = Moment(u64::MAX);
}

/// Saturates at [`Moment::NEVER`].
impl Add<Duration> for Moment {
    type Output = Moment;
    fn add(self, span: Duration) -> Moment {
        Moment(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// The time from `earlier` to `self`; zero if `earlier` is in fact later.
impl Sub<Moment> for Moment {
    type Output = Duration;
    fn sub(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
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

/// Whoever watches the world: an oracle, a meter, a test. It sees observations in the order of true time.
pub trait Observer {
    /// Takes notice of what happened at `at`.
    fn observe(&mut self, at: Moment, seen: &Observation<'_>);
}

/// Nobody watches.
impl Observer for () {
    fn observe(&mut self, _: Moment, _: &Observation<'_>) {}
}

/// Two who watch, the first one first.
impl<A: Observer, B: Observer> Observer for (A, B) {
    fn observe(&mut self, at: Moment, seen: &Observation<'_>) {
        self.0.observe(at, seen);
        self.1.observe(at, seen);
    }
}

impl<O: Observer + ?Sized> Observer for Box<O> {
    fn observe(&mut self, at: Moment, seen: &Observation<'_>) {
        (**self).observe(at, seen);
    }
}

/// All of a list, in its order.
impl<O: Observer> Observer for Vec<O> {
    fn observe(&mut self, at: Moment, seen: &Observation<'_>) {
        for each in self {
            each.observe(at, seen);
        }
    }
}
