//! The processes that descend from one, as /proc tells it: what is left of a tree that no control group holds.
//!
//! A process whose parent dies is given to the nearest living subreaper above it, so nobody leaves the tree by forking twice.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use incumbent_protocol::time::Instant;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::clock;

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

/// The descendants of a process, without itself, as they were found in one look.
///
/// One look proves nothing about a tree whose processes fork: who is born behind the reader's back is not seen. See [`are_dead`].
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) living: Vec<Process>,
    /// Those who have ended, and nobody has asked how.
    dead: BTreeSet<(i32, u64)>,
}

/// The living descendants of `root`, without itself. Nobody if `give_up` comes before all have been looked at.
pub(crate) fn living(root: Pid, give_up: Instant) -> Vec<Process> {
    find(root, give_up).unwrap_or_default().living
}

/// Whether nobody who descends from `root` lives, as far as could be seen before `give_up`.
///
/// Two looks, because in one a process may fork and end while it is read, and its child has been read past: a chain of such processes would look dead for ever. If all that
/// the first look found were dead, whoever still lives has been given to `root` by then, and stays beneath it, dead or alive, until `root` waits for it: so the second look
/// finds somebody that the first has not.
pub(crate) fn are_dead(root: Pid, give_up: Instant) -> bool {
    let Some(first) = find(root, give_up) else { return false };
    if !first.living.is_empty() {
        return false;
    }
    if first.dead.is_empty() {
        return true;
    }
    find(root, give_up).is_some_and(|second| second.living.is_empty() && second.dead.is_subset(&first.dead))
}

/// One look. It takes as long as there are processes on this machine, and `None` means that `give_up` came first, or that not all of them could be looked at: who has no file descriptor
/// left sees nobody, and knows nothing.
fn find(root: Pid, give_up: Instant) -> Option<Found> {
    if children(root).is_some_and(|it| it.is_empty()) {
        return Some(Found::default());
    }
    find_in(Path::new("/proc"), root, give_up)
}

fn find_in(proc: &Path, root: Pid, give_up: Instant) -> Option<Found> {
    let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    for entry in fs::read_dir(proc).ok()? {
        if clock::now() >= give_up {
            return None;
        }
        let entry = entry.ok()?;
        let Some(number) = entry.file_name().to_str().and_then(|it| it.parse().ok()) else { continue };
        match fs::read_to_string(entry.path().join("stat")) {
            Ok(stat) => {
                if let Some(process) = parse(number, &stat) {
                    children.entry(process.parent).or_default().push(process);
                }
            }
            Err(why) if is_gone(&why) => {}
            // Another user's, where those are hidden (hidepid).
            Err(why) if why.kind() == io::ErrorKind::PermissionDenied => {}
            Err(_) => return None,
        }
    }
    let mut seen = BTreeSet::new();
    let mut found = Found::default();
    let mut to_visit = vec![root.as_raw_nonzero().get()];
    while let Some(parent) = to_visit.pop() {
        // While /proc is read, numbers change hands: what looks like a circle is none.
        if seen.insert(parent) {
            for child in children.get(&parent).into_iter().flatten() {
                to_visit.push(child.pid.as_raw_nonzero().get());
                if child.is_dead {
                    found.dead.insert(child.key());
                } else {
                    found.living.push(*child);
                }
            }
        }
    }
    Some(found)
}

/// Stops the children of `root` that are not `known` yet, the youngest first. Fast, because it must be faster than a process that lives only to fork the next: who ends
/// hands its child to `root`, and there it is caught.
pub(crate) fn stop_newborn(root: Pid, known: &mut BTreeSet<i32>, give_up: Instant) {
    for number in children(root).unwrap_or_default().into_iter().rev().take_while(|_| clock::now() < give_up) {
        if known.insert(number)
            && let Some(pid) = Pid::from_raw(number)
            && let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty())
            && look(&number.to_string()).is_some_and(|it| it.parent == root.as_raw_nonzero().get())
        {
            let _ = pidfd_send_signal(pidfd, Signal::STOP);
        }
    }
}

