//! Elections on Consul: a session and a key that is locked with it. The key's value is the [`Desk`], so seat, hand-over, wish and history change in one write.
//!
//! **Token.** The key's `ModifyIndex` right before the lock, with the incarnation. The lock is a transaction that checks that index, so the token stands in the value that
//! it writes: nobody ever sees a leader without a token, and a crash in between is no case. Each lock moves the index on, so no two leaderships have the same
//! one; `LockIndex` would repeat. A key that is not there is made first: the index of a missing key may go back when Consul forgets what was deleted.
//!
//! **Deadline.** A session ends no sooner than its ttl after its last renewal, and up to twice as late; ours is counted from the send of the renewal. It can be ended
//! early, by an operator or by the removal of its node, while the holder still believes. Then only the lock-delay keeps others out: by default it is a
//! little more than the ttl, which is as long as a holder can believe. The price: after a crash the seat is free one ttl later than it could be.
//! A session is never destroyed to free a seat; a release unlocks the key, which has no delay.
//!
//! A renewal is the session's, shared by all elections of the process with the same ttl, and a consistent read of the own key.

mod client;
mod seats;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use incumbent_protocol::protocol::Token;
use incumbent_protocol::tenure::Reason;
use incumbent_protocol::time::Instant;
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use self::client::{Client, Entry, Obstacle, Operation, Outcome};
use self::seats::Seats;
use super::knock::knocked;
use super::locked::locked;
use super::observed::{Observed, outlasting};
use super::watching::{Watching, hints_of};
use crate::clock;
use crate::desk::Desk;
use crate::engine::{Bid, Board, Candidate, Claim, Engine, Error, Farewell, Grant, Renewal, Seat, Wish};
use crate::guarantees::{Exclusive, Guarantees, Lateness, Notice, Order, Tokens, WhoseClock};
use crate::identity::Identity;
use crate::name::Name;
use crate::place::Place;

/// Consul's own `session_ttl_min`.
const TTL_MIN: Duration = Duration::from_secs(10);
/// Consul cuts longer lock-delays to this.
const LOCK_DELAY_MAX: Duration = Duration::from_secs(60);
/// With the usual lock-delay: it must not be cut.
const TTL_MAX: Duration = Duration::from_secs(59);
/// By so much at most the usual lock-delay is longer than the ttl.
const LOCK_DELAY_MORE: Duration = LOCK_DELAY_MAX.saturating_sub(TTL_MAX);
/// With a lock-delay of one's own: Consul's longest.
const TTL_MAX_UNPROTECTED: Duration = Duration::from_secs(86_400);
/// Each watch is a connection, and Consul allows 200 of them to all processes of one address unless told otherwise: this leaves room for ten others. Elections beyond that ask
/// now and then.
const WATCHES_MAX: usize = 16;
/// A blocking read ends after this long at most, so that a line that died in silence is noticed.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// So often a write is tried that others get in the way of. They write seldom.
const CONFLICTS_MAX: usize = 16;
/// A free seat is taken as it was seen up to this long ago: as a hint brings it, and no Consul is restored from a backup in between.
const SIGHTING_AGE_MAX: Duration = Duration::from_secs(1);
/// Renewals within this part of a ttl share one answer.
const SHARED_PART: u32 = 8;

/// Elections on Consul.
pub struct Consul {
    client: Arc<Client>,
    /// `NAMESPACE/`, or nothing.
    prefix: String,
    ttl_min: Duration,
    lock_delay: Option<Duration>,
    /// One session for each ttl.
    sessions: Mutex<BTreeMap<Duration, Arc<tokio::sync::Mutex<Option<Session>>>>>,
    seats: Mutex<Seats>,
    /// Keys as they were last seen. Whoever writes on one has Consul check that it still is so, and reads it if not.
    sightings: Sightings,
    /// Free seats: kept for a successor, or kept back by a lock-delay, since when.
    vacancies: Mutex<Observed<u64>>,
    /// Candidates that are in line, and the session that keeps them there.
    in_line: Mutex<BTreeMap<(Name, Identity), String>>,
    /// At which index a candidate found the seat taken: what it watches for comes after that.
    found: Mutex<BTreeMap<(Name, Identity), u64>>,
    watches: Arc<Semaphore>,
}

type Sightings = Arc<Mutex<BTreeMap<Name, (Entry, Instant)>>>;

/// A session that is alive, as far as we know.
#[derive(Clone)]
struct Session {
    id: String,
    /// When the last renewal that was acknowledged was sent.
    sent: Instant,
}

