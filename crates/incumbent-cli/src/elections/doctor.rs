//! `incumbent doctor`: can the engine be reached, how long does it take to answer, does it keep its word about time, do the planned times fit,
//! and what does it promise. Every finding is a line: ok, warn or fail.
//!
//! In an election of its own it asks for the lease that is planned and gives it back at once, then holds one for a second or so and lets it run
//! out. That election keeps its name, so that an engine that remembers elections remembers one and not hundreds.

use std::time::Duration;

use incumbent::engine::{Bid, Claim, Engine, Error, Farewell, Kind};
use incumbent::guarantees::{Exclusive, Lateness, Tokens, WhoseClock};
use incumbent::{Guarantees, Identity, Name, Reason, Timing, clock, engines};
use serde_json::json;

use super::target::{Target, TargetArguments, answer};
use super::{engines as words, plan, span};
use crate::console::{Console, Form};
use crate::exit::Exit;
use crate::failure::Failure;

pub(crate) const EXAMPLES: &str = "\
Examples:
  incumbent doctor --on etcd://127.0.0.1:2379/prod
  incumbent doctor --ttl 3s --json | jq '.findings[] | select(.level != \"ok\")'";

/// The doctor's own election.
const ELECTION: &str = "incumbent-doctor";

/// A lease that must be longer than this is not waited for.
const LEASE_MAX: Duration = Duration::from_secs(5);

/// The lease that is waited for, if the engine grants one so short: long enough that a clock off by a hundredth shows.
const LEASE_USUAL: Duration = Duration::from_secs(1);

/// A busy engine is late by more than it says; this much is no news.
const LATE_USUAL: Duration = Duration::from_secs(2);

#[derive(clap::Args, Debug)]
pub(crate) struct DoctorArguments {
    /// How many looks to measure
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    looks: u32,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Level {
    Ok,
    Warn,
    Fail,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Warn => "warn",
            Level::Fail => "fail",
        }
    }
}

/// One thing that was looked at.
struct Finding {
    level: Level,
    about: &'static str,
    says: String,
}

impl Finding {
    fn new(level: Level, about: &'static str, says: impl Into<String>) -> Finding {
        Finding { level, about, says: says.into() }
    }
}

/// What was found, and the figures behind it.
#[derive(Default)]
struct Report {
    findings: Vec<Finding>,
    round_trips: Vec<Duration>,
    promised: Option<Guarantees>,
    timing: Option<Timing>,
}

/// Examines, and prints what was found.
pub(crate) async fn run(wanted: &DoctorArguments, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let target = Target::find(&wanted.target)?;
    let report = examine(&target, wanted.looks).await?;
    if wanted.form.json {
        print_json(&target, &report, console)?;
    } else {
        print_text(&report, console)?;
    }
    let worst = report.findings.iter().map(|it| it.level).max();
    Ok(if worst == Some(Level::Fail) { Exit::Found } else { Exit::Done })
}

async fn examine(target: &Target, looks: u32) -> Result<Report, Failure> {
    let place = target.place()?;
    let election = Name::new(ELECTION).map_err(|why| Failure::setting(&why))?;
    let mut report = Report::default();
    let found = &mut report.findings;

    let engine = match reach(&place, &election).await {
        Ok(engine) => engine,
        Err(why) => {
            found.push(Finding::new(Level::Fail, "reach", why.to_string()));
            return Ok(report);
        }
    };
    found.push(Finding::new(Level::Ok, "reach", format!("{place} answers; it is named by {}", target.origin)));
    let promised = engine.guarantees();
    let timing = fitting(target, &promised, found)?;

    for _ in 0..looks {
        let sent = clock::now();
        match answer(engine.look(&election)).await {
            Ok(_) => report.round_trips.push(clock::now() - sent),
            Err(why) => {
                found.push(Finding::new(Level::Fail, "round trip", format!("a look failed: {why}")));
                break;
            }
        }
    }
    report.round_trips.sort();
    if let Some(timing) = &timing {
        found.extend(round_trip(&report.round_trips, timing));
    }
    if let Some(timing) = &timing {
        found.extend(refusal(engine.as_ref(), &election, &promised, timing).await);
    }
    found.push(clock_rate(engine.as_ref(), &election, &promised).await);
    // What is not promised stands before what is.
    found.extend(promised.caveats.iter().map(|it| Finding::new(Level::Warn, "caveat", *it)));
    found.extend(promises(&promised));
    engine.close().await;
    report.promised = Some(promised);
    report.timing = timing;
    Ok(report)
}

