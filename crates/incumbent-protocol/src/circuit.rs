//! A logical ring: messages that go round it, from each node to the next one that answers.
//!
//! Every hop is acknowledged. A successor that does not answer is asked once more and then skipped, for a while: the ring closes
//! over the gap and opens again when the node is heard of. Repeated hops are recognised and dropped. A lap carries its own limit of hops,
//! so it ends even if the node that would end it has died.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::office::OfficeMessage;
use crate::protocol::{Claim, Effects, NodeId, Purpose, Term, Wire};
use crate::settings::Settings;
use crate::time::Instant;

/// How often a successor is asked before it is skipped.
const TRIES_MAX: u32 = 2;

/// Hops remembered to recognise repetitions. Those come within a round trip or two.
const SEEN_MAX: usize = 64;

/// Hops that may await their acknowledgement at one time, as a multiple of the members; the oldest is given up.
const UNDERWAY_MAX_PER_MEMBER: usize = 2;

/// What goes round the ring.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Lap {
    /// ELECTION: who is there? The collecting ring lists all, Chang–Roberts names the greatest so far.
    Election {
        /// Who began this lap.
        initiator: NodeId,
        /// The candidates named.
        ids: Vec<NodeId>,
        /// The greatest term of any node it passed.
        term: Term,
        /// Hops left.
        hops: u32,
    },
    /// COORDINATOR: this node has won.
    Coordinator {
        /// The winner.
        leader: NodeId,
        /// Who began this lap, and ends it.
        initiator: NodeId,
        /// The greatest term known to the initiator.
        term: Term,
        /// Hops left.
        hops: u32,
    },
}

/// What nodes of a ring say to each other.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum RingMessage {
    /// One hop of a lap, to the next node that answers.
    Hop {
        /// Numbers the sender's hops.
        hop: u32,
        /// What goes round.
        lap: Lap,
    },
    /// "I have it": the sender need not skip us.
    HopAck {
        /// The hop received.
        hop: u32,
    },
    /// "I am back": do not skip me any longer.
    Joined {
        /// The sender's term.
        term: Term,
    },
    /// About the office.
    Office(OfficeMessage),
}

impl From<OfficeMessage> for RingMessage {
    fn from(message: OfficeMessage) -> Self {
        RingMessage::Office(message)
    }
}

/// One node's part in keeping laps going.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Circuit {
    settings: Settings,
    place: usize,
    last_hop: u32,
    underway: VecDeque<Underway>,
    skipped: BTreeMap<NodeId, Instant>,
    seen: VecDeque<(NodeId, u32)>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Underway {
    hop: u32,
    to: NodeId,
    lap: Lap,
    tries: u32,
    due_at: Instant,
}

impl Circuit {
    /// `first_hop` should differ from one start of the node to the next, or its first hops look like repetitions.
    pub(crate) fn new(me: NodeId, settings: &Settings, first_hop: u32) -> Self {
        let place = settings.ring().iter().position(|id| *id == me).unwrap_or(0);
        Self {
            settings: settings.clone(),
            place,
            last_hop: first_hop,
            underway: VecDeque::new(),
            skipped: BTreeMap::new(),
            seen: VecDeque::new(),
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.underway.iter().map(|it| it.due_at).min().unwrap_or(Instant::NEVER)
    }

    /// How long a whole lap may take: half a round trip for each hop, with room.
    pub(crate) fn lap_time(&self) -> Duration {
        self.settings.pace().patience_max + self.quick_lap_time()
    }

    /// The same, if nobody has to be skipped.
    pub(crate) fn quick_lap_time(&self) -> Duration {
        self.settings.pace().reply.saturating_mul(self.full_lap()) / 2
    }

    /// Hops that a full lap takes.
    pub(crate) fn full_lap(&self) -> u32 {
        u32::try_from(self.settings.ring().len()).unwrap_or(u32::MAX)
    }

    /// Sends `lap` to the next node that is not skipped. Gives it back if there is none: we are the whole ring.
    pub(crate) fn forward(&mut self, now: Instant, lap: Lap, out: &mut Effects<RingMessage>) -> Option<Lap> {
        let Some(to) = self.successor(now) else { return Some(lap) };
        self.last_hop = self.last_hop.wrapping_add(1);
        let hop = self.last_hop;
        out.send(to, RingMessage::Hop { hop, lap: lap.clone() });
        if self.underway.len() >= UNDERWAY_MAX_PER_MEMBER * self.settings.ring().len() {
            self.underway.pop_front();
        }
        self.underway.push_back(Underway { hop, to, lap, tries: 1, due_at: now + self.settings.pace().reply });
        None
    }

    /// Repeats or redirects hops that were not acknowledged. Returns the laps for which nobody is left.
    pub(crate) fn wake(&mut self, now: Instant, out: &mut Effects<RingMessage>) -> Vec<Lap> {
        let mut homeless = Vec::new();
        let mut pending = self.underway.len();
        while pending > 0 {
            pending -= 1;
            let Some(mut it) = self.underway.pop_front() else { break };
            if now < it.due_at {
                self.underway.push_back(it);
            } else if it.tries < TRIES_MAX {
                it.tries += 1;
                it.due_at = now + self.settings.pace().reply;
                out.send(it.to, RingMessage::Hop { hop: it.hop, lap: it.lap.clone() });
                self.underway.push_back(it);
            } else {
                self.skip(now, it.to);
                homeless.extend(self.forward(now, it.lap, out));
            }
        }
        homeless
    }

    /// Acknowledges a hop. False if it is a repetition.
    pub(crate) fn arrived(&mut self, from: NodeId, hop: u32, out: &mut Effects<RingMessage>) -> bool {
        out.send(from, RingMessage::HopAck { hop });
        if self.seen.contains(&(from, hop)) {
            return false;
        }
        if self.seen.len() >= SEEN_MAX {
            self.seen.pop_front();
        }
        self.seen.push_back((from, hop));
        true
    }

    pub(crate) fn acknowledged(&mut self, from: NodeId, hop: u32) {
        self.underway.retain(|it| it.hop != hop || it.to != from);
    }

    /// `node` lives: the ring opens for it again.
    pub(crate) fn heard(&mut self, node: NodeId) {
        self.skipped.remove(&node);
    }

    /// `node` is proven dead: what was sent to it goes to the next one at the next wake-up.
    pub(crate) fn bury(&mut self, now: Instant, node: NodeId) {
        self.skip(now, node);
        for it in self.underway.iter_mut().filter(|it| it.to == node) {
            (it.tries, it.due_at) = (TRIES_MAX, now);
        }
    }

    fn skip(&mut self, now: Instant, node: NodeId) {
        self.skipped.insert(node, now + self.settings.stability().aside_max);
    }

    /// Nothing that is under way matters any more.
    pub(crate) fn forget(&mut self) {
        self.underway.clear();
    }

    fn successor(&mut self, now: Instant) -> Option<NodeId> {
        self.skipped.retain(|_, until| *until > now);
        let ring = self.settings.ring();
        (1..ring.len()).map(|step| ring[(self.place + step) % ring.len()]).find(|id| !self.skipped.contains_key(id))
    }
}

impl Lap {
    /// Whether such a lap can be under way among these members at all.
    pub(crate) fn is_sane(&self, settings: &Settings) -> bool {
        let members = settings.members().len();
        let known = |id: &NodeId| settings.rank(*id).is_some();
        match self {
            Lap::Election { initiator, ids, hops, .. } => {
                known(initiator) && ids.len() <= members && ids.iter().all(known) && *hops as usize <= 2 * members
            }
            Lap::Coordinator { leader, initiator, hops, .. } => known(initiator) && known(leader) && *hops as usize <= members,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Lap::Election { .. } => "election",
            Lap::Coordinator { .. } => "coordinator",
        }
    }

