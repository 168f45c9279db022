//! A lease, and the elections of this process that live on it: one keep-alive and a few reads keep them all.
//!
//! **What is counted.** A keep-alive that was acknowledged says that the lease lives for a ttl from its send on; see `etcd/mod.rs` for when that
//! is to be believed. It says nothing about a leadership, whose key may have been removed. So whoever renews is told of a keep-alive *and* of a
//! linearizable read of its key that came after it and bears the same stamp. Both are shared: those who ask within an eighth of the ttl get one answer,
//! and the keys of all who lead on the lease are read together, 64 elections in a transaction. Whoever takes office may do so on an older one, and renews
//! the sooner: those who wait keep the lease, so that a seat that falls to them is theirs after one read.
//!
//! **Who is silent.** The lease is kept by whoever is left on it, so a candidate that stopped asking would stay in line, or in office, for as
//! long as the process lives. Its key is removed when it has been silent for a ttl: by then its own deadline has passed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::try_join_all;
use incumbent_protocol::time::Instant;

use super::candidacy::{Candidacy, Removed};
use super::client::Client;
use super::fault::Fault;
use super::joint::Joint;
use super::keys::Keys;
use super::ledger::Ledger;
use super::wire::proto::TxnRequest;
use super::wire::{self, Answer, Stamp, TXN_OPERATIONS_MAX};
use crate::clock;
use crate::engine::Error;
use crate::engines::stretched::say_if_stretched;
use crate::identity::nonce;
use crate::name::Name;

/// Each is a compare of its key and one of its desk.
const ELECTIONS_IN_TXN_MAX: usize = TXN_OPERATIONS_MAX / 2;

/// A keep-alive or a read that has to be repeated because etcd's leader changed is repeated this often.
pub(super) const REPEATS_MAX: usize = 4;

/// A lease of this process.
pub(super) struct Lease {
    pub(super) id: i64,
    /// What was asked for.
    seconds: i64,
    client: Arc<Client>,
    state: Mutex<State>,
    beating: Joint<Result<Beat, Fault>>,
    checking: Joint<Result<Arc<Round>, Fault>>,
}

#[derive(Default)]
struct State {
    granted: bool,
    gone: bool,
    /// The last keep-alive that was acknowledged.
    beat: Option<Beat>,
    /// Who lives on it.
    tenants: BTreeMap<Name, Tenant>,
}

struct Tenant {
    candidacy: Arc<Candidacy>,
    /// When its bidder last asked for anything.
    heard: Instant,
    /// If it leads.
    office: Option<Office>,
}

/// What is known of a leadership.
#[derive(Clone)]
struct Office {
    /// At which its key was created.
    revision: i64,
    desk: Known,
    /// The key and the desk were found so after this keep-alive.
    checked: Option<Instant>,
    /// Counts what was heard of the desk, so that a read that is under way is not taken for news.
    hints: u64,
}

/// The desk as it was at a revision.
#[derive(Clone)]
pub(super) struct Known {
    /// 0 if there was none; -1 if nobody has looked.
    pub(super) revision: i64,
    pub(super) ledger: Arc<Ledger>,
}

impl Known {
    pub(super) fn nothing() -> Known {
        Known { revision: -1, ledger: Arc::default() }
    }

    pub(super) fn read(found: Option<&wire::proto::KeyValue>) -> Result<Known, Error> {
        match found {
            Some(desk) => Ok(Known { revision: desk.mod_revision, ledger: Arc::new(Ledger::read(&desk.value)?) }),
            None => Ok(Known { revision: 0, ledger: Arc::default() }),
        }
    }
}

/// A keep-alive that was acknowledged.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Beat {
    /// etcd counts from here on, or from later.
    pub(super) sent: Instant,
    /// What etcd keeps.
    pub(super) ttl: Duration,
    pub(super) stamp: Stamp,
}

/// What a read of all leaderships has found.
struct Round {
    beat: Beat,
    /// `None` for one whose key is gone.
    found: BTreeMap<Name, Option<Known>>,
}

/// What there is to say to one who renews.
pub(super) enum Checked {
    /// Its key was there after this keep-alive, and this lay on the desk.
    Stands(Beat, Known),
    /// Its key is gone.
    Gone,
}

