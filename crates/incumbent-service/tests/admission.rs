//! Who is let in by the clients' port, and what becomes of those who are not: a real node, real sockets, real clients, and bytes of strangers.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use incumbent_client::client::{Client, Options};
use incumbent_client::dial::Security;
use incumbent_client::failure::{Ended, Failure};
use incumbent_client::frame::{self, ANSWER_MAX, Inbox, PREAMBLE};
use incumbent_client::message::{Asked, Consistency, Hello, Objection, Sessions, ToClient, ToServer, Told};
use incumbent_client::serve::Bounds;
use incumbent_client::watch::Cease;
use incumbent_service::rights::{self, Made};
use incumbent_service::server::{Admission, Config, Node, NotStarted, ServerTls};
use incumbent_store::command::{Campaign, Command, EndSession, KeepAlive, OpenSession, Resign};
use incumbent_store::keys::item::Span;
use incumbent_store::keys::transaction::Put;
use incumbent_store::query::{Answer, ListElections, Query, Range};
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::{KeptAlive, Reply};
use incumbent_store::watch::{Interest, Topic};
use incumbent_testbed::{Certificates, Pair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longer than anything here takes, on a busy machine.
const LONG: Duration = Duration::from_secs(30);

/// A node with clients' port, and what it was given.
struct House {
    address: String,
    _node: Node,
    folder: TempDir,
}

fn tokens_file(folder: &Path, lines: &[&Made]) -> PathBuf {
    let path = folder.join("tokens");
    let text: String = lines.iter().map(|it| format!("{}\n", it.line)).collect();
    write_secret(&path, &text);
    path
}

/// Replaced as a whole: nobody sees half of it.
fn write_secret(path: &Path, text: &str) {
    let next = path.with_extension("next");
    std::fs::write(&next, text).expect("written");
    std::fs::set_permissions(&next, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    std::fs::rename(&next, path).expect("renamed");
}

fn start(folder: TempDir, admission: Admission) -> House {
    let config = Config { clients: Some("127.0.0.1:0".to_owned()), admission, ..Config::alone(folder.path().join("node")) };
    let node = Node::start(config).expect("starts");
    let address = node.clients_address().expect("clients are served").to_string();
    House { address, _node: node, folder }
}

/// A node with these tokens, without TLS.
fn with_tokens(lines: &[&Made]) -> House {
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = Some(tokens_file(folder.path(), lines));
    start(folder, Admission { tls: None, tokens })
}

fn server_tls(certificates: &Certificates, authority: Option<PathBuf>) -> ServerTls {
    let Pair { certificate, key } = certificates.both_ways("localhost").expect("signed");
    ServerTls { certificate, key, authority }
}

fn made(name: &str, rights: &str) -> Made {
    rights::make(name, rights).expect("made")
}

fn options(token: &str) -> Options {
    // A machine under load answers late; these tests are not about that.
    let dial = Duration::from_secs(5);
    Options { token: token.to_owned(), silence: LONG, dial, timeout: LONG, ..Options::default() }
}

fn tls(authority: &Path, shown: Option<&Pair>) -> Security {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).expect("read")).expect("good");
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let config = match shown {
        Some(Pair { certificate, key }) => config
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_file(certificate).expect("read")],
                PrivateKeyDer::from_pem_file(key).expect("read"),
            )
            .expect("a key that fits"),
        None => config.with_no_client_auth(),
    };
    Security::Tls { config: Arc::new(config), server_name: Some("localhost".to_owned()) }
}

async fn connect(house: &House, token: &str) -> Client {
    Client::connect([&house.address], options(token)).await.expect("let in")
}

fn bid(session: u64, election: &str, identity: &str) -> Command {
    Command::Campaign(Campaign { session, election: election.into(), identity: identity.into(), ..Campaign::default() })
}

fn put(key: &str) -> Command {
    Command::Put(Put { key: key.to_owned().into(), value: "v".into(), ..Put::default() })
}

fn range(prefix: &str) -> Query {
    Query::Range(Range { span: Some(Span::prefix(prefix.to_owned())), ..Range::default() })
}

