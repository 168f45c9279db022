//! The line and the seat: names, tokens, hand-over, wishes, several seats.

use futures_util::StreamExt as _;
use incumbent::engine::{Bid, Claim, Demand, Kind, Renewal, Wish};
use zookeeper_client::{Acls, Client, CreateMode};

use crate::{bid, claim, election, farewell, open, raw, try_claim, url};

/// Puts somebody in the line whom we do not know.
async fn foreign(client: &Client, path: &str, name: &str, says: &str) -> String {
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let (_, sequence) = client.create(&format!("{path}/{name}"), says.as_bytes(), &options).await.expect("ZooKeeper is well");
    format!("{path}/{name}{sequence}")
}

#[tokio::test]
async fn nodes_are_called_as_leader_latch_calls_them_and_say_who_they_are() {
    let (engine, client, job) = (open(&url("names/deep/er")).await, raw().await, election("job"));
    let (a, b) = (Bid { priority: 3, ..bid("a") }, bid("b"));
    let token = claim(&*engine, &job, &a).await.token;
    assert!(try_claim(&*engine, &job, &b).await.is_none());
    let mut children = client.list_children("/names/deep/er/job").await.expect("created with its parents");
    children.sort_by_key(|it| it[it.len() - 10..].to_owned());
    for (child, who) in children.iter().zip([&a, &b]) {
        let uuid = child.strip_prefix("_c_").and_then(|it| it.split_once("-latch-")).expect(child);
        let dashes: Vec<usize> = uuid.0.match_indices('-').map(|(at, _)| at).collect();
        assert_eq!((uuid.0.len(), dashes.as_slice(), uuid.1.len()), (36, [8, 13, 18, 23].as_slice(), 10), "{child}");
        let (says, stat) = client.get_data(&format!("/names/deep/er/job/{child}")).await.expect("it is there");
        assert_eq!(says, who.identity.as_str().as_bytes());
        if who == &a {
            assert_eq!(token.get(), stat.czxid.unsigned_abs(), "the token is the czxid");
        }
    }
    assert_eq!(children.len(), 2);
    assert_eq!(client.list_children("/names/deep/er").await.expect("there").len(), 2, "the job, and what is ours");
}

#[tokio::test]
async fn a_hand_over_skips_ours_and_never_others() {
    let (engine, client, job) = (open(&url("handover")).await, raw().await, election("job"));
    let (a, b, c, d) = (bid("a"), bid("b"), bid("c"), bid("d"));
    let token = claim(&*engine, &job, &a).await.token;
    assert!(try_claim(&*engine, &job, &b).await.is_none());
    let stranger = foreign(&client, "/handover/job", "_c_stranger-latch-", "stranger").await;
    for waiting in [&c, &d] {
        assert!(try_claim(&*engine, &job, waiting).await.is_none());
    }
    engine.release(&job, &a, token, &farewell(Some("d"))).await.expect("released");
    let board = engine.look(&job).await.expect("ZooKeeper is well");
    assert_eq!(board.leaders[0].identity.as_str(), "stranger");
    assert!(!board.leaders[0].heeds_wishes);
    assert_eq!(board.candidates.iter().map(|it| it.identity.name()).collect::<Vec<_>>(), ["d"], "b and c were before d");
    let wish = Wish { token: board.leaders[0].token, what: Demand::Evict, by: "me".into() };
    assert_eq!(engine.ask(&job, &wish).await.expect_err("it does not read wishes").kind(), Kind::Refused);
    // They come again by themselves, behind it.
    for waiting in [&b, &c] {
        assert!(try_claim(&*engine, &job, waiting).await.is_none());
    }
    client.delete(&stranger, None).await.expect("it was there");
    let next = claim(&*engine, &job, &d).await.token;
    assert!(next > token);
    assert!(try_claim(&*engine, &job, &b).await.is_none());
    engine.release(&job, &d, next, &farewell(Some("c"))).await.expect("released");
    assert!(claim(&*engine, &job, &c).await.token > next);
    let board = engine.look(&job).await.expect("ZooKeeper is well");
    assert_eq!(board.past.iter().map(|it| it.identity.name()).collect::<Vec<_>>(), ["d", "a"]);
}

#[tokio::test]
async fn a_leader_whose_node_was_removed_by_hand_is_told() {
    let (engine, client, job) = (open(&url("removed")).await, raw().await, election("job"));
    let a = bid("a");
    let token = claim(&*engine, &job, &a).await.token;
    let mut hints = engine.watch(&job, Some(&a));
    assert!(matches!(engine.renew(&job, &a, token).await, Ok(Renewal::Kept { .. })));
    let child = client.list_children("/removed/job").await.expect("there").remove(0);
    client.delete(&format!("/removed/job/{child}"), None).await.expect("it was there");
    assert!(hints.next().await.expect("a hint").is_ok());
    assert_eq!(engine.renew(&job, &a, token).await.expect("ZooKeeper is well"), Renewal::Gone);
    assert!(claim(&*engine, &job, &a).await.token > token, "and contends anew");
}

