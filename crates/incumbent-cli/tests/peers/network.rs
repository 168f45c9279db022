//! Networks that split, lose a way, or keep a shape in which few reach each other (C16–C20, C22, C24), and the healing of them.

use incumbent_protocol::machine::Kind;

use crate::apart::apart;
use crate::world::{Group, World};

/// The leader is in the minority: that elects nobody, the majority does, and all agree when it is over.
#[track_caller]
fn the_majority_elects_and_the_minority_does_not(mut world: World) {
    let (leader, term) = world.leader();
    let mut others = world.ids();
    others.retain(|it| *it != leader);
    let (minority, majority) = ([leader, others[0]], others[1..].to_vec());
    world.partition(&[&minority, &majority]);
    world.until("the first has noticed", |scene| scene.left_office(leader, term).is_some());
    world.agreed_among(&majority);
    world.watch(world.patience(2));
    let leaders = world.look().leaders();
    assert!(leaders.iter().all(|(it, _)| majority.contains(it)), "{leaders:?}\n{}", world.told());
    world.heal();
    world.settles();
}

#[test]
fn c16_c33_the_majority_of_a_split_group_elects_and_the_minority_does_not() {
    apart(|| the_majority_elects_and_the_minority_does_not(Group::of(5).agreed()));
}

#[test]
fn c16_c33_the_same_with_bully() {
    apart(|| the_majority_elects_and_the_minority_does_not(Group::of(5).kind(Kind::Bully).agreed()));
}

#[test]
fn c16_c33_the_same_with_the_rings() {
    apart(|| {
        the_majority_elects_and_the_minority_does_not(Group::of(5).kind(Kind::Ring).agreed());
        the_majority_elects_and_the_minority_does_not(Group::of(5).kind(Kind::ChangRoberts).agreed());
    });
}

#[test]
fn c16_a_leader_whose_cable_is_pulled_is_replaced_and_does_not_disturb_when_it_is_back() {
    apart(|| {
        let mut world = Group::calm(3).agreed();
        let (leader, term) = world.leader();
        world.network.unplug(leader);
        let (next, later) = world.leader_after(term);
        assert_ne!(next, leader);
        world.until("the first has noticed", |scene| scene.left_office(leader, term).is_some());
        world.heal();
        world.settles();
        assert_eq!(world.leader(), (next, later), "{}", world.told());
    });
}

/// Links fail, but the leader is connected to a majority, if through others: it stays, no term is burned, and each node answers who leads.
#[track_caller]
fn nothing_is_lost(mut world: World, cut: impl FnOnce(&World, u32, u32)) {
    // All lines stand, and all who follow have said so.
    world.watch(world.patience(1));
    let (leader, term) = world.leader();
    let follower = world.ids().into_iter().find(|it| *it != leader).unwrap();
    cut(&world, leader, follower);
    world.watch(world.patience(3));
    for id in world.ids() {
        world.answers(id, leader);
    }
    assert_eq!(world.leader(), (leader, term), "{}", world.told());
    assert_eq!(world.scene.named(follower), Some(leader), "{}", world.told());
    world.heal();
    world.settles();
    assert_eq!(world.leader().0, leader, "{}", world.told());
    assert_eq!(world.scene.term(), term, "a term was burned\n{}", world.told());
    assert_eq!(world.scene.leaderships().len(), 1, "{}", world.told());
}

#[test]
fn c17_a_link_between_leader_and_follower_is_cut_and_nothing_is_lost() {
    apart(|| nothing_is_lost(Group::calm(3).agreed(), |world, leader, follower| world.network.cut(leader, follower)));
}

#[test]
fn c18_the_way_from_leader_to_follower_is_cut_and_nothing_is_lost() {
    apart(|| nothing_is_lost(Group::calm(3).agreed(), |world, leader, follower| world.network.cut_one_way(leader, follower)));
}

#[test]
fn c18_the_way_from_one_follower_to_the_leader_is_cut_and_nothing_is_lost() {
    apart(|| nothing_is_lost(Group::calm(3).agreed(), |world, leader, follower| world.network.cut_one_way(follower, leader)));
}