fn is_denied<T: std::fmt::Debug>(result: Result<T, Failure>) {
    assert!(matches!(result, Err(Failure::Refused(Refusal::Denied(_)))), "{result:?}");
}

#[tokio::test]
async fn a_guest_does_over_tls_what_its_token_is_good_for_and_nothing_else() {
    let certificates = Certificates::new().expect("certificates");
    let folder = tempfile::tempdir().expect("a folder");
    let (billing, root) = (made("billing", "campaign:billing/ read:config/"), made("root", "admin:"));
    let tokens = Some(tokens_file(folder.path(), &[&billing, &root]));
    let house = start(folder, Admission { tls: Some(server_tls(&certificates, None)), tokens });
    let secured = |token: &str| Options { security: tls(&certificates.authority(), None), ..options(token) };
    let guest = Client::connect([&house.address], secured(&billing.token)).await.expect("let in");
    let admin = Client::connect([&house.address], secured(&root.token)).await.expect("let in");

    let session =
        guest.open_session(OpenSession { ttl_ms: 60_000, owner: "web".into(), ..OpenSession::default() }).await.expect("opened");
    let won = guest.submit(bid(session.id(), "billing/eu", "a")).await.expect("allowed");
    assert!(matches!(won.reply, Reply::Granted(_)), "{won:?}");
    admin.submit(put("config/a")).await.expect("allowed");
    assert!(guest.ask(range("config/"), Consistency::Linearizable).await.is_ok());
    assert!(guest.ask(Query::Look("billing/eu".into()), Consistency::Local).await.is_ok());

    is_denied(guest.submit(bid(session.id(), "billing", "a")).await);
    is_denied(guest.submit(put("config/a")).await);
    is_denied(guest.ask(range("config"), Consistency::Local).await);
    is_denied(guest.ask(Query::Elections(ListElections::default()), Consistency::Linearizable).await);
    is_denied(guest.ask(Query::Session(session.id()), Consistency::Local).await);
    let mut watch = guest.watch(Interest::EVERYTHING, 1);
    let ceased = watch.next().await;
    assert!(matches!(ceased, Err(Cease::Refused(Refusal::Denied(_)))), "{ceased:?}");
    let mut watch = guest.watch(Interest::of(Topic::ElectionsUnder("billing/".into())), 1);
    assert!(watch.next().await.is_ok());

    let Answer::Session(view) = admin.ask(Query::Session(session.id()), Consistency::Linearizable).await.expect("allowed").answer
    else {
        panic!("another answer")
    };
    assert_eq!(view.owner, "billing/web");
    is_denied(admin.submit(put("\0members")).await);

    let plain =
        timeout(LONG, Client::connect([&house.address], Options { timeout: Duration::from_secs(1), ..options(&root.token) }));
    assert!(plain.await.expect("an answer").is_err(), "without TLS nobody is served");
}

#[tokio::test]
async fn a_session_is_its_guests_whoever_guesses_its_number() {
    let (one, two) = (made("one", "campaign:e"), made("two", "campaign:e"));
    let house = with_tokens(&[&one, &two]);
    let (owner, thief) = (connect(&house, &one.token).await, connect(&house, &two.token).await);
    let open = OpenSession { ttl_ms: 60_000, ends_with_connection: true, ..OpenSession::default() };
    let session = owner.open_session(open).await.expect("opened");
    let id = session.id();
    let Reply::Granted(seat) = owner.submit(bid(id, "e", "a")).await.expect("allowed").reply else { panic!("not granted") };

    let gone = Err(Failure::Refused(Refusal::SessionGone(id)));
    assert_eq!(thief.submit(Command::EndSession(EndSession { session: id, ..EndSession::default() })).await.map(drop), gone);
    assert_eq!(thief.submit(bid(id, "e", "b")).await.map(drop), gone);
    let kept = thief.submit(Command::KeepAlive(KeepAlive { sessions: vec![id] })).await.expect("answered").reply;
    assert_eq!(kept, Reply::KeptAlive(KeptAlive { gone: vec![id] }));
    let resign = Resign { election: "e".into(), token: seat.token, ..Resign::default() };
    assert_eq!(thief.submit(Command::Resign(resign)).await.map(drop), Err(Failure::Refused(Refusal::NotInOffice(seat.token))));

    // Nor by a connection that says it speaks for it, and dies.
    let mut bytes = PREAMBLE.to_vec();
    let hello = Hello { version: 1, oldest: 1, token: two.token.clone(), ..Hello::default() };
    frame::append(&ToServer::new(1, Asked::Hello(hello)), &mut bytes);
    frame::append(&ToServer::new(2, Asked::Bind(Sessions { sessions: vec![id], again: true })), &mut bytes);
    let mut raw = TcpStream::connect(&house.address).await.expect("connects");
    raw.write_all(&bytes).await.expect("sent");
    raw.shutdown().await.expect("closed");
    timeout(LONG, raw.read_to_end(&mut Vec::new())).await.expect("an end").expect("read");
    // Whatever came of it came before this.
    owner.submit(bid(id, "e", "a")).await.expect("still there");
    let board = thief.ask(Query::Look("e".into()), Consistency::Linearizable).await.expect("allowed").answer;
    let Answer::Board(board) = board else { panic!("another answer") };
    assert_eq!(board.leaders[0].token, seat.token);
}

