//! Who does not belong, or does not keep to the protocol: told what is wrong, logged once with its address, and of no consequence.
#![allow(clippy::wildcard_enum_match_arm, reason = "a test waits for one kind of arrival")]

mod group;

use group::{LONG, Node, addresses, lines, word};
use incumbent_peer::packet::{
    FRAME_MAX, Freight, GREETING_MAX, Hello, Lane, MEMBER_FRAME_MAX, Mail, Packet, Passport, Pulse, Purpose, RELAYS_SINCE, Role,
    Route, VERSION,
};
use incumbent_peer::switchboard::{Arrival, Known, Lines};
use incumbent_protocol::protocol::NodeId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// What every connection without protection begins with.
const PREAMBLE: &[u8] = b"INo1";

/// Node 1 as node 2 expects it.
fn hello() -> Hello {
    let passport = Passport { id: NodeId(1), directory: [1; 16], generation: 1, nonce: 1001, origin: None };
    Hello {
        version: VERSION,
        oldest: VERSION,
        cluster: "blue".into(),
        role: Role::Member(passport),
        purpose: Purpose::Lane(Lane::Urgent),
        settings: "raft".into(),
        to: Some(NodeId(2)),
    }
}

fn as_member(change: impl FnOnce(&mut Passport)) -> Hello {
    let mut passport = Passport { id: NodeId(1), directory: [1; 16], generation: 1, nonce: 1001, origin: None };
    change(&mut passport);
    Hello { role: Role::Member(passport), ..hello() }
}

fn frame(packet: Packet) -> Vec<u8> {
    let mut bytes = Vec::new();
    packet.encode(&mut bytes).expect("fits");
    bytes
}

/// A connection that says whatever a test wants.
struct Stranger {
    tcp: TcpStream,
    came: Vec<u8>,
}

impl Stranger {
    async fn dial(node: &Node) -> Stranger {
        let tcp = TcpStream::connect(node.board.local_address()).await.expect("connects");
        Stranger { tcp, came: Vec::new() }
    }

    async fn greeting(node: &Node, hello: Hello) -> (Stranger, Packet) {
        let mut stranger = Stranger::dial(node).await;
        stranger.say(&[PREAMBLE, &frame(Packet::Hello(hello))].concat()).await;
        let answer = stranger.hear().await.expect("an answer");
        (stranger, answer)
    }

    async fn say(&mut self, bytes: &[u8]) {
        // It may have hung up on us already.
        let _ = self.tcp.write_all(bytes).await;
    }

