//! Who may do what, and what the user is told: access lists, TLS, unreachable servers, odd paths.

use std::time::Duration;

use incumbent::engine::Kind;
use incumbent::engines;
use incumbent::place::Place;
use incumbent_testbed::{Certificates, Server as _, ZooKeeper};

use crate::{ZOOKEEPER, bid, claim, election, open, url};

fn as_user(who: &str, options: &str) -> String {
    format!("zookeeper://{who}@{}/acl?tick-ms=100{options}", ZOOKEEPER.server().address())
}

#[tokio::test]
async fn what_one_user_made_is_closed_to_others_and_says_what_to_do() {
    let (job, shown) = (election("private"), election("shown"));
    let owner = open(&as_user("ann:hunter2", "&acl=readable")).await;
    claim(&*owner, &shown, &bid("a")).await;
    let private = open(&format!("zookeeper://ann:hunter2@{}/acl-private?tick-ms=100", ZOOKEEPER.server().address())).await;
    claim(&*private, &job, &bid("a")).await;
    for who in ["bob:hunter2", "ann:hunter3"] {
        let other = open(&as_user(who, "")).await;
        let why = other.claim(&shown, &bid("b")).await.expect_err("not theirs");
        assert_eq!(why.kind(), Kind::Misconfigured, "{why:?}");
        assert!(why.to_string().contains("setAcl") && !why.to_string().contains("hunter"), "{why}");
        assert_eq!(other.look(&shown).await.expect("it is readable").leaders.len(), 1);
    }
    let nobody = open(&url("acl-private")).await;
    assert_eq!(nobody.look(&job).await.expect_err("not readable").kind(), Kind::Misconfigured);
    // The same user with the same password is welcome.
    let again = open(&as_user("ann:hunter2", "&acl=readable")).await;
    assert!(crate::try_claim(&*again, &shown, &bid("c")).await.is_none(), "in line");
}

#[tokio::test]
async fn an_unreachable_server_is_said_to_be_so_in_one_line() {
    // A port of ours on which nobody listens.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port();
    let engine = open(&format!("zookeeper://127.0.0.1:{port}/x")).await;
    let why = engine.claim(&election("job"), &bid("a")).await.expect_err("nobody listens");
    let text = why.to_string();
    assert!(why.kind() == Kind::Refused && text.contains(&format!("127.0.0.1:{port}")) && text.contains("refused"), "{why:?}");
    assert!(!text.contains('\n'));
}

#[tokio::test]
async fn tls_is_spoken_with_those_who_can_be_trusted() {
    let certificates = Certificates::new().expect("certificates");
    let plan = ZooKeeper::debian().tls(certificates.server().requiring_clients());
    let server = plan.start().expect("ZooKeeper starts");
    let (port, client) = (server.port(), certificates.client());
    let with =
        |ca: &std::path::Path, more: &str| format!("zookeeper://localhost:{port}/tls?tick-ms=100&ca={}{more}", ca.display());
    let own = format!("&cert={}&key={}", client.certificate.display(), client.key.display());
    let job = election("job");
    let good = open(&with(&certificates.authority(), &own)).await;
    claim(&*good, &job, &bid("a")).await;
    for (bad, word) in [
        (with(&certificates.stranger(), &own), "ca=FILE"),
        (with(&certificates.authority(), ""), "does not accept our certificate"),
    ] {
        let engine = open(&bad).await;
        let why = engine.claim(&job, &bid("b")).await.expect_err(&bad);
        let says = why.to_string();
        assert!(why.kind() == Kind::Misconfigured && says.contains("no TLS with") && says.contains(word), "{why:?}");
        assert!(!says.contains("quorum"), "{why:?}");
    }
    let plain = open(&format!("zookeeper://localhost:{port}/tls?tick-ms=100")).await;
    let why = plain.claim(&job, &bid("c")).await.expect_err("it wants TLS");
    assert!(why.to_string().contains("tls=on"), "{why:?}");
}

