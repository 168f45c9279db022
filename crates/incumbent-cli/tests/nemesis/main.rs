//! A service of three and of five nodes under a nemesis: real processes on a network of their own, killed, paused, cut off in every way, restarted and replaced, while clients read, write,
//! swap, lead and watch; and then everything that was promised to them is looked for in what they were told.
//!
//! `INCUMBENT_NEMESIS_SEED` begins with another seed, and `INCUMBENT_NEMESIS_MINUTES` goes on with the next ones for so long. What a run that fails has recorded stays in a folder that is
//! named. A later run
//! of the same seed writes over it. Left out: clocks that differ between nodes (no time namespaces), and disks that fail.

#[path = "../apart/mod.rs"]
mod apart;

mod clients;
mod cluster;
mod history;
mod linear;
mod schedule;
mod verdict;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use incumbent_client::client::Client;
use incumbent_client::message::Consistency;
use incumbent_protocol::chance::Chance;
use incumbent_store::command::Command;
use incumbent_store::keys::item::{Item, Span};
use incumbent_store::keys::transaction::Put;
use incumbent_store::query::{Answer, Query, Range};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::apart::apart;
use crate::clients::{ELECTIONS, LAST, REGISTERS, Worker, watch_everything};
use crate::cluster::Cluster;
use crate::history::{Entry, History, Outcome, now};
use crate::schedule::Nemesis;
use crate::verdict::judge;

/// So long the nemesis rages in one round.
const ROUND: Duration = Duration::from_secs(22);

/// When all is healed it serves again in so long: many elections of the service, for nodes that are not optimised on a machine that may have no time for them.
const RECOVERY_MAX: Duration = Duration::from_secs(60);

/// What is only waited for at the end.
const END_MAX: Duration = Duration::from_secs(30);

/// So many pairs of workers use registers, and so many stand for elections.
const PAIRS: u32 = 2;

#[test]
fn nodes_keep_what_they_promise_whatever_befalls_them() {
    // One after the other: two clusters and their clients would take each other's time, and see no fault but that.
    apart(|| rounds(1, 3));
}

/// Some rounds, each with a cluster and a seed of its own; or as many as fit in the minutes that are wanted.
fn rounds(first: u64, count: u64) {
    let number = |name: &str| std::env::var(name).ok().map(|it| it.parse::<u64>().expect("a number"));
    let first = number("INCUMBENT_NEMESIS_SEED").unwrap_or(first);
    let minutes = number("INCUMBENT_NEMESIS_MINUTES").map(|it| Duration::from_secs(it * 60));
    let began = Instant::now();
    for seed in first.. {
        // Every third round is one of five nodes, so the seed says that, too.
        round(if seed % 3 == 0 { 5 } else { 3 }, seed);
        if minutes.map_or(seed + 1 >= first + count, |it| began.elapsed() >= it) {
            break;
        }
    }
}

/// What was recorded, which stays if the round is not seen to its end.
struct Records {
    history: Arc<History>,
    folder: PathBuf,
    passed: bool,
}

impl Drop for Records {
    #[allow(clippy::print_stderr, reason = "shown with a test that failed")]
    fn drop(&mut self) {
        if self.passed {
            // Another process may look at it; then it stays.
            let _ = std::fs::remove_dir_all(&self.folder);
        } else {
            self.history.pages().write(&self.folder);
            eprintln!("all of it is in {}", self.folder.display());
        }
    }
}

