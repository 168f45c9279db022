//! Elections on the service of incumbent itself: the conformance suite on one node and on three, and what only it can do.

mod support;

use std::time::Duration;

use incumbent::conformance::{bid, check, fresh_name};
use incumbent::engine::{Bid, Demand, Farewell, Kind, Renewal, Wish};
use incumbent_protocol::protocol::NodeId;
use incumbent_service::replica::Settings;
use incumbent_service::rights;
use incumbent_service::server::{Admission, Config, Consistency, Node, Peer};
use incumbent_store::query::{Answer, Answered, ListSessions, Query};
use incumbent_testbed::port::Port;
use support::processes::{self, Arena};
use support::{Networked, granted_in_the_end, open, token};
use tempfile::TempDir;

/// Nodes in this process, each with a directory and ports of its own.
struct Nodes {
    directory: TempDir,
    ports: Vec<(Port, Port)>,
    nodes: Vec<Option<Node>>,
}

impl Nodes {
    fn start(count: usize) -> Nodes {
        let port = || Port::free().expect("a port");
        let ports = (0..count).map(|_| (port(), port())).collect();
        let mut nodes = Nodes { directory: tempfile::tempdir().expect("a directory"), ports, nodes: Vec::new() };
        nodes.nodes = (0..count).map(|at| Some(nodes.node(at))).collect();
        nodes
    }

    fn node(&self, at: usize) -> Node {
        let id = |at: usize| NodeId(u32::try_from(at + 1).expect("few"));
        let address = |port: &Port| format!("127.0.0.1:{}", port.number());
        let others = self.ports.iter().enumerate().filter(|(other, _)| *other != at);
        Node::start(Config {
            me: id(at),
            listen: address(&self.ports[at].0),
            clients: Some(address(&self.ports[at].1)),
            peers: others.map(|(other, ports)| Peer { id: id(other), address: address(&ports.0) }).collect(),
            // Slow enough for a machine that others use too.
            settings: Settings { tick: Duration::from_millis(20), ..Config::lan() },
            ..Config::alone(self.directory.path().join(at.to_string()))
        })
        .expect("starts")
    }

    fn port(&self, at: usize) -> u16 {
        self.ports[at].1.number()
    }

    fn url(&self) -> String {
        let hosts: Vec<_> = self.ports.iter().map(|it| format!("127.0.0.1:{}", it.1.number())).collect();
        format!("incumbent://{}/test", hosts.join(","))
    }

    /// As if it were killed.
    fn kill(&mut self, at: usize) {
        self.nodes[at] = None;
    }

    fn revive(&mut self, at: usize) {
        self.nodes[at] = Some(self.node(at));
    }

    async fn leader(&self) -> usize {
        let mut role = self.nodes.iter().flatten().next().expect("one runs").handle().role();
        let leader = role.wait_for(|it| it.leader.is_some()).await.expect("it runs").leader;
        leader.map_or(0, |it| it.0 as usize - 1)
    }
}

fn at(port: u16) -> Networked {
    Networked { port, url: |port| format!("incumbent://127.0.0.1:{port}/test?nodes=named"), ttl: Duration::from_millis(1500) }
}

#[tokio::test]
async fn one_node_conforms() {
    let nodes = Nodes::start(1);
    check(&at(nodes.port(0))).await;
}

/// Through one that follows: it passes everything on to the one that leads.
#[tokio::test]
async fn three_nodes_conform() {
    let nodes = Nodes::start(3);
    let follower = (nodes.leader().await + 1) % 3;
    check(&at(nodes.port(follower))).await;
}

#[test]
fn contender() {
    processes::be_a_contender();
}

#[test]
fn processes_that_are_killed_or_paused_are_replaced_and_know_it() {
    let nodes = Nodes::start(3);
    processes::a_killed_holder_is_replaced(&Arena::new(nodes.url(), Duration::from_millis(1500)));
    processes::a_paused_holder_has_stopped_believing(&Arena::new(nodes.url(), Duration::from_millis(1500)));
    let by_lease = format!("{}?death=lease", nodes.url());
    processes::a_killed_holder_is_replaced(&Arena::new(&by_lease, Duration::from_millis(1500)));
}

