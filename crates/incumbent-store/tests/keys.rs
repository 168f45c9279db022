//! The key space keeps its word, claim by claim.

mod scene;

use incumbent_store::Bytes;
use incumbent_store::command::*;
use incumbent_store::encoding::Entry;
use incumbent_store::event::Change;
use incumbent_store::keys::item::Span;
use incumbent_store::keys::transaction::*;
use incumbent_store::limits::Limits;
use incumbent_store::query::{Answer, Events, Query, Range, ReadEvents};
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::{Reply, Written};
use incumbent_store::store::Store;
use incumbent_store::time::{Stamp, Time};
use incumbent_store::watch::{Interest, Topic};
use scene::{Outcome, Scene, put};

fn written(outcome: Outcome) -> Written {
    let Ok(Reply::Written(written)) = outcome else { panic!("not written: {outcome:?}") };
    written
}

fn key_of(written: &Written) -> String {
    String::from_utf8(written.item.as_ref().expect("an item").key.to_vec()).expect("text")
}

fn delete(span: Span) -> Delete {
    Delete { span: Some(span), wants_previous: false }
}

fn keys(scene: &Scene, range: Range) -> Vec<String> {
    let items = scene.range(range).expect("read").items;
    items.iter().map(|it| String::from_utf8(it.key.to_vec()).expect("text")).collect()
}

fn span(span: Span) -> Range {
    Range { span: Some(span), ..Range::default() }
}

fn events(scene: &Scene, from: u64, topic: Topic) -> Result<Events, Refusal> {
    let asked = ReadEvents { from, interest: Some(Interest::of(topic)), limit: 0 };
    let Answer::Events(events) = scene.store.query(&Query::Events(asked))? else { panic!("no events") };
    Ok(events)
}

#[test]
fn a_key_counts_its_writings_and_begins_anew_when_it_was_deleted() {
    let mut scene = Scene::new();
    let first = written(scene.put("k", "1")).item.expect("an item");
    assert_eq!((first.version, first.created, first.modified), (1, 1, 1));
    let asked = Put { wants_previous: true, ..put("k", "2") };
    let second = written(scene.ask(Command::Put(asked)));
    let item = second.item.expect("an item");
    assert_eq!((item.version, item.created, item.modified), (2, 1, 2));
    assert_eq!(second.previous.expect("there was one").value, "1");
    scene.ask(Command::Delete(delete(Span::key("k")))).expect("deleted");
    scene.ask(Command::Delete(delete(Span::key("k")))).expect("nothing to do");
    assert_eq!(scene.store.revision(), 3, "what changes nothing has no revision");
    let third = written(scene.put("k", "3")).item.expect("an item");
    assert_eq!((third.version, third.created), (1, 4));
}

#[test]
fn a_range_has_an_order_a_limit_and_a_count() {
    let mut scene = Scene::new();
    for key in ["a", "b/1", "b/2", "b/3", "c"] {
        scene.put(key, "v").expect("written");
    }
    assert_eq!(keys(&scene, span(Span::prefix("b/"))), ["b/1", "b/2", "b/3"]);
    assert_eq!(keys(&scene, span(Span { start: "b/2".into(), end: Bytes::from_static(&[0]) })), ["b/2", "b/3", "c"]);
    assert_eq!(keys(&scene, span(Span { start: "c".into(), end: "a".into() })), [] as [&str; 0]);
    let limited = scene.range(Range { limit: 2, counts: true, keys_only: true, ..span(Span::prefix("b/")) }).expect("read");
    assert_eq!((limited.items.len(), limited.more, limited.count), (2, true, 3));
    assert!(limited.items.iter().all(|it| it.value.is_empty() && it.version == 1));
    let counted = scene.range(Range { count_only: true, ..span(Span::all()) }).expect("read");
    assert_eq!((counted.items.len(), counted.more, counted.count), (0, false, 5));
    assert!(matches!(scene.range(Range::default()), Err(Refusal::Malformed(_))));
}

