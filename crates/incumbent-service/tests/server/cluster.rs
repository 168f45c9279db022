//! Three nodes on loopback, and what a test says to them.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test wants one kind of answer")]

use std::future::Future;
use std::path::Path;
use std::task::Poll;
use std::time::Duration;

use incumbent_peer::switchboard::Peer;
use incumbent_protocol::protocol::NodeId;
use incumbent_service::log::Options;
use incumbent_service::log::sim::SimDisk;
use incumbent_service::replica::Settings;
use incumbent_service::server::{Batch, Config, Consistency, Handle, Node, NodeStatus, Outcome, Unanswered};
use incumbent_store::command::{Command, OpenSession, Request};
use incumbent_store::keys::item::{Item, Span};
use incumbent_store::keys::transaction::Put;
use incumbent_store::query::{Answer, Query, Range};
use incumbent_store::reply::Reply;
use incumbent_testbed::port::Port;
use tempfile::TempDir;
use tokio::time::timeout;

/// A test waits for what will happen at once, unless the machine is very busy.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Three nodes, each with a directory and a port of its own.
pub(crate) struct Cluster {
    directories: TempDir,
    ports: [Port; 3],
    pub(crate) settings: Settings,
    pub(crate) log: Options,
    /// Where clients are served, if they are.
    pub(crate) clients: Option<String>,
    /// Simulated ones; else the nodes use real directories.
    pub(crate) disks: Option<[SimDisk; 3]>,
    pub(crate) nodes: [Option<Node>; 3],
}

/// Slow enough for a machine that others use too.
pub(crate) fn patient() -> Settings {
    Settings { tick: Duration::from_millis(20), patience: Duration::from_secs(20), ..Config::lan() }
}

impl Cluster {
    /// On real disks.
    pub(crate) fn start(settings: Settings) -> Cluster {
        Cluster::start_on(None, settings)
    }

    pub(crate) fn start_on(disks: Option<[SimDisk; 3]>, settings: Settings) -> Cluster {
        let mut cluster = Cluster::prepare(disks, settings);
        for at in 0..3 {
            cluster.revive(at);
        }
        cluster
    }

    /// Nobody runs yet.
    pub(crate) fn prepare(disks: Option<[SimDisk; 3]>, settings: Settings) -> Cluster {
        let directories = tempfile::tempdir().expect("a directory");
        let ports = std::array::from_fn(|_| Port::free().expect("a port"));
        Cluster { directories, ports, settings, log: Options::default(), clients: None, disks, nodes: [None, None, None] }
    }

    pub(crate) fn config(&self, at: usize) -> Config {
        let config = config(at, self.directories.path(), &self.settings, self.ports());
        Config { log: self.log, clients: self.clients.clone(), ..config }
    }

    pub(crate) fn directories(&self) -> &Path {
        self.directories.path()
    }

    pub(crate) fn ports(&self) -> [u16; 3] {
        self.ports.each_ref().map(Port::number)
    }

    pub(crate) fn revive(&mut self, at: usize) {
        let started = match &self.disks {
            Some(disks) => Node::start_on(disks[at].clone(), self.config(at)),
            None => Node::start(self.config(at)),
        };
        self.nodes[at] = Some(started.expect("starts"));
    }

    /// As if it were killed.
    pub(crate) fn kill(&mut self, at: usize) {
        self.nodes[at] = None;
    }

    pub(crate) fn handle(&self, at: usize) -> Handle {
        self.nodes[at].as_ref().expect("runs").handle()
    }

    pub(crate) fn running(&self) -> Vec<usize> {
        (0..3).filter(|at| self.nodes[*at].is_some()).collect()
    }

