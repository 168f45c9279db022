//! `incumbent sidecar` as its programs, load balancers and shells see it: one primary, never past the deadline, given back only after the work has stopped.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use incumbent_supervisor::cgroup::Cgroup;
use incumbent_testbed::{Contender, Redis, Server as _, eventually};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

mod shell;
use shell::processes;

/// Long enough for any machine, short enough to fail.
const PATIENCE: Duration = Duration::from_secs(30);

struct Sidecar {
    process: Contender,
    address: SocketAddr,
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_incumbent"));
    command.arg("sidecar").args(arguments);
    for name in ["ON", "CONFIG", "TTL", "IDENTITY", "LOG"] {
        command.env(format!("INCUMBENT_{name}"), "");
    }
    command
}

fn start(url: &str, more: &[&str]) -> Sidecar {
    let mut command = command(&["job", "--on", url, "--listen", "127.0.0.1:0"]);
    command.args(more);
    let process = Contender::start(&command).unwrap();
    let line = process.hear("where it listens", |line| line.starts_with("listening on "));
    let address = line.split(' ').nth(2).unwrap().parse().unwrap();
    Sidecar { process, address }
}

impl Sidecar {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn asking(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut stream = self.connect();
        let length = body.len();
        let request =
            format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        answer(self.asking(method, path, body))
    }

    fn code(&self, path: &str) -> u16 {
        self.ask("GET", path, "").0
    }

    fn json(&self, path: &str) -> Value {
        let (_, body) = self.ask("GET", path, "");
        serde_json::from_str(&body).unwrap_or_else(|why| panic!("{path}: {why}: {body}"))
    }

    fn is_primary(&self) -> bool {
        self.code("/primary") == 200
    }

    fn leads(&self) {
        eventually("it is the primary", || self.is_primary());
    }

    fn token(&self) -> u64 {
        self.json("/status")["token"].as_str().unwrap().parse().unwrap()
    }

    fn is_in(&self, state: &str) {
        eventually(&format!("it is {state}"), || self.json("/status")["state"] == state);
    }

    /// Told to stop by a program that stops at once.
    fn stops(&self) {
        self.is_in("stopping");
        assert_eq!(self.ask("POST", "/stopped", "").0, 200);
    }
}

