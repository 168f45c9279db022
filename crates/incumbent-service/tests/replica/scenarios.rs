//! One fault at a time, and what it may cost. The numbers are those of the fault catalogue.

use std::time::Duration;

use bytes::Bytes;
use incumbent_protocol::protocol::{NodeId, Term};
use incumbent_service::replica::{Effect, Input, Place, Promise, ReadSettings, Reason, Settings, Step, Tag, promise};

use super::world::{Event, MILLISECOND, Moment, World};
use super::{settings, timeout};

pub(super) fn id(number: u32) -> NodeId {
    NodeId(number)
}

/// A cluster that has a leader, and clients that are at work.
pub(super) fn led(seed: u64, voters: u32, spares: u32) -> (World, NodeId, Term) {
    led_with(seed, voters, spares, settings())
}

pub(super) fn led_with(seed: u64, voters: u32, spares: u32, settings: Settings) -> (World, NodeId, Term) {
    let mut world = World::new(seed, voters, spares, settings);
    assert!(world.until(4 * timeout(), |it| it.leader().is_some()), "nobody leads");
    world.schedule(world.now, Event::Operate);
    world.run(world.now + 100 * MILLISECOND);
    let (leader, term) = world.leader().expect("led");
    (world, leader, term)
}

pub(super) fn sound(world: &World) {
    assert_eq!(world.wrong, None);
}

pub(super) fn others(world: &World, than: NodeId) -> Vec<NodeId> {
    world.nodes.iter().map(|it| it.id).filter(|it| *it != than).collect()
}

#[test]
fn c01_a_killed_leader_is_replaced_in_milliseconds_when_its_machine_says_so() {
    let mut spans: Vec<Moment> = Vec::new();
    for seed in 0..100 {
        let (mut world, leader, _) = led(seed, 3 + 2 * (seed % 2) as u32, 0);
        world.kill_silently(leader);
        let killed = world.now;
        for other in others(&world, leader) {
            let (life, delay) = (world.node(other).life, world.chance.below(2 * MILLISECOND));
            // Who tries to connect again and again hears it as often.
            for attempt in 0..20 {
                let at = killed + delay + attempt * MILLISECOND;
                world.schedule(at, Event::Given { node: other, life, input: Input::Refused(leader) });
            }
        }
        let decided = world.oracle.highest();
        // The first entry of the new leader, and something behind it.
        assert!(world.until(4 * timeout(), |it| it.oracle.highest() > decided + 1), "seed {seed}: nothing is decided");
        spans.push((world.now - killed) / 1_000);
        sound(&world);
    }
    spans.sort_unstable();
    let (half, most) = (spans[50], spans[98]);
    eprintln!("leader killed, first write decided: p50 {half} us, p99 {most} us");
    assert!(half <= 15_000 && most <= 60_000, "p50 {half} us, p99 {most} us");
}

#[test]
fn c29_messages_that_are_lost_prove_nothing() {
    let (mut world, leader, term) = led(1, 3, 0);
    for _ in 0..50 {
        for other in others(&world, leader) {
            world.step(other, Input::Unreachable(leader));
            world.step(leader, Input::Unreachable(other));
            // Nor does the death of somebody who does not lead.
            let third = others(&world, leader).into_iter().find(|it| *it != other).expect("three nodes");
            world.step(other, Input::Refused(third));
        }
        world.run(world.now + 5 * MILLISECOND);
    }
    assert_eq!(world.leader(), Some((leader, term)));
    sound(&world);
}

#[test]
fn c02_a_hand_over_fails_no_request() {
    for seed in 0..40 {
        let (mut world, leader, term) = led(seed, 3, 0);
        let before = (world.counts.refused, world.counts.unknown, world.counts.done);
        world.step(leader, Input::Transfer { to: None });
        let handed = world.now;
        assert!(world.until(timeout(), |it| it.leader().is_some_and(|(now, at)| now != leader && at > term)), "seed {seed}");
        assert!(world.now - handed < 20 * MILLISECOND, "seed {seed}: it took {} us", (world.now - handed) / 1_000);
        world.run(world.now + 200 * MILLISECOND);
        assert_eq!((world.counts.refused, world.counts.unknown), (before.0, before.1), "seed {seed}");
        assert!(world.counts.done > before.2 + 10);
        sound(&world);
    }
}

