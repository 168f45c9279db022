//! What a node does for its membership without being asked, now and then: it says where it is, finds the others when it is new, makes learners voters when it leads, and ends when it was removed.
//!
//! It has a [`Handle`] and nothing else: all that it does, a user could do. Nothing here is urgent.

use std::time::Duration;

use incumbent_peer::switchboard::Peer;
use incumbent_protocol::protocol::NodeId;
use incumbent_store::command::Request;
use tokio::time::Instant;

use super::handle::{Handle, NodeStatus, Outcome};
use super::inquiry::{NodeReport, Whom};
use super::members::{self, Member};
use crate::replica::{Index, Origin, Step};

/// So often in an election timeout it looks around.
const ROUNDS: u32 = 2;
/// Every so many rounds it looks elsewhere for those who are not found: long enough to be sure that nobody answers.
const ROUNDS_IN_A_PLACE: u32 = 20;
/// After so many election timeouts without a leader a node asks whether it is a member at all.
const TIMEOUTS_TO_DOUBT: u32 = 5;
/// A node that has had no leader for so long says so, once, and what it knows of the others.
const VACANCY_TOLD_AFTER: Duration = Duration::from_secs(5);
/// A learner this close to the end of the log may vote: it will be there in a moment.
const LAG_MAX: u64 = 500;

/// What it takes care of.
#[derive(Debug)]
pub(super) struct Steward {
    pub(super) handle: Handle,
    /// Where this node is.
    pub(super) own: Member,
    pub(super) election_timeout: Duration,
}

impl Steward {
    /// Until the node ends.
    pub(super) async fn attend(self) {
        let mut roles = self.handle.role();
        let mut leaderless: Option<Instant> = None;
        let mut vacancy = Vacancy::default();
        let mut rounds = 0;
        while let Some(status) = self.handle.status().await {
            let me = status.node;
            vacancy.watch(&status);
            if status.roll.voters().is_empty() {
                self.find_members(&status).await;
            } else if status.role.leader.is_some() {
                leaderless = None;
                self.say_where(&status).await;
                promote(&self.handle, &status).await;
            } else if leaderless.get_or_insert_with(Instant::now).elapsed() >= self.election_timeout * TIMEOUTS_TO_DOUBT {
                leaderless = None;
                self.doubt(me, &status).await;
            }
            rounds += 1;
            if rounds % ROUNDS_IN_A_PLACE == 0 {
                self.handle.look_elsewhere().await;
            }
            // Who leads is news for all of this; otherwise there is time.
            let _ = tokio::time::timeout(self.election_timeout / ROUNDS, roles.changed()).await;
        }
    }

    /// Puts it on record where this node is, if that is news.
    async fn say_where(&self, status: &NodeStatus) {
        let known = status.members.get(&status.node);
        if known.is_none() && status.roll.learners().contains(&status.node) {
            // There is a record of every learner, and it says whether that shall vote: the state that it is in is not yet here.
            return;
        }
        let own = Member { shall_vote: known.is_some_and(|it| it.shall_vote), ..self.own.clone() };
        if own.peer.is_empty() || known == Some(&own) || !status.roll.contains(status.node) {
            return;
        }
        let outcome = self.handle.submit(Request::of(members::record(status.node, &own))).await;
        if let Outcome::Refused(refusal) = outcome {
            tracing::warn!(node = %status.node, %refusal, "it cannot be put on record where this node is");
        }
    }

    /// A newcomer knows one member, perhaps, and is spoken to by all of them.
    async fn find_members(&self, status: &NodeStatus) {
        let mut peers: Vec<Peer> = Vec::new();
        for address in &status.places {
            let Ok(report) = self.handle.inquire(Whom::Address(address.clone())).await else { continue };
            let told = report.members.iter().filter(|it| it.node != status.node.0);
            peers.extend(told.map(|it| Peer { id: NodeId(it.node), address: it.peer.clone() }));
            // Whom we found there is there.
            peers.push(Peer { id: NodeId(report.node), address: address.clone() });
        }
        peers.reverse();
        peers.sort_by_key(|it| it.id);
        peers.dedup_by_key(|it| it.id);
        if !peers.is_empty() {
            self.handle.set_peers(peers).await;
        }
    }

    /// Nobody leads, as far as this node hears: the others may be away, or this node may be none of them any more. Its own log cannot say so: whoever is removed is told nothing from then on.
    async fn doubt(&self, me: NodeId, status: &NodeStatus) {
        if !status.roll.contains(me) {
            return;
        }
        for address in &status.places {
            let Ok(report) = self.handle.inquire(Whom::Address(address.clone())).await else { continue };
            if tells_of_removal(&report, me, status.commit, status.origin) {
                self.handle.be_removed(NodeId(report.node), report.health.applied).await;
                return;
            }
        }
    }
}

/// Whether another knows for certain that this node is no member any more, who knows itself of what was decided up to `commit`.
///
/// Who the members are follows from what was decided, and this node may be far from having applied all that. So the other must have applied more than was decided here: one
/// that knows less may not have heard yet that this node was added.
fn tells_of_removal(report: &NodeReport, me: NodeId, commit: Index, origin: Option<Origin>) -> bool {
    let decides = !report.voters.is_empty() && !report.began_otherwise(origin);
    decides && !report.has(me) && report.health.applied > commit
}

/// The time without a leader.
#[derive(Default)]
struct Vacancy {
    since: Option<Instant>,
    told: bool,
}

impl Vacancy {
    fn watch(&mut self, status: &NodeStatus) {
        if status.role.leader.is_some() || status.roll.voters().is_empty() {
            *self = Vacancy::default();
        } else if self.since.get_or_insert_with(Instant::now).elapsed() >= VACANCY_TOLD_AFTER && !self.told {
            self.told = true;
            let unheard = status.unheard().join("; ");
            tracing::warn!(node = %status.node, %unheard, "nobody leads: a majority of the nodes must be up and hear each other");
        }
    }
}

/// Makes learners voters that shall vote and know enough, if this node leads.
pub(super) async fn promote(handle: &Handle, status: &NodeStatus) {
    if !status.role.leads {
        return;
    }
    for node in status.roll.learners() {
        let wanted = status.members.get(node).is_some_and(|it| it.shall_vote);
        if wanted && status.lags.get(node).is_some_and(|it| *it <= LAG_MAX) {
            // If it cannot be now, it can be in the next round.
            let _ = handle.change(vec![Step::Voter(*node)]).await;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use incumbent_client::administration::Health;

    use super::*;

    #[test]
    fn a_node_was_removed_if_another_has_applied_more_than_was_decided_here_and_knows_it_not() {
        let report = |applied, voters: &[u32]| NodeReport {
            node: 1,
            health: Health { applied, commit: 300, ..Health::default() },
            voters: voters.to_vec(),
            ..NodeReport::default()
        };
        // Added at entry 150, and with much to apply still: the other, at 100, has not heard of it yet.
        assert!(!tells_of_removal(&report(100, &[1, 2]), NodeId(3), 200, None));
        assert!(!tells_of_removal(&report(200, &[1, 2]), NodeId(3), 200, None));
        assert!(tells_of_removal(&report(201, &[1, 2]), NodeId(3), 200, None));
        assert!(!tells_of_removal(&report(201, &[1, 2, 3]), NodeId(3), 200, None));
        assert!(!tells_of_removal(&report(201, &[]), NodeId(3), 200, None), "it is no member of anything");
    }
}
