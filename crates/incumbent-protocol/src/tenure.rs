//! The lease holder's own machine: when to claim, renew, warn, stop, release and contend again. One for all lock services.
//!
//! ```text
//!                       Contend                granted                    no renewal, or told to
//!            Idle ────────────────► Contending ────────► Held ⇄ Jeopardy ────────► Stopping
//!             ▲                       ▲     ▲                     │ deadline, evicted │ WorkEnded
//!             │ Withdraw              │     │ WorkEnded           ▼                   ▼
//!             └───────── Releasing ◄──┼─────┴─────────────────── Lost            Releasing
//!                            └────────┘ released
//! ```
//!
//! What it promises, whatever the order of its inputs:
//! - Validity counts from the *send* of the call that was acknowledged ([`crate::timing`]), and once it is gone it is gone.
//! - Stop, then release: nothing is released, and nothing claimed, while work of a former leadership may run. Work that will not die
//!   keeps the seat, as long as renewals succeed: a successor beside it would be worse than none.
//! - A claim whose outcome is unknown is resolved by asking. A lease that is found that way is renewed before it is believed in, so
//!   that its validity counts from a call whose send is known.
//! - A token that is not greater than every one seen before is not entered.
//! - It contends again by itself after a loss until told to withdraw; waits are jittered, and grow while the service fails.
//! - At most one call at a time, and no input makes it panic.
//!
//! What it leaves out: the network, the clock, the work. A driver reads the clock, calls [`Tenure::step`], and only then carries the
//! effects out; a pause in between makes the validity shorter, never longer.

mod words;

#[cfg(test)]
mod storm;
#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use crate::chance::Chance;
use crate::protocol::Token;
use crate::time::Instant;
use crate::timing::Timing;

pub use words::{Call, CallId, Decline, Effect, Event, Input, Outcome, Reason, Request, State};

/// So many of the last calls are remembered, for answers that come after their timeout.
const REMEMBERED_CALLS_MAX: usize = 8;

/// So often is the service asked to take a seat back, or what became of the last claim of one that withdraws. Afterwards the ttl does it.
const LETTING_GO_TRIES_MAX: u32 = 5;

/// One that withdraws waits so long at most for a service that is silent: whoever has told it to end does not wait for a ttl, which frees the seat as well.
const LETTING_GO_MAX: Duration = Duration::from_secs(10);

/// The machine. See the [module](self).
#[derive(Clone, Debug)]
pub struct Tenure {
    timing: Timing,
    chance: Chance,
    /// The latest instant seen: a clock that goes back is a clock that stands still.
    now: Instant,
    wish: Wish,
    phase: Phase,
    /// The last calls, oldest first, that have not been answered.
    calls: VecDeque<Sent>,
    /// The call that is waited for, and until when.
    waiting: Option<(CallId, Instant)>,
    next_id: u64,
    /// The greatest token of any leadership seen.
    seen: Option<Token>,
    /// Calls that failed in a row, in the present phase.
    failures: u32,
    /// Since when the seat, or what may have become of the last claim, is being let go.
    letting_go_since: Instant,
}

/// What the user wants in the long run.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Wish {
    Contend,
    /// Not now.
    StandAside,
    /// To end.
    Leave,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Sent {
    id: CallId,
    call: Call,
    at: Instant,
}