#[test]
fn c03_a_leader_that_stood_still_answers_nothing_from_the_past() {
    for seed in 0..30 {
        let (mut world, leader, _) = led(seed, 3, 0);
        let until = world.now + 500 * MILLISECOND + world.chance.below(500 * MILLISECOND);
        world.node(leader).paused_until = until;
        assert!(
            world.until(3 * timeout(), |it| it.leader().is_some_and(|(now, _)| now != leader)),
            "seed {seed}: nobody takes over"
        );
        world.run(until + MILLISECOND);
        for _ in 0..20 {
            world.read(leader);
            world.run(world.now + 2 * MILLISECOND);
        }
        world.run(world.now + 300 * MILLISECOND);
        sound(&world);
    }
}

fn leased() -> Settings {
    Settings { reads: ReadSettings::Lease { drift_ppm: 500 }, ..settings() }
}

/// Asks for a read and lets its round come back: from then on the leader believes that it leads.
fn renew(world: &mut World, leader: NodeId) {
    world.read(leader);
    let reads = world.counts.reads;
    assert!(world.until(20 * MILLISECOND, |it| it.counts.reads > reads), "no read is answered");
}

/// Whether `leader` still answers, on its own, what it is asked.
fn answers_alone(world: &mut World, leader: NodeId) -> bool {
    let reads = world.counts.reads;
    world.read(leader);
    world.counts.reads > reads
}

#[test]
fn a_lease_is_believed_and_ends() {
    let (mut world, leader, _) = led_with(2, 3, 0, leased());
    world.silence_clients();
    renew(&mut world, leader);
    assert!(answers_alone(&mut world, leader));
    for other in others(&world, leader) {
        world.cut(leader, other);
        world.cut(other, leader);
    }
    assert!(answers_alone(&mut world, leader));
    world.run(world.now + 100 * MILLISECOND);
    assert!(!answers_alone(&mut world, leader));
    sound(&world);
}

#[test]
fn a_lease_ends_when_a_successor_is_asked_to_stand() {
    for seed in 0..10 {
        let (mut world, leader, _) = led_with(seed, 3, 0, leased());
        renew(&mut world, leader);
        // It is heard, and hears nothing: neither that another stands nor that it is elected.
        for other in others(&world, leader) {
            world.cut(other, leader);
        }
        world.step(leader, Input::Transfer { to: None });
        let decided = world.oracle.highest();
        let taken = |it: &World| it.leader().is_some_and(|(now, _)| now != leader) && it.oracle.highest() > decided + 2;
        assert!(world.until(60 * MILLISECOND, taken), "seed {seed}: nobody takes over");
        world.read(leader);
        sound(&world);
    }
}

#[test]
fn a_node_that_has_just_started_keeps_the_promise_of_its_former_life() {
    for seed in 0..60 {
        let (mut world, leader, _) = led_with(seed, 5, 0, leased());
        world.silence_clients();
        world.run(world.now + timeout());
        let rest = others(&world, leader);
        let (restarted, loyal, apart) = (rest[0], rest[1], [rest[2], rest[3]]);
        // Two have lost the leader and ask for votes; two hear it.
        for lost in apart {
            world.cut(leader, lost);
            world.cut(lost, leader);
        }
        let wait = timeout() + world.chance.below(timeout());
        world.run(world.now + wait);
        renew(&mut world, leader);
        for near in [restarted, loyal] {
            world.cut(leader, near);
            world.cut(near, leader);
        }
        world.kill_silently(restarted);
        world.start(restarted);
        for _ in 0..30 {
            world.run(world.now + 4 * MILLISECOND);
            if let Some((next, _)) = world.leader().filter(|(now, _)| *now != leader) {
                world.write(next);
            }
            world.read(leader);
        }
        sound(&world);
    }
}

