//! Every question and its answer. What is said of the leadership is found out at the moment of answering, never before.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Channel, Either, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, ORIGIN};
use hyper::{Method, Request, Response, StatusCode, Uri};
use incumbent_service::http::came_by_foreign_name;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};

use super::door::Reach;
use super::{Asked, Desk, Stage, Stops, Term, events};
use crate::elections::{ask, describe};

/// Longer ones are no values, and no names.
const BODY_MAX: usize = 64 * 1024;
/// A body that has not come by then never will.
const BODY_WITHIN: Duration = Duration::from_secs(10);
/// A look at an engine that does not answer is not waited for any longer.
const LOOK_WITHIN: Duration = Duration::from_secs(2);

const QUESTIONS: &str = "ask GET /leader, GET /status, GET /remaining, GET /primary, GET /standby, GET /live, GET /metrics, GET /events, POST /resign, POST /handover (body or ?to=: a candidate's name), \
PUT /value (body: the value) or POST /stopped";

/// What load balancers ask, by whatever name they call their servers: told to everybody.
const CHECKS: [&str; 3] = ["/primary", "/standby", "/live"];

pub(super) type Body = Either<Full<Bytes>, Channel<Bytes>>;

/// An answer: its text ends with a line break, for people at a terminal.
struct Answer {
    status: StatusCode,
    kind: &'static str,
    text: String,
}

impl Answer {
    fn text(status: StatusCode, text: impl Into<String>) -> Answer {
        Answer { status, kind: "text/plain; charset=utf-8", text: text.into() + "\n" }
    }

    fn json(status: StatusCode, value: &Value) -> Answer {
        Answer { status, kind: "application/json", text: value.to_string() + "\n" }
    }

    fn not_leading() -> Answer {
        Answer::text(StatusCode::CONFLICT, "this process does not lead")
    }

