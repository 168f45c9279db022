//! Elections on NATS: a key of a JetStream bucket for each, whose value is the [`Desk`]. Every write names the revision that it expects to be the key's last, so one of
//! two wins, and seat, hand-over, wish and history change in one write.
//!
//! **Who decides.** NATS has no sessions, and its clocks are wall clocks. A holder changes its key with every renewal; a candidate takes over once it has seen the key without a sign of life
//! for the holder's ttl, on its own clock, since it first saw it (`observed.rs`). Entries have no ttl of their own in NATS: what the server removes by its wall clock would
//! take the memory of tokens along, and a bucket that does so is refused.
//!
//! **Token.** The revision (stream sequence) that the acquiring write expects, with the incarnation. It is known before the write, so the token stands in the value that it writes; and since
//! every grant is a write, the next one expects a greater. A key that is not there is made first. A key that was deleted leaves a mark, which is waited for as for a holder:
//! whoever held it may still believe.
//!
//! **Reads** ask the stream's leader, never a replica (`allow_direct` plays no part). A stale answer costs a write that is refused, nothing else: nobody is seated or kept in
//! office by a read.
//!
//! **A write whose acknowledgement is lost** is of unknown outcome. Whoever claims again and finds itself in the seat renews it and has the same leadership.
//!
//! It leaves out a line of candidates and their list: without sessions each of them would have to write to stay in it.

mod bucket;
mod client;
mod ear;
mod keys;
mod record;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use incumbent_protocol::protocol::Token;
use incumbent_protocol::time::Instant;

use self::client::Client;
use self::record::{Mark, Record, Scene};
use super::hints::Hints;
use super::knock::knocked;
use super::locked::locked;
use super::observed::{OBSERVED_LATE, Observed, outlasting};
use crate::clock;
use crate::desk::{Desk, wall_ms, whole_ms};
use crate::engine::{Bid, Board, Claim, Engine, Error, Farewell, Grant, Kind, Renewal, Wish};
use crate::guarantees::{Exclusive, Guarantees, Notice, Order, Tokens, WhoseClock};
use crate::identity::Identity;
use crate::name::Name;
use crate::place::Place;

/// A renewal is a write that a majority of servers acknowledges, and three of them have to fit.
const TTL_MIN: Duration = Duration::from_millis(500);
const TTL_MAX: Duration = Duration::from_secs(86_400);
/// A free seat is taken as it was seen up to this long ago: as a hint brings it.
const VACANCY_AGE_MAX: Duration = Duration::from_secs(1);
/// So often a write is tried that others get in the way of. They write seldom.
const CONFLICTS_MAX: usize = 16;

/// Elections on NATS.
pub struct Nats {
    client: Arc<Client>,
    /// `NAMESPACE.`, or nothing.
    prefix: String,
    observed: Arc<Mutex<Observed<Mark>>>,
    /// Keys as the last renewal left them: the next one need not read them first.
    held: Mutex<BTreeMap<Name, Record>>,
    /// Keys as they were last heard of, and when.
    heard: Heard,
    /// What a candidate found when the seat was taken: what it watches for comes after that.
    found: Mutex<BTreeMap<(Name, Identity), Scene>>,
    hints: Hints,
}

type Heard = Arc<Mutex<BTreeMap<Name, (Record, Instant)>>>;

impl Nats {
    /// The NATS that a URL names. An error if it will never let us in as things are; not if it cannot be reached now.
    pub(super) async fn open(place: &Place) -> Result<Arc<dyn Engine>, Error> {
        place.knows_only(&["bucket", "replicas", "creds", "nkey"])?;
        let nats = Nats {
            client: Arc::new(Client::new(place)?),
            prefix: keys::prefix(place.path())?,
            observed: Arc::default(),
            held: Mutex::default(),
            heard: Heard::default(),
            found: Mutex::default(),
            hints: Hints::default(),
        };
        knocked(nats.client.knock()).await?;
        Ok(Arc::new(nats))
    }

    async fn record(&self, election: &Name) -> Result<Option<Record>, Error> {
        self.client.read(&keys::key(&self.prefix, election)).await
    }

    /// Writes the desk over the revision that the record has. `None` if somebody else has written meanwhile.
    async fn store(&self, election: &Name, record: Record) -> Result<Option<Record>, Error> {
        let written = self.client.write(&keys::key(&self.prefix, election), &record.desk, record.revision).await;
        if written.as_ref().is_err_and(|why| why.kind() == Kind::Unknown) {
            // The line for hints is the same, and may be dead.
            self.hints.hang_up();
        }
        Ok(written?.map(|revision| Record { revision, deleted: false, ..record }))
    }