#[test]
fn c19_a_leader_that_hears_nobody_steps_down_and_another_leads() {
    apart(|| {
        let mut world = Group::of(3).agreed();
        let (leader, term) = world.leader();
        for other in world.ids().into_iter().filter(|it| *it != leader) {
            world.network.cut_one_way(other, leader);
        }
        let (next, _) = world.leader_after(term);
        assert_ne!(next, leader);
        world.watch(world.patience(2));
        assert_eq!(world.look().leaders().len(), 1, "{}", world.told());
        world.heal();
        world.settles();
    });
}

/// After the change of shape somebody leads and stays, though few reach each other.
#[track_caller]
fn somebody_leads_and_stays(mut world: World, linked: impl Fn(u32, u32) -> bool) {
    let before = world.look().leaderships().len();
    world.shape(&linked);
    world.watch(world.patience(4));
    let (one, term) = world.leader();
    world.watch(world.patience(3));
    assert_eq!(world.leader(), (one, term), "no ping-pong\n{}", world.told());
    // However far it is from the one who leads (E1).
    for id in world.ids() {
        world.answers(id, one);
    }
    assert!(world.scene.leaderships().len() - before <= 2, "{}", world.told());
    world.heal();
    world.settles();
}

#[test]
fn c20_everyone_reaches_only_a_hub_that_does_not_lead() {
    apart(|| {
        let mut world = Group::calm(5).agreed();
        let (leader, _) = world.leader();
        let hub = world.ids().into_iter().find(|it| *it != leader).unwrap();
        somebody_leads_and_stays(world, |a, b| a == hub || b == hub);
    });
}

#[test]
fn c22_five_in_a_chain() {
    apart(|| somebody_leads_and_stays(Group::calm(5).agreed(), |a, b| a.abs_diff(b) == 1));
}

#[test]
fn c24_a_link_that_flaps_burns_no_terms() {
    apart(|| {
        let mut world = Group::calm(3).agreed();
        let (leader, term) = world.leader();
        let follower = world.ids().into_iter().find(|it| *it != leader).unwrap();
        for tenths in [3, 10, 5] {
            world.network.cut(leader, follower);
            world.watch(world.group.patience * tenths / 10);
            world.network.mend(leader, follower);
            world.watch(world.group.patience * tenths / 10);
        }
        assert_eq!((world.leader(), world.scene.term()), ((leader, term), term), "{}", world.told());
        world.heal();
        world.settles();
    });
}

#[test]
fn c24_a_leader_that_comes_and_goes_does_not_take_the_office_with_it() {
    apart(|| {
        let mut world = Group::of(3).agreed();
        let (leader, term) = world.leader();
        for _ in 0..3 {
            world.network.unplug(leader);
            world.watch(world.patience(3));
            world.network.plug_in(leader);
            world.watch(world.patience(1));
        }
        assert!(world.scene.term() <= term + 3, "{}", world.told());
        world.heal();
        world.settles();
    });
}

#[test]
fn unguarded_nodes_lead_in_every_part_with_tokens_that_differ_and_it_is_said_first() {
    apart(|| {
        let mut world = Group::of(3).kind(Kind::Bully).unguarded().agreed();
        let (leader, term) = world.leader();
        let others: Vec<u32> = world.ids().into_iter().filter(|it| *it != leader).collect();
        world.partition(&[&[leader], &others]);
        world.until("two lead", |scene| scene.leaders().len() > 1);
        let leaders = world.look().leaders();
        assert!(leaders.contains(&(leader, term)), "who is cut off does not know it: {leaders:?}");
        let mut terms: Vec<u64> = world.scene.leaderships().into_iter().map(|it| it.1).collect();
        terms.sort_unstable();
        let before = terms.len();
        terms.dedup();
        assert_eq!(terms.len(), before, "a token was used twice: {:?}", world.scene.leaderships());
        world.heal();
        world.settles();

        let help = std::process::Command::new(env!("CARGO_BIN_EXE_incumbent")).args(["peer", "--help"]).output().unwrap();
        let help: Vec<String> = String::from_utf8(help.stdout).unwrap().split_whitespace().map(str::to_owned).collect();
        assert!(help.join(" ").contains("off, with which a network that splits has several leaders"), "{help:?}");
    });
}
