//! The one revision counter, and the events of the last revisions: for watches that resume, and for reads of the past.
//!
//! Only so many are kept. Whole revisions are dropped, never a part of one, and the oldest that is left is known: so whoever asks for less hears
//! [`Refusal::Lagged`] or [`Refusal::Compacted`], never a stream with a hole in it.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

use crate::event::{Change, Event};
use crate::limits::Limits;
use crate::query::{Happened, ReadEvents};
use crate::refusal::Refusal;
use crate::tree::Tree;
use crate::watch::Interest;

/// So many events are looked at for one answer, wanted or not: whoever wants few of them asks again, and others are served between.
const VISITED_MAX: usize = 10_000;

/// Revisions and events.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    revision: u64,
    /// By revision, and how many were kept before it.
    events: Tree<(u64, u64), Arc<Event>>,
    /// So many were kept, ever.
    kept: u64,
    /// What the events count for, in bytes.
    bytes: usize,
    /// Events from this revision on are all there.
    oldest: u64,
    /// The last revision that was dropped because somebody said so.
    compacted: u64,
    /// The events of the request under way.
    fresh: Vec<Arc<Event>>,
}

impl Journal {
    pub(crate) fn new() -> Journal {
        Journal { revision: 0, events: Tree::default(), kept: 0, bytes: 0, oldest: 1, compacted: 0, fresh: Vec::new() }
    }

    pub(crate) fn restored(revision: u64, oldest: u64, compacted: u64) -> Journal {
        Journal { revision, oldest, compacted, ..Journal::new() }
    }

    /// An event that was kept before. In their order.
    pub(crate) fn restore(&mut self, event: Event) {
        self.keep(Arc::new(event));
    }

