//! The last stage before the command: a process of ours that puts itself where the command must be, and then becomes it.
//!
//! It joins the control group and asks the kernel to be killed when the guardian dies, before a single instruction of the command has run; doing the same from outside would
//! leave the command an instant in which it can fork.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::cgroup::Cgroup;

/// What this stage is called among the processes.
pub(crate) const NAME: &str = "incumbent-launcher";
/// As shells have it.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// As shells have it.
pub(crate) const NOT_FOUND: u8 = 127;

/// The command with which the guardian starts one.
pub(crate) fn command(guardian: Pid, cgroup: Option<&Cgroup>, oom_score: &str, program: &std::ffi::OsStr) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(NAME).arg(guardian.to_string()).arg(oom_score);
    command.arg(cgroup.map_or(OsString::new(), |it| it.path().as_os_str().to_owned())).arg(program);
    command
}

/// Becomes the command; returns only the exit code that says why it could not.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>) -> u8 {
    let (Some(guardian), Some(oom_score), Some(cgroup), Some(program)) =
        (arguments.next(), arguments.next(), arguments.next(), arguments.next())
    else {
        return complain("was not started by a guardian", NOT_EXECUTABLE);
    };
    // Whoever kills first when memory is short must not spare the command as it spares the guardian.
    let _ = fs::write("/proc/self/oom_score_adj", oom_score.as_encoded_bytes());
    if !cgroup.is_empty()
        && let Err(why) = Cgroup::at(PathBuf::from(cgroup)).join()
    {
        return complain(&format!("cannot join the control group: {why}"), NOT_EXECUTABLE);
    }
    if let Err(why) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return complain(&format!("cannot tie the command to its guardian: {why}"), NOT_EXECUTABLE);
    }
    // It may have died before that.
    if getppid().map(|it| it.to_string().into()) != Some(guardian) {
        return complain("the guardian has died", NOT_EXECUTABLE);
    }
    let why = Command::new(&program).args(arguments).exec();
    let code = if why.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
    complain(&format!("cannot run {}: {why}", PathBuf::from(program).display()), code)
}

#[allow(clippy::print_stderr, reason = "it stands where the command's own standard error is, and its end is the message")]
fn complain(what: &str, code: u8) -> u8 {
    eprintln!("incumbent: {what}");
    code
}
