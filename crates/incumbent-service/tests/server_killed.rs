//! C01 and C03 with a real process: the leader is killed with SIGKILL, the others go on, and its directory holds all that was confirmed; or it is stopped for a while,
//! and when it goes on it neither answers from the past nor ends what others have kept alive.

#![allow(clippy::print_stdout, reason = "the child answers")]

#[path = "server/cluster.rs"]
mod cluster;

use std::future::Future;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command as Program, Stdio};
use std::time::{Duration, Instant};

use cluster::{Cluster, LONG, config, done, id, open, opened, patient, put, soon, value};
use incumbent_service::server::{Node, Outcome};
use incumbent_store::command::{Command, KeepAlive, Request};
use incumbent_store::reply::Reply;
use incumbent_store::watch::{Interest, Topic};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tokio::time::timeout;

/// Where the child's directories are and which ports it uses; none in the parent.
const CHILD: &str = "INCUMBENT_TEST_SERVER_CHILD";
/// The node that is a process of its own.
const KILLED: usize = 2;
const ROUNDS: usize = 3;

#[test]
fn a_leader_that_is_killed_is_replaced_and_its_directory_is_whole() {
    if let Some(told) = std::env::var_os(CHILD) {
        return be_child(told.to_str().expect("text"));
    }
    run(kill());
}

#[test]
fn a_leader_that_was_stopped_does_not_answer_from_the_past_and_ends_nothing() {
    if let Some(told) = std::env::var_os(CHILD) {
        return be_child(told.to_str().expect("text"));
    }
    run(stop());
}

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(test);
}

async fn kill() {
    let mut cluster = Cluster::prepare(None, patient());
    for at in (0..3).filter(|at| *at != KILLED) {
        cluster.revive(at);
    }
    let mut confirmed = 0;
    for round in 0..ROUNDS {
        let mut child = spawn(&cluster, "a_leader_that_is_killed_is_replaced_and_its_directory_is_whole");
        lead(&cluster).await;
        let writer = cluster.handle(0);
        for number in 0..20 {
            confirmed = done(writer.submit(put(&format!("{round}-{number}"), "kept")).await);
        }
        // One is under way when it dies.
        let writing = tokio::spawn(async move { writer.submit(put("last", "kept")).await });
        child.kill().expect("killed");
        child.wait().expect("it was ours");
        done(timeout(LONG, writing).await.expect("in time").expect("no panic"));
        let leader = cluster.leader().await;
        assert_ne!(leader, KILLED);
        assert!(done(cluster.handle(leader).submit(put("next", "")).await) > confirmed);
    }
    cluster.revive(KILLED);
    for round in 0..ROUNDS {
        for number in 0..20 {
            assert_eq!(value(&cluster.handle(KILLED), &format!("{round}-{number}")).await.as_deref(), Some("kept"));
        }
    }
    cluster.equal().await;
}

/// C03, C08.
async fn stop() {
    const TTL: Duration = Duration::from_secs(3);
    let mut cluster = Cluster::prepare(None, patient());
    for at in (0..3).filter(|at| *at != KILLED) {
        cluster.revive(at);
    }
    let mut child = spawn(&cluster, "a_leader_that_was_stopped_does_not_answer_from_the_past_and_ends_nothing");
    let process = Pid::from_child(&child);
    lead(&cluster).await;
    let handle = cluster.handle(0);
    let session = opened(handle.submit(open(TTL.as_millis().try_into().expect("short"))).await);
    let mut ends = handle.watch(Interest::of(Topic::Session(session)), 0).await.expect("runs");
    done(handle.submit(put("x", "old")).await);
    kill_process(process, Signal::STOP).expect("ours");
    // Until it is known to have stopped, it may do a lot.
    let (_, status) = waitpid(Some(process), WaitOptions::UNTRACED).expect("ours").expect("it has stopped");
    assert!(status.stopped(), "{status:?}");
    let began = Instant::now();
    // The question is there before anything has changed: a leader that believed in itself would answer it at once when it goes on.
    child.stdin.as_mut().expect("piped").write_all(b"x\n").expect("it listens");
    done(handle.submit(put("x", "new")).await);
    let mut last_sent = began;
    while began.elapsed() < TTL * 2 {
        last_sent = Instant::now();
        let outcome = handle.submit(Request::of(Command::KeepAlive(KeepAlive { sessions: vec![session] }))).await;
        let Outcome::Done { reply: Reply::KeptAlive(kept), .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(kept.gone, Vec::<u64>::new(), "it was kept alive all the time");
    }
    kill_process(process, Signal::CONT).expect("ours");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let answer = lines.find_map(|it| it.strip_prefix("answer ").map(str::to_owned));
    assert_eq!(answer.as_deref(), Some("new"));
    timeout(LONG, ends.next()).await.expect("in time").expect("an event");
    assert!(last_sent.elapsed() >= TTL, "after {:?}", last_sent.elapsed());
    child.kill().expect("ours");
    child.wait().expect("ours");
}

/// Gives the leadership to the child.
async fn lead(cluster: &Cluster) {
    soon("the child leads", || async {
        let leader = cluster.leader_among(&[0, 1]).await;
        if leader == id(KILLED) {
            return Some(());
        }
        for at in [0, 1] {
            cluster.handle(at).transfer(Some(id(KILLED))).await;
        }
        None
    })
    .await;
}

fn spawn(cluster: &Cluster, test: &str) -> Child {
    let [a, b, c] = cluster.ports();
    let told = format!("{a} {b} {c} {}", cluster.directories().display());
    let mut command = Program::new(std::env::current_exe().expect("a program"));
    command.args(["--exact", test, "--nocapture"]).env(CHILD, told).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().expect("starts")
}

/// Answers questions for keys until it is killed, or until whoever started it is gone.
fn be_child(told: &str) {
    let mut parts = told.splitn(4, ' ');
    let mut port = || parts.next().and_then(|it| it.parse().ok()).expect("a port");
    let ports = [port(), port(), port()];
    let directories = Path::new(parts.next().expect("a directory"));
    let node = Node::start(config(KILLED, directories, &patient(), ports)).expect("starts");
    run(async {
        for key in std::io::stdin().lines().map_while(Result::ok) {
            println!("\nanswer {}", value(&node.handle(), &key).await.unwrap_or_default());
        }
    });
}
