//! The figures that we publish of the library and its engines, made by `cargo xtask bench`: ratios to a hand-written minimal client, side by side.
//!
//! Machines are noisy, so all take turns, and medians are compared. Nothing fails by speed.

#![allow(clippy::print_stdout, reason = "its output is its purpose")]

mod by_hand;
mod contender;
mod herd;
mod thousand;

use std::sync::Arc;
use std::time::{Duration, Instant};

use incumbent::Election;
use incumbent::conformance::fresh_name;
use incumbent::engines::memory::Memory;
use incumbent_testbed::{Consul, Etcd, Kubernetes, Postgres, Redis, Server as _, ZooKeeper};
use tokio::sync::Notify;

use contender::{Contender, InLibrary, OnEngine};

const TTL: Duration = Duration::from_secs(15);
/// Of taking a free seat.
const ACQUIRE_ROUNDS: usize = 400;
/// Of handing it over; each has a pause before it.
const HAND_OVER_ROUNDS: usize = 200;
/// After this long whoever waits does so, and what is done after an election is done.
const PAUSE: Duration = Duration::from_millis(20);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with("--")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    if let [thousand::HOLD, url] = words[..] {
        return runtime.block_on(thousand::hold(url));
    }
    let wanted = |what: &str| words.is_empty() || words.contains(&what);
    if wanted("check") {
        runtime.block_on(check());
    }
    if wanted("acquire") {
        let only: Vec<&str> = words.iter().copied().filter(|it| *it != "acquire").collect();
        runtime.block_on(acquire_and_hand_over(&only));
    }
    if wanted("herd") {
        runtime.block_on(herd::wakes_one());
    }
    if wanted("thousand") {
        thousand::held();
    }
}

/// What it costs to ask a leadership whether it is still valid.
async fn check() {
    const CALLS: u32 = 20_000_000;
    let engine = Arc::new(Memory::new());
    let election = Election::with(engine, "check").build().await.expect("memory takes anything");
    let leadership = election.campaign().await.expect("memory has no settings to be wrong");
    let started = Instant::now();
    let mut valid = 0_u32;
    for _ in 0..CALLS {
        valid += u32::from(std::hint::black_box(&leadership).check().is_ok());
    }
    let each = started.elapsed().as_nanos() as f64 / f64::from(CALLS);
    println!("Leadership::check: {each:.1} ns ({valid} of {CALLS} valid)\n");
    leadership.resign().await.expect("released");
}

/// Each engine beside the recipe that somebody would write with the same client crate. With words, only the engines that they name.
async fn acquire_and_hand_over(only: &[&str]) {
    println!(
        "A free seat taken ({ACQUIRE_ROUNDS} rounds), and one handed over to a candidate that waits ({HAND_OVER_ROUNDS} rounds): medians, in turns"
    );
    println!("  {:<11}{:<10} {:>10} {:>10} {:>6} {:>10} {:>6}", "", "", "by hand", "engine", "ratio", "library", "ratio");
    let wanted = |name: &str| only.is_empty() || only.contains(&name);
    if wanted("file") {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let by_hand = |me| by_hand::File::new(directory.path(), me);
        row("file", &format!("file:{}", directory.path().display()), [Box::new(by_hand("a")), Box::new(by_hand("b"))]).await;
    }
    if wanted("redis") {
        let redis = Redis::debian().start().expect("Redis starts");
        let by_hand = async |me| Box::new(by_hand::Redis::connect(redis.port(), me).await) as Box<dyn Contender>;
        row("redis", &format!("redis://{}/bench", redis.address()), [by_hand("a").await, by_hand("b").await]).await;
    }
    if wanted("postgres") {
        let postgres = Postgres::debian().durable().start().expect("PostgreSQL starts");
        let by_hand = async |me| Box::new(by_hand::Postgres::connect(postgres.port(), me).await) as Box<dyn Contender>;
        row("postgres", &postgres_url(postgres.port()), [by_hand("a").await, by_hand("b").await]).await;
    }
    if wanted("etcd") {
        let etcd = Etcd::recent().start().expect("etcd starts");
        let by_hand = async |me| Box::new(by_hand::Etcd::connect(etcd.port(), me).await) as Box<dyn Contender>;
        row("etcd", &format!("etcd://{}/bench", etcd.address()), [by_hand("a").await, by_hand("b").await]).await;
    }
    if wanted("zookeeper") {
        let zookeeper = ZooKeeper::debian().start().expect("ZooKeeper starts");
        let by_hand = async |me| Box::new(by_hand::ZooKeeper::connect(zookeeper.port(), me).await) as Box<dyn Contender>;
        row("zookeeper", &format!("zookeeper://{}/bench", zookeeper.address()), [by_hand("a").await, by_hand("b").await]).await;
    }
    if wanted("consul") {
        let consul = Consul::start().expect("a free port");
        let by_hand = async || Box::new(by_hand::Consul::connect(consul.port()).await) as Box<dyn Contender>;
        row("consul", &format!("consul://{}/bench", consul.address()), [by_hand().await, by_hand().await]).await;
    }
    if wanted("kubernetes") {
        let kubernetes = Kubernetes::start().expect("a free port");
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), kubernetes.kubeconfig()).expect("writable");
        let url = format!("kubernetes:default?kubeconfig={}", file.path().display());
        let text = kubernetes.kubeconfig();
        let by_hand = async |me| Box::new(by_hand::Kubernetes::connect(&text, me).await) as Box<dyn Contender>;
        // The engine has chosen the process's cryptography when it is opened, which the client by hand needs too.
        drop(OnEngine::open(&url, &fresh_name("bench")).await);
        row("kubernetes", &url, [by_hand("a").await, by_hand("b").await]).await;
    }
    println!();
}

