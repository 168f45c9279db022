//! The figures that we publish of peers, made by `cargo xtask bench peers`: three Raft nodes on loopback, each a process with a disk of its own, fsync on.
//!
//! From the death, the silence and the resignation of the leader to the next one in office, as its own clock saw it (all are on one machine, so the clock is one);
//! what a node costs while nothing happens; and whether a busy machine costs a leadership. Beside them the floor: what the socket, a round trip and the disk take alone.
//! `cargo xtask bench peers -- calm 600` watches for needless elections for so many seconds, with every core loaded.

#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use incumbent::{Election, clock};
use incumbent_protocol::time::Instant;
use rustix::process::{Pid, Signal, kill_process};

const ROUNDS: usize = 100;
const NODES: usize = 3;
/// The leases of the group: Raft's usual election timeout.
const PATIENCE: Duration = Duration::from_millis(150);
/// Long enough for everybody to have settled.
const BETWEEN: Duration = Duration::from_millis(400);
/// What a group has that says nothing of it.
const PATIENCE_USUAL: Duration = Duration::from_secs(1);
const IDLE: Duration = Duration::from_secs(20);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["node", url] => node(url),
        ["calm", seconds] => calm(Duration::from_secs(seconds.parse().expect("a number of seconds"))),
        [] => {
            floor();
            let mut group = Group::start(PATIENCE);
            group.killed();
            group.silent();
            group.handed_over();
            drop(group);
            cost(PATIENCE);
            cost(PATIENCE_USUAL);
            calm(Duration::from_secs(60));
        }
        ["killed"] => Group::start(PATIENCE).killed(),
        ["silent"] => Group::start(PATIENCE).silent(),
        ["hand-over"] => Group::start(PATIENCE).handed_over(),
        ["cost"] => {
            cost(PATIENCE);
            cost(PATIENCE_USUAL);
        }
        other => println!("say killed, silent, hand-over, cost or calm SECONDS, or nothing for all, and not {other:?}"),
    }
}

/// One node: contends for ever, and says when it is elected and when it has lost.
fn node(url: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (orders_in, mut orders) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let _ = orders_in.send(line);
        }
        // Whoever started this one is gone.
        std::process::exit(0);
    });
    runtime.block_on(async move {
        let election = Election::on(url).name("bench").build().await.expect("a good URL, and a free port");
        loop {
            let leadership = election.campaign().await.expect("nothing is wrong with it");
            say("elected", leadership.token().get());
            tokio::select! {
                _ = orders.recv() => leadership.resign().await.expect("nothing is wrong with it"),
                _ = leadership.lost() => say("lost", leadership.token().get()),
            }
        }
    });
}

fn say(what: &str, token: u64) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{what} {token} {}", clock::now().as_nanos()).and_then(|()| out.flush()).expect("somebody listens");
}

/// What a node has said.
struct Said {
    node: usize,
    what: String,
    at: Instant,
}

struct Group {
    urls: Vec<String>,
    nodes: BTreeMap<usize, Child>,
    said: mpsc::Receiver<Said>,
    speaker: mpsc::Sender<Said>,
    _disks: tempfile::TempDir,
}

impl Group {
    fn start(patience: Duration) -> Group {
        let disks = tempfile::tempdir().expect("a folder");
        let listeners: Vec<_> = (0..NODES).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
        let hosts: Vec<_> = listeners.iter().map(|it| it.local_addr().expect("bound").to_string()).collect();
        let url = |me: usize| {
            let (hosts, data, patience) = (hosts.join(","), disks.path().join(me.to_string()), patience.as_millis());
            format!("peers://{hosts}/bench?me={}&data={}&patience={patience}ms", me + 1, data.display())
        };
        let urls = (0..NODES).map(url).collect();
        drop(listeners);
        let (speaker, said) = mpsc::channel();
        let mut group = Group { urls, nodes: BTreeMap::new(), said, speaker, _disks: disks };
        for node in 0..NODES {
            group.start_node(node);
        }
        group
    }

