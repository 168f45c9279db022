//! The log as a whole: on a simulated disk, beside a model that is a list; and in a real directory.

mod crash;
mod damage;
mod real;
mod snapshots;

use super::sim::{Loss, SimDisk, Weather};
use super::*;

/// Small, so that a few entries are many segments.
fn small() -> Options {
    Options::segments_of(4096)
}

fn identity() -> Identity {
    Identity { cluster: "billing".to_owned(), node: NodeId(1) }
}

fn open<D: Disk>(disk: D) -> Result<(Log<D>, Recovered), Refused> {
    Log::open(disk, &identity(), small())
}

fn entry(index: u64, term: u64, length: usize) -> Append {
    // No two alike, and no zeros.
    let payload = (0..length).map(|it| (it as u64 * 7 + index * 31 + term * 131) as u8 | 1).collect();
    Append::Entry(Entry { index, term, payload })
}

fn entries(range: std::ops::RangeInclusive<u64>, term: u64, length: usize) -> Vec<Append> {
    range.map(|index| entry(index, term, length)).collect()
}

fn state(term: u64, vote: u32, commit: u64) -> Append {
    Append::State(HardState { term, vote: Some(NodeId(vote)), commit })
}

/// What a log should hold.
#[derive(Clone, PartialEq, Default)]
struct Model {
    base: Mark,
    entries: Vec<Entry>,
    state: HardState,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let entries: Vec<_> = self.entries.iter().map(|it| (it.index, it.term, it.payload.len())).collect();
        f.debug_struct("Model").field("base", &self.base).field("entries", &entries).field("state", &self.state).finish()
    }
}

impl Model {
    /// What a log does hold.
    fn of<D: Disk>(log: &Log<D>) -> Model {
        let reader = log.reader();
        let entries = reader.read(reader.first(), reader.last() + 1, usize::MAX).unwrap();
        let base = reader.first() - 1;
        let state = log.shared.index().contents.state();
        Model { base: Mark { index: base, term: reader.term(base).unwrap() }, entries, state }
    }

    fn last(&self) -> u64 {
        self.base.index + self.entries.len() as u64
    }

    fn apply(&mut self, append: &Append) {
        let place = |index: u64| (index - self.base.index) as usize;
        match append {
            Append::Entry(entry) => {
                self.entries.truncate(place(entry.index) - 1);
                self.entries.push(entry.clone());
            }
            Append::Truncate { from } => self.entries.truncate(place(*from) - 1),
            Append::State(state) => self.state = *state,
            Append::Compact(mark) => {
                self.entries.drain(..place(mark.index));
                self.base = *mark;
            }
            Append::Restart(mark) => {
                self.entries.clear();
                self.base = *mark;
            }
        }
    }
}

/// Makes a snapshot and puts away what is in it.
fn compact<D: Disk>(log: &mut Log<D>, index: u64) -> Result<Append, Failure> {
    let mark = Mark { index, term: log.reader().term(index).unwrap() };
    let mut writer = log.snapshots().begin(mark, b"members")?;
    writer.piece(&[7; 100])?;
    writer.commit()?;
    let compact = Append::Compact(mark);
    log.write(std::slice::from_ref(&compact))?;
    Ok(compact)
}

#[test]
fn what_was_written_is_read_and_what_was_synced_is_there_after_a_crash() {
    let disk = SimDisk::new(1);
    let (mut log, recovered) = open(disk.clone()).unwrap();
    assert_eq!((recovered.last, recovered.generation, recovered.state), (0, 1, HardState::default()));
    log.write(&[entry(1, 1, 10), entry(2, 1, 0), state(1, 3, 1)]).unwrap();
    assert_eq!(log.reader().last(), 2);
    log.sync().unwrap();
    log.write(&[entry(3, 2, 5)]).unwrap();
    drop(log);
    disk.crash(Loss::Everything);
    let (log, recovered) = open(disk).unwrap();
    assert_eq!((recovered.last, recovered.generation), (2, 2));
    assert_eq!(recovered.state, HardState { term: 1, vote: Some(NodeId(3)), commit: 1 });
    let Append::Entry(first) = entry(1, 1, 10) else { unreachable!() };
    assert_eq!(log.reader().read(1, 2, usize::MAX).unwrap(), [first]);
    assert_eq!((log.reader().term(2), log.reader().term(0)), (Ok(1), Ok(0)));
}

#[test]
fn entries_are_read_up_to_a_limit_of_bytes_and_at_least_one() {
    let (mut log, _) = open(SimDisk::new(1)).unwrap();
    log.write(&entries(1..=40, 1, 300)).unwrap();
    let reader = log.reader();
    let count = |from, to, bytes| reader.read(from, to, bytes).unwrap().len();
    assert_eq!((count(1, 41, 0), count(1, 41, 299), count(1, 41, 600), count(1, 41, 899)), (1, 1, 2, 2));
    assert_eq!((count(1, 41, usize::MAX), count(5, 5, 9), count(38, 41, 3000)), (40, 0, 3));
    assert_eq!(reader.read(41, 42, 1), Err(Unreadable::Beyond { last: 40 }));
    assert_eq!(reader.term(41), Err(Unreadable::Beyond { last: 40 }));
    compact(&mut log, 10).unwrap();
    assert_eq!(reader.read(10, 12, 1), Err(Unreadable::Compacted { first: 11 }));
    assert_eq!((reader.term(10), reader.term(9)), (Ok(1), Err(Unreadable::Compacted { first: 11 })));
}

