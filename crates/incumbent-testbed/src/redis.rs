//! Redis as Debian has it, and Valkey.

use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use crate::ask;
use crate::certificates::{Clients, Tls};
use crate::folder::Folder;
use crate::port::Port;
use crate::process::{Launch, Process};
use crate::programs;
use crate::server::{Requests, Server, launch, wait_until};

/// A Redis or a Valkey. It appends every write to a file, so that a restart finds them.
pub struct Redis {
    process: Process,
    port: Port,
    /// For our own questions, whatever the clients have to go through.
    socket: PathBuf,
    password: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Release {
    /// Redis 7.0 in Debian 12.
    Debian,
    /// Valkey 9.1, from PyPI.
    Valkey,
}

/// How a Redis shall be started.
#[derive(Clone, Debug)]
pub struct RedisPlan {
    release: Release,
    password: Option<String>,
    primary: Option<(String, u16)>,
    tls: Option<Tls>,
}

impl Redis {
    /// Debian's Redis (7.0).
    pub fn debian() -> RedisPlan {
        RedisPlan { release: Release::Debian, password: None, primary: None, tls: None }
    }

    /// Valkey (9.1), which was built without TLS.
    pub fn valkey() -> RedisPlan {
        RedisPlan { release: Release::Valkey, ..Redis::debian() }
    }

    /// Sends one command and returns its answer as text; a missing value is empty.
    ///
    /// # Errors
    /// If it does not answer, or answers with an error.
    pub fn command(&self, words: &[&str]) -> Result<String, String> {
        let failed = |wrong: std::io::Error| format!("cannot ask {}: {wrong}", self.process.name());
        let mut stream = UnixStream::connect(&self.socket).map_err(failed)?;
        stream.set_read_timeout(Some(ask::PATIENCE)).map_err(failed)?;
        let mut reader = BufReader::new(stream.try_clone().map_err(failed)?);
        let mut say = |words: &[&str]| -> Result<String, String> {
            let mut request = format!("*{}\r\n", words.len());
            for word in words {
                request += &format!("${}\r\n{word}\r\n", word.len());
            }
            stream.write_all(request.as_bytes()).map_err(failed)?;
            reply(&mut reader)
        };
        if let Some(password) = &self.password {
            say(&["AUTH", password])?;
        }
        say(words)
    }

    /// Makes a replica a primary, as an operator or a sentinel does after the death of the old one.
    ///
    /// # Errors
    /// If it refuses.
    pub fn promote(&self) -> Result<(), String> {
        self.command(&["REPLICAOF", "NO", "ONE"]).map(drop)
    }

    /// Waits until this replica has its primary's data and follows it.
    ///
    /// # Errors
    /// If it does not come to that.
    pub fn wait_until_it_follows(&self) -> Result<(), String> {
        wait_until(&self.process, "follow its primary", || {
            let state = self.command(&["INFO", "replication"])?;
            if state.contains("master_link_status:up") { Ok(()) } else { Err(state) }
        })
    }
}

impl RedisPlan {
    /// Clients must give this password.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// It is a replica of the server at this address, which may be a relay's, and has the same password.
    pub fn replica_of(mut self, host: &str, port: u16) -> Self {
        self.primary = Some((host.to_owned(), port));
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
    pub fn start(&self) -> Result<Redis, String> {
        launch(|| self.make())
    }

    fn make(&self) -> Result<Redis, String> {
        let folder = Folder::new("redis")?;
        let port = Port::free()?;
        let socket = folder.join("socket");
        let (name, program) = match self.release {
            Release::Debian => ("redis-server", programs::debian("/usr/bin/redis-server")?),
            Release::Valkey => ("valkey-server", programs::wheel("valkey-server")?),
        };
        let mut settings = vec![
            "bind 127.0.0.1".to_owned(),
            format!("unixsocket {}", socket.display()),
            format!("dir {}", folder.path().display()),
            "daemonize no".to_owned(),
            "save \"\"".to_owned(),
            "appendonly yes".to_owned(),
            // Tests kill processes, never the machine: what the kernel has is safe.
            "appendfsync no".to_owned(),
            // A primary would wait some seconds for more replicas before it sends its data to the first.
            "repl-diskless-sync-delay 0".to_owned(),
        ];
        match &self.tls {
            None => settings.push(format!("port {}", port.number())),
            Some(tls) => settings.extend([
                "port 0".to_owned(),
                format!("tls-port {}", port.number()),
                format!("tls-cert-file {}", tls.server.certificate.display()),
                format!("tls-key-file {}", tls.server.key.display()),
                format!("tls-ca-cert-file {}", tls.authority.display()),
                match tls.clients {
                    Clients::NeedNone => "tls-auth-clients no".to_owned(),
                    Clients::MustShow => "tls-auth-clients yes".to_owned(),
                },
            ]),
        }
        if let Some(password) = &self.password {
            settings.push(format!("requirepass {password}"));
            settings.push(format!("masterauth {password}"));
        }
        if let Some((host, port)) = &self.primary {
            settings.push(format!("replicaof {host} {port}"));
        }
        let file = folder.write("redis.conf", &(settings.join("\n") + "\n"))?;
        let process = Process::new(name, folder, Launch::new(program).arguments([file]));
        Ok(Redis { process, port, socket, password: self.password.clone() })
    }
}

impl Server for Redis {
    fn process(&self) -> &Process {
        &self.process
    }

