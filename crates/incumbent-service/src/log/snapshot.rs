//! Snapshots: the state after an entry, in a file of pieces, written here or received from another node.
//!
//! ```text
//!   file    frame │ frame │ …            the first is the head (magic, version, mark, context), the last the end
//!   frame   crc32c of the offset and all the rest, kind and length, content
//! ```
//!
//! - A snapshot is there whole or not at all: written under another name, synced, renamed, the name synced. Older ones are removed only then.
//! - A snapshot has the same bytes on every node, so what was received of it counts after a crash, and from whomever the rest comes.
//! - One that is cut off, damaged or of a later release is refused with the reason, never loaded in part without a word.
//!
//! Used on any thread: a large snapshot does not hold up the log, but for what the disk does.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Mark;
use super::disk::{Disk, DiskFile};
use super::record::{INDEX_MAX, Reader};
use super::refused::{Damage, Failure, Refused, Unreadable};

const MAGIC: [u8; 8] = *b"incusnap";
/// The format. The frame of the head, magic and version stay where they are in every later one.
const VERSION: u16 = 1;
const FRAME_HEAD_LENGTH: usize = 8;
const END_LENGTH: usize = FRAME_HEAD_LENGTH + 8 + 4;
/// Longer pieces and contexts are refused: a reader holds one at a time.
pub const PIECE_LENGTH_MAX: usize = 1 << 20;
/// Written between two syncs, so that the last one is short.
const UNSYNCED_MAX: u64 = 8 << 20;
const PREFIX: &str = "snapshot-";
const INCOMING: &str = "incoming-";
/// By its ending it goes when the directory is opened again, should its reader be killed.
const COPY: &str = "copy.new";

/// A snapshot that is whole.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// The last entry that is in it.
    pub mark: Mark,
    /// Of its file, in bytes.
    pub length: u64,
    /// Of all checksums in it: two snapshots with the same one are the same.
    pub checksum: u32,
}

impl Snapshot {
    fn name(&self) -> String {
        format!("{PREFIX}{:016x}-{:016x}", self.mark.index, self.mark.term)
    }

    fn incoming_name(&self) -> String {
        let Snapshot { mark, length, checksum } = self;
        format!("{INCOMING}{:016x}-{:016x}-{length:x}-{checksum:08x}", mark.index, mark.term)
    }
}

/// The snapshots of a directory.
#[derive(Debug)]
pub struct Snapshots<D: Disk> {
    disk: Arc<D>,
    latest: Arc<Mutex<Option<Snapshot>>>,
}

impl<D: Disk> Clone for Snapshots<D> {
    fn clone(&self) -> Self {
        Snapshots { disk: Arc::clone(&self.disk), latest: Arc::clone(&self.latest) }
    }
}

impl<D: Disk> Snapshots<D> {
    /// Looks at the newest snapshot: its head, its end and its length. Pieces are checked when they are read.
    pub(super) fn open(disk: Arc<D>) -> Result<Self, Refused> {
        let names = disk.names().map_err(|error| Refused::unusable("the snapshots", "list", &error))?;
        // Hexadecimal digits of one length: the greatest name is the latest.
        let newest = names.iter().filter(|it| it.starts_with(PREFIX) && !it.ends_with(".new")).max();
        let latest = newest.map(|name| examine(&*disk, name)).transpose()?;
        Ok(Snapshots { disk, latest: Arc::new(Mutex::new(latest)) })
    }

