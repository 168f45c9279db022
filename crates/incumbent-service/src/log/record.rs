//! How a segment of the log is written: its head, and the records behind it.
//!
//! ```text
//!   segment  head (one sector) │ record │ record │ … │ whatever was there before
//!   head     magic, version, crc32c, directory, sequence, life, synced, where the last segment ended, summary of all before, length of the segment
//!   record   crc32c, kind and length, life, synced, index, term, content, zeros up to a multiple of 8
//! ```
//!
//! The checksum of a record covers the directory, the segment's sequence and the offset: a record that a disk wrote to the wrong place, one of the file's former
//! use, and one of another node's file are no records. Two more numbers tell what else can be behind the end of a log:
//!
//! - *synced*: up to where the log was safe when the record was written. What cannot be read, and lies before the `synced` of a record behind it, was
//!   confirmed once: that is damage. What lies behind was never confirmed: a write that a crash has torn.
//! - *life*: rises with every opening of the directory and every failed write. Records of a lesser life than the one before them are the rest of a torn write that
//!   has been overwritten since.

use incumbent_protocol::protocol::NodeId;

use super::{DirectoryId, HardState, Mark};

const MAGIC: [u8; 8] = *b"incu\rlog";
/// The format. Magic, version and checksum stay where they are in every later one.
pub(super) const VERSION: u16 = 1;

/// No log is that long: greater numbers are not ours.
pub(super) const INDEX_MAX: u64 = 1 << 62;

/// The smallest piece that a disk writes whole or not at all.
pub(super) const SECTOR: usize = 512;
/// What the head of a segment takes.
pub(super) const HEAD_LENGTH: usize = SECTOR;
/// What a record takes besides its content.
pub(super) const RECORD_HEAD_LENGTH: usize = 40;
const ALIGNMENT: usize = 8;
/// Three bytes hold the length.
pub(super) const CONTENT_LENGTH_MAX: usize = (1 << 24) - 1;

/// A place in the log: segments count more than offsets.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Place(u64);

impl Place {
    pub(super) fn new(sequence: u32, offset: u32) -> Self {
        Place(u64::from(sequence) << 32 | u64::from(offset))
    }

    pub(super) fn sequence(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(super) fn offset(self) -> u32 {
        self.0 as u32
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// An entry.
    Entry = 1,
    /// Entries from the index on do not count any more.
    Truncate = 2,
    /// Entries up to the index are in a snapshot.
    Compact = 3,
    /// The log begins anew after the index, with a snapshot from elsewhere.
    Restart = 4,
    /// Term, vote and (as index) what is known to be committed.
    State = 5,
    /// The log ended here, and all before was safe. The next record takes its place.
    Seal = 6,
}

impl Kind {
    fn of(number: u8) -> Option<Kind> {
        Some(match number {
            1 => Kind::Entry,
            2 => Kind::Truncate,
            3 => Kind::Compact,
            4 => Kind::Restart,
            5 => Kind::State,
            6 => Kind::Seal,
            _ => return None,
        })
    }
}

/// What a record says besides its content.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct RecordHead {
    pub(super) kind: Kind,
    pub(super) life: u64,
    pub(super) synced: Place,
    pub(super) index: u64,
    pub(super) term: u64,
}

/// What a record with this much content takes on the disk.
pub(super) fn record_length(content_length: usize) -> usize {
    (RECORD_HEAD_LENGTH + content_length).next_multiple_of(ALIGNMENT)
}

/// Turns records of one segment into bytes and back.
#[derive(Copy, Clone, Debug)]
pub(super) struct Codec {
    /// The checksum of directory and sequence, from which that of every record goes on.
    seed: u32,
    sequence: u32,
}

impl Codec {
    pub(super) fn new(directory: DirectoryId, sequence: u32) -> Self {
        Codec { seed: crc32c::crc32c_append(crc32c::crc32c(&directory), &sequence.to_le_bytes()), sequence }
    }

    fn checksum(self, offset: u32, rest: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c_append(self.seed, &offset.to_le_bytes()), rest)
    }

