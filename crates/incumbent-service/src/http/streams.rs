//! Telling without being asked: Server-Sent Events from any revision that is kept, without a hole and without a repetition.
//!
//! `id` is the revision up to which all was told, and stands on the last event of a revision only: whoever comes back with it as `Last-Event-ID` goes on with the next revision,
//! and never in the middle of one. A stream begins with its `id`, so that one which breaks before the first event is resumed where it began. What cannot be told any more is an event
//! of its own, `lagged`, with an `id` from which the stream can go on.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Channel;
use http_body_util::channel::Sender;
use hyper::StatusCode;
use hyper::header::HeaderMap;
use incumbent_store::refusal::Refusal;
use incumbent_store::watch::Interest;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{interval_at, timeout};

use super::address::Parameters;
use super::failure::Failure;
use super::limits::{READ_WITHIN, RECONNECT_AFTER, RETRY_AFTER, SIGN_OF_LIFE};
use super::petition::{self, Petition};
use super::shapes::id;
use super::views;
use crate::server::{Batch, NotNow, Watch, WatchEnd, Why};

/// Events are gathered up to so many bytes before they are sent.
const GATHERED_BYTES: usize = 64 << 10;

/// What browsers send when they come back.
const LAST_EVENT_ID: &str = "last-event-id";

/// Opens a stream.
pub(super) async fn open(
    petition: Petition,
    interest: Interest,
    headers: &HeaderMap,
    asked: &Parameters,
) -> Result<Channel<Bytes>, Failure> {
    let from = match resumed(headers)?.or(asked.whole("from")).filter(|it| *it > 0) {
        Some(from) => from,
        // Said, so that it can be resumed: "from now on" would be another now then.
        None => petition.status().await?.revision + 1,
    };
    let Ok(place) = Arc::clone(&petition.desk.streams).try_acquire_owned() else {
        let failure = Failure::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "too_many_streams",
            "as many listen to this node already as may",
            "listen to another node, or share a stream",
        );
        return Err(Failure { retry_after: Some(RETRY_AFTER), ..failure });
    };
    let watch = petition.watch(interest.clone(), from).await?;
    let (to, body) = Channel::new(1);
    tokio::spawn(Stream { petition, interest, next: from, to, _place: place }.tell(watch));
    Ok(body)
}

/// The revision from which a stream goes on that was there before.
fn resumed(headers: &HeaderMap) -> Result<Option<u64>, Failure> {
    let Some(header) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let last = header.to_str().ok().and_then(id).and_then(|it| it.checked_add(1));
    last.map(Some).ok_or_else(|| {
        Failure::malformed("the header Last-Event-ID is no revision", "send the last id that was received, or leave it out")
    })
}

struct Stream {
    petition: Petition,
    interest: Interest,
    /// All before it was told.
    next: u64,
    to: Sender<Bytes>,
    _place: OwnedSemaphorePermit,
}

/// Nobody listens any more.
struct Gone;

impl Stream {
    async fn tell(mut self, watch: Watch) {
        // How it ends is the listener's business.
        let _ = self.tell_all(watch).await;
    }

    async fn tell_all(&mut self, mut watch: Watch) -> Result<(), Gone> {
        let begun = format!("retry: {}\nid: {}\n: from revision {}\n\n", RECONNECT_AFTER.as_millis(), self.next - 1, self.next);
        self.send(begun).await?;
        let mut signs = interval_at(tokio::time::Instant::now() + SIGN_OF_LIFE, SIGN_OF_LIFE);
        let visitor = Arc::clone(&self.petition.visitor);
        let mut withdrawn = visitor.withdrawn();
        loop {
            let news = tokio::select! {
                news = watch.next() => news,
                _ = signs.tick() => {
                    self.send(": alive\n\n".to_owned()).await?;
                    continue;
                }
                () = &mut withdrawn => {
                    let why = Failure::new(StatusCode::UNAUTHORIZED, "no_token", "the token was withdrawn, or its rights have changed", "connect again");
                    return self.end("withdrawn", None, &why).await;
                }
            };
            match news {
                Ok(batch) => self.tell_batch(&batch).await?,
                // There was much to tell, or its reader was slow. What it has not been told is perhaps kept still.
                Err(WatchEnd::Behind) => match self.petition.watch(self.interest.clone(), self.next).await {
                    Ok(again) => watch = again,
                    Err(failure) => return self.end("refused", None, &failure).await,
                },
                Err(WatchEnd::Refused(refusal)) => return self.refuse(refusal).await,
                Err(WatchEnd::NodeEnded) => {
                    let closing = NotNow { why: Why::Closing, leader: None };
                    return self.end("closing", None, &closing.into()).await;
                }
            }
        }
    }

    async fn tell_batch(&mut self, batch: &Batch) -> Result<(), Gone> {
        let mut text = String::new();
        for (place, event) in batch.events.iter().enumerate() {
            let (name, told) = views::event(event);
            let is_last = place + 1 == batch.events.len();
            let ends_revision = batch.events.get(place + 1).is_some_and(|it| it.revision != event.revision);
            if is_last {
                text.push_str(&format!("id: {}\n", batch.revision));
            } else if ends_revision {
                text.push_str(&format!("id: {}\n", event.revision));
            }
            text.push_str(&format!("event: {name}\ndata: {told}\n\n"));
            if text.len() >= GATHERED_BYTES {
                self.send(std::mem::take(&mut text)).await?;
            }
        }
        self.next = batch.revision + 1;
        if text.is_empty() { Ok(()) } else { self.send(text).await }
    }

    async fn refuse(&mut self, refusal: Refusal) -> Result<(), Gone> {
        let is_lost = matches!(refusal, Refusal::Lagged(_) | Refusal::Compacted(_));
        let failure = Failure::from(refusal);
        if !is_lost {
            return self.end("refused", None, &failure).await;
        }
        // Whoever reads how things stand now, and goes on from here, misses nothing: what comes later is told, what was before is read.
        match petition::status(&self.petition.desk).await {
            Ok(status) => self.end("lagged", Some(status.revision), &failure).await,
            Err(ended) => self.end("closing", None, &ended).await,
        }
    }

    /// The last word of a stream.
    async fn end(&mut self, name: &str, id: Option<u64>, why: &Failure) -> Result<(), Gone> {
        let id = id.map_or(String::new(), |it| format!("id: {it}\n"));
        self.send(format!("{id}event: {name}\ndata: {}\n\n", why.document())).await
    }

    async fn send(&mut self, text: String) -> Result<(), Gone> {
        match timeout(READ_WITHIN, self.to.send_data(text.into())).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Gone),
        }
    }
}
