//! The commands on elections, as a shell sees them: which engine they take, what they print, how they end, and that no password is ever printed.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use incumbent::{Election, Identity, Next, Timing};
use incumbent_testbed::{Certificates, Consul, Etcd, Nats, Redis, Server as _, ZooKeeper, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::sync::oneshot;

/// The real binary in an environment that names no engine and no configuration.
fn incumbent(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_incumbent"));
    command.args(arguments).stdin(Stdio::null()).current_dir(env!("CARGO_TARGET_TMPDIR"));
    for name in ["ON", "CONFIG", "TTL", "IDENTITY", "LOG", "USER", "PASSWORD"] {
        command.env_remove(format!("INCUMBENT_{name}"));
    }
    command.env("HOME", env!("CARGO_TARGET_TMPDIR")).env_remove("XDG_CONFIG_HOME").env_remove("XDG_STATE_HOME");
    command
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Runs to the end and demands this exit code.
fn ends(command: &mut Command, code: i32) -> Output {
    let output = command.output().unwrap();
    let (said, wrong) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{command:?}\n{said}\n{wrong}");
    output
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {}", text(&output.stdout)))
}

/// The one line of an error.
fn complaint(output: &Output) -> &str {
    let line = text(&output.stderr);
    assert!(output.stdout.is_empty() && line.starts_with("error: ") && line.lines().count() == 1, "{line:?}");
    line
}

fn configuration(name: &str, content: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("elections-{name}.toml"));
    std::fs::write(&path, content).unwrap();
    path
}

#[test]
fn a_plan_keeps_its_goal_or_says_what_to_change() {
    let good = ["plan", "--failover", "3s", "--pause", "500ms", "--rtt", "40ms"];
    let output = ends(&mut incumbent(&good), 0);
    for part in ["keeps the goal", "deadline: nothing may act", "a successor is in office"] {
        assert!(text(&output.stdout).contains(part), "no {part}");
    }
    let document = json(&ends(incumbent(&good).arg("--json"), 0));
    assert!(document["timing"]["failover_max_ms"].as_f64().unwrap() <= 3000.0);
    assert_eq!((&document["possible"], &document["why_not"]), (&Value::Bool(true), &Value::Null));

    let bad = ["plan", "--failover", "3s", "--pause", "800ms", "--rtt", "40ms"];
    let output = ends(&mut incumbent(&bad), 1);
    assert!(text(&output.stdout).contains("allow at least 3.116s"), "{}", text(&output.stdout));
    let document = json(&ends(incumbent(&bad).arg("--json"), 1));
    assert!(document["possible"] == false && document["timing"].is_null() && document["why_not"].is_string());
    assert_eq!(document["failover_least_ms"].as_f64().map(f64::ceil), Some(3116.0), "{document:#}");
    ends(&mut incumbent(&["plan", "--failover", "3.116s", "--pause", "800ms", "--rtt", "40ms"]), 0);

    for (wrong, says) in [("3", "1m30s"), ("soon", "1m30s"), ("-1s", "")] {
        let output = ends(&mut incumbent(&["plan", "--failover", wrong]), 2);
        assert!(text(&output.stderr).contains(says) && output.stdout.is_empty(), "{wrong}");
    }
}

#[test]
fn the_engines_are_listed_with_what_they_cannot_promise_first() {
    let list = ends(&mut incumbent(&["engines"]), 0);
    let list = text(&list.stdout);
    let (caveat, table) = (list.find("not promised:").unwrap(), list.find("one leader").unwrap());
    assert!(caveat < table, "{list}");
    let document = json(&ends(&mut incumbent(&["engines", "--json"]), 0));
    let memory = document["engines"].as_array().unwrap().iter().find(|it| it["engine"] == "memory").unwrap();
    assert_eq!(memory["exclusive"]["kind"], "in-one-process");
    assert!(!memory["caveats"].as_array().unwrap().is_empty());
}

#[test]
fn the_sql_of_elections_is_printed_for_those_who_may_run_it() {
    let output = ends(&mut incumbent(&["engines", "--sql=office"]), 0);
    assert!(text(&output.stdout).starts_with("CREATE SCHEMA IF NOT EXISTS \"office\";\n"), "{output:?}");
    let output = ends(&mut incumbent(&["engines", "--sql"]), 0);
    assert!(text(&output.stdout).starts_with("CREATE TABLE IF NOT EXISTS \"public\".incumbent_election"), "{output:?}");
}

#[test]
fn a_schema_without_a_name_is_refused() {
    let output = ends(&mut incumbent(&["engines", "--sql="]), 2);
    assert!(text(&output.stderr).contains("a variable may be empty") && output.stdout.is_empty(), "{output:?}");
}

#[test]
fn every_engine_that_can_be_opened_is_listed() {
    let document = json(&ends(&mut incumbent(&["engines", "--json"]), 0));
    let listed: Vec<&str> = document["engines"].as_array().unwrap().iter().map(|it| it["engine"].as_str().unwrap()).collect();
    let unknown = ends(&mut incumbent(&["who", "billing", "--on", "nowhere:"]), 2);
    let (_, all) = complaint(&unknown).trim_end().rsplit_once("there are ").unwrap();
    for scheme in all.split(", ") {
        // An option that no engine knows: whichever is there says so before it connects.
        let output = incumbent(&["who", "billing", "--on", &format!("{scheme}://127.0.0.1:1/?nonsense=1")]).output().unwrap();
        let is_absent = text(&output.stderr).contains("was built without");
        assert_eq!(!is_absent, listed.contains(&scheme), "{scheme}: {}", text(&output.stderr));
    }
}

/// Of three servers that are not there: one command asks once, and says it once.
#[test]
fn an_engine_that_is_not_there_is_one_complaint() {
    for url in ["redis://127.0.0.1:1", "consul://127.0.0.1:1", "nats://127.0.0.1:1"] {
        let output = ends(&mut incumbent(&["who", "billing", "--on", url]), 5);
        let said = text(&output.stderr);
        assert!(said.lines().count() == 1 && said.starts_with("error:"), "{url}: {said}");
    }
}

#[test]
fn that_nobody_leads_is_an_answer_with_a_code_of_its_own() {
    let output = ends(&mut incumbent(&["who", "billing", "--on", "memory:a"]), 4);
    assert!(text(&output.stdout).starts_with("nobody leads billing\n") && output.stderr.is_empty());
    let document = json(&ends(&mut incumbent(&["who", "billing", "--on", "memory:a", "--json"]), 4));
    assert!(document["leader"].is_null() && document["leaders"] == Value::Array(vec![]) && document["candidates"] == 0);
    for ask in [&["resign", "billing"][..], &["evict", "billing"], &["handover", "billing", "--to", "b"]] {
        let output = ends(incumbent(ask).args(["--on", "memory:a"]), 4);
        assert!(text(&output.stdout).contains("nobody to ask"), "{ask:?}");
    }
    ends(&mut incumbent(&["candidates", "billing", "--on", "memory:a"]), 0);
    ends(&mut incumbent(&["history", "billing", "--on", "memory:a"]), 0);
    let watched = ends(&mut incumbent(&["watch", "billing", "--on", "memory:a", "--count", "1", "--json"]), 0);
    assert!(json(&watched)["leader"].is_null() && text(&watched.stdout).lines().count() == 1);
}

#[test]
fn the_engine_comes_from_the_command_line_else_the_environment_else_the_file() {
    let file = configuration("order", "on = \"nowhere-in-file:\"\n");
    let named = |command: &mut Command| complaint(&ends(command.args(["who", "billing"]), 2)).to_owned();
    let file = file.to_str().unwrap();
    assert!(named(incumbent(&["--color=never"]).env("INCUMBENT_CONFIG", file)).contains("nowhere-in-file"));
    let variable = named(incumbent(&["--color=never"]).env("INCUMBENT_CONFIG", file).env("INCUMBENT_ON", "variable:"));
    assert!(variable.contains("\"variable\""), "{variable}");
    let mut flag = incumbent(&["who", "billing", "--on", "flag:", "--config", file]);
    assert!(complaint(&ends(flag.env("INCUMBENT_ON", "variable:"), 2)).contains("\"flag\""));

    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("elections-here");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("incumbent.toml"), "on = \"memory:here\"\n").unwrap();
    ends(incumbent(&["who", "billing"]).current_dir(&folder), 4);
    let home = folder.join("xdg");
    std::fs::create_dir_all(home.join("incumbent")).unwrap();
    std::fs::write(home.join("incumbent/incumbent.toml"), "on = \"memory:xdg\"\n").unwrap();
    ends(incumbent(&["who", "billing"]).env("XDG_CONFIG_HOME", &home), 4);
}

