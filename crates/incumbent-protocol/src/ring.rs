//! The ring that collects ids, and what it shares with [Chang–Roberts](crate::chang_roberts): a node in a ring.
//!
//! Who misses the leader sends ELECTION round the ring; everyone who would lead adds its id. Back at the initiator the list is complete, the
//! greatest id has won, and COORDINATOR goes round to say so. One initiator, no faults: exactly 2n messages.
//!
//! The lap announces the winner; only the winner's own heartbeats make it the leader. So a winner that dies in mid-circuit is never
//! followed: its heartbeats do not come, and the next lap skips it. Under the quorum guard it must be voted in first ([office](crate::office)),
//! and a node that no lap has brought a leader in time asks for the votes itself.

use alloc::vec;
use alloc::vec::Vec;
use core::marker::PhantomData;

use crate::circuit::{Circuit, Lap, RingMessage};
use crate::office::{Mandate, Notice, Office, Voting};
use crate::protocol::{Effects, Event, Input, NodeId, Protocol, Record, Request, Role, Term, View, Wire};
use crate::settings::Settings;
use crate::time::Instant;

/// A node that elects by the ring that collects ids.
pub type Ring = RingNode<Collect>;

/// How a node of a ring takes part in an ELECTION lap.
pub trait Rule: Sized + Clone {
    /// Begins a lap.
    fn begin(node: &mut RingNode<Self>, now: Instant, out: &mut Effects<RingMessage>);
    /// A lap has come by; this node is not in office and has not just heard a leader.
    fn on_election(node: &mut RingNode<Self>, now: Instant, lap: ElectionLap, out: &mut Effects<RingMessage>);
    /// This node has taken office.
    fn on_elected(node: &mut RingNode<Self>, now: Instant, out: &mut Effects<RingMessage>);
}

/// An ELECTION lap as it comes by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ElectionLap {
    /// Who began it.
    pub(crate) initiator: NodeId,
    /// The candidates named so far.
    pub(crate) ids: Vec<NodeId>,
    /// The greatest term of any node it passed, ours included.
    pub(crate) term: Term,
    /// Hops left.
    pub(crate) hops: u32,
}

/// What a guarded node expects of the laps since it last knew a leader.
///
/// In a network that is linked in part only, a lap may end far from the node that it names, or name one that cannot get the votes; and
/// the laps of others come by without end. So the wait for them is counted from the first one, and no later one prolongs it.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum Hope {
    /// No lap was under way.
    Untried,
    /// Some are. By this time they should have brought a leader.
    Until(Instant),
    /// They did not: the votes must decide alone, as in Raft. Laps are still passed on.
    InVain,
}

/// A node in a ring.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RingNode<R> {
    pub(crate) office: Office,
    pub(crate) circuit: Circuit,
    /// Until when a lap of ours, or one that names us, is worth waiting for.
    pub(crate) in_contest_until: Option<Instant>,
    /// What the laps since the last leader are still good for.
    hope: Hope,
    /// Back after a crash: the others may be skipping us, and must be told.
    greets_at: Instant,
    rule: PhantomData<R>,
}

impl<R: Rule> Protocol for RingNode<R> {
    type Message = RingMessage;

    fn start(me: NodeId, settings: &Settings, seed: u64, disk: Option<Record>, now: Instant) -> Self {
        let mut office = Office::start(me, settings, Voting::UnderGuard, seed, disk, now);
        let first_hop = office.chance().bits() as u32;
        let greets_at = if disk.is_some() { now } else { Instant::NEVER };
        Self {
            office,
            circuit: Circuit::new(me, settings, first_hop),
            in_contest_until: None,
            hope: Hope::Untried,
            greets_at,
            rule: PhantomData,
        }
    }

    fn step(&mut self, now: Instant, input: Input<RingMessage>, out: &mut Effects<RingMessage>) {
        let notice = match input {
            Input::Wake => self.on_wake(now, out),
            Input::Receive { from, message } if self.office.admits(from, message.term(), out) => {
                self.on_message(now, from, message, out)
            }
            Input::Receive { .. } => Notice::Nothing,
            Input::Persisted(mark) => self.office.persisted(now, mark, out),
            Input::Request(request) => self.on_request(now, request, out),
        };
        self.on_notice(now, notice, out);
    }

    fn deadline(&self) -> Instant {
        let contest = self.in_contest_until.unwrap_or(Instant::NEVER);
        let hope = if let Hope::Until(until) = self.hope { until } else { Instant::NEVER };
        self.office.deadline().min(self.circuit.deadline()).min(contest).min(hope).min(self.greets_at)
    }

    fn view(&self) -> View {
        let mut view = self.office.view();
        let contends = self.in_contest_until.is_some() || self.office.is_candidate();
        if view.role == Role::Follower && contends && !self.office.abstains() {
            view.role = Role::Candidate;
        }
        view
    }
}

