//! One call that all who want its answer wait for together.
//!
//! It goes on as long as anybody waits for it, and is dropped with the last of them: nothing runs on its own. Nobody joins one that takes too
//! long already: it may have been sent to a server that never answers.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use incumbent_protocol::time::Instant;

use crate::clock;

/// At most one such call under way at a time, unless it takes too long.
pub(super) struct Joint<T: Clone> {
    under_way: Mutex<Option<(WeakShared<BoxFuture<'static, T>>, Instant)>>,
}

impl<T: Clone> Default for Joint<T> {
    fn default() -> Self {
        Joint { under_way: Mutex::default() }
    }
}

impl<T: Clone> Joint<T> {
    /// The answer of the call that is under way, if that was begun within `age_max`, or else of one begun now.
    pub(super) fn join(&self, age_max: Duration, begin: impl FnOnce() -> BoxFuture<'static, T>) -> Shared<BoxFuture<'static, T>> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::now();
        let young = under_way.as_ref().filter(|(_, since)| now - *since <= age_max);
        let joined = young.and_then(|(call, _)| call.upgrade()).filter(|it| it.peek().is_none());
        joined.unwrap_or_else(|| {
            let begun = begin().shared();
            *under_way = begun.downgrade().map(|it| (it, now));
            begun
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::Notify;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn nobody_joins_one_that_takes_too_long() {
        let joint: Joint<u32> = Joint::default();
        let hung = joint.join(LONG, || std::future::pending().boxed());
        assert_eq!(joint.join(LONG, || async { 1 }.boxed()).now_or_never(), None);
        assert_eq!(joint.join(Duration::ZERO, || async { 2 }.boxed()).await, 2);
        drop(hung);
    }

    #[tokio::test]
    async fn those_who_come_while_it_is_under_way_share_it() {
        let (joint, begun, go) = (Joint::default(), Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
        let call = || {
            let (begun, go) = (begun.clone(), go.clone());
            joint.join(LONG, move || {
                async move {
                    let number = begun.fetch_add(1, Ordering::Relaxed);
                    go.notified().await;
                    number
                }
                .boxed()
            })
        };
        let (first, second) = (call(), call());
        assert_eq!(first.clone().now_or_never(), None);
        go.notify_one();
        assert_eq!(tokio::join!(first, second), (0, 0));
        go.notify_one();
        assert_eq!(call().await, 1, "an answer that has come is not given to those who come later");
    }

    #[tokio::test]
    async fn it_ends_with_the_last_who_waits() {
        let joint: Joint<u32> = Joint::default();
        let alive = Arc::new(());
        let held = alive.clone();
        let waiting = joint.join(LONG, move || {
            async move {
                let _held = held;
                std::future::pending().await
            }
            .boxed()
        });
        drop(waiting);
        assert_eq!(Arc::strong_count(&alive), 1);
        assert_eq!(joint.join(LONG, || async { 7 }.boxed()).await, 7);
    }
}
