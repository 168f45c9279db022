//! No input may panic the store or break what it promises: whatever a client, a damaged wire or an older or newer version brings.

mod scene;

use incumbent_store::command::*;
use incumbent_store::encoding::{Damaged, Entry};
use incumbent_store::event::Event;
use incumbent_store::keys::item::Span;
use incumbent_store::keys::transaction::*;
use incumbent_store::limits::Limits;
use incumbent_store::query::*;
use incumbent_store::refusal::Refusal;
use incumbent_store::store::Store;
use incumbent_store::time::{Stamp, Time};
use incumbent_store::watch::{CandidateTopic, Interest, Topic, Watches};
use incumbent_store::{Bytes, Message};
use proptest::prelude::*;
use scene::{bid, put};

/// Small, great, and everything on the edge.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0u64..12,
        1 => prop::sample::select(vec![u64::MAX, u64::MAX - 1, 1 << 48, (1 << 48) - 1, i64::MAX as u64, 1 << 63, 100, 1000]),
        1 => any::<u64>(),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => prop::sample::select(vec!["a", "b", "c", "e", "e.f", "x_1"]).prop_map(str::to_owned),
        1 => Just(String::new()),
        1 => ".{0,8}",
        1 => (0usize..6000).prop_map(|it| "y".repeat(it)),
    ]
}

fn bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![text().prop_map(Bytes::from), prop::collection::vec(any::<u8>(), 0..6).prop_map(Bytes::from)]
}

fn span() -> impl Strategy<Value = Option<Span>> {
    prop::option::weighted(0.9, (bytes(), bytes()).prop_map(|(start, end)| Span { start, end }))
}

fn any_put() -> impl Strategy<Value = Put> {
    (bytes(), bytes(), number(), any::<[bool; 5]>(), prop_oneof![Just(0u32), 0u32..5, any::<u32>()]).prop_map(
        |(key, value, session, flags, parent_len)| Put {
            key,
            value,
            session,
            parent_len,
            outlives_session: flags[0],
            sequential: flags[1],
            keeps_value: flags[2],
            keeps_session: flags[3],
            wants_previous: flags[4],
        },
    )
}

fn any_range() -> impl Strategy<Value = Range> {
    let separator = prop_oneof![3 => Just(Bytes::new()), 1 => bytes()];
    (span(), number(), number(), any::<[bool; 3]>(), separator, bytes()).prop_map(
        |(span, limit, revision, flags, separator, after)| Range {
            span,
            limit,
            revision,
            keys_only: flags[0],
            counts: flags[1],
            count_only: flags[2],
            separator,
            after,
        },
    )
}

fn any_guard() -> impl Strategy<Value = Guard> {
    let against = prop_oneof![
        number().prop_map(Against::Version),
        number().prop_map(Against::Created),
        number().prop_map(Against::Modified),
        bytes().prop_map(Against::Value),
        number().prop_map(Against::Session),
        number().prop_map(Against::Children),
        any::<bool>().prop_map(Against::Undelayed),
        (text(), number()).prop_map(|(election, token)| Against::Holds(Holds { election, token })),
    ];
    (span(), -1i32..6, prop::option::weighted(0.9, against)).prop_map(|(span, comparison, against)| Guard {
        span,
        comparison,
        against,
    })
}

fn any_transaction() -> impl Strategy<Value = Transaction> {
    let leaf = prop_oneof![
        any_put().prop_map(Act::Put),
        (span(), any::<bool>()).prop_map(|(span, wants_previous)| Act::Delete(Delete { span, wants_previous })),
        any_range().prop_map(|it| Act::Read(Range { revision: it.revision % 2, ..it })),
        number().prop_map(Act::Abort),
    ];
    let act = leaf.prop_recursive(4, 24, 4, |inner| {
        let operations = prop::collection::vec(inner.prop_map(Operation::from), 0..4);
        (prop::collection::vec(any_guard(), 0..2), operations.clone(), operations)
            .prop_map(|(guards, then, otherwise)| Act::Transact(Transaction { guards, then, otherwise }))
    });
    prop::collection::vec(act.prop_map(Operation::from), 0..4).prop_map(|then| Transaction {
        guards: vec![],
        then,
        otherwise: vec![],
    })
}

