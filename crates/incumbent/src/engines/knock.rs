//! Opening an engine: what is wrong for good is said at once, what may pass is not waited for.

use std::time::Duration;

use tokio::time::timeout;

use crate::engine::{Error, Kind};

/// Whoever does not say by then whether it is there will be asked again by the first call.
const KNOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// What opening an engine comes to once it was knocked at. Whoever will never let us in is an error; whoever does not answer now may do so later.
pub(super) async fn knocked(knock: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    match timeout(KNOCK_TIMEOUT, knock).await {
        Ok(Err(why)) if why.kind() == Kind::Misconfigured => Err(why),
        Ok(Err(why)) => {
            // No warning: whoever asks next is told, and only who contends goes on trying.
            tracing::info!(%why, "the engine does not answer yet");
            Ok(())
        }
        Ok(Ok(())) | Err(_) => Ok(()),
    }
}
