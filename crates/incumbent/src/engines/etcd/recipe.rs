//! What is behind each call on the engine; see the head of `etcd/mod.rs` for why it is so.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use incumbent_protocol::protocol::Token;

use super::candidacy::{Candidacy, Spot, View, published};
use super::desk::{Guards, Revised, revise};
use super::fault::Fault;
use super::keys::Keys;
use super::lease::{Beat, Checked, Known, Lease, REPEATS_MAX};
use super::ledger::{self, Record, Turn, revision_of};
use super::line::{self, Line, leader};
use super::{Etcd, SEATS_MAX, wire};
use crate::desk::wall_ms;
use crate::engine::{Bid, Board, Claim, Error, Farewell, Grant, Leader, Renewal, Seat, Wish};
use crate::identity::Identity;
use crate::name::Name;

/// Steps of one claim: a new lease, a place in line, a new incarnation, a change of etcd's leader, each found out by the step before.
const CLAIM_STEPS_MAX: usize = 8;

impl Etcd {
    /// As many steps as it takes to say whose the seat is.
    pub(super) async fn take_or_stand(&self, election: &Name, bid: &Bid) -> Result<Claim, Fault> {
        if bid.seats == 0 || bid.seats > SEATS_MAX {
            return Err(Error::misconfigured(format!("{} seats: etcd elections have 1 to {SEATS_MAX}", bid.seats)).into());
        }
        let candidacy = self.candidacy(election, &bid.identity);
        let departures = candidacy.departures();
        for _ in 0..CLAIM_STEPS_MAX {
            let claim = self.try_claim(&candidacy, bid, departures).await?;
            if candidacy.departures() != departures {
                return Err(Error::refused("this candidate has left since it asked").into());
            }
            if let Some(claim) = claim {
                return Ok(claim);
            }
        }
        Err(Error::refused("etcd or this election changes too often to say who leads: ask again").into())
    }

    /// A keep-alive that counts, and a key that is there after it.
    pub(super) async fn keep(&self, election: &Name, bid: &Bid, token: Token) -> Result<Renewal, Fault> {
        let revision = revision_of(token);
        let Some((candidacy, lease)) = self.known(election, &bid.identity) else {
            return match self.key_of(&self.namespace.keys(election), &bid.identity, token).await? {
                Some(_) => Err(Error::refused("this leadership was won through another connection, which must renew it").into()),
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
                let grant = Grant { token, ttl: Some(beat.ttl), counted_from: Some(beat.sent), noted: false };
                Ok(Renewal::Kept { grant, wish: known.ledger.wish_for(token).cloned() })
            }
            Ok(Checked::Gone) => {
                candidacy.forget_key();
                Ok(Renewal::Gone)
            }
            Err(Fault::NoLease) => self.without_lease(&candidacy, &lease, revision).await,
            Err(other) => Err(other),
        }
    }

