//! Cluster time: nanoseconds that the log counts. An entry carries it, so every replica sees the same time at the same entry.
//!
//! A leader begins with the last time in its log and adds what its own clock has counted since, so time never goes back, and a failover can lengthen a
//! lease but not shorten it. Wall time goes beside it, for people: nothing is decided by it.

use core::fmt;

/// A point in cluster time.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

/// By how much clocks' rates may differ, in millionths. A session is kept by so much longer than it asked for.
pub const DRIFT_PPM: u64 = 500;

impl Time {
    /// Where the log begins.
    pub const ZERO: Time = Time(0);
    /// A time that never comes.
    pub const NEVER: Time = Time(u64::MAX);

    /// `nanos` nanoseconds after [`Time::ZERO`].
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// `ms` milliseconds after [`Time::ZERO`].
    pub const fn from_millis(ms: u64) -> Time {
        Time(ms.saturating_mul(1_000_000))
    }

    /// Nanoseconds since [`Time::ZERO`].
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// So many milliseconds later; [`Time::NEVER`] if that is beyond the end of time.
    #[must_use]
    pub const fn after_ms(self, ms: u64) -> Time {
        Time(self.0.saturating_add(ms.saturating_mul(1_000_000)))
    }

    /// When a lease of `ttl_ms` that begins now is over on the slowest clock there may be. Rounded up: never early.
    #[must_use]
    pub const fn deadline(self, ttl_ms: u64) -> Time {
        let ttl = ttl_ms.saturating_mul(1_000_000);
        // Divided first: a long ttl must not overflow.
        let drift = (ttl / 1_000_000).saturating_add(1).saturating_mul(DRIFT_PPM);
        Time(self.0.saturating_add(ttl).saturating_add(drift))
    }

    /// Whole milliseconds from `self` until `later`, rounded up; 0 if it is over.
    pub const fn ms_until(self, later: Time) -> u64 {
        later.0.saturating_sub(self.0).div_ceil(1_000_000)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000_000_000, self.0 / 1_000_000 % 1_000)
    }
}

/// When an entry was stamped, by the leader that made it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Stamp {
    /// Cluster time. Decides.
    pub at: Time,
    /// Milliseconds since 1970 on the leader's wall clock. For people and for dialects that show times; decides nothing.
    pub wall_ms: u64,
}

impl Stamp {
    /// A stamp without a wall clock.
    pub const fn at(at: Time) -> Stamp {
        Stamp { at, wall_ms: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_never_early_and_never_overflows() {
        for ttl_ms in [1, 99, 100, 1_000, 10_000, 86_400_000] {
            let least = ttl_ms * 1_000_000 + (ttl_ms * 1_000_000 * DRIFT_PPM).div_ceil(1_000_000);
            let deadline = Time::from_nanos(7).deadline(ttl_ms).as_nanos() - 7;
            assert!((least..=least + DRIFT_PPM).contains(&deadline), "{ttl_ms}: {deadline} for {least}");
        }
        assert_eq!(Time::from_nanos(7).deadline(u64::MAX), Time::NEVER);
        assert_eq!(Time::NEVER.after_ms(1), Time::NEVER);
        assert_eq!(Time::NEVER.ms_until(Time::ZERO), 0);
        assert_eq!(Time::ZERO.ms_until(Time::from_nanos(1)), 1);
    }
}
