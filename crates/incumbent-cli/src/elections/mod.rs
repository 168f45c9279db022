//! The commands that look at elections on an engine and ask things of their leaders, a file each.
//!
//! What they say comes from the engine; what they want of a leader is left there as a wish. None of them decides who leads.

pub(crate) mod config;
pub(crate) mod describe;
pub(crate) mod log;
pub(crate) mod span;
pub(crate) mod target;

pub(crate) mod ask;
mod candidates;
mod doctor;
mod drill;
mod engines;
mod history;
mod members;
mod plan;
pub(crate) mod raise;
mod watch;
mod who;

use clap::Subcommand;

use self::log::Talk;
use self::target::TargetArguments;
use crate::console::{Console, Form};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::Interrupt;

#[derive(Subcommand, Debug)]
pub(crate) enum ElectionCommand {
    /// Say who leads
    #[command(after_help = who::EXAMPLES)]
    Who(Looking),
    /// Say who leads whenever that changes
    #[command(after_help = watch::EXAMPLES)]
    Watch(watch::WatchArguments),
    /// List who waits for the seat
    #[command(after_help = candidates::EXAMPLES)]
    Candidates(Looking),
    /// List who led before, newest first, and why each leadership ended
    #[command(after_help = history::EXAMPLES)]
    History(Looking),
    /// Ask the leader to resign
    #[command(after_help = ask::RESIGN_EXAMPLES)]
    Resign(ask::AskArguments),
    /// Ask the leader to hand over to a candidate
    #[command(after_help = ask::HAND_OVER_EXAMPLES)]
    Handover(ask::HandOverArguments),
    /// Ask the leader to leave because somebody else is wanted; on record as evicted
    #[command(after_help = ask::EVICT_EXAMPLES)]
    Evict(ask::AskArguments),
    /// Make every later token greater than one: after the engine was restored from a backup
    #[command(after_help = raise::EXAMPLES)]
    Raise(raise::RaiseArguments),
    /// List the nodes of a group of peers and how they are, add one or remove one
    #[command(after_help = members::EXAMPLES)]
    Members(members::MembersArguments),
    /// Find times that are safe for a goal, or say why there are none
    #[command(after_help = plan::EXAMPLES)]
    Plan(plan::PlanArguments),
    /// Examine an engine: reach, round trips, clock, timing, and what it cannot promise
    #[command(after_help = doctor::EXAMPLES)]
    Doctor(doctor::DoctorArguments),
    /// Kill, pause or replace leaders of its own making, and measure the failover
    #[command(after_help = drill::EXAMPLES)]
    Drill(drill::DrillArguments),
    /// Contend as a drill wants it
    #[command(hide = true)]
    DrillCandidate(drill::candidate::CandidateArguments),
    /// List the engines that are built in, and of each first what it cannot promise
    #[command(after_help = engines::EXAMPLES)]
    Engines(engines::EnginesArguments),
}

/// An election to look at.
#[derive(clap::Args, Debug)]
pub(crate) struct Looking {
    /// The name of the election
    pub(crate) election: String,
    #[command(flatten)]
    pub(crate) form: Form,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// Runs one of these commands.
pub(crate) fn run(command: ElectionCommand, interrupt: &Interrupt, console: &mut Console<'_>) -> Result<Exit, Failure> {
    log::begin(talk(&command))?;
    // The library has a thread of its own for what must not wait; this one only carries questions there and answers back.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|wrong| Failure::Io {
        what: format!("cannot start: {wrong}"),
        hint: "raise the limit of open files, or close some",
    })?;
    runtime.block_on(async {
        let is_patient = ends_by_itself(&command);
        let ended = async {
            match command {
                ElectionCommand::Who(wanted) => who::run(&wanted, console).await,
                ElectionCommand::Watch(wanted) => watch::run(&wanted, interrupt, console).await,
                ElectionCommand::Candidates(wanted) => candidates::run(&wanted, console).await,
                ElectionCommand::History(wanted) => history::run(&wanted, console).await,
                ElectionCommand::Resign(wanted) => ask::resign(&wanted, interrupt, console).await,
                ElectionCommand::Handover(wanted) => ask::hand_over(&wanted, interrupt, console).await,
                ElectionCommand::Evict(wanted) => ask::evict(&wanted, interrupt, console).await,
                ElectionCommand::Raise(wanted) => raise::run(&wanted, console).await,
                ElectionCommand::Members(wanted) => members::run(&wanted, console).await,
                ElectionCommand::Plan(wanted) => plan::run(&wanted, console),
                ElectionCommand::Doctor(wanted) => doctor::run(&wanted, console).await,
                ElectionCommand::Drill(wanted) => drill::run(&wanted, interrupt, console).await,
                ElectionCommand::DrillCandidate(wanted) => drill::candidate::run(&wanted, console).await,
                ElectionCommand::Engines(wanted) => engines::run(&wanted, console),
            }
        };
        tokio::select! {
            biased;
            ended = ended => ended,
            () = interrupt.wait(), if !is_patient => Ok(Exit::Interrupted),
        }
    })
}

/// Whether a command ends in its own way when it is interrupted, with something still to print or to put in order.
fn ends_by_itself(command: &ElectionCommand) -> bool {
    match command {
        ElectionCommand::Watch(_)
        | ElectionCommand::Drill(_)
        | ElectionCommand::Resign(_)
        | ElectionCommand::Handover(_)
        | ElectionCommand::Evict(_) => true,
        ElectionCommand::Who(_)
        | ElectionCommand::Candidates(_)
        | ElectionCommand::History(_)
        | ElectionCommand::Raise(_)
        | ElectionCommand::Members(_)
        | ElectionCommand::Plan(_)
        | ElectionCommand::Doctor(_)
        | ElectionCommand::DrillCandidate(_)
        | ElectionCommand::Engines(_) => false,
    }
}

fn talk(command: &ElectionCommand) -> Talk {
    match command {
        ElectionCommand::Who(wanted) | ElectionCommand::Candidates(wanted) | ElectionCommand::History(wanted) => {
            wanted.target.talk()
        }
        ElectionCommand::Watch(wanted) => wanted.target.talk(),
        ElectionCommand::Resign(wanted) | ElectionCommand::Evict(wanted) => wanted.target.talk(),
        ElectionCommand::Handover(wanted) => wanted.ask.target.talk(),
        ElectionCommand::Raise(wanted) => wanted.target.talk(),
        ElectionCommand::Members(wanted) => wanted.target.talk(),
        ElectionCommand::Doctor(wanted) => wanted.target.talk(),
        ElectionCommand::Drill(wanted) => wanted.target.talk(),
        ElectionCommand::Plan(_) | ElectionCommand::DrillCandidate(_) | ElectionCommand::Engines(_) => Talk::Warnings,
    }
}
