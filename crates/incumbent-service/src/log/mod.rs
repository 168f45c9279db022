//! What a replica must not forget, on its disk: entries, term, vote and commit in one log, and snapshots of what the entries have made.
//!
//! ```text
//!   directory/lock          held for as long as a process uses the directory                            (folder.rs)
//!             identity      whose it is, and how often it was opened                                    (identity.rs)
//!             known         the directories and generations of the other nodes                            (known.rs)
//!             log-00000001  segments: preallocated, filled with zeros, used again when compacted        (record.rs, segments.rs)
//!             spare-…       segments that are not needed any more, until they are the next                (segments.rs)
//!             snapshot-…    the state after an entry                                                    (snapshot.rs)
//!             incoming-…    one that another node is sending                                            (snapshot.rs)
//! ```
//!
//! - [`Log::write`] encodes all it is given into one buffer and writes it at once; [`Log::sync`] makes all that was written since the last one safe, with one `fdatasync`.
//! - What was synced is there after any crash, exactly; of what was not, a part from the front may be. A write that was torn is cut; damage to what was
//!   confirmed is never cut but [`Refused`], with what is needed to fetch it from the others (recovery.rs).
//! - A directory that cannot be right (damaged, another node's, another cluster's, of a later release, in use) is refused with what to do; none of it is changed.
//! - After a failed sync nothing is written any more: see [`Failure::Broken`]. A full disk leaves all that is there readable, and a later write may succeed.
//!
//! Left out: threads. All of it blocks as long as the disk does; [`Reader`] and [`Snapshots`] may be used on other threads than the log.

mod contents;
mod direct;
mod disk;
mod folder;
mod identity;
mod known;
mod reader;
mod record;
mod recovery;
mod refused;
mod segments;
pub mod sim;
mod snapshot;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

use incumbent_protocol::protocol::NodeId;

use self::contents::{Change, Slot};
pub use self::disk::{Disk, DiskFile};
pub use self::folder::{Folder, FolderFile};
pub use self::identity::Identity;
use self::identity::Owner;
pub use self::known::Known;
pub use self::reader::Reader;
use self::reader::Shared;
use self::record::{HEAD_LENGTH, Kind, Place, RECORD_HEAD_LENGTH, RecordHead, SegmentHead, encode_vote, record_length};
pub use self::refused::{Damage, Failure, Refused, Unreadable};
use self::segments::{Segment, Segments};
pub use self::snapshot::{Arrived, Incoming, PIECE_LENGTH_MAX, Rejected, Snapshot, SnapshotReader, SnapshotWriter, Snapshots};

/// Who wrote a directory: drawn when it was made, and never again. The same as that of a peer's archive.
pub type DirectoryId = [u8; 16];

/// An entry by its index and term, without its content.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Mark {
    /// Counts entries from 1; 0 is before the first.
    pub index: u64,
    /// In which it was proposed.
    pub term: u64,
}

/// What Raft calls the hard state.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct HardState {
    /// The latest term that the node has heard of.
    pub term: u64,
    /// Whom it voted for in that term.
    pub vote: Option<NodeId>,
    /// Up to where entries were known to be committed; may be old.
    pub commit: u64,
}

/// An entry of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Where it stands.
    pub index: u64,
    /// In which it was proposed.
    pub term: u64,
    /// What it says: nothing that the log would look at.
    pub payload: Vec<u8>,
}

/// What is written to the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Append {
    /// An entry: behind the last one, or in place of one that is there. That one and all behind it are gone then.
    Entry(Entry),
    /// Entries from this index on are gone.
    Truncate {
        /// The first of them.
        from: u64,
    },
    /// Term, vote and commit.
    State(HardState),
    /// Entries up to this one are in a snapshot that is safe, and need not be kept. The entry is in the log.
    Compact(Mark),
    /// All entries are gone: the log begins behind this one, which a snapshot from another node ends with, and which is safe.
    Restart(Mark),
}

/// How a log is kept.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Options {
    segment_length: u32,
}

impl Options {
    /// Small enough to be filled with zeros while nobody waits and to be searched at every start, large enough that a change of segments is rare.
    const SEGMENT_LENGTH: u32 = 8 << 20;
    const SEGMENT_LENGTH_MIN: u32 = 4096;
    const SEGMENT_LENGTH_MAX: u32 = 1 << 30;

