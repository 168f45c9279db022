//! The recipe: one leads, tokens rise, the line keeps its order, a seat can be handed over, a holder can be asked to leave.

use std::time::Duration;

use futures_util::StreamExt;
use incumbent::Token;
use incumbent::engine::{Claim, Demand, Renewal, Seat, Wish};
use incumbent_testbed::{Etcd, Server as _};

use crate::support::{
    ETCD, LONG, RECENT, TTL, bid, board, claim, engine, farewell, granted, jobs, leads, namespace, reconnected, release, renewed,
    waits_behind,
};

#[tokio::test]
async fn one_leads_at_a_time_and_tokens_rise_in_every_version() {
    for etcd in [ETCD.server(), RECENT.server()] {
        let namespace = namespace();
        let (one, two) = (engine(etcd, &namespace).await, engine(etcd, &namespace).await);
        let (a, b) = (bid("a", LONG), bid("b", LONG));
        let first = granted(&*one, &a).await;
        assert_eq!(first.ttl, Some(LONG));
        assert_eq!(granted(&*one, &a).await.token, first.token, "claimed again");
        assert_eq!(waits_behind(&*two, &b).await, a.identity);
        assert_eq!(two.inquire(&jobs(), &b).await.expect("answers"), {
            let leader = two.look(&jobs()).await.expect("answers").leaders.remove(0);
            assert_eq!((leader.value.as_str(), leader.heeds_wishes, leader.token), ("at-a", true, first.token));
            Seat::Others(Some(leader))
        });
        assert_eq!(one.inquire(&jobs(), &a).await.expect("answers"), Seat::Own(first.token));
        assert!(renewed(&*one, &a, first.token).await);
        assert_eq!(board(&*one).await, (vec!["a".into()], vec!["b".into()]));

        release(&*one, &a, first.token).await;
        release(&*one, &a, first.token).await;
        let second = leads(&*two, &b).await;
        assert!(second.token > first.token);
        release(&*one, &a, first.token).await;
        assert!(renewed(&*two, &b, second.token).await, "a release of an earlier leadership frees nothing");
        assert_eq!(one.renew(&jobs(), &a, first.token).await.expect("answers"), Renewal::Gone);
        let past = two.look(&jobs()).await.expect("answers").past;
        assert_eq!((past.len(), past[0].token, past[0].reason.as_str()), (1, first.token, "resigned"));
    }
}

#[tokio::test]
async fn whoever_is_silent_for_a_ttl_is_succeeded_and_remembered() {
    let namespace = namespace();
    let (one, two) = (engine(ETCD.server(), &namespace).await, engine(ETCD.server(), &namespace).await);
    let first = granted(&*one, &bid("a", TTL)).await;
    let b = bid("b", LONG);
    let second = leads(&*two, &b).await;
    assert!(second.token > first.token);
    // The desk is written behind the grant's back, or by the first renewal. Who has gone is known before.
    let mut hints = two.watch(&jobs(), None);
    loop {
        let board = two.look(&jobs()).await.expect("answers");
        let past: Vec<_> = board.past.iter().map(|it| (it.token, it.reason.as_str())).collect();
        assert_eq!(past, [(first.token, "lease expired")]);
        if board.leaders[0].since.is_some() {
            break;
        }
        hints.next().await.expect("goes on").expect("the connection stands");
    }
}

#[tokio::test]
async fn tokens_rise_across_a_restart_of_etcd() {
    let etcd = Etcd::debian().start().expect("starts");
    let namespace = namespace();
    let engine = engine(&etcd, &namespace).await;
    let a = bid("a", LONG);
    let first = granted(&*engine, &a).await;
    etcd.kill();
    assert!(engine.renew(&jobs(), &a, first.token).await.is_err(), "nobody is there to keep it");
    etcd.restart().expect("starts");
    reconnected(&*engine).await;
    assert!(renewed(&*engine, &a, first.token).await, "the lease outlives the server");
    release(&*engine, &a, first.token).await;
    etcd.restart().expect("starts");
    reconnected(&*engine).await;
    assert!(granted(&*engine, &a).await.token > first.token);
}

