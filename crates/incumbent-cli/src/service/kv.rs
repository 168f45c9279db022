//! `incumbent kv`: keys of the service, read, written under guards, and watched.

use std::io::{Read as _, Write as _};
use std::pin::pin;

use clap::Subcommand;
use incumbent_client::failure::Failure as Unanswered;
use incumbent_client::message::Consistency;
use incumbent_client::watch::Cease;
use incumbent_store::command::Command;
use incumbent_store::event::{Change, Event};
use incumbent_store::keys::item::{Item, Span};
use incumbent_store::keys::transaction::{Delete, Put};
use incumbent_store::limits::Limits;
use incumbent_store::query::{Answer, Query, Range};
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::Reply;
use incumbent_store::watch::{Interest, Topic};
use serde_json::json;

use super::{Here, asking, changing, json_of, txn, unexpected};
use crate::console::{Console, Form, on_one_line, reader_gone};
use crate::elections::target::TargetArguments;
use crate::exit::Exit;
use crate::failure::Failure;

pub(crate) const EXAMPLES: &str = "\
Examples:
  incumbent kv put config/size 10                           then: incumbent kv get config/size
  incumbent kv get config/ --prefix --json                  all below, with versions and revisions
  incumbent kv put config/size 11 --if-version 1            refused if somebody was faster
  # Refused if another leads by now
  incumbent kv put report done --holding nightly=\"$INCUMBENT_TOKEN\"
  incumbent kv txn --if absent:a --if holds:nightly=65536 --then put:a=1 --else get:a
  incumbent kv watch config/ --prefix                       a line whenever something changes there";

const GET_EXAMPLES: &str = "\
Examples:
  incumbent kv get config/size
  incumbent kv get config/ --prefix --json                  all below, with versions and revisions
  incumbent kv get config/size --revision 41                as it was then
  incumbent kv get config/size --local                      also when no majority is up; may be old

If there is no such key it ends with 1.";

const PUT_EXAMPLES: &str = "\
Examples:
  incumbent kv put config/size 10
  incumbent kv put config/site - < site.json
  incumbent kv put config/size 11 --if-version 1            refused if somebody was faster
  # Refused if another leads by now
  incumbent kv put report done --holding nightly=\"$INCUMBENT_TOKEN\"

If a guard does not hold it ends with 1, and nothing is written.";

const DEL_EXAMPLES: &str = "\
Examples:
  incumbent kv del config/size
  incumbent kv del config/ --prefix

More than 2,000 keys are deleted by several requests, one after the other.";

const WATCH_EXAMPLES: &str = "\
Examples:
  incumbent kv watch config/ --prefix                       a line whenever something changes there
  incumbent kv watch config/size --count 1                  ends after one change
  incumbent kv watch config/ --prefix --from 41 --json      what has changed since, then all new";

#[derive(Subcommand, Debug)]
pub(crate) enum KvCommand {
    /// Print the value of a key, or all keys that begin so
    #[command(after_help = GET_EXAMPLES)]
    Get(GetArguments),
    /// Write a key
    #[command(after_help = PUT_EXAMPLES)]
    Put(PutArguments),
    /// Delete a key, or all keys that begin so
    #[command(after_help = DEL_EXAMPLES)]
    Del(DelArguments),
    /// Do several things at once, if all guards hold
    #[command(after_help = txn::EXAMPLES)]
    Txn(txn::TxnArguments),
    /// Print whenever a key changes
    #[command(after_help = WATCH_EXAMPLES)]
    Watch(WatchArguments),
}

#[derive(clap::Args, Debug)]
pub(crate) struct GetArguments {
    /// The key
    key: String,
    /// All keys that begin so
    #[arg(long)]
    prefix: bool,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    limit: u64,
    /// As they were at this revision
    #[arg(long, value_name = "REVISION", default_value_t = 0, hide_default_value = true)]
    revision: u64,
    /// What the node that answers knows, though it may be old: also when no majority is up
    #[arg(long)]
    local: bool,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    target: TargetArguments,
}

#[derive(clap::Args, Debug)]
pub(crate) struct PutArguments {
    /// The key
    key: String,
    /// The value; - for the standard input
    value: String,
    /// The key goes when this session ends
    #[arg(long, value_name = "ID", default_value_t = 0, hide_default_value = true)]
    session: u64,
    /// Only if it is not there
    #[arg(long, conflicts_with = "if_version")]
    if_absent: bool,
    /// Only if it has this version
    #[arg(long, value_name = "N")]
    if_version: Option<u64>,
    /// Only while this token is in office in the election: what a former leader writes is refused
    #[arg(long, value_name = "ELECTION=TOKEN")]
    holding: Option<String>,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    target: TargetArguments,
}

#[derive(clap::Args, Debug)]
pub(crate) struct DelArguments {
    /// The key
    key: String,
    /// All keys that begin so
    #[arg(long)]
    prefix: bool,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    target: TargetArguments,
}

