//! Elections keep their word, claim by claim.

mod scene;

use incumbent_store::command::*;
use incumbent_store::limits::Limits;
use incumbent_store::query::{Answer, Inquire, ListElections, Query};
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::{Granted, Outcome, Renewed, Reply};
use incumbent_store::store::Store;
use prost::Message;
use scene::{Scene, bid};

fn renew(scene: &mut Scene, election: &str, token: u64) -> Renewed {
    match scene.ask(Command::Renew(Renew { election: election.into(), token })) {
        Ok(Reply::Renewed(renewed)) => renewed,
        other => panic!("{other:?}"),
    }
}

fn wish(token: u64, demand: Demand, to: &str) -> Wish {
    Wish { token, demand: demand as i32, to: to.into(), by: "operator".into() }
}

#[test]
fn a_free_seat_is_granted_at_once_and_claiming_again_is_the_same_leadership() {
    let mut scene = Scene::new();
    let session = scene.open(1000);
    let token = scene.win(bid(session, "e", "a_1"));
    assert_eq!(scene.heard(), ["elected a_1"], "who finds a seat free has never waited");
    let revision = scene.store.revision();
    let again = scene.campaign(bid(session, "e", "a_1"));
    assert_eq!(again, Ok(Reply::Granted(Granted { token, ttl_ms: 1000 })));
    assert_eq!((scene.heard().len(), scene.store.revision()), (0, revision), "nothing has changed");
    assert_eq!(scene.leaders("e"), [("a_1".to_owned(), token)]);
}

#[test]
fn the_line_is_by_priority_and_then_by_arrival() {
    let mut scene = Scene::new();
    let session = scene.open(1000);
    let mut token = scene.win(bid(session, "e", "a"));
    assert_eq!(scene.wait(bid(session, "e", "b")).place, 1);
    assert_eq!(scene.heard(), ["joined b", "first b"]);
    assert_eq!(scene.wait(bid(session, "e", "c")).place, 2);
    assert_eq!(scene.heard(), ["joined c"]);
    assert_eq!(scene.wait(Campaign { priority: 1, ..bid(session, "e", "d") }).place, 1);
    assert_eq!(scene.heard(), ["joined d", "first d"]);
    assert_eq!(scene.wait(bid(session, "e", "c")).leader.map(|it| it.identity), Some("a".to_owned()));
    for next in ["d", "b", "c"] {
        scene.resign("e", token, "").expect("given back");
        let [(leader, newer)] = &scene.leaders("e")[..] else { panic!("not one leader") };
        assert_eq!(leader, next);
        assert!(*newer > token, "tokens rise");
        token = *newer;
    }
    assert_eq!(scene.heard(), ["ended b: resigned", "elected c"]);
}

#[test]
fn a_release_wakes_one() {
    let mut scene = Scene::new();
    let session = scene.open(1000);
    let token = scene.win(bid(session, "e", "a"));
    for waiting in 0..1000 {
        scene.wait(bid(session, "e", &format!("w{waiting:04}")));
    }
    scene.resign("e", token, "").expect("given back");
    assert_eq!(scene.heard(), ["ended a: resigned", "elected w0000", "first w0001"], "C64");
    let mut watches = incumbent_store::watch::Watches::new();
    for waiting in 0..1000 {
        let who = incumbent_store::watch::CandidateTopic { election: "e".into(), identity: format!("w{waiting:04}") };
        let interest = incumbent_store::watch::Interest::of(incumbent_store::watch::Topic::Candidate(who));
        watches.add(waiting, interest);
    }
    let woken: Vec<u64> = scene.events.iter().flat_map(|it| watches.wanting(it)).collect();
    assert_eq!(woken, [0, 1], "the one that was elected, and the one that is first now");
}

#[test]
fn a_release_frees_its_own_leadership_or_nothing() {
    let mut scene = Scene::new();
    let session = scene.open(1000);
    let first = scene.win(bid(session, "e", "a"));
    scene.resign("e", first, "").expect("given back");
    scene.resign("e", first, "").expect("twice is as good as once");
    let second = scene.win(bid(session, "e", "b"));
    scene.resign("e", first, "").expect("nothing to do");
    assert!(scene.heard().is_empty());
    assert!(renew(&mut scene, "e", second).in_office);
    assert!(!renew(&mut scene, "e", first).in_office);
    assert!(!renew(&mut scene, "nowhere", second).in_office);
    scene.resign("nowhere", first, "").expect("nothing to do");
}

#[test]
fn a_seat_is_handed_over_to_a_name_or_an_identity_in_the_same_command() {
    let mut scene = Scene::new();
    let session = scene.open(1000);
    let first = scene.win(bid(session, "e", "a_1"));
    for waiting in ["b_1", "c_1", "d_1"] {
        scene.wait(bid(session, "e", waiting));
    }
    scene.resign("e", first, "c").expect("given back");
    assert_eq!(scene.heard(), ["ended a_1: resigned", "elected c_1"]);
    let second = scene.leaders("e")[0].1;
    scene.resign("e", second, "d_1").expect("given back");
    assert_eq!(scene.heard(), ["ended c_1: resigned", "elected d_1"]);
}