fn answer(mut stream: TcpStream) -> (u16, String) {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn files(folder: &tempfile::TempDir) -> String {
    format!("file:{}", folder.path().display())
}

fn boottime_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Which of the two leads, and which does not.
fn sorted(one: Sidecar, other: Sidecar) -> (Sidecar, Sidecar) {
    eventually("one of them is the primary", || one.is_primary() || other.is_primary());
    if one.is_primary() { (one, other) } else { (other, one) }
}

#[test]
fn exactly_one_is_the_primary_and_the_other_after_it_was_killed() {
    let redis = Redis::debian().start().unwrap();
    let url = format!("redis://{}/", redis.address());
    let begin = || start(&url, &["--ttl", "3s"]);
    let (leader, other) = sorted(begin(), begin());
    for (path, of_leader, of_other) in [("/primary", 200, 503), ("/standby", 503, 200), ("/live", 200, 200)] {
        for method in ["GET", "HEAD", "OPTIONS"] {
            let (code, body) = leader.ask(method, path, "");
            assert!(code == of_leader && body.is_empty() == (method != "GET"), "{method} {path}: {code} {body}");
            assert_eq!(other.ask(method, path, "").0, of_other, "{method} {path}");
        }
    }
    let token = leader.token();
    assert_eq!(other.json("/leader")["leader"]["token"], token.to_string());
    leader.process.kill();
    other.leads();
    assert!(other.token() > token);
    assert_eq!(other.json("/leader")["leader"]["identity"], other.json("/status")["identity"]);
}

#[test]
fn one_that_was_paused_across_its_deadline_does_not_begin_with_yes() {
    let redis = Redis::debian().start().unwrap();
    let url = format!("redis://{}/", redis.address());
    let begin = || start(&url, &["--ttl", "3s"]);
    let (leader, other) = sorted(begin(), begin());
    leader.process.pause();
    // They wait in the kernel, and are the first thing that it hears of when it goes on.
    let asked = ["/primary", "/remaining", "/status"].map(|path| leader.asking("GET", path, ""));
    other.leads();
    leader.process.resume();
    let [primary, remaining, status] = asked.map(answer);
    assert_eq!(primary.0, 503, "{}", primary.1);
    assert_eq!(remaining.1, "0\n");
    assert!(status.1.contains("\"leading\":false"), "{}", status.1);
    assert!(other.is_primary());
}

#[test]
fn where_the_kernel_frees_the_seat_at_once_the_next_waits_for_what_was_promised() {
    let (folder, badges) = (folder(), folder());
    let badge = badges.path().join("leader.json");
    let leader = start(&files(&folder), &["--ttl", "4s", "--file", badge.to_str().unwrap()]);
    leader.leads();
    let other = start(&files(&folder), &["--ttl", "4s"]);
    leader.process.kill();
    let left = std::fs::read_to_string(&badge).unwrap();
    let deadline = serde_json::from_str::<Value>(&left).unwrap()["deadline_boottime_ns"].as_u64().unwrap();
    other.leads();
    assert!(boottime_ns() >= deadline, "it leads while the program of the other may still act");
}

/// One is elected next, waits, and is told to end.
#[test]
fn there_nobody_who_only_waits_takes_back_what_was_promised() {
    let (folder, badges) = (folder(), folder());
    let (badge, hooked) = (badges.path().join("leader.json"), badges.path().join("hooked"));
    let leader = start(&files(&folder), &["--ttl", "6s", "--file", badge.to_str().unwrap()]);
    leader.leads();
    let hook = format!("touch {}", hooked.display());
    let waits = start(&files(&folder), &["--ttl", "6s", "--on-lost", &hook]);
    leader.process.kill();
    let left = std::fs::read_to_string(&badge).unwrap();
    let deadline = serde_json::from_str::<Value>(&left).unwrap()["deadline_boottime_ns"].as_u64().unwrap();
    waits.is_in("entering");
    processes::signal(waits.process.process().id().unwrap(), Signal::TERM);
    waits.process.wait();
    let last = start(&files(&folder), &["--ttl", "6s"]);
    last.leads();
    assert!(boottime_ns() >= deadline, "it leads while the program of the first may still act");
    assert!(!hooked.exists(), "nothing was begun that is to be ended");
}

#[test]
fn there_a_program_may_say_that_it_has_stopped_for_as_long_as_it_may_drain() {
    let folder = folder();
    let leader = start(&files(&folder), &["--ttl", "2s", "--drain", "1m"]);
    leader.leads();
    let token = leader.token();
    let other = start(&files(&folder), &["--ttl", "2s"]);
    assert_eq!(leader.ask("POST", "/resign", "").0, 202);
    leader.is_in("stopping");
    // Longer than what was promised when it was told to stop.
    let end = boottime_ns() + 3_000_000_000;
    eventually("it drains", || boottime_ns() > end);
    let remaining = leader.ask("GET", "/remaining", "").1;
    assert!(remaining.trim().parse::<u64>().unwrap() > 0, "{remaining}");
    assert_eq!(leader.ask("POST", &format!("/stopped?token={token}"), "").0, 200);
    other.leads();
}

#[test]
fn there_a_command_waits_for_the_promise_of_a_sidecar_and_a_sidecar_for_the_death_of_a_command() {
    let (folder, badges) = (folder(), folder());
    let badge = badges.path().join("leader.json");
    let run = |script: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_incumbent"));
        command.args(["run", "job", "--on", &files(&folder), "--ttl", "4s", "--", "sh", "-c", script]);
        Contender::start(&command).unwrap()
    };
    let leader = start(&files(&folder), &["--ttl", "4s", "--file", badge.to_str().unwrap()]);
    leader.leads();
    let next = run("echo runs $$; trap '' TERM; sleep 1000 & wait; wait");
    leader.process.kill();
    let left = std::fs::read_to_string(&badge).unwrap();
    let deadline = serde_json::from_str::<Value>(&left).unwrap()["deadline_boottime_ns"].as_u64().unwrap();
    let line = next.hear("the command runs", |line| line.starts_with("runs "));
    let command: u32 = line["runs ".len()..].parse().unwrap();
    assert!(boottime_ns() >= deadline, "it runs while the program of the sidecar may still act");

    // Its guardian is frozen, so that the command lives though the seat is free.
    let supervisor = next.process().id().unwrap();
    let guardian = *processes::guardians_of(supervisor).first().unwrap();
    let group = Cgroup::make(&format!("incumbent-sidecar-{}", std::process::id())).unwrap();
    std::fs::write(group.path().join("cgroup.procs"), guardian.to_string()).unwrap();
    group.freeze().unwrap();
    let after = start(&files(&folder), &["--ttl", "4s"]);
    processes::signal(supervisor, Signal::KILL);
    after.is_in("entering");
    assert!(!after.is_primary() && processes::lives(command));
    group.thaw().unwrap();
    after.leads();
    assert!(!processes::lives(command));
    group.kill_until_empty(None);
    group.remove();
}

