//! SIGTERM under load: every node is restarted as an operator does it for an update, whoever leads among them, while many operations are under way. None fails, and of none it is unknown
//! whether it was done.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use incumbent_client::administration::{Administration, AskCluster, Attended, ClusterView};
use incumbent_client::client::{Client, Done};
use incumbent_client::message::Consistency;
use incumbent_protocol::chance::Chance;
use incumbent_store::command::{Campaign, Command, OpenSession, Renew, Resign};
use incumbent_store::keys::item::Span;
use incumbent_store::keys::transaction::{Act, Guard, Put, Transaction};
use incumbent_store::query::{Query, Range};
use incumbent_store::reply::Reply;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::Records;
use crate::cluster::{Acquaintance, Cluster};
use crate::schedule::{RECOVERY_MAX, clock};

/// So many connections, and so many on each that have something under way at any time.
const CLIENTS: u32 = 4;
const WORKERS: u32 = 6;

/// So often each node is restarted.
const PASSES: u32 = 3;

/// A session outlasts what a restart takes, many times over.
const TTL_MS: u64 = 10_000;

/// How it went, for all workers.
#[derive(Default)]
struct Tally {
    took: Vec<Duration>,
    failed: Vec<String>,
}

#[allow(clippy::print_stderr, reason = "shown with a test that failed, or when asked for")]
pub(crate) fn fail_nothing(nodes: u32) {
    let mut records = Records::begin("restarts", "cargo test -p incumbent-cli --test nemesis no_operation_fails".into());
    let mut chance = Chance::new(0);
    let clocks: Vec<Duration> = (0..nodes).map(|_| clock(&mut chance)).collect();
    let mut cluster = Cluster::start(&clocks, Acquaintance::Certificates, records.folder());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let _inside = runtime.enter();
    let (over, is_over) = watch::channel(false);
    let (tally, mut workers) = (Arc::new(Mutex::new(Tally::default())), JoinSet::new());
    for client in 0..CLIENTS {
        let connection = cluster.patient_client("load");
        for worker in 0..WORKERS {
            let (client, name) = (connection.clone(), format!("{client}-{worker}"));
            let load = Load { client, name, tally: Arc::clone(&tally), over: is_over.clone() };
            workers.spawn(load.go_on());
        }
    }
    let control = cluster.patient_client("control");
    wait_for_leader(&runtime, &control);
    let began = Instant::now();
    let mut led = 0;
    for pass in 0..PASSES {
        // Whoever leads is among them in each pass, and is the first in every second one.
        let leader = wait_for_leader(&runtime, &control);
        let mut ids = cluster.ids();
        ids.sort_by_key(|it| (*it == leader) == (pass % 2 == 0));
        for id in ids {
            let leads = wait_for_leader(&runtime, &control) == id;
            led += u32::from(leads);
            records.note(format!("stop {id}{}", if leads { ", which leads" } else { "" }));
            cluster.stop(id);
            cluster.run(id);
            caught_up(&runtime, &control, id);
            records.note(format!("{id} is back"));
        }
    }
    over.send_replace(true);
    runtime.block_on(async {
        while let Some(ended) = timeout(RECOVERY_MAX, workers.join_next()).await.expect("the clients end") {
            ended.expect("a client has failed");
        }
    });
    drop(cluster);
    let mut tally = std::mem::take(&mut *tally.lock().unwrap_or_else(PoisonError::into_inner));
    tally.took.sort_unstable();
    let all = tally.took.len();
    let at = |part: f64| tally.took.get((all as f64 * part) as usize).copied().unwrap_or_default();
    eprintln!(
        "restarts: {} of nodes ({led} led) in {:?}, {all} operations; they took p50 {:?}, p99 {:?}, at most {:?}; {} failed",
        PASSES * nodes,
        began.elapsed(),
        at(0.5),
        at(0.99),
        tally.took.last().copied().unwrap_or_default(),
        tally.failed.len()
    );
    assert!(all > 500 && led >= PASSES, "too little was done");
    let folder = records.folder().display();
    assert!(tally.failed.is_empty(), "{} operations failed (see {folder}):\n{}", tally.failed.len(), tally.failed.join("\n"));
    records.passed();
}

