//! `incumbent cluster`: the nodes of the service, as operators want them: how they do, who comes and goes, who leads, and their backup.
//!
//! All of it may be asked twice: what was done already is answered as if it were done now.

mod copies;
mod status;

use std::time::Duration;

use clap::Subcommand;
use incumbent_client::administration::{
    AddMember, Administration, Attended, MemberChange, Membership, RemoveMember, TransferLeadership,
};
use serde_json::json;
use tokio::time::Instant;

pub(crate) use self::copies::RestoreArguments;
pub(super) use self::copies::restore;
use super::{Here, changing, unexpected};
use crate::console::{Console, Form};
use crate::elections::span;
use crate::elections::target::TargetArguments;
use crate::exit::Exit;
use crate::failure::Failure;

pub(crate) const EXAMPLES: &str = "\
Examples:
  incumbent cluster status                                  on the service of this machine
  incumbent cluster status --on 'incumbent://10.0.0.1,10.0.0.2?ca=/etc/incumbent/ca.pem' --json
  # Node 4 runs already: incumbent serve --node 4 --join ...
  incumbent cluster add 4 --peer 10.0.0.4:7273 --client 10.0.0.4:7272
  incumbent cluster remove 2                                its number is not used again
  incumbent cluster transfer --to 3                         before node 1 is taken down
  incumbent cluster snapshot /backup/incumbent-monday       all of it, while it serves
  incumbent cluster restore /backup/incumbent-monday --data /var/lib/incumbent/new-1 \\
    --cluster new --node 1 --peers 2@10.0.0.2:7273,3@10.0.0.3:7273";

/// How long `add` waits for the node to vote.
const VOTES_WITHIN: &str = "1m";
/// The server looks for two seconds by itself before it says how far a learner is; a node that answers at once must not be asked in a loop.
const ASKED_EVERY: Duration = Duration::from_millis(200);

#[derive(Subcommand, Debug)]
pub(crate) enum ClusterCommand {
    /// List the nodes: who leads, how far each is, its line and its disk
    #[command(
        after_help = "Examples:\n  incumbent cluster status\n  incumbent cluster status --json | jq '.members[] | select(.answers | not)'\n\nIf nobody leads it ends with 4."
    )]
    Status(status::StatusArguments),
    /// Make a node a member: it learns what the others know, then it votes
    #[command(
        after_help = "Examples:\n  incumbent serve --node 4 --join --peer-listen 10.0.0.4:7273 --peers 1@10.0.0.1:7273 \\\n    --key-file nodes.key &\n  incumbent cluster add 4 --peer 10.0.0.4:7273 --client 10.0.0.4:7272\n\nOf a member it changes the addresses. If the node does not vote in time, the command ends with 6, and the node will vote all the same."
    )]
    Add(AddArguments),
    /// Leave a node out for good
    #[command(
        after_help = "Examples:\n  incumbent cluster remove 2\n  incumbent cluster remove 2 --force             though the others are no majority that can be heard\n\nIts process ends. To have the machine back, add it under another number, with an empty directory."
    )]
    Remove(RemoveArguments),
    /// Have another node lead
    #[command(
        after_help = "Examples:\n  incumbent cluster transfer                     whichever is best prepared\n  incumbent cluster transfer --to 3"
    )]
    Transfer(TransferArguments),
    /// Write a backup of the whole into a file
    #[command(
        after_help = "Example:\n  incumbent cluster snapshot /backup/incumbent-$(date +%F)\n\nIt has all that was done before, and may be taken while the service serves. Nothing is written over."
    )]
    Snapshot(copies::SnapshotArguments),
    /// Make the directory of a node of a new cluster, which begins with a backup
    #[command(
        after_help = "Example, on each node with its own number, and with the same file:\n  incumbent cluster restore backup --data /var/lib/incumbent/new-1 \\\n    --cluster new --node 1 --peers 2@10.0.0.2:7273,3@10.0.0.3:7273\n\nStop the old nodes first. The new cluster has another name, and all its tokens are greater than those of the old one."
    )]
    Restore(RestoreArguments),
}

#[derive(clap::Args, Debug)]
pub(crate) struct AddArguments {
    /// The number of the node; one that was never used
    #[arg(value_name = "N")]
    node: u32,
    /// Where the other nodes reach it
    #[arg(long, value_name = "HOST:PORT", value_parser = place)]
    peer: String,
    /// Where clients reach it; else what it says itself
    #[arg(long, value_name = "HOST:PORT", value_parser = place)]
    client: Option<String>,
    /// How long to wait until it votes
    #[arg(long, value_name = "SPAN", value_parser = span::parse, default_value = VOTES_WITHIN)]
    within: Duration,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    target: TargetArguments,
}

#[derive(clap::Args, Debug)]
pub(crate) struct RemoveArguments {
    /// The number of the node
    #[arg(value_name = "N")]
    node: u32,
    /// Also if too few of those that are left can be heard for a majority: then nothing is served until more come back
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    target: TargetArguments,
}

#[derive(clap::Args, Debug)]
pub(crate) struct TransferArguments {
    /// Which node shall lead; else whichever is best prepared
    #[arg(long, value_name = "N")]
    to: Option<u32>,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    target: TargetArguments,
}