#[tokio::test]
async fn a_seat_goes_past_others_to_whom_it_is_handed_over() {
    let namespace = namespace();
    let mut engines = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let engine = engine(ETCD.server(), &namespace).await;
        let bid = bid(name, LONG);
        claim(&*engine, &bid).await;
        engines.push((engine, bid));
    }
    let [(one, a), (two, b), (three, c), (four, d)] = engines.try_into().unwrap_or_else(|_| panic!("four of them"));
    assert_eq!(board(&*one).await, (vec!["a".into()], vec!["b".into(), "c".into(), "d".into()]));
    let first = granted(&*one, &a).await;
    one.release(&jobs(), &a, first.token, &farewell(Some("c"))).await.expect("answers");
    let third = granted(&*three, &c).await;
    assert!(third.token > first.token);
    // Who was passed stands in line anew, and not before those who were not passed.
    assert_eq!(waits_behind(&*two, &b).await, c.identity);
    assert_eq!(board(&*four).await, (vec!["c".into()], vec!["d".into(), "b".into()]));
    three.release(&jobs(), &c, third.token, &farewell(Some(b.identity.as_str()))).await.expect("answers");
    let fourth = granted(&*two, &b).await;
    assert_eq!(waits_behind(&*four, &d).await, b.identity);
    // To nobody in line: a plain release.
    two.release(&jobs(), &b, fourth.token, &farewell(Some("nobody"))).await.expect("answers");
    assert!(granted(&*four, &d).await.token > fourth.token);
}

#[tokio::test]
async fn a_candidate_that_was_passed_is_told() {
    let namespace = namespace();
    let (one, two, three) = (
        engine(ETCD.server(), &namespace).await,
        engine(ETCD.server(), &namespace).await,
        engine(ETCD.server(), &namespace).await,
    );
    let (a, b, c) = (bid("a", LONG), bid("b", LONG), bid("c", LONG));
    let first = granted(&*one, &a).await;
    waits_behind(&*two, &b).await;
    waits_behind(&*three, &c).await;
    let next = tokio::spawn(async move { leads(&*two, &b).await });
    one.release(&jobs(), &a, first.token, &farewell(Some("c"))).await.expect("answers");
    let third = leads(&*three, &c).await;
    release(&*three, &c, third.token).await;
    assert!(next.await.expect("no panic").token > third.token, "b was woken twice: when it was passed, and when c left");
}

#[tokio::test]
async fn a_wish_reaches_its_holder_by_a_hint_and_no_other() {
    let namespace = namespace();
    let (one, two) = (engine(ETCD.server(), &namespace).await, engine(ETCD.server(), &namespace).await);
    let a = bid("a", LONG);
    let held = granted(&*one, &a).await;
    assert!(renewed(&*one, &a, held.token).await);
    let mut hints = one.watch(&jobs(), Some(&a));
    let wish = Wish { token: held.token, what: Demand::Evict, by: "an operator".into() };
    let election = jobs();
    let (asked, hint) = tokio::join!(two.ask(&election, &wish), hints.next());
    asked.expect("in office");
    hint.expect("goes on").expect("the connection stands");
    match one.renew(&jobs(), &a, held.token).await.expect("answers") {
        Renewal::Kept { wish: found, .. } => assert_eq!(found, Some(wish.clone()), "although the last keep-alive is young"),
        Renewal::Gone => panic!("still in office"),
    }
    release(&*one, &a, held.token).await;
    assert!(two.ask(&jobs(), &wish).await.is_err(), "no longer in office");
    let again = granted(&*one, &a).await;
    match one.renew(&jobs(), &a, again.token).await.expect("answers") {
        Renewal::Kept { wish, .. } => assert_eq!(wish, None),
        Renewal::Gone => panic!("in office"),
    }
}

#[tokio::test]
async fn what_a_leader_proclaims_is_seen_and_lasts_no_longer_than_it() {
    let namespace = namespace();
    let engine = engine(ETCD.server(), &namespace).await;
    let mut a = bid("a", LONG);
    a.value.clear();
    let held = granted(&*engine, &a).await;
    let value = async || engine.look(&jobs()).await.expect("answers").leaders.remove(0).value;
    assert_eq!(value().await, "");
    engine.proclaim(&jobs(), &a, held.token, "10.0.0.1:80").await.expect("in office");
    assert_eq!(value().await, "10.0.0.1:80");
    assert!(renewed(&*engine, &a, held.token).await, "what it publishes is not who it is");
    release(&*engine, &a, held.token).await;
    assert!(engine.proclaim(&jobs(), &a, held.token, "x").await.is_err());
}

#[tokio::test]
async fn an_engine_that_lost_its_memory_raises_its_tokens() {
    let engine = engine(ETCD.server(), &namespace()).await;
    let mut a = bid("a", LONG);
    let first = granted(&*engine, &a).await;
    release(&*engine, &a, first.token).await;
    // As if etcd had been restored from a backup made long before that token.
    let seen = first.token.get() + (1 << 40);
    engine.raise(&jobs(), first.token).await.expect("raised");
    let second = granted(&*engine, &a).await;
    assert!(second.token.get() > seen, "raised by an operator");
    release(&*engine, &a, second.token).await;
    let ahead = Token::new(7, incumbent_protocol::protocol::Term(5)).expect("fits");
    a.seen = Some(ahead);
    let third = granted(&*engine, &a).await;
    assert!(third.token > ahead, "raised by a candidate that remembers");
    assert_eq!(granted(&*engine, &a).await.token, third.token);
    a.seen = Some(third.token);
    assert_eq!(granted(&*engine, &a).await.token, third.token, "its own");
    assert_eq!(engine.look(&jobs()).await.expect("answers").leaders[0].token, third.token);
    assert!(renewed(&*engine, &a, third.token).await);
}

