//! An election and how to take part in it: campaign for it, lead it for as long as a piece of work runs, or look on.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use incumbent_protocol::protocol::{Term as TermNumber, Token};
use incumbent_protocol::timing::Timing;
use tokio::sync::watch;

use crate::candidacy::{Candidacy, Health};
use crate::clerk::{Ambition, Brief, Order, Preemption};
use crate::engine::{Bid, Board, Demand, Engine, Error, Kind, Wish};
use crate::guarantees::Guarantees;
use crate::hub::Hub;
use crate::identity::Identity;
use crate::leadership::Leadership;
use crate::metrics::Metrics;
use crate::name::Name;
use crate::observer::Observer;
use crate::place::Place;

/// What a lease lasts unless it is said otherwise: bears a pause of seconds, and a crash costs less than 21 s.
pub const TTL_DEFAULT: Duration = Duration::from_secs(15);

/// An election. Clones are the same election; each campaign of theirs is a candidacy of its own.
#[derive(Clone)]
pub struct Election {
    hub: Arc<Hub>,
    settings: Arc<Settings>,
    /// The greatest token that any candidacy from here has seen, its own or another's; 0 if none.
    seen: Arc<AtomicU64>,
    /// How many candidacies from here have not ended.
    open: Arc<watch::Sender<usize>>,
    /// What the engine's last answer to a candidacy from here took, in nanoseconds; 0 if the last call had none.
    answered_in: Arc<AtomicU64>,
}

struct Settings {
    name: Name,
    identity: Identity,
    timing: Timing,
    value: String,
    priority: i32,
    preemption: Option<Preemption>,
    seats: u32,
    note: Option<Noting>,
    health: Option<Arc<Health>>,
    metrics: Option<Arc<Metrics>>,
}

/// What is to be on record of a candidacy that leads.
type Noting = Arc<dyn Fn(&Identity) -> String + Send + Sync>;

/// What the work of [`Election::run`] wants next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// Give the seat back, leave it to others for a while, then contend again.
    Resign,
    /// The same, and keep the seat for this candidate: its name, or its whole identity.
    HandOver(String),
    /// Give the seat back and return from `run`.
    Quit,
}

impl Election {
    /// An election at a URL such as `etcd://10.0.0.1:2379,10.0.0.2:2379/billing`; see [`Builder`].
    pub fn on(url: impl Into<String>) -> Builder {
        Builder::new(Source::Url(url.into()))
    }

    /// An election on an engine of one's own, served by a thread of its own.
    pub fn with(engine: Arc<dyn Engine>, name: impl Into<String>) -> Builder {
        Builder { name: Some(name.into()), ..Builder::new(Source::Engine(engine)) }
    }

    /// An election in memory or on any engine, served by the caller's runtime in tokio's time: for tests with virtual time.
    pub fn in_test(engine: Arc<dyn Engine>, name: impl Into<String>) -> Builder {
        Builder { name: Some(name.into()), ..Builder::new(Source::Here(engine)) }
    }

    /// Its name.
    pub fn name(&self) -> &Name {
        &self.settings.name
    }

    /// What the engine promises and what it cannot.
    pub fn guarantees(&self) -> Guarantees {
        self.hub.engine.guarantees()
    }

    /// The times that its leaderships keep.
    pub fn timing(&self) -> &Timing {
        &self.settings.timing
    }

    /// Contends until elected. Dropping the future withdraws.
    ///
    /// `Err` only for what no patience mends: wrong credentials, a missing right. Everything else is tried again.
    pub async fn campaign(&self) -> Result<Leadership, Error> {
        let mut candidacy = self.stand(Ambition::Once);
        let heard = candidacy
            .until(|it| match (&it.term, &it.trouble) {
                (Some(term), _) => Some(Ok(Arc::clone(term))),
                (None, Some(trouble)) if trouble.kind() == Kind::Misconfigured => {
                    Some(Err(Error::misconfigured(trouble.to_string())))
                }
                (None, _) => None,
            })
            .await;
        let term = heard.unwrap_or_else(|| Err(Error::refused("the engine's thread has ended")))?;
        Ok(Leadership::guarding(term, candidacy))
    }

    /// Contends for `patience` at most; `None` if that was not enough.
    pub async fn campaign_within(&self, patience: Duration) -> Result<Option<Leadership>, Error> {
        tokio::time::timeout(patience, self.campaign()).await.map_or(Ok(None), |it| it.map(Some))
    }

