//! `incumbent lab swarm` as a person uses it: the real binary, its results, its files, its signals.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn swarm(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_incumbent"));
    command.args(["lab", "swarm"]).args(arguments).env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    command
}

fn ends(arguments: &[&str], code: i32) -> Output {
    let output = swarm(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_slice(&ends(arguments, 0).stdout).unwrap()
}

fn file(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_file(&path);
    path
}

#[test]
fn the_report_is_the_same_whatever_the_number_of_jobs() {
    let one = json(&["--seeds", "30", "--jobs", "1", "--json"]);
    assert_eq!(one, json(&["--seeds", "30", "--jobs", "3", "--json"]));
    assert_eq!((&one["runs"], &one["failed"]), (&Value::from(30), &Value::from(0)));
    assert_ne!(one["digest"], json(&["--seeds", "30", "--from", "1", "--json"])["digest"]);
}

#[test]
fn a_swarm_goes_on_where_its_file_says_and_refuses_the_file_of_another() {
    let path = file("place.json");
    let place = path.to_str().unwrap();
    let first = json(&["--seeds", "20", "--resume", place, "--json"]);
    let second = json(&["--seeds", "50", "--resume", place, "--json"]);
    assert_eq!((&first["runs"], &second["runs"], &second["runs_before"]), (&20.into(), &30.into(), &20.into()));
    assert_eq!(second["next_seed"], "50");

    let output = ends(&["--seeds", "50", "--protocol", "raft", "--resume", place], 2);
    assert!(String::from_utf8_lossy(&output.stderr).contains("belongs to another swarm"));
    std::fs::write(&path, "rubble").unwrap();
    let output = ends(&["--resume", place], 2);
    assert!(String::from_utf8_lossy(&output.stderr).contains("hint: name another file"));
    ends(&["--seeds", "1", "--resume", "/dev/null/place"], 3);
}

#[test]
fn one_seed_is_told_with_its_plan() {
    let output = ends(&["--seed", "7", "--protocol", "bully"], 0);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("bully seed=7 ") && text.contains("heal") && text.contains("nothing broken"), "{text}");
}

#[test]
fn impossible_wishes_are_refused() {
    for arguments in [&["--seeds", "0"][..], &["--protocol", "paxos"], &["--jobs", "0"], &["--seed", "1", "--seeds", "2"]] {
        ends(arguments, 2);
    }
}

#[test]
fn an_interrupted_swarm_prints_what_it_found_and_how_to_go_on() {
    let path = file("interrupted.json");
    let mut child = swarm(&["--seeds", "100000000", "--protocol", "raft", "--resume", path.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The file is there after the first few thousand runs: the swarm is at work.
    while !path.exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::yield_now();
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let mut told = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut told).unwrap();
    let mut result = String::new();
    child.stdout.take().unwrap().read_to_string(&mut result).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{told}{result}");
    assert!(result.contains("runs of raft: nothing broken") && result.contains("the rest: --from "), "{result}");
}
