//! Real stores behind the replicas, and clients that use them: whatever fails, no session ends early, no request happens twice, and nobody who watches misses anything.
//!
//! `INCUMBENT_SEED=17 cargo test -p incumbent-service --test replica one_town` shows the end of what happened in one world. More worlds with `INCUMBENT_SEEDS`.

use incumbent_service::replica::{ReadSettings, Settings};
use incumbent_store::query::Query;

use super::world::clocks::Clocks;
use super::world::faults::Fault;
use super::world::machine::Replicated;
use super::world::town::client::TTL_MS_MAX;
use super::world::town::{Tally, Town};
use super::world::{Event, MILLISECOND, World};
use super::{STORM, judge, recover, settings, sweep, timeout};

const CLIENTS: usize = 6;

/// The least a client may be late with what it asks for, while all is well: letters of before may still be on their way.
const STRAGGLERS: u64 = 400 * MILLISECOND;

/// How late something may end by time when nothing fails (L7).
fn lateness_max() -> u64 {
    timeout() + 50 * MILLISECOND
}

fn live(seed: u64, record: bool) -> World {
    let reads = if seed.is_multiple_of(3) { ReadSettings::Lease { drift_ppm: 500 } } else { ReadSettings::Quorum };
    live_on(Clocks::WithinBound, reads, seed, record)
}

/// Clocks run as they like, so nobody reads by a lease.
fn live_beyond_the_bound(seed: u64, record: bool) -> World {
    live_on(Clocks::BeyondBound, ReadSettings::Quorum, seed, record)
}

fn live_on(clocks: Clocks, reads: ReadSettings, seed: u64, record: bool) -> World {
    let (voters, spares) = [(3, 0), (3, 2), (5, 0), (1, 2)][(seed % 4) as usize];
    let mut world = World::replicating(Replicated::Store, clocks, seed, voters, spares, Settings { reads, ..settings() });
    world.record = record.then(Vec::new);
    world.busy = if seed.is_multiple_of(2) { 0 } else { 300_000 };
    world.settle(CLIENTS);
    world.schedule(300 * MILLISECOND, Event::Fault(Fault::Any));
    world.run(STORM);
    recover(&mut world);
    calm_down(&mut world);
    world
}

fn town(world: &mut World) -> &mut Town {
    world.town.as_mut().expect("people live here")
}

/// Nothing fails any more, and two clients die: what they had is others' in time, all stores are equal, and all who watch know all.
fn calm_down(world: &mut World) {
    if world.wrong.is_some() {
        return;
    }
    town(world).condition.calms_down(lateness_max());
    town(world).kill(0);
    town(world).kill(1);
    let longest = TTL_MS_MAX * MILLISECOND;
    // On clocks that are slow by as much as clocks may be, and a ttl that is longer by as much.
    let slower = match world.clocks {
        Clocks::WithinBound => longest / 500,
        Clocks::BeyondBound => longest / 5,
    };
    world.run(world.now + STRAGGLERS + longest + slower + lateness_max());
    let bereaved = town(world).bereaved();
    let members = world.oracle.roll().everyone();
    let stores = world.nodes.iter().filter(|it| members.contains(&it.id)).filter_map(|it| it.machine.store.as_ref());
    let left = stores.flat_map(|store| bereaved.iter().filter(|it| store.query(&Query::Session(**it)).is_ok())).next().copied();
    if let Some(left) = left {
        world.wrong.get_or_insert(format!("L7: session {left} lives, and its owner is long dead"));
    }
    world.silence_clients();
    let told = world.until(8 * timeout(), |it| it.town.as_ref().is_some_and(|it| it.all_told()));
    if !told {
        world.wrong.get_or_insert("W5: somebody watches and is not told what has happened".to_owned());
    }
}

#[test]
fn whatever_fails_no_session_ends_early_no_request_happens_twice_and_no_watcher_misses_anything() {
    let mut sum = Tally::default();
    let mut installs = 0;
    sweep(120, live, |world| {
        sum.add(world);
        installs += world.counts.installs;
    });
    // Or all of this would have shown nothing.
    for (what, count) in sum.each().into_iter().chain([("installs", installs)]) {
        assert!(count > 0, "{what}: never: {sum:?}");
    }
    eprintln!("{sum:?}; {installs} snapshots installed");
}

/// C35: L3 and L4 rest on clocks; tokens, seats, fences, the log and what is told of it do not.
#[test]
fn on_clocks_beyond_their_bound_sessions_may_end_early_and_tokens_fences_and_the_log_hold() {
    let mut sum = Tally::default();
    sweep(40, live_beyond_the_bound, |world| sum.add(world));
    // Or the oracles that are in force had nothing to do.
    for (what, count) in sum.each().into_iter().chain([("beyond the bound", sum.outrun)]) {
        assert!(count > 0, "{what}: never: {sum:?}");
    }
    eprintln!("{sum:?}");
}

#[test]
fn the_same_seed_is_the_same_town() {
    for seed in 0..3 {
        let (one, other) = (live(seed, false), live(seed, false));
        assert_eq!((one.trace, one.counts.events), (other.trace, other.counts.events), "seed {seed}");
    }
}

#[test]
fn one_town() {
    let asked = std::env::var("INCUMBENT_SEED").ok().and_then(|it| it.parse().ok());
    let world = live(asked.unwrap_or(0), asked.is_some());
    eprintln!("{}\n{:?}\n{:?}", world.record.unwrap_or_default().join("\n"), world.counts, world.wrong);
    assert_eq!(world.wrong, None);
    assert!(judge(0, live).is_ok());
}
