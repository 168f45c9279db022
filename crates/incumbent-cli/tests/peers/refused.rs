//! Nodes that do not belong, or are not who they say (C30, C49, C56, C58, C59): they are refused, it is said, and the group goes on.

use std::fs;
use std::path::Path;

use crate::apart::apart;
use crate::world::{Group, World, address};

/// Waits until a node has logged this.
#[track_caller]
fn says(world: &mut World, id: u32, what: &str) {
    let log = |world: &World| world.log(id);
    let end = crate::world::now() + crate::world::nanos(world.longest());
    while !log(world).contains(what) {
        assert!(crate::world::now() < end, "node {id} does not say {what:?}, but\n{}", log(world));
        world.watch(world.patience(1) / 10);
    }
}

/// The group still has this leader in this term, after some time.
#[track_caller]
fn undisturbed(world: &mut World, before: (u32, u64)) {
    world.watch(world.group.settings().pace().patience_max);
    assert_eq!(world.leader(), before, "{}", world.told());
    assert_eq!(world.scene.term(), before.1, "a term was burned\n{}", world.told());
    world.judge();
}

/// A node that has forgotten something comes back: it is refused, and nobody counts its votes. What it records is kept from the oracles, which would rightly
/// say that it has forgotten something.
#[track_caller]
fn comes_back_in_vain(world: &mut World, id: u32, why: &str, before: (u32, u64)) {
    let trace = world.path("forgetful");
    let command = world.command(id, &[("--trace", trace.to_str().unwrap())]);
    world.start_as(id, &command);
    says(world, id, why);
    undisturbed(world, before);
    let did = fs::read_to_string(trace).unwrap();
    assert!(did.contains("contends"), "it would have: {did}");
    assert!(!did.contains("follows") && !did.contains("elected") && !did.contains("claims-vote"), "{did}");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()));
        } else {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn c30_a_node_of_another_group_or_without_the_key_at_a_members_address_is_none() {
    apart(|| {
        let mut world = Group::calm(3).at_rest();
        fs::write(world.path("other-key"), "fedcba9876543210".repeat(4)).unwrap();
        let (data, key) = (world.path("foreign"), world.path("other-key"));
        let (data, key) = (data.to_str().unwrap(), key.to_str().unwrap());
        world.start(1);
        world.start(2);
        let foreign = world.command(3, &[("--group", "another"), ("--data", data), ("--trace", "/dev/null")]);
        world.start_as(3, &foreign);
        world.agreed_among(&[1, 2]);
        let before = world.leader();
        says(&mut world, 1, "belongs to cluster");
        undisturbed(&mut world, before);
        world.kill(3);

        let stranger =
            world.command(3, &[("--key-file", key), ("--data", data), ("--trace", "/dev/null"), ("--group", "another")]);
        world.start_as(3, &stranger);
        says(&mut world, 1, "key");
        undisturbed(&mut world, before);
        world.kill(3);

        world.heal();
        assert_eq!(world.settles(), before.0, "the right one is let in");
    });
}

#[test]
fn c58_a_second_node_with_an_id_that_is_in_use_is_refused_and_so_is_its_directory() {
    apart(|| {
        let mut world = Group::calm(3).agreed();
        let before = world.leader();
        world.add_host(9, address(9));
        let peers = [world.member(9, 1), world.member(9, 3)].join(",");
        let data = world.path("second");
        let second = world.command(9, &[("--id", "2"), ("--peers", &peers), ("--data", data.to_str().unwrap())]);
        world.start_as(9, &second);
        says(&mut world, 9, "in use by another live process");
        undisturbed(&mut world, before);
        world.kill(9);

        let data = world.data(2);
        let same = world.command(9, &[("--id", "2"), ("--peers", &peers), ("--data", data.to_str().unwrap())]);
        world.start_as(9, &same);
        assert_ne!(world.process(9).wait(), Some(0));
        assert!(world.log(9).contains("is in use by another process"), "{}", world.log(9));
        undisturbed(&mut world, before);
    });
}

#[test]
fn c59_nodes_with_different_lists_make_no_second_group() {
    apart(|| {
        let mut world = Group::calm(5).at_rest();
        for id in 1..=4 {
            world.start(id);
        }
        let short: Vec<String> = [2, 3].into_iter().map(|it| world.member(5, it)).collect();
        let other = world.command(5, &[("--peers", &short.join(","))]);
        world.start_as(5, &other);
        world.agreed_among(&[1, 2, 3, 4]);
        let before = world.leader();
        undisturbed(&mut world, before);
        assert_eq!(world.scene.named(5), None, "{}", world.told());
        // Of those whom it knows that they were told of others, or of the rest that they are none: as they come.
        says(&mut world, 5, "member");
        world.kill(5);
        world.heal();
        assert_eq!(world.settles(), before.0);
    });
}

#[test]
fn c56_a_member_that_lost_its_directory_is_refused() {
    apart(|| {
        let mut world = Group::calm(3).agreed();
        // All have met it: who never did cannot know that it had another.
        world.watch(world.patience(1));
        let before = world.leader();
        let lost = world.ids().into_iter().find(|it| *it != before.0).unwrap();
        world.kill(lost);
        fs::remove_dir_all(world.data(lost)).unwrap();
        comes_back_in_vain(&mut world, lost, "another directory", before);
    });
}

#[test]
fn c49_a_directory_that_was_rolled_back_is_refused() {
    apart(|| {
        let mut world = Group::calm(3).agreed();
        // All have met it: who never did cannot know that it was further.
        world.watch(world.patience(1));
        let before = world.leader();
        let back = world.ids().into_iter().find(|it| *it != before.0).unwrap();
        world.kill(back);
        copy(&world.data(back), &world.path("copy"));
        for _ in 0..2 {
            world.start(back);
            world.agreed();
            world.kill(back);
        }
        fs::remove_dir_all(world.data(back)).unwrap();
        copy(&world.path("copy"), &world.data(back));
        comes_back_in_vain(&mut world, back, "had been seen", before);
    });
}