    /// The newest that is safe.
    pub fn latest(&self) -> Option<Snapshot> {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Snapshot>> {
        // Nothing that is done with it in hand can stop half-way.
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a snapshot of the state after `mark`. `context` is what must be known before the first piece.
    pub fn begin(&self, mark: Mark, context: &[u8]) -> Result<SnapshotWriter<D>, Failure> {
        self.begin_as(format!("{}.new", Snapshot { mark, length: 0, checksum: 0 }.name()), mark, context)
    }

    /// Begins a copy for somebody to take away ([`SnapshotWriter::detach`]): in the same form, and none of the directory's snapshots.
    pub fn begin_copy(&self, mark: Mark, context: &[u8]) -> Result<SnapshotWriter<D>, Failure> {
        self.begin_as(COPY.to_owned(), mark, context)
    }

    fn begin_as(&self, name: String, mark: Mark, context: &[u8]) -> Result<SnapshotWriter<D>, Failure> {
        let file = self.disk.create(&name, 0).map_err(|error| Failure::of_opening(&error))?;
        let snapshots = self.clone();
        let mut writer = SnapshotWriter { snapshots, file, name, mark, length: 0, checksum: 0, unsynced: 0, committed: false };
        let mut head = Vec::with_capacity(MAGIC.len() + 2 + 16 + context.len());
        head.extend(MAGIC);
        head.extend(VERSION.to_le_bytes());
        head.extend(mark.index.to_le_bytes());
        head.extend(mark.term.to_le_bytes());
        head.extend(context);
        writer.frame(FrameKind::Head, &head)?;
        Ok(writer)
    }

    /// Opens the newest snapshot.
    pub fn read(&self) -> Result<Option<SnapshotReader<D>>, Unreadable> {
        let Some(snapshot) = self.latest() else { return Ok(None) };
        let name = snapshot.name();
        let file = self.disk.open(&name).map_err(|error| Unreadable::Broken { error: error.to_string() })?;
        let mut frames = Frames { file, name, length: snapshot.length, offset: 0, checksum: 0 };
        let (_, context) = frames.head().map_err(|wrong| wrong.unreadable(&frames.name))?;
        Ok(Some(SnapshotReader { snapshot, context, frames }))
    }

    /// Goes on to receive `snapshot` where it was left, also before a crash. What was begun of others is removed.
    pub fn receive(&self, snapshot: Snapshot) -> Result<Incoming<D>, Failure> {
        let broken = |error: io::Error| Failure::of_write(&error);
        let name = snapshot.incoming_name();
        let mut begun = false;
        let unopened = |error: io::Error| Failure::of_opening(&error);
        for other in self.disk.names().map_err(unopened)?.iter().filter(|it| it.starts_with(INCOMING)) {
            if *other == name {
                begun = true;
            } else {
                self.disk.remove(other).map_err(broken)?;
            }
        }
        let file = if begun { self.disk.open(&name) } else { self.disk.create(&name, 0) }.map_err(unopened)?;
        let length = file.length().map_err(broken)?.min(snapshot.length);
        let mut frames = Frames { file, name, length, offset: 0, checksum: 0 };
        // Of what came before a crash, some may be lost: all that is whole from the front counts.
        while let Ok(Some(_)) = frames.next() {}
        let received = frames.offset;
        let Frames { file, name, .. } = frames;
        Ok(Incoming { snapshots: self.clone(), file, name, snapshot, received, unsynced: received })
    }

    /// A snapshot has its name and is synced: it counts, and others do not any more.
    fn settle(&self, snapshot: Snapshot, name: &str) -> Result<(), Failure> {
        let broken = |error: io::Error| Failure::of_write(&error);
        self.disk.rename(name, &snapshot.name()).map_err(broken)?;
        self.disk.sync_names().map_err(|error| Failure::of_sync(&error))?;
        let mut latest = self.lock();
        if latest.is_none_or(|it| it.mark.index <= snapshot.mark.index) {
            *latest = Some(snapshot);
        }
        let kept = latest.map(|it| it.name());
        drop(latest);
        let names = match self.disk.names().map_err(|error| Failure::of_opening(&error)) {
            Ok(names) => names,
            Err(failure) if failure.is_final() => return Err(failure),
            // What is left of older ones goes with the next one.
            Err(_) => return Ok(()),
        };
        for other in names.iter().filter(|it| it.starts_with(PREFIX) && !it.ends_with(".new") && Some(*it) != kept.as_ref()) {
            // If it stays, it goes with the next one.
            let _ = self.disk.remove(other);
        }
        Ok(())
    }
}

/// A snapshot that is being made. Dropped before its commit, it never was.
#[derive(Debug)]
pub struct SnapshotWriter<D: Disk> {
    snapshots: Snapshots<D>,
    file: D::File,
    name: String,
    mark: Mark,
    length: u64,
    checksum: u32,
    unsynced: u64,
    committed: bool,
}

impl<D: Disk> Drop for SnapshotWriter<D> {
    fn drop(&mut self) {
        if !self.committed {
            // Its room may be what others need. If it stays, it goes when the directory is opened again.
            let _ = self.snapshots.disk.remove(&self.name);
        }
    }
}

impl<D: Disk> SnapshotWriter<D> {
    /// Adds a piece.
    pub fn piece(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.frame(FrameKind::Piece, bytes)
    }

    /// Makes it safe, and removes older ones.
    pub fn commit(mut self) -> Result<Snapshot, Failure> {
        self.end()?;
        self.file.sync().map_err(|error| Failure::of_sync(&error))?;
        let snapshot = Snapshot { mark: self.mark, length: self.length, checksum: self.checksum };
        self.snapshots.settle(snapshot, &self.name)?;
        self.committed = true;
        Ok(snapshot)
    }

    /// Makes it a file without a name, whole, that is there for as long as it is read.
    pub fn detach(mut self) -> Result<SnapshotReader<D>, Failure> {
        self.end()?;
        let file = self.snapshots.disk.open(&self.name).map_err(|error| Failure::of_opening(&error))?;
        let broken = |why: Rejected| match why {
            Rejected::Failed(failure) => failure,
            Rejected::Damaged(_) | Rejected::Newer(_) => Failure::Broken { error: why.to_string() },
        };
        SnapshotReader::of(file, &self.name).map_err(broken)
    }

    fn end(&mut self) -> Result<(), Failure> {
        let mut end = self.length.to_le_bytes().to_vec();
        end.extend(self.checksum.to_le_bytes());
        self.frame(FrameKind::End, &end)
    }

    fn frame(&mut self, kind: FrameKind, content: &[u8]) -> Result<(), Failure> {
        if content.len() > PIECE_LENGTH_MAX {
            return Err(Failure::TooLarge { length: content.len(), length_max: PIECE_LENGTH_MAX });
        }
        let kind_and_length = (kind as u32) << 24 | content.len() as u32;
        let checksum = frame_checksum(self.length, kind_and_length, content);
        let mut bytes = Vec::with_capacity(FRAME_HEAD_LENGTH + content.len());
        bytes.extend(checksum.to_le_bytes());
        bytes.extend(kind_and_length.to_le_bytes());
        bytes.extend(content);
        self.file.write_at(&bytes, self.length).map_err(|error| Failure::of_write(&error))?;
        self.length += bytes.len() as u64;
        self.checksum = crc32c::crc32c_append(self.checksum, &checksum.to_le_bytes());
        if self.length - self.unsynced >= UNSYNCED_MAX {
            self.file.sync().map_err(|error| Failure::of_sync(&error))?;
            self.unsynced = self.length;
        }
        Ok(())
    }
}

/// A snapshot that is being read, piece by piece.
#[derive(Debug)]
pub struct SnapshotReader<D: Disk> {
    snapshot: Snapshot,
    context: Vec<u8>,
    frames: Frames<D::File>,
}

impl<D: Disk> SnapshotReader<D> {
    /// A file that a snapshot or a copy was written to, wherever it is now. All of it is read once, and checked.
    pub fn of(file: D::File, name: &str) -> Result<SnapshotReader<D>, Rejected> {
        let length = file.length().map_err(|error| Rejected::Failed(Failure::of_write(&error)))?;
        let mut frames = Frames { file, name: name.to_owned(), length, offset: 0, checksum: 0 };
        let whole = frames.whole().map_err(|wrong| wrong.rejected(name))?;
        (frames.offset, frames.checksum) = (0, 0);
        let (_, context) = frames.head().map_err(|wrong| wrong.rejected(name))?;
        Ok(SnapshotReader { snapshot: whole, context, frames })
    }

    /// Which one.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot
    }

    /// What was given when it was begun.
    pub fn context(&self) -> &[u8] {
        &self.context
    }

    /// The next piece; `None` after the last, and then all of it was whole.
    pub fn piece(&mut self) -> Result<Option<Vec<u8>>, Unreadable> {
        match self.frames.next() {
            Ok(Some((FrameKind::Piece, content))) => Ok(Some(content)),
            Ok(Some((FrameKind::End, _)) | None) => Ok(None),
            Ok(Some((FrameKind::Head, _))) => {
                Err(Unreadable::Damaged(Damage::of(&self.frames.name, self.frames.offset, "it begins twice")))
            }
            Err(wrong) => Err(wrong.unreadable(&self.frames.name)),
        }
    }

    /// Bytes of the file as they are, for another node: from `offset`, at most `length_max` of them; none at the end.
    pub fn bytes(&self, offset: u64, length_max: usize) -> Result<Vec<u8>, Unreadable> {
        let left = usize::try_from(self.snapshot.length.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; left.min(length_max)];
        self.frames.file.read_at(&mut bytes, offset).map_err(|error| Unreadable::Broken { error: error.to_string() })?;
        Ok(bytes)
    }
}

/// Why a snapshot that was received is none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rejected {
    /// It did not come whole; what came of it was removed, so ask for it again from the beginning.
    Damaged(Damage),
    /// It was written by a later release, of this format: upgrade this node.
    Newer(u16),
    /// It could not be written.
    Failed(Failure),
}

