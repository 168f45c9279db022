//! `incumbent elections` and `incumbent sessions`: what the service has.

use incumbent_client::message::Consistency;
use incumbent_store::command::{Command, EndSession, Forget};
use incumbent_store::query::{Answer, ListElections, ListSessions, Query};
use serde_json::json;

use super::{Here, asking, changing, unexpected};
use crate::console::{Console, Form};
use crate::elections::target::TargetArguments;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::table::{Side, Table};

pub(crate) const ELECTIONS_EXAMPLES: &str = "\
Examples:
  incumbent elections                                       on the service of this machine
  incumbent elections billing/ --on incumbent://10.0.0.1,10.0.0.2,10.0.0.3/prod --json
  incumbent elections --forget orders/4711                  nobody leads or waits there any more";

pub(crate) const SESSIONS_EXAMPLES: &str = "\
Examples:
  incumbent sessions                                        whose, and how long each is kept
  incumbent sessions --end 42                               its seats and keys go with it";

#[derive(clap::Args, Debug)]
pub(crate) struct ElectionsArguments {
    /// Those whose names begin so
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    /// Forget an election in which nobody leads or waits: its history, notes and jobs that were done. Tokens go on rising
    #[arg(long, value_name = "NAME", conflicts_with = "prefix")]
    forget: Option<String>,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    pub(super) target: TargetArguments,
}

#[derive(clap::Args, Debug)]
pub(crate) struct SessionsArguments {
    /// End a session, and with it its seats and keys, though its owner may still be at work: fences must refuse what that does
    #[arg(long, value_name = "ID")]
    end: Option<u64>,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    pub(super) target: TargetArguments,
}

pub(super) async fn elections(wanted: &ElectionsArguments, here: &Here, console: &mut Console<'_>) -> Result<Exit, Failure> {
    if let Some(name) = &wanted.forget {
        let forget = Forget { election: format!("{}{name}", here.prefix) };
        let done = here.client.submit(Command::Forget(forget)).await.map_err(changing)?;
        if wanted.form.json {
            writeln!(console.out, "{:#}", json!({ "election": name, "revision": done.revision }))?;
        } else {
            writeln!(console.out, "{name} is forgotten, revision {}", done.revision)?;
        }
        return Ok(Exit::Done);
    }
    let mut list = ListElections { prefix: format!("{}{}", here.prefix, wanted.prefix), ..ListElections::default() };
    let (mut found, mut more) = (Vec::new(), true);
    while more {
        let shown = here.client.ask(Query::Elections(list.clone()), Consistency::Linearizable).await.map_err(asking)?;
        let Answer::Elections(page) = shown.answer else { return Err(unexpected(&shown.answer)) };
        more = page.more && !page.elections.is_empty();
        if let Some(last) = page.elections.last() {
            list.after.clone_from(&last.election);
        }
        found.extend(page.elections);
    }
    let name = |election: &str| election.strip_prefix(&here.prefix).unwrap_or(election).to_owned();
    if wanted.form.json {
        let elections: Vec<_> = found
            .iter()
            .map(|it| {
                json!({
                    "election": name(&it.election),
                    "leader": it.leader.as_ref().map(|it| json!({ "name": it.name, "identity": it.identity, "token": it.token.to_string() })),
                    "leading": it.leading,
                    "waiting": it.waiting,
                })
            })
            .collect();
        writeln!(console.out, "{:#}", json!({ "elections": elections }))?;
    } else if found.is_empty() {
        writeln!(console.out, "there are no elections")?;
    } else {
        let heads = [("election", Side::Left), ("leader", Side::Left), ("token", Side::Right), ("waiting", Side::Right)];
        let mut table = Table::new(heads);
        for it in &found {
            let (leader, token) =
                it.leader.as_ref().map_or(("nobody".to_owned(), "-".to_owned()), |it| (it.name.clone(), it.token.to_string()));
            table.row(vec![name(&it.election).into(), leader.into(), token.into(), it.waiting.to_string().into()]);
        }
        table.print("", console)?;
    }
    Ok(Exit::Done)
}

pub(super) async fn sessions(wanted: &SessionsArguments, here: &Here, console: &mut Console<'_>) -> Result<Exit, Failure> {
    if let Some(id) = wanted.end {
        let end = EndSession { session: id, reason: "ended by an operator".to_owned(), unclean: true, binding: None };
        let done = here.client.submit(Command::EndSession(end)).await.map_err(changing)?;
        if wanted.form.json {
            writeln!(console.out, "{:#}", json!({ "session": id.to_string(), "revision": done.revision }))?;
        } else {
            writeln!(console.out, "session {id} has ended, revision {}", done.revision)?;
        }
        return Ok(Exit::Done);
    }
    let mut list = ListSessions::default();
    let (mut found, mut more) = (Vec::new(), true);
    while more {
        let shown = here.client.ask(Query::Sessions(list.clone()), Consistency::Linearizable).await.map_err(asking)?;
        let Answer::Sessions(page) = shown.answer else { return Err(unexpected(&shown.answer)) };
        more = page.more && !page.sessions.is_empty();
        if let Some(last) = page.sessions.last() {
            list.after = last.session;
        }
        found.extend(page.sessions);
    }
    if wanted.form.json {
        let sessions: Vec<_> = found
            .iter()
            .map(|it| {
                json!({
                    "session": it.session.to_string(),
                    "owner": it.owner,
                    "ttl_ms": it.ttl_ms,
                    "left_ms": it.left_ms,
                    "ends_with_connection": it.ends_with_connection,
                    "candidacies": it.candidacies,
                })
            })
            .collect();
        writeln!(console.out, "{:#}", json!({ "sessions": sessions }))?;
    } else if found.is_empty() {
        writeln!(console.out, "there are no sessions")?;
    } else {
        let heads = [
            ("session", Side::Right),
            ("owner", Side::Left),
            ("ttl", Side::Right),
            ("left", Side::Right),
            ("elections", Side::Right),
        ];
        let mut table = Table::new(heads);
        for it in &found {
            table.row(vec![
                it.session.to_string().into(),
                it.owner.clone().into(),
                format!("{} ms", it.ttl_ms).into(),
                format!("{} ms", it.left_ms).into(),
                it.candidacies.to_string().into(),
            ]);
        }
        table.print("", console)?;
    }
    Ok(Exit::Done)
}
