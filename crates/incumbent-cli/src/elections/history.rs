//! `incumbent history`: who led before, newest first, for how long, and why it ended; where the engine keeps it.

use std::time::{Duration, SystemTime};

use incumbent::Token;
use incumbent::engine::Board;
use serde_json::{Value, json};

use super::target::{Target, answer};
use super::{Looking, describe, span};
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::table::{Entry, Side, Table, Tone};

pub(crate) const EXAMPLES: &str = "\
Examples:
  incumbent history billing --on postgres://127.0.0.1/app
  incumbent history billing --json | jq '.past[] | select(.reason == \"lease expired\")'";

/// Looks, and prints what was before.
pub(crate) async fn run(wanted: &Looking, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let election = Target::find(&wanted.target)?.election(&wanted.election).await?;
    let board = answer(election.look()).await.map_err(|why| Failure::asking(&why))?;
    let promised = election.guarantees();
    if wanted.form.json {
        let document = json!({
            "election": election.name().as_str(),
            "engine": promised.engine,
            "kept": promised.keeps_history,
            "leaders": board.leaders.iter().map(|it| noted(describe::leader(it), &board, it.token)).collect::<Vec<_>>(),
            "past": board.past.iter().map(|it| noted(describe::past(it), &board, it.token)).collect::<Vec<_>>(),
        });
        writeln!(console.out, "{document:#}")?;
    } else if !promised.keeps_history {
        writeln!(console.out, "{} keeps no history: use `incumbent watch` to keep one", promised.engine)?;
    } else if board.leaders.is_empty() && board.past.is_empty() {
        writeln!(console.out, "nobody has led {} yet", wanted.election)?;
    } else {
        table(&board).print("", console)?;
    }
    Ok(Exit::Done)
}

fn note_of(board: &Board, token: Token) -> Option<&str> {
    board.notes.iter().find(|it| it.token == token).map(|it| it.text.as_str())
}

fn noted(mut document: Value, board: &Board, token: Token) -> Value {
    document["note"] = json!(note_of(board, token));
    document
}

fn table(board: &Board) -> Table {
    let mut table = Table::new([
        ("token", Side::Right),
        ("leader", Side::Left),
        ("since", Side::Left),
        ("lasted", Side::Right),
        ("ended", Side::Left),
        ("noted", Side::Left),
    ]);
    for it in board.leaders.iter().rev() {
        let since = it.since.map_or_else(String::new, describe::time);
        let lasted = it.since.and_then(|it| SystemTime::now().duration_since(it).ok()).map_or_else(String::new, span::long);
        table.row(vec![
            it.token.to_string().into(),
            it.identity.name().into(),
            since.into(),
            lasted.into(),
            Entry::new("in office", Tone::Good),
            note_of(board, it.token).unwrap_or_default().into(),
        ]);
    }
    for it in &board.past {
        let lasted = Duration::from_millis(it.until_ms.saturating_sub(it.since_ms));
        table.row(vec![
            it.token.to_string().into(),
            it.identity.name().into(),
            describe::time(describe::wall(it.since_ms)).into(),
            span::measured(lasted).into(),
            it.reason.clone().into(),
            note_of(board, it.token).unwrap_or_default().into(),
        ]);
    }
    table
}