    fn start_node(&mut self, node: usize) {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["node", &self.urls[node]])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program runs");
        let (out, speaker) = (BufReader::new(child.stdout.take().expect("piped")), self.speaker.clone());
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let words: Vec<&str> = line.split(' ').collect();
                let at = Instant::from_nanos(words[2].parse().expect("a time"));
                let _ = speaker.send(Said { node, what: words[0].to_owned(), at });
            }
        });
        self.nodes.insert(node, child);
    }

    /// The next that says it is elected, and when.
    fn elected(&self) -> (usize, Instant) {
        loop {
            let said = self.said.recv_timeout(Duration::from_secs(30)).expect("somebody is elected");
            if said.what == "elected" {
                return (said.node, said.at);
            }
        }
    }

    fn killed(&mut self) {
        self.rounds("leader killed (SIGKILL)", |group, leader| group.kill(leader));
    }

    fn silent(&mut self) {
        self.rounds("leader silent (SIGSTOP)", |group, leader| group.pause(leader));
    }

    fn handed_over(&mut self) {
        self.rounds("leader hands over", |group, leader| group.tell(leader, "resign"));
    }

    fn rounds(&mut self, name: &str, mut strike: impl FnMut(&mut Group, usize) -> Instant) {
        // Whoever leads now is found out by making it resign.
        let mut leader = self.settle();
        let mut took = Vec::new();
        for _ in 0..ROUNDS {
            std::thread::sleep(BETWEEN);
            let began = strike(self, leader);
            let (next, at) = self.elected();
            took.push(at - began);
            self.go_on(leader);
            leader = next;
        }
        took.sort_unstable();
        println!(
            "{name:<26} p50 {:>8.1?}  p99 {:>8.1?}  max {:>8.1?}   ({ROUNDS} rounds, patience {PATIENCE:?})",
            took[ROUNDS / 2],
            took[ROUNDS * 99 / 100],
            took[ROUNDS - 1]
        );
    }

    fn settle(&mut self) -> usize {
        std::thread::sleep(BETWEEN * 4);
        while self.said.try_recv().is_ok() {}
        for node in 0..NODES {
            self.tell(node, "resign");
        }
        // The last one to say so leads: those that were asked and did not lead resign as soon as they do.
        let mut leader = self.elected().0;
        while let Ok(said) = self.said.recv_timeout(BETWEEN * 4) {
            leader = if said.what == "elected" { said.node } else { leader };
        }
        leader
    }

    fn tell(&mut self, node: usize, what: &str) -> Instant {
        let now = clock::now();
        let pipe = self.nodes.get_mut(&node).and_then(|it| it.stdin.as_mut()).expect("piped");
        writeln!(pipe, "{what}").expect("it lives");
        now
    }

    fn kill(&mut self, node: usize) -> Instant {
        let mut child = self.nodes.remove(&node).expect("it runs");
        let now = clock::now();
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
        now
    }

    fn pause(&mut self, node: usize) -> Instant {
        let now = clock::now();
        self.signal(node, Signal::STOP);
        now
    }

    /// What was done to a node is over.
    fn go_on(&mut self, node: usize) {
        if self.nodes.contains_key(&node) {
            self.signal(node, Signal::CONT);
        } else {
            self.start_node(node);
        }
    }

    fn signal(&self, node: usize, signal: Signal) {
        kill_process(Pid::from_child(&self.nodes[&node]), signal).expect("it is ours");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for child in self.nodes.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What each node takes while nothing happens.
fn cost(patience: Duration) {
    let group = Group::start(patience);
    group.elected();
    std::thread::sleep(BETWEEN);
    let processes: Vec<u32> = group.nodes.values().map(Child::id).collect();
    let before: Vec<f64> = processes.iter().map(|it| spent(*it)).collect();
    std::thread::sleep(IDLE);
    for (process, before) in processes.iter().zip(before) {
        let busy = (spent(*process) - before) / IDLE.as_secs_f64() * 100.0;
        println!("idle for {IDLE:?}, patience {patience:?}: {busy:.2} % of a core, {:.1} MiB", memory(*process));
    }
}

/// Leaderships that are lost while every core is loaded.
fn calm(span: Duration) {
    let group = Group::start(PATIENCE);
    group.elected();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut load: Vec<Child> = (0..cores * 2)
        .map(|_| Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().expect("sh is there"))
        .collect();
    let end = clock::now() + span;
    let mut changes = 0;
    while clock::now() < end {
        changes += usize::from(group.said.recv_timeout(end - clock::now()).is_ok_and(|it| it.what == "elected"));
    }
    for child in &mut load {
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
    }
    println!("{} busy loops on {cores} cores for {span:?}: {changes} needless elections", cores * 2);
}

/// What the machine takes for the parts alone.
fn floor() {
    let median = |mut took: Vec<Duration>| {
        took.sort_unstable();
        took[took.len() / 2]
    };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("one comes");
        stream.set_nodelay(true).expect("a socket");
        let mut byte = [0];
        while stream.read_exact(&mut byte).is_ok() {
            stream.write_all(&byte).expect("it listens");
        }
    });
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_nodelay(true).expect("a socket");
    let mut byte = [1];
    let trips = (0..1000).map(|_| {
        let began = clock::now();
        stream.write_all(&byte).and_then(|()| stream.read_exact(&mut byte)).expect("it echoes");
        clock::now() - began
    });
    let trip = median(trips.collect());
    drop(stream);
    echo.join().expect("does not panic");
    let disk = tempfile::tempdir().expect("a folder");
    let file = std::fs::File::create(disk.path().join("sync")).expect("a file");
    file.set_len(4096).and_then(|()| file.sync_all()).expect("a file");
    let syncs = (0..200u64).map(|round| {
        let began = clock::now();
        std::os::unix::fs::FileExt::write_all_at(&file, &round.to_le_bytes(), 0).and_then(|()| file.sync_data()).expect("a file");
        clock::now() - began
    });
    let sync = median(syncs.collect());
    let resets = (0..50).map(|_| death_seen());
    println!(
        "floor: round trip {trip:.1?}, sync {sync:.1?}, a killed process's socket seen closed {:.1?}",
        median(resets.collect())
    );
}

/// From the kill of a process to the end of a connection to it.
fn death_seen() -> Duration {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let script = format!("exec 3<>/dev/tcp/{}/{}; read -r line <&3", address.ip(), address.port());
    let mut child = Command::new("bash").args(["-c", &script]).stdin(Stdio::null()).spawn().expect("bash is there");
    let (mut stream, _) = listener.accept().expect("it connects");
    let began = clock::now();
    child.kill().expect("it is ours");
    let _ = stream.read(&mut [0]);
    let took = clock::now() - began;
    child.wait().expect("it is ours");
    took
}

/// Seconds of processor that a process has used.
fn spent(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it lives");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("always something").split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("a number");
    // Hundredths of a second on every Linux that we know.
    (ticks(11) + ticks(12)) / 100.0
}

/// MiB that it has for itself, pages that it shares split among those who do.
fn memory(process: u32) -> f64 {
    let path = format!("/proc/{process}/smaps_rollup");
    let rollup = std::fs::read_to_string(Path::new(&path)).expect("it lives");
    let line = rollup.lines().find(|it| it.starts_with("Pss:")).expect("always there");
    line.split_whitespace().nth(1).and_then(|it| it.parse::<f64>().ok()).expect("a number") / 1024.0
}
