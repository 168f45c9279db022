//! Where clients come in: one port, on which the first bytes say whether it is our own stream; else it is HTTP.
//!
//! A client that says nothing is cut off in time, and more of them than [`CONNECTIONS_MAX`] are not let in: those who are in are served.

use std::sync::Arc;
use std::time::Duration;

use incumbent_client::frame;
use incumbent_client::serve::{Bounds, Closed, serve};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::config::CONNECTIONS_MAX;
use super::counter::Counter;
use crate::http::{Annex, Everybody};

/// After a failed accept, which is a lack of something on this machine, so long until the next.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Lets clients in until it is dropped.
pub(super) async fn keep(listener: TcpListener, counter: Counter, annex: Arc<Annex>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let (connection, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a client cannot be let in");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
            tracing::warn!(%from, max = CONNECTIONS_MAX, "too many clients: this one is sent away");
            continue;
        };
        let (counter, annex) = (counter.clone(), Arc::clone(&annex));
        tokio::spawn(async move {
            let closed = receive(connection, &counter, &annex).await;
            tracing::debug!(%from, ?closed, "a client's connection has ended");
            drop(place);
        });
    }
}

async fn receive(mut connection: TcpStream, counter: &Counter, annex: &Annex) -> Closed {
    let bounds = Bounds::default();
    // What is sent is sent whole: there is nothing to wait for.
    if let Err(error) = connection.set_nodelay(true) {
        return Closed::Broken(error);
    }
    let mut begun = Vec::new();
    let ours = timeout(bounds.handshake, async {
        loop {
            if let Some(ours) = frame::is_ours(&begun) {
                return Ok(ours);
            }
            match connection.read_buf(&mut begun).await {
                Ok(0) => return Err(Closed::ByClient),
                Ok(_) => {}
                Err(error) => return Err(Closed::Broken(error)),
            }
        }
    });
    match ours.await {
        Ok(Ok(true)) => serve(connection, &begun, counter, &bounds).await,
        Ok(Ok(false)) => {
            annex.serve(connection, begun, Arc::new(Everybody)).await;
            Closed::ByClient
        }
        Ok(Err(closed)) => closed,
        Err(_) => Closed::Handshake,
    }
}
