//! The docket, without a connection: what it sends and what it believes.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::frame::{Inbox, REQUEST_MAX};
use crate::message::{Bound, NotNow, Pong, Sessions, Unknown};

fn sent(docket: &Docket) -> Vec<ToServer> {
    let mut inbox = Inbox::new();
    docket.fill(inbox.room()).expect("open");
    std::iter::from_fn(|| inbox.take(REQUEST_MAX).expect("good")).collect()
}

fn watched_from(docket: &Docket) -> (u64, u64) {
    let watches = sent(docket).into_iter().filter_map(|it| match it.asked {
        Some(Asked::Watch(wanted)) => Some((it.id, wanted.from)),
        Some(_) | None => None,
    });
    watches.last().expect("a watch")
}

#[tokio::test(start_paused = true)]
async fn a_pong_speaks_for_watches_that_stand_and_for_no_others() {
    let docket = Docket::new(Arc::new(|| Duration::ZERO));
    let (queue, mut batches) = mpsc::channel(1);
    docket.watch(Interest::EVERYTHING, 7, queue);
    docket.connected("a", 1);
    let pong = |told| ToClient::new(99, Told::Pong(Pong { told, ..Pong::default() }));
    assert_eq!(watched_from(&docket).1, 7);
    docket.deliver(pong(50)).expect("good");
    docket.disconnected(&Ended::Silent);
    docket.connected("a", 1);
    let (wire, from) = watched_from(&docket);
    assert_eq!(from, 7, "the pong was sent before the node knew of the watch");
    docket.deliver(ToClient::new(wire, Told::Events(Tidings { events: Vec::new(), next: 9 }))).expect("good");
    docket.deliver(pong(50)).expect("good");
    docket.disconnected(&Ended::Silent);
    docket.connected("a", 1);
    assert_eq!(watched_from(&docket).1, 51);
    assert!(batches.try_recv().is_err());
}

/// The one who waits for the answer may look at it late: the connection may have changed by then.
#[tokio::test(start_paused = true)]
async fn a_session_that_was_bound_is_bound_to_the_next_connection_before_anybody_has_looked() {
    let docket = Docket::new(Arc::new(|| Duration::ZERO));
    let binds = || {
        let binds = sent(&docket).into_iter().filter_map(|it| match it.asked {
            Some(Asked::Bind(sessions)) => Some((it.id, sessions.sessions, sessions.again)),
            Some(_) | None => None,
        });
        binds.collect::<Vec<_>>()
    };
    let (id, mut answer) = docket.begin(Asked::Bind(Sessions { sessions: vec![7], again: false }), None);
    docket.connected("a", 1);
    assert_eq!(binds(), [(id, vec![7], false)]);
    docket.deliver(ToClient::new(id, Told::Bound(Bound {}))).expect("good");
    docket.disconnected(&Ended::Silent);
    docket.connected("a", 1);
    let again = binds();
    assert!(matches!(&again[..], [(_, sessions, true)] if *sessions == [7]), "{again:?}");
    assert!(answer.try_recv().is_ok());
    // Given up while it is bound again, it is not taken up by the answer to that.
    docket.unbound(7);
    docket.deliver(ToClient::new(again[0].0, Told::Bound(Bound {}))).expect("good");
    docket.disconnected(&Ended::Silent);
    docket.connected("a", 1);
    assert_eq!(binds(), []);
    // What was refused is not bound.
    let (id, _answer) = docket.begin(Asked::Bind(Sessions { sessions: vec![8], again: false }), None);
    assert_eq!(binds().len(), 1);
    docket.deliver(ToClient::new(id, Told::Refused(Refusal::SessionGone(8).to_wire()))).expect("good");
    docket.disconnected(&Ended::Silent);
    docket.connected("a", 1);
    assert_eq!(binds(), []);
}

