//! The commands that speak with the replicated service itself: its keys, elections, sessions and nodes.
//!
//! What every engine has, `who`, `history`, `handover` and the like, is in `elections/`: the service is one more engine there.

pub(crate) mod cluster;
pub(crate) mod kv;
pub(crate) mod listing;
pub(crate) mod txn;

use clap::Subcommand;
use incumbent::engine::Error;
use incumbent::engines::service;
use incumbent_client::client::Client;
use incumbent_client::failure::Failure as Unanswered;

use crate::console::Console;
use crate::elections::log;
use crate::elections::target::{Origin, Target, TargetArguments, Url};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::Interrupt;

#[derive(Subcommand, Debug)]
pub(crate) enum ServiceCommand {
    /// Read, write and watch keys of the service
    #[command(arg_required_else_help = true, after_help = kv::EXAMPLES)]
    Kv {
        #[command(subcommand)]
        command: kv::KvCommand,
    },
    /// See the nodes of the service, add and remove them, have another lead, make and restore backups
    #[command(arg_required_else_help = true, after_help = cluster::EXAMPLES)]
    Cluster {
        #[command(subcommand)]
        command: cluster::ClusterCommand,
    },
    /// List the elections of the service, and who leads each
    #[command(after_help = listing::ELECTIONS_EXAMPLES)]
    Elections(listing::ElectionsArguments),
    /// List the sessions of the service, or end one
    #[command(after_help = listing::SESSIONS_EXAMPLES)]
    Sessions(listing::SessionsArguments),
}

/// Runs one of these commands.
pub(crate) fn run(command: ServiceCommand, interrupt: &Interrupt, console: &mut Console<'_>) -> Result<Exit, Failure> {
    if let ServiceCommand::Cluster { command: cluster::ClusterCommand::Restore(wanted) } = &command {
        return cluster::restore(wanted, console);
    }
    let nobody = TargetArguments::default();
    let target = match &command {
        ServiceCommand::Kv { command } => command.target(),
        ServiceCommand::Cluster { command } => command.target().unwrap_or(&nobody),
        ServiceCommand::Elections(wanted) => &wanted.target,
        ServiceCommand::Sessions(wanted) => &wanted.target,
    };
    log::begin(target.talk())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|wrong| Failure::Io {
        what: format!("cannot start: {wrong}"),
        hint: "raise the limit of open files, or close some",
    })?;
    runtime.block_on(async {
        let here = Here::connect(target).await?;
        let ended = async {
            match &command {
                ServiceCommand::Kv { command } => kv::run(command, &here, console).await,
                ServiceCommand::Cluster { command } => cluster::run(command, &here, console).await,
                ServiceCommand::Elections(wanted) => listing::elections(wanted, &here, console).await,
                ServiceCommand::Sessions(wanted) => listing::sessions(wanted, &here, console).await,
            }
        };
        let exit = tokio::select! {
            biased;
            ended = ended => ended,
            // Whoever watches is stopped in no other way.
            () = interrupt.wait() => Ok(if command.watches() { Exit::Done } else { Exit::Interrupted }),
        };
        here.client.clone().close().await;
        exit
    })
}

impl ServiceCommand {
    fn watches(&self) -> bool {
        matches!(self, ServiceCommand::Kv { command: kv::KvCommand::Watch(_) })
    }
}

/// The service that a command speaks with.
pub(crate) struct Here {
    pub(crate) client: Client,
    /// What the names of its elections begin with, by the URL.
    pub(crate) prefix: String,
}

impl Here {
    async fn connect(arguments: &TargetArguments) -> Result<Here, Failure> {
        let mut target = Target::find(arguments)?;
        // Nobody named an engine: the service is on this machine, where `incumbent serve` puts it.
        if target.origin == Origin::Default {
            target.url = Url::from("incumbent://".to_owned());
        }
        let place = target.place()?;
        if place.scheme() != "incumbent" {
            return Err(Failure::Input {
                what: format!("{place} is not the replicated service, and only that has keys, sessions and a list of elections"),
                hint: "name it with --on incumbent://HOST:7272,HOST:7272,HOST:7272",
            });
        }
        let client = service::connect(&place).await.map_err(|why| Failure::asking(&why))?;
        Ok(Here { client, prefix: service::prefix(&place) })
    }
}

/// A question was not answered.
pub(crate) fn asking(why: Unanswered) -> Failure {
    Failure::asking(&service::error(why))
}

/// Something was not done, or may have been.
pub(crate) fn changing(why: Unanswered) -> Failure {
    Failure::changing(&service::error(why))
}

/// The service has answered something else.
pub(crate) fn unexpected(answer: &impl std::fmt::Debug) -> Failure {
    Failure::asking(&Error::unknown(format!("the service has answered something else: {answer:?}")))
}

/// Bytes as JSON: text where they are, else base64.
pub(crate) fn json_of(bytes: &[u8]) -> serde_json::Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => serde_json::json!(text),
        Err(_) => serde_json::json!({ "hex": bytes.iter().map(|it| format!("{it:02x}")).collect::<String>() }),
    }
}
