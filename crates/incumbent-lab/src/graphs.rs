//! Every way in which the links of five nodes can be cut (C23): does the group get a leader, how fast, and does it ever have two?
//!
//! A network seldom splits cleanly. Here each of the ten links is there or not, which makes 2^10 graphs, or each of the twenty ways
//! is, which makes 2^20, of which some are drawn. A node is *quorum-connected* if it and those with whom it can speak both ways make up a
//! majority. Only such a node can lead under guard; where there is one, a good protocol finds it, although the others may know
//! nothing of it and the nodes that it reaches may not reach each other.

use std::fmt;
use std::num::NonZeroUsize;
use std::time::Duration;

use incumbent_protocol::chance::Chance;
use incumbent_protocol::machine::Kind;
use incumbent_protocol::protocol::NodeId;
use incumbent_protocol::settings::{Guard, Settings};

use crate::compare::trial::rest;
use crate::fault::Fault;
use crate::jobs::{self, Audience};
use crate::meter::{Interval, Reign};
use crate::world::{World, WorldSettings};

/// The nodes of every graph.
pub const NODES: u32 = 5;

/// More than half of them.
const MAJORITY: usize = 3;

/// How many graphs there are if a link works both ways or not at all.
pub const UNDIRECTED: u32 = 1 << 10;

/// How many there are if each way of a link works or not.
pub const DIRECTED: u32 = 1 << 20;

/// Which ways between five nodes work.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Graph {
    /// Bit `place(from, to)`.
    ways: u32,
}

impl Graph {
    /// The graph with this number, in which links work both ways or not at all: bit by bit 1-2, 1-3, 1-4, 1-5, 2-3, … 4-5.
    pub fn undirected(number: u32) -> Graph {
        let pairs = pairs().filter(|(a, b)| a < b).enumerate();
        let there = pairs.filter(|(bit, _)| number >> bit & 1 == 1);
        Graph { ways: there.map(|(_, (a, b))| 1 << place(a, b) | 1 << place(b, a)).sum() }
    }

    /// The graph with this number, in which each way works or not: bit by bit 1>2, 1>3, … 5>4.
    pub fn directed(number: u32) -> Graph {
        let there = pairs().enumerate().filter(|(bit, _)| number >> bit & 1 == 1);
        Graph { ways: there.map(|(_, (a, b))| 1 << place(a, b)).sum() }
    }

    /// Whether `from` reaches `to`.
    pub fn carries(&self, from: NodeId, to: NodeId) -> bool {
        self.ways >> place(from, to) & 1 == 1
    }

    /// Whether `node` and those with whom it can speak both ways make up a majority.
    pub fn is_quorum_connected(&self, node: NodeId) -> bool {
        let peers =
            (1..=NODES).map(NodeId).filter(|peer| *peer != node && self.carries(node, *peer) && self.carries(*peer, node));
        peers.count() + 1 >= MAJORITY
    }

    /// Whether there is any node that can lead with a majority behind it.
    pub fn is_hopeful(&self) -> bool {
        (1..=NODES).any(|id| self.is_quorum_connected(NodeId(id)))
    }

    /// What cuts the ways that are not there.
    fn cuts(&self) -> impl Iterator<Item = Fault> {
        pairs().filter(|(from, to)| !self.carries(*from, *to)).map(|(from, to)| Fault::cut_one_way(from, to))
    }
}

/// `1-2 1>3`: the links that are there.
impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (a, b) in pairs().filter(|(from, to)| self.carries(*from, *to)) {
            let mutual = self.carries(b, a);
            if mutual && a > b {
                continue;
            }
            write!(f, "{}{a}{}{b}", if first { "" } else { " " }, if mutual { '-' } else { '>' })?;
            first = false;
        }
        if first { f.write_str("no links") } else { Ok(()) }
    }
}

/// All ordered pairs of different nodes.
fn pairs() -> impl Iterator<Item = (NodeId, NodeId)> {
    (1..=NODES).flat_map(|a| (1..=NODES).filter(move |b| *b != a).map(move |b| (NodeId(a), NodeId(b))))
}

fn place(from: NodeId, to: NodeId) -> u32 {
    (from.0 - 1) * NODES + (to.0 - 1)
}

/// What the group is doing when its links are cut.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Start {
    /// All follow one leader.
    Led,
    /// All nodes are just starting.
    Cold,
}

/// One run: one graph, one protocol.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct GraphRun {
    /// The links that are left.
    pub graph: Graph,
    /// The protocol.
    pub kind: Kind,
    /// Whether a leader needs a majority behind it.
    pub guarded: bool,
    /// What the group is doing when the links are cut.
    pub start: Start,
    /// How long it is observed from there.
    pub lasts: Duration,
    /// Everything that is left to chance follows from it.
    pub seed: u64,
}

