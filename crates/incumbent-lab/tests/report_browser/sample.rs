//! A report as a comparison might make it, for looking at the page and testing it: plausible figures from a seed, and
//! recorded runs written by hand. No measurement: the shapes matter here, not the values.

use incumbent_lab::report::model::{
    Arrow, FaultSpan, Measures, Meta, Outcome, Overlap, Period, Remark, Report, ScenarioNote, Setting, Spread, Standing,
    Timeline, glossary,
};
use incumbent_protocol::chance::Chance;
use incumbent_protocol::protocol::Purpose;

/// How many runs each entry of the sample pretends to have had.
const RUNS: u32 = 200;

pub(crate) const PROTOCOLS: [&str; 4] = ["bully", "ring", "chang-roberts", "raft"];
pub(crate) const SCENARIOS: [(&str, &str); 5] = [
    ("cold-start", "All nodes start at once and elect their first leader."),
    ("leader-crash", "A settled leader crashes; the others notice and elect another one."),
    ("partition", "The network splits so that the leader is with the smaller part; after two seconds it heals."),
    ("flapping", "One link to the leader goes up and down, twice a second."),
    ("slow-node", "The leader answers late: every message to and from it takes ten times as long."),
];
/// As a comparison has them: growth is the question in some scenarios only.
fn sizes(scenario: &str) -> &'static [u32] {
    if matches!(scenario, "cold-start" | "leader-crash" | "partition") { &[3, 5, 10, 50, 100] } else { &[5] }
}

/// The whole sample.
pub(crate) fn report() -> Report {
    let mut chance = Chance::new(7);
    let mut results = Vec::new();
    for (scenario, _) in SCENARIOS {
        for &nodes in sizes(scenario) {
            for protocol in PROTOCOLS {
                for guarded in [true, false] {
                    results.push(outcome(&mut chance, protocol, guarded, nodes, scenario));
                }
            }
        }
    }
    let note = |(name, meaning): (&str, &str)| ScenarioNote { name: name.into(), meaning: meaning.into() };
    let setting = |(name, value): (&str, &str)| Setting { name: name.into(), value: value.into() };
    let pace = [
        ("heartbeat", "50 ms"),
        ("patience", "150–300 ms"),
        ("reply", "60 ms"),
        ("drift", "500 ppm"),
        ("margin", "5 ms"),
        ("one-way delay", "4–16 ms"),
    ];
    Report {
        meta: Meta {
            title: "Four ways to elect a leader".into(),
            version: "0.1.0".into(),
            command: "incumbent lab compare --nodes 3,5,10,50,100 --runs 200 --seed 7 --html report.html".into(),
            seed: 7,
            runs: RUNS,
            date: "15 November 2026".into(),
            pace: pace.map(setting).to_vec(),
            glossary: glossary(),
        },
        scenarios: SCENARIOS.map(note).to_vec(),
        results,
        timelines: vec![bully_split(), bully_guarded(), raft_crash(), ring_pause(), crowd()],
    }
}

/// A number between `low` and `high`, leaning towards `low` as waiting times do.
fn draw(chance: &mut Chance, low: f64, high: f64) -> f64 {
    let mut unit = || chance.below(1 << 52) as f64 / (1_u64 << 52) as f64;
    low + (high - low) * unit().min(unit())
}

