//! `incumbent lab`: the deterministic world, from the command line. One file a command.

mod protocols;

use clap::Subcommand;

use crate::console::{Console, Form};
use crate::exit::Exit;
use crate::failure::Failure;

#[derive(Subcommand, Debug)]
pub(crate) enum LabCommand {
    /// List the election protocols, what each does, and first what it does not promise
    #[command(after_help = "Examples:\n  incumbent lab protocols\n  incumbent lab protocols --json | jq '.protocols[].name'")]
    Protocols {
        #[command(flatten)]
        form: Form,
    },
}

/// Runs one of the lab's commands.
pub(crate) fn run(command: LabCommand, console: &mut Console<'_>) -> Result<Exit, Failure> {
    match command {
        LabCommand::Protocols { form } => protocols::run(form, console),
    }
}
