//! A directory of this machine as a [`Disk`].
//!
//! - One process at a time: the directory is locked for as long as it is open.
//! - Room is taken from the file system when a file is made, so that a full disk shows there and not in the middle of a commit.
//! - The log is written past the kernel's cache where the file system can do that (direct.rs), else through it.
//!
//! Left out: a file system that confirms a sync without having made it. Nobody can tell.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{FallocateFlags, OFlags};

use super::DirectoryId;
use super::direct::{Direct, Stage};
use super::disk::{Disk, DiskFile};
use super::identity;
use super::refused::Refused;

/// A directory, in use by this process.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Open for as long as we are, for the syncs of names.
    names: File,
    lock: File,
    stage: Stage,
}

/// A file of it.
#[derive(Debug)]
pub struct FolderFile {
    file: File,
    /// The same file, to be written past the cache.
    direct: Option<Direct>,
    /// Why it is not, after all.
    cannot: OnceLock<io::Error>,
}

const LOCK: &str = "lock";

impl Folder {
    /// Opens the directory at `path`, or makes it, and keeps everyone else out.
    pub fn open(path: &Path) -> Result<Folder, Refused> {
        let unusable = |what| move |error: io::Error| Refused::unusable(path.display(), what, &error);
        if !path.exists() {
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
            let parent = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
            made.and_then(|()| File::open(parent)?.sync_all()).map_err(unusable("make"))?;
        }
        let lock = File::options().create(true).truncate(false).write(true).open(path.join(LOCK)).map_err(unusable("use"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Refused::InUse { path: path.display().to_string() }),
            Err(TryLockError::Error(error)) => return Err(unusable("lock")(error)),
        }
        let names = File::open(path).map_err(unusable("read"))?;
        Ok(Folder { path: path.to_path_buf(), names, lock, stage: Stage::new() })
    }

    /// Whether there is nothing in the directory yet, or no directory, that says whose it is. One that cannot be looked at may be somebody's.
    pub fn is_nobodys(path: &Path) -> bool {
        path.join(identity::FILE).try_exists().is_ok_and(|it| !it)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self, name: &str, file: File) -> FolderFile {
        let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap_or_default();
        // A file system that cannot do it says so here.
        let direct = File::options().write(true).custom_flags(flags).open(self.path.join(name)).ok();
        FolderFile { direct: direct.map(|it| self.stage.direct(it)), ..FolderFile::from(file) }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // To close it is not enough: a process that is just being started has a copy of the file until it runs its own program.
        let _ = self.lock.unlock();
    }
}

impl Disk for Folder {
    type File = FolderFile;

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // A name that is no text is none of ours.
            if let Ok(name) = entry?.file_name().into_string()
                && name != LOCK
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<FolderFile> {
        let file = File::options().read(true).write(true).open(self.path.join(name))?;
        // After a sync that failed the kernel may keep what it could not write, as if it had: what counts is what the disk has. A hint: some
        // file systems do not take it, and then there is nothing to be done.
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        Ok(self.file(name, file))
    }

    fn create(&self, name: &str, size: u64) -> io::Result<FolderFile> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(self.path.join(name))?;
        if size > 0 {
            match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size) {
                Ok(()) => {}
                // Not every file system can; the zeros that are written next take the room.
                Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => file.set_len(size)?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.file(name, file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        self.names.sync_all()
    }

    fn draw(&self) -> io::Result<DirectoryId> {
        let mut id = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut id)?;
        Ok(id)
    }
}

/// A file of any directory, only to be read.
impl From<File> for FolderFile {
    fn from(file: File) -> FolderFile {
        FolderFile { file, direct: None, cannot: OnceLock::new() }
    }
}

impl DiskFile for FolderFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn append_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if let Some(direct) = self.direct.as_ref().filter(|_| self.cannot.get().is_none()) {
            match direct.append(&self.file, bytes, offset) {
                // Some say so only when it is tried, or want larger blocks.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => drop(self.cannot.set(error)),
                written => return written,
            }
        }
        self.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        // fdatasync: the length too, but not the times. Files that are opened for O_DSYNC were no faster (`benches/log.rs`), and every seal would wait.
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_past_the_cache_is_written_through_it() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("log");
        let file = File::options().read(true).write(true).create_new(true).open(&path).expect("made");
        // A file that takes no block says what a file system says which cannot do it.
        let refuses = File::options().write(true).open("/proc/self/oom_score_adj").expect("it is everybody's own");
        let file = FolderFile { direct: Some(Stage::new().direct(refuses)), ..FolderFile::from(file) };
        for (offset, bytes) in [(0, "one"), (3, "two")] {
            file.append_at(bytes.as_bytes(), offset).expect("written");
        }
        assert!(file.cannot.get().is_some(), "it was tried once");
        assert_eq!(std::fs::read(&path).expect("read"), b"onetwo");
    }
}
