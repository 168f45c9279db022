//! Fencing before a takeover, with real hosts as far as one machine has them: a host that falls silent is a PID namespace with a supervisor, its guardian and its command, stopped
//! as a whole, so that everything in it would go on long after its lease if somebody woke it. Those who take over are outside, as whoever reaches for a switch is.
//!
//! The agents are one of ours that kills a whole namespace and Debian's `fence_dummy`. Needs the right to make namespaces.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use incumbent::{Election, Identity, Timing};
use incumbent_testbed::{Consul, Etcd, Kubernetes, Nats, Postgres, Redis, Relay, Server as _, Verdict, ZooKeeper, eventually};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;
use tempfile::TempDir;

mod places;
mod shell;
use places::Places;
use shell::{ends, incumbent, text};

/// The common part of all hosts: the engine's URL, the folder of the agent, and what the commands write.
struct Stage {
    url: String,
    folder: TempDir,
}

impl Stage {
    fn new(url: String) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("log"), "").unwrap();
        fs::write(folder.path().join("mode"), "works").unwrap();
        Stage { url, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }

    /// The words with which our own agent is used.
    fn by_our_agent(&self) -> Vec<String> {
        let agent = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/run_fence/fence_host.sh");
        let option = format!("hosts={}", self.folder.path().display());
        vec![format!("--fence=agent:{}", agent.display()), "--fence-option".to_owned(), option]
    }

    /// Boots a host whose supervisor contends with these options. Its command writes its name.
    fn boot(&self, name: &str, options: &[String]) -> Host {
        let (process, said) = self.start(name, &[], options);
        let first = Pid::from_child(&process);
        Host { process, first, said }
    }

    /// The same in a namespace of its own, of which the agent knows the first process.
    fn boot_apart(&self, name: &str, options: &[String]) -> Host {
        let mut apart = vec!["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
        if !rustix::process::geteuid().is_root() {
            apart.push("--map-root-user");
        }
        let (process, said) = self.start(name, &apart, options);
        let children = format!("/proc/{0}/task/{0}/children", process.id());
        let mut first = None;
        eventually("the host has a first process", || {
            first = fs::read_to_string(&children).ok().and_then(|it| it.split_whitespace().next()?.parse::<i32>().ok());
            first.is_some()
        });
        fs::write(self.path(name), first.unwrap().to_string()).unwrap();
        Host { process, first: Pid::from_raw(first.unwrap()).unwrap(), said }
    }

    fn start(&self, name: &str, before: &[&str], options: &[String]) -> (Child, PathBuf) {
        self.start_at(&self.url, name, before, options, "exec sleep 1000")
    }

    /// The same with an engine elsewhere, and what the command does once it has written its name.
    fn start_at(&self, url: &str, name: &str, before: &[&str], options: &[String], then: &str) -> (Child, PathBuf) {
        let line = format!("echo \"{name} $INCUMBENT_TOKEN\" >>{}; {then}", self.path("log").display());
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).args(before).arg(env!("CARGO_BIN_EXE_incumbent"));
        command.args(["run", "job", "--ttl", "2s", "--identity", name, "--on", url]);
        // Elections in files have the locks beside them.
        if !self.url.starts_with("file:") {
            command.arg("--state-dir").arg(self.path(&format!("state-{name}")));
        }
        command.args(options).args(["--", "/bin/sh", "-c", &line]);
        let said = self.path(&format!("{name}.said"));
        command.stdin(Stdio::null()).stderr(fs::File::create(&said).unwrap());
        (command.spawn().unwrap(), said)
    }

    /// Starts a sidecar, and waits until it leads and the engine has it on record: on some that is an instant later.
    fn leads_beside_a_program(&self, name: &str) -> Host {
        let said = self.path(&format!("{name}.said"));
        let mut command =
            incumbent(&["sidecar", "job", "--ttl", "2s", "--listen", "127.0.0.1:0", "--identity", name, "--on", &self.url]);
        command.arg("--state-dir").arg(self.path(&format!("state-{name}")));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&said).unwrap());
        let process = command.spawn().unwrap();
        let host = Host { first: Pid::from_child(&process), process, said };
        host.says("elected for job");
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let election = runtime.block_on(Election::on(&self.url).name("job").build()).unwrap();
        eventually("it is on record", || {
            let leaders = runtime.block_on(election.look()).unwrap().leaders;
            leaders.iter().any(|it| it.identity.name() == name && it.since.is_some())
        });
        host
    }

    /// Boots a host, waits until its command runs, and stops everything in it for good.
    fn boot_and_fall_silent(&self, name: &str, options: &[String]) -> Host {
        let host = self.boot_apart(name, options);
        eventually("its command runs", || self.runs(name));
        let namespace = fs::read_link(format!("/proc/{}/ns/pid", host.first.as_raw_pid())).unwrap();
        let mut count = 0;
        // Two rounds: a process may be born while its parent is being stopped.
        for _ in 0..2 {
            for pid in fs::read_dir("/proc").unwrap().filter_map(|it| it.ok()?.file_name().to_str()?.parse::<i32>().ok()) {
                if fs::read_link(format!("/proc/{pid}/ns/pid")).is_ok_and(|it| it == namespace) {
                    kill_process(Pid::from_raw(pid).unwrap(), Signal::STOP).unwrap();
                    count += 1;
                }
            }
        }
        assert!(count >= 6, "supervisor, guardian and command, twice each: {count}");
        host
    }

    fn runs(&self, name: &str) -> bool {
        self.log().lines().any(|it| it.starts_with(&format!("{name} ")))
    }

    fn shots(&self) -> usize {
        self.log().lines().filter(|it| it.starts_with("off ")).count()
    }

    /// The notes on former leaderships, newest first.
    fn notes(&self) -> Vec<String> {
        let history: Value =
            serde_json::from_slice(&ends(incumbent(&["history", "job", "--json", "--on", &self.url]), 0).stdout).unwrap();
        let past = history["past"].as_array().unwrap();
        past.iter().map(|it| it["note"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Demands that this is on record, whether the past tells of that leadership yet or not: some engines write it later than they fill the seat.
    fn is_noted(&self, beginning: &str) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let look = async { Election::on(&self.url).name("job").build().await.unwrap().look().await.unwrap() };
        let notes = runtime.block_on(look).notes;
        assert!(notes.iter().any(|it| it.text.starts_with(beginning)), "{beginning}: {notes:?}");
    }

    fn confirm(&self, more: &[&str], code: i32) -> String {
        let output = ends(incumbent(&[&["fence", "confirm", "job", "--on", &self.url], more].concat()), code);
        format!("{}{}", text(&output.stdout), text(&output.stderr))
    }
}

/// A host; off when dropped.
struct Host {
    process: Child,
    first: Pid,
    said: PathBuf,
}

impl Host {
    fn lives(&self) -> bool {
        test_kill_process(self.first).is_ok()
    }

    fn says(&self, what: &str) {
        eventually(what, || self.said().contains(what));
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }

    fn told_to_end(&mut self) {
        kill_process(self.first, Signal::TERM).unwrap();
        self.ended();
    }

    /// Its exit code, when it has ended.
    fn ended(&mut self) -> Option<i32> {
        let mut status = None;
        eventually("its supervisor ends", || {
            status = self.process.try_wait().unwrap();
            status.is_some()
        });
        status.and_then(|it| it.code())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = kill_process(self.first, Signal::KILL);
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Where elections are, and what keeps it there.
type Place = (Box<dyn Send>, String);
/// Begins one.
type Begin = fn() -> Place;

fn redis() -> Place {
    let redis = Redis::debian().start().unwrap();
    let url = format!("redis://{}/", redis.address());
    (Box::new(redis), url)
}

fn etcd() -> Place {
    let etcd = Etcd::debian().start().unwrap();
    let url = format!("etcd://{}/fence", etcd.address());
    (Box::new(etcd), url)
}

fn zookeeper() -> Place {
    let zookeeper = ZooKeeper::debian().start().unwrap();
    let url = format!("zookeeper://{}/fence?tick-ms=100", zookeeper.address());
    (Box::new(zookeeper), url)
}

fn postgres() -> Place {
    let postgres = Postgres::debian().start().unwrap();
    let url =
        format!("postgres://incumbent:a%20password%20with%20spaces%20%26%20signs%2F%2540@{}/postgres/fence", postgres.address());
    (Box::new(postgres), url)
}

fn nats() -> Place {
    let nats = Nats::recent().start().unwrap();
    let url = format!("nats://{}/fence", nats.address());
    (Box::new(nats), url)
}

fn consul() -> Place {
    let consul = Consul::plan().session_ttl_min(std::time::Duration::from_millis(500)).start().unwrap();
    let url = format!("consul://{}/fence?ttl-min=0.5", consul.address());
    (Box::new(consul), url)
}

fn kubernetes() -> Place {
    let kubernetes = Kubernetes::start().unwrap();
    let config = tempfile::NamedTempFile::new().unwrap();
    fs::write(config.path(), kubernetes.kubeconfig()).unwrap();
    let url = format!("kubernetes:default?kubeconfig={}", config.path().display());
    (Box::new((kubernetes, config)), url)
}

/// Consul and Kubernetes are the testbed's own servers, the others the real ones.
fn on_every_engine(test: fn(&Stage)) {
    let places: [(&str, Begin); 7] = [
        ("redis", redis),
        ("etcd", etcd),
        ("zookeeper", zookeeper),
        ("postgres", postgres),
        ("nats", nats),
        ("consul", consul),
        ("kubernetes", kubernetes),
    ];
    std::thread::scope(|scope| {
        for (name, begin) in places {
            let test = move || {
                let (_server, url) = begin();
                test(&Stage::new(url));
            };
            std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, test).unwrap();
        }
    });
}

#[test]
fn a_silent_host_is_turned_off_before_the_next_command_starts_and_only_once_on_every_engine() {
    on_every_engine(a_silent_host_is_turned_off);
}

/// A sidecar has no command, and so no guardian: that it led is all that is known of it.
#[test]
fn a_silent_leader_that_had_no_guardian_is_feared_on_every_engine() {
    on_every_engine(|stage| {
        drop(stage.leads_beside_a_program("alpha"));
        is_feared(stage, "beta");
        // By its own host too: what its program does holds no lock that this one could have taken.
        is_feared(stage, "alpha");
    });
}

/// As an application leads that uses the library, and notes nothing.
#[test]
fn a_silent_leader_that_has_put_nothing_on_record_is_feared_on_every_engine() {
    on_every_engine(|stage| {
        let sidecar = stage.leads_beside_a_program("alpha");
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let election = Election::on(&stage.url).name("job").build().await.unwrap();
            let token = election.look().await.unwrap().leaders[0].token;
            election.annotate(token, "which says nothing").await.unwrap();
        });
        drop(sidecar);
        is_feared(stage, "beta");
    });
}

