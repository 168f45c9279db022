//! A session that ends with its connection ends with the one that speaks for it, on whichever node that is, and with no other.
#![allow(clippy::wildcard_enum_match_arm, reason = "a test wants one kind of answer")]

#[path = "server/cluster.rs"]
mod cluster;

use cluster::{Cluster, LONG, patient, soon};
use incumbent_client::frame::{self, ANSWER_MAX, Inbox, PREAMBLE};
use incumbent_client::message::{Asked, Hello, Sessions, ToClient, ToServer, Told, VERSION, VERSION_OLDEST};
use incumbent_service::server::{Consistency, Handle, Node};
use incumbent_store::command::{Command, OpenSession, Request};
use incumbent_store::query::Query;
use incumbent_store::reply::Reply;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A client's connection, said and heard by hand.
struct Wire {
    tcp: TcpStream,
    inbox: Inbox,
    last: u64,
}

impl Wire {
    async fn connect(node: &Node) -> Wire {
        let mut tcp = TcpStream::connect(node.clients_address().expect("it serves clients")).await.expect("connected");
        tcp.write_all(&PREAMBLE).await.expect("written");
        let mut wire = Wire { tcp, inbox: Inbox::new(), last: 0 };
        let hello = Hello { version: VERSION, oldest: VERSION_OLDEST, ..Hello::default() };
        assert!(matches!(wire.ask(Asked::Hello(hello)).await, Told::Welcome(_)));
        wire
    }

    /// Asks until there is something else to say than "not now".
    async fn ask(&mut self, asked: Asked) -> Told {
        loop {
            self.last += 1;
            let mut bytes = Vec::new();
            frame::append(&ToServer::new(self.last, asked.clone()), &mut bytes);
            self.tcp.write_all(&bytes).await.expect("written");
            let told = timeout(LONG, self.hear()).await.expect("in time");
            if !matches!(told, Told::NotNow(_)) {
                return told;
            }
        }
    }

    async fn hear(&mut self) -> Told {
        loop {
            if let Some(ToClient { told: Some(told), .. }) = self.inbox.take(ANSWER_MAX).expect("ours") {
                return told;
            }
            assert_ne!(self.tcp.read_buf(self.inbox.room()).await.expect("read"), 0, "it was closed");
        }
    }

    async fn open(&mut self) -> u64 {
        let open = OpenSession { ttl_ms: 600_000, ends_with_connection: true, ..OpenSession::default() };
        match self.ask(Asked::Submit(Request::of(Command::OpenSession(open)))).await {
            Told::Outcome(outcome) => match outcome.result() {
                Ok(Reply::Opened(session)) => session,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    async fn bind(&mut self, session: u64, again: bool) {
        let told = self.ask(Asked::Bind(Sessions { sessions: vec![session], again })).await;
        assert!(matches!(told, Told::Bound(_)), "{told:?}");
    }
}

async fn lives(handle: &Handle, session: u64) -> bool {
    soon("an answer", || async {
        match handle.ask(Query::Session(session), Consistency::Linearizable).await {
            Ok(_) => Some(true),
            Err(incumbent_service::server::Unanswered::Refused(_)) => Some(false),
            Err(incumbent_service::server::Unanswered::NotNow(_)) => None,
        }
    })
    .await
}

#[tokio::test]
async fn a_connection_that_was_left_ends_nothing_however_late_it_closes() {
    let mut cluster = Cluster::prepare(None, patient());
    cluster.clients = Some("127.0.0.1:0".to_owned());
    for at in 0..3 {
        cluster.revive(at);
    }
    cluster.leader().await;
    let node = |at: usize| cluster.nodes[at].as_ref().expect("runs");
    let mut first = Wire::connect(node(0)).await;
    let (moved, stays) = (first.open().await, first.open().await);
    first.bind(moved, false).await;
    first.bind(stays, false).await;
    let mut second = Wire::connect(node(1)).await;
    second.bind(moved, true).await;
    // The client's machine closes the first: what it still speaks for ends, and what has moved on does not.
    drop(first);
    let handle = cluster.handle(2);
    soon("one has ended", || async { (!lives(&handle, stays).await).then_some(()) }).await;
    // They were told together and in this order, so by now the other would have ended too.
    assert!(lives(&handle, moved).await, "it is bound to the second connection");
    drop(second);
    soon("its own connection has ended", || async { (!lives(&handle, moved).await).then_some(()) }).await;
}
