//! A server dies with the test that started it, however the test ends, and leaves no files.

#![allow(clippy::print_stderr, reason = "the copy of the test that dies tells the other where its servers are")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use incumbent_testbed::{Etcd, Nats, PgBouncer, Postgres, Redis, Server, ZooKeeper, eventually};

/// Tells a copy of this test that it is the one to die.
const DOOMED: &str = "TESTBED_DOOMED";

/// Whether a process of this id is alive; one that nobody has buried yet is not.
fn alive(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()).is_some_and(|state| !["Z", "X"].contains(&state))
}

/// Starts one of each in threads that end at once, says where they are, and waits to be killed.
fn doomed() -> ! {
    let starts: [fn() -> Box<dyn Server>; 6] = [
        || Box::new(Etcd::recent().start().unwrap()),
        || Box::new(Nats::recent().start().unwrap()),
        || Box::new(Postgres::debian().start().unwrap()),
        || Box::new(PgBouncer::start(1).unwrap()),
        || Box::new(Redis::debian().start().unwrap()),
        || Box::new(ZooKeeper::debian().start().unwrap()),
    ];
    let threads = starts.map(std::thread::spawn);
    let servers: Vec<Box<dyn Server>> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    for server in &servers {
        // It has survived the thread that asked for it.
        server.ready().unwrap();
        for id in server.process().family() {
            eprintln!("doomed {id} {}", server.process().folder().display());
        }
    }
    eprintln!("doomed waits");
    // If the test fails before it kills us, the end of our input is the end of us.
    let _ = std::io::stdin().read_line(&mut String::new());
    std::process::exit(1);
}

#[test]
fn servers_die_with_a_killed_test_and_leave_nothing() {
    if std::env::var_os(DOOMED).is_some() {
        doomed();
    }
    let mut child: Child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "servers_die_with_a_killed_test_and_leave_nothing", "--nocapture"])
        .env(DOOMED, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut servers: Vec<(u32, String)> = Vec::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        if line == "doomed waits" {
            break;
        }
        if let Some((id, folder)) = line.strip_prefix("doomed ").and_then(|rest| rest.split_once(' ')) {
            servers.push((id.parse().unwrap(), folder.to_owned()));
        }
    }
    // Six servers and the children of PostgreSQL, of which one may have ended meanwhile.
    let living = servers.iter().filter(|(id, folder)| alive(*id) && Path::new(folder).is_dir()).count();
    assert!(living > 6, "{living} of {servers:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    for (id, folder) in &servers {
        eventually("the server is dead", || !alive(*id));
        eventually("its folder is gone", || !Path::new(folder).exists());
        let root = Path::new(folder).parent().unwrap();
        eventually("and so is the one around it", || !root.exists());
    }
}

#[test]
fn a_dropped_server_is_dead_and_its_folder_gone() {
    let redis = Redis::debian().start().unwrap();
    let (id, folder) = (redis.process().id().unwrap(), redis.process().folder().to_owned());
    assert!(alive(id) && folder.is_dir());
    redis.pause();
    drop(redis);
    assert!(!alive(id) && !folder.exists());
}
