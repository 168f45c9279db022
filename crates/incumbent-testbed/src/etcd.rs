//! etcd, in the version that Debian has and in a more recent one.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::ask;
use crate::folder::Folder;
use crate::port::Port;
use crate::process::{Launch, Process};
use crate::programs;
use crate::server::{Requests, Server, launch};

/// One member that is a cluster by itself.
pub struct Etcd {
    process: Process,
    release: Release,
    port: Port,
    _peer: Port,
    metrics: Port,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Release {
    /// 3.4.23 in Debian 12.
    Debian,
    /// From PyPI.
    Recent,
}

/// How an etcd shall be started.
#[derive(Clone, Debug)]
pub struct EtcdPlan {
    release: Release,
    election_timeout: Duration,
}

/// etcd grants no lease shorter than one and a half of it, rounded up to seconds: so the shortest is one second, which keeps tests quick.
const ELECTION_TIMEOUT: Duration = Duration::from_millis(500);

impl Etcd {
    /// Debian's (3.4).
    pub fn debian() -> EtcdPlan {
        EtcdPlan { release: Release::Debian, election_timeout: ELECTION_TIMEOUT }
    }

    /// A more recent one (3.5).
    pub fn recent() -> EtcdPlan {
        EtcdPlan { release: Release::Recent, ..Etcd::debian() }
    }

    /// Runs `etcdctl` of the same version against it and returns what it printed.
    ///
    /// # Errors
    /// If it ends with anything but 0, with what it complained of.
    pub fn etcdctl(&self, arguments: &[&str]) -> Result<String, String> {
        ask::program(self.etcdctl_command()?.args(arguments))
    }

    /// An `etcdctl` of the same version that talks to it, for tests that let it contend.
    ///
    /// # Errors
    /// If it is not installed.
    pub fn etcdctl_command(&self) -> Result<Command, String> {
        let mut command = Command::new(self.release.program("etcdctl")?);
        command.env("ETCDCTL_API", "3").arg(format!("--endpoints={}", self.address()));
        Ok(command)
    }
}

impl Release {
    fn program(self, name: &str) -> Result<PathBuf, String> {
        match self {
            Release::Debian => programs::debian(&format!("/usr/bin/{name}")),
            Release::Recent => programs::wheel(name),
        }
    }
}

impl EtcdPlan {
    /// How long its members bear silence before they elect another leader. The shortest lease is one and a half of it.
    pub fn election_timeout(mut self, timeout: Duration) -> Self {
        self.election_timeout = timeout;
        self
    }

    /// Starts it and waits until it serves.
    ///
    /// # Errors
    /// If it cannot be started, with the end of its log.
    pub fn start(&self) -> Result<Etcd, String> {
        launch(|| self.make())
    }

    fn make(&self) -> Result<Etcd, String> {
        let folder = Folder::new("etcd")?;
        let (port, peer, metrics) = (Port::free()?, Port::free()?, Port::free()?);
        let url = |port: &Port| format!("http://127.0.0.1:{}", port.number());
        let mut launch = Launch::new(self.release.program("etcd")?).arguments([
            "--name=one".to_owned(),
            format!("--data-dir={}", folder.join("store").display()),
            format!("--listen-client-urls={}", url(&port)),
            format!("--advertise-client-urls={}", url(&port)),
            format!("--listen-peer-urls={}", url(&peer)),
            format!("--initial-advertise-peer-urls={}", url(&peer)),
            format!("--initial-cluster=one={}", url(&peer)),
            format!("--listen-metrics-urls={}", url(&metrics)),
            format!("--election-timeout={}", self.election_timeout.as_millis()),
            format!("--heartbeat-interval={}", self.election_timeout.as_millis() / 10),
            "--logger=zap".to_owned(),
        ]);
        if self.release == Release::Recent {
            // Tests kill processes, never the machine: what the kernel has is safe. Debian's does not know the option.
            launch = launch.arguments(["--unsafe-no-fsync"]);
        }
        Ok(Etcd { process: Process::new("etcd", folder, launch), release: self.release, port, _peer: peer, metrics })
    }
}

impl Server for Etcd {
    fn process(&self) -> &Process {
        &self.process
    }

    fn port(&self) -> u16 {
        self.port.number()
    }

    fn ready(&self) -> Result<(), String> {
        ask::page(self.metrics.number(), "/health").map(drop)
    }

    /// By method (`Txn`, `LeaseKeepAlive`), counted in messages: a stream's requests count one by one.
    fn requests(&self) -> Result<Requests, String> {
        let metrics = ask::page(self.metrics.number(), "/metrics")?;
        Ok(metrics.lines().filter_map(received).collect())
    }
}

/// Method and count of a line about messages received.
fn received(line: &str) -> Option<(String, u64)> {
    let labels = line.strip_prefix("grpc_server_msg_received_total{")?;
    let (labels, count) = labels.split_once("} ")?;
    let method = labels.split("grpc_method=\"").nth(1)?.split('"').next()?;
    let count = count.trim().parse::<f64>().ok()?;
    Some((method.to_owned(), count as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_by_method() {
        let line =
            r#"grpc_server_msg_received_total{grpc_method="Txn",grpc_service="etcdserverpb.KV",grpc_type="unary"} 1.2e+06"#;
        assert_eq!(received(line), Some(("Txn".to_owned(), 1_200_000)));
        assert_eq!(received(&line.replace("received", "sent")), None);
        assert_eq!(received("# HELP grpc_server_msg_received_total Total number"), None);
    }
}
