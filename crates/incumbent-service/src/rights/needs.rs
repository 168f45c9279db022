//! The table: what every operation of the service needs, of which names and keys.
//!
//! One match for each kind of operation, without a rest: a new operation does not compile until somebody says here what it needs. A transaction needs what each of its guards and
//! operations needs, those of both branches and of nested ones, whether they would be carried out or not: what is carried out depends on what is there, and who tries learns it.

use std::fmt;

use incumbent_store::command::{Ask, Command, Demand};
use incumbent_store::keys::item::Span;
use incumbent_store::keys::transaction::{Act, Against, Delete, Guard, Operation, Put, Transaction};
use incumbent_store::query::{Query, Range};
use incumbent_store::watch::{Interest, Topic};

use super::{Denied, RESERVED, Right};

/// What an operation needs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Need<'a> {
    /// To be let in, and no more.
    Token,
    /// A right.
    Right(Right, Scope<'a>),
    /// One of these rights, of whatever: what for.
    Some(&'static [Right], &'static str),
    /// It is the service's own: what it is.
    Nobody(&'static str),
}

impl Need<'_> {
    /// Whether who has it may change something.
    fn is_to_change(self) -> bool {
        match self {
            Need::Right(Right::Campaign | Right::Evict | Right::Write | Right::Admin, _) | Need::Some(..) => true,
            Need::Right(Right::Observe | Right::Read, _) | Need::Token | Need::Nobody(_) => false,
        }
    }
}

/// Of what a right is needed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Scope<'a> {
    /// One election.
    Name(&'a [u8]),
    /// All elections whose names begin so.
    Under(&'a [u8]),
    /// Keys.
    Keys(&'a Span),
    /// All there is.
    Everything,
}

impl Scope<'_> {
    /// Whether the service's own is among it. It has no elections, so a list of all elections has nothing of it.
    pub(super) fn touches_reserved(self) -> bool {
        let is_reserved = |name: &[u8]| name.first() == Some(&RESERVED);
        match self {
            Scope::Name(name) | Scope::Under(name) => is_reserved(name),
            Scope::Keys(span) if span.is_one() => is_reserved(&span.start),
            // What begins before the first key behind them, and is not over at once.
            Scope::Keys(span) => !span.is_empty() && span.start[..] < [RESERVED + 1][..],
            Scope::Everything => false,
        }
    }
}

impl fmt::Display for Scope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Name(name) => write!(f, "in the election {}", shown(name)),
            Scope::Under(prefix) => write!(f, "in the elections under {}", shown(prefix)),
            Scope::Keys(span) if span.is_one() => write!(f, "the key {}", shown(&span.start)),
            Scope::Keys(span) if span.is_open() => write!(f, "the keys from {} on", shown(&span.start)),
            Scope::Keys(span) => write!(f, "the keys from {} to {}", shown(&span.start), shown(&span.end)),
            Scope::Everything => f.write_str("everything"),
        }
    }
}

/// A name of a client's choice, short enough for a message and without anything that a terminal would obey.
fn shown(name: &[u8]) -> String {
    const SHOWN_MAX: usize = 64;
    let text = format!("\"{}\"", name[..name.len().min(SHOWN_MAX)].escape_ascii());
    if name.len() > SHOWN_MAX { format!("{text}...") } else { text }
}

/// What may be done to the cluster, by kind.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Errand {
    /// See who the members are and how they are.
    Status,
    /// Add or remove members.
    Members,
    /// Have another node lead.
    Transfer,
    /// Have a snapshot made.
    Snapshot,
    /// Read all of it, for a backup.
    Backup,
}

/// Hears what is needed, one after the other, until it objects.
pub(super) type Check<'c> = &'c mut dyn FnMut(Need<'_>) -> Result<(), Denied>;

/// There are only so many sessions, and whatever is said of one goes into the log: who has no use for one is given none.
const SESSIONS: Need<'static> = Need::Some(&[Right::Campaign, Right::Write], "attach anything to a session");

/// What goes into the log is written by every node, whatever comes of it.
const CHANGES: Need<'static> = Need::Some(&[Right::Campaign, Right::Evict, Right::Write], "change anything");

const WHOLE: Need<'static> = Need::Right(Right::Admin, Scope::Everything);

fn on(right: Right, election: &str) -> Need<'_> {
    Need::Right(right, Scope::Name(election.as_bytes()))
}

pub(super) fn of_command(command: &Command, check: Check<'_>) -> Result<(), Denied> {
    match command {
        // There are only so many clients.
        Command::Introduce(_) => check(CHANGES),
        // The store lets nobody keep, bind or end another's.
        Command::OpenSession(_) | Command::KeepAlive(_) | Command::Bind(_) | Command::EndSession(_) => check(SESSIONS),
        Command::Expire(_) => check(Need::Nobody("the passing of time")),
        Command::Campaign(it) => check(on(Right::Campaign, &it.election)),
        Command::Renew(it) => check(on(Right::Campaign, &it.election)),
        Command::Proclaim(it) => check(on(Right::Campaign, &it.election)),
        Command::Resign(it) => check(on(Right::Campaign, &it.election)),
        Command::Withdraw(it) => check(on(Right::Campaign, &it.election)),
        Command::Annotate(it) => check(on(Right::Campaign, &it.election)),
        Command::Complete(it) => check(on(Right::Campaign, &it.election)),
        Command::Ask(it) => check(on(asking(it), &it.election)),
        Command::Evict(it) => check(on(Right::Evict, &it.election)),
        // Of all elections at once.
        Command::Raise(it) if it.election.is_empty() => check(WHOLE),
        Command::Raise(it) => check(on(Right::Admin, &it.election)),
        Command::Forget(it) => check(on(Right::Admin, &it.election)),
        Command::Put(it) => of_put(it, check),
        Command::Delete(it) => of_delete(it, check),
        Command::Transact(it) => {
            let mut changes = false;
            of_transaction(it, &mut |need| {
                changes |= need.is_to_change();
                check(need)
            })?;
            // Who only reads has questions for that, which no log keeps.
            if changes { Ok(()) } else { check(CHANGES) }
        }
        // The history is everybody's.
        Command::Compact(_) => check(WHOLE),
    }
}