impl ClusterCommand {
    /// The service that is asked; none where only files are read and written.
    pub(super) fn target(&self) -> Option<&TargetArguments> {
        match self {
            ClusterCommand::Status(wanted) => Some(&wanted.target),
            ClusterCommand::Add(wanted) => Some(&wanted.target),
            ClusterCommand::Remove(wanted) => Some(&wanted.target),
            ClusterCommand::Transfer(wanted) => Some(&wanted.target),
            ClusterCommand::Snapshot(wanted) => Some(&wanted.target),
            ClusterCommand::Restore(_) => None,
        }
    }
}

/// Runs one of those that ask the service.
pub(super) async fn run(command: &ClusterCommand, here: &Here, console: &mut Console<'_>) -> Result<Exit, Failure> {
    match command {
        ClusterCommand::Status(wanted) => status::run(wanted, here, console).await,
        ClusterCommand::Add(wanted) => add(wanted, here, console).await,
        ClusterCommand::Remove(wanted) => remove(wanted, here, console).await,
        ClusterCommand::Transfer(wanted) => transfer(wanted, here, console).await,
        ClusterCommand::Snapshot(wanted) => copies::snapshot(wanted, here, console).await,
        ClusterCommand::Restore(wanted) => restore(wanted, console),
    }
}

/// Has something done, and done again after a change of leaders. What the cluster has looked at and refuses was not done.
async fn attended(here: &Here, wanted: Administration) -> Result<Attended, Failure> {
    match here.client.administer(wanted).await.map_err(changing)? {
        Attended::Refused(what) => Err(Failure::Engine { what, exit: Exit::Refused }),
        done @ (Attended::Cluster(_) | Attended::Member(_) | Attended::Leader(_) | Attended::Backup(_) | Attended::Piece(_)) => {
            Ok(done)
        }
    }
}

/// A place that others can be told of.
pub(crate) fn place(text: &str) -> Result<String, String> {
    let wrong = || format!("{text:?} is no place that others could reach: write host and port, as 10.0.0.4:7272");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port: u16 = port.parse().map_err(|_| wrong())?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let anywhere = bare.parse::<std::net::IpAddr>().is_ok_and(|it| it.is_unspecified());
    let unbracketed = host.contains(':') && !host.starts_with('[');
    if port == 0 || host.is_empty() || anywhere || unbracketed || text.contains(['/', '?', '@', ',', ' ']) {
        return Err(wrong());
    }
    Ok(text.to_owned())
}

async fn add(wanted: &AddArguments, here: &Here, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let node = wanted.node;
    let member = AddMember { node, peer: wanted.peer.clone(), client: wanted.client.clone().unwrap_or_default() };
    let until = Instant::now() + wanted.within;
    let mut said = None;
    loop {
        let done = attended(here, Administration::Add(member.clone())).await?;
        let Attended::Member(change) = done else { return Err(unexpected(&done)) };
        if change.membership() == Membership::Voter {
            return changed(&change, wanted.form, console);
        }
        if said != Some(change.lag) {
            said = Some(change.lag);
            eprintln!("{}", learning(&change));
        }
        if Instant::now() >= until {
            let what = format!(
                "node {node} is a member and does not vote yet, after {:?}: it will once it knows enough; see incumbent cluster status",
                wanted.within
            );
            return Err(Failure::Engine { what, exit: Exit::Unknown });
        }
        tokio::time::sleep(ASKED_EVERY).await;
    }
}

fn learning(change: &MemberChange) -> String {
    let node = change.node;
    match change.lag {
        Some(0) => format!("node {node} knows all that the others know, and is about to vote"),
        Some(lag) => format!("node {node} learns, and lags {lag} entries behind: it votes once it has them"),
        None => {
            format!("node {node} is to learn, and has not shown yet that it has anything: is it up, and can it reach the others?")
        }
    }
}

async fn remove(wanted: &RemoveArguments, here: &Here, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let removal = RemoveMember { node: wanted.node, force: wanted.force };
    let done = attended(here, Administration::Remove(removal)).await?;
    let Attended::Member(change) = done else { return Err(unexpected(&done)) };
    changed(&change, wanted.form, console)
}

fn changed(change: &MemberChange, form: Form, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let (node, word) = (change.node, status::word(change.membership()));
    if form.json {
        writeln!(console.out, "{:#}", json!({ "node": node, "role": word, "lag": change.lag }))?;
        return Ok(Exit::Done);
    }
    match change.membership() {
        Membership::Voter => writeln!(console.out, "node {node} votes")?,
        Membership::None => writeln!(console.out, "node {node} is no member any more")?,
        Membership::Learner | Membership::Leaving => writeln!(console.out, "node {node} is a {word}")?,
    }
    Ok(Exit::Done)
}

async fn transfer(wanted: &TransferArguments, here: &Here, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let done = attended(here, Administration::Transfer(TransferLeadership { to: wanted.to })).await?;
    let Attended::Leader(leader) = done else { return Err(unexpected(&done)) };
    if wanted.form.json {
        writeln!(console.out, "{:#}", json!({ "leader": leader }))?;
    } else {
        writeln!(console.out, "node {leader} leads")?;
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_one_that_others_can_reach() {
        for good in ["10.0.0.1:7272", "[::1]:7", "node-1.example.org:7272"] {
            assert_eq!(place(good).as_deref(), Ok(good));
        }
        for bad in ["10.0.0.1", "10.0.0.1:0", ":7272", "0.0.0.0:7272", "[::]:7272", "::1:7272", "a:b", "1@a:1", "a:1,b:2"] {
            assert!(place(bad).unwrap_err().contains("10.0.0.4:7272"), "{bad}");
        }
    }
}
