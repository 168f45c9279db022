//! `cargo xtask test`: every check, each a named step with its duration, and a summary at the end.
//!
//! A step that fails does not stop the ones after it: a person wants to know all that is wrong, not only the first of it.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::{install, licences, shell, tidy};

/// One check.
pub(crate) struct Step {
    /// What it is called on the command line.
    pub(crate) name: &'static str,
    /// What it makes sure of.
    promise: &'static str,
    run: fn() -> Result<(), String>,
}

/// All checks, the quick ones first.
pub(crate) const STEPS: &[Step] = &[
    Step { name: "install", promise: "the programs that the tests need are there", run: install::run },
    Step { name: "fmt", promise: "the sources are formatted", run: fmt },
    Step { name: "tidy", promise: "the rules of the house that no compiler checks are kept", run: tidy::run },
    Step { name: "licences", promise: "all that we build on may be built on", run: licences::run },
    Step { name: "clippy", promise: "no lint complains", run: clippy },
    Step { name: "docs", promise: "the documentation builds without a warning", run: docs },
    Step { name: "tests", promise: "every test passes", run: tests },
    Step { name: "doctests", promise: "every example in the documentation runs", run: doctests },
];

/// The step of this name.
pub(crate) fn step(name: &str) -> Result<&'static Step, String> {
    STEPS.iter().find(|step| step.name == name).ok_or_else(|| format!("unknown step '{name}'"))
}

/// The steps and what they promise, for the help.
pub(crate) fn list() -> String {
    STEPS.iter().fold(String::new(), |mut text, step| {
        let _ = writeln!(text, "  {:<10} {}", step.name, step.promise);
        text
    })
}

/// Runs the steps in turn and tells how each went.
pub(crate) fn run(steps: &[&Step]) -> Result<(), String> {
    let mut summary = String::new();
    let mut failed: Vec<&str> = Vec::new();
    for step in steps {
        println!("\n==> {}: {}", step.name, step.promise);
        let began = Instant::now();
        let result = (step.run)();
        let line = summary_line(step.name, &result, began.elapsed());
        println!("{line}");
        let _ = writeln!(summary, "  {line}");
        if result.is_err() {
            failed.push(step.name);
        }
    }
    println!("\n==> summary\n{summary}");
    match failed.as_slice() {
        [] => Ok(()),
        names => Err(format!("failed: {}; run one again with `cargo xtask test {}`", names.join(", "), names[0])),
    }
}

fn summary_line(name: &str, result: &Result<(), String>, took: Duration) -> String {
    match result {
        Ok(()) => format!("ok      {name:<10} {:>7.1} s", took.as_secs_f64()),
        Err(wrong) => format!("FAILED  {name:<10} {:>7.1} s  {wrong}", took.as_secs_f64()),
    }
}

fn fmt() -> Result<(), String> {
    shell::run(&mut shell::cargo(&["fmt", "--all", "--check"])).map_err(|wrong| format!("{wrong}; `cargo fmt` repairs it"))
}

fn clippy() -> Result<(), String> {
    shell::run(&mut shell::cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--all-features",
        "--locked",
        "--",
        "-D",
        "warnings",
    ]))
}

fn docs() -> Result<(), String> {
    shell::run(
        shell::cargo(&["doc", "--workspace", "--all-features", "--no-deps", "--locked"]).env("RUSTDOCFLAGS", "-D warnings"),
    )
}

/// What holds tests. Not benches: they are programs of their own, run by `cargo xtask bench`.
const TARGETS: &[&str] =
    &["--workspace", "--all-features", "--lib", "--bins", "--tests", "--examples", "--no-fail-fast", "--locked"];

/// Both runners run the same tests; nextest runs each in a process of its own and tells a hang from a failure.
fn tests() -> Result<(), String> {
    let runner: &[&str] = if shell::exists("cargo-nextest") { &["nextest", "run"] } else { &["test"] };
    shell::run(shell::cargo(runner).args(TARGETS))
}

fn doctests() -> Result<(), String> {
    shell::run(&mut shell::cargo(&["test", "--workspace", "--all-features", "--doc", "--locked"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BREAKS: Step = Step { name: "breaks", promise: "nothing", run: || Err("it broke".into()) };
    const HOLDS: Step = Step { name: "holds", promise: "nothing", run: || Ok(()) };

    #[test]
    fn one_failed_step_fails_the_run_and_is_named() {
        assert!(run(&[&HOLDS]).is_ok());
        let wrong = run(&[&BREAKS, &HOLDS]).unwrap_err();
        assert!(wrong.contains("failed: breaks") && !wrong.contains("holds"), "{wrong}");
    }

    #[test]
    fn the_summary_says_how_long_and_why() {
        let line = summary_line("docs", &Err("it broke".into()), Duration::from_millis(1250));
        assert_eq!(line, "FAILED  docs           1.2 s  it broke");
    }

    #[test]
    fn no_two_steps_share_a_name() {
        let mut names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), STEPS.len());
    }
}
