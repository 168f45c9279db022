//! The parts of a node one by one: what is told to whom, and what is kept.

use incumbent_protocol::protocol::{NodeId, Term};
use incumbent_protocol::time::Instant;
use incumbent_store::command::{Command, Compact, KeepAlive, Request};
use incumbent_store::keys::item::Span;
use incumbent_store::keys::transaction::Put;
use incumbent_store::limits::Limits;
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::{KeptAlive, Reply};
use incumbent_store::store::Store;
use incumbent_store::time::{Stamp, Time};
use incumbent_store::watch::{Interest, Topic};
use tokio::sync::{mpsc, oneshot};

use super::config::{
    Config, KEEP_ALIVES_GATHERED, KEPT_ALIVE_AT_ONCE_MAX, NotStarted, WATCH_BACKLOG_MAX, WATCH_BACKLOGS_BYTES_MAX,
};
use super::crew::DiskHand;
use super::desk::Desk;
use super::disk;
use super::handle::{Batch, Outcome, Watch, WatchEnd};
use super::keeper::{self, Keeper, Task};
use super::watchers::Watchers;
use super::{Node, Report, alarmed};
use crate::log::sim::{SimDisk, Weather};
use crate::log::{Identity, Log, Options, Snapshots};
use crate::replica::{ClusterTime, Extent, Mark, Roll, Snapshot, Write};

/// Writes a key; the events of it.
fn write(store: &mut Store, key: &str, value: &str) -> Vec<std::sync::Arc<incumbent_store::event::Event>> {
    let put = Put { key: key.to_owned().into(), value: value.to_owned().into(), ..Put::default() };
    let mut events = Vec::new();
    store.apply(Stamp::at(Time::ZERO), Request::of(Command::Put(put)), &mut events).expect("written");
    events
}

fn outline(index: u64) -> Snapshot {
    let roll = Roll::of([NodeId(1), NodeId(2)]).expect("two voters");
    Snapshot { index, term: Term(1), at: ClusterTime(9), roll, origin: None }
}

fn open(disk: &SimDisk) -> Log<SimDisk> {
    let identity = Identity { cluster: "test".to_owned(), node: NodeId(1) };
    Log::open(disk.clone(), &identity, Options::segments_of(4096)).expect("opens").0
}

fn snapshots(disk: &SimDisk) -> Snapshots<SimDisk> {
    open(disk).snapshots()
}

// Snapshots.

#[test]
fn a_store_with_the_longest_values_is_saved_and_loaded() {
    let mut store = Store::new(3);
    for number in 0..3 {
        // With what was there before, an event is longer than any chunk.
        let _ = write(&mut store, "key", &"x".repeat(Limits::STANDARD.value_len_max - number));
    }
    let snapshots = snapshots(&SimDisk::new(1));
    let saved = keeper::save(&snapshots, &outline(7), &store).expect("saved");
    let (found, extent, loaded) = keeper::load(&snapshots).expect("whole").expect("there");
    assert_eq!((found, extent, loaded.digest()), (outline(7), saved, store.digest()));
}

/// Two keepers, and what they have said.
struct Pair {
    from: Keeper,
    to: Keeper,
    log: Log<SimDisk>,
    said: [mpsc::UnboundedReceiver<Report>; 2],
    disks: [SimDisk; 2],
}

impl Pair {
    fn new() -> Pair {
        let disks = [SimDisk::new(1), SimDisk::new(2)];
        let (first, first_said) = mpsc::unbounded_channel();
        let (second, second_said) = mpsc::unbounded_channel();
        let start = |disk, reports| {
            let log = open(disk);
            let keeper = Keeper::start(log.snapshots(), log.reader(), reports).expect("a thread");
            (keeper, log)
        };
        let (from, log) = start(&disks[0], first);
        let (to, _) = start(&disks[1], second);
        Pair { from, to, log, said: [first_said, second_said], disks }
    }

    fn save(&mut self, index: u64, store: &Store) -> Extent {
        keeper::save(&self.log.snapshots(), &outline(index), store).expect("saved")
    }

    /// What the receiving keeper says next but for the parts that it has kept.
    fn answer(&mut self) -> Option<Report> {
        loop {
            match self.said[1].blocking_recv() {
                Some(Report::Kept { .. }) => {}
                other => return other,
            }
        }
    }

    fn expect(&mut self, index: u64, extent: Extent) -> u64 {
        self.to.give(Task::Expect(outline(index), extent));
        match self.answer() {
            Some(Report::Expecting { have, .. }) => have,
            other => panic!("not expected: {other:?}"),
        }
    }

