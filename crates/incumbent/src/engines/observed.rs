//! Since when a record has been seen without a change, on our own clock. Pure: time is an argument.
//!
//! Some engines have no clock that candidates could share: a holder proves that it lives by changing its record, and a candidate takes over once it has
//! seen the same record for the holder's ttl. The span begins with the **first** sight of a record, taken when the answer has come: the holder's
//! renewal was sent before that, so its own deadline, counted from the send, comes first. Times that are written in the record play no part.

use std::collections::BTreeMap;
use std::time::Duration;

use incumbent_protocol::time::Instant;
use incumbent_protocol::timing::{Lateness, Timing};

use crate::name::Name;

/// Clocks tick in steps, and so do timers: this much is added to what arithmetic asks for.
const GRAIN: Duration = Duration::from_millis(10);

/// What was last seen of each election, and since when. `Mark` is whatever changes with every sign of life: a version, a revision.
pub(super) struct Observed<Mark> {
    sightings: BTreeMap<Name, Sighting<Mark>>,
}

struct Sighting<Mark> {
    mark: Mark,
    first_seen: Instant,
}

impl<Mark> Default for Observed<Mark> {
    fn default() -> Self {
        Self { sightings: BTreeMap::new() }
    }
}

impl<Mark: PartialEq> Observed<Mark> {
    /// For how long the election's record has been the one with this mark, as far as we know: since we first saw it.
    pub(super) fn unchanged_for(&mut self, election: &Name, mark: Mark, now: Instant) -> Duration {
        match self.sightings.get(election) {
            Some(sighting) if sighting.mark == mark => now - sighting.first_seen,
            Some(_) | None => {
                self.sightings.insert(election.clone(), Sighting { mark, first_seen: now });
                Duration::ZERO
            }
        }
    }
}

/// How late that makes a candidate: twice the drift bound and a grain, which is less than this for every ttl from half a second up.
pub(super) const OBSERVED_LATE: Lateness = Lateness { percent: 1, span: GRAIN };

/// How long a record must have been unchanged on our clock so that `ttl` has passed on the holder's, whose rate may differ by the drift bound.
pub(super) fn outlasting(ttl: Duration) -> Duration {
    let ppm = u128::from(Timing::DRIFT_PPM_DEFAULT);
    let nanos = (ttl.as_nanos() * (1_000_000 + ppm)).div_ceil(1_000_000 - ppm);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)) + GRAIN
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn the_span_begins_with_the_first_sight_and_anew_with_every_change() {
        let (a, b) = (Name::new("a").expect("good"), Name::new("b").expect("good"));
        let mut observed = Observed::default();
        assert_eq!(observed.unchanged_for(&a, 1, at(100)), Duration::ZERO, "however old it may be: nobody here has seen it");
        assert_eq!(observed.unchanged_for(&a, 1, at(107)), Duration::from_secs(7));
        assert_eq!(observed.unchanged_for(&b, 1, at(108)), Duration::ZERO, "elections do not know each other");
        assert_eq!(observed.unchanged_for(&a, 2, at(109)), Duration::ZERO);
        assert_eq!(observed.unchanged_for(&a, 1, at(110)), Duration::ZERO, "what comes back has been away");
        assert_eq!(observed.unchanged_for(&a, 1, at(111)), Duration::from_secs(1));
    }

    #[test]
    fn a_slow_holder_is_outlasted_by_a_fast_candidate() {
        let ttl = Duration::from_secs(1000);
        // The holder's clock loses 500 µs in a second, ours gains as much.
        let on_ours = ttl.mul_f64(1.0005 / 0.9995);
        assert!(outlasting(ttl) > on_ours && outlasting(ttl) < on_ours + Duration::from_secs(1));
        assert!(outlasting(Duration::MAX) > Duration::from_secs(1 << 32), "too long is no panic");
    }
}
