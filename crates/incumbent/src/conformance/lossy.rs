//! Between an engine and its caller: loses requests, loses replies, and counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use incumbent_protocol::protocol::Token;

use crate::engine::{Bid, Board, Claim, Engine, Error, Farewell, Renewal, Seat, Wish};
use crate::guarantees::Guarantees;
use crate::name::Name;

/// An engine to which some requests do not get through, and from which some replies do not come back.
pub struct Lossy {
    engine: Arc<dyn Engine>,
    /// In a hundred calls.
    requests_lost: u64,
    replies_lost: u64,
    state: AtomicU64,
    claims: Arc<AtomicU64>,
}

impl Lossy {
    /// Loses so many requests and replies in a hundred, drawn from `seed`.
    pub fn new(engine: Arc<dyn Engine>, requests_lost: u64, replies_lost: u64, seed: u64) -> Lossy {
        Lossy { engine, requests_lost, replies_lost, state: AtomicU64::new(seed), claims: Arc::default() }
    }

    /// Loses nothing, and counts claims into `claims`.
    pub fn counting(engine: Arc<dyn Engine>, claims: Arc<AtomicU64>) -> Lossy {
        Lossy { claims, ..Lossy::new(engine, 0, 0, 0) }
    }

    /// A number that looks like chance.
    fn draw(&self) -> u64 {
        let state = self.state.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 32
    }

    async fn through<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        if self.draw() % 100 < self.requests_lost {
            return Err(Error::unknown("the request was lost"));
        }
        let answer = call.await;
        if self.draw() % 100 < self.replies_lost {
            return Err(Error::unknown("the reply was lost"));
        }
        answer
    }
}

#[async_trait]
impl Engine for Lossy {
    fn guarantees(&self) -> Guarantees {
        self.engine.guarantees()
    }

    fn accepts(&self, election: &Name) -> Result<(), Error> {
        self.engine.accepts(election)
    }

    async fn claim(&self, election: &Name, bid: &Bid) -> Result<Claim, Error> {
        self.claims.fetch_add(1, Ordering::Relaxed);
        self.through(self.engine.claim(election, bid)).await
    }

    async fn renew(&self, election: &Name, bid: &Bid, token: Token) -> Result<Renewal, Error> {
        self.through(self.engine.renew(election, bid, token)).await
    }

    async fn release(&self, election: &Name, bid: &Bid, token: Token, farewell: &Farewell) -> Result<(), Error> {
        self.through(self.engine.release(election, bid, token, farewell)).await
    }

    async fn look(&self, election: &Name) -> Result<Board, Error> {
        self.through(self.engine.look(election)).await
    }

    async fn inquire(&self, election: &Name, bid: &Bid) -> Result<Seat, Error> {
        self.through(self.engine.inquire(election, bid)).await
    }

    async fn withdraw(&self, election: &Name, bid: &Bid) -> Result<(), Error> {
        self.through(self.engine.withdraw(election, bid)).await
    }

    async fn proclaim(&self, election: &Name, bid: &Bid, token: Token, value: &str) -> Result<(), Error> {
        self.through(self.engine.proclaim(election, bid, token, value)).await
    }

    async fn ask(&self, election: &Name, wish: &Wish) -> Result<(), Error> {
        self.through(self.engine.ask(election, wish)).await
    }

    async fn raise(&self, election: &Name, above: Token) -> Result<(), Error> {
        self.through(self.engine.raise(election, above)).await
    }

    async fn annotate(&self, election: &Name, token: Token, text: &str) -> Result<(), Error> {
        self.through(self.engine.annotate(election, token, text)).await
    }

    fn watch(&self, election: &Name, bid: Option<&Bid>) -> BoxStream<'static, Result<(), Error>> {
        self.engine.watch(election, bid)
    }

    async fn close(&self) {
        self.engine.close().await;
    }
}
