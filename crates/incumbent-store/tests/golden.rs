//! The bytes of version 1 are read for ever, and written as they always were: the files in tests/golden hold us to that.
//!
//! A change that makes this test fail needs a new version of the encoding (`encoding::VERSION`), a new pair of files beside these, and code that reads both. Only before the first
//! release may the files be written anew: `INCUMBENT_REWRITE=golden cargo test -p incumbent-store --test golden`.

mod scene;

use std::fs;
use std::path::PathBuf;

use incumbent_store::command::*;
use incumbent_store::encoding::{Entry, VERSION};
use incumbent_store::keys::item::Span;
use incumbent_store::keys::transaction::*;
use incumbent_store::query::Range;
use incumbent_store::store::Store;
use incumbent_store::time::{Stamp, Time};
use scene::{bid, put};

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// One line of hexadecimal digits for each.
fn to_lines(chunks: &[Vec<u8>]) -> String {
    chunks.iter().map(|it| it.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n").collect()
}

fn from_lines(text: &str) -> Vec<Vec<u8>> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16).expect("digits");
    text.lines().map(|it| it.as_bytes().chunks(2).map(byte).collect()).collect()
}

/// Every command, every field, every kind of record in the snapshot.
fn entries() -> Vec<Entry> {
    let entry = |ms: u64, requests: Vec<Request>| {
        Entry::new(Stamp { at: Time::from_millis(ms), wall_ms: 1_700_000_000_000 + ms }, requests)
    };
    let all = |commands: Vec<Command>| commands.into_iter().map(Request::of).collect::<Vec<_>>();
    let open = |session, ttl_ms| OpenSession {
        session,
        ttl_ms,
        owner: "web-1".into(),
        ends_with_connection: true,
        lock_delay_ms: 30_000,
    };
    let full_bid = Campaign {
        value: "10.0.0.1:80".into(),
        priority: -3,
        seats: 2,
        tenure_ms_min: 5_000,
        seen: 1 << 48 | 9,
        ..bid(101, "jobs/nightly", "web-1_0a1b2c3d_17_0123456789abcdef")
    };
    let wait = |identity: &str, priority| Campaign { priority, ..bid(102, "solo", identity) };
    let full_put = Put {
        session: 101,
        outlives_session: true,
        parent_len: 2,
        sequential: true,
        wants_previous: true,
        ..put("/a/child-", "v")
    };
    let guard = |key: &str, comparison, against| Guard::key(key.to_owned(), comparison, against);
    let guards = vec![
        guard("/a", Comparison::Greater, Against::Version(0)),
        guard("/a", Comparison::NotEqual, Against::Created(1)),
        guard("/a", Comparison::Less, Against::Modified(u64::MAX)),
        guard("/a", Comparison::Equal, Against::Value("root".into())),
        guard("/a", Comparison::Equal, Against::Session(0)),
        guard("/a", Comparison::Equal, Against::Children(1)),
        guard("/a", Comparison::Equal, Against::Undelayed(true)),
        Guard::holds("nowhere", 7),
    ];
    let nested = Transaction {
        then: vec![Act::Put(put("/nested", "n")).into()],
        otherwise: vec![Act::Abort(5).into()],
        ..Transaction::default()
    };
    let read = Range {
        span: Some(Span::prefix("/")),
        limit: 5,
        keys_only: true,
        counts: true,
        count_only: true,
        separator: "/".into(),
        after: "/a".into(),
        revision: 0,
    };
    let transaction = Transaction {
        guards,
        then: vec![Act::Put(put("/never", "")).into()],
        otherwise: vec![
            Act::Transact(nested).into(),
            Act::Read(read).into(),
            Act::Delete(Delete { span: Some(Span::key("/gone")), wants_previous: true }).into(),
            Act::Put(Put { keeps_value: true, keeps_session: true, ..put("/a", "") }).into(),
        ],
    };
    let token = |revision: u64| 2 << 48 | revision;
    let election = || "jobs/nightly".to_owned();
    let wish = Wish { token: token(8), demand: Demand::HandOver as i32, to: "web-2".into(), by: "operator".into() };
    vec![
        entry(0, all(vec![Command::Introduce(Introduce {})])),
        entry(1, all([101, 102, 103, 104].map(|it| Command::OpenSession(open(it, 10_000))).to_vec())),
        entry(2, all(vec![Command::OpenSession(OpenSession { ttl_ms: 100, ..OpenSession::default() })])),
        entry(3, all(vec![Command::Campaign(full_bid.clone()), Command::Campaign(wait("a", 0))])),
        entry(3, all(vec![Command::Campaign(wait("b", 1)), Command::Campaign(wait("c", i32::MIN))])),
        entry(4, vec![Request { answered: 0, ..Request::numbered(1, 1, Command::Campaign(wait("b", 1))) }]),
        entry(5, vec![Request { answered: 1, ..Request::numbered(1, 2, Command::Campaign(wait("gone", 1))) }]),
        entry(6, all(vec![Command::Withdraw(Withdraw { election: "solo".into(), identity: "gone".into() })])),
        entry(7, all(vec![Command::KeepAlive(KeepAlive { sessions: vec![101, 102, 103, 9999] })])),
        entry(8, all(vec![Command::Renew(Renew { election: election(), token: token(8) })])),
        entry(9, all(vec![Command::Proclaim(Proclaim { election: election(), token: token(8), value: "new".into() })])),
        entry(
            10,
            all(vec![Command::Ask(Ask {
                election: election(),
                wish: Some(wish.clone()),
                after_tenure: true,
                as_candidate: false,
                only_in_line: false,
            })]),
        ),
        entry(
            10,
            all(vec![Command::Ask(Ask {
                election: election(),
                wish: Some(wish),
                after_tenure: false,
                as_candidate: false,
                only_in_line: false,
            })]),
        ),
        entry(11, all(vec![Command::Annotate(Annotate { election: election(), token: token(8), text: "fine".into() })])),
        entry(
            12,
            all(vec![Command::Complete(Complete {
                election: election(),
                token: token(8),
                job: "monday".into(),
                outcome: "0".into(),
            })]),
        ),
        entry(13, all(vec![Command::Put(put("/a", "root")), Command::Put(full_put.clone()), Command::Put(full_put)])),
        entry(14, all(vec![Command::Put(Put { session: 103, ..put("/lock", "mine") }), Command::Put(put("/gone", ""))])),
        entry(15, all(vec![Command::Transact(transaction)])),
        entry(16, all(vec![Command::Delete(Delete { span: Some(Span::key("/nested")), wants_previous: false })])),
        entry(
            17,
            all(vec![Command::EndSession(EndSession {
                session: 103,
                reason: "process died".into(),
                unclean: true,
                binding: None,
            })]),
        ),
        entry(18, all(vec![Command::Evict(Evict { election: election(), token: token(8), reason: "stuck".into() })])),
        entry(19, all(vec![Command::Raise(Raise { election: "raised".into(), above: 5 << 48 })])),
        entry(20, all(vec![Command::Campaign(bid(104, "brief", "x"))])),
        entry(
            21,
            all(vec![Command::Resign(Resign { election: "brief".into(), token: 0, reason: "done".into(), to: "y".into() })]),
        ),
        entry(500, all(vec![Command::Expire(Expire { limit: 10 }), Command::Forget(Forget { election: "raised".into() })])),
        entry(501, all(vec![Command::Compact(Compact { revision: 3 })])),
        entry(502, all(vec![Command::Bind(Bind { sessions: vec![101, 104] })])),
        entry(
            503,
            all(vec![Command::EndSession(EndSession {
                session: 101,
                reason: "process died".into(),
                unclean: true,
                binding: Some(0),
            })]),
        ),
    ]
}

