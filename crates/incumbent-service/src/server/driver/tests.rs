//! What a driver makes of a replica's wishes, step by step.

use std::sync::atomic::{AtomicUsize, Ordering};

use incumbent_client::serve::Lost;
use incumbent_store::command::{Command, Expire, OpenSession};
use incumbent_store::query::{Answer, AskStatus, Query};

use super::*;
use crate::log::sim::SimDisk;
use crate::log::{Identity, Log};
use crate::replica::{ClusterTime, Committed, Content, Item};
use crate::server::config::{WORK_HELD_MAX, WORK_MAX};
use crate::server::desk::Asker;

/// An entry of a later release is decided: whoever cannot read it must not go on as if it were not there.
#[tokio::test]
async fn nothing_is_built_on_a_store_that_lacks_an_entry() {
    let disk = SimDisk::new(1);
    let config = Config { settings: Settings { snapshot_entries: 2, ..Config::lan() }, ..Config::alone("nowhere") };
    let identity = Identity { cluster: config.cluster.clone(), node: config.me };
    let options = config.log;
    let opened = opening::open(disk.clone(), &config).expect("opens");
    let (mut driver, mut inboxes, ..) = Driver::new(opened, config).await.expect("starts");
    // Nobody else wants a turn.
    driver.turn_until = Instant::NEVER;
    let birth = driver.snapshot;
    driver.step(Input::Wake);
    while driver.applied == birth {
        driver.on_report(inboxes.reports.recv().await.expect("the disk is well"));
        driver.step_on();
    }
    let mut later = apply::payload(Request::of(Command::Expire(Expire { limit: 0 })), 0).to_vec();
    later[0] += 1;
    let (answer, mut proposed) = oneshot::channel();
    let tag = driver.desk.wait(Waiter::Submit(answer.into()));
    driver.step(Input::Propose { tag, payload: later.into(), place: Place::Anywhere });

    // In one step the entry is decided, a question may be answered, and a snapshot is due.
    let written = inboxes.reports.recv().await.expect("the disk is well");
    let (answer, mut asked) = oneshot::channel();
    let query = Query::Status(AskStatus {});
    driver.on_order(Order::Ask { query, consistency: Consistency::Linearizable, seen: 0, answer: answer.into() });
    driver.on_report(written);
    driver.step_on();
    assert!(matches!(driver.end, Some(End::Broken(_))), "{:?}", driver.end);
    assert_eq!((driver.applied, driver.replica.view().handed), (birth + 1, birth + 2));
    assert!(proposed.try_recv().is_err() && asked.try_recv().is_err(), "nobody was told anything");
    driver.finish(inboxes).await;
    let (log, _) = Log::open(disk, &identity, options).expect("opens");
    assert_eq!(log.snapshots().latest().map(|it| it.mark.index), Some(birth));
}

async fn alone() -> (Driver, Inboxes) {
    let config = Config::alone("nowhere");
    let opened = opening::open(SimDisk::new(1), &config).expect("opens");
    let (mut driver, inboxes, ..) = Driver::new(opened, config).await.expect("starts");
    // Nobody else wants a turn, however slow the machine is.
    driver.turn_until = Instant::NEVER;
    (driver, inboxes)
}

fn put(index: Index, key: &'static str) -> Committed {
    let put = incumbent_store::keys::transaction::Put { key: key.into(), ..Default::default() };
    let payload = apply::payload(Request::of(Command::Put(put)), 0);
    let items = vec![Item { tag: None, payload: payload.clone() }, Item { tag: None, payload }];
    Committed { index, term: incumbent_protocol::protocol::Term(1), content: Content::Batch { at: ClusterTime(1), items } }
}

/// However much was decided, others get their turn, and nobody sees an entry of which a half is applied.
#[tokio::test]
async fn what_was_decided_is_applied_when_it_is_its_turn_and_in_order() {
    let (mut driver, _inboxes) = alone().await;
    let begun = driver.applied;
    driver.turn_until = clock::now();
    driver.commit(vec![put(begun + 1, "a"), put(begun + 2, "b")]);
    let (answer, mut digest) = oneshot::channel();
    driver.on_order(Order::Digest { answer });
    assert_eq!((driver.applied, driver.store.revision(), driver.work.len()), (begun, 0, 7), "the turn is over");
    assert!(driver.deadline() <= clock::now(), "it goes on as soon as others had theirs");
    assert!(digest.try_recv().is_err());
    driver.turn_until = Instant::NEVER;
    driver.work_on();
    assert_eq!((driver.applied, driver.store.revision(), driver.work.len()), (begun + 2, 4, 0));
    assert_eq!(digest.try_recv(), Ok((begun + 2, driver.store.digest())));
}

