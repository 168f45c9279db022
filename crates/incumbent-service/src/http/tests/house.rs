//! A node with HTTP on loopback, and what a test says to it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use incumbent_peer::switchboard::Peer;
use incumbent_protocol::protocol::NodeId;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::super::{Desk, Everybody, Gate, serve_http};
use crate::replica::Settings;
use crate::server::{Config, Handle, Node};

/// A test waits for what will happen at once, unless the machine is very busy.
pub(super) const LONG: Duration = Duration::from_secs(60);

/// A port on which a node is asked.
pub(super) struct Port {
    pub(super) address: SocketAddr,
    accepting: Option<AbortHandle>,
}

impl Port {
    /// One that somebody else serves.
    pub(super) fn at(address: SocketAddr) -> Port {
        Port { address, accepting: None }
    }

    pub(super) async fn of(handle: Handle, gate: Arc<dyn Gate>) -> Port {
        Port::at_desk(Desk::of(handle), gate).await
    }

    pub(super) async fn at_desk(desk: Arc<Desk>, gate: Arc<dyn Gate>) -> Port {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let accepting = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (desk, gate) = (Arc::clone(&desk), Arc::clone(&gate));
                tokio::spawn(async move {
                    // As a door does that wants to see what is spoken.
                    let mut begun = vec![0; 4];
                    let some = stream.read(&mut begun).await.unwrap_or(0);
                    begun.truncate(some);
                    serve_http(stream, begun, desk, gate).await;
                });
            }
        });
        Port { address, accepting: Some(accepting.abort_handle()) }
    }

    /// Asks, and waits for the whole answer.
    pub(super) async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        let mut sent = (head + "\r\n").into_bytes();
        sent.extend_from_slice(body);
        self.say(&sent).await
    }

    /// Says this, and waits until the other side closes.
    pub(super) async fn say(&self, bytes: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.expect("a connection");
        // A server that has heard enough may have closed before all of it was sent.
        let _ = stream.write_all(bytes).await;
        let mut told = Vec::new();
        let _ = timeout(LONG, stream.read_to_end(&mut told)).await.expect("an answer in time");
        Answer::parse(&told)
    }

    pub(super) async fn look(&self, path: &str) -> Value {
        let answer = self.ask("GET", path, &[], b"").await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    }

    pub(super) async fn post(&self, path: &str, body: Value) -> Answer {
        self.ask("POST", path, &[], body.to_string().as_bytes()).await
    }

    /// The same, and it must be done.
    pub(super) async fn done(&self, path: &str, body: Value) -> Value {
        let answer = self.post(path, body).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    }

    pub(super) async fn session(&self, ttl_ms: u64) -> String {
        let opened = self.done("/v1/sessions", serde_json::json!({ "ttl_ms": ttl_ms, "owner": "test" })).await;
        opened["session"].as_str().expect("a session").to_owned()
    }

    /// Listens to a stream. By HTTP/1.0, which has no chunks: what comes is what is told.
    pub(super) async fn listen(&self, path: &str, headers: &str) -> Listener {
        let mut stream = TcpStream::connect(self.address).await.expect("a connection");
        let head = format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).await.expect("sent");
        let mut listener = Listener(BufReader::new(stream));
        let head = listener.block().await.expect("a head");
        assert!(head.starts_with("HTTP/1.0 200") && head.contains("text/event-stream"), "{head}");
        listener
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if let Some(accepting) = &self.accepting {
            accepting.abort();
        }
    }
}

/// One node alone, with its port.
pub(super) struct House {
    pub(super) node: Node,
    pub(super) port: Port,
    _directory: TempDir,
}

impl House {
    pub(super) async fn open() -> House {
        House::guarded(Arc::new(Everybody)).await
    }

    pub(super) async fn guarded(gate: Arc<dyn Gate>) -> House {
        let directory = tempfile::tempdir().expect("a directory");
        let node = Node::start(Config::alone(directory.path())).expect("starts");
        // The first thing that a node writes is where it is: so the numbers of what follows are known.
        node.handle().members().wait_for(|it| !it.is_empty()).await.expect("runs");
        let port = Port::of(node.handle(), gate).await;
        House { node, port, _directory: directory }
    }

    /// Waits until so many watch on the node.
    pub(super) async fn watched(&self, count: usize) {
        let looking = async {
            while self.node.handle().status().await.is_none_or(|it| it.watches != count) {
                tokio::task::yield_now().await;
            }
        };
        timeout(LONG, looking).await.expect("watches");
    }
}

impl std::ops::Deref for House {
    type Target = Port;