fn election_command() -> impl Strategy<Value = Command> {
    let wish = (number(), -1i32..5, text(), text()).prop_map(|(token, demand, to, by)| Wish { token, demand, to, by });
    prop_oneof![
        4 => (number(), text(), text(), text(), bytes(), any::<i32>(), (0u32..3, number(), number(), any::<bool>())).prop_map(
            |(session, election, identity, name, value, priority, (seats, tenure_ms_min, seen, only_if_free))| {
                let seen = if seen % 3 == 0 { seen } else { 0 };
                Command::Campaign(Campaign { session, election, identity, name, value, priority, seats, tenure_ms_min, seen, only_if_free })
            }
        ),
        1 => (text(), number()).prop_map(|(election, token)| Command::Renew(Renew { election, token })),
        1 => (text(), number(), bytes()).prop_map(|(election, token, value)| Command::Proclaim(Proclaim { election, token, value })),
        2 => (text(), number(), text(), text())
            .prop_map(|(election, token, reason, to)| Command::Resign(Resign { election, token, reason, to })),
        1 => (text(), text()).prop_map(|(election, identity)| Command::Withdraw(Withdraw { election, identity })),
        1 => (text(), prop::option::of(wish), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
            |(election, wish, after_tenure, as_candidate, only_in_line)| {
                Command::Ask(Ask { election, wish, after_tenure, as_candidate, only_in_line })
            }
        ),
        1 => (text(), number(), text()).prop_map(|(election, token, reason)| Command::Evict(Evict { election, token, reason })),
        1 => (text(), number(), text()).prop_map(|(election, token, text)| Command::Annotate(Annotate { election, token, text })),
        1 => (text(), number(), text(), text())
            .prop_map(|(election, token, job, outcome)| Command::Complete(Complete { election, token, job, outcome })),
        1 => (text(), number()).prop_map(|(election, above)| Command::Raise(Raise { election, above })),
        1 => text().prop_map(|election| Command::Forget(Forget { election })),
    ]
}

fn any_command() -> impl Strategy<Value = Command> {
    prop_oneof![
        1 => Just(Command::Introduce(Introduce {})),
        3 => (number(), number(), text(), any::<bool>(), number()).prop_map(
            |(session, ttl_ms, owner, ends_with_connection, lock_delay_ms)| {
                let ttl_ms = if ttl_ms < 12 { 100 + ttl_ms } else { ttl_ms };
                Command::OpenSession(OpenSession { session, ttl_ms, owner, ends_with_connection, lock_delay_ms })
            }
        ),
        1 => prop::collection::vec(number(), 0..5).prop_map(|sessions| Command::KeepAlive(KeepAlive { sessions })),
        1 => (number(), text(), any::<bool>(), prop::option::of(number())).prop_map(|(session, reason, unclean, binding)| {
            Command::EndSession(EndSession { session, reason, unclean, binding })
        }),
        1 => prop::collection::vec(number(), 0..5).prop_map(|sessions| Command::Bind(Bind { sessions })),
        2 => number().prop_map(|limit| Command::Expire(Expire { limit })),
        8 => election_command(),
        4 => any_put().prop_map(Command::Put),
        1 => (span(), any::<bool>()).prop_map(|(span, wants_previous)| Command::Delete(Delete { span, wants_previous })),
        3 => any_transaction().prop_map(Command::Transact),
        1 => number().prop_map(|revision| Command::Compact(Compact { revision })),
    ]
}

fn any_request() -> impl Strategy<Value = Request> {
    let guest = prop::sample::select(vec!["", "", "a", "b"]).prop_map(str::to_owned);
    (prop::option::weighted(0.98, any_command()), number(), number(), number(), guest).prop_map(
        |(command, client, sequence, answered, guest)| {
            let client = if client % 2 == 0 { 0 } else { client };
            Request { client, sequence, answered, guest, command }
        },
    )
}

fn any_topic() -> impl Strategy<Value = Topic> {
    prop_oneof![
        span().prop_map(|it| Topic::Keys(it.unwrap_or_default())),
        bytes().prop_map(|it| Topic::Keys(Span::prefix(it))),
        text().prop_map(Topic::Election),
        text().prop_map(Topic::ElectionsUnder),
        (text(), text()).prop_map(|(election, identity)| Topic::Candidate(CandidateTopic { election, identity })),
        number().prop_map(Topic::Session),
    ]
}

fn any_query() -> impl Strategy<Value = Query> {
    prop_oneof![
        Just(Query::Status(AskStatus {})),
        text().prop_map(Query::Look),
        (text(), text(), number()).prop_map(|(prefix, after, limit)| Query::Elections(ListElections { prefix, after, limit })),
        (text(), text()).prop_map(|(election, identity)| Query::Inquire(Inquire { election, identity })),
        number().prop_map(Query::Session),
        (number(), number()).prop_map(|(after, limit)| Query::Sessions(ListSessions { after, limit })),
        any_range().prop_map(Query::Range),
        (number(), prop::option::of(any_topic()), number())
            .prop_map(|(from, topic, limit)| { Query::Events(ReadEvents { from, interest: topic.map(Interest::of), limit }) }),
    ]
}