/// What came of it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct GraphOutcome {
    /// From the cut until there is a leader: zero if the old one stays, otherwise until the next one is in office.
    pub led_after: Option<Duration>,
    /// Whether anyone was in office at the end.
    pub led_at_end: bool,
    /// How long nobody was in office, at the longest.
    pub longest_vacancy: Duration,
    /// How often a node took office.
    pub changes: u64,
    /// How far the greatest term has risen.
    pub terms: u64,
    /// How long two or more nodes were in office at once, at the longest; zero if never.
    pub longest_overlap: Duration,
}

impl GraphRun {
    /// Runs it.
    pub fn run(&self) -> GraphOutcome {
        let guard = if self.guarded { Guard::Majority } else { Guard::Off };
        let settings = Settings::of((1..=NODES).map(NodeId)).guard(guard).build().expect("five nodes make a group");
        let mut world = World::new(WorldSettings::new(self.kind, settings, self.seed));
        match self.start {
            Start::Led => assert!(rest(&mut world, &mut Chance::new(self.seed)).is_some(), "a whole group elects a leader"),
            Start::Cold => {}
        }
        let cut = world.now();
        let lease = world.settings().pace().patience_min;
        let (elected, term) = (world.meter().elected(), greatest_term(&world));
        for fault in self.graph.cuts() {
            world.inject(fault);
        }
        world.run_until(cut + self.lasts);
        let meter = world.meter();
        let longest = |intervals: &[Interval]| {
            let since = intervals.iter().map(|it| it.to - it.from.max(cut));
            since.max().unwrap_or_default()
        };
        // A leader that has lost its majority is out of office when its lease ends. Who is there longer has kept it, or has no guard.
        let stays = |reign: &Reign| reign.during.from <= cut && reign.during.to > cut + lease;
        let next = meter.reigns().map(|reign| reign.during.from).filter(|from| *from > cut).min();
        GraphOutcome {
            led_after: if meter.reigns().any(|reign| stays(&reign)) { Some(Duration::ZERO) } else { next.map(|at| at - cut) },
            led_at_end: world.leaders().next().is_some(),
            longest_vacancy: longest(meter.vacancies()),
            changes: meter.elected() - elected,
            terms: greatest_term(&world).saturating_sub(term),
            longest_overlap: longest(meter.overlaps()),
        }
    }
}

fn greatest_term(world: &World) -> u64 {
    world.views().filter_map(|(_, view)| view).map(|view| view.term.0).max().unwrap_or(0)
}

/// Which graphs are tried.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Selection {
    /// All that have links which work both ways or not at all.
    AllUndirected,
    /// So many, drawn from all in which each way works or not.
    SomeDirected(u32),
}

impl Selection {
    /// The graphs, in order. Those that are drawn follow from `seed`.
    pub fn graphs(self, seed: u64) -> Vec<Graph> {
        match self {
            Selection::AllUndirected => (0..UNDIRECTED).map(Graph::undirected).collect(),
            Selection::SomeDirected(samples) => {
                let mut chance = Chance::new(seed);
                let drawn = (0..samples).map(|_| u32::try_from(chance.below(u64::from(DIRECTED))).unwrap_or(0));
                drawn.map(Graph::directed).collect()
            }
        }
    }
}

/// What is to be tried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GraphPlan {
    /// Which graphs.
    pub selection: Selection,
    /// Which protocols.
    pub kinds: Vec<Kind>,
    /// With guard (true), without, or both.
    pub guards: Vec<bool>,
    /// What the groups are doing when the links are cut.
    pub starts: Vec<Start>,
    /// How long each is observed.
    pub lasts: Duration,
    /// Graph number n is run with the n-th seed from here on.
    pub seed: u64,
}

impl GraphPlan {
    /// How many runs it takes.
    pub fn runs(&self) -> usize {
        let graphs = match self.selection {
            Selection::AllUndirected => UNDIRECTED,
            Selection::SomeDirected(samples) => samples,
        };
        graphs as usize * self.rows().len()
    }

    /// Makes the runs. If the audience has enough before the end, rows have fewer runs.
    pub fn run(&self, threads: NonZeroUsize, audience: &impl Audience) -> Vec<Row> {
        let graphs = self.selection.graphs(self.seed);
        let mut rows = self.rows();
        let count = rows.len();
        // Every protocol tries a graph before the next graph comes: what is interrupted can still be compared.
        let outcomes = jobs::run_all(self.runs(), threads, audience, |number| {
            let Row { start, kind, guarded, .. } = rows[number % count];
            let (graph, seed) = (graphs[number / count], self.seed.wrapping_add((number / count) as u64));
            GraphRun { graph, kind, guarded, start, lasts: self.lasts, seed }.run()
        });
        for (number, outcome) in outcomes.into_iter().enumerate() {
            rows[number % count].outcomes.push((graphs[number / count], outcome));
        }
        rows
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for &start in &self.starts {
            for &kind in &self.kinds {
                for &guarded in &self.guards {
                    rows.push(Row { start, kind, guarded, outcomes: Vec::new() });
                }
            }
        }
        rows
    }
}

