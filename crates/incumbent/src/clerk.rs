//! The driver of one [`Tenure`]: reads the clock, carries out its calls on the engine, feeds it what comes back, tells the application.
//!
//! It decides nothing about the seat: that is the tenure's. What is decided here is what a lease does not know: that an operator's wish
//! becomes a request, that a better candidate asks the holder to hand over, and when to watch for hints.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use incumbent_protocol::protocol::Token;
use incumbent_protocol::tenure::{Call, CallId, Effect, Event, Input, Outcome, Reason, Request, State, Tenure};
use incumbent_protocol::time::Instant;
use incumbent_protocol::timing::Timing;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::engine::{Bid, Claim, Demand, Engine, Error, Farewell, Grant, Kind, Leader, Renewal, Seat, Wish};
use crate::leadership::{Stage, Term};
use crate::metrics::Metrics;
use crate::name::Name;

/// An answer that comes later than this many request timeouts is not waited for. Until then it is welcome: validity counts from the send.
const LATE_MAX: u32 = 4;

/// So long may it take at the very end to leave the line: whoever has told a process to end does not wait for a ttl.
const LEAVING_LINE_MAX: Duration = Duration::from_secs(5);

/// What the application wants.
#[derive(Debug)]
pub(crate) enum Order {
    Contend,
    HandOver(String),
    Withdraw,
    /// Not fit to lead, and why.
    HealthFailed(String),
    WorkEnded(Token),
    /// The work of this leadership has ended, its seat goes to whoever is named or to the next, and no other is wanted.
    Leave {
        token: Token,
        to: Option<String>,
    },
    /// The application has let go, and nothing of it runs any more.
    Gone,
    /// The application has let go without saying whether its work has ended.
    Abandon,
}

/// What the application can see.
#[derive(Clone, Default)]
pub(crate) struct Progress {
    /// The latest leadership, in office or not.
    pub(crate) term: Option<Arc<Term>>,
    /// Whether a claim has found the seat taken.
    pub(crate) occupied: bool,
    /// Why it does not contend, while its probe says that it is not fit.
    pub(crate) unfit: Option<String>,
    /// The last error, while it goes on.
    pub(crate) trouble: Option<Arc<Error>>,
    /// The leadership whose release was not acknowledged.
    pub(crate) not_released: Option<Token>,
}

/// When a better candidate asks for the seat.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Preemption {
    /// How much greater its priority must be.
    pub margin: i32,
    /// How long it must have seen the same leader: the minimum tenure.
    pub min_tenure: Duration,
}

/// After the first leadership has ended: what then?
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ambition {
    /// One leadership is enough.
    Once,
    /// Contends again after every loss.
    Forever,
}

pub(crate) struct Clerk {
    engine: Arc<dyn Engine>,
    election: Name,
    bid: Bid,
    seen: Arc<AtomicU64>,
    clock: Clock,
    /// By which it also sleeps, if there is one: after a suspend, tokio's timers are late.
    alarm: Option<Arc<Alarm>>,
    tenure: Tenure,
    ambition: Ambition,
    contends_at_once: bool,
    preemption: Option<Preemption>,
    metrics: Option<Arc<Metrics>>,
    /// What the engine's last answer took, in nanoseconds; 0 if the last call had none.
    answered_in: Arc<AtomicU64>,
    orders: mpsc::UnboundedReceiver<Order>,
    progress: watch::Sender<Progress>,
    answers: (mpsc::UnboundedSender<Answered>, mpsc::UnboundedReceiver<Answered>),
    /// Calls that have not been answered.
    calls_open: usize,
    hints: Hints,
    /// The place in line is being given up by one that is not fit, and may want it again.
    leaving_line: Option<JoinHandle<()>>,
    /// It is fit again, and contends as soon as its former place is given up.
    contends_then: bool,
    /// What the bid wants to be noted is on record of this leadership.
    noted: Option<Token>,
    /// To whom the seat of this leadership goes when it is released.
    successor: Option<(Token, String)>,
    rival: Option<Rival>,
    abandoned: bool,
    /// Ends once nothing is held or open any more.
    leaving: bool,
    /// The last that was said of this candidacy is that its seat was given back.
    is_out: bool,
    /// Nobody can give orders any more.
    deserted: bool,
    contending_since: Instant,
}

