//! This machine's own clock: `CLOCK_BOOTTIME`, as the library's leaderships read it, so that their deadlines mean the same here.

use incumbent_protocol::time::Instant;
use rustix::time::{ClockId, clock_gettime};

/// Now.
pub fn now() -> Instant {
    let time = clock_gettime(ClockId::Boottime);
    // The kernel's seconds since boot are never negative.
    Instant::from_nanos(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}
