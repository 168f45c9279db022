//! What may be asked of the keys. A transaction is weighed as a whole before any of it is done (C89).

use alloc::vec::Vec;
use core::cmp::Ordering;

use prost::bytes::Bytes;

use super::Visits;
use super::draft::{Draft, Space};
use super::item::Item;
use super::transaction::{
    Act, ActAnswer, ActResult, Against, Comparison, Delete, Guard, Operation, Put, Transacted, Transaction,
};
use crate::command::Compact;
use crate::elections::Elections;
use crate::limits::Limits;
use crate::query::Items;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::store::Store;
use crate::time::{Stamp, Time};

/// So many bytes of values that are compared cost as much as to look at one more key.
const COMPARED_PER_VISIT: usize = 1024;

impl Store {
    pub(crate) fn put(&mut self, stamp: Stamp, put: &Put) -> Result<Reply, Refusal> {
        self.draft(stamp, |work| work.draft.put(put, &mut work.visits)).map(Reply::Written)
    }

    pub(crate) fn delete(&mut self, stamp: Stamp, delete: &Delete) -> Result<Reply, Refusal> {
        self.draft(stamp, |work| work.draft.delete(delete, &mut work.space, &mut work.visits)).map(Reply::Deleted)
    }

    pub(crate) fn transact(&mut self, stamp: Stamp, transaction: &Transaction) -> Result<Reply, Refusal> {
        weigh(transaction, 1, &mut 0, &self.limits)?;
        self.draft(stamp, |work| work.transact(transaction)).map(Reply::Transacted)
    }

    pub(crate) fn compact(&mut self, asked: &Compact) -> Result<Reply, Refusal> {
        self.journal.compact(asked.revision)?;
        Ok(self.done())
    }

    /// Keys of a session that has ended.
    pub(crate) fn end_keys(&mut self, stamp: Stamp, session: u64, keys: &[Bytes], unclean: bool) {
        if keys.is_empty() {
            return;
        }
        let lock_delay_ms = self.sessions.any(session).map_or(0, |it| it.lock_delay_ms);
        let ended = self.draft(stamp, |work| {
            for key in keys {
                work.draft.end(key);
            }
            Ok(())
        });
        assert_eq!(ended, Ok(()), "nothing in it refuses");
        if unclean && lock_delay_ms > 0 {
            for key in keys {
                self.keys.delay(key, stamp.at.after_ms(lock_delay_ms));
            }
        }
    }

    fn draft<T>(&mut self, stamp: Stamp, act: impl FnOnce(&mut Work<'_>) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let revision = self.journal.revision() + 1;
        let draft = Draft::new(&mut self.keys, &mut self.sessions, &self.limits, stamp, revision);
        let (elections, limits) = (&self.elections, &self.limits);
        let mut work =
            Work { draft, elections, limits, at: stamp.at, space: Space::new(limits), visits: Visits::of_command(limits) };
        let done = act(&mut work);
        let draft = work.draft;
        match done {
            Ok(done) => {
                draft.complete(&mut self.journal);
                Ok(done)
            }
            Err(refusal) => {
                draft.undo();
                Err(refusal)
            }
        }
    }
}

/// A change under way, and what it may look at.
struct Work<'a> {
    draft: Draft<'a>,
    elections: &'a Elections,
    limits: &'a Limits,
    at: Time,
    space: Space,
    visits: Visits,
}

