//! What clients may take of the node: room for what they bring and do not read, and the time of the thread that serves everybody.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use incumbent_store::command::Request;
use incumbent_store::query::Query;
use incumbent_store::watch::Interest;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::super::border::{Denial, Visitor};
use super::super::limits::{STRANGER_ANSWERED_AT_ONCE, STRANGER_ANSWERED_EVERY};
use super::super::{Desk, Everybody, Gate, serve_http};
use super::house::{House, LONG, Port};
use super::refusals::Reader;
use crate::server::Pool;

async fn until(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, waiting).await.unwrap_or_else(|_| panic!("in time: {what}"));
}

/// Takes a token for the name of whoever brings it, who may do everything.
struct ByName;

struct Named(String);

impl Gate for ByName {
    fn admit(&self, token: Option<&str>) -> Result<Arc<dyn Visitor>, Denial> {
        Ok(Arc::new(Named(token.unwrap_or_default().to_owned())))
    }

    fn is_open(&self) -> bool {
        true
    }

    fn knows_somebody(&self) -> bool {
        true
    }
}

impl Visitor for Named {
    fn name(&self) -> &str {
        &self.0
    }

    fn sign(&self, request: Request) -> Result<Request, Denial> {
        Ok(request)
    }

    fn may_ask(&self, _: &Query) -> Result<(), Denial> {
        Ok(())
    }

    fn may_watch(&self, _: &Interest) -> Result<(), Denial> {
        Ok(())
    }

    fn withdrawn(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::pending())
    }
}

/// A node whose desk has little room.
async fn cramped(bodies: usize, answers: usize) -> (House, Arc<Desk>, Port) {
    let house = House::open().await;
    let desk = Desk::of(house.node.handle());
    let streams = Arc::clone(&desk.streams);
    let handle = house.node.handle();
    let desk = Arc::new(Desk { handle, streams, bodies: Pool::new(bodies), answers: Pool::new(answers) });
    let port = Port::at_desk(Arc::clone(&desk), Arc::new(ByName)).await;
    (house, desk, port)
}

#[tokio::test]
async fn bodies_that_are_on_their_way_are_bounded_and_the_next_is_told_to_come_again() {
    let (_house, desk, port) = cramped(3_000, 1 << 20).await;
    let mut slow = TcpStream::connect(port.address).await.expect("a connection");
    let head = "PUT /v1/kv/a HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 1000\r\n\r\n";
    slow.write_all(head.as_bytes()).await.expect("sent");
    until("what was announced is counted", || desk.bodies.taken() == 1_000).await;
    let told = port.ask("PUT", "/v1/kv/b", &[], &[b'x'; 501]).await;
    assert_eq!((told.status, told.code().as_str(), told.header("retry-after")), (503, "busy", Some("1")));
    assert_eq!(port.ask("PUT", "/v1/kv/b", &[], &[b'x'; 500]).await.status, 200, "as much as is left then");
    // Whoever does not say how much comes may bring as much as may come at all.
    let chunked =
        "POST /v1/txn HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
    assert_eq!(port.say(chunked.as_bytes()).await.code(), "busy");
    slow.write_all(&[b'x'; 1_000]).await.expect("sent");
    let mut told = String::new();
    slow.read_to_string(&mut told).await.expect("told");
    assert!(told.starts_with("HTTP/1.1 200"), "{told}");
    until("it is given back", || desk.bodies.taken() == 0).await;
}