async fn reach(place: &incumbent::place::Place, election: &Name) -> Result<std::sync::Arc<dyn Engine>, Error> {
    let engine = answer(engines::open(place)).await?;
    // Some connect only when they are asked something.
    answer(engine.look(election)).await?;
    // Whoever looks makes nothing: whether a directory, a bucket or tables can be made, only a candidate finds out. One of peers is a node of theirs.
    if place.scheme() != "peers" {
        stand(engine.as_ref(), election, LEASE_USUAL.max(engine.guarantees().ttl_min)).await?;
    }
    Ok(engine)
}

/// Takes the seat and gives it back.
async fn stand(engine: &dyn Engine, election: &Name, ttl: Duration) -> Result<(), Error> {
    let bid = bid(ttl);
    match answer(engine.claim(election, &bid)).await? {
        Claim::Granted(grant) => {
            let farewell = Farewell { reason: Reason::Finished, to: None };
            answer(engine.release(election, &bid, grant.token, &farewell)).await
        }
        // Another doctor is at work.
        Claim::Occupied { .. } => answer(engine.withdraw(election, &bid)).await,
    }
}

fn bid(ttl: Duration) -> Bid {
    Bid { identity: Identity::unique(), ttl, value: String::new(), priority: 0, seats: 1, seen: None, note: None }
}

/// The times that elections here would have, and whether the engine grants them.
fn fitting(target: &Target, promised: &Guarantees, found: &mut Vec<Finding>) -> Result<Option<Timing>, Failure> {
    let asked = match target.timing()? {
        Some(timing) => Ok(timing),
        None => Timing::of(incumbent::election::TTL_DEFAULT.clamp(promised.ttl_min, promised.ttl_max)).build(),
    };
    let timing = match asked {
        Ok(timing) => timing,
        Err(why) => {
            found.push(Finding::new(Level::Fail, "timing", why.to_string()));
            return Ok(None);
        }
    };
    let range = format!("{} to {}", span::short(promised.ttl_min), span::short(promised.ttl_max));
    let ttl = timing.ttl();
    found.push(if (promised.ttl_min..=promised.ttl_max).contains(&ttl) {
        let failover = span::rounded_up(promised.failover_max(&timing));
        let says = format!(
            "a lease of {ttl:?} is within {range}: failover at most {failover}, pauses up to {}",
            span::measured(timing.pause_max())
        );
        Finding::new(Level::Ok, "timing", says)
    } else {
        Finding::new(Level::Fail, "timing", format!("a lease of {ttl:?} is not granted: choose --ttl from {range}"))
    });
    Ok(Some(timing))
}

fn round_trip(sorted: &[Duration], timing: &Timing) -> Option<Finding> {
    let (middle, most) = (sorted.get(sorted.len() / 2)?, sorted.last()?);
    let says = format!("{} looks: p50 {}, max {}", sorted.len(), span::measured(*middle), span::measured(*most));
    let limit = timing.request_timeout();
    Some(if *most > limit {
        let (limit, ttl) = (span::measured(limit), span::rounded_up(most.saturating_mul(20)));
        Finding::new(
            Level::Fail,
            "round trip",
            format!("{says}: longer than the {limit} that a renewal may take; raise --ttl to {ttl}"),
        )
    } else if *most > limit / 2 {
        let limit = span::measured(limit);
        Finding::new(Level::Warn, "round trip", format!("{says}: more than half of the {limit} that a renewal may take"))
    } else {
        Finding::new(Level::Ok, "round trip", says)
    })
}

/// Why the planned lease is not granted after all: what an engine may do is not always what this one's servers do.
async fn refusal(engine: &dyn Engine, election: &Name, promised: &Guarantees, timing: &Timing) -> Option<Finding> {
    if promised.clock != WhoseClock::Engine || !(promised.ttl_min..=promised.ttl_max).contains(&timing.ttl()) {
        return None;
    }
    let why = stand(engine, election, timing.ttl()).await.err();
    // What else goes wrong here goes wrong with the lease that runs out, too.
    why.filter(|it| it.kind() == Kind::Misconfigured).map(|it| Finding::new(Level::Fail, "lease", it.to_string()))
}

/// Here the client keeps the session of a live process alive, and the engine's own sweeper takes a silent candidacy out of the line: what a lapse would show is our clock and not the servers'.
const OURS_TO_END: &str = "zookeeper";

