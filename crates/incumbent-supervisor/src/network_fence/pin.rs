//! What keeps a fence in force when its maker is gone: a name for its link in the kernel's bpf file system, and the clearing away of names
//! whose cgroup is gone.
//!
//! A link without a name goes with the last process that has it open, so that a kill -9 would open the fence. The older way to attach, which
//! needs no name, is not offered by the library that spares us unsafe code.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use aya::pin::PinError;
use aya::programs::links::{FdLink, PinnedLink};
use rustix::fs::{FlockOperation, FsWord, flock, statfs};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

use super::Error;

/// Where every distribution mounts it.
pub(super) const BPF_FILE_SYSTEM: &str = "/sys/fs/bpf";

/// `BPF_FS_MAGIC`.
const BPF_FILE_SYSTEM_MAGIC: FsWord = 0xcafe_4a11_u32 as FsWord;

/// A name is this and the cgroup's number. Dots are not allowed there.
const PREFIX: &str = "network-fence-";

/// An attached filter with a name.
#[derive(Debug)]
pub(super) struct Link(PinnedLink);

impl Link {
    /// Gives the link of `cgroup` its name.
    pub(super) fn pin(link: FdLink, folder: &Path, directory: &File, cgroup: &Path) -> Result<Self, Error> {
        let step = "pin the eBPF filter";
        // The number of a cgroup is not used again until the next boot, and that clears the file system as well.
        let number = directory.metadata().map_err(|error| Error::step(step, error))?.ino();
        match link.pin(folder.join(format!("{PREFIX}{number}"))) {
            Ok(link) => Ok(Self(link)),
            Err(PinError::SyscallError(error)) if error.io_error.kind() == io::ErrorKind::AlreadyExists => {
                Err(Error::AlreadyFenced { cgroup: cgroup.to_owned() })
            }
            Err(error) => Err(Error::foreign(step, &error)),
        }
    }

    /// Takes the name away, and the link with it.
    pub(super) fn unpin(self) -> Result<(), Error> {
        self.0.unpin().map(drop).map_err(|error| Error::step("unpin the eBPF filter", error))
    }
}

/// The folder of our names. Mounts the bpf file system where that has not been done, as the kernel's own tool does.
pub(super) fn folder() -> Result<PathBuf, Error> {
    if !is_mounted()? {
        // Two at once would mount one over the other, and hide the names in the lower one.
        let place = File::open(BPF_FILE_SYSTEM).map_err(|error| Error::NoBpfFileSystem { error })?;
        flock(&place, FlockOperation::LockExclusive).map_err(|error| Error::NoBpfFileSystem { error: error.into() })?;
        if !is_mounted()? {
            let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            mount("bpf", BPF_FILE_SYSTEM, "bpf", flags, c"mode=0700")
                .map_err(|error| Error::NoBpfFileSystem { error: error.into() })?;
        }
    }
    let folder = usual_folder();
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(Error::step(format!("make {}", folder.display()), error))
        }
        Ok(()) | Err(_) => Ok(folder),
    }
}

/// Where it is, if anybody has made it.
pub(super) fn usual_folder() -> PathBuf {
    Path::new(BPF_FILE_SYSTEM).join("incumbent")
}

fn is_mounted() -> Result<bool, Error> {
    match statfs(BPF_FILE_SYSTEM) {
        Ok(found) => Ok(found.f_type == BPF_FILE_SYSTEM_MAGIC),
        // The directory is there whenever the kernel knows eBPF and /sys is mounted.
        Err(Errno::NOENT) => Err(Error::NoBpfFileSystem { error: Errno::NOENT.into() }),
        Err(error) => Err(Error::step(format!("look at {BPF_FILE_SYSTEM}"), error.into())),
    }
}

/// Clears away the names of fences whose cgroup is gone. The kernel itself says which, so that a fence that only we cannot see, in another
/// container's cgroups, is left alone; and whatever goes wrong leaves a name too many, never one too few.
pub(super) fn sweep(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|it| it.file_name().to_string_lossy().starts_with(PREFIX)) {
        let Ok(pinned) = PinnedLink::from_pin(entry.path()) else { continue };
        let link = FdLink::from(pinned);
        if cgroup_of(&link) == Some(0) {
            // Someone else may have been faster.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The number of the cgroup to which the link belongs; 0 when it is gone. The library does not say, but the kernel does for each open
/// descriptor.
fn cgroup_of(link: &FdLink) -> Option<u64> {
    let number = link.info().ok()?.id().to_string();
    fs::read_dir("/proc/self/fdinfo").ok()?.flatten().find_map(|descriptor| {
        let text = fs::read_to_string(descriptor.path()).ok()?;
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
        if field("link_id") == Some(&number) { field("cgroup_id")?.parse().ok() } else { None }
    })
}
