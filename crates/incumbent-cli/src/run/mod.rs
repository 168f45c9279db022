//! `incumbent run`: a command that runs while this process leads, and is dead before anybody else may.
//!
//! One leadership after another is contended for; [`term`] serves one. What happens between two of them is decided here: whether the command is to be run again, and when.

mod fence;
mod fence_agent;
mod notify;
mod office;
mod program;
pub(crate) mod record;
mod signals;
mod term;

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use clap::ValueEnum;
use incumbent::engine::Kind;
use incumbent::engines::file::{Files, usual_directory};
use incumbent::{Election, Leadership, Preemption, Timing};
use incumbent_supervisor::berth::Berth;
use incumbent_supervisor::{Command, Ending, Guarded, Setup, watchdog};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use self::notify::Notify;
use self::signals::{Signals, Told};
use self::term::{Served, Terms};
use crate::elections::span;
use crate::elections::target::{Target, TargetArguments};
use crate::exit::Exit;
use crate::failure::Failure;

pub(crate) const EXAMPLES: &str = "\
Examples:
  incumbent run nightly -- ./report.sh                                on this machine: no server, no configuration
  incumbent run worker --on etcd://10.0.0.1:2379/prod -- ./worker     on one of several hosts
  incumbent run worker --restart on-failure -- ./worker --queue mail  and again when it fails, here or elsewhere
  incumbent run db --on-jeopardy freeze --ttl 10s -- ./writer         a blip of the engine costs no restart
  incumbent run db --fence agent:virsh --fence-options f -- ./writer  a host that falls silent is turned off first

The command sees INCUMBENT_ELECTION, INCUMBENT_TOKEN, INCUMBENT_IDENTITY and INCUMBENT_SOCKET.";

/// An engine that is not there at the start is asked again this often at most.
const ENGINE_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Whoever ran this long has not failed at the start.
const RAN_WELL: Duration = Duration::from_secs(60);

#[derive(clap::Args, Debug)]
pub(crate) struct RunArguments {
    /// The name of the election
    pub(crate) election: String,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    /// Where the command runs; a relative path of it counts from there
    #[arg(long, value_name = "DIR")]
    pub(crate) chdir: Option<PathBuf>,
    /// How long the command may take to end after it was told to, before it is killed; never longer than the lease allows
    #[arg(long, value_name = "SPAN", value_parser = span::parse, default_value = "10s")]
    pub(crate) grace: Duration,
    /// When the engine does not answer: let the command run until it must stop, or freeze it until the engine answers again
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = OnJeopardy::Run)]
    pub(crate) on_jeopardy: OnJeopardy,
    /// After the leadership was lost or given away: contend again, or exit
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = AfterLoss::Contend)]
    pub(crate) after_loss: AfterLoss,
    /// When the command has ended by itself: whether it is run again, here or wherever the seat goes
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Restart::Never)]
    pub(crate) restart: Restart,
    /// How long to wait before contending again after the command has ended; doubles with each failure up to a minute
    #[arg(long, value_name = "SPAN", value_parser = span::parse, default_value = "1s")]
    pub(crate) back_off: Duration,
    /// Give up after so many failures of the command one after the other
    #[arg(long, value_name = "COUNT")]
    pub(crate) give_up_after: Option<u32>,
    /// Give up if not elected within this time
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    pub(crate) max_wait: Option<Duration>,
    /// How fit this host is; a leader of smaller priority is asked to hand over
    #[arg(long, value_name = "NUMBER", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) priority: i32,
    /// How long a leader of smaller priority keeps its seat at least
    #[arg(long, value_name = "SPAN", value_parser = span::parse, default_value = "30s")]
    pub(crate) min_tenure: Duration,
    /// A shell command that says by exit code 0 that this host is fit; otherwise it does not contend, and resigns
    #[arg(long, value_name = "COMMAND")]
    pub(crate) health: Option<String>,
    /// How often --health is asked
    #[arg(long, value_name = "SPAN", value_parser = span::parse, default_value = "5s")]
    pub(crate) health_every: Duration,
    /// A shell command to run when elected, before the command is started; if it fails, the seat is given back
    #[arg(long, value_name = "COMMAND")]
    pub(crate) on_elected: Option<String>,
    /// A shell command to run after the command has died, before the seat is given back
    #[arg(long, value_name = "COMMAND")]
    pub(crate) on_lost: Option<String>,
    /// What this process publishes while it leads: an address, for example
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) value: String,
    /// Let the kernel drop whatever the command sends after the deadline (needs root, or CAP_BPF and CAP_NET_ADMIN); refused where it cannot
    #[arg(long)]
    pub(crate) network_fence: bool,
    /// A watchdog device such as /dev/watchdog, which resets the machine if the command outlives its lease
    #[arg(long, value_name = "DEVICE")]
    pub(crate) watchdog: Option<PathBuf>,
    /// The timeout that the watchdog has been set to, if the kernel does not tell
    #[arg(long, value_name = "SPAN", value_parser = span::parse, requires = "watchdog")]
    pub(crate) watchdog_timeout: Option<Duration>,
    /// Where locks of this machine are kept; else /var/lib/incumbent for root, and incumbent in the XDG state folder for others
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Say nothing but errors
    #[arg(long, short)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) fence: fence::FenceArguments,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// What to do with the command while no renewal is acknowledged.
