//! The client and the server's half over real sockets: elections, keys, watches; nodes that die; bytes that are none of ours.

mod town;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use incumbent_client::client::{Client, Line, Options};
use incumbent_client::dial::Security;
use incumbent_client::failure::{Ended, Failure};
use incumbent_client::frame::{self, PREAMBLE};
use incumbent_client::message::{Asked, Consistency, Hello, Objection, Ping, ToClient, ToServer, Told, TurnedAway, Welcome};
use incumbent_client::serve::{Bounds, serve};
use incumbent_store::command::{Command, OpenSession, Resign};
use incumbent_store::event::Change;
use incumbent_store::keys::item::Span;
use incumbent_store::query::{Answer, Query, Range};
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::Reply;
use incumbent_store::watch::{CandidateTopic, Interest, Topic};
use incumbent_testbed::{Certificates, Pair, Relay, Way};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use town::{Mood, Node, Town, bid, listen, put, session};

/// A machine under load answers late; these tests are not about that.
fn options() -> Options {
    Options {
        silence: Duration::from_secs(20),
        dial: Duration::from_secs(5),
        timeout: Duration::from_secs(30),
        ..Options::default()
    }
}

#[tokio::test]
async fn an_election_is_won_and_handed_on_over_a_socket() {
    let town = Town::new();
    let node = listen(&town, 1, Bounds::default()).await;
    let one = Client::connect([&node.address], options()).await.expect("connected");
    let two = Client::connect([&node.address], options()).await.expect("connected");

    let first = one.open_session(session(10_000)).await.expect("opened");
    let second = two.open_session(session(10_000)).await.expect("opened");
    let Reply::Granted(seat) = one.submit(bid(first.id(), "billing", "a")).await.expect("done").reply else {
        panic!("not granted")
    };
    let topic = CandidateTopic { election: "billing".to_owned(), identity: "b".to_owned() };
    let mut hears = two.watch(Interest::of(Topic::Candidate(topic)), 0);
    let in_line = two.submit(bid(second.id(), "billing", "b")).await.expect("done");
    assert!(matches!(in_line.reply, Reply::InLine(_)), "{in_line:?}");
    let Ok(batch) = hears.next().await else { panic!("ended") };
    assert!(matches!(batch.events[0].change, Some(Change::First(_))), "{batch:?}");

    let resign = Resign { election: "billing".to_owned(), token: seat.token, ..Resign::default() };
    one.submit(Command::Resign(resign)).await.expect("resigned");
    let Ok(batch) = hears.next().await else { panic!("ended") };
    let Some(Change::Elected(elected)) = &batch.events[0].change else { panic!("{batch:?}") };
    assert!(elected.holder.identity == "b" && elected.holder.token > seat.token);

    let shown = one.ask(Query::Look("billing".to_owned()), Consistency::Linearizable).await.expect("asked");
    let Answer::Board(board) = shown.answer else { panic!("{shown:?}") };
    assert_eq!(board.leaders[0].identity, "b");
    let gone = one.submit(bid(99_999, "billing", "c")).await;
    assert_eq!(gone, Err(Failure::Refused(Refusal::SessionGone(99_999))));
}

#[tokio::test]
async fn when_a_node_dies_another_of_the_list_serves() {
    let town = Town::new();
    let one = listen(&town, 1, Bounds::default()).await;
    let two = listen(&town, 2, Bounds::default()).await;
    let client = Client::connect([one.address.clone(), two.address.clone()], options()).await.expect("connected");
    client.submit(put("a", "1")).await.expect("done");
    let mut watch = client.watch(Interest::EVERYTHING, 1);
    watch.next().await.expect("told");
    drop(one);
    client.submit(put("b", "2")).await.expect("done by the other");
    let batch = watch.next().await.expect("told by the other");
    assert_eq!(batch.events[0].key().map(|it| &it[..]), Some(&b"b"[..]));
}

