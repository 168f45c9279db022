//! Sessions that are kept alive: all of a process by one message, whatever their number.
//!
//! A session that wished to end with its connection ends as soon as a node hears from this machine that the connection is closed, without a goodbye: so a process that dies gives its seats
//! back at once. Nobody else can say that but who forges packets: a session that must exclude others even then does not wish it, and has its deadline alone. A connection that we leave,
//! or that a node closes, ends no session.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use incumbent_store::command::{Command, EndSession, KeepAlive};
use incumbent_store::limits::Limits;
use incumbent_store::reply::Reply;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use crate::client::{Client, Done, submit};
use crate::docket::Docket;
use crate::failure::Failure;

/// A session is kept alive so often in its ttl: one lost message, and the search for another node, must not cost it.
const BEATS: u32 = 3;
/// Those whose turn comes this much before their own time, as a part of their ttl, go with the others.
const EARLY: u32 = 6;

/// How a session is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Life {
    /// It lives at least until its ttl is over, counted from this: the time on the client's clock when the last message that kept it alive was *sent*.
    Kept(Duration),
    /// It has ended, and so has what was attached to it.
    Gone,
}

/// An open session that is kept alive until this is dropped; then its deadline ends it.
#[must_use = "a session that is dropped is not kept alive"]
pub struct Session {
    client: Client,
    lease: Lease,
    ttl: Duration,
    life: watch::Receiver<Life>,
}

impl Session {
    pub(crate) fn begin(client: &Client, lease: Lease, ttl: Duration, sent: Duration) -> Session {
        let life = client.core().keeper.keep(lease.id, ttl, sent);
        Session { client: client.clone(), lease, ttl, life }
    }

    /// Its number.
    pub fn id(&self) -> u64 {
        self.lease.id
    }

    /// Its ttl.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// How it is, as far as is known.
    pub fn life(&self) -> Life {
        *self.life.borrow()
    }

    /// Until it was kept alive once more, or has ended. Also once the client is closed: nobody keeps it alive then.
    pub async fn changed(&mut self) -> Life {
        if self.life() == Life::Gone || self.life.changed().await.is_err() {
            return Life::Gone;
        }
        *self.life.borrow_and_update()
    }

    /// Ends it, because the work that it stood for has ended.
    ///
    /// # Errors
    /// If it is not known to have ended. Its deadline ends it.
    pub async fn end(self, reason: &str) -> Result<Done, Failure> {
        self.lease.finish(reason).await
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.client.core().keeper.forget(self.lease.id);
    }
}

/// An open session that whoever has it keeps alive itself. Dropped, it ends with no connection any more; its deadline ends it.
#[must_use = "a session that nobody has is not kept alive"]
pub struct Lease {
    client: Client,
    id: u64,
}

impl Lease {
    pub(crate) fn begin(client: &Client, id: u64) -> Lease {
        Lease { client: client.clone(), id }
    }

    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Ends it, because the work that it stood for has ended.
    ///
    /// # Errors
    /// If it is not known to have ended. Its deadline ends it.
    pub async fn end(self, reason: &str) -> Result<Done, Failure> {
        self.finish(reason).await
    }

    async fn finish(&self, reason: &str) -> Result<Done, Failure> {
        let end = EndSession { session: self.id, reason: reason.to_owned(), unclean: false, binding: None };
        self.client.submit(Command::EndSession(end)).await
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.client.core().docket.unbound(self.id);
    }
}

/// Keeps sessions alive.
#[derive(Default)]
pub(crate) struct Keeper {
    rounds: Mutex<Rounds>,
    /// Somebody's turn comes earlier than was known.
    sooner: Notify,
}

#[derive(Default)]
struct Rounds {
    sessions: BTreeMap<u64, Kept>,
    /// Whose turn comes when.
    turns: BTreeSet<(Instant, u64)>,
}

struct Kept {
    ttl: Duration,
    due: Instant,
    life: watch::Sender<Life>,
}