#[derive(clap::Args, Debug)]
pub(crate) struct WatchArguments {
    /// The key
    key: String,
    /// All keys that begin so
    #[arg(long)]
    prefix: bool,
    /// From this revision on, as far as it is kept; else from now on
    #[arg(long, value_name = "REVISION", default_value_t = 0, hide_default_value = true)]
    from: u64,
    /// End after so many changes
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    target: TargetArguments,
}

impl KvCommand {
    pub(super) fn target(&self) -> &TargetArguments {
        match self {
            KvCommand::Get(wanted) => &wanted.target,
            KvCommand::Put(wanted) => &wanted.target,
            KvCommand::Del(wanted) => &wanted.target,
            KvCommand::Txn(wanted) => &wanted.target,
            KvCommand::Watch(wanted) => &wanted.target,
        }
    }
}

pub(super) async fn run(command: &KvCommand, here: &Here, console: &mut Console<'_>) -> Result<Exit, Failure> {
    match command {
        KvCommand::Get(wanted) => get(wanted, here, console).await,
        KvCommand::Put(wanted) => put(wanted, here, console).await,
        KvCommand::Del(wanted) => del(wanted, here, console).await,
        KvCommand::Txn(wanted) => txn::run(wanted, here, console).await,
        KvCommand::Watch(wanted) => watch(wanted, here, console).await,
    }
}

pub(super) fn span(key: &str, prefix: bool) -> Span {
    // What begins with a zero byte is the service's own: nobody who asks for everything means that, and few may have it.
    if prefix && key.is_empty() {
        return Span { start: vec![1].into(), ..Span::all() };
    }
    let key = key.to_owned();
    if prefix { Span::prefix(key) } else { Span::key(key) }
}

/// The service would refuse it, as if the key were another's fault.
pub(super) fn check_key(key: &str) -> Result<(), Failure> {
    if key.is_empty() {
        return Err(Failure::Input {
            what: "a key is not empty".to_owned(),
            hint: "name the key; --prefix takes an empty one for all keys",
        });
    }
    Ok(())
}

async fn get(wanted: &GetArguments, here: &Here, console: &mut Console<'_>) -> Result<Exit, Failure> {
    if !wanted.prefix {
        check_key(&wanted.key)?;
    }
    let consistency = if wanted.local { Consistency::Local } else { Consistency::Linearizable };
    let mut range = Range {
        span: Some(span(&wanted.key, wanted.prefix)),
        limit: wanted.limit,
        revision: wanted.revision,
        ..Range::default()
    };
    let (mut items, mut revision, mut more) = (Vec::new(), 0, true);
    while more && (wanted.limit == 0 || (items.len() as u64) < wanted.limit) {
        let shown = here.client.ask(Query::Range(range.clone()), consistency).await.map_err(asking)?;
        let Answer::Items(page) = shown.answer else { return Err(unexpected(&shown.answer)) };
        // All pages are of one moment.
        (revision, range.revision) = (shown.revision, if range.revision == 0 { shown.revision } else { range.revision });
        more = page.more && !page.items.is_empty();
        if let Some(last) = page.items.last() {
            range.after = last.key.clone();
        }
        items.extend(page.items);
        range.limit = wanted.limit.saturating_sub(items.len() as u64);
    }
    if wanted.form.json {
        let items: Vec<_> = items.iter().map(describe).collect();
        writeln!(console.out, "{:#}", json!({ "revision": revision, "items": items, "more": more }))?;
    } else {
        for item in &items {
            if wanted.prefix {
                console.out.write_all(&item.key)?;
                console.out.write_all(b"\t")?;
            }
            console.out.write_all(&item.value)?;
            console.out.write_all(b"\n")?;
        }
        if more {
            console.out.flush()?;
            // Not among the keys, which others may read line by line.
            let _ = writeln!(std::io::stderr(), "there are more: raise --limit, or leave it out");
        }
    }
    if items.is_empty() && !wanted.prefix {
        return Err(Failure::Engine { what: format!("there is no key {:?}", wanted.key), exit: Exit::Found });
    }
    Ok(Exit::Done)
}

pub(super) fn describe(item: &Item) -> serde_json::Value {
    json!({
        "key": json_of(&item.key),
        "value": json_of(&item.value),
        "version": item.version,
        "created": item.created,
        "modified": item.modified,
        "session": (item.session != 0).then(|| item.session.to_string()),
    })
}

