//! The other nodes as this one knew them: whose directory each has, and how often it had been opened. So an old copy of a directory is known as one also after all nodes
//! were down.

use std::io;

use incumbent_protocol::protocol::NodeId;

use super::DirectoryId;
use super::disk::{self, Disk};
use super::record::{NoHead, Reader, SEAL_LENGTH, seal, unseal};
use super::refused::{Failure, Refused};

const MAGIC: [u8; 8] = *b"incuknow";
/// The format. Magic, version and checksum stay where they are in every later one.
const VERSION: u16 = 1;
const FILE: &str = "known";

/// Another node.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Known {
    /// Which.
    pub node: NodeId,
    /// Its directory.
    pub directory: DirectoryId,
    /// How often that had been opened.
    pub generation: u64,
}

pub(super) fn write(disk: &impl Disk, ours: DirectoryId, known: &[Known]) -> Result<(), Failure> {
    let mut bytes = vec![0; SEAL_LENGTH];
    bytes.extend(ours);
    for Known { node, directory, generation } in known {
        bytes.extend(node.0.to_le_bytes());
        bytes.extend(directory);
        bytes.extend(generation.to_le_bytes());
    }
    seal(MAGIC, VERSION, &mut bytes);
    let file = disk::begin_anew(disk, FILE).map_err(|error| Failure::of_opening(&error))?;
    disk::replace(disk, &file, FILE, &bytes).map_err(|error| Failure::of_write(&error))
}

/// Nobody, if it was never written.
pub(super) fn read(disk: &impl Disk, ours: DirectoryId) -> Result<Vec<Known>, Refused> {
    let bytes = match disk.open(FILE).and_then(|it| disk::read_whole(&it)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Refused::unusable(FILE, "read", &error)),
    };
    let rest = unseal(MAGIC, VERSION, &bytes).map_err(|wrong| match wrong {
        NoHead::Unknown => Refused::damaged(FILE, 0, "its checksum is wrong"),
        NoHead::Newer(version) => Refused::Newer { file: FILE.to_owned(), version },
    })?;
    decode(rest, ours).ok_or_else(|| Refused::damaged(FILE, 0, "it makes no sense, or is of another directory"))
}

fn decode(bytes: &[u8], ours: DirectoryId) -> Option<Vec<Known>> {
    let mut reader = Reader(bytes);
    if reader.take(ours.len())? != ours {
        return None;
    }
    let mut known = Vec::new();
    while !reader.0.is_empty() {
        let (node, directory) = (NodeId(reader.u32()?), reader.take(16)?.try_into().ok()?);
        known.push(Known { node, directory, generation: reader.u64()? });
    }
    Some(known)
}
