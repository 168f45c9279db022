//! The whole line of an election, for those who look at it, ask something of its leader, or hand their seat to somebody in it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use incumbent_protocol::protocol::Token;

use super::client::Client;
use super::fault::Fault;
use super::keys::Keys;
use super::lease::{Known, REPEATS_MAX};
use super::ledger::{Ledger, Record};
use super::wire;
use super::wire::proto::{KeyValue, TxnRequest};
use crate::engine::{Board, Candidate, Error, Leader};
use crate::identity::Identity;

/// Nobody reads a longer list, and it fits in an answer.
const SHOWN_MAX: i64 = 4096;

/// So many candidates are asked to let another pass in one transaction. The rest of its compares is for those who lead.
const PASSED_IN_TXN_MAX: usize = 64;

/// An election as a whole.
pub(super) struct Line {
    /// Oldest first.
    pub(super) standing: Vec<Stander>,
    pub(super) desk: Known,
}

/// One in line.
pub(super) struct Stander {
    pub(super) key: KeyValue,
    /// If it is one of ours.
    pub(super) record: Option<Record>,
}

impl Line {
    pub(super) async fn read(client: &Arc<Client>, keys: &Keys) -> Result<Line, Fault> {
        let reads = [wire::oldest(&keys.line, SHOWN_MAX), wire::oldest(&keys.records, SHOWN_MAX), wire::key(&keys.desk)];
        let answer = client.txn(wire::reading(reads.into())).await?;
        let records: BTreeMap<&[u8], &KeyValue> = answer.all(1).iter().map(|it| (it.key.as_slice(), it)).collect();
        let mut standing = Vec::new();
        for key in answer.all(0) {
            let beside = keys.record_beside(&key.key)?;
            let record = records.get(beside.as_slice()).and_then(|it| Record::read(&it.value));
            standing.push(Stander { key: key.clone(), record });
        }
        Ok(Line { standing, desk: Known::read(answer.one(2))? })
    }

    /// How many may lead: what ours say, and one otherwise.
    fn seats(&self) -> usize {
        let said = self.standing.iter().filter_map(|it| it.record.as_ref()).map(|it| it.seats).max();
        said.map_or(1, |it| it.max(1) as usize)
    }

    /// Those who lead.
    pub(super) fn leading(&self) -> &[Stander] {
        &self.standing[..self.seats().min(self.standing.len())]
    }

    /// Those who wait.
    fn waiting(&self) -> &[Stander] {
        &self.standing[self.leading().len()..]
    }

    pub(super) fn token_of(&self, stander: &Stander) -> Option<Token> {
        self.desk.ledger.token_of(stander.key.create_revision)
    }

    /// What people see of it.
    pub(super) fn board(&self) -> Result<Board, Error> {
        let mut ledger = Ledger::clone(&self.desk.ledger);
        // A successor leads before it writes that on the desk: until then the line alone tells that the one before it has gone.
        ledger.clear_away(|revision| self.standing.iter().any(|it| it.key.create_revision == revision));
        let leaders = self.leading().iter().map(|it| leader(&it.key, it.record.as_ref(), &ledger));
        let candidates = self.waiting().iter().map(|it| Candidate {
            identity: identity(&it.key, it.record.as_ref()),
            priority: it.record.as_ref().map_or(0, |it| it.priority),
        });
        Ok(Board {
            leaders: leaders.collect::<Result<_, _>>()?,
            candidates: candidates.collect(),
            past: ledger.past(),
            notes: ledger.notes(),
        })
    }
}

/// One who leads, as people see it.
pub(super) fn leader(key: &KeyValue, record: Option<&Record>, ledger: &Ledger) -> Result<Leader, Error> {
    let seat = ledger.seat_of(key.create_revision);
    let token = ledger
        .token_of(key.create_revision)
        .ok_or_else(|| Error::misconfigured(format!("revision {} of etcd is too great for a token", key.create_revision)))?;
    let Some(seat) = seat else {
        return Ok(Leader {
            identity: identity(key, record),
            token,
            value: value_of(key, record),
            priority: record.map_or(0, |it| it.priority),
            since: None,
            heeds_wishes: record.is_some(),
        });
    };
    let identity = seat.holder.identity.clone();
    let value = without(&identity, &key.value);
    let since = Some(SystemTime::UNIX_EPOCH + Duration::from_millis(seat.holder.since_ms));
    Ok(Leader { identity, token, value, priority: seat.holder.priority, since, heeds_wishes: true })
}

/// What a candidate publishes.
pub(super) fn value_of(key: &KeyValue, record: Option<&Record>) -> String {
    match record {
        Some(record) => without(&record.identity, &key.value),
        None => String::from_utf8_lossy(&key.value).into_owned(),
    }
}

/// Ours put their identity there if they have nothing to publish.
fn without(identity: &Identity, value: &[u8]) -> String {
    if value == identity.as_str().as_bytes() { String::new() } else { String::from_utf8_lossy(value).into_owned() }
}

/// A stranger has no name but its key and what it says.
fn identity(key: &KeyValue, record: Option<&Record>) -> Identity {
    match record {
        Some(record) => record.identity.clone(),
        None => Identity::stored(format!("{} {}", String::from_utf8_lossy(&key.key), String::from_utf8_lossy(&key.value))),
    }
}

/// Has candidates of ours that stand before `to` stand in line anew, so that it is the next once the holder of `own` has gone: their keys are removed,
/// which they notice. Strangers stay where they are, and if nobody of that name waits, nothing is done.
pub(super) async fn clear_the_way(client: &Arc<Client>, keys: &Keys, own: &(Vec<u8>, i64), to: &str) -> Result<(), Fault> {
    for _ in 0..REPEATS_MAX {
        let line = Line::read(client, keys).await?;
        let named = |it: &Stander| it.record.as_ref().is_some_and(|it| it.identity.as_str() == to || it.identity.name() == to);
        let Some(at) = line.waiting().iter().position(named) else { return Ok(()) };
        let before: Vec<&Stander> = line.waiting()[..at].iter().filter(|it| it.record.is_some()).collect();
        if before.is_empty() {
            return Ok(());
        }
        // None of those who are passed may come to lead in the meantime: all who lead now must still be there.
        let guards = line.leading().iter().map(|it| wire::created(&it.key.key, it.key.create_revision));
        let guards: Vec<_> = guards.chain([wire::created(&own.0, own.1)]).collect();
        let mut passed = true;
        for some in before.chunks(PASSED_IN_TXN_MAX) {
            let keys = some.iter().map(|it| (&it.key.key, it.key.create_revision));
            let request = TxnRequest {
                compare: guards.iter().cloned().chain(keys.clone().map(|(key, revision)| wire::created(key, revision))).collect(),
                success: keys.map(|(key, _)| wire::delete(key)).collect(),
                failure: Vec::new(),
            };
            passed &= client.txn(request).await?.succeeded;
        }
        if passed {
            return Ok(());
        }
    }
    Ok(())
}
