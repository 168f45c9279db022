//! A service of three and of five nodes under a nemesis: real processes on a network of their own, with disks and clocks of their own, killed, paused, cut off in every way, restarted and
//! replaced, with disks that hang, fill up, fail and lose power, while clients read, write, swap, lead and watch; and then everything that was promised to them is looked for in what they
//! were told.
//!
//! `INCUMBENT_NEMESIS_SEED` begins with another seed, `INCUMBENT_NEMESIS_MINUTES` goes on with the next ones for so long, and `INCUMBENT_NEMESIS_NODES` says how many nodes there are. What
//! a run that fails has recorded stays in a folder that is named: what was done when, what each client asked and was told, what each node has logged. A later run of the same seed writes
//! over it. Left out: a wall clock that is set while nodes run.

#[path = "../apart/mod.rs"]
mod apart;

mod clients;
mod cluster;
mod elsewhere;
mod history;
mod linear;
mod ordeals;
mod picture;
mod restarts;
mod schedule;
mod verdict;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use incumbent_client::client::Client;
use incumbent_protocol::chance::Chance;
use incumbent_store::command::Command;
use incumbent_store::keys::transaction::Put;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::apart::apart;
use crate::clients::{
    ELECTIONS, LAST, PROBE, REGISTERS, Worker, spawn_pair, watch_everything, watch_from_anywhere, watch_registers,
};
use crate::cluster::{Acquaintance, Cluster};
use crate::elsewhere::Elsewhere;
use crate::history::{History, Outcome};
use crate::ordeals::{Cost, costs, table};
use crate::picture::Picture;
use crate::schedule::{MANY, Nemesis, RECOVERY_MAX, clock};
use crate::verdict::{Deeds, judge};

/// One answer is awaited so long, then it is asked again.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// What is only waited for at the beginning and at the end.
const END_MAX: Duration = Duration::from_secs(30);

/// The test that goes through the rounds, as it is called.
const THIS: &str = "nodes_keep_what_they_promise_whatever_befalls_them";

#[test]
fn nodes_keep_what_they_promise_whatever_befalls_them() {
    apart(|| match elsewhere::wanted() {
        Some(wanted) => elsewhere::be(wanted),
        // Everything twice.
        None => alone(|| rounds(1, 6)),
    });
}

#[test]
fn no_operation_fails_when_nodes_are_restarted_one_after_the_other() {
    apart(|| alone(|| restarts::fail_nothing(3)));
}

/// One after the other: two clusters and their clients would take each other's time, and see no fault but that.
fn alone(body: impl FnOnce()) {
    let lock = File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join("nemesis.lock")).unwrap();
    lock.lock().unwrap();
    body();
}

/// Some rounds, each with a cluster and a seed of its own; or as many as fit in the minutes that are wanted.
#[allow(clippy::print_stderr, reason = "shown with a test that failed, or when asked for")]
fn rounds(first: u64, count: u64) {
    let number = |name: &str| std::env::var(name).ok().map(|it| it.parse::<u64>().expect("a number"));
    let first = number("INCUMBENT_NEMESIS_SEED").unwrap_or(first);
    let minutes = number("INCUMBENT_NEMESIS_MINUTES").map(|it| Duration::from_secs(it * 60));
    let nodes = number("INCUMBENT_NEMESIS_NODES");
    let (began, mut costs) = (Instant::now(), Vec::new());
    for seed in first.. {
        // Every third round is one of five nodes, so the seed says that, too.
        costs.extend(round(nodes.unwrap_or(if seed % 3 == 0 { MANY } else { 3 }), seed));
        if minutes.map_or(seed + 1 >= first + count, |it| began.elapsed() >= it) {
            break;
        }
    }
    eprintln!("nemesis: what the faults have cost\n{}", table(&costs));
}

/// What was recorded, which stays if the round is not seen to its end.
struct Records {
    /// How it is done again.
    again: String,
    history: Arc<History>,
    folder: PathBuf,
    passed: bool,
}

impl Records {
    /// They go to a folder of this name, if they are needed.
    fn begin(name: &str, again: String) -> Records {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nemesis-{name}"));
        let _ = std::fs::remove_dir_all(&folder);
        Records { again, history: Arc::default(), folder, passed: false }
    }

    fn folder(&self) -> &Path {
        &self.folder
    }

    fn note(&self, what: String) {
        self.history.scheduled(what);
    }

    fn passed(&mut self) {
        self.passed = true;
    }
}

impl Drop for Records {
    #[allow(clippy::print_stderr, reason = "shown with a test that failed")]
    fn drop(&mut self) {
        if self.passed {
            // Another process may look at it; then it stays.
            let _ = std::fs::remove_dir_all(&self.folder);
        } else {
            self.history.pages().write(&self.folder);
            eprintln!(
                "all of it is in {}: schedule.jsonl and ordeals.jsonl (what was done when), operations.jsonl, beliefs.jsonl, watched.jsonl and watches.jsonl (what the clients asked and were \
                 told), \
                 node-N.log; the same schedule again: {}",
                self.folder.display(),
                self.again
            );
        }
    }
}