#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum OnJeopardy {
    /// Let it run until it must stop
    Run,
    /// Stop it where it is, go on with the same token, or kill it at the deadline
    Freeze,
}

/// What to do when the leadership has ended and the command has not.
#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum AfterLoss {
    /// Stand by, and run the command anew when elected again
    Contend,
    /// End with exit code 122
    Exit,
}

/// When a command that has ended is run again.
#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Restart {
    /// Exit with its code
    Never,
    /// Only if its code is not 0
    OnFailure,
    /// Whatever its code
    Always,
}

/// Says something to the person, unless it is not wanted.
macro_rules! say {
    ($quiet:expr, $($what:tt)*) => {
        if !$quiet {
            // The terminal may be gone; the work goes on.
            let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("incumbent: {}\n", format_args!($($what)*)));
        }
    };
}
pub(crate) use say;

/// Runs the command while leading.
pub(crate) fn run(wanted: &RunArguments) -> Result<Exit, Failure> {
    crate::elections::log::begin(wanted.target.talk())?;
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
        without: notify::VARIABLES.map(OsString::from).to_vec(),
        directory: wanted.chdir.clone(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|wrong| Failure::Io {
        what: format!("cannot start: {wrong}"),
        hint: "raise the limit of open files, or close some",
    })?;
    let notify = Notify::from_environment();
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = contend(wanted, command, &notify) => ended,
            () = notify.keep_alive() => unreachable!("it never returns"),
        }
    });
    notify.stopping();
    // What waits for a file or a child in a thread must not keep the process.
    runtime.shutdown_background();
    ended
}

