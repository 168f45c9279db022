//! What the test servers of foreign APIs share: a listener on a free loopback port in a thread of its own, that can be paused, stopped
//! and started again, and a count of what it was asked.
//!
//! A pause is what SIGSTOP is to a process: the kernel still takes connections, nobody answers, and clocks go on. A stop cuts every
//! connection. What a server remembers lives in its [`Site`] and outlives both.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use http_body_util::{BodyExt, Full, Limited, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Incoming};
use hyper::header::HeaderMap;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use crate::certificates::{Clients, Tls};
use crate::server::Requests;

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;
pub(crate) type Reply = Response<Body>;

/// Longer requests are refused: the largest value that either of the real servers takes is about half of it.
const REQUEST_BYTES_MAX: usize = 3 << 20;

/// A request, read to its end.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    /// As it was sent: percent signs are not decoded.
    pub(crate) path: String,
    /// As it was sent, without the question mark.
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Ask {
    /// The first parameter of this name, decoded; an empty text for one without a value (`?raw`).
    pub(crate) fn parameter(&self, name: &str) -> Option<String> {
        form_urlencoded::parse(self.query.as_bytes()).find(|(it, _)| it == name).map(|(_, value)| value.into_owned())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.parameter(name).is_some()
    }

    /// A header's value, if it is there and text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// A whole body.
pub(crate) fn whole(body: impl Into<Bytes>) -> Body {
    Full::new(body.into()).boxed_unsync()
}

/// What is served: the API and the memory behind it.
pub(crate) trait Site: Send + Sync + 'static {
    /// The word under which a request is counted.
    fn verb(&self, ask: &Ask) -> String;

    /// Answers a request.
    fn answer(&self, ask: Ask) -> impl Future<Output = Reply> + Send;

    /// What the server does of its own accord, from each start until the stop.
    fn housekeeping(&self) -> impl Future<Output = ()> + Send;
}

/// What a token allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// To read.
    Read,
    /// To read and write.
    Write,
}

type Tally = Arc<Mutex<BTreeMap<String, u64>>>;

/// A server in its thread.
pub(crate) struct Serving<S: Site> {
    site: Arc<S>,
    address: SocketAddr,
    /// None for connections in the clear.
    acceptor: Option<TlsAcceptor>,
    tally: Tally,
    running: Mutex<Option<Running>>,
    /// The thread stands still until this is dropped.
    pause: Mutex<Option<mpsc::Sender<()>>>,
}

struct Running {
    orders: UnboundedSender<Order>,
    thread: JoinHandle<()>,
}

/// What the thread is told while it runs. To stop it, the sender is dropped.
enum Order {
    Pause { paused: mpsc::Sender<()>, until_gone: mpsc::Receiver<()> },
}

impl<S: Site> Serving<S> {
    /// Serves on a free port.
    pub(crate) fn start(site: S, tls: Option<&Tls>) -> Result<Self, String> {
        let acceptor = tls.map(acceptor_for).transpose()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|wrong| format!("no free port: {wrong}"))?;
        let address = listener.local_addr().map_err(|wrong| wrong.to_string())?;
        let (running, pause) = (Mutex::default(), Mutex::default());
        let serving = Self { site: Arc::new(site), address, acceptor, tally: Arc::default(), running, pause };
        serving.run(listener)?;
        Ok(serving)
    }

    pub(crate) fn site(&self) -> &S {
        &self.site
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn requests(&self) -> Requests {
        locked(&self.tally).clone().into_iter().collect()
    }

    /// Cuts every connection and gives up the port. Does nothing to a stopped server.
    pub(crate) fn stop(&self) {
        self.resume();
        if let Some(Running { orders, thread }) = locked(&self.running).take() {
            drop(orders);
            // A panic of the thread has been printed already, and must not hide the test's own.
            let _ = thread.join();
        }
    }

    /// Serves on the same port again, and counts requests from 0. Does nothing to a running server.
    pub(crate) fn start_again(&self) -> Result<(), String> {
        if locked(&self.running).is_some() {
            return Ok(());
        }
        locked(&self.tally).clear();
        self.run(TcpListener::bind(self.address).map_err(|wrong| format!("{} is taken: {wrong}", self.address))?)
    }

    /// Returns when the thread stands still. Does nothing to a paused or a stopped server.
    pub(crate) fn pause(&self) {
        let mut pause = locked(&self.pause);
        if let Some(running) = &*locked(&self.running)
            && pause.is_none()
        {
            let (until_dropped, until_gone) = mpsc::channel();
            let (paused, stands_still) = mpsc::channel();
            if running.orders.send(Order::Pause { paused, until_gone }).is_ok() {
                // Fails only if the thread is gone, and then nothing is answered either.
                let _ = stands_still.recv();
                *pause = Some(until_dropped);
            }
        }
    }

    /// Lets the thread go on.
    pub(crate) fn resume(&self) {
        locked(&self.pause).take();
    }

    fn run(&self, listener: TcpListener) -> Result<(), String> {
        let failed = |wrong: io::Error| format!("cannot serve: {wrong}");
        listener.set_nonblocking(true).map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (orders, inbox) = unbounded_channel();
        let (site, tally, acceptor) = (self.site.clone(), self.tally.clone(), self.acceptor.clone());
        let thread = thread::Builder::new().name(format!("testbed-{}", self.address.port())).spawn(move || {
            runtime.block_on(accept(site, tally, acceptor, listener, inbox));
            // With the runtime go the connections.
        });
        *locked(&self.running) = Some(Running { orders, thread: thread.map_err(failed)? });
        Ok(())
    }
}

