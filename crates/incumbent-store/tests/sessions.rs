//! Sessions keep their word, claim by claim.

mod scene;

use incumbent_store::command::*;
use incumbent_store::keys::transaction::{Act, Guard, Put};
use incumbent_store::limits::Limits;
use incumbent_store::query::{Answer, ListSessions, Query};
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::Reply;
use incumbent_store::store::Store;
use incumbent_store::time::DRIFT_PPM;
use scene::{Scene, bid, put};

#[test]
fn a_session_lives_for_its_ttl_and_the_drift_and_not_less() {
    let mut scene = Scene::new();
    let session = scene.open(1000);
    let deadline = scene.store.expiry().expect("a deadline");
    assert!(deadline.as_nanos() >= 1_000_000_000 + 1_000_000_000 * DRIFT_PPM / 1_000_000);
    scene.at = incumbent_store::time::Time::from_nanos(deadline.as_nanos() - 1);
    assert_eq!(scene.expire().sessions, 0, "L3: never early");
    scene.at = deadline;
    assert_eq!(scene.keep_alive(&[session]), [], "what nobody has ended lives");
    let deadline = scene.store.expiry().expect("a deadline");
    scene.at = deadline;
    assert_eq!(scene.expire().sessions, 1);
    assert_eq!(scene.heard(), ["session ended: lease expired"]);
    assert_eq!(scene.keep_alive(&[session]), [session]);
    assert_eq!(scene.store.expiry(), None);
}

#[test]
fn nothing_but_expire_ends_a_session_by_time() {
    let mut scene = Scene::new();
    let session = scene.open(100);
    let token = scene.win(bid(session, "e", "a"));
    scene.pass_ms(3_600_000);
    scene.put("k", "v").expect("written");
    assert_eq!(scene.leaders("e"), [("a".to_owned(), token)]);
    scene.expire();
    assert!(scene.leaders("e").is_empty());
    assert_eq!(scene.heard(), ["session ended: lease expired", "ended a: lease expired"]);
}

#[test]
fn whatever_a_holder_does_keeps_its_session_alive() {
    let mut scene = Scene::new();
    let session = scene.open(1000);
    let token = scene.win(bid(session, "e", "a"));
    let acts = [
        Command::Campaign(bid(session, "e", "a")),
        Command::Renew(Renew { election: "e".into(), token }),
        Command::Proclaim(Proclaim { election: "e".into(), token, value: "v".into() }),
        Command::KeepAlive(KeepAlive { sessions: vec![session] }),
    ];
    for act in acts {
        let before = scene.store.expiry();
        scene.pass_ms(900);
        scene.ask(act).expect("done");
        assert!(scene.store.expiry() > before);
    }
}

#[test]
fn who_waits_by_a_session_that_has_ended_is_not_elected() {
    let mut scene = Scene::with_limits(Limits { ended_at_once_max: 1, ..Limits::STANDARD });
    let (holder, waiting, other) = (scene.open(60_000), scene.open(1000), scene.open(60_000));
    let token = scene.win(bid(holder, "e", "a"));
    // The session has so much attached that it takes several rounds until its place in this line is gone.
    for election in ["a1", "a2", "a3"] {
        scene.win(bid(waiting, election, "b"));
    }
    scene.wait(bid(waiting, "e", "b"));
    scene.wait(bid(other, "e", "c"));
    scene.pass_ms(1001);
    assert!(scene.expire().more);
    assert_eq!(scene.look("e").candidates.len(), 2, "it still stands there");
    scene.resign("e", token, "").expect("given back");
    assert_eq!(scene.leaders("e")[0].0, "c", "C62");
    assert_eq!(scene.campaign(bid(waiting, "e", "b")), Err(Refusal::SessionGone(waiting)));
    while scene.expire().more {}
    assert!(scene.look("e").candidates.is_empty());
}

