//! Sessions, and numbers of clients.

use incumbent_store::command::{Command, EndSession, Introduce, KeepAlive, OpenSession};
use incumbent_store::query::{Answer, ListSessions, Query};
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::Reply;
use serde_json::{Value, json};

use super::address::Parameters;
use super::bodies::Body;
use super::elections::done;
use super::failure::Failure;
use super::limits::LISTED;
use super::petition::Petition;
use super::views;

pub(super) async fn introduce(petition: &Petition) -> Result<Value, Failure> {
    match petition.submit(Command::Introduce(Introduce {})).await? {
        (Reply::Introduced(client), revision) => Ok(views::at(revision, json!({ "client": views::id(client) }))),
        (_, _) => Err(Failure::confused()),
    }
}

pub(super) async fn open(petition: &Petition, body: Body<'_>) -> Result<Value, Failure> {
    let open = OpenSession {
        session: body.id("session").unwrap_or_default(),
        ttl_ms: body.whole("ttl_ms"),
        owner: body.text("owner"),
        // There is no connection that it could end with: each request may come by another.
        ends_with_connection: false,
        lock_delay_ms: body.whole("lock_delay_ms"),
    };
    match petition.submit(Command::OpenSession(open)).await? {
        (Reply::Opened(session), revision) => Ok(views::at(revision, json!({ "session": views::id(session) }))),
        (_, _) => Err(Failure::confused()),
    }
}

pub(super) async fn list(petition: &Petition, asked: &Parameters) -> Result<Value, Failure> {
    let after = asked.whole("after").unwrap_or_default();
    let limit = asked.whole("limit").unwrap_or(LISTED);
    match petition.ask(Query::Sessions(ListSessions { after, limit })).await? {
        (Answer::Sessions(found), revision) => Ok(views::at(revision, views::sessions(&found))),
        (_, _) => Err(Failure::confused()),
    }
}

pub(super) async fn view(petition: &Petition, session: u64) -> Result<Value, Failure> {
    match petition.ask(Query::Session(session)).await? {
        (Answer::Session(found), revision) => Ok(views::at(revision, views::session(&found))),
        (_, _) => Err(Failure::confused()),
    }
}

pub(super) async fn end(petition: &Petition, session: u64, asked: &Parameters) -> Result<Value, Failure> {
    // Only its holder says of a leadership that it was given back; this may be anybody.
    let reason = asked.text("reason").filter(|it| !it.is_empty()).map(|it| format!("session ended: {it}")).unwrap_or_default();
    done(petition, Command::EndSession(EndSession { session, reason, unclean: false, binding: None })).await
}

pub(super) async fn keep_alive(petition: &Petition, session: u64) -> Result<Value, Failure> {
    match petition.submit(Command::KeepAlive(KeepAlive { sessions: vec![session] })).await? {
        (Reply::KeptAlive(kept), revision) if kept.gone.is_empty() => Ok(views::at(revision, json!({}))),
        (Reply::KeptAlive(_), _) => Err(Refusal::SessionGone(session).into()),
        (_, _) => Err(Failure::confused()),
    }
}
