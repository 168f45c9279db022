//! PostgreSQL starts, answers, restarts with its data, stops as a whole, and counts what it is asked; so does PgBouncer before it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Output, Stdio};

use incumbent_testbed::{POSTGRES_DATABASE, POSTGRES_PASSWORD, POSTGRES_USER, Passwords, PgBouncer, Postgres, Server};

/// Runs SQL as a client does: over TCP and with a password.
fn client(server: &dyn Server, password: &str, sql: &str) -> Output {
    let url = format!("host=127.0.0.1 port={} user={POSTGRES_USER} dbname={POSTGRES_DATABASE}", server.port());
    Command::new("/usr/lib/postgresql/15/bin/psql")
        .args(["-X", "-w", "-A", "-t", "-c", sql, &url])
        .env("PGPASSWORD", password)
        .env("PGCONNECT_TIMEOUT", "2")
        .output()
        .unwrap()
}

fn answer(server: &dyn Server, sql: &str) -> String {
    let output = client(server, POSTGRES_PASSWORD, sql);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn it_keeps_its_word() {
    let postgres = Postgres::debian().start().unwrap();
    assert!(!client(&postgres, "wrong", "select 1").status.success());
    answer(&postgres, "create table seat as select 'taken' as state");

    let before = postgres.requests().unwrap();
    assert_eq!(answer(&postgres, "select state from seat"), "taken");
    let asked = postgres.requests().unwrap().since(&before);
    assert_eq!((asked.of("select"), asked.total()), (1, 1), "{asked:?}");

    let port = postgres.port();
    postgres.kill();
    assert!(!client(&postgres, POSTGRES_PASSWORD, "select 1").status.success());
    postgres.restart().unwrap();
    assert_eq!((postgres.port(), answer(&postgres, "select state from seat").as_str()), (port, "taken"));
    postgres.stop().unwrap();
    postgres.restart().unwrap();
    assert_eq!(postgres.sql("select state from seat").unwrap(), "taken");
}

#[test]
fn a_pause_stops_sessions_that_are_open_too() {
    let postgres = Postgres::debian().passwords(Passwords::Md5).start().unwrap();
    let mut session = Command::new("/usr/lib/postgresql/15/bin/psql")
        .args(["-X", "-w", "-A", "-t", "-h", "127.0.0.1", "-U", POSTGRES_USER, "-d", POSTGRES_DATABASE, "-p"])
        .arg(postgres.port().to_string())
        .env("PGPASSWORD", POSTGRES_PASSWORD)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ask = session.stdin.take().unwrap();
    let mut answers = BufReader::new(session.stdout.take().unwrap()).lines();
    ask.write_all(b"select 'open';\n").unwrap();
    assert_eq!(answers.next().unwrap().unwrap(), "open");

    postgres.pause();
    ask.write_all(b"select 'resumed';\n").unwrap();
    // One that was ending stays behind until its parent can bury it.
    let stopped = |id: &u32| ['T', 'Z'].contains(&state(*id));
    assert!(postgres.process().family().iter().all(stopped));
    assert!(postgres.process().family().len() > 2, "{:?}", postgres.process().family());
    postgres.resume();
    assert_eq!(answers.next().unwrap().unwrap(), "resumed");
    drop(ask);
    session.wait().unwrap();
}

fn state(id: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next()).unwrap_or('-')
}

#[test]
fn pgbouncer_gives_a_connection_for_a_transaction() {
    let postgres = Postgres::debian().start().unwrap();
    let pgbouncer = PgBouncer::start(postgres.port()).unwrap();
    assert_eq!(answer(&pgbouncer, "select 1"), "1");
    assert!(!client(&pgbouncer, "wrong", "select 1").status.success());
    let backends: Vec<String> = (0..3).map(|_| answer(&pgbouncer, "select pg_backend_pid()")).collect();
    assert!(backends.iter().all(|id| *id == backends[0]), "one connection serves all in turn: {backends:?}");
    let before = pgbouncer.requests().unwrap();
    answer(&pgbouncer, "select 1");
    assert_eq!(pgbouncer.requests().unwrap().since(&before).of("queries"), 1);
    pgbouncer.restart().unwrap();
    assert_eq!(answer(&pgbouncer, "select 1"), "1");
}