#[allow(clippy::print_stderr, reason = "shown with a test that failed, or when asked for")]
fn round(nodes: u32, seed: u64) {
    eprintln!("nemesis: {nodes} nodes, INCUMBENT_NEMESIS_SEED={seed}");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nemesis-of-{nodes}-seed-{seed}"));
    let _ = std::fs::remove_dir_all(&folder);
    let mut records = Records { history: Arc::default(), folder, passed: false };
    let history = Arc::clone(&records.history);
    let mut cluster = Cluster::start(nodes, &records.folder);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let _inside = runtime.enter();
    let (over, is_over) = watch::channel(false);
    let worker = |number: u32, client: &Client| Worker {
        number,
        client: client.clone(),
        chance: Chance::new(seed.wrapping_mul(1000).wrapping_add(u64::from(number))),
        history: Arc::clone(&history),
        over: is_over.clone(),
        written: 0,
    };
    let control = cluster.client("control");
    let mut probe = worker(0, &control);
    serves(&runtime, &mut probe);
    // Each client is a connection that many handshakes make again after each fault, so two workers share one.
    let mut workers = JoinSet::new();
    for pair in 0..PAIRS {
        let (registers, elections) = (cluster.client("registers"), cluster.client("elections"));
        for number in [2 * pair + 1, 2 * pair + 2] {
            workers.spawn(worker(number, &registers).use_registers());
            workers.spawn(worker(2 * PAIRS + number, &elections).stand_for_elections());
        }
    }
    let watcher = runtime.spawn(watch_everything(cluster.client("watcher"), Arc::clone(&history)));

    let mut nemesis = Nemesis {
        control,
        cluster: &mut cluster,
        runtime: &runtime,
        workers: &mut workers,
        history: &history,
        chance: Chance::new(seed),
        next_id: nodes + 1,
    };
    let faults = nemesis.rage(ROUND);
    let recovery = serves(&runtime, &mut probe);
    over.send_replace(true);
    runtime.block_on(async {
        let all = async {
            while let Some(ended) = workers.join_next().await {
                ended.expect("a client has failed")
            }
        };
        timeout(END_MAX, all).await.expect("the clients end");
        for register in 0..REGISTERS {
            probe.read(&format!("register/{register}")).await;
        }
        for election in 0..ELECTIONS {
            probe.read(&format!("fenced/election-{election}")).await;
        }
    });
    let last = write_last(&runtime, &probe);
    let watched = runtime.block_on(async { timeout(END_MAX, watcher).await });
    let mut wrong = Vec::new();
    match watched {
        Ok(ended) => ended.expect("the watcher has failed"),
        Err(_) => wrong.push(format!("the watcher was not told of the last write in {END_MAX:?}")),
    }
    wrong.extend(nodes_agree(&runtime, &cluster, last));
    drop(cluster);
    let pages = history.pages();
    wrong.extend(judge(&pages));
    let unknown = pages.entries.iter().filter(|it| matches!(it.outcome, Outcome::Unknown { .. })).count();
    eprintln!(
        "nemesis: {faults} faults, {} operations ({unknown} unknown), {} beliefs, {} events, served again after {recovery:?}",
        pages.entries.len(),
        pages.beliefs.len(),
        pages.told.len()
    );
    // A round in which nothing happened proves nothing.
    assert!(pages.entries.len() > 100 && pages.beliefs.len() > 2 && faults > 2, "too little was done");
    assert!(wrong.is_empty(), "{nodes} nodes, seed {seed}: {} things are wrong:\n{}", wrong.len(), wrong.join("\n"));
    records.passed = true;
}

/// How long until something that is asked now is done.
fn serves(runtime: &Runtime, probe: &mut Worker) -> Duration {
    let (began, called) = (Instant::now(), now());
    loop {
        runtime.block_on(probe.write("probe"));
        let done = |it: &Entry| it.key == "probe" && it.called >= called && matches!(it.outcome, Outcome::Done { .. });
        if probe.history.pages().entries.iter().any(done) {
            return began.elapsed();
        }
        assert!(began.elapsed() < RECOVERY_MAX, "all is well, and nothing was served in {RECOVERY_MAX:?}");
    }
}

/// Writes the key that the watcher waits for; returns its revision.
fn write_last(runtime: &Runtime, probe: &Worker) -> u64 {
    let began = Instant::now();
    loop {
        let put = Put { key: LAST.into(), value: "0".into(), ..Put::default() };
        match runtime.block_on(probe.client.submit(Command::Put(put))) {
            Ok(done) => return done.revision,
            Err(failure) => assert!(began.elapsed() < END_MAX, "the last write: {failure}"),
        }
    }
}

/// Each node has the same keys, by itself, once it knows of this revision.
fn nodes_agree(runtime: &Runtime, cluster: &Cluster, revision: u64) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut first: Option<Vec<Item>> = None;
    for id in cluster.ids() {
        match runtime.block_on(async { timeout(END_MAX, keys_of(cluster, id, revision)).await }) {
            Ok(items) if first.as_ref().is_none_or(|first| *first == items) => first = Some(items),
            Ok(items) => wrong.push(format!("node {id} has {items:?}, and others have {first:?}")),
            Err(_) => wrong.push(format!("node {id} does not come to revision {revision} in {END_MAX:?}")),
        }
    }
    wrong
}

async fn keys_of(cluster: &Cluster, id: u32, revision: u64) -> Vec<Item> {
    let client = cluster.client_of(id);
    loop {
        let range = Range { span: Some(Span::all()), ..Range::default() };
        if let Ok(shown) = client.ask(Query::Range(range), Consistency::Local).await
            && shown.revision >= revision
            && let Answer::Items(items) = shown.answer
        {
            return items.items;
        }
        tokio::task::yield_now().await;
    }
}
