//! C07 with a real process and a real directory: a node that is killed at any moment has kept what it had confirmed, and the next may open the directory at once.

#![allow(clippy::print_stdout, reason = "the child says what it has confirmed")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use incumbent_protocol::protocol::NodeId;
use incumbent_service::log::{Append, Entry, Folder, HardState, Identity, Log, Mark, Options, Recovered};

/// Where the child writes; none in the parent.
const DIRECTORY: &str = "INCUMBENT_TEST_LOG_DIRECTORY";
const ROUNDS: usize = 12;

fn open(path: &Path) -> (Log<Folder>, Recovered) {
    let identity = Identity { cluster: "killed".to_owned(), node: NodeId(1) };
    let folder = Folder::open(path).expect("the lock went with the process");
    Log::open(folder, &identity, Options::segments_of(64 << 10)).expect("a crash is no damage")
}

fn payload(index: u64) -> Vec<u8> {
    vec![index as u8; (index * 37 % 900) as usize]
}

#[test]
fn a_node_that_is_killed_keeps_what_it_has_confirmed() {
    if let Some(path) = std::env::var_os(DIRECTORY) {
        return write_until_killed(Path::new(&path));
    }
    let directory = tempfile::tempdir().unwrap();
    let mut confirmed = 0;
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_node_that_is_killed_keeps_what_it_has_confirmed", "--nocapture"])
            .env(DIRECTORY, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let numbers = |line: String| line.strip_prefix("confirmed ").map(|it| it.parse::<u64>().unwrap());
        let before = confirmed;
        confirmed = lines.by_ref().filter_map(numbers).nth(round * 7 + 3).expect("it writes for ever");
        child.kill().unwrap();
        child.wait().unwrap();
        confirmed = lines.filter_map(numbers).last().unwrap_or(confirmed);
        assert!(confirmed > before);
        let (log, recovered) = open(directory.path());
        assert!(recovered.last >= confirmed, "{} of {confirmed}", recovered.last);
        assert!(recovered.state.commit >= confirmed);
        let reader = log.reader();
        for entry in reader.read(reader.first(), reader.last() + 1, usize::MAX).unwrap() {
            assert_eq!((entry.payload, entry.term), (payload(entry.index), 1));
        }
    }
}

/// Batches of entries, and a snapshot now and then.
fn write_until_killed(path: &Path) {
    let (mut log, recovered) = open(path);
    let mut last = recovered.last;
    loop {
        let count = last % 9 + 1;
        let mut batch: Vec<Append> =
            (last + 1..=last + count).map(|index| Append::Entry(Entry { index, term: 1, payload: payload(index) })).collect();
        last += count;
        batch.push(Append::State(HardState { term: 1, vote: None, commit: last }));
        log.write(&batch).unwrap();
        log.sync().unwrap();
        println!("confirmed {last}");
        if last % 5 == 0 {
            let mark = Mark { index: last, term: 1 };
            let mut writer = log.snapshots().begin(mark, &[]).unwrap();
            writer.piece(&payload(last)).unwrap();
            writer.commit().unwrap();
            log.write(&[Append::Compact(mark)]).unwrap();
        }
        log.maintain().unwrap();
    }
}
