//! From a request to its answer: the way is found, the visitor let in, the body read and checked, the deed done, and what came of it told.

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
use super::limits::{BODY_WITHIN, JSON_BYTES_MAX, VALUE_BYTES_MAX};
use super::petition::{Petition, caller, number, token};
use super::routes::{Deed, Gives, Route, Takes, Verb, Way, way};
use super::shapes;
use super::{Desk, elections, keys, node, openapi, sessions, streams};
use crate::server::Consistency;

pub(super) type Sent = Either<Full<Bytes>, Channel<Bytes>>;

/// What is told.
pub(super) enum Told {
    Json(StatusCode, Value),
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
    let (method, route, told) = match way {
        Way::To(route, variable) => {
            (route.verb.name(), route.path, serve(&desk, gate, route, variable, request, span.context()).await)
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
    let response = told.map_or_else(|failure| failed(&failure), Told::response);
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
        Ok(Told::Json(status, _)) => *status,
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

impl Told {
    fn response(self) -> Response<Sent> {
        match self {
            Told::Json(status, value) => respond(status, "application/json", (value.to_string() + "\n").into()),
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

fn failed(failure: &Failure) -> Response<Sent> {
    let mut response = Told::Json(failure.status, failure.document()).response();
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
    let asked = Parameters::read(head.uri.query(), route.asks)?;
    let consistency =
        if asked.text("consistency").as_deref() == Some("local") { Consistency::Local } else { Consistency::Linearizable };
    let number = if route.commands() { number(&head.headers)? } else { None };
    let petition = Petition { desk: Arc::clone(desk), visitor, consistency, number, span };
    let body = match &route.takes {
        Takes::Nothing => read(incoming, 0).await.map(|_| Value::Null)?,
        Takes::Json(shape) => bodies::parse(&read(incoming, JSON_BYTES_MAX).await?, shape)?,
        Takes::Value => {
            let value = read(incoming, VALUE_BYTES_MAX).await?;
            return keys::write(&petition, address::variable(variable)?, value, &asked).await.map(fine);
        }
    };
    if head.method == Method::HEAD && matches!(route.deed, Deed::Events | Deed::Watch) {
        // Nobody would read it.
        return Ok(Told::Stream(Channel::new(1).1));
    }
    act(petition, route, variable, Body(&body), &asked, &head.headers).await
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
    Some(fine(if route.deed == Deed::Document { openapi::document() } else { serde_json::json!({ "node": desk.handle.me().0 }) }))
}

async fn act(
    petition: Petition,
    route: &Route,
    variable: &str,
    body: Body<'_>,
    asked: &Parameters,
    headers: &HeaderMap,
) -> Result<Told, Failure> {
    let name = || address::name(variable);
    let key = || address::variable(variable);
    let session = || {
        let what_to_do = "take the number from POST or GET /v1/sessions";
        shapes::id(variable).ok_or_else(|| Failure::malformed("the session in the path is no number", what_to_do))
    };
    let it = &petition;
    let told = match route.deed {
        Deed::Health | Deed::Ready | Deed::Document => return Err(Failure::confused()),
        Deed::Figures => return figures(it).await,
        Deed::Status => node::status(it).await?,
        Deed::Introduce => sessions::introduce(it).await?,
        Deed::Elections => elections::list(it, asked).await?,
        Deed::Board => elections::board(it, name()?).await?,
        Deed::History => elections::history(it, name()?).await?,
        Deed::Campaign => return elections::campaign(it, name()?, body, asked).await,
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
        Deed::Transact => keys::transact(it, body).await?,
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
