//! What the store tells, as JSON in the shapes of [`super::schemas`].

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use incumbent_store::command::{Demand, Wish};
use incumbent_store::election::{Board, Candidate, Completion, Holder, Note, Past, Reservation};
use incumbent_store::event::{Change, Event, InLineChange};
use incumbent_store::keys::item::Item;
use incumbent_store::keys::transaction::{ActAnswer, Deleted, Transacted};
use incumbent_store::query::{Items, SessionView, SessionViews, Summaries, Summary};
use incumbent_store::reply::{InLine, Renewed, Written};
use serde_json::{Value, json};

use super::shapes::EXACT_MAX;

/// A number of 64 bits that somebody hands back: as a text, for many readers of JSON round what is above 2^53.
pub(super) fn id(number: u64) -> Value {
    Value::String(number.to_string())
}

/// A number that others only look at.
fn whole(number: u64) -> Value {
    number.min(EXACT_MAX).into()
}

/// Bytes, in the field of this name if they are text, else in base64 beside it.
fn put_bytes(object: &mut Value, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object[name] = text.into(),
        Err(_) => object[format!("{name}_base64")] = BASE64.encode(bytes).into(),
    }
}

/// With the store's revision.
pub(super) fn at(revision: u64, mut object: Value) -> Value {
    object["revision"] = whole(revision);
    object
}

fn list<T>(items: &[T], view: impl Fn(&T) -> Value) -> Value {
    Value::Array(items.iter().map(view).collect())
}

fn maybe<T>(item: Option<&T>, view: impl Fn(&T) -> Value) -> Value {
    item.map_or(Value::Null, view)
}

fn wish(it: &Wish) -> Value {
    let demand = match Demand::try_from(it.demand) {
        Ok(Demand::Resign) => "resign",
        Ok(Demand::Evict) => "evict",
        Ok(Demand::HandOver) => "hand_over",
        // Of a later version.
        Err(_) => "unknown",
    };
    json!({ "token": id(it.token), "demand": demand, "to": it.to, "by": it.by })
}

fn holder(it: &Holder) -> Value {
    let mut told = json!({
        "identity": it.identity,
        "name": it.name,
        "token": id(it.token),
        "priority": it.priority,
        "session": id(it.session),
        "since_wall_ms": whole(it.since_wall_ms),
        "tenure_ms_min": whole(it.tenure_ms_min),
        "wish": maybe(it.wish.as_deref(), wish),
    });
    put_bytes(&mut told, "value", &it.value);
    told
}

fn candidate(it: &Candidate) -> Value {
    let mut told = json!({
        "identity": it.identity,
        "name": it.name,
        "priority": it.priority,
        "session": id(it.session),
        "arrival": whole(it.arrival),
        "tenure_ms_min": whole(it.tenure_ms_min),
    });
    put_bytes(&mut told, "value", &it.value);
    told
}

fn past(it: &Past) -> Value {
    json!({
        "identity": it.identity,
        "name": it.name,
        "token": id(it.token),
        "since_wall_ms": whole(it.since_wall_ms),
        "until_wall_ms": whole(it.until_wall_ms),
        "lasted_ms": whole(it.lasted_ms),
        "reason": it.reason,
    })
}

fn note(it: &Note) -> Value {
    json!({ "token": id(it.token), "text": it.text })
}

fn completion(it: &Completion) -> Value {
    json!({ "job": it.job, "token": id(it.token), "wall_ms": whole(it.wall_ms), "outcome": it.outcome })
}

fn reservation(it: &Reservation) -> Value {
    json!({ "to": it.to, "until_ms": whole(it.until_ns / 1_000_000) })
}

pub(super) fn board(it: &Board) -> Value {
    json!({
        "election": it.election,
        "seats": it.seats,
        "leaders": list(&it.leaders, holder),
        "candidates": list(&it.candidates, candidate),
        "waiting": whole(it.waiting),
        "notes": list(&it.notes, note),
        "completions": list(&it.completions, completion),
        "reservations": list(&it.reservations, reservation),
        "incarnation": it.incarnation,
    })
}

pub(super) fn history(it: &Board) -> Value {
    json!({ "election": it.election, "past": list(&it.past, past) })
}

fn summary(it: &Summary) -> Value {
    json!({
        "election": it.election,
        "leader": maybe(it.leader.as_ref(), holder),
        "leading": whole(it.leading),
        "waiting": whole(it.waiting),
    })
}

pub(super) fn summaries(it: &Summaries) -> Value {
    json!({ "elections": list(&it.elections, summary), "more": it.more })
}

pub(super) fn in_line(it: &InLine) -> Value {
    json!({
        "won": false,
        "place": it.place,
        "leader": maybe(it.leader.as_ref(), holder),
        "free_in_ms": whole(it.free_in_ms),
    })
}

pub(super) fn renewed(it: &Renewed) -> Value {
    json!({ "in_office": it.in_office, "ttl_ms": whole(it.ttl_ms), "wish": maybe(it.wish.as_ref(), wish) })
}

