//! From a request to its answer: the way is found, the visitor let in, the body read and checked, the deed done, and what came of it told.
//!
//! What is kept of a request meanwhile, and of an answer until it is read, takes room that is counted for whoever asks (weight.rs).

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Channel, Either, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, ORIGIN, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::{Method, Request, Response, StatusCode};
use incumbent_store::keys::item::Span;
use incumbent_store::watch::{Interest, Topic};
use incumbent_traces::{self as traces, Context};
use serde_json::Value;
use tokio::time::timeout;

use super::address::{self, Parameters};
use super::bodies::{self, Body, under};
use super::border::Gate;
use super::failure::Failure;
use super::figures;
use super::host::came_by_foreign_name;
use super::limits::{BODY_WITHIN, JSON_BYTES_MAX, RETRY_AFTER as AGAIN, TIMES_LEFT, VALUE_BYTES_MAX};
use super::petition::{Petition, caller, number, token};
use super::routes::{Deed, Gives, Route, Takes, Verb, Way, way};
use super::shapes;
use super::weight::Purse;
use super::{Desk, elections, keys, node, openapi, sessions, streams};
use crate::server::{Consistency, Share};

pub(super) type Sent = Either<Full<Bytes>, Channel<Bytes>>;

/// What is told.
pub(super) enum Told {
    Json(StatusCode, Value),
    /// As it goes out, and of which kind it is.
    Written(StatusCode, &'static str, Bytes),
    /// A value, byte for byte, and the revisions that go with it.
    Value {
        revision: u64,
        modified: u64,
        value: Bytes,
    },
    Figures(String),
    Stream(Channel<Bytes>),
}

/// The revision of the store, beside a value that is told byte for byte.
const REVISION: HeaderName = HeaderName::from_static("incumbent-revision");
/// The revision at which such a value was written.
const MODIFIED: HeaderName = HeaderName::from_static("incumbent-modified");

/// Answers a request.
pub(super) async fn answer(desk: Arc<Desk>, gate: &dyn Gate, request: Request<Incoming>) -> Response<Sent> {
    let path = request.uri().path().to_owned();
    let way = way(request.method(), &path);
    let mut span = match &way {
        // Probes come all the time, and tell nothing.
        Way::To(route, _) if route.is_probe() => traces::Span::none(),
        Way::To(..) | Way::OtherMethods(_) | Way::Nowhere => desk.handle.tracer().http(|| caller(request.headers())),
    };
    let mut purse = Purse::of_a_stranger(&desk.answers);
    let (method, route, told) = match way {
        Way::To(route, variable) => {
            let told = serve(&desk, gate, route, variable, request, span.context(), &mut purse).await;
            let room = if route.commands() { no_room_for_what_was_done } else { no_room_for_an_answer };
            (route.verb.name(), route.path, told.and_then(|it| it.weighed(&purse).ok_or_else(room)))
        }
        Way::OtherMethods(known) => {
            let failure = Failure::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                format!("{} is not to be had here", request.method()),
                format!("use {}", known.join(", ")),
            );
            ("other", "other", Err(Failure { allow: Some(known.join(", ").into()), ..failure }))
        }
        Way::Nowhere => {
            let what_to_do = "GET /openapi.json tells what there is; a name is one segment of the path, so a slash in it is %2F";
            ("other", "other", Err(Failure::new(StatusCode::NOT_FOUND, "no_route", "there is nothing at this path", what_to_do)))
        }
    };
    if span.is_told() {
        tell(&mut span, method, route, &told);
    }
    let response = told.map_or_else(|failure| failed(failure, &purse), Told::response);
    desk.handle.tally().http(method, route, response.status().as_u16());
    response
}