#[test]
fn bad_input_is_one_line_that_says_what_to_do() {
    let unknown = configuration("unknown", "on = \"memory:\"\ntll = \"3s\"\n");
    let unknown = unknown.to_str().unwrap();
    for (arguments, says) in [
        (&["who", "billing", "--on", "etdc://h"][..], "there are memory, file, etcd"),
        (&["who", "billing", "--on", "10.0.0.1/prod"], "SCHEME://HOST:PORT"),
        (&["who", "bil ling", "--on", "memory:"], "use letters, digits"),
        (&["who", "", "--on", "memory:"], "no name"),
        (&["who", "billing", "--on", "memory:", "--ttl", "1ms"], "between 100ms and a day"),
        (&["who", "billing", "--on", "memory:", "--identity", "a b"], "--identity: ' '"),
        (&["who", "billing", "--config", unknown], "line 2: unknown field `tll`, expected one of `on`, `ttl`, `identity`"),
        (&["drill", "--on", "memory:"], "name another engine"),
        (&["plan", "--failover", "3s", "--on", "etdc://h"], "there are memory, file, etcd"),
    ] {
        let output = ends(&mut incumbent(arguments), 2);
        assert!(complaint(&output).contains(says), "{arguments:?}: {}", complaint(&output));
    }
    let missing = ends(&mut incumbent(&["who", "billing", "--config", "/nowhere/at-all.toml"]), 3);
    assert!(text(&missing.stderr).contains("/nowhere/at-all.toml"));
    let log = ends(incumbent(&["who", "billing", "--on", "memory:"]).env("INCUMBENT_LOG", "incumbent=loudly"), 2);
    assert!(complaint(&log).contains("INCUMBENT_LOG"));
}

