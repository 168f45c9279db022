//! etcd: a line of keys, the oldest of which leads. In the same election as Go's `concurrency.Election` and `etcdctl elect`.
//!
//! **The recipe.** A candidate has a lease and a key `PREFIX/LEASE` on it, made by a transaction that finds none there. Whoever's key was created at
//! the smallest revision leads, and that revision is the term of its token. Who waits watches the key before its own. All that is asked again and
//! again is asked with linearizable reads.
//!
//! **When a lease is believed in.** etcd counts a lease's ttl in the memory of its leader, and `LeaseKeepAlive` does not go through its log. Before
//! 3.5.13 and 3.4.32 a leader that has been deposed and does not know it yet (its process was paused, its network cut) renews leases that its
//! successor is about to expire. Its holder would believe in a ttl that nobody keeps. So a keep-alive counts only together with a linearizable read
//! that was sent after its answer and bears the same raft term and the same cluster: the term in an answer is that of the last log entry which the
//! answering member has applied, and a leader answers a linearizable read only once it has committed an entry of its own term and heard from a quorum.
//! If a successor existed when the keep-alive was answered, that read comes from it, or from a later one, and bears a greater term. Then the keep-alive
//! is sent again. A new leader begins every lease anew, so what counted before a change of leaders was not too much.
//!
//! **What was learnt from others.** A candidate that waited may find itself first although its lease is gone (etcd#11456, #19597): here nobody is
//! granted anything without its own key, on its own lease, in the same read that shows it to be first, after a keep-alive that counts. A leadership
//! counts from the send of a keep-alive, not from its answer.
//!
//! What it leaves out: keeping a seat for somebody who is not in line, and any order in line but that of arrival; Go knows neither. One who deletes a
//! leader's key or revokes its lease by hand puts a second leader beside it until its next renewal. Ask it to resign instead.

mod candidacy;
mod client;
mod desk;
mod fault;
mod joint;
mod keys;
mod lease;
mod ledger;
mod line;
mod watch;
mod wire;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use futures_util::stream::BoxStream;
use incumbent_protocol::protocol::Token;

use self::candidacy::{Candidacy, Spot, View, published};
use self::client::Client;
use self::desk::{Guards, Revised, revise};
use self::fault::Fault;
use self::keys::{Keys, Namespace};
use self::lease::{Beat, Checked, Known, Lease, REPEATS_MAX};
use self::ledger::{Record, Turn, revision_of};
use self::line::{Line, leader};
use crate::desk::wall_ms;
use crate::engine::{Bid, Board, Claim, Engine, Error, Farewell, Grant, Kind, Leader, Renewal, Seat, Wish};
use crate::guarantees::{Exclusive, Guarantees, Notice, Order, Tokens, WhoseClock};
use crate::identity::Identity;
use crate::name::Name;
use crate::place::Place;

/// Longer ones are refused by etcd.
const TTL_MAX: Duration = Duration::from_secs(9_000_000_000);

/// So many may lead at once: each is a guard of a hand-over, and those must fit in a transaction with others.
const SEATS_MAX: u32 = 32;

/// Steps of one claim: a new lease, a place in line, a new incarnation, a change of etcd's leader, each found out by the step before.
const CLAIM_STEPS_MAX: usize = 8;

/// Whoever does not say by then whether it is there will be asked again by the first call.
const KNOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// What all elections shared is given back within this time, or left to expire.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Elections on etcd.
pub struct Etcd {
    client: Arc<Client>,
    namespace: Namespace,
    leases: Mutex<Vec<Arc<Lease>>>,
    candidacies: Mutex<BTreeMap<(Name, Identity), Arc<Candidacy>>>,
}