fn is_feared(stage: &Stage, name: &str) {
    let mut next = stage.boot(name, &words("--fence guardian --fence-give-up 1s"));
    assert_eq!(next.ended(), Some(123), "{}", next.said());
    assert!(next.said().contains("nobody has noted that its leadership") && !stage.runs(name), "{}", next.said());
}

/// The first that its command does is to kill whoever would put that on record.
#[test]
fn a_leader_that_is_killed_in_the_first_instant_of_its_command_is_on_record() {
    const KILLS_SUPERVISOR_AND_GUARDIAN: &str = r#"read -r _ _ _ supervisor _ </proc/$PPID/stat; kill -9 "$supervisor" $PPID"#;
    for begin in [etcd as Begin, zookeeper] {
        let (_server, url) = begin();
        let stage = Stage::new(url);
        let (process, said) = stage.start_at(&stage.url, "alpha", &[], &[], KILLS_SUPERVISOR_AND_GUARDIAN);
        let mut alpha = Host { first: Pid::from_child(&process), process, said };
        assert_eq!(alpha.ended(), None, "killed: {}", alpha.said());
        assert!(stage.runs("alpha"));
        let _beta = stage.boot("beta", &words("--fence guardian"));
        eventually("the next command runs", || stage.runs("beta"));
        stage.is_noted("trusted by=guardian at=");
    }
}

