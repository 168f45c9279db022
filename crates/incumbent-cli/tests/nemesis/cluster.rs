//! The nodes of a service, each on a host of its own, and clients of them.
//!
//! The clients are at the hub of the network: they reach a node that other nodes do not reach, until its cable is pulled. They come by TLS and with a token, as from any other machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use incumbent_client::client::{Client, Options};
use incumbent_client::dial::Security;
use incumbent_testbed::{Certificates, Contender, Pair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::apart::network::{Network, address};

const CLIENTS_PORT: u16 = 7272;
const NODES_PORT: u16 = 7273;

/// The name in the certificate that all nodes show.
const SHOWN: &str = "nodes.nemesis.test";

/// What clients show, and its SHA-256.
const TOKEN: &str = "nemesis";
const DIGEST: &str = "0661652820890613176da180316c4cdbe82aecc68cb8426f983d2c846d3f498e";

/// Before an operation is given up: some must be, so that unknown outcomes are among the histories.
const PATIENCE: Duration = Duration::from_millis(1500);

pub(crate) struct Cluster {
    pub(crate) network: Network,
    certificates: Certificates,
    shown: Pair,
    disks: tempfile::TempDir,
    /// Where the logs of the nodes go.
    records: PathBuf,
    nodes: BTreeMap<u32, Option<Contender>>,
    /// Those that were there from the beginning.
    founders: BTreeSet<u32>,
}

impl Cluster {
    /// A new cluster, and all of its nodes run.
    pub(crate) fn start(count: u32, records: &Path) -> Cluster {
        let disks = tempfile::tempdir().unwrap();
        fs::write(disks.path().join("key"), "0123456789abcdef".repeat(4)).unwrap();
        let tokens = disks.path().join("tokens");
        fs::write(&tokens, format!("clients sha256:{DIGEST} admin:\n")).unwrap();
        fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600)).unwrap();
        let certificates = Certificates::new().unwrap();
        let shown = certificates.both_ways(SHOWN).unwrap();
        let mut cluster = Cluster {
            network: Network::new(),
            certificates,
            shown,
            disks,
            records: records.to_owned(),
            nodes: BTreeMap::new(),
            founders: (1..=count).collect(),
        };
        for id in 1..=count {
            cluster.add_host(id);
            cluster.run(id);
        }
        cluster
    }

    pub(crate) fn add_host(&mut self, id: u32) {
        self.network.add_host(id, address(id));
        self.nodes.insert(id, None);
    }

    pub(crate) fn ids(&self) -> Vec<u32> {
        self.nodes.keys().copied().collect()
    }

    /// Starts a node, and waits until it listens.
    pub(crate) fn run(&mut self, id: u32) {
        let at = |port| format!("{}:{port}", address(id));
        let peers = self.founders.iter().filter(|it| **it != id).map(|it| format!("{it}@{}", node_address(*it)));
        let mut command = self.network.inside(id, env!("CARGO_BIN_EXE_incumbent"));
        command.args(["serve", "--cluster", "nemesis", "--node", &id.to_string(), "--verbose"]);
        command.args(["--listen", &at(CLIENTS_PORT), "--peer-listen", &at(NODES_PORT)]);
        command.args(["--peers", &peers.collect::<Vec<_>>().join(",")]);
        if !self.founders.contains(&id) {
            command.arg("--join");
        }
        for (option, path) in [
            ("--key-file", self.disks.path().join("key")),
            ("--tokens", self.disks.path().join("tokens")),
            ("--data", self.disks.path().join(format!("node-{id}"))),
            ("--tls-cert", self.shown.certificate.clone()),
            ("--tls-key", self.shown.key.clone()),
        ] {
            command.arg(option).arg(path);
        }
        let process = Contender::start(&command).unwrap();
        process.hear("where it serves", |line| line.starts_with("serving clients on "));
        self.nodes.insert(id, Some(process));
    }

    /// kill -9.
    pub(crate) fn kill(&mut self, id: u32) {
        if let Some(process) = self.nodes.insert(id, None).flatten() {
            process.kill();
            self.keep_log(id, &process);
        }
    }

    /// SIGTERM, and it ends in its own time.
    pub(crate) fn stop(&mut self, id: u32) {
        if let Some(process) = self.nodes.insert(id, None).flatten() {
            process.stop().unwrap();
            self.keep_log(id, &process);
        }
    }

    /// Gone for good, with its host's cable.
    pub(crate) fn discard(&mut self, id: u32) {
        self.kill(id);
        self.network.unplug(id);
        self.nodes.remove(&id);
    }

    /// SIGSTOP.
    pub(crate) fn pause(&self, id: u32) {
        if let Some(process) = &self.nodes[&id] {
            process.pause();
        }
    }

    /// SIGCONT.
    pub(crate) fn resume(&self, id: u32) {
        if let Some(process) = &self.nodes[&id] {
            process.resume();
        }
    }

    /// Every link works, and every node runs.
    pub(crate) fn heal(&mut self) {
        for id in self.ids() {
            self.network.plug_in(id);
            for other in self.ids().into_iter().filter(|it| *it != id) {
                self.network.mend_one_way(id, other);
            }
            self.resume(id);
            if self.nodes[&id].is_none() {
                self.run(id);
            }
        }
    }

    /// The nodes that have ended although nobody has ended them.
    pub(crate) fn fallen(&self) -> Vec<u32> {
        let fell = |it: &Option<Contender>| it.as_ref().is_some_and(|it| !it.process().runs());
        self.nodes.iter().filter(|(_, it)| fell(it)).map(|(id, _)| *id).collect()
    }

    /// Adds what the nodes that run have logged to what the others have.
    fn keep_logs(&self) {
        for (id, process) in &self.nodes {
            if let Some(process) = process {
                self.keep_log(*id, process);
            }
        }
    }

    fn keep_log(&self, id: u32, process: &Contender) {
        fs::create_dir_all(&self.records).unwrap();
        let path = self.records.join(format!("node-{id}.log"));
        let mut file = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "{}\n--- end of this process", process.process().log_tail(usize::MAX)).unwrap();
    }

    /// A client of all nodes. It connects by and by.
    pub(crate) fn client(&self, name: &str) -> Client {
        Client::start(self.ids().into_iter().map(client_address), self.options(name))
    }

    /// A client of one node, and of no other.
    pub(crate) fn client_of(&self, id: u32) -> Client {
        let options = Options { learns_members: false, ..self.options("prober") };
        Client::start([client_address(id)], options)
    }

    fn options(&self, name: &str) -> Options {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.certificates.authority()).unwrap()).unwrap();
        let config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Options {
            token: TOKEN.into(),
            name: name.into(),
            security: Security::Tls { config: Arc::new(config), server_name: Some(SHOWN.into()) },
            timeout: PATIENCE,
            // The nodes are not optimised and the machine may be busy: a client that leaves each node that takes its time comes to none.
            dial: Duration::from_millis(1000),
            silence: Duration::from_millis(400),
            ..Options::default()
        }
    }
}

/// Whatever a round came to, what the nodes have logged is kept.
impl Drop for Cluster {
    fn drop(&mut self) {
        self.keep_logs();
    }
}

fn client_address(id: u32) -> String {
    format!("{}:{CLIENTS_PORT}", address(id))
}

pub(crate) fn node_address(id: u32) -> String {
    format!("{}:{NODES_PORT}", address(id))
}
