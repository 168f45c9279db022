//! `incumbent lab graphs` as a shell sees it.

mod shell;

use shell::{listens, text};
use std::process::{Command, Output, Stdio};

fn incumbent(arguments: &[&str]) -> Command {
    let mut command = shell::incumbent(&["lab", "graphs"]);
    command.args(arguments);
    command
}

fn ends(arguments: &[&str], code: i32) -> Output {
    shell::ends(incumbent(arguments), code)
}

#[test]
fn the_table_tells_guard_from_none_and_how_to_have_it_again_whatever_the_jobs() {
    let output = ends(&["--seconds", "2", "--protocol", "bully,raft", "--start", "led", "--jobs", "2"], 0);
    let page = text(&output.stdout);
    assert!(output.stderr.is_empty());
    assert!(page.starts_with("1024 link graphs of five nodes, 2 s each. In 998 of them"), "{page}");
    let row = |start: &str| page.lines().find(|line| line.trim_start().starts_with(start)).unwrap();
    assert!(row("raft      on ").contains("998 of 998") && row("raft      on ").ends_with("never"), "{page}");
    assert!(row("bully     off ").contains(" graphs, up to "), "{page}");
    assert!(page.contains("With guard no graph ever had two leaders at once."), "{page}");
    let again = page.lines().find_map(|line| line.strip_prefix("The same table again: incumbent lab graphs ")).unwrap();
    let repeated = ends(&again.split(' ').chain(["--jobs", "1"]).collect::<Vec<_>>(), 0);
    assert_eq!(text(&repeated.stdout), page);
}

#[test]
fn json_is_one_document_and_names_the_graphs() {
    let output = ends(&["--seconds", "2", "--directed", "--samples", "40", "--guard", "off", "--json"], 0);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4 * 2);
    for row in rows {
        assert_eq!(row["graphs"], 40);
        assert!(row["hopeful"].as_u64().unwrap() > 10);
    }
    let bully = &rows[0];
    assert_eq!((bully["protocol"].as_str(), bully["start"].as_str()), (Some("bully"), Some("led")));
    assert!(bully["two_leaders"].as_array().unwrap().iter().any(|graph| graph.as_str().unwrap().contains('>')));
}

#[test]
fn what_cannot_be_tried_ends_with_2_and_says_what_to_change() {
    for (arguments, says) in [
        (&["--samples", "5"][..], "--directed"),
        (&["--directed", "--samples", "0"], "0 is not in 1..=1048576"),
        (&["--seconds", "0"], "0 is not in 1..=3600"),
        (&["--protocol", "paxos"], "[possible values: bully, ring, chang-roberts, raft]"),
        (&["--start", "warm"], "[possible values: led, cold]"),
    ] {
        let output = ends(arguments, 2);
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(text(&output.stderr).contains(says), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn ctrl_c_prints_what_was_found_so_far_and_ends_with_130() {
    let mut command = incumbent(&["--seconds", "3600"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !listens(child.id()) {
        std::thread::yield_now();
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let page = text(&output.stdout);
    assert!(page.contains("Interrupted: ") && page.contains(" of 16384 runs were made"), "{page}");
}