/// So whoever dies before it is on record leaves nothing to be feared. With a hook, which acts for the leader too.
#[test]
fn nothing_is_started_before_it_is_on_record_whether_this_leader_fences_or_not() {
    for (begin, options) in [(etcd as Begin, ""), (etcd, "--fence guardian"), (zookeeper, ""), (zookeeper, "--fence guardian")] {
        let (_server, url) = begin();
        let (relay, note_seen, through) = holding(&url, b"guarded as=");
        let stage = Stage::new(url.clone());
        let hook = format!("echo \"alpha hook\" >>{}", stage.path("log").display());
        let options = [words(options), words("--on-elected"), vec![hook]].concat();
        let (process, said) = stage.start_at(&through, "alpha", &[], &options, "exec sleep 1000");
        let alpha = Host { first: Pid::from_child(&process), process, said };
        note_seen.recv_timeout(NOTED_WITHIN).expect("it puts itself on record");
        // It waits for that as long as it has the seat, whether it knows of that or not: the next one is elected when its lease has ended.
        relay.partition();
        let _beta = stage.boot("beta", &[]);
        eventually("the next command runs", || stage.runs("beta"));
        assert!(!stage.runs("alpha"), "{url}: {} {}", stage.log(), alpha.said());
    }
}

/// A sidecar tells its program nothing before that it leads is on record.
#[test]
fn a_sidecar_that_is_killed_before_it_is_on_record_has_told_nobody_that_it_leads() {
    for begin in [etcd as Begin, zookeeper] {
        let (_server, url) = begin();
        let (relay, note_seen, through) = holding(&url, b"led as=");
        let stage = Stage::new(url);
        let told = stage.path("told");
        let mut command = incumbent(&["sidecar", "job", "--ttl", "2s", "--listen", "127.0.0.1:0", "--on", &through]);
        command.arg("--file").arg(&told).args(["--on-elected", &format!("touch {}", stage.path("hook").display())]);
        let said = stage.path("alpha.said");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&said).unwrap());
        let process = command.spawn().unwrap();
        let alpha = Host { first: Pid::from_child(&process), process, said };
        note_seen.recv_timeout(NOTED_WITHIN).expect("it puts itself on record");
        relay.partition();
        let _beta = stage.boot("beta", &[]);
        eventually("another leads", || stage.runs("beta"));
        assert!(!told.exists() && !stage.path("hook").exists(), "{}", alpha.said());
    }
}

