//! One election on one node: its machine, and what stands beside it.

use std::collections::{BTreeMap, VecDeque};

use incumbent_protocol::machine::Machine;
use incumbent_protocol::protocol::{Mark, NodeId, Record, Role, Token};
use incumbent_protocol::settings::Pace;
use incumbent_protocol::time::Instant;

use super::{Mandate, Standing};
use crate::archive::Stored;

pub(super) struct Room {
    pub(super) machine: Machine,
    /// The incarnation of tokens: the greatest that anyone has told of.
    pub(super) epoch: u16,
    /// The last record that the machine wanted on disk.
    pub(super) record: Option<Record>,
    /// Those that are on their way to the disk.
    pub(super) records: VecDeque<(Mark, Record)>,
    /// The last one that is safe there.
    pub(super) durable: Option<Record>,
    /// A record that could not be written yet.
    pub(super) owed: Option<Mark>,
    /// This node's leadership, from the moment it was elected.
    pub(super) own: Option<Token>,
    /// Whether the user wants to stand.
    pub(super) stands: bool,
    /// Whether the deaths of the others end the work of their leaderships, as they say.
    pub(super) mortals: BTreeMap<NodeId, bool>,
    /// When its machine is to be woken.
    pub(super) alarm: Instant,
}

impl Room {
    pub(super) fn new(machine: Machine, stored: Stored) -> Room {
        Room {
            machine,
            epoch: stored.epoch,
            record: stored.record,
            records: VecDeque::new(),
            durable: stored.record,
            owed: None,
            own: None,
            stands: false,
            mortals: BTreeMap::new(),
            alarm: Instant::NEVER,
        }
    }

    pub(super) fn stored(&self) -> Stored {
        Stored { record: self.record, epoch: self.epoch }
    }

    pub(super) fn standing(&self, now: Instant, pace: &Pace) -> Standing {
        let view = self.machine.view();
        let own = self.own.filter(|_| view.in_office(now)).map(|token| Mandate {
            token,
            // The machine counts its lease from there.
            answered: view.until.map(|until| until.before(pace.lease())),
        });
        let leader = view.leader.filter(|_| view.role != Role::Leader || own.is_some());
        Standing { leader, term: view.term, epoch: self.epoch, own }
    }
}
