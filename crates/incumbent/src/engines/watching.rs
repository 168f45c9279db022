//! Hints from whoever waits for the next change. The first error is the last item.

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};

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

#[cfg(test)]
mod tests {
    use super::*;

    struct Broken;

    impl Watching for Broken {
        async fn change(&mut self) -> Result<(), Error> {
            Err(Error::refused("broken"))
        }
    }

    #[tokio::test]
    async fn the_first_error_is_the_last_item() {
        let mut hints = hints_of(Broken);
        assert!(matches!(hints.next().await, Some(Err(_))));
        assert!(hints.next().await.is_none());
    }
}
