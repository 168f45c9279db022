//! Snapshots: whole or not at all, received in parts, refused with the reason (C07, C51).

use super::super::sim::Fault;
use super::*;

const MARK: Mark = Mark { index: 5, term: 2 };

fn pieces() -> Vec<Vec<u8>> {
    (0..5_u8).map(|it| vec![it; 700 + usize::from(it)]).collect()
}

fn make<D: Disk>(snapshots: &Snapshots<D>, mark: Mark) -> Result<Snapshot, Failure> {
    let mut writer = snapshots.begin(mark, b"members")?;
    pieces().iter().try_for_each(|it| writer.piece(it))?;
    writer.commit()
}

fn read<D: Disk>(snapshots: &Snapshots<D>) -> Result<Vec<Vec<u8>>, Unreadable> {
    let mut reader = snapshots.read()?.expect("there is one");
    assert_eq!(reader.context(), b"members");
    let mut pieces = Vec::new();
    while let Some(piece) = reader.piece()? {
        pieces.push(piece);
    }
    Ok(pieces)
}

/// A directory with one snapshot, and its name.
fn with_one() -> (SimDisk, Snapshot, String) {
    let disk = SimDisk::new(1);
    let (log, _) = open(disk.clone()).unwrap();
    let snapshot = make(&log.snapshots(), MARK).unwrap();
    let name = disk.names().unwrap().into_iter().find(|it| it.starts_with("snapshot-")).unwrap();
    drop(log);
    disk.crash(Loss::Everything);
    (disk, snapshot, name)
}

#[test]
fn a_snapshot_is_read_as_it_was_written_and_the_log_goes_on_behind_it() {
    let (disk, snapshot, _) = with_one();
    let (mut log, recovered) = open(disk).unwrap();
    assert_eq!((recovered.snapshot, recovered.base, recovered.last), (Some(snapshot), MARK, 5));
    assert_eq!(read(&log.snapshots()).unwrap(), pieces());
    log.write(&[entry(6, 2, 10)]).unwrap();
    let refused = log.snapshots().begin(MARK, &[]).unwrap().piece(&vec![0; PIECE_LENGTH_MAX + 1]);
    assert!(matches!(refused, Err(Failure::TooLarge { .. })));
}

#[test]
fn c07_a_crash_at_every_step_leaves_the_old_snapshot_or_the_new_one() {
    let (before, old, _) = with_one();
    let later = Mark { index: 9, term: 2 };
    let (mut was_old, mut was_new) = (0, 0);
    for (step, loss) in
        (1..40).flat_map(|step| [Loss::Nothing, Loss::Everything, Loss::Some(step), Loss::Some(step + 99)].map(|it| (step, it)))
    {
        let disk = before.copy();
        let (log, _) = open(disk.clone()).unwrap();
        disk.dies_at(disk.steps() + step);
        let made = make(&log.snapshots(), later);
        disk.crash(loss);
        let (log, recovered) = open(disk).unwrap_or_else(|refused| panic!("step {step}, {loss:?}: {refused}"));
        let found = recovered.snapshot.expect("one of them");
        assert!(found == old && made.is_err() || found.mark == later, "step {step}, {loss:?}: {found:?} after {made:?}");
        assert_eq!(read(&log.snapshots()).unwrap(), pieces());
        if found == old { was_old += 1 } else { was_new += 1 }
    }
    assert!(was_old > 10 && was_new > 10, "{was_old} {was_new}");
}

#[test]
fn c51_a_snapshot_that_was_cut_off_anywhere_is_refused() {
    let (disk, snapshot, name) = with_one();
    for length in 0..snapshot.length as usize {
        let disk = disk.copy();
        disk.change(&name, |bytes| bytes.truncate(length));
        match open(disk).map(|_| ()) {
            Err(Refused::Damaged(damage)) => assert_eq!(damage.file, name, "{length}"),
            other => panic!("{length} bytes: {other:?}"),
        }
    }
}

