//! The exhaustive check of the shipping protocols in small scope, and that it would see a fault if there were one.
//!
//! Every configuration is searched in several scopes, whole where that is possible; together they must meet every [`Case`], or
//! the configuration has proved little. `cargo test -p incumbent-lab --test check -- --nocapture` prints how many states that are.

#![allow(clippy::print_stdout, reason = "how much was searched is part of the result")]

use std::sync::Mutex;

use incumbent_lab::check::{Begin, Budget, Case, Disk, End, Property, Refused, Report, Scope, check};
use incumbent_lab::jobs::Audience;
use incumbent_protocol::machine::Kind;
use incumbent_protocol::settings::{Guard, Invalid, PreVote};

/// Less would not be worth the name.
const STATES_MIN: usize = 100_000;

const NOTHING: Budget = Budget { crashes: 0, losses: 0, repeats: 0, wakes: 0, requests: 0 };

fn searched(scope: &Scope) -> Report {
    check(scope, &()).unwrap()
}

/// How much of a scope is searched.
#[derive(Clone, Copy)]
enum Extent {
    /// All of it.
    Whole,
    /// The states nearest to the beginning, so many.
    Nearest(usize),
}

use Begin::{Cold, Led};
use Extent::{Nearest, Whole};

const NEAR: Extent = Nearest(300_000);
const FAR: Extent = Nearest(1_000_000);

/// Searches a protocol in each of these scopes: nothing is violated, and together they meet every case.
fn holds(protocol: Kind, guard: Guard, pre_vote: PreVote, scopes: &[(Begin, Budget, Extent)]) {
    let (mut states, mut met) = (0, [0; Case::ALL.len()]);
    for &(begin, budget, extent) in scopes {
        let (states_max, end) = match extent {
            // Whoever makes a protocol more talkative must look at the scopes anew.
            Whole => (8_000_000, End::Complete),
            Nearest(states_max) => (states_max, End::Cut),
        };
        let report = searched(&Scope { guard, pre_vote, begin, budget, states_max, ..Scope::of(protocol) });
        println!("{report}");
        assert!(report.violations.is_empty(), "{report}");
        assert_eq!(report.end, end, "{report}");
        states += report.states;
        met.iter_mut().zip(report.met).for_each(|(sum, count)| *sum += count);
    }
    assert!(states >= STATES_MIN, "{protocol}: only {states} states");
    for (case, count) in Case::ALL.into_iter().zip(met) {
        assert!(count > 0, "{protocol} {guard:?} {pre_vote:?}: never: {}", case.name());
    }
}

const WAKE: Budget = Budget { wakes: 1, ..NOTHING };
const WAKE_TWICE: Budget = Budget { wakes: 2, ..NOTHING };
const CRASH_ONCE: Budget = Budget { crashes: 1, wakes: 1, ..NOTHING };
const CRASH: Budget = Budget { crashes: 1, wakes: 2, ..NOTHING };
const CRASH_AND_REPEAT: Budget = Budget { crashes: 1, wakes: 1, repeats: 1, ..NOTHING };
const REQUEST: Budget = Budget { requests: 1, wakes: 1, ..NOTHING };
const CRASH_AND_REQUEST: Budget = Budget { crashes: 1, requests: 1, wakes: 1, ..NOTHING };

#[test]
fn raft() {
    let scopes = [(Cold, CRASH_AND_REPEAT, Whole), (Cold, CRASH, NEAR), (Led, CRASH, Whole), (Led, REQUEST, Whole)];
    holds(Kind::Raft, Guard::Majority, PreVote::On, &scopes);
}

#[test]
fn raft_without_pre_vote() {
    let twice = Budget { crashes: 2, wakes: 1, ..NOTHING };
    let scopes = [(Cold, CRASH, Whole), (Cold, twice, Whole), (Led, CRASH, Whole), (Led, CRASH_AND_REQUEST, Whole)];
    holds(Kind::Raft, Guard::Majority, PreVote::Off, &scopes);
}

#[test]
fn raft_without_guard() {
    let scopes = [(Cold, CRASH_AND_REPEAT, Whole), (Led, CRASH, Whole), (Led, REQUEST, Whole)];
    holds(Kind::Raft, Guard::Off, PreVote::On, &scopes);
}

