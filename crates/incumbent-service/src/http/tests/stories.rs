//! What people do with the API, from the beginning to the end.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::{Desk, Everybody, serve_http};
use super::house::{House, LONG, Port, Street};
use crate::server::{Config, Node};

#[tokio::test]
async fn a_candidate_that_waits_is_answered_when_it_has_won() {
    let house = House::open().await;
    let (first, second) = (house.session(60_000).await, house.session(60_000).await);
    let won = house.done("/v1/elections/billing/campaign", json!({ "session": first, "identity": "web-1" })).await;
    let bid = json!({ "session": second, "identity": "web-2", "value": "10.0.0.2" });
    let waiting = house.post("/v1/elections/billing/campaign?wait=50s", bid);
    let resigning = async {
        // It stands in line before the seat is given back.
        let mut events = house.listen("/v1/elections/billing/events?from=1", "").await;
        while events.next().await.expect("an event").name != "joined" {}
        house.done("/v1/elections/billing/resign", json!({ "token": won["token"] })).await;
    };
    let (told, ()) = tokio::join!(waiting, resigning);
    let told = (told.status, told.json());
    assert_eq!((told.0, &told.1["won"], &told.1["ttl_ms"]), (200, &json!(true), &json!(60_000)));
    let token = |it: &Value| it["token"].as_str().and_then(|it| it.parse::<u64>().ok()).expect("a token");
    assert!(token(&told.1) > token(&won));
    let board = house.look("/v1/elections/billing").await;
    assert_eq!((&board["leaders"][0]["identity"], &board["leaders"][0]["value"]), (&json!("web-2"), &json!("10.0.0.2")));
}

/// A wait that is over says how things stand; a candidate that leaves the line meanwhile is told so.
#[tokio::test]
async fn a_candidate_that_waits_in_vain_is_told_its_place_or_that_it_has_left() {
    let house = House::open().await;
    let (first, second) = (house.session(60_000).await, house.session(60_000).await);
    house.done("/v1/elections/billing/campaign", json!({ "session": first, "identity": "web-1" })).await;
    let bid = json!({ "session": second, "identity": "web-2" });
    let told = house.post("/v1/elections/billing/campaign?wait=10ms", bid.clone()).await;
    assert_eq!((told.status, &told.json()["place"]), (202, &json!(1)));
    let waiting = house.post("/v1/elections/billing/campaign?wait=50s", bid.clone());
    let leaving = async {
        // Watched from before, so whichever comes first is seen.
        house.watched(1).await;
        house.done("/v1/elections/billing/withdraw", json!({ "identity": "web-2" })).await;
    };
    let (told, ()) = tokio::join!(waiting, leaving);
    assert_eq!((told.status, told.code().as_str()), (409, "left"));
    let waiting = house.post("/v1/elections/billing/campaign?wait=50s", bid);
    let ending = async {
        house.watched(1).await;
        let ended = house.ask("DELETE", &format!("/v1/sessions/{second}"), &[], b"").await;
        assert_eq!(ended.status, 200, "{ended:?}");
    };
    let (told, ()) = tokio::join!(waiting, ending);
    assert_eq!((told.status, told.code().as_str()), (409, "left"));
}

/// C76: a command that is repeated, because its answer was lost, is done once, and answered as before.
#[tokio::test]
async fn a_numbered_command_is_done_once() {
    let house = House::open().await;
    let client = house.ask("POST", "/v1/clients", &[], b"").await.json();
    let client = client["client"].as_str().expect("a number").to_owned();
    let key = format!("{client}-1");
    let number = [("Idempotency-Key", key.as_str())];
    let first = house.ask("PUT", "/v1/kv/a", &number, b"one").await;
    house.ask("PUT", "/v1/kv/a", &[], b"two").await;
    let again = house.ask("PUT", "/v1/kv/a", &number, b"one").await;
    assert_eq!((again.status, &again.json()["item"]), (200, &first.json()["item"]));
    assert_eq!(house.look("/v1/kv/a").await["item"]["value"], "two", "not written again");
    for (method, path, body) in [("PUT", "/v1/kv/b", &b"one"[..]), ("DELETE", "/v1/kv/a", b"")] {
        let other = house.ask(method, path, &number, body).await;
        assert_eq!((other.status, other.code().as_str()), (422, "idempotency_key_reused"), "{method} {path}");
    }
    let nobody = house.ask("PUT", "/v1/kv/a", &[("idempotency-key", "999-1")], b"three").await;
    assert_eq!((nobody.status, nobody.code().as_str()), (504, "forgotten"), "it may have happened");
    // A candidacy that is repeated with its number says how things stand, if it may wait for it.
    let (session, other) = (house.session(60_000).await, house.session(60_000).await);
    let won = house.done("/v1/elections/e/campaign", json!({ "session": other, "identity": "b" })).await;
    let key = format!("{client}-2");
    let number = [("Idempotency-Key", key.as_str())];
    let bid = json!({ "session": session, "identity": "a" }).to_string();
    assert_eq!(house.ask("POST", "/v1/elections/e/campaign", &number, bid.as_bytes()).await.status, 202);
    house.done("/v1/elections/e/resign", json!({ "token": won["token"] })).await;
    assert_eq!(house.ask("POST", "/v1/elections/e/campaign", &number, bid.as_bytes()).await.status, 202, "as before");
    let told = house.ask("POST", "/v1/elections/e/campaign?wait=50s", &number, bid.as_bytes());
    let told = tokio::time::timeout(Duration::from_secs(20), told).await.expect("nobody waits for what has happened");
    assert_eq!((told.status, &told.json()["won"]), (200, &json!(true)));
}