#[test]
fn no_password_is_ever_printed() {
    let file = configuration("secret", "on = \"etdc://me:hunter2@h:x/\"\n");
    for command in [
        incumbent(&["who", "billing", "--on", "etdc://me:hunter2@h/"]),
        incumbent(&["who", "billing", "--on", "redis://me:hunter2@h:port/"]),
        incumbent(&["who", "billing", "--on", "me:hunter2@h"]),
        incumbent(&["doctor", "--on", "etdc://me:hunter2@h/", "--json"]),
        incumbent(&["doctor", "--verbose", "--on", "memory://me:hunter2@h/a"]),
        incumbent(&["plan", "--failover", "3s", "--on", "etdc://me:hunter2@h/"]),
        incumbent(&["who", "billing", "--config", file.to_str().unwrap()]),
    ] {
        let mut command = command;
        let output = command.output().unwrap();
        let printed = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(!printed.contains("hunter2") && !printed.is_empty(), "{command:?}: {printed}");
    }
}

/// A place for elections that no other test knows.
fn files(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("elections-{name}-{}", std::process::id()));
    format!("file:{}", folder.to_str().unwrap())
}

/// How a candidate takes it when it is asked to leave.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manners {
    /// It goes.
    Heeds,
    /// Its work does not end.
    Lingers,
}

/// A candidate as a service has it, on a thread of its own, until it is dropped.
struct Candidate {
    _stays: oneshot::Sender<()>,
    elected: mpsc::Receiver<u64>,
}

