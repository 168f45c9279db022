//! Elections on Redis and Valkey: the conformance suite, and what only they can do wrong.

mod support;

use std::time::Duration;

use incumbent::Token;
use incumbent::conformance::{Subject, bid, check, fresh_name};
use incumbent::engine::{Bid, Kind, Past, Renewal};
use incumbent_protocol::protocol::Term;
use incumbent_testbed::{Certificates, Redis, Server as _, Shared};
use support::processes::{self, Arena};
use support::{Networked, a_host_that_hangs_is_left_for_the_next, open, token};

static REDIS: Shared<Redis> = Shared::new(|| Redis::debian().start());

fn at(port: u16) -> Networked {
    Networked { port, url: |port| format!("redis://127.0.0.1:{port}/test"), ttl: Duration::from_millis(3000) }
}

#[tokio::test]
async fn redis_conforms() {
    check(&at(REDIS.server().port())).await;
}

#[tokio::test]
async fn valkey_conforms() {
    let valkey = Redis::valkey().start().expect("valkey starts");
    check(&at(valkey.port())).await;
}

#[test]
fn contender() {
    processes::be_a_contender();
}

#[test]
fn processes_that_are_killed_or_paused_are_replaced_and_know_it() {
    let url = format!("redis://127.0.0.1:{}/test", REDIS.server().port());
    processes::a_killed_holder_is_replaced(&Arena::new(&url, Duration::from_millis(1500)));
    processes::a_paused_holder_has_stopped_believing(&Arena::new(&url, Duration::from_millis(1500)));
}

#[tokio::test]
async fn leaderships_and_tokens_survive_a_restart() {
    let redis = Redis::debian().start().expect("redis starts");
    let (subject, election) = (at(redis.port()), fresh_name("restart"));
    let engine = subject.engine().await;
    let a = Bid { ttl: Duration::from_secs(600), ..bid(&subject, "a") };
    let first = token(&*engine, &election, &a).await.expect("it is there").expect("free");
    redis.kill();
    let why = engine.renew(&election, &a, first).await.expect_err("it is dead");
    assert_ne!(why.kind(), Kind::Misconfigured, "{why}");
    redis.restart().expect("starts again");
    let renewed = engine.renew(&election, &a, first).await.expect("a dead connection is replaced");
    assert!(matches!(renewed, Renewal::Kept { .. }), "{renewed:?}");
    redis.command(&["DEL", &format!("incumbent:{{test/{election}}}:held")]).expect("deleted");
    let second = token(&*engine, &election, &bid(&subject, "b")).await.expect("it is there");
    assert!(second > Some(first), "{second:?} after {first}");
}

/// It is found out by whoever asks next.
#[tokio::test]
async fn a_silent_leadership_has_ended_with_its_lease_and_not_when_it_is_missed() {
    let (subject, election) = (at(REDIS.server().port()), fresh_name("until"));
    let engine = subject.engine().await;
    let a = Bid { ttl: Duration::from_secs(3), ..bid(&subject, "a") };
    token(&*engine, &election, &a).await.expect("it is there").expect("free");
    // As if an hour had passed since: times are digits, too many of them for Lua's numbers.
    let hour_ago = "local all = redis.call('HGETALL', KEYS[1]) local seat = cjson.decode(all[2]) \
                    seat.since = string.format('%.0f', seat.since - 3600000) seat['until'] = string.format('%.0f', seat['until'] - 3600000000) \
                    return redis.call('HSET', KEYS[1], all[1], cjson.encode(seat))";
    let key = format!("incumbent:{{test/{election}}}:held");
    REDIS.server().command(&["EVAL", hour_ago, "1", &key]).expect("changed");
    let past = engine.look(&election).await.expect("it is there").past;
    assert!(past.len() == 1 && past[0].until_ms - past[0].since_ms == 3000, "{past:?}");
}

#[tokio::test]
async fn a_candidate_that_remembers_more_than_redis_raises_the_incarnation() {
    let redis = Redis::debian().start().expect("redis starts");
    let (subject, election) = (at(redis.port()), fresh_name("flushed"));
    let engine = subject.engine().await;
    let first = token(&*engine, &election, &bid(&subject, "a")).await.expect("it is there").expect("free");
    redis.command(&["FLUSHALL"]).expect("wiped");
    redis.command(&["SCRIPT", "FLUSH"]).expect("wiped");
    let second = token(&*engine, &election, &Bid { seen: Some(first), ..bid(&subject, "b") }).await.expect("it is there");
    assert!(second > Some(first), "{second:?} after {first}");
}

#[tokio::test]
async fn the_notes_of_an_earlier_incarnation_go_first() {
    let (subject, election) = (at(REDIS.server().port()), fresh_name("notes"));
    let engine = subject.engine().await;
    let of = |incarnation, term| Token::new(incarnation, Term(term)).expect("fits");
    for term in 0..Past::KEPT_MAX as u64 {
        engine.annotate(&election, of(0, 1000 + term), "before").await.expect("it is there");
    }
    engine.annotate(&election, of(1, 991), "after").await.expect("it is there");
    let notes = engine.look(&election).await.expect("it is there").notes;
    assert_eq!((notes.len(), notes.first().map(|it| it.token)), (Past::KEPT_MAX, Some(of(1, 991))));
    assert!(notes.iter().all(|it| it.token != of(0, 1000)));
}

