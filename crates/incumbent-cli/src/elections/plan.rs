//! `incumbent plan`: the times that keep a goal, with the worst case as a timeline; or why there are none, and what to change.
//!
//! It asks no engine: what one grants is known from its kind.

use std::fmt;
use std::time::Duration;

use incumbent::Timing;
use incumbent::guarantees::{Guarantees, Lateness};
use incumbent::place::Place;
use incumbent_protocol::timing::{Goal, InvalidTiming};
use serde_json::{Value, json};

use super::target::Url;
use super::{engines as words, span};
use crate::console::{Console, Form};
use crate::exit::Exit;
use crate::failure::Failure;

pub(crate) const EXAMPLES: &str = "\
Examples:
  incumbent plan --failover 3s --pause 500ms --rtt 40ms
  incumbent plan --failover 20s --on consul://127.0.0.1/prod
  incumbent plan --failover 3s --json | jq .timing.ttl_ms";

#[derive(clap::Args, Debug)]
pub(crate) struct PlanArguments {
    /// How soon after a crash the next leader must be in office
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    failover: Duration,
    /// How long a healthy leader may stand still (garbage collection, a busy host) without losing the seat
    #[arg(long, value_name = "SPAN", value_parser = span::parse, default_value = "0s")]
    pause: Duration,
    /// How long the slowest in a hundred answers of the engine takes; `incumbent doctor` measures it
    #[arg(long, value_name = "SPAN", value_parser = span::parse, default_value = "20ms")]
    rtt: Duration,
    /// For the engine of this URL: times that it grants. It is not asked
    #[arg(long, value_name = "URL")]
    on: Option<Url>,
    #[command(flatten)]
    form: Form,
}

/// Plans, and prints the plan. That there is none is what a plan is there to find out.
pub(crate) fn run(wanted: &PlanArguments, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let engine = wanted.on.as_ref().map(engine).transpose()?;
    let late = lateness(engine.as_ref());
    let goal = Goal { failover: wanted.failover, pause: wanted.pause, round_trip: wanted.rtt, late };
    let planned = plan(goal, engine.as_ref());
    if wanted.form.json {
        print_json(goal, engine.as_ref(), &planned, console)?;
    } else {
        print_text(goal, engine.as_ref(), &planned, console)?;
    }
    Ok(if planned.is_ok() { Exit::Done } else { Exit::Found })
}

fn engine(url: &Url) -> Result<Guarantees, Failure> {
    let place = Place::parse(url.exposed()).map_err(|why| Failure::setting(&why))?;
    incumbent::engines::promised(place.scheme()).map_err(|why| Failure::setting(&why))
}

/// How late the engine may be; one that is not named is not.
fn lateness(engine: Option<&Guarantees>) -> Lateness {
    engine.map_or(Lateness::NONE, |it| it.late)
}

/// Why a goal cannot be kept, by one bound alone.
#[derive(Debug)]
enum Obstacle {
    /// It takes a longer failover: how long, only those who know all bounds can tell.
    Haste(String),
    /// It takes something else, and says what.
    Other(String),
}

impl From<InvalidTiming> for Obstacle {
    fn from(why: InvalidTiming) -> Obstacle {
        if why.is_haste() { Obstacle::Haste(why.cause().to_string()) } else { Obstacle::Other(why.to_string()) }
    }
}

/// Why no timing keeps a goal.
#[derive(Debug)]
struct Impossible {
    why: String,
    /// The shortest failover that could be kept, if that is what stands in the way.
    allow: Option<Duration>,
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)?;
        self.allow.map_or(Ok(()), |it| write!(f, ": allow at least {}", span::rounded_up(it)))
    }
}

/// The timing for a goal; why there is none says what to allow for there to be one.
fn plan(goal: Goal, engine: Option<&Guarantees>) -> Result<Timing, Impossible> {
    let no_failover = |why| match attempt(Goal { failover: FAILOVER_MAX, ..goal }, engine) {
        Err(Obstacle::Haste(why) | Obstacle::Other(why)) => why,
        Ok(_) => why,
    };
    attempt(goal, engine).map_err(|obstacle| match obstacle {
        Obstacle::Haste(why) => match least_failover(goal, engine) {
            Some(least) => Impossible { why, allow: Some(least) },
            // No failover would do: then something else is in the way.
            None => Impossible { why: no_failover(why), allow: None },
        },
        Obstacle::Other(why) => Impossible { why, allow: None },
    })
}

