//! One replica of the service's log: pure, one door in, one list out, one deadline.
//!
//! ```text
//!   Input: Receive · Propose · Read · Persisted · Wake · ...
//!      │                                                          proposals.rs   gathered, appended in batches, forwarded
//!      ▼                                                          reads.rs       confirmed by a quorum, without a write
//!   Replica::step(now, input, effects) ──► Engine (engine/)       streams.rs     snapshots in parts
//!      │                                                          letter.rs      what replicas say to each other
//!      ▼                                                          content.rs     what stands in an entry
//!   Effect: Send · Write · Commit · ReadAt · Reject · Install · Role · ...
//! ```
//! **Problem.** A leader must not wait for its own disk before it sends, and must not say anything that its disk could forget. **Insight.** What
//! binds a node is its term, its vote and what it has acknowledged; a leader's entries bind nobody until a quorum has them. So entries leave
//! at once, answers wait for their mark, and nothing at all leaves while a new term or vote is not safe.
//!
//! Time in the log is the leader's own, added to the last time that the log said when it was elected: it never goes back, and a change of leaders
//! can lengthen a lease, never shorten it.
//!
//! Left to the driver: lines and who is at their other end, the disk, applying what is decided. Left to the store: that a request which was
//! proposed twice has one effect.

mod content;
mod engine;
mod exchange;
mod letter;
mod proposals;
mod reads;
mod recovery;
mod roll;
mod settings;
mod streams;
mod tempo;

use std::collections::VecDeque;

use bytes::Bytes;
use incumbent_protocol::protocol::{NodeId, Term};
use incumbent_protocol::time::Instant;

use self::engine::{Engine, Outgoing, Turn};
use self::letter::{Ask, Body, Forward, Returned, Tell};
use self::proposals::Proposals;
use self::reads::Reads;
use self::streams::{Ended, Stored, Streams};
use self::tempo::Tempo;

pub use self::exchange::{
    ClusterTime, Committed, Content, Effect, Entry, Health, Index, Input, Item, Lane, Mark, Place, Reason, Recovered, Role,
    Snapshot, Step, Tag, Vote, Write,
};
pub use self::letter::{LETTER_BYTES_MAX, Promise, promise};
pub use self::recovery::BadStart;
pub use self::roll::{BadRoll, LEARNERS_MAX, Roll, VOTERS_MAX};
pub use self::settings::{BadSettings, Lateness, Reads as ReadSettings, Settings};

/// A node may vote when it is so close to the end of the log that it will be there in a moment.
const PROMOTION_LAG_MAX: u64 = 1_000;

/// One node's part in the log. See the head of this file.
pub struct Replica {
    id: NodeId,
    settings: Settings,
    engine: Engine,
    proposals: Proposals,
    reads: Reads,
    streams: Streams,
    tempo: Tempo,
    /// Turns whose writes are not yet known to be safe, oldest first.
    unsafe_turns: VecDeque<Unsafe>,
    last_mark: Mark,
    /// The term in which it started.
    first_term: Term,
    /// A commit index alone is not worth a write: it goes with the next.
    vote_owed: Option<Vote>,
    /// What was last told by [`Effect::Role`].
    told: Role,
    /// Since when this node leads, and what the log said then.
    office: Option<(Instant, ClusterTime)>,
    /// All up to this index has been handed out.
    handed: Index,
    /// The snapshot that the disk is taking.
    taking: Option<Snapshot>,
    saved_bytes: u64,
    /// The length of the snapshot that came last from another node.
    stored_bytes: u64,
    halted: bool,
}

struct Unsafe {
    mark: Mark,
    turn: u64,
    held: Vec<Outgoing>,
    binding: bool,
    appends: bool,
    since: Instant,
}

/// What can be seen of a replica: for oracles, metrics and people, never for decisions.
#[derive(Clone, PartialEq, Debug)]
pub struct View {
    /// Who leads.
    pub role: Role,
    /// Up to where entries are known to be decided.
    pub commit: Index,
    /// The first entry that is in memory.
    pub first: Index,
    /// The last entry.
    pub last: Index,
    /// Up to where entries have been handed out.
    pub handed: Index,
    /// Bytes of all entries in memory.
    pub log_bytes: u64,
}

