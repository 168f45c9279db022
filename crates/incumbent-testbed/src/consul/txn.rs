//! Consul's `/v1/txn`: several operations on keys, of which all are made or none.
//!
//! Left out: operations on nodes, services and checks.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::StatusCode;
use serde::{Deserialize, Serialize};

use super::Agent;
use super::api::{EntryOut, Failure, fail, json, read_headers};
use super::store::{Content, Refused, Store};
use crate::serving::{Ask, Reply, locked};

/// More are refused, as the real server does.
const OPERATIONS_MAX: usize = 64;

#[derive(Deserialize, Debug)]
struct Operation {
    #[serde(rename = "KV")]
    kv: Option<KeyOperation>,
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "PascalCase", default)]
#[derive(Default)]
struct KeyOperation {
    verb: String,
    key: String,
    value: Option<String>,
    flags: u64,
    index: u64,
    session: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Outcome {
    results: Option<Vec<Found>>,
    errors: Option<Vec<Wrong>>,
    #[serde(flatten)]
    read: Option<ReadOnly>,
}

/// What a transaction that only reads has besides.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ReadOnly {
    index: u64,
    last_contact: u64,
    known_leader: bool,
    consistency_level: &'static str,
    not_modified: bool,
    backend: u64,
}

#[derive(Serialize)]
struct Found {
    #[serde(rename = "KV")]
    kv: EntryOut,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Wrong {
    op_index: usize,
    what: String,
}

pub(super) fn is_write(ask: &Ask) -> bool {
    serde_json::from_slice::<Vec<Operation>>(&ask.body).is_ok_and(|them| them.iter().any(|it| it.kv.as_ref().is_some_and(writes)))
}

fn writes(operation: &KeyOperation) -> bool {
    !matches!(operation.verb.as_str(), "get" | "get-tree" | "check-index" | "check-session" | "check-not-exists")
}

pub(super) fn answer(agent: &Agent, ask: &Ask) -> Result<Reply, Failure> {
    let operations: Vec<Operation> = serde_json::from_slice(&ask.body)
        .map_err(|wrong| fail(StatusCode::BAD_REQUEST, format!("Failed to parse body: {wrong}")))?;
    if operations.len() > OPERATIONS_MAX {
        let text = format!("Transaction contains too many operations ({} > {OPERATIONS_MAX})", operations.len());
        return Err(fail(StatusCode::PAYLOAD_TOO_LARGE, text));
    }
    let operations: Vec<KeyOperation> = operations.into_iter().filter_map(|it| it.kv).collect();
    let run = |store: &mut Store, now| {
        let mut found = Vec::new();
        let mut wrong = Vec::new();
        for (op_index, operation) in operations.iter().enumerate() {
            if operation.verb == "lock" && store.is_in_lock_delay(now, &operation.key) {
                wrong.push(Wrong { op_index, what: format!("failed to lock key {:?} due to lock delay", operation.key) });
                continue;
            }
            match apply(store, operation) {
                Ok(entries) => found.extend(entries.into_iter().map(|kv| Found { kv })),
                Err(Refused(what)) => wrong.push(Wrong { op_index, what }),
            }
        }
        if wrong.is_empty() { (Some(found), None) } else { (None, Some(wrong)) }
    };
    let only_reads = !operations.iter().any(writes);
    let (results, errors) = if only_reads {
        run(&mut locked(&agent.store).clone(), std::time::Instant::now())
    } else {
        agent.write(|store, now| {
            store.begin_write();
            let mut tried = store.clone();
            let outcome = run(&mut tried, now);
            if outcome.1.is_none() {
                *store = tried;
            }
            outcome
        })
    };
    let status = if errors.is_none() { StatusCode::OK } else { StatusCode::CONFLICT };
    let read = only_reads.then_some(ReadOnly {
        index: 1,
        last_contact: 0,
        known_leader: true,
        consistency_level: "",
        not_modified: false,
        backend: 0,
    });
    let mut reply = json(ask, status, &Outcome { results, errors, read });
    if only_reads {
        read_headers(&mut reply);
    }
    Ok(reply)
}

fn apply(store: &mut Store, operation: &KeyOperation) -> Result<Vec<EntryOut>, Refused> {
    let key = operation.key.as_str();
    let value = operation.value.as_deref().map(|it| STANDARD.decode(it)).transpose();
    let value = value.map_err(|wrong| Refused(format!("illegal base64 value: {wrong}")))?.unwrap_or_default();
    let content = Content { value, flags: operation.flags };
    let ensure = |fits: bool, text: String| if fits { Ok(()) } else { Err(Refused(text)) };
    // What was written is told without its value, which the client knows.
    let written = |store: &Store| store.entry(key).0.map(|it| EntryOut::without_value(key, it)).into_iter().collect();
    match operation.verb.as_str() {
        "set" => store.set(key, content),
        "cas" => {
            ensure(store.set_at(key, content, operation.index), format!("failed to set key {key:?}, index is stale"))?;
        }
        "lock" => {
            let locked = store.lock(key, content, &operation.session)?;
            ensure(locked, format!("failed to lock key {key:?}, lock is already held"))?;
        }
        "unlock" => {
            let text = format!("failed to unlock key {key:?}, lock isn't held, or is held by another session");
            ensure(store.unlock(key, content, &operation.session)?, text)?;
        }
        "delete" => {
            store.delete(key);
            return Ok(Vec::new());
        }
        "delete-cas" => {
            ensure(store.delete_at(key, operation.index), format!("failed to delete key {key:?}, index is stale"))?;
            return Ok(Vec::new());
        }
        "delete-tree" => {
            store.delete_under(key);
            return Ok(Vec::new());
        }
        "get-tree" => return Ok(store.under(key).0.into_iter().map(|(key, entry)| EntryOut::new(key, entry)).collect()),
        "check-not-exists" => {
            ensure(store.entry(key).0.is_none(), format!("key {key:?} exists"))?;
            return Ok(Vec::new());
        }
        "get" | "check-session" | "check-index" => {
            let Some(entry) = store.entry(key).0 else { return Err(Refused(format!("key {key:?} doesn't exist"))) };
            if operation.verb == "check-session" {
                let (has, wanted) = (&entry.session, &operation.session);
                ensure(has == wanted, format!("failed session check for key {key:?}, current session {has:?} != {wanted:?}"))?;
            } else if operation.verb == "check-index" {
                let (has, wanted) = (entry.modify_index, operation.index);
                ensure(has == wanted, format!("failed index check for key {key:?}, current modify index {has} != {wanted}"))?;
            } else {
                return Ok(vec![EntryOut::new(key, entry)]);
            }
        }
        unknown => return Err(Refused(format!("unknown KV verb {unknown:?}"))),
    }
    Ok(written(store))
}
