//! A node's own time: nanoseconds on a clock that never stops and is never set.
//!
//! The machines only ever compare instants of one node. Two nodes' instants mean nothing to each other, and
//! neither does the absolute value: a driver may start at zero or at a million.

use core::fmt;
use core::ops::{Add, Sub};
use core::time::Duration;

/// A point on one node's own clock (on Linux: `CLOCK_BOOTTIME`, which also counts while the machine sleeps).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The first instant of the clock.
    pub const ZERO: Instant = Instant(0);
    /// An instant that never comes.
    pub const NEVER: Instant = Instant(u64::MAX);

    /// The instant `nanos` nanoseconds after [`Instant::ZERO`].
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since [`Instant::ZERO`].
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The instant `span` earlier, or [`Instant::ZERO`] if there is none.
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(span)))
    }
}

/// Saturates at [`Instant::NEVER`]: a deadline beyond the end of time is one that never comes.
impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, span: Duration) -> Instant {
        Instant(self.0.saturating_add(nanos(span)))
    }
}

/// The time from `earlier` to `self`; zero if `earlier` is in fact later.
impl Sub<Instant> for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Seconds with a millisecond's precision: `1.250`.
impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000_000_000, self.0 / 1_000_000 % 1_000)
    }
}

/// A span of time as people read it: `508ms`, `1.24s`, `0s`. Three digits are as much as anybody believes, and a microsecond is as little; whole seconds stay whole.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Said(pub Duration);

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = self.0.as_nanos();
        let digits = exact.checked_ilog10().unwrap_or(0) + 1;
        let grain = 10_u128.pow(digits.saturating_sub(3).clamp(3, 9));
        let nanos = u64::try_from((exact + grain / 2) / grain * grain).unwrap_or(u64::MAX);
        match nanos {
            0 => f.write_str("0s"),
            1..1_000_000 => write!(f, "{}us", nanos / 1000),
            _ => write!(f, "{:?}", Duration::from_nanos(nanos)),
        }
    }
}

/// The whole span in nanoseconds, saturating after 584 years.
pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_said_with_three_digits() {
        for (nanos, text) in [
            (0, "0s"),
            (499, "0s"),
            (40_400, "40us"),
            (999_600, "1ms"),
            (1_234_567, "1.23ms"),
            (508_237_500, "508ms"),
            (562_500_000, "563ms"),
            (999_600_000, "1s"),
            (1_236_000_000, "1.24s"),
            (15_007_503_752, "15s"),
            (3_661_400_000_000, "3661s"),
        ] {
            assert_eq!(alloc::format!("{}", Said(Duration::from_nanos(nanos))), text);
        }
        assert!(!alloc::format!("{}", Said(Duration::MAX)).is_empty());
    }

    #[test]
    fn arithmetic_saturates_and_never_panics() {
        let late = Instant::from_nanos(u64::MAX - 1);
        assert_eq!(late + Duration::MAX, Instant::NEVER);
        assert_eq!(Instant::ZERO - late, Duration::ZERO);
        assert_eq!(Instant::ZERO.before(Duration::from_secs(1)), Instant::ZERO);
        assert_eq!(alloc::format!("{}", Instant::from_nanos(1_250_400_000)), "1.250");
    }
}
