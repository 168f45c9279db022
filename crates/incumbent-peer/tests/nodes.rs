//! Whole nodes on loopback, with disks: who is elected, who follows, what a death costs, how members come and go.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use incumbent_peer::clock;
use incumbent_peer::node::{Change, Evidence, Node, Notice, Plan};
use incumbent_peer::switchboard::{Peer, Security};
use incumbent_protocol::machine::Kind;
use incumbent_protocol::protocol::{NodeId, Token};
use incumbent_protocol::settings::{Guard, Pace};
use incumbent_protocol::time::Instant;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_millis(500);
/// Longer than anything takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

/// Where nodes live: their addresses and their disks.
struct Town {
    addresses: Vec<String>,
    disks: tempfile::TempDir,
}

struct Running {
    node: Node,
    notices: UnboundedReceiver<Notice>,
}

impl Town {
    fn of(count: usize) -> Town {
        // Bound together, so that no two are the same.
        let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
        let addresses = listeners.iter().map(|it| it.local_addr().expect("bound").to_string()).collect();
        Town { addresses, disks: tempfile::tempdir().expect("a folder") }
    }

    fn address(&self, id: u32) -> String {
        self.addresses[id as usize - 1].clone()
    }

    /// Node `me` of a group of these.
    fn plan(&self, me: u32, members: &[u32]) -> Plan {
        Plan {
            cluster: "town".to_owned(),
            me: NodeId(me),
            listen: self.address(me),
            peers: members
                .iter()
                .filter(|it| **it != me)
                .map(|it| Peer { id: NodeId(*it), address: self.address(*it) })
                .collect(),
            protocol: Kind::Raft,
            pace: Pace::of(PATIENCE).expect("a good patience"),
            guard: Guard::Majority,
            security: Security::Open,
            directory: self.disks.path().join(me.to_string()),
            death: Evidence::Refusal,
            mortal: true,
            joins: false,
            trace: None,
        }
    }

    async fn start(&self, me: u32, members: &[u32]) -> Running {
        Running::start(self.plan(me, members)).await
    }
}

impl Running {
    async fn start(plan: Plan) -> Running {
        // A port that a test has just let go of may be taken by another for a moment.
        let (node, notices) = Node::start(plan).await.unwrap_or_else(|why| panic!("{why}"));
        Running { node, notices }
    }

    /// Waits for a notice that says something.
    async fn told<T>(&mut self, mut says: impl FnMut(&Notice) -> Option<T>) -> T {
        let heard = async {
            loop {
                let notice = self.notices.recv().await.expect("the node runs");
                if let Some(said) = says(&notice) {
                    return said;
                }
            }
        };
        timeout(LIMIT, heard).await.expect("told in time")
    }

    async fn elected(&mut self) -> Token {
        self.told(|it| if let Notice::Elected { token, .. } = it { Some(*token) } else { None }).await
    }

    /// Waits until a majority has answered what this node, in office, sent after that.
    async fn answered_after(&self, then: Instant) {
        let answered = async {
            while self.node.look(election()).await.expect("it runs").own.is_none_or(|it| it.answered <= Some(then)) {
                tokio::task::yield_now().await;
            }
        };
        timeout(LIMIT, answered).await.expect("answered in time");
    }

    async fn follows(&mut self, leader: u32) {
        self.told(|it| matches!(it, Notice::Follows { leader: it, .. } if it.0 == leader).then_some(())).await;
    }
}

fn election() -> Arc<str> {
    Arc::from("mayor")
}

#[tokio::test]
async fn one_stands_all_others_follow_and_a_hand_over_names_the_next() {
    let town = Town::of(3);
    let (mut a, mut b, mut c) =
        (town.start(1, &[1, 2, 3]).await, town.start(2, &[1, 2, 3]).await, town.start(3, &[1, 2, 3]).await);
    a.node.stand(election()).await.expect("room for one");
    let first = a.elected().await;
    b.follows(1).await;
    c.follows(1).await;
    let standing = b.node.look(election()).await.expect("it runs");
    assert_eq!((standing.leader, standing.own), (Some(NodeId(1)), None));
    b.node.stand(election()).await.expect("room for one");
    a.node.hand_over(election(), NodeId(2));
    let second = b.elected().await;
    assert!(second > first);
    a.follows(2).await;
    // To itself: the same node, another leadership.
    b.node.hand_over(election(), NodeId(2));
    assert!(b.elected().await > second);
    c.follows(2).await;
}

