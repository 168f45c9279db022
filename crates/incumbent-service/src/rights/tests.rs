//! Every operation there is, with every right and without it; and that no prefix lets anybody further than it says.

use std::collections::BTreeSet;

use incumbent_store::command::*;
use incumbent_store::event::{Change, Elected, Event, KeyPut, SessionEnded};
use incumbent_store::keys::item::{Item, Span};
use incumbent_store::keys::transaction::*;
use incumbent_store::query::*;
use incumbent_store::watch::{CandidateTopic, Interest, Topic};
use proptest::prelude::*;

use super::needs::{self, Need, Scope};
use super::*;

/// The names of all variants, and of one. Does not compile if one is missing; and what stands here must have its examples.
macro_rules! variants {
    ($all:ident, $name:ident, $enum:ident: $($variant:ident $(($field:tt))?),* $(,)?) => {
        const $all: &[&str] = &[$(stringify!($variant)),*];
        fn $name(it: &$enum) -> &'static str {
            match it { $($enum::$variant $(($field))? => stringify!($variant)),* }
        }
    };
}

variants!(COMMANDS, command_name, Command:
    Introduce(_), OpenSession(_), KeepAlive(_), EndSession(_), Bind(_), Expire(_), Campaign(_), Renew(_), Proclaim(_), Resign(_), Withdraw(_), Ask(_), Evict(_), Annotate(_),
    Complete(_), Raise(_), Forget(_), Put(_), Delete(_), Transact(_), Compact(_));
variants!(QUERIES, query_name, Query: Status(_), Look(_), Elections(_), Inquire(_), Session(_), Sessions(_), Range(_), Events(_));
variants!(TOPICS, topic_name, Topic: Keys(_), Election(_), ElectionsUnder(_), Candidate(_), Session(_));
variants!(ERRANDS, errand_name, Errand: Status, Members, Transfer, Snapshot, Backup);
variants!(GUARDS, guard_name, Against: Version(_), Created(_), Modified(_), Value(_), Session(_), Children(_), Holds(_), Undelayed(_));
variants!(ACTS, act_name, Act: Put(_), Delete(_), Read(_), Transact(_), Abort(_));

/// Any operation.
#[derive(Clone, PartialEq, Debug)]
enum Operand {
    Submit(Command),
    Ask(Query),
    Watch(Interest),
    Administer(Errand),
}

impl Operand {
    fn needs(&self) -> Vec<String> {
        let mut needs = Vec::new();
        let mut note = |need: Need<'_>| {
            needs.push(match need {
                Need::Token => "token".to_owned(),
                Need::Nobody(_) => "nobody".to_owned(),
                Need::Right(right, scope) => format!("{right} {scope}"),
                Need::Some(rights, _) => rights.iter().map(|it| it.name()).collect::<Vec<_>>().join(" or "),
            });
            Ok(())
        };
        self.walk(&mut note).expect("nobody objects");
        needs
    }

    fn walk(&self, check: needs::Check<'_>) -> Result<(), Denied> {
        match self {
            Operand::Submit(it) => needs::of_command(it, check),
            Operand::Ask(it) => needs::of_query(it, check),
            Operand::Watch(it) => needs::of_interest(it, check),
            Operand::Administer(it) => needs::of_errand(*it, check),
        }
    }

    fn is_open_to(&self, guest: &Guest) -> Result<(), Denied> {
        match self {
            Operand::Submit(it) => {
                let signed = guest.sign(Request::of(it.clone())).map(drop);
                assert_eq!(signed, guest.may_submit(it));
                signed
            }
            Operand::Ask(it) => guest.may_ask(it),
            Operand::Watch(it) => guest.may_watch(it),
            Operand::Administer(it) => guest.may_administer(*it),
        }
    }

    /// The rights that it needs, each where it needs it.
    fn grants(&self) -> Vec<(Right, Vec<u8>)> {
        let mut grants = Vec::new();
        let mut note = |need: Need<'_>| {
            if let Need::Right(right, scope) = need {
                let prefix = match scope {
                    Scope::Name(name) | Scope::Under(name) => name.to_vec(),
                    Scope::Keys(span) => span.start.to_vec(),
                    Scope::Everything => Vec::new(),
                };
                grants.push((right, prefix));
            }
            Ok(())
        };
        self.walk(&mut note).expect("nobody objects");
        grants
    }
}