    fn piece(&mut self, index: u64, offset: u64) -> bytes::Bytes {
        self.from.give(Task::Read { to: NodeId(2), index, offset, bytes_max: 1000 });
        match self.said[0].blocking_recv() {
            Some(Report::Piece { bytes, .. }) => bytes,
            other => panic!("no piece: {other:?}"),
        }
    }

    /// Carries all from `offset` on. The store, if it came whole.
    fn carry(&mut self, index: u64, mut offset: u64, extent: Extent, spoil: bool) -> Option<Box<Store>> {
        while offset < extent.bytes {
            let mut bytes = self.piece(index, offset).to_vec();
            if spoil && let Some(byte) = bytes.last_mut() {
                *byte ^= 1;
            }
            let next = offset + bytes.len() as u64;
            self.to.give(Task::Keep { index, offset, bytes: bytes.into(), last: next == extent.bytes });
            offset = next;
        }
        match self.answer() {
            Some(Report::Stored { store, .. }) => store,
            other => panic!("not stored: {other:?}"),
        }
    }
}

fn some_store() -> Store {
    let mut store = Store::new(0);
    for number in 0..100 {
        let _ = write(&mut store, &format!("key-{number}"), &"x".repeat(100));
    }
    store
}

#[test]
fn a_snapshot_goes_from_keeper_to_keeper_and_is_taken_up_where_it_was_left() {
    let (mut pair, store) = (Pair::new(), some_store());
    let extent = pair.save(5, &store);
    assert_eq!(pair.expect(5, extent), 0);
    let first = pair.piece(5, 0);
    pair.to.give(Task::Keep { index: 5, offset: 0, bytes: first, last: false });
    // Announced again: by another leader, or to another process. Whole frames count.
    let have = pair.expect(5, extent);
    assert!(have > 0 && have <= 1000, "{have}");
    let came = pair.carry(5, have, extent, false).expect("whole");
    assert_eq!(came.digest(), store.digest());
    assert_eq!(pair.expect(5, extent), 0, "it is a snapshot now");
    let (found, _, loaded) = keeper::load(&snapshots(&pair.disks[1])).expect("whole").expect("there");
    assert_eq!((found, loaded.digest()), (outline(5), store.digest()));
}

#[test]
fn a_part_is_acknowledged_when_the_disk_has_it_and_not_before() {
    let (mut pair, store) = (Pair::new(), some_store());
    let extent = pair.save(5, &store);
    assert_eq!(pair.expect(5, extent), 0);
    let first = pair.piece(5, 0);
    let length = first.len() as u64;
    let keep = |bytes: &bytes::Bytes| Task::Keep { index: 5, offset: 0, bytes: bytes.clone(), last: false };
    pair.disks[1].turns(Weather::Full);
    pair.to.give(keep(&first));
    let said = pair.said[1].blocking_recv();
    assert!(matches!(said, Some(Report::Stored { index: 5, store: None })), "{said:?}");
    pair.disks[1].turns(Weather::Fair);
    // The simulated disk takes the half of what does not fit, as a real one may.
    let have = pair.expect(5, extent);
    assert!(have < length, "{have}");
    pair.to.give(keep(&first));
    let said = pair.said[1].blocking_recv();
    assert!(matches!(said, Some(Report::Kept { index: 5, have }) if have == length), "{said:?}");
    assert!(pair.carry(5, length, extent, false).is_some());
}

#[test]
fn a_snapshot_that_is_spoilt_on_its_way_is_none() {
    let (mut pair, store) = (Pair::new(), some_store());
    let extent = pair.save(5, &store);
    let _ = pair.expect(5, extent);
    assert!(pair.carry(5, 0, extent, true).is_none());
    assert_eq!(pair.expect(5, extent), 0);
    assert!(pair.carry(5, 0, extent, false).is_some(), "and can be had again");
    assert!(pair.piece(4, 0).is_empty(), "another one is not there");
}

#[test]
fn a_snapshot_on_its_way_arrives_although_a_newer_one_has_taken_its_place() {
    let (mut pair, store) = (Pair::new(), some_store());
    let extent = pair.save(5, &store);
    let _ = pair.expect(5, extent);
    assert!(!pair.piece(5, 0).is_empty());
    let _ = pair.save(6, &Store::new(0));
    assert_eq!(pair.log.snapshots().latest().map(|it| it.mark.index), Some(6));
    let came = pair.carry(5, 0, extent, false).expect("whole");
    assert_eq!(came.digest(), store.digest());
}

