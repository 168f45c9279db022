//! `incumbent run`: a command that runs while this process leads, and is dead before anybody else may.
//!
//! One leadership after another is contended for; [`term`] serves one. What happens between two of them is decided here: whether the command is to be run again, and when.

mod diary;
mod fence;
mod fence_agent;
mod job;
mod program;
pub(crate) mod record;
mod schedule;
mod term;

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgGroup, ValueEnum};
use incumbent::election::Builder;
use incumbent::{Identity, Leadership, Timing};
use incumbent_supervisor::berth::Berth;
use incumbent_supervisor::{Command, Ending, Guarded, Setup, watchdog};
use serde::{Deserialize, Serialize};

use self::diary::Diary;
use self::fence::Here;
use self::job::{Job, Task};
use self::schedule::Slot;
use self::term::{Served, Terms};
use crate::candidacy::contend::{self, Next, Service, Unserved};
use crate::candidacy::machine::{Machine, at_the_berth};
use crate::candidacy::notify::Notify;
use crate::candidacy::signals::{Signals, Told};
use crate::candidacy::{
    CandidacyArguments, Patience, build, claim_identity, find_target, own_variables, say, state_directory, usage,
};
use crate::elections::span;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::office::{Office, Stops};
use crate::otlp::OtlpArguments;

pub(crate) const EXAMPLES: &str = "\
Examples:
  # On this machine: no server, no configuration
  incumbent run nightly -- ./report.sh
  # On one of several hosts; and again when it fails, here or elsewhere
  incumbent run worker --on etcd://10.0.0.1:2379/prod -- ./worker
  incumbent run worker --restart on-failure -- ./worker --queue mail
  # Every night, on one host; and from cron on every host: one of them does it
  incumbent run nightly --at 02:30 -- ./report.sh
  incumbent run nightly --once=12h -- ./report.sh
  # A blip of the engine costs no restart
  incumbent run db --on-jeopardy freeze --ttl 10s -- ./writer
  # A host that falls silent is turned off first
  incumbent run db --fence agent:virsh --fence-options f -- ./writer

The command sees INCUMBENT_ELECTION, INCUMBENT_TOKEN, INCUMBENT_IDENTITY and INCUMBENT_SOCKET.";

/// Whoever ran this long has not failed at the start.
const RAN_WELL: Duration = Duration::from_secs(60);
/// Waits double with each failure up to this, unless the first is longer.
const BACK_OFF_MAX: Duration = Duration::from_secs(60);

#[derive(clap::Args, Debug, Serialize, Deserialize)]
#[command(group = ArgGroup::new("slots").args(["every", "at"]))]
#[command(group = ArgGroup::new("again").args(["restart", "every", "at"]).multiple(true))]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub(crate) candidacy: CandidacyArguments,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", help_heading = None::<&str>)]
    pub(crate) command: Vec<OsString>,
    /// Where the command runs; a relative path of it counts from there
    #[arg(long, help_heading = "Command", value_name = "DIR")]
    pub(crate) chdir: Option<PathBuf>,
    /// How long the command may take to end after it was told to, before it is killed; never longer than the lease allows
    #[arg(long, help_heading = "Command", value_name = "SPAN", value_parser = span::parse, default_value = "10s")]
    pub(crate) grace: Duration,
    /// When the engine does not answer: let the command run until it must stop, or freeze it until the engine answers again
    #[arg(long, help_heading = "Command", value_enum, value_name = "WHAT", default_value_t = OnJeopardy::Run)]
    pub(crate) on_jeopardy: OnJeopardy,
    /// After the leadership was lost or given away: contend again, or exit
    #[arg(long, help_heading = "Command", value_enum, value_name = "WHAT", default_value_t = AfterLoss::Contend)]
    pub(crate) after_loss: AfterLoss,
    /// When the command has ended by itself: whether it is run again, here or wherever the seat goes
    #[arg(long, help_heading = "Command", value_enum, value_name = "WHEN", default_value_t = Restart::Never)]
    pub(crate) restart: Restart,
    /// How long to wait before contending again after the command has ended; doubles with each failure up to a minute
    #[arg(long, help_heading = "Command", value_name = "SPAN", value_parser = span::parse, default_value = "1s", requires = "restart")]
    pub(crate) back_off: Duration,
    /// Give up after so many failures of the command one after the other
    #[arg(long, help_heading = "Command", value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..), requires = "again")]
    pub(crate) give_up_after: Option<u32>,
    /// Answer health checks and questions over HTTP here too, as `incumbent sidecar` does; port 0 is any that is free
    #[arg(long, help_heading = "HTTP", value_name = "HOST:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Listen on other addresses than those of this machine, though without TLS and users anybody there can make it resign
    #[arg(long, help_heading = "HTTP", requires = "listen")]
    pub(crate) unprotected: bool,
    /// Let the kernel drop whatever the command sends after the deadline (needs root, or CAP_BPF and CAP_NET_ADMIN); refused where it cannot
    #[arg(long, help_heading = "Fencing")]
    pub(crate) network_fence: bool,
    /// A watchdog device such as /dev/watchdog, which resets the machine if the command outlives its lease
    #[arg(long, help_heading = "Fencing", value_name = "DEVICE")]
    pub(crate) watchdog: Option<PathBuf>,
    /// The timeout that the watchdog has been set to, if the kernel does not tell
    #[arg(long, help_heading = "Fencing", value_name = "SPAN", value_parser = span::parse, requires = "watchdog")]
    pub(crate) watchdog_timeout: Option<Duration>,
    /// Do it once: if somebody has done it within this time (1h unless said, as in --once=12h), exit with 0. Done is an exit code of 0
    #[arg(long, help_heading = "Schedule", value_name = "SPAN", value_parser = span::parse, num_args = 0..=1, require_equals = true, default_missing_value = "1h", conflicts_with_all = ["every", "at"])]
    pub(crate) once: Option<Duration>,
    /// Stay, and do it once in every span of time, counted from 1970 in UTC: 15m, 1h, 1d
    #[arg(long, help_heading = "Schedule", value_name = "SPAN", value_parser = span::parse, conflicts_with = "at")]
    pub(crate) every: Option<Duration>,
    /// Stay, and do it once a day at this time, or these, in UTC: 02:30, or 06:00,18:00
    #[arg(long, help_heading = "Schedule", value_name = "TIMES")]
    pub(crate) at: Option<String>,
    /// What to do about times at which no host was there to do it
    #[arg(long, help_heading = "Schedule", value_enum, value_name = "WHICH", default_value_t = CatchUp::Last, requires = "slots")]
    pub(crate) catch_up: CatchUp,
    #[command(flatten)]
    pub(crate) fence: fence::FenceArguments,
    #[command(flatten)]
    pub(crate) otlp: OtlpArguments,
}

