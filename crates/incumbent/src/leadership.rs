//! Being in office: the token, the deadline, and the signals that it is about to end or has ended. One object, so that none is forgotten.
//!
//! [`Leadership::check`] asks nobody: it compares this machine's own clock with the deadline that the last acknowledged renewal gave. It may say no
//! while the engine would still say yes; never the other way round.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use incumbent_protocol::protocol::Token;
use incumbent_protocol::tenure::Reason;
use incumbent_protocol::time::Instant;
use tokio::sync::watch;

use crate::candidacy::Candidacy;
use crate::clock::Clock;
use crate::engine::Error;
use crate::identity::Identity;
use crate::name::Name;

/// The right to act for an election until the deadline. There is no other: pass a reference to what must not run without it.
///
/// Dropping it stops the renewals and gives nothing back, because nobody has said that the work has ended: the seat is free when its time has
/// passed. [`Leadership::resign`] says so, and frees it at once.
#[must_use = "a leadership that is dropped is not renewed"]
pub struct Leadership {
    term: Arc<Term>,
    /// `None` in [`Election::run`](crate::Election::run), whose scope says when the work has ended.
    candidacy: Option<Candidacy>,
}

/// What a leadership is at this instant.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// In office.
    Held,
    /// In office, but no renewal has been acknowledged for a while: begin nothing that cannot be ended soon.
    Jeopardy,
    /// In office, and on the way out: end the work.
    Stopping(Reason),
    /// Out of office.
    Lost(Reason),
}

/// The leadership has ended; whatever was about to be done must not be done.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// The token it had.
    pub token: Token,
    /// Why it ended.
    pub reason: Reason,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the leadership with token {} has ended: {}", self.token, self.reason)
    }
}

impl std::error::Error for Lost {}

/// One leadership, as its candidacy and its holders share it.
pub(crate) struct Term {
    pub(crate) token: Token,
    /// What its election wanted to be noted is on record.
    is_noted: bool,
    election: Name,
    identity: Identity,
    clock: Clock,
    /// When it ends, in nanoseconds of the clock; 0 once it has ended.
    until: AtomicU64,
    /// The last deadline it had, even if it has ended.
    deadline: AtomicU64,
    stage: watch::Sender<Stage>,
    /// Apart from the stage, so that a renewal wakes nobody but who follows the deadline.
    renewals: watch::Sender<()>,
}

/// How far a leadership has come. Never goes back, except from jeopardy.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Stage {
    Calm,
    Jeopardy,
    Stopping(Reason),
    /// The work has had its time to end by itself.
    Killing(Reason),
    Lost(Reason),
}

impl Term {
    pub(crate) fn begin(
        token: Token,
        until: Instant,
        is_noted: bool,
        election: Name,
        identity: Identity,
        clock: Clock,
    ) -> Arc<Term> {
        let (until, deadline) = (AtomicU64::new(until.as_nanos()), AtomicU64::new(until.as_nanos()));
        let (stage, renewals) = (watch::Sender::new(Stage::Calm), watch::Sender::new(()));
        Arc::new(Term { token, is_noted, election, identity, clock, until, deadline, stage, renewals })
    }

    pub(crate) fn extend(&self, until: Instant) {
        self.until.store(until.as_nanos(), Ordering::Release);
        self.deadline.store(until.as_nanos(), Ordering::Release);
        // Whoever sleeps until the deadline that was finds when it wakes that it has more time.
        self.renewals.send_replace(());
    }

    pub(crate) fn enter(&self, stage: Stage) {
        // Both in one step for whoever looks at the stage: an end without its reason would be taken for a lease that ran out.
        self.stage.send_modify(|it| {
            if let Stage::Lost(_) = stage {
                self.until.store(0, Ordering::Release);
            }
            *it = stage;
        });
    }