/// The frames are whole, and what is in them is no store: of a later release, say.
#[test]
fn a_snapshot_whose_store_cannot_be_read_takes_nobodys_place() {
    let (mut pair, store) = (Pair::new(), some_store());
    let extent = pair.save(3, &store);
    let _ = pair.expect(3, extent);
    assert!(pair.carry(3, 0, extent, false).is_some());
    let mut writer = pair.log.snapshots().begin(crate::log::Mark { index: 5, term: 1 }, &outline(5).to_bytes()).expect("begun");
    writer.piece(b"\0no piece of a store").expect("written");
    let saved = writer.commit().expect("saved");
    let extent = Extent { bytes: saved.length, checksum: saved.checksum };
    let _ = pair.expect(5, extent);
    assert!(pair.carry(5, 0, extent, false).is_none());
    let (found, _, loaded) = keeper::load(&snapshots(&pair.disks[1])).expect("whole").expect("there");
    assert_eq!((found, loaded.digest()), (outline(3), store.digest()));
    assert_eq!(pair.expect(5, extent), 0, "nothing of it is left");
}

#[test]
fn a_snapshot_for_which_there_is_no_room_is_refused_at_once() {
    let (mut pair, store) = (Pair::new(), some_store());
    let extent = pair.save(5, &store);
    let first = pair.piece(5, 0);
    let refused = |pair: &mut Pair, task: Task| {
        pair.disks[1].turns(Weather::Full);
        pair.to.give(task);
        let said = pair.answer();
        assert!(matches!(said, Some(Report::Stored { index: 5, store: None })), "{said:?}");
        pair.disks[1].turns(Weather::Fair);
    };
    refused(&mut pair, Task::Expect(outline(5), extent));
    assert_eq!(pair.expect(5, extent), 0);
    refused(&mut pair, Task::Keep { index: 5, offset: 0, bytes: first.clone(), last: false });
    // What was under way when it was refused is not spoken of again.
    pair.to.give(Task::Keep { index: 5, offset: first.len() as u64, bytes: first, last: false });
    let have = pair.expect(5, extent);
    assert!(pair.carry(5, have, extent, false).is_some(), "when there is room, it comes");
}

#[tokio::test]
async fn a_task_that_fails_ends_the_node() {
    for fails in [false, true] {
        let (reports, mut inbox) = mpsc::unbounded_channel();
        let task = tokio::spawn(alarmed(reports, async move { assert!(!fails, "as a test wants it") }));
        assert_eq!(task.await.is_err(), fails);
        assert_eq!(matches!(inbox.recv().await, Some(Report::Broken(_))), fails);
    }
}

// Watches.

fn watch(watchers: &mut Watchers, from: u64, store: &Store) -> Watch {
    watch_as("guest", watchers, from, store)
}

fn watch_as(guest: &str, watchers: &mut Watchers, from: u64, store: &Store) -> Watch {
    let keys = Interest::of(Topic::Keys(Span::prefix("key")));
    watchers.add(keys, guest.into(), from, store, mpsc::unbounded_channel().0)
}

/// The revisions of the events that are there to be read.
fn told(watch: &mut Watch) -> Vec<u64> {
    let mut revisions = Vec::new();
    while let Ok((Batch { events, .. }, _)) = watch.batches.try_recv() {
        revisions.extend(events.iter().map(|it| it.revision));
    }
    revisions
}

#[test]
fn a_watch_begins_in_the_past_now_or_in_the_future_and_has_no_hole() {
    let (mut store, mut watchers) = (Store::new(0), Watchers::default());
    for _ in 0..2_500 {
        let _ = write(&mut store, "key", "");
    }
    let mut past = watch(&mut watchers, 10, &store);
    let mut heard = told(&mut past);
    assert_eq!(
        (heard.len(), past.end.get()),
        (1_000, Some(&WatchEnd::Behind)),
        "a thousand at once, and the others are served between"
    );
    while past.end.get().is_some() {
        past = watch(&mut watchers, heard.last().expect("some") + 1, &store);
        heard.extend(told(&mut past));
    }
    let mut now = watch(&mut watchers, 0, &store);
    let mut future = watch(&mut watchers, 2_503, &store);
    for key in ["key", "other", "key", "key"] {
        let events = write(&mut store, key, "");
        watchers.tell(&events, store.revision());
    }
    heard.extend(told(&mut past));
    assert_eq!(heard, (10..=2_501).chain([2_503, 2_504]).collect::<Vec<_>>());
    assert_eq!(told(&mut now), [2_501, 2_503, 2_504]);
    assert_eq!(told(&mut future), [2_503, 2_504]);
    watchers.remove(now.number);
    assert_eq!(watchers.len(), 2);
}