impl<S: Site> Drop for Serving<S> {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn accept<S: Site>(
    site: Arc<S>,
    tally: Tally,
    acceptor: Option<TlsAcceptor>,
    listener: TcpListener,
    mut inbox: UnboundedReceiver<Order>,
) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("a bound listener on a running reactor");
    let keeper = site.clone();
    tokio::spawn(async move { keeper.housekeeping().await });
    loop {
        tokio::select! {
            order = inbox.recv() => match order {
                Some(Order::Pause { paused, until_gone }) => {
                    let _ = paused.send(());
                    // This blocks the only thread of the runtime, on purpose.
                    let _ = until_gone.recv();
                }
                None => return,
            },
            accepted = listener.accept() => {
                // A connection that is gone before it is accepted is the client's affair.
                let Ok((stream, _)) = accepted else { continue };
                let _ = stream.set_nodelay(true);
                let (site, tally) = (site.clone(), tally.clone());
                match &acceptor {
                    None => {
                        tokio::spawn(serve(stream, site, tally));
                    }
                    Some(acceptor) => {
                        let handshake = acceptor.accept(stream);
                        tokio::spawn(async move {
                            // A client that does not trust us says so itself.
                            if let Ok(stream) = handshake.await {
                                serve(stream, site, tally).await;
                            }
                        });
                    }
                }
            }
        }
    }
}

async fn serve<S: Site>(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, site: Arc<S>, tally: Tally) {
    let service = service_fn(move |request| {
        let (site, tally) = (site.clone(), tally.clone());
        async move { Ok::<_, Infallible>(answer(&*site, &tally, request).await) }
    });
    // An error here is a client that hung up.
    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}

async fn answer<S: Site>(site: &S, tally: &Tally, request: Request<Incoming>) -> Reply {
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, REQUEST_BYTES_MAX).collect().await else {
        let mut reply = Response::new(whole("the body is too large, or ended early"));
        *reply.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
        return reply;
    };
    let ask = Ask {
        method: head.method,
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers: head.headers,
        body: body.to_bytes(),
    };
    *locked(tally).entry(format!("{} {}", site.verb(&ask), ask.path)).or_default() += 1;
    site.answer(ask).await
}

/// Shows the server's certificate, and asks for the client's if it must.
fn acceptor_for(tls: &Tls) -> Result<TlsAcceptor, String> {
    let unreadable = |wrong: pem::Error| format!("cannot read a certificate: {wrong}");
    let chain = |path| CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(unreadable);
    // Named, because other crates in the same program may have chosen another.
    let provider = Arc::new(ring::default_provider());
    let unusable = |wrong: &dyn std::fmt::Display| format!("cannot use a certificate: {wrong}");
    let config = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|wrong| unusable(&wrong))?;
    let config = match tls.clients {
        Clients::NeedNone => config.with_no_client_auth(),
        Clients::MustShow => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(chain(&tls.authority)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            config.with_client_cert_verifier(verifier.map_err(|wrong| unusable(&wrong))?)
        }
    };
    let key = PrivateKeyDer::from_pem_file(&tls.server.key).map_err(unreadable)?;
    let mut config = config.with_single_cert(chain(&tls.server.certificate)?, key).map_err(|wrong| unusable(&wrong))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Locks, whatever became of the thread that held the lock before: its panic is the one to read.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