fn guest(grants: &[(Right, Vec<u8>)]) -> Guest {
    Guest::named("g", grants.iter().map(|(right, prefix)| Grant::new(*right, prefix.clone())).collect())
}

fn put(key: &str) -> Put {
    Put { key: key.to_owned().into(), ..Put::default() }
}

fn delete(prefix: &str) -> Delete {
    Delete { span: Some(Span::prefix(prefix.to_owned())), wants_previous: false }
}

fn range(prefix: &str) -> Range {
    Range { span: Some(Span::prefix(prefix.to_owned())), ..Range::default() }
}

fn transact(guards: Vec<Guard>, then: Vec<Act>, otherwise: Vec<Act>) -> Transaction {
    let operations = |acts: Vec<Act>| acts.into_iter().map(Operation::from).collect();
    Transaction { guards, then: operations(then), otherwise: operations(otherwise) }
}

fn asked(demand: Demand, after_tenure: bool) -> Command {
    let wish = Wish { token: 1, demand: demand.into(), ..Wish::default() };
    Command::Ask(Ask { election: "e".into(), wish: Some(wish), after_tenure, as_candidate: false, only_in_line: false })
}

/// Every operation, and what it needs.
fn table() -> Vec<(Operand, &'static [&'static str])> {
    let e = || "e".to_owned();
    let of = Interest::of;
    let candidate = CandidateTopic { election: e(), identity: "i".into() };
    let against = [
        Against::Version(0),
        Against::Created(0),
        Against::Modified(0),
        Against::Value("v".into()),
        Against::Session(0),
        Against::Children(0),
        Against::Undelayed(true),
    ];
    let mut guards: Vec<Guard> = against.map(|it| Guard::key("k", Comparison::Equal, it)).into();
    guards.push(Guard::holds("e", 1));
    let acts = vec![
        Act::Put(put("p")),
        Act::Delete(delete("d/")),
        Act::Read(range("r/")),
        Act::Transact(transact(vec![Guard::exists("g")], vec![Act::Put(put("n"))], vec![Act::Delete(delete("m/"))])),
        Act::Abort(1),
    ];
    let covers = |it: &[&str], all: &[&str]| it.iter().copied().collect::<BTreeSet<_>>() == all.iter().copied().collect();
    assert!(covers(&guards.iter().flat_map(|it| &it.against).map(guard_name).collect::<Vec<_>>(), GUARDS));
    assert!(covers(&acts.iter().map(act_name).collect::<Vec<_>>(), ACTS));
    let commands: Vec<(Command, &'static [&'static str])> = vec![
        (Command::Introduce(Introduce {}), &["campaign or evict or write"]),
        (Command::OpenSession(OpenSession::default()), &["campaign or write"]),
        (Command::KeepAlive(KeepAlive::default()), &["campaign or write"]),
        (Command::Bind(Bind::default()), &["campaign or write"]),
        (Command::EndSession(EndSession::default()), &["campaign or write"]),
        (Command::Expire(Expire::default()), &["nobody"]),
        (Command::Campaign(Campaign { election: e(), ..Campaign::default() }), &["campaign in the election \"e\""]),
        (Command::Renew(Renew { election: e(), token: 1 }), &["campaign in the election \"e\""]),
        (Command::Proclaim(Proclaim { election: e(), ..Proclaim::default() }), &["campaign in the election \"e\""]),
        (Command::Resign(Resign { election: e(), ..Resign::default() }), &["campaign in the election \"e\""]),
        (Command::Withdraw(Withdraw { election: e(), identity: e() }), &["campaign in the election \"e\""]),
        (Command::Annotate(Annotate { election: e(), ..Annotate::default() }), &["campaign in the election \"e\""]),
        (Command::Complete(Complete { election: e(), ..Complete::default() }), &["campaign in the election \"e\""]),
        (asked(Demand::Resign, false), &["evict in the election \"e\""]),
        (asked(Demand::Resign, true), &["evict in the election \"e\""]),
        (asked(Demand::Evict, false), &["evict in the election \"e\""]),
        (asked(Demand::Evict, true), &["evict in the election \"e\""]),
        (asked(Demand::HandOver, false), &["evict in the election \"e\""]),
        (asked(Demand::HandOver, true), &["campaign in the election \"e\""]),
        (
            Command::Ask(Ask { election: e(), wish: None, after_tenure: true, as_candidate: false, only_in_line: false }),
            &["evict in the election \"e\""],
        ),
        (Command::Evict(Evict { election: e(), ..Evict::default() }), &["evict in the election \"e\""]),
        (Command::Raise(Raise { election: e(), above: 1 }), &["admin in the election \"e\""]),
        (Command::Raise(Raise { election: String::new(), above: 1 }), &["admin everything"]),
        (Command::Forget(Forget { election: e() }), &["admin in the election \"e\""]),
        (Command::Put(put("k")), &["write the key \"k\""]),
        (
            Command::Put(Put { sequential: true, parent_len: 2, ..put("a/k-") }),
            &["write the key \"a/k-\"", "write the key \"a/\""],
        ),
        (Command::Put(Put { parent_len: 9, ..put("k") }), &["write the key \"k\"", "write the key \"k\""]),
        (Command::Put(Put { wants_previous: true, ..put("k") }), &["write the key \"k\"", "read the key \"k\""]),
        (Command::Delete(delete("d/")), &["write the keys from \"d/\" to \"d0\""]),
        (
            Command::Delete(Delete { wants_previous: true, ..delete("d/") }),
            &["write the keys from \"d/\" to \"d0\"", "read the keys from \"d/\" to \"d0\""],
        ),
        (
            Command::Transact(transact(guards, acts, vec![Act::Put(put("o"))])),
            &[
                "read the key \"k\"",
                "read the key \"k\"",
                "read the key \"k\"",
                "read the key \"k\"",
                "read the key \"k\"",
                "read the key \"k\"",
                "read the key \"k\"",
                "observe in the election \"e\"",
                "write the key \"p\"",
                "write the keys from \"d/\" to \"d0\"",
                "read the keys from \"r/\" to \"r0\"",
                "read the key \"g\"",
                "write the key \"n\"",
                "write the keys from \"m/\" to \"m0\"",
                "token",
                "write the key \"o\"",
            ],
        ),
        (Command::Transact(Transaction::default()), &["campaign or evict or write"]),
        (Command::Transact(transact(vec![], vec![Act::Abort(1)], vec![])), &["token", "campaign or evict or write"]),
        (Command::Compact(Compact { revision: 1 }), &["admin everything"]),
    ];
    let queries: Vec<(Query, &'static [&'static str])> = vec![
        (Query::Status(AskStatus {}), &["observe everything"]),
        (Query::Look(e()), &["observe in the election \"e\""]),
        (Query::Elections(ListElections { prefix: e(), ..ListElections::default() }), &["observe in the elections under \"e\""]),
        (Query::Inquire(Inquire { election: e(), identity: e() }), &["observe in the election \"e\""]),
        (Query::Session(1), &["admin everything"]),
        (Query::Sessions(ListSessions::default()), &["admin everything"]),
        (Query::Range(range("r/")), &["read the keys from \"r/\" to \"r0\""]),
        (Query::Events(ReadEvents::default()), &["admin everything"]),
        (
            Query::Events(ReadEvents { interest: Some(of(Topic::Election(e()))), ..ReadEvents::default() }),
            &["observe in the election \"e\""],
        ),
    ];
    let topics: Vec<(Topic, &'static [&'static str])> = vec![
        (Topic::Keys(Span::key("k")), &["read the key \"k\""]),
        (Topic::Election(e()), &["observe in the election \"e\""]),
        (Topic::ElectionsUnder(e()), &["observe in the elections under \"e\""]),
        (Topic::Candidate(candidate), &["observe in the election \"e\""]),
        (Topic::Session(1), &["admin everything"]),
    ];
    let errands: [(Errand, &'static [&'static str]); 5] = [
        (Errand::Status, &["observe everything"]),
        (Errand::Members, &["admin everything"]),
        (Errand::Transfer, &["admin everything"]),
        (Errand::Snapshot, &["admin everything"]),
        (Errand::Backup, &["admin everything"]),
    ];
    assert!(covers(&commands.iter().map(|it| command_name(&it.0)).collect::<Vec<_>>(), COMMANDS));
    assert!(covers(&queries.iter().map(|it| query_name(&it.0)).collect::<Vec<_>>(), QUERIES));
    assert!(covers(&topics.iter().map(|it| topic_name(&it.0)).collect::<Vec<_>>(), TOPICS));
    assert!(covers(&errands.iter().map(|it| errand_name(&it.0)).collect::<Vec<_>>(), ERRANDS));
    let commands = commands.into_iter().map(|(it, needs)| (Operand::Submit(it), needs));
    let queries = queries.into_iter().map(|(it, needs)| (Operand::Ask(it), needs));
    let topics = topics.into_iter().map(|(it, needs)| (Operand::Watch(of(it)), needs));
    let errands = errands.into_iter().map(|(it, needs)| (Operand::Administer(it), needs));
    let everything: &'static [&'static str] = &["admin everything"];
    commands.chain(queries).chain(topics).chain(errands).chain([(Operand::Watch(Interest::EVERYTHING), everything)]).collect()
}

