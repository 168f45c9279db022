//! A process that a test started: killed, paused and started again by the test, and dead when the test is.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::folder::Folder;
use crate::keeper;

/// A process, its command line and its log. Dropping it kills it.
pub struct Process {
    name: &'static str,
    launch: Launch,
    /// Where it works and keeps its files. Goes with it.
    folder: Folder,
    state: Mutex<State>,
    /// It was told to end, or killed, by the test.
    told: AtomicBool,
}

/// What is needed to start it, now and again.
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) variables: Vec<(OsString, OsString)>,
    /// Where it works, if not where its files are.
    pub(crate) works_in: Option<PathBuf>,
    pub(crate) speech: Speech,
    /// Under which user, if not ours.
    pub(crate) user: Option<&'static str>,
    /// What makes it end in good order.
    pub(crate) stop_by: Signal,
}

/// Where input comes from and output goes. Complaints always go to the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Speech {
    /// No input; output goes to the log.
    Logged,
    /// Both belong to who starts it: [`Process::start_heard`].
    Heard,
}

impl Launch {
    /// A program under our own user that ends on SIGTERM.
    pub(crate) fn new(program: PathBuf) -> Launch {
        Launch {
            program,
            arguments: Vec::new(),
            variables: Vec::new(),
            works_in: None,
            speech: Speech::Logged,
            user: None,
            stop_by: Signal::TERM,
        }
    }

    pub(crate) fn arguments<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Launch {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }
}

enum State {
    Running(Child),
    Ended(Option<ExitStatus>),
}

/// In good order a server ends within a second or two; one that has not by then hangs.
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// How often we look whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(2);

impl Process {
    /// Not started yet. `name` is for messages.
    pub(crate) fn new(name: &'static str, folder: Folder, launch: Launch) -> Process {
        Process { name, launch, folder, state: Mutex::new(State::Ended(None)), told: AtomicBool::new(false) }
    }

    /// What it is called in messages.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Where it keeps its files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its id, while it runs.
    pub fn id(&self) -> Option<u32> {
        match &*self.look() {
            State::Running(child) => Some(child.id()),
            State::Ended(_) => None,
        }
    }

    /// Its id and those of all its children, while it runs.
    pub fn family(&self) -> Vec<u32> {
        let mut family: Vec<u32> = self.id().into_iter().collect();
        let mut next = 0;
        while next < family.len() {
            family.extend(children(family[next]));
            next += 1;
        }
        family
    }

    /// Whether it runs, paused or not.
    pub fn runs(&self) -> bool {
        self.id().is_some()
    }

    /// How it ended, in words.
    pub(crate) fn ending(&self) -> String {
        match &*self.look() {
            State::Running(_) => "it runs".into(),
            State::Ended(None) => "never started".into(),
            State::Ended(Some(status)) => status.to_string(),
        }
    }

    /// Starts it.
    pub(crate) fn start(&self) -> Result<(), String> {
        self.spawn().map(drop)
    }

    /// Starts it and returns its input and output, which must be [`Speech::Heard`].
    pub(crate) fn start_heard(&self) -> Result<(ChildStdin, ChildStdout), String> {
        self.spawn()?.ok_or_else(|| format!("{} is not heard", self.name))
    }

    fn spawn(&self) -> Result<Option<(ChildStdin, ChildStdout)>, String> {
        let mut state = self.look();
        if matches!(*state, State::Running(_)) {
            return Err(format!("{} runs already", self.name));
        }
        let mut child = keeper::spawn(self.command()?).map_err(|wrong| format!("cannot start {}: {wrong}", self.name))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        *state = State::Running(child);
        Ok(pipes)
    }

