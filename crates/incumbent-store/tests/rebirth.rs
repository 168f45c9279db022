//! A store that is brought back in another cluster gives nothing again, and lets nobody lead whom another may believe to succeed (C60).

mod scene;

use incumbent_store::command::*;
use incumbent_store::keys::transaction::Put;
use incumbent_store::query::{Answer, ListElections, Query, ReadEvents};
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::Reply;
use incumbent_store::store::Store;
use proptest::prelude::*;
use scene::{Scene, bid, put};

fn restored(scene: &Scene, above: u64) -> Result<Scene, Refusal> {
    let pieces: Vec<Vec<u8>> = scene.store.save().collect();
    let mut again = Scene::new();
    again.store = Store::load(&pieces).expect("just saved");
    again.store.begin_anew(7, above)?;
    again.at = again.store.now();
    Ok(again)
}

#[test]
fn tokens_go_on_above_all_that_the_former_cluster_gave_after_the_backup() {
    let mut old = Scene::new();
    let session = old.open(1000);
    let before = old.win(bid(session, "e", "a"));
    let mut new = restored(&old, 0).expect("restored");
    // The old one went on.
    old.resign("e", before, "").expect("given back");
    let after = old.win(bid(session, "e", "b"));
    let numbers = [old.open(1000), old.open(1000)];
    let (session, again) = (new.open(1000), restored(&new, 0).expect("restored once more"));
    assert!(!numbers.contains(&session), "nor is a session's number given again");
    new.pass_ms(2000);
    new.keep_alive(&[session]);
    new.expire();
    assert!(new.win(bid(session, "e", "c")) > after, "L1");
    assert_eq!((new.store.incarnation(), again.store.incarnation()), (1, 2));
    let above = restored(&old, 9 << 48 | 5).expect("restored");
    assert_eq!(above.store.incarnation(), 10);
}

#[test]
fn what_was_held_is_nobodys_for_as_long_as_its_holder_may_believe() {
    let mut old = Scene::new();
    let (holder, waiting) = (old.open(1000), old.open(60_000));
    old.win(bid(holder, "e", "a"));
    old.wait(bid(waiting, "e", "b"));
    old.ask(Command::Put(Put { session: holder, ..put("lock", "mine") })).expect("written");
    old.put("kept", "v").expect("written");
    old.pass_ms(990);
    let mut new = restored(&old, 0).expect("restored");
    assert!(new.leaders("e").is_empty() && new.look("e").candidates.is_empty());
    assert_eq!(new.look("e").past[0].reason, "restored from a backup");
    assert_eq!(new.keep_alive(&[holder, waiting]), [holder, waiting], "their owners are told");
    assert!(new.value("lock").is_none() && new.value("kept").is_some());
    let session = new.open(60_000);
    new.wait(bid(session, "e", "c"));
    new.pass_ms(1000);
    new.expire();
    assert!(new.leaders("e").is_empty(), "its ttl begins anew: nobody knows when it was last renewed");
    new.pass_ms(1);
    new.expire();
    assert_eq!(new.leaders("e")[0].0, "c");
}

#[test]
fn an_election_that_was_raised_stays_above_its_own() {
    let mut old = Scene::new();
    let session = old.open(1000);
    let token = old.win(Campaign { seen: 6 << 48, ..bid(session, "raised", "a") });
    let mut new = restored(&old, 0).expect("restored");
    let session = new.open(60_000);
    new.pass_ms(2000);
    new.expire();
    let again = new.win(bid(session, "raised", "b"));
    assert!(again >> 48 > token >> 48, "{again:x} after {token:x}");
}

#[test]
fn an_election_whose_incarnations_are_used_up_does_not_keep_the_others_from_being_brought_back() {
    let mut old = Scene::new();
    let above = 32766 << 48 | 5;
    old.ask(Command::Raise(Raise { election: "spent".into(), above })).expect("raised");
    let session = old.open(1000);
    let before = old.win(bid(session, "spent", "a"));
    old.put("kept", "v").expect("written");
    let mut new = restored(&old, 0).expect("restored");
    // The old one went on.
    old.resign("spent", before, "").expect("given back");
    let after = old.win(bid(session, "spent", "b"));
    assert!(new.value("kept").is_some() && new.store.incarnation() == 1);
    let session = new.open(60_000);
    new.pass_ms(2000);
    new.expire();
    assert!(new.win(bid(session, "spent", "c")) > after, "by the revisions that were left out");
    assert_eq!(new.win(bid(session, "other", "c")) >> 48, 1);
}