impl Etcd {
    /// Connects to the servers in the URL. An error if they will never let us in as things are; not if they cannot be reached now.
    pub(super) async fn open(place: &Place) -> Result<Arc<dyn Engine>, Error> {
        place.knows_only(&[])?;
        let etcd = Etcd {
            client: Arc::new(Client::new(place)?),
            namespace: Namespace::of(place)?,
            leases: Mutex::default(),
            candidacies: Mutex::default(),
        };
        match tokio::time::timeout(KNOCK_TIMEOUT, etcd.client.knock()).await.map(|it| it.map_err(Error::from)) {
            Ok(Err(why)) if why.kind() == Kind::Misconfigured => Err(why),
            Ok(Ok(()) | Err(_)) | Err(_) => Ok(Arc::new(etcd)),
        }
    }

    fn candidacy(&self, election: &Name, identity: &Identity) -> Arc<Candidacy> {
        let mut candidacies = self.candidacies.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = candidacies.entry((election.clone(), identity.clone()));
        let new = || Candidacy::new(election.clone(), identity.clone(), self.namespace.keys(election), self.client.clone());
        entry.or_insert_with(new).clone()
    }

    /// One that has been seen here, and its lease.
    fn known(&self, election: &Name, identity: &Identity) -> Option<(Arc<Candidacy>, Arc<Lease>)> {
        let candidacies = self.candidacies.lock().unwrap_or_else(PoisonError::into_inner);
        let candidacy = candidacies.get(&(election.clone(), identity.clone()))?.clone();
        let lease = candidacy.lease()?;
        Some((candidacy, lease))
    }

    /// The lease that a candidacy lives on: its own, one that others of the same ttl live on, or a new one.
    fn lease_for(&self, candidacy: &Arc<Candidacy>, ttl: Duration) -> Arc<Lease> {
        if let Some(own) = candidacy.lease().filter(|it| it.keep(candidacy)) {
            return own;
        }
        let seconds = wire::whole_seconds(ttl);
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        leases.retain(|it| !it.is_gone());
        let lease = leases.iter().find(|it| it.admit(candidacy, seconds)).cloned().unwrap_or_else(|| {
            let new = Lease::new(self.client.clone(), seconds);
            new.keep(candidacy);
            leases.push(new.clone());
            new
        });
        candidacy.move_to(lease.clone());
        lease
    }

    /// The candidacy is over.
    fn part(&self, candidacy: &Arc<Candidacy>, lease: &Lease) {
        lease.leave(candidacy);
        candidacy.stand_at(Spot::Left);
        let mut candidacies = self.candidacies.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (candidacy.election.clone(), candidacy.identity.clone());
        // One that left loose ends behind is remembered: see candidacy.rs.
        if !candidacy.is_loose() && candidacies.get(&key).is_some_and(|it| Arc::ptr_eq(it, candidacy)) {
            candidacies.remove(&key);
        }
    }

    /// One step of a claim; `None` if what was found out calls for another.
    async fn try_claim(&self, candidacy: &Arc<Candidacy>, bid: &Bid, departures: u64) -> Result<Option<Claim>, Error> {
        let lease = self.lease_for(candidacy, bid.ttl);
        let seen = async {
            let beat = lease.beat().await?;
            Ok((beat, candidacy.stand(&lease, bid, departures).await?))
        };
        let (beat, view): (Beat, View) = match seen.await {
            Err(Fault::NoLease) => {
                lease.note_gone();
                return Ok(None);
            }
            outcome => outcome?,
        };
        if view.stamp != beat.stamp {
            lease.discard(beat);
            return Ok(None);
        }
        let Some(revision) = view.own else { return Ok(None) };
        if !view.is_first() {
            let leader = self.leader_of(candidacy, &view).await?;
            return Ok(Some(Claim::Occupied { leader, free_in: None }));
        }
        let grant = |token| Grant { token, ttl: Some(beat.ttl), counted_from: Some(beat.sent) };
        if let Some(token) = token_held(candidacy, &view, revision) {
            enter_office(candidacy, &lease, &view, token);
            return Ok(Some(Claim::Granted(grant(token))));
        }
        match view.desk.ledger.turn(revision, view.store_revision, bid.seen)? {
            Turn::Plain(token) => {
                if bid.seats > 1 && !self.seat_at_once(candidacy, &lease, &view, bid, token).await? {
                    return Ok(None);
                }
                enter_office(candidacy, &lease, &view, token);
                if bid.seats == 1 {
                    self.seat_soon(candidacy, &lease, bid, token, view.desk.clone(), view.leading());
                }
                Ok(Some(Claim::Granted(grant(token))))
            }
            Turn::Raise(above) => {
                self.raise(&candidacy.election, above).await?;
                Ok(None)
            }
            Turn::Missed => {
                candidacy.remove(lease.id).await?;
                Ok(None)
            }
        }
    }