fn leads_by_file(path: &Path) -> Option<String> {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/run/leads.sh");
    let output = Command::new(script).arg(path).output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

#[test]
fn the_file_is_there_while_it_leads_and_says_of_itself_when_it_ends() {
    let (folder, badges) = (folder(), folder());
    let badge = badges.path().join("leader.json");
    // What a former process has left there is taken away.
    std::fs::write(&badge, "{\"token\":\"1\",\"deadline_boottime_ns\":99999999999999999}").unwrap();
    assert_eq!(leads_by_file(&badge).as_deref(), Some("1"));
    let sidecar = start(&files(&folder), &["--ttl", "3s", "--file", badge.to_str().unwrap()]);
    sidecar.leads();
    let read = || serde_json::from_str::<Value>(&std::fs::read_to_string(&badge).unwrap()).unwrap();
    let (first, status) = (read(), sidecar.json("/status"));
    assert_eq!((&first["token"], &first["identity"]), (&status["token"], &status["identity"]));
    assert!(
        first["remaining_ms"].as_u64().unwrap() <= 3000
            && first["valid_until"].as_str().unwrap() > first["written_at"].as_str().unwrap()
    );
    eventually("it is kept fresh", || read()["deadline_boottime_ns"].as_u64() > first["deadline_boottime_ns"].as_u64());
    eventually("a reader knows it", || leads_by_file(&badge).as_deref() == status["token"].as_str());
    assert_eq!(sidecar.ask("POST", "/resign", "").0, 202);
    sidecar.is_in("stopping");
    eventually("it is gone as soon as the work is to stop", || !badge.exists());
    sidecar.stops();
    sidecar.leads();
    sidecar.process.kill();
    assert!(badge.exists());
    eventually("its time passes", || leads_by_file(&badge).is_none());
    assert_eq!(std::fs::read_dir(badges.path()).unwrap().count(), 1, "nothing else is left there");
}

#[test]
fn the_seat_is_given_back_when_the_program_says_that_it_has_stopped_and_not_before() {
    let folder = folder();
    let (leader, other) = sorted(start(&files(&folder), &["--ttl", "20s"]), start(&files(&folder), &["--ttl", "20s"]));
    let token = leader.token();
    let (code, why) = leader.ask("POST", "/stopped", "");
    assert!(code == 409 && why.contains("POST /resign"), "{why}");
    assert_eq!(leader.ask("POST", "/resign", "").0, 202);
    eventually("it is not the primary any more", || !leader.is_primary());
    let status = leader.json("/status");
    assert_eq!((&status["state"], &status["leading"], &status["reason"]), (&"stopping".into(), &true.into(), &"resigned".into()));
    assert_eq!((leader.code("/standby"), other.code("/primary")), (503, 503), "it has not stopped yet");
    assert_eq!(leader.ask("PUT", "/value", "late").0, 502);
    assert_eq!(leader.ask("POST", &format!("/stopped?token={}", token + 1), "").0, 409, "another leadership's");
    assert_eq!(other.ask("POST", "/stopped", "").0, 409);
    assert_eq!(leader.ask("POST", &format!("/stopped?token={token}"), "").0, 200);
    other.leads();
    assert_eq!((leader.code("/standby"), leader.ask("GET", "/remaining", "").1), (200, "0\n".to_owned()));
}

#[test]
fn if_the_program_says_nothing_the_lease_ends_by_itself() {
    let (folder, badges) = (folder(), folder());
    let badge = badges.path().join("leader.json");
    let options = ["--ttl", "4s", "--drain", "100ms", "--file", badge.to_str().unwrap()];
    let leader = start(&files(&folder), &options);
    leader.leads();
    let other = start(&files(&folder), &["--ttl", "4s"]);
    let deadline = || {
        let text = std::fs::read_to_string(&badge).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["deadline_boottime_ns"].as_u64().unwrap()
    };
    let least = deadline();
    std::thread::scope(|scope| {
        let stopped = scope.spawn(|| leader.process.stop());
        other.leads();
        assert!(boottime_ns() >= least);
        stopped.join().unwrap().unwrap();
    });
    assert_eq!(leader.process.wait(), Some(0), "it was told to stop, and has");
}

#[test]
fn told_to_end_it_turns_the_balancers_away_drains_releases_and_ends_with_0() {
    let folder = folder();
    let log = folder.path().join("hooks");
    let hook = |what: &str| format!("echo {what} $INCUMBENT_ELECTION $INCUMBENT_TOKEN >> {}", log.display());
    let (elected, lost) = (hook("elected"), hook("lost"));
    let leader = start(&files(&folder), &["--on-elected", &elected, "--on-lost", &lost, "--ttl", "20s"]);
    leader.leads();
    let token = leader.token();
    let log = || std::fs::read_to_string(&log).unwrap();
    assert_eq!(log(), format!("elected job {token}\n"));
    let other = start(&files(&folder), &["--no-drain", "--ttl", "20s"]);
    std::thread::scope(|scope| {
        let stopped = scope.spawn(|| leader.process.stop());
        eventually("it is not the primary any more", || !leader.is_primary());
        assert_eq!(log(), format!("elected job {token}\n"), "the program has not stopped yet");
        leader.stops();
        stopped.join().unwrap().unwrap();
    });
    assert_eq!(leader.process.wait(), Some(0));
    assert_eq!(log(), format!("elected job {token}\nlost job {token}\n"));
    other.leads();
    let third = start(&files(&folder), &["--ttl", "20s"]);
    // Nobody will say that it has stopped, and nobody has to.
    other.process.stop().unwrap();
    assert_eq!(other.process.wait(), Some(0));
    third.leads();
    third.process.kill();
    let standing_by = start(&files(&folder), &["--ttl", "20s"]);
    standing_by.process.stop().unwrap();
    assert_eq!(standing_by.process.wait(), Some(0));
}

#[test]
fn a_host_whose_hook_fails_leaves_the_seat_to_others() {
    let folder = folder();
    let unfit = start(&files(&folder), &["--on-elected", "exit 3", "--ttl", "20s"]);
    let fit = start(&files(&folder), &["--ttl", "20s"]);
    fit.leads();
    assert!(!unfit.is_primary());
}

#[test]
fn it_hands_over_to_whom_it_is_asked_and_publishes_what_it_is_given() {
    let folder = folder();
    let named = |name: &str| start(&files(&folder), &["--identity", name, "--no-drain", "--ttl", "20s"]);
    let first = named("web-1");
    first.leads();
    let (second, third) = (named("web-2"), named("web-3"));
    let waiting = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_incumbent"));
        let output = command.args(["candidates", "job", "--on", &files(&folder)]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    eventually("both wait", || ["web-2", "web-3"].iter().all(|it| waiting().contains(it)));
    assert_eq!(first.ask("PUT", "/value", "http://10.0.0.1:80/").0, 200);
    eventually("others see it", || second.json("/leader")["leader"]["value"] == "http://10.0.0.1:80/");
    assert_eq!(second.json("/leader")["leader"]["name"], "web-1");
    assert_eq!(first.ask("POST", "/handover", " ").0, 400);
    assert_eq!(first.ask("PUT", "/value", &"x".repeat(65 * 1024)).0, 400);
    assert_eq!(second.ask("POST", "/handover", "web-3").0, 409, "it does not lead");
    let (code, why) = first.ask("POST", "/handover", "web-9");
    assert!(code == 404 && why.contains("web-2") && why.contains("/resign"), "{code} {why}");
    assert_eq!(first.ask("POST", "/handover", "web-1").0, 409, "it leads already");
    assert!(first.is_primary(), "for nobody nothing is stopped");
    assert_eq!(first.ask("POST", "/handover?to=web%2D3", "").0, 202);
    third.leads();
    assert_eq!(third.ask("POST", "/handover", "web-2\n").0, 202);
    second.leads();
}

/// Somebody who listens to events. Those about the leader and those about the process itself come in any order.
struct Listener {
    lines: BufReader<TcpStream>,
    heard: Vec<(String, Value)>,
}

impl Listener {
    fn of(sidecar: &Sidecar) -> Listener {
        Listener { lines: BufReader::new(sidecar.asking("GET", "/events", "")), heard: Vec::new() }
    }

    /// Waits for an event that is wanted, unless it has been heard already since `from`.
    fn hear(&mut self, from: usize, wanted: impl Fn(&str, &Value) -> bool) {
        let mut next = from;
        loop {
            while let Some((name, content)) = self.heard.get(next) {
                if wanted(name, content) {
                    return;
                }
                next += 1;
            }
            self.listen();
        }
    }

    fn listen(&mut self) {
        let mut name = String::new();
        loop {
            let mut line = String::new();
            let read = self.lines.read_line(&mut line).unwrap_or_else(|why| panic!("{why}; heard {:?}", self.heard));
            assert!(read > 0, "it has ended; heard {:?}", self.heard);
            let line = line.trim_end();
            if let Some(it) = line.strip_prefix("event: ") {
                name = it.to_owned();
            }
            if let Some(it) = line.strip_prefix("data: ") {
                return self.heard.push((name, serde_json::from_str(it).unwrap()));
            }
        }
    }

    fn states(&self) -> Vec<&str> {
        self.heard.iter().filter(|(name, _)| name == "status").map(|(_, it)| it["state"].as_str().unwrap()).collect()
    }
}

#[test]
fn whoever_listens_is_told_of_every_change() {
    let folder = folder();
    let former = start(&files(&folder), &["--ttl", "20s", "--no-drain"]);
    former.leads();
    let sidecar = start(&files(&folder), &["--ttl", "20s"]);
    let mut listener = Listener::of(&sidecar);
    let token = former.token().to_string();
    listener.hear(0, |name, it| name == "leader" && it["leader"]["token"] == *token);
    assert_eq!(listener.states(), ["standby"]);
    let mark = listener.heard.len();
    former.process.stop().unwrap();
    listener.hear(mark, |name, it| name == "status" && it["state"] == "held");
    let token = sidecar.token().to_string();
    listener.hear(mark, |name, it| name == "leader" && it["leader"]["token"] == *token);
    let mark = listener.heard.len();
    assert_eq!(sidecar.ask("POST", "/resign", "").0, 202);
    listener.hear(mark, |name, it| name == "status" && it["state"] == "stopping" && it["reason"] == "resigned");
    sidecar.stops();
    listener.hear(mark, |name, it| name == "leader" && it["leader"].is_null());
    listener.hear(mark, |name, it| name == "status" && it["state"] == "standby");
    let states: Vec<&str> = listener.states().into_iter().filter(|it| !["entering", "stopped"].contains(it)).collect();
    assert_eq!(
        states,
        ["standby", "held", "stopping", "standby"],
        "nothing is told twice, and these two may be too short to be seen"
    );
    std::thread::scope(|scope| {
        scope.spawn(|| sidecar.process.stop().unwrap());
        let mut rest = String::new();
        listener.lines.read_to_string(&mut rest).unwrap();
    });
}

#[test]
fn the_figures_are_such_as_prometheus_reads() {
    let folder = folder();
    let sidecar = start(&files(&folder), &[]);
    sidecar.leads();
    let (code, text) = sidecar.ask("GET", "/metrics", "");
    assert!(code == 200 && text.ends_with("# EOF\n"), "{text}");
    for line in text.lines().filter(|it| !it.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("incumbent_") && value.parse::<f64>().is_ok(), "{line}");
    }
    assert!(text.contains("incumbent_in_office{election=\"job\"} 1\n"), "{text}");
}

#[test]
fn what_is_no_question_is_told_which_there_are() {
    let folder = folder();
    let sidecar = start(&files(&folder), &[]);
    for (method, path) in [("GET", "/"), ("GET", "/nonsense"), ("POST", "/status"), ("DELETE", "/value"), ("GET", "/resign")] {
        let (code, body) = sidecar.ask(method, path, "");
        assert!(code == 404 && body.contains("GET /primary") && body.contains("POST /stopped"), "{method} {path}: {code} {body}");
    }
    assert_eq!(sidecar.ask("OPTIONS", "/", "").0, 404);
    let mut page = sidecar.connect();
    let request = "POST /resign HTTP/1.1\r\nhost: localhost\r\norigin: http://evil.example\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    page.write_all(request.as_bytes()).unwrap();
    assert_eq!(answer(page).0, 403);
    for (path, code) in [("/status", 403), ("/leader", 403), ("/events", 403), ("/live", 200)] {
        let mut rebound = sidecar.connect();
        rebound
            .write_all(format!("GET {path} HTTP/1.1\r\nhost: evil.example:80\r\nconnection: close\r\n\r\n").as_bytes())
            .unwrap();
        assert_eq!(answer(rebound).0, code, "{path}, asked by a page that has made its own name lead here");
    }
    let mut long = sidecar.connect();
    let _ = long.write_all(format!("GET /live HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(64 * 1024)).as_bytes());
    let mut head = [0; 12];
    // It may hang up before all was sent.
    assert!(long.read_exact(&mut head).is_err() || &head == b"HTTP/1.1 431", "{head:?}");
}

#[test]
fn before_the_engine_answers_it_lives_and_leads_nothing() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let sidecar = start(&format!("redis://{gone}/"), &[]);
    assert_eq!((sidecar.code("/live"), sidecar.code("/primary"), sidecar.code("/standby")), (200, 503, 200));
    assert_eq!(sidecar.code("/leader"), 503);
    sidecar.process.stop().unwrap();
    assert_eq!(sidecar.process.wait(), Some(0));
}

#[test]
fn a_supervised_command_is_told_of_in_the_same_way() {
    let folder = folder();
    let mut command = Command::new(env!("CARGO_BIN_EXE_incumbent"));
    command.args(["run", "job", "--on", &files(&folder), "--listen", "127.0.0.1:0", "--", "sh", "-c", "echo up; exec cat"]);
    let process = Contender::start(&command).unwrap();
    process.hear("the command runs", |line| line == "up");
    let log = process.process().log_tail(20);
    let address = log.split("answers on ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
    let supervisor = Sidecar { process, address };
    assert_eq!((supervisor.code("/primary"), supervisor.code("/standby"), supervisor.code("/leader")), (200, 503, 200));
    let (code, why) = supervisor.ask("POST", "/stopped", "");
    assert!(code == 409 && why.contains("by itself"), "{why}");
}

#[test]
fn bad_input_is_one_line_that_says_what_to_do() {
    let folder = folder();
    let url = files(&folder);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let _named = {
        let sidecar = start(&url, &["--identity", "web-1"]);
        sidecar.leads();
        sidecar
    };
    for (arguments, code, says) in [
        (&["--listen", taken.as_str()][..], 3, "free port"),
        (&["--listen", "0.0.0.0:0"], 2, "--unprotected"),
        (&["--listen", "127.0.0.1:0", "--identity", "web-1"], 2, "--identity of its own"),
        (&["--listen", "127.0.0.1:0", "--file", "/proc/no/such"], 3, "--file"),
        (&["--listen", "127.0.0.1:0", "--ttl", "1ms"], 2, "between 100ms"),
        (&["--listen", "127.0.0.1:0", "--max-wait", "10ms"], 6, "not elected within"),
    ] {
        let Output { status, stderr, .. } =
            command(&["job", "--quiet", "--on", &url]).args(arguments).stdin(Stdio::null()).output().unwrap();
        let complaint = String::from_utf8(stderr).unwrap();
        assert!(status.code() == Some(code) && complaint.contains(says), "{arguments:?}: {status} {complaint}");
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
    }
    let unread = command(&["job", "--on", "etdc://h", "--listen", "127.0.0.1:0"]).output().unwrap();
    assert_eq!(unread.status.code(), Some(2));
    assert_eq!(command(&["job", "--listen", "nowhere"]).output().unwrap().status.code(), Some(2));
    assert_eq!(command(&["job", "--drain", "1s", "--no-drain"]).output().unwrap().status.code(), Some(2));
}