    /// Claims the seat once; `None` if it is taken. `Refused` if a probe of [`Builder::health`] says that this process is not fit to lead.
    pub async fn try_campaign(&self) -> Result<Option<Leadership>, Error> {
        let mut candidacy = self.stand(Ambition::Once);
        let heard = candidacy
            .until(|it| match (&it.term, &it.trouble) {
                (Some(term), _) => Some(Ok(Some(Arc::clone(term)))),
                (None, Some(trouble)) => Some(Err(Error::clone_of(trouble))),
                (None, None) if it.occupied => Some(Ok(None)),
                (None, None) => it.unfit.as_ref().map(|why| Err(Error::refused(format!("not fit to lead: {why}")))),
            })
            .await;
        match heard.unwrap_or_else(|| Err(Error::refused("the engine's thread has ended")))? {
            Some(term) => Ok(Some(Leadership::guarding(term, candidacy))),
            None => {
                candidacy.give_up().await;
                Ok(None)
            }
        }
    }

    /// Runs `work` whenever in office, and contends for ever: until the work wants to [`Quit`](Next::Quit) or fails, or this future is dropped.
    ///
    /// The seat is given back only after the work's future has ended. When the leadership is about to end the work is told by
    /// [`Leadership::stopping`]; if it has not ended when its time to drain is over, its future is dropped.
    pub async fn run<W, F, E>(&self, mut work: W) -> Result<(), E>
    where
        W: FnMut(Leadership) -> F,
        F: Future<Output = Result<Next, E>>,
    {
        let mut candidacy = self.stand(Ambition::Forever);
        let mut last = None;
        loop {
            let Some(term) = candidacy.elected(last).await else { return Ok(()) };
            last = Some(term.token);
            // It may have been lost while nobody polled this future.
            let next = if term.check().is_ok() {
                let running = pin!(work(Leadership::scoped(Arc::clone(&term))));
                tokio::select! {
                    // Before every poll of the work it is asked whether the work may go on.
                    biased;
                    _ = term.killing() => None,
                    next = running => Some(next),
                }
                // Here the future is dropped: whatever the work was doing has ended.
            } else {
                None
            };
            let (order, result) = match next {
                None | Some(Ok(Next::Resign)) => (None, None),
                Some(Ok(Next::HandOver(to))) => (Some(Order::HandOver(to)), None),
                Some(Ok(Next::Quit)) => (Some(Order::Withdraw), Some(Ok(()))),
                Some(Err(why)) => (Some(Order::Withdraw), Some(Err(why))),
            };
            if let Some(order) = order {
                candidacy.tell(order);
            }
            candidacy.tell(Order::WorkEnded(term.token));
            if let Some(result) = result {
                candidacy.ended().await;
                return result;
            }
        }
    }

    /// Waits until every candidacy from here has left the line and given its seat back: one whose future was dropped does so behind the scenes.
    ///
    /// A leadership that is still held, or was dropped, keeps this waiting until it has ended.
    pub async fn close(self) {
        // The sender is in `self`, so it is there.
        let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
    }

    /// What the engine's last answer to a candidacy from here took; `None` if its last call was not answered, or there was none. For whoever must decide how long to wait for [`Election::close`].
    pub fn answered_in(&self) -> Option<Duration> {
        let nanos = self.answered_in.load(Ordering::Relaxed);
        (nanos > 0).then(|| Duration::from_nanos(nanos))
    }

    /// Looks on without taking part: who leads, and when that changes; "nobody" is an answer too.
    pub fn observe(&self) -> Observer {
        Observer::begin(&self.hub, self.settings.name.clone(), *self.timing(), self.settings.metrics.clone())
    }

    /// Who leads, who waits, who led.
    pub async fn look(&self) -> Result<Board, Error> {
        let name = self.settings.name.clone();
        let board = self.hub.ask(|engine| async move { engine.look(&name).await }).await?;
        // An engine that does not know who waits says nothing, and not that nobody does.
        if let Some(metrics) = self.settings.metrics.as_ref().filter(|_| self.guarantees().lists_candidates) {
            metrics.on_candidates(&self.settings.name, board.candidates.len());
        }
        Ok(board)
    }