/// The leader that a preemption would be asked of.
#[derive(Copy, Clone)]
struct Rival {
    token: Token,
    since: Instant,
    asked: Option<Instant>,
}

/// What an engine's answer comes to.
struct Answered {
    call: CallId,
    kind: &'static str,
    took: Duration,
    outcome: Outcome,
    noted: Option<Token>,
    wish: Option<Wish>,
    leader: Option<Leader>,
    error: Option<Error>,
}

enum Hints {
    /// Watch as soon as the next answer says where we stand.
    Wanted,
    On(BoxStream<'static, Result<(), Error>>),
    /// Watching failed; try again then.
    Off {
        until: Instant,
        failures: u32,
    },
}

/// What the clerk needs to know; see [`crate::election::Builder`].
pub(crate) struct Brief {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) election: Name,
    pub(crate) bid: Bid,
    /// What its bid has seen, for the candidacies after it.
    pub(crate) seen: Arc<AtomicU64>,
    pub(crate) clock: Clock,
    pub(crate) alarm: Option<Arc<Alarm>>,
    pub(crate) timing: Timing,
    pub(crate) ambition: Ambition,
    /// Or only when told to: one that is asked for its health first.
    pub(crate) contends_at_once: bool,
    pub(crate) preemption: Option<Preemption>,
    pub(crate) metrics: Option<Arc<Metrics>>,
    pub(crate) answered_in: Arc<AtomicU64>,
}

impl Clerk {
    pub(crate) fn new(brief: Brief, orders: mpsc::UnboundedReceiver<Order>, progress: watch::Sender<Progress>) -> Clerk {
        let now = brief.clock.now();
        let seed = crate::identity::nonce();
        Clerk {
            tenure: Tenure::start(brief.timing, seed, brief.bid.seen, now),
            engine: brief.engine,
            election: brief.election,
            bid: brief.bid,
            seen: brief.seen,
            clock: brief.clock,
            alarm: brief.alarm,
            ambition: brief.ambition,
            contends_at_once: brief.contends_at_once,
            preemption: brief.preemption,
            metrics: brief.metrics,
            answered_in: brief.answered_in,
            orders,
            progress,
            answers: mpsc::unbounded_channel(),
            calls_open: 0,
            hints: Hints::Wanted,
            leaving_line: None,
            contends_then: false,
            noted: None,
            successor: None,
            rival: None,
            abandoned: false,
            leaving: false,
            is_out: false,
            deserted: false,
            contending_since: now,
        }
    }

    /// Serves until it is told to withdraw and nothing is held or open any more.
    pub(crate) async fn serve(mut self) {
        if let Some(metrics) = &self.metrics {
            metrics.on_candidacy(&self.election);
        }
        if self.contends_at_once {
            self.step(Input::Request(Request::Contend));
        }
        while !(self.leaving && self.tenure.state(self.clock.now()) == State::Idle) {
            let wake = self.tenure.deadline();
            let now = self.clock.now();
            tokio::select! {
                biased;
                order = self.orders.recv(), if !self.deserted => {
                    self.deserted = order.is_none();
                    self.on_order(order.unwrap_or(Order::Gone));
                }
                Some(answered) = self.answers.1.recv() => self.on_answer(answered),
                // A hint that comes while an answer is waited for is good afterwards too; and a watch that begins anew would ask the engine in that call's way.
                hint = next_hint(&mut self.hints), if self.calls_open == 0 => self.on_hint(hint),
                Some(()) = ended(&mut self.leaving_line) => self.on_line_left(),
                () = sleep(wake, now, self.alarm.as_deref()) => self.step(Input::Wake),
            }
        }
        // The line is left in any case: a place in it that nobody serves would hold up the others.
        let limit = (self.tenure.timing().request_timeout() * LATE_MAX).min(LEAVING_LINE_MAX);
        let _ = match self.is_out {
            true => timeout(limit, self.engine.depart(&self.election, &self.bid)).await,
            false => timeout(limit, self.engine.withdraw(&self.election, &self.bid)).await,
        };
    }