#[test]
fn every_operation_needs_what_the_table_says() {
    for (operand, needs) in table() {
        assert_eq!(operand.needs(), needs, "{operand:?}");
    }
}

#[test]
fn with_what_it_needs_it_is_allowed_and_without_any_part_of_that_denied() {
    for (operand, needs) in table() {
        let grants = operand.grants();
        if needs.contains(&"nobody") {
            assert!(operand.is_open_to(&guest(&[(Right::Admin, vec![])])).is_err());
            assert!(operand.is_open_to(&Guest::anybody()).is_err());
            continue;
        }
        if let Some(rights) = needs.iter().find(|it| it.contains(" or ")) {
            assert!(operand.is_open_to(&guest(&[])).is_err() && operand.is_open_to(&Guest::anybody()).is_ok());
            for right in Right::ALL {
                let enough = right == Right::Admin || rights.split(" or ").any(|it| it == right.name());
                assert_eq!(operand.is_open_to(&guest(&[(right, b"x".to_vec())])).is_ok(), enough, "{operand:?}: {right}");
            }
            continue;
        }
        assert_eq!(operand.is_open_to(&guest(&grants)), Ok(()), "{operand:?}");
        let admin: Vec<_> = grants.iter().map(|(_, prefix)| (Right::Admin, prefix.clone())).collect();
        assert_eq!(operand.is_open_to(&guest(&admin)), Ok(()), "{operand:?}");
        assert_eq!(operand.is_open_to(&guest(&[(Right::Admin, vec![])])), Ok(()), "{operand:?}");
        assert_eq!(operand.is_open_to(&Guest::anybody()), Ok(()), "{operand:?}");
        for needed in &grants {
            let others: Vec<_> = grants.iter().filter(|it| it != &needed).cloned().collect();
            // A parent's prefix is a child's, too.
            if others.iter().any(|it| it.0 == needed.0 && needed.1.starts_with(&it.1)) {
                continue;
            }
            // What is left, and the same right everywhere but there: one byte longer, or beside it.
            for instead in [None, Some([&needed.1[..], b"x"].concat()), Some(b"zz".to_vec())] {
                let instead = instead.map(|prefix| (Right::Admin, prefix));
                let lacking: Vec<_> = others.iter().cloned().chain(instead).collect();
                let denied = operand.is_open_to(&guest(&lacking));
                assert!(
                    matches!(denied, Err(Denied::Missing { .. })),
                    "{operand:?} without {needed:?}, but {lacking:?}: {denied:?}"
                );
            }
            // In its place, any other right there.
            for right in Right::ALL {
                let other: Vec<_> = others.iter().cloned().chain([(right, needed.1.clone())]).collect();
                let enough = match (right, needed.0) {
                    (Right::Admin, _) | (Right::Campaign | Right::Evict, Right::Observe) => true,
                    (right, needed) => right == needed,
                };
                assert_eq!(operand.is_open_to(&guest(&other)).is_ok(), enough, "{operand:?}: {right} for {needed:?}");
            }
        }
        let nothing = operand.is_open_to(&guest(&[]));
        assert_eq!(nothing.is_ok(), grants.is_empty(), "{operand:?}");
    }
}

