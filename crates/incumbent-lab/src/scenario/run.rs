//! How a scenario is run: its commands in a world of their own, with all oracles on, and what came of it.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use incumbent_protocol::machine::Kind;
use incumbent_protocol::protocol::{NodeId, Purpose, Role, Term};
use incumbent_protocol::settings::Settings;

use super::tell::{Told, tell};
use super::{Command, Difference, Expectation, Goal, Messages, Scenario, Show};
use crate::fault::Fault;
use crate::meter::{Meter, Tally};
use crate::network::Network;
use crate::node::{Condition, Node};
use crate::observation::{Moment, Observation, Observer};
use crate::oracle::{Demands, Exclusion, Oracles, Order, Sometimes};
use crate::trace::Entry;
use crate::world::{World, WorldSettings};

/// A scenario in which more than this happens is not for people, and would fill the memory.
const ENTRIES_MAX: usize = 1_000_000;

/// What came of a scenario.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Each command and what came of it, in order.
    pub acts: Vec<Act>,
    /// All that happened, in order.
    pub entries: Vec<Entry>,
    /// What should not be so: expectations that were not met, oracles that saw a violation.
    pub failures: Vec<Failure>,
    /// The figures of the whole run.
    pub meter: Meter,
    /// How often the cases came up that the oracles are there for.
    pub sometimes: Sometimes,
    /// When it ended.
    pub end: Moment,
    /// How many acts each block has.
    blocks: Vec<usize>,
}

/// A command that was carried out.
#[derive(Clone, Debug)]
pub struct Act {
    /// Its line in the file.
    pub line: usize,
    /// The command as it is written.
    pub text: String,
    /// When it began, in true time.
    pub at: Moment,
    /// What happened meanwhile, as indexes into [`Outcome::entries`].
    pub entries: Range<usize>,
    /// Which messages stand in its trace.
    pub messages: Messages,
    /// What it showed: lines that are no events.
    pub shown: Vec<String>,
    /// The links while it went on.
    pub network: Network,
}

/// Something that should not be so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The line of the command that found it; none for an oracle.
    pub line: Option<usize>,
    /// What is wrong.
    pub what: String,
}

impl Failure {
    /// With the file before it, as compilers write it.
    pub fn in_file(&self, file: &str) -> String {
        match self.line {
            Some(line) => format!("{file}:{line}: {}", self.what),
            None => format!("{file}: {}", self.what),
        }
    }
}

impl Outcome {
    /// The lines that came of an act.
    pub fn told(&self, act: &Act) -> Vec<Told> {
        tell(&self.entries, act.entries.clone(), act.messages)
    }

    /// The trace of each block.
    pub fn traces(&self) -> Vec<Vec<String>> {
        let mut acts = self.acts.iter();
        let trace =
            |act: &Act| -> Vec<String> { self.told(act).iter().map(Told::line).chain(act.shown.iter().cloned()).collect() };
        self.blocks.iter().map(|count| acts.by_ref().take(*count).flat_map(trace).collect()).collect()
    }

    /// The blocks whose trace is not the one that stands in the file.
    pub fn differences(&self, scenario: &Scenario) -> Vec<Difference> {
        let traces = self.traces();
        let differing = scenario.blocks.iter().zip(traces).filter(|(block, found)| block.expected != *found);
        let difference = |(block, found): (&super::Block, Vec<String>)| Difference {
            file: scenario.file.clone(),
            line: block.expected_line,
            expected: block.expected.clone(),
            found,
        };
        differing.map(difference).collect()
    }

    /// The text of the scenario with the traces that came of it.
    pub fn rewritten(&self, scenario: &Scenario) -> String {
        let mut lines: Vec<String> = Vec::new();
        let mut copied = 0;
        for (block, trace) in scenario.blocks.iter().zip(self.traces()) {
            let begins = block.expected_line - 1;
            lines.extend_from_slice(&scenario.lines[copied..begins]);
            lines.extend(trace);
            copied = begins + block.expected.len();
        }
        lines.extend_from_slice(&scenario.lines[copied..]);
        lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
    }
}

/// Runs a scenario to its end.
pub fn run(scenario: &Scenario) -> Outcome {
    let mut stage = Stage::new(scenario);
    for step in scenario.steps() {
        stage.act(step);
    }
    stage.end(scenario)
}

/// Lets the oracles see the run. Healing counts for them only if nothing more is done afterwards.
#[derive(Clone, Debug)]
struct Judge {
    oracles: Oracles,
    healed_for_good: bool,
}

impl Observer for Judge {
    fn observe(&mut self, at: Moment, seen: &Observation<'_>) {
        if *seen != Observation::Healed || self.healed_for_good {
            self.oracles.observe(at, seen);
        }
    }
}

struct Stage {
    world: World<Judge>,
    acts: Vec<Act>,
    failures: Vec<Failure>,
    messages: Messages,
    counted: Vec<Tally>,
    /// Commands that do something to the world and are still to come.
    to_come: usize,
}