    fn keep(&mut self, event: Arc<Event>) {
        self.bytes += event.weight();
        self.kept += 1;
        self.events.insert((event.revision, self.kept), event);
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn oldest(&self) -> u64 {
        self.oldest
    }

    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    pub(crate) fn events(&self) -> impl Iterator<Item = &Arc<Event>> {
        self.events.values()
    }

    /// Those of this revision, and later ones.
    pub(crate) fn events_from(&self, revision: u64) -> impl Iterator<Item = &Arc<Event>> {
        self.events.from(Bound::Included(&(revision, 0))).map(|(_, event)| event)
    }

    /// Begins a new revision.
    pub(crate) fn advance(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    /// Something has changed at this revision.
    pub(crate) fn tell(&mut self, change: Change) {
        self.fresh.push(Arc::new(Event { revision: self.revision, change: Some(change) }));
    }

    /// The request under way is done: gives its events out, keeps them, and drops what is too much.
    pub(crate) fn settle(&mut self, limits: &Limits, events: &mut Vec<Arc<Event>>) {
        let mut fresh = core::mem::take(&mut self.fresh);
        for event in fresh.drain(..) {
            self.keep(event.clone());
            events.push(event);
        }
        // Empty, but with the room it has.
        self.fresh = fresh;
        while self.events.len() > limits.events_max || self.bytes > limits.events_bytes_max {
            match (self.events.first(), self.events.last()) {
                // What has just happened is kept whole, however much it is.
                (Some(((first, _), _)), Some(((last, _), _))) if first < last => self.drop_revision(*first),
                (_, _) => break,
            }
        }
    }

    fn drop_revision(&mut self, revision: u64) {
        while self.events.first().is_some_and(|((first, _), _)| *first <= revision)
            && let Some((_, dropped)) = self.events.pop_first()
        {
            self.bytes -= dropped.weight();
        }
        self.oldest = self.oldest.max(revision + 1);
    }

    /// Drops all up to `revision` because somebody said so.
    pub(crate) fn compact(&mut self, revision: u64) -> Result<(), Refusal> {
        if revision > self.revision {
            return Err(Refusal::Future(self.revision));
        }
        if revision <= self.compacted {
            return Err(Refusal::Compacted(self.oldest));
        }
        self.drop_revision(revision);
        self.compacted = revision;
        Ok(())
    }

    /// Why there is no seeing what was at `revision`; `None` if there is.
    pub(crate) fn missing(&self, revision: u64) -> Option<Refusal> {
        if revision > self.revision {
            return Some(Refusal::Future(self.revision));
        }
        // What was at a revision is what is now without all that came after it.
        self.dropped(revision.saturating_add(1))
    }

    fn dropped(&self, from: u64) -> Option<Refusal> {
        if from >= self.oldest {
            None
        } else if from <= self.compacted {
            Some(Refusal::Compacted(self.oldest))
        } else {
            Some(Refusal::Lagged(self.oldest))
        }
    }

    /// What has happened since: so many bytes of it at most, but always a whole revision.
    pub(crate) fn read(&self, asked: &ReadEvents, bytes_max: usize) -> Result<Happened, Refusal> {
        let from = if asked.from == 0 { self.oldest } else { asked.from };
        if let Some(refusal) = self.dropped(from) {
            return Err(refusal);
        }
        let limit = match asked.limit {
            0 => Limits::LISTED_MAX,
            limit => usize::try_from(limit).unwrap_or(usize::MAX).min(Limits::LISTED_MAX),
        };
        let everything = Interest::EVERYTHING;
        let interest = asked.interest.as_ref().unwrap_or(&everything);
        let (mut events, mut bytes, mut last): (Vec<Arc<Event>>, usize, u64) = (Vec::new(), 0, from);
        for (visited, event) in self.events_from(from).enumerate() {
            let is_wanted = interest.wants(event);
            // A revision is told as a whole.
            let is_much = is_wanted && (events.len() >= limit || bytes >= bytes_max);
            let is_full = is_much && events.last().is_some_and(|it| it.revision < event.revision);
            if is_full || (visited >= VISITED_MAX && last < event.revision) {
                return Ok(Happened { next: event.revision, events, more: true });
            }
            last = event.revision;
            if is_wanted {
                bytes += event.weight();
                events.push(Arc::clone(event));
            }
        }
        Ok(Happened { events, next: from.max(self.revision + 1), more: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::SessionEnded;
    use crate::watch::Topic;

    fn journal(limits: &Limits, revisions: u64, each: usize) -> Journal {
        let mut journal = Journal::new();
        for _ in 0..revisions {
            journal.advance();
            for session in 0..each as u64 {
                journal.tell(Change::SessionEnded(SessionEnded { session, reason: "".into() }));
            }
            journal.settle(limits, &mut Vec::new());
        }
        journal
    }

    #[test]
    fn whole_revisions_are_dropped_and_it_is_said() {
        let limits = Limits { events_max: 10, ..Limits::STANDARD };
        let mut journal = journal(&limits, 5, 3);
        assert_eq!((journal.oldest(), journal.len()), (3, 9));
        let read = |journal: &Journal, from| journal.read(&ReadEvents { from, interest: None, limit: 4 }, usize::MAX);
        assert_eq!(read(&journal, 2), Err(Refusal::Lagged(3)));
        let events = read(&journal, 3).expect("kept");
        assert_eq!((events.events.len(), events.next), (6, 5), "a revision is not cut");
        let three = journal.read(&ReadEvents { from: 3, interest: None, limit: 3 }, usize::MAX).expect("kept");
        assert_eq!((three.events.len(), three.next), (3, 4), "nor is one begun behind the limit");
        let one = journal.read(&ReadEvents { from: 3, interest: None, limit: 0 }, 1).expect("kept");
        assert_eq!((one.events.len(), one.next), (3, 4), "however few bytes: a revision is not cut, and the next not begun");
        let nobodys = Interest::of(Topic::Election("e".into()));
        let none = journal.read(&ReadEvents { from: 3, interest: Some(nobodys), limit: 0 }, 1).expect("kept");
        assert_eq!((none.events.len(), none.next), (0, 6), "what is not wanted takes no room");
        let events = read(&journal, 5).expect("kept");
        assert_eq!((events.events.len(), events.next), (3, 6));
        assert_eq!(
            read(&journal, 9).expect("to come"),
            Happened { events: Vec::new(), next: 9, more: false },
            "C71: a watch may begin in the future"
        );
        journal.compact(4).expect("there");
        assert_eq!(read(&journal, 4), Err(Refusal::Compacted(5)));
        assert_eq!(journal.compact(4), Err(Refusal::Compacted(5)));
        assert_eq!(journal.compact(6), Err(Refusal::Future(5)));
        assert_eq!(
            (journal.missing(4), journal.missing(3), journal.missing(6)),
            (None, Some(Refusal::Compacted(5)), Some(Refusal::Future(5)))
        );
    }

    #[test]
    fn whoever_wants_little_of_much_is_answered_in_pieces_that_miss_nothing() {
        let revisions = VISITED_MAX as u64 + 5;
        let journal = journal(&Limits::STANDARD, revisions, 3);
        let (mut next, mut reads, mut heard) = (1, 0, Vec::new());
        let mut more = true;
        while more {
            let asked = ReadEvents { from: next, interest: Some(Interest::of(Topic::Session(2))), limit: 0 };
            let happened = journal.read(&asked, usize::MAX).expect("kept");
            assert!(happened.next > next && happened.events.len() <= VISITED_MAX / 3 + 1);
            heard.extend(happened.events.iter().map(|it| it.revision));
            (next, reads, more) = (happened.next, reads + 1, happened.more);
        }
        assert_eq!(heard, (1..=revisions).collect::<Vec<_>>());
        let asked = ReadEvents { from: 1, interest: Some(Interest::of(Topic::Session(9))), limit: 0 };
        let none = journal.read(&asked, usize::MAX).expect("kept");
        assert_eq!(
            (none.events.len(), none.next),
            (0, VISITED_MAX as u64 / 3 + 2),
            "a revision that was begun is looked through"
        );
        assert!(reads > 3);
    }

    #[test]
    fn what_has_just_happened_is_kept_whole() {
        let limits = Limits { events_max: 2, ..Limits::STANDARD };
        assert_eq!(journal(&limits, 3, 5).len(), 5);
    }
}
