//! The command as a shell runs it, for all tests of it.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod processes;

use std::process::{Command, Output, Stdio};

/// The real binary, with an environment that asks for nothing.
pub(crate) fn incumbent(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_incumbent"));
    command.args(arguments).stdin(Stdio::null());
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Runs to the end and demands this exit code.
pub(crate) fn ends(mut command: Command, code: i32) -> Output {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{command:?}: {}", text(&output.stderr));
    output
}

/// Whether the process listens for Ctrl-C by now, as the kernel knows it.
pub(crate) fn listens(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim();
    u64::from_str_radix(caught, 16).unwrap_or(0) & (1 << (2 - 1)) != 0
}