impl std::fmt::Display for Rejected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Rejected::Damaged(damage) => write!(f, "{damage}: ask for the snapshot again"),
            Rejected::Newer(version) => {
                write!(f, "the snapshot was written by a later release (format {version}): upgrade this node")
            }
            Rejected::Failed(failure) => failure.fmt(f),
        }
    }
}

impl std::error::Error for Rejected {}

/// A snapshot that another node is sending.
#[derive(Debug)]
pub struct Incoming<D: Disk> {
    snapshots: Snapshots<D>,
    file: D::File,
    name: String,
    snapshot: Snapshot,
    received: u64,
    unsynced: u64,
}

impl<D: Disk> Incoming<D> {
    /// Where the next bytes belong: ask for them from here.
    pub fn offset(&self) -> u64 {
        self.received
    }

    /// Whether all has come.
    pub fn is_complete(&self) -> bool {
        self.received == self.snapshot.length
    }

    /// Takes bytes that belong at `offset`. What has come already, and what has a gap before it, is left out. Returns [`Incoming::offset`].
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<u64, Failure> {
        let known = self.received.checked_sub(offset).and_then(|it| usize::try_from(it).ok());
        let Some(new) = known.and_then(|it| bytes.get(it..)) else { return Ok(self.received) };
        let room = usize::try_from(self.snapshot.length - self.received).unwrap_or(usize::MAX);
        let new = &new[..new.len().min(room)];
        self.file.write_at(new, self.received).map_err(|error| Failure::of_write(&error))?;
        self.received += new.len() as u64;
        if self.received - self.unsynced >= UNSYNCED_MAX {
            self.file.sync().map_err(|error| Failure::of_sync(&error))?;
            self.unsynced = self.received;
        }
        Ok(self.received)
    }