    fn deref(&self) -> &Port {
        &self.port
    }
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Answer {
        let end = bytes.windows(4).position(|it| it == b"\r\n\r\n");
        let Some(end) = end else { return Answer { status: 0, head: String::new(), body: bytes.to_vec() } };
        let head = String::from_utf8(bytes[..end].to_vec()).expect("text").to_lowercase();
        let status = head.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or(0);
        Answer { status, head, body: bytes[end + 4..].to_vec() }
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    #[track_caller]
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|why| panic!("{why}: {self:?}"))
    }

    /// The code of an error, which must be whole.
    #[track_caller]
    pub(super) fn code(&self) -> String {
        let told = self.json();
        let error = &told["error"];
        for field in ["code", "message", "what_to_do"] {
            assert!(error[field].as_str().is_some_and(|it| !it.is_empty()), "{told}");
        }
        error["code"].as_str().expect("a code").to_owned()
    }
}

/// A stream, told in blocks.
pub(super) struct Listener(BufReader<TcpStream>);

/// An event as it was told.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Heard {
    pub(super) id: Option<u64>,
    pub(super) name: String,
    pub(super) told: Value,
}

impl Listener {
    /// All lines up to an empty one; `None` at the end.
    pub(super) async fn block(&mut self) -> Option<String> {
        let mut block = String::new();
        loop {
            let before = block.len();
            let some = timeout(LONG, self.0.read_line(&mut block)).await.expect("something in time").unwrap_or(0);
            if some == 0 {
                return None;
            }
            if block[before..].trim_end().is_empty() {
                return Some(block);
            }
        }
    }

    /// The next event, signs of life left out; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Heard> {
        loop {
            let block = self.block().await?;
            let field = |name: &str| block.lines().find_map(|it| it.strip_prefix(name)?.strip_prefix(": "));
            if let Some(told) = field("data") {
                let told = serde_json::from_str(told).expect("json");
                return Some(Heard { id: field("id").and_then(|it| it.parse().ok()), name: field("event")?.to_owned(), told });
            }
        }
    }

    /// The names of the next events.
    pub(super) async fn names(&mut self, count: usize) -> Vec<String> {
        let mut names = Vec::new();
        for _ in 0..count {
            names.push(self.next().await.expect("an event").name);
        }
        names
    }
}

/// Three nodes, each with a port for HTTP.
pub(super) struct Street {
    _directories: TempDir,
    _claims: Vec<incumbent_testbed::port::Port>,
    pub(super) nodes: Vec<Option<Node>>,
    pub(super) ports: Vec<Port>,
}

impl Street {
    pub(super) async fn open() -> Street {
        let street = Street::prepare(&[0, 1, 2], Duration::from_secs(20)).await;
        street.leader().await;
        street
    }

    /// Only these run.
    pub(super) async fn prepare(running: &[usize], patience: Duration) -> Street {
        let directories = tempfile::tempdir().expect("a directory");
        let claims: Vec<_> = (0..3).map(|_| incumbent_testbed::port::Port::free().expect("a port")).collect();
        let address = |at: usize| format!("127.0.0.1:{}", claims[at].number());
        let id = |at: usize| NodeId(u32::try_from(at).expect("small") + 1);
        let (mut nodes, mut ports) = (Vec::new(), Vec::new());
        for at in running.iter().copied() {
            let peers = (0..3).filter(|it| *it != at).map(|it| Peer { id: id(it), address: address(it) });
            let settings = Settings { tick: Duration::from_millis(20), patience, ..Config::lan() };
            let directory = directories.path().join(at.to_string());
            let config = Config { me: id(at), listen: address(at), peers: peers.collect(), settings, ..Config::alone(directory) };
            let node = Node::start(config).expect("starts");
            ports.push(Port::of(node.handle(), Arc::new(Everybody)).await);
            nodes.push(Some(node));
        }
        Street { _directories: directories, _claims: claims, nodes, ports }
    }

    /// Which of those that run leads, when all of them know it.
    pub(super) async fn leader(&self) -> usize {
        let looking = async {
            loop {
                let running: Vec<(usize, Handle)> =
                    self.nodes.iter().enumerate().filter_map(|(at, it)| Some((at, it.as_ref()?.handle()))).collect();
                let leads = running.iter().find(|(_, it)| it.role().borrow().leads);
                if let Some((at, leader)) = leads
                    && running.iter().all(|(_, it)| it.role().borrow().leader == Some(leader.me()))
                {
                    return *at;
                }
                tokio::task::yield_now().await;
            }
        };
        timeout(LONG, looking).await.expect("a leader that all know")
    }
}
