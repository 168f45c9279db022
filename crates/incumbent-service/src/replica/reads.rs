//! Reads: from which entry on the state may answer, so that no answer is older than its question (R1), without a write.
//!
//! Many reads share a round; a round is a question to a quorum, under a context that is used once and never again (C04: an answer to an old
//! question must not count for a new one). A follower asks the leader, which asks the quorum; it then waits until it has that entry itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use incumbent_protocol::protocol::{NodeId, Term};
use incumbent_protocol::time::Instant;

use super::exchange::{Effect, Index, Reason, Tag};
use super::letter::Ask;
use super::settings::{Reads as Way, Settings};

/// Rounds under way at a time; the reads that come meanwhile share the next.
const ROUNDS_MAX: usize = 4;

pub(super) struct Reads {
    run: u64,
    last_round: u64,
    /// Every read of this node that is not answered.
    open: BTreeSet<Tag>,
    /// The same in the order of their time limits. May name some that are long answered.
    limits: VecDeque<(Instant, Tag)>,
    waiting: Vec<Tag>,
    guests: Vec<(NodeId, Ask)>,
    rounds: BTreeMap<u64, Round>,
    /// Confirmed, and waiting until this node has that entry.
    confirmed: BTreeMap<Index, Vec<Tag>>,
    lease: Option<Lease>,
    /// No read is answered by a lease in this term: a successor was asked to stand in it, and may be elected at any time.
    void: Option<Term>,
}

struct Round {
    /// The leader that was asked; None if it is this node.
    asked: Option<NodeId>,
    sent: Instant,
    term: Term,
    reads: Vec<Tag>,
    guests: Vec<(NodeId, Ask)>,
}

#[derive(Copy, Clone)]
struct Lease {
    term: Term,
    until: Instant,
}

impl Reads {
    pub(super) fn new(run: u64) -> Reads {
        Reads {
            run,
            last_round: 0,
            open: BTreeSet::new(),
            limits: VecDeque::new(),
            waiting: Vec::new(),
            guests: Vec::new(),
            rounds: BTreeMap::new(),
            confirmed: BTreeMap::new(),
            lease: None,
            void: None,
        }
    }

    pub(super) fn take(&mut self, now: Instant, tag: Tag, settings: &Settings) -> Result<(), Reason> {
        if self.open.len() >= settings.reads_max {
            return Err(Reason::Full);
        }
        self.open.insert(tag);
        self.limits.push_back((now + settings.patience, tag));
        self.waiting.push(tag);
        Ok(())
    }

    /// Another node asks. False if too many do.
    pub(super) fn take_guest(&mut self, from: NodeId, ask: Ask, settings: &Settings) -> bool {
        let room = self.guests.len() < settings.reads_max;
        if room {
            self.guests.push((from, ask));
        }
        room
    }

    /// The context of a leader's next round; None if there is nothing to ask, or enough is being asked.
    pub(super) fn next_round(&mut self, now: Instant, term: Term) -> Option<Bytes> {
        let under_way = self.rounds.values().filter(|it| it.asked.is_none()).count();
        if (self.waiting.is_empty() && self.guests.is_empty()) || under_way >= ROUNDS_MAX {
            return None;
        }
        let (reads, guests) = (std::mem::take(&mut self.waiting), std::mem::take(&mut self.guests));
        let round = self.open(Round { asked: None, sent: now, term, reads, guests });
        Some(context(self.run, round))
    }

    /// What a follower asks its leader; None if there is nothing to ask.
    pub(super) fn next_ask(&mut self, now: Instant, leader: NodeId, term: Term) -> Option<Ask> {
        if self.waiting.is_empty() || self.rounds.len() >= ROUNDS_MAX {
            return None;
        }
        let reads = std::mem::take(&mut self.waiting);
        let round = self.open(Round { asked: Some(leader), sent: now, term, reads, guests: Vec::new() });
        Some(Ask { run: self.run, round })
    }

    fn open(&mut self, round: Round) -> u64 {
        self.last_round += 1;
        self.rounds.insert(self.last_round, round);
        self.last_round
    }

    /// A quorum has confirmed a round of this leader. Returns the guests that are to be told.
    pub(super) fn on_confirmed(&mut self, bytes: &[u8], index: Index, settings: &Settings) -> Vec<(NodeId, Ask)> {
        let Some(number) = number_in(self.run, bytes) else { return Vec::new() };
        if self.rounds.get(&number).is_none_or(|it| it.asked.is_some()) {
            return Vec::new();
        }
        let Some(round) = self.rounds.remove(&number) else { return Vec::new() };
        if let Way::Lease { drift_ppm } = settings.reads {
            self.lease = Some(Lease { term: round.term, until: round.sent + lease_span(settings, drift_ppm) });
        }
        self.confirmed.entry(index).or_default().extend(round.reads);
        round.guests
    }

