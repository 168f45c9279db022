//! The consensus engine (TiKV's `raft`), and all that is known of it: none of its types leave this folder.
//!
//! What it is given, it can digest (`screen.rs`); what it wants comes out as a [`Turn`]. Three of its habits are dealt with here, so that
//! nobody else has to know them: it asks the operating system for chance (the timeout it draws is replaced after every call), it stops the
//! process when it is asked to stand while a snapshot settles or while a lone voter's log is not yet safe (it is not asked), and a leader that
//! was voted out of the members stays leader (it is made to resign).

mod convert;
mod screen;
mod shelf;

use std::collections::VecDeque;

use bytes::Bytes;
use incumbent_protocol::chance::Chance;
use incumbent_protocol::protocol::{NodeId, Term};
use raft::eraftpb::{Entry as RaftEntry, EntryType, HardState, Message, MessageType};
use raft::{Config, RawNode, SnapshotStatus, StateRole};

use self::convert::{node, number};
use self::screen::Ground;
use self::shelf::Shelf;
use super::content;
use super::exchange::{ClusterTime, Entry, Index, Lane, Recovered, Role, Snapshot, Step, Vote};
use super::letter::{Kind, Raft};
use super::roll::Roll;
use super::settings::Settings;

pub(super) use self::screen::Unfit;

/// Decided entries are handed out in portions of about this many bytes, so that nobody waits behind all of them.
const PORTION_BYTES: u64 = 1 << 20;

/// So many terms in a row may bring no leader before nodes wait longer: votes that were split are often whole the next time.
const TERMS_OF_HASTE: u64 = 2;

/// Nodes wait at most so many times as long, as a power of two.
const DOUBLINGS_MAX: u64 = 4;

/// A node that would lead badly lets so many of its timeouts pass: whoever would lead better has stood by then.
const HESITATIONS_MAX: u32 = 2;

/// What the engine wants at one time.
pub(super) struct Turn {
    /// Comes back with [`Engine::persisted`].
    pub(super) number: u64,
    /// What may leave before the write is safe.
    pub(super) prompt: Vec<Outgoing>,
    /// What may not.
    pub(super) held: Vec<Outgoing>,
    /// Who needs a snapshot.
    pub(super) behind: Vec<NodeId>,
    pub(super) reset: Option<Snapshot>,
    pub(super) entries: Vec<Entry>,
    pub(super) vote: Option<Vote>,
    pub(super) must_sync: bool,
    /// Whether term or vote have changed: then nothing at all may leave before the write is safe.
    pub(super) binding: bool,
    /// Reads that a quorum has confirmed, by their context.
    pub(super) reads: Vec<(Bytes, Index)>,
    pub(super) committed: Vec<Entry>,
}

pub(super) struct Outgoing {
    pub(super) to: NodeId,
    pub(super) lane: Lane,
    pub(super) letter: Raft,
}

/// A voter that could lead in place of this node.
pub(super) struct Successor {
    pub(super) node: NodeId,
    /// It was heard lately.
    pub(super) heard: bool,
    /// It has all up to here.
    pub(super) matched: Index,
}

/// Why the engine did not take a proposal.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Dropped;

pub(super) struct Engine {
    id: NodeId,
    seed: u64,
    raw: RawNode<Shelf>,
    election_ticks: usize,
    /// Term and vote, as of the last turn.
    promised: (u64, u64),
    /// The snapshot that the engine has been given and has not yet taken or refused.
    arriving: Option<Snapshot>,
    /// The turn with which a snapshot has taken the log's place. Until it is safe the engine sees nothing and hears nothing.
    settling: Option<(u64, Index)>,
    roll: Roll,
    fit: bool,
    /// This node would lead badly, and stands only if nobody else has done so.
    hesitates: bool,
    /// So often it has waited for somebody else.
    hesitations: u32,
    /// The last term in which a leader was known, or the one in which this node began.
    led: u64,
}

