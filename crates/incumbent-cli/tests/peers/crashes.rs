//! Processes that die, stand still, end in order and come back (C01, C02, C03, C05, C06, C13).

use std::time::Duration;

use incumbent_protocol::machine::Kind;

use crate::apart::apart;
use crate::world::{Group, World, nanos, now};

/// A leader is killed: another leads in a later term, and all agree when the first is back.
#[track_caller]
fn a_killed_leader_is_replaced(mut world: World) {
    let (leader, term) = world.leader();
    world.kill(leader);
    let (next, _) = world.leader_after(term);
    assert_ne!(next, leader);
    world.heal();
    let greatest = world.group.count;
    match world.group.kind {
        // Not before the other has served its time.
        Kind::Bully => world.until("the greatest id leads", |scene| scene.leaders().iter().any(|it| it.0 == greatest)),
        Kind::Raft | Kind::Ring | Kind::ChangRoberts => {}
    }
    world.settles();
}

#[test]
fn c01_a_killed_leader_is_replaced_by_one_of_three_and_of_five() {
    apart(|| {
        a_killed_leader_is_replaced(Group::of(3).agreed());
        a_killed_leader_is_replaced(Group::of(5).agreed());
    });
}

#[test]
fn c01_a_killed_leader_is_replaced_by_every_protocol() {
    apart(|| {
        for kind in [Kind::Bully, Kind::Ring, Kind::ChangRoberts] {
            a_killed_leader_is_replaced(Group::of(3).kind(kind).agreed());
        }
    });
}

#[test]
fn c01_a_death_that_is_proven_ends_the_lease_and_never_makes_two_leaders() {
    apart(|| {
        let mut world = Group::calm(3).with("--death", "refused").agreed();
        let (leader, term) = world.leader();
        let killed = now();
        world.kill(leader);
        let _ = world.leader_after(term);
        let (_, _, since) = *world.scene.leaderships().last().unwrap();
        // By silence it takes a patience at least.
        assert!(since - killed < nanos(world.patience(1)) / 2, "{:?}", Duration::from_nanos(since - killed));
        world.heal();
        world.settles();
    });
}

#[test]
fn c02_a_leader_that_is_told_to_end_hands_over_first() {
    apart(|| {
        let mut world = Group::calm(3).agreed();
        // All lines stand, and all who follow have said so.
        world.watch(world.patience(1));
        let (leader, term) = world.leader();
        world.stop(leader);
        let (next, _) = world.leader_after(term);
        assert_ne!(next, leader);
        let left = world.scene.left_office(leader, term).expect("it left in order");
        let (_, _, since) = *world.scene.leaderships().last().unwrap();
        let vacant = Duration::from_nanos(since - left);
        // Two syncs and three messages, and nobody's lease is waited for.
        assert!(vacant < world.patience(1) / 4, "nobody led for {vacant:?}\n{}", world.scene.around(left, vacant));
        assert_eq!(world.scene.leaderships().len(), 2, "{}", world.told());
        world.heal();
        world.settles();
    });
}

/// A leader stands still across its lease, another leads, and the first wakes up: it never acts on what it held.
#[track_caller]
fn a_leader_pauses(mut world: World) {
    let (leader, term) = world.leader();
    world.pause(leader);
    let (next, later) = world.leader_after(term);
    assert_ne!(next, leader);
    world.resume(leader);
    world.until("the first has noticed", |scene| scene.left_office(leader, term).is_some());
    assert!(world.leader().1 >= later);
    world.heal();
    world.settles();
}

#[test]
fn c03_c13_a_leader_that_stands_still_across_its_lease_is_out_of_office_when_it_wakes() {
    apart(|| a_leader_pauses(Group::of(3).agreed()));
}

#[test]
fn c03_c13_the_same_with_every_protocol() {
    apart(|| {
        for kind in [Kind::Bully, Kind::Ring, Kind::ChangRoberts] {
            a_leader_pauses(Group::of(3).kind(kind).agreed());
        }
    });
}

#[test]
fn c03_a_follower_that_stands_still_costs_nothing() {
    apart(|| {
        let mut world = Group::calm(3).agreed();
        let (leader, term) = world.leader();
        let follower = world.ids().into_iter().find(|it| *it != leader).unwrap();
        world.pause(follower);
        world.watch(world.patience(3));
        world.heal();
        assert_eq!(world.settles(), leader);
        assert_eq!(world.scene.term(), term, "{}", world.told());
    });
}

#[test]
fn c05_two_are_killed_and_then_the_new_leader_as_soon_as_it_leads() {
    apart(|| {
        let mut world = Group::of(5).agreed();
        let (leader, term) = world.leader();
        let other = world.ids().into_iter().find(|it| *it != leader).unwrap();
        world.kill(leader);
        world.kill(other);
        let (next, later) = world.leader_after(term);
        world.kill(next);
        world.watch(world.patience(3));
        assert_eq!(world.look().leaders(), [], "two of five are no majority");
        world.start(leader);
        let (_, last) = world.leader_after(later);
        assert!(last > later);
        world.heal();
        world.settles();
    });
}

#[test]
fn c06_all_are_killed_and_come_back_in_every_order_and_tokens_rise() {
    apart(|| {
        let mut world = Group::of(3).agreed();
        for order in [[1, 2, 3], [3, 1, 2], [2, 3, 1], [3, 2, 1]] {
            let (_, term) = world.leader();
            for id in order {
                world.kill(id);
            }
            world.start(order[0]);
            world.start(order[1]);
            let (_, later) = world.leader_after(term);
            assert!(later > term);
            world.start(order[2]);
            world.agreed();
        }
        world.heal();
        world.settles();
    });
}
