//! One request on its way through the proxy: asked of the fence, made fit for the next hop, sent on, answered.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    CONNECTION, EXPECT, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE, VIA,
};
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use incumbent::fence::http::{Denial, Guard};
use tokio::sync::mpsc;

/// What the proxy answers: words of its own, or what the storage said, as it comes in.
pub(crate) type Body = Either<Full<Bytes>, Incoming>;

/// Refusals that were already told are not told again; this many are kept.
const TOLD_MAX: usize = 1024;

/// Headers that concern one connection and no other (RFC 9110, 7.6.1), and `Expect`, which is answered here.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Where requests go, and who is asked before.
pub(crate) struct Forwarder {
    pub(crate) guard: Guard,
    pub(crate) client: Client<HttpConnector, Incoming>,
    pub(crate) to: Authority,
    /// How long the storage may take to begin its answer.
    pub(crate) patience: Duration,
    /// Held by every request that is under way, so that the end of all can be waited for.
    pub(crate) busy: mpsc::Sender<()>,
    pub(crate) told: Mutex<BTreeSet<String>>,
}

impl Forwarder {
    /// Answers one request.
    pub(crate) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        if parts.method == Method::CONNECT || parts.headers.contains_key(UPGRADE) {
            return plain(StatusCode::NOT_IMPLEMENTED, "this proxy forwards requests only: no CONNECT, no upgrades");
        }
        let Some(uri) = self.uri(&parts.uri) else {
            return plain(StatusCode::BAD_REQUEST, "the request names no path");
        };
        let passage = match self.guard.check(&parts).await {
            Ok(passage) => passage,
            Err(denial) => return self.refuse(denial),
        };
        parts.uri = uri;
        parts.version = Version::HTTP_11;
        make_fit(&mut parts.headers);
        parts.headers.remove(EXPECT);
        parts.headers.append(VIA, HeaderValue::from_static("1.1 incumbent"));
        let request = Request::from_parts(parts, body);
        let (sent, patience, busy) = (self.client.request(request), self.patience, self.busy.clone());
        // In a task of its own: if the client hangs up, the storage may still be at it, and greater tokens must wait for that.
        let exchange = tokio::spawn(async move {
            let answer = tokio::time::timeout(patience, sent).await;
            drop((passage, busy));
            answer
        });
        match exchange.await {
            Ok(Ok(Ok(mut response))) => {
                make_fit(response.headers_mut());
                response.map(Either::Right)
            }
            Ok(Ok(Err(why))) if why.is_connect() => {
                plain(StatusCode::BAD_GATEWAY, &format!("the storage at {} cannot be reached; nothing was done", self.to))
            }
            Ok(Ok(Err(_))) => {
                plain(StatusCode::BAD_GATEWAY, &format!("the storage at {} broke off; it may have happened", self.to))
            }
            Ok(Err(_)) => plain(StatusCode::GATEWAY_TIMEOUT, &format!("no answer within {patience:?}; it may have happened")),
            Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, "the proxy is stopping; it may have happened"),
        }
    }

    /// The same path at the storage.
    fn uri(&self, asked: &Uri) -> Option<Uri> {
        let path: PathAndQuery = asked.path_and_query().filter(|it| it.as_str().starts_with('/')).cloned()?;
        Uri::builder().scheme(Scheme::HTTP).authority(self.to.clone()).path_and_query(path).build().ok()
    }

    /// Tells whoever runs the proxy once, and whoever asked each time.
    fn refuse(&self, denial: Denial) -> Response<Body> {
        let mut told = self.told.lock().expect("nobody panics with it");
        if told.len() == TOLD_MAX {
            told.clear();
        }
        if denial.status != StatusCode::BAD_REQUEST && told.insert(denial.text.clone()) {
            eprintln!("refused: {denial}");
        }
        denial.response::<String>().map(|text| Either::Left(Full::from(text)))
    }
}

/// Takes away what concerns the last hop only: the headers that are always so, and those that `Connection` names.
fn make_fit(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|it| it.to_str().ok())
        .flat_map(|it| it.split(','))
        .filter_map(|it| it.trim().parse().ok())
        .collect();
    for name in HOP_BY_HOP.iter().chain(&named) {
        headers.remove(name);
    }
}

fn plain(status: StatusCode, text: &str) -> Response<Body> {
    Denial { status, seen: None, text: text.to_owned() }.response::<String>().map(|text| Either::Left(Full::from(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_concerns_one_connection_goes_no_further() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Secret"),
            ("connection", "Trailer"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("x-secret", "1"),
            ("x-kept", "2"),
            ("content-length", "3"),
        ] {
            headers.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_static(value));
        }
        make_fit(&mut headers);
        let left: BTreeSet<&str> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, BTreeSet::from(["content-length", "x-kept"]));
    }
}
