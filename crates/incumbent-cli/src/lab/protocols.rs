//! `incumbent lab protocols`: which there are, and of each first what it does not promise.

use incumbent_protocol::machine::Kind;
use incumbent_protocol::settings::Pace;

use crate::console::{Console, Form};
use crate::exit::Exit;
use crate::failure::Failure;

/// What decides, in one line.
fn rule(kind: Kind) -> &'static str {
    match kind {
        Kind::Bully => "the greatest id that answers leads (Garcia-Molina 1982)",
        Kind::Ring => "a list of ids goes round, the greatest on it leads (Le Lann 1977)",
        Kind::ChangRoberts => "only the greatest id comes round the ring (Chang and Roberts 1979)",
        Kind::Raft => "a majority votes, once a term (Ongaro and Ousterhout 2014)",
    }
}

/// What is lost when the quorum guard is off.
fn unguarded(kind: Kind) -> &'static str {
    match kind {
        Kind::Bully | Kind::Ring | Kind::ChangRoberts => {
            "every part of a split network elects its own leader: two at once, told apart only by their tokens"
        }
        Kind::Raft => {
            "one leader a term still, but a leader that is cut off believes in itself until it hears of a later term: two at once"
        }
    }
}

/// What the guard gives, and on what it rests.
fn guarded() -> String {
    format!(
        "at most one leader at any instant, as long as clock rates differ by less than {} ppm; no leader without a majority",
        Pace::LAN.drift_ppm
    )
}

/// Prints the list.
pub(crate) fn run(form: Form, console: &mut Console<'_>) -> Result<Exit, Failure> {
    if form.json {
        print_json(console)?
    } else {
        print_text(console)?
    }
    Ok(Exit::Done)
}

fn print_json(console: &mut Console<'_>) -> Result<(), Failure> {
    let entries: Vec<_> = Kind::ALL
        .iter()
        .map(|&kind| {
            serde_json::json!({
                "name": kind.name(),
                "rule": rule(kind),
                "unguarded": { "two_leaders_at_once": true, "because": unguarded(kind) },
                "guarded": { "two_leaders_at_once": false, "because": guarded() },
            })
        })
        .collect();
    writeln!(console.out, "{:#}", serde_json::json!({ "protocols": entries }))?;
    Ok(())
}

fn print_text(console: &mut Console<'_>) -> Result<(), Failure> {
    let paint = console.paint;
    for kind in Kind::ALL {
        writeln!(console.out, "{}: {}", paint.strong(kind), rule(kind))?;
        writeln!(console.out, "  {} {}", paint.bad("without the quorum guard, not safe:"), unguarded(kind))?;
        writeln!(console.out, "  {} {}\n", paint.good("with it, the default:"), guarded())?;
    }
    Ok(())
}
