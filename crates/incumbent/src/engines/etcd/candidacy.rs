//! One bidder in one election: its key in the line, as far as this process knows of it.
//!
//! Every write is guarded by what was read before it, so that a request that was given up and arrives late changes nothing. The one write that
//! cannot know its key's revision is the one that makes it; it is guarded by the record beside the key, which every such write changes. Who leaves while
//! such a write may still be under way leaves a record behind that it does not expect.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use incumbent_protocol::protocol::Token;
use tokio::sync::watch;

use super::client::Client;
use super::fault::Fault;
use super::keys::Keys;
use super::lease::{Known, Lease, REPEATS_MAX};
use super::ledger::Record;
use super::wire::proto::{KeyValue, TxnRequest};
use super::wire::{self, Answer, Stamp};
use crate::desk::{Holder, wall_ms};
use crate::engine::{Bid, Error};
use crate::identity::Identity;
use crate::name::Name;

/// What is left of a candidate that is none any more.
const LEFT: &str = "{}";

/// One bidder in one election.
pub(super) struct Candidacy {
    pub(super) election: Name,
    pub(super) identity: Identity,
    pub(super) keys: Keys,
    client: Arc<Client>,
    standing: Mutex<Standing>,
    spot: watch::Sender<Spot>,
}

/// Where it stands, for those who watch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Spot {
    /// Not in line.
    Away,
    /// In line since this revision; so many may lead.
    Waiting { lease: i64, revision: i64, seats: u32 },
    /// Leads.
    InOffice { lease: i64, revision: i64, token: Token },
    /// Gone for good.
    Left,
}

#[derive(Default)]
struct Standing {
    lease: Option<Arc<Lease>>,
    /// At which its key was created, if it is known to be there.
    revision: Option<i64>,
    /// At which its record was last written; 0 if it is not there.
    record: i64,
    /// So many writes that make the key were sent and not answered: they may still be under way.
    unanswered: u32,
    /// Counts departures: a claim that began before one must not bring the key back.
    departures: u64,
    /// Whatever key is there must be removed before anything else.
    retired: bool,
    /// What it was granted with the key of this revision.
    granted: Option<(i64, Token)>,
    /// Since when, for people.
    since_ms: u64,
    /// Being put on the desk.
    seating: bool,
    /// Who leads with the key of this revision.
    leader: Option<(i64, Option<Record>)>,
}

/// What a candidate sees of its election.
pub(super) struct View {
    pub(super) stamp: Stamp,
    /// Of the whole store.
    pub(super) store_revision: i64,
    /// At which its own key was created, if it is there.
    pub(super) own: Option<i64>,
    /// The oldest keys in line, as many as may lead.
    pub(super) first: Vec<KeyValue>,
    pub(super) desk: Known,
}

impl View {
    /// Whether its own key is among the first.
    pub(super) fn is_first(&self) -> bool {
        self.own.is_some_and(|own| self.first.iter().any(|it| it.create_revision == own))
    }

    /// Revisions of all keys that lead.
    pub(super) fn leading(&self) -> Vec<i64> {
        self.first.iter().map(|it| it.create_revision).collect()
    }
}

/// Whether a key was removed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Removed {
    Done,
    /// Its bidder is back.
    NoLongerWanted,
}

