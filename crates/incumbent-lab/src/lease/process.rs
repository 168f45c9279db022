//! One process that contends: its clock, its machine while it is up, and the work that it does while in office.

use std::collections::BTreeMap;

use incumbent_protocol::protocol::Token;
use incumbent_protocol::tenure::{Call, CallId, Input, Tenure};
use incumbent_protocol::time::Instant;

use super::sighting::HolderId;
use super::world::Happening;
use crate::clock::Clock;
use crate::observation::Moment;

/// So many calls are remembered, for answers that come late; the machine itself remembers fewer.
const REMEMBERED_CALLS_MAX: usize = 32;

pub(super) struct Process {
    pub(super) clock: Clock,
    /// Who it is in this life.
    pub(super) holder: HolderId,
    /// `None` while it is down.
    pub(super) machine: Option<Tenure>,
    /// The number of the wake-up that counts.
    pub(super) wake: u32,
    /// Since when it has stood still.
    pub(super) paused: Option<Moment>,
    /// What has arrived meanwhile.
    pub(super) inbox: Vec<Input>,
    /// What its work would have done meanwhile.
    pub(super) postponed: Vec<Happening>,
    pub(super) work: Option<Work>,
    /// The calls of this life.
    pub(super) calls: BTreeMap<CallId, Sent>,
    /// The belief as it was last seen.
    pub(super) belief: Option<(Token, Moment)>,
    /// It was told not to contend.
    pub(super) aside: bool,
    /// It has lost a leadership in this life.
    pub(super) has_lost: bool,
}

#[derive(Copy, Clone)]
pub(super) struct Work {
    pub(super) token: Token,
    /// The number of the end that counts.
    pub(super) end: u32,
    /// When that end comes.
    pub(super) ends: Moment,
}

/// A call, when it was sent, and when on the caller's clock.
#[derive(Copy, Clone)]
pub(super) struct Sent {
    pub(super) call: Call,
    pub(super) at: Moment,
    pub(super) local: Instant,
}

impl Process {
    /// A process that has not come up yet.
    pub(super) fn new(clock: Clock) -> Process {
        Process {
            clock,
            holder: HolderId(0),
            machine: None,
            wake: 0,
            paused: None,
            inbox: Vec::new(),
            postponed: Vec::new(),
            work: None,
            calls: BTreeMap::new(),
            belief: None,
            aside: false,
            has_lost: false,
        }
    }

    /// A new life begins with nothing but the clock of the old one.
    pub(super) fn come_up(&mut self, holder: HolderId, machine: Tenure) {
        let fresh = Process::new(self.clock.clone());
        *self = Process { holder, machine: Some(machine), wake: self.wake, ..fresh };
    }

    pub(super) fn remember(&mut self, id: CallId, sent: Sent) {
        if self.calls.len() == REMEMBERED_CALLS_MAX {
            self.calls.pop_first();
        }
        self.calls.insert(id, sent);
    }
}
