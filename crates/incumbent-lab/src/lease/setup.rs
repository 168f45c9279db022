//! What a seed draws: how many holders, which times, what kind of service, network, clocks and work, and how much goes wrong.

use core::time::Duration;

use incumbent_protocol::chance::Chance;
use incumbent_protocol::timing::Timing;

use super::service::{Habits, Reentry};
use crate::network::{Delay, NetworkSettings, Quality, Refusal};

/// A world of leases before it begins. A test may change what was drawn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setup {
    /// Where all chance comes from.
    pub seed: u64,
    /// How many processes contend: two to five.
    pub holders: u32,
    /// The times that each of them keeps.
    pub timing: Timing,
    /// What the service is like.
    pub habits: Habits,
    /// What the links are like when nothing is wrong.
    pub network: NetworkSettings,
    /// How the clocks run.
    pub clocks: Clocks,
    /// How the work takes it when it is told to stop.
    pub work: Obedience,
    /// How often each kind of fault happens, relative to the others.
    pub faults: Faults,
    /// How long faults happen, in leases.
    pub storm_ttls: u32,
    /// The mistake that the holders make.
    pub flaw: Option<Flaw>,
}

/// How clocks run.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Clocks {
    /// Each at a rate within the drift bound of the timing, often at its very edge.
    WithinBound,
    /// Up to as much as a badly slewed clock: chrony's limit, 83333 ppm.
    BeyondBound,
}

/// How work takes it when it is told to stop.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Obedience {
    /// It ends within the drain, or dies within the kill.
    Obedient,
    /// It may drain for longer, and take leases to die.
    Stubborn,
}

/// How often each kind of fault happens, relative to the others; zero is never.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Faults {
    pub cut: u32,
    pub pause: u32,
    pub crash: u32,
    pub outage: u32,
    pub drift: u32,
    pub slow_replies: u32,
    pub storm: u32,
    pub request: u32,
    pub false_hint: u32,
}

/// A mistake that lock clients are known to make, put between the machine and the world.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// Counts validity from the reply, as etcd's and Kubernetes' clients do.
    CountsFromReply,
    /// Takes the service's clock and its own for one.
    IgnoresDrift,
    /// Gives the seat back when the work has been told to stop, not when it has stopped.
    ReleasesFirst,
    /// The resource takes every write.
    Unfenced,
    /// Does not contend again after a loss.
    GivesUp,
}

impl Flaw {
    /// All of them.
    pub const ALL: [Flaw; 5] = [Flaw::CountsFromReply, Flaw::IgnoresDrift, Flaw::ReleasesFirst, Flaw::Unfenced, Flaw::GivesUp];
}

impl Setup {
    /// What `seed` draws.
    pub fn draw(seed: u64) -> Setup {
        // A stream of its own: what is drawn here must not shift what happens later.
        let chance = &mut Chance::new(seed ^ 0x5E70_5E70_5E70_5E70);
        let ttl = Duration::from_millis([200, 1_000, 3_000, 10_000][chance.below(4) as usize]);
        let mut builder = Timing::of(ttl).drift_ppm([100, 500, 500, 5_000][chance.below(4) as usize]);
        if chance.happens(500_000) {
            builder = builder.guard(Timing::GUARD_MIN);
        }
        if chance.happens(300_000) {
            builder = builder.rest(ttl / 4);
        }
        let reentries = [Reentry::Renews, Reentry::Tells, Reentry::Denies];
        let clocks = if chance.happens(800_000) { Clocks::WithinBound } else { Clocks::BeyondBound };
        Setup {
            seed,
            holders: 2 + chance.below(4) as u32,
            timing: builder.build().expect("the defaults bear these changes"),
            habits: Habits {
                claim: reentries[chance.below(3) as usize],
                inquiry: reentries[chance.below(2) as usize],
                tells_of_holder: chance.happens(500_000),
                refusal_ppm: [0, 0, 50_000][chance.below(3) as usize],
                hints: chance.happens(600_000),
                lengthens_on_restart: chance.happens(500_000),
            },
            network: NetworkSettings { quality: draw_quality(ttl, chance), refusal: Refusal::Silent },
            clocks,
            work: if chance.happens(500_000) { Obedience::Obedient } else { Obedience::Stubborn },
            faults: draw_faults(clocks, chance),
            storm_ttls: 12 + chance.below(24) as u32,
            flaw: None,
        }
    }
}

fn draw_quality(ttl: Duration, chance: &mut Chance) -> Quality {
    let delay = match chance.below(3) {
        0 => Delay::Constant(Duration::from_micros(50)),
        1 => Delay::Uniform { min: Duration::from_micros(20), max: ttl / 100 },
        _ => Delay::Tail { base: Duration::from_micros(100), mean: ttl / 200 },
    };
    if chance.happens(400_000) {
        return Quality::calm(delay);
    }
    Quality {
        delay,
        spike_ppm: 10_000,
        spike: chance.between(ttl / 100, ttl * 2),
        loss_ppm: chance.below(150_000) as u32,
        duplicate_ppm: chance.below(200_000) as u32,
        reorder_ppm: chance.below(200_000) as u32,
        reorder: chance.between(ttl / 100, ttl * 2),
    }
}

/// Swarm testing: each run leaves some kinds of faults out, so that what is left happens more often and together.
fn draw_faults(clocks: Clocks, chance: &mut Chance) -> Faults {
    let mut weight = || if chance.happens(400_000) { 0 } else { 1 + chance.below(4) as u32 };
    Faults {
        cut: 1 + weight(),
        pause: weight(),
        crash: weight(),
        outage: weight(),
        // Clocks leave the bound only when a fault makes them.
        drift: weight() + if clocks == Clocks::BeyondBound { 2 } else { 0 },
        slow_replies: weight(),
        storm: weight(),
        request: weight(),
        false_hint: weight(),
    }
}
