//! One request at the desk: whatever it wants of the node goes through here, where its rights are asked, its number put on, and the node not waited for for ever.

use std::future::Future;
use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HeaderMap};
use incumbent_store::command::{Command, Request};
use incumbent_store::query::{Answer, Query};
use incumbent_store::reply::Reply;
use incumbent_store::watch::Interest;
use incumbent_traces::Context;
use tokio::time::timeout;

use super::Desk;
use super::border::{Denial, Visitor};
use super::failure::Failure;
use super::limits::ANSWER_WITHIN;
use super::shapes::id;
use crate::server::{Consistency, Handle, NodeStatus, NotNow, Outcome, Watch, Why};

/// The header that makes a command idempotent: `CLIENT-SEQUENCE`.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The header that says which trace a request belongs to.
const TRACEPARENT: &str = "traceparent";

/// One request, and who makes it.
pub(super) struct Petition {
    pub(super) desk: Arc<Desk>,
    pub(super) visitor: Arc<dyn Visitor>,
    pub(super) consistency: Consistency,
    /// Client and sequence, if the command is to be done once.
    pub(super) number: Option<(u64, u64)>,
    /// The span in whose trace it is told, if it is.
    pub(super) span: Option<Context>,
}

impl Petition {
    /// Does it, with the number of the request if it has one: the first command of a request, and the only one that must not be done twice.
    pub(super) async fn submit(&self, command: Command) -> Result<(Reply, u64), Failure> {
        let request = match self.number {
            Some((client, sequence)) => Request::numbered(client, sequence, command),
            None => Request::of(command),
        };
        self.submit_as(request).await
    }

    pub(super) async fn submit_as(&self, request: Request) -> Result<(Reply, u64), Failure> {
        let request = self.visitor.sign(request)?;
        match timeout(ANSWER_WITHIN, self.node().submit_within(request, self.span)).await {
            Ok(Outcome::Done { reply, revision }) => Ok((reply, revision)),
            Ok(Outcome::Refused(refusal)) => Err(refusal.into()),
            Ok(Outcome::NotNow(not_now)) => Err(not_now.into()),
            Ok(Outcome::Unknown) => Err(Failure::unknown("the cluster was interrupted: it may have been done")),
            Err(_) => Err(Failure::unknown("the cluster does not answer: it may have been done, or may yet be")),
        }
    }

    pub(super) async fn ask(&self, query: Query) -> Result<(Answer, u64), Failure> {
        self.ask_with(query, self.consistency).await
    }

    pub(super) async fn ask_with(&self, query: Query, consistency: Consistency) -> Result<(Answer, u64), Failure> {
        self.visitor.may_ask(&query)?;
        let answered = soon(self.node().ask_within(query, consistency, self.span)).await??;
        let answer = answered.answer.ok_or_else(Failure::confused)?;
        Ok((answer, answered.revision))
    }

    pub(super) async fn watch(&self, interest: Interest, from: u64) -> Result<Watch, Failure> {
        self.visitor.may_watch(&interest)?;
        soon(self.node().watch(interest, from)).await?.ok_or_else(ended)
    }

    /// The node, for whoever asks.
    fn node(&self) -> Handle {
        self.desk.handle.in_the_name_of(self.visitor.name())
    }

    pub(super) async fn status(&self) -> Result<NodeStatus, Failure> {
        status(&self.desk).await
    }
}

/// How the node is, for whoever needs no right to know it.
pub(super) async fn status(desk: &Desk) -> Result<NodeStatus, Failure> {
    soon(desk.handle.status()).await?.ok_or_else(ended)
}

fn ended() -> Failure {
    NotNow { why: Why::Closing, leader: None }.into()
}

/// A question does no harm: one that is not answered was not asked.
async fn soon<T>(answer: impl Future<Output = T>) -> Result<T, Failure> {
    timeout(ANSWER_WITHIN, answer).await.map_err(|_| {
        let failure = Failure::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "no_answer",
            "the node does not answer",
            "try again, or ask another node",
        );
        Failure { retry_after: Some(super::limits::RETRY_AFTER), ..failure }
    })
}

impl From<Denial> for Failure {
    fn from(denial: Denial) -> Failure {
        match denial {
            Denial::Stranger(why) => {
                Failure::new(StatusCode::UNAUTHORIZED, "no_token", why, "send the header Authorization: Bearer TOKEN")
            }
            Denial::NoRight(why) => {
                Failure::new(StatusCode::FORBIDDEN, "denied", why, "ask whoever runs the service for the right")
            }
        }
    }
}

/// The token that a request brings.
pub(super) fn token(headers: &HeaderMap) -> Result<Option<&str>, Failure> {
    let Some(header) = headers.get(AUTHORIZATION) else { return Ok(None) };
    let text = header.to_str().unwrap_or_default();
    // Never quoted in an answer: it is a secret, if a misspelt one.
    let token = text.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim());
    token.map(Some).ok_or_else(|| {
        Failure::new(
            StatusCode::UNAUTHORIZED,
            "no_token",
            "the header Authorization is no bearer's",
            "send Authorization: Bearer TOKEN",
        )
    })
}

/// The trace that a request is part of, if it says so and says it once (W3C Trace Context).
pub(super) fn caller(headers: &HeaderMap) -> Option<Context> {
    let mut told = headers.get_all(TRACEPARENT).iter();
    let context = Context::parse(told.next()?.to_str().ok()?.trim())?;
    told.next().is_none().then_some(context)
}

/// Client and sequence of a request that brings them.
pub(super) fn number(headers: &HeaderMap) -> Result<Option<(u64, u64)>, Failure> {
    let mut told = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(header) = told.next() else { return Ok(None) };
    if told.next().is_some() {
        // Whichever were taken, the next attempt might be told apart by the other one, and done twice.
        return Err(Failure::malformed("the header Idempotency-Key is there twice", "send it once"));
    }
    let pair = header.to_str().ok().and_then(|it| it.split_once('-'));
    let number = pair.and_then(|(client, sequence)| Some((id(client)?, id(sequence)?))).filter(|it| it.0 > 0 && it.1 > 0);
    number.map(Some).ok_or_else(|| {
        Failure::malformed(
            "the header Idempotency-Key is not CLIENT-SEQUENCE",
            "take a client's number from POST /v1/clients, and count its requests from 1: 17-1",
        )
    })
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn a_request_has_one_number_or_none() {
        let of = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(IDEMPOTENCY_KEY, HeaderValue::from_static(value));
            }
            number(&headers).map_err(|it| it.message)
        };
        assert_eq!((of(&[]), of(&["17-1"])), (Ok(None), Ok(Some((17, 1)))));
        for bad in [&["17"][..], &["0-1"], &["17-0"], &["17-1", "17-2"], &["17-1", "17-1"]] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }
}
