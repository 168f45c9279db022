//! What goes wrong in a world, drawn from its seed; and how it is made good again.

use std::time::Duration;

use incumbent_protocol::protocol::NodeId;
use incumbent_service::replica::{Health, Input, Step};

use super::{Event, MILLISECOND, Network, World};

#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Something, and then the next.
    Any,
    /// This one now, and it is back soon.
    Kill(NodeId),
    Start(NodeId),
    Reconnect(Vec<(NodeId, NodeId)>),
    Calm,
    Recover(NodeId),
}

pub(crate) fn strike(world: &mut World, fault: Fault) {
    world.note(|| format!("{fault:?}"));
    match fault {
        Fault::Any => {
            let pause = world.chance.between(Duration::from_millis(10), Duration::from_millis(250));
            world.schedule(world.now + pause.as_nanos() as u64, Event::Fault(Fault::Any));
            any(world);
        }
        Fault::Kill(id) => {
            world.kill(id);
            let later = world.now + world.chance.below(300 * MILLISECOND);
            world.schedule(later, Event::Fault(Fault::Start(id)));
        }
        Fault::Start(id) => world.start(id),
        Fault::Reconnect(links) => {
            for link in links {
                world.network.cut.remove(&link);
            }
        }
        Fault::Calm => world.network = Network { cut: world.network.cut.clone(), ..Network::calm() },
        Fault::Recover(id) => world.step(id, Input::Health(Health::Fit)),
    }
}

fn any(world: &mut World) {
    let id = some_node(world);
    let later = world.now + world.chance.below(900 * MILLISECOND);
    match world.chance.below(13) {
        0 | 1 => {
            world.kill(id);
            world.schedule(later, Event::Fault(Fault::Start(id)));
        }
        // The leader, since that is where it hurts.
        2 | 3 => {
            let leader = world.leader().map_or(id, |(leader, _)| leader);
            world.kill(leader);
            world.schedule(later, Event::Fault(Fault::Start(leader)));
        }
        4 => cut(world, later, |from, to| from == id || to == id),
        // It hears and is not heard, or the other way round.
        5 => cut(world, later, |from, _| from == id),
        6 => cut(world, later, |_, to| to == id),
        7 => {
            let other = some_node(world);
            cut(world, later, |from, to| (from == id && to == other) || (from == other && to == id));
        }
        8 => {
            let side = world.chance.bits();
            cut(world, later, |from, to| (side >> from.0) & 1 != (side >> to.0) & 1);
        }
        9 => {
            world.network.loss_ppm = 300_000;
            world.network.double_ppm = 300_000;
            world.network.delay = (Duration::from_micros(100), Duration::from_millis(30));
            world.schedule(later, Event::Fault(Fault::Calm));
        }
        10 => {
            let node = world.node(id);
            if later & 1 == 0 { node.disk_hangs_until = later } else { node.paused_until = later }
        }
        11 => change(world),
        _ => {
            let leader = world.leader().map_or(id, |(leader, _)| leader);
            if later & 1 == 0 {
                world.step(leader, Input::Transfer { to: None });
            } else {
                world.step(leader, Input::Health(Health::Unfit));
                world.schedule(later, Event::Fault(Fault::Recover(leader)));
            }
        }
    }
}

/// A snapshot from another node is in place, and the log will begin anew behind it in a moment: few crashes would come just then by chance.
pub(crate) fn tempt(world: &mut World, id: NodeId) {
    if world.storms() && world.chance.happens(300_000) {
        let at = world.now + world.chance.below(MILLISECOND);
        world.schedule(at, Event::Fault(Fault::Kill(id)));
    }
}

fn some_node(world: &mut World) -> NodeId {
    NodeId(world.chance.below(world.nodes.len() as u64) as u32)
}

fn cut(world: &mut World, until: u64, which: impl Fn(NodeId, NodeId) -> bool) {
    let ids: Vec<NodeId> = world.nodes.iter().map(|it| it.id).collect();
    let pairs = ids.iter().flat_map(|from| ids.iter().map(move |to| (*from, *to)));
    let links: Vec<_> = pairs.filter(|(from, to)| from != to && which(*from, *to)).collect();
    world.network.cut.extend(links.iter().copied());
    world.schedule(until, Event::Fault(Fault::Reconnect(links)));
}

/// Members come and go, one at a time or several at once; the leader may be among them (C53, C54).
fn change(world: &mut World) {
    let at = world.leader().map_or_else(|| NodeId(0), |(leader, _)| leader);
    let roll = world.oracle.roll().clone();
    let mut steps = Vec::new();
    for _ in 0..=world.chance.below(2) {
        let id = some_node(world);
        let step = match world.chance.below(3) {
            0 => Step::Learner(id),
            1 => Step::Voter(id),
            _ => Step::Remove(id),
        };
        let lonely = !matches!(step, Step::Voter(_)) && roll.voters().len() <= 2;
        // Anyone who is new learns first: a voter that knows nothing stops the others.
        let unready = matches!(step, Step::Voter(_)) && !roll.contains(id);
        if !lonely && !steps.iter().any(|it: &Step| it.node() == id) {
            steps.push(if unready { Step::Learner(id) } else { step });
        }
    }
    world.change(at, steps);
}

/// Everything works again.
pub(crate) fn heal(world: &mut World) {
    world.network = Network::calm();
    for id in 0..world.nodes.len() as u32 {
        let node = world.node(NodeId(id));
        node.disk_hangs_until = 0;
        node.paused_until = 0;
        world.start(NodeId(id));
        world.step(NodeId(id), Input::Health(Health::Fit));
    }
}
