//! The protocols side by side: the same scenarios, the same seeds, measured.
//!
//! A comparison is planned ([`Plan`]), run ([`Plan::run`]) and read cell by cell: a [`Cell`] holds what was measured for one
//! protocol, with or without guard, in groups of one size, in one scenario, over all runs. The same plan gives the same figures, whatever
//! the number of threads. Left out: how it is printed.

pub mod scenario;
pub mod trial;

pub mod finding;
pub mod report;
pub mod timeline;

use std::fmt;
use std::num::NonZeroUsize;

use incumbent_protocol::machine::Kind;
use incumbent_protocol::settings::MEMBERS_MAX;

use crate::jobs::{self, Audience};
use scenario::Scenario;
use trial::{Figures, Place, Trial};

/// A million runs in all: their figures are kept, and those of more would not fit into a small machine's memory.
pub const TRIALS_MAX: usize = 1_000_000;

/// What is to be compared. A plan that exists can be run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    scenarios: Vec<(Scenario, Vec<u32>)>,
    kinds: Vec<Kind>,
    guards: Vec<bool>,
    place: Place,
    runs: u32,
    seed: u64,
}

/// What a person asks for. What is empty means: whatever is sensible.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wish {
    /// The scenarios; none: all.
    pub scenarios: Vec<Scenario>,
    /// The sizes of the groups; none: what [`Scenario::sizes`] says.
    pub nodes: Vec<u32>,
    /// The protocols; none: all.
    pub kinds: Vec<Kind>,
    /// With guard (true), without, or both; none: both.
    pub guards: Vec<bool>,
    /// The network.
    pub place: Place,
    /// Runs a cell.
    pub runs: u32,
    /// The seed of the first run; the next one takes the next number.
    pub seed: u64,
}

/// Why a comparison cannot be run. Each says what to change.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the messages below say it better")]
pub enum Impossible {
    NoNodes,
    TooManyNodes { nodes: u32 },
    TooFewNodes { scenario: Scenario, nodes: u32 },
    NoRuns,
    TooManyRuns { trials: usize },
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Impossible::NoNodes => f.write_str("a group of 0 nodes cannot elect anyone: give it at least 1"),
            Impossible::TooManyNodes { nodes } => write!(f, "{nodes} nodes are too many: give a group at most {MEMBERS_MAX}"),
            Impossible::TooFewNodes { scenario, nodes } => {
                let least = scenario.nodes_min();
                write!(f, "{scenario} cannot happen to a group of {nodes}: give it at least {least} nodes")
            }
            Impossible::NoRuns => f.write_str("0 runs measure nothing: make at least 1"),
            Impossible::TooManyRuns { trials } => write!(
                f,
                "{trials} runs in all are too many: make at most {TRIALS_MAX}, with fewer runs, scenarios, sizes or protocols"
            ),
        }
    }
}

impl std::error::Error for Impossible {}

impl Plan {
    /// The plan for what is wished, or why there is none.
    pub fn new(wish: Wish) -> Result<Plan, Impossible> {
        let Wish { scenarios, nodes, kinds, guards, place, runs, seed } = wish;
        if runs == 0 {
            return Err(Impossible::NoRuns);
        }
        let sizes = distinct(nodes);
        if sizes.contains(&0) {
            return Err(Impossible::NoNodes);
        }
        if let Some(&nodes) = sizes.iter().find(|size| **size as usize > MEMBERS_MAX) {
            return Err(Impossible::TooManyNodes { nodes });
        }
        let scenarios = if scenarios.is_empty() { Scenario::ALL.to_vec() } else { distinct(scenarios) };
        let planned = |scenario: Scenario| {
            let sizes = if sizes.is_empty() { scenario.sizes().to_vec() } else { sizes.clone() };
            match sizes.iter().find(|size| **size < scenario.nodes_min()) {
                Some(&nodes) => Err(Impossible::TooFewNodes { scenario, nodes }),
                None => Ok((scenario, sizes)),
            }
        };
        let plan = Plan {
            scenarios: scenarios.into_iter().map(planned).collect::<Result<_, _>>()?,
            kinds: if kinds.is_empty() { Kind::ALL.to_vec() } else { distinct(kinds) },
            guards: if guards.is_empty() { vec![false, true] } else { distinct(guards) },
            place,
            runs,
            seed,
        };
        match plan.trials() {
            trials if trials > TRIALS_MAX => Err(Impossible::TooManyRuns { trials }),
            _ => Ok(plan),
        }
    }