/// A session in a list.
fn session_in_short(it: &SessionView) -> Value {
    json!({
        "session": id(it.session),
        "ttl_ms": whole(it.ttl_ms),
        "left_ms": whole(it.left_ms),
        "owner": it.owner,
        "ends_with_connection": it.ends_with_connection,
        "lock_delay_ms": whole(it.lock_delay_ms),
        "ending": it.ending,
        "candidacies": whole(it.candidacies),
    })
}

pub(super) fn session(it: &SessionView) -> Value {
    let mut told = session_in_short(it);
    told["keys"] = list(&it.keys, |key| {
        let mut told = json!({});
        put_bytes(&mut told, "key", key);
        told
    });
    told
}

pub(super) fn sessions(it: &SessionViews) -> Value {
    json!({ "sessions": list(&it.sessions, session_in_short), "more": it.more })
}

/// Whether values are told.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Values {
    Told,
    LeftOut,
}

pub(super) fn item(it: &Item, values: Values) -> Value {
    let mut told = json!({
        "created": whole(it.created),
        "modified": whole(it.modified),
        "version": whole(it.version),
        "session": if it.session == 0 { Value::Null } else { id(it.session) },
        "modified_wall_ms": whole(it.modified_wall_ms),
    });
    put_bytes(&mut told, "key", &it.key);
    if values == Values::Told {
        put_bytes(&mut told, "value", &it.value);
    }
    told
}

fn whole_item(it: &Item) -> Value {
    item(it, Values::Told)
}

/// What came of a read. The store does not repeat whether values or a count were asked for.
pub(super) fn items(it: &Items, values: Values, counted: bool) -> Value {
    let mut told = json!({ "items": list(&it.items, |it| item(it, values)), "more": it.more });
    if counted {
        told["count"] = whole(it.count);
    }
    told
}

pub(super) fn written(it: &Written, wants_previous: bool) -> Value {
    let mut told = json!({ "item": maybe(it.item.as_ref(), |it| item(it, Values::LeftOut)) });
    if wants_previous {
        told["previous"] = maybe(it.previous.as_deref(), whole_item);
    }
    told
}

pub(super) fn deleted(it: &Deleted, wants_previous: bool) -> Value {
    let mut told = json!({ "count": whole(it.count) });
    if wants_previous {
        told["previous"] = list(&it.previous, whole_item);
    }
    told
}

pub(super) fn transacted(it: &Transacted) -> Value {
    let result = |answer: &Option<ActAnswer>| match answer {
        Some(ActAnswer::Written(it)) => json!({ "written": written(it, it.previous.is_some()) }),
        Some(ActAnswer::Deleted(it)) => json!({ "deleted": deleted(it, !it.previous.is_empty()) }),
        Some(ActAnswer::Read(it)) => json!({ "read": items(it, Values::Told, it.count > 0) }),
        Some(ActAnswer::Transacted(it)) => json!({ "transacted": transacted(it) }),
        // Of a later version.
        None => json!({}),
    };
    json!({ "held": it.held, "results": list(&it.results, |it| result(&it.answer)) })
}

/// An event, and the name it has in a stream.
pub(super) fn event(it: &Event) -> (&'static str, Value) {
    let in_line = |it: &InLineChange| json!({ "election": it.election, "identity": it.identity, "priority": it.priority, "session": id(it.session) });
    let (name, mut told) = match &it.change {
        Some(Change::Put(put)) => {
            ("put", json!({ "item": whole_item(&put.item), "previous": maybe(put.previous.as_ref(), whole_item) }))
        }
        Some(Change::Deleted(deleted)) => ("deleted", json!({ "previous": whole_item(&deleted.previous) })),
        Some(Change::SessionEnded(it)) => ("session_ended", json!({ "session": id(it.session), "reason": it.reason })),
        Some(Change::Elected(it)) => ("elected", json!({ "election": it.election, "holder": holder(&it.holder) })),
        Some(Change::Ended(it)) => ("ended", json!({ "election": it.election, "past": past(&it.past) })),
        Some(Change::Proclaimed(it)) => {
            let mut told = json!({ "election": it.election, "token": id(it.token) });
            put_bytes(&mut told, "value", &it.value);
            ("proclaimed", told)
        }
        Some(Change::Wished(it)) => {
            ("wished", json!({ "election": it.election, "identity": it.identity, "wish": wish(&it.wish) }))
        }
        Some(Change::Joined(it)) => ("joined", in_line(it)),
        Some(Change::Left(it)) => ("left", in_line(it)),
        Some(Change::First(it)) => ("first", in_line(it)),
        Some(Change::Noted(it)) => ("noted", json!({ "election": it.election, "note": note(&it.note) })),
        Some(Change::Completed(it)) => {
            ("completed", json!({ "election": it.election, "completion": completion(&it.completion) }))
        }
        // Of a later version.
        None => ("unknown", json!({})),
    };
    told["type"] = name.into();
    (name, at(it.revision, told))
}
