//! The ledger: one file with a cell for each election, written in place, with one sync for all that is written together.
//!
//! **The problem.** A vote must be on disk before anyone hears of it, so the time of a sync is part of every election. A new file for each vote costs three
//! syncs; writing in place costs one, but may be interrupted half-way. And what cannot be read must be told apart: a write that was interrupted was told
//! to nobody, and the record before it counts; a record that was told and then damaged must not silently become the one before it.
//!
//! **The insight.** A cell has two pages that are written by turns, and a page has two copies of the same record. A write that stops at any byte leaves one copy of
//! its page whole: the second, still old, or the first, already new. Damage to any one copy of a record leaves the other. So a page with no whole copy is
//! neither, and is refused.
//!
//! ```text
//!   file   header cell │ cell 1 │ cell 2 │ …            header: node, group, generation, how many cells there are
//!   cell   page (counter even) │ page (counter odd)     4096 bytes each, so that no disk touches both at once
//!   page   copy │ copy                                  2048 bytes each
//!   copy   magic, version, crc32c of all the rest, kind, cell, directory, counter, length, text and numbers, zeros
//! ```
//!
//! All that changes in a copy with a name of reasonable length is in its first sector, so that it is whole or not whatever the order in which a disk writes the sectors of a page.
//! Pages are filled before they are used and never move, so that a sync has no more to write than the page itself. Left out: damage to both copies of a page at once is seen, but a
//! disk that loses a whole write after it has confirmed it, or a directory that was exchanged for an old copy of itself, is not; the generation is there for
//! the other nodes to notice.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use incumbent_protocol::protocol::{NodeId, Record, Term};

use super::{DirectoryId, Failure, Refused, Stored, sync_directory};

const MAGIC: [u8; 8] = *b"incumb\r\n";
/// The format. Magic, version and checksum stay where they are in every later one.
const VERSION: u16 = 1;

const COPY: usize = 2048;
const PAGE: usize = 2 * COPY;
const CELL: usize = 2 * PAGE;
/// Before the payload: magic, version, checksum, kind, cell, directory, counter, length.
const PAYLOAD_AT: usize = HEAD_LENGTH + CHECKSUM_LENGTH + 2 + 4 + 16 + 8 + 2;
/// Magic and version: they come first, then the checksum of them and of all that follows.
const HEAD_LENGTH: usize = 8 + 2;
const CHECKSUM_LENGTH: usize = 4;

/// Longer names of groups and elections are refused.
pub(super) const NAME_MAX: usize = 1024;
const _: () = assert!(PAYLOAD_AT + 2 + NAME_MAX + 32 <= COPY);

/// Cells that are added at one time: a quarter of a megabyte, filled in a few milliseconds.
const CELLS_ADDED: u32 = 32;
/// More elections than this are refused, as if the disk were full: the file would have half a gigabyte.
const CELLS_MAX: u32 = 1 << 16;

/// What a ledger holds, by name.
pub(super) type Elections = Vec<(String, Stored)>;

/// Where a ledger is written.
pub(super) trait Medium: Send + 'static {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// After this, all that was written stays.
    fn sync(&self) -> io::Result<()>;
}

