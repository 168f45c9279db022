//! Snapshots on their way between nodes: in parts, several under way, taken up again where they were broken off.
//!
//! The sender asks first how much is there; the receiver answers every part with how much it has. Only what is whole and stored is shown to
//! the engine. An interruption costs the parts that were under way; a restart of the receiver costs all of them.

use std::collections::BTreeMap;

use bytes::Bytes;
use incumbent_protocol::protocol::{NodeId, Term};
use incumbent_protocol::time::Instant;

use super::exchange::{Effect, Index, Lane, Snapshot};
use super::letter::{self, Body, Have, Outline, Piece};
use super::settings::Settings;

/// A longer snapshot is not one of ours.
const SNAPSHOT_BYTES_MAX: u64 = 64 << 30;

/// A receiver that has been silent this often is left alone until it is heard again.
const SILENCES_MAX: u32 = 20;

#[derive(Default)]
pub(super) struct Streams {
    outgoing: BTreeMap<NodeId, Outgoing>,
    arrival: Option<Arrival>,
}

struct Outgoing {
    snapshot: Snapshot,
    total: u64,
    /// The receiver has so much.
    acknowledged: u64,
    /// So much was asked of the disk; until the receiver has said where to begin, nothing.
    asked: Option<u64>,
    heard: Instant,
    silences: u32,
}

struct Arrival {
    from: NodeId,
    term: Term,
    snapshot: Snapshot,
    total: u64,
    have: u64,
    /// All is there, and the disk is at work.
    storing: bool,
}

/// A snapshot that is whole and on the disk.
pub(super) struct Stored {
    pub(super) from: NodeId,
    /// The term of whoever sent it.
    pub(super) term: Term,
    pub(super) snapshot: Snapshot,
    pub(super) bytes: u64,
}

/// How a transfer has ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    Arrived,
    Failed,
}

