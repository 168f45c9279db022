//! The Bully algorithm (Garcia-Molina 1982): the greatest id that answers shall lead.
//!
//! Who misses the leader asks all greater ids (ELECTION). If none answers (ALIVE) in time, it has won and says so to all (COORDINATOR); if one does,
//! that one takes over, and the asker waits for its announcement, or asks again. A greater id that comes back demands the office from a smaller
//! leader, or waits until it is free ([`Takeover`]).
//!
//! Two things go beyond the paper. Under the quorum guard the winner must also be voted in by a majority ([office](crate::office)); and a node that
//! was rejected stands aside for a while and does not answer, because a bully nobody can follow would otherwise keep the group without a leader.
//! For the same reason a guarded node yields to greater ids only once for each leader that it misses; then it asks for the votes itself.

use core::fmt;

use crate::office::{Mandate, Notice, Office, OfficeMessage, Voting};
use crate::protocol::{Claim, Effects, Event, Input, NodeId, Protocol, Purpose, Record, Request, Role, Term, View, Wire};
use crate::settings::{Settings, Takeover};
use crate::time::Instant;

/// What Bully nodes say to each other.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum BullyMessage {
    /// "The leader is gone; are you there?" To greater ids, and to a leader in doubt.
    Election {
        /// The sender's term.
        term: Term,
    },
    /// "I am, and I take it from here."
    Alive {
        /// The sender's term.
        term: Term,
    },
    /// "I am in office": the announcement, and the first heartbeat.
    Coordinator {
        /// The term of the leadership.
        term: Term,
        /// When this was sent, on the sender's clock.
        sent: Instant,
    },
    /// "My id is greater than yours: hand over." Only ever to a smaller leader.
    Demand {
        /// The sender's term.
        term: Term,
    },
    /// About the office.
    Office(OfficeMessage),
}

impl From<OfficeMessage> for BullyMessage {
    fn from(message: OfficeMessage) -> Self {
        BullyMessage::Office(message)
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum Phase {
    /// No contest of our own under way.
    Quiet,
    /// ELECTION sent: will a greater id answer?
    Asking { until: Instant },
    /// A greater id has answered: will it announce itself?
    Yielding { until: Instant },
}

/// A node that elects by the Bully algorithm.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Bully {
    office: Office,
    phase: Phase,
    /// Whether greater ids have answered since we last knew a leader, and none has come of it.
    yielded_in_vain: bool,
    next_demand: Instant,
}

impl Protocol for Bully {
    type Message = BullyMessage;

    fn start(me: NodeId, settings: &Settings, seed: u64, disk: Option<Record>, now: Instant) -> Self {
        let office = Office::start(me, settings, Voting::UnderGuard, seed, disk, now);
        Self { office, phase: Phase::Quiet, yielded_in_vain: false, next_demand: now }
    }

    fn step(&mut self, now: Instant, input: Input<BullyMessage>, out: &mut Effects<BullyMessage>) {
        let notice = match input {
            Input::Wake => {
                let notice = self.office.wake(now, out);
                self.on_phase_end(now, out);
                notice
            }
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
        match self.phase {
            Phase::Quiet => self.office.deadline(),
            Phase::Asking { until } | Phase::Yielding { until } => until.min(self.office.deadline()),
        }
    }

    fn view(&self) -> View {
        let mut view = self.office.view();
        if view.role == Role::Follower && (self.phase != Phase::Quiet || self.office.is_candidate()) {
            view.role = Role::Candidate;
        }
        view
    }
}

impl Bully {
    fn on_message(&mut self, now: Instant, from: NodeId, message: BullyMessage, out: &mut Effects<BullyMessage>) -> Notice {
        self.office.hear_of(message.reached());
        match message {
            BullyMessage::Election { .. } => {
                self.on_election(now, from, out);
                Notice::Nothing
            }
            BullyMessage::Alive { .. } => {
                if let Phase::Asking { .. } = self.phase {
                    // It has to hear from the ids above it, then perhaps to be voted in.
                    let pace = self.office.settings().pace();
                    let until = now + pace.reply * 2 + pace.patience_min;
                    self.phase = Phase::Yielding { until };
                    self.office.wait_for(now, until - now);
                }
                Notice::Nothing
            }
            BullyMessage::Coordinator { term, sent } => self.office.on_heartbeat(now, from, term, sent, out),
            BullyMessage::Demand { .. } => {
                if from > self.office.me() && self.office.settings().takeover() == Takeover::AtOnce {
                    self.office.yield_to(now, from, out);
                }
                Notice::Nothing
            }
            BullyMessage::Office(message) => self.office.receive(now, from, message, out),
        }
    }

