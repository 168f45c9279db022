//! `incumbent drill`: kills, pauses or replaces leaders of its own making, and reports how long each failover took and that no two led at once.
//!
//! Its candidates are processes on this machine, so that their instants are those of one clock: from when to when each could act is compared
//! directly, and not by what an engine says. The election is the drill's own; nobody else's leader is touched.

pub(crate) mod candidate;
mod troupe;
mod verdict;

use std::time::Duration;

use incumbent::engine::Demand;
use incumbent::engine::Kind;
use incumbent::guarantees::{Exclusive, WhoseClock};
use incumbent::{Election, Timing, clock};
use incumbent_lab::jobs::Audience as _;
use incumbent_protocol::time::Instant;
use serde_json::json;

use self::troupe::{Heard, Troupe};
use self::verdict::{Spread, Verdict};
use super::span;
use super::target::{Target, TargetArguments, answer};
use crate::console::{Console, Form};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::progress::Progress;

pub(crate) const EXAMPLES: &str = "\
Examples:
  incumbent drill --on etcd://127.0.0.1:2379/prod
  incumbent drill --fault pause --rounds 20 --ttl 2s --on redis://127.0.0.1/
  incumbent drill --fault resign --json | jq .failover.p99_ms";

/// What an engine and a busy machine may need beyond what was planned before a round counts as failed.
const SLACK: Duration = Duration::from_secs(20);

#[derive(clap::Args, Debug)]
pub(crate) struct DrillArguments {
    /// What happens to the leader
    #[arg(long, value_enum, value_name = "FAULT", default_value_t = Fault::Kill)]
    fault: Fault,
    /// How often
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// How many contend
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=100))]
    candidates: u32,
    /// The election; nobody else may take part in it
    #[arg(long, value_name = "NAME", default_value = "incumbent-drill")]
    election: String,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// The process is killed: nobody gives the seat back
    Kill,
    /// The process is stopped until another leads, and then goes on
    Pause,
    /// The leader is asked to resign
    Resign,
}

impl Fault {
    fn word(self) -> &'static str {
        match self {
            Fault::Kill => "kill",
            Fault::Pause => "pause",
            Fault::Resign => "resign",
        }
    }
}

/// What was seen.
struct Report {
    failovers: Vec<Duration>,
    /// Why it ended before its last round.
    trouble: Option<String>,
    verdict: Verdict,
}

/// Drills, and prints what was seen.
pub(crate) async fn run(wanted: &DrillArguments, interrupt: &Interrupt, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let target = Target::find(&wanted.target)?;
    let election = target.election(&wanted.election).await?;
    let promised = election.guarantees();
    if promised.exclusive == Exclusive::InOneProcess {
        let what = format!("{} lives in one process, and a drill needs several: name another engine with --on", promised.engine);
        return Err(Failure::Engine { what, exit: Exit::Usage });
    }
    if promised.clock == WhoseClock::Kernel && wanted.fault == Fault::Pause {
        let what =
            format!("on {} a leader that is paused keeps its seat, so there is no failover: use --fault kill", promised.engine);
        return Err(Failure::Engine { what, exit: Exit::Usage });
    }
    if let Some(stranger) = answer(election.look()).await.map_err(|why| Failure::asking(&why))?.leaders.first() {
        let what = format!(
            "{} leads {}: if it is left from a drill, wait until its lease has run out, else name another --election",
            stranger.identity, wanted.election
        );
        return Err(Failure::Engine { what, exit: Exit::Refused });
    }
    // Candidates go on trying, whatever is in their way; who may not lead at all is told at once.
    match answer(election.try_campaign()).await {
        Ok(Some(leadership)) => drop(answer(leadership.resign()).await),
        Err(why) if why.kind() == Kind::Misconfigured => return Err(Failure::changing(&why)),
        Ok(None) | Err(_) => {}
    }
    let mut troupe = Troupe::start(wanted.candidates as usize, &target, election.timing().ttl(), election.name().as_str())?;
    let mut failovers = Vec::new();
    let progress = Progress::of_rounds(wanted.rounds as usize, interrupt);
    let ended = tokio::select! {
        ended = play(wanted, &election, &mut troupe, &mut failovers, &progress) => ended,
        () = interrupt.wait() => Err(Trouble::Weather("interrupted".to_owned())),
    };
    drop(progress);
    let trouble = match ended {
        Ok(()) => None,
        Err(Trouble::Weather(why)) => Some(why),
        Err(Trouble::Broken(failure)) => return Err(failure),
    };
    troupe.dismiss(election.timing().ttl().min(SLACK)).await;
    let report = Report { failovers, trouble, verdict: Verdict::on(troupe.tenancies()) };
    if wanted.form.json {
        print_json(wanted, &election, &troupe, &report, console)?;
    } else {
        print_text(wanted, &election, &troupe, &report, console)?;
    }
    Ok(match (report.verdict.is_good(), interrupt.asked(), &report.trouble) {
        (false, _, _) => Exit::Found,
        (true, true, _) => Exit::Interrupted,
        (true, false, Some(_)) => Exit::Unknown,
        (true, false, None) => Exit::Done,
    })
}