/// All commands go into the log, which every node writes: also what changes nothing, or names sessions that nobody has.
#[test]
fn who_may_change_nothing_has_nothing_written_into_the_log() {
    let reads = transact(vec![Guard::exists("k"), Guard::holds("e", 1)], vec![Act::Read(range("k"))], vec![]);
    let nested = transact(vec![], vec![Act::Transact(reads.clone())], vec![]);
    let reader = [(Right::Observe, vec![]), (Right::Read, vec![])];
    let commands = [
        Command::KeepAlive(KeepAlive { sessions: (1..100_000).collect() }),
        Command::Bind(Bind::default()),
        Command::EndSession(EndSession::default()),
        Command::Transact(reads),
        Command::Transact(nested),
        Command::Transact(Transaction::default()),
    ];
    for command in commands {
        let denied = guest(&reader).may_submit(&command);
        assert!(matches!(denied, Err(Denied::Useless { .. })), "{command:?}: {denied:?}");
        for right in [Right::Campaign, Right::Write] {
            let writer = guest(&[&reader[..], &[(right, b"x".to_vec())]].concat());
            assert_eq!(writer.may_submit(&command), Ok(()), "{command:?} with {right}");
        }
    }
}

#[test]
fn what_this_version_does_not_know_is_denied_to_everybody() {
    let unknown = transact(vec![], vec![], vec![]);
    let no_act = Transaction { otherwise: vec![Operation { act: None }], ..unknown.clone() };
    let no_guard = Transaction { guards: vec![Guard::default()], ..unknown };
    let no_span = Guard { span: None, ..Guard::exists("k") };
    let commands = [
        Command::Transact(transact(vec![], vec![Act::Transact(no_act.clone())], vec![])),
        Command::Transact(no_act),
        Command::Transact(no_guard),
        Command::Transact(transact(vec![no_span], vec![], vec![])),
        Command::Delete(Delete::default()),
    ];
    for command in commands {
        assert!(Guest::anybody().may_submit(&command).is_err(), "{command:?}");
    }
    assert!(Guest::anybody().may_ask(&Query::Range(Range::default())).is_err());
}

