//! A world of replicas made from a seed: network, disks, clocks, clients and faults. The same seed is the same world.
//!
//! Its nodes replicate a register, and a real store beside it if that is wanted; who uses the store is in `town`.
//! Faults rage first; then everything is healed, and the cluster must decide again, soon, and keep its leader. Oracles judge every event.

pub(crate) mod clocks;
pub(crate) mod disk;
pub(crate) mod faults;
pub(crate) mod machine;
pub(crate) mod oracle;
pub(crate) mod town;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use incumbent_protocol::chance::Chance;
use incumbent_protocol::protocol::{NodeId, Term};
use incumbent_protocol::time::Instant;
use incumbent_service::replica::{
    Content, Effect, Index, Input, Mark, Place, Recovered, Replica, Role, Roll, Settings, Snapshot, Tag, promise,
};
use incumbent_service::server::expiry::Expiry;

use self::clocks::Clocks;
use self::disk::Disk;
use self::faults::Fault;
use self::machine::{Machine, Replicated, fold, fold_bytes};
use self::oracle::{Known, Oracle};
use self::town::client::{Answer, Matter};
use self::town::{Scene, Town};

/// True time in nanoseconds, which no replica ever sees.
pub(crate) type Moment = u64;

pub(crate) const MILLISECOND: Moment = 1_000_000;

/// A node that is busy looks after so long what has come.
const BUSY_FOR: Moment = MILLISECOND / 5;

/// A part of a snapshot is written in this time, if the disk does not hang.
const KEPT_AFTER: Moment = MILLISECOND / 20;

pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) now: Moment,
    pub(crate) chance: Chance,
    pub(crate) settings: Settings,
    pub(crate) clocks: Clocks,
    pub(crate) nodes: Vec<Node>,
    pub(crate) network: Network,
    pub(crate) oracle: Oracle,
    pub(crate) counts: Counts,
    queue: BTreeMap<(Moment, u64), Event>,
    sequence: u64,
    operations: BTreeMap<(NodeId, Tag), Operation>,
    last_operation: u64,
    /// A fingerprint of all that has happened.
    pub(crate) trace: u64,
    /// All that has happened, for people; only kept when a run is looked at again.
    pub(crate) record: Option<Vec<String>>,
    pub(crate) wrong: Option<String>,
    /// How often, of a million times, a node is busy when something comes.
    pub(crate) busy: u32,
    /// All that was sent, if somebody wants it.
    pub(crate) letters: Option<Vec<Letter>>,
    replicated: Replicated,
    /// Those who use the stores.
    pub(crate) town: Option<Box<Town>>,
}

/// Who sent what to whom.
pub(crate) type Letter = (NodeId, NodeId, Bytes);

pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) replica: Option<Replica>,
    pub(crate) life: u64,
    pub(crate) disk: Disk,
    pub(crate) machine: Machine,
    /// Parts per million by which its clock is fast, and where it started.
    pub(crate) drift_ppm: i64,
    pub(crate) clock_start: u64,
    /// Its disk answers nothing before this.
    pub(crate) disk_hangs_until: Moment,
    /// Its process stands still until then.
    pub(crate) paused_until: Moment,
    /// What has come while it was busy with something else: it is given together.
    gathered: Vec<Input>,
    /// A sync takes between this and twice as much.
    pub(crate) sync_takes: Duration,
    last_sync: Moment,
    wake_at: Moment,
    pub(crate) role: Role,
    expiry: Expiry,
    expire_at: Moment,
}

#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) cut: BTreeSet<(NodeId, NodeId)>,
    pub(crate) loss_ppm: u32,
    pub(crate) double_ppm: u32,
    pub(crate) delay: (Duration, Duration),
}

