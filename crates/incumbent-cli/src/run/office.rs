//! What others may ask of the process that contends: a little HTTP, on a Unix socket for the command that it runs.
//!
//! It answers from memory, and what it says of the leadership is never true past its deadline. A wish is passed on to whoever serves the term, who stops the work first.

use std::convert::Infallible;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use incumbent::leadership::Watcher;
use incumbent::{Election, Identity, State};
use serde_json::json;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::failure::Failure;

/// Longer ones are no values, and no names.
const BODY_MAX: usize = 64 * 1024;
/// A client that has not sent its request by then never will.
const HEAD_WITHIN: Duration = Duration::from_secs(10);

/// What somebody wants of the leader.
#[derive(Debug)]
pub(crate) enum Asked {
    /// Stop the work, and give the seat back.
    Resign,
    /// The same, to this candidate.
    HandOver(String),
    /// Publish this; the answer is `None`, or why not.
    Publish(String, oneshot::Sender<Option<String>>),
}

/// The office: open as long as this lives.
pub(crate) struct Office {
    desk: Arc<Desk>,
    directory: PathBuf,
    door: AbortHandle,
}

/// What is known at present.
struct Desk {
    election: String,
    term: Mutex<Option<Term>>,
}

#[derive(Clone)]
struct Term {
    identity: Identity,
    watcher: Watcher,
    asked: mpsc::UnboundedSender<Asked>,
}

impl Office {
    /// Opens the socket, in a directory that only this user may enter.
    pub(crate) fn open(election: &Election) -> Result<Office, Failure> {
        let directory = runtime_directory();
        let cannot = |why: std::io::Error| Failure::Io {
            what: format!("cannot open a socket in {}: {why}", directory.display()),
            hint: "set XDG_RUNTIME_DIR or TMPDIR to a directory of this user's, with a short path",
        };
        let mut builder = std::fs::DirBuilder::new();
        builder.mode(0o700).recursive(true).create(&directory).map_err(cannot)?;
        let path = directory.join("socket");
        // Left behind by a process of this number before the last boot, or by one that was killed.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).map_err(cannot)?;
        let desk = Arc::new(Desk { election: election.name().to_string(), term: Mutex::new(None) });
        let door = tokio::spawn(accept(listener, Arc::clone(&desk))).abort_handle();
        Ok(Office { desk, directory, door })
    }

    /// Where to ask.
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }

    /// A term has begun; what is asked of it comes here.
    pub(crate) fn begin(&self, identity: Identity, watcher: Watcher) -> mpsc::UnboundedReceiver<Asked> {
        let (asked, receiver) = mpsc::unbounded_channel();
        *self.desk.term() = Some(Term { identity, watcher, asked });
        receiver
    }

    /// It has ended.
    pub(crate) fn end(&self) {
        *self.desk.term() = None;
    }
}

impl Drop for Office {
    fn drop(&mut self) {
        self.door.abort();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Desk {
    fn term(&self) -> std::sync::MutexGuard<'_, Option<Term>> {
        self.term.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let term = self.term().clone();
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/status") => self.status(term.as_ref()),
            (&Method::GET, "/remaining") => match term.as_ref().map(|it| it.watcher.check()) {
                Some(Ok(left)) => Answer::text(StatusCode::OK, left.as_millis().to_string()),
                Some(Err(_)) | None => Answer::text(StatusCode::OK, "0"),
            },
            (&Method::POST, "/resign") => term.map_or_else(Answer::not_leading, |it| it.pass(Asked::Resign)),
            (&Method::POST, "/handover") => {
                let Some(term) = term else { return Answer::not_leading() };
                match body(request).await {
                    Some(to) if !to.trim().is_empty() => term.pass(Asked::HandOver(to.trim().to_owned())),
                    Some(_) | None => Answer::text(StatusCode::BAD_REQUEST, "say to whom, in the body: a candidate's name"),
                }
            }
            (&Method::PUT, "/value") => {
                let Some(term) = term else { return Answer::not_leading() };
                let Some(value) = body(request).await else {
                    return Answer::text(StatusCode::BAD_REQUEST, "the value must be text of at most 64 KiB");
                };
                let (answer, answered) = oneshot::channel();
                let _ = term.asked.send(Asked::Publish(value, answer));
                match answered.await {
                    Ok(None) => Answer::text(StatusCode::OK, "published"),
                    Ok(Some(why)) => Answer::text(StatusCode::BAD_GATEWAY, why),
                    Err(_) => Answer::not_leading(),
                }
            }
            (_, _) => Answer::text(
                StatusCode::NOT_FOUND,
                "ask GET /status, GET /remaining, POST /resign, POST /handover (body: a candidate's name) or PUT /value (body: the value)",
            ),
        }
    }

    fn status(&self, term: Option<&Term>) -> Answer {
        let status = match term {
            Some(term) => {
                let state = match term.watcher.state() {
                    State::Held => "held",
                    State::Jeopardy => "jeopardy",
                    State::Stopping(_) => "stopping",
                    State::Lost(_) => "lost",
                };
                let left = term.watcher.check().map_or(0, |it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX));
                json!({
                    "election": self.election,
                    "leading": left > 0,
                    "state": state,
                    "identity": term.identity.as_str(),
                    "token": term.watcher.token().get(),
                    "remaining_ms": left,
                })
            }
            None => json!({ "election": self.election, "leading": false, "state": "standby" }),
        };
        Answer::json(status.to_string())
    }
}

impl Term {
    fn pass(&self, asked: Asked) -> Answer {
        match self.asked.send(asked) {
            Ok(()) => Answer::text(StatusCode::ACCEPTED, "the work is told to stop; the seat is given back when it has"),
            Err(_) => Answer::not_leading(),
        }
    }
}

/// An answer: its text ends with a line break, for people at a terminal.
struct Answer {
    status: StatusCode,
    kind: &'static str,
    text: String,
}

impl Answer {
    fn text(status: StatusCode, text: impl Into<String>) -> Answer {
        Answer { status, kind: "text/plain; charset=utf-8", text: text.into() + "\n" }
    }

    fn json(text: String) -> Answer {
        Answer { status: StatusCode::OK, kind: "application/json", text: text + "\n" }
    }

    fn not_leading() -> Answer {
        Answer::text(StatusCode::CONFLICT, "this process does not lead")
    }
}

async fn body(request: Request<Incoming>) -> Option<String> {
    let body = Limited::new(request.into_body(), BODY_MAX).collect().await.ok()?;
    String::from_utf8(body.to_bytes().to_vec()).ok()
}

async fn accept(listener: UnixListener, desk: Arc<Desk>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, most likely: it passes.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let desk = Arc::clone(&desk);
        let answer = service_fn(move |request| {
            let desk = Arc::clone(&desk);
            async move {
                let Answer { status, kind, text } = desk.answer(request).await;
                let mut response = Response::new(Full::new(Bytes::from(text)));
                *response.status_mut() = status;
                response.headers_mut().insert(hyper::header::CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
                Ok::<_, Infallible>(response)
            }
        });
        tokio::spawn(async move {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
            // How a connection ends is the client's business.
            let _ = http.serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

/// A short path of its own: the name of a socket has at most 107 letters.
fn runtime_directory() -> PathBuf {
    let name = format!("incumbent-{}", std::process::id());
    let usual = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|it| it.is_absolute() && it.is_dir());
    let base = usual.or_else(|| {
        let run = Path::new("/run");
        (rustix::process::geteuid().is_root() && run.is_dir()).then(|| run.to_owned())
    });
    base.unwrap_or_else(std::env::temp_dir).join(name)
}