async fn contend(wanted: &RunArguments, command: Command, notify: &Notify) -> Result<Exit, Failure> {
    let mut signals = Signals::listen()?;
    let target = Target::find(&wanted.target)?;
    let directory = state_directory(wanted, &target)?;
    let _identity = claim_identity(&directory, wanted, &target)?;
    let berth = open_berth(&directory, wanted, &target)?;
    let fencing = tokio::select! {
        told = signals.told() => return Ok(told.exit()),
        fencing = fence::Fencing::open(&wanted.fence) => fencing?,
    };
    let Some(election) = build(wanted, &target, &mut signals).await? else { return Ok(Exit::Interrupted) };
    let watchdog = watchdog(wanted, election.timing())?;
    let mut guarded = begin_guarding(wanted, &berth, watchdog.clone()).await?;
    if let Err(why) = guarded.cgroup() {
        tracing::info!(%why, "the command's processes are held together by descent alone");
    }
    let office = office::Office::open(&election)?;
    let mut failures = 0;
    let began = tokio::time::Instant::now();
    let mut was_elected = false;
    notify.ready();
    let exit = loop {
        say!(wanted.quiet, "standing by for {}", wanted.election);
        notify.status("standing by");
        let patience = wanted.max_wait.filter(|_| !was_elected).map(|it| it.saturating_sub(began.elapsed()));
        let leadership = match elected(&election, patience, &mut signals).await? {
            Elected::Now(leadership) => leadership,
            Elected::NotInTime => {
                say!(false, "not elected within {:?}", wanted.max_wait.unwrap_or_default());
                break Exit::RunNotElected;
            }
            Elected::Told(told) => break told.exit(),
        };
        was_elected = true;
        notify.status(&format!("leads with token {}", leadership.token()));
        if !guarded.is_usable() {
            guarded = begin_guarding(wanted, &berth, watchdog.clone()).await?;
        }
        let started = tokio::time::Instant::now();
        let terms = Terms { wanted, command: &command, election: &election, berth: &berth, office: &office, fencing: &fencing };
        let served = terms.serve(leadership, &mut guarded, &mut signals).await?;
        if started.elapsed() >= RAN_WELL {
            failures = 0;
        }
        let failed = match served {
            Served::Told(told, ending) => break ending.map_or(told.exit(), exit_of),
            Served::Lost if wanted.after_loss == AfterLoss::Exit => break Exit::RunLost,
            Served::Lost => continue,
            Served::NotFenced => break Exit::RunNotFenced,
            Served::NotStarted => Exit::RunFailed,
            Served::Ended(ending) => exit_of(ending),
        };
        let again = match wanted.restart {
            Restart::Never => false,
            Restart::OnFailure => failed != Exit::Command(0),
            Restart::Always => true,
        };
        failures = if failed == Exit::Command(0) { 0 } else { failures + 1 };
        if !again || wanted.give_up_after.is_some_and(|most| failures >= most) {
            break failed;
        }
        let wait = wanted
            .back_off
            .saturating_mul(1 << failures.saturating_sub(1).min(6))
            .min(Duration::from_secs(60))
            .max(wanted.back_off);
        say!(wanted.quiet, "contends again in {}", span::measured(wait));
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            told = signals.told() => break told.exit(),
        }
    };
    drop(guarded);
    // A place in the line that nobody serves would hold up the others until its time has passed.
    let _ = tokio::time::timeout(election.timing().request_timeout() * 4, election.close()).await;
    Ok(exit)
}

enum Elected {
    Now(Leadership),
    NotInTime,
    Told(Told),
}

async fn elected(election: &Election, patience: Option<Duration>, signals: &mut Signals) -> Result<Elected, Failure> {
    let mut campaign = pin!(election.campaign());
    let mut patience = pin!(async move {
        match patience {
            Some(patience) => tokio::time::sleep(patience).await,
            None => std::future::pending().await,
        }
    });
    tokio::select! {
        biased;
        told = signals.told() => Ok(Elected::Told(told)),
        elected = &mut campaign => match elected {
            Ok(leadership) => Ok(Elected::Now(leadership)),
            Err(why) => Err(Failure::asking(&why)),
        },
        () = &mut patience => Ok(Elected::NotInTime),
    }
}

/// Connects; an engine that is not there yet is waited for, because hosts come up in any order. `None` if told to stop meanwhile.
async fn build(wanted: &RunArguments, target: &Target, signals: &mut Signals) -> Result<Option<Election>, Failure> {
    let mut said = false;
    let mut wait = Duration::from_millis(100);
    loop {
        let built = tokio::select! {
            _ = signals.told() => return Ok(None),
            built = builder(wanted, target)?.build() => built,
        };
        match built {
            Ok(election) => return Ok(Some(election)),
            Err(why) if why.kind() == Kind::Misconfigured => return Err(Failure::setting(&why)),
            Err(why) if !said => {
                say!(false, "{why}; goes on trying");
                said = true;
            }
            Err(_) => {}
        }
        tokio::select! {
            _ = signals.told() => return Ok(None),
            () = tokio::time::sleep(wait) => wait = (wait * 2).min(ENGINE_AGAIN_AFTER),
        }
    }
}