#[derive(Default, Debug)]
pub(crate) struct Counts {
    pub(crate) events: u64,
    pub(crate) done: u64,
    pub(crate) reads: u64,
    pub(crate) refused: u64,
    pub(crate) unknown: u64,
    pub(crate) snapshots_taken: u64,
    pub(crate) installs: u64,
    pub(crate) crashes: u64,
    /// Crashes after a snapshot was in place and before the log began anew behind it.
    pub(crate) between: u64,
    pub(crate) changes: u64,
    pub(crate) joint: u64,
    /// How long it took to decide something after all was healed.
    pub(crate) healed_in: Moment,
    pub(crate) elections: u64,
    pub(crate) writes: u64,
    /// How often a node has changed its mind about who leads.
    pub(crate) roles: u64,
    /// Parts of snapshots that were stored, and how many of them were the first.
    pub(crate) pieces: u64,
    pub(crate) first_pieces: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, world: &World) {
        let one = &world.counts;
        self.events += one.events;
        self.done += one.done;
        self.reads += one.reads;
        self.refused += one.refused;
        self.unknown += one.unknown;
        self.snapshots_taken += one.snapshots_taken;
        self.installs += one.installs;
        self.crashes += one.crashes;
        self.between += one.between;
        self.changes += one.changes;
        self.joint += one.joint;
        self.healed_in = self.healed_in.max(one.healed_in);
        self.elections += world.oracle.elections() as u64;
    }
}

pub(crate) enum Event {
    Deliver { from: NodeId, to: NodeId, bytes: Bytes },
    Wake { node: NodeId, life: u64 },
    Synced { node: NodeId, life: u64, mark: Mark },
    Saved { node: NodeId, life: u64, snapshot: Snapshot, state: Bytes },
    Given { node: NodeId, life: u64, input: Input },
    Operate,
    Fault(Fault),
    Town(Scene),
}

struct Operation {
    id: u64,
    kind: Kind,
    floor: u64,
    asked: Option<Asked>,
}

/// By whom something was asked, and whether that is who leads.
struct Asked {
    matter: Matter,
    look: Option<String>,
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum Kind {
    Write,
    Read,
    Change,
}

impl Node {
    pub(crate) fn clock(&self, now: Moment) -> Instant {
        let elapsed = i128::from(now) * i128::from(1_000_000 + self.drift_ppm) / 1_000_000;
        Instant::from_nanos(self.clock_start + elapsed as u64)
    }

    fn moment(&self, instant: Instant) -> Moment {
        let elapsed = i128::from(instant.as_nanos()) - i128::from(self.clock_start);
        (elapsed.max(0) * 1_000_000 / i128::from(1_000_000 + self.drift_ppm)) as u64 + 1
    }

    /// When this node is to say that time has passed, if it leads.
    fn expiry_due(&self, clock: Instant) -> Option<Instant> {
        self.expiry.due(clock, self.role, self.replica.as_ref()?, self.machine.store.as_ref()?)
    }
}

impl World {
    /// `voters` nodes that form a cluster, and `spares` that wait to be added.
    pub(crate) fn new(seed: u64, voters: u32, spares: u32, settings: Settings) -> World {
        World::replicating(Replicated::Register, Clocks::WithinBound, seed, voters, spares, settings)
    }

