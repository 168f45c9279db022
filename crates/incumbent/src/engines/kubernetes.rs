//! Elections on Kubernetes: a `coordination.k8s.io/v1` Lease named after the election, the one that client-go's candidates use, so both can contend for one.
//!
//! **Who decides.** Kubernetes has no clock that candidates could share. A holder changes its Lease with every renewal; a candidate takes over once it has seen
//! the Lease without a sign of life for the holder's ttl (a stranger's `leaseDurationSeconds`), on its own clock, since it first saw it (`observed.rs`). The times that are written
//! in the Lease are for people and for client-go: nothing here reads them to decide.
//!
//! **Every write** bears the version and the uid that were read, so that one of two wins; a Lease that is not there is made by POST, never by PUT, which
//! would bring back what was deleted.
//!
//! **Token.** `leaseTransitions` with the incarnation. It rises with every leadership of ours, and once more for a stranger's that did not count itself. The desk (wish, hand-over,
//! history, published value) is an annotation, which other clients leave as it is.

mod client;
mod proxy;
mod record;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use incumbent_protocol::protocol::Token;
use incumbent_protocol::time::Instant;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::WatchEvent;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep_until, timeout_at};

use self::client::{Client, WATCH_LASTS_MAX, Written};
use self::record::{Mark, Record, Scene};
use super::knock::knocked;
use super::locked::locked;
use super::observed::{OBSERVED_LATE, Observed, outlasting};
use super::watching::{Watching, hints_of};
use crate::clock;
use crate::desk::Desk;
use crate::engine::{Bid, Board, Claim, Engine, Error, Farewell, Grant, Renewal, Wish};
use crate::guarantees::{Exclusive, Guarantees, Notice, Order, Tokens, WhoseClock};
use crate::identity::Identity;
use crate::name::Name;
use crate::place::Place;

/// Leases have whole seconds.
const TTL_MIN: Duration = Duration::from_secs(1);
const TTL_MAX: Duration = Duration::from_secs(86_400);
/// Each watch is a connection. Elections beyond that ask now and then.
const WATCHES_MAX: usize = 100;
/// A free seat is taken as it was seen up to this long ago: as a hint brings it.
const VACANCY_AGE_MAX: Duration = Duration::from_secs(1);
/// A watch that has ended begins anew no sooner than this long after its begin: a server, or a proxy before it, that ends each at once is not asked all the time.
const WATCH_PAUSE: Duration = Duration::from_secs(1);
/// So often a write is tried that others get in the way of. They write seldom.
const CONFLICTS_MAX: usize = 16;

/// Elections on Kubernetes.
pub struct Kubernetes {
    client: Client,
    observed: Arc<Mutex<Observed<Mark>>>,
    /// Leases as the last renewal left them: the next one need not read them first.
    held: Mutex<BTreeMap<Name, Lease>>,
    /// Free seats, as watches have seen them: who is told of one need not read it first.
    vacancies: Vacancies,
    /// What a candidate found when the seat was taken, and in which version: what it watches for comes after that.
    found: Mutex<BTreeMap<(Name, Identity), (String, Scene)>>,
    watches: Arc<Semaphore>,
}

type Vacancies = Arc<Mutex<BTreeMap<Name, (Record, Instant)>>>;

impl Kubernetes {
    /// The Kubernetes that a URL names, or that this process runs in.
    pub(super) async fn open(place: &Place) -> Result<Arc<dyn Engine>, Error> {
        place.knows_only(&["kubeconfig", "context"])?;
        if place.tls()?.is_some() || place.hosts().len() > 1 {
            return Err(Error::misconfigured(
                "servers, certificates and credentials of Kubernetes stand in a kubeconfig: write kubernetes://CONTEXT/NAMESPACE?kubeconfig=FILE",
            ));
        }
        let client = Client::new(place).await?;
        knocked(client.knock()).await?;
        Ok(Arc::new(Kubernetes {
            client,
            observed: Arc::default(),
            held: Mutex::default(),
            vacancies: Vacancies::default(),
            found: Mutex::default(),
            watches: Arc::new(Semaphore::new(WATCHES_MAX)),
        }))
    }

