//! A server's cable, whichever server it is: it is cut by a fence in the kernel that lets nothing out of the control group in which the server runs, neither to clients nor to other servers, no
//! acknowledgement either. What others send still arrives, and is not answered.
//!
//! All servers are on one machine's loopback, where there is no cable to pull. It takes root, control groups of version 2 and eBPF; what is missing is said.

use std::time::Duration;

use incumbent_supervisor::cgroup::Cgroup;
use incumbent_supervisor::clock;
use incumbent_supervisor::network_fence::NetworkFence;
use rustix::process::Signal;

use super::clusters::Servers;

/// Longer than any run.
const FOR_EVER: Duration = Duration::from_secs(86_400);

pub(crate) struct Cable {
    group: Cgroup,
    fence: NetworkFence,
}

impl Cable {
    /// The server begins anew in a group of its own: a socket belongs to the group in which it was made.
    pub(crate) fn of(servers: &mut dyn Servers, at: usize) -> Cable {
        let group = Cgroup::make(&format!("{}-server-{at}", Cgroup::name_here())).unwrap_or_else(|why| panic!("{why}"));
        let fence = NetworkFence::attach(group.path()).unwrap_or_else(|why| panic!("{why}"));
        let cable = Cable { group, fence };
        cable.mend();
        servers.signal(at, Signal::KILL);
        // Whatever this process starts begins where it is itself.
        let home = Cgroup::at(cable.group.path().parent().expect("it was made beneath another").to_owned());
        cable.group.join().expect("it is ours");
        servers.restart(at);
        home.join().expect("this process was there");
        cable
    }

    pub(crate) fn cut(&self) {
        self.fence.close().expect("it is attached");
    }

    pub(crate) fn mend(&self) {
        self.fence.extend(clock::now() + FOR_EVER).expect("it is attached");
    }

    /// The server is killed, and nothing of this is left.
    pub(crate) fn end(self) {
        self.group.kill_until_empty(None);
        self.group.remove();
    }
}