    pub(crate) fn replicating(
        replicated: Replicated,
        clocks: Clocks,
        seed: u64,
        voters: u32,
        spares: u32,
        settings: Settings,
    ) -> World {
        let mut chance = Chance::new(seed);
        let roll = Roll::of((0..voters).map(NodeId)).expect("some voters");
        let node = |id| {
            let recovered = if id < voters { Recovered::birth(roll.clone()) } else { Recovered::nothing() };
            let born = if id < voters { Machine::born(replicated) } else { Machine::nothing(replicated) };
            Node {
                id: NodeId(id),
                replica: None,
                life: 0,
                disk: Disk::new(recovered, Bytes::new()),
                machine: born,
                drift_ppm: clocks.drift_ppm(&mut chance),
                clock_start: chance.below(1 << 40),
                disk_hangs_until: 0,
                paused_until: 0,
                gathered: Vec::new(),
                sync_takes: Duration::ZERO,
                last_sync: 0,
                wake_at: 0,
                role: Role { term: Term(0), leader: None, leads: false },
                expiry: Expiry::default(),
                expire_at: Moment::MAX,
            }
        };
        let nodes = (0..voters + spares).map(node).collect();
        let network = Network::calm();
        let mut world = World {
            seed,
            now: 0,
            chance,
            settings,
            clocks,
            nodes,
            network,
            oracle: Oracle::new(roll),
            counts: Counts::default(),
            queue: BTreeMap::new(),
            sequence: 0,
            operations: BTreeMap::new(),
            last_operation: 0,
            trace: seed,
            record: None,
            wrong: None,
            busy: 0,
            letters: None,
            replicated,
            town: None,
        };
        for id in 0..voters + spares {
            world.start(NodeId(id));
        }
        world
    }

    pub(crate) fn node(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0 as usize]
    }

    pub(crate) fn schedule(&mut self, at: Moment, event: Event) {
        self.sequence += 1;
        self.queue.insert((at.max(self.now), self.sequence), event);
    }

    /// No further fault strikes.
    pub(crate) fn silence_faults(&mut self) {
        self.queue.retain(|_, event| !matches!(event, Event::Fault(_)));
    }

    /// Whether more faults are to come.
    fn storms(&self) -> bool {
        self.queue.values().any(|event| matches!(event, Event::Fault(Fault::Any)))
    }

    /// No further client comes.
    pub(crate) fn silence_clients(&mut self) {
        self.queue.retain(|_, event| !matches!(event, Event::Operate | Event::Town(Scene::Beat { .. })));
    }

    pub(crate) fn start(&mut self, id: NodeId) {
        let (seed, now, settings, replicated) = (self.seed, self.now, self.settings.clone(), self.replicated);
        let run = self.chance.bits();
        let node = self.node(id);
        if node.replica.is_some() {
            return;
        }
        node.life += 1;
        let machine = if node.disk.snapshot.index == 0 {
            Ok(Machine::nothing(replicated))
        } else {
            Machine::load(node.disk.state.clone(), replicated)
        };
        (node.expiry, node.expire_at) = (Expiry::default(), Moment::MAX);
        match machine {
            Ok(machine) => node.machine = machine,
            Err(why) => return self.wrong = Some(format!("{id} cannot read its own snapshot: {why}")),
        }
        let started = Replica::start(id, run, seed, settings, node.disk.recover(), node.clock(now));
        match started {
            Ok(replica) => {
                node.role = replica.view().role;
                node.replica = Some(replica);
            }
            Err(why) => self.wrong = Some(format!("{id} does not start from its own disk: {why:?}")),
        }
        self.note(|| format!("{id} starts"));
        self.step(id, Input::Wake);
    }

    /// The process is killed, and some of the others hear of it: its machine refuses connections from now on.
    pub(crate) fn kill(&mut self, id: NodeId) {
        self.kill_silently(id);
        for other in 0..self.nodes.len() as u32 {
            if NodeId(other) != id && self.chance.happens(700_000) {
                let (life, delay) = (self.nodes[other as usize].life, self.chance.below(3 * MILLISECOND));
                self.schedule(self.now + delay, Event::Given { node: NodeId(other), life, input: Input::Refused(id) });
            }
        }
    }

    /// The process is killed; with it goes what the disk had not synced.
    pub(crate) fn kill_silently(&mut self, id: NodeId) {
        let mut chance = Chance::new(self.chance.bits());
        let node = self.node(id);
        if node.replica.take().is_none() {
            return;
        }
        node.gathered.clear();
        node.disk.crash(&mut chance);
        let between = node.disk.between;
        self.counts.crashes += 1;
        self.counts.between += u64::from(between);
        self.operations.retain(|(at, _), _| *at != id);
        self.note(|| format!("{id} is killed"));
    }

