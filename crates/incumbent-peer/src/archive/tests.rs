//! The writer's thread, on a disk that obeys the test: it stands still, is full, or fails.

use std::sync::mpsc::{self, Receiver, Sender};

use super::ledger::tests::{Paper, fresh_on};
use super::*;
use incumbent_protocol::protocol::Term;

/// By then a thread that is not stuck has done anything.
const LIMIT: Duration = Duration::from_secs(20);

/// What the next sync does.
enum Sync {
    Succeeds,
    Fails,
}

/// A disk whose syncs wait for the test, one by one.
struct Held {
    paper: Paper,
    full: Arc<Mutex<bool>>,
    /// Told when a sync begins.
    begun: Sender<()>,
    fate: Mutex<Receiver<Sync>>,
}

impl Medium for Held {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if *self.full.lock().unwrap() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.paper.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.begun.send(()).unwrap();
        match self.fate.lock().unwrap().recv().unwrap() {
            Sync::Succeeds => Ok(()),
            Sync::Fails => Err(io::Error::other("input/output error")),
        }
    }
}

/// What a disk does that a test of a whole node has in its hand.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Weather {
    #[default]
    Fair,
    /// Syncs do not return.
    Still,
    Full,
    Broken,
}

/// A disk in somebody's hand.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    paper: Paper,
    weather: Arc<(Mutex<Weather>, Condvar)>,
}

impl Disk {
    pub(crate) fn turns(&self, weather: Weather) {
        *self.weather.0.lock().unwrap() = weather;
        self.weather.1.notify_all();
    }

    /// A node's archive on it.
    pub(crate) fn archive(&self, folder: &Path) -> Archive {
        Archive::with(fresh_on(self.clone(), &self.paper), folder.to_path_buf(), BTreeMap::new(), None)
    }
}

impl Medium for Disk {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if *self.weather.0.lock().unwrap() == Weather::Full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.paper.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        let (weather, turned) = &*self.weather;
        let weather = turned.wait_while(weather.lock().unwrap(), |it| *it == Weather::Still).unwrap();
        if *weather == Weather::Broken { Err(io::Error::other("input/output error")) } else { Ok(()) }
    }
}

struct Bench {
    archive: Archive,
    paper: Paper,
    full: Arc<Mutex<bool>>,
    begun: Receiver<()>,
    fate: Sender<Sync>,
    told: Receiver<(u64, Result<(), Failure>)>,
    tell: Sender<(u64, Result<(), Failure>)>,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let ((begin, begun), (fate, fates), (tell, told)) = (mpsc::channel(), mpsc::channel(), mpsc::channel());
        let (paper, full, folder) = (Paper::default(), Arc::default(), tempfile::tempdir().unwrap());
        let medium = Held { paper: paper.clone(), full: Arc::clone(&full), begun: begin, fate: Mutex::new(fates) };
        let archive = Archive::with(fresh_on(medium, &paper), folder.path().to_path_buf(), BTreeMap::new(), None);
        Bench { archive, paper, full, begun, fate, told, tell, _folder: folder }
    }

    fn write(&self, election: &str, term: u64) {
        let tell = self.tell.clone();
        let record = Record { term: Term(term), vote: None };
        self.archive.write(election, Stored { record: Some(record), epoch: 0 }, move |result| tell.send((term, result)).unwrap());
    }

    /// Waits until a sync has begun.
    fn begun(&self) {
        self.begun.recv_timeout(LIMIT).expect("a sync begins");
    }

    fn sync(&self, fate: Sync) {
        self.begun();
        self.fate.send(fate).unwrap();
    }

    fn told(&self) -> (u64, Result<(), Failure>) {
        self.told.recv_timeout(LIMIT).expect("something is told")
    }
}

#[test]
fn nothing_is_told_before_the_sync_and_a_disk_that_stands_still_is_seen() {
    let bench = Bench::new();
    assert_eq!(bench.archive.busy_since(), None);
    let before = clock::now();
    bench.write("nightly", 1);
    bench.begun();
    assert!(bench.archive.busy_since().unwrap() >= before && bench.archive.vitals().busy_since.is_some());
    assert!(bench.told.try_recv().is_err());
    bench.fate.send(Sync::Succeeds).unwrap();
    assert_eq!(bench.told(), (1, Ok(())));
    assert_eq!(bench.archive.busy_since(), None);
    let vitals = bench.archive.vitals();
    assert_eq!((vitals.writes, vitals.failure), (1, None));
    assert!(vitals.last.is_some_and(|it| it <= clock::now() - before));
}

#[test]
fn what_waits_is_written_together_and_a_later_record_replaces_a_waiting_one() {
    let bench = Bench::new();
    bench.write("nightly", 1);
    bench.begun();
    for (election, term) in [("nightly", 2), ("hourly", 3), ("nightly", 4)] {
        bench.write(election, term);
    }
    bench.fate.send(Sync::Succeeds).unwrap();
    bench.sync(Sync::Succeeds);
    let told: Vec<_> = (0..4).map(|_| bench.told()).collect();
    // In order for each election.
    assert_eq!(told, [1, 3, 2, 4].map(|term| (term, Ok(()))));
    assert!(bench.begun.try_recv().is_err(), "two syncs for four writes");
    let kept: Vec<_> = bench.paper.elections().into_iter().map(|(name, it)| (name, it.record.unwrap().term.0)).collect();
    assert_eq!(kept, [("nightly".to_owned(), 4), ("hourly".to_owned(), 3)]);
}

#[test]
fn after_a_failed_sync_nothing_is_written_any_more() {
    let bench = Bench::new();
    bench.write("nightly", 1);
    bench.sync(Sync::Fails);
    let (_, failed) = bench.told();
    assert!(matches!(&failed, Err(Failure::Broken { error }) if error.contains("input/output")), "{failed:?}");
    let bytes = bench.paper.bytes();
    for term in 2..5 {
        bench.write("nightly", term);
        assert_eq!(bench.told(), (term, failed.clone()));
    }
    assert_eq!(bench.paper.bytes(), bytes);
    assert!(bench.begun.try_recv().is_err(), "no sync was tried again");
    assert_eq!(bench.archive.vitals().failure, failed.err());
}

#[test]
fn a_full_disk_is_told_and_may_be_used_again_when_there_is_room() {
    let bench = Bench::new();
    bench.write("nightly", 1);
    bench.sync(Sync::Succeeds);
    assert_eq!(bench.told(), (1, Ok(())));
    *bench.full.lock().unwrap() = true;
    bench.write("nightly", 2);
    assert!(matches!(bench.told(), (2, Err(Failure::Full { .. }))));
    assert!(matches!(bench.archive.vitals().failure, Some(Failure::Full { .. })));
    assert_eq!(bench.paper.elections()[0].1.record.unwrap().term, Term(1), "what was there is still there");
    *bench.full.lock().unwrap() = false;
    bench.write("nightly", 3);
    bench.sync(Sync::Succeeds);
    assert_eq!(bench.told(), (3, Ok(())));
    assert_eq!(bench.archive.vitals().failure, None);
    assert_eq!(bench.paper.elections()[0].1.record.unwrap().term, Term(3));
}

#[test]
fn what_waits_when_the_archive_is_closed_is_written() {
    let bench = Bench::new();
    bench.write("nightly", 1);
    bench.begun();
    bench.write("nightly", 2);
    bench.fate.send(Sync::Succeeds).unwrap();
    bench.fate.send(Sync::Succeeds).unwrap();
    let Bench { archive, told, .. } = bench;
    archive.close();
    assert_eq!(told.iter().take(2).map(|it| it.0).collect::<Vec<_>>(), [1, 2]);
}
