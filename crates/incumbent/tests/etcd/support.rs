//! What the tests share: servers, engines, bids, and waiting for hints.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use incumbent::engine::{Bid, Claim, Farewell, Grant, Renewal};
use incumbent::place::Place;
use incumbent::{Engine, Error, Identity, Name, Token, engines};
use incumbent_protocol::tenure::Reason;
use incumbent_testbed::{Etcd, Server as _, Shared};

/// Shared by tests that leave it as it is; each has a namespace of its own in it.
pub(crate) static ETCD: Shared<Etcd> = Shared::new(|| Etcd::debian().start());

/// A more recent version, likewise.
pub(crate) static RECENT: Shared<Etcd> = Shared::new(|| Etcd::recent().start());

/// The shortest that the test's servers grant.
pub(crate) const TTL: Duration = Duration::from_secs(1);

/// One that does not run out while a test does something else.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Long, because the machine may be busy; what is waited for comes much sooner.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A namespace that no other test uses.
pub(crate) fn namespace() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

pub(crate) async fn open(url: &str) -> Result<Arc<dyn Engine>, Error> {
    engines::open(&Place::parse(url)?).await
}

/// An engine of its own, as another process would have.
pub(crate) async fn engine(etcd: &Etcd, namespace: &str) -> Arc<dyn Engine> {
    open(&format!("etcd://{}/{namespace}", etcd.address())).await.expect("etcd is there")
}

pub(crate) fn jobs() -> Name {
    Name::new("jobs").expect("a good name")
}

pub(crate) fn bid(name: &str, ttl: Duration) -> Bid {
    let identity = Identity::named(name).expect("a good name");
    Bid { identity, ttl, value: format!("at-{name}"), priority: 0, seats: 1, seen: None, note: None }
}

pub(crate) async fn claim(engine: &dyn Engine, bid: &Bid) -> Claim {
    engine.claim(&jobs(), bid).await.expect("etcd answers")
}

pub(crate) async fn granted(engine: &dyn Engine, bid: &Bid) -> Grant {
    match claim(engine, bid).await {
        Claim::Granted(grant) => grant,
        Claim::Occupied { leader, .. } => panic!("{leader:?} leads"),
    }
}

/// Stands in line behind somebody, who is named.
pub(crate) async fn waits_behind(engine: &dyn Engine, bid: &Bid) -> Identity {
    match claim(engine, bid).await {
        Claim::Granted(grant) => panic!("leads with {}", grant.token),
        Claim::Occupied { leader, .. } => leader.expect("etcd tells").identity,
    }
}

pub(crate) async fn renewed(engine: &dyn Engine, bid: &Bid, token: Token) -> bool {
    match engine.renew(&jobs(), bid, token).await.expect("etcd answers") {
        Renewal::Kept { grant, .. } => grant.token == token,
        Renewal::Gone => false,
    }
}

pub(crate) async fn release(engine: &dyn Engine, bid: &Bid, token: Token) {
    engine.release(&jobs(), bid, token, &farewell(None)).await.expect("etcd answers");
}

pub(crate) fn farewell(to: Option<&str>) -> Farewell {
    Farewell { reason: Reason::Resigned, to: to.map(str::to_owned) }
}

/// Claims whenever a hint says so, until it leads.
pub(crate) async fn leads(engine: &dyn Engine, bid: &Bid) -> Grant {
    let led = async {
        let mut hints = engine.watch(&jobs(), Some(bid));
        loop {
            if let Claim::Granted(grant) = claim(engine, bid).await {
                return grant;
            }
            if let Err(why) = hints.next().await.expect("it ends with an error") {
                panic!("{why}");
            }
        }
    };
    tokio::time::timeout(PATIENCE, led).await.expect("elected in time")
}

/// Who leads and who waits, by name.
pub(crate) async fn board(engine: &dyn Engine) -> (Vec<String>, Vec<String>) {
    let board = engine.look(&jobs()).await.expect("etcd answers");
    let name = |it: &Identity| it.name().to_owned();
    (board.leaders.iter().map(|it| name(&it.identity)).collect(), board.candidates.iter().map(|it| name(&it.identity)).collect())
}

/// The first call after a restart may be the one that finds its connection broken.
pub(crate) async fn reconnected(engine: &dyn Engine) {
    let _ = engine.look(&jobs()).await;
    engine.look(&jobs()).await.expect("etcd answers again");
}
