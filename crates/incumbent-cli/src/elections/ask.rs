//! `incumbent resign`, `handover` and `evict`: ask the leader for its seat, and wait until somebody else has it.
//!
//! Nobody is forced: a wish lies on the engine until the leader's next renewal, and it stops its work before it lets go. A leader that does not
//! heed it still leads; these commands then say so.

use std::time::Duration;

use incumbent::Election;
use incumbent::clock;
use incumbent::engine::{Board, Demand, Kind, Leader};
use serde_json::json;

use super::target::{Target, TargetArguments, answer};
use super::{describe, span};
use crate::console::{Console, Form};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::Interrupt;

pub(crate) const RESIGN_EXAMPLES: &str = "\
Examples:
  incumbent resign billing --on etcd://127.0.0.1:2379/prod
  incumbent resign billing --no-wait";
pub(crate) const HAND_OVER_EXAMPLES: &str = "\
Examples:
  incumbent handover billing --to web-2 --on etcd://127.0.0.1:2379/prod
  incumbent candidates billing            who could be named";
pub(crate) const EVICT_EXAMPLES: &str = "\
Examples:
  incumbent evict billing --on consul://127.0.0.1/prod
  incumbent evict billing --within 2m     for work that drains slowly";

/// A leader that leaves while it is being asked is followed by another so often.
const TRIES_MAX: u32 = 5;

