//! What a command may cost, before it is carried out and whatever is in the store: so that a node can be fair to those who ask.
//!
//! A step is about a microsecond of a processor. What only looks like much is counted as much: of a span nobody knows how many keys are in it. What is bounded for a request as a whole
//! ([`Limits::visited_in_log_max`], [`Limits::deleted_max`]) is counted once, however many spans there are.

use crate::command::Command;
use crate::keys::item::Span;
use crate::keys::transaction::{Act, Operation, Transaction};
use crate::limits::Limits;
use crate::query::Range;

/// So many keys that are looked at are a step.
const VISITS_PER_STEP: usize = 10;
/// To delete spans of keys: it takes two microseconds for each, and its event.
const RANGE_DELETE_WEIGHT: usize = 2 * Limits::STANDARD.deleted_max;
/// To drop all events.
const COMPACT_WEIGHT: usize = Limits::STANDARD.events_max / VISITS_PER_STEP;
/// So many bytes are a step: they are read for the digest of what is asked.
const BYTES_PER_STEP: usize = 4096;

impl Command {
    /// So many steps it may take at most, about: at least 1, from its shape alone. 1 for what touches one thing, one for each guard, operation or session, and a thousand or more where a span
    /// is looked at or deleted. What goes with a session that ends is not counted: it was when it was attached.
    pub fn weight(&self) -> u32 {
        let steps = match self {
            Command::KeepAlive(it) => it.sessions.len(),
            Command::Bind(it) => it.sessions.len(),
            Command::Expire(it) => {
                let max = Limits::STANDARD.ended_at_once_max;
                usize::try_from(it.limit).ok().filter(|it| *it > 0).map_or(max, |it| it.min(max))
            }
            Command::Delete(it) if is_one(it.span.as_ref()) => 1,
            Command::Delete(_) => RANGE_DELETE_WEIGHT,
            Command::Transact(it) => {
                let mut spans = Spans::default();
                let operations = spans.operations(it);
                let visits = spans.visits.min(Limits::STANDARD.visited_in_log_max);
                operations + visits.div_ceil(VISITS_PER_STEP) + if spans.deletes { RANGE_DELETE_WEIGHT } else { 0 }
            }
            Command::Compact(_) => COMPACT_WEIGHT,
            Command::Introduce(_)
            | Command::OpenSession(_)
            | Command::EndSession(_)
            | Command::Campaign(_)
            | Command::Renew(_)
            | Command::Proclaim(_)
            | Command::Resign(_)
            | Command::Withdraw(_)
            | Command::Ask(_)
            | Command::Evict(_)
            | Command::Annotate(_)
            | Command::Complete(_)
            | Command::Raise(_)
            | Command::Forget(_)
            | Command::Put(_) => 1,
        };
        let bytes = self.encoded_len() / BYTES_PER_STEP;
        u32::try_from(steps.max(1).saturating_add(bytes)).unwrap_or(u32::MAX)
    }
}

/// The spans in a transaction.
#[derive(Default)]
struct Spans {
    /// So many keys may be looked at.
    visits: usize,
    deletes: bool,
}

impl Spans {
    /// Notes its spans, and answers how many guards and operations it has, those of the longer branch.
    fn operations(&mut self, transaction: &Transaction) -> usize {
        for guard in &transaction.guards {
            if !is_one(guard.span.as_ref()) {
                self.look(usize::MAX);
            }
        }
        let (then, otherwise) = (self.branch(&transaction.then), self.branch(&transaction.otherwise));
        transaction.guards.len() + then.max(otherwise)
    }

    fn branch(&mut self, operations: &[Operation]) -> usize {
        let mut steps = 0;
        for Operation { act } in operations {
            steps += 1;
            match act {
                Some(Act::Delete(it)) => self.deletes |= !is_one(it.span.as_ref()),
                Some(Act::Read(it)) => self.look(visits(it)),
                Some(Act::Transact(nested)) => steps += self.operations(nested),
                Some(Act::Put(_) | Act::Abort(_)) | None => {}
            }
        }
        steps
    }

    fn look(&mut self, visits: usize) {
        self.visits = self.visits.saturating_add(visits);
    }
}

