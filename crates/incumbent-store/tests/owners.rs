//! A guest uses what it has opened itself, and nobody else's: whatever numbers it guesses.

mod scene;

use incumbent_store::command::*;
use incumbent_store::keys::transaction::{Act, Operation, Put, Transaction};
use incumbent_store::limits::Limits;
use incumbent_store::query::{Answer, Query};
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::{KeptAlive, Reply};
use incumbent_store::store::Store;
use scene::{Outcome, Scene, bid, put};

fn ask_as(scene: &mut Scene, guest: &str, command: Command) -> Outcome {
    scene.request(Request { guest: guest.into(), ..Request::of(command) })
}

fn open_as(scene: &mut Scene, guest: &str) -> u64 {
    let open = OpenSession { ttl_ms: 1000, owner: "web-1".into(), ..OpenSession::default() };
    match ask_as(scene, guest, Command::OpenSession(open)) {
        Ok(Reply::Opened(session)) => session,
        other => panic!("{other:?}"),
    }
}

fn win_as(scene: &mut Scene, guest: &str, session: u64) -> u64 {
    match ask_as(scene, guest, Command::Campaign(bid(session, "e", "a"))) {
        Ok(Reply::Granted(granted)) => granted.token,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_session_says_whose_it_is() {
    let mut scene = Scene::new();
    let session = open_as(&mut scene, "blue");
    let Ok(Answer::Session(view)) = scene.store.query(&Query::Session(session)) else { panic!("there") };
    assert_eq!(view.owner, "blue/web-1");
}

#[test]
fn what_nobody_has_opened_does_not_pass_for_a_guests() {
    let limits = Limits { sessions_per_guest_max: 1, ..Limits::STANDARD };
    let mut scene = Scene::with_limits(limits);
    for (owner, told) in [("blue/web-1", "/blue/web-1"), ("/web-1", "//web-1"), ("web-1", "web-1")] {
        let open = OpenSession { ttl_ms: 1000, owner: owner.into(), ..OpenSession::default() };
        let session = scene.open_as(open.clone()).expect("opened");
        assert_eq!(scene.open_as(OpenSession { session, ..open }), Ok(session), "the same again");
        let Ok(Answer::Session(view)) = scene.store.query(&Query::Session(session)) else { panic!("there") };
        assert_eq!(view.owner, told);
        let end = Command::EndSession(EndSession { session, ..EndSession::default() });
        assert_eq!(ask_as(&mut scene, "blue", end), Err(Refusal::SessionGone(session)));
    }
    // Nor does it count for that guest.
    open_as(&mut scene, "blue");
}

#[test]
fn a_session_of_another_is_one_that_is_gone() {
    let mut scene = Scene::new();
    let session = open_as(&mut scene, "blue");
    let attached = Put { session, ..put("k", "v") };
    let nested = Transaction { then: vec![Act::Put(attached.clone()).into()], ..Transaction::default() };
    let nested = Transaction { otherwise: vec![Operation { act: Some(Act::Transact(nested)) }], ..Transaction::default() };
    let acts = [
        Command::EndSession(EndSession { session, unclean: true, ..EndSession::default() }),
        Command::Campaign(bid(session, "e", "a")),
        Command::Put(attached),
        Command::Transact(nested),
    ];
    // A name that begins like the other is another name.
    for guest in ["red", "blu", "blue-green", "web-1"] {
        for act in &acts {
            assert_eq!(ask_as(&mut scene, guest, act.clone()), Err(Refusal::SessionGone(session)), "{guest}: {act:?}");
        }
        scene.pass_ms(10);
        let kept = ask_as(&mut scene, guest, Command::KeepAlive(KeepAlive { sessions: vec![session] }));
        assert_eq!(kept, Ok(Reply::KeptAlive(KeptAlive { gone: vec![session] })));
        let bound = ask_as(&mut scene, guest, Command::Bind(Bind { sessions: vec![session] }));
        assert!(matches!(&bound, Ok(Reply::Bound(bound)) if bound.gone == [session]), "{bound:?}");
        let taken = OpenSession { session, ttl_ms: 1000, owner: "web-1".into(), ..OpenSession::default() };
        assert_eq!(ask_as(&mut scene, guest, Command::OpenSession(taken)), Err(Refusal::SessionTaken(session)));
    }
    scene.pass_ms(2000);
    assert_eq!(scene.expire().sessions, 1, "nobody else has kept it alive");
}

#[test]
fn the_owner_and_who_may_everything_use_it() {
    for guest in ["blue", ""] {
        let mut scene = Scene::new();
        let session = open_as(&mut scene, "blue");
        let kept = ask_as(&mut scene, guest, Command::KeepAlive(KeepAlive { sessions: vec![session] }));
        assert_eq!(kept, Ok(Reply::KeptAlive(KeptAlive { gone: vec![] })));
        let token = win_as(&mut scene, guest, session);
        let resign = Resign { election: "e".into(), token, ..Resign::default() };
        ask_as(&mut scene, guest, Command::Resign(resign)).expect("its own");
        ask_as(&mut scene, guest, Command::Put(Put { session, ..put("k", "v") })).expect("its own");
        ask_as(&mut scene, guest, Command::EndSession(EndSession { session, ..EndSession::default() })).expect("its own");
    }
}

#[test]
fn a_leadership_is_its_holders_alone() {
    let mut scene = Scene::new();
    let session = open_as(&mut scene, "blue");
    let token = win_as(&mut scene, "blue", session);
    let election = || "e".to_owned();
    let acts = [
        Command::Renew(Renew { election: election(), token }),
        Command::Proclaim(Proclaim { election: election(), token, value: "v".into() }),
        Command::Complete(Complete { election: election(), token, job: "j".into(), outcome: String::new() }),
        Command::Resign(Resign { election: election(), token, ..Resign::default() }),
    ];
    for act in &acts {
        assert_eq!(ask_as(&mut scene, "red", act.clone()), Err(Refusal::NotInOffice(token)), "{act:?}");
    }
    // Nor is there a way to it by its name.
    let other = open_as(&mut scene, "red");
    let stolen = ask_as(&mut scene, "red", Command::Campaign(bid(other, "e", "a")));
    assert!(matches!(stolen, Err(Refusal::Denied(_))), "{stolen:?}");
    let waits = open_as(&mut scene, "blue");
    ask_as(&mut scene, "blue", Command::Campaign(bid(waits, "e", "b"))).expect("in line");
    let withdraw = Command::Withdraw(Withdraw { election: election(), identity: "b".into() });
    assert!(matches!(ask_as(&mut scene, "red", withdraw.clone()), Err(Refusal::Denied(_))));
    assert_eq!(scene.leaders("e"), [("a".to_owned(), token)]);
    for act in acts {
        ask_as(&mut scene, "blue", act).expect("its own");
    }
    ask_as(&mut scene, "blue", withdraw).expect("its own");
}

#[test]
fn who_may_only_stand_takes_a_seat_by_a_wish_for_a_better_candidate_of_its_own_and_not_otherwise() {
    let mut scene = Scene::new();
    let (blue, red) = (open_as(&mut scene, "blue"), open_as(&mut scene, "red"));
    let token = win_as(&mut scene, "blue", blue);
    let stand = |scene: &mut Scene, guest: &str, session, identity: &str, priority| {
        ask_as(scene, guest, Command::Campaign(Campaign { priority, ..bid(session, "e", identity) })).expect("in line")
    };
    let wish = |demand, to: &str, as_candidate| {
        let wish = Wish { token, demand: demand as i32, to: to.into(), by: "red".into() };
        Command::Ask(Ask { election: "e".into(), wish: Some(wish), after_tenure: true, as_candidate, only_in_line: false })
    };
    let denied = |scene: &mut Scene, demand, to: &str| {
        let asked = ask_as(scene, "red", wish(demand, to, true));
        assert!(matches!(asked, Err(Refusal::Denied(_))), "{to}: {asked:?}");
        assert_eq!(scene.look("e").leaders[0].wish, None);
    };
    denied(&mut scene, Demand::HandOver, "ghost");
    // Another's candidate is no reason, however good it is; nor is one that is no better.
    stand(&mut scene, "blue", blue, "b", 9);
    denied(&mut scene, Demand::HandOver, "b");
    stand(&mut scene, "red", red, "r_1", 0);
    denied(&mut scene, Demand::HandOver, "r_1");
    stand(&mut scene, "red", red, "r_1", 1);
    denied(&mut scene, Demand::Resign, "");
    denied(&mut scene, Demand::Evict, "");
    let seen = scene.store.revision();
    for to in ["r_1", "r"] {
        ask_as(&mut scene, "red", wish(Demand::HandOver, to, true)).expect("its own, and better");
        assert_eq!(scene.look("e").leaders[0].wish.as_ref().expect("left").to, to);
    }
    assert_eq!(scene.store.revision(), seen + 2);
    // Who may evict may ask for anybody.
    ask_as(&mut scene, "green", wish(Demand::HandOver, "ghost", false)).expect("an operator");
}

#[test]
fn one_guest_cannot_have_all_sessions() {
    let limits = Limits { sessions_per_guest_max: 2, ..Limits::STANDARD };
    let mut scene = Scene::with_limits(limits);
    let open = || Command::OpenSession(OpenSession { ttl_ms: 1000, ..OpenSession::default() });
    let full = Err(Refusal::Limit { what: "sessions of one guest".into(), max: 2 });
    open_as(&mut scene, "blue");
    let second = open_as(&mut scene, "blue");
    assert_eq!(ask_as(&mut scene, "blue", open()), full);
    scene.store = Store::load_with_limits(scene.store.save(), limits).expect("just saved");
    assert_eq!(ask_as(&mut scene, "blue", open()), full);
    // The same again is no other.
    let same = OpenSession { session: second, ttl_ms: 1000, owner: "web-1".into(), ..OpenSession::default() };
    assert_eq!(ask_as(&mut scene, "blue", Command::OpenSession(same)), Ok(Reply::Opened(second)));
    for _ in 0..3 {
        ask_as(&mut scene, "", open()).expect("nobody's");
    }
    open_as(&mut scene, "red");
    ask_as(&mut scene, "blue", Command::EndSession(EndSession { session: second, ..EndSession::default() })).expect("its own");
    open_as(&mut scene, "blue");
    assert_eq!(ask_as(&mut scene, "blue", open()), full);
    scene.pass_ms(2000);
    scene.expire();
    open_as(&mut scene, "blue");
}

#[test]
fn whose_things_are_survives_a_snapshot() {
    let mut scene = Scene::new();
    let session = open_as(&mut scene, "blue");
    let Ok(Reply::Introduced(client)) = ask_as(&mut scene, "blue", Command::Introduce(Introduce {})) else { panic!("known") };
    let numbered = |guest: &str| Request { guest: guest.into(), ..Request::numbered(client, 1, Command::Put(put("k", "v"))) };
    let written = scene.request(numbered("blue"));
    assert!(written.is_ok());
    scene.store = Store::load(scene.store.save()).expect("whole");
    assert_eq!(scene.request(numbered("red")), Err(Refusal::Forgotten), "what another has asked is not told");
    assert_eq!(scene.request(numbered("blue")), written);
    let end = Command::EndSession(EndSession { session, ..EndSession::default() });
    assert_eq!(ask_as(&mut scene, "red", end), Err(Refusal::SessionGone(session)));
}