    /// Who leads, to one who does not.
    async fn leader_of(&self, candidacy: &Candidacy, view: &View) -> Result<Option<Leader>, Error> {
        let Some(first) = view.first.first() else { return Ok(None) };
        let ledger = &view.desk.ledger;
        let revision = first.create_revision;
        let record = match (ledger.seat_of(revision), candidacy.known_leader(revision)) {
            (Some(_), _) => None,
            (None, Some(known)) => known,
            // Not on the desk: one of ours that has not been entered yet, or a stranger.
            (None, None) => {
                let beside = candidacy.keys.record_beside(&first.key)?;
                let answer = self.client.txn(wire::reading(vec![wire::key(&beside)])).await?;
                let record = answer.one(0).and_then(|it| Record::read(&it.value));
                candidacy.note_leader(revision, record.clone());
                record
            }
        };
        leader(first, record.as_ref(), ledger).map(Some)
    }

    /// Puts one who leads on the desk. Says whether it did; if not, others have written there since it was read.
    async fn seat_at_once(
        &self,
        candidacy: &Candidacy,
        lease: &Lease,
        view: &View,
        bid: &Bid,
        token: Token,
    ) -> Result<bool, Error> {
        let mut ledger = ledger::Ledger::clone(&view.desk.ledger);
        ledger.seat(candidacy.holder(bid, token), &view.leading());
        let keys = &candidacy.keys;
        let request = wire::proto::TxnRequest {
            compare: vec![
                wire::modified(&keys.desk, view.desk.revision),
                wire::created(&keys.candidate(lease.id), revision_of(token)),
            ],
            success: vec![wire::put(&keys.desk, ledger.write(), 0)],
            failure: Vec::new(),
        };
        Ok(self.client.txn(request).await?.succeeded)
    }

    /// Puts one who leads on the desk, while it goes on: the desk decides nothing, and each renewal looks whether it is there.
    fn seat_soon(
        &self,
        candidacy: &Arc<Candidacy>,
        lease: &Arc<Lease>,
        bid: &Bid,
        token: Token,
        known: Known,
        leading: Vec<i64>,
    ) {
        if candidacy.mark_seating(true) {
            return;
        }
        let (client, candidacy, lease) = (self.client.clone(), candidacy.clone(), lease.clone());
        let guards: Guards = vec![(candidacy.keys.candidate(lease.id), revision_of(token))];
        let holder = candidacy.holder(bid, token);
        let ttl = bid.ttl;
        tokio::spawn(async move {
            let write = revise(&client, &candidacy.keys, &guards, known, &[], |ledger| {
                ledger.seat(holder.clone(), &leading);
                Ok(())
            });
            match tokio::time::timeout(ttl, write).await {
                Ok(Ok(Revised::Done(desk))) => lease.note_desk(&candidacy, revision_of(token), desk),
                Ok(Ok(Revised::Void)) | Err(_) => {}
                Ok(Err(fault)) => {
                    tracing::debug!(why = %Error::from(fault), "the desk does not know of this leadership yet");
                }
            }
            candidacy.mark_seating(false);
        });
    }

    /// The seat of one whose lease etcd does not know.
    async fn without_lease(&self, candidacy: &Candidacy, lease: &Lease, revision: i64) -> Result<Renewal, Error> {
        let answer = self.client.txn(wire::reading(vec![wire::key(&candidacy.keys.candidate(lease.id))])).await?;
        match answer.one(0) {
            // A leader that has not yet read its own log says so too.
            Some(key) if key.create_revision == revision => {
                Err(Error::refused("etcd does not know the lease, but has the key that hangs on it: ask again"))
            }
            Some(_) | None => {
                candidacy.forget_key();
                Ok(Renewal::Gone)
            }
        }
    }