#[tokio::test]
async fn leaderships_and_tokens_survive_the_leader_and_then_all_nodes() {
    let mut nodes = Nodes::start(3);
    let (subject, election) = (at(nodes.port(0)), fresh_name("restart"));
    let engine = open(&nodes.url()).await.expect("they run");
    let a = Bid { ttl: Duration::from_secs(600), ..bid(&subject, "a") };
    let first = token(&*engine, &election, &a).await.expect("they run").expect("free");
    let leader = nodes.leader().await;
    nodes.kill(leader);
    let renewed = engine.renew(&election, &a, first).await.expect("two are left");
    assert!(matches!(renewed, Renewal::Kept { .. }), "{renewed:?}");
    for other in (0..3).filter(|it| *it != leader) {
        nodes.kill(other);
    }
    let why = engine.renew(&election, &a, first).await.expect_err("they are dead");
    assert_ne!(why.kind(), Kind::Misconfigured, "{why}");
    for at in 0..3 {
        nodes.revive(at);
    }
    let renewed = engine.renew(&election, &a, first).await.expect("they run again");
    assert!(matches!(renewed, Renewal::Kept { .. }), "{renewed:?}");
    engine.release(&election, &a, first, &farewell()).await.expect("released");
    let second = token(&*engine, &election, &bid(&subject, "b")).await.expect("they run");
    assert!(second > Some(first), "{second:?} after {first}");
}

/// Where the seat of a process that dies is free at once, it is because the machine said so: long before the ttl.
#[tokio::test]
async fn a_seat_ends_with_its_connection_where_that_was_wished() {
    let nodes = Nodes::start(1);
    let election = fresh_name("connection");
    let long = Duration::from_secs(600);
    let b = Bid { ttl: long, ..bid(&at(nodes.port(0)), "b") };
    let other = open(&nodes.url()).await.expect("it runs");
    let holder = tokio::task::spawn_blocking({
        let (url, election) = (nodes.url(), election.clone());
        let a = Bid { ttl: long, ..bid(&at(nodes.port(0)), "a") };
        move || {
            // A runtime that is dropped closes its sockets without a word, as a kernel does for a process that died.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async { token(&*open(&url).await.expect("it runs"), &election, &a).await.expect("it runs") })
        }
    });
    let first = holder.await.expect("no panic").expect("free");
    let second = granted_in_the_end(&*other, &election, &b).await;
    assert!(second.token > first, "{second:?} after {first}");
}

fn farewell() -> Farewell {
    Farewell { reason: incumbent::Reason::Resigned, to: None }
}

/// Who withdraws from the line may be given the seat in that very moment, and has not heard of it: nobody would ever give it back.
#[tokio::test]
async fn who_withdraws_gives_back_a_seat_that_it_has_not_heard_of() {
    let nodes = Nodes::start(1);
    let (election, engine) = (fresh_name("withdrawn"), open(&nodes.url()).await.expect("it runs"));
    let [a, b, c] = ["a", "b", "c"].map(|it| Bid { ttl: Duration::from_secs(600), ..bid(&at(nodes.port(0)), it) });
    let first = token(&*engine, &election, &a).await.expect("it runs").expect("free");
    assert_eq!(token(&*engine, &election, &b).await.expect("it runs"), None);
    engine.release(&election, &a, first, &farewell()).await.expect("it runs");
    engine.withdraw(&election, &b).await.expect("it runs");
    assert!(token(&*engine, &election, &c).await.expect("it runs").is_some(), "the seat is held by nobody that knows of it");
}

#[tokio::test]
async fn to_campaign_again_and_again_takes_one_session() {
    let nodes = Nodes::start(1);
    let (election, engine) = (fresh_name("again"), open(&nodes.url()).await.expect("it runs"));
    for round in 0..10 {
        let bid = Bid { ttl: Duration::from_secs(600), ..bid(&at(nodes.port(0)), &format!("candidate-{round}")) };
        let token = token(&*engine, &election, &bid).await.expect("it runs").expect("free");
        engine.release(&election, &bid, token, &farewell()).await.expect("it runs");
        engine.withdraw(&election, &bid).await.expect("it runs");
    }
    assert_eq!(sessions(&nodes).await, 1);
}

async fn sessions(nodes: &Nodes) -> usize {
    let node = nodes.nodes[0].as_ref().expect("it runs").handle();
    let asked = node.ask(Query::Sessions(ListSessions { after: 0, limit: 0 }), Consistency::Linearizable).await;
    let Ok(Answered { answer: Some(Answer::Sessions(found)), .. }) = asked else { panic!("{asked:?}") };
    found.sessions.len()
}