#[test]
fn what_was_lost_with_a_session_is_not_found_again_with_another() {
    let mut scene = Scene::with_limits(Limits { ended_at_once_max: 1, ..Limits::STANDARD });
    let (first, second) = (scene.open(1000), scene.open(60_000));
    let holder = scene.open(60_000);
    scene.win(bid(holder, "z", "x"));
    let token = scene.win(bid(first, "e", "a"));
    scene.win(bid(first, "a1", "a"));
    scene.wait(bid(first, "z", "a"));
    scene.wait(bid(holder, "z", "y"));
    scene.pass_ms(1001);
    assert!(scene.expire().more);
    let Ok(Reply::Renewed(renewed)) = scene.ask(Command::Renew(Renew { election: "e".into(), token })) else {
        panic!("no answer")
    };
    assert!(!renewed.in_office, "its session has ended");
    assert_eq!(scene.leaders("e"), [("a".to_owned(), token)], "though the seat is not taken from it yet");
    let done = scene.transact(vec![Guard::holds("e", token)], vec![Act::Put(put("k", ""))], vec![]);
    assert!(!done.expect("carried out").held && !scene.store.is_in_office("e", token), "and cannot write past the fence");
    let acts = [
        Command::Proclaim(Proclaim { election: "e".into(), token, value: "late".into() }),
        Command::Complete(Complete { election: "e".into(), token, ..Complete::default() }),
        Command::Ask(Ask {
            election: "e".into(),
            wish: Some(Wish { token, ..Wish::default() }),
            after_tenure: false,
            as_candidate: false,
            only_in_line: false,
        }),
    ];
    for act in acts {
        assert_eq!(scene.ask(act), Err(Refusal::NotInOffice(token)));
    }
    assert!(scene.win(bid(second, "e", "a")) > token, "it is another leadership");
    assert_eq!(scene.wait(bid(second, "z", "a")).place, 2, "and another place in line");
    while scene.expire().more {}
    assert_eq!(scene.leaders("e").len(), 1);
    assert_eq!(scene.look("z").candidates.len(), 2);
}

/// A connection that was left is closed late, by a network that had kept the news: the session has moved on, and stays.
/// C76: its process was killed, and the next one has taken the same name.
#[test]
fn a_late_bid_of_a_former_life_does_not_take_the_seat_from_the_next() {
    let mut scene = Scene::new();
    let former = scene.open(1_000);
    let late = bid(former, "e", "web-1");
    let next = scene.open(10_000);
    let other = scene.open(10_000);
    let token = scene.win(bid(next, "e", "web-1"));
    scene.wait(bid(other, "e", "web-2"));
    let told = scene.wait(late.clone());
    assert_eq!((told.place, told.leader.map(|it| it.session)), (0, Some(next)), "it is told who has the seat");
    scene.pass_ms(2_000);
    scene.expire();
    assert_eq!(scene.leaders("e"), [("web-1".to_owned(), token)], "the former session has ended, and the next lives");
    // Nor a place in the line.
    let former = scene.open(1_000);
    let next = scene.open(10_000);
    scene.wait(bid(next, "e", "web-3"));
    assert_eq!(scene.wait(bid(former, "e", "web-3")).place, 2);
    scene.pass_ms(2_000);
    scene.expire();
    assert_eq!(scene.look("e").candidates.len(), 2);
    // Who comes back with a newer one goes with it.
    let newer = scene.open(10_000);
    let another = scene.win(bid(newer, "e", "web-1"));
    assert_eq!(scene.heard(), ["ended web-1: came back with another session", "elected web-1"]);
    assert!(another > token && scene.look("e").leaders[0].session == newer);
    // And what its former life has said is none of its own.
    scene.resign("e", token, "").expect("nothing happens");
    assert_eq!(scene.leaders("e"), [("web-1".to_owned(), another)]);
    assert!(!scene.store.is_in_office("e", token), "the fence is closed to it");
}

