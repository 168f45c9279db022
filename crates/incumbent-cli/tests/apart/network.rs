//! Hosts on one bridge, each a network namespace of its own, and what can be done to the cables between them.
//!
//! The test itself is in the namespace of the bridge (see [`apart`](super::apart)), so that it reaches every host. The namespaces end with the process of the test, however that ends.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::process::{Command, Output};

use incumbent_testbed::{Contender, eventually};

use super::is_apart;

/// The address of the bridge, where the test itself is.
pub(crate) const HUB: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 254);

/// No frame to this address arrives anywhere: a neighbour that is said to have it is out of reach, and nobody is told.
const NOWHERE: &str = "02:de:ad:00:00:01";

/// The hosts. Each namespace is held by a process while nothing else runs in it.
pub(crate) struct Network {
    namespaces: BTreeMap<u32, Contender>,
}

impl Network {
    #[track_caller]
    pub(crate) fn new() -> Network {
        assert!(is_apart(), "a network is made in apart() alone");
        ip("link set lo up");
        ip("link add br0 type bridge");
        ip(&format!("address add {HUB}/24 dev br0"));
        ip("link set br0 up");
        Network { namespaces: BTreeMap::new() }
    }

    /// One more machine on the bridge.
    pub(crate) fn add_host(&mut self, id: u32, address: Ipv4Addr) {
        let mut command = Command::new("unshare");
        command.args(["--net", "cat"]);
        let namespace = Contender::start(&command).unwrap();
        let pid = namespace.process().id().unwrap();
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        eventually("it is in its namespace", || fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|it| it != own));
        ip(&format!("link add v{id} type veth peer name eth0 netns {pid}"));
        ip(&format!("link set v{id} master br0 up"));
        self.namespaces.insert(id, namespace);
        self.ip_in(id, "link set lo up");
        self.ip_in(id, &format!("address add {address}/24 dev eth0"));
        self.ip_in(id, "link set eth0 up");
    }

    /// A command that runs on one of the hosts.
    pub(crate) fn inside(&self, id: u32, program: &str) -> Command {
        let target = self.namespaces[&id].process().id().unwrap().to_string();
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &target, "setpriv", "--pdeathsig", "KILL", "--", program]);
        for name in ["ON", "CONFIG", "TTL", "IDENTITY"] {
            command.env(format!("INCUMBENT_{name}"), "");
        }
        command
    }

    /// Nothing that `from` sends reaches `to`, and nobody is told.
    pub(crate) fn cut_one_way(&self, from: u32, to: u32) {
        self.ip_in(from, &format!("neigh replace {} lladdr {NOWHERE} dev eth0 nud permanent", address(to)));
    }

    pub(crate) fn cut(&self, a: u32, b: u32) {
        self.cut_one_way(a, b);
        self.cut_one_way(b, a);
    }

    pub(crate) fn mend_one_way(&self, from: u32, to: u32) {
        let neighbours = self.run_in(from, "ip", &["neigh", "show", "dev", "eth0", "nud", "permanent"]);
        if String::from_utf8_lossy(&neighbours.stdout).contains(&format!("{} ", address(to))) {
            self.ip_in(from, &format!("neigh delete {} dev eth0", address(to)));
        }
    }

    pub(crate) fn mend(&self, a: u32, b: u32) {
        self.mend_one_way(a, b);
        self.mend_one_way(b, a);
    }

    /// Pulls the cable.
    pub(crate) fn unplug(&self, id: u32) {
        ip(&format!("link set v{id} down"));
    }

    pub(crate) fn plug_in(&self, id: u32) {
        ip(&format!("link set v{id} up"));
    }

    #[track_caller]
    fn ip_in(&self, id: u32, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let output = self.run_in(id, "ip", &words);
        assert!(output.status.success(), "ip {line}, in node {id}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn run_in(&self, id: u32, program: &str, words: &[&str]) -> Output {
        self.inside(id, program).args(words).output().unwrap()
    }
}

/// The processes and namespaces end with what they are in; the names of the links must be free for the next world of the same test at once.
impl Drop for Network {
    fn drop(&mut self) {
        for id in self.namespaces.keys() {
            let _ = Command::new("ip").args(["link", "delete", &format!("v{id}")]).output();
        }
        let _ = Command::new("ip").args(["link", "delete", "br0"]).output();
    }
}

/// The address of a host.
pub(crate) fn address(id: u32) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, u8::try_from(id).unwrap())
}

#[track_caller]
fn ip(line: &str) {
    let output = Command::new("ip").args(line.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
}