#[test]
fn nobody_is_asked_to_hand_over_to_a_name_that_nobody_in_line_has() {
    let mut scene = Scene::new();
    let (session, brief) = (scene.open(60_000), scene.open(1000));
    let token = scene.win(bid(session, "e", "a_1"));
    let ask = |to: &str| {
        let wish = Some(wish(token, Demand::HandOver, to));
        Command::Ask(Ask { election: "e".into(), wish, after_tenure: false, as_candidate: false, only_in_line: true })
    };
    let told = |refused: Result<Reply, Refusal>| match refused {
        Err(Refusal::NotInLine(who)) => who,
        other => panic!("{other:?}"),
    };
    assert!(told(scene.ask(ask("b"))).ends_with("nobody does"), "who leads does not wait");
    scene.wait(bid(brief, "e", "gone_1"));
    for waiting in ["b_1", "c_1"] {
        scene.wait(bid(session, "e", waiting));
    }
    scene.ask(Command::EndSession(EndSession { session: brief, ..EndSession::default() })).expect("it ends");
    scene.heard();
    for to in ["bb", "a", "gone", "gone_1"] {
        assert!(told(scene.ask(ask(to))).ends_with("there wait b, c"), "{to}");
    }
    assert!(scene.heard().is_empty());
    assert_eq!(renew(&mut scene, "e", token).wish, None, "the leader has heard nothing");
    for to in ["b", "c_1"] {
        scene.ask(ask(to)).expect("it waits");
        assert_eq!(renew(&mut scene, "e", token).wish, Some(wish(token, Demand::HandOver, to)));
    }
    // However many wait and whatever they are called, the answer is short enough to be kept for whoever repeats the request.
    for number in 0..100 {
        scene.wait(bid(session, "e", &format!("{number}-{}_1", "long".repeat(30))));
    }
    let long = "x".repeat(512);
    let refused = scene.ask(ask(&long));
    assert!(Outcome::of(&refused, u64::MAX).encoded_len() <= Limits::STANDARD.outcome_len_max);
    assert!(told(refused).ends_with(", and others"));
}

#[test]
fn a_seat_is_kept_for_a_successor_that_is_not_there_yet_and_then_anybodys() {
    let mut scene = Scene::new();
    let (brief, long) = (scene.open(1000), scene.open(60_000));
    let first = scene.win(bid(brief, "e", "a"));
    scene.wait(bid(long, "e", "b"));
    scene.resign("e", first, "z").expect("given back");
    assert_eq!(scene.heard(), ["ended a: resigned"]);
    scene.pass_ms(500);
    scene.wait(bid(long, "e", "b"));
    let second = scene.win(bid(long, "e", "z_1"));
    scene.resign("e", second, "y").expect("given back");
    scene.pass_ms(60_000);
    scene.keep_alive(&[long]);
    scene.expire();
    assert!(scene.leaders("e").is_empty(), "the drift is counted in");
    scene.pass_ms(31);
    scene.expire();
    assert_eq!(scene.leaders("e")[0].0, "b");
}

#[test]
fn several_seats_are_given_to_several() {
    let mut scene = Scene::new();
    let session = scene.open(1000);
    let three = |identity: &str| Campaign { seats: 3, ..bid(session, "e", identity) };
    let tokens: Vec<u64> = ["a", "b", "c"].iter().map(|it| scene.win(three(it))).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b));
    assert_eq!(scene.wait(three("d")).place, 1);
    assert_eq!(scene.campaign(bid(session, "e", "x")), Err(Refusal::SeatsDiffer(3)));
    scene.resign("e", tokens[1], "").expect("given back");
    let leaders: Vec<String> = scene.leaders("e").into_iter().map(|it| it.0).collect();
    assert_eq!(leaders, ["a", "c", "d"]);
    scene.end(session).expect("ended");
    assert!(scene.leaders("e").is_empty());
    let session = scene.open(1000);
    scene.win(Campaign { seats: 2, ..bid(session, "e", "a") });
}

#[test]
fn one_that_withdraws_is_not_waited_for() {
    let mut scene = Scene::new();
    let session = scene.open(1000);
    let token = scene.win(bid(session, "e", "a"));
    scene.wait(bid(session, "e", "b"));
    scene.wait(bid(session, "e", "c"));
    let withdraw = |identity: &str| Command::Withdraw(Withdraw { election: "e".into(), identity: identity.into() });
    scene.ask(withdraw("b")).expect("left");
    assert_eq!(scene.heard(), ["left b", "first c"]);
    scene.ask(withdraw("a")).expect("a seat is kept");
    scene.ask(withdraw("x")).expect("nothing to do");
    assert!(scene.heard().is_empty());
    scene.resign("e", token, "").expect("given back");
    assert_eq!(scene.leaders("e")[0].0, "c");
}