fn builder(wanted: &RunArguments, target: &Target) -> Result<incumbent::election::Builder, Failure> {
    let mut builder = target.builder(&wanted.election)?.value(wanted.value.clone()).priority(wanted.priority);
    if wanted.priority != 0 {
        builder = builder.preempt(Preemption { margin: 1, min_tenure: wanted.min_tenure });
    }
    if let Some(health) = wanted.health.clone() {
        builder = builder.health(wanted.health_every, move || {
            let health = health.clone();
            async move { program::shell(&health, &[], None).await }
        });
    }
    Ok(builder)
}

async fn begin_guarding(wanted: &RunArguments, berth: &Berth, watchdog: Option<watchdog::Settings>) -> Result<Guarded, Failure> {
    let stdin = std::io::stdin();
    let setup = Setup {
        program: Path::new("/proc/self/exe"),
        stdin: stdin.as_fd(),
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
    settings.fits(timing.validity(timing.ttl()), timing.request_timeout()).map_err(|why| usage(format!("--watchdog: {why}")))?;
    Ok(Some(settings))
}

/// Where the locks of this machine are: with the elections, if those are files; so that whoever shares them shares the locks.
fn state_directory(wanted: &RunArguments, target: &Target) -> Result<PathBuf, Failure> {
    let place = target.place()?;
    let directory = match (&wanted.state_dir, place.scheme()) {
        (_, "file") => Files::directory_of(&place),
        (Some(directory), _) => Ok(directory.clone()),
        (None, _) => usual_directory().map(|it| it.join("run")),
    };
    let directory = directory.map_err(|why| Failure::setting(&why))?;
    std::fs::create_dir_all(&directory).map_err(|why| unwritable(&directory, &why))?;
    Ok(directory)
}

/// Letters that a file's name may have anywhere.
const ODD: &AsciiSet = &CONTROLS.add(b'/').add(b'%').add(b' ').add(b'?').add(b'#').add(b':').add(b'\\');

/// A file of this election in the directory: elections of the same name elsewhere have others.
fn file_of(directory: &Path, wanted: &RunArguments, target: &Target, what: &str) -> Result<PathBuf, Failure> {
    let place = target.place()?;
    let name = match place.scheme() {
        "file" => format!("{}.{what}", wanted.election),
        _ => format!("{place} {}.{what}", wanted.election),
    };
    Ok(directory.join(utf8_percent_encode(&name, ODD).to_string()))
}

fn open_berth(directory: &Path, wanted: &RunArguments, target: &Target) -> Result<Berth, Failure> {
    let path = file_of(directory, wanted, target, "berth")?;
    Berth::at(&path).map_err(|why| unwritable(&path, &why))
}

/// Two supervisors of one name on this machine would be one to whoever hands over to that name. Unnamed ones have names of their own.
fn claim_identity(directory: &Path, wanted: &RunArguments, target: &Target) -> Result<Option<Berth>, Failure> {
    let Some(identity) = &target.identity else { return Ok(None) };
    let path = file_of(directory, wanted, target, &format!("{}.identity", identity.name()))?;
    let lock = Berth::at(&path).map_err(|why| unwritable(&path, &why))?;
    match lock.try_take() {
        Ok(true) => Ok(Some(lock)),
        Ok(false) => Err(usage(format!(
            "another process contends for {} as {identity} on this machine: give each an --identity of its own, or none",
            wanted.election
        ))),
        Err(why) => Err(unwritable(&path, &why)),
    }
}

fn unwritable(path: &Path, why: &std::io::Error) -> Failure {
    Failure::Io {
        what: format!("cannot write to {}: {why}", path.display()),
        hint: "name a directory of this user's with --state-dir, or with the URL if the engine is file:",
    }
}

fn usage(what: String) -> Failure {
    Failure::Engine { what, exit: Exit::Usage }
}

/// As shells have it.
fn exit_of(ending: Ending) -> Exit {
    match ending {
        Ending::Code(code) => Exit::Command(u8::try_from(code).unwrap_or(u8::MAX)),
        Ending::Signal(signal) => Exit::Command(u8::try_from(128 + signal).unwrap_or(u8::MAX)),
    }
}