#[tokio::test]
async fn of_several_hosts_the_one_that_takes_writes_is_found() {
    let primary = Redis::debian().start().expect("redis starts");
    let replica = Redis::debian().replica_of("127.0.0.1", primary.port()).start().expect("redis starts");
    replica.wait_until_it_follows().expect("it follows");
    let url = format!("redis://127.0.0.1:{},127.0.0.1:{}/test", replica.port(), primary.port());
    let engine = open(&url).await.expect("a good URL");
    let (election, a) = (fresh_name("hosts"), bid(&at(primary.port()), "a"));
    let why = token(&*engine, &election, &a).await.expect_err("the first is a replica");
    assert!(why.kind() == Kind::Refused && why.to_string().contains("replica"), "{why:?}");
    assert!(token(&*engine, &election, &a).await.expect("the second is not").is_some());
    // The primary dies, and the replica takes its place.
    replica.promote().expect("promoted");
    primary.kill();
    let _ = engine.look(&election).await.expect_err("the connection died with it");
    engine.look(&election).await.expect("the other one answers");
}

#[tokio::test]
async fn of_several_hosts_one_that_hangs_is_left_for_the_next() {
    let redis = Redis::debian().start().expect("redis starts");
    let url = |silent: &str| format!("redis://{silent},127.0.0.1:{}/test", redis.port());
    a_host_that_hangs_is_left_for_the_next(url, &fresh_name("hangs"), &bid(&at(redis.port()), "a")).await;
}

/// Redis says so in words alone where a script runs into it.
#[tokio::test]
async fn a_user_who_may_not_write_is_told_what_to_allow() {
    let redis = Redis::debian().start().expect("redis starts");
    let rights = ["~incumbent:*", "&incumbent:*", "+@read", "+@pubsub", "+@connection", "+@scripting", "+time"];
    redis.command(&[&["ACL", "SETUSER", "reader", "on", ">r"], &rights[..]].concat()).expect("made");
    let engine = open(&format!("redis://reader:r@127.0.0.1:{}/test", redis.port())).await.expect("it is let in");
    let election = fresh_name("read-only");
    engine.look(&election).await.expect("it may read");
    let why = engine.claim(&election, &bid(&at(redis.port()), "a")).await.expect_err("it may not write");
    assert!(why.kind() == Kind::Misconfigured && why.to_string().contains("+@write"), "{why:?}");
}

#[tokio::test]
async fn trouble_is_said_in_one_line_with_what_to_do() {
    let certificates = Certificates::new().expect("certificates");
    let locked = Redis::debian().password("s3cret/@").start().expect("redis starts");
    let secure = Redis::debian().tls(certificates.server()).start().expect("redis starts");
    let wrong = Redis::debian().tls(certificates.wrong_name()).start().expect("redis starts");
    let strict = Redis::debian().tls(certificates.server().requiring_clients()).start().expect("redis starts");
    let (ca, stranger, own) = (certificates.authority(), certificates.stranger(), certificates.client());
    let (ca, stranger) = (ca.display(), stranger.display());
    let (cert, key) = (own.certificate.display(), own.key.display());
    let plain = REDIS.server().port();
    let (locked, secure, wrong, strict) = (locked.port(), secure.port(), wrong.port(), strict.port());

    for good in [
        format!("redis://:s3cret%2F%40@127.0.0.1:{locked}/t"),
        format!("redis://default:s3cret%2F%40@127.0.0.1:{locked}/t?db=3"),
        format!("redis://127.0.0.1:{secure}/t?ca={ca}"),
        format!("redis://localhost:{wrong}/t?ca={ca}&server-name=elsewhere.example"),
        format!("redis://127.0.0.1:{strict}/t?ca={ca}&cert={cert}&key={key}"),
    ] {
        let engine = open(&good).await.unwrap_or_else(|why| panic!("{good}: {why}"));
        engine.look(&fresh_name("good")).await.unwrap_or_else(|why| panic!("{good}: {why}"));
    }

    for (bad, word) in [
        (format!("redis://127.0.0.1:{locked}/t"), "password-file=FILE"),
        (format!("redis://:hunter2@127.0.0.1:{locked}/t"), "password-file=FILE"),
        (format!("redis://127.0.0.1:{wrong}/t?ca={ca}"), "server-name=NAME"),
        (format!("redis://127.0.0.1:{secure}/t?ca={stranger}"), "ca=FILE"),
        (format!("redis://127.0.0.1:{strict}/t?ca={ca}"), "cert=FILE"),
        (format!("redis://127.0.0.1:{plain}/t?ca=/no/such/file"), "/no/such/file"),
        (format!("redis://127.0.0.1:{plain}/t?db=99"), "db=0"),
        (format!("redis://127.0.0.1:{plain}/t?db=x"), "db=0"),
        (format!("redis://127.0.0.1:{plain}/t?colour=red"), "no option"),
    ] {
        let why = open(&bad).await.err().unwrap_or_else(|| panic!("{bad} was taken, without {word}"));
        assert_eq!(why.kind(), Kind::Misconfigured, "{bad}: {why}");
        assert!(why.to_string().contains(word) && !why.to_string().contains('\n'), "{bad}: {why}");
        assert!(!why.to_string().contains("hunter2") && !why.to_string().contains("no reason given"), "{why}");
    }

    // A server that is away may come back: the engine opens, and each call says what is the matter.
    for (away, word) in [
        ("redis://127.0.0.1:1/t".to_owned(), "is the server running there"),
        (format!("redis://127.0.0.1:{plain}/t?ca={ca}"), "does it speak TLS"),
        (format!("redis://127.0.0.1:{secure}/t"), "tls=on"),
    ] {
        let engine = open(&away).await.expect("it may come back");
        let why = engine.look(&fresh_name("away")).await.expect_err("nobody is there");
        assert!(why.kind() == Kind::Refused && why.to_string().contains(word), "{why:?}");
    }
}