/// One who always has an operation under way.
struct Load {
    client: Client,
    name: String,
    tally: Arc<Mutex<Tally>>,
    over: watch::Receiver<bool>,
}

impl Load {
    async fn go_on(self) {
        let wanted = OpenSession { ttl_ms: TTL_MS, owner: self.name.clone(), ..OpenSession::default() };
        let began = Instant::now();
        let Some(session) = self.count("open a session", began, self.client.open_session(wanted).await) else { return };
        while !*self.over.borrow() {
            self.cycle(session.id()).await;
        }
    }

    /// Each kind once: an office is won, renewed, written under and given back, and meanwhile there are a write and a read.
    async fn cycle(&self, session: u64) {
        let election = format!("office-{}", self.name);
        let bid = Campaign { session, election: election.clone(), identity: self.name.clone(), ..Campaign::default() };
        let Some(granted) = self.submit("campaign", Command::Campaign(bid)).await else { return };
        let Reply::Granted(granted) = granted.reply else { return self.fail(format!("campaign: {:?}", granted.reply)) };
        let token = granted.token;
        let renewal = Renew { election: election.clone(), token };
        if let Some(renewed) = self.submit("renew", Command::Renew(renewal)).await
            && !matches!(renewed.reply, Reply::Renewed(it) if it.in_office)
        {
            self.fail(format!("{election} was lost, though it was kept alive"));
        }
        let put = || Put { key: format!("key-{}", self.name).into(), value: "0".into(), ..Put::default() };
        let guards = vec![Guard::holds(election.clone(), token)];
        let fenced = Transaction { guards, then: vec![Act::Put(put()).into()], otherwise: Vec::new() };
        if let Some(done) = self.submit("fenced write", Command::Transact(fenced)).await
            && !matches!(done.reply, Reply::Transacted(it) if it.held)
        {
            self.fail(format!("the fence of {election} did not hold, though it is in office"));
        }
        self.submit("put", Command::Put(put())).await;
        let range = Range { span: Some(Span::key(put().key.to_vec())), ..Range::default() };
        let began = Instant::now();
        self.count("read", began, self.client.ask(Query::Range(range), Consistency::Linearizable).await);
        self.submit("resign", Command::Resign(Resign { election, token, ..Resign::default() })).await;
    }

    async fn submit(&self, what: &str, command: Command) -> Option<Done> {
        let began = Instant::now();
        self.count(what, began, self.client.submit(command).await)
    }

    fn count<T, E: std::fmt::Display>(&self, what: &str, began: Instant, outcome: Result<T, E>) -> Option<T> {
        let took = began.elapsed();
        self.tally.lock().unwrap_or_else(PoisonError::into_inner).took.push(took);
        outcome.inspect_err(|failure| self.fail(format!("{what}, after {took:?}: {failure}"))).ok()
    }

    fn fail(&self, why: String) {
        let line = format!("{:?} {}: {why}", std::time::SystemTime::now(), self.name);
        self.tally.lock().unwrap_or_else(PoisonError::into_inner).failed.push(line);
    }
}

fn view(runtime: &Runtime, control: &Client) -> Option<ClusterView> {
    match runtime.block_on(control.administer(Administration::Status(AskCluster {}))) {
        Ok(Attended::Cluster(view)) => Some(view),
        Ok(_) | Err(_) => None,
    }
}

fn wait_for_leader(runtime: &Runtime, control: &Client) -> u32 {
    wait_for(runtime, control, "somebody leads", |view| view.leader)
}

/// As docs/service.md says it: the next is restarted when this one has caught up.
fn caught_up(runtime: &Runtime, control: &Client, node: u32) {
    wait_for(runtime, control, "the node that was restarted has caught up", |view| {
        let member = view.members.iter().find(|it| it.node == node)?;
        (view.leader == Some(node) || (view.leader.is_some() && member.lag == Some(0))).then_some(())
    });
}

fn wait_for<T>(runtime: &Runtime, control: &Client, what: &str, is_so: impl Fn(&ClusterView) -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        let view = view(runtime, control);
        if let Some(so) = view.as_ref().and_then(&is_so) {
            return so;
        }
        assert!(began.elapsed() < RECOVERY_MAX, "not in {RECOVERY_MAX:?}: {what}; {view:?}");
    }
}
