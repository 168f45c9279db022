//! A node whose disk stands still, is full or fails (C10, C46, C47, C52): it leaves the office to others, and comes back when it can.

use std::net::TcpListener;

use incumbent_protocol::settings::{Guard, Pace};
use tokio::time::timeout;

use super::*;
use crate::archive::tests::{Disk, Weather};
use crate::switchboard::{Peer, Security};

const PATIENCE: Duration = Duration::from_millis(300);
/// Longer than anything takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

struct Running {
    node: Node,
    notices: mpsc::UnboundedReceiver<Notice>,
    disk: Disk,
}

impl Running {
    async fn told<T>(&mut self, mut says: impl FnMut(&Notice) -> Option<T>) -> T {
        let heard = async {
            loop {
                let notice = self.notices.recv().await.expect("it says something before it ends");
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
}

fn election() -> Election {
    Arc::from("mayor")
}

/// Three nodes with disks in the test's hand; the first is in office, and the others stand.
async fn three(folder: &std::path::Path) -> Vec<Running> {
    let listeners: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
    let addresses: Vec<_> = listeners.iter().map(|it| it.local_addr().expect("bound").to_string()).collect();
    drop(listeners);
    let mut nodes = Vec::new();
    for (at, listen) in addresses.iter().enumerate() {
        let id = |at: usize| NodeId(u32::try_from(at).expect("small") + 1);
        let others = addresses.iter().enumerate().filter(|(other, _)| *other != at);
        let plan = Plan {
            cluster: "town".to_owned(),
            me: id(at),
            listen: listen.clone(),
            peers: others.map(|(other, address)| Peer { id: id(other), address: address.clone() }).collect(),
            protocol: Kind::Raft,
            pace: Pace::of(PATIENCE).expect("a good patience"),
            guard: Guard::Majority,
            security: Security::Open,
            directory: folder.join(at.to_string()),
            death: Evidence::None,
            mortal: true,
            joins: false,
            trace: None,
        };
        std::fs::create_dir(&plan.directory).expect("a new one");
        let disk = Disk::default();
        let (node, notices) = driver::start_on(disk.archive(&plan.directory), plan.clone()).await.expect("a good plan");
        nodes.push(Running { node, notices, disk });
    }
    nodes[0].node.stand(election()).await.expect("room for one");
    nodes[0].elected().await;
    for other in &mut nodes[1..] {
        other.told(|it| matches!(it, Notice::Follows { .. }).then_some(())).await;
        other.node.stand(election()).await.expect("room for one");
    }
    nodes
}

#[tokio::test]
async fn a_leader_whose_disk_stands_still_or_is_full_is_told_to_hand_over_and_may_lead_again_when_it_is_well() {
    for weather in [Weather::Still, Weather::Full] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut nodes = three(folder.path()).await;
        nodes[0].disk.turns(weather);
        nodes[0].told(|it| matches!(it, Notice::ShouldHandOver { to: None, .. }).then_some(())).await;
        nodes[0].node.hand_over(election(), NodeId(2));
        let second = nodes[1].elected().await;
        nodes[0].disk.turns(Weather::Fair);
        let back = async {
            // Until it has seen that its disk answers, it declines.
            loop {
                let standing = nodes[1].node.look(election()).await.expect("it runs");
                if standing.own.is_some() {
                    nodes[1].node.hand_over(election(), NodeId(1));
                }
                if let Ok(token) = timeout(PATIENCE * 2, nodes[0].elected()).await {
                    return token;
                }
            }
        };
        assert!(timeout(LIMIT, back).await.expect("in time") > second, "{weather:?}");
    }
}

#[tokio::test]
async fn a_node_whose_disk_fails_ends_and_another_leads() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut nodes = three(folder.path()).await;
    nodes[0].disk.turns(Weather::Broken);
    let why = nodes[0].told(|it| if let Notice::Broken(why) = it { Some(why.clone()) } else { None }).await;
    assert!(why.contains("input/output error"), "{why}");
    let [_, b, c] = &mut nodes[..] else { unreachable!("three were started") };
    tokio::select! { _ = b.elected() => {}, _ = c.elected() => {} }
    assert_eq!(nodes[0].node.look(election()).await, Err(Declined::Ended));
}
