//! Everything about one run of the swarm, drawn from one seed and then plain values.
//!
//! A run is a function of its plan, so a plan can be taken apart: faults removed, nodes left out, links made calm, until
//! the smallest run is left that still fails ([`crate::shrink`]). Which kinds of fault a plan has at all is drawn first:
//! a group under everything at once is mostly a group without a leader, and proves little (Groce et al. 2012,
//! *Swarm testing*).

use std::fmt;
use std::time::Duration;

use incumbent_protocol::chance::Chance;
use incumbent_protocol::machine::Kind;
use incumbent_protocol::protocol::{NodeId, Request};
use incumbent_protocol::settings::{Detection, Guard, Pace, PreVote, Settings, Takeover};

use crate::clock::ClockSettings;
use crate::disk::DiskSettings;
use crate::fault::{Fault, Links};
use crate::network::{Delay, NetworkSettings, Quality, Refusal};
use crate::oracle::{Demands, Exclusion, Order};
use crate::trace::Recording;
use crate::world::WorldSettings;

/// A run before it has happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// What the plan was drawn from; the world draws its own chance from it too.
    pub seed: u64,
    /// The protocol.
    pub kind: Kind,
    /// How many nodes: their ids are 1, 2, 3 and so on.
    pub nodes: u32,
    /// Whether a leader needs a majority behind it.
    pub guard: Guard,
    /// How followers find their leader gone.
    pub detection: Detection,
    /// What a Bully node does about a smaller leader.
    pub takeover: Takeover,
    /// Whether Raft candidates ask first.
    pub pre_vote: PreVote,
    /// The order of the ring.
    pub ring: Vec<NodeId>,
    /// The node that Raft prefers, if it prefers one.
    pub favourite: Option<NodeId>,
    /// The timing.
    pub pace: Pace,
    /// The links when nothing is wrong with them.
    pub network: NetworkSettings,
    /// The disks when nothing is wrong with them.
    pub disk: DiskSettings,
    /// The clocks when nothing is wrong with them.
    pub clocks: ClockSettings,
    /// How long a leader's user takes to end its work when it is asked to hand over.
    pub obliges: Delay,
    /// What goes wrong, in any order.
    pub troubles: Vec<Trouble>,
    /// How long things may go wrong; then everything is healed.
    pub faults_for: Duration,
    /// The nodes that are down from then on, for good: the others must do without them.
    pub stay_down: Vec<NodeId>,
    /// The nodes that abstain from then on, for good: the others must lead.
    pub stay_out: Vec<NodeId>,
    /// Whether connections are reset again and again after the group has settled (C29).
    pub resets_in_calm: bool,
}

/// One thing that goes wrong, from its beginning to its end. Taken out of a plan, it leaves nothing behind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trouble {
    /// Whom it hits.
    pub aim: Aim,
    /// What is done to the world and when, counted from its first moment.
    pub steps: Vec<(Duration, Fault)>,
}

/// Whom a trouble hits.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Aim {
    /// The nodes that it names.
    AsDrawn,
    /// Whoever leads when it begins: that node and this one exchange their parts.
    Leader(NodeId),
}

/// The kinds of trouble. A plan has some of them.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Class {
    Crash,
    /// One node cannot hear the leader, while those whose promises keep the leader in office blink.
    Rival,
    Pause,
    Slow,
    Lossy,
    /// Every way between two nodes has a delay of its own.
    Uneven,
    Partition,
    Cut,
    Flap,
    Disk,
    Clock,
    /// Clocks beyond the drift bound: takes the demand away that there is but one leader at a time.
    WildClock,
    Hint,
    Request,
}

impl Class {
    const ALL: [Class; 14] = [
        Class::Crash,
        Class::Rival,
        Class::Pause,
        Class::Slow,
        Class::Lossy,
        Class::Uneven,
        Class::Partition,
        Class::Cut,
        Class::Flap,
        Class::Disk,
        Class::Clock,
        Class::WildClock,
        Class::Hint,
        Class::Request,
    ];

