//! `incumbent cluster status`: the nodes, as one of them sees them, also when nobody leads.

use std::time::Duration;

use incumbent_client::administration::{Administration, AskCluster, Attended, ClusterView, Health, MemberView, Membership};
use serde_json::{Value, json};

use super::super::{Here, asking, unexpected};
use crate::console::{Console, Form};
use crate::elections::span;
use crate::elections::target::TargetArguments;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::table::{Entry, Side, Table, Tone};

#[derive(clap::Args, Debug)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    pub(super) target: TargetArguments,
}

pub(super) async fn run(wanted: &StatusArguments, here: &Here, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let attended = here.client.administer(Administration::Status(AskCluster {})).await.map_err(asking)?;
    let Attended::Cluster(view) = attended else { return Err(unexpected(&attended)) };
    if wanted.form.json {
        writeln!(console.out, "{:#}", document(&view))?;
    } else {
        print(&view, console)?;
    }
    Ok(if view.leader.is_some() { Exit::Done } else { Exit::Vacant })
}

/// What a node is, in one word.
pub(super) fn word(membership: Membership) -> &'static str {
    match membership {
        Membership::None => "none",
        Membership::Learner => "learner",
        Membership::Voter => "voter",
        Membership::Leaving => "leaving",
    }
}

fn role(view: &ClusterView, member: &MemberView) -> &'static str {
    if view.leader == Some(member.node) { "leader" } else { word(member.membership()) }
}

fn print(view: &ClusterView, console: &mut Console<'_>) -> Result<(), Failure> {
    let leader = view.leader.map_or("nobody leads".to_owned(), |it| format!("node {it} leads"));
    writeln!(
        console.out,
        "cluster {}: {leader}, term {}, incarnation {}, as node {} sees it\n",
        view.cluster, view.term, view.incarnation, view.node
    )?;
    let heads = [
        ("node", Side::Right),
        ("role", Side::Left),
        ("clients", Side::Left),
        ("nodes", Side::Left),
        ("applied", Side::Right),
        ("lag", Side::Right),
        ("line", Side::Left),
        ("disk", Side::Left),
        ("version", Side::Left),
    ];
    let mut table = Table::new(heads);
    for member in &view.members {
        let of = |it: &dyn Fn(&Health) -> String| member.health.as_ref().map_or("-".to_owned(), it);
        table.row(vec![
            member.node.to_string().into(),
            role(view, member).into(),
            known(&member.client).into(),
            known(&member.peer).into(),
            of(&|it| it.applied.to_string()).into(),
            member.lag.map_or("-".to_owned(), |it| it.to_string()).into(),
            line(view, member),
            member.health.as_ref().map_or("-".into(), disk),
            of(&|it| it.release.clone()).into(),
        ]);
    }
    table.print("", console)?;
    for member in view.members.iter().filter(|it| it.health.is_none()) {
        writeln!(console.out, "\nnode {} does not answer: {}", member.node, member.why)?;
    }
    Ok(())
}

fn known(place: &str) -> String {
    if place.is_empty() { "-" } else { place }.to_owned()
}

fn line(view: &ClusterView, member: &MemberView) -> Entry {
    if member.node == view.node {
        return "itself".into();
    }
    match (member.line_up, member.round_trip_us) {
        (true, 0) => "up".into(),
        (true, us) => format!("up {}", span::measured(Duration::from_micros(us))).into(),
        (false, _) => Entry::new("down", Tone::Bad),
    }
}

fn disk(health: &Health) -> Entry {
    let last = span::measured(Duration::from_micros(health.disk_last_us));
    if !health.disk_full.is_empty() {
        Entry::new("full", Tone::Bad)
    } else if health.disk_slow {
        Entry::new(format!("slow {last}"), Tone::Bad)
    } else {
        format!("ok {last}").into()
    }
}

fn document(view: &ClusterView) -> Value {
    let members: Vec<_> = view.members.iter().map(|it| described(view, it)).collect();
    json!({
        "cluster": view.cluster,
        "told_by": view.node,
        "leader": view.leader,
        "term": view.term,
        "incarnation": view.incarnation,
        "members": members,
    })
}

fn described(view: &ClusterView, member: &MemberView) -> Value {
    let health = member.health.as_ref();
    json!({
        "node": member.node,
        "role": role(view, member),
        "membership": word(member.membership()),
        "client": member.client,
        "peer": member.peer,
        "answers": health.is_some(),
        "why": member.why,
        "commit": health.map(|it| it.commit),
        "applied": health.map(|it| it.applied),
        "last": health.map(|it| it.last),
        "snapshot": health.map(|it| it.snapshot),
        "revision": health.map(|it| it.revision),
        "lag": member.lag,
        "line": { "up": member.line_up, "round_trip_us": member.round_trip_us },
        "disk": health.map(|it| json!({
            "last_us": it.disk_last_us,
            "longest_us": it.disk_longest_us,
            "slow": it.disk_slow,
            "full": it.disk_full,
        })),
        "version": health.map(|it| &it.release),
    })
}
