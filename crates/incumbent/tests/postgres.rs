//! Elections on PostgreSQL: the conformance suite, directly and through a pooler, and what only a database can do wrong.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use incumbent::conformance::{Subject, bid, check, fresh_name};
use incumbent::engine::{Bid, Farewell, Kind, Renewal};
use incumbent::engines::postgres::schema_sql;
use incumbent::{Engine, Name, Reason, Token};
use incumbent_testbed::{
    Certificates, POSTGRES_DATABASE, POSTGRES_PASSWORD, POSTGRES_USER, PgBouncer, Postgres, Server as _, Shared,
};
use support::processes::{self, Arena};
use support::{Networked, a_host_that_hangs_is_left_for_the_next, open, token};

static POSTGRES: Shared<Postgres> = Shared::new(|| Postgres::debian().start());

/// The testbed's user and password, as a URL wants them.
const LOGIN: &str = "incumbent:a%20password%20with%20spaces%20%26%20signs%2F%2540";
const TTL: Duration = Duration::from_millis(3000);

fn url(port: u16) -> String {
    format!("postgres://{LOGIN}@127.0.0.1:{port}/postgres/test")
}

fn at(port: u16) -> Networked {
    Networked { port, url, ttl: TTL }
}

#[tokio::test]
async fn postgres_conforms() {
    check(&at(POSTGRES.server().port())).await;
}

#[tokio::test]
async fn postgres_behind_a_pooler_conforms() {
    let pooler = PgBouncer::start(POSTGRES.server().port()).expect("pgbouncer starts");
    let url = |port| format!("postgres://{LOGIN}@127.0.0.1:{port}/postgres/pooled?listen=off");
    check(&Networked { port: pooler.port(), url, ttl: TTL }).await;
}

#[test]
fn contender() {
    processes::be_a_contender();
}

#[test]
fn processes_that_are_killed_or_paused_are_replaced_and_know_it() {
    let url = url(POSTGRES.server().port());
    processes::a_killed_holder_is_replaced(&Arena::new(&url, Duration::from_millis(1500)));
    processes::a_paused_holder_has_stopped_believing(&Arena::new(&url, Duration::from_millis(1500)));
}

/// Statements that wait for the same row at the same time: each must look again once it has it.
#[tokio::test]
async fn of_claims_that_wait_for_one_row_one_is_granted() {
    let (port, election) = (POSTGRES.server().port(), fresh_name("race"));
    let subject = at(port);
    let mut engines = Vec::new();
    for _ in 0..8 {
        engines.push(open(&format!("postgres://{LOGIN}@127.0.0.1:{port}/postgres/test?listen=off")).await.expect("a good URL"));
    }
    let mut last = None;
    for round in 0..60 {
        let bids: Vec<Bid> = (0..engines.len()).map(|it| bid(&subject, &format!("c{it}"))).collect();
        let claims = engines.iter().zip(&bids).map(|(engine, bid)| token(&**engine, &election, bid));
        let claims =
            futures_util::future::join_all(claims).await.into_iter().collect::<Result<Vec<_>, _>>().expect("it is there");
        let granted: Vec<(usize, Token)> = claims.iter().enumerate().filter_map(|(at, it)| Some((at, (*it)?))).collect();
        let [(at, token)] = granted.as_slice() else { panic!("round {round}: {granted:?} were granted one seat") };
        assert!(Some(*token) > last, "{token} after {last:?}");
        last = Some(*token);
        let farewell = Farewell { reason: Reason::Resigned, to: None };
        engines[*at].release(&election, &bids[*at], *token, &farewell).await.expect("it is there");
    }
}

/// How many calls of a function were made by the name of a prepared statement.
fn calls_by_name(postgres: &Postgres, function: &str) -> u64 {
    let by_name = format!("query like 'PREPARE incumbent\\_{function}\\_%'");
    let count = postgres.sql(&format!("select coalesce(sum(calls), 0) from pg_stat_statements where {by_name}")).expect("asked");
    count.parse().expect("a number")
}