#[test]
fn c51_a_snapshot_of_a_later_release_is_refused_as_one() {
    let (disk, _, name) = with_one();
    disk.change(&name, |bytes| {
        bytes[16] = 2;
        let length = (u32::from_le_bytes(bytes[4..8].try_into().unwrap()) & 0xFF_FFFF) as usize;
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&0_u64.to_le_bytes()), &bytes[4..8 + length]);
        bytes[..4].copy_from_slice(&checksum.to_le_bytes());
    });
    let refused = open(disk).map(|_| ()).unwrap_err();
    assert_eq!(refused, Refused::Newer { file: name, version: 2 });
    assert!(refused.to_string().contains("later release"));
}

#[test]
fn c43_a_flipped_bit_in_a_snapshot_is_refused_or_found_when_it_is_read() {
    let (disk, snapshot, name) = with_one();
    for byte in 0..snapshot.length {
        let disk = disk.copy();
        disk.flip(&name, byte * 8 + byte % 8);
        let found = match open(disk) {
            Ok((log, _)) => read(&log.snapshots()).is_err(),
            Err(Refused::Damaged(_)) => true,
            Err(other) => panic!("byte {byte}: {other}"),
        };
        assert!(found, "byte {byte}");
    }
}

/// Sends `snapshot` from one to the other, in parts of `step` bytes, until `stop`.
fn send(reader: &SnapshotReader<SimDisk>, incoming: &mut Incoming<SimDisk>, step: usize, stop: u64) {
    while incoming.offset() < stop && !incoming.is_complete() {
        let bytes = reader.bytes(incoming.offset(), step).unwrap();
        incoming.write(incoming.offset(), &bytes).unwrap();
    }
}

#[test]
fn a_snapshot_is_received_in_parts_and_goes_on_after_a_crash_where_it_was() {
    let (disk, snapshot, _) = with_one();
    let sender = open(disk).unwrap().0;
    let reader = sender.snapshots().read().unwrap().unwrap();
    for (stop, loss) in
        (0..snapshot.length).step_by(97).flat_map(|it| [Loss::Nothing, Loss::Everything, Loss::Some(it)].map(|loss| (it, loss)))
    {
        let disk = SimDisk::new(2);
        let (mut log, _) = open(disk.clone()).unwrap();
        log.write(&entries(1..=3, 1, 100)).unwrap();
        log.sync().unwrap();
        let mut incoming = log.snapshots().receive(snapshot).unwrap();
        send(&reader, &mut incoming, 100, stop);
        disk.crash(loss);
        let (log, recovered) = open(disk.clone()).unwrap();
        assert_eq!((recovered.snapshot, recovered.last), (None, 3), "half of one is none");
        let mut incoming = log.snapshots().receive(snapshot).unwrap();
        assert!(incoming.offset() <= stop + 100);
        if loss == Loss::Nothing && stop > 1000 {
            assert!(incoming.offset() > stop - 900, "{} of {stop}", incoming.offset());
        }
        send(&reader, &mut incoming, 333, u64::MAX);
        assert_eq!(incoming.whole().unwrap().commit(), Ok(snapshot));
        disk.crash(Loss::Everything);
        let (log, recovered) = open(disk).unwrap();
        assert_eq!((recovered.snapshot, recovered.base, recovered.last), (Some(snapshot), MARK, 5));
        assert_eq!(read(&log.snapshots()).unwrap(), pieces());
    }
}

