//! What goes wrong: leases lost, replies lost, compaction, passwords, hosts that are not there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use incumbent::engine::{Bid, Kind, Renewal, Seat};
use incumbent_testbed::{Direction, Etcd, Relay, Server as _, Verdict};

use crate::support::{
    ETCD, LONG, TTL, bid, board, engine, granted, jobs, leads, namespace, open, reconnected, release, renewed, waits_behind,
};

/// The leases of a server.
fn leases(etcd: &Etcd) -> Vec<String> {
    let list = etcd.etcdctl(&["lease", "list"]).expect("answers");
    list.lines().skip(1).map(str::to_owned).collect()
}

#[tokio::test]
async fn one_whose_lease_was_lost_while_it_waited_is_not_elected_by_what_is_left_of_it() {
    let etcd = Etcd::debian().start().expect("starts");
    let namespace = namespace();
    let (one, two) = (engine(&etcd, &namespace).await, engine(&etcd, &namespace).await);
    let (a, b) = (bid("a", LONG), bid("b", LONG));
    let first = granted(&*one, &a).await;
    let others = leases(&etcd);
    waits_behind(&*two, &b).await;
    let lease = leases(&etcd).into_iter().find(|it| !others.contains(it)).expect("b has one");
    let mut hints = two.watch(&jobs(), Some(&b));
    assert!(futures_util::poll!(hints.next()).is_pending());
    etcd.etcdctl(&["lease", "revoke", &lease]).expect("answers");
    release(&*one, &a, first.token).await;
    hints.next().await.expect("goes on").expect("the connection stands");
    let second = granted(&*two, &b).await;
    assert!(second.token > first.token);
    let new = leases(&etcd);
    assert!(!new.contains(&lease) && renewed(&*two, &b, second.token).await, "with a lease that lives");
}

#[tokio::test]
async fn one_whose_lease_or_key_is_gone_is_told_so() {
    let etcd = Etcd::debian().start().expect("starts");
    let namespace = namespace();
    let engine = engine(&etcd, &namespace).await;
    let a = bid("a", LONG);
    let first = granted(&*engine, &a).await;
    let mut hints = engine.watch(&jobs(), Some(&a));
    assert!(futures_util::poll!(hints.next()).is_pending());
    etcd.etcdctl(&["lease", "revoke", &leases(&etcd)[0]]).expect("answers");
    hints.next().await.expect("goes on").expect("the connection stands");
    assert_eq!(engine.renew(&jobs(), &a, first.token).await.expect("answers"), Renewal::Gone);
    let second = granted(&*engine, &a).await;
    assert!(second.token > first.token);
    assert!(renewed(&*engine, &a, second.token).await);
    etcd.etcdctl(&["del", "--prefix", &format!("{namespace}/jobs/")]).expect("answers");
    hints.next().await.expect("goes on").expect("the connection stands");
    assert_eq!(
        engine.renew(&jobs(), &a, second.token).await.expect("answers"),
        Renewal::Gone,
        "although the last keep-alive is young"
    );
    assert!(granted(&*engine, &a).await.token > second.token);
}

#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_found_and_not_made_twice() {
    let etcd = ETCD.server();
    let relay = Relay::before(&etcd.address()).expect("a free port");
    let namespace = namespace();
    let engine = open(&format!("etcd://{}/{namespace}", relay.address())).await.expect("etcd is there");
    let a = bid("a", LONG);
    // The lease is made, the key is made, and nobody hears of it.
    relay.inspect(|chunk| match chunk.direction {
        Direction::Reply if chunk.bytes.windows(5).any(|it| it == b"jobs/") => Verdict::Lose,
        Direction::Reply | Direction::Request => Verdict::Pass,
    });
    let lost = tokio::time::timeout(Duration::from_millis(300), engine.claim(&jobs(), &a)).await;
    assert!(!matches!(lost, Ok(Ok(_))), "{lost:?}");
    relay.inspect(|_| Verdict::Pass);
    relay.heal();
    let Seat::Own(token) = engine.inquire(&jobs(), &a).await.expect("answers") else { panic!("it was made") };
    assert!(renewed(&*engine, &a, token).await);
    assert_eq!(granted(&*engine, &a).await.token, token);
    assert_eq!(board(&*engine).await, (vec!["a".into()], vec![]));
    release(&*engine, &a, token).await;
    assert_eq!(board(&*engine).await, (vec![], vec![]));
}