impl Stage {
    fn new(scenario: &Scenario) -> Stage {
        let faults = || {
            scenario.steps().filter_map(|step| match &step.command {
                Command::Inject(faults) => Some(faults),
                Command::Run(_) | Command::RunUntil { .. } | Command::ShowMessages(_) | Command::Show(_) | Command::Expect(_) => {
                    None
                }
            })
        };
        let demands = demands(&scenario.world, faults().flatten());
        let oracles = Oracles::new(&scenario.world.settings, &demands);
        let judge = Judge { oracles, healed_for_good: false };
        Stage {
            world: World::watched(scenario.world.clone(), judge),
            acts: Vec::new(),
            failures: Vec::new(),
            messages: Messages::Off,
            counted: Vec::new(),
            to_come: faults().count(),
        }
    }

    fn act(&mut self, step: &super::Step) {
        let at = self.world.now();
        let before = self.world.trace().entries().len();
        let mut shown = Vec::new();
        match &step.command {
            Command::Inject(faults) => {
                self.to_come -= 1;
                self.world.observer_mut().healed_for_good = self.to_come == 0;
                faults.iter().for_each(|fault| self.world.inject(fault.clone()));
            }
            Command::Run(span) => {
                self.run_while(step.line, |_| true, at + *span);
            }
            Command::RunUntil { goal, within } => {
                if !self.run_while(step.line, |world| !is_reached(world, *goal), at + *within) {
                    self.fail(step.line, format!("expected '{goal}' within {within:?}; {}", office(&self.world)));
                }
            }
            Command::ShowMessages(messages) => self.messages = *messages,
            Command::Show(what) => shown = self.show(*what),
            Command::Expect(expectation) => {
                if !is_met(&self.world, *expectation) {
                    self.fail(step.line, format!("expected '{expectation}' at {at}; {}", found(&self.world, *expectation)));
                }
            }
        }
        self.acts.push(Act {
            line: step.line,
            text: step.text.clone(),
            at,
            entries: before..self.world.trace().entries().len(),
            messages: self.messages,
            shown,
            network: self.world.network().clone(),
        });
    }

    /// Whether `wanted` ended it.
    fn run_while(&mut self, line: usize, wanted: impl Fn(&World<Judge>) -> bool, limit: Moment) -> bool {
        let has_room = |world: &World<Judge>| world.trace().entries().len() < ENTRIES_MAX;
        let ended = self.world.run_while(|world| has_room(world) && wanted(world), limit);
        if !has_room(&self.world) {
            self.fail(line, format!("more than {ENTRIES_MAX} things happened: run shorter, or with fewer nodes"));
        }
        ended
    }

    fn fail(&mut self, line: usize, what: String) {
        self.failures.push(Failure { line: Some(line), what });
    }

    fn show(&mut self, what: Show) -> Vec<String> {
        match what {
            Show::Leader => vec![office(&self.world)],
            Show::Nodes => self.world.nodes().iter().map(|node| state(node, self.world.now())).collect(),
            Show::Office => {
                let meter = self.world.meter();
                let (nobody, several) = (Moment::ZERO + meter.leaderless(), Moment::ZERO + meter.overlap());
                vec![format!("nobody in office for {nobody}, more than one for {several}, elected {}", meter.elected())]
            }
            Show::Counts => {
                let now = self.world.meter().by_name().to_vec();
                let lines = counts(&self.counted, &now);
                self.counted = now;
                lines
            }
        }
    }

    fn end(mut self, scenario: &Scenario) -> Outcome {
        let end = self.world.now();
        self.world.observer_mut().oracles.finish(end);
        for violation in self.world.observer().oracles.violations() {
            self.failures.push(Failure { line: None, what: format!("violated: {violation}") });
        }
        Outcome {
            entries: self.world.trace().entries().cloned().collect(),
            meter: self.world.meter().clone(),
            sometimes: self.world.observer().oracles.sometimes(),
            acts: self.acts,
            failures: self.failures,
            end,
            blocks: scenario.blocks.iter().map(|block| block.steps.len()).collect(),
        }
    }
}

fn is_reached<O: Observer>(world: &World<O>, goal: Goal) -> bool {
    match goal {
        Goal::Leader => world.leader().is_some(),
        Goal::LeaderIs(node) => world.leader() == Some(node),
        Goal::NoLeader => world.leaders().next().is_none(),
        Goal::Agreed => world.agreed_leader().is_some(),
        Goal::Contest => world.views().any(|(_, view)| view.is_some_and(|view| view.role == Role::Candidate)),
    }
}

fn is_met<O: Observer>(world: &World<O>, expectation: Expectation) -> bool {
    match expectation {
        Expectation::Leader => is_reached(world, Goal::Leader),
        Expectation::LeaderIs(node) => is_reached(world, Goal::LeaderIs(node)),
        Expectation::NoLeader => is_reached(world, Goal::NoLeader),
        Expectation::Agreed => is_reached(world, Goal::Agreed),
        Expectation::TwoLeaders => world.leaders().count() > 1,
        Expectation::NeverTwoLeaders => world.meter().overlaps().is_empty(),
        Expectation::Term(term) => greatest_term(world) == Some(term),
    }
}

