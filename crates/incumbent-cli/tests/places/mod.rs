//! Nodes of the service as processes on loopback, and the command as an operator uses it on them.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Output};

use incumbent_testbed::Contender;
use incumbent_testbed::port::Port;
use serde_json::Value;

/// The command, which nothing around the test tells anything.
pub(crate) fn incumbent(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_incumbent"));
    command.args(arguments);
    for name in ["ON", "CONFIG", "TTL", "IDENTITY", "LOG", "USER", "PASSWORD"] {
        command.env(format!("INCUMBENT_{name}"), "");
    }
    command
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

/// Places for nodes: where clients and where other nodes come in.
pub(crate) struct Places {
    pub(crate) addresses: Vec<(SocketAddr, SocketAddr)>,
    /// Nobody else takes them while a node is down.
    _ports: Vec<Port>,
    disks: tempfile::TempDir,
}

impl Places {
    pub(crate) fn of(count: usize) -> Places {
        let ports: Vec<Port> = (0..2 * count).map(|_| Port::free().unwrap()).collect();
        let all: Vec<SocketAddr> = ports.iter().map(|it| (Ipv4Addr::LOCALHOST, it.number()).into()).collect();
        let addresses = all.chunks(2).map(|it| (it[0], it[1])).collect();
        Places { addresses, _ports: ports, disks: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.disks.path().join(name)
    }

    pub(crate) fn peers(&self, of: usize, others: &[usize]) -> String {
        let others = others.iter().filter(|it| **it != of);
        others.map(|it| format!("{it}@{}", self.addresses[it - 1].1)).collect::<Vec<_>>().join(",")
    }

    /// Starts a node with the others that it is told of.
    pub(crate) fn serve(&self, node: usize, others: &[usize], more: &[&str]) -> Contender {
        let (clients, nodes) = self.addresses[node - 1];
        let mut command = incumbent(&["serve", "--node", &node.to_string(), "--listen", &clients.to_string()]);
        command.args(["--peer-listen", &nodes.to_string()]).args(more);
        if !more.contains(&"--data") {
            command.arg("--data").arg(self.path(&node.to_string()));
        }
        let peers = self.peers(node, others);
        if !peers.is_empty() {
            command.args(["--peers", &peers]);
        }
        Places::started(&command)
    }

    /// The same, with no more open files than this, and fewer of them unless it asks.
    pub(crate) fn serve_with_files(&self, node: usize, files: u64) -> Contender {
        let (clients, nodes) = self.addresses[node - 1];
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -S -n 64; ulimit -H -n {files}; exec \"$@\""), "sh"]);
        command.arg(env!("CARGO_BIN_EXE_incumbent")).args(["serve", "--listen", &clients.to_string()]);
        command.args(["--peer-listen", &nodes.to_string(), "--data"]).arg(self.path(&node.to_string()));
        Places::started(&command)
    }

    fn started(command: &Command) -> Contender {
        let process = Contender::start(command).unwrap();
        process.hear("where it serves", |line| line.starts_with("serving clients on "));
        process
    }

    /// Starts a node that is told of all the others.
    pub(crate) fn start(&self, node: usize) -> Contender {
        let all: Vec<_> = (1..=self.addresses.len()).collect();
        self.serve(node, &all, &[])
    }

    pub(crate) fn url(&self) -> String {
        let hosts: Vec<_> = self.addresses.iter().map(|(clients, _)| clients.to_string()).collect();
        format!("incumbent://{}/", hosts.join(","))
    }

    pub(crate) fn ask(&self, words: &[&str]) -> Output {
        incumbent(words).args(["--on", &self.url()]).output().unwrap()
    }

    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let output = self.ask(&[words, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{words:?}: {why}: {output:?}"))
    }
}
