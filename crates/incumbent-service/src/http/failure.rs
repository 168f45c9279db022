//! What went wrong, as clients are told: a code for programs, a sentence and what to do for people. One function for each kind of wrong, so that a code means one thing.
//!
//! The status says first whether it may have happened: 4xx it did not, and will not as it was asked; 503 it did not, try again; 504 it may have.

use std::time::Duration;

use hyper::StatusCode;
use incumbent_store::refusal::Refusal;
use serde_json::{Value, json};

use super::limits::RETRY_AFTER;
use crate::server::{NotNow, Unanswered, Why};

/// What went wrong.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Failure {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) message: Box<str>,
    pub(super) what_to_do: Box<str>,
    /// When to try again, if that helps.
    pub(super) retry_after: Option<Duration>,
    /// What else is said, for [`StatusCode::METHOD_NOT_ALLOWED`]: the methods.
    pub(super) allow: Option<Box<str>>,
    /// The key that was found where a guard did not hold; null if there is none.
    pub(super) found: Option<Box<Value>>,
}

impl Failure {
    pub(super) fn new(
        status: StatusCode,
        code: &'static str,
        message: impl Into<Box<str>>,
        what_to_do: impl Into<Box<str>>,
    ) -> Failure {
        let (message, what_to_do) = (message.into(), what_to_do.into());
        Failure { status, code, message, what_to_do, retry_after: None, allow: None, found: None }
    }

    /// What was asked makes no sense as it stands.
    pub(super) fn malformed(message: impl Into<Box<str>>, what_to_do: impl Into<Box<str>>) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, "malformed", message, what_to_do)
    }

    /// Nobody knows whether it was done.
    pub(super) fn unknown(message: &str) -> Failure {
        let what_to_do = "look how things stand; or repeat it with the same Idempotency-Key, if it had one: it is then done once";
        Failure::new(StatusCode::GATEWAY_TIMEOUT, "unknown", message, what_to_do)
    }

    /// Ours: the store has answered another question than was asked.
    pub(super) fn confused() -> Failure {
        Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "confused",
            "the node has given an answer to something else",
            "it is a fault of this program: report it, with what was asked",
        )
    }

    /// As it is told.
    pub(super) fn document(&self) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message, "what_to_do": self.what_to_do });
        if let Some(after) = self.retry_after {
            error["retry_after_ms"] = u64::try_from(after.as_millis()).unwrap_or(u64::MAX).into();
        }
        if let Some(found) = &self.found {
            error["found"] = Value::clone(found);
        }
        json!({ "error": error })
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        let (status, code, what_to_do) = told(&refusal);
        let mut failure = Failure::new(status, code, refusal.to_string(), what_to_do);
        if let Refusal::TooEarly(ms) = refusal {
            failure.retry_after = Some(Duration::from_millis(ms));
        }
        failure
    }
}

fn told(refusal: &Refusal) -> (StatusCode, &'static str, &'static str) {
    let conflict = StatusCode::CONFLICT;
    match refusal {
        Refusal::Malformed(_) => (StatusCode::BAD_REQUEST, "malformed", "correct the request"),
        Refusal::Limit { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "limit", "ask for less"),
        Refusal::SessionGone(_) => {
            (StatusCode::GONE, "session_gone", "open another session with POST /v1/sessions, and begin anew")
        }
        Refusal::SessionTaken(_) => (conflict, "session_taken", "leave the number out: the store then chooses one"),
        Refusal::NotInOffice(_) => {
            (conflict, "not_in_office", "stop what is done under this token; GET the election to see who leads")
        }
        Refusal::SeatsDiffer(_) => (conflict, "seats_differ", "say the same number of seats as the others"),
        Refusal::TooEarly(_) => (conflict, "too_early", "ask again later, or without after_tenure"),
        Refusal::AlreadyComplete(_) => (conflict, "already_complete", "do nothing: the job is done"),
        Refusal::TokensExhausted => (conflict, "tokens_exhausted", "begin a new election under another name"),
        Refusal::Occupied => (conflict, "occupied", "wait until nobody leads or waits"),
        Refusal::NoElection => (StatusCode::NOT_FOUND, "no_election", "look at the name: GET /v1/elections lists them"),
        Refusal::NoKey => (StatusCode::NOT_FOUND, "no_key", "look at the key: GET /v1/kv?prefix= lists them"),
        Refusal::NoParent => (conflict, "no_parent", "write the parent first"),
        Refusal::Aborted(_) => (conflict, "aborted", "nothing was changed: see at which number the transaction says abort"),
        Refusal::Forgotten => {
            (StatusCode::GATEWAY_TIMEOUT, "forgotten", "look how things stand, then POST /v1/clients for a new number")
        }
        Refusal::AnswerDropped(_) => (StatusCode::GATEWAY_TIMEOUT, "answer_dropped", "it was done: read what came of it"),
        Refusal::NumberUsed(_) => {
            (StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused", "give each request the next number of its client")
        }
        Refusal::Compacted(_) => {
            (StatusCode::GONE, "compacted", "read how things stand, and go on from the revision of the answer")
        }
        Refusal::Lagged(_) => (StatusCode::GONE, "lagged", "read how things stand, and go on from the revision of the answer"),
        Refusal::Future(_) => (conflict, "future", "ask for a revision that was reached"),
        Refusal::NotInLine(_) => {
            (conflict, "not_in_line", "name one who waits; or evict the leader, and the first in line leads")
        }
        Refusal::Denied(_) => (StatusCode::FORBIDDEN, "denied", "ask whoever runs the service for the right"),
    }
}

impl From<NotNow> for Failure {
    fn from(not_now: NotNow) -> Failure {
        let (code, what_to_do) = match not_now.why {
            Why::NoLeader => ("no_leader", "try again; if it lasts, look at GET /v1/status of each node"),
            Why::Superseded => ("superseded", "try again"),
            Why::NotLeading => ("not_leading", "ask the node that leads"),
            Why::Full => ("full", "try again, more slowly"),
            Why::ReadOnly if not_now.leader.is_none() => ("read_only", "make room on the disk of this node"),
            Why::ReadOnly => ("read_only", "make room on the disk of this node, or ask another node"),
            Why::Closing => ("closing", "ask another node"),
        };
        let failure = Failure::new(StatusCode::SERVICE_UNAVAILABLE, code, not_now.to_string(), what_to_do);
        Failure { retry_after: Some(RETRY_AFTER), ..failure }
    }
}

impl From<Unanswered> for Failure {
    fn from(unanswered: Unanswered) -> Failure {
        match unanswered {
            Unanswered::Refused(refusal) => refusal.into(),
            Unanswered::NotNow(not_now) => not_now.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use incumbent_store::refusal::RefusalOnWire;

    /// The status keeps the store's own promise, for every refusal there is.
    #[test]
    fn what_may_have_happened_is_504_and_nothing_else_is() {
        let mut codes = std::collections::BTreeSet::new();
        for code in 1..=22 {
            let refusal = Refusal::from_wire(RefusalOnWire { code, number: 7, what: "what".into() });
            let failure = Failure::from(refusal.clone());
            let expected = refusal.may_have_happened();
            assert_eq!(failure.status == StatusCode::GATEWAY_TIMEOUT, expected, "{refusal}");
            assert_eq!(failure.status.is_client_error(), !expected, "{refusal}");
            assert!(codes.insert(failure.code), "{} means two things", failure.code);
            assert!(!failure.what_to_do.is_empty() && !failure.message.is_empty());
        }
    }
}
