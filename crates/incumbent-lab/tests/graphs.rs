//! LV2 in every link graph of five nodes (C23), and no two leaders under guard in any.

use std::num::NonZeroUsize;
use std::time::Duration;

use incumbent_lab::graphs::{GraphPlan, NODES, Row, Selection, Start};
use incumbent_protocol::machine::Kind;
use incumbent_protocol::settings::Pace;

fn tried(kinds: &[Kind], guarded: bool, selection: Selection, lasts: Duration) -> Vec<Row> {
    let (kinds, starts) = (kinds.to_vec(), vec![Start::Led, Start::Cold]);
    GraphPlan { selection, kinds, guards: vec![guarded], starts, lasts, seed: 1 }.run(NonZeroUsize::new(2).unwrap(), &())
}

/// How long a group may be without a leader if some node reaches a majority.
///
/// - A leader that has lost its majority is out of office when its lease ends, and those who heard it last are free at the end of
///   the shortest patience: both before the first of them misses it.
/// - A node that reaches a majority misses the leader at the latest when its longest patience ends, and asks.
/// - It may be refused twice: by one who heard the old leader a little later than it did, and by one that asks itself at the same time. Each
///   time it asks again when the time of its ballot is over, which is no longer than the longest patience.
/// - Then it is asked in two rounds, each of which takes an answer's time at the most.
fn bound(pace: &Pace) -> Duration {
    pace.patience_max * 3 + pace.reply * 2
}

#[test]
fn raft_leads_every_graph_in_which_some_node_reaches_a_majority() {
    let bound = bound(&Pace::LAN);
    for row in tried(&[Kind::Raft], true, Selection::AllUndirected, Duration::from_secs(6)) {
        assert_eq!(row.hopeful().count(), 998);
        for (graph, outcome) in &row.outcomes {
            let what = format!("{:?} {graph}: {outcome:?}", row.start);
            assert_eq!(outcome.led_at_end, graph.is_hopeful(), "{what}");
            if graph.is_hopeful() {
                assert!(outcome.led_after.is_some_and(|after| after <= bound), "{what}");
                // LV3: whoever leads is left in peace by those who cannot see it.
                assert!(outcome.changes <= 1 && outcome.terms <= 3, "{what}");
            } else {
                assert!(outcome.changes == 0 && outcome.terms == 0, "{what}: terms burned for nothing");
            }
        }
    }
}

#[test]
fn raft_leads_also_where_links_work_one_way_only() {
    let bound = bound(&Pace::LAN);
    for row in tried(&[Kind::Raft], true, Selection::SomeDirected(1000), Duration::from_secs(6)) {
        assert!(row.hopeful().count() > 500);
        for (graph, outcome) in &row.outcomes {
            let what = format!("{:?} {graph}: {outcome:?}", row.start);
            assert_eq!(outcome.led_at_end, graph.is_hopeful(), "{what}");
            assert!(!graph.is_hopeful() || outcome.led_after.is_some_and(|after| after <= bound), "{what}");
        }
    }
}

/// The same for a ring, in which the laps come first.
///
/// - A node that reaches a majority misses the leader at the latest when its longest patience ends. It waits no longer for laps, its own or others',
///   than one may take, then asks.
/// - It may fail once, against nodes that ask at the same time and cannot win; these insist but once. Its ballot and its standing aside take no longer
///   than the longest patience each, and so does the wait until it looks again.
/// - Then it is asked in two rounds.
fn bound_of_a_ring(pace: &Pace) -> Duration {
    let lap = pace.patience_max + pace.reply * NODES / 2;
    pace.patience_max + lap + pace.patience_max * 3 + pace.reply * 2
}

#[test]
fn guarded_rings_lead_every_graph_in_which_some_node_reaches_a_majority() {
    let bound = bound_of_a_ring(&Pace::LAN);
    for selection in [Selection::AllUndirected, Selection::SomeDirected(500)] {
        for row in tried(&[Kind::Ring, Kind::ChangRoberts], true, selection, Duration::from_secs(6)) {
            for (graph, outcome) in &row.outcomes {
                let what = format!("{} {:?} {graph}: {outcome:?}", row.kind, row.start);
                assert_eq!(outcome.led_at_end, graph.is_hopeful(), "{what}");
                if graph.is_hopeful() {
                    assert!(outcome.led_after.is_some_and(|after| after <= bound), "{what}");
                    assert!(outcome.changes <= 1 && outcome.terms <= 3, "{what}");
                } else {
                    assert!(outcome.changes == 0 && outcome.terms == 0, "{what}: terms burned for nothing");
                }
            }
        }
    }
}

/// The same for Bully, which asks the greater ids first and waits for the one that answers, once. Then it asks for the votes as a ring does.
fn bound_of_bully(pace: &Pace) -> Duration {
    let yielding = pace.reply + pace.reply * 2 + pace.patience_min;
    pace.patience_max + yielding + pace.patience_max * 3 + pace.reply * 2
}

#[test]
fn guarded_bully_leads_every_graph_in_which_some_node_reaches_a_majority() {
    let bound = bound_of_bully(&Pace::LAN);
    for selection in [Selection::AllUndirected, Selection::SomeDirected(500)] {
        for row in tried(&[Kind::Bully], true, selection, Duration::from_secs(12)) {
            for (graph, outcome) in &row.outcomes {
                let what = format!("{:?} {graph}: {outcome:?}", row.start);
                if graph.is_hopeful() {
                    assert!(outcome.led_after.is_some_and(|after| after <= bound), "{what}");
                    // The end may come just when a leader has handed over to a greater id that cannot lead. That takes no longer either.
                    assert!(outcome.longest_vacancy <= bound, "{what}");
                } else {
                    assert!(!outcome.led_at_end && outcome.terms == 0, "{what}");
                }
            }
        }
    }
}

#[test]
fn under_guard_no_graph_ever_has_two_leaders() {
    for selection in [Selection::AllUndirected, Selection::SomeDirected(500)] {
        for row in tried(&Kind::ALL, true, selection, Duration::from_secs(3)) {
            let two: Vec<String> = row.two_leaders().map(ToString::to_string).collect();
            assert!(two.is_empty(), "{} {:?}: {two:?}", row.kind, row.start);
            // And where nobody reaches a majority nobody leads.
            assert!(row.outcomes.iter().all(|(graph, outcome)| graph.is_hopeful() || !outcome.led_at_end));
        }
    }
}

#[test]
fn without_guard_every_protocol_has_graphs_with_two_leaders() {
    for row in tried(&Kind::ALL, false, Selection::AllUndirected, Duration::from_secs(2)) {
        let two = row.two_leaders().count();
        match (row.kind, row.start) {
            // Its votes still need a majority, so from a cold start no second leader comes while the first reaches one.
            (Kind::Raft, Start::Cold) => assert_eq!(two, 0),
            (Kind::Raft, Start::Led) => assert!(two > 50, "{two}"),
            (Kind::Bully | Kind::Ring | Kind::ChangRoberts, Start::Led | Start::Cold) => {
                assert!(two > 100, "{}: {two}", row.kind)
            }
        }
    }
}

#[test]
fn the_same_plan_gives_the_same_rows_whatever_the_threads() {
    let plan = GraphPlan {
        selection: Selection::SomeDirected(20),
        kinds: Kind::ALL.to_vec(),
        guards: vec![true, false],
        starts: vec![Start::Led],
        lasts: Duration::from_secs(1),
        seed: 3,
    };
    assert_eq!(plan.runs(), 160);
    assert_eq!(plan.run(NonZeroUsize::MIN, &()), plan.run(NonZeroUsize::new(3).unwrap(), &()));
}
