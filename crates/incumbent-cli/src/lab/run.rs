//! `incumbent lab run FILE`: runs scenarios, prints what happens, says whether it is what the file says.

use std::path::{Path, PathBuf};

use incumbent_lab::observation::Moment;
use incumbent_lab::scenario::{self, Act, Outcome, Scenario, Told};
use incumbent_lab::trace::{Entry, Happening};
use incumbent_protocol::protocol::{Event, NodeId, Wire as _};
use serde_json::{Value, json};

use crate::console::{Console, Form};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::lab::watch::{self, Ended};

const HINT: &str = "correct the line; docs/scenarios.md describes the language";

pub(crate) const EXAMPLES: &str = "\
Examples:
  incumbent lab run scenarios/raft/prevote_returning_node.txt
  incumbent lab run scenarios/bully/*.txt --json | jq -c 'select(.kind == \"leads\")'
  incumbent lab run my.txt --seed 42
  incumbent lab run my.txt --rewrite

Ends with 1 if a trace differs, an expectation is not met or an oracle sees a violation.";

#[derive(clap::Args, Debug)]
pub(crate) struct RunArguments {
    /// The scenarios to run
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Run with this seed instead of the file's; the trace is then not compared, but expectations and oracles still count
    #[arg(long, value_name = "N", conflicts_with = "rewrite")]
    seed: Option<u64>,
    /// Write the traces that came of it into the files. Expectations and oracles still count
    #[arg(long)]
    rewrite: bool,
    /// Show it in the terminal, in slow motion: nodes, links, messages, log
    #[arg(long, conflicts_with_all = ["rewrite", "json"])]
    watch: bool,
    #[command(flatten)]
    form: Form,
}

/// Runs all files. They are all read before the first one is run.
pub(crate) fn run(arguments: &RunArguments, interrupt: &Interrupt, console: &mut Console<'_>) -> Result<Exit, Failure> {
    if arguments.watch {
        watch::check()?;
    }
    let mut scenarios = Vec::new();
    for path in &arguments.files {
        scenarios.push((path, with_seed(read(path)?, arguments.seed)));
    }
    let mut exit = Exit::Done;
    for (path, scenario) in &scenarios {
        if interrupt.asked() {
            break;
        }
        let outcome = scenario::run(scenario);
        let differences: Vec<String> = match arguments.seed.is_some() || arguments.rewrite {
            true => Vec::new(),
            false => outcome.differences(scenario).iter().map(ToString::to_string).collect(),
        };
        if arguments.rewrite {
            let text = outcome.rewritten(scenario);
            std::fs::write(path, text).map_err(|wrong| Failure::file("write", path, &wrong))?;
        }
        let verdict = Verdict { compared: arguments.seed.is_none() && !arguments.rewrite, differences, outcome: &outcome };
        if verdict.is_bad() {
            exit = Exit::Found;
        }
        if arguments.form.json {
            print_json(scenario, &verdict, console)?;
            continue;
        }
        if arguments.watch {
            if watch::watch(scenario, &outcome, interrupt, console)? == Ended::Interrupted {
                return Ok(exit.interrupted());
            }
        } else {
            print_trace(scenario, &outcome, console)?;
        }
        print_verdict(scenario, &verdict, console)?;
    }
    Ok(exit)
}

/// Reads a scenario file.
pub(crate) fn read(path: &Path) -> Result<Scenario, Failure> {
    let text = std::fs::read_to_string(path).map_err(|wrong| Failure::file("read", path, &wrong))?;
    scenario::parse(&path.display().to_string(), &text)
        .map_err(|mistake| Failure::Input { what: mistake.to_string(), hint: HINT })
}

fn with_seed(scenario: Scenario, seed: Option<u64>) -> Scenario {
    match seed {
        Some(seed) => scenario.with_seed(seed),
        None => scenario,
    }
}

/// What there is to say about a run.
struct Verdict<'a> {
    compared: bool,
    differences: Vec<String>,
    outcome: &'a Outcome,
}

impl Verdict<'_> {
    fn is_bad(&self) -> bool {
        !self.differences.is_empty() || !self.outcome.failures.is_empty()
    }
}

fn print_trace(scenario: &Scenario, outcome: &Outcome, console: &mut Console<'_>) -> Result<(), Failure> {
    let paint = console.paint;
    writeln!(console.out, "{}", paint.strong(&scenario.file))?;
    for line in scenario.head.lines() {
        writeln!(console.out, "{}", format!("# {line}").trim_end())?;
    }
    for act in &outcome.acts {
        writeln!(console.out, "{}", paint.strong(format_args!("> {}", act.text)))?;
        for told in outcome.told(act) {
            writeln!(console.out, "{}", told.line())?;
        }
        for line in &act.shown {
            writeln!(console.out, "{line}")?;
        }
    }
    Ok(())
}

fn print_verdict(scenario: &Scenario, verdict: &Verdict<'_>, console: &mut Console<'_>) -> Result<(), Failure> {
    let paint = console.paint;
    for difference in &verdict.differences {
        writeln!(console.out, "\n{} {difference}", paint.bad("differs:"))?;
    }
    if !verdict.differences.is_empty() {
        writeln!(console.out, "\nif it should be so: incumbent lab run {} --rewrite", scenario.file)?;
    }
    for failure in &verdict.outcome.failures {
        writeln!(console.out, "\n{} {}", paint.bad("failed:"), failure.in_file(&scenario.file))?;
    }
    if !verdict.is_bad() {
        let good =
            if verdict.compared { "the trace is the one in the file, and nothing is violated" } else { "nothing is violated" };
        writeln!(console.out, "{} {good}", paint.good("ok:"))?;
    }
    writeln!(console.out)?;
    Ok(())
}

/// One object a line: the scenario, then commands and what came of each, then the result.
fn print_json(scenario: &Scenario, verdict: &Verdict<'_>, console: &mut Console<'_>) -> Result<(), Failure> {
    let members: Vec<u32> = scenario.world.settings.members().iter().map(|id| id.0).collect();
    let mut print = |value: Value| writeln!(console.out, "{value}");
    print(json!({
        "kind": "scenario",
        "file": scenario.file,
        "shows": scenario.head,
        "protocol": scenario.world.kind.name(),
        "nodes": members,
        "seed": scenario.world.seed,
    }))?;
    let outcome = verdict.outcome;
    for act in &outcome.acts {
        print(json!({ "kind": "command", "at_ns": act.at.0, "line": act.line, "text": act.text }))?;
        for told in outcome.told(act) {
            print(told_json(&told, &outcome.entries))?;
        }
        for line in &act.shown {
            print(json!({ "kind": "shown", "at_ns": end_of(act, outcome).0, "text": line }))?;
        }
    }
    let failures: Vec<String> = outcome.failures.iter().map(|failure| failure.in_file(&scenario.file)).collect();
    print(json!({
        "kind": "result",
        "at_ns": outcome.end.0,
        "good": !verdict.is_bad(),
        "compared": verdict.compared,
        "differences": verdict.differences,
        "failures": failures,
    }))?;
    Ok(())
}

/// When the last thing of an act happened.
fn end_of(act: &Act, outcome: &Outcome) -> Moment {
    outcome.entries[act.entries.clone()].last().map_or(act.at, |entry| entry.at)
}

/// A line of the trace as an object.
pub(crate) fn told_json(told: &Told, entries: &[Entry]) -> Value {
    let ids = |of: fn(&Happening) -> Option<NodeId>| -> Vec<u32> {
        let mut ids: Vec<u32> = told.entries.iter().filter_map(|index| of(&entries[*index].what)).map(|id| id.0).collect();
        ids.dedup();
        ids
    };
    let from = |what: &Happening| {
        if let Happening::Sent { from, .. } | Happening::Dropped { from, .. } = what { Some(*from) } else { None }
    };
    let to =
        |what: &Happening| if let Happening::Sent { to, .. } | Happening::Dropped { to, .. } = what { Some(*to) } else { None };
    let who = |what: &Happening| {
        if let Happening::Told { node, .. } | Happening::Started { node, .. } = what { Some(*node) } else { None }
    };
    let mut object = json!({ "at_ns": told.at.0, "text": told.text });
    let rest = match &entries[told.entries[0]].what {
        Happening::Sent { message, .. } => {
            json!({ "kind": "message", "from": ids(from), "to": ids(to), "name": message.name(), "term": message.term().0 })
        }
        Happening::Dropped { message, why, .. } => {
            json!({ "kind": "loss", "from": ids(from), "to": ids(to), "name": message.name(), "term": message.term().0, "why": why.to_string() })
        }
        Happening::Told { event, .. } => event_json(event, ids(who)),
        Happening::Started { disk, .. } => {
            json!({ "kind": "start", "nodes": ids(who), "term": disk.map(|it| it.term.0), "vote": disk.and_then(|it| it.vote).map(|it| it.0) })
        }
        Happening::Received { .. }
        | Happening::Requested { .. }
        | Happening::Changed { .. }
        | Happening::Done(_)
        | Happening::Crashed { .. }
        | Happening::Writing { .. }
        | Happening::Written { .. } => json!({ "kind": "other" }),
    };
    if let (Value::Object(object), Value::Object(rest)) = (&mut object, rest) {
        object.extend(rest);
    }
    object
}

fn event_json(event: &Event, nodes: Vec<u32>) -> Value {
    match event {
        Event::Elected { term } => json!({ "kind": "leads", "nodes": nodes, "term": term.0 }),
        Event::Lost { term, reason } => json!({ "kind": "out", "nodes": nodes, "term": term.0, "reason": reason.to_string() }),
        Event::Follows { leader, term } => json!({ "kind": "follows", "nodes": nodes, "leader": leader.0, "term": term.0 }),
        Event::LeaderGone { leader, term, cause } => {
            json!({ "kind": "gone", "nodes": nodes, "leader": leader.0, "term": term.0, "cause": cause.to_string() })
        }
        Event::Contends { term } => json!({ "kind": "contends", "nodes": nodes, "term": term.0 }),
        Event::Rejected { term } => json!({ "kind": "rejected", "nodes": nodes, "term": term.0 }),
        Event::Asked { to } => json!({ "kind": "asked", "nodes": nodes, "to": to.0 }),
        Event::Ignored { from } => json!({ "kind": "ignored", "nodes": nodes, "from": from.0 }),
    }
}
