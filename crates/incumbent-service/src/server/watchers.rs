//! Who watches on this node, and how far each has been told.
//!
//! Told is the log's events in their order, each revision whole, without a hole or a repetition from the revision that was asked for; or that this is not to be had,
//! and why. A watcher that does not read is cut off; it holds nobody up, and what waits for it is bounded in bytes, for each, for all of a guest and for all (C69).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use incumbent_store::event::Event;
use incumbent_store::query::ReadEvents;
use incumbent_store::refusal::Refusal;
use incumbent_store::store::Store;
use incumbent_store::watch::{Interest, Watches};
use tokio::sync::mpsc;

use super::config::{
    WATCH_BACKLOG_BYTES_MAX, WATCH_BACKLOG_MAX, WATCH_BACKLOGS_BYTES_MAX, WATCH_READ_BYTES_MAX, WATCH_TIMES_LEFT,
    WATCH_TIMES_LEFT_BEHIND, WATCHES_MAX,
};
use super::handle::{Batch, Watch, WatchEnd};
use super::pool::{Pool, Share};

/// All who watch.
#[derive(Debug)]
pub(super) struct Watchers {
    last: u64,
    watches: Watches,
    watchers: BTreeMap<u64, Watcher>,
    /// Room for what waits for all of them.
    room: Pool,
}

#[derive(Debug)]
struct Watcher {
    interest: Interest,
    guest: Arc<str>,
    /// Nothing before this revision is told.
    next: u64,
    batches: mpsc::Sender<(Batch, Held)>,
    /// What waits for it, in bytes.
    waiting: Arc<AtomicUsize>,
    /// Where there is room for that.
    room: Pool,
    end: Arc<OnceLock<WatchEnd>>,
}

/// What a batch counts for, until it has been told.
#[derive(Debug)]
pub(super) struct Held {
    bytes: usize,
    waiting: Arc<AtomicUsize>,
    _share: Share,
}

impl Held {
    fn new(bytes: usize, waiting: &Arc<AtomicUsize>, share: Share) -> Held {
        waiting.fetch_add(bytes, Ordering::Relaxed);
        Held { bytes, waiting: Arc::clone(waiting), _share: share }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Events for one watcher, and what they count for.
#[derive(Default)]
struct News {
    events: Vec<Arc<Event>>,
    bytes: usize,
}

impl News {
    fn add(&mut self, event: &Arc<Event>, bytes: usize) {
        self.events.push(Arc::clone(event));
        self.bytes += bytes;
    }
}

impl Default for Watchers {
    fn default() -> Watchers {
        let room = Pool::new(WATCH_BACKLOGS_BYTES_MAX);
        Watchers { last: 0, watches: Watches::default(), watchers: BTreeMap::new(), room }
    }
}

impl Watchers {
    pub(super) fn len(&self) -> usize {
        self.watchers.len()
    }

    /// What waits for all of them, in bytes.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.room.taken()
    }

    /// Begins a watch of a guest, with what has happened since `from`.
    pub(super) fn add(
        &mut self,
        interest: Interest,
        guest: Arc<str>,
        from: u64,
        store: &Store,
        unwatched: mpsc::UnboundedSender<u64>,
    ) -> Watch {
        self.last += 1;
        let number = self.last;
        let (batches, inbox) = mpsc::channel(WATCH_BACKLOG_MAX);
        let end = Arc::default();
        let watch = Watch { number, batches: inbox, in_hand: None, end: Arc::clone(&end), unwatched };
        let next = if from == 0 { store.revision() + 1 } else { from };
        let (waiting, room) = (Arc::default(), self.room.clone());
        let mut watcher = Watcher { interest, guest, next, batches, waiting, room, end };
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
        let mut told: BTreeMap<u64, News> = BTreeMap::new();
        for event in events {
            let bytes = event.weight();
            for number in self.watches.wanting(event) {
                told.entry(number).or_default().add(event, bytes);
            }
        }
        for (number, news) in told {
            if self.watchers.get_mut(&number).is_some_and(|watcher| !watcher.tell(news, revision)) {
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
    fn tell(&mut self, mut news: News, revision: u64) -> bool {
        news.events.retain(|it| it.revision >= self.next);
        self.next = self.next.max(revision + 1);
        if news.events.is_empty() {
            return true;
        }
        self.send(Batch { revision, events: news.events }, news.bytes)
    }

    fn send(&mut self, batch: Batch, bytes: usize) -> bool {
        let own = self.waiting.load(Ordering::Relaxed);
        let times = if own > 0 { WATCH_TIMES_LEFT_BEHIND } else { WATCH_TIMES_LEFT };
        let Some(share) = self.room.take(&self.guest, bytes, times) else { return self.finish(too_much_waits()) };
        // Whoever has read everything is told more, however much it is for one.
        if own > 0 && own + bytes > WATCH_BACKLOG_BYTES_MAX {
            return self.finish(WatchEnd::Behind);
        }
        match self.batches.try_send((batch, Held::new(bytes, &self.waiting, share))) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Full(_)) => self.finish(WatchEnd::Behind),
            Err(mpsc::error::TrySendError::Closed(_)) => false,
        }
    }

    /// Tells what is kept, from its next revision on, as far as it can be told at once. False if it has ended.
    fn catch_up(&mut self, store: &Store) -> bool {
        if self.next > store.revision() {
            return true;
        }
        let asked = ReadEvents { from: self.next, interest: Some(self.interest.clone()), limit: 0 };
        let happened = match store.events(&asked, WATCH_READ_BYTES_MAX) {
            Ok(happened) => happened,
            Err(refusal) => return self.finish(WatchEnd::Refused(refusal)),
        };
        self.next = happened.next;
        let bytes = happened.events.iter().map(|it| it.weight()).sum();
        let batch = Batch { revision: happened.next - 1, events: happened.events };
        if (happened.more || !batch.events.is_empty()) && !self.send(batch, bytes) {
            return false;
        }
        // Whoever wants the rest asks for it when it has told this: the others are served between.
        if happened.more { self.finish(WatchEnd::Behind) } else { true }
    }

    fn finish(&mut self, end: WatchEnd) -> bool {
        let _ = self.end.set(end);
        false
    }
}

fn too_much_waits() -> WatchEnd {
    let what = "bytes of events that wait for slow listeners".to_owned();
    WatchEnd::Refused(Refusal::Limit { what, max: WATCH_BACKLOGS_BYTES_MAX as u64 })
}