    /// Removes the key of this leadership and no other, and writes down why.
    pub(super) async fn give_back(&self, election: &Name, bid: &Bid, token: Token, farewell: &Farewell) -> Result<(), Fault> {
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
            ledger.leave(holder.clone(), bid.seats, farewell);
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

    /// Whose the seat is, without standing in line.
    pub(super) async fn whose(&self, election: &Name, bid: &Bid) -> Result<Seat, Fault> {
        let Some((candidacy, lease)) = self.known(election, &bid.identity) else {
            let board = self.whole_board(election).await?;
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

    /// Removes the key, whatever it was good for.
    pub(super) async fn leave_line(&self, election: &Name, bid: &Bid) -> Result<(), Fault> {
        let Some((candidacy, lease)) = self.known(election, &bid.identity) else { return Ok(()) };
        candidacy.depart(lease.id);
        candidacy.remove(lease.id).await?;
        self.part(&candidacy, &lease);
        Ok(())
    }

    /// Writes another value to the key of this leadership.
    pub(super) async fn publish(&self, election: &Name, bid: &Bid, token: Token, value: &str) -> Result<(), Fault> {
        let (candidacy, lease) = self.known(election, &bid.identity).ok_or_else(|| out_of_office(token))?;
        let own = candidacy.keys.candidate(lease.id);
        let request = wire::proto::TxnRequest {
            compare: vec![wire::created(&own, revision_of(token))],
            success: vec![wire::put(&own, published(bid, value), lease.id)],
            failure: Vec::new(),
        };
        match self.client.txn(request).await {
            Ok(answer) if answer.succeeded => Ok(()),
            Ok(_) | Err(Fault::NoLease) => Err(out_of_office(token).into()),
            Err(other) => Err(other),
        }
    }

    /// Leaves a wish on the desk, for one who leads and reads it.
    pub(super) async fn leave_wish(&self, election: &Name, wish: &Wish) -> Result<(), Fault> {
        let keys = self.namespace.keys(election);
        for _ in 0..REPEATS_MAX {
            let line = Line::read(&self.client, &keys).await?;
            let leading: Vec<i64> = line.leading().iter().map(|it| it.key.create_revision).collect();
            let meant = line.leading().iter().find(|it| line.token_of(it) == Some(wish.token));
            let meant = meant.ok_or_else(|| out_of_office(wish.token))?;
            let Some(record) = &meant.record else {
                return Err(Error::refused("the leader is not one of ours, and reads no wishes: ask it in its own way").into());
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
        Err(Error::refused("this election changes too often to ask anybody for anything: ask again").into())
    }

    /// Raises the incarnation on the desk.
    pub(super) async fn raise_incarnation(&self, election: &Name, above: Token) -> Result<(), Fault> {
        let keys = self.namespace.keys(election);
        revise(&self.client, &keys, &Guards::new(), Known::nothing(), &[], |ledger| ledger.raise(above)).await?;
        Ok(())
    }

    /// Puts a note on the desk. If the leadership is one of ours, its lease remembers the desk as it is then: the next to write there is its release.
    pub(super) async fn put_on_record(&self, election: &Name, token: Token, text: &str) -> Result<(), Fault> {
        let keys = self.namespace.keys(election);
        let note = |ledger: &mut ledger::Ledger| {
            ledger.annotate(token, text);
            Ok(())
        };
        let holder = self.granted(election, token);
        let known = holder.as_ref().map_or_else(Known::nothing, |(_, lease)| lease.desk_of(election));
        let revised = revise(&self.client, &keys, &Guards::new(), known, &[], note).await?;
        if let (Some((candidacy, lease)), Revised::Done(desk)) = (&holder, revised) {
            lease.note_desk(candidacy, revision_of(token), desk);
        }
        Ok(())
    }

    /// The whole line, and the desk.
    pub(super) async fn whole_board(&self, election: &Name) -> Result<Board, Fault> {
        Ok(Line::read(&self.client, &self.namespace.keys(election)).await?.board()?)
    }

    pub(super) fn candidacy(&self, election: &Name, identity: &Identity) -> Arc<Candidacy> {
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

    /// The one that was granted this leadership here, and its lease.
    fn granted(&self, election: &Name, token: Token) -> Option<(Arc<Candidacy>, Arc<Lease>)> {
        let candidacies = self.candidacies.lock().unwrap_or_else(PoisonError::into_inner);
        let mut of_election = candidacies.values().filter(|it| it.election == *election);
        let candidacy = of_election.find(|it| it.granted(revision_of(token)) == Some(token))?.clone();
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
    async fn try_claim(&self, candidacy: &Arc<Candidacy>, bid: &Bid, departures: u64) -> Result<Option<Claim>, Fault> {
        let lease = self.lease_for(candidacy, bid.ttl);
        let seen = async {
            let beat = match lease.recent() {
                Some(beat) => beat,
                None => lease.beat().await?,
            };
            let view = candidacy.stand(&lease, bid, departures).await?;
            if !view.is_first() {
                // The lease is kept while one waits, so that nothing but that read is to be waited for when the turn comes.
                lease.beat().await?;
            }
            Ok((beat, view))
        };
        let (beat, mut view): (Beat, View) = match seen.await {
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
        let grant = |token, noted| Grant { token, ttl: Some(beat.ttl), counted_from: Some(beat.sent), noted };
        if let Some(token) = token_held(candidacy, &view, revision) {
            enter_office(candidacy, &lease, &view, token);
            return Ok(Some(Claim::Granted(grant(token, false))));
        }
        match view.desk.ledger.turn(revision, view.store_revision, bid.seen)? {
            Turn::Plain(token) => {
                let is_seated = match bid.seats > 1 || bid.note.is_some() {
                    true => match self.seat_at_once(candidacy, &lease, &view, bid, token).await {
                        Ok(Revised::Done(desk)) => {
                            view.desk = desk;
                            true
                        }
                        Ok(Revised::Void) => return Ok(None),
                        // The line decides who leads: with one seat nobody is kept from it by a desk that cannot be written.
                        Err(fault) if bid.seats == 1 && !fault.may_have_happened() => false,
                        Err(fault) => return Err(fault),
                    },
                    false => false,
                };
                enter_office(candidacy, &lease, &view, token);
                if !is_seated {
                    self.seat_soon(candidacy, &lease, bid, token, view.desk.clone(), view.leading());
                }
                Ok(Some(Claim::Granted(grant(token, is_seated && bid.note.is_some()))))
            }
            Turn::Raise(above) => {
                self.raise_incarnation(&candidacy.election, above).await?;
                Ok(None)
            }
            Turn::Missed => {
                candidacy.remove(lease.id).await?;
                Ok(None)
            }
        }
    }

    /// Who leads, to one who does not.
    async fn leader_of(&self, candidacy: &Candidacy, view: &View) -> Result<Option<Leader>, Fault> {
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
        Ok(Some(leader(first, record.as_ref(), ledger)?))
    }

    /// Puts one who leads on the desk, with its note. Void if others have written there since it was read, or its key is gone.
    async fn seat_at_once(
        &self,
        candidacy: &Candidacy,
        lease: &Lease,
        view: &View,
        bid: &Bid,
        token: Token,
    ) -> Result<Revised, Fault> {
        let mut ledger = ledger::Ledger::clone(&view.desk.ledger);
        ledger.seat(candidacy.holder(bid, token), &view.leading());
        ledger.note_for(bid, token);
        let keys = &candidacy.keys;
        let request = wire::proto::TxnRequest {
            compare: vec![
                wire::modified(&keys.desk, view.desk.revision),
                wire::created(&keys.candidate(lease.id), revision_of(token)),
            ],
            success: vec![wire::put(&keys.desk, ledger.write(), 0)],
            failure: Vec::new(),
        };
        let answer = self.client.txn(request).await?;
        Ok(match answer.succeeded {
            true => Revised::Done(Known { revision: answer.revision, ledger: Arc::new(ledger) }),
            false => Revised::Void,
        })
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
            // Whoever waits for the seat is told first.
            tokio::task::yield_now().await;
            let write = revise(&client, &candidacy.keys, &guards, known, &[], |ledger| {
                ledger.seat(holder.clone(), &leading);
                Ok(())
            });
            match tokio::time::timeout(ttl, write).await {
                Ok(Ok(Revised::Done(desk))) => lease.note_desk(&candidacy, revision_of(token), desk),
                Ok(Ok(Revised::Void)) | Err(_) => {}
                Ok(Err(fault)) => {
                    tracing::debug!(why = %fault.into_error(), "the desk does not know of this leadership yet");
                }
            }
            candidacy.mark_seating(false);
        });
    }

    /// The seat of one whose lease etcd does not know.
    async fn without_lease(&self, candidacy: &Candidacy, lease: &Lease, revision: i64) -> Result<Renewal, Fault> {
        let answer = self.client.txn(wire::reading(vec![wire::key(&candidacy.keys.candidate(lease.id))])).await?;
        match answer.one(0) {
            // A leader that has not yet read its own log says so too.
            Some(key) if key.create_revision == revision => {
                Err(Error::refused("etcd does not know the lease, but has the key that hangs on it: ask again").into())
            }
            Some(_) | None => {
                candidacy.forget_key();
                Ok(Renewal::Gone)
            }
        }
    }

    /// The key of a leadership, wherever it was won.
    async fn key_of(&self, keys: &Keys, identity: &Identity, token: Token) -> Result<Option<Vec<u8>>, Fault> {
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
