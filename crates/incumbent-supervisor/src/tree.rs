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

/// What holds a tree together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    /// The descendants of this one, a subreaper, are the tree.
    pub root: Pid,
    /// The control group, if one could be made.
    pub cgroup: Option<Cgroup>,
}

impl Tree {
    /// Whether nobody of it lives. Those who have ended and were not waited for are dead.
    pub fn is_dead(&self) -> io::Result<bool> {
        if let Some(cgroup) = &self.cgroup
            && cgroup.is_populated()?
        {
            return Ok(false);
        }
        Ok(descendants::are_dead(self.root))
    }

    /// Sends a signal to all of it. Those who come while this looks may miss it.
    pub fn signal(&self, signal: Signal) {
        if let Some(cgroup) = &self.cgroup {
            for pid in cgroup.processes() {
                // Between the list and here the number may have changed hands only if the one on it is dead; the handle is opened before it is believed.
                if let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty())
                    && cgroup.processes().contains(&pid)
                {
                    let _ = pidfd_send_signal(pidfd, signal);
                }
            }
        } else {
            for process in descendants::living(self.root) {
                descendants::send(&process, signal);
            }
        }
    }

    /// Stops all of it where it is.
    pub fn freeze(&self) -> io::Result<()> {
        match &self.cgroup {
            Some(cgroup) => cgroup.freeze(),
            None => {
                self.stop_all();
                Ok(())
            }
        }
    }

    /// Lets it go on.
    pub fn thaw(&self) -> io::Result<()> {
        match &self.cgroup {
            Some(cgroup) => cgroup.thaw(),
            None => {
                self.signal(Signal::CONT);
                Ok(())
            }
        }
    }

    /// Kills all of it, and again whoever was missed, until it is dead or `give_up` has come. Says whether it is dead.
    pub fn kill_until_dead(&self, give_up: Option<Instant>) -> bool {
        loop {
            self.kill();
            if self.is_dead().unwrap_or(false) {
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
        let rest = if killed { descendants::living(self.root) } else { self.stop_all() };
        for process in rest {
            descendants::send(&process, Signal::KILL);
        }
    }

    /// Stops every descendant, so that none forks while the others are killed: a fork bomb outruns whoever kills one by one.
    fn stop_all(&self) -> Vec<descendants::Process> {
        const SWEEPS_MAX: usize = 64;
        /// Before each look at all, which takes longer than such a process lives.
        const LOOKS_AT_THE_NEWBORN: usize = 8;
        let mut stopped = BTreeSet::new();
        let mut known = BTreeSet::new();
        let mut living = Vec::new();
        for _ in 0..SWEEPS_MAX {
            for _ in 0..LOOKS_AT_THE_NEWBORN {
                descendants::stop_newborn(self.root, &mut known);
            }
            living = descendants::living(self.root);
            let before = stopped.len();
            for process in &living {
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
