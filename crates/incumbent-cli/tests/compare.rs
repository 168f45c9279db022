//! `incumbent lab compare` as a shell sees it.

mod shell;

use shell::{listens, text};
use std::process::{Command, Output, Stdio};

fn incumbent(arguments: &[&str]) -> Command {
    let mut command = shell::incumbent(&["lab", "compare"]);
    command.args(arguments);
    command
}

fn ends(arguments: &[&str], code: i32) -> Output {
    shell::ends(incumbent(arguments), code)
}

const SMALL: [&str; 4] = ["--scenario", "partition", "--runs", "5"];

fn small(more: &[&'static str]) -> Vec<&'static str> {
    SMALL.into_iter().chain(more.iter().copied()).collect()
}

#[test]
fn the_same_command_prints_the_same_figures_whatever_the_jobs() {
    let one = ends(&small(&["--jobs", "1"]), 0);
    let three = ends(&small(&["--jobs", "3"]), 0);
    assert_eq!(text(&one.stdout), text(&three.stdout));
    assert!(one.stderr.is_empty(), "no bar where no terminal is");
    let other = ends(&small(&["--seed", "2"]), 0);
    assert_ne!(text(&one.stdout), text(&other.stdout));
}

#[test]
fn the_table_shows_two_leaders_without_guard_and_never_with_it_and_how_to_have_it_again() {
    let output = ends(&small(&["--protocol", "bully"]), 0);
    let page = text(&output.stdout);
    let row = |guard: &str| page.lines().find(|line| line.starts_with(&format!("  bully     {guard} "))).unwrap();
    assert!(row("on").ends_with("never"), "{page}");
    assert!(row("off").contains("5 of 5 runs, up to 2."), "{page}");
    assert!(page.contains("Bully without guard had two leaders at once in 5 of 5 runs"), "{page}");
    let again = page.lines().find_map(|line| line.strip_prefix("The same figures again: incumbent lab compare ")).unwrap();
    let repeated = ends(&again.split(' ').collect::<Vec<_>>(), 0);
    assert_eq!(text(&repeated.stdout), page);
}

#[test]
fn only_a_split_brain_is_red_and_only_where_colour_is_wanted() {
    assert!(!ends(&small(&[]), 0).stdout.contains(&0x1b));
    let painted = incumbent(&small(&["--color", "always"])).output().unwrap();
    let red = |line: &&str| line.contains("\u{1b}[31m");
    let page = text(&painted.stdout);
    assert_eq!(page.lines().filter(red).count(), 4, "one row a protocol without guard: {page}");
    assert!(page.lines().filter(red).all(|line| line.contains("off") && line.contains("of 5 runs")));
}

#[test]
fn json_is_one_document_with_every_cell() {
    let output = ends(&small(&["--json", "--nodes", "3,5", "--protocol", "raft,ring"]), 0);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let results = document["results"].as_array().unwrap();
    assert_eq!(results.len(), 2 * 2 * 2);
    for cell in results {
        assert_eq!(cell["runs"], 5);
        assert_eq!(cell["split_brain_runs"], if cell["guarded"].as_bool().unwrap() { 0 } else { 5 });
        assert!(cell["failover_ms"]["p50"].as_f64().unwrap() > 50.0);
        assert!(cell["messages"]["mean"].as_f64().unwrap() > cell["contest_messages"]["mean"].as_f64().unwrap());
    }
    assert_eq!(document["seed"], "1");
    let calm = ends(&["--scenario", "one-way", "--guard", "off", "--runs", "1", "--json"], 0);
    let calm: serde_json::Value = serde_json::from_slice(&calm.stdout).unwrap();
    assert!(calm["results"][0]["failover_ms"].is_null(), "what never happened is null");
}

#[test]
fn what_cannot_be_compared_ends_with_2_and_says_what_to_change() {
    for (arguments, says) in [
        (&["--nodes", "0"][..], "a group of 0 nodes cannot elect anyone: give it at least 1"),
        (&["--nodes", "4097"], "4097 nodes are too many: give a group at most 4096"),
        (&["--nodes", "1", "--scenario", "pause"], "pause cannot happen to a group of 1: give it at least 2 nodes"),
        (&["--nodes", "five"], "invalid value 'five'"),
        (&["--scenario", "partitoin"], "a similar value exists: 'partition'"),
        (&["--protocol", "paxos"], "[possible values: bully, ring, chang-roberts, raft]"),
        (&["--runs", "0"], "0 runs measure nothing: make at least 1"),
        (&["--runs", "4000000000", "--scenario", "loss"], "32000000000 runs in all are too many"),
        (&["--jobs", "0"], "invalid value '0'"),
        (&["--guard", "maybe"], "[possible values: on, off]"),
        (&["--pace", "moon"], "[possible values: lan, wan]"),
    ] {
        let output = ends(arguments, 2);
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(text(&output.stderr).contains(says), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn the_report_is_one_file_and_a_path_that_cannot_be_written_is_refused_before_measuring() {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("compare.html");
    let output = ends(&small(&["--protocol", "bully", "--html", file.to_str().unwrap().to_owned().leak()]), 0);
    assert!(text(&output.stdout).ends_with(&format!("The report: {}\n", file.display())));
    let page = std::fs::read_to_string(&file).unwrap();
    assert!(page.starts_with("<!") && page.contains("bully without guard, partition: two leaders at once for 2."));
    assert!(page.len() < 2_000_000, "{}", page.len());
    for (path, hint) in
        [("/dev/null/report.html", "a file stands where a folder is needed"), ("/", "this is a folder: name a file")]
    {
        // So many runs would take minutes: the answer comes before.
        let output = ends(&["--runs", "5000", "--html", path], 3);
        assert!(output.stdout.is_empty());
        assert!(text(&output.stderr).contains(hint), "{}", text(&output.stderr));
    }
}

#[test]
fn ctrl_c_prints_what_was_found_so_far_and_ends_with_130() {
    let mut command = incumbent(&["--runs", "50000", "--scenario", "partition,pause"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !listens(child.id()) {
        std::thread::yield_now();
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let page = text(&output.stdout);
    assert!(page.contains("Interrupted: ") && page.contains(" of 800000 runs were made"), "{page}");
    assert!(page.contains("The same figures again: "));
}
