//! Bad input: each kind is told what is wrong with it and what to do, and the node goes on.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use incumbent_store::command::{Command, Request};
use incumbent_store::query::Query;
use incumbent_store::watch::{Interest, Topic};
use serde_json::json;

use super::super::border::{Denial, Gate, Visitor};
use super::super::limits::{HEAD_BYTES_MAX, JSON_BYTES_MAX, VALUE_BYTES_MAX};
use super::house::House;

#[tokio::test]
async fn what_cannot_be_meant_is_refused_with_what_to_do() {
    let house = House::open().await;
    let bid = json!({ "session": "1", "identity": "a" }).to_string();
    for (method, path, body, status, code) in [
        ("GET", "/", "", 404, "no_route"),
        ("GET", "/v1/elections/", "", 404, "no_route"),
        ("GET", "/v1/elections/a/b/history", "", 404, "no_route"),
        ("POST", "/v1/elections/a/unheard", "{}", 404, "no_route"),
        ("GET", "/v1/kv/", "", 404, "no_route"),
        ("POST", "/v1/status", "", 405, "method_not_allowed"),
        ("BREW", "/v1/status", "", 405, "method_not_allowed"),
        ("GET", "/v1/txn", "", 405, "method_not_allowed"),
        ("GET", "/v1/status?verbose", "", 400, "malformed"),
        ("GET", "/health?verbose", "", 400, "malformed"),
        ("GET", "/v1/kv/a?raw=maybe", "", 400, "malformed"),
        ("GET", "/v1/kv?limit=-1", "", 400, "malformed"),
        ("GET", "/v1/kv?limit=1&limit=1", "", 400, "malformed"),
        ("GET", "/v1/kv?prefix=%zz", "", 400, "malformed"),
        ("GET", "/v1/kv/100%", "", 400, "malformed"),
        ("GET", "/v1/kv/a?consistency=eventual", "", 400, "malformed"),
        ("GET", "/v1/elections/%ff", "", 400, "malformed"),
        ("GET", "/v1/sessions/abc", "", 400, "malformed"),
        ("GET", "/v1/sessions/99999999999999999999", "", 400, "malformed"),
        ("GET", "/v1/sessions/7", "", 410, "session_gone"),
        ("GET", "/v1/status", "{}", 400, "malformed"),
        ("POST", "/v1/sessions", "{", 400, "malformed"),
        ("POST", "/v1/sessions", "[]", 400, "malformed"),
        ("POST", "/v1/sessions", "", 400, "malformed"),
        ("POST", "/v1/sessions", "{\"ttl_ms\":\"10s\"}", 400, "malformed"),
        ("POST", "/v1/sessions", "{\"ttl_ms\":1000,\"tll\":1}", 400, "malformed"),
        ("POST", "/v1/sessions", "{\"ttl_ms\":1}", 400, "malformed"),
        ("POST", "/v1/sessions", "{\"ttl_ms\":9007199254740991}", 422, "limit"),
        ("POST", "/v1/elections/a/campaign", bid.as_str(), 410, "session_gone"),
        ("POST", "/v1/elections/a/campaign?wait=1h", bid.as_str(), 400, "malformed"),
        ("POST", "/v1/elections/a/campaign?wait=2m", bid.as_str(), 400, "malformed"),
        ("POST", "/v1/elections/a/proclaim", "{\"token\":\"1\"}", 409, "not_in_office"),
        ("POST", "/v1/elections/a/proclaim", "{\"token\":18014398509481985}", 400, "malformed"),
        ("POST", "/v1/elections/a/handover", "{\"to\":\"b\"}", 409, "nobody_leads"),
        ("POST", "/v1/elections/a/evict", "", 409, "nobody_leads"),
        ("POST", "/v1/elections/a/evict", "{\"token\":1,\"force\":true,\"after_tenure\":true}", 400, "malformed"),
        ("PUT", "/v1/kv/a?holding=e", "x", 400, "malformed"),
        ("PUT", "/v1/kv/a?token=1", "x", 400, "malformed"),
        ("PUT", "/v1/kv/a?holding=e&token=1", "x", 409, "guard_failed"),
        ("PUT", "/v1/kv/a?session=7", "x", 410, "session_gone"),
        ("DELETE", "/v1/kv/a?if-version=3", "", 409, "guard_failed"),
        ("POST", "/v1/txn", "{\"then\":[{\"put\":{\"key\":\"a\",\"key_base64\":\"YQ==\"}}]}", 400, "malformed"),
        ("POST", "/v1/txn", "{\"guards\":[{\"key\":\"a\"}]}", 400, "malformed"),
        ("GET", "/v1/kv/a?revision=999999", "", 409, "future"),
        ("GET", "/v1/watch?key=a&prefix=a", "", 400, "malformed"),
        ("GET", "/v1/watch?from=x", "", 400, "malformed"),
    ] {
        let answer = house.ask(method, path, &[], body.as_bytes()).await;
        assert_eq!(answer.status, status, "{method} {path} {body}: {answer:?}");
        assert_eq!(answer.code(), code, "{method} {path} {body}");
        assert_eq!(answer.header("content-type"), Some("application/json"), "{method} {path}");
    }
    let brew = house.ask("BREW", "/v1/kv/a", &[], b"").await;
    assert_eq!(brew.header("allow"), Some("get, put, delete, head"));
    for (name, value) in
        [("idempotency-key", "7"), ("idempotency-key", "0-1"), ("idempotency-key", "a-1"), ("idempotency-key", "1-")]
    {
        assert_eq!(house.ask("PUT", "/v1/kv/a", &[(name, value)], b"x").await.code(), "malformed", "{value}");
    }
    let resumed = house.ask("GET", "/v1/watch", &[("last-event-id", "x")], b"").await;
    assert_eq!((resumed.status, resumed.code().as_str()), (400, "malformed"));
    let page = house.ask("PUT", "/v1/kv/a", &[("origin", "https://example.org")], b"x").await;
    assert_eq!((page.status, page.code().as_str()), (403, "page"));
    let rebound = house.ask("GET", "/v1/kv?prefix=", &[("host", "evil.example:7272")], b"").await;
    assert_eq!((rebound.status, rebound.code().as_str()), (403, "page"), "a page that has made its own name lead here");
    assert_eq!(house.ask("GET", "/health", &[("host", "evil.example:7272")], b"").await.status, 200, "that is told to everybody");
    assert_eq!(house.ask("GET", "/v1/kv/a", &[], b"").await.status, 404, "nothing of all that was done");
}