/// What a candidate's key says.
#[derive(Serialize, Deserialize)]
struct Waiting {
    priority: i32,
}

impl Consul {
    /// The Consul that a URL names. Asks once whether it lets us in.
    pub(super) async fn open(place: &Place) -> Result<Arc<dyn Engine>, Error> {
        place.knows_only(&["dc", "lock-delay", "ttl-min"])?;
        let namespace = place.namespace();
        let namespace = namespace.trim_end_matches('/');
        // Consul sends whoever asks for a path with such parts elsewhere; a space at an end is a slip.
        let odd = |it: &str| matches!(it, "" | "." | ".." | ".incumbent") || it.trim() != it;
        if !namespace.is_empty() && namespace.split('/').any(odd) {
            return Err(Error::misconfigured(format!("{namespace:?} cannot be a namespace on Consul: choose another")));
        }
        let seconds = |key: &str| match place.option(key) {
            Some(text) => text
                .parse()
                .ok()
                .and_then(|it| Duration::try_from_secs_f64(it).ok())
                .map(Some)
                .ok_or_else(|| Error::misconfigured(format!("{key}={text}: give a number of seconds"))),
            None => Ok(None),
        };
        let consul = Consul {
            client: Arc::new(Client::new(place)?),
            prefix: if namespace.is_empty() { String::new() } else { format!("{namespace}/") },
            ttl_min: seconds("ttl-min")?.unwrap_or(TTL_MIN),
            lock_delay: seconds("lock-delay")?.map(|it| it.min(LOCK_DELAY_MAX)),
            sessions: Mutex::default(),
            seats: Mutex::default(),
            sightings: Sightings::default(),
            vacancies: Mutex::default(),
            in_line: Mutex::default(),
            found: Mutex::default(),
            watches: Arc::new(Semaphore::new(WATCHES_MAX)),
        };
        knocked(async { consul.client.read(&format!("{}.incumbent", consul.prefix)).await.map(drop) }).await?;
        Ok(Arc::new(consul))
    }

    fn key(&self, election: &Name) -> String {
        format!("{}{election}", self.prefix)
    }

    fn line_key(&self, election: &Name, identity: &str) -> String {
        format!("{}.incumbent/{election}/line/{identity}", self.prefix)
    }

    fn lock_delay(&self, ttl: Duration) -> Duration {
        self.lock_delay.unwrap_or_else(|| outlasting(ttl).min(LOCK_DELAY_MAX))
    }

    /// The session of this ttl: as it was an instant ago, renewed, or new.
    async fn session(&self, ttl: Duration) -> Result<Session, Error> {
        let shared = Arc::clone(locked(&self.sessions).entry(ttl).or_default());
        // Who comes while another renews waits for that answer and shares it.
        let mut session = shared.lock().await;
        if let Some(alive) = &mut *session {
            let sent = clock::now();
            if sent - alive.sent < ttl / SHARED_PART {
                return Ok(alive.clone());
            }
            // Those who wait for the session do not wait for that.
            let _ = timeout(self.client.patience(ttl), self.let_go_of_the_silent(ttl)).await;
            let sent = clock::now();
            if self.client.renew_session(&alive.id, ttl).await.map_err(|why| why.during("renewing the session"))? {
                alive.sent = sent;
                return Ok(alive.clone());
            }
            *session = None;
        }
        let sent = clock::now();
        let id = self.client.create_session(ttl, self.lock_delay(ttl)).await.map_err(|why| why.during("making a session"))?;
        Ok(session.insert(Session { id, sent }).clone())
    }

    /// The session has ended without our doing.
    async fn end(&self, ttl: Duration, id: &str) {
        let shared = Arc::clone(locked(&self.sessions).entry(ttl).or_default());
        let mut session = shared.lock().await;
        if session.as_ref().is_some_and(|it| it.id == id) {
            *session = None;
        }
    }

    async fn let_go_of_the_silent(&self, ttl: Duration) {
        let silent = locked(&self.seats).silent(ttl, clock::now());
        for (election, identity) in silent {
            let farewell = Farewell { reason: Reason::Expired, to: None };
            let is_silent = || locked(&self.seats).is_silent(&election, &identity, ttl, clock::now());
            // Whoever takes the seat says so before: what is found in it is not taken from one that has just come back.
            match self.vacate(&election, &identity, |_| is_silent(), &farewell).await {
                Ok(()) if is_silent() => locked(&self.seats).forget(&election, &identity),
                Ok(()) => {}
                // What fails now is tried again with the next renewal.
                Err(error) => tracing::debug!(%election, %identity, %error, "cannot free a seat that nobody speaks for"),
            }
        }
    }