#[test]
fn the_services_own_is_read_by_who_has_everything_and_written_by_nobody() {
    let own = |text: &str| format!("\0{text}");
    let all_rights: Vec<_> = Right::ALL.iter().filter(|it| **it != Right::Admin).map(|it| (*it, vec![])).collect();
    let with_everything_else = guest(&all_rights);
    let admins = [guest(&[(Right::Admin, vec![])]), Guest::anybody()];
    let after = Span { start: [0xff].to_vec().into(), end: [0].to_vec().into() };
    let reads = [
        Operand::Ask(Query::Range(Range { span: Some(Span::key(own("k"))), ..Range::default() })),
        Operand::Ask(Query::Range(Range { span: Some(Span::all()), ..Range::default() })),
        Operand::Ask(Query::Range(Range { span: Some(Span { start: "".into(), end: "a".into() }), ..Range::default() })),
        Operand::Ask(Query::Look(own("e"))),
        Operand::Ask(Query::Elections(ListElections { prefix: own(""), ..ListElections::default() })),
        Operand::Watch(Interest::of(Topic::Keys(Span::prefix(own(""))))),
        Operand::Watch(Interest::of(Topic::Keys(Span::all()))),
        Operand::Submit(Command::Transact(transact(vec![Guard::exists(own("k"))], vec![], vec![]))),
    ];
    for read in &reads {
        assert_eq!(read.is_open_to(&with_everything_else), Err(Denied::Reserved), "{read:?}");
        for admin in &admins {
            assert_eq!(read.is_open_to(admin), Ok(()), "{read:?}");
        }
    }
    let everything = Delete { span: Some(Span::all()), wants_previous: false };
    let writes = [
        Command::Put(put(&own("k"))),
        Command::Put(Put { parent_len: 1, ..put(&own("k")) }),
        Command::Delete(delete(&own(""))),
        Command::Delete(everything.clone()),
        Command::Transact(transact(vec![], vec![], vec![Act::Delete(everything)])),
        Command::Transact(transact(
            vec![],
            vec![],
            vec![Act::Transact(transact(vec![], vec![Act::Put(put(&own("k")))], vec![]))],
        )),
        Command::Campaign(Campaign { election: own("e"), ..Campaign::default() }),
        Command::Evict(Evict { election: own("e"), ..Evict::default() }),
    ];
    for write in writes {
        for guest in admins.iter().chain([&with_everything_else]) {
            assert_eq!(guest.may_submit(&write), Err(Denied::Reserved), "{guest:?}: {write:?}");
        }
    }
    // Behind them there is nothing to keep.
    let behind =
        Command::Delete(Delete { span: Some(Span { start: "\u{1}".into(), end: [0].to_vec().into() }), wants_previous: true });
    assert_eq!(with_everything_else.may_submit(&behind), Ok(()));
    assert_eq!(with_everything_else.may_ask(&Query::Range(Range { span: Some(after), ..Range::default() })), Ok(()));
    assert_eq!(with_everything_else.may_ask(&Query::Elections(ListElections::default())), Ok(()), "it has no elections");
}

