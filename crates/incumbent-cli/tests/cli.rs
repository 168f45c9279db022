//! The command as a shell sees it: exit codes, what goes to which stream, colours, closed pipes.

mod shell;

use shell::{incumbent, text};
use std::fs::OpenOptions;
use std::process::{Command, Output};

fn ends(arguments: &[&str], code: i32) -> Output {
    shell::ends(incumbent(arguments), code)
}

#[test]
fn help_and_version_are_results_and_go_to_the_standard_output() {
    let help = ends(&["--help"], 0);
    assert!(help.stderr.is_empty());
    for part in ["Examples:", "Exit codes:", "incumbent who", "incumbent lab run", "incumbent lab explain", "--color"] {
        assert!(text(&help.stdout).contains(part), "no {part}");
    }
    assert!(text(&ends(&["--version"], 0).stdout).starts_with("incumbent "));
    assert!(text(&ends(&["lab", "protocols", "--help"], 0).stdout).contains("Examples:"));
}

#[test]
fn a_wrong_command_line_ends_with_2_says_what_is_wrong_and_prints_no_result() {
    for (arguments, says) in [
        (&["lba"][..], "unrecognized subcommand 'lba'"),
        (&["lab", "protocol"], "a similar subcommand exists: 'protocols'"),
        (&["lab", "protocols", "--jsno"], "unexpected argument '--jsno'"),
        (&["--color", "sometimes", "lab", "protocols"], "invalid value 'sometimes'"),
        (&["completions", "tcsh"], "invalid value 'tcsh'"),
        (&[], "Usage: incumbent"),
        (&["lab"], "Usage: incumbent lab"),
    ] {
        let output = ends(arguments, 2);
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(text(&output.stderr).contains(says), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn json_is_one_document_and_nothing_else() {
    let output = ends(&["lab", "protocols", "--json"], 0);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> = document["protocols"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["bully", "ring", "chang-roberts", "raft"]);
    assert!(output.stderr.is_empty());
}

#[test]
fn a_list_of_protocols_says_first_what_is_not_safe() {
    let output = ends(&["lab", "protocols"], 0);
    let list = text(&output.stdout);
    let (warning, promise) = (list.find("not safe").unwrap(), list.find("at most one leader").unwrap());
    assert!(warning < promise);
}

#[test]
fn colour_is_for_terminals_unless_asked_for() {
    let painted = |command: &mut Command| command.output().unwrap().stdout.contains(&0x1b);
    let list = ["lab", "protocols"];
    assert!(!painted(&mut incumbent(&list)), "a pipe is no terminal");
    assert!(painted(incumbent(&list).env("CLICOLOR_FORCE", "1")));
    assert!(!painted(incumbent(&list).env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1")));
    assert!(painted(incumbent(&list).args(["--color", "always"]).env("NO_COLOR", "1")));
    assert!(!painted(incumbent(&["--color=never", "--help"]).env("CLICOLOR_FORCE", "1")), "help heeds it too");
    assert!(painted(&mut incumbent(&["--color=always", "--help"])));
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    for arguments in [&["lab", "protocols"][..], &["lab", "protocols", "--json"], &["completions", "bash"], &["man"], &["--help"]]
    {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = incumbent(arguments).stdout(writer).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn what_cannot_be_written_ends_with_3_and_says_what_to_do() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = incumbent(&["lab", "protocols"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(
        text(&output.stderr),
        "error: cannot write to the standard output: No space left on device (os error 28)\n  hint: make room on the disk, or write elsewhere\n"
    );
    let output = ends(&["man", "--dir", "/dev/null/man"], 3);
    assert!(text(&output.stderr).contains("error: cannot make the folder /dev/null/man"), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("\n  hint: "));
}

#[test]
fn every_shell_gets_completions_that_know_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = ends(&["completions", shell], 0);
        assert!(text(&output.stdout).contains("protocols"), "{shell}");
    }
}

#[test]
fn the_manual_has_a_page_for_every_command() {
    let page = ends(&["man"], 0);
    assert!(text(&page.stdout).contains(".TH incumbent 1") && text(&page.stdout).contains("Exit codes"));
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("man");
    let output = ends(&["man", "--dir", dir.to_str().unwrap()], 0);
    let pages: Vec<_> = text(&output.stdout).lines().map(|line| line.rsplit('/').next().unwrap()).collect();
    for name in [
        "incumbent.1",
        "incumbent-who.1",
        "incumbent-handover.1",
        "incumbent-drill.1",
        "incumbent-lab.1",
        "incumbent-lab-check.1",
        "incumbent-lab-compare.1",
        "incumbent-lab-graphs.1",
        "incumbent-lab-protocols.1",
        "incumbent-completions.1",
        "incumbent-man.1",
    ] {
        assert!(pages.contains(&name) && dir.join(name).is_file(), "{name} is not among {pages:?}");
    }
    assert!(!pages.contains(&"incumbent-drill-candidate.1"), "what is hidden has no page");
}
