//! The directory in which the socket is: only its owner may enter it, and it goes with its owner.
//!
//! A process that is killed leaves its directory behind. A lock in it, which the kernel frees then, tells the next one that nobody needs it any more: numbers of processes come
//! again, and in another namespace the same one lives.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// What all of them begin with.
const PREFIX: &str = "incumbent-";
/// So many processes of one number can share a directory for their rooms, each in a namespace of its own.
const NAMESAKES_MAX: u32 = 64;

/// A directory of one's own, removed with this.
#[derive(Debug)]
pub(super) struct Room {
    path: PathBuf,
    /// Locked as long as this process lives.
    _lock: File,
}

impl Room {
    /// Where rooms are by custom: paths are short there, because the name of a socket has at most 107 letters.
    pub(super) fn usual_base() -> PathBuf {
        let usual = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|it| it.is_absolute() && it.is_dir());
        let base = usual.or_else(|| {
            let run = Path::new("/run");
            (rustix::process::geteuid().is_root() && run.is_dir()).then(|| run.to_owned())
        });
        base.unwrap_or_else(std::env::temp_dir)
    }

    /// Makes one, and removes those whose owners are gone.
    pub(super) fn make(base: &Path) -> io::Result<Room> {
        sweep(base);
        let id = std::process::id();
        let names = std::iter::once(format!("{PREFIX}{id}")).chain((2..=NAMESAKES_MAX).map(|it| format!("{PREFIX}{id}-{it}")));
        for path in names.map(|it| base.join(it)) {
            DirBuilder::new().mode(0o700).recursive(true).create(&path)?;
            // In a directory for all, somebody else may have made it first, to answer in our place.
            if !is_private(&std::fs::symlink_metadata(&path)?) {
                continue;
            }
            if let Some(lock) = lock_anew(&path)? {
                // Left by one of the same number that was killed.
                let _ = std::fs::remove_file(path.join("socket"));
                return Ok(Room { path, _lock: lock });
            }
        }
        Err(io::Error::other(format!("{NAMESAKES_MAX} directories of the names {PREFIX}{id} are others' there")))
    }

    /// Where the socket is to be.
    pub(super) fn socket(&self) -> PathBuf {
        self.path.join("socket")
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        clear(&self.path);
    }
}

/// Takes the lock of a room. `None` if it is another's, who lives or is about to remove it.
fn lock_anew(path: &Path) -> io::Result<Option<File>> {
    let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path.join("lock"));
    let lock = match opened {
        Ok(lock) => lock,
        Err(why) if matches!(why.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => return Ok(None),
        Err(why) => return Err(why),
    };
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(why)) => return Err(why),
    }
    // Somebody may have swept it away between the two.
    Ok(is_at(&lock, &path.join("lock")).then_some(lock))
}

/// A directory that nobody but this user may enter.
fn is_private(found: &Metadata) -> bool {
    found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 == 0
}

fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::symlink_metadata(path)) {
        (Ok(file), Ok(found)) => (file.dev(), file.ino()) == (found.dev(), found.ino()),
        (_, _) => false,
    }
}

/// Removes the rooms of this user whose owners are gone. One without a lock is not known to be a room.
fn sweep(base: &Path) {
    let own = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        let is_room = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes())
            && entry.file_type().is_ok_and(|it| it.is_dir())
            && entry.metadata().is_ok_and(|it| it.uid() == own);
        if !is_room {
            continue;
        }
        let path = entry.path();
        if let Ok(lock) = File::open(path.join("lock"))
            && lock.try_lock().is_ok()
            && is_at(&lock, &path.join("lock"))
        {
            clear(&path);
        }
    }
}

/// Only what belongs in it: whatever else somebody has put there keeps it.
fn clear(path: &Path) {
    for name in ["socket", "lock"] {
        let _ = std::fs::remove_file(path.join(name));
    }
    let _ = std::fs::remove_dir(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_others_may_enter_is_no_room() {
        let base = tempfile::tempdir().unwrap();
        let id = std::process::id();
        DirBuilder::new().mode(0o755).create(base.path().join(format!("{PREFIX}{id}"))).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), base.path().join(format!("{PREFIX}{id}-2"))).unwrap();
        let room = Room::make(base.path()).unwrap();
        assert_eq!(room.path, base.path().join(format!("{PREFIX}{id}-3")));
    }

    #[test]
    fn rooms_of_the_dead_are_swept_and_those_of_the_living_are_not() {
        let base = tempfile::tempdir().unwrap();
        let dead = base.path().join("incumbent-1");
        let strange = base.path().join("incumbent-strange");
        for room in [&dead, &strange] {
            std::fs::create_dir(room).unwrap();
        }
        std::fs::write(dead.join("lock"), "").unwrap();
        std::fs::write(dead.join("socket"), "").unwrap();
        std::fs::write(strange.join("file"), "").unwrap();
        let first = Room::make(base.path()).unwrap();
        assert!(!dead.exists() && strange.join("file").exists());
        std::fs::write(first.socket(), "").unwrap();
        // Of the same number, as from another namespace.
        let second = Room::make(base.path()).unwrap();
        assert_ne!(first.socket(), second.socket());
        assert!(first.socket().exists());
        let gone = first.path.clone();
        drop(first);
        assert!(!gone.exists() && second.path.exists());
    }
}
