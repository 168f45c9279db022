//! Keys and certificates: the right ones, the wrong ones, and none.
#![allow(clippy::wildcard_enum_match_arm, reason = "a test waits for one kind of arrival")]

mod group;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use group::{LONG, Node, addresses, lines};
use incumbent_peer::packet::{FRAME_MAX, Gossip, Hello, Lane, Packet, Passport, Purpose, Role, VERSION};
use incumbent_peer::switchboard::{Arrival, GroupKey, Guest, Lines, Security, Switchboard, TlsFiles};
use incumbent_protocol::protocol::NodeId;
use incumbent_testbed::{Certificates, Pair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

fn key(byte: u8) -> Security {
    Security::Key(GroupKey::new([byte; 32]))
}

/// The lines of nodes 1 and 2, secured so.
fn secured(one: Security, two: Security) -> ([Lines; 2], impl Sized) {
    let (ports, at) = addresses::<2>();
    let mut first = lines(1, &at[0], &[(2, at[1].clone())]);
    let mut second = lines(2, &at[1], &[(1, at[0].clone())]);
    (first.security, second.security) = (one, two);
    // Unoptimised, to seal long news on a busy machine takes longer than a short patience, and then they are lost: as they may be.
    (first.patience, second.patience) = (LONG, LONG);
    ([first, second], ports)
}

async fn open([one, two]: [Lines; 2]) -> [Node; 2] {
    [Node::open(one).await, Node::open(two).await]
}

/// Words and long news pass both ways, and a guest is answered.
async fn work(nodes: [Node; 2], guest: &Security) {
    let [mut one, mut two] = nodes;
    one.up(2).await;
    two.up(1).await;
    one.say(2, 1);
    two.say(1, 2);
    assert_eq!(two.word().await, (1, 1));
    assert_eq!(one.word().await, (2, 2));
    let body: Vec<u8> = (0..200_000_u32).map(|at| (at * 7) as u8).collect();
    let news = || Gossip { election: "jobs".into(), body: body.clone() };
    one.board.send_gossip(NodeId(2), news());
    two.board.send_gossip(NodeId(1), news());
    for node in [&mut one, &mut two] {
        let came = node.until("news", |it| match it {
            Arrival::Gossip { gossip, .. } => Some(gossip.body),
            _ => None,
        });
        assert!(came.await == body);
    }
    let address = two.board.local_address().to_string();
    let answering = two.until("a question", |it| match it {
        Arrival::Asked { body, reply, .. } => {
            reply.send(body);
            Some(())
        }
        _ => None,
    });
    let asking = async { Guest::connect(&[address], "blue", guest).await.expect("let in").ask(vec![7]).await };
    let ((), answer) = tokio::join!(answering, asking);
    assert_eq!(answer, Ok(vec![7]));
}

#[tokio::test]
async fn nodes_with_the_same_key_speak() {
    let (lines, _ports) = secured(key(1), key(1));
    work(open(lines).await, &key(1)).await;
}

#[tokio::test]
async fn another_key_is_refused_and_both_say_so() {
    let (lines, _ports) = secured(key(1), key(2));
    let [mut one, mut two] = open(lines).await;
    one.complaint("our key is not its own").await;
    assert!(two.complaint("its key is not ours").await.contains("127.0.0.1:"));
    let address = [one.board.local_address().to_string()];
    let wrong = Guest::connect(&address, "blue", &key(3)).await.err().expect("refused").0;
    assert!(wrong.contains("our key is not its own"), "{wrong}");
}

#[tokio::test]
async fn a_node_without_a_key_is_refused() {
    let (lines, _ports) = secured(Security::Open, key(2));
    let [_one, mut two] = open(lines).await;
    two.complaint("it speaks without a key, and this node expects a key").await;
    let (lines, _ports) = secured(key(1), Security::Open);
    let [_one, mut two] = open(lines).await;
    two.complaint("it speaks with a key, and this node expects none").await;
}

#[test]
fn a_key_is_digits_or_a_long_text() {
    let digits = "00ff".repeat(16);
    let mut bytes = [0; 32];
    bytes.iter_mut().skip(1).step_by(2).for_each(|byte| *byte = 0xff);
    assert_eq!(GroupKey::parse(&format!(" {digits}\n")), Ok(GroupKey::new(bytes)));
    let text = "correct horse battery staple, twice";
    assert_eq!(GroupKey::parse(text), GroupKey::parse(&format!("{text}\n")));
    assert_ne!(GroupKey::parse(text), GroupKey::parse("correct horse battery staple, thrice"));
    assert_ne!(GroupKey::parse(text), Ok(GroupKey::new([0; 32])));
    assert!(GroupKey::parse("secret").unwrap_err().0.contains("at least 32 bytes"));
    assert!(!format!("{:?}", GroupKey::parse(text)).contains("correct"));
    assert!(GroupKey::read(&PathBuf::from("no/such/file")).unwrap_err().0.contains("no/such/file"));
}

fn tls(certificates: &Certificates, pair: Pair) -> Security {
    Security::Tls(TlsFiles { authority: certificates.authority(), certificate: pair.certificate, key: pair.key, revoked: None })
}

#[tokio::test]
async fn nodes_with_certificates_speak() {
    let certificates = Certificates::new().expect("certificates");
    let of = |name: &str| tls(&certificates, certificates.both_ways(name).expect("signed"));
    let (lines, _ports) = secured(of("node-1.blue"), of("node-2.blue"));
    work(open(lines).await, &tls(&certificates, certificates.client())).await;
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused_by_both_ends() {
    let certificates = Certificates::new().expect("certificates");
    let right = tls(&certificates, certificates.both_ways("node-2.blue").expect("signed"));
    let stolen = certificates.both_ways_by_stranger("node-1.blue").expect("signed");
    let (lines, _ports) = secured(tls(&certificates, stolen.clone()), right);
    let [mut one, mut two] = open(lines).await;
    // Node 2 refuses what node 1 shows; and when node 2 knocks, what node 1 answers with.
    two.complaint("another authority").await;
    one.complaint("TLS").await;
    let address = [two.board.local_address().to_string()];
    let guest = Guest::connect(&address, "blue", &tls(&certificates, stolen)).await;
    assert!(guest.is_err());
}

#[tokio::test]
async fn a_certificate_is_good_for_one_node_only() {
    let certificates = Certificates::new().expect("certificates");
    let of = |name: &str| tls(&certificates, certificates.both_ways(name).expect("signed"));
    // Our own is looked at first.
    let (tell, _arrivals) = mpsc::channel(1);
    let (port, at) = addresses::<1>();
    let mut wrong = lines(1, &at[0], &[]);
    wrong.security = of("node-3.blue");
    let wrong = Switchboard::open(wrong, tell.clone()).await.expect_err("refused").0;
    assert!(wrong.contains("our own certificate") && wrong.contains("node-1.blue"), "{wrong}");
    drop(port);

    // Node 3's certificate, shown by a node that calls itself 3 where node 2 is expected.
    let (ports, at) = addresses::<2>();
    let mut one = lines(1, &at[0], &[(2, at[1].clone())]);
    one.security = of("node-1.blue");
    let mut three = lines(3, &at[1], &[(1, at[0].clone())]);
    three.security = of("node-3.blue");
    let mut one = Node::open(one).await;
    let _three = Node::open(three).await;
    one.complaint("the certificate is not for node-2.blue").await;
    drop(ports);
}

/// A client of TLS with this certificate that does not check anything else.
async fn caller(certificates: &Certificates, pair: &Pair, address: SocketAddr, server: &str) -> TlsStream<TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificates.authority()).expect("read")).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_client_auth_cert(
            vec![CertificateDer::from_pem_file(&pair.certificate).expect("read")],
            PrivateKeyDer::from_pem_file(&pair.key).expect("read"),
        )
        .expect("a key that fits");
    let tcp = TcpStream::connect(address).await.expect("connects");
    let name = server.to_owned().try_into().expect("a name");
    TlsConnector::from(Arc::new(config)).connect(name, tcp).await.expect("a certificate of the right authority")
}