#[test]
fn c04_old_answers_confirm_no_new_read() {
    for seed in 0..20 {
        let (mut world, leader, _) = led(seed, 3, 0);
        world.letters = Some(Vec::new());
        world.run(world.now + 200 * MILLISECOND);
        let letters = world.letters.take().unwrap_or_default();
        for other in others(&world, leader) {
            world.cut(leader, other);
            world.cut(other, leader);
        }
        // The others believe that it is dead, and it is not.
        for other in others(&world, leader) {
            world.step(other, Input::Refused(leader));
        }
        let decided = world.oracle.highest();
        let taken = |it: &World| it.leader().is_some_and(|(now, _)| now != leader) && it.oracle.highest() > decided + 2;
        assert!(world.until(timeout() / 2, taken), "seed {seed}: nobody takes over");
        let leads = world.node(leader).replica.as_ref().is_some_and(|it| it.view().role.leads);
        assert!(leads, "seed {seed}: the old leader knows already");
        // It asks, and all that was ever answered to it comes again.
        for _ in 0..4 {
            world.read(leader);
            for (from, to, bytes) in &letters {
                if *to == leader {
                    world.step(leader, Input::Receive { from: *from, bytes: bytes.clone() });
                }
            }
        }
        sound(&world);
    }
}

#[test]
fn c05_two_of_five_die_at_once_and_then_the_new_leader() {
    for seed in 0..20 {
        let (mut world, leader, _) = led(seed, 5, 0);
        world.kill(leader);
        world.kill(others(&world, leader)[0]);
        assert!(world.until(4 * timeout(), |it| it.leader().is_some()), "seed {seed}: nobody leads");
        let (next, _) = world.leader().expect("found");
        world.run(world.now + 5 * MILLISECOND);
        world.kill(next);
        world.run(world.now + timeout());
        world.start(leader);
        let decided = world.oracle.highest();
        assert!(world.until(6 * timeout(), |it| it.oracle.highest() > decided + 2), "seed {seed}: nothing is decided");
        sound(&world);
    }
}

#[test]
fn c06_all_are_killed_and_come_back_in_any_order() {
    for (seed, order) in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]].into_iter().enumerate() {
        let (mut world, ..) = led(seed as u64, 3, 0);
        let (decided, answered) = (world.oracle.highest(), world.oracle.floor());
        for node in 0..3 {
            world.kill_silently(id(node));
        }
        for node in order {
            world.run(world.now + timeout());
            world.start(id(node));
        }
        assert!(world.until(6 * timeout(), |it| it.oracle.highest() > decided + 5), "{order:?}: nothing is decided");
        assert!(world.nodes.iter().any(|it| it.machine.version >= answered), "{order:?}: S6: an answered write is lost");
        sound(&world);
    }
}

#[test]
fn c07_a_crash_of_all_at_any_moment_forgets_nothing() {
    for moment in 0..150 {
        let mut world = World::new(moment % 7, 3, 0, settings());
        world.schedule(0, Event::Operate);
        world.until(4 * timeout(), |it| it.term() > Term(1));
        // Before and after each of what an election and the first entries write and send.
        world.events(moment * 2);
        for node in 0..3 {
            world.kill_silently(id(node));
        }
        for node in 0..3 {
            world.start(id(node));
        }
        let decided = world.oracle.highest();
        assert!(world.until(6 * timeout(), |it| it.oracle.highest() > decided + 2), "moment {moment}: nothing is decided");
        sound(&world);
    }
}

