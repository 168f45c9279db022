//! Proposals on their way into the log: gathered while the disk is busy, appended many at a time, forwarded when another leads.
//!
//! A proposal is *queued* until it leaves: for the log of this node, or for the leader's. From then on its outcome is decided by what the log
//! says: it is done when it is seen there; it will never be when an entry of a later term is decided first, for nothing of its own term
//! can follow. Then it may be proposed again without asking anyone. Who runs out of patience before is told that nobody knows.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use incumbent_protocol::protocol::{NodeId, Term};
use incumbent_protocol::time::Instant;

use super::content::{Batch, BatchItem, Source};
use super::exchange::{ClusterTime, Effect, Place, Reason, Tag};
use super::letter::{Forward, ForwardItem};
use super::settings::Settings;

/// What an item costs in an entry or a letter besides its payload.
const ITEM_OVERHEAD: usize = 40;

pub(super) struct Proposals {
    id: NodeId,
    run: u64,
    queue: VecDeque<Queued>,
    queue_bytes: usize,
    /// Every proposal of this node whose outcome is open.
    own: BTreeMap<Tag, Own>,
    /// The same in the order of their time limits. May name some that are long decided.
    limits: VecDeque<(Instant, Tag)>,
    /// The greatest term of which a decided entry was seen.
    decided: Term,
    patience: Duration,
    last_forward: u64,
    /// Which letters of proposals have come from whom, in its last runs.
    seen: BTreeMap<NodeId, VecDeque<Seen>>,
}

/// Of how many runs of a node letters are remembered. A copy of a letter that is older is for the store to recognize.
const RUNS_MAX: usize = 8;

/// The letters that have come from one run of a node: the last one, and which of the 64 before it. A copy that a network has kept must not be
/// appended again, nor what was in it and has been refused.
struct Seen {
    run: u64,
    last: u64,
    before: u64,
}

impl Seen {
    /// Whether a letter comes for the first time, as far as is remembered.
    fn admit(&mut self, number: u64) -> bool {
        if number > self.last {
            let ahead = number - self.last;
            let shifted = self.before.checked_shl(u32::try_from(ahead).unwrap_or(64)).unwrap_or(0);
            self.before = if ahead <= 64 { shifted | 1 << (ahead - 1) } else { 0 };
            self.last = number;
            return true;
        }
        let bit = self.last - number;
        let first = bit > 0 && bit <= 64 && self.before & (1 << (bit - 1)) == 0;
        if first {
            self.before |= 1 << (bit - 1);
        }
        first
    }
}

struct Queued {
    source: Source,
    payload: Bytes,
    /// The node that forwarded it, and the term it meant.
    guest: Option<(NodeId, Term)>,
}

struct Own {
    place: Place,
    state: State,
}

enum State {
    Queued,
    /// Appended here or forwarded, in this term. Kept, so that it can be proposed again; a change of members is not.
    Left {
        term: Term,
        payload: Option<Bytes>,
    },
}