/// What came of a request, as its span has it: names of the table and codes, and nothing that somebody has sent.
fn tell(span: &mut traces::Span, method: &'static str, route: &'static str, told: &Result<Told, Failure>) {
    if route != "other" {
        span.rename(format!("{method} {route}"));
        span.set("http.request.method", method);
        span.set("http.route", route);
    }
    let status = match told {
        Ok(Told::Json(status, _) | Told::Written(status, ..)) => *status,
        Ok(Told::Value { .. } | Told::Figures(_) | Told::Stream(_)) => StatusCode::OK,
        Err(failure) => {
            span.set("error.type", failure.code);
            failure.status
        }
    };
    span.set("http.response.status_code", u64::from(status.as_u16()));
    // What the asker has done wrong is no fault of a server's, as OpenTelemetry has it.
    span.fault(told.as_ref().err().filter(|it| it.status.is_server_error()).map(|it| it.code));
}

/// The kind of most that is told.
const JSON: &str = "application/json";

fn line(value: &Value) -> Bytes {
    (value.to_string() + "\n").into()
}

impl Told {
    /// As it goes out, with the room that it takes until it is read; `None` if there is none.
    fn weighed(self, purse: &Purse) -> Option<Told> {
        Some(match self {
            Told::Json(status, value) => Told::Written(status, JSON, purse.weigh(line(&value))?),
            Told::Value { revision, modified, value } => Told::Value { revision, modified, value: purse.weigh(value)? },
            Told::Figures(text) => Told::Written(StatusCode::OK, Gives::Figures.kind(), purse.weigh(text.into())?),
            // There is one of it for all; and a stream is bounded by itself.
            Told::Written(..) | Told::Stream(_) => self,
        })
    }

    fn response(self) -> Response<Sent> {
        match self {
            Told::Json(status, value) => respond(status, JSON, line(&value)),
            Told::Written(status, kind, body) => respond(status, kind, body),
            Told::Value { revision, modified, value } => {
                let mut response = respond(StatusCode::OK, Gives::Value.kind(), value);
                response.headers_mut().insert(REVISION, revision.into());
                response.headers_mut().insert(MODIFIED, modified.into());
                response
            }
            Told::Figures(text) => respond(StatusCode::OK, Gives::Figures.kind(), text.into()),
            Told::Stream(body) => {
                let mut response = Response::new(Either::Right(body));
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
                response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
                response
            }
        }
    }
}

