//! `incumbent serve` and the commands that speak with it, as operators see them: one node and three, on loopback.

mod places;

use std::io::Write as _;
use std::process::Stdio;

use incumbent_testbed::{Contender, eventually};
use places::{Places, code, incumbent};

#[test]
fn keys_are_written_under_guards_read_and_watched() {
    let places = Places::of(1);
    let _node = places.start(1);
    assert_eq!(code(&places.ask(&["kv", "get", "a"])), 1, "there is none");
    assert_eq!(places.json(&["kv", "put", "a", "1"])["version"], 1);
    assert_eq!(places.ask(&["kv", "get", "a"]).stdout, b"1\n");
    let first = places.json(&["kv", "get", "a"]);
    assert_eq!((&first["items"][0]["value"], &first["items"][0]["version"]), (&"1".into(), &1.into()));
    assert_eq!(code(&places.ask(&["kv", "put", "a", "2", "--if-absent"])), 1);
    assert_eq!(code(&places.ask(&["kv", "put", "a", "2", "--if-version", "7"])), 1);
    assert_eq!(code(&places.ask(&["kv", "put", "a", "2", "--if-version", "1"])), 0);
    let mut piped = incumbent(&["kv", "put", "b/x", "-", "--on", &places.url()]).stdin(Stdio::piped()).spawn().unwrap();
    piped.stdin.take().unwrap().write_all(&[0, 159, 10]).unwrap();
    assert!(piped.wait().unwrap().success());
    assert_eq!(places.json(&["kv", "get", "b/", "--prefix"])["items"][0]["value"]["hex"], "009f0a");
    let first_of_all = places.ask(&["kv", "get", "", "--prefix", "--limit", "1"]);
    assert_eq!(first_of_all.stdout, b"a\t2\n");
    assert_eq!(first_of_all.stderr, b"there are more: raise --limit, or leave it out\n");
    let all = places.ask(&["kv", "get", "", "--prefix", "--limit", "2"]);
    assert!(all.stderr.is_empty(), "{all:?}");
    for (limit, more) in [("1", true), ("2", false), ("0", false)] {
        assert_eq!(places.json(&["kv", "get", "", "--prefix", "--limit", limit])["more"], more, "{limit}");
    }
    for words in [&["kv", "put", "", "v"][..], &["kv", "get", ""], &["kv", "del", ""], &["kv", "txn", "--then", "put:=v"]] {
        let refused = places.ask(words);
        assert_eq!(code(&refused), 2, "{words:?}: {refused:?}");
    }

    let done = places.json(&["kv", "txn", "--if", "value:a=2", "--if", "absent:c", "--then", "put:c=3", "--then", "get:a"]);
    assert_eq!((&done["held"], &done["results"][1]["items"][0]["value"]), (&true.into(), &"2".into()));
    let not = places.ask(&["kv", "txn", "--if", "absent:c", "--then", "delete:c", "--else", "get:c"]);
    assert_eq!((code(&not), String::from_utf8(not.stdout).unwrap().lines().last()), (1, Some("c\t3")));

    let revision = first["revision"].as_u64().unwrap();
    let watched = places.ask(&["kv", "watch", "", "--prefix", "--from", &revision.to_string(), "--count", "4"]);
    let lines: Vec<String> = String::from_utf8_lossy(&watched.stdout).lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[0].ends_with("put\ta\t1") && lines[1].ends_with("put\ta\t2") && lines[3].ends_with("put\tc\t3"), "{lines:?}");
    assert_eq!(places.json(&["kv", "del", "", "--prefix"])["deleted"], 3);
}

