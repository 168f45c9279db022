//! One ZooKeeper session, shared by all elections of one ttl, and what it proves.
//!
//! **Problem.** The ensemble's leader counts a session's timeout. A client that is connected to a follower is answered by the follower, which
//! tells the leader of the sessions it has heard from with the next ping of theirs, every half tick. So an answer proves little: a follower
//! that is cut off answers reads for some ticks more, and `sync` is answered by a leader that has been deposed and does not know it yet.
//! A client that counts from such answers can believe in its session for seconds after another has its seat.
//!
//! **Insight.** A *write* that was acknowledged was committed by a quorum, so at its send no other leader was in office; and what follower and
//! leader say to each other is in order: whatever the follower had been told one exchange earlier, the leader knew when the write came.
//! So the leader knows of some touch of ours that is not much older than the write: by at most an exchange and our own pace.
//! The session is asked for that much longer than the ttl that is promised:
//!
//! ```text
//!   timeout of the session = ttl + exchange + timeout / 8      exchange = half a tick, or timeout / 4 if that is less
//! ```
//!
//! and a pause of ours that makes the last touch older than that is taken off the validity ([`Touches::counted_from`]).
//!
//! **Assumed**: a leader that commits our writes also pings its followers, every half tick; `tick-ms` in the URL is not less than the servers'
//! `tickTime`, unless `minSessionTimeout` is at its default of two ticks, in which case it does not matter.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent_protocol::time::Instant;
use tokio::sync::{Notify, watch};
use zookeeper_client::{Client, Error as Fault, SessionState};

use super::fault;
use crate::clock;
use crate::engine::Error;

/// A session. It ends when the last of its users has let it go.
pub(super) struct Session {
    pub(super) client: Client,
    terms: Terms,
    touches: Mutex<Touches>,
    /// Wakes whoever makes proofs.
    pub(super) proof_wanted: Arc<Notify>,
    /// Wakes whoever sweeps.
    pub(super) sweep_wanted: Arc<Notify>,
    proof: watch::Sender<Option<Proof>>,
}

/// A write that was sent at that instant was acknowledged, or failed.
#[derive(Clone, Debug)]
struct Proof {
    sent: Instant,
    /// From when the leader counts at the earliest, moved on by what it waits longer than was promised.
    counted_from: Result<Instant, Fault>,
}

impl Session {
    /// `asked` is an instant before the session was asked for.
    pub(super) fn new(client: Client, tick: Duration, asked: Instant) -> Session {
        let terms = Terms::granted(client.session_timeout(), tick);
        let touches = Mutex::new(Touches::since(asked, &terms));
        Session {
            client,
            terms,
            touches,
            proof_wanted: Arc::default(),
            sweep_wanted: Arc::default(),
            proof: watch::Sender::new(None),
        }
    }

    pub(super) fn id(&self) -> i64 {
        self.client.session_id().0
    }

    /// The ttl that it can promise.
    pub(super) fn promised(&self) -> Duration {
        self.terms.promised
    }

    /// How long to wait for an answer: after that the ensemble has forgotten the session.
    pub(super) fn patience(&self) -> Duration {
        self.terms.timeout
    }

    /// How often it is proven to live while that matters: a touch in every such span makes up for the follower's delay.
    pub(super) fn pace(&self) -> Duration {
        self.terms.timeout / 16
    }

    pub(super) fn is_over(&self) -> bool {
        self.client.state().is_terminated()
    }

    /// Waits until there is a connection. Requests without one would be queued, and carried out when nobody wants them any more.
    pub(super) async fn connected(&self) -> Result<(), Fault> {
        let mut states = self.client.state_watcher();
        let mut state = states.state();
        loop {
            match state {
                SessionState::SyncConnected | SessionState::ConnectedReadOnly => return Ok(()),
                SessionState::Expired => return Err(Fault::SessionExpired),
                SessionState::AuthFailed => return Err(Fault::AuthFailed),
                SessionState::Closed => return Err(Fault::ClientClosed),
                SessionState::Disconnected => state = states.changed().await,
            }
        }
    }

