//! A change of keys under way: all of it comes to be, at one revision, or nothing does.
//!
//! The draft writes to the keys at once, so that what follows in a transaction sees it, and remembers what was there before. Completed, it tells one event for each key that
//! is not as it was, whatever happened to it in between. Dropped half-way, it is undone.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use prost::bytes::Bytes;

use super::item::{Item, Span};
use super::transaction::{Delete, Deleted, Put};
use super::{Keys, Visits};
use crate::event::{Change, KeyDeleted, KeyPut};
use crate::journal::Journal;
use crate::limits::Limits;
use crate::refusal::Refusal;
use crate::reply::Written;
use crate::sessions::Sessions;
use crate::time::Stamp;

/// To pass a name that is taken costs as much as to look at so many keys of a span: it is made and looked for.
const TAKEN_NAME_VISITS: usize = 10;

/// A change under way.
pub(crate) struct Draft<'a> {
    pub(crate) keys: &'a mut Keys,
    sessions: &'a mut Sessions,
    limits: &'a Limits,
    stamp: Stamp,
    /// The revision it will have if anything changes.
    revision: u64,
    before: BTreeMap<Bytes, Option<Item>>,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(
        keys: &'a mut Keys,
        sessions: &'a mut Sessions,
        limits: &'a Limits,
        stamp: Stamp,
        revision: u64,
    ) -> Draft<'a> {
        Draft { keys, sessions, limits, stamp, revision, before: BTreeMap::new() }
    }

    /// It is complete: tells what has changed.
    pub(crate) fn complete(self, journal: &mut Journal) {
        let changed = |(key, before): &(&Bytes, &Option<Item>)| self.keys.find(key) != before.as_ref();
        if !self.before.iter().any(|it| changed(&it)) {
            return;
        }
        let revision = journal.advance();
        assert_eq!(revision, self.revision, "nobody else changes anything meanwhile");
        for (key, before) in &self.before {
            match (before, self.keys.find(key)) {
                // Its children may have changed; that is told of them, not of it.
                (_, Some(item)) if item.modified < revision => {}
                (previous, Some(item)) => {
                    let change = KeyPut { item: item.clone(), previous: previous.clone() };
                    journal.tell(Change::Put(Box::new(change)));
                }
                (Some(previous), None) => {
                    journal.tell(Change::Deleted(Box::new(KeyDeleted { previous: previous.clone() })));
                }
                (None, None) => {}
            }
        }
    }

    /// It comes to nothing.
    pub(crate) fn undo(mut self) {
        for (key, before) in core::mem::take(&mut self.before) {
            self.set(&key, before);
        }
    }

    /// Changes a key, and whose it is.
    fn set(&mut self, key: &Bytes, item: Option<Item>) {
        let session = item.as_ref().map_or(0, |it| it.session);
        let before = self.keys.replace(key, item);
        let former = before.as_ref().map_or(0, |it| it.session);
        if former != session {
            if former != 0 {
                self.sessions.detach_key(former, key);
            }
            if session != 0 {
                self.sessions.attach_key(session, key);
            }
        }
    }

    fn change(&mut self, key: &Bytes, item: Option<Item>) {
        if !self.before.contains_key(key) {
            self.before.insert(key.clone(), self.keys.find(key).cloned());
        }
        self.set(key, item);
    }

    pub(crate) fn put(&mut self, put: &Put, visits: &mut Visits) -> Result<Written, Refusal> {
        if put.key.is_empty() {
            return Err(Refusal::malformed("a key is not empty"));
        }
        if put.key.len() > self.limits.key_len_max {
            return Err(Refusal::limit("bytes in a key", self.limits.key_len_max));
        }
        if put.value.len() > self.limits.value_len_max {
            return Err(Refusal::limit("bytes in a value", self.limits.value_len_max));
        }
        if put.session != 0 {
            self.sessions.require(put.session)?;
        }
        let key = if put.sequential { self.name_child(put, visits)? } else { put.key.clone() };
        let before = self.keys.find(&key).cloned();
        if before.is_none() && (put.keeps_value || put.keeps_session) {
            return Err(Refusal::NoKey);
        }
        let item = self.written(put, key.clone(), before.as_ref());
        self.check_room(&item, before.as_ref())?;
        if before.is_none() {
            self.count_child(&item, true)?;
        }
        self.change(&key, Some(item.clone()));
        let previous = before.filter(|_| put.wants_previous).map(Box::new);
        Ok(Written { item: Some(Item { value: Bytes::new(), ..item }), previous })
    }

    /// The key as it will be.
    fn written(&self, put: &Put, key: Bytes, before: Option<&Item>) -> Item {
        let mut item = before.cloned().unwrap_or_else(|| Item {
            created: self.revision,
            created_wall_ms: self.stamp.wall_ms,
            parent_len: put.parent_len,
            key,
            ..Item::default()
        });
        if !put.keeps_value {
            item.value = put.value.clone();
        }
        if !put.keeps_session {
            item.session = put.session;
            item.outlives_session = put.session != 0 && put.outlives_session;
        }
        item.version += 1;
        item.modified = self.revision;
        item.modified_wall_ms = self.stamp.wall_ms;
        item
    }

    fn check_room(&self, item: &Item, before: Option<&Item>) -> Result<(), Refusal> {
        if before.is_none() && self.keys.len_with_delays() >= self.limits.keys_max {
            return Err(Refusal::limit("keys", self.limits.keys_max));
        }
        if self.keys.bytes_with_delays() - before.map_or(0, Item::size) + item.size() > self.limits.keys_bytes_max {
            return Err(Refusal::limit("bytes in all keys and values", self.limits.keys_bytes_max));
        }
        Ok(())
    }

    /// The name of the parent's next child.
    fn name_child(&mut self, put: &Put, visits: &mut Visits) -> Result<Bytes, Refusal> {
        let parent = child_of(&put.key, put.parent_len)?.ok_or_else(|| Refusal::malformed("a sequential key is a child"))?;
        let mut item = self.keys.find(&parent).cloned().ok_or(Refusal::NoParent)?;
        loop {
            let number = format!("{:010}", item.named);
            item.named += 1;
            let key: Bytes = [&put.key[..], number.as_bytes()].concat().into();
            // Somebody may have made one of this name by hand, or very many.
            let is_taken = self.keys.find(&key).is_some();
            visits.spend(if is_taken { TAKEN_NAME_VISITS } else { 1 })?;
            if !is_taken {
                self.change(&parent, Some(item));
                return Ok(key);
            }
        }
    }

    /// Its parent has one child more or less.
    fn count_child(&mut self, child: &Item, is_new: bool) -> Result<(), Refusal> {
        let Some(parent) = child_of(&child.key, child.parent_len)? else { return Ok(()) };
        let Some(mut item) = self.keys.find(&parent).cloned() else {
            // A parent may go before its children; then nobody counts them.
            return if is_new { Err(Refusal::NoParent) } else { Ok(()) };
        };
        item.children = if is_new { item.children + 1 } else { item.children.saturating_sub(1) };
        item.children_changes += 1;
        item.children_changed = self.revision;
        self.change(&parent, Some(item));
        Ok(())
    }

    pub(crate) fn delete(&mut self, delete: &Delete, space: &mut Space, visits: &mut Visits) -> Result<Deleted, Refusal> {
        let span = delete.span.as_ref().ok_or_else(|| Refusal::malformed("a span of keys is missing"))?;
        // One more than may be, so that too many are found out.
        let found: Vec<Item> = self.keys.within(span).take(self.limits.deleted_max + 1).cloned().collect();
        visits.spend_deleted(found.len())?;
        if delete.wants_previous {
            space.spend(found.len(), found.iter().map(Item::size).sum())?;
        }
        // Backwards, so that children go before their parents, and a parent that goes too need not be counted on.
        for item in found.iter().rev() {
            self.remove(item)?;
        }
        let count = found.len() as u64;
        Ok(Deleted { count, previous: if delete.wants_previous { found } else { Vec::new() } })
    }

    fn remove(&mut self, item: &Item) -> Result<(), Refusal> {
        self.count_child(item, false)?;
        self.change(&item.key, None);
        Ok(())
    }

    /// A session has ended: its key goes, or stays without it.
    pub(crate) fn end(&mut self, key: &Bytes) {
        let Some(item) = self.keys.find(key).cloned() else { return };
        if item.outlives_session {
            let version = item.version + 1;
            let (modified, modified_wall_ms) = (self.revision, self.stamp.wall_ms);
            let item = Item { session: 0, outlives_session: false, version, modified, modified_wall_ms, ..item };
            self.change(key, Some(item));
        } else {
            self.remove(&item).expect("only a new child needs its parent");
        }
    }

    pub(crate) fn session_lives(&self, session: u64) -> bool {
        self.sessions.live(session).is_some()
    }

    /// The keys of a span, if they are not too many to be compared.
    pub(crate) fn bounded<'s>(&'s self, span: &'s Span, visits: &mut Visits) -> Result<Vec<&'s Item>, Refusal> {
        let max = self.limits.answer_items_max;
        let found: Vec<&Item> = self.keys.within(span).take(max + 1).collect();
        if found.len() > max {
            return Err(Refusal::limit("keys in the span of a guard", max));
        }
        visits.spend(found.len())?;
        Ok(found)
    }
}

/// What an answer to all of a request may still hold.
pub(crate) struct Space {
    items: usize,
    bytes: usize,
    limits: Limits,
}

impl Space {
    pub(crate) fn new(limits: &Limits) -> Space {
        Space { items: limits.answer_items_max, bytes: limits.answer_bytes_max, limits: *limits }
    }

    /// Takes so many keys or branches, and so many bytes of them.
    pub(crate) fn spend(&mut self, items: usize, bytes: usize) -> Result<(), Refusal> {
        let (items_max, bytes_max) = (self.limits.answer_items_max, self.limits.answer_bytes_max);
        self.items = self.items.checked_sub(items).ok_or_else(|| Refusal::limit("keys in an answer", items_max))?;
        self.bytes = self.bytes.checked_sub(bytes).ok_or_else(|| Refusal::limit("bytes in an answer", bytes_max))?;
        Ok(())
    }
}

/// The parent's key.
fn child_of(key: &Bytes, parent_len: u32) -> Result<Option<Bytes>, Refusal> {
    match parent_len as usize {
        0 => Ok(None),
        len if len < key.len() => Ok(Some(key.slice(..len))),
        _ => Err(Refusal::malformed("a child's key is longer than its parent's")),
    }
}