    pub(crate) fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    fn deadline(&self) -> Instant {
        Instant::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    fn until(&self) -> Instant {
        Instant::from_nanos(self.until.load(Ordering::Acquire))
    }

    fn remaining(&self) -> Duration {
        // The clock is read after the deadline: a pause in between makes the answer smaller, never greater.
        let until = self.until();
        until - self.clock.now()
    }

    pub(crate) fn check(&self) -> Result<Duration, Lost> {
        let left = self.remaining();
        if !left.is_zero() {
            return Ok(left);
        }
        let reason = match self.state() {
            State::Held | State::Jeopardy => Reason::Expired,
            State::Stopping(reason) | State::Lost(reason) => reason,
        };
        Err(Lost { token: self.token, reason })
    }

    fn state(&self) -> State {
        match *self.stage.borrow() {
            Stage::Lost(reason) => State::Lost(reason),
            Stage::Calm | Stage::Jeopardy | Stage::Stopping(_) | Stage::Killing(_) if self.remaining().is_zero() => {
                State::Lost(Reason::Expired)
            }
            Stage::Calm => State::Held,
            Stage::Jeopardy => State::Jeopardy,
            Stage::Stopping(reason) | Stage::Killing(reason) => State::Stopping(reason),
        }
    }

    /// Waits until `is_there`, or until the deadline has passed.
    async fn reach(&self, is_there: impl Fn(Stage) -> bool) -> Reason {
        let mut stage = self.stage.subscribe();
        loop {
            let (at, left) = {
                let at = stage.borrow_and_update();
                (*at, self.remaining())
            };
            let reason = match at {
                Stage::Calm | Stage::Jeopardy => Reason::Expired,
                Stage::Stopping(reason) | Stage::Killing(reason) | Stage::Lost(reason) => reason,
            };
            if is_there(at) || left.is_zero() {
                return reason;
            }
            tokio::select! {
                _ = stage.changed() => {}
                () = tokio::time::sleep(left) => {}
            }
        }
    }

    pub(crate) async fn killing(&self) -> Reason {
        self.reach(|it| matches!(it, Stage::Killing(_) | Stage::Lost(_))).await
    }
}

impl Leadership {
    pub(crate) fn guarding(term: Arc<Term>, candidacy: Candidacy) -> Leadership {
        Leadership { term, candidacy: Some(candidacy) }
    }

    pub(crate) fn scoped(term: Arc<Term>) -> Leadership {
        Leadership { term, candidacy: None }
    }

    /// The fencing token: greater than that of every leadership before. Give it to whatever is written to.
    pub fn token(&self) -> Token {
        self.term.token
    }

    /// Whether what [`Builder::note`](crate::election::Builder::note) says is on record of it: then it was before anybody knew of this leadership. If not, [`Election::annotate`](crate::Election::annotate)
    /// puts it there.
    pub fn is_noted(&self) -> bool {
        self.term.is_noted
    }

    /// The election.
    pub fn election(&self) -> &Name {
        &self.term.election
    }

    /// Who leads: this candidacy.
    pub fn identity(&self) -> &Identity {
        &self.term.identity
    }

    /// How long it is still valid, or that it is not. No I/O: tens of nanoseconds.
    pub fn check(&self) -> Result<Duration, Lost> {
        self.term.check()
    }

    /// How long it is valid unless it is renewed; zero once it is lost.
    pub fn remaining(&self) -> Duration {
        self.term.remaining()
    }

    /// When it ends unless it is renewed, on the clock of [`crate::clock`]; the last such instant, once it has ended. For records.
    pub fn deadline(&self) -> Instant {
        self.term.deadline()
    }

    /// What it is at this instant.
    pub fn state(&self) -> State {
        self.term.state()
    }

    /// Waits for the time to end the work, and says why. Early enough to drain: [`Timing::drain`](crate::Timing::drain) before the work would be killed.
    pub async fn stopping(&self) -> Reason {
        self.term.reach(|it| it > Stage::Jeopardy).await
    }

    /// Waits until it is lost; at the latest, at its deadline. On a machine that was suspended until after that, it is said as soon as the renewals' own thread runs again;
    /// [`Leadership::check`] needs nobody for that.
    pub async fn lost(&self) -> Reason {
        self.term.reach(|it| matches!(it, Stage::Lost(_))).await
    }

