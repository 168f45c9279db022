//! Every example runs, and prints what it should.
//!
//! Each is a part of this test, which runs itself once more in a process of its own: so the examples that are tested are those that were just built.
#![allow(clippy::print_stdout, reason = "the examples print")]

use std::process::Command;

#[path = "../examples/fence_a_write.rs"]
mod fence_a_write;
#[path = "../examples/hand_over.rs"]
mod hand_over;
#[path = "../examples/lead_a_job.rs"]
mod lead_a_job;
#[path = "../examples/observe_the_leader.rs"]
mod observe_the_leader;
#[cfg(feature = "conformance")]
#[path = "../examples/own_engine.rs"]
mod own_engine;

/// Tells the process that is started that it is the example.
const EXAMPLE: &str = "INCUMBENT_EXAMPLE";

/// Runs `main` if this is the example's own process, and else starts that and compares what it prints with `lines`.
fn shows<E: std::fmt::Display>(name: &str, main: impl FnOnce() -> Result<(), E>, lines: &[&str]) {
    if std::env::var_os(EXAMPLE).is_some() {
        println!("\nbegin");
        main().unwrap_or_else(|why| panic!("{name}: {why}"));
        println!("end");
        return;
    }
    let mut example = Command::new(std::env::current_exe().expect("its own path"));
    example.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(EXAMPLE, "1");
    let output = example.output().expect("it can be started again");
    let printed = String::from_utf8_lossy(&output.stdout);
    let said: Vec<&str> = printed.lines().skip_while(|it| *it != "begin").skip(1).take_while(|it| *it != "end").collect();
    assert!(output.status.success() && said == lines, "{name} printed:\n{printed}\n{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn lead_a_job() {
    let lines = ["leading nightly with token 1", "3 pages written", "the office is free again: true"];
    shows("lead_a_job", lead_a_job::main, &lines);
}

#[test]
fn fence_a_write() {
    let lines = ["token 1 wrote 100", "token 2 read 100", "refused: true", "the balance is 120"];
    shows("fence_a_write", fence_a_write::main, &lines);
}

#[test]
fn observe_the_leader() {
    let lines = ["nobody leads", "db-1 leads with token 1, at 10.0.0.7:5432", "db-1 is now at 10.0.0.7:6432", "nobody leads"];
    shows("observe_the_leader", observe_the_leader::main, &lines);
}

#[test]
fn hand_over() {
    let lines = ["web-1 leads with token 1", "web-2 leads with token 2"];
    shows("hand_over", hand_over::main, &lines);
}

#[cfg(feature = "conformance")]
#[test]
fn own_engine() {
    let claims = format!("all {} claims hold", incumbent::conformance::cases().len());
    shows("own_engine", own_engine::main, &["leading with token 1", &claims]);
}
