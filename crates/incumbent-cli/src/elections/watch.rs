//! `incumbent watch`: a line whenever somebody else leads, or nobody does.
//!
//! Being stopped is the usual end of it, and so no failure; unless it was to see a number of changes first.

use std::pin::pin;
use std::time::SystemTime;

use incumbent::engine::Leader;
use serde_json::json;

use super::describe;
use super::target::{Target, TargetArguments, answer};
use crate::console::{Console, Form, on_one_line, reader_gone};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::Interrupt;

pub(crate) const EXAMPLES: &str = "\
Examples:
  incumbent watch billing --on redis://127.0.0.1/prod
  incumbent watch billing --json | while read -r change; do ...; done
  incumbent watch billing --count 1      who leads now; 2: and who leads next";

#[derive(clap::Args, Debug)]
pub(crate) struct WatchArguments {
    /// The name of the election
    election: String,
    /// End after this many lines; the first says who leads at the beginning
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// Looks on until told to stop.
pub(crate) async fn run(wanted: &WatchArguments, interrupt: &Interrupt, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let begun = async {
        let election = Target::find(&wanted.target)?.election(&wanted.election).await?;
        // An observer waits for an engine that is not there for as long as it takes; whoever has just mistyped a URL wants to know.
        answer(election.look()).await.map_err(|why| Failure::asking(&why))?;
        Ok::<_, Failure>(election)
    };
    let election = tokio::select! {
        begun = begun => begun?,
        () = interrupt.wait() => return Ok(Exit::Interrupted),
    };
    let mut observer = election.observe();
    let mut gone = pin!(reader_gone());
    let mut lines = 0;
    while wanted.count.is_none_or(|count| lines < count) {
        let leader = tokio::select! {
            leader = observer.next() => leader,
            () = &mut gone => return Err(Failure::ReaderGone),
            () = interrupt.wait() => {
                return Ok(if wanted.count.is_some() { Exit::Interrupted } else { Exit::Done });
            }
        };
        print(wanted, leader.as_ref(), console)?;
        console.out.flush()?;
        lines += 1;
    }
    Ok(Exit::Done)
}

fn print(wanted: &WatchArguments, leader: Option<&Leader>, console: &mut Console<'_>) -> Result<(), Failure> {
    let now = SystemTime::now();
    if wanted.form.json {
        let line = json!({
            "at": describe::time(now),
            "at_ms": describe::wall_ms(now),
            "election": wanted.election,
            "leader": leader.map(describe::leader),
        });
        writeln!(console.out, "{line}")?;
        return Ok(());
    }
    let (at, paint) = (describe::time(now), console.paint);
    match leader {
        Some(Leader { identity, token, value, .. }) => {
            let value = if value.is_empty() { String::new() } else { format!(": {}", on_one_line(value)) };
            writeln!(console.out, "{at}  {} leads with token {token}{value}", paint.strong(on_one_line(identity.name())))?;
        }
        None => writeln!(console.out, "{at}  {}", paint.bad("nobody leads"))?,
    }
    Ok(())
}
