//! The comparison measures what it says: two leaders where there are two, none where the guard stands, the same figures every time.

use std::num::NonZeroUsize;
use std::time::Duration;

use incumbent_lab::compare::scenario::Scenario;
use incumbent_lab::compare::trial::{Figures, Place, Trial};
use incumbent_lab::compare::{Cell, Impossible, Plan, Wish};
use incumbent_protocol::machine::Kind;
use incumbent_protocol::settings::{Pace, Stability};

fn wish(scenarios: &[Scenario], nodes: &[u32], runs: u32) -> Wish {
    let (scenarios, nodes) = (scenarios.to_vec(), nodes.to_vec());
    Wish { scenarios, nodes, kinds: vec![], guards: vec![], place: Place::Lan, runs, seed: 1 }
}

fn compared(wish: Wish) -> Vec<Cell> {
    Plan::new(wish).unwrap().run(NonZeroUsize::new(2).unwrap(), &())
}

#[test]
fn a_quorumless_bully_shows_its_two_leaders_in_every_partition_and_the_guarded_one_never_does() {
    let wish = Wish { kinds: vec![Kind::Bully], ..wish(&[Scenario::Partition], &[3, 5, 10], 50) };
    let pace = Pace::LAN;
    for cell in compared(wish) {
        let what = format!("{} nodes, guarded: {}", cell.nodes, cell.guarded);
        if cell.guarded {
            assert_eq!(cell.split_brain_runs(), 0, "{what}");
            continue;
        }
        assert_eq!(cell.split_brain_runs(), 50, "{what}");
        for figures in &cell.figures {
            // The network is split for ten times patience. The other side needs one patience to miss its leader and some answers' time to
            // agree on its own; from there to the end of the split there are two.
            let least = pace.patience_max * 10 - pace.patience_max * 2;
            assert!(figures.overlap >= least, "{what}: {figures:?}");
        }
    }
}

#[test]
fn under_guard_no_scenario_shows_two_leaders_and_without_it_every_protocol_has_one_that_does() {
    let cells = compared(wish(&Scenario::ALL, &[3, 5], 20));
    for cell in cells.iter().filter(|cell| cell.guarded) {
        assert_eq!(cell.split_brain_runs(), 0, "{} {} with {} nodes", cell.kind, cell.scenario, cell.nodes);
    }
    for kind in Kind::ALL {
        assert!(cells.iter().any(|cell| cell.kind == kind && cell.split_brain_runs() > 0), "{kind}");
    }
}

#[test]
fn every_group_has_a_leader_at_the_end_of_every_scenario_that_ends_well() {
    // Where a fifth of all messages is lost to the end, the end may well find a group between two leaders.
    let calm: Vec<Scenario> = Scenario::ALL.into_iter().filter(|it| !matches!(it, Scenario::Loss | Scenario::Flapping)).collect();
    for cell in compared(wish(&calm, &[3, 5, 10], 20)) {
        assert_eq!(
            cell.leaderless_runs(),
            0,
            "{} {} with {} nodes, guarded: {}",
            cell.kind,
            cell.scenario,
            cell.nodes,
            cell.guarded
        );
    }
}

#[test]
fn the_same_plan_gives_the_same_figures_whatever_the_threads() {
    let plan = Plan::new(wish(&[Scenario::Flapping, Scenario::LeaderCrash], &[3, 5], 5)).unwrap();
    let once = plan.run(NonZeroUsize::new(1).unwrap(), &());
    assert_eq!(once, plan.run(NonZeroUsize::new(3).unwrap(), &()));
    assert!(once.iter().all(|cell| cell.figures.len() == 5));
    // And the second run of a plan is the first of the next seed.
    let next = Plan::new(Wish { seed: 2, ..wish(&[Scenario::Flapping, Scenario::LeaderCrash], &[3, 5], 1) }).unwrap();
    let next = next.run(NonZeroUsize::new(1).unwrap(), &());
    assert!(once.iter().zip(&next).all(|(a, b)| a.figures[1] == b.figures[0]));
}

