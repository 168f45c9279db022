//! `incumbent cluster snapshot` and `restore`: a backup of the whole, and a new cluster that begins with it.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

use incumbent_client::backup::{self, Unsaved};
use incumbent_protocol::protocol::NodeId;
use incumbent_service::log::Options;
use incumbent_service::server::{self, NotRestored, Restoration};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use super::super::{Here, asking};
use crate::console::{Console, Form};
use crate::elections::target::TargetArguments;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::peer::Member;

#[derive(clap::Args, Debug)]
pub(crate) struct SnapshotArguments {
    /// The file; it must not be there
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    pub(super) target: TargetArguments,
}

#[derive(clap::Args, Debug)]
pub(crate) struct RestoreArguments {
    /// A backup
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The directory that is made; it must not be there, or be empty
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The name of the new cluster: another than that of the old one
    #[arg(long, value_name = "NAME")]
    cluster: String,
    /// The number of the node whose directory it is
    #[arg(long, value_name = "N")]
    node: u32,
    /// The other nodes that the new cluster begins with; restore the same file for each of them
    #[arg(long, value_name = "N@HOST:PORT", value_delimiter = ',')]
    peers: Vec<Member>,
    /// Make every token greater than this one too: for when this file was restored before, or tokens were raised after the backup was made
    #[arg(long, value_name = "TOKEN", default_value_t = 0, hide_default_value = true)]
    above: u64,
    #[command(flatten)]
    form: Form,
}

pub(super) async fn snapshot(wanted: &SnapshotArguments, here: &Here, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let bar = bar();
    let saved = backup::save_telling(&here.client, &wanted.file, |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    })
    .await;
    bar.finish_and_clear();
    let view = saved.map_err(|why| match why {
        Unsaved::Taken(what) => Failure::Engine { what, exit: Exit::Usage },
        Unsaved::File(what) => Failure::Engine { what, exit: Exit::Io },
        Unsaved::Refused(what) => Failure::Engine { what, exit: Exit::Refused },
        Unsaved::Unanswered(why) => asking(why),
    })?;
    let file = wanted.file.display();
    if wanted.form.json {
        let document = json!({
            "file": file.to_string(),
            "bytes": view.bytes,
            "revision": view.revision,
            "entry": view.index,
            "crc32c": format!("{:08x}", view.checksum),
        });
        writeln!(console.out, "{document:#}")?;
    } else {
        writeln!(console.out, "{file}: {} bytes, all up to revision {}; safe on the disk", view.bytes, view.revision)?;
    }
    Ok(Exit::Done)
}

fn bar() -> ProgressBar {
    let target = if io::stderr().is_terminal() { ProgressDrawTarget::stderr_with_hz(10) } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(None, target);
    bar.set_style(ProgressStyle::with_template("{bar:32} {bytes} of {total_bytes}").expect("the template is well formed"));
    bar
}

pub(in crate::service) fn restore(wanted: &RestoreArguments, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let others = wanted.peers.iter().map(|it| NodeId(it.id));
    let restoration = Restoration {
        cluster: wanted.cluster.clone(),
        node: NodeId(wanted.node),
        members: std::iter::once(NodeId(wanted.node)).chain(others).collect(),
        above: wanted.above,
        log: Options::default(),
    };
    let restored = server::restore(&wanted.file, &wanted.data, &restoration).map_err(|why| match why {
        NotRestored::File(what) => Failure::Engine { what, exit: Exit::Io },
        NotRestored::Wrong(what) => Failure::Engine { what, exit: Exit::Usage },
    })?;
    let next = next(wanted);
    if wanted.form.json {
        let document = json!({
            "data": wanted.data.display().to_string(),
            "cluster": wanted.cluster,
            "node": wanted.node,
            "revision": restored.revision,
            "incarnation": restored.incarnation,
            "of": { "cluster": restored.label.cluster, "node": restored.label.node, "wall_ms": restored.label.wall_ms, "version": restored.label.release },
            "next": next,
        });
        writeln!(console.out, "{document:#}")?;
        return Ok(Exit::Done);
    }
    writeln!(
        console.out,
        "{}: node {} of {}, which goes on from revision {} of {} with incarnation {}",
        wanted.data.display(),
        wanted.node,
        wanted.cluster,
        restored.revision,
        restored.label.cluster,
        restored.incarnation
    )?;
    writeln!(console.out, "\nNext:")?;
    for (number, step) in next.iter().enumerate() {
        writeln!(console.out, "  {}. {step}", number + 1)?;
    }
    Ok(Exit::Done)
}

/// What is left to do, in its order.
fn next(wanted: &RestoreArguments) -> Vec<String> {
    let (name, data) = (&wanted.cluster, wanted.data.display());
    let mut steps = vec![
        "Stop every node of the old cluster, and wait for the longest ttl: its leaders do not know of the new one.".to_owned(),
    ];
    if wanted.above == 0 {
        // All nodes must begin alike, so it follows from the file alone.
        steps.push("If this file was restored before, its tokens were given already: remove the directory, and restore with --above and the greatest token that was seen since.".to_owned());
    }
    if !wanted.peers.is_empty() {
        let others: Vec<_> = wanted.peers.iter().map(|it| it.id.to_string()).collect();
        steps.push(format!(
            "Restore the same file for node {}, each with its own --node and --data, and the same members.",
            others.join(" and node ")
        ));
    }
    let peers: Vec<_> = wanted.peers.iter().map(|it| format!("{}@{}", it.id, it.address)).collect();
    let peers = if peers.is_empty() { String::new() } else { format!(" --peers {}", peers.join(",")) };
    steps.push(format!(
        "Start: incumbent serve --cluster {name} --node {} --data {data}{peers} (and --listen, --peer-listen, keys and tokens as before)",
        wanted.node
    ));
    steps.push(format!("Tell clients that named the old cluster of the new one: cluster={name} in their URLs."));
    steps
}