#[test]
fn raft_without_guard_and_pre_vote() {
    let scopes = [(Cold, CRASH, Whole), (Led, CRASH, Whole), (Led, CRASH_AND_REQUEST, Whole)];
    holds(Kind::Raft, Guard::Off, PreVote::Off, &scopes);
}

#[test]
fn bully() {
    let scopes = [(Cold, CRASH_ONCE, Whole), (Led, CRASH, Whole), (Led, CRASH_AND_REQUEST, FAR)];
    holds(Kind::Bully, Guard::Majority, PreVote::On, &scopes);
}

#[test]
fn bully_without_pre_vote() {
    let scopes = [(Cold, CRASH_AND_REPEAT, Whole), (Led, CRASH, Whole), (Led, REQUEST, Whole)];
    holds(Kind::Bully, Guard::Majority, PreVote::Off, &scopes);
}

#[test]
fn bully_without_guard() {
    let scopes = [(Cold, CRASH, Whole), (Led, CRASH, Whole), (Led, CRASH_AND_REQUEST, Whole)];
    holds(Kind::Bully, Guard::Off, PreVote::On, &scopes);
}

#[test]
fn ring() {
    let scopes = [(Cold, WAKE, Whole), (Cold, CRASH, NEAR), (Led, CRASH_AND_REQUEST, FAR)];
    holds(Kind::Ring, Guard::Majority, PreVote::On, &scopes);
}

#[test]
fn ring_without_pre_vote() {
    let scopes = [(Cold, WAKE, Whole), (Led, CRASH, Whole), (Led, CRASH_AND_REQUEST, FAR)];
    holds(Kind::Ring, Guard::Majority, PreVote::Off, &scopes);
}

#[test]
fn ring_without_guard() {
    let scopes = [(Cold, WAKE, Whole), (Cold, CRASH, NEAR), (Led, REQUEST, Whole), (Led, CRASH, FAR)];
    holds(Kind::Ring, Guard::Off, PreVote::On, &scopes);
}

#[test]
fn chang_roberts() {
    let scopes = [(Cold, WAKE, Whole), (Led, WAKE_TWICE, Whole), (Led, CRASH, FAR), (Led, CRASH_AND_REQUEST, FAR)];
    holds(Kind::ChangRoberts, Guard::Majority, PreVote::On, &scopes);
}

#[test]
fn chang_roberts_without_pre_vote() {
    let scopes =
        [(Cold, WAKE, Whole), (Cold, CRASH, NEAR), (Led, WAKE_TWICE, Whole), (Led, CRASH, FAR), (Led, CRASH_AND_REQUEST, FAR)];
    holds(Kind::ChangRoberts, Guard::Majority, PreVote::Off, &scopes);
}

#[test]
fn chang_roberts_without_guard() {
    let scopes = [(Cold, CRASH_ONCE, Whole), (Led, CRASH, Whole)];
    holds(Kind::ChangRoberts, Guard::Off, PreVote::On, &scopes);
}

/// A scope in which a disk that does not keep its word is found out.
fn with_disk(disk: Disk) -> Scope {
    Scope { disk, pre_vote: PreVote::Off, begin: Cold, budget: CRASH, states_max: 400_000, ..Scope::of(Kind::Raft) }
}

#[test]
fn a_disk_that_forgets_is_found_out_with_the_way_there() {
    let report = searched(&with_disk(Disk::Forgets));
    let broken: Vec<_> = report.violations.iter().map(|it| (it.property, it.steps.len())).collect();
    // Each needs the one before it, and none has a shorter way.
    assert_eq!(
        broken,
        [(Property::PersistedBeforeTold, 5), (Property::OneVotePerTerm, 10), (Property::OneLeaderPerTerm, 13)],
        "{report}"
    );
}

