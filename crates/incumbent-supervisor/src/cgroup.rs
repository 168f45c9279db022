//! A control group (v2) for one process tree: whatever the tree forks stays in it, it dies as one, and the kernel says when nobody in it is left alive.
//!
//! What it cannot hold is a process with the right to move itself into another control group; see [`crate::tree`].

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use incumbent_protocol::time::Instant;
use rustix::process::{Pid, getpid};

use crate::clock;

/// How the names of groups begin that guardians make.
const PREFIX: &str = "incumbent-";

/// How long those who were killed have before one looks again.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A control group that was made for a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// What the group of this process's tree is called. The number of a process comes again, and the group of one that was killed may still be there.
    pub fn name_here() -> String {
        format!("{PREFIX}{}-{}", getpid(), clock::now().as_nanos())
    }

    /// Makes one beneath that of this process; says in one line why it cannot.
    pub fn make(name: &str) -> Result<Cgroup, String> {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = own_group(&groups).ok_or("this process is in no control group of version 2")?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mounted = mount_point(&mounts).ok_or("no control groups of version 2 are mounted")?;
        let parent = mounted.join(own.trim_start_matches('/'));
        let path = parent.join(name);
        fs::create_dir(&path).map_err(|why| format!("no control group can be made in {}: {why}", parent.display()))?;
        let group = Cgroup { path };
        match group.examine() {
            Ok(()) => Ok(group),
            Err(why) => {
                group.remove();
                Err(why)
            }
        }
    }

    /// One that was made before, perhaps by a process that is no more.
    pub fn at(path: PathBuf) -> Cgroup {
        Cgroup { path }
    }

    /// Whether all that will be asked of it can be.
    fn examine(&self) -> Result<(), String> {
        for (file, since) in [("cgroup.kill", "5.14"), ("cgroup.freeze", "5.2")] {
            if !self.path.join(file).exists() {
                return Err(format!("control groups here have no {file}: Linux {since} or newer is needed"));
            }
        }
        // To move a process one must be allowed to write there and where it comes from.
        for directory in [Some(self.path.as_path()), self.path.parent()].into_iter().flatten() {
            let procs = directory.join("cgroup.procs");
            let opened = fs::OpenOptions::new().write(true).open(&procs);
            opened.map_err(|why| format!("processes cannot be moved by {}: {why}", procs.display()))?;
        }
        Ok(())
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Moves the calling process into it.
    pub fn join(&self) -> io::Result<()> {
        self.write("cgroup.procs", "0")
    }

    /// Kills all in it, and in those beneath it. They are not dead when this returns.
    pub fn kill(&self) -> io::Result<()> {
        self.write("cgroup.kill", "1")
    }

    /// Kills all in it, and whoever comes meanwhile, until nobody in it lives or `give_up` has come; for a thread that may wait.
    pub fn kill_until_empty(&self, give_up: Option<Instant>) {
        // One that cannot be looked at, because no file can be opened any more, is not known to be empty.
        while self.is_populated().unwrap_or(true) && give_up.is_none_or(|it| clock::now() < it) {
            // Gone between the two, or somebody's who may: the next look tells.
            let _ = self.kill();
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Stops all in it where they are.
    pub fn freeze(&self) -> io::Result<()> {
        self.write("cgroup.freeze", "1")
    }

    /// Lets them go on.
    pub fn thaw(&self) -> io::Result<()> {
        self.write("cgroup.freeze", "0")
    }

    /// Whether anybody in it, or beneath it, lives. One that has been removed has nobody.
    pub fn is_populated(&self) -> io::Result<bool> {
        match fs::read_to_string(self.path.join("cgroup.events")) {
            Ok(events) => Ok(!events.lines().any(|it| it == "populated 0")),
            Err(why) if is_gone(&why) => Ok(false),
            Err(why) => Err(why),
        }
    }

    /// All in it and beneath it, or those that were found before `give_up`. Others may come while this looks.
    pub fn processes(&self, give_up: Instant) -> Vec<Pid> {
        let mut found = Vec::new();
        let mut to_visit = vec![self.path.clone()];
        while clock::now() < give_up
            && let Some(directory) = to_visit.pop()
        {
            let procs = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
            found.extend(procs.lines().filter_map(|it| it.parse().ok()).filter_map(Pid::from_raw));
            to_visit.extend(directories_in(&directory));
        }
        found
    }

    /// Whether this process is in it or beneath it now. One small file is read, however many there are.
    pub fn holds(&self, pid: Pid) -> bool {
        let groups = fs::read_to_string(format!("/proc/{}/cgroup", pid.as_raw_nonzero())).unwrap_or_default();
        // No other group since the boot has had its name, and what the path begins with depends on who looks.
        own_group(&groups).is_some_and(|it| Path::new(it).iter().any(|it| Some(it) == self.path.file_name()))
    }

    /// Removes it and those beneath it, if nobody is in them.
    pub fn remove(&self) {
        remove_tree(&self.path);
    }

    /// Removes the groups beside it that guardians left which were killed together with their supervisors: named for a process that is no more, made more than `age` ago, and empty. The
    /// age is for those whose process is in another namespace and cannot be seen from here, and who have not moved in yet.
    pub fn sweep_beside(&self, age: Duration) {
        for path in self.path.parent().into_iter().flat_map(directories_in) {
            let maker = path.file_name().and_then(|it| maker(it.to_str()?));
            let is_old =
                || fs::metadata(&path).and_then(|it| it.modified()).is_ok_and(|it| it.elapsed().is_ok_and(|it| it >= age));
            if maker.is_some_and(|it| !Path::new("/proc").join(it).exists()) && is_old() {
                // The kernel keeps those in which somebody lives.
                remove_tree(&path);
            }
        }
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        // Never creates: in a directory that is no control group that would pretend success.
        let mut file = fs::OpenOptions::new().write(true).open(self.path.join(file))?;
        io::Write::write_all(&mut file, text.as_bytes())
    }
}

/// Whether the control group is not there any more.
pub(crate) fn is_gone(why: &io::Error) -> bool {
    // A control group that is removed while it is open answers ENODEV.
    why.kind() == io::ErrorKind::NotFound || why.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

fn directories_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|it| it.file_type().is_ok_and(|it| it.is_dir())).map(|it| it.path()).collect()
}

fn remove_tree(directory: &Path) {
    for child in directories_in(directory) {
        remove_tree(&child);
    }
    // What is still in use stays; whoever uses the name next finds it by the lock file's note.
    let _ = fs::remove_dir(directory);
}

/// The number of the process that made the group with this name, if a guardian did.
fn maker(name: &str) -> Option<&str> {
    let (process, when) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let is_number = |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit());
    (is_number(process) && is_number(when)).then_some(process)
}

