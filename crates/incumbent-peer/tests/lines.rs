//! Nodes that have lines to each other: words, news, questions, ends and new beginnings.
#![allow(clippy::wildcard_enum_match_arm, reason = "a test waits for one kind of arrival")]

mod group;

use group::{LONG, Node, addresses, lines, of_term, word};
use incumbent_peer::packet::{FREIGHT_MAX, Freight, Gossip, Lane};
use incumbent_peer::switchboard::{Arrival, AskError, Asker, Guest, LineState, Peer, Security, Switchboard};
use incumbent_protocol::protocol::NodeId;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Nodes 1 and 2.
async fn pair() -> (Node, Node, [String; 2], impl Sized) {
    let (ports, at) = addresses::<2>();
    let one = Node::open(lines(1, &at[0], &[(2, at[1].clone())])).await;
    let two = Node::open(lines(2, &at[1], &[(1, at[0].clone())])).await;
    (one, two, at, ports)
}

#[tokio::test]
async fn words_go_both_ways_in_order_and_are_counted() {
    let (mut one, mut two, _, _ports) = pair().await;
    one.up(2).await;
    two.up(1).await;
    for term in 1..=100 {
        one.say(2, term);
        two.say(1, 1000 + term);
    }
    for term in 1..=100 {
        assert_eq!(two.word().await, (1, term));
        assert_eq!(one.word().await, (2, 1000 + term));
    }
    let view = &one.board.lines()[0];
    assert_eq!((view.peer, view.state, view.via, view.dropped), (NodeId(2), LineState::Up, None, 0));
    assert_eq!((view.sent.words, view.received.words), (100, 100));
}

#[tokio::test]
async fn up_tells_of_the_directory() {
    let (mut one, _two, _, _ports) = pair().await;
    let told = one.until("up", |it| match it {
        Arrival::Up { peer, directory, generation } => Some((peer, directory, generation)),
        _ => None,
    });
    assert_eq!(told.await, (NodeId(2), [2; 16], 1));
}