    /// How many plans in a million have it.
    fn share_ppm(self) -> u32 {
        match self {
            Class::WildClock => 80_000,
            Class::Crash | Class::Partition => 500_000,
            Class::Rival
            | Class::Pause
            | Class::Slow
            | Class::Lossy
            | Class::Uneven
            | Class::Cut
            | Class::Flap
            | Class::Disk
            | Class::Clock
            | Class::Hint
            | Class::Request => 300_000,
        }
    }
}

/// The most things that go wrong in one plan.
const TROUBLES_MAX: u64 = 96;

impl Plan {
    /// The plan that follows from `seed`; `kind` only if it is not given.
    pub fn draw(seed: u64, kind: Option<Kind>) -> Plan {
        let mut draw = Draw(Chance::new(seed ^ 0x706C_616E));
        let drawn = *draw.pick(&Kind::ALL);
        let nodes = *draw.pick(&[1, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 4, 4, 5, 5, 5, 5, 5, 5, 6, 7, 7]);
        let pace = if draw.happens(150_000) { Pace::WAN } else { Pace::LAN };
        let mut plan = Plan {
            seed,
            kind: kind.unwrap_or(drawn),
            nodes,
            guard: draw.guard(nodes),
            detection: *draw.pick(&[Detection::Fixed, Detection::Adaptive]),
            takeover: *draw.pick(&[Takeover::AtOnce, Takeover::WhenFree]),
            pre_vote: *draw.pick(&[PreVote::On, PreVote::On, PreVote::Off]),
            ring: draw.ring(nodes),
            favourite: draw.happens(200_000).then(|| draw.node(nodes)),
            pace,
            network: draw.network(&pace),
            disk: draw.disk(&pace),
            clocks: *draw.pick(&[ClockSettings::EXACT, ClockSettings::within(pace.drift_ppm)]),
            obliges: *draw.pick(&[Delay::NONE, Delay::Uniform { min: Duration::ZERO, max: pace.patience_max }]),
            troubles: Vec::new(),
            faults_for: draw.span(pace.patience_max * 5, pace.patience_max * 60),
            stay_down: Vec::new(),
            stay_out: Vec::new(),
            resets_in_calm: draw.happens(250_000),
        };
        if draw.happens(300_000) {
            plan.stay_down = draw.spare(nodes, nodes as usize - plan.needed());
        }
        let classes: Vec<Class> = Class::ALL.into_iter().filter(|class| draw.happens(class.share_ppm())).collect();
        if !classes.is_empty() {
            for _ in 0..draw.few_or_many() {
                let class = *draw.pick(&classes);
                let trouble = draw.trouble(&plan, class, classes.contains(&Class::Pause) || classes.contains(&Class::Slow));
                plan.troubles.push(trouble);
            }
        }
        // From a stream of its own, so that plans without it are what they were before it was thought of.
        Draw(Chance::new(seed ^ 0x6162_7374)).abstentions(&mut plan);
        plan
    }

    /// What the nodes agree on.
    pub fn settings(&self) -> Settings {
        let mut builder = Settings::of((1..=self.nodes).map(NodeId))
            .pace(self.pace)
            .guard(self.guard)
            .detection(self.detection)
            .takeover(self.takeover)
            .pre_vote(self.pre_vote)
            .ring(self.ring.iter().copied());
        if let Some(favourite) = self.favourite {
            builder = builder.priority(favourite, 3);
        }
        builder.build().expect("a plan has valid settings")
    }

    /// The world in which it happens.
    pub fn world(&self, recording: Recording) -> WorldSettings {
        WorldSettings {
            kind: self.kind,
            settings: self.settings(),
            seed: self.seed,
            network: self.network,
            disk: self.disk,
            clocks: self.clocks,
            obliges: Some(self.obliges),
            recording,
        }
    }