    /// The key of a leadership, wherever it was won.
    async fn key_of(&self, keys: &Keys, identity: &Identity, token: Token) -> Result<Option<Vec<u8>>, Error> {
        let line = Line::read(&self.client, keys).await?;
        let revision = revision_of(token);
        let own = line.standing.into_iter().find(|it| it.key.create_revision == revision);
        Ok(own.filter(|it| it.record.as_ref().is_some_and(|it| it.identity == *identity)).map(|it| it.key.key))
    }
}

/// The token of one who leads already, whether it knows it or not.
fn token_held(candidacy: &Candidacy, view: &View, revision: i64) -> Option<Token> {
    let on_desk = || {
        let seat = view.desk.ledger.seat_of(revision)?;
        (seat.holder.identity == candidacy.identity).then_some(seat.holder.token)
    };
    candidacy.granted(revision).or_else(on_desk)
}

fn enter_office(candidacy: &Arc<Candidacy>, lease: &Lease, view: &View, token: Token) {
    lease.take_office(candidacy, revision_of(token), view.desk.clone());
    candidacy.take_office(lease, revision_of(token), token);
}

fn out_of_office(token: Token) -> Error {
    Error::refused(format!("the leadership with token {token} is no longer in office"))
}

/// What elections on etcd promise, wherever they are.
pub(super) fn promises() -> Guarantees {
    Guarantees {
        engine: "etcd",
        exclusive: Exclusive::Always,
        tokens: Tokens::Durable,
        token_source: "the revision at which the leader's key was created, with an incarnation",
        clock: WhoseClock::Engine,
        notice: Notice::Pushed,
        order: Order::Line,
        seats_max: SEATS_MAX,
        lists_candidates: true,
        keeps_history: true,
        ttl_min: Duration::from_secs(1),
        ttl_max: TTL_MAX,
        caveats: vec![
            "Whoever deletes the leader's key or revokes its lease by hand puts a second leader beside it until its next renewal: evict it instead.",
            "etcd restored from a backup counts revisions again from there: raise the incarnation, or tokens rise only for candidates that remember greater ones.",
            "A ttl is rounded up to whole seconds, and etcd may grant more: at least one and a half of its election timeout.",
            "A candidate that is not ours (etcdctl elect, Go) reads no wishes, has no history, and its own library decides when it stops.",
            "With several seats nobody but ours may contend: others know of one leader.",
            "A seat is handed over only to one who stands in line, and only past candidates of ours.",
        ],
    }
}

#[async_trait]
impl Engine for Etcd {
    fn guarantees(&self) -> Guarantees {
        promises()
    }

    async fn claim(&self, election: &Name, bid: &Bid) -> Result<Claim, Error> {
        if bid.seats == 0 || bid.seats > SEATS_MAX {
            return Err(Error::misconfigured(format!("{} seats: etcd elections have 1 to {SEATS_MAX}", bid.seats)));
        }
        let candidacy = self.candidacy(election, &bid.identity);
        let departures = candidacy.departures();
        for _ in 0..CLAIM_STEPS_MAX {
            let claim = self.try_claim(&candidacy, bid, departures).await?;
            if candidacy.departures() != departures {
                return Err(Error::refused("this candidate has left since it asked"));
            }
            if let Some(claim) = claim {
                return Ok(claim);
            }
        }
        Err(Error::refused("etcd or this election changes too often to say who leads: ask again"))
    }

