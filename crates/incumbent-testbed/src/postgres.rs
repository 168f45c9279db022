//! PostgreSQL as Debian has it, and PgBouncer to stand before it.

use std::process::Command;

use rustix::process::{Signal, getuid};

use crate::ask;
use crate::certificates::{Clients, Tls};
use crate::folder::Folder;
use crate::port::Port;
use crate::process::{Launch, Process};
use crate::programs;
use crate::server::{Requests, Server, launch};

/// A PostgreSQL with one database and one user, who may do everything.
pub struct Postgres {
    process: Process,
    port: Port,
}

/// How a PostgreSQL shall be started.
#[derive(Clone, Debug)]
pub struct PostgresPlan {
    flushing: Flushing,
    passwords: Passwords,
    settings: Vec<(String, String)>,
    tls: Option<Tls>,
}

/// Whether writes reach the disk before they are acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flushing {
    /// Enough for tests, which kill processes but never the machine.
    ToTheKernel,
    ToTheDisk,
}

/// How a client proves that it knows the password.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passwords {
    /// What PostgreSQL does by default.
    Scram,
    /// What it did until version 14.
    Md5,
}

impl Passwords {
    /// PostgreSQL's own name for it.
    fn method(self) -> &'static str {
        match self {
            Passwords::Scram => "scram-sha-256",
            Passwords::Md5 => "md5",
        }
    }
}

/// The user that clients give.
pub const POSTGRES_USER: &str = "incumbent";
/// That user's password.
pub const POSTGRES_PASSWORD: &str = "a password with spaces & signs/%40";
/// The database that clients give.
pub const POSTGRES_DATABASE: &str = "postgres";

const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

impl Postgres {
    /// Debian's (15).
    pub fn debian() -> PostgresPlan {
        PostgresPlan { flushing: Flushing::ToTheKernel, passwords: Passwords::Scram, settings: Vec::new(), tls: None }
    }

    /// Runs SQL as the superuser, past all passwords, and returns what it prints: a line for each row, columns between bars.
    ///
    /// # Errors
    /// With PostgreSQL's complaint.
    pub fn sql(&self, text: &str) -> Result<String, String> {
        let mut command = Command::new(programs::debian(&format!("{PROGRAMS}/psql"))?);
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", POSTGRES_USER, "-d", POSTGRES_DATABASE, "-c", text]);
        command.arg("-p").arg(self.port().to_string()).arg("-h").arg(self.process.folder());
        Ok(ask::program(&mut command)?.trim_end().to_owned())
    }
}

impl PostgresPlan {
    /// A commit is on the disk before it is acknowledged. For benches; in tests it only costs time.
    pub fn durable(mut self) -> Self {
        self.flushing = Flushing::ToTheDisk;
        self
    }

    /// How clients prove their password.
    pub fn passwords(mut self, passwords: Passwords) -> Self {
        self.passwords = passwords;
        self
    }

    /// Clients must use TLS.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Any setting of `postgresql.conf`.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts it and waits until it serves.
    ///
    /// # Errors
    /// If it cannot be started, with the end of its log.
    pub fn start(&self) -> Result<Postgres, String> {
        let postgres = launch(|| self.make())?;
        postgres.sql("create extension pg_stat_statements")?;
        Ok(postgres)
    }

    fn make(&self) -> Result<Postgres, String> {
        let folder = Folder::new("postgres")?;
        let port = Port::free()?;
        folder.give_to(user())?;
        self.initialize(&folder)?;
        let mut settings = vec![
            ("listen_addresses", "127.0.0.1".to_owned()),
            ("port", port.number().to_string()),
            ("unix_socket_directories", folder.path().display().to_string()),
            ("max_connections", "300".to_owned()),
            ("shared_buffers", "16MB".to_owned()),
            ("shared_preload_libraries", "pg_stat_statements".to_owned()),
            // What was counted before a restart is not wanted after it.
            ("pg_stat_statements.save", "off".to_owned()),
        ];
        if self.flushing == Flushing::ToTheKernel {
            settings.extend([("fsync", "off".to_owned()), ("full_page_writes", "off".to_owned())]);
        }
        if let Some(tls) = &self.tls {
            settings.extend(self.encrypt(&folder, tls)?);
        }
        settings.extend(self.settings.iter().map(|(name, value)| (name.as_str(), value.clone())));
        let mut launch = Launch::new(programs::debian(&format!("{PROGRAMS}/postgres"))?).arguments(["-D", "store"]);
        for (name, value) in settings {
            launch = launch.arguments(["-c".to_owned(), format!("{name}={value}")]);
        }
        launch.user = user();
        // "Fast": ends the clients' sessions instead of waiting for them to end by themselves.
        launch.stop_by = Signal::INT;
        Ok(Postgres { process: Process::new("postgres", folder, launch), port })
    }

    /// What makes it insist on TLS.
    fn encrypt(&self, folder: &Folder, tls: &Tls) -> Result<Vec<(&'static str, String)>, String> {
        let mut who = format!("local all all trust\nhostssl all all 127.0.0.1/32 {}", self.passwords.method());
        if tls.clients == Clients::MustShow {
            who += " clientcert=verify-ca";
        }
        let who = folder.write("who.conf", &(who + "\n"))?;
        // It refuses a key that others may read, and must be able to read it itself.
        let key = folder.write("server.key", &std::fs::read_to_string(&tls.server.key).map_err(|wrong| wrong.to_string())?)?;
        ask::program(Command::new("chmod").arg("600").arg(&key))?;
        if let Some(user) = user() {
            ask::program(Command::new("chown").arg(user).arg(&key))?;
        }
        Ok(vec![
            ("ssl", "on".to_owned()),
            ("ssl_cert_file", tls.server.certificate.display().to_string()),
            ("ssl_key_file", key.display().to_string()),
            ("ssl_ca_file", tls.authority.display().to_string()),
            ("hba_file", who.display().to_string()),
        ])
    }

