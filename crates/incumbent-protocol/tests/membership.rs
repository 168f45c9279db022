//! Members come and go while nodes crash, clocks drift and the network splits: at no instant are two nodes in office, whatever members each of them knows.
//!
//! The driver here keeps the rules of `office/membership.rs`, or breaks one of them, to show that the rule is needed and that it would be seen.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use incumbent_protocol::chance::Chance;
use incumbent_protocol::machine::{Kind, Machine, Message};
use incumbent_protocol::office::{Answer, OfficeMessage, Round};
use incumbent_protocol::protocol::{Effect, Effects, Event, Input, Mark, NodeId, Reason, Record, Request, Role, Term};
use incumbent_protocol::settings::{Guard, Pace, Settings};
use incumbent_protocol::time::Instant;

const MS: Duration = Duration::from_millis(1);

/// The term of the leader that made them, then a count.
type Version = (Term, u64);

/// What the driver does about its rules.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Rules {
    Kept,
    /// The next members are made before the present ones have been used for long.
    NoWait,
    /// Nodes hear each other whatever members they know, and seldom take over greater ones.
    AnyVersion,
    /// Several members change at once.
    ManyAtOnce,
}

#[derive(Clone, Debug)]
struct Members {
    version: Version,
    settings: Settings,
}

fn settings(ids: impl IntoIterator<Item = NodeId>) -> Settings {
    Settings::of(ids).guard(Guard::Majority).pace(Pace::of(MS * 100).unwrap()).build().unwrap()
}

/// A process and what outlives it.
struct Node {
    machine: Option<Machine>,
    members: Members,
    /// Since when it uses them, on its own clock.
    since: Instant,
    disk: Option<Record>,
    life: u64,
    drift_ppm: i64,
}

#[allow(clippy::large_enum_variant, reason = "nearly all are words")]
enum Arrival {
    /// A message under the sender's members; `None`: only those.
    Word {
        from: NodeId,
        members: Members,
        message: Option<Message>,
    },
    Written {
        life: u64,
        mark: Mark,
        record: Record,
    },
}

struct World {
    rules: Rules,
    chance: Chance,
    now: Instant,
    nodes: BTreeMap<NodeId, Node>,
    flying: BTreeMap<(Instant, u64), (NodeId, Arrival)>,
    count: u64,
    /// Who is on which side; `None`: nobody is cut off.
    split: Option<BTreeSet<NodeId>>,
    loss_ppm: u32,
    changes: u64,
    elected: BTreeMap<Term, NodeId>,
    violation: Option<String>,
}

impl World {
    fn new(rules: Rules, seed: u64) -> World {
        let mut chance = Chance::new(seed);
        let size = 1 + chance.below(5) as u32;
        let members = Members { version: (Term(0), 0), settings: settings((1..=size).map(NodeId)) };
        let mut world = World {
            rules,
            chance,
            now: Instant::ZERO + Duration::from_secs(1),
            nodes: BTreeMap::new(),
            flying: BTreeMap::new(),
            count: 0,
            split: None,
            loss_ppm: 0,
            changes: 0,
            elected: BTreeMap::new(),
            violation: None,
        };
        (1..=size).for_each(|id| world.add(NodeId(id), members.clone()));
        world
    }

    fn add(&mut self, id: NodeId, members: Members) {
        let drift_ppm = self.chance.below(1001) as i64 - 500;
        self.nodes.insert(id, Node { machine: None, members, since: Instant::ZERO, disk: None, life: 0, drift_ppm });
        self.start(id);
    }

    fn start(&mut self, id: NodeId) {
        let (seed, local) = (self.chance.bits(), self.local(id));
        let node = self.nodes.get_mut(&id).unwrap();
        node.life += 1;
        node.since = local;
        node.machine = Some(Machine::start(Kind::Raft, id, &node.members.settings, seed, node.disk, local));
    }