#[test]
fn a_late_end_of_a_connection_does_not_end_what_has_moved_to_another() {
    let mut scene = Scene::new();
    let (session, other) = (scene.open(1000), scene.open(1000));
    let token = scene.win(bid(session, "e", "a"));
    let lose = |binding| {
        Command::EndSession(EndSession { session, reason: "process died".into(), unclean: true, binding: Some(binding) })
    };
    let bind = |scene: &mut Scene, sessions: Vec<u64>| match scene.ask(Command::Bind(Bind { sessions })) {
        Ok(Reply::Bound(bound)) => bound,
        other => panic!("{other:?}"),
    };
    let first = bind(&mut scene, vec![session, 999, other]);
    assert_eq!(first.gone, [999]);
    let second = bind(&mut scene, vec![session]);
    assert!(second.binding > first.binding, "bindings rise");
    for late in [0, first.binding] {
        scene.ask(lose(late)).expect("nothing happens");
        assert_eq!(scene.leaders("e"), [("a".to_owned(), token)], "it has left connection {late}");
    }
    let again = scene.store.save().collect::<Vec<_>>();
    scene.store = incumbent_store::store::Store::load(&again).expect("just saved");
    scene.ask(lose(first.binding)).expect("nothing happens");
    assert_eq!(scene.leaders("e").len(), 1, "a snapshot knows the binding");
    scene.ask(lose(second.binding)).expect("ended");
    assert!(scene.leaders("e").is_empty(), "the connection that spoke for it is gone");
    assert_eq!(scene.ask(lose(second.binding)), Err(Refusal::SessionGone(session)));
    assert_eq!(bind(&mut scene, vec![session]).gone, [session]);
}

#[test]
fn a_session_that_was_never_bound_again_ends_with_the_connection_it_was_opened_on() {
    let mut scene = Scene::new();
    let session = scene.open(1000);
    let before = scene.store.expiry();
    scene.pass_ms(10);
    scene.ask(Command::Bind(Bind { sessions: vec![] })).expect("nothing to bind");
    assert_eq!(scene.store.expiry(), before);
    let lose = EndSession { session, reason: String::new(), unclean: true, binding: Some(0) };
    scene.ask(Command::EndSession(lose)).expect("ended");
    assert_eq!(scene.heard(), ["session ended: session ended"]);
}

#[test]
fn a_lock_delay_follows_an_unclean_end_and_no_other() {
    for (unclean, delayed) in [(true, true), (false, false)] {
        let mut scene = Scene::new();
        let other = scene.open(60_000);
        let session = scene.open_as(OpenSession { ttl_ms: 1000, lock_delay_ms: 5000, ..OpenSession::default() }).expect("opened");
        scene.win(bid(session, "e", "a"));
        scene.wait(bid(other, "e", "b"));
        scene
            .ask(Command::EndSession(EndSession { session, reason: "process died".into(), unclean, binding: None }))
            .expect("ended");
        assert_eq!(scene.leaders("e").is_empty(), delayed);
        assert_eq!(scene.look("e").past[0].reason, "process died");
        scene.pass_ms(5000);
        scene.expire();
        assert_eq!(scene.leaders("e")[0].0, "b");
    }
}

#[test]
fn a_seat_whose_delay_is_over_is_given_to_whoever_comes_first() {
    let mut scene = Scene::new();
    let other = scene.open(60_000);
    let session = scene.open_as(OpenSession { ttl_ms: 1000, lock_delay_ms: 100, ..OpenSession::default() }).expect("opened");
    scene.win(bid(session, "e", "a"));
    scene.pass_ms(1001);
    scene.expire();
    scene.pass_ms(100);
    scene.win(bid(other, "e", "b"));
    assert_eq!(scene.look("e").reservations, []);
}

#[test]
fn a_million_attachments_go_in_pieces_and_others_do_not_wait() {
    let limits = Limits { ended_at_once_max: 200, ..Limits::STANDARD };
    let mut scene = Scene::with_limits(limits);
    let (heavy, light) = (scene.open(1000), scene.open(1000));
    for key in 0..2000 {
        scene.ask(Command::Put(Put { session: heavy, ..put(&format!("k{key:05}"), "") })).expect("written");
    }
    scene.win(bid(light, "e", "a"));
    scene.pass_ms(2000);
    assert!(scene.expire().more);
    assert!(scene.leaders("e").is_empty(), "C67: the seat of another is free after the first piece");
    let mut rounds = 1;
    while scene.expire().more {
        rounds += 1;
        assert!(scene.events.len() <= 201, "{}", scene.events.len());
    }
    assert!((5..20).contains(&rounds), "{rounds}");
    assert_eq!(scene.item("k00000"), None);
    assert_eq!(scene.store.expiry(), None);
}