    /// What may be demanded of it.
    pub fn demands(&self) -> Demands {
        let settings = self.settings();
        let (pace, stability) = (settings.pace(), settings.stability());
        let guarded = settings.quorum().is_some();
        let in_bound = self.clocks_keep_the_bound();
        let patience = match self.detection {
            Detection::Fixed => pace.patience_max,
            // As long as the detector may learn to wait.
            Detection::Adaptive => pace.patience_min * 8 + pace.patience_max,
        };
        // At worst all stand aside for the longest time when the faults end; then somebody's patience has to end, and a
        // contest or two has a few answers to wait for from each node.
        let elected_within = stability.aside_max + patience * 2 + pace.reply * 4 * self.nodes;
        Demands {
            exclusion: if guarded && in_bound { Exclusion::Demanded } else { Exclusion::Counted },
            order: match (guarded, self.kind) {
                (true, _) if in_bound => Order::Whole,
                (true, _) | (false, Kind::Raft) => Order::SinceContest,
                (false, Kind::Bully | Kind::Ring | Kind::ChangRoberts) => Order::PerNode,
            },
            elected_within,
            // A smaller id or a lesser priority that came first serves its tenure before it is asked to yield.
            settled_within: elected_within + stability.min_tenure + patience * 2,
            contest_within: elected_within,
        }
    }

    /// How many nodes must be up for there to be a leader.
    pub fn needed(&self) -> usize {
        let majority = self.nodes as usize / 2 + 1;
        match (self.guard, self.kind) {
            (Guard::Quorum(size), _) => size,
            (Guard::Majority, _) | (Guard::Off, Kind::Raft) => majority,
            (Guard::Off, Kind::Bully | Kind::Ring | Kind::ChangRoberts) => 1,
        }
    }

    /// How long the group is watched after it must have settled.
    pub fn calm_for(&self) -> Duration {
        self.pace.patience_max * 8
    }

    /// Whether no clock ever leaves the drift bound.
    pub fn clocks_keep_the_bound(&self) -> bool {
        let bound = self.pace.drift_ppm;
        self.clocks.rate_ppm_max <= bound
            && self.troubles.iter().flat_map(|it| &it.steps).all(|(_, fault)| fault.keeps_time(bound))
    }
}

/// A plan as it is told in a report: what the group is like, then what happens to it and when.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} seed={} nodes={} guard={:?} detection={:?}",
            self.kind, self.seed, self.nodes, self.guard, self.detection
        )?;
        match self.kind {
            Kind::Bully => writeln!(f, "takeover={:?} pre-vote={:?}", self.takeover, self.pre_vote)?,
            Kind::Ring | Kind::ChangRoberts => {
                write!(f, "pre-vote={:?} ring=", self.pre_vote)?;
                self.ring.iter().try_for_each(|node| write!(f, "{node} "))?;
                writeln!(f)?;
            }
            Kind::Raft => writeln!(f, "pre-vote={:?} favourite={:?}", self.pre_vote, self.favourite.map(|it| it.0))?,
        }
        let Quality { delay, duplicate_ppm, reorder_ppm, .. } = self.network.quality;
        writeln!(f, "patience={:?} delay {delay}, disk {}, user {}", self.pace.patience_max, self.disk.latency, self.obliges)?;
        writeln!(
            f,
            "duplicates={duplicate_ppm}ppm reorders={reorder_ppm}ppm refusals={:?} clocks={}ppm",
            self.network.refusal, self.clocks.rate_ppm_max
        )?;
        let mut steps: Vec<(Duration, Aim, &Fault)> = Vec::new();
        for trouble in &self.troubles {
            steps.extend(trouble.steps.iter().map(|(at, fault)| (*at, trouble.aim, fault)));
        }
        steps.sort_by_key(|(at, ..)| *at);
        for (at, aim, fault) in steps.into_iter().filter(|(at, ..)| *at < self.faults_for) {
            match aim {
                Aim::AsDrawn => writeln!(f, "  at {at:?} {fault}")?,
                Aim::Leader(node) => writeln!(f, "  at {at:?} {fault} (for {node}, the leader at the time)")?,
            }
        }
        write!(f, "  at {:?} heal", self.faults_for)?;
        self.stay_down.iter().try_for_each(|node| write!(f, ", crash {node}"))?;
        self.stay_out.iter().try_for_each(|node| write!(f, ", abstain {node}"))?;
        f.write_str(if self.resets_in_calm { ", later resets" } else { "" })
    }
}

