//! Nodes that elect one of themselves: the suite, and what only they can suffer. Real sockets on loopback, real disks.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use incumbent::conformance::{Subject, check};
use incumbent::election::Builder;
use incumbent::engine::{Bid, Board, Claim, Demand, Farewell, Renewal, Seat, Wish};
use incumbent::place::Place;
use incumbent::{Election, Engine, Error, Guarantees, Identity, Name, Reason, Timing, Token, engines};

/// A first claim waits a twelfth of this for the election: longer than a busy disk takes for its votes.
const TTL: Duration = Duration::from_secs(4);

/// Three nodes in this process, each with a disk of its own; whoever wants an engine gets the next of them.
struct Group {
    nodes: Vec<Arc<dyn Engine>>,
    addresses: Vec<String>,
    next: AtomicUsize,
    ttl: Duration,
    _disk: tempfile::TempDir,
}

impl Group {
    async fn of(count: usize, options: &str, ttl: Duration) -> Group {
        let disk = tempfile::tempdir().expect("a folder");
        // Bound together, so that no two are the same.
        let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
        let addresses: Vec<_> = listeners.iter().map(|it| it.local_addr().expect("bound").to_string()).collect();
        drop(listeners);
        let mut nodes = Vec::new();
        for me in 1..=count {
            let data = disk.path().join(me.to_string());
            let hosts = addresses.join(",");
            let url = format!("peers://{hosts}/test?me={me}&data={}&patience={}ms{options}", data.display(), ttl.as_millis());
            nodes.push(on_its_own_thread(Place::parse(&url).expect("a good URL")).await);
        }
        Group { nodes, addresses, next: AtomicUsize::new(0), ttl, _disk: disk }
    }

    fn node(&self) -> Arc<dyn Engine> {
        Arc::clone(&self.nodes[self.next.fetch_add(1, Ordering::Relaxed) % self.nodes.len()])
    }
}

/// A node that stays when an election on it is over: the others are on it too.
struct Stays(Arc<dyn Engine>);

#[async_trait]
impl Engine for Stays {
    fn guarantees(&self) -> Guarantees {
        self.0.guarantees()
    }

    async fn claim(&self, election: &Name, bid: &Bid) -> Result<Claim, Error> {
        self.0.claim(election, bid).await
    }

    async fn renew(&self, election: &Name, bid: &Bid, token: Token) -> Result<Renewal, Error> {
        self.0.renew(election, bid, token).await
    }

    async fn release(&self, election: &Name, bid: &Bid, token: Token, farewell: &Farewell) -> Result<(), Error> {
        self.0.release(election, bid, token, farewell).await
    }

    async fn look(&self, election: &Name) -> Result<Board, Error> {
        self.0.look(election).await
    }

    async fn inquire(&self, election: &Name, bid: &Bid) -> Result<Seat, Error> {
        self.0.inquire(election, bid).await
    }

    async fn withdraw(&self, election: &Name, bid: &Bid) -> Result<(), Error> {
        self.0.withdraw(election, bid).await
    }

    async fn proclaim(&self, election: &Name, bid: &Bid, token: Token, value: &str) -> Result<(), Error> {
        self.0.proclaim(election, bid, token, value).await
    }

    async fn ask(&self, election: &Name, wish: &Wish) -> Result<(), Error> {
        self.0.ask(election, wish).await
    }

    async fn raise(&self, election: &Name, above: Token) -> Result<(), Error> {
        self.0.raise(election, above).await
    }

    async fn annotate(&self, election: &Name, token: Token, text: &str) -> Result<(), Error> {
        self.0.annotate(election, token, text).await
    }

    fn watch(&self, election: &Name, bid: Option<&Bid>) -> BoxStream<'static, Result<(), Error>> {
        self.0.watch(election, bid)
    }
}

/// A node with a thread of its own, as the library gives it one: a blocked test must not block it.
async fn on_its_own_thread(place: Place) -> Arc<dyn Engine> {
    let (opened, engine) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let engine = engines::open(&place).await.unwrap_or_else(|why| panic!("{place}: {why}"));
            let _ = opened.send(Arc::new(Stays(engine)) as Arc<dyn Engine>);
            // Ends with the test.
            std::future::pending::<()>().await;
        });
    });
    engine.await.expect("it was opened")
}

#[async_trait]
impl Subject for Group {
    async fn engine(&self) -> Arc<dyn Engine> {
        self.node()
    }

    fn election(&self, name: &Name) -> Builder {
        Election::with(self.node(), name.as_str()).timing(Timing::of(self.ttl).build().expect("a good ttl"))
    }

    fn ttl(&self) -> Duration {
        self.ttl
    }
}

#[tokio::test]
async fn three_raft_nodes_keep_the_contract() {
    check(&Group::of(3, "", TTL).await).await;
}

