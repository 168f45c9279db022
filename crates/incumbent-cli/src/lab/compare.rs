//! `incumbent lab compare`: the protocols side by side, measured over seeded runs.
//!
//! The same command prints the same figures, whatever `--jobs` says.

use std::fs::OpenOptions;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use incumbent_lab::compare::finding;
use incumbent_lab::compare::report::{Origin, report as compared};
use incumbent_lab::compare::scenario::Scenario;
use incumbent_lab::compare::trial::{Figures, Place};
use incumbent_lab::compare::{Cell, Plan, Wish};
use incumbent_lab::report;
use incumbent_protocol::machine::Kind;

use crate::console::{Console, Form};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::table::{Entry, Side, Table, Tone};

pub(crate) const EXAMPLES: &str = "\
Examples:
  incumbent lab compare                                             all scenarios, the usual sizes
  incumbent lab compare --scenario partition --protocol bully,raft  who has two leaders?
  incumbent lab compare --scenario leader-crash --nodes 3,7,30      how messages and times grow
  incumbent lab compare --html report.html                          plots, and runs to watch
  incumbent lab compare --pace wan --runs 1000 --json > wan.json    every figure, for a program";

/// More sizes than this are shown as growth, and one of them in full.
const SIZES_IN_FULL_MAX: usize = 2;

/// Sentences are broken before this column.
const LINE_MAX: usize = 110;

#[derive(clap::Args, Debug)]
pub(crate) struct Compare {
    /// What happens; all unless given
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = scenarios())]
    scenario: Vec<Scenario>,
    /// How many nodes the groups have; 5, and 3,5,10,50,100 where growth is the question, unless given
    #[arg(long, value_delimiter = ',', value_name = "N")]
    nodes: Vec<u32>,
    /// Which protocols; all unless given
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = protocols())]
    protocol: Vec<Kind>,
    /// With the quorum guard, without, or both
    #[arg(long, value_delimiter = ',', value_name = "WHETHER", value_parser = guards(), default_value = "on,off")]
    guard: Vec<bool>,
    /// The network and the timing that fits it
    #[arg(long, value_name = "PLACE", value_parser = places(), default_value = "lan")]
    pace: Place,
    /// Runs of each protocol, guard, size and scenario
    #[arg(long, value_name = "N", default_value_t = 100)]
    runs: u32,
    /// The seed of the first run; the next takes the next number
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How many runs go on at one time; the number of processors unless given. Changes no figure
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Write a report with plots and runs to watch: one HTML file that needs nothing else
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    form: Form,
}

fn scenarios() -> impl TypedValueParser<Value = Scenario> {
    PossibleValuesParser::new(Scenario::ALL.map(Scenario::name)).try_map(|name| name.parse())
}

pub(super) fn protocols() -> impl TypedValueParser<Value = Kind> {
    PossibleValuesParser::new(Kind::ALL.map(Kind::name)).try_map(|name| name.parse())
}

pub(super) fn guards() -> impl TypedValueParser<Value = bool> {
    PossibleValuesParser::new(["on", "off"]).map(|name| name == "on")
}

pub(super) fn places() -> impl TypedValueParser<Value = Place> {
    PossibleValuesParser::new(Place::ALL.map(Place::name))
        .map(|name| Place::ALL.into_iter().find(|place| place.name() == name).expect("one of the possible values"))
}

/// As many as there are processors.
pub(super) fn threads(jobs: Option<NonZeroUsize>) -> NonZeroUsize {
    jobs.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN)
}

/// Compares and prints.
pub(crate) fn run(wanted: Compare, interrupt: &Interrupt, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let Compare { scenario, nodes, protocol, guard, pace, runs, seed, jobs, html, form } = wanted;
    let wish = Wish { scenarios: scenario, nodes, kinds: protocol, guards: guard, place: pace, runs, seed };
    let command = command_for(&wish);
    let plan = Plan::new(wish).map_err(|wrong| Failure::Input {
        what: wrong.to_string(),
        hint: "see `incumbent lab compare --help` for what can be asked",
    })?;
    if let Some(path) = &html {
        // Better now than after a long measurement.
        OpenOptions::new().append(true).create(true).open(path).map_err(|wrong| Failure::file("write", path, &wrong))?;
    }
    let cells = {
        let progress = Progress::new(plan.trials(), interrupt);
        plan.run(threads(jobs), &progress)
    };
    if let Some(path) = &html {
        let origin = Origin { version: env!("CARGO_PKG_VERSION").into(), command: command.clone(), date: today() };
        let page = report::render(&compared(&plan, &cells, origin, threads(jobs)));
        std::fs::write(path, page).map_err(|wrong| Failure::file("write", path, &wrong))?;
    }
    if form.json {
        print_json(&plan, &cells, &command, console)?;
    } else {
        print_text(&plan, &cells, &command, console)?;
        if let Some(path) = &html {
            writeln!(console.out, "The report: {}", path.display())?;
        }
    }
    // The guard promises that it cannot be: that is a violation, not a figure.
    let broken = cells.iter().any(|cell| cell.guarded && cell.split_brain_runs() > 0);
    Ok(if broken { Exit::Found } else { Exit::Done })
}

