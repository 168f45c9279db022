//! Jepsen's lock-set (C61): processes add to a plain file inside the critical section, while they are killed, and paused for longer than their lease.
//!
//! The critical section is the worst there is: read, wait, write back, in a thread that never looks at the leadership again. With the fence before the file, every
//! add that was acknowledged is in the set, once. Without it, the same run loses some: that is what shows that the run is worth something.

#![allow(clippy::print_stdout, reason = "the contenders tell the test what they do")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use incumbent::fence::Refusal;
use incumbent::fence::directory::Guarded;
use incumbent::{Election, Identity, Next, Timing, Token};
use incumbent_testbed::{Contender, eventually};

const ON: &str = "LOCK_SET_ON";
const FOLDER: &str = "LOCK_SET_FOLDER";
const FENCE: &str = "LOCK_SET_FENCE";
const TTL_MS: &str = "LOCK_SET_TTL_MS";
const WHO: &str = "LOCK_SET_WHO";

/// Adds in one leadership; then another gets its turn.
const ADDS_PER_LEADERSHIP: usize = 2;

/// What every contender does: a copy of this test, told by the environment. Without it this is no test.
#[test]
fn contender() {
    let Ok(url) = std::env::var(ON) else { return };
    let variable = |name| std::env::var(name).expect("the test sets it");
    let path = PathBuf::from(variable(FOLDER));
    let ttl = Duration::from_millis(variable(TTL_MS).parse().expect("a number"));
    let writer = Arc::new(Writer {
        guarded: (variable(FENCE) == "on").then(|| Guarded::at(&path).expect("the test made it")),
        file: path.join("set"),
        who: variable(WHO),
        made: AtomicU64::new(0),
        to_retry: Mutex::default(),
        waiting: Mutex::default(),
    });
    println!(); // the test's own name stands on this line
    std::thread::spawn({
        let writer = Arc::clone(&writer);
        move || writer.listen()
    });
    let work = async {
        let identity = Identity::named(&writer.who).expect("a good name");
        let timing = Timing::of(ttl).build().expect("a good ttl");
        let election = Election::on(url).identity(identity).timing(timing).build().await.expect("the engine is there");
        let elected = |leadership: incumbent::Leadership| {
            let writer = Arc::clone(&writer);
            async move {
                for _ in 0..ADDS_PER_LEADERSHIP {
                    writer.add_in_a_thread_of_its_own(leadership.token()).await;
                }
                Ok::<_, incumbent::Error>(Next::Resign)
            }
        };
        election.run(elected).await.expect("it never wants to quit");
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work);
}

struct Writer {
    guarded: Option<Guarded>,
    file: PathBuf,
    who: String,
    made: AtomicU64,
    /// Refused, so not added: to be added by a later leadership.
    to_retry: Mutex<Vec<String>>,
    /// Critical sections between their read and their write, by what they said.
    waiting: Mutex<BTreeMap<String, mpsc::Sender<()>>>,
}

