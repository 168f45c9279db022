//! What `incumbent run` and `incumbent sidecar` have in common: the terms on which they contend, connecting, being elected, and what keeps two of one name on one machine apart.
//!
//! What is done with a leadership is theirs.

pub(crate) mod contend;
pub(crate) mod hook;
pub(crate) mod machine;
pub(crate) mod notify;
pub(crate) mod promise;
pub(crate) mod signals;

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use incumbent::election::Builder;
use incumbent::engine::Kind;
use incumbent::engines::file::{Files, usual_directory};
use incumbent::{Election, Leadership, Name, Preemption, Token};
use incumbent_protocol::time::Instant;
use incumbent_supervisor::berth::Berth;
use incumbent_supervisor::clock;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use self::contend::Unserved;
use self::signals::Signals;
use crate::anew;
use crate::elections::span;
use crate::elections::target::{ANSWER_MAX, Target, TargetArguments, answer};
use crate::exit::Exit;
use crate::failure::Failure;

/// An engine that is not there at the start is asked again this often at most.
const ENGINE_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// How a process contends for an election.
#[derive(clap::Args, Debug, Serialize, Deserialize)]
pub(crate) struct CandidacyArguments {
    /// The name of the election
    #[arg(value_parser = election_name)]
    pub(crate) election: String,
    /// Give up if not elected within this time; a job's time begins when it is due. With 0s the seat is tried once: taken if it is free now, and else not waited for
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    pub(crate) max_wait: Option<Duration>,
    /// How fit this host is; a leader of smaller priority is asked to hand over
    #[arg(long, value_name = "NUMBER", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) priority: i32,
    /// How long a leader of smaller priority keeps its seat at least
    #[arg(long, value_name = "SPAN", value_parser = span::parse, default_value = "30s")]
    pub(crate) min_tenure: Duration,
    /// A shell command that says by exit code 0 that this host is fit; otherwise it does not contend, and resigns
    #[arg(long, value_name = "COMMAND", value_parser = shell_line)]
    pub(crate) health: Option<String>,
    /// How often --health is asked
    #[arg(long, value_name = "SPAN", value_parser = probing_span, default_value = "5s", requires = "health")]
    pub(crate) health_every: Duration,
    /// A shell command to run when elected, before the work begins; if it fails, the seat is given back
    #[arg(long, value_name = "COMMAND", value_parser = shell_line)]
    pub(crate) on_elected: Option<String>,
    /// A shell command to run after the work has ended, before the seat is given back
    #[arg(long, value_name = "COMMAND", value_parser = shell_line)]
    pub(crate) on_lost: Option<String>,
    /// What this process publishes while it leads: an address, for example
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) value: String,
    /// Where locks of this machine are kept, unless elections are files, which have them beside them; else /var/lib/incumbent/run for root, and incumbent/run in the XDG state folder for others
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Say nothing but errors
    #[arg(long, short)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// A command that says nothing succeeds: a host whose `--health "$CHECK"` is empty would always be fit.
fn shell_line(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("there is no command in it: a variable may be empty".to_owned());
    }
    Ok(text.to_owned())
}

/// What stands in the environment for this process, and for none that it starts.
pub(crate) fn own_variables() -> impl Iterator<Item = &'static str> {
    notify::VARIABLES.into_iter().chain([anew::VARIABLE])
}

/// A name that no engine takes must not leave locks behind.
fn election_name(text: &str) -> Result<String, incumbent::Error> {
    Name::new(text).map(|it| it.as_str().to_owned())
}

/// A shell that is started more often than this is work of its own.
const HEALTH_EVERY_MIN: Duration = Duration::from_millis(10);

fn probing_span(text: &str) -> Result<Duration, String> {
    match span::parse(text)? {
        span if span < HEALTH_EVERY_MIN => Err(format!("that is too often: ask every {HEALTH_EVERY_MIN:?} at most")),
        span => Ok(span),
    }
}

/// The engine, if it can be shared with anybody: whoever contends in its own memory is alone, and its leases are on a clock that only it can read.
pub(crate) fn find_target(wanted: &CandidacyArguments) -> Result<Target, Failure> {
    let target = Target::find(&wanted.target)?;
    match target.place()?.scheme() {
        "memory" => Err(usage(
            "memory: is for tests inside of one process, and no other could contend there: leave --on away for elections in files of this machine, or name a server, as in --on etcd://HOST:2379/prod".to_owned(),
        )),
        // Before anything is made or opened for it.
        scheme => incumbent::engines::promised(scheme).map(|_| target).map_err(|why| Failure::setting(&why)),
    }
}