impl Proposals {
    pub(super) fn new(id: NodeId, run: u64, patience: Duration) -> Proposals {
        Proposals {
            id,
            run,
            queue: VecDeque::new(),
            queue_bytes: 0,
            own: BTreeMap::new(),
            limits: VecDeque::new(),
            decided: Term(0),
            patience,
            last_forward: 0,
            seen: BTreeMap::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.limits.front().map(|(limit, _)| *limit)
    }

    /// Takes a proposal in, or says why not.
    pub(super) fn take(
        &mut self,
        now: Instant,
        tag: Tag,
        payload: Bytes,
        place: Place,
        settings: &Settings,
    ) -> Result<(), Reason> {
        if payload.len() > settings.payload_bytes_max {
            return Err(Reason::TooLong);
        }
        if self.own.len() >= settings.proposals_max || self.queue_bytes + payload.len() > settings.proposal_bytes_max {
            return Err(Reason::Full);
        }
        self.own.insert(tag, Own { place, state: State::Queued });
        self.limits.push_back((now + self.patience, tag));
        self.push_back(Queued { source: Source::of(self.id, self.run, tag), payload, guest: None });
        Ok(())
    }

    /// Whether a letter of proposals comes for the first time.
    pub(super) fn admit(&mut self, from: NodeId, forward: &Forward) -> bool {
        let runs = self.seen.entry(from).or_default();
        if let Some(seen) = runs.iter_mut().find(|it| it.run == forward.run) {
            return seen.admit(forward.number);
        }
        if runs.len() == RUNS_MAX {
            runs.pop_front();
        }
        runs.push_back(Seen { run: forward.run, last: forward.number, before: 0 });
        true
    }

    /// Takes in what another node has forwarded. Returns the tags for which there is no room.
    pub(super) fn take_guests(&mut self, from: NodeId, forward: Forward, settings: &Settings) -> Vec<u64> {
        let mut refused = Vec::new();
        for ForwardItem { tag, payload } in forward.items {
            let room =
                self.queue.len() < settings.proposals_max && self.queue_bytes + payload.len() <= settings.proposal_bytes_max;
            if !room || payload.len() > settings.payload_bytes_max {
                refused.push(tag);
                continue;
            }
            let source = Source::of(from, forward.run, Tag(tag));
            self.push_back(Queued { source, payload, guest: Some((from, Term(forward.term))) });
        }
        refused
    }

    /// A change of members was appended; its outcome is awaited like any other's.
    pub(super) fn watch_change(&mut self, now: Instant, tag: Tag, term: Term) {
        self.own.insert(tag, Own { place: Place::Here(term), state: State::Left { term, payload: None } });
        self.limits.push_back((now + self.patience, tag));
    }

    pub(super) fn source(&self, tag: Tag) -> Source {
        Source::of(self.id, self.run, tag)
    }

    /// The next entry of a leader; None if nothing is queued. What may not be appended in this term is told so, guests in `returned`.
    pub(super) fn next_batch(
        &mut self,
        term: Term,
        at: ClusterTime,
        settings: &Settings,
        returned: &mut Vec<(NodeId, Term, u64, u64)>,
        out: &mut Vec<Effect>,
    ) -> Option<Batch> {
        let mut items = Vec::new();
        let mut bytes = 0;
        while let Some(next) = self.queue.front() {
            bytes += next.payload.len() + ITEM_OVERHEAD;
            if !items.is_empty() && bytes > settings.entry_bytes_max {
                break;
            }
            let Some(queued) = self.pop_front() else { break };
            match queued.guest {
                Some((from, meant)) if meant != term => {
                    returned.push((from, meant, queued.source.run, queued.source.tag));
                    continue;
                }
                Some(_) => {}
                None => {
                    if !self.leave(Tag(queued.source.tag), term, &queued.payload, Some(term), out) {
                        continue;
                    }
                }
            }
            items.push(BatchItem { source: queued.source, payload: queued.payload });
        }
        (!items.is_empty()).then_some(Batch { at: at.0, items })
    }

    /// The engine did not take that batch after all: it goes back to where it was.
    pub(super) fn put_back(&mut self, batch: Batch, term: Term) {
        for BatchItem { source, payload } in batch.items.into_iter().rev() {
            let own = source.node == self.id.0 && source.run == self.run;
            if let (true, Some(waits)) = (own, self.own.get_mut(&Tag(source.tag))) {
                waits.state = State::Queued;
            }
            let guest = (!own).then_some((NodeId(source.node), term));
            self.queue_bytes += payload.len();
            self.queue.push_front(Queued { source, payload, guest });
        }
    }

    /// What is to be forwarded to the leader of `term`, a letter at a time; None if nothing is queued. Guests are not passed on: they
    /// are returned, and their own nodes know better.
    pub(super) fn next_forward(
        &mut self,
        term: Term,
        settings: &Settings,
        returned: &mut Vec<(NodeId, Term, u64, u64)>,
        out: &mut Vec<Effect>,
    ) -> Option<Forward> {
        let mut items = Vec::new();
        let mut bytes = 0;
        while let Some(next) = self.queue.front() {
            bytes += next.payload.len() + ITEM_OVERHEAD;
            if !items.is_empty() && bytes > settings.message_bytes_max {
                break;
            }
            let Some(queued) = self.pop_front() else { break };
            if let Some((from, meant)) = queued.guest {
                returned.push((from, meant, queued.source.run, queued.source.tag));
            } else if self.leave(Tag(queued.source.tag), term, &queued.payload, None, out) {
                items.push(ForwardItem { tag: queued.source.tag, payload: queued.payload });
            }
        }
        if items.is_empty() {
            return None;
        }
        self.last_forward += 1;
        Some(Forward { term: term.0, run: self.run, items, number: self.last_forward })
    }

    /// Whether a queued proposal of this node still waits and may leave; then it has. `here` is the term in which this node leads, if it does.
    fn leave(&mut self, tag: Tag, term: Term, payload: &Bytes, here: Option<Term>, out: &mut Vec<Effect>) -> bool {
        let Some(own) = self.own.get_mut(&tag) else { return false };
        if let Place::Here(only) = own.place
            && here != Some(only)
        {
            self.own.remove(&tag);
            out.push(Effect::Reject { tag, why: Reason::NotHere, leader: None });
            return false;
        }
        own.state = State::Left { term, payload: Some(payload.clone()) };
        true
    }

    /// The leader of `term` has not appended these, and never will.
    pub(super) fn on_returned(&mut self, run: u64, term: Term, tags: &[u64], full: bool, out: &mut Vec<Effect>) {
        if run != self.run {
            return;
        }
        for tag in tags.iter().copied().map(Tag) {
            let left = self.own.get_mut(&tag).filter(|own| matches!(own.state, State::Left { term: left, .. } if left == term));
            let Some(own) = left else { continue };
            if full {
                self.own.remove(&tag);
                out.push(Effect::Reject { tag, why: Reason::Full, leader: None });
            } else {
                let payload = own.take_back();
                self.requeue(tag, payload, out);
            }
        }
    }

    /// An entry is decided. Whoever waits under this source is done.
    pub(super) fn on_item(&mut self, source: Source) -> Option<Tag> {
        let ours = source.node == self.id.0 && source.run == self.run;
        let tag = Tag(source.tag);
        (ours && self.own.remove(&tag).is_some()).then_some(tag)
    }

    /// All items of an entry of this term were seen: what left in an earlier term will never be decided.
    pub(super) fn on_decided(&mut self, term: Term, out: &mut Vec<Effect>) {
        if term <= self.decided {
            return;
        }
        self.decided = term;
        let void = |own: &Own| matches!(own.state, State::Left { term: left, .. } if left < term);
        let tags: Vec<Tag> = self.own.iter().filter(|(_, own)| void(own)).map(|(tag, _)| *tag).collect();
        for tag in tags {
            let payload = self.own.get_mut(&tag).and_then(Own::take_back);
            self.requeue(tag, payload, out);
        }
    }

    /// A snapshot has hidden what was decided: of all that has left, nobody here knows the outcome.
    pub(super) fn on_skipped(&mut self, out: &mut Vec<Effect>) {
        let left: Vec<Tag> =
            self.own.iter().filter(|(_, own)| matches!(own.state, State::Left { .. })).map(|(tag, _)| *tag).collect();
        for tag in left {
            self.own.remove(&tag);
            out.push(Effect::Unknown { tag });
        }
    }

    /// It has certainly not happened: propose it again, unless it counts in its own term alone.
    fn requeue(&mut self, tag: Tag, payload: Option<Bytes>, out: &mut Vec<Effect>) {
        let anywhere = self.own.get(&tag).is_some_and(|own| own.place == Place::Anywhere);
        match payload {
            Some(payload) if anywhere => {
                self.push_back(Queued { source: Source::of(self.id, self.run, tag), payload, guest: None });
            }
            Some(_) | None => {
                self.own.remove(&tag);
                out.push(Effect::Reject { tag, why: Reason::Superseded, leader: None });
            }
        }
    }

    /// Answers all whose patience is over.
    pub(super) fn expire(&mut self, now: Instant, leader: Option<NodeId>, out: &mut Vec<Effect>) {
        while let Some((_, tag)) = self.limits.front().copied().filter(|(limit, _)| *limit <= now) {
            self.limits.pop_front();
            match self.own.remove(&tag) {
                None => {}
                Some(Own { state: State::Queued, .. }) => out.push(Effect::Reject { tag, why: Reason::NoLeader, leader }),
                Some(Own { state: State::Left { .. }, .. }) => out.push(Effect::Unknown { tag }),
            }
        }
        // Their places in the queue are passed over when they come up; if nobody leads for long, they must not pile up there.
        let waits = |own: &BTreeMap<Tag, Own>, it: &Queued| it.guest.is_some() || own.contains_key(&Tag(it.source.tag));
        while self.queue.front().is_some_and(|it| !waits(&self.own, it)) {
            self.pop_front();
        }
    }

    fn push_back(&mut self, queued: Queued) {
        self.queue_bytes += queued.payload.len();
        self.queue.push_back(queued);
    }

    fn pop_front(&mut self) -> Option<Queued> {
        let queued = self.queue.pop_front()?;
        self.queue_bytes -= queued.payload.len();
        Some(queued)
    }
}

impl Own {
    /// Queued again; what it was, if it was kept.
    fn take_back(&mut self) -> Option<Bytes> {
        match std::mem::replace(&mut self.state, State::Queued) {
            State::Queued => None,
            State::Left { payload, .. } => payload,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_letter_is_told_whatever_came_between() {
        let mut seen = Seen { run: 7, last: 1, before: 0 };
        let letters =
            [(1, false), (3, true), (2, true), (2, false), (3, false), (1, false), (66, true), (4, true), (4, false), (1, false)];
        for (number, first) in letters {
            assert_eq!(seen.admit(number), first, "{number}");
        }
        assert!(seen.admit(1_000) && seen.admit(999) && !seen.admit(999) && !seen.admit(935) && !seen.admit(0));
    }

    #[test]
    fn a_copy_from_a_former_run_is_told_too() {
        let mut proposals = Proposals::new(NodeId(0), 1, Duration::from_secs(1));
        let mut admit = |run, number| proposals.admit(NodeId(1), &Forward { run, number, ..Forward::default() });
        assert!(admit(5, 1) && admit(6, 1) && !admit(5, 1) && admit(5, 2) && !admit(6, 1));
    }
}
