//! Where people come in: connections are taken, counted, given their answers, and ended in good order.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::AbortHandle;

use super::Desk;

/// Connections at a time; more wait to be taken.
const CONNECTIONS_MAX: usize = 256;
/// A client that has not sent a whole head by then is cut off.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// A head that is longer is answered with 431.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// When it is closed, answers under way have this long to arrive.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);
/// An accept fails when file descriptors run out; some are free again soon.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// One way in.
pub(super) struct Door {
    accepting: AbortHandle,
    closing: watch::Sender<bool>,
    /// Every connection holds a sender of it.
    idle: mpsc::Receiver<Infallible>,
}

/// From where a door can be reached.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum Reach {
    /// Only by this user's processes.
    User,
    /// By whatever runs on this machine: also by a page in a browser.
    Machine,
    /// By others, in a network that is protected.
    Network,
}

/// What all connections of a door have.
struct Guests {
    desk: Arc<Desk>,
    reach: Reach,
    places: Arc<Semaphore>,
    closing: watch::Receiver<bool>,
    busy: mpsc::Sender<Infallible>,
}

impl Door {
    pub(super) fn on_socket(listener: UnixListener, desk: Arc<Desk>) -> Door {
        Door::open(desk, Reach::User, |guests| async move {
            loop {
                let place = guests.place().await;
                match listener.accept().await {
                    Ok((stream, _)) => guests.serve(stream, place),
                    Err(_) => tokio::time::sleep(ACCEPT_AGAIN_AFTER).await,
                }
            }
        })
    }

    pub(super) fn on_port(listener: TcpListener, reach: Reach, desk: Arc<Desk>) -> Door {
        Door::open(desk, reach, |guests| async move {
            loop {
                let place = guests.place().await;
                match listener.accept().await {
                    Ok((stream, _)) => {
                        // Small answers must not wait for more to come; without it they are late, not wrong.
                        let _ = stream.set_nodelay(true);
                        guests.serve(stream, place);
                    }
                    Err(_) => tokio::time::sleep(ACCEPT_AGAIN_AFTER).await,
                }
            }
        })
    }

    fn open<F: Future<Output = Infallible> + Send + 'static>(
        desk: Arc<Desk>,
        reach: Reach,
        accept: impl FnOnce(Guests) -> F,
    ) -> Door {
        let (closing, closed) = watch::channel(false);
        let (busy, idle) = mpsc::channel(1);
        let guests = Guests { desk, reach, places: Arc::new(Semaphore::new(CONNECTIONS_MAX)), closing: closed, busy };
        Door { accepting: tokio::spawn(accept(guests)).abort_handle(), closing, idle }
    }

    /// Takes nobody more in, and waits for those who are in.
    pub(super) async fn close(mut self) {
        self.accepting.abort();
        self.closing.send_replace(true);
        // Nothing is ever sent: it ends when the last sender is gone, and the accepting task's own goes with the abort.
        let _ = tokio::time::timeout(CLOSE_WITHIN, self.idle.recv()).await;
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Guests {
    async fn place(&self) -> tokio::sync::OwnedSemaphorePermit {
        Arc::clone(&self.places).acquire_owned().await.expect("never closed")
    }

    fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, place: tokio::sync::OwnedSemaphorePermit) {
        let (desk, reach, mut closing, busy) = (Arc::clone(&self.desk), self.reach, self.closing.clone(), self.busy.clone());
        let answering = closing.clone();
        let answer = service_fn(move |request: Request<Incoming>| {
            let (desk, closing) = (Arc::clone(&desk), answering.clone());
            async move { Ok::<_, Infallible>(desk.answer(request, reach, closing).await) }
        });
        tokio::spawn(async move {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).max_buf_size(HEAD_BYTES_MAX);
            let mut served = pin!(http.serve_connection(TokioIo::new(stream), answer));
            // How a connection ends is the client's business.
            tokio::select! {
                _ = &mut served => {}
                () = closed(&mut closing) => {
                    served.as_mut().graceful_shutdown();
                    let _ = served.await;
                }
            }
            drop((place, busy));
        });
    }
}

/// Waits until the door is being closed.
pub(super) async fn closed(closing: &mut watch::Receiver<bool>) {
    // An error is as good: the door is gone.
    let _ = closing.wait_for(|it| *it).await;
}