impl Streams {
    pub(super) fn sending(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Brings `snapshot` to a node that is behind the log.
    pub(super) fn send(&mut self, now: Instant, to: NodeId, term: Term, snapshot: &Snapshot, total: u64, out: &mut Vec<Effect>) {
        if self.outgoing.get(&to).is_some_and(|it| it.snapshot.index == snapshot.index) {
            return;
        }
        let stream = Outgoing { snapshot: snapshot.clone(), total, acknowledged: 0, asked: None, heard: now, silences: 0 };
        out.push(stream.offer(to, term));
        self.outgoing.insert(to, stream);
    }

    /// This node leads no longer: whoever does will begin anew.
    pub(super) fn stop_sending(&mut self) {
        self.outgoing.clear();
    }

    /// The receiver says how much it has.
    pub(super) fn on_have(
        &mut self,
        now: Instant,
        from: NodeId,
        have: &Have,
        settings: &Settings,
        out: &mut Vec<Effect>,
    ) -> Option<Ended> {
        let stream = self
            .outgoing
            .get_mut(&from)
            .filter(|it| it.snapshot.index == have.index && it.snapshot.term.0 == have.snapshot_term)?;
        if have.refused || have.bytes > stream.total {
            self.outgoing.remove(&from);
            return Some(Ended::Failed);
        }
        stream.heard = now;
        stream.silences = 0;
        if have.bytes >= stream.total {
            self.outgoing.remove(&from);
            return Some(Ended::Arrived);
        }
        // It may have less than before: it was started anew.
        let restarted = have.bytes < stream.acknowledged || stream.asked.is_none();
        stream.acknowledged = have.bytes;
        if restarted {
            stream.asked = Some(have.bytes);
        }
        stream.read_on(from, settings, out);
        None
    }

    /// The disk has given a part.
    pub(super) fn on_piece(
        &mut self,
        to: NodeId,
        term: Term,
        index: Index,
        offset: u64,
        bytes: Bytes,
        out: &mut Vec<Effect>,
    ) -> Option<Ended> {
        let stream = self.outgoing.get(&to).filter(|it| it.snapshot.index == index)?;
        if bytes.is_empty() {
            self.outgoing.remove(&to);
            return Some(Ended::Failed);
        }
        let snapshot = Some(Outline::of(&stream.snapshot));
        let piece = Piece { term: term.0, snapshot, total: stream.total, offset, bytes };
        out.push(Effect::Send { to, lane: Lane::Bulk, bytes: letter::seal(Body::Piece(piece)) });
        None
    }

    /// Asks again where nothing was heard for an election timeout. Returns who is left alone.
    pub(super) fn expire(&mut self, now: Instant, term: Term, settings: &Settings, out: &mut Vec<Effect>) -> Vec<NodeId> {
        let mut given_up = Vec::new();
        for (to, stream) in &mut self.outgoing {
            if now < stream.heard + settings.election_timeout() {
                continue;
            }
            stream.heard = now;
            stream.silences += 1;
            stream.asked = None;
            if stream.silences > SILENCES_MAX {
                given_up.push(*to);
            } else {
                out.push(stream.offer(*to, term));
            }
        }
        for to in &given_up {
            self.outgoing.remove(to);
        }
        given_up
    }

    pub(super) fn deadline(&self, settings: &Settings) -> Option<Instant> {
        self.outgoing.values().map(|it| it.heard + settings.election_timeout()).min()
    }

    /// A part has come, or the question how much is here. `own` is this node's term.
    pub(super) fn on_arrival(&mut self, from: NodeId, own: Term, piece: Piece, settings: &Settings, out: &mut Vec<Effect>) {
        let Some(snapshot) = piece.snapshot.as_ref().and_then(Outline::snapshot) else { return };
        let answer = |bytes, refused| {
            let have = Have { index: snapshot.index, snapshot_term: snapshot.term.0, bytes, refused, term: own.0 };
            Effect::Send { to: from, lane: Lane::Prompt, bytes: letter::seal(Body::Have(have)) }
        };
        let end = piece.offset.checked_add(piece.bytes.len() as u64);
        let sound =
            piece.total <= SNAPSHOT_BYTES_MAX && end.is_some_and(|end| end <= piece.total) && snapshot.term.0 <= piece.term;
        if !sound || piece.term < own.0 {
            out.push(answer(0, true));
            return;
        }
        let known = |it: &Arrival| it.from == from && it.snapshot == snapshot && it.total == piece.total;
        if !self.arrival.as_ref().is_some_and(known) {
            if self.arrival.as_ref().is_some_and(|it| it.storing) {
                return;
            }
            let term = Term(piece.term);
            self.arrival = Some(Arrival { from, term, snapshot: snapshot.clone(), total: piece.total, have: 0, storing: false });
        }
        let Some(arrival) = &mut self.arrival else { return };
        arrival.term = arrival.term.max(Term(piece.term));
        let next =
            piece.offset == arrival.have && !arrival.storing && piece.bytes.len() as u64 <= settings.piece_bytes.max(1 << 20);
        let empty = arrival.total == 0 && !arrival.storing;
        if next && (!piece.bytes.is_empty() || empty) {
            arrival.have += piece.bytes.len() as u64;
            arrival.storing = arrival.have == arrival.total;
            out.push(Effect::StorePiece {
                snapshot: snapshot.clone(),
                offset: piece.offset,
                bytes: piece.bytes,
                last: arrival.storing,
            });
        }
        // Nothing is said of the last part before it is stored: it may yet turn out to be damaged.
        if !arrival.storing {
            out.push(answer(arrival.have, false));
        }
    }

    /// The disk has all of it, or cannot have it. Returns what may be shown to the engine.
    pub(super) fn on_stored(&mut self, own: Term, index: Index, whole: bool, out: &mut Vec<Effect>) -> Option<Stored> {
        let arrival = self.arrival.take_if(|it| it.snapshot.index == index && it.storing)?;
        let have = Have {
            index,
            snapshot_term: arrival.snapshot.term.0,
            bytes: if whole { arrival.total } else { 0 },
            refused: !whole,
            term: own.0,
        };
        out.push(Effect::Send { to: arrival.from, lane: Lane::Prompt, bytes: letter::seal(Body::Have(have)) });
        let Arrival { from, term, snapshot, total, .. } = arrival;
        whole.then_some(Stored { from, term, snapshot, bytes: total })
    }
}

/// Says that nothing of a snapshot need be sent.
pub(super) fn have_all(to: NodeId, own: Term, snapshot: &Snapshot, total: u64, out: &mut Vec<Effect>) {
    let have = Have { index: snapshot.index, snapshot_term: snapshot.term.0, bytes: total, refused: false, term: own.0 };
    out.push(Effect::Send { to, lane: Lane::Prompt, bytes: letter::seal(Body::Have(have)) });
}

impl Outgoing {
    fn offer(&self, to: NodeId, term: Term) -> Effect {
        let snapshot = Some(Outline::of(&self.snapshot));
        let piece = Piece { term: term.0, snapshot, total: self.total, offset: 0, bytes: Bytes::new() };
        Effect::Send { to, lane: Lane::Bulk, bytes: letter::seal(Body::Piece(piece)) }
    }

    /// Asks the disk for as much as may be under way.
    fn read_on(&mut self, to: NodeId, settings: &Settings, out: &mut Vec<Effect>) {
        let Some(asked) = &mut self.asked else { return };
        let until =
            self.total.min(self.acknowledged.saturating_add(settings.piece_bytes.saturating_mul(settings.pieces_in_flight)));
        while *asked < until {
            out.push(Effect::ReadPiece { to, index: self.snapshot.index, offset: *asked, bytes_max: settings.piece_bytes });
            *asked = asked.saturating_add(settings.piece_bytes);
        }
    }
}