    /// Frees the seat of this candidacy, if it has it and `is_meant` says yes to its token.
    async fn vacate<F>(&self, election: &Name, identity: &Identity, is_meant: F, farewell: &Farewell) -> Result<(), Error>
    where
        F: Fn(Token) -> bool + Send + Sync,
    {
        let known = locked(&self.sightings).remove(election).map(|(entry, _)| entry);
        self.change_known(election, Missing::Leave, known, |entry, desk| {
            let own = desk.holder.as_ref().filter(|it| it.identity == *identity && is_meant(it.token));
            let Some(token) = own.map(|it| it.token) else { return Ok(None) };
            desk.leave(token, farewell);
            Ok(Some(if entry.is_locked() { Lock::Unlock } else { Lock::AsItIs }))
        })
        .await
    }

    /// Reads the desk, lets `act` change it, and writes it back if nobody has written in between; otherwise once more.
    async fn change<F>(&self, election: &Name, missing: Missing, act: F) -> Result<(), Error>
    where
        F: FnMut(&Entry, &mut Desk) -> Result<Option<Lock>, Error> + Send,
    {
        self.change_known(election, missing, None, act).await
    }

    /// The same, beginning with what is known of the key, if anything.
    async fn change_known<F>(&self, election: &Name, missing: Missing, mut known: Option<Entry>, mut act: F) -> Result<(), Error>
    where
        F: FnMut(&Entry, &mut Desk) -> Result<Option<Lock>, Error> + Send,
    {
        for _ in 0..CONFLICTS_MAX {
            let was_known = known.is_some();
            let entry = match known.take() {
                Some(entry) => entry,
                None => match (self.client.read(&self.key(election)).await?, missing) {
                    (Some(entry), _) => entry,
                    (None, Missing::Leave) => return Ok(()),
                    (None, Missing::Make) => self.make(election).await?,
                },
            };
            let mut desk = entry.desk()?;
            let Some(lock) = act(&entry, &mut desk)? else {
                // What was remembered may be old: only what is there now says that there is nothing to do.
                if was_known {
                    continue;
                }
                return Ok(());
            };
            let operations = match lock {
                Lock::AsItIs => vec![Operation::write(&entry.key, &desk.write(), entry.modify_index)],
                Lock::Unlock => {
                    vec![Operation::unchanged(&entry), Operation::unlock(&entry.key, &desk.write(), &entry.session)]
                }
            };
            if let Outcome::Done(_) = self.client.transact(operations).await? {
                return Ok(());
            }
        }
        Err(Error::refused(format!("others write to {} all the time: try again", self.key(election))))
    }

    /// The election's key, made if it is not there.
    async fn entry(&self, election: &Name) -> Result<Entry, Error> {
        match self.client.read(&self.key(election)).await? {
            Some(entry) => Ok(entry),
            None => self.make(election).await,
        }
    }

    async fn make(&self, election: &Name) -> Result<Entry, Error> {
        let key = self.key(election);
        let value = Desk::default().write();
        if let Outcome::Done(modify_index) = self.client.transact(vec![Operation::write(&key, &value, 0)]).await? {
            return Ok(Entry { key, value: value.into_bytes(), session: String::new(), modify_index });
        }
        // Somebody else has made it: all the better.
        self.client
            .read(&key)
            .await?
            .ok_or_else(|| Error::refused(format!("{key} was made and is gone again: somebody deletes it")))
    }

    /// Puts a candidate on the list, and takes off those whose sessions have ended. For people: nothing is decided by it, so nothing depends on it.
    async fn stand_in_line(&self, election: &Name, bid: &Bid, session: &Session) {
        let who = (election.clone(), bid.identity.clone());
        if locked(&self.in_line).get(&who) == Some(&session.id) {
            return;
        }
        let key = self.line_key(election, bid.identity.as_str());
        let value = serde_json::to_string(&Waiting { priority: bid.priority }).expect("one number");
        let listed = async {
            for dead in self.client.list(&self.line_key(election, "")).await?.iter().filter(|it| !it.is_locked()) {
                self.client.transact(vec![Operation::delete_unchanged(dead)]).await?;
            }
            self.client.transact(vec![Operation::lock(&key, &value, &session.id)]).await
        };
        match listed.await {
            Ok(Outcome::Done(_)) => {
                locked(&self.in_line).insert(who, session.id.clone());
            }
            Ok(Outcome::Conflict(_)) => {}
            Err(error) => tracing::debug!(%election, %error, "cannot be listed as a candidate"),
        }
    }