#[tokio::test]
async fn a_leader_that_dies_is_not_waited_for_where_a_refusal_proves_it_and_waited_out_where_not() {
    let took = async |mortal: bool| {
        let town = Town::of(3);
        let mut nodes = Vec::new();
        for me in 1..=3 {
            nodes.push(Running::start(Plan { mortal, ..town.plan(me, &[1, 2, 3]) }).await);
        }
        nodes[0].node.stand(election()).await.expect("room for one");
        nodes[0].elected().await;
        for other in &mut nodes[1..] {
            other.follows(1).await;
            other.node.stand(election()).await.expect("room for one");
        }
        nodes[0].answered_after(clock::now()).await;
        let began = clock::now();
        drop(nodes.remove(0));
        let [b, c] = &mut nodes[..] else { unreachable!("two are left") };
        tokio::select! { _ = b.elected() => {}, _ = c.elected() => {} }
        clock::now() - began
    };
    let proven = took(true).await;
    assert!(proven < PATIENCE / 2, "took {proven:?}, though its death was seen");
    let waited = took(false).await;
    assert!(waited >= PATIENCE / 2, "took {waited:?}, though its work may go on");
}

#[tokio::test]
async fn tokens_rise_when_all_nodes_were_down_and_above_an_epoch_that_was_raised() {
    let town = Town::of(3);
    let mut last = None;
    for round in 0..3 {
        let mut nodes = Vec::new();
        for me in 1..=3 {
            nodes.push(town.start(me, &[1, 2, 3]).await);
        }
        let leader = &mut nodes[round % 3];
        leader.node.stand(election()).await.expect("room for one");
        let token = leader.elected().await;
        assert!(Some(token) > last, "{token} after {last:?}");
        last = Some(token);
        for node in &nodes {
            node.node.close().await;
        }
    }
    let a = town.start(1, &[1, 2, 3]).await;
    let mut b = town.start(2, &[1, 2, 3]).await;
    a.node.raise(election(), 7).await.expect("on its disk");
    a.node.close().await;
    // Whoever is elected hears of it with the votes.
    let _a = town.start(1, &[1, 2, 3]).await;
    b.node.stand(election()).await.expect("room for one");
    assert_eq!(b.elected().await.get() >> 48, 7);
}

#[tokio::test]
async fn members_come_and_go_one_at_a_time_and_one_that_has_gone_disturbs_nobody() {
    let town = Town::of(4);
    let mut nodes = Vec::new();
    for me in 1..=3 {
        nodes.push(town.start(me, &[1, 2, 3]).await);
    }
    nodes[0].node.stand(election()).await.expect("room for one");
    let token = nodes[0].elected().await;
    nodes[1].follows(1).await;
    let mut fourth = Running::start(Plan { joins: true, ..town.plan(4, &[1, 2, 3, 4]) }).await;
    let roll = nodes[1].node.change(&Change::Add(NodeId(4), town.address(4))).await.expect("a majority is there");
    assert_eq!(roll.members().len(), 4);
    fourth.follows(1).await;
    let standing = nodes[0].node.look(election()).await.expect("it runs");
    assert_eq!(standing.own.map(|it| it.token), Some(token), "a new member costs no leader its office");
    assert!(nodes[1].node.change(&Change::Add(NodeId(4), town.address(4))).await.is_err(), "it is one already");
    // The third goes; it is told, and its wish to stand moves nobody.
    nodes[0].node.change(&Change::Remove(NodeId(3))).await.expect("a majority is there");
    let mut third = nodes.remove(2);
    third.told(|it| matches!(it, Notice::Removed).then_some(())).await;
    third.node.stand(election()).await.expect("room for one");
    assert!(timeout(PATIENCE * 3, third.elected()).await.is_err(), "it is no member");
    let standing = nodes[0].node.look(election()).await.expect("it runs");
    assert_eq!(standing.own.map(|it| it.token), Some(token));
    // The leader goes: another is elected, and the roll outlives a restart.
    fourth.node.stand(election()).await.expect("room for one");
    nodes[1].node.change(&Change::Remove(NodeId(1))).await.expect("a majority is there");
    assert!(fourth.elected().await > token);
    let directory_of_the_second = nodes.remove(1);
    directory_of_the_second.node.close().await;
    let second = town.start(2, &[1, 2, 3]).await;
    let members: Vec<u32> = second.node.roll().await.expect("it runs").members().iter().map(|(id, _)| id.0).collect();
    assert_eq!(members, [2, 4], "what was decided counts more than what it was told");
}

#[tokio::test]
async fn nodes_that_were_told_of_different_members_elect_nobody_together() {
    let town = Town::of(4);
    let mut a = town.start(1, &[1, 2, 3]).await;
    let b = town.start(2, &[1, 2, 4]).await;
    a.node.stand(election()).await.expect("room for one");
    b.node.stand(election()).await.expect("room for one");
    let elected = timeout(PATIENCE * 4, a.elected()).await;
    assert!(elected.is_err(), "by a majority of which list?");
}