impl Candidate {
    fn stands(url: &str, name: &str, manners: Manners) -> Candidate {
        let timing = match manners {
            Manners::Heeds => Timing::of(Duration::from_secs(3)),
            // No test sees the end of that.
            Manners::Lingers => Timing::of(Duration::from_secs(300)),
        };
        let election = Election::on(url)
            .name("billing")
            .identity(Identity::named(name).unwrap())
            .timing(timing.build().unwrap())
            .value(format!("http://{name}"));
        let (stays, gone) = oneshot::channel::<()>();
        let (tell, elected) = mpsc::channel();
        std::thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
                let election = election.build().await.unwrap();
                let run = election.run(|leadership| {
                    let _ = tell.send(leadership.token().get());
                    async move {
                        leadership.stopping().await;
                        if manners == Manners::Lingers {
                            std::future::pending::<()>().await;
                        }
                        Ok::<_, incumbent::Error>(Next::Resign)
                    }
                });
                tokio::select! {
                    ended = run => ended.unwrap(),
                    _ = gone => {}
                }
            });
        });
        Candidate { _stays: stays, elected }
    }

    /// Waits until it leads; its token.
    fn leads(&self) -> u64 {
        self.elected.recv_timeout(Duration::from_secs(30)).expect("it leads within half a minute")
    }
}

/// `web-1` leads and `web-2` waits.
fn two(url: &str) -> (Candidate, Candidate, u64) {
    let first = Candidate::stands(url, "web-1", Manners::Heeds);
    let token = first.leads();
    let second = Candidate::stands(url, "web-2", Manners::Heeds);
    eventually("web-2 waits", || candidates(url) == ["web-2"]);
    (first, second, token)
}

fn on(url: &str, arguments: &[&str]) -> Command {
    let mut command = incumbent(arguments);
    command.env("INCUMBENT_ON", url);
    command
}

fn candidates(url: &str) -> Vec<String> {
    let document = json(&ends(&mut on(url, &["candidates", "billing", "--json"]), 0));
    document["candidates"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn who_says_who_leads_and_how_many_wait() {
    let url = files("who");
    let (_first, _second, token) = two(&url);
    let document = json(&ends(&mut on(&url, &["who", "billing", "--json"]), 0));
    let leader = &document["leader"];
    assert_eq!(
        (&leader["name"], &leader["value"], &leader["token"]),
        (&"web-1".into(), &"http://web-1".into(), &token.to_string().into())
    );
    assert_eq!((&document["candidates"], &document["engine"]), (&1.into(), &"file".into()));
    let output = ends(&mut on(&url, &["who", "billing"]), 0);
    for part in ["web-1 leads billing\n", &format!("token       {token}\n"), "http://web-1", "candidates  1\n"] {
        assert!(text(&output.stdout).contains(part), "no {part:?} in {}", text(&output.stdout));
    }
    let output = ends(&mut on(&url, &["candidates", "billing"]), 0);
    assert!(text(&output.stdout).contains("web-2") && !text(&output.stdout).contains("web-1"));
}

/// What a leader publishes is others' text: it must not look like ours, nor speak to a terminal.
#[test]
fn what_others_have_written_stays_on_its_line() {
    let url = files("forged");
    let forged = "l1\n  token       999\u{1b}[31m";
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let election = Election::on(&url).name("billing").value(forged).build().await.unwrap();
        let leadership = election.campaign().await.unwrap();
        election.annotate(leadership.token(), "a\nb").await.unwrap();
        for command in [&["who", "billing"][..], &["watch", "billing", "--count", "1"], &["history", "billing"]] {
            let output = ends(&mut on(&url, command), 0);
            let said = text(&output.stdout);
            assert!(!said.contains('\u{1b}') && !said.contains("\n  token       999") && !said.contains("a\nb"), "{said}");
        }
        assert!(text(&ends(&mut on(&url, &["who", "billing"]), 0).stdout).contains("l1\\n"));
        leadership.resign().await.unwrap();
    });
}

