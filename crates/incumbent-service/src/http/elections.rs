//! What is done in elections, one function a verb.

use hyper::StatusCode;
use incumbent_store::command::{
    Annotate, Ask, Campaign, Command, Complete, Demand, Evict, Forget, Proclaim, Raise, Renew, Request, Resign, Wish, Withdraw,
};
use incumbent_store::election::Board;
use incumbent_store::event::Change;
use incumbent_store::query::{Answer, ListElections, Query};
use incumbent_store::reply::Reply;
use incumbent_store::watch::{CandidateTopic, Interest, Topic};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::address::Parameters;
use super::answers::Told;
use super::bodies::Body;
use super::failure::Failure;
use super::limits::{LISTED, WAIT_MAX};
use super::petition::Petition;
use super::views;
use crate::server::Consistency;

pub(super) async fn list(petition: &Petition, asked: &Parameters) -> Result<Value, Failure> {
    let (prefix, after) = (asked.text("prefix"), asked.text("after"));
    let query = Query::Elections(ListElections {
        prefix: prefix.unwrap_or_default().into_owned(),
        after: after.unwrap_or_default().into_owned(),
        limit: asked.whole("limit").unwrap_or(LISTED),
    });
    match petition.ask(query).await? {
        (Answer::Elections(found), revision) => Ok(views::at(revision, views::summaries(&found))),
        (_, _) => Err(Failure::confused()),
    }
}

pub(super) async fn board(petition: &Petition, election: String) -> Result<Value, Failure> {
    let (board, revision) = look(petition, election, petition.consistency).await?;
    Ok(views::at(revision, views::board(&board)))
}

pub(super) async fn history(petition: &Petition, election: String) -> Result<Value, Failure> {
    let (board, revision) = look(petition, election, petition.consistency).await?;
    Ok(views::at(revision, views::history(&board)))
}

async fn look(petition: &Petition, election: String, consistency: Consistency) -> Result<(Board, u64), Failure> {
    match petition.ask_with(Query::Look(election), consistency).await? {
        (Answer::Board(board), revision) => Ok((board, revision)),
        (_, _) => Err(Failure::confused()),
    }
}

/// A command that is answered by the revision after it.
pub(super) async fn done(petition: &Petition, command: Command) -> Result<Value, Failure> {
    match petition.submit(command).await? {
        (Reply::Done(revision), _) => Ok(views::at(revision, json!({}))),
        (_, _) => Err(Failure::confused()),
    }
}

/// What a candidate says of itself.
pub(super) fn bid(election: String, body: Body<'_>) -> Result<Campaign, Failure> {
    Ok(Campaign {
        session: body.id("session").unwrap_or_default(),
        election,
        identity: body.text("identity"),
        name: body.text("name"),
        value: body.value()?,
        priority: body.signed("priority"),
        seats: body.whole_u32("seats")?,
        tenure_ms_min: body.whole("tenure_ms_min"),
        seen: body.id("seen").unwrap_or_default(),
        only_if_free: body.flag("only_if_free"),
    })
}

/// Stands for election, and waits until it is won if the one who asks wants to.
///
/// While it waits nobody keeps the session alive for it: a connection says little about who is behind it, and the session may keep other leaderships.
pub(super) async fn campaign(petition: &Petition, bid: Campaign, asked: &Parameters) -> Result<Told, Failure> {
    let wait = asked.span("wait").unwrap_or_default();
    if wait > WAIT_MAX {
        return Err(Failure::malformed(
            format!("wait is longer than {} s", WAIT_MAX.as_secs()),
            "wait for less, and ask again: a candidate keeps its place",
        ));
    }
    let until = Instant::now() + wait;
    let mut told = petition.submit(Command::Campaign(bid.clone())).await?;
    if !wait.is_zero() && !bid.only_if_free && is_in_line(&told.0) {
        match stand(petition, &bid, &mut told, until).await {
            Ok(()) => {}
            // It has come into the line, and stands there or leads: "certainly not done" would be wrong.
            Err(failure) if failure.status == StatusCode::SERVICE_UNAVAILABLE => {}
            Err(failure) => return Err(failure),
        }
    }
    let (reply, revision) = told;
    match reply {
        Reply::Granted(seat) => {
            let won = json!({ "won": true, "token": views::id(seat.token), "ttl_ms": seat.ttl_ms });
            Ok(Told::Json(StatusCode::OK, views::at(revision, won)))
        }
        Reply::InLine(place) => Ok(Told::Json(StatusCode::ACCEPTED, views::at(revision, views::in_line(&place)))),
        Reply::Introduced(_)
        | Reply::Opened(_)
        | Reply::Bound(_)
        | Reply::KeptAlive(_)
        | Reply::Expired(_)
        | Reply::Renewed(_)
        | Reply::Done(_)
        | Reply::Written(_)
        | Reply::Deleted(_)
        | Reply::Transacted(_) => Err(Failure::confused()),
    }
}

fn is_in_line(reply: &Reply) -> bool {
    matches!(reply, Reply::InLine(_))
}

/// Waits in line, and learns how things stand when that is over. If it fails, what was told last is as good as ever.
async fn stand(petition: &Petition, bid: &Campaign, told: &mut (Reply, u64), until: Instant) -> Result<(), Failure> {
    if petition.number.is_some() {
        // The answer may be that of long ago.
        *told = again(petition, bid).await?;
        if !is_in_line(&told.0) {
            return Ok(());
        }
    }
    let was_elected = elected(petition, bid, told.1 + 1, until).await?;
    match again(petition, bid).await {
        Ok(now) => *told = now,
        Err(failure) if was_elected && failure.status == StatusCode::SERVICE_UNAVAILABLE => {
            return Err(Failure::unknown("the candidate was elected, and the node cannot say whether it leads still"));
        }
        Err(failure) => return Err(failure),
    }
    Ok(())
}