/// No failover that takes longer is worth planning.
const FAILOVER_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// The shortest failover that keeps all bounds, to the millisecond.
fn least_failover(goal: Goal, engine: Option<&Guarantees>) -> Option<Duration> {
    let is_kept = |failover| attempt(Goal { failover, ..goal }, engine).is_ok();
    let (mut too_short, mut enough) = (goal.failover, goal.failover.max(Duration::from_millis(1)));
    while !is_kept(enough) {
        if enough > FAILOVER_MAX {
            return None;
        }
        (too_short, enough) = (enough, enough * 2);
    }
    while enough - too_short > Duration::from_millis(1) {
        let middle = too_short + (enough - too_short) / 2;
        if is_kept(middle) { enough = middle } else { too_short = middle }
    }
    Some(enough)
}

fn attempt(goal: Goal, engine: Option<&Guarantees>) -> Result<Timing, Obstacle> {
    let timing = Timing::plan(goal)?;
    let Some(engine) = engine else { return Ok(timing) };
    let (name, least, most) = (engine.engine, engine.ttl_min, engine.ttl_max);
    if timing.ttl() < least {
        return Err(Obstacle::Haste(format!(
            "a failover within {} needs a lease of {}, and {name} grants none shorter than {}",
            span::short(goal.failover),
            span::short(timing.ttl()),
            span::short(least)
        )));
    }
    if timing.ttl() <= most {
        return Ok(timing);
    }
    // A shorter lease fails over sooner, but bears less.
    let longest = Timing::of(most).build()?;
    if longest.pause_max() < goal.pause || longest.request_timeout() / 2 < goal.round_trip {
        return Err(Obstacle::Other(format!(
            "{name} grants no lease longer than {}, which bears pauses of {} and answers of {}: lower the pause or the round trip",
            span::short(most),
            span::measured(longest.pause_max()),
            span::measured(longest.request_timeout() / 2),
        )));
    }
    Ok(longest)
}

fn print_text(
    goal: Goal,
    engine: Option<&Guarantees>,
    planned: &Result<Timing, Impossible>,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let paint = console.paint;
    match planned {
        Ok(timing) => {
            writeln!(console.out, "{}\n", paint.good(format_args!("--ttl {:?} keeps the goal", timing.ttl())))?;
            let (failover, pause) = (span::rounded_up(timing.failover_max_at(goal.late)), span::measured(timing.pause_max()));
            writeln!(console.out, "  failover    at most {failover} after a crash; {} was allowed", span::short(goal.failover))?;
            writeln!(console.out, "  pause       up to {pause} cost nothing; {} was wanted", span::short(goal.pause))?;
            writeln!(
                console.out,
                "  round trip  up to {} count as answered; {} was said",
                span::measured(timing.request_timeout()),
                span::short(goal.round_trip)
            )?;
            if let Some(engine) = engine {
                let range = format!("{} to {}", span::short(engine.ttl_min), span::short(engine.ttl_max));
                let freed = words::freed(engine);
                writeln!(console.out, "  {:<10}  grants {range}; frees the seat of the dead {freed}", engine.engine)?;
            }
            writeln!(console.out, "\n{}", timing.timeline(goal.late))?;
        }
        Err(why) => writeln!(console.out, "{} {why}", paint.bad("no timing keeps the goal:"))?,
    }
    Ok(())
}

fn print_json(
    goal: Goal,
    engine: Option<&Guarantees>,
    planned: &Result<Timing, Impossible>,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let document = json!({
        "goal": { "failover_ms": span::ms(goal.failover), "pause_ms": span::ms(goal.pause), "rtt_ms": span::ms(goal.round_trip) },
        "engine": engine.map(|it| json!({
            "name": it.engine,
            "ttl_min_ms": span::ms(it.ttl_min),
            "ttl_max_ms": span::ms(it.ttl_max),
            "late": words::late(it.late),
        })),
        "possible": planned.is_ok(),
        "timing": planned.as_ref().ok().map(|it| timing(it, goal.late)),
        "timeline": planned.as_ref().ok().map(|it| it.timeline(goal.late).to_string().lines().map(str::to_owned).collect::<Vec<_>>()),
        "why_not": planned.as_ref().err().map(Impossible::to_string),
        "failover_least_ms": planned.as_ref().err().and_then(|it| it.allow).map(span::ms),
    });
    writeln!(console.out, "{document:#}")?;
    Ok(())
}

