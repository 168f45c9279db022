//! Elections on Consul: the conformance suite, and what only sessions and lock-delays can do wrong. Against the testbed's server, which answers as the real one was recorded.

mod support;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use incumbent::clock;
use incumbent::conformance::{bid, check, fresh_name};
use incumbent::engine::{Bid, Claim, Farewell, Kind, Renewal};
use incumbent::{Election, Engine, Name, Reason, Timing};
use incumbent_testbed::{Access, Certificates, Consul, ConsulPlan, Relay, WRONG_NAME};
use support::processes::{self, Arena};
use support::{Networked, granted, granted_in_the_end, open};
use tokio::time::timeout;

const TTL: Duration = Duration::from_secs(2);

fn plan() -> ConsulPlan {
    Consul::plan().session_ttl_min(Duration::from_millis(500))
}

fn url(port: u16) -> String {
    format!("consul://127.0.0.1:{port}/test/here?ttl-min=0.5")
}

fn at(consul: &Consul) -> Networked {
    Networked { port: consul.port(), url, ttl: TTL }
}

async fn engine(consul: &Consul) -> Arc<dyn Engine> {
    open(&url(consul.port())).await.expect("it runs")
}

/// As an operator would, with curl.
fn http(consul: &Consul, method: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(consul.address()).expect("it runs");
    let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).expect("it listens");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer.split_once("\r\n\r\n").expect("a head").1.to_owned()
}

fn sessions(consul: &Consul) -> Vec<String> {
    let told = http(consul, "GET", "/v1/session/list", "");
    told.split("\"ID\":\"").skip(1).map(|it| it[..36].to_owned()).collect()
}

#[tokio::test]
async fn consul_conforms() {
    check(&at(&plan().start().expect("a free port"))).await;
}

#[tokio::test]
async fn a_session_that_is_destroyed_lets_nobody_in_before_the_holder_has_stopped() {
    let consul = plan().start().expect("a free port");
    let (first, second, election) = (engine(&consul).await, engine(&consul).await, fresh_name("destroyed"));
    let (a, b) = (bid(&at(&consul), "a"), bid(&at(&consul), "b"));
    let grant = granted(&*first, &election, &a).await.expect("a new election is free");
    let counted_from = grant.counted_from.expect("a shared session");
    let [session] = sessions(&consul).try_into().expect("one session");
    http(&consul, "PUT", &format!("/v1/session/destroy/{session}"), "");
    let Claim::Occupied { leader, free_in } = second.claim(&election, &b).await.expect("it runs") else {
        panic!("let in at once")
    };
    assert!(leader.is_none() && free_in.is_some(), "{leader:?} {free_in:?}");
    assert_eq!(first.renew(&election, &a, grant.token).await.expect("it runs"), Renewal::Gone);
    let later = granted_in_the_end(&*second, &election, &b).await;
    let validity = Timing::of(TTL).build().expect("a good ttl").ttl();
    assert!(clock::now() - counted_from >= validity, "a could still have believed");
    assert!(later.token > grant.token);
    let past = second.look(&election).await.expect("it runs").past;
    assert_eq!((past[0].token, past[0].reason.as_str()), (grant.token, "lease expired"));
}

#[tokio::test]
async fn the_ttl_is_kept_by_a_consul_that_is_as_quick_as_it_may_be() {
    let consul = plan().ttl_multiplier(1.0).start().expect("a free port");
    let election = fresh_name("quick");
    // Even without a lock-delay: here nobody ends sessions early.
    let url = format!("{}&lock-delay=0", url(consul.port()));
    let (first, second) = (open(&url).await.expect("it runs"), open(&url).await.expect("it runs"));
    let (a, b) = (bid(&at(&consul), "a"), bid(&at(&consul), "b"));
    let grant = granted(&*first, &election, &a).await.expect("a new election is free");
    granted_in_the_end(&*second, &election, &b).await;
    assert!(clock::now() - grant.counted_from.expect("a shared session") >= TTL);
}