    /// The server's command line behind `setpriv`, which asks the kernel to kill it when we die.
    fn command(&self) -> Result<Command, String> {
        let failed = |wrong: std::io::Error| format!("cannot write {}: {wrong}", self.log().display());
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log()).map_err(failed)?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if let Some(user) = self.launch.user {
            command.args(["--reuid", user, "--regid", user, "--init-groups"]);
        }
        command.arg("--").arg(&self.launch.program).args(&self.launch.arguments);
        command.envs(self.launch.variables.iter().map(|(name, value)| (name, value)));
        command.current_dir(self.launch.works_in.as_deref().unwrap_or(self.folder.path()));
        match self.launch.speech {
            Speech::Logged => command.stdin(Stdio::null()).stdout(log.try_clone().map_err(failed)?),
            Speech::Heard => command.stdin(Stdio::piped()).stdout(Stdio::piped()),
        };
        command.stderr(log);
        // Ctrl-C is for the tests, not for the servers: those are ended by them.
        command.process_group(0);
        Ok(command)
    }

    /// Waits until it has ended by itself, and returns how; `None` if it has not by then.
    pub(crate) fn wait(&self, within: Duration) -> Option<ExitStatus> {
        let began = Instant::now();
        loop {
            match &*self.look() {
                State::Ended(status) => return *status,
                State::Running(_) if began.elapsed() > within => return None,
                State::Running(_) => {}
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Asks it to end in good order, and waits until it has. Does nothing if it has ended already.
    pub(crate) fn stop(&self) -> Result<(), String> {
        self.told.store(true, Ordering::Relaxed);
        self.signal(self.launch.stop_by);
        // A paused process would hear of it only when resumed.
        self.resume();
        if self.wait(STOP_WITHIN).is_none() && self.runs() {
            self.kill();
            return Err(format!("{} did not stop within {STOP_WITHIN:?} and was killed", self.name));
        }
        Ok(())
    }

    /// Kills it with all its children, and waits until it is dead.
    pub(crate) fn kill(&self) {
        self.told.store(true, Ordering::Relaxed);
        // Stopped first, so that it makes no more children while we look for them.
        let family = self.pause();
        for id in &family {
            signal(*id, Signal::KILL);
        }
        let mut state = self.look();
        if let State::Running(child) = &mut *state {
            // An error can only mean that it is not our child any more.
            let status = child.wait().ok();
            *state = State::Ended(status);
        }
        drop(state);
        // PostgreSQL does not start while a child of its last life is still there.
        let began = Instant::now();
        while family.iter().any(|id| lives(*id)) && began.elapsed() < STOP_WITHIN {
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Stops it and all its children in their tracks; returns their ids, parents before children.
    pub(crate) fn pause(&self) -> Vec<u32> {
        let mut stopped = Vec::new();
        loop {
            let family = self.family();
            for id in family.iter().filter(|id| !stopped.contains(*id)) {
                signal(*id, Signal::STOP);
            }
            // A signal takes effect a moment after it was sent.
            let began = Instant::now();
            while family.iter().any(|id| lives(*id) && letter(*id) != Some('T')) && began.elapsed() < STOP_WITHIN {
                std::thread::sleep(LOOK_EVERY);
            }
            // A child may be made until its parent has stopped, so look until nobody is new.
            if family.iter().all(|id| stopped.contains(id)) {
                return family;
            }
            stopped = family;
        }
    }

    /// Lets it and all its children go on.
    pub(crate) fn resume(&self) {
        for id in self.family() {
            signal(id, Signal::CONT);
        }
    }

    fn signal(&self, what: Signal) {
        if let Some(id) = self.id() {
            signal(id, what);
        }
    }

    /// The last lines that it printed.
    pub fn log_tail(&self, lines: usize) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let all: Vec<&str> = log.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// The state as it is now.
    fn look(&self) -> std::sync::MutexGuard<'_, State> {
        // A test that failed while it held the lock has changed nothing by halves.
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let State::Running(child) = &mut *state
            && let Ok(Some(status)) = child.try_wait()
        {
            *state = State::Ended(Some(status));
        }
        state
    }
}

impl Drop for Process {
    #[allow(clippy::print_stderr, reason = "shown only with a test that failed, and then it is the cause")]
    fn drop(&mut self) {
        if let State::Ended(Some(status)) = *self.look()
            && self.launch.speech == Speech::Logged
            && !self.told.load(Ordering::Relaxed)
        {
            eprintln!("{} had ended by itself ({status}); the end of its log:\n{}", self.name, self.log_tail(40));
        }
        self.kill();
    }
}

/// A process that is gone hears nothing, which is no error here.
fn signal(id: u32, what: Signal) {
    if let Some(id) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        let _ = kill_process(id, what);
    }
}

/// Whether a process of this id is alive. One that its parent has not buried yet is not.
pub(crate) fn lives(id: u32) -> bool {
    !matches!(letter(id), None | Some('Z' | 'X'))
}

/// The letter by which the kernel names what a process is doing.
fn letter(id: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name before it stands in brackets and may hold anything, brackets and spaces too.
    stat.rsplit(')').next()?.trim_start().chars().next()
}

/// The children of a process, whichever of its threads made them.
fn children(id: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::eventually;

    fn shell(script: &str) -> Process {
        Process::new("a shell", Folder::new("shell").unwrap(), Launch::new("/bin/sh".into()).arguments(["-c", script]))
    }

    #[test]
    fn children_are_paused_resumed_and_killed_with_their_parent() {
        // The child is in a session of its own, as PostgreSQL's are: a signal to the group would miss it.
        let process = shell("setsid cat /dev/zero > /dev/null & wait");
        process.start().unwrap();
        let id = process.id().unwrap();
        eventually("a child", || !children(id).is_empty());
        let child = children(id)[0];
        assert_eq!(process.pause(), [id, child]);
        assert!([id, child].iter().all(|it| letter(*it) == Some('T')));
        process.resume();
        eventually("both go on", || [id, child].iter().all(|it| letter(*it) != Some('T')));
        process.kill();
        assert!(!process.runs());
        assert!(!lives(child));
    }

    #[test]
    fn a_stop_waits_for_the_end_even_of_one_that_was_paused() {
        let process = shell("trap 'echo bye; exit 3' TERM; echo hello; while :; do :; done");
        process.start().unwrap();
        eventually("it says hello", || process.log_tail(1) == "hello");
        process.pause();
        process.stop().unwrap();
        assert!(process.ending().contains('3'), "{}", process.ending());
        assert_eq!(process.log_tail(2), "hello\nbye");
        process.stop().unwrap();
    }
}
