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
    /// One that sleeps as a machine does, in a test.
    #[cfg(test)]
    Sleeper(&'static Sleeper),
}

impl Clock {
    /// Now.
    pub fn now(&self) -> Instant {
        match self {
            Clock::Boottime => now(),
            Clock::Tokio(epoch) => Instant::ZERO + epoch.elapsed(),
            #[cfg(test)]
            Clock::Sleeper(sleeper) => sleeper.now(),
        }
    }
}

/// Now, on the kernel's clock.
pub fn now() -> Instant {
    let time = clock_gettime(ClockId::Boottime);
    // The kernel's seconds since boot are never negative.
    Instant::from_nanos(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}

/// A boot clock beside tokio's time, which stands still while it jumps: a machine that is suspended and goes on.
#[cfg(test)]
#[derive(Debug)]
pub struct Sleeper {
    epoch: tokio::time::Instant,
    slept_nanos: std::sync::atomic::AtomicU64,
}

#[cfg(test)]
impl Sleeper {
    /// One that has not slept yet.
    pub(crate) fn wake() -> &'static Sleeper {
        Box::leak(Box::new(Sleeper { epoch: tokio::time::Instant::now(), slept_nanos: Default::default() }))
    }

    /// The machine has slept for so long.
    pub(crate) fn suspend(&self, time: std::time::Duration) {
        let nanos = u64::try_from(time.as_nanos()).expect("a test is over before");
        self.slept_nanos.fetch_add(nanos, std::sync::atomic::Ordering::Relaxed);
    }

    fn now(&self) -> Instant {
        let slept = std::time::Duration::from_nanos(self.slept_nanos.load(std::sync::atomic::Ordering::Relaxed));
        Instant::ZERO + self.epoch.elapsed() + slept
    }
}

#[cfg(test)]
impl PartialEq for Sleeper {
    fn eq(&self, other: &Sleeper) -> bool {
        std::ptr::eq(self, other)
    }
}

#[cfg(test)]
impl Eq for Sleeper {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_forward() {
        let first = now();
        assert!(now() >= first && first > Instant::ZERO);
    }
}