#[tokio::test]
async fn of_a_leadership_that_was_taken_away_no_session_is_left() {
    let nodes = Nodes::start(1);
    let election = fresh_name("taken-away");
    let (engine, other) = (open(&nodes.url()).await.expect("it runs"), open(&nodes.url()).await.expect("it runs"));
    for who in ["a", "b", "c"] {
        let bid = Bid { ttl: Duration::from_secs(600), ..bid(&at(nodes.port(0)), who) };
        let token = token(&*engine, &election, &bid).await.expect("it runs").expect("free");
        other.release(&election, &bid, token, &farewell()).await.expect("it runs");
        let renewed = engine.renew(&election, &bid, token).await.expect("it runs");
        assert!(matches!(renewed, Renewal::Gone), "{renewed:?}");
        engine.withdraw(&election, &bid).await.expect("it runs");
    }
    assert_eq!(sessions(&nodes).await, 0);
}

/// Who may stand and no more asks a leader to make way for itself, if it is better, and for nobody else.
#[cfg(unix)]
#[tokio::test]
async fn a_better_candidate_needs_no_right_to_evict_to_ask_for_the_seat() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().expect("a folder");
    let [one, two] = ["one", "two"].map(|it| rights::make(it, "campaign:test/").expect("made"));
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, format!("{}\n{}\n", one.line, two.line)).expect("written");
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    let admission = Admission { tls: None, tokens: Some(tokens) };
    let config = Config { clients: Some("127.0.0.1:0".to_owned()), admission, ..Config::alone(folder.path().join("node")) };
    let node = Node::start(config).expect("starts");
    let address = node.clients_address().expect("clients are served");
    let [leads, better] = [one, two].map(|it| format!("incumbent://:{}@{address}/test", it.token));
    let (leads, better) = (open(&leads).await.expect("let in"), open(&better).await.expect("let in"));
    let election = fresh_name("better");
    let [a, b] = [("a", 0), ("b", 1)].map(|(who, priority)| Bid {
        ttl: Duration::from_secs(600),
        priority,
        ..bid(&at(address.port()), who)
    });
    let held = token(&*leads, &election, &a).await.expect("allowed").expect("free");
    let wish = |to: &str| Wish { token: held, what: Demand::HandOver(to.to_owned()), by: "b".to_owned() };
    assert!(better.ask(&election, &wish(b.identity.as_str())).await.is_err(), "it does not stand there");
    assert_eq!(token(&*better, &election, &b).await.expect("allowed"), None);
    assert!(better.ask(&election, &wish("ghost")).await.is_err(), "nobody stands there");
    better.ask(&election, &wish(b.identity.as_str())).await.expect("it is better");
    let renewed = leads.renew(&election, &a, held).await.expect("allowed");
    assert!(matches!(&renewed, Renewal::Kept { wish: Some(it), .. } if *it == wish(b.identity.as_str())), "{renewed:?}");
}

#[tokio::test]
async fn trouble_is_said_in_one_line_with_what_to_do() {
    let nodes = Nodes::start(1);
    let port = nodes.port(0);
    for (bad, word) in [
        (format!("incumbent://127.0.0.1:{port}/t?cluster=other"), "not other"),
        (format!("incumbent://127.0.0.1:{port}/t?death=soon"), "death=connection"),
        (format!("incumbent://127.0.0.1:{port}/t?nodes=some"), "nodes=all"),
        (format!("incumbent://127.0.0.1:{port}/t?work=there"), "work=here"),
        (format!("incumbent://127.0.0.1:{port}/t?colour=red"), "no option"),
        ("incumbent://192.0.2.1:7272/t".to_owned(), "TLS"),
    ] {
        let why = open(&bad).await.err().unwrap_or_else(|| panic!("{bad} was taken, without {word}"));
        assert_eq!(why.kind(), Kind::Misconfigured, "{bad}: {why}");
        assert!(why.to_string().contains(word) && !why.to_string().contains('\n'), "{bad}: {why}");
    }
    // A service that is away may come back: the engine opens, and each call says what is the matter.
    let engine = open("incumbent://127.0.0.1:1/t").await.expect("it may come back");
    let why = engine.look(&fresh_name("away")).await.expect_err("nobody is there");
    assert!(why.kind() == Kind::Refused && why.to_string().contains("refused"), "{why:?}");
}
