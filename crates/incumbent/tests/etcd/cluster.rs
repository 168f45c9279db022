//! Three members: their leader changes, dies, or is paused.

use std::sync::Arc;
use std::time::Duration;

use incumbent::engine::{Claim, Grant, Renewal};
use incumbent::{Election, Engine, Timing, clock};
use incumbent_testbed::{Etcd, EtcdCluster, Server as _};

use crate::support::{LONG, PATIENCE, bid, claim, granted, jobs, leads, open, reconnected, release};

async fn engine(cluster: &EtcdCluster, namespace: &str) -> Arc<dyn Engine> {
    open(&format!("etcd://{}/{namespace}", cluster.addresses().join(","))).await.expect("etcd is there")
}

/// Has another member lead etcd.
fn depose(cluster: &EtcdCluster) {
    let leader = cluster.leader().expect("one leads");
    let other = (leader + 1) % 3;
    let id = |member: usize| {
        let status = cluster.members()[member].etcdctl(&["endpoint", "status", "-w", "simple"]).expect("answers");
        status.split(", ").nth(1).expect("the second word").to_owned()
    };
    cluster.members()[leader].etcdctl(&["move-leader", &id(other)]).expect("moves");
    assert_ne!(cluster.leader_after(leader).expect("another leads"), leader);
}

async fn kept(engine: &dyn Engine, token: incumbent::Token, bid: &incumbent::engine::Bid) -> Grant {
    match engine.renew(&jobs(), bid, token).await.expect("answers") {
        Renewal::Kept { grant, .. } => grant,
        Renewal::Gone => panic!("still in office"),
    }
}

#[tokio::test]
async fn a_keep_alive_does_not_count_beyond_a_change_of_leaders() {
    for plan in [Etcd::debian(), Etcd::recent()] {
        let cluster = plan.start_cluster(3).expect("starts");
        let engine = engine(&cluster, "moved").await;
        let a = bid("a", LONG);
        let held = granted(&*engine, &a).await;
        depose(&cluster);
        let deposed = clock::now();
        // Young enough to be shared, were it not for the change.
        let renewed = kept(&*engine, held.token, &a).await;
        assert!(renewed.counted_from > Some(deposed), "counted from a keep-alive under the old leader");
        let shared = kept(&*engine, held.token, &a).await;
        assert_eq!(shared.counted_from, renewed.counted_from, "and that one is shared");
        depose(&cluster);
        let deposed = clock::now();
        let Claim::Granted(again) = claim(&*engine, &a).await else { panic!("still in office") };
        assert!(again.counted_from > Some(deposed) && again.token == held.token);
    }
}

#[tokio::test]
async fn a_leadership_survives_the_death_of_etcds_leader() {
    let cluster = Etcd::debian().start_cluster(3).expect("starts");
    let timing = Timing::of(Duration::from_secs(10)).build().expect("a good ttl");
    let url = format!("etcd://{}/killed", cluster.addresses().join(","));
    let election = Election::on(url).name("jobs").timing(timing).build().await.expect("etcd is there");
    let leadership = tokio::time::timeout(PATIENCE, election.campaign()).await.expect("in time").expect("settings are right");
    let leader = cluster.leader().expect("one leads");
    cluster.members()[leader].kill();
    cluster.leader_after(leader).expect("another leads");
    let deadline = leadership.deadline();
    while leadership.deadline() == deadline {
        assert!(leadership.check().is_ok(), "lost");
        tokio::task::yield_now().await;
    }
    leadership.resign().await.expect("released");
    cluster.members()[leader].restart().expect("starts");
}

#[tokio::test]
async fn tokens_rise_across_changes_of_leaders_and_the_line_keeps_its_order() {
    let cluster = Etcd::debian().start_cluster(3).expect("starts");
    let (one, two) = (engine(&cluster, "changes").await, engine(&cluster, "changes").await);
    let (a, b) = (bid("a", LONG), bid("b", LONG));
    let mut last = None;
    for _ in 0..3 {
        let held = leads(&*one, &a).await;
        assert!(Some(held.token) > last);
        assert!(matches!(claim(&*two, &b).await, Claim::Occupied { .. }));
        depose(&cluster);
        reconnected(&*one).await;
        reconnected(&*two).await;
        release(&*one, &a, held.token).await;
        let next = leads(&*two, &b).await;
        assert!(next.token > held.token);
        release(&*two, &b, next.token).await;
        last = Some(next.token);
    }
}

#[tokio::test]
async fn a_member_that_is_paused_costs_one_call_and_no_leadership() {
    let cluster = Etcd::debian().start_cluster(3).expect("starts");
    let engine = engine(&cluster, "paused").await;
    let a = bid("a", Duration::from_secs(10));
    let held = granted(&*engine, &a).await;
    // Wherever the engine is connected to: it asks the first first.
    cluster.members()[0].pause();
    let paused = clock::now();
    let renewed = async {
        loop {
            // As the library does: a call that is not answered in a tenth of a ttl is followed by another.
            if let Ok(Ok(renewal)) = tokio::time::timeout(a.ttl / 10, engine.renew(&jobs(), &a, held.token)).await {
                match renewal {
                    Renewal::Kept { grant, .. } if grant.counted_from > Some(paused) => return,
                    Renewal::Kept { .. } => tokio::task::yield_now().await,
                    Renewal::Gone => panic!("lost"),
                }
            }
        }
    };
    tokio::time::timeout(a.ttl, renewed).await.expect("within a ttl");
    cluster.members()[0].resume();
}
