//! Keys, transactions and watches against a model that is slow and plain: a sorted list, copied whole for every revision.
//!
//! Whoever watches is told the log and nothing else: what all events, one after the other, make of an empty list must be the list (W1 to W7), and every page of every watch must be the log, filtered.

mod scene;

use std::collections::BTreeMap;
use std::sync::Arc;

use incumbent_store::Bytes;
use incumbent_store::command::*;
use incumbent_store::event::{Change, Event};
use incumbent_store::keys::item::{Item, Span};
use incumbent_store::keys::transaction::*;
use incumbent_store::limits::Limits;
use incumbent_store::query::{Answer, Query, Range, ReadEvents};
use incumbent_store::refusal::Refusal;
use incumbent_store::store::Store;
use incumbent_store::watch::{Interest, Topic, Watches};
use proptest::prelude::*;
use scene::{Scene, put};

const KEYS: [&str; 8] = ["a", "a/", "a/1", "a/2", "b", "b/\u{7f}", "c", "d"];

/// Key, value, created, modified, version, session.
type Row = (String, String, u64, u64, u64, u64);

#[derive(Clone, Default)]
struct Model {
    rows: Vec<Row>,
    sessions: Vec<u64>,
}

impl Model {
    fn put(&mut self, put: &Put, revision: u64) -> Result<(), ()> {
        let key = String::from_utf8(put.key.to_vec()).expect("text");
        let value = String::from_utf8(put.value.to_vec()).expect("text");
        if put.session != 0 && !self.sessions.contains(&put.session) {
            return Err(());
        }
        match self.rows.iter_mut().find(|it| it.0 == key) {
            Some(row) => {
                if !put.keeps_value {
                    row.1 = value;
                }
                if !put.keeps_session {
                    row.5 = put.session;
                }
                (row.3, row.4) = (revision, row.4 + 1);
            }
            None if put.keeps_value || put.keeps_session => return Err(()),
            None => self.rows.push((key, value, revision, revision, 1, put.session)),
        }
        self.rows.sort();
        Ok(())
    }

    fn delete(&mut self, span: &Span) {
        self.rows.retain(|it| !span.contains(it.0.as_bytes()));
    }

    fn holds(&self, guard: &Guard) -> bool {
        let span = guard.span.as_ref().expect("made with one");
        let found: Vec<&Row> = self.rows.iter().filter(|it| span.contains(it.0.as_bytes())).collect();
        let fits = |ordering: std::cmp::Ordering| match guard.comparison {
            0 => ordering.is_eq(),
            1 => ordering.is_gt(),
            2 => ordering.is_lt(),
            _ => ordering.is_ne(),
        };
        let absent = (String::new(), String::new(), 0, 0, 0, 0);
        let rows: Vec<&Row> = if found.is_empty() { vec![&absent] } else { found.clone() };
        rows.iter().all(|row| match guard.against.as_ref().expect("made with one") {
            Against::Version(it) => fits(row.4.cmp(it)),
            Against::Created(it) => fits(row.2.cmp(it)),
            Against::Modified(it) => fits(row.3.cmp(it)),
            Against::Session(it) => fits(row.5.cmp(it)),
            Against::Value(it) => !found.is_empty() && fits(row.1.as_bytes().cmp(it)),
            Against::Children(_) | Against::Holds(_) | Against::Undelayed(_) => unreachable!("not made"),
        })
    }

    fn transact(&mut self, transaction: &Transaction, revision: u64) -> Result<(), ()> {
        let held = transaction.guards.iter().all(|it| self.holds(it));
        for operation in if held { &transaction.then } else { &transaction.otherwise } {
            match operation.act.as_ref().expect("made with one") {
                Act::Put(put) => self.put(put, revision)?,
                Act::Delete(delete) => self.delete(delete.span.as_ref().expect("made with one")),
                Act::Read(_) => {}
                Act::Transact(nested) => self.transact(nested, revision)?,
                Act::Abort(_) => return Err(()),
            }
        }
        Ok(())
    }
}

fn span(b: u8, c: u8) -> Span {
    let key = |at: u8| Bytes::from(KEYS[at as usize % 8]);
    match b {
        0..=3 => Span::key(key(c)),
        4 | 5 => Span::prefix(key(c)),
        6 => Span { start: key(c), end: key(c.wrapping_mul(5) + 3) },
        _ => Span { start: key(c), end: Bytes::from_static(&[0]) },
    }
}

fn a_put(a: u8, b: u8, c: u8) -> Put {
    Put {
        session: if a >= 6 { 100 + u64::from(a) % 2 } else { 0 },
        keeps_value: b == 7,
        keeps_session: b == 6,
        wants_previous: b == 5,
        ..put(KEYS[c as usize % 8], &"x".repeat(usize::from(b)))
    }
}

