//! A process tree as something that can be signalled, frozen, killed and known to be dead, whatever its processes do.
//!
//! Two means: a control group where one can be made, and descent from the guardian, which is a subreaper. Daemons that fork twice, take a session of their own, ignore
//! signals or close all descriptors stay in both. Only a process with the right to move itself into another control group leaves the first, and then the second
//! still holds it; what leaves both had help from somebody outside, as with `systemd-run` or `docker run`: that process was never in the tree.

use std::collections::BTreeSet;
use std::io;
use std::thread;
use std::time::Duration;

use incumbent_protocol::time::Instant;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::cgroup::Cgroup;
use crate::clock;
use crate::descendants;

/// How long a sweep waits for what it killed to be gone, before it looks again.
const SWEEP: Duration = Duration::from_millis(1);

/// Who forks while the others are stopped is looked for so many times.
const SWEEPS_MAX: usize = 64;

/// What holds a tree together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    /// The descendants of this one, a subreaper, are the tree.
    pub root: Pid,
    /// The control group, if one could be made.
    pub cgroup: Option<Cgroup>,
}

impl Tree {
    /// Whether nobody of it lives, as far as could be seen before `give_up`. Those who have ended and were not waited for are dead.
    pub fn is_dead(&self, give_up: Instant) -> io::Result<bool> {
        if let Some(cgroup) = &self.cgroup
            && cgroup.is_populated()?
        {
            return Ok(false);
        }
        Ok(descendants::are_dead(self.root, give_up))
    }

