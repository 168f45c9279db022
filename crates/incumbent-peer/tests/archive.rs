//! A node's directory as the node sees it: on a real file system, through the public door.

use std::path::Path;
use std::sync::mpsc;

use incumbent_peer::archive::{Archive, Failure, Members, Stored};
use incumbent_protocol::protocol::{NodeId, Record, Term};

const ME: NodeId = NodeId(3);

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
    let members = Members { version: 2, list: vec![(ME, "here:1".into()), (NodeId(9), "there:2".into())] };
    let (tell, told) = mpsc::channel();
    archive.keep_members(members.clone(), move |result| tell.send(result).unwrap());
    told.recv().unwrap().unwrap();
    archive.close();

    let archive = open(&directory);
    assert_eq!((archive.generation(), archive.directory_id()), (2, id));
    let kept: Vec<_> = archive.elections().to_vec();
    assert_eq!(kept, [("nightly".to_owned(), stored(5, Some(2))), ("hourly".to_owned(), stored(1, None))]);
    assert_eq!(archive.known(), [(NodeId(9), [9; 16], 4)]);
    assert_eq!(archive.members(), Some(&members));
}
