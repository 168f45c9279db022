//! Who is in office, and until when: what two of the oracles have to know.
//!
//! Almost always there are none or one, so a short list beats anything clever.

use incumbent_protocol::protocol::{NodeId, Term};

use crate::observation::{Moment, Observation};

/// A node in office.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Seat {
    pub(super) node: NodeId,
    pub(super) term: Term,
    /// When its own belief ends, if nothing else happens.
    pub(super) until: Moment,
}

/// All nodes in office. Seats whose time has run out stay until [`Seats::lapsed`] takes them out, so that their owner
/// can judge each at the moment when it happened.
#[derive(Clone, Debug, Default)]
pub(super) struct Seats(Vec<Seat>);

impl Seats {
    /// Takes note of who enters, keeps or leaves office.
    pub(super) fn see(&mut self, seen: &Observation<'_>) {
        match *seen {
            Observation::InOffice { node, term, until } => match self.0.iter_mut().find(|seat| seat.node == node) {
                Some(seat) => *seat = Seat { node, term, until },
                None => self.0.push(Seat { node, term, until }),
            },
            Observation::OutOfOffice { node, .. } | Observation::Crashed { node } | Observation::Started { node, .. } => {
                self.0.retain(|seat| seat.node != node);
            }
            Observation::Told { .. } | Observation::Sent { .. } | Observation::Healed => {}
        }
    }

    /// Takes out the seat that ran out first, if one has by `at`.
    pub(super) fn lapsed(&mut self, at: Moment) -> Option<Seat> {
        let (index, _) = self.0.iter().enumerate().filter(|(_, seat)| seat.until <= at).min_by_key(|(_, seat)| seat.until)?;
        // The others keep their order: reports name who came first.
        Some(self.0.remove(index))
    }

    /// The nodes in office, those that came first before the others.
    pub(super) fn as_slice(&self) -> &[Seat] {
        &self.0
    }
}
