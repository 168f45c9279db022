//! Clients in a process of their own, whose clocks are hours ahead of those of the other clients and of all nodes.
//!
//! The test runs itself again in a time namespace, for the clients alone. They say what they do as they do it, a line each; and because it is known by how much their clocks are ahead, it
//! can be put on the clock of all other histories.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use incumbent_client::client::Client;
use incumbent_testbed::Contender;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::clients::spawn_pair;
use crate::cluster::{Cluster, options};
use crate::history::{History, Line};

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
        Elsewhere { process, ahead, history: Arc::clone(history), read: 0 }
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

    fn read(&mut self) {
        let lines = self.process.lines();
        for line in lines[self.read..].iter().filter(|it| it.starts_with('{')) {
            let mut line: Line = serde_json::from_str(line).unwrap_or_else(|why| panic!("{line}: {why}"));
            line.put_back(self.ahead);
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