fn respond(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Sent> {
    let mut response = Response::new(Either::Left(Full::new(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn failed(mut failure: Failure, purse: &Purse) -> Response<Sent> {
    let told = Told::Json(failure.status, failure.document()).weighed(purse).unwrap_or_else(|| {
        // All else in it is short.
        failure.found = None;
        Told::Json(failure.status, failure.document())
    });
    let mut response = told.response();
    let headers = response.headers_mut();
    if let Some(after) = failure.retry_after {
        headers.insert(RETRY_AFTER, after.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX).into());
    }
    if let Some(allow) = failure.allow.as_ref().and_then(|it| HeaderValue::from_str(it).ok()) {
        headers.insert(ALLOW, allow);
    }
    if failure.status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        // The door counts connections that came with a bad token: each is good for one guess.
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn serve(
    desk: &Arc<Desk>,
    gate: &dyn Gate,
    route: &'static Route,
    variable: &str,
    request: Request<Incoming>,
    span: Option<Context>,
    purse: &mut Purse,
) -> Result<Told, Failure> {
    let (head, incoming) = request.into_parts();
    // A browser says where a page comes from that wants something done here: no page has any business with it.
    if route.verb != Verb::Get && head.headers.contains_key(ORIGIN) {
        let what_to_do = "ask from a program, without the header Origin";
        return Err(Failure::new(StatusCode::FORBIDDEN, "page", "a page in a browser may not ask for that", what_to_do));
    }
    if let Some(told) = open(desk, route).await {
        Parameters::read(head.uri.query(), route.asks)?;
        return Ok(told);
    }
    if gate.is_open() && came_by_foreign_name(&head.headers) {
        let message = "the header Host is another machine's name: a page in a browser may have made it lead here";
        return Err(Failure::new(
            StatusCode::FORBIDDEN,
            "page",
            message,
            "ask 127.0.0.1 or localhost, or run the service with tokens",
        ));
    }
    let visitor = gate.admit(token(&head.headers)?)?;
    purse.is_of(visitor.name());
    let asked = Parameters::read(head.uri.query(), route.asks)?;
    let consistency =
        if asked.text("consistency").as_deref() == Some("local") { Consistency::Local } else { Consistency::Linearizable };
    let number = if route.commands() { number(&head.headers)? } else { None };
    let petition = Petition { desk: Arc::clone(desk), visitor, consistency, number, span };
    let bytes_max = match &route.takes {
        Takes::Nothing => 0,
        Takes::Json(_) => JSON_BYTES_MAX,
        Takes::Value => VALUE_BYTES_MAX,
    };
    // Until all is done: what was made of the body is kept, too.
    let _room = room(desk, &petition, &incoming, bytes_max)?;
    let body = match &route.takes {
        Takes::Nothing => read(incoming, bytes_max).await.map(|_| Value::Null)?,
        Takes::Json(shape) => bodies::parse(&read(incoming, bytes_max).await?, shape)?,
        Takes::Value => {
            let value = read(incoming, bytes_max).await?;
            return keys::write(&petition, address::variable(variable)?, value, &asked).await.map(fine);
        }
    };
    if head.method == Method::HEAD && matches!(route.deed, Deed::Events | Deed::Watch) {
        // Nobody would read it.
        return Ok(Told::Stream(Channel::new(1).1));
    }
    act(petition, route, variable, body, &asked, &head.headers).await
}

fn fine(value: Value) -> Told {
    Told::Json(StatusCode::OK, value)
}

/// What everybody may ask.
async fn open(desk: &Desk, route: &Route) -> Option<Told> {
    if !route.is_open() {
        return None;
    }
    if route.deed == Deed::Ready {
        let (is_ready, told) = node::readiness(desk).await;
        return Some(Told::Json(if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, told));
    }
    if route.deed == Deed::Document {
        return Some(Told::Written(StatusCode::OK, JSON, openapi::text()));
    }
    Some(fine(serde_json::json!({ "node": desk.handle.me().0 })))
}

async fn act(
    petition: Petition,
    route: &Route,
    variable: &str,
    json: Value,
    asked: &Parameters,
    headers: &HeaderMap,
) -> Result<Told, Failure> {
    let name = || address::name(variable);
    let key = || address::variable(variable);
    let session = || {
        let what_to_do = "take the number from POST or GET /v1/sessions";
        shapes::id(variable).ok_or_else(|| Failure::malformed("the session in the path is no number", what_to_do))
    };
    let (it, body) = (&petition, Body(&json));
    let told = match route.deed {
        Deed::Health | Deed::Ready | Deed::Document => return Err(Failure::confused()),
        Deed::Figures => return figures(it).await,
        Deed::Status => node::status(it).await?,
        Deed::Introduce => sessions::introduce(it).await?,
        Deed::Elections => elections::list(it, asked).await?,
        Deed::Board => elections::board(it, name()?).await?,
        Deed::History => elections::history(it, name()?).await?,
        // Not kept while it waits: in memory JSON is much more than it was.
        Deed::Campaign => {
            let bid = elections::bid(name()?, body)?;
            drop(json);
            return elections::campaign(it, bid, asked).await;
        }
        Deed::Renew => elections::renew(it, name()?, body).await?,
        Deed::Proclaim => elections::proclaim(it, name()?, body).await?,
        Deed::Resign => elections::resign(it, name()?, body).await?,
        Deed::Withdraw => elections::withdraw(it, name()?, body).await?,
        Deed::HandOver => elections::hand_over(it, name()?, body).await?,
        Deed::Evict => elections::evict(it, name()?, body).await?,
        Deed::Annotate => elections::annotate(it, name()?, body).await?,
        Deed::Raise => elections::raise(it, name()?, body).await?,
        Deed::Complete => elections::complete(it, name()?, body).await?,
        Deed::Forget => elections::forget(it, name()?).await?,
        Deed::OpenSession => sessions::open(it, body).await?,
        Deed::Sessions => sessions::list(it, asked).await?,
        Deed::Session => sessions::view(it, session()?).await?,
        Deed::EndSession => sessions::end(it, session()?, asked).await?,
        Deed::KeepAlive => sessions::keep_alive(it, session()?).await?,
        Deed::Keys => keys::list(it, asked).await?,
        Deed::Key => return keys::read(it, key()?, asked).await,
        Deed::PutKey => return Err(Failure::confused()),
        Deed::DeleteKey => keys::delete(it, key()?, asked).await?,
        Deed::Transact => {
            let transaction = body.transaction()?;
            drop(json);
            keys::transact(it, transaction).await?
        }
        Deed::Compact => keys::compact(it, body).await?,
        Deed::Events => {
            let interest = Interest::of(Topic::Election(name()?));
            return streams::open(petition, interest, headers, asked).await.map(Told::Stream);
        }
        Deed::Watch => {
            let span = watched(asked)?;
            return streams::open(petition, Interest::of(Topic::Keys(span)), headers, asked).await.map(Told::Stream);
        }
    };
    Ok(fine(told))
}

/// Which keys are watched.
fn watched(asked: &Parameters) -> Result<Span, Failure> {
    match (asked.bytes("key"), asked.bytes("prefix")) {
        (Some(_), Some(_)) => Err(Failure::malformed("a key and a prefix are both there", "give one of them")),
        (Some(key), None) => Ok(Span::key(key.to_vec())),
        (None, prefix) => Ok(under(prefix.unwrap_or_default().to_vec())),
    }
}

async fn figures(petition: &Petition) -> Result<Told, Failure> {
    let (node, stored) = node::look(petition).await?;
    let (desk, spans) = (&petition.desk, petition.desk.handle.tracer().counts());
    let told = figures::tell(&node, &stored, desk.handle.tally(), spans, desk.streams.available_permits());
    told.map(Told::Figures).map_err(|_| Failure::confused())
}

fn no_room(status: StatusCode, code: &'static str, message: &str, what_to_do: &str) -> Failure {
    Failure { retry_after: Some(AGAIN), ..Failure::new(status, code, message, what_to_do) }
}

fn no_room_for_an_answer() -> Failure {
    let message = "the answers that nobody has read yet, of this guest or of all, are as many as may be";
    no_room(StatusCode::SERVICE_UNAVAILABLE, "busy", message, "read them, then ask again; ask for less at once")
}

/// It is too late to say that it was not done.
fn no_room_for_what_was_done() -> Failure {
    let message = "it was done, but the answers that nobody has read yet, of this guest or of all, are as many as may be";
    Failure::new(StatusCode::GATEWAY_TIMEOUT, "answer_dropped", message, "read what came of it")
}

/// Room for a body that is about to come.
fn room(desk: &Desk, petition: &Petition, body: &Incoming, bytes_max: usize) -> Result<Option<Share>, Failure> {
    if body.is_end_stream() {
        return Ok(None);
    }
    let announced = body.size_hint().upper().and_then(|it| usize::try_from(it).ok()).unwrap_or(bytes_max);
    let room = desk.bodies.take(&petition.visitor.name().into(), announced.min(bytes_max), TIMES_LEFT);
    room.map(Some).ok_or_else(|| {
        let message = "the requests that are under way, of this guest or of all, bring as much as may be";
        no_room(StatusCode::SERVICE_UNAVAILABLE, "busy", message, "try again, or bring less at once")
    })
}

/// The whole body, if it is no longer than this.
async fn read(body: Incoming, bytes_max: usize) -> Result<Bytes, Failure> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let too_long = || match bytes_max {
        0 => Failure::malformed("there is a body, and none is taken here", "leave it out"),
        max => Failure::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_long",
            format!("the body is longer than {max} bytes"),
            "send less; a larger thing belongs elsewhere, and its address here",
        ),
    };
    // Said before it comes, it need not come.
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(too_long());
    }
    match timeout(BODY_WITHIN, Limited::new(body, bytes_max).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(why)) if why.is::<LengthLimitError>() => Err(too_long()),
        Ok(Err(why)) => Err(Failure::malformed(format!("the body cannot be read: {why}"), "send it whole")),
        Err(_) => Err(Failure::new(
            StatusCode::REQUEST_TIMEOUT,
            "too_slow",
            format!("the body has not come within {} s", BODY_WITHIN.as_secs()),
            "send it at once",
        )),
    }
}