    /// Checks that all has come as it was announced.
    pub fn whole(self) -> Result<Arrived<D>, Rejected> {
        let Incoming { snapshots, file, name, snapshot, received, .. } = self;
        file.sync().map_err(|error| Rejected::Failed(Failure::of_sync(&error)))?;
        let mut frames = Frames { file, name, length: received, offset: 0, checksum: 0 };
        match frames.check(snapshot) {
            Ok(()) => {}
            Err(wrong) => {
                let removed = snapshots.disk.remove(&frames.name).map_err(|error| Failure::of_write(&error));
                removed.map_err(Rejected::Failed)?;
                return Err(wrong.rejected(&frames.name));
            }
        }
        (frames.offset, frames.checksum) = (0, 0);
        let (_, context) = frames.head().map_err(|wrong| wrong.rejected(&frames.name))?;
        Ok(Arrived { snapshots, reader: SnapshotReader { snapshot, context, frames } })
    }
}

/// A snapshot that has come whole, to be read before it takes another's place. Dropped before its commit, it is still as it came.
#[derive(Debug)]
pub struct Arrived<D: Disk> {
    snapshots: Snapshots<D>,
    reader: SnapshotReader<D>,
}

impl<D: Disk> Arrived<D> {
    /// What is in it.
    pub fn reader(&mut self) -> &mut SnapshotReader<D> {
        &mut self.reader
    }

