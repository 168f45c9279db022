//! NATS with JetStream.

use crate::ask;
use crate::certificates::{Clients, Tls};
use crate::cluster::{Cluster, Member};
use crate::folder::Folder;
use crate::port::Port;
use crate::process::{Launch, Process};
use crate::programs;
use crate::server::{Requests, Server, launch};

/// A NATS server with JetStream, whose streams survive a restart.
pub struct Nats {
    process: Process,
    name: String,
    ports: Ports,
}

struct Ports {
    client: Port,
    monitor: Port,
    route: Port,
}

impl Ports {
    fn free() -> Result<Ports, String> {
        Ok(Ports { client: Port::free()?, monitor: Port::free()?, route: Port::free()? })
    }
}

/// Members of one cluster.
pub type NatsCluster = Cluster<Nats>;

/// How a NATS shall be started.
#[derive(Clone, Debug)]
pub struct NatsPlan {
    credentials: Credentials,
    tls: Option<Tls>,
    jetstream: bool,
    settings: Vec<String>,
}

/// What clients must show.
#[derive(Clone, Debug)]
enum Credentials {
    Nothing,
    Password { user: String, password: String },
    Token(String),
}

impl Nats {
    /// A recent one (2.15): Debian's is too old for a life of its own for each key.
    pub fn recent() -> NatsPlan {
        NatsPlan { credentials: Credentials::Nothing, tls: None, jetstream: true, settings: Vec::new() }
    }
}

impl NatsPlan {
    /// Clients must give this user and password.
    pub fn password(mut self, user: &str, password: &str) -> Self {
        self.credentials = Credentials::Password { user: user.to_owned(), password: password.to_owned() };
        self
    }

    /// Clients must give this token.
    pub fn token(mut self, token: &str) -> Self {
        self.credentials = Credentials::Token(token.to_owned());
        self
    }

    /// Clients must use TLS.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// It keeps nothing.
    pub fn without_jetstream(mut self) -> Self {
        self.jetstream = false;
        self
    }

    /// More for its configuration, in its own words.
    pub fn settings(mut self, text: &str) -> Self {
        self.settings.push(text.to_owned());
        self
    }

    /// Starts it and waits until it serves.
    ///
    /// # Errors
    /// If it cannot be started, with the end of its log.
    pub fn start(&self) -> Result<Nats, String> {
        launch(|| self.make(0, Ports::free()?, None))
    }

    /// Starts a cluster of so many members and waits until all serve.
    ///
    /// # Errors
    /// If one cannot be started, with the end of its log.
    pub fn start_cluster(&self, members: usize) -> Result<NatsCluster, String> {
        Cluster::launch(|| {
            let ports = (0..members).map(|_| Ports::free()).collect::<Result<Vec<_>, _>>()?;
            let routes: Vec<String> = ports.iter().map(|it| format!("\"nats://127.0.0.1:{}\"", it.route.number())).collect();
            let routes = routes.join(", ");
            ports.into_iter().enumerate().map(|(place, ports)| self.make(place, ports, Some(&routes))).collect()
        })
    }