#[tokio::test]
async fn the_seat_of_the_dead_is_free_no_later_than_promised() {
    let consul = plan().start().expect("a free port");
    let (first, second, election) = (engine(&consul).await, engine(&consul).await, fresh_name("late"));
    let ttl = Duration::from_millis(500);
    let (a, b) = (Bid { ttl, ..bid(&at(&consul), "a") }, Bid { ttl, ..bid(&at(&consul), "b") });
    let grant = granted(&*first, &election, &a).await.expect("a new election is free");
    granted_in_the_end(&*second, &election, &b).await;
    let took = clock::now() - grant.counted_from.expect("a shared session");
    // Two ttls until the session ends, and then the lock-delay.
    let promised = ttl + second.guarantees().late.after(ttl);
    assert!(took > ttl * 3 && took <= promised, "{took:?} of {promised:?}");
}

#[tokio::test]
async fn a_hundred_elections_of_a_process_are_one_session() {
    let consul = plan().start().expect("a free port");
    let engine = engine(&consul).await;
    let bidder = bid(&at(&consul), "a");
    let elections: Vec<Name> = (0..100).map(|it| fresh_name(&format!("e{it}"))).collect();
    for election in &elections {
        granted(&*engine, election, &bidder).await.expect("a new election is free");
    }
    assert_eq!(sessions(&consul).len(), 1);
}

#[tokio::test]
async fn candidates_of_one_process_share_a_session_and_not_the_seat() {
    let consul = plan().start().expect("a free port");
    let (engine, election) = (engine(&consul).await, fresh_name("siblings"));
    for round in 0..5 {
        let bids: Vec<Bid> = (0..8).map(|it| bid(&at(&consul), &format!("c{it}"))).collect();
        let grants = join_all(bids.iter().map(|bid| granted(&*engine, &election, bid))).await;
        let seated: Vec<_> = grants.into_iter().zip(&bids).filter_map(|(grant, bid)| grant.map(|it| (it, bid))).collect();
        let [(grant, winner)] = &seated[..] else { panic!("{} were seated in round {round}", seated.len()) };
        let farewell = Farewell { reason: Reason::Resigned, to: None };
        engine.release(&election, winner, grant.token, &farewell).await.expect("it runs");
    }
}

#[tokio::test]
async fn a_seat_that_nobody_speaks_for_is_freed_although_others_keep_the_session_alive() {
    let consul = plan().start().expect("a free port");
    let (shared, other) = (engine(&consul).await, engine(&consul).await);
    let (silent, busy) = (fresh_name("silent"), fresh_name("busy"));
    let (a, b, c) = (bid(&at(&consul), "a"), bid(&at(&consul), "b"), bid(&at(&consul), "c"));
    let lost = granted(&*shared, &silent, &a).await.expect("a new election is free");
    let kept = granted(&*shared, &busy, &b).await.expect("a new election is free");
    let give_up = clock::now() + TTL * 10;
    let mut hints = other.watch(&silent, Some(&c));
    let successor = loop {
        let renewal = shared.renew(&busy, &b, kept.token).await.expect("it runs");
        assert!(matches!(renewal, Renewal::Kept { .. }), "{renewal:?}");
        if let Some(grant) = granted(&*other, &silent, &c).await {
            break grant;
        }
        assert!(clock::now() < give_up, "the silent keep their seat for ever");
        let _ = timeout(TTL / 10, hints.next()).await;
    };
    assert!(successor.token > lost.token && clock::now() - lost.counted_from.expect("shared") >= TTL);
    assert_eq!(shared.renew(&silent, &a, lost.token).await.expect("it runs"), Renewal::Gone);
}

/// As when a claim is given up without an answer, and the next one overtakes it.
#[tokio::test]
async fn a_seat_that_a_candidate_took_in_a_race_with_itself_is_not_held_for_ever() {
    let consul = plan().start().expect("a free port");
    let (shared, other) = (engine(&consul).await, engine(&consul).await);
    let (a, b, busy) = (bid(&at(&consul), "a"), bid(&at(&consul), "b"), fresh_name("busy"));
    let kept = granted(&*shared, &busy, &b).await.expect("a new election is free");
    let races = join_all((0..16).map(|it| {
        let (shared, a) = (&shared, &a);
        async move {
            let election = fresh_name(&format!("race{it}"));
            let claims = tokio::join!(granted(&**shared, &election, a), granted(&**shared, &election, a));
            (election, claims)
        }
    }));
    let raced: Vec<Name> = races.await.into_iter().filter(|(_, it)| it.0.is_some() != it.1.is_some()).map(|it| it.0).collect();
    assert!(!raced.is_empty(), "no claim met another");
    // From now on it says nothing, and the session lives on.
    let give_up = clock::now() + TTL * 10;
    for election in raced {
        let mut hints = other.watch(&election, Some(&b));
        while granted(&*other, &election, &b).await.is_none() {
            assert!(clock::now() < give_up, "a seat that nobody speaks for is kept for ever");
            let renewal = shared.renew(&busy, &b, kept.token).await.expect("it runs");
            assert!(matches!(renewal, Renewal::Kept { .. }), "{renewal:?}");
            let _ = timeout(TTL / 10, hints.next()).await;
        }
    }
}