#[tokio::test]
async fn a_certificate_for_another_name_is_named_and_not_the_quorum_blamed() {
    let certificates = Certificates::new().expect("certificates");
    let server = ZooKeeper::debian().tls(certificates.wrong_name()).start().expect("ZooKeeper starts");
    let ca = certificates.authority();
    let engine = open(&format!("zookeeper://localhost:{}/tls?tick-ms=100&ca={}", server.port(), ca.display())).await;
    let why = engine.claim(&election("job"), &bid("a")).await.expect_err("it is somebody else");
    let says = why.to_string();
    assert!(why.kind() == Kind::Misconfigured && says.contains("no TLS with ZooKeeper at localhost:"), "{why:?}");
    assert!(says.contains("not for localhost") && says.contains("in the URL"), "what to do: {why:?}");
    assert!(!says.contains("quorum") && !says.contains("server-name"), "{why:?}");
}

/// A server without a quorum hangs up before the handshake, one that is stopped takes connections and says nothing: whoever stands by goes on asking.
#[tokio::test]
async fn a_server_that_hangs_up_or_stands_still_is_no_mistake_of_ours() {
    let certificates = Certificates::new().expect("certificates");
    let ca = certificates.authority();
    let still = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let hasty = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let ports = [&still, &hasty].map(|it| it.local_addr().expect("bound").port());
    // It ends with the test's process.
    std::thread::spawn(move || hasty.incoming().for_each(drop));
    for port in ports {
        let engine = open(&format!("zookeeper://localhost:{port}/tls?tick-ms=100&ca={}", ca.display())).await;
        let why = engine.claim(&election("job"), &bid("a")).await.expect_err("it gives no session");
        assert!(why.kind() == Kind::Refused && why.to_string().contains("quorum"), "{why:?}");
    }
}

#[tokio::test]
async fn a_bad_url_is_refused_with_what_to_do() {
    for (bad, word) in [
        ("h/a//b", "empty"),
        ("h/a?layout=zk", "layout=curator"),
        ("h/a?acl=private", "user"),
        ("h/a?tick-ms=0", "tickTime"),
        ("h/a?tls=on", "ca=FILE"),
        ("h/a?ca=/no/such/file", "/no/such/file"),
        ("h/a?ca=x&server-name=y", "server-name"),
        ("h/a?ttl=5", "knows no option"),
        (":pw@h/a", "name"),
        ("h/zookeeper", "own"),
    ] {
        let place = Place::parse(&format!("zookeeper://{bad}")).expect(bad);
        let why = engines::open(&place).await.err().expect(bad);
        assert!(
            why.kind() == Kind::Misconfigured && why.to_string().contains(word) && !why.to_string().contains('\n'),
            "{why:?}"
        );
    }
}

#[tokio::test]
async fn a_ttl_is_what_the_servers_grant() {
    let (engine, job) = (open(&url("ttl")).await, election("job"));
    let short = incumbent::engine::Bid { ttl: Duration::from_millis(1), ..bid("short") };
    // Two ticks of 100 ms, less what is kept back.
    let granted = claim(&*engine, &job, &short).await.ttl.expect("another than was asked for");
    assert!(granted > Duration::from_millis(100) && granted < Duration::from_millis(200), "{granted:?}");
    let asked = incumbent::engine::Bid { ttl: Duration::from_secs(3), ..bid("asked") };
    let granted = claim(&*engine, &election("other"), &asked).await.ttl.expect("told");
    assert!(granted >= Duration::from_secs(3) && granted < Duration::from_millis(3100), "{granted:?}");
    // Cut to what they grant, it would leave no time for what was planned.
    let long = incumbent::engine::Bid { ttl: Duration::from_secs(600), ..bid("long") };
    let why = engine.claim(&election("long"), &long).await.expect_err("too long");
    assert_eq!(why.kind(), Kind::Misconfigured, "{why}");
    let said = why.to_string();
    let advised = said.split("choose one of at most ").nth(1).and_then(|it| it.split("s,").next()).expect("what to choose");
    let advised = Duration::from_secs_f64(advised.parse().expect("seconds"));
    let fitting = incumbent::engine::Bid { ttl: advised, ..bid("fitting") };
    assert!(claim(&*engine, &election("long"), &fitting).await.ttl >= Some(advised), "the advice is good");
}
