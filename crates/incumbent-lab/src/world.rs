//! A whole group of nodes in one thread, from one seed: the same seed gives the same run, to the byte.
//!
//! ```text
//!            ┌── wake, message, completed write, request ──► Machine::step ──► effects ─┐
//!   queue ───┤                                                                          ├──► queue
//!            └── fault ──► links, clocks, disks, nodes ─────────────────────────────────┘
//! ```
//!
//! The nodes are the shipping machines; only what surrounds them is made up. Nothing here decides who leads. After every
//! step the world shows its observer what has changed, in true time.

use std::time::Duration;

use incumbent_protocol::chance::Chance;
use incumbent_protocol::machine::{Kind, Machine, Message};
use incumbent_protocol::protocol::{Effect, Effects, Event, Input, NodeId, Request, Role, View, Wire};
use incumbent_protocol::settings::Settings;
use incumbent_protocol::time::Instant;

use crate::clock::{Clock, ClockSettings};
use crate::disk::{Disk, DiskSettings};
use crate::fault::Fault;
use crate::meter::Meter;
use crate::network::{Delay, Network, NetworkSettings, Refusal};
use crate::node::{Condition, INBOX_MAX, Letter, Node, Office, Wake};
use crate::observation::{Moment, Observation, Observer};
use crate::queue::Queue;
use crate::trace::{Happening, Recording, Trace, Undelivered};

/// A machine may be woken this often at one moment. One that asks for more would never let time pass.
const WAKES_AT_ONE_MOMENT_MAX: u32 = 1_000;

/// What a world is made of.
#[derive(Clone, Debug)]
pub struct WorldSettings {
    /// The protocol.
    pub kind: Kind,
    /// What the nodes agree on.
    pub settings: Settings,
    /// Everything that is left to chance follows from it.
    pub seed: u64,
    /// The links.
    pub network: NetworkSettings,
    /// The disks.
    pub disk: DiskSettings,
    /// The clocks.
    pub clocks: ClockSettings,
    /// How long a leader's user takes to end its work and hand over when it is asked to; `None`: it never does.
    pub obliges: Option<Delay>,
    /// What is kept of the run.
    pub recording: Recording,
}

impl WorldSettings {
    /// A machine room in good order, with clocks as unequal as the pace allows; nothing is recorded.
    pub fn new(kind: Kind, settings: Settings, seed: u64) -> WorldSettings {
        let clocks = ClockSettings::within(settings.pace().drift_ppm);
        WorldSettings {
            kind,
            settings,
            seed,
            network: NetworkSettings::LAN,
            disk: DiskSettings::FAST,
            clocks,
            obliges: Some(Delay::Constant(Duration::from_millis(1))),
            recording: Recording::Off,
        }
    }

    /// A world without chance but for the machines' own: every message takes `delay`, disks and users none, clocks show
    /// true time.
    pub fn plain(kind: Kind, settings: Settings, seed: u64, delay: Duration) -> WorldSettings {
        WorldSettings {
            network: NetworkSettings::constant(delay),
            disk: DiskSettings::INSTANT,
            clocks: ClockSettings::EXACT,
            obliges: Some(Delay::NONE),
            ..WorldSettings::new(kind, settings, seed)
        }
    }
}

/// A group of nodes and all that surrounds them. `O` watches.
#[derive(Clone, Debug)]
pub struct World<O: Observer = ()> {
    pub(crate) kind: Kind,
    pub(crate) settings: Settings,
    pub(crate) seed: u64,
    pub(crate) now: Moment,
    pub(crate) queue: Queue<Pending>,
    /// By rank.
    pub(crate) nodes: Vec<Node>,
    pub(crate) network: Network,
    pub(crate) trace: Trace,
    pub(crate) faults: Chance,
    /// The number of the plan of faults that counts: healing voids it.
    pub(crate) plan: u32,
    obliges: Option<Delay>,
    users: Chance,
    meter: Meter,
    observer: O,
    /// Lent to the machine that steps.
    effects: Effects<Message>,
    /// If the members' ids follow on each other: the first.
    first_id: Option<u32>,
    wakes_now: u32,
}

