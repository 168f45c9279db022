//! The office: what every protocol shares once it knows *who* should lead. Terms, votes, heartbeats, the lease, hand-over.
//!
//! **The problem.** Bully and the rings find the greatest id among those who answer, in every part of a split network. Raft votes by majority, but
//! its old leader goes on believing until it hears of the new one. Neither keeps two nodes from acting at one instant.
//!
//! **The insight.** One mechanism does for all four. A node takes office with the votes of a quorum and stays in it by the acknowledged heartbeats of
//! a quorum. Each vote and each acknowledgement is also a *promise*: for `patience_min` on the voter's clock it votes for nobody else. The leader
//! counts the same time, less drift and margin, from the *send* of what was answered, and is out of office when it ends. Any two quorums share a
//! voter, so nobody is elected before the old leader has stopped believing, as long as clock rates keep the drift bound.
//!
//! **What is promised**
//! - A node votes at most once in a term, and neither vote nor term is told before it is on disk (`Office::say`).
//! - Under guard: no two nodes are in office at one instant. Without: terms are still unique (each node draws from its own residue class).
//! - A promise ends early only by the leader's own word that its work has ended ([`OfficeMessage::Released`], [`OfficeMessage::TakeOver`]) or
//!   by proof of its death. A hint never ends one.
//!
//! Left out: who should stand, and when to try again. That is the protocol's part.

mod ballot;
mod favour;
mod membership;
mod message;
mod reign;

use alloc::collections::VecDeque;
use core::time::Duration;

pub use message::{Answer, OfficeMessage, Round};
use reign::Reign;

use crate::chance::Chance;
use crate::detector::Detector;
use crate::office::ballot::Ballot;
use crate::office::favour::Favour;
use crate::protocol::{Cause, Effects, Event, Mark, NodeId, Reason, Record, Role, Term, View};
use crate::settings::{Settings, Takeover};
use crate::stabilizer::Stabilizer;
use crate::time::Instant;

/// A message that speaks of a term this far beyond ours is damage or malice, not news: no group burns terms that fast.
pub const TERM_JUMP_MAX: u64 = 1 << 32;

/// Messages that may wait for the disk at one time; more are dropped, as a network would.
const HELD_MAX: usize = 64;

/// Whether taking office needs a ballot.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Voting {
    /// Always: the votes are the protocol (Raft).
    Always,
    /// Under guard only: without it the winner of the contest takes office by itself (Bully, rings).
    UnderGuard,
}

/// On what ground a node stands for office.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Mandate {
    /// Nobody is in office as far as it knows.
    Vacancy,
    /// The leader of this term has left office for it.
    HandedOver(Term),
}

/// What the office tells the protocol around it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Notice {
    /// No leader was heard of for too long: time to contend.
    Due,
    /// A leader was heard; this node follows it.
    Heard(NodeId),
    /// This node is in office: announce it.
    Elected,
    /// The votes asked for were not given.
    Rejected,
    /// The leader has left office for this node.
    Called(Term),
    /// Nothing that concerns the protocol.
    Nothing,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Seat {
    Follower,
    Candidate(Ballot),
    Leader(Reign),
}

/// Until when this node votes for nobody else, and for whose sake.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
struct Promise {
    to: Option<NodeId>,
    term: Term,
    until: Instant,
}

/// What waits for a record to be safe.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum Held {
    Say { to: NodeId, message: OfficeMessage },
    AskForVotes { term: Term },
    TakeOffice { term: Term },
}

/// One node's part in the office.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Office {
    me: NodeId,
    settings: Settings,
    voting: Voting,
    chance: Chance,
    term: Term,
    vote: Option<NodeId>,
    /// The greatest term heard of. A hint for the next one to try, so that a winner that was away is not refused as stale; binds nobody.
    rumour: Term,
    issued: Mark,
    durable: Mark,
    held: VecDeque<(Mark, Held)>,
    seat: Seat,
    leader: Option<NodeId>,
    promise: Promise,
    /// When to stop waiting for a leader.
    due_at: Instant,
    /// Before this, a further hint is ignored: a storm of them must not become a storm of probes.
    hints_from: Instant,
    favour: Favour,
    /// Whether a ballot of ours has run out of time since we last knew a leader: we reach too few to be anyone's rival.
    asked_in_vain: bool,
    /// Whether this node leaves the office to others, by its user's wish.
    abstains: bool,
    /// How often this node still tries again soon: it knows the office to be free, and those who do not will learn of it.
    hurries: u8,
    /// A node that is proven dead, and the term in which it was: whatever it said up to then is void. Forgotten when it is heard in a later one.
    buried: Option<(NodeId, Term)>,
    detector: Detector,
    stabilizer: Stabilizer,
}