/// What to do with the command while no renewal is acknowledged.
#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum OnJeopardy {
    /// Let it run until it must stop
    Run,
    /// Stop it where it is, go on with the same token, or kill it at the deadline
    Freeze,
}

/// What to do when the leadership has ended and the command has not.
#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum AfterLoss {
    /// Stand by, and run the command anew when elected again
    Contend,
    /// End with exit code 122
    Exit,
}

/// Which of the times that were missed are made up for.
#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum CatchUp {
    /// The last one, once, as soon as a host is there; not if the job has never been done
    Last,
    /// None
    None,
}

/// When a command that has ended is run again.
#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Restart {
    /// Exit with its code
    Never,
    /// Only if its code is not 0
    OnFailure,
    /// Whatever its code
    Always,
}

/// Runs the command while leading.
pub(crate) fn run(wanted: &RunArguments) -> Result<Exit, Failure> {
    crate::elections::log::begin(wanted.candidacy.target.talk())?;
    if let Some(directory) = wanted.chdir.as_deref().filter(|it| !it.is_dir()) {
        return Err(usage(format!("{} is no directory to run in: check --chdir", directory.display())));
    }
    let (program, arguments) = wanted.command.split_first().ok_or_else(|| usage("no command".to_owned()))?;
    let program = match program::locate(program, wanted.chdir.as_deref()) {
        Ok(program) => program,
        Err(missing) => {
            say!(false, "{missing}");
            return Ok(Exit::Command(missing.code()));
        }
    };
    let command = Command {
        program,
        arguments: arguments.to_vec(),
        environment: Vec::new(),
        without: own_variables().map(OsString::from).collect(),
        directory: wanted.chdir.clone(),
    };
    contend::run(async |notify| contend(wanted, command, notify).await)
}

