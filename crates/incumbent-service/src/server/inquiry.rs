//! What nodes ask each other about themselves: over a line between members, or as a guest of one that is not, or not yet.
//!
//! By that a cluster's status is put together, a newcomer finds the members, and a node that was removed while it was away finds out.

use incumbent_client::administration::Health;
use incumbent_peer::switchboard::{Guest, Security};
use incumbent_protocol::protocol::NodeId;
use prost::Message;

use super::handle::NodeStatus;
use crate::replica::Origin;

/// What is asked. One byte: there is one question.
const QUESTION: &[u8] = &[1];

/// Whom to ask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Whom {
    /// A member, on its line.
    Member(NodeId),
    /// Whoever answers there.
    Address(String),
}

/// What a node says of itself.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct NodeReport {
    #[prost(uint32, tag = "1")]
    pub(super) node: u32,
    #[prost(message, required, tag = "2")]
    pub(super) health: Health,
    #[prost(uint32, repeated, tag = "3")]
    pub(super) voters: Vec<u32>,
    #[prost(uint32, repeated, tag = "4")]
    pub(super) learners: Vec<u32>,
    /// Where members are.
    #[prost(message, repeated, tag = "5")]
    pub(super) members: Vec<Whereabouts>,
    /// Which directory it has.
    #[prost(bytes = "vec", tag = "6")]
    pub(super) directory: Vec<u8>,
    /// How its cluster began; empty if it does not know.
    #[prost(bytes = "vec", tag = "7")]
    pub(super) origin: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Whereabouts {
    #[prost(uint32, tag = "1")]
    pub(super) node: u32,
    #[prost(string, tag = "2")]
    pub(super) peer: String,
}

impl NodeReport {
    /// Whether this node takes part, as it sees it.
    pub(super) fn has(&self, node: NodeId) -> bool {
        self.voters.contains(&node.0) || self.learners.contains(&node.0)
    }

    /// Whether it is of another cluster of the same name.
    pub(super) fn began_otherwise(&self, origin: Option<Origin>) -> bool {
        let theirs = Origin::from_bytes(&self.origin);
        theirs.is_some() && origin.is_some() && theirs != origin
    }
}

/// A question, as it is sent.
pub(super) fn question() -> Vec<u8> {
    QUESTION.to_vec()
}

/// The answer to a question that came; empty to one that this release does not know.
pub(super) fn answer(question: &[u8], status: &NodeStatus) -> Vec<u8> {
    if question == QUESTION { report(status).encode_to_vec() } else { Vec::new() }
}

/// The answer that came.
pub(super) fn read(answer: &[u8]) -> Result<NodeReport, String> {
    if answer.is_empty() {
        return Err("it does not understand the question: it runs another release".to_owned());
    }
    NodeReport::decode(answer).map_err(|_| "its answer makes no sense: it runs another release".to_owned())
}

/// Asks whoever answers at an address, as a guest.
pub(super) async fn visit(address: String, cluster: String, security: Security) -> Result<NodeReport, String> {
    let mut guest = Guest::connect(&[address], &cluster, &security).await.map_err(|why| why.to_string())?;
    let answer = guest.ask(question()).await.map_err(|why| why.to_string())?;
    read(&answer)
}

pub(super) fn report(status: &NodeStatus) -> NodeReport {
    let mut voters = status.roll.voters().clone();
    voters.extend(status.roll.outgoing());
    NodeReport {
        node: status.node.0,
        health: health(status),
        voters: voters.iter().map(|it| it.0).collect(),
        learners: status.roll.learners().iter().map(|it| it.0).collect(),
        members: status.members.iter().map(|(node, it)| Whereabouts { node: node.0, peer: it.peer.clone() }).collect(),
        directory: status.directory.to_vec(),
        origin: status.origin.map(|it| it.to_bytes().to_vec()).unwrap_or_default(),
    }
}

pub(super) fn health(status: &NodeStatus) -> Health {
    let micros = |it: std::time::Duration| u64::try_from(it.as_micros()).unwrap_or(u64::MAX);
    Health {
        release: super::RELEASE.to_owned(),
        commit: status.commit,
        applied: status.applied,
        last: status.last,
        snapshot: status.snapshot,
        revision: status.revision,
        disk_last_us: micros(status.disk.last),
        disk_longest_us: micros(status.disk.longest),
        disk_slow: status.disk.slow,
        disk_full: status.disk.full.clone().unwrap_or_default(),
    }
}