#[test]
fn seats_do_not_wait_for_the_keys_of_other_sessions_nor_for_one_that_has_many_seats() {
    let limits = Limits { ended_at_once_max: 200, ..Limits::STANDARD };
    let mut scene = Scene::with_limits(limits);
    // All of them come before the light ones, in number and in time.
    for heavy in 0..20 {
        let session = scene.open(1000);
        for key in 0..100 {
            scene.ask(Command::Put(Put { session, ..put(&format!("k{heavy}/{key:03}"), "") })).expect("written");
        }
    }
    let greedy = scene.open(1000);
    for seat in 0..300 {
        scene.win(bid(greedy, &format!("greedy/{seat}"), "g"));
    }
    let light: Vec<u64> = (0..10).map(|_| scene.open(1000)).collect();
    for (number, session) in light.iter().enumerate() {
        scene.win(bid(*session, &format!("light/{number}"), "a"));
    }
    scene.pass_ms(2000);
    assert!(scene.expire().more);
    for number in 0..light.len() {
        assert!(scene.leaders(&format!("light/{number}")).is_empty(), "seat {number} waits");
    }
    let seats = |scene: &Scene| (0..300).filter(|it| !scene.leaders(&format!("greedy/{it}")).is_empty()).count();
    assert!(seats(&scene) > 0 && scene.item("k0/000").is_some(), "no key goes before a seat");
    // Whose seats are first is known from a snapshot too.
    let pieces: Vec<Vec<u8>> = scene.store.save().collect();
    scene.store = Store::load_with_limits(&pieces, limits).expect("just saved");
    assert!(scene.expire().more);
    assert_eq!(seats(&scene), 0);
    while scene.expire().more {
        assert!(scene.events.len() <= 401, "{}", scene.events.len());
    }
    assert!(scene.item("k19/099").is_none() && scene.store.expiry().is_none());
}

#[test]
fn many_sessions_end_in_batches() {
    let mut scene = Scene::with_limits(Limits { ended_at_once_max: 1000, ..Limits::STANDARD });
    for _ in 0..10_000 {
        scene.open(1000);
    }
    scene.pass_ms(2000);
    let mut ended = 0;
    loop {
        let expired = scene.expire();
        assert!(expired.sessions <= 1000);
        ended += expired.sessions;
        if !expired.more {
            break;
        }
    }
    assert_eq!(ended, 10_000, "C65");
}

/// Each seat of an election with very many costs more than one of an election with few: all that are left are looked through.
#[test]
fn a_session_with_very_many_seats_of_one_election_ends_in_pieces() {
    let mut scene = Scene::new();
    let (many, next) = (scene.open(1000), scene.open(600_000));
    for number in 0..1_000 {
        scene.win(Campaign { seats: 1_000, ..bid(many, "e", &format!("many-{number:04}")) });
    }
    for number in 0..1_000 {
        scene.wait(Campaign { seats: 1_000, ..bid(next, "e", &format!("next-{number:04}")) });
    }
    scene.end(many).expect("ended");
    let led = |scene: &Scene| scene.look("e").leaders.iter().filter(|it| it.session == many).count();
    assert!((900..1_000).contains(&led(&scene)), "{} are left", led(&scene));
    let mut turns = 0;
    while scene.expire().more {
        turns += 1;
        assert!(scene.events.len() <= 200, "{} at once", scene.events.len());
    }
    assert!(led(&scene) == 0 && scene.look("e").leaders.len() == 1_000 && turns > 10, "{turns}");
}

/// What the end of one candidacy costs may be more than its share of the work that is done at once.
#[test]
fn however_much_the_end_of_each_session_costs_only_so_much_is_done_at_once() {
    let mut scene = Scene::with_limits(Limits { ended_at_once_max: 20, ..Limits::STANDARD });
    let waits = scene.open(1000);
    for number in 0..9 {
        let (leads, election) = (scene.open(1000), format!("e{number}"));
        scene.win(bid(leads, &election, "leader"));
        for place in 0..30 {
            scene.wait(bid(waits, &election, &format!("w{place}")));
        }
    }
    scene.pass_ms(2000);
    let mut turns = 0;
    while scene.expire().more {
        turns += 1;
        assert!(scene.events.len() <= 60, "{} at once", scene.events.len());
    }
    assert!(turns >= 9 && scene.leaders("e0").is_empty(), "{turns}");
}

