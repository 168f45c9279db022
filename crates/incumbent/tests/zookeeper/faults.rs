//! Lost connections, lost replies, expired sessions, servers that end and begin again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use incumbent::engine::{Claim, Kind, Renewal};
use incumbent_testbed::{Direction, Relay, Server as _, Verdict, ZooKeeper};

use zookeeper_client::{Acls, CreateMode};

use crate::{PATIENCE, ZOOKEEPER, bid, claim, election, farewell, open, raw, url};

fn relayed() -> (Relay, String) {
    let relay = Relay::before(&ZOOKEEPER.server().address()).expect("a relay");
    let address = relay.address();
    (relay, address)
}

#[tokio::test]
async fn a_lost_connection_is_no_answer_and_an_expired_session_is_the_end() {
    let (relay, address) = relayed();
    let (engine, job) = (open(&format!("zookeeper://{address}/expiry?tick-ms=100")).await, election("job"));
    let a = bid("a");
    let token = claim(&*engine, &job, &a).await.token;
    relay.disconnect();
    // While it is connected anew nothing is known; then the leadership is found as it was.
    let kept = async {
        loop {
            match engine.renew(&job, &a, token).await {
                Ok(Renewal::Kept { grant, .. }) => return grant,
                Ok(Renewal::Gone) => panic!("a lost connection is not the end"),
                Err(why) => assert_ne!(why.kind(), Kind::Misconfigured, "{why:?}"),
            }
        }
    };
    assert_eq!(tokio::time::timeout(PATIENCE, kept).await.expect("reconnects").token, token);
    relay.partition();
    let gone = async {
        loop {
            match engine.renew(&job, &a, token).await {
                Ok(Renewal::Kept { .. }) => panic!("nothing gets through"),
                Ok(Renewal::Gone) => return,
                Err(why) => assert_ne!(why.kind(), Kind::Misconfigured, "{why:?}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("the session expires");
    relay.heal();
    assert!(claim(&*engine, &job, &a).await.token > token, "a new session, a new node");
    let board = open(&url("expiry")).await.look(&job).await.expect("ZooKeeper is well");
    assert_eq!((board.leaders.len(), board.candidates.len()), (1, 0));
}

/// CURATOR-45, -202, -264: the node is there, and its maker does not know.
#[tokio::test]
async fn a_create_whose_reply_was_lost_leaves_one_node() {
    for priority in [0, 1] {
        let (relay, address) = relayed();
        let (engine, client) = (open(&format!("zookeeper://{address}/lost?tick-ms=100")).await, raw().await);
        let job = election(&format!("job{priority}"));
        let a = incumbent::engine::Bid { priority, ..bid("a") };
        // So that the session is there, and the paths: the first create shall succeed.
        claim(&*engine, &election(&format!("warm{priority}")), &bid("w")).await;
        for path in [format!("/lost/{job}"), format!("/lost/.incumbent/{job}")] {
            let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
            client.mkdir(&path, &options).await.expect("ZooKeeper is well");
        }
        let lost = Arc::new(AtomicBool::new(false));
        let (seen, path) = (Arc::clone(&lost), format!("/lost/{job}/_c_"));
        let mut armed = false;
        relay.inspect(move |chunk| match chunk.direction {
            Direction::Request if chunk.bytes.windows(path.len()).any(|it| it == path.as_bytes()) => {
                armed = true;
                Verdict::Pass
            }
            Direction::Reply if armed && !seen.swap(true, Ordering::SeqCst) => Verdict::Disconnect,
            Direction::Request | Direction::Reply => Verdict::Pass,
        });
        let token = loop {
            match engine.claim(&job, &a).await {
                Ok(Claim::Granted(grant)) => break grant.token,
                Ok(Claim::Occupied { leader, .. }) => panic!("nobody else is there: {leader:?}"),
                Err(why) => assert_ne!(why.kind(), Kind::Misconfigured, "{why:?}"),
            }
        };
        assert!(lost.load(Ordering::SeqCst), "a reply was lost");
        let children = client.list_children(&format!("/lost/{job}")).await.expect("there");
        let changes = client.check_stat(&format!("/lost/{job}")).await.expect("ZooKeeper is well").expect("there").cversion;
        assert_eq!((children.len(), changes), (1, 1), "there never was another: {children:?}");
        assert!(matches!(engine.renew(&job, &a, token).await, Ok(Renewal::Kept { .. })));
        engine.release(&job, &a, token, &farewell(None)).await.expect("released");
        assert!(client.list_children(&format!("/lost/{job}")).await.expect("there").is_empty());
    }
}

#[tokio::test]
async fn tokens_rise_over_a_restart_of_the_server() {
    let server = ZooKeeper::debian().start().expect("ZooKeeper starts");
    let engine = open(&format!("zookeeper://{}/restart?tick-ms=100", server.address())).await;
    let (job, mut last) = (election("job"), 0);
    for round in 0..3 {
        let a = bid(&format!("a{round}"));
        let token = claim(&*engine, &job, &a).await.token;
        assert!(token.get() > last, "{token} after {last}");
        last = token.get();
        match round {
            // It holds the seat while the server is away: dead, or asleep for longer than the session.
            0 => {
                server.kill();
                server.restart().expect("starts again");
            }
            1 => server.restart().expect("starts again"),
            _ => {}
        }
    }
}

#[tokio::test]
async fn an_ensemble_that_loses_its_leader_keeps_ours() {
    let ensemble = ZooKeeper::debian().start_ensemble(3).expect("ZooKeeper starts");
    let hosts = ensemble.addresses().join(",");
    let engine = open(&format!("zookeeper://{hosts}/ensemble?tick-ms=100")).await;
    let job = election("job");
    let a = incumbent::engine::Bid { ttl: std::time::Duration::from_secs(30), ..bid("a") };
    let token = claim(&*engine, &job, &a).await.token;
    let leader = ensemble.leader().expect("one leads");
    ensemble.members()[leader].kill();
    ensemble.leader_after(leader).expect("another leads");
    let kept = async {
        loop {
            match engine.renew(&job, &a, token).await {
                Ok(Renewal::Kept { grant, .. }) => return grant,
                Ok(Renewal::Gone) => panic!("a session outlives the leader of the ensemble"),
                Err(why) => assert_ne!(why.kind(), Kind::Misconfigured, "{why:?}"),
            }
        }
    };
    assert_eq!(tokio::time::timeout(PATIENCE, kept).await.expect("reconnects").token, token);
    engine.release(&job, &a, token, &farewell(None)).await.expect("released");
    assert!(claim(&*engine, &job, &bid("b")).await.token > token, "the epoch has risen");
}