    fn on_election(&mut self, now: Instant, from: NodeId, out: &mut Effects<BullyMessage>) {
        if self.office.is_in_office(now) {
            // It has lost sight of us, or was told to ask: nothing has changed.
            return self.office.assure(now, from, out);
        }
        if from > self.office.me() || !self.office.may_stand(now) {
            return;
        }
        out.send(from, BullyMessage::Alive { term: self.office.term() });
        // Who has just heard the leader does not share the asker's doubt.
        if self.phase == Phase::Quiet && !self.office.is_candidate() && !self.office.hears_leader(now) {
            self.contend(now, out);
        }
    }

    fn on_request(&mut self, now: Instant, request: Request, out: &mut Effects<BullyMessage>) -> Notice {
        match request {
            Request::Campaign => return Notice::Due,
            Request::Resign => self.office.resign(now, None, out),
            Request::HandOver { to } => return self.office.hand_over(now, to, out),
            Request::Suspect { peer } => self.office.suspect(now, peer, out),
            Request::Dead { peer } => self.office.bury(now, peer, out),
            Request::Abstain => {
                if self.phase != Phase::Quiet {
                    self.phase = Phase::Quiet;
                    out.emit(Event::Rejected { term: self.office.term() });
                }
                self.office.abstain(now, None, out);
            }
            Request::Stand => return self.office.stand_again(),
        }
        Notice::Nothing
    }

    fn on_notice(&mut self, now: Instant, notice: Notice, out: &mut Effects<BullyMessage>) {
        match notice {
            Notice::Due => {
                if self.phase == Phase::Quiet
                    && !self.office.is_candidate()
                    && !self.office.is_in_office(now)
                    && self.office.may_stand(now)
                {
                    self.contend(now, out);
                }
            }
            Notice::Heard(leader) => {
                (self.phase, self.yielded_in_vain) = (Phase::Quiet, false);
                self.demand(now, leader, out);
            }
            Notice::Elected => self.announce(now, out),
            Notice::Rejected => {
                self.phase = Phase::Quiet;
                self.office.stand_aside(now);
            }
            Notice::Called(term) => {
                self.phase = Phase::Quiet;
                self.claim(now, Mandate::HandedOver(term), out);
            }
            Notice::Nothing => {}
        }
    }

    /// Asks all greater ids whether they are there, and a smaller leader whether it still is.
    fn contend(&mut self, now: Instant, out: &mut Effects<BullyMessage>) {
        let (me, term) = (self.office.me(), self.office.term());
        let doubted = self.office.leader();
        self.office.contends(out);
        if self.yielded_in_vain && self.office.settings().quorum().is_some() {
            // The votes tell better than the greater ids who can lead, and bind nobody to one who cannot.
            return self.win(now, out);
        }
        let mut greatest = true;
        let buried = self.office.buried();
        for to in self.office.others().filter(|id| (*id > me || Some(*id) == doubted) && Some(*id) != buried) {
            greatest = false;
            out.send(to, BullyMessage::Election { term });
        }
        if greatest {
            return self.win(now, out);
        }
        let until = now + self.office.settings().pace().reply;
        self.phase = Phase::Asking { until };
        self.office.wait_for(now, until - now);
    }

    fn on_phase_end(&mut self, now: Instant, out: &mut Effects<BullyMessage>) {
        match self.phase {
            Phase::Asking { until } if now >= until => self.win(now, out),
            // The greater one died, or its announcement was lost, or it cannot get the votes: ask again.
            Phase::Yielding { until } if now >= until => {
                self.yielded_in_vain = true;
                self.contend(now, out);
            }
            Phase::Quiet | Phase::Asking { .. } | Phase::Yielding { .. } => {}
        }
    }

