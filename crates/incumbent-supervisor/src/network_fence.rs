//! The kernel lease fence: what a tree sends is dropped by the kernel once the leadership's deadline has passed.
//!
//! A supervisor that kills in time needs to run in time. A machine that stops everything (a paused virtual machine, SIGSTOP, a
//! hypervisor's migration) and goes on after the deadline runs the tree's next instruction before anyone's timer, and that instruction may
//! be a send. So the check stands where the packet is: an eBPF program on the tree's cgroup compares the deadline with `CLOCK_BOOTTIME`
//! (the clock of [`crate::clock`], it counts suspend) for each packet, and refuses it from the deadline on. No timer can be late.
//!
//! Promises: a fence starts closed. It is pinned in the kernel's bpf file system, so the death of who attached it, kill -9 included, leaves
//! it in force: nobody extends, the deadline passes, the tree is silent. It covers every IP packet, IPv4 and IPv6, to loopback too (a
//! write to a local database is as stale as any), from each socket that was created inside the cgroup or below it; so also what the kernel
//! still sends for a dead process. A refused `sendto` fails with EPERM; TCP keeps the bytes and tries again until it gives up.
//!
//! Leaves out: sockets created outside of the cgroup and passed in (a socket belongs to the cgroup where it was created), Unix sockets,
//! packet sockets (`AF_PACKET`, `AF_XDP`, `AF_VSOCK`), file systems on the network (the kernel's own sockets), answers that the kernel makes
//! without the tree's socket (a TCP reset, the last acknowledgement; no payload), and a tree that has the privilege and the will to leave
//! its cgroup. The check comes before the queue of the device: a packet let through just before the deadline may wait there and leave the
//! machine after it, so the deadline given here must be earlier than the lease's end by the longest stay in that queue.

mod pin;
mod program;

use std::error::Error as Cause;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use incumbent_protocol::time::Instant;
use rustix::fs::{FsWord, statfs};
use rustix::io::Errno;

/// An egress filter on a cgroup with a deadline.
///
/// To drop it changes nothing in the kernel: the fence stays with its last deadline until the cgroup is removed and its last socket is
/// gone, because the kernel may still be sending what a killed process left behind. What stays in the bpf file system is cleared away by the
/// next [`attach`](Self::attach) or [`sweep`] of anyone.
pub struct NetworkFence {
    deadline: Mutex<program::Deadline>,
    link: pin::Link,
}

impl NetworkFence {
    /// Whether this machine and our privileges allow a fence, found by trying all but the last step. Leaves nothing behind but the bpf
    /// file system, mounted where every distribution has it. Worth doing before an election: the first call in a process takes some 50 ms,
    /// and whatever comes after it, [`attach`](Self::attach) too, a few.
    pub fn probe() -> Result<(), Error> {
        mixed_hierarchies()?;
        if !mounts()?.any(|mount| mount.kind == "cgroup2") {
            return Err(Error::NoCgroup2 { place: PathBuf::from("/sys/fs/cgroup") });
        }
        pin::folder()?;
        program::load().map(drop)
    }

    /// Fences the cgroup. Nothing leaves it before the first [`extend`](Self::extend).
    ///
    /// Attach before the first process joins: its sockets would be fenced all the same, but may have sent already. A cgroup has one fence in
    /// its life: for the next leadership make a new cgroup, so that bytes that the last tree left behind stay behind.
    pub fn attach(cgroup: &Path) -> Result<Self, Error> {
        mixed_hierarchies()?;
        let directory = File::open(cgroup).map_err(|error| Error::step(format!("open {}", cgroup.display()), error))?;
        let magic = statfs(cgroup).map_err(|error| Error::step(format!("look at {}", cgroup.display()), error.into()))?.f_type;
        if magic != CGROUP2_MAGIC {
            return Err(Error::NoCgroup2 { place: cgroup.to_owned() });
        }
        let folder = pin::folder()?;
        pin::sweep(&folder);
        let (program, deadline) = program::load()?;
        let link = program.attach(&directory)?;
        let link = pin::Link::pin(link, &folder, &directory, cgroup)?;
        Ok(Self { deadline: Mutex::new(deadline), link })
    }