fn outcome(chance: &mut Chance, protocol: &str, guarded: bool, nodes: u32, scenario: &str) -> Outcome {
    let n = f64::from(nodes);
    let splits = !guarded && scenario == "partition";
    // Rare on purpose: one run in two hundred must still be seen.
    let rarely = !guarded && protocol == "ring" && scenario == "slow-node";
    let mut columns: [Vec<f64>; 9] = Default::default();
    let (mut split_runs, mut leaderless) = (0, 0);
    for run in 0..RUNS {
        let round = draw(chance, 8.0, 26.0) + if guarded { draw(chance, 8.0, 26.0) } else { 0.0 };
        let rounds = match protocol {
            "bully" => 3.0,
            "raft" => 1.0,
            "ring" => n / 2.0,
            _ => n / 2.2,
        };
        let election = round * rounds;
        let noticed = draw(chance, 150.0, 310.0);
        let failover = if scenario == "flapping" { noticed * 1.6 + election } else { noticed + election };
        let contest = match protocol {
            "bully" => n * n * draw(chance, 0.3, 0.9) + n,
            "ring" => 2.0 * n,
            "chang-roberts" => n * n.ln() + 2.0 * n * draw(chance, 1.0, 1.6),
            _ => 2.0 * (n - 1.0) * draw(chance, 1.0, 2.2),
        }
        .round();
        let messages = (contest + n * draw(chance, 55.0, 65.0) * if guarded { 2.0 } else { 1.0 }).round();
        let cut_off = protocol == "raft" && draw(chance, 0.0, 1.0) > 0.1;
        let split = if (splits && !cut_off) || (rarely && run == 17) { draw(chance, 300.0, 1900.0) } else { 0.0 };
        split_runs += u32::from(split > 0.0);
        leaderless += u32::from(scenario == "flapping" && guarded && protocol == "ring" && run % 50 == 3);
        let values = [
            split,
            f64::from(u8::from(split > 0.0)),
            failover,
            election,
            failover * 1.04 + 12.0,
            if scenario == "flapping" { draw(chance, 1.0, 7.0).round() } else { 1.0 },
            messages,
            contest,
            messages * 19.0,
        ];
        for (column, value) in columns.iter_mut().zip(values) {
            column.push(value);
        }
    }
    let measures = Measures {
        split_brain_ms: Spread::with_samples(&columns[0]),
        split_brain_incidents: Spread::of(&columns[1]),
        failover_ms: if scenario == "cold-start" { None } else { Spread::with_samples(&columns[2]) },
        election_ms: Spread::with_samples(&columns[3]),
        leaderless_ms: Spread::with_samples(&columns[4]),
        leader_changes: Spread::of(&columns[5]),
        messages: Spread::with_samples(&columns[6]),
        contest_messages: Spread::of(&columns[7]),
        bytes: Spread::of(&columns[8]),
        ..Measures::default()
    };
    Outcome {
        protocol: protocol.into(),
        guarded,
        nodes,
        scenario: scenario.into(),
        runs: RUNS,
        leaderless_runs: leaderless,
        split_brain_runs: split_runs,
        measures,
    }
}

/// Writes a run down as it is told.
struct Recorder {
    run: Timeline,
    chance: Chance,
    /// How long a message takes, at least and at most.
    flight: (f64, f64),
    /// The links that are cut, and when: from, to, since, until.
    cuts: Vec<(Vec<u32>, Vec<u32>, f64, f64)>,
}

impl Recorder {
    fn new(title: &str, protocol: &str, guarded: bool, scenario: &str, nodes: u32, duration_ms: f64) -> Recorder {
        let run = Timeline {
            title: title.into(),
            protocol: protocol.into(),
            guarded,
            scenario: scenario.into(),
            nodes: (1..=nodes).collect(),
            duration_ms,
            ..Timeline::default()
        };
        Recorder { run, chance: Chance::new(41), flight: (4.0, 16.0), cuts: Vec::new() }
    }

    /// `node` is `role` from now until it is something else.
    fn role(&mut self, at: f64, node: u32, role: Standing, term: u64, leader: Option<u32>) {
        if let Some(last) = self.run.roles.iter_mut().rev().find(|it| it.node == node) {
            last.to_ms = at;
        }
        self.run.roles.push(Period { node, from_ms: at, to_ms: self.run.duration_ms, role, term, leader });
    }

    fn tell(&mut self, at: f64, node: u32, text: &str) {
        self.run.events.push(Remark { t_ms: at, node: Some(node), text: text.into() });
    }

    /// Sends a message and says when it arrives (or would have).
    fn send(&mut self, at: f64, from: u32, to: u32, name: &str, term: u64, purpose: Purpose) -> f64 {
        let arrives = at + draw(&mut self.chance, self.flight.0, self.flight.1);
        let cut = self.cuts.iter().any(|(a, b, since, until)| {
            *since <= at && at < *until && (a.contains(&from) && b.contains(&to) || b.contains(&from) && a.contains(&to))
        });
        let down = self.run.roles.iter().any(|it| {
            it.node == to && matches!(it.role, Standing::Down | Standing::Paused) && it.from_ms <= arrives && arrives < it.to_ms
        });
        let arrived_ms = (!cut && !down).then_some(arrives);
        self.run.messages.push(Arrow { from, to, sent_ms: at, arrived_ms, name: name.into(), term, purpose });
        arrives
    }

    fn all_but(&self, node: u32) -> Vec<u32> {
        self.run.nodes.iter().copied().filter(|it| *it != node).collect()
    }

    /// Heartbeats of `leader` to all others, and their answers.
    fn heartbeats(&mut self, leader: u32, term: u64, from: f64, to: f64) {
        let mut at = from;
        while at < to {
            for follower in self.all_but(leader) {
                let heard = self.send(at, leader, follower, "heartbeat", term, Purpose::Upkeep);
                if self.run.messages.last().is_some_and(|it| it.arrived_ms.is_some()) {
                    self.send(heard, follower, leader, "heard", term, Purpose::Upkeep);
                }
            }
            at += 50.0;
        }
    }