    /// Changes what the leader publishes.
    pub async fn proclaim(&self, leadership: &Leadership, value: &str) -> Result<(), Error> {
        let (name, token, value) = (self.settings.name.clone(), leadership.token(), value.to_owned());
        let bid = Bid { identity: leadership.identity().clone(), ..self.bid() };
        self.hub.ask(|engine| async move { engine.proclaim(&name, &bid, token, &value).await }).await
    }

    /// Asks whoever leads to do something; it learns of it with its next renewal, at once where the engine tells. Says who was asked.
    ///
    /// `Refused` if nobody leads, or somebody who is not ours and knows nothing of wishes.
    pub async fn ask(&self, demand: Demand, by: &str) -> Result<crate::engine::Leader, Error> {
        let leader = self.look().await?.leaders.into_iter().next().ok_or_else(|| Error::refused("nobody leads at present"))?;
        self.ask_this(&leader, demand, by).await?;
        Ok(leader)
    }

    /// Asks this leader and no other: `Refused` if it leads no longer, or is not ours.
    pub async fn ask_this(&self, leader: &crate::engine::Leader, demand: Demand, by: &str) -> Result<(), Error> {
        if !leader.heeds_wishes {
            return Err(Error::refused(format!(
                "{} leads, which is not an incumbent and cannot be asked: use the tool it belongs to",
                leader.identity
            )));
        }
        let wish = Wish { token: leader.token, what: demand, by: by.to_owned() };
        let name = self.settings.name.clone();
        self.hub.ask(|engine| async move { engine.ask(&name, &wish).await }).await
    }

    /// Makes every later token greater than `above`: after the engine was restored from a backup, wiped or replaced.
    pub async fn raise(&self, above: Token) -> Result<(), Error> {
        let name = self.settings.name.clone();
        self.hub.ask(|engine| async move { engine.raise(&name, above).await }).await
    }

    /// Puts a note on record for the leadership with this token, in office or ended: see [`Board::notes`].
    pub async fn annotate(&self, token: Token, text: &str) -> Result<(), Error> {
        let (name, text) = (self.settings.name.clone(), text.to_owned());
        self.hub.ask(|engine| async move { engine.annotate(&name, token, &text).await }).await
    }

    /// How the engine itself is, as JSON, where this process is a part of it: see [`engines::peers`](crate::engines). `None` for all others.
    pub async fn report(&self) -> Option<serde_json::Value> {
        self.hub.ask(|engine| async move { Ok(engine.report().await) }).await.ok().flatten()
    }

    fn bid(&self) -> Bid {
        let settings = &self.settings;
        let seen = self.seen.load(Ordering::Acquire);
        let incarnation = u16::try_from(seen >> 48).unwrap_or(0);
        // Each candidacy is somebody else: one whose leadership was dropped must not be taken for the next.
        let identity = settings.identity.anew();
        Bid {
            note: settings.note.as_ref().map(|it| it(&identity)),
            identity,
            ttl: settings.timing.ttl(),
            value: settings.value.clone(),
            priority: settings.priority,
            seats: settings.seats,
            seen: Token::new(incarnation, TermNumber(seen & TermNumber::MAX.0)).filter(|_| seen > 0),
        }
    }

    fn stand(&self, ambition: Ambition) -> Candidacy {
        let brief = Brief {
            engine: Arc::clone(&self.hub.engine),
            election: self.settings.name.clone(),
            bid: self.bid(),
            seen: Arc::clone(&self.seen),
            clock: self.hub.clock,
            alarm: self.hub.alarm.clone(),
            timing: self.settings.timing,
            ambition,
            contends_at_once: self.settings.health.is_none(),
            preemption: self.settings.preemption,
            metrics: self.settings.metrics.clone(),
            answered_in: Arc::clone(&self.answered_in),
        };
        Candidacy::begin(&self.hub, brief, self.settings.health.clone(), Arc::clone(&self.open))
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "election {} on {}", self.settings.name, self.guarantees().engine)
    }
}

/// Where the engine comes from.
enum Source {
    Url(String),
    OwnConnection(String),
    Engine(Arc<dyn Engine>),
    Here(Arc<dyn Engine>),
}

/// An election in the making.
#[must_use]
pub struct Builder {
    source: Source,
    name: Option<String>,
    identity: Option<Identity>,
    timing: Option<Timing>,
    drain: Option<Duration>,
    value: String,
    priority: i32,
    preemption: Option<Preemption>,
    seats: u32,
    note: Option<Noting>,
    health: Option<Arc<Health>>,
    metrics: Option<Arc<Metrics>>,
}