    /// From now on packets pass until `until`, be it later or earlier than what was said before. After an error the old deadline holds.
    pub fn extend(&self, until: Instant) -> Result<(), Error> {
        // One word is written by one call to the kernel: whoever panicked in between left no half of it.
        self.deadline.lock().unwrap_or_else(PoisonError::into_inner).set(until)
    }

    /// Lets nothing pass any more. To be called when the tree is dead and before the leadership is given back early: the kernel may still be
    /// sending what a dead process left in its sockets, and would do so until the old deadline.
    pub fn close(&self) -> Result<(), Error> {
        self.extend(Instant::from_nanos(0))
    }

    /// Takes the fence away while the cgroup lives on: from now on everything passes.
    pub fn detach(self) -> Result<(), Error> {
        self.link.unpin()
    }
}

/// Clears away what is left of fences whose cgroup is gone, with its last socket. For whoever starts on this machine, with a fence or without: nobody else may come who has one. Where there is
/// nothing, or we may not look, nothing is done.
pub fn sweep() {
    pin::sweep(&pin::usual_folder());
}

impl fmt::Debug for NetworkFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetworkFence").field("link", &self.link).finish_non_exhaustive()
    }
}

/// `CGROUP2_SUPER_MAGIC`.
const CGROUP2_MAGIC: FsWord = 0x6367_7270;

/// Why there is no fence. Each says in one line what is missing and what to do.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The kernel forbids the step.
    NotPermitted {
        /// What was tried.
        step: String,
    },
    /// The kernel does not know what the fence needs.
    OldKernel {
        /// What was tried.
        step: String,
    },
    /// There is no cgroup v2 where one was named or looked for.
    NoCgroup2 {
        /// The path.
        place: PathBuf,
    },
    /// An old kernel with network controllers of cgroup v1: sockets may belong to no cgroup v2, and the fence would silently not see them.
    MixedHierarchies,
    /// The kernel's clock is not the one that we read.
    OtherClock,
    /// There is no bpf file system to pin the fence in, and none could be mounted.
    NoBpfFileSystem {
        /// Why it could not be mounted.
        error: io::Error,
    },
    /// The cgroup has or had a fence already.
    AlreadyFenced {
        /// The cgroup.
        cgroup: PathBuf,
    },
    /// Something else, in the kernel's words.
    Step {
        /// What was tried.
        step: String,
        /// What came of it.
        error: io::Error,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no network fence: ")?;
        match self {
            Self::NotPermitted { step } => {
                write!(
                    f,
                    "not permitted to {step}; run as root, or with CAP_BPF and CAP_NET_ADMIN outside of a user namespace and a bpf \
                     file system you may write to"
                )
            }
            Self::OldKernel { step } => {
                write!(f, "this kernel cannot {step}; Linux 5.8 or later with CONFIG_CGROUP_BPF and CONFIG_BPF_SYSCALL is needed")
            }
            Self::NoCgroup2 { place } => {
                write!(f, "{} is no cgroup v2; mount one with `mount -t cgroup2 none DIRECTORY` or boot with it", place.display())
            }
            Self::MixedHierarchies => write!(
                f,
                "before Linux 5.15 sockets escape it while net_cls or net_prio of cgroup v1 are mounted; unmount them, or use a later kernel"
            ),
            Self::OtherClock => f.write_str("our CLOCK_BOOTTIME is shifted from the kernel's; run outside of the time namespace"),
            Self::NoBpfFileSystem { error } => {
                write!(f, "no bpf file system at {}: {error}; mount one with `mount -t bpf bpf {0}`", pin::BPF_FILE_SYSTEM)
            }
            Self::AlreadyFenced { cgroup } => {
                write!(f, "{} has or had one already; make a new cgroup for each leadership", cgroup.display())
            }
            Self::Step { step, error } => write!(f, "could not {step}: {error}"),
        }
    }
}