#[test]
fn c24_a_link_that_comes_and_goes_burns_no_term() {
    let (mut world, leader, term) = led(11, 3, 0);
    let other = others(&world, leader)[1];
    for round in 0..30 {
        world.cut(leader, other);
        world.cut(other, leader);
        world.run(world.now + (1 + round % 6) * timeout() / 4);
        world.network.cut.clear();
        world.run(world.now + (1 + round % 5) * timeout() / 4);
    }
    assert_eq!((world.leader(), world.term()), (Some((leader, term)), term));
    sound(&world);
}

#[test]
fn c23_whoever_reaches_a_quorum_is_found_in_any_graph_of_links() {
    let mut possible = 0;
    for seed in 0..120 {
        let (mut world, ..) = led(seed, 5, 0);
        world.silence_clients();
        world.run(world.now + timeout());
        // Ten links between five nodes.
        let graph = world.chance.bits();
        let pairs: Vec<(u32, u32)> = (0..5).flat_map(|a| (a + 1..5).map(move |b| (a, b))).collect();
        let mut reaches = [1; 5];
        for (bit, (a, b)) in pairs.into_iter().enumerate() {
            if graph >> bit & 1 == 0 {
                world.cut(id(a), id(b));
                world.cut(id(b), id(a));
            } else {
                reaches[a as usize] += 1;
                reaches[b as usize] += 1;
            }
        }
        let decided = world.oracle.highest();
        // Whoever still believes that it leads may decide nothing without a quorum.
        world.schedule(world.now, Event::Operate);
        let found = world.until(8 * timeout(), |it| it.oracle.highest() > decided + 2);
        let quorum = reaches.iter().any(|it| *it >= 3);
        possible += u32::from(quorum);
        assert_eq!(found, quorum, "seed {seed}, graph {:010b}: {:?}", graph & 1023, world.leader());
        sound(&world);
    }
    assert!(possible > 60 && possible < 120, "{possible}");
}

#[test]
fn c17_a_link_between_leader_and_one_follower_burns_no_term() {
    for seed in 0..20 {
        let (mut world, leader, term) = led(seed, 3, 0);
        let other = others(&world, leader)[0];
        world.cut(leader, other);
        if seed % 2 == 0 {
            world.cut(other, leader);
        }
        let decided = world.oracle.highest();
        world.run(world.now + 5 * timeout());
        assert_eq!((world.leader(), world.term()), (Some((leader, term)), term), "seed {seed}");
        assert!(world.oracle.highest() > decided + 20);
        world.network.cut.clear();
        world.run(world.now + 3 * timeout());
        assert_eq!(world.term(), term, "seed {seed}: a node that comes back disturbs");
        sound(&world);
    }
}

#[test]
fn c19_a_leader_that_hears_nobody_stops() {
    let (mut world, leader, _) = led(7, 3, 0);
    for other in others(&world, leader) {
        world.cut(other, leader);
    }
    let leads = |it: &World, id: NodeId| it.nodes[id.0 as usize].replica.as_ref().is_some_and(|it| it.view().role.leads);
    assert!(world.until(timeout() + 10 * MILLISECOND, |it| !leads(it, leader)), "it leads on");
    assert!(world.until(3 * timeout(), |it| it.leader().is_some_and(|(now, _)| now != leader)), "nobody follows it");
    sound(&world);
}

#[test]
fn c26_delays_below_a_quarter_of_the_timeout_burn_no_term() {
    let (mut world, leader, term) = led(9, 5, 0);
    world.network.delay = (Duration::from_millis(1), Duration::from_millis(24));
    world.run(world.now + 20 * timeout());
    world.network.delay = (Duration::from_micros(50), Duration::from_micros(100));
    world.run(world.now + 5 * timeout());
    assert_eq!(world.leader(), Some((leader, term)));
    sound(&world);
}

