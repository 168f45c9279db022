//! A comparison as the report shows it: every cell with its distributions, and a few runs to watch.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::finding::detailed_size;
use super::scenario::Scenario;
use super::timeline::timeline;
use super::trial::{Figures, Trial};
use super::{Cell, Plan};
use crate::jobs;
use crate::report::model::{Measures, Meta, Outcome, Report, ScenarioNote, Setting, Spread, Timeline, glossary};

/// Runs to watch come from at most so many scenarios.
const WATCHED_MAX: usize = 2;

/// What the caller knows and the comparison does not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The version of the program.
    pub version: String,
    /// The command that gives the same figures again.
    pub command: String,
    /// When, for people.
    pub date: String,
}

/// The report of `cells`, which `plan` has measured. Makes the runs to watch, on `threads` threads.
pub fn report(plan: &Plan, cells: &[Cell], origin: Origin, threads: NonZeroUsize) -> Report {
    let Origin { version, command, date } = origin;
    let measured: Vec<&Cell> = cells.iter().filter(|cell| !cell.figures.is_empty()).collect();
    let scenarios = plan.scenarios().iter().map(|(scenario, _)| *scenario);
    Report {
        meta: Meta {
            title: "Leader election, measured".into(),
            version,
            command,
            seed: plan.seed(),
            runs: plan.runs(),
            date,
            pace: settings(plan),
            glossary: glossary(),
        },
        scenarios: scenarios.map(|it| ScenarioNote { name: it.to_string(), meaning: it.meaning().into() }).collect(),
        results: measured.iter().map(|cell| outcome(cell)).collect(),
        timelines: timelines(plan, cells, threads),
    }
}

fn settings(plan: &Plan) -> Vec<Setting> {
    let pace = plan.place().pace();
    let ms = |span: Duration| format!("{} ms", span.as_millis());
    let one_way = plan.place().network().quality.delay.mean();
    [
        ("network", plan.place().name().to_owned()),
        ("one way, on average", format!("{} ms", one_way.as_secs_f64() * 1000.0)),
        ("heartbeat", ms(pace.heartbeat)),
        ("patience", format!("{} to {}", pace.patience_min.as_millis(), ms(pace.patience_max))),
        ("lease", ms(pace.lease())),
        ("reply", ms(pace.reply)),
        ("clock drift", format!("up to {} ppm", pace.drift_ppm)),
    ]
    .map(|(name, value)| Setting { name: name.into(), value })
    .to_vec()
}

fn outcome(cell: &Cell) -> Outcome {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let time = |value: fn(&Figures) -> Option<Duration>| {
        let values: Vec<f64> = cell.figures.iter().filter_map(value).map(|span| span.as_secs_f64() * 1000.0).collect();
        Spread::with_samples(&values)
    };
    let number = |value: fn(&Figures) -> u64| cell.figures.iter().map(|it| value(it) as f64).collect::<Vec<f64>>();
    Outcome {
        protocol: cell.kind.to_string(),
        guarded: cell.guarded,
        nodes: cell.nodes,
        scenario: cell.scenario.to_string(),
        runs: count(cell.figures.len()),
        leaderless_runs: count(cell.leaderless_runs()),
        split_brain_runs: count(cell.split_brain_runs()),
        measures: Measures {
            split_brain_ms: time(|it| Some(it.overlap)),
            split_brain_incidents: Spread::of(&number(|it| it.overlaps)),
            failover_ms: time(|it| it.failover),
            followed_ms: time(|it| it.followed),
            election_ms: time(|it| it.election),
            leaderless_ms: time(|it| Some(it.leaderless)),
            leader_changes: Spread::of(&number(|it| it.leaderships)),
            messages: Spread::with_samples(&number(|it| it.messages)),
            contest_messages: Spread::with_samples(&number(|it| it.contest_messages)),
            bytes: Spread::with_samples(&number(|it| it.bytes)),
        },
    }
}

/// One run a protocol and guard, of the scenarios that show most: a partition and a crash, if they were measured.
fn timelines(plan: &Plan, cells: &[Cell], threads: NonZeroUsize) -> Vec<Timeline> {
    let planned: Vec<Scenario> = plan.scenarios().iter().map(|(scenario, _)| *scenario).collect();
    let telling = [Scenario::Partition, Scenario::LeaderCrash].into_iter().filter(|it| planned.contains(it));
    let rest = planned.iter().copied().filter(|it| !matches!(it, Scenario::Partition | Scenario::LeaderCrash));
    let mut trials: Vec<Trial> = Vec::new();
    for scenario in telling.chain(rest).take(WATCHED_MAX) {
        let measured: Vec<Cell> = cells.iter().filter(|it| it.scenario == scenario && !it.figures.is_empty()).cloned().collect();
        let size = detailed_size(&measured);
        // Without guard first: that is where two leaders are to be seen.
        for guarded in [false, true] {
            let shown = measured.iter().filter(|cell| Some(cell.nodes) == size && cell.guarded == guarded);
            trials.extend(shown.map(|cell| cell.trial(plan.place(), plan.seed())));
        }
    }
    jobs::run_all(trials.len(), threads, &(), |number| timeline(&trials[number]))
}
