//! Elections on NATS: the conformance suite, and what only a bucket can do wrong.

mod support;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use incumbent::conformance::{Subject, bid, check, fresh_name};
use incumbent::engine::{Bid, Claim, Demand, Engine, Farewell, Kind, Renewal, Wish};
use incumbent::place::Place;
use incumbent::{Error, Name, Reason, Token, clock, engines};
use incumbent_testbed::{Certificates, Nats, Server as _, Shared, eventually};
use support::Networked;
use support::processes::{self, Arena};
use tokio::time::timeout;

const TTL: Duration = Duration::from_millis(2000);

static NATS: Shared<Nats> = Shared::new(|| Nats::recent().start());

fn at(port: u16) -> Networked {
    Networked { port, url: |port| format!("nats://127.0.0.1:{port}/test"), ttl: TTL }
}

async fn open(url: &str) -> Result<Arc<dyn Engine>, Error> {
    engines::open(&Place::parse(url).expect("a good URL")).await
}

async fn token(engine: &dyn Engine, election: &Name, bid: &Bid) -> Result<Option<Token>, Error> {
    Ok(match engine.claim(election, bid).await? {
        Claim::Granted(grant) => Some(grant.token),
        Claim::Occupied { .. } => None,
    })
}

async fn token_in_the_end(engine: &dyn Engine, election: &Name, bid: &Bid) -> Token {
    let mut hints = engine.watch(election, Some(bid));
    let give_up = clock::now() + bid.ttl * 20;
    while clock::now() < give_up {
        match token(engine, election, bid).await {
            Ok(Some(token)) => return token,
            Ok(None) => {}
            Err(why) => assert_ne!(why.kind(), Kind::Misconfigured, "{why}"),
        }
        // Silence is no event: nobody tells of it.
        if let Ok(Some(Err(_)) | None) = timeout(bid.ttl / 20, hints.next()).await {
            hints = engine.watch(election, Some(bid));
        }
    }
    panic!("never granted");
}

fn resigned() -> Farewell {
    Farewell { reason: Reason::Resigned, to: None }
}

/// What an operator asks of JetStream, with whatever tool.
async fn operator(port: u16, request: &str, payload: &str) -> String {
    let client = async_nats::connect(format!("127.0.0.1:{port}")).await.expect("it runs");
    let answer = client.request(request.to_owned(), payload.to_owned().into()).await.expect("it answers");
    String::from_utf8(answer.payload.to_vec()).expect("JSON")
}

/// `nats kv del` and `nats kv purge`.
async fn mark_as_deleted(port: u16, key: &str, operation: &str) {
    let client = async_nats::connect(format!("127.0.0.1:{port}")).await.expect("it runs");
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("KV-Operation", operation);
    if operation == "PURGE" {
        headers.insert("Nats-Rollup", "sub");
    }
    let request = async_nats::Request::new().headers(headers).payload("".into());
    let answer = client.send_request(format!("$KV.incumbent.{key}"), request).await.expect("it answers");
    assert!(!String::from_utf8_lossy(&answer.payload).contains("error"), "{answer:?}");
}

#[tokio::test]
async fn nats_conforms() {
    check(&at(NATS.server().port())).await;
}

#[test]
fn contender() {
    processes::be_a_contender();
}

#[test]
fn processes_that_are_killed_or_paused_are_replaced_and_know_it() {
    let url = format!("nats://127.0.0.1:{}/test", NATS.server().port());
    processes::a_killed_holder_is_replaced(&Arena::new(&url, Duration::from_millis(1500)));
    processes::a_paused_holder_has_stopped_believing(&Arena::new(&url, Duration::from_millis(1500)));
}

