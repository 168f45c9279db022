//! The machines by themselves, on a network that only delays: every protocol elects, replaces and hands over, with exact steps.
//!
//! Faults belong to the lab. This holds what must be true before any fault, without a line of the lab.

use std::collections::BTreeMap;
use std::time::Duration;

use incumbent_protocol::chance::Chance;
use incumbent_protocol::machine::{Kind, Machine, Message};
use incumbent_protocol::protocol::{Effect, Effects, Event, Input, NodeId, Reason, Record, Request, Role, Term};
use incumbent_protocol::settings::{Guard, Pace, Settings, Takeover};
use incumbent_protocol::time::Instant;

const DELAY: Duration = Duration::from_millis(1);

/// Nodes 1 to n; a crashed one is absent. Messages and records take one `DELAY`.
struct Group {
    kind: Kind,
    settings: Settings,
    now: Instant,
    nodes: BTreeMap<NodeId, Machine>,
    flying: BTreeMap<(Instant, u64), (NodeId, Input<Message>)>,
    count: u64,
    events: Vec<(NodeId, Event)>,
}

impl Group {
    fn new(kind: Kind, size: u32, guard: Guard) -> Self {
        Self::with(kind, Settings::of((1..=size).map(NodeId)).guard(guard).build().unwrap())
    }

    fn with(kind: Kind, settings: Settings) -> Self {
        Self::seeded(kind, settings, 0)
    }

