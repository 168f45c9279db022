//! The engine on ZooKeeper: under the conformance suite ([`conformance`]), and what is ZooKeeper's own.

mod access;
mod conformance;
mod crowds;
mod faults;
mod interop;
mod processes;
mod recipe;
#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::Duration;

use incumbent::engine::{Bid, Claim, Farewell, Grant};
use incumbent::engines;
use incumbent::place::Place;
use incumbent::{Engine, Identity, Name, Reason};
use incumbent_testbed::{Server as _, Shared, ZooKeeper};

/// For all tests that do not harm it.
static ZOOKEEPER: Shared<ZooKeeper> = Shared::new(|| ZooKeeper::debian().start());

/// Sessions this short are lost to nothing but a very busy machine.
const TTL: Duration = Duration::from_millis(2000);

/// A test that holds never waits that long.
const PATIENCE: Duration = Duration::from_secs(60);

fn url(namespace: &str) -> String {
    format!("zookeeper://{}/{namespace}?tick-ms=100", ZOOKEEPER.server().address())
}

async fn open(url: &str) -> Arc<dyn Engine> {
    engines::open(&Place::parse(url).expect("a good URL")).await.expect("it is not asked for anything yet")
}

fn election(name: &str) -> Name {
    Name::new(name).expect("a good name")
}

fn bid(who: &str) -> Bid {
    let identity = Identity::named(who).expect("a good name");
    Bid { identity, ttl: TTL, value: String::new(), priority: 0, seats: 1, seen: None, note: None }
}

fn farewell(to: Option<&str>) -> Farewell {
    Farewell { reason: Reason::Resigned, to: to.map(str::to_owned) }
}

async fn try_claim(engine: &dyn Engine, election: &Name, bid: &Bid) -> Option<Grant> {
    match engine.claim(election, bid).await.expect("ZooKeeper is well") {
        Claim::Granted(grant) => Some(grant),
        Claim::Occupied { .. } => None,
    }
}

/// Claims until the seat is granted, whatever goes wrong meanwhile.
async fn claim(engine: &dyn Engine, election: &Name, bid: &Bid) -> Grant {
    let granted = async {
        loop {
            match engine.claim(election, bid).await {
                Ok(Claim::Granted(grant)) => return grant,
                Ok(Claim::Occupied { .. }) | Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, granted).await.expect("the seat is granted in the end")
}

/// What the processes of [`processes`] are.
#[test]
fn contender() {
    support::processes::be_a_contender();
}

async fn raw() -> zookeeper_client::Client {
    zookeeper_client::Client::connect(&ZOOKEEPER.server().address()).await.expect("ZooKeeper is well")
}
