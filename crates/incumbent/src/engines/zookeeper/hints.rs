//! Hints: streams that say when to look again. They may miss things; the line decides.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use futures_util::FutureExt;
use futures_util::stream::BoxStream;
use zookeeper_client::{Client, Error as Fault, EventType, OneshotWatcher, Stat};

use super::core::{Candidacy, Core, Stage};
use super::fault::explain;
use super::session::Session;
use crate::engine::{Bid, Error};
use crate::engines::watching::{Watching, hints_of};
use crate::name::Name;

/// Hints for one who stands in line or holds the seat: of the node before it; of its own node and the ledger.
pub(super) fn for_bidder(core: Arc<Core>, election: &Name, bid: &Bid) -> BoxStream<'static, Result<(), Error>> {
    let candidacy = core.candidacy(election, bid);
    hints_of(Bidder { core, candidacy, told: None, ledger: None })
}

struct Bidder {
    core: Arc<Core>,
    candidacy: Arc<Candidacy>,
    /// The node whose end was told of last.
    told: Option<String>,
    /// The change of the ledger that was told of last.
    ledger: Option<i64>,
}

impl Watching for Bidder {
    async fn change(&mut self) -> Result<(), Error> {
        let mut stages = self.candidacy.stage.subscribe();
        loop {
            let stage = stages.borrow_and_update().clone();
            let hinted = match stage {
                Stage::Absent => None,
                Stage::Waiting { session, ahead, .. } => match live(&session) {
                    Some(session) if self.told.as_ref() != Some(&ahead) => tokio::select! {
                        ended = self.wait_for_end(&session, &ahead) => Some(ended),
                        _ = stages.changed() => continue,
                    }
                    .map(|ended| ended.map(|()| self.tell_end_of(ahead))),
                    Some(_) | None => None,
                },
                Stage::Seated { session, child } => match live(&session) {
                    Some(session) if self.told.as_ref() != Some(&child) => tokio::select! {
                        changed = self.wait_for_change(&session, &child) => Some(changed),
                        _ = stages.changed() => continue,
                    }
                    .map(|changed| {
                        changed.map(|seen| match seen {
                            Seen::OwnNodeGone => self.told = Some(child),
                            Seen::Ledger(change) => self.ledger = change,
                        })
                    }),
                    Some(_) | None => None,
                },
            };
            match hinted {
                Some(outcome) => return outcome,
                // Nothing to watch until the next claim.
                None => {
                    if stages.changed().await.is_err() {
                        return Err(Error::refused("no longer in line"));
                    }
                }
            }
        }
    }
}

impl Bidder {
    fn tell_end_of(&mut self, ahead: String) {
        self.candidacy.moved.store(true, Ordering::Relaxed);
        self.told = Some(ahead);
    }

    async fn wait_for_end(&self, session: &Session, child: &str) -> Result<(), Error> {
        let path = self.core.paths.candidate(&self.candidacy.election, child);
        loop {
            let (stat, watcher) = watched_stat(session, &path).await?;
            if stat.is_none() || changed(watcher).await? == Change::Removed {
                return Ok(());
            }
        }
    }

    async fn wait_for_change(&self, session: &Session, child: &str) -> Result<Seen, Error> {
        let own = self.core.paths.candidate(&self.candidacy.election, child);
        let ledger = self.core.paths.ledger(&self.candidacy.election);
        loop {
            let (stat, own_watcher) = watched_stat(session, &own).await?;
            if stat.is_none() {
                return Ok(Seen::OwnNodeGone);
            }
            let (stat, ledger_watcher) = watched_stat(session, &ledger).await?;
            let change = stat.map(|it| it.mzxid);
            if change != self.ledger {
                return Ok(Seen::Ledger(change));
            }
            tokio::select! {
                event = changed(own_watcher) => event?,
                event = changed(ledger_watcher) => event?,
            };
        }
    }
}

enum Seen {
    OwnNodeGone,
    Ledger(Option<i64>),
}

/// Hints for one who only looks: of everything. The first comes at once, so that nothing is missed between looking and watching.
pub(super) fn for_all(core: Arc<Core>, election: &Name) -> BoxStream<'static, Result<(), Error>> {
    hints_of(Watcher { core, election: election.clone(), seen: None })
}

struct Watcher {
    core: Arc<Core>,
    election: Name,
    /// What was there when the last hint was given: the line, and the changes of election and ledger.
    seen: Option<(Option<i64>, Option<i64>)>,
}

impl Watching for Watcher {
    async fn change(&mut self) -> Result<(), Error> {
        loop {
            let session = self.core.any_session().await?;
            let ledger = self.core.paths.ledger(&self.election);
            let (line, line_watcher) = self.line(&session).await?;
            let (stat, ledger_watcher) = watched_stat(&session, &ledger).await?;
            let now = (line, stat.map(|it| it.mzxid));
            if self.seen != Some(now) {
                self.seen = Some(now);
                return Ok(());
            }
            // Whoever only watches keeps no session open.
            drop(session);
            tokio::select! {
                event = changed(line_watcher) => event?,
                event = changed(ledger_watcher) => event?,
            };
        }
    }
}

impl Watcher {
    /// The last change of the line; `None` if there is no such election yet.
    async fn line(&self, session: &Session) -> Result<(Option<i64>, OneshotWatcher), Error> {
        let path = self.core.paths.election(&self.election);
        loop {
            match session.request(|client: &Client| client.get_and_watch_children(&path)).await {
                Ok((_, stat, watcher)) => return Ok((Some(stat.pzxid), watcher)),
                Err(Fault::NoNode) => {}
                Err(why) => return Err(explain(why, &format!("watching {path}"))),
            }
            let (stat, watcher) = watched_stat(session, &path).await?;
            if stat.is_none() {
                return Ok((None, watcher));
            }
        }
    }
}

async fn watched_stat(session: &Session, path: &str) -> Result<(Option<Stat>, OneshotWatcher), Error> {
    let answer = session.request(|client| client.check_and_watch_stat(path)).await;
    answer.map_err(|why| explain(why, &format!("watching {path}")))
}

/// What happened to a node.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Change {
    Removed,
    Other,
}

/// Waits for the event. One of the session is its end: a watch survives that a connection is lost.
async fn changed(watcher: OneshotWatcher) -> Result<Change, Error> {
    // The client panics if the runtime in which the session lives ends before those who watch.
    let event = AssertUnwindSafe(watcher.changed()).catch_unwind().await;
    match event.map(|it| it.event_type) {
        Ok(EventType::NodeDeleted) => Ok(Change::Removed),
        Ok(EventType::NodeCreated | EventType::NodeDataChanged | EventType::NodeChildrenChanged) => Ok(Change::Other),
        Ok(EventType::Session) | Err(_) => Err(explain(Fault::SessionExpired, "watching")),
    }
}

fn live(session: &Weak<Session>) -> Option<Arc<Session>> {
    session.upgrade().filter(|it| !it.is_over())
}
