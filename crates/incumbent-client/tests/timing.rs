//! What takes time, in virtual time: silence, deadlines, keep-alives, those who dawdle.

#[path = "timing/lead.rs"]
mod lead;
mod town;

use std::sync::Arc;
use std::time::Duration;

use incumbent_client::administration::{AddMember, Administration, AskCluster, Attended};
use incumbent_client::client::{Client, Clock, Line, Options};
use incumbent_client::failure::{Ended, Failure};
use incumbent_client::frame::{self, Inbox, PREAMBLE};
use incumbent_client::message::{Asked, Hello, ToClient, ToServer, Told, WatchFrom};
use incumbent_client::serve::{Bounds, Closed, serve};
use incumbent_client::session::Life;
use incumbent_client::watch::Cease;
use incumbent_store::command::{Command, Compact, EndSession, OpenSession};
use incumbent_store::limits::Limits;
use incumbent_store::query::{Answer, Query};
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::Reply;
use incumbent_store::watch::Interest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep};

use town::wires::{Fate, Wires};
use town::{Mood, Node, Town, put, session};

fn options() -> Options {
    let began = Instant::now();
    let clock: Clock = Arc::new(move || began.elapsed());
    Options { clock, ..Options::default() }
}

async fn connect(wires: &Arc<Wires>, addresses: &[&str]) -> Client {
    let dial: Arc<Wires> = Arc::clone(wires);
    Client::connect_by(dial, addresses.iter().copied(), options()).await.expect("connected")
}

/// So many bytes come back for a hello.
async fn greeting_len() -> usize {
    let town = Town::new();
    let wires = Wires::new(&town, &["a", "b"], Bounds::default());
    let client = connect(&wires, &["a"]).await;
    let (_, replies) = wires.carried();
    client.close().await;
    replies
}