    /// The scenarios, each with the sizes of its groups.
    pub fn scenarios(&self) -> &[(Scenario, Vec<u32>)] {
        &self.scenarios
    }

    /// The protocols.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// With guard (true), without, or both.
    pub fn guards(&self) -> &[bool] {
        &self.guards
    }

    /// The network.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Runs a cell.
    pub fn runs(&self) -> u32 {
        self.runs
    }

    /// The seed of the first run.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// How many runs it takes.
    pub fn trials(&self) -> usize {
        self.cells().len().saturating_mul(self.runs as usize)
    }

    /// Makes the runs. If the audience has enough before the end, cells have fewer figures, or none.
    pub fn run(&self, threads: NonZeroUsize, audience: &impl Audience) -> Vec<Cell> {
        let mut cells = self.cells();
        let runs = self.runs as usize;
        let columns = self.kinds.len() * self.guards.len();
        // All protocols make their first run, then their second: what is interrupted is still a comparison.
        let place = |number: usize| {
            let (block, rest) = (number / (columns * runs), number % (columns * runs));
            (block * columns + rest % columns, (rest / columns) as u64)
        };
        let results = jobs::run_all(self.trials(), threads, audience, |number| {
            let (cell, run) = place(number);
            cells[cell].trial(self.place, self.seed.wrapping_add(run)).run()
        });
        for (number, figures) in results.into_iter().enumerate() {
            cells[place(number).0].figures.push(figures);
        }
        cells
    }

    /// All cells, still empty.
    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for (scenario, sizes) in &self.scenarios {
            for &nodes in sizes {
                for &kind in &self.kinds {
                    for &guarded in &self.guards {
                        cells.push(Cell { scenario: *scenario, nodes, kind, guarded, figures: Vec::new() });
                    }
                }
            }
        }
        cells
    }
}

/// What was measured for one protocol, with or without guard, in groups of one size, in one scenario.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cell {
    /// What happened.
    pub scenario: Scenario,
    /// How many nodes the groups had.
    pub nodes: u32,
    /// The protocol.
    pub kind: Kind,
    /// Whether a leader needed a majority behind it.
    pub guarded: bool,
    /// One entry a run, in the order of the seeds.
    pub figures: Vec<Figures>,
}

impl Cell {
    /// The run of this cell with `seed`.
    pub fn trial(&self, place: Place, seed: u64) -> Trial {
        let Cell { scenario, nodes, kind, guarded, .. } = *self;
        Trial { kind, guarded, nodes, scenario, place, seed }
    }

    /// In how many runs two nodes were in office at one instant.
    pub fn split_brain_runs(&self) -> usize {
        self.figures.iter().filter(|it| it.overlaps > 0).count()
    }

    /// In how many runs nobody was in office at the end.
    pub fn leaderless_runs(&self) -> usize {
        self.figures.iter().filter(|it| !it.led_at_end).count()
    }

    /// The value that `percent` of the runs stay at or below, among those in which there is one.
    pub fn percentile<T: Ord>(&self, percent: usize, value: impl Fn(&Figures) -> Option<T>) -> Option<T> {
        let mut values: Vec<T> = self.figures.iter().filter_map(value).collect();
        values.sort_unstable();
        // Nearest rank: a percentile is a value that was measured, never one between two.
        let rank = (values.len() * percent).div_ceil(100).max(1);
        values.into_iter().nth(rank - 1)
    }

    /// The greatest value.
    pub fn greatest<T: Ord>(&self, value: impl Fn(&Figures) -> T) -> Option<T> {
        self.figures.iter().map(value).max()
    }
}

/// `values` in their order, each once.
fn distinct<T: PartialEq>(values: Vec<T>) -> Vec<T> {
    let mut seen: Vec<T> = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}
