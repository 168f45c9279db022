//! The files of a log: which one is in use, which are ready to be next, which can be used again.
//!
//! A segment that is written to has all its blocks: they were filled with zeros, or with records that nobody needs any more, and synced, and so was its name. So a commit never
//! waits for the file system to find room, and to begin the next segment costs no more than to go on with this one.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::disk::{Disk, DiskFile};
use super::reader::Shared;
use super::record::{Codec, Place, SegmentHead, Summary};
use super::refused::Failure;
use super::{DirectoryId, HEAD_LENGTH, Options, segment_name};

/// Segments that are kept to be used again: about as many as are filled between two snapshots of a busy log.
const SPARE_MAX: usize = 8;
/// How their names begin.
pub(super) const SPARE: &str = "spare-";
/// Zeros that are written at one time, so that a commit never waits long for them.
const ZEROS: usize = 256 << 10;
/// The first segment is small: a node that is new has to wait for it, and is to be in office soon.
const FIRST_LENGTH: u32 = 512 << 10;
/// The next segment while it is being made.
const MAKING: &str = "next.new";

/// A segment that can be written to.
#[derive(Debug)]
pub(super) struct Segment<F> {
    pub(super) sequence: u32,
    pub(super) file: Arc<F>,
    pub(super) length: u32,
    pub(super) codec: Codec,
}

#[derive(Debug)]
pub(super) struct Segments<D: Disk> {
    shared: Arc<Shared<D>>,
    options: Options,
    /// The one in use, then those that come next.
    upcoming: VecDeque<Segment<D::File>>,
    making: Option<Making<D::File>>,
    /// Names of segments that were taken out of the log.
    spares: Vec<String>,
    /// Segments before this one hold nothing that is needed, and it is safe that they do not.
    first_needed: u32,
}

#[derive(Debug)]
struct Making<F> {
    file: F,
    zeroed: u64,
}

impl<D: Disk> Segments<D> {
    pub(super) fn new(
        shared: Arc<Shared<D>>,
        options: Options,
        current: u32,
        first_needed: u32,
        ahead: Vec<(u32, Arc<D::File>)>,
    ) -> io::Result<Self> {
        let file = shared.index().files.get(&current).map(Arc::clone).ok_or(io::ErrorKind::NotFound)?;
        let mut upcoming = VecDeque::new();
        for (sequence, file) in [(current, file)].into_iter().chain(ahead) {
            upcoming.push_back(Segment::open(sequence, file, shared.directory)?);
        }
        let spares = shared.disk.names()?.into_iter().filter(|it| it.starts_with(SPARE)).collect();
        Ok(Segments { shared, options, upcoming, making: None, spares, first_needed })
    }

    pub(super) fn options(&self) -> Options {
        self.options
    }

    /// The segment in use.
    pub(super) fn current(&self) -> &Segment<D::File> {
        &self.upcoming[0]
    }

    /// The segment in use (0) or one that comes after it and was provided.
    pub(super) fn upcoming(&self, number: usize) -> &Segment<D::File> {
        &self.upcoming[number]
    }

    /// Makes sure that there are `count` segments after the one in use.
    pub(super) fn provide(&mut self, count: usize) -> Result<(), Failure> {
        while self.upcoming.len() <= count {
            self.prepare()?;
        }
        Ok(())
    }

    /// Goes on to a later segment.
    pub(super) fn advance(&mut self, count: usize) {
        let mut index = self.shared.index();
        for segment in self.upcoming.iter().take(count + 1).skip(1) {
            index.files.insert(segment.sequence, Arc::clone(&segment.file));
        }
        drop(index);
        self.upcoming.drain(..count);
    }

    /// What is before this segment is not needed.
    pub(super) fn release_before(&mut self, sequence: u32) {
        self.first_needed = sequence;
    }