/// Small enough that every limit is met.
const TIGHT: Limits = Limits {
    sessions_max: 6,
    elections_max: 4,
    line_len_max: 3,
    candidacies_bytes_max: 4000,
    past_bytes_max: 500,
    notes_bytes_max: 300,
    keys_max: 6,
    keys_bytes_max: 20_000,
    clients_max: 2,
    outcomes_bytes_max: 700,
    outcomes_max: 2,
    outcome_len_max: 40,
    operations_max: 20,
    depth_max: 3,
    answer_items_max: 3,
    answer_bytes_max: 2000,
    visited_max: 12,
    visited_in_log_max: 12,
    deleted_max: 4,
    events_max: 20,
    events_bytes_max: 20_000,
    records_max: 2,
    ended_at_once_max: 3,
    ..Limits::STANDARD
};

/// What must be true of any store.
fn check(store: &Store, events: &[std::sync::Arc<Event>], last: &mut u64) {
    for event in events {
        assert!(event.revision >= *last, "W1");
        *last = event.revision;
    }
    assert!(store.revision() >= *last);
    let Ok(Answer::Status(status)) = store.query(&Query::Status(AskStatus {})) else { panic!("no status") };
    assert!(status.sessions <= 6 && status.elections <= 4 && status.keys <= 6 && status.clients <= 2, "{status:?}");
    assert!(status.keys_bytes <= 20_000);
    let Ok(Answer::Elections(all)) = store.query(&Query::Elections(ListElections::default())) else { panic!("no list") };
    let mut candidacies = std::collections::BTreeMap::new();
    for election in all.elections {
        let Ok(Answer::Board(board)) = store.query(&Query::Look(election.election.clone())) else { panic!("no board") };
        assert!(board.leaders.len() <= board.seats.max(1) as usize, "L2");
        assert!(board.candidates.len() <= 3 && board.past.len() <= 2 && board.notes.len() <= 2 && board.completions.len() <= 2);
        let mut who: Vec<&str> = board.leaders.iter().map(|it| it.identity.as_str()).collect();
        who.extend(board.candidates.iter().map(|it| it.identity.as_str()));
        who.sort();
        assert!(who.windows(2).all(|it| it[0] != it[1]), "one candidate, one place");
        for session in board.leaders.iter().map(|it| it.session).chain(board.candidates.iter().map(|it| it.session)) {
            *candidacies.entry(session).or_insert(0) += 1;
            assert!(store.query(&Query::Session(session)).is_ok(), "who leads or waits has a session");
        }
        assert!(board.past.windows(2).all(|it| it[0].since_wall_ms == it[1].since_wall_ms), "no wall clock was told");
        for (newer, older) in board.leaders.iter().skip(1).zip(&board.leaders) {
            assert!(newer.token > older.token, "L1");
        }
    }
    let Ok(Answer::Sessions(all)) = store.query(&Query::Sessions(ListSessions::default())) else { panic!("no list") };
    for view in all.sessions {
        let counted = candidacies.get(&view.session).copied().unwrap_or(0);
        assert_eq!(view.candidacies, counted, "so many lead or wait by it");
    }
}