    /// Sends a signal to all of it, or to those it gets to before `give_up`. Those who come while this looks may miss it.
    pub fn signal(&self, signal: Signal, give_up: Instant) {
        if let Some(cgroup) = &self.cgroup {
            for pid in cgroup.processes(give_up).into_iter().take_while(|_| clock::now() < give_up) {
                // Between the list and here the number may have changed hands only if the one on it is dead; the handle is opened before it is believed.
                if let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty())
                    && cgroup.holds(pid)
                {
                    let _ = pidfd_send_signal(pidfd, signal);
                }
            }
        }
        for process in self.strays(give_up) {
            descendants::send(&process, signal);
        }
    }

    /// Those whom no control group holds, as long as `give_up` has not come: all of it where there is none, and where there is one, who has left it.
    fn strays(&self, give_up: Instant) -> impl Iterator<Item = descendants::Process> {
        let living = descendants::living(self.root, give_up).into_iter().take_while(move |_| clock::now() < give_up);
        living.filter(|it| !self.cgroup.as_ref().is_some_and(|cgroup| cgroup.holds(it.pid)))
    }

    /// Stops all of it where it is, or those it gets to before `give_up`.
    pub fn freeze(&self, give_up: Instant) -> io::Result<()> {
        let Some(cgroup) = &self.cgroup else {
            self.stop_all(give_up);
            return Ok(());
        };
        cgroup.freeze()?;
        let mut stopped = BTreeSet::new();
        for _ in 0..SWEEPS_MAX {
            let before = stopped.len();
            for process in self.strays(give_up) {
                if stopped.insert(process.key()) {
                    descendants::send(&process, Signal::STOP);
                }
            }
            if stopped.len() == before {
                break;
            }
        }
        Ok(())
    }

    /// Lets it go on, or those it gets to before `give_up`.
    pub fn thaw(&self, give_up: Instant) -> io::Result<()> {
        for process in self.strays(give_up) {
            descendants::send(&process, Signal::CONT);
        }
        self.cgroup.as_ref().map_or(Ok(()), Cgroup::thaw)
    }

    /// Kills all of it, and again whoever was missed, until it is dead or `give_up` has come. Says whether it is dead.
    pub fn kill_until_dead(&self, give_up: Option<Instant>) -> bool {
        loop {
            self.kill();
            if self.is_dead(Instant::NEVER).unwrap_or(false) {
                return true;
            }
            if give_up.is_some_and(|it| clock::now() >= it) {
                return false;
            }
            thread::sleep(SWEEP);
        }
    }

    /// Kills all of it once. They may live on for a moment.
    pub fn kill(&self) {
        // One that cannot be written to is gone, or has lost its rights; the descendants are killed either way.
        let killed = self.cgroup.as_ref().is_some_and(|it| it.kill().is_ok());
        let rest = if killed { descendants::living(self.root, Instant::NEVER) } else { self.stop_all(Instant::NEVER) };
        for process in rest {
            descendants::send(&process, Signal::KILL);
        }
    }

    /// Stops every descendant, so that none forks while the others are killed: a fork bomb outruns whoever kills one by one.
    fn stop_all(&self, give_up: Instant) -> Vec<descendants::Process> {
        /// Before each look at all, which takes longer than such a process lives.
        const LOOKS_AT_THE_NEWBORN: usize = 8;
        let mut stopped = BTreeSet::new();
        let mut known = BTreeSet::new();
        let mut living = Vec::new();
        for _ in 0..SWEEPS_MAX {
            for _ in 0..LOOKS_AT_THE_NEWBORN {
                descendants::stop_newborn(self.root, &mut known, give_up);
            }
            living = descendants::living(self.root, give_up);
            let before = stopped.len();
            for process in living.iter().take_while(|_| clock::now() < give_up) {
                if stopped.insert(process.key()) {
                    descendants::send(process, Signal::STOP);
                }
            }
            if stopped.len() == before {
                break;
            }
        }
        living
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A shell that is the root of a tree: it does what the script says, with the directory of a control group as `$0`.
    struct Root {
        shell: Child,
        tree: Tree,
    }

    impl Root {
        /// Returns when the script has said a line, with that line.
        fn run(script: &str) -> (Root, String) {
            let cgroup = Cgroup::make(&Cgroup::name_here()).expect("this test needs the right to make control groups");
            let mut shell = Command::new("sh").args(["-c", script]).arg(cgroup.path()).stdout(Stdio::piped()).spawn().unwrap();
            let mut line = String::new();
            BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
            let root = Pid::from_raw(shell.id().cast_signed()).unwrap();
            (Root { shell, tree: Tree { root, cgroup: Some(cgroup) } }, line)
        }

        fn cgroup(&self) -> &Cgroup {
            self.tree.cgroup.as_ref().unwrap()
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            self.tree.kill_until_dead(None);
            self.shell.kill().unwrap();
            self.shell.wait().unwrap();
            self.cgroup().remove();
        }
    }

    /// One in the group, and one that was there and has left it, whose number is said.
    const ONE_AND_A_STRAY: &str = r#"
        sh -c 'echo 0 > "$0/cgroup.procs"; exec sleep 1000' "$0" >&2 &
        sh -c 'echo 0 > "$0/cgroup.procs"; echo 0 > "$0/../cgroup.procs"; exec sleep 1000' "$0" >&2 &
        until [ "$(wc -l < "$0/cgroup.procs")" = 1 ] && [ "$(cat /proc/$!/comm)" = sleep ]; do sleep 0.01; done
        echo $!
        wait"#;

    #[test]
    fn who_has_left_the_group_is_frozen_and_signalled_with_the_others() {
        let (root, stray) = Root::run(ONE_AND_A_STRAY);
        let is_stopped = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", stray.trim())).unwrap();
            assert!(!stat.contains(") Z "), "it was not to end yet");
            stat.contains(") T ")
        };
        let is_frozen = || std::fs::read_to_string(root.cgroup().path().join("cgroup.freeze")).unwrap() == "1\n";
        // When the time for it is over, nobody hears of it.
        root.tree.signal(Signal::KILL, clock::now());
        root.tree.freeze(Instant::NEVER).unwrap();
        assert!(is_frozen());
        while !is_stopped() {
            thread::yield_now();
        }
        assert_eq!(root.cgroup().processes(Instant::NEVER).len(), 1);
        root.tree.thaw(Instant::NEVER).unwrap();
        assert!(!is_frozen());
        while is_stopped() {
            thread::yield_now();
        }
        root.tree.signal(Signal::TERM, Instant::NEVER);
        while !root.tree.is_dead(Instant::NEVER).unwrap() {
            thread::yield_now();
        }
    }
}