impl<R: Rule> RingNode<R> {
    fn on_wake(&mut self, now: Instant, out: &mut Effects<RingMessage>) -> Notice {
        if now >= self.greets_at {
            self.greets_at = Instant::NEVER;
            let term = self.office.term();
            for to in self.office.others() {
                out.send(to, RingMessage::Joined { term });
            }
        }
        for lap in self.circuit.wake(now, out) {
            self.came_round(now, lap, out);
        }
        if let Hope::Until(until) = self.hope
            && now >= until
        {
            self.hope = Hope::InVain;
            self.in_contest_until = None;
            self.office.wait_no_longer(now);
        }
        if self.in_contest_until.is_some_and(|until| now >= until) {
            // The lap was lost, or the node that would have ended it.
            self.in_contest_until = None;
            self.contend(now, out);
        }
        self.office.wake(now, out)
    }

    fn on_message(&mut self, now: Instant, from: NodeId, message: RingMessage, out: &mut Effects<RingMessage>) -> Notice {
        self.circuit.heard(from);
        self.office.hear_of(message.reached());
        match message {
            RingMessage::Hop { lap, .. } if !lap.is_sane(self.office.settings()) => {
                out.emit(Event::Ignored { from });
                Notice::Nothing
            }
            RingMessage::Hop { hop, lap } => {
                if self.circuit.arrived(from, hop, out) {
                    self.on_lap(now, lap, out);
                }
                Notice::Nothing
            }
            RingMessage::HopAck { hop } => {
                self.circuit.acknowledged(from, hop);
                Notice::Nothing
            }
            RingMessage::Joined { .. } => Notice::Nothing,
            RingMessage::Office(message) => self.office.receive(now, from, message, out),
        }
    }

    fn on_lap(&mut self, now: Instant, lap: Lap, out: &mut Effects<RingMessage>) {
        match lap {
            Lap::Election { initiator, ids, term, hops } => {
                if self.office.is_in_office(now) {
                    // They have lost sight of us: nothing has changed.
                    for id in ids.into_iter().chain([initiator]) {
                        if id != self.office.me() {
                            self.office.assure(now, id, out);
                        }
                    }
                } else if !self.office.hears_leader(now) {
                    let term = term.max(self.office.term());
                    R::on_election(self, now, ElectionLap { initiator, ids, term, hops }, out);
                }
                // Who has just heard the leader does not share the initiator's doubt, and lets the lap end here.
            }
            Lap::Coordinator { leader, initiator, term, hops } => {
                if !self.office.is_in_office(now) {
                    self.in_contest_until = None;
                    self.wait_for_lap(now);
                }
                if initiator != self.office.me() && hops > 1 {
                    self.pass(now, Lap::Coordinator { leader, initiator, term, hops: hops - 1 }, out);
                }
                if leader == self.office.me() && initiator != leader {
                    self.win(now, out);
                }
            }
        }
    }

    fn on_request(&mut self, now: Instant, request: Request, out: &mut Effects<RingMessage>) -> Notice {
        match request {
            Request::Campaign => return Notice::Due,
            Request::Resign => self.office.resign(now, None, out),
            Request::HandOver { to } => return self.office.hand_over(now, to, out),
            Request::Suspect { peer } => self.office.suspect(now, peer, out),
            Request::Dead { peer } => {
                self.circuit.bury(now, peer);
                self.office.bury(now, peer, out);
            }
            Request::Abstain => {
                if self.in_contest_until.take().is_some() {
                    out.emit(Event::Rejected { term: self.office.term() });
                }
                self.office.abstain(now, None, out);
            }
            Request::Stand => return self.office.stand_again(),
        }
        Notice::Nothing
    }

    fn on_notice(&mut self, now: Instant, notice: Notice, out: &mut Effects<RingMessage>) {
        match notice {
            Notice::Due => {
                if self.in_contest_until.is_none() {
                    self.contend(now, out);
                }
            }
            Notice::Heard(_) => {
                (self.in_contest_until, self.hope) = (None, Hope::Untried);
                self.circuit.forget();
            }
            Notice::Elected => self.on_elected(now, out),
            Notice::Rejected => {
                self.in_contest_until = None;
                self.office.stand_aside(now);
            }
            Notice::Called(term) => self.claim(now, Mandate::HandedOver(term), out),
            Notice::Nothing => {}
        }
    }

