//! Elections on Kubernetes: the conformance suite, what only Leases can do wrong, and the Python client's own candidates on the same Lease. Against the
//! testbed's server, which answers as the real one was recorded.

mod support;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use incumbent::clock;
use incumbent::conformance::{bid, check, fresh_name};
use incumbent::engine::{Bid, Claim, Demand, Farewell, Kind, Renewal, Wish};
use incumbent::{Engine, Name, Reason};
use incumbent_testbed::{Access, Certificates, Contender, Kubernetes, python};
use support::processes::{self, Arena};
use support::{Networked, granted, granted_in_the_end, open};
use tokio::time::timeout;

const TTL: Duration = Duration::from_secs(2);

/// Where a kubeconfig of this test stands.
fn file(name: &str, text: &str) -> PathBuf {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("kubeconfig-{name}"));
    // Several write the same at once: nobody may read half of it.
    let draft = file.with_extension(format!("{:?}", std::thread::current().id()));
    std::fs::write(&draft, text).and_then(|()| std::fs::rename(&draft, &file)).expect("a folder for tests");
    file
}

/// The way through a port: the server's own, or a relay's.
fn url(port: u16) -> String {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: here\nclusters:\n- name: here\n  cluster: {{ server: \"http://127.0.0.1:{port}\" }}\n\
         users:\n- name: here\n  user: {{}}\ncontexts:\n- name: here\n  context: {{ cluster: here, user: here }}\n"
    );
    format!("kubernetes://here/default?kubeconfig={}", file(&port.to_string(), &text).display())
}

/// With all that the server's own kubeconfig says.
fn url_of(kubernetes: &Kubernetes) -> String {
    let file = file(&format!("{}-own", kubernetes.port()), &kubernetes.kubeconfig());
    format!("kubernetes:default?kubeconfig={}", file.display())
}

fn at(kubernetes: &Kubernetes) -> Networked {
    Networked { port: kubernetes.port(), url, ttl: TTL }
}

async fn engine(kubernetes: &Kubernetes) -> Arc<dyn Engine> {
    open(&url_of(kubernetes)).await.expect("it runs")
}

fn resigned() -> Farewell {
    Farewell { reason: Reason::Resigned, to: None }
}

#[tokio::test]
async fn kubernetes_conforms() {
    check(&at(&Kubernetes::start().expect("a free port"))).await;
}

#[tokio::test]
async fn of_a_storm_of_conflicts_one_wins_and_loses_nothing() {
    let kubernetes = Kubernetes::start().expect("a free port");
    let election = fresh_name("storm");
    let engines = join_all((0..6).map(|_| engine(&kubernetes))).await;
    let mut last = None;
    for round in 0..4 {
        let bids: Vec<Bid> = (0..engines.len()).map(|it| bid(&at(&kubernetes), &format!("c{it}"))).collect();
        let claims = engines.iter().zip(&bids).map(|(engine, bid)| granted(&**engine, &election, bid));
        let seated: Vec<usize> =
            join_all(claims).await.iter().enumerate().filter_map(|(at, it)| it.as_ref().map(|_| at)).collect();
        let [winner] = seated[..] else { panic!("{seated:?} were seated in round {round}") };
        let (engine, own) = (&engines[winner], &bids[winner]);
        let token = granted(&**engine, &election, own).await.expect("its own").token;
        assert!(Some(token) > last);
        last = Some(token);
        // All ask at once while it renews: no renewal and no wish is lost.
        let wish = Wish { token, what: Demand::Evict, by: "the test".into() };
        let asking = join_all(engines.iter().map(|it| it.ask(&election, &wish)));
        let (asked, renewal) = tokio::join!(asking, engine.renew(&election, own, token));
        assert!(asked.iter().all(Result::is_ok), "{asked:?}");
        assert!(matches!(renewal, Ok(Renewal::Kept { .. })), "{renewal:?}");
        let heard = engine.renew(&election, own, token).await.expect("it runs");
        assert!(matches!(heard, Renewal::Kept { wish: Some(_), .. }), "{heard:?}");
        engine.release(&election, own, token, &resigned()).await.expect("it runs");
    }
    assert_eq!(engines[0].look(&election).await.expect("it runs").past.len(), 4);
}

#[tokio::test]
async fn a_watch_survives_a_history_that_is_forgotten_and_a_restart_keeps_tokens_rising() {
    let kubernetes = Kubernetes::start().expect("a free port");
    let (first, second, election) = (engine(&kubernetes).await, engine(&kubernetes).await, fresh_name("gone"));
    let (a, b) = (bid(&at(&kubernetes), "a"), bid(&at(&kubernetes), "b"));
    let token = granted(&*first, &election, &a).await.expect("a new election is free").token;
    let mut hints = second.watch(&election, Some(&b));
    hints.next().await.expect("at once").expect("it runs");
    kubernetes.compact();
    first.proclaim(&election, &a, token, "here").await.expect("in office");
    timeout(TTL * 10, hints.next()).await.expect("a hint").expect("it goes on").expect("it runs");
    first.release(&election, &a, token, &resigned()).await.expect("it runs");
    kubernetes.restart().expect("the port is still ours");
    // Told 410 if it goes on where it was.
    assert!(granted_in_the_end(&*second, &election, &b).await.token > token);
}

#[tokio::test]
async fn a_deleted_lease_is_not_brought_back_by_its_holder() {
    let kubernetes = Kubernetes::start().expect("a free port");
    let (engine, election, a) = (engine(&kubernetes).await, fresh_name("deleted"), bid(&at(&kubernetes), "a"));
    let token = granted(&*engine, &election, &a).await.expect("a new election is free").token;
    // As an operator would, with kubectl.
    let mut line = TcpStream::connect(kubernetes.address()).expect("it runs");
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/default/leases/{election}");
    write!(line, "DELETE {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("it listens");
    let mut answer = String::new();
    line.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(engine.renew(&election, &a, token).await.expect("it runs"), Renewal::Gone);
    assert!(engine.look(&election).await.expect("it runs").leaders.is_empty());
    let again = Bid { seen: Some(token), ..a };
    assert!(granted(&*engine, &election, &again).await.expect("free again").token > token, "it remembers");
}

#[tokio::test]
async fn who_may_not_is_told_what_is_needed() {
    let plan = Kubernetes::plan().token("all", Access::Write).token("some", Access::Read);
    let kubernetes = plan.start().expect("a free port");
    let (election, a) = (fresh_name("rights"), bid(&at(&kubernetes), "a"));
    let with = |token: &str| {
        let file =
            file(&format!("{}-{token}", kubernetes.port()), &kubernetes.kubeconfig().replace("\"all\"", &format!("{token:?}")));
        format!("kubernetes:default?kubeconfig={}", file.display())
    };
    for (token, word) in [("some", "get, list, watch, create and update"), ("wrong", "credentials")] {
        let why = match open(&with(token)).await {
            Ok(engine) => engine.claim(&election, &a).await.expect_err("may not"),
            Err(why) => why,
        };
        assert!(why.kind() == Kind::Misconfigured && why.to_string().contains(word), "{token}: {why:?}");
    }
    let engine = open(&with("all")).await.expect("may");
    assert!(granted(&*engine, &election, &a).await.is_some());
}

#[tokio::test]
async fn credentials_that_are_not_accepted_any_more_are_read_anew() {
    let kubernetes = Kubernetes::plan().token("all", Access::Write).start().expect("a free port");
    let (election, a) = (fresh_name("rotated"), bid(&at(&kubernetes), "a"));
    // It cannot say yet that they are of no use.
    kubernetes.stop();
    let has = |token: &str| {
        let text = kubernetes.kubeconfig().replace("\"all\"", &format!("{token:?}"));
        file(&format!("{}-rotated", kubernetes.port()), &text)
    };
    let url = format!("kubernetes:default?kubeconfig={}", has("old").display());
    let engine = open(&url).await.expect("it may come later");
    kubernetes.restart().expect("the port is still ours");
    has("all");
    assert_eq!(engine.claim(&election, &a).await.expect_err("just read").kind(), Kind::Misconfigured);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(6)).await;
    tokio::time::resume();
    let why = engine.claim(&election, &a).await.expect_err("the old ones");
    assert!(why.kind() == Kind::Refused && why.to_string().contains("anew"), "{why:?}");
    assert!(granted(&*engine, &election, &a).await.is_some());
}

#[tokio::test]
async fn a_server_that_allows_nothing_but_leases_is_enough() {
    let kubernetes = Kubernetes::plan().only_leases().start().expect("a free port");
    let engine = engine(&kubernetes).await;
    assert!(granted(&*engine, &fresh_name("hardened"), &bid(&at(&kubernetes), "a")).await.is_some());
}

#[tokio::test]
async fn over_tls_only_the_right_server_is_spoken_to() {
    let certificates = Certificates::new().expect("certificates");
    let good = Kubernetes::plan().tls(certificates.server()).start().expect("a free port");
    let bad = Kubernetes::plan().tls(certificates.wrong_name()).start().expect("a free port");
    let right = engine(&good).await;
    assert!(granted(&*right, &fresh_name("tls"), &bid(&at(&good), "a")).await.is_some());
    let why = match open(&url_of(&bad)).await {
        Ok(engine) => engine.claim(&fresh_name("tls"), &bid(&at(&bad), "a")).await.expect_err("not to be trusted"),
        Err(why) => why,
    };
    assert!(why.kind() == Kind::Misconfigured && why.to_string().contains("tls-server-name"), "{why:?}");
}

#[tokio::test]
async fn what_cannot_be_is_refused_in_one_line() {
    let kubernetes = Kubernetes::start().expect("a free port");
    let engine = engine(&kubernetes).await;
    for odd in ["Jobs", "a_b", "a..b", "a-", "a.-b"] {
        let why = engine.accepts(&Name::new(odd).expect("fit for others")).expect_err(odd).to_string();
        assert!(why.contains("small letters"), "{why}");
    }
    assert!(engine.accepts(&Name::new("a-1.b2").expect("good")).is_ok());
    let elsewhere = url(kubernetes.port()).replace("/default?", "/nowhere?");
    let why = open(&elsewhere).await.expect("it runs").claim(&fresh_name("x"), &bid(&at(&kubernetes), "a")).await;
    let why = why.expect_err("there is no such namespace");
    assert!(why.kind() == Kind::Misconfigured && why.to_string().contains("nowhere"), "{why:?}");
    let (there, port) = (url(kubernetes.port()), kubernetes.port());
    drop(kubernetes);
    for (url, word) in [
        ("kubernetes:x?kubeconfig=/no/such/file".to_owned(), "/no/such/file"),
        (there.replace("://here/", "://elsewhere/"), "elsewhere"),
        ("kubernetes:x?colour=red".to_owned(), "no option"),
        ("kubernetes:x?ca=/x".to_owned(), "kubeconfig"),
    ] {
        let why = open(&url).await.err().expect("cannot be").to_string();
        assert!(why.contains(word) && !why.contains('\n'), "{url}: {why}");
    }
    let nobody = open(&url(port)).await.expect("it may come later");
    let absent = Networked { port, url, ttl: TTL };
    let why = nobody.claim(&fresh_name("x"), &bid(&absent, "a")).await.expect_err("nobody is there");
    assert!(why.kind() == Kind::Refused && why.to_string().contains("cannot reach"), "{why:?}");
}

/// The Python client's own leader election; says `elected` and `ended`, and leads until it is killed.
const STRANGER: &str = r#"
import sys
from kubernetes import config
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock
kubeconfig, name, who, seconds = sys.argv[1:]
config.load_kube_config(kubeconfig)
say = lambda word: lambda: print(word, who, flush=True)
lock = LeaseLock(name, "default", who)
leaderelection.LeaderElection(electionconfig.Config(lock, int(seconds), int(seconds) - 1, 1, say("elected"), say("ended"))).run()
"#;

fn stranger(kubernetes: &Kubernetes, election: &Name, who: &str, seconds: u32) -> Contender {
    let file = file(&format!("{}-stranger", kubernetes.port()), &kubernetes.kubeconfig());
    let mut command = Command::new(python().expect("cargo xtask install"));
    command.args(["-c", STRANGER]).arg(file).args([election.as_str(), who, &seconds.to_string()]);
    Contender::start(&command).expect("python starts")
}

#[tokio::test]
async fn the_python_client_contends_for_the_same_lease_and_never_two_lead() {
    let seconds = 3;
    let ttl = Duration::from_secs(u64::from(seconds));
    let kubernetes = Kubernetes::start().expect("a free port");
    let (engine, election) = (engine(&kubernetes).await, fresh_name("mixed"));
    let a = Bid { ttl, ..bid(&at(&kubernetes), "a") };
    let first = granted(&*engine, &election, &a).await.expect("a new election is free").token;

    // It waits while ours renews: for longer than a lease lasts.
    let other = stranger(&kubernetes, &election, "snake", seconds);
    let until = clock::now() + ttl * 2;
    let mut hints = engine.watch(&election, Some(&a));
    while clock::now() < until {
        let renewal = engine.renew(&election, &a, first).await.expect("it runs");
        assert!(matches!(renewal, Renewal::Kept { .. }), "{renewal:?}");
        assert!(other.lines().is_empty(), "two leaders: {:?}", other.lines());
        let _ = timeout(ttl / 8, hints.next()).await;
    }

    // Ours resigns: it is elected, and ours sees it.
    engine.release(&election, &a, first, &resigned()).await.expect("it runs");
    other.hear("to be elected", |line| line == "elected snake");
    let leader = match engine.claim(&election, &a).await.expect("it runs") {
        Claim::Occupied { leader, .. } => leader.expect("Kubernetes tells"),
        Claim::Granted(grant) => panic!("two leaders: {grant:?}"),
    };
    assert_eq!((leader.identity.as_str(), leader.heeds_wishes), ("snake", false));
    assert!(leader.token > first, "{} after {first}", leader.token);
    let wish = Wish { token: leader.token, what: Demand::Evict, by: "me".into() };
    let why = engine.ask(&election, &wish).await.expect_err("it reads none").to_string();
    assert!(why.contains("not one of ours"), "{why}");
    // As long as it lives, nobody else leads: two leases long.
    let until = clock::now() + ttl * 2;
    while clock::now() < until {
        assert!(granted(&*engine, &election, &a).await.is_none(), "two leaders");
        let _ = timeout(ttl / 8, hints.next()).await;
    }

    // It is killed: ours takes over, not before its lease has passed, and the next of its kind waits again.
    let killed = clock::now();
    other.kill();
    let third = granted_in_the_end(&*engine, &election, &a).await.token;
    // It renews every second, so at the kill up to a second of its lease had passed.
    assert!(clock::now() - killed >= ttl - Duration::from_millis(1500) && third > leader.token);
    let past = engine.look(&election).await.expect("it runs").past;
    let named: Vec<&str> = past.iter().map(|it| it.identity.name()).collect();
    assert_eq!(named, ["snake", "a"]);
    let late = stranger(&kubernetes, &election, "late", seconds);
    let until = clock::now() + ttl;
    while clock::now() < until {
        let renewal = engine.renew(&election, &a, third).await.expect("it runs");
        assert!(matches!(renewal, Renewal::Kept { .. }) && late.lines().is_empty(), "{renewal:?} {:?}", late.lines());
        let _ = timeout(ttl / 8, hints.next()).await;
    }
    // Ours falls silent: it takes over, and ours can tell.
    late.hear("to be elected", |line| line == "elected late");
    assert_eq!(engine.renew(&election, &a, third).await.expect("it runs"), Renewal::Gone);
}

/// Where the test below sends a process.
const OPENED: &str = "INCUMBENT_TEST_OPENED";

/// Looks at an election, if this process was started to.
#[test]
fn opener() {
    let Ok(url) = std::env::var(OPENED) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let engine = open(&url).await.expect("a good way");
        engine.look(&fresh_name("opened")).await.expect("it runs");
    });
}

