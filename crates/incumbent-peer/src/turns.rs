//! Handshakes by turns, on a thread that has more to do.
//!
//! **Problem.** A step of a handshake computes for long, and a thousand strangers may send the bytes for one at the same moment: their tasks are then polled one after the other, and nobody else is. **Insight.** A task
//! that waits for its turn costs nothing. So the one whose step was too much keeps its turn until all others that have something to do had theirs.
//!
//! Left out: shorter steps. What one of them computes nobody can interrupt.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, Notify};
use tokio::task::yield_now;

/// The turns of those who share a thread.
#[derive(Debug)]
pub struct Turns {
    at_once_max: Duration,
    /// How long steps have taken since others were let through. Whoever has it in hand has the turn; the others wait in the order in which they came.
    taken: Mutex<Duration>,
}

impl Turns {
    /// After steps that took so long, whatever else there is to do is done.
    pub fn new(at_once_max: Duration) -> Turns {
        Turns { at_once_max, taken: Mutex::new(Duration::ZERO) }
    }

    /// Polls `future` to its end, each time when it is its turn.
    pub async fn take<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        // It may be rung while somebody is let through, and must not be missed.
        let bell = Arc::new(Bell(Notify::new()));
        let waker = Waker::from(Arc::clone(&bell));
        loop {
            let mut taken = self.taken.lock().await;
            let began = Instant::now();
            let step = future.as_mut().poll(&mut Context::from_waker(&waker));
            *taken += began.elapsed();
            if *taken >= self.at_once_max {
                yield_now().await;
                *taken = Duration::ZERO;
            }
            drop(taken);
            match step {
                Poll::Ready(output) => return output,
                Poll::Pending => bell.0.notified().await,
            }
        }
    }
}

/// Says that another step can be made.
struct Bell(Notify);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Mutex as Shared;

    use super::*;

    /// What happened, in order: a step of a handshake, or somebody else's work.
    type Diary = Arc<Shared<Vec<&'static str>>>;

    fn note(diary: &Diary, what: &'static str) {
        diary.lock().expect("nobody panics").push(what);
    }

    /// A handshake of three steps, each of which can be made at once.
    async fn handshake(diary: Diary) {
        let mut steps = 0;
        poll_fn(|cx| {
            note(&diary, "step");
            steps += 1;
            if steps == 3 {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    async fn diary_of(turns: Turns) -> Vec<&'static str> {
        let (turns, diary) = (Arc::new(turns), Diary::default());
        let others = Arc::clone(&diary);
        let other = tokio::spawn(async move {
            loop {
                note(&others, "other");
                yield_now().await;
            }
        });
        let hands: Vec<_> = (0..20)
            .map(|_| {
                let (turns, diary) = (Arc::clone(&turns), Arc::clone(&diary));
                tokio::spawn(async move { turns.take(handshake(diary)).await })
            })
            .collect();
        for hand in hands {
            hand.await.expect("no panic");
        }
        other.abort();
        let diary = diary.lock().expect("nobody panics");
        assert_eq!(diary.iter().filter(|it| **it == "step").count(), 60);
        diary.clone()
    }

    #[tokio::test]
    async fn between_two_steps_of_handshakes_others_have_their_turn() {
        let diary = diary_of(Turns::new(Duration::ZERO)).await;
        assert!(diary.windows(2).all(|it| it != ["step", "step"]), "{diary:?}");
    }

    #[tokio::test]
    async fn steps_that_take_little_are_made_together() {
        let diary = diary_of(Turns::new(Duration::from_secs(3600))).await;
        assert_eq!(diary[1..21], ["step"; 20]);
    }

    #[tokio::test]
    async fn whoever_gives_up_leaves_the_turn_to_the_next() {
        let turns = Turns::new(Duration::ZERO);
        let gives_up = tokio::time::timeout(Duration::from_millis(1), turns.take(std::future::pending::<()>()));
        assert!(gives_up.await.is_err());
        turns.take(handshake(Diary::default())).await;
    }
}
