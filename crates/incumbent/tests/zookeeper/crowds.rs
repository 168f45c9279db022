//! Many candidates for one seat, many seats of one process: what the server is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use incumbent::engine::{Bid, Renewal};
use incumbent_testbed::{Server as _, ZooKeeper};

use crate::{bid, claim, election, farewell, open, try_claim};

/// Long enough that no session is kept alive by pings while requests are counted.
const LONG: Duration = Duration::from_secs(40);

#[tokio::test]
async fn a_release_wakes_one_of_two_hundred() {
    let server = ZooKeeper::debian().start().expect("ZooKeeper starts");
    let url = format!("zookeeper://{}/herd?tick-ms=100", server.address());
    let engines = join_all((0..4).map(|_| open(&url))).await;
    let job = election("job");
    let of = |who: &str| Bid { ttl: LONG, ..bid(who) };
    let (first, heir) = (of("first"), of("heir"));
    let token = claim(&*engines[0], &job, &first).await.token;
    assert!(try_claim(&*engines[1], &job, &heir).await.is_none());
    let mut hints = engines[1].watch(&job, Some(&heir));
    let woken = Arc::new(AtomicUsize::new(0));
    let mut crowd = Vec::new();
    for at in 0..200 {
        let (engine, bid) = (&engines[at % engines.len()], of(&format!("c{at}")));
        assert!(try_claim(&**engine, &job, &bid).await.is_none());
        let (mut hints, woken) = (engine.watch(&job, Some(&bid)), Arc::clone(&woken));
        crowd.push(tokio::spawn(async move {
            while hints.next().await.is_some() {
                woken.fetch_add(1, Ordering::SeqCst);
            }
        }));
    }
    let watches = || server.monitor().expect("answers")["zk_watch_count"].parse::<usize>().expect("a number");
    // Watches begin when the first hint is asked for.
    tokio::select! {
        biased;
        _ = hints.next() => panic!("woken before the release"),
        () = async { while watches() < 201 { tokio::task::yield_now().await; } } => {}
    }
    let before = server.requests().expect("counts").total();
    engines[0].release(&job, &first, token, &farewell(None)).await.expect("released");
    assert!(hints.next().await.expect("a hint").is_ok());
    assert!(try_claim(&*engines[1], &job, &heir).await.expect("the next in line").token > token);
    let asked = server.requests().expect("counts").total() - before;
    assert!(asked <= 40, "{asked} packets for one release");
    assert_eq!(woken.load(Ordering::SeqCst), 0, "others were woken");
    for candidate in crowd {
        candidate.abort();
    }
}

#[tokio::test]
async fn three_hundred_elections_cost_one_session() {
    let server = ZooKeeper::debian().start().expect("ZooKeeper starts");
    let engine = open(&format!("zookeeper://{}/many?tick-ms=100", server.address())).await;
    let a = Bid { ttl: LONG, ..bid("a") };
    let jobs: Vec<_> = (0..300).map(|it| election(&format!("job{it}"))).collect();
    let tokens = join_all(jobs.iter().map(|job| claim(&*engine, job, &a))).await;
    let number = |what: &str| server.monitor().expect("answers")[what].parse::<u64>().expect("a number");
    assert_eq!(number("zk_ephemerals_count"), 300);
    // The other one is whoever asks this.
    assert!(number("zk_num_alive_connections") <= 2);
    let renew_all = || async {
        let renewals = join_all(jobs.iter().zip(&tokens).map(|(job, grant)| engine.renew(job, &a, grant.token))).await;
        for renewal in renewals {
            assert!(matches!(renewal, Ok(Renewal::Kept { .. })), "{renewal:?}");
        }
    };
    // Until all are on record and watched, there is more to ask.
    let calm = async {
        loop {
            let before = server.requests().expect("counts").total();
            renew_all().await;
            if server.requests().expect("counts").total() - before <= 10 {
                return;
            }
        }
    };
    tokio::time::timeout(crate::PATIENCE, calm).await.expect("three hundred renewals cost ten packets");
}
