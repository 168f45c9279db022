//! C43–C51: bits that flip, writes that are torn, lost or misdirected, disks that fail or are full, directories that are not ours. What was confirmed is
//! there, or the directory is refused; never is it silently less.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::super::sim::Fault;
use super::*;

/// A log of a few segments, all of it confirmed and written back; and what it holds.
fn written() -> (SimDisk, Model) {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(disk.clone()).unwrap();
    let mut model = Model::default();
    let batches = [
        [entries(1..=4, 1, 200), vec![state(1, 2, 3)]].concat(),
        entries(5..=14, 1, 400),
        [entries(13..=16, 2, 300), vec![state(2, 1, 9)]].concat(),
        vec![entry(17, 2, 900)],
    ];
    for batch in batches {
        log.write(&batch).unwrap();
        batch.iter().for_each(|it| model.apply(it));
        log.sync().unwrap();
    }
    model.apply(&compact(&mut log, 2).unwrap());
    log.sync().unwrap();
    log.rest().unwrap();
    while log.maintain().unwrap() {}
    drop(log);
    disk.crash(Loss::Nothing);
    assert_eq!(Model::of(&open(disk.copy()).unwrap().0), model);
    (disk, model)
}

fn segments_of(disk: &SimDisk) -> Vec<String> {
    disk.names().unwrap().into_iter().filter(|it| it.starts_with("log-")).collect()
}

#[track_caller]
fn damage_of(disk: SimDisk) -> Damage {
    match open(disk) {
        Err(Refused::Damaged(damage)) => damage,
        Err(refused) => panic!("{refused}"),
        Ok((_, recovered)) => panic!("taken for good: {recovered:?}"),
    }
}

#[test]
fn c43_a_flipped_bit_anywhere_is_refused_or_harmless() {
    let (disk, model) = written();
    let (mut refused, mut harmless) = (0, 0);
    for name in segments_of(&disk) {
        for byte in 0..disk.bytes(&name).len() as u64 {
            let flipped = disk.copy();
            flipped.flip(&name, byte * 8 + byte % 8);
            match open(flipped) {
                Ok((log, _)) => {
                    assert_eq!(Model::of(&log), model, "{name}, byte {byte}");
                    harmless += 1;
                }
                Err(Refused::Damaged(_)) => refused += 1,
                Err(other) => panic!("{name}, byte {byte}: {other}"),
            }
        }
    }
    // Harmless are the last seal, and what was never written.
    assert!(refused > 8000 && harmless > 4000, "{refused} {harmless}");
    let generation = open(disk.copy()).unwrap().1.generation;
    for byte in (0..disk.bytes("identity").len() as u64).step_by(7) {
        let flipped = disk.copy();
        flipped.flip("identity", byte * 8 + byte % 8);
        let (_, recovered) = open(flipped.clone()).unwrap();
        assert!(recovered.generation >= generation, "no generation is had twice");
        // Nor is anything lost when the node ends while it mends the page.
        flipped.crash(Loss::Some(byte));
        assert!(open(flipped).unwrap().1.generation > recovered.generation);
        let flipped = disk.copy();
        flipped.flip("identity", byte * 8);
        flipped.flip("identity", (byte + 4096) % 8192 * 8);
        assert_eq!(damage_of(flipped).file, "identity");
    }
}

#[test]
fn c43_an_opening_that_is_interrupted_never_costs_the_identity_not_even_with_one_page_damaged() {
    // So long that a page can be torn.
    let identity = Identity { cluster: "x".repeat(1000), node: NodeId(1) };
    let open = |disk: &SimDisk| Log::open(disk.clone(), &identity, small()).map(|it| it.1.generation);
    let disk = SimDisk::new(1);
    assert_eq!((open(&disk), open(&disk)), (Ok(1), Ok(2)));
    let cases = [None, Some(0), Some(4096)].into_iter().flat_map(|page| (1..5).map(move |step| (page, step)));
    for ((page, step), seed) in cases.flat_map(|case| (0..20).map(move |seed| (case, seed))) {
        let disk = disk.copy();
        if let Some(page) = page {
            disk.flip("identity", page * 8);
        }
        disk.dies_at(disk.steps() + step);
        let before = open(&disk).unwrap_or(2);
        disk.crash(Loss::Some(seed));
        let after = open(&disk).unwrap_or_else(|refused| panic!("page {page:?}, step {step}, seed {seed}: {refused}"));
        assert!(after > before, "page {page:?}, step {step}, seed {seed}: {after} after {before}");
    }
}