    /// The leader has answered; without an index it is none.
    pub(super) fn on_tell(&mut self, from: NodeId, run: u64, number: u64, index: Option<Index>) {
        if run != self.run || self.rounds.get(&number).is_none_or(|it| it.asked != Some(from)) {
            return;
        }
        match index {
            // Asked again when the round is given up: whoever it asked is no leader now, and the next one is not known yet.
            None => {}
            Some(index) => {
                let Some(round) = self.rounds.remove(&number) else { return };
                self.confirmed.entry(index).or_default().extend(round.reads);
            }
        }
    }

    /// Whether this leader may answer from what it knows now.
    pub(super) fn lease_holds(&self, now: Instant, term: Term) -> bool {
        self.void != Some(term) && self.lease.is_some_and(|it| it.term == term && now < it.until)
    }

    /// A successor is asked to stand: its election will not wait for any lease.
    pub(super) fn void_lease(&mut self, term: Term) {
        self.void = Some(term);
    }

    /// Answers by lease what waits here. Returns the guests that are to be told.
    pub(super) fn confirm_by_lease(&mut self, commit: Index) -> Vec<(NodeId, Ask)> {
        let reads = std::mem::take(&mut self.waiting);
        self.confirmed.entry(commit).or_default().extend(reads);
        std::mem::take(&mut self.guests)
    }

    /// Who leads has changed: what was asked of the former leader, or as one, is asked anew. Returns the guests that must ask elsewhere.
    pub(super) fn on_new_role(&mut self, leads: bool) -> Vec<(NodeId, Ask)> {
        let mut guests = if leads { Vec::new() } else { std::mem::take(&mut self.guests) };
        for (_, round) in std::mem::take(&mut self.rounds) {
            self.waiting.extend(round.reads);
            guests.extend(round.guests);
        }
        self.lease = None;
        guests
    }

    /// Everything up to `index` has been handed out: answers what waited for it.
    pub(super) fn on_handed(&mut self, index: Index, out: &mut Vec<Effect>) {
        while let Some(first) = self.confirmed.first_entry().filter(|it| *it.key() <= index) {
            let (at, reads) = first.remove_entry();
            for tag in reads {
                self.open.remove(&tag);
                out.push(Effect::ReadAt { tag, index: at });
            }
        }
    }

    /// Gives up rounds whose leader has not answered for `retry`, and reads whose patience is over.
    pub(super) fn expire(&mut self, now: Instant, retry: Duration, leader: Option<NodeId>, out: &mut Vec<Effect>) {
        let stale: Vec<u64> = self
            .rounds
            .iter()
            .filter(|(_, it)| it.asked.is_some() && it.sent + retry <= now)
            .map(|(number, _)| *number)
            .collect();
        for number in stale {
            self.waiting.extend(self.rounds.remove(&number).into_iter().flat_map(|it| it.reads));
        }
        let mut over = BTreeSet::new();
        while let Some((_, tag)) = self.limits.front().copied().filter(|(limit, _)| *limit <= now) {
            self.limits.pop_front();
            if self.open.remove(&tag) {
                over.insert(tag);
            }
        }
        if over.is_empty() {
            return;
        }
        let rounds = self.rounds.values_mut().map(|it| &mut it.reads);
        for reads in rounds.chain(self.confirmed.values_mut()).chain([&mut self.waiting]) {
            reads.retain(|tag| !over.contains(tag));
        }
        self.confirmed.retain(|_, reads| !reads.is_empty());
        self.rounds.retain(|_, it| !it.reads.is_empty() || !it.guests.is_empty());
        out.extend(over.into_iter().map(|tag| Effect::Reject { tag, why: Reason::NoLeader, leader }));
    }

    pub(super) fn deadline(&self, retry: Duration) -> Option<Instant> {
        let retries = self.rounds.values().filter(|it| it.asked.is_some()).map(|it| it.sent + retry);
        retries.chain(self.limits.front().map(|(limit, _)| *limit)).min()
    }
}

/// How long after the send of a question a quorum's answer forbids another leader: followers keep their word for an election timeout by their
/// own clocks, counted in whole ticks, of which the first may end at once.
fn lease_span(settings: &Settings, drift_ppm: u32) -> Duration {
    let promised = settings.tick * settings.election_ticks.saturating_sub(1);
    let slower = 1_000_000 - u128::from(drift_ppm);
    let faster = 1_000_000 + u128::from(drift_ppm);
    Duration::from_nanos(u64::try_from(promised.as_nanos() * slower / faster).unwrap_or(u64::MAX))
}

fn context(run: u64, round: u64) -> Bytes {
    let mut bytes = BytesMut::with_capacity(16);
    bytes.put_u64(run);
    bytes.put_u64(round);
    bytes.freeze()
}

fn number_in(run: u64, bytes: &[u8]) -> Option<u64> {
    let (ours, round) = bytes.split_at_checked(8)?;
    (ours == run.to_be_bytes()).then(|| round.try_into().ok().map(u64::from_be_bytes))?
}
