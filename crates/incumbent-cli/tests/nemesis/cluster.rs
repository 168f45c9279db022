//! The nodes of a service, each on a host of its own, and clients of them.
//!
//! A host has a network, a disk and clocks of its own: each node is in a time namespace, and its boot time and monotonic time are hours from those of the others. The wall clock is the
//! same for all, because a namespace cannot change it.
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

use crate::apart::disk::{Disk, Hanging};
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

/// Room for what the log keeps before a snapshot takes its place, twice. The file has holes, so it takes what is written.
const DISK_BYTES: u64 = 256 << 20;

/// How nodes know each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Acquaintance {
    /// By certificates. Their ciphers are fast in a build that is not optimised.
    Certificates,
    /// By a key that all have. Its ciphers are not.
    Key,
}

pub(crate) struct Cluster {
    pub(crate) network: Network,
    acquaintance: Acquaintance,
    certificates: Certificates,
    shown: Pair,
    /// Where the logs of the nodes go.
    records: PathBuf,
    nodes: BTreeMap<u32, Option<Contender>>,
    // Behind the nodes, which must have ended before their disks are unmounted.
    disks: BTreeMap<u32, Disk>,
    folder: tempfile::TempDir,
    /// So much later it is on each host than it is here.
    clocks: BTreeMap<u32, Duration>,
    /// Those that were there from the beginning.
    founders: BTreeSet<u32>,
}

