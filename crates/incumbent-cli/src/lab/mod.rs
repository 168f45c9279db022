//! `incumbent lab`: the deterministic world, from the command line. One file a command.

mod check;
mod compare;
mod explain;
mod graphs;
mod protocols;
mod run;
mod swarm;
mod watch;

use clap::Subcommand;

use crate::console::{Console, Form};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::Interrupt;

#[derive(Subcommand, Debug)]
pub(crate) enum LabCommand {
    /// Go through every run of a small group: crashes, losses, time-outs and requests in any order
    #[command(after_help = check::EXAMPLES)]
    Check(check::CheckArguments),
    /// Measure the protocols side by side: failover, messages, changes of leader, two leaders at once
    #[command(after_help = compare::EXAMPLES)]
    Compare(compare::Compare),
    /// Cut the links of five nodes in every possible way: is there a leader, are there ever two?
    #[command(after_help = graphs::EXAMPLES)]
    Graphs(graphs::Graphs),
    /// List the election protocols, what each does, and first what it does not promise
    #[command(after_help = "Examples:\n  incumbent lab protocols\n  incumbent lab protocols --json | jq '.protocols[].name'")]
    Protocols {
        #[command(flatten)]
        form: Form,
    },
    /// Run scenarios: print what happens, and whether it is what the file says
    #[command(after_help = run::EXAMPLES)]
    Run(run::RunArguments),
    /// Teach an algorithm step by step, from a real run
    #[command(after_help = explain::EXAMPLES)]
    Explain(explain::ExplainArguments),
    /// Try to break the protocols: runs drawn from seeds, every one under all oracles
    #[command(after_help = swarm::EXAMPLES)]
    Swarm(swarm::SwarmArguments),
}

/// Runs one of the lab's commands. A long one looks at `interrupt` now and then, and prints what it has when asked to stop.
pub(crate) fn run(command: LabCommand, interrupt: &Interrupt, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let exit = match command {
        LabCommand::Check(arguments) => check::run(&arguments, interrupt, console),
        LabCommand::Compare(wanted) => compare::run(wanted, interrupt, console),
        LabCommand::Graphs(wanted) => graphs::run(wanted, interrupt, console),
        LabCommand::Protocols { form } => protocols::run(form, console),
        LabCommand::Run(arguments) => run::run(&arguments, interrupt, console),
        LabCommand::Explain(arguments) => explain::run(&arguments, console),
        LabCommand::Swarm(arguments) => swarm::run(&arguments, interrupt, console),
    }?;
    Ok(if interrupt.asked() { exit.interrupted() } else { exit })
}
