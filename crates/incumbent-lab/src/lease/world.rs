//! The world itself: a queue of what is to happen, and what each of it does.
//!
//! One run has three parts. In the first, faults happen. Then everything heals, and somebody must get
//! the seat and keep it. At last the one in office crashes for good, and one who waits must take over in the time that the timing
//! promises. Same setup, same run, to the last sighting ([`Outcome::digest`]).

use std::collections::VecDeque;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use incumbent_protocol::chance::Chance;
use incumbent_protocol::protocol::Token;
use incumbent_protocol::tenure::{Call, CallId, Decline, Effect, Event, Input, Outcome as CallOutcome, Reason, Request, Tenure};

use super::oracle::{Demands, Exclusion, Oracles};
use super::process::{Process, Sent, Work};
use super::resource::Resource;
use super::service::Service;
use super::setup::{Clocks, Flaw, Obedience, Setup};
use super::sighting::{HolderId, Sighting};
use super::tally::{Case, Tally};
use super::weather::Change;
use crate::clock::{Clock, ClockSettings};
use crate::network::Network;
use crate::observation::Moment;
use crate::oracle::Violation;
use crate::queue::Queue;

/// So many of the last sightings are kept to show what led to a violation.
const LAST_SIGHTINGS_MAX: usize = 40;

/// The service's rank in the network. The processes follow, and last comes the resource.
const SERVICE: u32 = 0;

/// How a run went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The first violation.
    pub violation: Option<Violation>,
    /// What was seen last, up to the violation or to the end.
    pub last: Vec<(Moment, Sighting)>,
    /// Equal for equal runs.
    pub digest: u64,
    /// How much happened.
    pub happenings: u64,
    /// Each oracle's name, its case, and how often that was true.
    pub sometimes: [(&'static str, &'static str, u64); Oracles::COUNT],
    /// How often each case came up.
    pub tally: Tally,
    /// How often two believed at once, and for how long at most.
    pub overlaps: (u64, Duration),
    /// How often two worked at once.
    pub work_overlaps: u64,
    /// The shortest time between the end of a belief that was not given up and the beginning of the next.
    pub closest: Option<Duration>,
    /// How long the failover at the end took.
    pub failover: Option<Duration>,
    seed: u64,
}

/// What a person needs to see of a run that failed.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, sighting) in &self.last {
            writeln!(f, "t={}.{:06} {sighting:?}", at.0 / 1_000_000_000, at.0 / 1_000 % 1_000_000)?;
        }
        match &self.violation {
            Some(violation) => write!(f, "{violation}\nseed {} of lease::Setup::draw", self.seed),
            None => write!(f, "seed {}: no violation", self.seed),
        }
    }
}

/// Runs the world of `setup` to its end, or to the first violation.
pub fn run(setup: &Setup) -> Outcome {
    let mut world = World::new(setup);
    world.begin();
    while let Some((at, happening)) = world.queue.take() {
        if at > world.end || world.violated() {
            break;
        }
        world.now = at;
        world.happenings += 1;
        world.happen(happening);
    }
    world.finish()
}

/// What is to happen.
#[derive(Copy, Clone, Debug)]
pub(super) enum Happening {
    /// A process wanted to be woken.
    Wake { node: u32, number: u32 },
    /// A call arrives at the service.
    Arrives { node: u32, holder: HolderId, id: CallId, call: Call },
    /// An answer, or a hint, arrives at a process.
    Delivered { node: u32, holder: HolderId, input: Input },
    /// Work writes to the resource, and will again.
    WorkWrites { node: u32, token: Token },
    /// Work is gone.
    WorkEnds { node: u32, token: Token, number: u32 },
    /// A write arrives at the resource.
    WriteArrives { token: Token },
    /// The lease may have ended, on the service's clock.
    LeaseEnds,
    /// Something goes wrong, or right again.
    Weather(Change),
}

pub(super) struct World<'a> {
    pub(super) setup: &'a Setup,
    pub(super) now: Moment,
    end: Moment,
    pub(super) queue: Queue<Happening>,
    /// Decides about faults and work.
    pub(super) chance: Chance,
    /// Decides about messages.
    letters: Chance,
    pub(super) network: Network,
    pub(super) service: Service,
    pub(super) service_clock: Clock,
    pub(super) service_up: bool,
    resource: Resource,
    pub(super) processes: Vec<Process>,
    lives: u32,
    pub(super) healed: bool,
    demands: Demands,
    oracles: Oracles,
    pub(super) tally: Tally,
    digest: Digest,
    last: VecDeque<(Moment, Sighting)>,
    happenings: u64,
}

