//! How many simulated events a second one core does: `cargo run --release -p incumbent-lab --example speed`.

use std::time::{Duration, Instant};

use incumbent_lab::fault::Fault;
use incumbent_lab::observation::{Moment, Observer};
use incumbent_lab::world::{World, WorldSettings};
use incumbent_protocol::machine::Kind;
use incumbent_protocol::protocol::NodeId;
use incumbent_protocol::settings::Settings;

#[allow(clippy::print_stdout, reason = "its output is its purpose")]
fn main() {
    for count in [3, 5, 50] {
        let settings = Settings::of((1..=count).map(NodeId)).build().expect("valid");
        let world = World::new(WorldSettings::new(Kind::Raft, settings, 1));
        let (events, simulated, took) = run(world);
        let rate = events as f64 / took.as_secs_f64() / 1e6;
        let faster = simulated.as_secs_f64() / took.as_secs_f64();
        println!("{count} nodes: {events} events in {took:.2?}: {rate:.2} M events/s, {faster:.0} times faster than real time");
    }
}

/// A crash every ten simulated seconds, and a restart five seconds later.
fn run<O: Observer>(mut world: World<O>) -> (u64, Duration, Duration) {
    let started = Instant::now();
    let mut round = 0;
    while world.meter().events() < 2_000_000 {
        let node = world.leader().unwrap_or(NodeId(1 + round % 3));
        world.inject(Fault::Crash(node));
        world.run_for(Duration::from_secs(5));
        world.inject(Fault::Restart(node));
        world.run_for(Duration::from_secs(5));
        round += 1;
    }
    (world.meter().events(), world.now() - Moment::ZERO, started.elapsed())
}
