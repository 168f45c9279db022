//! `incumbent fence proxy`: a small reverse proxy with a fence. HTTP/1.1, bodies streamed both ways, one storage, limits on everything.
//!
//! It knows no TLS and no users, so it listens on this machine only unless told otherwise. One proxy may use a store at a time: the count of what is under way
//! is its own.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::{Args, ValueEnum};
use hyper::body::Incoming;
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use incumbent::fence::directory::{Ledger, RESOURCE_LEN_MAX};
use incumbent::fence::http::{Guard, Reads};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, mpsc, watch};

use super::forward::Forwarder;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;

/// Connections of clients at a time; more wait to be taken.
const CONNECTIONS_MAX: usize = 1024;
/// A client that has not sent a whole head by then is cut off.
const HEAD_WITHIN: Duration = Duration::from_secs(15);
/// A head that is longer is answered with 431.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// When told to stop, requests under way have this long to end.
const DRAIN: Duration = Duration::from_secs(20);
/// An accept fails when file descriptors run out; some are free again soon.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Stand before an HTTP storage and refuse requests with stale tokens
///
/// A request carries the token of the leadership in the header incumbent-token. One that is smaller than the greatest seen for its resource is answered with 412 and the
/// header incumbent-seen; one without is answered with 400, unless it only reads. The resource is the first segment of the path. What was seen is kept
/// in the store, safe on disk before a request goes on. Ends in good order on SIGTERM and Ctrl-C.
#[derive(Args, Debug)]
#[command(after_help = "Example:
  incumbent fence proxy --listen 127.0.0.1:8080 --to http://127.0.0.1:9000 --store /var/lib/fence
  curl -T report.pdf -H \"incumbent-token: $INCUMBENT_TOKEN\" http://127.0.0.1:8080/reports/today")]
pub(crate) struct ProxyArguments {
    /// Where to listen; port 0 is any that is free
    #[arg(long, value_name = "HOST:PORT")]
    listen: SocketAddr,
    /// The storage, as http://HOST:PORT
    #[arg(long, value_name = "URL")]
    to: Uri,
    /// The directory that remembers what was seen; made if it is not there
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    /// Take all requests for one resource of this name
    #[arg(long, value_name = "NAME")]
    resource: Option<String>,
    /// Whether requests that only read need a token
    #[arg(long, value_name = "WHETHER", default_value = "free")]
    reads: ReadsArgument,
    /// Seconds that the storage may take to begin its answer once it has the request, and that either side may pause
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    patience: u64,
    /// Listen on other addresses than those of this machine, though without TLS and users anybody there can write
    #[arg(long)]
    unprotected: bool,
}

#[derive(Copy, Clone, ValueEnum, Debug)]
enum ReadsArgument {
    /// Anybody may read
    Free,
    /// A read needs a token, as a write does
    Token,
}

pub(super) fn run(arguments: &ProxyArguments, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let to = storage(&arguments.to)?;
    if !arguments.listen.ip().is_loopback() && !arguments.unprotected {
        return Err(Failure::Input {
            what: format!("{} can be reached from other machines, and this proxy knows neither TLS nor users", arguments.listen),
            hint: "listen on 127.0.0.1, or say --unprotected if the network itself is protected",
        });
    }
    if let Some(name) = arguments.resource.as_ref().filter(|it| it.is_empty() || it.len() > RESOURCE_LEN_MAX) {
        return Err(Failure::Input {
            what: format!("--resource {name:?} has {} bytes, and a resource has 1 to {RESOURCE_LEN_MAX}", name.len()),
            hint: "choose another name, or leave --resource out: then each first segment of a path is one",
        });
    }
    let ledger = Ledger::at(&arguments.store)
        .map_err(|why| Failure::Input { what: why.to_string(), hint: "name a directory of this user's for --store" })?;
    let _only_one = lock(&arguments.store)?;
    let mut guard = Guard::new(Arc::new(ledger)).reads(match arguments.reads {
        ReadsArgument::Free => Reads::AreFree,
        ReadsArgument::Token => Reads::NeedAToken,
    });
    if let Some(name) = arguments.resource.clone() {
        guard = guard.resource(move |_| Some(name.clone()));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|wrong| Failure::Io {
        what: format!("cannot start threads: {wrong}"),
        hint: "raise the limit on threads, and try again",
    })?;
    runtime.block_on(serve(arguments, guard, to, console))
}