/// The date in UTC, as `2026-11-15`.
fn today() -> String {
    let days = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400);
    let (year, month, day) = date(days);
    format!("{year}-{month:02}-{day:02}")
}

/// Year, month and day of the Gregorian calendar, so many days after the first of January 1970.
fn date(days: u64) -> (u64, u64, u64) {
    // Counted from the first of March 0000: then the odd day of a leap year comes last, and months follow one formula (Hinnant,
    // "chrono-compatible low-level date algorithms").
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let months_since_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * months_since_march + 2) / 5 + 1;
    let month = if months_since_march < 10 { months_since_march + 3 } else { months_since_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// The command that gives the same figures again, also where a default should change one day.
fn command_for(wish: &Wish) -> String {
    let mut command = String::from("incumbent lab compare");
    let mut option = |name: &str, values: Vec<String>| {
        if !values.is_empty() {
            command.push_str(&format!(" --{name} {}", values.join(",")));
        }
    };
    option("scenario", wish.scenarios.iter().map(ToString::to_string).collect());
    option("nodes", wish.nodes.iter().map(ToString::to_string).collect());
    option("protocol", wish.kinds.iter().map(ToString::to_string).collect());
    option("guard", wish.guards.iter().map(|guarded| guard_word(*guarded).to_owned()).collect());
    option("pace", vec![wish.place.name().to_owned()]);
    option("runs", vec![wish.runs.to_string()]);
    option("seed", vec![wish.seed.to_string()]);
    command
}

fn print_text(plan: &Plan, cells: &[Cell], command: &str, console: &mut Console<'_>) -> Result<(), Failure> {
    let paint = console.paint;
    for (scenario, sizes) in plan.scenarios() {
        let measured: Vec<Cell> =
            cells.iter().filter(|cell| cell.scenario == *scenario && !cell.figures.is_empty()).cloned().collect();
        let Some(detailed) = finding::detailed_size(&measured) else { continue };
        writeln!(console.out, "{}  {}", paint.strong(scenario), scenario.meaning())?;
        let full: Vec<u32> = if sizes.len() <= SIZES_IN_FULL_MAX { sizes.clone() } else { vec![detailed] };
        for nodes in full {
            let shown: Vec<&Cell> = measured.iter().filter(|cell| cell.nodes == nodes).collect();
            let runs = shown.iter().map(|cell| cell.figures.len()).max().unwrap_or(0);
            let plural = |count: usize| if count == 1 { "" } else { "s" };
            let (nodes, runs) = (format!("{nodes} node{}", plural(nodes as usize)), format!("{runs} run{}", plural(runs)));
            writeln!(console.out, "\n  {nodes}, {runs}; p50/p99, times in ms")?;
            details(&shown).print("  ", console)?;
        }
        if sizes.len() > SIZES_IN_FULL_MAX {
            for (title, value) in growths() {
                writeln!(console.out, "\n  {title}, p50")?;
                growth(&measured, sizes, value).print("  ", console)?;
            }
        }
        writeln!(console.out, "\n{}\n", wrapped(&finding::sentence(*scenario, &measured), "  "))?;
    }
    writeln!(console.out, "{LEGEND}\n")?;
    let made: usize = cells.iter().map(|cell| cell.figures.len()).sum();
    if made < plan.trials() {
        writeln!(console.out, "{} {made} of {} runs were made", paint.bad("Interrupted:"), plan.trials())?;
    }
    writeln!(console.out, "The same figures again: {command}")?;
    Ok(())
}

fn print_json(plan: &Plan, cells: &[Cell], command: &str, console: &mut Console<'_>) -> Result<(), Failure> {
    let results: Vec<_> = cells.iter().filter(|cell| !cell.figures.is_empty()).map(result).collect();
    let document = serde_json::json!({
        "command": command,
        "pace": plan.place().name(),
        "runs": plan.runs(),
        "runs_made": cells.iter().map(|cell| cell.figures.len()).sum::<usize>(),
        "runs_planned": plan.trials(),
        // As text: many programs read numbers as 53 bits.
        "seed": plan.seed().to_string(),
        "results": results,
    });
    writeln!(console.out, "{document:#}")?;
    Ok(())
}

fn result(cell: &Cell) -> serde_json::Value {
    let time = |value: fn(&Figures) -> Option<Duration>| {
        // Microseconds are exact enough, and their thousandths print without a tail of digits.
        spread(cell, |it| value(it).map(|span| u64::try_from(span.as_micros()).unwrap_or(u64::MAX)), 1000.0)
    };
    let count = |value: fn(&Figures) -> u64| spread(cell, |it| Some(value(it)), 1.0);
    serde_json::json!({
        "scenario": cell.scenario.name(),
        "nodes": cell.nodes,
        "protocol": cell.kind.name(),
        "guarded": cell.guarded,
        "runs": cell.figures.len(),
        "leaderless_runs": cell.leaderless_runs(),
        "split_brain_runs": cell.split_brain_runs(),
        "split_brain_ms": time(|it| Some(it.overlap)),
        "split_brain_longest_ms": time(|it| Some(it.overlap_longest)),
        "split_brain_incidents": count(|it| it.overlaps),
        "failover_ms": time(|it| it.failover),
        "followed_ms": time(|it| it.followed),
        "election_ms": time(|it| it.election),
        "leaderless_ms": time(|it| Some(it.leaderless)),
        "leader_changes": count(|it| it.leaderships),
        "terms": count(|it| it.terms),
        "messages": count(|it| it.messages),
        "contest_messages": count(|it| it.contest_messages),
        "guard_messages": count(|it| it.guard_messages),
        "bytes": count(|it| it.bytes),
        "contest_bytes": count(|it| it.contest_bytes),
    })
}

/// How a figure is spread over the runs in which there was one, divided by `unit`; null if there was none.
fn spread(cell: &Cell, value: impl Fn(&Figures) -> Option<u64>, unit: f64) -> Option<serde_json::Value> {
    let percentile = |percent| cell.percentile(percent, &value).map(|it| it as f64 / unit);
    let values: Vec<u64> = cell.figures.iter().filter_map(&value).collect();
    let mean = values.iter().sum::<u64>() as f64 / values.len() as f64 / unit;
    Some(serde_json::json!({
        "runs": values.len(),
        "p50": percentile(50)?,
        "p99": percentile(99)?,
        "min": percentile(0)?,
        "max": percentile(100)?,
        "mean": (mean * 1000.0).round() / 1000.0,
    }))
}

const LEGEND: &str = "\
failover   from the beginning of the trouble until the next node is in office
followed   the same, until a majority of all nodes follows it
election   from the first node that contends until one is in office
no leader  how long nobody was in office, in total; 7 to the end: in 7 runs nobody was in office at the end
changes    how often a node took office
contest    the algorithm's own messages; votes: those that the guard adds; all: heartbeats too; KiB: their length without frames
two leaders at once: in how many runs, and for how long at the most";

fn details(cells: &[&Cell]) -> Table {
    let heads = ["failover", "followed", "election", "no leader", "changes", "contest", "votes", "all", "KiB"];
    let heads = heads.map(|head| (head, Side::Right));
    let heads = [("protocol", Side::Left), ("guard", Side::Left)].into_iter().chain(heads);
    let mut table = Table::new(heads.chain([("two leaders at once", Side::Left)]));
    for cell in cells {
        let mut row: Vec<Entry> = vec![cell.kind.name().into(), guard_word(cell.guarded).into()];
        row.extend([
            pair(cell, |it| it.failover, ms).into(),
            pair(cell, |it| it.followed, ms).into(),
            pair(cell, |it| it.election, ms).into(),
            no_leader(cell),
            pair(cell, |it| Some(it.leaderships), |count| count.to_string()).into(),
            pair(cell, |it| Some(it.contest_messages), |count| count.to_string()).into(),
            pair(cell, |it| Some(it.guard_messages), |count| count.to_string()).into(),
            pair(cell, |it| Some(it.messages), |count| count.to_string()).into(),
            pair(cell, |it| Some(it.bytes), kib).into(),
            two_leaders(cell),
        ]);
        table.row(row);
    }
    table
}

/// A figure of one run, as the growth tables show it.
type Shown = fn(&Cell) -> String;

fn growths() -> [(&'static str, Shown); 3] {
    [
        ("messages of the contest", |cell| {
            cell.percentile(50, |it| Some(it.contest_messages)).map_or_else(nothing, |it| it.to_string())
        }),
        ("all messages", |cell| cell.percentile(50, |it| Some(it.messages)).map_or_else(nothing, |it| it.to_string())),
        ("failover, ms", |cell| cell.percentile(50, |it| it.failover).map_or_else(nothing, ms)),
    ]
}

fn growth(cells: &[Cell], sizes: &[u32], value: Shown) -> Table {
    let heads = [("protocol".to_owned(), Side::Left), ("guard".to_owned(), Side::Left)].into_iter();
    let mut table = Table::new(heads.chain(sizes.iter().map(|nodes| (format!("{nodes} nodes"), Side::Right))));
    let first = cells.first().map(|cell| cell.nodes);
    for row in cells.iter().filter(|cell| Some(cell.nodes) == first) {
        let of_size = |nodes: &u32| {
            let cell = cells.iter().find(|it| (it.nodes, it.kind, it.guarded) == (*nodes, row.kind, row.guarded));
            cell.map_or_else(nothing, value).into()
        };
        let entries = [row.kind.name().into(), guard_word(row.guarded).into()];
        table.row(entries.into_iter().chain(sizes.iter().map(of_size)).collect());
    }
    table
}

/// `text` in lines of a readable length, each after `indent`.
pub(super) fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = vec![String::from(indent)];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is a first line");
        if last.len() > indent.len() && last.chars().count() + 1 + word.chars().count() > LINE_MAX {
            lines.push(format!("{indent}{word}"));
        } else {
            last.push_str(if last.len() > indent.len() { " " } else { "" });
            last.push_str(word);
        }
    }
    lines.join("\n")
}