    /// Waits until one of the running nodes leads and all of them know it.
    pub(crate) async fn leader(&self) -> usize {
        let running = self.running();
        let mut roles: Vec<_> = running.iter().map(|at| self.handle(*at).role()).collect();
        let looking = async {
            loop {
                let first = roles[0].borrow_and_update().leader;
                let agreed = roles.iter_mut().all(|it| it.borrow_and_update().leader == first);
                let leader = running.iter().copied().find(|at| Some(id(*at)) == first);
                if let Some(leader) = leader.filter(|at| agreed && self.handle(*at).role().borrow().leads) {
                    return leader;
                }
                let mut changes: Vec<_> = roles.iter_mut().map(|it| Box::pin(it.changed())).collect();
                std::future::poll_fn(|cx| {
                    let changed = changes.iter_mut().any(|it| it.as_mut().poll(cx).is_ready());
                    if changed { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
            }
        };
        timeout(LONG, looking).await.expect("a leader that all know")
    }

    /// Waits until these nodes follow the same leader, whoever it is.
    pub(crate) async fn leader_among(&self, nodes: &[usize]) -> NodeId {
        soon("a leader that they agree on", || async {
            let first = self.status(nodes[0]).await.role.leader?;
            for at in &nodes[1..] {
                if self.status(*at).await.role.leader != Some(first) {
                    return None;
                }
            }
            Some(first)
        })
        .await
    }

    pub(crate) async fn status(&self, at: usize) -> NodeStatus {
        self.handle(at).status().await.expect("runs")
    }

    /// Waits until all running nodes have applied the same, and are equal.
    pub(crate) async fn equal(&self) {
        let running = self.running();
        soon("equal nodes", || async {
            let mut seen = Vec::new();
            for at in &running {
                seen.push(self.handle(*at).digest().await.expect("runs"));
            }
            seen.windows(2).all(|two| two[0] == two[1]).then_some(())
        })
        .await;
    }
}

pub(crate) fn config(at: usize, directories: &Path, settings: &Settings, ports: [u16; 3]) -> Config {
    let address = |at: usize| format!("127.0.0.1:{}", ports[at]);
    let others = (0..3).filter(|it| *it != at);
    Config {
        me: id(at),
        listen: address(at),
        peers: others.map(|it| Peer { id: id(it), address: address(it) }).collect(),
        settings: settings.clone(),
        ..Config::alone(directories.join(at.to_string()))
    }
}

pub(crate) fn id(at: usize) -> NodeId {
    NodeId(u32::try_from(at).expect("small") + 1)
}

/// Looks again and again, until it is there.
pub(crate) async fn soon<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, looking).await.unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

pub(crate) fn put(key: &str, value: &str) -> Request {
    let put = Put { key: key.to_owned().into(), value: value.to_owned().into(), ..Put::default() };
    Request::of(Command::Put(put))
}

pub(crate) fn open(ttl_ms: u64) -> Request {
    Request::of(Command::OpenSession(OpenSession { ttl_ms, owner: "test".into(), ..OpenSession::default() }))
}

/// The revision at which it was done.
#[track_caller]
pub(crate) fn done(outcome: Outcome) -> u64 {
    match outcome {
        Outcome::Done { revision, .. } => revision,
        other => panic!("not done: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn opened(outcome: Outcome) -> u64 {
    match outcome {
        Outcome::Done { reply: Reply::Opened(session), .. } => session,
        other => panic!("not opened: {other:?}"),
    }
}

/// Which keys the events are about.
pub(crate) fn keys(batch: &Batch) -> Vec<String> {
    let keys = batch.events.iter().filter_map(|it| it.key());
    keys.map(|it| String::from_utf8(it.to_vec()).expect("text")).collect()
}

/// The key, as it is now.
pub(crate) async fn key(handle: &Handle, key: &str) -> Option<Item> {
    let range = Range { span: Some(Span::key(key.to_owned())), ..Range::default() };
    soon("an answer", || async {
        match handle.ask(Query::Range(range.clone()), Consistency::Linearizable).await {
            Ok(answered) => match answered.answer {
                Some(Answer::Items(items)) => Some(items.items.into_iter().next()),
                other => panic!("another answer: {other:?}"),
            },
            Err(Unanswered::NotNow(_)) => None,
            Err(Unanswered::Refused(refusal)) => panic!("{refusal}"),
        }
    })
    .await
}

pub(crate) async fn value(handle: &Handle, name: &str) -> Option<String> {
    key(handle, name).await.map(|item| String::from_utf8(item.value.to_vec()).expect("text"))
}