#[tokio::test]
async fn who_is_far_behind_is_heard_of_by_the_others_all_the_same() {
    let (mut driver, _inboxes) = alone().await;
    let begun = driver.applied;
    // Three pieces of work each.
    let entries = |from: u64, count: usize| (1..=count as u64).map(|it| put(begun + from + it, "a")).collect::<Vec<_>>();
    // The turn is over, and so is all that one may be longer.
    driver.turn_until = Instant::from_nanos(0);
    driver.commit(entries(0, WORK_MAX));
    assert_eq!((driver.applied, driver.work.len()), (begun, 3 * WORK_MAX), "it looks after the others first");
    // What waits takes room: there is an end to it.
    driver.commit(entries(WORK_MAX as u64, WORK_HELD_MAX / 3));
    assert_eq!(driver.work.len(), WORK_HELD_MAX);
    driver.turn_until = Instant::NEVER;
    driver.work_on();
    assert!(driver.work.is_empty() && driver.unwilling().is_none());
}

#[tokio::test]
async fn questions_that_take_long_are_answered_elsewhere_as_things_stood() {
    let (mut driver, _inboxes) = alone().await;
    driver.commit(vec![put(driver.applied + 1, "a")]);
    let (told, mut answers) = mpsc::unbounded_channel();
    let ask = |driver: &mut Driver, limit| {
        let told = told.clone();
        let answer = Asker::new(move |answer: Result<incumbent_store::query::Answered, Unanswered>| {
            let by = std::thread::current().name().map(str::to_owned);
            let _ = told.send((by, answer.map(|it| (it.revision, it.answer))));
        });
        let span = Some(incumbent_store::keys::item::Span::all());
        let query = Query::Range(incumbent_store::query::Range { span, limit, ..Default::default() });
        driver.on_order(Order::Ask { query, consistency: Consistency::Local, seen: 0, answer });
    };
    ask(&mut driver, 0);
    driver.commit(vec![put(driver.applied + 1, "b")]);
    ask(&mut driver, 10);
    let mut keys = BTreeMap::new();
    for _ in 0..2 {
        let (by, answer) = answers.recv().await.expect("told");
        let Ok((revision, Some(Answer::Items(items)))) = answer else { panic!("{answer:?}") };
        keys.insert(revision, (by.as_deref() == Some("incumbent-reader"), items.items.len()));
    }
    assert_eq!(keys, BTreeMap::from([(2, (true, 1)), (4, (false, 2))]));
}

/// Who waits for what others do is served before who has done it.
#[tokio::test]
async fn whoever_watches_is_told_before_whoever_asked() {
    let (mut driver, _inboxes) = alone().await;
    let (answer, watching) = oneshot::channel();
    let interest = incumbent_store::watch::Interest::EVERYTHING;
    driver.on_order(Order::Watch { interest, guest: "".into(), from: 1, answer });
    let mut watch = watching.await.expect("told");
    let (told, mut seen) = mpsc::unbounded_channel();
    let answer = Asker::new(move |outcome: Outcome| {
        // Without waiting: it is there, or it is not.
        let batch = std::pin::pin!(watch.next()).poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
        let _ = told.send((outcome, matches!(batch, std::task::Poll::Ready(Ok(_)))));
    });
    let tag = driver.desk.wait(Waiter::Submit(answer));
    let mut committed = put(driver.applied + 1, "a");
    let Content::Batch { items, .. } = &mut committed.content else { panic!("a batch") };
    items[0].tag = Some(tag);
    driver.commit(vec![committed]);
    let (outcome, had_seen) = seen.recv().await.expect("told");
    assert!(matches!(outcome, Outcome::Done { revision: 1, .. }), "{outcome:?}");
    assert!(had_seen);
}

/// A connection may have had very many sessions: others get their turn while they end.
#[tokio::test]
async fn sessions_of_a_lost_connection_end_in_pieces_and_only_those_that_wished_so() {
    let (mut driver, _inboxes) = alone().await;
    driver.turn_until = Instant::NEVER;
    let open = |guest: &str, session, ends_with_connection| {
        let open = OpenSession { session, ttl_ms: 60_000, ends_with_connection, ..OpenSession::default() };
        let request = Request { guest: guest.to_owned(), ..Request::of(Command::OpenSession(open)) };
        Item { tag: None, payload: apply::payload(request, 0) }
    };
    let mut items: Vec<Item> = (1..=250).map(|it| open("me", it, true)).collect();
    items.extend([open("me", 251, false), open("another", 252, true)]);
    let content = Content::Batch { at: ClusterTime(1), items };
    driver.commit(vec![Committed { index: driver.applied + 1, term: incumbent_protocol::protocol::Term(1), content }]);

    driver.turn_until = clock::now();
    let sessions = (1..=253).map(|session| Lost { session, binding: 0 }).collect();
    driver.on_order(Order::Lost { guest: "me".to_owned(), sessions });
    assert!(driver.inputs.is_empty(), "the turn is over");
    assert!(driver.deadline() <= clock::now(), "it goes on as soon as others had theirs");
    let Some(Work::EndSessions(guest, sessions)) = driver.work.pop_front() else { panic!("it waits for its turn") };
    driver.end_sessions(guest, sessions);
    assert_eq!((driver.inputs.len(), driver.work.len()), (work::LOST_AT_ONCE, 1), "the rest comes behind what waits");
    assert!(driver.deadline() <= clock::now());
    driver.turn_until = Instant::NEVER;
    driver.work_on();
    assert_eq!((driver.inputs.len(), driver.work.len()), (250, 0));
    assert!(driver.deadline() <= clock::now(), "what is to be proposed does not wait for somebody to come");
}