/// Makes a learner of a node, and then a voter.
fn add(world: &mut World, leader: NodeId, node: NodeId) {
    world.change(leader, vec![Step::Learner(node)]);
    let learnt = |it: &World| it.handed(node) + 5 >= it.oracle.highest() && it.oracle.roll().learners().contains(&node);
    assert!(world.until(10 * timeout(), learnt), "{node} does not learn");
    // The leader must have heard that it has.
    world.run(world.now + 50 * MILLISECOND);
    world.change(leader, vec![Step::Voter(node)]);
    assert!(world.until(timeout(), |it| it.oracle.roll().voters().contains(&node)), "{node} does not vote");
    world.run(world.now + 20 * MILLISECOND);
}

#[test]
fn members_come_by_a_snapshot_and_go_and_the_leader_goes_too() {
    for seed in 0..20 {
        let (mut world, leader, _) = led(seed, 3, 1);
        add(&mut world, leader, id(3));
        world.change(leader, vec![Step::Remove(leader)]);
        let gone = |it: &World| !it.oracle.roll().contains(leader) && it.leader().is_some_and(|(now, _)| now != leader);
        let removed = world.now;
        assert!(world.until(timeout(), gone), "seed {seed}: C54: a leader that was removed leads on, or nobody does");
        assert!(world.now - removed < 30 * MILLISECOND, "seed {seed}: it took {} us", (world.now - removed) / 1_000);
        // It does not know that it was removed, and must not disturb those that are left (C54).
        world.run(world.now + timeout());
        let term = world.term();
        world.run(world.now + 10 * timeout());
        assert_eq!(world.term(), term, "seed {seed}");
        sound(&world);
    }
}

#[test]
fn several_members_change_together_and_the_change_ends_by_itself_also_if_the_leader_dies() {
    for seed in 0..20 {
        let (mut world, leader, _) = led(seed, 3, 2);
        for spare in [3, 4] {
            world.change(leader, vec![Step::Learner(id(spare))]);
            let learns = |it: &World| it.oracle.roll().learners().contains(&id(spare));
            assert!(world.until(10 * timeout(), |it| it.handed(id(spare)) + 5 >= it.oracle.highest() && learns(it)));
            // The leader must have heard of it.
            world.run(world.now + 50 * MILLISECOND);
        }
        let leaving = others(&world, leader)[0];
        world.change(leader, vec![Step::Voter(id(3)), Step::Voter(id(4)), Step::Remove(leaving)]);
        if seed % 2 == 0 {
            assert!(world.until(timeout(), |it| it.oracle.roll().joint()), "seed {seed}: the change does not begin");
            world.kill(leader);
        }
        let ended = |it: &World| !it.oracle.roll().joint() && it.oracle.roll().voters().len() == 4;
        assert!(world.until(10 * timeout(), ended), "seed {seed}: {:?}", world.oracle.roll());
        sound(&world);
    }
}

#[test]
fn a_change_that_makes_no_sense_is_refused() {
    let (mut world, leader, _) = led(2, 3, 1);
    let ask = |world: &mut World, steps: Vec<Step>| refusal(world, leader, Input::Change { tag: Tag(u64::MAX), steps });
    assert_eq!(ask(&mut world, vec![]), Some(Reason::BadChange));
    assert_eq!(ask(&mut world, vec![Step::Remove(id(9))]), Some(Reason::BadChange));
    assert_eq!(ask(&mut world, vec![Step::Voter(leader)]), Some(Reason::BadChange));
    assert_eq!(ask(&mut world, (0..3).map(|it| Step::Remove(id(it))).collect()), Some(Reason::BadChange));
    assert_eq!(ask(&mut world, vec![Step::Voter(id(3))]), Some(Reason::Behind));
    assert_eq!(ask(&mut world, vec![Step::Learner(id(3))]), None);
    assert_eq!(ask(&mut world, vec![Step::Remove(id(3))]), Some(Reason::ChangeUnderWay));
}

