//! `incumbent cluster` and `incumbent token` with real processes: a service that grows from one node to three, is handed on, shrinks, is backed up
//! and restored; tokens that open what they are for; and mistakes, each with one line that says what to do.

mod places;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use incumbent_testbed::{Certificates, Contender, eventually};
use places::{Places, code, incumbent};
use serde_json::Value;

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What an operator does besides.
trait Site {
    fn add(&self, node: usize) -> Output;
    fn wins(&self, election: &str) -> u64;
}

impl Site for Places {
    fn add(&self, node: usize) -> Output {
        let (clients, nodes) = self.addresses[node - 1];
        let (node, clients, nodes) = (node.to_string(), clients.to_string(), nodes.to_string());
        self.ask(&["cluster", "add", &node, "--peer", &nodes, "--client", &clients, "--json"])
    }

    fn wins(&self, election: &str) -> u64 {
        let state = self.path("state");
        let ran = incumbent(&["run", election, "--on", &self.url(), "--state-dir"]).arg(&state).args(["--", "true"]).output();
        let ran = ran.unwrap();
        assert!(ran.status.success(), "{ran:?}");
        self.json(&["history", election])["past"][0]["token"].as_str().unwrap().parse().unwrap()
    }
}

#[test]
fn a_service_grows_is_handed_on_shrinks_and_begins_anew_from_its_backup() {
    let site = Places::of(3);
    let first = site.serve(1, &[], &[]);
    assert_eq!(site.json(&["kv", "put", "a", "1"])["version"], 1);
    let mut nodes = vec![first];
    for node in 2..=3 {
        let absent = site.add(node);
        assert_eq!(code(&absent), 5, "it is not started: {absent:?}");
        assert!(said(&absent).contains("start it there"), "{absent:?}");
        nodes.push(site.serve(node, &[1], &["--join"]));
        let added = site.add(node);
        assert_eq!(code(&added), 0, "{added:?}");
        assert_eq!(serde_json::from_slice::<Value>(&added.stdout).unwrap()["role"], "voter");
        assert_eq!(code(&site.add(node)), 0, "it may be asked twice");
    }
    let status = site.json(&["cluster", "status"]);
    assert_eq!(status["cluster"], "incumbent", "{status:#}");
    for (member, (clients, peers)) in status["members"].as_array().unwrap().iter().zip(&site.addresses) {
        assert_eq!((&member["client"], &member["peer"]), (&clients.to_string().into(), &peers.to_string().into()), "{status:#}");
        assert!(
            member["answers"] == true && member["membership"] == "voter" && member["applied"].as_u64() > Some(0),
            "{status:#}"
        );
    }
    // On a machine that is busy another may lead between two questions.
    eventually("the table says who leads, and of whom it asks", || {
        let leader = site.json(&["cluster", "status"])["leader"].clone();
        let table = String::from_utf8(site.ask(&["cluster", "status"]).stdout).unwrap();
        let names_leader = (1..=3).any(|it| leader == it) && table.contains(&format!("node {leader} leads"));
        names_leader && table.contains("node  role    clients") && table.lines().count() == 6
    });

    assert_eq!(site.json(&["cluster", "transfer", "--to", "3"])["leader"], 3);
    assert_eq!(code(&site.ask(&["cluster", "transfer", "--to", "9"])), 5);
    let before = site.wins("nightly");

    // Who leads may be removed too: another leads first.
    let removed = site.ask(&["cluster", "remove", "3"]);
    assert_eq!((code(&removed), &removed.stdout[..]), (0, &b"node 3 is no member any more\n"[..]), "{removed:?}");
    let ended = nodes.pop().unwrap();
    assert_eq!(ended.wait(), Some(5), "its process ends");
    let log = ended.process().log_tail(100);
    assert_eq!(log.matches("was removed").count(), 1, "says why, once: {log}");
    nodes.pop().unwrap().kill();
    let lonely = site.ask(&["cluster", "status", "--json"]);
    assert!([0, 4].contains(&code(&lonely)), "a node that is alone still tells: {lonely:?}");
    nodes.push(site.serve(2, &[1], &[]));

    back_up_and_restore(&site, nodes, before);
}