    async fn record(&self, election: &Name) -> Result<Option<Record>, Error> {
        self.client.read(election).await?.map(Record::read).transpose()
    }

    /// For how long the holder has given no sign of life, as far as we have seen.
    fn silence(&self, election: &Name, record: &Record) -> Duration {
        locked(&self.observed).unchanged_for(election, record.mark(), clock::now())
    }

    /// Reads the record, lets `act` change it, and writes it back if nobody has written in between; otherwise once more. Begins with what is `known`, if anything. `None` if there was
    /// nothing to do.
    async fn change<F, T>(&self, election: &Name, mut known: Option<Lease>, mut act: F) -> Result<Option<T>, Error>
    where
        F: FnMut(&mut Record) -> Result<Option<T>, Error> + Send,
        T: Send,
    {
        for _ in 0..CONFLICTS_MAX {
            let was_known = known.is_some();
            let record = match known.take() {
                Some(lease) => Some(Record::read(lease)?),
                None => self.record(election).await?,
            };
            let Some(mut record) = record else { return Ok(None) };
            let Some(done) = act(&mut record)? else {
                // What was remembered may be old.
                if was_known {
                    continue;
                }
                return Ok(None);
            };
            match self.client.replace(election, &record.into_lease()).await? {
                Written::Done(lease) => {
                    locked(&self.held).insert(election.clone(), *lease);
                    return Ok(Some(done));
                }
                Written::Conflict => {}
                Written::Missing => return Ok(None),
            }
        }
        Err(Error::refused(format!("others write to the Lease {election} all the time: try again")))
    }

    async fn create(&self, election: &Name, mut record: Record, bid: &Bid) -> Result<Claim, Error> {
        let token = record.seat(bid)?;
        self.seated(election, self.client.create(&record.into_lease()).await?, Grant::noting(bid, token))
    }

    async fn take(&self, election: &Name, mut record: Record, bid: &Bid) -> Result<Claim, Error> {
        let token = record.seat(bid)?;
        self.seated(election, self.client.replace(election, &record.into_lease()).await?, Grant::noting(bid, token))
    }

    fn seated(&self, election: &Name, written: Written, grant: Grant) -> Result<Claim, Error> {
        match written {
            Written::Done(lease) => {
                locked(&self.held).insert(election.clone(), *lease);
                Ok(Claim::Granted(grant))
            }
            Written::Conflict => Ok(Claim::Occupied { leader: None, free_in: None }),
            Written::Missing => {
                Err(Error::refused(format!("the Lease {election} was deleted meanwhile: the next claim makes it anew")))
            }
        }
    }

    /// Changes the desk; of a Lease that is made for it if there is none.
    async fn change_or_make(
        &self,
        election: &Name,
        change: impl Fn(&mut Desk) -> Result<(), Error> + Send + Sync,
    ) -> Result<(), Error> {
        for _ in 0..CONFLICTS_MAX {
            let changed = self.change(election, None, |record| {
                change(&mut record.desk)?;
                Ok(Some(()))
            });
            if changed.await?.is_some() {
                return Ok(());
            }
            let mut record = Record::new(election);
            change(&mut record.desk)?;
            if let Written::Done(_) = self.client.create(&record.into_lease()).await? {
                return Ok(());
            }
        }
        Err(Error::refused(format!("somebody makes and deletes the Lease {election} all the time: try again")))
    }
}

/// What elections on Kubernetes promise, wherever they are.
pub(super) fn promises() -> Guarantees {
    Guarantees {
        engine: "kubernetes",
        exclusive: Exclusive::Always,
        tokens: Tokens::UnlessItForgets,
        token_source: "leaseTransitions",
        clock: WhoseClock::Candidate,
        notice: Notice::Pushed,
        order: Order::Race,
        seats_max: 1,
        lists_candidates: false,
        keeps_history: true,
        ttl_min: TTL_MIN,
        ttl_max: TTL_MAX,
        late: OBSERVED_LATE,
        caveats: vec![
            "Whoever deletes the Lease puts a second leader beside the first until its next renewal, and lets tokens begin anew unless a candidate remembers them.",
            "A candidate that is not ours reads no wishes and respects no hand-over, and some of them wait for their own lease duration instead of the holder's: give all the same.",
            "A client that does not count leaseTransitions, as the Python one, has the same token in successive leaderships of its own.",
        ],
    }
}