fn expected(name: &str, written: &[Vec<u8>]) -> Vec<Vec<u8>> {
    if std::env::var("INCUMBENT_REWRITE").as_deref() == Ok("golden") {
        fs::write(file(name), to_lines(written)).expect("written");
    }
    from_lines(&fs::read_to_string(file(name)).expect("the golden file is there"))
}

fn store_after(entries: Vec<Entry>) -> Store {
    let mut store = Store::new(0);
    for entry in entries {
        store.apply_entry(entry, &mut Vec::new());
    }
    store
}

#[test]
fn entries_are_written_and_read_as_they_always_were() {
    let written: Vec<Vec<u8>> = entries().iter().map(Entry::to_bytes).collect();
    let golden = expected(&format!("version-{VERSION}.entries"), &written);
    assert_eq!(golden, written, "the bytes of this version have changed: it needs a new one");
    let read: Vec<Entry> = golden.iter().map(|it| Entry::from_bytes(it).expect("it is read for ever")).collect();
    assert_eq!(read, entries());
}

#[test]
fn snapshots_are_written_and_read_as_they_always_were() {
    let store = store_after(entries());
    let written: Vec<Vec<u8>> = store.save().collect();
    let golden = expected(&format!("version-{VERSION}.snapshot"), &written);
    assert_eq!(golden, written, "the bytes of this version have changed, or what commands do: it needs a new one");
    let loaded = Store::load(&golden).expect("it is read for ever");
    assert_eq!(loaded.digest(), store.digest());
}

#[test]
fn the_example_says_something() {
    let store = store_after(entries());
    let text = format!("{store:?}");
    for part in ["monday", "fine", "stuck", "process died", "/a/child-0000000001", "web-2", "reservations: [Reservation"] {
        assert!(text.contains(part), "{part} is not in the example");
    }
}