/// Lets a lease run out, and looks when the engine frees the seat. Never early: that is what a leadership's deadline rests on.
async fn clock_rate(engine: &dyn Engine, election: &Name, promised: &Guarantees) -> Finding {
    let about = "clock";
    match promised.clock {
        WhoseClock::Kernel => {
            return Finding::new(Level::Ok, about, "no lease runs out here: the kernel frees the seat when its holder dies");
        }
        WhoseClock::Candidate => {
            return Finding::new(Level::Ok, about, "each candidate measures leases on its own clock: there is none to compare");
        }
        WhoseClock::Engine => {}
    }
    if promised.engine == OURS_TO_END {
        let says = "not measured: while this process lives, so does its session, and a candidacy in it that nobody renews is ended by us";
        return Finding::new(Level::Ok, about, says);
    }
    if promised.ttl_min > LEASE_MAX {
        let says = format!("not measured: the shortest lease takes {} to run out", span::short(promised.ttl_min));
        return Finding::new(Level::Ok, about, says);
    }
    match lapse(engine, election, LEASE_USUAL.max(promised.ttl_min), promised.late).await {
        Err(why) => Finding::new(Level::Warn, about, format!("not measured: {why}")),
        Ok((ttl, lasted)) => judge(ttl, lasted, promised.late),
    }
}

/// What it means that a lease of `ttl` was seen to be free after `lasted`, counted from before it was asked for.
fn judge(ttl: Duration, lasted: Duration, late: Lateness) -> Finding {
    let earliest = Timing::of(ttl).build().map_or(ttl, |it| it.takeover_min());
    let (lease, after) = (span::short(ttl), span::measured(lasted));
    if lasted < earliest {
        let says = format!("a lease of {lease} was freed after {after}: its clock runs fast, and two could lead at once");
        Finding::new(Level::Fail, "clock", says)
    } else if lasted > ttl + late.after(ttl).max(LATE_USUAL) {
        let says = format!("a lease of {lease} was freed after {after}: every failover takes so much longer");
        Finding::new(Level::Warn, "clock", says)
    } else {
        Finding::new(Level::Ok, "clock", format!("a lease of {lease} was freed after {after}: not early"))
    }
}