/// What the queue holds. Nodes are given by rank.
#[derive(Clone, Debug)]
pub(crate) enum Pending {
    /// A node's deadline.
    Wake { node: u32, number: u32 },
    /// A message reaches its receiver.
    Arrival { from: u32, to: u32, sent: Moment, message: Message },
    /// The oldest write of a node's disk is done.
    Written { node: u32, generation: u32 },
    /// A busy node's next letter has its turn.
    Work { node: u32, number: u32 },
    /// A sender hears that its message was refused.
    Refused { node: u32, peer: u32 },
    /// The user of a leader that was asked to hand over has ended its work.
    WorkEnded { node: u32, incarnation: u32, to: NodeId },
    /// A fault that was planned.
    Fault { plan: u32, fault: Box<Fault> },
    /// A clock that stands still since `stopped` goes on.
    Thaw { plan: u32, node: u32, stopped: Moment },
    /// The next gust of a reset storm.
    Resets { plan: u32, every: Duration, times: u32 },
}

impl World {
    /// A world that nobody watches. All nodes start at its first moment.
    pub fn new(settings: WorldSettings) -> World {
        World::watched(settings, ())
    }
}

impl<O: Observer> World<O> {
    /// A world that `observer` watches. All nodes start at its first moment.
    pub fn watched(settings: WorldSettings, observer: O) -> World<O> {
        let WorldSettings { kind, settings, seed, network, disk, clocks, obliges, recording } = settings;
        let mut drawn = stream(seed, Stream::Clocks, 0);
        let nodes: Vec<Node> = (0u64..)
            .zip(settings.members())
            .map(|(rank, id)| {
                let clock = Clock::draw(&clocks, &mut drawn);
                let disk = Disk::new(disk, stream(seed, Stream::Disk, rank));
                Node::new(*id, clock, disk, stream(seed, Stream::Network, rank))
            })
            .collect();
        let first = settings.members()[0].0;
        let follow_on = (first..).zip(settings.members()).all(|(id, member)| member.0 == id);
        let mut world = World {
            kind,
            seed,
            now: Moment::ZERO,
            queue: Queue::default(),
            network: Network::new(network, nodes.len()),
            nodes,
            trace: Trace::new(recording),
            faults: stream(seed, Stream::Faults, 0),
            plan: 0,
            obliges,
            users: stream(seed, Stream::Users, 0),
            meter: Meter::default(),
            observer,
            effects: Effects::default(),
            first_id: follow_on.then_some(first),
            wakes_now: 0,
            settings,
        };
        for node in world.ranks() {
            world.start(node);
        }
        world
    }

    /// The present moment.
    pub fn now(&self) -> Moment {
        self.now
    }

