//! `incumbent who`: who leads an election now. That nobody does is an answer, with an exit code of its own.

use incumbent::engine::{Board, Leader};
use serde_json::json;

use super::target::{Target, answer};
use super::{Looking, describe};
use crate::console::{Console, on_one_line};
use crate::exit::Exit;
use crate::failure::Failure;

pub(crate) const EXAMPLES: &str = "\
Examples:
  incumbent who billing --on etcd://127.0.0.1:2379/prod
  incumbent who billing --json | jq -r .leader.value
  incumbent who billing || { test $? = 4 && echo nobody leads; }";

/// Looks, and prints what was seen.
pub(crate) async fn run(wanted: &Looking, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let election = Target::find(&wanted.target)?.election(&wanted.election).await?;
    let board = answer(election.look()).await.map_err(|why| Failure::asking(&why))?;
    let promised = election.guarantees();
    let waiting = promised.lists_candidates.then_some(board.candidates.len());
    if wanted.form.json {
        let document = json!({
            "election": election.name().as_str(),
            "engine": promised.engine,
            "leader": board.leaders.first().map(describe::leader),
            "leaders": board.leaders.iter().map(describe::leader).collect::<Vec<_>>(),
            "candidates": waiting,
        });
        writeln!(console.out, "{document:#}")?;
    } else {
        print(&wanted.election, &board, waiting, console)?;
    }
    Ok(if board.leaders.is_empty() { Exit::Vacant } else { Exit::Done })
}

fn print(election: &str, board: &Board, waiting: Option<usize>, console: &mut Console<'_>) -> Result<(), Failure> {
    let paint = console.paint;
    if board.leaders.is_empty() {
        writeln!(console.out, "{}", paint.bad(format_args!("nobody leads {election}")))?;
    }
    for Leader { identity, token, value, since, .. } in &board.leaders {
        writeln!(console.out, "{} leads {election}", paint.strong(on_one_line(identity.name())))?;
        writeln!(console.out, "  token       {token}")?;
        if !value.is_empty() {
            writeln!(console.out, "  value       {}", on_one_line(value))?;
        }
        if let Some(since) = since {
            writeln!(console.out, "  since       {}, {}", describe::time(*since), describe::ago(*since))?;
        }
        writeln!(console.out, "  identity    {}", on_one_line(identity.as_str()))?;
    }
    if let Some(waiting) = waiting {
        writeln!(console.out, "  candidates  {waiting}")?;
    }
    Ok(())
}
