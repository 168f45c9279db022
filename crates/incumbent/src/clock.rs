//! This node's own clock: `CLOCK_BOOTTIME`, which also counts while the machine sleeps (`std::time::Instant` does not).
//!
//! Engines stamp what they send with it; a leadership reads it. Only instants of one machine's one boot can be compared.

use incumbent_protocol::time::Instant;
use rustix::time::{ClockId, clock_gettime};

/// Whose time a leadership keeps.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Clock {
    /// The kernel's.
    Boottime,
    /// Tokio's, which a test can pause and move; for [`memory`](crate::engines::memory) alone.
    Tokio(tokio::time::Instant),
}

impl Clock {
    /// Now.
    pub fn now(&self) -> Instant {
        match self {
            Clock::Boottime => now(),
            Clock::Tokio(epoch) => Instant::ZERO + epoch.elapsed(),
        }
    }
}

/// Now, on the kernel's clock.
pub fn now() -> Instant {
    let time = clock_gettime(ClockId::Boottime);
    // The kernel's seconds since boot are never negative.
    Instant::from_nanos(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_forward() {
        let first = now();
        assert!(now() >= first && first > Instant::ZERO);
    }
}
