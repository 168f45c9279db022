//! A fence before any HTTP service, as a `tower` layer: requests carry the token in the header `incumbent-token`.
//!
//! ```
//! # use std::sync::Arc;
//! # fn serve<S: Clone>(app: S, folder: &std::path::Path) -> Result<incumbent::fence::http::Fenced<S>, incumbent::Error> {
//! use incumbent::fence::directory::Ledger;
//! use incumbent::fence::http::{FenceLayer, Guard};
//! use tower_layer::Layer;
//!
//! let guard = Guard::new(Arc::new(Ledger::at(folder)?)); // PUT /billing/7 is about the resource "billing"
//! let app = FenceLayer::new(guard).layer(app); // or axum: router.layer(FenceLayer::new(guard))
//! # Ok(app)
//! # }
//! ```
//!
//! | answer | when |
//! | --- | --- |
//! | 412, `incumbent-seen: 42` | the token is stale: 42 has been seen. Nothing was done, and nothing with this token ever will be |
//! | 400 | no token, or none that is one; no resource, or a `destination` in another |
//! | 503, `retry-after: 1` | the fence could not say, or older requests are still under way. Nothing was done |
//!
//! A request counts as under way until the service has answered or its future has been dropped, and a greater token waits for it ([`Gate`]): so there is one
//! layer before a resource, in one process. Clones of it are the same. It does not wait for the end of a response's body, which a client that is paused could put off
//! for ever: so a service has written what it writes when it returns its response.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use ::http::request::Parts;
use ::http::{Method, Request, Response, StatusCode, Uri};
use tower_layer::Layer;
use tower_service::Service;

use super::gate::{Gate, Passage};
use super::{Fence, Refusal, parse_token};
use crate::engine::Kind;

/// In a request: the token of the leadership.
pub const TOKEN: HeaderName = HeaderName::from_static("incumbent-token");
/// In a refusal: the greatest token seen.
pub const SEEN: HeaderName = HeaderName::from_static("incumbent-seen");

/// With these a request asks to be taken for one of another method, and some servers do so.
const OVERRIDES: [&str; 3] = ["x-http-method-override", "x-http-method", "x-method-override"];

/// What a request is about; `None` if it is about nothing that can be named.
type ResourceOf = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// Whether requests that only read (GET, HEAD, OPTIONS) need a token. One that brings a token has it checked in any case.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Reads {
    /// Anybody may read.
    AreFree,
    /// As writes do.
    NeedAToken,
}

/// Decides which requests may go on. The layer asks it; so may any other server.
#[derive(Clone)]
pub struct Guard {
    gate: Gate,
    resource: Arc<ResourceOf>,
    reads: Reads,
}

impl Guard {
    /// One that remembers in `fence`, takes the first segment of the path for the resource, and lets anybody read.
    pub fn new(fence: Arc<dyn Fence>) -> Guard {
        Guard::behind(Gate::new(fence))
    }

    /// The same with a gate of one's own.
    pub fn behind(gate: Gate) -> Guard {
        Guard { gate, resource: Arc::new(first_segment), reads: Reads::AreFree }
    }

