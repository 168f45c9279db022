//! Files that are read again when they change: a cheap look at whether one has, and what came of it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What changes when a file is written or replaced, or when its mode does.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// Of what was found.
    pub fn of(found: &Metadata) -> Stamp {
        Stamp {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }

    /// Of what has this name now; `None` if there is nothing.
    pub fn at(path: &Path) -> Option<Stamp> {
        std::fs::metadata(path).ok().map(|it| Stamp::of(&it))
    }
}

/// What a second look at a file came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reread {
    /// It is as it was.
    Unchanged,
    /// It has changed, and what it says now holds.
    Changed,
    /// It has changed and cannot be used: why. What it said before still holds. Not told again until it changes once more.
    Kept(String),
}
