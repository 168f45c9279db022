//! A node's directory as the node sees it: on a real file system, through the public door.
//!
//! What needs a process of its own (one that is killed, one that may write little) runs this same file again, with one test chosen and
//! `ARCHIVE_TEST_DIRECTORY` set; without it those tests have nothing to do.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;

use incumbent_peer::archive::{Archive, Failure, Members, Refused, Stored};
use incumbent_protocol::protocol::{NodeId, Record, Term};

const ME: NodeId = NodeId(3);
const DIRECTORY: &str = "ARCHIVE_TEST_DIRECTORY";

fn open(directory: &Path) -> Archive {
    Archive::open(directory, "orders", ME).unwrap()
}

fn stored(term: u64, vote: Option<u32>) -> Stored {
    Stored { record: Some(Record { term: Term(term), vote: vote.map(NodeId) }), epoch: 7 }
}

/// Writes and waits until it is done.
fn write(archive: &Archive, election: &str, what: Stored) -> Result<(), Failure> {
    let (tell, told) = mpsc::channel();
    archive.write(election, what, move |result| tell.send(result).unwrap());
    told.recv().unwrap()
}

fn keep_members(archive: &Archive, members: &Members) {
    let (tell, told) = mpsc::channel();
    archive.keep_members(members.clone(), move |result| tell.send(result).unwrap());
    told.recv().unwrap().unwrap();
}

fn members() -> Members {
    Members { version: 2, list: vec![(ME, "here:1".into()), (NodeId(9), "there:2".into())] }
}

/// A directory with everything in it.
fn used(folder: &tempfile::TempDir) -> PathBuf {
    let directory = folder.path().join("a/b");
    let archive = open(&directory);
    write(&archive, "nightly", stored(5, Some(2))).unwrap();
    archive.remember(NodeId(9), [9; 16], 4);
    keep_members(&archive, &members());
    archive.close();
    directory
}

/// What is said when `directory` is opened, and that nothing in it changes.
fn refused(directory: &Path, cluster: &str, me: NodeId) -> String {
    let files = |directory: &Path| {
        let names = fs::read_dir(directory).unwrap().map(|it| it.unwrap().path());
        let mut files: Vec<_> = names.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
        files.sort();
        files
    };
    let before = files(directory);
    let refused = Archive::open(directory, cluster, me).expect_err("must be refused").to_string();
    assert!(files(directory) == before, "{refused}: but something was changed");
    refused
}

/// This test again, in a process of its own that may be told how to begin.
fn again(test: &str, directory: &Path, begin: &str) -> Command {
    let mut command = Command::new("sh");
    let script = format!("{begin} exec \"$0\" --exact {test} --nocapture");
    command.arg("-c").arg(script).arg(std::env::current_exe().unwrap()).env(DIRECTORY, directory);
    command
}

#[test]
fn what_was_written_is_there_again_and_each_opening_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("a/b");
    let archive = open(&directory);
    let id = archive.directory_id();
    assert_eq!((archive.generation(), archive.elections(), archive.known(), archive.members()), (1, &[][..], &[][..], None));
    for term in 1..=5 {
        write(&archive, "nightly", stored(term, Some(2))).unwrap();
    }
    write(&archive, "hourly", stored(1, None)).unwrap();
    archive.remember(NodeId(9), [9; 16], 4);
    keep_members(&archive, &members());
    archive.close();

    let archive = open(&directory);
    assert_eq!((archive.generation(), archive.directory_id()), (2, id));
    let kept: Vec<_> = archive.elections().to_vec();
    assert_eq!(kept, [("nightly".to_owned(), stored(5, Some(2))), ("hourly".to_owned(), stored(1, None))]);
    assert_eq!(archive.known(), [(NodeId(9), [9; 16], 4)]);
    assert_eq!(archive.members(), Some(&members()));
}

#[test]
fn a_directory_that_cannot_be_right_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let directory = used(&folder);
    let says = |cluster: &str, me, words: &[&str]| {
        let text = refused(&directory, cluster, me);
        words.iter().for_each(|word| assert!(text.contains(word), "'{word}' is missing in: {text}"));
    };
    says("orders", NodeId(4), &["belongs to node 3", "as node 3"]);
    says("invoices", ME, &["belongs to the group 'orders'", "empty directory"]);
    says(&"o".repeat(2000), ME, &["at most 1024"]);

    for file in ["ledger", "members", "known"] {
        let path = directory.join(file);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        says("orders", ME, &["damaged", file, "under a new id"]);
        fs::write(&path, []).unwrap();
        says("orders", ME, &["damaged", file, "cut off"]);
        let mut flipped = whole.clone();
        // In the ledger both copies of a page: one alone is no loss.
        let bytes = if file == "ledger" { vec![100, 2148] } else { (0..whole.len()).collect() };
        for byte in bytes.iter().filter(|_| file != "ledger") {
            flipped[*byte] ^= 1;
            fs::write(&path, &flipped).unwrap();
            says("orders", ME, &["damaged", file]);
            flipped[*byte] ^= 1;
        }
        bytes.iter().for_each(|byte| flipped[*byte] ^= 1);
        fs::write(&path, &flipped).unwrap();
        says("orders", ME, &["damaged", file]);
        fs::write(&path, &whole).unwrap();
    }
    fs::rename(directory.join("ledger"), directory.join("elsewhere")).unwrap();
    says("orders", ME, &["ledger is missing", "bring it back"]);
    fs::rename(directory.join("elsewhere"), directory.join("ledger")).unwrap();

    assert_eq!(open(&directory).elections(), [("nightly".to_owned(), stored(5, Some(2)))]);
}

