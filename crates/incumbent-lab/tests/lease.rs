//! L4 and its companions, over thousands of worlds: the shipping tenure against a lock service, with everything between them that can
//! go wrong. And that the oracles would have seen it: each mistake that lock clients are known to make, put in, is caught.

use std::collections::BTreeMap;
use std::time::Duration;

use incumbent_lab::lease::oracle::Oracles;
use incumbent_lab::lease::service::{Habits, Reentry};
use incumbent_lab::lease::setup::{Clocks, Faults, Obedience};
use incumbent_lab::lease::tally::{Case, Tally};
use incumbent_lab::lease::{Flaw, Outcome, Setup, run};
use incumbent_lab::network::{Delay, NetworkSettings};
use incumbent_protocol::timing::Timing;

/// Enough for each case to come up many times, in seconds.
const SEEDS: u64 = 3_000;

#[test]
fn no_world_breaks_a_promise_and_every_case_comes_up() {
    let mut tally = Tally::default();
    let mut sometimes: BTreeMap<&str, (&str, u64)> = BTreeMap::new();
    let mut closest = Duration::MAX;
    let mut slowest_percent = 0;
    for seed in 0..SEEDS {
        let setup = Setup::draw(seed);
        let outcome = run(&setup);
        assert!(outcome.violation.is_none(), "{outcome}");
        if setup.clocks == Clocks::WithinBound {
            // Within the contract a holder never hears from the service that its seat is gone: it has given up before.
            assert_eq!(outcome.tally.of(Case::Superseded), 0, "{outcome}");
            closest = closest.min(outcome.closest.unwrap_or(Duration::MAX));
        }
        let failover = outcome.failover.expect("every run ends with a failover");
        slowest_percent = slowest_percent.max(failover.as_nanos() * 100 / setup.timing.failover_max().as_nanos());
        tally.add(&outcome.tally);
        for (oracle, case, count) in outcome.sometimes {
            sometimes.entry(oracle).or_insert((case, 0)).1 += count;
        }
    }
    // Evictions belong beyond the bound, and have their test there.
    assert!(
        tally.never().all(|case| case == Case::Superseded),
        "never in {SEEDS} worlds: {:?}",
        tally.never().collect::<Vec<_>>()
    );
    assert_eq!(sometimes.len(), Oracles::COUNT);
    for (oracle, (case, count)) in sometimes {
        assert!(count > 0, "{oracle} has proved nothing: never {case}");
    }
    // The smallest guard is 1 ms. Takeovers that come no closer would not put the arithmetic to the test.
    assert!((Duration::from_millis(1)..Duration::from_micros(1_300)).contains(&closest), "{closest:?}");
    // Nor would a promise of failover that is far from what can happen.
    assert!(slowest_percent >= 80, "{slowest_percent} %");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let mut digests = Vec::new();
    for seed in 0..100 {
        let (first, second) = (run(&Setup::draw(seed)), run(&Setup::draw(seed)));
        assert_eq!((first.digest, first.happenings), (second.digest, second.happenings), "seed {seed}");
        digests.push(first.digest);
    }
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 100, "different seeds gave the same run");
}

/// C35: where clocks leave the bound, beliefs may overlap, and do. Tokens still increase and the fence still holds, for their oracles
/// are in force all the same.
#[test]
fn beyond_the_drift_bound_beliefs_overlap_but_tokens_and_fence_hold() {
    let (mut overlaps, mut longest, mut refused, mut evicted) = (0, Duration::ZERO, 0, 0);
    for seed in 0..400 {
        let outcome = run(&Setup { clocks: Clocks::BeyondBound, ..probe(seed) });
        assert!(outcome.violation.is_none(), "{outcome}");
        overlaps += outcome.overlaps.0;
        longest = longest.max(outcome.overlaps.1);
        evicted += outcome.tally.of(Case::Superseded);
        refused += outcome.sometimes.iter().find(|(oracle, ..)| *oracle == "fenced_resource").map_or(0, |(.., count)| *count);
    }
    assert!(overlaps > 0 && longest > Duration::from_millis(100), "{overlaps} overlaps, the longest {longest:?}");
    assert!(refused > 0, "the fence had nothing to do");
    assert!(evicted > 0, "no holder was told that it had overstayed");
}

/// The conditions in which a mistake of a few milliseconds shows: a quick network, a service that tells at once when the seat is free,
/// long leases, clocks at the edge, and holders that are cut off while in office.
fn probe(seed: u64) -> Setup {
    Setup {
        timing: Timing::of(Duration::from_secs(10)).guard(Timing::GUARD_MIN).build().expect("valid"),
        habits: Habits {
            claim: Reentry::Renews,
            inquiry: Reentry::Tells,
            tells_of_holder: false,
            refusal_ppm: 0,
            hints: true,
            lengthens_on_restart: false,
        },
        network: NetworkSettings::constant(Duration::from_micros(50)),
        clocks: Clocks::WithinBound,
        work: Obedience::Obedient,
        faults: Faults { cut: 3, pause: 2, crash: 0, outage: 0, drift: 4, slow_replies: 3, storm: 0, request: 1, false_hint: 0 },
        ..Setup::draw(seed)
    }
}

/// The first seed in which `flaw` is caught, and by whom.
fn caught(flaw: Option<Flaw>, seeds: u64) -> Option<(u64, Outcome)> {
    (0..seeds).map(|seed| (seed, run(&Setup { flaw, ..probe(seed) }))).find(|(_, outcome)| outcome.violation.is_some())
}

#[test]
fn every_known_mistake_is_caught_by_the_oracle_that_is_there_for_it() {
    for flaw in Flaw::ALL {
        let by = match flaw {
            Flaw::CountsFromReply | Flaw::IgnoresDrift => "exclusive_belief",
            Flaw::ReleasesFirst => "stop_then_release",
            Flaw::Unfenced => "fenced_resource",
            Flaw::GivesUp => "liveness",
        };
        let (seed, outcome) = caught(Some(flaw), 300).unwrap_or_else(|| panic!("{flaw:?} was not caught"));
        let violation = outcome.violation.as_ref().expect("it was found by its violation");
        assert_eq!(violation.oracle, by, "{flaw:?} in seed {seed}\n{outcome}");
    }
    // Without a flaw the same worlds are clean.
    assert!(caught(None, 300).is_none());
}

/// C32: what counting from the reply costs is what a reply may be late by.
#[test]
fn counting_from_the_reply_overlaps_by_seconds_and_counting_from_the_send_does_not() {
    let slow = |seed, flaw| {
        let mut setup = probe(seed);
        setup.network.quality.delay = Delay::Constant(Duration::from_micros(50));
        setup.faults = Faults { cut: 1, slow_replies: 4, pause: 0, drift: 0, request: 0, ..setup.faults };
        run(&Setup { flaw, ..setup })
    };
    let longest = (0..200).map(|seed| slow(seed, Some(Flaw::CountsFromReply)).overlaps.1).max().expect("there are seeds");
    assert!(longest > Duration::from_secs(1), "{longest:?}");
    assert!((0..200).all(|seed| slow(seed, None).overlaps.0 == 0));
}

#[test]
fn a_violation_prints_what_led_to_it_and_the_seed() {
    let (seed, outcome) = caught(Some(Flaw::ReleasesFirst), 300).expect("caught above");
    let text = outcome.to_string();
    assert!(text.contains(&format!("seed {seed}")) && text.contains("stop_then_release") && text.contains("WorkBegan"), "{text}");
}