    /// What the clock of `id` says.
    fn local(&self, id: NodeId) -> Instant {
        let now = i128::from(self.now.as_nanos());
        Instant::from_nanos((now + now * i128::from(self.nodes[&id].drift_ppm) / 1_000_000) as u64)
    }

    /// When the clock of `id` says so.
    fn true_time(&self, id: NodeId, local: Instant) -> Instant {
        if local == Instant::NEVER {
            return local;
        }
        let millions = i128::from(local.as_nanos()) * 1_000_000 / (1_000_000 + i128::from(self.nodes[&id].drift_ppm));
        Instant::from_nanos(millions as u64 + 1_000)
    }

    fn step(&mut self, id: NodeId, input: Input<Message>) {
        let local = self.local(id);
        let mut out = Effects::default();
        let Some(machine) = self.nodes.get_mut(&id).and_then(|node| node.machine.as_mut()) else { return };
        machine.step(local, input, &mut out);
        self.carry_out(id, &mut out);
    }

    fn carry_out(&mut self, id: NodeId, out: &mut Effects<Message>) {
        for effect in out.drain() {
            match effect {
                Effect::Send { to, message } => {
                    let members = self.nodes[&id].members.clone();
                    self.send(to, Arrival::Word { from: id, members, message: Some(message) });
                }
                Effect::Persist { mark, record } => {
                    let after = self.chance.between(Duration::ZERO, MS * 3);
                    let life = self.nodes[&id].life;
                    self.put(id, after, Arrival::Written { life, mark, record });
                }
                Effect::Emit(_) => {}
            }
        }
        self.judge();
    }

    fn put(&mut self, to: NodeId, after: Duration, arrival: Arrival) {
        self.count += 1;
        self.flying.insert((self.now + after, self.count), (to, arrival));
    }

    fn send(&mut self, to: NodeId, word: Arrival) {
        let after = if self.chance.happens(20_000) { MS * 300 } else { MS * 6 };
        let after = self.chance.between(MS / 10, after);
        if !self.chance.happens(self.loss_ppm) {
            self.put(to, after, word);
        }
    }

    fn reaches(&self, from: NodeId, to: NodeId) -> bool {
        self.split.as_ref().is_none_or(|side| side.contains(&from) == side.contains(&to))
    }

    fn arrive(&mut self, to: NodeId, arrival: Arrival) {
        match arrival {
            Arrival::Written { life, mark, record } => {
                let Some(node) = self.nodes.get_mut(&to).filter(|node| node.life == life && node.machine.is_some()) else {
                    return;
                };
                node.disk = Some(record);
                self.step(to, Input::Persisted(mark));
            }
            Arrival::Word { from, members, message } => {
                if !self.reaches(from, to) || self.nodes.get(&to).is_none_or(|node| node.machine.is_none()) {
                    return;
                }
                let mine = self.nodes[&to].members.clone();
                let heeds = self.rules != Rules::AnyVersion || self.chance.happens(100_000);
                if members.version > mine.version && heeds {
                    self.install(to, members.clone());
                } else if members.version < mine.version && message.is_some() && self.rules != Rules::AnyVersion {
                    self.send(from, Arrival::Word { from: to, members: mine.clone(), message: None });
                }
                if let Some(message) = message
                    && (members.version == mine.version || self.rules == Rules::AnyVersion)
                {
                    self.step(to, Input::Receive { from, message });
                }
            }
        }
    }

    fn install(&mut self, id: NodeId, members: Members) {
        let local = self.local(id);
        let mut out = Effects::default();
        let node = self.nodes.get_mut(&id).unwrap();
        let Some(machine) = node.machine.as_mut() else { return };
        let before = machine.view();
        machine.reconfigure(local, &members.settings, &mut out).unwrap();
        let after = machine.view();
        assert_eq!(after.term, before.term);
        assert!(after.role != Role::Candidate || members.settings == node.members.settings);
        assert!(after.until <= before.until, "{:?} then {:?}", before.until, after.until);
        // Under the old members still: what a leader says when it is removed.
        self.carry_out(id, &mut out);
        let node = self.nodes.get_mut(&id).unwrap();
        (node.members, node.since) = (members, local);
    }

