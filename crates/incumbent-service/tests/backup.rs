//! A backup taken while others write, and clusters that begin with it: nothing acknowledged before is missing, and nothing that was given is given again (C51, C60).
#![allow(clippy::wildcard_enum_match_arm, reason = "a test wants one kind of answer")]

#[path = "server/cluster.rs"]
mod cluster;

use std::fs;
use std::path::{Path, PathBuf};

use cluster::{Cluster, done, id, open, opened, patient, put, soon, value};
use incumbent_client::administration::{Administration, Attended, BackupView, ReadBackup, TakeSnapshot};
use incumbent_client::backup;
use incumbent_client::client::{Client, Options as ClientOptions};
use incumbent_protocol::protocol::NodeId;
use incumbent_service::log::Options;
use incumbent_service::replica::Settings;
use incumbent_service::server::{Config, Consistency, Handle, Node, NotRestored, Outcome, Peer, Restoration, restore};
use incumbent_store::command::{Campaign, Command, Request};
use incumbent_store::query::{Answer, AskStatus, Query};
use incumbent_store::reply::Reply;
use incumbent_testbed::port::Port;

async fn ask(handle: &Handle, wanted: Administration) -> Attended {
    soon("attended", || async { handle.administer(wanted.clone()).await.ok() }).await
}