#[tokio::test]
async fn leaderships_and_tokens_survive_a_restart() {
    let nats = Nats::recent().start().expect("NATS starts");
    let (subject, election) = (at(nats.port()), fresh_name("restart"));
    let engine = subject.engine().await;
    let a = Bid { ttl: Duration::from_secs(600), ..bid(&subject, "a") };
    let first = token(&*engine, &election, &a).await.expect("it is there").expect("free");
    nats.kill();
    let why = engine.renew(&election, &a, first).await.expect_err("it is dead");
    assert_ne!(why.kind(), Kind::Misconfigured, "{why}");
    nats.restart().expect("starts again");
    let renewed = engine.renew(&election, &a, first).await.expect("a dead connection is replaced");
    assert!(matches!(renewed, Renewal::Kept { .. }), "{renewed:?}");
    engine.release(&election, &a, first, &resigned()).await.expect("it is there");
    let second = token(&*engine, &election, &bid(&subject, "b")).await.expect("it is there");
    assert!(second > Some(first), "{second:?} after {first}");
}

#[tokio::test]
async fn of_a_storm_of_conflicts_one_wins_and_loses_nothing() {
    let subject = at(NATS.server().port());
    let election = fresh_name("storm");
    let engines = join_all((0..6).map(|_| subject.engine())).await;
    let mut last = None;
    for round in 0..4 {
        let bids: Vec<Bid> = (0..engines.len()).map(|it| bid(&subject, &format!("c{it}"))).collect();
        let claims = engines.iter().zip(&bids).map(|(engine, bid)| token(&**engine, &election, bid));
        let mut seated = Vec::new();
        for (place, claim) in join_all(claims).await.into_iter().enumerate() {
            seated.extend(claim.expect("it is there").map(|token| (place, token)));
        }
        let [(winner, token)] = seated[..] else { panic!("{seated:?} were seated in round {round}") };
        assert!(Some(token) > last);
        last = Some(token);
        let (engine, own) = (&engines[winner], &bids[winner]);
        // All ask at once while it renews: no renewal and no wish is lost.
        let wish = Wish { token, what: Demand::Evict, by: "the test".into() };
        let asking = join_all(engines.iter().map(|it| it.ask(&election, &wish)));
        let (asked, renewal) = tokio::join!(asking, engine.renew(&election, own, token));
        assert!(asked.iter().all(Result::is_ok), "{asked:?}");
        assert!(matches!(renewal, Ok(Renewal::Kept { .. })), "{renewal:?}");
        let heard = engine.renew(&election, own, token).await.expect("it is there");
        assert!(matches!(heard, Renewal::Kept { wish: Some(_), .. }), "{heard:?}");
        engine.release(&election, own, token, &resigned()).await.expect("it is there");
    }
    assert_eq!(engines[0].look(&election).await.expect("it is there").past.len(), 4);
}

#[tokio::test]
async fn a_wish_does_not_keep_a_dead_holder_in_office() {
    let subject = at(NATS.server().port());
    let (first, second, election) = (subject.engine().await, subject.engine().await, fresh_name("dead"));
    let (a, b) = (bid(&subject, "a"), bid(&subject, "b"));
    let held = token(&*first, &election, &a).await.expect("it is there").expect("free");
    let began = clock::now();
    assert_eq!(token(&*second, &election, &b).await.expect("it is there"), None);
    loop {
        // Each is a write to the key, and none a sign of life.
        let wish = Wish { token: held, what: Demand::Evict, by: "the test".into() };
        let _ = first.ask(&election, &wish).await;
        if let Some(token) = token(&*second, &election, &b).await.expect("it is there") {
            assert!(token > held);
            break;
        }
        assert!(clock::now() - began < TTL * 5, "wishes keep it in office");
    }
    assert!(clock::now() - began >= TTL);
}

