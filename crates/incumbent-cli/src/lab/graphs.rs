//! `incumbent lab graphs`: every way to cut the links of five nodes, and what each protocol makes of it.

use std::num::NonZeroUsize;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use incumbent_lab::compare::finding;
use incumbent_lab::graphs::{DIRECTED, Graph, GraphPlan, Row, Selection, Start};
use incumbent_protocol::machine::Kind;
use incumbent_protocol::settings::Pace;

use super::compare::{guard_word, guards, protocols, threads, wrapped};
use crate::console::{Console, Form};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::table::{Entry, Side, Table, Tone};

pub(crate) const EXAMPLES: &str = "\
Examples:
  incumbent lab graphs                                    all 1024 graphs, every protocol
  incumbent lab graphs --protocol raft --guard on         does Raft always find a leader?
  incumbent lab graphs --directed --samples 5000          links that work one way only
  incumbent lab graphs --json | jq '.rows[].leaderless'   the graphs that were left without a leader";

/// Graphs named in the text; `--json` has all.
const NAMED_MAX: usize = 4;

#[derive(clap::Args, Debug)]
pub(crate) struct Graphs {
    /// Which protocols; all unless given
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = protocols())]
    protocol: Vec<Kind>,
    /// With the quorum guard, without, or both
    #[arg(long, value_delimiter = ',', value_name = "WHETHER", value_parser = guards(), default_value = "on,off")]
    guard: Vec<bool>,
    /// Cut the links of a group that has a leader, of one that is just starting, or both
    #[arg(long, value_delimiter = ',', value_name = "WHEN", value_parser = starts(), default_value = "led,cold")]
    start: Vec<Start>,
    /// How many simulated seconds each graph is observed
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Graphs in which each way of a link works or not, drawn by chance, instead of all in which links work both ways
    #[arg(long)]
    directed: bool,
    /// How many of them
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "directed",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(DIRECTED)))]
    samples: u32,
    /// The seed of the first graph; the next takes the next number
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How many runs go on at one time; the number of processors unless given. Changes no figure
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    #[command(flatten)]
    form: Form,
}

fn starts() -> impl TypedValueParser<Value = Start> {
    PossibleValuesParser::new(["led", "cold"]).map(|name| if name == "led" { Start::Led } else { Start::Cold })
}

/// Tries all graphs and prints what came of them.
pub(crate) fn run(wanted: Graphs, interrupt: &Interrupt, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let Graphs { protocol, guard, start, seconds, directed, samples, seed, jobs, form } = wanted;
    let plan = GraphPlan {
        selection: if directed { Selection::SomeDirected(samples) } else { Selection::AllUndirected },
        kinds: if protocol.is_empty() { Kind::ALL.to_vec() } else { protocol },
        guards: guard,
        starts: start,
        lasts: Duration::from_secs(seconds.into()),
        seed,
    };
    let rows = {
        let progress = Progress::new(plan.runs(), interrupt);
        plan.run(threads(jobs), &progress)
    };
    let command = command_for(&plan, seconds);
    if form.json {
        print_json(&plan, &rows, &command, console)?;
    } else {
        print_text(&plan, &rows, &command, console)?;
    }
    // The guard promises that it cannot be: that is a violation, not a figure.
    let broken = rows.iter().any(|row| row.guarded && row.two_leaders().next().is_some());
    Ok(if broken { Exit::Found } else { Exit::Done })
}

/// The command that gives the same table again.
fn command_for(plan: &GraphPlan, seconds: u32) -> String {
    let joined = |words: Vec<&str>| words.join(",");
    let kinds = joined(plan.kinds.iter().map(|kind| kind.name()).collect());
    let guards = joined(plan.guards.iter().map(|guarded| guard_word(*guarded)).collect());
    let starts = joined(plan.starts.iter().map(|start| start_word(*start)).collect());
    let selection = match plan.selection {
        Selection::AllUndirected => String::new(),
        Selection::SomeDirected(samples) => format!(" --directed --samples {samples}"),
    };
    let seed = plan.seed;
    format!(
        "incumbent lab graphs --protocol {kinds} --guard {guards} --start {starts} --seconds {seconds}{selection} --seed {seed}"
    )
}

fn print_text(plan: &GraphPlan, rows: &[Row], command: &str, console: &mut Console<'_>) -> Result<(), Failure> {
    let paint = console.paint;
    let (graphs, hopeful) = rows.first().map_or((0, 0), |row| (row.outcomes.len(), row.hopeful().count()));
    let patience = Pace::LAN.patience_max;
    let kind = match plan.selection {
        Selection::AllUndirected => "link graphs of five nodes",
        Selection::SomeDirected(_) => "drawn graphs of five nodes with links that may work one way only",
    };
    writeln!(
        console.out,
        "{graphs} {kind}, {} s each. In {} of them some node reaches a majority both ways;\nonly there can a guarded group have a leader. T is the longest patience, {} ms.",
        plan.lasts.as_secs(),
        paint.strong(hopeful),
        patience.as_millis()
    )?;
    for &start in &plan.starts {
        let shown: Vec<&Row> = rows.iter().filter(|row| row.start == start).collect();
        let title = match start {
            Start::Led => "Links cut while all follow a leader",
            Start::Cold => "Links cut from the beginning",
        };
        writeln!(console.out, "\n{}", paint.strong(title))?;
        table(&shown, patience).print("  ", console)?;
        for row in shown {
            if let Some(finding) = left_alone(row) {
                writeln!(console.out, "{}", wrapped(&finding, "  "))?;
            }
        }
    }
    writeln!(console.out, "\n{}\n", wrapped(&safety(rows), ""))?;
    writeln!(console.out, "{LEGEND}\n")?;
    let made: usize = rows.iter().map(|row| row.outcomes.len()).sum();
    if made < plan.runs() {
        writeln!(console.out, "{} {made} of {} runs were made", paint.bad("Interrupted:"), plan.runs())?;
    }
    writeln!(console.out, "The same table again: {command}")?;
    Ok(())
}

