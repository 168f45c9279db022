//! One replica of the service's log: pure, one door in, one list out, one deadline.
//!
//! ```text
//!   Input: Receive · Propose · Read · Persisted · Wake · ...
//!      │                                                          proposals.rs   gathered, appended in batches, forwarded
//!      ▼                                                          reads.rs       confirmed by a quorum, without a write
//!   Replica::step(now, inputs, effects) ─► Engine (engine/)       streams.rs     snapshots in parts
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
//! A cluster of one, with a disk that is never lost:
//! ```
//! use incumbent_protocol::{protocol::NodeId, time::Instant};
//! use incumbent_service::replica::{Content, Effect, Input, Place, Recovered, Replica, Roll, Settings, Tag};
//!
//! let roll = Roll::of([NodeId(0)]).expect("one voter");
//! let now = Instant::ZERO;
//! let mut replica = Replica::start(NodeId(0), 1, 7, Settings::lan(), Recovered::birth(roll), now).expect("a birth");
//! let mut inputs = vec![Input::Propose { tag: Tag(1), payload: "hello".into(), place: Place::Anywhere }];
//! let mut applied = Vec::new();
//! while let Some(input) = inputs.pop() {
//!     let mut effects = Vec::new();
//!     replica.step(now, [input], &mut effects);
//!     for effect in effects {
//!         match effect {
//!             Effect::Write(write) => inputs.push(Input::Persisted(write.mark)),
//!             Effect::Commit(entries) => applied.extend(entries.into_iter().map(|it| it.content)),
//!             _ => {}
//!         }
//!     }
//! }
//! assert!(matches!(&applied[..], [Content::Nothing, Content::Batch { items, .. }] if items[0].tag == Some(Tag(1))));
//! ```
//!
//! Left to the driver: lines and who is at their other end, the disk, applying what is decided. Left to the store: that a request which was
//! proposed twice has one effect.

mod carry;
mod content;
mod engine;
mod exchange;
mod fitness;
mod letter;
mod origin;
mod proposals;
mod reads;
mod recovery;
mod roll;
mod settings;
mod streams;
mod tempo;

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use incumbent_protocol::protocol::{NodeId, Term};
use incumbent_protocol::time::Instant;

use self::carry::{give_back, send, tell};
use self::engine::{Engine, Outgoing, Successor, Unfit};
use self::fitness::Fitness;
use self::letter::{Body, Forward, Kind, Raft, Returned, Tell};
use self::proposals::Proposals;
use self::reads::Reads;
use self::streams::{Ended, Stored, Streams};
use self::tempo::Tempo;

pub use self::exchange::{
    ClusterTime, Committed, Content, Effect, Entry, Extent, Halt, Health, Index, Input, Item, Lane, Mark, Place, Reason,
    Recovered, Role, Snapshot, Step, Tag, Vote, Write,
};
pub use self::letter::{LETTER_BYTES_MAX, Promise, promise};
pub use self::origin::Origin;
pub use self::recovery::BadStart;
pub use self::roll::{BadRoll, LEARNERS_MAX, Roll, VOTERS_MAX};
pub use self::settings::{BadSettings, Lateness, Reads as ReadSettings, Settings};

/// A node may vote when it is so close to the end of the log that it will be there in a moment.
const PROMOTION_LAG_MAX: u64 = 1_000;

/// A snapshot that could not be saved is tried so often while the log grows by as much as makes one due.
const RETRIES_PER_SNAPSHOT: u64 = 8;

/// When no snapshot can be saved, nothing is appended to a log that is so many times as long as makes one due.
const LOG_LENGTHS_MAX: u64 = 8;

/// While a snapshot is on its way to another node, the next one waits until the log is so many times as long: whoever is slower than that needs another afterwards, but nobody's writes are refused for it.
const LOG_LENGTHS_WHILE_SENDING: u64 = LOG_LENGTHS_MAX / 2;

