//! `incumbent peer` as operators see it, on loopback: every command that works on engines works on nodes too, and so do deaths, departures and new members.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};

use incumbent_testbed::{Contender, eventually};
use serde_json::Value;

fn incumbent(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_incumbent"));
    command.args(arguments);
    for name in ["ON", "CONFIG", "TTL", "IDENTITY", "LOG"] {
        command.env(format!("INCUMBENT_{name}"), "");
    }
    command
}

/// Places for nodes, and those that run there.
struct Group {
    addresses: Vec<SocketAddr>,
    disks: tempfile::TempDir,
}

struct Node {
    process: Contender,
    http: SocketAddr,
}

impl Group {
    fn of(places: usize) -> Group {
        // Bound together, so that no two are the same.
        let listeners: Vec<_> = (0..places).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        Group { addresses: listeners.iter().map(|it| it.local_addr().unwrap()).collect(), disks: tempfile::tempdir().unwrap() }
    }

    fn start(&self, id: usize, members: &[usize], more: &[&str]) -> Node {
        let others = members.iter().filter(|it| **it != id).map(|it| format!("{it}@{}", self.addresses[it - 1]));
        let (peers, listen) = (others.collect::<Vec<_>>().join(","), self.addresses[id - 1].to_string());
        let data = self.disks.path().join(id.to_string());
        let mut command = incumbent(&["peer", "--id", &id.to_string(), "--listen", &listen, "--peers", &peers]);
        command.args(["--http", "127.0.0.1:0", "--patience", "500ms", "--data"]).arg(data).args(more);
        command.args(["--state-dir"]).arg(self.disks.path().join("locks"));
        let process = Contender::start(&command).unwrap();
        let line = process.hear("where it listens", |line| line.starts_with("listening on "));
        Node { process, http: line.split(' ').nth(2).unwrap().parse().unwrap() }
    }

    /// As an operator asks.
    fn ask(&self, words: &[&str]) -> Output {
        let hosts: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        incumbent(words).args(["--on", &format!("peers://{}", hosts.join(","))]).output().unwrap()
    }

