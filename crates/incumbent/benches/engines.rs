//! The figures that we publish of the library and its engines, made by `cargo xtask bench`: ratios to a hand-written minimal client, side by side.
//!
//! Machines are noisy, so the two take turns, and medians are compared. Nothing fails by speed.

#![allow(clippy::print_stdout, reason = "its output is its purpose")]

mod by_hand;

use std::sync::Arc;
use std::time::{Duration, Instant};

use incumbent::conformance::{bid, fresh_name};
use incumbent::engine::{Bid, Claim, Engine, Farewell};
use incumbent::engines::memory::Memory;
use incumbent::place::Place;
use incumbent::{Election, Identity, Name, Reason, Timing, engines};
use incumbent_testbed::{Etcd, Redis, Server, ZooKeeper};

use by_hand::ByHand;

const TTL: Duration = Duration::from_secs(15);
const ROUNDS: usize = 400;

fn main() {
    let only = std::env::args().skip(1).find(|it| !it.starts_with("--"));
    let wanted = |what: &str| only.as_deref().is_none_or(|it| it == what);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    if wanted("check") {
        runtime.block_on(check());
    }
    if wanted("acquire") {
        runtime.block_on(acquire());
    }
    if wanted("thousand") {
        thousand(&runtime);
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

/// Claim and release, ours beside the shortest recipe that somebody would write with the same client crate.
async fn acquire() {
    println!("Claim and release on an idle engine, median of {ROUNDS} rounds in turns, ttl {TTL:?}");
    println!(
        "  {:<10} {:>12} {:>12} {:>8}   {:>12} {:>12} {:>8}",
        "", "claim", "by hand", "ratio", "release", "by hand", "ratio"
    );
    let directory = tempfile::tempdir().expect("a temporary directory");
    let files = format!("file:{}", directory.path().display());
    row("file", &files, &mut by_hand::File::new(directory.path())).await;
    let redis = Redis::debian().start().expect("Redis starts");
    let url = format!("redis://127.0.0.1:{}/bench", redis.port());
    row("redis", &url, &mut by_hand::Redis::connect(redis.port()).await).await;
    let etcd = Etcd::recent().start().expect("etcd starts");
    let url = format!("etcd://127.0.0.1:{}/bench", etcd.port());
    row("etcd", &url, &mut by_hand::Etcd::connect(etcd.port()).await).await;
    println!();
}

async fn row(name: &str, url: &str, by_hand: &mut dyn ByHand) {
    let place = Place::parse(url).expect("a good URL");
    let engine = engines::open(&place).await.expect("it was just started");
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    let election = fresh_name("bench");
    for round in 0..ROUNDS {
        // Whoever comes first warms something up for the other; so they take turns at that too.
        for turn in [round % 2, (round + 1) % 2] {
            if turn == 0 {
                let bid = Bid { ttl: TTL, ..bid(&Idle, "ours") };
                let started = Instant::now();
                let token = claim(&*engine, &election, &bid).await;
                ours.claim.push(started.elapsed());
                let started = Instant::now();
                let farewell = Farewell { reason: Reason::Resigned, to: None };
                engine.release(&election, &bid, token, &farewell).await.expect("the engine is well");
                ours.release.push(started.elapsed());
            } else {
                let me = Identity::unique();
                let started = Instant::now();
                by_hand.claim(me.as_str(), TTL).await;
                theirs.claim.push(started.elapsed());
                let started = Instant::now();
                by_hand.release(me.as_str()).await;
                theirs.release.push(started.elapsed());
            }
        }
    }
    let show = |ours: &mut Vec<Duration>, theirs: &mut Vec<Duration>| {
        let (ours, theirs) = (median(ours), median(theirs));
        format!("{:>12?} {:>12?} {:>8.2}", ours, theirs, ours.as_secs_f64() / theirs.as_secs_f64())
    };
    println!("  {name:<10} {}   {}", show(&mut ours.claim, &mut theirs.claim), show(&mut ours.release, &mut theirs.release));
    engine.close().await;
}

async fn claim(engine: &dyn Engine, election: &Name, bid: &Bid) -> incumbent::Token {
    match engine.claim(election, bid).await.expect("the engine is well") {
        Claim::Granted(grant) => grant.token,
        Claim::Occupied { .. } => panic!("nobody else contends"),
    }
}

#[derive(Default)]
struct Samples {
    claim: Vec<Duration>,
    release: Vec<Duration>,
}

fn median(samples: &mut [Duration]) -> Duration {
    samples.sort_unstable();
    samples[samples.len() / 2]
}

/// Only its ttl is asked for.
struct Idle;

#[async_trait::async_trait]
impl incumbent::conformance::Subject for Idle {
    async fn engine(&self) -> Arc<dyn Engine> {
        Arc::new(Memory::new())
    }

    fn election(&self, name: &Name) -> incumbent::election::Builder {
        Election::with(Arc::new(Memory::new()), name.as_str())
    }

    fn ttl(&self) -> Duration {
        TTL
    }
}

/// A thousand elections held by one process for a minute: what they cost it, and whether one was lost.
fn thousand(runtime: &tokio::runtime::Runtime) {
    const ELECTIONS: usize = 1_000;
    const HELD: Duration = Duration::from_secs(60);
    println!("{ELECTIONS} elections held by one process for {HELD:?}, ttl {TTL:?}");
    let etcd = Etcd::recent().start().expect("etcd starts");
    let zookeeper = ZooKeeper::debian().start().expect("ZooKeeper starts");
    for (name, url, server) in [
        ("etcd", format!("etcd://127.0.0.1:{}/bench", etcd.port()), &etcd as &dyn Server),
        ("zookeeper", format!("zookeeper://127.0.0.1:{}/bench", zookeeper.port()), &zookeeper as &dyn Server),
    ] {
        runtime.block_on(async {
            let timing = Timing::of(TTL).build().expect("a good ttl");
            let mut held = Vec::with_capacity(ELECTIONS);
            for at in 0..ELECTIONS {
                let election =
                    Election::on(&url).name(format!("e{at}")).timing(timing).build().await.expect("the engine is there");
                held.push(election.campaign().await.expect("nobody else contends"));
            }
            let (asked, cpu) = (server.requests().expect("it counts"), cpu_time());
            tokio::time::sleep(HELD).await;
            let used = cpu_time() - cpu;
            let asked = server.requests().expect("it counts").since(&asked).total();
            let lost = held.iter().filter(|it| it.check().is_err()).count();
            let share = used.as_secs_f64() / HELD.as_secs_f64() * 100.0;
            println!(
                "  {name:<10} {lost} lost, {share:.2} % of a core, {:.1} requests a second",
                asked as f64 / HELD.as_secs_f64()
            );
            for leadership in held {
                leadership.resign().await.expect("released");
            }
        });
    }
}

/// What this process has used of the processor, in its own and in the kernel's code.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    // Behind the program's name, which may contain anything: user and system time are the 12th and 13th, in hundredths of a second.
    let rest = text.rsplit_once(')').expect("has a name").1;
    let ticks: u64 = rest.split_whitespace().skip(11).take(2).map(|it| it.parse::<u64>().expect("a number")).sum();
    Duration::from_millis(ticks * 10)
}
