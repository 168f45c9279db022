//! What must be true of every run with leases: one file each, with the history that it would catch.
//!
//! They see [`Sighting`]s in the order of true time and nothing else. Each keeps the first violation that it finds, and counts how
//! often the case it is there for came up at all: a swarm in which a count stays zero has proved nothing.

mod exclusive_belief;
mod fenced_resource;
mod liveness;
mod one_worker_at_a_time;
mod stop_then_release;
mod tokens_increase;

use core::time::Duration;

use crate::observation::Moment;
use crate::oracle::Violation;

use super::sighting::Sighting;

pub use exclusive_belief::ExclusiveBelief;
pub use fenced_resource::FencedResource;
pub use liveness::Liveness;
pub use one_worker_at_a_time::OneWorkerAtATime;
pub use stop_then_release::StopThenRelease;
pub use tokens_increase::TokensIncrease;

/// Something that must be true of every run.
pub trait Oracle {
    /// Its name, as in the name of its file.
    const NAME: &'static str;
    /// The case without which it proves nothing.
    const SOMETIMES: &'static str;

    /// Takes note of what happened at `at`. Time never goes back from one call to the next.
    fn see(&mut self, at: Moment, seen: &Sighting);
    /// The run has ended: what is still open is judged now.
    fn finish(&mut self, at: Moment);
    /// The first violation, if there was one.
    fn violation(&self) -> Option<&Violation>;
    /// How often [`Oracle::SOMETIMES`] was true.
    fn sometimes(&self) -> u64;
}

/// Whether two at once are a violation, or only counted because the world has left the bounds of the contract.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Exclusion {
    /// A violation.
    Demanded,
    /// A figure.
    Counted,
}

/// What may be demanded of a run.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Demands {
    /// Of beliefs: whether clocks keep the drift bound.
    pub belief: Exclusion,
    /// Of work: whether clocks keep the bound, nobody pauses, and work dies when it is told to.
    pub work: Exclusion,
    /// How long after healing somebody must be in office, and then stay.
    pub settled_within: Duration,
    /// How long after the crash of the one in office another must be.
    pub failover_within: Duration,
}

/// All oracles over one run.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each has its file")]
pub struct Oracles {
    pub exclusive_belief: ExclusiveBelief,
    pub tokens_increase: TokensIncrease,
    pub fenced_resource: FencedResource,
    pub stop_then_release: StopThenRelease,
    pub one_worker_at_a_time: OneWorkerAtATime,
    pub liveness: Liveness,
}

impl Oracles {
    /// How many there are.
    pub const COUNT: usize = 6;

    /// Oracles at the beginning of a run.
    pub fn new(demands: &Demands) -> Oracles {
        Oracles {
            exclusive_belief: ExclusiveBelief::new(demands.belief),
            tokens_increase: TokensIncrease::default(),
            fenced_resource: FencedResource::default(),
            stop_then_release: StopThenRelease::default(),
            one_worker_at_a_time: OneWorkerAtATime::new(demands.work),
            liveness: Liveness::new(demands.settled_within, demands.failover_within),
        }
    }

    /// Shows all of them what happened.
    pub fn see(&mut self, at: Moment, seen: &Sighting) {
        self.exclusive_belief.see(at, seen);
        self.tokens_increase.see(at, seen);
        self.fenced_resource.see(at, seen);
        self.stop_then_release.see(at, seen);
        self.one_worker_at_a_time.see(at, seen);
        self.liveness.see(at, seen);
    }

    /// Tells all of them that the run has ended.
    pub fn finish(&mut self, at: Moment) {
        self.exclusive_belief.finish(at);
        self.tokens_increase.finish(at);
        self.fenced_resource.finish(at);
        self.stop_then_release.finish(at);
        self.one_worker_at_a_time.finish(at);
        self.liveness.finish(at);
    }

    /// The first violations, at most one of each oracle.
    pub fn violations(&self) -> impl Iterator<Item = &Violation> {
        let all = [
            self.exclusive_belief.violation(),
            self.tokens_increase.violation(),
            self.fenced_resource.violation(),
            self.stop_then_release.violation(),
            self.one_worker_at_a_time.violation(),
            self.liveness.violation(),
        ];
        all.into_iter().flatten()
    }

    /// Each oracle's name, its case, and how often that was true.
    pub fn sometimes(&self) -> [(&'static str, &'static str, u64); Self::COUNT] {
        [
            case(&self.exclusive_belief),
            case(&self.tokens_increase),
            case(&self.fenced_resource),
            case(&self.stop_then_release),
            case(&self.one_worker_at_a_time),
            case(&self.liveness),
        ]
    }
}

fn case<O: Oracle>(oracle: &O) -> (&'static str, &'static str, u64) {
    (O::NAME, O::SOMETIMES, oracle.sometimes())
}

/// Keeps the first violation; the text of later ones is never built.
fn note(kept: &mut Option<Violation>, oracle: &'static str, at: Moment, text: impl FnOnce() -> String) {
    if kept.is_none() {
        *kept = Some(Violation { oracle, at, text: text() });
    }
}

/// Histories for the oracles' tests.
#[cfg(test)]
mod history {
    use incumbent_protocol::protocol::{Term, Token};

    use super::super::sighting::{Freed, HolderId};
    use super::*;

    pub(super) fn ms(millis: u64) -> Moment {
        Moment(millis * 1_000_000)
    }

    pub(super) fn token(term: u64) -> Token {
        Token::new(1, Term(term)).unwrap()
    }

    pub(super) fn believes(holder: u32, term: u64, until: u64) -> Sighting {
        Sighting::Believes { holder: HolderId(holder), token: token(term), until: ms(until) }
    }

    pub(super) fn ceases(holder: u32, term: u64) -> Sighting {
        Sighting::Ceases { holder: HolderId(holder), token: token(term) }
    }

    pub(super) fn crashed(holder: u32) -> Sighting {
        Sighting::Crashed { holder: HolderId(holder) }
    }

    pub(super) fn granted(holder: u32, term: u64) -> Sighting {
        Sighting::Granted { holder: HolderId(holder), token: token(term) }
    }

    pub(super) fn entered(holder: u32, term: u64, sent: u64) -> Sighting {
        Sighting::Entered { holder: HolderId(holder), token: token(term), sent: ms(sent) }
    }

    pub(super) fn began(holder: u32, term: u64) -> Sighting {
        Sighting::WorkBegan { holder: HolderId(holder), token: token(term) }
    }

    pub(super) fn ended(holder: u32, term: u64) -> Sighting {
        Sighting::WorkEnded { holder: HolderId(holder), token: token(term) }
    }

    pub(super) fn released(term: u64) -> Sighting {
        Sighting::Freed { token: token(term), how: Freed::Released }
    }

    pub(super) fn expired(term: u64) -> Sighting {
        Sighting::Freed { token: token(term), how: Freed::Expired }
    }

    pub(super) fn written(term: u64, accepted: bool) -> Sighting {
        Sighting::Written { token: token(term), accepted }
    }

    /// Shows `oracle` a history that ends at `end`; the text of the violation, or an empty one.
    pub(super) fn verdict(oracle: &mut impl Oracle, end: u64, seen: &[(u64, Sighting)]) -> String {
        for (at, it) in seen {
            oracle.see(ms(*at), it);
        }
        oracle.finish(ms(end));
        oracle.violation().map_or(String::new(), |it| it.text.clone())
    }
}