/// How things stand. Repeated, a candidacy is the same still, and its session is kept alive.
async fn again(petition: &Petition, bid: &Campaign) -> Result<(Reply, u64), Failure> {
    petition.submit_as(Request::of(Command::Campaign(bid.clone()))).await
}

/// Until the candidate is elected, or it is time. Whether it was.
async fn elected(petition: &Petition, bid: &Campaign, from: u64, until: Instant) -> Result<bool, Failure> {
    let topic = CandidateTopic { election: bid.election.clone(), identity: bid.identity.clone() };
    let mut watch = petition.watch(Interest::of(Topic::Candidate(topic)), from).await?;
    // A watch that ends early is as good as the end of the time: the answer says how things stand.
    while let Ok(Ok(batch)) = timeout_at(until, watch.next()).await {
        for event in &batch.events {
            if matches!(event.change, Some(Change::Left(_))) {
                return Err(Failure::new(
                    StatusCode::CONFLICT,
                    "left",
                    "the candidate has left the line: it was withdrawn, or its session has ended",
                    "open a session that lives for longer than is waited, or keep it alive meanwhile; then campaign again",
                ));
            }
            if matches!(event.change, Some(Change::Elected(_))) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

pub(super) async fn renew(petition: &Petition, election: String, body: Body<'_>) -> Result<Value, Failure> {
    match petition.submit(Command::Renew(Renew { election, token: token(body) })).await? {
        (Reply::Renewed(renewed), revision) => Ok(views::at(revision, views::renewed(&renewed))),
        (_, _) => Err(Failure::confused()),
    }
}

pub(super) async fn proclaim(petition: &Petition, election: String, body: Body<'_>) -> Result<Value, Failure> {
    done(petition, Command::Proclaim(Proclaim { election, token: token(body), value: body.value()? })).await
}

pub(super) async fn resign(petition: &Petition, election: String, body: Body<'_>) -> Result<Value, Failure> {
    let (reason, to) = (body.text("reason"), body.text("to"));
    done(petition, Command::Resign(Resign { election, token: token(body), reason, to })).await
}

pub(super) async fn withdraw(petition: &Petition, election: String, body: Body<'_>) -> Result<Value, Failure> {
    done(petition, Command::Withdraw(Withdraw { election, identity: body.text("identity") })).await
}

pub(super) async fn hand_over(petition: &Petition, election: String, body: Body<'_>) -> Result<Value, Failure> {
    wish(petition, election, body, Demand::HandOver).await
}

pub(super) async fn evict(petition: &Petition, election: String, body: Body<'_>) -> Result<Value, Failure> {
    if !body.flag("force") {
        return wish(petition, election, body, Demand::Evict).await;
    }
    if body.flag("after_tenure") {
        return Err(Failure::malformed("by force there is nothing to wait for", "leave after_tenure out, or force"));
    }
    let token = token_or_present(petition, &election, body).await?;
    // Nothing that is said here may read as if the holder had given the seat back.
    let reason = match body.text("by") {
        by if by.is_empty() => String::new(),
        by => format!("evicted by force: {by}"),
    };
    done(petition, Command::Evict(Evict { election, token, reason })).await
}

async fn wish(petition: &Petition, election: String, body: Body<'_>, demand: Demand) -> Result<Value, Failure> {
    let token = token_or_present(petition, &election, body).await?;
    let wish = Wish { token, demand: demand as i32, to: body.text("to"), by: body.text("by") };
    done(
        petition,
        Command::Ask(Ask {
            election,
            wish: Some(wish),
            after_tenure: body.flag("after_tenure"),
            as_candidate: false,
            only_in_line: true,
        }),
    )
    .await
}

pub(super) async fn annotate(petition: &Petition, election: String, body: Body<'_>) -> Result<Value, Failure> {
    done(petition, Command::Annotate(Annotate { election, token: token(body), text: body.text("text") })).await
}

pub(super) async fn raise(petition: &Petition, election: String, body: Body<'_>) -> Result<Value, Failure> {
    done(petition, Command::Raise(Raise { election, above: body.id("above").unwrap_or_default() })).await
}

pub(super) async fn complete(petition: &Petition, election: String, body: Body<'_>) -> Result<Value, Failure> {
    let (job, outcome) = (body.text("job"), body.text("outcome"));
    done(petition, Command::Complete(Complete { election, token: token(body), job, outcome })).await
}

pub(super) async fn forget(petition: &Petition, election: String) -> Result<Value, Failure> {
    done(petition, Command::Forget(Forget { election })).await
}

/// A shape has seen that it is there.
fn token(body: Body<'_>) -> u64 {
    body.id("token").unwrap_or_default()
}

/// An operator at a terminal means whoever leads. If that changes meanwhile, the command is refused: it names the token.
async fn token_or_present(petition: &Petition, election: &str, body: Body<'_>) -> Result<u64, Failure> {
    if let Some(token) = body.id("token") {
        return Ok(token);
    }
    let (board, _) = look(petition, election.to_owned(), Consistency::Linearizable).await?;
    match &board.leaders[..] {
        [holder] => Ok(holder.token),
        [] => Err(Failure::new(StatusCode::CONFLICT, "nobody_leads", "nobody leads this election", "wait until somebody does")),
        [_, ..] => Err(Failure::new(
            StatusCode::CONFLICT,
            "several_lead",
            format!("{} lead this election", board.leaders.len()),
            "say which by its token: GET the election to see them",
        )),
    }
}