    /// Segments of about this many bytes. No entry can be larger.
    pub fn segments_of(length: u32) -> Options {
        let length = length.clamp(Self::SEGMENT_LENGTH_MIN, Self::SEGMENT_LENGTH_MAX);
        Options { segment_length: length.next_multiple_of(Self::SEGMENT_LENGTH_MIN) }
    }
}

impl Default for Options {
    fn default() -> Self {
        Options::segments_of(Self::SEGMENT_LENGTH)
    }
}

/// What a directory held when it was opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// Term, vote and commit.
    pub state: HardState,
    /// The entry before the first one.
    pub base: Mark,
    /// The index of the last entry; the base's if there is none.
    pub last: u64,
    /// The newest snapshot.
    pub snapshot: Option<Snapshot>,
    /// Who wrote the directory.
    pub directory: DirectoryId,
    /// How often it was opened, this time included. The others remember it, and refuse a directory that was opened less often than they know.
    pub generation: u64,
    /// The others, as [`Log::remember`] was last told.
    pub known: Vec<Known>,
}

/// A log, in use by this process.
#[derive(Debug)]
pub struct Log<D: Disk> {
    shared: Arc<Shared<D>>,
    segments: Segments<D>,
    snapshots: Snapshots<D>,
    /// Where the next record goes, in the segment that is in use.
    tail: u32,
    /// Up to where all is safe.
    synced: Place,
    /// Whether the end of the log says so.
    sealed: bool,
    /// Segments that were written to since the last sync.
    unsynced: Vec<Arc<D::File>>,
    /// Rises with every opening and every failed write.
    life: u64,
    /// Why nothing is written any more.
    broken: Option<Failure>,
    buffer: Vec<u8>,
}

/// A batch is short if a segment has room for this many of them.
const UNDIVIDED: usize = 16;

/// Lives for failed writes between two openings.
const LIVES_PER_GENERATION: u64 = 1 << 16;

impl<D: Disk> Log<D> {
    /// Opens the log in the directory of `disk`, or makes it, for the node that `identity` says. It counts as opened once more before anything is told of it.
    pub fn open(disk: D, identity: &Identity, options: Options) -> Result<(Log<D>, Recovered), Refused> {
        let disk = Arc::new(disk);
        let mut owner = Owner::read(&*disk, identity)?;
        if owner.generation == 0 {
            segments::make_first(&*disk, owner.directory, options)
                .map_err(|error| Refused::unusable("the log", "make", &error))?;
        }
        // A process that was killed may have given names that are not safe yet, and from here on we build on them.
        disk.sync_names().map_err(|error| Refused::unusable("the directory", "sync", &error))?;
        let known = known::read(&*disk, owner.directory)?;
        let snapshots = Snapshots::open(Arc::clone(&disk))?;
        let found = recovery::recover(&*disk, owner.directory, options)?;
        let (tail, contents) = (found.tail, found.contents);
        let snapshot = snapshots.latest();
        let base = contents.base().index;
        if snapshot.map_or(0, |it| it.mark.index) < base {
            return Err(Refused::Gone { what: format!("the snapshot of entry {base}, with which the log begins,") });
        }
        owner.count_opening(&*disk)?;
        for name in &found.stray {
            match disk.remove(name) {
                // The identity was just written under such a name.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Refused::unusable(name, "remove", &error)),
                Ok(()) | Err(_) => {}
            }
        }
        let recovered = Recovered {
            state: contents.state(),
            base: contents.base(),
            last: contents.last(),
            snapshot,
            directory: owner.directory,
            generation: owner.generation,
            known,
        };
        let first_needed = contents.first_sequence().unwrap_or(tail.sequence());
        let shared = Arc::new(Shared::new(disk, owner.directory, contents, found.files));
        let segments = Segments::new(Arc::clone(&shared), options, tail.sequence(), first_needed, found.ahead)
            .map_err(|error| Refused::unusable("the log", "use", &error))?;
        let mut log = Log {
            shared,
            segments,
            snapshots,
            tail: tail.offset(),
            synced: tail,
            sealed: false,
            unsynced: Vec::new(),
            life: owner.generation * LIVES_PER_GENERATION,
            broken: None,
            buffer: Vec::new(),
        };
        log.seal();
        log.catch_up_with_snapshot(recovered)
    }