/// So many keys a read may look at beside one.
fn visits(asked: &Range) -> usize {
    match usize::try_from(asked.limit) {
        Ok(_) if is_one(asked.span.as_ref()) => 0,
        // One more, to know whether there are more.
        Ok(limit) if limit > 0 && !asked.counts && !asked.count_only => limit.saturating_add(1),
        Ok(_) | Err(_) => usize::MAX,
    }
}

/// A span that is missing is none of many keys: that is refused.
fn is_one(span: Option<&Span>) -> bool {
    span.is_none_or(Span::is_one)
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::command::{Compact, Expire, Introduce, KeepAlive};
    use crate::keys::transaction::{Delete, Guard, Put};

    fn transaction(guards: Vec<Guard>, then: Vec<Act>) -> Command {
        Command::Transact(Transaction { guards, then: then.into_iter().map(Act::into).collect(), otherwise: vec![] })
    }

    #[test]
    fn what_touches_one_thing_is_one_step_and_much_is_as_many_as_it_may_take() {
        let limits = Limits::STANDARD;
        let put = || Act::Put(Put { key: "k".into(), value: "v".into(), ..Put::default() });
        let all = || Some(Span::all());
        let read = |limit, counts| Act::Read(Range { span: all(), limit, counts, ..Range::default() });
        let delete = |span| Delete { span: Some(span), wants_previous: false };
        let range_guard = || Guard { span: all(), ..Guard::exists("k") };
        let nested = |then: Vec<Act>| {
            let Command::Transact(nested) = transaction(vec![Guard::exists("k")], then) else { unreachable!("it is one") };
            Act::Transact(nested)
        };
        let looks = limits.visited_in_log_max / VISITS_PER_STEP;
        let cases = [
            (Command::Introduce(Introduce {}), 1),
            (Command::KeepAlive(KeepAlive { sessions: vec![] }), 1),
            (Command::KeepAlive(KeepAlive { sessions: vec![7; 500] }), 500),
            (Command::Expire(Expire { limit: 30 }), 30),
            (Command::Expire(Expire { limit: 0 }), limits.ended_at_once_max),
            (Command::Expire(Expire { limit: u64::MAX }), limits.ended_at_once_max),
            (Command::Compact(Compact { revision: 1 }), limits.events_max / VISITS_PER_STEP),
            (Command::Put(Put { key: "k".into(), ..Put::default() }), 1),
            (Command::Put(Put { value: vec![0; 1 << 20].into(), ..Put::default() }), 1 + (1 << 20) / BYTES_PER_STEP),
            (Command::Delete(delete(Span::key("k"))), 1),
            (Command::Delete(delete(Span::prefix("k"))), 2 * limits.deleted_max),
            (transaction(vec![], vec![]), 1),
            (transaction(vec![Guard::exists("k"), Guard::holds("e", 7)], vec![put(), Act::Delete(delete(Span::key("k")))]), 4),
            (transaction(vec![], vec![nested(vec![put(), put()])]), 4),
            (transaction(vec![], vec![read(99, false)]), 1 + 10),
            (transaction(vec![], vec![read(99, true)]), 1 + looks),
            (transaction(vec![], vec![read(0, false)]), 1 + looks),
            // All keys that a request may look at, however many of its parts look.
            (
                transaction(vec![range_guard(), range_guard()], vec![read(0, false), nested(vec![read(0, false)])]),
                2 + 2 + 2 + looks,
            ),
            (transaction(vec![range_guard()], vec![Act::Delete(delete(Span::all()))]), 2 + looks + 2 * limits.deleted_max),
            (transaction(vec![], vec![nested(vec![Act::Delete(delete(Span::all()))])]), 3 + 2 * limits.deleted_max),
        ];
        for (command, weight) in cases {
            assert_eq!(command.weight() as usize, weight, "{command:.200?}");
        }
        let otherwise = Transaction { then: vec![put().into()], otherwise: vec![put().into(); 3], ..Transaction::default() };
        assert_eq!(Command::Transact(otherwise).weight(), 3, "one of two branches is taken");
    }
}