#[tokio::test]
async fn without_a_good_token_nobody_is_let_in_and_who_goes_on_guessing_is_not_heard() {
    let known = made("known", "observe:");
    let house = with_tokens(&[&known]);
    let inside = connect(&house, &known.token).await;
    for (token, words) in [("", "wants a token"), ("guess", "not known"), (&known.line, "not known")] {
        let Err(Ended::TurnedAway { objection, why }) = Client::connect([&house.address], options(token)).await else {
            panic!("let in")
        };
        assert!(objection == Objection::Token && why.contains(words), "{why}");
    }
    let hello = |token: &str| {
        let mut bytes = PREAMBLE.to_vec();
        frame::append(
            &ToServer::new(1, Asked::Hello(Hello { version: 1, oldest: 1, token: token.into(), ..Hello::default() })),
            &mut bytes,
        );
        bytes
    };
    let (mut unheard, mut told_why) = (0, 0);
    for guess in 0..60 {
        let mut raw = TcpStream::connect(&house.address).await.expect("connects");
        let mut inbox = Inbox::new();
        let told = async {
            raw.write_all(&hello(&format!("guess {guess}"))).await?;
            raw.read_to_end(inbox.room()).await
        };
        let told = timeout(LONG, told).await.expect("an end");
        let why = inbox.take::<ToClient>(ANSWER_MAX).expect("a frame");
        if let Some(ToClient { told: Some(Told::TurnedAway(away)), .. }) = &why
            && away.objection() == Objection::Busy
        {
            assert!(away.why.contains("were bad") && away.why.contains("try again later"), "{away:?}");
            told_why += 1;
            unheard += 1;
        } else if told.is_err() || why.is_none() {
            unheard += 1;
        }
    }
    assert!(told_why > 0, "of those who are not listened to some are told why");
    let mut answers = Vec::new();
    for _ in 0..60 {
        let mut raw = TcpStream::connect(&house.address).await.expect("connects");
        let asked = "GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer guess\r\nConnection: close\r\n\r\n";
        raw.write_all(asked.as_bytes()).await.expect("sent");
        let mut came = Vec::new();
        let _ = timeout(LONG, raw.read_to_end(&mut came)).await.expect("an end");
        answers.push(String::from_utf8_lossy(&came).into_owned());
        if answers.last().is_some_and(|it| it.contains("503")) {
            break;
        }
    }
    let last = answers.last().expect("asked");
    assert!(last.contains("retry-after: 1") && last.contains("\"code\":\"full\"") && last.contains("were bad"), "{answers:?}");
    assert!(unheard > 0, "after some it is not listened to");
    assert!(inside.ask(Query::Look("e".into()), Consistency::Linearizable).await.is_ok(), "who is in is served");
    // And after a while one is heard again.
    assert!(Client::connect([&house.address], options(&known.token)).await.is_ok());
}

