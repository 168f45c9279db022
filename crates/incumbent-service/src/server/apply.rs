//! A request as it stands in the log, and what it does to a store: the one place where a store is changed.

use std::sync::Arc;

use bytes::Bytes;
use incumbent_store::command::Request;
use incumbent_store::encoding::{Damaged, Entry};
use incumbent_store::event::Event;
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::Reply;
use incumbent_store::store::Store;
use incumbent_store::time::{Stamp, Time};

use crate::replica::ClusterTime;

/// A request for the log. Cluster time is the leader's to say, and stands beside it.
pub fn payload(request: Request, wall_ms: u64) -> Bytes {
    Entry::new(Stamp { at: Time::ZERO, wall_ms }, vec![request]).to_bytes().into()
}

/// Applies what [`payload`] has written: what came of it, and the revision after it. An error if this program cannot read it: then it must not go on, for it would not know what the others know.
pub fn apply(
    store: &mut Store,
    at: ClusterTime,
    payload: &[u8],
    events: &mut Vec<Arc<Event>>,
) -> Result<(Result<Reply, Refusal>, u64), Damaged> {
    let mut entry = Entry::from_bytes(payload)?;
    entry.at_ns = at.0;
    let Some(last) = store.apply_entry(entry, events).pop() else {
        return Ok((Err(Refusal::Malformed("an entry without a request".to_owned())), store.revision()));
    };
    let revision = last.revision;
    Ok((last.result(), revision))
}