impl Medium for File {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

#[derive(Debug)]
pub(super) struct Ledger<M> {
    medium: M,
    directory: DirectoryId,
    header: Header,
    /// Of each cell, the header's first: the counter of the record that counts.
    counters: Vec<u64>,
    places: BTreeMap<String, u32>,
    /// Cells written since the last sync, with the counters they will have.
    unsynced: Vec<(u32, u64)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Header {
    cluster: String,
    me: NodeId,
    generation: u64,
    /// Cells for elections, used or not.
    cells: u32,
}

/// Opens the ledger of `directory`, or makes it.
pub(super) fn open(directory: &Path, cluster: &str, me: NodeId) -> Result<(Ledger<File>, Elections), Refused> {
    if cluster.len() > NAME_MAX {
        return Err(Refused::TooLong { what: "the name of the group", length: cluster.len(), length_max: NAME_MAX });
    }
    let path = directory.join("ledger");
    let unusable = |what| move |error: io::Error| Refused::unusable(&directory.join("ledger"), what, error);
    if !path.try_exists().map_err(unusable("look for"))? {
        if ["members", "known"].iter().any(|it| directory.join(it).exists()) {
            return Err(Refused::Gone { path });
        }
        let id = random_id().map_err(unusable("find a random number for"))?;
        make(directory, &blank(id, cluster, me)).map_err(unusable("make"))?;
    }
    let bytes = fs::read(&path).map_err(unusable("read"))?;
    let file = File::options().write(true).open(&path).map_err(unusable("write to"))?;
    let (ledger, elections) = read(file, &bytes).map_err(|wrong| match wrong {
        Wrong::Newer(version) => Refused::Newer { path: path.clone(), version },
        Wrong::Damaged(what) => Refused::damaged(&path, what),
    })?;
    if ledger.header.cluster != cluster {
        let (belongs_to, wanted_for) = (ledger.header.cluster, cluster.to_owned());
        return Err(Refused::OtherCluster { path, belongs_to, wanted_for });
    }
    if ledger.header.me != me {
        return Err(Refused::OtherNode { path, belongs_to: ledger.header.me, wanted_for: me });
    }
    Ok((ledger, elections))
}

/// Never half there: written under another name first.
fn make(directory: &Path, bytes: &[u8]) -> io::Result<()> {
    let (new, path) = (directory.join("ledger.new"), directory.join("ledger"));
    let file = File::create(&new)?;
    file.write_all_at(bytes, 0)?;
    file.sync_all()?;
    fs::rename(new, path)?;
    sync_directory(directory)
}

fn random_id() -> io::Result<DirectoryId> {
    let mut id = [0; 16];
    let mut urandom = File::open("/dev/urandom")?;
    io::Read::read_exact(&mut urandom, &mut id)?;
    Ok(id)
}

/// A ledger of a node that was never started.
fn blank(directory: DirectoryId, cluster: &str, me: NodeId) -> Vec<u8> {
    let header = Header { cluster: cluster.to_owned(), me, generation: 0, cells: CELLS_ADDED };
    let mut bytes = cell(directory, Kind::Header, 0, &header.encode());
    for number in 1..=CELLS_ADDED {
        bytes.extend(cell(directory, Kind::Election, number, &encode_election("", Stored::default())));
    }
    bytes
}

/// Why bytes are no ledger.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Wrong {
    Newer(u16),
    Damaged(String),
}

fn read<M>(medium: M, bytes: &[u8]) -> Result<(Ledger<M>, Elections), Wrong> {
    let Some(first) = bytes.get(..CELL) else {
        return Err(Wrong::Damaged(format!("it has {} bytes: its head is cut off", bytes.len())));
    };
    let head = read_cell(first, 0, None)?;
    let directory = head.directory;
    let header = (head.kind == Kind::Header).then(|| Header::decode(head.payload)).flatten();
    let header = header.ok_or_else(|| Wrong::Damaged("its head makes no sense".to_owned()))?;
    let needed = (header.cells as usize + 1) * CELL;
    if bytes.len() < needed {
        return Err(Wrong::Damaged(format!("it has {} bytes instead of {needed}: its end is cut off", bytes.len())));
    }
    let mut ledger =
        Ledger { medium, directory, header, counters: vec![head.counter], places: BTreeMap::new(), unsynced: Vec::new() };
    let mut elections = Vec::new();
    // What follows the cells that the head speaks of was being added when the node ended.
    for (number, bytes) in (1..=ledger.header.cells).zip(bytes[CELL..needed].chunks_exact(CELL)) {
        let copy = read_cell(bytes, number, Some(directory))?;
        let makes_no_sense = || Wrong::Damaged(format!("cell {number} makes no sense"));
        let (name, stored) =
            (copy.kind == Kind::Election).then(|| decode_election(copy.payload)).flatten().ok_or_else(makes_no_sense)?;
        ledger.counters.push(copy.counter);
        if !name.is_empty() {
            if ledger.places.insert(name.clone(), number).is_some() {
                return Err(Wrong::Damaged(format!("the election '{name}' is there twice")));
            }
            elections.push((name, stored));
        }
    }
    Ok((ledger, elections))
}

impl<M: Medium> Ledger<M> {
    pub(super) fn directory_id(&self) -> DirectoryId {
        self.directory
    }

    /// Notes that the directory was opened once more. It is known how often only when that is on disk.
    pub(super) fn count_opening(&mut self) -> Result<u64, Failure> {
        self.header.generation += 1;
        self.write_header()?;
        self.sync()?;
        Ok(self.header.generation)
    }

