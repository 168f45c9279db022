//! What can go wrong in a round, and how it is made to.

use std::sync::atomic::{AtomicU32, Ordering};

use incumbent_protocol::chance::Chance;
use incumbent_supervisor::cgroup::Cgroup;
use rustix::process::Signal;

use crate::hosts::{COUNT, Hosts, Leading, Place};
use crate::shell::processes::{kill_at_once, signal, stands_still};

/// One thing that goes wrong. Each ends the term of whoever leads.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// kill -9 of the command itself; its daemon lives on until it is dealt with.
    CommandKilled,
    SupervisorKilled,
    GuardianKilled,
    /// All of the leader's host at once, as in a power cut.
    HostKilled,
    /// Both at once; the daemon is left behind, for whoever is started next on the same host to kill.
    SupervisorAndGuardianKilled,
    /// Stopped until another leads, then let go on.
    SupervisorStopped,
    /// Stopped, and then the leadership ends.
    GuardianStopped,
    /// The guardian stopped, and then the supervisor killed: the kernel wakes the guardian.
    SupervisorKilledBesideAStoppedGuardian,
    /// The whole tree stopped, and then the leadership ends.
    CommandStopped,
    /// A supervisor that waits is stopped while the seat becomes free, and goes on when another has it.
    StandbyStopped,
    /// The leader's way to the engine: connections end, and none are made.
    LeaderCutOff,
    /// The same, but nobody is told.
    LeaderPartitioned,
    /// The leader's network device goes down, and it is told.
    LinkTakenDown,
    /// The leader's cable is unplugged at the far end, and nobody is told.
    CableUnplugged,
    /// Nobody's way leads anywhere.
    AllPartitioned,
    EngineKilled,
    EnginePaused,
    Resigned,
    HandedOver,
    Evicted,
}

impl Fault {
    /// Those that a place can suffer.
    pub(crate) fn on(place: &Place) -> Vec<Fault> {
        let everywhere = [
            Fault::CommandKilled,
            Fault::SupervisorKilled,
            Fault::GuardianKilled,
            Fault::HostKilled,
            Fault::SupervisorStopped,
            Fault::GuardianStopped,
            Fault::SupervisorKilledBesideAStoppedGuardian,
            Fault::CommandStopped,
            Fault::StandbyStopped,
            Fault::Resigned,
            Fault::HandedOver,
            Fault::Evicted,
        ];
        let own = match place {
            // The kernel keeps the lock of a file until the last of the tree is gone.
            Place::Files => &[Fault::SupervisorAndGuardianKilled][..],
            // A host that cannot reach the others is in the tests of peers.
            Place::Peers(_) => &[],
            Place::Server(..) => &[
                Fault::LeaderCutOff,
                Fault::LeaderPartitioned,
                Fault::LinkTakenDown,
                Fault::CableUnplugged,
                Fault::AllPartitioned,
                Fault::EngineKilled,
                Fault::EnginePaused,
            ],
        };
        // Descent cannot answer this one.
        let with_groups = if groups_can_be_made() { &[Fault::SupervisorAndGuardianKilled][..] } else { &[] };
        [&everywhere, own, with_groups].concat()
    }
}

