//! A node's disk: an append-only log of records as real bytes, and what a crash leaves of them.
//!
//! A write that has completed is safe. A write under way when the node crashes is on the disk, partly on the disk, or
//! not there at all. Recovery reads the bytes, believes the last record of the intact beginning, and cuts off the rest,
//! so that what is written next is not hidden behind rubble. Damage to what was already safe is not modelled.

use std::collections::VecDeque;
use std::time::Duration;

use incumbent_protocol::chance::Chance;
use incumbent_protocol::protocol::{Mark, NodeId, Record, Term};

use crate::network::Delay;
use crate::observation::Moment;

/// How the disks of a world are when nothing is wrong with them.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct DiskSettings {
    /// How long a write with its sync takes.
    pub latency: Delay,
    /// In a crash, of a million writes under way this many are on the disk.
    pub kept_ppm: u32,
    /// And this many partly; the others are lost.
    pub torn_ppm: u32,
}

impl DiskSettings {
    /// A good solid-state disk: a fifth of a millisecond, sometimes one. A crash treats writes under way evenly.
    pub const FAST: DiskSettings = DiskSettings {
        latency: Delay::Tail { base: Duration::from_micros(150), mean: Duration::from_micros(100) },
        kept_ppm: 333_333,
        torn_ppm: 333_333,
    };

    /// A disk that takes no time: for text scenarios and for counting.
    pub const INSTANT: DiskSettings = DiskSettings { latency: Delay::NONE, ..DiskSettings::FAST };
}

/// Length, term, whether there is a vote, the vote, checksum of all that.
const FRAME: usize = 4 + 8 + 1 + 4 + 4;
/// The length that a frame states: what lies between it and the checksum.
const BODY: u32 = 8 + 1 + 4;

/// A write under way.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Write {
    mark: Mark,
    record: Record,
}

/// One node's disk.
#[derive(Clone, Debug)]
pub struct Disk {
    settings: DiskSettings,
    chance: Chance,
    /// What is safe. Writes under way are not in here.
    bytes: Vec<u8>,
    durable: Option<Record>,
    writes: VecDeque<Write>,
    /// When the last of `writes` is done: the disk does one thing at a time.
    busy_until: Moment,
    slower_by: Duration,
    stalled: bool,
    /// Completions that were promised under another number are void.
    generation: u32,
}

impl Disk {
    pub(crate) fn new(settings: DiskSettings, chance: Chance) -> Disk {
        Disk {
            settings,
            chance,
            bytes: Vec::new(),
            durable: None,
            writes: VecDeque::new(),
            busy_until: Moment::ZERO,
            slower_by: Duration::ZERO,
            stalled: false,
            generation: 0,
        }
    }

    /// The last record whose write has completed.
    pub fn durable(&self) -> Option<&Record> {
        self.durable.as_ref()
    }

    /// How many writes are under way.
    pub fn pending(&self) -> usize {
        self.writes.len()
    }

    /// Whether no write completes at present.
    pub fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// The number under which completions are promised at present.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Begins a write. The answer is when [`Disk::complete`] is due for it; `None` while the disk is stalled.
    pub(crate) fn write(&mut self, now: Moment, mark: Mark, record: Record) -> Option<Moment> {
        self.writes.push_back(Write { mark, record });
        self.due(now)
    }

    /// The oldest write under way is done: its record is safe.
    pub(crate) fn complete(&mut self) -> (Mark, Record) {
        let write = self.writes.pop_front().expect("a completion belongs to a write");
        self.bytes.extend_from_slice(&frame(&write.record));
        self.durable = Some(write.record);
        (write.mark, write.record)
    }

    /// From now on every write takes this much longer.
    pub(crate) fn slow(&mut self, by: Duration) {
        self.slower_by = by;
    }

    /// From now on nothing completes.
    pub(crate) fn stall(&mut self) {
        self.stalled = true;
        self.generation += 1;
    }

    /// The disk works as it should again. Writes under way begin anew: the answer is when each is due.
    pub(crate) fn restore(&mut self, now: Moment) -> Vec<Moment> {
        self.stalled = false;
        self.slower_by = Duration::ZERO;
        self.generation += 1;
        self.busy_until = now;
        (0..self.writes.len()).filter_map(|_| self.due(now)).collect()
    }

    /// The node crashes: each write under way is kept, torn or lost.
    pub(crate) fn crash(&mut self) {
        self.generation += 1;
        while let Some(write) = self.writes.pop_front() {
            let frame = frame(&write.record);
            let luck = self.chance.below(1_000_000);
            let kept = if luck < u64::from(self.settings.kept_ppm) {
                FRAME
            } else if luck < u64::from(self.settings.kept_ppm) + u64::from(self.settings.torn_ppm) {
                1 + self.chance.below(FRAME as u64 - 1) as usize
            } else {
                0
            };
            // What did not reach the disk reads as zeros, because a later write may lie behind it.
            self.bytes.extend_from_slice(&frame[..kept]);
            self.bytes.extend_from_slice(&[0; FRAME][kept..]);
        }
    }

    /// The node comes up at `now`: what does its disk hold?
    pub(crate) fn recover(&mut self, now: Moment) -> Option<Record> {
        self.busy_until = now;
        let intact: Vec<Record> = self.bytes.chunks(FRAME).map_while(parse).collect();
        self.bytes.truncate(intact.len() * FRAME);
        self.durable = intact.last().copied();
        self.durable
    }