    /// Health checks look at the code, people at the state.
    fn health(is_so: bool, status: &Value) -> Answer {
        Answer::json(if is_so { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, status)
    }
}

impl Desk {
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        reach: Reach,
        closing: watch::Receiver<bool>,
    ) -> Response<Body> {
        let method = request.method().clone();
        // HAProxy's checks are OPTIONS unless it is told otherwise, and many others are HEAD: both are told what GET is told, by the code.
        let reads = [Method::GET, Method::HEAD, Method::OPTIONS].contains(&method);
        let foreign =
            reach == Reach::Machine && !CHECKS.contains(&request.uri().path()) && came_by_foreign_name(request.headers());
        if reads && !foreign && request.uri().path() == "/events" {
            return if method == Method::GET { self.events(closing) } else { events::response(Either::Left(Full::default())) };
        }
        let answer = if foreign {
            Answer::text(
                StatusCode::FORBIDDEN,
                "the header Host is another machine's name, and a page in a browser may have made it lead here: ask 127.0.0.1 or localhost",
            )
        } else if reads {
            self.tell_of(request.uri().path()).await
        } else {
            self.do_what(request).await
        };
        let text = if method == Method::OPTIONS { String::new() } else { answer.text };
        let mut response = Response::new(Either::Left(Full::new(Bytes::from(text))));
        *response.status_mut() = answer.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(answer.kind));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if method == Method::OPTIONS {
            headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD, OPTIONS"));
        }
        response
    }

    async fn tell_of(&self, path: &str) -> Answer {
        match path {
            "/leader" => self.leader().await,
            "/status" => {
                let mut status = self.status();
                if let Some(term) = self.term().as_ref() {
                    status["remaining_ms"] = milliseconds(term.left()).into();
                }
                if let Some(node) = self.node().await {
                    status["node"] = node;
                }
                Answer::json(StatusCode::OK, &status)
            }
            "/remaining" => {
                let left = self.term().as_ref().map(Term::left).unwrap_or_default();
                Answer::text(StatusCode::OK, milliseconds(left).to_string())
            }
            "/primary" => {
                let status = self.status();
                // Last, so that nothing lies between this and the answer.
                Answer::health(self.is_primary(), &status)
            }
            "/standby" => {
                let status = self.status();
                Answer::health(self.term().as_ref().is_none_or(|it| it.left().is_zero()), &status)
            }
            "/live" => Answer::text(StatusCode::OK, "alive"),
            "/metrics" => self.figures().await,
            _ => Answer::text(StatusCode::NOT_FOUND, QUESTIONS),
        }
    }

    async fn do_what(&self, request: Request<Incoming>) -> Answer {
        // A browser says where a page comes from that wants something done here: no page has any business with it.
        if request.headers().contains_key(ORIGIN) {
            return Answer::text(StatusCode::FORBIDDEN, "a page in a browser may not ask for that");
        }
        let term = self.term().clone();
        match (request.method(), request.uri().path()) {
            (&Method::POST, "/resign") => term.map_or_else(Answer::not_leading, |it| it.pass(Asked::Resign)),
            (&Method::POST, "/handover") => {
                let Some(term) = term else { return Answer::not_leading() };
                let to = match parameter(request.uri(), "to") {
                    Some(to) => Some(to),
                    None => body(request).await,
                };
                match to.as_deref().map(str::trim) {
                    Some(to) if !to.is_empty() => match self.can_follow(to, &term).await {
                        Ok(()) => term.pass(Asked::HandOver(to.to_owned())),
                        Err(refused) => refused,
                    },
                    Some(_) | None => {
                        Answer::text(StatusCode::BAD_REQUEST, "say to whom, in the body or as ?to=: a candidate's name")
                    }
                }
            }
            (&Method::PUT, "/value") => {
                let Some(term) = term else { return Answer::not_leading() };
                let Some(value) = body(request).await else {
                    return Answer::text(StatusCode::BAD_REQUEST, "the value must be text of at most 64 KiB");
                };
                let (answer, answered) = oneshot::channel();
                let _ = term.asked.send(Asked::Publish(value, answer));
                match answered.await {
                    Ok(None) => Answer::text(StatusCode::OK, "published"),
                    Ok(Some(why)) => Answer::text(StatusCode::BAD_GATEWAY, why),
                    Err(_) => Answer::not_leading(),
                }
            }
            (&Method::POST, "/stopped") => match (self.stops, term) {
                (Stops::AreSeen, _) => Answer::text(StatusCode::CONFLICT, "this process sees by itself when its command is dead"),
                (Stops::AreSaid, None) => Answer::not_leading(),
                (Stops::AreSaid, Some(term)) => term.hear_of_stop(parameter(request.uri(), "token").as_deref()),
            },
            (_, _) => Answer::text(StatusCode::NOT_FOUND, QUESTIONS),
        }
    }

    /// Whether somebody of this name can take the seat: for nobody the work is not stopped.
    async fn can_follow(&self, to: &str, term: &Term) -> Result<(), Answer> {
        if ask::is_called(&term.identity, to) {
            return Err(Answer::text(StatusCode::CONFLICT, format!("{to} leads already")));
        }
        let unseen = |why: &str| {
            let what = format!(
                "cannot see whether {to} waits, for {why}: ask again, or POST /resign to leave the seat to whoever is next"
            );
            Answer::text(StatusCode::SERVICE_UNAVAILABLE, what)
        };
        let election = self.electorate.get().ok_or_else(|| unseen("the engine has not answered yet"))?;
        if !election.guarantees().lists_candidates {
            return Ok(());
        }
        match tokio::time::timeout(LOOK_WITHIN, election.look()).await {
            Ok(Ok(board)) => ask::waits(&board, to, &self.election).map_err(|what| {
                Answer::text(StatusCode::NOT_FOUND, format!("{what}; POST /resign leaves the seat to whoever is next"))
            }),
            Ok(Err(why)) => Err(unseen(&why.to_string())),
            Err(_) => Err(unseen("the engine does not answer")),
        }
    }

    async fn leader(&self) -> Answer {
        let unseen = |why: &str| {
            let leader = json!({ "election": self.election, "leader": null, "why": why });
            Answer::json(StatusCode::SERVICE_UNAVAILABLE, &leader)
        };
        let Some(mut observer) = self.observer() else { return unseen("the engine has not answered yet") };
        let own = self.term().as_ref().filter(|it| !it.left().is_zero()).map(|it| it.watcher.token());
        let looked = tokio::time::timeout(LOOK_WITHIN, async {
            let mut leader = observer.leader().await;
            // Who has just been elected knows it before it sees it.
            while own.is_some_and(|own| leader.as_ref().is_none_or(|it| it.token < own)) {
                leader = observer.next().await;
            }
            leader
        });
        match looked.await {
            Ok(leader) => {
                let status = if leader.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
                Answer::json(status, &self.describe(leader.as_ref()))
            }
            Err(_) => unseen("the engine does not answer"),
        }
    }

    /// Who leads, as the engine shows it.
    pub(super) fn describe(&self, leader: Option<&incumbent::engine::Leader>) -> Value {
        json!({ "election": self.election, "leader": leader.map(describe::leader) })
    }

    /// How the node is that this process is, among peers.
    async fn node(&self) -> Option<Value> {
        tokio::time::timeout(LOOK_WITHIN, self.electorate.get()?.report()).await.ok().flatten()
    }

    async fn figures(&self) -> Answer {
        let mut text = String::new();
        let encoded = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        if let Some(node) = self.node().await {
            super::node_figures::add(&mut text, &node);
        }
        match encoded {
            Ok(()) => Answer { status: StatusCode::OK, kind: "application/openmetrics-text; version=1.0.0; charset=utf-8", text },
            Err(why) => Answer::text(StatusCode::INTERNAL_SERVER_ERROR, why.to_string()),
        }
    }

    fn events(self: Arc<Self>, closing: watch::Receiver<bool>) -> Response<Body> {
        let Ok(place) = Arc::clone(&self.listeners).try_acquire_owned() else {
            let full = Full::new(Bytes::from_static(b"too many listen already\n"));
            let mut response = Response::new(Either::Left(full));
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            return response;
        };
        let (sender, body) = Channel::new(1);
        tokio::spawn(async move {
            events::tell(self, sender, closing).await;
            drop(place);
        });
        events::response(Either::Right(body))
    }
}

