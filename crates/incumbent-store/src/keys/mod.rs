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

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Bound;

use prost::bytes::Bytes;

use crate::event::Change;
use crate::journal::Journal;
use crate::limits::Limits;
use crate::query::{Items, Range};
use crate::refusal::Refusal;
use crate::time::Time;
use item::{Item, Span};

/// All keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys {
    items: BTreeMap<Bytes, Item>,
    /// In all keys and values.
    bytes: usize,
    /// Keys that were lost without having been given back, and until when nobody should take them.
    delays: BTreeMap<Bytes, Time>,
    delays_by_time: BTreeSet<(Time, Bytes)>,
}

impl Keys {
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Item> {
        self.items.values()
    }

    pub(crate) fn find(&self, key: &[u8]) -> Option<&Item> {
        self.items.get(key)
    }

    /// Puts a key where it was, or takes it away. Answers what was there.
    pub(crate) fn replace(&mut self, key: &Bytes, item: Option<Item>) -> Option<Item> {
        self.bytes += item.as_ref().map_or(0, Item::size);
        let before = match item {
            Some(item) => self.items.insert(key.clone(), item),
            None => self.items.remove(key),
        };
        self.bytes -= before.as_ref().map_or(0, Item::size);
        before
    }

    pub(crate) fn within<'a>(&'a self, span: &'a Span) -> impl Iterator<Item = &'a Item> {
        within(&self.items, span)
    }

    pub(crate) fn delays(&self) -> impl Iterator<Item = (&Bytes, Time)> {
        self.delays.iter().map(|(key, until)| (key, *until))
    }

    pub(crate) fn delay(&mut self, key: &Bytes, until: Time) {
        if let Some(before) = self.delays.insert(key.clone(), until) {
            self.delays_by_time.remove(&(before, key.clone()));
        }
        self.delays_by_time.insert((until, key.clone()));
    }

    pub(crate) fn is_delayed(&self, span: &Span, at: Time) -> bool {
        if span.is_one() {
            return self.delays.get(&span.start).is_some_and(|until| *until > at);
        }
        within(&self.delays, span).any(|until| *until > at)
    }

    pub(crate) fn next_delay(&self) -> Option<Time> {
        self.delays_by_time.first().map(|it| it.0)
    }

    /// Drops one delay that is over. False if there is none.
    pub(crate) fn forget_delay(&mut self, at: Time) -> bool {
        if self.next_delay().is_none_or(|it| it > at) {
            return false;
        }
        let (_, key) = self.delays_by_time.pop_first().expect("there is one");
        self.delays.remove(&key);
        true
    }

    /// Reads keys as they are.
    pub(crate) fn read_now(&self, asked: &Range, limits: &Limits) -> Result<Items, Refusal> {
        let span = asked.span.as_ref().ok_or_else(|| Refusal::malformed("a span of keys is missing"))?;
        Ok(answer(asked, limits, || self.within(span)))
    }

    /// Reads keys, as they are or as they were.
    pub(crate) fn read(&self, asked: &Range, journal: &Journal, limits: &Limits) -> Result<Items, Refusal> {
        if asked.revision == 0 || asked.revision == journal.revision() {
            return self.read_now(asked, limits);
        }
        let span = asked.span.as_ref().ok_or_else(|| Refusal::malformed("a span of keys is missing"))?;
        if let Some(refusal) = journal.missing(asked.revision) {
            return Err(refusal);
        }
        // What was is what is, without all that came after.
        let mut past: BTreeMap<&[u8], &Item> = self.within(span).map(|it| (&it.key[..], it)).collect();
        for event in journal.events().rev().take_while(|it| it.revision > asked.revision) {
            let (key, previous) = match &event.change {
                Some(Change::Put(put)) => (&put.item.key, put.previous.as_ref()),
                Some(Change::Deleted(deleted)) => (&deleted.previous.key, Some(&deleted.previous)),
                Some(
                    Change::SessionEnded(_)
                    | Change::Elected(_)
                    | Change::Ended(_)
                    | Change::Proclaimed(_)
                    | Change::Wished(_)
                    | Change::Joined(_)
                    | Change::Left(_)
                    | Change::First(_)
                    | Change::Noted(_)
                    | Change::Completed(_),
                )
                | None => continue,
            };
            if !span.contains(key) {
                continue;
            }
            match previous {
                Some(item) => past.insert(&key[..], item),
                None => past.remove(&key[..]),
            };
        }
        Ok(answer(asked, limits, || past.values().copied()))
    }
}

fn within<'a, V>(map: &'a BTreeMap<Bytes, V>, span: &'a Span) -> impl Iterator<Item = &'a V> {
    let end = if span.is_one() {
        Bound::Included(&span.start)
    } else if span.is_open() {
        Bound::Unbounded
    } else {
        Bound::Excluded(&span.end)
    };
    // A range that ends before it begins is a panic to the map, and nothing to us.
    let range = (!span.is_empty()).then(|| map.range::<Bytes, _>((Bound::Included(&span.start), end)));
    range.into_iter().flatten().map(|(_, value)| value)
}

fn answer<'a, I: Iterator<Item = &'a Item>>(asked: &Range, limits: &Limits, found: impl Fn() -> I) -> Items {
    let count = if asked.counts || asked.count_only { found().count() as u64 } else { 0 };
    if asked.count_only {
        return Items { items: Vec::new(), more: false, count };
    }
    let limit = match asked.limit {
        0 => limits.answer_items_max,
        limit => usize::try_from(limit).unwrap_or(usize::MAX).min(limits.answer_items_max),
    };
    let (mut items, mut bytes, mut more) = (Vec::new(), 0, false);
    for item in found() {
        let value = if asked.keys_only { Bytes::new() } else { item.value.clone() };
        bytes += item.key.len() + value.len();
        // One item is told however long it is, or nobody would ever come past it.
        if items.len() >= limit || (bytes > limits.answer_bytes_max && !items.is_empty()) {
            more = true;
            break;
        }
        items.push(Item { value, ..item.clone() });
    }
    Items { items, more, count }
}