/// Renews until that is done by name. A call is prepared behind the back of whoever made it first, so it takes a few.
async fn renews_by_name(postgres: &Postgres, engine: &dyn Engine, election: &Name, bid: &Bid, held: Token) {
    let before = calls_by_name(postgres, "renew");
    for _ in 0..1000 {
        let renewed = engine.renew(election, bid, held).await.expect("it is there");
        assert!(matches!(renewed, Renewal::Kept { .. }), "{renewed:?}");
        if calls_by_name(postgres, "renew") > before {
            return;
        }
    }
    panic!("a thousand renewals, and none by name");
}

/// Behind a pooler a session is everybody's: what one has prepared there another finds, and what one has thrown away another misses.
#[tokio::test]
async fn a_prepared_call_is_shared_and_one_that_is_gone_is_made_all_the_same() {
    let postgres = Postgres::debian().start().expect("postgres starts");
    let pooler = PgBouncer::start(postgres.port()).expect("pgbouncer starts");
    let url = format!("postgres://{LOGIN}@127.0.0.1:{}/postgres/pooled?listen=off", pooler.port());
    let mut all = Vec::new();
    for name in ["a", "b"] {
        let (engine, election) = (open(&url).await.expect("a good URL"), fresh_name(name));
        let bid = Bid { ttl: Duration::from_secs(600), ..bid(&at(0), name) };
        let held = token(&*engine, &election, &bid).await.expect("it is there").expect("free");
        renews_by_name(&postgres, &*engine, &election, &bid, held).await;
        all.push((engine, election, bid, held));
    }
    let mut login = tokio_postgres::Config::new();
    login.host("127.0.0.1").port(pooler.port()).dbname(POSTGRES_DATABASE).user(POSTGRES_USER).password(POSTGRES_PASSWORD);
    let (somebody, connection) = login.connect(tokio_postgres::NoTls).await.expect("it lets us in");
    tokio::spawn(connection);
    somebody.batch_execute("discard all").await.expect("the pooler's one session is lent to whoever asks");
    for (engine, election, bid, held) in &all {
        let before = calls_by_name(&postgres, "renew");
        for _ in 0..3 {
            let renewed = engine.renew(election, bid, *held).await.expect("it is there");
            assert!(matches!(renewed, Renewal::Kept { .. }), "{renewed:?}");
        }
        assert_eq!(calls_by_name(&postgres, "renew"), before, "names are no longer tried where one was missing");
    }
}

#[tokio::test]
async fn any_text_is_stored_as_it_is() {
    for conforming in ["on", "off"] {
        let postgres = Postgres::debian().setting("standard_conforming_strings", conforming).start().expect("postgres starts");
        let (subject, election) = (at(postgres.port()), fresh_name("texts"));
        let engine = subject.engine().await;
        let farewell = Farewell { reason: Reason::Resigned, to: None };
        let texts = ["it's", "\\' or true; --", "back\\slash", "\"\n\t\u{1F5F3}", "$1 $$ E'x'"];
        // Until every one of them was also said in a call by name.
        let mut rounds = 0;
        while calls_by_name(&postgres, "claim") < 10 {
            rounds += 1;
            assert!(rounds < 1000, "a thousand rounds, and none by name");
            for text in texts {
                let bid = Bid { value: text.to_owned(), ..bid(&subject, "a") };
                let held = token(&*engine, &election, &bid).await.expect("it is there").expect("free");
                let board = engine.look(&election).await.expect("it is there");
                assert_eq!(board.leaders.first().map(|it| it.value.as_str()), Some(text));
                engine.release(&election, &bid, held, &farewell).await.expect("it is there");
            }
        }
        let why =
            engine.claim(&election, &Bid { value: "a\0b".to_owned(), ..bid(&subject, "a") }).await.expect_err("no such text");
        assert_eq!(why.kind(), Kind::Refused, "{why}");
    }
}