    /// The next packet, or none if it hangs up.
    async fn hear(&mut self) -> Option<Packet> {
        loop {
            if let Some((packet, used)) = Packet::decode(&self.came, FRAME_MAX).expect("well-formed") {
                self.came.drain(..used);
                return Some(packet);
            }
            match timeout(LONG, self.tcp.read_buf(&mut self.came)).await.expect("in time") {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    async fn is_hung_up_on(&mut self) {
        while self.hear().await.is_some() {}
    }
}

/// Node 2, whose only peer is node 1 at an address where nobody listens.
async fn two() -> (Node, impl Sized) {
    let (ports, at) = addresses::<2>();
    (Node::open(lines(2, &at[1], &[(1, at[0].clone()), (3, at[0].clone())])).await, ports)
}

async fn refusal(node: &Node, hello: Hello) -> String {
    match Stranger::greeting(node, hello).await.1 {
        Packet::Refusal { why } => why,
        other => panic!("let in: {other:?}"),
    }
}

/// A node of the version before would end its line over a letter that it does not know: it is sent none, and the rest as ever.
#[tokio::test]
async fn an_older_node_is_sent_no_freight() {
    let (mut node, _ports) = two().await;
    let (mut older, welcome) = Stranger::greeting(&node, Hello { version: 1, oldest: 1, ..hello() }).await;
    assert!(matches!(welcome, Packet::Welcome(welcome) if welcome.version == 1));
    node.up(1).await;
    node.board.send_freight(NodeId(1), Freight { lane: Lane::Urgent, body: vec![1] });
    node.say(1, 7);
    let heard = loop {
        match older.hear().await.expect("the line stands") {
            Packet::Pulse(_) => {}
            other => break other.kind(),
        }
    };
    assert_eq!(heard, "word");
    let view = &node.board.lines()[0];
    assert_eq!((view.sent.freight, view.dropped), (0, 1));
}

#[tokio::test]
async fn who_does_not_belong_is_told_why() {
    let (mut node, _ports) = two().await;
    let cases = [
        (Hello { cluster: "red".into(), ..hello() }, "it belongs to cluster \"red\", and node 2 to \"blue\""),
        (Hello { version: 9, oldest: 9, ..hello() }, "it speaks versions 9 to 9 of the protocol, and node 2 1 to 3"),
        (Hello { version: 0, oldest: 0, ..hello() }, "it speaks versions 0 to 0"),
        (Hello { to: Some(NodeId(5)), ..hello() }, "it wants node 5, and this is node 2"),
        (Hello { settings: "bully".into(), ..hello() }, "it has [bully], and this node [raft]"),
        (Hello { settings: "a\nforged line".into(), ..hello() }, "it has [a forged line], and"),
        (as_member(|it| it.id = NodeId(9)), "is not a member of this group"),
        (as_member(|it| it.id = NodeId(2)), "it calls itself node 2, as this node does"),
        (as_member(|it| (it.id, it.nonce) = (NodeId(2), 1002)), "node 2 has dialled itself"),
        (as_member(|it| it.id = NodeId(3)), "should knock, not dial"),
    ];
    for (hello, why) in cases {
        let said = refusal(&node, hello.clone()).await;
        assert!(said.contains(why), "{said}");
        // In the log too, with the address, once for each cause.
        assert!(node.complaint(why).await.contains("127.0.0.1:"));
        refusal(&node, hello).await;
    }
    let (_member, welcome) = Stranger::greeting(&node, hello()).await;
    assert!(matches!(welcome, Packet::Welcome(_)));
    assert!(matches!(node.arrivals.recv().await, Some(Arrival::Up { .. })));
}

/// It ends when the urgent lane does, and one end may know that sooner than the other: no complaint.
#[tokio::test]
async fn a_lane_for_long_packets_alone_is_hung_up_on() {
    let (mut node, _ports) = two().await;
    let bulk = Hello { purpose: Purpose::Lane(Lane::Bulk), ..hello() };
    let mut alone = Stranger::dial(&node).await;
    alone.say(&[PREAMBLE, &frame(Packet::Hello(bulk.clone()))].concat()).await;
    assert_eq!(alone.hear().await, None);
    let (_urgent, _) = Stranger::greeting(&node, hello()).await;
    assert!(matches!(node.arrivals.recv().await, Some(Arrival::Up { .. })));
    assert!(matches!(Stranger::greeting(&node, bulk).await.1, Packet::Welcome(_)));
}

#[tokio::test]
async fn a_rolling_upgrade_speaks_the_older_version() {
    let (node, _ports) = two().await;
    match Stranger::greeting(&node, Hello { version: 9, oldest: 1, ..hello() }).await.1 {
        Packet::Welcome(welcome) => assert_eq!(welcome.version, VERSION),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_id_is_used_by_one_live_process_only() {
    let (mut node, _ports) = two().await;
    let (mut first, welcome) = Stranger::greeting(&node, hello()).await;
    assert!(matches!(welcome, Packet::Welcome(_)));
    node.up(1).await;
    let said = refusal(&node, as_member(|it| it.nonce = 5)).await;
    assert!(said.contains("node 1 is in use by another live process (with the same directory)"), "{said}");
    let said = refusal(&node, Hello { purpose: Purpose::Knock, ..as_member(|it| (it.nonce, it.directory) = (5, [9; 16])) }).await;
    assert!(said.contains("(with another directory)"), "{said}");
    // The first is not disturbed.
    first.say(&frame(mail(1, 2, false, 8))).await;
    assert_eq!(node.word().await, (1, 8));
}

fn mail(from: u32, to: u32, relayed: bool, term: u64) -> Packet {
    Packet::Mail { route: Route { from: NodeId(from), to: NodeId(to), relayed, more: 0 }, mail: Mail::Word(word(term)) }
}

#[tokio::test]
async fn a_memory_that_is_not_the_one_known_is_refused() {
    let (_ports, at) = addresses::<2>();
    let mut known = lines(2, &at[1], &[(1, at[0].clone())]);
    known.known = vec![Known { id: NodeId(1), directory: [1; 16], generation: 7 }];
    let mut node = Node::open(known).await;
    let said = refusal(&node, as_member(|it| (it.directory, it.generation) = ([2; 16], 8))).await;
    assert!(said.contains("another directory than it had"), "{said}");
    let said = refusal(&node, as_member(|it| it.generation = 6)).await;
    assert!(said.contains("opened 6 times, after 7 had been seen"), "{said}");
    // The same process comes back after a restart of ours.
    let (first, welcome) = Stranger::greeting(&node, as_member(|it| it.generation = 7)).await;
    assert!(matches!(welcome, Packet::Welcome(_)));
    node.up(1).await;
    drop(first);
    node.down(1).await;
    let said = refusal(&node, as_member(|it| (it.generation, it.nonce) = (7, 5))).await;
    assert!(said.contains("it was restored from a copy"), "{said}");
    let (_second, welcome) = Stranger::greeting(&node, as_member(|it| (it.generation, it.nonce) = (8, 5))).await;
    assert!(matches!(welcome, Packet::Welcome(_)));
}

#[tokio::test]
async fn who_began_otherwise_is_refused_and_who_does_not_know_is_believed() {
    let (_ports, at) = addresses::<2>();
    let mut node = Node::open(Lines { origin: Some([4; 16]), ..lines(2, &at[1], &[(1, at[0].clone())]) }).await;
    let said = refusal(&node, as_member(|it| it.origin = Some([5; 16]))).await;
    assert!(said.contains("node 1 is of another cluster named \"blue\" than node 2"), "{said}");
    for origin in [None, Some([4; 16])] {
        let (member, welcome) = Stranger::greeting(&node, as_member(|it| it.origin = origin)).await;
        assert!(matches!(welcome, Packet::Welcome(it) if it.passport.origin == Some([4; 16])));
        node.up(1).await;
        drop(member);
        node.down(1).await;
    }
    // A newcomer learns it later, and hangs up on those with whom it should not have spoken.
    let (mut newcomer, _ports) = two().await;
    let (mut other, welcome) = Stranger::greeting(&newcomer, as_member(|it| it.origin = Some([5; 16]))).await;
    assert!(matches!(welcome, Packet::Welcome(_)));
    newcomer.up(1).await;
    newcomer.board.set_origin([4; 16]);
    other.is_hung_up_on().await;
    let said = refusal(&newcomer, as_member(|it| it.origin = Some([5; 16]))).await;
    assert!(said.contains("another cluster"), "{said}");
}

#[tokio::test]
async fn who_is_banished_is_hung_up_on_and_stays_out() {
    let (mut node, _ports) = two().await;
    let (mut first, _) = Stranger::greeting(&node, hello()).await;
    node.up(1).await;
    node.board.banish(NodeId(1), "its disk was rolled back");
    first.is_hung_up_on().await;
    node.down(1).await;
    assert_eq!(refusal(&node, as_member(|it| it.nonce = 5)).await, "its disk was rolled back");
}

/// Bytes that are no greeting.
fn nonsense() -> Vec<(&'static str, Vec<u8>)> {
    let long = u32::try_from(GREETING_MAX + 1).expect("short").to_le_bytes();
    let mut damaged = [PREAMBLE, &frame(Packet::Hello(hello()))].concat();
    *damaged.last_mut().expect("not empty") ^= 1;
    vec![
        ("it is no node of incumbent", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("it speaks TLS, and this node expects none", vec![0x16, 3, 1, 2, 0, 1, 0, 1]),
        ("it speaks with a key, and this node expects none", b"INk1\0\x30".to_vec()),
        ("where 16384 are allowed", [PREAMBLE, &long, &[0; 4]].concat()),
        ("a wrong checksum", damaged),
        ("a pulse where none belongs", [PREAMBLE, &frame(Packet::Pulse(Pulse::default()))].concat()),
        ("a word where none belongs", [PREAMBLE, &frame(mail(1, 2, false, 1))].concat()),
    ]
}

#[tokio::test]
async fn nonsense_is_hung_up_on_with_one_line_that_has_the_address() {
    for (why, bytes) in nonsense() {
        let (mut node, _ports) = two().await;
        for _ in 0..5 {
            let mut stranger = Stranger::dial(&node).await;
            stranger.say(&bytes).await;
            stranger.is_hung_up_on().await;
        }
        let (_guest, welcome) = Stranger::greeting(&node, hello()).await;
        assert!(matches!(welcome, Packet::Welcome(_)), "{why}");
        let line = node.until(why, |it| match it {
            Arrival::Complaint { address, what } => Some((address, what)),
            _ => None,
        });
        let (address, line) = line.await;
        assert!(address == "127.0.0.1" && line.contains("127.0.0.1:") && line.contains(why), "{line}");
        // Five times the same is one line: the next thing told is that node 1 is there.
        assert!(matches!(node.arrivals.recv().await, Some(Arrival::Up { .. })), "{why}");
    }
}

#[tokio::test]
async fn a_member_that_goes_mad_loses_its_line_and_nothing_else() {
    let oversized = u32::try_from(MEMBER_FRAME_MAX + 1).expect("short").to_le_bytes();
    let allowed = format!("where {MEMBER_FRAME_MAX} are allowed");
    for (why, bytes) in [(allowed.as_str(), [oversized, [0; 4]].concat()), ("a hello where", frame(Packet::Hello(hello())))] {
        let (mut node, _ports) = two().await;
        let (mut member, _) = Stranger::greeting(&node, hello()).await;
        node.up(1).await;
        member.say(&bytes).await;
        member.is_hung_up_on().await;
        node.until("down and one line", {
            let mut seen = (false, false);
            move |it| {
                seen.0 |= matches!(&it, Arrival::Down { .. });
                seen.1 |= matches!(&it, Arrival::Complaint { what, .. } if what.contains(why));
                (seen == (true, true)).then_some(())
            }
        })
        .await;
    }
}

#[tokio::test]
async fn half_a_frame_is_waited_for_and_then_given_up() {
    let (mut node, _ports) = two().await;
    let whole = [PREAMBLE, &frame(Packet::Hello(hello()))].concat();
    let mut halves = Vec::new();
    for len in [2, 4, 9, whole.len() - 1] {
        let mut stranger = Stranger::dial(&node).await;
        stranger.say(&whole[..len]).await;
        halves.push(stranger);
    }
    node.complaint("no answer in time").await;
    for half in &mut halves {
        half.is_hung_up_on().await;
    }
}

#[tokio::test]
async fn a_crowd_that_says_nothing_keeps_nobody_out() {
    let (mut node, _ports) = two().await;
    let mut crowd = Vec::new();
    for _ in 0..200 {
        crowd.push(Stranger::dial(&node).await);
    }
    let (_member, welcome) = Stranger::greeting(&node, hello()).await;
    assert!(matches!(welcome, Packet::Welcome(_)));
    node.complaint("have not greeted").await;
    crowd[0].is_hung_up_on().await;
    // At once, and not because its time was up.
    while let Ok(arrival) = node.arrivals.try_recv() {
        assert!(!format!("{arrival:?}").contains("in time"), "{arrival:?}");
    }
}

#[tokio::test]
async fn what_an_older_node_brings_of_others_is_not_passed_on() {
    let (_ports, at) = addresses::<3>();
    let others = |them: &[u32]| them.iter().map(|id| (*id, at[0].clone())).collect::<Vec<_>>();
    let mut node = Node::open(lines(2, &at[1], &[others(&[1, 4]), vec![(3, at[2].clone())]].concat())).await;
    let mut three = Node::open(lines(3, &at[2], &[others(&[1, 4]), vec![(2, at[1].clone())]].concat())).await;
    node.up(3).await;
    three.up(2).await;
    let older = RELAYS_SINCE - 1;
    let (mut member, _) = Stranger::greeting(&node, Hello { version: older, oldest: older, ..hello() }).await;
    node.up(1).await;
    member.say(&frame(mail(4, 3, true, 1))).await;
    member.say(&frame(mail(1, 3, true, 2))).await;
    assert_eq!(three.word().await, (1, 2));
}

#[tokio::test]
async fn nobody_speaks_in_anothers_name() {
    let (mut node, _ports) = two().await;
    let (mut member, _) = Stranger::greeting(&node, hello()).await;
    node.up(1).await;
    let wrong = [
        (mail(3, 2, false, 1), "in the name of node 3"),
        (mail(2, 2, true, 2), "in the name of node 2"),
        (mail(9, 2, true, 3), "which is no member"),
        (mail(3, 9, true, 4), "which is not for node 2"),
        (mail(1, 3, false, 5), "which is not for node 2"),
    ];
    let first = wrong[0].1;
    for (packet, _) in wrong {
        member.say(&frame(packet)).await;
    }
    // A third node's word that it passes on is taken, and so is its own.
    member.say(&frame(mail(3, 2, true, 6))).await;
    member.say(&frame(mail(1, 2, false, 7))).await;
    node.complaint(first).await;
    assert_eq!(node.word().await, (3, 6));
    assert_eq!(node.word().await, (1, 7));
}

#[tokio::test]
async fn a_guest_may_only_ask() {
    let (mut node, _ports) = two().await;
    let guest = Hello { role: Role::Guest, to: None, settings: String::new(), purpose: Purpose::Lane(Lane::Bulk), ..hello() };
    let (mut guest, welcome) = Stranger::greeting(&node, guest).await;
    assert!(matches!(welcome, Packet::Welcome(_)));
    guest.say(&frame(mail(1, 2, false, 1))).await;
    guest.is_hung_up_on().await;
    node.complaint("a word where none belongs").await;
}

#[tokio::test]
async fn who_comes_too_fast_from_where_no_member_is_is_hung_up_on_and_a_member_comes_back_meanwhile() {
    let (_ports, at) = addresses::<2>();
    let mut two = Node::open(lines(2, &at[1], &[(1, at[0].clone())])).await;
    let flood = |to: std::net::SocketAddr| async move {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.9:0".parse().expect("an address")).expect("bound");
        socket.connect(to).await
    };
    let (mut held, mut hung_up) = (Vec::new(), 0);
    for _ in 0..300 {
        let Ok(mut tcp) = flood(two.board.local_address()).await else { continue };
        // Who is let in hears nothing yet.
        match timeout(std::time::Duration::from_millis(1), tcp.read_u8()).await {
            Err(_) => held.push(tcp),
            Ok(_) => hung_up += 1,
        }
    }
    assert!(hung_up > 100, "{hung_up}");
    two.complaint("more connections come from there").await;
    let mut one = Node::open(lines(1, &at[0], &[(2, at[1].clone())])).await;
    one.up(2).await;
    two.up(1).await;
    drop(held);
}
