//! The service by HTTP and JSON, for curl, browsers and every language that has no client of ours.
//!
//! ```text
//!   connection.rs ──► hyper ──► answers.rs ──► routes.rs: where to    border.rs: who may
//!                                      │
//!                                      ├──► bodies.rs ──► elections.rs, sessions.rs, keys.rs ──► petition.rs ──► Handle
//!                                      └──► streams.rs: Server-Sent Events            views.rs: back to JSON
//! ```
//!
//! - One table (routes.rs) finds the way, checks what comes in, and is told as the OpenAPI document: it cannot say what is not so.
//! - An answer says first whether it may have happened: 4xx no, 503 no, 504 perhaps (failure.rs).
//! - What a client may take of memory and time has a name (limits.rs), and its JSON is made on another thread than the node's (annex.rs).
//!
//! docs/http.md is the handbook. Left out: the listening socket, TLS and the number of connections, which are the door's.

mod address;
mod annex;
mod answers;
mod bodies;
mod border;
mod connection;
mod crowded;
mod elections;
mod failure;
mod figures;
mod host;
mod keys;
mod limits;
mod node;
mod once;
mod openapi;
mod pace;
mod petition;
mod routes;
mod schemas;
mod sessions;
mod shapes;
mod streams;
mod views;
mod weight;

use std::convert::Infallible;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, Semaphore};

pub use self::annex::Annex;
pub use self::border::{Denial, Everybody, Gate, Visitor};
use self::connection::Connection;
pub(crate) use self::crowded::crowded;
pub use self::host::came_by_foreign_name;
use self::pace::Pace;
use crate::server::{Handle, Pool};

/// What all connections of a node have in common.
pub struct Desk {
    handle: Handle,
    /// Places for streams of events.
    streams: Arc<Semaphore>,
    /// Room for bodies.
    bodies: Pool,
    /// Room for answers that nobody has read yet.
    answers: Pool,
}

impl Desk {
    /// The desk of this node.
    pub fn of(handle: Handle) -> Arc<Desk> {
        let streams = Arc::new(Semaphore::new(limits::STREAMS_MAX));
        let (bodies, answers) = (Pool::new(limits::BODIES_BYTES_MAX), Pool::new(limits::ANSWERS_BYTES_MAX));
        Arc::new(Desk { handle, streams, bodies, answers })
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("handle", &self.handle).finish_non_exhaustive()
    }
}

/// Answers on a connection until it ends, or the node does: those whom its gate lets in. `begun` is what was read of it already.
pub async fn serve_http<C>(connection: C, begun: Vec<u8>, desk: Arc<Desk>, gate: Arc<dyn Gate>)
where
    C: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let handle = desk.handle.clone();
    let asked = Arc::new(Notify::new());
    let asks = Arc::clone(&asked);
    let pace = Arc::new(Pace::new());
    let service = service_fn(move |request: Request<Incoming>| {
        asks.notify_one();
        let (desk, gate, pace) = (Arc::clone(&desk), Arc::clone(&gate), Arc::clone(&pace));
        async move {
            if !gate.knows_somebody() {
                pace.keep().await;
            }
            Ok::<_, Infallible>(answers::answer(desk, &*gate, request).await)
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits::HEAD_WITHIN)
        .max_buf_size(limits::HEAD_BYTES_MAX)
        .max_headers(limits::HEADERS_MAX);
    let mut served = pin!(http.serve_connection(TokioIo::new(Connection::of(begun, connection)), service));
    // Whoever has begun to ask is answered, also by a node that closes.
    let leave = async {
        asked.notified().await;
        handle.closes().await;
    };
    let mut too_late = pin!(async {
        handle.ended().await;
        tokio::time::sleep(limits::CLOSE_WITHIN).await;
    });
    // How a connection ends is the client's business.
    tokio::select! {
        biased;
        _ = &mut served => return,
        () = leave => {}
        () = &mut too_late => return,
    }
    // What is under way is answered, and the client told to go elsewhere with the next.
    served.as_mut().graceful_shutdown();
    tokio::select! {
        _ = served => {}
        () = too_late => {}
    }
}

#[cfg(test)]
mod tests;
