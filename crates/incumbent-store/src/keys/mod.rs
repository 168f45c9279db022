//! The key space: ordered keys with revisions, that go with sessions if they are told to.
//!
//! - `item.rs`: a key and what is known of it; spans of keys.
//! - `transaction.rs`: writes, as data.
//! - `draft.rs`: a change under way, that can be undone until it is complete.
//! - `commands.rs`: what may be asked.

mod commands;
mod draft;
pub mod item;
pub mod transaction;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

use prost::bytes::Bytes;

use crate::journal::Journal;
use crate::limits::Limits;
use crate::query::{Items, Range};
use crate::refusal::Refusal;
use crate::time::Time;
use crate::tree::{Iter, Tree};
use item::{Item, Span, successor};

/// All keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys {
    items: Tree<Bytes, Arc<Item>>,
    /// In all keys and values.
    bytes: usize,
    /// Keys that were lost without having been given back, and until when nobody should take them.
    delays: Tree<Bytes, Time>,
    delays_by_time: Tree<(Time, Bytes), ()>,
    /// In all keys that are delayed.
    delays_bytes: usize,
}

impl Keys {
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keys, and what is remembered of those that are gone: both take room.
    pub(crate) fn len_with_delays(&self) -> usize {
        self.items.len() + self.delays.len()
    }