/// So often a waiting command looks. Short beside any failover; a look costs an engine little.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(clap::Args, Debug)]
pub(crate) struct AskArguments {
    /// The name of the election
    election: String,
    /// Wait until the leadership has changed, and say who leads now; the default
    #[arg(long, conflicts_with = "no_wait")]
    wait: bool,
    /// Leave the wish and return
    #[arg(long)]
    no_wait: bool,
    /// How long to wait at most
    #[arg(long, value_name = "SPAN", value_parser = span::parse, default_value = "30s", conflicts_with = "no_wait")]
    within: Duration,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

#[derive(clap::Args, Debug)]
pub(crate) struct HandOverArguments {
    /// Who shall lead: a candidate's name, or its whole identity
    #[arg(long, value_name = "NAME")]
    to: String,
    #[command(flatten)]
    pub(crate) ask: AskArguments,
}

/// Asks the leader to resign.
pub(crate) async fn resign(wanted: &AskArguments, interrupt: &Interrupt, console: &mut Console<'_>) -> Result<Exit, Failure> {
    ask(wanted, Demand::Resign, interrupt, console).await
}

/// Asks the leader to leave because somebody else is wanted.
pub(crate) async fn evict(wanted: &AskArguments, interrupt: &Interrupt, console: &mut Console<'_>) -> Result<Exit, Failure> {
    ask(wanted, Demand::Evict, interrupt, console).await
}

/// Asks the leader to hand over.
pub(crate) async fn hand_over(
    wanted: &HandOverArguments,
    interrupt: &Interrupt,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    ask(&wanted.ask, Demand::HandOver(wanted.to.clone()), interrupt, console).await
}

/// What came of it.
enum Outcome {
    /// The wish was left; nobody waited for more.
    Asked,
    /// There is no leader to ask.
    Nobody,
    /// Whom the seat is to be handed to has it already.
    Already,
    /// There is a new leader.
    Changed { leader: Leader, took: Duration },
    /// The leader has left, and nobody has come.
    Left { took: Duration },
    /// The leader is still there.
    Unheeded,
}

async fn ask(wanted: &AskArguments, demand: Demand, interrupt: &Interrupt, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let begun = clock::now();
    let left = tokio::select! {
        biased;
        () = interrupt.wait() => return Ok(Exit::Interrupted),
        left = leave_wish(wanted, &demand) => left?,
    };
    let (election, before, asked) = match left {
        Left::Wish { election, before, asked } => (election, before, asked),
        Left::Nothing { asked, outcome } => return tell(wanted, &demand, asked.as_ref(), &outcome, console),
    };
    if wanted.no_wait {
        return tell(wanted, &demand, Some(&asked), &Outcome::Asked, console);
    }
    tokio::select! {
        biased;
        // The wish lies there all the same: whoever stops waiting must know.
        () = interrupt.wait() => {
            tell(wanted, &demand, Some(&asked), &Outcome::Asked, console)?;
            Ok(Exit::Interrupted)
        }
        outcome = wait(&election, &before, &asked, begun, wanted.within) => tell(wanted, &demand, Some(&asked), &outcome?, console),
    }
}

/// What became of a wish.
enum Left {
    /// It lies on the engine, for this leader.
    Wish { election: Election, before: Board, asked: Leader },
    /// There is nothing to ask, or nothing to ask for.
    Nothing { asked: Option<Leader>, outcome: Outcome },
}

/// Asks the leader that was looked at, and no other: one that has just come has done nobody any harm.
async fn leave_wish(wanted: &AskArguments, demand: &Demand) -> Result<Left, Failure> {
    let target = Target::find(&wanted.target)?;
    let election = target.election(&wanted.election).await?;
    let begun = clock::now();
    let mut first: Option<Leader> = None;
    let mut tries = TRIES_MAX;
    loop {
        let before = answer(election.look()).await.map_err(|why| Failure::asking(&why))?;
        let took = clock::now() - begun;
        let leader = match (before.leaders.first(), first.take()) {
            (None, None) => return Ok(Left::Nothing { asked: None, outcome: Outcome::Nobody }),
            (None, asked) => return Ok(Left::Nothing { asked, outcome: Outcome::Left { took } }),
            (Some(leader), None) => leader.clone(),
            // It has left while it was being asked. Only a hand-over to somebody else still has something to ask for.
            (Some(leader), Some(asked)) if asked.token != leader.token && !is_wanted_elsewhere(demand, leader) => {
                return Ok(Left::Nothing { asked: Some(asked), outcome: Outcome::Changed { leader: leader.clone(), took } });
            }
            (Some(leader), Some(_)) => leader.clone(),
        };
        if let Demand::HandOver(to) = demand {
            if is_called(&leader.identity, to) {
                return Ok(Left::Nothing { asked: Some(leader), outcome: Outcome::Already });
            }
            let promised = election.guarantees();
            if promised.lists_candidates {
                waits(&before, to, &wanted.election).map_err(|what| Failure::Engine { what, exit: Exit::Usage })?;
            } else {
                tracing::warn!(
                    "{} does not say who waits: if nobody called {to} does, {} stops all the same, and the seat stays empty for a ttl",
                    promised.engine,
                    leader.identity
                );
            }
        }
        match answer(election.ask_this(&leader, demand.clone(), &target.who())).await {
            Ok(()) => return Ok(Left::Wish { election, before, asked: leader }),
            Err(why) if why.kind() == Kind::Refused && tries > 0 => {
                tries -= 1;
                let now = answer(election.look()).await.map_err(|why| Failure::asking(&why))?;
                if now.leaders.iter().any(|it| it.token == leader.token) {
                    return Err(Failure::changing(&why));
                }
                first = Some(leader);
            }
            Err(why) => return Err(Failure::changing(&why)),
        }
    }
}

/// Whether the seat is still to go to another than has it now.
fn is_wanted_elsewhere(demand: &Demand, leader: &Leader) -> bool {
    match demand {
        Demand::HandOver(to) => !is_called(&leader.identity, to),
        Demand::Resign | Demand::Evict => false,
    }
}

/// Looks until there is a leader that was not there before.
async fn wait(
    election: &Election,
    before: &Board,
    asked: &Leader,
    begun: incumbent_protocol::time::Instant,
    within: Duration,
) -> Result<Outcome, Failure> {
    let mut left = None;
    loop {
        let look = answer(election.look()).await;
        let took = clock::now() - begun;
        match look {
            Ok(board) => {
                let is_new = |it: &&Leader| it.token != asked.token && before.leaders.iter().all(|old| old.token != it.token);
                if let Some(leader) = board.leaders.iter().find(is_new) {
                    return Ok(Outcome::Changed { leader: leader.clone(), took });
                }
                let is_gone = board.leaders.iter().all(|it| it.token != asked.token);
                left = is_gone.then(|| left.unwrap_or(took));
            }
            Err(why) if took >= within => return Err(Failure::changing(&incumbent::Error::unknown(why.to_string()))),
            // The engine may be between two leaders of its own.
            Err(why) => tracing::debug!(%why, "cannot look"),
        }
        if took >= within {
            return Ok(left.map_or(Outcome::Unheeded, |took| Outcome::Left { took }));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

pub(crate) fn is_called(identity: &incumbent::Identity, name: &str) -> bool {
    identity.name() == name || identity.as_str() == name
}

/// A hand-over to nobody would leave the seat empty for a while: better to say so before.
pub(crate) fn waits(board: &Board, to: &str, election: &str) -> Result<(), String> {
    if board.candidates.iter().any(|it| is_called(&it.identity, to)) {
        return Ok(());
    }
    let names: Vec<&str> = board.candidates.iter().map(|it| it.identity.name()).collect();
    let others = if names.is_empty() { "nobody waits".to_owned() } else { format!("there wait {}", names.join(", ")) };
    Err(format!("no candidate {to:?} waits for {election}: {others}"))
}

fn tell(
    wanted: &AskArguments,
    demand: &Demand,
    asked: Option<&Leader>,
    outcome: &Outcome,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let (verb, kind) = match demand {
        Demand::Resign => ("resign".to_owned(), "resign"),
        Demand::Evict => ("leave".to_owned(), "evict"),
        Demand::HandOver(to) => (format!("hand over to {to}"), "handover"),
    };
    let (election, name) = (&wanted.election, asked.map_or("", |it| it.identity.name()));
    let (word, leader, took, exit, says) = match outcome {
        Outcome::Asked => {
            ("asked", None, None, Exit::Done, format!("{name} is asked to {verb}, and learns of it with its next renewal"))
        }
        Outcome::Nobody => ("nobody", None, None, Exit::Vacant, format!("nobody leads {election}: there is nobody to ask")),
        Outcome::Already => ("already", asked, None, Exit::Done, format!("{name} leads {election} already")),
        Outcome::Changed { leader, took } => {
            let (next, token) = (leader.identity.name(), leader.token);
            let measured = span::measured(*took);
            let says = format!("{next} leads {election} with token {token}, {measured} after {name} was asked to {verb}");
            match demand {
                _ if asked.is_some_and(|it| it.identity.is_process_of(&leader.identity)) => {
                    let says = format!(
                        "{name} leads {election} again with token {token}, {measured} after it was asked to {verb}: nobody else took the seat"
                    );
                    ("again", Some(leader), Some(*took), Exit::Found, says)
                }
                Demand::HandOver(to) if !is_called(&leader.identity, to) => {
                    ("another", Some(leader), Some(*took), Exit::Found, format!("{says}: {to} was not there to take it"))
                }
                Demand::Resign | Demand::Evict | Demand::HandOver(_) => ("changed", Some(leader), Some(*took), Exit::Done, says),
            }
        }
        Outcome::Left { took } => {
            let says = format!("{name} has left {} after it was asked to, and nobody leads {election}", span::measured(*took));
            ("left", None, Some(*took), Exit::Vacant, says)
        }
        Outcome::Unheeded => {
            let says = format!("{name} still leads {election}, {:?} after it was asked to {verb}", wanted.within);
            ("unheeded", asked, None, Exit::Unknown, says)
        }
    };
    if wanted.form.json {
        let document = json!({
            "election": election,
            "demand": kind,
            "asked": asked.map(describe::leader),
            "outcome": word,
            "leader": leader.map(describe::leader),
            "took_ms": took.map(span::ms),
        });
        writeln!(console.out, "{document:#}")?;
    } else {
        writeln!(console.out, "{says}")?;
    }
    Ok(exit)
}
