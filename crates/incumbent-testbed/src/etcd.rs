//! etcd, in the version that Debian has and in a more recent one.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::ask;
use crate::certificates::{Clients, Tls};
use crate::cluster::{Cluster, Member};
use crate::folder::Folder;
use crate::port::Port;
use crate::process::{Launch, Process};
use crate::programs;
use crate::server::{Requests, Server, launch};

/// One member, of a cluster of its own or with others.
pub struct Etcd {
    process: Process,
    plan: EtcdPlan,
    ports: Ports,
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
    tls: Option<Tls>,
    root_password: Option<String>,
    durable: bool,
}

/// What a member listens on.
struct Ports {
    client: Port,
    peer: Port,
    /// For our own questions, whatever the clients have to go through.
    metrics: Port,
}

/// etcd grants no lease shorter than one and a half of it, rounded up to seconds: so the shortest is one second, which keeps tests quick.
const ELECTION_TIMEOUT: Duration = Duration::from_millis(500);

impl Etcd {
    /// Debian's (3.4).
    pub fn debian() -> EtcdPlan {
        EtcdPlan { release: Release::Debian, election_timeout: ELECTION_TIMEOUT, tls: None, root_password: None, durable: false }
    }

    /// A more recent one (3.5).
    pub fn recent() -> EtcdPlan {
        EtcdPlan { release: Release::Recent, ..Etcd::debian() }
    }

    /// Where clients find it: with `https` if it uses TLS.
    pub fn url(&self) -> String {
        format!("{}://{}", self.plan.scheme(), self.address())
    }

    /// Runs `etcdctl` of the same version against it, with all rights, and returns what it printed.
    ///
    /// # Errors
    /// If it ends with anything but 0, with what it complained of.
    pub fn etcdctl(&self, arguments: &[&str]) -> Result<String, String> {
        ask::program(self.etcdctl_command()?.args(arguments))
    }

    /// An `etcdctl` of the same version that talks to it with all rights, for tests that let it contend.
    ///
    /// # Errors
    /// If it is not installed.
    pub fn etcdctl_command(&self) -> Result<Command, String> {
        let mut command = self.etcdctl_without_rights()?;
        if let Some(password) = &self.plan.root_password {
            command.arg(format!("--user=root:{password}"));
        }
        Ok(command)
    }

    fn etcdctl_without_rights(&self) -> Result<Command, String> {
        let mut command = Command::new(self.plan.release.program("etcdctl")?);
        command.env("ETCDCTL_API", "3").arg(format!("--endpoints={}", self.url()));
        if let Some(tls) = &self.plan.tls {
            command.arg("--cacert").arg(&tls.authority);
            command.arg("--cert").arg(&tls.client.certificate).arg("--key").arg(&tls.client.key);
        }
        Ok(command)
    }