#[tokio::test]
async fn what_is_too_long_is_refused_before_it_has_come() {
    let house = House::open().await;
    let head = |path: &str, len: usize| {
        format!("PUT {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {len}\r\n\r\n")
    };
    let told = house.say(head("/v1/kv/a", VALUE_BYTES_MAX + 1).as_bytes()).await;
    assert_eq!((told.status, told.code().as_str()), (413, "too_long"), "without a byte of it");
    let json = head("/v1/txn", JSON_BYTES_MAX + 1).replace("PUT", "POST");
    assert_eq!(house.say(json.as_bytes()).await.code(), "too_long");
    // In chunks nobody says beforehand how much it is.
    let mut chunks =
        b"POST /v1/txn HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let chunk = vec![b' '; 1 << 16];
    for _ in 0..=JSON_BYTES_MAX >> 16 {
        chunks.extend_from_slice(b"10000\r\n");
        chunks.extend_from_slice(&chunk);
        chunks.extend_from_slice(b"\r\n");
    }
    let told = house.say(&chunks).await;
    assert!(told.status == 413 || told.status == 0, "{told:?}");
    let value = vec![b'x'; VALUE_BYTES_MAX];
    assert_eq!(house.ask("PUT", "/v1/kv/a", &[], &value).await.status, 200, "the longest is taken");
    assert_eq!(house.ask("GET", "/v1/kv/a?raw", &[], b"").await.body, value);
    let json = json!({ "then": [{ "put": { "key": "b", "value_base64": base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &value) } }] });
    assert_eq!(house.post("/v1/txn", json).await.status, 200, "in base64 too");
    let key = "%ff".repeat(4096);
    assert_eq!(house.ask("PUT", &format!("/v1/kv/{key}"), &[], b"x").await.status, 200, "the longest key");
    assert_eq!(house.ask("PUT", &format!("/v1/kv/{key}a"), &[], b"x").await.code(), "limit");
    let told = house.ask("GET", &format!("/v1/kv/{}", "a".repeat(HEAD_BYTES_MAX)), &[], b"").await;
    assert!([414, 431].contains(&told.status), "{told:?}");
    // Not HTTP at all, and half a request: a status and the end, and nobody else notices.
    assert_eq!(house.say(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n").await.status, 400);
    let half = tokio::net::TcpStream::connect(house.address).await.expect("a connection");
    drop(half);
    house.look("/v1/status").await;
}

/// Knows one token, which may ask and watch what begins with `open/`, and write nothing.
pub(super) struct Reader;

impl Gate for Reader {
    fn admit(&self, token: Option<&str>) -> Result<Arc<dyn Visitor>, Denial> {
        match token {
            Some("secret") => Ok(Arc::new(Reader)),
            Some(_) => Err(Denial::Stranger("nobody's".to_owned())),
            None => Err(Denial::Stranger("none".to_owned())),
        }
    }

    fn is_open(&self) -> bool {
        false
    }

    fn knows_somebody(&self) -> bool {
        false
    }
}

impl Visitor for Reader {
    fn name(&self) -> &'static str {
        "reader"
    }

    fn sign(&self, request: Request) -> Result<Request, Denial> {
        match request.command {
            Some(Command::OpenSession(_)) => Ok(request),
            _ => Err(Denial::NoRight("no writing".to_owned())),
        }
    }

    fn may_ask(&self, query: &Query) -> Result<(), Denial> {
        let is_open = matches!(query, Query::Look(name) if name.starts_with("open/"));
        if is_open { Ok(()) } else { Err(Denial::NoRight("no reading".to_owned())) }
    }

    fn may_watch(&self, interest: &Interest) -> Result<(), Denial> {
        let is_open = matches!(&interest.topic, Some(Topic::Election(name)) if name.starts_with("open/"));
        if is_open { Ok(()) } else { Err(Denial::NoRight("no watching".to_owned())) }
    }

    fn withdrawn(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::pending())
    }
}