#[tokio::test]
async fn answers_that_nobody_reads_are_bounded_and_no_command_is_said_not_to_be_done_for_it() {
    const VALUE: usize = 1_000_000;
    let (house, desk, port) = cramped(16 << 20, 3 * VALUE).await;
    assert_eq!(house.ask("PUT", "/v1/kv/a", &[], &[b'x'; VALUE]).await.status, 200);
    let (mut near, far) = tokio::io::duplex(1024);
    near.write_all(b"/v1/kv/a?raw HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("sent");
    let unread = tokio::spawn(serve_http(far, b"GET ".to_vec(), Arc::clone(&desk), Arc::new(Everybody)));
    until("what is not read is counted", || desk.answers.taken() >= VALUE).await;
    let told = port.ask("GET", "/v1/kv/a", &[], b"").await;
    assert_eq!((told.status, told.code().as_str(), told.header("retry-after")), (503, "busy", Some("1")));
    let both = json!({ "then": [{ "put": { "key": "b" } }, { "read": { "key": "a" } }] });
    let told = port.post("/v1/txn", both).await;
    assert_eq!((told.status, told.code().as_str()), (504, "answer_dropped"), "it was done");
    let told = port.ask("PUT", "/v1/kv/a?if-absent", &[], b"y").await;
    assert_eq!((told.status, told.code().as_str()), (409, "guard_failed"), "without what was found, for which there is no room");
    port.look("/v1/kv/b").await;
    // Read to its end, or not any more.
    drop(near);
    unread.await.expect("no panic");
    until("it is given back", || desk.answers.taken() == 0).await;
    port.look("/v1/kv/a").await;
}

#[tokio::test]
async fn whoever_takes_all_the_room_it_gets_leaves_some_for_others() {
    const VALUE: usize = 1_000;
    let (house, desk, port) = cramped(3 * VALUE, 3 * VALUE).await;
    assert_eq!(house.ask("PUT", "/v1/kv/a", &[], &[b'x'; VALUE]).await.status, 200);
    let mut bringing = TcpStream::connect(port.address).await.expect("a connection");
    let head =
        format!("PUT /v1/kv/b HTTP/1.1\r\nhost: localhost\r\nauthorization: bearer one\r\ncontent-length: {VALUE}\r\n\r\n");
    bringing.write_all(head.as_bytes()).await.expect("sent");
    let (mut near, far) = tokio::io::duplex(100);
    near.write_all(b"/v1/kv/a?raw HTTP/1.1\r\nhost: localhost\r\nauthorization: bearer one\r\n\r\n").await.expect("sent");
    tokio::spawn(serve_http(far, b"GET ".to_vec(), Arc::clone(&desk), Arc::new(ByName)));
    until("both are counted", || (desk.bodies.taken(), desk.answers.taken()) == (VALUE, VALUE)).await;
    for (guest, status) in [("one", 503), ("other", 200)] {
        let bearer = format!("Bearer {guest}");
        let bearer = [("authorization", bearer.as_str())];
        assert_eq!(port.ask("PUT", "/v1/kv/c", &bearer, &[b'x'; VALUE]).await.status, status, "{guest}");
        assert_eq!(port.ask("GET", "/v1/kv/a?raw", &bearer, b"").await.status, status, "{guest}");
    }
}

/// Asks so often on one connection, at once, and waits for all answers: how long it took, in virtual time.
async fn ask_at_once(desk: Arc<Desk>, gate: Arc<dyn Gate>, times: u32) -> Duration {
    let (near, far) = tokio::io::duplex(1 << 20);
    tokio::spawn(serve_http(far, Vec::new(), desk, gate));
    let begun = Instant::now();
    let (mut reader, mut writer): (_, tokio::io::WriteHalf<DuplexStream>) = tokio::io::split(near);
    let request = "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(times as usize - 1);
    let last = "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    writer.write_all((request + last).as_bytes()).await.expect("sent");
    let mut told = String::new();
    reader.read_to_string(&mut told).await.expect("told");
    assert_eq!(told.matches("HTTP/1.1 200").count(), times as usize);
    begun.elapsed()
}

#[tokio::test]
async fn a_connection_of_strangers_is_answered_slowly_and_one_of_those_who_are_known_is_not() {
    let house = House::open().await;
    let desk = Desk::of(house.node.handle());
    tokio::time::pause();
    let passed = ask_at_once(Arc::clone(&desk), Arc::new(Reader), STRANGER_ANSWERED_AT_ONCE + 20).await;
    assert!(passed >= 20 * STRANGER_ANSWERED_EVERY, "{passed:?}");
    let passed = ask_at_once(desk, Arc::new(Everybody), STRANGER_ANSWERED_AT_ONCE + 20).await;
    assert!(passed < STRANGER_ANSWERED_EVERY, "{passed:?}");
    tokio::time::resume();
}
