//! Bytes from strangers: whatever they say, no replica panics, and none believes in a term that cannot be.

use bytes::{Bytes, BytesMut};
use incumbent_protocol::chance::Chance;
use incumbent_protocol::protocol::{NodeId, Term};
use incumbent_service::replica::{Effect, Halt, Input};

use super::settings;
use super::world::{Event, MILLISECOND, World};

/// Letters that replicas have really sent: of all kinds.
fn letters() -> Vec<Bytes> {
    let mut world = World::new(12, 3, 1, settings());
    world.letters = Some(Vec::new());
    world.schedule(0, Event::Operate);
    world.run(600 * MILLISECOND);
    let (leader, _) = world.leader().expect("long enough to elect one");
    world.change(leader, vec![incumbent_service::replica::Step::Learner(NodeId(3))]);
    world.run(world.now + 400 * MILLISECOND);
    world.step(leader, Input::Transfer { to: None });
    world.run(world.now + 200 * MILLISECOND);
    world.letters.take().unwrap_or_default().into_iter().map(|(_, _, bytes)| bytes).collect()
}

/// A letter that somebody has tampered with.
fn tampered(letter: &Bytes, chance: &mut Chance) -> Bytes {
    let mut bytes = BytesMut::from(&letter[..]);
    for _ in 0..=chance.below(3) {
        if bytes.is_empty() {
            break;
        }
        let at = chance.below(bytes.len() as u64) as usize;
        match chance.below(4) {
            0 => bytes[at] ^= 1 << chance.below(8),
            1 => bytes[at] = chance.bits() as u8,
            2 => bytes.truncate(at),
            // A number of ten bytes: near the greatest there is.
            _ => {
                let rest = bytes.split_off(at);
                bytes.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
                bytes.extend_from_slice(&rest[rest.len().min(1)..]);
            }
        }
    }
    bytes.freeze()
}

#[test]
fn no_bytes_make_a_replica_panic() {
    let letters = letters();
    assert!(letters.len() > 1_000);
    for seed in 0..24 {
        let mut chance = Chance::new(seed);
        let mut world = World::new(seed, 3, 1, settings());
        world.schedule(0, Event::Operate);
        world.run(chance.below(800) * MILLISECOND);
        for _ in 0..400 {
            let letter = &letters[chance.below(letters.len() as u64) as usize];
            let bytes = tampered(letter, &mut chance);
            let (from, to) = (NodeId(chance.below(6) as u32), NodeId(chance.below(4) as u32));
            // Lies are not for the oracles: who lies about votes can have two leaders.
            let now = world.now;
            let node = world.node(to);
            let (clock, mut effects) = (node.clock(now), Vec::<Effect>::new());
            if let Some(replica) = &mut node.replica {
                replica.step(clock, [Input::Receive { from, bytes }], &mut effects);
                let marks = effects.iter().filter_map(|it| if let Effect::Write(write) = it { Some(write.mark) } else { None });
                if let Some(mark) = marks.max() {
                    replica.step(clock, [Input::Persisted(mark)], &mut Vec::new());
                }
                assert!(replica.view().role.term < Term(1 << 40), "a term that cannot be is believed");
            }
        }
    }
}

/// The others have lost what they had acknowledged, and elected one of themselves: then it is not for this node to go on beside them with another past.
#[test]
fn a_node_whose_decided_entries_a_leader_denies_goes_no_further() {
    let mut world = World::new(5, 3, 1, settings());
    world.schedule(0, Event::Operate);
    assert!(world.until(5_000 * MILLISECOND, |it| it.leader().is_some_and(|(leader, _)| it.handed(leader) > 8)));
    let (leader, term) = world.leader().expect("just seen");
    let term = u8::try_from(term.0).expect("few elections so far") + 1;
    // An append of a later leader, after the entry `index` of the term `of`.
    let append = |index: u8, of: u8| {
        let raft = [0x08, 1, 0x10, term, 0x18, of, 0x20, index];
        Bytes::from([&[0x0a, raft.len() as u8][..], &raft].concat())
    };
    let now = world.now;
    let halts = |world: &mut World, bytes: Bytes| {
        let (clock, mut effects) = (world.node(leader).clock(now), Vec::new());
        let from = if leader == NodeId(1) { NodeId(2) } else { NodeId(1) };
        let replica = world.node(leader).replica.as_mut().expect("it runs");
        replica.step(clock, [Input::Receive { from, bytes }], &mut effects);
        effects.iter().any(|it| matches!(it, Effect::Halt { index: 5, why: Halt::Contradicted { by } } if *by == from))
    };
    let own = term - 1;
    assert!(!halts(&mut world, append(5, own)), "it agrees");
    assert!(!halts(&mut world, append(200, term)), "what is not there yet cannot be denied");
    assert!(halts(&mut world, append(5, term)));
}

/// Its disk is an older copy of itself: what it had acknowledged since then, and for whom it had voted, it does not know.
#[test]
fn c49_a_node_that_has_forgotten_what_it_acknowledged_goes_no_further() {
    let mut world = World::new(5, 3, 1, settings());
    world.schedule(0, Event::Operate);
    assert!(world.until(5_000 * MILLISECOND, |it| it.leader().is_some_and(|(leader, _)| it.handed(leader) > 8)));
    let (leader, term) = world.leader().expect("just seen");
    let follower = if leader == NodeId(1) { NodeId(2) } else { NodeId(1) };
    // A heartbeat of this term.
    let term = u8::try_from(term.0).expect("few elections so far");
    let heartbeat = |term: u8, commit: u8| {
        let raft = [0x08, 3, 0x10, term, 0x30, commit];
        Bytes::from([&[0x0a, raft.len() as u8][..], &raft].concat())
    };
    let now = world.now;
    let mut halts = |bytes: Bytes| {
        let (clock, mut effects) = (world.node(follower).clock(now), Vec::new());
        let replica = world.node(follower).replica.as_mut().expect("it runs");
        replica.step(clock, [Input::Receive { from: leader, bytes }], &mut effects);
        effects.iter().any(|it| matches!(it, Effect::Halt { index: 100, why: Halt::Forgotten { by } } if *by == leader))
    };
    assert!(!halts(heartbeat(term, 5)), "it is there");
    assert!(!halts(heartbeat(term - 1, 100)), "a former leader is not believed");
    assert!(halts(heartbeat(term, 100)));
}

#[test]
fn a_node_that_has_lost_its_disk_does_not_vote() {
    let mut world = World::new(3, 3, 1, settings());
    let asks = Bytes::from_static(b"\n\x08\x08\x05\x10\x09\x18\x01\x20\x05");
    let clock = world.node(NodeId(3)).clock(0);
    let mut effects = Vec::new();
    let replica = world.node(NodeId(3)).replica.as_mut().expect("it lives");
    replica.step(clock, [Input::Receive { from: NodeId(0), bytes: asks.clone() }], &mut effects);
    assert_eq!(effects, []);
    let replica = world.node(NodeId(1)).replica.as_mut().expect("it lives");
    replica.step(clock, [Input::Receive { from: NodeId(0), bytes: asks }], &mut effects);
    assert!(matches!(effects[..], [Effect::Write(_), ..]), "{effects:?}");
}