    fn due(&mut self, now: Moment) -> Option<Moment> {
        let latency = self.settings.latency.draw(&mut self.chance) + self.slower_by;
        self.busy_until = self.busy_until.max(now) + latency;
        (!self.stalled).then_some(self.busy_until)
    }
}

fn frame(record: &Record) -> [u8; FRAME] {
    let mut bytes = [0; FRAME];
    bytes[..4].copy_from_slice(&BODY.to_le_bytes());
    bytes[4..12].copy_from_slice(&record.term.0.to_le_bytes());
    bytes[12] = u8::from(record.vote.is_some());
    bytes[13..17].copy_from_slice(&record.vote.map_or(0, |NodeId(id)| id).to_le_bytes());
    let sum = crc32(&bytes[..FRAME - 4]);
    bytes[FRAME - 4..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The record of an intact frame.
fn parse(bytes: &[u8]) -> Option<Record> {
    let frame: &[u8; FRAME] = bytes.try_into().ok()?;
    let word = |from: usize| u32::from_le_bytes([frame[from], frame[from + 1], frame[from + 2], frame[from + 3]]);
    if word(0) != BODY || word(FRAME - 4) != crc32(&frame[..FRAME - 4]) || frame[12] > 1 {
        return None;
    }
    let term = Term(u64::from(word(8)) << 32 | u64::from(word(4)));
    Some(Record { term, vote: (frame[12] == 1).then(|| NodeId(word(13))) })
}

/// The CRC-32 of Ethernet and zip, bit by bit: frames are short and writes are rare.
fn crc32(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0xEDB8_8320 } else { sum >> 1 };
        }
    }
    !sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(term: u64) -> Record {
        Record { term: Term(term), vote: (term % 2 == 1).then_some(NodeId(term as u32)) }
    }

    fn disk(kept_ppm: u32, torn_ppm: u32) -> Disk {
        Disk::new(DiskSettings { kept_ppm, torn_ppm, ..DiskSettings::FAST }, Chance::new(4))
    }

    fn write(disk: &mut Disk, term: u64) {
        disk.write(Moment(term), Mark(term), record(term));
    }

    #[test]
    fn a_crash_keeps_what_completed_and_loses_what_did_not() {
        let mut disk = disk(0, 0);
        assert_eq!(disk.recover(Moment(0)), None);
        write(&mut disk, 1);
        assert_eq!(disk.durable(), None);
        assert_eq!(disk.complete(), (Mark(1), record(1)));
        write(&mut disk, 2);
        disk.crash();
        assert_eq!(disk.recover(Moment(0)), Some(record(1)));
        assert_eq!(disk.durable(), Some(&record(1)));
    }

    #[test]
    fn a_torn_tail_is_cut_off_so_that_later_records_are_found() {
        let mut disk = disk(0, 1_000_000);
        for round in 0..100 {
            write(&mut disk, 2 * round + 1);
            disk.complete();
            write(&mut disk, 2 * round + 2);
            disk.crash();
            assert_eq!(disk.recover(Moment(0)), Some(record(2 * round + 1)));
        }
        assert_eq!(disk.bytes.len(), 100 * FRAME);
    }

    #[test]
    fn a_kept_write_behind_a_lost_one_is_not_believed() {
        let mut lost_then_kept = disk(500_000, 0);
        let mut seen = [0; 3];
        for _ in 0..1000 {
            lost_then_kept.bytes.clear();
            write(&mut lost_then_kept, 1);
            write(&mut lost_then_kept, 2);
            lost_then_kept.crash();
            let found = lost_then_kept.recover(Moment(0)).map_or(0, |record| record.term.0);
            seen[found as usize] += 1;
        }
        // Half lost the first and with it the second; a quarter kept the first only.
        assert!((450..550).contains(&seen[0]) && (200..300).contains(&seen[1]) && (200..300).contains(&seen[2]), "{seen:?}");
    }

    #[test]
    fn every_damaged_bit_of_a_frame_is_noticed() {
        let good = frame(&record(0x0123_4567_89AB_CDEF));
        assert_eq!(parse(&good), Some(record(0x0123_4567_89AB_CDEF)));
        for bit in 0..FRAME * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse(&bad), None, "bit {bit}");
        }
        assert_eq!(parse(&[0; FRAME]), None);
        // The check value of this CRC.
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn one_write_after_the_other_and_none_while_stalled() {
        let mut disk = disk(0, 0);
        disk.settings.latency = Delay::Constant(Duration::from_nanos(10));
        assert_eq!(disk.write(Moment(0), Mark(1), record(1)), Some(Moment(10)));
        assert_eq!(disk.write(Moment(0), Mark(2), record(2)), Some(Moment(20)));
        disk.slow(Duration::from_nanos(5));
        assert_eq!(disk.write(Moment(100), Mark(3), record(3)), Some(Moment(115)));
        let promised = disk.generation();
        disk.stall();
        assert_ne!(disk.generation(), promised);
        assert_eq!(disk.write(Moment(100), Mark(4), record(4)), None);
        assert_eq!(disk.restore(Moment(200)), [210, 220, 230, 240].map(Moment));
    }
}