/// As it is shown, but for what wall clocks have said.
fn without_wall(shown: &impl std::fmt::Debug) -> String {
    let shown = format!("{shown:?}");
    let mut parts = shown.split("wall_ms: ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + part.trim_start_matches(|it: char| it.is_ascii_digit()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_commands_are_answered(
        requests in prop::collection::vec((any_request(), 0u64..400), 1..60),
        queries in prop::collection::vec(any_query(), 1..8),
        topics in prop::collection::vec(any_topic(), 0..12),
    ) {
        let interests: Vec<Interest> = topics.into_iter().map(Interest::of).collect();
        let mut watches = Watches::new();
        for (number, interest) in interests.iter().enumerate() {
            watches.add(number as u64, interest.clone());
        }
        let (mut store, mut at, mut last) = (Store::with_limits(0, TIGHT), Time::ZERO, 0);
        let mut twin = store.clone();
        for (request, pass_ms) in requests {
            at = at.after_ms(pass_ms);
            let (mut events, mut twins) = (vec![], vec![]);
            let mut untouched = store.clone();
            untouched.apply(Stamp::at(at), Request::of(Command::KeepAlive(KeepAlive::default())), &mut vec![]).expect("time passes");
            let (copy, before) = (store.clone(), store.digest());
            let outcome = store.apply(Stamp::at(at), request.clone(), &mut events);
            prop_assert_eq!(copy.digest(), before, "a copy stays as it was");
            prop_assert_eq!(&outcome, &twin.apply(Stamp::at(at), request.clone(), &mut twins));
            if let (Err(refusal), 0) = (&outcome, request.client) {
                prop_assert_eq!(store.digest(), untouched.digest(), "{:?}, and yet something has changed", refusal);
            }
            check(&store, &events, &mut last);
            if pass_ms % 8 == 0 {
                twin = Store::load_with_limits(twin.save(), TIGHT).expect("just saved");
            }
            if request.client != 0 {
                let mut repeated = vec![];
                let again = store.clone().apply(Stamp::at(at), request, &mut repeated);
                prop_assert!(repeated.is_empty(), "C76: applied twice");
                let is_known = again == outcome || matches!(again, Err(Refusal::AnswerDropped(_) | Refusal::Forgotten));
                prop_assert!(is_known, "{:?}, and the second time {:?}", outcome, again);
            }
            for event in &events {
                let wanted: Vec<u64> = (0..).zip(&interests).filter(|it| it.1.wants(event)).map(|it| it.0).collect();
                prop_assert_eq!(watches.wanting(event), wanted);
            }
        }
        prop_assert_eq!(store.digest(), twin.digest(), "S4");
        let pieces: Vec<Vec<u8>> = store.save().collect();
        let loaded = Store::load_with_limits(&pieces, TIGHT);
        prop_assert_eq!(loaded.map(|it| (it.digest(), it.expiry())), Ok((store.digest(), store.expiry())));
        for query in queries {
            drop(store.query(&query));
        }
    }

    /// Wherever the wall clocks of leaders jump to and back from: the same is done, refused, ended and told.
    #[test]
    fn a_wall_clock_decides_nothing(
        requests in prop::collection::vec((any_request(), 0u64..400, number()), 1..60),
        queries in prop::collection::vec(any_query(), 1..8),
    ) {
        let (mut store, mut at) = (Store::with_limits(0, TIGHT), Time::ZERO);
        let mut twin = store.clone();
        for (request, pass_ms, wall_ms) in requests {
            at = at.after_ms(pass_ms);
            let (mut events, mut twins) = (vec![], vec![]);
            let outcome = store.apply(Stamp { at, wall_ms }, request.clone(), &mut events);
            let without = twin.apply(Stamp::at(at), request, &mut twins);
            prop_assert_eq!(without_wall(&outcome), without_wall(&without));
            prop_assert_eq!(without_wall(&events), without_wall(&twins));
            prop_assert_eq!(store.expiry(), twin.expiry());
        }
        for query in queries {
            prop_assert_eq!(without_wall(&store.query(&query)), without_wall(&twin.query(&query)));
        }
    }

    #[test]
    fn bytes_that_are_nearly_a_request_are_refused_or_carried_out(
        request in any_request(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = request.encode_to_vec();
        prop_assume!(!bytes.is_empty());
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        if let Ok(request) = Request::decode(&bytes[..]) {
            let mut store = Store::with_limits(0, TIGHT);
            let open = OpenSession { session: 1, ttl_ms: 100, ..OpenSession::default() };
            for command in [Command::OpenSession(open), Command::Campaign(bid(1, "e", "a")), Command::Put(put("a", "b"))] {
                store.apply(Stamp::at(Time::ZERO), Request::of(command), &mut vec![]).expect("done");
            }
            drop(store.apply(Stamp::at(Time::ZERO), request, &mut vec![]));
            check(&store, &[], &mut 0);
        }
    }

    #[test]
    fn any_bytes_are_no_entry_and_no_snapshot(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let entry = Entry::from_bytes(&bytes);
        prop_assert!(matches!(entry, Err(Damaged::Checksum)));
        prop_assert!(Store::load([&bytes]).is_err());
        if let Ok(request) = Request::decode(&bytes[..]) {
            drop(Store::new(0).apply(Stamp::default(), request, &mut vec![]));
        }
        if let Ok(question) = Question::decode(&bytes[..]) && let Some(query) = question.query {
            drop(Store::new(0).query(&query));
        }
    }
}

#[test]
fn a_snapshot_that_lacks_a_piece_or_has_a_foreign_one_is_refused() {
    let store_of = |value: &str| {
        let mut store = Store::new(0);
        for key in 0..40 {
            let command = Command::Put(put(&format!("{key}"), &value.repeat(10_000)));
            store.apply(Stamp::at(Time::ZERO), Request::of(command), &mut vec![]).expect("written");
        }
        store.save().collect::<Vec<_>>()
    };
    let (pieces, foreign) = (store_of("a"), store_of("b"));
    assert!(pieces.len() > 3 && pieces.iter().all(|it| it.len() <= incumbent_store::snapshot::PIECE_MAX));
    assert!(Store::load(&pieces).is_ok());
    for at in 0..pieces.len() {
        let mut without = pieces.clone();
        without.remove(at);
        assert!(Store::load(&without).is_err(), "without {at}");
        let mut mixed = pieces.clone();
        mixed[at] = foreign[at].clone();
        assert!(Store::load(&mixed).is_err(), "with a foreign {at}");
        let mut twice = pieces.clone();
        twice.insert(at, pieces[at].clone());
        assert!(Store::load(&twice).is_err(), "{at} twice");
    }
    assert!(Store::load(Vec::<Vec<u8>>::new()).is_err());
}
