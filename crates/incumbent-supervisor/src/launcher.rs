//! The last stage before the command: a process of ours that puts itself where the command must be, waits for its word, and then becomes the command.
//!
//! It joins the control group and asks the kernel to be killed when the guardian dies, before a single instruction of the command has run; doing the same from outside would
//! leave the command an instant in which it can fork. It is begun while there is nothing to run yet: to join a control group takes the kernel about ten milliseconds, and
//! those would be lost to whoever takes over. Waiting, it is no part of any leadership: it acts only on the guardian's word, and ends with the guardian.

use std::ffi::{CStr, OsString};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, getppid, pidfd_open, set_parent_process_death_signal, setpriority_process};

use crate::cgroup::{Cgroup, is_gone};
use crate::wire::{Launch, line, receive_descriptors, send_descriptors, take_lines};

/// What this stage is called among the processes.
pub(crate) const NAME: &str = "incumbent-launcher";
/// Its name in the kernel.
const KERNEL_NAME: &CStr = c"launcher";
/// As shells have it.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// As shells have it.
pub(crate) const NOT_FOUND: u8 = 127;

/// How the kernel treats a process; the guardian is spared and preferred, and its command must not be.
pub(crate) struct Standing {
    /// For whoever kills when memory is short.
    pub(crate) oom_score: String,
    /// For whoever gives out the processors.
    pub(crate) niceness: i32,
}

/// A launcher as its guardian sees it: in place, and without a command.
pub(crate) struct Launcher {
    process: Child,
    pid: Pid,
    pidfd: OwnedFd,
    control: UnixStream,
}

impl Launcher {
    /// Begins one, in this control group and with this standing.
    pub(crate) fn begin(guardian: Pid, cgroup: Option<&Cgroup>, standing: &Standing) -> io::Result<Launcher> {
        let (control, theirs) = UnixStream::pair()?;
        let mut process = Command::new("/proc/self/exe")
            .arg0(NAME)
            .arg(guardian.to_string())
            .arg(&standing.oom_score)
            .arg(standing.niceness.to_string())
            .arg(cgroup.map_or(OsString::new(), |it| it.path().as_os_str().to_owned()))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .process_group(0)
            .spawn()?;
        // It cannot have been waited for: only this thread does that.
        let opened = Pid::from_raw(process.id().cast_signed())
            .ok_or_else(|| io::Error::other("the kernel gave no process"))
            .and_then(|pid| Ok((pid, pidfd_open(pid, PidfdFlags::empty())?)));
        match opened {
            Ok((pid, pidfd)) => Ok(Launcher { process, pid, pidfd, control }),
            Err(why) => {
                // Out of descriptors: what will be said not to have started must not stay.
                end(&mut process);
                Err(why)
            }
        }
    }

    /// Its process, which will be the command's.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Lets it become the command. On an error it is dead.
    pub(crate) fn launch(
        mut self,
        launch: &Launch,
        stdin: Option<BorrowedFd<'_>>,
        within: Duration,
    ) -> io::Result<(Pid, OwnedFd)> {
        match self.tell(launch, stdin, within) {
            Ok(()) => Ok((self.pid, self.pidfd)),
            Err(why) => {
                end(&mut self.process);
                Err(why)
            }
        }
    }

    fn tell(&mut self, launch: &Launch, stdin: Option<BorrowedFd<'_>>, within: Duration) -> io::Result<()> {
        // One that somebody has stopped does not read, and must not hold up its guardian.
        self.control.set_write_timeout(Some(within.max(Duration::from_millis(1))))?;
        send_descriptors(&self.control, &stdin.into_iter().collect::<Vec<_>>())?;
        self.control.write_all(&line(launch))
    }
}

fn end(process: &mut Child) {
    // It is our child and was not waited for, so both can only succeed, or it is dead.
    let _ = process.kill();
    let _ = process.wait();
}

/// Becomes the command; returns only the exit code that says why it could not.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>) -> u8 {
    let mut argument = || arguments.next();
    let (Some(guardian), Some(oom_score), Some(niceness), Some(cgroup)) = (argument(), argument(), argument(), argument()) else {
        return complain("was not started by a guardian", NOT_EXECUTABLE);
    };
    // For whoever lists the processes: until the command has its own name there.
    let _ = rustix::thread::set_name(KERNEL_NAME);
    // Whoever kills first when memory is short must not spare the command as it spares the guardian.
    let _ = fs::write("/proc/self/oom_score_adj", oom_score.as_encoded_bytes());
    // Nor may it have the guardian's place before others. Less is always granted.
    if let Some(niceness) = niceness.to_str().and_then(|it| it.parse().ok())
        && let Err(why) = setpriority_process(None, niceness)
    {
        return complain(&format!("cannot give the command its place among the processes: {why}"), NOT_EXECUTABLE);
    }
    // One that is not wanted any more, because there is nothing to run, goes without a word: its guardian may go before it has come this far, and takes the group with it.
    let is_dismissed = || getppid().map(|it| it.to_string().into()) != Some(guardian.clone());
    if !cgroup.is_empty()
        && let Err(why) = Cgroup::at(PathBuf::from(cgroup)).join()
    {
        if is_gone(&why) || is_dismissed() {
            return NOT_EXECUTABLE;
        }
        return complain(&format!("cannot join the control group: {why}"), NOT_EXECUTABLE);
    }
    if let Err(why) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return complain(&format!("cannot tie the command to its guardian: {why}"), NOT_EXECUTABLE);
    }
    // It may have died before that. Whoever waits for the command knows.
    if is_dismissed() {
        return NOT_EXECUTABLE;
    }
    match hear() {
        Ok(Some((launch, stdin))) => become_it(&launch, stdin),
        // Nothing will be run.
        Ok(None) => 0,
        Err(why) => complain(&format!("cannot hear the guardian: {why}"), NOT_EXECUTABLE),
    }
}

/// Waits for the word. `None` if the guardian has gone without one.
fn hear() -> io::Result<Option<(Launch, Option<OwnedFd>)>> {
    let mut control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let stdin = receive_descriptors(&control)?.into_iter().next();
    let (mut heard, mut bytes) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(launch) = take_lines(&mut heard)?.into_iter().next() {
            return Ok(Some((launch, stdin)));
        }
        match control.read(&mut bytes) {
            Ok(0) => return Ok(None),
            Ok(count) => heard.extend(&bytes[..count]),
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
}

fn become_it(launch: &Launch, stdin: Option<OwnedFd>) -> u8 {
    let program = Path::new(&launch.program);
    let mut command = Command::new(program);
    command.args(&launch.arguments).stdin(stdin.map_or_else(Stdio::null, Stdio::from));
    for name in &launch.without {
        command.env_remove(name);
    }
    command.envs(launch.environment.iter().map(|(name, value)| (name, value)));
    if let Some(directory) = &launch.directory
        && let Err(why) = std::env::set_current_dir(Path::new(directory))
    {
        return complain(&format!("cannot run in {}: {why}", Path::new(directory).display()), NOT_EXECUTABLE);
    }
    let why = command.exec();
    let code = if why.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
    complain(&format!("cannot run {}: {why}", program.display()), code)
}

#[allow(clippy::print_stderr, reason = "it stands where the command's own standard error is, and its end is the message")]
fn complain(what: &str, code: u8) -> u8 {
    eprintln!("incumbent: {what}");
    code
}
