//! The figures that we publish of the log, made by `cargo xtask bench log`: a commit beside the least that any durable commit can cost on the same disk, one `fdatasync` of one
//! page that was written in place; and how long a start takes.
//!
//! What is compared takes turns, round by round, because disks have moods. Nothing fails by speed.

#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use incumbent_protocol::protocol::NodeId;
use incumbent_service::log::{Append, Entry, Folder, Identity, Log, Options, Recovered};

/// Rounds, unless the first argument says how many.
const ROUNDS: usize = 2000;
const PAGE: usize = 4096;
/// Pages that are overwritten by turns.
const PAGES: u64 = 256;
/// About what one request of an election is.
const PAYLOAD: usize = 200;
const BATCH: u64 = 64;

fn main() {
    let rounds = std::env::args().filter_map(|it| it.parse().ok()).next().unwrap_or(ROUNDS).max(100);
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory on the disk that is built on");
    commits(directory.path(), rounds);
    starts(directory.path());
}

fn open(path: &Path) -> (Log<Folder>, Recovered) {
    let identity = Identity { cluster: "bench".to_owned(), node: NodeId(1) };
    Log::open(Folder::open(path).expect("a directory"), &identity, Options::default()).expect("a log")
}

fn entries(from: u64, count: u64) -> Vec<Append> {
    (from..from + count).map(|index| Append::Entry(Entry { index, term: 1, payload: vec![7; PAYLOAD] })).collect()
}

/// A file with all its blocks.
fn zeroed(path: &Path, flags: i32) -> File {
    std::fs::write(path, vec![0; PAGE * PAGES as usize]).expect("a file");
    let file = File::options().write(true).custom_flags(flags).open(path).expect("just made");
    file.sync_all().expect("a disk");
    file
}

fn timed(mut what: impl FnMut()) -> Duration {
    let began = Instant::now();
    what();
    began.elapsed()
}

fn commits(directory: &Path, rounds: usize) {
    let flag = |it: rustix::fs::OFlags| i32::try_from(it.bits()).expect("a small number");
    let plain = zeroed(&directory.join("plain"), 0);
    let dsync = zeroed(&directory.join("dsync"), flag(rustix::fs::OFlags::DSYNC));
    let direct = zeroed(&directory.join("direct"), flag(rustix::fs::OFlags::DIRECT));
    let (mut one, _) = open(&directory.join("one"));
    let (mut many, _) = open(&directory.join("many"));
    let memory = [7; 2 * PAGE];
    let aligned = memory.as_ptr().align_offset(PAGE);
    let page = &memory[aligned..aligned + PAGE];
    let [mut floor, mut open_dsync, mut past_cache, mut singles, mut batches] = [const { Vec::new() }; 5];
    for round in 0..rounds as u64 {
        let offset = round % PAGES * PAGE as u64;
        floor.push(timed(|| {
            plain.write_all_at(page, offset).expect("a disk");
            plain.sync_data().expect("a disk");
        }));
        open_dsync.push(timed(|| dsync.write_all_at(page, offset).expect("a disk")));
        past_cache.push(timed(|| {
            direct.write_all_at(page, offset).expect("a disk");
            direct.sync_data().expect("a disk");
        }));
        singles.push(commit(&mut one, &entries(round + 1, 1)));
        batches.push(commit(&mut many, &entries(round * BATCH + 1, BATCH)));
    }
    println!("A commit of entries of {PAYLOAD} bytes, {rounds} rounds");
    let floor = report("one page in place, fdatasync", &mut floor, None);
    report("one page in place, O_DSYNC", &mut open_dsync, Some(floor));
    report("one page past the cache, fdatasync", &mut past_cache, Some(floor));
    report("the log, 1 entry a commit", &mut singles, Some(floor));
    let batch = report("the log, 64 entries a commit", &mut batches, Some(floor));
    println!("  {:.0} entries a second at that pace", BATCH as f64 / batch.as_secs_f64());
}

fn commit(log: &mut Log<Folder>, batch: &[Append]) -> Duration {
    let took = timed(|| {
        log.write(batch).expect("a disk");
        log.sync().expect("a disk");
    });
    // As a replica does it: while nothing waits.
    while log.maintain().expect("a disk") {}
    took
}

/// Prints what was measured and returns its median.
fn report(what: &str, took: &mut [Duration], floor: Option<Duration>) -> Duration {
    took.sort_unstable();
    let (median, late, worst) = (took[took.len() / 2], took[took.len() * 99 / 100], took[took.len() - 1]);
    let times = floor.map_or(String::new(), |it| format!(": {:.2} times the first", median.as_secs_f64() / it.as_secs_f64()));
    println!("  {what:<34} p50 {median:.0?}, p99 {late:.0?}, slowest {worst:.0?}{times}");
    median
}

/// How long a node takes to find its log again, and to make one.
fn starts(directory: &Path) {
    let path = directory.join("starts");
    let first = timed(|| drop(open(&path)));
    println!("From nothing to a log: {first:.1?}");
    for megabytes in [1, 32] {
        let (mut log, recovered) = open(&path);
        let count = megabytes * (1 << 20) / PAYLOAD as u64;
        log.write(&entries(recovered.last + 1, count)).expect("a disk");
        log.sync().expect("a disk");
        drop(log);
        let mut took: Vec<Duration> = (0..9).map(|_| timed(|| drop(open(&path)))).collect();
        took.sort_unstable();
        println!("From a log of {} entries more ({megabytes} MiB) to one that is open: p50 {:.1?}", count, took[took.len() / 2]);
    }
}
