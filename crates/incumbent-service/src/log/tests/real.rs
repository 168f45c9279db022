//! The log in a real directory.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::*;

fn open_at(path: &Path, options: Options) -> Result<(Log<Folder>, Recovered), Refused> {
    Log::open(Folder::open(path)?, &identity(), options)
}

#[test]
fn a_log_in_a_directory_is_there_when_it_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state").join("node-1");
    let mut model = Model::default();
    for generation in 1..=5 {
        let (mut log, recovered) = open_at(&path, small()).unwrap();
        assert_eq!((recovered.generation, recovered.last), (generation, model.last()));
        assert_eq!(Model::of(&log), model);
        let last = model.last();
        let batch = [entries(last + 1..=last + 20, generation, 300), vec![state(generation, 1, last)]].concat();
        log.write(&batch).unwrap();
        batch.iter().for_each(|it| model.apply(it));
        log.sync().unwrap();
        model.apply(&compact(&mut log, last + 10).unwrap());
        log.sync().unwrap();
        while log.maintain().unwrap() {}
        assert_eq!(Model::of(&log), model);
    }
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
}

#[test]
fn a_directory_in_use_is_refused_to_a_second_one() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = open_at(folder.path(), small()).unwrap();
    let refused = open_at(folder.path(), small()).map(|_| ()).unwrap_err();
    assert!(matches!(refused, Refused::InUse { .. }) && refused.to_string().contains("must run once"), "{refused}");
    let reader = log.reader();
    drop(log);
    assert!(matches!(open_at(folder.path(), small()), Err(Refused::InUse { .. })), "a reader still uses it");
    drop(reader);
    assert_eq!(open_at(folder.path(), small()).unwrap().1.generation, 2);
}

#[test]
fn segments_have_all_their_blocks_before_they_are_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let (mut log, _) = open_at(folder.path(), Options::default()).unwrap();
    while log.maintain().unwrap() {}
    for (name, length) in [("log-00000001", 512 << 10), ("log-00000002", 8 << 20)] {
        let file = std::fs::metadata(folder.path().join(name)).unwrap();
        assert_eq!(file.len(), length);
        assert!(file.blocks() * 512 >= file.len(), "{name}: {} blocks", file.blocks());
    }
    let entry = |index| entry(index, 1, 1 << 20);
    (1..=20).for_each(|index| log.write(&[entry(index)]).unwrap());
    log.sync().unwrap();
    let read = log.reader().read(1, 21, 3 << 20).unwrap();
    assert_eq!(read.into_iter().map(Append::Entry).collect::<Vec<_>>(), [entry(1), entry(2), entry(3)]);
    drop(log);
    assert_eq!(open_at(folder.path(), Options::default()).unwrap().1.last, 20);
}

#[test]
fn segments_of_another_size_are_read_and_new_ones_have_the_new_size() {
    let folder = tempfile::tempdir().unwrap();
    let (mut log, _) = open_at(folder.path(), small()).unwrap();
    log.write(&entries(1..=30, 1, 300)).unwrap();
    log.sync().unwrap();
    while log.maintain().unwrap() {}
    drop(log);
    let (mut log, _) = open_at(folder.path(), Options::segments_of(8192)).unwrap();
    // Longer than the segment that was made to be the next one.
    let longest = log.payload_length_max();
    log.write(&[entry(31, 1, longest), entry(32, 1, longest)]).unwrap();
    log.sync().unwrap();
    assert_eq!(log.segments.current().length, 8192);
    drop(log);
    let (log, recovered) = open_at(folder.path(), small()).unwrap();
    assert_eq!((recovered.last, log.reader().read(31, 33, usize::MAX).unwrap()[1].payload.len()), (32, longest));
}

#[test]
fn a_directory_that_cannot_be_used_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "no directory").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let refused = open_at(&file, small()).map(|_| ()).unwrap_err();
    assert!(
        matches!(refused, Refused::Unusable { .. }) && refused.to_string().contains("give the node a directory"),
        "{refused}"
    );
    let mounted = folder.path().join("mounted");
    std::fs::create_dir_all(mounted.join("lost+found")).unwrap();
    assert!(open_at(&mounted, small()).is_ok(), "what is not ours does not matter");
}
