//! How the disk does, for those who watch over it.

use std::collections::VecDeque;
use std::time::Duration;

use incumbent_protocol::time::Instant;

use super::Failure;

/// Writes that figures are made of: enough for a 99th percentile, few enough to forget a bad hour.
const REMEMBERED_MAX: usize = 256;

/// How the disk does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vitals {
    /// Syncs made since the directory was opened.
    pub writes: u64,
    /// How long the last one took.
    pub last: Option<Duration>,
    /// Of the last few hundred: the middle one.
    pub p50: Option<Duration>,
    /// Of the last few hundred: the slowest but one in a hundred.
    pub p99: Option<Duration>,
    /// The slowest ever.
    pub slowest: Duration,
    /// Since when something waits for the disk.
    pub busy_since: Option<Instant>,
    /// What went wrong with the last write, or for good.
    pub failure: Option<Failure>,
}

#[derive(Debug, Default)]
pub(super) struct Durations {
    writes: u64,
    slowest: Duration,
    recent: VecDeque<Duration>,
}

impl Durations {
    pub(super) fn add(&mut self, took: Duration) {
        self.writes += 1;
        self.slowest = self.slowest.max(took);
        if self.recent.len() >= REMEMBERED_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(took);
    }

    pub(super) fn vitals(&self, busy_since: Option<Instant>, failure: Option<Failure>) -> Vitals {
        let mut sorted: Vec<_> = self.recent.iter().copied().collect();
        sorted.sort_unstable();
        let of = |percent: usize| (!sorted.is_empty()).then(|| sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]);
        Vitals {
            writes: self.writes,
            last: self.recent.back().copied(),
            p50: of(50),
            p99: of(99),
            slowest: self.slowest,
            busy_since,
            failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_the_last_writes_and_the_slowest_is_kept_for_ever() {
        let mut durations = Durations::default();
        assert_eq!(durations.vitals(None, None).p99, None);
        durations.add(Duration::from_secs(9));
        for millis in 1..=256 {
            durations.add(Duration::from_millis(millis));
        }
        let vitals = durations.vitals(None, None);
        assert_eq!((vitals.writes, vitals.last), (257, Some(Duration::from_millis(256))));
        assert_eq!((vitals.p50, vitals.p99), (Some(Duration::from_millis(129)), Some(Duration::from_millis(254))));
        assert_eq!(vitals.slowest, Duration::from_secs(9));
    }
}