#[tokio::test]
async fn a_watch_that_cannot_be_whole_ends_with_the_reason() {
    let (mut store, mut watchers) = (Store::new(0), Watchers::default());
    for _ in 0..5 {
        let _ = write(&mut store, "key", "");
    }
    store
        .apply(Stamp::at(Time::ZERO), Request::of(Command::Compact(Compact { revision: 3 })), &mut Vec::new())
        .expect("compacted");
    let mut late = watch(&mut watchers, 2, &store);
    assert_eq!(late.next().await, Err(WatchEnd::Refused(Refusal::Compacted(4))));
    let mut slow = watch(&mut watchers, 0, &store);
    for _ in 0..=WATCH_BACKLOG_MAX {
        let events = write(&mut store, "key", "");
        watchers.tell(&events, store.revision());
    }
    assert_eq!(watchers.len(), 0);
    assert_eq!(told(&mut slow).len(), WATCH_BACKLOG_MAX);
    assert_eq!(slow.next().await, Err(WatchEnd::Behind));
}

/// C69: however large the events are that a slow listener does not read.
#[tokio::test]
async fn what_waits_for_a_slow_listener_is_bounded_in_bytes_and_told_in_the_end() {
    let (mut store, mut watchers) = (Store::new(0), Watchers::default());
    let mut slow = watch(&mut watchers, 0, &store);
    let large = "v".repeat(300_000);
    for _ in 0..10 {
        let events = write(&mut store, "key", &large);
        watchers.tell(&events, store.revision());
    }
    assert_eq!(watchers.len(), 0);
    assert_eq!(told(&mut slow), [1, 2], "each event has the value before it, too");
    assert_eq!(slow.next().await, Err(WatchEnd::Behind));
    assert_eq!(watchers.waiting(), 0, "what was read does not count any more");
    // It reads on from what the store keeps, not too much at once.
    for revision in 3..=9 {
        let mut again = watch(&mut watchers, revision, &store);
        assert_eq!(told(&mut again), [revision]);
        assert_eq!(again.next().await, Err(WatchEnd::Behind));
    }
    let mut last = watch(&mut watchers, 10, &store);
    assert_eq!((told(&mut last), watchers.len()), (vec![10], 1));
}

#[tokio::test]
async fn what_waits_for_all_slow_listeners_is_bounded_and_those_who_read_hear_everything() {
    let (mut store, mut watchers) = (Store::new(0), Watchers::default());
    let listeners = WATCH_BACKLOGS_BYTES_MAX / 400_000;
    let mut slow: Vec<Watch> = (0..listeners).map(|_| watch(&mut watchers, 0, &store)).collect();
    let mut reads = watch(&mut watchers, 0, &store);
    let large = "v".repeat(250_000);
    let mut heard = Vec::new();
    for _ in 0..3 {
        let events = write(&mut store, "key", &large);
        watchers.tell(&events, store.revision());
        heard.extend(told(&mut reads));
        assert!(watchers.waiting() <= WATCH_BACKLOGS_BYTES_MAX);
    }
    assert_eq!(heard, [1, 2, 3]);
    assert!(watchers.len() < listeners, "some have made room for the others");
    let last = slow.last_mut().expect("some");
    while last.next().await.is_ok() {}
    assert!(matches!(last.next().await, Err(WatchEnd::Refused(Refusal::Limit { .. }))));
    // Whoever comes to hear what was before is behind, too.
    for _ in 0..2 * listeners {
        slow.push(watch(&mut watchers, 1, &store));
        assert!(watchers.waiting() <= WATCH_BACKLOGS_BYTES_MAX);
    }
    let last = slow.last().and_then(|it| it.end.get());
    assert!(matches!(last, Some(WatchEnd::Refused(Refusal::Limit { .. }))));
    drop(slow);
    assert_eq!(watchers.waiting(), 0, "nothing waits for those who are gone");
}