    fn settled(&mut self, leader: u32, term: u64) {
        self.role(0.0, leader, Standing::Leader, term, Some(leader));
        for node in self.all_but(leader) {
            self.role(0.0, node, Standing::Follower, term, Some(leader));
        }
    }

    fn fault(&mut self, from_ms: f64, to_ms: f64, text: &str, nodes: &[u32]) {
        self.run.faults.push(FaultSpan { from_ms, to_ms, text: text.into(), nodes: nodes.to_vec() });
    }
}

const SPLIT_AT: f64 = 600.0;
const SPLIT_TOLD_AT: f64 = 905.0;
/// When the sample's second leader takes office; the test looks for it.
pub(crate) const TWO_LEADERS_FROM: f64 = 985.0;
const HEALED_AT: f64 = 2100.0;

/// The overlap that must be red: both parts of a split group have a leader.
fn bully_split() -> Timeline {
    let title = "Bully without guard: a split network elects a second leader";
    let mut it = Recorder::new(title, "bully", false, "partition", 5, 2600.0);
    it.cuts.push((vec![1, 2], vec![3, 4, 5], SPLIT_AT, HEALED_AT));
    it.settled(5, 1);
    it.heartbeats(5, 1, 10.0, 2600.0);
    it.fault(SPLIT_AT, HEALED_AT, "network split: {1, 2} | {3, 4, 5}", &[1, 2]);
    it.tell(SPLIT_TOLD_AT, 2, "leader 5 is gone: silent");
    it.role(SPLIT_TOLD_AT, 2, Standing::Candidate, 1, None);
    for to in [3, 4, 5] {
        it.send(SPLIT_TOLD_AT, 2, to, "election", 1, Purpose::Contest);
    }
    it.tell(918.0, 1, "leader 5 is gone: silent");
    it.role(918.0, 1, Standing::Candidate, 1, None);
    let mut heard = 0.0;
    for to in [2, 3, 4, 5] {
        let arrives = it.send(918.0, 1, to, "election", 1, Purpose::Contest);
        heard = if to == 2 { arrives } else { heard };
    }
    it.send(heard, 2, 1, "alive", 1, Purpose::Contest);
    it.tell(TWO_LEADERS_FROM, 2, "is elected in term 2");
    it.role(TWO_LEADERS_FROM, 2, Standing::Leader, 2, Some(2));
    let follows = it.send(TWO_LEADERS_FROM, 2, 1, "coordinator", 2, Purpose::Contest);
    for to in [3, 4, 5] {
        it.send(TWO_LEADERS_FROM, 2, to, "coordinator", 2, Purpose::Contest);
    }
    it.tell(follows, 1, "follows 2 in term 2");
    it.role(follows, 1, Standing::Follower, 2, Some(2));
    it.heartbeats(2, 2, TWO_LEADERS_FROM + 50.0, HEALED_AT + 20.0);
    let claims = it.send(HEALED_AT + 12.0, 5, 2, "coordinator", 3, Purpose::Contest);
    for to in [1, 3, 4] {
        it.send(HEALED_AT + 12.0, 5, to, "coordinator", 3, Purpose::Contest);
    }
    it.tell(HEALED_AT + 12.0, 5, "is elected in term 3");
    it.role(HEALED_AT + 12.0, 5, Standing::Leader, 3, Some(5));
    it.tell(claims, 2, "is out of office: superseded by term 3");
    it.role(claims, 2, Standing::Follower, 3, Some(5));
    for node in [1, 3, 4] {
        it.role(claims + f64::from(node), node, Standing::Follower, 3, Some(5));
    }
    it.run.overlaps.push(Overlap { from_ms: TWO_LEADERS_FROM, to_ms: claims, nodes: vec![2, 5] });
    it.run
}

/// The same split with the guard: the smaller part asks for votes and gets too few.
fn bully_guarded() -> Timeline {
    let mut it = Recorder::new("Bully with guard: the smaller part waits", "bully", true, "partition", 5, 2600.0);
    it.cuts.push((vec![1, 2], vec![3, 4, 5], SPLIT_AT, HEALED_AT));
    it.settled(5, 1);
    it.heartbeats(5, 1, 10.0, 2600.0);
    it.fault(SPLIT_AT, HEALED_AT, "network split: {1, 2} | {3, 4, 5}", &[1, 2]);
    for at in [SPLIT_TOLD_AT, 1420.0] {
        it.tell(at, 2, "contends");
        it.role(at, 2, Standing::Candidate, 1, None);
        for to in [3, 4, 5] {
            it.send(at, 2, to, "election", 1, Purpose::Contest);
        }
        let asked = it.send(at + 60.0, 2, 1, "vote request", 2, Purpose::Guard);
        for to in [3, 4, 5] {
            it.send(at + 60.0, 2, to, "vote request", 2, Purpose::Guard);
        }
        it.send(asked, 1, 2, "vote", 2, Purpose::Guard);
        it.tell(at + 130.0, 2, "is rejected in term 2: 2 of 3 votes");
        it.role(at + 130.0, 2, Standing::Follower, 2, None);
    }
    it.tell(HEALED_AT + 35.0, 2, "follows 5 in term 3");
    it.role(HEALED_AT + 20.0, 5, Standing::Leader, 3, Some(5));
    it.role(HEALED_AT + 35.0, 2, Standing::Follower, 3, Some(5));
    it.run
}

