//! What the server is asked, by its own count: no herd at a release, one lease and one keep-alive for many elections.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::join_all;
use incumbent::engine::{Bid, Claim, Engine, Renewal};
use incumbent::{Name, clock};
use incumbent_testbed::{Etcd, Server as _};

use crate::support::{LONG, bid, claim, engine, granted, jobs, leads, namespace, release, renewed, waits_behind};

#[tokio::test]
async fn a_release_wakes_one_of_two_hundred() {
    let etcd = Etcd::debian().start().expect("starts");
    let namespace = namespace();
    let holder = engine(&etcd, &namespace).await;
    let a = bid("a", LONG);
    let first = granted(&*holder, &a).await;
    // Each with an engine of its own would be 200 connections, and the same to the server.
    let crowd = engine(&etcd, &namespace).await;
    let mut waiting = Vec::new();
    for number in 0..200 {
        let bid = bid(&format!("c{number}"), LONG);
        assert!(matches!(claim(&*crowd, &bid).await, Claim::Occupied { .. }));
        let mut hints = crowd.watch(&jobs(), Some(&bid));
        assert!(futures_util::poll!(hints.next()).is_pending());
        waiting.push((bid, hints));
    }
    // All watches stand once each has been polled to where it waits for an event.
    let (next, rest) = waiting.split_first_mut().expect("200");
    let mut rest: futures_util::stream::SelectAll<_> = rest.iter_mut().map(|(_, hints)| hints).collect();
    incumbent_testbed_ready(&etcd, &mut rest, &mut next.1).await;

    let before = etcd.requests().expect("counts");
    let ((), hint) = tokio::join!(release(&*holder, &a, first.token), next.1.next());
    hint.expect("goes on").expect("the connection stands");
    leads(&*crowd, &next.0).await;
    assert!(futures_util::poll!(rest.next()).is_pending(), "nobody else was woken");
    let asked = etcd.requests().expect("counts").since(&before);
    let total: u64 = asked.iter().map(|(_, count)| count).sum();
    assert!(total <= 12, "{asked:?}");
}

/// Looks until the leader has been put on the desk, which is done after the election.
async fn is_on_the_desk(onlooker: &dyn Engine) {
    for _ in 0..10_000 {
        if onlooker.look(&jobs()).await.expect("etcd answers").leaders[0].since.is_some() {
            return;
        }
    }
    panic!("the leader was never put on the desk");
}

