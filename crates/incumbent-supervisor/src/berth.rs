//! A lock that stands for "a tree of this election may live on this machine". It is the kernel's, held by supervisor and guardian together: it is free when both are gone, and the
//! guardian goes only after the tree.
//!
//! Both have it by one description of an open file, so either can give it back for both: the guardian does, when the tree is dead and the lease is over and nothing is heard of a supervisor that
//! somebody has stopped. Whoever goes on after that finds out by taking it again.
//!
//! On an engine whose seat is free at once when the supervisor dies (`file:`), this is what keeps the next command from starting while the last one is being killed. The file also
//! names the control group, so that what both left behind when they were killed in the same instant is found and killed by the next.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crate::cgroup::Cgroup;

/// The lock.
#[derive(Debug)]
pub struct Berth {
    file: File,
}

impl Berth {
    /// Opens it, and does not take it yet.
    pub fn at(path: &Path) -> io::Result<Berth> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        Ok(Berth { file })
    }

    /// The one that a supervisor has passed on.
    pub(crate) fn of(descriptor: OwnedFd) -> Berth {
        Berth { file: File::from(descriptor) }
    }

    /// For the guardian to hold open.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Takes it if nobody has it. Says whether it is ours; one that was ours already stays so.
    pub fn try_take(&self) -> io::Result<bool> {
        match self.file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(why)) => Err(why),
        }
    }

    /// Waits until it is ours; for a thread that may wait. Also for the end of a tree that was left behind.
    pub fn take(&self) -> io::Result<()> {
        self.file.lock()
    }

    /// The control group that whoever had it last has named, if it did not end in order.
    pub fn left_behind(&self) -> io::Result<Option<Cgroup>> {
        let mut text = String::new();
        (&self.file).rewind()?;
        (&self.file).read_to_string(&mut text)?;
        let path = PathBuf::from(text.trim_end_matches('\n'));
        // Only what is still there, and is one of ours by its name: the file may have been tampered with.
        let is_ours = path.file_name().is_some_and(|it| it.as_encoded_bytes().starts_with(b"incumbent-"));
        Ok((is_ours && path.join("cgroup.kill").exists()).then(|| Cgroup::at(path)))
    }

    /// Names the control group of the tree that is about to live.
    pub fn name(&self, cgroup: Option<&Path>) -> io::Result<()> {
        self.file.set_len(0)?;
        (&self.file).rewind()?;
        if let Some(cgroup) = cgroup {
            (&self.file).write_all(cgroup.as_os_str().as_encoded_bytes())?;
        }
        Ok(())
    }

    /// Gives it back, if it was taken, with whatever stands in it: nobody knows whether what was left behind is dead.
    pub fn let_go(&self) -> io::Result<()> {
        self.file.unlock()
    }

    /// Gives it back: nothing lives of the tree in the control group `own`. If it is another's by now, or was meanwhile, so is the name in it: that is erased only if it is `own`, or if nothing is there
    /// any more by that name.
    pub fn leave(&self, own: Option<&Path>) -> io::Result<()> {
        if !self.try_take()? {
            return Ok(());
        }
        if self.left_behind()?.is_none_or(|it| Some(it.path()) == own) {
            self.file.set_len(0)?;
        }
        self.file.unlock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that was stopped, and has had its berth given back for it, does not know who has had it since.
    #[test]
    fn whoever_leaves_erases_its_own_name_and_those_of_the_gone_alone() {
        let folder = tempfile::tempdir().unwrap();
        let group = |name: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join("cgroup.kill"), "").unwrap();
            path
        };
        let (own, others) = (group("incumbent-1"), group("incumbent-2"));
        let berth = Berth::at(&folder.path().join("berth")).unwrap();
        let left_behind = || berth.left_behind().unwrap().map(|it| it.path().to_owned());
        let is_free = || Berth::at(&folder.path().join("berth")).unwrap().try_take().unwrap();
        berth.take().unwrap();
        berth.name(Some(&own)).unwrap();
        berth.leave(Some(&own)).unwrap();
        assert!(left_behind().is_none() && is_free());

        berth.name(Some(&others)).unwrap();
        for own in [Some(own.as_path()), None] {
            berth.leave(own).unwrap();
            assert!(left_behind().as_deref() == Some(&others) && is_free());
        }

        std::fs::remove_dir_all(&others).unwrap();
        berth.leave(None).unwrap();
        assert_eq!(std::fs::read(folder.path().join("berth")).unwrap(), b"");
    }
}