#[tokio::test]
async fn a_token_that_is_withdrawn_ends_the_connection_and_the_watch() {
    let (stays, goes) = (made("stays", "observe: write:"), made("goes", "observe:"));
    let house = with_tokens(&[&stays, &goes]);
    let (staying, going) = (connect(&house, &stays.token).await, connect(&house, &goes.token).await);
    assert!(going.ask(Query::Look("e".into()), Consistency::Linearizable).await.is_ok());
    let mut raw = TcpStream::connect(&house.address).await.expect("connects");
    let mut bytes = PREAMBLE.to_vec();
    frame::append(
        &ToServer::new(1, Asked::Hello(Hello { version: 1, oldest: 1, token: goes.token.clone(), ..Hello::default() })),
        &mut bytes,
    );
    raw.write_all(&bytes).await.expect("sent");
    assert_ne!(timeout(LONG, raw.read(&mut [0; 1024])).await.expect("a welcome").expect("read"), 0);

    tokens_file(house.folder.path(), &[&stays]);
    // Long before it would be cut off for its silence.
    let mut inbox = Inbox::new();
    let ended = async {
        while raw.read_buf(inbox.room()).await.expect("no reset") > 0 {}
        raw.shutdown().await
    };
    timeout(Bounds::default().silence / 2, ended).await.expect("an end").expect("shut down");
    let Some(ToClient { told: Some(Told::TurnedAway(told)), .. }) = inbox.take(ANSWER_MAX).expect("good") else {
        panic!("not told why")
    };
    assert!(told.objection() == Objection::Token && told.why.contains("withdrawn"), "{told:?}");
    let Err(Ended::TurnedAway { objection: Objection::Token, .. }) =
        Client::connect([&house.address], options(&goes.token)).await
    else {
        panic!("let in")
    };
    staying.submit(put("k")).await.expect("untouched");
}

#[tokio::test]
async fn a_certificate_may_stand_for_a_token() {
    let certificates = Certificates::new().expect("certificates");
    let folder = tempfile::tempdir().expect("a folder");
    let tokened = made("tokened", "observe:");
    let tokens = folder.path().join("tokens");
    write_secret(&tokens, &format!("{}\ncertified cert:prober.example observe:\n", tokened.line));
    let tls_files = server_tls(&certificates, Some(certificates.authority()));
    let house = start(folder, Admission { tls: Some(tls_files), tokens: Some(tokens) });
    let with = |shown: Option<&Pair>, token: &str| Options { security: tls(&certificates.authority(), shown), ..options(token) };
    let look = || Query::Look("e".into());

    let prober = certificates.both_ways("prober.example").expect("signed");
    let client = Client::connect([&house.address], with(Some(&prober), "")).await.expect("let in");
    assert!(client.ask(look(), Consistency::Linearizable).await.is_ok());
    is_denied(client.submit(put("k")).await);
    let other = certificates.both_ways("other.example").expect("signed");
    let Err(Ended::TurnedAway { objection: Objection::Token, .. }) =
        Client::connect([&house.address], with(Some(&other), "")).await
    else {
        panic!("let in")
    };
    assert!(Client::connect([&house.address], with(Some(&other), &tokened.token)).await.is_ok());
    // A token without a certificate, or with a stranger's, is not even looked at.
    let stranger = certificates.both_ways_by_stranger("prober.example").expect("signed");
    for shown in [None, Some(&stranger)] {
        let short = Options { timeout: Duration::from_secs(2), ..with(shown, &tokened.token) };
        assert!(Client::connect([&house.address], short).await.is_err());
    }
}

#[tokio::test]
async fn beyond_loopback_a_node_does_not_start_without_tls_and_tokens() {
    let certificates = Certificates::new().expect("certificates");
    let start = |admission: Admission| {
        let folder = tempfile::tempdir().expect("a folder");
        let clients = Some("0.0.0.0:0".to_owned());
        Node::start(Config { clients, admission, ..Config::alone(folder.path().join("node")) })
    };
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = Some(tokens_file(folder.path(), &[&made("a", "observe:")]));
    let tls = Some(server_tls(&certificates, None));
    for (admission, words) in [
        (Admission::default(), "no TLS and tokens"),
        (Admission { tls: None, tokens: tokens.clone() }, "no TLS"),
        (Admission { tls: tls.clone(), tokens: None }, "no tokens"),
    ] {
        let Err(NotStarted::Exposed(why)) = start(admission) else { panic!("started") };
        assert!(why.contains(words), "{why}");
    }
    let absent = Admission { tls: tls.clone(), tokens: Some("no/such/file".into()) };
    let Err(NotStarted::Clients(why)) = start(absent) else { panic!("started") };
    assert!(why.contains("no/such/file"), "{why}");
    assert!(start(Admission { tls, tokens }).is_ok());
}