#[test]
fn c44_a_record_torn_at_any_sectors_is_cut_and_all_before_it_is_kept() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(disk.clone()).unwrap();
    log.write(&entries(1..=3, 1, 100)).unwrap();
    log.sync().unwrap();
    let before = disk.bytes("log-00000001");
    // Two records, so that the second may be whole where the first is not.
    log.write(&[entry(4, 1, 1100), entry(5, 1, 1100)]).unwrap();
    let after = disk.bytes("log-00000001");
    drop(log);
    disk.crash(Loss::Nothing);
    let torn: Vec<usize> = (0..before.len() / 512).filter(|it| before[it * 512..][..512] != after[it * 512..][..512]).collect();
    assert_eq!(torn.len(), 6);
    let mut found = Vec::new();
    for kept in 0..1 << torn.len() {
        let disk = disk.copy();
        disk.change("log-00000001", |bytes| {
            bytes.copy_from_slice(&before);
            for (_, sector) in torn.iter().enumerate().filter(|(bit, _)| kept >> bit & 1 == 1) {
                bytes[sector * 512..][..512].copy_from_slice(&after[sector * 512..][..512]);
            }
        });
        let (mut log, recovered) = open(disk.clone()).unwrap();
        found.push(recovered.last);
        // What is left of it stays cut, also behind an entry of the same length.
        let next = recovered.last + 1;
        log.write(&[entry(next, 2, 1100)]).unwrap();
        log.sync().unwrap();
        drop(log);
        disk.crash(Loss::Everything);
        let (log, recovered) = open(disk).unwrap();
        assert_eq!((recovered.last, log.reader().term(next)), (next, Ok(2)), "sectors {kept:b}");
    }
    assert_eq!((found[0], found[63], found[62]), (3, 5, 3));
    assert!(found.iter().all(|it| (3..=5).contains(it)) && found.contains(&4));
}

#[test]
fn c45_damage_in_the_middle_is_refused_with_what_is_whole_and_nothing_is_changed() {
    let (disk, model) = written();
    let name = segments_of(&disk).remove(0);
    // In the content of entry 6, which no reader may miss.
    let Append::Entry(sixth) = entry(6, 1, 400) else { unreachable!() };
    let bytes = disk.bytes(&name);
    let at = bytes.windows(400).position(|it| *it == sixth.payload).unwrap() as u64;
    disk.flip(&name, at * 8);
    let before: Vec<_> = disk.names().unwrap().iter().map(|it| (it.clone(), disk.bytes(it))).collect();
    let damage = damage_of(disk.clone());
    assert_eq!((damage.file.as_str(), damage.offset), (name.as_str(), at - 40));
    assert_eq!((damage.whole_through, damage.seen_through), (5, model.last()));
    assert_eq!((damage.state.term, damage.state.vote), (2, Some(NodeId(1))), "it must not vote again in that term");
    let said = Refused::Damaged(damage).to_string();
    assert!(said.contains("add it under a new id"), "{said}");
    let after: Vec<_> = disk.names().unwrap().iter().map(|it| (it.clone(), disk.bytes(it))).collect();
    assert_eq!(before, after);
}

#[test]
fn c45_a_segment_that_was_cut_off_anywhere_is_refused_also_where_a_record_ends() {
    let (disk, model) = written();
    let names = segments_of(&disk);
    let (not_begun, begun) = names.split_last().unwrap();
    for (name, length) in begun.iter().flat_map(|name| (0..4096).step_by(8).map(move |length| (name, length))) {
        let cut = disk.copy();
        cut.change(name, |bytes| bytes.truncate(length));
        let damage = damage_of(cut);
        assert_eq!((&damage.file, damage.offset), (name, length as u64), "{damage}");
        assert!(damage.what.contains("it was cut off"), "{damage}");
    }
    // Nothing was in it, so nothing is lost.
    for length in [512, 1000, 2048] {
        let cut = disk.copy();
        cut.change(not_begun, |bytes| bytes.truncate(length));
        let (mut log, _) = open(cut.clone()).unwrap();
        assert_eq!(Model::of(&log), model);
        let last = model.last();
        log.write(&entries(last + 1..=last + 20, 2, 300)).unwrap();
        log.sync().unwrap();
        drop(log);
        cut.crash(Loss::Everything);
        assert_eq!(open(cut).unwrap().1.last, last + 20);
    }
}