#[tokio::test(start_paused = true)]
async fn who_waits_in_vain_is_told_that_nobody_leads() {
    let docket = Docket::new(Arc::new(|| Duration::ZERO));
    let (id, _answer) = docket.begin(Asked::Bind(Sessions { sessions: vec![7], again: false }), None);
    docket.connected("a", 1);
    assert_eq!(sent(&docket).len(), 1);
    let vacant = || docket.deliver(ToClient::new(99, Told::Pong(Pong { leaderless: true, ..Pong::default() })));
    vacant().expect("it may pass");
    tokio::time::advance(Duration::from_secs(1)).await;
    docket.disconnected(&vacant().expect_err("it is left for another"));
    let failure = docket.give_up(id).expect("not answered").to_string();
    assert!(failure.contains("no node leads") && failure.contains("cluster status"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn what_is_told_twice_or_out_of_order_ends_the_connection() {
    let docket = Docket::new(Arc::new(|| Duration::ZERO));
    let (queue, _batches) = mpsc::channel(9);
    docket.watch(Interest::EVERYTHING, 7, queue);
    docket.connected("a", 1);
    let (wire, _) = watched_from(&docket);
    let event = |revision| Event { revision, change: None };
    let tell = |events: &[u64], next| {
        let tidings = Tidings { events: events.iter().map(|it| event(*it)).collect(), next };
        docket.deliver(ToClient::new(wire, Told::Events(tidings)))
    };
    for (events, next) in [(&[6][..], 8), (&[8, 7], 9), (&[7, 9], 9), (&[], 5)] {
        assert!(matches!(tell(events, next), Err(Ended::Nonsense(_))), "{events:?} {next}");
    }
    tell(&[7, 8], 9).expect("good");
    assert!(matches!(tell(&[8], 10), Err(Ended::Nonsense(_))), "W2");
    tell(&[9, 9], 0).expect("a part");
    tell(&[9], 10).expect("the rest");
}

/// What a node may say that was not written by us.
fn any_told() -> impl Strategy<Value = Told> {
    let tidings = (proptest::collection::vec(0u64..6, 0..3), 0u64..8).prop_map(|(revisions, next)| {
        let events = revisions.into_iter().map(|revision| Event { revision, change: None }).collect();
        Told::Events(Tidings { events, next })
    });
    prop_oneof![
        Just(Told::Bound(Bound {})),
        any::<u64>().prop_map(|retry_after_ms| Told::NotNow(NotNow { retry_after_ms, ..NotNow::default() })),
        Just(Told::Unknown(Unknown::default())),
        tidings,
        Just(Told::WatchEnded(Refusal::Lagged(1).to_wire())),
        any::<u64>().prop_map(|told| Told::Pong(Pong { told, ..Pong::default() })),
    ]
}

proptest! {
    #[test]
    fn whatever_a_node_says_nothing_breaks(said in proptest::collection::vec((0u64..8, any_told(), 0u8..8), 0..40)) {
        let docket = Docket::new(Arc::new(|| Duration::ZERO));
        let (queue, _batches) = mpsc::channel(1);
        docket.watch(Interest::EVERYTHING, 1, queue);
        let mut answers: Vec<_> = (0..3).map(|_| docket.begin(Asked::Bind(Sessions::default()), None)).collect();
        docket.connected("a", 1);
        for (id, told, step) in said {
            match step {
                0 => drop(answers.pop().map(|(id, _)| docket.give_up(id))),
                1 => drop(docket.pulse(Patience { ping_busy: Duration::ZERO, ping_idle: Duration::ZERO, silence: Duration::ZERO })),
                _ => drop(sent(&docket)),
            }
            if let Err(ended) = docket.deliver(ToClient::new(id, told)) {
                docket.disconnected(&ended);
                docket.connected("a", 1);
            }
        }
        docket.disconnected(&Ended::Silent);
        let state = docket.state();
        prop_assert_eq!((state.in_flight, state.in_flight_bytes), (0, 0));
    }
}