    async fn renew(&self, election: &Name, bid: &Bid, token: Token) -> Result<Renewal, Error> {
        let revision = revision_of(token);
        let Some((candidacy, lease)) = self.known(election, &bid.identity) else {
            return match self.key_of(&self.namespace.keys(election), &bid.identity, token).await? {
                Some(_) => Err(Error::refused("this leadership was won through another connection, which must renew it")),
                None => Ok(Renewal::Gone),
            };
        };
        if !lease.keep(&candidacy) {
            tracing::debug!(%election, "renews on a lease that etcd does not know any more");
        }
        if candidacy.is_retired() {
            return Ok(Renewal::Gone);
        }
        if candidacy.granted(revision) != Some(token) {
            candidacy.take_office(&lease, revision, token);
        }
        lease.take_office(&candidacy, revision, Known::nothing());
        match lease.check(election, &self.namespace).await {
            Ok(Checked::Stands(beat, known)) => {
                if !known.ledger.knows(token) {
                    self.seat_soon(&candidacy, &lease, bid, token, known.clone(), vec![revision]);
                }
                let grant = Grant { token, ttl: Some(beat.ttl), counted_from: Some(beat.sent) };
                Ok(Renewal::Kept { grant, wish: known.ledger.wish_for(token).cloned() })
            }
            Ok(Checked::Gone) => {
                candidacy.forget_key();
                Ok(Renewal::Gone)
            }
            Err(Fault::NoLease) => self.without_lease(&candidacy, &lease, revision).await,
            Err(other) => Err(other.into()),
        }
    }

    async fn release(&self, election: &Name, bid: &Bid, token: Token, farewell: &Farewell) -> Result<(), Error> {
        let keys = self.namespace.keys(election);
        let known = self.known(election, &bid.identity);
        let own = match &known {
            Some((candidacy, lease)) if candidacy.granted(revision_of(token)).is_some() => {
                candidacy.depart(lease.id);
                keys.candidate(lease.id)
            }
            Some(_) | None => match self.key_of(&keys, &bid.identity, token).await? {
                Some(key) => key,
                None => return Ok(()),
            },
        };
        let parting = match &known {
            Some((candidacy, lease)) if keys.candidate(lease.id) == own => candidacy.parting(lease.id),
            Some(_) | None => wire::delete(&keys.record_beside(&own)?),
        };
        let more = [wire::delete(&own), parting];
        let holder = match &known {
            Some((candidacy, _)) => candidacy.holder(bid, token),
            None => Record::of(bid).holder(token, &bid.value, wall_ms()),
        };
        let leave = |ledger: &mut ledger::Ledger| {
            ledger.leave(holder.clone(), farewell);
            Ok(())
        };
        let guards: Guards = vec![(own.clone(), revision_of(token))];
        if let Some(to) = &farewell.to {
            line::clear_the_way(&self.client, &keys, &guards[0], to).await?;
        }
        let desk = known.as_ref().map_or_else(Known::nothing, |(_, lease)| lease.desk_of(election));
        let revised = revise(&self.client, &keys, &guards, desk, &more, leave).await?;
        if let Some((candidacy, lease)) = &known
            && keys.candidate(lease.id) == own
        {
            match revised {
                Revised::Done(desk) => candidacy.note_parted(lease.id, desk.revision),
                Revised::Void => candidacy.forget_key(),
            }
            self.part(candidacy, lease);
        }
        Ok(())
    }

    async fn look(&self, election: &Name) -> Result<Board, Error> {
        Ok(Line::read(&self.client, &self.namespace.keys(election)).await?.board()?)
    }

    async fn inquire(&self, election: &Name, bid: &Bid) -> Result<Seat, Error> {
        let Some((candidacy, lease)) = self.known(election, &bid.identity) else {
            let board = self.look(election).await?;
            return Ok(match board.leaders.into_iter().next() {
                Some(leader) => Seat::Others(Some(leader)),
                None => Seat::Vacant,
            });
        };
        let view = candidacy.view(&lease, bid.seats).await?;
        if let Some(revision) = view.own
            && view.is_first()
            && !candidacy.is_retired()
        {
            let token = match token_held(&candidacy, &view, revision) {
                Some(token) => Some(token),
                None => match view.desk.ledger.turn(revision, view.store_revision, bid.seen)? {
                    Turn::Plain(token) if bid.seats == 1 => Some(token),
                    Turn::Plain(_) | Turn::Raise(_) | Turn::Missed => None,
                },
            };
            if let Some(token) = token {
                enter_office(&candidacy, &lease, &view, token);
                return Ok(Seat::Own(token));
            }
            // At the head of the line, but with something to be done before it leads: a claim does it.
            return Ok(Seat::Vacant);
        }
        Ok(match self.leader_of(&candidacy, &view).await? {
            Some(leader) => Seat::Others(Some(leader)),
            None => Seat::Vacant,
        })
    }

