//! Snapshots on their way between nodes: in parts, several under way, taken up again where they were broken off.
//!
//! The sender asks first how much is there; the receiver asks its disk, and answers with how much that has kept: so no more than may be under way waits for a disk that is slow, wherever it waits. Only what is whole and
//! stored is shown to the engine. An interruption, a restart or another leader with the same bytes cost no more than the parts that were under way.

use std::collections::BTreeMap;

use bytes::Bytes;
use incumbent_protocol::protocol::{NodeId, Term};
use incumbent_protocol::time::Instant;

use super::exchange::{Effect, Extent, Index, Lane, Snapshot};
use super::letter::{self, Body, Have, Outline, Piece};
use super::settings::Settings;

/// A longer snapshot is not one of ours.
const SNAPSHOT_BYTES_MAX: u64 = 64 << 30;

/// A longer part is not one of ours, whatever the settings.
const PIECE_BYTES_MAX: u64 = 1 << 20;

/// A receiver that has been silent this often is left alone until it is heard again.
const SILENCES_MAX: u32 = 20;

/// A receiver that refuses again and again, for want of room perhaps, is asked twice as late each time, up to this power of two.
const DOUBLINGS_MAX: u32 = 6;

#[derive(Default)]
pub(super) struct Streams {
    outgoing: BTreeMap<NodeId, Outgoing>,
    refusals: BTreeMap<NodeId, Refusals>,
    arrival: Option<Arrival>,
}

struct Outgoing {
    snapshot: Snapshot,
    extent: Extent,
    /// The receiver has so much.
    acknowledged: u64,
    /// So much was asked of the disk; until the receiver has said where to begin, nothing.
    asked: Option<u64>,
    heard: Instant,
    silences: u32,
}

/// Of one receiver, since one has arrived there.
#[derive(Default)]
struct Refusals {
    doublings: u32,
    /// When it is asked again.
    again: Option<Instant>,
}

struct Arrival {
    from: NodeId,
    term: Term,
    snapshot: Snapshot,
    extent: Extent,
    /// So much was given to the disk; unknown until the disk has said how much it has.
    have: Option<u64>,
    /// So much the disk has.
    kept: u64,
    /// All is there, and the disk is at work.
    storing: bool,
}

/// A snapshot that is whole and on the disk.
pub(super) struct Stored {
    pub(super) from: NodeId,
    /// The term of whoever sent it.
    pub(super) term: Term,
    pub(super) snapshot: Snapshot,
    pub(super) extent: Extent,
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
    pub(super) fn send(
        &mut self,
        now: Instant,
        to: NodeId,
        term: Term,
        snapshot: &Snapshot,
        extent: Extent,
        out: &mut Vec<Effect>,
    ) {
        if self.outgoing.get(&to).is_some_and(|it| it.snapshot.index == snapshot.index) {
            return;
        }
        let stream = Outgoing { snapshot: snapshot.clone(), extent, acknowledged: 0, asked: None, heard: now, silences: 0 };
        out.push(stream.offer(to, term));
        self.outgoing.insert(to, stream);
        if let Some(refusals) = self.refusals.get_mut(&to) {
            refusals.again = None;
        }
    }

    /// This node leads no longer: whoever does will begin anew.
    pub(super) fn stop_sending(&mut self) {
        self.outgoing.clear();
        self.refusals.clear();
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
        if have.refused || have.bytes > stream.extent.bytes {
            self.outgoing.remove(&from);
            let refusals = self.refusals.entry(from).or_default();
            refusals.again = Some(now + settings.election_timeout() * (1 << refusals.doublings));
            refusals.doublings = DOUBLINGS_MAX.min(refusals.doublings + 1);
            return None;
        }
        stream.heard = now;
        stream.silences = 0;
        if have.bytes >= stream.extent.bytes {
            self.outgoing.remove(&from);
            self.refusals.remove(&from);
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
        let Extent { bytes: total, checksum } = stream.extent;
        let piece = Piece { term: term.0, snapshot, total, offset, bytes, checksum };
        out.push(Effect::Send { to, lane: Lane::Bulk, bytes: letter::seal(Body::Piece(piece)) });
        None
    }

    /// Asks again where nothing was heard for an election timeout. Returns whose transfer has failed: the engine begins another when it hears of them.
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
        let rested = self.refusals.iter_mut().filter_map(|(to, it)| it.again.take_if(|at| *at <= now).map(|_| *to));
        given_up.extend(rested);
        given_up
    }

    pub(super) fn deadline(&self, settings: &Settings) -> Option<Instant> {
        let silent = self.outgoing.values().map(|it| it.heard + settings.election_timeout());
        silent.chain(self.refusals.values().filter_map(|it| it.again)).min()
    }