#[tokio::test]
async fn a_round_trip_is_measured() {
    let (one, mut two, _, _ports) = pair().await;
    two.up(1).await;
    let measured = async {
        while one.board.lines()[0].round_trip.is_none() {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, measured).await.expect("measured");
    assert!(one.board.lines()[0].round_trip.expect("measured") < LONG);
}

#[tokio::test]
async fn long_news_arrive_whole() {
    let (mut one, mut two, _, _ports) = pair().await;
    one.up(2).await;
    let body: Vec<u8> = (0..200_000_u32).map(|at| at as u8).collect();
    for _ in 0..10 {
        one.board.send_gossip(NodeId(2), Gossip { election: "jobs".into(), body: body.clone() });
    }
    for _ in 0..10 {
        let came = two.until("news", |it| match it {
            Arrival::Gossip { from, gossip } => Some((from, gossip)),
            _ => None,
        });
        assert_eq!(came.await, (NodeId(1), Gossip { election: "jobs".into(), body: body.clone() }));
    }
}

/// What is long waits for its turn, and what is urgent does not wait for it.
#[tokio::test]
async fn freight_arrives_whole_on_both_lanes_and_is_counted() {
    let (mut one, mut two, _, _ports) = pair().await;
    one.up(2).await;
    let long: Vec<u8> = (0..FREIGHT_MAX).map(|at| at as u8).collect();
    for _ in 0..3 {
        one.board.send_freight(NodeId(2), Freight { lane: Lane::Bulk, body: long.clone() });
        one.board.send_freight(NodeId(2), Freight { lane: Lane::Urgent, body: b"now".to_vec() });
    }
    let mut came = [0, 0];
    two.until("six letters", |it| {
        if let Arrival::Freight { from: NodeId(1), body } = it {
            let which = usize::from(body == long);
            assert!(which == 1 || body == b"now");
            came[which] += 1;
        }
        (came == [3, 3]).then_some(())
    })
    .await;
    let (sent, received) = (one.board.lines()[0].sent, two.board.lines()[0].received);
    assert_eq!((sent.freight, received.freight, one.board.lines()[0].dropped), (6, 6, 0));
}

#[tokio::test]
async fn freight_that_is_too_long_is_not_sent_and_it_is_said() {
    let (mut one, _two, _, _ports) = pair().await;
    one.up(2).await;
    one.board.send_freight(NodeId(2), Freight { lane: Lane::Bulk, body: vec![0; FREIGHT_MAX + 1] });
    let _ = one.complaint("a freight was not sent").await;
}

#[tokio::test]
async fn a_question_is_answered() {
    let (mut one, mut two, _, _ports) = pair().await;
    one.up(2).await;
    let answer = tokio::spawn(one.board.ask(NodeId(2), b"who leads?".to_vec()));
    let (asker, body, reply) = asked(&mut two).await;
    assert_eq!((asker, body.as_slice()), (Asker::Member(NodeId(1)), b"who leads?".as_slice()));
    reply.send(b"you".to_vec());
    assert_eq!(answer.await.expect("ends"), Ok(b"you".to_vec()));
}

async fn asked(node: &mut Node) -> (Asker, Vec<u8>, incumbent_peer::switchboard::Reply) {
    node.until("a question", |it| match it {
        Arrival::Asked { asker, body, reply } => Some((asker, body, reply)),
        _ => None,
    })
    .await
}

#[tokio::test]
async fn a_question_to_nobody_is_not_asked() {
    let (_ports, at) = addresses::<2>();
    let one = Node::open(lines(1, &at[0], &[(2, at[1].clone())])).await;
    assert!(matches!(one.board.ask(NodeId(2), vec![]).await, Err(AskError::Unreachable(_))));
    assert!(matches!(one.board.ask(NodeId(9), vec![]).await, Err(AskError::Unreachable(_))));
    one.say(2, 1);
    assert_eq!(one.board.lines()[0].dropped, 1);
}

#[tokio::test]
async fn a_guest_asks_the_first_member_that_answers() {
    let (_one, mut two, at, _ports) = pair().await;
    let (_dead_port, dead) = addresses::<1>();
    let answering = async {
        let (asker, body, reply) = asked(&mut two).await;
        assert!(matches!(asker, Asker::Guest(address) if address.ip().is_loopback()));
        reply.send([body, b"!".to_vec()].concat());
    };
    let asking = async {
        let mut guest = Guest::connect(&[dead[0].clone(), at[1].clone()], "blue", &Security::Open).await.expect("let in");
        assert_eq!(guest.member(), NodeId(2));
        guest.ask(b"hello".to_vec()).await
    };
    let (answer, ()) = tokio::join!(asking, answering);
    assert_eq!(answer, Ok(b"hello!".to_vec()));
    let wrong = Guest::connect(&[dead[0].clone(), at[1].clone()], "red", &Security::Open).await.err().expect("refused").0;
    assert!(wrong.contains("nobody listens there") && wrong.contains("belongs to cluster \"red\""), "{wrong}");
}

/// Both ends have the evidence: the one that dials and the one that knocks.
#[tokio::test]
async fn a_peer_that_closes_is_down_and_then_refused() {
    for gone in [1_u32, 2] {
        let (one, two, _, _ports) = pair().await;
        let (mut leaves, mut stays) = if gone == 1 { (one, two) } else { (two, one) };
        stays.up(gone).await;
        leaves.up(3 - gone).await;
        leaves.say(3 - gone, 77);
        leaves.board.close().await;
        // What was queued when it closed has been sent.
        assert_eq!(stays.word().await, (gone, 77));
        stays.down(gone).await;
        stays.refused(gone).await;
    }
}

#[tokio::test]
async fn a_peer_that_comes_back_is_up_again_and_is_not_refused_twice() {
    let (mut one, mut two, at, _ports) = pair().await;
    one.up(2).await;
    two.up(1).await;
    drop(two);
    one.down(2).await;
    one.refused(2).await;
    let mut again = lines(2, &at[1], &[(1, at[0].clone())]);
    (again.generation, again.nonce) = (2, 7);
    let mut two = Node::open(again).await;
    // Nothing else is told in between.
    assert!(matches!(one.arrivals.recv().await, Some(Arrival::Up { peer: NodeId(2), generation: 2, .. })));
    two.up(1).await;
    one.say(2, 5);
    assert_eq!(two.word().await, (1, 5));
}

#[tokio::test]
async fn an_address_that_changes_is_followed() {
    let (ports, at) = addresses::<3>();
    let mut one = Node::open(lines(1, &at[0], &[(2, at[1].clone())])).await;
    let mut two = Node::open(lines(2, &at[2], &[])).await;
    one.board.set_peers(vec![Peer { id: NodeId(2), address: at[2].clone() }]);
    two.board.set_peers(vec![Peer { id: NodeId(1), address: at[0].clone() }]);
    one.up(2).await;
    two.up(1).await;
    drop(ports);
}

#[tokio::test]
async fn who_is_no_member_any_longer_is_cut_off() {
    let (mut one, mut two, _, _ports) = pair().await;
    one.up(2).await;
    two.up(1).await;
    one.board.set_peers(vec![]);
    two.down(1).await;
    assert!(one.board.lines().is_empty());
    two.complaint("is not a member of this group").await;
}

#[tokio::test]
async fn the_oldest_words_are_dropped_when_a_peer_does_not_read() {
    let (mut one, mut two, _, _ports) = pair().await;
    one.up(2).await;
    two.up(1).await;
    // Queued before the connection gets to run.
    for term in 1..=1500 {
        one.say(2, term);
    }
    let dropped = one.board.lines()[0].dropped;
    assert!((476..=480).contains(&dropped), "{dropped}");
    let first = two.word().await.1;
    assert!(first > 1500 - 1024 && first <= dropped + 1, "{first}");
}

#[tokio::test]
async fn without_protection_only_loopback_will_do() {
    let (tell, _arrivals) = mpsc::channel(1);
    for (listen, peer) in [("0.0.0.0:0", "127.0.0.1:1"), ("127.0.0.1:0", "10.0.0.1:1"), ("127.0.0.1:0", "node-2.example:1")] {
        let wrong = Switchboard::open(lines(1, listen, &[(2, peer.into())]), tell.clone()).await.expect_err("refused").0;
        assert!(wrong.contains("is not a loopback address"), "{wrong}");
    }
    for listen in ["[::1]:0", "localhost:0"] {
        Switchboard::open(lines(1, listen, &[]), tell.clone()).await.expect("loopback");
    }
}

#[tokio::test]
async fn an_address_in_use_is_one_clear_line() {
    let (one, _two, at, _ports) = pair().await;
    let (tell, _arrivals) = mpsc::channel(1);
    let wrong = Switchboard::open(lines(3, &at[0], &[]), tell).await.expect_err("refused").0;
    assert!(wrong.starts_with(&format!("cannot listen on {}", one.board.local_address())) && wrong.contains("in use"), "{wrong}");
}

#[tokio::test]
async fn a_name_is_dialled() {
    let (_ports, at) = addresses::<2>();
    let named = |at: &String| at.replace("127.0.0.1", "localhost");
    let mut one = Node::open(lines(1, &at[0], &[(2, named(&at[1]))])).await;
    let _two = Node::open(lines(2, &at[1], &[(1, named(&at[0]))])).await;
    one.up(2).await;
    assert_eq!(of_term(&word(3)), 3);
}