#[tokio::test]
async fn leaderships_and_tokens_survive_a_restart() {
    // Acknowledged before it is on the disk: the engine must ask for better.
    let postgres = Postgres::debian().setting("synchronous_commit", "off").setting("wal_writer_delay", "10s").start();
    let postgres = postgres.expect("postgres starts");
    let (subject, election) = (at(postgres.port()), fresh_name("restart"));
    let engine = subject.engine().await;
    let a = Bid { ttl: Duration::from_secs(600), ..bid(&subject, "a") };
    let first = token(&*engine, &election, &a).await.expect("it is there").expect("free");
    let longer = Bid { ttl: a.ttl * 2, ..a.clone() };
    engine.renew(&election, &longer, first).await.expect("it is there");
    postgres.kill();
    let why = engine.renew(&election, &a, first).await.expect_err("it is dead");
    assert_ne!(why.kind(), Kind::Misconfigured, "{why}");
    postgres.restart().expect("starts again");
    let left = postgres.sql("select expires_at > clock_timestamp() + interval '700 s' from incumbent_election").expect("asked");
    assert_eq!(left, "t", "a renewal that was acknowledged is forgotten");
    let renewed = engine.renew(&election, &a, first).await.expect("a dead connection is replaced");
    assert!(matches!(renewed, Renewal::Kept { .. }), "{renewed:?}");
    postgres.sql("update incumbent_election set expires_at = clock_timestamp()").expect("as if time had passed");
    let second = token(&*engine, &election, &bid(&subject, "b")).await.expect("it is there");
    assert!(second > Some(first), "{second:?} after {first}");
}

#[tokio::test]
async fn a_silent_leadership_has_ended_with_its_lease_and_not_when_it_is_missed() {
    let (subject, election) = (at(POSTGRES.server().port()), fresh_name("until"));
    let engine = subject.engine().await;
    let (a, b) = (bid(&subject, "a"), bid(&subject, "b"));
    let first = token(&*engine, &election, &a).await.expect("it is there").expect("free");
    let hour_ago = format!(
        "update incumbent_election set since = since - interval '1 hour', expires_at = expires_at - interval '1 hour' \
         where election = 'test/{election}' returning (extract(epoch from expires_at) * 1000)::bigint"
    );
    let told = POSTGRES.server().sql(&hour_ago).expect("as if time had passed");
    let until_ms = told.lines().next().and_then(|it| it.parse().ok()).expect("a number");
    let silent = (first, until_ms, "lease expired".to_owned());
    for newer in 0..2 {
        let board = engine.look(&election).await.expect("it is there");
        let past: Vec<_> = board.past.into_iter().map(|it| (it.token, it.until_ms, it.reason)).collect();
        assert_eq!((board.leaders.len(), past), (newer, vec![silent.clone()]), "before somebody claims, and after it");
        assert!(token(&*engine, &election, &b).await.expect("it is there") > Some(first));
    }
}

/// The first claim of all and a later one go different ways through the function.
#[tokio::test]
async fn a_token_is_on_the_disk_before_it_is_granted() {
    let postgres = Postgres::debian().setting("synchronous_commit", "off").setting("wal_writer_delay", "10s").start();
    let postgres = postgres.expect("postgres starts");
    let (subject, election) = (at(postgres.port()), fresh_name("granted"));
    let engine = subject.engine().await;
    for way in ["first", "later"] {
        let bid = Bid { ttl: Duration::from_secs(600), ..bid(&subject, way) };
        let granted = token(&*engine, &election, &bid).await.expect("it is there").expect("free");
        postgres.kill();
        postgres.restart().expect("starts again");
        assert_eq!(postgres.sql("select token from incumbent_election").expect("asked"), granted.get().to_string(), "{way}");
        engine.look(&election).await.expect_err("the connection is dead");
        let farewell = Farewell { reason: Reason::Resigned, to: None };
        engine.release(&election, &bid, granted, &farewell).await.expect("a dead connection is replaced");
    }
}