#[test]
fn who_may_not_evict_asks_as_a_candidate_whatever_came_with_it() {
    for (grants, expected) in [
        (vec![(Right::Campaign, b"e".to_vec())], true),
        (vec![(Right::Campaign, vec![]), (Right::Evict, b"other".to_vec())], true),
        (vec![(Right::Campaign, vec![]), (Right::Evict, b"e".to_vec())], false),
        (vec![(Right::Admin, vec![])], false),
    ] {
        for written in [true, false] {
            let Command::Ask(mut ask) = asked(Demand::HandOver, true) else { panic!("a wish") };
            (ask.as_candidate, ask.only_in_line) = (written, written);
            let signed = guest(&grants).sign(Request::of(Command::Ask(ask))).expect("allowed");
            let Some(Command::Ask(ask)) = signed.command else { panic!("a wish") };
            assert_eq!(ask.as_candidate, expected, "{grants:?}");
            assert!(ask.only_in_line, "nobody deposes a leader in favour of nobody: {grants:?}");
        }
    }
}

#[test]
fn a_guests_session_is_forgotten_within_a_day() {
    let open = |ttl_ms| Command::OpenSession(OpenSession { ttl_ms, ..OpenSession::default() });
    let candidate = guest(&[(Right::Campaign, vec![])]);
    assert_eq!(candidate.may_submit(&open(SESSION_TTL_MS_MAX)), Ok(()));
    assert_eq!(candidate.may_submit(&open(SESSION_TTL_MS_MAX + 1)), Err(Denied::Lasting(SESSION_TTL_MS_MAX)));
    for admin in [guest(&[(Right::Admin, vec![])]), Guest::anybody()] {
        assert_eq!(admin.may_submit(&open(SESSION_TTL_MS_MAX + 1)), Ok(()));
    }
}