impl<'a> World<'a> {
    fn new(setup: &'a Setup) -> World<'a> {
        let mut chance = Chance::new(setup.seed);
        let letters = Chance::new(chance.bits());
        let ttl = setup.timing.ttl();
        let settings = ClockSettings { rate_ppm_max: setup.timing.drift_ppm(), ..ClockSettings::within(0) };
        let service_clock = Clock::draw(&settings, &mut chance);
        let processes = (0..setup.holders).map(|_| Process::new(Clock::draw(&settings, &mut chance))).collect();
        let within = |bound: bool| if bound { Exclusion::Demanded } else { Exclusion::Counted };
        let clocks_keep = setup.clocks == Clocks::WithinBound;
        let demands = Demands {
            belief: within(clocks_keep),
            work: within(clocks_keep && setup.work == Obedience::Obedient && setup.faults.pause == 0),
            // Strays of the storm may arrive for four leases and take the seat for one more; then who has just given it back rests,
            // who clings to it clings for three, and everybody may have just begun to wait.
            settled_within: ttl * 14,
            // The last renewal may still have been on its way.
            failover_within: setup.timing.failover_max() + ttl / 10,
        };
        World {
            setup,
            now: Moment::ZERO,
            end: Moment::NEVER,
            queue: Queue::default(),
            chance,
            letters,
            network: Network::new(setup.network, setup.holders as usize + 2),
            service: Service::new(ttl, setup.habits),
            service_clock,
            service_up: true,
            resource: Resource::default(),
            processes,
            lives: 0,
            healed: false,
            oracles: Oracles::new(&demands),
            demands,
            tally: Tally::default(),
            digest: Digest::default(),
            last: VecDeque::new(),
            happenings: 0,
        }
    }

    fn begin(&mut self) {
        for node in 0..self.setup.holders {
            self.start(node);
        }
        let ttl = self.setup.timing.ttl();
        let heal = Moment::ZERO + ttl * self.setup.storm_ttls;
        let decapitate = heal + self.demands.settled_within + ttl * 2;
        self.end = decapitate + self.demands.failover_within + ttl;
        self.queue.put(Moment::ZERO, Happening::Weather(Change::Strike));
        self.queue.put(heal, Happening::Weather(Change::Heal));
        self.queue.put(decapitate, Happening::Weather(Change::Decapitate));
    }

    fn finish(mut self) -> Outcome {
        let end = if self.violated() { self.now } else { self.end };
        self.oracles.finish(end);
        let violation = self.oracles.violations().min_by_key(|violation| violation.at).cloned();
        Outcome {
            violation,
            last: self.last.into(),
            digest: self.digest.finish(),
            happenings: self.happenings,
            sometimes: self.oracles.sometimes(),
            tally: self.tally,
            overlaps: (self.oracles.exclusive_belief.overlaps(), self.oracles.exclusive_belief.longest()),
            work_overlaps: self.oracles.one_worker_at_a_time.overlaps(),
            closest: self.oracles.exclusive_belief.closest(),
            failover: self.oracles.liveness.failover(),
            seed: self.setup.seed,
        }
    }

    fn violated(&self) -> bool {
        self.oracles.violations().next().is_some()
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Wake { node, number } => {
                if self.process(node).wake == number {
                    self.input(node, Input::Wake);
                }
            }
            Happening::Arrives { node, holder, id, call } => self.serve(node, holder, id, call),
            Happening::Delivered { node, holder, input } => {
                if self.process(node).holder == holder {
                    self.input(node, input);
                }
            }
            Happening::WorkWrites { node, token } => self.write(node, token),
            Happening::WorkEnds { node, token, number } => self.end_work(node, token, number),
            Happening::WriteArrives { token } => {
                let accepted = self.resource.write(token) || self.setup.flaw == Some(Flaw::Unfenced);
                self.see(Sighting::Written { token, accepted });
            }
            Happening::LeaseEnds => self.expire(),
            Happening::Weather(change) => self.change(change),
        }
    }

