//! What goes wrong, and when it goes right again.
//!
//! Faults strike every half lease on average, of the kinds that the setup allows. Each brings its own end with it. When the world
//! heals, all of them end and no new ones come.

use core::time::Duration;

use incumbent_protocol::chance::Chance;
use incumbent_protocol::tenure::{Input, Request};

use super::setup::Clocks;
use super::sighting::Sighting;
use super::tally::Case;
use super::world::{Happening, World};
use crate::network::Quality;

/// chrony's limit for slewing, in parts per million.
const SLEW_PPM_MAX: i32 = 83_333;

/// A change of the weather.
#[derive(Copy, Clone, Debug)]
pub(super) enum Change {
    /// A fault is drawn and happens, and the next is put into the queue.
    Strike,
    /// The links between a process and the service work again.
    Mend { node: u32 },
    /// A process that stood still goes on.
    Resume { node: u32 },
    /// A process that crashed comes up.
    Restart { node: u32 },
    /// The service comes up.
    ServiceUp,
    /// Answers to a process are as quick as ever.
    QuickReplies { node: u32 },
    /// All links are as they were.
    Calm,
    /// A process that stood aside contends.
    Contend { node: u32 },
    /// All of these, and no more faults.
    Heal,
    /// The one in office crashes.
    Decapitate,
}

#[derive(Copy, Clone)]
enum Kind {
    Cut,
    Pause,
    Crash,
    Outage,
    Drift,
    SlowReplies,
    Storm,
    Request,
    FalseHint,
}