async fn back_up(handle: &Handle, file: &Path) -> BackupView {
    let Attended::Backup(view) = ask(handle, Administration::Snapshot(TakeSnapshot {})).await else { panic!("no backup") };
    let mut bytes = Vec::new();
    loop {
        let wanted = ReadBackup { index: view.index, checksum: view.checksum, offset: bytes.len() as u64 };
        match ask(handle, Administration::ReadBackup(wanted)).await {
            Attended::Piece(piece) if piece.is_empty() => break,
            Attended::Piece(piece) => bytes.extend(piece),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((bytes.len() as u64, crc32c::crc32c(&bytes)), (view.bytes, view.checksum));
    fs::write(file, bytes).expect("written");
    view
}

fn wanted(cluster: &str, node: usize) -> Restoration {
    let members = (0..3).map(id).collect();
    Restoration { cluster: cluster.to_owned(), node: id(node), members, above: 0, log: Options::default() }
}

fn bid(session: u64) -> Request {
    let (election, identity) = ("billing".to_owned(), "web-1".to_owned());
    Request::of(Command::Campaign(Campaign { session, election, identity, ..Campaign::default() }))
}

async fn win(handle: &Handle, session: u64) -> u64 {
    soon("it is elected", || async {
        match handle.submit(bid(session)).await {
            Outcome::Done { reply: Reply::Granted(granted), .. } => Some(granted.token),
            Outcome::Done { .. } | Outcome::NotNow(_) | Outcome::Unknown => None,
            Outcome::Refused(refusal) => panic!("{refusal}"),
        }
    })
    .await
}

/// The cluster that begins with these directories.
fn revive(directories: &Path, cluster: &str) -> Vec<Node> {
    let ports: Vec<Port> = (0..3).map(|_| Port::free().expect("a port")).collect();
    (0..3).map(|at| start(directories, cluster, at, &ports)).collect()
}

fn start(directories: &Path, cluster: &str, at: usize, ports: &[Port]) -> Node {
    let address = |at: usize| format!("127.0.0.1:{}", ports[at].number());
    let config = Config {
        cluster: cluster.to_owned(),
        me: id(at),
        listen: address(at),
        peers: (0..3).filter(|it| *it != at).map(|it| Peer { id: id(it), address: address(it) }).collect(),
        settings: patient(),
        ..Config::alone(directories.join(at.to_string()))
    };
    Node::start(config).expect("starts")
}

/// What the node says of its lines when both others have refused it.
async fn refused_by_both(node: &Node) -> Vec<String> {
    soon("both have refused it", || async {
        let lines = node.handle().status().await.expect("it runs").lines;
        let refused = |it: &String| it.contains("is of another cluster named");
        let why: Vec<String> = lines.into_iter().filter_map(|it| it.trouble).filter(refused).collect();
        (why.len() == 2).then_some(why)
    })
    .await
}

fn snapshot_in(directory: &Path) -> Vec<u8> {
    let entries = fs::read_dir(directory).expect("there").map(|it| it.expect("read").path());
    let snapshots: Vec<PathBuf> = entries.filter(|it| it.to_string_lossy().contains("/snapshot-")).collect();
    assert_eq!(snapshots.len(), 1, "{snapshots:?}");
    fs::read(&snapshots[0]).expect("read")
}

#[tokio::test]
async fn a_backup_under_load_begins_another_cluster_whose_tokens_are_greater() {
    let settings = Settings { snapshot_entries: 50, entries_kept: 5, ..patient() };
    let mut cluster = Cluster::prepare(None, settings);
    cluster.clients = Some("127.0.0.1:0".to_owned());
    for at in 0..3 {
        cluster.revive(at);
    }
    let leader = cluster.leader().await;
    let handle = cluster.handle(leader);
    let session = opened(handle.submit(open(1_000)).await);
    let before = win(&handle, session).await;
    for number in 0..120 {
        done(handle.submit(put(&format!("before-{number}"), &"x".repeat(5_000))).await);
    }
    let writer = cluster.handle((leader + 1) % 3);
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let writing = tokio::spawn(async move {
        for number in 0.. {
            let _ = writer.submit(put(&format!("during-{number}"), "x")).await;
            if *stopped.borrow() {
                return;
            }
        }
    });
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("backup");
    let view = back_up(&cluster.handle((leader + 2) % 3), &file).await;
    // The same by a client's connection, into a file that is never written over.
    let clients = cluster.nodes[leader].as_ref().and_then(Node::clients_address).expect("it serves clients");
    let client = Client::connect([clients.to_string()], ClientOptions::default()).await.expect("connected");
    let second = place.path().join("second");
    let again = backup::save(&client, &second).await.expect("saved");
    assert!(again.index >= view.index && fs::metadata(&second).expect("there").len() == again.bytes);
    assert!(backup::save(&client, &second).await.expect_err("refused").contains("written over"));
    assert!(!place.path().join("second.part").exists());
    stop.send_replace(true);
    writing.await.expect("no panic");
    // The old cluster goes on: what it gives now, the backup does not know.
    let session = opened(handle.submit(open(1_000)).await);
    let after = soon("the seat is free", || async {
        let token = win(&handle, session).await;
        (token >= before).then_some(token)
    })
    .await;
    for at in 0..3 {
        let restored = restore(&file, &place.path().join(at.to_string()), &wanted("billing-2", at)).expect("restored");
        assert_eq!((restored.incarnation, restored.label.cluster.as_str()), (1, "incumbent"));
    }
    let first = snapshot_in(&place.path().join("0"));
    assert!((1..3).all(|at| snapshot_in(&place.path().join(at.to_string())) == first), "the same on every node");
    let nodes = revive(place.path(), "billing-2");
    let new = nodes[1].handle();
    for number in 0..120 {
        assert!(value(&new, &format!("before-{number}")).await.is_some(), "before-{number}");
    }
    let members = new.members().borrow().clone();
    assert!(members.values().all(|it| cluster.ports().iter().all(|port| !it.peer.ends_with(&format!(":{port}")))), "{members:?}");
    let fresh = opened(
        soon("a session", || async { Some(new.submit(open(60_000)).await).filter(|it| matches!(it, Outcome::Done { .. })) })
            .await,
    );
    let token = win(&new, fresh).await;
    assert!(token > after && token > before, "C60: {token:x} after {after:x}");
    let status = new.ask(Query::Status(AskStatus {}), Consistency::Linearizable).await.expect("answered");
    let Some(Answer::Status(status)) = status.answer else { panic!("another answer") };
    assert!(status.revision > view.revision && status.incarnation == 1);
}

#[track_caller]
fn why(result: Result<incumbent_service::server::Restored, NotRestored>) -> String {
    result.expect_err("refused").to_string()
}

#[tokio::test]
async fn what_cannot_be_restored_is_refused_and_leaves_nothing_behind() {
    let place = tempfile::tempdir().expect("a directory");
    let node = Node::start(Config { settings: patient(), ..Config::alone(place.path().join("old")) }).expect("starts");
    done(node.handle().submit(put("a", "1")).await);
    soon("its record", || async { node.handle().members().borrow().contains_key(&NodeId(1)).then_some(()) }).await;
    let file = place.path().join("backup");
    back_up(&node.handle(), &file).await;
    let bytes = fs::read(&file).expect("read");
    let target = place.path().join("new");
    let one = Restoration { members: vec![NodeId(1)], ..wanted("new", 0) };
    let spoilt = place.path().join("spoilt");
    for at in (0..bytes.len()).step_by(13) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 4;
        fs::write(&spoilt, &flipped).expect("written");
        assert!(restore(&spoilt, &target, &one).is_err(), "a flipped bit at {at}");
        fs::write(&spoilt, &bytes[..at]).expect("written");
        assert!(why(restore(&spoilt, &target, &one)).contains("spoilt"), "cut off at {at}");
    }
    fs::write(&spoilt, [&bytes[..], b"\r\n"].concat()).expect("written");
    let longer = why(restore(&spoilt, &target, &one));
    assert!(longer.contains("there is more behind its end") && !longer.contains("cut off"), "{longer}");
    assert!(why(restore(place.path(), &target, &one)).contains("is a directory: name a file"));
    assert!(!target.exists(), "nothing is left behind");
    assert!(why(restore(&place.path().join("nowhere"), &target, &one)).contains("cannot be read"));
    assert!(why(restore(&file, &place.path().join("old"), &one)).contains("nothing is written over"));
    assert!(
        why(restore(&file, &target, &Restoration { cluster: "incumbent".to_owned(), ..one.clone() })).contains("another name")
    );
    assert!(why(restore(&file, &target, &wanted("new", 7))).contains("not among the members"));
    assert!(why(restore(&file, &target, &Restoration { above: u64::MAX, ..one.clone() })).contains("no incarnation"));
    let mut own = fs::read_dir(place.path().join("old")).expect("there").map(|it| it.expect("read").path());
    let own = own.find(|it| it.to_string_lossy().contains("/snapshot-")).expect("its birth");
    assert!(why(restore(&own, &target, &one)).contains("no backup"));
    restore(&file, &target, &one).expect("restored");
    assert!(why(restore(&file, &target, &one)).contains("nothing is written over"));
    // Where the old members were is not brought back: they are none of this cluster's.
    let other = Restoration { node: NodeId(7), members: vec![NodeId(7)], ..one.clone() };
    let elsewhere = place.path().join("elsewhere");
    restore(&file, &elsewhere, &other).expect("restored");
    let seventh = Config { cluster: "new".to_owned(), me: NodeId(7), settings: patient(), ..Config::alone(&elsewhere) };
    let seventh = Node::start(seventh).expect("starts");
    done(seventh.handle().submit(put("b", "2")).await);
    assert!(!seventh.handle().members().borrow().contains_key(&NodeId(1)));
    // Neither node takes the other's directory, nor the other for one of its own.
    let foreign = Node::start(Config { settings: patient(), ..Config::alone(&target) });
    assert!(foreign.is_err(), "{foreign:?}");
    let node = Node::start(Config { cluster: "new".to_owned(), settings: patient(), ..Config::alone(&target) }).expect("starts");
    assert_eq!(value(&node.handle(), "a").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn a_node_that_began_with_another_backup_or_with_none_is_refused_by_the_others() {
    let place = tempfile::tempdir().expect("a directory");
    let old = Node::start(Config { settings: patient(), ..Config::alone(place.path().join("old")) }).expect("starts");
    done(old.handle().submit(put("a", "1")).await);
    let [first, second] = ["first", "second"].map(|it| place.path().join(it));
    back_up(&old.handle(), &first).await;
    done(old.handle().submit(put("after", "1")).await);
    back_up(&old.handle(), &second).await;
    // The odd node has the older backup, the younger one, and none.
    for (number, (odd, others)) in
        [(Some(&first), Some(&second)), (Some(&second), Some(&first)), (Some(&first), None)].into_iter().enumerate()
    {
        let cluster = format!("new-{number}");
        let directories = place.path().join(&cluster);
        for (at, file) in [others, others, odd].into_iter().enumerate() {
            if let Some(file) = file {
                restore(file, &directories.join(at.to_string()), &wanted(&cluster, at)).expect("restored");
            }
        }
        let ports: Vec<Port> = (0..3).map(|_| Port::free().expect("a port")).collect();
        let two: Vec<Node> = (0..2).map(|at| start(&directories, &cluster, at, &ports)).collect();
        let written =
            || async { Some(two[0].handle().submit(put("b", "2")).await).filter(|it| matches!(it, Outcome::Done { .. })) };
        done(soon("a write", written).await);
        let odd = start(&directories, &cluster, 2, &ports);
        refused_by_both(&odd).await;
        let role = *odd.handle().role().borrow();
        assert!(role.leader.is_none(), "{role:?}");
        // A majority goes on, and is what it was restored from.
        let after = if others == Some(&second) { Some("1") } else { None };
        assert_eq!(value(&two[1].handle(), "after").await.as_deref(), after);
        assert_eq!(value(&two[1].handle(), "b").await.as_deref(), Some("2"));
    }
}