impl Work<'_> {
    fn transact(&mut self, transaction: &Transaction) -> Result<Transacted, Refusal> {
        let mut held = true;
        for guard in &transaction.guards {
            held = held && self.holds(guard)?;
        }
        let chosen = if held { &transaction.then } else { &transaction.otherwise };
        let results = chosen.iter().map(|it| self.act(it)).collect::<Result<Vec<_>, _>>()?;
        Ok(Transacted { held, results })
    }

    fn act(&mut self, operation: &Operation) -> Result<ActResult, Refusal> {
        let act = operation.act.as_ref().ok_or_else(|| Refusal::malformed("an operation that this version does not know"))?;
        let answer = match act {
            Act::Put(put) => {
                let written = self.draft.put(put, &mut self.visits)?;
                if let Some(previous) = &written.previous {
                    self.space.spend(1, previous.size())?;
                }
                ActAnswer::Written(written)
            }
            Act::Delete(delete) => ActAnswer::Deleted(self.draft.delete(delete, &mut self.space, &mut self.visits)?),
            Act::Read(range) => {
                let items: Items = self.draft.keys.read_now(range, self.limits, &mut self.visits)?;
                let branches: usize = items.branches.iter().map(Bytes::len).sum();
                let told = items.items.len() + items.branches.len();
                self.space.spend(told, items.items.iter().map(Item::size).sum::<usize>() + branches)?;
                ActAnswer::Read(items)
            }
            Act::Transact(nested) => ActAnswer::Transacted(self.transact(nested)?),
            Act::Abort(number) => return Err(Refusal::Aborted(*number)),
        };
        Ok(ActResult { answer: Some(answer) })
    }

    fn holds(&mut self, guard: &Guard) -> Result<bool, Refusal> {
        let span = || guard.span.as_ref().ok_or_else(|| Refusal::malformed("a guard's span of keys is missing"));
        match &guard.against {
            None => Err(Refusal::malformed("a guard that this version does not know")),
            Some(Against::Holds(it)) => {
                let holder = self.elections.find(&it.election).and_then(|election| election.holder(it.token));
                Ok(holder.is_some_and(|it| self.draft.session_lives(it.session)))
            }
            Some(Against::Undelayed(expected)) => {
                Ok(self.draft.keys.is_delayed(span()?, self.at, &mut self.visits)? != *expected)
            }
            Some(against) => {
                let found = self.draft.bounded(span()?, &mut self.visits)?;
                if let Against::Value(named) = against {
                    let compared: usize = found.iter().map(|it| it.value.len().min(named.len())).sum();
                    self.visits.spend(compared / COMPARED_PER_VISIT)?;
                }
                let comparison = Comparison::try_from(guard.comparison)
                    .map_err(|_| Refusal::malformed("a comparison that this version does not know"))?;
                Ok(match &found[..] {
                    [] => compare(None, against).is_some_and(|it| fits(it, comparison)),
                    found => found.iter().all(|it| compare(Some(it), against).is_some_and(|it| fits(it, comparison))),
                })
            }
        }
    }
}

/// How what is there compares with what the guard names; `None` if it does not compare at all.
fn compare(item: Option<&Item>, against: &Against) -> Option<Ordering> {
    let number = |of: fn(&Item) -> u64, named: &u64| Some(item.map_or(0, of).cmp(named));
    match against {
        Against::Version(named) => number(|it| it.version, named),
        Against::Created(named) => number(|it| it.created, named),
        Against::Modified(named) => number(|it| it.modified, named),
        Against::Session(named) => number(|it| it.session, named),
        Against::Children(named) => number(|it| it.children, named),
        Against::Value(named) => Some(item?.value.cmp(named)),
        Against::Holds(_) | Against::Undelayed(_) => None,
    }
}

fn fits(ordering: Ordering, comparison: Comparison) -> bool {
    match comparison {
        Comparison::Equal => ordering.is_eq(),
        Comparison::Greater => ordering.is_gt(),
        Comparison::Less => ordering.is_lt(),
        Comparison::NotEqual => ordering.is_ne(),
    }
}

/// Refuses what makes no sense or is too much, before any of it is done.
fn weigh(transaction: &Transaction, depth: usize, operations: &mut usize, limits: &Limits) -> Result<(), Refusal> {
    if depth > limits.depth_max {
        return Err(Refusal::limit("transactions in one another", limits.depth_max));
    }
    *operations += transaction.guards.len() + transaction.then.len() + transaction.otherwise.len();
    if *operations > limits.operations_max {
        return Err(Refusal::limit("guards and operations in a transaction", limits.operations_max));
    }
    for guard in &transaction.guards {
        let needs_span = match guard.against {
            None => return Err(Refusal::malformed("a guard that this version does not know")),
            Some(Against::Holds(_)) => false,
            Some(
                Against::Version(_)
                | Against::Created(_)
                | Against::Modified(_)
                | Against::Value(_)
                | Against::Session(_)
                | Against::Children(_)
                | Against::Undelayed(_),
            ) => true,
        };
        if needs_span && guard.span.is_none() {
            return Err(Refusal::malformed("a guard's span of keys is missing"));
        }
        if Comparison::try_from(guard.comparison).is_err() {
            return Err(Refusal::malformed("a comparison that this version does not know"));
        }
    }
    for operation in transaction.then.iter().chain(&transaction.otherwise) {
        match &operation.act {
            None => return Err(Refusal::malformed("an operation that this version does not know")),
            Some(Act::Transact(nested)) => weigh(nested, depth + 1, operations, limits)?,
            Some(Act::Read(range)) if range.revision != 0 => {
                return Err(Refusal::malformed("a transaction reads what is, not what was"));
            }
            Some(Act::Put(_) | Act::Delete(_) | Act::Read(_) | Act::Abort(_)) => {}
        }
    }
    Ok(())
}