#[test]
fn more_keys_than_the_service_deletes_at_once_are_deleted_all_the_same() {
    let places = Places::of(1);
    let _node = places.start(1);
    for hundreds in 0..11 {
        let acts: Vec<String> = (0..1000).map(|it| format!("--then=put:many/{hundreds}/{it}=1")).collect();
        let words: Vec<&str> = ["kv", "txn"].into_iter().chain(acts.iter().map(String::as_str)).collect();
        assert_eq!(code(&places.ask(&words)), 0);
    }
    places.ask(&["kv", "put", "other", "1"]);
    assert_eq!(places.json(&["kv", "del", "many/", "--prefix"])["deleted"], 11_000);
    assert_eq!(places.json(&["kv", "get", "", "--prefix"])["items"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_command_runs_on_the_service_and_writes_while_it_leads() {
    let places = Places::of(1);
    let _node = places.start(1);
    let url = places.url();
    let inside =
        format!("\"{}\" kv put report done --on {url} --holding nightly=$INCUMBENT_TOKEN", env!("CARGO_BIN_EXE_incumbent"));
    let state = places.path("state");
    let ran = incumbent(&["run", "nightly", "--on", &url, "--state-dir"])
        .arg(&state)
        .args(["--", "sh", "-c", &inside])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let token = places.json(&["history", "nightly"])["past"][0]["token"].as_str().unwrap().to_owned();
    let late = places.ask(&["kv", "put", "report", "again", "--holding", &format!("nightly={token}")]);
    assert_eq!(code(&late), 1, "it leads no more: {late:?}");
    let late = places.ask(&["kv", "put", "report", "again", "--json", "--holding", &format!("nightly={token}")]);
    let refused: serde_json::Value = serde_json::from_slice(&late.stdout).unwrap();
    assert_eq!((code(&late), &refused["written"]), (1, &false.into()), "a refusal is an answer: {late:?}");
    assert_eq!(places.ask(&["kv", "get", "report"]).stdout, b"done\n");
    assert_eq!(places.json(&["elections"])["elections"][0]["election"], "nightly");
    assert_eq!(code(&places.ask(&["elections", "--forget", "weekly"])), 5, "there is none");
    assert_eq!(places.json(&["elections", "--forget", "nightly"])["election"], "nightly");
    assert_eq!(places.json(&["elections"])["elections"], serde_json::json!([]));
}

#[test]
fn a_node_takes_the_descriptors_that_it_may_have_and_keeps_some_from_those_who_only_connect() {
    let places = Places::of(1);
    let node = places.serve_with_files(1, 400);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", node.process().id().unwrap())).unwrap();
    let open_files: Vec<_> = limits.lines().find(|it| it.starts_with("Max open files")).unwrap().split_whitespace().collect();
    assert_eq!(open_files[3..5], ["400", "400"]);
    let told = node.process().log_tail(10);
    assert!(told.contains("the limit of open files is low") && told.contains("connections=200"), "{told}");
    // They say nothing, and are as many as there are descriptors.
    let strangers: Vec<_> = (0..400).map(|_| std::net::TcpStream::connect(places.addresses[0].0).unwrap()).collect();
    let long = "x".repeat(100_000);
    // More than the first segment of the log has room for, so that files are made.
    for key in 0..12 {
        assert_eq!(places.json(&["kv", "put", &format!("key-{key}"), &long])["version"], 1);
    }
    drop(strangers);
    assert!(node.process().runs());
}

#[test]
fn three_nodes_serve_while_one_is_down_and_give_the_lead_away_when_told_to_end() {
    let places = Places::of(3);
    let mut nodes: Vec<_> = (1..=3).map(|node| Some(places.start(node))).collect();
    assert_eq!(places.json(&["kv", "put", "a", "1"])["version"], 1);
    nodes[0].take().unwrap().kill();
    assert_eq!(places.json(&["kv", "put", "a", "2"])["version"], 2);
    nodes[0] = Some(places.start(1));
    // One after the other, as an update does it: nothing is lost, and each comes back.
    for node in 1..=3 {
        let told = nodes[node - 1].take().unwrap();
        told.stop().unwrap();
        assert_eq!(told.wait(), Some(0), "node {node} ends in peace");
        assert_eq!(places.json(&["kv", "put", "a", "3"])["version"], 2 + node);
        nodes[node - 1] = Some(places.start(node));
    }
    assert_eq!(places.ask(&["kv", "get", "a"]).stdout, b"3\n");
}

#[test]
fn sessions_are_listed_and_ended() {
    let places = Places::of(1);
    let _node = places.start(1);
    let state = places.path("state");
    let mut leading = incumbent(&["run", "job", "--on", &places.url(), "--identity", "web-1", "--ttl", "600s", "--state-dir"]);
    leading.arg(&state).args(["--", "sleep", "600"]);
    let leading = Contender::start(&leading).unwrap();
    let mut session = String::new();
    eventually("it leads", || {
        let elections = places.json(&["elections", "j"]);
        let sessions = places.json(&["sessions"]);
        session = sessions["sessions"][0]["session"].as_str().unwrap_or_default().to_owned();
        elections["elections"][0]["leader"]["name"] == "web-1" && sessions["sessions"][0]["candidacies"] == 1
    });
    assert_eq!(code(&places.ask(&["sessions", "--end", "999999"])), 5);
    assert_eq!(code(&places.ask(&["sessions", "--end", &session])), 0);
    assert_eq!(places.json(&["history", "job"])["past"][0]["reason"], "ended by an operator");
    leading.kill();
}

#[test]
fn mistakes_are_told_in_one_line_with_what_to_do() {
    let places = Places::of(1);
    let (clients, nodes) = places.addresses[0];
    let node = places.start(1);
    let serve = |words: &[&str]| incumbent(&[&["serve"], words].concat()).output().unwrap();
    let data = places.path("other");
    let data = data.to_str().unwrap();
    let same = places.path("1");
    let same = same.to_str().unwrap();
    let (taken, other) = (clients.to_string(), format!("127.0.0.1:{}", nodes.port()));
    for (output, word) in [
        (serve(&["--data", data, "--listen", &taken, "--peer-listen", "127.0.0.1:0"]), "free this one"),
        (serve(&["--data", data, "--listen", "127.0.0.1:0", "--peer-listen", &other]), "use"),
        (serve(&["--data", same, "--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0"]), "another"),
        (serve(&["--data", data, "--listen", "127.0.0.1:0", "--peer-listen", "10.255.255.1:0"]), "key"),
        (places.ask(&["kv", "txn", "--if", "nonsense"]), "absent:KEY"),
        (places.ask(&["kv", "txn", "--then", "put:a"]), "put:KEY=VALUE"),
        (places.ask(&["kv", "put", "a", "b", "--holding", "x"]), "nightly=65537"),
        (incumbent(&["kv", "get", "a", "--on", "etcd://127.0.0.1:1/"]).output().unwrap(), "--on incumbent://"),
    ] {
        let said = String::from_utf8(output.stderr.clone()).unwrap();
        assert_eq!(code(&output), 2, "{said}");
        assert!(said.contains(word), "{said} should have {word:?}");
    }
    let away = incumbent(&["kv", "get", "a", "--on", "incumbent://127.0.0.1:1/"]).output().unwrap();
    assert_eq!(code(&away), 5, "{away:?}");
    node.kill();
}