    /// Sends a request and waits for the answer, which is a sign of life to the ensemble.
    pub(super) async fn request<'a, T, F>(&'a self, make: impl FnOnce(&'a Client) -> F) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        self.connected().await?;
        let sent = clock::now();
        let answer = make(&self.client).await;
        if answer.as_ref().err().is_none_or(fault::is_answer) {
            self.touches.lock().expect("nobody panics with it").add(sent, clock::now());
        }
        answer
    }

    /// From when the ensemble has counted for a write that was sent then and has been acknowledged.
    pub(super) fn counted_from(&self, sent: Instant) -> Instant {
        self.touches.lock().expect("nobody panics with it").counted_from(sent)
    }

    /// Since when the leader of the ensemble, with a quorum behind it, counts this session's time, at the earliest. By a write that was not sent
    /// before `since`.
    pub(super) async fn proven(&self, since: Instant) -> Result<Instant, Fault> {
        let mut proofs = self.proof.subscribe();
        loop {
            if let Some(proof) = proofs.borrow_and_update().as_ref()
                && proof.sent >= since
            {
                return proof.counted_from.clone();
            }
            self.proof_wanted.notify_one();
            tokio::select! {
                changed = proofs.changed() => changed.expect("the session has the sender"),
                over = self.over() => return Err(over),
            }
        }
    }

    /// Resolves when the session has ended.
    pub(super) async fn over(&self) -> Fault {
        let mut states = self.client.state_watcher();
        let mut state = states.state();
        loop {
            match state {
                SessionState::SyncConnected | SessionState::ConnectedReadOnly | SessionState::Disconnected => {
                    state = states.changed().await;
                }
                SessionState::Expired => return Fault::SessionExpired,
                SessionState::AuthFailed => return Fault::AuthFailed,
                SessionState::Closed => return Fault::ClientClosed,
            }
        }
    }

    /// How long to wait until the next proof: many elections share one, and none waits for it noticeably.
    pub(super) fn until_next_proof(&self) -> Duration {
        let last = self.proof.borrow().as_ref().map(|it| it.sent);
        last.map_or(Duration::ZERO, |last| (last + self.terms.promised / 80) - clock::now())
    }

    /// Makes a proof: a transaction that checks that `path` exists and changes nothing. One at a time.
    pub(super) async fn prove(&self, path: &str) -> Result<(), Fault> {
        self.connected().await?;
        let sent = clock::now();
        let answer = self
            .request(|client| {
                let mut writer = client.new_multi_writer();
                let added = writer.add_check_version(path, -1);
                async move {
                    added?;
                    writer.commit().await.map_err(Fault::from)
                }
            })
            .await;
        // Without its node it proves nothing, and says nothing about the session either: it is made, and tried again.
        if let Err(Fault::NoNode) = answer {
            return Err(Fault::NoNode);
        }
        let counted_from = answer.map(|_| self.counted_from(sent));
        let outcome = counted_from.as_ref().map(|_| ()).map_err(Clone::clone);
        self.proof.send_replace(Some(Proof { sent, counted_from }));
        outcome
    }
}

/// What was asked of the ensemble and what follows from what it granted.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Terms {
    /// The session's timeout.
    timeout: Duration,
    /// How long a follower may keep what it has heard to itself.
    exchange: Duration,
    /// What is left of the timeout.
    promised: Duration,
}

impl Terms {
    fn granted(timeout: Duration, tick: Duration) -> Terms {
        let exchange = (tick / 2).min(timeout / 4);
        Terms { timeout, exchange, promised: timeout - timeout / 8 - exchange }
    }