    /// Makes it the newest snapshot, safe. Older ones are removed.
    pub fn commit(self) -> Result<Snapshot, Failure> {
        self.snapshots.settle(self.reader.snapshot, &self.reader.frames.name)?;
        Ok(self.reader.snapshot)
    }

    /// It is of no use.
    pub fn discard(self) -> Result<(), Failure> {
        self.snapshots.disk.remove(&self.reader.frames.name).map_err(|error| Failure::of_write(&error))
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum FrameKind {
    Head = 1,
    Piece = 2,
    End = 3,
}

/// What is wrong with a snapshot.
enum Wrong {
    Damaged(u64, &'static str),
    Newer(u16),
    Unread(io::Error),
}

impl Wrong {
    fn unreadable(self, name: &str) -> Unreadable {
        match self {
            Wrong::Damaged(offset, what) => Unreadable::Damaged(Damage::of(name, offset, what)),
            Wrong::Newer(version) => Unreadable::Damaged(Damage::of(name, 0, format!("of a later release: format {version}"))),
            Wrong::Unread(error) => Unreadable::Broken { error: error.to_string() },
        }
    }

    fn refused(self, name: &str) -> Refused {
        match self {
            Wrong::Damaged(offset, what) => Refused::damaged(name, offset, what),
            Wrong::Newer(version) => Refused::Newer { file: name.to_owned(), version },
            Wrong::Unread(error) => Refused::unusable(name, "read", &error),
        }
    }

    fn rejected(self, name: &str) -> Rejected {
        match self {
            Wrong::Damaged(offset, what) => Rejected::Damaged(Damage::of(name, offset, what)),
            Wrong::Newer(version) => Rejected::Newer(version),
            Wrong::Unread(error) => Rejected::Failed(Failure::of_write(&error)),
        }
    }
}

fn frame_checksum(offset: u64, kind_and_length: u32, content: &[u8]) -> u32 {
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&offset.to_le_bytes()), &kind_and_length.to_le_bytes());
    crc32c::crc32c_append(checksum, content)
}

/// The frames of a file, one after the other.
#[derive(Debug)]
struct Frames<F> {
    file: F,
    name: String,
    /// Up to where there are any.
    length: u64,
    offset: u64,
    /// Of the frames so far.
    checksum: u32,
}

impl<F: DiskFile> Frames<F> {
    /// The next frame, if it is whole; `None` at the end of the file.
    fn next(&mut self) -> Result<Option<(FrameKind, Vec<u8>)>, Wrong> {
        let left = self.length - self.offset;
        if left == 0 {
            return Ok(None);
        }
        let cut_off = Wrong::Damaged(self.length, "it is cut off");
        if left < FRAME_HEAD_LENGTH as u64 {
            return Err(cut_off);
        }
        let mut head = [0; FRAME_HEAD_LENGTH];
        self.file.read_at(&mut head, self.offset).map_err(Wrong::Unread)?;
        let mut reader = Reader(&head);
        let (Some(checksum), Some(kind_and_length)) = (reader.u32(), reader.u32()) else { return Err(cut_off) };
        let length = (kind_and_length & 0xFF_FFFF) as usize;
        let kind = match kind_and_length >> 24 {
            1 => FrameKind::Head,
            2 => FrameKind::Piece,
            3 => FrameKind::End,
            _ => return Err(Wrong::Damaged(self.offset, "a piece cannot be read")),
        };
        if length > PIECE_LENGTH_MAX {
            return Err(Wrong::Damaged(self.offset, "a piece is longer than any"));
        }
        if ((FRAME_HEAD_LENGTH + length) as u64) > left {
            return Err(cut_off);
        }
        let mut content = vec![0; length];
        self.file.read_at(&mut content, self.offset + FRAME_HEAD_LENGTH as u64).map_err(Wrong::Unread)?;
        if frame_checksum(self.offset, kind_and_length, &content) != checksum {
            return Err(Wrong::Damaged(self.offset, "the checksum of a piece is wrong"));
        }
        if kind == FrameKind::End && content[..] != [&self.offset.to_le_bytes()[..], &self.checksum.to_le_bytes()].concat() {
            return Err(Wrong::Damaged(self.offset, "it is not put together right"));
        }
        self.offset += (FRAME_HEAD_LENGTH + length) as u64;
        self.checksum = crc32c::crc32c_append(self.checksum, &checksum.to_le_bytes());
        Ok(Some((kind, content)))
    }

