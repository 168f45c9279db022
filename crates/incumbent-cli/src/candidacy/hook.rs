//! The small commands of a shell that go with a leadership: hooks and probes, and what they are told.
//!
//! A hook acts for the leader as its work does, so it is held as the work is: by a guardian that kills it, and all that it has started, when the leadership must end, when it has
//! taken too long, or when this process dies. A probe only looks; it is killed when it takes too long, with its process group.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use incumbent::{Leadership, Timing};
use incumbent_protocol::time::Instant;
use incumbent_supervisor::berth::Berth;
use incumbent_supervisor::{Command, Ending, Event, Guarded, Setup, clock};
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, waitpgid};

use super::own_variables;
use super::signals::{Signals, Told};

/// A hook or probe that has not ended by then has failed.
pub(crate) const SHELL_WITHIN: Duration = Duration::from_secs(30);

/// So many probes may have left somebody behind who lives.
const LEFT_MAX: usize = 256;

/// A line of shell that belongs to a leadership.
pub(crate) struct Hook<'a> {
    pub(crate) line: &'a str,
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) directory: Option<&'a Path>,
    /// Held by its guardian too, where the next leader on this machine waits for it.
    pub(crate) berth: Option<&'a Berth>,
}

/// Why a hook did not end well. Nothing of it lives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Cut {
    /// The leadership ends.
    Lost,
    /// A signal asked this process to end.
    Told(Told),
    /// In one line.
    Failed(String),
}

impl Hook<'_> {
    /// Runs it while the leadership lasts.
    pub(crate) async fn run_for(&self, leadership: &Leadership, timing: &Timing, signals: &mut Signals) -> Result<(), Cut> {
        let end = clock::now() + SHELL_WITHIN;
        let lease = || {
            let kill_at = super::before(leadership.deadline(), timing.kill()).min(end);
            (kill_at, leadership.deadline())
        };
        let mut guarded = self.begin(lease()).await.map_err(Cut::Failed)?;
        let mut changes = leadership.changes();
        let mut cut = None;
        let mut ending = None;
        loop {
            tokio::select! {
                biased;
                event = guarded.next() => if let Some(ended) = self.judge(event, &mut ending) {
                    return cut.map_or_else(|| ended.map_err(Cut::Failed), Err);
                },
                told = signals.told() => {
                    cut.get_or_insert(Cut::Told(told));
                    guarded.kill();
                }
                _ = leadership.stopping(), if cut.is_none() => {
                    cut = Some(Cut::Lost);
                    guarded.kill();
                }
                () = changes.next() => {
                    let (kill_at, deadline) = lease();
                    guarded.lease(kill_at, kill_at, deadline);
                }
            }
        }
    }

    /// Runs it when the leadership's work has ended, and perhaps the leadership too.
    pub(crate) async fn run_after(&self) -> Result<(), String> {
        let end = clock::now() + SHELL_WITHIN;
        let mut guarded = self.begin((end, end)).await?;
        let mut ending = None;
        loop {
            let event = guarded.next().await;
            if let Some(ended) = self.judge(event, &mut ending) {
                return ended;
            }
        }
    }

    async fn begin(&self, (kill_at, deadline): (Instant, Instant)) -> Result<Guarded, String> {
        let nothing = File::open("/dev/null").map_err(|why| self.not_run(&why))?;
        let setup = Setup {
            program: Path::new("/proc/self/exe"),
            stdin: nothing.as_fd(),
            berth: self.berth.map(Berth::file),
            network_fence: false,
            watchdog: None,
        };
        let mut guarded = Guarded::begin(&setup).await.map_err(|why| self.not_run(&why))?;
        guarded.lease(kill_at, kill_at, deadline);
        guarded.start(Command {
            program: PathBuf::from("/bin/sh"),
            arguments: vec!["-c".into(), self.line.into()],
            environment: self.environment.clone(),
            without: own_variables().map(OsString::from).collect(),
            directory: self.directory.map(Path::to_owned),
        });
        Ok(guarded)
    }

    /// What an event says of its end, if it is the last.
    fn judge(&self, event: Event, ending: &mut Option<Ending>) -> Option<Result<(), String>> {
        let line = self.line;
        match event {
            Event::Started { .. } | Event::NotFrozen { .. } | Event::TimeUp | Event::GuardianDied => None,
            Event::Ended(how) => {
                *ending = Some(how);
                None
            }
            Event::NotStarted { why } => Some(Err(self.not_run(&why))),
            Event::TooLate => Some(Err(format!("{line:?} was not run: the lease had ended"))),
            Event::Dead { .. } => Some(match ending {
                Some(Ending::Code(0)) => Ok(()),
                Some(Ending::Code(code)) => Err(format!("{line:?} ended with code {code}")),
                Some(Ending::Signal(_)) | None => {
                    Err(format!("{line:?} was killed; it may take {SHELL_WITHIN:?}, and no longer than the lease"))
                }
            }),
        }
    }

    fn not_run(&self, why: &dyn std::fmt::Display) -> String {
        format!("{:?} could not be run: {why}", self.line)
    }
}

/// Runs a probe to its end. `Err` says in one line how it failed.
pub(crate) async fn probe(line: &str) -> Result<(), String> {
    let mut command = tokio::process::Command::new("/bin/sh");
    command.arg("-c").arg(line).stdin(Stdio::null()).process_group(0);
    for name in own_variables() {
        command.env_remove(name);
    }
    let mut child = command.spawn().map_err(|why| format!("{line:?} could not be run: {why}"))?;
    let pid = child.id().and_then(|it| Pid::from_raw(it.cast_signed()));
    let mut group = Group(pid);
    let found = match tokio::time::timeout(SHELL_WITHIN, child.wait()).await {
        Ok(ended) => {
            group.0 = None;
            match ended {
                Ok(status) if status.success() => Ok(()),
                Ok(status) => Err(format!("{line:?} ended with {status}")),
                Err(why) => Err(format!("{line:?} could not be waited for: {why}")),
            }
        }
        Err(_) => Err(format!("{line:?} had not ended after {SHELL_WITHIN:?}, and was killed")),
    };
    drop(group);
    bury(pid);
    found
}

/// Whoever a probe leaves behind is this process's child when its own parent has ended, because what commands leave behind is; and stays on the kernel's list of processes until somebody asks how it
/// ended. Asks that of those whom this probe, and those before it, have left.
fn bury(group: Option<Pid>) {
    static LEFT: Mutex<Vec<Pid>> = Mutex::new(Vec::new());
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    left.extend(group);
    left.retain(|group| {
        loop {
            match waitpgid(*group, WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    });
    let too_many = left.len().saturating_sub(LEFT_MAX);
    left.drain(..too_many);
}

/// A process group: dead when this is dropped, unless its first process was waited for.
pub(crate) struct Group(pub(crate) Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // Gone already is as good.
            let _ = kill_process_group(group, Signal::KILL);
        }
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