impl Builder {
    fn new(source: Source) -> Builder {
        Builder {
            source,
            name: None,
            identity: None,
            timing: None,
            drain: None,
            value: String::new(),
            priority: 0,
            preemption: None,
            seats: 1,
            note: None,
            health: None,
            metrics: None,
        }
    }

    /// Names the election. Without it, the last segment of the URL's path is the name; with it, the whole path is the namespace.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Does not share the connection, the session and the thread with other elections of this process on the same URL.
    pub fn own_connection(mut self) -> Self {
        if let Source::Url(url) = self.source {
            self.source = Source::OwnConnection(url);
        }
        self
    }

    /// Says who contends. Each candidacy adds what makes it unique.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Sets the times; without it, those of a lease of [`TTL_DEFAULT`], or as near to it as the engine grants.
    pub fn timing(mut self, timing: Timing) -> Self {
        self.timing = Some(timing);
        self
    }

    /// Sets how long work may take to end politely, whatever the other times are. With zero the leadership stops when its work would be killed, and not before.
    pub fn drain(mut self, span: Duration) -> Self {
        self.drain = Some(span);
        self
    }

    /// What this process publishes when it leads: its address, for example.
    pub fn value(mut self, value: impl Into<String>) -> Self {
        self.value = value.into();
        self
    }

    /// How fit this process is to lead; see [`Builder::preempt`].
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Asks a leader of smaller priority to hand over, once it has had its minimum tenure.
    pub fn preempt(mut self, preemption: Preemption) -> Self {
        self.preemption = Some(preemption);
        self
    }

    /// How many may lead at once, where the engine can; the same in every process that takes part.
    pub fn seats(mut self, seats: u32) -> Self {
        self.seats = seats;
        self
    }

    /// What is to be on record of whoever leads from here, made for each candidacy: see [`Board::notes`]. An engine that can puts it there in the step that gives the seat, without another
    /// round trip; [`Leadership::is_noted`] says whether it did.
    pub fn note(mut self, note: impl Fn(&Identity) -> String + Send + Sync + 'static) -> Self {
        self.note = Some(Arc::new(note));
        self
    }