/// A server that waits for a standby which is not there confirms no write that asks for more than memory.
#[tokio::test]
async fn a_release_waits_for_no_disk_and_no_standby() {
    let postgres = Arc::new(Postgres::debian().start().expect("postgres starts"));
    let (subject, election) = (at(postgres.port()), fresh_name("hasty"));
    let (engine, a) = (subject.engine().await, bid(&subject, "a"));
    let held = token(&*engine, &election, &a).await.expect("it is there").expect("free");
    let wait_for_standbys = |names: &str| {
        postgres.sql(&format!("alter system set synchronous_standby_names = '{names}'")).expect("set");
        postgres.sql("select pg_reload_conf()").expect("told");
    };
    postgres.sql("create table writes ()").expect("made");
    wait_for_standbys("nobody");
    // Writes until one of its commits has to wait: then the setting is in force.
    let is_over = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let (postgres, is_over) = (Arc::clone(&postgres), Arc::clone(&is_over));
        move || {
            while !is_over.load(Ordering::Relaxed) {
                postgres.sql("insert into writes default values").expect("written");
            }
        }
    });
    incumbent_testbed::eventually("a commit to wait for the standby", || {
        postgres.sql("select count(*) from pg_stat_activity where wait_event = 'SyncRep'").expect("asked") == "1"
    });
    let farewell = Farewell { reason: Reason::Resigned, to: None };
    let released = tokio::time::timeout(Duration::from_secs(10), engine.release(&election, &a, held, &farewell)).await;
    is_over.store(true, Ordering::Relaxed);
    wait_for_standbys("");
    released.expect("it did not wait").expect("it is there");
    writer.join().expect("the last write was confirmed");
    let next = token(&*engine, &election, &bid(&subject, "b")).await.expect("it is there");
    assert!(next > Some(held), "{next:?} after {held}");
}

#[tokio::test]
async fn of_several_hosts_the_one_that_takes_writes_is_found() {
    let (first, second) = (Postgres::debian().start().expect("postgres starts"), POSTGRES.server());
    let standby = |is: &str| {
        first.sql(&format!("alter system set default_transaction_read_only = {is}")).expect("set");
        first.sql("select pg_reload_conf()").expect("told");
    };
    standby("on");
    incumbent_testbed::eventually("the setting to be there", || {
        first.sql("show default_transaction_read_only").expect("asked") == "on"
    });
    let url = format!("postgres://{LOGIN}@127.0.0.1:{},127.0.0.1:{}/postgres/hosts", first.port(), second.port());
    let (engine, election) = (open(&url).await.expect("a good URL"), fresh_name("hosts"));
    assert!(token(&*engine, &election, &bid(&at(0), "a")).await.expect("the second takes writes").is_some());
    // With one host there is no other to turn to.
    let alone = open(&format!("postgres://{LOGIN}@127.0.0.1:{}/postgres/hosts", first.port())).await;
    let alone = alone.expect("it may become a primary");
    let why = token(&*alone, &election, &bid(&at(0), "a")).await.expect_err("it takes no writes");
    assert!(why.kind() == Kind::Refused && why.to_string().contains("is a standby"), "{why:?}");
}

#[tokio::test]
async fn of_several_hosts_one_that_hangs_is_left_for_the_next() {
    let port = POSTGRES.server().port();
    let url = |silent: &str| format!("postgres://{LOGIN}@{silent},127.0.0.1:{port}/postgres/hangs");
    a_host_that_hangs_is_left_for_the_next(url, &fresh_name("hangs"), &bid(&at(port), "a")).await;
}

