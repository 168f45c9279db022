//! A seat is handed over before a crowd: how many are woken, and what the engine is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use incumbent::conformance::fresh_name;
use incumbent::engine::{Bid, Claim, Engine, Farewell};
use incumbent::place::Place;
use incumbent::{Identity, Name, Reason, Token, engines};
use incumbent_testbed::{Etcd, Server, ZooKeeper};

use crate::contender::bid;

const CANDIDATES: usize = 1_000;
/// Long enough that nothing is kept alive while requests are counted.
const LONG: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_millis(500);

pub(crate) async fn wakes_one() {
    println!("A seat handed over before {CANDIDATES} candidates");
    let etcd = Etcd::recent().start().expect("etcd starts");
    row("etcd", &etcd, &format!("etcd://{}/herd", etcd.address())).await;
    drop(etcd);
    let zookeeper = ZooKeeper::debian().start().expect("ZooKeeper starts");
    row("zookeeper", &zookeeper, &format!("zookeeper://{}/herd", zookeeper.address())).await;
    println!();
}

async fn row(name: &str, server: &dyn Server, url: &str) {
    let place = Place::parse(url).expect("a good URL");
    let engines = [engines::open(&place).await.expect("it was just started"), engines::open(&place).await.expect("it is there")];
    let election = fresh_name("herd");
    let of = || Bid { ttl: LONG, ..bid(Identity::unique()) };
    let holder = of();
    let token = claim(&*engines[0], &election, &holder).await.expect("nobody else contends");
    let heir = of();
    assert!(claim(&*engines[1], &election, &heir).await.is_none());
    let rest: Vec<Bid> = (1..CANDIDATES).map(|_| of()).collect();
    // Not all at once: nobody's crowd comes in one instant, and ours must not wait for its own.
    for some in rest.chunks(50) {
        assert!(join_all(some.iter().map(|it| claim(&*engines[1], &election, it))).await.iter().all(Option::is_none));
    }
    let hints: Arc<Vec<AtomicUsize>> = Arc::new((0..CANDIDATES).map(|_| AtomicUsize::new(0)).collect());
    let watch = |(at, bid): (usize, &Bid)| {
        let (mut stream, hints) = (engines[1].watch(&election, Some(bid)), Arc::clone(&hints));
        tokio::spawn(async move {
            while stream.next().await.is_some() {
                hints[at].fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let crowd: Vec<_> = std::iter::once(&heir).chain(&rest).enumerate().map(watch).collect();
    let quiet = calm(server).await;
    let count = || hints.iter().map(|it| it.load(Ordering::Relaxed)).collect::<Vec<usize>>();
    let (told_before, before) = (count(), server.requests().expect("it counts"));
    let started = Instant::now();
    engines[0].release(&election, &holder, token, &Farewell { reason: Reason::Resigned, to: None }).await.expect("released");
    while count() == told_before {
        tokio::task::yield_now().await;
    }
    assert!(claim(&*engines[1], &election, &heir).await.expect("the next in line") > token);
    let took = started.elapsed();
    tokio::time::sleep(PAUSE).await;
    let asked = server.requests().expect("it counts").since(&before);
    let woken = count().iter().zip(&told_before).filter(|(now, before)| now > before).count();
    println!(
        "  {name:<11}{woken} of {CANDIDATES} woken, elected after {took:.1?}, {} requests with all that follows ({quiet} in {PAUSE:?} of quiet before): {asked:?}",
        asked.total()
    );
    for candidate in crowd {
        candidate.abort();
    }
    for engine in engines {
        engine.close().await;
    }
}

async fn claim(engine: &dyn Engine, election: &Name, bid: &Bid) -> Option<Token> {
    match engine.claim(election, bid).await.expect("the engine is well") {
        Claim::Granted(grant) => Some(grant.token),
        Claim::Occupied { .. } => None,
    }
}

/// Waits until the server is asked for next to nothing, and says how often it still is. One that is too busy to say so is asked again.
async fn calm(server: &dyn Server) -> u64 {
    const NEXT_TO_NOTHING: u64 = 20;
    /// A server that has a thousand requests before it counts none of them for a while.
    const IN_A_ROW: u32 = 4;
    let mut calm = 0;
    loop {
        let before = server.requests();
        tokio::time::sleep(PAUSE).await;
        let asked = before.and_then(|before| server.requests().map(|now| now.since(&before).total()));
        calm = if asked.as_ref().is_ok_and(|it| *it <= NEXT_TO_NOTHING) { calm + 1 } else { 0 };
        if let (IN_A_ROW, Ok(asked)) = (calm, asked) {
            return asked;
        }
    }
}
