//! ZooKeeper as Debian has it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ask;
use crate::folder::Folder;
use crate::port::Port;
use crate::process::{Launch, Process};
use crate::programs;
use crate::server::{Requests, Server, launch};

/// One server that is an ensemble by itself.
pub struct ZooKeeper {
    process: Process,
    port: Port,
}

/// How a ZooKeeper shall be started.
#[derive(Clone, Debug)]
pub struct ZooKeeperPlan {
    tick: Duration,
}

/// Sessions end on a tick, and the shortest that is granted has two of them: so tests need not wait for seconds.
const TICK: Duration = Duration::from_millis(100);

/// What clients ask for is granted up to here, whatever the tick is.
const SESSION_MAX: Duration = Duration::from_secs(60);

impl ZooKeeper {
    /// Debian's (3.8).
    pub fn debian() -> ZooKeeperPlan {
        ZooKeeperPlan { tick: TICK }
    }

    /// What it says about itself (`zk_packets_received`, `zk_watch_count`, `zk_num_alive_connections`).
    ///
    /// # Errors
    /// If it does not answer.
    pub fn monitor(&self) -> Result<BTreeMap<String, String>, String> {
        let lines = ask::once(self.port(), "mntr")?;
        let pairs = lines.lines().filter_map(|line| line.split_once('\t'));
        Ok(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}

impl ZooKeeperPlan {
    /// Its unit of time: the shortest session it grants has two of them.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Starts it and waits until it serves.
    ///
    /// # Errors
    /// If it cannot be started, with the end of its log.
    pub fn start(&self) -> Result<ZooKeeper, String> {
        launch(|| self.make())
    }

    fn make(&self) -> Result<ZooKeeper, String> {
        let folder = Folder::new("zookeeper")?;
        let port = Port::free()?;
        let settings = folder.write("zoo.cfg", &(self.settings(&folder, &port).join("\n") + "\n"))?;
        let launch = Launch::new(programs::java()?)
            .arguments(JAVA)
            .arguments(["-cp", &programs::jars(&["zookeeper", "slf4j-simple"])?])
            .arguments(["org.apache.zookeeper.server.quorum.QuorumPeerMain"])
            .arguments([settings]);
        Ok(ZooKeeper { process: Process::new("zookeeper", folder, launch), port })
    }

    fn settings(&self, folder: &Folder, port: &Port) -> Vec<String> {
        vec![
            format!("dataDir={}", folder.join("store").display()),
            "clientPortAddress=127.0.0.1".to_owned(),
            format!("clientPort={}", port.number()),
            format!("tickTime={}", self.tick.as_millis()),
            format!("maxSessionTimeout={}", SESSION_MAX.as_millis()),
            // All clients of a test come from one address, which by default may have 60.
            "maxClientCnxns=0".to_owned(),
            "admin.enableServer=false".to_owned(),
            "4lw.commands.whitelist=*".to_owned(),
            // Tests kill processes, never the machine: what the kernel has is safe.
            "forceSync=no".to_owned(),
            // Kilobytes that its log grows by; the default of 64 MB would be written for each test.
            "preAllocSize=1024".to_owned(),
        ]
    }
}

/// A small heap and no second compiler: it shall start quickly, not run for days.
const JAVA: [&str; 3] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"];

impl Server for ZooKeeper {
    fn process(&self) -> &Process {
        &self.process
    }

    fn port(&self) -> u16 {
        self.port.number()
    }

    fn ready(&self) -> Result<(), String> {
        // While it is starting it says so instead.
        let answer = ask::once(self.port(), "srvr")?;
        if answer.contains("Mode:") { Ok(()) } else { Err(answer) }
    }

    /// As `packets`: it does not tell kinds apart.
    fn requests(&self) -> Result<Requests, String> {
        let packets = self.monitor()?.get("zk_packets_received").and_then(|count| count.parse().ok());
        Ok([("packets".to_owned(), packets.ok_or("mntr does not say zk_packets_received")?)].into_iter().collect())
    }
}
