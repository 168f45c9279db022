//! A bare HTTP client for the tests of the test servers: it shows exactly what came over the wire.

#![allow(dead_code, reason = "each test file uses its part")]

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::HeaderMap;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).expect("a text")
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |it| it.to_str().expect("a text"))
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|wrong| panic!("{wrong}: {self:?}"))
    }
}

/// Sends a request on a connection of its own and reads the answer to its end.
pub(crate) async fn ask(to: &str, method: &str, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Answer {
    let (head, body) = open(to, method, path, headers, body).await.expect("an answer").into_parts();
    let body = body.collect().await.expect("a whole answer").to_bytes();
    Answer { status: head.status, headers: head.headers, body }
}

/// Sends a request on a connection of its own; the body is still to be read.
pub(crate) async fn open(
    to: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Result<Response<Incoming>, Box<dyn std::error::Error>> {
    let stream = tokio::net::TcpStream::connect(to).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path).header("host", to);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    Ok(sender.send_request(request.body(Full::new(body.into()))?).await?)
}

/// The names of a recording and those of a replay, which differ and yet must mean the same: each stands for exactly one of the other.
#[derive(Default, Debug)]
pub(crate) struct Names {
    pairs: Vec<(String, String)>,
}

impl Names {
    /// Says that these two are the same. Fails if one of them already means another.
    pub(crate) fn pair(&mut self, recorded: &str, replayed: &str) {
        match self.pairs.iter().find(|(one, other)| one == recorded || other == replayed) {
            Some(known) => assert_eq!((known.0.as_str(), known.1.as_str()), (recorded, replayed), "one name, two meanings"),
            None => self.pairs.push((recorded.to_owned(), replayed.to_owned())),
        }
    }

    /// Learns the uuids of two texts, in their order.
    pub(crate) fn learn_uuids(&mut self, recorded: &str, replayed: &str) {
        for (one, other) in uuids(recorded).into_iter().zip(uuids(replayed)) {
            self.pair(one, other);
        }
    }

    /// The recorded text with the names of the replay.
    pub(crate) fn translate(&self, recorded: &str) -> String {
        self.pairs.iter().fold(recorded.to_owned(), |text, (one, other)| text.replace(one, other))
    }
}

/// Every uuid in a text, without those that consist of one digit: they are written in requests by hand.
pub(crate) fn uuids(text: &str) -> Vec<&str> {
    let is_uuid = |it: &str| {
        it.len() == 36
            && it.char_indices().all(|(at, c)| if matches!(at, 8 | 13 | 18 | 23) { c == '-' } else { c.is_ascii_hexdigit() })
            && it.chars().filter(|c| *c != '-').any(|c| !it.starts_with(c))
    };
    text.split(|c: char| !c.is_ascii_hexdigit() && c != '-').filter(|it| is_uuid(it)).collect()
}
