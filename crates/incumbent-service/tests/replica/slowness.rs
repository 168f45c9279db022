//! Slow disks and starved processors: who makes way, and who stays.

use std::time::Duration;

use incumbent_service::replica::Input;

use super::scenarios::{id, led, others, sound};
use super::timeout;
use super::world::{MILLISECOND, World};

#[test]
fn c10_a_leader_whose_disk_hangs_gives_the_leadership_away() {
    for seed in 0..30 {
        let (mut world, leader, _) = led(seed, 3, 0);
        world.node(leader).disk_hangs_until = world.now + 20 * timeout();
        let hung = world.now;
        let decided = world.oracle.highest();
        let taken = |it: &World| it.leader().is_some_and(|(now, _)| now != leader) && it.oracle.highest() > decided + 3;
        assert!(world.until(3 * timeout(), taken), "seed {seed}: {:?}", world.leader());
        assert!(world.now - hung < 2 * timeout(), "seed {seed}: it took {} ms", (world.now - hung) / MILLISECOND);
        sound(&world);
    }
}

/// Votes take longer than the shortest election timeout: each who stood would be overtaken by the next.
#[test]
fn c52_disks_that_are_slower_than_an_election_cost_time_and_not_the_leader() {
    for seed in 0..20 {
        let (mut world, leader, _) = led(seed, 3 + 2 * (seed % 2) as u32, 0);
        for node in &mut world.nodes {
            node.sync_takes = Duration::from_millis(100);
        }
        world.kill_silently(leader);
        let decided = world.oracle.highest();
        assert!(world.until(25 * timeout(), |it| it.oracle.highest() > decided + 1), "seed {seed}: term {:?}", world.term());
        sound(&world);
    }
}

/// Each disk is slower than a leader's may be: whoever leads is no worse than the others, and a slow service is better than none.
#[test]
fn c52_where_all_disks_are_slow_a_leader_stays_and_decides() {
    for seed in 0..20 {
        let (mut world, ..) = led(seed, 3 + 2 * (seed % 2) as u32, 0);
        for node in &mut world.nodes {
            node.sync_takes = Duration::from_millis(400);
        }
        // Until all know of each other that they are slow.
        world.run(world.now + 20_000 * MILLISECOND);
        let (led, decided) = (world.oracle.elections(), world.oracle.highest());
        let leader = world.leader();
        world.run(world.now + 20_000 * MILLISECOND);
        assert_eq!((world.oracle.elections(), world.leader()), (led, leader), "seed {seed}: {:?}", world.counts);
        assert!(world.oracle.highest() >= decided + 20, "seed {seed}: {} decided", world.oracle.highest() - decided);
        // It dies: all others are slow, and one of them stands all the same.
        world.kill_silently(leader.map_or(id(0), |it| it.0));
        let decided = world.oracle.highest();
        let found = world.until(300 * timeout(), |it| it.oracle.highest() > decided + 1);
        assert!(found, "seed {seed}: term {:?}", world.term());
        sound(&world);
    }
}

/// Its disk answers, and does so later than the others'.
#[test]
fn c52_a_slow_disk_among_quick_ones_makes_way_and_stays_away() {
    for seed in 0..20 {
        let (mut world, leader, _) = led(seed, 3, 0);
        world.node(leader).sync_takes = Duration::from_millis(400);
        let taken = |it: &World| it.leader().is_some_and(|(now, _)| now != leader);
        assert!(world.until(3 * timeout(), taken), "seed {seed}: it still leads");
        let next = world.leader();
        world.run(world.now + 50 * timeout());
        assert_eq!(world.leader(), next, "seed {seed}");
        sound(&world);
    }
}

#[test]
fn a_transfer_that_failed_long_ago_does_not_keep_a_leader_from_trying_again() {
    for seed in 0..20 {
        let (mut world, leader, _) = led(seed, 3, 0);
        let away = others(&world, leader)[0];
        for (from, to) in [(leader, away), (away, leader)] {
            world.cut(from, to);
        }
        world.step(leader, Input::Transfer { to: Some(away) });
        world.run(world.now + 10 * timeout());
        assert_eq!(world.leader().map(|it| it.0), Some(leader), "seed {seed}");
        world.node(leader).sync_takes = Duration::from_millis(400);
        let mut without = 0;
        let taken = |it: &World| it.leader().is_some_and(|(now, _)| now != leader);
        let patience = world.now + 20 * timeout();
        while !taken(&world) && world.now < patience {
            world.run(world.now + MILLISECOND);
            without += if world.leader().is_none() { MILLISECOND } else { 0 };
        }
        assert!(taken(&world), "seed {seed}: it still leads");
        assert!(without < timeout() / 2, "seed {seed}: it stopped before another could lead");
        sound(&world);
    }
}

/// One whose disk does not answer at all does not lead for the reason that the others are slow, too.
#[test]
fn c52_the_slowest_of_slow_disks_makes_way() {
    for seed in 0..20 {
        let (mut world, leader, _) = led(seed, 3, 0);
        for node in &mut world.nodes {
            node.sync_takes = Duration::from_millis(200);
        }
        world.node(leader).disk_hangs_until = world.now + 300 * timeout();
        let taken = |it: &World| it.leader().is_some_and(|(now, _)| now != leader);
        assert!(world.until(40 * timeout(), taken), "seed {seed}: it still leads");
        let decided = world.oracle.highest();
        assert!(world.until(40 * timeout(), |it| it.oracle.highest() > decided + 1), "seed {seed}: nothing is decided");
        sound(&world);
    }
}

#[test]
fn c12_a_leader_that_is_always_woken_late_gives_the_leadership_away() {
    let (mut world, leader, _) = led(5, 3, 0);
    let mut rounds = 0;
    while world.leader().is_some_and(|(now, _)| now == leader) && rounds < 40 {
        let until = world.now + 90 * MILLISECOND;
        world.node(leader).paused_until = until;
        world.run(until + 2 * MILLISECOND);
        rounds += 1;
    }
    assert!(rounds < 12, "it still leads");
    sound(&world);
}

/// A machine that is starved of processors, with all nodes on it.
#[test]
fn c12_where_all_are_woken_late_the_leader_stays() {
    for seed in 0..20 {
        let (mut world, ..) = led(seed, 3 + 2 * (seed % 2) as u32, 0);
        let late = |world: &mut World, rounds: u32| {
            for _ in 0..rounds {
                let until = world.now + 90 * MILLISECOND;
                for node in &mut world.nodes {
                    node.paused_until = until;
                }
                world.run(until + 2 * MILLISECOND);
            }
        };
        // Until all know of each other that they are late.
        late(&mut world, 60);
        let (led, leader, decided) = (world.oracle.elections(), world.leader(), world.oracle.highest());
        late(&mut world, 200);
        assert_eq!((world.oracle.elections(), world.leader()), (led, leader), "seed {seed}: {:?}", world.counts);
        assert!(
            leader.is_some() && world.oracle.highest() >= decided + 20,
            "seed {seed}: {} decided",
            world.oracle.highest() - decided
        );
        sound(&world);
    }
}

#[test]
fn c12_a_follower_that_slept_does_not_blame_the_leader() {
    for seed in 0..10 {
        let (mut world, leader, term) = led(seed, 3, 0);
        let roles = world.counts.roles;
        for follower in others(&world, leader) {
            let until = world.now + 300 * MILLISECOND;
            world.node(follower).paused_until = until;
            world.run(until + 50 * MILLISECOND);
        }
        assert_eq!((world.leader(), world.counts.roles), (Some((leader, term)), roles), "seed {seed}");
        sound(&world);
    }
}