    /// No greater id has answered.
    fn win(&mut self, now: Instant, out: &mut Effects<BullyMessage>) {
        self.phase = Phase::Quiet;
        self.claim(now, Mandate::Vacancy, out);
    }

    fn claim(&mut self, now: Instant, mandate: Mandate, out: &mut Effects<BullyMessage>) {
        let notice = self.office.claim(now, mandate, out);
        if notice == Notice::Elected {
            self.announce(now, out);
        }
    }

    fn announce(&mut self, now: Instant, out: &mut Effects<BullyMessage>) {
        (self.phase, self.yielded_in_vain) = (Phase::Quiet, false);
        let term = self.office.term();
        if self.office.announced(now) {
            for to in self.office.others() {
                out.send(to, BullyMessage::Coordinator { term, sent: now });
            }
        }
    }

    /// A smaller id is in office: ask for it, if that is the rule.
    fn demand(&mut self, now: Instant, leader: NodeId, out: &mut Effects<BullyMessage>) {
        let settings = self.office.settings();
        let wanted = leader < self.office.me() && settings.takeover() == Takeover::AtOnce;
        if wanted && self.office.may_stand(now) && now >= self.next_demand {
            self.next_demand = now + settings.pace().patience_max;
            out.send(leader, BullyMessage::Demand { term: self.office.term() });
        }
    }
}

impl BullyMessage {
    /// A term that somebody has reached, as far as this message shows.
    fn reached(&self) -> Term {
        match *self {
            BullyMessage::Election { term }
            | BullyMessage::Alive { term }
            | BullyMessage::Coordinator { term, .. }
            | BullyMessage::Demand { term } => term,
            BullyMessage::Office(message) => message.reached(),
        }
    }
}

impl Wire for BullyMessage {
    fn name(&self) -> &'static str {
        match self {
            BullyMessage::Election { .. } => "election",
            BullyMessage::Alive { .. } => "alive",
            BullyMessage::Coordinator { .. } => "coordinator",
            BullyMessage::Demand { .. } => "demand",
            BullyMessage::Office(message) => message.name(),
        }
    }

    fn purpose(&self) -> Purpose {
        match self {
            BullyMessage::Election { .. } | BullyMessage::Alive { .. } | BullyMessage::Coordinator { .. } => Purpose::Contest,
            BullyMessage::Demand { .. } => Purpose::Upkeep,
            BullyMessage::Office(message) => message.purpose().for_guard(),
        }
    }

    fn term(&self) -> Term {
        match *self {
            BullyMessage::Election { term }
            | BullyMessage::Alive { term }
            | BullyMessage::Coordinator { term, .. }
            | BullyMessage::Demand { term } => term,
            BullyMessage::Office(message) => message.term(),
        }
    }

    fn claim(&self, from: NodeId, to: NodeId) -> Claim {
        match *self {
            // Courtesy only: nobody decides anything by the term of these.
            BullyMessage::Election { .. } | BullyMessage::Alive { .. } | BullyMessage::Demand { .. } => Claim::Nothing,
            BullyMessage::Coordinator { term, .. } => Claim::Office(term),
            BullyMessage::Office(message) => message.claim(from, to),
        }
    }

    fn len_bytes(&self) -> usize {
        match self {
            BullyMessage::Election { .. } | BullyMessage::Alive { .. } | BullyMessage::Demand { .. } => 1 + 8,
            BullyMessage::Coordinator { .. } => 1 + 8 + 8,
            BullyMessage::Office(message) => message.len_bytes(),
        }
    }
}

impl fmt::Display for BullyMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BullyMessage::Office(message) => message.fmt(f),
            BullyMessage::Election { .. } | BullyMessage::Alive { .. } | BullyMessage::Demand { .. } => f.write_str(self.name()),
            BullyMessage::Coordinator { term, .. } => write!(f, "{} term={term}", self.name()),
        }
    }
}