    /// The first frame: the mark and the context.
    fn head(&mut self) -> Result<(Mark, Vec<u8>), Wrong> {
        let no_head = || Wrong::Damaged(0, "its head cannot be read");
        let Some((FrameKind::Head, content)) = self.next()? else { return Err(no_head()) };
        let mut reader = Reader(&content);
        let version = reader.take(MAGIC.len()).filter(|it| *it == MAGIC).and_then(|_| reader.take(2)).ok_or_else(no_head)?;
        let version = u16::from_le_bytes([version[0], version[1]]);
        if version > VERSION {
            return Err(Wrong::Newer(version));
        }
        let mark = reader.u64().zip(reader.u64()).map(|(index, term)| Mark { index, term });
        let mark = mark.filter(|it| it.index <= INDEX_MAX).ok_or_else(no_head)?;
        Ok((mark, reader.0.to_vec()))
    }

    /// Whether it is `snapshot`, and whole.
    fn check(&mut self, snapshot: Snapshot) -> Result<(), Wrong> {
        if self.whole()? == snapshot { Ok(()) } else { Err(Wrong::Damaged(0, "it is another snapshot than was announced")) }
    }

    /// Which one it is, if it is whole.
    fn whole(&mut self) -> Result<Snapshot, Wrong> {
        let (mark, _) = self.head()?;
        while let Some((kind, _)) = self.next()? {
            match kind {
                FrameKind::Head | FrameKind::Piece => {}
                FrameKind::End if self.offset < self.length => {
                    return Err(Wrong::Damaged(self.offset, "there is more behind its end, which does not belong to it"));
                }
                FrameKind::End => return Ok(Snapshot { mark, length: self.offset, checksum: self.checksum }),
            }
        }
        Err(Wrong::Damaged(self.length, "it is cut off"))
    }
}

/// Looks at the head and the end of a snapshot.
fn examine(disk: &impl Disk, name: &str) -> Result<Snapshot, Refused> {
    let file = disk.open(name).map_err(|error| Refused::unusable(name, "read", &error))?;
    let length = file.length().map_err(|error| Refused::unusable(name, "read", &error))?;
    let mut frames = Frames { file, name: name.to_owned(), length, offset: 0, checksum: 0 };
    let (mark, _) = frames.head().map_err(|wrong| wrong.refused(name))?;
    let cut_off = || Refused::damaged(name, length, "it is cut off");
    let end = length.checked_sub(END_LENGTH as u64).filter(|it| *it >= frames.offset).ok_or_else(cut_off)?;
    let mut bytes = [0; END_LENGTH];
    frames.file.read_at(&mut bytes, end).map_err(|error| Refused::unusable(name, "read", &error))?;
    let mut reader = Reader(&bytes);
    let found = (|| {
        let (checksum, kind_and_length) = (reader.u32()?, reader.u32()?);
        let whole = frame_checksum(end, kind_and_length, reader.0) == checksum && kind_and_length >> 24 == FrameKind::End as u32;
        let (before, checksum_before) = (reader.u64()?, reader.u32()?);
        (whole && before == end).then_some(crc32c::crc32c_append(checksum_before, &checksum.to_le_bytes()))
    })();
    let snapshot = Snapshot { mark, length, checksum: found.ok_or_else(cut_off)? };
    if snapshot.name() == name { Ok(snapshot) } else { Err(Refused::damaged(name, 0, "it has another one's name")) }
}