#[tokio::test]
async fn tokens_rise_when_consul_restarts_and_when_the_key_is_deleted() {
    let consul = plan().start().expect("a free port");
    let (engine, election) = (engine(&consul).await, fresh_name("again"));
    let mut last = None;
    for round in 0..4 {
        let bidder = bid(&at(&consul), "a");
        let grant = granted_in_the_end(&*engine, &election, &bidder).await;
        assert!(Some(grant.token) > last, "{grant:?} after {last:?}");
        last = Some(grant.token);
        let farewell = Farewell { reason: Reason::Resigned, to: None };
        engine.release(&election, &bidder, grant.token, &farewell).await.expect("it runs");
        if round % 2 == 0 {
            consul.restart().expect("the port is still ours");
        } else {
            http(&consul, "DELETE", &format!("/v1/kv/test/here/{election}"), "");
        }
    }
}

#[tokio::test]
async fn a_key_of_somebody_elses_is_left_alone() {
    let consul = plan().start().expect("a free port");
    let (engine, election) = (engine(&consul).await, fresh_name("garbage"));
    http(&consul, "PUT", &format!("/v1/kv/test/here/{election}"), "garbage");
    let why = engine.claim(&election, &bid(&at(&consul), "a")).await.expect_err("not a desk");
    assert!(why.kind() == Kind::Misconfigured && why.to_string().contains("test/here"), "{why:?}");
}

#[tokio::test]
async fn a_slash_at_the_end_of_a_namespace_changes_nothing() {
    let consul = plan().start().expect("a free port");
    let (election, a) = (fresh_name("slash"), bid(&at(&consul), "a"));
    for (place, seen_by) in [("test/here/", "test/here"), ("test/here//", "test/here"), ("/", "")] {
        let url = |namespace: &str| format!("consul://127.0.0.1:{}/{namespace}?ttl-min=0.5", consul.port());
        let engine = open(&url(place)).await.expect("it runs");
        let token = granted(&*engine, &election, &a).await.expect("free").token;
        let seen = open(&url(seen_by)).await.expect("it runs").look(&election).await.expect("it runs");
        assert_eq!(seen.leaders[0].token, token);
        engine.release(&election, &a, token, &Farewell { reason: Reason::Resigned, to: None }).await.expect("it runs");
    }
}

#[tokio::test]
async fn who_may_not_is_told_what_is_needed() {
    let consul = plan().token("all", Access::Write).token("some", Access::Read).start().expect("a free port");
    let url = |token: &str| format!("consul://:{token}@127.0.0.1:{}/test?ttl-min=0.5", consul.port());
    for none in [&url("")[..], &url("wrong")] {
        let why = open(none).await.err().expect("refused");
        assert!(why.kind() == Kind::Misconfigured && why.to_string().contains("CONSUL_HTTP_TOKEN"), "{why:?}");
    }
    let reader = open(&url("some")).await.expect("may read");
    let why = reader.claim(&fresh_name("x"), &bid(&at(&consul), "a")).await.expect_err("may not write");
    assert!(why.kind() == Kind::Misconfigured && why.to_string().contains("session_prefix"), "{why:?}");
    let writer = open(&url("all")).await.expect("may read");
    assert!(granted(&*writer, &fresh_name("x"), &bid(&at(&consul), "a")).await.is_some());
}