#[test]
fn segments_are_used_again_and_a_busy_log_does_not_grow() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(disk.clone()).unwrap();
    for round in 0..50 {
        log.write(&entries(round * 10 + 1..=round * 10 + 10, 1, 300)).unwrap();
        log.sync().unwrap();
        if round > 0 {
            compact(&mut log, round * 10).unwrap();
            log.sync().unwrap();
        }
        while log.maintain().unwrap() {}
    }
    let names = disk.names().unwrap();
    let count = |prefix: &str| names.iter().filter(|it| it.starts_with(prefix)).count();
    assert!(count("log-") + count("spare-") <= 4, "{names:?}");
    assert_eq!(names.iter().filter(|it| it.starts_with("snapshot-")).count(), 1);
    drop(log);
    disk.crash(Loss::Everything);
    let (log, recovered) = open(disk).unwrap();
    assert_eq!((recovered.base.index, recovered.last), (490, 500));
    assert_eq!(Model::of(&log).entries.len(), 10);
}

#[test]
fn segments_that_are_not_needed_are_set_aside_and_no_more_of_them_than_will_be_used() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(disk.clone()).unwrap();
    log.write(&entries(1..=200, 1, 300)).unwrap();
    compact(&mut log, 200).unwrap();
    log.sync().unwrap();
    while log.maintain().unwrap() {}
    drop(log);
    disk.crash(Loss::Some(1));
    let (mut log, recovered) = open(disk.clone()).unwrap();
    assert_eq!((recovered.base.index, recovered.last), (200, 200));
    while log.maintain().unwrap() {}
    let count = |prefix: &str| disk.names().unwrap().iter().filter(|it| it.starts_with(prefix)).count();
    assert_eq!((count("log-"), count("spare-")), (2, 8));
    // There is no room for new ones, and none are needed.
    disk.turns(Weather::Full);
    log.write(&entries(201..=260, 1, 300)).unwrap();
    log.sync().unwrap();
    assert!(count("spare-") < 8);
    disk.turns(Weather::Fair);
    disk.crash(Loss::Everything);
    assert_eq!(open(disk).unwrap().1.last, 260);
}

#[test]
fn the_next_segment_is_ready_before_it_is_needed() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(disk.clone()).unwrap();
    while log.maintain().unwrap() {}
    log.write(&entries(1..=10, 1, 300)).unwrap();
    log.sync().unwrap();
    let steps = |log: &mut Log<SimDisk>, batch: &[Append]| {
        let before = disk.steps();
        log.write(batch).unwrap();
        log.sync().unwrap();
        (log.segments.current().sequence, disk.steps() - before)
    };
    // A write and a sync, also where the next segment begins.
    assert_eq!(steps(&mut log, &entries(11..=11, 1, 60)), (1, 2));
    assert_eq!(steps(&mut log, &entries(12..=13, 1, 60)), (2, 2));
    while log.maintain().unwrap() {}
    // What is long is divided: two writes and two syncs.
    assert_eq!(steps(&mut log, &entries(14..=24, 1, 300)), (3, 4));
}

#[test]
fn what_does_not_fit_in_a_segment_is_refused_and_nothing_is_written() {
    let (mut log, _) = open(SimDisk::new(1)).unwrap();
    let longest = log.payload_length_max();
    log.write(&[entry(1, 1, longest), entry(2, 1, 1)]).unwrap();
    let refused = log.write(&[entry(3, 1, 1), entry(4, 1, longest + 1)]);
    assert_eq!(refused, Err(Failure::TooLarge { length: longest + 1, length_max: longest }));
    assert_eq!(log.reader().last(), 2);
    log.write(&[entry(3, 1, longest)]).unwrap();
    log.sync().unwrap();
    assert_eq!(log.reader().read(1, 4, usize::MAX).unwrap().len(), 3);
}

#[test]
fn a_reader_goes_on_while_a_sync_stands_still() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(disk.clone()).unwrap();
    log.write(&entries(1..=3, 1, 100)).unwrap();
    let reader = log.reader();
    disk.turns(Weather::Still);
    let syncing = std::thread::spawn(move || log.sync());
    assert_eq!(reader.read(1, 4, usize::MAX).unwrap().len(), 3);
    assert!(!syncing.is_finished());
    disk.turns(Weather::Fair);
    syncing.join().unwrap().unwrap();
}

#[test]
fn the_format_is_that_of_version_1() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(disk.clone()).unwrap();
    log.write(&[entry(1, 1, 10), entry(2, 1, 0), state(1, 3, 1), entry(2, 2, 5), Append::Truncate { from: 2 }]).unwrap();
    compact(&mut log, 1).unwrap();
    log.sync().unwrap();
    log.rest().unwrap();
    log.write(&entries(2..=12, 2, 300)).unwrap();
    log.sync().unwrap();
    log.rest().unwrap();
    log.remember(&[Known { node: NodeId(2), directory: [2; 16], generation: 3 }]).unwrap();
    let written: Vec<String> =
        disk.names().unwrap().iter().map(|it| format!("{it} {:08x}", crc32c::crc32c(&disk.bytes(it)))).collect();
    // What is different needs another version, and the old one must be read all the same: nodes are upgraded one by one, on the directories they have.
    // Heads of segments have said their length only since there were some that did not: what knows nothing of it passes over it, and so no other version was needed.
    let golden = [
        "identity a2c3802b",
        "known 5cead950",
        "log-00000001 98aef392",
        "log-00000002 8b2e3a64",
        "snapshot-0000000000000001-0000000000000001 3941442c",
    ];
    assert_eq!(written, golden);
}