#[test]
fn a_disk_that_answers_too_soon_makes_two_leaders_of_one_term() {
    let report = searched(&with_disk(Disk::Hasty));
    let way = |property| report.violations.iter().find(|it| it.property == property).unwrap().to_string();
    assert_eq!(
        way(Property::PersistedBeforeTold),
        "  \
  violation of persisted_before_told: node 1 sent vote-request term=1 to 2 with nothing on its disk
    1. the clock of 1 comes to 0.100
    2. 1 wakes
         1 contends term=0
         1 writes term=1 vote=1
         1 -> 2 vote-request term=1
         1 -> 3 vote-request term=1
"
    );
    let split = way(Property::OneLeaderPerTerm);
    assert!(
        split.starts_with("  violation of one_leader_per_term: node 2 is in office in term 1, in which node 1 was\n"),
        "{split}"
    );
    for part in [
        "\n    6. 3 crashes, with 0 of 1 writes done\n",
        "\n   10. 3 -> 2 vote term=1 granted delivered\n         2 leads term=1\n",
    ] {
        assert!(split.contains(part), "{split}");
    }
}

#[test]
fn a_message_that_is_lost_leads_to_no_node_that_one_under_way_for_ever_does_not() {
    let scope = |losses| Scope {
        begin: Cold,
        budget: Budget { losses, ..CRASH_AND_REPEAT },
        pre_vote: PreVote::Off,
        ..Scope::of(Kind::Raft)
    };
    let (never, lost) = (searched(&scope(0)), searched(&scope(2)));
    assert_eq!((never.end, lost.end), (End::Complete, End::Complete));
    assert_eq!((never.node_states, never.messages), (lost.node_states, lost.messages));
    assert!(lost.states > never.states, "or nothing was lost");
}

#[test]
fn what_can_be_counted_by_hand_is_counted_right() {
    // Each of three nodes may crash and start again, and nothing else may happen.
    let crash = Budget { crashes: 1, ..NOTHING };
    let report = searched(&Scope { begin: Cold, budget: crash, ..Scope::of(Kind::Raft) });
    assert_eq!((report.states, report.transitions, report.depth), (1 + 3 + 3, 3 + 3, 2));
    // A node is in its first life, down, in its second, down again or in its third; two nodes have two crashes together.
    let twice = Budget { crashes: 2, ..NOTHING };
    let report = searched(&Scope { nodes: 2, begin: Cold, budget: twice, ..Scope::of(Kind::Raft) });
    let crashes = [0, 1, 1, 2, 2];
    let states = crashes.iter().flat_map(|one| crashes.iter().map(move |other| one + other)).filter(|sum| *sum <= 2).count();
    assert_eq!(report.states, states);
}

#[test]
fn a_search_comes_out_the_same_every_time() {
    let scope = Scope { budget: CRASH, begin: Led, states_max: 50_000, ..Scope::of(Kind::ChangRoberts) };
    assert_eq!(searched(&scope).to_string(), searched(&scope).to_string());
    let broken = with_disk(Disk::Hasty);
    assert_eq!(searched(&broken).to_string(), searched(&broken).to_string());
}

/// Has enough after a while, and remembers what it was told.
struct Impatient(Mutex<Vec<usize>>);

impl Audience for Impatient {
    fn progress(&self, states: usize) {
        self.0.lock().unwrap().push(states);
    }

    fn has_enough(&self) -> bool {
        self.0.lock().unwrap().len() >= 3
    }
}

#[test]
fn a_search_that_is_stopped_says_so_and_tells_how_far_it_came() {
    let audience = Impatient(Mutex::default());
    let report = check(&Scope { begin: Cold, budget: CRASH, ..Scope::of(Kind::Bully) }, &audience).unwrap();
    assert_eq!(report.end, End::Stopped);
    assert!(report.to_string().contains("stopped there: not the whole scope"), "{report}");
    let told = audience.0.into_inner().unwrap();
    assert!(told.len() == 3 && told.is_sorted() && told[1] < report.states, "{told:?}");
}

#[test]
fn what_cannot_be_searched_is_refused_with_what_to_change() {
    let refusal = |scope: Scope| check(&scope, &()).unwrap_err();
    for nodes in [0, 1, 6] {
        let refused = refusal(Scope { nodes, ..Scope::of(Kind::Ring) });
        assert_eq!(refused, Refused::Nodes { given: nodes });
        assert_eq!(refused.to_string(), format!("{nodes} nodes cannot be searched: choose 2 to 5"));
    }
    let refused = refusal(Scope { guard: Guard::Quorum(1), ..Scope::of(Kind::Ring) });
    assert_eq!(refused, Refused::Settings(Invalid::Quorum { size: 1, count: 3 }));
}