    pub(super) fn process(&mut self, node: u32) -> &mut Process {
        &mut self.processes[node as usize]
    }

    pub(super) fn see(&mut self, sighting: Sighting) {
        self.oracles.see(self.now, &sighting);
        (self.now, sighting).hash(&mut self.digest);
        if self.last.len() == LAST_SIGHTINGS_MAX {
            self.last.pop_front();
        }
        self.last.push_back((self.now, sighting));
    }

    /// A process comes up, as a holder that nobody has heard of yet.
    pub(super) fn start(&mut self, node: u32) {
        self.lives += 1;
        let holder = HolderId(self.lives);
        let (seed, now) = (self.chance.bits(), self.now);
        let process = self.process(node);
        let local = process.clock.read(now);
        let timing = self.setup.timing;
        self.process(node).come_up(holder, Tenure::start(timing, seed, None, local));
        self.see(Sighting::Started { holder });
        self.input(node, Input::Request(Request::Contend));
    }

    pub(super) fn crash(&mut self, node: u32) {
        let process = self.process(node);
        let holder = process.holder;
        if process.machine.take().is_none() {
            return;
        }
        process.wake += 1;
        process.paused = None;
        process.belief = None;
        if let Some(work) = process.work.take() {
            self.see(Sighting::WorkEnded { holder, token: work.token });
        }
        self.see(Sighting::Crashed { holder });
    }

    /// Gives a process something to do, or to find when it goes on.
    pub(super) fn input(&mut self, node: u32, input: Input) {
        let process = self.process(node);
        if process.paused.is_some() {
            process.inbox.push(input);
        } else if process.machine.is_some() {
            self.step(node, input);
        }
    }