    async fn withdraw(&self, election: &Name, bid: &Bid) -> Result<(), Error> {
        let Some((candidacy, lease)) = self.known(election, &bid.identity) else { return Ok(()) };
        candidacy.depart(lease.id);
        candidacy.remove(lease.id).await?;
        self.part(&candidacy, &lease);
        Ok(())
    }

    async fn proclaim(&self, election: &Name, bid: &Bid, token: Token, value: &str) -> Result<(), Error> {
        let (candidacy, lease) = self.known(election, &bid.identity).ok_or_else(|| out_of_office(token))?;
        let own = candidacy.keys.candidate(lease.id);
        let request = wire::proto::TxnRequest {
            compare: vec![wire::created(&own, revision_of(token))],
            success: vec![wire::put(&own, published(bid, value), lease.id)],
            failure: Vec::new(),
        };
        match self.client.txn(request).await {
            Ok(answer) if answer.succeeded => Ok(()),
            Ok(_) | Err(Fault::NoLease) => Err(out_of_office(token)),
            Err(other) => Err(other.into()),
        }
    }

    async fn ask(&self, election: &Name, wish: &Wish) -> Result<(), Error> {
        let keys = self.namespace.keys(election);
        for _ in 0..REPEATS_MAX {
            let line = Line::read(&self.client, &keys).await?;
            let leading: Vec<i64> = line.leading().iter().map(|it| it.key.create_revision).collect();
            let meant = line.leading().iter().find(|it| line.token_of(it) == Some(wish.token));
            let meant = meant.ok_or_else(|| out_of_office(wish.token))?;
            let Some(record) = &meant.record else {
                return Err(Error::refused("the leader is not one of ours, and reads no wishes: ask it in its own way"));
            };
            let holder = record.holder(wish.token, &line::value_of(&meant.key, Some(record)), wall_ms());
            let guards: Guards = vec![(meant.key.key.clone(), meant.key.create_revision)];
            let revised = revise(&self.client, &keys, &guards, line.desk.clone(), &[], |ledger| {
                ledger.seat(holder.clone(), &leading);
                ledger.ask(wish);
                Ok(())
            });
            match revised.await? {
                Revised::Done(_) => return Ok(()),
                Revised::Void => {}
            }
        }
        Err(Error::refused("this election changes too often to ask anybody for anything: ask again"))
    }

    async fn raise(&self, election: &Name, above: Token) -> Result<(), Error> {
        let keys = self.namespace.keys(election);
        revise(&self.client, &keys, &Guards::new(), Known::nothing(), &[], |ledger| ledger.raise(above)).await?;
        Ok(())
    }

    fn watch(&self, election: &Name, bid: Option<&Bid>) -> BoxStream<'static, Result<(), Error>> {
        match bid {
            Some(bid) => watch::of_bidder(self.client.clone(), self.candidacy(election, &bid.identity)),
            None => watch::of_observer(self.client.clone(), self.namespace.keys(election)),
        }
    }

    async fn close(&self) {
        let leases = std::mem::take(&mut *self.leases.lock().unwrap_or_else(PoisonError::into_inner));
        let revoked = join_all(leases.iter().filter(|it| !it.is_gone()).map(|it| self.client.revoke(it.id)));
        if tokio::time::timeout(CLOSE_TIMEOUT, revoked).await.is_err() {
            tracing::debug!("etcd did not take the leases back in time: they expire by themselves");
        }
    }
}
