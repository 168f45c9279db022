//! Entries of the log and pieces of snapshots in one encoding: a version, a checksum, a protobuf message.
//!
//! ```text
//!   version u8 │ CRC-32C of version and message, u32 little endian │ message
//! ```
//!
//! The log and the lines have checksums of their own; this one goes with the bytes wherever they are copied. Version 1 is read for ever: tests/golden holds it to
//! that. A change that older replicas would apply differently needs a new version.

use alloc::vec::Vec;
use core::fmt;

use prost::Message;

use crate::command::Request;
use crate::time::{Stamp, Time};

/// The version that is written.
pub const VERSION: u8 = 1;
/// Version and checksum.
pub const HEAD: usize = 5;

/// What one write to the log carries: requests that are applied one after the other, at one time.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Entry {
    /// Cluster time, in nanoseconds.
    #[prost(uint64, tag = "1")]
    pub at_ns: u64,
    /// The leader's wall clock, for people.
    #[prost(uint64, tag = "2")]
    pub wall_ms: u64,
    /// What is asked.
    #[prost(message, repeated, tag = "3")]
    pub requests: Vec<Request>,
}

impl Entry {
    /// An entry at this time.
    pub fn new(stamp: Stamp, requests: Vec<Request>) -> Entry {
        Entry { at_ns: stamp.at.as_nanos(), wall_ms: stamp.wall_ms, requests }
    }

    /// When.
    pub fn stamp(&self) -> Stamp {
        Stamp { at: Time::from_nanos(self.at_ns), wall_ms: self.wall_ms }
    }

    /// As it is written.
    pub fn to_bytes(&self) -> Vec<u8> {
        seal(self)
    }

    /// As it was written.
    pub fn from_bytes(bytes: &[u8]) -> Result<Entry, Damaged> {
        open(bytes)
    }
}

/// Why bytes are not what they should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Damaged {
    /// Too short, or the checksum is wrong.
    Checksum,
    /// Written by a later version of the program: use that one.
    Version(u8),
    /// The checksum is right, and yet it cannot be read: what is wrong.
    Content(&'static str),
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damaged::Checksum => f.write_str("damaged: the checksum does not fit"),
            Damaged::Version(version) => {
                write!(f, "written in version {version} of the encoding, and this program reads up to {VERSION}: use a later one")
            }
            Damaged::Content(what) => write!(f, "cannot be read: {what}"),
        }
    }
}

impl core::error::Error for Damaged {}

pub(crate) fn seal(message: &impl Message) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + message.encoded_len());
    bytes.extend([VERSION, 0, 0, 0, 0]);
    message.encode(&mut bytes).expect("a vector grows");
    let sum = checksum(&bytes);
    bytes[1..HEAD].copy_from_slice(&sum.to_le_bytes());
    bytes
}

pub(crate) fn open<M: Message + Default>(bytes: &[u8]) -> Result<M, Damaged> {
    let (head, message) = bytes.split_at_checked(HEAD).ok_or(Damaged::Checksum)?;
    if head[1..] != checksum(bytes).to_le_bytes() {
        return Err(Damaged::Checksum);
    }
    if head[0] != VERSION {
        return Err(Damaged::Version(head[0]));
    }
    M::decode(message).map_err(|_| Damaged::Content("it is no message of this kind"))
}

/// Of the version and of all behind the head.
fn checksum(bytes: &[u8]) -> u32 {
    !crc32c(crc32c(!0, &bytes[..1]), &bytes[HEAD..])
}

/// CRC-32C, eight bytes at a time. The crate that has it by the processor's own instruction needs the standard library.
fn crc32c(mut sum: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let word = u64::from_le_bytes(*word) ^ u64::from(sum);
        sum = 0;
        for (at, table) in TABLES.iter().rev().enumerate() {
            sum ^= table[(word >> (8 * at)) as usize & 0xff];
        }
    }
    for byte in rest {
        sum = TABLES[0][(sum as u8 ^ byte) as usize] ^ (sum >> 8);
    }
    sum
}

const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ 0x82f6_3b78 } else { sum >> 1 };
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut step = 1;
    while step < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[step - 1][byte];
            tables[step][byte] = tables[0][(before & 0xff) as usize] ^ (before >> 8);
            byte += 1;
        }
        step += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, Introduce};

    #[test]
    fn the_checksum_is_crc_32c() {
        // RFC 3720, B.4.
        assert_eq!(!crc32c(!0, &[0; 32]), 0x8a91_36aa);
        assert_eq!(!crc32c(!0, &[0xff; 32]), 0x62a8_ab43);
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
    }

    #[test]
    fn a_flipped_bit_is_found_wherever_it_is() {
        let entry = Entry::new(Stamp::at(Time::from_millis(5)), alloc::vec![Request::of(Command::Introduce(Introduce {}))]);
        let bytes = entry.to_bytes();
        assert_eq!(Entry::from_bytes(&bytes), Ok(entry));
        for at in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            assert_eq!(Entry::from_bytes(&flipped), Err(Damaged::Checksum), "bit {at}");
        }
        for len in 0..bytes.len() {
            assert_eq!(Entry::from_bytes(&bytes[..len]), Err(Damaged::Checksum), "{len} bytes");
        }
    }

    #[test]
    fn a_later_version_is_refused_by_its_number() {
        let mut bytes = Entry::default().to_bytes();
        bytes[0] = VERSION + 1;
        let sum = checksum(&bytes);
        bytes[1..HEAD].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Entry::from_bytes(&bytes), Err(Damaged::Version(VERSION + 1)));
    }
}