/// What no client would say.
fn nonsense() -> Vec<Vec<u8>> {
    let framed = |asked: Asked| {
        let mut bytes = PREAMBLE.to_vec();
        frame::append(&ToServer::new(1, asked), &mut bytes);
        bytes
    };
    let behind = |bytes: &[u8]| [&PREAMBLE[..], bytes].concat();
    vec![
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        vec![0; 64 * 1024],
        vec![0xff; 64 * 1024],
        b"INCB\x09".to_vec(),
        b"INCX".to_vec(),
        behind(&[0xff; 4096]),
        behind(&[0, 0, 0, 0x80, 0, 0, 0, 0]),
        behind(&[1, 0, 0, 0, 9, 9, 9, 9, 9]),
        framed(Asked::Hello(Hello { version: 99, oldest: 98, ..Hello::default() })),
        framed(Asked::Hello(Hello { version: 0, oldest: 0, ..Hello::default() })),
        framed(Asked::Hello(Hello { version: 1, oldest: 1, cluster: "another".into(), ..Hello::default() })),
        framed(Asked::Hello(Hello { version: 1, oldest: 1, token: "x".repeat(15_000), ..Hello::default() })),
        framed(Asked::Unwatch(7)),
        framed(Asked::Submit(incumbent_store::command::Request::of(put("k")))),
        [0x16, 3, 1, 0xff, 0xff].repeat(1000),
    ]
}

#[tokio::test]
async fn whatever_strangers_send_they_are_cut_off_and_others_are_served() {
    let certificates = Certificates::new().expect("certificates");
    let known = made("known", "observe: write:");
    for secured in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let tokens = Some(tokens_file(folder.path(), &[&known]));
        let tls_files = secured.then(|| server_tls(&certificates, None));
        let house = start(folder, Admission { tls: tls_files, tokens });
        let security = if secured { tls(&certificates.authority(), None) } else { Security::LoopbackOnly };
        let honest = Client::connect([&house.address], Options { security, ..options(&known.token) }).await.expect("let in");
        for bytes in nonsense() {
            let mut raw = TcpStream::connect(&house.address).await.expect("connects");
            // It may be cut off before it has said all of it.
            let _ = raw.write_all(&bytes).await;
            let _ = raw.shutdown().await;
            let mut came = Vec::new();
            let _ = timeout(LONG, raw.read_to_end(&mut came)).await.expect("an end");
            assert!(came.len() < 1024, "little is said to strangers: {} bytes", came.len());
            honest.submit(put("still")).await.expect("served");
        }
    }
}

#[tokio::test]
async fn who_says_nothing_or_very_little_is_cut_off_in_time() {
    let certificates = Certificates::new().expect("certificates");
    let known = made("known", "observe: write:");
    for secured in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let tokens = Some(tokens_file(folder.path(), &[&known]));
        let tls_files = secured.then(|| server_tls(&certificates, None));
        let house = start(folder, Admission { tls: tls_files, tokens });
        let mut lines = Vec::new();
        // Nothing; the beginning of our own stream; a handshake that has begun; all but the end of a hello.
        for begun in [&b""[..], b"INC", b"\x16\x03\x01\x02\x00\x01", b"INCB\x01\x40\x00\x00\x00"] {
            let mut raw = TcpStream::connect(&house.address).await.expect("connects");
            raw.write_all(begun).await.expect("sent");
            lines.push(raw);
        }
        let security = if secured { tls(&certificates.authority(), None) } else { Security::LoopbackOnly };
        let honest = Client::connect([&house.address], Options { security, ..options(&known.token) }).await.expect("let in");
        honest.submit(put("still")).await.expect("served");
        for mut raw in lines {
            let mut came = Vec::new();
            let _ = timeout(LONG, raw.read_to_end(&mut came)).await.expect("cut off");
            assert!(came.len() < 1024, "little is said to strangers: {} bytes", came.len());
        }
        honest.submit(put("still")).await.expect("served");
    }
}