    /// Makes the folder in which the database is.
    fn initialize(&self, folder: &Folder) -> Result<(), String> {
        let secret = folder.write("password", POSTGRES_PASSWORD)?;
        let program = programs::debian(&format!("{PROGRAMS}/initdb"))?;
        let mut command = match user() {
            None => Command::new(program),
            Some(user) => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid", user, "--regid", user, "--init-groups", "--"]).arg(program);
                command
            }
        };
        command.current_dir(folder.path());
        command.args(["-D", "store", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8", "--username", POSTGRES_USER]);
        command.arg("--pwfile").arg(secret).arg("--auth-local=trust").arg(format!("--auth-host={}", self.passwords.method()));
        ask::program(&mut command).map(drop)
    }
}

impl Server for Postgres {
    fn process(&self) -> &Process {
        &self.process
    }

    fn port(&self) -> u16 {
        self.port.number()
    }

    fn ready(&self) -> Result<(), String> {
        let mut command = Command::new(programs::debian(&format!("{PROGRAMS}/pg_isready"))?);
        ask::program(command.args(["-q", "-h", "127.0.0.1", "-p"]).arg(self.port().to_string())).map(drop)
    }

    /// By the first word of the statement, in small letters (`select`, `insert`, `listen`).
    fn requests(&self) -> Result<Requests, String> {
        let counted = self.sql(
            "select lower(split_part(ltrim(regexp_replace(query, '\\s+', ' ', 'g')), ' ', 1)), sum(calls) from pg_stat_statements \
             where query not like '%pg_stat_statements%' group by 1",
        )?;
        let counts = counted.lines().filter_map(|line| line.split_once('|'));
        Ok(counts.filter_map(|(kind, count)| Some((kind.to_owned(), count.parse().ok()?))).collect())
    }
}

/// PostgreSQL and PgBouncer refuse to run as root; the user is Debian's.
fn user() -> Option<&'static str> {
    getuid().is_root().then_some("postgres")
}

/// A PgBouncer that gives a client a server's connection for one transaction at a time.
pub struct PgBouncer {
    process: Process,
    port: Port,
}

impl PgBouncer {
    /// Starts Debian's (1.18) before the server at this port, which may be a relay's. Users and passwords are those of [`Postgres`].
    ///
    /// # Errors
    /// If it cannot be started, with the end of its log.
    pub fn start(postgres: u16) -> Result<PgBouncer, String> {
        launch(|| PgBouncer::make(postgres))
    }

    fn make(postgres: u16) -> Result<PgBouncer, String> {
        let folder = Folder::new("pgbouncer")?;
        let port = Port::free()?;
        folder.give_to(user())?;
        let users = folder.write("users", &format!("\"{POSTGRES_USER}\" \"{POSTGRES_PASSWORD}\"\n"))?;
        let settings = [
            "[databases]".to_owned(),
            format!("* = host=127.0.0.1 port={postgres}"),
            "[pgbouncer]".to_owned(),
            "listen_addr = 127.0.0.1".to_owned(),
            format!("listen_port = {}", port.number()),
            "unix_socket_dir =".to_owned(),
            "pool_mode = transaction".to_owned(),
            "auth_type = scram-sha-256".to_owned(),
            format!("auth_file = {}", users.display()),
            format!("admin_users = {POSTGRES_USER}"),
            "max_client_conn = 1000".to_owned(),
            // Clients of Rust's usual kind send it, and it has no meaning for a connection that changes hands.
            "ignore_startup_parameters = extra_float_digits".to_owned(),
        ];
        let file = folder.write("pgbouncer.ini", &(settings.join("\n") + "\n"))?;
        let mut launch = Launch::new(programs::debian("/usr/sbin/pgbouncer")?).arguments([file]);
        launch.user = user();
        Ok(PgBouncer { process: Process::new("pgbouncer", folder, launch), port })
    }

    fn console(&self, command: &str) -> Result<String, String> {
        let mut psql = Command::new(programs::debian(&format!("{PROGRAMS}/psql"))?);
        psql.args(["-X", "-q", "-A", "-t", "-h", "127.0.0.1", "-U", POSTGRES_USER, "-d", "pgbouncer", "-c", command]);
        ask::program(psql.arg("-p").arg(self.port().to_string()).env("PGPASSWORD", POSTGRES_PASSWORD))
    }
}

impl Server for PgBouncer {
    fn process(&self) -> &Process {
        &self.process
    }

    fn port(&self) -> u16 {
        self.port.number()
    }

    fn ready(&self) -> Result<(), String> {
        self.console("show version").map(drop)
    }

    /// As `transactions` and `queries`.
    fn requests(&self) -> Result<Requests, String> {
        // A line for each database: its name, transactions, queries, and more. Its console is one of them, and that is us.
        let totals = self.console("show stats_totals")?;
        let served = totals.lines().filter(|line| !line.starts_with("pgbouncer|"));
        Ok(served.flat_map(counts).collect())
    }
}

fn counts(line: &str) -> Vec<(String, u64)> {
    let numbers = line.split('|').skip(1).map(|count| count.parse().unwrap_or(0));
    ["transactions", "queries"].into_iter().map(str::to_owned).zip(numbers).collect()
}