    /// The node may have ended after a snapshot from another node was safe, and before the log began anew behind it.
    fn catch_up_with_snapshot(mut self, mut recovered: Recovered) -> Result<(Log<D>, Recovered), Refused> {
        if let Some(Snapshot { mark, .. }) = recovered.snapshot
            && recovered.base.index < mark.index
            && self.reader().term(mark.index) != Ok(mark.term)
        {
            let written = self.write(&[Append::Restart(mark)]).and_then(|()| self.sync());
            written.map_err(|failure| Refused::Unusable {
                path: "the log".to_owned(),
                what: "write",
                error: failure.to_string(),
            })?;
            (recovered.base, recovered.last) = (mark, mark.index);
        }
        Ok((self, recovered))
    }

    /// The snapshots of the directory, for any thread.
    pub fn snapshots(&self) -> Snapshots<D> {
        self.snapshots.clone()
    }

    /// Reads the log, on any thread.
    pub fn reader(&self) -> Reader<D> {
        Reader { shared: Arc::clone(&self.shared) }
    }

    /// The longest payload that an entry can have.
    pub fn payload_length_max(&self) -> usize {
        let room = self.segments.options().segment_length as usize - HEAD_LENGTH - RECORD_HEAD_LENGTH;
        room.min(record::CONTENT_LENGTH_MAX)
    }

    /// Writes all of `appends`, in this order, or none of them. They can be read at once, and are safe after the next [`Log::sync`].
    ///
    /// Panics if they do not follow from what is there: an entry with a gap before it, or one that is in the snapshot.
    pub fn write(&mut self, appends: &[Append]) -> Result<(), Failure> {
        self.check_whole()?;
        let plan = self.encode(appends)?;
        for (number, offset, from, to) in &plan.chunks {
            let file = Arc::clone(&self.segments.upcoming(*number).file);
            if let Err(error) = file.append_at(&self.buffer[*from..*to], (*offset).into()) {
                return Err(self.write_failed(&error));
            }
            if !self.unsynced.iter().any(|it| Arc::ptr_eq(it, &file)) {
                self.unsynced.push(file);
            }
        }
        self.segments.advance(plan.segments_begun);
        self.tail = plan.tail;
        let mut index = self.shared.index();
        for change in plan.changes {
            index.contents.apply(change).expect("checked when it was encoded");
        }
        Ok(())
    }

    /// Makes all that was written safe.
    pub fn sync(&mut self) -> Result<(), Failure> {
        self.check_whole()?;
        if self.unsynced.is_empty() {
            return Ok(());
        }
        for file in self.unsynced.drain(..) {
            if let Err(error) = file.sync() {
                let failure = Failure::of_sync(&error);
                self.broken = Some(failure.clone());
                return Err(failure);
            }
        }
        self.synced = Place::new(self.segments.current().sequence, self.tail);
        let first_needed = self.shared.index().contents.first_sequence();
        self.segments.release_before(first_needed.unwrap_or(self.segments.current().sequence));
        self.sealed = false;
        Ok(())
    }

    /// Keeps directories and generations of the other nodes. Slow, as it is three syncs: do it while nothing waits.
    pub fn remember(&mut self, known: &[Known]) -> Result<(), Failure> {
        self.check_whole()?;
        known::write(&*self.shared.disk, self.shared.directory, known).inspect_err(|failure| {
            self.broken = Some(failure.clone()).filter(Failure::is_final);
        })
    }

    /// Does a small piece of what would otherwise delay a later write: call it while nothing waits. True if there is more to do.
    pub fn maintain(&mut self) -> Result<bool, Failure> {
        self.check_whole()?;
        self.segments.maintain().inspect_err(|failure| {
            if failure.is_final() {
                self.broken = Some(failure.clone());
            }
        })
    }

    /// Whether the end of the log is to say that all of it is safe: call [`Log::rest`] when nothing has come for a while.
    pub fn is_restless(&self) -> bool {
        !self.sealed && self.broken.is_none() && self.synced == Place::new(self.segments.current().sequence, self.tail)
    }