async fn contend(wanted: &RunArguments, command: Command, notify: &Notify) -> Result<Exit, Failure> {
    let mut signals = Signals::listen()?;
    let job = Job::wanted(wanted)?;
    // A job that is not due yet is not waited for.
    let began = (!matches!(job, Some(Job::Slots { .. }))).then(tokio::time::Instant::now);
    let target = find_target(&wanted.candidacy)?;
    let instance = target.identity.clone().unwrap_or_else(Identity::unique);
    let traces = wanted.otlp.start(instance.as_str().to_owned(), Vec::new())?;
    let mut office = Office::of(&wanted.candidacy.election, Stops::AreSeen);
    if let Some(address) = wanted.listen {
        let address = office.open_port(address, wanted.unprotected)?;
        say!(wanted.candidacy.quiet, "answers on {address}");
    }
    let directory = state_directory(&wanted.candidacy, &target)?;
    let _identity = claim_identity(&directory, &wanted.candidacy, &target)?;
    let machine = Machine::open(&directory, &wanted.candidacy, &target)?;
    tokio::select! {
        // What hangs in the kernel cannot be killed. Whoever is started next goes on with it: nothing was claimed yet.
        told = signals.told() => return Ok(told.exit()),
        ended = machine.end_what_was_left_behind() => ended?,
    }
    let fencing = tokio::select! {
        told = signals.told() => return Ok(told.exit()),
        fencing = fence::Fencing::open(&wanted.fence, &target) => fencing?,
    };
    let patience = began.map_or(Patience::Endless, |it| Patience::of(&wanted.candidacy, it));
    // What is frozen does not drain, so it may wait for the engine until it must be killed.
    let drain = (wanted.on_jeopardy == OnJeopardy::Freeze).then_some(Duration::ZERO);
    let here = Here::at(&machine.berth).map_err(at_the_berth)?;
    // Others must look first: at those who led before, or at when the job was done last.
    let note = (!fencing.is_wanted() && job.is_none()).then(|| here.clone());
    let finish = |it: Builder| {
        let it = it.metrics(Arc::clone(office.metrics()));
        let it = match note.clone() {
            Some(here) => it.note(move |identity| here.guarded(identity).to_string()),
            None => it,
        };
        match drain {
            Some(drain) => it.drain(drain),
            None => it,
        }
    };
    let election = match build(&wanted.candidacy, &target, finish, patience, &mut signals).await? {
        Ok(election) => election,
        Err(why) => return Ok(unserved(why)),
    };
    office.introduce(&election);
    let watchdog = watchdog(wanted, election.timing())?;
    let guarded = begin_guarding(wanted, &machine.berth, watchdog.clone()).await?;
    if let Err(why) = guarded.cgroup() {
        tracing::info!(%why, "the command's processes are held together by descent alone");
    }
    office.open_socket()?;
    let mut supervisor = Supervisor {
        terms: Terms {
            wanted,
            command: &command,
            election: &election,
            machine: &machine,
            here,
            office: &office,
            fencing: &fencing,
            diary: Diary::new(traces.clone(), &wanted.candidacy.election),
            task: None,
            is_missed: false,
        },
        watchdog,
        guarded,
        job,
        failures: 0,
        tried: None,
        unfinished: None,
    };
    let exit = contend::contend(&wanted.candidacy, &election, began, notify, &mut signals, &mut supervisor).await;
    drop(supervisor);
    office.close().await;
    contend::leave_the_line(election, &mut signals).await;
    traces.close();
    exit
}

/// What outlasts a term.
struct Supervisor<'a> {
    terms: Terms<'a>,
    watchdog: Option<watchdog::Settings>,
    guarded: Guarded,
    job: Option<Job>,
    /// Of the command, one after the other.
    failures: u32,
    /// The slot that this host need not try again.
    tried: Option<Slot>,
    /// What was begun and has not ended well.
    unfinished: Option<Task>,
}

impl Service for Supervisor<'_> {
    async fn want(&mut self, signals: &mut Signals) -> Result<(), Exit> {
        let terms = &mut self.terms;
        terms.task = match (&self.job, self.unfinished.take()) {
            (Some(_), Some(task)) => Some(task),
            (Some(job), None) => {
                let task = job.next(terms.election, signals, self.tried, terms.wanted.candidacy.quiet).await;
                Some(task.map_err(Told::exit)?)
            }
            (None, _) => None,
        };
        terms.diary.stand_by();
        Ok(())
    }

    async fn serve(&mut self, leadership: Leadership, signals: &mut Signals) -> Result<Next, Failure> {
        if !self.guarded.is_usable() {
            self.guarded = begin_guarding(self.terms.wanted, &self.terms.machine.berth, self.watchdog.clone()).await?;
        }
        if let (Some(job), Some(task)) = (&self.job, self.terms.task) {
            let still = job.still(task, job::wall_secs());
            self.terms.is_missed = still.is_none();
            self.terms.task = still.or(Some(task));
        }
        let started = tokio::time::Instant::now();
        self.terms.diary.enter(&leadership);
        let served = self.terms.serve(leadership, &mut self.guarded, signals).await;
        self.terms.diary.leave(served.as_ref().ok().copied());
        let served = served?;
        if started.elapsed() >= RAN_WELL {
            self.failures = 0;
        }
        Ok(self.after(served))
    }

    fn unserved(&self, why: Unserved) -> Exit {
        unserved(why)
    }
}