#[tokio::test]
async fn so_do_three_that_elect_by_bully() {
    check(&Group::of(3, "&protocol=bully", TTL).await).await;
}

#[tokio::test]
async fn and_by_the_rings() {
    check(&Group::of(3, "&protocol=ring", TTL).await).await;
    check(&Group::of(3, "&protocol=chang-roberts", TTL).await).await;
}

#[tokio::test]
async fn one_node_alone_is_its_own_majority() {
    let group = Group::of(1, "", TTL).await;
    let election = group.election(&Name::new("alone").expect("a good name")).build().await.expect("it is there");
    let first = election.campaign().await.expect("nothing is wrong with it");
    let token = first.token();
    first.resign().await.expect("nothing is wrong with it");
    let second = election.campaign().await.expect("nothing is wrong with it");
    assert!(second.token() > token && second.check().is_ok());
}

#[tokio::test]
async fn an_operator_looks_asks_and_notes_but_does_not_contend() {
    let group = Group::of(3, "", TTL).await;
    let name = Name::new("billing").expect("a good name");
    let election = group.election(&name).identity(Identity::named("a").expect("a good name")).build().await.expect("it is there");
    let leadership = election.campaign().await.expect("nothing is wrong with it");
    let url = format!("peers://{}/test", group.addresses.join(","));
    let outside =
        Election::on(&url).name("billing").timing(Timing::of(Duration::from_secs(1)).build().expect("good")).build().await;
    let outside = outside.expect("any node answers");
    let board = outside.look().await.expect("any node answers");
    assert_eq!(board.leaders.first().map(|it| it.identity.name().to_owned()).as_deref(), Some("a"));
    outside.annotate(leadership.token(), "seen").await.expect("all nodes are up");
    assert_eq!(election.look().await.expect("it answers").notes[0].text, "seen");
    outside.ask(Demand::Evict, "the suite").await.expect("it leads");
    let reason = leadership.stopping().await;
    assert_eq!(reason, Reason::Evicted);
    leadership.resign().await.expect("nothing is wrong with it");
    let refused = outside.campaign().await.expect_err("it is no member");
    assert!(refused.to_string().contains("me=N"), "{refused}");
    let group = incumbent::engines::peers::Group::at(&Place::parse(&url).expect("a good URL")).await.expect("any node answers");
    let report = group.report().await.expect("any node answers");
    assert_eq!(report["members"].as_array().map(Vec::len), Some(3), "{report:#}");
}

/// A node has one address and one directory: whoever asks for it while it is opened, or while the last one closes, waits.
#[tokio::test]
async fn elections_built_at_once_or_right_after_another_on_one_url_share_their_node() {
    let disk = tempfile::tempdir().expect("a folder");
    let address = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound");
    let url = format!("peers://{address}/g?me=1&data={}&patience=1s", disk.path().display());
    for round in 0..5 {
        let builds = ["a", "a", "b"].map(|name| Election::on(&url).name(name).build());
        for built in futures_util::future::join_all(builds).await {
            built.unwrap_or_else(|why| panic!("round {round}: {why}"));
        }
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_url_is_said_in_one_line() {
    for (url, says) in [
        ("peers:/group?me=1", "names no members"),
        ("peers://127.0.0.1:1,127.0.0.1:2/g?me=3", "none of the members 1, 2"),
        ("peers://127.0.0.1:1/g?me=one", "me=one: it must be a number"),
        ("peers://127.0.0.1:1/g?me=1&protocol=paxos", "paxos"),
        ("peers://127.0.0.1:1/g?me=1&guard=most", "guard=majority"),
        ("peers://127.0.0.1:1/g?me=1&patience=1", "span of time"),
        ("peers://127.0.0.1:1/g?me=1&patience=1ms", "patience=1ms"),
        ("peers://127.0.0.1:1/g?me=1&death=maybe", "death=refused or death=lease"),
        ("peers://127.0.0.1:1/g?me=1&work=there", "work=elsewhere"),
        ("peers://127.0.0.1:1,127.0.0.1:2/g?me=1&ids=1", "1 ids to 2 hosts"),
        ("peers://127.0.0.1:1,127.0.0.1:2/g?me=1&ids=1,1", "named twice"),
        ("peers://127.0.0.1:1/g?me=1&key-file=/nowhere/key", "/nowhere/key"),
        ("peers://127.0.0.1:1/g?me=1&ca=/a", "cert=FILE"),
        ("peers://127.0.0.1:1/g?protocol=raft", "is for members"),
        ("peers://10.255.255.1:1,10.255.255.2:1/g?me=1", "key"),
    ] {
        let opened = engines::open(&Place::parse(url).expect("a URL")).await;
        let why = opened.err().unwrap_or_else(|| panic!("{url} was accepted")).to_string();
        assert!(why.contains(says) && !why.contains('\n'), "{url}: {why}");
    }
}