#[test]
fn c45_the_last_of_a_log_is_missed_whatever_was_cut_off_with_it() {
    let disk = SimDisk::new(1);
    let open = |disk: SimDisk| Log::open(disk, &identity(), Options::default());
    let (mut log, _) = open(disk.clone()).unwrap();
    for index in 1..=40 {
        log.write(&[entry(index, 1, 150)]).unwrap();
        log.sync().unwrap();
    }
    drop(log);
    // As lengths were not written once: then segments have the length that they are made with.
    let older = disk.copy();
    older.change("log-00000001", |bytes| {
        let mut head = bytes[..HEAD_LENGTH].to_vec();
        head[106..110].fill(0);
        record::seal(*b"incu\rlog", record::VERSION, &mut head);
        bytes[..HEAD_LENGTH].copy_from_slice(&head);
    });
    assert_ne!(older.bytes("log-00000001"), disk.bytes("log-00000001"));
    for disk in [disk, older] {
        assert_eq!(open(disk.copy()).unwrap().1.last, 40);
        disk.change("log-00000001", |bytes| bytes.truncate(4096));
        let refused = open(disk).map(|it| it.1).unwrap_err();
        assert!(matches!(&refused, Refused::Damaged(damage) if damage.offset == 4096 && damage.whole_through < 40), "{refused}");
        assert!(refused.to_string().contains("it has 4096 bytes and had 524288"), "{refused}");
    }
}

#[test]
fn c45_damage_is_found_when_an_entry_is_read_too() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(disk.clone()).unwrap();
    log.write(&entries(1..=3, 1, 100)).unwrap();
    log.sync().unwrap();
    disk.flip("log-00000001", (512 + 140 + 60) * 8);
    let reader = log.reader();
    assert_eq!(reader.read(1, 2, usize::MAX).unwrap().len(), 1);
    assert!(matches!(reader.read(1, 4, usize::MAX), Err(Unreadable::Damaged(damage)) if damage.what.contains("entry 2")));
}

#[test]
fn c46_after_a_sync_that_failed_nothing_is_written_and_no_sync_is_tried_again() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(disk.clone()).unwrap();
    log.write(&entries(1..=3, 1, 100)).unwrap();
    log.sync().unwrap();
    log.write(&entries(4..=6, 1, 100)).unwrap();
    disk.injects(disk.steps() + 1, Fault::Fails);
    let failed = log.sync().unwrap_err();
    assert!(failed.is_final() && failed.to_string().contains("this node ends"), "{failed}");
    let steps = disk.steps();
    assert_eq!(log.sync(), Err(failed.clone()));
    assert_eq!(log.write(&entries(7..=7, 1, 100)), Err(failed.clone()));
    assert_eq!(log.maintain(), Err(failed));
    assert_eq!(disk.steps(), steps);
    drop(log);
    disk.crash(Loss::Everything);
    assert_eq!(open(disk).unwrap().1.last, 3);
}

#[test]
fn c46_the_sync_of_a_segment_that_was_left_counts_too() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(disk.clone()).unwrap();
    log.rest().unwrap();
    while log.maintain().unwrap() {}
    log.write(&entries(1..=15, 1, 300)).unwrap();
    assert!(log.segments.current().sequence > 1);
    disk.injects(disk.steps() + 1, Fault::Fails);
    assert!(log.sync().unwrap_err().is_final());
}

#[test]
fn c47_a_full_disk_is_told_all_is_readable_and_it_goes_on_when_there_is_room() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(disk.clone()).unwrap();
    disk.turns(Weather::Full);
    let mut last = 0;
    let failed = loop {
        match log.write(&[entry(last + 1, 1, 500)]).and_then(|()| log.sync()) {
            Ok(()) => last += 1,
            Err(failed) => break failed,
        }
    };
    // The room that was taken is used to its end.
    assert_eq!(last, 6);
    assert!(matches!(failed, Failure::Full { .. }) && failed.to_string().contains("make room"), "{failed}");
    assert_eq!(log.reader().read(1, last + 1, usize::MAX).unwrap().len(), 6);
    assert!(matches!(log.snapshots().begin(Mark { index: 3, term: 1 }, &[]), Err(Failure::Full { .. })));
    assert_eq!(log.write(&[state(2, 1, 0)]), Ok(()), "a vote still fits");
    log.sync().unwrap();
    drop(log);
    let (mut log, recovered) = open(disk.clone()).unwrap();
    assert_eq!((recovered.last, recovered.state.term), (6, 2), "and it can be started");
    disk.turns(Weather::Fair);
    log.write(&entries(7..=20, 1, 500)).unwrap();
    log.sync().unwrap();
    drop(log);
    disk.crash(Loss::Everything);
    assert_eq!(open(disk).unwrap().1.last, 20);
}