/// Times for a program, at an engine that may be so late.
pub(crate) fn timing(it: &Timing, late: Lateness) -> Value {
    json!({
        "ttl_ms": span::ms(it.ttl()),
        "drift_ppm": it.drift_ppm(),
        "guard_ms": span::ms(it.guard()),
        "renew_ms": span::ms(it.renew()),
        "retry_ms": span::ms(it.retry()),
        "request_timeout_ms": span::ms(it.request_timeout()),
        "jeopardy_ms": span::ms(it.jeopardy()),
        "stop_after_ms": span::ms(it.stop_after()),
        "drain_ms": span::ms(it.drain()),
        "kill_ms": span::ms(it.kill()),
        "validity_ms": span::ms(it.validity(it.ttl())),
        "poll_ms": span::ms(it.poll()),
        "rest_ms": span::ms(it.rest()),
        "failover_max_ms": span::ms(it.failover_max_at(late)),
        "pause_max_ms": span::ms(it.pause_max()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(failover: u64, pause: u64) -> Goal {
        let ms = Duration::from_millis;
        Goal { failover: ms(failover), pause: ms(pause), round_trip: ms(5), late: Lateness::NONE }
    }

    fn granting(least: Duration, most: Duration) -> Guarantees {
        Guarantees { ttl_min: least, ttl_max: most, ..incumbent::engines::promised("memory").unwrap() }
    }

    /// As a person reads it.
    fn advised(why: &Impossible) -> Duration {
        let text = why.to_string();
        span::parse(text.rsplit_once(": allow at least ").expect("advice").1).unwrap()
    }

    /// Whoever follows the advice is not given another.
    #[test]
    fn what_is_said_to_be_enough_is_enough() {
        let ms = Duration::from_millis;
        for (failover, pause, trip) in [(1, 0, 5), (1, 40_000, 1000), (500, 0, 40), (3000, 5000, 40)] {
            for engine in [None, Some("etcd"), Some("consul"), Some("zookeeper")] {
                let engine = engine.map(|it| incumbent::engines::promised(it).unwrap());
                let goal =
                    Goal { failover: ms(failover), pause: ms(pause), round_trip: ms(trip), late: lateness(engine.as_ref()) };
                let Err(why) = plan(goal, engine.as_ref()) else { continue };
                // Else something other than the failover is to be changed.
                let Some(_) = why.allow else { continue };
                let allowed = advised(&why);
                let kept = plan(Goal { failover: allowed, ..goal }, engine.as_ref());
                assert!(kept.is_ok(), "{why}: {kept:?}");
            }
        }
    }

    #[test]
    fn a_plan_for_an_engine_is_one_that_it_grants() {
        let seconds = Duration::from_secs;
        let engine = granting(seconds(10), seconds(20));
        let why = plan(goal(3000, 0), Some(&engine)).unwrap_err();
        let advised = Goal { failover: advised(&why), ..goal(0, 0) };
        assert!(plan(advised, Some(&engine)).unwrap().ttl() >= engine.ttl_min, "{why}");
        assert_eq!(plan(goal(600_000, 0), Some(&engine)).unwrap().ttl(), seconds(20), "a shorter lease keeps the goal too");
        let why = plan(goal(600_000, 30_000), Some(&engine)).unwrap_err();
        assert!(why.allow.is_none() && why.to_string().contains("no lease longer than 20s"), "{why}");
    }

    #[test]
    fn a_plan_counts_in_how_late_the_engine_may_be() {
        let consul = incumbent::engines::promised("consul").unwrap();
        let within = |ms| plan(Goal { late: consul.late, ..goal(ms, 0) }, Some(&consul));
        let timing = within(45_000).unwrap();
        // Up to two ttls until the session ends, and one more for the lock-delay.
        assert!(timing.ttl() * 3 < Duration::from_secs(45) && consul.failover_max(&timing) <= Duration::from_secs(45));
        let why = within(20_000).unwrap_err();
        let allowed = advised(&why);
        assert!(allowed > consul.ttl_min * 3, "{why}");
        within(span::ms(allowed) as u64).unwrap();
    }
}
