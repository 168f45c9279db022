//! How fast somebody comes, and who counts as one: for doors that decide before they read a byte. Time is an argument.

use std::net::IpAddr;
use std::time::Duration;

use incumbent_protocol::time::Instant;

/// So many at once, and then one in each such time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Pace {
    /// So many.
    pub burst: u32,
    /// Such a time.
    pub every: Duration,
}

/// Whether a pace is kept: when it would be kept again if nothing more came.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Meter(Instant);

impl Meter {
    /// Nothing has come.
    pub const IDLE: Meter = Meter(Instant::ZERO);

    /// Whether one more is too fast.
    pub fn is_full(self, now: Instant, pace: Pace) -> bool {
        self.0 > now + pace.every * (pace.burst - 1)
    }

    /// One has come. However many come too fast, one more may come a step of the pace later: nobody runs up a debt for those who come from the same place.
    pub fn count(&mut self, now: Instant, pace: Pace) {
        self.0 = (self.0.max(now) + pace.every).min(now + pace.every * pace.burst);
    }

    /// Whether it may be forgotten.
    pub fn is_idle(self, now: Instant) -> bool {
        self.0 <= now
    }
}

/// What one who has an address has most likely as a whole.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(it) => IpAddr::V4(it),
        IpAddr::V6(it) => IpAddr::V6((u128::from(it) >> 64 << 64).into()),
    }
}