#[tokio::test(start_paused = true)]
async fn a_node_that_falls_silent_is_left_within_200_ms() {
    let begun = {
        let town = Town::new();
        let wires = Wires::new(&town, &["a", "b"], Bounds::default());
        connect(&wires, &["a"]).await.submit(put("a", "0")).await.expect("done");
        wires.carried().1
    };
    let town = Town::new();
    let wires = Wires::new(&town, &["a", "b"], Bounds::default());
    wires.fate([Fate::HangsAfterReply(begun)]);
    let client = connect(&wires, &["a", "b"]).await;
    client.submit(put("a", "0")).await.expect("done");
    // Long idle: the silence counts from the request.
    sleep(Duration::from_secs(2)).await;
    let began = Instant::now();
    let done = client.submit(put("a", "1")).await.expect("done by the other");
    assert!(began.elapsed() <= Duration::from_millis(200), "C31: {:?}", began.elapsed());
    assert!(matches!(done.reply, Reply::Written(_)));
    assert_eq!(wires.dialled(), ["a", "b"]);
    assert_eq!(done.sent, Duration::from_secs(2), "either copy may be the one that was carried out, so it counts from the first");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_counts_from_the_send_of_the_copy_that_was_answered() {
    let greeting = greeting_len().await;
    let town = Town::new();
    let wires = Wires::new(&town, &["a", "b"], Bounds::default());
    wires.fate([Fate::HangsAfterReply(greeting)]);
    let client = connect(&wires, &["a", "b"]).await;
    let renew = incumbent_store::command::Renew { election: "e".to_owned(), token: 1 };
    let done = client.submit(incumbent_store::command::Command::Renew(renew)).await.expect("done by the other");
    assert!(matches!(done.reply, Reply::Renewed(_)));
    assert_eq!(done.sent, Duration::from_millis(120), "the first copy was never carried out");
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_kept_and_a_watch_keeps_its_place() {
    let town = Town::with_limits(Limits { events_max: 10, ..Limits::STANDARD });
    let wires = Wires::new(&town, &["a", "b"], Bounds::default());
    wires.fate([Fate::Whole]);
    let client = connect(&wires, &["a"]).await;
    let key = incumbent_store::keys::item::Span::key("mine".to_owned());
    let mut watch = client.watch(Interest::of(incumbent_store::watch::Topic::Keys(key)), 1);
    client.submit(put("mine", "1")).await.expect("done");
    watch.next().await.expect("told");
    // Far more happens than is kept, and none of it concerns the watch.
    for round in 0..5 {
        for it in 0..50 {
            town.apply(put(&format!("{round}-{it}"), ""));
        }
        sleep(Duration::from_secs(30)).await;
    }
    assert_eq!(wires.dialled(), ["a"], "silence on both sides is no reason to part");
    client.submit(put("mine", "2")).await.expect("done");
    assert_eq!(watch.next().await.expect("nothing that concerns it was dropped").events.len(), 1);
}

/// W6: its place is told with the pongs.
#[tokio::test(start_paused = true)]
async fn a_quiet_watch_goes_on_elsewhere_although_its_last_event_is_long_dropped() {
    let town = Town::with_limits(Limits { events_max: 30, ..Limits::STANDARD });
    let wires = Wires::new(&town, &["a", "b"], Bounds::default());
    // Some pings go through before it falls silent.
    wires.fate([Fate::HangsAfterReply(greeting_len().await + 400)]);
    let client = connect(&wires, &["a", "b"]).await;
    let key = incumbent_store::keys::item::Span::key("mine".to_owned());
    let mut watch = client.watch(Interest::of(incumbent_store::watch::Topic::Keys(key)), 0);
    while wires.dialled().len() < 2 {
        town.apply(put("other", ""));
        sleep(Duration::from_millis(500)).await;
    }
    town.apply(put("mine", "2"));
    assert_eq!(watch.next().await.expect("goes on").events.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_deadline_leaves_open_is_said_to_be_open() {
    let town = Town::new();
    let wires = Wires::new(&town, &["a"], Bounds::default());
    let client = connect(&wires, &["a"]).await;
    client.submit(put("a", "1")).await.expect("done");
    let within = Duration::from_millis(300);

    town.set_mood(Mood::Hold);
    let began = Instant::now();
    let held = client.submit_within(put("b", "1"), within).await;
    assert!(matches!(held, Err(Failure::Unknown { .. })), "{held:?}");
    assert_eq!(began.elapsed(), within);
    town.set_mood(Mood::NotNow);
    let not_now = client.submit_within(put("c", "1"), within).await;
    assert_eq!(not_now, Err(Failure::NotNow { why: "nobody leads".to_owned() }));
    assert!(
        town.read(|it| it
            .query(&Query::Range(range("c")))
            .is_ok_and(|it| matches!(it, Answer::Items(it) if it.items.is_empty())))
    );

    // Carried out, and the node does not know: asked again, it is the same request still.
    town.set_mood(Mood::Forgetful);
    let unknown = client.submit_within(put("d", "1"), within).await;
    assert!(matches!(unknown, Err(Failure::Unknown { .. })), "{unknown:?}");
    town.set_mood(Mood::Serve);
    let Ok(Answer::Items(d)) = town.read(|it| it.query(&Query::Range(range("d")))) else { panic!("read") };
    assert_eq!(d.items[0].version, 1, "asked {} times, applied once", town.happened().numbered);

    wires.down(&["a"]);
    let large = client.submit(put("e", &"x".repeat(3 * 1024 * 1024))).await;
    assert!(matches!(large, Err(Failure::Refused(Refusal::Limit { .. }))));
    client.close().await;
    let Err(Ended::Unreachable(_)) = Client::connect_by(wires, ["a"], options()).await else { panic!("connected") };
}

fn range(key: &str) -> incumbent_store::query::Range {
    let span = Some(incumbent_store::keys::item::Span::key(key.to_owned()));
    incumbent_store::query::Range { span, ..Default::default() }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_the_store_has_forgotten_is_introduced_again() {
    let town = Town::with_limits(Limits { clients_max: 1, ..Limits::STANDARD });
    let wires = Wires::new(&town, &["a"], Bounds::default());
    let (one, two) = (connect(&wires, &["a"]).await, connect(&wires, &["a"]).await);
    for _ in 0..3 {
        one.submit(put("a", "1")).await.expect("done");
        two.submit(put("b", "1")).await.expect("done");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_done_and_forgotten_is_not_done_again() {
    let town = Town::with_limits(Limits { clients_max: 1, ..Limits::STANDARD });
    let wires = Wires::new(&town, &["a"], Bounds::default());
    connect(&wires, &["a"]).await.submit(put("a", "1")).await.expect("done");
    let (_, replies) = wires.carried();
    // The answer breaks off, and before it is asked for again somebody else takes the only place in the store's memory.
    wires.fate([Fate::BreaksAfterReply(replies - 1)]);
    let client = connect(&wires, &["a"]).await;
    wires.down(&["a"]);
    let submitted = tokio::spawn(async move { client.submit(put("b", "1")).await });
    let key = || town.read(|it| it.query(&Query::Range(range("b"))));
    while key().is_ok_and(|it| matches!(it, Answer::Items(it) if it.items.is_empty())) {
        sleep(Duration::from_millis(1)).await;
    }
    town.apply(incumbent_store::command::Command::Introduce(incumbent_store::command::Introduce {}));
    wires.down(&[]);
    let unknown = submitted.await.expect("whole");
    assert!(matches!(unknown, Err(Failure::Unknown { .. })), "{unknown:?}");
    let Ok(Answer::Items(items)) = key() else { panic!("read") };
    assert_eq!(items.items[0].version, 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_may_have_been_done_is_not_said_to_be_refused() {
    for mood in [Mood::Denies, Mood::Rejects] {
        let town = Town::new();
        let wires = Wires::new(&town, &["a"], Bounds::default());
        let client = connect(&wires, &["a"]).await;
        client.submit(put("a", "1")).await.expect("done");
        town.set_mood(mood);
        let refused = client.submit(put("a", "2")).await;
        assert!(
            matches!(refused, Err(Failure::Refused(_))),
            "{mood:?}: it was never carried out, and that is known: {refused:?}"
        );
        // The first copy is carried out, though nobody says so; the second is refused by a node that does not know of it.
        town.set_mood(Mood::Forgetful);
        let before = town.happened().numbered;
        let submitted = tokio::spawn(async move { client.submit(put("b", "1")).await });
        town.until(|it| it.numbered > before).await;
        town.set_mood(mood);
        let unknown = submitted.await.expect("whole");
        assert!(matches!(unknown, Err(Failure::Unknown { .. })), "{mood:?}: {unknown:?}");
        let Ok(Answer::Items(items)) = town.read(|it| it.query(&Query::Range(range("b")))) else { panic!("read") };
        assert_eq!(items.items.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_node_that_leads_is_preferred_and_members_are_learnt() {
    let town = Town::new();
    town.set_leader("b");
    town.set_members(&["a", "b", "c"]);
    let wires = Wires::new(&town, &["a", "b", "c"], Bounds::default());
    let client = connect(&wires, &["a"]).await;
    assert_eq!(wires.dialled(), ["a", "b"]);
    client.close().await;
    wires.down(&["a", "b"]);
    let without_leader = connect(&wires, &["a", "c"]).await;
    assert_eq!(wires.dialled()[2..], ["a", "c", "b"], "any node will do");
    drop(without_leader);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_sessions_are_kept_alive_by_one_message_and_counted_from_its_send() {
    let town = Town::new();
    let wires = Wires::new(&town, &["a"], Bounds::default());
    let client = connect(&wires, &["a"]).await;
    let mut sessions = Vec::new();
    for _ in 0..1000 {
        sessions.push(client.open_session(session(3_000)).await.expect("opened"));
    }
    assert_eq!(sessions[0].life(), Life::Kept(Duration::ZERO));
    let life = sessions[999].changed().await;
    assert_eq!(life, Life::Kept(Duration::from_secs(1)));
    assert_eq!(town.happened().kept_alive, [1000]);
    // Gone is told with the next one.
    town.pass_ms(10_000);
    town.expire();
    assert_eq!(sessions[7].changed().await, Life::Kept(Duration::from_secs(1)));
    assert_eq!(sessions[7].changed().await, Life::Gone);
    assert_eq!(sessions[7].changed().await, Life::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_dead_clients_sessions_end_at_once_and_a_leaving_clients_do_not() {
    let town = Town::new();
    let wires = Wires::new(&town, &["a", "b"], Bounds::default());
    let bound = OpenSession { ends_with_connection: true, ..session(60_000) };
    let leaving = connect(&wires, &["a"]).await;
    let stays = leaving.open_session(bound.clone()).await.expect("opened");
    let id = stays.id();
    drop(stays);
    leaving.close().await;
    let dying = connect(&wires, &["a"]).await;
    let dies = dying.open_session(bound.clone()).await.expect("opened");
    let dead = dies.id();
    drop(dying);
    // A session is a client too.
    assert!(town.happened().lost.is_empty());
    // The process is gone before it can say anything.
    drop(dies);
    let after = town.until(|it| it.closed.len() == 2).await;
    assert_eq!((after.closed, after.lost), (vec!["Goodbye".to_owned(), "ByClient".to_owned()], vec![vec![dead]]));
    assert!(town.read(|it| it.query(&Query::Session(id)).is_ok()));
    assert!(town.read(|it| it.query(&Query::Session(dead)).is_err()));
}

#[tokio::test(start_paused = true)]
async fn a_session_outlives_a_connection_that_falls_silent_and_is_bound_to_the_next() {
    let greeting = greeting_len().await;
    let town = Town::new();
    let wires = Wires::new(&town, &["a", "b"], Bounds::default());
    wires.fate([Fate::HangsAfterReply(greeting + 100)]);
    let client = connect(&wires, &["a", "b"]).await;
    let mut line = client.line();
    let bound = OpenSession { ends_with_connection: true, ..session(60_000) };
    let kept = client.open_session(bound).await.expect("opened");
    assert_eq!(*line.borrow_and_update(), Line::Up { address: "a".to_owned(), node: 1 });
    while wires.dialled().len() < 2 {
        client.submit(put("a", "")).await.expect("done");
    }
    // The first node hears nothing more of its connection, gives it up, and does not take that for a death.
    let after = town.until(|it| it.closed.len() == 1).await;
    assert_eq!((after.closed, after.lost.len()), (vec!["Silent".to_owned()], 0));
    assert!(matches!(kept.life(), Life::Kept(_)));
    assert!(line.has_changed().expect("open") && *line.borrow() == Line::Up { address: "b".to_owned(), node: 2 });
    let id = kept.id();
    drop((kept, client));
    let after = town.until(|it| it.closed.len() == 2).await;
    assert_eq!(after.lost, [[id]], "the second node was told whose connection it is");
}

/// A network that keeps the news of a closed connection, and brings it when the client has long been on another.
#[tokio::test(start_paused = true)]
async fn a_late_end_of_a_connection_that_was_left_ends_nothing() {
    let greeting = greeting_len().await;
    let town = Town::new();
    let wires = Wires::new(&town, &["a", "b"], Bounds::default());
    wires.fate([Fate::HangsAfterReply(greeting + 100)]);
    let client = connect(&wires, &["a", "b"]).await;
    let bound = OpenSession { ends_with_connection: true, ..session(60_000) };
    let kept = client.open_session(bound).await.expect("opened");
    let id = kept.id();
    while wires.dialled().len() < 2 {
        client.submit(put("a", "")).await.expect("done");
    }
    // It has come over the new connection, behind what binds its sessions.
    client.submit(put("b", "")).await.expect("done");
    let first = EndSession { session: id, reason: "process died".into(), unclean: true, binding: Some(0) };
    town.apply(Command::EndSession(first));
    assert!(town.read(|it| it.query(&Query::Session(id)).is_ok()), "it is bound to another connection");
    drop((kept, client));
    town.until(|it| it.lost == [[id]]).await;
    assert!(town.read(|it| it.query(&Query::Session(id)).is_err()), "which is lost now");
}

#[tokio::test(start_paused = true)]
async fn what_operators_want_goes_to_the_node_that_leads() {
    let town = Town::new();
    let wires = Wires::new(&town, &["a", "b"], Bounds::default());
    let client = connect(&wires, &["a"]).await;
    let asked = |it: Result<Attended, Failure>| match it {
        Ok(Attended::Cluster(view)) => view.node,
        other => panic!("{other:?}"),
    };
    town.set_leader("b");
    assert_eq!(asked(client.administer(Administration::Status(AskCluster {})).await), 1, "any node can say");
    let add = Administration::Add(AddMember { node: 3, peer: "c".into(), client: String::new() });
    assert_eq!(asked(client.administer(add).await), 2, "it is sent on");
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_and_never_answered_is_not_said_to_be_undone() {
    let town = Town::new();
    let wires = Wires::new(&town, &["a"], Bounds::default());
    let mut client = connect(&wires, &["a"]).await;
    client.submit(put("a", "1")).await.expect("done");
    let (_, replies) = wires.carried();
    client.close().await;
    // The same again, and the last answer does not come through, nor any other node.
    wires.fate([Fate::BreaksAfterReply(replies - 1)]);
    client = connect(&wires, &["a"]).await;
    wires.down(&["a"]);
    let unknown = client.submit(put("b", "1")).await;
    assert!(matches!(unknown, Err(Failure::Unknown { .. })), "C76: {unknown:?}");
    assert!(
        town.read(|it| it
            .query(&Query::Range(range("b")))
            .is_ok_and(|it| matches!(it, Answer::Items(it) if it.items.len() == 1)))
    );
    let undone = client.submit(put("c", "1")).await;
    assert!(matches!(undone, Err(Failure::NotNow { .. })), "never sent: {undone:?}");
}

#[tokio::test(start_paused = true)]
async fn whoever_does_not_say_hello_is_cut_off_however_slowly_it_speaks() {
    let town = Town::new();
    let node = Node { town, number: 1, address: "a".to_owned() };
    let (mut ours, theirs) = tokio::io::duplex(1024);
    let trickle = async {
        for byte in PREAMBLE.iter().chain(&[200, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]) {
            sleep(Duration::from_secs(1)).await;
            if ours.write_all(&[*byte]).await.is_err() {
                return;
            }
        }
        std::future::pending::<()>().await;
    };
    let bounds = Bounds::default();
    let began = Instant::now();
    tokio::select! {
        closed = serve(theirs, &[], &node, &bounds) => assert!(matches!(closed, Closed::Handshake), "{closed:?}"),
        () = trickle => panic!("not cut off"),
    }
    assert_eq!(began.elapsed(), bounds.handshake);
}

/// A hello, and what follows it, as bytes.
fn spoken(asked: impl IntoIterator<Item = Asked>) -> Vec<u8> {
    let mut bytes = PREAMBLE.to_vec();
    let hello = Asked::Hello(Hello { version: 1, oldest: 1, ..Hello::default() });
    for (asked, id) in [hello].into_iter().chain(asked).zip(1..) {
        frame::append(&ToServer::new(id, asked), &mut bytes);
    }
    bytes
}

#[tokio::test(start_paused = true)]
async fn who_reads_nothing_is_cut_off_and_costs_nobody_anything() {
    let town = Town::new();
    let node = Arc::new(Node { town: Arc::clone(&town), number: 1, address: "a".to_owned() });
    let (mut ours, theirs) = tokio::io::duplex(64 * 1024);
    let everything = WatchFrom { interest: Some(Interest::EVERYTHING), from: 1, seen: 0 };
    ours.write_all(&spoken([Asked::Watch(everything)])).await.expect("room");
    let served = {
        let node = Arc::clone(&node);
        tokio::spawn(async move { serve(theirs, &[], &*node, &Bounds::default()).await })
    };
    town.until(|it| it.watches == 1).await;
    // 20 MB for it, and others are served meanwhile.
    let wires = Wires::new(&town, &["a"], Bounds::default());
    let other = connect(&wires, &["a"]).await;
    let began = Instant::now();
    for it in 0..40 {
        other.submit(put(&format!("{it}"), &"x".repeat(500 * 1024))).await.expect("done");
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
    let closed = served.await.expect("whole");
    assert!(matches!(closed, Closed::Stalled), "{closed:?}");
    assert_eq!(town.happened().watches, 0);
}

#[tokio::test(start_paused = true)]
async fn a_slow_watcher_holds_nobody_up_and_misses_nothing() {
    let town = Town::new();
    let wires = Wires::new(&town, &["a"], Bounds::default());
    let client = connect(&wires, &["a"]).await;
    let mut watch = client.watch(Interest::EVERYTHING, 1);
    for it in 0..1000 {
        client.submit(put(&format!("{it}"), "")).await.expect("done");
    }
    let mut told = 0;
    while told < 1000 {
        let batch = watch.next().await.expect("kept");
        for event in &batch.events {
            assert_eq!(event.key().map(|it| it.to_vec()), Some(told.to_string().into_bytes()));
            told += 1;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_whose_place_is_gone_ends_and_says_why() {
    let town = Town::with_limits(Limits { events_max: 100, ..Limits::STANDARD });
    let wires = Wires::new(&town, &["a"], Bounds::default());
    let client = connect(&wires, &["a"]).await;
    let mut slow = client.watch(Interest::EVERYTHING, 1);
    for it in 0..1000 {
        client.submit(put(&format!("{it}"), "")).await.expect("done");
    }
    let mut last = 0;
    let cease = loop {
        match slow.next().await {
            Ok(batch) => {
                assert!(batch.events[0].revision > last);
                last = batch.next - 1;
            }
            Err(cease) => break cease,
        }
    };
    assert!(matches!(cease, Cease::Refused(Refusal::Lagged(_))), "{cease:?} after {last}");
    assert_eq!(slow.next().await, Err(cease));
    town.apply(incumbent_store::command::Command::Compact(Compact { revision: town.read(|it| it.revision()) - 5 }));
    let mut old = client.watch(Interest::EVERYTHING, 1);
    assert!(matches!(old.next().await, Err(Cease::Refused(Refusal::Compacted(_)))), "C70");
    client.close().await;
    assert!(matches!(old.next().await, Err(Cease::Refused(_))), "the first reason stays");
}

#[tokio::test(start_paused = true)]
async fn many_events_of_one_revision_are_told_together() {
    let town = Town::new();
    let wires = Wires::new(&town, &["a"], Bounds::default());
    let client = connect(&wires, &["a"]).await;
    let mut watch = client.watch(Interest::EVERYTHING, 0);
    use incumbent_store::keys::transaction::{Act, Operation, Put, Transaction};
    let value = "x".repeat(20 * 1024);
    let puts = (0..50).map(|it| Put { key: format!("{it}").into(), value: value.clone().into(), ..Put::default() });
    let then: Vec<Operation> = puts.map(|it| Operation::from(Act::Put(it))).collect();
    client
        .submit(incumbent_store::command::Command::Transact(Transaction { then, ..Transaction::default() }))
        .await
        .expect("done");
    let batch = watch.next().await.expect("told");
    assert_eq!(batch.events.len(), 50, "W4: over many frames, but one piece");
    assert_eq!(batch.next, batch.events[0].revision + 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_node_does_not_know_is_refused_and_the_rest_is_served() {
    let town = Town::new();
    let node = Node { town, number: 1, address: "a".to_owned() };
    let (mut ours, theirs) = tokio::io::duplex(64 * 1024);
    let mut bytes = spoken([Asked::Hello(Hello::default())]);
    frame::append(&ToServer { id: 3, asked: None }, &mut bytes);
    frame::append(&ToServer::new(4, Asked::Ping(incumbent_client::message::Ping {})), &mut bytes);
    ours.write_all(&bytes).await.expect("room");
    let bounds = Bounds::default();
    let client = async {
        let (mut inbox, mut told) = (Inbox::new(), Vec::new());
        while told.len() < 4 {
            assert!(ours.read_buf(inbox.room()).await.expect("open") > 0);
            while let Some(message) = inbox.take::<ToClient>(frame::ANSWER_MAX).expect("good") {
                told.push(message);
            }
        }
        told
    };
    let told = tokio::select! {
        closed = serve(theirs, &[], &node, &bounds) => panic!("{closed:?}"),
        told = client => told,
    };
    let kinds: Vec<bool> = told.iter().map(|it| matches!(it.told, Some(Told::Refused(_)))).collect();
    assert_eq!(kinds, [false, true, true, false]);
    assert_eq!(told.iter().map(|it| it.id).collect::<Vec<_>>(), [1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_connection_takes_no_more_of_a_node_than_its_bounds() {
    let town = Town::new();
    town.set_mood(Mood::Hold);
    let bounds = Bounds { questions_max: 10, watches_max: 2, sessions_max: 3, ..Bounds::default() };
    let wires = Wires::new(&town, &["a"], bounds);
    let client = connect(&wires, &["a"]).await;
    let mut tasks = tokio::task::JoinSet::new();
    for it in 0..100 {
        let client = client.clone();
        tasks.spawn(async move { client.submit_within(put(&it.to_string(), ""), Duration::from_secs(30)).await });
    }
    sleep(Duration::from_millis(20)).await;
    assert_eq!(town.happened().held, 10);
    town.set_mood(Mood::Serve);
    while let Some(done) = tasks.join_next().await {
        done.expect("whole").expect("done");
    }
    let mut watches: Vec<_> = (0..3).map(|_| client.watch(Interest::EVERYTHING, 1)).collect();
    let third = watches[2].next().await;
    assert!(matches!(third, Err(Cease::Refused(Refusal::Limit { max: 2, .. }))), "{third:?}");
    watches[0].next().await.expect("told");
    let bound = OpenSession { ends_with_connection: true, ..session(60_000) };
    let mut sessions = Vec::new();
    for round in 0..6 {
        // One that is dropped makes room.
        sessions.truncate(2);
        sessions.push(client.open_session(bound.clone()).await.unwrap_or_else(|wrong| panic!("{round}: {wrong}")));
    }
    let fourth = client.open_session(bound).await.err();
    assert!(matches!(fourth, Some(Failure::Refused(Refusal::Limit { max: 3, .. }))), "{fourth:?}");
    client.close().await;
    assert_eq!(sessions[0].changed().await, Life::Gone, "nobody keeps it alive");
}

#[tokio::test(start_paused = true)]
async fn large_requests_under_way_are_bounded_by_their_bytes() {
    let town = Town::new();
    town.set_mood(Mood::Hold);
    let wires = Wires::new(&town, &["a"], Bounds { questions_bytes_max: 1024 * 1024, ..Bounds::default() });
    let client = connect(&wires, &["a"]).await;
    let mut tasks = tokio::task::JoinSet::new();
    for it in 0..20 {
        let client = client.clone();
        let value = "x".repeat(200 * 1024);
        tasks.spawn(async move { client.submit_within(put(&it.to_string(), &value), Duration::from_secs(30)).await });
    }
    sleep(Duration::from_millis(20)).await;
    assert_eq!(town.happened().held, 6, "1 MiB, and one more");
    town.set_mood(Mood::Serve);
    while let Some(done) = tasks.join_next().await {
        done.expect("whole").expect("done");
    }
}

#[tokio::test(start_paused = true)]
async fn a_transaction_of_too_many_operations_is_refused_before_it_is_made() {
    use incumbent_store::keys::transaction::{Operation, Transaction};
    let town = Town::new();
    let wires = Wires::new(&town, &["a"], Bounds::default());
    let client = connect(&wires, &["a"]).await;
    let then = vec![Operation::default(); 500_000];
    let refused =
        client.submit(incumbent_store::command::Command::Transact(Transaction { then, ..Transaction::default() })).await;
    assert!(matches!(refused, Err(Failure::Refused(Refusal::Limit { max: 1024, .. }))), "{refused:?}");
    assert_eq!(town.happened().numbered, 0, "the node never saw it");
    client.submit(put("a", "")).await.expect("the connection lives");
    assert_eq!(wires.dialled(), ["a"]);
}

/// W6: after a pong that says so, nothing up to that revision is told any more, however slowly the client reads.
#[tokio::test(start_paused = true)]
async fn a_pong_does_not_promise_what_is_still_to_be_told() {
    let town = Town::new();
    town.is_slow.store(true, std::sync::atomic::Ordering::Relaxed);
    let node = Node { town: Arc::clone(&town), number: 1, address: "a".to_owned() };
    let (ours, theirs) = tokio::io::duplex(512);
    let (mut reader, mut writer) = tokio::io::split(ours);
    let bounds = Bounds::default();
    let client = async {
        let everything = WatchFrom { interest: Some(Interest::EVERYTHING), from: 1, seen: 0 };
        writer.write_all(&spoken([Asked::Watch(everything)])).await.expect("room");
        let (mut inbox, mut promised, mut told, mut promises) = (Inbox::new(), 0, 0, 0);
        let mut bytes = [0; 100];
        for round in 0..400u64 {
            if round < 200 {
                town.apply(put(&round.to_string(), "a value that takes a while"));
                let mut ping = Vec::new();
                frame::append(&ToServer::new(100 + round, Asked::Ping(incumbent_client::message::Ping {})), &mut ping);
                writer.write_all(&ping).await.expect("open");
            }
            // Less than comes at first, and later all of it.
            let read = reader.read(&mut bytes).await.expect("open");
            inbox.room().extend_from_slice(&bytes[..read]);
            while let Some(message) = inbox.take::<ToClient>(frame::ANSWER_MAX).expect("good") {
                match message.told {
                    Some(Told::Pong(pong)) if pong.told > 0 => {
                        promised = pong.told;
                        promises += 1;
                    }
                    Some(Told::Events(tidings)) => {
                        assert!(tidings.events.iter().all(|it| it.revision > promised), "promised {promised}: {tidings:?}");
                        told += tidings.events.len();
                    }
                    _ => {}
                }
            }
            if told == 200 && promises > 0 {
                return;
            }
            if round >= 200 {
                let mut ping = Vec::new();
                frame::append(&ToServer::new(1000 + round, Asked::Ping(incumbent_client::message::Ping {})), &mut ping);
                writer.write_all(&ping).await.expect("open");
            }
        }
        panic!("{told} events, {promises} promises");
    };
    tokio::select! {
        closed = serve(theirs, &[], &node, &bounds) => panic!("{closed:?}"),
        () = client => {}
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_only_listens_is_not_taken_for_dead() {
    let town = Town::new();
    let wires = Wires::new(&town, &["a"], Bounds::default());
    let client = connect(&wires, &["a"]).await;
    let mut watch = client.watch(Interest::EVERYTHING, 1);
    for it in 0..600 {
        town.apply(put(&it.to_string(), ""));
        watch.next().await.expect("told");
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(wires.dialled(), ["a"], "a minute, {:?}", town.happened().closed);
}

#[tokio::test(start_paused = true)]
async fn while_nobody_leads_requests_wait_and_nodes_are_not_stormed() {
    let town = Town::new();
    let wires = Wires::new(&town, &["a", "b"], Bounds::default());
    let client = connect(&wires, &["a", "b"]).await;
    client.submit(put("a", "")).await.expect("done");
    town.set_mood(Mood::NotNow);
    let mut tasks = tokio::task::JoinSet::new();
    for it in 0..100 {
        let client = client.clone();
        tasks.spawn(async move { client.submit(put(&it.to_string(), "")).await });
    }
    let before = town.happened().numbered;
    sleep(Duration::from_secs(1)).await;
    town.set_mood(Mood::Serve);
    while let Some(done) = tasks.join_next().await {
        done.expect("whole").expect("done");
    }
    let dialled = wires.dialled().len();
    assert!((3..=6).contains(&dialled), "another node is tried now and then: {dialled}");
    assert!(town.happened().numbered - before < 100 * 60, "{}", town.happened().numbered);
    // One that names another is left for it at once.
    town.set_mood(Mood::NotNow);
    town.set_leader("b");
    let client = connect(&wires, &["b"]).await;
    town.set_leader("a");
    let dialled = wires.dialled().len();
    let submitted = tokio::spawn(async move { client.submit(put("x", "")).await });
    sleep(Duration::from_millis(20)).await;
    assert_eq!(wires.dialled()[dialled..], ["a"]);
    town.set_mood(Mood::Serve);
    submitted.await.expect("whole").expect("done");
}

#[tokio::test(start_paused = true)]
async fn a_watch_survives_a_snapshot_if_what_it_missed_is_kept_and_says_so_if_not() {
    let (town, ahead) = (Town::new(), Town::new());
    let short = Town::with_limits(Limits { events_max: 3, ..Limits::STANDARD });
    for it in 0..20 {
        if it < 5 {
            town.apply(put(&it.to_string(), ""));
        }
        ahead.apply(put(&it.to_string(), ""));
    }
    for it in 0..40 {
        short.apply(put(&it.to_string(), ""));
    }
    let wires = Wires::new(&town, &["a"], Bounds::default());
    let client = connect(&wires, &["a"]).await;
    let mut watch = client.watch(Interest::EVERYTHING, 1);
    let mut told = Vec::new();
    while told.len() < 5 {
        told.extend(watch.next().await.expect("told").events);
    }
    town.leap(ahead.read(Clone::clone));
    while told.len() < 20 {
        told.extend(watch.next().await.expect("C71: across a snapshot").events);
    }
    assert!(told.iter().zip(1..).all(|(event, revision)| event.revision == revision));
    town.leap(short.read(Clone::clone));
    let cease = watch.next().await;
    assert!(matches!(cease, Err(Cease::Refused(Refusal::Lagged(_)))), "{cease:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_has_no_more_bytes_under_way_than_a_node_takes() {
    let town = Town::new();
    town.set_mood(Mood::Hold);
    let wires = Wires::new(&town, &["a"], Bounds::default());
    let client = connect(&wires, &["a"]).await;
    let mut tasks = tokio::task::JoinSet::new();
    for it in 0..100 {
        let (client, value) = (client.clone(), "x".repeat(256 * 1024));
        tasks.spawn(async move { client.submit_within(put(&it.to_string(), &value), Duration::from_secs(30)).await });
    }
    sleep(Duration::from_millis(500)).await;
    assert_eq!(town.happened().held, 32, "8 MiB");
    assert_eq!(wires.dialled(), ["a"], "its pings are heard");
    town.set_mood(Mood::Serve);
    while let Some(done) = tasks.join_next().await {
        done.expect("whole").expect("done");
    }
    assert_eq!(town.happened().numbered, 100, "each was sent once");
}

#[tokio::test(start_paused = true)]
async fn a_read_that_a_node_forgets_costs_a_watch_time_and_nothing_else() {
    let town = Town::new();
    let wires = Wires::new(&town, &["a"], Bounds::default());
    let client = connect(&wires, &["a"]).await;
    town.apply(put("a", ""));
    town.forgets.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut watch = client.watch(Interest::EVERYTHING, 1);
    town.until(|it| it.watches == 1).await;
    sleep(Duration::from_secs(1)).await;
    town.apply(put("b", ""));
    assert_eq!(watch.next().await.expect("told").events.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_busy_client_follows_the_lead_too_and_its_quiet_watch_keeps_its_place() {
    let town = Town::with_limits(Limits { events_max: 200, ..Limits::STANDARD });
    town.set_leader("a");
    let wires = Wires::new(&town, &["a", "b"], Bounds::default());
    let client = connect(&wires, &["a", "b"]).await;
    let mut quiet = client.watch(Interest::of(incumbent_store::watch::Topic::Election("e".to_owned())), 1);
    let mut busy = tokio::task::JoinSet::new();
    for task in 0..4 {
        let client = client.clone();
        busy.spawn(async move {
            for it in 0..400 {
                client.submit(put(&format!("{task}-{it}"), "")).await.expect("done");
                sleep(Duration::from_millis(25)).await;
            }
        });
    }
    sleep(Duration::from_secs(2)).await;
    town.set_leader("b");
    while let Some(done) = busy.join_next().await {
        done.expect("whole");
    }
    assert_eq!(wires.dialled(), ["a", "b"], "it went over while it was busy, and once");
    let session = client.open_session(session(60_000)).await.expect("opened");
    client.submit(town::bid(session.id(), "e", "me")).await.expect("done");
    assert_eq!(quiet.next().await.expect("goes on, though 1,600 events were made and 200 are kept").events.len(), 1);
}
