//! ZooKeeper starts, answers, restarts with its data, grants short sessions and counts what it is asked.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use incumbent_testbed::{Server as _, ZooKeeper, python};

/// Runs Python with a connected kazoo client `zk` and returns what it prints.
fn kazoo(zookeeper: &ZooKeeper, script: &str) -> String {
    let address = zookeeper.address();
    let script = format!(
        "from kazoo.client import KazooClient\nzk = KazooClient('{address}', timeout=4)\nzk.start(20)\n{script}\nzk.stop()\n"
    );
    let output = Command::new(python().unwrap()).args(["-c", &script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn it_keeps_its_word() {
    let zookeeper = ZooKeeper::debian().start().unwrap();
    kazoo(&zookeeper, "zk.create('/seat', b'taken')");
    let port = zookeeper.port();
    zookeeper.kill();
    assert!(zookeeper.ready().is_err());
    zookeeper.restart().unwrap();
    assert_eq!(zookeeper.port(), port);
    assert_eq!(kazoo(&zookeeper, "print(zk.get('/seat')[0].decode())"), "taken");

    let before = zookeeper.requests().unwrap();
    kazoo(&zookeeper, "for _ in range(100): zk.get('/seat')");
    let asked = zookeeper.requests().unwrap().since(&before).of("packets");
    assert!((100..120).contains(&asked), "{asked}");
    let before = zookeeper.requests().unwrap();
    let ours = zookeeper.requests().unwrap().since(&before).of("packets");
    assert!(ours <= 1, "{ours}");
}

/// The timeout, in milliseconds, that a session gets which asks for `wanted_ms`.
fn granted_ms(zookeeper: &ZooKeeper, wanted_ms: u32) -> u32 {
    let mut stream = TcpStream::connect(zookeeper.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // Length; version, last transaction seen, timeout, session, length of the password, password.
    let mut hello = 44u32.to_be_bytes().to_vec();
    hello.extend([0; 12]);
    hello.extend(wanted_ms.to_be_bytes());
    hello.extend([0; 8]);
    hello.extend(16u32.to_be_bytes());
    hello.extend([0; 16]);
    stream.write_all(&hello).unwrap();
    // Length, version, timeout.
    let mut welcome = [0; 12];
    stream.read_exact(&mut welcome).unwrap();
    u32::from_be_bytes(welcome[8..].try_into().unwrap())
}

#[test]
fn short_and_long_sessions_are_granted_as_asked_for() {
    let zookeeper = ZooKeeper::debian().start().unwrap();
    for wanted_ms in [200, 1500, 4000, 30_000] {
        assert_eq!(granted_ms(&zookeeper, wanted_ms), wanted_ms);
    }
    assert_eq!(granted_ms(&zookeeper, 1), 200, "two ticks are the least");
}