/// The lease that was granted, and how long after it was asked for the seat was seen to be free.
async fn lapse(engine: &dyn Engine, election: &Name, ttl: Duration, late: Lateness) -> Result<(Duration, Duration), String> {
    const LOOK_EVERY: Duration = Duration::from_millis(20);
    let bid = bid(ttl);
    let sent = clock::now();
    let grant = match answer(engine.claim(election, &bid)).await.map_err(|why| why.to_string())? {
        Claim::Granted(grant) => grant,
        Claim::Occupied { .. } => {
            let _ = engine.withdraw(election, &bid).await;
            return Err("another doctor is at work; try again in a few seconds".to_owned());
        }
    };
    let ttl = grant.ttl.unwrap_or(ttl);
    loop {
        let board = answer(engine.look(election)).await.map_err(|why| why.to_string())?;
        let lasted = clock::now() - sent;
        if board.leaders.iter().all(|it| it.token != grant.token) {
            return Ok((ttl, lasted));
        }
        if lasted > ttl * 3 + late.after(ttl).max(LATE_USUAL) {
            return Err(format!("a lease of {ttl:?} was not freed for {}", span::measured(lasted)));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn promises(it: &Guarantees) -> Vec<Finding> {
    let exclusive = match it.exclusive {
        Exclusive::Always | Exclusive::OnOneMachine => Level::Ok,
        Exclusive::UnlessItFailsOver | Exclusive::UnlessTheNetworkSplits | Exclusive::InOneProcess => Level::Warn,
    };
    let tokens = match it.tokens {
        Tokens::Durable => Level::Ok,
        Tokens::UnlessItForgets | Tokens::WhileTheProcessLives => Level::Warn,
    };
    let has = |it| if it { Level::Ok } else { Level::Warn };
    vec![
        Finding::new(exclusive, "one leader", words::exclusive(it.exclusive).1),
        Finding::new(tokens, "tokens rise", format!("{}; the token is {}", words::tokens(it.tokens).1, it.token_source)),
        Finding::new(Level::Ok, "whose clock", words::clock(it.clock).1),
        Finding::new(Level::Ok, "freed", words::freed(it)),
        Finding::new(Level::Ok, "notice", words::notice(it.notice)),
        Finding::new(Level::Ok, "next", words::order(it.order)),
        Finding::new(Level::Ok, "seats", words::seats(it.seats_max)),
        Finding::new(has(it.lists_candidates), "candidates", if it.lists_candidates { "listed" } else { "not listed" }),
        Finding::new(has(it.keeps_history), "history", if it.keeps_history { "kept" } else { "not kept" }),
    ]
}

fn print_text(report: &Report, console: &mut Console<'_>) -> Result<(), Failure> {
    let paint = console.paint;
    for Finding { level, about, says } in &report.findings {
        let word = format!("{:<4}", level.word());
        match level {
            Level::Ok => write!(console.out, "{}", paint.good(word))?,
            Level::Warn => write!(console.out, "{}", paint.strong(word))?,
            Level::Fail => write!(console.out, "{}", paint.bad(word))?,
        }
        writeln!(console.out, "  {about:<11}  {says}")?;
    }
    Ok(())
}

fn print_json(target: &Target, report: &Report, console: &mut Console<'_>) -> Result<(), Failure> {
    let findings: Vec<_> =
        report.findings.iter().map(|it| json!({ "level": it.level.word(), "about": it.about, "says": it.says })).collect();
    let trips = &report.round_trips;
    let document = json!({
        "on": format!("{:?}", target.url),
        "named_by": target.origin.to_string(),
        "worst": report.findings.iter().map(|it| it.level).max().map(Level::word),
        "findings": findings,
        "round_trip": {
            "looks": trips.len(),
            "p50_ms": trips.get(trips.len() / 2).copied().map(span::ms),
            "max_ms": trips.last().copied().map(span::ms),
        },
        "timing": report.timing.as_ref().map(|it| plan::timing(it, report.promised.as_ref().map_or(Lateness::NONE, |it| it.late))),
        "guarantees": report.promised.as_ref().map(words::guarantees),
    });
    writeln!(console.out, "{document:#}")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_ends_early_is_a_failure_and_one_that_ends_late_a_warning() {
        let ms = Duration::from_millis;
        let prompt = |lasted| judge(ms(1000), ms(lasted), Lateness::NONE).level;
        assert_eq!([990, 1000, 2900, 3100].map(prompt), [Level::Fail, Level::Ok, Level::Ok, Level::Warn]);
        let late = Lateness { percent: 200, span: ms(500) };
        assert_eq!(judge(ms(1000), ms(3400), late).level, Level::Ok, "as it said");
    }

    #[test]
    fn answers_are_judged_by_what_a_renewal_may_take() {
        let ms = Duration::from_millis;
        let timing = Timing::of(ms(1000)).build().unwrap();
        for (most, level) in [(10, Level::Ok), (60, Level::Warn), (101, Level::Fail)] {
            assert_eq!(round_trip(&[ms(1), ms(most)], &timing).unwrap().level, level, "{most}");
        }
        assert!(round_trip(&[], &timing).is_none());
        let advised = round_trip(&[ms(101)], &timing).unwrap().says;
        let (_, ttl) = advised.rsplit_once("--ttl to ").unwrap();
        let raised = Timing::of(span::parse(ttl).unwrap()).build().unwrap();
        assert_eq!(round_trip(&[ms(101)], &raised).unwrap().level, Level::Ok, "the advice is good");
    }

    #[tokio::test(start_paused = true)]
    async fn the_doctor_waits_for_a_lease_to_run_out() {
        let memory = engines::memory::Memory::new();
        let election = Name::new(ELECTION).unwrap();
        let finding = clock_rate(&memory, &election, &memory.guarantees()).await;
        // Tokio's time is virtual here and the kernel's is not, so that the lease seems to end at once: what a clock that runs far too fast looks like.
        assert_eq!((finding.level, finding.about), (Level::Fail, "clock"), "{}", finding.says);
    }

    #[tokio::test(start_paused = true)]
    async fn where_we_end_a_silent_candidacy_ourselves_no_clock_is_judged() {
        let memory = engines::memory::Memory::new();
        let (election, begun) = (Name::new(ELECTION).unwrap(), tokio::time::Instant::now());
        let zookeeper = Guarantees { engine: "zookeeper", ..memory.guarantees() };
        let finding = clock_rate(&memory, &election, &zookeeper).await;
        assert!(finding.level == Level::Ok && finding.says.starts_with("not measured"), "{}", finding.says);
        assert_eq!(begun.elapsed(), Duration::ZERO, "nor is any waited for");
    }
}