    /// Says so, at the price of a write.
    pub fn rest(&mut self) -> Result<(), Failure> {
        if self.is_restless() {
            self.seal();
        }
        self.check_whole()
    }

    fn check_whole(&self) -> Result<(), Failure> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    fn write_failed(&mut self, error: &io::Error) -> Failure {
        let mut failure = Failure::of_write(error);
        self.life += 1;
        if self.life.is_multiple_of(LIVES_PER_GENERATION) {
            failure = Failure::Broken { error: format!("{LIVES_PER_GENERATION} writes have failed, the last with: {error}") };
        }
        if failure.is_final() {
            self.broken = Some(failure.clone());
        }
        failure
    }

    /// Says at the end of the log that all of it is safe, so that damage to the last batch is not taken for a torn write. Nothing depends on it, so it is not synced, and whoever
    /// has more to write says it with that.
    fn seal(&mut self) {
        self.sealed = true;
        let segment = self.segments.current();
        if self.tail as usize + RECORD_HEAD_LENGTH > segment.length as usize {
            return;
        }
        let head = RecordHead { kind: Kind::Seal, life: self.life, synced: self.synced, index: 0, term: 0 };
        self.buffer.clear();
        segment.codec.encode(&mut self.buffer, self.tail, &head, &[]);
        let written = segment.file.append_at(&self.buffer, self.tail.into());
        if let Err(failure) = written.map_err(|error| Failure::of_write(&error))
            && failure.is_final()
        {
            self.broken = Some(failure);
        }
    }

    /// Turns `appends` into the bytes of one write for each segment that they touch, and makes sure that the segments are there.
    fn encode(&mut self, appends: &[Append]) -> Result<Plan, Failure> {
        let length_max = self.payload_length_max();
        self.buffer.clear();
        let mut summary = self.shared.index().contents.summary();
        let mut plan =
            Plan { chunks: Vec::new(), segments_begun: 0, tail: self.tail, changes: Vec::with_capacity(appends.len()) };
        let (mut chunk_at, mut chunk_from) = (self.tail, 0);
        // A short batch is not divided: the end of a segment is worth less than a second write and a second sync.
        let all: usize = appends.iter().map(|it| record_length(Record::of(it).content().len())).sum();
        let mut undivided = if all <= self.segments.options().segment_length as usize / UNDIVIDED { all } else { 0 };
        for append in appends {
            let record = Record::of(append);
            let length = record.content().len();
            if length > length_max {
                return Err(Failure::TooLarge { length, length_max });
            }
            self.check(append, &summary);
            let needed = record_length(length).max(std::mem::take(&mut undivided));
            // More than once if a segment was made when they were to be smaller.
            while plan.tail as usize + needed > self.segments.upcoming(plan.segments_begun).length as usize {
                let segment = self.segments.upcoming(plan.segments_begun);
                let follows = Place::new(segment.sequence, plan.tail);
                plan.chunk(chunk_at, chunk_from, self.buffer.len());
                plan.segments_begun += 1;
                let made = self.segments.provide(plan.segments_begun);
                if let Err(failure) = made {
                    self.broken = Some(failure.clone()).filter(Failure::is_final);
                    return Err(failure);
                }
                chunk_from = self.buffer.len();
                (chunk_at, plan.tail) = (0, HEAD_LENGTH as u32);
                let Segment { sequence, length, .. } = *self.segments.upcoming(plan.segments_begun);
                let head = SegmentHead { sequence, life: self.life, synced: self.synced, follows, summary, length };
                self.buffer.extend(head.encode(self.shared.directory));
            }
            let segment = self.segments.upcoming(plan.segments_begun);
            let head = RecordHead {
                kind: record.kind,
                life: self.life,
                synced: self.synced,
                index: record.mark.index,
                term: record.mark.term,
            };
            segment.codec.encode(&mut self.buffer, plan.tail, &head, record.content());
            let change = record.change(Place::new(segment.sequence, plan.tail));
            summary.follow(&change);
            plan.changes.push(change);
            plan.tail += record_length(length) as u32;
        }
        plan.chunk(chunk_at, chunk_from, self.buffer.len());
        Ok(plan)
    }