#[tokio::test]
async fn a_caller_is_the_node_that_its_certificate_names() {
    let certificates = Certificates::new().expect("certificates");
    let two_own = certificates.both_ways("node-2.blue").expect("signed");
    let (_ports, at) = addresses::<2>();
    let mut two = lines(2, &at[1], &[(1, at[0].clone())]);
    two.security = tls(&certificates, two_own);
    let two = Node::open(two).await;
    let passport = Passport { id: NodeId(1), directory: [1; 16], generation: 1, nonce: 1001, origin: None };
    let hello = Packet::Hello(Hello {
        version: VERSION,
        oldest: VERSION,
        cluster: "blue".into(),
        role: Role::Member(passport),
        purpose: Purpose::Lane(Lane::Urgent),
        settings: "raft".into(),
        to: Some(NodeId(2)),
    });
    let mut bytes = Vec::new();
    hello.encode(&mut bytes).expect("fits");
    for (name, welcome) in [("node-3.blue", false), ("node-1.green", false), ("blue", false), ("node-1.blue", true)] {
        let pair = certificates.both_ways(name).expect("signed");
        let mut caller = caller(&certificates, &pair, two.board.local_address(), "node-2.blue").await;
        caller.write_all(&bytes).await.expect("sent");
        let mut came = Vec::new();
        let answer = loop {
            if let Some((packet, _)) = Packet::decode(&came, FRAME_MAX).expect("well-formed") {
                break packet;
            }
            assert_ne!(caller.read_buf(&mut came).await.expect("an answer"), 0);
        };
        match answer {
            Packet::Welcome(_) => assert!(welcome, "{name}"),
            Packet::Refusal { why } => assert!(!welcome && why.contains("the certificate is not for node-1.blue"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_node_without_a_certificate_is_refused() {
    let certificates = Certificates::new().expect("certificates");
    let right = tls(&certificates, certificates.both_ways("node-2.blue").expect("signed"));
    let (lines, _ports) = secured(key(1), right);
    let [_one, mut two] = open(lines).await;
    two.complaint("it does not speak TLS").await;
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let certificates = Certificates::new().expect("certificates");
    let right = certificates.both_ways("node-1.blue").expect("signed");
    let cases = [
        TlsFiles {
            authority: "no/such/authority".into(),
            certificate: right.certificate.clone(),
            key: right.key.clone(),
            revoked: None,
        },
        TlsFiles { authority: certificates.authority(), certificate: right.key.clone(), key: right.key.clone(), revoked: None },
        TlsFiles {
            authority: certificates.authority(),
            certificate: right.certificate.clone(),
            key: certificates.client().key,
            revoked: None,
        },
    ];
    for (files, words) in cases.into_iter().zip(["no/such/authority", "there is no certificate in it", "cannot use"]) {
        let (tell, _arrivals) = mpsc::channel(1);
        let mut lines = lines(1, "127.0.0.1:0", &[]);
        lines.security = Security::Tls(files);
        let wrong = Switchboard::open(lines, tell).await.expect_err("refused").0;
        assert!(wrong.contains(words), "{wrong}");
    }
}

/// The lines of node 2, started anew.
fn anew(lines: &Lines, generation: u64, security: Security) -> Lines {
    Lines { generation, nonce: lines.nonce + generation, security, ..lines.clone() }
}

#[tokio::test]
async fn certificates_that_were_replaced_are_shown_and_believed_when_a_line_is_made_again() {
    let certificates = Certificates::new().expect("certificates");
    let folder = tempfile::tempdir().expect("a folder");
    let files = TlsFiles {
        authority: folder.path().join("ca"),
        certificate: folder.path().join("cert"),
        key: folder.path().join("key"),
        revoked: None,
    };
    let place = |authority: PathBuf, pair: Pair| {
        for (from, to) in [(authority, &files.authority), (pair.certificate, &files.certificate), (pair.key, &files.key)] {
            std::fs::copy(from, to).expect("copied");
        }
    };
    place(certificates.authority(), certificates.both_ways("node-1.blue").expect("signed"));
    let second = || tls(&certificates, certificates.both_ways("node-2.blue").expect("signed"));
    let ([one, two], _ports) = secured(Security::Tls(files.clone()), second());
    let again = two.clone();
    let [mut one, mut two] = open([one, two]).await;
    one.up(2).await;
    two.up(1).await;
    // What cannot be used changes nothing.
    std::fs::write(&files.key, "no key").expect("written");
    one.complaint("the former stay in force").await;
    drop(two);
    one.down(2).await;
    let two = Node::open(anew(&again, 2, second())).await;
    one.up(2).await;
    // All of it is of another authority, which is the only one that node 2 believes from now on.
    place(certificates.stranger(), certificates.both_ways_by_stranger("node-1.blue").expect("signed"));
    drop(two);
    one.down(2).await;
    let Pair { certificate, key } = certificates.both_ways_by_stranger("node-2.blue").expect("signed");
    let theirs = TlsFiles { authority: certificates.stranger(), certificate, key, revoked: None };
    let mut two = Node::open(anew(&again, 3, Security::Tls(theirs))).await;
    one.up(2).await;
    two.up(1).await;
}

#[tokio::test]
async fn a_certificate_that_was_revoked_is_refused_whoever_dials() {
    let certificates = Certificates::new().expect("certificates");
    let folder = tempfile::tempdir().expect("a folder");
    let list = folder.path().join("revoked");
    let place = |names: &[&str]| std::fs::copy(certificates.revoked(names).expect("signed"), &list).expect("copied");
    place(&["node-7.blue"]);
    let of = |name: &str| certificates.both_ways(name).expect("signed");
    let with_list = |Pair { certificate, key }: Pair| TlsFiles {
        authority: certificates.authority(),
        certificate,
        key,
        revoked: Some(list.clone()),
    };
    let ([one, two], _ports) = secured(tls(&certificates, of("node-1.blue")), Security::Tls(with_list(of("node-2.blue"))));
    let again = one.clone();
    let [one, mut two] = open([one, two]).await;
    two.up(1).await;
    // The line that stands is left.
    place(&["node-7.blue", "node-1.blue"]);
    drop(one);
    two.down(1).await;
    let start = async |generation| Node::open(Lines { generation, nonce: again.nonce + generation, ..again.clone() }).await;
    let mut one = Some(start(2).await);
    let (mut generation, mut refused) = (2, [false; 2]);
    while refused != [true; 2] {
        let arrival = two.until("a refusal, or the list was not looked at yet", |it| match it {
            Arrival::Up { .. } | Arrival::Down { .. } => Some(it),
            Arrival::Complaint { ref what, .. } if what.contains("its certificate is revoked") => Some(it),
            _ => None,
        });
        match arrival.await {
            // It was dialled by us, or it has dialled us.
            Arrival::Complaint { what, .. } => refused[usize::from(what.starts_with("node 1 at "))] = true,
            Arrival::Up { .. } => one = None,
            _ => {
                generation += 1;
                assert!(generation < 2000, "nobody looks at the list");
                one = Some(start(generation).await);
            }
        }
    }
    let mut one = one.expect("it runs");
    one.complaint("TLS").await;
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "").expect("written");
    let mut wrong = lines(2, "127.0.0.1:0", &[]);
    wrong.security = Security::Tls(TlsFiles { revoked: Some(empty), ..with_list(of("node-2.blue")) });
    let told = Switchboard::open(wrong, mpsc::channel(1).0).await.expect_err("refused").0;
    assert!(told.contains("no list of revoked certificates"), "{told}");
}
