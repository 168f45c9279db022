//! The figures that we publish of `incumbent run`, made by `cargo xtask bench`: from the death of the command to the next one running elsewhere, beside the engine's own
//! hand-over in the same run; and what supervision costs while nothing happens.
//!
//! Machines are noisy, so medians are compared. Nothing fails by speed.

#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use incumbent::Election;
use incumbent_testbed::{Etcd, Server as _};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

const ROUNDS: usize = 60;
/// Doubles with every failure up to 64 times this: a host that has failed must stand by again before its turn comes.
const BACK_OFF: &str = "1ms";
/// Long enough that whoever has failed stands by again.
const BETWEEN: Duration = Duration::from_millis(400);
const IDLE: Duration = Duration::from_secs(20);

fn main() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let files = format!("file:{}", directory.path().join("elections").display());
    println!("From kill -9 of the command to the next one running on another supervisor, {ROUNDS} rounds");
    crashes("file", &files, directory.path());
    let etcd = Etcd::recent().durable().start().expect("etcd starts");
    let url = format!("etcd://{}/bench", etcd.address());
    crashes("etcd", &url, directory.path());
    by_its_own_tool(&etcd, directory.path());
    cost(&url, directory.path());
}

fn supervisors(url: &str, directory: &Path, starts: &Path) -> Vec<Child> {
    let script = script(starts);
    let one = |number: usize| {
        let mut supervisor = Command::new(env!("CARGO_BIN_EXE_incumbent"));
        supervisor.args(["run", "bench", "--on", url, "--quiet", "--restart", "always", "--back-off", BACK_OFF]);
        // Elections in files have what a host keeps beside them.
        if !url.starts_with("file:") {
            supervisor.arg("--state-dir").arg(directory.join(format!("host-{number}")));
        }
        supervisor.args(["--", "sh", "-c", &script]).stdin(Stdio::null()).spawn().expect("it was just built")
    };
    (0..3).map(one).collect()
}

/// The starts of commands, each its process, as they come.
fn listen(path: &Path) -> impl Iterator<Item = i32> {
    let made = Command::new("mkfifo").arg(path).status().expect("coreutils are there");
    assert!(made.success(), "a pipe with a name");
    // Held open for writing too, so that it never ends.
    let pipe = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("just made");
    BufReader::new(pipe).lines().map(|it| it.expect("a pipe").trim().parse().expect("a process"))
}

fn crashes(name: &str, url: &str, directory: &Path) {
    let path = directory.join(format!("starts-{name}"));
    let mut starts = listen(&path);
    let mut hosts = supervisors(url, directory, &path);
    let took = kill_in_turn(&mut starts);
    end(&mut hosts);
    let bare = bare_starts(&path, &mut starts);
    let (own, own_late) = hand_overs(url);
    let (median, late) = middle_and_end(took);
    let times = |it: Duration| it.as_secs_f64() / own.as_secs_f64();
    println!("  {name:<6} p50 {median:.1?}, p99 {late:.1?}");
    println!("         the library's hand-over on it, p50 {own:.1?}, p99 {own_late:.1?}: {:.2} times", times(median));
    println!(
        "         the same command started by hand until it says so, p50 {bare:.1?}: without that {:.2} times",
        times(median.saturating_sub(bare))
    );
}

/// The same with what etcd brings itself: `etcdctl lock` lets go when its command has ended, and kills nothing.
fn by_its_own_tool(etcd: &Etcd, directory: &Path) {
    let path = directory.join("starts-etcdctl");
    let mut starts = listen(&path);
    let one = |_| {
        let etcdctl = etcd.etcdctl_command().expect("it is installed");
        // It ends with its command: so it is started again, though not for ever.
        let mut again = Command::new("sh");
        again.args(["-c", "for again in $(seq 100); do \"$0\" \"$@\"; done"]).arg(etcdctl.get_program()).args(etcdctl.get_args());
        again.envs(etcdctl.get_envs().filter_map(|(name, value)| Some((name, value?))));
        // A name apart from ours: whatever else lies below it, it would wait for.
        again.args(["lock", "by-etcdctl", "--", "sh", "-c", &script(&path)]).process_group(0);
        again.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("there is a shell")
    };
    let mut hosts: Vec<Child> = (0..3).map(one).collect();
    let (median, late) = middle_and_end(kill_in_turn(&mut starts));
    for host in &mut hosts {
        let group = Pid::from_raw(host.id().cast_signed()).expect("a process");
        kill_process_group(group, Signal::KILL).expect("it lives");
        host.wait().expect("a child of ours");
    }
    println!("         the same command under `etcdctl lock`, p50 {median:.1?}, p99 {late:.1?}");
}