/// The service has two nodes here, and a token that was given.
fn back_up_and_restore(site: &Places, nodes: Vec<Contender>, before: u64) {
    let file = site.path("backup");
    let file = file.to_str().unwrap();
    // Others write all the while.
    let busy = format!("i=0; while \"$0\" kv put busy $i --on {}; do i=$((i+1)); done", site.url());
    let mut writer = Command::new("sh");
    writer.args(["-c", &busy, env!("CARGO_BIN_EXE_incumbent")]).env("INCUMBENT_CONFIG", "");
    let writer = Contender::start(&writer).unwrap();
    eventually("others write", || code(&site.ask(&["kv", "get", "busy"])) == 0);
    assert_eq!(site.json(&["kv", "put", "kept", "yes"])["version"], 1);
    let taken = site.json(&["cluster", "snapshot", file]);
    assert_eq!(taken["bytes"].as_u64(), Some(fs::metadata(file).unwrap().len()));
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600, "it has every key");
    let again = site.ask(&["cluster", "snapshot", file]);
    assert!(code(&again) == 2 && said(&again).contains("written over"), "{again:?}");
    let nowhere = site.ask(&["cluster", "snapshot", "/nowhere/at-all"]);
    assert!(code(&nowhere) == 3 && said(&nowhere).contains("cannot be written"), "{nowhere:?}");
    writer.kill();
    nodes.iter().for_each(Contender::kill);
    drop(nodes);

    let restore = |node: usize, cluster: &str, data: &str| {
        let (node, peers) = (node.to_string(), site.peers(node, &[1, 2, 3]));
        let words = ["cluster", "restore", file, "--data", data, "--cluster", cluster, "--node", &node, "--peers", &peers];
        incumbent(&words).output().unwrap()
    };
    let place = |node: usize| site.path(&format!("new-{node}"));
    let same = restore(1, "incumbent", place(1).to_str().unwrap());
    assert!(code(&same) == 2 && said(&same).contains("another name"), "{same:?}");
    for node in 1..=3 {
        let restored = restore(node, "new", place(node).to_str().unwrap());
        let told = String::from_utf8(restored.stdout.clone()).unwrap();
        assert!(code(&restored) == 0 && told.contains("incumbent serve --cluster new --node"), "{restored:?}");
    }
    let full = restore(1, "new", place(1).to_str().unwrap());
    assert!(code(&full) == 2 && said(&full).contains("not empty"), "{full:?}");
    let _nodes: Vec<_> =
        (1..=3).map(|it| site.serve(it, &[1, 2, 3], &["--cluster", "new", "--data", place(it).to_str().unwrap()])).collect();
    assert_eq!(site.ask(&["kv", "get", "kept"]).stdout, b"yes\n");
    assert!(site.wins("nightly") > before, "tokens rise");
    assert_eq!(site.json(&["cluster", "status"])["cluster"], "new");
}

/// The secret of a token, and its line.
fn token(words: &[&str]) -> (String, String) {
    let made = incumbent(&[&["token", "new"], words].concat()).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let text = String::from_utf8(made.stdout).unwrap();
    let (secret, line) = text.trim_end().split_once('\n').unwrap();
    (secret.to_owned(), line.to_owned())
}

