//! The figures that we publish of the service, made by `cargo xtask bench service`: three nodes of it, of etcd and of ZooKeeper, side by side in one run, each with its log on the
//! disk and synced, each through the library.
//!
//! `cargo xtask bench service -- PART [NAME]` makes one part, of one of them: floor, commit, hand-over, cycles, node-killed, node-paused, node-cut-off, node-terminated, client-killed, sessions, elections, idle.

#![allow(clippy::print_stdout, reason = "its output is its purpose")]

mod cable;
mod clusters;
mod crowds;
mod failures;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use incumbent::Election;
use incumbent_client::client::Client;
use incumbent_store::command::Command;
use incumbent_store::keys::transaction::Put;

use self::clusters::{Ours, Servers};

const PARTS: [&str; 12] = [
    "floor",
    "commit",
    "hand-over",
    "cycles",
    "node-killed",
    "node-paused",
    "node-cut-off",
    "node-terminated",
    "client-killed",
    "sessions",
    "elections",
    "idle",
];
const COMMITS: usize = 1000;
const HAND_OVERS: usize = 60;
/// Where they come one soon after the other: their times differ by more.
const HAND_OVERS_BUSY: usize = 300;
/// Between two hand-overs: so long that disk and processors are at rest, and so short that they are not.
const RESTED: Duration = Duration::from_millis(100);
const BUSY: Duration = Duration::from_millis(10);
/// Before a hand-over its successor has just come.
const FRESH: Duration = Duration::from_millis(5);
const SYNCS: usize = 60;
/// Where they come one soon after the other.
const SYNCS_BUSY: usize = 400;
/// About as much time as a node's disk has between two commits of one client. A disk that has rested takes longer, and longer the more it has.
const AS_COMMITS_COME: Duration = Duration::from_micros(400);
const BLOCK: usize = 256;
const CYCLES_FOR: Duration = Duration::from_secs(5);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let ["candidate", url, ttl_ms] = words[..] {
        return failures::candidate(url, ttl_ms);
    }
    let (part, only) = (words.first().copied(), words.get(1).copied());
    assert!(part.is_none_or(|it| PARTS.contains(&it)), "say one of {PARTS:?}, or nothing for all");
    let wanted = |name: &str| part.is_none_or(|it| it == name);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    if wanted("floor") {
        floor();
    }
    if wanted("commit") {
        runtime.block_on(commit());
    }
    for (name, bench) in [
        ("hand-over", (|it| hand_overs(it)) as fn(&mut dyn Servers)),
        ("cycles", |it| cycles(it)),
        ("node-killed", |it| failures::node_killed(it)),
        ("node-paused", |it| failures::node_paused(it)),
        ("node-cut-off", |it| failures::node_cut_off(it)),
        ("node-terminated", |it| failures::node_terminated(it)),
        ("client-killed", |it| failures::client_killed(it)),
    ] {
        if wanted(name) {
            println!("{name}");
            if name == "hand-over" {
                // What a hand-over waits for, whoever makes it.
                for pause in [RESTED, BUSY, FRESH] {
                    println!("  {}", floor_of_syncs(pause));
                }
            }
            for mut servers in clusters::each(only) {
                bench(&mut *servers);
            }
        }
    }
    if wanted("sessions") {
        runtime.block_on(crowds::sessions());
    }
    if wanted("elections") {
        runtime.block_on(crowds::elections());
    }
    if wanted("idle") {
        crowds::idle();
    }
}

/// What the disk and the network take alone. A commit waits for two of three disks; here all three are one, so that is what it is measured by.
fn floor() {
    for pause in [Duration::ZERO, AS_COMMITS_COME, BUSY, RESTED] {
        println!("floor: {}", floor_of_syncs(pause));
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody comes");
        let mut byte = [0];
        while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
    });
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_nodelay(true).expect("a socket");
    let mut trips: Vec<Duration> = (0..1000)
        .map(|_| {
            let began = Instant::now();
            stream.write_all(&[1]).expect("it listens");
            stream.read_exact(&mut [0]).expect("it answers");
            began.elapsed()
        })
        .collect();
    println!("floor: a round trip on loopback p50 {:.0?}", median(&mut trips));
}

fn floor_of_syncs(pause: Duration) -> String {
    let (one, two) = (syncs(1, pause), syncs(3, pause));
    format!("after {pause:?} of rest fdatasync p50 {one:.0?}, of three at once the second to end {two:.0?}")
}

/// So many files of one disk are written to and synced at once, again and again with a pause between. The median of how long it took until half of them and one more were safe.
fn syncs(files: usize, pause: Duration) -> Duration {
    let needed = files / 2;
    let count = if pause == RESTED { SYNCS } else { SYNCS_BUSY };
    let together = Barrier::new(files);
    let (done, dones) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..files {
            let (together, done) = (&together, done.clone());
            scope.spawn(move || {
                let file = tempfile::NamedTempFile::new().expect("a file");
                // As the log has it: the room is there, and to write changes nothing but what is in it.
                file.as_file().write_all_at(&vec![0; BLOCK * count], 0).expect("room");
                file.as_file().sync_all().expect("a disk");
                for round in 0..count {
                    std::thread::sleep(pause);
                    together.wait();
                    let began = Instant::now();
                    file.as_file().write_all_at(&[7; BLOCK], (round * BLOCK) as u64).expect("room");
                    file.as_file().sync_data().expect("a disk");
                    done.send((round, began.elapsed())).expect("it listens");
                }
            });
        }
        drop(done);
        let mut rounds = vec![Vec::new(); count];
        for (round, took) in dones {
            rounds[round].push(took);
        }
        let mut enough: Vec<Duration> = rounds
            .iter_mut()
            .map(|it| {
                it.sort_unstable();
                it[needed]
            })
            .collect();
        median(&mut enough)
    })
}