impl Writer {
    /// Lets critical sections go on when the test says so; ends the process when the test does.
    fn listen(&self) {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if let Some(go) = self.waiting.lock().expect("nobody panics with it").remove(&line) {
                let _ = go.send(());
            }
        }
        std::process::exit(0);
    }

    /// If the leadership is lost, only the waiting for it ends: the thread goes on, as a thread does that hangs in a system call.
    async fn add_in_a_thread_of_its_own(self: &Arc<Self>, token: Token) {
        let (done, wait) = tokio::sync::oneshot::channel();
        let writer = Arc::clone(self);
        std::thread::spawn(move || {
            writer.add(token);
            let _ = done.send(());
        });
        wait.await.expect("the thread does not panic");
    }

    fn add(&self, token: Token) {
        let again = self.to_retry.lock().expect("nobody panics with it").pop();
        let element = again.unwrap_or_else(|| format!("{}-{}", self.who, self.made.fetch_add(1, Ordering::Relaxed)));
        let section = format!("{element} {token}");
        let (go, told) = mpsc::channel();
        self.waiting.lock().expect("nobody panics with it").insert(section.clone(), go);
        let done = self.read(token).and_then(|mut set| {
            println!("read {section}");
            told.recv().expect("kept until it is used");
            set += &format!("{element}\n");
            self.write(token, &set)
        });
        match done {
            Ok(()) => println!("added {section}"),
            Err(Refusal::Stale(stale)) => {
                self.to_retry.lock().expect("nobody panics with it").push(element);
                println!("refused {section} {}", stale.seen);
            }
            Err(Refusal::Trouble(why)) => panic!("{why}"),
        }
    }

    fn read(&self, token: Token) -> Result<String, Refusal> {
        let bytes = match &self.guarded {
            Some(guarded) => guarded.read(token, "set")?.unwrap_or_default(),
            None => std::fs::read(&self.file).unwrap_or_default(),
        };
        Ok(String::from_utf8(bytes).expect("it holds names"))
    }

    fn write(&self, token: Token, set: &str) -> Result<(), Refusal> {
        match &self.guarded {
            Some(guarded) => guarded.write(token, "set", set.as_bytes()),
            None => {
                // As a whole too, so that what is lost was not lost in half a write.
                let fresh = self.file.with_extension(&self.who);
                std::fs::write(&fresh, set).and_then(|()| std::fs::rename(&fresh, &self.file)).expect("writable");
                Ok(())
            }
        }
    }
}

/// Contenders, and what the test has told them.
struct Stage<'a> {
    url: &'a str,
    folder: &'a Path,
    fence: &'a str,
    ttl: Duration,
    contenders: Vec<Contender>,
    /// What those said that were killed.
    dead_said: Vec<String>,
    started: usize,
    told: BTreeSet<String>,
}

/// A critical section that has read and waits to be told to write.
#[derive(Clone, Debug)]
struct Section {
    by: usize,
    /// Element and token, as the contender said them.
    text: String,
    token: u64,
}

impl Stage<'_> {
    fn start_one(&mut self) -> Contender {
        let mut command = Command::new(std::env::current_exe().expect("its own path"));
        command.args(["--exact", "contender", "--nocapture", "--test-threads=1"]);
        command.env(ON, self.url).env(FOLDER, self.folder).env(FENCE, self.fence);
        command.env(TTL_MS, self.ttl.as_millis().to_string()).env(WHO, format!("c{}", self.started));
        self.started += 1;
        Contender::start(&command).expect("it can be started")
    }

    /// Waits for a critical section with a greater token than `beyond`, and returns the one with the greatest.
    fn section(&self, beyond: u64) -> Section {
        let mut newest = None;
        eventually("somebody is elected and reads", || {
            newest = self.sections().into_iter().max_by_key(|it| it.token).filter(|it| it.token > beyond);
            newest.is_some()
        });
        newest.expect("waited for above")
    }

    fn sections(&self) -> Vec<Section> {
        let mut all = Vec::new();
        for (by, contender) in self.contenders.iter().enumerate() {
            for text in contender.lines().iter().filter_map(|line| line.strip_prefix("read ")) {
                let token = text.split(' ').nth(1).and_then(|it| it.parse().ok()).expect("an element and a token");
                all.push(Section { by, text: text.to_owned(), token });
            }
        }
        all.retain(|it| !self.told.contains(&it.text));
        all
    }

    fn go_on(&mut self, section: &Section) {
        self.told.insert(section.text.clone());
        self.contenders[section.by].say(&section.text).expect("it listens");
    }

    /// Lets it write, and waits for what comes of it: whether it was added.
    fn settle(&mut self, section: &Section) -> bool {
        self.go_on(section);
        let (added, refused) = (format!("added {}", section.text), format!("refused {} ", section.text));
        let line = self.contenders[section.by].hear("what came of it", |line| line == added || line.starts_with(&refused));
        line == added
    }

    fn kill(&mut self, by: usize) {
        let next = self.start_one();
        let former = std::mem::replace(&mut self.contenders[by], next);
        former.kill();
        self.dead_said.extend(former.lines());
    }

    /// Paused between read and write until somebody else has read, and written unless it is to be `overtaken` in its own critical section; then it goes on
    /// as if nothing had been.
    fn pause_for_longer_than_the_lease(&mut self, overtaken: bool) {
        let paused = self.section(0);
        self.contenders[paused.by].pause();
        let began = Instant::now();
        // Where the kernel keeps the seat, nobody is elected until the paused process goes on: then it is, because its time has passed.
        eventually("the lease is over", || {
            began.elapsed() > self.ttl * 2 || self.sections().iter().any(|it| it.token > paused.token)
        });
        if !self.sections().iter().any(|it| it.token > paused.token) {
            self.contenders[paused.by].resume();
        }
        let other = self.section(paused.token);
        if !overtaken {
            self.settle(&other);
        }
        self.contenders[paused.by].resume();
        self.settle(&paused);
        if overtaken {
            self.settle(&other);
        }
    }

    fn said(&self) -> Vec<String> {
        self.contenders.iter().flat_map(Contender::lines).chain(self.dead_said.iter().cloned()).collect()
    }
}

