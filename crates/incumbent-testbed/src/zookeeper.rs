//! ZooKeeper as Debian has it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::ask;
use crate::certificates::{Clients, Tls};
use crate::cluster::{Cluster, Member};
use crate::folder::Folder;
use crate::port::Port;
use crate::process::{Launch, Process};
use crate::programs;
use crate::server::{Requests, Server, launch};

/// One server, of an ensemble of its own or with others.
pub struct ZooKeeper {
    process: Process,
    ports: Ports,
}

/// How a ZooKeeper shall be started.
#[derive(Clone, Debug)]
pub struct ZooKeeperPlan {
    tick: Duration,
    tls: Option<Tls>,
    durable: bool,
}

/// What a server listens on.
struct Ports {
    /// For clients that use no TLS, and for our own questions.
    plain: Port,
    secure: Option<Port>,
    /// For the others of an ensemble: the log, and elections.
    peer: Port,
    election: Port,
}

/// Sessions end on a tick, and the shortest that is granted has two of them: so tests need not wait for seconds.
const TICK: Duration = Duration::from_millis(100);

/// What clients ask for is granted up to here, whatever the tick is.
const SESSION_MAX: Duration = Duration::from_secs(90);

/// Servers of an ensemble bear each other's silence that long.
const PEER_PATIENCE: Duration = Duration::from_secs(2);

/// And may take that long to get a newcomer's data up to date.
const PEER_START: Duration = Duration::from_secs(10);

impl ZooKeeper {
    /// Debian's (3.8).
    pub fn debian() -> ZooKeeperPlan {
        ZooKeeperPlan { tick: TICK, tls: None, durable: false }
    }

