//! Whose directory it is: the cluster's, the node's, a number drawn when it was made, and how often it was opened.
//!
//! Directory and generation are what nodes tell each other when they meet (the switchboard of `incumbent-peer`): a directory that was exchanged for an old copy of itself,
//! or for an empty one, cannot notice that by itself, but the others remember.
//!
//! The file has two pages that are written by turns, in place, so that a node on a full disk can still be started. A page that cannot be read was being written when the node
//! ended, or is damaged: in either case its generation was at most one more than the other's, so that one is left out, and no generation is ever had twice.

use std::io;

use incumbent_protocol::protocol::NodeId;

use super::DirectoryId;
use super::disk::{self, Disk, DiskFile as _};
use super::record::{NoHead, Reader, SEAL_LENGTH, seal, unseal};
use super::refused::Refused;

const MAGIC: [u8; 8] = *b"incu\r_id";
/// The format. Magic, version and checksum stay where they are in every later one.
const VERSION: u16 = 1;
pub(super) const FILE: &str = "identity";
/// How names of files begin that are there only when the directory was in use.
const OURS: [&str; 5] = ["log-", "spare-", "snapshot-", "incoming-", "known"];
/// Longer names of clusters are refused.
const NAME_LENGTH_MAX: usize = 1024;
/// So large that no disk touches two of them at once.
const PAGE: usize = 4096;
const _: () = assert!(SEAL_LENGTH + 16 + 8 + 4 + 4 + NAME_LENGTH_MAX <= PAGE);

/// Who wants to use a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The cluster's name.
    pub cluster: String,
    /// The node.
    pub node: NodeId,
}

/// Whose a directory is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Owner {
    pub(super) identity: Identity,
    pub(super) directory: DirectoryId,
    /// 0 while the directory is being made.
    pub(super) generation: u64,
    /// The page that is written next: not the one that counts.
    page: u64,
}

impl Owner {
    /// Reads whose the directory is, or makes it `identity`'s if it is new.
    pub(super) fn read(disk: &impl Disk, identity: &Identity) -> Result<Owner, Refused> {
        let length = identity.cluster.len();
        if length > NAME_LENGTH_MAX {
            return Err(Refused::TooLong { what: "the name of the cluster", length, length_max: NAME_LENGTH_MAX });
        }
        let unusable = |what| move |error: io::Error| Refused::unusable(FILE, what, &error);
        let names = disk.names().map_err(unusable("look for"))?;
        if !names.iter().any(|it| it == FILE) {
            // Other files may be there: that of a file system in its root, for one.
            if names.iter().any(|it| OURS.iter().any(|ours| it.starts_with(ours)) && !it.ends_with(".new")) {
                return Err(Refused::Gone { what: format!("the file '{FILE}'") });
            }
            let directory = disk.draw().map_err(unusable("find a random number for"))?;
            let owner = Owner { identity: identity.clone(), directory, generation: 0, page: 1 };
            let made = disk::begin_anew(disk, FILE).and_then(|file| disk::replace(disk, &file, FILE, &owner.encode().repeat(2)));
            made.map_err(unusable("make"))?;
            return Ok(owner);
        }
        let bytes = disk.open(FILE).and_then(|it| disk::read_whole(&it)).map_err(unusable("read"))?;
        let owner = Owner::decode(&bytes)?;
        let Identity { cluster, node } = &owner.identity;
        if *cluster != identity.cluster {
            return Err(Refused::OtherCluster { belongs_to: cluster.clone(), wanted_for: identity.cluster.clone() });
        }
        if *node != identity.node {
            return Err(Refused::OtherNode { belongs_to: *node, wanted_for: identity.node });
        }
        Ok(owner)
    }

    /// Whether the directory is anybody's.
    pub(super) fn is_there(disk: &impl Disk) -> Result<bool, Refused> {
        let names = disk.names().map_err(|error| Refused::unusable("the directory", "list", &error))?;
        Ok(names.iter().any(|it| it == FILE))
    }

    /// Notes that the directory was opened once more. It counts only when that is on the disk.
    pub(super) fn count_opening(&mut self, disk: &impl Disk) -> Result<(), Refused> {
        self.generation += 1;
        let written = disk.open(FILE).and_then(|file| {
            file.write_at(&self.encode(), self.page * PAGE as u64)?;
            file.sync()
        });
        written.map_err(|error| Refused::unusable(FILE, "write", &error))?;
        self.page = 1 - self.page;
        Ok(())
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; SEAL_LENGTH];
        bytes.extend(self.directory);
        bytes.extend(self.generation.to_le_bytes());
        bytes.extend(self.identity.node.0.to_le_bytes());
        let length = u32::try_from(self.identity.cluster.len()).expect("checked when the name came in");
        bytes.extend(length.to_le_bytes());
        bytes.extend(self.identity.cluster.as_bytes());
        bytes.resize(PAGE, 0);
        seal(MAGIC, VERSION, &mut bytes);
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Owner, Refused> {
        let (Some(first), Some(second)) = (bytes.get(..PAGE), bytes.get(PAGE..2 * PAGE)) else {
            return Err(Refused::damaged(FILE, bytes.len() as u64, "it is cut off"));
        };
        match (Owner::decode_page(first)?, Owner::decode_page(second)?) {
            (Some(first), Some(second)) => {
                if (&first.identity, first.directory) != (&second.identity, second.directory) {
                    return Err(Refused::damaged(FILE, 0, "it belongs to two nodes"));
                }
                Ok(if first.generation > second.generation { first } else { Owner { page: 0, ..second } })
            }
            (Some(first), None) => Ok(Owner { generation: first.generation + 1, page: 1, ..first }),
            (None, Some(second)) => Ok(Owner { generation: second.generation + 1, page: 0, ..second }),
            (None, None) => Err(Refused::damaged(FILE, 0, "its checksums are wrong")),
        }
    }

    /// As if it were the first page. `None` if it is not whole.
    fn decode_page(bytes: &[u8]) -> Result<Option<Owner>, Refused> {
        let mut reader = match unseal(MAGIC, VERSION, bytes) {
            Ok(rest) => Reader(rest),
            Err(NoHead::Unknown) => return Ok(None),
            Err(NoHead::Newer(version)) => return Err(Refused::Newer { file: FILE.to_owned(), version }),
        };
        Ok((|| {
            let directory = reader.take(16)?.try_into().ok()?;
            let (generation, node) = (reader.u64()?, NodeId(reader.u32()?));
            let cluster = String::from_utf8(reader.bytes()?.to_vec()).ok()?;
            Some(Owner { identity: Identity { cluster, node }, directory, generation, page: 1 })
        })())
    }
}
