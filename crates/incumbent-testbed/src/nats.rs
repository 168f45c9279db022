//! NATS with JetStream.

use crate::ask;
use crate::certificates::{Clients, Tls};
use crate::folder::Folder;
use crate::port::Port;
use crate::process::{Launch, Process};
use crate::programs;
use crate::server::{Requests, Server, launch};

/// A NATS server with JetStream, whose streams survive a restart.
pub struct Nats {
    process: Process,
    port: Port,
    monitor: Port,
}

/// How a NATS shall be started.
#[derive(Clone, Debug)]
pub struct NatsPlan {
    credentials: Credentials,
    tls: Option<Tls>,
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
        NatsPlan { credentials: Credentials::Nothing, tls: None }
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

    /// Starts it and waits until it serves.
    ///
    /// # Errors
    /// If it cannot be started, with the end of its log.
    pub fn start(&self) -> Result<Nats, String> {
        launch(|| self.make())
    }

    fn make(&self) -> Result<Nats, String> {
        let folder = Folder::new("nats")?;
        let (port, monitor) = (Port::free()?, Port::free()?);
        let mut settings = vec![
            format!("listen: \"127.0.0.1:{}\"", port.number()),
            format!("http: \"127.0.0.1:{}\"", monitor.number()),
            format!("jetstream {{ store_dir: \"{}\" }}", folder.join("store").display()),
        ];
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
        Ok(Nats { process: Process::new("nats-server", folder, launch), port, monitor })
    }
}

impl Server for Nats {
    fn process(&self) -> &Process {
        &self.process
    }

    fn port(&self) -> u16 {
        self.port.number()
    }

    fn ready(&self) -> Result<(), String> {
        ask::page(self.monitor.number(), "/healthz").map(drop)
    }

    /// As `messages`: what clients published, requests to JetStream included.
    fn requests(&self) -> Result<Requests, String> {
        let statistics = ask::page(self.monitor.number(), "/varz")?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_by_its_name() {
        assert_eq!(number("{\"a\": 1,\n  \"in_msgs\": 42,\n \"in_msgs\": 7}", "in_msgs"), Some(42));
        assert_eq!(number("{\"a\": 1}", "in_msgs"), None);
    }
}
