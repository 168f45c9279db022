//! Nodes whose disks fail, fill up and stand still (C10, C46, C47, C52): they end or make way, say why, and nothing that was confirmed is lost.

#[path = "server/cluster.rs"]
mod cluster;

use cluster::{Cluster, LONG, done, id, patient, put, soon, value};
use incumbent_service::log::Options;
use incumbent_service::log::sim::{Loss, SimDisk, Weather};
use incumbent_service::replica::Settings;
use incumbent_service::server::{Config, Consistency, End, Handle, Node, Outcome, Why};
use incumbent_store::query::{AskStatus, Query};
use tokio::time::timeout;

fn three_disks() -> [SimDisk; 3] {
    [1, 2, 3].map(SimDisk::new)
}

/// Short segments, so that a full disk is soon felt.
fn alone() -> Config {
    let settings = Settings { payload_bytes_max: 32 << 10, entry_bytes_max: 32 << 10, ..patient() };
    Config { settings, log: Options::segments_of(64 << 10), ..Config::alone("nowhere") }
}

#[tokio::test]
async fn a_node_whose_disk_fails_ends_and_says_why() {
    let disk = SimDisk::new(1);
    let node = Node::start_on(disk.clone(), alone()).expect("starts");
    let handle = node.handle();
    done(handle.submit(put("a", "1")).await);
    disk.turns(Weather::Broken);
    let outcome = timeout(LONG, handle.submit(put("a", "2"))).await.expect("in time");
    assert_eq!(outcome, Outcome::Unknown, "nobody can know");
    let End::Broken(why) = timeout(LONG, handle.ended()).await.expect("in time") else { panic!("closed") };
    assert!(why.contains("the disk failed"), "{why}");
    assert!(matches!(handle.submit(put("a", "3")).await, Outcome::NotNow(it) if it.why == Why::Closing));
    drop(node);
    disk.turns(Weather::Fair);
    disk.crash(Loss::Everything);
    let node = Node::start_on(disk, alone()).expect("starts again");
    assert_eq!(value(&node.handle(), "a").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn a_node_whose_disk_is_full_answers_questions_says_so_and_goes_on_when_there_is_room() {
    let disk = SimDisk::new(1);
    let node = Node::start_on(disk.clone(), alone()).expect("starts");
    let handle = node.handle();
    done(handle.submit(put("a", "1")).await);
    disk.turns(Weather::Full);
    // There is room in segments that were made before.
    let long = "x".repeat(20_000);
    let mut number = 0;
    let stuck = loop {
        number += 1;
        let (submitter, request) = (handle.clone(), put(&format!("key-{number}"), &long));
        let mut submitting = tokio::spawn(async move { submitter.submit(request).await });
        tokio::select! {
            outcome = &mut submitting => drop(done(outcome.expect("no panic"))),
            () = full(&handle) => break submitting,
        }
    };
    let Outcome::NotNow(refused) = handle.submit(put("b", "")).await else { panic!("it was done") };
    assert_eq!(refused.why, Why::ReadOnly);
    assert!(refused.to_string().ends_with("make room"), "there is no other node to ask: {refused}");
    assert!(handle.ask(Query::Status(AskStatus {}), Consistency::Linearizable).await.is_ok());
    assert_eq!(value(&handle, "a").await.as_deref(), Some("1"));
    disk.turns(Weather::Fair);
    // What was under way was not forgotten.
    done(timeout(LONG, stuck).await.expect("in time").expect("no panic"));
    done(handle.submit(put("a", "2")).await);
    assert_eq!(handle.status().await.expect("runs").disk.full, None);
}

async fn full(handle: &Handle) {
    soon("a full disk", || async { handle.status().await.filter(|it| it.disk.full.is_some()) }).await;
}

/// C46 among three: the others go on, and the node comes back with what it had confirmed.
#[tokio::test]
async fn a_leader_whose_disk_fails_is_replaced() {
    let disks = three_disks();
    let mut cluster = Cluster::start_on(Some(disks.clone()), patient());
    let leader = cluster.leader().await;
    done(cluster.handle(leader).submit(put("a", "1")).await);
    disks[leader].turns(Weather::Broken);
    let other = cluster.handle((leader + 1) % 3);
    done(other.submit(put("a", "2")).await);
    assert!(matches!(timeout(LONG, cluster.handle(leader).ended()).await, Ok(End::Broken(_))));
    cluster.kill(leader);
    disks[leader].turns(Weather::Fair);
    disks[leader].crash(Loss::Everything);
    cluster.revive(leader);
    assert_eq!(value(&cluster.handle(leader), "a").await.as_deref(), Some("2"));
    cluster.equal().await;
}

/// C49: it was copied while its node ran, so it was opened as often as the others know, and once more.
#[tokio::test]
async fn a_node_that_goes_on_with_a_copy_of_its_running_directory_ends_and_says_what_to_do() {
    let mut cluster = Cluster::start_on(Some(three_disks()), patient());
    let leader = cluster.leader().await;
    let follower = (leader + 1) % 3;
    done(cluster.handle(leader).submit(put("a", "1")).await);
    cluster.equal().await;
    let copy = cluster.disks.as_ref().expect("simulated")[follower].copy();
    for value in 2..10 {
        done(cluster.handle(leader).submit(put("a", &value.to_string())).await);
    }
    cluster.equal().await;
    cluster.kill(follower);
    cluster.disks.as_mut().expect("simulated")[follower] = copy;
    cluster.revive(follower);
    let end = timeout(LONG, cluster.handle(follower).ended()).await.expect("in time");
    let End::Broken(why) = end else { panic!("closed") };
    assert!(why.contains("an older copy of itself") && why.contains("under a new number"), "{why}");
    cluster.kill(follower);
    done(cluster.handle(leader).submit(put("a", "10")).await);
}

/// C10, C52: the network is fine and the process runs, but its disk does not answer, or only after seconds.
#[tokio::test]
async fn a_leader_whose_disk_stands_still_makes_way_and_does_not_lead_again_at_once() {
    let disks = three_disks();
    let cluster = Cluster::start_on(Some(disks.clone()), patient());
    let leader = cluster.leader().await;
    let other = cluster.handle((leader + 1) % 3);
    done(other.submit(put("a", "1")).await);
    disks[leader].turns(Weather::Still);
    // By the two others: a majority of disks answers.
    done(other.submit(put("a", "2")).await);
    done(other.submit(put("a", "3")).await);
    let heir = other.role().wait_for(|it| it.leader.is_some_and(|it| it != id(leader))).await.expect("runs").leader;
    disks[leader].turns(Weather::Fair);
    cluster.equal().await;
    assert!(cluster.status(leader).await.disk.slow, "{:?}", cluster.status(leader).await.disk);
    assert_eq!(other.role().borrow().leader, heir);
    // Nobody writes anything: it is trusted again all the same.
    let slow = cluster.handle(leader);
    soon("a disk that is trusted again", || async { slow.status().await.filter(|it| !it.disk.slow) }).await;
    soon("it leads again if asked to", || async {
        for at in 0..3 {
            cluster.handle(at).transfer(Some(id(leader))).await;
        }
        other.role().borrow().leader.filter(|it| *it == id(leader))
    })
    .await;
}

/// C52: nobody would do better, so whoever leads stays.
#[tokio::test]
async fn three_slow_disks_are_a_slow_service_and_not_none() {
    let disks = three_disks();
    let settings = patient();
    let slow = Weather::Slow(settings.disk_patience * 2);
    let cluster = Cluster::start_on(Some(disks.clone()), settings);
    let leader = cluster.leader().await;
    let other = cluster.handle((leader + 1) % 3);
    done(other.submit(put("a", "0")).await);
    disks.iter().for_each(|it| it.turns(slow));
    // At first nobody knows of the others' disks.
    for number in 1..4 {
        done(other.submit(put("a", &number.to_string())).await);
    }
    for at in 0..3 {
        let handle = cluster.handle(at);
        soon("a disk that is known to be slow", || async { handle.status().await.filter(|it| it.disk.slow) }).await;
    }
    let leader = cluster.leader().await;
    let role = *cluster.handle(leader).role().borrow();
    for number in 4..8 {
        done(other.submit(put("a", &number.to_string())).await);
    }
    assert_eq!(*cluster.handle(leader).role().borrow(), role, "nobody else was elected");
    disks.iter().for_each(|it| it.turns(Weather::Fair));
    cluster.equal().await;
    assert_eq!(value(&other, "a").await.as_deref(), Some("7"));
}

/// C47.
#[tokio::test]
async fn a_leader_whose_disk_is_full_makes_way() {
    let disks = three_disks();
    let settings = Settings { payload_bytes_max: 32 << 10, entry_bytes_max: 32 << 10, ..patient() };
    let mut cluster = Cluster::prepare(Some(disks.clone()), settings);
    cluster.log = Options::segments_of(64 << 10);
    for at in 0..3 {
        cluster.revive(at);
    }
    let leader = cluster.leader().await;
    let (other, full) = (cluster.handle((leader + 1) % 3), cluster.handle(leader));
    disks[leader].turns(Weather::Full);
    let long = "x".repeat(20_000);
    let mut role = other.role();
    while role.borrow_and_update().leader == Some(id(leader)) {
        done(other.submit(put("a", &long)).await);
    }
    assert!(full.status().await.expect("runs").disk.full.is_some());
    done(other.submit(put("a", "after")).await);
    disks[leader].turns(Weather::Fair);
    cluster.equal().await;
    assert_eq!(value(&full, "a").await.as_deref(), Some("after"));
}

/// C07: the power fails at every step that the disk makes, from the first start on, through commits and snapshots.
#[tokio::test]
async fn a_node_that_loses_power_at_any_step_has_what_it_confirmed() {
    const WRITES: u64 = 12;
    let config = || {
        let settings = Settings { snapshot_entries: 4, entries_kept: 1, ..alone().settings };
        Config { settings, ..alone() }
    };
    for step in 1.. {
        let disk = SimDisk::new(step);
        disk.dies_at(step);
        let mut confirmed = 0;
        if let Ok(node) = Node::start_on(disk.clone(), config()) {
            let handle = node.handle();
            while confirmed < WRITES
                && let Outcome::Done { .. } =
                    timeout(LONG, handle.submit(put("n", &(confirmed + 1).to_string()))).await.expect("in time")
            {
                confirmed += 1;
            }
        }
        let survived = disk.steps() < step;
        disk.crash(Loss::Some(step));
        let node = Node::start_on(disk, config()).unwrap_or_else(|why| panic!("power lost at step {step}: {why}"));
        let found = value(&node.handle(), "n").await.map_or(0, |it| it.parse::<u64>().expect("a number"));
        assert!((confirmed..=confirmed + 1).contains(&found), "power lost at step {step}: {found} of {confirmed}");
        if survived {
            assert_eq!(found, WRITES);
            return;
        }
    }
}
