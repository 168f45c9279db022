//! The figures that we publish of the lab, made by `cargo xtask bench`.
//!
//! Simulated times do not depend on the machine. Speeds do: they stand beside a floor measured in the same run, and nothing fails by them.

#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use std::time::{Duration, Instant};

use incumbent_lab::fault::Fault;
use incumbent_lab::network::Delay;
use incumbent_lab::observation::{Moment, Observer};
use incumbent_lab::oracle::{Demands, Exclusion, Oracles, Order};
use incumbent_lab::queue::Queue;
use incumbent_lab::world::{World, WorldSettings};
use incumbent_protocol::machine::Kind;
use incumbent_protocol::protocol::{NodeId, Request};
use incumbent_protocol::settings::{Guard, Pace, Settings};

fn main() {
    speed();
    large_groups();
    raft_downtime();
}

/// Events a second on one core, with all oracles and with none, beside a floor: the bare queue.
fn speed() {
    const EVENTS: u64 = 3_000_000;
    println!("Simulated events per second, one core; a crash every ten simulated seconds");
    let floor = {
        let mut queue = Queue::default();
        let started = Instant::now();
        for at in 0..EVENTS {
            queue.put(Moment(at * 1_000 + at % 97 * 5_000), at);
            if at >= 40 {
                queue.take();
            }
        }
        EVENTS as f64 / started.elapsed().as_secs_f64()
    };
    println!(
        "  {:<14} {:>5}  {:>12} {:>12} {:>14} {:>16}",
        "", "nodes", "all oracles", "no oracle", "of the floor", "than real time"
    );
    for (kind, nodes) in [(Kind::Raft, 5), (Kind::Bully, 5), (Kind::Ring, 5), (Kind::ChangRoberts, 5), (Kind::Raft, 50)] {
        let settings = group(nodes, Guard::Majority, Pace::LAN);
        let plan = WorldSettings::new(kind, settings.clone(), 1);
        let watched = World::watched(plan.clone(), Oracles::new(&settings, &demands(&settings)));
        let (rate, faster, world) = run(watched, EVENTS);
        assert_eq!(world.observer().violations().next(), None);
        let (bare, ..) = run(World::new(plan), EVENTS);
        let (kind, share) = (kind.name(), rate / floor * 100.0);
        println!("  {kind:<14} {nodes:>5}  {:>10.2} M {:>10.2} M {share:>12.1} % {faster:>14.0} x", rate / 1e6, bare / 1e6);
    }
    println!("  floor: {:.1} M put-and-take a second on a queue of 40\n", floor / 1e6);
}

/// Crashes the leader and brings it back, over and over. Events a second, simulated time over real time, and the world.
fn run<O: Observer>(mut world: World<O>, events: u64) -> (f64, f64, World<O>) {
    let started = Instant::now();
    while world.meter().events() < events {
        let node = world.leader().unwrap_or(NodeId(1));
        world.inject(Fault::Crash(node));
        world.run_for(Duration::from_secs(5));
        world.inject(Fault::Restart(node));
        world.run_for(Duration::from_secs(5));
    }
    let took = started.elapsed().as_secs_f64();
    (world.meter().events() as f64 / took, (world.now() - Moment::ZERO).as_secs_f64() / took, world)
}

/// All nodes of a large group start at once, without guard: the algorithms themselves. Time and memory as the group doubles.
fn large_groups() {
    println!("All n nodes call an election at once, no guard: until every node follows the leader");
    println!("  {:<14} {:>6} {:>12} {:>12} {:>12} {:>14}", "", "nodes", "messages", "simulated", "real", "peak memory");
    for kind in [Kind::Ring, Kind::ChangRoberts, Kind::Bully] {
        for nodes in [250, 500, 1000] {
            let settings = group(nodes, Guard::Off, Pace::LAN);
            forget_peak();
            let before = peak_kib();
            let started = Instant::now();
            let mut world = World::new(WorldSettings::new(kind, settings, 1));
            for node in 1..=nodes {
                world.inject(Fault::Request { node: NodeId(node), request: Request::Campaign });
            }
            // Asked every ten simulated milliseconds: the question itself takes as long as the group is large.
            let mut patience = 12_000;
            while world.agreed_leader().is_none() && patience > 0 {
                world.run_for(Duration::from_millis(10));
                patience -= 1;
            }
            let agreed = patience > 0;
            let took = started.elapsed();
            let memory = peak_kib().saturating_sub(before) as f64 / 1024.0;
            let (simulated, messages) = ((world.now() - Moment::ZERO).as_secs_f64(), world.meter().messages());
            let name = kind.name();
            assert!(agreed, "{kind} with {nodes} nodes does not agree");
            println!(
                "  {name:<14} {nodes:>6} {messages:>12} {simulated:>10.2} s {:>10.2} s {memory:>10.1} MiB",
                took.as_secs_f64()
            );
        }
    }
    println!();
}

/// The Raft paper's own measurement (figure 16): how long a group of five is without a leader after a crash.
fn raft_downtime() {
    const RUNS: u64 = 2000;
    println!(
        "Raft, 5 nodes, broadcast time 15 ms, leader crashes at a random point of its heartbeat: time without a leader, {RUNS} runs"
    );
    for (low, high, published) in [(150, 300, None), (150, 155, Some(287))] {
        let pace = Pace { patience_min: Duration::from_millis(low), patience_max: Duration::from_millis(high), ..Pace::LAN };
        let mut downtimes: Vec<Duration> = (0..RUNS).map(|seed| downtime(pace, seed)).collect();
        downtimes.sort_unstable();
        let at = |share: f64| downtimes[((downtimes.len() - 1) as f64 * share) as usize].as_millis();
        let paper = published.map_or(String::new(), |ms: u32| format!("; the paper's median: {ms} ms"));
        println!("  timeouts {low}-{high} ms: p50 {} ms, p99 {} ms, max {} ms{paper}", at(0.5), at(0.99), at(1.0));
    }
    println!("  (ours asks by pre-vote first, one round trip more; the paper's 150-300 ms curve has no published median)");
}

fn downtime(pace: Pace, seed: u64) -> Duration {
    let mut plan = WorldSettings::new(Kind::Raft, group(5, Guard::Majority, pace), seed);
    // Out and back in 15 ms, disk included.
    plan.network.quality.delay = Delay::Uniform { min: Duration::from_millis(6), max: Duration::from_millis(9) };
    let mut world = World::new(plan);
    world.run_while(|world| world.agreed_leader().is_none(), Moment(10_000_000_000));
    world.run_for(Duration::from_secs(2) + Duration::from_micros(seed * 7919 % 50_000));
    let leader = world.leader().expect("a calm group has a leader");
    let before = world.meter().leaderless();
    world.inject(Fault::Crash(leader));
    world.run_while(|world| world.leader().is_none(), world.now() + Duration::from_secs(30));
    world.meter().leaderless() - before
}

fn group(nodes: u32, guard: Guard, pace: Pace) -> Settings {
    Settings::of((1..=nodes).map(NodeId)).guard(guard).pace(pace).build().expect("valid")
}

fn demands(settings: &Settings) -> Demands {
    let bound = settings.pace().patience_max * 100;
    Demands {
        exclusion: Exclusion::Demanded,
        order: Order::Whole,
        elected_within: bound,
        settled_within: bound,
        contest_within: bound,
    }
}

/// The most memory that this process has used, in KiB (Linux; elsewhere 0).
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// Lets the peak begin anew from what is in use now.
fn forget_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}