impl Office {
    pub(crate) fn start(me: NodeId, settings: &Settings, voting: Voting, seed: u64, disk: Option<Record>, now: Instant) -> Self {
        let record = disk.unwrap_or_default();
        // What this node promised before it went down is forgotten, but it has told nobody of a term that is not on its disk:
        // with an empty disk it has promised nothing, otherwise at most for `patience_min` from now.
        let until = if disk.is_some() { now + settings.pace().patience_min } else { now };
        let mut office = Self {
            me,
            settings: settings.clone(),
            voting,
            chance: Chance::new(seed),
            term: record.term,
            vote: record.vote,
            rumour: record.term,
            issued: Mark(0),
            durable: Mark(0),
            held: VecDeque::new(),
            seat: Seat::Follower,
            leader: None,
            promise: Promise { to: None, term: record.term, until },
            due_at: now,
            hints_from: now,
            favour: Favour::new(settings.stability().min_tenure.max(settings.pace().patience_max)),
            asked_in_vain: false,
            abstains: false,
            hurries: 0,
            buried: None,
            detector: Detector::new(now),
            stabilizer: Stabilizer::new(*settings.stability()),
        };
        office.wait(now);
        office
    }

    pub(crate) fn deadline(&self) -> Instant {
        match &self.seat {
            Seat::Follower => self.due_at,
            Seat::Candidate(ballot) => ballot.until,
            Seat::Leader(reign) => reign.deadline(self.settings.pace()),
        }
    }

    pub(crate) fn view(&self) -> View {
        let (role, until) = match &self.seat {
            Seat::Follower => (Role::Follower, None),
            Seat::Candidate(_) => (Role::Candidate, None),
            Seat::Leader(reign) => (Role::Leader, reign.until()),
        };
        View { role, term: self.term, leader: self.leader, until }
    }

    /// Whether `from` may say something of `term` at all.
    pub(crate) fn admits<M>(&mut self, from: NodeId, term: Term, out: &mut Effects<M>) -> bool {
        let sane = self.settings.rank(from).is_some()
            && from != self.me
            && term <= Term::MAX
            && term.0.saturating_sub(self.term.0) <= TERM_JUMP_MAX;
        if !sane {
            out.emit(Event::Ignored { from });
        }
        if sane && self.buried.is_some_and(|(dead, until)| dead == from && until < term) {
            self.buried = None;
        }
        sane
    }

    pub(crate) fn receive<M: From<OfficeMessage>>(
        &mut self,
        now: Instant,
        from: NodeId,
        message: OfficeMessage,
        out: &mut Effects<M>,
    ) -> Notice {
        match message {
            OfficeMessage::VoteRequest { term, round, released, sent } => {
                self.on_vote_request(now, from, term, round, released, sent, out);
                Notice::Nothing
            }
            OfficeMessage::Vote { term, round, answer, sent } => self.on_vote(now, from, term, round, answer, sent, out),
            OfficeMessage::Heartbeat { term, sent } => self.on_heartbeat(now, from, term, sent, out),
            OfficeMessage::Ack { term, sent } => {
                self.on_ack(now, from, term, sent, out);
                Notice::Nothing
            }
            OfficeMessage::Probe { .. } => {
                self.assure(now, from, out);
                Notice::Nothing
            }
            OfficeMessage::Released { term } => {
                if self.frees(from, term) {
                    self.vacate(now, from, Cause::Released, out);
                    if self.voting == Voting::Always {
                        // Somebody was told to take it over, and has the time for that.
                        self.wait_for(now, self.settings.pace().reply / 2);
                    }
                }
                Notice::Nothing
            }
            OfficeMessage::TakeOver { term } => self.on_take_over(now, from, term, out),
            OfficeMessage::Declined { term } => {
                self.on_declined(now, term, out);
                Notice::Nothing
            }
        }
    }

