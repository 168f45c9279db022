//! What a command costs does not grow with how much else there is: sixty times as many sessions, elections or candidates cost sixty times as much in all, not its square.
//!
//! Counted in time on the processor, which a busy machine does not lengthen much; between the line and the square there is room for what it does, and for the logarithm.

mod scene;

use incumbent_store::command::*;
use incumbent_store::keys::transaction::Put;
use scene::{Scene, bid, put};

const FEW: u64 = 1_000;
const TIMES: u64 = 60;
/// Twice as much as what is linear costs with memory that no longer fits the processor's; what looked at all that were ending cost more than twice this.
const COST_TIMES_MAX: u64 = 300;

/// What this thread has had of the processor, in nanoseconds.
fn spent() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    stat.split_whitespace().next().and_then(|it| it.parse().ok()).expect("a number")
}

/// Sessions that all end in the same second, each with a seat and some keys (C65).
fn mass_expiry(sessions: u64) -> u64 {
    let mut scene = Scene::new();
    for id in 1..=sessions {
        let session = 1_000_000 + id;
        scene.open_as(OpenSession { session, ttl_ms: 100, ..OpenSession::default() }).expect("opened");
        scene.win(bid(session, &format!("e{id}"), "a"));
        for key in 0..4 {
            scene.ask(Command::Put(Put { session, ..put(&format!("k{id}/{key}"), "") })).expect("written");
        }
    }
    scene.pass_ms(1000);
    let start = spent();
    while scene.expire().more {}
    assert_eq!(scene.store.expiry(), None);
    spent() - start
}

/// A line that is handed along by name, while the seat is also kept for somebody who never comes (C64).
fn long_line(candidates: u64) -> u64 {
    let mut scene = Scene::new();
    let session = scene.open(60_000);
    let two = |identity: &str| Campaign { seats: 2, ..bid(session, "e", identity) };
    let start = spent();
    let (first, mut token) = (scene.win(two("first")), scene.win(two("second")));
    scene.resign("e", first, "nobody").expect("given back");
    for id in 0..candidates {
        scene.wait(two(&format!("c{id:06}_1")));
    }
    for id in (0..candidates).rev() {
        scene.resign("e", token, &format!("c{id:06}")).expect("given back");
        let elected = scene.events.iter().find_map(|it| match &it.change {
            Some(incumbent_store::event::Change::Elected(elected)) => Some(elected.holder.token),
            Some(_) | None => None,
        });
        token = elected.expect("the next");
    }
    spent() - start
}

fn check(what: &str, run: fn(u64) -> u64) {
    let few = (0..3).map(|_| run(FEW)).min().expect("three");
    let many = run(FEW * TIMES);
    assert!(many < few * COST_TIMES_MAX, "{what}: {few} ns for {FEW}, {many} ns for {TIMES} times as many");
}

#[test]
fn ending_a_session_costs_the_same_however_many_end() {
    check("mass expiry", mass_expiry);
}

#[test]
fn handing_over_costs_the_same_however_many_wait() {
    check("a long line", long_line);
}