    /// Runs until `until`, or until something is wrong.
    pub(crate) fn run(&mut self, until: Moment) {
        while self.wrong.is_none() {
            let Some(entry) = self.queue.first_entry().filter(|it| it.key().0 <= until) else { break };
            let ((at, _), event) = entry.remove_entry();
            self.now = at;
            self.counts.events += 1;
            self.happen(event);
        }
        self.now = self.now.max(until);
    }

    fn happen(&mut self, event: Event) {
        // What concerns a process that stands still waits for it.
        if let Some(paused) = self.paused(&event) {
            self.schedule(paused, event);
            return;
        }
        match event {
            Event::Deliver { from, to, bytes } => {
                if !self.network.cut.contains(&(from, to)) {
                    self.step(to, Input::Receive { from, bytes });
                }
            }
            Event::Wake { node, life } => {
                if self.node(node).life == life && self.node(node).wake_at <= self.now {
                    self.node(node).wake_at = Moment::MAX;
                    self.step(node, Input::Wake);
                }
            }
            Event::Synced { node, life, mark } => {
                let hangs_until = self.node(node).disk_hangs_until;
                if self.node(node).life != life || self.node(node).replica.is_none() {
                } else if hangs_until > self.now {
                    self.schedule(hangs_until, Event::Synced { node, life, mark });
                } else {
                    self.node(node).disk.sync(mark);
                    self.step(node, Input::Persisted(mark));
                }
            }
            Event::Saved { node, life, snapshot, state } => {
                if self.node(node).life == life && self.node(node).replica.is_some() {
                    let (index, extent) = (snapshot.index, disk::extent(&state));
                    if index > self.node(node).disk.snapshot.index {
                        self.node(node).disk.save(snapshot, state);
                    }
                    self.step(node, Input::Saved { index, extent });
                }
            }
            Event::Given { node, life, input } => {
                let hangs_until = self.node(node).disk_hangs_until;
                if matches!(input, Input::Kept { .. }) && self.node(node).life == life && hangs_until > self.now {
                    self.schedule(hangs_until, Event::Given { node, life, input });
                } else if self.node(node).life == life && self.node(node).replica.is_some() {
                    let Input::Stored { index, whole: true } = input else { return self.step(node, input) };
                    let whole = self.node(node).disk.settle();
                    faults::tempt(self, node);
                    self.step(node, Input::Stored { index, whole });
                }
            }
            Event::Operate => self.operate(),
            Event::Fault(fault) => faults::strike(self, fault),
            Event::Town(scene) => self.act(scene),
        }
    }

    fn paused(&mut self, event: &Event) -> Option<Moment> {
        let node = match event {
            Event::Deliver { to, .. } => *to,
            Event::Wake { node, .. } | Event::Synced { node, .. } | Event::Saved { node, .. } | Event::Given { node, .. } => {
                *node
            }
            Event::Town(scene) => scene.node()?,
            Event::Operate | Event::Fault(_) => return None,
        };
        let until = self.node(node).paused_until;
        (until > self.now).then_some(until)
    }

    /// A client asks some node for something, and another will soon.
    fn operate(&mut self) {
        let pause = self.chance.between(Duration::from_millis(1), Duration::from_millis(8));
        self.schedule(self.now + pause.as_nanos() as u64, Event::Operate);
        let id = NodeId(self.chance.below(self.nodes.len() as u64) as u32);
        if self.chance.happens(500_000) { self.write(id) } else { self.read(id) }
    }

    pub(crate) fn write(&mut self, at: NodeId) {
        if let Some((tag, id)) = self.open(at, Kind::Write) {
            let mut payload = BytesMut::with_capacity(8);
            payload.put_u64(id);
            self.step(at, Input::Propose { tag, payload: payload.freeze(), place: Place::Anywhere });
        }
    }