    /// The session to ask for so that `ttl` can be promised, in whole milliseconds.
    pub(super) fn to_ask_for(ttl: Duration, tick: Duration) -> Duration {
        let with_a_short_tick = ttl * 8 / 5;
        let asked = ((ttl + tick / 2) * 8 / 7).min(with_a_short_tick);
        Duration::from_millis(crate::desk::whole_ms(asked) + 1)
    }
}

/// When the session was last heard of. Pure.
#[derive(Debug)]
struct Touches {
    exchange: Duration,
    reserve: Duration,
    apart: Duration,
    memory: Duration,
    /// Send and answer of requests, oldest first. The first is known to the leader.
    kept: VecDeque<(Instant, Instant)>,
}

impl Touches {
    /// The leader makes the session, so it knows of that at once.
    fn since(asked: Instant, terms: &Terms) -> Touches {
        Touches {
            exchange: terms.exchange,
            reserve: terms.timeout - terms.promised,
            apart: terms.timeout / 64,
            memory: terms.timeout / 2,
            kept: VecDeque::from([(asked, asked)]),
        }
    }

    fn add(&mut self, sent: Instant, answered: Instant) {
        if self.kept.back().is_some_and(|(last, _)| sent < *last + self.apart) {
            return;
        }
        self.kept.push_back((sent, answered));
        // A write that is under way was sent within the patience for it: what is older than that serves nobody.
        while self.kept.get(1).is_some_and(|(_, second)| *second + self.exchange + self.memory <= sent) {
            self.kept.pop_front();
        }
    }

    /// From when the leader has counted, for a write that was sent then and acknowledged.
    fn counted_from(&self, sent: Instant) -> Instant {
        let known = self.kept.iter().rev().find(|(_, answered)| *answered + self.exchange <= sent);
        let (known, _) = known.or(self.kept.front()).expect("the first is never taken away");
        sent.min(*known + self.reserve)
    }
}

/// What somebody who waits for a connection is told.
pub(super) fn not_connected(hosts: &str) -> Error {
    Error::refused(format!("not connected to ZooKeeper at {hosts}; it is tried again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn what_is_asked_for_is_enough_for_what_is_promised() {
        for (ttl_ms, tick_ms) in [(200, 100), (400, 2000), (3_000, 2000), (10_000, 2000), (60_000, 5000), (1, 1)] {
            let (ttl, tick) = (Duration::from_millis(ttl_ms), Duration::from_millis(tick_ms));
            let asked = Terms::to_ask_for(ttl, tick);
            let promised = Terms::granted(asked, tick).promised;
            assert!(promised >= ttl && promised <= ttl + ttl / 10 + Duration::from_millis(4), "{ttl:?} {promised:?}");
        }
    }

    #[test]
    fn a_write_counts_in_full_when_the_pace_was_kept() {
        let terms = Terms::granted(Duration::from_millis(16_000), Duration::from_millis(2000));
        assert_eq!(terms.promised, Duration::from_millis(13_000));
        let mut touches = Touches::since(at(0), &terms);
        for beat in 1..40 {
            touches.add(at(beat * 1000), at(beat * 1000 + 5));
            assert_eq!(touches.counted_from(at(beat * 1000)), at(beat * 1000));
        }
        assert!(touches.kept.len() < 16);
    }

    #[test]
    fn a_pause_is_taken_off() {
        let terms = Terms::granted(Duration::from_millis(16_000), Duration::from_millis(2000));
        let mut touches = Touches::since(at(0), &terms);
        touches.add(at(1000), at(1005));
        // Silent for ten seconds; the write is acknowledged, and the follower is cut off before it has told the leader of it.
        touches.add(at(11_000), at(11_005));
        assert_eq!(touches.counted_from(at(11_000)), at(1000 + 3000), "the leader frees the seat at 1 + 16, not before 4 + 13");
        touches.add(at(11_900), at(11_905));
        assert_eq!(touches.counted_from(at(11_900)), at(4000), "half a tick has not passed yet");
        touches.add(at(12_100), at(12_105));
        assert_eq!(touches.counted_from(at(12_100)), at(12_100));
    }
}
