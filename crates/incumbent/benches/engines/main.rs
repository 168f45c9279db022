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
use incumbent_testbed::{Consul, Etcd, Kubernetes, Nats, Postgres, Redis, Relay, Server as _, Way, ZooKeeper};
use tokio::sync::Notify;

use contender::{Contender, InLibrary, OnEngine};

const TTL: Duration = Duration::from_secs(15);
/// Of taking a free seat.
const ACQUIRE_ROUNDS: usize = 100;
/// Of handing it over.
const HAND_OVER_ROUNDS: usize = 60;
/// So long a seat is held. After that whoever waits does so, and what is done after an election is done.
const PAUSE: Duration = Duration::from_millis(20);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with("--")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // Some clients need to be told, though none of them encrypts anything here.
    let _already_chosen = rustls::crypto::ring::default_provider().install_default();
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
        println!(
            "A free seat taken ({ACQUIRE_ROUNDS} rounds), and one handed over to a candidate that waits ({HAND_OVER_ROUNDS} rounds): medians, in turns"
        );
        for distance in [Distance::Here, Distance::Away] {
            runtime.block_on(acquire_and_hand_over(&only, distance));
        }
        println!();
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

/// Where the engine is.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Distance {
    /// On the same machine: all that is spent is spent by the programs.
    Here,
    /// As in another building: half a millisecond each way.
    Away,
}

const ONE_WAY: Duration = Duration::from_micros(500);

/// The way to a server.
struct Road {
    port: u16,
    _relay: Option<Relay>,
}

impl Distance {
    fn to(self, port: u16) -> Road {
        match self {
            Distance::Here => Road { port, _relay: None },
            Distance::Away => {
                let relay = Relay::before(&format!("127.0.0.1:{port}")).expect("a free port");
                relay.requests(Way::Delay(ONE_WAY));
                relay.replies(Way::Delay(ONE_WAY));
                Road { port: relay.port(), _relay: Some(relay) }
            }
        }
    }
}

/// Each engine beside the recipe that somebody would write with the same client crate. With words, only the engines that they name.
async fn acquire_and_hand_over(only: &[&str], distance: Distance) {
    let place = match distance {
        Distance::Here => "same machine",
        Distance::Away => "1 ms away",
    };
    println!("  {place:<21} {:>10} {:>10} {:>6} {:>10} {:>6}", "by hand", "engine", "ratio", "library", "ratio");
    let wanted = |name: &str| only.is_empty() || only.contains(&name);
    if wanted("file") && distance == Distance::Here {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let by_hand = |me| Box::new(by_hand::File::new(directory.path(), me)) as Box<dyn Contender>;
        row("file", &format!("file:{}", directory.path().display()), [by_hand("a"), by_hand("b")]).await;
    }
    if wanted("redis") {
        let server = Redis::debian().start().expect("Redis starts");
        let road = distance.to(server.port());
        let by_hand = async |me| Box::new(by_hand::Redis::connect(road.port, me).await) as Box<dyn Contender>;
        row("redis", &format!("redis://127.0.0.1:{}/bench", road.port), [by_hand("a").await, by_hand("b").await]).await;
    }
    if wanted("postgres") {
        let server = Postgres::debian().durable().start().expect("PostgreSQL starts");
        let road = distance.to(server.port());
        let by_hand = async |me| Box::new(by_hand::Postgres::connect(road.port, me).await) as Box<dyn Contender>;
        row("postgres", &postgres_url(road.port), [by_hand("a").await, by_hand("b").await]).await;
    }
    if wanted("etcd") {
        let server = Etcd::recent().durable().start().expect("etcd starts");
        let road = distance.to(server.port());
        let by_hand = async |me| Box::new(by_hand::Etcd::connect(road.port, me).await) as Box<dyn Contender>;
        row("etcd", &format!("etcd://127.0.0.1:{}/bench", road.port), [by_hand("a").await, by_hand("b").await]).await;
    }
    if wanted("zookeeper") {
        let server = ZooKeeper::debian().durable().start().expect("ZooKeeper starts");
        let road = distance.to(server.port());
        let by_hand = async |me| Box::new(by_hand::ZooKeeper::connect(road.port, me).await) as Box<dyn Contender>;
        row("zookeeper", &format!("zookeeper://127.0.0.1:{}/bench", road.port), [by_hand("a").await, by_hand("b").await]).await;
    }
    if wanted("consul") {
        let server = Consul::start().expect("a free port");
        let road = distance.to(server.port());
        let by_hand = async || Box::new(by_hand::Consul::connect(road.port).await) as Box<dyn Contender>;
        row("consul", &format!("consul://127.0.0.1:{}/bench", road.port), [by_hand().await, by_hand().await]).await;
    }
    if wanted("kubernetes") {
        let server = Kubernetes::start().expect("a free port");
        let road = distance.to(server.port());
        let settings = server.kubeconfig().replace(&server.address(), &format!("127.0.0.1:{}", road.port));
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), &settings).expect("writable");
        let by_hand = async |me| Box::new(by_hand::Kubernetes::connect(&settings, me).await) as Box<dyn Contender>;
        let url = format!("kubernetes:default?kubeconfig={}", file.path().display());
        row("kubernetes", &url, [by_hand("a").await, by_hand("b").await]).await;
    }
    if wanted("nats") {
        let server = Nats::recent().start().expect("NATS starts");
        let road = distance.to(server.port());
        let by_hand = async |me| Box::new(by_hand::Nats::connect(road.port, me).await) as Box<dyn Contender>;
        row("nats", &format!("nats://127.0.0.1:{}/bench", road.port), [by_hand("a").await, by_hand("b").await]).await;
    }
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
    // Who was before may have woken many by its release, of others too: that is not this one's to pay.
    tokio::time::sleep(PAUSE).await;
    let started = Instant::now();
    contender.claim(&Notify::new()).await;
    let took = started.elapsed();
    tokio::time::sleep(PAUSE).await;
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
