//! What is known of one peer and its line: which connections carry it, what waits to be sent, when it was last heard.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use incumbent_protocol::protocol::NodeId;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::Counts;
use crate::packet::{FREIGHT_SINCE, Lane, Mail, Packet, Passport, RELAYS_MAX, RELAYS_SINCE};

/// Packets that may wait on a lane. More wait only if the other end does not read, and then the oldest mean the least.
const WAITING_MAX: usize = 1024;
/// Bytes of long packets that may wait on a lane.
const WAITING_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What waits for a connection, and who writes it there.
#[derive(Default)]
pub(super) struct Outlet {
    /// The connection that carries it.
    pub(super) connection: Option<u64>,
    waiting: VecDeque<Packet>,
    waiting_bytes: usize,
    waker: Option<Waker>,
}

impl Outlet {
    pub(super) fn of(connection: u64) -> Outlet {
        Outlet { connection: Some(connection), ..Outlet::default() }
    }

    /// Queues a packet and wakes the connection. How many were dropped for it.
    pub(super) fn push(&mut self, packet: Packet) -> u64 {
        let mut dropped = 0;
        let bytes = weight(&packet);
        while self.waiting.len() >= WAITING_MAX || (self.waiting_bytes + bytes > WAITING_BYTES_MAX && !self.waiting.is_empty()) {
            self.pop();
            dropped += 1;
        }
        self.waiting.push_back(packet);
        self.waiting_bytes += bytes;
        self.wake();
        dropped
    }

    pub(super) fn pop(&mut self) -> Option<Packet> {
        let packet = self.waiting.pop_front()?;
        self.waiting_bytes -= weight(&packet);
        Some(packet)
    }

    pub(super) fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    pub(super) fn wake_later(&mut self, waker: &Waker) {
        match &mut self.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    /// Forgets what waits; how much it was.
    pub(super) fn clear(&mut self) -> u64 {
        let dropped = self.waiting.len() as u64;
        // Not cleared but replaced, so that a burst's memory is given back.
        self.waiting = VecDeque::new();
        self.waiting_bytes = 0;
        dropped
    }
}

/// The part of a packet's size that varies.
fn weight(packet: &Packet) -> usize {
    match packet {
        Packet::Mail { mail: Mail::Gossip(gossip), .. } => gossip.body.len(),
        Packet::Mail { mail: Mail::Ask { body, .. } | Mail::Answer { body, .. }, .. } => body.len(),
        Packet::Mail { mail: Mail::Freight(freight), .. } => freight.body.len(),
        Packet::Mail { mail: Mail::Word(_), .. }
        | Packet::Hello(_)
        | Packet::Welcome(_)
        | Packet::Refusal { .. }
        | Packet::Pulse(_) => 0,
    }
}

/// One peer.
pub(super) struct Post {
    pub(super) address: String,
    pub(super) urgent: Outlet,
    pub(super) bulk: Outlet,
    /// The process at the other end, while there is a connection.
    pub(super) passport: Option<Passport>,
    /// The version of the protocol that the line spoke last; 0 before there was one.
    pub(super) version: u32,
    /// Whether we hear it; what was last told.
    pub(super) up: bool,
    pub(super) heard: Instant,
    pub(super) sent: Instant,
    /// Whether it hears us, by its own word.
    pub(super) hears_us: bool,
    /// Whom it hears.
    pub(super) hears: Vec<NodeId>,
    /// To whom else it can pass mail on, and through how many others.
    pub(super) beyond: Vec<(NodeId, u8)>,
    /// Its last pulse: the time it gave, and when it came.
    pub(super) pulse: Option<(u64, Instant)>,
    pub(super) round_trip: Option<Duration>,
    /// The other end has hung up on us here, and nothing has been heard of it since.
    pub(super) hung_up: Option<IpAddr>,
    /// Where its name led when it was last dialled.
    pub(super) leads_to: Vec<IpAddr>,
    /// From where it dialled us last.
    pub(super) came_from: Option<IpAddr>,
    /// Why there is no line: what was wrong when it was last tried.
    pub(super) trouble: Option<String>,
    /// There is a reason to dial now.
    pub(super) nudge: Arc<Notify>,
    /// The lane for long packets is wanted.
    pub(super) nudge_bulk: Arc<Notify>,
    pub(super) dialers: Vec<AbortHandle>,
    pub(super) sent_counts: Counts,
    pub(super) received_counts: Counts,
    pub(super) relayed: u64,
    pub(super) dropped: u64,
}

impl Post {
    pub(super) fn new(address: String, now: Instant) -> Post {
        Post {
            address,
            urgent: Outlet::default(),
            bulk: Outlet::default(),
            passport: None,
            version: 0,
            up: false,
            heard: now,
            sent: now,
            hears_us: false,
            hears: Vec::new(),
            beyond: Vec::new(),
            pulse: None,
            round_trip: None,
            hung_up: None,
            leads_to: Vec::new(),
            came_from: None,
            trouble: None,
            nudge: Arc::default(),
            nudge_bulk: Arc::default(),
            dialers: Vec::new(),
            sent_counts: Counts::default(),
            received_counts: Counts::default(),
            relayed: 0,
            dropped: 0,
        }
    }

    /// Each hears the other: mail can go this way.
    pub(super) fn is_good(&self) -> bool {
        self.up && self.hears_us
    }

    /// Through how many nodes mail gets to another if this one passes it on, itself included.
    pub(super) fn relays_to(&self, to: NodeId) -> Option<u8> {
        if !self.is_good() {
            return None;
        }
        if self.hears.contains(&to) {
            return Some(1);
        }
        let (_, through) = self.beyond.iter().find(|(node, _)| *node == to)?;
        through.checked_add(1).filter(|it| *it <= RELAYS_MAX && self.passes_on())
    }

    /// Whether it passes on what others than its author bring.
    pub(super) fn passes_on(&self) -> bool {
        self.version >= RELAYS_SINCE
    }

    /// Whether the other end would know what to do with it.
    pub(super) fn understands(&self, mail: &Mail) -> bool {
        match mail {
            Mail::Freight(_) => self.version >= FREIGHT_SINCE,
            Mail::Word(_) | Mail::Gossip(_) | Mail::Ask { .. } | Mail::Answer { .. } => true,
        }
    }

    pub(super) fn outlet(&mut self, lane: Lane) -> &mut Outlet {
        match lane {
            Lane::Urgent => &mut self.urgent,
            Lane::Bulk => &mut self.bulk,
        }
    }

    pub(super) fn push(&mut self, lane: Lane, packet: Packet) {
        let dropped = self.outlet(lane).push(packet);
        self.dropped += dropped;
    }

    /// Ends what the post does: connections notice that they are not wanted.
    pub(super) fn end(&mut self) {
        for dialer in self.dialers.drain(..) {
            dialer.abort();
        }
        self.hang_up();
    }

    /// Ends its connections.
    pub(super) fn hang_up(&mut self) {
        for outlet in [&mut self.urgent, &mut self.bulk] {
            outlet.connection = None;
            outlet.wake();
        }
    }
}

impl Counts {
    pub(super) fn count(&mut self, mail: &Mail) {
        let count = match mail {
            Mail::Word(_) => &mut self.words,
            Mail::Gossip(_) => &mut self.gossip,
            Mail::Ask { .. } => &mut self.asks,
            Mail::Answer { .. } => &mut self.answers,
            Mail::Freight(_) => &mut self.freight,
        };
        *count += 1;
    }
}