    fn contend(&mut self, now: Instant, out: &mut Effects<RingMessage>) {
        if self.office.is_in_office(now) || self.office.is_candidate() || !self.office.may_stand(now) {
            return;
        }
        self.office.contends(out);
        if self.hope == Hope::InVain {
            return self.claim(now, Mandate::Vacancy, out);
        }
        self.enter_contest(now);
        if self.office.hurries() {
            // Who has not heard yet that the office is free lets the lap end: ask again as soon as it should be back.
            let back = now + self.circuit.quick_lap_time();
            self.in_contest_until = self.in_contest_until.map(|until| until.min(back));
        }
        R::begin(self, now, out);
    }

    /// Counts on a lap under way for as long as one may take.
    pub(crate) fn enter_contest(&mut self, now: Instant) {
        self.wait_for_lap(now);
        self.in_contest_until = match self.hope {
            Hope::Untried => Some(now + self.circuit.lap_time()),
            Hope::Until(until) => Some(until),
            Hope::InVain => None,
        };
    }

    /// Gives a lap under way the time that it may take, unless the laps have been tried for long enough.
    pub(crate) fn wait_for_lap(&mut self, now: Instant) {
        let lap_time = self.circuit.lap_time();
        match self.hope {
            Hope::Untried if self.office.settings().quorum().is_some() => self.hope = Hope::Until(now + lap_time),
            Hope::InVain => return,
            Hope::Untried | Hope::Until(_) => {}
        }
        self.office.wait_for(now, lap_time);
    }

    /// Sends `lap` on; with nobody left to send it to, it has come round.
    pub(crate) fn pass(&mut self, now: Instant, lap: Lap, out: &mut Effects<RingMessage>) {
        if let Some(lap) = self.circuit.forward(now, lap, out) {
            self.came_round(now, lap, out);
        }
    }

    /// All others are skipped, so we are next after ourselves. A lap that we have already had a part in ends here.
    fn came_round(&mut self, now: Instant, lap: Lap, out: &mut Effects<RingMessage>) {
        match &lap {
            Lap::Election { ids, .. } if ids.contains(&self.office.me()) => self.on_lap(now, lap, out),
            Lap::Election { .. } | Lap::Coordinator { .. } => {}
        }
    }

    /// The contest is won: take office, or ask for the votes.
    pub(crate) fn win(&mut self, now: Instant, out: &mut Effects<RingMessage>) {
        self.in_contest_until = None;
        if !self.office.is_candidate() && self.office.may_stand(now) {
            self.claim(now, Mandate::Vacancy, out);
        }
    }

    fn claim(&mut self, now: Instant, mandate: Mandate, out: &mut Effects<RingMessage>) {
        if self.office.claim(now, mandate, out) == Notice::Elected {
            self.on_elected(now, out);
        }
    }

    fn on_elected(&mut self, now: Instant, out: &mut Effects<RingMessage>) {
        (self.in_contest_until, self.hope) = (None, Hope::Untried);
        self.office.beat(now, out);
        R::on_elected(self, now, out);
    }
}

/// The rule that collects ids.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Collect;

impl Rule for Collect {
    fn begin(node: &mut RingNode<Self>, now: Instant, out: &mut Effects<RingMessage>) {
        let me = node.office.me();
        // Twice round at the most: a lap that misses its initiator ends at the first node that finds itself in the list.
        let hops = node.circuit.full_lap().saturating_mul(2);
        node.pass(now, Lap::Election { initiator: me, ids: vec![me], term: node.office.term(), hops }, out);
    }

    fn on_election(node: &mut RingNode<Self>, now: Instant, lap: ElectionLap, out: &mut Effects<RingMessage>) {
        let me = node.office.me();
        let ElectionLap { initiator, mut ids, term, hops } = lap;
        if initiator == me || ids.contains(&me) {
            return decide(node, now, &ids, term, out);
        }
        // Our own lap is under way and will do: of several initiators the greatest counts.
        if (node.in_contest_until.is_some() && initiator < me) || hops <= 1 {
            return;
        }
        if node.office.may_stand(now) {
            ids.push(me);
        }
        node.wait_for_lap(now);
        node.pass(now, Lap::Election { initiator, ids, term, hops: hops - 1 }, out);
    }

    fn on_elected(_: &mut RingNode<Self>, _: Instant, _: &mut Effects<RingMessage>) {
        // COORDINATOR has gone round already: it was sent when the count was complete.
    }
}

/// The list is complete: its greatest id has won.
fn decide(node: &mut RingNode<Collect>, now: Instant, ids: &[NodeId], term: Term, out: &mut Effects<RingMessage>) {
    let me = node.office.me();
    node.in_contest_until = None;
    // We may have stopped standing while our id went round.
    let willing = ids.iter().copied().filter(|id| *id != me || !node.office.abstains());
    let Some(leader) = willing.max() else { return };
    node.wait_for_lap(now);
    let hops = node.circuit.full_lap();
    node.pass(now, Lap::Coordinator { leader, initiator: me, term, hops }, out);
    if leader == me {
        node.win(now, out);
    }
}
