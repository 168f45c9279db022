//! The swarm over the shipping protocols: thousands of seeds, all oracles, and every interesting case met.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use incumbent_lab::fault::Fault;
use incumbent_lab::jobs::Audience;
use incumbent_lab::network::NetworkSettings;
use incumbent_lab::plan::Plan;
use incumbent_lab::shrink::shrink;
use incumbent_lab::swarm::{Report, Swarm, examine, run};
use incumbent_protocol::machine::Kind;
use incumbent_protocol::settings::Guard;

/// Enough for every interesting case of every protocol, in seconds.
const SEEDS: u64 = 1_500;

/// A few are run more than once.
const SEEDS_REPEATED: u64 = 150;

fn swarm(kind: Option<Kind>, seeds: std::ops::Range<u64>, jobs: usize) -> Report {
    Swarm { seeds, kind, jobs: NonZeroUsize::new(jobs).unwrap() }.run(&())
}

/// Has enough after this many runs.
struct Patience {
    runs: usize,
    made: AtomicUsize,
}

impl Audience for Patience {
    fn progress(&self, done: usize) {
        self.made.store(done, Ordering::Relaxed);
    }

    fn has_enough(&self) -> bool {
        self.made.load(Ordering::Relaxed) >= self.runs
    }
}

fn fails_nowhere_and_proves_something(kind: Kind) {
    let report = swarm(Some(kind), 0..SEEDS, 2);
    let told: Vec<String> = report.failures.iter().map(ToString::to_string).collect();
    assert!(told.is_empty(), "{} of {} runs failed\n{}", report.failed, report.done, told.join("\n\n"));
    assert_eq!((report.done, report.next), (SEEDS, SEEDS));
    let never: Vec<_> = report.sometimes.never().collect();
    assert!(never.is_empty(), "{kind}: these never happened, so their oracles have proved nothing: {never:?}");
}

#[test]
fn bully_keeps_its_promises() {
    fails_nowhere_and_proves_something(Kind::Bully);
}

#[test]
fn the_collecting_ring_keeps_its_promises() {
    fails_nowhere_and_proves_something(Kind::Ring);
}

#[test]
fn chang_roberts_keeps_its_promises() {
    fails_nowhere_and_proves_something(Kind::ChangRoberts);
}

#[test]
fn raft_keeps_its_promises() {
    fails_nowhere_and_proves_something(Kind::Raft);
}

#[test]
fn the_same_seed_twice_gives_the_same_digest_and_another_seed_another() {
    let digest = |seed| run(&Plan::draw(seed, None)).digest;
    let first: Vec<u64> = (0..SEEDS_REPEATED).map(digest).collect();
    let second: Vec<u64> = (0..SEEDS_REPEATED).map(digest).collect();
    assert_eq!(first, second);
    let mut distinct = first;
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len() as u64, SEEDS_REPEATED);
}

#[test]
fn the_report_does_not_depend_on_the_number_of_threads_or_on_a_stop_between() {
    let whole = swarm(None, 0..SEEDS_REPEATED, 1);
    assert_eq!(whole, swarm(None, 0..SEEDS_REPEATED, 3));

    let patience = Patience { runs: 40, made: AtomicUsize::new(0) };
    let begun = Swarm { seeds: 0..SEEDS_REPEATED, kind: None, jobs: NonZeroUsize::new(2).unwrap() }.run(&patience);
    assert!((40..60).contains(&begun.done), "{}", begun.done);
    assert_eq!(begun.next, begun.done);
    let ended = swarm(None, begun.next..SEEDS_REPEATED, 2);
    assert_eq!(begun.digest.wrapping_add(ended.digest), whole.digest);
    assert_eq!(begun.events + ended.events, whole.events);
    assert_eq!(ended.next, SEEDS_REPEATED);
}

/// C29: whatever resets healthy connections, a group without any other fault keeps its leader.
#[test]
fn a_storm_of_resets_deposes_nobody() {
    for seed in 0..SEEDS_REPEATED {
        let mut plan = Plan::draw(seed, None);
        plan.troubles.clear();
        plan.stay_down.clear();
        plan.resets_in_calm = true;
        let outcome = run(&plan);
        assert!(outcome.violations.is_empty(), "{:?}\n{plan}", outcome.violations);
    }
}

/// The price of doing without: the swarm sees two leaders at once only where the settings allow them.
#[test]
fn splits_happen_without_a_guard_and_never_with_one() {
    let mut splits_without = 0;
    for seed in 0..SEEDS_REPEATED * 2 {
        let mut plan = Plan::draw(seed, Some(Kind::Bully));
        plan.stay_down.clear();
        plan.guard = Guard::Off;
        splits_without += run(&plan).splits.count;
        plan.guard = Guard::Majority;
        if plan.clocks_keep_the_bound() {
            assert_eq!(run(&plan).splits.count, 0, "{plan}");
        }
    }
    assert!(splits_without > 10, "{splits_without}");
}

#[test]
fn a_failure_tells_what_was_broken_and_how_to_have_it_again_and_shrinks() {
    // Answers take ten seconds: nobody can be elected, and the oracles must say so.
    let seed = (0..).find(|seed| Plan::draw(*seed, None).troubles.len() > 5).expect("chance is kind");
    let mut plan =
        Plan { nodes: 3, guard: Guard::Majority, favourite: None, stay_down: Vec::new(), ..Plan::draw(seed, Some(Kind::Raft)) };
    plan.stay_out.clear();
    plan.ring.retain(|node| node.0 <= 3);
    plan.troubles
        .retain(|trouble| trouble.steps.iter().flat_map(|(_, fault): &(_, Fault)| fault.nodes()).all(|node| node.0 <= 3));
    plan.network = NetworkSettings::constant(Duration::from_secs(10));

    let failure = examine(&plan, 5).expect_err("must fail");
    let text = failure.to_string();
    for part in [
        &format!("seed {seed} (raft) fails:"),
        "liveness: nobody ",
        "agreement: at ",
        "the last that happened before:",
        "contends term=",
        &format!("again: incumbent lab swarm --seed {seed} --protocol raft"),
    ] {
        assert!(text.contains(part), "'{part}' is missing in:\n{text}");
    }
    assert_eq!(failure.tail.len(), 5);

    let shrunk = shrink(&plan, "liveness", 200).plan;
    assert!(run(&shrunk).breaks("liveness"));
    assert!(shrunk.troubles.is_empty() && shrunk.nodes == 2, "{shrunk}");
}
