//! `incumbent lab check` as a shell sees it.

mod shell;

use std::process::{Command, Output, Stdio};

use serde_json::Value;
use shell::{listens, text};

fn incumbent(arguments: &[&str]) -> Command {
    let mut command = shell::incumbent(&["lab", "check"]);
    command.args(arguments);
    command
}

fn ends(arguments: &[&str], code: i32) -> Output {
    shell::ends(incumbent(arguments), code)
}

#[test]
fn all_protocols_are_searched_and_the_distinct_states_printed() {
    let output = ends(&["--states-max", "2000"], 0);
    let page = text(&output.stdout);
    for protocol in ["bully", "ring", "chang-roberts", "raft"] {
        let head = format!("{protocol} nodes=3 guard=on pre-vote=on begin=led crashes=1 losses=0 repeats=0 wakes=1 requests=1\n");
        assert!(page.contains(&head), "{page}");
    }
    assert_eq!(page.matches(" distinct states, ").count(), 4);
    assert_eq!(page.matches("cut there: not the whole scope\n").count(), 4);
    assert!(output.stderr.is_empty(), "no bar where no terminal is");
}

#[test]
fn a_scope_that_was_searched_whole_says_so() {
    let output = ends(&["--protocol", "raft", "--begin", "cold", "--guard", "off", "--pre-vote", "off", "--requests", "0"], 0);
    let page = text(&output.stdout);
    assert!(page.starts_with("raft nodes=3 guard=off pre-vote=off begin=cold crashes=1"), "{page}");
    assert!(page.contains(" deep: the whole scope\n") && page.ends_with("  no violation\n\n"), "{page}");
}

#[test]
fn a_violation_ends_with_1_and_shows_numbered_steps_and_so_does_the_json() {
    let arguments = ["--protocol", "raft", "--begin", "cold", "--pre-vote", "off", "--disk", "hasty", "--states-max", "1000"];
    let output = ends(&arguments, 1);
    let page = text(&output.stdout);
    for line in [
        "  violation of persisted_before_told: node 1 sent vote-request",
        "    1. 1 gets a request: campaign",
        "         1 -> 2 vote-request term=1",
    ] {
        assert!(page.contains(&format!("\n{line}")), "{page}");
    }
    let output = ends(&[&arguments[..], &["--json"]].concat(), 1);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["protocol"], &document["end"], &document["disk"]), (&"raft".into(), &"cut".into(), &"hasty".into()));
    let violation = &document["violations"][0];
    assert_eq!(violation["property"], "persisted_before_told");
    assert_eq!(violation["steps"][0]["action"], "1 gets a request: campaign");
}

#[test]
fn json_is_one_document_a_line() {
    let output = ends(&["--json", "--states-max", "500"], 0);
    let names: Vec<String> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["protocol"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["bully", "ring", "chang-roberts", "raft"]);
}

#[test]
fn what_cannot_be_searched_ends_with_2_and_says_what_to_change() {
    for (arguments, says) in [
        (["--nodes", "1"], "error: 1 nodes cannot be searched: choose 2 to 5"),
        (["--nodes", "9"], "error: 9 nodes cannot be searched: choose 2 to 5"),
        (["--protocol", "paxos"], "invalid value 'paxos'"),
        (["--disk", "floppy"], "invalid value 'floppy'"),
        (["--crashes", "-1"], "unexpected argument '-1'"),
        (["--wakes", "300"], "invalid value '300'"),
    ] {
        let output = ends(&arguments, 2);
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(text(&output.stderr).contains(says), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn ctrl_c_prints_what_was_found_so_far_and_ends_with_130() {
    let mut command = incumbent(&["--protocol", "ring,bully", "--wakes", "9", "--states-max", "1000000000"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !listens(child.id()) {
        std::thread::yield_now();
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let page = text(&output.stdout);
    assert!(page.starts_with("ring ") && page.contains(" deep: stopped there: not the whole scope\n"), "{page}");
    assert!(!page.contains("bully"), "the next search is not begun: {page}");
}
