//! One request on its way through the proxy: asked of the fence, made fit for the next hop, sent on, answered.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::channel::{Channel, Sender};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{
    CONNECTION, EXPECT, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE, VIA,
};
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use incumbent::fence::http::{Denial, Guard, only_reads};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

/// What the proxy answers: words of its own, or what the storage said, as it comes in.
pub(crate) type Body = UnsyncBoxBody<Bytes, Trouble>;
/// What clients send, as it comes in.
pub(crate) type Upload = UnsyncBoxBody<Bytes, Trouble>;
type Trouble = Box<dyn std::error::Error + Send + Sync>;

/// So much of an answer is taken from the storage before the client has taken it: it is the storage's end that greater tokens wait for.
const ANSWER_FRAMES_MAX: usize = 16;

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
    pub(crate) client: Client<HttpConnector, Upload>,
    pub(crate) to: Authority,
    /// How long the storage may take to begin its answer, and how long either side may pause.
    pub(crate) patience: Duration,
    /// Held by every request that is under way, so that the end of all can be waited for.
    pub(crate) busy: mpsc::Sender<()>,
    pub(crate) told: Mutex<BTreeSet<String>>,
}

impl Forwarder {
    /// Answers one request.
    pub(crate) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        // Some clients offer HTTP/2 with every first request, and go on without if nobody takes it up.
        let upgrades = parts.headers.get_all(UPGRADE).iter().any(|it| it != "h2c");
        if parts.method == Method::CONNECT || upgrades {
            return plain(StatusCode::NOT_IMPLEMENTED, "this proxy forwards requests only: no CONNECT, no upgrades");
        }
        let Some(uri) = self.uri(&parts.uri) else {
            return plain(StatusCode::BAD_REQUEST, "the request names no path");
        };
        let passage = match self.guard.check(&parts).await {
            Ok(passage) => passage,
            Err(denial) => return self.refuse(denial),
        };
        // A read that has begun to be answered does nothing any more: a reader that is paused must keep nobody out.
        let ends_with_its_head = passage.is_none() || only_reads(&parts);
        parts.uri = uri;
        parts.version = Version::HTTP_11;
        make_fit(&mut parts.headers);
        parts.headers.remove(EXPECT);
        parts.headers.append(VIA, HeaderValue::from_static("1.1 incumbent"));
        let (body, mut upload) = observed(body);
        let sent = self.client.request(Request::from_parts(parts, body));
        let (patience, busy) = (self.patience, self.busy.clone());
        let (head, begun) = oneshot::channel();
        // In a task of its own: if the client hangs up, the storage may still be at it, and greater tokens must wait for that.
        tokio::spawn(async move {
            match answered(sent, &mut upload, patience).await {
                Some(Ok(response)) if !ends_with_its_head && !response.body().is_end_stream() => {
                    let (client, rest) = Channel::new(ANSWER_FRAMES_MAX);
                    let (parts, body) = response.into_parts();
                    // Nobody hears it if the client has hung up; the storage is heard to its end all the same.
                    let _ = head.send(Some(Ok(Response::from_parts(parts, rest.boxed_unsync()))));
                    carry(body, client, patience).await;
                }
                answer => {
                    let _ = head.send(
                        answer.map(|it| it.map(|response| response.map(|body| body.map_err(Trouble::from).boxed_unsync()))),
                    );
                }
            }
            if !ends_with_its_head {
                // A storage may have answered before it had all of the request.
                ended(&mut upload, patience).await;
            }
            drop((passage, busy));
        });
        match begun.await {
            Ok(Some(Ok(mut response))) => {
                make_fit(response.headers_mut());
                response
            }
            Ok(Some(Err(why))) if why.is_connect() => {
                plain(StatusCode::BAD_GATEWAY, &format!("the storage at {} cannot be reached; nothing was done", self.to))
            }
            Ok(Some(Err(_))) => {
                plain(StatusCode::BAD_GATEWAY, &format!("the storage at {} broke off; it may have happened", self.to))
            }
            Ok(None) => plain(StatusCode::GATEWAY_TIMEOUT, &format!("no answer within {patience:?}; it may have happened")),
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
        words(denial)
    }
}