#[test]
fn an_election_that_was_raised_and_forgotten_does_not_use_up_the_tokens_of_the_others() {
    let mut old = Scene::new();
    let session = old.open(1000);
    old.ask(Command::Raise(Raise { election: "mine".into(), above: 32766 << 48 | 5 })).expect("raised");
    let before = old.win(bid(session, "mine", "a"));
    old.resign("mine", before, "").expect("given back");
    let forget = || Command::Forget(Forget { election: "mine".into() });
    old.ask(forget()).expect("forgotten");
    assert_eq!(old.store.incarnation(), 0);
    assert!(old.look("mine").past.is_empty(), "nothing but its incarnation is left");
    assert_eq!(old.ask(forget()), Err(Refusal::NoElection));
    let listed = old.store.query(&Query::Elections(ListElections::default()));
    assert!(matches!(&listed, Ok(Answer::Elections(it)) if it.elections.is_empty()), "{listed:?}");
    let mut new = restored(&old, 0).expect("restored");
    let session = new.open(60_000);
    let token = new.win(bid(session, "mine", "b"));
    assert!(token > before, "{token:x} after {before:x}");
    // Once all others have come as far, nothing of it needs to be remembered.
    new.resign("mine", token, "").expect("given back");
    new.ask(Command::Raise(Raise { election: String::new(), above: 32766 << 48 | 5 })).expect("raised");
    new.ask(forget()).expect("forgotten");
    assert_eq!(new.ask(forget()), Err(Refusal::NoElection));
    assert!(new.win(bid(session, "mine", "c")) > token);
}

#[test]
fn nobody_resumes_where_another_history_went_on() {
    let mut old = Scene::new();
    let Ok(Reply::Introduced(client)) = old.ask(Command::Introduce(Introduce {})) else { panic!("refused") };
    old.request(Request::numbered(client, 1, Command::Put(put("k", "v")))).expect("written");
    let revision = old.store.revision();
    let mut new = restored(&old, 0).expect("restored");
    let again = new.request(Request::numbered(client, 1, Command::Put(put("k", "v"))));
    assert_eq!(again, Err(Refusal::Forgotten), "it may have happened, there");
    let watched = new.store.query(&Query::Events(ReadEvents { from: revision + 1, interest: None, limit: 0 }));
    assert!(matches!(watched, Err(Refusal::Compacted(_))), "{watched:?}");
}

#[test]
fn when_tokens_are_used_up_it_is_said_and_nothing_has_changed() {
    let mut store = Store::new((1 << 15) - 1);
    let before = store.digest();
    assert_eq!(store.begin_anew(0, 0), Err(Refusal::TokensExhausted));
    assert_eq!(Store::new(0).begin_anew(0, u64::MAX), Err(Refusal::TokensExhausted));
    assert_eq!(store.digest(), before);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is attached to whatever: nothing is left of sessions, and what is left can be saved and loaded.
    #[test]
    fn nothing_of_a_session_is_left(steps in prop::collection::vec((0u8..5, 0u8..4, 0u8..4), 0..60)) {
        let mut old = Scene::new();
        let sessions: Vec<u64> = (0..4).map(|it| old.open(500 + it * 100)).collect();
        for (kind, a, b) in steps {
            let session = sessions[usize::from(a)];
            match kind {
                0..=1 => drop(old.campaign(bid(session, &format!("e{b}"), &format!("c{a}")))),
                2 => drop(old.ask(Command::Put(Put { session, ..put(&format!("k{b}"), "") }))),
                3 => drop(old.put(&format!("free{b}"), "")),
                _ => drop(old.end(session)),
            }
        }
        let new = restored(&old, 0).expect("restored");
        prop_assert_eq!(new.store.digest(), restored(&old, 0).expect("restored").store.digest(), "the same on every node");
        let text = format!("{:?}", new.store);
        prop_assert!(text.contains("sessions: {}") && text.contains("candidacies: {}"), "{text}");
        prop_assert!(text.contains("candidacies_bytes: 0"), "{text}");
        let pieces: Vec<Vec<u8>> = new.store.save().collect();
        prop_assert_eq!(Store::load(&pieces).expect("saved").digest(), new.store.digest());
    }
}