impl Term {
    fn pass(&self, asked: Asked) -> Answer {
        match self.asked.send(asked) {
            Ok(()) => Answer::text(StatusCode::ACCEPTED, "the work is told to stop; the seat is given back when it has"),
            Err(_) => Answer::not_leading(),
        }
    }

    fn hear_of_stop(&self, token: Option<&str>) -> Answer {
        let own = self.watcher.token();
        if token.is_some_and(|it| it.parse() != Ok(own.get())) {
            return Answer::text(StatusCode::CONFLICT, format!("that was another leadership: this one has token {own}"));
        }
        match (&self.stage, self.state()) {
            (Stage::Stopped, _) => Answer::text(StatusCode::OK, "so it is known"),
            // Whoever was told to stop may say that it has, also when its time has passed by then.
            (Stage::Stopping(_), _) | (Stage::Entering | Stage::Working, "stopping") => match self.asked.send(Asked::Stopped) {
                Ok(()) => Answer::text(StatusCode::OK, "the seat is given back"),
                Err(_) => Answer::text(StatusCode::CONFLICT, "too late: the seat is free when its time has passed"),
            },
            (Stage::Entering | Stage::Working, _) => {
                Answer::text(StatusCode::CONFLICT, "nobody was told to stop; POST /resign does so")
            }
        }
    }
}

fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A parameter of the address, if it is there.
fn parameter(uri: &Uri, name: &str) -> Option<String> {
    let pairs = uri.query()?.split('&').filter_map(|it| it.split_once('='));
    let (_, value) = pairs.into_iter().find(|(it, _)| *it == name)?;
    percent_decode_str(value).decode_utf8().ok().map(Into::into)
}

async fn body(request: Request<Incoming>) -> Option<String> {
    let body = tokio::time::timeout(BODY_WITHIN, Limited::new(request.into_body(), BODY_MAX).collect()).await.ok()?.ok()?;
    String::from_utf8(body.to_bytes().to_vec()).ok()
}
