//! The swarm: run after run, each drawn from a seed of its own, every one under all oracles.
//!
//! A run has two phases. First things go wrong, and nothing is demanded but safety. Then everything is healed, except perhaps
//! a few nodes that stay down, and the others must elect a leader, agree on it and keep it, within bounds that follow from its settings. The same seeds give the
//! same report on any number of threads; a swarm that was stopped says with which seed to go on.

use std::fmt;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use incumbent_protocol::machine::Kind;
use incumbent_protocol::protocol::{Claim, Event, NodeId, Reason, Record, Request, Term};

use crate::fault::Fault;
use crate::jobs::{self, Audience};
use crate::observation::{Moment, Observation, Observer};
use crate::oracle::{Oracles, Sometimes, Splits, Violation};
use crate::plan::{Aim, Plan, exchanged};
use crate::trace::{Detail, Recording};
use crate::world::World;

/// The name under which a broken assertion is reported: one of the code's own, not an oracle's.
pub const PANIC: &str = "panic";

/// What came of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// What was broken: at most one violation an oracle.
    pub violations: Vec<Violation>,
    /// How often the oracles met the cases they are there for.
    pub sometimes: Sometimes,
    /// The times with more than one node in office.
    pub splits: Splits,
    /// How long after healing somebody was in office.
    pub recovery: Option<Duration>,
    /// How long after healing all agreed for good.
    pub settled: Option<Duration>,
    /// Things that happened in the world.
    pub events: u64,
    /// Follows from everything that was observed: two runs are the same if it is.
    pub digest: u64,
}

impl Outcome {
    /// Whether `oracle` found something.
    pub fn breaks(&self, oracle: &str) -> bool {
        self.violations.iter().any(|it| it.oracle == oracle)
    }
}

/// Runs `plan` from its beginning to its end.
pub fn run(plan: &Plan) -> Outcome {
    run_recorded(plan, Recording::Off).0
}

/// Runs `plan` and says what happened before the first violation, if there is one: the last `lines` of it.
pub fn examine(plan: &Plan, lines: usize) -> Result<Outcome, Box<Failure>> {
    let (outcome, world) = run_recorded(plan, Recording::All);
    let Some(until) = outcome.violations.iter().map(|it| it.at).min() else { return Ok(outcome) };
    let entries = world.trace().entries().take_while(|entry| entry.at <= until);
    let shown: Vec<_> = entries.filter(|entry| entry.what.detail() <= Detail::Messages).collect();
    let tail = shown[shown.len().saturating_sub(lines)..].iter().map(ToString::to_string).collect();
    Err(Box::new(Failure { plan: plan.clone(), violations: outcome.violations, tail }))
}

fn run_recorded(plan: &Plan, recording: Recording) -> (Outcome, World<Watch>) {
    let world = plan.world(recording);
    let watch = Watch { oracles: Oracles::new(&world.settings, &plan.demands()), digest: Digest(plan.seed) };
    let mut world = World::watched(world, watch);
    // The code's own assertions are oracles too; the world is only looked at afterwards, never run on.
    let died = catch_unwind(AssertUnwindSafe(|| live_through(plan, &mut world))).err();
    let (now, events) = (world.now(), world.meter().events());
    let Watch { oracles, digest } = world.observer_mut();
    let mut violations: Vec<Violation> = oracles.violations().cloned().collect();
    if let Some(payload) = died {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default();
        violations.push(Violation { oracle: PANIC, at: now, text });
    }
    let outcome = Outcome {
        violations,
        sometimes: oracles.sometimes(),
        splits: oracles.one_leader_at_a_time.splits(),
        recovery: oracles.liveness.recovery(),
        settled: oracles.agreement.settled(),
        events,
        digest: digest.0,
    };
    (outcome, world)
}