    /// Adds a record, which will stand at `offset` of the segment. The content is at most [`CONTENT_LENGTH_MAX`] long.
    pub(super) fn encode(self, buffer: &mut Vec<u8>, offset: u32, head: &RecordHead, content: &[u8]) {
        let from = buffer.len();
        let length = u32::try_from(content.len()).expect("checked before anything is encoded");
        buffer.extend([0; 4]);
        buffer.extend(((head.kind as u32) << 24 | length).to_le_bytes());
        for number in [head.life, head.synced.0, head.index, head.term] {
            buffer.extend(number.to_le_bytes());
        }
        buffer.extend(content);
        let checksum = self.checksum(offset, &buffer[from + 4..]);
        buffer[from..from + 4].copy_from_slice(&checksum.to_le_bytes());
        buffer.resize(from + record_length(content.len()), 0);
    }

    /// The record at `offset` of the segment, if `bytes` (which begin there) hold one, and its content.
    pub(super) fn decode(self, bytes: &[u8], offset: u32) -> Option<(RecordHead, &[u8])> {
        let (head, _) = bytes.split_at_checked(RECORD_HEAD_LENGTH)?;
        let mut reader = Reader(head);
        let (checksum, kind_and_length) = (reader.u32()?, reader.u32()?);
        let kind = Kind::of((kind_and_length >> 24) as u8)?;
        let length = (kind_and_length & 0xFF_FFFF) as usize;
        let whole = bytes.get(..RECORD_HEAD_LENGTH + length)?;
        let head =
            RecordHead { kind, life: reader.u64()?, synced: Place(reader.u64()?), index: reader.u64()?, term: reader.u64()? };
        // Cheap, and spares most checksums when any bytes at all are searched for records.
        if head.synced > Place::new(self.sequence, offset) || self.checksum(offset, &whole[4..]) != checksum {
            return None;
        }
        Some((head, &whole[RECORD_HEAD_LENGTH..]))
    }
}

/// What holds before the first record of a segment, so that no earlier segment is needed to know it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Summary {
    /// The last entry that is in a snapshot and not in the log.
    pub(super) base: Mark,
    /// The last entry.
    pub(super) last: u64,
    pub(super) state: HardState,
}

/// The head of a segment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct SegmentHead {
    pub(super) sequence: u32,
    pub(super) life: u64,
    pub(super) synced: Place,
    /// Where the segment before this one ended.
    pub(super) follows: Place,
    pub(super) summary: Summary,
    /// What the file had when the segment was begun, which is all it ever has: a shorter one was cut off, with whatever stood there. 0 in a head that was written
    /// before lengths were; those who wrote such heads pass over this one.
    pub(super) length: u32,
}

/// Why bytes are no head.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum NoHead {
    /// Zeros, half of it, or another directory's.
    Unknown,
    Newer(u16),
}

impl SegmentHead {
    pub(super) fn encode(&self, directory: DirectoryId) -> [u8; HEAD_LENGTH] {
        let Summary { base, last, state } = self.summary;
        let mut rest = Vec::with_capacity(HEAD_LENGTH);
        rest.extend(directory);
        rest.extend(self.sequence.to_le_bytes());
        for number in [self.life, self.synced.0, self.follows.0, base.index, base.term, last, state.term, state.commit] {
            rest.extend(number.to_le_bytes());
        }
        rest.extend(encode_vote(state.vote));
        rest.extend(self.length.to_le_bytes());
        let mut bytes = [0; HEAD_LENGTH];
        bytes[14..14 + rest.len()].copy_from_slice(&rest);
        seal(MAGIC, VERSION, &mut bytes);
        bytes
    }

    pub(super) fn decode(bytes: &[u8], directory: DirectoryId) -> Result<SegmentHead, NoHead> {
        let bytes = bytes.get(..HEAD_LENGTH).ok_or(NoHead::Unknown)?;
        let rest = unseal(MAGIC, VERSION, bytes)?;
        Self::read(&mut Reader(rest), directory).ok_or(NoHead::Unknown)
    }

    fn read(reader: &mut Reader<'_>, directory: DirectoryId) -> Option<SegmentHead> {
        if reader.take(16)? != directory {
            return None;
        }
        let (sequence, life, synced, follows) = (reader.u32()?, reader.u64()?, Place(reader.u64()?), Place(reader.u64()?));
        let (base, last) = (Mark { index: reader.u64()?, term: reader.u64()? }, reader.u64()?);
        let state = HardState { term: reader.u64()?, commit: reader.u64()?, vote: decode_vote(reader.take(VOTE_LENGTH)?)? };
        let length = reader.u32()?;
        if base.index > last || last > INDEX_MAX {
            return None;
        }
        Some(SegmentHead { sequence, life, synced, follows, summary: Summary { base, last, state }, length })
    }
}