fn postgres_url(port: u16) -> String {
    format!("postgres://incumbent:a%20password%20with%20spaces%20%26%20signs%2F%2540@127.0.0.1:{port}/postgres/bench")
}

/// Two who contend with each other.
type Pair = [Box<dyn Contender>; 2];

async fn row(name: &str, url: &str, by_hand: Pair) {
    let (one, other) = (fresh_name("bench"), fresh_name("bench"));
    let on_engine: Pair = [Box::new(OnEngine::open(url, &one).await), Box::new(OnEngine::open(url, &one).await)];
    let in_library: Pair = [Box::new(InLibrary::open(url, &other).await), Box::new(InLibrary::open(url, &other).await)];
    let mut pairs = [by_hand, on_engine, in_library];
    let mut samples = [const { Vec::new() }; 3];
    for round in 0..ACQUIRE_ROUNDS {
        // Whoever comes first warms something up for the others; so they take turns at that too.
        for at in (0..3).map(|it| (it + round) % 3) {
            samples[at].push(acquire(&mut *pairs[at][0]).await);
        }
    }
    print(name, "acquire", &mut samples);
    let mut samples = [const { Vec::new() }; 3];
    for pair in &mut pairs {
        pair[0].claim(&Notify::new()).await;
    }
    for round in 0..HAND_OVER_ROUNDS {
        for at in (0..3).map(|it| (it + round) % 3) {
            samples[at].push(hand_over(&mut pairs[at]).await);
        }
    }
    print("", "hand-over", &mut samples);
    for pair in &mut pairs {
        pair[0].release().await;
    }
}

async fn acquire(contender: &mut dyn Contender) -> Duration {
    let started = Instant::now();
    contender.claim(&Notify::new()).await;
    let took = started.elapsed();
    contender.release().await;
    took
}

/// From the first one's release to the other's election; then they change places.
async fn hand_over(pair: &mut Pair) -> Duration {
    let [holder, waiter] = pair;
    let waits = Notify::new();
    let elected = async {
        waiter.claim(&waits).await;
        Instant::now()
    };
    let released = async {
        waits.notified().await;
        tokio::time::sleep(PAUSE).await;
        let released = Instant::now();
        holder.release().await;
        released
    };
    let (elected, released) = tokio::join!(elected, released);
    pair.swap(0, 1);
    elected - released
}

fn print(name: &str, what: &str, samples: &mut [Vec<Duration>; 3]) {
    let [by_hand, engine, library] = samples.each_mut().map(|it| median(it).as_secs_f64());
    println!(
        "  {name:<11}{what:<10} {:>7.0} us {:>7.0} us {:>6.2} {:>7.0} us {:>6.2}",
        by_hand * 1e6,
        engine * 1e6,
        engine / by_hand,
        library * 1e6,
        library / by_hand
    );
}

fn median(samples: &mut [Duration]) -> Duration {
    samples.sort_unstable();
    samples[samples.len() / 2]
}
