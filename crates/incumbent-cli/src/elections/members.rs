//! `incumbent members`: the nodes of a group of peers and how they are, as one of them sees it; one more, or one less.

use incumbent::engines::peers::Group;
use serde_json::Value;

use super::target::{Target, TargetArguments, answer};
use crate::console::{Console, Form};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::table::{Side, Table};

pub(crate) const EXAMPLES: &str = "\
Examples:
  incumbent members --on peers://10.0.0.1:7373,10.0.0.2:7373/prod?key-file=/etc/incumbent/group.key
  incumbent members --add 4@10.0.0.4:7373      then: incumbent peer --id 4 --join ...
  incumbent members --remove 2                 its id is not used again
  incumbent members --json | jq '.lines[] | select(.state != \"up\")'";

#[derive(clap::Args, Debug)]
pub(crate) struct MembersArguments {
    /// Take a node in that was never a member; groups that elect by Raft
    #[arg(long, value_name = "N@HOST:PORT", conflicts_with = "remove")]
    add: Option<crate::peer::Member>,
    /// Leave a member out for good; groups that elect by Raft
    #[arg(long, value_name = "N")]
    remove: Option<u32>,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    pub(super) target: TargetArguments,
}

/// Changes what is asked for, and prints the members.
pub(crate) async fn run(wanted: &MembersArguments, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let place = Target::find(&wanted.target)?.place()?;
    let group = answer(Group::at(&place)).await.map_err(|why| Failure::asking(&why))?;
    // A change waits until leases of before have ended; the group says itself when it gives up.
    let changed = match (&wanted.add, wanted.remove) {
        (Some(member), _) => group.add(member.id, &member.address).await,
        (None, Some(id)) => group.remove(id).await,
        (None, None) => Ok(()),
    };
    changed.map_err(|why| Failure::changing(&why))?;
    let report = answer(group.report()).await.map_err(|why| Failure::asking(&why))?;
    if wanted.form.json {
        writeln!(console.out, "{report:#}")?;
        return Ok(Exit::Done);
    }
    let mut table =
        Table::new([("node", Side::Right), ("address", Side::Left), ("line", Side::Left), ("round trip", Side::Right)]);
    let list = |key: &str| report[key].as_array().cloned().unwrap_or_default();
    for member in list("members") {
        let line = list("lines").into_iter().find(|it| it["node"] == member["node"]);
        let (state, trip) = match &line {
            Some(line) => (described(line), line["round_trip_ms"].as_f64().map_or_else(String::new, |it| format!("{it:.2}ms"))),
            None => ("answers this".to_owned(), String::new()),
        };
        table.row(vec![
            member["node"].to_string().into(),
            member["address"].as_str().unwrap_or_default().to_owned().into(),
            state.into(),
            trip.into(),
        ]);
    }
    table.print("", console)?;
    Ok(Exit::Done)
}

fn described(line: &Value) -> String {
    let state = line["state"].as_str().unwrap_or_default();
    match line["via"].as_u64() {
        Some(via) => format!("{state}, through node {via}"),
        None => state.to_owned(),
    }
}