#[test]
fn children_are_read_without_their_children() {
    let mut scene = Scene::new();
    for key in ["/a", "/a-b", "/a/1", "/a/1/x", "/a/1/y", "/a/2", "/a/3/z", "/a/4", "/b", "/a/\u{10ffff}/z"] {
        scene.put(key, "").expect("written");
    }
    let read = |scene: &Scene, start: &str, limit, revision| {
        let asked = Range { separator: "/".into(), limit, revision, counts: true, ..span(Span::prefix(start.to_owned())) };
        let items = scene.range(asked).expect("read");
        let text = |it: &Bytes| String::from_utf8(it.to_vec()).expect("text");
        let keys: Vec<String> = items.items.iter().map(|it| text(&it.key)).collect();
        let branches: Vec<String> = items.branches.iter().map(text).collect();
        (keys.join(" "), branches.join(" "), items.more, items.count)
    };
    let expected = ("/a/1 /a/2 /a/4".to_owned(), "/a/1/ /a/3/ /a/\u{10ffff}/".to_owned(), false, 3);
    assert_eq!(read(&scene, "/a/", 0, 0), expected);
    assert_eq!(read(&scene, "/a/", 2, 0), ("/a/1".to_owned(), "/a/1/".to_owned(), true, 3));
    assert_eq!(read(&scene, "/", 0, 0), ("/a /a-b /b".to_owned(), "/a/".to_owned(), false, 3));
    // Page by page it is the same.
    let (mut pages, mut after, mut more) = (vec![], Bytes::new(), true);
    while more {
        let asked = Range { separator: "/".into(), limit: 1, after: after.clone(), ..span(Span::prefix("/a/")) };
        let page = scene.range(asked).expect("read");
        after = page.items.iter().map(|it| it.key.clone()).chain(page.branches).next().expect("one");
        pages.push(String::from_utf8(after.to_vec()).expect("text"));
        more = page.more;
    }
    assert_eq!(pages, ["/a/1", "/a/1/", "/a/2", "/a/3/", "/a/4", "/a/\u{10ffff}/"]);
    let revision = scene.store.revision();
    scene.ask(Command::Delete(delete(Span::all()))).expect("deleted");
    assert_eq!(read(&scene, "/a/", 0, revision), expected, "also as it was");
}

/// As Consul's users make folders.
#[test]
fn a_key_that_ends_in_the_separator_is_paged_past_like_any_other() {
    let mut scene = Scene::new();
    for key in ["a/", "a/1", "a/2/", "a/2/x", "a/3"] {
        scene.put(key, "").expect("written");
    }
    let (mut pages, mut after, mut more) = (vec![], Bytes::new(), true);
    while more {
        let asked = Range { separator: "/".into(), limit: 1, after: after.clone(), ..span(Span::prefix("a/")) };
        let page = scene.range(asked).expect("read");
        after = page.items.iter().map(|it| it.key.clone()).chain(page.branches).next().expect("one");
        pages.push(String::from_utf8(after.to_vec()).expect("text"));
        more = page.more;
    }
    assert_eq!(pages, ["a/", "a/1", "a/2/", "a/3"]);
}

#[test]
fn branches_count_in_the_answer_to_a_transaction_like_keys() {
    let fill = |limits| {
        let mut scene = Scene::with_limits(limits);
        for key in ["a/1", "b/1", "c", "d"] {
            scene.put(key, "").expect("written");
        }
        scene
    };
    let read = || Act::Read(Range { separator: "/".into(), ..span(Span::all()) });
    // Two keys of one byte and two branches of two.
    let mut scene = fill(Limits { answer_bytes_max: 11, ..Limits::STANDARD });
    scene.transact(vec![], vec![read()], vec![]).expect("six bytes");
    assert!(matches!(scene.transact(vec![], vec![read(), read()], vec![]), Err(Refusal::Limit { max: 11, .. })));
    let mut scene = fill(Limits { answer_items_max: 7, ..Limits::STANDARD });
    scene.transact(vec![], vec![read()], vec![]).expect("four of them");
    assert!(matches!(scene.transact(vec![], vec![read(), read()], vec![]), Err(Refusal::Limit { max: 7, .. })));
}

