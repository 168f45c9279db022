//! Why a directory cannot be used, and why a write cannot be trusted. Each says what to do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use incumbent_protocol::protocol::NodeId;

/// Why a directory was refused. Nothing in it was changed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the messages below say it better")]
pub enum Refused {
    Unusable { path: PathBuf, what: &'static str, error: String },
    InUse { path: PathBuf },
    OtherNode { path: PathBuf, belongs_to: NodeId, wanted_for: NodeId },
    OtherCluster { path: PathBuf, belongs_to: String, wanted_for: String },
    Newer { path: PathBuf, version: u16 },
    Damaged { path: PathBuf, what: String },
    Gone { path: PathBuf },
    TooLong { what: &'static str, length: usize, length_max: usize },
}

impl Refused {
    pub(super) fn unusable(path: &Path, what: &'static str, error: impl fmt::Display) -> Self {
        Refused::Unusable { path: path.to_path_buf(), what, error: error.to_string() }
    }

    pub(super) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Refused::Damaged { path: path.to_path_buf(), what: what.into() }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Unusable { path, what, error } => {
                write!(f, "cannot {what} {}: {error}; give the node a directory that it may write to", path.display())
            }
            Refused::InUse { path } => write!(
                f,
                "{} is in use by another process: every node needs a directory of its own, and must run once",
                path.display()
            ),
            Refused::OtherNode { path, belongs_to, wanted_for } => write!(
                f,
                "{} belongs to node {belongs_to}, not to node {wanted_for}: give node {wanted_for} its own directory, or start this one as node {belongs_to}",
                path.display()
            ),
            Refused::OtherCluster { path, belongs_to, wanted_for } => write!(
                f,
                "{} belongs to the group '{belongs_to}', not to '{wanted_for}': correct the group's name, or give the node an empty directory",
                path.display()
            ),
            Refused::Newer { path, version } => write!(
                f,
                "{} was written by a later release (format {version}): start that release or a later one",
                path.display()
            ),
            Refused::Damaged { path, what } => write!(
                f,
                "{} is damaged ({what}): votes may be lost, so this node must not vote again under its id; remove it from the group, and add it under a new id with an empty directory",
                path.display()
            ),
            Refused::Gone { path } => write!(
                f,
                "{} is missing though the directory was in use: bring it back, or remove this node from the group and add it under a new id with an empty directory",
                path.display()
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
    /// The disk is full. What was there before is still there, and a later write may succeed.
    Full {
        /// What the system said.
        error: String,
    },
    /// The name does not fit. Nothing was written, and nothing ever will be for it.
    TooLong {
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
            Failure::Full { .. } | Failure::TooLong { .. } => false,
        }
    }

    /// What a failed write means, as long as nothing was synced since.
    pub(super) fn of_write(error: &io::Error) -> Self {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge];
        if full.contains(&error.kind()) {
            return Failure::Full { error: error.to_string() };
        }
        // Whatever else it is, nobody promises that it passes.
        Failure::of_sync(error)
    }

    /// What a failed sync means, whatever the system calls it.
    pub(super) fn of_sync(error: &io::Error) -> Self {
        Failure::Broken { error: error.to_string() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Full { error } => write!(f, "the disk is full ({error}): make room; until then this node cannot vote"),
            Failure::TooLong { length, length_max } => {
                write!(f, "the election's name has {length} bytes: at most {length_max} can be kept")
            }
            Failure::Broken { error } => {
                write!(
                    f,
                    "the disk failed ({error}): what is on it is not known, so this node ends; check the disk, then start it again"
                )
            }
        }
    }
}

impl std::error::Error for Failure {}