#[test]
fn a_snapshot_that_is_interrupted_goes_on_where_it_was() {
    let mut interrupted = 0;
    for seed in 0..10 {
        let (mut world, leader, _) = led(seed, 3, 1);
        world.run(world.now + 400 * MILLISECOND);
        world.change(leader, vec![Step::Learner(id(3))]);
        assert!(world.until(10 * timeout(), |it| it.counts.pieces > 0), "seed {seed}: no part has come");
        world.cut(leader, id(3));
        world.run(world.now + timeout() / 2);
        if world.counts.installs == 0 {
            interrupted += 1;
        }
        let restarted = seed % 2 == 1;
        if restarted {
            world.kill_silently(id(3));
            world.start(id(3));
        }
        let kept = world.node(id(3)).disk.arriving_bytes();
        world.network.cut.clear();
        assert!(world.until(10 * timeout(), |it| it.counts.installs > 0), "seed {seed}: it is never installed");
        let begun = 1 + u64::from(restarted && kept == 0);
        assert_eq!(world.counts.first_pieces, begun, "seed {seed}: it was begun anew, with {kept} bytes there");
        sound(&world);
    }
    assert!(interrupted > 5);
}

/// A newcomer that takes its time must not keep the leader from compacting its log until nothing more can be written.
#[test]
fn a_slow_receiver_of_a_snapshot_stops_nobodys_writes_and_gets_it() {
    let short = Settings { snapshot_bytes: 8 << 10, ..settings() };
    let (mut world, leader, _) = led_with(4, 3, 1, short);
    world.silence_clients();
    world.run(world.now + 1_000 * MILLISECOND);
    world.change(leader, vec![Step::Learner(id(3))]);
    assert!(world.until(10 * timeout(), |it| it.counts.pieces > 0), "no part has come");
    let (index, refused) = (world.node(leader).disk.snapshot.index, world.counts.refused);
    let until = world.now + 1_500 * MILLISECOND;
    world.node(id(3)).paused_until = until;
    while world.now < until {
        world.write(leader);
        world.run(world.now + MILLISECOND);
    }
    assert_eq!(world.counts.refused, refused);
    assert_ne!(world.node(leader).disk.snapshot.index, index, "no newer one was taken");
    assert!(world.until(10 * timeout(), |it| it.counts.installs > 0), "it is never installed");
    assert_eq!((world.node(id(3)).disk.snapshot.index, world.counts.first_pieces), (index, 1), "the one that was under way");
    let decided = world.oracle.highest();
    assert!(world.until(10 * timeout(), |it| it.handed(id(3)) >= decided), "it does not catch up");
    sound(&world);
}

/// A disk that hangs takes nothing: what it has not kept is not acknowledged, so no more of it comes.
#[test]
fn a_receiver_whose_disk_hangs_takes_no_more_of_a_snapshot_than_may_be_under_way() {
    let settings = Settings { piece_bytes: 100, ..settings() };
    let (mut world, leader, _) = led_with(1, 3, 1, settings.clone());
    world.run(world.now + 400 * MILLISECOND);
    world.silence_clients();
    world.change(leader, vec![Step::Learner(id(3))]);
    assert!(world.until(10 * timeout(), |it| it.counts.pieces > 0), "no part has come");
    let before = world.counts.pieces;
    world.node(id(3)).disk_hangs_until = world.now + 15 * timeout();
    world.run(world.now + 10 * timeout());
    let came = world.counts.pieces - before;
    assert!(came <= settings.pieces_in_flight, "{came} parts wait for the disk");
    assert!(world.until(20 * timeout(), |it| it.counts.installs > 0), "it is never installed");
    assert!(world.counts.pieces - before > 2 * settings.pieces_in_flight, "too short to show anything");
    sound(&world);
}