impl Keeper {
    fn rounds(&self) -> MutexGuard<'_, Rounds> {
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, id: u64, ttl: Duration, sent: Duration) -> watch::Receiver<Life> {
        let (life, receiver) = watch::channel(Life::Kept(sent));
        let due = Instant::now() + ttl / BEATS;
        let mut rounds = self.rounds();
        let sooner = rounds.turns.first().is_none_or(|(first, _)| due < *first);
        rounds.remove(id);
        rounds.turns.insert((due, id));
        rounds.sessions.insert(id, Kept { ttl, due, life });
        drop(rounds);
        if sooner {
            self.sooner.notify_one();
        }
        receiver
    }

    fn forget(&self, id: u64) {
        self.rounds().remove(id);
    }

    /// Those whose turn it is, or will be soon, and their shortest ttl. Each has another turn after a part of its ttl. And when the next turn is.
    fn take_due(&self, now: Instant) -> (Vec<u64>, Duration, Option<Instant>) {
        let mut guard = self.rounds();
        let rounds = &mut *guard;
        let (mut due, mut shortest) = (Vec::new(), Duration::MAX);
        let first = rounds.turns.first().filter(|(first, _)| *first <= now).and_then(|(_, id)| rounds.sessions.get(id));
        let until = first.map(|first| now + first.ttl / EARLY);
        while let Some((turn, id)) = rounds.turns.first().copied().filter(|(turn, _)| until.is_some_and(|until| *turn <= until)) {
            rounds.turns.remove(&(turn, id));
            let Some(kept) = rounds.sessions.get_mut(&id) else { continue };
            due.push(id);
            shortest = shortest.min(kept.ttl);
            kept.due = now + kept.ttl / BEATS;
        }
        rounds.turns.extend(due.iter().filter_map(|id| rounds.sessions.get(id).map(|kept| (kept.due, *id))));
        (due, shortest, rounds.turns.first().map(|(first, _)| *first))
    }

    /// What a message came to; `gone` in order.
    fn settle(&self, asked: &[u64], gone: &[u64], sent: Duration) {
        let mut rounds = self.rounds();
        for id in asked {
            if let Some(kept) = rounds.sessions.get(id).filter(|_| gone.binary_search(id).is_err()) {
                // A message that was overtaken by a later one takes nothing back.
                kept.life.send_if_modified(|life| match life {
                    Life::Kept(before) if *before >= sent => false,
                    Life::Gone => false,
                    Life::Kept(_) => {
                        *life = Life::Kept(sent);
                        true
                    }
                });
            }
        }
        for id in gone {
            if let Some(kept) = rounds.remove(*id) {
                kept.life.send_replace(Life::Gone);
            }
        }
    }
}

impl Rounds {
    fn remove(&mut self, id: u64) -> Option<Kept> {
        let kept = self.sessions.remove(&id)?;
        self.turns.remove(&(kept.due, id));
        Some(kept)
    }
}

/// Keeps the sessions of a client alive until it is closed.
pub(crate) async fn keep_alive(docket: Arc<Docket>, keeper: Arc<Keeper>) {
    loop {
        let (due, shortest, next) = keeper.take_due(Instant::now());
        for sessions in due.chunks(Limits::STANDARD.kept_alive_max) {
            let (docket, keeper, sessions) = (Arc::clone(&docket), Arc::clone(&keeper), sessions.to_vec());
            // Beside each other: an answer that is late must not keep the next from being sent.
            tokio::spawn(async move {
                let command = Command::KeepAlive(KeepAlive { sessions: sessions.clone() });
                if let Ok(Done { reply: Reply::KeptAlive(kept), sent, .. }) = submit(&docket, command, shortest).await {
                    let mut gone = kept.gone;
                    gone.sort_unstable();
                    keeper.settle(&sessions, &gone, sent);
                }
            });
        }
        let turn = async {
            match next {
                Some(next) => sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = turn => {}
            () = keeper.sooner.notified() => {}
            () = docket.closed() => {
                // Nobody keeps them alive any more, and whoever waits is told.
                *keeper.rounds() = Rounds::default();
                return;
            }
        }
    }
}
