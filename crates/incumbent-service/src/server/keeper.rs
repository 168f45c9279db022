//! The keeper of snapshots, on a thread of its own: a large one must not hold up the log.
//!
//! A snapshot is of the store as it was at one entry, and the store is in use: the keeper is given a copy of it, which costs nothing until the store is changed, and then only what is changed.
//!
//! In its file a snapshot has the replica's outline as context, and the store's pieces cut into chunks that the log takes. On its way to another node it is the file's bytes,
//! known by their length and checksum: so what came before a crash counts, and what is not as announced is found out.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use incumbent_client::administration::{BackupView, ReadBackup};
use incumbent_protocol::protocol::NodeId;
use incumbent_store::store::Store;
use rustix::process::{getpriority_process, setpriority_process};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::backup::{self, Label};
use super::{Alarm, Report};
use crate::log::{
    Damage, Disk, Failure, HardState, Incoming, Mark, Reader, Rejected, Snapshot as Saved, SnapshotReader, SnapshotWriter,
    Snapshots, Unreadable,
};
use crate::replica::{Extent, Index, Snapshot};

/// How often it is looked whether an entry is written.
const ENTRY_LOOKED_FOR: Duration = Duration::from_millis(5);

/// As steps of niceness go: about a tenth of the processor, if others want it.
const LESS_URGENT_BY: i32 = 10;

/// A store's piece may be longer than the log takes at once.
const CHUNK: usize = 256 << 10;
const _: () = assert!(CHUNK < crate::log::PIECE_LENGTH_MAX);

/// Who waits for something, or for why it cannot be.
type Answer<T> = oneshot::Sender<Result<T, String>>;

/// What the keeper is to do.
#[derive(Debug)]
pub(super) enum Task {
    /// Save the store, which is as it is after the last entry of this.
    Save(Snapshot, Box<Store>),
    /// Read a part for another node.
    Read { to: NodeId, index: Index, offset: u64, bytes_max: u64 },
    /// One comes from another node: say how much of it is here.
    Expect(Snapshot, Extent),
    /// Free this.
    Forget(Box<Store>),
    /// Keep a part of it.
    Keep { index: Index, offset: u64, bytes: Bytes, last: bool },
    /// Make a backup of the store, which is as it is after this entry.
    BackUp { index: Index, store: Box<Store>, label: Label, answer: Answer<BackupView> },
    /// Read a part of the backup that was made last.
    ReadBackup { wanted: ReadBackup, answer: Answer<Bytes> },
}

/// The thread, from outside. Dropped, it ends when it has done what it was given.
#[derive(Debug)]
pub(super) struct Keeper {
    tasks: Sender<Task>,
    thread: JoinHandle<()>,
}

impl Keeper {
    pub(super) fn start<D: Disk>(
        snapshots: Snapshots<D>,
        log: Reader<D>,
        reports: UnboundedSender<Report>,
    ) -> io::Result<Keeper> {
        let (tasks, inbox) = channel();
        let alarm = Alarm(reports.clone());
        let worker = Worker { snapshots, log, inbox, reports, saving: None, backup: None, reading: None, incoming: None };
        let thread = thread::Builder::new().name("incumbent-keeper".to_owned()).spawn(move || {
            let _alarm = alarm;
            worker.run();
        })?;
        Ok(Keeper { tasks, thread })
    }

    pub(super) fn give(&self, task: Task) {
        // One that has ended has said why.
        let _ = self.tasks.send(task);
    }

    /// Lets it finish what it was given. The handle tells when it has.
    pub(super) fn end(self) -> JoinHandle<()> {
        self.thread
    }
}

/// Saves `store` as it is after the last entry of `snapshot`.
pub(super) fn save<D: Disk>(snapshots: &Snapshots<D>, snapshot: &Snapshot, store: &Store) -> Result<Extent, Failure> {
    let mut writer = snapshots.begin(mark(snapshot), &snapshot.to_bytes())?;
    write(&mut writer, store)?;
    Ok(extent(&writer.commit()?))
}

/// Writes a store, piece by piece.
pub(super) fn write<D: Disk>(writer: &mut SnapshotWriter<D>, store: &Store) -> Result<(), Failure> {
    for piece in store.save() {
        let mut chunks = piece.chunks(CHUNK).peekable();
        while let Some(chunk) = chunks.next() {
            // The first byte says whether the piece goes on.
            writer.piece(&[&[u8::from(chunks.peek().is_some())], chunk].concat())?;
        }
    }
    Ok(())
}