#[test]
fn a_token_opens_what_it_is_for_however_it_is_given() {
    let site = Places::of(1);
    let (root, root_line) = token(&["root", "--admin", ""]);
    let (guest, guest_line) = token(&["billing", "--campaign", "billing/", "--read", "a b%/"]);
    assert!(guest_line.ends_with(" campaign:billing/ read:a%20b%25/"), "{guest_line}");
    let tokens = site.path("tokens");
    fs::write(&tokens, format!("{root_line}\n{guest_line}\n")).unwrap();
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600)).unwrap();
    let _node = site.serve(1, &[], &["--tokens", tokens.to_str().unwrap()]);

    let bare = site.ask(&["cluster", "status"]);
    assert!([2, 5].contains(&code(&bare)) && said(&bare).contains("INCUMBENT_PASSWORD"), "{bare:?}");
    let secret_file = site.path("secret");
    fs::write(&secret_file, format!("{root}\n")).unwrap();
    let address = site.addresses[0].0;
    let with = |secret: &str, words: &[&str]| {
        incumbent(words).env("INCUMBENT_ON", format!("incumbent://:{secret}@{address}/")).output().unwrap()
    };
    assert_eq!(code(&with(&root, &["cluster", "status"])), 0);
    let by_file = format!("incumbent://{address}/?password-file={}", secret_file.display());
    for words in [&["cluster", "status"][..], &["kv", "put", "x", "1"], &["doctor", "--looks", "1"]] {
        let done = incumbent(words).env("INCUMBENT_ON", &by_file).output().unwrap();
        assert_eq!(code(&done), 0, "{words:?}: {done:?}");
    }
    let by_variable = incumbent(&["sessions"]).env("INCUMBENT_ON", site.url()).env("INCUMBENT_PASSWORD", &root).output().unwrap();
    assert_eq!(code(&by_variable), 0, "{by_variable:?}");

    let state = site.path("state");
    let led = |secret: &str, namespace: &str| {
        let mut run = incumbent(&["run", "nightly", "--max-wait", "5s", "--state-dir"]);
        run.arg(&state).args(["--", "true"]).env("INCUMBENT_ON", format!("incumbent://:{secret}@{address}/{namespace}"));
        run.output().unwrap()
    };
    let ran = led(&guest, "billing");
    assert!(ran.status.success(), "{ran:?}");
    assert!(!led(&guest, "other").status.success(), "it has no right to that");
    for (words, right) in [
        (&["cluster", "snapshot", "/nowhere/at-all"][..], "admin"),
        (&["cluster", "remove", "1"], "admin: in"),
        (&["cluster", "status"], "observe: in"),
        (&["kv", "put", "x", "2"], "write"),
    ] {
        let denied = with(&guest, words);
        let told = said(&denied);
        assert!(code(&denied) == 2 && told.contains(right) && told.lines().count() == 1, "{words:?}: {denied:?}");
        assert!(!told.contains(&guest), "the secret is not shown");
    }
}

#[test]
fn beyond_this_machine_there_is_tls_and_a_token_and_an_address_to_be_told_of() {
    let site = Places::of(1);
    let (clients, nodes) = site.addresses[0];
    let (root, line) = token(&["root", "--admin", ""]);
    let tokens = site.path("tokens");
    fs::write(&tokens, line).unwrap();
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600)).unwrap();
    let certificates = Certificates::new().unwrap();
    let shown = certificates.both_ways("localhost").unwrap();
    let everywhere = format!("0.0.0.0:{}", clients.port());
    let mut command = incumbent(&["serve", "--listen", &everywhere, "--advertise", &clients.to_string()]);
    command.args(["--peer-listen", &nodes.to_string(), "--data"]).arg(site.path("1"));
    command.arg("--tls-cert").arg(&shown.certificate).arg("--tls-key").arg(&shown.key).arg("--tokens").arg(&tokens);
    let node = Contender::start(&command).unwrap();
    node.hear("where it serves", |line| line.starts_with("serving clients on 0.0.0.0:"));
    let trusting = |authority: PathBuf| {
        let on = format!("incumbent://{clients}/?server-name=localhost&ca={}", authority.display());
        incumbent(&["cluster", "status", "--json"]).env("INCUMBENT_ON", on).env("INCUMBENT_PASSWORD", &root).output().unwrap()
    };
    // It serves before it leads, if only for a moment.
    eventually("it leads", || code(&trusting(certificates.authority())) == 0);
    let status = trusting(certificates.authority());
    assert_eq!(code(&status), 0, "{status:?}");
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["members"][0]["client"], clients.to_string(), "others are told of this one");
    assert_eq!(code(&trusting(certificates.stranger())), 2, "it is not believed");
    let plain = incumbent(&["cluster", "status", "--on", &site.url()]).output().unwrap();
    assert_ne!(code(&plain), 0, "{plain:?}");
}