/// As a node does in the moment of its end: whom the kernel has taken in and nobody has met is reset, before a word or behind the greeting.
#[tokio::test]
async fn whom_a_node_resets_as_it_closes_is_served_by_another_and_hears_nothing_of_it() {
    let town = Town::new();
    let good = listen(&town, 1, Bounds::default()).await;
    let closing = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = closing.local_addr().expect("bound").to_string();
    let reset = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&reset);
    let closes = tokio::spawn(async move {
        loop {
            let (mut line, _) = closing.accept().await.expect("accepts");
            if count.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
                let _ = line.read(&mut [0; 4]).await;
            }
            line.set_zero_linger().expect("set");
        }
    });
    for number in 0..20 {
        // The one that closes is the first to be asked.
        let client = Client::connect([address.clone(), good.address.clone()], options()).await.expect("connected to the other");
        client.submit(put(&number.to_string(), "1")).await.expect("done by the other");
    }
    let looks = Client::start([address, good.address.clone()], options());
    let shown = looks.ask(Query::Range(range_of_all()), Consistency::Linearizable).await.expect("asked");
    let Answer::Items(items) = shown.answer else { panic!("{shown:?}") };
    assert_eq!(items.items.len(), 20, "each was done once");
    assert!(items.items.iter().all(|it| it.version == 1));
    assert!(reset.load(Ordering::Relaxed) > 1, "both ways were tried");
    closes.abort();
}

#[tokio::test]
async fn a_stranger_is_turned_away_and_told_why() {
    let town = Town::new();
    let node = listen(&town, 1, Bounds::default()).await;
    let wrong = Options { token: "guess".to_owned(), ..options() };
    let Err(Ended::TurnedAway { why, .. }) = Client::connect([&node.address], wrong).await else { panic!("let in") };
    assert_eq!(why, "who are you?");
    let other = Options { cluster: "village".to_owned(), ..options() };
    let Err(Ended::TurnedAway { why, .. }) = Client::connect([&node.address], other).await else { panic!("let in") };
    assert!(why.contains("village"), "{why}");
}

#[tokio::test]
async fn why_a_node_ends_a_connection_is_what_the_client_says() {
    let node = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = node.local_addr().expect("bound").to_string();
    let serves = tokio::spawn(async move {
        let (mut line, _) = node.accept().await.expect("accepts");
        let welcome = Welcome { version: 1, node: 1, cluster: "town".to_owned(), leads: true, ..Welcome::default() };
        let why = "nothing was heard for 20s".to_owned();
        let mut bytes = Vec::new();
        frame::append(&ToClient::new(1, Told::Welcome(welcome)), &mut bytes);
        frame::append(&ToClient::new(0, Told::TurnedAway(TurnedAway { objection: Objection::Late.into(), why })), &mut bytes);
        line.write_all(&bytes).await.expect("said");
        let _ = line.read_to_end(&mut Vec::new()).await;
    });
    let client = Client::connect([address], options()).await.expect("connected");
    let mut line = client.line();
    let down = line.wait_for(|it| matches!(it, Line::Down { why } if why.contains("nothing was heard for 20s")));
    assert!(tokio::time::timeout(Duration::from_secs(30), down).await.is_ok_and(|it| it.is_ok()));
    serves.await.expect("whole");
}

#[tokio::test]
async fn ten_thousand_requests_are_under_way_at_once_and_each_is_applied_once() {
    let town = Town::new();
    let node = listen(&town, 1, Bounds::default()).await;
    let relay = Relay::before(&node.address).expect("a relay");
    let client = Client::connect([relay.address()], options()).await.expect("connected");
    town.set_mood(Mood::Hold);
    let mut tasks = tokio::task::JoinSet::new();
    for it in 0..10_000 {
        let client = client.clone();
        tasks.spawn(async move { client.submit(put(&it.to_string(), "value")).await });
    }
    town.until(|it| it.held == 10_000).await;
    // All of them again, on another connection; and only then are the first copies carried out.
    relay.reset();
    town.until(|it| it.held == 20_000).await;
    town.set_mood(Mood::Serve);
    while let Some(done) = tasks.join_next().await {
        assert!(matches!(done.expect("whole").expect("done").reply, Reply::Written(_)));
    }
    assert_eq!(town.happened().numbered, 20_000);
    let Ok(Answer::Items(items)) = town.read(|it| it.query(&Query::Range(range_of_all()))) else { panic!("not read") };
    let versions: Vec<u64> = items.items.iter().map(|it| it.version).collect();
    assert_eq!(versions.len(), 10_000);
    assert!(versions.iter().all(|it| *it == 1), "applied once");
}