/// One write at a time, and before and after it what the disk takes alone at that pace: machines have their moods.
async fn commit() {
    println!("commit: {}", floor_of_syncs(AS_COMMITS_COME));
    let ours = Ours::start(3);
    let client = ours.client().await;
    let mut took = Vec::new();
    for number in 0..COMMITS {
        let began = Instant::now();
        put(&client, number).await;
        took.push(began.elapsed());
    }
    println!("commit: three nodes, one client: {}", shown(&mut took));
    drop((client, ours));
    println!("commit: {}", floor_of_syncs(AS_COMMITS_COME));
}

async fn put(client: &Client, number: usize) {
    let put = Put { key: format!("bench/{}", number % 100).into(), value: "x".into(), ..Put::default() };
    client.submit(Command::Put(put)).await.expect("they run");
}

/// From the release to the next one in office, with so many who wait; and with one who came 5 ms before.
fn hand_overs(servers: &mut dyn Servers) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let url = servers.url();
    for (candidates, waits) in [(2, RESTED), (20, RESTED), (2, BUSY), (20, BUSY), (2, FRESH)] {
        let mut took = runtime.block_on(hand_over(&url, candidates, waits));
        println!("  {:<10} {candidates:>3} candidates, {waits:?} after the last joined: {}", servers.name(), shown(&mut took));
    }
}

async fn hand_over(url: &str, candidates: usize, waits: Duration) -> Vec<Duration> {
    let mut elections = Vec::new();
    for _ in 0..candidates {
        let election = Election::on(url).name(format!("hand-over-{candidates}-{}", waits.as_millis()));
        elections.push(election.own_connection().build().await.expect("they run"));
    }
    let (elected, mut next) = tokio::sync::mpsc::unbounded_channel();
    let stand = |election: Election| {
        let elected = elected.clone();
        tokio::spawn(async move {
            let leadership = election.campaign().await.expect("nothing is wrong with it");
            let _ = elected.send((leadership, Instant::now(), election));
        })
    };
    let mut took = Vec::new();
    for election in elections {
        drop(stand(election));
    }
    let (mut leadership, _, mut election) = next.recv().await.expect("one is elected");
    for _ in 0..if waits == RESTED { HAND_OVERS } else { HAND_OVERS_BUSY } {
        tokio::time::sleep(waits).await;
        let began = Instant::now();
        leadership.resign().await.expect("they run");
        let (heir, at, its) = next.recv().await.expect("one is elected");
        took.push(at.saturating_duration_since(began));
        drop(stand(election));
        (leadership, election) = (heir, its);
    }
    took
}

/// Elected and resigned, over and over, by so many at once, each in an election of its own.
fn cycles(servers: &mut dyn Servers) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    for clients in [1, 16, 64, 256] {
        let before: f64 = servers.processes().into_iter().map(spent).sum();
        let (count, lasted) = runtime.block_on(cycle(&servers.url(), clients));
        let busy = servers.processes().into_iter().map(spent).sum::<f64>() - before;
        println!(
            "  {:<10} {clients:>3} clients: {:>6.0} cycles/s, {:>5.0} µs of the servers' processors each",
            servers.name(),
            count as f64 / lasted.as_secs_f64(),
            busy * 1e6 / count as f64,
        );
    }
}

async fn cycle(url: &str, clients: usize) -> (usize, Duration) {
    let mut elections = Vec::new();
    for number in 0..clients {
        elections.push(Election::on(url).name(format!("cycle-{number}")).build().await.expect("they run"));
    }
    let began = Instant::now();
    let cycling = elections.into_iter().map(|election| {
        tokio::spawn(async move {
            let mut count = 0;
            while began.elapsed() < CYCLES_FOR {
                let leadership = election.campaign().await.expect("nothing is wrong with it");
                leadership.resign().await.expect("they run");
                count += 1;
            }
            count
        })
    });
    let cycling: Vec<_> = cycling.collect();
    let mut count = 0;
    for one in cycling {
        count += one.await.expect("no panic");
    }
    (count, began.elapsed())
}

pub(crate) fn median(took: &mut [Duration]) -> Duration {
    took.sort_unstable();
    took[took.len() / 2]
}

pub(crate) fn shown(took: &mut [Duration]) -> String {
    took.sort_unstable();
    let at = |part: usize| took[(took.len() * part / 100).min(took.len() - 1)];
    format!("p50 {:.2?}, p99 {:.2?} ({} rounds)", at(50), at(99), took.len())
}

/// Seconds of processor that a process has used.
pub(crate) fn spent(process: i32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it lives");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("always something").split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("a number");
    // Ticks are hundredths of a second on every Linux that we know.
    (ticks(11) + ticks(12)) / 100.0
}

/// Mebibytes that a process has of its own, and with its share of what it has together with others.
pub(crate) fn memory(process: i32) -> (f64, f64) {
    let text = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).expect("it lives");
    let field = |name: &str| {
        let found = text.lines().find_map(|it| it.strip_prefix(name)).and_then(|it| it.split_whitespace().next());
        found.and_then(|it| it.parse::<f64>().ok()).expect("a number") / 1024.0
    };
    (field("Private_Dirty:"), field("Pss:"))
}