#[test]
fn a_log_without_a_descriptor_for_the_next_segment_goes_on_when_there_is_one() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(disk.clone()).unwrap();
    log.write(&entries(1..=100, 1, 300)).unwrap();
    compact(&mut log, 100).unwrap();
    log.sync().unwrap();
    while log.maintain().unwrap() {}
    let spares = |disk: &SimDisk| disk.names().unwrap().iter().filter(|it| it.starts_with("spare-")).count();
    let (mut last, before) = (100, spares(&disk));
    assert!(before > 0, "a segment is used again, and must be opened for that");
    disk.turns(Weather::Crowded);
    let failed = loop {
        match log.write(&[entry(last + 1, 1, 500)]).and_then(|()| log.sync()) {
            Ok(()) => last += 1,
            Err(failed) => break failed,
        }
    };
    assert!(!failed.is_final() && failed.to_string().contains("raise the limit of open files"), "{failed}");
    let refused = log.remember(&[Known { node: NodeId(2), directory: [2; 16], generation: 3 }]).unwrap_err();
    assert!(!refused.is_final(), "{refused}");
    let (snapshots, mark) = (log.snapshots(), Mark { index: last, term: 1 });
    assert!(matches!(snapshots.begin(mark, &[]), Err(Failure::Full { .. })));
    assert!(matches!(snapshots.receive(Snapshot { mark, length: 9, checksum: 0 }), Err(Failure::Full { .. })));
    disk.turns(Weather::Fair);
    assert_eq!(spares(&disk), before, "none was given up");
    log.write(&entries(last + 1..=last + 20, 1, 500)).unwrap();
    log.sync().unwrap();
    assert!(spares(&disk) < before);
    drop(log);
    disk.crash(Loss::Everything);
    assert_eq!(open(disk).unwrap().1.last, last + 20);
}

#[test]
fn what_a_sync_says_of_descriptors_is_believed_of_no_disk() {
    let lacking = std::io::Error::from(rustix::io::Errno::MFILE);
    assert!(!Failure::of_opening(&lacking).is_final());
    assert!(Failure::of_write(&lacking).is_final() && Failure::of_sync(&lacking).is_final());
}

#[test]
fn c48_a_write_that_was_lost_or_misdirected_is_found() {
    let run = |fault: Option<(u64, Fault)>| {
        let disk = SimDisk::new(1);
        let (mut log, _) = open(disk.clone()).unwrap();
        let first = disk.steps();
        if let Some((step, fault)) = fault {
            disk.injects(first + step, fault);
        }
        let (mut model, mut confirmed) = (Model::default(), Ok(()));
        for (number, length) in (1..).zip([100, 900, 300, 700, 500, 1100, 200, 600]) {
            let batch = entries(number * 3 - 2..=number * 3, number, length);
            confirmed = confirmed.and_then(|()| log.write(&batch)).and_then(|()| log.sync());
            // The seal, which nobody waits for.
            let _ = log.rest();
            batch.iter().for_each(|it| model.apply(it));
        }
        let steps = disk.steps() - first;
        drop(log);
        // Written back, with the last seal.
        disk.crash(Loss::Nothing);
        (disk, model, steps, confirmed)
    };
    let (_, _, steps, _) = run(None);
    let (mut refused, mut harmless) = (0, 0);
    for step in 1..=steps {
        for fault in [Fault::Lost, Fault::Misdirected(1), Fault::Misdirected(3)] {
            let (disk, model, _, confirmed) = run(Some((step, fault)));
            if confirmed.is_err() {
                continue;
            }
            match open(disk) {
                Ok((log, _)) => {
                    assert_eq!(Model::of(&log), model, "step {step}, {fault:?}");
                    harmless += 1;
                }
                Err(Refused::Damaged(_)) => refused += 1,
                Err(other) => panic!("step {step}, {fault:?}: {other}"),
            }
        }
    }
    // Harmless are syncs that were not needed in the end, seals that were overwritten, and zeros that went astray.
    assert!(refused > 20 && harmless > 20, "{refused} {harmless}");
}

#[test]
fn c49_every_opening_is_counted_so_that_the_others_know_an_old_copy() {
    let (disk, _) = written();
    let old = disk.copy();
    let opened: Vec<_> = (0..3).map(|_| open(disk.clone()).unwrap().1).collect();
    assert_eq!(opened.iter().map(|it| it.generation).collect::<Vec<_>>(), [2, 3, 4]);
    let old = open(old).unwrap().1;
    assert_eq!((old.directory, old.generation), (opened[0].directory, 2));
    assert_ne!(open(SimDisk::new(2)).unwrap().1.directory, old.directory);
}