#[tokio::test]
async fn two_may_lead_at_once_where_there_are_two_seats() {
    let namespace = namespace();
    let two_seats = |name| incumbent::engine::Bid { seats: 2, ..bid(name, LONG) };
    let mut all = Vec::new();
    for name in ["a", "b", "c"] {
        all.push((engine(ETCD.server(), &namespace).await, two_seats(name)));
    }
    let (a, b) = (granted(&*all[0].0, &all[0].1).await, granted(&*all[1].0, &all[1].1).await);
    assert!(matches!(claim(&*all[2].0, &all[2].1).await, Claim::Occupied { .. }));
    assert!(b.token > a.token);
    assert_eq!(board(&*all[2].0).await, (vec!["a".into(), "b".into()], vec!["c".into()]));
    let wish = Wish { token: a.token, what: Demand::Resign, by: "c".into() };
    all[2].0.ask(&jobs(), &wish).await.expect("in office");
    assert!(renewed(&*all[1].0, &all[1].1, b.token).await);
    match all[0].0.renew(&jobs(), &all[0].1, a.token).await.expect("answers") {
        Renewal::Kept { wish: found, .. } => assert_eq!(found, Some(wish)),
        Renewal::Gone => panic!("in office"),
    }
    let ([one, _, three], [(_, first), _, (_, third)]) = ([&*all[0].0, &*all[1].0, &*all[2].0], [&all[0], &all[1], &all[2]]);
    let (c, ()) = tokio::join!(leads(three, third), release(one, first, a.token));
    assert!(c.token > b.token && renewed(&*all[1].0, &all[1].1, b.token).await);
}

#[tokio::test]
async fn two_candidacies_of_one_process_are_two_candidates() {
    let engine = engine(ETCD.server(), &namespace()).await;
    let (a, b) = (bid("a", LONG), bid("b", LONG));
    let first = granted(&*engine, &a).await;
    assert_eq!(waits_behind(&*engine, &b).await, a.identity);
    release(&*engine, &a, first.token).await;
    assert_eq!(waits_behind(&*engine, &a).await, b.identity);
    let second = granted(&*engine, &b).await;
    assert!(second.token > first.token);
    engine.withdraw(&jobs(), &a).await.expect("answers");
    assert_eq!(board(&*engine).await, (vec!["b".into()], vec![]));
    engine.close().await;
    assert_eq!(board(&*engine).await, (vec![], vec![]), "what is closed leaves nothing behind");
}

#[tokio::test]
async fn who_leaves_the_line_does_not_come_back_by_a_claim_that_is_late() {
    let engine = engine(ETCD.server(), &namespace()).await;
    let (a, b) = (bid("a", LONG), bid("b", LONG));
    granted(&*engine, &a).await;
    // Begun before b leaves, and going on after it.
    let election = jobs();
    let mut late = Box::pin(engine.claim(&election, &b));
    for _ in 0..3 {
        assert!(futures_util::poll!(late.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    engine.withdraw(&jobs(), &b).await.expect("answers");
    let _ = late.await;
    assert_eq!(board(&*engine).await, (vec!["a".into()], vec![]));
}

#[tokio::test]
async fn a_ttl_is_rounded_up_and_etcd_may_grant_more() {
    let engine = engine(ETCD.server(), &namespace()).await;
    let held = granted(&*engine, &bid("a", Duration::from_millis(1_500))).await;
    assert_eq!(held.ttl, Some(Duration::from_secs(2)));
    let etcd = Etcd::debian().election_timeout(Duration::from_secs(2)).start().expect("starts");
    let engine = crate::support::engine(&etcd, "slow").await;
    assert_eq!(granted(&*engine, &bid("a", TTL)).await.ttl, Some(Duration::from_secs(3)));
}

#[tokio::test]
async fn a_note_that_another_has_replaced_can_be_put_back() {
    let namespace = namespace();
    let (one, two) = (engine(ETCD.server(), &namespace).await, engine(ETCD.server(), &namespace).await);
    let token = granted(&*one, &bid("a", LONG)).await.token;
    for (by, note) in [(&one, "begun"), (&two, "stopped"), (&one, "begun")] {
        by.annotate(&jobs(), token, note).await.expect("etcd answers");
        let notes = two.look(&jobs()).await.expect("etcd answers").notes;
        assert_eq!(notes.iter().map(|it| it.text.as_str()).collect::<Vec<_>>(), [note]);
    }
}