#[tokio::test]
async fn a_key_that_was_deleted_is_waited_for_as_for_its_holder() {
    let nats = NATS.server();
    let subject = at(nats.port());
    for operation in ["DEL", "PURGE"] {
        let (first, second, election) = (subject.engine().await, subject.engine().await, fresh_name("deleted"));
        let (a, b) = (bid(&subject, "a"), bid(&subject, "b"));
        let held = token(&*first, &election, &a).await.expect("it is there").expect("free");
        mark_as_deleted(nats.port(), &format!("test.{election}"), operation).await;
        let began = clock::now();
        assert!(second.look(&election).await.expect("it is there").leaders.is_empty());
        // Neither a note nor a new incarnation may write over the mark.
        assert!(second.annotate(&election, held, "seen").await.is_err() && second.raise(&election, held).await.is_err());
        let next = token_in_the_end(&*second, &election, &b).await;
        assert!(clock::now() - began >= TTL && next > held, "{next} after {held}, {:?} later", clock::now() - began);
        assert_eq!(first.renew(&election, &a, held).await.expect("it is there"), Renewal::Gone);
    }
}

#[tokio::test]
async fn a_bucket_that_was_deleted_is_made_again_and_tokens_go_on_rising() {
    let nats = Nats::recent().start().expect("NATS starts");
    let (subject, election) = (at(nats.port()), fresh_name("wiped"));
    let engine = subject.engine().await;
    let a = bid(&subject, "a");
    let first = token(&*engine, &election, &a).await.expect("it is there").expect("free");
    operator(nats.port(), "$JS.API.STREAM.DELETE.KV_incumbent", "").await;
    let why = engine.renew(&election, &a, first).await.expect_err("there is no bucket");
    assert_eq!(why.kind(), Kind::Refused, "{why}");
    // Whoever remembers nothing gets a greater one too, because revisions begin with the time.
    let second = token(&*engine, &election, &bid(&subject, "b")).await.expect("it was made again").expect("free");
    assert!(second > first, "{second} after {first}");
    // An operator's bucket begins with 1: then it needs one who remembers.
    operator(nats.port(), "$JS.API.STREAM.DELETE.KV_incumbent", "").await;
    let by_hand =
        r#"{"name":"KV_incumbent","subjects":["$KV.incumbent.>"],"storage":"file","max_msgs_per_subject":1,"num_replicas":1}"#;
    operator(nats.port(), "$JS.API.STREAM.CREATE.KV_incumbent", by_hand).await;
    let c = Bid { seen: Some(second), ..bid(&subject, "c") };
    let third = token_in_the_end(&*engine, &election, &c).await;
    assert!(third > second, "{third} after {second}");
}