    /// A leader makes new members, if the rules allow it.
    fn change(&mut self) {
        let leaders: Vec<NodeId> = self.nodes.keys().copied().filter(|id| self.is_in_office(*id)).collect();
        let Some(&leader) = leaders.first() else { return };
        let (local, node) = (self.local(leader), &self.nodes[&leader]);
        let waits = if self.rules == Rules::NoWait { Duration::ZERO } else { node.members.settings.pace().patience_max * 2 };
        if local - node.since < waits {
            return;
        }
        let before = node.members.settings.clone();
        let term = node.machine.as_ref().unwrap().view().term;
        let version = (term, node.members.version.1 + 1);
        let mut ids: BTreeSet<NodeId> = before.members().iter().copied().collect();
        let mut new = Vec::new();
        for _ in 0..if self.rules == Rules::ManyAtOnce { 3 } else { 1 } {
            if ids.len() > 1 && (ids.len() > 6 || self.chance.happens(500_000)) {
                let gone = *ids.iter().nth(self.chance.below(ids.len() as u64) as usize).unwrap();
                if gone != leader {
                    ids.remove(&gone);
                }
            } else {
                // Ids are never used again.
                let id = NodeId(self.nodes.keys().last().unwrap().0 + 1 + new.len() as u32);
                ids.insert(id);
                new.push(id);
            }
        }
        let members = Members { version, settings: settings(ids) };
        if self.rules != Rules::ManyAtOnce && before.may_become(&members.settings).is_err() {
            return;
        }
        self.changes += 1;
        self.install(leader, members.clone());
        new.into_iter().for_each(|id| self.add(id, members.clone()));
    }

    fn is_in_office(&self, id: NodeId) -> bool {
        let machine = self.nodes[&id].machine.as_ref();
        machine.is_some_and(|it| it.view().in_office(self.local(id)))
    }

    fn judge(&mut self) {
        let leaders: Vec<NodeId> = self.nodes.keys().copied().filter(|id| self.is_in_office(*id)).collect();
        if leaders.len() > 1 {
            self.violation.get_or_insert_with(|| format!("{}: {leaders:?} are in office", self.now));
        }
        for id in leaders {
            let term = self.nodes[&id].machine.as_ref().unwrap().view().term;
            if *self.elected.entry(term).or_insert(id) != id {
                self.violation.get_or_insert_with(|| format!("{}: term {term} has two leaders", self.now));
            }
        }
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while self.violation.is_none() {
            let flight = self.flying.keys().next().map_or(Instant::NEVER, |(at, _)| *at);
            let wakes =
                self.nodes.iter().filter_map(|(id, node)| Some((self.true_time(*id, node.machine.as_ref()?.deadline()), *id)));
            let (wake, id) = wakes.min().unwrap_or((Instant::NEVER, NodeId(0)));
            let next = flight.min(wake).max(self.now);
            if next > end {
                break;
            }
            self.now = next;
            if flight <= wake {
                let (_, (to, arrival)) = self.flying.pop_first().unwrap();
                self.arrive(to, arrival);
            } else {
                self.step(id, Input::Wake);
            }
        }
        self.now = end;
    }