fn a_transaction(a: u8, b: u8, c: u8, revision: u64) -> Transaction {
    let number = u64::from(a) % 3;
    let against = match a {
        0 | 1 => Against::Version(number),
        2 | 3 => Against::Modified(revision.saturating_sub(number)),
        4 => Against::Created(revision.saturating_sub(number)),
        5 => Against::Session(100),
        _ => Against::Value("x".repeat(usize::from(b)).into()),
    };
    let guard = Guard { span: Some(span(b, c)), comparison: i32::from(a ^ b) % 4, against: Some(against) };
    let delete = Delete { span: Some(span(c, a)), wants_previous: true };
    let nested = Transaction { then: vec![Act::Put(a_put(b, c, a)).into()], ..Transaction::default() };
    let read = Range { span: Some(span(a, b)), ..Range::default() };
    let abort = (a == 7 && b % 2 == 1).then(|| Act::Abort(3).into());
    Transaction {
        guards: vec![guard],
        then: vec![Act::Put(a_put(a, b, c)).into(), Act::Delete(delete.clone()).into(), Act::Put(a_put(0, 1, a)).into()]
            .into_iter()
            .chain(abort)
            .collect(),
        otherwise: vec![Act::Transact(nested).into(), Act::Read(read).into(), Act::Delete(delete).into()],
    }
}

fn row(item: &Item) -> Row {
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).expect("text");
    (text(&item.key), text(&item.value), item.created, item.modified, item.version, item.session)
}

fn rows(store: &Store, revision: u64) -> Result<Vec<Row>, Refusal> {
    let asked = Range { span: Some(Span::all()), revision, ..Range::default() };
    let Answer::Items(items) = store.query(&Query::Range(asked))? else { panic!("no items") };
    Ok(items.items.iter().map(row).collect())
}

/// All that a watch from `from` on is told, page by page.
fn watched(store: &Store, from: u64, interest: &Interest, page: u64) -> Result<Vec<Event>, Refusal> {
    let (mut told, mut from) = (vec![], from);
    loop {
        let asked = ReadEvents { from, interest: Some(interest.clone()), limit: page };
        let Answer::Events(events) = store.query(&Query::Events(asked))? else { panic!("no events") };
        assert!(events.next > from || !events.more, "it goes on");
        if let (Some(last), Some(first)) = (told.last(), events.events.first()) {
            let (last, first): (&Event, &Event) = (last, first);
            assert!(last.revision < first.revision, "W4: a revision is not split");
        }
        told.extend(events.events);
        from = events.next;
        if !events.more {
            return Ok(told);
        }
    }
}

struct Trial {
    scene: Scene,
    reloaded: Store,
    model: Model,
    /// As it was at each revision.
    past: BTreeMap<u64, Vec<Row>>,
    log: Vec<Arc<Event>>,
    limits: Limits,
}

impl Trial {
    fn new(limits: Limits) -> Trial {
        let scene = Scene::with_limits(limits);
        let reloaded = scene.store.clone();
        Trial { scene, reloaded, model: Model::default(), past: BTreeMap::new(), log: vec![], limits }
    }

    fn ask(&mut self, command: Command) -> bool {
        let (request, mut events) = (Request::of(command), vec![]);
        let wall_ms = 1_700_000_000_000 + self.scene.at.as_nanos() / 1_000_000;
        let stamp = incumbent_store::time::Stamp { at: self.scene.at, wall_ms };
        let twin = self.reloaded.apply(stamp, request.clone(), &mut events);
        let outcome = self.scene.request(request);
        assert_eq!((&outcome, &self.scene.events), (&twin, &events), "the one that was loaded differs");
        self.log.extend(events);
        outcome.is_ok()
    }