/// A seed's stream of decisions.
struct Draw(Chance);

impl Draw {
    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.0.below(from.len() as u64) as usize]
    }

    fn happens(&mut self, ppm: u32) -> bool {
        self.0.happens(ppm)
    }

    fn span(&mut self, min: Duration, max: Duration) -> Duration {
        // Whole microseconds read better in a report.
        Duration::from_micros(self.0.between(min, max).as_micros() as u64)
    }

    /// Short spans as often as long ones: the logarithm is uniform, roughly.
    fn stretch(&mut self, longest: Duration) -> Duration {
        let halvings = self.0.below(6) as u32;
        self.span(longest / 64, longest / 2u32.pow(halvings))
    }

    /// Few troubles as often as many: a group that is hit all the time never gets to the interesting part.
    fn few_or_many(&mut self) -> u64 {
        let halvings = self.0.below(4);
        self.0.below((TROUBLES_MAX >> halvings) + 1)
    }

    fn ppm(&mut self, max: u32) -> u32 {
        self.0.below(u64::from(max) + 1) as u32
    }

    fn node(&mut self, nodes: u32) -> NodeId {
        NodeId(1 + self.0.below(u64::from(nodes)) as u32)
    }

    /// Another node than `node`, if there is one.
    fn other(&mut self, node: NodeId, nodes: u32) -> NodeId {
        let step = 1 + self.0.below(u64::from(nodes.max(2) - 1)) as u32;
        NodeId(1 + (node.0 - 1 + step) % nodes)
    }

    /// At most `most` nodes, the greatest ones rather than the others: they are those that win contests.
    fn spare(&mut self, nodes: u32, most: usize) -> Vec<NodeId> {
        // All are drawn, so that what is drawn afterwards does not depend on how many are taken.
        let mut ids: Vec<NodeId> = (1..=nodes).rev().map(NodeId).filter(|_| self.happens(600_000)).collect();
        ids.truncate(most);
        ids
    }

    fn guard(&mut self, nodes: u32) -> Guard {
        let majority = nodes as usize / 2 + 1;
        match self.0.below(10) {
            0..=3 => Guard::Off,
            4 => Guard::Quorum(majority + self.0.below(nodes as u64 - majority as u64 + 1) as usize),
            _ => Guard::Majority,
        }
    }

    fn ring(&mut self, nodes: u32) -> Vec<NodeId> {
        let mut ring: Vec<NodeId> = (1..=nodes).map(NodeId).collect();
        if self.happens(500_000) {
            for place in (1..ring.len()).rev() {
                ring.swap(place, self.0.below(place as u64 + 1) as usize);
            }
        }
        ring
    }

    /// A network on which a group of this pace must work: an answer is there well within `reply`.
    fn network(&mut self, pace: &Pace) -> NetworkSettings {
        let reply = pace.reply;
        let delay = match self.0.below(4) {
            0 => Delay::Constant(self.span(Duration::from_micros(1), reply / 6)),
            1 => Delay::Uniform { min: self.span(Duration::ZERO, reply / 20), max: self.span(reply / 20, reply / 6) },
            2 => Delay::Tail { base: self.span(Duration::ZERO, reply / 20), mean: self.span(Duration::ZERO, reply / 60) },
            _ => NetworkSettings::LAN.quality.delay,
        };
        let mut quality = Quality::calm(delay);
        if self.happens(300_000) {
            quality.duplicate_ppm = self.ppm(200_000);
            quality.reorder_ppm = self.ppm(200_000);
            quality.reorder = self.span(Duration::ZERO, reply / 6);
        }
        NetworkSettings { quality, refusal: *self.pick(&[Refusal::Silent, Refusal::Heard]) }
    }

    fn disk(&mut self, pace: &Pace) -> DiskSettings {
        let latency = match self.0.below(4) {
            0 => Delay::NONE,
            1 => Delay::Uniform { min: Duration::ZERO, max: self.span(Duration::ZERO, pace.reply / 10) },
            _ => DiskSettings::FAST.latency,
        };
        let kept_ppm = self.ppm(1_000_000);
        DiskSettings { latency, kept_ppm, torn_ppm: self.ppm(1_000_000 - kept_ppm) }
    }

    fn trouble(&mut self, plan: &Plan, class: Class, may_be_late: bool) -> Trouble {
        let (nodes, pace) = (plan.nodes, &plan.pace);
        let at = match plan.troubles.last().and_then(|it| it.steps.first()) {
            // Shortly after another: the second blow falls while the group deals with the first.
            Some((earlier, _)) if self.happens(500_000) => *earlier + self.stretch(pace.patience_max * 2),
            Some(_) | None => self.span(Duration::ZERO, plan.faults_for),
        };
        let lasting = match class {
            // Back before anyone has noticed: what was promised before the crash still counts for the others.
            Class::Crash if self.happens(400_000) => self.stretch(pace.patience_max / 4),
            Class::Crash
            | Class::Rival
            | Class::Pause
            | Class::Slow
            | Class::Lossy
            | Class::Uneven
            | Class::Partition
            | Class::Cut
            | Class::Flap
            | Class::Disk
            | Class::Clock
            | Class::WildClock
            | Class::Hint
            | Class::Request => self.stretch(pace.patience_max * 8),
        };
        let end = at + lasting;
        let node = self.node(nodes);
        // What happens to the leader matters most.
        let aim = if self.happens(600_000) { Aim::Leader(node) } else { Aim::AsDrawn };
        let begin_and_end = |begin: Fault, over: Fault| vec![(at, begin), (end, over)];
        let steps = match class {
            Class::Crash => {
                let mut steps = begin_and_end(Fault::Crash(node), Fault::Restart(node));
                // Proof of death must still be true when it is heard, so it comes at once and never to a node that may be slow.
                if !may_be_late && aim == Aim::AsDrawn && !restarts_at(plan, node, at) && self.happens(300_000) {
                    let others = (1..=nodes).map(NodeId).filter(|it| *it != node);
                    steps.extend(others.map(|it| (at, Fault::Request { node: it, request: Request::Dead { peer: node } })));
                }
                steps
            }
            Class::Pause => begin_and_end(Fault::Pause(node), Fault::Resume(node)),
            Class::Slow => {
                let by = self.stretch(pace.patience_max);
                begin_and_end(Fault::Slow { node, by }, Fault::Slow { node, by: Duration::ZERO })
            }
            Class::Lossy => self.lossy(plan, at, end),
            Class::Rival => return Trouble { aim: Aim::Leader(node), steps: self.rival(plan, node, at, end) },
            Class::Uneven => self.uneven(plan, at, end),
            Class::Partition => {
                let side = (1..=nodes).map(NodeId).filter(|_| self.happens(500_000)).collect();
                begin_and_end(Fault::Partition(vec![side]), Fault::Partition(Vec::new()))
            }
            Class::Cut => {
                let links = self.links(node, nodes);
                match self.0.below(3) {
                    0 => begin_and_end(Fault::Isolate(node), Fault::Rejoin(node)),
                    _ => begin_and_end(Fault::Cut(links), Fault::Mend(links)),
                }
            }
            Class::Flap => {
                let links = self.links(node, nodes);
                let period = self.span(pace.patience_max / 4, pace.patience_max * 3);
                begin_and_end(Fault::Flap { links, period }, Fault::Mend(links))
            }
            Class::Disk => {
                let begin = match self.0.below(2) {
                    0 => Fault::DiskStall(node),
                    _ => Fault::DiskSlow { node, by: self.stretch(pace.patience_max * 2) },
                };
                begin_and_end(begin, Fault::DiskNormal(node))
            }
            Class::Clock => {
                let bound = plan.pace.drift_ppm;
                vec![(at, Fault::ClockRate { node, ppm: self.ppm(bound * 2).cast_signed() - bound.cast_signed() })]
            }
            Class::WildClock => vec![(
                at,
                match self.0.below(3) {
                    0 => Fault::ClockRate { node, ppm: self.ppm(1_000_000).cast_signed() - 500_000 },
                    1 => Fault::ClockJump { node, by: self.stretch(pace.patience_max * 4) },
                    _ => Fault::ClockFreeze { node, lasting },
                },
            )],
            Class::Hint => {
                let peer = self.other(node, nodes);
                match self.0.below(3) {
                    0 => vec![(at, Fault::ResetStorm { every: self.span(pace.reply / 10, pace.reply), times: 1 + self.ppm(20) })],
                    _ => vec![(at, Fault::Request { node: peer, request: Request::Suspect { peer: node } })],
                }
            }
            Class::Request => {
                let to = self.other(node, nodes);
                let request = *self.pick(&[Request::Campaign, Request::Resign, Request::HandOver { to }]);
                vec![(at, Fault::Request { node, request })]
            }
        };
        Trouble { aim, steps }
    }

    /// Nodes that leave the office to others for a while, and some that do for good.
    fn abstentions(&mut self, plan: &mut Plan) {
        if self.happens(250_000) {
            for _ in 0..=self.0.below(8) {
                let at = self.span(Duration::ZERO, plan.faults_for);
                let end = at + self.stretch(plan.pace.patience_max * 8);
                let node = self.node(plan.nodes);
                let aim = if self.happens(500_000) { Aim::Leader(node) } else { Aim::AsDrawn };
                let steps = [(at, Request::Abstain), (end, Request::Stand)];
                let steps = steps.into_iter().map(|(at, request)| (at, Fault::Request { node, request })).collect();
                plan.troubles.push(Trouble { aim, steps });
            }
        }
        if self.happens(150_000) {
            plan.stay_out = self.spare(plan.nodes, plan.nodes as usize - 1);
            // Of those that are up, one must be willing.
            let willing = |plan: &Plan, node| !plan.stay_out.contains(&node) && !plan.stay_down.contains(&node);
            while !(1..=plan.nodes).any(|id| willing(plan, NodeId(id))) {
                plan.stay_out.pop();
            }
        }
    }

    fn rival(&mut self, plan: &Plan, leader: NodeId, at: Duration, end: Duration) -> Vec<(Duration, Fault)> {
        let rival = self.other(leader, plan.nodes);
        if rival == leader {
            return Vec::new();
        }
        let links = Links::OneWay { from: leader, to: rival };
        let mut steps = vec![(at, Fault::Cut(links)), (end, Fault::Mend(links))];
        for node in (1..=plan.nodes).map(NodeId).filter(|node| *node != leader && *node != rival) {
            for _ in 0..self.0.below(4) {
                let down = self.span(at, end);
                steps.push((down, Fault::Crash(node)));
                steps.push((down + self.stretch(plan.pace.patience_max / 8), Fault::Restart(node)));
            }
        }
        steps
    }

    fn lossy(&mut self, plan: &Plan, at: Duration, end: Duration) -> Vec<(Duration, Fault)> {
        let node = self.node(plan.nodes);
        let links = if self.happens(500_000) { Links::All } else { self.links(node, plan.nodes) };
        // Up to longer than a whole leadership: what was said in one may arrive in the next.
        let by = self.stretch(plan.pace.patience_max * 8);
        let calm = &plan.network.quality;
        let (begin, over) = match self.0.below(5) {
            0 => (Fault::Loss { links, ppm: self.ppm(600_000) }, Fault::Loss { links, ppm: 0 }),
            1 => (Fault::Duplicate { links, ppm: self.ppm(800_000) }, Fault::Duplicate { links, ppm: calm.duplicate_ppm }),
            2 => (
                Fault::Reorder { links, ppm: self.ppm(800_000), by },
                Fault::Reorder { links, ppm: calm.reorder_ppm, by: calm.reorder },
            ),
            3 => (Fault::Spikes { links, ppm: self.ppm(300_000), by }, Fault::Spikes { links, ppm: 0, by: Duration::ZERO }),
            _ => (
                Fault::Delay { links, delay: Delay::Uniform { min: by / 16, max: by / 4 } },
                Fault::Delay { links, delay: calm.delay },
            ),
        };
        vec![(at, begin), (end, over)]
    }

    fn uneven(&mut self, plan: &Plan, at: Duration, end: Duration) -> Vec<(Duration, Fault)> {
        let mut steps = Vec::new();
        for from in (1..=plan.nodes).map(NodeId) {
            for to in (1..=plan.nodes).map(NodeId).filter(|to| *to != from) {
                let links = Links::OneWay { from, to };
                let delay = self.stretch(plan.pace.patience_min);
                steps.push((at, Fault::Delay { links, delay: Delay::Uniform { min: delay / 2, max: delay } }));
                steps.push((end, Fault::Delay { links, delay: plan.network.quality.delay }));
            }
        }
        steps
    }

    fn links(&mut self, node: NodeId, nodes: u32) -> Links {
        let other = self.other(node, nodes);
        match self.0.below(3) {
            _ if node == other => Links::All,
            0 => Links::Between(node, other),
            1 => Links::OneWay { from: node, to: other },
            _ => Links::OneWay { from: other, to: node },
        }
    }
}

