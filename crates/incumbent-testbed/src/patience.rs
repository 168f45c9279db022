//! Waiting for something to become true in the world outside, where no event tells of it.

use std::time::{Duration, Instant};

/// Long, because a machine may be busy with other tests, and a test that holds never waits that long.
const PATIENCE: Duration = Duration::from_secs(30);

/// Short enough to cost a test nothing, long enough to leave the processor to those it waits for.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Waits until `condition` holds. For what another process does; in our own, wait for an event instead.
///
/// # Panics
/// If it does not come to that within half a minute, with `what` was waited for.
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain: {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}