/// One node's part in the log. See the head of this file.
pub struct Replica {
    id: NodeId,
    settings: Settings,
    engine: Engine,
    proposals: Proposals,
    reads: Reads,
    streams: Streams,
    tempo: Tempo,
    fitness: Fitness,
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
    /// What the others have not been told of what is decided.
    news: News,
    /// The snapshot that the disk is taking.
    taking: Option<Snapshot>,
    /// No snapshot is taken before this entry: the disk has refused one.
    save_from: Index,
    /// The extent of the newest snapshot on the disk, and of the one that came last from another node.
    saved: Extent,
    stored: Extent,
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

/// That more is decided is told with the next entries, which mostly follow at once; if none do, in a moment; and now if another node waits for it.
#[derive(Default)]
struct News {
    /// All up to this index was told.
    told: Index,
    /// When the rest is told.
    due: Option<Instant>,
    /// Another node waits for it.
    awaited: bool,
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
        let (handed, saved) = (recovered.snapshot.index, recovered.extent);
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
            fitness: Fitness::default(),
            unsafe_turns: VecDeque::new(),
            last_mark: Mark(0),
            first_term: told.term,
            vote_owed: None,
            told,
            office: None,
            handed,
            news: News::default(),
            taking: None,
            save_from: 0,
            saved,
            stored: Extent::default(),
            halted: false,
        })
    }

    /// The only door in. What has come together is best given together: it is appended, sent and written together. `now` is read *after* the inputs have come, or a read might be
    /// answered from before its question.
    pub fn step(&mut self, now: Instant, inputs: impl IntoIterator<Item = Input>, out: &mut Vec<Effect>) {
        if !self.halted {
            self.engine.hesitate(self.disk_is_slow(now));
            self.tempo.advance(now, &self.settings, &mut self.engine);
            self.settle(now, out);
        }
        for input in inputs {
            if self.halted {
                self.refuse_all(input, out);
            } else {
                self.take_in(now, input, out);
            }
        }
        if !self.halted {
            self.settle(now, out);
        }
    }

    fn take_in(&mut self, now: Instant, input: Input, out: &mut Vec<Effect>) {
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
            Input::Persisted(mark) => self.on_persisted(now, mark, out),
            Input::Saved { index, extent } => self.on_saved(index, extent, out),
            Input::Unsaved { index } => {
                self.taking.take_if(|it| it.index == index);
                self.save_from = self.handed + self.settings.snapshot_entries.div_ceil(RETRIES_PER_SNAPSHOT);
            }
            Input::Piece { to, index, offset, bytes } => {
                let ended = self.streams.on_piece(to, self.engine.term(), index, offset, bytes, out);
                self.on_stream_end(to, ended);
            }
            Input::Expecting { index, have } => self.streams.on_expecting(self.engine.term(), index, have, out),
            Input::Kept { index, have } => self.streams.on_kept(self.engine.term(), index, have, out),
            Input::Stored { index, whole } => {
                if let Some(Stored { from, term, snapshot, extent }) =
                    self.streams.on_stored(self.engine.term(), index, whole, out)
                {
                    self.stored = extent;
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
                self.fitness.judge(health);
            }
        }
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
            self.news.due,
            disk.map(|at| self.tempo.not_before(at)),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Whether this node's disk is too slow for a leader's.
    pub fn disk_is_slow(&self, now: Instant) -> bool {
        self.disk(now) >= self.settings.disk_patience
    }

    /// How long this node's disk takes.
    fn disk(&self, now: Instant) -> Duration {
        self.fitness.disk(now, self.unsafe_turns.front().map(|it| it.since), &self.settings)
    }

    /// How long this node holds up those whom it leads, or would.
    fn slowness(&self, now: Instant) -> Duration {
        self.fitness.slowness(now, self.disk(now), &self.settings)
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

    /// How far behind the end of the log the others are, if this node leads and has heard of it from them.
    pub fn lags(&self) -> BTreeMap<NodeId, u64> {
        let others = self.engine.roll().everyone().into_iter().filter(|it| *it != self.id && self.engine.leads());
        others.filter_map(|it| Some((it, self.engine.lag(it)?))).collect()
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
            | Input::Unsaved { .. }
            | Input::Piece { .. }
            | Input::Expecting { .. }
            | Input::Kept { .. }
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
                if !self.tempo.may_hear(now, from, &raft, &self.engine) || self.overfills(&raft) {
                    return;
                }
                if let Some(index) = self.contradicted(&raft) {
                    out.push(Effect::Halt { index, why: Halt::Contradicted { by: from } });
                    self.halted = true;
                    return;
                }
                match self.engine.receive(from, &raft) {
                    Ok(()) => {
                        self.fitness.on_told(from, raft.slow_ms);
                        if self.engine.leader() == Some(from) {
                            self.tempo.on_leader_heard();
                        }
                    }
                    // It must vote no more, as it may have voted, and it would wait for ever: what it has confirmed, a leader does not send again.
                    Err(Unfit::Forgotten) => {
                        out.push(Effect::Halt { index: raft.commit, why: Halt::Forgotten { by: from } });
                        self.halted = true;
                    }
                    // As if it had been lost.
                    Err(Unfit::Form | Unfit::Term | Unfit::Entries | Unfit::Index | Unfit::Sender | Unfit::NotNow) => {}
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
                        streams::have_all(from, self.engine.term(), &snapshot, piece.total, out);
                        let _ = self.engine.accept_snapshot(from, Term(piece.term), snapshot);
                    }
                    // One is about to take the log's place, and whoever keeps stores keeps it for that: another would take it from under it. Its sender asks again.
                    Some(_) | None if self.engine.settling() => {}
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

    /// Which decided entry of ours a leader denies. None can, as long as nobody loses what it has acknowledged: a leader has all that is decided. One that does was elected by nodes whose disks have forgotten,
    /// and the engine would take our word for it that we have all that it has: two nodes would give two answers for ever, and nobody would notice.
    fn contradicted(&self, raft: &Raft) -> Option<Index> {
        if raft.kind != Kind::Append as i32 || raft.term < self.engine.term().0 {
            return None;
        }
        let commit = self.engine.commit();
        let told = (raft.index..).zip([raft.log_term].into_iter().chain(raft.entries.iter().map(|it| it.term)));
        let mut decided = told.take_while(|(index, _)| *index <= commit);
        decided.find(|(index, term)| self.engine.term_at(*index).is_some_and(|own| own.0 != *term)).map(|(index, _)| index)
    }

    fn on_forward(&mut self, from: NodeId, forward: Forward, out: &mut Vec<Effect>) {
        if !self.engine.roll().contains(from) || !self.proposals.admit(from, &forward) {
            return;
        }
        let (run, term) = (forward.run, forward.term);
        let here = self.engine.leads() && self.engine.term().0 == term;
        let (tags, full) = if here && self.log_full() {
            (forward.items.iter().map(|it| it.tag).collect(), true)
        } else if here {
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
        } else if self.log_full() {
            self.reject(tag, Reason::Full, out);
        } else if let Err(why) = self.proposals.take(now, tag, payload, place, &self.settings) {
            self.reject(tag, why, out);
        }
    }

    /// Whether the log takes so much memory that nothing may be added to it.
    fn log_full(&self) -> bool {
        self.engine.log_bytes() > self.settings.snapshot_bytes.saturating_mul(LOG_LENGTHS_MAX)
    }

    /// Whether entries from the leader would only wait behind others for a disk that is full or hangs. They are as if lost; when the disk is back, the leader sends them again.
    fn overfills(&self, raft: &letter::Raft) -> bool {
        let appends = raft.kind == letter::Kind::Append as i32 && !raft.entries.is_empty();
        appends && self.log_full() && self.unsafe_turns.iter().any(|it| it.appends)
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

    fn on_persisted(&mut self, now: Instant, mark: Mark, out: &mut Vec<Effect>) {
        if let Some(oldest) = self.unsafe_turns.front().filter(|it| it.mark <= mark) {
            self.fitness.on_written(now, now - oldest.since, &self.settings);
        }
        let slow_ms = fitness::told(self.slowness(now));
        let mut last = None;
        while self.unsafe_turns.front().is_some_and(|it| it.mark <= mark)
            && let Some(turn) = self.unsafe_turns.pop_front()
        {
            last = Some(turn.turn);
            // A later turn may have taken back in a later term what these promise: one sync has made both safe, and so only the later holds.
            let term = self.engine.term().0;
            for letter in turn.held.into_iter().filter(|it| it.letter.term >= term) {
                send(letter, slow_ms, out);
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
            self.saved = self.stored;
            self.proposals.on_skipped(out);
            let (index, roll) = (snapshot.index, snapshot.roll.clone());
            out.push(Effect::Install(snapshot));
            out.push(Effect::Members { index, roll });
        }
    }

    fn on_saved(&mut self, index: Index, extent: Extent, out: &mut Vec<Effect>) {
        let Some(snapshot) = self.taking.take_if(|it| it.index == index) else { return };
        self.engine.saved_snapshot(snapshot);
        self.saved = extent;
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
        if let Some(to) = to.or_else(|| self.successor()) {
            self.reads.void_lease(self.engine.term());
            self.tempo.on_transfer(now, &self.settings);
            self.engine.transfer(to);
        }
    }

    /// The voter that is heard, knows most, and of whose disk nothing bad is known.
    fn successor(&self) -> Option<NodeId> {
        let quick = |it: &Successor| self.fitness.is_quick(it.node, &self.settings);
        self.engine.successors().max_by_key(|it| (it.heard, quick(it), it.matched, Reverse(it.node))).map(|it| it.node)
    }

    /// A leader whose disk is slow or full, or that is always woken late, makes way for one that would do better now (C12, C47, C52). If there is none, it stays: a slow service is better than none.
    fn make_way(&mut self, now: Instant) {
        let own = self.slowness(now);
        if own < self.settings.disk_patience || !self.engine.leads() || self.engine.transferring() {
            return;
        }
        let ready = |it: &Successor| it.heard && it.matched >= self.engine.commit();
        let better = |it: &Successor| ready(it) && self.fitness.is_better(it.node, own, &self.settings);
        let best = self.engine.successors().filter(better).max_by_key(|it| (it.matched, Reverse(it.node)));
        if let Some(Successor { node, .. }) = best {
            self.give_away(now, node);
        }
    }

    /// This node should not lead: it asks another to, and if that has not helped, it stops.
    fn give_away(&mut self, now: Instant, to: NodeId) {
        if !self.engine.leads() || self.engine.alone() {
            return;
        }
        if self.tempo.transfer_failed(now, &self.settings) {
            self.engine.step_down();
        } else {
            self.transfer(now, Some(to));
        }
    }
}