    fn seeded(kind: Kind, settings: Settings, seed: u64) -> Self {
        let nodes = settings
            .members()
            .iter()
            .map(|id| (*id, Machine::start(kind, *id, &settings, seed * 100 + u64::from(id.0), None, Instant::ZERO)));
        let nodes = nodes.collect();
        Group { kind, settings, now: Instant::ZERO, nodes, flying: BTreeMap::new(), count: 0, events: Vec::new() }
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

    /// Comes back after a crash, with the record that the disk of `id` would hold.
    fn restart(&mut self, id: NodeId, record: Record) {
        self.nodes.insert(id, Machine::start(self.kind, id, &self.settings, 99, Some(record), self.now));
    }

    /// Runs; whoever is asked to hand over does so, as a user whose work ends at once.
    fn run_obliging(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            let told = self.events.len();
            self.run(DELAY);
            for place in told..self.events.len() {
                if let (id, Event::Asked { to }) = self.events[place] {
                    self.input(id, Input::Request(Request::HandOver { to }));
                }
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

#[test]
fn those_who_ask_in_vain_raise_no_terms() {
    for kind in Kind::ALL {
        let mut group = Group::new(kind, 5, Guard::Majority);
        group.run(SECOND * 2);
        let leader = group.leader();
        let term = group.nodes[&leader].view().term;
        let gone: Vec<_> = (1..=5).map(NodeId).filter(|id| *id != leader).take(3).collect();
        for id in &gone {
            group.nodes.remove(id);
        }
        // Two are left and ask each other, over and over.
        group.run(SECOND * 20);
        for id in gone {
            group.restart(id, Record { term, vote: Some(leader) });
        }
        group.run(SECOND * 5);
        let risen = group.nodes[&group.leader()].view().term.0 - term.0;
        assert!(risen <= 2, "{kind}: {risen} terms");
    }
}

#[test]
fn a_greater_id_that_comes_back_takes_over_at_once_or_when_the_office_is_free() {
    for guard in [Guard::Majority, Guard::Off] {
        for (takeover, leads) in [(Takeover::AtOnce, 5), (Takeover::WhenFree, 4)] {
            let settings = Settings::of((1..=5).map(NodeId)).guard(guard).takeover(takeover).build().unwrap();
            let mut group = Group::with(Kind::Bully, settings);
            group.run(SECOND * 2);
            assert_eq!(group.leader(), NodeId(5));
            group.nodes.remove(&NodeId(5));
            group.run(SECOND * 2);
            assert_eq!(group.leader(), NodeId(4));
            group.restart(NodeId(5), Record { term: Term(5), vote: None });
            group.run_obliging(SECOND * 3);
            assert_eq!(group.leader(), NodeId(leads), "{guard:?} {takeover:?}");
        }
    }
}

#[test]
fn a_favourite_that_cannot_lead_is_given_the_office_ever_more_rarely_whoever_gives_it() {
    let favourite = NodeId(5);
    let settings = Settings::of((1..=5).map(NodeId)).priority(favourite, 9).build().unwrap();
    let mut group = Group::with(Kind::Raft, settings);
    let mut handed_over = 0;
    for _ in 0..600 {
        group.run(Duration::from_millis(100));
        let leaders: Vec<_> = group.nodes.iter().filter(|(_, it)| it.view().in_office(group.now)).map(|(id, _)| *id).collect();
        for leader in leaders {
            // The favourite is talked out of office every time, for the sake of another each time; the others oblige it.
            if leader == favourite {
                group.input(leader, Input::Request(Request::HandOver { to: NodeId(1 + handed_over % 4) }));
            } else if group.events.iter().any(|(id, event)| *id == leader && *event == Event::Asked { to: favourite }) {
                group.input(leader, Input::Request(Request::HandOver { to: favourite }));
                handed_over += 1;
            }
        }
        group.events.clear();
    }
    assert!((2..=4).contains(&handed_over), "{handed_over} hand-overs in a minute");
}

#[test]
fn a_term_beyond_reason_is_ignored_and_the_last_term_is_never_passed() {
    for kind in Kind::ALL {
        let mut group = Group::new(kind, 3, Guard::Majority);
        group.run(SECOND * 2);
        let leader = group.leader();
        let peer = group.nodes.keys().copied().find(|id| *id != leader).unwrap();
        let mad = incumbent_protocol::office::OfficeMessage::Ack { term: Term(u64::MAX), sent: Instant::ZERO };
        let message = match kind {
            Kind::Bully => Message::Bully(mad.into()),
            Kind::Ring | Kind::ChangRoberts => Message::Ring(mad.into()),
            Kind::Raft => Message::Raft(mad),
        };
        group.events.clear();
        group.input(leader, Input::Receive { from: peer, message: message.clone() });
        group.input(leader, Input::Receive { from: NodeId(77), message });
        assert_eq!(group.events.len(), 2);
        assert!(group.events.iter().all(|(_, event)| matches!(event, Event::Ignored { .. })), "{kind}");
        assert_eq!(group.leader(), leader);

        let settings = group.settings.clone();
        let last = Record { term: Term::MAX, vote: None };
        let mut node = Machine::start(kind, NodeId(1), &settings, 1, Some(last), Instant::ZERO);
        let mut out = Effects::default();
        for second in 1..100u64 {
            node.step(Instant::from_nanos(second * 1_000_000_000), Input::Wake, &mut out);
        }
        assert_eq!(node.view().term, Term::MAX, "{kind}");
        assert!(!out.as_slice().iter().any(|it| matches!(it, Effect::Persist { .. })), "{kind}");
    }
}

#[test]
fn an_election_called_under_a_healthy_leader_changes_nothing_and_comes_to_an_end() {
    each(|kind, guard| {
        let settings = Settings::of((1..=5).map(NodeId)).guard(guard).takeover(Takeover::WhenFree).build().unwrap();
        let mut group = Group::with(kind, settings);
        group.run(SECOND * 2);
        // A smaller id in office, and all others willing to stand again.
        let first = group.leader();
        let leader = NodeId(if first == NodeId(3) { 2 } else { 3 });
        group.input(first, Input::Request(Request::HandOver { to: leader }));
        group.run(SECOND * 5);
        assert_eq!(group.leader(), leader, "{kind} {guard:?}");
        let term = group.nodes[&leader].view().term;
        group.events.clear();
        for id in 1..=5 {
            group.input(NodeId(id), Input::Request(Request::Campaign));
        }
        group.run(SECOND * 2);
        assert_eq!(group.leader(), leader, "{kind} {guard:?}");
        assert_eq!(group.nodes[&leader].view().term, term, "{kind} {guard:?}");
        let mut open = BTreeMap::new();
        for (id, event) in &group.events {
            match event {
                Event::Contends { .. } => open.insert(*id, true),
                Event::Follows { .. } | Event::Rejected { .. } | Event::Elected { .. } => open.insert(*id, false),
                Event::Lost { .. } | Event::LeaderGone { .. } | Event::Asked { .. } | Event::Ignored { .. } => None,
            };
        }
        assert!(open.values().all(|open| !open), "{kind} {guard:?}: {:?}", group.events);
    });
}

#[test]
fn who_abstains_follows_and_votes_but_never_leads() {
    each(|kind, guard| {
        let mut group = Group::new(kind, 5, guard);
        // The greatest ids, which would win every contest of a bully or a ring. One of the five is down: two of the votes must be theirs.
        group.nodes.remove(&NodeId(1));
        for id in [4, 5] {
            group.input(NodeId(id), Input::Request(Request::Abstain));
        }
        group.run_obliging(SECOND * 5);
        let leader = group.leader();
        assert!([NodeId(2), NodeId(3)].contains(&leader), "{kind} {guard:?}: {leader}");
        let bids =
            |event: &(NodeId, Event)| event.0 >= NodeId(4) && matches!(event.1, Event::Contends { .. } | Event::Elected { .. });
        assert!(!group.events.iter().any(bids), "{kind} {guard:?}: {:?}", group.events);

        group.input(leader, Input::Request(Request::Abstain));
        assert!(matches!(group.events.last(), Some((_, Event::Lost { reason: Reason::Resigned, .. }))));
        group.run_obliging(SECOND * 2);
        assert_eq!(group.leader(), NodeId(5 - leader.0), "{kind} {guard:?}: the last one that stands");
    });
}

#[test]
fn an_office_that_nobody_wants_is_taken_at_once_by_the_first_who_does() {
    each(|kind, guard| {
        let mut group = Group::new(kind, 5, guard);
        group.run(SECOND * 2);
        for id in 1..=5 {
            group.input(NodeId(id), Input::Request(Request::Abstain));
        }
        group.run(SECOND * 5);
        assert!(group.nodes.values().all(|it| !it.view().in_office(group.now)), "{kind} {guard:?}");
        group.input(NodeId(2), Input::Request(Request::Stand));
        group.run(Duration::from_millis(100));
        assert_eq!(group.leader(), NodeId(2), "{kind} {guard:?}");
    });
}

#[test]
fn an_office_that_is_given_to_one_who_abstains_is_soon_taken_by_another() {
    each(|kind, guard| {
        for stand in [vec![1, 2], vec![]] {
            let mut group = Group::new(kind, 5, guard);
            group.run(SECOND * 2);
            let old = group.leader();
            let others: Vec<u32> = (1..=5).filter(|id| NodeId(*id) != old).collect();
            let standing: Vec<NodeId> = stand.iter().map(|place: &usize| NodeId(others[*place])).collect();
            for id in others.iter().map(|id| NodeId(*id)).filter(|id| !standing.contains(id)) {
                group.input(id, Input::Request(Request::Abstain));
            }
            group.input(old, Input::Request(Request::HandOver { to: NodeId(others[0]) }));
            group.run(Duration::from_millis(140));
            let leader = group.leader();
            if standing.is_empty() {
                assert_eq!(leader, old, "{kind} {guard:?}: nobody else wants it");
            } else {
                // Where the greatest id shall lead, that may be the old one.
                assert!(standing.contains(&leader) || (leader == old && kind != Kind::Raft), "{kind} {guard:?}: {leader}");
            }
        }
    });
}

/// Messages and records take 1 ms here, so that the votes alone take 5 to 7 ms with the disk: what is left is the wait.
#[test]
fn after_proof_of_death_somebody_leads_in_a_few_milliseconds_though_not_all_hear_of_it_at_once() {
    for kind in Kind::ALL {
        for size in [3, 5, 7] {
            let mut waits = Vec::new();
            for seed in 0..200 {
                let pace = Pace::of(Duration::from_millis(200)).unwrap();
                let settings = Settings::of((1..=size).map(NodeId)).pace(pace).build().unwrap();
                let (mut group, mut chance) = (Group::seeded(kind, settings, seed), Chance::new(seed));
                group.run(SECOND * 2 + Duration::from_millis(seed));
                let old = group.leader();
                group.nodes.remove(&old);
                let died = group.now;
                let mut hears: Vec<_> = group.nodes.keys().map(|id| (chance.between(Duration::ZERO, DELAY * 3), *id)).collect();
                hears.sort_unstable();
                for (after, id) in hears {
                    group.run(died + after - group.now);
                    group.input(id, Input::Request(Request::Dead { peer: old }));
                }
                while !group.nodes.values().any(|it| it.view().in_office(group.now)) {
                    group.run(DELAY / 10);
                }
                waits.push(group.now - died);
            }
            waits.sort_unstable();
            let (middle, longest) = (waits[waits.len() / 2], waits[waits.len() - 1]);
            let most = match kind {
                Kind::Bully | Kind::Raft => (DELAY * 10, DELAY * 20),
                // A hop for each node, and another lap if somebody had not heard of it.
                Kind::Ring | Kind::ChangRoberts => (DELAY * 16, DELAY * 100),
            };
            assert!(middle <= most.0 && longest <= most.1, "{kind} {size}: {middle:?}, {longest:?}");
        }
    }
}
