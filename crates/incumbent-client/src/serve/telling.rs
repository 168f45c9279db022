//! Tells watches what has happened, in frames of bounded length, as the connection takes them.
//!
//! Events are read from the service when there is room to send them and not before: nothing is queued for a reader that is slow. What happened at one revision is one piece for the client
//! (W4), however many frames it takes.

use std::collections::VecDeque;
use std::sync::Arc;

use incumbent_store::event::Event;
use prost::Message;

use super::Service;
use super::outbox::{Outbox, Read, Step};
use crate::frame;
use crate::message::{Tidings, ToClient, Told};

/// So many bytes go into one write, and one event more.
const BATCH_MAX: usize = 256 * 1024;
/// So many bytes of events go into one frame, and one event more. Two of the longest values are one event.
const TIDINGS_MAX: usize = 64 * 1024;
/// So many events are read at once.
const EVENTS_MAX: usize = 256;
const _: () = assert!(TIDINGS_MAX + 2 * (1024 * 1024 + 64 * 1024) < frame::ANSWER_MAX);

/// Tells the watches of one connection.
pub(super) struct Teller<'a> {
    outbox: &'a Arc<Outbox>,
    /// The watch that was told last: the others come first.
    last: u64,
    unfinished: Option<Unfinished>,
}

/// What one watch is being told.
struct Unfinished {
    /// Shared with all who are told the same: a revision may be long, and a client slow.
    events: VecDeque<Arc<Event>>,
    next: u64,
    fresh: bool,
}

impl Teller<'_> {
    pub(super) fn new(outbox: &Arc<Outbox>) -> Teller<'_> {
        Teller { outbox, last: 0, unfinished: None }
    }

    /// Adds to the batch while it has room.
    pub(super) fn tell<S: Service>(&mut self, service: &S, batch: &mut Vec<u8>) {
        while batch.len() < BATCH_MAX {
            if let Some(unfinished) = self.unfinished.take() {
                self.go_on(unfinished, batch);
                continue;
            }
            match self.outbox.step(self.last, EVENTS_MAX as u64) {
                Step::Ask(asked, reading) => service.events(asked, reading),
                Step::Tell(read) => self.begin(service, read),
                Step::Wait => return,
            }
        }
    }

    fn begin<S: Service>(&mut self, service: &S, read: Read) {
        let Read { id, fresh, result } = read;
        self.last = id;
        match result {
            Ok(events) => {
                if self.outbox.told(id, events.next, events.more) {
                    self.unfinished = Some(Unfinished { events: events.events.into(), next: events.next, fresh });
                }
            }
            Err(refusal) => {
                if let Some(watcher) = self.outbox.forget_watch(id) {
                    service.unwatch(watcher, self.outbox.charge(0));
                }
                self.outbox.tell(&ToClient::new(id, Told::WatchEnded(refusal.to_wire())));
            }
        }
    }

    fn go_on(&mut self, mut unfinished: Unfinished, batch: &mut Vec<u8>) {
        // Whoever does not want to hear the rest is not told.
        if !self.outbox.watches_as(self.last) || (unfinished.events.is_empty() && !unfinished.fresh) {
            return;
        }
        let mut tidings = Tidings { events: Vec::new(), next: unfinished.next };
        let mut len = 0;
        while let Some(event) = unfinished.events.pop_front() {
            len += event.encoded_len();
            let revision = event.revision;
            tidings.events.push(Arc::unwrap_or_clone(event));
            if let Some(following) = unfinished.events.front().filter(|_| len >= TIDINGS_MAX) {
                tidings.next = if following.revision == revision { 0 } else { following.revision };
                break;
            }
        }
        unfinished.fresh = false;
        frame::append(&ToClient::new(self.last, Told::Events(tidings)), batch);
        if !unfinished.events.is_empty() {
            self.unfinished = Some(unfinished);
        }
    }
}

#[cfg(test)]
mod tests {
    use incumbent_store::command::Request;
    use incumbent_store::event::{Change, Proclaimed};
    use incumbent_store::query::{Happened, ReadEvents};
    use incumbent_store::refusal::Refusal;
    use incumbent_store::watch::Interest;

    use super::*;
    use crate::administration::Administration;
    use crate::frame::{ANSWER_MAX, Inbox};
    use crate::message::{Hello, Inquiry, Objection};
    use crate::serve::{Bell, Binding, Bounds, Charge, Lost, Owed, Reading, Standing};

    /// A thousand events of 50 KiB, ten at each revision.
    struct Talkative;

    impl Service for Talkative {
        type Guest = ();
        fn standing(&self) -> Standing {
            Standing::default()
        }
        fn admit(&self, _: &Hello) -> Result<(), (Objection, String)> {
            Ok(())
        }
        fn submit(&self, (): &(), _: Request, owed: Owed) {
            owed.unknown("only talks");
        }
        fn ask(&self, (): &(), _: Inquiry, owed: Owed) {
            drop(owed);
        }
        fn watch(&self, (): &(), _: &Interest, _: Bell, _: Charge) -> Result<u64, Refusal> {
            Ok(1)
        }
        fn unwatch(&self, _: u64, _: Charge) {}
        fn events(&self, asked: ReadEvents, reading: Reading) {
            let value = vec![0; 50 * 1024];
            let event = |revision| Event {
                revision,
                change: Some(Change::Proclaimed(Proclaimed { value: value.clone().into(), ..Proclaimed::default() })),
            };
            let next = (asked.from + 10).min(101);
            let events =
                (asked.from..next).flat_map(|revision| (0..10).map(move |_| revision)).map(event).map(Arc::new).collect();
            reading.done(Ok(Happened { events, next, more: next < 101 }));
        }
        fn bind(&self, (): &(), _: Binding) {}

        fn administer(&self, (): &(), _: Administration, _: Owed) {}

        fn lost(&self, (): &(), _: Vec<Lost>) {}
    }

    #[test]
    fn a_batch_is_bounded_and_a_revision_is_told_as_one() {
        let outbox = Outbox::new(&Bounds::default());
        drop(outbox.expect_watch(7, Interest::EVERYTHING));
        outbox.begin_watch(7, 1, 1);
        let mut teller = Teller::new(&outbox);
        let (mut told, mut next, mut inbox) = (0, 1, Inbox::new());
        while told < 1000 {
            let mut batch = Vec::new();
            teller.tell(&Talkative, &mut batch);
            assert!(!batch.is_empty() && batch.len() < BATCH_MAX + TIDINGS_MAX + 64 * 1024, "{}", batch.len());
            inbox.room().extend_from_slice(&batch);
            while let Some(ToClient { id, told: Some(Told::Events(tidings)) }) = inbox.take(ANSWER_MAX).expect("good") {
                assert_eq!(id, 7);
                told += tidings.events.len();
                if tidings.next > 0 {
                    assert_eq!((told % 10, tidings.next), (0, next.max(tidings.next)), "only whole revisions are done with");
                    next = tidings.next;
                }
            }
        }
        assert_eq!((told, next), (1000, 101));
    }
}