    /// Something goes wrong, or right again, or members change.
    fn disturb(&mut self) {
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        let any = ids[self.chance.below(ids.len() as u64) as usize];
        match self.chance.below(12) {
            0..=4 => self.change(),
            5 => self.split = Some(ids.into_iter().filter(|_| self.chance.happens(500_000)).collect()),
            6 | 7 => self.split = None,
            8 => {
                let node = self.nodes.get_mut(&any).unwrap();
                node.machine = None;
            }
            9 => {
                let down = ids.into_iter().filter(|id| self.nodes[id].machine.is_none()).collect::<Vec<_>>();
                down.into_iter().for_each(|id| self.start(id));
            }
            10 => self.loss_ppm = self.chance.below(300_000) as u32,
            _ => {
                let requests = [Request::Resign, Request::Campaign, Request::Abstain, Request::Stand, Request::Stand];
                let request = requests[self.chance.below(5) as usize];
                self.step(any, Input::Request(request));
            }
        }
    }

    /// Half a minute of troubles, then of peace.
    fn live(rules: Rules, seed: u64) -> World {
        let mut world = World::new(rules, seed);
        while world.now < Instant::ZERO + Duration::from_secs(30) && world.violation.is_none() {
            let pause = world.chance.between(Duration::ZERO, MS * 150);
            world.run(pause);
            world.disturb();
        }
        world
    }

    fn heal(&mut self) {
        (self.split, self.loss_ppm) = (None, 0);
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        for id in ids {
            if self.nodes[&id].machine.is_none() {
                self.start(id);
            }
            self.step(id, Input::Request(Request::Stand));
        }
    }

    /// The newest members that any node knows.
    fn newest(&self) -> &Members {
        self.nodes.values().map(|node| &node.members).max_by_key(|it| it.version).unwrap()
    }
}

#[test]
fn there_is_one_leader_at_a_time_whatever_members_come_and_go_and_in_peace_the_newest_have_one() {
    let (mut changes, mut leaders) = (0, 0);
    for seed in 0..150 {
        let mut world = World::live(Rules::Kept, seed);
        assert_eq!(world.violation, None, "seed {seed}");
        world.heal();
        world.run(Duration::from_secs(5));
        assert_eq!(world.violation, None, "seed {seed}");
        let in_office: Vec<_> = world.nodes.keys().copied().filter(|id| world.is_in_office(*id)).collect();
        let [leader] = in_office[..] else { panic!("seed {seed}: {in_office:?} are in office") };
        let newest = world.newest();
        assert_eq!(world.nodes[&leader].members.version, newest.version, "seed {seed}");
        assert!(newest.settings.rank(leader).is_some(), "seed {seed}: {leader} is no member");
        changes += world.changes;
        leaders += world.elected.len();
    }
    assert!(changes > 1_500 && leaders > 1_500, "hardly anything happened: {changes} changes, {leaders} leaders");
}

#[test]
fn each_rule_of_the_driver_is_needed() {
    for rules in [Rules::NoWait, Rules::AnyVersion, Rules::ManyAtOnce] {
        let broken = (0..300).any(|seed| World::live(rules, seed).violation.is_some());
        assert!(broken, "{rules:?}: nothing came of it, so nothing was proved by keeping it");
    }
}

#[test]
fn a_removed_node_is_silent_and_one_that_does_not_know_it_raises_no_terms() {
    for knows in [true, false] {
        let mut world = World::new(Rules::Kept, 5);
        let members = Members { version: (Term(0), 0), settings: settings((1..=3).map(NodeId)) };
        world.nodes.clear();
        (1..=3).for_each(|id| world.add(NodeId(id), members.clone()));
        world.run(Duration::from_secs(2));
        let leader = world.nodes.keys().copied().find(|id| world.is_in_office(*id)).unwrap();
        let removed = NodeId(if leader == NodeId(3) { 2 } else { 3 });
        let rest = Members { version: (Term(1), 1), settings: settings((1..=3).map(NodeId).filter(|id| *id != removed)) };
        if !knows {
            world.split = Some(BTreeSet::from([removed]));
        }
        world.install(leader, rest.clone());
        if knows {
            world.install(removed, rest);
        }
        world.run(Duration::from_secs(2));
        world.split = None;
        world.run(Duration::from_secs(3));
        assert!(world.is_in_office(leader), "knows: {knows}");
        assert_eq!(world.elected.len(), 1, "knows: {knows}");
        let machine = world.nodes.get_mut(&removed).unwrap().machine.as_mut().unwrap();
        assert_eq!(machine.deadline(), Instant::NEVER);
        let mut out = Effects::default();
        for request in [Request::Campaign, Request::Stand] {
            machine.step(world.now, Input::Request(request), &mut out);
        }
        machine.step(world.now + Duration::from_secs(60), Input::Wake, &mut out);
        assert!(out.as_slice().is_empty());
    }
}