/// The fence: what a former leader writes is refused, whenever it comes.
#[tokio::test]
async fn a_former_leader_writes_nothing() {
    let house = House::open().await;
    let session = house.session(60_000).await;
    let won = house.done("/v1/elections/team%2Fbilling/campaign", json!({ "session": session, "identity": "web-1" })).await;
    let token = won["token"].as_str().expect("a token").to_owned();
    let fenced = format!("/v1/kv/ledger?holding=team/billing&token={token}");
    assert_eq!(house.ask("PUT", &fenced, &[], b"1").await.status, 200);
    house.done("/v1/elections/team%2Fbilling/resign", json!({ "token": token })).await;
    let late = house.ask("PUT", &fenced, &[], b"2").await;
    assert_eq!((late.status, late.code().as_str()), (409, "guard_failed"));
    assert_eq!(late.json()["error"]["found"]["value"], "1");
    let late = house.ask("DELETE", &fenced, &[], b"").await;
    assert_eq!(late.code(), "guard_failed");
    let guard = json!({ "holding": { "election": "team/billing", "token": token } });
    let late = house.done("/v1/txn", json!({ "guards": [guard], "then": [{ "put": { "key": "ledger", "value": "3" } }] })).await;
    assert_eq!(late["held"], false);
    assert_eq!(house.look("/v1/kv/ledger").await["item"]["value"], "1");
}

#[tokio::test]
async fn a_node_without_a_majority_says_that_it_is_not_done_and_when_to_try_again() {
    let street = Street::prepare(&[0], Duration::from_millis(300)).await;
    let port = &street.ports[0];
    let ready = port.ask("GET", "/ready", &[], b"").await;
    assert_eq!((ready.status, &ready.json()["ready"]), (503, &json!(false)));
    assert_eq!(ready.json()["why"][0], "nobody leads");
    // It says of each of the others why that is not there.
    let told = async {
        loop {
            let why = port.ask("GET", "/ready", &[], b"").await.json()["why"].to_string();
            if ["node 2 at", "node 3 at"].iter().all(|it| why.contains(it)) && why.matches("nobody listens").count() == 2 {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), told).await.expect("both others are told of");
    assert_eq!(port.ask("GET", "/health", &[], b"").await.status, 200);
    assert_eq!(port.look("/v1/status").await["leader"], Value::Null);
    for answer in [port.ask("PUT", "/v1/kv/a", &[], b"x").await, port.ask("GET", "/v1/kv/a", &[], b"").await] {
        assert_eq!((answer.status, answer.code().as_str()), (503, "no_leader"));
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(answer.json()["error"]["retry_after_ms"], 1000);
    }
    let local = port.ask("GET", "/v1/kv/a?consistency=local", &[], b"").await;
    assert_eq!((local.status, local.code().as_str()), (404, "no_key"), "what it knows it tells");
    assert!(port.look("/v1/elections?consistency=local").await["elections"].is_array());
}

#[tokio::test]
async fn a_node_that_has_ended_says_so() {
    let House { node, port, .. } = House::open().await;
    node.close().await;
    let told = port.ask("PUT", "/v1/kv/a", &[], b"x").await;
    assert!(told.status == 503 || told.status == 0, "{told:?}");
}

/// A client that asks for much and reads nothing does not keep it for ever.
#[tokio::test]
async fn who_does_not_read_its_answer_loses_it() {
    use tokio::io::AsyncWriteExt as _;
    let house = House::open().await;
    house.ask("PUT", "/v1/kv/long", &[], &vec![b'x'; 1 << 20]).await;
    let (mut near, far) = tokio::io::duplex(1 << 10);
    near.write_all(b"GET /v1/kv/long?raw HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("sent");
    let desk = Desk::of(house.node.handle());
    let serving = tokio::spawn(serve_http(far, Vec::new(), desk, Arc::new(Everybody)));
    let mut some = [0; 1];
    tokio::io::AsyncReadExt::read(&mut near, &mut some).await.expect("it has begun to answer");
    tokio::time::pause();
    serving.await.expect("it has ended");
}

#[tokio::test]
async fn a_node_serves_http_on_the_port_for_clients() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = Config { clients: Some("127.0.0.1:0".to_owned()), ..Config::alone(directory.path()) };
    let node = Node::start(config).expect("starts");
    let port = Port::at(node.clients_address().expect("a port"));
    let written = port.ask("PUT", "/v1/kv/a", &[], b"x").await;
    assert_eq!(written.status, 200, "{written:?}");
    assert_eq!(port.look("/v1/kv/a").await["item"]["value"], "x");
    let mut events = port.listen("/v1/watch?from=1", "").await;
    assert_eq!(events.names(1).await, ["put"]);
    drop(node);
    // Whatever its last word is, it ends with the node.
    while events.next().await.is_some() {}
}

#[tokio::test]
async fn a_connection_is_kept_for_the_next_request_and_head_is_get_without_a_body() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let house = House::open().await;
    let mut stream = tokio::net::TcpStream::connect(house.address).await.expect("a connection");
    let two =
        b"HEAD /health HTTP/1.1\r\nhost: localhost\r\n\r\nGET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(two).await.expect("sent");
    let mut told = String::new();
    tokio::time::timeout(LONG, stream.read_to_string(&mut told)).await.expect("in time").expect("read");
    assert_eq!(told.matches("HTTP/1.1 200").count(), 2, "{told}");
    assert_eq!(told.matches("{\"node\":1}").count(), 1, "{told}");
    let head = house.ask("HEAD", "/v1/elections/a/events", &[], b"").await;
    assert_eq!((head.status, head.header("content-type"), &head.body[..]), (200, Some("text/event-stream"), &b""[..]));
}