#[tokio::test]
async fn tables_are_made_or_the_sql_is_told() {
    let postgres = Postgres::debian().start().expect("postgres starts");
    postgres
        .sql("create role clerk login password 'clerk'; create schema office; grant usage on schema office to clerk")
        .expect("made");
    let url = format!("postgres://clerk:clerk@127.0.0.1:{}/postgres/x?schema=office", postgres.port());
    let engine = open(&url).await.expect("it lets us in");
    let board = engine.look(&fresh_name("x")).await.expect("where there are no tables nobody leads");
    assert_eq!(board, incumbent::engine::Board::default());
    let why = token(&*engine, &fresh_name("x"), &bid(&at(0), "a")).await.expect_err("it may not create tables");
    assert_eq!(why.kind(), Kind::Misconfigured, "{why}");
    let told = why.to_string();
    assert!(told.contains("engines --sql='office'") && told.contains("USAGE on the schema") && told.len() < 500, "{told}");
    // Somebody runs what was named.
    postgres.sql(&schema_sql("office")).expect("good SQL");
    let why = open(&url).await.expect("the tables are there").look(&fresh_name("x")).await.expect_err("no rights to them");
    assert!(why.kind() == Kind::Misconfigured && why.to_string().contains("grant the user SELECT"), "{why:?}");
    postgres.sql("grant select, insert, update, delete on all tables in schema office to clerk").expect("granted");
    let (engine, election) = (open(&url).await.expect("all is well"), fresh_name("office"));
    assert!(token(&*engine, &election, &bid(&at(0), "a")).await.expect("all is well").is_some());

    // Who may, makes schema and tables by itself, and again if somebody has removed them; at the same time as others, too.
    let own = format!("postgres://{LOGIN}@127.0.0.1:{}/postgres/x?schema=a%20%22quoted%22%20one", postgres.port());
    let (one, other) = tokio::join!(open(&own), open(&own));
    let (one, other) = (one.expect("made"), other.expect("made"));
    assert!(token(&*one, &election, &bid(&at(0), "a")).await.expect("made").is_some());
    postgres.sql("drop schema \"a \"\"quoted\"\" one\" cascade").expect("dropped");
    assert!(token(&*other, &election, &bid(&at(0), "b")).await.expect("made again").is_some());
    assert!(schema_sql("office").contains("incumbent_past"));
}

/// As they were left by a version that had none, or by somebody who has removed them.
#[tokio::test]
async fn tables_without_functions_are_given_them_and_keep_what_they_hold() {
    let postgres = Postgres::debian().start().expect("postgres starts");
    let (subject, election) = (at(postgres.port()), fresh_name("upgrade"));
    let first = subject.engine().await;
    let a = bid(&subject, "a");
    let granted = token(&*first, &election, &a).await.expect("it is there").expect("free");
    let drop_all = "select format('drop function %s', oid::regprocedure) from pg_proc where proname like 'incumbent\\_%'";
    let drop_all = || {
        for function in postgres.sql(drop_all).expect("asked").lines() {
            postgres.sql(function).expect("dropped");
        }
    };
    drop_all();
    // One that comes makes them, and those that are there already do so when they miss them. None forgets who leads.
    let url = url(postgres.port());
    let (one, other) = tokio::join!(open(&url), open(&url));
    let (one, _) = (one.expect("made"), other.expect("made"));
    assert!(token(&*one, &election, &bid(&subject, "b")).await.expect("made").is_none());
    drop_all();
    let kept = first.renew(&election, &a, granted).await.expect("made again");
    assert!(matches!(kept, Renewal::Kept { .. }), "{kept:?}");
    // Who may use the tables, but not make functions, is told what to have run.
    postgres
        .sql("create role clerk login password 'clerk'; grant select, insert, update, delete on all tables in schema public to clerk")
        .expect("made");
    let clerk = format!("postgres://clerk:clerk@127.0.0.1:{}/postgres/test", postgres.port());
    open(&clerk).await.expect("all is there");
    drop_all();
    let engine = open(&clerk).await.expect("all is there but the functions");
    let told = token(&*engine, &election, &bid(&subject, "c")).await.expect_err("it may not create functions").to_string();
    assert!(told.contains("may not create the tables and functions"), "{told}");
    postgres.sql(&schema_sql("public")).expect("good SQL");
    let engine = open(&clerk).await.expect("somebody has run it");
    assert!(token(&*engine, &election, &bid(&subject, "c")).await.expect("all is there").is_none());
}

