//! Connections that break behind every single byte, in either direction, or fall silent there: nothing is applied twice, and no event is lost or told twice (C72, C76, W1–W5).

mod town;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use incumbent_client::client::{Client, Options};
use incumbent_client::serve::Bounds;
use incumbent_store::command::{Command, Resign};
use incumbent_store::event::Event;
use incumbent_store::query::{Answer, Query, Range, ReadEvents};
use incumbent_store::reply::Reply;
use incumbent_store::watch::Interest;
use proptest::prelude::*;

use town::wires::{Fate, Wires};
use town::{Town, bid, put, session};

const KEYS: u64 = 6;

/// Does some of everything over connections with these fates, and checks what came of it. How many bytes went each way.
async fn live_through(fates: &[Fate]) -> (usize, usize) {
    let town = Town::new();
    town.is_slow.store(fates.len().is_multiple_of(2), Ordering::Relaxed);
    let wires = Wires::new(&town, &["a", "b"], Bounds::default());
    wires.fate(fates.iter().copied());
    let options = Options { timeout: Duration::from_secs(60), ..Options::default() };
    let dial: Arc<Wires> = Arc::clone(&wires);
    let client = Client::connect_by(dial, ["a", "b"], options).await.expect("connected in the end");
    let mut watch = client.watch(Interest::EVERYTHING, 1);

    let opened = client.open_session(session(60_000)).await.expect("opened");
    let granted = client.submit(bid(opened.id(), "e", "me")).await.expect("done");
    let Reply::Granted(seat) = granted.reply else { panic!("{granted:?}") };
    // Several under way at once.
    let tasks: Vec<_> = (0..KEYS)
        .map(|it| {
            let client = client.clone();
            tokio::spawn(async move { client.submit(put(&format!("key-{it}"), "value")).await })
        })
        .collect();
    for task in tasks {
        assert!(matches!(task.await.expect("whole").expect("done").reply, Reply::Written(_)));
    }
    client.submit(Command::Resign(Resign { election: "e".into(), token: seat.token, ..Resign::default() })).await.expect("done");
    client.submit(put("last", "")).await.expect("done");

    let mut told: Vec<Event> = Vec::new();
    while told.last().and_then(Event::key).is_none_or(|it| it != "last") {
        let batch = watch.next().await.expect("goes on");
        assert!(batch.events.iter().all(|it| it.revision < batch.next));
        told.extend(batch.events);
    }
    let Ok(Answer::Events(happened)) = town.read(|it| it.query(&Query::Events(ReadEvents::default()))) else { panic!("kept") };
    assert_eq!(told, happened.events, "{fates:?}");
    let Ok(Answer::Items(items)) = town.read(|it| {
        let span = incumbent_store::keys::item::Span { start: "key-".into(), end: "key.".into() };
        it.query(&Query::Range(Range { span: Some(span), ..Range::default() }))
    }) else {
        panic!("read")
    };
    assert_eq!(items.items.len() as u64, KEYS);
    assert!(items.items.iter().all(|it| it.version == 1), "{fates:?}: applied twice: {items:?}");
    let carried = wires.carried();
    client.close().await;
    carried
}

#[tokio::test(start_paused = true)]
async fn a_connection_may_break_behind_any_byte() {
    let (requests, replies) = live_through(&[]).await;
    assert!(requests > 300 && replies > 300, "{requests} {replies}");
    for byte in 0..=requests {
        live_through(&[Fate::BreaksAfterRequest(byte)]).await;
    }
    for byte in 0..=replies {
        live_through(&[Fate::BreaksAfterReply(byte)]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_may_fall_silent_behind_any_byte() {
    let (_, replies) = live_through(&[]).await;
    for byte in 0..=replies {
        live_through(&[Fate::HangsAfterReply(byte)]).await;
    }
}

fn any_fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        (0usize..900).prop_map(Fate::BreaksAfterRequest),
        (0usize..1500).prop_map(Fate::BreaksAfterReply),
        (0usize..1500).prop_map(Fate::HangsAfterReply),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn connections_may_break_one_after_the_other(fates in proptest::collection::vec(any_fate(), 1..12)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        runtime.block_on(live_through(&fates));
    }
}