    fn on_order(&mut self, order: Order) {
        if self.abandoned {
            return;
        }
        match order {
            // The probe may find it fit again while its seat is being given back. Nobody would serve the leadership that it won.
            Order::Contend if self.leaving => {}
            Order::Contend => {
                self.progress.send_if_modified(|it| it.unfit.take().is_some());
                self.contends_then = self.leaving_line.is_some();
                if !self.contends_then {
                    self.step(Input::Request(Request::Contend));
                }
            }
            Order::HandOver(to) => self.hand_over(to),
            Order::Withdraw => self.withdraw(),
            Order::HealthFailed(why) => {
                self.progress.send_modify(|it| it.unfit = Some(why));
                self.contends_then = false;
                self.step(Input::Request(Request::HealthFailed));
            }
            Order::WorkEnded(token) => self.step(Input::WorkEnded { token }),
            Order::Leave { token, to } => {
                if let Some(to) = to {
                    self.hand_over(to);
                }
                self.withdraw();
                self.step(Input::WorkEnded { token });
            }
            Order::Gone => {
                self.withdraw();
                if let Some((token, _)) = self.tenure.state(self.clock.now()).office() {
                    self.step(Input::WorkEnded { token });
                } else if let State::Lost { token } = self.tenure.state(self.clock.now()) {
                    self.step(Input::WorkEnded { token });
                }
            }
            Order::Abandon => {
                // No renewal is sent from now on; when the validity is over, the work counts as ended. It may be over.
                self.abandoned = true;
                self.withdraw();
                if let State::Lost { token } = self.tenure.state(self.clock.now()) {
                    self.step(Input::WorkEnded { token });
                }
            }
        }
    }

    /// One that does not contend must not be waited for by those behind it.
    fn leave_line(&mut self) {
        let (engine, election, bid) = (Arc::clone(&self.engine), self.election.clone(), self.bid.clone());
        let limit = self.tenure.timing().request_timeout() * LATE_MAX;
        self.leaving_line = Some(tokio::spawn(async move {
            if let Ok(Err(error)) = timeout(limit, engine.withdraw(&election, &bid)).await {
                tracing::debug!(%election, %error, "could not leave the line");
            }
        }));
    }

    fn on_line_left(&mut self) {
        self.leaving_line = None;
        if std::mem::take(&mut self.contends_then) {
            self.step(Input::Request(Request::Contend));
        }
    }

    fn hand_over(&mut self, to: String) {
        let office = self.tenure.state(self.clock.now()).office();
        self.successor = office.map(|(token, _)| (token, to));
        self.step(Input::Request(Request::HandOver));
    }

    fn withdraw(&mut self) {
        self.leaving = true;
        self.step(Input::Request(Request::Withdraw));
    }

    fn on_hint(&mut self, hint: Option<Result<(), Error>>) {
        match hint {
            Some(Ok(())) => self.step(Input::Hint),
            // A watch that is over is made anew once the next answer says where we stand. It may have missed something.
            None => {
                self.hints = Hints::Wanted;
                self.step(Input::Hint);
            }
            Some(Err(error)) => {
                tracing::debug!(election = %self.election, %error, "no hints for a while");
                self.watch_later();
            }
        }
    }

    fn watch_later(&mut self) {
        let timing = self.tenure.timing();
        let failures = match self.hints {
            Hints::Off { failures, .. } => failures + 1,
            Hints::Wanted | Hints::On(_) => 0,
        };
        let wait = timing.retry().saturating_mul(1 << failures.min(8)).min(timing.poll());
        self.hints = Hints::Off { until: self.clock.now() + wait, failures };
    }

    fn watch(&mut self) {
        if let Hints::Wanted = self.hints {
            self.hints = Hints::On(self.engine.watch(&self.election, Some(&self.bid)));
        }
    }

