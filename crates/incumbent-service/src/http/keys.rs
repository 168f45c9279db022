//! Keys: one at a time by their path, many by a transaction.

use bytes::Bytes;
use hyper::StatusCode;
use incumbent_store::command::{Command, Compact};
use incumbent_store::keys::item::Span;
use incumbent_store::keys::transaction::{Act, ActAnswer, Against, Comparison, Delete, Guard, Put, Transaction};
use incumbent_store::query::{Answer, Items, Query, Range};
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::Reply;
use serde_json::Value;

use super::address::Parameters;
use super::answers::Told;
use super::bodies::{Body, under};
use super::elections::done;
use super::failure::Failure;
use super::limits::LISTED;
use super::petition::Petition;
use super::views::{self, Values};

async fn range(petition: &Petition, range: Range) -> Result<(Items, u64), Failure> {
    match petition.ask(Query::Range(range)).await? {
        (Answer::Items(items), revision) => Ok((items, revision)),
        (_, _) => Err(Failure::confused()),
    }
}

pub(super) async fn list(petition: &Petition, asked: &Parameters) -> Result<Value, Failure> {
    let bytes = |name| Bytes::copy_from_slice(asked.bytes(name).unwrap_or_default());
    let (keys_only, counts) = (asked.flag("keys-only"), asked.flag("count"));
    let wanted = Range {
        span: Some(under(bytes("prefix"))),
        limit: asked.whole("limit").unwrap_or(LISTED),
        revision: asked.whole("revision").unwrap_or_default(),
        keys_only,
        counts,
        after: bytes("after"),
        ..Range::default()
    };
    let (items, revision) = range(petition, wanted).await?;
    let values = if keys_only { Values::LeftOut } else { Values::Told };
    Ok(views::at(revision, views::items(&items, values, counts)))
}

pub(super) async fn read(petition: &Petition, key: Vec<u8>, asked: &Parameters) -> Result<Told, Failure> {
    let revision = asked.whole("revision").unwrap_or_default();
    let wanted = Range { span: Some(Span::key(key)), revision, ..Range::default() };
    let (items, revision) = range(petition, wanted).await?;
    let Some(item) = items.items.into_iter().next() else { return Err(Refusal::NoKey.into()) };
    if asked.flag("raw") {
        return Ok(Told::Value { revision, modified: item.modified, value: item.value });
    }
    let found = serde_json::json!({ "item": views::item(&item, Values::Told) });
    Ok(Told::Json(StatusCode::OK, views::at(revision, found)))
}

pub(super) async fn write(petition: &Petition, key: Vec<u8>, value: Bytes, asked: &Parameters) -> Result<Value, Failure> {
    let key = Bytes::from(key);
    let put = Put {
        key: key.clone(),
        value,
        session: asked.whole("session").unwrap_or_default(),
        outlives_session: asked.flag("outlives-session"),
        wants_previous: asked.flag("previous"),
        ..Put::default()
    };
    let wants_previous = put.wants_previous;
    let (written, revision) = match guards(&key, asked)? {
        guards if guards.is_empty() => match petition.submit(Command::Put(put)).await? {
            (Reply::Written(written), revision) => (written, revision),
            (_, _) => return Err(Failure::confused()),
        },
        guards => match guarded(petition, guards, key, Act::Put(put)).await? {
            (ActAnswer::Written(written), revision) => (written, revision),
            (_, _) => return Err(Failure::confused()),
        },
    };
    Ok(views::at(revision, views::written(&written, wants_previous)))
}

pub(super) async fn delete(petition: &Petition, key: Vec<u8>, asked: &Parameters) -> Result<Value, Failure> {
    let key = Bytes::from(key);
    let wants_previous = asked.flag("previous");
    let delete = Delete { span: Some(Span::key(key.clone())), wants_previous };
    let (deleted, revision) = match guards(&key, asked)? {
        guards if guards.is_empty() => match petition.submit(Command::Delete(delete)).await? {
            (Reply::Deleted(deleted), revision) => (deleted, revision),
            (_, _) => return Err(Failure::confused()),
        },
        guards => match guarded(petition, guards, key, Act::Delete(delete)).await? {
            (ActAnswer::Deleted(deleted), revision) => (deleted, revision),
            (_, _) => return Err(Failure::confused()),
        },
    };
    Ok(views::at(revision, views::deleted(&deleted, wants_previous)))
}

/// What must hold for a key to be written.
fn guards(key: &Bytes, asked: &Parameters) -> Result<Vec<Guard>, Failure> {
    let mut guards = Vec::new();
    if asked.flag("if-absent") {
        guards.push(Guard::absent(key.clone()));
    }
    if let Some(version) = asked.whole("if-version") {
        guards.push(Guard::key(key.clone(), Comparison::Equal, Against::Version(version)));
    }
    match (asked.text("holding"), asked.whole("token")) {
        (Some(election), Some(token)) => guards.push(Guard::holds(election, token)),
        (None, None) => {}
        (Some(_), None) => return Err(Failure::malformed("holding needs a token", "give token= beside it")),
        (None, Some(_)) => return Err(Failure::malformed("token needs an election", "give holding= beside it")),
    }
    Ok(guards)
}

/// Does it if all guards hold; else the failure says what is there.
async fn guarded(petition: &Petition, guards: Vec<Guard>, key: Bytes, act: Act) -> Result<(ActAnswer, u64), Failure> {
    let read = Range { span: Some(Span::key(key)), ..Range::default() };
    // Whoever may write and not read is not told what is there.
    let reads = petition.visitor.may_ask(&Query::Range(read.clone())).is_ok();
    let otherwise = if reads { vec![Act::Read(read).into()] } else { Vec::new() };
    let transaction = Transaction { guards, then: vec![act.into()], otherwise };
    let (Reply::Transacted(transacted), revision) = petition.submit(Command::Transact(transaction)).await? else {
        return Err(Failure::confused());
    };
    let answer = transacted.results.into_iter().next().and_then(|it| it.answer);
    if transacted.held {
        return Ok((answer.ok_or_else(Failure::confused)?, revision));
    }
    let found = match answer {
        Some(ActAnswer::Read(items)) => Some(items.items.first().map_or(Value::Null, |it| views::item(it, Values::Told))),
        Some(ActAnswer::Written(_) | ActAnswer::Deleted(_) | ActAnswer::Transacted(_)) | None => None,
    };
    let failure = Failure::new(
        StatusCode::CONFLICT,
        "guard_failed",
        "a guard does not hold: nothing was changed",
        "look at found, and at who leads if the write was fenced; then decide anew",
    );
    Err(Failure { found: found.map(Box::new), ..failure })
}

pub(super) async fn transact(petition: &Petition, transaction: Transaction) -> Result<Value, Failure> {
    match petition.submit(Command::Transact(transaction)).await? {
        (Reply::Transacted(transacted), revision) => Ok(views::at(revision, views::transacted(&transacted))),
        (_, _) => Err(Failure::confused()),
    }
}

pub(super) async fn compact(petition: &Petition, body: Body<'_>) -> Result<Value, Failure> {
    done(petition, Command::Compact(Compact { revision: body.whole("revision") })).await
}