#[test]
fn a_leader_stays_in_office_through_a_change_and_keeps_its_lease() {
    let mut world = World::new(Rules::Kept, 5);
    let three = Members { version: (Term(0), 0), settings: settings((1..=3).map(NodeId)) };
    world.nodes.clear();
    (1..=3).for_each(|id| world.add(NodeId(id), three.clone()));
    world.run(Duration::from_secs(2));
    let leader = world.nodes.keys().copied().find(|id| world.is_in_office(*id)).unwrap();
    let until = |world: &World| world.nodes[&leader].machine.as_ref().unwrap().view().until;
    let before = until(&world);
    for (version, ids) in [
        (1, vec![1, 2, 3, 4]),
        (2, vec![1, 2, 3, 4, 5]),
        (3, (1..=5).filter(|id| NodeId(*id) != leader).take(3).chain([leader.0]).collect()),
    ] {
        let members = Members { version: (Term(1), version), settings: settings(ids.iter().copied().map(NodeId)) };
        let now = until(&world);
        world.install(leader, members.clone());
        assert_eq!(until(&world), now, "neither longer nor shorter");
        for id in ids.into_iter().map(NodeId) {
            if !world.nodes.contains_key(&id) {
                world.add(id, members.clone());
            }
        }
        world.run(Duration::from_secs(1));
        assert!(world.is_in_office(leader));
    }
    assert!(until(&world) > before);
    assert_eq!(world.elected.len(), 1, "nobody else was elected meanwhile");
}

#[test]
fn a_new_version_of_the_same_members_changes_nothing() {
    let three = settings((1..=3).map(NodeId));
    let mut world = World::new(Rules::Kept, 5);
    world.nodes.clear();
    (1..=3).for_each(|id| world.add(NodeId(id), Members { version: (Term(0), 0), settings: three.clone() }));
    world.run(Duration::from_secs(2));
    for (id, node) in &mut world.nodes {
        let (machine, mut out) = (node.machine.as_mut().unwrap(), Effects::default());
        let before = machine.clone();
        machine.reconfigure(world.now, &three, &mut out).unwrap();
        assert!(*machine == before && out.as_slice().is_empty(), "node {id}");
    }
}

#[test]
fn what_must_not_change_is_refused() {
    let now = Instant::ZERO;
    let three = settings((1..=3).map(NodeId));
    let mut out = Effects::default();
    for kind in [Kind::Bully, Kind::Ring, Kind::ChangRoberts] {
        let mut machine = Machine::start(kind, NodeId(1), &three, 1, None, now);
        let refused = machine.reconfigure(now, &settings((1..=4).map(NodeId)), &mut out).unwrap_err();
        assert!(refused.to_string().contains("only Raft"), "{refused}");
    }
    let mut machine = Machine::start(Kind::Raft, NodeId(1), &three, 1, None, now);
    let slower = Settings::of((1..=4).map(NodeId)).pace(Pace::LAN).build().unwrap();
    assert!(machine.reconfigure(now, &slower, &mut out).unwrap_err().to_string().contains("only members"));
    let unchanged = machine.clone();
    assert_eq!(machine, unchanged);

    let of = |ids: std::ops::RangeInclusive<u32>| ids.map(NodeId);
    assert!(three.may_become(&settings(of(1..=4))).is_ok() && three.may_become(&settings(of(2..=3))).is_ok());
    for wrong in [of(1..=3), of(1..=5), of(2..=4), of(3..=3)] {
        assert!(three.may_become(&settings(wrong)).unwrap_err().to_string().contains("one at a time"));
    }
    let quorum = |ids, size| Settings::of(ids).guard(Guard::Quorum(size)).build().unwrap();
    assert!(quorum(of(1..=5), 3).may_become(&quorum(of(1..=6), 4)).is_ok());
    assert!(quorum(of(1..=3), 2).may_become(&Settings::of(of(1..=4)).guard(Guard::Off).build().unwrap()).is_err());
}