/// How long an answer may take before it is looked for elsewhere, with a lease of this ttl. As long as a request of a [`Timing`] takes at most.
///
/// [`Timing`]: incumbent_protocol::timing::Timing
fn patience(ttl: Duration) -> Duration {
    ttl / 10
}

impl Lease {
    pub(super) fn new(client: Arc<Client>, seconds: i64) -> Arc<Lease> {
        // Chosen here, so that asking twice after a lost answer makes one lease. Positive, as those that etcd chooses.
        let id = i64::try_from(nonce() >> 1).unwrap_or(i64::MAX).max(1);
        client.hurry(patience(wire::seconds(seconds)));
        Arc::new(Lease { id, seconds, client, state: Mutex::default(), beating: Joint::default(), checking: Joint::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the candidacy in, unless it wants another ttl, or another one of the same election lives here.
    pub(super) fn admit(&self, candidacy: &Arc<Candidacy>, seconds: i64) -> bool {
        self.seconds == seconds && self.keep(candidacy)
    }

    /// The bidder asks for something, so it is alive. Says whether it can live on here.
    pub(super) fn keep(&self, candidacy: &Arc<Candidacy>) -> bool {
        let mut state = self.state();
        let now = clock::now();
        let tenant = state.tenants.entry(candidacy.election.clone());
        let tenant = tenant.or_insert_with(|| Tenant { candidacy: candidacy.clone(), heard: now, office: None });
        let own = Arc::ptr_eq(&tenant.candidacy, candidacy);
        if own {
            tenant.heard = now;
        }
        own && !state.gone
    }

    pub(super) fn is_gone(&self) -> bool {
        self.state().gone
    }

    /// etcd says that there is no such lease. Nobody new will live on it; those who lead find out for themselves.
    pub(super) fn note_gone(&self) {
        self.state().gone = true;
    }

    /// Its key is to be looked after from now on.
    pub(super) fn take_office(&self, candidacy: &Candidacy, revision: i64, desk: Known) {
        if let Some(tenant) = self.state().tenants.get_mut(&candidacy.election)
            && tenant.office.as_ref().is_none_or(|it| it.revision != revision)
        {
            tenant.office = Some(Office { revision, desk, checked: None, hints: 0 });
        }
    }

    /// What a leader here has itself put on the desk.
    pub(super) fn note_desk(&self, candidacy: &Candidacy, revision: i64, desk: Known) {
        let mut state = self.state();
        let office = state.tenants.get_mut(&candidacy.election).and_then(|it| it.office.as_mut());
        if let Some(office) = office.filter(|it| it.revision == revision && it.desk.revision < desk.revision) {
            office.desk = desk;
        }
    }

    /// The desk as a leader here last saw it.
    pub(super) fn desk_of(&self, election: &Name) -> Known {
        let state = self.state();
        let office = state.tenants.get(election).and_then(|it| it.office.as_ref());
        office.map_or_else(Known::nothing, |it| it.desk.clone())
    }

    /// There is nothing left of it here.
    pub(super) fn leave(&self, candidacy: &Candidacy) {
        let mut state = self.state();
        if state.tenants.get(&candidacy.election).is_some_and(|it| std::ptr::eq(Arc::as_ptr(&it.candidacy), candidacy)) {
            state.tenants.remove(&candidacy.election);
        }
    }

    /// Something has changed on its desk: the next answer must come from there.
    pub(super) fn look_again(&self, election: &Name) {
        if let Some(office) = self.state().tenants.get_mut(election).and_then(|it| it.office.as_mut()) {
            office.checked = None;
            office.hints += 1;
        }
    }

    /// A call that takes longer is not joined by others.
    fn patience(&self) -> Duration {
        patience(wire::seconds(self.seconds))
    }

    /// The last keep-alive, if it is young enough to share.
    fn fresh(&self) -> Option<Beat> {
        self.beat_within(wire::seconds(self.seconds) / 8)
    }

    /// The last keep-alive, if one may still take office on it: whoever waits asks every quarter of a ttl, or up to half as much later.
    pub(super) fn recent(&self) -> Option<Beat> {
        self.beat_within(wire::seconds(self.seconds) * 3 / 8)
    }

    fn beat_within(&self, age_max: Duration) -> Option<Beat> {
        self.state().beat.filter(|it| clock::now() - it.sent < age_max)
    }

    /// This keep-alive does not count: it was not answered under the leader of today.
    pub(super) fn discard(&self, beat: Beat) {
        let mut state = self.state();
        if state.beat == Some(beat) {
            state.beat = None;
        }
    }

    /// A keep-alive that was acknowledged just now. Makes the lease if there is none yet.
    pub(super) async fn beat(self: &Arc<Self>) -> Result<Beat, Fault> {
        if let Some(fresh) = self.fresh() {
            return Ok(fresh);
        }
        let lease = self.clone();
        self.beating.join(self.patience(), move || async move { lease.send_beat().await }.boxed()).await
    }

    async fn send_beat(self: &Arc<Self>) -> Result<Beat, Fault> {
        if !self.state().granted {
            let sent = clock::now();
            match self.client.grant(self.id, self.seconds).await {
                Ok(granted) if granted.error.is_empty() => {
                    let (stamp, ttl) = (Stamp::of(granted.header.as_ref()), wire::seconds(granted.ttl));
                    say_if_stretched("etcd", wire::seconds(self.seconds), ttl, "the servers' --election-timeout");
                    return Ok(self.note_beat(Beat { sent, ttl, stamp }));
                }
                Ok(refused) => return Err(Error::refused(format!("etcd grants no lease: {}", refused.error)).into()),
                // An answer was lost: the lease is ours.
                Err(Fault::LeaseExists) => self.state().granted = true,
                Err(other) => return Err(other),
            }
        }
        let sent = clock::now();
        let answer = self.client.keep_alive(self.id).await?;
        if answer.ttl <= 0 {
            return Err(Fault::NoLease);
        }
        Ok(self.note_beat(Beat { sent, ttl: wire::seconds(answer.ttl), stamp: Stamp::of(answer.header.as_ref()) }))
    }

    /// Takes in a keep-alive that was acknowledged, unless a later one was before it: one that took too long is not joined, and overtaken. The later of both.
    fn note_beat(self: &Arc<Self>, beat: Beat) -> Beat {
        let mut state = self.state();
        state.granted = true;
        let beat = state.beat.filter(|it| it.sent > beat.sent).unwrap_or(beat);
        state.beat = Some(beat);
        // Marked while nobody can be heard: one that is heard after this finds the mark.
        let silent = state.tenants.values().filter(|it| it.heard + beat.ttl < beat.sent);
        let silent: Vec<_> = silent.map(|it| it.candidacy.clone()).inspect(|it| it.retire(self.id)).collect();
        drop(state);
        for candidacy in silent {
            tracing::debug!(election = %candidacy.election, identity = candidacy.identity.as_str(), "silent for a ttl: out of the line");
            let lease = self.clone();
            tokio::spawn(async move { lease.expel(&candidacy).await });
        }
        beat
    }

    /// Removes what a silent candidate has left here. If that fails, the next keep-alive tries again.
    async fn expel(&self, candidacy: &Arc<Candidacy>) {
        if let Ok(Ok(Removed::Done)) = tokio::time::timeout(wire::seconds(self.seconds), candidacy.remove_silent(self.id)).await {
            self.leave(candidacy);
        }
    }

    /// Whether the leadership of this election stands, after a keep-alive that may be counted.
    pub(super) async fn check(self: &Arc<Self>, election: &Name, namespace: &super::keys::Namespace) -> Result<Checked, Fault> {
        for _ in 0..REPEATS_MAX {
            if let Some((beat, known)) = self.remembered(election) {
                return Ok(Checked::Stands(beat, known));
            }
            let (lease, namespace) = (self.clone(), namespace.clone());
            let round = self
                .checking
                .join(self.patience(), move || async move { lease.look_after_all(|name| namespace.keys(name)).await }.boxed());
            let round = round.await?;
            match round.found.get(election) {
                Some(Some(known)) => return Ok(Checked::Stands(round.beat, known.clone())),
                Some(None) => return Ok(Checked::Gone),
                // It began before we led, or etcd's leader changed under it.
                None => {}
            }
        }
        Err(Error::unknown("etcd's leader changes too often to renew anything").into())
    }

    fn remembered(&self, election: &Name) -> Option<(Beat, Known)> {
        let fresh = self.fresh()?;
        let state = self.state();
        let office = state.tenants.get(election)?.office.as_ref()?;
        (office.checked == Some(fresh.sent)).then(|| (fresh, office.desk.clone()))
    }

    /// Reads the keys and desks of all who lead here and have not been looked at since the last keep-alive.
    async fn look_after_all(self: Arc<Self>, keys: impl Fn(&Name) -> Keys) -> Result<Arc<Round>, Fault> {
        let beat = self.beat().await?;
        let wanted: Vec<(Name, Office)> = {
            let state = self.state();
            let offices = state.tenants.iter().filter_map(|(name, it)| Some((name.clone(), it.office.clone()?)));
            offices.filter(|(_, it)| it.checked != Some(beat.sent)).collect()
        };
        let reads = wanted.chunks(ELECTIONS_IN_TXN_MAX).map(|some| {
            let client = &self.client;
            let request = self.comparison(some, &keys);
            async move { client.txn(request).await }
        });
        let answers = try_join_all(reads).await?;
        let mut found = BTreeMap::new();
        if answers.iter().any(|it| it.stamp != beat.stamp) {
            // A keep-alive that a deposed leader may have answered from its memory; see `etcd/mod.rs`.
            self.discard(beat);
            return Ok(Arc::new(Round { beat, found }));
        }
        for (some, answer) in wanted.chunks(ELECTIONS_IN_TXN_MAX).zip(&answers) {
            for (index, (name, office)) in some.iter().enumerate() {
                found.insert(name.clone(), self.findings(answer, index, office)?);
            }
        }
        self.remember(beat, &wanted, &found);
        Ok(Arc::new(Round { beat, found }))
    }

    /// Are all keys and desks as they were? Only if not are they sent.
    fn comparison(&self, offices: &[(Name, Office)], keys: &impl Fn(&Name) -> Keys) -> TxnRequest {
        let mut request = TxnRequest::default();
        for (name, office) in offices {
            let keys = keys(name);
            let candidate = keys.candidate(self.id);
            request.compare.push(wire::created(&candidate, office.revision));
            request.compare.push(wire::modified(&keys.desk, office.desk.revision));
            // Reads in this branch make etcd ask its quorum, whichever branch is taken.
            request.failure.push(wire::key(&candidate));
            request.failure.push(wire::key(&keys.desk));
        }
        request
    }

    fn findings(&self, answer: &Answer, index: usize, office: &Office) -> Result<Option<Known>, Fault> {
        if answer.succeeded {
            return Ok(Some(office.desk.clone()));
        }
        let stands = answer.one(2 * index).is_some_and(|it| it.create_revision == office.revision && it.lease == self.id);
        let desk = answer.one(2 * index + 1);
        Ok(match stands {
            true if desk.map_or(0, |it| it.mod_revision) == office.desk.revision => Some(office.desk.clone()),
            true => Some(Known::read(desk)?),
            false => None,
        })
    }

    fn remember(&self, beat: Beat, wanted: &[(Name, Office)], found: &BTreeMap<Name, Option<Known>>) {
        let mut state = self.state();
        for (name, asked) in wanted {
            let Some(office) = state.tenants.get_mut(name).and_then(|it| it.office.as_mut()) else { continue };
            if let Some(Some(known)) = found.get(name)
                && (office.revision, office.hints) == (asked.revision, asked.hints)
            {
                office.desk = known.clone();
                office.checked = Some(beat.sent);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Place;

    #[tokio::test]
    async fn a_keep_alive_that_was_overtaken_does_not_replace_the_later_one() {
        let place = Place::parse("etcd://127.0.0.1:1").expect("a good URL");
        let lease = Lease::new(Arc::new(Client::new(&place).expect("nothing is asked yet")), 10);
        let beat = |sent| Beat { sent, ttl: Duration::from_secs(10), stamp: Stamp::of(None) };
        let later = clock::now();
        let (slow, quick) = (beat(later.before(Duration::from_secs(1))), beat(later));
        assert_eq!(lease.note_beat(quick), quick);
        assert_eq!(lease.note_beat(slow), quick);
        assert_eq!(lease.recent(), Some(quick));
    }
}