/// Says something to the person, unless it is not wanted.
macro_rules! say {
    ($quiet:expr, $($what:tt)*) => {
        if !$quiet {
            $crate::voice::say(format_args!($($what)*));
        }
    };
}
pub(crate) use say;

/// What came of waiting for the seat.
enum Elected {
    Now(Leadership),
    Not(Unserved),
}

/// How long the first leadership is waited for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    /// As long as it takes.
    Endless,
    /// Until then.
    Until(tokio::time::Instant),
    /// Not at all: the engine is asked once, and its answer counts. How long it has to answer is the engine's affair, or a seat that is free would be a matter of luck.
    OneTry,
}

impl Patience {
    /// What `--max-wait` means, for a wait that has `began`.
    pub(crate) fn of(wanted: &CandidacyArguments, began: tokio::time::Instant) -> Patience {
        match wanted.max_wait {
            None => Patience::Endless,
            Some(Duration::ZERO) => Patience::OneTry,
            // What no clock reaches is endless.
            Some(most) => began.checked_add(most).map_or(Patience::Endless, Patience::Until),
        }
    }

    /// Comes when it has run out: never, if it is endless, or for whoever gives up by itself.
    async fn has_run_out(self) {
        match self {
            Patience::Until(end) => tokio::time::sleep_until(end).await,
            Patience::Endless | Patience::OneTry => std::future::pending().await,
        }
    }
}

/// Contends until elected, told to stop, or out of patience.
async fn elected(
    wanted: &CandidacyArguments,
    election: &Election,
    patience: Patience,
    signals: &mut Signals,
) -> Result<Elected, Failure> {
    let mut campaign = pin!(async {
        match patience {
            Patience::Endless | Patience::Until(_) => election.campaign().await.map(Some),
            Patience::OneTry => try_once(wanted, election).await,
        }
    });
    tokio::select! {
        biased;
        told = signals.told() => Ok(Elected::Not(Unserved::Told(told))),
        elected = &mut campaign => match elected {
            Ok(Some(leadership)) => Ok(Elected::Now(leadership)),
            Ok(None) => Ok(Elected::Not(Unserved::NotInTime)),
            Err(why) => Err(Failure::asking(&why)),
        },
        () = patience.has_run_out() => Ok(Elected::Not(Unserved::NotInTime)),
    }
}

/// The seat if it is free. Whoever cannot say so has not given it.
async fn try_once(wanted: &CandidacyArguments, election: &Election) -> Result<Option<Leadership>, incumbent::Error> {
    // A probe is asked first.
    let probing = wanted.health.as_ref().map_or(Duration::ZERO, |_| hook::SHELL_WITHIN);
    match tokio::time::timeout(ANSWER_MAX + probing, election.try_campaign()).await {
        Ok(Err(why)) if why.kind() != Kind::Misconfigured => {
            say!(false, "{why}");
            Ok(None)
        }
        Ok(answered) => answered,
        Err(_) => Ok(None),
    }
}

/// Connects; an engine that is not there yet is waited for, because hosts come up in any order: until told to stop, or out of patience. `finish` adds what the two do not have in common.
pub(crate) async fn build(
    wanted: &CandidacyArguments,
    target: &Target,
    finish: impl Fn(Builder) -> Builder,
    patience: Patience,
    signals: &mut Signals,
) -> Result<Result<Election, Unserved>, Failure> {
    let built = tokio::select! {
        biased;
        told = signals.told() => return Ok(Err(Unserved::Told(told))),
        built = keep_building(wanted, target, finish, patience) => built?,
        () = patience.has_run_out() => None,
    };
    Ok(built.ok_or_else(|| {
        say_not_in_time(wanted);
        Unserved::NotInTime
    }))
}

fn say_not_in_time(wanted: &CandidacyArguments) {
    match wanted.max_wait.unwrap_or_default() {
        Duration::ZERO => say!(false, "not elected: the seat was tried once, and not waited for (--max-wait 0s)"),
        most => say!(false, "not elected within {most:?}"),
    }
}