/// How things stand instead.
fn found<O: Observer>(world: &World<O>, expectation: Expectation) -> String {
    match expectation {
        Expectation::Term(_) => match greatest_term(world) {
            Some(term) => format!("the greatest term is {term}"),
            None => "no node is up".to_owned(),
        },
        Expectation::NeverTwoLeaders => {
            let spans: Vec<String> =
                world.meter().overlaps().iter().map(|overlap| format!("from {} to {}", overlap.from, overlap.to)).collect();
            format!("more than one was in office {}", spans.join(", "))
        }
        Expectation::Agreed => {
            let states: Vec<String> = world.nodes().iter().map(|node| state(node, world.now())).collect();
            states.join("; ")
        }
        Expectation::Leader | Expectation::LeaderIs(_) | Expectation::NoLeader | Expectation::TwoLeaders => office(world),
    }
}

fn greatest_term<O: Observer>(world: &World<O>) -> Option<Term> {
    world.views().filter_map(|(_, view)| view.map(|view| view.term)).max()
}

/// `leader 1 term=1`, `no leader`, `leaders 1 term=1, 3 term=5`
fn office<O: Observer>(world: &World<O>) -> String {
    let holds = |node: &Node| node.in_office(world.now()).map(|term| format!("{} term={term}", node.id()));
    let leaders: Vec<String> = world.nodes().iter().filter_map(holds).collect();
    match leaders.len() {
        0 => "no leader".to_owned(),
        1 => format!("leader {}", leaders[0]),
        _ => format!("leaders {}", leaders.join(", ")),
    }
}

/// `2 follower of 1 term=1`
fn state(node: &Node, now: Moment) -> String {
    struct Of(Option<NodeId>);
    impl fmt::Display for Of {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.map_or(Ok(()), |leader| write!(f, " of {leader}"))
        }
    }
    let id = node.id();
    let Some(view) = node.view() else { return format!("{id} down") };
    let paused = if node.condition() == Condition::Paused { ", paused" } else { "" };
    match view.role {
        Role::Leader if node.in_office(now).is_some() => format!("{id} leader term={}{paused}", view.term),
        Role::Leader => format!("{id} leader term={} whose lease is over{paused}", view.term),
        Role::Candidate => format!("{id} candidate term={}{paused}", view.term),
        Role::Follower => format!("{id} follower{} term={}{paused}", Of(view.leader), view.term),
    }
}

/// What was sent between two looks at the meter, a line for each purpose.
fn counts(before: &[Tally], now: &[Tally]) -> Vec<String> {
    let since = |tally: &Tally| {
        let earlier = before.iter().find(|it| it.name == tally.name).map_or(0, |it| it.count);
        tally.count - earlier
    };
    let line = |(purpose, name): (Purpose, &str)| {
        let sent: Vec<(&str, u64)> = now
            .iter()
            .filter(|it| it.purpose == purpose)
            .map(|it| (it.name, since(it)))
            .filter(|(_, count)| *count > 0)
            .collect();
        let total: u64 = sent.iter().map(|(_, count)| count).sum();
        let parts: Vec<String> = sent.iter().map(|(name, count)| format!("{name} {count}")).collect();
        (total > 0).then(|| format!("{name} {total}: {}", parts.join(", ")))
    };
    let purposes = [(Purpose::Contest, "contest"), (Purpose::Guard, "guard"), (Purpose::Upkeep, "upkeep")];
    let lines: Vec<String> = purposes.into_iter().filter_map(line).collect();
    if lines.is_empty() { vec!["no messages".to_owned()] } else { lines }
}

/// What may be demanded of this world, if this is done to it.
fn demands<'a>(world: &WorldSettings, faults: impl IntoIterator<Item = &'a Fault>) -> Demands {
    let settings = &world.settings;
    let drift = settings.pace().drift_ppm;
    let clocks_are_good = world.clocks.rate_ppm_max <= drift && faults.into_iter().all(|it| it.keeps_time(drift));
    let guarded = settings.quorum().is_some();
    let exclusion = if guarded && clocks_are_good { Exclusion::Demanded } else { Exclusion::Counted };
    let order = match (guarded, clocks_are_good, world.kind) {
        (true, true, _) => Order::Whole,
        (true, false, _) | (false, _, Kind::Raft) => Order::SinceContest,
        (false, _, Kind::Bully | Kind::Ring | Kind::ChangRoberts) => Order::PerNode,
    };
    let contest = longest_contest(settings);
    Demands {
        exclusion,
        order,
        elected_within: contest,
        // Then a greater id may come and ask for the office, and the group must settle once more.
        settled_within: contest * 2 + settings.stability().min_tenure,
        contest_within: contest,
    }
}

/// The only fit candidate may stand aside for the longest time, be waited for by the most patient, and need three tries.
fn longest_contest(settings: &Settings) -> Duration {
    let pace = settings.pace();
    let lap = pace.reply * u32::try_from(settings.members().len()).unwrap_or(u32::MAX);
    settings.stability().aside_max + (pace.patience_max + lap) * 3
}