/// A better candidate that waits for the end of a minimum tenure wants the seat for itself, as the election's rules have it; anything else is an operator's wish. Whether it is one, and
/// better, the store knows ([`Ask::as_candidate`]).
fn asking(asked: &Ask) -> Right {
    let demand = asked.wish.as_ref().and_then(|it| Demand::try_from(it.demand).ok());
    if asked.after_tenure && demand == Some(Demand::HandOver) { Right::Campaign } else { Right::Evict }
}

fn of_put(put: &Put, check: Check<'_>) -> Result<(), Denied> {
    // A sequential one has a number behind it, and so begins with the same.
    let key = Span::key(put.key.clone());
    check(Need::Right(Right::Write, Scope::Keys(&key)))?;
    if put.wants_previous {
        check(Need::Right(Right::Read, Scope::Keys(&key)))?;
    }
    // A child is counted in its parent, and tells that it is there.
    let parent_len = (put.parent_len as usize).min(put.key.len());
    if parent_len > 0 {
        let parent = Span::key(put.key.slice(..parent_len));
        check(Need::Right(Right::Write, Scope::Keys(&parent)))?;
    }
    Ok(())
}

fn of_delete(delete: &Delete, check: Check<'_>) -> Result<(), Denied> {
    let span = delete.span.as_ref().ok_or(MALFORMED)?;
    check(Need::Right(Right::Write, Scope::Keys(span)))?;
    if delete.wants_previous {
        check(Need::Right(Right::Read, Scope::Keys(span)))?;
    }
    Ok(())
}

fn of_range(range: &Range, check: Check<'_>) -> Result<(), Denied> {
    let span = range.span.as_ref().ok_or(MALFORMED)?;
    // What it is read after only makes it shorter.
    check(Need::Right(Right::Read, Scope::Keys(span)))
}

fn of_transaction(transaction: &Transaction, check: Check<'_>) -> Result<(), Denied> {
    for guard in &transaction.guards {
        of_guard(guard, check)?;
    }
    for Operation { act } in transaction.then.iter().chain(&transaction.otherwise) {
        match act {
            None => return Err(MALFORMED),
            Some(Act::Put(it)) => of_put(it, check)?,
            Some(Act::Delete(it)) => of_delete(it, check)?,
            Some(Act::Read(it)) => of_range(it, check)?,
            Some(Act::Transact(it)) => of_transaction(it, check)?,
            Some(Act::Abort(_)) => check(Need::Token)?,
        }
    }
    Ok(())
}

/// Whether a guard holds tells what is there.
fn of_guard(guard: &Guard, check: Check<'_>) -> Result<(), Denied> {
    match &guard.against {
        None => Err(MALFORMED),
        Some(Against::Holds(it)) => check(on(Right::Observe, &it.election)),
        Some(
            Against::Version(_)
            | Against::Created(_)
            | Against::Modified(_)
            | Against::Value(_)
            | Against::Session(_)
            | Against::Children(_)
            | Against::Undelayed(_),
        ) => check(Need::Right(Right::Read, Scope::Keys(guard.span.as_ref().ok_or(MALFORMED)?))),
    }
}

/// What this version does not know, it cannot grant.
const MALFORMED: Denied = Denied::Nobody("an operation that this version does not know, or without its span of keys,");

pub(super) fn of_query(query: &Query, check: Check<'_>) -> Result<(), Denied> {
    match query {
        Query::Status(_) => of_errand(Errand::Status, check),
        Query::Look(election) => check(on(Right::Observe, election)),
        Query::Inquire(it) => check(on(Right::Observe, &it.election)),
        Query::Elections(it) => check(Need::Right(Right::Observe, Scope::Under(it.prefix.as_bytes()))),
        // They tell of keys and owners, whoever may read those.
        Query::Session(_) | Query::Sessions(_) => check(WHOLE),
        Query::Range(it) => of_range(it, check),
        Query::Events(it) => match &it.interest {
            Some(interest) => of_interest(interest, check),
            None => check(WHOLE),
        },
    }
}

pub(super) fn of_interest(interest: &Interest, check: Check<'_>) -> Result<(), Denied> {
    match &interest.topic {
        None => check(WHOLE),
        Some(Topic::Keys(span)) => check(Need::Right(Right::Read, Scope::Keys(span))),
        Some(Topic::Election(name)) => check(on(Right::Observe, name)),
        Some(Topic::ElectionsUnder(prefix)) => check(Need::Right(Right::Observe, Scope::Under(prefix.as_bytes()))),
        Some(Topic::Candidate(it)) => check(on(Right::Observe, &it.election)),
        // Whoever keeps a session alive hears of its end; of others' it is an operator's business.
        Some(Topic::Session(_)) => check(WHOLE),
    }
}

pub(super) fn of_errand(errand: Errand, check: Check<'_>) -> Result<(), Denied> {
    match errand {
        Errand::Status => check(Need::Right(Right::Observe, Scope::Everything)),
        Errand::Members | Errand::Transfer | Errand::Snapshot | Errand::Backup => check(WHOLE),
    }
}
