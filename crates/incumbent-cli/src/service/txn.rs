//! `incumbent kv txn`: several things at once, or others if a guard does not hold.

use incumbent_store::command::Command;
use incumbent_store::keys::transaction::{
    Act, ActAnswer, Against, Comparison, Delete, Guard, Operation, Put, Transacted, Transaction,
};
use incumbent_store::query::Range;
use incumbent_store::reply::Reply;
use serde_json::json;

use super::kv::{describe, span};
use super::{Here, changing, unexpected};
use crate::console::{Console, Form};
use crate::elections::target::TargetArguments;
use crate::exit::Exit;
use crate::failure::Failure;

pub(crate) const EXAMPLES: &str = "\
Examples:
  incumbent kv txn --if absent:a --then put:a=1 --else get:a
  incumbent kv txn --if version:config/size=1 --then put:config/size=11 --then put:config/by=me
  # Refused if another leads by now
  incumbent kv txn --if holds:nightly=\"$INCUMBENT_TOKEN\" --then put:report=done

If a guard does not hold, --else is done, and it ends with 1.";

#[derive(clap::Args, Debug)]
pub(crate) struct TxnArguments {
    /// A guard: absent:KEY, exists:KEY, version:KEY=N, modified:KEY=REVISION, value:KEY=VALUE, holds:ELECTION=TOKEN
    #[arg(long = "if", value_name = "GUARD")]
    guards: Vec<String>,
    /// What is done if all guards hold: put:KEY=VALUE, delete:KEY, get:KEY
    #[arg(long = "then", value_name = "ACT")]
    then: Vec<String>,
    /// What is done if one does not
    #[arg(long = "else", value_name = "ACT")]
    otherwise: Vec<String>,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    pub(super) target: TargetArguments,
}

pub(super) async fn run(wanted: &TxnArguments, here: &Here, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let acts = |acts: &[String]| acts.iter().map(|it| act(it)).collect::<Result<Vec<_>, _>>();
    let transaction = Transaction {
        guards: wanted.guards.iter().map(|it| guard(it, here)).collect::<Result<_, _>>()?,
        then: acts(&wanted.then)?,
        otherwise: acts(&wanted.otherwise)?,
    };
    let (done, revision) = transact(transaction, here).await?;
    if wanted.form.json {
        let results: Vec<_> = done.results.iter().map(|it| result(it.answer.as_ref())).collect();
        writeln!(console.out, "{:#}", json!({ "held": done.held, "revision": revision, "results": results }))?;
    } else {
        writeln!(console.out, "{}, revision {revision}", if done.held { "done" } else { "not done: a guard does not hold" })?;
        for answer in done.results.iter().filter_map(|it| it.answer.as_ref()) {
            if let ActAnswer::Read(read) = answer {
                for item in &read.items {
                    console.out.write_all(&item.key)?;
                    console.out.write_all(b"\t")?;
                    console.out.write_all(&item.value)?;
                    console.out.write_all(b"\n")?;
                }
            }
        }
    }
    Ok(if done.held { Exit::Done } else { Exit::Found })
}

fn result(answer: Option<&ActAnswer>) -> serde_json::Value {
    match answer {
        Some(ActAnswer::Written(written)) => {
            let mut item = json!(written.item.as_ref().map(describe));
            // The store does not send back what it was just sent.
            if let Some(item) = item.as_object_mut() {
                item.remove("value");
            }
            json!({ "written": item })
        }
        Some(ActAnswer::Deleted(deleted)) => json!({ "deleted": deleted.count }),
        Some(ActAnswer::Read(read)) => json!({ "items": read.items.iter().map(describe).collect::<Vec<_>>() }),
        Some(ActAnswer::Transacted(inner)) => json!({ "held": inner.held }),
        None => json!(null),
    }
}

async fn transact(transaction: Transaction, here: &Here) -> Result<(Transacted, u64), Failure> {
    let done = here.client.submit(Command::Transact(transaction)).await.map_err(changing)?;
    let Reply::Transacted(transacted) = done.reply else { return Err(unexpected(&done.reply)) };
    Ok((transacted, done.revision))
}

/// Writes under guards. Whether they hold, and the revision.
pub(super) async fn guarded(guards: Vec<Guard>, put: Put, here: &Here) -> Result<(bool, u64), Failure> {
    let transaction = Transaction { guards, then: vec![Act::Put(put).into()], otherwise: Vec::new() };
    let (done, revision) = transact(transaction, here).await?;
    Ok((done.held, revision))
}

/// The guards that the options of `kv put` stand for.
pub(super) fn guards(
    key: &str,
    absent: bool,
    version: Option<u64>,
    holding: Option<&str>,
    here: &Here,
) -> Result<Vec<Guard>, Failure> {
    let mut guards = Vec::new();
    if absent {
        guards.push(Guard::absent(key.to_owned()));
    }
    if let Some(version) = version {
        guards.push(Guard::key(key.to_owned(), Comparison::Equal, Against::Version(version)));
    }
    if let Some(holding) = holding {
        guards.push(holds(holding, here)?);
    }
    Ok(guards)
}

fn guard(text: &str, here: &Here) -> Result<Guard, Failure> {
    let wrong = || {
        wrong(format!(
            "{text:?} is no guard: write absent:KEY, exists:KEY, version:KEY=N, modified:KEY=REVISION, value:KEY=VALUE or holds:ELECTION=TOKEN"
        ))
    };
    let (kind, rest) = text.split_once(':').ok_or_else(wrong)?;
    let pair = || rest.rsplit_once('=').ok_or_else(wrong);
    let number = || pair().and_then(|(key, number)| Ok((key.to_owned(), number.parse().map_err(|_| wrong())?)));
    Ok(match kind {
        "absent" => Guard::absent(rest.to_owned()),
        "exists" => Guard::exists(rest.to_owned()),
        "version" => number().map(|(key, number)| Guard::key(key, Comparison::Equal, Against::Version(number)))?,
        "modified" => number().map(|(key, number)| Guard::key(key, Comparison::Equal, Against::Modified(number)))?,
        "value" => {
            let (key, value) = rest.split_once('=').ok_or_else(wrong)?;
            Guard::key(key.to_owned(), Comparison::Equal, Against::Value(value.to_owned().into()))
        }
        "holds" => holds(rest, here)?,
        _ => return Err(wrong()),
    })
}

fn holds(text: &str, here: &Here) -> Result<Guard, Failure> {
    let wrong = || wrong(format!("{text:?} is no leadership: write the election and its token, as nightly=65537"));
    let (election, token) = text.rsplit_once('=').ok_or_else(wrong)?;
    Ok(Guard::holds(format!("{}{election}", here.prefix), token.parse().map_err(|_| wrong())?))
}

fn act(text: &str) -> Result<Operation, Failure> {
    let wrong = || wrong(format!("{text:?} is nothing to do: write put:KEY=VALUE, delete:KEY or get:KEY"));
    let (kind, rest) = text.split_once(':').ok_or_else(wrong)?;
    Ok(match kind {
        "put" => {
            let (key, value) = rest.split_once('=').filter(|it| !it.0.is_empty()).ok_or_else(wrong)?;
            Act::Put(Put { key: key.to_owned().into(), value: value.to_owned().into(), ..Put::default() })
        }
        "delete" => Act::Delete(Delete { span: Some(span(rest, false)), wants_previous: false }),
        "get" => Act::Read(Range { span: Some(span(rest, false)), ..Range::default() }),
        _ => return Err(wrong()),
    }
    .into())
}

fn wrong(what: String) -> Failure {
    Failure::Engine { what, exit: Exit::Usage }
}