    /// Writes what is to be kept of `election`. Safe after the next [`Ledger::sync`].
    pub(super) fn write(&mut self, election: &str, stored: Stored) -> Result<(), Failure> {
        if election.len() > NAME_MAX || election.is_empty() {
            return Err(Failure::TooLong { length: election.len(), length_max: NAME_MAX });
        }
        let number = match self.places.get(election) {
            Some(number) => *number,
            None => self.next_free()?,
        };
        self.write_cell(number, Kind::Election, &encode_election(election, stored))?;
        self.places.insert(election.to_owned(), number);
        Ok(())
    }

    /// Makes all that was written last.
    pub(super) fn sync(&mut self) -> Result<(), Failure> {
        self.medium.sync().map_err(|error| Failure::of_sync(&error))?;
        for (number, counter) in self.unsynced.drain(..) {
            self.counters[number as usize] = counter;
        }
        Ok(())
    }

    fn next_free(&mut self) -> Result<u32, Failure> {
        let used = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        if used == self.header.cells {
            self.add_cells()?;
        }
        Ok(used + 1)
    }

    fn add_cells(&mut self) -> Result<(), Failure> {
        let first = self.header.cells + 1;
        if first > CELLS_MAX {
            return Err(Failure::Full { error: format!("{CELLS_MAX} elections are kept already") });
        }
        let blank = encode_election("", Stored::default());
        let bytes: Vec<u8> =
            (first..first + CELLS_ADDED).flat_map(|number| cell(self.directory, Kind::Election, number, &blank)).collect();
        self.medium.write_at(&bytes, offset(first, 0)).map_err(|error| Failure::of_write(&error))?;
        // The head speaks of them only when they are there: a page that is not whole would be taken for damage.
        self.medium.sync().map_err(|error| Failure::of_sync(&error))?;
        let before = self.header.cells;
        self.header.cells += CELLS_ADDED;
        if let Err(failure) = self.write_header() {
            self.header.cells = before;
            return Err(failure);
        }
        self.counters.resize(self.header.cells as usize + 1, 1);
        Ok(())
    }

    fn write_header(&mut self) -> Result<(), Failure> {
        let payload = self.header.encode();
        self.write_cell(0, Kind::Header, &payload)
    }

    /// Writes to the page that does not count. Until the sync, a further write goes to the same page.
    fn write_cell(&mut self, number: u32, kind: Kind, payload: &[u8]) -> Result<(), Failure> {
        let counter = self.counters[number as usize] + 1;
        let copy = copy(self.directory, kind, number, counter, payload);
        self.medium.write_at(&[copy, copy].concat(), offset(number, counter)).map_err(|error| Failure::of_write(&error))?;
        self.unsynced.push((number, counter));
        Ok(())
    }
}

fn offset(number: u32, counter: u64) -> u64 {
    u64::from(number) * CELL as u64 + counter % 2 * PAGE as u64
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Kind {
    Header = 0,
    Election = 1,
}

/// A cell that was never used: both pages whole.
fn cell(directory: DirectoryId, kind: Kind, number: u32, payload: &[u8]) -> Vec<u8> {
    let page = |counter| copy(directory, kind, number, counter, payload).repeat(2);
    [page(0), page(1)].concat()
}

fn copy(directory: DirectoryId, kind: Kind, number: u32, counter: u64, payload: &[u8]) -> [u8; COPY] {
    let mut head = Vec::with_capacity(COPY);
    head.extend(MAGIC);
    head.extend(VERSION.to_le_bytes());
    head.extend([0; CHECKSUM_LENGTH]);
    head.extend((kind as u16).to_le_bytes());
    head.extend(number.to_le_bytes());
    head.extend(directory);
    head.extend(counter.to_le_bytes());
    head.extend(length_of(payload));
    head.extend(payload);
    let mut copy = [0; COPY];
    copy[..head.len()].copy_from_slice(&head);
    seal(&mut copy);
    copy
}

/// Puts the checksum in its place.
fn seal(copy: &mut [u8; COPY]) {
    let checksum = checksum_of(copy).to_le_bytes();
    copy[HEAD_LENGTH..][..CHECKSUM_LENGTH].copy_from_slice(&checksum);
}

/// Of all but the checksum itself.
fn checksum_of(copy: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&copy[..HEAD_LENGTH]), &copy[HEAD_LENGTH + CHECKSUM_LENGTH..])
}