#[test]
fn a_read_of_the_past_does_not_show_the_children_of_now() {
    let mut scene = Scene::new();
    let child = |name: &str| Command::Put(Put { parent_len: 1, ..put(name, "") });
    scene.put("p", "1").expect("written");
    scene.ask(child("p/1")).expect("written");
    let revision = scene.store.revision();
    let at = |scene: &Scene, revision| {
        let item = scene.range(Range { revision, ..span(Span::key("p")) }).expect("kept").items.pop().expect("there");
        (item.value.clone(), item.children, item.named, item.children_changes, item.children_changed)
    };
    scene.put("other", "").expect("written");
    assert_eq!(at(&scene, revision), ("1".into(), 1, 0, 1, revision), "nothing has changed since");
    scene.ask(child("p/2")).expect("written");
    assert_eq!(at(&scene, revision), ("1".into(), 0, 0, 0, 0), "not two");
    // Nor those that it had when it was written since.
    scene.put("p", "2").expect("written");
    assert_eq!(at(&scene, revision), ("1".into(), 0, 0, 0, 0));
    let now = scene.store.revision();
    assert_eq!(at(&scene, now), at(&scene, 0));
    assert_eq!(at(&scene, 0).1, 2);
}

#[test]
fn a_transaction_can_give_itself_up() {
    let mut scene = Scene::new();
    scene.put("a", "1").expect("written");
    let digest = scene.store.digest();
    // As ZooKeeper's multi: each step has its own guard, and sees what the steps before have done.
    let step = |guard: Guard, act: Act, number| {
        let (then, otherwise) = (vec![act.into()], vec![Act::Abort(number).into()]);
        Act::Transact(Transaction { guards: vec![guard], then, otherwise })
    };
    let made = Guard::key("b", Comparison::Equal, Against::Version(1));
    let create = || step(Guard::absent("b"), Act::Put(put("b", "")), 1);
    let steps = vec![create(), step(made, Act::Put(put("b", "2")), 2), step(Guard::absent("a"), Act::Put(put("a", "")), 3)];
    assert_eq!(scene.transact(vec![], steps, vec![]), Err(Refusal::Aborted(3)));
    assert_eq!(scene.store.digest(), digest);
    scene.transact(vec![], vec![create()], vec![]).expect("carried out");
}

#[test]
fn an_answer_has_an_end() {
    let mut scene = Scene::with_limits(Limits { answer_items_max: 3, answer_bytes_max: 10, ..Limits::STANDARD });
    for key in ["a", "b", "c", "d"] {
        scene.put(key, "").expect("written");
    }
    scene.put("e", "more than ten bytes").expect("written");
    let first = scene.range(span(Span::all())).expect("read");
    assert_eq!((first.items.len(), first.more), (3, true));
    let rest = scene.range(span(Span { start: "d".into(), end: Bytes::from_static(&[0]) })).expect("read");
    assert_eq!((rest.items.len(), rest.more), (1, true));
    let long = scene.range(span(Span { start: "e".into(), end: Bytes::from_static(&[0]) })).expect("read");
    assert_eq!((long.items.len(), long.more), (1, false), "nobody would ever come past it");
}

#[test]
fn a_request_looks_at_so_many_keys_in_all_its_guards_reads_and_counts() {
    let mut scene = Scene::with_limits(Limits { visited_max: 10, visited_in_log_max: 10, ..Limits::STANDARD });
    for key in ["a", "b", "c", "d"] {
        scene.put(key, "").expect("written");
    }
    let too_many = Refusal::Limit { what: "keys looked at in one request".into(), max: 10 };
    let count = || Act::Read(Range { count_only: true, ..span(Span::all()) });
    let guard = || Guard { span: Some(Span::all()), ..Guard::exists("a") };
    assert!(scene.transact(vec![guard()], vec![count()], vec![]).expect("eight").held);
    assert_eq!(scene.transact(vec![], vec![count(), count(), count()], vec![]), Err(too_many.clone()));
    assert_eq!(scene.transact(vec![guard(), guard(), guard()], vec![], vec![]), Err(too_many.clone()));
    let nested = Act::Transact(Transaction { guards: vec![guard()], then: vec![count().into()], otherwise: vec![] });
    assert_eq!(scene.transact(vec![guard()], vec![nested], vec![]), Err(too_many.clone()));
    let read = || Act::Read(span(Span::all()));
    let digest = scene.store.digest();
    let all = vec![read(), read(), Act::Delete(delete(Span::all()))];
    assert_eq!(scene.transact(vec![], all, vec![]), Err(too_many.clone()));
    assert_eq!(scene.store.digest(), digest);
    // The same for a question: also to the past, and past branches, which are looked at without being counted.
    let counted = Range { count_only: true, ..span(Span::all()) };
    assert_eq!(scene.range(counted.clone()).expect("four").count, 4);
    let before = scene.store.revision();
    for key in ["e/1", "f/1", "g/1", "h/1", "i/1", "j/1", "k/1"] {
        scene.put(key, "").expect("written");
    }
    scene.put("a", "again").expect("written");
    for revision in [0, scene.store.revision() - 1] {
        assert_eq!(scene.range(Range { revision, separator: "/".into(), ..counted.clone() }), Err(too_many.clone()));
    }
    assert_eq!(scene.range(Range { revision: before, ..counted }).expect("four").count, 4);
}