#[test]
fn sessions_end_however_many_elections_are_due() {
    let mut scene = Scene::with_limits(Limits { ended_at_once_max: 10, ..Limits::STANDARD });
    let open = OpenSession { ttl_ms: 60_000, lock_delay_ms: 2000, ..OpenSession::default() };
    let (holds, brief) = (scene.open_as(open).expect("opened"), scene.open(1000));
    for number in 0..100 {
        let election = format!("e{number}");
        let token = scene.win(bid(holds, &election, "a"));
        scene.ask(Command::Evict(Evict { election, token, reason: String::new() })).expect("evicted");
    }
    scene.pass_ms(2000);
    assert_eq!(scene.expire().sessions, 1);
    assert_eq!(scene.keep_alive(&[holds, brief]), [brief]);
    while scene.expire().more {}
    assert!(scene.look("e99").reservations.is_empty());
}

/// C62, and that whoever lives behind very many who do not is not kept waiting by them, nor anybody else.
#[test]
fn very_many_who_wait_no_more_are_passed_by_in_pieces() {
    let mut scene = Scene::new();
    let (leads, dead, lives) = (scene.open(600_000), scene.open(1000), scene.open(600_000));
    let token = scene.win(bid(leads, "e", "leader"));
    for number in 0..5_000 {
        scene.wait(bid(dead, "e", &format!("dead-{number:04}")));
    }
    scene.wait(bid(lives, "e", "lives"));
    scene.end(dead).expect("ended");
    assert_eq!(scene.look("e").waiting, 4_001, "a thousand at once");
    scene.resign("e", token, "").expect("resigned");
    assert!(scene.leaders("e").is_empty() && scene.look("e").waiting > 3_900, "nobody looks through all of them at once");
    assert!(scene.store.expiry().is_some_and(|it| it <= scene.at), "and it goes on at once");
    // Also for one who has it from a snapshot.
    let pieces: Vec<Vec<u8>> = scene.store.save().collect();
    scene.store = Store::load(&pieces).expect("just saved");
    let mut turns = 0;
    while scene.leaders("e").is_empty() {
        let _ = scene.expire();
        assert!(scene.events.len() <= 2 * (1_000 + 64 + 2), "{} at once", scene.events.len());
        turns += 1;
    }
    assert_eq!(scene.leaders("e")[0].0, "lives");
    assert!((3..=6).contains(&turns), "{turns}");
}

#[test]
fn a_chosen_number_is_opened_once() {
    let mut scene = Scene::new();
    let wanted = OpenSession { session: 77, ttl_ms: 1000, owner: "me".into(), ..OpenSession::default() };
    assert_eq!(scene.open_as(wanted.clone()), Ok(77));
    assert_eq!(scene.open_as(wanted.clone()), Ok(77), "asked again, because the answer was lost");
    assert_eq!(scene.open_as(OpenSession { ttl_ms: 2000, ..wanted }), Err(Refusal::SessionTaken(77)));
    // The store's own numbers go round those that were chosen.
    let ahead = scene.store.revision() + 1;
    scene.open_as(OpenSession { session: ahead, ttl_ms: 1000, ..OpenSession::default() }).expect("opened");
    let session = scene.open(1000);
    assert!(session != ahead && session != 77);
}

#[test]
fn terms_out_of_range_are_refused() {
    let mut scene = Scene::with_limits(Limits { sessions_max: 1, ..Limits::STANDARD });
    let with =
        |ttl_ms, lock_delay_ms, owner: &str| OpenSession { ttl_ms, lock_delay_ms, owner: owner.into(), ..OpenSession::default() };
    for (ttl_ms, lock_delay_ms, owner) in
        [(0, 0, ""), (99, 0, ""), (u64::MAX, 0, ""), (1000, u64::MAX, ""), (1000, 0, "x".repeat(600).as_str())]
    {
        let refused = scene.open_as(with(ttl_ms, lock_delay_ms, owner));
        assert!(matches!(refused, Err(Refusal::Limit { .. } | Refusal::Malformed(_))), "{refused:?}");
    }
    scene.open_as(with(Limits::TTL_MS_MAX, 0, "")).expect("C41: the longest there is");
    assert!(matches!(scene.open_as(with(1000, 0, "")), Err(Refusal::Limit { .. })));
    assert_eq!(scene.end(4711), Err(Refusal::SessionGone(4711)));
}