    pub(crate) fn read(&mut self, at: NodeId) {
        if let Some((tag, _)) = self.open(at, Kind::Read) {
            self.step(at, Input::Read { tag });
        }
    }

    pub(crate) fn change(&mut self, at: NodeId, steps: Vec<incumbent_service::replica::Step>) {
        if let Some((tag, _)) = self.open(at, Kind::Change) {
            self.step(at, Input::Change { tag, steps });
        }
    }

    fn open(&mut self, at: NodeId, kind: Kind) -> Option<(Tag, u64)> {
        let (floor, now) = (self.oracle.floor(), self.now);
        let node = self.node(at);
        if node.replica.is_none() || node.paused_until > now {
            return None;
        }
        self.last_operation += 1;
        let (tag, id) = (Tag(self.last_operation), self.last_operation);
        self.operations.insert((at, tag), Operation { id, kind, floor, asked: None });
        Some((tag, id))
    }

    /// Gives a node an input, and carries out what it wants.
    pub(crate) fn step(&mut self, id: NodeId, input: Input) {
        let now = self.now;
        let node = self.node(id);
        let clock = node.clock(now);
        let Some(mut replica) = node.replica.take() else { return };
        let life = node.life;
        let together = matches!(input, Input::Receive { .. } | Input::Propose { .. } | Input::Read { .. } | Input::Persisted(_));
        if together && self.busy > 0 && self.chance.happens(self.busy) {
            let node = self.node(id);
            node.replica = Some(replica);
            node.gathered.push(input);
            self.schedule(now + BUSY_FOR, Event::Given { node: id, life, input: Input::Wake });
            return;
        }
        let mut inputs = std::mem::take(&mut self.node(id).gathered);
        inputs.push(input);
        self.trace = fold(self.trace, &[now, u64::from(id.0)]);
        for input in &inputs {
            self.note(|| format!("{id} <- {}", brief(&format!("{input:?}"))));
        }
        let mut effects = Vec::new();
        replica.step(clock, inputs, &mut effects);
        for effect in effects {
            self.trace = fold_effect(self.trace, &effect);
            self.note(|| format!("{id} -> {}", brief(&format!("{effect:?}"))));
            if let Err(wrong) = self.carry_out(id, life, &replica, effect) {
                self.wrong.get_or_insert(wrong);
            }
        }
        let view = replica.view();
        let known = Known { term: view.role.term, commit: view.commit, handed: view.handed };
        let judged = self.oracle.on_step(id, life, known, self.nodes[id.0 as usize].disk.vote);
        if let Err(wrong) = judged {
            self.wrong.get_or_insert(wrong);
        }
        let deadline = replica.deadline();
        let node = self.node(id);
        node.replica = Some(replica);
        if let Some(deadline) = deadline {
            let at = node.moment(deadline).max(now + 1);
            if at != node.wake_at {
                node.wake_at = at;
                self.schedule(at, Event::Wake { node: id, life });
            }
        }
        self.expect_expiry(id);
    }

