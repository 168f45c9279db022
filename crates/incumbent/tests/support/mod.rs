//! What the tests of engines on a network share: the engine as the conformance suite's subject, and a line to it that can be made to fail.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use incumbent::conformance::{Line, Subject};
use incumbent::election::Builder;
use incumbent::engine::{Bid, Claim, Grant, Kind, Renewal};
use incumbent::place::Place;
use incumbent::{Election, Engine, Error, Name, Timing, Token, clock, engines};
use incumbent_testbed::{Relay, Way};
use tokio::time::timeout;

pub(crate) mod processes;

/// An engine behind a port on this machine.
pub(crate) struct Networked {
    /// Where it serves.
    pub(crate) port: u16,
    /// The URL that leads to it through a port: its own, or a relay's.
    pub(crate) url: fn(u16) -> String,
    /// What to test with.
    pub(crate) ttl: Duration,
}

impl Networked {
    fn election_through(&self, port: u16, name: &Name) -> Builder {
        let timing = Timing::of(self.ttl).build().expect("a good ttl");
        Election::on((self.url)(port)).name(name.as_str()).own_connection().timing(timing)
    }

    async fn engine_through(&self, port: u16) -> Arc<dyn Engine> {
        let place = Place::parse(&(self.url)(port)).expect("a good URL");
        engines::open(&place).await.unwrap_or_else(|why| panic!("cannot open {place}: {why}"))
    }
}

#[async_trait]
impl Subject for Networked {
    async fn engine(&self) -> Arc<dyn Engine> {
        self.engine_through(self.port).await
    }

    fn election(&self, name: &Name) -> Builder {
        self.election_through(self.port, name)
    }

    fn ttl(&self) -> Duration {
        self.ttl
    }

    fn line(&self) -> Option<Box<dyn Line>> {
        let relay = Relay::before(&format!("127.0.0.1:{}", self.port)).expect("a free port");
        Some(Box::new(Relayed { relay, to: Networked { port: self.port, url: self.url, ttl: self.ttl } }))
    }
}

/// A line through a relay.
struct Relayed {
    relay: Relay,
    to: Networked,
}

#[async_trait]
impl Line for Relayed {
    fn election(&self, name: &Name) -> Builder {
        self.to.election_through(self.relay.port(), name)
    }

    async fn engine(&self) -> Arc<dyn Engine> {
        self.to.engine_through(self.relay.port()).await
    }

    fn connections(&self) -> u64 {
        self.relay.traffic().connections
    }

    fn connections_max(&self, elections: u64) -> u64 {
        // One for calls, one for hints, and some that are tried and left.
        const FEW: u64 = 4;
        let url = (self.to.url)(self.to.port);
        // These speak HTTP/1.1: each election has at most a call and a watch under way, and a call that waits for a connection to come free dials one as well.
        let one_at_a_time = ["consul:", "kubernetes:"].iter().any(|it| url.starts_with(it));
        if one_at_a_time { elections * 3 + FEW } else { FEW }
    }

    fn swallow(&self) {
        self.relay.partition();
    }

    fn cut(&self) {
        self.relay.cut();
    }

    fn swallow_replies(&self) {
        self.relay.replies(Way::Lose);
    }

    fn delay_replies(&self, by: Duration) {
        self.relay.replies(Way::Delay(by));
    }

    fn heal(&self) {
        self.relay.heal();
    }
}

/// The engine at this URL.
pub(crate) async fn open(url: &str) -> Result<Arc<dyn Engine>, Error> {
    engines::open(&Place::parse(url).expect("a good URL")).await
}

/// Takes connections and says nothing, like a machine that was paused.
pub(crate) fn silent_host() -> std::net::TcpListener {
    std::net::TcpListener::bind("127.0.0.1:0").expect("a free port")
}

/// Of three hosts the first two hang. Opening gives the first one up, a claim that is not waited for any longer the second; the third one serves.
pub(crate) async fn a_host_that_hangs_is_left_for_the_next(url: impl Fn(&str) -> String, election: &Name, bid: &Bid) {
    let (first, second) = (silent_host(), silent_host());
    let port = |it: &std::net::TcpListener| it.local_addr().expect("it is bound").port();
    let silent = format!("127.0.0.1:{},127.0.0.1:{}", port(&first), port(&second));
    let engine = open(&url(&silent)).await.expect("a good URL");
    timeout(Duration::from_secs(1), token(&*engine, election, bid)).await.expect_err("the second hangs too");
    let granted = timeout(Duration::from_secs(5), token(&*engine, election, bid)).await.expect("the third does not");
    let granted = granted.expect("it is there").expect("free");
    // And it stays the one that is asked.
    let kept = timeout(Duration::from_secs(1), engine.renew(election, bid, granted)).await.expect("it answers");
    assert!(matches!(kept, Ok(Renewal::Kept { .. })), "{kept:?}");
}

/// The token of a claim that was granted.
pub(crate) async fn token(engine: &dyn Engine, election: &Name, bid: &Bid) -> Result<Option<Token>, Error> {
    Ok(match engine.claim(election, bid).await? {
        Claim::Granted(grant) => Some(grant.token),
        Claim::Occupied { .. } => None,
    })
}

/// A claim that was granted, on an engine that may be ill.
pub(crate) async fn granted(engine: &dyn Engine, election: &Name, bid: &Bid) -> Option<Grant> {
    match engine.claim(election, bid).await {
        Ok(Claim::Granted(grant)) => Some(grant),
        Ok(Claim::Occupied { .. }) => None,
        // The first to find out that a connection has gone is told so.
        Err(why) if why.kind() != Kind::Misconfigured => None,
        Err(why) => panic!("{why:?}"),
    }
}

/// Claims whenever there is a hint, and now and then, because the end of a lease is silence, and nobody tells of that.
pub(crate) async fn granted_in_the_end(engine: &dyn Engine, election: &Name, bid: &Bid) -> Grant {
    let mut hints = engine.watch(election, Some(bid));
    let give_up = clock::now() + bid.ttl * 20;
    while clock::now() < give_up {
        if let Some(grant) = granted(engine, election, bid).await {
            return grant;
        }
        if let Ok(Some(Err(_)) | None) = timeout(bid.ttl / 20, hints.next()).await {
            hints = engine.watch(election, Some(bid));
        }
    }
    panic!("never granted");
}
