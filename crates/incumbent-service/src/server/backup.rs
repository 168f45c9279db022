//! Backups, and how a cluster begins with one.
//!
//! A backup is the store after one entry, in the form of a snapshot: frames with checksums, a version, an end. In place of a snapshot's outline it has a label, which says whose it is.
//!
//! **A restored cluster is another cluster** ([`restore`]): it has another name, so neither old nodes nor their directories nor clients that were told the old name are let in; its tokens are above
//! all that the old one gave, also after the backup; and nobody is believed to lead who led there (`incumbent_store::rebirth` says what is safe, and what an operator must see to). The same file,
//! restored with the same members, gives every node the same beginning; nodes that began otherwise are known by that, and refused (`replica/origin.rs`).

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use incumbent_client::administration::BackupView;
use incumbent_protocol::protocol::{NodeId, Term};
use incumbent_store::command::Request;
use incumbent_store::store::Store;
use incumbent_store::time::Stamp;
use prost::Message;

use super::config::check_name;
use super::{keeper, members, opening};
use crate::log::{Disk, Folder, Identity, Log, Mark, Options, Rejected, SnapshotReader, Snapshots};
use crate::replica::{ClusterTime, Origin, Roll, Snapshot};

/// A part of a backup on its way has at most so many bytes.
pub(super) const PIECE: usize = 256 << 10;
/// With this a label begins: a snapshot is no backup.
const MAGIC: &[u8] = b"incumbent backup\n";
/// How much is read at once.
const READ_AT_ONCE: usize = 1 << 20;

/// Whose backup it is.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Label {
    /// The cluster's name.
    #[prost(string, tag = "1")]
    pub cluster: String,
    /// The node that made it.
    #[prost(uint32, tag = "2")]
    pub node: u32,
    /// When, in milliseconds since 1970, by that node's clock.
    #[prost(uint64, tag = "3")]
    pub wall_ms: u64,
    /// What that node ran.
    #[prost(string, tag = "4")]
    pub release: String,
}

/// Writes a backup, and tells of it.
pub(super) fn write<D: Disk>(
    snapshots: &Snapshots<D>,
    index: u64,
    label: &Label,
    store: &Store,
) -> Result<(BackupView, SnapshotReader<D>), String> {
    let written = || {
        let mut writer = snapshots.begin_copy(Mark { index, term: 1 }, &[MAGIC, &label.encode_to_vec()].concat())?;
        keeper::write(&mut writer, store)?;
        writer.detach()
    };
    let reader = written().map_err(|failure| failure.to_string())?;
    let bytes = reader.snapshot().length;
    let (mut checksum, mut offset) = (0, 0);
    while offset < bytes {
        let part = reader.bytes(offset, READ_AT_ONCE).map_err(|why| why.to_string())?;
        checksum = crc32c::crc32c_append(checksum, &part);
        offset += part.len() as u64;
    }
    Ok((BackupView { index, checksum, bytes, revision: store.revision() }, reader))
}

/// What a restored cluster is to be.
#[derive(Clone, Debug)]
pub struct Restoration {
    /// Its name: another than that of the cluster which was backed up.
    pub cluster: String,
    /// The node whose directory is made.
    pub node: NodeId,
    /// All nodes that the cluster begins with, that one among them. The same on each of them.
    pub members: Vec<NodeId>,
    /// Every token will be greater than this one too; 0 for none. For when the old cluster's tokens were raised after the backup.
    pub above: u64,
    /// How the log is kept.
    pub log: Options,
}

/// What was restored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restored {
    /// Whose backup it was.
    pub label: Label,
    /// The store's revision, from which it goes on.
    pub revision: u64,
    /// The incarnation of its tokens.
    pub incarnation: u16,
}

/// Why nothing was restored. Each says what to do; no directory was made or changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotRestored {
    /// The system does not give or take a file.
    File(String),
    /// The file is no backup that is whole, or what is wanted cannot be.
    Wrong(String),
}

impl fmt::Display for NotRestored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (NotRestored::File(what) | NotRestored::Wrong(what)) = self;
        f.write_str(what)
    }
}

impl std::error::Error for NotRestored {}

fn not_given<T>(why: impl Into<String>) -> Result<T, NotRestored> {
    Err(NotRestored::File(why.into()))
}

fn not<T>(why: impl Into<String>) -> Result<T, NotRestored> {
    Err(NotRestored::Wrong(why.into()))
}

/// Makes the directory of a node of a new cluster, which begins with what is in a backup. The directory must not be there, or be empty.
///
/// # Errors
/// If the file is no backup, damaged, cut off or of a later release; if the directory is in use; or if what is wanted cannot be.
pub fn restore(file: &Path, directory: &Path, wanted: &Restoration) -> Result<Restored, NotRestored> {
    let Restoration { cluster, node, members, above, log } = wanted;
    let roll = Roll::of(members.iter().copied())
        .map_err(|bad| NotRestored::Wrong(format!("these members make no cluster ({bad:?})")))?;
    if !roll.voters().contains(node) {
        return not(format!("node {node} is not among the members that the cluster shall begin with: name all of them"));
    }
    if roll.voters().len() != members.len() {
        return not("a member is named twice: give each its own number");
    }
    check_name(cluster).map_err(NotRestored::Wrong)?;
    check_vacant(directory)?;
    let (label, mut store) = read(file)?;
    if *cluster == label.cluster {
        return not(format!(
            "the backup is of the cluster '{cluster}', and a restored one must not be taken for it: give it another name, and tell its clients"
        ));
    }
    begin_anew(&mut store, &label, *above)?;
    // Behind every beginning of a cluster that was never restored.
    let life = u64::from(store.incarnation()) + 1;
    let origin = Some(Origin::restored(&roll, store.digest()));
    let birth = Snapshot { index: life, term: Term(life), at: ClusterTime(store.now().as_nanos()), roll, origin };
    make(directory, &Identity { cluster: cluster.clone(), node: *node }, *log, &birth, &store)?;
    Ok(Restored { label, revision: store.revision(), incarnation: store.incarnation() })
}