#[async_trait]
impl Engine for Kubernetes {
    fn guarantees(&self) -> Guarantees {
        promises()
    }

    fn accepts(&self, election: &Name) -> Result<(), Error> {
        let fits = |part: &str| {
            let inner = part.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-');
            inner && !part.is_empty() && !part.starts_with('-') && !part.ends_with('-')
        };
        if election.as_str().split('.').all(fits) {
            return Ok(());
        }
        Err(Error::misconfigured(format!(
            "{election:?} cannot be the name of a Lease: use small letters, digits, '-' and '.', with a letter or digit at both ends of each part"
        )))
    }

    async fn claim(&self, election: &Name, bid: &Bid) -> Result<Claim, Error> {
        let who = (election.clone(), bid.identity.clone());
        locked(&self.found).remove(&who);
        let vacancy = locked(&self.vacancies).remove(election);
        if let Some((record, _)) = vacancy.filter(|(_, seen)| clock::now() - *seen <= VACANCY_AGE_MAX)
            // Should it have changed since, its version has too, and it is read.
            && let Claim::Granted(grant) = self.take(election, record, bid).await?
        {
            return Ok(Claim::Granted(grant));
        }
        let Some(record) = self.record(election).await? else {
            return self.create(election, Record::new(election), bid).await;
        };
        let silence = self.silence(election, &record);
        if let Some(own) = record.ours().filter(|it| it.identity == bid.identity) {
            let token = own.token;
            return Ok(match self.renew(election, bid, token).await? {
                Renewal::Kept { grant, .. } => Claim::Granted(grant),
                Renewal::Gone => Claim::Occupied { leader: None, free_in: None },
            });
        }
        let (leader, patience) = match record.leader() {
            Some(leader) => (Some(leader), outlasting(record.duration(bid.ttl))),
            None if record.desk.is_kept_from(&bid.identity) => {
                (None, record.desk.kept.as_ref().map_or(Duration::ZERO, |it| Duration::from_millis(it.ms)))
            }
            None => (None, Duration::ZERO),
        };
        match patience.checked_sub(silence).filter(|it| !it.is_zero()) {
            Some(left) => {
                if let Some(version) = record.version().filter(|_| leader.is_some()) {
                    locked(&self.found).insert(who, (version, record.scene()));
                }
                Ok(Claim::Occupied { leader, free_in: Some(left) })
            }
            None => self.take(election, record, bid).await,
        }
    }

    async fn renew(&self, election: &Name, bid: &Bid, token: Token) -> Result<Renewal, Error> {
        let known = locked(&self.held).remove(election);
        let renewed = self.change(election, known, |record| {
            if record.seat_of(&bid.identity, token).is_none() {
                return Ok(None);
            }
            record.renew(bid.ttl);
            Ok(Some(record.desk.wish_for(token)))
        });
        Ok(match renewed.await? {
            Some(wish) => Renewal::Kept { grant: Grant::of(token), wish },
            None => Renewal::Gone,
        })
    }

    async fn release(&self, election: &Name, bid: &Bid, token: Token, farewell: &Farewell) -> Result<(), Error> {
        let known = locked(&self.held).remove(election);
        self.change(election, known, |record| Ok(record.leave(&bid.identity, token, farewell).then_some(()))).await?;
        locked(&self.held).remove(election);
        Ok(())
    }

    async fn withdraw(&self, election: &Name, bid: &Bid) -> Result<(), Error> {
        locked(&self.found).remove(&(election.clone(), bid.identity.clone()));
        Ok(())
    }