#[tokio::test]
async fn a_candidate_that_remembers_more_than_the_table_raises_the_incarnation() {
    let (subject, election) = (at(POSTGRES.server().port()), fresh_name("restored"));
    let engine = subject.engine().await;
    let first = token(&*engine, &election, &bid(&subject, "a")).await.expect("it is there").expect("free");
    POSTGRES.server().sql(&format!("delete from incumbent_election where election = 'test/{election}'")).expect("deleted");
    let second = token(&*engine, &election, &Bid { seen: Some(first), ..bid(&subject, "b") }).await.expect("it is there");
    assert!(second > Some(first), "{second:?} after {first}");
}

#[tokio::test]
async fn trouble_is_said_in_one_line_with_what_to_do() {
    let certificates = Certificates::new().expect("certificates");
    let secure = Postgres::debian().tls(certificates.server().requiring_clients()).start().expect("postgres starts");
    let wrong = Postgres::debian().tls(certificates.wrong_name()).start().expect("postgres starts");
    let (ca, stranger, own) = (certificates.authority(), certificates.stranger(), certificates.client());
    let (ca, stranger) = (ca.display(), stranger.display());
    let (cert, key) = (own.certificate.display(), own.key.display());
    let (plain, secure, wrong) = (POSTGRES.server().port(), secure.port(), wrong.port());

    for good in [
        format!("postgres://{LOGIN}@127.0.0.1:{secure}/postgres?ca={ca}&cert={cert}&key={key}"),
        format!("postgres://{LOGIN}@localhost:{wrong}/postgres?ca={ca}&server-name=elsewhere.example"),
    ] {
        let engine = open(&good).await.unwrap_or_else(|why| panic!("{good}: {why}"));
        engine.look(&fresh_name("good")).await.unwrap_or_else(|why| panic!("{good}: {why}"));
    }

    for (bad, word) in [
        (format!("postgres://incumbent@127.0.0.1:{plain}/postgres"), "password-file=FILE"),
        (format!("postgres://incumbent:hunter2@127.0.0.1:{plain}/postgres"), "password-file=FILE"),
        (format!("postgres://nobody:hunter2@127.0.0.1:{plain}/postgres"), "password-file=FILE"),
        (format!("postgres://{LOGIN}@127.0.0.1:{plain}/nowhere"), "/DATABASE"),
        (format!("postgres://{LOGIN}@127.0.0.1:{plain}/postgres?ca={ca}"), "does not speak TLS"),
        (format!("postgres://{LOGIN}@127.0.0.1:{wrong}/postgres"), "tls=on"),
        (format!("postgres://{LOGIN}@127.0.0.1:{wrong}/postgres?ca={ca}"), "server-name=NAME"),
        (format!("postgres://{LOGIN}@127.0.0.1:{wrong}/postgres?ca={stranger}"), "ca=FILE"),
        (format!("postgres://{LOGIN}@127.0.0.1:{secure}/postgres?ca={ca}"), "cert"),
        (format!("postgres://{LOGIN}@127.0.0.1:{plain}/postgres?listen=loud"), "listen=on"),
        (format!("postgres://{LOGIN}@127.0.0.1:{plain}/postgres?colour=red"), "no option"),
    ] {
        let why = open(&bad).await.err().unwrap_or_else(|| panic!("{bad} was taken, without {word}"));
        assert_eq!(why.kind(), Kind::Misconfigured, "{bad}: {why}");
        assert!(why.to_string().contains(word) && !why.to_string().contains('\n'), "{bad}: {why}");
        assert!(!why.to_string().contains("hunter2"), "{why}");
    }

    // A server that is away may come back: the engine opens, and each call says what is the matter.
    let engine = open("postgres://127.0.0.1:1/postgres").await.expect("it may come back");
    let why = engine.look(&fresh_name("away")).await.expect_err("nobody is there");
    assert!(why.kind() == Kind::Refused && why.to_string().contains("is the server running there"), "{why:?}");
}
