//! Why a directory cannot be used, why a write cannot be trusted, why an entry cannot be read. Each says what to do.

use std::fmt;
use std::io;

use incumbent_protocol::protocol::NodeId;
use rustix::io::Errno;

use super::HardState;

/// Why a directory was refused. Nothing in it was changed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the messages below say it better")]
pub enum Refused {
    Unusable {
        path: String,
        what: &'static str,
        error: String,
    },
    InUse {
        path: String,
    },
    OtherNode {
        belongs_to: NodeId,
        wanted_for: NodeId,
    },
    OtherCluster {
        belongs_to: String,
        wanted_for: String,
    },
    Newer {
        file: String,
        version: u16,
    },
    /// What was safe on the disk cannot be read any more.
    Damaged(Damage),
    Gone {
        what: String,
    },
    TooLong {
        what: &'static str,
        length: usize,
        length_max: usize,
    },
}

/// What is wrong with a log, and what of it is whole: enough to fetch the rest from the other nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// Where in it.
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
    /// The last entry before the damage that is whole with all before it; the snapshot's index if there is none.
    pub whole_through: u64,
    /// The greatest index of an entry that was seen behind the damage.
    pub seen_through: u64,
    /// The greatest term and its vote that were seen before or behind the damage: never vote below it, nor in it for another.
    pub state: HardState,
}

impl Refused {
    pub(super) fn unusable(path: impl fmt::Display, what: &'static str, error: &io::Error) -> Self {
        Refused::Unusable { path: path.to_string(), what, error: error.to_string() }
    }

    /// Damage to a file that is not the log's, so that nothing is known of entries.
    pub(super) fn damaged(file: &str, offset: u64, what: impl Into<String>) -> Self {
        Refused::Damaged(Damage::of(file, offset, what))
    }
}

impl Damage {
    pub(super) fn of(file: &str, offset: u64, what: impl Into<String>) -> Self {
        let state = HardState::default();
        Damage { file: file.to_owned(), offset, what: what.into(), whole_through: 0, seen_through: 0, state }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is damaged at byte {} ({})", self.file, self.offset, self.what)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Unusable { path, what, error } => {
                write!(f, "cannot {what} {path}: {error}; give the node a directory that it may write to, with room on its disk")
            }
            Refused::InUse { path } => {
                write!(f, "{path} is in use by another process: every node needs a directory of its own, and must run once")
            }
            Refused::OtherNode { belongs_to, wanted_for } => write!(
                f,
                "the directory belongs to node {belongs_to}, not to node {wanted_for}: give node {wanted_for} its own, or start this one as node {belongs_to}"
            ),
            Refused::OtherCluster { belongs_to, wanted_for } => write!(
                f,
                "the directory belongs to the cluster '{belongs_to}', not to '{wanted_for}': correct the cluster's name, or give the node an empty directory"
            ),
            Refused::Newer { file, version } => {
                write!(f, "{file} was written by a later release (format {version}): start that release or a later one")
            }
            Refused::Damaged(damage) => write!(
                f,
                "{damage}: entries that this node has confirmed are lost, so it must not vote; remove it from the cluster and add it under a new id with an empty directory, or bring back the file"
            ),
            Refused::Gone { what } => write!(
                f,
                "{what} is missing though the directory was in use: bring it back, or remove this node from the cluster and add it under a new id with an empty directory"
            ),
            Refused::TooLong { what, length, length_max } => {
                write!(f, "{what} has {length} bytes: at most {length_max} can be kept")
            }
        }
    }
}

impl std::error::Error for Refused {}

/// Why something was not written. The node must not act as if it had been.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The disk is full, or no more files can be opened. All that was there before is there and can be read, and a later write may succeed.
    Full {
        /// What the system said.
        error: String,
    },
    /// It does not fit. Nothing was written, and nothing ever will be of it.
    TooLarge {
        /// Its length in bytes.
        length: usize,
        /// What fits.
        length_max: usize,
    },
    /// The disk failed. What is on it now is not known, so nothing more is written: the node must end.
    Broken {
        /// What the system said.
        error: String,
    },
}

impl Failure {
    /// Whether nothing will be written any more.
    pub fn is_final(&self) -> bool {
        match self {
            Failure::Broken { .. } => true,
            Failure::Full { .. } | Failure::TooLarge { .. } => false,
        }
    }

    /// What a failure means of anything but a sync.
    pub(super) fn of_write(error: &io::Error) -> Self {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge];
        if full.contains(&error.kind()) {
            return Failure::Full { error: error.to_string() };
        }
        // Whatever else it is, nobody promises that it passes.
        Failure::of_sync(error)
    }

    /// What a failure to open or to make a file means. A lack of descriptors says nothing of the disk, and passes when connections end.
    pub(super) fn of_opening(error: &io::Error) -> Self {
        let lacking = [Errno::MFILE, Errno::NFILE].map(|it| Some(it.raw_os_error()));
        if lacking.contains(&error.raw_os_error()) {
            return Failure::Full { error: format!("{error}: no descriptor is left; raise the limit of open files") };
        }
        Failure::of_write(error)
    }

    /// What a failed sync means, whatever the system calls it: the kernel may have thrown away what it could not write, and a second
    /// sync that succeeds would prove nothing.
    pub(super) fn of_sync(error: &io::Error) -> Self {
        Failure::Broken { error: error.to_string() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Full { error } => {
                write!(f, "there is no room ({error}): make room; until then this node confirms nothing and only answers reads")
            }
            Failure::TooLarge { length, length_max } => write!(f, "it has {length} bytes: at most {length_max} can be kept"),
            Failure::Broken { error } => write!(
                f,
                "the disk failed ({error}): what is on it is not known, so this node ends; check the disk, then start it again"
            ),
        }
    }
}

impl std::error::Error for Failure {}

/// Why entries or pieces cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unreadable {
    /// They are in the snapshot, and no longer in the log.
    Compacted {
        /// The first that is there.
        first: u64,
    },
    /// There are none yet.
    Beyond {
        /// The last that is there.
        last: u64,
    },
    /// What is on the disk is not what was written. The other nodes have it: fetch it from them, and end this node's service.
    Damaged(Damage),
    /// The disk does not give it.
    Broken {
        /// What the system said.
        error: String,
    },
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreadable::Compacted { first } => write!(f, "the log begins at {first}: send the snapshot instead"),
            Unreadable::Beyond { last } => write!(f, "the log ends at {last}"),
            Unreadable::Damaged(damage) => write!(f, "{damage}: the other nodes have it; check the disk"),
            Unreadable::Broken { error } => write!(f, "the disk cannot be read ({error}): check it"),
        }
    }
}

impl std::error::Error for Unreadable {}
