//! `incumbent candidates`: who waits for the seat, next one first where there is a line.

use incumbent::guarantees::Order;
use serde_json::json;

use super::Looking;
use super::target::{Target, answer};
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::table::{Side, Table};

pub(crate) const EXAMPLES: &str = "\
Examples:
  incumbent candidates billing --on zookeeper://127.0.0.1/prod
  incumbent candidates billing --json | jq -r '.candidates[].name'";

/// Looks, and prints who waits.
pub(crate) async fn run(wanted: &Looking, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let election = Target::find(&wanted.target)?.election(&wanted.election).await?;
    let waiting = answer(election.look()).await.map_err(|why| Failure::asking(&why))?.candidates;
    let promised = election.guarantees();
    let order = match promised.order {
        Order::Line => "line",
        Order::Race => "race",
    };
    if wanted.form.json {
        let candidates: Vec<_> = waiting
            .iter()
            .map(|it| json!({ "name": it.identity.name(), "identity": it.identity.as_str(), "priority": it.priority }))
            .collect();
        let document = json!({
            "election": election.name().as_str(),
            "engine": promised.engine,
            "listed": promised.lists_candidates,
            "order": order,
            "candidates": candidates,
        });
        writeln!(console.out, "{document:#}")?;
    } else if !promised.lists_candidates {
        writeln!(console.out, "{} does not know who waits: candidates ask it now and then, and leave no trace", promised.engine)?;
    } else if waiting.is_empty() {
        writeln!(console.out, "nobody waits for {}", wanted.election)?;
    } else {
        let mut table =
            Table::new([("", Side::Right), ("candidate", Side::Left), ("priority", Side::Right), ("identity", Side::Left)]);
        for (place, it) in (1..).zip(&waiting) {
            let place = match promised.order {
                Order::Line => place.to_string(),
                // A number would say that there is an order.
                Order::Race => "-".to_owned(),
            };
            table.row(vec![place.into(), it.identity.name().into(), it.priority.to_string().into(), it.identity.as_str().into()]);
        }
        table.print("", console)?;
    }
    Ok(Exit::Done)
}
