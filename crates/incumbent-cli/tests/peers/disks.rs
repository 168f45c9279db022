//! Disks that hang, fill up and fail under a node while its network is fine (C10, C46, C47): each node has a file system of its own (see `apart::disk`).

use crate::apart::apart;
use crate::apart::disk::Disk;
use crate::world::{Group, World, nanos, now};

/// Much more than a node writes in a test.
const DISK_BYTES: u64 = 16 << 20;

/// A group whose nodes have a disk each, and one of which leads.
fn on_disks(group: Group) -> (World, Vec<Disk>) {
    let mut world = group.at_rest();
    let under = |id| Disk::new(world.data(id), world.path(&format!("disk-{id}")), DISK_BYTES);
    let disks = world.ids().into_iter().map(under).collect();
    world.start_all();
    world.agreed();
    (world, disks)
}

fn of(disks: &[Disk], id: u32) -> &Disk {
    &disks[id as usize - 1]
}

#[test]
fn c10_a_leader_whose_disk_hangs_is_replaced_though_its_network_is_fine() {
    apart(|| {
        let (mut world, disks) = on_disks(Group::of(3));
        let (leader, term) = world.leader();
        let hanging = of(&disks, leader).hang();
        let (next, later) = world.leader_after(term);
        assert_ne!(next, leader);
        assert!(world.scene.left_office(leader, term).is_some(), "{}", world.told());
        drop(hanging);
        world.heal();
        world.settles();
        assert!(world.scene.term() >= later);
    });
}

#[test]
fn c10_a_follower_whose_disk_hangs_costs_nothing() {
    apart(|| {
        let (mut world, disks) = on_disks(Group::calm(3));
        let (leader, term) = world.leader();
        let follower = world.ids().into_iter().find(|it| *it != leader).unwrap();
        let hanging = of(&disks, follower).hang();
        world.watch(world.patience(3));
        drop(hanging);
        world.heal();
        assert_eq!(world.settles(), leader);
        assert_eq!(world.scene.term(), term, "{}", world.told());
    });
}

#[test]
fn c47_a_full_disk_costs_no_vote_and_no_office() {
    apart(|| {
        let (mut world, disks) = on_disks(Group::of(3));
        disks.iter().for_each(Disk::fill);
        let (leader, term) = world.leader();
        world.kill(leader);
        let (next, later) = world.leader_after(term);
        assert_ne!(next, leader);
        assert!(later > term);
        world.heal();
        world.settles();
    });
}

#[test]
fn c46_a_node_whose_disk_fails_ends_and_says_so_and_the_others_elect() {
    apart(|| {
        let (mut world, disks) = on_disks(Group::of(3));
        let (leader, term) = world.leader();
        of(&disks, leader).fail();
        let began = now();
        while world.process(leader).process().runs() {
            assert!(now() - began < nanos(world.longest()), "it still runs\n{}", world.told());
            world.watch(world.patience(1) / 4);
        }
        let log = world.log(leader);
        world.has_ended(leader);
        assert!(log.contains("check the disk, then start it again"), "{log}");
        let (next, _) = world.leader_after(term);
        assert_ne!(next, leader);
        world.judge();
    });
}