#[test]
fn parts_that_come_twice_or_too_early_or_wrong_do_no_harm() {
    let (disk, snapshot, _) = with_one();
    let sender = open(disk).unwrap().0;
    let reader = sender.snapshots().read().unwrap().unwrap();
    let snapshots = open(SimDisk::new(2)).unwrap().0.snapshots();
    let mut incoming = snapshots.receive(snapshot).unwrap();
    let first = reader.bytes(0, 100).unwrap();
    assert_eq!(incoming.write(50, &first), Ok(0), "a gap");
    assert_eq!(incoming.write(0, &first), Ok(100));
    assert_eq!(incoming.write(0, &first), Ok(100), "again");
    assert_eq!(incoming.write(60, &reader.bytes(60, 100).unwrap()), Ok(160), "half of it again");
    assert_eq!(incoming.write(160, &vec![9; 1 << 20]), Ok(snapshot.length), "nonsense, and too much of it");
    assert!(matches!(incoming.whole(), Err(Rejected::Damaged(_))));
    let mut incoming = snapshots.receive(snapshot).unwrap();
    assert_eq!(incoming.offset(), 0, "from the beginning");
    send(&reader, &mut incoming, 512, 1000);
    assert!(matches!(incoming.whole(), Err(Rejected::Damaged(damage)) if damage.what.contains("cut off")));
    let mut incoming = snapshots.receive(Snapshot { checksum: snapshot.checksum ^ 1, ..snapshot }).unwrap();
    send(&reader, &mut incoming, 512, u64::MAX);
    assert!(matches!(incoming.whole(), Err(Rejected::Damaged(damage)) if damage.what.contains("another")));
    assert_eq!(snapshots.latest(), None);
}

#[test]
fn a_snapshot_that_conflicts_with_entries_takes_their_place_also_if_the_log_was_not_told() {
    let (disk, snapshot, _) = with_one();
    let sender = open(disk).unwrap().0;
    let reader = sender.snapshots().read().unwrap().unwrap();
    for (term, kept) in [(1, 5), (2, 9)] {
        let disk = SimDisk::new(2);
        let (mut log, _) = open(disk.clone()).unwrap();
        log.write(&entries(1..=9, term, 100)).unwrap();
        log.sync().unwrap();
        let mut incoming = log.snapshots().receive(snapshot).unwrap();
        send(&reader, &mut incoming, 512, u64::MAX);
        incoming.whole().unwrap().commit().unwrap();
        disk.crash(Loss::Everything);
        // Of another term: they were never committed. Of the same: they go on behind it.
        let (log, recovered) = open(disk).unwrap();
        assert_eq!((recovered.last, log.reader().last()), (kept, kept));
    }
}

#[test]
fn c46_a_snapshot_whose_sync_failed_is_none() {
    let (disk, old, _) = with_one();
    let (log, _) = open(disk.clone()).unwrap();
    let before = disk.steps();
    make(&log.snapshots(), Mark { index: 7, term: 2 }).unwrap();
    let steps = disk.steps() - before;
    for step in 1..=steps {
        let (disk, _, _) = with_one();
        let (log, _) = open(disk.clone()).unwrap();
        disk.injects(disk.steps() + step, Fault::Fails);
        let made = make(&log.snapshots(), Mark { index: 7, term: 2 });
        disk.crash(Loss::Everything);
        let (log, recovered) = open(disk).unwrap();
        assert!(
            recovered.snapshot == Some(old) && made.is_err() || recovered.snapshot.unwrap().mark.index == 7,
            "{step} {made:?}"
        );
        assert_eq!(read(&log.snapshots()).unwrap(), pieces());
    }
}

#[test]
fn c47_a_snapshot_that_does_not_fit_gives_its_room_back_and_the_old_one_stays() {
    let (disk, old, _) = with_one();
    let (log, _) = open(disk.clone()).unwrap();
    let before = disk.names().unwrap();
    let mut writer = log.snapshots().begin(Mark { index: 7, term: 2 }, &[]).unwrap();
    disk.turns(Weather::Full);
    assert!(matches!(writer.piece(&[1; 100]), Err(Failure::Full { .. })));
    drop(writer);
    assert_eq!((disk.names().unwrap(), log.snapshots().latest()), (before, Some(old)));
}