/// The store that was written.
pub(super) fn read<D: Disk>(reader: &mut SnapshotReader<D>) -> Result<Store, String> {
    let mut unreadable = None;
    let pieces = std::iter::from_fn(|| {
        whole_piece(reader).unwrap_or_else(|why| {
            unreadable = Some(why);
            None
        })
    });
    let store = Store::load(pieces);
    match unreadable {
        Some(why) => Err(why),
        None => store.map_err(|why| why.to_string()),
    }
}

/// The newest snapshot and its store. `None` if there is none; an error says why it cannot be read.
pub(super) fn load<D: Disk>(snapshots: &Snapshots<D>) -> Result<Option<(Snapshot, Extent, Store)>, String> {
    let Some(mut reader) = snapshots.read().map_err(|why| why.to_string())? else { return Ok(None) };
    load_from(&mut reader).map(Some)
}

/// The snapshot of a file, and its store.
fn load_from<D: Disk>(reader: &mut SnapshotReader<D>) -> Result<(Snapshot, Extent, Store), String> {
    let outline = Snapshot::from_bytes(reader.context()).filter(|it| mark(it) == reader.snapshot().mark);
    let outline = outline.ok_or("its head is none that a replica has written")?;
    let extent = extent(&reader.snapshot());
    Ok((outline, extent, read(reader)?))
}

fn whole_piece<D: Disk>(reader: &mut SnapshotReader<D>) -> Result<Option<Vec<u8>>, String> {
    let mut piece = Vec::new();
    let mut begun = false;
    while let Some(chunk) = reader.piece().map_err(|why| why.to_string())? {
        let Some((more, bytes)) = chunk.split_first() else { return Err("it has an empty chunk".to_owned()) };
        piece.extend(bytes);
        begun = true;
        if *more == 0 {
            return Ok(Some(piece));
        }
    }
    if begun { Err("its last piece is cut off".to_owned()) } else { Ok(None) }
}

fn mark(snapshot: &Snapshot) -> Mark {
    Mark { index: snapshot.index, term: snapshot.term.0 }
}

fn extent(saved: &Saved) -> Extent {
    Extent { bytes: saved.length, checksum: saved.checksum }
}

struct Worker<D: Disk> {
    snapshots: Snapshots<D>,
    log: Reader<D>,
    inbox: Receiver<Task>,
    reports: UnboundedSender<Report>,
    /// To be saved when its last entry is written.
    saving: Option<(Snapshot, Box<Store>)>,
    /// The backup that was made last.
    backup: Option<(BackupView, SnapshotReader<D>)>,
    /// The snapshot that others are being sent: its file can be read to the end, also when a newer one has taken its place.
    reading: Option<SnapshotReader<D>>,
    incoming: Option<(Snapshot, Incoming<D>)>,
}