/// What a run came to.
#[derive(Debug)]
struct Outcome {
    acknowledged: usize,
    refused: usize,
    /// Acknowledged, and not in the set.
    lost: BTreeSet<String>,
    /// In the set, though refused, or more than once.
    odd: Vec<String>,
}

fn run(url: &str, ttl: Duration, fence: &str) -> Outcome {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path();
    let mut stage =
        Stage { url, folder: path, fence, ttl, contenders: Vec::new(), dead_said: Vec::new(), started: 0, told: BTreeSet::new() };
    for _ in 0..4 {
        let contender = stage.start_one();
        stage.contenders.push(contender);
    }
    for round in 0..2 {
        for _ in 0..3 {
            let next = stage.section(0);
            stage.settle(&next);
        }
        stage.pause_for_longer_than_the_lease(round == 1);
        // Killed before its write, and killed in the middle of it.
        let victim = stage.section(0);
        if round == 0 {
            stage.go_on(&victim);
        }
        stage.kill(victim.by);
    }
    // Whoever still waits to write does so now, long after its time; and somebody has the last word.
    for late in stage.sections() {
        stage.settle(&late);
    }
    let last = stage.section(0);
    stage.settle(&last);
    for contender in &stage.contenders {
        contender.kill();
    }
    judge(&stage.said(), &std::fs::read_to_string(path.join("set")).expect("something was added"))
}

fn judge(said: &[String], set: &str) -> Outcome {
    let elements = |word: &str| -> Vec<String> {
        said.iter().filter_map(|it| it.strip_prefix(word)).filter_map(|it| it.split(' ').next()).map(str::to_owned).collect()
    };
    let (added, refused) = (elements("added "), elements("refused "));
    let in_set: BTreeSet<String> = set.lines().map(str::to_owned).collect();
    let acknowledged: BTreeSet<String> = added.iter().cloned().collect();
    let twice = set.lines().filter(|it| set.lines().filter(|other| other == it).count() > 1).map(str::to_owned);
    // One that was refused may have been tried again by somebody who was killed before he could say so.
    let tried_again = |element: &String| elements("read ").iter().filter(|it| *it == element).count() > 1;
    let refused_and_there = refused.iter().filter(|it| in_set.contains(*it) && !acknowledged.contains(*it) && !tried_again(it));
    Outcome {
        acknowledged: acknowledged.len(),
        refused: refused.len(),
        lost: acknowledged.difference(&in_set).cloned().collect(),
        odd: twice.chain(refused_and_there.cloned()).collect(),
    }
}