    fn carry_out(&mut self, id: NodeId, life: u64, replica: &Replica, effect: Effect) -> Result<(), String> {
        let node = &mut self.nodes[id.0 as usize];
        match effect {
            Effect::Send { to, bytes, .. } => {
                self.oracle.on_promise(id, to, promise(&bytes), node.disk.promised(), node.disk.last())?;
                if let Some(letters) = &mut self.letters {
                    letters.push((id, to, bytes.clone()));
                }
                self.post(id, to, bytes);
            }
            Effect::Write(write) => {
                let behind = write.entries.first().and_then(|it| node.disk.term_before(it.index, &write));
                self.oracle.on_write(id, behind, &write.entries)?;
                if let Some(town) = &mut self.town {
                    town.on_write(&write.entries, self.now);
                }
                self.counts.writes += 1;
                let mark = write.mark;
                node.disk.write(write);
                let takes = node.sync_takes;
                let delay = self.chance.between(Duration::from_micros(100) + takes, Duration::from_millis(2) + takes * 2);
                let delay = delay.as_nanos() as u64;
                let node = &mut self.nodes[id.0 as usize];
                node.last_sync = node.last_sync.max(self.now + delay);
                let at = node.last_sync;
                self.schedule(at, Event::Synced { node: id, life, mark });
            }
            Effect::Commit(entries) => {
                for entry in &entries {
                    self.oracle.on_commit(id, entry)?;
                    let node = &mut self.nodes[id.0 as usize];
                    let applied = node.machine.apply(entry)?;
                    self.oracle.on_applied(id, life, entry.index, node.machine.digest)?;
                    if let (Some(town), Some(store)) = (&mut self.town, &node.machine.store) {
                        town.on_applied(entry, &applied, store, self.now)?;
                    }
                    match &entry.content {
                        Content::Batch { items, .. } => {
                            for (at, (item, version)) in items.iter().zip(&applied.versions).enumerate() {
                                let Some(tag) = item.tag else { continue };
                                let outcome = applied.outcomes.get(at).cloned();
                                if outcome.as_ref().is_some_and(|it| it.refusal.is_some()) {
                                    self.forget_expiry(id, tag);
                                }
                                self.node(id).expiry.applied(tag);
                                let Some(operation) = self.operations.remove(&(id, tag)) else { continue };
                                self.counts.done += 1;
                                self.oracle.on_answer(&format!("write {}", operation.id), operation.floor, *version, true)?;
                                if let (Some(asked), Some(outcome)) = (operation.asked, outcome) {
                                    self.answer(asked.matter, Answer::Outcome(outcome));
                                }
                            }
                        }
                        Content::Members { tag, roll } => {
                            self.counts.changes += 1;
                            self.counts.joint += u64::from(roll.joint());
                            tag.and_then(|tag| self.operations.remove(&(id, tag)));
                        }
                        Content::Nothing => {}
                    }
                }
            }
            Effect::ReadAt { tag, index } => {
                let Some(operation) = self.operations.remove(&(id, tag)) else {
                    return Err(format!("{tag:?} is answered twice"));
                };
                if node.machine.applied < index {
                    return Err(format!("{id} is to read at {index} and has applied {}", node.machine.applied));
                }
                self.counts.reads += 1;
                self.oracle.on_answer(&format!("read {} at {id}", operation.id), operation.floor, node.machine.version, false)?;
                if let (Some(Asked { matter, look: Some(election) }), Some(store)) = (operation.asked, &node.machine.store) {
                    let board = town::look(store, &election);
                    self.town.iter_mut().for_each(|it| it.tally.looks += 1);
                    self.answer(matter, board);
                }
            }
            Effect::Reject { tag, .. } => {
                self.counts.refused += 1;
                self.forget_expiry(id, tag);
                let Some(operation) = self.operations.remove(&(id, tag)) else { return Ok(()) };
                if operation.kind == Kind::Write {
                    self.oracle.on_refused(operation.id)?;
                }
                if let Some(asked) = operation.asked {
                    self.answer(asked.matter, Answer::Perhaps);
                }
            }
            Effect::Unknown { tag } => {
                self.counts.unknown += 1;
                self.forget_expiry(id, tag);
                if let Some(asked) = self.operations.remove(&(id, tag)).and_then(|it| it.asked) {
                    self.answer(asked.matter, Answer::Perhaps);
                }
            }
            Effect::TakeSnapshot(snapshot) => {
                if node.machine.applied != snapshot.index {
                    return Err(format!(
                        "{id} is to save the state at {} and has applied {}",
                        snapshot.index, node.machine.applied
                    ));
                }
                self.counts.snapshots_taken += 1;
                if let (Some(town), Some(store)) = (&mut self.town, &node.machine.store) {
                    town.on_store(snapshot.index, store)?;
                }
                let state = node.machine.save();
                let delay = self.chance.below(20 * MILLISECOND);
                // A disk may be full for a while.
                let event = if self.chance.happens(100_000) {
                    Event::Given { node: id, life, input: Input::Unsaved { index: snapshot.index } }
                } else {
                    Event::Saved { node: id, life, snapshot, state }
                };
                self.schedule(self.now + delay, event);
            }
            Effect::Compact(index) => node.disk.compact(index),
            Effect::ReadPiece { to, index, offset, bytes_max } => {
                let bytes = node.disk.piece(index, offset, bytes_max);
                let delay = self.chance.below(MILLISECOND);
                let input = Input::Piece { to, index, offset, bytes };
                self.schedule(self.now + delay, Event::Given { node: id, life, input });
            }
            Effect::Expect { snapshot, extent } => {
                let index = snapshot.index;
                let have = node.disk.expect(snapshot, extent);
                let delay = self.chance.below(MILLISECOND);
                self.schedule(self.now + delay, Event::Given { node: id, life, input: Input::Expecting { index, have } });
            }
            Effect::StorePiece { index, offset, bytes, last } => {
                self.counts.pieces += 1;
                self.counts.first_pieces += u64::from(offset == 0);
                let whole = node.disk.store(offset, &bytes, last);
                if last {
                    let delay = self.chance.below(5 * MILLISECOND);
                    let input = Input::Stored { index, whole };
                    self.schedule(self.now + delay, Event::Given { node: id, life, input });
                } else {
                    let input = Input::Kept { index, have: offset + bytes.len() as u64 };
                    self.schedule(self.now + KEPT_AFTER, Event::Given { node: id, life, input });
                }
            }
            Effect::Install(snapshot) => {
                self.counts.installs += 1;
                node.machine = Machine::load(node.disk.state.clone(), self.replicated)?;
                if node.machine.applied != snapshot.index {
                    return Err(format!("{id} installs {} and its state is that of {}", snapshot.index, node.machine.applied));
                }
                self.oracle.on_applied(id, life, snapshot.index, node.machine.digest)?;
                if let (Some(town), Some(store)) = (&mut self.town, &node.machine.store) {
                    town.on_store(snapshot.index, store)?;
                }
            }
            Effect::Role(role) => {
                self.counts.roles += 1;
                node.role = role;
                if role.leads {
                    let view = replica.view();
                    self.oracle.on_leader(id, life, view.role.term, view.first, |index| replica.term_at(index))?;
                }
            }
            Effect::Members { index, roll } => self.oracle.on_members(id, index, &roll)?,
            Effect::Halt { index, why } => return Err(format!("{id} halts at entry {index}: {why:?}")),
        }
        Ok(())
    }