#[allow(clippy::print_stderr, reason = "shown with a test that failed, or when asked for")]
fn round(nodes: u64, seed: u64) -> Vec<Cost> {
    eprintln!("nemesis: {nodes} nodes, INCUMBENT_NEMESIS_SEED={seed}");
    let began = Instant::now();
    // The seed says how many nodes there are, unless somebody else has.
    let said = std::env::var("INCUMBENT_NEMESIS_NODES").map(|it| format!("INCUMBENT_NEMESIS_NODES={it} "));
    let again = format!("{}cargo xtask nemesis --minutes 0 --seed {seed}", said.unwrap_or_default());
    let mut records = Records::begin(&format!("of-{nodes}-seed-{seed}"), again);
    let history = Arc::clone(&records.history);
    let mut chance = Chance::new(seed);
    let clocks: Vec<Duration> = (0..nodes).map(|_| clock(&mut chance)).collect();
    records.note(format!("clocks are ahead by {clocks:?}"));
    // Every fifth round: the seed says that, too.
    let acquaintance = if seed % 5 == 2 { Acquaintance::Key } else { Acquaintance::Certificates };
    records.note(format!("nodes know each other by: {acquaintance:?}"));
    let mut cluster = Cluster::start(&clocks, acquaintance, records.folder());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let _inside = runtime.enter();
    let (over, is_over) = watch::channel(false);
    let control = cluster.client("control");
    let mut probe = Worker::new(0, seed, &control, &history, &is_over);
    let start = Instant::now();
    while !runtime.block_on(probe.tries_to_write(PROBE)) {
        assert!(start.elapsed() < END_MAX, "nothing was served in {END_MAX:?} after the start");
    }
    let mut workers = JoinSet::new();
    spawn_pair(0, seed, |name| cluster.client(name), &history, &is_over, &mut workers);
    let ahead = clock(&mut chance);
    records.note(format!("clients elsewhere are ahead by {ahead:?}"));
    let elsewhere = Some(Elsewhere::start(THIS, &cluster, seed, 1, ahead, &history));
    let watcher = cluster.client("watcher");
    let watchers = [
        runtime.spawn(watch_everything(watcher.clone(), Arc::clone(&history))),
        runtime.spawn(watch_registers(watcher, Arc::clone(&history))),
        runtime.spawn(watch_from_anywhere(cluster.client("restarted watcher"), seed, Arc::clone(&history))),
    ];

    let mut nemesis = Nemesis {
        control,
        probe: &mut probe,
        cluster: &mut cluster,
        runtime: &runtime,
        workers: &mut workers,
        history: &history,
        shared: &history,
        seed,
        chance,
        next_id: clocks.len() as u32 + 1,
        elsewhere,
        next_pair: 1,
    };
    let faults = nemesis.rage();
    let elsewhere = nemesis.elsewhere.take().expect("others take the place of those who were killed");
    assert!(elsewhere.runs(), "the clients elsewhere have ended");
    over.send_replace(true);
    runtime.block_on(async {
        let all = async {
            while let Some(ended) = workers.join_next().await {
                ended.expect("a client has failed")
            }
        };
        timeout(END_MAX, all).await.expect("the clients end");
    });
    elsewhere.end();
    runtime.block_on(async {
        for register in 0..REGISTERS {
            probe.read(&format!("register/{register}")).await;
        }
        for election in 0..ELECTIONS {
            probe.read(&format!("fenced/election-{election}")).await;
        }
    });
    let last = write_last(&runtime, &probe);
    let mut wrong = Vec::new();
    for (number, watcher) in watchers.into_iter().enumerate() {
        match runtime.block_on(async { timeout(END_MAX, watcher).await }) {
            Ok(ended) => ended.expect("a watcher has failed"),
            Err(_) => wrong.push(format!("watcher {number} was not told of the last write in {END_MAX:?}")),
        }
    }
    wrong.extend(nodes_agree(&runtime, &cluster, last));
    drop(cluster);
    let pages = history.pages();
    wrong.extend(judge(&pages));
    let costs = costs(&pages);
    let long = costs.iter().filter(|it| it.leaves_majority && it.unserved > RECOVERY_MAX);
    wrong.extend(long.map(|it| format!("nobody was served for {:?} around {}", it.unserved, it.fault)));
    let deeds = Deeds::of(&pages);
    let unknown = pages.entries.iter().filter(|it| matches!(it.outcome, Outcome::Unknown { .. })).count();
    eprintln!(
        "nemesis: {faults} faults, {} operations ({unknown} unknown; {deeds:?}), {} beliefs, {} events in {:?}",
        pages.entries.len(),
        pages.beliefs.len(),
        pages.told.len(),
        began.elapsed()
    );
    // A round in which nothing happened proves nothing.
    assert!(deeds.suffice() && pages.beliefs.len() > 2 && faults > 2, "too little was done: {deeds:?}");
    let folder = records.folder().display();
    assert!(
        wrong.is_empty(),
        "{nodes} nodes, seed {seed}: {} things are wrong (see {folder}):\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    records.passed();
    costs
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

/// All nodes have the same in their stores, each by itself, once they know of this revision.
fn nodes_agree(runtime: &Runtime, cluster: &Cluster, revision: u64) -> Vec<String> {
    let clients: Vec<(u32, Client)> = cluster.ids().into_iter().map(|id| (id, cluster.client_of(id))).collect();
    let began = Instant::now();
    loop {
        let mut seen: Vec<(u32, Result<Picture, String>)> = Vec::new();
        for (id, client) in &clients {
            let picture = async { timeout(ANSWER_MAX, Picture::of(client, revision)).await };
            seen.push((*id, runtime.block_on(picture).unwrap_or_else(|_| Err("no answer".to_owned()))));
        }
        // Sessions that were left behind end by and by: until then a store may be ahead of another.
        let agree = seen.iter().all(|(_, it)| it.is_ok() && *it == seen[0].1);
        if agree {
            return Vec::new();
        }
        if began.elapsed() > END_MAX {
            return seen.iter().map(|(id, it)| format!("the stores are not equal: node {id} has {it:?}")).collect();
        }
    }
}