impl Cause for Error {
    fn source(&self) -> Option<&(dyn Cause + 'static)> {
        match self {
            Self::NoBpfFileSystem { error } | Self::Step { error, .. } => Some(error),
            Self::NotPermitted { .. }
            | Self::OldKernel { .. }
            | Self::NoCgroup2 { .. }
            | Self::MixedHierarchies
            | Self::OtherClock
            | Self::AlreadyFenced { .. } => None,
        }
    }
}

impl Error {
    fn step(step: impl Into<String>, error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(Errno::PERM | Errno::ACCESS) => Self::NotPermitted { step: step.into() },
            Some(_) | None => Self::Step { step: step.into(), error },
        }
    }

    /// From an error of the eBPF library, which wraps the kernel's answer in several layers, or has found something itself.
    fn foreign(step: &str, error: &(dyn Cause + 'static)) -> Self {
        let mut layers = std::iter::successors(Some(error), |&it| it.source());
        match layers.find_map(|it| it.downcast_ref::<io::Error>()).and_then(io::Error::raw_os_error) {
            // The verifier says EINVAL to a helper that it does not know, and the system call ENOSYS where it is not built in.
            Some(code) if [Errno::INVAL, Errno::NOSYS].map(Errno::raw_os_error).contains(&code) => {
                Self::OldKernel { step: step.to_owned() }
            }
            Some(code) => Self::step(step, io::Error::from_raw_os_error(code)),
            None => Self::Step { step: step.to_owned(), error: io::Error::other(error.to_string()) },
        }
    }
}

/// Refuses the one known setting in which a fence is attached and sees nothing: until Linux 5.15 a socket remembered its cgroup v2 and its
/// classes of v1 in one field, and the latter won.
fn mixed_hierarchies() -> Result<(), Error> {
    let release =
        fs::read_to_string("/proc/sys/kernel/osrelease").map_err(|error| Error::step("read the kernel's version", error))?;
    let old = version(&release).is_none_or(|it| it < (5, 15));
    let controllers =
        |mount: &Mount| mount.kind == "cgroup" && mount.options.split(',').any(|it| it == "net_cls" || it == "net_prio");
    if old && mounts()?.any(|mount| controllers(&mount)) { Err(Error::MixedHierarchies) } else { Ok(()) }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|it: char| !it.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

struct Mount {
    kind: String,
    options: String,
}

/// What is mounted, from `/proc/self/mounts`: device, place, kind, options.
fn mounts() -> Result<impl Iterator<Item = Mount>, Error> {
    let text = fs::read_to_string("/proc/self/mounts").map_err(|error| Error::step("read what is mounted", error))?;
    let lines: Vec<Mount> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(2);
            Some(Mount { kind: words.next()?.to_owned(), options: words.next()?.to_owned() })
        })
        .collect();
    Ok(lines.into_iter())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_distributions_write_them() {
        assert_eq!(version("6.18.5+deb13-amd64\n"), Some((6, 18)));
        assert_eq!(version("5.14.0-427.el9.x86_64\n"), Some((5, 14)));
        assert_eq!(version("unknown\n"), None);
    }

    #[test]
    fn an_error_says_what_to_do() {
        let not_permitted = Error::foreign("load the filter", &io::Error::from(Errno::PERM));
        assert!(not_permitted.to_string().contains("CAP_BPF and CAP_NET_ADMIN"), "{not_permitted}");
        let old = Error::foreign("load the filter", &io::Error::from(Errno::INVAL));
        assert!(old.to_string().contains("Linux 5.8 or later"), "{old}");
        let full = Error::foreign("load the filter", &io::Error::from(Errno::NOMEM));
        assert!(full.to_string().contains("could not load the filter: "), "{full}");
    }
}