#[test]
fn a_session_is_seen_from_outside() {
    let mut scene = Scene::new();
    let wanted = OpenSession { ttl_ms: 1000, owner: "me".into(), ends_with_connection: true, ..OpenSession::default() };
    let session = scene.open_as(wanted).expect("opened");
    scene.win(bid(session, "e", "a"));
    scene.ask(Command::Put(Put { session, ..put("k", "v") })).expect("written");
    scene.pass_ms(400);
    scene.put("other", "").expect("written");
    let Ok(Answer::Session(view)) = scene.store.query(&Query::Session(session)) else { panic!("no answer") };
    assert_eq!((view.left_ms, view.candidacies, view.keys.len(), view.ends_with_connection), (601, 1, 1, true));
    let Ok(Answer::Sessions(all)) = scene.store.query(&Query::Sessions(ListSessions { after: 0, limit: 0 })) else { panic!() };
    assert_eq!((all.sessions.len(), all.more), (1, false));
    assert_eq!(scene.store.query(&Query::Session(9)), Err(Refusal::SessionGone(9)));
}

#[test]
fn a_request_is_applied_once_however_often_it_is_sent() {
    let mut scene = Scene::new();
    let Ok(Reply::Introduced(client)) = scene.ask(Command::Introduce(Introduce {})) else { panic!("not introduced") };
    let session = scene.open(1000);
    let request = Request::numbered(client, 1, Command::Campaign(bid(session, "e", "a")));
    let first = scene.request(request.clone()).expect("granted");
    let digest = scene.store.digest();
    let Reply::Granted(granted) = &first else { panic!("{first:?}") };
    let resign = Command::Resign(Resign { election: "e".into(), token: granted.token, ..Resign::default() });
    assert_eq!(scene.request(request.clone()), Ok(first.clone()), "C76");
    assert!(scene.events.is_empty() && scene.store.digest() != digest, "only when it was last heard of has changed");
    scene.request(Request::numbered(client, 2, resign)).expect("given back");
    assert_eq!(scene.request(request), Ok(first), "also when things have changed since");
    assert!(scene.leaders("e").is_empty(), "and nothing is granted again");
    // A refusal is an outcome too.
    let refused = Request::numbered(client, 3, Command::Campaign(bid(999, "e", "a")));
    assert_eq!(scene.request(refused.clone()), Err(Refusal::SessionGone(999)));
    assert_eq!(scene.request(refused), Err(Refusal::SessionGone(999)));
    assert_eq!(scene.request(Request::numbered(client + 5, 1, Command::Introduce(Introduce {}))), Err(Refusal::Forgotten));
    assert!(matches!(scene.request(Request::numbered(client, 0, Command::Introduce(Introduce {}))), Err(Refusal::Malformed(_))));
    assert!(matches!(scene.request(Request { command: None, ..Request::default() }), Err(Refusal::Malformed(_))));
}

#[test]
fn a_former_leader_cannot_write_past_the_fence() {
    let mut scene = Scene::new();
    let (session, next) = (scene.open(1000), scene.open(60_000));
    let token = scene.win(bid(session, "e", "a"));
    scene.wait(bid(next, "e", "b"));
    let guarded = |value: &str| (vec![Guard::holds("e", token)], vec![Act::Put(put("k", value))], vec![]);
    let (guards, then, otherwise) = guarded("mine");
    assert!(scene.transact(guards, then, otherwise).expect("carried out").held);
    scene.pass_ms(2000);
    scene.expire();
    let (guards, then, otherwise) = guarded("late");
    assert!(!scene.transact(guards, then, otherwise).expect("carried out").held);
    assert_eq!(scene.value("k").as_deref(), Some("mine"));
    assert!(!scene.store.is_in_office("e", token));
}
