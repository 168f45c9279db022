//! Three nodes of the service, of etcd and of ZooKeeper, each with its log on a real disk and synced: what is compared.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use incumbent_client::client::{Client, Line, Options};
use incumbent_testbed::port::Port;
use incumbent_testbed::{Etcd, EtcdCluster, Server, ZooKeeper, ZooKeeperEnsemble};
use rustix::process::{Pid, Signal, kill_process};

/// Servers that are one service.
pub(crate) trait Servers {
    fn name(&self) -> &'static str;
    /// Where the library finds it.
    fn url(&self) -> String;
    /// The processes, as far as they run.
    fn processes(&self) -> Vec<i32>;
    /// Which of them leads.
    fn leader(&self) -> usize;
    fn signal(&mut self, at: usize, signal: Signal);
    /// SIGTERM, and it ends in its own time.
    fn terminate(&mut self, at: usize);
    /// One that has ended runs again.
    fn restart(&mut self, at: usize);
    /// The shortest lease that it grants; ours has no need of a short one where the end of a connection is believed.
    fn ttl(&self) -> Duration;
}

/// Our own.
pub(crate) struct Ours {
    nodes: Vec<Child>,
    clients: Vec<String>,
    peers: Vec<String>,
    /// Nobody else takes them while a node is down.
    _ports: Vec<Port>,
    disks: tempfile::TempDir,
}

impl Ours {
    pub(crate) fn start(count: usize) -> Ours {
        let ports: Vec<Port> = (0..2 * count).map(|_| Port::free().expect("a free port")).collect();
        let all: Vec<_> = ports.iter().map(|it| format!("127.0.0.1:{}", it.number())).collect();
        let (clients, peers) = (all[..count].to_vec(), all[count..].to_vec());
        let disks = tempfile::tempdir().expect("a folder");
        let mut ours = Ours { nodes: Vec::new(), clients, peers, _ports: ports, disks };
        ours.nodes = (0..count).map(|at| ours.node(at)).collect();
        ours
    }

    fn node(&self, at: usize) -> Child {
        let others = self.peers.iter().enumerate().filter(|(other, _)| *other != at);
        let peers: Vec<_> = others.map(|(other, address)| format!("{}@{address}", other + 1)).collect();
        let mut command = Command::new(env!("CARGO_BIN_EXE_incumbent"));
        command.args(["serve", "--quiet", "--node", &(at + 1).to_string(), "--listen", &self.clients[at]]);
        command.args(["--peer-listen", &self.peers[at], "--data"]).arg(self.disks.path().join(at.to_string()));
        if !peers.is_empty() {
            command.args(["--peers", &peers.join(",")]);
        }
        let mut node = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it was just built");
        let mut line = String::new();
        BufReader::new(node.stdout.take().expect("piped")).read_line(&mut line).expect("it says where it serves");
        node
    }

    /// A client of one's own.
    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.clients.clone(), Options::default()).await.expect("they run")
    }
}

impl Servers for Ours {
    fn name(&self) -> &'static str {
        "incumbent"
    }

    fn url(&self) -> String {
        format!("incumbent://{}/bench", self.clients.join(","))
    }

    fn processes(&self) -> Vec<i32> {
        self.nodes.iter().map(|it| it.id().cast_signed()).collect()
    }

    fn leader(&self) -> usize {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let client = self.client().await;
            // It goes to the one that leads.
            let line = client.line().borrow().clone();
            let Line::Up { address, .. } = line else { panic!("connected, and yet {line:?}") };
            client.close().await;
            self.clients.iter().position(|it| *it == address).expect("one of ours")
        })
    }

    fn signal(&mut self, at: usize, signal: Signal) {
        send(self.nodes[at].id().cast_signed(), signal);
        if signal == Signal::KILL {
            self.nodes[at].wait().expect("a child of ours");
        }
    }

    fn terminate(&mut self, at: usize) {
        send(self.nodes[at].id().cast_signed(), Signal::TERM);
        self.nodes[at].wait().expect("a child of ours");
    }

    fn restart(&mut self, at: usize) {
        self.nodes[at] = self.node(at);
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(1)
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

impl Servers for EtcdCluster {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn url(&self) -> String {
        format!("etcd://{}/bench", self.addresses().join(","))
    }

    fn processes(&self) -> Vec<i32> {
        self.members().iter().filter_map(|it| it.process().id()).map(u32::cast_signed).collect()
    }

    fn leader(&self) -> usize {
        EtcdCluster::leader(self).expect("one leads")
    }

    fn signal(&mut self, at: usize, signal: Signal) {
        signal_server(&self.members()[at], signal);
    }

    fn terminate(&mut self, at: usize) {
        self.members()[at].stop().expect("it ends");
    }

    fn restart(&mut self, at: usize) {
        self.members()[at].restart().expect("starts again");
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(2)
    }
}

impl Servers for ZooKeeperEnsemble {
    fn name(&self) -> &'static str {
        "ZooKeeper"
    }

    fn url(&self) -> String {
        format!("zookeeper://{}/bench", self.addresses().join(","))
    }

    fn processes(&self) -> Vec<i32> {
        self.members().iter().filter_map(|it| it.process().id()).map(u32::cast_signed).collect()
    }

    fn leader(&self) -> usize {
        ZooKeeperEnsemble::leader(self).expect("one leads")
    }

    fn signal(&mut self, at: usize, signal: Signal) {
        signal_server(&self.members()[at], signal);
    }

    fn terminate(&mut self, at: usize) {
        self.members()[at].stop().expect("it ends");
    }

    fn restart(&mut self, at: usize) {
        self.members()[at].restart().expect("starts again");
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(4)
    }
}

/// All three, or the one that is named: one after the other, so that none is measured beside the others.
pub(crate) fn each(only: Option<&str>) -> impl Iterator<Item = Box<dyn Servers>> {
    type Start = fn() -> Box<dyn Servers>;
    let start: [(&str, Start); 3] = [
        ("incumbent", || Box::new(Ours::start(3))),
        ("etcd", || Box::new(Etcd::recent().durable().start_cluster(3).expect("etcd starts"))),
        ("zookeeper", || Box::new(ZooKeeper::debian().durable().start_ensemble(3).expect("ZooKeeper starts"))),
    ];
    start.into_iter().filter(move |(name, _)| only.is_none_or(|it| it == *name)).map(|(_, start)| start())
}

fn signal_server(server: &impl Server, signal: Signal) {
    match signal {
        Signal::KILL => server.kill(),
        Signal::STOP => server.pause(),
        Signal::CONT => server.resume(),
        other => panic!("no bench sends {other:?}"),
    }
}

pub(crate) fn send(process: i32, signal: Signal) {
    kill_process(Pid::from_raw(process).expect("a process"), signal).expect("it lives");
}