/// Every row of the table but the open ones is closed to strangers, and asks for its right with what it is about to do.
#[tokio::test]
async fn nothing_is_done_or_told_without_the_right_to_it() {
    use super::super::routes::{Gives, ROUTES, Takes};
    let house = House::guarded(Arc::new(Reader)).await;
    let bearer = [("authorization", "Bearer secret")];
    for route in ROUTES {
        let path = route.path.replace("{key*}", "closed/a").replace("{name}", "closed%2Fa").replace("{id}", "7");
        let body = match (&route.takes, route.path.rsplit('/').next().unwrap_or_default()) {
            (Takes::Nothing, _) => String::new(),
            (Takes::Value, _) => "x".to_owned(),
            (Takes::Json(_), "campaign") => json!({ "session": "1", "identity": "a" }).to_string(),
            (Takes::Json(_), "handover") => json!({ "to": "a", "token": "1" }).to_string(),
            (Takes::Json(_), "withdraw") => json!({ "identity": "a" }).to_string(),
            (Takes::Json(_), "annotate") => json!({ "token": "1", "text": "a" }).to_string(),
            (Takes::Json(_), "complete") => json!({ "token": "1", "job": "a" }).to_string(),
            (Takes::Json(_), "raise") => json!({ "above": "1" }).to_string(),
            (Takes::Json(_), "sessions") => json!({ "ttl_ms": 1000 }).to_string(),
            (Takes::Json(_), "txn") => json!({}).to_string(),
            (Takes::Json(_), "compact") => json!({ "revision": 1 }).to_string(),
            (Takes::Json(_), _) => json!({ "token": "1" }).to_string(),
        };
        let verb = route.verb.name();
        let stranger = house.ask(verb, &path, &[], body.as_bytes()).await;
        if route.is_open() {
            assert_eq!(stranger.status, 200, "{verb} {path}");
            continue;
        }
        assert_eq!((stranger.status, stranger.code().as_str()), (401, "no_token"), "{verb} {path}");
        assert_eq!(stranger.header("www-authenticate"), Some("bearer"));
        let known = house.ask(verb, &path, &bearer, body.as_bytes()).await;
        if format!("{:?}", route.deed) == "OpenSession" {
            assert_eq!(known.status, 200, "{known:?}");
            continue;
        }
        assert_eq!((known.status, known.code().as_str()), (403, "denied"), "{verb} {path}: {known:?}");
        assert!(!route.gives.is_empty() && route.gives.iter().all(|it| !matches!(it, Gives::Json(status, _) if *status == 403)));
    }
    for wrong in ["Bearer other", "Basic secret", "secret", "Bearer"] {
        let told = house.ask("GET", "/v1/elections/open%2Fa", &[("authorization", wrong)], b"").await;
        assert_eq!(told.status, 401, "{wrong}");
        assert!(!String::from_utf8_lossy(&told.body).contains("secret"), "{told:?}");
    }
    assert_eq!(house.ask("GET", "/v1/elections/open%2Fa", &bearer, b"").await.status, 200);
    house.listen("/v1/elections/open%2Fa/events", "authorization: bearer secret\r\n").await;
}