/// A copy that is whole.
struct Copied<'a> {
    kind: Kind,
    directory: DirectoryId,
    counter: u64,
    payload: &'a [u8],
}

/// The record that counts in a cell.
fn read_cell(bytes: &[u8], number: u32, directory: Option<DirectoryId>) -> Result<Copied<'_>, Wrong> {
    let mut newest: Option<Copied<'_>> = None;
    for (turn, page) in (0..).zip(bytes.chunks_exact(PAGE)) {
        let mut whole = false;
        for bytes in page.chunks_exact(COPY) {
            let Some(copy) = read_copy(bytes, number)? else { continue };
            if copy.counter % 2 != turn || directory.is_some_and(|it| it != copy.directory) {
                continue;
            }
            whole = true;
            if newest.as_ref().is_none_or(|it| it.counter < copy.counter) {
                newest = Some(copy);
            }
        }
        if !whole {
            return Err(Wrong::Damaged(format!("page {turn} of cell {number} cannot be read")));
        }
    }
    newest.ok_or_else(|| Wrong::Damaged(format!("cell {number} cannot be read")))
}

/// `None` if it is not whole.
fn read_copy(bytes: &[u8], number: u32) -> Result<Option<Copied<'_>>, Wrong> {
    let mut reader = Reader(bytes);
    let (magic, version, checksum) = (reader.take(MAGIC.len()), reader.u16().unwrap_or(0), reader.u32());
    if magic != Some(&MAGIC) || checksum != Some(checksum_of(bytes)) {
        return Ok(None);
    }
    if version > VERSION {
        return Err(Wrong::Newer(version));
    }
    let copy = (|| {
        let kind = match reader.u16()? {
            0 => Kind::Header,
            1 => Kind::Election,
            _ => return None,
        };
        let at = reader.u32()?;
        let directory = reader.take(16)?.try_into().ok()?;
        let counter = reader.u64()?;
        let payload = reader.bytes()?;
        (at == number).then_some(Copied { kind, directory, counter, payload })
    })();
    Ok(copy)
}

impl Header {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(length_of(self.cluster.as_bytes()));
        bytes.extend(self.cluster.as_bytes());
        bytes.extend(self.me.0.to_le_bytes());
        bytes.extend(self.generation.to_le_bytes());
        bytes.extend(self.cells.to_le_bytes());
        bytes
    }

    fn decode(payload: &[u8]) -> Option<Header> {
        let mut reader = Reader(payload);
        let cluster = reader.text()?;
        let (me, generation, cells) = (NodeId(reader.u32()?), reader.u64()?, reader.u32()?);
        (cells <= CELLS_MAX).then_some(Header { cluster, me, generation, cells })
    }
}

fn encode_election(name: &str, stored: Stored) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(length_of(name.as_bytes()));
    bytes.extend(name.as_bytes());
    bytes.extend(stored.epoch.to_le_bytes());
    bytes.push(stored.record.is_some().into());
    let record = stored.record.unwrap_or_default();
    bytes.extend(record.term.0.to_le_bytes());
    bytes.push(record.vote.is_some().into());
    bytes.extend(record.vote.unwrap_or(NodeId(0)).0.to_le_bytes());
    bytes
}

fn decode_election(payload: &[u8]) -> Option<(String, Stored)> {
    let mut reader = Reader(payload);
    let (name, epoch) = (reader.text()?, reader.u16()?);
    let (has_record, term, has_vote, vote) = (reader.flag()?, reader.u64()?, reader.flag()?, reader.u32()?);
    let record = Record { term: Term(term), vote: has_vote.then_some(NodeId(vote)) };
    (record.term <= Term::MAX).then_some((name, Stored { record: has_record.then_some(record), epoch }))
}

/// The length of what is at most [`NAME_MAX`] long, or little more.
fn length_of(bytes: &[u8]) -> [u8; 2] {
    u16::try_from(bytes.len()).expect("lengths were checked when the name came in").to_le_bytes()
}

/// Takes bytes apart; nothing that is read can make it panic.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        match self.take(1)? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    /// Bytes after their length.
    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        self.take(length.into())
    }

    pub(super) fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }
}

#[cfg(test)]
pub(super) mod tests;
