//! A thread for HTTP alone. JSON of some megabytes takes some milliseconds, and on the node's own thread the heartbeats of a leader would wait for it: whoever asks for much makes only others who ask by HTTP wait.
//!
//! Connections stay registered where they were accepted; what is done with their bytes is done here.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::thread;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::border::Gate;
use super::{Desk, serve_http};
use crate::server::Handle;

/// The thread, until this is dropped: then all that is done there ends.
pub struct Annex {
    desk: Arc<Desk>,
    runtime: runtime::Handle,
    _life: oneshot::Sender<Infallible>,
}

impl Annex {
    /// Opens it for this node.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn open(handle: Handle) -> io::Result<Annex> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let here = runtime.handle().clone();
        let (life, lives) = oneshot::channel();
        let body = move || drop(runtime.block_on(lives));
        thread::Builder::new().name("incumbent-http".to_owned()).spawn(body)?;
        Ok(Annex { desk: Desk::of(handle), runtime: here, _life: life })
    }

    /// [`serve_http`] on that thread. Dropped before its end, the connection is closed.
    pub async fn serve<C>(&self, connection: C, begun: Vec<u8>, gate: Arc<dyn Gate>)
    where
        C: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let mut serving = Serving(self.runtime.spawn(serve_http(connection, begun, Arc::clone(&self.desk), gate)));
        // How a connection ends is the client's business.
        let _ = (&mut serving.0).await;
    }
}

/// Ends when nobody waits for it.
struct Serving(JoinHandle<()>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}