/// What goes into the log is applied by the loop of every node; a question is answered beside it.
#[test]
fn a_question_may_look_at_more_keys_than_a_request_of_the_log() {
    let mut scene = Scene::with_limits(Limits { visited_max: 4, visited_in_log_max: 3, ..Limits::STANDARD });
    for key in ["a", "b", "c", "d"] {
        scene.put(key, "").expect("written");
    }
    let counted = Range { count_only: true, ..span(Span::all()) };
    assert_eq!(scene.range(counted.clone()).expect("four").count, 4);
    assert!(matches!(scene.transact(vec![], vec![Act::Read(counted)], vec![]), Err(Refusal::Limit { max: 3, .. })));
}

#[test]
fn values_that_a_guard_compares_count_by_their_length() {
    let mut scene = Scene::with_limits(Limits { visited_in_log_max: 9, ..Limits::STANDARD });
    let long = "v".repeat(2048);
    for key in ["a", "b", "c"] {
        scene.put(key, &long).expect("written");
    }
    let all = |value: &str| Guard {
        span: Some(Span::all()),
        ..Guard::key("", Comparison::Equal, Against::Value(value.to_owned().into()))
    };
    assert!(scene.transact(vec![all(&long)], vec![], vec![]).expect("three keys and six times 1 KiB").held);
    assert!(matches!(scene.transact(vec![all(&long), all("v")], vec![], vec![]), Err(Refusal::Limit { max: 9, .. })));
    assert!(!scene.transact(vec![all("v"), all("v")], vec![], vec![]).expect("nothing long is compared").held);
}

#[test]
fn a_guard_looks_past_delays_within_the_same_bound() {
    let mut scene = Scene::with_limits(Limits { visited_in_log_max: 3, ..Limits::STANDARD });
    let session = scene.open_as(OpenSession { ttl_ms: 1000, lock_delay_ms: 5000, ..OpenSession::default() }).expect("opened");
    for key in ["a", "b", "c", "d"] {
        scene.ask(Command::Put(Put { session, ..put(key, "") })).expect("written");
    }
    scene.pass_ms(2000);
    scene.expire();
    let undelayed = Guard { span: Some(Span::all()), ..Guard::key("", Comparison::Equal, Against::Undelayed(true)) };
    assert!(!scene.transact(vec![undelayed.clone()], vec![], vec![]).expect("the first is enough").held);
    // All of them are over, and none is forgotten yet.
    scene.pass_ms(5000);
    assert!(matches!(scene.transact(vec![undelayed], vec![], vec![]), Err(Refusal::Limit { max: 3, .. })));
}

#[test]
fn a_key_that_is_delayed_takes_room() {
    let limits = Limits { keys_max: 4, keys_bytes_max: 40, ..Limits::STANDARD };
    let mut scene = Scene::with_limits(limits);
    let lose = |scene: &mut Scene, keys: &[&str]| {
        let terms = OpenSession { ttl_ms: 1000, lock_delay_ms: 60_000, ..OpenSession::default() };
        let session = scene.open_as(terms).expect("opened");
        for key in keys {
            scene.ask(Command::Put(Put { session, ..put(key, "") })).expect("written");
        }
        scene.ask(Command::EndSession(EndSession { session, unclean: true, ..EndSession::default() })).expect("ended");
    };
    lose(&mut scene, &["ten bytes1", "ten bytes2"]);
    lose(&mut scene, &["ten bytes1"]);
    let pieces: Vec<Vec<u8>> = scene.store.save().collect();
    scene.store = Store::load_with_limits(&pieces, limits).expect("just saved");
    assert!(matches!(scene.put("a", &"v".repeat(20)), Err(Refusal::Limit { max: 40, .. })), "20 bytes are delayed");
    scene.put("a", &"v".repeat(10)).expect("written");
    scene.put("b", "").expect("written");
    assert!(matches!(scene.put("c", ""), Err(Refusal::Limit { max: 4, .. })), "two are there, two delayed");
    // When the delays are over and forgotten, there is room again.
    scene.pass_ms(60_000);
    scene.expire();
    scene.put("c", &"v".repeat(25)).expect("written");
    scene.put("d", "").expect("written");
}