#[test]
fn a_request_is_signed_with_the_guests_name_whatever_came_with_it() {
    let keep = || Request { guest: "somebody else".into(), ..Request::numbered(3, 4, Command::KeepAlive(KeepAlive::default())) };
    let open = || Request::of(Command::OpenSession(OpenSession::default()));
    let signed = |guest: &Guest, request: Request| guest.sign(request).expect("allowed").guest;
    let plain = guest(&[(Right::Campaign, b"a".to_vec())]);
    assert_eq!((signed(&plain, keep()), signed(&plain, open())), ("g".to_owned(), "g".to_owned()));
    let partly = guest(&[(Right::Admin, b"a".to_vec())]);
    assert_eq!(signed(&partly, keep()), "g", "an admin of a part is no admin of sessions");
    let admin = guest(&[(Right::Admin, vec![])]);
    assert_eq!((signed(&admin, keep()), signed(&admin, open())), (String::new(), "g".to_owned()));
    assert_eq!((signed(&Guest::anybody(), keep()), signed(&Guest::anybody(), open())), (String::new(), String::new()));
    assert_eq!(signed(&plain, Request { guest: "x".into(), ..Request::default() }), "g", "and what nobody knows, too");
}

#[test]
fn what_is_said_of_a_denial_is_short_and_harmless() {
    let name = format!("\u{1b}[2J{}", "n".repeat(5000));
    let denied = guest(&[]).may_ask(&Query::Look(name)).expect_err("denied").to_string();
    assert!(denied.len() < 300 && !denied.contains('\u{1b}') && denied.contains("observe:PREFIX"), "{denied}");
}

/// Few letters, so that they meet; the first and the last of all bytes among them.
fn word() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', b'a', b'b', 0xff]), 0..4)
}

fn name() -> impl Strategy<Value = String> {
    "[a-c]{0,3}"
}

fn any_right() -> impl Strategy<Value = Right> {
    prop::sample::select([&Right::ALL[..], &[Right::Read, Right::Read, Right::Observe]].concat())
}

fn any_grants() -> impl Strategy<Value = Vec<(Right, Vec<u8>)>> {
    let prefix = prop_oneof![word(), "[a-c]{0,2}".prop_map(String::into_bytes)];
    prop::collection::vec((any_right(), prefix), 0..3)
}

fn any_interest() -> impl Strategy<Value = Interest> {
    let span = (word(), word()).prop_map(|(start, end)| Span { start: start.into(), end: end.into() });
    let candidate = (name(), name()).prop_map(|(election, identity)| CandidateTopic { election, identity });
    prop_oneof![
        1 => Just(Interest::EVERYTHING),
        6 => span.prop_map(|it| Interest::of(Topic::Keys(it))),
        2 => word().prop_map(|it| Interest::of(Topic::Keys(Span::prefix(it)))),
        2 => name().prop_map(|it| Interest::of(Topic::Election(it))),
        2 => name().prop_map(|it| Interest::of(Topic::ElectionsUnder(it))),
        2 => candidate.prop_map(|it| Interest::of(Topic::Candidate(it))),
        1 => (0u64..3).prop_map(|it| Interest::of(Topic::Session(it))),
    ]
}