/// A receiver without room says so at the first part that it cannot keep, and is asked more and more rarely.
#[test]
fn a_snapshot_that_cannot_be_kept_is_refused_at_once_and_comes_when_it_can() {
    let (mut world, leader, _) = led_with(1, 3, 1, Settings { piece_bytes: 100, ..settings() });
    world.run(world.now + 400 * MILLISECOND);
    world.silence_clients();
    world.change(leader, vec![Step::Learner(id(3))]);
    let mut refused_at = 0;
    for wait in [0, 1, 2, 4, 8] {
        let pieces = world.counts.pieces;
        assert!(world.until(10 * timeout(), |it| it.counts.pieces > pieces), "no part has come");
        let waited = world.now - refused_at;
        assert!(waited >= wait * timeout() / 2, "after {} ms it comes again", waited / MILLISECOND);
        refused_at = world.now;
        let index = world.node(leader).disk.snapshot.index;
        world.letters = Some(Vec::new());
        world.step(id(3), Input::Stored { index, whole: false });
        assert!(world.letters.take().into_iter().flatten().any(|(_, to, _)| to == leader), "nobody was told");
    }
    assert!(world.until(10 * timeout(), |it| it.counts.installs > 0), "it is never installed");
    sound(&world);
}

#[test]
fn a_single_node_leads_at_once() {
    let mut world = World::new(1, 1, 0, settings());
    world.write(id(0));
    assert!(world.until(10 * MILLISECOND, |it| it.counts.done == 1));
    sound(&world);
}

#[test]
fn a_single_node_that_was_deposed_by_a_lie_leads_again_when_its_log_is_safe() {
    let mut world = World::new(1, 1, 0, settings());
    world.write(id(0));
    world.run(20 * MILLISECOND);
    world.node(id(0)).disk_hangs_until = world.now + 4 * timeout();
    world.write(id(0));
    world.run(world.now + MILLISECOND);
    // A heartbeat of term 9 from somebody who was never a member.
    world.step(id(0), Input::Receive { from: id(7), bytes: Bytes::from_static(b"\n\x04\x08\x03\x10\x09") });
    world.run(world.now + 3 * timeout());
    assert_eq!(world.leader(), None);
    assert!(world.until(6 * timeout(), |it| it.leader().is_some_and(|(_, term)| term > Term(9))), "nobody leads");
    sound(&world);
}

#[test]
fn what_comes_while_the_disk_is_busy_is_one_write() {
    let (mut world, leader, _) = led(4, 3, 0);
    world.silence_clients();
    world.run(world.now + 50 * MILLISECOND);
    let (writes, done) = (world.counts.writes, world.counts.done);
    for _ in 0..500 {
        world.write(leader);
    }
    world.run(world.now + 50 * MILLISECOND);
    assert_eq!(world.counts.done - done, 500);
    assert!(world.counts.writes - writes <= 12, "{} writes on three nodes", world.counts.writes - writes);
    sound(&world);
}

/// Gives a node something, without carrying out what it wants; what is refused, and why.
fn refusal(world: &mut World, at: NodeId, input: Input) -> Option<Reason> {
    let now = world.now;
    let clock = world.node(at).clock(now);
    let mut effects = Vec::new();
    world.node(at).replica.as_mut()?.step(clock, [input], &mut effects);
    effects.iter().find_map(|it| if let Effect::Reject { why, .. } = it { Some(*why) } else { None })
}

fn proposal(tag: u64, length: usize, place: Place) -> Input {
    Input::Propose { tag: Tag(tag), payload: Bytes::from(vec![0; length]), place }
}

#[test]
fn l3_what_a_leader_decides_by_its_clock_counts_in_its_own_term_alone() {
    let (mut world, leader, term) = led(6, 3, 0);
    let follower = others(&world, leader)[0];
    assert_eq!(refusal(&mut world, leader, proposal(u64::MAX, 8, Place::Here(term))), None);
    assert_eq!(refusal(&mut world, leader, proposal(u64::MAX - 1, 8, Place::Here(Term(term.0 - 1)))), Some(Reason::NotHere));
    assert_eq!(refusal(&mut world, follower, proposal(u64::MAX, 8, Place::Here(term))), Some(Reason::NotHere));
}