    /// Whether `append` follows from what is there, or was written before it.
    fn check(&self, append: &Append, summary: &record::Summary) {
        let (base, last) = (summary.base.index, summary.last);
        match append {
            Append::Entry(entry) => {
                assert!(base < entry.index && entry.index <= last + 1, "entry {} in a log of {base}+1..={last}", entry.index);
            }
            Append::Truncate { from } => {
                assert!(base < *from && *from <= last + 1, "truncated from {from} in a log of {base}+1..={last}");
            }
            Append::Compact(mark) => {
                assert!(base <= mark.index && mark.index <= last, "compacted to {} in a log of {base}+1..={last}", mark.index);
                self.check_snapshot(*mark);
            }
            Append::Restart(mark) => {
                assert!(base <= mark.index, "restarted at {} in a log of {base}+1..={last}", mark.index);
                self.check_snapshot(*mark);
            }
            Append::State(_) => {}
        }
    }

    /// Entries that are in no snapshot must not be given up.
    fn check_snapshot(&self, mark: Mark) {
        let snapshot = self.snapshots.latest().map_or(0, |it| it.mark.index);
        assert!(mark.index <= snapshot, "entries up to {} put away, with a snapshot of {snapshot}", mark.index);
    }
}

/// What a write does, segment by segment.
struct Plan {
    /// Which segment, counted from the one in use; where in it; from where to where in the buffer.
    chunks: Vec<(usize, u32, usize, usize)>,
    segments_begun: usize,
    tail: u32,
    changes: Vec<Change>,
}

impl Plan {
    fn chunk(&mut self, at: u32, from: usize, to: usize) {
        if from < to {
            self.chunks.push((self.segments_begun, at, from, to));
        }
    }
}

/// An append as a record.
struct Record<'a> {
    kind: Kind,
    mark: Mark,
    payload: &'a [u8],
    state: Option<(HardState, [u8; 8])>,
}

impl<'a> Record<'a> {
    fn of(append: &'a Append) -> Self {
        let plain = |kind, mark| Record { kind, mark, payload: &[], state: None };
        match append {
            Append::Entry(Entry { index, term, payload }) => {
                Record { payload, ..plain(Kind::Entry, Mark { index: *index, term: *term }) }
            }
            Append::Truncate { from } => plain(Kind::Truncate, Mark { index: *from, term: 0 }),
            Append::Compact(mark) => plain(Kind::Compact, *mark),
            Append::Restart(mark) => plain(Kind::Restart, *mark),
            Append::State(state) => {
                let mark = Mark { index: state.commit, term: state.term };
                Record { state: Some((*state, encode_vote(state.vote))), ..plain(Kind::State, mark) }
            }
        }
    }

    fn content(&self) -> &[u8] {
        self.state.as_ref().map_or(self.payload, |(_, vote)| vote)
    }

    fn change(&self, place: Place) -> Change {
        let Mark { index, term } = self.mark;
        match (self.kind, self.state) {
            (_, Some((state, _))) => Change::State(state),
            (Kind::Truncate, None) => Change::Truncate { from: index },
            (Kind::Compact, None) => Change::Compact(self.mark),
            (Kind::Restart, None) => Change::Restart(self.mark),
            (Kind::Entry | Kind::State | Kind::Seal, None) => {
                let length = u32::try_from(self.payload.len()).expect("checked against the longest");
                Change::Entry { index, slot: Slot { term, place, length } }
            }
        }
    }
}

/// Whether there is nothing in a directory yet that says whose it is.
pub(crate) fn is_nobodys(disk: &impl Disk) -> Result<bool, Refused> {
    Owner::is_there(disk).map(|it| !it)
}

const SEGMENT_PREFIX: &str = "log-";

fn segment_name(sequence: u32) -> String {
    format!("{SEGMENT_PREFIX}{sequence:08x}")
}

fn segment_sequence(name: &str) -> Option<u32> {
    let digits = name.strip_prefix(SEGMENT_PREFIX)?;
    u32::from_str_radix(digits, 16).ok().filter(|it| segment_name(*it) == name)
}