/// A request's body, and a receiver that hears of every part of it that is sent on, and that it is closed when the last one has been, or none will be.
fn observed<B>(body: B) -> (Upload, watch::Receiver<()>)
where
    B: hyper::body::Body<Data = Bytes, Error: Into<Trouble>> + Send + 'static,
{
    let (moved, upload) = watch::channel(());
    let body = body.map_frame(move |frame| {
        moved.send_replace(());
        frame
    });
    (body.map_err(Into::into).boxed_unsync(), upload)
}

/// Waits for an answer; `None` if for so long neither did it come nor any more of the request go out.
async fn answered<T>(answer: impl Future<Output = T>, upload: &mut watch::Receiver<()>, patience: Duration) -> Option<T> {
    let mut answer = pin!(answer);
    let mut uploading = true;
    loop {
        tokio::select! {
            biased;
            answer = &mut answer => return Some(answer),
            more = upload.changed(), if uploading => uploading = more.is_ok(),
            () = tokio::time::sleep(patience) => return None,
        }
    }
}

/// Waits until all of a request has gone out, or none of it for so long.
async fn ended(upload: &mut watch::Receiver<()>, patience: Duration) {
    while let Ok(Ok(())) = timeout(patience, upload.changed()).await {}
}

/// Passes an answer on to its end. A client that takes nothing for so long is given up, the storage is not.
async fn carry(mut from: Incoming, to: Sender<Bytes, Trouble>, patience: Duration) {
    let mut client = Some(to);
    let trouble = loop {
        match timeout(patience, from.frame()).await {
            Ok(Some(Ok(frame))) => {
                if let Some(mut taker) = client.take() {
                    match timeout(patience, taker.send(frame)).await {
                        Ok(Ok(())) => client = Some(taker),
                        Ok(Err(_)) => {}
                        Err(late) => taker.abort(late.into()),
                    }
                }
            }
            Ok(Some(Err(why))) => break why.into(),
            Ok(None) => return,
            Err(late) => break Trouble::from(late),
        }
    };
    if let Some(client) = client {
        // Else the client would take what it has for all of it.
        client.abort(trouble);
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
    words(Denial { status, seen: None, text: text.to_owned() })
}

fn words(denial: Denial) -> Response<Body> {
    denial.response::<String>().map(|text| Full::from(text).map_err(Trouble::from).boxed_unsync())
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn patience_counts_from_the_last_part_of_the_request() {
        let (mut client, body) = Channel::<Bytes, Trouble>::new(1);
        let (body, mut upload) = observed(body);
        let begun = Instant::now();
        tokio::spawn(async move {
            for _ in 0..4 {
                tokio::time::sleep(Duration::from_secs(3)).await;
                client.send_data(Bytes::from_static(b"part")).await.unwrap();
            }
        });
        let storage = async {
            let got = body.collect().await.unwrap().to_bytes();
            tokio::time::sleep(Duration::from_secs(4)).await;
            got
        };
        assert_eq!(answered(storage, &mut upload, PATIENCE).await.as_deref(), Some(b"partpartpartpart".as_slice()));
        assert_eq!(begun.elapsed(), Duration::from_secs(16));
    }

    #[tokio::test(start_paused = true)]
    async fn neither_a_client_nor_a_storage_may_pause_for_longer() {
        // The client sends nothing; the storage has everything and says nothing.
        let (_client, silent) = Channel::<Bytes, Trouble>::new(1);
        let (body, mut upload) = observed(silent);
        assert!(answered(body.collect(), &mut upload, PATIENCE).await.is_none());
        let (body, mut upload) = observed(Full::from("all"));
        let storage = async {
            let _all = body.collect().await;
            std::future::pending::<()>().await;
        };
        let begun = Instant::now();
        assert!(answered(storage, &mut upload, PATIENCE).await.is_none());
        assert_eq!(begun.elapsed(), PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_ends_when_nothing_of_it_will_go_out_any_more() {
        let (mut client, body) = Channel::<Bytes, Trouble>::new(1);
        let (mut body, mut upload) = observed(body);
        let begun = Instant::now();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(3)).await;
            client.send_data(Bytes::from_static(b"part")).await.unwrap();
            let _part = body.frame().await;
            tokio::time::sleep(Duration::from_secs(4)).await;
        });
        ended(&mut upload, PATIENCE).await;
        assert_eq!(begun.elapsed(), Duration::from_secs(7));
    }

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