impl Engine {
    /// `recovered` has been checked: its entries begin behind the snapshot, follow each other, and are of kinds that we know.
    pub(super) fn start(id: NodeId, seed: u64, settings: &Settings, recovered: Recovered) -> Engine {
        let Recovered { vote, snapshot, entries, .. } = recovered;
        let before = (snapshot.index, snapshot.term.0);
        let last = before.0 + entries.len() as u64;
        let entries: VecDeque<RaftEntry> =
            entries.iter().map(|it| convert::entry_in(it.index, it.term.0, &it.bytes).expect("checked before")).collect();
        let mut hard = HardState::default();
        hard.set_term(vote.term.0);
        hard.set_vote(vote.candidate.map_or(0, number));
        hard.set_commit(vote.commit.clamp(snapshot.index, last));
        let config = Config {
            id: number(id),
            election_tick: settings.election_ticks as usize,
            heartbeat_tick: settings.heartbeat_ticks as usize,
            max_election_tick: (2 * settings.election_ticks as usize) << DOUBLINGS_MAX,
            applied: snapshot.index,
            max_size_per_msg: settings.message_bytes_max as u64,
            max_inflight_msgs: settings.messages_in_flight,
            check_quorum: true,
            pre_vote: true,
            // It adds entries to a letter without any that waits to be sent, wherever that letter says that they begin: after a step back they would stand at other places than the leader's.
            batch_append: false,
            // By `tell_commit`, and not for every entry.
            skip_bcast_commit: true,
            max_committed_size_per_ready: PORTION_BYTES,
            ..Config::default()
        };
        let roll = snapshot.roll.clone();
        let shelf = Shelf::new(hard, before, entries, snapshot);
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raw = RawNode::new(&config, shelf, &logger).expect("settings and recovered state were checked before");
        let election_ticks = settings.election_ticks as usize;
        let promised = (raw.raft.term, raw.raft.vote);
        let led = raw.raft.term;
        let mut engine = Engine {
            id,
            seed,
            raw,
            election_ticks,
            promised,
            arriving: None,
            settling: None,
            roll,
            fit: true,
            hesitates: false,
            hesitations: 0,
            led,
        };
        engine.redraw();
        engine
    }