    /// That time has passed was not taken, or nobody knows, if that was it.
    fn forget_expiry(&mut self, id: NodeId, tag: Tag) {
        let (now, wait) = (self.now, self.settings.election_timeout());
        let node = self.node(id);
        let clock = node.clock(now);
        node.expiry.failed(tag, clock, wait);
    }

    fn post(&mut self, from: NodeId, to: NodeId, bytes: Bytes) {
        if to.0 as usize >= self.nodes.len()
            || self.network.cut.contains(&(from, to))
            || self.chance.happens(self.network.loss_ppm)
        {
            return;
        }
        let (low, high) = self.network.delay;
        if self.chance.happens(self.network.double_ppm) {
            // The copy may come much later: after elections, after restarts.
            let delay = self.chance.between(low, high * 50).as_nanos() as u64;
            self.schedule(self.now + delay, Event::Deliver { from, to, bytes: bytes.clone() });
        }
        let delay = self.chance.between(low, high).as_nanos() as u64;
        self.schedule(self.now + delay, Event::Deliver { from, to, bytes });
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(record) = &mut self.record {
            record.push(format!("{:>9.3} {}", self.now as f64 / MILLISECOND as f64, line()));
        }
    }

    /// Runs until something is so, for at most that long. False if it never was.
    pub(crate) fn until(&mut self, span: Moment, so: impl Fn(&World) -> bool) -> bool {
        let limit = self.now + span;
        while self.now < limit && self.wrong.is_none() {
            if so(self) {
                return true;
            }
            let next = self.queue.keys().next().map_or(limit, |(at, _)| *at).min(limit);
            self.run(next);
        }
        so(self)
    }

