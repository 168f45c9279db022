//! `incumbent lab swarm`: thousands of runs drawn from seeds, every one under all oracles; what fails is shrunk and can be had again.
//!
//! The same seeds give the same report whatever `--jobs` says. A long swarm keeps its place in a file (`--resume`) and goes on from there.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use incumbent_lab::plan::Plan;
use incumbent_lab::shrink::shrink;
use incumbent_lab::swarm::{self, Failure as Broken, Report, Swarm};
use incumbent_protocol::machine::Kind;

use super::compare::{protocols, threads};
use crate::console::{Console, Form};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::progress::Progress;

pub(crate) const EXAMPLES: &str = "\
Examples:
  incumbent lab swarm                                     1000 runs of whatever the seeds draw
  incumbent lab swarm --protocol raft --seeds 100000      many runs of one protocol
  incumbent lab swarm --seeds 5000000 --resume night.json stop it and start it again: it goes on
  incumbent lab swarm --seed 4711 --protocol bully        one run again, with its plan and its end";

/// Seeds between two notes of the place in the file.
const SEEDS_PER_NOTE: u64 = 4096;

/// Runs that shrinking a failure may take.
const SHRINK_RUNS_MAX: u32 = 400;

#[derive(clap::Args, Debug)]
pub(crate) struct SwarmArguments {
    /// How many runs
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    seeds: u64,
    /// The seed of the first run
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1_000_000_000_000))]
    from: u64,
    /// Make one run only, that of this seed, and tell all about it
    #[arg(long, value_name = "N", conflicts_with_all = ["seeds", "from", "resume"])]
    seed: Option<u64>,
    /// The protocol; whichever each seed draws unless given
    #[arg(long, value_name = "NAME", value_parser = protocols())]
    protocol: Option<Kind>,
    /// How many runs go on at one time; the number of processors unless given. Changes no result
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Keep the place in this file, and go on from it if it is there
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    #[command(flatten)]
    form: Form,
}

/// Swarms and prints.
pub(crate) fn run(arguments: &SwarmArguments, interrupt: &Interrupt, console: &mut Console<'_>) -> Result<Exit, Failure> {
    if let Some(seed) = arguments.seed {
        return replay(seed, arguments, console);
    }
    let mut place = match &arguments.resume {
        Some(path) => Place::read(path, arguments)?,
        None => Place::default(),
    };
    let (first, end) = (arguments.from + place.done, arguments.from + arguments.seeds);
    let mut report = Report { next: first, ..Report::default() };
    {
        let progress = Progress::new(usize::try_from(end.saturating_sub(first)).unwrap_or(usize::MAX), interrupt);
        while report.next < end && !interrupt.asked() {
            let next = if arguments.resume.is_some() { end.min(report.next + SEEDS_PER_NOTE) } else { end };
            let swarm = Swarm { seeds: report.next..next, kind: arguments.protocol, jobs: threads(arguments.jobs) };
            report.append(swarm.run(&progress.after(report.done)));
            if let Some(path) = &arguments.resume {
                place.note(&report, arguments, path)?;
            }
        }
    }
    print(&report, &place, arguments, console)?;
    Ok(if report.failed > 0 || !place.failed_seeds.is_empty() { Exit::Found } else { Exit::Done })
}

fn print(report: &Report, place: &Place, arguments: &SwarmArguments, console: &mut Console<'_>) -> Result<(), Failure> {
    if arguments.form.json {
        let document = serde_json::json!({
            "protocol": arguments.protocol.map(Kind::name),
            "runs": report.done,
            "runs_before": place.before,
            "next_seed": report.next.to_string(),
            "failed": report.failed,
            "failed_seeds_before": place.failed_seeds,
            "failures": report.failures.iter().map(failure_json).collect::<Vec<_>>(),
            "events": report.events,
            "digest": format!("{:016x}", report.digest),
            "split_brain": {
                "incidents": report.splits.count,
                "longest_ms": report.splits.longest.as_secs_f64() * 1000.0,
                "total_ms": report.splits.total.as_secs_f64() * 1000.0,
            },
            "slowest_recovery_ms": report.slowest_recovery.as_secs_f64() * 1000.0,
            "sometimes": report.sometimes.counts().map(|(oracle, case, count)| {
                serde_json::json!({ "oracle": oracle, "case": case, "count": count })
            }).collect::<Vec<_>>(),
        });
        writeln!(console.out, "{document:#}")?;
        return Ok(());
    }
    let paint = console.paint;
    for broken in &report.failures {
        writeln!(console.out, "{broken}\n")?;
    }
    if let Some(first) = report.failures.first() {
        print_shrunk(first, console)?;
    }
    let what = arguments.protocol.map_or("whatever the seeds drew", Kind::name);
    if place.before > 0 {
        writeln!(console.out, "{} runs were made before; seeds that failed then: {:?}", place.before, place.failed_seeds)?;
    }
    let verdict =
        if report.failed == 0 { paint.good("nothing broken".to_owned()) } else { paint.bad(format!("{} failed", report.failed)) };
    writeln!(console.out, "{} runs of {what}: {verdict}", report.done)?;
    writeln!(
        console.out,
        "  {} events; the slowest group had a leader {:.0?} after healing",
        report.events, report.slowest_recovery
    )?;
    let splits = &report.splits;
    writeln!(
        console.out,
        "  two leaders at once, where settings or clocks allow it: {} times, {:.0?} at the longest",
        splits.count, splits.longest
    )?;
    writeln!(console.out, "  what the oracles met, so that their silence means something:")?;
    for (oracle, case, count) in report.sometimes.counts() {
        let count = if count == 0 { paint.bad("never").to_string() } else { count.to_string() };
        writeln!(console.out, "    {oracle:<22} {count:>10}  {case}")?;
    }
    if report.next < arguments.from + arguments.seeds {
        let rest = arguments.from + arguments.seeds - report.next;
        writeln!(console.out, "{} the rest: --from {} --seeds {rest}", paint.bad("Interrupted;"), report.next)?;
    }
    Ok(())
}