/// What one protocol did in all graphs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// What the group was doing when the links were cut.
    pub start: Start,
    /// The protocol.
    pub kind: Kind,
    /// Whether a leader needed a majority behind it.
    pub guarded: bool,
    /// Each graph and what came of it.
    pub outcomes: Vec<(Graph, GraphOutcome)>,
}

impl Row {
    /// What came of those graphs in which some node reaches a majority both ways.
    pub fn hopeful(&self) -> impl Iterator<Item = &(Graph, GraphOutcome)> {
        self.outcomes.iter().filter(|(graph, _)| graph.is_hopeful())
    }

    /// The hopeful graphs that nobody led at the end.
    pub fn leaderless(&self) -> impl Iterator<Item = &Graph> {
        self.hopeful().filter(|(_, outcome)| !outcome.led_at_end).map(|(graph, _)| graph)
    }

    /// How many hopeful graphs had a leader within `span`.
    pub fn led_within(&self, span: Duration) -> usize {
        self.hopeful().filter(|(_, outcome)| outcome.led_after.is_some_and(|after| after <= span)).count()
    }

    /// How long it took at the longest, in hopeful graphs, until there was a leader; `None` if there was none in one of them.
    pub fn slowest(&self) -> Option<Duration> {
        let all: Option<Vec<Duration>> = self.hopeful().map(|(_, outcome)| outcome.led_after).collect();
        all?.into_iter().max()
    }

    /// How long a hopeful graph had no leader, at the longest.
    pub fn longest_vacancy(&self) -> Duration {
        self.hopeful().map(|(_, outcome)| outcome.longest_vacancy).max().unwrap_or_default()
    }

    /// The graphs that ever had two leaders at once.
    pub fn two_leaders(&self) -> impl Iterator<Item = &Graph> {
        self.outcomes.iter().filter(|(_, outcome)| !outcome.longest_overlap.is_zero()).map(|(graph, _)| graph)
    }

    /// For how long, at the longest.
    pub fn longest_overlap(&self) -> Duration {
        self.outcomes.iter().map(|(_, outcome)| outcome.longest_overlap).max().unwrap_or_default()
    }

    /// How often a node took office, at the most.
    pub fn most_changes(&self) -> u64 {
        self.outcomes.iter().map(|(_, outcome)| outcome.changes).max().unwrap_or(0)
    }

    /// How far the greatest term rose, at the most.
    pub fn most_terms(&self) -> u64 {
        self.outcomes.iter().map(|(_, outcome)| outcome.terms).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n(id: u32) -> NodeId {
        NodeId(id)
    }

    #[test]
    fn numbers_name_links_bit_by_bit() {
        assert_eq!(Graph::undirected(0).to_string(), "no links");
        assert_eq!(Graph::undirected(0b1).to_string(), "1-2");
        assert_eq!(Graph::undirected(0b10_0000_1001).to_string(), "1-2 1-5 4-5");
        assert_eq!(Graph::directed(0b1_0001).to_string(), "1-2");
        assert_eq!(Graph::directed(0b11).to_string(), "1>2 1>3");
        assert_eq!(Graph::undirected(UNDIRECTED - 1), Graph::directed(DIRECTED - 1));
        assert!(Graph::directed(1).carries(n(1), n(2)) && !Graph::directed(1).carries(n(2), n(1)));
    }

    #[test]
    fn no_two_numbers_name_the_same_graph() {
        let mut graphs = Selection::AllUndirected.graphs(1);
        graphs.sort_unstable();
        graphs.dedup();
        assert_eq!(graphs.len(), 1024);
    }

    #[test]
    fn a_node_is_quorum_connected_by_two_links_that_work_both_ways() {
        // 1-2 and 1-3: only 1 reaches a majority.
        let star = Graph::undirected(0b11);
        assert!(star.is_quorum_connected(n(1)) && !star.is_quorum_connected(n(2)) && star.is_hopeful());
        // A pair and another pair: nobody does.
        assert!(!Graph::undirected(0b1_0000_0001).is_hopeful());
        // Four ways out and none back: to be heard is not enough.
        assert!(!Graph::directed(0b1111).is_hopeful());
        // By counting the graphs of five nodes in which every node has at most one link (the matchings: 1 + 10 + 15).
        assert_eq!(Selection::AllUndirected.graphs(1).iter().filter(|graph| !graph.is_hopeful()).count(), 26);
    }

    #[test]
    fn samples_follow_from_the_seed() {
        let some = Selection::SomeDirected(50);
        assert_eq!(some.graphs(7), some.graphs(7));
        assert_ne!(some.graphs(7), some.graphs(8));
    }
}
