//! What whoever is not let in is answered, without having been asked what it wants.

use std::fmt;

use hyper::StatusCode;

use super::failure::Failure;
use super::limits::RETRY_AFTER;

/// The whole answer, as bytes: the connection ends behind it.
pub(crate) fn crowded(why: &impl fmt::Display) -> Vec<u8> {
    let what_to_do = "try again later, or ask another node";
    let failure = Failure::new(StatusCode::SERVICE_UNAVAILABLE, "full", why.to_string(), what_to_do);
    let body = Failure { retry_after: Some(RETRY_AFTER), ..failure }.document().to_string();
    let (len, after) = (body.len(), RETRY_AFTER.as_secs());
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {len}\r\nretry-after: {after}\r\nconnection: close\r\n\r\n"
    );
    (head + &body).into_bytes()
}