/// Why a drill ended early.
enum Trouble {
    /// Something did not happen in time: what was seen until then counts.
    Weather(String),
    /// The drill itself could not go on.
    Broken(Failure),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Trouble {
        Trouble::Broken(failure)
    }
}

async fn play(
    wanted: &DrillArguments,
    election: &Election,
    troupe: &mut Troupe,
    failovers: &mut Vec<Duration>,
    progress: &Progress<'_>,
) -> Result<(), Trouble> {
    let timing = election.timing();
    let patience = election.guarantees().failover_max(timing) + timing.rest() + SLACK;
    let (mut actor, mut token, _) = next_leader(troupe, 0, patience).await?;
    for round in 0..wanted.rounds {
        // A fault just before a renewal costs less than one just after: the rounds go through all that lies between.
        let phase = (f64::from(round) * 0.618_033_988_75).fract();
        settle(troupe, timing.renew().mul_f64(phase) + rested(wanted, timing)).await;
        if let Some(now) = troupe.leader() {
            (actor, token) = now;
        }
        let struck = clock::now();
        match wanted.fault {
            Fault::Kill => troupe.replace(actor, token)?,
            Fault::Pause => troupe.pause(actor)?,
            Fault::Resign => {
                let asked = answer(election.ask(Demand::Resign, "incumbent drill")).await;
                asked.map_err(|why| Trouble::Weather(format!("{} could not be asked to resign: {why}", troupe.name(actor))))?;
            }
        }
        let old = (actor, token);
        let at;
        (actor, token, at) = next_leader(troupe, token, patience).await?;
        failovers.push(at - struck);
        if wanted.fault == Fault::Pause {
            troupe.wake(old.0)?;
            ended(troupe, old.1, patience).await?;
        }
        progress.progress(failovers.len());
    }
    Ok(())
}

/// Who has resigned leaves the seat to others for a while. A round must be so long that one of the others has had its rest.
fn rested(wanted: &DrillArguments, timing: &Timing) -> Duration {
    match wanted.fault {
        Fault::Resign => timing.rest() / (wanted.candidates - 1),
        Fault::Kill | Fault::Pause => Duration::ZERO,
    }
}

/// Listens for `span`.
async fn settle(troupe: &mut Troupe, span: Duration) {
    let listen = async {
        loop {
            troupe.hear().await;
        }
    };
    let _: Result<(), _> = tokio::time::timeout(span, listen).await;
}

/// Waits for a leader with a token other than `old`.
async fn next_leader(troupe: &mut Troupe, old: u64, patience: Duration) -> Result<(usize, u64, Instant), Trouble> {
    let wait = async {
        loop {
            match troupe.hear().await {
                Heard::Begun { actor, token, at } if token != old => return Ok((actor, token, at)),
                Heard::Begun { .. } | Heard::Ended { .. } => {}
                Heard::Gone { actor } => {
                    return Err(Trouble::Weather(format!(
                        "{} has ended by itself; what it said stands above",
                        troupe.name(actor)
                    )));
                }
            }
        }
    };
    tokio::time::timeout(patience, wait).await.unwrap_or_else(|_| {
        Err(Trouble::Weather(format!("no leader within {}: does `incumbent doctor` find anything?", span::measured(patience))))
    })
}