    async fn look(&self, election: &Name) -> Result<Board, Error> {
        let Some(mut record) = self.record(election).await? else { return Ok(Board::default()) };
        if self.silence(election, &record) >= outlasting(record.duration(TTL_MIN)) {
            record.bury();
            return Ok(Board { past: record.desk.past, notes: record.desk.notes, ..Board::default() });
        }
        let leaders = record.leader().into_iter().collect();
        Ok(Board { leaders, candidates: Vec::new(), past: record.desk.past, notes: record.desk.notes })
    }

    async fn proclaim(&self, election: &Name, bid: &Bid, token: Token, value: &str) -> Result<(), Error> {
        let done = self.change(election, None, |record| {
            let Some(holder) = record.seat_of(&bid.identity, token) else { return Ok(None) };
            value.clone_into(&mut holder.value);
            Ok(Some(()))
        });
        done.await?.ok_or_else(|| Error::refused(format!("token {token} is no longer in office")))
    }

    async fn ask(&self, election: &Name, wish: &Wish) -> Result<(), Error> {
        let asked = self.change(election, None, |record| match record.leader() {
            Some(leader) if leader.token == wish.token && !leader.heeds_wishes => {
                Err(Error::refused(format!("{} is not one of ours: it reads no wishes", leader.identity)))
            }
            Some(_) => record.desk.ask(wish).map(Some),
            None => Ok(None),
        });
        let gone = || Error::refused(format!("the leadership with token {} is no longer in office", wish.token));
        asked.await?.ok_or_else(gone)
    }

    async fn raise(&self, election: &Name, above: Token) -> Result<(), Error> {
        self.change_or_make(election, |desk| desk.raise(above)).await
    }

    async fn annotate(&self, election: &Name, token: Token, text: &str) -> Result<(), Error> {
        self.change_or_make(election, |desk| {
            desk.annotate(token, text);
            Ok(())
        })
        .await
    }

    fn watch(&self, election: &Name, bid: Option<&Bid>) -> BoxStream<'static, Result<(), Error>> {
        let Ok(place) = Arc::clone(&self.watches).try_acquire_owned() else { return stream::pending().boxed() };
        let found = bid.and_then(|it| locked(&self.found).remove(&(election.clone(), it.identity.clone())));
        let (version, scene) = found.unzip();
        let watch = Watch {
            client: self.client.clone(),
            observed: Arc::clone(&self.observed),
            vacancies: Arc::clone(&self.vacancies),
            election: election.clone(),
            version,
            events: None,
            begun: tokio::time::Instant::now(),
            scene,
            _place: place,
        };
        hints_of(watch)
    }
}

/// One that waits for changes of a Lease.
struct Watch {
    client: Client,
    /// Told of every sign of life, so that the span of silence begins when it does.
    observed: Arc<Mutex<Observed<Mark>>>,
    vacancies: Vacancies,
    election: Name,
    /// The last one seen; `None` if it has to be asked for.
    version: Option<String>,
    events: Option<BoxStream<'static, kube::Result<WatchEvent<Lease>>>>,
    /// When the watch was asked for.
    begun: tokio::time::Instant,
    scene: Option<Scene>,
    _place: OwnedSemaphorePermit,
}

