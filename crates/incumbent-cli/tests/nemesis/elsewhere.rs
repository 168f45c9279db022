//! Clients in a process of their own, whose clocks are hours ahead of those of the other clients and of all nodes.
//!
//! The test runs itself again in a time namespace, for the clients alone. They say what they do as they do it, a line each; and because it is known by how much their clocks are ahead, it
//! can be put on the clock of all other histories. They may be killed: what they had begun by then may have happened, and what they believed they believe no more.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use incumbent_client::client::Client;
use incumbent_testbed::Contender;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::clients::{numbers, spawn_pair};
use crate::cluster::{Cluster, options};
use crate::history::{Belief, Entry, History, Line, now};

/// Says to a process what it is to be, if it is one of clients.
const WANTED: &str = "INCUMBENT_NEMESIS_CLIENTS";

/// What such a process needs to know.
#[derive(Serialize, Deserialize)]
pub(crate) struct Wanted {
    seed: u64,
    pair: u32,
    addresses: Vec<String>,
    authority: PathBuf,
}

/// The clients, seen from here.
pub(crate) struct Elsewhere {
    process: Contender,
    ahead: Duration,
    history: Arc<History>,
    /// So many of the lines that it has said are in the history.
    read: usize,
    pair: u32,
    /// What each of them has begun.
    begun: BTreeMap<u32, Entry>,
    /// What each of them believes, by who it is.
    believed: BTreeMap<String, Belief>,
}

impl Elsewhere {
    /// The test of this name is run again for them.
    pub(crate) fn start(
        test: &str,
        cluster: &Cluster,
        seed: u64,
        pair: u32,
        ahead: Duration,
        history: &Arc<History>,
    ) -> Elsewhere {
        let (addresses, authority) = (cluster.client_addresses(), cluster.authority());
        let seconds = ahead.as_secs().to_string();
        let mut command = Command::new("unshare");
        command.args(["--time", "--monotonic", &seconds, "--boottime", &seconds, "--"]).arg(std::env::current_exe().unwrap());
        command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
        command.env(WANTED, serde_json::to_string(&Wanted { seed, pair, addresses, authority }).unwrap());
        let process = Contender::start(&command).unwrap();
        Elsewhere {
            process,
            ahead,
            history: Arc::clone(history),
            read: 0,
            pair,
            begun: BTreeMap::new(),
            believed: BTreeMap::new(),
        }
    }

    /// How the identities of all of them begin.
    pub(crate) fn identities(&self) -> [String; 4] {
        numbers(self.pair).map(|it| format!("c{it}-"))
    }

    pub(crate) fn runs(&self) -> bool {
        self.process.process().runs()
    }

    /// It is over: they end, and all that they did is in the history.
    pub(crate) fn end(mut self) {
        self.process.hang_up();
        let code = self.process.wait();
        assert_eq!(code, Some(0), "clients elsewhere have failed:\n{}", self.process.process().log_tail(30));
        self.process.hear("the end", |line| line.starts_with("test result: ok"));
        self.read();
        assert!(self.read > 0, "the clients elsewhere have said nothing");
    }

    /// kill -9. From now on they believe nothing, and what they had begun may have happened.
    pub(crate) fn kill(mut self) {
        self.process.kill();
        let killed = now();
        self.process.all_lines();
        self.read();
        for (_, entry) in std::mem::take(&mut self.begun) {
            self.history.add(Line::Entry(Entry { returned: killed, ..entry }));
        }
        for (_, belief) in std::mem::take(&mut self.believed) {
            self.history.add(Line::Belief(Belief { until: belief.until.min(killed), ..belief }));
        }
    }

    fn read(&mut self) {
        let lines = self.process.lines();
        for line in lines[self.read..].iter().filter(|it| it.starts_with('{')) {
            let line: Result<Line, _> = serde_json::from_str(line);
            let mut line = match line {
                Ok(line) => line,
                // One that was killed may have been saying something.
                Err(_) if !self.process.process().runs() => continue,
                Err(why) => panic!("{why}"),
            };
            line.put_back(self.ahead);
            match &line {
                Line::Begun(entry) => drop(self.begun.insert(entry.client, entry.clone())),
                Line::Entry(entry) => drop(self.begun.remove(&entry.client)),
                Line::Believes(belief) => drop(self.believed.insert(belief.identity.clone(), belief.clone())),
                Line::Belief(belief) => drop(self.believed.remove(&belief.identity)),
            }
            self.history.add(line);
        }
        self.read = lines.len();
    }
}

/// Whatever a round came to, what they have said is kept.
impl Drop for Elsewhere {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.read();
        }
    }
}

/// What this process is to be, if it is one of clients.
pub(crate) fn wanted() -> Option<Wanted> {
    let wanted = std::env::var(WANTED).ok()?;
    Some(serde_json::from_str(&wanted).expect("what clients are to do"))
}

/// Is it, until nobody listens any more.
#[allow(clippy::print_stdout, reason = "another process listens")]
pub(crate) fn be(wanted: Wanted) {
    // The harness has begun a line.
    println!();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let history = Arc::new(History::aloud());
    let (over, is_over) = watch::channel(false);
    std::thread::spawn(move || {
        // Nothing is said to it: it ends with its input.
        let _ = std::io::stdin().lines().count();
        over.send_replace(true);
    });
    runtime.block_on(async {
        let connect = |name: &str| Client::start(wanted.addresses.clone(), options(&wanted.authority, name));
        let mut workers = JoinSet::new();
        spawn_pair(wanted.pair, wanted.seed, connect, &history, &is_over, &mut workers);
        while let Some(ended) = workers.join_next().await {
            ended.expect("a client has failed");
        }
    });
}
