//! Who watches on this node, and how far each has been told.
//!
//! Told is the log's events in their order, each revision whole, without a hole or a repetition from the revision that was asked for; or that this is not to be had,
//! and why. A watcher that does not read is cut off; it holds nobody up.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use incumbent_store::event::Event;
use incumbent_store::query::ReadEvents;
use incumbent_store::refusal::Refusal;
use incumbent_store::store::Store;
use incumbent_store::watch::{Interest, Watches};
use tokio::sync::mpsc;

use super::config::{WATCH_BACKLOG_MAX, WATCHES_MAX};
use super::handle::{Batch, Watch, WatchEnd};

/// All who watch.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    last: u64,
    watches: Watches,
    watchers: BTreeMap<u64, Watcher>,
}

#[derive(Debug)]
struct Watcher {
    interest: Interest,
    /// Nothing before this revision is told.
    next: u64,
    batches: mpsc::Sender<Batch>,
    end: Arc<OnceLock<WatchEnd>>,
}

impl Watchers {
    pub(super) fn len(&self) -> usize {
        self.watchers.len()
    }

    /// Begins a watch, with what has happened since `from`.
    pub(super) fn add(&mut self, interest: Interest, from: u64, store: &Store, unwatched: mpsc::UnboundedSender<u64>) -> Watch {
        self.last += 1;
        let number = self.last;
        let (batches, inbox) = mpsc::channel(WATCH_BACKLOG_MAX);
        let end = Arc::default();
        let watch = Watch { number, batches: inbox, end: Arc::clone(&end), unwatched };
        let next = if from == 0 { store.revision() + 1 } else { from };
        let mut watcher = Watcher { interest, next, batches, end };
        if self.watchers.len() >= WATCHES_MAX {
            let _ = watcher.finish(WatchEnd::Refused(Refusal::Limit { what: "watches".to_owned(), max: WATCHES_MAX as u64 }));
        } else if watcher.catch_up(store) {
            self.watches.add(number, watcher.interest.clone());
            self.watchers.insert(number, watcher);
        }
        watch
    }

    pub(super) fn remove(&mut self, number: u64) {
        self.watches.remove(number);
        self.watchers.remove(&number);
    }

    /// These have just happened; the store is at `revision` after them.
    pub(super) fn tell(&mut self, events: &[Arc<Event>], revision: u64) {
        if self.watchers.is_empty() || events.is_empty() {
            return;
        }
        let mut told: BTreeMap<u64, Vec<Arc<Event>>> = BTreeMap::new();
        for event in events {
            for number in self.watches.wanting(event) {
                told.entry(number).or_default().push(Arc::clone(event));
            }
        }
        for (number, events) in told {
            if self.watchers.get_mut(&number).is_some_and(|watcher| !watcher.tell(events, revision)) {
                self.remove(number);
            }
        }
    }

    /// The store has leapt ahead: what lies between is told as far as it is known. All up to the revision before was told, or did not matter.
    pub(super) fn leap(&mut self, store: &Store, revision_before: u64) {
        let behind: Vec<u64> = self.watchers.keys().copied().collect();
        for number in behind {
            let Some(watcher) = self.watchers.get_mut(&number) else { continue };
            watcher.next = watcher.next.max(revision_before + 1);
            if !watcher.catch_up(store) {
                self.remove(number);
            }
        }
    }
}

impl Watcher {
    /// False if it has ended.
    fn tell(&mut self, mut events: Vec<Arc<Event>>, revision: u64) -> bool {
        events.retain(|it| it.revision >= self.next);
        self.next = self.next.max(revision + 1);
        if events.is_empty() {
            return true;
        }
        match self.batches.try_send(Batch { revision, events }) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Full(_)) => self.finish(WatchEnd::TooSlow),
            Err(mpsc::error::TrySendError::Closed(_)) => false,
        }
    }

    /// Tells what is kept, from its next revision on. False if it has ended.
    fn catch_up(&mut self, store: &Store) -> bool {
        while self.next <= store.revision() {
            let asked = ReadEvents { from: self.next, interest: Some(self.interest.clone()), limit: 0 };
            let events = match store.events(&asked) {
                Ok(events) => events,
                Err(refusal) => return self.finish(WatchEnd::Refused(refusal)),
            };
            if !self.tell(events.events, events.next - 1) {
                return false;
            }
        }
        true
    }

    fn finish(&mut self, end: WatchEnd) -> bool {
        let _ = self.end.set(end);
        false
    }
}