    fn on_answer(&mut self, answered: Answered) {
        let Answered { call, kind, took, outcome, noted, wish, leader, error } = answered;
        self.calls_open -= 1;
        if let Some(metrics) = &self.metrics {
            metrics.on_call(&self.election, kind, took, outcome);
        }
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1);
        self.answered_in.store(if error.is_none() { nanos } else { 0 }, Ordering::Relaxed);
        self.say_trouble(error);
        if let Hints::Off { until, .. } = self.hints
            && self.clock.now() >= until
        {
            self.hints = Hints::Wanted;
        }
        if let Outcome::Occupied { .. } = outcome {
            // Told once: whoever waits for the seat must not be woken by every claim.
            self.progress.send_if_modified(|it| !std::mem::replace(&mut it.occupied, true));
            self.watch();
            if let Some(leader) = &leader {
                self.remember(leader.token);
            }
            self.consider_preemption(leader);
        }
        self.noted = noted.or(self.noted);
        self.step(Input::Answer { call, outcome });
        if let Some(wish) = wish {
            self.on_wish(wish);
        }
    }

    /// An engine that would grant less than this has lost its memory, and must know that somebody remembers.
    fn remember(&mut self, token: Token) {
        self.bid.seen = self.bid.seen.max(Some(token));
        self.seen.fetch_max(token.get(), Ordering::AcqRel);
    }

    /// Says that something is wrong once, and once that it is over.
    fn say_trouble(&mut self, error: Option<Error>) {
        let before = self.progress.borrow().trouble.clone();
        match (before, error) {
            // Whoever campaigns once is told, and does not go on.
            (None, Some(error)) if self.gives_up_at(&error) => {
                self.progress.send_modify(|it| it.trouble = Some(Arc::new(error)));
            }
            (None, Some(error)) => {
                tracing::warn!(election = %self.election, candidate = %self.bid.identity, %error, "trouble with the engine; goes on trying");
                self.progress.send_modify(|it| it.trouble = Some(Arc::new(error)));
            }
            (Some(_), None) => {
                // As loud as the trouble was, or whoever heard of that would never hear of its end.
                tracing::warn!(election = %self.election, candidate = %self.bid.identity, "the engine answers again");
                self.progress.send_modify(|it| it.trouble = None);
            }
            (Some(before), Some(error)) if before.to_string() != error.to_string() => {
                self.progress.send_modify(|it| it.trouble = Some(Arc::new(error)));
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
    }

    fn gives_up_at(&self, error: &Error) -> bool {
        self.ambition == Ambition::Once && error.kind() == Kind::Misconfigured && self.progress.borrow().term.is_none()
    }

    fn on_wish(&mut self, wish: Wish) {
        let state = self.tenure.state(self.clock.now());
        // The first wish counts: a stop that has begun is not redirected.
        if state.office().map(|(token, _)| token) != Some(wish.token) || matches!(state, State::Stopping { .. }) {
            return;
        }
        // Asked of somebody else, and come to whom it was for: nobody is to leave.
        let own = &self.bid.identity;
        if matches!(&wish.what, Demand::HandOver(to) if to == own.name() || to == own.as_str()) {
            return;
        }
        tracing::info!(election = %self.election, by = %wish.by, demand = ?wish.what, "asked to leave office");
        match wish.what {
            Demand::Resign => self.step(Input::Request(Request::Resign)),
            Demand::Evict => self.step(Input::Request(Request::Evict)),
            Demand::HandOver(to) => self.hand_over(to),
        }
    }

    /// Asks a leader that is less fit to hand over, once it has had its minimum tenure under our eyes.
    fn consider_preemption(&mut self, leader: Option<Leader>) {
        let Some(preemption) = self.preemption else { return };
        let worse =
            leader.filter(|it| it.heeds_wishes && self.bid.priority.saturating_sub(it.priority) >= preemption.margin.max(1));
        let now = self.clock.now();
        let Some(leader) = worse else {
            self.rival = None;
            return;
        };
        let same = self.rival.filter(|it| it.token == leader.token);
        let mut rival = same.unwrap_or(Rival { token: leader.token, since: now, asked: None });
        // What was asked may have been lost, so it is asked again; not often, because it may be heard and take its time.
        let is_unasked = rival.asked.is_none_or(|it| now - it >= self.tenure.timing().ttl());
        if same.is_some() && is_unasked && now - rival.since >= preemption.min_tenure {
            self.ask_for_the_seat(rival.token);
            rival.asked = Some(now);
        }
        self.rival = Some(rival);
    }

    fn ask_for_the_seat(&self, token: Token) {
        let (engine, election) = (Arc::clone(&self.engine), self.election.clone());
        let me = self.bid.identity.as_str().to_owned();
        let wish = Wish { token, what: Demand::HandOver(me), by: format!("{}, of greater priority", self.bid.identity) };
        let limit = self.tenure.timing().request_timeout() * LATE_MAX;
        tokio::spawn(async move {
            if let Ok(Err(error)) = timeout(limit, engine.ask(&election, &wish)).await {
                tracing::debug!(%election, %error, "could not ask the leader to hand over");
            }
        });
    }

    fn step(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.tenure.step(self.clock.now(), input, &mut effects);
        let mut lost = None;
        for effect in effects {
            match effect {
                Effect::Call { id, call, timeout } => self.call(id, call, timeout),
                Effect::Emit(event) => {
                    if let Event::Lost { token, .. } = event {
                        lost = Some(token);
                    }
                    self.on_event(event);
                }
            }
        }
        if let Some(token) = lost {
            self.after_loss(token);
        }
    }

    fn after_loss(&mut self, token: Token) {
        if self.ambition == Ambition::Once && !self.leaving {
            self.withdraw();
        }
        if self.abandoned {
            self.step(Input::WorkEnded { token });
        }
    }

    fn call(&mut self, id: CallId, call: Call, patience: Duration) {
        // One that was abandoned only waits for its validity to end.
        if self.abandoned && matches!(call, Call::Renew { .. }) {
            return;
        }
        let (engine, election, bid) = (Arc::clone(&self.engine), self.election.clone(), self.bid.clone());
        let to = match (call, &self.successor) {
            (Call::Release { token, .. }, Some((of, to))) if token == *of => Some(to.clone()),
            (_, _) => None,
        };
        let (answers, clock) = (self.answers.0.clone(), self.clock);
        self.calls_open += 1;
        self.is_out = false;
        tokio::spawn(async move {
            let sent = clock.now();
            let answer = timeout(patience * LATE_MAX, carry_out(&*engine, &election, &bid, call, to)).await;
            let answer = answer.unwrap_or_else(|_| Err(Error::unknown("no answer in time")));
            let took = clock.now() - sent;
            let _ = answers.send(Answered::to(id, call, took, answer));
        });
    }

    fn on_event(&mut self, event: Event) {
        if let Event::Elected { token, .. } = event {
            self.remember(token);
        }
        let term = self.progress.borrow().term.clone();
        let enter = |stage| {
            if let Some(term) = &term {
                term.enter(stage);
            }
        };
        let (election, candidate) = (&self.election, &self.bid.identity);
        match event {
            Event::Elected { token, until } => {
                tracing::info!(%election, %candidate, %token, "in office");
                // A holder watches for other things than one who waits.
                self.hints = Hints::Wanted;
                if let Some(metrics) = &self.metrics {
                    metrics.on_elected(election, self.clock.now() - self.contending_since);
                }
                let term = Term::begin(token, until, self.noted == Some(token), election.clone(), candidate.clone(), self.clock);
                self.progress.send_modify(|it| it.term = Some(term));
                self.watch();
            }
            Event::Renewed { until } => {
                if let Some(metrics) = &self.metrics {
                    metrics.on_renewed(election, until - self.clock.now());
                }
                if let Some(term) = &term {
                    term.extend(until);
                }
                self.watch();
            }
            Event::Jeopardy { until } => {
                tracing::warn!(%election, %candidate, left = ?(until - self.clock.now()), "no renewal is acknowledged");
                enter(Stage::Jeopardy);
            }
            Event::Recovered { .. } => {
                tracing::warn!(%election, %candidate, "renewals are acknowledged again");
                enter(Stage::Calm);
            }
            Event::Stopping { reason, .. } => {
                tracing::info!(%election, %candidate, %reason, "leaving office");
                enter(Stage::Stopping(reason));
            }
            Event::Kill { .. } => {
                let reason = match term.as_ref().map(|it| it.stage()) {
                    Some(Stage::Stopping(reason)) => reason,
                    Some(Stage::Calm | Stage::Jeopardy | Stage::Killing(_) | Stage::Lost(_)) | None => Reason::Expired,
                };
                // Who wants no time to drain has its own way to end the work.
                if !self.tenure.timing().drain().is_zero() {
                    tracing::warn!(%election, %candidate, "the work has not ended in the time that it had");
                }
                enter(Stage::Killing(reason));
            }
            Event::Lost { token, reason } => {
                tracing::info!(%election, %candidate, %token, %reason, "out of office");
                enter(Stage::Lost(reason));
                self.contending_since = self.clock.now();
                // Nothing that the holder listened for matters to one who waits.
                self.hints = Hints::Wanted;
                if let Some(metrics) = &self.metrics {
                    metrics.on_lost(election, reason);
                }
            }
            Event::Released { token } => {
                tracing::debug!(%election, %candidate, %token, "released");
                self.is_out = true;
                self.hints = Hints::Wanted;
            }
            Event::NotReleased { token } => {
                tracing::warn!(%election, %candidate, %token, "the release was not acknowledged: the seat is free when its time has passed");
                self.progress.send_modify(|it| it.not_released = Some(token));
                self.hints = Hints::Wanted;
            }
            Event::Declined { token, why } => tracing::info!(%election, %candidate, %token, %why, "did not take office"),
            Event::Withdrawn => {
                tracing::debug!(%election, %candidate, "no longer contends");
                // What was listened for went with the place in line; whoever contends again has another.
                self.hints = Hints::Wanted;
                if !self.leaving {
                    self.leave_line();
                }
            }
        }
    }
}

impl Answered {
    fn to(id: CallId, call: Call, took: Duration, answer: Result<Reply, Error>) -> Answered {
        let kind = match call {
            Call::Claim => "claim",
            Call::Inquire => "inquire",
            Call::Renew { .. } => "renew",
            Call::Release { .. } => "release",
        };
        let outcome = Outcome::Unknown;
        let nothing = Answered { call: id, kind, took, outcome, noted: None, wish: None, leader: None, error: None };
        match answer {
            Ok(Reply { outcome, noted, wish, leader }) => Answered { outcome, noted, wish, leader, ..nothing },
            Err(error) => {
                let outcome = match error.kind() {
                    Kind::Refused | Kind::Misconfigured => Outcome::Refused,
                    Kind::Unknown => Outcome::Unknown,
                };
                Answered { outcome, error: Some(error), ..nothing }
            }
        }
    }
}

/// An answer in the tenure's words, and what the tenure does not need to know.
struct Reply {
    outcome: Outcome,
    noted: Option<Token>,
    wish: Option<Wish>,
    leader: Option<Leader>,
}

async fn carry_out(engine: &dyn Engine, election: &Name, bid: &Bid, call: Call, to: Option<String>) -> Result<Reply, Error> {
    let bare = |outcome| Reply { outcome, noted: None, wish: None, leader: None };
    let taken = |leader: Option<Leader>, free_in| Reply {
        leader: leader.clone(),
        ..bare(Outcome::Occupied { token: leader.map(|it| it.token), free_in })
    };
    Ok(match call {
        Call::Claim => match engine.claim(election, bid).await? {
            Claim::Granted(grant) => Reply { noted: grant.noted.then_some(grant.token), ..bare(granted(grant)) },
            Claim::Occupied { leader, free_in } => taken(leader, free_in),
        },
        Call::Inquire => match engine.inquire(election, bid).await? {
            Seat::Own(token) => bare(Outcome::Held { token }),
            Seat::Others(leader) => taken(leader, None),
            Seat::Vacant => bare(Outcome::Vacant),
        },
        Call::Renew { token } => match engine.renew(election, bid, token).await? {
            Renewal::Kept { grant, wish } => Reply { wish, ..bare(granted(grant)) },
            Renewal::Gone => bare(Outcome::Vacant),
        },
        Call::Release { token, reason } => {
            engine.release(election, bid, token, &Farewell { reason, to }).await?;
            bare(Outcome::Vacant)
        }
    })
}

fn granted(grant: Grant) -> Outcome {
    Outcome::Granted { token: grant.token, ttl: grant.ttl, counted_from: grant.counted_from }
}

/// When the task has ended; `None` if there is none, and it has ended too if it panicked.
async fn ended(task: &mut Option<JoinHandle<()>>) -> Option<()> {
    let _ = task.as_mut()?.await;
    Some(())
}

async fn next_hint(hints: &mut Hints) -> Option<Result<(), Error>> {
    match hints {
        Hints::On(stream) => stream.next().await,
        Hints::Wanted | Hints::Off { .. } => std::future::pending().await,
    }
}

async fn sleep(until: Instant, now: Instant, alarm: Option<&Alarm>) {
    match alarm {
        _ if until == Instant::NEVER => std::future::pending().await,
        None => tokio::time::sleep(until - now).await,
        Some(alarm) => tokio::select! {
            () = tokio::time::sleep(until - now) => {}
            () = alarm.wait(until) => {}
        },
    }
}
