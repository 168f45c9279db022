//! Three hosts on one machine, each with a network of its own, and the engine behind a relay for each of them.

use std::path::PathBuf;

use incumbent_protocol::chance::Chance;
use incumbent_testbed::port::Port;
use incumbent_testbed::{Contender, Relay, Server, eventually};
use rustix::process::Signal;

use crate::network::Network;
use crate::oracle::{self, Terms};
use crate::shell;
use crate::shell::processes::{MARK, guardians_of, lives, marked, signal};

/// How many there are.
pub(crate) const COUNT: usize = 3;
/// Short, so that a round is; a busy machine that misses it loses the seat, and nothing else.
const TTL: &str = "2s";
/// One command in four holds this much.
const LARGE_MIB: u32 = 256;

/// How much memory the commands hold.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Size {
    /// One in four is large.
    Mixed,
    /// All of them so many MiB.
    Mebibytes(u32),
}

/// Where the election is.
pub(crate) enum Place {
    /// In a directory that all hosts share.
    Files,
    /// On a server, and its URL by address.
    Server(Box<dyn Server>, fn(&str) -> String),
    /// Among the hosts themselves, which listen there; nobody else does while one of them is down.
    Peers(Vec<Port>),
}

impl Place {
    pub(crate) fn files() -> Place {
        Place::Files
    }

    pub(crate) fn peers() -> Place {
        Place::Peers((0..COUNT).map(|_| Port::free().unwrap()).collect())
    }

    pub(crate) fn server(server: impl Server + 'static, url: fn(&str) -> String) -> Place {
        Place::Server(Box::new(server), url)
    }
}

/// Where those among them are found.
fn listening(ports: &[Port]) -> String {
    ports.iter().map(|it| format!("127.0.0.1:{}", it.number())).collect::<Vec<_>>().join(",")
}

/// How a host gets to the server: the cable of its own network, then a relay.
pub(crate) struct Way {
    pub(crate) network: Network,
    pub(crate) relay: Relay,
}

/// A supervisor, and what is beneath it.
pub(crate) struct Host {
    pub(crate) name: String,
    url: String,
    /// Its way to the server, and the network in which that begins.
    pub(crate) way: Option<Way>,
    mark: String,
    supervisor: Contender,
    /// What former supervisors of it said.
    story: String,
}

impl Host {
    /// The supervisor, if it lives.
    pub(crate) fn supervisor(&self) -> Option<u32> {
        self.supervisor.process().id()
    }

    /// The guardian, if it lives.
    pub(crate) fn guardian(&self) -> Option<u32> {
        self.supervisor().and_then(|it| guardians_of(it).first().copied())
    }

    /// The process that its guardian has started last, as its supervisor says: numbers of processes begin anew, so the smallest need not be the oldest.
    #[track_caller]
    pub(crate) fn command(&self) -> u32 {
        let said = self.supervisor.process().log_tail(usize::MAX);
        said.lines().rev().find_map(|it| it.split_once(" as process ")?.1.parse().ok()).expect("it has started one")
    }

    /// All living processes of its command.
    pub(crate) fn tree(&self) -> Vec<u32> {
        marked(&self.mark)
    }
}

/// All of them.
pub(crate) struct Hosts {
    folder: tempfile::TempDir,
    /// For sockets, whose paths must be short; those of a supervisor that was killed would stay behind anywhere else.
    runtime: tempfile::TempDir,
    pub(crate) place: Place,
    pub(crate) all: Vec<Host>,
    pub(crate) seed: u64,
    size: Size,
}

impl Size {
    fn of(self, seed: u64) -> u32 {
        match self {
            Size::Mixed if Chance::new(seed).below(4) == 0 => LARGE_MIB,
            Size::Mixed => 0,
            Size::Mebibytes(size) => size,
        }
    }
}

/// A term that has begun and not ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Leading {
    pub(crate) token: u64,
    pub(crate) host: usize,
}

impl Hosts {
    /// Starts them.
    pub(crate) fn begin(engine: &str, place: Place, seed: u64, size: Size) -> Hosts {
        let folder = tempfile::Builder::new().prefix("rounds-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::fs::create_dir(folder.path().join("records")).unwrap();
        let runtime = tempfile::tempdir().unwrap();
        let mut all = Vec::new();
        for number in 1..=COUNT {
            let (url, way) = match &place {
                Place::Files => (format!("file:{}", folder.path().join("elections").display()), None),
                Place::Server(server, url) => {
                    let relay = Relay::before(&server.address()).unwrap();
                    let network = Network::to(relay.address());
                    (url(&network.address()), Some(Way { network, relay }))
                }
                Place::Peers(ports) => {
                    let (addresses, data) = (listening(ports), folder.path().join(format!("node-{number}")));
                    (format!("peers://{addresses}/rounds?me={number}&patience={TTL}&data={}", data.display()), None)
                }
            };
            let (name, mark) = (format!("host-{number}"), format!("{}-{engine}-{number}", std::process::id()));
            let mut command = supervise(&folder.path().join("records"), &name, &url, &mark, size.of(seed + number as u64));
            command.env("XDG_RUNTIME_DIR", runtime.path());
            let supervisor = start(way.as_ref(), &command);
            all.push(Host { name, url, way, mark, supervisor, story: String::new() });
        }
        Hosts { folder, runtime, place, all, seed, size }
    }

    fn records(&self) -> PathBuf {
        self.folder.path().join("records")
    }

    /// All terms there have been.
    #[track_caller]
    pub(crate) fn terms(&self) -> Terms {
        oracle::read(&self.records()).unwrap_or_else(|why| panic!("{why}\n{}", self.story()))
    }

    /// What commands have said that found something of another alive.
    pub(crate) fn overlaps(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("overlaps")).unwrap_or_default()
    }

