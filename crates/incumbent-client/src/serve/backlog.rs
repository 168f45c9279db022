//! What waits to be sent to all clients of a node, in bytes. Each connection has its own bound, but there are many of them.
//!
//! Where there is too much, whoever has kept most of it waiting for longest is cut off: not whoever asks for much and reads it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::outbox::Outbox;

/// So many bytes of answers and events wait for all clients of a node.
pub const BACKLOG_BYTES_MAX: usize = 256 * 1024 * 1024;

/// What waits to be sent to all clients of a node.
#[derive(Debug)]
pub struct Backlog {
    bytes_max: usize,
    bytes: AtomicUsize,
    outboxes: Mutex<Outboxes>,
}

#[derive(Debug, Default)]
struct Outboxes {
    last: u64,
    all: BTreeMap<u64, Weak<Outbox>>,
}

impl Backlog {
    /// Nothing, and never more than this for long.
    pub fn new(bytes_max: usize) -> Arc<Backlog> {
        Arc::new(Backlog { bytes_max, bytes: AtomicUsize::new(0), outboxes: Mutex::default() })
    }

    fn outboxes(&self) -> MutexGuard<'_, Outboxes> {
        self.outboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn enter(&self, outbox: Weak<Outbox>) -> u64 {
        let mut outboxes = self.outboxes();
        outboxes.last += 1;
        let number = outboxes.last;
        outboxes.all.insert(number, outbox);
        number
    }

    pub(super) fn leave(&self, number: u64) {
        self.outboxes().all.remove(&number);
    }

    pub(super) fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn remove(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Cuts off whom it must. To be called under no outbox's lock.
    pub(super) fn relieve(&self) {
        while self.bytes.load(Ordering::Relaxed) > self.bytes_max {
            let all: Vec<Arc<Outbox>> = self.outboxes().all.values().filter_map(Weak::upgrade).collect();
            let Some(burden) = all.iter().max_by_key(|it| it.burden()).filter(|it| it.burden() > 0) else { return };
            burden.cut_off();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use incumbent_store::keys::item::Item;
    use incumbent_store::keys::transaction::Deleted;
    use incumbent_store::query::{Answer, Answered, Items};
    use incumbent_store::refusal::Refusal;
    use incumbent_store::reply::{Outcome, Reply};
    use tokio::time::sleep;

    use super::*;
    use crate::frame::{ANSWER_MAX, Inbox};
    use crate::message::{ToClient, Told};
    use crate::serve::Bounds;
    use crate::serve::outbox::Kind;

    const LONG: usize = 1024 * 1024;

    fn answered(len: usize) -> Answered {
        let item = Item { value: vec![0; len].into(), ..Item::default() };
        Answered { revision: 7, answer: Some(Answer::Items(Items { items: vec![item], ..Items::default() })) }
    }

    fn ask(outbox: &Arc<Outbox>, len: usize) {
        outbox.owe(1, Kind::Question, 10).answer(answered(len));
    }

    #[test]
    fn who_asks_for_very_much_and_reads_nothing_is_answered_by_less() {
        let bounds = Bounds { answers_bytes_max: 4 * LONG, ..Bounds::default() };
        let outbox = Outbox::new(&bounds);
        for _ in 0..100 {
            ask(&outbox, LONG);
        }
        for _ in 0..10 {
            ask(&outbox, 100);
        }
        outbox.owe(1, Kind::Command, 10).outcome(Outcome { revision: 9, reply: Some(long_reply()), ..Outcome::default() });
        let mut inbox = Inbox::new();
        outbox.take(inbox.room());
        let (mut long, mut not_now, mut short, mut dropped) = (0, 0, 0, 0);
        while let Some(ToClient { told: Some(told), .. }) = inbox.take(ANSWER_MAX).expect("good") {
            if let Told::Answered(answered) = told {
                let is_long = prost::Message::encoded_len(&answered) > LONG;
                *(if is_long { &mut long } else { &mut short }) += 1;
            } else if let Told::Outcome(outcome) = told {
                assert_eq!(outcome.result(), Err(Refusal::AnswerDropped(9)));
                dropped += 1;
            } else {
                assert!(matches!(told, Told::NotNow(it) if it.retry_after_ms > 0));
                not_now += 1;
            }
        }
        assert_eq!((long, not_now, short, dropped), (4, 96, 10, 1));
    }

    fn long_reply() -> Reply {
        let item = Item { value: vec![0; LONG].into(), ..Item::default() };
        Reply::Deleted(Deleted { previous: vec![item], ..Deleted::default() })
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_kept_most_waiting_for_longest_is_cut_off_and_not_who_asks_for_much() {
        let bounds = Bounds { backlog: Backlog::new(11 * LONG), answers_bytes_max: 100 * LONG, ..Bounds::default() };
        let [slow, idle, quick] = [Outbox::new(&bounds), Outbox::new(&bounds), Outbox::new(&bounds)];
        ask(&slow, 2 * LONG);
        sleep(Duration::from_secs(5)).await;
        for _ in 0..4 {
            ask(&quick, 2 * LONG);
            assert!(!slow.is_closed() && !quick.is_closed());
            // What is being sent still counts.
            quick.take(&mut Vec::new());
        }
        sleep(Duration::from_millis(10)).await;
        quick.sent(LONG);
        ask(&quick, 2 * LONG);
        assert!(slow.is_closed() && !idle.is_closed() && !quick.is_closed());
        assert_eq!(bounds.backlog.bytes.load(Ordering::Relaxed), quick.unsent());
        quick.close();
        assert_eq!((bounds.backlog.bytes.load(Ordering::Relaxed), bounds.backlog.outboxes().all.len()), (0, 2));
    }
}