#[test]
fn mistakes_are_told_in_one_line_and_nothing_is_made() {
    let site = Places::of(1);
    let data = site.path("never");
    let serve = |words: &[&str]| incumbent(&[&["serve", "--data", data.to_str().unwrap()], words].concat()).output().unwrap();
    let garbage = site.path("garbage");
    fs::write(&garbage, "no backup").unwrap();
    let restore = |file: &str, node: &str, peers: &str| {
        let words = ["cluster", "restore", file, "--data", data.to_str().unwrap(), "--cluster", "new", "--node", node];
        incumbent(&words).args(["--peers", peers]).output().unwrap()
    };
    let tls = ["--tls-cert", "/nowhere/cert", "--tls-key", "/nowhere/key", "--tokens", "/nowhere/tokens"];
    for (output, word) in [
        (serve(&["--listen", "0.0.0.0:0"]), "--tls-cert FILE --tls-key FILE --tokens FILE"),
        (serve(&["--listen", "10.255.255.1:0", "--tokens", "/nowhere/tokens"]), "no TLS"),
        (serve(&[&["--listen", "0.0.0.0:0"], &tls[..]].concat()), "--advertise HOST:PORT"),
        (serve(&["--peer-listen", "0.0.0.0:0"]), "--peer-advertise HOST:PORT"),
        (serve(&["--peers", "2@127.0.0.1:1,2@127.0.0.1:2"]), "node 2 is named twice"),
        (serve(&["--cluster", "a/b"]), "without slashes"),
        (serve(&["--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0", "--tokens", "/nowhere/tokens"]), "/nowhere/tokens"),
        (serve(&["--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0", "--peers", "2@192.0.2.1:1"]), "192.0.2.1:1"),
        (serve(&["--tokens", "/nowhere/tokens", "--otlp-share", "2"]), "--otlp-share"),
        (serve(&["--tokens", "/nowhere/tokens", "--otlp-share=-1"]), "--otlp-share"),
        (serve(&["--tokens", "/nowhere/tokens", "--otlp-share", "nan"]), "--otlp-share"),
        (restore(garbage.to_str().unwrap(), "1", "2@127.0.0.1:1"), "is no backup"),
        (restore(garbage.to_str().unwrap(), "1", "1@127.0.0.1:1"), "named twice"),
        (incumbent(&["token", "new", "x"]).output().unwrap(), "--campaign PREFIX"),
        (incumbent(&["token", "new", "a b", "--admin", ""]).output().unwrap(), "\"a b\" is none"),
        (incumbent(&["token", "new", "anybody", "--admin", ""]).output().unwrap(), "another name"),
    ] {
        let told = said(&output);
        assert_eq!(code(&output), 2, "{told}");
        assert!(told.contains(word), "{told} should have {word:?}");
        assert_eq!(told.lines().filter(|it| it.contains("error:")).count(), 1, "{told}");
    }
    for (file, word) in [("/nowhere/at-all", "cannot be read"), ("/", "/ is a directory")] {
        let unread = restore(file, "1", "2@127.0.0.1:1");
        assert!(code(&unread) == 3 && said(&unread).contains(word) && !said(&unread).contains("this node ends"), "{unread:?}");
    }
    for words in [&["serve", "--advertise", "0.0.0.0:1"][..], &["cluster", "add", "2", "--peer", "10.0.0.1"]] {
        let output = incumbent(words).output().unwrap();
        assert!(code(&output) == 2 && said(&output).contains("10.0.0.4:7272"), "{output:?}");
    }
    assert!(!data.exists(), "nothing was made");
    let away = incumbent(&["cluster", "status", "--on", "incumbent://127.0.0.1:1/"]).output().unwrap();
    assert_eq!(code(&away), 5, "{away:?}");
    let other = incumbent(&["cluster", "status", "--on", "etcd://127.0.0.1:1/"]).output().unwrap();
    assert!(code(&other) == 2 && said(&other).contains("--on incumbent://"), "{other:?}");

    let _node = site.serve(1, &[], &[]);
    for (words, word) in [
        (&["cluster", "remove", "1"][..], "the only one"),
        (&["cluster", "transfer"], "no other node"),
        (&["cluster", "remove", "77"], "node 77 is no member"),
        (&["cluster", "add", "1", "--peer", "127.0.0.1:1"], "says itself where it is"),
        (&["cluster", "add", "2", "--peer", "127.0.0.1:1"], "start it there"),
        (&["cluster", "add", "7", "--peer", &site.addresses[0].1.to_string()], "correct the number"),
    ] {
        let output = site.ask(words);
        let told = said(&output);
        assert!(code(&output) == 5 && told.contains(word) && told.lines().count() == 1, "{words:?}: {output:?}");
    }
}