fn check_vacant(directory: &Path) -> Result<(), NotRestored> {
    let shown = directory.display();
    match fs::read_dir(directory) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                return not(format!(
                    "{shown} is not empty, and nothing is written over: name another directory, or move this one away"
                ));
            }
            Ok(())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => not_given(format!("{shown} cannot be read: {error}")),
    }
}

/// The label and the store of a backup.
fn read(file: &Path) -> Result<(Label, Store), NotRestored> {
    let name = file.display().to_string();
    let damaged = |why: String| NotRestored::Wrong(format!("{why}: take another backup, or use another copy of this one"));
    let unread = |error: std::io::Error| NotRestored::File(format!("{name} cannot be read: {error}"));
    let opened = File::open(file).map_err(unread)?;
    // It can be opened, and says only when it is read that it is none.
    if opened.metadata().map_err(unread)?.is_dir() {
        return not_given(format!("{name} is a directory: name a file that `incumbent cluster snapshot` has written"));
    }
    let mut reader = match SnapshotReader::<Folder>::of(opened.into(), &name) {
        Ok(reader) => reader,
        Err(Rejected::Newer(version)) => {
            return not(format!("{name} was written by a later release (format {version}): restore it with that one or a later"));
        }
        Err(Rejected::Damaged(damage)) if damage.offset == 0 => {
            return not(format!(
                "{name} is no backup, or damaged from its first byte on: name a file that `incumbent cluster snapshot` has written, or another copy of it"
            ));
        }
        Err(Rejected::Damaged(damage)) => return Err(damaged(damage.to_string())),
        Err(Rejected::Failed(failure)) => return not_given(format!("{name} cannot be read: {failure}")),
    };
    let label = reader.context().strip_prefix(MAGIC).and_then(|it| Label::decode(it).ok());
    let Some(label) = label else {
        return not(format!("{name} is a node's own snapshot, and no backup: take one from the cluster"));
    };
    let store = keeper::read(&mut reader).map_err(|why| damaged(format!("{name}: {why}")))?;
    Ok((label, store))
}

fn begin_anew(store: &mut Store, label: &Label, above: u64) -> Result<(), NotRestored> {
    // Where the old members were is of no use.
    let erased =
        store.apply(Stamp { at: store.now(), wall_ms: label.wall_ms }, Request::of(members::erase_all()), &mut Vec::new());
    erased.map_err(|refusal| NotRestored::Wrong(refusal.to_string()))?;
    let incarnation = store.incarnation();
    store.begin_anew(label.wall_ms, above).map_err(|_| {
        NotRestored::Wrong(format!(
            "there is no incarnation above {incarnation} whose tokens are greater: begin an empty cluster, give its elections new names, and copy what is needed from the keys"
        ))
    })
}

/// Beside its place at first, and moved there when it is whole: a part of a directory would look like a node that founds an empty cluster.
fn make(directory: &Path, identity: &Identity, options: Options, birth: &Snapshot, store: &Store) -> Result<(), NotRestored> {
    let mut unfinished = directory.as_os_str().to_owned();
    unfinished.push(".restoring");
    let unfinished = PathBuf::from(unfinished);
    if unfinished.exists() {
        return not(format!(
            "{} is there: another restore is under way, or was cut off; remove it and try again",
            unfinished.display()
        ));
    }
    let made = fill(&unfinished, identity, options, birth, store).and_then(|()| {
        let parent = directory.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // An empty directory makes way; one that is not does not.
        fs::rename(&unfinished, directory)
            .and_then(|()| File::open(parent)?.sync_all())
            .map_err(|error| NotRestored::File(format!("{} cannot be put in its place: {error}", directory.display())))
    });
    if made.is_err() {
        // Of no use to anybody; if it stays, the next one says so.
        let _ = fs::remove_dir_all(&unfinished);
    }
    made
}

fn fill(unfinished: &Path, identity: &Identity, options: Options, birth: &Snapshot, store: &Store) -> Result<(), NotRestored> {
    let failed =
        |what: &str, why: &dyn fmt::Display| NotRestored::File(format!("{} cannot be {what}: {why}", unfinished.display()));
    let folder = Folder::open(unfinished).map_err(|why| failed("made", &why))?;
    let (mut log, _) = Log::open(folder, identity, options).map_err(|why| failed("made", &why))?;
    opening::be_born(&mut log, birth, store).map_err(|why| failed("written", &why))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A backup is read for ever.
    #[test]
    fn a_label_is_what_it_was() {
        let label = Label { cluster: "c".to_owned(), node: 2, wall_ms: 3, release: "r".to_owned() };
        assert_eq!(label.encode_to_vec(), *b"\x0a\x01c\x10\x02\x18\x03\x22\x01r");
        assert_eq!(Label::decode(&label.encode_to_vec()[..]), Ok(label));
    }
}
