//! The node itself: how it is, whether it can serve.

use incumbent_peer::switchboard::{LineState, LineView};
use incumbent_protocol::protocol::NodeId;
use incumbent_store::query::{Answer, AskStatus, Query, Status};
use serde_json::{Value, json};

use super::Desk;
use super::failure::Failure;
use super::petition::{self, Petition};
use crate::server::{Consistency, NodeStatus};

/// The node, and what it has stored: both at once, and without the others.
pub(super) async fn look(petition: &Petition) -> Result<(NodeStatus, Status), Failure> {
    let (Answer::Status(stored), _) = petition.ask_with(Query::Status(AskStatus {}), Consistency::Local).await? else {
        return Err(Failure::confused());
    };
    Ok((petition.status().await?, stored))
}

pub(super) async fn status(petition: &Petition) -> Result<Value, Failure> {
    let (node, stored) = look(petition).await?;
    let numbers = |nodes: &std::collections::BTreeSet<NodeId>| nodes.iter().map(|it| it.0).collect::<Vec<u32>>();
    let told = json!({
        "node": node.node.0,
        "leader": node.role.leader.map(|it| it.0),
        "leads": node.role.leads,
        "term": node.role.term.0,
        "why": node.why,
        "voters": numbers(node.roll.voters()),
        "learners": numbers(node.roll.learners()),
        "changing": node.roll.joint(),
        "commit": node.commit,
        "applied": node.applied,
        "first": node.first,
        "last": node.last,
        "snapshot": node.snapshot,
        "revision": node.revision,
        "disk": {
            "writes": node.disk.writes,
            "last_ms": node.disk.last.as_secs_f64() * 1e3,
            "longest_ms": node.disk.longest.as_secs_f64() * 1e3,
            "slow": node.disk.slow,
            "full": node.disk.full,
        },
        "watches": node.watches,
        "waiting": node.waiting,
        "lines": node.lines.iter().map(line).collect::<Vec<Value>>(),
        "store": {
            "oldest": stored.oldest,
            "incarnation": stored.incarnation,
            "sessions": stored.sessions,
            "elections": stored.elections,
            "keys": stored.keys,
            "keys_bytes": stored.keys_bytes,
            "clients": stored.clients,
            "events": stored.events,
        },
    });
    Ok(told)
}

fn line(it: &LineView) -> Value {
    let state = match it.state {
        LineState::Up => "up",
        LineState::Silent => "silent",
        LineState::Down => "down",
    };
    json!({
        "node": it.peer.0,
        "address": it.address,
        "state": state,
        "round_trip_ms": it.round_trip.map(|it| it.as_secs_f64() * 1e3),
        "via": it.via.map(|it| it.0),
        "trouble": it.trouble,
    })
}

/// Whether it can serve, and why not.
pub(super) async fn readiness(desk: &Desk) -> (bool, Value) {
    let why = match petition::status(desk).await {
        Ok(status) => {
            let leaderless = status.role.leader.is_none().then(|| "nobody leads".to_owned());
            // Whoever is unheard while somebody leads keeps nobody from being served.
            let unheard = leaderless.as_ref().map(|_| status.unheard()).unwrap_or_default();
            let full = status.disk.full.map(|it| format!("the disk is full, and only questions are answered: {it}"));
            leaderless.into_iter().chain(unheard).chain(full).collect()
        }
        Err(failure) => vec![failure.message.into()],
    };
    (why.is_empty(), json!({ "ready": why.is_empty(), "node": desk.handle.me().0, "why": why }))
}
