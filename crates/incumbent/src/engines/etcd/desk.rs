//! Writing on the desk of an election: read, change, write if nobody else has, or else once more.

use std::sync::Arc;

use super::client::Client;
use super::fault::Fault;
use super::keys::Keys;
use super::lease::Known;
use super::ledger::Ledger;
use super::wire;
use super::wire::proto::{RequestOp, TxnRequest};
use crate::engine::Error;

/// Writers of one desk are few: its holder, its successor, an operator.
const TRIES_MAX: usize = 8;

/// What must be so when the desk is written: keys and the revisions at which they were created.
pub(super) type Guards = Vec<(Vec<u8>, i64)>;

/// What became of it.
pub(super) enum Revised {
    /// It is on the desk, and what was to be done with it is done.
    Done(Known),
    /// A guard does not hold; nothing was done.
    Void,
}

/// Changes the desk and does `more` in the same step, if the guards hold. `known` is where it begins, and may be out of date.
pub(super) async fn revise(
    client: &Arc<Client>,
    keys: &Keys,
    guards: &Guards,
    known: Known,
    more: &[RequestOp],
    mut change: impl FnMut(&mut Ledger) -> Result<(), Error>,
) -> Result<Revised, Fault> {
    let mut known = known;
    let mut is_read = false;
    for _ in 0..TRIES_MAX {
        if known.revision < 0 {
            let answer = client.txn(wire::reading(vec![wire::key(&keys.desk)])).await?;
            known = Known::read(answer.one(0))?;
            is_read = true;
        }
        let mut ledger = Ledger::clone(&known.ledger);
        change(&mut ledger)?;
        if ledger == *known.ledger && more.is_empty() {
            if is_read {
                return Ok(Revised::Done(known));
            }
            // So it was once; others may have changed it back.
            known = Known::nothing();
            continue;
        }
        let mut request = TxnRequest {
            compare: vec![wire::modified(&keys.desk, known.revision)],
            success: vec![wire::put(&keys.desk, ledger.write(), 0)],
            failure: vec![wire::key(&keys.desk)],
        };
        request.success.extend_from_slice(more);
        for (key, revision) in guards {
            request.compare.push(wire::created(key, *revision));
            request.failure.push(wire::key(key));
        }
        let answer = client.txn(request).await?;
        if answer.succeeded {
            return Ok(Revised::Done(Known { revision: answer.revision, ledger: Arc::new(ledger) }));
        }
        let holds = |(index, (_, revision)): (usize, &(Vec<u8>, i64))| {
            answer.one(index + 1).map_or(0, |it| it.create_revision) == *revision
        };
        if !guards.iter().enumerate().all(holds) {
            return Ok(Revised::Void);
        }
        known = Known::read(answer.one(0))?;
        is_read = true;
    }
    Err(Error::refused("too many write on the desk of this election at once: ask again").into())
}