/// With the fence nothing is lost on this engine, and something was refused.
fn nothing_is_lost_on(url: &str, ttl: Duration) {
    let outcome = run(url, ttl, "on");
    assert!(outcome.lost.is_empty() && outcome.odd.is_empty(), "{outcome:?}");
    assert!(outcome.refused >= 2 && outcome.acknowledged >= 8, "nothing was at stake: {outcome:?}");
}

#[cfg(feature = "file")]
mod file {
    use super::*;

    #[test]
    fn nothing_is_lost_with_a_fence() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        nothing_is_lost_on(&format!("file:{}/seat", folder.path().display()), Duration::from_millis(800));
    }

    #[test]
    fn without_a_fence_the_same_run_loses_what_was_acknowledged() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let outcome = run(&format!("file:{}/seat", folder.path().display()), Duration::from_millis(800), "off");
        assert!(!outcome.lost.is_empty() && outcome.refused == 0, "{outcome:?}");
    }
}

#[cfg(feature = "etcd")]
#[test]
fn nothing_is_lost_on_etcd() {
    use incumbent_testbed::{Etcd, Server as _};
    let etcd = Etcd::debian().start().expect("etcd is installed");
    nothing_is_lost_on(&format!("etcd://{}/jobs/seat", etcd.address()), Duration::from_secs(2));
}

#[cfg(feature = "zookeeper")]
#[test]
fn nothing_is_lost_on_zookeeper() {
    use incumbent_testbed::{Server as _, ZooKeeper};
    let zookeeper = ZooKeeper::debian().start().expect("ZooKeeper is installed");
    nothing_is_lost_on(&format!("zookeeper://{}/jobs/seat?tick-ms=100", zookeeper.address()), Duration::from_secs(1));
}

#[cfg(feature = "redis")]
#[test]
fn nothing_is_lost_on_redis() {
    use incumbent_testbed::{Redis, Server as _};
    let redis = Redis::debian().start().expect("Redis is installed");
    nothing_is_lost_on(&format!("redis://{}/jobs/seat", redis.address()), Duration::from_secs(1));
}

#[cfg(feature = "consul")]
#[test]
fn nothing_is_lost_on_consul() {
    use incumbent_testbed::Consul;
    let consul = Consul::plan().session_ttl_min(Duration::from_millis(500)).start().expect("a free port");
    // Without the lock-delay, which would keep late writes away by waiting: here the fence must.
    nothing_is_lost_on(&format!("consul://{}/jobs/seat?ttl-min=0.5&lock-delay=0", consul.address()), Duration::from_secs(1));
}

#[cfg(feature = "postgres")]
#[test]
fn nothing_is_lost_on_postgres() {
    use incumbent_testbed::{Postgres, Server as _};
    let postgres = Postgres::debian().start().expect("PostgreSQL is installed");
    let login = "incumbent:a%20password%20with%20spaces%20%26%20signs%2F%2540";
    nothing_is_lost_on(&format!("postgres://{login}@{}/postgres/jobs/seat", postgres.address()), Duration::from_secs(1));
}

#[cfg(feature = "nats")]
#[test]
fn nothing_is_lost_on_nats() {
    use incumbent_testbed::{Nats, Server as _};
    let nats = Nats::recent().start().expect("cargo xtask install");
    nothing_is_lost_on(&format!("nats://{}/jobs/seat", nats.address()), Duration::from_secs(1));
}

#[cfg(feature = "kubernetes")]
#[test]
fn nothing_is_lost_on_kubernetes() {
    use incumbent_testbed::Kubernetes;
    let kubernetes = Kubernetes::start().expect("a free port");
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, kubernetes.kubeconfig()).expect("writable");
    nothing_is_lost_on(&format!("kubernetes:default/seat?kubeconfig={}", file.display()), Duration::from_secs(1));
}