#[tokio::test]
async fn a_holder_that_falls_silent_loses_its_seat_although_others_keep_its_lease() {
    let namespace = namespace();
    let (one, two) = (engine(ETCD.server(), &namespace).await, engine(ETCD.server(), &namespace).await);
    let silent = granted(&*one, &bid("a", TTL)).await;
    let lively = incumbent::Name::new("other").expect("a good name");
    let successor = tokio::spawn(async move { leads(&*two, &bid("b", LONG)).await });
    let keeper = bid("keeper", TTL);
    // Lives on the same lease, and keeps it for as long as it takes.
    while !successor.is_finished() {
        one.claim(&lively, &keeper).await.expect("answers");
        tokio::task::yield_now().await;
    }
    assert!(successor.await.expect("elected").token > silent.token);
    assert_eq!(one.renew(&jobs(), &bid("a", TTL), silent.token).await.expect("answers"), Renewal::Gone);
}

#[tokio::test]
async fn a_watch_survives_compaction() {
    let etcd = Etcd::debian().start().expect("starts");
    let relay = Relay::before(&etcd.address()).expect("a free port");
    let namespace = namespace();
    let holder = engine(&etcd, &namespace).await;
    let waiter = open(&format!("etcd://{}/{namespace}", relay.address())).await.expect("etcd is there");
    let (a, b) = (bid("a", LONG), bid("b", LONG));
    let first = granted(&*holder, &a).await;
    waits_behind(&*waiter, &b).await;
    // The line is read, and the watch from there on is held back until that is history.
    let (mut asked, held_back) = (0, Arc::new(AtomicBool::new(false)));
    let flag = Arc::clone(&held_back);
    relay.inspect(move |chunk| {
        let asks = chunk.direction == Direction::Request && chunk.bytes.windows(5).any(|it| it == b"jobs/");
        asked += u32::from(asks);
        let holds = asks && asked == 2;
        flag.fetch_or(holds, Ordering::Relaxed);
        if holds { Verdict::Hold } else { Verdict::Pass }
    });
    let mut hints = waiter.watch(&jobs(), Some(&b));
    while !held_back.load(Ordering::Relaxed) {
        assert!(futures_util::poll!(hints.next()).is_pending());
        tokio::task::yield_now().await;
    }
    etcd.etcdctl(&["put", "elsewhere", "x"]).expect("answers");
    etcd.etcdctl(&["put", "elsewhere", "y"]).expect("answers");
    let status = etcd.etcdctl(&["endpoint", "status", "-w", "json"]).expect("answers");
    let revision = status.split("\"revision\":").nth(1).and_then(|it| it.split([',', '}']).next()).expect("told");
    etcd.etcdctl(&["compact", revision]).expect("answers");
    relay.heal();
    hints.next().await.expect("goes on").expect("what may have been missed is a hint");
    waits_behind(&*waiter, &b).await;
    let ((), hint) = tokio::join!(release(&*holder, &a, first.token), hints.next());
    hint.expect("goes on").expect("the connection stands");
    assert!(granted(&*waiter, &b).await.token > first.token);
}