    /// The protocol that the nodes run.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What the nodes agree on.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// All nodes, in ascending order of id.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// One node; `None` for a stranger.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.settings.rank(id).map(|rank| &self.nodes[rank])
    }

    /// How the machines look; `None` for a node that is down.
    pub fn views(&self) -> impl Iterator<Item = (NodeId, Option<&View>)> {
        self.nodes.iter().map(|node| (node.id, node.view.as_ref()))
    }

    /// The nodes that hold themselves to be in office.
    pub fn leaders(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.iter().filter(|node| node.in_office(self.now).is_some()).map(|node| node.id)
    }

    /// The node in office, if there is exactly one.
    pub fn leader(&self) -> Option<NodeId> {
        let mut leaders = self.leaders();
        leaders.next().filter(|_| leaders.next().is_none())
    }

    /// The node in office, if there is exactly one and every node that is up takes it for the leader.
    pub fn agreed_leader(&self) -> Option<NodeId> {
        let leader = self.leader()?;
        let agree = |node: &Node| node.condition != Condition::Up || node.view.is_some_and(|view| view.leader == Some(leader));
        self.nodes.iter().all(agree).then_some(leader)
    }

    /// The links.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Whether a message from `from` would reach `to` now.
    ///
    /// # Panics
    /// If one of them is no member.
    pub fn reaches(&self, from: NodeId, to: NodeId) -> bool {
        self.network.carries(self.rank(from), self.rank(to), self.now)
    }

    /// The figures so far, up to the present moment.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// What was recorded.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Lets the trace be cleared between the parts of a run.
    pub fn trace_mut(&mut self) -> &mut Trace {
        &mut self.trace
    }

    /// Who watches.
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// Who watches, to be told something or asked for what it has found.
    pub fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }

    /// Ends the world and hands its observer back.
    pub fn into_observer(self) -> O {
        self.observer
    }

    /// When something happens next.
    pub fn next_at(&self) -> Option<Moment> {
        self.queue.next_at()
    }

    /// How much is yet to happen, as far as is known now; void entries count.
    pub fn pending(&self) -> usize {
        self.queue.len()
    }

    /// Lets the next thing happen. False if nothing ever will.
    pub fn step(&mut self) -> bool {
        let happened = self.step_before(Moment::NEVER);
        self.meter.advance(self.now);
        happened
    }

    /// Runs until `at`; what happens at `at` itself has happened then.
    pub fn run_until(&mut self, at: Moment) {
        while self.step_before(at) {}
        self.pass_to(at);
    }

    /// Runs for `span`.
    pub fn run_for(&mut self, span: Duration) {
        self.run_until(self.now + span);
    }

    /// Runs as long as `wanted` says so, asked before every step, but not beyond `limit`.
    /// True if it was `wanted` that ended it.
    pub fn run_while(&mut self, mut wanted: impl FnMut(&Self) -> bool, limit: Moment) -> bool {
        loop {
            if !wanted(self) {
                self.meter.advance(self.now);
                return true;
            }
            if !self.step_before(limit) {
                self.pass_to(limit);
                // A belief may have run out since, without anything happening.
                return !wanted(self);
            }
        }
    }

    fn pass_to(&mut self, at: Moment) {
        if at != Moment::NEVER {
            self.now = self.now.max(at);
        }
        self.meter.advance(self.now);
    }

    /// Lets the next thing happen unless it lies beyond `limit`.
    fn step_before(&mut self, limit: Moment) -> bool {
        loop {
            match self.queue.next_at() {
                Some(at) if at <= limit => {}
                Some(_) | None => return false,
            }
            let Some((at, what)) = self.queue.take() else { return false };
            if at > self.now {
                self.now = at;
                self.wakes_now = 0;
            }
            if self.happen(what) {
                self.meter.count_event();
                return true;
            }
        }
    }

    /// Carries out what came up. False if it had become void.
    fn happen(&mut self, what: Pending) -> bool {
        match what {
            Pending::Arrival { from, to, sent, message } => self.arrive(from, to, sent, message),
            Pending::Wake { node, number } => return self.wake(node, number),
            Pending::Written { node, generation } => return self.written(node, generation),
            Pending::Work { node, number } => return self.work(node, number),
            Pending::Refused { node, peer } => {
                let peer = self.nodes[peer as usize].id;
                self.give(node, self.now, Input::Request(Request::Suspect { peer }));
            }
            Pending::WorkEnded { node, incarnation, to } => {
                if incarnation != self.nodes[node as usize].incarnation {
                    return false;
                }
                self.give(node, self.now, Input::Request(Request::HandOver { to }));
            }
            Pending::Fault { plan, fault } => {
                if plan != self.plan {
                    return false;
                }
                self.inject(*fault);
            }
            Pending::Thaw { plan, node, stopped } => {
                if plan != self.plan {
                    return false;
                }
                self.nodes[node as usize].clock.thaw(self.now, stopped);
                self.clock_changed(node);
            }
            Pending::Resets { plan, every, times } => {
                if plan != self.plan {
                    return false;
                }
                self.reset_connections(every, times);
            }
        }
        true
    }

    fn arrive(&mut self, from: u32, to: u32, sent: Moment, message: Message) {
        if !self.network.carries(from, to, self.now) {
            return self.drop_message(from, to, sent, message, Undelivered::Cut);
        }
        let receiver = &self.nodes[to as usize];
        if receiver.condition == Condition::Down {
            if self.network.refusal() == Refusal::Heard {
                self.refuse(from, to);
            }
            return self.drop_message(from, to, sent, message, Undelivered::Down);
        }
        if receiver.inbox.len() >= INBOX_MAX {
            return self.drop_message(from, to, sent, message, Undelivered::Full);
        }
        let from = self.nodes[from as usize].id;
        self.give(to, sent, Input::Receive { from, message });
    }

    /// The network of a node that is down sends a refusal back to `from`, if there is a way back.
    fn refuse(&mut self, from: u32, to: u32) {
        let fate = self.network.fate(to, from, &mut self.nodes[to as usize].chance);
        if let Some(delay) = fate.first
            && self.network.carries(to, from, self.now)
        {
            self.queue.put(self.now + delay, Pending::Refused { node: from, peer: to });
        }
    }

    fn drop_message(&mut self, from: u32, to: u32, sent: Moment, message: Message, why: Undelivered) {
        let (from, to) = (self.nodes[from as usize].id, self.nodes[to as usize].id);
        self.trace.record(self.now, || Happening::Dropped { from, to, message, sent, why });
    }

    fn wake(&mut self, node: u32, number: u32) -> bool {
        let it = &mut self.nodes[node as usize];
        if number != it.wake.number {
            return false;
        }
        it.wake.queued = Moment::NEVER;
        if it.condition != Condition::Up {
            // It is woken when it goes on.
            return false;
        }
        if it.wake.due > self.now {
            self.queue_wake(node);
            return false;
        }
        self.wakes_now += 1;
        assert!(
            self.wakes_now <= WAKES_AT_ONE_MOMENT_MAX.max(4 * self.nodes.len() as u32),
            "node {} is woken at {} again and again, and its deadline does not move",
            self.nodes[node as usize].id,
            self.now
        );
        if !self.nodes[node as usize].is_free() {
            self.nodes[node as usize].wake.waiting = true;
        }
        self.give(node, self.now, Input::Wake);
        true
    }

    fn written(&mut self, node: u32, generation: u32) -> bool {
        let it = &mut self.nodes[node as usize];
        if generation != it.disk.generation() {
            return false;
        }
        let (mark, record) = it.disk.complete();
        let id = it.id;
        self.trace.record(self.now, || Happening::Written { node: id, record });
        self.give(node, self.now, Input::Persisted(mark));
        true
    }

    fn work(&mut self, node: u32, number: u32) -> bool {
        let it = &mut self.nodes[node as usize];
        if number != it.work || it.condition != Condition::Up {
            return false;
        }
        it.working = false;
        let Some(letter) = it.inbox.pop_front() else { return false };
        if letter.input == Input::Wake {
            it.wake.waiting = false;
        }
        self.step_node(node, letter);
        self.queue_work(node);
        true
    }

    /// Gives `input` to a node: at once, or when it has time for it. Lost on a node that is down.
    pub(crate) fn give(&mut self, node: u32, sent: Moment, input: Input<Message>) {
        let it = &mut self.nodes[node as usize];
        let letter = Letter { sent, input };
        if it.is_free() {
            self.step_node(node, letter);
        } else if it.condition != Condition::Down {
            it.inbox.push_back(letter);
            self.queue_work(node);
        }
    }

    /// Sees to it that a busy node's next letter has its turn.
    pub(crate) fn queue_work(&mut self, node: u32) {
        let it = &mut self.nodes[node as usize];
        if it.condition == Condition::Up && !it.working && !it.inbox.is_empty() {
            it.working = true;
            it.work += 1;
            self.queue.put(self.now + it.slow, Pending::Work { node, number: it.work });
        }
    }

    fn step_node(&mut self, node: u32, letter: Letter) {
        let it = &mut self.nodes[node as usize];
        let id = it.id;
        match &letter.input {
            Input::Receive { from, message } => self.trace.record(self.now, || Happening::Received {
                from: *from,
                to: id,
                message: message.clone(),
                sent: letter.sent,
            }),
            Input::Request(request) => self.trace.record(self.now, || Happening::Requested { node: id, request: *request }),
            Input::Wake | Input::Persisted(_) => {}
        }
        let now = it.clock.read(self.now);
        let machine = it.machine.as_mut().expect("a node that is up has a machine");
        machine.step(now, letter.input, &mut self.effects);
        self.look(node);
        self.carry_out(node);
        self.look_at_deadline(node);
    }

    /// Observes what changed in the looks of a node's machine.
    pub(crate) fn look(&mut self, node: u32) {
        let it = &mut self.nodes[node as usize];
        let view = it.machine.as_ref().map(Machine::view);
        if view == it.view {
            return;
        }
        let shape = |view: &View| (view.role, view.term, view.leader);
        let changed = it.view.as_ref().map(shape) != view.as_ref().map(shape);
        it.view = view;
        let id = it.id;
        if let Some(view) = view
            && changed
        {
            self.trace.record(self.now, || Happening::Changed { node: id, view });
        }
        self.look_at_office(node);
    }

    /// Observes whether a node's belief to be in office has changed.
    pub(crate) fn look_at_office(&mut self, node: u32) {
        let it = &mut self.nodes[node as usize];
        let office = it
            .view
            .filter(|view| view.role == Role::Leader)
            .map(|view| Office { term: view.term, until: view.until.map_or(Moment::NEVER, |until| it.clock.moment(until)) });
        let office = office.filter(|office| office.until > self.now);
        if office == it.office {
            return;
        }
        let (id, before) = (it.id, std::mem::replace(&mut it.office, office));
        if let Some(before) = before
            && office.is_none_or(|office| office.term != before.term)
        {
            self.notice(&Observation::OutOfOffice { node: id, term: before.term });
        }
        if let Some(Office { term, until }) = office {
            self.notice(&Observation::InOffice { node: id, term, until });
        }
    }

    fn carry_out(&mut self, node: u32) {
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain() {
            match effect {
                Effect::Send { to, message } => self.send(node, to, message),
                Effect::Persist { mark, record } => {
                    let it = &mut self.nodes[node as usize];
                    let id = it.id;
                    self.trace.record(self.now, || Happening::Writing { node: id, record });
                    if let Some(at) = it.disk.write(self.now, mark, record) {
                        self.queue.put(at, Pending::Written { node, generation: it.disk.generation() });
                    }
                }
                Effect::Emit(event) => {
                    let id = self.nodes[node as usize].id;
                    self.trace.record(self.now, || Happening::Told { node: id, event });
                    self.notice(&Observation::Told { node: id, event });
                    if let Event::Asked { to } = event {
                        self.ask_user(node, to);
                    }
                }
            }
        }
        self.effects = effects;
    }

    /// A leader's user is asked to hand over.
    fn ask_user(&mut self, node: u32, to: NodeId) {
        if let Some(takes) = self.obliges {
            let at = self.now + takes.draw(&mut self.users);
            let incarnation = self.nodes[node as usize].incarnation;
            self.queue.put(at, Pending::WorkEnded { node, incarnation, to });
        }
    }

    fn send(&mut self, from: u32, to: NodeId, message: Message) {
        let rank = self.rank(to);
        let sender = &mut self.nodes[from as usize];
        let id = sender.id;
        assert_ne!(id, to, "a node does not send to itself");
        let seen = Observation::Sent {
            from: id,
            to,
            claim: message.claim(id, to),
            purpose: message.purpose(),
            name: message.name(),
            durable: sender.disk.durable(),
        };
        self.meter.observe(self.now, &seen);
        self.observer.observe(self.now, &seen);
        self.meter.count_bytes(message.purpose(), message.len_bytes());
        self.trace.record(self.now, || Happening::Sent { from: id, to, message: message.clone() });

        let fate = self.network.fate(from, rank, &mut sender.chance);
        let sent = self.now;
        if !self.network.carries(from, rank, sent) {
            return self.drop_message(from, rank, sent, message, Undelivered::Cut);
        }
        if let Some(delay) = fate.second {
            let message = message.clone();
            self.queue.put(sent + delay, Pending::Arrival { from, to: rank, sent, message });
        }
        match fate.first {
            Some(delay) => self.queue.put(sent + delay, Pending::Arrival { from, to: rank, sent, message }),
            None => self.drop_message(from, rank, sent, message, Undelivered::Lost),
        }
    }

    fn look_at_deadline(&mut self, node: u32) {
        let it = &self.nodes[node as usize];
        // After a wake-up there is no entry in the queue, even if the deadline is still the same.
        let looked = it.machine.as_ref().is_none_or(|machine| machine.deadline() == it.wake.deadline);
        if !looked || it.wake.queued == Moment::NEVER {
            self.convert_deadline(node);
        }
    }

    /// Finds the moment of a node's deadline.
    fn convert_deadline(&mut self, node: u32) {
        let it = &mut self.nodes[node as usize];
        it.wake.deadline = it.machine.as_ref().map_or(Instant::NEVER, Machine::deadline);
        it.wake.due = it.clock.moment(it.wake.deadline);
        self.queue_wake(node);
    }

    /// Sees to it that an entry comes up no later than the node's deadline.
    pub(crate) fn queue_wake(&mut self, node: u32) {
        let it = &mut self.nodes[node as usize];
        let at = it.wake.due.max(self.now);
        if at < it.wake.queued && !it.wake.waiting {
            it.wake.queued = at;
            it.wake.number += 1;
            self.queue.put(at, Pending::Wake { node, number: it.wake.number });
        }
    }

    /// A node's clock no longer is what it was: its deadline and its belief lie at other moments now.
    pub(crate) fn clock_changed(&mut self, node: u32) {
        self.convert_deadline(node);
        self.look_at_office(node);
    }

    /// Brings a node up, with what its disk holds.
    pub(crate) fn start(&mut self, node: u32) {
        let it = &mut self.nodes[node as usize];
        it.incarnation += 1;
        it.condition = Condition::Up;
        // Entries of an earlier life must not count for this one.
        it.wake = Wake { number: it.wake.number + 1, ..Wake::NONE };
        let disk = it.disk.recover(self.now);
        let id = it.id;
        self.trace.record(self.now, || Happening::Started { node: id, disk });
        self.notice(&Observation::Started { node: id, disk });
        let it = &mut self.nodes[node as usize];
        let seed = derive(derive(self.seed ^ Stream::Machine as u64, u64::from(id.0)), u64::from(it.incarnation));
        it.machine = Some(Machine::start(self.kind, id, &self.settings, seed, disk, it.clock.read(self.now)));
        self.look(node);
        self.look_at_deadline(node);
    }

    /// Takes a node down: all but its disk is gone.
    pub(crate) fn crash(&mut self, node: u32) {
        let it = &mut self.nodes[node as usize];
        if it.condition == Condition::Down {
            return;
        }
        it.condition = Condition::Down;
        it.machine = None;
        let unread = std::mem::take(&mut it.inbox);
        it.working = false;
        it.work += 1;
        it.wake = Wake { number: it.wake.number + 1, ..Wake::NONE };
        it.disk.crash();
        let id = it.id;
        for Letter { sent, input } in unread {
            if let Input::Receive { from, message } = input {
                self.drop_message(self.rank(from), node, sent, message, Undelivered::Down);
            }
        }
        self.look(node);
        self.trace.record(self.now, || Happening::Crashed { node: id });
        self.notice(&Observation::Crashed { node: id });
    }

    pub(crate) fn notice(&mut self, seen: &Observation<'_>) {
        self.meter.observe(self.now, seen);
        self.observer.observe(self.now, seen);
    }

    /// Where a member stands.
    pub(crate) fn rank(&self, node: NodeId) -> u32 {
        let rank = match self.first_id {
            Some(first) => Some(node.0.wrapping_sub(first) as usize).filter(|rank| *rank < self.nodes.len()),
            None => self.settings.rank(node),
        };
        rank.unwrap_or_else(|| panic!("node {node} is no member")) as u32
    }

    pub(crate) fn ranks(&self) -> std::ops::Range<u32> {
        0..self.nodes.len() as u32
    }
}

/// What chance is asked about. Each has streams of its own, so that one draw more here changes nothing there.
#[derive(Copy, Clone)]
enum Stream {
    Clocks = 0x636C_6F63,
    Disk = 0x6469_736B,
    Network = 0x6E65_7477,
    Faults = 0x6661_756C,
    Users = 0x7573_6572,
    Machine = 0x6D61_6368,
}

fn stream(seed: u64, stream: Stream, rank: u64) -> Chance {
    Chance::new(derive(seed ^ stream as u64, rank))
}

/// A seed that follows from `seed` and `number` and looks like neither.
fn derive(seed: u64, number: u64) -> u64 {
    let mixed = Chance::new(seed).bits() ^ number;
    Chance::new(mixed).bits()
}