/// Before the rest of any head: magic, version, checksum of both and of the rest.
pub(super) const SEAL_LENGTH: usize = 8 + 2 + 4;

/// Puts magic, version and checksum in their places at the beginning of `bytes`.
pub(super) fn seal(magic: [u8; 8], version: u16, bytes: &mut [u8]) {
    bytes[..8].copy_from_slice(&magic);
    bytes[8..10].copy_from_slice(&version.to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..10]), &bytes[SEAL_LENGTH..]);
    bytes[10..SEAL_LENGTH].copy_from_slice(&checksum.to_le_bytes());
}

/// What follows magic, version and checksum, if they are right.
pub(super) fn unseal(magic: [u8; 8], version: u16, bytes: &[u8]) -> Result<&[u8], NoHead> {
    let (head, rest) = bytes.split_at_checked(SEAL_LENGTH).ok_or(NoHead::Unknown)?;
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&head[..10]), rest);
    if head[..8] != magic || head[10..] != checksum.to_le_bytes() {
        return Err(NoHead::Unknown);
    }
    let found = u16::from_le_bytes([head[8], head[9]]);
    if found > version { Err(NoHead::Newer(found)) } else { Ok(rest) }
}

const VOTE_LENGTH: usize = 8;

pub(super) fn encode_vote(vote: Option<NodeId>) -> [u8; VOTE_LENGTH] {
    vote.map_or(0, |it| 1 << 32 | u64::from(it.0)).to_le_bytes()
}

pub(super) fn decode_vote(bytes: &[u8]) -> Option<Option<NodeId>> {
    let number = u64::from_le_bytes(bytes.try_into().ok()?);
    match number >> 32 {
        0 => (number == 0).then_some(None),
        1 => Some(Some(NodeId(number as u32))),
        _ => None,
    }
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

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Bytes after their length.
    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.take(usize::try_from(length).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: RecordHead = RecordHead { kind: Kind::Entry, life: 3, synced: Place(0), index: 7, term: 2 };

    #[test]
    fn a_record_is_one_only_in_its_own_directory_segment_and_place() {
        let mut bytes = Vec::new();
        Codec::new([1; 16], 5).encode(&mut bytes, 512, &ENTRY, b"content");
        assert_eq!(bytes.len(), record_length(7));
        assert_eq!(Codec::new([1; 16], 5).decode(&bytes, 512), Some((ENTRY, &b"content"[..])));
        for (directory, sequence, offset) in [([2; 16], 5, 512), ([1; 16], 6, 512), ([1; 16], 5, 520)] {
            assert_eq!(Codec::new(directory, sequence).decode(&bytes, offset), None);
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_makes_it_no_record_and_no_head() {
        let mut record = Vec::new();
        let codec = Codec::new([1; 16], 5);
        codec.encode(&mut record, 512, &ENTRY, b"all of it counts");
        let state = HardState { term: 4, vote: Some(NodeId(0)), commit: 9 };
        let summary = Summary { base: Mark { index: 3, term: 1 }, last: 8, state };
        let (synced, follows) = (Place::new(4, 600), Place::new(4, 700));
        let head = SegmentHead { sequence: 5, life: 1, synced, follows, summary, length: 4096 };
        let encoded = head.encode([1; 16]);
        assert_eq!(SegmentHead::decode(&encoded, [1; 16]), Ok(head));
        assert_eq!(SegmentHead::decode(&encoded, [2; 16]), Err(NoHead::Unknown));
        for bit in 0..record.len() * 8 {
            let mut bytes = record.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(codec.decode(&bytes, 512), None, "bit {bit}");
        }
        for bit in 0..encoded.len() * 8 {
            let mut bytes = encoded;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHead::decode(&bytes, [1; 16]), Err(NoHead::Unknown), "bit {bit}");
        }
    }

    #[test]
    fn a_head_of_a_later_release_is_known_as_one() {
        let mut bytes = [0; HEAD_LENGTH];
        seal(MAGIC, VERSION + 1, &mut bytes);
        assert_eq!(SegmentHead::decode(&bytes, [1; 16]), Err(NoHead::Newer(VERSION + 1)));
    }
}