#[test]
fn a_directory_that_cannot_be_made_or_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "text").unwrap();
    for path in [file.clone(), file.join("below")] {
        let text = Archive::open(&path, "orders", ME).unwrap_err().to_string();
        assert!(text.contains("file") && text.contains("directory that it may write to"), "{text}");
    }
    let directory = used(&folder);
    fs::remove_file(directory.join("known")).unwrap();
    fs::create_dir(directory.join("known")).unwrap();
    assert!(matches!(Archive::open(&directory, "orders", ME), Err(Refused::Unusable { what: "read", .. })));
}

#[test]
fn what_was_left_over_when_the_directory_was_made_is_no_hindrance() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["lock", "ledger.new", "lost+found"] {
        fs::write(folder.path().join(name), "begun").unwrap();
    }
    assert_eq!(open(folder.path()).generation(), 1);
}

#[test]
fn an_old_copy_of_the_directory_has_an_old_generation() {
    let folder = tempfile::tempdir().unwrap();
    let directory = used(&folder);
    let copy = fs::read(directory.join("ledger")).unwrap();
    let archive = open(&directory);
    let (id, generation) = (archive.directory_id(), archive.generation());
    archive.close();
    open(&directory).close();
    fs::write(directory.join("ledger"), copy).unwrap();
    let rolled_back = open(&directory);
    // Two lives with one generation: the others know the later one and see that this one is not it.
    assert_eq!((rolled_back.directory_id(), rolled_back.generation()), (id, generation));
}

#[test]
fn a_second_process_is_kept_out_until_the_first_is_dead_however_it_dies() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        let archive = open(Path::new(&directory));
        write(&archive, "nightly", stored(archive.generation(), None)).unwrap();
        writeln!(std::io::stdout(), "has it").unwrap();
        std::io::stdout().flush().unwrap();
        // Until it is killed.
        std::io::stdin().lines().for_each(drop);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for life in 1..=3 {
        let mut child = again("a_second_process_is_kept_out_until_the_first_is_dead_however_it_dies", folder.path(), "");
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with("has it")));
        let refused = Archive::open(folder.path(), "orders", ME).unwrap_err();
        assert_eq!(refused, Refused::InUse { path: folder.path().to_path_buf() });
        child.kill().unwrap();
        child.wait().unwrap();
        let archive = open(folder.path());
        assert_eq!(archive.elections(), [("nightly".to_owned(), stored(2 * life - 1, None))]);
        assert_eq!(archive.generation(), 2 * life);
        archive.close();
    }
}

/// The limit is the kernel's: a file may not grow beyond it, as on a disk without room.
#[test]
fn a_disk_without_room_for_one_more_election_keeps_those_that_it_has() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        let archive = open(Path::new(&directory));
        let results: Vec<_> = (1..=40).map(|it| write(&archive, &format!("election {it}"), stored(it, None))).collect();
        let written = results.iter().take_while(|it| it.is_ok()).count();
        assert!(results[written..].iter().all(|it| matches!(it, Err(Failure::Full { .. }))), "{results:?}");
        assert_eq!(write(&archive, "election 1", stored(99, None)), Ok(()), "what has its place keeps it");
        writeln!(std::io::stdout(), "{written} have room").unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // 600 blocks of 512 bytes are more than 33 cells, and less than twice as many. Else the signal would end the process.
    let begin = "trap '' XFSZ; ulimit -f 600;";
    let test = "a_disk_without_room_for_one_more_election_keeps_those_that_it_has";
    let told = again(test, folder.path(), begin).output().unwrap();
    let text = String::from_utf8_lossy(&told.stdout);
    assert!(told.status.success() && text.contains("32 have room"), "{text}\n{}", String::from_utf8_lossy(&told.stderr));
    let archive = open(folder.path());
    assert_eq!(archive.elections().len(), 32);
    assert_eq!(archive.elections()[0], ("election 1".to_owned(), stored(99, None)));
}