    /// What it says about itself (`zk_packets_received`, `zk_watch_count`, `zk_num_alive_connections`).
    ///
    /// # Errors
    /// If it does not answer.
    pub fn monitor(&self) -> Result<BTreeMap<String, String>, String> {
        let lines = ask::once(self.ports.plain.number(), "mntr")?;
        let pairs = lines.lines().filter_map(|line| line.split_once('\t'));
        Ok(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    fn status(&self) -> Result<String, String> {
        ask::once(self.ports.plain.number(), "srvr")
    }
}

impl ZooKeeperPlan {
    /// Its unit of time: the shortest session it grants has two of them.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// What it acknowledges is on the disk. For benches; in tests it only costs time.
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Clients must use TLS.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Starts it and waits until it serves.
    ///
    /// # Errors
    /// If it cannot be started, with the end of its log.
    pub fn start(&self) -> Result<ZooKeeper, String> {
        launch(|| self.make(0, self.ports()?, &[]))
    }

    /// Starts an ensemble of so many servers and waits until all serve.
    ///
    /// # Errors
    /// If one cannot be started, with the end of its log.
    pub fn start_ensemble(&self, servers: usize) -> Result<ZooKeeperEnsemble, String> {
        Cluster::launch(|| {
            let ports = (0..servers).map(|_| self.ports()).collect::<Result<Vec<_>, _>>()?;
            let all: Vec<String> = ports.iter().enumerate().map(|(place, ports)| ports.named(place)).collect();
            ports.into_iter().enumerate().map(|(place, ports)| self.make(place, ports, &all)).collect()
        })
    }

    fn ports(&self) -> Result<Ports, String> {
        let secure = self.tls.as_ref().map(|_| Port::free()).transpose()?;
        Ok(Ports { plain: Port::free()?, secure, peer: Port::free()?, election: Port::free()? })
    }

    /// The server of this place; `all` names the whole ensemble, and is empty for one that is by itself.
    fn make(&self, place: usize, ports: Ports, all: &[String]) -> Result<ZooKeeper, String> {
        let folder = Folder::new("zookeeper")?;
        let store = folder.join("store");
        std::fs::create_dir(&store).map_err(|wrong| format!("cannot make {}: {wrong}", store.display()))?;
        let mut settings = self.settings(&store, &ports);
        if !all.is_empty() {
            folder.write("store/myid", &place.to_string())?;
            settings.extend(all.iter().cloned());
        }
        if let (Some(tls), Some(secure)) = (&self.tls, &ports.secure) {
            settings.extend(encrypt(&folder, tls, secure)?);
        }
        let settings = folder.write("zoo.cfg", &(settings.join("\n") + "\n"))?;
        let launch = Launch::new(programs::java()?)
            .arguments(JAVA)
            .arguments(["-cp", &programs::jars(&JARS)?])
            .arguments(["org.apache.zookeeper.server.quorum.QuorumPeerMain"])
            .arguments([settings]);
        Ok(ZooKeeper { process: Process::new("zookeeper", folder, launch), ports })
    }

    fn settings(&self, store: &Path, ports: &Ports) -> Vec<String> {
        let ticks = |time: Duration| (time.as_millis() / self.tick.as_millis().max(1)).max(2);
        vec![
            format!("dataDir={}", store.display()),
            "clientPortAddress=127.0.0.1".to_owned(),
            format!("clientPort={}", ports.plain.number()),
            format!("tickTime={}", self.tick.as_millis()),
            format!("maxSessionTimeout={}", SESSION_MAX.as_millis()),
            format!("initLimit={}", ticks(PEER_START)),
            format!("syncLimit={}", ticks(PEER_PATIENCE)),
            // All clients of a test come from one address, which by default may have 60.
            "maxClientCnxns=0".to_owned(),
            "admin.enableServer=false".to_owned(),
            "4lw.commands.whitelist=*".to_owned(),
            // Tests kill processes, never the machine: what the kernel has is safe.
            format!("forceSync={}", if self.durable { "yes" } else { "no" }),
            // Kilobytes that its log grows by; the default of 64 MB would be written for each test.
            "preAllocSize=1024".to_owned(),
        ]
    }
}

/// What makes it offer TLS, on a port of its own.
fn encrypt(folder: &Folder, tls: &Tls, secure: &Port) -> Result<Vec<String>, String> {
    let read = |path: &Path| std::fs::read_to_string(path).map_err(|wrong| format!("cannot read {}: {wrong}", path.display()));
    // It wants key and certificate in one file, and knows the kind by the name.
    let server = folder.write("server.pem", &(read(&tls.server.key)? + &read(&tls.server.certificate)?))?;
    Ok(vec![
        format!("secureClientPort={}", secure.number()),
        "secureClientPortAddress=127.0.0.1".to_owned(),
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory".to_owned(),
        format!("ssl.keyStore.location={}", server.display()),
        format!("ssl.trustStore.location={}", tls.authority.display()),
        match tls.clients {
            Clients::NeedNone => "ssl.clientAuth=none".to_owned(),
            Clients::MustShow => "ssl.clientAuth=need".to_owned(),
        },
    ])
}

impl Ports {
    /// How a server is named to the others.
    fn named(&self, place: usize) -> String {
        format!("server.{place}=127.0.0.1:{}:{}", self.peer.number(), self.election.number())
    }
}

/// Servers of one ensemble.
pub type ZooKeeperEnsemble = Cluster<ZooKeeper>;

impl Member for ZooKeeper {
    fn leads(&self) -> Result<bool, String> {
        Ok(self.status()?.contains("Mode: leader"))
    }
}

/// The first names most of what it needs in its manifest; the rest is a log, and what TLS needs and Debian's manifest leaves out.
const JARS: [&str; 4] = ["zookeeper", "slf4j-simple", "netty-codec", "netty-resolver"];

/// A small heap and no second compiler: it shall start quickly, not run for days.
const JAVA: [&str; 3] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"];

impl Server for ZooKeeper {
    fn process(&self) -> &Process {
        &self.process
    }

    fn port(&self) -> u16 {
        self.ports.secure.as_ref().unwrap_or(&self.ports.plain).number()
    }

    fn ready(&self) -> Result<(), String> {
        // While it is starting it says so instead.
        let answer = self.status()?;
        if !answer.contains("Mode:") {
            return Err(answer);
        }
        // It begins to listen there last, and says nothing of it.
        match &self.ports.secure {
            Some(secure) => ask::connect(secure.number()).map(drop),
            None => Ok(()),
        }
    }

    /// As `packets`: it does not tell kinds apart.
    fn requests(&self) -> Result<Requests, String> {
        let packets = self.monitor()?.get("zk_packets_received").and_then(|count| count.parse().ok());
        Ok([("packets".to_owned(), packets.ok_or("mntr does not say zk_packets_received")?)].into_iter().collect())
    }
}