    /// Waits until a term with a greater token is under way on a host for which `wanted` holds, with both of its processes.
    #[track_caller]
    pub(crate) fn leader_after(&self, token: u64, wanted: impl Fn(usize) -> bool) -> Leading {
        let mut found = None;
        let began = std::time::Instant::now();
        eventually("a new term", || {
            found = oracle::latest(&self.records()).filter(|it| it.token > token && it.processes >= 2).and_then(|latest| {
                let host = self.all.iter().position(|it| it.name == latest.host)?;
                (wanted(host) && self.all[host].tree().len() >= 2).then_some(Leading { token: latest.token, host })
            });
            assert!(found.is_some() || began.elapsed() < PATIENCE, "no new term after {token}:\n{}", self.story());
            found.is_some()
        });
        found.expect("it was waited for")
    }

    /// Starts a supervisor on every host that has none, as an init system would.
    pub(crate) fn revive(&mut self, round: u64) {
        let records = self.records();
        for (number, host) in self.all.iter_mut().enumerate() {
            if host.supervisor().is_none() {
                let size = self.size.of(self.seed + round * 10 + number as u64);
                let mut command = supervise(&records, &host.name, &host.url, &host.mark, size);
                command.env("XDG_RUNTIME_DIR", self.runtime.path());
                host.story += &host.supervisor.process().log_tail(usize::MAX);
                host.story += "\n-- started again\n";
                host.supervisor = start(host.way.as_ref(), &command);
            }
        }
    }

    /// Waits until nobody of those lives.
    #[track_caller]
    pub(crate) fn all_die(&self, what: &str, ids: &[u32]) {
        let began = std::time::Instant::now();
        eventually(what, || {
            let living: Vec<&u32> = ids.iter().filter(|it| lives(**it)).collect();
            assert!(began.elapsed() < PATIENCE, "{what}: {living:?} live:\n{}", self.story());
            living.is_empty()
        });
    }

    /// Asks for something of the election, past all relays, until it is granted or the term has ended anyway: who shall have the seat may not be in the line again yet.
    #[track_caller]
    pub(crate) fn ask(&self, words: &[&str], token: u64) {
        let url = match &self.place {
            Place::Files => self.all[0].url.clone(),
            Place::Server(server, url) => url(&server.address()),
            Place::Peers(ports) => format!("peers://{}/rounds", listening(ports)),
        };
        eventually("the wish is heard", || {
            let output = shell::incumbent(&[words, &["--no-wait", "--on", &url]].concat()).output().unwrap();
            output.status.success() || oracle::latest(&self.records()).is_some_and(|it| it.token > token)
        });
    }

    /// What all supervisors have said.
    pub(crate) fn story(&self) -> String {
        let said =
            self.all.iter().map(|it| format!("== {}\n{}{}", it.name, it.story, it.supervisor.process().log_tail(usize::MAX)));
        said.collect::<Vec<_>>().join("\n")
    }
}

/// Less than the patience of the testbed, so that it is this one that tells the story.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(25);

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in &self.all {
            let guardian = host.guardian();
            // The testbed would stop its guardian too, so it must be gone before that looks.
            while let Some(id) = host.supervisor() {
                signal(id, Signal::KILL);
                std::thread::yield_now();
            }
            // A test that failed may have left it stopped; it cleans up and ends.
            guardian.into_iter().for_each(|it| signal(it, Signal::CONT));
        }
        for id in self.all.iter().flat_map(Host::tree) {
            signal(id, Signal::KILL);
        }
    }
}

/// Starts a command on a host that has this way to the server; where there is no server there is no network either.
fn start(way: Option<&Way>, command: &std::process::Command) -> Contender {
    match way {
        Some(way) => Contender::start(&way.network.enter(command)).unwrap(),
        None => Contender::start(command).unwrap(),
    }
}

fn supervise(records: &std::path::Path, name: &str, url: &str, mark: &str, size: u32) -> std::process::Command {
    let recorder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/run_rounds/recorder.pl");
    let mut command = shell::incumbent(&["run", "job", "--on", url, "--ttl", TTL, "--identity", name]);
    // Elections in files have the locks beside them.
    if !url.starts_with("file:") {
        command.arg("--state-dir").arg(records.with_file_name(format!("state-{name}")));
    }
    command.args(["--grace", "200ms", "--restart", "always", "--back-off", "20ms", "--"]);
    command.args(["env", &format!("{MARK}={mark}"), "perl", recorder]).arg(records).arg(name).arg(size.to_string());
    command
}
