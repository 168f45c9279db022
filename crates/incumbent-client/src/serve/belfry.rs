//! All who watch on a node, and their bells: an event rings those of them who want it.

use std::collections::BTreeMap;
use std::sync::Arc;

use incumbent_store::event::{Change, Event};
use incumbent_store::watch::{Interest, Watches};

use super::Bell;

/// Where more has happened at once than this, everybody reads for itself what concerns it.
const IN_HAND_MAX: usize = 16;

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

    /// These have happened, and nothing else at their revisions. To be called when they can be read, and before anybody is told that the store is at their revision.
    ///
    /// Who was elected hears of it first: of all who are told now it alone is waited for, and each of the others may take a processor for a while.
    pub fn ring(&self, events: &[Arc<Event>]) {
        let mut wanted: BTreeMap<u64, Vec<Arc<Event>>> = BTreeMap::new();
        for event in events {
            for watcher in self.watches.wanting(event) {
                let theirs = wanted.entry(watcher).or_default();
                if theirs.len() < IN_HAND_MAX {
                    theirs.push(Arc::clone(event));
                }
            }
        }
        let elects = |event: &Arc<Event>| matches!(event.change, Some(Change::Elected(_)));
        let (elected, others): (Vec<_>, Vec<_>) = wanted.iter().partition(|(_, theirs)| theirs.iter().any(elects));
        for (watcher, theirs) in elected.into_iter().chain(others) {
            let Some(bell) = self.bells.get(watcher) else { continue };
            if events.len() <= IN_HAND_MAX {
                bell.tell(theirs);
            } else if let Some(first) = theirs.first() {
                bell.ring(first.revision);
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use incumbent_store::election::{Holder, Past};
    use incumbent_store::event::{Elected, Ended};
    use incumbent_store::watch::{CandidateTopic, Topic};

    use super::*;
    use crate::serve::outbox::Outbox;

    #[tokio::test]
    async fn who_was_elected_hears_of_it_before_who_has_resigned() {
        let (mut belfry, heard) = (Belfry::new(), Arc::new(Mutex::new(Vec::new())));
        let mut listeners = Vec::new();
        for (watcher, identity) in [(1, "former"), (2, "heir")] {
            let outbox = Outbox::new();
            let topic = CandidateTopic { election: "e".to_owned(), identity: identity.to_owned() };
            let interest = Interest::of(Topic::Candidate(topic));
            belfry.add_as(watcher, interest.clone(), outbox.expect_watch(7, interest));
            outbox.begin_watch(7, watcher, 1);
            outbox.more().await;
            let heard = Arc::clone(&heard);
            listeners.push(tokio::spawn(async move {
                outbox.more().await;
                heard.lock().expect("no panic").push(identity);
            }));
        }
        tokio::task::yield_now().await;
        let election = || "e".to_owned();
        let past = Past { identity: "former".to_owned(), ..Past::default() };
        let ended = Ended { election: election(), past };
        let holder = Holder { identity: "heir".to_owned(), ..Holder::default() };
        let changes = [Change::Ended(Box::new(ended)), Change::Elected(Box::new(Elected { election: election(), holder }))];
        belfry.ring(&changes.map(|it| Arc::new(Event { revision: 1, change: Some(it) })));
        for listener in listeners {
            listener.await.expect("no panic");
        }
        assert_eq!(*heard.lock().expect("no panic"), ["heir", "former"]);
    }
}