/// The children of a process, dead or alive, in the order in which they came to it, if this kernel lists them.
fn children(root: Pid) -> Option<Vec<i32>> {
    let root = root.as_raw_nonzero();
    let mut found = Vec::new();
    for thread in fs::read_dir(format!("/proc/{root}/task")).ok()? {
        // A thread that has ended has left its children to another, which may have been read by then.
        let list = fs::read_to_string(thread.ok()?.path().join("children")).ok()?;
        found.extend(list.split_ascii_whitespace().filter_map(|it| it.parse::<i32>().ok()));
    }
    Some(found)
}

/// Sends a signal to this process and never to another that has its number by now. Says whether it was sent.
pub(crate) fn send(process: &Process, signal: Signal) -> bool {
    let Ok(pidfd) = pidfd_open(process.pid, PidfdFlags::empty()) else { return false };
    // From here the number cannot change hands unnoticed.
    let is_same = look(&process.pid.as_raw_nonzero().to_string()).is_some_and(|it| it.began == process.began);
    is_same && pidfd_send_signal(pidfd, signal).is_ok()
}

/// A process that ends while it is looked at.
fn is_gone(why: &io::Error) -> bool {
    why.kind() == io::ErrorKind::NotFound || why.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

fn look(pid: &str) -> Option<Process> {
    let number = pid.parse().ok()?;
    parse(number, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse(number: i32, stat: &str) -> Option<Process> {
    // The name in brackets may hold anything, brackets too.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let threads: u32 = fields.nth(15)?.parse().ok()?;
    let began = fields.nth(1)?.parse().ok()?;
    // One whose first thread has ended looks like one that has ended, and works on as long as another thread does.
    let is_dead = state == "X" || state == "Z" && threads <= 1;
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
    fn who_has_only_lost_its_first_thread_is_not_dead() {
        let is_dead = |state: &str, threads: u32| {
            let stat = format!("7 (a) {state} 3 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 {threads} 0 8812 1000 1\n");
            parse(7, &stat).unwrap().is_dead
        };
        for (state, threads, dead) in
            [("Z", 2, false), ("Z", 1, true), ("Z", 0, true), ("X", 2, true), ("S", 1, false), ("R", 5, false)]
        {
            assert_eq!(is_dead(state, threads), dead, "{state} {threads}");
        }
    }

    #[test]
    fn a_look_that_fails_proves_nobody_dead() {
        let folder = tempfile::tempdir().unwrap();
        let root = rustix::process::getpid();
        let look = |at: &str| find_in(&folder.path().join(at), root, Instant::NEVER);
        assert!(look("nowhere").is_none());
        let gone = folder.path().join("proc/4711");
        fs::create_dir_all(&gone).unwrap();
        fs::create_dir(folder.path().join("proc/self")).unwrap();
        assert!(look("proc").is_some_and(|it| it.living.is_empty()), "one that has ended is gone");
        // Whatever it is that cannot be read.
        fs::create_dir(gone.join("stat")).unwrap();
        assert!(look("proc").is_none());
    }

    #[test]
    fn a_child_is_found_and_signalled_until_it_is_dead() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let own = rustix::process::getpid();
        let found =
            living(own, Instant::NEVER).into_iter().find(|it| it.pid.as_raw_nonzero().get() == child.id().cast_signed()).unwrap();
        assert!(send(&found, Signal::KILL));
        child.wait().unwrap();
        assert!(!send(&found, Signal::KILL));
        assert!(!living(own, Instant::NEVER).contains(&found));
    }

    #[test]
    fn who_has_ended_and_was_not_waited_for_is_dead() {
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "sleep 60 & echo; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let root = Pid::from_raw(shell.id().cast_signed()).unwrap();
        std::io::Read::read_exact(&mut shell.stdout.take().unwrap(), &mut [0]).unwrap();
        assert!(!are_dead(root, Instant::NEVER));
        let sleeper = living(root, Instant::NEVER)[0];
        // Stopped, the shell cannot wait for its child.
        rustix::process::kill_process(root, Signal::STOP).unwrap();
        assert!(send(&sleeper, Signal::KILL));
        while !are_dead(root, Instant::NEVER) {
            std::thread::yield_now();
        }
        assert!(!are_dead(root, clock::now()), "there was no time to see that");
        shell.kill().unwrap();
        shell.wait().unwrap();
    }
}