/// A way to an engine on which a note of this kind is held, and who hears of it.
fn holding(url: &str, note: &'static [u8]) -> (Relay, std::sync::mpsc::Receiver<()>, String) {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (address, path) = rest.split_once('/').unwrap();
    let relay = Relay::before(address).unwrap();
    let (sender, seen) = std::sync::mpsc::channel();
    relay.inspect(move |chunk| match chunk.bytes.windows(note.len()).any(|it| it == note) {
        true => {
            // Nobody waits for it any more if the test has failed.
            let _ = sender.send(());
            Verdict::Hold
        }
        false => Verdict::Pass,
    });
    let through = format!("{scheme}://{}/{path}", relay.address());
    (relay, seen, through)
}

/// What a busy machine may take to elect somebody.
const NOTED_WITHIN: std::time::Duration = std::time::Duration::from_secs(60);

fn a_silent_host_is_turned_off(stage: &Stage) {
    let alpha = stage.boot_and_fall_silent("alpha", &stage.by_our_agent());
    assert!(alpha.lives());
    let mut beta = stage.boot("beta", &stage.by_our_agent());
    eventually("the next command runs", || stage.runs("beta"));
    assert!(!alpha.lives(), "its host was turned off first");
    let log = stage.log();
    let order: Vec<&str> = log.lines().map(|it| it.split(' ').next().unwrap()).collect();
    assert_eq!(order, ["alpha", "off", "beta"]);
    stage.is_noted("fenced by=agent:");

    // Beta ends in order: there is nobody to fence.
    beta.told_to_end();
    let _gamma = stage.boot("gamma", &stage.by_our_agent());
    eventually("the third command runs", || stage.runs("gamma"));
    assert_eq!(stage.shots(), 1, "{}", stage.log());
    stage.is_noted("guarded as=beta_");
}