fn live_through(plan: &Plan, world: &mut World<Watch>) {
    let mut steps: Vec<(Duration, usize, &Fault)> = Vec::new();
    for (number, trouble) in plan.troubles.iter().enumerate() {
        steps.extend(trouble.steps.iter().map(|(at, fault)| (*at, number, fault)));
    }
    steps.retain(|(at, ..)| *at < plan.faults_for);
    // What happens at one moment happens in the order of the plan.
    steps.sort_by_key(|(at, ..)| *at);
    let mut hit: Vec<Option<(NodeId, NodeId)>> = vec![None; plan.troubles.len()];
    for (at, number, fault) in steps {
        world.run_until(Moment::ZERO + at);
        let exchange = hit[number].get_or_insert_with(|| match plan.troubles[number].aim {
            Aim::AsDrawn => (NodeId(1), NodeId(1)),
            Aim::Leader(in_place_of) => (in_place_of, world.leader().unwrap_or(in_place_of)),
        });
        world.inject(exchanged(fault, *exchange));
    }
    world.run_until(Moment::ZERO + plan.faults_for);
    world.heal();
    plan.stay_down.iter().for_each(|node| world.inject(Fault::Crash(*node)));
    let abstains = |(_, fault): &(_, Fault)| matches!(fault, Fault::Request { request: Request::Abstain, .. });
    if plan.troubles.iter().flat_map(|it| &it.steps).any(abstains) {
        // Whom it hit in the end does not matter: who stands already does not mind.
        let all = (1..=plan.nodes).map(NodeId);
        all.for_each(|node| world.inject(Fault::Request { node, request: Request::Stand }));
    }
    plan.stay_out.iter().for_each(|node| world.inject(Fault::Request { node: *node, request: Request::Abstain }));
    world.run_for(plan.demands().settled_within);
    if plan.resets_in_calm {
        let every = plan.pace.reply / 3;
        world.inject(Fault::ResetStorm { every, times: (plan.calm_for().as_nanos() / every.as_nanos().max(1)) as u32 });
    }
    world.run_for(plan.calm_for());
    let end = world.now();
    world.observer_mut().oracles.finish(end);
}

/// What watches a run.
#[derive(Clone, Debug)]
struct Watch {
    oracles: Oracles,
    digest: Digest,
}

impl Observer for Watch {
    fn observe(&mut self, at: Moment, seen: &Observation<'_>) {
        self.oracles.observe(at, seen);
        self.digest.add(at, seen);
    }
}

/// A number that follows from all observations in their order.
#[derive(Copy, Clone, Debug)]
struct Digest(u64);

impl Digest {
    fn add(&mut self, at: Moment, seen: &Observation<'_>) {
        self.word(at.0);
        match *seen {
            Observation::InOffice { node, term, until } => self.words([1, node.0.into(), term.0, until.0]),
            Observation::OutOfOffice { node, term } => self.words([2, node.0.into(), term.0, 0]),
            Observation::Told { node, event } => {
                self.words([3, node.0.into(), 0, 0]);
                self.words(words_of_event(event));
            }
            Observation::Started { node, disk } => {
                self.words([4, node.0.into(), 0, 0]);
                self.words(words_of_record(disk.as_ref()));
            }
            Observation::Crashed { node } => self.words([5, node.0.into(), 0, 0]),
            Observation::Sent { from, to, claim, purpose, name, durable } => {
                self.words([6, from.0.into(), to.0.into(), purpose as u64]);
                self.words(match claim {
                    Claim::Nothing => [0; 4],
                    Claim::Term(Term(term)) => [1, term, 0, 0],
                    Claim::Vote { term: Term(term), candidate: NodeId(id) } => [2, term, id.into(), 0],
                    Claim::Office(Term(term)) => [3, term, 0, 0],
                });
                name.bytes().for_each(|byte| self.word(byte.into()));
                self.words(words_of_record(durable));
            }
            Observation::Healed => self.words([7, 0, 0, 0]),
        }
    }

    fn words(&mut self, words: [u64; 4]) {
        words.into_iter().for_each(|word| self.word(word));
    }

    fn word(&mut self, word: u64) {
        // Two odd constants and a rotation: every bit of every word counts, and so does the order. Not against malice.
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 ^= self.0 >> 29;
    }
}

fn words_of_record(record: Option<&Record>) -> [u64; 4] {
    record.map_or([0; 4], |it| [1, it.term.0, it.vote.is_some().into(), it.vote.map_or(0, |it| it.0).into()])
}

fn words_of_event(event: Event) -> [u64; 4] {
    match event {
        Event::Elected { term } => [1, term.0, 0, 0],
        Event::Lost { term, reason } => match reason {
            Reason::Resigned => [2, term.0, 0, 0],
            Reason::HandedOver { to } => [2, term.0, 1, to.0.into()],
            Reason::QuorumLost => [2, term.0, 2, 0],
            Reason::Superseded { term: by } => [2, term.0, 3, by.0],
        },
        Event::Follows { leader, term } => [3, term.0, leader.0.into(), 0],
        Event::LeaderGone { leader, term, cause } => [4, term.0, leader.0.into(), cause as u64],
        Event::Contends { term } => [5, term.0, 0, 0],
        Event::Rejected { term } => [6, term.0, 0, 0],
        Event::Asked { to } => [7, to.0.into(), 0, 0],
        Event::Ignored { from } => [8, from.0.into(), 0, 0],
    }
}

/// A number of runs to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Swarm {
    /// One run for each.
    pub seeds: Range<u64>,
    /// The protocol, or whichever each seed draws.
    pub kind: Option<Kind>,
    /// How many threads work on it. Changes nothing in the report.
    pub jobs: NonZeroUsize,
}