    /// From now on, clients must say who they are.
    fn enable_auth(&self, password: &str) -> Result<(), String> {
        let root = format!("root:{password}");
        for words in [&["user", "add", &root][..], &["user", "grant-role", "root", "root"], &["auth", "enable"]] {
            ask::program(self.etcdctl_without_rights()?.args(words))?;
        }
        Ok(())
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

impl Etcd {
    /// How many keys and ranges are being watched.
    ///
    /// # Errors
    /// If it does not say.
    pub fn watches(&self) -> Result<u64, String> {
        let metrics = ask::page(self.ports.metrics.number(), "/metrics")?;
        let count = metrics.lines().find_map(|line| line.strip_prefix("etcd_debugging_mvcc_watcher_total "));
        count.and_then(|it| it.parse().ok()).ok_or_else(|| "it does not say how many watches it has".to_owned())
    }
}

impl EtcdPlan {
    /// What it acknowledges is on the disk. For benches; in tests it only costs time.
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// How long its members bear silence before they elect another leader. The shortest lease is one and a half of it.
    pub fn election_timeout(mut self, timeout: Duration) -> Self {
        self.election_timeout = timeout;
        self
    }

    /// Clients must use TLS.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Clients must say who they are; there is the user `root`, with this password, who may do everything and make others.
    pub fn root_password(mut self, password: &str) -> Self {
        self.root_password = Some(password.to_owned());
        self
    }

    /// Starts it and waits until it serves.
    ///
    /// # Errors
    /// If it cannot be started, with the end of its log.
    pub fn start(&self) -> Result<Etcd, String> {
        let etcd = launch(|| self.make(0, Ports::free()?, None))?;
        if let Some(password) = &self.root_password {
            etcd.enable_auth(password)?;
        }
        Ok(etcd)
    }

    /// Starts a cluster of so many members and waits until all serve.
    ///
    /// # Errors
    /// If one cannot be started, with the end of its log.
    pub fn start_cluster(&self, members: usize) -> Result<EtcdCluster, String> {
        let cluster = Cluster::launch(|| {
            let ports = (0..members).map(|_| Ports::free()).collect::<Result<Vec<_>, _>>()?;
            let all = ports.iter().enumerate().map(|(place, ports)| member(place, ports)).collect::<Vec<_>>().join(",");
            ports.into_iter().enumerate().map(|(place, ports)| self.make(place, ports, Some(&all))).collect()
        })?;
        if let Some(password) = &self.root_password {
            cluster.members()[0].enable_auth(password)?;
        }
        Ok(cluster)
    }

    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// The member of this place; `all` names the whole cluster, and without it the member is one by itself.
    fn make(&self, place: usize, ports: Ports, all: Option<&str>) -> Result<Etcd, String> {
        let folder = Folder::new("etcd")?;
        let client = format!("{}://127.0.0.1:{}", self.scheme(), ports.client.number());
        let mut launch = Launch::new(self.release.program("etcd")?).arguments([
            format!("--name=member{place}"),
            format!("--data-dir={}", folder.join("store").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={}", plain(&ports.peer)),
            format!("--initial-advertise-peer-urls={}", plain(&ports.peer)),
            format!("--initial-cluster={}", all.unwrap_or(&member(place, &ports))),
            format!("--listen-metrics-urls={}", plain(&ports.metrics)),
            format!("--election-timeout={}", self.election_timeout.as_millis()),
            format!("--heartbeat-interval={}", self.election_timeout.as_millis() / 10),
            "--logger=zap".to_owned(),
        ]);
        if let Some(tls) = &self.tls {
            launch = launch.arguments(["--cert-file"]).arguments([&tls.server.certificate]);
            launch = launch.arguments(["--key-file"]).arguments([&tls.server.key]);
            if tls.clients == Clients::MustShow {
                launch = launch.arguments(["--client-cert-auth", "--trusted-ca-file"]).arguments([&tls.authority]);
            }
        }
        if self.release == Release::Recent && !self.durable {
            // Tests kill processes, never the machine: what the kernel has is safe. Debian's does not know the option.
            launch = launch.arguments(["--unsafe-no-fsync"]);
        }
        Ok(Etcd { process: Process::new("etcd", folder, launch), plan: self.clone(), ports })
    }
}

impl Ports {
    fn free() -> Result<Ports, String> {
        Ok(Ports { client: Port::free()?, peer: Port::free()?, metrics: Port::free()? })
    }
}

/// How a member is named to the others.
fn member(place: usize, ports: &Ports) -> String {
    format!("member{place}={}", plain(&ports.peer))
}

fn plain(port: &Port) -> String {
    format!("http://127.0.0.1:{}", port.number())
}

/// Members of one cluster.
pub type EtcdCluster = Cluster<Etcd>;

impl Member for Etcd {
    fn leads(&self) -> Result<bool, String> {
        let metrics = ask::page(self.ports.metrics.number(), "/metrics")?;
        Ok(metrics.lines().any(|line| line == "etcd_server_is_leader 1"))
    }
}

impl Server for Etcd {
    fn process(&self) -> &Process {
        &self.process
    }

    fn port(&self) -> u16 {
        self.ports.client.number()
    }

    fn ready(&self) -> Result<(), String> {
        ask::page(self.ports.metrics.number(), "/health").map(drop)
    }

    /// By method (`Txn`, `LeaseKeepAlive`), counted in messages: a stream's requests count one by one.
    fn requests(&self) -> Result<Requests, String> {
        let metrics = ask::page(self.ports.metrics.number(), "/metrics")?;
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