    /// Runs for so many events.
    pub(crate) fn events(&mut self, count: u64) {
        let until = self.counts.events + count;
        while self.counts.events < until && self.wrong.is_none() {
            let Some((at, _)) = self.queue.keys().next().copied() else { return };
            // One moment may hold several.
            self.run(at);
        }
    }

    /// Cuts what goes from one node to another; both ways, if that is called twice.
    pub(crate) fn cut(&mut self, from: NodeId, to: NodeId) {
        self.network.cut.insert((from, to));
    }

    /// Who leads, if anyone believes so; with the greatest term.
    pub(crate) fn leader(&self) -> Option<(NodeId, Term)> {
        let roles = self.nodes.iter().filter_map(|node| node.replica.as_ref().map(|it| (node.id, it.view().role)));
        roles.filter(|(_, role)| role.leads).map(|(id, role)| (id, role.term)).max_by_key(|(_, term)| *term)
    }

    /// The greatest term that anyone knows.
    pub(crate) fn term(&self) -> Term {
        self.nodes.iter().filter_map(|node| node.replica.as_ref()).map(|it| it.view().role.term).max().unwrap_or_default()
    }

    pub(crate) fn handed(&self, id: NodeId) -> Index {
        self.nodes[id.0 as usize].replica.as_ref().map_or(0, |it| it.view().handed)
    }
}

impl Network {
    pub(crate) fn calm() -> Network {
        let delay = (Duration::from_micros(50), Duration::from_micros(500));
        Network { cut: BTreeSet::new(), loss_ppm: 0, double_ppm: 0, delay }
    }
}

/// The number in front of a payload: no two proposals have the same.
pub(crate) fn number(payload: &Bytes) -> u64 {
    payload.clone().get_u64()
}

fn brief(text: &str) -> String {
    text.chars().take(220).collect()
}

fn fold_effect(hash: u64, effect: &Effect) -> u64 {
    match effect {
        Effect::Send { to, bytes, .. } => fold_bytes(fold(hash, &[1, u64::from(to.0)]), bytes),
        Effect::Write(write) => fold(hash, &[2, write.mark.0, write.entries.len() as u64]),
        Effect::Commit(entries) => entries.iter().fold(hash, |hash, entry| fold(hash, &[3, machine::hash(entry)])),
        Effect::ReadAt { tag, index } => fold(hash, &[4, tag.0, *index]),
        Effect::Reject { tag, .. } => fold(hash, &[5, tag.0]),
        Effect::Unknown { tag } => fold(hash, &[6, tag.0]),
        Effect::TakeSnapshot(snapshot) => fold(hash, &[7, snapshot.index]),
        Effect::Compact(index) => fold(hash, &[8, *index]),
        Effect::ReadPiece { to, offset, .. } => fold(hash, &[9, u64::from(to.0), *offset]),
        Effect::StorePiece { offset, .. } => fold(hash, &[10, *offset]),
        Effect::Expect { snapshot, .. } => fold(hash, &[15, snapshot.index]),
        Effect::Install(snapshot) => fold(hash, &[11, snapshot.index]),
        Effect::Role(role) => fold(hash, &[12, role.term.0, u64::from(role.leads)]),
        Effect::Members { index, .. } => fold(hash, &[13, *index]),
        Effect::Halt { index, .. } => fold(hash, &[14, *index]),
    }
}