/// A successor leads before it writes to the ledger; whoever looks meanwhile must not find a leader that vanished neither among those who lead nor among those who led.
#[tokio::test]
async fn whoever_is_gone_from_the_line_counts_as_past_before_anybody_has_written_so() {
    let (engine, client, job) = (open(&url("vanished")).await, raw().await, election("job"));
    let a = bid("a");
    let mut hints = engine.watch(&job, None);
    let token = claim(&*engine, &job, &a).await.token;
    // Its leadership is put on record behind the grant's back.
    while engine.look(&job).await.expect("ZooKeeper is well").leaders[0].since.is_none() {
        hints.next().await.expect("goes on").expect("the connection stands");
    }
    let child = client.list_children("/vanished/job").await.expect("there").remove(0);
    client.delete(&format!("/vanished/job/{child}"), None).await.expect("it was there");
    let board = engine.look(&job).await.expect("ZooKeeper is well");
    let past: Vec<_> = board.past.iter().map(|it| (it.token, it.reason.as_str())).collect();
    assert_eq!((board.leaders.len(), past.as_slice()), (0, [(token, "lease expired")].as_slice()));
}

#[tokio::test]
async fn an_eviction_reaches_the_holder_with_its_next_renewal() {
    let (engine, operator, job) = (open(&url("evict")).await, open(&url("evict")).await, election("job"));
    let a = bid("a");
    let token = claim(&*engine, &job, &a).await.token;
    for what in [Demand::Resign, Demand::Evict] {
        let wish = Wish { token, what, by: "me".into() };
        operator.ask(&job, &wish).await.expect("it leads");
        match engine.renew(&job, &a, token).await.expect("ZooKeeper is well") {
            Renewal::Kept { wish: heard, .. } => assert_eq!(heard, Some(wish)),
            Renewal::Gone => panic!("a wish takes nothing away"),
        }
    }
}

#[tokio::test]
async fn with_several_seats_tokens_still_rise_in_the_order_of_leaderships() {
    let (engine, job) = (open(&url("seats")).await, election("job"));
    let of = |who: &str| Bid { seats: 2, ..bid(who) };
    let (a, b, c, d) = (of("a"), of("b"), of("c"), of("d"));
    let first = claim(&*engine, &job, &a).await.token;
    let second = claim(&*engine, &job, &b).await.token;
    assert!(second > first);
    for waiting in [&c, &d] {
        assert!(try_claim(&*engine, &job, waiting).await.is_none());
    }
    for (leaving, token) in [(&a, first), (&b, second)] {
        engine.release(&job, leaving, token, &farewell(None)).await.expect("released");
    }
    // d is quicker than c, who stands before it: then c may not lead with its smaller number, and stands in line anew.
    let third = claim(&*engine, &job, &d).await.token;
    let fourth = claim(&*engine, &job, &c).await.token;
    assert!(second < third && third < fourth, "{second} {third} {fourth}");
    let board = engine.look(&job).await.expect("ZooKeeper is well");
    assert_eq!(board.leaders.iter().map(|it| it.token).collect::<Vec<_>>(), [third, fourth]);
}

#[tokio::test]
async fn two_sessions_with_one_identity_are_not_one_candidate() {
    let (first, second, job) = (open(&url("twins")).await, open(&url("twins")).await, election("job"));
    let a = bid("a");
    claim(&*first, &job, &a).await;
    let why = second.claim(&job, &a).await.expect_err("it is in use");
    assert!(why.kind() == Kind::Refused && why.to_string().contains("in use"), "{why:?}");
    let board = first.look(&job).await.expect("ZooKeeper is well");
    assert_eq!((board.leaders.len(), board.candidates.len()), (1, 0));
}

#[tokio::test]
async fn one_that_nobody_cares_for_does_not_hold_up_the_line() {
    let (engine, other, job) = (open(&url("abandoned")).await, open(&url("abandoned")).await, election("job"));
    let (a, b, c) = (bid("a"), bid("b"), bid("c"));
    let token = claim(&*engine, &job, &a).await.token;
    assert!(try_claim(&*engine, &job, &b).await.is_none(), "b never asks again, and its session lives on with a's");
    assert!(try_claim(&*other, &job, &c).await.is_none());
    engine.release(&job, &a, token, &farewell(None)).await.expect("released");
    assert!(claim(&*other, &job, &c).await.token > token);
}

#[tokio::test]
async fn what_was_closed_is_gone_at_once() {
    let (engine, other, job) = (open(&url("closed")).await, open(&url("closed")).await, election("job"));
    let a = Bid { ttl: std::time::Duration::from_secs(30), ..bid("a") };
    let token = claim(&*engine, &job, &a).await.token;
    engine.close().await;
    match other.claim(&job, &bid("b")).await.expect("ZooKeeper is well") {
        Claim::Granted(grant) => assert!(grant.token > token),
        Claim::Occupied { .. } => panic!("the session was closed, and its node is still there"),
    }
}