/// Who gave up waiting may have changed something all the same.
#[test]
fn an_interrupted_wish_is_said_to_be_left() {
    let url = files("interrupted");
    let leader = Candidate::stands(&url, "web-1", Manners::Lingers);
    leader.leads();
    let mut command = on(&url, &["resign", "billing", "--json"]);
    let asking = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the wish lies there", || std::fs::exists(format!("{}/billing.wish", url.trim_start_matches("file:"))).unwrap());
    kill_process(Pid::from_child(&asking), Signal::INT).unwrap();
    let output = asking.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &json(&output)["outcome"]), (Some(130), &"asked".into()));
}

#[test]
fn resign_hand_over_and_evict_bring_a_new_leader_and_the_history_says_why() {
    let url = files("asked");
    let (first, second, token) = two(&url);
    let document = json(&ends(&mut on(&url, &["resign", "billing", "--json"]), 0));
    assert_eq!((&document["outcome"], &document["leader"]["name"]), (&"changed".into(), &"web-2".into()));
    assert_eq!(document["asked"]["token"], token.to_string());
    assert!(document["took_ms"].as_f64().unwrap() > 0.0);
    let later = second.leads();
    assert!(later > token);
    assert_eq!(document["leader"]["token"], later.to_string());

    eventually("web-1 waits again", || candidates(&url) == ["web-1"]);
    let nobody = ends(&mut on(&url, &["handover", "billing", "--to", "web-9"]), 2);
    assert!(complaint(&nobody).contains("there wait web-1"), "{}", complaint(&nobody));
    let already = ends(&mut on(&url, &["handover", "billing", "--to", "web-2"]), 0);
    assert!(text(&already.stdout).contains("web-2 leads billing already"));
    let output = ends(&mut on(&url, &["handover", "billing", "--to", "web-1"]), 0);
    assert!(text(&output.stdout).starts_with("web-1 leads billing with token"), "{}", text(&output.stdout));
    assert!(first.leads() > later);

    eventually("web-2 waits again", || candidates(&url) == ["web-2"]);
    let output = ends(&mut on(&url, &["evict", "billing", "--wait", "--within", "20s"]), 0);
    assert!(text(&output.stdout).starts_with("web-2 leads billing"), "{}", text(&output.stdout));

    let document = json(&ends(&mut on(&url, &["history", "billing", "--json"]), 0));
    let past: Vec<_> = document["past"].as_array().unwrap().iter().map(|it| (&it["name"], &it["reason"])).collect();
    let expected = [("web-1", "evicted"), ("web-2", "handed over"), ("web-1", "resigned")];
    assert_eq!(
        past,
        expected
            .map(|(name, reason)| (name.into(), reason.into()))
            .iter()
            .map(|(a, b)| (a, b))
            .collect::<Vec<(&Value, &Value)>>()
    );
    let output = ends(&mut on(&url, &["history", "billing"]), 0);
    let lines: Vec<&str> = text(&output.stdout).lines().collect();
    assert!(lines[1].contains("in office") && lines[2].contains("evicted") && lines[4].contains("resigned"), "{lines:?}");
}

#[test]
fn a_leader_that_does_not_heed_a_wish_is_said_to_lead_still() {
    let url = files("lingers");
    let leader = Candidate::stands(&url, "web-1", Manners::Lingers);
    leader.leads();
    let output = ends(&mut on(&url, &["resign", "billing", "--within", "300ms"]), 6);
    assert!(text(&output.stdout).contains("web-1 still leads billing"), "{}", text(&output.stdout));
    let document = json(&ends(&mut on(&url, &["evict", "billing", "--within", "300ms", "--json"]), 6));
    assert_eq!((&document["outcome"], &document["leader"]["name"]), (&"unheeded".into(), &"web-1".into()));
    let output = ends(&mut on(&url, &["evict", "billing", "--no-wait"]), 0);
    assert!(text(&output.stdout).contains("web-1 is asked to leave"));
    ends(&mut on(&url, &["evict", "billing", "--no-wait", "--within", "3s"]), 2);
}

