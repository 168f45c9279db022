//! Programs run for their effect: what they print goes to the person, what they return decides.
//!
//! No child gets the terminal's input: a program that would ask a question fails instead of hanging a machine that nobody watches.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The root of the workspace, wherever xtask was called from.
pub(crate) fn root() -> PathBuf {
    // Cargo sets it for `cargo run`; a binary called by hand falls back to where it stands.
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from("xtask"), PathBuf::from);
    xtask.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// `cargo` with these arguments, in the workspace.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    command
}

/// Runs `command` to its end. An error says which command and how it ended.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let line = line(command);
    println!("$ {line}");
    let status =
        command.current_dir(root()).stdin(Stdio::null()).status().map_err(|wrong| format!("cannot run `{line}`: {wrong}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{line}` ended with {status}")) }
}

/// Runs `command` to its end and returns what it printed. Its complaints go to the person.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let line = line(command);
    let output = command
        .current_dir(root())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|wrong| format!("cannot run `{line}`: {wrong}"))?;
    if !output.status.success() {
        return Err(format!("`{line}` ended with {}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("`{line}` printed what is not UTF-8"))
}

/// Whether a program of this name can be found.
pub(crate) fn exists(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

/// The command as a person would type it.
fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    std::iter::once(program).chain(command.get_args()).map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_command_and_how_it_ended() {
        let failed = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        assert!(failed.contains("sh -c exit 3") && failed.contains('3'), "{failed}");
        let absent = run(&mut Command::new("no-such-program-here")).unwrap_err();
        assert!(absent.contains("cannot run `no-such-program-here`"), "{absent}");
        assert!(!exists("no-such-program-here") && exists("sh"));
    }

    #[test]
    fn a_child_finds_no_input_to_wait_for() {
        assert_eq!(output(Command::new("cat").arg("-")).unwrap(), "");
    }
}