impl Candidacy {
    pub(super) fn new(election: Name, identity: Identity, keys: Keys, client: Arc<Client>) -> Arc<Candidacy> {
        let (standing, spot) = (Mutex::default(), watch::Sender::new(Spot::Away));
        Arc::new(Candidacy { election, identity, keys, client, standing, spot })
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lease that its key hangs on.
    pub(super) fn lease(&self) -> Option<Arc<Lease>> {
        self.standing().lease.clone()
    }

    /// Its key will hang on another lease from now on.
    pub(super) fn move_to(&self, lease: Arc<Lease>) {
        let mut standing = self.standing();
        *standing = Standing { lease: Some(lease), departures: standing.departures, ..Standing::default() };
        drop(standing);
        self.stand_at(Spot::Away);
    }

    pub(super) fn spot(&self) -> watch::Receiver<Spot> {
        self.spot.subscribe()
    }

    pub(super) fn stand_at(&self, spot: Spot) {
        self.spot.send_if_modified(|it| {
            let changed = *it != spot;
            *it = spot;
            changed
        });
    }

    /// Its key must not be used any more, if it hangs on this lease.
    pub(super) fn retire(&self, lease: i64) {
        let mut standing = self.standing();
        if standing.lease.as_ref().is_some_and(|it| it.id == lease) {
            standing.retired = true;
        }
    }

    pub(super) fn is_retired(&self) -> bool {
        self.standing().retired
    }

    /// What it was granted, if the key of this revision is the one.
    pub(super) fn granted(&self, revision: i64) -> Option<Token> {
        self.standing().granted.filter(|(of, _)| *of == revision).map(|(_, token)| token)
    }

    /// It leads.
    pub(super) fn take_office(&self, lease: &Lease, revision: i64, token: Token) {
        let mut standing = self.standing();
        standing.revision = Some(revision);
        if standing.granted != Some((revision, token)) {
            standing.since_ms = wall_ms();
        }
        standing.granted = Some((revision, token));
        drop(standing);
        self.stand_at(Spot::InOffice { lease: lease.id, revision, token });
    }

    /// What the desk should know of it if it leads with `token`.
    pub(super) fn holder(&self, bid: &Bid, token: Token) -> Holder {
        let standing = self.standing();
        let known = standing.granted.is_some_and(|(_, granted)| granted == token);
        Record::of(bid).holder(token, &bid.value, if known { standing.since_ms } else { wall_ms() })
    }

    /// It is being put on the desk from now on, or not any more. Says whether it was before.
    pub(super) fn mark_seating(&self, seating: bool) -> bool {
        std::mem::replace(&mut self.standing().seating, seating)
    }

    /// Its key is not there any more.
    pub(super) fn forget_key(&self) {
        let mut standing = self.standing();
        standing.revision = None;
        standing.granted = None;
        drop(standing);
        self.stand_at(Spot::Away);
    }

    /// Who leads with the key of this revision, if that was looked up already.
    pub(super) fn known_leader(&self, revision: i64) -> Option<Option<Record>> {
        self.standing().leader.clone().filter(|(of, _)| *of == revision).map(|(_, record)| record)
    }

    pub(super) fn note_leader(&self, revision: i64, record: Option<Record>) {
        self.standing().leader = Some((revision, record));
    }

    /// How often it has left.
    pub(super) fn departures(&self) -> u64 {
        self.standing().departures
    }

    /// It leaves, or gives its seat back: whatever becomes of that, its key must not be used any more.
    pub(super) fn depart(&self, lease: i64) {
        self.standing().departures += 1;
        self.retire(lease);
    }

    /// Stands in line, unless it has left since, and sees who is first.
    pub(super) async fn stand(&self, lease: &Arc<Lease>, bid: &Bid, departures: u64) -> Result<View, Fault> {
        if self.is_retired() && self.departures() == departures {
            self.remove(lease.id).await?;
        }
        let known = self.standing().revision;
        match known {
            Some(_) => self.view(lease, bid.seats).await,
            None => self.enter(lease, bid, departures).await,
        }
    }

    /// Makes its key, unless it is there.
    async fn enter(&self, lease: &Arc<Lease>, bid: &Bid, departures: u64) -> Result<View, Fault> {
        let (own, beside) = (self.keys.candidate(lease.id), self.keys.record(lease.id));
        let record = {
            let mut standing = self.standing();
            if standing.departures != departures || standing.retired {
                return Err(Error::refused("this candidate has left since it asked").into());
            }
            standing.unanswered += 1;
            standing.record
        };
        let reads = [wire::oldest(&self.keys.line, i64::from(bid.seats)), wire::key(&self.keys.desk)];
        let value = published(bid, &bid.value);
        let request = TxnRequest {
            compare: vec![wire::created(&own, 0), wire::modified(&beside, record)],
            success: [wire::put(&own, value, lease.id), wire::put(&beside, Record::of(bid).write(), lease.id)]
                .into_iter()
                .chain(reads.clone())
                .collect(),
            failure: [wire::key(&own), wire::key(&beside)].into_iter().chain(reads).collect(),
        };
        let answer = match self.client.txn(request).await {
            Ok(answer) => answer,
            Err(fault) => {
                if !fault.may_have_happened() {
                    self.note_answered(lease.id);
                }
                return Err(fault);
            }
        };
        self.note_answered(lease.id);
        let mut view = self.seen(&answer, 2)?;
        let mut standing = self.standing();
        if standing.lease.as_ref().is_none_or(|it| it.id != lease.id) {
            return Err(Error::refused("this candidate has moved to another lease since it asked").into());
        }
        if answer.succeeded {
            standing.record = answer.revision;
            view.own = Some(answer.revision);
        } else {
            // Its own, from a call whose answer was lost; or a record that it did not know of.
            standing.record = answer.one(1).map_or(0, |it| it.mod_revision);
            view.own = own_revision(answer.one(0), lease)?;
        }
        standing.revision = view.own;
        drop(standing);
        self.note_spot(lease, &view, bid.seats);
        Ok(view)
    }

    /// What became of a write that makes its key is known.
    fn note_answered(&self, lease: i64) {
        let mut standing = self.standing();
        if standing.lease.as_ref().is_some_and(|it| it.id == lease) {
            standing.unanswered = standing.unanswered.saturating_sub(1);
        }
    }

    /// Sees who is first, and whether its own key is there.
    pub(super) async fn view(&self, lease: &Arc<Lease>, seats: u32) -> Result<View, Fault> {
        let own = self.keys.candidate(lease.id);
        let reads = [wire::key(&own), wire::oldest(&self.keys.line, i64::from(seats)), wire::key(&self.keys.desk)];
        let answer = self.client.txn(wire::reading(reads.into())).await?;
        let mut view = self.seen(&answer, 1)?;
        view.own = own_revision(answer.one(0), lease)?;
        let mut standing = self.standing();
        if standing.lease.as_ref().is_some_and(|it| it.id == lease.id) && !standing.retired {
            standing.revision = view.own;
        }
        drop(standing);
        self.note_spot(lease, &view, seats);
        Ok(view)
    }

    fn note_spot(&self, lease: &Lease, view: &View, seats: u32) {
        let granted = view.own.and_then(|own| self.granted(own));
        self.stand_at(match (view.own, granted) {
            (Some(revision), Some(token)) => Spot::InOffice { lease: lease.id, revision, token },
            (Some(revision), None) => Spot::Waiting { lease: lease.id, revision, seats },
            (None, _) => Spot::Away,
        });
    }

    fn seen(&self, answer: &Answer, from: usize) -> Result<View, Fault> {
        let first = answer.all(from).to_vec();
        for key in &first {
            self.keys.record_beside(&key.key)?;
        }
        let desk = Known::read(answer.one(from + 1))?;
        Ok(View { stamp: answer.stamp, store_revision: answer.revision, own: None, first, desk })
    }

    /// Removes its key, whatever its revision, and sees to it that none comes after.
    pub(super) async fn remove(&self, lease: i64) -> Result<(), Fault> {
        self.remove_if(lease, || true).await.map(drop)
    }

    /// The same for one that has been silent, unless it is back.
    pub(super) async fn remove_silent(&self, lease: i64) -> Result<Removed, Fault> {
        let still_silent = || {
            let standing = self.standing();
            standing.retired || standing.lease.as_ref().is_none_or(|it| it.id != lease)
        };
        self.remove_if(lease, still_silent).await
    }

    async fn remove_if(&self, lease: i64, wanted: impl Fn() -> bool) -> Result<Removed, Fault> {
        let (own, beside) = (self.keys.candidate(lease), self.keys.record(lease));
        for _ in 0..REPEATS_MAX {
            let answer = self.client.txn(wire::reading(vec![wire::key(&own), wire::key(&beside)])).await?;
            // Asked after the read: had the bidder come back before it, the key could be a new one.
            if !wanted() {
                return Ok(Removed::NoLongerWanted);
            }
            let loose = self.is_loose();
            let created = answer.one(0).map_or(0, |it| it.create_revision);
            let record = answer.one(1).map_or(0, |it| it.mod_revision);
            if created == 0 && !loose {
                self.note_removed(lease, record);
                return Ok(Removed::Done);
            }
            let mut request = TxnRequest {
                compare: vec![wire::created(&own, created), wire::modified(&beside, record)],
                success: vec![if loose { wire::put(&beside, LEFT, lease) } else { wire::delete(&beside) }],
                failure: Vec::new(),
            };
            if created != 0 {
                request.success.push(wire::delete(&own));
            }
            match self.client.txn(request).await {
                Ok(answer) if answer.succeeded => {
                    self.note_removed(lease, if loose { answer.revision } else { 0 });
                    return Ok(Removed::Done);
                }
                Ok(_) => {}
                // Then nothing hangs on it, and nothing ever will.
                Err(Fault::NoLease) => return Ok(Removed::Done),
                Err(other) => return Err(other),
            }
        }
        Err(Error::refused("this candidate's key changes too often to remove it: ask again").into())
    }

    /// Its key was removed; its record was last written at this revision.
    pub(super) fn note_removed(&self, lease: i64, record: i64) {
        let mut standing = self.standing();
        if standing.lease.as_ref().is_some_and(|it| it.id == lease) {
            let (unanswered, departures) = (standing.unanswered, standing.departures);
            *standing = Standing { lease: standing.lease.clone(), record, unanswered, departures, ..Standing::default() };
            drop(standing);
            self.stand_at(Spot::Away);
        }
    }

    /// Its key was removed at this revision, with [`Candidacy::parting`].
    pub(super) fn note_parted(&self, lease: i64, revision: i64) {
        let record = if self.is_loose() { revision } else { 0 };
        self.note_removed(lease, record);
    }

    /// Whether a write that makes its key may still be under way.
    pub(super) fn is_loose(&self) -> bool {
        self.standing().unanswered > 0
    }

    /// What to do with the record when the key goes: see the head of this file.
    pub(super) fn parting(&self, lease: i64) -> wire::proto::RequestOp {
        let beside = self.keys.record(lease);
        if self.is_loose() { wire::put(&beside, LEFT, lease) } else { wire::delete(&beside) }
    }
}

/// What Go would put there: what the leader publishes, or else who it is.
pub(super) fn published<'a>(bid: &'a Bid, value: &'a str) -> &'a str {
    if value.is_empty() { bid.identity.as_str() } else { value }
}

fn own_revision(found: Option<&KeyValue>, lease: &Lease) -> Result<Option<i64>, Error> {
    match found {
        Some(key) if key.lease != lease.id => Err(Error::refused(format!(
            "somebody has taken {:?} off its lease: remove that key",
            String::from_utf8_lossy(&key.key)
        ))),
        Some(key) => Ok(Some(key.create_revision)),
        None => Ok(None),
    }
}