impl Replica {
    /// Starts from what the disk held. `run` is never the same for two starts: draw it by chance. `seed` decides what is left to chance.
    pub fn start(
        id: NodeId,
        run: u64,
        seed: u64,
        settings: Settings,
        recovered: Recovered,
        now: Instant,
    ) -> Result<Replica, BadStart> {
        settings.check().map_err(BadStart::Settings)?;
        let recovered = recovery::check(recovered)?;
        let (handed, saved_bytes) = (recovered.snapshot.index, recovered.snapshot_bytes);
        let engine = Engine::start(id, seed, &settings, recovered);
        let told = engine.role();
        let tempo = Tempo::new(now, &settings, &engine);
        Ok(Replica {
            id,
            proposals: Proposals::new(id, run, settings.patience),
            reads: Reads::new(run),
            streams: Streams::default(),
            settings,
            engine,
            tempo,
            unsafe_turns: VecDeque::new(),
            last_mark: Mark(0),
            first_term: told.term,
            vote_owed: None,
            told,
            office: None,
            handed,
            taking: None,
            saved_bytes,
            stored_bytes: 0,
            halted: false,
        })
    }

    /// The only door in. `now` is read *after* the input has come, or a read might be answered from before its question.
    pub fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Effect>) {
        if self.halted {
            self.refuse_all(input, out);
            return;
        }
        self.tempo.advance(now, &self.settings, &mut self.engine);
        self.settle(now, out);
        match input {
            Input::Wake => {}
            Input::Receive { from, bytes } => self.on_letter(now, from, &bytes, out),
            Input::Propose { tag, payload, place } => self.on_propose(now, tag, payload, place, out),
            Input::Read { tag } => {
                if let Err(why) = self.reads.take(now, tag, &self.settings) {
                    self.reject(tag, why, out);
                }
            }
            Input::Transfer { to } => self.transfer(now, to),
            Input::Change { tag, steps } => self.on_change(now, tag, &steps, out),
            Input::Persisted(mark) => self.on_persisted(mark, out),
            Input::Saved { index, bytes } => self.on_saved(index, bytes, out),
            Input::Piece { to, index, offset, bytes } => {
                let ended = self.streams.on_piece(to, self.engine.term(), index, offset, bytes, out);
                self.on_stream_end(to, ended);
            }
            Input::Stored { index, whole } => {
                if let Some(Stored { from, term, snapshot, bytes }) =
                    self.streams.on_stored(self.engine.term(), index, whole, out)
                {
                    self.stored_bytes = bytes;
                    // One that has come too late is of no use, and the engine tells the leader how far this node is.
                    let _ = self.engine.accept_snapshot(from, term, snapshot);
                }
            }
            Input::Unreachable(peer) => self.engine.unreachable(peer),
            Input::Refused(peer) => {
                self.engine.unreachable(peer);
                self.tempo.on_death(now, self.id, peer, &self.settings, &mut self.engine);
            }
            Input::Health(health) => {
                self.engine.judge(health == Health::Fit);
                if health == Health::Unfit {
                    self.give_away(now);
                }
            }
        }
        self.settle(now, out);
    }

    /// When to wake it, if nothing else happens before.
    pub fn deadline(&self) -> Option<Instant> {
        if self.halted {
            return None;
        }
        let disk = self.unsafe_turns.front().filter(|_| self.engine.leads()).map(|it| it.since + self.settings.disk_patience);
        let deadlines = [
            self.tempo.deadline(&self.settings, &self.engine),
            self.proposals.deadline(),
            self.reads.deadline(self.settings.election_timeout()),
            self.streams.deadline(&self.settings),
            disk.map(|at| self.tempo.not_before(at)),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// What the log will say the time is, if this node leads.
    pub fn cluster_time(&self, now: Instant) -> Option<ClusterTime> {
        let (since, base) = self.office?;
        let elapsed = u64::try_from((now - since).as_nanos()).unwrap_or(u64::MAX);
        Some(ClusterTime(base.0.saturating_add(elapsed)))
    }

    /// The members.
    pub fn roll(&self) -> &Roll {
        self.engine.roll()
    }

    /// The term of an entry, if it is here.
    pub fn term_at(&self, index: Index) -> Option<Term> {
        self.engine.term_at(index)
    }

    /// What can be seen.
    pub fn view(&self) -> View {
        View {
            role: self.engine.role(),
            commit: self.engine.commit(),
            first: self.engine.first(),
            last: self.engine.last(),
            handed: self.handed,
            log_bytes: self.engine.log_bytes(),
        }
    }

    fn reject(&self, tag: Tag, why: Reason, out: &mut Vec<Effect>) {
        out.push(Effect::Reject { tag, why, leader: self.engine.leader() });
    }

    /// A replica that has halted answers, and does nothing else.
    fn refuse_all(&self, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Propose { tag, .. } | Input::Read { tag } | Input::Change { tag, .. } => self.reject(tag, Reason::Halted, out),
            Input::Wake
            | Input::Receive { .. }
            | Input::Transfer { .. }
            | Input::Persisted(_)
            | Input::Saved { .. }
            | Input::Piece { .. }
            | Input::Stored { .. }
            | Input::Unreachable(_)
            | Input::Refused(_)
            | Input::Health(_) => {}
        }
    }

    // What comes in.

    fn on_letter(&mut self, now: Instant, from: NodeId, bytes: &Bytes, out: &mut Vec<Effect>) {
        let Some(body) = letter::open(bytes) else { return };
        match body {
            Body::Raft(raft) => {
                if !self.tempo.may_hear(now, from, &raft, &self.engine) {
                    return;
                }
                // What is unfit is as if it had been lost.
                if self.engine.receive(from, &raft).is_ok() && self.engine.leader() == Some(from) {
                    self.tempo.on_leader_heard();
                }
            }
            Body::Forward(forward) => self.on_forward(from, forward, out),
            Body::Returned(Returned { run, term, tags, full }) => self.proposals.on_returned(run, Term(term), &tags, full, out),
            Body::Ask(ask) => {
                if !self.engine.leads() || !self.reads.take_guest(from, ask.clone(), &self.settings) {
                    tell(from, &ask, None, out);
                }
            }
            Body::Tell(Tell { run, round, index }) => self.reads.on_tell(from, run, round, index),
            Body::Piece(piece) => {
                let snapshot = piece.snapshot.as_ref().and_then(letter::Outline::snapshot);
                match snapshot {
                    // Nothing of it is needed here; by the engine's answer its sender learns how far this node is.
                    Some(snapshot) if snapshot.index <= self.engine.commit() => {
                        let _ = self.engine.accept_snapshot(from, Term(piece.term), snapshot);
                    }
                    Some(_) | None => self.streams.on_arrival(from, self.engine.term(), piece, &self.settings, out),
                }
            }
            Body::Have(have) => {
                if self.engine.leads() {
                    let ended = self.streams.on_have(now, from, &have, &self.settings, out);
                    self.on_stream_end(from, ended);
                }
            }
        }
    }

    fn on_forward(&mut self, from: NodeId, forward: Forward, out: &mut Vec<Effect>) {
        if !self.engine.roll().contains(from) || !self.proposals.admit(from, &forward) {
            return;
        }
        let (run, term) = (forward.run, forward.term);
        let (tags, full) = if self.engine.leads() && self.engine.term().0 == term {
            (self.proposals.take_guests(from, forward, &self.settings), true)
        } else if term > self.first_term.0 {
            (forward.items.iter().map(|it| it.tag).collect(), false)
        } else {
            // Before this start the node may have led in that term, and a first letter may have come: nobody here can say what became of it.
            return;
        };
        if !tags.is_empty() {
            give_back(from, Returned { run, term, tags, full }, out);
        }
    }

    fn on_propose(&mut self, now: Instant, tag: Tag, payload: Bytes, place: Place, out: &mut Vec<Effect>) {
        if let Place::Here(term) = place
            && !(self.engine.leads() && self.engine.term() == term)
        {
            self.reject(tag, Reason::NotHere, out);
        } else if let Err(why) = self.proposals.take(now, tag, payload, place, &self.settings) {
            self.reject(tag, why, out);
        }
    }

    fn on_change(&mut self, now: Instant, tag: Tag, steps: &[Step], out: &mut Vec<Effect>) {
        if let Err(why) = self.check_change(steps) {
            self.reject(tag, why, out);
            return;
        }
        let change = content::Change::new(steps, self.proposals.source(tag));
        match self.engine.propose_change(change.bare()) {
            Ok(_) => self.proposals.watch_change(now, tag, self.engine.term()),
            Err(engine::Dropped) => self.reject(tag, Reason::ChangeUnderWay, out),
        }
    }

    fn check_change(&self, steps: &[Step]) -> Result<(), Reason> {
        if !self.engine.leads() {
            return Err(Reason::NoLeader);
        }
        if !self.engine.may_change() || self.engine.transferring() {
            return Err(Reason::ChangeUnderWay);
        }
        let roll = self.engine.roll();
        let (mut voters, mut learners) = (roll.voters().clone(), roll.learners().clone());
        for step in steps {
            let node = step.node();
            let news = match step {
                Step::Voter(_) => {
                    // A voter that knows nothing could stop all others: who is new learns first.
                    if !voters.contains(&node) && self.engine.lag(node).is_none_or(|lag| lag > PROMOTION_LAG_MAX) {
                        return Err(Reason::Behind);
                    }
                    learners.remove(&node);
                    voters.insert(node)
                }
                Step::Learner(_) => {
                    voters.remove(&node);
                    learners.insert(node)
                }
                Step::Remove(_) => voters.remove(&node) | learners.remove(&node),
            };
            if !news {
                return Err(Reason::BadChange);
            }
        }
        let possible = Roll::assemble(voters, learners, [], []).is_ok();
        if possible && !steps.is_empty() { Ok(()) } else { Err(Reason::BadChange) }
    }

    fn on_persisted(&mut self, mark: Mark, out: &mut Vec<Effect>) {
        let mut last = None;
        while let Some(turn) = self.unsafe_turns.pop_front_if_marked(mark) {
            last = Some(turn.turn);
            for letter in turn.held {
                send(letter, out);
            }
        }
        if let Some(turn) = last {
            self.on_safe(turn, out);
        }
    }

    /// The writes of all turns up to this one are safe.
    fn on_safe(&mut self, turn: u64, out: &mut Vec<Effect>) {
        if let Some(snapshot) = self.engine.persisted(turn) {
            self.handed = snapshot.index;
            self.taking = None;
            self.saved_bytes = self.stored_bytes;
            self.proposals.on_skipped(out);
            let (index, roll) = (snapshot.index, snapshot.roll.clone());
            out.push(Effect::Install(snapshot));
            out.push(Effect::Members { index, roll });
        }
    }

    fn on_saved(&mut self, index: Index, bytes: u64, out: &mut Vec<Effect>) {
        let Some(snapshot) = self.taking.take_if(|it| it.index == index) else { return };
        self.engine.saved_snapshot(snapshot);
        self.saved_bytes = bytes;
        let mut gone = self.engine.compact(index.saturating_sub(self.settings.entries_kept));
        if self.engine.log_bytes() > self.settings.snapshot_bytes / 2 {
            gone = self.engine.compact(index);
        }
        out.push(Effect::Compact(gone));
    }

    fn on_stream_end(&mut self, to: NodeId, ended: Option<Ended>) {
        if let Some(ended) = ended {
            self.engine.snapshot_sent(to, ended == Ended::Arrived);
        }
    }

    // Giving the leadership away.

    fn transfer(&mut self, now: Instant, to: Option<NodeId>) {
        if !self.engine.leads() || self.engine.transferring() {
            return;
        }
        if let Some(to) = to.or_else(|| self.engine.best_successor()) {
            self.reads.void_lease(self.engine.term());
            self.tempo.on_transfer(now, &self.settings);
            self.engine.transfer(to);
        }
    }

    /// This node should not lead: it asks another to, and if that has not helped, it stops.
    fn give_away(&mut self, now: Instant) {
        if !self.engine.leads() || self.engine.alone() {
            return;
        }
        if self.tempo.transfer_failed(now) {
            self.engine.step_down();
        } else {
            self.transfer(now, None);
        }
    }

    // What goes out.

    /// Does all that can be done now.
    fn settle(&mut self, now: Instant, out: &mut Vec<Effect>) {
        self.proposals.expire(now, self.engine.leader(), out);
        self.reads.expire(now, self.settings.election_timeout(), self.engine.leader(), out);
        let late = self.unsafe_turns.front().is_some_and(|it| it.since + self.settings.disk_patience <= now);
        if late || self.tempo.too_late(&self.settings) {
            self.give_away(now);
        }
        for peer in self.streams.expire(now, self.engine.term(), &self.settings, out) {
            self.engine.snapshot_sent(peer, false);
        }
        loop {
            self.carry_out(now, out);
            self.note_role(now, out);
            if self.halted || !(self.pass_proposals(now, out) | self.pass_reads(now, out)) {
                break;
            }
        }
        self.reads.on_handed(self.handed, out);
        self.want_snapshot(out);
    }

    /// Carries out the engine's turns until it wants nothing more.
    fn carry_out(&mut self, now: Instant, out: &mut Vec<Effect>) {
        while !self.halted
            && !self.engine.settling()
            && let Some(turn) = self.engine.turn()
        {
            self.carry_out_one(now, turn, out);
        }
    }

    fn carry_out_one(&mut self, now: Instant, mut turn: Turn, out: &mut Vec<Effect>) {
        let bound = turn.binding || self.unsafe_turns.iter().any(|it| it.binding);
        if bound {
            // Not even a leader's entries: a lone voter that forgot its term would lead in it twice.
            turn.held.splice(0..0, turn.prompt.drain(..));
        } else {
            // That this node hears its leader promises nothing about its log, so it need not wait for the disk.
            let free = turn.held.extract_if(.., |it| it.letter.kind == letter::Kind::HeartbeatAnswer as i32);
            turn.prompt.extend(free);
        }
        for letter in turn.prompt {
            send(letter, out);
        }
        let vote = turn.vote.or(self.vote_owed.take());
        let writes = turn.reset.is_some() || !turn.entries.is_empty() || turn.must_sync;
        if writes {
            self.last_mark = Mark(self.last_mark.0 + 1);
        } else {
            self.vote_owed = vote;
        }
        let kept = Unsafe {
            mark: self.last_mark,
            turn: turn.number,
            held: turn.held,
            binding: turn.binding,
            appends: !turn.entries.is_empty(),
            since: now,
        };
        if writes {
            let (mark, must_sync) = (self.last_mark, turn.must_sync);
            out.push(Effect::Write(Write { mark, reset: turn.reset, entries: turn.entries, vote, must_sync }));
            self.unsafe_turns.push_back(kept);
        } else if self.unsafe_turns.is_empty() {
            for letter in kept.held {
                send(letter, out);
            }
            self.on_safe(kept.turn, out);
        } else {
            self.unsafe_turns.push_back(kept);
        }
        for peer in turn.behind {
            let saved = self.engine.saved().clone();
            self.streams.send(now, peer, self.engine.term(), &saved, self.saved_bytes, out);
        }
        for (context, index) in turn.reads {
            for (to, ask) in self.reads.on_confirmed(&context, index, &self.settings) {
                tell(to, &ask, Some(index), out);
            }
        }
        self.hand_out(turn.committed, out);
    }

    /// Hands out what is decided. Changes of members take effect here.
    fn hand_out(&mut self, entries: Vec<Entry>, out: &mut Vec<Effect>) {
        let mut committed = Vec::with_capacity(entries.len());
        let mut news = Vec::new();
        for entry in entries {
            let index = entry.index;
            let Some(content) = self.read_content(&entry, &mut news) else {
                out.push(Effect::Commit(committed));
                out.push(Effect::Halt { index });
                self.halted = true;
                return;
            };
            self.handed = index;
            committed.push(Committed { index, term: entry.term, content });
            self.proposals.on_decided(entry.term, out);
        }
        if !committed.is_empty() {
            out.push(Effect::Commit(committed));
            out.append(&mut news);
            self.engine.applied(self.handed);
        }
    }

    /// None if it cannot be read: then this node must not go on, for it would not know what the others know.
    fn read_content(&mut self, entry: &Entry, news: &mut Vec<Effect>) -> Option<Content> {
        match content::kind(&entry.bytes)? {
            content::Kind::Nothing => Some(Content::Nothing),
            content::Kind::Batch => {
                let batch = content::read_batch(&entry.bytes)?;
                let item = |it: content::BatchItem| Item { tag: self.proposals.on_item(it.source), payload: it.payload };
                Some(Content::Batch { at: ClusterTime(batch.at), items: batch.items.into_iter().map(item).collect() })
            }
            content::Kind::Change => {
                let change = content::read_change(&content::undress_change(&entry.bytes))?;
                let tag = change.source().and_then(|source| self.proposals.on_item(source));
                // What makes no sense any longer changes nothing, and does so on every node.
                if let Some(roll) = change.read_steps().and_then(|steps| self.engine.apply_change(&steps)) {
                    news.push(Effect::Members { index: entry.index, roll });
                }
                Some(Content::Members { tag, roll: self.engine.roll().clone() })
            }
        }
    }

    fn note_role(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let role = self.engine.role();
        if role == self.told {
            return;
        }
        let was = std::mem::replace(&mut self.told, role);
        out.push(Effect::Role(role));
        if role.leads && (!was.leads || was.term != role.term) {
            self.office = Some((now, self.engine.time()));
        } else if !role.leads {
            self.office = None;
            self.streams.stop_sending();
        }
        self.tempo.on_role(role);
        for (to, ask) in self.reads.on_new_role(role.leads) {
            tell(to, &ask, None, out);
        }
    }

    /// Appends or forwards what is queued. Whether the engine may want something now.
    fn pass_proposals(&mut self, now: Instant, out: &mut Vec<Effect>) -> bool {
        if self.proposals.is_empty() {
            return false;
        }
        let term = self.engine.term();
        let mut returned = Vec::new();
        let mut appended = false;
        if self.engine.leads() {
            // While the disk is at work, proposals gather: one write then takes all of them.
            if self.engine.transferring() || self.unsafe_turns.iter().any(|it| it.appends) {
                return false;
            }
            let at = self.cluster_time(now).unwrap_or_default();
            while let Some(batch) = self.proposals.next_batch(term, at, &self.settings, &mut returned, out) {
                if self.engine.propose(content::write_batch(&batch)).is_err() {
                    self.proposals.put_back(batch, term);
                    break;
                }
                appended = true;
            }
        } else if let Some(leader) = self.engine.leader() {
            while let Some(forward) = self.proposals.next_forward(term, &self.settings, &mut returned, out) {
                out.push(Effect::Send { to: leader, lane: Lane::Bulk, bytes: letter::seal(Body::Forward(forward)) });
            }
        }
        for (to, meant, run, tag) in returned {
            give_back(to, Returned { run, term: meant.0, tags: vec![tag], full: false }, out);
        }
        appended
    }

    /// Asks a quorum, or the leader, for what waits to be read. Whether the engine may want something now.
    fn pass_reads(&mut self, now: Instant, out: &mut Vec<Effect>) -> bool {
        let term = self.engine.term();
        if self.engine.leads() {
            if !self.engine.knows_commit() {
                return false;
            }
            if self.reads.lease_holds(now, term) {
                let commit = self.engine.commit();
                for (to, ask) in self.reads.confirm_by_lease(commit) {
                    tell(to, &ask, Some(commit), out);
                }
            } else if let Some(context) = self.reads.next_round(now, term) {
                self.engine.read(context);
                return true;
            }
        } else if let Some(leader) = self.engine.leader()
            && let Some(ask) = self.reads.next_ask(now, leader, term)
        {
            out.push(Effect::Send { to: leader, lane: Lane::Prompt, bytes: letter::seal(Body::Ask(ask)) });
        }
        false
    }

    /// Wants a snapshot when the log has grown. Not while one is on its way to somebody: it would be taken from under it.
    fn want_snapshot(&mut self, out: &mut Vec<Effect>) {
        let grown = self.handed.saturating_sub(self.engine.saved().index);
        let due =
            grown >= self.settings.snapshot_entries || (self.engine.log_bytes() >= self.settings.snapshot_bytes && grown > 0);
        let busy = self.taking.is_some() || (self.streams.sending() && !self.engine.snapshot_wanted());
        if self.halted || !due || busy || self.engine.settling() {
            return;
        }
        let Some(term) = self.engine.term_at(self.handed) else { return };
        let at = self.engine.time_at(self.handed);
        let snapshot = Snapshot { index: self.handed, term, at, roll: self.engine.roll().clone() };
        self.taking = Some(snapshot.clone());
        out.push(Effect::TakeSnapshot(snapshot));
    }
}

/// Turns in the order of their marks.
trait Marked {
    /// The oldest, if it is safe once `mark` is.
    fn pop_front_if_marked(&mut self, mark: Mark) -> Option<Unsafe>;
}

impl Marked for VecDeque<Unsafe> {
    fn pop_front_if_marked(&mut self, mark: Mark) -> Option<Unsafe> {
        if self.front().is_some_and(|it| it.mark <= mark) { self.pop_front() } else { None }
    }
}

fn send(letter: Outgoing, out: &mut Vec<Effect>) {
    out.push(Effect::Send { to: letter.to, lane: letter.lane, bytes: letter::seal(Body::Raft(letter.letter)) });
}

fn tell(to: NodeId, ask: &Ask, index: Option<Index>, out: &mut Vec<Effect>) {
    let tell = Tell { run: ask.run, round: ask.round, index };
    out.push(Effect::Send { to, lane: Lane::Prompt, bytes: letter::seal(Body::Tell(tell)) });
}

fn give_back(to: NodeId, returned: Returned, out: &mut Vec<Effect>) {
    out.push(Effect::Send { to, lane: Lane::Prompt, bytes: letter::seal(Body::Returned(returned)) });
}