    pub(crate) fn wake<M: From<OfficeMessage>>(&mut self, now: Instant, out: &mut Effects<M>) -> Notice {
        match &mut self.seat {
            Seat::Follower if now >= self.due_at => {
                if let Some(leader) = self.leader.take() {
                    out.emit(Event::LeaderGone { leader, term: self.term, cause: Cause::Silent });
                }
                self.stabilizer.unclaimed(now);
                self.wait(now);
                Notice::Due
            }
            Seat::Candidate(ballot) if now >= ballot.until => {
                // It was not refused by those who know less, it reached too few: no reason to hurry.
                (self.asked_in_vain, self.hurries) = (true, 0);
                self.reject(now, out)
            }
            Seat::Leader(reign) if reign.has_ended(now) => {
                self.step_down(now, Reason::QuorumLost, out);
                Notice::Nothing
            }
            Seat::Leader(reign) if reign.beat_is_due(now) => {
                self.beat(now, out);
                Notice::Nothing
            }
            Seat::Leader(reign) if now >= reign.repeats_at(self.settings.pace()) => {
                self.repeat_beat(now, out);
                Notice::Nothing
            }
            Seat::Follower | Seat::Candidate(_) | Seat::Leader(_) => Notice::Nothing,
        }
    }

    /// All records up to `mark` are safe: what waited for them may go.
    pub(crate) fn persisted<M: From<OfficeMessage>>(&mut self, now: Instant, mark: Mark, out: &mut Effects<M>) -> Notice {
        self.durable = self.durable.max(mark.min(self.issued));
        let mut notice = Notice::Nothing;
        while self.held.front().is_some_and(|(mark, _)| *mark <= self.durable) {
            let Some((_, held)) = self.held.pop_front() else { break };
            match held {
                Held::Say { to, message } => out.send(to, message),
                Held::AskForVotes { term } => notice = self.ask_for_votes(now, term, out),
                // A later term has come while the disk was busy: that one was never held.
                Held::TakeOffice { term } if term != self.term => {}
                Held::TakeOffice { .. } => {
                    self.enter(now, Reign::unguarded(now), out);
                    notice = Notice::Elected;
                }
            }
        }
        notice
    }

    /// Takes the office by itself, or asks for the votes to take it.
    pub(crate) fn claim<M: From<OfficeMessage>>(&mut self, now: Instant, mandate: Mandate, out: &mut Effects<M>) -> Notice {
        if matches!(self.seat, Seat::Leader(_)) {
            return Notice::Nothing;
        }
        if self.voting == Voting::Always || self.settings.quorum().is_some() {
            return self.stand(now, mandate, out);
        }
        let Some(term) = self.next_own_term() else { return Notice::Nothing };
        (self.term, self.vote, self.leader) = (term, Some(self.me), None);
        self.seat = Seat::Follower;
        self.persist(out);
        self.hold(Held::TakeOffice { term });
        self.wait(now);
        Notice::Nothing
    }

    /// Gives the office back: the work has ended. `successor` is told to stand at once, the others a little later.
    pub(crate) fn resign<M: From<OfficeMessage>>(&mut self, now: Instant, successor: Option<NodeId>, out: &mut Effects<M>) {
        if self.leave(now, Reason::Resigned, out) {
            let term = self.term;
            for to in self.others() {
                let message =
                    if Some(to) == successor { OfficeMessage::TakeOver { term } } else { OfficeMessage::Released { term } };
                out.send(to, message);
            }
        }
    }

    /// Gives the office to `to`: the work has ended. To ourselves means a new term for somebody else at this node.
    pub(crate) fn hand_over<M: From<OfficeMessage>>(&mut self, now: Instant, to: NodeId, out: &mut Effects<M>) -> Notice {
        if self.settings.rank(to).is_none() || !self.leave(now, Reason::HandedOver { to }, out) {
            return Notice::Nothing;
        }
        if to == self.me {
            self.stabilizer.called(now);
            return Notice::Called(self.term);
        }
        if self.favours(to) {
            self.favour.gave(to);
        }
        out.send(to, OfficeMessage::TakeOver { term: self.term });
        Notice::Nothing
    }

    /// A hint that `peer` may be gone: asks it, and waits no longer for the answer than an answer takes.
    pub(crate) fn suspect<M: From<OfficeMessage>>(&mut self, now: Instant, peer: NodeId, out: &mut Effects<M>) {
        if self.leader != Some(peer) || !matches!(self.seat, Seat::Follower) || now < self.hints_from {
            return;
        }
        self.hints_from = now + self.settings.pace().patience_max;
        self.say(peer, OfficeMessage::Probe { term: self.term }, out);
        let mut earliest = now + self.settings.pace().reply;
        if self.voting == Voting::Always || self.settings.quorum().is_some() {
            // Nobody, ourselves included, votes before the promise is over: a ballot sooner would only fail.
            earliest = earliest.max(self.promise.until);
        }
        self.due_at = self.due_at.min(earliest + self.nudge());
    }

