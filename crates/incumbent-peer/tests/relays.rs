//! Lines that are cut, one way or both: mail goes through other nodes, as few as may be, and comes back to the line when it heals.
#![allow(clippy::wildcard_enum_match_arm, reason = "a test waits for one kind of arrival")]

mod group;

use group::{LONG, Node, addresses, lines};
use incumbent_peer::packet::{Freight, Lane};
use incumbent_peer::switchboard::{Arrival, AskError, LineState, LineView};
use incumbent_protocol::protocol::NodeId;
use incumbent_testbed::{Relay, Way};
use tokio::time::timeout;

/// Three nodes; 1 dials 2 through a relay, and 2 knocks at 1 through another.
struct Three {
    nodes: [Node; 3],
    dials: Relay,
    knocks: Relay,
    _ports: Box<dyn Send>,
}

async fn three() -> Three {
    let (ports, at) = addresses::<3>();
    let dials = Relay::before(&at[1]).expect("a relay");
    let knocks = Relay::before(&at[0]).expect("a relay");
    let one = Node::open(lines(1, &at[0], &[(2, dials.address()), (3, at[2].clone())])).await;
    let two = Node::open(lines(2, &at[1], &[(1, knocks.address()), (3, at[2].clone())])).await;
    let three = Node::open(lines(3, &at[2], &[(1, at[0].clone()), (2, at[1].clone())])).await;
    let mut nodes = [one, two, three];
    for node in &mut nodes {
        let mut up = 0;
        node.until("both others are up", |it| {
            up += usize::from(matches!(it, Arrival::Up { .. }));
            (up == 2).then_some(())
        })
        .await;
    }
    Three { nodes, dials, knocks, _ports: Box::new(ports) }
}