/// However much it does not read, also on streams that each have nothing waiting before: those are told within the bound, too.
#[tokio::test]
async fn a_guest_that_reads_nothing_shuts_out_no_other_and_no_bound_is_passed() {
    let (mut store, mut watchers) = (Store::new(0), Watchers::default());
    let large = "v".repeat(100_000);
    let hoarders = 3 * WATCH_BACKLOGS_BYTES_MAX / large.len();
    let hoarding: Vec<Watch> = (0..hoarders).map(|_| watch_as("hoards", &mut watchers, 0, &store)).collect();
    let mut slow = watch_as("slow", &mut watchers, 0, &store);
    for written in 1..=4 {
        watchers.tell(&write(&mut store, "key", &large), written);
        assert!(watchers.waiting() <= WATCH_BACKLOGS_BYTES_MAX, "{} wait", watchers.waiting());
    }
    assert_eq!(told(&mut slow), [1, 2, 3, 4], "it was behind, and others were behind more");
    assert!(hoarding.iter().filter(|it| it.end.get().is_some()).count() > hoarders / 2);
    let mut late = watch_as("late", &mut watchers, 1, &store);
    assert_eq!(told(&mut late)[0], 1, "there is room for who comes now");
}

/// A snapshot from another node: the store leaps, and those who watch hear what lies between, or that it is not known.
#[tokio::test]
async fn watchers_follow_a_store_that_leaps() {
    let mut store = Store::new(0);
    let mut watchers = Watchers::default();
    let _ = write(&mut store, "key", "");
    let mut follows = watch(&mut watchers, 0, &store);
    let mut ahead = store.clone();
    for _ in 0..3 {
        let _ = write(&mut ahead, "key", "");
    }
    watchers.leap(&ahead, store.revision());
    assert_eq!(told(&mut follows), [2, 3, 4]);
    let _ = write(&mut ahead, "key", "");
    ahead
        .apply(Stamp::at(Time::ZERO), Request::of(Command::Compact(Compact { revision: 5 })), &mut Vec::new())
        .expect("compacted");
    watchers.leap(&ahead, 4);
    assert_eq!(follows.next().await, Err(WatchEnd::Refused(Refusal::Compacted(6))));
    assert_eq!(watchers.len(), 0);
}

#[test]
fn whoever_was_told_nothing_as_nothing_was_for_it_has_missed_nothing_when_the_store_leaps() {
    let (mut store, mut watchers) = (Store::new(0), Watchers::default());
    let (mut quiet, mut future) = (watch(&mut watchers, 0, &store), watch(&mut watchers, 7, &store));
    for _ in 0..3 {
        let events = write(&mut store, "other", "");
        watchers.tell(&events, store.revision());
    }
    // The other node keeps nothing of what was told here.
    let mut ahead = store.clone();
    ahead
        .apply(Stamp::at(Time::ZERO), Request::of(Command::Compact(Compact { revision: 3 })), &mut Vec::new())
        .expect("compacted");
    let _ = write(&mut ahead, "key", "");
    watchers.leap(&ahead, store.revision());
    assert_eq!(told(&mut quiet), [4]);
    for _ in 5..=7 {
        let events = write(&mut ahead, "key", "");
        watchers.tell(&events, ahead.revision());
    }
    assert_eq!((told(&mut quiet), told(&mut future)), (vec![5, 6, 7], vec![7]));
}

// Keep-alives.

fn keep_alive(desk: &mut Desk, now: Instant, sessions: Vec<u64>) -> oneshot::Receiver<Outcome> {
    let (answer, answered) = oneshot::channel();
    let request = Request::of(Command::KeepAlive(KeepAlive { sessions }));
    assert!(desk.gather(now, request, answer.into()).is_none(), "gathered");
    answered
}

#[test]
fn keep_alives_are_gathered_and_each_hears_of_its_own_sessions() {
    let (mut desk, now) = (Desk::default(), Instant::from_nanos(7));
    let mut first = keep_alive(&mut desk, now, vec![9, 1]);
    let mut second = keep_alive(&mut desk, now, vec![2, 9]);
    assert_eq!(desk.gathered_until, Some(now + KEEP_ALIVES_GATHERED));
    assert!(desk.gathered(now).is_none(), "too early");
    let (tag, request) = desk.gathered(now + KEEP_ALIVES_GATHERED).expect("due");
    let Some(Command::KeepAlive(KeepAlive { sessions })) = request.command else { panic!("another command") };
    assert_eq!(sessions, [1, 2, 9], "each once");
    desk.done(tag, Ok(Reply::KeptAlive(KeptAlive { gone: vec![1, 9] })), 4);
    let gone = |answered: &mut oneshot::Receiver<Outcome>| match answered.try_recv() {
        Ok(Outcome::Done { reply: Reply::KeptAlive(KeptAlive { gone }), revision: 4 }) => gone,
        other => panic!("{other:?}"),
    };
    assert_eq!((gone(&mut first), gone(&mut second)), (vec![9, 1], vec![9]));
    assert!(desk.is_empty());
}