#[tokio::test]
async fn a_request_that_arrives_after_its_sender_has_left_puts_nobody_in_line() {
    let relay = Relay::before(&ETCD.server().address()).expect("a free port");
    let namespace = namespace();
    let holder = engine(ETCD.server(), &namespace).await;
    let (a, b) = (bid("a", LONG), bid("b", Duration::from_secs(10)));
    let (held, other) = (granted(&*holder, &a).await, incumbent::Name::new("other").expect("a good name"));
    let late = open(&format!("etcd://{}/{namespace}", relay.address())).await.expect("etcd is there");
    // So that it has its lease already.
    late.claim(&other, &b).await.expect("answers");
    relay.inspect(|chunk| {
        let asks = chunk.direction == Direction::Request && chunk.bytes.windows(5).any(|it| it == b"jobs/");
        if asks && chunk.connection == 1 { Verdict::Hold } else { Verdict::Pass }
    });
    let election = jobs();
    let mut claim = Box::pin(late.claim(&election, &b));
    // By then the next call takes another connection: this one does not answer.
    assert!(tokio::time::timeout(b.ttl / 8, &mut claim).await.is_err());
    assert!(relay.traffic().requests.held() > 0);
    late.withdraw(&jobs(), &b).await.expect("answers");
    let before = relay.traffic().requests.passed;
    relay.heal();
    relay.wait_until("the claim arrives", |it| it.requests.held() == 0 && it.requests.passed > before);
    assert!(claim.await.is_err(), "it has left");
    release(&*holder, &a, held.token).await;
    assert_eq!(board(&*holder).await, (vec![], vec![]), "a ghost leads");
    assert!(granted(&*late, &b).await.token > held.token, "it may come back");
}

#[tokio::test]
async fn a_host_where_nobody_is_is_an_error_that_says_so() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a free port");
    let engine = open(&format!("etcd://{closed}/x")).await.expect("it may come");
    let why = engine.claim(&jobs(), &bid("a", TTL)).await.expect_err("nobody is there");
    assert_eq!(why.kind(), Kind::Refused, "nothing was sent");
    assert!(why.to_string().contains(&closed.to_string()) && why.to_string().contains("running"), "{why}");
    let two = open(&format!("etcd://{closed},{closed}/x")).await.expect("they may come");
    let why = two.look(&jobs()).await.expect_err("nobody is there").to_string();
    assert!(why.contains(&format!("{closed}, {closed}")), "{why}");
}

#[tokio::test]
async fn a_server_that_is_down_or_silent_is_passed_over() {
    let etcd = ETCD.server();
    let namespace = namespace();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a free port");
    let engine = open(&format!("etcd://{closed},{}/{namespace}", etcd.address())).await.expect("one of them is there");
    let a = bid("a", LONG);
    let held = granted(&*engine, &a).await;
    release(&*engine, &a, held.token).await;

    // Takes connections and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("bound");
    let engine = open(&format!("etcd://{address},{}/{namespace}", etcd.address())).await.expect("one of them is there");
    let first = tokio::time::timeout(TTL / 10, engine.claim(&jobs(), &a)).await;
    assert!(!matches!(first, Ok(Err(_))));
    let held = tokio::time::timeout(LONG, leads(&*engine, &a)).await.expect("the other one answers");
    assert!(renewed(&*engine, &a, held.token).await);
}

/// Knows `me`, who may elect jobs, and asks nobody for a password yet. Of what lies beside the candidates, `me` may write what begins so.
fn has_users(etcd: &Etcd, writes: &str) {
    for arguments in [
        ["user", "add", "root:top"].as_slice(),
        &["user", "grant-role", "root", "root"],
        &["user", "add", "me:s3cret"],
        &["role", "add", "elects"],
        &["role", "grant-permission", "elects", "readwrite", "--prefix=true", "ours/jobs/"],
        &["role", "grant-permission", "elects", "read", "--prefix=true", "ours/.incumbent/jobs/"],
        &["role", "grant-permission", "elects", "readwrite", "--prefix=true", writes],
        &["user", "grant-role", "me", "elects"],
    ] {
        etcd.etcdctl(arguments).unwrap_or_else(|why| panic!("{arguments:?}: {why}"));
    }
}