#[test]
fn what_is_too_long_or_too_much_is_refused() {
    let few = Settings { proposals_max: 10, payload_bytes_max: 1000, ..settings() };
    let (mut world, leader, _) = led_with(8, 3, 0, few);
    world.silence_clients();
    world.run(world.now + timeout());
    let place = Place::Anywhere;
    assert_eq!(refusal(&mut world, leader, proposal(1 << 60, 1001, place)), Some(Reason::TooLong));
    let refused: Vec<_> = (0..12).map(|it| refusal(&mut world, leader, proposal((1 << 61) + it, 8, place))).collect();
    assert_eq!(refused.iter().filter(|it| **it == Some(Reason::Full)).count(), 2);
}

/// An entry with nothing in it, behind the last one that everybody has.
fn append(term: Term, behind: (u64, Term)) -> Bytes {
    let (index, before) = behind;
    let small = |number: u64| u8::try_from(number).expect("a small number");
    let raft = [8, 1, 16, small(term.0), 24, small(before.0), 32, small(index), 42, 2, 8, small(term.0)];
    [&[10, small(raft.len() as u64)], &raft[..]].concat().into()
}

/// A leader sends on at every sign of life, whatever was not acknowledged: what a disk does not take must not fill the memory.
#[test]
fn c10_a_follower_whose_disk_hangs_takes_in_no_more_than_a_log_may_have() {
    let short = Settings { snapshot_entries: 40, entries_kept: 60, snapshot_bytes: 32 << 10, ..settings() };
    let full = 8 * short.snapshot_bytes;
    let (mut world, leader, term) = led_with(5, 3, 0, short);
    world.silence_clients();
    let follower = others(&world, leader)[0];
    let until = world.now + 8_000 * MILLISECOND;
    world.node(follower).disk_hangs_until = until;
    let mut most = 0;
    while world.now < until {
        world.write(leader);
        world.run(world.now + MILLISECOND);
        most = most.max(world.node(follower).replica.as_ref().map_or(0, |it| it.view().log_bytes));
    }
    assert!((full..full + full / 8).contains(&most), "{most} bytes wait for the disk");
    assert_eq!(world.leader(), Some((leader, term)));
    let decided = world.oracle.highest();
    assert!(world.until(10 * timeout(), |it| it.handed(follower) >= decided), "it does not catch up");
    sound(&world);
}

/// A disk that hung makes safe at once what a leader wrote and what a later one wrote in its place.
#[test]
fn one_sync_for_two_leaders_answers_the_later_alone() {
    let mut world = World::new(3, 3, 0, settings());
    let clock = world.node(id(2)).clock(0);
    let replica = world.node(id(2)).replica.as_mut().expect("it lives");
    let last = replica.view().last;
    let behind = (last, replica.term_at(last).expect("it is there"));
    let mut effects = Vec::new();
    for (from, term) in [(id(0), Term(5)), (id(1), Term(6))] {
        replica.step(clock, [Input::Receive { from, bytes: append(term, behind) }], &mut effects);
    }
    let promises = |effects: &[Effect]| -> Vec<_> {
        let sent =
            effects.iter().filter_map(|it| if let Effect::Send { to, bytes, .. } = it { Some((*to, bytes)) } else { None });
        sent.filter_map(|(to, bytes)| Some((to, promise(bytes)?))).collect()
    };
    assert_eq!(promises(&effects), [], "nothing is safe yet");
    let marks = effects.iter().filter_map(|it| if let Effect::Write(write) = it { Some(write.mark) } else { None });
    let mark = marks.max().expect("both are written");
    effects.clear();
    replica.step(clock, [Input::Persisted(mark)], &mut effects);
    assert_eq!(promises(&effects), [(id(1), Promise::Keeps(Term(6), last + 1))]);
}

#[test]
fn a_letter_shows_what_it_promises() {
    assert_eq!(promise(&Bytes::from_static(b"\n\x04\x08\x03\x10\x02")), Some(Promise::Leads(Term(2))));
    assert_eq!(promise(&Bytes::from_static(b"hello")), None);
}
