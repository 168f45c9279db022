//! Networks and machines that are only bad: loss, delay, resets, no time to compute (C12, C25, C26, C29).

use std::process::Command;
use std::time::Duration;

use incumbent_testbed::{Contender, Way};

use crate::apart::apart;
use crate::world::Group;

#[test]
fn c25_with_loss_and_delay_there_are_never_two_leaders_and_one_when_it_is_over() {
    apart(|| {
        let mut world = Group::of(3).relayed().agreed();
        let lossy = Way::Lossy { percent: 30, again: world.patience(1) / 3 };
        for relay in world.relays() {
            relay.requests(lossy);
            relay.replies(lossy);
        }
        world.watch(world.patience(10));
        world.judge();
        world.heal();
        world.settles();
    });
}

#[test]
fn c26_a_delay_that_is_short_beside_the_patience_costs_nothing() {
    apart(|| {
        let mut world = Group::calm(3).relayed().with("--reply", "120ms").agreed();
        let before = world.leader();
        for relay in world.relays() {
            relay.requests(Way::Delay(Duration::from_millis(25)));
            relay.replies(Way::Delay(Duration::from_millis(25)));
        }
        world.watch(world.patience(3));
        world.heal();
        world.settles();
        assert_eq!((world.leader(), world.scene.term()), (before, before.1), "{}", world.told());
    });
}

/// Even if a refused connection counts as proof of death: here new ones are let in.
#[test]
fn c29_resets_of_healthy_connections_depose_nobody() {
    apart(|| {
        let mut world = Group::calm(3).relayed().with("--death", "refused").agreed();
        let before = world.leader();
        for _ in 0..10 {
            for relay in world.relays() {
                relay.reset();
            }
            world.watch(world.patience(1) / 2);
        }
        assert_eq!((world.leader(), world.scene.term()), (before, before.1), "{}", world.told());
        world.heal();
        assert_eq!(world.settles(), before.0);
        assert_eq!(world.scene.leaderships().len(), 1, "{}", world.told());
    });
}

#[test]
fn c12_a_machine_with_no_time_to_spare_needs_no_elections() {
    apart(|| {
        let mut world = Group::calm(3).agreed();
        let before = world.leader();
        let cores = std::thread::available_parallelism().unwrap().get();
        let mut busy = Command::new("sh");
        busy.args(["-c", "while :; do :; done"]);
        let load: Vec<Contender> = (0..cores * 2).map(|_| Contender::start(&busy).unwrap()).collect();
        world.watch(world.patience(4));
        assert_eq!((world.leader(), world.scene.term()), (before, before.1), "{}", world.told());
        drop(load);
        world.heal();
        world.settles();
    });
}