    /// For how long a free seat is somebody else's.
    fn kept_for(&self, election: &Name, entry: &Entry, desk: &Desk, bid: &Bid) -> Option<Duration> {
        let unchanged = locked(&self.vacancies).unchanged_for(election, entry.modify_index, clock::now());
        let kept = desk.kept.as_ref().filter(|_| desk.is_kept_from(&bid.identity))?;
        Duration::from_millis(kept.ms).checked_sub(unchanged)
    }

    /// How long a lock-delay may go on that began when we first saw the lock gone, or before.
    fn delayed_for(&self, election: &Name, entry: &Entry, ttl: Duration) -> Duration {
        let unchanged = locked(&self.vacancies).unchanged_for(election, entry.modify_index, clock::now());
        self.lock_delay(ttl).saturating_sub(unchanged).max(ttl / 20)
    }

    fn see(&self, election: &Name, entry: Entry) {
        locked(&self.sightings).insert(election.clone(), (entry, clock::now()));
    }

    /// Takes a seat that was seen to be free a moment ago, without reading it again. `None` if it was not, or is not any more.
    async fn take_as_seen(&self, election: &Name, bid: &Bid, session: &Session) -> Result<Option<Claim>, Error> {
        let seen = locked(&self.sightings).remove(election);
        let just_now = |seen: &Instant| clock::now() - *seen <= SIGHTING_AGE_MAX;
        let Some((entry, _)) = seen.filter(|(entry, seen)| !entry.is_locked() && just_now(seen)) else { return Ok(None) };
        let desk = entry.desk()?;
        if self.kept_for(election, &entry, &desk, bid).is_some() {
            return Ok(None);
        }
        let taken = self.take(election, bid, session, &entry, desk).await?;
        Ok(Some(taken).filter(|it| *it != Claim::Occupied { leader: None, free_in: None }))
    }

    async fn take(&self, election: &Name, bid: &Bid, session: &Session, entry: &Entry, mut desk: Desk) -> Result<Claim, Error> {
        // Keys can be copied from one Consul to another, and indexes not.
        let on_record = desk.holder.as_ref().map(|it| it.token).max(desk.past.first().map(|it| it.token));
        let token = desk.token(entry.modify_index, bid.seen.max(on_record))?;
        desk.seat(bid, token);
        desk.note_for(bid, token);
        let value = desk.write();
        locked(&self.seats).hear(election, &bid.identity, bid.ttl, clock::now());
        let outcome = self
            .client
            .transact(vec![
                Operation::unchanged(entry),
                Operation::lock(&entry.key, &value, &session.id),
                Operation::delete(&self.line_key(election, bid.identity.as_str())),
            ])
            .await?;
        let obstacle = match outcome {
            Outcome::Done(modify_index) => {
                locked(&self.in_line).remove(&(election.clone(), bid.identity.clone()));
                let (key, locked_by) = (entry.key.clone(), session.id.clone());
                self.see(election, Entry { key, value: value.into_bytes(), session: locked_by, modify_index });
                return Ok(Claim::Granted(Grant { noted: bid.note.is_some(), ..grant(token, session) }));
            }
            Outcome::Conflict(obstacle) => obstacle,
        };
        // The seat is not forgotten: what was in the way may be an earlier claim of this candidacy that was given up without an answer, or such a one may be let in yet. If
        // nobody speaks for it, whoever renews the session looks.
        match obstacle {
            Obstacle::Changed => Ok(Claim::Occupied { leader: None, free_in: None }),
            Obstacle::LockDelay => {
                self.stand_in_line(election, bid, session).await;
                Ok(Claim::Occupied { leader: None, free_in: Some(self.delayed_for(election, entry, bid.ttl)) })
            }
            Obstacle::NoSession => {
                self.end(bid.ttl, &session.id).await;
                Err(Error::refused("the session has ended: the next claim makes another"))
            }
        }
    }
}

/// What to do about a key that is not there.
#[derive(Copy, Clone)]
enum Missing {
    Leave,
    Make,
}

/// What becomes of the lock when the desk is written.
enum Lock {
    AsItIs,
    Unlock,
}