#[test]
fn a_key_goes_with_its_session_or_stays_without_it() {
    let mut scene = Scene::new();
    let session = scene.open_as(OpenSession { ttl_ms: 1000, lock_delay_ms: 5000, ..OpenSession::default() }).expect("opened");
    scene.ask(Command::Put(Put { session, ..put("goes", "1") })).expect("written");
    scene.ask(Command::Put(Put { session, outlives_session: true, ..put("stays", "1") })).expect("written");
    scene.ask(Command::Put(Put { session, ..put("leaves", "1") })).expect("written");
    scene.put("leaves", "2").expect("written without a session");
    scene.pass_ms(2000);
    scene.expire();
    assert_eq!(scene.heard(), ["session ended: lease expired", "deleted goes", "put stays"]);
    assert_eq!(scene.events[1].revision, scene.events[2].revision, "what goes together has one revision");
    let stays = scene.item("stays").expect("it stays");
    assert_eq!((stays.session, stays.version, stays.value.as_ref()), (0, 2, &b"1"[..]));
    assert_eq!(scene.value("leaves").as_deref(), Some("2"));
    let undelayed = |scene: &mut Scene, key: &str| {
        let guard = Guard::key(key.to_owned(), Comparison::Equal, Against::Undelayed(true));
        scene.transact(vec![guard], vec![], vec![]).expect("carried out").held
    };
    assert!(!undelayed(&mut scene, "stays") && !undelayed(&mut scene, "goes") && undelayed(&mut scene, "leaves"));
    scene.pass_ms(5000);
    assert!(undelayed(&mut scene, "stays"));
    scene.expire();
    assert_eq!(scene.store.expiry(), None, "delays are forgotten");
    assert_eq!(scene.ask(Command::Put(Put { session, ..put("late", "") })), Err(Refusal::SessionGone(session)));
}

#[test]
fn what_is_kept_must_be_there() {
    let mut scene = Scene::new();
    let session = scene.open(1000);
    for put in [Put { keeps_value: true, ..put("k", "") }, Put { keeps_session: true, ..put("k", "") }] {
        assert_eq!(scene.ask(Command::Put(put)), Err(Refusal::NoKey));
    }
    scene.ask(Command::Put(Put { session, ..put("k", "v") })).expect("written");
    scene.ask(Command::Put(Put { keeps_value: true, keeps_session: true, ..put("k", "x") })).expect("written");
    let item = scene.item("k").expect("there");
    assert_eq!((item.value.as_ref(), item.session, item.version), (&b"v"[..], session, 2));
}