    fn term(&self) -> Term {
        match self {
            Lap::Election { term, .. } | Lap::Coordinator { term, .. } => *term,
        }
    }
}

impl RingMessage {
    /// A term that somebody has reached, as far as this message shows.
    pub(crate) fn reached(&self) -> Term {
        match self {
            RingMessage::Hop { lap, .. } => lap.term(),
            RingMessage::HopAck { .. } => Term(0),
            RingMessage::Joined { term } => *term,
            RingMessage::Office(message) => message.reached(),
        }
    }
}

impl Wire for RingMessage {
    fn name(&self) -> &'static str {
        match self {
            RingMessage::Hop { lap, .. } => lap.name(),
            RingMessage::HopAck { .. } => "hop-ack",
            RingMessage::Joined { .. } => "joined",
            RingMessage::Office(message) => message.name(),
        }
    }

    fn purpose(&self) -> Purpose {
        match self {
            RingMessage::Hop { .. } => Purpose::Contest,
            RingMessage::HopAck { .. } | RingMessage::Joined { .. } => Purpose::Upkeep,
            RingMessage::Office(message) => message.purpose().for_guard(),
        }
    }

    fn term(&self) -> Term {
        match self {
            RingMessage::Hop { lap, .. } => lap.term(),
            RingMessage::HopAck { .. } => Term(0),
            RingMessage::Joined { term } => *term,
            RingMessage::Office(message) => message.term(),
        }
    }

    fn claim(&self, from: NodeId, to: NodeId) -> Claim {
        match self {
            // A lap counts and announces; only the winner's own heartbeat claims the office.
            RingMessage::Hop { .. } | RingMessage::HopAck { .. } | RingMessage::Joined { .. } => Claim::Nothing,
            RingMessage::Office(message) => message.claim(from, to),
        }
    }

    fn len_bytes(&self) -> usize {
        match self {
            RingMessage::Hop { lap: Lap::Election { ids, .. }, .. } => 1 + 4 + 1 + 4 + 2 + 4 * ids.len() + 8 + 4,
            RingMessage::Hop { lap: Lap::Coordinator { .. }, .. } => 1 + 4 + 1 + 4 + 4 + 8 + 4,
            RingMessage::HopAck { .. } => 1 + 4,
            RingMessage::Joined { .. } => 1 + 8,
            RingMessage::Office(message) => message.len_bytes(),
        }
    }
}

impl fmt::Display for RingMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RingMessage::Hop { lap: Lap::Election { ids, .. }, .. } => {
                f.write_str("election [")?;
                for (place, id) in ids.iter().enumerate() {
                    write!(f, "{}{id}", if place == 0 { "" } else { " " })?;
                }
                f.write_str("]")
            }
            RingMessage::Hop { lap: Lap::Coordinator { leader, .. }, .. } => write!(f, "coordinator {leader}"),
            RingMessage::HopAck { .. } | RingMessage::Joined { .. } => f.write_str(self.name()),
            RingMessage::Office(message) => message.fmt(f),
        }
    }
}
