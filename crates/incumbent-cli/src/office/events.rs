//! Telling without being asked: Server-Sent Events, `leader` when somebody else leads or nobody does, `status` when this process' own state changes.
//!
//! Whoever is slow misses what was in between, and never the last.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::channel::Sender;
use hyper::Response;
use hyper::body::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use serde_json::Value;
use tokio::sync::watch;

use super::Desk;
use super::answers::Body;
use super::door::closed;

/// So often something is sent in any case, by which both sides notice that the other is gone.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

pub(super) fn response(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Tells until nobody listens any more, or the door is closed. Begins with what is.
pub(super) async fn tell(desk: Arc<Desk>, mut to: Sender<Bytes>, mut closing: watch::Receiver<bool>) {
    let mut news = desk.news.subscribe();
    let mut observer = None;
    let mut told = None;
    // An interval, because news come more often than that and would put off a sleep for ever.
    let mut signs = tokio::time::interval(SIGN_OF_LIFE);
    loop {
        news.mark_unchanged();
        let status = desk.status();
        if told.as_ref() != Some(&status) {
            if send(&mut to, &event("status", &status)).await.is_none() {
                return;
            }
            told = Some(status);
        }
        if observer.is_none() {
            observer = desk.observer();
        }
        let left = desk.term().as_ref().map(super::Term::left).filter(|it| !it.is_zero());
        let sent = tokio::select! {
            () = closed(&mut closing) => return,
            _ = news.changed() => Some(()),
            () = tokio::time::sleep(left.unwrap_or_default()), if left.is_some() => Some(()),
            leader = async {
                match &mut observer {
                    Some(observer) => observer.next().await,
                    None => std::future::pending().await,
                }
            } => send(&mut to, &event("leader", &desk.describe(leader.as_ref()))).await,
            _ = signs.tick() => send(&mut to, ":\n\n").await,
        };
        if sent.is_none() {
            return;
        }
    }
}

fn event(name: &str, value: &Value) -> String {
    format!("event: {name}\ndata: {value}\n\n")
}

async fn send(to: &mut Sender<Bytes>, text: &str) -> Option<()> {
    to.send_data(Bytes::from(text.to_owned())).await.ok()
}