    /// Whatever changes of it, from now on: for whoever must keep somebody else's deadline in step with this one.
    pub fn changes(&self) -> Changes {
        Changes { stage: self.term.stage.subscribe(), renewals: self.term.renewals.subscribe() }
    }

    /// A handle that can check but does not hold: for tasks that must stop when the leadership does.
    pub fn watcher(&self) -> Watcher {
        Watcher { term: Arc::clone(&self.term) }
    }

    /// Says that all work for this leadership has ended, and gives the seat back.
    ///
    /// `Err` if the engine has not acknowledged it: the seat is free when its time has passed.
    pub async fn resign(mut self) -> Result<(), Error> {
        match self.candidacy.take() {
            Some(candidacy) => candidacy.leave(self.term.token, None).await,
            None => Err(Error::misconfigured("inside `run` the work resigns by returning Next::Resign")),
        }
    }

    /// As [`Leadership::resign`], and the seat is kept for `to` for a while: a candidate's name, or its whole identity.
    pub async fn hand_over(mut self, to: &str) -> Result<(), Error> {
        match self.candidacy.take() {
            Some(candidacy) => candidacy.leave(self.term.token, Some(to.to_owned())).await,
            None => Err(Error::misconfigured("inside `run` the work hands over by returning Next::HandOver")),
        }
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        if let Some(candidacy) = self.candidacy.take() {
            candidacy.abandon();
        }
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "leadership of {} with token {}: {:?}", self.term.election, self.term.token, self.term.state())
    }
}

/// Checks a leadership without holding it. Clones are cheap.
#[derive(Clone)]
pub struct Watcher {
    term: Arc<Term>,
}

impl Watcher {
    /// See [`Leadership::token`].
    pub fn token(&self) -> Token {
        self.term.token
    }

    /// See [`Leadership::check`].
    pub fn check(&self) -> Result<Duration, Lost> {
        self.term.check()
    }

    /// See [`Leadership::deadline`].
    pub fn deadline(&self) -> Instant {
        self.term.deadline()
    }

    /// See [`Leadership::state`].
    pub fn state(&self) -> State {
        self.term.state()
    }

    /// See [`Leadership::stopping`].
    pub async fn stopping(&self) -> Reason {
        self.term.reach(|it| it > Stage::Jeopardy).await
    }

    /// See [`Leadership::lost`].
    pub async fn lost(&self) -> Reason {
        self.term.reach(|it| matches!(it, Stage::Lost(_))).await
    }
}

/// Tells when a leadership has been renewed, is in jeopardy or out of it, or is about to end; see [`Leadership::changes`].
pub struct Changes {
    stage: watch::Receiver<Stage>,
    renewals: watch::Receiver<()>,
}

impl Changes {
    /// Waits for the next change. What happened in between is told once. Never returns once nothing can change any more.
    pub async fn next(&mut self) {
        let told = tokio::select! {
            told = self.stage.changed() => told,
            told = self.renewals.changed() => told,
        };
        if told.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use futures_util::FutureExt as _;
    use incumbent_protocol::protocol;

    use super::*;

    /// The engine's thread ends a leadership while others look at it.
    #[test]
    fn whoever_sees_the_end_sees_why() {
        let day = Duration::from_secs(86_400);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _inside = runtime.enter();
        for _ in 0..2_000 {
            let (name, identity) = (Name::new("job").unwrap(), Identity::unique());
            let until = Clock::Boottime.now() + day;
            let term = Term::begin(Token::new(0, protocol::Term(1)).unwrap(), until, false, name, identity, Clock::Boottime);
            thread::scope(|scope| {
                scope.spawn(|| term.enter(Stage::Lost(Reason::Evicted)));
                scope.spawn(|| {
                    let lost = loop {
                        if let Err(lost) = term.check() {
                            break lost;
                        }
                    };
                    assert_eq!(lost.reason, Reason::Evicted);
                });
                let reason = loop {
                    if let Some(reason) = term.reach(|it| matches!(it, Stage::Lost(_))).now_or_never() {
                        break reason;
                    }
                };
                assert_eq!(reason, Reason::Evicted);
            });
        }
    }
}