fn range_of_all() -> Range {
    Range { span: Some(Span { start: "0".into(), end: ":".into() }), keys_only: true, ..Range::default() }
}

#[tokio::test]
async fn resets_and_partitions_lose_and_repeat_nothing() {
    let town = Town::new();
    let nodes = [listen(&town, 1, Bounds::default()).await, listen(&town, 2, Bounds::default()).await];
    let relays: Vec<Relay> = nodes.iter().map(|it| Relay::before(&it.address).expect("a relay")).collect();
    let impatient = Options { silence: Duration::from_millis(300), ..options() };
    let client = Client::connect(relays.iter().map(Relay::address), impatient).await.expect("connected");
    let mut watch = client.watch(Interest::EVERYTHING, 1);
    for round in 0..40u64 {
        let writing = client.submit(put(&format!("{round:02}"), "value"));
        match round % 8 {
            1 => relays.iter().for_each(Relay::reset),
            3 => relays[0].partition(),
            5 => {
                relays[0].heal();
                relays[1].replies(Way::Lose);
            }
            6 => relays.iter().for_each(Relay::heal),
            7 => relays.iter().for_each(Relay::disconnect),
            _ => {}
        }
        writing.await.expect("done");
    }
    let mut told = Vec::new();
    while told.len() < 40 {
        told.extend(watch.next().await.expect("goes on").events);
    }
    let keys: Vec<String> = told.iter().map(|it| String::from_utf8_lossy(it.key().expect("a key")).into_owned()).collect();
    assert_eq!(keys, (0..40).map(|it| format!("{it:02}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_other_threads_do_is_told_once_and_in_order_while_connections_break() {
    const EACH: u64 = 3_000;
    let town = Town::new();
    let node = listen(&town, 1, Bounds::default()).await;
    let relay = Relay::before(&node.address).expect("a relay");
    let client = Client::connect([relay.address()], options()).await.expect("connected");
    let mut watch = client.watch(Interest::EVERYTHING, 1);
    let writers: Vec<_> = (0..2)
        .map(|writer| {
            let town = Arc::clone(&town);
            std::thread::spawn(move || (0..EACH).for_each(|it| drop(town.apply(put(&format!("{writer}-{it}"), "value")))))
        })
        .collect();
    let (mut last, mut told, mut breaks) = (0, 0, 0);
    while told < 2 * EACH {
        for event in watch.next().await.expect("goes on").events {
            assert_eq!(event.revision, last + 1, "every revision has one event here");
            last = event.revision;
            told += 1;
        }
        if told > (breaks + 1) * EACH / 4 {
            breaks += 1;
            relay.reset();
        }
    }
    assert!(breaks >= 3, "{breaks}");
    writers.into_iter().for_each(|it| it.join().expect("whole"));
}

#[tokio::test]
async fn a_bound_session_outlives_a_partition_and_not_its_client() {
    let town = Town::new();
    let nodes = [listen(&town, 1, Bounds::default()).await, listen(&town, 2, Bounds::default()).await];
    let relays: Vec<Relay> = nodes.iter().map(|it| Relay::before(&it.address).expect("a relay")).collect();
    let impatient = Options { silence: Duration::from_millis(300), ..options() };
    let client = Client::connect(relays.iter().map(Relay::address), impatient).await.expect("connected");
    let bound = || OpenSession { ends_with_connection: true, ..session(600_000) };
    let kept = client.open_session(bound()).await.expect("opened");
    relays[0].partition();
    client.submit(put("a", "1")).await.expect("done by the other");
    // The partition ends: the first node hears what it was told, and behind it that the connection is closed.
    relays[0].heal();
    let after = town.until(|it| !it.closed.is_empty()).await;
    // On a busy machine the client may have left the other as well, and said so.
    assert!(after.closed.iter().all(|it| it == "Goodbye") && after.lost.is_empty(), "{after:?}");
    client.submit(bid(kept.id(), "billing", "a")).await.expect("the session lives");

    // Its machine closes the connection for a process that has died.
    let id = kept.id();
    drop((kept, client));
    assert_eq!(town.until(|it| !it.lost.is_empty()).await.lost, [[id]]);
    // Or resets it.
    let client = Client::connect([relays[0].address()], options()).await.expect("connected");
    let reset = client.open_session(bound()).await.expect("opened");
    relays[0].reset();
    assert_eq!(town.until(|it| it.lost.len() == 2).await.lost[1], [reset.id()]);
}

#[tokio::test]
async fn hostile_bytes_end_their_own_connection_and_nothing_else() {
    let town = Town::new();
    let node = listen(&town, 1, Bounds::default()).await;
    let honest = Client::connect([&node.address], options()).await.expect("connected");
    let mut hello = PREAMBLE.to_vec();
    frame::append(&ToServer::new(1, Asked::Hello(Hello { version: 1, oldest: 1, ..Hello::default() })), &mut hello);
    let behind = |more: &[u8]| [&hello[..], more].concat();
    let mut not_first = PREAMBLE.to_vec();
    frame::append(&ToServer::new(1, Asked::Ping(Ping {})), &mut not_first);
    let mut future = PREAMBLE.to_vec();
    frame::append(&ToServer::new(1, Asked::Hello(Hello { version: 9, oldest: 8, ..Hello::default() })), &mut future);
    let hostile: Vec<(Vec<u8>, &str)> = vec![
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "Preamble"),
        (vec![0; 4096], "Preamble"),
        (b"INCB\x02".to_vec(), "Version { theirs: 2 }"),
        ([&PREAMBLE[..], &[0xff; 64]].concat(), "TooLong"),
        ([&PREAMBLE[..], &[0, 0x41, 0, 0, 0, 0, 0, 0]].concat(), "TooLong"),
        (not_first, "TurnedAway"),
        (future, "TurnedAway"),
        (behind(&[0xff; 64]), "TooLong"),
        (behind(&[1, 0, 0, 0, 9, 9, 9, 9, 9]), "Checksum"),
        (behind(&[2, 0, 0, 0]), "ByClient"),
    ];
    for (bytes, expected) in hostile {
        let before = town.happened().closed.len();
        let mut tcp = tokio::net::TcpStream::connect(&node.address).await.expect("connected");
        tcp.write_all(&bytes).await.expect("sent");
        tcp.shutdown().await.expect("half closed");
        let closed = town.until(|it| it.closed.len() > before).await.closed;
        assert!(closed[before].contains(expected), "{bytes:?}: {closed:?}");
        honest.submit(put("still", "here")).await.expect("served");
    }
}

#[tokio::test]
async fn tls_is_spoken_and_the_wrong_certificate_refused() {
    let certificates = Certificates::new().expect("made");
    let town = Town::new();
    let address = listen_tls(&town, &certificates.both_ways("localhost").expect("signed")).await;
    let trusting = |authority: &Path| Options { security: tls(authority), ..options() };
    let client = Client::connect([&address], trusting(&certificates.authority())).await.expect("connected");
    client.submit(put("a", "1")).await.expect("done");
    let deceived = Client::connect([&address], trusting(&certificates.stranger())).await;
    let Err(Ended::Untrusted(wrong)) = deceived else { panic!("believed a stranger") };
    assert!(wrong.to_string().contains("certificate"), "{wrong}");
}

fn tls(authority: &Path) -> Security {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).expect("read")).expect("good");
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Security::Tls { config: Arc::new(config), server_name: Some("localhost".to_owned()) }
}

async fn listen_tls(town: &Arc<Town>, shown: &Pair) -> String {
    let chain: Vec<_> = CertificateDer::pem_file_iter(&shown.certificate).expect("read").map(|it| it.expect("good")).collect();
    let key = PrivateKeyDer::from_pem_file(&shown.key).expect("read");
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("good");
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let node = Arc::new(Node { town: Arc::clone(town), number: 1, address: address.clone() });
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let (acceptor, node) = (acceptor.clone(), Arc::clone(&node));
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(tcp).await {
                    serve(stream, &[], &*node, &Bounds::default()).await;
                }
            });
        }
    });
    address
}
