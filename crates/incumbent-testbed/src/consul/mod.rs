//! A test server of Consul's session and key/value API, that answers as the real one does.
//!
//! It reproduces the recorded answers in `golden/consul.txt` (Consul 1.10.12); `tests/golden_consul.rs` replays them. Sessions have real
//! time to live, locks have lock-delays, reads can block. One server, no cluster: consistency modes are accepted and make no difference.
//! Left out: services, health checks, namespaces, events, the rest of the catalog.

mod api;
mod duration;
mod store;
mod txn;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use self::store::{Lifetimes, Store};
use crate::certificates::Tls;
use crate::server::Requests;
use crate::serving::{Access, Ask, Reply, Serving, Site, locked};

/// A running server. It stops when it is dropped.
pub struct Consul {
    serving: Serving<Agent>,
}

impl Consul {
    /// A server as one gets it without configuration.
    ///
    /// # Errors
    /// If there is no port to be had.
    pub fn start() -> Result<Self, String> {
        Self::plan().start()
    }

    /// A server with other settings.
    pub fn plan() -> ConsulPlan {
        ConsulPlan::default()
    }

    /// The loopback port on which it serves. It stays the same through restarts.
    pub fn port(&self) -> u16 {
        self.serving.port()
    }

    /// Host and port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// What it was asked since it was last started, by method and path (`GET /v1/kv/lead`).
    pub fn requests(&self) -> Requests {
        self.serving.requests()
    }

    /// Stops and cuts every connection. Sessions and keys are kept.
    pub fn stop(&self) {
        self.serving.stop();
    }

    /// Starts on the same port, after a stop if it still runs. As in a cluster with a new leader, every session gets its whole time
    /// again and lock-delays are forgotten.
    ///
    /// # Errors
    /// If somebody else took the port.
    pub fn restart(&self) -> Result<(), String> {
        self.stop();
        locked(&self.serving.site().store).restart(Instant::now());
        self.serving.start_again()
    }

    /// Stops it in its tracks: connections stay open and nothing is answered. Clocks go on: a session may be over afterwards.
    pub fn pause(&self) {
        self.serving.pause();
    }

    /// Lets it go on after [`pause`](Self::pause).
    pub fn resume(&self) {
        self.serving.resume();
    }
}

/// How a Consul shall be started.
#[derive(Clone, Debug)]
pub struct ConsulPlan {
    lifetimes: Lifetimes,
    first_index: u64,
    tokens: BTreeMap<String, Access>,
    tls: Option<Tls>,
}

impl Default for ConsulPlan {
    fn default() -> Self {
        // The multiplier is the real one's. A fresh real server has written about this much before its first client comes.
        Self {
            lifetimes: Lifetimes { ttl_min: Duration::from_secs(10), ttl_multiplier: 2.0 },
            first_index: 14,
            tokens: BTreeMap::new(),
            tls: None,
        }
    }
}

impl ConsulPlan {
    /// The shortest time to live that is granted: 10 s unless set. The real server has the same setting (`session_ttl_min`), for tests.
    pub fn session_ttl_min(mut self, at_least: Duration) -> Self {
        self.lifetimes.ttl_min = at_least;
        self
    }

    /// How many times its time to live a session lasts without renewal: 2 unless set, which is what the real server does. Its
    /// documentation promises only that it is not less than 1, so a client has to be right with both.
    pub fn ttl_multiplier(mut self, times: f64) -> Self {
        self.lifetimes.ttl_multiplier = times.clamp(1.0, 2.0);
        self
    }

    /// The index of the first write.
    pub fn first_index(mut self, index: u64) -> Self {
        self.first_index = index.max(1);
        self
    }

    /// Turns access control on: this token has this access, and whoever has no token has none.
    pub fn token(mut self, token: impl Into<String>, access: Access) -> Self {
        self.tokens.insert(token.into(), access);
        self
    }

    /// Turns TLS on.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Starts the server on a free loopback port.
    ///
    /// # Errors
    /// If there is none, or the certificates cannot be read.
    pub fn start(self) -> Result<Consul, String> {
        let agent = Agent {
            store: Mutex::new(Store::new(self.first_index, self.lifetimes)),
            changed: watch::Sender::new(()),
            tokens: self.tokens,
            session_ttl_min: self.lifetimes.ttl_min,
        };
        Ok(Consul { serving: Serving::start(agent, self.tls.as_ref())? })
    }
}

/// The server behind the port.
struct Agent {
    store: Mutex<Store>,
    /// Told of every write: blocked reads look again, and so does the housekeeping, whose deadline may have moved.
    changed: watch::Sender<()>,
    tokens: BTreeMap<String, Access>,
    session_ttl_min: Duration,
}

impl Agent {
    /// Writes, and wakes whoever waits.
    fn write<T>(&self, change: impl FnOnce(&mut Store, Instant) -> T) -> T {
        let result = change(&mut locked(&self.store), Instant::now());
        self.changed.send_replace(());
        result
    }
}

impl Site for Agent {
    fn verb(&self, ask: &Ask) -> String {
        ask.method.to_string()
    }

    async fn answer(&self, ask: Ask) -> Reply {
        api::answer(self, ask).await
    }

    async fn housekeeping(&self) {
        let mut changed = self.changed.subscribe();
        loop {
            let deadline = locked(&self.store).deadline();
            let over = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = over => self.write(|store, now| store.expire(now)),
                // The sender lives as long as this does.
                _ = changed.changed() => {}
            }
        }
    }
}
