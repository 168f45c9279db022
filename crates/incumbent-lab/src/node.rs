//! A node of the world: its machine while it is up, and what outlives the machine (clock, disk, incarnation).
//!
//! What arrives is stepped at once on a node that is up and quick; it waits in the inbox while the node is paused or
//! busy with what came before.

use std::collections::VecDeque;
use std::time::Duration;

use incumbent_protocol::chance::Chance;
use incumbent_protocol::machine::{Machine, Message};
use incumbent_protocol::protocol::{Input, NodeId, Term, View};
use incumbent_protocol::time::Instant;

use crate::clock::Clock;
use crate::disk::Disk;
use crate::observation::Moment;

/// A node that lets more messages than this wait loses the next ones, as a full socket buffer does.
pub const INBOX_MAX: usize = 16_384;

/// Whether a node runs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    /// It runs.
    Up,
    /// It stands still; its clock does not.
    Paused,
    /// It has no process.
    Down,
}

/// One node.
#[derive(Clone, Debug)]
pub struct Node {
    pub(crate) id: NodeId,
    pub(crate) condition: Condition,
    /// `None` while down.
    pub(crate) machine: Option<Machine>,
    /// How the machine looked after its last step.
    pub(crate) view: Option<View>,
    pub(crate) office: Option<Office>,
    pub(crate) clock: Clock,
    pub(crate) disk: Disk,
    /// How often the node has started.
    pub(crate) incarnation: u32,
    pub(crate) wake: Wake,
    pub(crate) inbox: VecDeque<Letter>,
    /// How long the node needs for everything it is given.
    pub(crate) slow: Duration,
    /// Whether the next letter's turn is in the queue, and under which number; others are void.
    pub(crate) working: bool,
    pub(crate) work: u32,
    /// Decides the fate of what the node sends.
    pub(crate) chance: Chance,
}

/// What waits for a node.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    pub(crate) sent: Moment,
    pub(crate) input: Input<Message>,
}

/// The office as it was last observed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Office {
    pub(crate) term: Term,
    pub(crate) until: Moment,
}

/// When a node is to be woken. A deadline that moves back, as it does with every heartbeat, leaves the entry in the queue
/// alone: when that comes up too early it is put in again. So a node has at most one entry that counts.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wake {
    /// What the machine asked for, on its own clock.
    pub(crate) deadline: Instant,
    /// The same in true time.
    pub(crate) due: Moment,
    /// When the entry that counts comes up; [`Moment::NEVER`] if there is none.
    pub(crate) queued: Moment,
    /// The number of the entry that counts.
    pub(crate) number: u32,
    /// A wake-up waits in the inbox already.
    pub(crate) waiting: bool,
}

impl Wake {
    pub(crate) const NONE: Wake =
        Wake { deadline: Instant::NEVER, due: Moment::NEVER, queued: Moment::NEVER, number: 0, waiting: false };
}

impl Node {
    pub(crate) fn new(id: NodeId, clock: Clock, disk: Disk, chance: Chance) -> Node {
        Node {
            id,
            condition: Condition::Down,
            machine: None,
            view: None,
            office: None,
            clock,
            disk,
            incarnation: 0,
            wake: Wake::NONE,
            inbox: VecDeque::new(),
            slow: Duration::ZERO,
            working: false,
            work: 0,
            chance,
        }
    }

    /// Who it is.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Whether it runs.
    pub fn condition(&self) -> Condition {
        self.condition
    }

    /// How its machine looks; `None` while it is down.
    pub fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    /// The term in which it holds itself to be in office at `now`. A paused node holds on to what it last believed.
    pub fn in_office(&self, now: Moment) -> Option<Term> {
        self.office.filter(|office| now < office.until).map(|office| office.term)
    }

    /// Its clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Its disk.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// How often it has started.
    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// How much waits for it.
    pub fn waiting(&self) -> usize {
        self.inbox.len()
    }

    /// How long it needs for everything it is given.
    pub fn slowness(&self) -> Duration {
        self.slow
    }

    /// Whether it can take an input at once.
    pub(crate) fn is_free(&self) -> bool {
        self.condition == Condition::Up && self.slow.is_zero() && self.inbox.is_empty()
    }
}