/// Polls all until the server has 200 watches.
async fn incumbent_testbed_ready<R, N>(etcd: &Etcd, rest: &mut R, next: &mut N)
where
    R: futures_util::Stream + Unpin,
    N: futures_util::Stream + Unpin,
{
    let watched = || etcd.requests().expect("counts").of("Watch") >= 2 * 200;
    while !watched() {
        assert!(futures_util::poll!(rest.next()).is_pending());
        assert!(futures_util::poll!(next.next()).is_pending());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn three_hundred_elections_cost_one_lease_and_one_keep_alive() {
    let etcd = Etcd::debian().start().expect("starts");
    let engine = engine(&etcd, &namespace()).await;
    let a = bid("a", LONG);
    let elections: Vec<Name> = (0..300).map(|it| Name::new(format!("e{it}")).expect("a good name")).collect();
    let claims = join_all(elections.iter().map(|it| engine.claim(it, &a))).await;
    let tokens: Vec<_> = claims
        .into_iter()
        .map(|it| match it.expect("answers") {
            Claim::Granted(grant) => grant.token,
            Claim::Occupied { leader, .. } => panic!("{leader:?} leads"),
        })
        .collect();
    assert_eq!(etcd.requests().expect("counts").of("LeaseGrant"), 1);
    let leases = etcd.etcdctl(&["lease", "list"]).expect("answers");
    assert!(leases.contains("found 1 leases"), "{leases}");

    let before = etcd.requests().expect("counts");
    let renewals = join_all(elections.iter().zip(&tokens).map(|(it, token)| engine.renew(it, &a, *token))).await;
    let mut counted = None;
    for renewal in renewals {
        match renewal.expect("answers") {
            Renewal::Kept { grant, .. } => assert_eq!(*counted.get_or_insert(grant.counted_from), grant.counted_from),
            Renewal::Gone => panic!("nobody was deposed"),
        }
    }
    let asked = etcd.requests().expect("counts").since(&before);
    assert!(asked.of("LeaseKeepAlive") <= 1, "{asked:?}");
    // Reads: 300 in transactions of 64, once each. Writes of desks may still be under way.
    let again = etcd.requests().expect("counts");
    for (it, token) in elections.iter().zip(&tokens) {
        assert!(matches!(engine.renew(it, &a, *token).await, Ok(Renewal::Kept { .. })));
    }
    let asked = etcd.requests().expect("counts").since(&again);
    assert_eq!(asked.of("LeaseKeepAlive"), 0, "the last one is young enough");
}

#[tokio::test]
async fn a_waiting_candidate_that_claims_again_only_reads() {
    let etcd = Etcd::debian().start().expect("starts");
    let namespace = namespace();
    let (one, two) = (engine(&etcd, &namespace).await, engine(&etcd, &namespace).await);
    let (a, b) = (bid("a", LONG), bid("b", LONG));
    let held = granted(&*one, &a).await;
    waits_behind(&*two, &b).await;
    assert!(renewed(&*one, &a, held.token).await);
    let revision = || etcd.etcdctl(&["get", "x", "-w", "json"]).expect("answers");
    waits_behind(&*two, &b).await;
    let before = revision();
    for _ in 0..10 {
        waits_behind(&*two, &b).await;
        assert!(renewed(&*one, &a, held.token).await);
    }
    assert_eq!(revision(), before, "nothing was written");
}

#[tokio::test]
async fn whoever_has_waited_keeps_its_lease_meanwhile_and_not_when_its_turn_has_come() {
    let etcd = Etcd::debian().start().expect("starts");
    let namespace = namespace();
    let (one, two) = (engine(&etcd, &namespace).await, engine(&etcd, &namespace).await);
    let ttl = Duration::from_secs(8);
    let (a, b) = (bid("a", LONG), bid("b", ttl));
    let held = granted(&*one, &a).await;
    waits_behind(&*two, &b).await;
    let kept = || etcd.requests().expect("counts").of("LeaseKeepAlive");
    let age = || {
        let since = Instant::now();
        // Old enough not to be shared, and young enough to take office on.
        while since.elapsed() < ttl / 7 {
            kept();
        }
    };

    age();
    let before = kept();
    waits_behind(&*two, &b).await;
    assert_eq!(kept() - before, 1);

    age();
    let before = kept();
    release(&*one, &a, held.token).await;
    let grant = granted(&*two, &b).await;
    assert_eq!(kept() - before, 0);
    assert!(grant.counted_from.is_some_and(|it| clock::now() - it > ttl / 8), "it counts from the keep-alive before");
    assert!(renewed(&*two, &b, grant.token).await);
    assert_eq!(kept() - before, 1);
}

#[tokio::test]
async fn notes_and_the_release_after_them_are_one_transaction_each() {
    let etcd = Etcd::debian().start().expect("starts");
    let namespace = namespace();
    let (engine, operator) = (engine(&etcd, &namespace).await, engine(&etcd, &namespace).await);
    let a = bid("a", LONG);
    let token = granted(&*engine, &a).await.token;
    is_on_the_desk(&*operator).await;
    assert!(renewed(&*engine, &a, token).await, "and has now seen itself on the desk");

    let before = etcd.requests().expect("counts");
    for note in ["begun", "done"] {
        engine.annotate(&jobs(), token, note).await.expect("etcd answers");
    }
    release(&*engine, &a, token).await;
    let asked = etcd.requests().expect("counts").since(&before);
    assert_eq!(asked.of("Txn"), 3, "{asked:?}");
}

#[tokio::test]
async fn a_seat_and_its_note_are_taken_by_one_write() {
    let etcd = Etcd::debian().start().expect("starts");
    let namespace = namespace();
    let (one, two) = (engine(&etcd, &namespace).await, engine(&etcd, &namespace).await);
    let (a, b) = (bid("a", LONG), Bid { note: Some("b runs".to_owned()), ..bid("b", LONG) });
    let held = granted(&*one, &a).await;
    is_on_the_desk(&*one).await;
    waits_behind(&*two, &b).await;
    release(&*one, &a, held.token).await;

    let revision = || etcd.etcdctl(&["get", "x", "-w", "fields"]).expect("answers");
    let before = revision();
    let grant = granted(&*two, &b).await;
    assert!(grant.noted);
    assert_ne!(revision(), before, "it is on record");
    let board = one.look(&jobs()).await.expect("etcd answers");
    assert_eq!(board.notes.iter().map(|it| (it.token, it.text.as_str())).collect::<Vec<_>>(), [(grant.token, "b runs")]);
    assert!(board.leaders[0].since.is_some(), "and who leads");
    let then = revision();
    assert!(renewed(&*two, &b, grant.token).await);
    assert_eq!(revision(), then, "there was nothing more to write");
}