#[test]
fn a_fence_that_fails_hangs_or_lies_starts_nothing_until_a_person_confirms() {
    let redis = Redis::debian().start().unwrap();
    for (mode, says) in [
        ("fails", "exit code 1: Failed: no answer from the device"),
        ("hangs", "off had not ended after 300ms, and was killed"),
        ("lies", "also that alpha is on: it is not believed"),
    ] {
        let stage = Stage::new(format!("redis://{}/{mode}", redis.address()));
        fs::write(stage.path("mode"), mode).unwrap();
        let agent = [stage.by_our_agent(), words("--fence-timeout 300ms")].concat();
        let alpha = stage.boot_and_fall_silent("alpha", &agent);
        // Who gives up has started nothing, and does not hide the silent one from the next.
        let mut gives_up = stage.boot("gives-up", &[agent.clone(), words("--fence-give-up 1s")].concat());
        assert_eq!(gives_up.ended(), Some(123), "{}", gives_up.said());
        let left = &stage.notes()[0];
        assert!(left.starts_with("idle owes=") && left.contains(" as=alpha_") && left.contains(" berth="), "{mode}: {left}");

        let beta = stage.boot("beta", &agent);
        beta.says("NOT STARTED: alpha (token ");
        assert!(beta.said().contains(says), "{}", beta.said());
        assert!(beta.said().contains(&format!("incumbent fence confirm job --yes --on {}\n", stage.url)), "{}", beta.said());
        let before = stage.shots();
        eventually("the agent is tried again", || stage.shots() > before);
        assert!(alpha.lives() && !stage.runs("beta") && !stage.runs("gives-up"), "{}", stage.log());
        if mode == "hangs" {
            let all = fs::read_to_string(stage.path("hanging")).unwrap();
            let first = all.lines().next().and_then(|it| Pid::from_raw(it.parse().ok()?)).unwrap();
            eventually("what the agent started is dead", || test_kill_process(first).is_err());
        }

        assert!(stage.confirm(&["--host", "alpha"], 0).contains("would confirm that alpha is dead"));
        assert!(stage.confirm(&["--host", "beta", "--yes"], 2).contains("no leader \"beta\""), "it is in office");
        assert!(!stage.runs("beta"), "nothing was confirmed yet");
        assert!(stage.confirm(&["--host", "alpha", "--yes"], 0).contains("confirmed that alpha is dead"));
        eventually("the next command runs", || stage.runs("beta"));
        assert!(stage.notes().iter().any(|it| it.starts_with("confirmed by=")), "{:?}", stage.notes());
        assert!(stage.confirm(&[], 0).contains("nothing to confirm"));
    }
}

#[test]
fn a_silent_host_is_not_forgotten_when_more_have_given_up_than_an_engine_remembers() {
    let redis = Redis::debian().start().unwrap();
    let stage = Stage::new(format!("redis://{}/", redis.address()));
    fs::write(stage.path("mode"), "fails").unwrap();
    let alpha = stage.boot_and_fall_silent("alpha", &stage.by_our_agent());
    for attempt in 0..incumbent::engine::Past::KEPT_MAX + 2 {
        let mut gives_up = stage.boot("gives-up", &[stage.by_our_agent(), words("--fence-give-up 1ms")].concat());
        assert_eq!(gives_up.ended(), Some(123), "{attempt}: {}", gives_up.said());
    }
    assert!(!stage.notes().iter().any(|it| it.starts_with("guarded")), "the record does not reach back to it");
    let beta = stage.boot("beta", &stage.by_our_agent());
    beta.says("NOT STARTED: alpha (token ");
    assert!(alpha.lives() && !stage.runs("beta") && !stage.runs("gives-up"), "{}", stage.log());

    assert!(stage.confirm(&["--host", "alpha", "--yes"], 0).contains("confirmed that alpha is dead"));
    eventually("the next command runs", || stage.runs("beta"));
    assert!(stage.confirm(&[], 0).contains("nothing to confirm"));
}

