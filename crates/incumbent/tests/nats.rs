//! Elections on NATS: the conformance suite, and what only a bucket can do wrong.

mod support;

use std::sync::Arc;
use std::time::Duration;

use incumbent::conformance::{Subject, bid, check, fresh_name};
use incumbent::engine::{Bid, Claim, Engine};
use incumbent::place::Place;
use incumbent::{Error, Name, Reason, Token, clock, engines};
use incumbent_testbed::{Certificates, Nats, Server as _, Shared};
use support::Networked;
use support::processes::{self, Arena};

static NATS: Shared<Nats> = Shared::new(|| Nats::recent().start());

fn at(port: u16) -> Networked {
    Networked { port, url: |port| format!("nats://127.0.0.1:{port}/test"), ttl: Duration::from_millis(2000) }
}

async fn open(url: &str) -> Result<Arc<dyn Engine>, Error> {
    engines::open(&Place::parse(url).expect("a good URL")).await
}

async fn token(engine: &dyn Engine, election: &Name, bid: &Bid) -> Result<Option<Token>, Error> {
    Ok(match engine.claim(election, bid).await? {
        Claim::Granted(grant) => Some(grant.token),
        Claim::Occupied { .. } => None,
    })
}

#[tokio::test]
async fn nats_conforms() {
    check(&at(NATS.server().port())).await;
}

#[test]
fn contender() {
    processes::be_a_contender();
}

#[test]
fn processes_that_are_killed_or_paused_are_replaced_and_know_it() {
    let url = format!("nats://127.0.0.1:{}/test", NATS.server().port());
    processes::a_killed_holder_is_replaced(&Arena::new(&url, Duration::from_millis(1500)));
    processes::a_paused_holder_has_stopped_believing(&Arena::new(&url, Duration::from_millis(1500)));
}
