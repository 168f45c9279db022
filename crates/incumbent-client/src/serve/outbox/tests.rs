//! What is told and when, seen from the connection's side.

use incumbent_store::event::{Change, Proclaimed};

use super::*;

#[test]
fn a_watch_whose_read_came_to_nothing_has_not_told() {
    let outbox = Outbox::new(&Bounds::default());
    let bell = outbox.expect_watch(7, Interest::EVERYTHING);
    outbox.begin_watch(7, 1, 1);
    let read = |outbox: &Arc<Outbox>| match outbox.step(0, 256) {
        Step::Ask(asked, reading) => (asked.from, reading),
        other @ (Step::Tell(_) | Step::Wait) => panic!("{other:?}"),
    };
    let tell = |outbox: &Arc<Outbox>, reading: Reading, next| {
        reading.done(Ok(Happened { events: Vec::new(), next, more: false }));
        assert!(matches!(outbox.step(0, 256), Step::Tell(_)) && outbox.told(7, next, false));
        assert!(matches!(outbox.step(0, 256), Step::Wait));
    };
    let (_, reading) = read(&outbox);
    assert!(!outbox.has_told());
    tell(&outbox, reading, 5);
    assert!(outbox.has_told());
    bell.ring(5);
    // As a node does that is ending.
    drop(read(&outbox));
    assert!(matches!(outbox.step(0, 256), Step::Wait));
    assert!(!outbox.has_told(), "what happened at 5 would be passed over");
    bell.ring(6);
    let (from, reading) = read(&outbox);
    assert_eq!(from, 5);
    tell(&outbox, reading, 7);
    assert!(outbox.has_told());
}

fn happened(revision: u64, len: usize) -> Arc<Event> {
    let value = vec![0; len].into();
    let change = Some(Change::Proclaimed(Proclaimed { value, ..Proclaimed::default() }));
    Arc::new(Event { revision, change })
}

fn sent(outbox: &Outbox) -> Vec<(Vec<u64>, u64)> {
    let mut inbox = frame::Inbox::new();
    outbox.take(inbox.room());
    let mut told = Vec::new();
    while let Some(ToClient { told: Some(Told::Events(tidings)), .. }) = inbox.take(ANSWER_MAX).expect("good") {
        told.push((tidings.events.iter().map(|it| it.revision).collect(), tidings.next));
    }
    told
}

#[test]
fn what_has_just_happened_is_told_without_asking_unless_something_before_it_is_not() {
    let outbox = Outbox::new(&Bounds::default());
    let bell = outbox.expect_watch(7, Interest::EVERYTHING);
    bell.tell(&[happened(4, 1)]);
    outbox.begin_watch(7, 1, 1);
    bell.tell(&[happened(5, 1)]);
    assert_eq!(sent(&outbox), [], "it has not been told yet that it stands");
    let Step::Ask(asked, reading) = outbox.step(0, 256) else { panic!("nothing to read") };
    assert_eq!(asked.from, 1);
    bell.tell(&[happened(6, 1)]);
    assert_eq!(sent(&outbox), [], "what was before is being read");
    reading.done(Ok(Happened { events: vec![happened(4, 1), happened(5, 1)], next: 6, more: false }));
    assert!(matches!(outbox.step(0, 256), Step::Tell(_)) && outbox.told(7, 6, false));
    bell.tell(&[happened(7, 1)]);
    assert_eq!(sent(&outbox), [], "6 is not told yet");
    let Step::Ask(asked, reading) = outbox.step(0, 256) else { panic!("nothing to read") };
    assert_eq!(asked.from, 6);
    reading.done(Ok(Happened { events: vec![happened(6, 1), happened(7, 1)], next: 8, more: false }));
    assert!(matches!(outbox.step(0, 256), Step::Tell(_)) && outbox.told(7, 8, false));
    assert!(matches!(outbox.step(0, 256), Step::Wait));

    bell.tell(&[happened(8, 1), happened(8, 1)]);
    bell.tell(&[happened(9, 1)]);
    assert!(outbox.has_told());
    assert_eq!(sent(&outbox), [(vec![8, 8], 9), (vec![9], 10)]);
    // A slow reader finds it in the journal.
    bell.tell(&[happened(10, IN_HAND_BYTES_MAX - 100)]);
    bell.tell(&[happened(11, 100)]);
    assert!(!outbox.has_told());
    assert_eq!(sent(&outbox), [(vec![10], 11)]);
    // As a node does that is ending: 11 has not been told, though nobody is about to.
    assert!(matches!(outbox.step(0, 256), Step::Ask(asked, _) if asked.from == 11));
    assert!(matches!(outbox.step(0, 256), Step::Wait));
    bell.tell(&[happened(12, 1)]);
    assert_eq!(sent(&outbox), []);
    assert!(matches!(outbox.step(0, 256), Step::Ask(asked, _) if asked.from == 11));
}