fn unserved(why: Unserved) -> Exit {
    match why {
        Unserved::Told(told) => told.exit(),
        Unserved::NotInTime => Exit::RunNotElected,
    }
}

impl Supervisor<'_> {
    /// Whether the command is to be run again, and when.
    fn after(&mut self, served: Served) -> Next {
        let (wanted, task) = (self.terms.wanted, self.terms.task);
        let waits_for_more = matches!(self.job, Some(Job::Slots { .. }));
        let ended = match served {
            Served::AlreadyDone | Served::Missed if waits_for_more => return Next::CONTEND,
            Served::AlreadyDone | Served::Missed => return Next::End(Exit::Command(0)),
            Served::Ended(Ending::Code(0)) if waits_for_more => {
                (self.failures, self.tried) = (0, task.and_then(Task::slot));
                return Next::CONTEND;
            }
            Served::Told(told, ending) => return Next::End(ending.map_or(told.exit(), exit_of)),
            Served::Lost | Served::GivenAway if wanted.after_loss == AfterLoss::Exit => return Next::End(Exit::RunLost),
            Served::Lost => {
                self.unfinished = task;
                return Next::CONTEND;
            }
            Served::GivenAway => {
                self.unfinished = task;
                let rest = self.terms.election.timing().rest();
                say!(wanted.candidacy.quiet, "leaves the seat to others for {}", span::measured(rest));
                return Next::ContendAfter(rest);
            }
            Served::NotFenced => return Next::End(Exit::RunNotFenced),
            Served::NotStarted => Exit::RunFailed,
            Served::Ended(ending) => exit_of(ending),
        };
        let again = match wanted.restart {
            Restart::Never => false,
            Restart::OnFailure => ended != Exit::Command(0),
            Restart::Always => true,
        };
        self.failures = if ended == Exit::Command(0) { 0 } else { self.failures + 1 };
        if wanted.give_up_after.is_some_and(|most| self.failures >= most) {
            return Next::End(ended);
        }
        if !again && waits_for_more {
            say!(false, "the command has failed; it is left to the other hosts, and to the next time");
            self.tried = task.and_then(Task::slot);
            return Next::CONTEND;
        }
        if !again {
            return Next::End(ended);
        }
        self.unfinished = task;
        let wait = self.back_off();
        say!(wanted.candidacy.quiet, "contends again in {}", span::measured(wait));
        Next::ContendAfter(wait)
    }

    fn back_off(&self) -> Duration {
        let first = self.terms.wanted.back_off;
        first.saturating_mul(1 << self.failures.saturating_sub(1).min(6)).min(BACK_OFF_MAX).max(first)
    }
}

async fn begin_guarding(wanted: &RunArguments, berth: &Berth, watchdog: Option<watchdog::Settings>) -> Result<Guarded, Failure> {
    let (stdin, nothing) = (std::io::stdin(), std::fs::File::open("/dev/null"));
    // It is in the background there: to read would stop it for good.
    let stdin = match &nothing {
        Ok(nothing) if stdin.is_terminal() => nothing.as_fd(),
        Ok(_) | Err(_) => stdin.as_fd(),
    };
    let setup = Setup {
        program: Path::new("/proc/self/exe"),
        stdin,
        berth: Some(berth.file()),
        network_fence: wanted.network_fence,
        watchdog,
    };
    Guarded::begin(&setup).await.map_err(|why| Failure::Io {
        what: format!("cannot guard the command: {why}"),
        hint: if wanted.network_fence {
            "run it as root on Linux 5.8 or newer with control groups v2, or without --network-fence"
        } else {
            "raise the limits on processes and open files, and see that /proc is mounted"
        },
    })
}

/// The watchdog that was asked for, if it fits the lease.
fn watchdog(wanted: &RunArguments, timing: &Timing) -> Result<Option<watchdog::Settings>, Failure> {
    let Some(device) = &wanted.watchdog else { return Ok(None) };
    let settings = match wanted.watchdog_timeout {
        Some(timeout) => Ok(watchdog::Settings { device: device.clone(), timeout }),
        None => watchdog::Settings::of(device),
    };
    let settings = settings.map_err(|why| usage(format!("--watchdog: {why}")))?;
    settings.fits(timing).map_err(|why| usage(format!("--watchdog: {why}")))?;
    Ok(Some(settings))
}

/// As shells have it.
fn exit_of(ending: Ending) -> Exit {
    match ending {
        Ending::Code(code) => Exit::Command(u8::try_from(code).unwrap_or(u8::MAX)),
        Ending::Signal(signal) => Exit::Command(u8::try_from(128 + signal).unwrap_or(u8::MAX)),
    }
}
