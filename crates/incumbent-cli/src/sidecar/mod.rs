//! `incumbent sidecar`: contends for a program that is not its child, and tells it, health checks and whoever asks over HTTP who leads.
//!
//! It cannot see whether that program has stopped. So it gives a seat back early only if the program says so; else the lease ends by itself, after the time that the program was told.

mod badge;
mod term;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use incumbent::Leadership;
use incumbent::election::Builder;
use serde::{Deserialize, Serialize};

use self::badge::Badge;
use self::term::{Served, Terms};
use crate::candidacy::contend::{self, Next, Service, Unserved};
use crate::candidacy::machine::Machine;
use crate::candidacy::notify::Notify;
use crate::candidacy::signals::Signals;
use crate::candidacy::{CandidacyArguments, Patience, build, claim_identity, find_target, state_directory};
use crate::console::Console;
use crate::elections::span;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::office::{Office, Stops};
use crate::run::record::Record;

pub(crate) const EXAMPLES: &str = "\
Examples:
  incumbent sidecar billing --on etcd://10.0.0.1:2379/prod
  # Succeeds on the leader, and never past its deadline
  curl -f http://127.0.0.1:8127/primary
  # A line whenever somebody else leads, or nobody does
  curl -N http://127.0.0.1:8127/events
  # The program has stopped: the seat is given back at once
  curl -X POST http://127.0.0.1:8127/stopped
  # Hooks alone do the work
  incumbent sidecar vip --no-drain --on-elected 'vip up' --on-lost 'vip down'
  # For programs that read a file
  incumbent sidecar billing --file /run/billing/leader.json

Without POST /stopped, or --no-drain, the others wait until the lease has ended.";

/// Where it listens unless told otherwise.
const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8127);

/// A host on which the hook failed leaves the seat to others for so long.
const AGAIN_AFTER_FAILURE: Duration = Duration::from_secs(5);

#[derive(clap::Args, Debug, Serialize, Deserialize)]
pub(crate) struct SidecarArguments {
    #[command(flatten)]
    pub(crate) candidacy: CandidacyArguments,
    /// Where to answer; port 0 is any that is free, and the first line printed says which
    #[arg(long, help_heading = "HTTP", value_name = "HOST:PORT", default_value_t = LISTEN_DEFAULT)]
    pub(crate) listen: SocketAddr,
    /// Listen on other addresses than those of this machine, though without TLS and users anybody there can make it resign
    #[arg(long, help_heading = "HTTP")]
    pub(crate) unprotected: bool,
    /// How long the program has to say POST /stopped once it is told to stop; never longer than the lease allows
    #[arg(long, help_heading = "Program", value_name = "SPAN", value_parser = span::parse, default_value = "10s")]
    pub(crate) drain: Duration,
    /// Nobody will say POST /stopped: whatever was done by the leader has stopped when /primary says 503 and --on-lost has ended well
    #[arg(long, help_heading = "Program", conflicts_with = "drain")]
    pub(crate) no_drain: bool,
    /// Keep a file there while leading, with the token and the deadline; no other process may use the same
    #[arg(long, help_heading = "Program", value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
}

/// Contends and answers until told to stop.
pub(crate) fn run(wanted: &SidecarArguments, console: &mut Console<'_>) -> Result<Exit, Failure> {
    crate::elections::log::begin(wanted.candidacy.target.talk())?;
    contend::run(async |notify| contend(wanted, notify, console).await)
}

async fn contend(wanted: &SidecarArguments, notify: &Notify, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let mut signals = Signals::listen()?;
    let target = find_target(&wanted.candidacy)?;
    // Where seats are leased nothing of this machine's is needed, but a name that was given.
    let is_freed = target.place()?.scheme() == "file";
    let directory = match is_freed || target.identity.is_some() {
        true => Some(state_directory(&wanted.candidacy, &target)?),
        false => None,
    };
    let _identity = directory.as_deref().map(|it| claim_identity(it, &wanted.candidacy, &target)).transpose()?;
    let machine = directory.filter(|_| is_freed).map(|it| Machine::open(&it, &wanted.candidacy, &target)).transpose()?;
    let badge = wanted.file.clone().map(Badge::at).transpose()?;
    let mut office = Office::of(&wanted.candidacy.election, Stops::AreSaid);
    let address = office.open_port(wanted.listen, wanted.unprotected)?;
    writeln!(console.out, "listening on {address} for {}", wanted.candidacy.election)?;
    console.out.flush()?;
    let began = tokio::time::Instant::now();
    let patience = Patience::of(&wanted.candidacy, began);
    let finish = |it: Builder| it.metrics(Arc::clone(office.metrics())).note(|it| Record::Led { by: it.clone() }.to_string());
    let election = match build(&wanted.candidacy, &target, finish, patience, &mut signals).await? {
        Ok(election) => election,
        Err(why) => return Ok(unserved(why)),
    };
    office.introduce(&election);
    let terms = Terms { wanted, election: &election, office: &office, machine: machine.as_ref(), badge: badge.as_ref() };
    let exit = contend::contend(&wanted.candidacy, &election, Some(began), notify, &mut signals, &mut Sidecar { terms }).await?;
    office.close().await;
    contend::leave_the_line(election, &mut signals).await;
    Ok(exit)
}

struct Sidecar<'a> {
    terms: Terms<'a>,
}

impl Service for Sidecar<'_> {
    async fn want(&mut self, _: &mut Signals) -> Result<(), Exit> {
        Ok(())
    }

    async fn serve(&mut self, leadership: Leadership, signals: &mut Signals) -> Result<Next, Failure> {
        Ok(match self.terms.serve(leadership, signals).await {
            Served::Told => Next::End(Exit::Done),
            Served::Lost => Next::CONTEND,
            // Who gave it away leaves it to others for a while.
            Served::GivenAway => Next::ContendAfter(self.terms.election.timing().rest()),
            Served::Refused => Next::ContendAfter(AGAIN_AFTER_FAILURE),
        })
    }

    fn unserved(&self, why: Unserved) -> Exit {
        unserved(why)
    }
}

fn unserved(why: Unserved) -> Exit {
    match why {
        Unserved::Told(_) => Exit::Done,
        Unserved::NotInTime => Exit::Unknown,
    }
}