/// `p50/p99`, or a dash if it never happened.
fn pair<T: Ord>(cell: &Cell, value: impl Fn(&Figures) -> Option<T>, shown: impl Fn(T) -> String) -> String {
    match (cell.percentile(50, &value), cell.percentile(99, &value)) {
        (Some(half), Some(most)) => {
            let (half, most) = (shown(half), shown(most));
            if half == most { half } else { format!("{half}/{most}") }
        }
        (_, _) => nothing(),
    }
}

fn no_leader(cell: &Cell) -> Entry {
    let spread = pair(cell, |it| Some(it.leaderless), ms);
    match cell.leaderless_runs() {
        0 => spread.into(),
        runs => Entry::new(format!("{spread}, {runs} to the end"), Tone::Bad),
    }
}

fn two_leaders(cell: &Cell) -> Entry {
    match cell.split_brain_runs() {
        0 => Entry::new("never", Tone::Good),
        runs => {
            let longest = finding::time(cell.greatest(|it| it.overlap_longest).unwrap_or_default());
            Entry::new(format!("{runs} of {} runs, up to {longest}", cell.figures.len()), Tone::Bad)
        }
    }
}

fn nothing() -> String {
    "-".into()
}

pub(super) fn guard_word(guarded: bool) -> &'static str {
    if guarded { "on" } else { "off" }
}

fn ms(span: Duration) -> String {
    let ms = span.as_secs_f64() * 1000.0;
    if ms == 0.0 || ms >= 10.0 { format!("{ms:.0}") } else { format!("{ms:.1}") }
}

fn kib(bytes: u64) -> String {
    let kib = bytes as f64 / 1024.0;
    if kib >= 10.0 { format!("{kib:.0}") } else { format!("{kib:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        for (days, expected) in
            [(0, (1970, 1, 1)), (59, (1970, 3, 1)), (11_016, (2000, 2, 29)), (20_772, (2026, 11, 15)), (47_540, (2100, 2, 28))]
        {
            assert_eq!(date(days), expected);
        }
    }

    #[test]
    fn sentences_are_broken_between_words_and_every_line_is_indented() {
        let text = "word ".repeat(60);
        let lines = wrapped(text.trim_end(), "  ");
        assert!(lines.lines().count() > 2);
        assert!(lines.lines().all(|line| line.starts_with("  word") && line.chars().count() <= LINE_MAX));
        assert_eq!(wrapped("", "  "), "  ");
    }
}