/// The first line of what is answered to a request by HTTP.
async fn asked_by_http(house: &House, path: &str, token: Option<&str>) -> String {
    let token = token.map(|it| format!("Authorization: Bearer {it}\r\n")).unwrap_or_default();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{token}\r\n");
    let mut raw = TcpStream::connect(&house.address).await.expect("connects");
    raw.write_all(request.as_bytes()).await.expect("sent");
    let mut came = Vec::new();
    timeout(LONG, raw.read_to_end(&mut came)).await.expect("an end").expect("read");
    String::from_utf8_lossy(&came).lines().next().unwrap_or_default().to_owned()
}

/// A request over a connection that stays: the head of what is answered.
async fn asked_again(raw: &mut TcpStream, token: &str) -> String {
    let request = format!("GET /v1/elections/e HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
    raw.write_all(request.as_bytes()).await.expect("sent");
    let mut came = vec![0; 4096];
    let length = timeout(LONG, raw.read(&mut came)).await.expect("an answer").expect("read");
    String::from_utf8_lossy(&came[..length]).into_owned()
}

#[tokio::test]
async fn who_begins_a_request_by_http_and_does_not_say_who_it_is_makes_room() {
    let known = made("known", "observe:");
    let house = with_tokens(&[&known]);
    let mut honest = TcpStream::connect(&house.address).await.expect("connects");
    assert!(asked_again(&mut honest, &known.token).await.contains("200"));
    let mut strangers = Vec::new();
    for _ in 0..1_001 {
        let mut raw = TcpStream::connect(&house.address).await.expect("connects");
        raw.write_all(b"G").await.expect("sent");
        strangers.push(raw);
    }
    // Long before it would be cut off for its slowness.
    let ended = timeout(LONG / 3, strangers[0].read(&mut [0; 1024])).await.expect("an end");
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    assert!(asked_again(&mut honest, &known.token).await.contains("200"), "who has said who it is stays");
}

#[tokio::test]
async fn by_http_a_connection_is_good_for_one_bad_token() {
    let known = made("known", "observe:");
    let house = with_tokens(&[&known]);
    let request = "GET /v1/elections/e HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer guess\r\n\r\n";
    let mut unheard = 0;
    for guesses in [60].into_iter().chain([1; 60]) {
        let mut raw = TcpStream::connect(&house.address).await.expect("connects");
        // It may be cut off before it has said all of it.
        let _ = raw.write_all(request.repeat(guesses).as_bytes()).await;
        let mut came = Vec::new();
        let _ = timeout(LONG / 3, raw.read_to_end(&mut came)).await.expect("an end");
        let answers = String::from_utf8_lossy(&came).matches("HTTP/1.1 401").count();
        assert!(answers <= 1, "{answers} guesses");
        // Told that it is not listened to, or not even that.
        unheard += usize::from(came.is_empty() || came.starts_with(b"HTTP/1.1 503"));
    }
    assert!(unheard > 0, "after some it is not listened to");
}

#[tokio::test]
async fn by_http_the_same_tokens_are_good_for_the_same() {
    let known = made("known", "observe:e/");
    let house = with_tokens(&[&known]);
    for (path, token, status) in [
        ("/v1/elections/e%2F1", None, "401"),
        ("/v1/elections/e%2F1", Some("guess"), "401"),
        ("/v1/elections/e%2F1", Some(known.token.as_str()), "200"),
        ("/v1/elections/other", Some(&known.token), "403"),
        ("/v1/kv?prefix=k", Some(&known.token), "403"),
        ("/v1/sessions", Some(&known.token), "403"),
    ] {
        let told = asked_by_http(&house, path, token).await;
        assert!(told.contains(status), "{path}: {told}");
    }
}