/// What a swarm has found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Runs made: all seeds below `next`.
    pub done: u64,
    /// The seed to go on with; the end of the range if all were run.
    pub next: u64,
    /// How many runs broke something.
    pub failed: u64,
    /// The first of them, by seed.
    pub failures: Vec<Failure>,
    /// How often the oracles met the cases they are there for.
    pub sometimes: Sometimes,
    /// The times with more than one node in office, where that is no violation.
    pub splits: Splits,
    /// The longest that a healed group was without a leader.
    pub slowest_recovery: Duration,
    /// Things that happened in all the worlds.
    pub events: u64,
    /// Follows from every run, whatever the order in which they were made.
    pub digest: u64,
}

/// A run in which something was broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// How to have it again.
    pub plan: Plan,
    /// What was broken.
    pub violations: Vec<Violation>,
    /// The last that happened before.
    pub tail: Vec<String>,
}

impl Swarm {
    /// More failures than this are counted but not kept.
    pub const FAILURES_KEPT_MAX: usize = 16;
    /// The lines of trace that are kept of a failure.
    pub const TAIL_LINES: usize = 40;

    /// Runs whose outcomes are in memory at one time.
    const BATCH: u64 = 1024;

    /// Makes the runs, in the order of the seeds as far as anyone can tell. An audience that has had enough ends the swarm
    /// after the runs that are under way.
    pub fn run(&self, audience: &impl Audience) -> Report {
        let mut report = Report { next: self.seeds.start, ..Report::default() };
        while report.next < self.seeds.end && !audience.has_enough() {
            let first = report.next;
            let size = usize::try_from(Self::BATCH.min(self.seeds.end - first)).expect("a batch is small");
            let batch = Batch { audience, before: report.done };
            let outcomes = jobs::run_all(size, self.jobs, &batch, |number| {
                let plan = Plan::draw(first + number as u64, self.kind);
                let outcome = run(&plan);
                (plan, outcome)
            });
            for (plan, outcome) in outcomes {
                report.add(plan, outcome);
            }
        }
        // Only those that are kept are run again, to record what happened.
        for failure in &mut report.failures {
            if let Err(told) = examine(&failure.plan, Self::TAIL_LINES) {
                *failure = *told;
            }
        }
        report
    }
}

/// Tells the audience of a batch in the numbers of the whole.
struct Batch<'a, A> {
    audience: &'a A,
    before: u64,
}

impl<A: Audience> Audience for Batch<'_, A> {
    fn progress(&self, done: usize) {
        self.audience.progress(usize::try_from(self.before).unwrap_or(usize::MAX).saturating_add(done));
    }

    fn has_enough(&self) -> bool {
        self.audience.has_enough()
    }
}

impl Report {
    /// Adds what was found in the seeds that follow on this report's.
    pub fn append(&mut self, later: Report) {
        self.done += later.done;
        self.next = later.next;
        self.failed += later.failed;
        self.failures.extend(later.failures);
        self.failures.truncate(Swarm::FAILURES_KEPT_MAX);
        self.sometimes.add(&later.sometimes);
        self.splits.add(&later.splits);
        self.slowest_recovery = self.slowest_recovery.max(later.slowest_recovery);
        self.events += later.events;
        self.digest = self.digest.wrapping_add(later.digest);
    }

    fn add(&mut self, plan: Plan, outcome: Outcome) {
        self.done += 1;
        self.next += 1;
        self.events += outcome.events;
        self.sometimes.add(&outcome.sometimes);
        self.splits.add(&outcome.splits);
        self.slowest_recovery = self.slowest_recovery.max(outcome.recovery.unwrap_or_default());
        // A sum, so that a swarm in two parts comes to the same.
        self.digest = self.digest.wrapping_add(outcome.digest);
        if outcome.violations.is_empty() {
            return;
        }
        self.failed += 1;
        if self.failures.len() < Swarm::FAILURES_KEPT_MAX {
            self.failures.push(Failure { plan, violations: outcome.violations, tail: Vec::new() });
        }
    }
}

impl Failure {
    /// The command that has the run again.
    pub fn replay(&self) -> String {
        format!("incumbent lab swarm --seed {} --protocol {}", self.plan.seed, self.plan.kind)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} ({}) fails:", self.plan.seed, self.plan.kind)?;
        self.violations.iter().try_for_each(|it| writeln!(f, "  {it}"))?;
        if !self.tail.is_empty() {
            writeln!(f, "the last that happened before:")?;
            self.tail.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        }
        write!(f, "again: {}", self.replay())
    }
}
