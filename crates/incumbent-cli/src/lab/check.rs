//! `incumbent lab check`: goes through every run of a small group, prints how many states that are, and the shortest way to
//! whatever is violated.

use clap::ArgAction;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use incumbent_lab::check::{Begin, Budget, Case, Counterexample, Disk, Report, Scope, check};
use incumbent_protocol::machine::Kind;
use incumbent_protocol::settings::{Guard, PreVote};
use serde_json::{Value, json};

use super::compare;
use crate::console::{Console, Form};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::progress::Progress;

pub(crate) const EXAMPLES: &str = "\
Examples:
  incumbent lab check                                         a leader; then a crash, a request, ...
  incumbent lab check --protocol raft --begin cold --wakes 2  from the first start on
  incumbent lab check --protocol raft --disk hasty            what a disk that lies leads to
  incumbent lab check --json | jq '{protocol, states, end}'

Ends with 1 if something is violated.";

#[derive(clap::Args, Debug)]
pub(crate) struct CheckArguments {
    /// Which protocols; all unless given
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = compare::protocols())]
    protocol: Vec<Kind>,
    /// How many nodes
    #[arg(long, value_name = "N", default_value_t = Scope::NODES)]
    nodes: u32,
    /// With the quorum guard or without
    #[arg(long, value_name = "WHETHER", value_parser = compare::guards(), action = ArgAction::Set, default_value = "on")]
    guard: bool,
    /// Whether candidates ask before they raise the term
    #[arg(long, value_name = "WHETHER", value_parser = compare::guards(), action = ArgAction::Set, default_value = "on")]
    pre_vote: bool,
    /// Begin with the first start of all nodes, or with a leader in office
    #[arg(long, value_name = "WHERE", value_parser = begins(), default_value = "led")]
    begin: Begin,
    /// How often a node may crash
    #[arg(long, value_name = "N", default_value_t = Budget::default().crashes)]
    crashes: u8,
    /// How many messages may be lost, beside those that just never arrive: of these there may be any number
    #[arg(long, value_name = "N", default_value_t = Budget::default().losses)]
    losses: u8,
    /// How many messages may arrive twice
    #[arg(long, value_name = "N", default_value_t = Budget::default().repeats)]
    repeats: u8,
    /// How often a node's clock may come to its deadline
    #[arg(long, value_name = "N", default_value_t = Budget::default().wakes)]
    wakes: u8,
    /// How often a node's user may ask for something: campaign, resign, hand over, suspect, hold for dead
    #[arg(long, value_name = "N", default_value_t = Budget::default().requests)]
    requests: u8,
    /// What the disks are worth: `forgets` loses everything in a crash, `hasty` says that a record is safe before it is
    #[arg(long, value_name = "WORTH", value_parser = disks(), default_value = "honest")]
    disk: Disk,
    /// Cut the search at this many distinct states; each costs some 70 bytes of memory
    #[arg(long, value_name = "N", default_value_t = Scope::STATES_MAX)]
    states_max: usize,
    #[command(flatten)]
    form: Form,
}

fn begins() -> impl TypedValueParser<Value = Begin> {
    PossibleValuesParser::new(Begin::ALL.map(Begin::name)).map(|name| named(Begin::ALL, Begin::name, &name))
}

fn disks() -> impl TypedValueParser<Value = Disk> {
    PossibleValuesParser::new(Disk::ALL.map(Disk::name)).map(|name| named(Disk::ALL, Disk::name, &name))
}

fn named<T: Copy, const N: usize>(all: [T; N], name: fn(T) -> &'static str, wanted: &str) -> T {
    all.into_iter().find(|it| name(*it) == wanted).expect("one of the possible values")
}

/// Searches one protocol after the other and prints what it found in each.
pub(crate) fn run(arguments: &CheckArguments, interrupt: &Interrupt, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let protocols = if arguments.protocol.is_empty() { &Kind::ALL[..] } else { &arguments.protocol };
    let mut exit = Exit::Done;
    for protocol in protocols {
        let scope = scope(*protocol, arguments);
        let report = {
            let progress = Progress::of_states(scope.states_max, interrupt);
            check(&scope, &progress).map_err(|refused| Failure::Input {
                what: refused.to_string(),
                hint: "see `incumbent lab check --help` for what can be searched",
            })?
        };
        if !report.violations.is_empty() {
            exit = Exit::Found;
        }
        if arguments.form.json {
            writeln!(console.out, "{}", as_json(&report))?;
        } else {
            writeln!(console.out, "{report}")?;
        }
        // The next protocol may take minutes.
        console.out.flush()?;
        if interrupt.asked() {
            break;
        }
    }
    Ok(exit)
}

fn scope(protocol: Kind, arguments: &CheckArguments) -> Scope {
    let &CheckArguments { crashes, losses, repeats, wakes, requests, .. } = arguments;
    Scope {
        protocol,
        nodes: arguments.nodes,
        guard: if arguments.guard { Guard::Majority } else { Guard::Off },
        pre_vote: if arguments.pre_vote { PreVote::On } else { PreVote::Off },
        disk: arguments.disk,
        begin: arguments.begin,
        budget: Budget { crashes, losses, repeats, wakes, requests },
        states_max: arguments.states_max,
    }
}

fn as_json(report: &Report) -> Value {
    let scope = &report.scope;
    let Budget { crashes, losses, repeats, wakes, requests } = scope.budget;
    let met: Vec<Value> =
        Case::ALL.iter().zip(report.met).map(|(case, times)| json!({ "case": case.name(), "times": times })).collect();
    json!({
        "protocol": scope.protocol.name(),
        "nodes": scope.nodes,
        "guard": scope.guard != Guard::Off,
        "pre_vote": scope.pre_vote == PreVote::On,
        "begin": scope.begin.name(),
        "disk": scope.disk.name(),
        "budget": { "crashes": crashes, "losses": losses, "repeats": repeats, "wakes": wakes, "requests": requests },
        "end": report.end.name(),
        "states": report.states,
        "transitions": report.transitions,
        "depth": report.depth,
        "node_states": report.node_states,
        "messages": report.messages,
        "met": met,
        "violations": report.violations.iter().map(violation).collect::<Vec<_>>(),
    })
}

fn violation(found: &Counterexample) -> Value {
    let steps: Vec<Value> = found.steps.iter().map(|step| json!({ "action": step.action, "effects": step.effects })).collect();
    json!({ "property": found.property.name(), "text": found.text, "steps": steps })
}