#[test]
fn watch_says_every_change_and_ends_when_it_is_told_to() {
    let url = files("watch");
    let mut command = on(&url, &["watch", "billing", "--json"]);
    let mut watch = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap()["leader"].clone();
    assert_eq!(next(), Value::Null, "nobody is an answer");
    let first = Candidate::stands(&url, "web-1", Manners::Heeds);
    let token = first.leads();
    assert_eq!(next()["token"], token.to_string());
    ends(&mut on(&url, &["resign", "billing", "--no-wait"]), 0);
    assert_eq!(next(), Value::Null);
    assert!(next()["token"].as_str().unwrap().parse::<u64>().unwrap() > token, "it contends again");
    let pid = Pid::from_raw(watch.id().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(watch.wait().unwrap().code(), Some(0), "being stopped is its end");

    let counted = ends(&mut on(&url, &["watch", "billing", "--count", "1"]), 0);
    assert!(text(&counted.stdout).contains("web-1 leads with token"), "{}", text(&counted.stdout));
}

#[test]
fn watch_ends_when_nobody_reads_it_any_more() {
    let url = files("unread");
    let mut watch = on(&url, &["watch", "billing"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().ends_with("nobody leads"));
    drop(lines);
    // Nobody ever leads, so there is no second line to notice it with.
    let mut ended = None;
    eventually("it ends", || {
        ended = watch.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().code(), Some(0));
}

#[test]
fn commands_that_only_look_make_nothing() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("elections-unmade-{}", std::process::id()));
    let url = format!("file:{}", folder.join("deep").display());
    ends(&mut on(&url, &["who", "billing"]), 4);
    ends(&mut on(&url, &["candidates", "billing"]), 0);
    ends(&mut on(&url, &["history", "billing"]), 0);
    ends(&mut on(&url, &["watch", "billing", "--count", "1"]), 0);
    assert!(!folder.exists());
}

/// A mistyped name costs the leader its seat there: whoever asks is told.
#[test]
fn a_hand_over_on_an_engine_that_does_not_know_who_waits_is_warned_about() {
    let nats = Nats::recent().start().unwrap();
    let url = format!("nats://{}/typo", nats.address());
    let leader = Candidate::stands(&url, "web-1", Manners::Heeds);
    leader.leads();
    let output = ends(&mut on(&url, &["handover", "billing", "--to", "web-9", "--no-wait"]), 0);
    assert!(text(&output.stderr).starts_with("warning: nats does not say who waits: if nobody called web-9 does"), "{output:?}");
}

#[test]
fn after_a_raise_every_token_is_greater() {
    let url = files("raise");
    let above = (3_u64 << 48) + 17;
    ends(&mut on(&url, &["raise", "billing", "--above", &above.to_string()]), 0);
    let leader = Candidate::stands(&url, "web-1", Manners::Heeds);
    assert!(leader.leads() > above);
    let wrong = ends(&mut on(&url, &["raise", "billing", "--above", "many"]), 2);
    assert!(text(&wrong.stderr).contains("incumbent who"));
}

#[test]
fn a_doctor_finds_what_is_wrong_and_ends_accordingly() {
    let url = files("doctor");
    let document = json(&ends(&mut on(&url, &["doctor", "--ttl", "3s", "--json"]), 0));
    let findings = document["findings"].as_array().unwrap();
    let level = |about: &str| findings.iter().find(|it| it["about"] == about).map(|it| it["level"].as_str().unwrap());
    assert_eq!(["reach", "round trip", "clock", "timing"].map(level), [Some("ok"); 4]);
    assert!(document["round_trip"]["p50_ms"].as_f64().unwrap() > 0.0);
    let at = |about: &str| findings.iter().position(|it| it["about"] == about).unwrap();
    assert!(at("caveat") < at("one leader"), "what is not promised comes first");

    let output = ends(&mut on("file:/proc/nowhere", &["doctor"]), 1);
    assert!(text(&output.stdout).starts_with("fail  reach") && text(&output.stdout).lines().count() == 1);
}

#[test]
fn a_drill_measures_failovers_and_finds_no_two_leaders_at_once() {
    let url = files("drill");
    for (fault, rounds) in [("kill", 3), ("resign", 2)] {
        let count = rounds.to_string();
        let arguments = ["drill", "--fault", fault, "--rounds", &count, "--ttl", "2s", "--json"];
        let document = json(&ends(&mut on(&url, &arguments), 0));
        assert_eq!((&document["overlap_ms"], &document["ended_early"]), (&0.0.into(), &Value::Null), "{document:#}");
        assert_eq!(document["failover"]["each_ms"].as_array().unwrap().len(), rounds);
        let leaderships = document["leaderships"].as_array().unwrap();
        assert!(leaderships.len() > rounds);
        assert!(leaderships.iter().all(|it| it["begin_ns"].as_u64() < it["end_ns"].as_u64()), "{document:#}");
    }
    ends(&mut on(&url, &["who", "incumbent-drill"]), 4);
    let past = json(&ends(&mut on(&url, &["history", "incumbent-drill", "--json"]), 0));
    let reasons: Vec<&str> = past["past"].as_array().unwrap().iter().map(|it| it["reason"].as_str().unwrap()).collect();
    assert!(reasons.iter().filter(|it| **it == "process died").count() == 3, "the last one gives the seat back: {reasons:?}");

    let output = ends(&mut on(&url, &["drill", "--fault", "pause"]), 2);
    assert!(complaint(&output).contains("--fault kill"));
    let stranger = Candidate::stands(&url, "web-1", Manners::Heeds);
    stranger.leads();
    let output = ends(&mut on(&url, &["drill", "--election", "billing"]), 5);
    assert!(complaint(&output).contains("web-1 leads billing"));
}

/// Its candidates would go on trying.
#[test]
fn a_drill_by_somebody_who_may_not_lead_ends_at_once() {
    let redis = Redis::debian().start().unwrap();
    let rights = ["~incumbent:*", "&incumbent:*", "+@read", "+@pubsub", "+@connection", "+@scripting", "+time"];
    redis.command(&[&["ACL", "SETUSER", "reader", "on", ">r"], &rights[..]].concat()).unwrap();
    let url = format!("redis://reader:r@{}/drill", redis.address());
    let output = ends(&mut on(&url, &["drill", "--rounds", "1", "--ttl", "10m"]), 2);
    assert!(complaint(&output).contains("+@write"), "{}", complaint(&output));
}

#[test]
fn on_an_engine_on_the_network_a_lease_runs_out_no_earlier_than_it_may() {
    let etcd = Etcd::debian().start().unwrap();
    let url = format!("etcd://{}/drills", etcd.address());
    let document = json(&ends(&mut on(&url, &["doctor", "--json"]), 0));
    let clock = document["findings"].as_array().unwrap().iter().find(|it| it["about"] == "clock").unwrap();
    assert!(clock["level"] == "ok" && clock["says"].as_str().unwrap().contains("was freed after"), "{clock}");

    for fault in ["pause", "kill"] {
        let arguments = ["drill", "--fault", fault, "--rounds", "2", "--ttl", "2s", "--json"];
        let document = json(&ends(&mut on(&url, &arguments), 0));
        assert_eq!((&document["overlap_ms"], &document["ended_early"]), (&0.0.into(), &Value::Null), "{document:#}");
        assert_eq!(document["failover"]["seen"], 2);
        // The lease of a leader that says nothing any more has to run out first, less what had passed of it.
        assert!(document["failover"]["min_ms"].as_f64().unwrap() > 1000.0, "{document:#}");
    }
    ends(&mut on(&url, &["who", "incumbent-drill"]), 4);

    let mut command = on(&url, &["watch", "billing", "--ttl", "2s"]);
    let mut watch = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut seen = BufReader::new(watch.stdout.take().unwrap()).lines();
    assert!(seen.next().unwrap().unwrap().ends_with("nobody leads"));
    etcd.kill();
    let mut said = BufReader::new(watch.stderr.take().unwrap()).lines();
    let warning = said.next().unwrap().unwrap();
    assert!(warning.starts_with("warning: cannot look, and goes on trying"), "{warning}");
    etcd.restart().unwrap();
    let next = said.next().unwrap().unwrap();
    assert!(next.starts_with("warning: can look again"), "it says so once, and not every second: {next}");
    let leader = Candidate::stands(&url, "web-1", Manners::Heeds);
    leader.leads();
    assert!(seen.next().unwrap().unwrap().contains("web-1 leads"));
    kill_process(Pid::from_raw(watch.id().try_into().unwrap()).unwrap(), Signal::TERM).unwrap();
    assert_eq!(watch.wait().unwrap().code(), Some(0));
    drop(leader);

    etcd.kill();
    let output = ends(&mut on(&url, &["who", "billing"]), 5);
    assert!(complaint(&output).contains("is it running there"), "{}", complaint(&output));
    let output = ends(&mut on(&url, &["doctor"]), 1);
    assert!(text(&output.stdout).starts_with("fail  reach"), "{}", text(&output.stdout));
    let output = ends(&mut on(&url, &["watch", "billing"]), 5);
    assert!(complaint(&output).contains("is it running there"));
}

#[test]
fn a_doctor_asks_the_servers_for_the_lease_that_is_planned() {
    let zookeeper = ZooKeeper::debian().start().unwrap();
    let url = format!("zookeeper://{}/doctor", zookeeper.address());
    let output = ends(&mut on(&url, &["doctor", "--ttl", "3s", "--looks", "1"]), 0);
    assert!(text(&output.stdout).contains("clock        not measured"), "{}", text(&output.stdout));
    let output = ends(&mut on(&url, &["doctor", "--ttl", "10m", "--looks", "1"]), 1);
    assert!(text(&output.stdout).contains("maxSessionTimeout"), "{}", text(&output.stdout));
}

#[test]
fn a_lease_that_is_longer_than_was_asked_for_is_told_of() {
    let (etcd, zookeeper) = (
        Etcd::debian().election_timeout(Duration::from_secs(1)).start().unwrap(),
        ZooKeeper::debian().tick(Duration::from_secs(2)).start().unwrap(),
    );
    let short =
        [(format!("etcd://{}/short", etcd.address()), "1s"), (format!("zookeeper://{}/short", zookeeper.address()), "100ms")];
    let state = concat!(env!("CARGO_TARGET_TMPDIR"), "/stretched");
    for (url, ttl) in short {
        let output = ends(&mut on(&url, &["run", "billing", "--ttl", ttl, "--state-dir", state, "--", "true"]), 0);
        let said = text(&output.stderr);
        assert!(said.contains("warning:") && said.contains(&format!("and not for {ttl} as was asked")), "{url}: {said}");
    }
}

/// Each engine's client crate brings its own idea of TLS along, and here they are all in one program.
#[test]
fn every_engine_speaks_tls_beside_the_others() {
    let certificates = Certificates::new().unwrap();
    let etcd = Etcd::debian().tls(certificates.server()).start().unwrap();
    let redis = Redis::debian().tls(certificates.server()).start().unwrap();
    let zookeeper = ZooKeeper::debian().tls(certificates.server()).start().unwrap();
    let consul = Consul::plan().tls(certificates.server()).start().unwrap();
    let nats = Nats::recent().tls(certificates.server()).start().unwrap();
    let (ca, stranger) = (certificates.authority(), certificates.stranger());
    for place in [
        format!("etcd://localhost:{}/tls", etcd.port()),
        format!("redis://localhost:{}/tls", redis.port()),
        format!("zookeeper://localhost:{}/tls", zookeeper.port()),
        format!("consul://localhost:{}/tls", consul.port()),
        format!("nats://localhost:{}/tls", nats.port()),
    ] {
        ends(&mut on(&format!("{place}?ca={}", ca.display()), &["who", "billing"]), 4);
        let output = on(&format!("{place}?ca={}", stranger.display()), &["who", "billing"]).output().unwrap();
        assert!(matches!(output.status.code(), Some(2 | 5)), "{place}: {}", text(&output.stderr));
        assert!(complaint(&output).contains("TLS") || complaint(&output).contains("ca="), "{}", complaint(&output));
    }
}
