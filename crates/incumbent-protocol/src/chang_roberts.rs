//! Chang and Roberts' ring (1979): only the greatest id goes all the way round.
//!
//! Who misses the leader sends its own id. A node passes on a greater id, puts its own in the place of a smaller one, and swallows a smaller one if it has
//! already spoken. An id that comes back to its owner is the greatest: it takes office and COORDINATOR goes round. With all nodes starting at
//! once that is between 2n−1 and n(n+1)/2 ELECTION messages, then n for COORDINATOR.
//! Under the quorum guard, what [a ring](crate::ring) does when laps bring no leader holds here too.

use alloc::vec;

use crate::circuit::{Lap, RingMessage};
use crate::protocol::{Effects, NodeId};
use crate::ring::{ElectionLap, RingNode, Rule};
use crate::time::Instant;

/// A node that elects by Chang and Roberts' ring.
pub type ChangRoberts = RingNode<Greatest>;

/// The rule that passes on the greatest id.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Greatest;

impl Rule for Greatest {
    fn begin(node: &mut RingNode<Self>, now: Instant, out: &mut Effects<RingMessage>) {
        speak(node, now, out);
    }

    fn on_election(node: &mut RingNode<Self>, now: Instant, lap: ElectionLap, out: &mut Effects<RingMessage>) {
        let me = node.office.me();
        let ElectionLap { initiator, ids, term, hops } = lap;
        let greatest = ids.iter().copied().max().unwrap_or(NodeId(0));
        if greatest == me {
            return node.win(now, out);
        }
        if greatest < me && node.office.may_stand(now) {
            // Having spoken already, we let the smaller id end here.
            if node.in_contest_until.is_none() {
                node.enter_contest(now);
                speak(node, now, out);
            }
            return;
        }
        // The owner of this id may have died on the way: after a full lap nobody is left to take it off the ring.
        if hops > 1 {
            node.enter_contest(now);
            node.pass(now, Lap::Election { initiator, ids, term, hops: hops - 1 }, out);
        }
    }

    fn on_elected(node: &mut RingNode<Self>, now: Instant, out: &mut Effects<RingMessage>) {
        let me = node.office.me();
        let hops = node.circuit.full_lap();
        node.pass(now, Lap::Coordinator { leader: me, initiator: me, term: node.office.term(), hops }, out);
    }
}

/// Sends our own id round.
fn speak(node: &mut RingNode<Greatest>, now: Instant, out: &mut Effects<RingMessage>) {
    let me = node.office.me();
    let hops = node.circuit.full_lap();
    node.pass(now, Lap::Election { initiator: me, ids: vec![me], term: node.office.term(), hops }, out);
}