    /// The election's key, made if it is not there; `None` if somebody else makes it at this moment.
    async fn record_or_new(&self, election: &Name) -> Result<Option<Record>, Error> {
        match self.record(election).await? {
            Some(record) => Ok(Some(record)),
            None => self.store(election, Record { revision: 0, desk: Desk::default(), deleted: false }).await,
        }
    }

    /// For how long the holder has given no sign of life, as far as we have seen.
    fn silence(&self, election: &Name, record: &Record) -> Duration {
        locked(&self.observed).unchanged_for(election, record.mark(), clock::now())
    }

    /// Reads the record, lets `act` change it, and writes it back if nobody has written in between; otherwise once more. Begins with what is `known`, if anything. `None` if there was
    /// nothing to do.
    async fn change<F, T>(&self, election: &Name, mut known: Option<Record>, mut act: F) -> Result<Option<T>, Error>
    where
        F: FnMut(&mut Record) -> Result<Option<T>, Error> + Send,
        T: Send,
    {
        for _ in 0..CONFLICTS_MAX {
            let was_known = known.is_some();
            let record = match known.take() {
                Some(record) => Some(record),
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
            if let Some(written) = self.store(election, record).await? {
                locked(&self.held).insert(election.clone(), written);
                return Ok(Some(done));
            }
        }
        Err(Error::refused(format!("others write to the key of {election} all the time: try again")))
    }

    /// The key of a seat that was heard to be free a moment ago.
    fn vacancy(&self, election: &Name) -> Option<Record> {
        let heard = locked(&self.heard);
        let (record, at) = heard.get(election)?;
        (record.is_free() && clock::now() - *at <= VACANCY_AGE_MAX).then(|| record.clone())
    }

    async fn take(&self, election: &Name, mut record: Record, bid: &Bid) -> Result<Claim, Error> {
        let token = record.seat(bid)?;
        Ok(match self.store(election, record).await? {
            Some(written) => {
                locked(&self.held).insert(election.clone(), written);
                Claim::Granted(Grant::noting(bid, token))
            }
            None => Claim::Occupied { leader: None, free_in: None },
        })
    }

    /// Changes the desk; of a key that is made for it if there is none.
    async fn change_or_make(
        &self,
        election: &Name,
        change: impl Fn(&mut Desk) -> Result<(), Error> + Send + Sync,
    ) -> Result<(), Error> {
        for _ in 0..CONFLICTS_MAX {
            let Some(record) = self.record_or_new(election).await? else { continue };
            let changed = self.change(election, Some(record), |record| {
                if record.deleted {
                    // To write over the mark would free the seat of one who may still believe.
                    return Err(Error::refused(format!(
                        "the key of {election} was deleted, and whoever held it may still lead: try again when somebody does"
                    )));
                }
                change(&mut record.desk)?;
                Ok(Some(()))
            });
            if changed.await?.is_some() {
                return Ok(());
            }
        }
        Err(Error::refused(format!("somebody makes and deletes the key of {election} all the time: try again")))
    }
}

/// What elections on NATS promise, wherever they are.
pub(super) fn promises() -> Guarantees {
    Guarantees {
        engine: "nats",
        exclusive: Exclusive::Always,
        tokens: Tokens::UnlessItForgets,
        token_source: "stream sequence that the acquiring write expects",
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
            "NATS acknowledges a write up to two minutes before it is on the disk: a power loss forgets the last leaderships, two may lead, and tokens may repeat unseen. Set sync_interval: always in the jetstream block.",
            "A bucket with one replica (the default) is as safe as its one server's disk: make it with replicas=3.",
            "Whoever purges or deletes the stream puts a second leader beside the first until its next renewal.",
            "A release wakes all candidates, and the quickest wins.",
            "Who looks for the first time sees a leader that has died without a word, until its ttl has passed.",
            "Of the elections that one process watches, 256 get hints; the others ask now and then.",
        ],
    }
}

#[async_trait]
impl Engine for Nats {
    fn guarantees(&self) -> Guarantees {
        promises()
    }