fn submit(driver: &mut Driver, guest: &str, key: &'static str, value: usize) -> oneshot::Receiver<Outcome> {
    let (answer, answered) = oneshot::channel();
    let put = incumbent_store::keys::transaction::Put { key: key.into(), value: vec![b'v'; value].into(), ..Default::default() };
    let request = Request::of(Command::Put(put));
    driver.on_call(Call { guest: guest.into(), order: Order::Submit { request, answer: answer.into() } });
    answered
}

/// However much one guest has sent: what others want is on its way before the rest of it.
#[tokio::test]
async fn nobody_waits_for_all_that_another_guest_has_sent() {
    let (mut driver, _inboxes) = alone().await;
    let many: Vec<_> = (0..40).map(|_| submit(&mut driver, "glutton", "a", 1 << 20)).collect();
    let mut modest = submit(&mut driver, "modest", "b", 1);
    driver.serve_guests();
    driver.step_on();
    let under_way = driver.desk.len();
    assert!((15..=25).contains(&under_way) && !driver.guests.is_any_ready(), "the rest waits: {under_way}");
    assert_eq!(driver.guests.len(), many.len() + 1 - under_way);

    // Who only looks waits for nothing of it.
    let (answer, mut looked) = oneshot::channel();
    let query = Query::Status(AskStatus {});
    let order = Order::Ask { query, consistency: Consistency::Local, seen: 0, answer: answer.into() };
    driver.on_call(Call { guest: "modest".into(), order });
    driver.serve_guests();
    assert!(looked.try_recv().is_ok_and(|it| it.is_ok()));

    // Nobody leads: whoever waits hears of that, in time. All of them are the glutton's: the other was let through.
    let later = clock::now() + driver.settings.patience + Duration::from_secs(1);
    driver.refuse_late_guests(later);
    assert!(driver.guests.is_empty());
    let refused = many.into_iter().filter_map(|mut it| it.try_recv().ok());
    let refused: Vec<_> = refused.filter(|it| matches!(it, Outcome::NotNow(not_now) if not_now.why == Why::NoLeader)).collect();
    assert_eq!(refused.len(), 41 - under_way);
    assert!(matches!(modest.try_recv(), Err(oneshot::error::TryRecvError::Empty)));
    // What has ended makes room.
    let _more = submit(&mut driver, "modest", "b", 1);
    assert!(!driver.guests.is_any_ready());
    for tag in 1..=under_way as u64 {
        driver.desk.unknown(Tag(tag), None);
    }
    assert!(driver.guests.is_any_ready());
}

/// One of a row of questions, each of which takes longer than a turn, and has the next one there when it ends.
fn one_of_many(orders: mpsc::Sender<Call>, left: usize, others: Arc<AtomicUsize>, turns: mpsc::UnboundedSender<usize>) -> Call {
    let answer = Asker::new(move |_| {
        let begun = clock::now();
        while clock::now() < begun + TURN_MAX {
            std::hint::spin_loop();
        }
        let _ = turns.send(others.load(Ordering::Relaxed));
        if left > 0 {
            let next = one_of_many(orders.clone(), left - 1, others, turns);
            orders.try_send(next).expect("there is room");
        }
    });
    let query = Query::Status(AskStatus {});
    Call { guest: "busy".into(), order: Order::Ask { query, consistency: Consistency::Local, seen: 0, answer } }
}

/// They are tasks on the same thread.
#[tokio::test]
async fn a_node_that_always_has_something_to_do_lets_the_lines_to_the_others_through() {
    const MANY: usize = 20;
    let (driver, inboxes) = alone().await;
    let (others, (turns, mut told)) = (Arc::<AtomicUsize>::default(), mpsc::unbounded_channel());
    let orders = driver.handle.orders.clone();
    let first = one_of_many(orders.clone(), MANY - 1, Arc::clone(&others), turns);
    orders.try_send(first).expect("there is room");
    let (life, living) = oneshot::channel();
    let node = tokio::spawn(driver.run(inboxes, living));
    let mut seen = Vec::new();
    while seen.len() < MANY {
        while let Ok(turn) = told.try_recv() {
            seen.push(turn);
        }
        others.fetch_add(1, Ordering::Relaxed);
        tokio::task::yield_now().await;
    }
    seen.dedup();
    assert!(seen.len() * 2 > MANY, "others had theirs in between: {seen:?}");
    drop(life);
    node.await.expect("no panic");
}