/// How long it took from each command's death to the next one's start.
fn kill_in_turn(starts: &mut impl Iterator<Item = i32>) -> Vec<Duration> {
    let mut running = starts.next().expect("one is elected");
    let round = |_| {
        std::thread::sleep(BETWEEN);
        let began = Instant::now();
        kill(running, Signal::KILL);
        running = starts.next().expect("another is elected");
        began.elapsed()
    };
    (0..ROUNDS).map(round).collect()
}

/// What any command takes to run, and no election can spare it.
fn bare_starts(path: &Path, starts: &mut impl Iterator<Item = i32>) -> Duration {
    let took: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            let mut command =
                Command::new("sh").args(["-c", &script(path)]).stdin(Stdio::null()).spawn().expect("there is a shell");
            let running = starts.next().expect("it says so");
            let took = began.elapsed();
            kill(running, Signal::KILL);
            command.wait().expect("a child of ours");
            took
        })
        .collect();
    middle_and_end(took).0
}

/// The median, and of so few the last.
fn middle_and_end(mut took: Vec<Duration>) -> (Duration, Duration) {
    took.sort_unstable();
    (took[took.len() / 2], took[took.len() * 99 / 100])
}

/// The command: it says which process it is, and stays.
fn script(starts: &Path) -> String {
    format!("echo $$ > {}; exec sleep 1000", starts.display())
}

/// Between two candidates of the library, without any command.
fn hand_overs(url: &str) -> (Duration, Duration) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let of = || Election::on(url).name("hand-over").own_connection().build();
        let (mut holder, mut heir) = (of().await.expect("it is there"), of().await.expect("it is there"));
        let mut leadership = holder.campaign().await.expect("nothing is wrong with it");
        let mut took = Vec::new();
        for _ in 0..ROUNDS {
            let waiting = tokio::spawn({
                let heir = heir.clone();
                async move { (heir.campaign().await, Instant::now()) }
            });
            tokio::time::sleep(BETWEEN).await;
            let began = Instant::now();
            leadership.resign().await.expect("the engine is well");
            let (next, at) = waiting.await.expect("does not panic");
            took.push(at.saturating_duration_since(began));
            leadership = next.expect("nothing is wrong with it");
            std::mem::swap(&mut holder, &mut heir);
        }
        leadership.resign().await.expect("the engine is well");
        middle_and_end(took)
    })
}

/// What a supervisor and its guardian cost while the command runs and nothing happens.
fn cost(url: &str, directory: &Path) {
    let path = directory.join("starts-idle");
    let mut starts = listen(&path);
    let script = script(&path);
    let supervisor = Command::new(env!("CARGO_BIN_EXE_incumbent"))
        .args(["run", "idle", "--on", url, "--quiet", "--", "sh", "-c", &script])
        .stdin(Stdio::null())
        .spawn()
        .expect("it was just built");
    let command = starts.next().expect("it is elected");
    let guardian = field(command, "status", "PPid:").unwrap_or(0);
    let both = [supervisor.id().cast_signed(), i32::try_from(guardian).expect("a process")];
    let before: f64 = both.iter().map(|it| spent(*it)).sum();
    std::thread::sleep(IDLE);
    let busy = (both.iter().map(|it| spent(*it)).sum::<f64>() - before) / IDLE.as_secs_f64();
    let mebibytes = |name: &str| both.map(|it| field(it, "smaps_rollup", name).unwrap_or(0) as f64 / 1024.0);
    let (all, own) = (mebibytes("Pss:"), mebibytes("Private_Dirty:"));
    println!("Supervision of an idle command on etcd for {IDLE:?}: {:.2} % of a core", busy * 100.0);
    println!(
        "  memory, pages of the program included and split among those who share them: {:.1} MiB supervisor, {:.1} MiB guardian",
        all[0], all[1]
    );
    println!("  without those: {:.1} MiB supervisor, {:.1} MiB guardian", own[0], own[1]);
    end(&mut [supervisor]);
}

/// Seconds of processor that a process has used.
fn spent(process: i32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it lives");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("always something").split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("a number");
    // Ticks are hundredths of a second on every Linux that we know.
    (ticks(11) + ticks(12)) / 100.0
}

/// A number in a file about a process.
fn field(process: i32, file: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/{file}")).ok()?;
    text.lines().find_map(|it| it.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

fn kill(process: i32, signal: Signal) {
    if let Some(process) = Pid::from_raw(process) {
        kill_process(process, signal).expect("it lives");
    }
}

fn end(hosts: &mut [Child]) {
    for host in &*hosts {
        kill(host.id().cast_signed(), Signal::TERM);
    }
    for host in hosts {
        host.wait().expect("a child of ours");
    }
}