const LEGEND: &str = "\
led at the end   of the graphs in which some node reaches a majority, those with a leader at the end
by 2T            of these, those with a leader within twice the longest patience after the cut (at once, if the old one could stay)
slowest          how long that took at the most; never: one of them never had a leader
no leader        how long such a graph had no leader, at the longest
changes, terms   how often a node took office, and how far the term rose, in one graph at the most
two leaders at once: in how many of all graphs, and for how long at the most";

fn table(rows: &[&Row], patience: Duration) -> Table {
    let heads = ["led at the end", "by 2T", "by 3T", "by 5T", "slowest", "no leader", "changes", "terms"];
    let heads = [("protocol", Side::Left), ("guard", Side::Left)].into_iter().chain(heads.map(|head| (head, Side::Right)));
    let mut table = Table::new(heads.chain([("two leaders at once", Side::Left)]));
    for row in rows {
        let hopeful = row.hopeful().count();
        let led = hopeful - row.leaderless().count();
        let within = |times: u32| Entry::from(row.led_within(patience * times).to_string());
        let two = row.two_leaders().count();
        table.row(vec![
            row.kind.name().into(),
            guard_word(row.guarded).into(),
            Entry::new(format!("{led} of {hopeful}"), if led == hopeful { Tone::Plain } else { Tone::Bad }),
            within(2),
            within(3),
            within(5),
            row.slowest().map_or_else(|| Entry::new("never", Tone::Bad), |span| finding::time(span).into()),
            finding::time(row.longest_vacancy()).into(),
            row.most_changes().to_string().into(),
            row.most_terms().to_string().into(),
            if two == 0 {
                Entry::new("never", Tone::Good)
            } else {
                Entry::new(format!("{two} graphs, up to {}", finding::time(row.longest_overlap())), Tone::Bad)
            },
        ]);
    }
    table
}

/// "ring, guard on: no leader at the end in 16 graphs that allow one, such as 1-2 1-5; …"
fn left_alone(row: &Row) -> Option<String> {
    let graphs: Vec<&Graph> = row.leaderless().collect();
    if graphs.is_empty() {
        return None;
    }
    let named: Vec<String> = graphs.iter().take(NAMED_MAX).map(|graph| format!("[{graph}]")).collect();
    Some(format!(
        "{} with guard {}: {} graphs that allow a leader had none at the end, such as {}",
        row.kind,
        guard_word(row.guarded),
        graphs.len(),
        named.join(", ")
    ))
}

/// One sentence on the question that matters most.
fn safety(rows: &[Row]) -> String {
    let split: Vec<&Row> = rows.iter().filter(|row| row.two_leaders().next().is_some()).collect();
    let named = |guarded: bool| {
        let mut names: Vec<&str> = split.iter().filter(|row| row.guarded == guarded).map(|row| row.kind.name()).collect();
        names.sort_unstable();
        names.dedup();
        names.join(", ")
    };
    let mut parts = Vec::new();
    if rows.iter().any(|row| row.guarded) {
        parts.push(match named(true) {
            names if names.is_empty() => "With guard no graph ever had two leaders at once.".to_owned(),
            names => format!("With guard there were two leaders at once ({names}): that must not be, please report it."),
        });
    }
    if rows.iter().any(|row| !row.guarded) {
        parts.push(match named(false) {
            names if names.is_empty() => "Without guard there were none either.".to_owned(),
            names => format!("Without guard there were two leaders at once with {names}."),
        });
    }
    parts.join(" ")
}

fn print_json(plan: &GraphPlan, rows: &[Row], command: &str, console: &mut Console<'_>) -> Result<(), Failure> {
    let patience = Pace::LAN.patience_max;
    let ms = |span: Duration| span.as_micros() as f64 / 1000.0;
    let names = |graphs: &mut dyn Iterator<Item = &Graph>| graphs.map(ToString::to_string).collect::<Vec<_>>();
    let row = |row: &Row| {
        let within: serde_json::Map<_, _> =
            [1, 2, 3, 5, 10].map(|times| (format!("{times}T"), row.led_within(patience * times).into())).into_iter().collect();
        serde_json::json!({
            "start": start_word(row.start),
            "protocol": row.kind.name(),
            "guarded": row.guarded,
            "graphs": row.outcomes.len(),
            "hopeful": row.hopeful().count(),
            "led_at_end": row.hopeful().count() - row.leaderless().count(),
            "led_within": within,
            "slowest_ms": row.slowest().map(ms),
            "longest_leaderless_ms": ms(row.longest_vacancy()),
            "most_changes": row.most_changes(),
            "most_terms": row.most_terms(),
            "longest_two_leaders_ms": ms(row.longest_overlap()),
            "leaderless": names(&mut row.leaderless()),
            "two_leaders": names(&mut row.two_leaders()),
        })
    };
    let document = serde_json::json!({
        "command": command,
        "patience_max_ms": ms(patience),
        "runs_made": rows.iter().map(|row| row.outcomes.len()).sum::<usize>(),
        "runs_planned": plan.runs(),
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
    });
    writeln!(console.out, "{document:#}")?;
    Ok(())
}

fn start_word(start: Start) -> &'static str {
    match start {
        Start::Led => "led",
        Start::Cold => "cold",
    }
}