    /// Draws the election timeout anew, from the seed, the node and the term: the engine's own chance differs from run to run.
    ///
    /// Where disks or processors are so slow that votes take longer than the timeout, each who stands would be overtaken by the next, for ever. So with each term that
    /// brings no leader all wait twice as long: all have seen the same terms, so nobody who waits is overtaken by one who does not.
    fn redraw(&mut self) {
        let raft = &mut self.raw.raft;
        let term = raft.term;
        if raft.leader_id != 0 {
            (self.led, self.hesitations) = (term, 0);
        }
        let doublings = term.saturating_sub(self.led + TERMS_OF_HASTE).min(DOUBLINGS_MAX);
        let least = self.election_ticks << doublings;
        let mut chance = Chance::new(self.seed ^ (u64::from(self.id.0) << 32) ^ term.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let drawn = chance.below(least as u64) as usize;
        raft.set_randomized_election_timeout(least + drawn);
    }

    // What there is to see.

    pub(super) fn role(&self) -> Role {
        let raft = &self.raw.raft;
        Role { term: Term(raft.term), leader: node(raft.leader_id), leads: raft.state == StateRole::Leader }
    }

    pub(super) fn leads(&self) -> bool {
        self.raw.raft.state == StateRole::Leader
    }

    pub(super) fn term(&self) -> Term {
        Term(self.raw.raft.term)
    }

    pub(super) fn leader(&self) -> Option<NodeId> {
        node(self.raw.raft.leader_id)
    }

    pub(super) fn roll(&self) -> &Roll {
        &self.roll
    }

    pub(super) fn commit(&self) -> Index {
        self.raw.raft.raft_log.committed
    }

    pub(super) fn first(&self) -> Index {
        self.raw.store().first()
    }

    pub(super) fn last(&self) -> Index {
        self.raw.raft.raft_log.last_index()
    }

    /// The term of an entry; None if it is not here.
    pub(super) fn term_at(&self, index: Index) -> Option<Term> {
        let log = &self.raw.raft.raft_log;
        let here = index + 1 >= log.first_index() && index <= log.last_index();
        here.then(|| log.term(index).ok().map(Term)).flatten()
    }

    /// The last time that the log says.
    pub(super) fn time(&self) -> ClusterTime {
        let fresh = self.raw.raft.raft_log.unstable_entries().iter().rev().find_map(|it| content::time(&it.data));
        fresh.unwrap_or_default().max(self.raw.store().time())
    }

    pub(super) fn time_at(&self, index: Index) -> ClusterTime {
        self.raw.store().time_at(index)
    }

    pub(super) fn log_bytes(&self) -> u64 {
        self.raw.store().bytes()
    }

    pub(super) fn saved(&self) -> &Snapshot {
        self.raw.store().saved()
    }

    /// Whether a member waits for a newer snapshot than there is.
    pub(super) fn snapshot_wanted(&self) -> bool {
        self.leads() && self.raw.store().snapshot_wanted()
    }

    /// Whether a leader has decided anything in its own term: before, it does not know what is decided.
    pub(super) fn knows_commit(&self) -> bool {
        self.raw.raft.commit_to_current_term()
    }

    pub(super) fn transferring(&self) -> bool {
        self.raw.raft.lead_transferee.is_some()
    }

    pub(super) fn settling(&self) -> bool {
        self.settling.is_some()
    }

    /// Whether this node decides alone.
    pub(super) fn alone(&self) -> bool {
        !self.roll.joint() && self.roll.voters().len() == 1 && self.roll.voters().contains(&self.id)
    }

    /// Ticks until something happens of itself.
    pub(super) fn ticks_left(&self) -> Option<u32> {
        let raft = &self.raw.raft;
        let left = match raft.state {
            StateRole::Leader => {
                let heartbeat = raft.heartbeat_timeout().saturating_sub(raft.heartbeat_elapsed());
                heartbeat.min(raft.election_timeout().saturating_sub(raft.election_elapsed))
            }
            StateRole::Follower | StateRole::PreCandidate | StateRole::Candidate => {
                if !raft.promotable() || self.settling() {
                    return None;
                }
                raft.randomized_election_timeout().saturating_sub(raft.election_elapsed)
            }
        };
        Some(left.max(1) as u32)
    }

    // What can be done.

    /// One tick has passed.
    pub(super) fn tick(&mut self) {
        if self.settling() {
            return;
        }
        let raft = &mut self.raw.raft;
        let due = raft.state != StateRole::Leader && raft.election_elapsed + 1 >= raft.randomized_election_timeout();
        let waits = due && self.hesitates && self.hesitations < HESITATIONS_MAX;
        self.hesitations += u32::from(waits);
        if due && self.raw.raft.promotable() && (waits || !self.may_stand()) {
            // The leader is gone, and it is for others to stand: forget it, or its lease on our vote would never end.
            let term = self.raw.raft.term;
            self.raw.raft.become_follower(term, 0);
        } else {
            self.raw.tick();
        }
        self.redraw();
    }

    /// Whether this node may ask for votes.
    fn may_stand(&self) -> bool {
        let log = &self.raw.raft.raft_log;
        // A lone voter is elected in the same moment, and a leader's log is safe: wait until it is.
        let safe = !self.raw.raft.prs().is_singleton() || log.persisted == log.last_index();
        self.fit && !self.settling() && safe
    }

    /// The election timeout is over for whom we followed: its process is dead.
    pub(super) fn forget_leader(&mut self) {
        if !self.leads() {
            self.raw.raft.leader_id = 0;
        }
    }

    /// Asks whether it would be elected, and stands if so.
    pub(super) fn stand(&mut self) {
        if self.may_stand() && !self.hesitates && self.raw.raft.promotable() && !self.leads() {
            let _ = self.raw.campaign();
            self.raw.raft.election_elapsed = 0;
            self.redraw();
        }
    }

    pub(super) fn judge(&mut self, fit: bool) {
        self.fit = fit;
    }

    /// Whether this node is to leave it to others to stand, as long as there are such.
    pub(super) fn hesitate(&mut self, hesitates: bool) {
        self.hesitates = hesitates;
    }

    pub(super) fn receive(&mut self, from: NodeId, raft: &Raft) -> Result<(), Unfit> {
        if from == self.id {
            return Err(Unfit::Sender);
        }
        let asks = raft.kind == Kind::VoteRequest as i32 || raft.kind == Kind::PreVoteRequest as i32;
        if self.settling() || (asks && self.roll.voters().is_empty()) {
            return Err(Unfit::NotNow);
        }
        let ground =
            Ground { term: self.raw.raft.term, last: self.last(), leads: self.leads(), from_leader: self.leader() == Some(from) };
        screen::screen(&ground, raft)?;
        let stands = raft.kind == Kind::StandNow as i32;
        if stands && (!self.may_stand() || raft.term < ground.term) {
            return Err(Unfit::NotNow);
        }
        let message = convert::message_in(from, self.id, raft).ok_or(Unfit::Form)?;
        // What it refuses by itself (an answer from who is no member) changes nothing.
        let _ = self.raw.step(message);
        self.redraw();
        Ok(())
    }

    /// Appends. Where it stands then is told; whether it stays there is for a quorum to say.
    pub(super) fn propose(&mut self, bytes: Vec<u8>) -> Result<Index, Dropped> {
        if !self.leads() {
            return Err(Dropped);
        }
        self.raw.propose(Vec::new(), bytes).map_err(|_| Dropped)?;
        Ok(self.last())
    }

    /// Tells the others what is decided.
    pub(super) fn tell_commit(&mut self) {
        self.raw.raft.bcast_append();
    }

    /// Appends a change of members. One at a time: the caller has asked [`Engine::may_change`].
    pub(super) fn propose_change(&mut self, bare: Vec<u8>) -> Result<Index, Dropped> {
        if !self.leads() || !self.may_change() {
            return Err(Dropped);
        }
        let mut entry = RaftEntry::default();
        entry.set_entry_type(EntryType::EntryConfChangeV2);
        entry.set_data(bare.into());
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = number(self.id);
        message.set_entries(vec![entry].into());
        self.raw.step(message).map_err(|_| Dropped)?;
        Ok(self.last())
    }

    pub(super) fn may_change(&self) -> bool {
        !self.raw.raft.has_pending_conf() && !self.roll.joint()
    }

    /// How far behind the end of the log a member is known to be; None if it is none, or has not shown that it has anything.
    pub(super) fn lag(&self, member: NodeId) -> Option<u64> {
        let progress = self.raw.raft.prs().get(number(member)).filter(|it| it.matched > 0)?;
        Some(self.last().saturating_sub(progress.matched))
    }

    /// A decided change takes effect. None if it changes nothing: what was decided makes no sense any longer.
    pub(super) fn apply_change(&mut self, steps: &[Step]) -> Option<Roll> {
        let state = self.raw.apply_conf_change(&convert::change_out(steps)).ok()?;
        let roll = convert::roll_in(&state)?;
        self.roll = roll.clone();
        let votes = roll.voters().contains(&self.id) || roll.outgoing().contains(&self.id);
        if self.leads() && !votes {
            self.resign();
        }
        self.redraw();
        Some(roll)
    }

    /// A leader that is no voter any more tells the others what is decided, asks the best of them to stand, and follows.
    fn resign(&mut self) {
        self.raw.raft.bcast_append();
        if let Some(best) = self.best_successor() {
            self.raw.raft.send_timeout_now(number(best));
        }
        self.step_down();
    }

    /// Follows nobody. Asks for nothing.
    pub(super) fn step_down(&mut self) {
        let term = self.raw.raft.term;
        self.raw.raft.become_follower(term, 0);
        self.redraw();
    }

    /// The voter that is heard and knows most.
    fn best_successor(&self) -> Option<NodeId> {
        self.successors().max_by_key(|it| (it.heard, it.matched, std::cmp::Reverse(it.node))).map(|it| it.node)
    }

    /// The other voters, as a leader knows them.
    pub(super) fn successors(&self) -> impl Iterator<Item = Successor> {
        let voters = self.roll.voters().iter().filter(|id| **id != self.id);
        voters.filter_map(|id| {
            let progress = self.raw.raft.prs().get(number(*id))?;
            Some(Successor { node: *id, heard: progress.recent_active, matched: progress.matched })
        })
    }

    /// Hands the leadership to `to` as soon as that has all entries; until then nothing is appended.
    pub(super) fn transfer(&mut self, to: NodeId) {
        if self.leads() && to != self.id && self.roll.voters().contains(&to) {
            self.raw.transfer_leader(number(to));
        }
    }

    /// Asks a quorum whether this node still leads. The answer comes with a turn, by `context`.
    pub(super) fn read(&mut self, context: Bytes) {
        self.raw.read_index(context.to_vec());
    }

    /// What was sent to this member lately is probably lost.
    pub(super) fn unreachable(&mut self, peer: NodeId) {
        self.raw.report_unreachable(number(peer));
    }

    pub(super) fn snapshot_sent(&mut self, peer: NodeId, arrived: bool) {
        self.raw.report_snapshot(number(peer), if arrived { SnapshotStatus::Finish } else { SnapshotStatus::Failure });
    }

    /// A snapshot is stored and may take the log's place, by the word of the leader of `term`. Whether it does is seen in the next turn.
    pub(super) fn accept_snapshot(&mut self, from: NodeId, term: Term, snapshot: Snapshot) -> Result<(), Unfit> {
        let own = self.raw.raft.term;
        if self.settling()
            || self.leads()
            || term.0 < own
            || snapshot.term > term
            || term.0 > own.saturating_add(screen::TERM_JUMP_MAX)
        {
            return Err(Unfit::Term);
        }
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgSnapshot);
        message.from = number(from);
        message.to = number(self.id);
        message.term = term.0;
        message.set_snapshot(convert::snapshot_out(&snapshot));
        self.arriving = Some(snapshot);
        let _ = self.raw.step(message);
        self.redraw();
        Ok(())
    }