#[tokio::test]
async fn a_bucket_from_which_entries_may_go_away_is_refused() {
    let port = NATS.server().port();
    for (bucket, settings, word) in [
        ("old", r#""max_age":3600000000000"#, "TTL"),
        ("short", r#""max_age":1000000000"#, "TTL"),
        ("ram", r#""storage":"memory""#, "memory"),
        ("full", r#""discard":"old","max_bytes":100000"#, "throws away"),
    ] {
        let storage = if bucket == "ram" { "" } else { r#""storage":"file","# };
        let order = format!(
            r#"{{"name":"KV_{bucket}","subjects":["$KV.{bucket}.>"],"max_msgs_per_subject":1,"num_replicas":1,{storage}{settings}}}"#
        );
        let made = operator(port, &format!("$JS.API.STREAM.CREATE.KV_{bucket}"), &order).await;
        assert!(!made.contains("\"error\""), "{made}");
        let why = open(&format!("nats://127.0.0.1:{port}/t?bucket={bucket}")).await.err().expect("not fit");
        assert!(why.kind() == Kind::Misconfigured && why.to_string().contains(word), "{why:?}");
        assert!(why.to_string().contains("nats kv add") && !why.to_string().contains('\n'), "{why}");
    }
}

#[tokio::test]
async fn the_bucket_that_is_made_is_as_promised() {
    let port = NATS.server().port();
    let (engine, election) =
        (open(&format!("nats://127.0.0.1:{port}/t?bucket=made")).await.expect("it is there"), fresh_name("made"));
    // Whoever only looks makes none.
    assert_eq!(engine.look(&election).await.expect("nobody is an answer"), incumbent::engine::Board::default());
    let absent = operator(port, "$JS.API.STREAM.INFO.KV_made", "").await;
    assert!(absent.contains("stream not found"), "{absent}");
    let looker = open(&format!("nats://127.0.0.1:{port}/t?bucket=made")).await.expect("it is there");
    token(&*engine, &election, &bid(&at(port), "a")).await.expect("made").expect("free");
    assert_eq!(looker.look(&election).await.expect("it finds what was made since").leaders.len(), 1);
    let found = operator(port, "$JS.API.STREAM.INFO.KV_made", "").await;
    let found: serde_json::Value = serde_json::from_str(&found).expect("JSON");
    let config = &found["config"];
    assert_eq!((config["storage"].as_str(), config["max_msgs_per_subject"].as_i64()), (Some("file"), Some(1)), "{config}");
    assert_eq!((config["max_age"].as_i64(), config["allow_direct"].as_bool()), (Some(0), Some(false)), "{config}");
    assert!(found["state"]["first_seq"].as_u64() > Some(1_600_000_000_000), "{found}");
    let three = open(&format!("nats://127.0.0.1:{port}/t?bucket=three&replicas=3")).await.expect("it may be there later");
    let why = three.claim(&election, &bid(&at(port), "a")).await.expect_err("there is one server");
    assert!(why.kind() == Kind::Misconfigured && why.to_string().contains("--replicas=3"), "{why:?}");
}

#[tokio::test]
async fn odd_namespaces_and_names_do_not_meet() {
    let port = NATS.server().port();
    let names = ["a.b", "a", "b.", "a..b"].map(|it| Name::new(it).expect("fit for all"));
    let unique = fresh_name("odd");
    let mut tokens = Vec::new();
    for namespace in ["", "/", "/a", "/a.b", "/a%20*%3E/%C3%BC", "/a/", "/%24JS.=2E"] {
        let url = format!("nats://127.0.0.1:{port}/{unique}{namespace}");
        let (engine, a) = (open(&url).await.expect("any namespace will do"), bid(&at(port), "a"));
        for name in &names {
            let granted = token(&*engine, name, &a).await.expect("any name will do");
            tokens.push(granted.unwrap_or_else(|| panic!("{namespace}/{name} was taken by another")));
        }
    }
    assert_eq!(tokens.len(), 28);
}

#[tokio::test]
async fn a_cluster_loses_the_stream_s_leader_and_nobody_loses_office() {
    let cluster = Nats::recent().start_cluster(3).expect("NATS starts");
    cluster.leader().expect("it decides");
    let url = format!("nats://{}/test?replicas=3", cluster.addresses().join(","));
    let engine = open(&url).await.expect("it runs");
    let (election, subject) = (fresh_name("cluster"), at(cluster.members()[0].port()));
    let a = Bid { ttl: Duration::from_secs(60), ..bid(&subject, "a") };
    let first = token_in_the_end(&*engine, &election, &a).await;
    let leads = |it: &Nats| it.process().runs() && it.leads_stream("KV_incumbent") == Ok(true);
    let mut old = None;
    eventually("one leads the stream", || {
        old = cluster.members().iter().position(leads);
        old.is_some()
    });
    cluster.members()[old.expect("waited for above")].kill();
    let give_up = clock::now() + a.ttl;
    loop {
        match timeout(TTL, engine.renew(&election, &a, first)).await {
            Ok(Ok(renewal)) => {
                assert!(matches!(renewal, Renewal::Kept { .. }), "{renewal:?}");
                break;
            }
            Ok(Err(why)) => assert_ne!(why.kind(), Kind::Misconfigured, "{why}"),
            Err(_) => {}
        }
        assert!(clock::now() < give_up, "two of three do not go on");
    }
    engine.release(&election, &a, first, &resigned()).await.expect("it runs");
    let second = token_in_the_end(&*engine, &election, &bid(&subject, "b")).await;
    assert!(second > first, "{second} after {first}");
}

fn file(name: &str, text: &str) -> PathBuf {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&file, text).expect("a folder for tests");
    file
}

/// The example of NATS' own documentation: its public half stands in the server's configuration.
const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
const PUBLIC: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";

#[tokio::test]
async fn trouble_is_said_in_one_line_with_what_to_do() {
    let certificates = Certificates::new().expect("certificates");
    let locked = Nats::recent().password("me", "s3cret/@").start().expect("NATS starts");
    let tokened = Nats::recent().token("s3cret").start().expect("NATS starts");
    let keyed = Nats::recent().settings(&format!("authorization {{ users: [ {{ nkey: {PUBLIC} }} ] }}")).start();
    let keyed = keyed.expect("NATS starts");
    let secure = Nats::recent().tls(certificates.server()).start().expect("NATS starts");
    let wrong = Nats::recent().tls(certificates.wrong_name()).start().expect("NATS starts");
    let strict = Nats::recent().tls(certificates.server().requiring_clients()).start().expect("NATS starts");
    let forgetful = Nats::recent().without_jetstream().start().expect("NATS starts");
    let limited = r#"authorization { users: [ { user: limited, password: x, permissions: {
        publish: { deny: "$JS.API.STREAM.CREATE.>" } } }, { user: reader, password: x, permissions: {
        publish: { deny: "$KV.>" } } }, { user: exact, password: x, permissions: {
        publish: { allow: ["$KV.incumbent.>", "$JS.API.STREAM.INFO.KV_incumbent", "$JS.API.STREAM.MSG.GET.KV_incumbent",
            "$JS.API.CONSUMER.CREATE.KV_incumbent.>"] }, subscribe: { allow: "_INBOX.>" } } } ] }"#;
    let limited = Nats::recent().settings(limited).start().expect("NATS starts");
    let (ca, stranger, own) = (certificates.authority(), certificates.stranger(), certificates.client());
    let (ca, stranger) = (ca.display(), stranger.display());
    let (cert, key) = (own.certificate.display(), own.key.display());
    let (seed, garbage) = (file("nats-seed", SEED), file("nats-garbage", "hunter2"));
    let (seed, garbage) = (seed.display(), garbage.display());
    let plain = NATS.server().port();
    let (locked, tokened, keyed, limited) = (locked.port(), tokened.port(), keyed.port(), limited.port());
    let (secure, wrong, strict, forgetful) = (secure.port(), wrong.port(), strict.port(), forgetful.port());

    for good in [
        format!("nats://me:s3cret%2F%40@127.0.0.1:{locked}/t"),
        format!("nats://:s3cret@127.0.0.1:{tokened}/t"),
        format!("nats://127.0.0.1:{keyed}/t?nkey={seed}"),
        format!("nats://127.0.0.1:{secure}/t?ca={ca}"),
        format!("nats://localhost:{wrong}/t?ca={ca}&server-name=elsewhere.example"),
        format!("nats://127.0.0.1:{strict}/t?ca={ca}&cert={cert}&key={key}"),
        format!("nats://127.0.0.1:1,127.0.0.1:{plain}/t"),
    ] {
        let engine = open(&good).await.unwrap_or_else(|why| panic!("{good}: {why}"));
        engine.look(&fresh_name("good")).await.unwrap_or_else(|why| panic!("{good}: {why}"));
    }

    for (bad, word) in [
        (format!("nats://127.0.0.1:{locked}/t"), "password-file=FILE"),
        (format!("nats://me:hunter2@127.0.0.1:{locked}/t"), "password-file=FILE"),
        (format!("nats://:hunter2@127.0.0.1:{tokened}/t"), "password-file=FILE"),
        (format!("nats://127.0.0.1:{keyed}/t"), "nkey=FILE"),
        (format!("nats://127.0.0.1:{keyed}/t?nkey={garbage}"), "nkey=FILE"),
        (format!("nats://127.0.0.1:{keyed}/t?creds={garbage}"), "creds=FILE"),
        (format!("nats://127.0.0.1:{keyed}/t?creds=/no/such/file"), "/no/such/file"),
        (format!("nats://127.0.0.1:{keyed}/t?creds={seed}&nkey={seed}"), "leave one"),
        (format!("nats://127.0.0.1:{wrong}/t?ca={ca}"), "server-name=NAME"),
        (format!("nats://127.0.0.1:{secure}/t?ca={ca}&server-name=elsewhere.example"), "server-name=NAME"),
        (format!("nats://127.0.0.1:{secure}/t?ca={stranger}"), "ca=FILE"),
        (format!("nats://127.0.0.1:{secure}/t"), "tls=on"),
        (format!("nats://127.0.0.1:{strict}/t?ca={ca}"), "cert=FILE"),
        (format!("nats://127.0.0.1:{plain}/t?ca={ca}"), "does not speak TLS"),
        (format!("nats://127.0.0.1:{plain}/t?ca=/no/such/file"), "/no/such/file"),
        (format!("nats://127.0.0.1:{plain}/t?bucket=a.b"), "bucket=a.b"),
        (format!("nats://127.0.0.1:{plain}/t?replicas=many"), "replicas=many"),
        (format!("nats://127.0.0.1:{plain}/t?colour=red"), "no option"),
        (format!("nats://127.0.0.1:{forgetful}/t"), "-js"),
        (format!("nats://limited:x@127.0.0.1:{limited}/t"), "nats kv add incumbent"),
    ] {
        // Who may not make a bucket finds out with the first claim.
        let why = match open(&bad).await {
            Ok(engine) => engine.claim(&fresh_name("rights"), &bid(&at(limited), "a")).await.err(),
            Err(why) => Some(why),
        };
        let why = why.unwrap_or_else(|| panic!("{bad} was taken, without {word}"));
        assert_eq!(why.kind(), Kind::Misconfigured, "{bad}: {why}");
        assert!(why.to_string().contains(word) && !why.to_string().contains('\n'), "{bad}: {why}");
        assert!(!why.to_string().contains("hunter2"), "{why}");
    }

    // Who may read and not write finds out with the first claim.
    let reader = open(&format!("nats://reader:x@127.0.0.1:{limited}/t")).await.expect("it may make a bucket");
    let why = reader.claim(&fresh_name("rights"), &bid(&at(limited), "a")).await.expect_err("it may not write");
    assert!(why.kind() == Kind::Misconfigured && why.to_string().contains("$KV.incumbent.>"), "{why:?}");

    // What is documented is enough, for hints too.
    let (exact, election) = (format!("nats://exact:x@127.0.0.1:{limited}/t"), fresh_name("exact"));
    let (first, second) = (open(&exact).await.expect("there is a bucket"), open(&exact).await.expect("there is a bucket"));
    let (a, b) = (bid(&at(limited), "a"), bid(&at(limited), "b"));
    let held = token(&*first, &election, &a).await.expect("it may").expect("free");
    let mut hints = second.watch(&election, Some(&b));
    // The first comes at once, the second with what is there.
    for _ in 0..2 {
        timeout(TTL, hints.next()).await.expect("a hint").expect("it goes on").expect("it may");
    }
    first.release(&election, &a, held, &resigned()).await.expect("it may");
    timeout(TTL, hints.next()).await.expect("a hint").expect("it goes on").expect("it may");

    // A server that is away may come back: the engine opens, and each call says what is the matter.
    let engine = open("nats://127.0.0.1:1/t").await.expect("it may come back");
    let why = engine.look(&fresh_name("away")).await.expect_err("nobody is there");
    assert!(why.kind() == Kind::Refused && why.to_string().contains("is the server running there"), "{why:?}");
}

#[tokio::test]
async fn how_many_wait_is_not_told_where_nobody_knows() {
    let mut registry = prometheus_client::registry::Registry::default();
    let metrics = Arc::new(incumbent::metrics::Metrics::register(&mut registry));
    let election = incumbent::Election::on(format!("nats://127.0.0.1:{}/figures", NATS.server().port())).name("billing");
    let election = election.metrics(metrics).build().await.expect("a good URL");
    election.look().await.expect("it is there");
    election.observe().leader().await;
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
    assert!(!text.contains("incumbent_candidates{"), "{text}");
}