#[test]
fn children_are_counted_and_their_numbers_never_come_again() {
    let mut scene = Scene::new();
    let child = |session| Put { parent_len: 5, sequential: true, session, ..put("/lock/n-", "") };
    assert_eq!(scene.ask(Command::Put(child(0))), Err(Refusal::NoParent));
    scene.put("/lock", "").expect("written");
    let session = scene.open(1000);
    assert_eq!(key_of(&written(scene.ask(Command::Put(child(session))))), "/lock/n-0000000000");
    assert_eq!(scene.heard(), ["put /lock/n-0000000000"], "that a child came is told of the child");
    assert_eq!(key_of(&written(scene.ask(Command::Put(child(0))))), "/lock/n-0000000001");
    scene.put("/lock/n-0000000002", "by hand").expect("written");
    assert_eq!(key_of(&written(scene.ask(Command::Put(child(0))))), "/lock/n-0000000003");
    let parent = scene.item("/lock").expect("there");
    assert_eq!((parent.children, parent.children_changes, parent.named, parent.version), (3, 3, 4, 1));
    let childless = |scene: &mut Scene| {
        let guard = Guard::key("/lock", Comparison::Equal, Against::Children(0));
        scene.transact(vec![guard], vec![Act::Delete(delete(Span::key("/lock")))], vec![]).expect("carried out").held
    };
    assert!(!childless(&mut scene));
    scene.end(session).expect("ended");
    let parent = scene.item("/lock").expect("there");
    assert_eq!((parent.children, parent.children_changes), (2, 4));
    assert_eq!(parent.children_changed, scene.store.revision());
    scene.ask(Command::Delete(delete(Span::prefix("/lock/n-")))).expect("deleted");
    assert_eq!(key_of(&written(scene.ask(Command::Put(child(0))))), "/lock/n-0000000004", "ZK1");
    scene.ask(Command::Delete(delete(Span::prefix("/lock/")))).expect("deleted");
    assert!(childless(&mut scene));
    assert!(matches!(scene.ask(Command::Put(Put { parent_len: 99, ..put("/x", "") })), Err(Refusal::Malformed(_))));
    assert!(matches!(scene.ask(Command::Put(Put { sequential: true, ..put("/x", "") })), Err(Refusal::Malformed(_))));
}

#[test]
fn names_that_were_taken_by_hand_are_passed_within_the_same_bound() {
    // To pass one costs as much as to look at ten.
    let mut scene = Scene::with_limits(Limits { visited_in_log_max: 21, ..Limits::STANDARD });
    scene.put("/lock", "").expect("written");
    for number in 0..3 {
        scene.put(&format!("/lock/n-{number:010}"), "by hand").expect("written");
    }
    let child = || Act::Put(Put { parent_len: 5, sequential: true, ..put("/lock/n-", "") });
    let too_many = Refusal::Limit { what: "keys looked at in one request".into(), max: 21 };
    let Act::Put(alone) = child() else { panic!("a put") };
    let digest = scene.store.digest();
    assert_eq!(scene.ask(Command::Put(alone.clone())), Err(too_many.clone()));
    assert_eq!(scene.store.digest(), digest);
    scene.ask(Command::Delete(delete(Span::key("/lock/n-0000000002")))).expect("deleted");
    assert_eq!(scene.transact(vec![], vec![child(), child()], vec![]), Err(too_many), "all of a request together");
    assert_eq!(key_of(&written(scene.ask(Command::Put(alone)))), "/lock/n-0000000002");
}

#[test]
fn a_transaction_is_all_or_nothing() {
    let mut scene = Scene::new();
    let session = scene.open(1000);
    scene.ask(Command::Put(Put { session, ..put("a", "1") })).expect("written");
    scene.put("p", "").expect("written");
    let digest = scene.store.digest();
    let then = vec![
        Act::Put(put("a", "2")),
        Act::Put(put("b", "2")),
        Act::Delete(delete(Span::key("p"))),
        Act::Put(Put { parent_len: 1, ..put("p/child", "") }),
    ];
    assert_eq!(scene.transact(vec![], then, vec![]), Err(Refusal::NoParent));
    assert!(scene.events.is_empty());
    assert_eq!(scene.store.digest(), digest, "it is as if nothing had been");
    scene.end(session).expect("ended");
    assert_eq!(scene.item("a"), None, "also whose it was");
}