#[test]
fn a_wish_reaches_the_holder_and_nobody_else() {
    let mut scene = Scene::new();
    let session = scene.open(1000);
    let bid = Campaign { tenure_ms_min: 5000, ..bid(session, "e", "a") };
    let token = scene.win(bid);
    let ask = |wish: Wish, after_tenure| {
        Command::Ask(Ask { election: "e".into(), wish: Some(wish), after_tenure, as_candidate: false, only_in_line: false })
    };
    assert_eq!(scene.ask(ask(wish(token, Demand::HandOver, "b"), true)), Err(Refusal::TooEarly(5000)));
    scene.ask(ask(wish(token, Demand::HandOver, "b"), false)).expect("an operator need not wait");
    assert_eq!(scene.heard(), ["wished of a by operator"]);
    assert_eq!(renew(&mut scene, "e", token).wish, Some(wish(token, Demand::HandOver, "b")));
    scene.keep_alive(&[session]);
    scene.pass_ms(5000);
    scene.ask(ask(wish(token, Demand::Resign, ""), true)).expect("it has served");
    assert_eq!(renew(&mut scene, "e", token).wish, Some(wish(token, Demand::Resign, "")));
    assert!(matches!(scene.ask(ask(wish(token, Demand::HandOver, ""), false)), Err(Refusal::Malformed(_))));
    assert!(matches!(scene.ask(ask(wish(token, Demand::Evict, "b"), false)), Err(Refusal::Malformed(_))));
    assert!(matches!(scene.ask(ask(Wish { demand: 77, ..wish(token, Demand::Evict, "") }, false)), Err(Refusal::Malformed(_))));
    scene.resign("e", token, "").expect("given back");
    assert_eq!(scene.ask(ask(wish(token, Demand::Evict, ""), false)), Err(Refusal::NotInOffice(token)));
}

#[test]
fn a_forced_eviction_takes_the_seat_and_the_lock_delay_holds() {
    let mut scene = Scene::new();
    let session = scene.open_as(OpenSession { ttl_ms: 60_000, lock_delay_ms: 2000, ..OpenSession::default() }).expect("opened");
    let token = scene.win(bid(session, "e", "a"));
    scene.wait(bid(session, "e", "b"));
    let evict = Command::Evict(Evict { election: "e".into(), token, reason: "stuck".into() });
    scene.ask(evict.clone()).expect("evicted");
    assert_eq!(scene.heard(), ["ended a: stuck"]);
    assert_eq!(scene.ask(evict), Err(Refusal::NotInOffice(token)));
    assert_eq!(scene.wait(bid(session, "e", "b")).free_in_ms, 2000);
    scene.pass_ms(1999);
    assert!(!scene.expire().more && scene.leaders("e").is_empty());
    scene.pass_ms(1);
    assert_eq!(scene.store.expiry(), Some(scene.at));
    scene.expire();
    assert_eq!(scene.leaders("e")[0].0, "b");
}

#[test]
fn tokens_rise_above_all_that_were_seen() {
    let mut scene = Scene::new();
    let session = scene.open(60_000);
    let seen = 3 << 48 | 1 << 40;
    let first = scene.win(Campaign { seen, ..bid(session, "e", "a") });
    assert!(first > seen);
    scene.resign("e", first, "").expect("given back");
    let above = 9 << 48 | 5;
    scene.ask(Command::Raise(Raise { election: "e".into(), above })).expect("raised");
    let second = scene.win(bid(session, "e", "b"));
    assert!(second > above);
    let elsewhere = scene.win(bid(session, "other", "b"));
    assert!(elsewhere < 1 << 48, "no other election pays for it");
    let refused = scene.campaign(Campaign { seen: u64::MAX >> 1, ..bid(session, "new", "b") });
    assert_eq!(refused, Err(Refusal::TokensExhausted));
    assert!(scene.look("new").seats == 0 && scene.store.digest() != 0, "nothing is left of it");
    // Forgotten, and begun again: greater still.
    scene.resign("e", second, "").expect("given back");
    scene.ask(Command::Forget(Forget { election: "e".into() })).expect("forgotten");
    assert!(scene.win(bid(session, "e", "c")) > second);
    // After a restore: all elections.
    let above = u64::from(scene.store.incarnation()) << 48 | ((1 << 48) - 1);
    scene.ask(Command::Raise(Raise { election: String::new(), above })).expect("raised");
    assert!(scene.win(bid(session, "third", "c")) > above);
}