impl Cluster {
    /// A new cluster, and all of its nodes run. Of each it is said by how much its clocks are ahead.
    pub(crate) fn start(clocks: &[Duration], acquaintance: Acquaintance, records: &Path) -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let tokens = folder.path().join("tokens");
        fs::write(&tokens, format!("clients sha256:{DIGEST} admin:\n")).unwrap();
        fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600)).unwrap();
        let key = folder.path().join("key");
        fs::write(&key, "0123456789abcdef".repeat(4)).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let certificates = Certificates::new().unwrap();
        let shown = certificates.both_ways(SHOWN).unwrap();
        let mut cluster = Cluster {
            network: Network::new(),
            acquaintance,
            certificates,
            shown,
            records: records.to_owned(),
            nodes: BTreeMap::new(),
            disks: BTreeMap::new(),
            folder,
            clocks: BTreeMap::new(),
            founders: (1..).take(clocks.len()).collect(),
        };
        for (id, clock) in (1..).zip(clocks) {
            cluster.add_host(id, *clock);
            cluster.run(id);
        }
        cluster
    }

    pub(crate) fn add_host(&mut self, id: u32, clock: Duration) {
        self.network.add_host(id, address(id));
        let path = |name: &str| self.folder.path().join(format!("{name}-{id}"));
        self.disks.insert(id, Disk::new(path("disk"), path("image"), DISK_BYTES));
        self.clocks.insert(id, clock);
        self.nodes.insert(id, None);
    }

    /// From its next start on its clocks are ahead by so much.
    pub(crate) fn set_clock(&mut self, id: u32, clock: Duration) {
        self.clocks.insert(id, clock);
    }

    pub(crate) fn ids(&self) -> Vec<u32> {
        self.nodes.keys().copied().collect()
    }

    /// Starts a node, and waits until it listens.
    pub(crate) fn run(&mut self, id: u32) {
        let at = |port| format!("{}:{port}", address(id));
        // Those that founded it, or those that are there for one that comes later: founders may be gone by then.
        let known = if self.founders.contains(&id) { self.founders.iter().copied().collect() } else { self.ids() };
        let peers = known.into_iter().filter(|it| *it != id).map(|it| format!("{it}@{}", node_address(it)));
        let ahead = self.clocks[&id].as_secs().to_string();
        let mut command = self.network.inside(id, "unshare");
        command.args(["--time", "--monotonic", &ahead, "--boottime", &ahead, "--", env!("CARGO_BIN_EXE_incumbent")]);
        command.args(["serve", "--cluster", "nemesis", "--node", &id.to_string(), "--verbose"]);
        command.args(["--listen", &at(CLIENTS_PORT), "--peer-listen", &at(NODES_PORT)]);
        command.args(["--peers", &peers.collect::<Vec<_>>().join(",")]);
        if !self.founders.contains(&id) {
            command.arg("--join");
        }
        let mut paths = match self.acquaintance {
            Acquaintance::Certificates => {
                let named = self.certificates.both_ways(&format!("node-{id}.nemesis")).unwrap();
                vec![("--peer-ca", self.authority()), ("--peer-cert", named.certificate), ("--peer-key", named.key)]
            }
            Acquaintance::Key => vec![("--key-file", self.folder.path().join("key"))],
        };
        paths.extend([
            ("--tokens", self.folder.path().join("tokens")),
            ("--data", self.disks[&id].folder().join("service")),
            ("--tls-cert", self.shown.certificate.clone()),
            ("--tls-key", self.shown.key.clone()),
        ]);
        for (option, path) in paths {
            command.arg(option).arg(path);
        }
        let process = Contender::start(&command).unwrap();
        process.hear("where it serves", |line| line.starts_with("serving clients on "));
        let time_of = |process: &str| fs::read_link(format!("/proc/{process}/ns/time")).unwrap();
        let pid = process.process().id().expect("it runs").to_string();
        assert_ne!(
            time_of(&pid),
            time_of("self"),
            "it has no clocks of its own: this kernel does not put a process into its time namespace"
        );
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
        self.disks.remove(&id);
        self.clocks.remove(&id);
    }

    /// The power of these fails: what their disks have not made safe is gone.
    pub(crate) fn cut_power(&mut self, ids: &[u32]) {
        // None of them sees what happens to it or to another.
        ids.iter().for_each(|it| self.pause(*it));
        for id in ids {
            self.disks[id].cut_power();
        }
        for id in ids {
            self.kill(*id);
            self.disks[id].mount_again();
        }
    }

    /// The disk of a node that runs is gone from one moment to the next.
    pub(crate) fn break_disk(&self, id: u32) {
        self.disks[&id].cut_power();
    }

    /// The node has ended, and gets its disk back, with what that had made safe.
    pub(crate) fn mend_disk(&self, id: u32) {
        self.disks[&id].mount_again();
    }

    pub(crate) fn hang_disk(&self, id: u32) -> Hanging {
        self.disks[&id].hang()
    }

    pub(crate) fn fill_disk(&self, id: u32) {
        self.disks[&id].fill();
    }

    pub(crate) fn make_room(&self, id: u32) {
        self.disks[&id].make_room();
    }

    /// What a node has said at its end if it has ended by itself; nothing while it runs.
    pub(crate) fn last_words(&mut self, id: u32) -> Option<String> {
        let process = self.nodes.get_mut(&id)?.take_if(|it| !it.process().runs())?;
        self.keep_log(id, &process);
        Some(format!("{}\nexit code {:?}", process.process().log_tail(5), process.wait()))
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
        Client::start(self.client_addresses(), options(&self.authority(), name))
    }

    /// A client of all nodes that gives up as late as any does that is not told otherwise.
    pub(crate) fn patient_client(&self, name: &str) -> Client {
        let options = Options { timeout: Options::default().timeout, ..options(&self.authority(), name) };
        Client::start(self.client_addresses(), options)
    }

    /// A client of one node, and of no other.
    pub(crate) fn client_of(&self, id: u32) -> Client {
        let options = Options { learns_members: false, ..options(&self.authority(), "prober") };
        Client::start([client_address(id)], options)
    }

    pub(crate) fn client_addresses(&self) -> Vec<String> {
        self.ids().into_iter().map(client_address).collect()
    }

    /// The certificate by which clients know the nodes.
    pub(crate) fn authority(&self) -> PathBuf {
        self.certificates.authority()
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

/// How clients behave that know the nodes by this certificate.
pub(crate) fn options(authority: &Path, name: &str) -> Options {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
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
