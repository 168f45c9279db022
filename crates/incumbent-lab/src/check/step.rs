//! What may happen next, in a few bytes.

use incumbent_protocol::machine::Message;
use incumbent_protocol::protocol::{NodeId, Request};

/// A message under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Envelope {
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    pub(super) message: Message,
}

/// One step of the group. Messages by their number in the search's list, nodes by rank.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// A message arrives.
    Deliver(u32),
    /// A message arrives, and a copy of it stays under way.
    Repeat(u32),
    /// A message is lost.
    Lose(u32),
    /// Something happens to a node.
    Do(u8, Deed),
}

/// What may happen to a node other than a message.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Deed {
    /// Its clock comes to its deadline. Messages may still arrive before it wakes.
    Due,
    /// It wakes, at its deadline or later.
    Wake,
    /// The oldest record that it is writing is safe.
    Sync,
    /// It crashes; so many of the records that it was writing are on its disk all the same.
    Crash { kept: u8 },
    /// It comes up with what is on its disk.
    Start,
    /// Its user asks for something.
    Ask(Wish),
}

/// A request, with the other node by rank.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Wish {
    Campaign,
    Resign,
    HandOver(u8),
    Suspect(u8),
    Dead(u8),
}

impl Wish {
    pub(super) fn request(self, members: &[NodeId]) -> Request {
        let member = |rank: u8| members[usize::from(rank)];
        match self {
            Wish::Campaign => Request::Campaign,
            Wish::Resign => Request::Resign,
            Wish::HandOver(to) => Request::HandOver { to: member(to) },
            Wish::Suspect(peer) => Request::Suspect { peer: member(peer) },
            Wish::Dead(peer) => Request::Dead { peer: member(peer) },
        }
    }
}