impl Hosts {
    /// Waits for a leader, lets it go wrong, mends it, and waits for the next leader.
    pub(crate) fn suffer(&mut self, fault: Fault, round: u64) {
        let mut chance = Chance::new(self.seed.wrapping_mul(7_919).wrapping_add(round));
        let leading = self.leader_after(0, |_| true);
        let Leading { token, host } = leading;
        let other = (host + 1 + usize::try_from(chance.below(COUNT as u64 - 1)).expect("fits")) % COUNT;
        match fault {
            Fault::CommandKilled => signal(self.all[host].command(), Signal::KILL),
            Fault::SupervisorKilled => kill_at_once(&self.supervisor(host)),
            Fault::GuardianKilled => kill_at_once(&self.guardian(host)),
            Fault::HostKilled => {
                kill_at_once(&[self.supervisor(host), self.guardian(host), self.all[host].tree()].concat());
            }
            Fault::SupervisorAndGuardianKilled => kill_at_once(&[self.supervisor(host), self.guardian(host)].concat()),
            Fault::SupervisorStopped => self.supervisor_stopped(leading),
            Fault::GuardianStopped => {
                let guardian = self.guardian(host);
                self.stopped_while_the_term_ends(leading, &guardian);
            }
            Fault::SupervisorKilledBesideAStoppedGuardian => {
                let guardian = self.guardian(host);
                each(&guardian, Signal::STOP);
                // One that stops only after its supervisor's death is woken by nobody.
                incumbent_testbed::eventually("it is stopped", || guardian.iter().all(|it| stands_still(*it)));
                each(&self.supervisor(host), Signal::KILL);
            }
            Fault::CommandStopped => {
                let tree = self.all[host].tree();
                self.stopped_while_the_term_ends(leading, &tree);
            }
            Fault::StandbyStopped => {
                let standby = self.supervisor(other);
                each(&standby, Signal::STOP);
                self.ask(&["resign", "job"], token);
                let _ = self.leader_after(token, |it| it != other);
                each(&standby, Signal::CONT);
            }
            Fault::LeaderCutOff => {
                self.relay(host).cut();
                let _ = self.leader_after(token, |it| it != host);
                self.relay(host).heal();
            }
            Fault::LeaderPartitioned => {
                self.relay(host).partition();
                let _ = self.leader_after(token, |it| it != host);
                self.relay(host).heal();
            }
            Fault::LinkTakenDown => {
                self.network(host).take_down();
                let _ = self.leader_after(token, |it| it != host);
                self.network(host).mend();
            }
            Fault::CableUnplugged => {
                self.network(host).unplug();
                let _ = self.leader_after(token, |it| it != host);
                self.network(host).mend();
            }
            Fault::AllPartitioned => {
                let tree = self.all[host].tree();
                (0..COUNT).for_each(|it| self.relay(it).partition());
                self.all_die("the tree of one whose engine is out of reach", &tree);
                (0..COUNT).for_each(|it| self.relay(it).heal());
            }
            Fault::EngineKilled => self.engine_gone(leading, |it| it.kill(), |it| it.restart().unwrap()),
            Fault::EnginePaused => self.engine_gone(leading, |it| it.pause(), |it| it.resume()),
            Fault::Resigned => self.ask(&["resign", "job"], token),
            Fault::HandedOver => {
                let to = self.all[other].name.clone();
                self.ask(&["handover", "job", "--to", &to], token);
            }
            Fault::Evicted => self.ask(&["evict", "job"], token),
        }
        let is_supervisor_gone = matches!(
            fault,
            Fault::SupervisorKilled
                | Fault::HostKilled
                | Fault::SupervisorAndGuardianKilled
                | Fault::SupervisorKilledBesideAStoppedGuardian
        );
        if is_supervisor_gone {
            // Not before it is gone: its successor would be refused for having its name.
            let host = &self.all[host];
            incumbent_testbed::eventually("the supervisor is gone", || host.supervisor().is_none());
        }
        self.revive(round);
        let _ = self.leader_after(token, |_| true);
    }

    fn supervisor_stopped(&self, Leading { token, host }: Leading) {
        let (supervisor, tree) = (self.supervisor(host), self.all[host].tree());
        each(&supervisor, Signal::STOP);
        self.all_die("the tree of a stopped supervisor", &tree);
        match self.place {
            // The kernel keeps the lock for it.
            Place::Files => {}
            Place::Server(..) | Place::Peers(_) => {
                let _ = self.leader_after(token, |it| it != host);
            }
        }
        each(&supervisor, Signal::CONT);
    }

    fn stopped_while_the_term_ends(&self, Leading { token, host }: Leading, stopped: &[u32]) {
        let tree = self.all[host].tree();
        each(stopped, Signal::STOP);
        match self.place {
            Place::Files | Place::Peers(_) => self.ask(&["evict", "job"], token),
            Place::Server(..) => self.relay(host).partition(),
        }
        self.all_die("the tree, with one stopped", &tree);
        if let Place::Server(..) = self.place {
            let _ = self.leader_after(token, |it| it != host);
            self.relay(host).heal();
        }
        each(stopped, Signal::CONT);
    }

    fn engine_gone(&self, leading: Leading, stop: fn(&dyn incumbent_testbed::Server), start: fn(&dyn incumbent_testbed::Server)) {
        let Place::Server(server, _) = &self.place else { panic!("{leading:?} has no server") };
        let tree = self.all[leading.host].tree();
        stop(server.as_ref());
        self.all_die("the tree of one whose engine is gone", &tree);
        start(server.as_ref());
    }

    fn supervisor(&self, host: usize) -> Vec<u32> {
        self.all[host].supervisor().into_iter().collect()
    }

    fn guardian(&self, host: usize) -> Vec<u32> {
        self.all[host].guardian().into_iter().collect()
    }

    fn relay(&self, host: usize) -> &incumbent_testbed::Relay {
        &self.way(host).relay
    }

    fn network(&self, host: usize) -> &crate::network::Network {
        &self.way(host).network
    }

    fn way(&self, host: usize) -> &crate::hosts::Way {
        self.all[host].way.as_ref().expect("the place is a server")
    }
}

fn groups_can_be_made() -> bool {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let made = Cgroup::make(&format!("incumbent-rounds-{}-{number}", std::process::id()));
    made.map(|it| it.remove()).is_ok()
}

fn each(ids: &[u32], what: Signal) {
    for id in ids {
        signal(*id, what);
    }
}