#[tokio::test]
async fn a_token_that_was_changed_in_its_file_is_used_once_the_old_one_is_refused() {
    let consul = plan().token("all", Access::Write).token("some", Access::Read).start().expect("a free port");
    let file = tempfile::NamedTempFile::new().expect("a folder for files");
    let has = |token: &str| std::fs::write(&file, token).expect("our own");
    has("some");
    let url = format!("consul://127.0.0.1:{}/test?ttl-min=0.5&password-file={}", consul.port(), file.path().display());
    let (engine, election, a) = (open(&url).await.expect("may read"), fresh_name("rotated"), bid(&at(&consul), "a"));
    assert_eq!(engine.claim(&election, &a).await.expect_err("may not write").kind(), Kind::Misconfigured);
    has("all");
    let why = engine.claim(&election, &a).await.expect_err("the old one may not");
    assert!(why.kind() == Kind::Refused && why.to_string().contains("another token"), "{why:?}");
    assert!(granted(&*engine, &election, &a).await.is_some());
}

/// An agent that gives every request the same answer.
fn agent_that_says(status: &'static str, text: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for line in listener.incoming() {
            let mut line = line.expect("a connection");
            // All of these requests arrive in one piece.
            let _ = line.read(&mut [0; 8192]);
            let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", text.len());
            let _ = line.write_all(format!("{head}{text}").as_bytes());
        }
    });
    port
}

