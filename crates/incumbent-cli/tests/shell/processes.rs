//! Processes as /proc shows them: who lives, who is whose child, who bears a test's mark. Knows nothing of any election.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// The variable by which a test knows all processes that a command of its own has made, wherever they went.
pub(crate) const MARK: &str = "INCUMBENT_TEST_MARK";

/// All that live and were started with this mark in their environment, or forked from one that was.
pub(crate) fn marked(mark: &str) -> Vec<u32> {
    let wanted = format!("{MARK}={mark}");
    all()
        .into_iter()
        .filter(|id| {
            // The environment of one that has ended is empty.
            let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
            environment.split(|it| *it == 0).any(|it| it == wanted.as_bytes())
        })
        .collect()
}

/// The living guardians whose parent is this process.
pub(crate) fn guardians_of(supervisor: u32) -> Vec<u32> {
    let is_guardian = |id: &u32| {
        let words = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        words.split(|it| *it == 0).next() == Some(b"incumbent-guardian".as_slice())
    };
    all().into_iter().filter(|id| parent(*id) == Some(supervisor)).filter(is_guardian).collect()
}

/// The living processes whose parent is this one.
pub(crate) fn children_of(id: u32) -> Vec<u32> {
    all().into_iter().filter(|it| parent(*it) == Some(id) && lives(*it)).collect()
}

/// Whether a process of this id is alive. One that nobody has buried yet is not.
pub(crate) fn lives(id: u32) -> bool {
    letter(id).is_some_and(|it| !matches!(it, 'Z' | 'X'))
}

/// The children of this one that have ended, and nobody has asked how.
pub(crate) fn zombies_of(id: u32) -> usize {
    all().into_iter().filter(|it| parent(*it) == Some(id) && letter(*it) == Some('Z')).count()
}

/// Whether it was stopped by a signal, or with its control group.
pub(crate) fn stands_still(id: u32) -> bool {
    letter(id) == Some('T') || is_frozen(id).unwrap_or(false)
}

/// Sends a signal. One that is gone hears nothing, which is no error.
pub(crate) fn signal(id: u32, what: Signal) {
    if let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, what);
    }
}

/// Stops them all before any of them is killed: as a power cut does it, none sees the death of another.
pub(crate) fn kill_at_once(ids: &[u32]) {
    for id in ids {
        signal(*id, Signal::STOP);
    }
    // Those beneath first: a guardian that is stopped is woken by the death of its supervisor, and would clean up.
    for id in ids.iter().rev() {
        signal(*id, Signal::KILL);
    }
}

fn all() -> Vec<u32> {
    fs::read_dir("/proc").unwrap().flatten().filter_map(|it| it.file_name().to_str()?.parse().ok()).collect()
}

fn parent(id: u32) -> Option<u32> {
    fields(id)?.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn letter(id: u32) -> Option<char> {
    fields(id)?.chars().next()
}

/// What /proc says of it behind its name, which stands in brackets and may hold anything.
fn fields(id: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    Some(stat.rsplit(')').next()?.trim_start().to_owned())
}

fn is_frozen(id: u32) -> Option<bool> {
    let groups = fs::read_to_string(format!("/proc/{id}/cgroup")).ok()?;
    let group = groups.lines().find_map(|it| it.strip_prefix("0::/"))?.to_owned();
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = mounts.lines().find(|it| it.split(' ').nth(2) == Some("cgroup2"))?.split(' ').nth(1)?;
    let events = fs::read_to_string(format!("{mount}/{group}/cgroup.events")).ok()?;
    Some(events.lines().any(|it| it == "frozen 1"))
}