/// A proxy that leads to `port`, whatever it is asked for. Says what that was.
fn proxy(port: u16) -> (u16, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (here, (says, asked)) = (listener.local_addr().expect("bound").port(), std::sync::mpsc::channel());
    std::thread::spawn(move || {
        for line in listener.incoming() {
            let mut line = line.expect("a connection");
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") {
                line.read_exact(&mut byte).expect("a head");
                head.push(byte[0]);
            }
            let _ = says.send(String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned());
            line.write_all(b"HTTP/1.1 200 OK\r\n\r\n").expect("it listens");
            let mut server = TcpStream::connect(("127.0.0.1", port)).expect("it runs");
            let (mut back, mut forth) = (line.try_clone().expect("a copy"), server.try_clone().expect("a copy"));
            std::thread::spawn(move || std::io::copy(&mut forth, &mut back));
            std::thread::spawn(move || std::io::copy(&mut line, &mut server));
        }
    });
    (here, asked)
}

#[test]
fn a_proxy_is_gone_through_where_there_is_one_and_not_to_this_machine() {
    let kubernetes = Kubernetes::start().expect("a free port");
    let (proxy, asked) = proxy(kubernetes.port());
    let looks = |url: &str, https_proxy: &str, no_proxy: &str| {
        let mut command = Command::new(std::env::current_exe().expect("a test has a file"));
        command.args(["--exact", "opener", "--nocapture"]).env(OPENED, url).env_remove("https_proxy");
        let done = command.env("HTTPS_PROXY", https_proxy).env("NO_PROXY", no_proxy).env_remove("no_proxy").output();
        let done = done.expect("it starts");
        assert!(done.status.success(), "{url}: {}", String::from_utf8_lossy(&done.stdout));
    };
    looks(&url(kubernetes.port()), "http://127.0.0.1:1", "");
    assert!(asked.try_recv().is_err());
    let elsewhere = kubernetes.kubeconfig().replace(&kubernetes.address(), "kubernetes.test:6443");
    let at = |name: &str, text: &str| {
        format!("kubernetes:default?kubeconfig={}", file(&format!("{}-{name}", kubernetes.port()), text).display())
    };
    // That NO_PROXY has the proxy itself says nothing of the server.
    looks(&at("outside", &elsewhere), &format!("http://127.0.0.1:{proxy}"), "127.0.0.1");
    assert_eq!(asked.try_recv().expect("gone through"), "CONNECT kubernetes.test:6443 HTTP/1.1");
    while asked.try_recv().is_ok() {}
    let named = elsewhere.replace("cluster: { ", &format!("cluster: {{ proxy-url: \"http://127.0.0.1:{proxy}\", "));
    looks(&at("named", &named), "http://127.0.0.1:1", "127.0.0.1");
    assert!(asked.try_recv().is_ok(), "gone through");
    while asked.try_recv().is_ok() {}
    // An empty entry is none, though the client itself refuses it.
    for no_proxy in [",localhost", "a.test,,b.test,"] {
        looks(&at("outside", &elsewhere), &format!("http://127.0.0.1:{proxy}"), no_proxy);
        assert_eq!(asked.try_recv().expect(no_proxy), "CONNECT kubernetes.test:6443 HTTP/1.1");
        while asked.try_recv().is_ok() {}
    }
    // And what else the kubeconfig says holds: here whom to trust, and who asks.
    let certificates = Certificates::new().expect("certificates");
    let plan = Kubernetes::plan().tls(certificates.server().requiring_clients()).token("all", Access::Write);
    let guarded = plan.start().expect("a free port");
    looks(&at("guarded", &guarded.kubeconfig()), "http://127.0.0.1:1", ",");
}

#[test]
fn contender() {
    processes::be_a_contender();
}

#[test]
fn a_killed_holder_is_replaced() {
    let kubernetes = Kubernetes::start().expect("a free port");
    processes::a_killed_holder_is_replaced(&Arena::new(url(kubernetes.port()), TTL));
}

#[test]
fn a_paused_holder_has_stopped_believing() {
    let kubernetes = Kubernetes::start().expect("a free port");
    processes::a_paused_holder_has_stopped_believing(&Arena::new(url(kubernetes.port()), TTL));
}
