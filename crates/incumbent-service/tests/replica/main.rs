//! Replicas in a world made from a seed: whatever fails, nothing that was decided is lost, and what was healed decides again.
//!
//! `INCUMBENT_SEED=17 cargo test -p incumbent-service --test replica one_seed` shows the end of what happened in one world.

#![expect(clippy::print_stderr, reason = "figures of a run, and its trace, are for whoever asked for them")]

mod scenarios;
mod slowness;
mod stores;
mod strangers;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use incumbent_service::replica::{ReadSettings, Settings};

use self::world::clocks::Clocks;
use self::world::faults::Fault;
use self::world::{Event, MILLISECOND, World, faults};

/// Small limits, so that snapshots are taken, sent and installed all the time.
fn settings() -> Settings {
    let patience = std::time::Duration::from_millis(800);
    Settings { snapshot_entries: 40, entries_kept: 10, piece_bytes: 700, pieces_in_flight: 2, patience, ..Settings::lan() }
}

/// The longest election timeout.
fn timeout() -> u64 {
    2 * settings().election_timeout().as_nanos() as u64
}

/// How long faults rage.
const STORM: u64 = 2_000 * MILLISECOND;

fn live(seed: u64, record: bool) -> World {
    let (voters, spares) = [(3, 0), (3, 2), (5, 0), (1, 2)][(seed % 4) as usize];
    // Every third world believes in leases; its clocks drift as much as it allows.
    let reads = if seed.is_multiple_of(3) { ReadSettings::Lease { drift_ppm: 500 } } else { ReadSettings::Quorum };
    let mut world = World::new(seed, voters, spares, Settings { reads, ..settings() });
    world.record = record.then(Vec::new);
    world.busy = if seed.is_multiple_of(2) { 0 } else { 300_000 };
    world.schedule(0, Event::Operate);
    world.schedule(300 * MILLISECOND, Event::Fault(Fault::Any));
    world.run(STORM);
    recover(&mut world);
    world
}

/// Faults stop: soon somebody leads and decides (LV1), all members know it, and nobody disturbs the leader (LV3).
fn recover(world: &mut World) {
    world.silence_faults();
    faults::heal(world);
    let healed = world.now;
    let decided = world.oracle.highest();
    // Who was long without a leader waits longer, and by a slow clock longer still.
    let waits = match world.clocks {
        Clocks::WithinBound => 6,
        Clocks::BeyondBound => 9,
    };
    let limit = healed + waits * timeout();
    while world.wrong.is_none() && world.oracle.highest() <= decided && world.now < limit {
        world.run(world.now + MILLISECOND);
    }
    if world.oracle.highest() <= decided {
        world.wrong.get_or_insert(format!("LV1: nothing is decided {} ms after all was healed", (limit - healed) / MILLISECOND));
    }
    world.counts.healed_in = world.now - healed;
    world.run(world.now + 4 * timeout());
    let (term, highest) = (world.term(), world.oracle.highest());
    world.run(world.now + 4 * timeout());
    if world.term() != term {
        world.wrong.get_or_insert(format!("LV3: the term rises from {term} to {} while nothing fails", world.term()));
    }
    for id in world.oracle.roll().everyone() {
        if world.handed(id) < highest {
            world.wrong.get_or_insert(format!(
                "{id} knows entries up to {} and not {highest}, long after all was healed",
                world.handed(id)
            ));
        }
    }
}

/// Lives through one seed; if something is wrong, says what, and what happened before it.
fn judge(seed: u64, live: fn(u64, bool) -> World) -> Result<World, String> {
    let first = catch_unwind(AssertUnwindSafe(|| live(seed, false)));
    match first {
        Ok(world) if world.wrong.is_none() => Ok(world),
        Ok(_) => {
            let world = live(seed, true);
            let record = world.record.unwrap_or_default();
            let last = record.len().saturating_sub(60);
            Err(format!("seed {seed}: {}\n{}", world.wrong.unwrap_or_default(), record[last..].join("\n")))
        }
        Err(panic) => {
            let why = panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned()));
            Err(format!("seed {seed} panics: {}", why.unwrap_or_default()))
        }
    }
}

/// Lives through many seeds, on two threads. All must be well; each world is shown, and forgotten.
fn sweep(seeds: u64, live: fn(u64, bool) -> World, mut show: impl FnMut(&World) + Send) {
    let seeds: u64 = std::env::var("INCUMBENT_SEEDS").ok().and_then(|it| it.parse().ok()).unwrap_or(seeds);
    let shown = Mutex::new((&mut show, Vec::new()));
    std::thread::scope(|scope| {
        for half in 0..2 {
            let shown = &shown;
            scope.spawn(move || {
                for seed in (0..seeds).filter(|seed| seed % 2 == half) {
                    let judged = judge(seed, live);
                    let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
                    match judged {
                        Ok(world) => (shown.0)(&world),
                        Err(what) => shown.1.push(what),
                    }
                }
            });
        }
    });
    let wrong = shown.into_inner().unwrap_or_else(PoisonError::into_inner).1;
    let all: Vec<&str> = wrong.iter().filter_map(|it| it.lines().next()).collect();
    let first = wrong.first().map_or("", |it| it.as_str());
    assert!(wrong.is_empty(), "{} of {seeds} seeds:\n{}\n\n{first}", wrong.len(), all.join("\n"));
}

#[test]
fn whatever_fails_nothing_decided_is_lost_and_what_is_healed_decides_again() {
    let mut sum = world::Counts::default();
    let mut healed_in = Vec::new();
    sweep(240, live, |world| {
        healed_in.push(world.counts.healed_in / MILLISECOND);
        sum.add(world);
    });
    healed_in.sort_unstable();
    let slow = healed_in[healed_in.len() * 99 / 100];
    // Nodes that were long without a leader wait longer before they stand.
    assert!(slow * MILLISECOND <= 4 * timeout(), "LV1: one in a hundred needs {slow} ms after all was healed");
    // Or all of this would have shown nothing.
    let each = [
        sum.done,
        sum.reads,
        sum.unknown,
        sum.refused,
        sum.snapshots_taken,
        sum.installs,
        sum.crashes,
        sum.between,
        sum.changes,
        sum.joint,
    ];
    assert!(each.iter().all(|count| *count > 0), "something never happened: {sum:?}");
    assert!(sum.reads > sum.done / 2 && sum.done > sum.refused, "too little has come about: {sum:?}");
    let (half, all) = (healed_in[healed_in.len() / 2], healed_in[healed_in.len() - 1]);
    eprintln!("{sum:?}; decides {half} ms after it was healed, at most {all} ms");
}

#[test]
fn the_same_seed_is_the_same_world() {
    for seed in 0..8 {
        let (one, other) = (live(seed, false), live(seed, false));
        assert_eq!((one.trace, one.counts.events), (other.trace, other.counts.events), "seed {seed}");
    }
    assert_ne!(live(1, false).trace, live(5, false).trace);
}

#[test]
fn one_seed() {
    let asked = std::env::var("INCUMBENT_SEED").ok().and_then(|it| it.parse().ok());
    let world = live(asked.unwrap_or(0), asked.is_some());
    let record = world.record.unwrap_or_default();
    eprintln!("{}\n{:?}\n{:?}", record.join("\n"), world.counts, world.wrong);
    assert_eq!(world.wrong, None);
}