#[test]
fn debians_dummy_agent_is_believed_if_it_says_twice_that_the_host_is_off() {
    let etcd = Etcd::debian().start().unwrap();
    let stage = Stage::new(format!("etcd://{}/fence", etcd.address()));
    let options = |name: &str, content: &str| {
        let path = stage.path(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        words(&format!("--fence agent:dummy --fence-options {}", path.display()))
    };
    let power = stage.path("power");
    fs::write(&power, "on").unwrap();
    let works = format!("[alpha]\nstatus_file={}\n", power.display());
    let _alpha = stage.boot_and_fall_silent("alpha", &options("works", &works));

    let mut slow = stage
        .boot("slow", &[options("slow", &format!("delay=60\n{works}")), words("--fence-timeout 2s --fence-give-up 5s")].concat());
    assert_eq!(slow.ended(), Some(123), "{}", slow.said());
    assert!(slow.said().contains("off had not ended after 2s"), "{}", slow.said());
    assert_eq!(fs::read_to_string(&power).unwrap(), "on");

    let failing = [options("failing", "type=fail\npower_timeout=1\n[alpha]\n"), words("--fence-give-up 8s")].concat();
    let mut failing = stage.boot("failing", &failing);
    assert_eq!(failing.ended(), Some(123), "{}", failing.said());
    assert!(failing.said().contains("could not be fenced by agent:dummy: exit code 1"), "{}", failing.said());

    // It cannot name a host, so it must not be let loose on one that it has no options for.
    let other = options("other", &works.replace("[alpha]", "[omega]"));
    let mut other = stage.boot("other", &[other, words("--fence-give-up 2s")].concat());
    assert_eq!(other.ended(), Some(123), "{}", other.said());
    assert!(other.said().contains("below [alpha]") && fs::read_to_string(&power).unwrap() == "on", "{}", other.said());

    let _beta = stage.boot("beta", &options("works", &works));
    eventually("the next command runs", || stage.runs("beta"));
    assert_eq!(fs::read_to_string(&power).unwrap(), "off");
    let notes = stage.notes();
    assert!(notes.iter().any(|it| it.starts_with("fenced by=agent:dummy at=")), "{notes:?}");
}

#[test]
fn a_guardian_is_trusted_if_there_was_one_and_time_is_waited_for() {
    let redis = Redis::debian().start().unwrap();
    let stage = Stage::new(format!("redis://{}/", redis.address()));
    let _alpha = stage.boot_and_fall_silent("alpha", &words("--fence guardian"));
    let beta = stage.boot_and_fall_silent("beta", &words("--fence guardian"));
    assert!(stage.notes()[0].starts_with("trusted by=guardian at="), "{:?}", stage.notes());
    drop(beta);
    let mut gamma = stage.boot("gamma", &words("--fence delay:300ms"));
    eventually("the third command runs", || stage.runs("gamma"));
    assert!(stage.notes()[0].starts_with("waited by=delay:300ms at="), "{:?}", stage.notes());
    gamma.told_to_end();

    // A leader that is no supervisor has no guardian.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let token = runtime.block_on(async {
        let timing = Timing::of(std::time::Duration::from_secs(1)).build().unwrap();
        let election = Election::on(&stage.url).name("job").timing(timing).identity(Identity::named("stranger").unwrap());
        let election = election.build().await.unwrap();
        let leadership = election.campaign().await.unwrap();
        leadership.token().to_string()
    });
    let delta = stage.boot("delta", &words("--fence guardian"));
    delta.says("nobody has noted that its leadership");
    assert!(!stage.runs("delta"));
    stage.confirm(&["--token", &token, "--yes"], 0);
    eventually("the last command runs", || stage.runs("delta"));
    assert!(stage.confirm(&["--token", &token, "--yes"], 2).contains("settled already"));
}

