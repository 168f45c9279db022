//! Many sessions, many elections, and nothing at all: what a node costs then.

use std::time::{Duration, Instant};

use incumbent_client::client::Client;
use incumbent_store::command::{Campaign, Command, KeepAlive, OpenSession};
use incumbent_store::reply::Reply;

use super::clusters::{Ours, Servers as _};
use super::{memory, spent};

const SESSIONS: usize = 100_000;
const ELECTIONS: u64 = 1_000_000;
const TTL: Duration = Duration::from_secs(10);
const KEPT_FOR: Duration = Duration::from_secs(40);
/// Snapshots that are being written are written by then.
const SETTLED: Duration = Duration::from_secs(10);
/// Requests that are under way at once.
const AT_ONCE: usize = 512;
/// Sessions in one message.
const TOGETHER: usize = 1000;

async fn all(client: &Client, commands: impl Iterator<Item = Command>) -> Vec<Reply> {
    let (mut under_way, mut replies) = (tokio::task::JoinSet::new(), Vec::new());
    for command in commands {
        if under_way.len() >= AT_ONCE {
            replies.push(under_way.join_next().await.expect("some are").expect("no panic"));
        }
        let client = client.clone();
        under_way.spawn(async move { client.submit(command).await.expect("they run").reply });
    }
    while let Some(reply) = under_way.join_next().await {
        replies.push(reply.expect("no panic"));
    }
    replies
}

/// Keeps them alive once. So many are gone.
async fn keep(client: &Client, ids: &[u64]) -> usize {
    let mut lost = 0;
    for some in ids.chunks(TOGETHER) {
        let keep = KeepAlive { sessions: some.to_vec() };
        let done = client.submit(Command::KeepAlive(keep)).await.expect("they run");
        if let Reply::KeptAlive(kept) = done.reply {
            lost += kept.gone.len();
        }
    }
    lost
}

/// Kept alive over one connection: is any lost, and what does it cost?
pub(crate) async fn sessions() {
    let ours = Ours::start(3);
    let client = ours.client().await;
    let before = memory_of_all(&ours);
    let open = OpenSession { ttl_ms: TTL.as_millis() as u64, owner: "bench".to_owned(), ..OpenSession::default() };
    let (mut ids, mut lost, began, mut kept) = (Vec::new(), 0, Instant::now(), Instant::now());
    while ids.len() < SESSIONS {
        let opened = all(&client, (0..TOGETHER).map(|_| Command::OpenSession(open.clone()))).await;
        ids.extend(opened.into_iter().filter_map(|it| if let Reply::Opened(id) = it { Some(id) } else { None }));
        if kept.elapsed() > TTL / 3 {
            kept = Instant::now();
            lost += keep(&client, &ids).await;
        }
    }
    let opening = began.elapsed();
    let after = memory_of_all(&ours);
    let busy: f64 = ours.processes().into_iter().map(spent).sum();
    let began = Instant::now();
    while began.elapsed() < KEPT_FOR {
        let turn = Instant::now();
        lost += keep(&client, &ids).await;
        tokio::time::sleep((TTL / 3).saturating_sub(turn.elapsed())).await;
    }
    let busy = (ours.processes().into_iter().map(spent).sum::<f64>() - busy) / began.elapsed().as_secs_f64();
    println!(
        "{} sessions, ttl {TTL:?}, kept for {KEPT_FOR:?}: {lost} lost, {busy:.2} cores over three nodes, {:.0} bytes each and node; opened in {opening:.1?}",
        ids.len(),
        (after - before) * 1024.0 * 1024.0 / 3.0 / ids.len() as f64,
    );
}

/// Each held by one of a few sessions.
pub(crate) async fn elections() {
    let ours = Ours::start(1);
    let client = ours.client().await;
    let before = memory_of_all(&ours);
    let open = OpenSession { ttl_ms: 3_600_000, owner: "bench".to_owned(), ..OpenSession::default() };
    let Reply::Opened(session) = client.submit(Command::OpenSession(open)).await.expect("it runs").reply else {
        panic!("no session in the reply")
    };
    let began = Instant::now();
    let campaign = |number: u64| {
        Command::Campaign(Campaign {
            session,
            election: format!("election-{number}"),
            identity: format!("host-{}", number % 100),
            name: "host".to_owned(),
            seats: 1,
            ..Campaign::default()
        })
    };
    let granted = all(&client, (0..ELECTIONS).map(campaign)).await;
    let granted = granted.iter().filter(|it| matches!(it, Reply::Granted(_))).count();
    let took = began.elapsed();
    // Idle: what was under way for them is over.
    std::thread::sleep(SETTLED);
    println!(
        "{granted} idle elections on one node: {:.0} MiB ({:.0} at most, while they came), in {took:.0?}",
        memory_of_all(&ours) - before,
        peak(ours.processes()[0]) - before,
    );
}

/// The most memory that a process ever had, in mebibytes.
fn peak(process: i32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it lives");
    let peak = text.lines().find_map(|it| it.strip_prefix("VmHWM:")).and_then(|it| it.split_whitespace().next());
    peak.and_then(|it| it.parse::<f64>().ok()).expect("a number") / 1024.0
}

fn memory_of_all(ours: &Ours) -> f64 {
    ours.processes().into_iter().map(|it| memory(it).0).sum()
}

/// A node that does nothing, and how soon a new one does something.
pub(crate) fn idle() {
    let ours = Ours::start(3);
    std::thread::sleep(Duration::from_secs(5));
    let busy: f64 = ours.processes().into_iter().map(spent).sum();
    std::thread::sleep(Duration::from_secs(10));
    let busy = (ours.processes().into_iter().map(spent).sum::<f64>() - busy) / 10.0;
    let (own, all) = memory(ours.processes()[0]);
    println!(
        "idle node: {own:.1} MiB of its own, {all:.1} MiB with its share of the program; three of them take {:.2} % of a core",
        busy * 100.0
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut took: Vec<Duration> = (0..20)
        .map(|_| {
            let began = Instant::now();
            let alone = Ours::start(1);
            runtime.block_on(async {
                let election = incumbent::Election::on(alone.url()).name("first").build().await.expect("it runs");
                let leadership = election.campaign().await.expect("nothing is wrong with it");
                let took = began.elapsed();
                drop(leadership);
                took
            })
        })
        .collect();
    println!("cold start of a node alone to the first election won: {}", super::shown(&mut took));
}