    /// A part has come, or the question how much is here. `own` is this node's term.
    pub(super) fn on_arrival(&mut self, from: NodeId, own: Term, piece: Piece, settings: &Settings, out: &mut Vec<Effect>) {
        let Some(snapshot) = piece.snapshot.as_ref().and_then(Outline::snapshot) else { return };
        let extent = Extent { bytes: piece.total, checksum: piece.checksum };
        let end = piece.offset.checked_add(piece.bytes.len() as u64);
        let sound =
            extent.bytes <= SNAPSHOT_BYTES_MAX && end.is_some_and(|end| end <= extent.bytes) && snapshot.term.0 <= piece.term;
        if !sound || piece.term < own.0 {
            out.push(answer(from, own, &snapshot, 0, true));
            return;
        }
        let known = |it: &Arrival| it.snapshot == snapshot && it.extent == extent;
        if !self.arrival.as_ref().is_some_and(known) {
            // What the disk is at work on cannot be taken from it.
            if !self.arrival.as_ref().is_some_and(|it| it.storing) {
                out.push(Effect::Expect { snapshot: snapshot.clone(), extent });
                self.arrival =
                    Some(Arrival { from, term: Term(piece.term), snapshot, extent, have: None, kept: 0, storing: false });
            }
            return;
        }
        let Some(arrival) = &mut self.arrival else { return };
        // The same bytes may come from another leader: it is the one to be told, and to be believed.
        if piece.term >= arrival.term.0 {
            (arrival.from, arrival.term) = (from, Term(piece.term));
        }
        let Some(have) = arrival.have.filter(|_| !arrival.storing) else { return };
        let fits = piece.offset == have
            && !piece.bytes.is_empty()
            && piece.bytes.len() as u64 <= settings.piece_bytes.max(PIECE_BYTES_MAX)
            && have - arrival.kept < settings.bytes_in_flight();
        if fits {
            arrival.keep(have, piece.bytes, out);
        } else {
            out.push(arrival.answer(own, arrival.kept, false));
        }
    }

    /// The disk has said how much of the expected snapshot it has.
    pub(super) fn on_expecting(&mut self, own: Term, index: Index, have: u64, out: &mut Vec<Effect>) {
        let Some(arrival) = self.arrival.as_mut().filter(|it| it.snapshot.index == index && it.have.is_none()) else { return };
        let have = have.min(arrival.extent.bytes);
        (arrival.have, arrival.kept) = (Some(have), have);
        if have == arrival.extent.bytes {
            arrival.keep(have, Bytes::new(), out);
        } else {
            out.push(arrival.answer(own, have, false));
        }
    }

    /// The disk has kept a part that was not the last. Of that nothing is said before all is stored: it may yet turn out to be damaged.
    pub(super) fn on_kept(&mut self, own: Term, index: Index, have: u64, out: &mut Vec<Effect>) {
        let Some(arrival) = self.arrival.as_mut().filter(|it| it.snapshot.index == index) else { return };
        if arrival.have.is_some_and(|given| (arrival.kept + 1..=given).contains(&have)) {
            arrival.kept = have;
            out.push(arrival.answer(own, have, false));
        }
    }

    /// The disk has all of it, or cannot have it. Returns what may be shown to the engine.
    pub(super) fn on_stored(&mut self, own: Term, index: Index, whole: bool, out: &mut Vec<Effect>) -> Option<Stored> {
        let arrival = self.arrival.take_if(|it| it.snapshot.index == index && (it.storing || !whole))?;
        out.push(arrival.answer(own, if whole { arrival.extent.bytes } else { 0 }, !whole));
        let Arrival { from, term, snapshot, extent, .. } = arrival;
        whole.then_some(Stored { from, term, snapshot, extent })
    }
}

impl Arrival {
    fn answer(&self, own: Term, bytes: u64, refused: bool) -> Effect {
        answer(self.from, own, &self.snapshot, bytes, refused)
    }

    /// Has the disk keep the next part.
    fn keep(&mut self, have: u64, bytes: Bytes, out: &mut Vec<Effect>) {
        let now = have + bytes.len() as u64;
        self.have = Some(now);
        self.storing = now == self.extent.bytes;
        out.push(Effect::StorePiece { index: self.snapshot.index, offset: have, bytes, last: self.storing });
    }
}

fn answer(to: NodeId, own: Term, snapshot: &Snapshot, bytes: u64, refused: bool) -> Effect {
    let have = Have { index: snapshot.index, snapshot_term: snapshot.term.0, bytes, refused, term: own.0 };
    Effect::Send { to, lane: Lane::Prompt, bytes: letter::seal(Body::Have(have)) }
}

/// Says that nothing of a snapshot need be sent.
pub(super) fn have_all(to: NodeId, own: Term, snapshot: &Snapshot, total: u64, out: &mut Vec<Effect>) {
    out.push(answer(to, own, snapshot, total, false));
}

impl Outgoing {
    fn offer(&self, to: NodeId, term: Term) -> Effect {
        let snapshot = Some(Outline::of(&self.snapshot));
        let Extent { bytes: total, checksum } = self.extent;
        let piece = Piece { term: term.0, snapshot, total, offset: 0, bytes: Bytes::new(), checksum };
        Effect::Send { to, lane: Lane::Bulk, bytes: letter::seal(Body::Piece(piece)) }
    }

    /// Asks the disk for as much as may be under way.
    fn read_on(&mut self, to: NodeId, settings: &Settings, out: &mut Vec<Effect>) {
        let Some(asked) = &mut self.asked else { return };
        let until = self.extent.bytes.min(self.acknowledged.saturating_add(settings.bytes_in_flight()));
        while *asked < until {
            out.push(Effect::ReadPiece { to, index: self.snapshot.index, offset: *asked, bytes_max: settings.piece_bytes });
            *asked = asked.saturating_add(settings.piece_bytes);
        }
    }
}