/// Host and port of the storage, if that is all the URL says.
fn storage(url: &Uri) -> Result<Authority, Failure> {
    let wrong = |what: String| Failure::Input { what, hint: "write it as http://HOST:PORT, for example http://127.0.0.1:9000" };
    if url.scheme_str() != Some("http") {
        return Err(wrong(format!("{url} does not begin with http://, which is all that this proxy speaks")));
    }
    if url.path_and_query().is_some_and(|it| it.as_str() != "/") {
        return Err(wrong(format!("{url} has a path: requests keep their own")));
    }
    match url.authority() {
        // What it says of a user may be a secret, and is not printed.
        Some(authority) if authority.as_str().contains('@') => {
            Err(wrong("the URL of the storage names a user: requests bring their own credentials".to_owned()))
        }
        Some(authority) => Ok(authority.clone()),
        None => Err(wrong(format!("{url} names no host"))),
    }
}

/// Two proxies on one store would each count only what they have let through themselves.
fn lock(store: &Path) -> Result<File, Failure> {
    let path = store.join("proxy.lock");
    let open = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let file = open.map_err(|wrong| Failure::file("open", &path, &wrong))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Failure::Input {
            what: format!("another proxy uses {}", store.display()),
            hint: "one proxy is before a storage at a time: stop the other, or use another --store for another storage",
        }),
        Err(TryLockError::Error(wrong)) => Err(Failure::file("lock", &path, &wrong)),
    }
}

async fn serve(arguments: &ProxyArguments, guard: Guard, to: Authority, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let cannot_listen = |wrong: std::io::Error| Failure::Io {
        what: format!("cannot listen on {}: {wrong}", arguments.listen),
        hint: "choose an address of this machine and a port that is free",
    };
    let listener = TcpListener::bind(arguments.listen).await.map_err(cannot_listen)?;
    let address = listener.local_addr().map_err(cannot_listen)?;
    let (busy, mut idle) = mpsc::channel(1);
    let forwarder = Arc::new(Forwarder {
        guard,
        client: Client::builder(TokioExecutor::new()).build_http(),
        to,
        patience: Duration::from_secs(arguments.patience),
        busy,
        told: Mutex::new(BTreeSet::new()),
    });
    writeln!(console.out, "listening on {address} before {}, remembering in {}", forwarder.to, arguments.store.display())?;
    console.out.flush()?;
    let (stop, stopping) = watch::channel(false);
    tokio::select! {
        () = accept(&listener, &forwarder, &stopping) => {}
        () = told_to_stop()? => {}
    }
    drop(listener);
    stop.send_replace(true);
    drop(forwarder);
    // Every connection and every exchange with the storage holds a sender: when the last is gone, nothing comes.
    if tokio::time::timeout(DRAIN, idle.recv()).await.is_err() {
        eprintln!("some requests were still under way after {DRAIN:?} and are given up; they may have happened");
    }
    Ok(Exit::Done)
}

/// Waits for SIGTERM or Ctrl-C.
fn told_to_stop() -> Result<impl Future<Output = ()>, Failure> {
    let listen = |kind| {
        signal(kind).map_err(|wrong| Failure::Io {
            what: format!("cannot listen for signals: {wrong}"),
            hint: "free a file descriptor and try again",
        })
    };
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Takes connections for ever.
async fn accept(listener: &TcpListener, forwarder: &Arc<Forwarder>, stopping: &watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("never closed");
        match listener.accept().await {
            Ok((stream, _)) => {
                let connection = connection(stream, Arc::clone(forwarder), stopping.clone());
                tokio::spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_AGAIN_AFTER).await,
        }
    }
}

/// Serves one connection to its end, or to the end of the request under way once it is time to stop.
async fn connection(stream: TcpStream, forwarder: Arc<Forwarder>, mut stopping: watch::Receiver<bool>) {
    // Small answers must not wait for more to come; without it they are late, not wrong.
    let _ = stream.set_nodelay(true);
    let answer = service_fn(move |request: Request<Incoming>| {
        let forwarder = Arc::clone(&forwarder);
        async move { Ok::<_, std::convert::Infallible>(forwarder.answer(request).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).max_buf_size(HEAD_BYTES_MAX);
    let mut served = pin!(http.serve_connection(TokioIo::new(stream), answer));
    // How a connection ends is the client's business: it has had its answers, or did not want them.
    tokio::select! {
        _ = &mut served => return,
        _ = stopping.wait_for(|it| *it) => {}
    }
    served.as_mut().graceful_shutdown();
    let _ = served.await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storage_is_a_host_and_a_port() {
        assert_eq!(storage(&"http://127.0.0.1:9000".parse().unwrap()).unwrap().as_str(), "127.0.0.1:9000");
        assert_eq!(storage(&"http://storage/".parse().unwrap()).unwrap().as_str(), "storage");
        for (bad, word) in [("https://x", "http://"), ("x:1", "http://"), ("http://x/path", "has a path"), ("/x", "http://")] {
            let wrong = storage(&bad.parse().unwrap()).unwrap_err();
            assert!(format!("{wrong:?}").contains(word), "{bad}: {wrong:?}");
        }
    }
}