    /// The member of this place; `routes` leads to the whole cluster, and without it the server is one by itself.
    fn make(&self, place: usize, ports: Ports, routes: Option<&str>) -> Result<Nats, String> {
        let folder = Folder::new("nats")?;
        let name = format!("member{place}");
        let mut settings = vec![
            format!("server_name: \"{name}\""),
            format!("listen: \"127.0.0.1:{}\"", ports.client.number()),
            format!("http: \"127.0.0.1:{}\"", ports.monitor.number()),
        ];
        settings.extend(self.settings.iter().cloned());
        if self.jetstream {
            settings.push(format!("jetstream {{ store_dir: \"{}\" }}", folder.join("store").display()));
        }
        if let Some(routes) = routes {
            let own = ports.route.number();
            settings.push(format!("cluster {{ name: \"testbed\", listen: \"127.0.0.1:{own}\", routes: [{routes}] }}"));
        }
        match &self.credentials {
            Credentials::Nothing => {}
            Credentials::Password { user, password } => {
                settings.push(format!("authorization {{ user: \"{user}\", password: \"{password}\" }}"));
            }
            Credentials::Token(token) => settings.push(format!("authorization {{ token: \"{token}\" }}")),
        }
        if let Some(tls) = &self.tls {
            settings.push("tls {".to_owned());
            settings.push(format!("  cert_file: \"{}\"", tls.server.certificate.display()));
            settings.push(format!("  key_file: \"{}\"", tls.server.key.display()));
            settings.push(format!("  ca_file: \"{}\"", tls.authority.display()));
            settings.push(format!("  verify: {}", tls.clients == Clients::MustShow));
            settings.push("}".to_owned());
        }
        let file = folder.write("nats.conf", &(settings.join("\n") + "\n"))?;
        let launch = Launch::new(programs::wheel("nats-server")?).arguments(["-c"]).arguments([file]);
        Ok(Nats { process: Process::new("nats-server", folder, launch), name, ports })
    }
}

impl Nats {
    /// Whether it leads the servers that keep this stream, as far as it knows.
    ///
    /// # Errors
    /// If it does not answer, or knows no such stream.
    pub fn leads_stream(&self, stream: &str) -> Result<bool, String> {
        let page = ask::page(self.ports.monitor.number(), "/jsz?streams=true")?;
        let (_, details) = page.split_once("\"account_details\"").ok_or("/jsz tells of no accounts")?;
        let (_, details) = details.split_once(&format!("\"name\": \"{stream}\"")).ok_or(format!("/jsz tells of no {stream}"))?;
        Ok(text(details, "leader").as_deref() == Some(self.name.as_str()))
    }
}

impl Member for Nats {
    /// Of those who decide where streams are kept.
    fn leads(&self) -> Result<bool, String> {
        let page = ask::page(self.ports.monitor.number(), "/jsz")?;
        let (_, group) = page.split_once("\"meta_cluster\"").ok_or("/jsz tells of no cluster")?;
        Ok(text(group, "leader").as_deref() == Some(self.name.as_str()))
    }
}

impl Server for Nats {
    fn process(&self) -> &Process {
        &self.process
    }

    fn port(&self) -> u16 {
        self.ports.client.number()
    }

    fn ready(&self) -> Result<(), String> {
        ask::page(self.ports.monitor.number(), "/healthz").map(drop)
    }

    /// As `messages`: what clients published, requests to JetStream included.
    fn requests(&self) -> Result<Requests, String> {
        let statistics = ask::page(self.ports.monitor.number(), "/varz")?;
        let messages = number(&statistics, "in_msgs").ok_or("/varz does not say in_msgs")?;
        Ok([("messages".to_owned(), messages)].into_iter().collect())
    }
}

/// The first number of this name in a JSON text.
fn number(json: &str, name: &str) -> Option<u64> {
    let (_, rest) = json.split_once(&format!("\"{name}\":"))?;
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// The first text of this name in a JSON text.
fn text(json: &str, name: &str) -> Option<String> {
    let (_, rest) = json.split_once(&format!("\"{name}\":"))?;
    rest.trim_start().strip_prefix('"')?.split('"').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_by_its_name() {
        assert_eq!(number("{\"a\": 1,\n  \"in_msgs\": 42,\n \"in_msgs\": 7}", "in_msgs"), Some(42));
        assert_eq!(number("{\"a\": 1}", "in_msgs"), None);
    }

    #[test]
    fn a_text_is_found_by_its_name() {
        assert_eq!(text("{\"a\": \"b\", \"leader\": \"member1\"}", "leader").as_deref(), Some("member1"));
        assert_eq!(text("{\"leader\": 1}", "leader"), None);
    }
}