#[tokio::test]
async fn an_agent_that_can_do_nothing_is_left_for_another() {
    let consul = plan().start().expect("a free port");
    for (status, text) in [
        ("500 Internal Server Error", "No cluster leader"),
        ("500 Internal Server Error", "rpc error: No known Consul servers"),
        ("429 Too Many Requests", "Your IP is issuing too many concurrent connections, please rate limit your calls"),
        ("503 Service Unavailable", "later"),
    ] {
        let ailing = agent_that_says(status, text);
        let url = format!("consul://127.0.0.1:{ailing},127.0.0.1:{}/test/here?ttl-min=0.5", consul.port());
        // Already the question whether anybody is there was answered so.
        let engine = open(&url).await.expect("it may be better later");
        assert!(granted(&*engine, &fresh_name("ailing"), &bid(&at(&consul), "a")).await.is_some(), "{text}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_consul_is_refused_in_one_line() {
    let page = "<html>\n<head><title>somewhere else</title></head>\n</html>";
    for (status, text) in [
        ("200 OK", page),
        ("200 OK", "[]"),
        ("404 Not Found", page),
        ("404 Not Found", ""),
        ("403 Forbidden", page),
        ("302 Found", ""),
    ] {
        let stranger = agent_that_says(status, text);
        let why = open(&url(stranger)).await.err().expect("not Consul");
        let said = why.to_string();
        assert!(why.kind() == Kind::Misconfigured && said.contains("does not answer as Consul does"), "{status} {text}: {why:?}");
        assert!(said.contains(&stranger.to_string()) && !said.contains('<'), "{said}");
    }
}

#[tokio::test]
async fn of_a_page_only_the_beginning_is_repeated() {
    let page: &str = Box::leak(format!("<html>\n{}</html>", "<p>Something went wrong.</p>\n".repeat(100)).into_boxed_str());
    let proxy = agent_that_says("502 Bad Gateway", page);
    let engine = open(&url(proxy)).await.expect("it may be better later");
    let why = engine.look(&fresh_name("page")).await.expect_err("Consul is away");
    assert!(why.kind() == Kind::Refused && why.to_string().contains("502: <html> <p>"), "{why:?}");
    assert!(why.to_string().chars().count() < 300, "{why}");
}

#[tokio::test]
async fn whoever_names_another_datacenter_is_told_what_to_do() {
    // A client and a server say it in their own words.
    for (text, kind) in [
        ("cross datacenter lock must be created at server agent", Kind::Misconfigured),
        ("rpc error making call: Missing node registration", Kind::Refused),
    ] {
        let agent = agent_that_says("500 Internal Server Error", text);
        let url = format!("consul://127.0.0.1:{agent}/test/here?ttl-min=0.5&dc=west");
        let there = Networked { port: agent, url: self::url, ttl: TTL };
        let why = match open(&url).await {
            Ok(engine) => engine.claim(&fresh_name("west"), &bid(&there, "a")).await.expect_err("no session"),
            Err(why) => why,
        };
        assert!(why.kind() == kind && why.to_string().contains("agents of west"), "{why:?}");
    }
}

#[tokio::test]
async fn a_leader_outlives_the_agent_it_speaks_to() {
    let consul = plan().start().expect("a free port");
    let relay = Relay::before(&consul.address()).expect("a free port");
    let url = format!("consul://127.0.0.1:{},127.0.0.1:{}/test/here?ttl-min=0.5", relay.port(), consul.port());
    let ttl = TTL * 2;
    let timing = Timing::of(ttl).build().expect("a good ttl");
    let election = Election::on(&url).name("outlives").own_connection().timing(timing).build().await.expect("it runs");
    let leadership = election.campaign().await.expect("nobody else");
    // It takes what it is told and never answers.
    relay.partition();
    assert!(timeout(ttl * 3 / 2, leadership.lost()).await.is_err(), "one of two agents is enough");
}

#[tokio::test]
async fn over_tls_only_the_right_server_is_spoken_to() {
    let certificates = Certificates::new().expect("certificates");
    let (right, wrong) = (certificates.server(), certificates.wrong_name());
    let (good, bad) = (plan().tls(right).start().expect("a free port"), plan().tls(wrong).start().expect("a free port"));
    let url = |port: u16, ca: std::path::PathBuf, more: &str| {
        format!("consul://127.0.0.1:{port}/test?ttl-min=0.5&ca={}{more}", ca.display())
    };
    let ca = certificates.authority();
    let engine = open(&url(good.port(), ca.clone(), "")).await.expect("trusted");
    assert!(granted(&*engine, &fresh_name("x"), &bid(&at(&good), "a")).await.is_some());
    open(&url(bad.port(), ca.clone(), &format!("&server-name={WRONG_NAME}"))).await.expect("that is its name");
    for (url, word) in [
        (url(bad.port(), ca.clone(), ""), "server-name"),
        (url(good.port(), certificates.stranger(), ""), "ca=FILE"),
        (url(good.port(), "/no/such/file".into(), ""), "/no/such/file"),
    ] {
        let why = open(&url).await.err().expect("not to be trusted").to_string();
        assert!(why.contains(word) && !why.contains('\n'), "{url}: {why}");
    }
}

#[tokio::test]
async fn what_cannot_be_is_refused_in_one_line() {
    let consul = Consul::start().expect("a free port");
    let port = consul.port();
    consul.stop();
    for (url, word) in [
        ("consul://h/x?lock-delay=long".to_owned(), "seconds"),
        ("consul://h/a/.incumbent".to_owned(), "namespace"),
        ("consul://h/a//b".to_owned(), "namespace"),
        ("consul://h//a".to_owned(), "namespace"),
        ("consul://h/a/../b".to_owned(), "namespace"),
        ("consul://h/a%20/b".to_owned(), "namespace"),
        ("consul://h/x?colour=red".to_owned(), "no option"),
    ] {
        let why = open(&url).await.err().expect("cannot be").to_string();
        assert!(why.contains(word) && !why.contains('\n'), "{url}: {why}");
    }
    let engine = open(&url(port)).await.expect("it may come later");
    let why = engine.claim(&fresh_name("x"), &bid(&at(&consul), "a")).await.expect_err("nobody is there");
    assert!(why.kind() == Kind::Refused && why.to_string().contains("cannot reach"), "{why:?}");
    // A server with its usual settings says itself what it grants.
    consul.restart().expect("the port is still ours");
    let engine = open(&url(port)).await.expect("it runs");
    let why = engine.claim(&fresh_name("x"), &bid(&at(&consul), "a")).await.expect_err("too short");
    assert!(why.kind() == Kind::Misconfigured && why.to_string().contains("must be between"), "{why:?}");
}

#[test]
fn contender() {
    processes::be_a_contender();
}

#[test]
fn a_killed_holder_is_replaced() {
    let consul = plan().start().expect("a free port");
    processes::a_killed_holder_is_replaced(&Arena::new(url(consul.port()), TTL));
}

#[test]
fn a_paused_holder_has_stopped_believing() {
    let consul = plan().start().expect("a free port");
    processes::a_paused_holder_has_stopped_believing(&Arena::new(url(consul.port()), TTL));
}
