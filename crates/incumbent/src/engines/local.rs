//! Hints for engines that live in this process: a seat, or a place in line, that somebody changes.

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tokio::sync::watch;

use crate::engine::Error;

/// A hint for every change of a seat or a place in line. Its sender goes when the candidate leaves that place, for the seat or for good: that ends the stream, which whoever wants
/// more takes for a hint and watches again.
pub(super) fn hints_of_place(place: watch::Receiver<u64>) -> BoxStream<'static, Result<(), Error>> {
    stream::unfold(place, |mut place| async move {
        place.changed().await.ok()?;
        Some((Ok(()), place))
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_change_of_a_place_is_a_hint_and_the_end_of_it_is_no_error() {
        let (sender, receiver) = watch::channel(0);
        let mut hints = hints_of_place(receiver);
        assert!(futures_util::poll!(hints.next()).is_pending());
        sender.send_replace(1);
        assert!(matches!(hints.next().await, Some(Ok(()))));
        drop(sender);
        assert!(hints.next().await.is_none());
    }
}