    /// Asks `probe` now and then whether this process is fit to lead. When it is not, it resigns and does not contend until it is again. A probe that panics, or
    /// has said nothing after ten times `every` and a minute, says no.
    pub fn health<P, F>(mut self, every: Duration, probe: P) -> Self
    where
        P: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        self.health = Some(Arc::new(Health { probe: Box::new(move || Box::pin(probe())), every }));
        self
    }

    /// Counts into these figures.
    pub fn metrics(mut self, metrics: Arc<Metrics>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Connects, and checks that the engine can do what is asked of it.
    pub async fn build(self) -> Result<Election, Error> {
        let (hub, name) = match self.source {
            Source::Url(ref url) | Source::OwnConnection(ref url) => {
                let place = Place::parse(url)?;
                let (place, name) = match self.name {
                    Some(name) => (place, Some(name)),
                    None => place.split_election(),
                };
                let name = name.ok_or_else(|| {
                    Error::misconfigured(format!("{place} names no election: add one to the path, for example {place}/billing"))
                })?;
                let hub = match self.source {
                    Source::OwnConnection(_) => Hub::open(&place).await?,
                    Source::Url(_) | Source::Engine(_) | Source::Here(_) => {
                        Hub::shared(&format!("{url} {}", place.namespace()), &place).await?
                    }
                };
                (hub, name)
            }
            Source::Engine(engine) => (Hub::with_thread(async move { Ok(engine) }).await?, self.name.unwrap_or_default()),
            Source::Here(engine) => (Hub::here(engine)?, self.name.unwrap_or_default()),
        };
        let name = Name::new(name)?;
        hub.engine.accepts(&name)?;
        let promised = hub.engine.guarantees();
        let timing = match self.timing {
            Some(timing) => timing,
            None => Timing::of(TTL_DEFAULT.clamp(promised.ttl_min, promised.ttl_max))
                .build()
                .map_err(|why| Error::misconfigured(format!("no timing fits {}: {why}", promised.engine)))?,
        };
        let timing = match self.drain {
            Some(drain) => timing.to_builder().drain(drain).build().map_err(|why| Error::misconfigured(why.to_string()))?,
            None => timing,
        };
        if !(promised.ttl_min..=promised.ttl_max).contains(&timing.ttl()) {
            return Err(Error::misconfigured(format!(
                "{} grants a ttl of {:?} to {:?}, and not {:?}: choose one in between",
                promised.engine,
                promised.ttl_min,
                promised.ttl_max,
                timing.ttl()
            )));
        }
        if self.seats == 0 || self.seats > promised.seats_max {
            return Err(Error::misconfigured(format!(
                "{} leaders at once: {} can have 1 to {}",
                self.seats, promised.engine, promised.seats_max
            )));
        }
        let settings = Settings {
            name,
            identity: self.identity.unwrap_or_else(Identity::unique),
            timing,
            value: self.value,
            priority: self.priority,
            preemption: self.preemption,
            seats: self.seats,
            note: self.note,
            health: self.health,
            metrics: self.metrics,
        };
        Ok(Election {
            hub,
            settings: Arc::new(settings),
            seen: Arc::default(),
            open: Arc::default(),
            answered_in: Arc::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use incumbent_protocol::tenure::Reason;
    use incumbent_protocol::time::Instant;

    use super::*;
    use crate::alarm::{Alarm, Timer};
    use crate::clock::{Clock, Sleeper};
    use crate::engines::memory::Memory;

    #[tokio::test(start_paused = true)]
    async fn one_that_was_elected_when_it_gave_up_gives_its_seat_back() {
        let election = Election::in_test(Arc::new(Memory::new()), "billing").build().await.expect("memory takes anything");
        let mut candidacy = election.stand(Ambition::Once);
        candidacy.elected(None).await.expect("nobody else contends");
        tokio::time::timeout(TTL_DEFAULT, candidacy.give_up()).await.expect("in time");
        assert!(election.look().await.expect("answers").leaders.is_empty());
    }

    /// Fires when the test says so.
    struct Dumb;

    impl Timer for Dumb {
        fn set(&self, _at: Instant) {}
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_suspend_whoever_waits_for_the_end_hears_of_it_at_once() {
        let mut election = Election::in_test(Arc::new(Memory::new()), "billing").build().await.expect("memory takes anything");
        let (machine, alarm) = (Sleeper::wake(), Arc::new(Alarm::new(Arc::new(Dumb))));
        let hub = Arc::get_mut(&mut election.hub).expect("nobody else has it");
        (hub.clock, hub.alarm) = (Clock::Sleeper(machine), Some(Arc::clone(&alarm)));
        let leadership = election.campaign().await.expect("nobody else contends");
        let (stopping, lost) = (leadership.stopping(), leadership.lost());
        let (mut stopping, mut lost) = (std::pin::pin!(stopping), std::pin::pin!(lost));
        assert!(futures_util::poll!(&mut stopping).is_pending() && futures_util::poll!(&mut lost).is_pending());
        let asleep = tokio::time::Instant::now();
        machine.suspend(TTL_DEFAULT);
        // As the kernel's timer does when the machine goes on. Tokio's time has stood still.
        alarm.ring(election.hub.clock.now());
        assert_eq!((stopping.await, lost.await), (Reason::Expired, Reason::Expired));
        assert_eq!(asleep.elapsed(), Duration::ZERO, "nobody has waited for a timer of tokio's");
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_suspend_that_the_lease_outlives_it_is_renewed_at_once() {
        let mut election = Election::in_test(Arc::new(Memory::new()), "billing").build().await.expect("memory takes anything");
        let (machine, alarm) = (Sleeper::wake(), Arc::new(Alarm::new(Arc::new(Dumb))));
        let hub = Arc::get_mut(&mut election.hub).expect("nobody else has it");
        (hub.clock, hub.alarm) = (Clock::Sleeper(machine), Some(Arc::clone(&alarm)));
        let leadership = election.campaign().await.expect("nobody else contends");
        let (asleep, mut changes) = (tokio::time::Instant::now(), leadership.changes());
        machine.suspend(TTL_DEFAULT / 2);
        alarm.ring(election.hub.clock.now());
        changes.next().await;
        assert_eq!(asleep.elapsed(), Duration::ZERO, "nobody has waited for a timer of tokio's");
        assert!(leadership.remaining() > TTL_DEFAULT / 2);
    }
}