    async fn claim(&self, election: &Name, bid: &Bid) -> Result<Claim, Error> {
        let who = (election.clone(), bid.identity.clone());
        locked(&self.found).remove(&who);
        if let Some(record) = self.vacancy(election)
            // Should it have changed since, its revision has too, and it is read.
            && let Claim::Granted(grant) = self.take(election, record, bid).await?
        {
            return Ok(Claim::Granted(grant));
        }
        let Some(record) = self.record_or_new(election).await? else {
            return Ok(Claim::Occupied { leader: None, free_in: None });
        };
        let silence = self.silence(election, &record);
        if let Some(own) = record.desk.holder.as_ref().filter(|it| it.identity == bid.identity) {
            let token = own.token;
            return Ok(match self.renew(election, bid, token).await? {
                Renewal::Kept { grant, .. } => Claim::Granted(grant),
                Renewal::Gone => Claim::Occupied { leader: None, free_in: None },
            });
        }
        match record.patience(&bid.identity, bid.ttl).checked_sub(silence).filter(|it| !it.is_zero()) {
            Some(left) => {
                locked(&self.found).insert(who, record.scene());
                Ok(Claim::Occupied { leader: record.desk.holder.map(|it| it.leader()), free_in: Some(left) })
            }
            None => self.take(election, record, bid).await,
        }
    }

    async fn renew(&self, election: &Name, bid: &Bid, token: Token) -> Result<Renewal, Error> {
        let known = locked(&self.held).remove(election);
        let renewed = self.change(election, known, |record| {
            let Some(holder) = record.seat_of(&bid.identity, token) else { return Ok(None) };
            holder.beat += 1;
            holder.ttl_ms = whole_ms(bid.ttl);
            holder.renewed_ms = Some(wall_ms());
            Ok(Some(record.desk.wish_for(token)))
        });
        Ok(match renewed.await? {
            Some(wish) => Renewal::Kept { grant: Grant::of(token), wish },
            None => Renewal::Gone,
        })
    }

    async fn release(&self, election: &Name, bid: &Bid, token: Token, farewell: &Farewell) -> Result<(), Error> {
        let known = locked(&self.held).remove(election);
        self.change(election, known, |record| {
            let own = record.seat_of(&bid.identity, token).is_some();
            Ok((own && record.desk.leave(token, farewell)).then_some(()))
        })
        .await?;
        locked(&self.held).remove(election);
        Ok(())
    }

    async fn look(&self, election: &Name) -> Result<Board, Error> {
        let Some(mut record) = self.record(election).await? else { return Ok(Board::default()) };
        let silence = self.silence(election, &record);
        let silent = |it: &crate::desk::Holder| silence >= outlasting(Duration::from_millis(it.ttl_ms));
        if record.desk.holder.as_ref().is_some_and(silent)
            && let Some(former) = record.desk.holder.take()
        {
            // It says so itself only when the next one is seated.
            record.desk.lapse(former);
        }
        Ok(record.desk.board(Vec::new()))
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
        let asked = self.change(election, None, |record| record.desk.ask(wish).map(Some));
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

    async fn withdraw(&self, election: &Name, bid: &Bid) -> Result<(), Error> {
        locked(&self.found).remove(&(election.clone(), bid.identity.clone()));
        Ok(())
    }

    fn watch(&self, election: &Name, bid: Option<&Bid>) -> BoxStream<'static, Result<(), Error>> {
        let (heard, observed) = (Arc::clone(&self.heard), Arc::clone(&self.observed));
        let serve = |orders| ear::hear(Arc::clone(&self.client), self.prefix.clone(), observed, heard, orders);
        let found = bid.and_then(|it| locked(&self.found).remove(&(election.clone(), it.identity.clone())));
        let mut news = News { heard: Arc::clone(&self.heard), election: election.clone(), found };
        let mut first = news.clone();
        // Unless it is known what the caller found, the first comes at once: something may have changed since. A key that was followed already is not told of again.
        let at_once = async move { Ok(first.found.is_none() || (first.is_followed() && first.is_news())) };
        let hints = self.hints.listen(election.as_str().to_owned(), serve, at_once);
        hints.filter(move |hint| std::future::ready(hint.is_err() || news.is_news())).boxed()
    }
}

/// Tells what is new to one who has seen something already.
#[derive(Clone)]
struct News {
    heard: Heard,
    election: Name,
    found: Option<Scene>,
}

impl News {
    fn is_followed(&self) -> bool {
        locked(&self.heard).contains_key(&self.election)
    }

    fn is_news(&mut self) -> bool {
        let Some(found) = &self.found else { return true };
        let is_news = locked(&self.heard).get(&self.election).is_none_or(|(record, _)| record.scene() != *found);
        if is_news {
            self.found = None;
        }
        is_news
    }
}