fn print_shrunk(broken: &Broken, console: &mut Console<'_>) -> Result<(), Failure> {
    let Some(violation) = broken.violations.first() else { return Ok(()) };
    let shrunk = shrink(&broken.plan, violation.oracle, SHRINK_RUNS_MAX);
    writeln!(console.out, "seed {} shrunk in {} runs; this still breaks {}:", broken.plan.seed, shrunk.runs, violation.oracle)?;
    writeln!(console.out, "{}\n", shrunk.plan)?;
    Ok(())
}

fn failure_json(broken: &Broken) -> serde_json::Value {
    serde_json::json!({
        "seed": broken.plan.seed.to_string(),
        "protocol": broken.plan.kind.name(),
        "violations": broken.violations.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "tail": broken.tail,
        "replay": broken.replay(),
    })
}

/// One run again.
fn replay(seed: u64, arguments: &SwarmArguments, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let plan = Plan::draw(seed, arguments.protocol);
    let (exit, broken, outcome) = match swarm::examine(&plan, Swarm::TAIL_LINES) {
        Ok(outcome) => (Exit::Done, None, Some(outcome)),
        Err(broken) => (Exit::Found, Some(broken), None),
    };
    if arguments.form.json {
        let document = serde_json::json!({
            "plan": plan.to_string(),
            "failure": broken.as_deref().map(failure_json),
            "events": outcome.as_ref().map(|it| it.events),
            "digest": outcome.as_ref().map(|it| format!("{:016x}", it.digest)),
        });
        writeln!(console.out, "{document:#}")?;
        return Ok(exit);
    }
    writeln!(console.out, "{plan}\n")?;
    if let Some(broken) = broken {
        writeln!(console.out, "{broken}\n")?;
        print_shrunk(&broken, console)?;
    }
    if let Some(outcome) = outcome {
        let verdict = console.paint.good("nothing broken");
        writeln!(console.out, "{verdict}: {} events, digest {:016x}", outcome.events, outcome.digest)?;
    }
    Ok(exit)
}

/// How far a swarm with a file has come.
#[derive(Default)]
struct Place {
    /// Runs made, in all lives of this swarm.
    done: u64,
    /// Of these, before this life.
    before: u64,
    failed_seeds: Vec<u64>,
}

impl Place {
    /// What the file says; nothing yet if there is no file.
    fn read(path: &Path, arguments: &SwarmArguments) -> Result<Place, Failure> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(wrong) if wrong.kind() == std::io::ErrorKind::NotFound => return Ok(Place::default()),
            Err(wrong) => return Err(Failure::file("read", path, &wrong)),
        };
        let damaged = || Failure::Input {
            what: format!("{} is not the place of a swarm", path.display()),
            hint: "name another file, or remove this one to begin anew",
        };
        let kept: serde_json::Value = serde_json::from_str(&text).map_err(|_| damaged())?;
        let same = kept["from"] == arguments.from && kept["protocol"].as_str() == arguments.protocol.map(Kind::name);
        let (Some(done), Some(failed)) = (kept["done"].as_u64(), kept["failed_seeds"].as_array()) else { return Err(damaged()) };
        if !same || done > arguments.seeds {
            return Err(Failure::Input {
                what: format!("{} belongs to another swarm: {kept}", path.display()),
                hint: "give the same --from and --protocol and at least as many --seeds, or name another file",
            });
        }
        Ok(Place { done, before: done, failed_seeds: failed.iter().filter_map(serde_json::Value::as_u64).collect() })
    }

    /// Writes it down: a whole file or the one before, never half of one.
    fn note(&mut self, report: &Report, arguments: &SwarmArguments, path: &Path) -> Result<(), Failure> {
        self.done = self.before + report.done;
        let failed = report.failures.iter().map(|it| it.plan.seed);
        let mut seeds: Vec<u64> = self.failed_seeds.iter().copied().chain(failed).collect();
        seeds.sort_unstable();
        seeds.dedup();
        let document = serde_json::json!({
            "protocol": arguments.protocol.map(Kind::name),
            "from": arguments.from,
            "done": self.done,
            "failed_seeds": seeds,
        });
        let fresh = path.with_extension("new");
        fs::write(&fresh, format!("{document:#}\n"))
            .and_then(|()| fs::rename(&fresh, path))
            .map_err(|wrong| Failure::file("write", path, &wrong))
    }
}