/// Waits until a node sees its line to `peer` so.
async fn seen(node: &Node, peer: u32, what: &str, wanted: impl Fn(&LineView) -> bool) {
    let looking = async {
        while !node.board.lines().iter().any(|view| view.peer == NodeId(peer) && wanted(view)) {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, looking).await.unwrap_or_else(|_| panic!("{what}: {:#?}", node.board.lines()));
}

#[tokio::test]
async fn a_cut_line_is_replaced_by_a_third_node_until_it_heals() {
    let Three { nodes: [mut one, mut two, three], dials, knocks, _ports } = three().await;
    dials.partition();
    knocks.partition();
    one.down(2).await;
    // Noticed by its silence, long before the connection is given up.
    assert_eq!(one.board.lines()[0].state, LineState::Silent);
    two.down(1).await;
    seen(&one, 2, "through 3", |it| it.via == Some(NodeId(3)) && it.state != LineState::Up).await;
    seen(&two, 1, "through 3", |it| it.via == Some(NodeId(3))).await;
    one.say(2, 5);
    assert_eq!(two.word().await, (1, 5));
    one.board.send_freight(NodeId(2), Freight { lane: Lane::Bulk, body: vec![8; 70_000] });
    let came = two.until("freight", |it| match it {
        Arrival::Freight { from, body } => Some((from, body.len())),
        _ => None,
    });
    assert_eq!(came.await, (NodeId(1), 70_000));
    two.say(1, 6);
    assert_eq!(one.word().await, (2, 6));
    // Questions too, both ways of them.
    let answer = tokio::spawn(one.board.ask(NodeId(2), b"?".to_vec()));
    let reply = two.until("a question", |it| match it {
        Arrival::Asked { reply, .. } => Some(reply),
        _ => None,
    });
    reply.await.send(b"!".to_vec());
    assert_eq!(answer.await.expect("ends"), Ok(b"!".to_vec()));
    let passed_on: u64 = three.board.lines().iter().map(|view| view.relayed).sum();
    assert_eq!(passed_on, 5);

    dials.heal();
    knocks.heal();
    one.up(2).await;
    // A machine that is busy for a moment looks like a line that is silent once more: then a word goes round.
    let mut passed_on = passed_on;
    for word in 7..27 {
        seen(&one, 2, "direct again", |it| it.state == LineState::Up && it.via.is_none()).await;
        seen(&two, 1, "direct again", |it| it.state == LineState::Up && it.via.is_none()).await;
        one.say(2, word);
        assert_eq!(two.word().await, (1, word));
        let by_now = three.board.lines().iter().map(|view| view.relayed).sum::<u64>();
        if by_now == passed_on {
            return;
        }
        passed_on = by_now;
    }
    panic!("words go round though the line has healed");
}

#[tokio::test]
async fn a_line_that_works_one_way_only_is_replaced_in_the_other() {
    let Three { nodes: [one, mut two, three], dials, knocks, _ports } = three().await;
    // Node 2 hears nothing of node 1, which hears it.
    dials.requests(Way::Hold);
    knocks.replies(Way::Hold);
    two.down(1).await;
    seen(&one, 2, "through 3, though 2 is heard", |it| it.via == Some(NodeId(3)) && it.state == LineState::Up).await;
    one.say(2, 5);
    assert_eq!(two.word().await, (1, 5));
    assert_eq!(three.board.lines().iter().map(|view| view.relayed).sum::<u64>(), 1);
}

/// C22: of five in a row everyone speaks with everyone. A sixth is too far from the first.
#[tokio::test]
async fn five_in_a_row_reach_each_other_through_those_in_between() {
    let (_ports, at) = addresses::<6>();
    let mut walls = Vec::new();
    let mut nodes = Vec::new();
    for id in 1..=6_u32 {
        let others = (1..=6_u32).filter(|it| *it != id).map(|it| {
            let theirs = &at[it as usize - 1];
            if it.abs_diff(id) == 1 {
                return (it, theirs.clone());
            }
            let wall = Relay::before(theirs).expect("a relay");
            wall.partition();
            let address = wall.address();
            walls.push(wall);
            (it, address)
        });
        let others: Vec<_> = others.collect();
        nodes.push(Node::open(lines(id, &at[id as usize - 1], &others)).await);
    }
    for (from, to, via) in [(1, 5, 2), (5, 1, 4), (1, 4, 2), (4, 2, 3), (2, 6, 3), (6, 2, 5)] {
        seen(&nodes[from as usize - 1], to, "through those in between", |it| it.via == Some(NodeId(via))).await;
        let word = u64::from(from * 10 + to);
        nodes[from as usize - 1].say(to, word);
        assert_eq!(nodes[to as usize - 1].word().await, (from, word));
    }
    nodes[0].board.send_freight(NodeId(5), Freight { lane: Lane::Bulk, body: vec![8; 70_000] });
    let came = nodes[4].until("freight", |it| match it {
        Arrival::Freight { from, body } => Some((from, body.len())),
        _ => None,
    });
    assert_eq!(came.await, (NodeId(1), 70_000));
    assert!(matches!(nodes[0].board.ask(NodeId(6), vec![]).await, Err(AskError::Unreachable(_))));
    drop(nodes.pop());
    // Each has it from others that it can be reached, and none of them by itself: that ends.
    for id in 2..=4 {
        seen(&nodes[id - 1], 6, "there is no way any more", |it| it.via.is_none()).await;
    }
}

#[tokio::test]
async fn a_silence_without_a_third_node_is_no_evidence_and_ends_when_it_ends() {
    let (_ports, at) = addresses::<2>();
    let dials = Relay::before(&at[1]).expect("a relay");
    let mut one = Node::open(lines(1, &at[0], &[(2, dials.address())])).await;
    let mut two = Node::open(lines(2, &at[1], &[(1, at[0].clone())])).await;
    one.up(2).await;
    two.up(1).await;
    dials.partition();
    one.down(2).await;
    assert!(matches!(one.board.ask(NodeId(2), vec![]).await, Err(AskError::Unreachable(_))));
    seen(&one, 2, "given up", |it| it.state == LineState::Down).await;
    dials.heal();
    // Neither Refused nor anything else is told before.
    assert!(matches!(one.arrivals.recv().await, Some(Arrival::Up { .. })));
}

/// A reset alone is weather: the next dial succeeds.
#[tokio::test]
async fn a_reset_is_down_and_up_and_no_evidence() {
    let (_ports, at) = addresses::<2>();
    let dials = Relay::before(&at[1]).expect("a relay");
    let mut one = Node::open(lines(1, &at[0], &[(2, dials.address())])).await;
    let mut two = Node::open(lines(2, &at[1], &[(1, at[0].clone())])).await;
    one.up(2).await;
    two.up(1).await;
    dials.disconnect();
    assert!(matches!(one.arrivals.recv().await, Some(Arrival::Down { .. })));
    assert!(matches!(one.arrivals.recv().await, Some(Arrival::Up { .. })));
    one.say(2, 1);
    assert_eq!(two.word().await, (1, 1));
}

/// The evidence is a refused connection, whoever refuses it: here a relay whose server is well.
#[tokio::test]
async fn an_end_and_a_refused_connection_are_evidence() {
    let (_ports, at) = addresses::<2>();
    let dials = Relay::before(&at[1]).expect("a relay");
    let mut one = Node::open(lines(1, &at[0], &[(2, dials.address())])).await;
    let _two = Node::open(lines(2, &at[1], &[(1, at[0].clone())])).await;
    one.up(2).await;
    dials.cut();
    assert!(matches!(one.arrivals.recv().await, Some(Arrival::Down { .. })));
    assert!(matches!(one.arrivals.recv().await, Some(Arrival::Refused { peer: NodeId(2) })));
}

/// Whoever was never there has not gone.
#[tokio::test]
async fn a_refused_connection_alone_is_no_evidence() {
    let (_ports, at) = addresses::<3>();
    let mut one = Node::open(lines(1, &at[0], &[(2, at[1].clone()), (3, at[2].clone())])).await;
    let three = Node::open(lines(3, &at[2], &[(1, at[0].clone()), (2, at[1].clone())])).await;
    // By then, both have dialled node 2 many times.
    seen(&one, 3, "some pulses", |it| it.received.pulses >= 6).await;
    one.up(3).await;
    assert!(one.arrivals.try_recv().is_err());
    drop(three);
    one.refused(3).await;
}
