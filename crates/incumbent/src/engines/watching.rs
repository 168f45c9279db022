//! Hints from whoever waits for the next change. The first error is the last item.

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tokio::sync::watch;

use crate::engine::Error;

/// One that waits for changes.
pub(super) trait Watching: Send + 'static {
    /// Waits for the next.
    fn change(&mut self) -> impl Future<Output = Result<(), Error>> + Send;
}

/// A hint for every change.
pub(super) fn hints_of(watching: impl Watching) -> BoxStream<'static, Result<(), Error>> {
    stream::unfold(Some(watching), |watching| async move {
        let mut watching = watching?;
        match watching.change().await {
            Ok(()) => Some((Ok(()), Some(watching))),
            Err(why) => Some((Err(why), None)),
        }
    })
    .boxed()
}

/// Of a seat or a place in line. Its sender goes when the candidate leaves the line: then there is nothing to watch until it is watched anew.
impl Watching for watch::Receiver<u64> {
    async fn change(&mut self) -> Result<(), Error> {
        self.changed().await.map_err(|_| Error::refused("no longer in line"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_change_is_a_hint_and_the_first_error_is_the_last_item() {
        let (sender, receiver) = watch::channel(0);
        let mut hints = hints_of(receiver);
        assert!(futures_util::poll!(hints.next()).is_pending());
        sender.send_replace(1);
        assert!(matches!(hints.next().await, Some(Ok(()))));
        drop(sender);
        assert!(matches!(hints.next().await, Some(Err(_))));
        assert!(hints.next().await.is_none());
    }
}
