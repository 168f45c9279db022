//! `incumbent lab run` and `lab explain` as a shell sees them: what they print, what they write, how they end.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const GOOD: &str = "\
# A leader is elected.
cluster raft nodes=3 seed=7
run until agreed
expect leader 1
----
t=0.183 1 contends term=0
t=0.187 1 leads term=1
t=0.188 2 3 follow 1 term=1
";

fn run(arguments: &[&str], code: i32) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_incumbent"));
    command.args(["lab", "run"]).args(arguments).stdin(Stdio::null()).env_remove("CLICOLOR_FORCE");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
    output
}

#[test]
fn explain_teaches_each_protocol_and_ends_with_what_it_cannot_promise() {
    for protocol in ["bully", "ring", "chang-roberts", "raft"] {
        let output = Command::new(env!("CARGO_BIN_EXE_incumbent")).args(["lab", "explain", protocol]).output().unwrap();
        let lesson = text(&output.stdout);
        let parts = [
            "== Detection",
            "== Contest",
            "== Steady state",
            "== A partition",
            "== What it costs ==",
            "== What it cannot promise ==",
        ];
        let places: Vec<usize> =
            parts.iter().map(|part| lesson.find(part).unwrap_or_else(|| panic!("{protocol}: no {part}"))).collect();
        assert!(places.is_sorted(), "{protocol}: {places:?}");
        assert!(lesson.lines().all(|line| line.starts_with("t=") || line.chars().count() <= 92), "{protocol}");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_incumbent")).args(["lab", "explain", "raft", "--json"]).output().unwrap();
    let lines: Vec<serde_json::Value> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["kind"] == "cost" && line["counted"] == line["theory"]));
    assert!(lines.iter().any(|line| line["kind"] == "leads" && line["means"].as_str().unwrap().contains("in office")));
    let output = Command::new(env!("CARGO_BIN_EXE_incumbent")).args(["lab", "explain", "paxos"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("unknown protocol 'paxos': it is one of bully, ring, chang-roberts, raft"));
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A scenario in a file of its own.
fn file(name: &str, content: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).unwrap();
    path
}

#[test]
fn a_scenario_whose_trace_agrees_ends_with_0_and_shows_commands_and_what_came_of_them() {
    let path = file("good.txt", GOOD);
    let output = run(&[path.to_str().unwrap()], 0);
    let shown = text(&output.stdout);
    let places: Vec<usize> = ["# A leader", "> run until agreed", "t=0.187 1 leads term=1", "> expect leader 1", "ok: the trace"]
        .iter()
        .map(|part| shown.find(part).unwrap_or_else(|| panic!("no {part:?} in {shown}")))
        .collect();
    assert!(places.is_sorted(), "{shown}");
    assert!(output.stderr.is_empty());
}

#[test]
fn a_trace_that_differs_ends_with_1_and_says_where_and_how_to_rewrite_it() {
    let path = file("differs.txt", &GOOD.replace("leads term=1", "leads term=2"));
    let path = path.to_str().unwrap();
    let output = run(&[path], 1);
    for part in ["differs.txt:6: the trace differs", " - t=0.187 1 leads term=2", " + t=0.187 1 leads term=1", "--rewrite"] {
        assert!(text(&output.stdout).contains(part), "no {part:?} in {}", text(&output.stdout));
    }
    run(&[path, "--rewrite"], 0);
    assert_eq!(fs::read_to_string(path).unwrap(), GOOD);
    run(&[path], 0);
}

#[test]
fn rewriting_does_not_hide_an_expectation_that_is_not_met() {
    let path = file("unmet.txt", &GOOD.replace("leader 1", "leader 3"));
    let path = path.to_str().unwrap();
    for arguments in [&[path][..], &[path, "--rewrite"]] {
        let output = run(arguments, 1);
        assert!(text(&output.stdout).contains("unmet.txt:4: expected 'leader 3' at 0.188; leader 1 term=1"), "{arguments:?}");
    }
}

#[test]
fn another_seed_is_another_run_of_which_only_the_expectations_are_demanded() {
    let path = file("seed.txt", &GOOD.replace("expect leader 1\n", "expect leader\n"));
    let path = path.to_str().unwrap();
    let output = run(&[path, "--seed", "8"], 0);
    assert!(!text(&output.stdout).contains("t=0.183") && text(&output.stdout).contains("ok: nothing is violated"));
    let output = run(&[path, "--seed", "8", "--rewrite"], 2);
    assert!(text(&output.stderr).contains("cannot be used with"));
}

#[test]
fn a_file_that_cannot_be_understood_ends_with_2_and_shows_the_line() {
    let good = file("before.txt", GOOD);
    let bad = file("bad.txt", "# c\ncluster raft nodes=3\ncrush 3\n----\n");
    let output = run(&[good.to_str().unwrap(), bad.to_str().unwrap()], 2);
    assert!(output.stdout.is_empty(), "nothing is run before all is read");
    let said = text(&output.stderr);
    assert!(
        said.contains("bad.txt:3:1: unknown command 'crush'") && said.contains("\n 3 | crush 3\n   | ^^^^^\n  hint: "),
        "{said}"
    );
    let missing = run(&["missing.txt"], 3);
    assert!(text(&missing.stderr).contains("cannot read missing.txt"));
    assert!(text(&run(&[], 2).stderr).contains("FILE"));
}

#[test]
fn watching_needs_a_terminal_and_says_so_before_anything_is_done() {
    let output = run(&["missing.txt", "--watch"], 2);
    assert!(output.stdout.is_empty());
    assert!(
        text(&output.stderr).contains("--watch needs a terminal") && text(&output.stderr).contains("hint: run it in a terminal")
    );
}

#[test]
fn json_is_one_object_a_line_from_the_scenario_to_the_result() {
    let path = file("lines.txt", &GOOD.replace("run until", "show messages on\nrun until"));
    let output = run(&[path.to_str().unwrap(), "--json"], 1);
    let lines: Vec<serde_json::Value> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["kind"], &lines[0]["nodes"]), (&"scenario".into(), &serde_json::json!([1, 2, 3])));
    let leads = lines.iter().find(|line| line["kind"] == "leads").unwrap();
    assert_eq!((&leads["nodes"], &leads["term"]), (&serde_json::json!([1]), &1.into()));
    assert!(
        lines
            .iter()
            .any(|line| line["kind"] == "message" && line["name"] == "vote-request" && line["to"] == serde_json::json!([2, 3]))
    );
    let result = lines.last().unwrap();
    assert_eq!((&result["kind"], &result["good"]), (&"result".into(), &false.into()));
    assert!(result["differences"][0].as_str().unwrap().contains("the trace differs"));
}