    fn port(&self) -> u16 {
        self.port.number()
    }

    fn ready(&self) -> Result<(), String> {
        self.command(&["PING"]).map(drop)
    }

    /// By command, in small letters. `info`, `ping` and `auth` are left out: those are ours.
    fn requests(&self) -> Result<Requests, String> {
        let statistics = self.command(&["INFO", "commandstats"])?;
        let ours = |kind: &str| ["info", "ping", "auth"].contains(&kind);
        Ok(statistics.lines().filter_map(calls).filter(|(kind, _)| !ours(kind)).collect())
    }
}

/// Command and count of a line about calls.
fn calls(line: &str) -> Option<(String, u64)> {
    let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
    Some((command.to_owned(), rest.split(',').next()?.parse().ok()?))
}

/// One answer in the old form of the protocol, as text.
fn reply(reader: &mut impl BufRead) -> Result<String, String> {
    let failed = |wrong: std::io::Error| format!("no answer: {wrong}");
    let mut line = String::new();
    reader.read_line(&mut line).map_err(failed)?;
    let line = line.trim_end();
    match (line.chars().next(), line.get(1..).unwrap_or_default()) {
        (Some('+' | ':'), text) => Ok(text.to_owned()),
        (Some('-'), text) => Err(text.to_owned()),
        (Some('$'), "-1") => Ok(String::new()),
        (Some('$'), length) => {
            let length: usize = length.parse().map_err(|_| format!("not a length: {length}"))?;
            let mut text = vec![0; length + 2];
            reader.read_exact(&mut text).map_err(failed)?;
            text.truncate(length);
            Ok(String::from_utf8_lossy(&text).into_owned())
        }
        (Some('*'), count) => {
            let count: i64 = count.parse().map_err(|_| format!("not a count: {count}"))?;
            let items = (0..count).map(|_| reply(reader)).collect::<Result<Vec<_>, _>>()?;
            Ok(items.join("\n"))
        }
        (None, _) => Err("the connection was closed".to_owned()),
        (Some(_), _) => Err(format!("not an answer: {line}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_in_every_form() {
        let read = |mut text: &[u8]| reply(&mut text);
        assert_eq!(read(b"+OK\r\n").unwrap(), "OK");
        assert_eq!(read(b":7\r\n").unwrap(), "7");
        assert_eq!(read(b"$5\r\na\r\nbc\r\n").unwrap(), "a\r\nbc");
        assert_eq!(read(b"$-1\r\n").unwrap(), "");
        assert_eq!(read(b"*2\r\n$1\r\na\r\n:1\r\n").unwrap(), "a\n1");
        assert_eq!(read(b"-NOAUTH x\r\n").unwrap_err(), "NOAUTH x");
        assert!(read(b"").unwrap_err().contains("closed"));
    }

    #[test]
    fn calls_are_counted_by_command() {
        assert_eq!(calls("cmdstat_set:calls=12,usec=4,usec_per_call=4.00"), Some(("set".to_owned(), 12)));
        assert_eq!(calls("cmdstat_config|get:calls=1,usec=4"), Some(("config|get".to_owned(), 1)));
        assert_eq!(calls("# Commandstats"), None);
    }
}