/// Whether some trouble so far brings `node` up at this very time.
fn restarts_at(plan: &Plan, node: NodeId, at: Duration) -> bool {
    plan.troubles.iter().flat_map(|it| &it.steps).any(|(when, fault)| *when == at && *fault == Fault::Restart(node))
}

/// `fault` with two nodes in each other's place.
pub(crate) fn exchanged(fault: &Fault, (a, b): (NodeId, NodeId)) -> Fault {
    let swap = |node: NodeId| match node {
        it if it == a => b,
        it if it == b => a,
        it => it,
    };
    let swap_links = |links: Links| match links {
        Links::All => Links::All,
        Links::Between(a, b) => Links::Between(swap(a), swap(b)),
        Links::OneWay { from, to } => Links::OneWay { from: swap(from), to: swap(to) },
    };
    let swap_request = |request: Request| match request {
        Request::Campaign => Request::Campaign,
        Request::Resign => Request::Resign,
        Request::HandOver { to } => Request::HandOver { to: swap(to) },
        Request::Suspect { peer } => Request::Suspect { peer: swap(peer) },
        Request::Dead { peer } => Request::Dead { peer: swap(peer) },
        Request::Abstain => Request::Abstain,
        Request::Stand => Request::Stand,
    };
    match fault.clone() {
        Fault::Crash(node) => Fault::Crash(swap(node)),
        Fault::Restart(node) => Fault::Restart(swap(node)),
        Fault::Pause(node) => Fault::Pause(swap(node)),
        Fault::Resume(node) => Fault::Resume(swap(node)),
        Fault::Slow { node, by } => Fault::Slow { node: swap(node), by },
        Fault::Cut(links) => Fault::Cut(swap_links(links)),
        Fault::Mend(links) => Fault::Mend(swap_links(links)),
        Fault::Flap { links, period } => Fault::Flap { links: swap_links(links), period },
        Fault::Partition(groups) => Fault::Partition(groups.into_iter().map(|it| it.into_iter().map(swap).collect()).collect()),
        Fault::Isolate(node) => Fault::Isolate(swap(node)),
        Fault::Rejoin(node) => Fault::Rejoin(swap(node)),
        Fault::Delay { links, delay } => Fault::Delay { links: swap_links(links), delay },
        Fault::Spikes { links, ppm, by } => Fault::Spikes { links: swap_links(links), ppm, by },
        Fault::Loss { links, ppm } => Fault::Loss { links: swap_links(links), ppm },
        Fault::Duplicate { links, ppm } => Fault::Duplicate { links: swap_links(links), ppm },
        Fault::Reorder { links, ppm, by } => Fault::Reorder { links: swap_links(links), ppm, by },
        Fault::ClockRate { node, ppm } => Fault::ClockRate { node: swap(node), ppm },
        Fault::ClockJump { node, by } => Fault::ClockJump { node: swap(node), by },
        Fault::ClockFreeze { node, lasting } => Fault::ClockFreeze { node: swap(node), lasting },
        Fault::DiskSlow { node, by } => Fault::DiskSlow { node: swap(node), by },
        Fault::DiskStall(node) => Fault::DiskStall(swap(node)),
        Fault::DiskNormal(node) => Fault::DiskNormal(swap(node)),
        Fault::Request { node, request } => Fault::Request { node: swap(node), request: swap_request(request) },
        whole @ (Fault::ResetStorm { .. } | Fault::Heal) => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_plan_and_the_protocol_may_be_forced() {
        for seed in 0..300 {
            let plan = Plan::draw(seed, None);
            assert_eq!(plan, Plan::draw(seed, None));
            assert_eq!(plan, Plan::draw(seed, Some(plan.kind)), "the command that replays a run names its protocol");
            let forced = Plan::draw(seed, Some(Kind::Raft));
            let (stay_down, stay_out) = (plan.stay_down.clone(), plan.stay_out.clone());
            assert_eq!(Plan { kind: plan.kind, stay_down, stay_out, ..forced }, plan);
        }
    }

    #[test]
    fn exchanging_two_nodes_twice_changes_nothing_and_once_moves_every_name() {
        let pair = (NodeId(1), NodeId(2));
        for plan in (0..500).map(|seed| Plan::draw(seed, None)).filter(|plan| plan.nodes > 1) {
            for (_, fault) in plan.troubles.iter().flat_map(|it| &it.steps) {
                let moved = exchanged(fault, pair);
                assert_eq!(exchanged(&moved, pair), *fault);
                let swap = |node: &NodeId| [*node, pair.1, pair.0][if node.0 > 2 { 0 } else { node.0 as usize }];
                assert_eq!(moved.nodes(), fault.nodes().iter().map(swap).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn every_plan_is_possible_and_names_members_only() {
        for seed in 0..3_000 {
            let plan = Plan::draw(seed, None);
            let settings = plan.settings();
            for (_, fault) in plan.troubles.iter().flat_map(|it| &it.steps) {
                assert_eq!(fault.stranger(&settings), None, "seed {seed}: {fault}");
            }
            assert!(plan.demands().elected_within < plan.demands().settled_within);
            assert!(plan.nodes as usize - plan.stay_down.len() >= plan.needed());
            let idle: Vec<_> = plan.stay_down.iter().chain(&plan.stay_out).collect();
            assert!((1..=plan.nodes).any(|id| !idle.contains(&&NodeId(id))), "seed {seed}: nobody may lead");
        }
    }

    #[test]
    fn plans_differ_in_everything() {
        let plans: Vec<Plan> = (0..2_000).map(|seed| Plan::draw(seed, None)).collect();
        let some = |wanted: &dyn Fn(&Plan) -> bool| plans.iter().filter(|plan| wanted(plan)).count();
        for count in 1..=7 {
            assert!(some(&|plan| plan.nodes == count) > 20, "{count} nodes");
        }
        for kind in Kind::ALL {
            assert!(some(&|plan| plan.kind == kind && plan.guard == Guard::Off) > 100, "{kind}");
            assert!(some(&|plan| plan.kind == kind && plan.guard != Guard::Off) > 100, "{kind}");
        }
        assert!(some(&|plan| plan.troubles.is_empty()) > 50);
        assert!(some(&|plan| plan.stay_down.len() == 1) > 50);
        assert!(some(&|plan| plan.stay_down.len() > 1) > 50);
        assert!(some(&|plan| plan.stay_out.len() > 1) > 50);
        assert!(some(&|plan| !plan.clocks_keep_the_bound()) > 50);
        assert!(some(&|plan| plan.clocks_keep_the_bound()) > 1_500);
        for word in [
            "crash",
            "restart",
            "pause",
            "slow",
            "cut",
            "mend",
            "flap",
            "partition",
            "isolate",
            "delay",
            "spikes",
            "loss",
            "duplicate",
            "reorder",
            "clock",
            "disk",
            "campaign",
            "resign",
            "hand-over",
            "suspect",
            "dead",
            "abstain",
            "stand",
            "reset-storm",
        ] {
            let names =
                |plan: &Plan| plan.troubles.iter().flat_map(|it| &it.steps).any(|(_, fault)| fault.to_string().starts_with(word));
            assert!(some(&names) > 20, "{word}");
        }
    }
}