#[test]
fn votes_and_promises_outlive_a_change() {
    let (three, four) = (settings((1..=3).map(NodeId)), settings((1..=4).map(NodeId)));
    let at = |millis: u32| Instant::ZERO + MS * millis;
    let mut node = Machine::start(Kind::Raft, NodeId(2), &three, 1, None, Instant::ZERO);
    let mut out = Effects::default();
    let mut ask = |node: &mut Machine, from: u32, term: u64, now: Instant| {
        let request = OfficeMessage::VoteRequest { term: Term(term), round: Round::Real, released: Term(0), sent: now };
        node.step(now, Input::Receive { from: NodeId(from), message: Message::Raft(request) }, &mut out);
        node.step(now, Input::Persisted(Mark(u64::MAX)), &mut out);
        let said = |effect| match effect {
            Effect::Send { message: Message::Raft(OfficeMessage::Vote { answer, .. }), .. } => Some(answer),
            Effect::Send { .. } | Effect::Persist { .. } | Effect::Emit(_) => None,
        };
        out.drain().filter_map(said).collect::<Vec<Answer>>()
    };
    assert_eq!(ask(&mut node, 1, 1, at(0)), [Answer::Granted]);
    node.reconfigure(at(1), &four, &mut Effects::default()).unwrap();
    assert_eq!(ask(&mut node, 3, 1, at(2)), [Answer::Bound], "another in the same term");
    assert_eq!(ask(&mut node, 4, 2, at(99)), [Answer::Bound], "another in a later one, while the promise lasts");
    assert_eq!(ask(&mut node, 3, 1, at(101)), [Answer::Taken], "the vote stays when the promise is over");
    assert_eq!(ask(&mut node, 4, 2, at(101)), [Answer::Granted]);
}

#[test]
fn a_leader_that_is_removed_leaves_office_at_once_and_names_an_heir_among_those_who_stay() {
    let mut world = World::new(Rules::Kept, 5);
    let three = Members { version: (Term(0), 0), settings: settings((1..=3).map(NodeId)) };
    world.nodes.clear();
    (1..=3).for_each(|id| world.add(NodeId(id), three.clone()));
    world.run(Duration::from_secs(2));
    let leader = world.nodes.keys().copied().find(|id| world.is_in_office(*id)).unwrap();
    let (local, mut out) = (world.local(leader), Effects::default());
    let rest = settings((1..=3).map(NodeId).filter(|id| *id != leader));
    let machine = world.nodes.get_mut(&leader).unwrap().machine.as_mut().unwrap();
    machine.reconfigure(local, &rest, &mut out).unwrap();
    assert!(!machine.view().in_office(local));
    let effects = out.as_slice();
    assert!(effects.iter().any(|it| matches!(it, Effect::Emit(Event::Lost { reason: Reason::Resigned, .. }))), "{effects:?}");
    let heirs = effects.iter().filter_map(|it| match it {
        Effect::Send { to, message: Message::Raft(OfficeMessage::TakeOver { .. }) } => Some(*to),
        Effect::Send { .. } | Effect::Persist { .. } | Effect::Emit(_) => None,
    });
    let heirs: Vec<NodeId> = heirs.collect();
    assert!(heirs.len() == 1 && rest.rank(heirs[0]).is_some(), "{heirs:?}");
}