/// Waits until the leadership with `token` has said that it is over.
async fn ended(troupe: &mut Troupe, token: u64, patience: Duration) -> Result<(), Trouble> {
    let wait = async {
        loop {
            match troupe.hear().await {
                Heard::Ended { token: it } if it == token => return,
                Heard::Ended { .. } | Heard::Begun { .. } | Heard::Gone { .. } => {}
            }
        }
    };
    tokio::time::timeout(patience, wait).await.map_err(|_| {
        Trouble::Weather(format!(
            "a leader that was paused has not noticed for {} that it leads no more",
            span::measured(patience)
        ))
    })
}

fn print_text(
    wanted: &DrillArguments,
    election: &Election,
    troupe: &Troupe,
    report: &Report,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let (paint, timing, engine) = (console.paint, election.timing(), election.guarantees().engine);
    let what = match wanted.fault {
        Fault::Kill => "killed",
        Fault::Pause => "paused",
        Fault::Resign => "asked to resign",
    };
    writeln!(
        console.out,
        "{engine}, lease of {:?}, {} candidates: {} of {} leaders {what}",
        timing.ttl(),
        wanted.candidates,
        report.failovers.len(),
        wanted.rounds
    )?;
    if let Some(Spread { min, p50, p99, max }) = Spread::of(&report.failovers) {
        let [min, p50, p99, most] = [min, p50, p99, max].map(span::measured);
        writeln!(console.out, "  failover   min {min}, p50 {p50}, p99 {p99}, max {most}")?;
        let planned = election.guarantees().failover_max(timing);
        let word = if max <= planned { "kept" } else { "not kept" };
        writeln!(console.out, "  planned    at most {} after a crash: {word}", span::rounded_up(planned))?;
    }
    let (leaderships, verdict) = (troupe.tenancies().len(), &report.verdict);
    if verdict.overlap.is_zero() {
        writeln!(console.out, "  {}    0 in {leaderships} leaderships: no two were valid at once", paint.good("overlap"))?;
    } else {
        let overlap = span::measured(verdict.overlap);
        writeln!(console.out, "  {}    {overlap} in {leaderships} leaderships: two were valid at once", paint.bad("overlap"))?;
    }
    if !verdict.fallen.is_empty() {
        writeln!(console.out, "  {}     {:?} did not rise", paint.bad("tokens"), verdict.fallen)?;
    }
    if let Some(trouble) = &report.trouble {
        writeln!(console.out, "  {} {trouble}", paint.bad("ended early:"))?;
    }
    Ok(())
}

fn print_json(
    wanted: &DrillArguments,
    election: &Election,
    troupe: &Troupe,
    report: &Report,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let spread = Spread::of(&report.failovers);
    let figure = |pick: fn(Spread) -> Duration| spread.map(|it| span::ms(pick(it)));
    let leaderships: Vec<_> = troupe
        .tenancies()
        .iter()
        .map(|it| json!({ "name": it.name, "token": it.token.to_string(), "begin_ns": it.begin.as_nanos(), "end_ns": it.end.as_nanos() }))
        .collect();
    let document = json!({
        "election": election.name().as_str(),
        "engine": election.guarantees().engine,
        "fault": wanted.fault.word(),
        "rounds": wanted.rounds,
        "candidates": wanted.candidates,
        "failover": {
            "seen": report.failovers.len(),
            "min_ms": figure(|it| it.min),
            "p50_ms": figure(|it| it.p50),
            "p99_ms": figure(|it| it.p99),
            "max_ms": figure(|it| it.max),
            "each_ms": report.failovers.iter().copied().map(span::ms).collect::<Vec<_>>(),
        },
        "planned_max_ms": span::ms(election.guarantees().failover_max(election.timing())),
        "timing": super::plan::timing(election.timing(), election.guarantees().late),
        "overlap_ms": span::ms(report.verdict.overlap),
        "tokens_fallen": report.verdict.fallen,
        "leaderships": leaderships,
        "ended_early": report.trouble,
    });
    writeln!(console.out, "{document:#}")?;
    Ok(())
}
