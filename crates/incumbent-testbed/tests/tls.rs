//! Servers that use TLS show the right certificate, or the wrong one, and take only the clients they shall.

use std::path::Path;
use std::process::Command;

use incumbent_testbed::{
    Certificates, Etcd, Nats, POSTGRES_DATABASE, POSTGRES_PASSWORD, POSTGRES_USER, Pair, Postgres, Redis, Server, Tls, ZooKeeper,
    python,
};

/// A client by another hand: Python's. It says one thing and prints the beginning of the answer.
const CLIENT: &str = r"
import socket, ssl, sys
port, authority, certificate, key, first, hello = sys.argv[1:]
plain = socket.create_connection(('127.0.0.1', int(port)), 10)
if first == 'listen':
    assert plain.recv(4) == b'INFO'
    while plain.recv(1) != b'\n': pass
context = ssl.create_default_context(cafile=authority)
if certificate:
    context.load_cert_chain(certificate, key)
stream = context.wrap_socket(plain, server_hostname='localhost')
stream.sendall(hello.encode())
answer = stream.recv(100)
assert answer, 'the server has closed the connection'
print(answer.decode())
";

/// How to talk to an engine.
struct Engine {
    start: fn(Tls) -> Box<dyn Server>,
    /// Whether the server speaks first, before TLS begins.
    first: &'static str,
    hello: &'static str,
    answer: &'static str,
}

fn talk(server: &dyn Server, engine: &Engine, authority: &Path, client: Option<&Pair>) -> Result<String, String> {
    let (certificate, key) =
        client.map(|pair| (pair.certificate.as_path(), pair.key.as_path())).unwrap_or((Path::new(""), Path::new("")));
    let mut command = Command::new(python().unwrap());
    command.args(["-c", CLIENT, &server.port().to_string()]).arg(authority).arg(certificate).arg(key);
    let output = command.args([engine.first, engine.hello]).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

fn keeps_its_word(engine: &Engine) {
    let certificates = Certificates::new().unwrap();
    let (authority, client) = (certificates.authority(), certificates.client());

    let server = (engine.start)(certificates.server());
    let answer = talk(&*server, engine, &authority, None).unwrap();
    assert!(answer.contains(engine.answer), "{answer}");
    let wrong = talk(&*server, engine, &certificates.stranger(), None).unwrap_err();
    assert!(wrong.contains("CERTIFICATE_VERIFY_FAILED"), "{wrong}");

    let server = (engine.start)(certificates.wrong_name());
    let wrong = talk(&*server, engine, &authority, None).unwrap_err();
    assert!(wrong.contains("Hostname mismatch"), "{wrong}");

    let server = (engine.start)(certificates.server().requiring_clients());
    let answer = talk(&*server, engine, &authority, Some(&client)).unwrap();
    assert!(answer.contains(engine.answer), "{answer}");
    talk(&*server, engine, &authority, None).unwrap_err();
    server.requests().unwrap();
}

#[test]
fn etcd_keeps_its_word() {
    let starts: [fn(Tls) -> Box<dyn Server>; 2] =
        [|tls| Box::new(Etcd::debian().tls(tls).start().unwrap()), |tls| Box::new(Etcd::recent().tls(tls).start().unwrap())];
    for start in starts {
        keeps_its_word(&Engine { start, first: "", hello: "GET /version HTTP/1.0\r\n\r\n", answer: "200 OK" });
    }
}

#[test]
fn etcdctl_speaks_tls_with_its_server() {
    let certificates = Certificates::new().unwrap();
    let etcd = Etcd::debian().tls(certificates.server().requiring_clients()).start().unwrap();
    etcd.etcdctl(&["put", "seat", "taken"]).unwrap();
    assert!(etcd.url().starts_with("https://127.0.0.1:"));
}

#[test]
fn redis_keeps_its_word() {
    let start = |tls| Box::new(Redis::debian().tls(tls).start().unwrap()) as Box<dyn Server>;
    keeps_its_word(&Engine { start, first: "", hello: "PING\r\n", answer: "+PONG" });
}

#[test]
fn zookeeper_keeps_its_word() {
    let start = |tls| Box::new(ZooKeeper::debian().tls(tls).start().unwrap()) as Box<dyn Server>;
    keeps_its_word(&Engine { start, first: "", hello: "ruok", answer: "imok" });
}

#[test]
fn nats_keeps_its_word() {
    let start = |tls| Box::new(Nats::recent().tls(tls).start().unwrap()) as Box<dyn Server>;
    keeps_its_word(&Engine { start, first: "listen", hello: "CONNECT {\"verbose\":false}\r\nPING\r\n", answer: "PONG" });
}

/// PostgreSQL's TLS begins in a way of its own, so its own client is asked.
fn psql(postgres: &Postgres, authority: &Path, client: Option<&Pair>, mode: &str) -> Result<String, String> {
    let mut command = Command::new("/usr/lib/postgresql/15/bin/psql");
    let url = format!(
        "host=localhost hostaddr=127.0.0.1 port={} user={POSTGRES_USER} dbname={POSTGRES_DATABASE} sslmode={mode} sslrootcert={}",
        postgres.port(),
        authority.display()
    );
    // A key that is there by chance, in the home of whoever runs this, must not be shown.
    command
        .args(["-X", "-w", "-A", "-t", "-c", "select 1", &url])
        .env("PGPASSWORD", POSTGRES_PASSWORD)
        .env("HOME", "/nonexistent");
    if let Some(pair) = client {
        // It refuses a key that others may read.
        assert!(Command::new("chmod").arg("600").arg(&pair.key).status().unwrap().success());
        command.env("PGSSLCERT", &pair.certificate).env("PGSSLKEY", &pair.key);
    }
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn postgres_keeps_its_word() {
    let certificates = Certificates::new().unwrap();
    let (authority, client) = (certificates.authority(), certificates.client());
    let postgres = Postgres::debian().tls(certificates.server()).start().unwrap();
    assert_eq!(psql(&postgres, &authority, None, "verify-full").unwrap(), "1");
    assert!(psql(&postgres, &authority, None, "disable").unwrap_err().contains("no encryption"));
    assert!(psql(&postgres, &certificates.stranger(), None, "verify-full").unwrap_err().contains("verify failed"));

    let postgres = Postgres::debian().tls(certificates.wrong_name()).start().unwrap();
    assert!(psql(&postgres, &authority, None, "verify-full").unwrap_err().contains("does not match host name"));

    let postgres = Postgres::debian().tls(certificates.server().requiring_clients()).start().unwrap();
    assert_eq!(psql(&postgres, &authority, Some(&client), "verify-full").unwrap(), "1");
    assert!(psql(&postgres, &authority, None, "verify-full").unwrap_err().contains("client certificate"));
}