/// What elections on Consul promise, unless the URL has them otherwise.
pub(super) fn promises() -> Guarantees {
    Guarantees {
        engine: "consul",
        exclusive: Exclusive::Always,
        tokens: Tokens::Durable,
        token_source: "ModifyIndex of the key before it is locked",
        clock: WhoseClock::Engine,
        notice: Notice::Pushed,
        order: Order::Race,
        seats_max: 1,
        lists_candidates: true,
        keeps_history: true,
        ttl_min: TTL_MIN,
        ttl_max: TTL_MAX,
        late: Lateness { percent: 200, span: LOCK_DELAY_MORE },
        caveats: vec![
            "Whoever deletes the key or unlocks it by hand puts a second leader beside the first until its next renewal.",
            "A change of Consul's leader forgets lock-delays: a session that was ended early right before it lets the next leader in early.",
            "After a crash the seat is free no sooner than two, and up to three, ttls later.",
            "Of the elections that one process watches, 16 get hints; the others ask now and then.",
        ],
    }
}

#[async_trait]
impl Engine for Consul {
    fn guarantees(&self) -> Guarantees {
        let mut promised = Guarantees { ttl_min: self.ttl_min, ..promises() };
        if let Some(span) = self.lock_delay {
            promised.ttl_max = TTL_MAX_UNPROTECTED;
            promised.late = Lateness { percent: 100, span };
            promised.caveats.insert(0, "With a lock-delay shorter than the ttl, a session that is ended from outside lets the next leader in before the first has stopped.");
        }
        promised
    }

    async fn claim(&self, election: &Name, bid: &Bid) -> Result<Claim, Error> {
        let who = (election.clone(), bid.identity.clone());
        locked(&self.found).remove(&who);
        let session = self.session(bid.ttl).await?;
        if let Some(claim) = self.take_as_seen(election, bid, &session).await? {
            return Ok(claim);
        }
        let entry = self.entry(election).await?;
        let desk = entry.desk()?;
        if entry.is_locked() {
            let own = desk.holder.as_ref().filter(|it| it.identity == bid.identity);
            if let Some(own) = own.filter(|_| entry.session == session.id) {
                locked(&self.seats).hear(election, &bid.identity, bid.ttl, clock::now());
                return Ok(Claim::Granted(grant(own.token, &session)));
            }
            self.stand_in_line(election, bid, &session).await;
            locked(&self.found).insert(who, entry.modify_index);
            return Ok(Claim::Occupied { leader: desk.holder.map(|it| it.leader()), free_in: None });
        }
        if let Some(free_in) = self.kept_for(election, &entry, &desk, bid) {
            self.stand_in_line(election, bid, &session).await;
            return Ok(Claim::Occupied { leader: None, free_in: Some(free_in) });
        }
        self.take(election, bid, &session, &entry, desk).await
    }

    async fn renew(&self, election: &Name, bid: &Bid, token: Token) -> Result<Renewal, Error> {
        let session = self.session(bid.ttl).await?;
        let entry = self.client.read_within(&self.key(election), self.client.patience(bid.ttl)).await?;
        if let Some(entry) = entry.filter(|it| it.session == session.id) {
            let desk = entry.desk()?;
            if desk.holder.as_ref().is_some_and(|it| it.token == token && it.identity == bid.identity) {
                locked(&self.seats).hear(election, &bid.identity, bid.ttl, clock::now());
                self.see(election, entry);
                return Ok(Renewal::Kept { grant: grant(token, &session), wish: desk.wish_for(token) });
            }
        }
        locked(&self.seats).forget(election, &bid.identity);
        Ok(Renewal::Gone)
    }

    async fn release(&self, election: &Name, bid: &Bid, token: Token, farewell: &Farewell) -> Result<(), Error> {
        self.vacate(election, &bid.identity, |it| it == token, farewell).await?;
        locked(&self.seats).forget(election, &bid.identity);
        Ok(())
    }

    async fn look(&self, election: &Name) -> Result<Board, Error> {
        let entry = self.client.read(&self.key(election)).await?;
        let line = self.client.list(&self.line_key(election, "")).await?;
        let prefix = self.line_key(election, "");
        let candidates = line
            .iter()
            .filter(|it| it.is_locked())
            .filter_map(|it| {
                let priority = serde_json::from_slice::<Waiting>(&it.value).map_or(0, |it| it.priority);
                Some(Candidate { identity: Identity::stored(it.key.strip_prefix(&prefix)?), priority })
            })
            .collect();
        let mut desk = entry.as_ref().map(Entry::desk).transpose()?.unwrap_or_default();
        if entry.is_some_and(|it| !it.is_locked())
            && let Some(former) = desk.holder.take()
        {
            // It says so itself only when the next one is seated.
            desk.lapse(former);
        }
        Ok(desk.board(candidates))
    }

