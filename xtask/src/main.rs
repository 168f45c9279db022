//! The project's automation: `cargo xtask test` passes everything that must hold before a change is taken.
//!
//! Each task is a file. Nothing here is part of the product, and the product never depends on it.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this program talks to the person who runs it")]

mod test;

mod bench;
mod generate;
mod install;
mod licences;
mod nemesis;
mod tidy;

mod metadata;
mod shell;

use std::process::ExitCode;

const HELP: &str = "\
The project's automation.

Usage: cargo xtask <TASK>

Tasks:
  test [STEP]...  Install what is missing, then pass every check and test; or only the named steps
  install         Install what the tests need and this machine lacks: programs, engines, other people's clients
  tidy            The rules of the house that no compiler checks
  bench [WHICH]   The figures we publish: lab, engines, peers, run, or all; further arguments go to that one
  nemesis         The service under faults, for longer than the tests: --minutes N, and --seed S to begin as another run did
  man             Write the manual pages to target/man
  completions     Write the shell completions to target/completions
  help            Print this

Exit codes: 0 all passed, 1 something failed, 2 bad usage
";

/// What the command line asked for.
enum Task<'a> {
    Test { steps: Vec<&'static test::Step> },
    Install,
    Tidy,
    Bench { arguments: &'a [&'a str] },
    Nemesis { wanted: nemesis::Wanted },
    Man,
    Completions,
    Help,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match parse(&words) {
        Ok(Task::Test { steps }) => test::run(&steps),
        Ok(Task::Install) => install::run(),
        Ok(Task::Tidy) => tidy::run(),
        Ok(Task::Bench { arguments }) => bench::run(arguments),
        Ok(Task::Nemesis { wanted }) => nemesis::run(&wanted),
        Ok(Task::Man) => generate::man(),
        Ok(Task::Completions) => generate::completions(),
        Ok(Task::Help) => {
            print!("{HELP}\nSteps of test:\n{}", test::list());
            Ok(())
        }
        Err(wrong) => {
            eprintln!("error: {wrong}\n  hint: `cargo xtask help` lists what there is");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("error: {wrong}");
            ExitCode::FAILURE
        }
    }
}

fn parse<'a>(words: &'a [&'a str]) -> Result<Task<'a>, String> {
    match words {
        ["bench", arguments @ ..] => Ok(Task::Bench { arguments }),
        words if words.iter().any(|word| ["help", "--help", "-h"].contains(word)) => Ok(Task::Help),
        ["nemesis", arguments @ ..] => Ok(Task::Nemesis { wanted: nemesis::Wanted::parse(arguments)? }),
        [] => Err("no task named".into()),
        ["test"] => Ok(Task::Test { steps: test::STEPS.iter().collect() }),
        ["test", names @ ..] => Ok(Task::Test { steps: names.iter().map(|name| test::step(name)).collect::<Result<_, _>>()? }),
        ["install"] => Ok(Task::Install),
        ["tidy"] => Ok(Task::Tidy),
        ["man"] => Ok(Task::Man),
        ["completions"] => Ok(Task::Completions),
        ["install" | "tidy" | "man" | "completions", extra, ..] => Err(format!("'{extra}' is one word too many")),
        [unknown, ..] => Err(format!("unknown task '{unknown}'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_task_or_step_is_refused_and_help_is_always_help() {
        for (words, says) in
            [(&[][..], "no task"), (&["tset"], "'tset'"), (&["test", "fnt"], "'fnt'"), (&["tidy", "x"], "too many")]
        {
            let wrong = parse(words).err().unwrap();
            assert!(wrong.contains(says), "{wrong}");
        }
        for words in [&["help"][..], &["--help"], &["test", "--help"]] {
            assert!(matches!(parse(words), Ok(Task::Help)));
        }
    }

    #[test]
    fn test_alone_means_every_step() {
        let Ok(Task::Test { steps }) = parse(&["test"]) else { panic!("not a test run") };
        assert_eq!(steps.len(), test::STEPS.len());
        let Ok(Task::Test { steps }) = parse(&["test", "fmt"]) else { panic!("not a test run") };
        assert_eq!(steps.iter().map(|it| it.name).collect::<Vec<_>>(), ["fmt"]);
    }
}
