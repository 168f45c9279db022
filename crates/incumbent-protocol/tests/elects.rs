//! The machines by themselves, on a network that only delays: every protocol elects, replaces and hands over, with exact steps.
//!
//! Faults belong to the lab. This holds what must be true before any fault, without a line of the lab.

use std::collections::BTreeMap;
use std::time::Duration;

use incumbent_protocol::machine::{Kind, Machine, Message};
use incumbent_protocol::protocol::{Effect, Effects, Event, Input, NodeId, Reason, Request, Role};
use incumbent_protocol::settings::{Guard, Settings};
use incumbent_protocol::time::Instant;

const DELAY: Duration = Duration::from_millis(1);

/// Nodes 1 to n; a crashed one is absent. Messages and records take one `DELAY`.
struct Group {
    now: Instant,
    nodes: BTreeMap<NodeId, Machine>,
    flying: BTreeMap<(Instant, u64), (NodeId, Input<Message>)>,
    count: u64,
    events: Vec<(NodeId, Event)>,
}

impl Group {
    fn new(kind: Kind, size: u32, guard: Guard) -> Self {
        let settings = Settings::of((1..=size).map(NodeId)).guard(guard).build().unwrap();
        let nodes =
            settings.members().iter().map(|id| (*id, Machine::start(kind, *id, &settings, u64::from(id.0), None, Instant::ZERO)));
        Group { now: Instant::ZERO, nodes: nodes.collect(), flying: BTreeMap::new(), count: 0, events: Vec::new() }
    }

    fn input(&mut self, to: NodeId, input: Input<Message>) {
        let Some(machine) = self.nodes.get_mut(&to) else { return };
        let mut out = Effects::default();
        machine.step(self.now, input, &mut out);
        for effect in out.drain() {
            self.count += 1;
            let at = (self.now + DELAY, self.count);
            match effect {
                Effect::Send { to: peer, message } => {
                    assert_ne!(peer, to, "nobody writes to itself");
                    self.flying.insert(at, (peer, Input::Receive { from: to, message }));
                }
                Effect::Persist { mark, .. } => {
                    self.flying.insert(at, (to, Input::Persisted(mark)));
                }
                Effect::Emit(event) => self.events.push((to, event)),
            }
        }
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            let flight = self.flying.keys().next().map(|(at, _)| *at).unwrap_or(Instant::NEVER);
            let (wake, node) = self.nodes.iter().map(|(id, it)| (it.deadline(), *id)).min().unwrap();
            let next = flight.min(wake).max(self.now);
            if next > end {
                self.now = end;
                return;
            }
            self.now = next;
            if flight <= wake {
                let (_, (to, input)) = self.flying.pop_first().unwrap();
                self.input(to, input);
            } else {
                self.input(node, Input::Wake);
            }
        }
    }

    /// The only leader, followed by all.
    fn leader(&self) -> NodeId {
        let leaders: Vec<_> = self.nodes.iter().filter(|(_, it)| it.view().in_office(self.now)).map(|(id, _)| *id).collect();
        assert_eq!(leaders.len(), 1, "at {}: {:?}", self.now, self.nodes.values().map(Machine::view).collect::<Vec<_>>());
        for (id, node) in &self.nodes {
            assert_eq!(node.view().leader, Some(leaders[0]), "node {id} at {}", self.now);
        }
        leaders[0]
    }
}

fn each(check: impl Fn(Kind, Guard)) {
    for kind in Kind::ALL {
        for guard in [Guard::Majority, Guard::Off] {
            check(kind, guard);
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn every_size_gets_a_leader_and_keeps_it() {
    each(|kind, guard| {
        for size in [1, 2, 3, 4, 5, 9] {
            let mut group = Group::new(kind, size, guard);
            group.run(SECOND * 2);
            let leader = group.leader();
            if kind != Kind::Raft {
                assert_eq!(leader, NodeId(size), "{kind} {guard:?}: the greatest id");
            }
            group.events.clear();
            group.run(SECOND * 10);
            assert_eq!(group.leader(), leader);
            assert!(group.events.is_empty(), "{kind} {guard:?} {size}: {:?}", group.events);
        }
    });
}

#[test]
fn a_crashed_leader_is_replaced() {
    each(|kind, guard| {
        let mut group = Group::new(kind, 5, guard);
        group.run(SECOND * 2);
        let old = group.leader();
        let term = group.nodes[&old].view().term;
        group.nodes.remove(&old);
        group.run(SECOND * 2);
        let new = group.leader();
        assert!(group.nodes[&new].view().term > term, "{kind} {guard:?}");
    });
}

#[test]
fn an_office_is_handed_over_to_the_named_node() {
    each(|kind, guard| {
        let mut group = Group::new(kind, 5, guard);
        group.run(SECOND * 2);
        let old = group.leader();
        let heir = NodeId(if old == NodeId(3) { 2 } else { 3 });
        group.input(old, Input::Request(Request::HandOver { to: heir }));
        assert_eq!(group.nodes[&old].view().role, Role::Follower);
        group.run(Duration::from_millis(50));
        assert_eq!(group.leader(), heir, "{kind} {guard:?}");
    });
}

#[test]
fn a_resigned_office_goes_to_another() {
    each(|kind, guard| {
        let mut group = Group::new(kind, 5, guard);
        group.run(SECOND * 2);
        let old = group.leader();
        group.input(old, Input::Request(Request::Resign));
        assert!(matches!(group.events.last(), Some((_, Event::Lost { reason: Reason::Resigned, .. }))));
        group.run(Duration::from_millis(400));
        assert_ne!(group.leader(), old, "{kind} {guard:?}");
    });
}

#[test]
fn proof_of_death_opens_the_office_at_once_and_a_hint_deposes_nobody() {
    each(|kind, guard| {
        let mut group = Group::new(kind, 5, guard);
        group.run(SECOND * 2);
        let old = group.leader();
        group.events.clear();
        for id in 1..=5 {
            group.input(NodeId(id), Input::Request(Request::Suspect { peer: old }));
        }
        group.run(SECOND * 2);
        assert!(group.events.is_empty(), "{kind} {guard:?}: {:?}", group.events);

        group.nodes.remove(&old);
        for id in 1..=5 {
            group.input(NodeId(id), Input::Request(Request::Dead { peer: old }));
        }
        group.run(Duration::from_millis(140));
        assert_ne!(group.leader(), old, "{kind} {guard:?}: sooner than any patience");
    });
}

#[test]
fn without_a_majority_a_guarded_leader_steps_down_and_nobody_else_leads() {
    for kind in Kind::ALL {
        let mut group = Group::new(kind, 5, Guard::Majority);
        group.run(SECOND * 2);
        let leader = group.leader();
        let others: Vec<_> = (1..=5).map(NodeId).filter(|id| *id != leader).take(3).collect();
        for other in others {
            group.nodes.remove(&other);
        }
        group.run(Duration::from_millis(150));
        assert!(group.nodes.values().all(|it| !it.view().in_office(group.now)), "{kind}");
        group.run(SECOND * 5);
        assert!(group.nodes.values().all(|it| !it.view().in_office(group.now)), "{kind}");
    }
}
