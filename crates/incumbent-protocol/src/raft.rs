//! Raft's election (Ongaro and Ousterhout 2014; Ongaro's thesis, chapters 4, 6 and 9), and nothing of its log.
//!
//! Who has waited long enough without a leader stands, and the votes decide. The waiting times are drawn at random, so that seldom two stand
//! together; if they do and the votes split, they draw again. Everything else, votes and terms included, is the [office](crate::office).
//!
//! Without a log every node is fit to lead, so the paper's comparison of logs has no place here.

use crate::office::{Mandate, Notice, Office, OfficeMessage, Voting};
use crate::protocol::{Effects, Input, NodeId, Protocol, Record, Request, View, Wire};
use crate::settings::{Invalid, Settings};
use crate::time::Instant;

/// A node that elects by Raft's rules.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Raft {
    office: Office,
}

impl Protocol for Raft {
    type Message = OfficeMessage;

    fn start(me: NodeId, settings: &Settings, seed: u64, disk: Option<Record>, now: Instant) -> Self {
        Self { office: Office::start(me, settings, Voting::Always, seed, disk, now) }
    }

    fn step(&mut self, now: Instant, input: Input<OfficeMessage>, out: &mut Effects<OfficeMessage>) {
        if self.office.is_removed() {
            return;
        }
        let notice = match input {
            Input::Wake => {
                self.prefer_greater_priority(now, out);
                self.office.wake(now, out)
            }
            Input::Receive { from, message } if self.office.admits(from, message.term(), out) => {
                self.office.receive(now, from, message, out)
            }
            Input::Receive { .. } => Notice::Nothing,
            Input::Persisted(mark) => self.office.persisted(now, mark, out),
            Input::Request(request) => self.on_request(now, request, out),
        };
        match notice {
            Notice::Due if self.office.may_stand(now) => self.claim(now, Mandate::Vacancy, out),
            Notice::Called(term) => self.claim(now, Mandate::HandedOver(term), out),
            Notice::Elected => self.office.beat(now, out),
            // A lost ballot is waited out by the office; the next try comes with the next `Due`.
            Notice::Due | Notice::Heard(_) | Notice::Rejected | Notice::Nothing => {}
        }
    }

    fn deadline(&self) -> Instant {
        if self.office.is_removed() { Instant::NEVER } else { self.office.deadline() }
    }

    fn view(&self) -> View {
        self.office.view()
    }
}

impl Raft {
    /// As [`Machine::reconfigure`](crate::machine::Machine::reconfigure).
    pub fn reconfigure(&mut self, now: Instant, settings: &Settings, out: &mut Effects<OfficeMessage>) -> Result<(), Invalid> {
        let heir = self.office.heir().filter(|heir| settings.rank(*heir).is_some());
        self.office.reconfigure(now, settings, heir, out)
    }

    fn on_request(&mut self, now: Instant, request: Request, out: &mut Effects<OfficeMessage>) -> Notice {
        match request {
            Request::Campaign => return Notice::Due,
            Request::Resign => {
                let heir = self.office.heir();
                self.office.resign(now, heir, out);
            }
            Request::HandOver { to } => return self.office.hand_over(now, to, out),
            Request::Suspect { peer } => self.office.suspect(now, peer, out),
            Request::Dead { peer } => self.office.bury(now, peer, out),
            Request::Abstain => {
                let heir = self.office.heir();
                self.office.abstain(now, heir, out);
            }
            Request::Stand => return self.office.stand_again(),
        }
        Notice::Nothing
    }

    fn claim(&mut self, now: Instant, mandate: Mandate, out: &mut Effects<OfficeMessage>) {
        if self.office.claim(now, mandate, out) == Notice::Elected {
            self.office.beat(now, out);
        }
    }

    /// A leader that sees a healthy member of greater priority asks its user to hand over.
    fn prefer_greater_priority(&mut self, now: Instant, out: &mut Effects<OfficeMessage>) {
        let settings = self.office.settings();
        let mine = settings.priority(self.office.me());
        if mine < settings.priority_max()
            && let Some(heir) = self.office.heir().filter(|heir| settings.priority(*heir) > mine)
        {
            self.office.yield_to(now, heir, out);
        }
    }
}
