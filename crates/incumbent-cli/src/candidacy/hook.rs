//! The small commands of a shell that go with a leadership: hooks and probes, and what they are told.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use incumbent::Leadership;
use tokio::process::Command;

/// A hook or probe that has not ended by then has failed.
const SHELL_WITHIN: Duration = Duration::from_secs(30);

/// Runs a line of shell to its end. `Err` says in one line how it failed.
pub(crate) async fn shell(line: &str, environment: &[(OsString, OsString)], directory: Option<&Path>) -> Result<(), String> {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(line).envs(environment.iter().cloned()).stdin(Stdio::null()).kill_on_drop(true).process_group(0);
    if let Some(directory) = directory {
        command.current_dir(directory);
    }
    let ended = tokio::time::timeout(SHELL_WITHIN, async { command.spawn()?.wait().await });
    match ended.await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("{line:?} ended with {status}")),
        Ok(Err(why)) => Err(format!("{line:?} could not be run: {why}")),
        Err(_) => Err(format!("{line:?} had not ended after {SHELL_WITHIN:?}, and was killed")),
    }
}

/// What a hook, and a command, may know of the leadership it serves.
pub(crate) fn environment(leadership: &Leadership) -> Vec<(OsString, OsString)> {
    [
        ("INCUMBENT_ELECTION", OsString::from(leadership.election().as_str())),
        ("INCUMBENT_TOKEN", OsString::from(leadership.token().get().to_string())),
        ("INCUMBENT_IDENTITY", OsString::from(leadership.identity().as_str())),
    ]
    .into_iter()
    .map(|(name, value)| (OsString::from(name), value))
    .collect()
}