/// One of everything that can happen, to every short name there is.
fn all_events() -> Vec<Event> {
    let letters = [0u8, 1, b'a', b'b', b'c', 0xff];
    let mut names: Vec<Vec<u8>> = vec![vec![]];
    for len in 0..2 {
        let longer = names.iter().filter(|it| it.len() == len).flat_map(|it| letters.map(|letter| [&it[..], &[letter]].concat()));
        let longer: Vec<_> = longer.collect();
        names.extend(longer);
    }
    let mut changes = vec![Change::SessionEnded(SessionEnded { session: 1, reason: String::new() })];
    for name in names {
        // The service has no elections of its own, and nobody can begin one in its name.
        if let Ok(election) = String::from_utf8(name.clone())
            && name.first() != Some(&RESERVED)
        {
            changes.push(Change::Elected(Box::new(Elected { election, ..Elected::default() })));
        }
        changes.push(Change::Put(Box::new(KeyPut { item: Item { key: name.into(), ..Item::default() }, previous: None })));
    }
    changes.into_iter().map(|change| Event { revision: 1, change: Some(change) }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// C92: what a watch tells, its guest could have read one by one.
    #[test]
    fn no_interest_reaches_beyond_what_may_be_read(grants in any_grants(), interest in any_interest()) {
        let guest = guest(&grants);
        if guest.may_watch(&interest).is_ok() {
            for event in all_events().iter().filter(|it| interest.wants(it)) {
                let read = match (event.key(), event.election()) {
                    (Some(key), _) => Query::Range(Range { span: Some(Span::key(key.clone())), ..Range::default() }),
                    (None, Some(election)) => Query::Look(election.to_owned()),
                    (None, None) => Query::Session(1),
                };
                prop_assert_eq!(guest.may_ask(&read), Ok(()), "{:?}", event);
            }
        }
    }

    /// A span is allowed exactly if each of its keys is, as far as there are any.
    #[test]
    fn a_span_is_allowed_if_all_of_it_lies_within_a_prefix(prefix in word(), start in word(), end in word(), key in word()) {
        // There are no others in a file of tokens.
        let prefix = if prefix.first() == Some(&RESERVED) { [b"a", &prefix[..]].concat() } else { prefix };
        let guest = guest(&[(Right::Read, prefix.clone())]);
        let span = Span { start: start.clone().into(), end: end.clone().into() };
        let allowed = guest.may_ask(&Query::Range(Range { span: Some(span.clone()), ..Range::default() })).is_ok();
        if allowed && span.contains(&key) {
            prop_assert!(key.starts_with(&prefix) && key.first() != Some(&RESERVED));
        }
        // The last key of a span, if it has a last one that can be told: its end is the first that is not within.
        let whole = Span::prefix(prefix.clone());
        let inside = whole.contains(&start) && start.first() != Some(&RESERVED) && !start.is_empty();
        let ends_inside = span.is_one() || whole.is_open() || (!span.is_open() && end[..] <= whole.end[..]);
        if inside && ends_inside {
            prop_assert!(allowed, "{:?} under {:?}", span, prefix);
        }
    }

    #[test]
    fn a_name_is_allowed_if_it_begins_with_the_prefix_byte_by_byte(prefix in name(), election in name()) {
        let guest = guest(&[(Right::Observe, prefix.clone().into_bytes())]);
        let begins = election.starts_with(&prefix);
        prop_assert_eq!(guest.may_ask(&Query::Look(election.clone())).is_ok(), begins);
        prop_assert_eq!(guest.may_watch(&Interest::of(Topic::ElectionsUnder(election.clone()))).is_ok(), begins);
        prop_assert_eq!(guest.may_ask(&Query::Elections(ListElections { prefix: election, ..ListElections::default() })).is_ok(), begins);
    }

    #[test]
    fn without_a_grant_nothing_is_seen_or_touched(interest in any_interest(), key in word(), election in name()) {
        let nobody = guest(&[]);
        prop_assert!(nobody.may_watch(&interest).is_err());
        let events = Query::Events(ReadEvents { interest: Some(interest), ..ReadEvents::default() });
        let put = Command::Put(Put { key: key.into(), ..Put::default() });
        let campaign = Command::Campaign(Campaign { election, ..Campaign::default() });
        prop_assert!(nobody.may_ask(&events).is_err());
        prop_assert!(nobody.may_submit(&put).is_err());
        prop_assert!(nobody.may_submit(&campaign).is_err());
    }
}