/// A crash, a split vote, a second round.
fn raft_crash() -> Timeline {
    let mut it = Recorder::new("Raft: the leader crashes, and the vote splits once", "raft", true, "leader-crash", 5, 1500.0);
    it.flight = (0.2, 0.9);
    it.settled(3, 4);
    it.heartbeats(3, 4, 10.0, 300.0);
    it.fault(300.0, 1000.0, "node 3 is down", &[3]);
    it.role(300.0, 3, Standing::Down, 4, None);
    for (at, candidate, voter) in [(478.6, 1, 2), (479.0, 5, 4)] {
        it.role(at, candidate, Standing::Candidate, 5, None);
        for to in it.all_but(candidate) {
            let asked = it.send(at, candidate, to, "vote request", 5, Purpose::Contest);
            if to == voter {
                it.send(asked, voter, candidate, "vote", 5, Purpose::Contest);
            }
        }
    }
    it.role(655.0, 5, Standing::Candidate, 6, None);
    for to in it.all_but(5) {
        let asked = it.send(655.0, 5, to, "vote request", 6, Purpose::Contest);
        if to != 3 {
            it.send(asked, to, 5, "vote", 6, Purpose::Contest);
        }
    }
    it.tell(656.6, 5, "is elected in term 6");
    it.role(656.6, 5, Standing::Leader, 6, Some(5));
    for node in [1, 2, 4] {
        it.role(657.0 + f64::from(node) / 10.0, node, Standing::Follower, 6, Some(5));
    }
    it.role(1000.0, 3, Standing::Follower, 6, None);
    it.heartbeats(5, 6, 656.6, 1500.0);
    it.role(1007.3, 3, Standing::Follower, 6, Some(5));
    it.run
}

/// A pause, and names that must not become markup.
fn ring_pause() -> Timeline {
    let mut it = Recorder::new("Ring: a paused leader wakes <b>late</b> & steps down", "ring", true, "slow-node", 4, 1200.0);
    it.settled(4, 1);
    it.role(200.0, 4, Standing::Paused, 1, Some(4));
    it.fault(200.0, 800.0, "node 4 is paused", &[4]);
    it.heartbeats(4, 1, 10.0, 200.0);
    it.role(430.0, 1, Standing::Candidate, 1, None);
    let mut at = 430.0;
    for (from, to) in [(1, 2), (2, 3), (3, 4), (3, 1)] {
        at = it.send(at, from, to, "election", 1, Purpose::Contest) + if to == 4 { 60.0 } else { 0.0 };
    }
    it.tell(at, 3, "is elected in term 2");
    it.role(at, 3, Standing::Leader, 2, Some(3));
    for node in [1, 2] {
        it.role(at + 20.0, node, Standing::Follower, 2, Some(3));
    }
    it.heartbeats(3, 2, at + 30.0, 1200.0);
    it.role(800.0, 4, Standing::Follower, 2, Some(3));
    it.run
}

/// Many nodes and far too many heartbeats: the page must thin them and stay readable.
fn crowd() -> Timeline {
    let mut it = Recorder::new("Bully, 25 nodes: a crash with a crowd", "bully", true, "leader-crash", 25, 4000.0);
    it.settled(25, 1);
    it.heartbeats(25, 1, 10.0, 1500.0);
    it.fault(1500.0, 4000.0, "node 25 is down", &[25]);
    it.role(1500.0, 25, Standing::Down, 1, None);
    for node in 18..=24 {
        let at = 1700.0 + f64::from(24 - node) * 9.0;
        it.role(at, node, Standing::Candidate, 1, None);
        for to in node + 1..=25 {
            let asked = it.send(at, node, to, "election", 1, Purpose::Contest);
            if to != 25 {
                it.send(asked, to, node, "alive", 1, Purpose::Contest);
            }
        }
    }
    it.role(1830.0, 24, Standing::Leader, 2, Some(24));
    it.tell(1830.0, 24, "is elected in term 2");
    for node in 1..=23 {
        let heard = it.send(1830.0, 24, node, "coordinator", 2, Purpose::Contest);
        it.role(heard, node, Standing::Follower, 2, Some(24));
    }
    it.heartbeats(24, 2, 1860.0, 4000.0);
    it.run
}
