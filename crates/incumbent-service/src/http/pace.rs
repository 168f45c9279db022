//! How fast a connection is answered on which nobody has said who it is: what strangers may ask costs little, and is asked of the one thread that serves everybody by HTTP.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::limits::{STRANGER_ANSWERED_AT_ONCE, STRANGER_ANSWERED_EVERY};

/// The pace of one connection.
#[derive(Debug)]
pub(super) struct Pace(Mutex<Instant>);

impl Pace {
    pub(super) fn new() -> Pace {
        Pace(Mutex::new(Instant::now()))
    }

    /// Until the next request of a stranger has its turn. They come one after the other, so that no more than one ever waits.
    pub(super) async fn keep(&self) {
        sleep_until(self.turn()).await;
    }

    fn turn(&self) -> Instant {
        const AT_ONCE: Duration = STRANGER_ANSWERED_EVERY.saturating_mul(STRANGER_ANSWERED_AT_ONCE);
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        *idle = (*idle).max(now) + STRANGER_ANSWERED_EVERY;
        (*idle).checked_sub(AT_ONCE).map_or(now, |it| it.max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn some_are_answered_at_once_and_then_one_at_a_time() {
        let (pace, begun) = (Pace::new(), Instant::now());
        for _ in 0..STRANGER_ANSWERED_AT_ONCE {
            pace.keep().await;
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        for _ in 0..3 {
            pace.keep().await;
        }
        let passed = begun.elapsed();
        // A timer is late by a millisecond at most.
        assert!(passed >= 3 * STRANGER_ANSWERED_EVERY && passed < 4 * STRANGER_ANSWERED_EVERY, "{passed:?}");
        tokio::time::sleep(STRANGER_ANSWERED_EVERY * STRANGER_ANSWERED_AT_ONCE).await;
        let rested = Instant::now();
        pace.keep().await;
        assert_eq!(rested.elapsed(), Duration::ZERO, "whoever asks now and then does not wait");
    }
}