#[test]
fn what_follows_in_a_transaction_sees_what_went_before_and_a_key_has_one_event() {
    let mut scene = Scene::new();
    scene.put("a", "0").expect("written");
    let read = Act::Read(span(Span::all()));
    let then = vec![
        Act::Put(put("a", "1")),
        Act::Put(put("a", "2")),
        Act::Put(put("b", "1")),
        read.clone(),
        Act::Delete(delete(Span::key("b"))),
        Act::Delete(delete(Span::key("a"))),
        Act::Put(put("a", "3")),
        read,
    ];
    let done = scene.transact(vec![], then, vec![]).expect("carried out");
    let read = |at: usize| match &done.results[at].answer {
        Some(ActAnswer::Read(items)) => items.items.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!((read(3), read(7)), (2, 1));
    assert_eq!(scene.heard(), ["put a"], "W2: and nothing of what was and went");
    let Some(Change::Put(change)) = &scene.events[0].change else { panic!("no put") };
    assert_eq!(change.previous.as_ref().map(|it| it.value.as_ref()), Some(&b"0"[..]), "W7");
    assert_eq!((change.item.created, change.item.version), (scene.store.revision(), 1));
}

#[test]
fn guards_compare_what_they_say() {
    let mut scene = Scene::new();
    let session = scene.open(60_000);
    scene.ask(Command::Put(Put { session, ..put("k", "mm") })).expect("written");
    scene.put("k2", "x").expect("written");
    let created = scene.item("k").expect("there").created;
    let holds = |scene: &mut Scene, guard: Guard| scene.transact(vec![guard], vec![], vec![]).expect("carried out").held;
    use Comparison::{Equal, Greater, Less, NotEqual};
    let cases = [
        ("k", Equal, Against::Version(1), true),
        ("k", NotEqual, Against::Version(1), false),
        ("k", Greater, Against::Version(0), true),
        ("k", Less, Against::Modified(created), false),
        ("k", Equal, Against::Created(created), true),
        ("k", Equal, Against::Value("mm".into()), true),
        ("k", Greater, Against::Value("ma".into()), true),
        ("k", Less, Against::Value("z".into()), true),
        ("k", Equal, Against::Session(session), true),
        ("k", Equal, Against::Children(0), true),
        ("x", Equal, Against::Version(0), true),
        ("x", Equal, Against::Created(0), true),
        ("x", Equal, Against::Value("".into()), false),
        ("x", NotEqual, Against::Value("y".into()), false),
    ];
    for (key, comparison, against, expected) in cases {
        let guard = Guard::key(key, comparison, against);
        assert_eq!(holds(&mut scene, guard.clone()), expected, "{guard:?}");
    }
    let all = |against| Guard { span: Some(Span::prefix("k")), comparison: Equal as i32, against: Some(against) };
    assert!(holds(&mut scene, all(Against::Version(1))) && !holds(&mut scene, all(Against::Session(session))));
    assert!(holds(&mut scene, Guard::exists("k")) && holds(&mut scene, Guard::absent("x")));
    let none = Guard { span: Some(Span::prefix("none")), ..all(Against::Version(0)) };
    assert!(holds(&mut scene, none), "as etcd has it: nothing there counts as version 0");
}

#[test]
fn a_transaction_is_weighed_before_it_is_done() {
    let mut scene = Scene::with_limits(Limits { operations_max: 10, depth_max: 3, deleted_max: 2, ..Limits::STANDARD });
    let nested = |depth: usize| {
        let mut transaction = Transaction::default();
        for _ in 1..depth {
            transaction = Transaction { then: vec![Act::Transact(transaction).into()], ..Transaction::default() };
        }
        Command::Transact(transaction)
    };
    scene.ask(nested(3)).expect("deep enough");
    assert!(matches!(scene.ask(nested(4)), Err(Refusal::Limit { max: 3, .. })), "C89");
    let wide = vec![Act::Put(put("k", "")); 11];
    assert!(matches!(scene.transact(vec![], wide, vec![]), Err(Refusal::Limit { max: 10, .. })));
    let guard = Guard { comparison: 9, ..Guard::exists("k") };
    assert!(matches!(scene.transact(vec![guard], vec![], vec![]), Err(Refusal::Malformed(_))));
    let guard = Guard { against: None, ..Guard::exists("k") };
    assert!(matches!(scene.transact(vec![guard], vec![], vec![]), Err(Refusal::Malformed(_))));
    let unknown = Transaction { otherwise: vec![Operation { act: None }], ..Transaction::default() };
    assert!(matches!(scene.ask(Command::Transact(unknown)), Err(Refusal::Malformed(_))));
    for key in ["a", "b", "c"] {
        scene.put(key, "").expect("written");
    }
    assert!(matches!(scene.ask(Command::Delete(delete(Span::all()))), Err(Refusal::Limit { max: 2, .. })));
    let each = ["a", "b", "c"].map(|it| Act::Delete(delete(Span::key(it)))).to_vec();
    assert!(matches!(scene.transact(vec![], each, vec![]), Err(Refusal::Limit { max: 2, .. })), "nor one by one");
    assert_eq!(keys(&scene, Range { span: Some(Span::all()), ..Range::default() }), ["a", "b", "c"]);
    assert!(matches!(scene.put("", ""), Err(Refusal::Malformed(_))));
}

#[test]
fn the_space_is_bounded_and_what_is_too_much_is_refused() {
    let mut scene = Scene::with_limits(Limits { keys_max: 2, keys_bytes_max: 20, ..Limits::STANDARD });
    scene.put("a", "12345678").expect("written");
    scene.put("b", "1").expect("written");
    assert!(matches!(scene.put("c", ""), Err(Refusal::Limit { max: 2, .. })));
    assert!(matches!(scene.put("b", "1234567890123"), Err(Refusal::Limit { max: 20, .. })));
    scene.put("b", "1234567890").expect("written");
    scene.put("a", "87654321").expect("what is replaced makes room");
}

#[test]
fn the_past_is_read_as_far_back_as_events_are_kept() {
    let mut scene = Scene::new();
    let (mut states, mut revisions) = (vec![], vec![]);
    for (key, value) in [("a", "1"), ("b", "1"), ("a", "2"), ("a", ""), ("c", "1"), ("a", "3")] {
        match value {
            "" => scene.ask(Command::Delete(delete(Span::key(key)))).expect("deleted"),
            value => scene.put(key, value).expect("written"),
        };
        states.push(scene.range(span(Span::all())).expect("read").items);
        revisions.push(scene.store.revision());
    }
    let at = |scene: &Scene, revision| scene.range(Range { revision, ..span(Span::all()) });
    for (revision, state) in revisions.iter().zip(&states) {
        assert_eq!(&at(&scene, *revision).expect("kept").items, state, "revision {revision}");
    }
    assert_eq!(at(&scene, 99), Err(Refusal::Future(6)));
    scene.ask(Command::Compact(Compact { revision: 4 })).expect("compacted");
    assert_eq!(at(&scene, 4).expect("kept").items, states[3], "what was at the revision itself is still known");
    assert_eq!(at(&scene, 3), Err(Refusal::Compacted(5)));
    assert_eq!(scene.ask(Command::Compact(Compact { revision: 4 })), Err(Refusal::Compacted(5)));
    assert_eq!(scene.ask(Command::Compact(Compact { revision: 7 })), Err(Refusal::Future(6)));
}

#[test]
fn a_watch_goes_on_from_a_revision_or_is_told_that_it_cannot() {
    let mut scene = Scene::with_limits(Limits { events_max: 4, ..Limits::STANDARD });
    for key in ["a", "b", "a", "c"] {
        scene.put(key, "").expect("written");
    }
    let of_a = || Topic::Keys(Span::key("a"));
    let heard = events(&scene, 2, of_a()).expect("kept");
    assert_eq!((heard.events.len(), heard.events[0].revision, heard.next), (1, 3, 5), "W5");
    let session = scene.open(1000);
    scene.win(scene::bid(session, "e", "x"));
    assert_eq!(events(&scene, 1, of_a()), Err(Refusal::Lagged(2)));
    scene.ask(Command::Compact(Compact { revision: 3 })).expect("compacted");
    assert_eq!(events(&scene, 3, of_a()), Err(Refusal::Compacted(4)), "C70");
    let elections = events(&scene, 4, Topic::ElectionsUnder("".into())).expect("kept");
    assert_eq!(elections.events.len(), 1);
    assert_eq!(events(&scene, 4, Topic::Election("f".into())).expect("kept").events.len(), 0);
}

/// Whoever watches from the next revision on misses nothing, also if it had to ask twice.
#[test]
fn a_repeated_request_is_answered_with_the_revision_at_which_it_was_done() {
    let (mut store, mut events) = (Store::new(0), Vec::new());
    let mut apply = |request: Request| {
        let mut outcomes = store.apply_entry(Entry::new(Stamp::at(Time::ZERO), vec![request]), &mut events);
        outcomes.pop().expect("one for each request").revision
    };
    let client = apply(Request::of(Command::Introduce(Introduce {})));
    let first = Request { client, sequence: 1, ..Request::of(Command::Put(put("a", "1"))) };
    let done = apply(first.clone());
    let later = apply(Request::of(Command::Put(put("b", "1"))));
    assert!(later > done);
    assert_eq!(apply(first), done);
}