impl Watching for Watch {
    /// Unless it is known what the caller found, the first comes at once: something may have changed since. Signs of life are no change: they would wake every candidate with every renewal.
    async fn change(&mut self) -> Result<(), Error> {
        loop {
            let Some(version) = self.version.clone() else {
                let (lease, version) = self.client.list(&self.election).await?;
                self.version = Some(version);
                self.see(lease);
                return Ok(());
            };
            if self.events.is_none() {
                self.begun = tokio::time::Instant::now();
                self.events = Some(self.client.watch(&self.election, &version).await?);
            }
            let events = self.events.as_mut().expect("made above");
            // One that does not end when it should is on a line that died in silence.
            let Ok(event) = timeout_at(self.begun + WATCH_LASTS_MAX, events.next()).await else {
                self.events = None;
                continue;
            };
            match event {
                Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease))) => {
                    self.version.clone_from(&lease.metadata.resource_version);
                    if self.see(Some(lease)) {
                        return Ok(());
                    }
                }
                Some(Ok(WatchEvent::Deleted(lease))) => {
                    self.version.clone_from(&lease.metadata.resource_version);
                    self.scene = None;
                    locked(&self.vacancies).remove(&self.election);
                    return Ok(());
                }
                Some(Ok(WatchEvent::Bookmark(bookmark))) => self.version = Some(bookmark.metadata.resource_version),
                // The version is too old, or the server has lost track: begin anew.
                Some(Ok(WatchEvent::Error(_))) => (self.version, self.events) = (None, None),
                // Its time is over: go on where it was.
                None => {
                    self.events = None;
                    sleep_until(self.begun + WATCH_PAUSE).await;
                }
                Some(Err(why)) => return Err(Error::refused(format!("the watch of the Lease {} broke: {why}", self.election))),
            }
        }
    }
}

impl Watch {
    /// Says whether there is anything new for others than those who wait for silence.
    fn see(&mut self, lease: Option<Lease>) -> bool {
        // What cannot be read is said by the next claim.
        let record = lease.and_then(|it| Record::read(it).ok());
        if let Some(record) = &record {
            locked(&self.observed).unchanged_for(&self.election, record.mark(), clock::now());
        }
        let scene = record.as_ref().map(Record::scene);
        let is_free = |record: &Record| record.leader().is_none() && record.desk.kept.is_none();
        let vacancy = record.filter(is_free).map(|record| (record, clock::now()));
        match vacancy {
            Some(vacancy) => locked(&self.vacancies).insert(self.election.clone(), vacancy),
            None => locked(&self.vacancies).remove(&self.election),
        };
        let new = self.scene != scene;
        self.scene = scene;
        new
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;
    use incumbent_testbed::Kubernetes as Server;

    use super::*;

    /// One of an election whose Lease was made after what it has seen, and that gets these events at first.
    async fn watch(server: &Server, election: &Name, events: BoxStream<'static, kube::Result<WatchEvent<Lease>>>) -> Watch {
        let file = tempfile::NamedTempFile::new().expect("a folder for files");
        std::fs::write(&file, server.kubeconfig()).expect("our own");
        let place = Place::parse(&format!("kubernetes:default?kubeconfig={}", file.path().display())).expect("a good URL");
        let client = Client::new(&place).await.expect("a good file");
        let (_, version) = client.list(election).await.expect("it runs");
        let Written::Done(_) = client.create(&Record::new(election).into_lease()).await.expect("it runs") else {
            panic!("it is new")
        };
        Watch {
            client,
            observed: Arc::default(),
            vacancies: Arc::default(),
            election: election.clone(),
            version: Some(version),
            events: Some(events),
            begun: tokio::time::Instant::now(),
            scene: None,
            _place: Arc::new(Semaphore::new(1)).try_acquire_owned().expect("a place"),
        }
    }

    #[tokio::test]
    async fn a_watch_whose_line_has_died_in_silence_begins_anew() {
        let (server, election) = (Server::start().expect("a free port"), Name::new("silence").expect("good"));
        let mut watch = watch(&server, &election, stream::pending().boxed()).await;
        let mut change = Box::pin(watch.change());
        tokio::time::pause();
        assert!(poll!(&mut change).is_pending());
        tokio::time::advance(WATCH_LASTS_MAX).await;
        tokio::time::resume();
        tokio::time::timeout(Duration::from_secs(10), change).await.expect("it is asked for anew").expect("it runs");
    }

    #[tokio::test]
    async fn a_watch_that_ends_at_once_is_not_asked_for_all_the_time() {
        let (server, election) = (Server::start().expect("a free port"), Name::new("short").expect("good"));
        let mut watch = watch(&server, &election, stream::empty().boxed()).await;
        let begun = watch.begun;
        watch.change().await.expect("it runs");
        assert!(watch.begun >= begun + WATCH_PAUSE);
    }
}