#[test]
fn c50_another_nodes_or_clusters_directory_is_refused_and_so_are_its_files() {
    let (disk, _) = written();
    let as_node = |node, cluster: &str| {
        let identity = Identity { cluster: cluster.to_owned(), node: NodeId(node) };
        Log::open(disk.clone(), &identity, small()).map(|_| ()).unwrap_err()
    };
    assert_eq!(as_node(2, "billing"), Refused::OtherNode { belongs_to: NodeId(1), wanted_for: NodeId(2) });
    let (belongs_to, wanted_for) = ("billing".to_owned(), "payroll".to_owned());
    assert_eq!(as_node(1, "payroll"), Refused::OtherCluster { belongs_to, wanted_for });
    assert!(matches!(as_node(1, &"x".repeat(1025)), Refused::TooLong { .. }));
    let other = SimDisk::new(2);
    drop(open(other.clone()).unwrap());
    let name = segments_of(&disk).remove(1);
    let foreign = other.bytes("log-00000001");
    disk.change(&name, |bytes| bytes.copy_from_slice(&foreign));
    assert!(matches!(damage_of(disk), damage if damage.whole_through < damage.seen_through));
}

#[test]
fn files_that_are_missing_are_missed() {
    let (disk, _) = written();
    let without = |name: &str| {
        let disk = disk.copy();
        disk.remove(name).unwrap();
        open(disk).map(|_| ()).unwrap_err()
    };
    assert_eq!(without("identity"), Refused::Gone { what: "the file 'identity'".to_owned() });
    let names = segments_of(&disk);
    for name in &names[..2] {
        assert!(matches!(without(name), Refused::Damaged(_)), "{name}");
    }
    let snapshot = disk.names().unwrap().into_iter().find(|it| it.starts_with("snapshot-")).unwrap();
    assert!(matches!(without(&snapshot), Refused::Gone { what } if what.contains("snapshot of entry 2")));
}

#[test]
fn a_segment_of_a_later_release_is_refused_as_one() {
    let (disk, _) = written();
    disk.change(&segments_of(&disk)[1], |bytes| {
        let mut head = bytes[..HEAD_LENGTH].to_vec();
        record::seal(*b"incu\rlog", record::VERSION + 1, &mut head);
        bytes[..HEAD_LENGTH].copy_from_slice(&head);
    });
    assert!(matches!(open(disk).unwrap_err(), Refused::Newer { version: 2, .. }));
}

#[test]
fn what_a_killed_process_has_written_is_safe_once_it_was_read_again() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(disk.clone()).unwrap();
    log.write(&entries(1..=20, 1, 300)).unwrap();
    drop(log);
    disk.crash(Loss::Nothing);
    drop(open(disk.clone()).unwrap());
    disk.crash(Loss::Everything);
    assert_eq!(open(disk).unwrap().1.last, 20);
}

#[test]
fn c49_the_others_are_remembered() {
    let disk = SimDisk::new(1);
    let (mut log, recovered) = open(disk.clone()).unwrap();
    assert_eq!(recovered.known, []);
    let known = |generation| [2, 3].map(|node| Known { node: NodeId(node), directory: [node as u8; 16], generation });
    for generation in 1..3 {
        log.remember(&known(generation)).unwrap();
    }
    disk.crash(Loss::Everything);
    assert_eq!(open(disk.clone()).unwrap().1.known, known(2));
    for byte in 0..disk.bytes("known").len() as u64 {
        let flipped = disk.copy();
        flipped.flip("known", byte * 8 + byte % 8);
        assert_eq!(damage_of(flipped).file, "known");
    }
}

static WRITTEN: LazyLock<SimDisk> = LazyLock::new(|| written().0);

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_in_any_file_are_no_reason_to_panic(
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 1..600),
        cut in any::<bool>(),
    ) {
        let disk = WRITTEN.copy();
        let names = disk.names().unwrap();
        let name = &names[which.index(names.len())];
        disk.change(name, |content| {
            let at = at.index(content.len());
            let length = bytes.len().min(content.len() - at);
            content[at..at + length].copy_from_slice(&bytes[..length]);
            if cut {
                content.truncate(at + length);
            }
        });
        if let Ok((log, _)) = open(disk) {
            let reader = log.reader();
            let _ = reader.read(reader.first(), reader.last() + 1, usize::MAX);
        }
    }
}