    pub(super) fn step(&mut self, node: u32, input: Input) {
        let input = self.note_answer(node, input);
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let now = self.now;
            let process = self.process(node);
            let Some(machine) = &mut process.machine else { return };
            let mut effects = Vec::new();
            machine.step(process.clock.read(now), input, &mut effects);
            for effect in effects {
                match effect {
                    Effect::Call { id, call, .. } => self.call(node, id, call),
                    Effect::Emit(event) => inputs.extend(self.on_event(node, input, event)),
                }
            }
        }
        self.look(node);
        self.sleep(node);
    }

    /// Counts what is odd about an answer, and passes it on; falsified, if the holders are flawed.
    fn note_answer(&mut self, node: u32, input: Input) -> Input {
        let Input::Answer { call, outcome } = input else { return input };
        let (now, timing, flaw) = (self.now, self.setup.timing, self.setup.flaw);
        let process = self.process(node);
        let local = process.clock.read(now);
        let Some(sent) = process.calls.get(&call).copied() else { return input };
        if local > sent.local + timing.request_timeout() {
            self.tally.count(Case::ReplyAfterTimeout);
        }
        let CallOutcome::Granted { token, ttl: Some(ttl), counted_from: None } = outcome else { return input };
        if local >= sent.local + timing.validity(ttl) {
            self.tally.count(Case::ReplyAfterValidity);
        }
        let ppm = timing.drift_ppm();
        let ttl = match flaw {
            Some(Flaw::CountsFromReply) => ttl + (local - sent.local),
            Some(Flaw::IgnoresDrift) => ttl * (1_000_000 + ppm) / (1_000_000 - ppm),
            Some(Flaw::ReleasesFirst | Flaw::Unfenced | Flaw::GivesUp) | None => ttl,
        };
        Input::Answer { call, outcome: CallOutcome::Granted { token, ttl: Some(ttl), counted_from: None } }
    }

    fn call(&mut self, node: u32, id: CallId, call: Call) {
        let now = self.now;
        let process = self.process(node);
        let (holder, local) = (process.holder, process.clock.read(now));
        process.remember(id, Sent { call, at: now, local });
        let copies = self.send(node + 1, SERVICE, Happening::Arrives { node, holder, id, call });
        if copies > 1 {
            self.tally.count(Case::CallRepeated);
        }
    }

    /// Hands something to the network; how many copies will arrive.
    fn send(&mut self, from: u32, to: u32, what: Happening) -> usize {
        if !self.network.carries(from, to, self.now) {
            return 0;
        }
        let fate = self.network.fate(from, to, &mut self.letters);
        let copies = [fate.first, fate.second];
        for delay in copies.iter().flatten() {
            self.queue.put(self.now + *delay, what);
        }
        copies.iter().flatten().count()
    }

    /// What the machine says; what its driver says to it in turn.
    fn on_event(&mut self, node: u32, input: Input, event: Event) -> Option<Input> {
        let flaw = self.setup.flaw;
        let holder = self.process(node).holder;
        match event {
            Event::Elected { token, .. } => self.on_elected(node, input, token),
            Event::Stopping { .. } => {
                let drain = self.setup.timing.drain();
                let longest = if self.setup.work == Obedience::Stubborn { drain * 3 } else { drain };
                self.let_die(node, longest);
                return self
                    .work_token(node)
                    .filter(|_| flaw == Some(Flaw::ReleasesFirst))
                    .map(|token| Input::WorkEnded { token });
            }
            Event::Kill { .. } => self.kill_work(node),
            Event::Lost { token, reason } => {
                self.process(node).has_lost = true;
                match reason {
                    Reason::Expired => self.tally.count(Case::LostByExpiry),
                    Reason::Superseded => self.tally.count(Case::Superseded),
                    Reason::Resigned
                    | Reason::HandedOver
                    | Reason::Finished
                    | Reason::HealthFailed
                    | Reason::Evicted
                    | Reason::Declined => {}
                }
                if self.process(node).belief.take().is_some() {
                    self.see(Sighting::Ceases { holder, token });
                }
                if self.work_token(node) == Some(token) {
                    self.tally.count(Case::WorkOverran);
                    self.kill_work(node);
                }
                return (flaw == Some(Flaw::GivesUp)).then_some(Input::Request(Request::Withdraw));
            }
            Event::Recovered { .. } => self.tally.count(Case::Recovered),
            Event::Declined { why: Decline::TooLate, .. } => self.tally.count(Case::DeclinedTooLate),
            Event::Declined { why: Decline::Unwanted, .. } => self.tally.count(Case::DeclinedUnwanted),
            Event::Declined { why: Decline::Leftover, .. } => self.tally.count(Case::DeclinedLeftover),
            Event::Declined { why: Decline::Regressed { .. }, .. }
            | Event::Renewed { .. }
            | Event::Jeopardy { .. }
            | Event::Released { .. }
            | Event::NotReleased { .. }
            | Event::Withdrawn => {}
        }
        None
    }

    fn on_elected(&mut self, node: u32, input: Input, token: Token) {
        let (now, timeout) = (self.now, self.setup.timing.request_timeout());
        let process = self.process(node);
        let (holder, local, has_lost) = (process.holder, process.clock.read(now), process.has_lost);
        if let Input::Answer { call, .. } = input
            && let Some(sent) = process.calls.get(&call).copied()
        {
            if sent.call != Call::Claim || local > sent.local + timeout {
                self.tally.count(Case::UnknownClaimWasGranted);
            }
            self.see(Sighting::Entered { holder, token, sent: sent.at });
        }
        if has_lost {
            self.tally.count(Case::CameBack);
        }
        self.process(node).work = Some(Work { token, end: 0, ends: Moment::NEVER });
        self.see(Sighting::WorkBegan { holder, token });
        self.queue.put(now, Happening::WorkWrites { node, token });
        // Some work ends by itself; but not in the end, when nobody is to leave without need.
        if !self.healed && self.chance.happens(200_000) {
            self.let_die(node, self.setup.timing.ttl() * 5);
        }
    }

    pub(super) fn work_token(&mut self, node: u32) -> Option<Token> {
        self.process(node).work.map(|work| work.token)
    }

    fn kill_work(&mut self, node: u32) {
        let kill = self.setup.timing.kill();
        let clings = self.setup.work == Obedience::Stubborn && self.chance.happens(300_000);
        let longest = if clings { self.setup.timing.ttl() * 3 } else { kill };
        self.let_die(node, longest);
    }

    /// Work ends within `longest` on its own clock, or when it would have anyway.
    fn let_die(&mut self, node: u32, longest: Duration) {
        let span = self.chance.between(Duration::ZERO, longest);
        let now = self.now;
        let process = self.process(node);
        let at = process.clock.moment(process.clock.read(now) + span);
        let Some(work) = process.work.as_mut().filter(|work| at < work.ends) else { return };
        work.end += 1;
        work.ends = at;
        let (token, number) = (work.token, work.end);
        self.queue.put(at, Happening::WorkEnds { node, token, number });
    }

    fn end_work(&mut self, node: u32, token: Token, number: u32) {
        let process = self.process(node);
        if process.work.is_none_or(|work| work.token != token || work.end != number) {
            return;
        }
        if process.paused.is_some() {
            process.postponed.push(Happening::WorkEnds { node, token, number });
            return;
        }
        process.work = None;
        let holder = process.holder;
        self.see(Sighting::WorkEnded { holder, token });
        self.step(node, Input::WorkEnded { token });
    }

    /// Work does not look at the clock before it writes: that is what the fence is for.
    fn write(&mut self, node: u32, token: Token) {
        if self.work_token(node) != Some(token) {
            return;
        }
        let process = self.process(node);
        if process.paused.is_some() {
            process.postponed.push(Happening::WorkWrites { node, token });
            return;
        }
        let resource = self.setup.holders + 1;
        self.send(node + 1, resource, Happening::WriteArrives { token });
        let ttl = self.setup.timing.ttl();
        let next = self.now + self.chance.between(ttl / 20, ttl / 2);
        self.queue.put(next, Happening::WorkWrites { node, token });
    }

    /// Shows the oracles what a process believes, if that has changed.
    pub(super) fn look(&mut self, node: u32) {
        let now = self.now;
        let process = self.process(node);
        let Some(machine) = &process.machine else { return };
        let office = machine.state(process.clock.read(now)).office();
        let belief = office.map(|(token, until)| (token, process.clock.moment(until)));
        let (holder, before) = (process.holder, core::mem::replace(&mut process.belief, belief));
        if before == belief {
            return;
        }
        match (before, belief) {
            (_, Some((token, until))) => self.see(Sighting::Believes { holder, token, until }),
            (Some((token, _)), None) => self.see(Sighting::Ceases { holder, token }),
            (None, None) => {}
        }
    }

    /// Puts the next wake-up of a process into the queue.
    pub(super) fn sleep(&mut self, node: u32) {
        let now = self.now;
        let process = self.process(node);
        let Some(machine) = &process.machine else { return };
        process.wake += 1;
        let (number, at) = (process.wake, process.clock.moment(machine.deadline()).max(now));
        if at != Moment::NEVER {
            self.queue.put(at, Happening::Wake { node, number });
        }
    }

    fn serve(&mut self, node: u32, holder: HolderId, id: CallId, call: Call) {
        if !self.service_up {
            return;
        }
        let mut seen = Vec::new();
        let outcome = if !self.healed && self.chance.happens(self.setup.habits.refusal_ppm) {
            CallOutcome::Refused
        } else {
            self.service.answer(self.service_clock.read(self.now), holder, call, &mut seen)
        };
        self.after_service(seen);
        let input = Input::Answer { call: id, outcome };
        self.send(SERVICE, node + 1, Happening::Delivered { node, holder, input });
    }

    fn expire(&mut self) {
        if self.service_up {
            let mut seen = Vec::new();
            self.service.expire(self.service_clock.read(self.now), &mut seen);
            self.after_service(seen);
        }
    }

    /// Shows what the service did, tells those who wait, and looks when the lease ends.
    pub(super) fn after_service(&mut self, seen: Vec<Sighting>) {
        for sighting in seen {
            self.see(sighting);
            if let Sighting::Freed { .. } = sighting
                && self.setup.habits.hints
            {
                for node in 0..self.setup.holders {
                    let holder = self.process(node).holder;
                    self.send(SERVICE, node + 1, Happening::Delivered { node, holder, input: Input::Hint });
                }
            }
        }
        if let Some(ends) = self.service.ends() {
            self.queue.put(self.service_clock.moment(ends).max(self.now), Happening::LeaseEnds);
        }
    }
}

/// FNV-1a: the same in every run, which the standard hasher does not promise.
struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Digest(0xCBF2_9CE4_8422_2325)
    }
}

impl Hasher for Digest {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