    async fn inquire(&self, election: &Name, bid: &Bid) -> Result<Seat, Error> {
        let shared = Arc::clone(locked(&self.sessions).entry(bid.ttl).or_default());
        let session = shared.lock().await.as_ref().map(|it| it.id.clone());
        let Some(entry) = self.client.read(&self.key(election)).await?.filter(Entry::is_locked) else { return Ok(Seat::Vacant) };
        let holder = entry.desk()?.holder;
        Ok(match holder {
            Some(own) if own.identity == bid.identity && Some(entry.session) == session => Seat::Own(own.token),
            Some(other) => Seat::Others(Some(other.leader())),
            None => Seat::Others(None),
        })
    }

    async fn withdraw(&self, election: &Name, bid: &Bid) -> Result<(), Error> {
        let who = (election.clone(), bid.identity.clone());
        locked(&self.found).remove(&who);
        let listed = locked(&self.in_line).remove(&who);
        if listed.is_some() {
            self.client.transact(vec![Operation::delete(&self.line_key(election, bid.identity.as_str()))]).await?;
        }
        Ok(())
    }

    async fn proclaim(&self, election: &Name, _bid: &Bid, token: Token, value: &str) -> Result<(), Error> {
        let mut done = false;
        self.change(election, Missing::Leave, |entry, desk| {
            let holder = desk.holder.as_mut().filter(|it| it.token == token && entry.is_locked());
            let holder = holder.ok_or_else(|| Error::refused(format!("token {token} is no longer in office")))?;
            value.clone_into(&mut holder.value);
            done = true;
            Ok(Some(Lock::AsItIs))
        })
        .await?;
        if done { Ok(()) } else { Err(Error::refused(format!("token {token} is no longer in office"))) }
    }

    async fn ask(&self, election: &Name, wish: &Wish) -> Result<(), Error> {
        self.change(election, Missing::Make, |entry, desk| {
            if !entry.is_locked() {
                desk.holder = None;
            }
            desk.ask(wish)?;
            Ok(Some(Lock::AsItIs))
        })
        .await
    }

    async fn raise(&self, election: &Name, above: Token) -> Result<(), Error> {
        self.change(election, Missing::Make, |_, desk| {
            desk.raise(above)?;
            Ok(Some(Lock::AsItIs))
        })
        .await
    }

    async fn annotate(&self, election: &Name, token: Token, text: &str) -> Result<(), Error> {
        self.change(election, Missing::Make, |_, desk| {
            desk.annotate(token, text);
            Ok(Some(Lock::AsItIs))
        })
        .await
    }

    fn watch(&self, election: &Name, bid: Option<&Bid>) -> BoxStream<'static, Result<(), Error>> {
        let Ok(place) = Arc::clone(&self.watches).try_acquire_owned() else { return stream::pending().boxed() };
        let watch = Watch {
            client: Arc::clone(&self.client),
            election: election.clone(),
            key: self.key(election),
            sightings: Arc::clone(&self.sightings),
            index: bid.and_then(|it| locked(&self.found).remove(&(election.clone(), it.identity.clone()))),
            wait: bid.map_or(WAIT_MAX, |it| it.ttl.min(WAIT_MAX)),
            _place: place,
        };
        hints_of(watch)
    }
}

/// One that waits for changes of a key.
struct Watch {
    client: Arc<Client>,
    election: Name,
    key: String,
    sightings: Sightings,
    index: Option<u64>,
    wait: Duration,
    _place: OwnedSemaphorePermit,
}

impl Watching for Watch {
    /// Unless it is known what the caller found, the first comes at once: something may have changed since.
    async fn change(&mut self) -> Result<(), Error> {
        loop {
            let (index, entry) = self.client.wait(&self.key, self.index, self.wait).await?;
            // Nobody needs to read anew a seat that is free; what its holder knows of it is newer.
            if let Some(entry) = entry.filter(|it| !it.is_locked()) {
                locked(&self.sightings).insert(self.election.clone(), (entry, clock::now()));
            }
            let before = self.index.replace(index);
            if before != Some(index) {
                // An index that goes back, after a restore, means nothing any more.
                self.index = Some(index).filter(|it| before.is_none_or(|before| *it >= before));
                return Ok(());
            }
        }
    }
}

fn grant(token: Token, session: &Session) -> Grant {
    Grant { counted_from: Some(session.sent), ..Grant::of(token) }
}