    /// Nothing before this is needed.
    pub(super) fn saved_snapshot(&mut self, snapshot: Snapshot) {
        self.raw.mut_store().save(snapshot);
    }

    /// Lets go of entries up to `index`, if a snapshot holds them.
    pub(super) fn compact(&mut self, index: Index) -> Index {
        let applied = self.raw.raft.raft_log.applied;
        self.raw.mut_store().compact(index.min(applied))
    }

    /// The writes of all turns up to `number` are safe.
    pub(super) fn persisted(&mut self, number: u64) -> Option<Snapshot> {
        self.raw.on_persist_ready(number);
        let (_, index) = self.settling.filter(|(turn, _)| *turn <= number)?;
        self.settling = None;
        self.raw.advance_apply_to(index);
        self.redraw();
        Some(self.raw.store().saved().clone())
    }

    /// All decided entries that came with turns have taken effect.
    pub(super) fn applied(&mut self, index: Index) {
        if index > self.raw.raft.raft_log.applied {
            self.raw.advance_apply_to(index);
        }
    }

    /// What it wants now; None when it wants nothing.
    pub(super) fn turn(&mut self) -> Option<Turn> {
        if !self.raw.has_ready() {
            self.arriving = None;
            return None;
        }
        let mut ready = self.raw.ready();
        let promised = (self.raw.raft.term, self.raw.raft.vote);
        let binding = promised != self.promised;
        self.promised = promised;
        let mut turn = Turn {
            number: ready.number(),
            prompt: Vec::new(),
            held: Vec::new(),
            behind: Vec::new(),
            reset: None,
            entries: ready.entries().iter().map(convert::entry_out).collect(),
            vote: ready.hs().map(vote_of),
            must_sync: ready.must_sync(),
            binding,
            reads: ready.take_read_states().into_iter().map(|it| (it.request_ctx.into(), it.index)).collect(),
            committed: ready.take_committed_entries().iter().map(convert::entry_out).collect(),
        };
        for message in ready.take_messages() {
            post(&mut turn.prompt, &mut turn.behind, &message);
        }
        for message in ready.take_persisted_messages() {
            post(&mut turn.held, &mut turn.behind, &message);
        }
        if !ready.snapshot().is_empty() {
            let snapshot = self.arriving.take().expect("the engine takes no snapshot but the one it was given");
            self.raw.mut_store().reset(snapshot.clone());
            self.roll = snapshot.roll.clone();
            self.settling = Some((turn.number, snapshot.index));
            turn.reset = Some(snapshot);
        }
        self.raw.mut_store().append(ready.entries());
        self.raw.advance_append_async(ready);
        Some(turn)
    }
}

fn vote_of(hard: &HardState) -> Vote {
    Vote { term: Term(hard.term), candidate: node(hard.vote), commit: hard.commit }
}

fn post(letters: &mut Vec<Outgoing>, behind: &mut Vec<NodeId>, message: &Message) {
    let Some(to) = node(message.to) else { return };
    if message.get_msg_type() == MessageType::MsgSnapshot {
        behind.push(to);
        return;
    }
    let lane = if message.get_msg_type() == MessageType::MsgAppend { Lane::Bulk } else { Lane::Prompt };
    if let Some(letter) = convert::message_out(message) {
        letters.push(Outgoing { to, lane, letter });
    }
}