    fn json(&self, words: &[&str]) -> Value {
        let output = self.ask(&[words, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{words:?}: {why}: {output:?}"))
    }

    /// The name of the leader once there is one other than this.
    fn leader(&self, other_than: &str) -> String {
        let mut leader = String::new();
        eventually("somebody leads", || {
            // Nobody may listen yet, or lead.
            let seen: Value = serde_json::from_slice(&self.ask(&["who", "leader", "--json"]).stdout).unwrap_or_default();
            leader = seen["leader"]["name"].as_str().unwrap_or_default().to_owned();
            !leader.is_empty() && leader != other_than
        });
        leader
    }
}

impl Node {
    fn asks(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.http).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}

fn number(name: &str) -> usize {
    name.strip_prefix("node-").unwrap_or_else(|| panic!("{name}")).parse().unwrap()
}

#[test]
fn whatever_works_on_an_engine_works_on_nodes() {
    let group = Group::of(3);
    let mut nodes: Vec<Node> = (1..=3).map(|id| group.start(id, &[1, 2, 3], &[])).collect();
    let first = group.leader("");
    eventually("both others wait", || group.json(&["candidates", "leader"])["candidates"].as_array().map(Vec::len) == Some(2));
    let primaries = || nodes.iter().map(|it| it.asks("/primary").0).filter(|it| *it == 200).count();
    eventually("one is the primary", || primaries() == 1);

    let heir = (1..=3).find(|it| *it != number(&first)).unwrap();
    let handed = group.ask(&["handover", "leader", "--to", &format!("node-{heir}")]);
    assert!(handed.status.success(), "{handed:?}");
    assert_eq!(group.leader(&first), format!("node-{heir}"));
    let resigned = group.ask(&["resign", "leader"]);
    assert!(resigned.status.success(), "{resigned:?}");
    let second = group.leader(&format!("node-{heir}"));

    // The process of the leader is killed: on one machine its death is seen, and not waited for.
    let at = number(&second) - 1;
    nodes[at].process.kill();
    let third = group.leader(&second);
    let reasons = || -> Vec<String> {
        let past = group.json(&["history", "leader"])["past"].as_array().cloned().unwrap_or_default();
        past.iter().map(|it| it["reason"].as_str().unwrap_or_default().to_owned()).collect()
    };
    eventually("all ends are on record", || reasons() == ["process died", "resigned", "handed over"]);
    nodes[at] = group.start(at + 1, &[1, 2, 3], &[]);

    // Told to end, it hands over first.
    let leaving = number(&third) - 1;
    nodes[leaving].process.stop().unwrap();
    group.leader(&third);
    eventually("it was no crash", || reasons().first().is_some_and(|it| it == "resigned"));

    let report: Value = serde_json::from_str(&nodes[at].asks("/status").1).unwrap();
    assert_eq!(report["node"]["members"].as_array().map(Vec::len), Some(3), "{report}");
    // It has only just begun, and may lead or follow.
    for figure in
        ["incumbent_peer_messages_sent_total{name=\"", "incumbent_peer_line_up{", "incumbent_peer_term{election=\"leader\"}"]
    {
        eventually(figure, || nodes[at].asks("/metrics").1.contains(figure));
    }
}

#[test]
fn members_are_listed_added_and_removed() {
    let group = Group::of(4);
    let _nodes: Vec<Node> = (1..=3).map(|id| group.start(id, &[1, 2, 3], &[])).collect();
    let leader = group.leader("");
    let _new = group.start(4, &[1, 2, 3, 4], &["--join"]);
    let added = group.ask(&["members", "--add", &format!("4@{}", group.addresses[3])]);
    assert!(added.status.success(), "{added:?}");
    let text = String::from_utf8(added.stdout).unwrap();
    assert!(text.lines().any(|it| it.trim_start().starts_with("4 ")), "{text}");
    eventually("it waits for the seat", || {
        let waiting = group.json(&["candidates", "leader"]);
        waiting["candidates"].as_array().is_some_and(|it| it.iter().any(|it| it["name"] == "node-4"))
    });
    assert_eq!(
        group.json(&["who", "leader"])["leader"]["name"],
        Value::from(leader.clone()),
        "a new node costs no leader its office"
    );
    let gone = (1..=3).find(|it| *it != number(&leader)).unwrap().to_string();
    let removed = group.ask(&["members", "--remove", &gone]);
    assert!(removed.status.success(), "{removed:?}");
    let twice = group.ask(&["members", "--remove", &gone]);
    assert!(!twice.status.success());
    assert!(String::from_utf8_lossy(&twice.stderr).contains("is no member"), "{twice:?}");
}

/// How a command ended that should not go on, and what it said.
fn ended(command: &mut Command) -> (Option<i32>, String) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut code = None;
    eventually(&format!("{command:?} ends"), || {
        code = child.try_wait().unwrap().map(|it| it.code());
        code.is_some()
    });
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    (code.flatten(), text)
}

#[test]
fn what_is_wrong_is_said_in_one_line_with_the_right_code() {
    let disk = tempfile::tempdir().unwrap();
    let data = disk.path().display().to_string();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ones =
        |more: &[&'static str]| [&["peer", "--id", "1", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"], more].concat();
    for (words, says) in [
        (ones(&["--peers", "1@127.0.0.1:9"]), "named twice"),
        (ones(&["--peers", "127.0.0.1:9"]), "2@HOST:PORT"),
        (ones(&["--protocol", "paxos"]), "paxos"),
        (ones(&["--guard", "5"]), "quorum of 5"),
        (ones(&["--patience", "1ms"]), "patience"),
        (ones(&["--key-file", "/nowhere"]), "/nowhere"),
        (ones(&["--peers", "2@10.255.255.1:9"]), "key"),
        (ones(&["--on", "etcd://127.0.0.1"]), "leave --on out"),
    ] {
        let (code, text) = ended(incumbent(&words).args(["--data", &data]));
        assert!(text.contains(says), "{words:?}: {text}");
        assert_eq!(code, Some(2), "{words:?}: {text}");
    }
    let (code, text) =
        ended(incumbent(&["peer", "--id", "1", "--listen", &address, "--http", "127.0.0.1:0"]).args(["--data", &data]));
    assert!(text.contains(&address) && code != Some(0), "{code:?} {text}");
}