/// What the figures must be when the answer is known without measuring.
#[test]
fn a_crash_is_measured_as_one_change_within_the_bounds_of_its_pace() {
    for place in Place::ALL {
        let pace = place.pace();
        for kind in Kind::ALL {
            for guarded in [false, true] {
                for seed in 0..10 {
                    let trial = Trial { kind, guarded, nodes: 5, scenario: Scenario::LeaderCrash, place, seed };
                    let figures = trial.run();
                    let what = format!("{trial:?}: {figures:?}");
                    assert_eq!((figures.leaderships, figures.overlaps), (1, 0), "{what}");
                    // Nobody gives a leader up before the shortest patience, counted from a heartbeat that may be one old.
                    let failover = figures.failover.unwrap();
                    assert!(failover >= pace.patience_min - pace.heartbeat - pace.reply, "{what}");
                    // A crash leaves nobody in office until the next one: no more and no less.
                    assert_eq!(figures.leaderless, failover, "{what}");
                    assert!(figures.followed.unwrap() >= failover && figures.election.unwrap() <= failover, "{what}");
                    assert!(figures.led_at_end && figures.messages > figures.contest_messages, "{what}");
                    assert_eq!(figures.guard_messages > 0, guarded && kind != Kind::Raft, "{what}");
                    assert!(figures.bytes > figures.contest_bytes && figures.contest_bytes > 0, "{what}");
                }
            }
        }
    }
}

#[test]
fn a_leader_that_hands_over_is_not_missed() {
    let slowest = |scenario| {
        let wish = Wish { kinds: vec![Kind::Raft], guards: vec![true], ..wish(&[scenario], &[5], 20) };
        compared(wish)[0].greatest(|it: &Figures| it.leaderless).unwrap()
    };
    let (planned, crashed) = (slowest(Scenario::HandOver), slowest(Scenario::LeaderCrash));
    assert!(planned < Duration::from_millis(20) && planned * 5 < crashed, "{planned:?} {crashed:?}");
}

#[test]
fn a_returning_bully_takes_the_office_back_and_the_others_leave_it() {
    let wish = Wish { guards: vec![true], ..wish(&[Scenario::LeaderReturn], &[5], 10) };
    assert!(Stability::of(&Pace::LAN).min_tenure < Pace::LAN.patience_max * 10, "the scenario is long enough to see it");
    for cell in compared(wish) {
        let expected = if cell.kind == Kind::Bully { 2 } else { 1 };
        assert!(cell.figures.iter().all(|it| it.leaderships == expected), "{}: {:?}", cell.kind, cell.figures);
    }
}

#[test]
fn what_cannot_be_compared_is_refused_with_what_to_change() {
    for (wish, error, says) in [
        (wish(&[], &[0], 1), Impossible::NoNodes, "at least 1"),
        (wish(&[], &[5, 5000], 1), Impossible::TooManyNodes { nodes: 5000 }, "at most 4096"),
        (
            wish(&[Scenario::Partition], &[1], 1),
            Impossible::TooFewNodes { scenario: Scenario::Partition, nodes: 1 },
            "partition cannot happen to a group of 1: give it at least 2 nodes",
        ),
        (wish(&[], &[], 0), Impossible::NoRuns, "at least 1"),
        (wish(&[Scenario::Loss], &[], 125_001), Impossible::TooManyRuns { trials: 1_000_008 }, "at most 1000000"),
    ] {
        assert_eq!(Plan::new(wish), Err(error.clone()));
        assert!(error.to_string().contains(says), "{error}");
    }
    // A group of one can at least start.
    let alone = compared(wish(&[Scenario::ColdStart], &[1], 1));
    assert!(alone.iter().all(|cell| cell.leaderless_runs() == 0), "{alone:?}");
}