    /// A small piece of work; true if there is more.
    pub(super) fn maintain(&mut self) -> Result<bool, Failure> {
        if self.upcoming.len() < 2 {
            self.prepare()?;
        } else if let Some(sequence) = self.unneeded() {
            self.set_aside(sequence)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// The oldest segment that is not needed.
    fn unneeded(&self) -> Option<u32> {
        self.shared.index().files.range(..self.first_needed).next().map(|it| *it.0)
    }

    /// Takes a segment out of the log. Should the new name be lost in a crash, the segment is what it was: the oldest, and not needed.
    fn set_aside(&mut self, sequence: u32) -> Result<(), Failure> {
        let (disk, name) = (&self.shared.disk, segment_name(sequence));
        if self.spares.len() < SPARE_MAX {
            let spare = format!("{SPARE}{sequence:08x}");
            disk.rename(&name, &spare).map_err(|error| Failure::of_write(&error))?;
            self.spares.push(spare);
        } else {
            disk.remove(&name).map_err(|error| Failure::of_write(&error))?;
        }
        self.shared.index().files.remove(&sequence);
        Ok(())
    }

    /// Goes one step towards a further segment.
    fn prepare(&mut self) -> Result<(), Failure> {
        let sequence = self.upcoming[self.upcoming.len() - 1].sequence + 1;
        if let Some(making) = self.making.take() {
            return self.go_on_making(making, sequence).inspect_err(|_| {
                // Half of a segment is of no use, and its room may be what others need. If it stays, the next attempt begins with it.
                let _ = self.shared.disk.remove(MAKING);
            });
        }
        if let Some(spare) = self.spares.last().cloned() {
            // Not given up if it cannot be opened now: it is room that is there.
            let file = self.shared.disk.open(&spare).map_err(|error| Failure::of_opening(&error))?;
            self.spares.pop();
            return self.use_again(&spare, file, sequence);
        }
        if let Some(oldest) = self.unneeded() {
            return self.set_aside(oldest);
        }
        let length = self.options.segment_length.into();
        let file = self.shared.disk.create(MAKING, length).map_err(|error| Failure::of_opening(&error))?;
        self.making = Some(Making { file, zeroed: 0 });
        Ok(())
    }

    /// What a reader still looks for in it is not there any more, and it finds that out by the checksum.
    fn use_again(&mut self, spare: &str, file: D::File, sequence: u32) -> Result<(), Failure> {
        let (disk, failed) = (&self.shared.disk, |error: io::Error| Failure::of_write(&error));
        let segment = Segment::open(sequence, Arc::new(file), self.shared.directory).map_err(failed)?;
        if segment.length != self.options.segment_length {
            return disk.remove(spare).map_err(failed);
        }
        disk.rename(spare, &segment_name(sequence)).map_err(failed)?;
        disk.sync_names().map_err(|error| Failure::of_sync(&error))?;
        self.upcoming.push_back(segment);
        Ok(())
    }

    fn go_on_making(&mut self, mut making: Making<D::File>, sequence: u32) -> Result<(), Failure> {
        let (disk, length) = (&self.shared.disk, u64::from(self.options.segment_length));
        if making.zeroed < length {
            let zeros = vec![0; ZEROS.min((length - making.zeroed) as usize)];
            making.file.write_at(&zeros, making.zeroed).map_err(|error| Failure::of_write(&error))?;
            // Each time, so that no later sync has all of it to write.
            making.file.sync().map_err(|error| Failure::of_sync(&error))?;
            making.zeroed += zeros.len() as u64;
            self.making = Some(making);
            return Ok(());
        }
        disk.rename(MAKING, &segment_name(sequence)).map_err(|error| Failure::of_write(&error))?;
        disk.sync_names().map_err(|error| Failure::of_sync(&error))?;
        let segment = Segment::open(sequence, Arc::new(making.file), self.shared.directory);
        self.upcoming.push_back(segment.map_err(|error| Failure::of_write(&error))?);
        Ok(())
    }
}

impl<F: DiskFile> Segment<F> {
    fn open(sequence: u32, file: Arc<F>, directory: DirectoryId) -> io::Result<Self> {
        let length = u32::try_from(file.length()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
        Ok(Segment { sequence, file, length, codec: Codec::new(directory, sequence) })
    }
}

/// How long a segment is made.
pub(super) fn length_of(sequence: u32, options: Options) -> u32 {
    if sequence == 1 { options.segment_length.min(FIRST_LENGTH) } else { options.segment_length }
}

/// Makes the first segment of a new log. What was left of an earlier attempt is overwritten: nobody was told of it.
pub(super) fn make_first(disk: &impl Disk, directory: DirectoryId, options: Options) -> io::Result<()> {
    let length = length_of(1, options);
    let file = disk.create(MAKING, length.into())?;
    let mut bytes = vec![0; length as usize];
    let start = Place::new(1, HEAD_LENGTH as u32);
    let (follows, summary) = (Place::default(), Summary::default());
    let head = SegmentHead { sequence: 1, life: 0, synced: start, follows, summary, length };
    bytes[..HEAD_LENGTH].copy_from_slice(&head.encode(directory));
    file.write_at(&bytes, 0)?;
    file.sync()?;
    disk.rename(MAKING, &segment_name(1))?;
    disk.sync_names()
}
