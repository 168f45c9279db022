//! All who watch on a node, and their bells: an event rings those of them who want it.

use std::collections::BTreeMap;
use std::sync::Arc;

use incumbent_store::event::Event;
use incumbent_store::watch::{Interest, Watches};

use super::Bell;

/// All who watch on a node.
#[derive(Debug, Default)]
pub struct Belfry {
    watches: Watches,
    bells: BTreeMap<u64, Bell>,
}

impl Belfry {
    /// Nobody.
    pub fn new() -> Belfry {
        Belfry::default()
    }

    /// So many watch.
    pub fn len(&self) -> usize {
        self.bells.len()
    }

    /// Whether nobody does.
    pub fn is_empty(&self) -> bool {
        self.bells.is_empty()
    }

    /// Somebody watches, under a number that nobody else has.
    pub fn add_as(&mut self, watcher: u64, interest: Interest, bell: Bell) {
        self.watches.add(watcher, interest);
        self.bells.insert(watcher, bell);
    }

    /// It watches no more.
    pub fn remove(&mut self, watcher: u64) {
        self.watches.remove(watcher);
        self.bells.remove(&watcher);
    }

    /// These have happened. To be called when they can be read, and before anybody is told that the store is at their revision.
    pub fn ring(&self, events: &[Arc<Event>]) {
        for event in events {
            for watcher in self.watches.wanting(event) {
                if let Some(bell) = self.bells.get(&watcher) {
                    bell.ring(event.revision);
                }
            }
        }
    }

    /// The store has leapt to this revision, by a snapshot: whoever watches looks for itself what there is, or is told that it is not kept.
    pub fn ring_all(&self, revision_before: u64) {
        for bell in self.bells.values() {
            bell.ring(revision_before.saturating_add(1));
        }
    }
}