#[tokio::test]
async fn one_that_may_not_write_on_the_desk_leads_and_says_that_its_note_is_not_on_record() {
    let etcd = Etcd::debian().start().expect("starts");
    has_users(&etcd, "ours/.incumbent/jobs/candidates/");
    etcd.etcdctl(&["auth", "enable"]).expect("answers");
    let engine = open(&format!("etcd://me:s3cret@{}/ours", etcd.address())).await.expect("permitted");
    let a = Bid { note: Some("a runs".to_owned()), ..bid("a", LONG) };
    let grant = granted(&*engine, &a).await;
    assert!(!grant.noted);
    assert!(renewed(&*engine, &a, grant.token).await);
    let board = engine.look(&jobs()).await.expect("permitted");
    assert_eq!(board.leaders.iter().map(|it| it.token).collect::<Vec<_>>(), [grant.token]);
    assert!(board.notes.is_empty(), "{:?}", board.notes);
}

#[tokio::test]
async fn passwords_are_asked_for_checked_and_renewed() {
    let etcd = Etcd::debian().start().expect("starts");
    has_users(&etcd, "ours/.incumbent/jobs/");
    let place = |who: &str, namespace: &str| format!("etcd://{who}{}/{namespace}", etcd.address());
    let a = bid("a", LONG);
    // Not yet asked for: whoever has one is let in all the same, and nobody is thrown out when it is.
    let engine = open(&place("me:s3cret@", "ours")).await.expect("open to all");
    let held = granted(&*engine, &a).await;
    etcd.etcdctl(&["auth", "enable"]).expect("answers");
    assert!(renewed(&*engine, &a, held.token).await);
    release(&*engine, &a, held.token).await;
    let held = granted(&*engine, &a).await;
    assert!(renewed(&*engine, &a, held.token).await);
    let mut hints = engine.watch(&jobs(), None);
    hints.next().await.expect("goes on").expect("permitted");
    // Tokens do not outlive the server.
    etcd.restart().expect("starts");
    reconnected(&*engine).await;
    assert!(renewed(&*engine, &a, held.token).await);
    release(&*engine, &a, held.token).await;

    let misconfigured = async |url: String, wanted: &str| {
        let why = match open(&url).await {
            Ok(engine) => engine.claim(&jobs(), &a).await.expect_err(wanted),
            Err(why) => why,
        };
        assert_eq!(why.kind(), Kind::Misconfigured, "{why}");
        let why = why.to_string();
        assert!(why.contains(wanted) && !why.contains("s3cret") && !why.contains("wr0ng") && !why.contains('\n'), "{why}");
    };
    misconfigured(place("", "ours"), "INCUMBENT_PASSWORD").await;
    misconfigured(place("me:wr0ng@", "ours"), "refuses this user and password: give user and password in the URL").await;
    misconfigured(place("me:s3cret@", "theirs"), "grant the user's role").await;
}

#[tokio::test]
async fn a_look_that_nobody_waits_for_does_not_kill_the_server() {
    // etcd#14110: one before 3.5.5 ends when a transaction that only reads is cancelled at the wrong moment.
    let etcd = Etcd::recent().start().expect("starts");
    let engine = engine(&etcd, &namespace()).await;
    let a = bid("a", LONG);
    granted(&*engine, &a).await;
    for round in 0..500 {
        let _given_up = tokio::time::timeout(Duration::from_micros(100 + round * 2), engine.look(&jobs())).await;
    }
    etcd.ready().expect("it still serves");
    leads(&*engine, &a).await;
}

/// A leader and a candidate each leave a watch behind with every leadership: a server that kept them all would tell all of them of every change.
#[tokio::test]
async fn a_watch_that_nobody_needs_any_more_is_gone_from_the_server() {
    let etcd = Etcd::recent().start().expect("starts");
    let engine = engine(&etcd, &namespace()).await;
    let mut hints = Vec::new();
    for _ in 0..20 {
        let mut watch = engine.watch(&jobs(), None);
        watch.next().await.expect("goes on").expect("the first comes at once");
        hints.push(watch);
    }
    assert_eq!(etcd.watches().expect("it says so"), 40, "the line and the desk of each");
    drop(hints);
    let gone = move || incumbent_testbed::eventually("no watch to be left", || etcd.watches().expect("it says so") == 0);
    tokio::task::spawn_blocking(gone).await.expect("they are gone");
}