    /// Proof that the process of `peer` is dead: it can neither act nor come back in its term.
    pub(crate) fn bury<M>(&mut self, now: Instant, peer: NodeId, out: &mut Effects<M>) {
        if peer == self.me {
            return;
        }
        self.buried = Some((peer, self.term));
        if self.promise.to == Some(peer) {
            self.vacate(now, peer, Cause::Dead, out);
        }
    }

    /// Leaves the office to others from now on: a contest under way is given up, and the office given back.
    pub(crate) fn abstain<M: From<OfficeMessage>>(&mut self, now: Instant, successor: Option<NodeId>, out: &mut Effects<M>) {
        self.abstains = true;
        self.reject(now, out);
        if self.is_candidate() {
            self.held.retain(|(_, held)| !matches!(held, Held::TakeOffice { .. }));
            out.emit(Event::Rejected { term: self.term });
        }
        self.resign(now, successor, out);
    }

    /// Contends as usual from now on; at once, if there is no leader to be heard.
    pub(crate) fn stand_again(&mut self) -> Notice {
        let returns = core::mem::replace(&mut self.abstains, false);
        if returns && self.leader.is_none() { Notice::Due } else { Notice::Nothing }
    }

    // What the protocols ask and set.

    pub(crate) fn me(&self) -> NodeId {
        self.me
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn chance(&mut self) -> &mut Chance {
        &mut self.chance
    }

    pub(crate) fn term(&self) -> Term {
        self.term
    }

    /// A node that is proven dead and was not heard since: it need not be asked.
    pub(crate) fn buried(&self) -> Option<NodeId> {
        self.buried.map(|(dead, _)| dead)
    }

    pub(crate) fn leader(&self) -> Option<NodeId> {
        self.leader
    }

    /// Notes that somebody has reached `term`.
    pub(crate) fn hear_of(&mut self, term: Term) {
        self.rumour = self.rumour.max(term);
    }

    pub(crate) fn others(&self) -> impl Iterator<Item = NodeId> + use<> {
        let settings = self.settings.clone();
        let me = self.me;
        (0..settings.members().len()).map(move |rank| settings.members()[rank]).filter(move |id| *id != me)
    }

    pub(crate) fn is_candidate(&self) -> bool {
        matches!(self.seat, Seat::Candidate(_)) || self.held.iter().any(|(_, held)| matches!(held, Held::TakeOffice { .. }))
    }

    pub(crate) fn may_stand(&self, now: Instant) -> bool {
        !self.abstains && self.stabilizer.may_stand(now) && !self.waits_for_own_vote()
    }

    /// Whether this node leaves the office to others, by its user's wish.
    pub(crate) fn abstains(&self) -> bool {
        self.abstains
    }

    /// Whether our vote for ourselves is still being written though its ballot is over. A disk that was too slow for one term is too slow for the
    /// next, and each try would burn one.
    fn waits_for_own_vote(&self) -> bool {
        self.vote == Some(self.me) && self.durable < self.issued && !self.is_candidate()
    }

    /// Whether we would make way for `other`: by priority where the votes are the protocol, by id where the greatest shall lead.
    fn favours(&self, other: NodeId) -> bool {
        match self.voting {
            Voting::Always => self.settings.priority(other) > self.settings.priority(self.me),
            Voting::UnderGuard => self.settings.takeover() == Takeover::AtOnce && other > self.me,
        }
    }

    /// Whether a leader was heard so recently that somebody else's doubt about it is not ours.
    pub(crate) fn hears_leader(&self, now: Instant) -> bool {
        self.leader.is_some_and(|leader| leader != self.me)
            && now - self.detector.heard_at() <= self.settings.pace().heartbeat * 2
    }

    /// A contest begins: whoever led is in doubt until it is heard again.
    pub(crate) fn contends<M>(&mut self, out: &mut Effects<M>) {
        if let Some(leader) = self.leader.take() {
            out.emit(Event::LeaderGone { leader, term: self.term, cause: Cause::Challenged });
        }
        out.emit(Event::Contends { term: self.term });
    }

    /// Waits for a leader from now on, with fresh patience.
    pub(crate) fn wait(&mut self, now: Instant) {
        let mut patience = self.detector.patience(&self.settings, &mut self.chance);
        if self.voting == Voting::Always {
            // A node of lesser priority lets the others try first. It only waits longer, so no priority can break safety.
            let behind = self.settings.priority_max() - self.settings.priority(self.me);
            patience += self.settings.pace().reply * u32::from(behind.min(PRIORITY_STEPS_MAX));
        }
        self.due_at = now + patience;
    }

    /// Waits at least `span` from now on: an election is under way.
    pub(crate) fn wait_for(&mut self, now: Instant, span: Duration) {
        self.due_at = self.due_at.max(now + span);
    }

    /// What was waited for has not come: contends at the next wake-up.
    pub(crate) fn wait_no_longer(&mut self, now: Instant) {
        self.due_at = self.due_at.min(now);
    }

    /// The contest was won but the votes were not: stand aside, so that others may try.
    pub(crate) fn stand_aside(&mut self, now: Instant) {
        // Refused by those who have not heard yet that the office is free: that is nobody's failure.
        if self.hurries == 0 {
            self.stabilizer.rejected(now, &mut self.chance);
        }
    }

    /// Whether to try again soon if nothing comes of this try. Not without end.
    pub(crate) fn hurries(&mut self) -> bool {
        let hurries = self.hurries > 0;
        self.hurries = self.hurries.saturating_sub(1);
        hurries
    }

    // Inner workings.

    /// Sends `message` as soon as the term and vote that it speaks of are on disk.
    fn say<M: From<OfficeMessage>>(&mut self, to: NodeId, message: OfficeMessage, out: &mut Effects<M>) {
        if self.durable == self.issued {
            out.send(to, message);
        } else {
            self.hold(Held::Say { to, message });
        }
    }

    fn hold(&mut self, held: Held) {
        if self.held.len() >= HELD_MAX
            && let Some(oldest) = self.held.iter().position(|(_, held)| matches!(held, Held::Say { .. }))
        {
            self.held.remove(oldest);
        }
        self.held.push_back((self.issued, held));
    }

    fn persist<M>(&mut self, out: &mut Effects<M>) {
        self.issued = Mark(self.issued.0 + 1);
        out.persist(self.issued, Record { term: self.term, vote: self.vote });
    }

    /// Moves on to a later term, in which nobody is known to lead. The caller persists.
    fn adopt<M>(&mut self, now: Instant, term: Term, out: &mut Effects<M>) {
        assert!(term > self.term, "terms only rise");
        match &self.seat {
            Seat::Leader(_) => self.step_down(now, Reason::Superseded { term }, out),
            Seat::Candidate(_) => {
                self.reject(now, out);
                self.wait(now);
            }
            Seat::Follower => {}
        }
        (self.term, self.vote, self.leader) = (term, None, None);
    }

    /// Goes into office.
    fn enter<M>(&mut self, now: Instant, reign: Reign, out: &mut Effects<M>) {
        debug_assert!(!reign.has_ended(now));
        assert!(!self.abstains, "who abstains does not lead");
        self.seat = Seat::Leader(reign);
        self.leader = Some(self.me);
        (self.asked_in_vain, self.hurries) = (false, 0);
        self.favour.leads(self.me, self.term, false, now);
        out.emit(Event::Elected { term: self.term });
    }

    /// Goes out of office, against its will.
    fn step_down<M>(&mut self, now: Instant, reason: Reason, out: &mut Effects<M>) {
        let Seat::Leader(reign) = &self.seat else { return };
        self.stabilizer.deposed(reign.since(), now, &mut self.chance);
        // Its followers are bound to it for as long as its own belief lasts, and so is it to itself.
        if let Some(until) = reign.until() {
            self.promise = Promise { to: Some(self.me), term: self.term, until };
        }
        self.out_of_office(now, reason, out);
    }

    /// Goes out of office by its own will, its work ended.
    fn leave<M>(&mut self, now: Instant, reason: Reason, out: &mut Effects<M>) -> bool {
        if !matches!(self.seat, Seat::Leader(_)) {
            return false;
        }
        self.stabilizer.gave_away(now);
        self.promise = Promise { to: None, term: self.term, until: now };
        self.out_of_office(now, reason, out);
        true
    }

    fn out_of_office<M>(&mut self, now: Instant, reason: Reason, out: &mut Effects<M>) {
        self.seat = Seat::Follower;
        self.leader = None;
        self.wait(now);
        out.emit(Event::Lost { term: self.term, reason });
    }

    /// Whether word from `from` that it left office in `term` concerns us.
    fn frees(&self, from: NodeId, term: Term) -> bool {
        self.promise.to == Some(from) && self.promise.term <= term && term >= self.term
    }

    /// The office is free: what was promised to `leader` is void, and the wait is over soon.
    fn vacate<M>(&mut self, now: Instant, leader: NodeId, cause: Cause, out: &mut Effects<M>) {
        self.promise = Promise { to: None, term: self.promise.term, until: now };
        if self.leader == Some(leader) {
            self.leader = None;
            out.emit(Event::LeaderGone { leader, term: self.term, cause });
        }
        self.hurries = HURRIES_MAX;
        if matches!(self.seat, Seat::Follower) {
            let turn = self.turn(leader);
            self.due_at = self.due_at.min(now + turn);
        }
    }

    /// How long this node waits when `leader` has left the office free: each has its turn, so that those who learn of it together do not stand
    /// together, and there is no need for long waits. Who grants a pre-vote gives up its turn, so the next one only has to come later than a message takes.
    fn turn(&mut self, leader: NodeId) -> Duration {
        let step = self.settings.pace().reply / 10;
        let others = || self.settings.members().iter().copied().filter(|id| *id != leader);
        let before = match self.voting {
            Voting::Always => {
                let mine = self.settings.priority(self.me);
                let preferred = others().filter(|id| self.settings.priority(*id) > mine).count();
                let equals = || others().filter(|id| self.settings.priority(*id) == mine);
                let place = equals().filter(|id| *id < self.me).count();
                // Not always the same one: a node may lead in many elections, and they should not all go to one other.
                let count = equals().count().max(1);
                let shift = usize::try_from(self.term.0 % count as u64).unwrap_or(0);
                preferred + (place + count - shift) % count
            }
            // The greatest would win in any case.
            Voting::UnderGuard => others().filter(|id| *id > self.me).count(),
        };
        let before = u32::try_from(before).unwrap_or(u32::MAX).min(TURNS_MAX);
        // Half a step for all to learn of it; a little chance for clocks that are read in steps.
        step / 2 + step * before + self.chance.between(Duration::ZERO, step / 4)
    }

    /// A little chance, so that nodes which learn of a vacancy together do not stand together.
    fn nudge(&mut self) -> Duration {
        let pace = self.settings.pace();
        let spread = pace.reply / 4;
        self.chance.between(Duration::ZERO, spread)
    }

    fn next_term(&self) -> Option<Term> {
        self.term.max(self.rumour).next()
    }

    /// The next term of this node's residue class. Two parts of a split group thus never use the same term, even without a guard.
    fn next_own_term(&self) -> Option<Term> {
        let count = self.settings.members().len() as u64;
        let rank = self.settings.rank(self.me)? as u64;
        let next = self.next_term()?.0;
        let term = Term(next + (rank + count - next % count) % count);
        (term <= Term::MAX).then_some(term)
    }

    fn on_take_over<M: From<OfficeMessage>>(&mut self, now: Instant, from: NodeId, term: Term, out: &mut Effects<M>) -> Notice {
        if term < self.term || matches!(self.seat, Seat::Leader(_)) {
            return Notice::Nothing;
        }
        if term > self.term {
            self.adopt(now, term, out);
            self.persist(out);
        }
        if self.promise.to == Some(from) {
            self.vacate(now, from, Cause::Released, out);
        }
        if self.abstains {
            // The others may not even know that the office is free.
            for to in self.others() {
                self.say(to, OfficeMessage::Declined { term }, out);
            }
            return Notice::Nothing;
        }
        self.stabilizer.called(now);
        Notice::Called(term)
    }

    /// Somebody was to lead after `term` and does not: the office is free for us all.
    fn on_declined<M>(&mut self, now: Instant, term: Term, out: &mut Effects<M>) {
        if term < self.term || self.promise.term > term || !matches!(self.seat, Seat::Follower) {
            return;
        }
        // Whoever led in `term` or before does so no longer, and nobody else can hold that term.
        self.vacate(now, self.leader.unwrap_or(self.me), Cause::Released, out);
        if !self.stabilizer.may_stand(now) {
            // Perhaps it was ours and we gave it away in vain: then it is ours again, if nobody else wants it.
            self.stabilizer.unclaimed(now);
            self.wait_for(now, self.settings.pace().reply);
        }
    }
}

/// Turns that still differ when the office falls free: beyond, chance decides.
const TURNS_MAX: u32 = 16;

/// Those who know that the office is free try again soon this often: others learn of it a little later.
const HURRIES_MAX: u8 = 3;

/// Steps of priority that still make a difference: beyond, a node would wait for seconds.
const PRIORITY_STEPS_MAX: u8 = 8;