/// The path of the v2 group in /proc/self/cgroup, or in that of another process.
fn own_group(text: &str) -> Option<&str> {
    let path = text.lines().find_map(|it| it.strip_prefix("0::"))?;
    // Outside of the namespace's root, names lead nowhere.
    (!path.starts_with("/..")).then_some(path)
}

/// Where the v2 hierarchy is mounted whole, in /proc/self/mountinfo.
fn mount_point(text: &str) -> Option<PathBuf> {
    text.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        (kind.starts_with("cgroup2 ") && root == "/").then(|| PathBuf::from(point.replace("\\040", " ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As when no file can be opened any more: then nobody knows, and whoever has nothing to fear from it goes on.
    #[test]
    fn a_group_that_cannot_be_looked_at_is_not_waited_for_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("cgroup.events")).unwrap();
        Cgroup::at(folder.path().to_owned()).kill_until_empty(Some(clock::now()));
    }

    #[test]
    fn the_own_group_and_the_mount_are_found_on_hybrid_and_unified_hosts() {
        assert_eq!(own_group("4:memory:/x\n0::/user.slice/a\n"), Some("/user.slice/a"));
        assert_eq!(own_group("4:memory:/x\n"), None);
        assert_eq!(own_group("0::/../other\n"), None);
        let hybrid = "25 20 0:22 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n30 25 0:26 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_point(hybrid), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(mount_point("25 20 0:22 /sub /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"), None);
        assert_eq!(mount_point("rubbish\n"), None);
    }

    #[test]
    fn only_the_empty_groups_of_guardians_that_are_gone_are_swept() {
        assert_eq!(maker("incumbent-17-99"), Some("17"));
        for foreign in ["incumbent.service", "incumbent-rounds-17-1", "incumbent-17", "incumbent--1", "other-17-99"] {
            assert_eq!(maker(foreign), None, "{foreign}");
        }
        // To directories it does what it does to groups; what keeps a group is that somebody is in it, and a directory the same.
        let parent = tempfile::tempdir().unwrap();
        // No process has a number as great.
        let (gone, populated) = (parent.path().join("incumbent-4194305-1"), parent.path().join("incumbent-4194305-2"));
        let (lives, foreign) =
            (parent.path().join(format!("incumbent-{}-1", getpid())), parent.path().join("somebody-4194305-1"));
        let all = [&gone, &populated, &lives, &foreign];
        all.iter().for_each(|it| fs::create_dir(it).unwrap());
        fs::write(populated.join("somebody"), "").unwrap();
        Cgroup::at(gone.clone()).sweep_beside(Duration::from_secs(3600));
        assert!(all.iter().all(|it| it.exists()), "not before their time");
        Cgroup::at(lives.clone()).sweep_beside(Duration::ZERO);
        assert_eq!(all.map(|it| it.exists()), [false, true, true, true]);
    }
}