#[test]
fn keep_alives_of_guests_are_not_mixed() {
    let (mut desk, now) = (Desk::default(), Instant::from_nanos(7));
    for (guest, sessions) in [("a", vec![1]), ("b", vec![2]), ("a", vec![3])] {
        let (answer, _answered) = oneshot::channel();
        let keep = Command::KeepAlive(KeepAlive { sessions });
        assert!(desk.gather(now, Request { guest: guest.into(), ..Request::of(keep) }, answer.into()).is_none());
    }
    assert_eq!(desk.len(), 3);
    let due = now + KEEP_ALIVES_GATHERED;
    let kept: Vec<_> = std::iter::from_fn(|| desk.gathered(due)).map(|(_, request)| (request.guest, request.command)).collect();
    let keep = |sessions| Some(Command::KeepAlive(KeepAlive { sessions }));
    assert_eq!(kept, [("a".to_owned(), keep(vec![1, 3])), ("b".to_owned(), keep(vec![2]))]);
    assert_eq!((desk.gathered_until, desk.len()), (None, 2), "each waits for its answer");
}

#[test]
fn more_keep_alives_of_a_guest_than_one_request_takes_go_by_several() {
    let (mut desk, now) = (Desk::default(), Instant::from_nanos(7));
    let many = KEPT_ALIVE_AT_ONCE_MAX as u64;
    let answers: Vec<_> = (0..11).map(|it| keep_alive(&mut desk, now, (it * many..(it + 1) * many).collect())).collect();
    let mut kept = Vec::new();
    while let Some((tag, request)) = desk.gathered(now) {
        let Some(Command::KeepAlive(KeepAlive { sessions })) = request.command else { panic!("another command") };
        assert!(sessions.len() <= KEPT_ALIVE_AT_ONCE_MAX, "{} at once", sessions.len());
        kept.extend(sessions);
        desk.done(tag, Ok(Reply::KeptAlive(KeptAlive::default())), 4);
    }
    assert!(kept.into_iter().eq(0..11 * many), "each session once");
    assert!(answers.into_iter().all(|mut it| matches!(it.try_recv(), Ok(Outcome::Done { .. }))));
    assert_eq!((desk.gathered_until, desk.len()), (None, 0));
}

#[test]
fn many_keep_alives_do_not_wait_and_numbered_ones_are_not_gathered() {
    let (mut desk, now) = (Desk::default(), Instant::from_nanos(7));
    let _first = keep_alive(&mut desk, now, (0..KEPT_ALIVE_AT_ONCE_MAX as u64).collect());
    assert!(desk.gathered(now).is_some());
    let (answer, _answered) = oneshot::channel();
    let request = Request::numbered(5, 1, Command::KeepAlive(KeepAlive { sessions: vec![1] }));
    assert!(desk.gather(now, request, answer.into()).is_some());
}

// Configuration.

#[test]
fn what_cannot_work_is_refused_with_what_to_change() {
    let refused = |config: Config| match Node::start_on(SimDisk::new(1), config) {
        Err(NotStarted::Config(why)) => why,
        other => panic!("{other:?}"),
    };
    let mut twice = Config::alone("nowhere");
    twice.peers.push(incumbent_peer::switchboard::Peer { id: twice.me, address: "127.0.0.1:1".to_owned() });
    assert!(refused(twice).contains("its own peer"));
    let mut long = Config::alone("nowhere");
    long.settings.message_bytes_max = 3 << 20;
    assert!(refused(long).contains("do not fit a line"));
    let short = Config { log: Options::segments_of(64 << 10), ..Config::alone("nowhere") };
    assert!(refused(short).contains("segments"));
}

/// The log panics at what does not follow from what is there: a bug, and no reason to wait for ever.
#[test]
fn a_thread_that_fails_ends_the_node() {
    let (reports, mut said) = mpsc::unbounded_channel();
    let (disk, _mate) = DiskHand::start(open(&SimDisk::new(1)), reports).expect("a thread");
    let gap = crate::replica::Entry { index: 7, term: Term(1), bytes: bytes::Bytes::new() };
    let write = Write { mark: Mark(1), reset: None, entries: vec![gap], vote: None };
    disk.give(disk::Task::Write(write, std::time::Instant::now()));
    assert!(matches!(said.blocking_recv(), Some(Report::Broken(_))));
}