impl<D: Disk> Worker<D> {
    fn run(mut self) {
        // Whoever waits for an answer is more important. A system that does not allow it does not matter.
        let _ = setpriority_process(None, getpriority_process(None).unwrap_or(0) + LESS_URGENT_BY);
        loop {
            let task = if self.saving.is_none() {
                self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                self.inbox.recv_timeout(ENTRY_LOOKED_FOR)
            };
            let report = match task {
                Ok(Task::Save(snapshot, store)) => {
                    self.saving = Some((snapshot, store));
                    self.save()
                }
                Err(RecvTimeoutError::Timeout) => self.save(),
                Ok(Task::BackUp { index, store, label, answer }) => {
                    let _ = answer.send(self.back_up(index, &store, &label));
                    None
                }
                Ok(Task::ReadBackup { wanted, answer }) => {
                    let _ = answer.send(self.read_backup(&wanted));
                    None
                }
                Ok(Task::Read { to, index, offset, bytes_max }) => {
                    Some(Report::Piece { to, index, offset, bytes: self.read(index, offset, bytes_max) })
                }
                Ok(Task::Expect(snapshot, extent)) => Some(self.expect(snapshot, extent)),
                Ok(Task::Forget(store)) => {
                    drop(store);
                    None
                }
                Ok(Task::Keep { index, offset, bytes, last }) => self.keep(index, offset, &bytes, last),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let broken = matches!(report, Some(Report::Broken(_)));
            if let Some(report) = report {
                let _ = self.reports.send(report);
            }
            if broken {
                return;
            }
        }
    }

    /// Saves what is to be saved, if the log is as far. An entry may be decided by others' disks before it is on this one.
    fn save(&mut self) -> Option<Report> {
        let Snapshot { index, term, .. } = self.saving.as_ref()?.0;
        match self.log.term(index) {
            Ok(written) if written == term.0 => {}
            Ok(_) | Err(Unreadable::Beyond { .. }) => return None,
            // A newer snapshot has come from another node.
            Err(Unreadable::Compacted { .. } | Unreadable::Damaged(_) | Unreadable::Broken { .. }) => {
                self.saving = None;
                return Some(Report::Unsaved { index });
            }
        }
        let (snapshot, store) = self.saving.take()?;
        match save(&self.snapshots, &snapshot, &store) {
            Ok(extent) => Some(Report::Saved { index, extent }),
            Err(failure) if failure.is_final() => Some(Report::Broken(failure.to_string())),
            Err(failure) => {
                tracing::warn!(index, %failure, "no snapshot could be saved");
                Some(Report::Unsaved { index })
            }
        }
    }

    fn back_up(&mut self, index: Index, store: &Store, label: &Label) -> Result<BackupView, String> {
        let (view, reader) = backup::write(&self.snapshots, index, label, store)?;
        self.backup = Some((view.clone(), reader));
        Ok(view)
    }

    fn read_backup(&self, wanted: &ReadBackup) -> Result<Bytes, String> {
        let made = self.backup.as_ref().filter(|(view, _)| (view.index, view.checksum) == (wanted.index, wanted.checksum));
        let Some((_, reader)) = made else {
            return Err("this node has no such backup, or has made another since: begin again".to_owned());
        };
        reader.bytes(wanted.offset, backup::PIECE).map(Bytes::from).map_err(|why| why.to_string())
    }

    /// Empty if there is no such snapshot, or it cannot be read.
    fn read(&mut self, index: Index, offset: u64, bytes_max: u64) -> Bytes {
        if self.reading.as_ref().is_none_or(|it| it.snapshot().mark.index != index) {
            self.reading = self.snapshots.read().ok().flatten().filter(|it| it.snapshot().mark.index == index);
        }
        let Some(reader) = &self.reading else { return Bytes::new() };
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        reader.bytes(offset, bytes_max).map(Bytes::from).unwrap_or_else(|why| {
            tracing::warn!(index, %why, "a snapshot for another node cannot be read");
            Bytes::new()
        })
    }

    fn expect(&mut self, snapshot: Snapshot, extent: Extent) -> Report {
        let index = snapshot.index;
        self.incoming = None;
        let Extent { bytes: length, checksum } = extent;
        match self.snapshots.receive(Saved { mark: mark(&snapshot), length, checksum }) {
            Ok(incoming) => {
                let have = incoming.offset();
                self.incoming = Some((snapshot, incoming));
                Report::Expecting { index, have }
            }
            Err(failure) if failure.is_final() => Report::Broken(failure.to_string()),
            Err(failure) => {
                tracing::warn!(index, %failure, "a snapshot from another node cannot be kept");
                Report::Stored { index, store: None }
            }
        }
    }

    fn keep(&mut self, index: Index, offset: u64, bytes: &[u8], last: bool) -> Option<Report> {
        // Of one that could not be kept no more is said.
        let (snapshot, mut incoming) = self.incoming.take_if(|(snapshot, _)| snapshot.index == index)?;
        let stored = match incoming.write(offset, bytes) {
            Ok(have) if !last => {
                self.incoming = Some((snapshot, incoming));
                return Some(Report::Kept { index, have });
            }
            Ok(_) => self.finish(&snapshot, incoming),
            Err(failure) => Err(Rejected::Failed(failure)),
        };
        match stored {
            Ok(store) => Some(Report::Stored { index, store: Some(Box::new(store)) }),
            Err(Rejected::Failed(failure)) if failure.is_final() => Some(Report::Broken(failure.to_string())),
            Err(why) => {
                tracing::warn!(index, %why, "a snapshot from another node could not be kept");
                Some(Report::Stored { index, store: None })
            }
        }
    }

    /// All has come. It takes the place of this node's own when it was seen that it can be read: without either, the node could not start again.
    fn finish(&self, snapshot: &Snapshot, incoming: Incoming<D>) -> Result<Store, Rejected> {
        let damaged = |what: String| {
            Rejected::Damaged(Damage {
                file: format!("the snapshot of entry {}", snapshot.index),
                offset: 0,
                what,
                whole_through: 0,
                seen_through: 0,
                state: HardState::default(),
            })
        };
        let mut arrived = incoming.whole()?;
        let loaded = load_from(arrived.reader()).and_then(|(outline, _, store)| {
            if outline == *snapshot { Ok(store) } else { Err("its head is of another".to_owned()) }
        });
        let store = match loaded {
            Ok(store) => store,
            Err(why) => {
                arrived.discard().map_err(Rejected::Failed)?;
                return Err(damaged(why));
            }
        };
        let saved = arrived.commit().map_err(Rejected::Failed)?;
        if self.snapshots.latest() == Some(saved) {
            Ok(store)
        } else {
            Err(damaged("another one has taken its place".to_owned()))
        }
    }
}
