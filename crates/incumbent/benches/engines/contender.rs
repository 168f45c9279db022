//! One who contends for a seat with a connection of its own: by hand, with an engine of ours, or with the whole library.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use incumbent::engine::{Bid, Claim, Engine, Farewell};
use incumbent::place::Place;
use incumbent::{Election, Identity, Leadership, Name, Reason, Timing, Token, engines};
use tokio::sync::Notify;

use crate::TTL;

/// One who contends.
#[async_trait]
pub(crate) trait Contender: Send {
    /// Takes the seat; if it is taken, says so and waits for it.
    async fn claim(&mut self, waits: &Notify);
    /// Gives it back.
    async fn release(&mut self);
}

/// With an engine alone, in the caller's thread: what the recipe costs.
pub(crate) struct OnEngine {
    engine: Arc<dyn Engine>,
    election: Name,
    identity: Identity,
    held: Option<(Bid, Token)>,
}

impl OnEngine {
    pub(crate) async fn open(url: &str, election: &Name) -> OnEngine {
        let engine = engines::open(&Place::parse(url).expect("a good URL")).await.expect("it was just started");
        OnEngine { engine, election: election.clone(), identity: Identity::unique(), held: None }
    }
}

/// A bid like any other.
pub(crate) fn bid(identity: Identity) -> Bid {
    Bid { identity, ttl: TTL, value: String::new(), priority: 0, seats: 1, seen: None, note: None }
}

#[async_trait]
impl Contender for OnEngine {
    async fn claim(&mut self, waits: &Notify) {
        // Each candidacy is a new one, as in the library.
        let bid = bid(self.identity.anew());
        let mut hints = None;
        loop {
            if let Claim::Granted(grant) = self.engine.claim(&self.election, &bid).await.expect("the engine is well") {
                self.held = Some((bid, grant.token));
                return;
            }
            waits.notify_one();
            let hints = hints.get_or_insert_with(|| self.engine.watch(&self.election, Some(&bid)));
            hints.next().await.expect("goes on").expect("the engine is well");
        }
    }

    async fn release(&mut self) {
        let (bid, token) = self.held.take().expect("in office");
        let farewell = Farewell { reason: Reason::Resigned, to: None };
        self.engine.release(&self.election, &bid, token, &farewell).await.expect("the engine is well");
    }
}

/// With the library, as its users do: served by a thread of its own.
pub(crate) struct InLibrary {
    election: Election,
    held: Option<Leadership>,
}

impl InLibrary {
    pub(crate) async fn open(url: &str, election: &Name) -> InLibrary {
        let timing = Timing::of(TTL).build().expect("a good ttl");
        let election = Election::on(url).own_connection().name(election.as_str()).timing(timing).build().await;
        InLibrary { election: election.expect("it was just started"), held: None }
    }
}

#[async_trait]
impl Contender for InLibrary {
    async fn claim(&mut self, waits: &Notify) {
        // When it waits is not told; whoever measures leaves it time for that.
        waits.notify_one();
        self.held = Some(self.election.campaign().await.expect("the engine is well"));
    }

    async fn release(&mut self) {
        self.held.take().expect("in office").resign().await.expect("released");
    }
}