impl Sent {
    /// As if it had been sent at `from`, if that was earlier.
    fn counted(self, from: Option<Instant>) -> Sent {
        Sent { at: from.map_or(self.at, |from| self.at.min(from)), ..self }
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Phase {
    Idle,
    Contending(Contest),
    InOffice(Office),
    /// Out of office, work not yet ended.
    Overrun {
        token: Token,
        reason: Reason,
    },
    /// Out of office, work ended.
    Releasing {
        token: Token,
        reason: Reason,
        /// When to ask next; never while an answer is waited for.
        at: Instant,
    },
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Contest {
    next: Move,
    /// When to make it; never while an answer is waited for.
    at: Instant,
    /// Hints do not bring it forward beyond this.
    not_before: Instant,
    /// A hint came while an answer was waited for.
    hinted: bool,
    /// A hint made it, and not the clock. The next one must wait: hints come for nothing too, and in numbers.
    prompted: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Move {
    Claim,
    Inquire,
    /// Renew a leadership that was found to be ours.
    Adopt(Token),
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Office {
    token: Token,
    /// The send of the last call that was acknowledged.
    sent: Instant,
    /// How long that is good for.
    validity: Duration,
    stage: Stage,
    /// When to renew next; never while an answer is waited for.
    renew_at: Instant,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Stage {
    Calm,
    Jeopardy,
    Stopping { reason: Reason, since: Instant, killed: bool },
}

impl Tenure {
    /// A machine that holds nothing and wants nothing yet. `seen` is the greatest token it knows of from an earlier life.
    pub fn start(timing: Timing, seed: u64, seen: Option<Token>, now: Instant) -> Tenure {
        Tenure {
            timing,
            chance: Chance::new(seed),
            now,
            wish: Wish::StandAside,
            phase: Phase::Idle,
            calls: VecDeque::with_capacity(REMEMBERED_CALLS_MAX + 1),
            waiting: None,
            next_id: 1,
            seen,
            failures: 0,
            letting_go_since: now,
        }
    }

    /// The only door in. `now` is read before the call, and the effects are carried out after it.
    pub fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Effect>) {
        self.now = self.now.max(now);
        // Validity that has gone is gone, even if this very input would have prolonged it.
        self.expire(out);
        match input {
            Input::Wake => {}
            Input::Answer { call, outcome } => self.on_answer(call, outcome, out),
            Input::Hint => self.on_hint(),
            Input::WorkEnded { token } => self.on_work_ended(token, out),
            Input::Request(request) => self.on_request(request, out),
        }
        self.on_timeout(out);
        // Marks come after the input: an answer that lay waiting while the process was paused may have moved them.
        self.pass_marks(out);
        self.make_call(out);
    }

    /// When to wake the machine; [`Instant::NEVER`] if nothing is due.
    pub fn deadline(&self) -> Instant {
        let own = match &self.phase {
            Phase::Idle | Phase::Overrun { .. } => Instant::NEVER,
            Phase::Contending(contest) => contest.at,
            Phase::InOffice(office) => office.renew_at.min(office.next_mark(&self.timing)),
            Phase::Releasing { at, .. } => *at,
        };
        self.waiting.map_or(own, |(_, until)| own.min(until))
    }

    /// When one that withdraws lets the ttl do the rest.
    fn gives_up_at(&self) -> Instant {
        match self.phase {
            Phase::Contending(_) | Phase::Releasing { .. } if self.wish == Wish::Leave => self.letting_go_since + LETTING_GO_MAX,
            Phase::Idle | Phase::Contending(_) | Phase::InOffice(_) | Phase::Overrun { .. } | Phase::Releasing { .. } => {
                Instant::NEVER
            }
        }
    }

    /// What the holder is at `now`, even if it has not been woken as it should have been.
    pub fn state(&self, now: Instant) -> State {
        match &self.phase {
            Phase::Idle => State::Idle,
            Phase::Contending(_) => State::Contending,
            Phase::InOffice(office) => office.state(now.max(self.now), &self.timing),
            Phase::Overrun { token, .. } => State::Lost { token: *token },
            Phase::Releasing { token, .. } => State::Releasing { token: *token },
        }
    }

    /// The times it keeps.
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    fn expire(&mut self, out: &mut Vec<Effect>) {
        if let Phase::InOffice(office) = &self.phase
            && self.now >= office.until()
        {
            let token = office.token;
            self.lose(token, Reason::Expired, out);
        }
    }

    /// The leadership is gone while work may still run.
    fn lose(&mut self, token: Token, reason: Reason, out: &mut Vec<Effect>) {
        out.push(Effect::Emit(Event::Lost { token, reason }));
        self.phase = Phase::Overrun { token, reason };
    }

    fn on_request(&mut self, request: Request, out: &mut Vec<Effect>) {
        match request {
            Request::Contend => {
                self.wish = Wish::Contend;
                if let Phase::Idle = self.phase {
                    self.contend_after(Duration::ZERO, Duration::ZERO);
                }
            }
            Request::Resign => self.stop(Reason::Resigned, out),
            Request::HandOver => self.stop(Reason::HandedOver, out),
            Request::Evict => self.stop(Reason::Evicted, out),
            Request::Withdraw => {
                if self.wish != Wish::Leave {
                    self.letting_go_since = self.now;
                }
                self.wish = Wish::Leave;
                self.stand_aside(Reason::Resigned, out);
            }
            Request::HealthFailed => {
                if self.wish == Wish::Contend {
                    self.wish = Wish::StandAside;
                }
                self.stand_aside(Reason::HealthFailed, out);
            }
        }
    }

    fn stand_aside(&mut self, reason: Reason, out: &mut Vec<Effect>) {
        self.stop(reason, out);
        // A claim that is under way, or of unknown outcome, must be resolved first: it may have been granted.
        if let Phase::Contending(Contest { next: Move::Claim, .. }) = self.phase
            && self.waiting.is_none()
        {
            self.withdraw(out);
        }
    }

    fn withdraw(&mut self, out: &mut Vec<Effect>) {
        self.phase = Phase::Idle;
        out.push(Effect::Emit(Event::Withdrawn));
    }

    /// Tells the work to end, unless that has been done. Nothing if not in office.
    fn stop(&mut self, reason: Reason, out: &mut Vec<Effect>) {
        let Phase::InOffice(office) = &mut self.phase else { return };
        if let Stage::Stopping { .. } = office.stage {
            return;
        }
        office.stage = Stage::Stopping { reason, since: self.now, killed: false };
        out.push(Effect::Emit(Event::Stopping { reason, until: office.until() }));
    }

    fn on_work_ended(&mut self, ended: Token, out: &mut Vec<Effect>) {
        match self.phase {
            Phase::InOffice(Office { token, stage, .. }) if token == ended => {
                let reason = match stage {
                    Stage::Calm | Stage::Jeopardy => Reason::Finished,
                    Stage::Stopping { reason, .. } => reason,
                };
                out.push(Effect::Emit(Event::Lost { token, reason }));
                self.release(token, reason);
            }
            Phase::Overrun { token, reason } if token == ended => match reason {
                // The service has said that there is nothing to give back; whoever has the seat now will keep it for a while.
                Reason::Superseded => match self.wish {
                    Wish::StandAside | Wish::Leave => self.withdraw(out),
                    Wish::Contend => {
                        let wait = self.timing.jittered(self.timing.poll(), &mut self.chance);
                        self.contend_after(wait, wait);
                    }
                },
                // The seat is free by the clock, but the service may have got a renewal that it could not acknowledge.
                Reason::Resigned
                | Reason::HandedOver
                | Reason::Finished
                | Reason::HealthFailed
                | Reason::Evicted
                | Reason::Expired
                | Reason::Declined => self.release(token, reason),
            },
            Phase::Idle | Phase::Contending(_) | Phase::InOffice(_) | Phase::Overrun { .. } | Phase::Releasing { .. } => {}
        }
    }

    /// Gives the seat back. Only called when no work runs.
    fn release(&mut self, token: Token, reason: Reason) {
        self.failures = 0;
        self.letting_go_since = self.now;
        // Whatever call was under way, the release takes its place.
        self.waiting = None;
        self.phase = Phase::Releasing { token, reason, at: self.now };
    }

    /// Nothing is held or open any more: what next?
    fn contend_or_withdraw(&mut self, reason: Reason, out: &mut Vec<Effect>) {
        let timing = self.timing;
        match (self.wish, reason) {
            (Wish::StandAside | Wish::Leave, _) => self.withdraw(out),
            // The hint that the seat is free, which our own release has caused, is for the others.
            (Wish::Contend, Reason::Resigned | Reason::HandedOver | Reason::Finished | Reason::Evicted) => {
                self.contend_after(timing.rest(), timing.rest())
            }
            (Wish::Contend, Reason::HealthFailed | Reason::Expired | Reason::Superseded | Reason::Declined) => {
                let wait = timing.jittered(timing.retry(), &mut self.chance);
                self.contend_after(wait, wait);
            }
        }
    }

    /// Claims after `wait`; a hint can bring that forward to `at_least` from now.
    fn contend_after(&mut self, wait: Duration, at_least: Duration) {
        self.failures = 0;
        self.waiting = None;
        self.phase = Phase::Contending(Contest {
            next: Move::Claim,
            at: self.now + wait,
            not_before: self.now + at_least,
            hinted: false,
            prompted: false,
        });
    }

    fn on_hint(&mut self) {
        match &mut self.phase {
            Phase::Contending(contest) => {
                contest.hinted = true;
                if contest.next == Move::Claim && contest.at != Instant::NEVER {
                    let at = contest.not_before.max(self.now);
                    contest.prompted |= at < contest.at;
                    contest.at = contest.at.min(at);
                }
            }
            // Somebody may want something of the holder, which it learns with a renewal; but nobody can make it ask without end.
            Phase::InOffice(office) if self.waiting.is_none() => {
                office.renew_at = office.renew_at.min(self.now.max(office.sent + self.timing.retry()));
            }
            Phase::InOffice(_) | Phase::Idle | Phase::Overrun { .. } | Phase::Releasing { .. } => {}
        }
    }

    fn on_answer(&mut self, id: CallId, outcome: Outcome, out: &mut Vec<Effect>) {
        let Some(index) = self.calls.iter().position(|it| it.id == id) else { return };
        let sent = self.calls[index];
        let awaited = self.waiting.is_some_and(|(waiting, _)| waiting == id);
        if awaited {
            self.waiting = None;
        }
        if outcome != Outcome::Unknown {
            // A repetition of this answer says nothing new.
            self.calls.remove(index);
        }
        if let Outcome::Occupied { token: Some(token), .. } = outcome {
            self.seen = self.seen.max(Some(token));
        }
        self.on_outcome(sent, outcome, awaited, out);
    }

    /// The call that is waited for has taken too long: nobody knows what became of it. Its answer may still come.
    fn on_timeout(&mut self, out: &mut Vec<Effect>) {
        let Some((id, until)) = self.waiting else { return };
        if self.now < until {
            return;
        }
        self.waiting = None;
        if let Some(sent) = self.calls.iter().find(|it| it.id == id).copied() {
            self.on_outcome(sent, Outcome::Unknown, true, out);
        }
    }

    /// What an outcome means depends on the phase. One that is no longer `awaited` comes from a call that was given up: it can bring a
    /// fact, but does not decide what to do next.
    fn on_outcome(&mut self, sent: Sent, outcome: Outcome, awaited: bool, out: &mut Vec<Effect>) {
        match self.phase {
            Phase::Idle => {
                if let Outcome::Granted { token, .. } = outcome
                    && self.is_new(token)
                {
                    self.decline(token, Decline::Unwanted, out);
                }
            }
            Phase::Contending(_) => match outcome {
                Outcome::Granted { token, ttl, counted_from } if awaited || self.is_new(token) => {
                    self.consider(sent.counted(counted_from), token, ttl, out)
                }
                Outcome::Granted { .. }
                | Outcome::Held { .. }
                | Outcome::Occupied { .. }
                | Outcome::Vacant
                | Outcome::Refused
                | Outcome::Unknown => {
                    if awaited {
                        self.on_outcome_in_contest(sent, outcome, out);
                    }
                }
            },
            Phase::InOffice(office) => self.on_outcome_in_office(office, sent, outcome, awaited, out),
            // A release for a later leadership than the one whose work still runs would let a successor in beside it. So would entering.
            Phase::Overrun { .. } => {}
            Phase::Releasing { token, reason, .. } => {
                if sent.call == (Call::Release { token, reason }) {
                    self.on_outcome_of_release(token, reason, outcome, awaited, out);
                }
            }
        }
    }

    /// Takes office with what `sent` was granted, if that is wanted, new, and has time left.
    fn consider(&mut self, sent: Sent, token: Token, ttl: Option<Duration>, out: &mut Vec<Effect>) {
        let validity = self.timing.validity(ttl.unwrap_or(self.timing.ttl()));
        let mut office = Office { token, sent: sent.at, validity, stage: Stage::Calm, renew_at: Instant::NEVER };
        // A renewal that is under way says when the next is due. Anything else that is under way has lost its sense.
        if !self.is_waiting_for(Call::Renew { token }) {
            self.waiting = None;
            office.renew_at = office.due(&self.timing);
        }
        if let Some(why) = self.objection(token) {
            self.decline(token, why, out);
        } else if self.now >= office.stop_at(&self.timing) {
            self.decline(token, Decline::TooLate, out);
        } else {
            self.seen = Some(token);
            self.failures = 0;
            out.push(Effect::Emit(Event::Elected { token, until: office.until() }));
            self.phase = Phase::InOffice(office);
        }
    }

    fn is_waiting_for(&self, call: Call) -> bool {
        self.waiting.is_some_and(|(id, _)| self.calls.iter().any(|it| it.id == id && it.call == call))
    }

    fn is_new(&self, token: Token) -> bool {
        self.seen.is_none_or(|seen| token > seen)
    }

    /// Why the leadership with this token must not be entered, whatever time it has left.
    fn objection(&self, token: Token) -> Option<Decline> {
        match self.seen {
            Some(seen) if token == seen => Some(Decline::Leftover),
            Some(seen) if token < seen => Some(Decline::Regressed { seen }),
            Some(_) | None => (self.wish != Wish::Contend).then_some(Decline::Unwanted),
        }
    }

    fn decline(&mut self, token: Token, why: Decline, out: &mut Vec<Effect>) {
        self.seen = self.seen.max(Some(token));
        out.push(Effect::Emit(Event::Declined { token, why }));
        self.release(token, Reason::Declined);
    }

    fn on_outcome_in_contest(&mut self, sent: Sent, outcome: Outcome, out: &mut Vec<Effect>) {
        let timing = self.timing;
        match outcome {
            Outcome::Granted { token, ttl, counted_from } => self.consider(sent.counted(counted_from), token, ttl, out),
            Outcome::Held { token } => match self.objection(token) {
                Some(why) => self.decline(token, why, out),
                None => self.make_move(Move::Adopt(token), Duration::ZERO),
            },
            Outcome::Occupied { free_in, .. } => {
                let (hinted, prompted) = match self.phase {
                    Phase::Contending(contest) => (contest.hinted, contest.prompted),
                    Phase::Idle | Phase::InOffice(_) | Phase::Overrun { .. } | Phase::Releasing { .. } => (false, false),
                };
                // What the service says of itself is better than a habit; but nobody asks more often than a retry, save once for a hint.
                let wait = match (hinted, prompted) {
                    (true, false) => Duration::ZERO,
                    (true, true) => timing.retry(),
                    (false, _) => free_in.map_or(timing.poll(), |it| it.min(timing.poll()).max(timing.retry())),
                };
                let wait = timing.jittered(wait, &mut self.chance);
                self.not_held(wait, out);
                if let Phase::Contending(contest) = &mut self.phase {
                    contest.prompted = hinted && !prompted;
                    contest.not_before = if prompted { contest.not_before } else { self.now };
                }
            }
            // An inquiry that finds the seat free is followed at once; a claim that does has lost a race or met an odd service.
            Outcome::Vacant if sent.call == Call::Inquire => self.not_held(Duration::ZERO, out),
            Outcome::Vacant => {
                let wait = timing.jittered(timing.retry(), &mut self.chance);
                self.not_held(wait, out);
            }
            Outcome::Refused if sent.call == Call::Claim => {
                let wait = self.back_off();
                match self.wish {
                    Wish::Contend => self.make_move(Move::Claim, wait),
                    Wish::StandAside | Wish::Leave => self.withdraw(out),
                }
            }
            Outcome::Refused | Outcome::Unknown => {
                let wait = self.back_off();
                if self.wish != Wish::Contend && self.is_given_up(self.now + wait) {
                    self.withdraw(out);
                } else {
                    self.make_move(Move::Inquire, wait);
                }
            }
        }
    }

    /// The service says that the seat is not ours.
    fn not_held(&mut self, wait: Duration, out: &mut Vec<Effect>) {
        match self.wish {
            Wish::Contend => self.contend_after(wait, wait.min(self.timing.retry())),
            Wish::StandAside | Wish::Leave => self.withdraw(out),
        }
    }

    /// Whether to let go is not tried again, which would be done at that instant.
    fn is_given_up(&self, at: Instant) -> bool {
        self.failures >= LETTING_GO_TRIES_MAX || at >= self.gives_up_at()
    }

    fn make_move(&mut self, next: Move, wait: Duration) {
        let at = self.now + wait;
        self.phase = Phase::Contending(Contest { next, at, not_before: at, hinted: false, prompted: false });
    }

    /// How long to wait after one more failure: doubling from a retry to a poll, which a service bears in quiet times too.
    fn back_off(&mut self) -> Duration {
        let doubled = self.timing.retry().saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        self.timing.jittered(doubled.min(self.timing.poll()), &mut self.chance)
    }

    fn on_outcome_in_office(&mut self, mut office: Office, sent: Sent, outcome: Outcome, awaited: bool, out: &mut Vec<Effect>) {
        let own_renewal = sent.call == Call::Renew { token: office.token };
        match outcome {
            Outcome::Granted { token, ttl, counted_from } if token == office.token => {
                let sent = sent.counted(counted_from);
                // The latest call that the service has acknowledged tells what it keeps; earlier ones tell nothing new.
                if sent.at < office.sent {
                    // But it was the answer that was waited for: without another call the leadership would run out.
                    if self.waiting.is_none() && office.renew_at == Instant::NEVER {
                        office.renew_at = office.due(&self.timing).max(self.now + self.timing.retry());
                        self.phase = Phase::InOffice(office);
                    }
                    return;
                }
                self.failures = 0;
                office.sent = sent.at;
                office.validity = self.timing.validity(ttl.unwrap_or(self.timing.ttl()));
                if self.waiting.is_none() {
                    // One that shares an old keep-alive must not ask again and again for a newer one.
                    office.renew_at = office.due(&self.timing).max(self.now + self.timing.retry());
                }
                let until = office.until();
                // The new deadline first: whoever sees the leadership held again acts by the deadline that it finds.
                out.push(Effect::Emit(Event::Renewed { until }));
                if office.stage == Stage::Jeopardy && self.now < office.jeopardy_at(&self.timing) {
                    office.stage = Stage::Calm;
                    out.push(Effect::Emit(Event::Recovered { until }));
                }
                self.phase = Phase::InOffice(office);
                // A service that has cut the ttl short may have left nothing of it.
                self.expire(out);
            }
            // A token is lost once and for all, so even a late answer that says so is right.
            Outcome::Granted { .. } | Outcome::Occupied { .. } | Outcome::Vacant if own_renewal => {
                self.lose(office.token, Reason::Superseded, out);
            }
            Outcome::Held { .. } | Outcome::Refused | Outcome::Unknown if own_renewal && awaited => {
                self.failures = self.failures.saturating_add(1);
                office.renew_at = self.now + self.timing.jittered(self.timing.retry(), &mut self.chance);
                self.phase = Phase::InOffice(office);
            }
            // What older claims and inquiries found says nothing about this leadership.
            Outcome::Granted { .. }
            | Outcome::Held { .. }
            | Outcome::Occupied { .. }
            | Outcome::Vacant
            | Outcome::Refused
            | Outcome::Unknown => {}
        }
    }

    fn on_outcome_of_release(&mut self, token: Token, reason: Reason, outcome: Outcome, awaited: bool, out: &mut Vec<Effect>) {
        match outcome {
            Outcome::Occupied { .. } | Outcome::Vacant => {
                out.push(Effect::Emit(Event::Released { token }));
                self.contend_or_withdraw(reason, out);
            }
            Outcome::Granted { .. } | Outcome::Held { .. } | Outcome::Refused | Outcome::Unknown if awaited => {
                let at = self.now + self.back_off();
                if self.is_given_up(at) {
                    out.push(Effect::Emit(Event::NotReleased { token }));
                    self.contend_or_withdraw(reason, out);
                } else {
                    self.phase = Phase::Releasing { token, reason, at };
                }
            }
            Outcome::Granted { .. } | Outcome::Held { .. } | Outcome::Refused | Outcome::Unknown => {}
        }
    }

    /// Says what has come to pass by time alone.
    fn pass_marks(&mut self, out: &mut Vec<Effect>) {
        let Phase::InOffice(office) = &mut self.phase else { return };
        let until = office.until();
        if office.stage == Stage::Calm && self.now >= office.jeopardy_at(&self.timing) && self.now < office.stop_at(&self.timing)
        {
            office.stage = Stage::Jeopardy;
            out.push(Effect::Emit(Event::Jeopardy { until }));
        }
        if self.now >= office.stop_at(&self.timing) {
            self.stop(Reason::Expired, out);
        }
        let Phase::InOffice(office) = &mut self.phase else { return };
        let kill_at = office.kill_at(&self.timing);
        if let Stage::Stopping { killed, .. } = &mut office.stage
            && !*killed
            && self.now >= kill_at
        {
            *killed = true;
            out.push(Effect::Emit(Event::Kill { until }));
        }
    }

    /// Calls the service if it is time to.
    fn make_call(&mut self, out: &mut Vec<Effect>) {
        let now = self.now;
        let call = match &mut self.phase {
            Phase::Contending(contest) if now >= contest.at => {
                contest.at = Instant::NEVER;
                contest.hinted = false;
                match contest.next {
                    Move::Claim => Call::Claim,
                    Move::Inquire => Call::Inquire,
                    Move::Adopt(token) => Call::Renew { token },
                }
            }
            Phase::InOffice(office) if now >= office.renew_at => {
                office.renew_at = Instant::NEVER;
                Call::Renew { token: office.token }
            }
            Phase::Releasing { token, reason, at } if now >= *at => {
                *at = Instant::NEVER;
                Call::Release { token: *token, reason: *reason }
            }
            Phase::Idle | Phase::Overrun { .. } | Phase::Contending(_) | Phase::InOffice(_) | Phase::Releasing { .. } => return,
        };
        let id = CallId(self.next_id);
        self.next_id += 1;
        if self.calls.len() == REMEMBERED_CALLS_MAX {
            self.calls.pop_front();
        }
        self.calls.push_back(Sent { id, call, at: now });
        // One that was paused until it would give up tries once more: it may be well again.
        let last = Some(self.gives_up_at()).filter(|it| *it > now).unwrap_or(now + LETTING_GO_MAX);
        let timeout = self.timing.request_timeout().min(last - now);
        self.waiting = Some((id, now + timeout));
        out.push(Effect::Call { id, call, timeout });
    }
}

impl Office {
    fn until(&self) -> Instant {
        self.sent + self.validity
    }

    fn jeopardy_at(&self, timing: &Timing) -> Instant {
        self.sent + timing.jeopardy()
    }

    fn stop_at(&self, timing: &Timing) -> Instant {
        self.sent + self.validity.saturating_sub(timing.stop_margin())
    }

    /// Work that drains may do so until the time to kill has come, or for as long as it was promised.
    fn kill_at(&self, timing: &Timing) -> Instant {
        let last = self.sent + self.validity.saturating_sub(timing.kill());
        match self.stage {
            Stage::Calm | Stage::Jeopardy => last,
            Stage::Stopping { since, .. } => last.min(since + timing.drain()),
        }
    }

    /// When to renew in calm: as planned, or halfway to the stop if the service grants less than was planned for.
    fn due(&self, timing: &Timing) -> Instant {
        self.sent + timing.renew().min(self.validity.saturating_sub(timing.stop_margin()) / 2)
    }

    fn next_mark(&self, timing: &Timing) -> Instant {
        match self.stage {
            Stage::Calm => self.jeopardy_at(timing).min(self.stop_at(timing)),
            Stage::Jeopardy => self.stop_at(timing),
            Stage::Stopping { killed: false, .. } => self.kill_at(timing),
            Stage::Stopping { killed: true, .. } => self.until(),
        }
    }

    fn state(&self, now: Instant, timing: &Timing) -> State {
        let (token, until) = (self.token, self.until());
        match self.stage {
            _ if now >= until => State::Lost { token },
            Stage::Stopping { .. } => State::Stopping { token, until },
            Stage::Calm | Stage::Jeopardy if now >= self.stop_at(timing) => State::Stopping { token, until },
            Stage::Calm if now < self.jeopardy_at(timing) => State::Held { token, until },
            Stage::Calm | Stage::Jeopardy => State::Jeopardy { token, until },
        }
    }
}