#[test]
fn whoever_was_evicted_by_force_has_not_said_that_its_command_is_dead() {
    let places = Places::of(1);
    let _node = places.start(1);
    let stage = Stage::new(places.url());
    fs::write(stage.path("mode"), "fails").unwrap();
    let alpha = stage.boot_and_fall_silent("alpha", &stage.by_our_agent());
    let body = r#"{"force":true}"#;
    let request = format!(
        "POST /v1/elections/job/evict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(places.addresses[0].0).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let beta = stage.boot("beta", &stage.by_our_agent());
    beta.says("NOT STARTED: alpha (token ");
    assert!(alpha.lives() && !stage.runs("beta"), "{}", stage.log());
}

#[test]
fn whoever_was_killed_on_this_machine_is_known_to_be_dead_and_not_fenced() {
    let stage = Stage::new(String::new());
    let url = format!("file:{}", stage.path("elections").display());
    let stage = Stage { url, ..stage };
    let asked = stage.confirm(&["--yes"], 2);
    assert!(asked.contains(&format!("nothing is on record of it on {}, which is named by --on", stage.url)), "{asked}");
    let alpha = stage.boot("alpha", &stage.by_our_agent());
    eventually("its command runs", || stage.runs("alpha"));
    drop(alpha);
    let _beta = stage.boot("beta", &stage.by_our_agent());
    eventually("the next command runs", || stage.runs("beta"));
    assert!(stage.notes()[0].starts_with("dead by=berth at="), "{:?}", stage.notes());
    assert_eq!(stage.shots(), 0);
    assert!(stage.confirm(&["--token", "7777"], 2).contains("no leadership 7777"));
    assert!(stage.confirm(&["--yes"], 0).contains("nothing to confirm"));
}

#[test]
fn what_is_wrong_with_a_fence_is_said_in_one_line() {
    let stage = Stage::new(String::new());
    let stage = Stage { url: format!("file:{}", stage.path("elections").display()), ..stage };
    let secret = stage.path("secret");
    fs::write(&secret, "password=x\n").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
    let secret = secret.to_str().unwrap();
    let ours = stage.by_our_agent();
    let run = ["run", "job", "--on", &stage.url];
    for (words, says) in [
        (&["--fence", "agent:no-such-agent"][..], "there is no fence_no-such-agent"),
        (&["--fence", "agent:true"], "does not describe itself as fence agents do"),
        (&["--fence", "agent:/nowhere/agent"], "there is no /nowhere/agent"),
        (&["--fence", "agent:dummy", "--fence-options", secret], "chmod 600"),
        (&["--fence", "agent:dummy", "--fence-option", "plug=7"], "--fence-port HOST=PORT"),
        (&["--fence", "guardian", "--fence-option", "ip=7"], "options and ports are for an agent"),
        (&[&ours[0], "--fence-action", "reboot"], "cannot do reboot"),
        (&[&ours[0], "--fence-option", "hosts=/nowhere"], "cannot reach its device: exit code 1: no device at ***"),
        (&["--fence", "shoot"], "write none, delay:30s, agent:NAME or guardian"),
    ] {
        let output = ends(incumbent(&[&run, words, &["--", "true"]].concat()), 120);
        let complaint = text(&output.stderr);
        assert!(complaint.contains(says), "{complaint}");
        assert!(complaint.starts_with("error: ") && !complaint.contains("password"), "{complaint}");
    }
    assert!(stage.confirm(&["--token", "7"], 2).contains("nothing is on record"));
    assert!(stage.confirm(&["--token", "7", "--host", "a"], 2).contains("cannot be used with"));
}