    /// Says what a request is about. All that shall be guarded by one sequence of tokens is one resource.
    #[must_use]
    pub fn resource(mut self, of: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Guard {
        self.resource = Arc::new(of);
        self
    }

    /// Whether reads need a token.
    #[must_use]
    pub fn reads(mut self, reads: Reads) -> Guard {
        self.reads = reads;
        self
    }

    /// Whether a request may go on. It counts as under way as long as the passage lives; a free read has none.
    pub async fn check(&self, request: &Parts) -> Result<Option<Passage>, Denial> {
        let mut tokens = request.headers.get_all(TOKEN).iter();
        let token = match (tokens.next(), tokens.next()) {
            (None, _) if self.reads == Reads::AreFree && only_reads(request) => return Ok(None),
            (None, _) => return Err(Denial::bad("no token: send that of the leadership in the header incumbent-token")),
            (Some(_), Some(_)) => return Err(Denial::bad("two tokens: send one incumbent-token")),
            (Some(text), None) => text.to_str().ok().and_then(parse_token),
        };
        let token = token.ok_or_else(|| Denial::bad("the header incumbent-token is not a token: send its number in digits"))?;
        let resource = (self.resource)(request)
            .ok_or_else(|| Denial::bad("the request is about no resource that can be told: name one in the path, plainly"))?;
        if !self.stays_within(&resource, request) {
            return Err(Denial::bad("the header destination leads out of the resource, to where this token says nothing"));
        }
        Ok(Some(self.gate.enter(&resource, token).await?))
    }

    /// Whether nothing but this resource is written to: MOVE and COPY of WebDAV write to where `Destination` says.
    fn stays_within(&self, resource: &str, request: &Parts) -> bool {
        request.headers.get_all("destination").iter().all(|destination| {
            let Ok(uri) = Uri::try_from(destination.as_bytes()) else { return false };
            let mut there = request.clone();
            let mut parts = uri.into_parts();
            if parts.authority.is_none() {
                parts.scheme = request.uri.scheme().cloned();
                parts.authority = request.uri.authority().cloned();
            }
            let Ok(uri) = Uri::from_parts(parts) else { return false };
            there.uri = uri;
            (self.resource)(&there).as_deref() == Some(resource)
        })
    }
}

/// Whether a request only reads, by its method, and does not ask to be taken for another.
pub fn only_reads(request: &Parts) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS].contains(&request.method)
        && !OVERRIDES.iter().any(|it| request.headers.contains_key(*it))
}

/// The first segment of the path. `None` if the path could be read in two ways: a storage that reads it in the other would be written to past the fence.
fn first_segment(request: &Parts) -> Option<String> {
    let path = request.uri.path().strip_prefix('/')?;
    let first = path.split('/').next().filter(|it| !it.is_empty() && !it.contains(['%', ';']))?;
    let plain = path.to_ascii_lowercase().replace("%2e", ".").replace("%3b", ";");
    // A slash to some: encoded, or turned round.
    let may_have_more_segments = ["%2f", "%5c", "\\"].iter().any(|it| plain.contains(it));
    // What follows a semicolon is not part of the name to some: `..;x` is `..`.
    let climbs = plain.split('/').any(|segment| matches!(segment.split(';').next(), Some("." | "..")));
    (!may_have_more_segments && !climbs).then(|| first.to_owned())
}

/// Why a request may not go on, as it is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Denial {
    /// How it is answered.
    pub status: StatusCode,
    /// The greatest token seen, if that was the reason.
    pub seen: Option<u64>,
    /// One line for people.
    pub text: String,
}

impl Denial {
    fn bad(text: &str) -> Denial {
        Denial { status: StatusCode::BAD_REQUEST, seen: None, text: text.to_owned() }
    }