    pub(crate) fn bytes_with_delays(&self) -> usize {
        self.bytes + self.delays_bytes
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Item> {
        self.items.values().map(|it| &**it)
    }

    pub(crate) fn find(&self, key: &[u8]) -> Option<&Item> {
        self.items.get(key).map(|it| &**it)
    }

    /// Puts a key where it was, or takes it away. Answers what was there.
    pub(crate) fn replace(&mut self, key: &Bytes, item: Option<Item>) -> Option<Item> {
        self.bytes += item.as_ref().map_or(0, Item::size);
        let before = match item {
            Some(item) => self.items.insert(key.clone(), Arc::new(item)),
            None => self.items.remove(key).map(|(_, item)| item),
        };
        let before = before.map(Arc::unwrap_or_clone);
        self.bytes -= before.as_ref().map_or(0, Item::size);
        before
    }

    pub(crate) fn within<'a>(&'a self, span: &'a Span) -> impl Iterator<Item = &'a Item> {
        within(&self.items, span).map(|it| &**it)
    }

    pub(crate) fn delays(&self) -> impl Iterator<Item = (&Bytes, Time)> {
        self.delays.iter().map(|(key, until)| (key, *until))
    }

    pub(crate) fn delay(&mut self, key: &Bytes, until: Time) {
        match self.delays.insert(key.clone(), until) {
            Some(before) => drop(self.delays_by_time.remove(&(before, key.clone()))),
            None => self.delays_bytes += key.len(),
        }
        self.delays_by_time.insert((until, key.clone()), ());
    }

    pub(crate) fn is_delayed(&self, span: &Span, at: Time, visits: &mut Visits) -> Result<bool, Refusal> {
        if span.is_one() {
            return Ok(self.delays.get(&span.start).is_some_and(|until| *until > at));
        }
        for until in within(&self.delays, span) {
            visits.spend(1)?;
            if *until > at {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(crate) fn next_delay(&self) -> Option<Time> {
        self.delays_by_time.first().map(|((until, _), ())| *until)
    }

    /// Drops one delay that is over. False if there is none.
    pub(crate) fn forget_delay(&mut self, at: Time) -> bool {
        if self.next_delay().is_none_or(|it| it > at) {
            return false;
        }
        let ((_, key), ()) = self.delays_by_time.pop_first().expect("there is one");
        self.delays.remove(&key);
        self.delays_bytes -= key.len();
        true
    }

    /// Reads keys as they are.
    pub(crate) fn read_now(&self, asked: &Range, limits: &Limits, visits: &mut Visits) -> Result<Items, Refusal> {
        let span = asked.span.as_ref().ok_or_else(|| Refusal::malformed("a span of keys is missing"))?;
        answer(&self.items, span, asked, limits, visits)
    }

    /// Reads keys, as they are or as they were.
    pub(crate) fn read(&self, asked: &Range, journal: &Journal, limits: &Limits) -> Result<Items, Refusal> {
        let visits = &mut Visits::of_question(limits);
        if asked.revision == 0 || asked.revision == journal.revision() {
            return self.read_now(asked, limits, visits);
        }
        let span = asked.span.as_ref().ok_or_else(|| Refusal::malformed("a span of keys is missing"))?;
        if let Some(refusal) = journal.missing(asked.revision) {
            return Err(refusal);
        }
        // What was is what is, without all that came after.
        let mut past = self.items.clone();
        let later: Vec<_> = journal.events_from(asked.revision + 1).collect();
        for event in later.into_iter().rev() {
            let Some(key) = event.key().filter(|it| span.contains(it)) else { continue };
            match event.previous() {
                Some(item) => drop(past.insert(key.clone(), Arc::new(item.clone()))),
                None => drop(past.remove(key)),
            }
        }
        let mut answer = answer(&past, span, asked, limits, visits)?;
        for item in answer.items.iter_mut().filter(|it| it.children_changed > asked.revision) {
            item.forget_children();
        }
        Ok(answer)
    }
}

/// How many keys a request may still look at, and delete.
pub(crate) struct Visits {
    left: usize,
    max: usize,
    deletions_left: usize,
    deletions_max: usize,
}

impl Visits {
    pub(crate) fn of_question(limits: &Limits) -> Visits {
        Visits { left: limits.visited_max, max: limits.visited_max, deletions_left: 0, deletions_max: 0 }
    }

    pub(crate) fn of_command(limits: &Limits) -> Visits {
        let (max, deletions_max) = (limits.visited_in_log_max, limits.deleted_max);
        Visits { left: max, max, deletions_left: deletions_max, deletions_max }
    }

    pub(crate) fn spend(&mut self, keys: usize) -> Result<(), Refusal> {
        self.left = self.left.checked_sub(keys).ok_or_else(|| Refusal::limit("keys looked at in one request", self.max))?;
        Ok(())
    }

    pub(crate) fn spend_deleted(&mut self, keys: usize) -> Result<(), Refusal> {
        self.spend(keys)?;
        let left = self.deletions_left.checked_sub(keys);
        self.deletions_left = left.ok_or_else(|| Refusal::limit("keys deleted at once", self.deletions_max))?;
        Ok(())
    }
}

fn within<'a, V>(map: &'a Tree<Bytes, V>, span: &'a Span) -> impl Iterator<Item = &'a V> {
    map.from(Bound::Included(&span.start)).take_while(|(key, _)| span.contains(key)).map(|(_, value)| value)
}

fn answer(
    items: &Tree<Bytes, Arc<Item>>,
    span: &Span,
    asked: &Range,
    limits: &Limits,
    visits: &mut Visits,
) -> Result<Items, Refusal> {
    let rest = |after: &[u8]| match after {
        [] => Some(items.from(Bound::Included(&span.start))),
        after => behind(items, span, after, &asked.separator),
    };
    let walk = |after| Walk { items, rest: rest(after), span, separator: &asked.separator };
    let mut answer = Items::default();
    if asked.counts || asked.count_only {
        for step in walk(&[]) {
            visits.spend(1)?;
            answer.count += u64::from(matches!(step, Step::Item(_)));
        }
    }
    if asked.count_only {
        return Ok(answer);
    }
    let limit = match asked.limit {
        0 => limits.answer_items_max,
        limit => usize::try_from(limit).unwrap_or(usize::MAX).min(limits.answer_items_max),
    };
    let mut bytes = 0;
    for step in walk(&asked.after) {
        visits.spend(1)?;
        let told = answer.items.len() + answer.branches.len();
        bytes += match &step {
            Step::Item(item) if asked.keys_only => item.key.len(),
            Step::Item(item) => item.size(),
            Step::Branch(branch) => branch.len(),
        };
        // One item is told however long it is, or nobody would ever come past it.
        if told >= limit || (bytes > limits.answer_bytes_max && told > 0) {
            answer.more = true;
            break;
        }
        match step {
            Step::Item(item) if asked.keys_only => answer.items.push(Item { value: Bytes::new(), ..item.clone() }),
            Step::Item(item) => answer.items.push(item.clone()),
            Step::Branch(branch) => answer.branches.push(branch),
        }
    }
    Ok(answer)
}

/// What comes behind a key or a branch of a span, also behind its end.
fn behind<'a>(
    items: &'a Tree<Bytes, Arc<Item>>,
    span: &Span,
    after: &[u8],
    separator: &[u8],
) -> Option<Iter<'a, Bytes, Arc<Item>>> {
    if span.is_one() || after < &span.start[..] {
        return Some(items.from(Bound::Included(&span.start)));
    }
    // A key may end in the separator, too: it is one that the span begins with.
    let is_branch = branch_len(span, after, separator) == Some(after.len());
    let start = if is_branch { successor(after) } else { [after, &[0]].concat().into() };
    // Nothing comes behind a branch of the last byte there is.
    if *start == [0] { None } else { Some(items.from(Bound::Included(&start))) }
}

/// How much of a key is the branch that it is in: up to the separator, behind what the span begins with, and with it.
fn branch_len(span: &Span, key: &[u8], separator: &[u8]) -> Option<usize> {
    let base = span.start.len();
    let name = key.get(base..)?;
    let at = if separator.is_empty() { None } else { name.windows(separator.len()).position(|it| it == separator) };
    Some(base + at? + separator.len())
}

/// Through a span in order, past the branches that a separator makes.
struct Walk<'a> {
    items: &'a Tree<Bytes, Arc<Item>>,
    span: &'a Span,
    /// What is left of it, and what comes behind.
    rest: Option<Iter<'a, Bytes, Arc<Item>>>,
    separator: &'a [u8],
}

enum Step<'a> {
    Item(&'a Item),
    Branch(Bytes),
}

impl<'a> Iterator for Walk<'a> {
    type Item = Step<'a>;

    fn next(&mut self) -> Option<Step<'a>> {
        let (key, item) = self.rest.as_mut()?.next().filter(|(key, _)| self.span.contains(key))?;
        let Some(len) = branch_len(self.span, key, self.separator) else { return Some(Step::Item(item)) };
        let branch = key.slice(..len);
        self.rest = behind(self.items, self.span, &branch, self.separator);
        Some(Step::Branch(branch))
    }
}
