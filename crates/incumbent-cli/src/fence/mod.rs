//! `incumbent fence`: what refuses the writes of former leaders, for storage that is not a Rust program; and a person's word that one of them is dead.

mod confirm;
mod forward;
mod proxy;

use clap::{Subcommand, ValueEnum};

use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;

#[derive(Subcommand, Debug)]
pub(crate) enum FenceCommand {
    /// Print the SQL that makes a database refuse stale tokens
    ///
    /// To be run once, by whoever owns the schema: a table, the function incumbent_admit(resource, token), and a trigger for any table that
    /// has a column for the token. The text says how to use them. Running it again does no harm.
    #[command(after_help = "Example:\n  incumbent fence sql | psql \"$DATABASE_URL\"")]
    Sql {
        /// The database
        #[arg(long = "for", value_name = "DATABASE", default_value = "postgres")]
        database: Database,
    },
    /// Stand before an HTTP storage and refuse requests with stale tokens
    Proxy(proxy::ProxyArguments),
    /// Say that former leaders which left without a word are dead, for an `incumbent run --fence` that waits for it
    #[command(after_help = confirm::EXAMPLES)]
    Confirm(confirm::ConfirmArguments),
}

#[derive(Copy, Clone, ValueEnum, Debug)]
pub(crate) enum Database {
    /// PostgreSQL
    Postgres,
}

pub(crate) fn run(command: FenceCommand, console: &mut Console<'_>) -> Result<Exit, Failure> {
    match command {
        FenceCommand::Sql { database: Database::Postgres } => {
            write!(console.out, "{}", incumbent::fence::postgres::SQL)?;
            Ok(Exit::Done)
        }
        FenceCommand::Proxy(arguments) => proxy::run(&arguments, console),
        FenceCommand::Confirm(arguments) => confirm::run(&arguments, console),
    }
}
