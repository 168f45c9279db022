//! Notes: small files that change seldom and are written whole: under another name, synced, then renamed.
//!
//! A note is either the old one or the new one, whenever the node ends. One that is damaged is refused, never taken for absent.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use incumbent_protocol::protocol::NodeId;

use super::ledger::Reader;
use super::{DirectoryId, Failure, Members, Refused, sync_directory};

const MAGIC: [u8; 8] = *b"incunote";
/// The format. Magic and version stay where they are in every later one, and the checksum at the end.
const VERSION: u16 = 1;
const CHECKSUM_LENGTH: usize = 4;

/// A file of the directory.
pub(super) struct Note {
    path: PathBuf,
    new: PathBuf,
    directory: PathBuf,
}

/// What a note says, and where it stands.
pub(super) struct Written {
    path: PathBuf,
    payload: Vec<u8>,
}

impl Note {
    pub(super) fn members(directory: &Path) -> Note {
        Note { path: directory.join("members"), new: directory.join("members.new"), directory: directory.to_path_buf() }
    }

    pub(super) fn known(directory: &Path) -> Note {
        Note { path: directory.join("known"), new: directory.join("known.new"), directory: directory.to_path_buf() }
    }

    /// What it says; `None` if it was never written.
    pub(super) fn read(self, directory: DirectoryId) -> Result<Option<Written>, Refused> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Refused::unusable(&self.path, "read", error)),
        };
        let damaged = |what: &str| Refused::damaged(&self.path, what);
        let (body, checksum) = bytes
            .split_last_chunk::<CHECKSUM_LENGTH>()
            .map(|(body, last)| (body, *last))
            .ok_or_else(|| damaged("it is cut off"))?;
        if crc32c::crc32c(body).to_le_bytes() != checksum {
            return Err(damaged("its checksum is wrong"));
        }
        let mut reader = Reader(body);
        if reader.take(MAGIC.len()) != Some(&MAGIC) {
            return Err(damaged("it is no note of ours"));
        }
        let version = reader.u16().ok_or_else(|| damaged("it is cut off"))?;
        if version > VERSION {
            return Err(Refused::Newer { path: self.path, version });
        }
        if reader.take(16) != Some(&directory) {
            return Err(damaged("it was written for another directory"));
        }
        Ok(Some(Written { payload: reader.0.to_vec(), path: self.path }))
    }

    pub(super) fn write(&self, directory: DirectoryId, payload: &[u8]) -> Result<(), Failure> {
        let mut bytes = Vec::from(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(directory);
        bytes.extend(payload);
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        let mut file = File::create(&self.new).map_err(|error| Failure::of_write(&error))?;
        file.write_all(&bytes).map_err(|error| Failure::of_write(&error))?;
        file.sync_all().map_err(|error| Failure::of_sync(&error))?;
        fs::rename(&self.new, &self.path).map_err(|error| Failure::of_write(&error))?;
        sync_directory(&self.directory).map_err(|error| Failure::of_sync(&error))
    }
}

pub(super) fn members_to(members: &Members) -> Vec<u8> {
    let mut bytes = Vec::from(members.version.to_le_bytes());
    bytes.extend(count(members.list.len()));
    for (node, address) in &members.list {
        bytes.extend(node.0.to_le_bytes());
        bytes.extend(count(address.len()));
        bytes.extend(address.as_bytes());
    }
    bytes
}

pub(super) fn members_from(note: &Written) -> Result<Members, Refused> {
    let mut reader = Reader(&note.payload);
    let members = (|| {
        let version = reader.u64()?;
        let mut list = Vec::new();
        for _ in 0..reader.u32()? {
            let node = NodeId(reader.u32()?);
            let length = reader.u32()?;
            list.push((node, String::from_utf8(reader.take(length as usize)?.to_vec()).ok()?));
        }
        reader.0.is_empty().then_some(Members { version, list })
    })();
    members.ok_or_else(|| Refused::damaged(&note.path, "it makes no sense"))
}

pub(super) fn known_to(known: &BTreeMap<NodeId, (DirectoryId, u64)>) -> Vec<u8> {
    let mut bytes = Vec::from(count(known.len()));
    for (node, (directory, generation)) in known {
        bytes.extend(node.0.to_le_bytes());
        bytes.extend(directory);
        bytes.extend(generation.to_le_bytes());
    }
    bytes
}

pub(super) fn known_from(note: &Written) -> Result<BTreeMap<NodeId, (DirectoryId, u64)>, Refused> {
    let mut reader = Reader(&note.payload);
    let known = (|| {
        let mut known = BTreeMap::new();
        for _ in 0..reader.u32()? {
            let node = NodeId(reader.u32()?);
            let directory = reader.take(16)?.try_into().ok()?;
            known.insert(node, (directory, reader.u64()?));
        }
        reader.0.is_empty().then_some(known)
    })();
    known.ok_or_else(|| Refused::damaged(&note.path, "it makes no sense"))
}

fn count(of: usize) -> [u8; 4] {
    u32::try_from(of).expect("nobody has four thousand million of anything here").to_le_bytes()
}