#[test]
fn a_candidate_says_what_it_has_seen_and_does_not_use_up_all_tokens_by_it() {
    let mut scene = Scene::new();
    let session = scene.open(60_000);
    // The last of the 16th incarnation, as often as it likes, and it gets no further.
    let seen = |incarnation: u64| Campaign { seen: incarnation << 48 | ((1 << 48) - 1), ..bid(session, "e", "a") };
    let mut last = 0;
    for incarnation in 0..16 {
        let token = scene.win(seen(incarnation));
        assert!(token > last && token >> 48 == incarnation + 1, "{token:x}");
        scene.resign("e", token, "").expect("given back");
        last = token;
    }
    for incarnation in [16, 300, 32765, 32766] {
        let refused = scene.campaign(seen(incarnation));
        let Err(Refusal::Denied(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains("incumbent raise") && why.contains(&incarnation.to_string()), "{why}");
    }
    assert!(scene.look("e").leaders.is_empty() && scene.look("e").incarnation == 16);
    // Whoever may raise it does so, and then it may have been seen.
    scene.ask(Command::Raise(Raise { election: "e".into(), above: 300 << 48 | 5 })).expect("raised");
    assert_eq!(scene.win(Campaign { seen: 300 << 48 | 5, ..bid(session, "e", "a") }) >> 48, 301);
}

#[test]
fn who_leads_or_waits_is_not_forgotten() {
    let mut scene = Scene::new();
    let session = scene.open(1000);
    let token = scene.win(bid(session, "e", "a"));
    let forget = |name: &str| Command::Forget(Forget { election: name.into() });
    assert_eq!(scene.ask(forget("e")), Err(Refusal::Occupied));
    assert_eq!(scene.ask(forget("x")), Err(Refusal::NoElection));
    scene.resign("e", token, "z").expect("given back");
    assert_eq!(scene.ask(forget("e")), Err(Refusal::Occupied), "it is kept for somebody");
}

#[test]
fn notes_and_completions_are_kept_and_fenced() {
    let mut scene = Scene::with_limits(Limits { records_max: 2, ..Limits::STANDARD });
    let session = scene.open(1000);
    let token = scene.win(bid(session, "e", "a"));
    let note = |token, text: &str| Command::Annotate(Annotate { election: "e".into(), token, text: text.into() });
    scene.ask(note(token, "begun")).expect("noted");
    scene.ask(note(token, "done")).expect("noted");
    assert_eq!(scene.ask(note(token + 1000, "never")), Err(Refusal::NotInOffice(token + 1000)));
    let done =
        |token, job: &str| Command::Complete(Complete { election: "e".into(), token, job: job.into(), outcome: "0".into() });
    scene.ask(done(token, "monday")).expect("recorded");
    assert_eq!(scene.ask(done(token, "monday")), Err(Refusal::AlreadyComplete(token)));
    scene.resign("e", token, "").expect("given back");
    assert_eq!(scene.ask(done(token, "tuesday")), Err(Refusal::NotInOffice(token)));
    assert_eq!(scene.ask(done(token, "monday")), Err(Refusal::AlreadyComplete(token)));
    scene.ask(note(token, "after the end")).expect("noted");
    let second = scene.win(bid(session, "e", "b"));
    scene.ask(note(second, "b's")).expect("noted");
    for job in ["tuesday", "wednesday"] {
        scene.ask(done(second, job)).expect("recorded");
    }
    let board = scene.look("e");
    let notes: Vec<_> = board.notes.iter().map(|it| (it.token, it.text.as_str())).collect();
    assert_eq!(notes, [(second, "b's"), (token, "after the end")]);
    let jobs: Vec<_> = board.completions.iter().map(|it| it.job.as_str()).collect();
    assert_eq!(jobs, ["wednesday", "tuesday"], "only so many are kept");
}

#[test]
fn the_board_tells_who_leads_who_waits_and_who_led() {
    let mut scene = Scene::with_limits(Limits { records_max: 3, ..Limits::STANDARD });
    let session = scene.open(60_000);
    assert_eq!(scene.look("e").leaders.len() + scene.look("e").past.len(), 0);
    for round in 0..5 {
        let token = scene.win(bid(session, "e", &format!("a{round}")));
        scene.pass_ms(70);
        let resign = Resign { election: "e".into(), token, reason: format!("reason {round}"), to: String::new() };
        scene.ask(Command::Resign(resign)).expect("given back");
    }
    let past = scene.look("e").past;
    assert_eq!(past.iter().map(|it| it.reason.as_str()).collect::<Vec<_>>(), ["reason 4", "reason 3", "reason 2"]);
    assert!(past.iter().all(|it| it.lasted_ms == 70 && it.until_wall_ms == it.since_wall_ms + 70 && it.since_wall_ms > 0));
    let token = scene.win(Campaign { value: "here".into(), ..bid(session, "e", "b") });
    scene.wait(Campaign { priority: 7, ..bid(session, "e", "c") });
    let proclaim = |token, value: &'static str| Command::Proclaim(Proclaim { election: "e".into(), token, value: value.into() });
    assert_eq!(scene.look("e").leaders[0].value, "here");
    scene.ask(proclaim(token, "there")).expect("proclaimed");
    assert_eq!(scene.ask(proclaim(token - 1, "late")), Err(Refusal::NotInOffice(token - 1)));
    let board = scene.look("e");
    assert_eq!((board.leaders[0].value.as_ref(), board.candidates[0].priority), (&b"there"[..], 7));
    let inquire = |who: &str| Query::Inquire(Inquire { election: "e".into(), identity: who.into() });
    let Ok(Answer::Seat(own)) = scene.store.query(&inquire("b")) else { panic!("no answer") };
    let Ok(Answer::Seat(other)) = scene.store.query(&inquire("c")) else { panic!("no answer") };
    assert_eq!((own.token, other.token, other.vacant), (token, 0, false));
}

#[test]
fn elections_do_not_know_each_other_and_are_listed_by_prefix() {
    let mut scene = Scene::new();
    let session = scene.open(1000);
    for name in ["a", "a.b", "a.b.c", "b"] {
        scene.win(bid(session, name, "x"));
    }
    let list = |prefix: &str, after: &str, limit| {
        let asked = ListElections { prefix: prefix.into(), after: after.into(), limit };
        match scene.store.query(&Query::Elections(asked)) {
            Ok(Answer::Elections(it)) => (it.elections.into_iter().map(|it| it.election).collect::<Vec<_>>(), it.more),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(list("", "", 0), (vec!["a".into(), "a.b".into(), "a.b.c".into(), "b".into()], false));
    assert_eq!(list("a.", "", 1), (vec!["a.b".into()], true));
    assert_eq!(list("a.", "a.b", 0), (vec!["a.b.c".into()], false));
    assert_eq!(list("a", "b", 0), (vec![], false));
}

#[test]
fn an_election_is_answered_however_long_its_values_are() {
    let mut scene = Scene::with_limits(Limits { answer_bytes_max: 20, ..Limits::STANDARD });
    let session = scene.open(1000);
    let bid = |election: &str, who: &str, len| Campaign { value: "v".repeat(len).into(), ..bid(session, election, who) };
    scene.win(bid("e", "a", 10));
    for (who, len) in [("b", 8), ("c", 8), ("d", 2), ("e", 1)] {
        scene.wait(bid("e", who, len));
    }
    let board = scene.look("e");
    assert_eq!(board.leaders[0].value.len(), 10);
    let told: Vec<_> = board.candidates.iter().map(|it| (it.identity.as_str(), it.value.len())).collect();
    assert_eq!(told, [("b", 8), ("c", 0), ("d", 2), ("e", 0)], "20 bytes of values, and everybody");
    let token = board.leaders[0].token;
    scene.resign("e", token, "c").expect("given back");
    assert_eq!(scene.look("e").leaders[0].value.len(), 8, "what is not told is not lost");
    // A list goes on behind what fits.
    scene.win(bid("f", "a", 100));
    scene.win(bid("g", "a", 1));
    let list =
        |after: &str| match scene.store.query(&Query::Elections(ListElections { after: after.into(), ..Default::default() })) {
            Ok(Answer::Elections(it)) => {
                (it.elections.iter().map(|it| it.leader.as_ref().map_or(0, |it| it.value.len())).collect(), it.more)
            }
            other => panic!("{other:?}"),
        };
    assert_eq!((list(""), list("e"), list("f")), ((vec![8], true), (vec![100], true), (vec![1], false)));
}

#[test]
fn all_who_lead_or_wait_have_so_many_bytes() {
    // Four at most; each is two of identity and name, and its value.
    let max = 4 * Limits::CANDIDACY_BYTES + 30;
    let limits = Limits { candidacies_bytes_max: max, ..Limits::STANDARD };
    let mut scene = Scene::with_limits(limits);
    let (session, other) = (scene.open(1000), scene.open(1000));
    let bid = |session, election: &str, who: &str, len| Campaign { value: "v".repeat(len).into(), ..bid(session, election, who) };
    let proclaim = |token, len| Command::Proclaim(Proclaim { election: "e".into(), token, value: "v".repeat(len).into() });
    let too_much = Err(Refusal::Limit { what: "bytes in all who lead or wait".into(), max: max as u64 });
    let token = scene.win(bid(session, "e", "a", 8));
    scene.wait(bid(session, "e", "b", 8));
    scene.win(bid(session, "f", "c", 4));
    // 26 of 30, and room for one more.
    assert_eq!(scene.campaign(bid(session, "e", "d", 3)), too_much);
    assert_eq!(scene.campaign(bid(session, "new", "d", 3)), too_much);
    scene.win(bid(session, "new", "d", 0));
    let digest = scene.store.digest();
    assert_eq!(scene.campaign(bid(session, "newer", "e", 0)), too_much, "however short it is");
    assert_eq!(scene.campaign(bid(session, "e", "b", 11)), too_much);
    assert_eq!(scene.ask(proclaim(token, 11)), too_much);
    assert_eq!(scene.store.digest(), digest, "nothing has changed");
    // However things go on, what is there is what counts: also after a snapshot.
    let pieces: Vec<Vec<u8>> = scene.store.save().collect();
    scene.store = Store::load_with_limits(&pieces, limits).expect("just saved");
    scene.wait(bid(other, "e", "b", 10));
    assert_eq!(scene.ask(proclaim(token, 9)), too_much);
    scene.ask(proclaim(token, 4)).expect("proclaimed");
    assert_eq!(scene.campaign(bid(other, "e", "a", 9)), too_much, "nor by coming back with more");
    let token = scene.win(bid(other, "e", "a", 8));
    assert_eq!(scene.campaign(bid(other, "e", "g", 0)), too_much);
    scene.resign("e", token, "").expect("given back");
    scene.wait(bid(other, "e", "g", 8));
    assert_eq!(scene.campaign(bid(other, "e", "h", 0)), too_much);
    scene.end(other).expect("ended");
    scene.end(session).expect("ended");
    let session = scene.open(1000);
    scene.win(bid(session, "e", "a", max - Limits::CANDIDACY_BYTES - 2));
    assert_eq!(scene.campaign(bid(session, "f", "a", 0)), too_much);
}

#[test]
fn a_wish_and_a_seat_that_is_kept_count_with_those_who_lead_or_wait() {
    let max = Limits::CANDIDACY_BYTES + 2 + Limits::WISH_BYTES + 10;
    let limits = Limits { candidacies_bytes_max: max, ..Limits::STANDARD };
    let mut scene = Scene::with_limits(limits);
    let session = scene.open(60_000);
    let again = |scene: &mut Scene| {
        let pieces: Vec<Vec<u8>> = scene.store.save().collect();
        scene.store = Store::load_with_limits(&pieces, limits).expect("just saved");
    };
    let too_much = Err(Refusal::Limit { what: "bytes in all who lead or wait".into(), max: max as u64 });
    let token = scene.win(bid(session, "e", "a"));
    let ask = |token, len| {
        let wish = Wish { token, demand: Demand::Resign as i32, to: String::new(), by: "b".repeat(len) };
        let (after_tenure, as_candidate, only_in_line) = (false, false, false);
        Command::Ask(Ask { election: "e".into(), wish: Some(wish), after_tenure, as_candidate, only_in_line })
    };
    let digest = scene.store.digest();
    assert_eq!((scene.ask(ask(token, 11)), scene.store.digest()), (too_much.clone(), digest));
    scene.ask(ask(token, 10)).expect("it fits");
    again(&mut scene);
    assert_eq!(scene.ask(ask(token, 11)), too_much);
    scene.ask(ask(token, 4)).expect("in place of the one before");
    scene.ask(ask(token, 10)).expect("it fits");
    // It goes with the leadership; whom the seat is kept for counts as long as it is.
    scene.resign("e", token, &"z".repeat(40)).expect("whoever gives a seat back is not refused");
    again(&mut scene);
    assert_eq!(scene.campaign(bid(session, "f", "a")), too_much, "90 are kept, and 76 were free");
    scene.pass_ms(59_000);
    scene.keep_alive(&[session]);
    scene.pass_ms(5_000);
    scene.expire();
    let token = scene.win(bid(session, "e", "a"));
    scene.ask(ask(token, 10)).expect("all is free again");
}

#[test]
fn the_same_candidate_with_a_new_session_is_the_same_candidate() {
    let mut scene = Scene::new();
    let (first, second) = (scene.open(1000), scene.open(60_000));
    let token = scene.win(bid(first, "e", "a"));
    scene.wait(bid(first, "e", "b"));
    let again = scene.win(bid(second, "e", "a"));
    assert!(again > token, "what its former life has sent with the other token is not taken for its own");
    assert_eq!(scene.leaders("e").len(), 1, "C63: one candidate, one place");
    scene.wait(bid(second, "e", "b"));
    scene.end(first).expect("ended");
    assert_eq!(scene.heard(), ["session ended: session ended"]);
    assert_eq!(scene.leaders("e"), [("a".to_owned(), again)]);
    scene.end(second).expect("ended");
    assert!(scene.leaders("e").is_empty() && scene.look("e").candidates.is_empty());
}

#[test]
fn who_comes_back_with_a_new_session_leads_by_its_new_bid() {
    let mut scene = Scene::new();
    let (first, second) = (scene.open(1000), scene.open(60_000));
    let old = Campaign { value: "old".into(), priority: 5, tenure_ms_min: 7000, ..bid(first, "e", "a") };
    let former = scene.win(old.clone());
    let new = Campaign {
        session: second,
        name: "other".into(),
        value: "new".into(),
        priority: -1,
        tenure_ms_min: 9,
        ..bid(first, "e", "a")
    };
    let digest = scene.store.digest();
    let refused = scene.campaign(Campaign { seen: u64::MAX >> 1, ..new.clone() });
    assert_eq!((refused, scene.store.digest()), (Err(Refusal::TokensExhausted), digest));
    let token = scene.win(new);
    let board = scene.look("e");
    let told = |it: &incumbent_store::election::Holder| (it.name.clone(), it.value.clone(), it.priority, it.tenure_ms_min);
    assert_eq!(told(&board.leaders[0]), ("other".to_owned(), "new".into(), -1, 9));
    assert!(token > former && board.past[0].name == "a");
    // With the same session it is the same leadership: what it publishes is changed by `Proclaim`.
    assert_eq!(scene.win(Campaign { session: second, ..old }), token);
    assert_eq!(scene.look("e").leaders[0].value, "new");
}

/// A session that has ended and from which nothing of `e` is taken yet, and the way to such: it also leads an election that comes before.
fn end_but_keep(scene: &mut Scene, session: u64) {
    scene.win(bid(session, "before", &format!("first-{session}")));
    scene.end(session).expect("ended");
    assert!(scene.leaders("before").is_empty() && scene.store.expiry().is_some());
}

#[test]
fn a_seat_that_is_kept_for_a_name_goes_to_the_second_of_that_name_once_the_dead_first_is_passed_by() {
    let mut scene = Scene::with_limits(Limits { ended_at_once_max: 1, ..Limits::STANDARD });
    let (dead, lives) = (scene.open(60_000), scene.open(60_000));
    let two = |session, identity: &str| Campaign { seats: 2, ..bid(session, "e", identity) };
    let (a, b) = (scene.win(two(lives, "a")), scene.win(two(lives, "b")));
    for (session, identity) in [(dead, "n_1"), (lives, "w"), (lives, "n_2")] {
        scene.wait(two(session, identity));
    }
    end_but_keep(&mut scene, dead);
    scene.resign("e", a, "n").expect("given back");
    assert_eq!(scene.look("e").leaders.len(), 1, "the first of that name is dead, and in the way");
    scene.resign("e", b, "").expect("given back");
    let leaders: Vec<String> = scene.leaders("e").into_iter().map(|it| it.0).collect();
    assert_eq!(leaders, ["n_2", "w"]);
    assert!(scene.look("e").reservations.is_empty());
}

#[test]
fn a_bid_that_is_refused_has_not_ended_what_its_candidate_is_about_to_lose() {
    let limits = Limits { ended_at_once_max: 1, line_len_max: 1, ..Limits::STANDARD };
    let mut scene = Scene::with_limits(limits);
    let (dead, lives) = (scene.open(60_000), scene.open(60_000));
    let token = scene.win(bid(dead, "e", "a"));
    scene.wait(bid(lives, "e", "b"));
    end_but_keep(&mut scene, dead);
    let digest = scene.store.digest();
    let refused = scene.campaign(Campaign { seen: u64::MAX >> 1, ..bid(lives, "e", "a") });
    assert!(matches!(refused, Err(Refusal::Limit { max: 1, .. })), "the line is full: {refused:?}");
    assert_eq!((scene.leaders("e"), scene.store.digest()), (vec![("a".to_owned(), token)], digest));
    // And the same for one who waits.
    let withdraw = Withdraw { election: "e".into(), identity: "b".into() };
    scene.ask(Command::Withdraw(withdraw)).expect("left");
    let digest = scene.store.digest();
    let refused = scene.campaign(Campaign { seen: u64::MAX >> 1, ..bid(lives, "e", "a") });
    assert_eq!((refused, scene.store.digest()), (Err(Refusal::TokensExhausted), digest));
    // One that is not refused ends it.
    assert!(scene.win(bid(lives, "e", "a")) > token);
}

#[test]
fn one_may_look_for_a_free_seat_without_waiting() {
    let mut scene = Scene::new();
    let session = scene.open(1000);
    let only = |who: &str| Campaign { only_if_free: true, ..bid(session, "e", who) };
    scene.win(only("a"));
    assert_eq!(scene.wait(only("b")).place, 0);
    assert!(scene.look("e").candidates.is_empty());
}

#[test]
fn what_is_too_long_or_too_much_is_refused_by_name() {
    let limits = Limits { elections_max: 2, line_len_max: 1, seats_max: 5, ..Limits::STANDARD };
    let mut scene = Scene::with_limits(limits);
    let session = scene.open(1000);
    let refused = |scene: &mut Scene, bid: Campaign| match scene.campaign(bid) {
        Err(Refusal::Limit { what, .. } | Refusal::Malformed(what)) => what,
        other => panic!("{other:?}"),
    };
    assert!(refused(&mut scene, bid(session, "", "a")).contains("name"));
    assert!(refused(&mut scene, bid(session, "e", "")).contains("identity"));
    assert!(refused(&mut scene, bid(session, &"x".repeat(513), "a")).contains("name"));
    assert!(refused(&mut scene, bid(session, "e", &"x".repeat(513))).contains("identity"));
    assert!(refused(&mut scene, Campaign { seats: 6, ..bid(session, "e", "a") }).contains("seats"));
    let value = vec![0; (1 << 20) + 1].into();
    assert!(refused(&mut scene, Campaign { value, ..bid(session, "e", "a") }).contains("value"));
    assert_eq!(scene.campaign(bid(999, "e", "a")), Err(Refusal::SessionGone(999)));
    scene.win(bid(session, "e", "a"));
    scene.wait(bid(session, "e", "b"));
    assert!(refused(&mut scene, bid(session, "e", "c")).contains("line"));
    scene.win(bid(session, "f", "a"));
    assert!(refused(&mut scene, bid(session, "g", "a")).contains("elections"));
}

/// Wins and resigns, so that only history is left.
fn hold_once(scene: &mut Scene, session: u64, election: &str) -> u64 {
    let token = scene.win(bid(session, election, "a"));
    scene.resign(election, token, "").expect("given back");
    token
}

fn known(scene: &Scene) -> Vec<String> {
    match scene.store.query(&Query::Elections(ListElections::default())) {
        Ok(Answer::Elections(list)) => list.elections.into_iter().map(|it| it.election).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn where_there_is_no_room_the_election_is_forgotten_that_was_led_longest_ago() {
    let limits = Limits { elections_max: 3, ..Limits::STANDARD };
    let mut scene = Scene::with_limits(limits);
    let session = scene.open(3_600_000);
    let mut last = 0;
    for election in ["b", "c", "a"] {
        scene.pass_ms(1);
        last = hold_once(&mut scene, session, election);
    }
    // Held again, so another is older.
    scene.pass_ms(1);
    assert!(hold_once(&mut scene, session, "b") > last);
    // The order is one of the store, and not of how it came to be.
    scene.store = Store::load_with_limits(scene.store.save(), limits).expect("just saved");
    let refused = Campaign { seen: u64::MAX >> 1, ..bid(session, "x", "a") };
    assert_eq!(scene.campaign(refused), Err(Refusal::TokensExhausted));
    assert_eq!(known(&scene), ["a", "b", "c"], "for one that is refused nothing is forgotten");
    let mut tokens = Vec::new();
    for (election, left) in [("x", ["a", "b", "x"]), ("y", ["b", "x", "y"]), ("z", ["x", "y", "z"])] {
        scene.pass_ms(1);
        tokens.push(scene.win(bid(session, election, "a")));
        assert_eq!(known(&scene), left);
    }
    let refused = scene.campaign(bid(session, "c", "a"));
    assert_eq!(refused, Err(Refusal::Limit { what: "elections".into(), max: 3 }), "all are held");
    scene.resign("y", tokens[1], "").expect("given back");
    assert!(scene.win(bid(session, "c", "a")) > tokens[2], "tokens rise, though what was before is forgotten");
    assert_eq!(known(&scene), ["c", "x", "z"]);
}

#[test]
fn what_must_be_remembered_of_an_election_is_not_forgotten_for_another() {
    let limits = Limits { elections_max: 1, ..Limits::STANDARD };
    let kept = |prepare: &dyn Fn(&mut Scene, u64)| {
        let mut scene = Scene::with_limits(limits);
        let open = OpenSession { ttl_ms: 3_600_000, lock_delay_ms: 1000, ..OpenSession::default() };
        let session = scene.open_as(open).expect("opened");
        prepare(&mut scene, session);
        let before = scene.store.digest();
        let refused = scene.campaign(bid(session, "other", "a"));
        let is_kept = matches!(refused, Err(Refusal::Limit { .. }));
        assert!(!is_kept || scene.store.digest() == before);
        (is_kept, scene, session)
    };
    let (is_kept, ..) = kept(&|scene, session| {
        hold_once(scene, session, "e");
    });
    assert!(!is_kept, "history alone");
    let (is_kept, ..) = kept(&|scene, session| {
        let token = hold_once(scene, session, "e");
        scene.ask(Command::Annotate(Annotate { election: "e".into(), token, text: "fine".into() })).expect("noted");
    });
    assert!(is_kept, "a note");
    let (is_kept, ..) = kept(&|scene, session| {
        let token = scene.win(bid(session, "e", "a"));
        let job = Complete { election: "e".into(), token, job: "monday".into(), outcome: "0".into() };
        scene.ask(Command::Complete(job)).expect("done");
        scene.resign("e", token, "").expect("given back");
    });
    assert!(is_kept, "a job that was done");
    let (is_kept, ..) = kept(&|scene, session| {
        let token = hold_once(scene, session, "e");
        scene.ask(Command::Raise(Raise { election: "e".into(), above: token | 1 << 48 })).expect("raised");
    });
    assert!(is_kept, "its tokens are above the others'");
    let (is_kept, ..) = kept(&|scene, session| {
        let token = scene.win(bid(session, "e", "a"));
        scene.resign("e", token, "b").expect("given back");
    });
    assert!(is_kept, "a seat is kept for somebody");
    let (is_kept, mut scene, session) = kept(&|scene, session| {
        let token = scene.win(bid(session, "e", "a"));
        scene.ask(Command::Evict(Evict { election: "e".into(), token, reason: String::new() })).expect("evicted");
    });
    assert!(is_kept, "a lock delay runs");
    scene.pass_ms(1000);
    scene.expire();
    scene.win(bid(session, "other", "a"));
}

#[test]
fn what_is_remembered_has_a_limit_and_history_makes_room() {
    // Three short leaderships.
    let limits = Limits { past_bytes_max: 350, notes_bytes_max: 250, ..Limits::STANDARD };
    let mut scene = Scene::with_limits(limits);
    let session = scene.open(3_600_000);
    for election in ["idle-2", "idle-1", "busy"] {
        scene.pass_ms(1);
        hold_once(&mut scene, session, election);
    }
    let mut token = scene.win(bid(session, "busy", "a"));
    // Deserted elections first, then its own.
    for (next, left, past) in [("b", vec!["busy", "idle-1"], 2), ("c", vec!["busy"], 3), ("d", vec!["busy"], 3)] {
        scene.store = Store::load_with_limits(scene.store.save(), limits).expect("just saved");
        scene.wait(bid(session, "busy", next));
        scene.resign("busy", token, "").expect("given back");
        token = scene.leaders("busy")[0].1;
        assert_eq!(known(&scene), left);
        assert_eq!(scene.look("busy").past.len(), past);
    }
    assert_eq!(scene.look("busy").past[0].identity, "c", "the newest is kept");
    let note = |token, text: &str| Command::Annotate(Annotate { election: "busy".into(), token, text: text.into() });
    scene.ask(note(token, "fine")).expect("noted");
    scene.ask(note(token, "fine")).expect("noted, in place of the other");
    scene.ask(note(token - 1, "fine")).expect("noted");
    let max = limits.notes_bytes_max as u64;
    let full = Refusal::Limit { what: "bytes in all notes and jobs that were done".into(), max };
    assert_eq!(scene.ask(note(token - 2, "fine")), Err(full.clone()));
    let job = Complete { election: "busy".into(), token, job: "monday".into(), outcome: "0".into() };
    assert_eq!(scene.ask(Command::Complete(job)), Err(full));
}

#[test]
fn a_seat_is_free_to_the_one_it_is_kept_for() {
    let mut scene = Scene::new();
    let session = scene.open(60_000);
    let only = |election: &str, who: &str| Campaign { only_if_free: true, ..bid(session, election, who) };
    for (election, kept_for) in [("by-identity", "b_1"), ("by-name", "b")] {
        let token = scene.win(bid(session, election, "a"));
        scene.resign(election, token, kept_for).expect("given back");
        assert_eq!(scene.wait(only(election, "c_1")).place, 0, "it is kept for somebody else");
        scene.wait(bid(session, election, "d_1"));
        scene.win(only(election, "b_1"));
        assert_eq!(scene.leaders(election).len(), 1);
    }
    // A seat that a lock delay keeps is kept for nobody.
    let delayed = scene.open_as(OpenSession { ttl_ms: 1000, lock_delay_ms: 60_000, ..OpenSession::default() }).expect("opened");
    scene.win(bid(delayed, "delayed", "a"));
    scene.pass_ms(2000);
    scene.expire();
    assert_eq!(scene.wait(only("delayed", "a")).place, 0);
    // Nor is one free any more whose time is over while others wait.
    let token = scene.win(bid(session, "late", "a"));
    scene.resign("late", token, "b").expect("given back");
    scene.wait(bid(session, "late", "c"));
    scene.pass_ms(59_000);
    scene.keep_alive(&[session]);
    scene.pass_ms(5_000);
    assert_eq!(scene.wait(only("late", "b")).place, 0);
}