impl World<'_> {
    pub(super) fn change(&mut self, change: Change) {
        match change {
            Change::Heal => self.heal(),
            Change::Decapitate => self.decapitate(),
            // What would have struck, or have ended, after the healing is over.
            Change::Strike
            | Change::Mend { .. }
            | Change::Resume { .. }
            | Change::Restart { .. }
            | Change::ServiceUp
            | Change::QuickReplies { .. }
            | Change::Calm
            | Change::Contend { .. }
                if self.healed => {}
            Change::Strike => self.strike(),
            Change::Mend { node } => self.network.mend([(0, node + 1), (node + 1, 0)]),
            Change::Resume { node } => self.resume(node),
            Change::Restart { node } => self.restart(node),
            Change::ServiceUp => self.service_up(),
            Change::QuickReplies { node } => self.network.change([(0, node + 1)], |quality| quality.spike_ppm = 0),
            Change::Calm => {
                let quality = self.setup.network.quality;
                self.network.change_all(|it| *it = quality);
            }
            Change::Contend { node } => self.contend(node),
        }
    }

    fn later(&mut self, longest: Duration, change: Change) {
        let at = self.now + self.chance.between(Duration::ZERO, longest);
        self.queue.put(at, Happening::Weather(change));
    }

    fn strike(&mut self) {
        let ttl = self.setup.timing.ttl();
        self.later(ttl, Change::Strike);
        let node = self.chance.below(u64::from(self.setup.holders)) as u32;
        match self.draw_kind() {
            Kind::Cut => {
                let (out, back) = ((node + 1, 0), (0, node + 1));
                match self.chance.below(4) {
                    0 => self.network.cut([out]),
                    1 => self.network.cut([back]),
                    _ => self.network.cut([out, back]),
                }
                self.later(ttl * 3, Change::Mend { node });
            }
            Kind::Pause => {
                let now = self.now;
                let process = self.process(node);
                if process.machine.is_some() && process.paused.is_none() {
                    process.paused = Some(now);
                    self.later(ttl * 3, Change::Resume { node });
                }
            }
            Kind::Crash => {
                self.crash(node);
                self.later(ttl * 2, Change::Restart { node });
            }
            Kind::Outage => {
                if self.service_up && self.service.ends().is_some() {
                    self.tally.count(Case::OutageWhileHeld);
                }
                self.service_up = false;
                self.later(ttl * 2, Change::ServiceUp);
            }
            Kind::Drift => self.drift(),
            Kind::SlowReplies => {
                let spike = self.chance.between(Duration::ZERO, ttl * 2);
                self.network.change([(0, node + 1)], |quality: &mut Quality| {
                    quality.spike_ppm = 700_000;
                    quality.spike = spike;
                });
                self.later(ttl * 4, Change::QuickReplies { node });
            }
            Kind::Storm => {
                self.network.change_all(|quality| {
                    quality.loss_ppm = 300_000;
                    quality.duplicate_ppm = 500_000;
                    quality.reorder_ppm = 300_000;
                    quality.reorder = ttl;
                });
                self.later(ttl * 2, Change::Calm);
            }
            Kind::Request => self.ask_something(node),
            Kind::FalseHint => self.input(node, Input::Hint),
        }
    }

    fn draw_kind(&mut self) -> Kind {
        let faults = &self.setup.faults;
        let kinds = [
            (Kind::Cut, faults.cut),
            (Kind::Pause, faults.pause),
            (Kind::Crash, faults.crash),
            (Kind::Outage, faults.outage),
            (Kind::Drift, faults.drift),
            (Kind::SlowReplies, faults.slow_replies),
            (Kind::Storm, faults.storm),
            (Kind::Request, faults.request),
            (Kind::FalseHint, faults.false_hint),
        ];
        pick(&kinds, &mut self.chance)
    }

    /// One clock, the service's included, changes its pace.
    fn drift(&mut self) {
        let bound = self.setup.timing.drift_ppm().cast_signed();
        let widest = match self.setup.clocks {
            Clocks::WithinBound => bound,
            Clocks::BeyondBound => SLEW_PPM_MAX,
        };
        // The edges are where the arithmetic is put to the test.
        let ppm = match self.chance.below(4) {
            0 => widest,
            1 => -widest,
            _ => self.chance.below(u64::from(widest.unsigned_abs()) * 2 + 1) as i32 - widest,
        };
        let now = self.now;
        match self.chance.below(u64::from(self.setup.holders) + 1) as u32 {
            0 => {
                self.service_clock.set_rate(now, ppm);
                self.after_service(Vec::new());
            }
            one_more => {
                let node = one_more - 1;
                self.process(node).clock.set_rate(now, ppm);
                self.look(node);
                self.sleep(node);
            }
        }
    }

    fn ask_something(&mut self, node: u32) {
        let requests = [Request::Resign, Request::HandOver, Request::Evict, Request::Withdraw, Request::HealthFailed];
        let request = requests[self.chance.below(5) as usize];
        match request {
            Request::Contend | Request::Resign | Request::HandOver | Request::Evict => {}
            Request::Withdraw | Request::HealthFailed => {
                self.process(node).aside = true;
                let ttl = self.setup.timing.ttl();
                self.later(ttl * 3, Change::Contend { node });
            }
        }
        self.input(node, Input::Request(request));
    }

    fn contend(&mut self, node: u32) {
        if core::mem::take(&mut self.process(node).aside) {
            self.input(node, Input::Request(Request::Contend));
        }
    }

    fn restart(&mut self, node: u32) {
        if self.process(node).machine.is_none() {
            self.start(node);
        }
    }

    /// What stood still goes on: first the work, which has not noticed anything; then the machine finds what has arrived.
    fn resume(&mut self, node: u32) {
        let now = self.now;
        let process = self.process(node);
        let Some(since) = process.paused.take() else { return };
        let crossed = process.belief.is_some_and(|(_, until)| since < until && until <= now);
        let postponed = core::mem::take(&mut process.postponed);
        let inbox = core::mem::take(&mut process.inbox);
        if crossed {
            self.tally.count(Case::PausedAcrossDeadline);
        }
        for happening in postponed {
            self.queue.put(now, happening);
        }
        // Its timer and its socket become ready together; either may be looked at first.
        if self.chance.happens(500_000) {
            self.step(node, Input::Wake);
        }
        for input in inbox {
            self.step(node, input);
        }
        self.step(node, Input::Wake);
    }

    fn service_up(&mut self) {
        if !core::mem::replace(&mut self.service_up, true) {
            self.service.restart(self.service_clock.read(self.now));
            self.after_service(Vec::new());
        }
    }

    fn heal(&mut self) {
        self.network.restore();
        self.network.change_all(|quality| *quality = Quality::calm(quality.delay));
        self.service_up();
        let now = self.now;
        self.service_clock.restore(now);
        self.after_service(Vec::new());
        for node in 0..self.setup.holders {
            self.process(node).clock.restore(now);
            self.look(node);
            self.resume(node);
            self.restart(node);
            self.contend(node);
            self.sleep(node);
        }
        self.healed = true;
        self.see(Sighting::Healed);
    }

    fn decapitate(&mut self) {
        let now = self.now;
        let in_office = self.processes.iter().position(|it| it.belief.is_some_and(|(_, until)| now < until));
        if let Some(node) = in_office {
            self.see(Sighting::Decapitated);
            self.crash(node as u32);
        }
    }
}

/// One of `kinds`, as often as its weight says.
fn pick(kinds: &[(Kind, u32)], chance: &mut Chance) -> Kind {
    let total: u32 = kinds.iter().map(|(_, weight)| weight).sum();
    let mut drawn = chance.below(u64::from(total)) as u32;
    for (kind, weight) in kinds {
        if drawn < *weight {
            return *kind;
        }
        drawn -= weight;
    }
    Kind::Cut
}