    /// The answer.
    pub fn response<B: From<String>>(self) -> Response<B> {
        let mut response = Response::new(B::from(self.text + "\n"));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if let Some(seen) = self.seen {
            headers.insert(SEEN, HeaderValue::from(seen));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl std::error::Error for Denial {}

impl From<Refusal> for Denial {
    fn from(refusal: Refusal) -> Denial {
        let text = refusal.to_string();
        match refusal {
            Refusal::Stale(stale) => Denial { status: StatusCode::PRECONDITION_FAILED, seen: Some(stale.seen.get()), text },
            Refusal::Trouble(why) => {
                let status = match why.kind() {
                    Kind::Refused | Kind::Unknown => StatusCode::SERVICE_UNAVAILABLE,
                    Kind::Misconfigured => StatusCode::INTERNAL_SERVER_ERROR,
                };
                Denial { status, seen: None, text }
            }
        }
    }
}

/// Puts a [`Guard`] before services.
#[derive(Clone)]
pub struct FenceLayer {
    guard: Guard,
}

impl FenceLayer {
    /// A layer that asks `guard`.
    pub fn new(guard: Guard) -> FenceLayer {
        FenceLayer { guard }
    }
}

impl<S> Layer<S> for FenceLayer {
    type Service = Fenced<S>;

    fn layer(&self, service: S) -> Fenced<S> {
        Fenced { guard: self.guard.clone(), service }
    }
}

/// A service behind a [`Guard`].
#[derive(Clone)]
pub struct Fenced<S> {
    guard: Guard,
    service: S,
}

impl<S, B, R> Service<Request<B>> for Fenced<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
    R: From<String>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that was polled ready is the one to call; the clone stays behind.
        let clone = self.service.clone();
        let mut service = std::mem::replace(&mut self.service, clone);
        let guard = self.guard.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            match guard.check(&parts).await {
                Ok(passage) => {
                    let answer = service.call(Request::from_parts(parts, body)).await;
                    drop(passage);
                    answer
                }
                Err(denial) => Ok(denial.response()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::{Ready, ready};
    use std::sync::Mutex;

    use super::*;
    use crate::fence::directory::Ledger;

    /// Notes what reaches it.
    #[derive(Clone, Default)]
    struct Storage(Arc<Mutex<Vec<String>>>);

    impl Service<Request<()>> for Storage {
        type Response = Response<String>;
        type Error = Infallible;
        type Future = Ready<Result<Response<String>, Infallible>>;

        fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<()>) -> Self::Future {
            self.0.lock().unwrap().push(format!("{} {}", request.method(), request.uri()));
            ready(Ok(Response::new("done".to_owned())))
        }
    }

    struct Bench {
        storage: Storage,
        service: Fenced<Storage>,
        _folder: tempfile::TempDir,
    }

    impl Bench {
        fn new(change: impl FnOnce(Guard) -> Guard) -> Bench {
            let folder = tempfile::tempdir().unwrap();
            let guard = change(Guard::new(Arc::new(Ledger::at(folder.path()).unwrap())));
            let storage = Storage::default();
            let service = FenceLayer::new(guard).layer(storage.clone());
            Bench { storage, service, _folder: folder }
        }

        async fn ask(&mut self, method: &str, path: &str, tokens: &[&str]) -> (u16, String, Option<String>) {
            let headers: Vec<(&str, &str)> = tokens.iter().map(|it| ("incumbent-token", *it)).collect();
            self.ask_with(method, path, &headers).await
        }

        async fn ask_with(&mut self, method: &str, path: &str, headers: &[(&str, &str)]) -> (u16, String, Option<String>) {
            let mut request = Request::builder().method(method).uri(path);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let response = self.service.call(request.body(()).unwrap()).await.unwrap();
            let seen = response.headers().get(SEEN).map(|it| it.to_str().unwrap().to_owned());
            (response.status().as_u16(), response.into_body(), seen)
        }
    }

    #[tokio::test]
    async fn a_stale_request_is_answered_with_what_was_seen_and_does_not_reach_the_service() {
        let mut bench = Bench::new(|guard| guard);
        assert_eq!(bench.ask("PUT", "/billing/1", &["7"]).await.0, 200);
        assert_eq!(bench.ask("PUT", "/billing/2", &["8"]).await.0, 200);
        let (status, text, seen) = bench.ask("DELETE", "/billing/1", &["7"]).await;
        assert_eq!((status, seen.as_deref()), (412, Some("8")));
        assert!(text.contains("stale token 7 for billing: 8 has been seen"), "{text}");
        assert_eq!(bench.ask("PUT", "/shipping/1", &["3"]).await.0, 200, "another resource has tokens of its own");
        assert_eq!(*bench.storage.0.lock().unwrap(), ["PUT /billing/1", "PUT /billing/2", "PUT /shipping/1"]);
    }

    #[tokio::test]
    async fn without_a_token_only_reads_pass_and_only_where_they_may() {
        let mut free = Bench::new(|guard| guard);
        let mut strict = Bench::new(|guard| guard.reads(Reads::NeedAToken));
        for method in ["GET", "HEAD", "OPTIONS"] {
            assert_eq!(free.ask(method, "/billing", &[]).await.0, 200);
            assert_eq!(strict.ask(method, "/billing", &[]).await.0, 400);
        }
        for method in ["PUT", "POST", "PATCH", "DELETE", "COPY"] {
            assert_eq!(free.ask(method, "/billing", &[]).await.0, 400);
        }
        // A read that brings a token raises the fence: what was read stays so.
        assert_eq!(free.ask("GET", "/billing", &["8"]).await.0, 200);
        assert_eq!(free.ask("PUT", "/billing", &["7"]).await.0, 412);
        assert_eq!(free.ask("GET", "/billing", &["7"]).await.0, 412);
    }

    #[tokio::test]
    async fn what_is_no_token_or_no_resource_is_a_bad_request() {
        let mut bench = Bench::new(|guard| guard);
        for odd in ["", "x", "-1", "+1", "07", "1.5", "9223372036854775808", "1, 2"] {
            assert_eq!(bench.ask("PUT", "/billing", &[odd]).await.0, 400, "{odd:?}");
        }
        assert_eq!(bench.ask("PUT", "/billing", &["1", "2"]).await.0, 400);
        for odd in [
            "/",
            "//billing",
            "/%62illing",
            "/./billing",
            "/x/../billing",
            "/x/%2E%2e/billing",
            "/x/a%2f..%2F..%2fbilling/1",
            "/x/..%5cbilling",
            "/x/..\\billing",
            "/x/..;/billing",
            "/x/%2e.%3By/billing",
            "/billing;x/1",
            "*",
        ] {
            assert_eq!(bench.ask("PUT", odd, &["1"]).await.0, 400, "{odd}");
        }
        let long = format!("/{}", "x".repeat(100));
        assert_eq!(bench.ask("PUT", &long, &["1"]).await.0, 500, "too long for the ledger");
        assert!(bench.storage.0.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn what_is_moved_stays_within_the_resource_of_its_token() {
        let mut bench = Bench::new(|guard| guard);
        let mut host = Bench::new(|guard| guard.resource(|parts| Some(parts.uri.host()?.to_owned())));
        let to = |destination| [("incumbent-token", "1"), ("destination", destination)];
        for out in ["http://storage/billing/1", "/billing/1", "/x/../billing/1", "billing/1", "", "http://storage"] {
            assert_eq!(bench.ask_with("MOVE", "/x/1", &to(out)).await.0, 400, "{out}");
        }
        for within in ["http://storage/x/2", "/x/2"] {
            assert_eq!(bench.ask_with("MOVE", "/x/1", &to(within)).await.0, 200, "{within}");
            assert_eq!(host.ask_with("MOVE", "http://storage/x", &to(within)).await.0, 200, "{within}");
        }
        assert_eq!(host.ask_with("MOVE", "http://storage/x", &to("http://other/x")).await.0, 400);
    }

    #[tokio::test]
    async fn a_read_that_asks_to_be_taken_for_a_write_is_no_free_read() {
        let mut bench = Bench::new(|guard| guard);
        for name in ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"] {
            assert_eq!(bench.ask_with("GET", "/billing", &[(name, "DELETE")]).await.0, 400, "{name}");
        }
    }

    #[tokio::test]
    async fn what_a_request_is_about_can_be_said_otherwise() {
        let mut bench = Bench::new(|guard| guard.resource(|parts| Some(parts.uri.host()?.to_owned())));
        assert_eq!(bench.ask("PUT", "http://a/x", &["2"]).await.0, 200);
        assert_eq!(bench.ask("PUT", "http://a/y", &["1"]).await.0, 412);
        assert_eq!(bench.ask("PUT", "http://b/y", &["1"]).await.0, 200);
    }
}