async fn put(wanted: &PutArguments, here: &Here, console: &mut Console<'_>) -> Result<Exit, Failure> {
    check_key(&wanted.key)?;
    let value = if wanted.value == "-" {
        let mut value = Vec::new();
        std::io::stdin().read_to_end(&mut value)?;
        value
    } else {
        wanted.value.clone().into_bytes()
    };
    let put = Put { key: wanted.key.clone().into(), value: value.into(), session: wanted.session, ..Put::default() };
    let guards = txn::guards(&wanted.key, wanted.if_absent, wanted.if_version, wanted.holding.as_deref(), here)?;
    if guards.is_empty() {
        let done = here.client.submit(Command::Put(put)).await.map_err(changing)?;
        let Reply::Written(written) = &done.reply else { return Err(unexpected(&done.reply)) };
        return told(
            wanted.form,
            done.revision,
            json!({ "written": true, "version": written.item.as_ref().map(|it| it.version) }),
            "written",
            console,
        );
    }
    let (held, revision) = txn::guarded(guards, put, here).await?;
    if held || wanted.form.json {
        told(wanted.form, revision, json!({ "written": held }), "written", console)?;
    }
    if held {
        return Ok(Exit::Done);
    }
    Err(Failure::Engine {
        what: format!("{:?} was not written: what was asked of it does not hold; read it and decide again", wanted.key),
        exit: Exit::Found,
    })
}

async fn del(wanted: &DelArguments, here: &Here, console: &mut Console<'_>) -> Result<Exit, Failure> {
    if !wanted.prefix {
        check_key(&wanted.key)?;
    }
    let span = span(&wanted.key, wanted.prefix);
    let mut count = 0;
    let revision = loop {
        match delete(span.clone(), here).await {
            // More than the service deletes at once: so many as it does, and again.
            Err(Unanswered::Refused(Refusal::Limit { .. })) if wanted.prefix => {}
            Err(why) => return Err(changing(why)),
            Ok((deleted, revision)) => {
                count += deleted;
                break revision;
            }
        }
        let limit = Limits::STANDARD.deleted_max as u64;
        let first = Range { span: Some(span.clone()), limit, keys_only: true, ..Range::default() };
        let shown = here.client.ask(Query::Range(first), Consistency::Linearizable).await.map_err(asking)?;
        let Answer::Items(page) = shown.answer else { return Err(unexpected(&shown.answer)) };
        if let Some(last) = page.items.last() {
            let part = Span { start: span.start.clone(), end: [&last.key[..], &[0]].concat().into() };
            count += delete(part, here).await.map_err(changing)?.0;
        }
    };
    told(wanted.form, revision, json!({ "deleted": count }), &format!("{count} deleted"), console)
}

async fn delete(span: Span, here: &Here) -> Result<(u64, u64), Unanswered> {
    let done = here.client.submit(Command::Delete(Delete { span: Some(span), wants_previous: false })).await?;
    let Reply::Deleted(deleted) = &done.reply else {
        return Err(Unanswered::Unknown { why: format!("the service has answered something else: {:?}", done.reply) });
    };
    Ok((deleted.count, done.revision))
}

/// Says what was done, at which revision.
fn told(form: Form, revision: u64, more: serde_json::Value, what: &str, console: &mut Console<'_>) -> Result<Exit, Failure> {
    if form.json {
        let mut document = json!({ "revision": revision });
        if let (Some(document), serde_json::Value::Object(more)) = (document.as_object_mut(), more) {
            document.extend(more);
        }
        writeln!(console.out, "{document:#}")?;
    } else {
        writeln!(console.out, "{what}, revision {revision}")?;
    }
    Ok(Exit::Done)
}

async fn watch(wanted: &WatchArguments, here: &Here, console: &mut Console<'_>) -> Result<Exit, Failure> {
    if !wanted.prefix {
        check_key(&wanted.key)?;
    }
    let interest = Interest::of(Topic::Keys(span(&wanted.key, wanted.prefix)));
    let mut watch = here.client.watch(interest, wanted.from);
    let mut gone = pin!(reader_gone());
    let mut lines = 0;
    loop {
        let batch = tokio::select! {
            batch = watch.next() => batch,
            () = &mut gone => return Err(Failure::ReaderGone),
        };
        let batch = match batch {
            Ok(batch) => batch,
            Err(Cease::Refused(why)) => {
                return Err(Failure::Engine { what: format!("the watch has ended: {why}"), exit: Exit::Refused });
            }
            Err(Cease::Closed) => return Ok(Exit::Done),
        };
        for event in &batch.events {
            print_change(event, wanted.form, console)?;
            lines += 1;
            if wanted.count.is_some_and(|count| lines >= count) {
                console.out.flush()?;
                return Ok(Exit::Done);
            }
        }
        console.out.flush()?;
    }
}

fn print_change(event: &Event, form: Form, console: &mut Console<'_>) -> Result<(), Failure> {
    let (word, item) = if let Some(Change::Put(put)) = &event.change {
        ("put", &put.item)
    } else if let Some(Change::Deleted(deleted)) = &event.change {
        ("deleted", &deleted.previous)
    } else {
        return Ok(());
    };
    if form.json {
        writeln!(console.out, "{}", json!({ "revision": event.revision, "change": word, "item": describe(item) }))?;
    } else {
        let value = if word == "put" { format!("\t{}", shown(&item.value)) } else { String::new() };
        writeln!(console.out, "{}\t{word}\t{}{value}", event.revision, shown(&item.key))?;
    }
    Ok(())
}

fn shown(bytes: &[u8]) -> String {
    on_one_line(&String::from_utf8_lossy(bytes))
}
