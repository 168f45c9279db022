//! All who watch on a node, and their bells: an event rings those of them who want it.
//!
//! A bell that was rung is taken down until its watch has read on: whoever reads slowly, or not at all, costs the next event nothing. And it is hung up again before that read, so what happens
//! behind it rings at once. However many want an event, they are rung in pieces.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::{mem, vec};

use incumbent_store::event::{Change, Event};
use incumbent_store::watch::{Interest, Watches};

use super::Bell;
use super::outbox::ReadOn;

/// Where more has happened at once than this, everybody reads for itself what concerns it.
const IN_HAND_MAX: usize = 16;

/// So many bells are rung in one go, or so many events looked at.
const RUNG_AT_ONCE_MAX: usize = 10_000;

/// All who watch on a node.
#[derive(Debug, Default)]
pub struct Belfry {
    bells: BTreeMap<u64, Bell>,
    /// Those whose bells are up.
    watches: Watches,
    /// Those that were rung.
    down: BTreeSet<u64>,
    /// And of these the ones that have read on.
    read_on: Arc<ReadOn>,
    /// What has happened and was not looked at: whole revisions.
    pending: VecDeque<Arc<Event>>,
    /// Who is to be rung next, and what for.
    round: vec::IntoIter<(u64, Vec<Arc<Event>>)>,
    /// Whether they are told what it is.
    in_hand: bool,
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
        bell.hang(&self.read_on, watcher);
        self.watches.add(watcher, interest);
        self.bells.insert(watcher, bell);
    }

    /// It watches no more.
    pub fn remove(&mut self, watcher: u64) {
        self.watches.remove(watcher);
        self.down.remove(&watcher);
        self.bells.remove(&watcher);
    }

    /// These have happened, and nothing else at their revisions. To be called when they can be read, and before anybody is told that the store is at their revision. If there is more to ring than
    /// is rung at once, the answer is `true`: then [`ring_on`](Self::ring_on) is to be called until it is not, and only then may anybody be told of that revision.
    ///
    /// Who was elected hears of it first: of all who are told now it alone is waited for, and each of the others may take a processor for a while.
    #[must_use = "some may not have been rung yet"]
    pub fn ring(&mut self, events: &[Arc<Event>]) -> bool {
        self.pending.extend(events.iter().cloned());
        self.ring_on()
    }

    /// Goes on ringing. Whether there is still more to ring.
    #[must_use = "some may not have been rung yet"]
    pub fn ring_on(&mut self) -> bool {
        let mut done = 0;
        while done < RUNG_AT_ONCE_MAX {
            if let Some((watcher, theirs)) = self.round.next() {
                self.ring_one(watcher, &theirs);
                done += 1;
            } else if self.pending.is_empty() {
                return false;
            } else {
                done += self.gather(RUNG_AT_ONCE_MAX - done);
            }
        }
        !self.round.as_slice().is_empty() || !self.pending.is_empty()
    }

    fn ring_one(&mut self, watcher: u64, theirs: &[Arc<Event>]) {
        let (Some(bell), Some(first)) = (self.bells.get(&watcher), theirs.first()) else { return };
        let told = if self.in_hand {
            bell.tell(theirs)
        } else {
            bell.ring(first.revision);
            false
        };
        if !told {
            self.watches.remove(watcher);
            self.down.insert(watcher);
        }
    }

    /// Finds out who wants what has happened, of some of it: so many events at most, and so many who want them and those of one event more. How many events that were.
    fn gather(&mut self, events_max: usize) -> usize {
        // Whoever comes to read from now on finds all that is pending.
        for watcher in self.read_on.take() {
            if self.down.remove(&watcher)
                && let Some(interest) = self.bells.get(&watcher).and_then(|it| it.hang(&self.read_on, watcher))
            {
                self.watches.add(watcher, interest);
            }
        }
        self.in_hand = self.pending.len() <= IN_HAND_MAX;
        let mut wanted: BTreeMap<u64, Vec<Arc<Event>>> = BTreeMap::new();
        let (mut events, mut wanting) = (0, 0);
        while events < events_max
            && wanting < RUNG_AT_ONCE_MAX
            && let Some(event) = self.pending.pop_front()
        {
            events += 1;
            for watcher in self.watches.wanting(&event) {
                wanting += 1;
                let theirs = wanted.entry(watcher).or_default();
                if theirs.len() < IN_HAND_MAX {
                    theirs.push(Arc::clone(&event));
                }
            }
            // What happened at one revision is told as one, so if the rest of it has to wait, all of it is read.
            if self.pending.front().is_some_and(|it| it.revision == event.revision) {
                self.in_hand &= events < events_max && wanting < RUNG_AT_ONCE_MAX;
            }
        }
        let elects = |event: &Arc<Event>| matches!(event.change, Some(Change::Elected(_)));
        let (mut round, others): (Vec<_>, Vec<_>) = wanted.into_iter().partition(|(_, theirs)| theirs.iter().any(elects));
        round.extend(others);
        self.round = round.into_iter();
        events
    }

    /// The store has leapt to this revision, by a snapshot: whoever watches looks for itself what there is, or is told that it is not kept.
    pub fn ring_all(&mut self, revision_before: u64) {
        // Nobody passes over what some were still to be rung for.
        let round = mem::take(&mut self.round);
        let pending = mem::take(&mut self.pending);
        let unrung = round.as_slice().iter().filter_map(|(_, theirs)| theirs.first()).chain(pending.front());
        let from = unrung.map(|it| it.revision).min().unwrap_or(u64::MAX).min(revision_before.saturating_add(1));
        for bell in self.bells.values() {
            bell.ring(from);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use incumbent_store::election::{Holder, Past};
    use incumbent_store::event::{Elected, Ended, SessionEnded};
    use incumbent_store::query::Happened;
    use incumbent_store::watch::{CandidateTopic, Topic};

    use super::*;
    use crate::frame::{ANSWER_MAX, Inbox};
    use crate::message::{ToClient, Told};
    use crate::serve::outbox::{Outbox, Step};
    use crate::serve::{Bounds, Reading};

    #[tokio::test]
    async fn who_was_elected_hears_of_it_before_who_has_resigned() {
        let (mut belfry, heard) = (Belfry::new(), Arc::new(Mutex::new(Vec::new())));
        let mut listeners = Vec::new();
        for (watcher, identity) in [(1, "former"), (2, "heir")] {
            let outbox = Outbox::new(&Bounds::default());
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
        assert!(!belfry.ring(&changes.map(|it| Arc::new(Event { revision: 1, change: Some(it) }))));
        for listener in listeners {
            listener.await.expect("no panic");
        }
        assert_eq!(*heard.lock().expect("no panic"), ["heir", "former"]);
    }

    fn happened(revision: u64) -> Arc<Event> {
        let ended = SessionEnded { session: 1, ..SessionEnded::default() };
        Arc::new(Event { revision, change: Some(Change::SessionEnded(ended)) })
    }

    /// What the watch reads, and from where.
    fn reads(outbox: &Arc<Outbox>) -> (u64, Reading) {
        match outbox.step(0, 256) {
            Step::Ask(asked, reading) => (asked.from, reading),
            other @ (Step::Tell(_) | Step::Wait) => panic!("{other:?}"),
        }
    }

    /// The watch, to which nothing more is to be told.
    fn is_told(outbox: &Arc<Outbox>, reading: Reading, next: u64) -> u64 {
        reading.done(Ok(Happened { events: Vec::new(), next, more: false }));
        let Step::Tell(read) = outbox.step(0, 256) else { panic!("not read") };
        assert!(outbox.told(read.id, next, false));
        read.id
    }

    #[test]
    fn whoever_was_rung_for_and_does_not_read_costs_the_next_event_nothing() {
        let (mut belfry, outbox) = (Belfry::new(), Outbox::new(&Bounds::default()));
        belfry.add_as(1, Interest::EVERYTHING, outbox.expect_watch(7, Interest::EVERYTHING));
        outbox.begin_watch(7, 1, 1);
        let asked = |belfry: &Belfry| belfry.watches.wanting(&happened(0)).len();
        assert!(!belfry.ring(&[happened(5)]));
        assert_eq!(asked(&belfry), 0, "it has not read even that it stands");
        assert!(!belfry.ring(&[happened(6)]));
        // It begins to read; what happens from now on may lie behind what is read.
        let (from, reading) = reads(&outbox);
        assert_eq!(from, 1);
        assert!(!belfry.ring(&[happened(7)]));
        is_told(&outbox, reading, 7);
        assert!(!outbox.has_told());
        let (from, reading) = reads(&outbox);
        assert_eq!(from, 7);
        is_told(&outbox, reading, 8);
        assert!(matches!(outbox.step(0, 256), Step::Wait) && outbox.has_told());
        // Whoever has read everything is told at once, and its bell stays.
        for revision in 8..12 {
            assert!(!belfry.ring(&[happened(revision)]));
            assert_eq!((asked(&belfry), outbox.has_told()), (1, true), "{revision}");
        }
        belfry.remove(1);
        assert!(belfry.is_empty() && belfry.watches.is_empty() && belfry.down.is_empty());
    }

    #[test]
    fn very_many_are_rung_in_pieces_and_what_happens_meanwhile_is_told_in_its_order() {
        const WATCHERS: u64 = 2 * RUNG_AT_ONCE_MAX as u64 + 1;
        let (mut belfry, outbox) = (Belfry::new(), Outbox::new(&Bounds::default()));
        for watcher in 1..=WATCHERS {
            belfry.add_as(watcher, Interest::EVERYTHING, outbox.expect_watch(watcher, Interest::EVERYTHING));
            outbox.begin_watch(watcher, watcher, 1);
            let (_, reading) = reads(&outbox);
            is_told(&outbox, reading, 5);
        }
        assert!(matches!(outbox.step(0, 256), Step::Wait) && outbox.has_told());
        let mut told: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let mut take = || {
            let mut inbox = Inbox::new();
            outbox.take(inbox.room());
            while let Some(ToClient { id, told: Some(Told::Events(tidings)) }) = inbox.take(ANSWER_MAX).expect("good") {
                told.entry(id).or_default().extend(tidings.events.iter().map(|it| it.revision));
            }
        };
        // One after the other, as a connection takes them: what waits for it is little.
        let mut pieces = 1;
        let mut more = belfry.ring(&[happened(5)]);
        assert!(more, "there are more than are rung at once");
        more = belfry.ring(&[happened(6), happened(6)]);
        take();
        while more {
            take();
            more = belfry.ring_on();
            pieces += 1;
        }
        take();
        assert!(pieces > 1, "{pieces} pieces");
        // Where much waited, the bell was rung, and the rest is read.
        while outbox.behind() > 0 {
            let (from, reading) = reads(&outbox);
            let id = is_told(&outbox, reading, 7);
            told.entry(id).or_default().extend([5, 6, 6].iter().filter(|it| **it >= from));
        }
        assert_eq!(told.len() as u64, WATCHERS);
        assert!(told.values().all(|it| *it == [5, 6, 6]));
    }

    #[test]
    fn a_crowd_that_wants_much_is_looked_at_once_and_a_leap_passes_over_nothing() {
        let (mut belfry, outbox) = (Belfry::new(), Outbox::new(&Bounds::default()));
        for watcher in 1..=RUNG_AT_ONCE_MAX as u64 + 1 {
            belfry.add_as(watcher, Interest::EVERYTHING, outbox.expect_watch(watcher, Interest::EVERYTHING));
            outbox.begin_watch(watcher, watcher, 1);
            let (_, reading) = reads(&outbox);
            is_told(&outbox, reading, 5);
        }
        let much: Vec<_> = (5..5 + 2 * IN_HAND_MAX as u64).map(happened).collect();
        assert!(belfry.ring(&much));
        assert_eq!(outbox.behind(), RUNG_AT_ONCE_MAX - 1);
        assert_eq!(belfry.pending.len(), much.len() - 1, "the others want nobody who has not been rung");
        belfry.ring_all(5 + much.len() as u64);
        assert_eq!(outbox.behind(), RUNG_AT_ONCE_MAX + 1);
        assert!(!belfry.ring_on());
        for _ in 0..=RUNG_AT_ONCE_MAX {
            let (from, reading) = reads(&outbox);
            assert_eq!(from, 5, "those who were not rung yet have not heard of it");
            is_told(&outbox, reading, 50);
        }
        assert!(matches!(outbox.step(0, 256), Step::Wait) && outbox.has_told());
    }
}
