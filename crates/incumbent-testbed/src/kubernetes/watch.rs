//! Watches: what was, if asked for, then every change in its order, bookmarks in between, until the client or the time ends it.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use http_body_util::channel::{Channel, Sender};
use hyper::body::Bytes;
use hyper::header::CONTENT_TYPE;
use hyper::{Response, StatusCode};
use tokio::time::Instant;

use super::Cluster;
use super::selector::Selector;
use super::status::Status;
use super::store::Change;
use super::wire::{self, Event, Form};
use crate::serving::{Ask, Reply, locked};

/// Events that wait for a slow client before the server waits too.
const BACKLOG: usize = 16;

/// A watch that does not say ends by itself after so long; the real server draws between this and twice as much.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(1800);

/// The last bookmark comes this long before the end, so that the client can go on from there.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bookmarks {
    Wanted,
    Unwanted,
}

struct Watch {
    cluster: Arc<Cluster>,
    selector: Selector,
    form: Form,
    bookmarks: Bookmarks,
    /// Everything up to here has been told.
    told: u64,
    ends: Instant,
}

pub(super) fn answer(cluster: &Arc<Cluster>, ask: &Ask, selector: Selector, form: Form) -> Result<Reply, Status> {
    let version = match ask.parameter("resourceVersion").as_deref() {
        None | Some("" | "0") => None,
        Some(text) => Some(text.parse::<u64>().map_err(|_| Status::version_malformed(text))?),
    };
    let truth = |name: &str| ask.parameter(name).is_some_and(|it| it == "true" || it == "1");
    let seconds = ask.parameter("timeoutSeconds").and_then(|it| it.parse().ok()).filter(|it| *it > 0);
    let (sender, body) = Channel::<Bytes, std::convert::Infallible>::new(BACKLOG);
    let mut watch = Watch {
        cluster: cluster.clone(),
        selector,
        form,
        bookmarks: if truth("allowWatchBookmarks") { Bookmarks::Wanted } else { Bookmarks::Unwanted },
        told: version.unwrap_or(0),
        ends: Instant::now() + seconds.map_or(TIMEOUT_DEFAULT, Duration::from_secs),
    };
    // Without a version a watch begins with what is; with one only if it asks for that.
    let ends_initial = truth("sendInitialEvents");
    let initial = if version.is_none() || ends_initial { watch.initial(ends_initial) } else { Vec::new() };
    tokio::spawn(async move {
        // An error is a client that went away.
        let _ = watch.run(sender, initial).await;
    });
    let mut reply = Response::new(body.boxed_unsync());
    *reply.status_mut() = StatusCode::OK;
    wire::set(&mut reply, CONTENT_TYPE.as_str(), form.watch_content_type());
    Ok(reply)
}

struct Gone;

impl Watch {
    fn initial(&mut self, ends_initial: bool) -> Vec<Event> {
        let store = locked(&self.cluster.store);
        self.told = store.version();
        let leases = store.leases().values().filter(|it| self.selector.matches(it)).cloned();
        let mut events: Vec<Event> = leases.map(Event::Added).collect();
        if ends_initial && self.bookmarks == Bookmarks::Wanted {
            events.push(Event::Bookmark { version: self.told, ends_initial: true });
        }
        events
    }

    async fn run(mut self, mut sender: Sender<Bytes>, initial: Vec<Event>) -> Result<(), Gone> {
        let mut changed = self.cluster.changed.subscribe();
        self.send(&mut sender, initial).await?;
        let every = self.cluster.bookmark_every;
        let mut bookmark_at = (Instant::now() + every).min(self.ends.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(self.ends));
        loop {
            let news = self.news();
            let expired = matches!(news.last(), Some(Event::Error(_)));
            self.send(&mut sender, news).await?;
            if expired {
                return Ok(());
            }
            tokio::select! {
                // The sender lives as long as the cluster, and that as long as this.
                _ = changed.changed() => {}
                () = tokio::time::sleep_until(bookmark_at), if self.bookmarks == Bookmarks::Wanted => {
                    let bookmark = Event::Bookmark { version: self.told, ends_initial: false };
                    self.send(&mut sender, vec![bookmark]).await?;
                    bookmark_at = Instant::now() + every;
                }
                () = tokio::time::sleep_until(self.ends) => return Ok(()),
            }
        }
    }

    /// What happened since it last looked. If that is forgotten already, the last of it is an error.
    fn news(&mut self) -> Vec<Event> {
        let store = locked(&self.cluster.store);
        let events = match store.changes_since(self.told) {
            Ok(changes) => changes.filter_map(|it| self.seen(it)).collect(),
            Err(status) => vec![Event::Error(status)],
        };
        // A client may be ahead of us, when it comes from another server: it is not set back.
        self.told = self.told.max(store.version());
        events
    }

    /// A change as one sees it who looks at some Leases only: one that begins to match is new, one that ceases to is gone.
    fn seen(&self, change: &Change) -> Option<Event> {
        let before = change.before.as_ref().filter(|it| self.selector.matches(it));
        let after = change.after.as_ref().filter(|it| self.selector.matches(it));
        match (before, after) {
            (None, None) => None,
            (None, Some(after)) => Some(Event::Added(after.clone())),
            (Some(_), Some(after)) => Some(Event::Modified(after.clone())),
            (Some(before), None) => {
                let mut last = before.clone();
                last.metadata.resource_version = change.version.to_string();
                Some(Event::Deleted(last))
            }
        }
    }

    async fn send(&self, sender: &mut Sender<Bytes>, events: Vec<Event>) -> Result<(), Gone> {
        for event in events {
            sender.send_data(Bytes::from(wire::event(self.form, &event))).await.map_err(|_| Gone)?;
        }
        Ok(())
    }
}
