//! A seat is handed over before a crowd: how many are woken, and what the engine is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

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
    let woken = Arc::new(AtomicUsize::new(0));
    let watch = |bid: &Bid| {
        let (mut hints, woken) = (engines[1].watch(&election, Some(bid)), Arc::clone(&woken));
        tokio::spawn(async move {
            while hints.next().await.is_some() {
                woken.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let crowd: Vec<_> = std::iter::once(&heir).chain(&rest).map(watch).collect();
    let quiet = calm(server).await;
    let woken_before = woken.load(Ordering::Relaxed);
    let before = server.requests().expect("it counts");
    engines[0].release(&election, &holder, token, &Farewell { reason: Reason::Resigned, to: None }).await.expect("released");
    while woken.load(Ordering::Relaxed) == woken_before {
        tokio::task::yield_now().await;
    }
    assert!(claim(&*engines[1], &election, &heir).await.expect("the next in line") > token);
    let asked = server.requests().expect("it counts").since(&before);
    tokio::time::sleep(PAUSE).await;
    let others = woken.load(Ordering::Relaxed) - woken_before;
    println!(
        "  {name:<11}{others} woken, {} requests to release, tell and elect ({quiet} in {PAUSE:?} of quiet before): {asked:?}",
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
    loop {
        let before = server.requests();
        tokio::time::sleep(PAUSE).await;
        if let (Ok(before), Ok(now)) = (before, server.requests())
            && now.since(&before).total() <= NEXT_TO_NOTHING
        {
            return now.since(&before).total();
        }
    }
}
