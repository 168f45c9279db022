//! `incumbent sidecar`: contends for a program that is not its child, and tells it, health checks and whoever asks over HTTP who leads.
//!
//! It cannot see whether that program has stopped. So it gives a seat back early only if the program says so; else the lease ends by itself, after the time that the program was told.

mod badge;
mod term;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use self::badge::Badge;
use self::term::{Served, Terms};
use crate::candidacy::notify::Notify;
use crate::candidacy::promise::Promise;
use crate::candidacy::signals::Signals;
use crate::candidacy::{CandidacyArguments, Elected, build, claim_identity, elected, file_of, say, state_directory};
use crate::console::Console;
use crate::elections::span;
use crate::elections::target::Target;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::office::{Office, Stops};

pub(crate) const EXAMPLES: &str = "\
Examples:
  incumbent sidecar billing --on etcd://10.0.0.1:2379/prod
  curl -f http://127.0.0.1:8127/primary                    succeeds on the leader, and never past its deadline
  curl -N http://127.0.0.1:8127/events                     a line whenever somebody else leads, or nobody does
  curl -X POST http://127.0.0.1:8127/stopped               the program has stopped: the seat is given back at once
  incumbent sidecar vip --no-drain --on-elected 'vip up' --on-lost 'vip down'    hooks alone do the work
  incumbent sidecar billing --file /run/billing/leader.json                      for programs that read a file

Without POST /stopped, or --no-drain, the others wait until the lease has ended.";

/// Where it listens unless told otherwise.
const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8127);

/// A host on which the hook failed leaves the seat to others for so long.
const AGAIN_AFTER_FAILURE: Duration = Duration::from_secs(5);

#[derive(clap::Args, Debug)]
pub(crate) struct SidecarArguments {
    #[command(flatten)]
    pub(crate) candidacy: CandidacyArguments,
    /// Where to answer; port 0 is any that is free, and the first line printed says which
    #[arg(long, value_name = "HOST:PORT", default_value_t = LISTEN_DEFAULT)]
    pub(crate) listen: SocketAddr,
    /// Listen on other addresses than those of this machine, though without TLS and users anybody there can make it resign
    #[arg(long)]
    pub(crate) unprotected: bool,
    /// How long the program has to say POST /stopped once it is told to stop; never longer than the lease allows
    #[arg(long, value_name = "SPAN", value_parser = span::parse, default_value = "10s")]
    pub(crate) drain: Duration,
    /// Nobody will say POST /stopped: whatever was done by the leader has stopped when /primary says 503 and --on-lost has ended well
    #[arg(long, conflicts_with = "drain")]
    pub(crate) no_drain: bool,
    /// Keep a file there while leading, with the token and the deadline; no other process may use the same
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
}

/// Contends and answers until told to stop.
pub(crate) fn run(wanted: &SidecarArguments, console: &mut Console<'_>) -> Result<Exit, Failure> {
    crate::elections::log::begin(wanted.candidacy.target.talk())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|wrong| Failure::Io {
        what: format!("cannot start: {wrong}"),
        hint: "raise the limit of open files, or close some",
    })?;
    let notify = Notify::from_environment();
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = contend(wanted, &notify, console) => ended,
            () = notify.keep_alive() => unreachable!("it never returns"),
        }
    });
    notify.stopping();
    // What waits for a file or a child in a thread must not keep the process.
    runtime.shutdown_background();
    ended
}

async fn contend(wanted: &SidecarArguments, notify: &Notify, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let mut signals = Signals::listen()?;
    let target = Target::find(&wanted.candidacy.target)?;
    let _identity = match &target.identity {
        Some(_) => claim_identity(&state_directory(&wanted.candidacy, &target)?, &wanted.candidacy, &target)?,
        None => None,
    };
    let promise = promises(wanted, &target)?;
    let badge = wanted.file.clone().map(Badge::at).transpose()?;
    let mut office = Office::of(&wanted.candidacy.election, Stops::AreSaid);
    let address = office.open_port(wanted.listen, wanted.unprotected)?;
    writeln!(console.out, "listening on {address} for {}", wanted.candidacy.election)?;
    console.out.flush()?;
    let built = build(&wanted.candidacy, &target, office.metrics(), &mut signals).await?;
    let Some(election) = built else { return Ok(Exit::Done) };
    office.introduce(&election);
    let terms = Terms { wanted, election: &election, office: &office, promise: promise.as_ref(), badge: badge.as_ref() };
    let began = tokio::time::Instant::now();
    let mut was_elected = false;
    notify.ready();
    let exit = loop {
        say!(wanted.candidacy.quiet, "standing by for {}", wanted.candidacy.election);
        notify.status("standing by");
        let patience = wanted.candidacy.max_wait.filter(|_| !was_elected).map(|it| it.saturating_sub(began.elapsed()));
        let leadership = match elected(&election, patience, &mut signals).await? {
            Elected::Now(leadership) => leadership,
            Elected::NotInTime => {
                say!(false, "not elected within {:?}", wanted.candidacy.max_wait.unwrap_or_default());
                break Exit::Unknown;
            }
            Elected::Told(_) => break Exit::Done,
        };
        was_elected = true;
        notify.status(&format!("leads with token {}", leadership.token()));
        let rest = match terms.serve(leadership, &mut signals).await {
            Served::Told => break Exit::Done,
            Served::Lost => continue,
            // Who gave it away leaves it to others for a while.
            Served::GivenAway => election.timing().rest(),
            Served::Refused => AGAIN_AFTER_FAILURE,
        };
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            _ = signals.told() => break Exit::Done,
        }
    };
    office.close().await;
    // A place in the line that nobody serves would hold up the others until its time has passed.
    let _ = tokio::time::timeout(election.timing().request_timeout() * 4, election.close()).await;
    Ok(exit)
}

/// Where promises are left on this machine, if the kernel frees the seat as soon as its holder dies.
fn promises(wanted: &SidecarArguments, target: &Target) -> Result<Option<Promise>, Failure> {
    if target.place()?.scheme() != "file" {
        return Ok(None);
    }
    let directory = state_directory(&wanted.candidacy, target)?;
    Ok(Some(Promise::at(file_of(&directory, &wanted.candidacy, target, "promise")?)))
}
