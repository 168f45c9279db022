//! What the log asks of a disk: a few operations on the files of one directory, so that a test can lose, tear, flip, misdirect, fill and fail.
//!
//! Names are those of files in the directory, never paths. Nothing here is asynchronous: whoever must not wait gives the log a thread of its own.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::DirectoryId;

/// A directory that belongs to one log.
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// An open file of it.
    type File: DiskFile;

    /// The names of all files.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Opens a file that exists.
    fn open(&self, name: &str) -> io::Result<Self::File>;
    /// Makes an empty file, in place of one of that name, with room for `size` bytes: they read as zeros.
    fn create(&self, name: &str, size: u64) -> io::Result<Self::File>;
    /// Gives a file another name, in place of one that has it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Takes a name away; who has the file open may still read it.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// After this, names that were given, changed and taken away stay so.
    fn sync_names(&self) -> io::Result<()>;
    /// A number that no other directory has.
    fn draw(&self) -> io::Result<DirectoryId>;
}

/// An open file.
pub trait DiskFile: fmt::Debug + Send + Sync + 'static {
    /// How many bytes it has.
    fn length(&self) -> io::Result<u64>;
    /// Fills `bytes`; an error if there are not that many.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `bytes`, and makes the file longer if it must.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Writes all of `bytes` behind what the file holds. Whatever stands there already, up to the end of a block, may be zeros afterwards.
    fn append_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// After this, all that was written to the file stays.
    fn sync(&self) -> io::Result<()>;
}

impl<D: Disk> Disk for Arc<D> {
    type File = D::File;

    fn names(&self) -> io::Result<Vec<String>> {
        (**self).names()
    }

    fn open(&self, name: &str) -> io::Result<Self::File> {
        (**self).open(name)
    }

    fn create(&self, name: &str, size: u64) -> io::Result<Self::File> {
        (**self).create(name, size)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        (**self).rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        (**self).remove(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        (**self).sync_names()
    }

    fn draw(&self) -> io::Result<DirectoryId> {
        (**self).draw()
    }
}

/// All of a file.
pub(super) fn read_whole(file: &impl DiskFile) -> io::Result<Vec<u8>> {
    let length = usize::try_from(file.length()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = vec![0; length];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// A small file that is either the old one or the new one, whenever the node ends: the new one, still empty.
pub(super) fn begin_anew<D: Disk>(disk: &D, name: &str) -> io::Result<D::File> {
    disk.create(&new(name), 0)
}

/// Writes it, and puts it in the place of the old one.
pub(super) fn replace<D: Disk>(disk: &D, file: &D::File, name: &str, bytes: &[u8]) -> io::Result<()> {
    file.write_at(bytes, 0)?;
    file.sync()?;
    disk.rename(&new(name), name)?;
    disk.sync_names()
}

fn new(name: &str) -> String {
    format!("{name}.new")
}