    fn step(&mut self, (kind, a, b, c): (u8, u8, u8, u8)) {
        let revision = self.scene.store.revision() + 1;
        let session = 100 + u64::from(a) % 2;
        let mut draft = self.model.clone();
        let expected = match kind {
            0..=5 => {
                let put = a_put(a, b, c);
                (draft.put(&put, revision).is_ok(), self.ask(Command::Put(put)))
            }
            6 | 7 => {
                draft.delete(&span(b, c));
                let delete = Delete { span: Some(span(b, c)), wants_previous: true };
                (true, self.ask(Command::Delete(delete)))
            }
            8..=11 => {
                let transaction = a_transaction(a, b, c, revision);
                (draft.transact(&transaction, revision).is_ok(), self.ask(Command::Transact(transaction)))
            }
            12 => {
                if !draft.sessions.contains(&session) {
                    draft.sessions.push(session);
                }
                let open = OpenSession { session, ttl_ms: 60_000, ..OpenSession::default() };
                (true, self.ask(Command::OpenSession(open)))
            }
            13 => {
                let lives = draft.sessions.contains(&session);
                draft.sessions.retain(|it| *it != session);
                draft.rows.retain(|it| it.5 != session);
                (lives, self.ask(Command::EndSession(EndSession { session, ..EndSession::default() })))
            }
            14 => {
                let compact = Compact { revision: revision.saturating_sub(u64::from(a) * 3) };
                self.ask(Command::Compact(compact));
                (true, true)
            }
            _ => {
                let pieces: Vec<Vec<u8>> = self.reloaded.save().collect();
                self.reloaded = Store::load_with_limits(&pieces, self.limits).expect("just saved");
                (true, true)
            }
        };
        assert_eq!(expected.0, expected.1, "whether it is done");
        if expected.0 {
            self.model = draft;
        }
        let now = self.scene.store.revision();
        // What has no events of its own (a session that was opened) is a revision like any other.
        for revision in revision..now {
            self.past.entry(revision).or_insert_with(|| rows(&self.scene.store, revision).unwrap_or_default());
        }
        self.past.insert(now, self.model.rows.clone());
    }

    fn check(&self) {
        assert_eq!(rows(&self.scene.store, 0), Ok(self.model.rows.clone()));
        for (revision, expected) in self.past.iter().rev().filter(|it| *it.0 > 0).take(12) {
            match rows(&self.scene.store, *revision) {
                Ok(found) => assert_eq!(&found, expected, "as it was at {revision}"),
                Err(why) => assert!(matches!(why, Refusal::Lagged(_) | Refusal::Compacted(_)), "{why:?}"),
            }
        }
    }

    /// W1 to W3 and W7: the events are the history, and nothing but.
    fn check_log(&self) {
        let (mut replayed, mut seen, mut last) = (BTreeMap::<Bytes, Item>::new(), std::collections::BTreeSet::new(), 0);
        for event in &self.log {
            assert!(event.revision >= last, "W1");
            last = event.revision;
            let Some(key) = event.key() else { continue };
            assert!(seen.insert((event.revision, key.clone())), "W2");
            match event.change.as_ref() {
                Some(Change::Put(it)) => {
                    assert_eq!(it.previous.as_ref(), replayed.get(key), "W7");
                    assert_eq!(it.item.created == it.item.modified, it.item.version == 1 || it.item.created == event.revision);
                    replayed.insert(key.clone(), it.item.clone());
                }
                Some(Change::Deleted(it)) => assert_eq!(Some(it.previous.clone()), replayed.remove(key), "W7"),
                other => panic!("{other:?} has a key"),
            }
        }
        let replayed: Vec<Row> = replayed.values().map(row).collect();
        assert_eq!(replayed, self.model.rows, "W3");
    }

    fn check_watches(&self) {
        let mut topics = vec![Interest::EVERYTHING, Interest::of(Topic::Session(100))];
        for b in 0..8 {
            topics.extend((0..8).map(|c| Interest::of(Topic::Keys(span(b, c)))));
        }
        let mut watches = Watches::new();
        for (number, interest) in topics.iter().enumerate() {
            watches.add(0, interest.clone());
            watches.add(number as u64, interest.clone());
        }
        watches.add(1, topics[1].clone());
        watches.remove(9);
        watches.add(0, topics[0].clone());
        for event in &self.log {
            let expected: Vec<u64> =
                (0..topics.len()).filter(|it| *it != 9 && topics[*it].wants(event)).map(|it| it as u64).collect();
            assert_eq!(watches.wanting(event), expected);
        }
        let Ok(Answer::Status(status)) = self.scene.store.query(&Query::Status(Default::default())) else { panic!() };
        for interest in topics.iter().step_by(7) {
            for from in [status.oldest, status.oldest + 2] {
                let expected = self.log.iter().filter(|it| it.revision >= from && interest.wants(it));
                let expected: Vec<Event> = expected.map(|it| Event::clone(it)).collect();
                assert_eq!(watched(&self.scene.store, from, interest, 2), Ok(expected), "W3, W5 from {from}");
            }
            if status.oldest > 1 {
                assert!(watched(&self.scene.store, status.oldest - 1, interest, 2).is_err(), "no hole is passed over");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_does_what_the_model_does(
        steps in prop::collection::vec((0u8..16, 0u8..8, 0u8..8, 0u8..8), 1..80),
        events_max in prop::sample::select(vec![5, 40, 100_000]),
    ) {
        let mut trial = Trial::new(Limits { events_max, ..Limits::STANDARD });
        for step in steps {
            trial.step(step);
            trial.check();
        }
        trial.check_log();
        trial.check_watches();
        prop_assert_eq!(trial.scene.store.digest(), trial.reloaded.digest());
    }
}
