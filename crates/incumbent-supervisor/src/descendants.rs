//! The processes that descend from one, as /proc tells it: what is left of a tree that no control group holds.
//!
//! A process whose parent dies is given to the nearest living subreaper above it, so nobody leaves the tree by forking twice.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process as it was when we looked.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Process {
    /// Its number, which another process may have by now.
    pub(crate) pid: Pid,
    /// Its parent's; zero for none.
    parent: i32,
    /// When it began, in ticks since boot: with the number it names one process.
    began: u64,
    /// It has ended, and nobody has asked how.
    is_dead: bool,
}

impl Process {
    /// What names it and no other since the boot.
    pub(crate) fn key(&self) -> (i32, u64) {
        (self.pid.as_raw_nonzero().get(), self.began)
    }
}

/// The living descendants of `root`, without itself.
pub(crate) fn living(root: Pid) -> Vec<Process> {
    if has_no_children(root) {
        return Vec::new();
    }
    let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|it| look(it.file_name().to_str()?)) {
        children.entry(process.parent).or_default().push(process);
    }
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    let mut to_visit = vec![root.as_raw_nonzero().get()];
    while let Some(parent) = to_visit.pop() {
        // While /proc is read, numbers change hands: what looks like a circle is none.
        if seen.insert(parent) {
            for child in children.get(&parent).into_iter().flatten() {
                to_visit.push(child.pid.as_raw_nonzero().get());
                found.push(*child);
            }
        }
    }
    found.retain(|it| !it.is_dead);
    found
}

/// Whether the kernel says so. It may not tell, and does not count the children of other threads; then all of /proc is read.
fn has_no_children(root: Pid) -> bool {
    let root = root.as_raw_nonzero();
    let threads = fs::read_dir(format!("/proc/{root}/task")).map_or(0, |it| it.count());
    threads == 1 && fs::read_to_string(format!("/proc/{root}/task/{root}/children")).is_ok_and(|it| it.trim().is_empty())
}

/// Sends a signal to this process and never to another that has its number by now. Says whether it was sent.
pub(crate) fn send(process: &Process, signal: Signal) -> bool {
    let Ok(pidfd) = pidfd_open(process.pid, PidfdFlags::empty()) else { return false };
    // From here the number cannot change hands unnoticed.
    let is_same = look(&process.pid.as_raw_nonzero().to_string()).is_some_and(|it| it.began == process.began);
    is_same && pidfd_send_signal(pidfd, signal).is_ok()
}

fn look(pid: &str) -> Option<Process> {
    let number = pid.parse().ok()?;
    parse(number, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse(number: i32, stat: &str) -> Option<Process> {
    // The name in brackets may hold anything, brackets too.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let is_dead = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    let began = fields.nth(17)?.parse().ok()?;
    Some(Process { pid: Pid::from_raw(number)?, parent, began, is_dead })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_confuses_nobody() {
        let stat = "7 (a) R 9 (b) Z 3 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 8812 1000 1\n";
        let process = parse(7, stat).unwrap();
        assert_eq!((process.parent, process.began, process.is_dead), (3, 8812, true));
        assert_eq!(parse(7, "7 (a"), None);
    }

    #[test]
    fn a_child_is_found_and_signalled_until_it_is_dead() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let own = rustix::process::getpid();
        let found = living(own).into_iter().find(|it| it.pid.as_raw_nonzero().get() == child.id().cast_signed()).unwrap();
        assert!(send(&found, Signal::KILL));
        child.wait().unwrap();
        assert!(!send(&found, Signal::KILL));
        assert!(!living(own).contains(&found));
    }
}
