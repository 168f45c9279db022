//! The suite that every engine must pass, ours and yours: the contract, case by case, against the real thing in real time.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use incumbent::conformance::{At, check};
//! // In a test of your own:
//! let subject = At::url("etcd://127.0.0.1:2379/test", Duration::from_secs(2));
//! tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(check(&subject));
//! ```
//!
//! - [`calls`]: the engine alone, call by call.
//! - [`leaderships`]: what the library makes of it: contention, lost requests and replies, blocked applications, hand-over, crowds.
//! - [`faults`]: a line that is cut, slow, or swallows replies; for subjects that can do that.
//!
//! Cases run at the same time, each in an election of its own, so that the suite takes as long as its longest case. Each says what it claims.

pub mod calls;
pub mod faults;
pub mod leaderships;
pub mod lossy;
pub mod record;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::election::{Builder, Election};
use crate::engine::{Bid, Engine};
use crate::engines;
use crate::identity::{Identity, nonce};
use crate::name::Name;
use crate::place::Place;
use crate::timing_of;

/// An engine under test.
#[async_trait]
pub trait Subject: Send + Sync {
    /// A connection of its own, as another process would have.
    async fn engine(&self) -> Arc<dyn Engine>;

    /// The election with this name, through a connection of its own.
    fn election(&self, name: &Name) -> Builder;

    /// A short ttl that the engine grants.
    fn ttl(&self) -> Duration;

    /// A line to the engine that can be made to fail, and the URL that leads through it; `None` if the subject has none.
    fn line(&self) -> Option<Box<dyn Line>> {
        None
    }
}

/// A line to an engine that can be made to fail.
#[async_trait]
pub trait Line: Send + Sync {
    /// The election with this name, through this line.
    fn election(&self, name: &Name) -> Builder;
    /// The engine, through this line.
    async fn engine(&self) -> Arc<dyn Engine>;
    /// How many connections have come by this line, closed ones too.
    fn connections(&self) -> u64;
    /// How many of them so many elections of one process may need: a few, whatever their number; more where a connection has one request at a time.
    fn connections_max(&self, elections: u64) -> u64;
    /// Nothing gets through, in silence.
    fn swallow(&self);
    /// Connections are broken, and new ones refused.
    fn cut(&self);
    /// Requests get through, replies do not.
    fn swallow_replies(&self);
    /// Replies are late by this much.
    fn delay_replies(&self, by: Duration);
    /// All is well again; what was swallowed stays lost.
    fn heal(&self);
}

/// The engine that a URL names.
pub struct At {
    url: String,
    ttl: Duration,
}

impl At {
    /// The engine at `url`, tested with leases of `ttl`. The URL's path is the namespace.
    pub fn url(url: impl Into<String>, ttl: Duration) -> At {
        At { url: url.into(), ttl }
    }
}

#[async_trait]
impl Subject for At {
    async fn engine(&self) -> Arc<dyn Engine> {
        let place = Place::parse(&self.url).expect("a good URL");
        engines::open(&place).await.unwrap_or_else(|why| panic!("cannot open {place}: {why}"))
    }

    fn election(&self, name: &Name) -> Builder {
        Election::on(&self.url).name(name.as_str()).own_connection().timing(timing_of(self.ttl))
    }

    fn ttl(&self) -> Duration {
        self.ttl
    }
}

/// What a case finds: nothing to complain of, or what is wrong.
pub type Verdict = Result<(), String>;

type Running<'a> = Pin<Box<dyn Future<Output = Verdict> + 'a>>;

/// A case: what it claims, and how to see whether it is so.
pub struct Case {
    /// What it claims, as a sentence in one_word.
    pub claim: &'static str,
    /// Sees whether it is so.
    pub run: for<'a> fn(&'a dyn Subject) -> Running<'a>,
}

/// Names a case after its function.
macro_rules! case {
    ($path:path) => {
        $crate::conformance::Case { claim: stringify!($path), run: |subject| Box::pin($path(subject)) }
    };
}
pub(crate) use case;

/// All cases.
pub fn cases() -> Vec<Case> {
    let mut cases = calls::cases();
    cases.extend(leaderships::cases());
    cases.extend(faults::cases());
    cases
}

/// Runs all cases and panics with what is wrong, if anything is.
pub async fn check(subject: &dyn Subject) {
    let running = cases().into_iter().map(|case| async move { (case.claim, (case.run)(subject).await) });
    let verdicts = futures_util::future::join_all(running).await;
    let wrong: Vec<String> =
        verdicts.iter().filter_map(|(claim, verdict)| verdict.as_ref().err().map(|why| format!("{claim}: {why}"))).collect();
    assert!(wrong.is_empty(), "{} of {} claims do not hold:\n  {}", wrong.len(), verdicts.len(), wrong.join("\n  "));
}

/// A name that no other case, run or process uses.
pub fn fresh_name(what: &str) -> Name {
    Name::new(format!("{what}-{:012x}", nonce() >> 16)).expect("made to fit")
}

/// A bid of somebody new.
pub fn bid(subject: &dyn Subject, who: &str) -> Bid {
    let identity = Identity::named(who).expect("made to fit");
    Bid { identity, ttl: subject.ttl(), value: format!("at-{who}"), priority: 0, seats: 1, seen: None, note: None }
}

/// Complains unless `so`.
pub fn ensure(so: bool, what: impl FnOnce() -> String) -> Verdict {
    if so { Ok(()) } else { Err(what()) }
}