async fn keep_building(
    wanted: &CandidacyArguments,
    target: &Target,
    finish: impl Fn(Builder) -> Builder,
    patience: Patience,
) -> Result<Option<Election>, Failure> {
    let mut said = false;
    let mut wait = Duration::from_millis(100);
    loop {
        let building = finish(builder(wanted, target)?).build();
        let built = if patience == Patience::OneTry { answer(building).await } else { building.await };
        match built {
            Ok(election) => return Ok(Some(election)),
            Err(why) if why.kind() == Kind::Misconfigured => return Err(Failure::setting(&why)),
            Err(why) if patience == Patience::OneTry => {
                say!(false, "{why}");
                return Ok(None);
            }
            Err(why) if !said => {
                say!(false, "{why}; goes on trying");
                said = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(ENGINE_AGAIN_AFTER);
    }
}

fn builder(wanted: &CandidacyArguments, target: &Target) -> Result<Builder, Failure> {
    let mut builder =
        target.for_work_elsewhere()?.builder(&wanted.election)?.value(wanted.value.clone()).priority(wanted.priority);
    if wanted.priority != 0 {
        builder = builder.preempt(Preemption { margin: 1, min_tenure: wanted.min_tenure });
    }
    if let Some(health) = wanted.health.clone() {
        builder = builder.health(wanted.health_every, move || {
            let health = health.clone();
            async move { hook::probe(&health).await }
        });
    }
    Ok(builder)
}

/// A record that could not be written is tried again after this.
pub(crate) const SAY_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Puts on record that somebody acts for this leadership, before anybody does: for the next leader, which may fence. Gives up on an engine that takes renewals and no notes, when a ttl has passed
/// or it says that it never will: nobody who does not fence goes without a leader for that.
pub(crate) async fn note_in_time(election: &Election, token: Token, note: &str) {
    let give_up = tokio::time::Instant::now() + election.timing().ttl();
    loop {
        let Err(why) = answer(election.annotate(token, note)).await else { return };
        if why.kind() == Kind::Misconfigured || tokio::time::Instant::now() >= give_up {
            say!(false, "goes on though it is not on record, and whoever leads next with --fence may not know of it: {why}");
            return;
        }
        tracing::info!(%why, note, "not on record yet");
        tokio::time::sleep(SAY_AGAIN_AFTER).await;
    }
}

/// What is said of a seat that the lease itself frees.
pub(crate) const NOT_GIVEN_BACK: &str = "the seat is not given back, it is free when the lease has ended";

/// What is said of a hook that would take down what another has put up.
pub(crate) const NOT_RUN_BESIDE_ANOTHER: &str = "--on-lost is not run: another acts as leader on this machine by now";

/// Leaves a seat without giving it back, and waits until its lease has ended. Until then somebody may act on what we have said: contending again, or an exit
/// that frees the seat, would be too early.
pub(crate) async fn outlast(leadership: Leadership) {
    let watcher = leadership.watcher();
    drop(leadership);
    loop {
        let left = watcher.deadline() - clock::now();
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left).await;
    }
}

/// Where the locks of this machine are: with the elections, if those are files; so that whoever shares them shares the locks.
pub(crate) fn state_directory(wanted: &CandidacyArguments, target: &Target) -> Result<PathBuf, Failure> {
    let place = target.place()?;
    let directory = match (&wanted.state_dir, place.scheme()) {
        (None, "file") => Files::directory_of(&place),
        // Others would contend elsewhere, or beside each other under different locks.
        (Some(directory), "file") => {
            let directory = directory.display();
            return Err(usage(format!(
                "--state-dir: elections in files have their locks beside them: name that directory with --on file:{directory}, to all who contend"
            )));
        }
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
pub(crate) fn file_of(directory: &Path, wanted: &CandidacyArguments, target: &Target, what: &str) -> Result<PathBuf, Failure> {
    let place = target.place()?;
    let name = match place.scheme() {
        "file" => format!("{}.{what}", wanted.election),
        _ => format!("{place} {}.{what}", wanted.election),
    };
    Ok(directory.join(utf8_percent_encode(&name, ODD).to_string()))
}

/// Two supervisors of one name on this machine would be one to whoever hands over to that name. Unnamed ones have names of their own.
pub(crate) fn claim_identity(directory: &Path, wanted: &CandidacyArguments, target: &Target) -> Result<Option<Berth>, Failure> {
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

pub(crate) fn unwritable(path: &Path, why: &std::io::Error) -> Failure {
    Failure::Io {
        what: format!("cannot write to {}: {why}", path.display()),
        hint: "name a directory of this user's: with --on file:DIR if elections are files, as they are without --on, and else with --state-dir",
    }
}

/// So much earlier.
pub(crate) fn before(instant: Instant, span: Duration) -> Instant {
    Instant::from_nanos(instant.as_nanos().saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
}

/// A setting is wrong, in one line.
pub(crate) fn usage(what: String) -> Failure {
    Failure::Engine { what, exit: Exit::Usage }
}
