//! What operators want of a cluster: to see it, to add and remove members, to have another lead, to take a backup.
//!
//! Only the node that leads changes anything; the others say who that is. Each errand may be run again, whatever came of it: it goes on from how things stand. What is refused is refused with what
//! to do.

use std::collections::BTreeSet;
use std::time::Duration;

use incumbent_client::administration::{
    AddMember, Administration, Attended, ClusterView, MemberChange, MemberView, Membership, RemoveMember, TransferLeadership,
};
use incumbent_peer::switchboard::{LineState, LineView};
use incumbent_protocol::protocol::NodeId;
use incumbent_store::command::{Command, Request};
use incumbent_store::query::{AskStatus, Query};
use tokio::time::{Instant, sleep};

use super::handle::{Consistency, Handle, NodeStatus, NotNow, Outcome, Unanswered, Unchanged, Why};
use super::inquiry::{self, NodeReport, Whom};
use super::members::{self, Member};
use super::steward::promote;
use crate::replica::{Role, Step};

/// How long whoever adds a node waits for it to vote. After that it is told how far the node is; it will vote all the same.
const VOTES_WITHIN: Duration = Duration::from_secs(2);
/// How often it is looked how far it is.
const LOOKED_EVERY: Duration = Duration::from_millis(10);
/// So many election timeouts a successor has to take over.
const TIMEOUTS_TO_TAKE_OVER: u32 = 20;
/// So often something is tried again that another change was in the way of.
const TRIES: u32 = 50;

/// Why an errand was not run. It may be run again.
#[derive(Clone, PartialEq, Debug)]
pub enum Unattended {
    /// Nothing was done. Most often another node leads: ask that one.
    NotNow(NotNow),
    /// Some of it may have been done, or may yet be.
    Unknown,
}

/// An errand that ends early: with an answer for the operator, or for its client.
enum Early {
    Refused(String),
    Unattended(Unattended),
}

impl From<Unattended> for Early {
    fn from(why: Unattended) -> Early {
        Early::Unattended(why)
    }
}

fn refused<T>(why: impl Into<String>) -> Result<T, Early> {
    Err(Early::Refused(why.into()))
}

/// Runs an errand.
pub(super) async fn attend(handle: Handle, election_timeout: Duration, wanted: Administration) -> Result<Attended, Unattended> {
    let office = Office { handle, election_timeout };
    let attended = match wanted {
        Administration::Status(_) => office.status().await.map(Attended::Cluster),
        Administration::Add(wanted) => office.add(wanted).await.map(Attended::Member),
        Administration::Remove(wanted) => office.remove(wanted).await.map(Attended::Member),
        Administration::Transfer(wanted) => office.transfer(wanted).await.map(|it| Attended::Leader(it.0)),
        Administration::Snapshot(_) => office.back_up().await,
        Administration::ReadBackup(wanted) => {
            office.handle.read_backup(wanted).await.map(Attended::Piece).map_err(Early::Refused)
        }
    };
    attended.or_else(|early| match early {
        Early::Refused(why) => Ok(Attended::Refused(why)),
        Early::Unattended(why) => Err(why),
    })
}

struct Office {
    handle: Handle,
    election_timeout: Duration,
}

impl Office {
    async fn look(&self) -> Result<NodeStatus, Unattended> {
        self.handle.status().await.ok_or(Unattended::NotNow(NotNow { why: Why::Closing, leader: None }))
    }

    /// How things stand, if this node leads.
    async fn lead(&self) -> Result<NodeStatus, Unattended> {
        let status = self.look().await?;
        let Role { leads, leader, .. } = status.role;
        let why = if leader.is_some() { Why::NotLeading } else { Why::NoLeader };
        if leads { Ok(status) } else { Err(Unattended::NotNow(NotNow { why, leader })) }
    }

    async fn submit(&self, command: Command) -> Result<(), Early> {
        match self.handle.submit(Request::of(command)).await {
            Outcome::Done { .. } => Ok(()),
            Outcome::Refused(refusal) => refused(refusal.to_string()),
            Outcome::NotNow(not_now) => Err(Unattended::NotNow(not_now).into()),
            Outcome::Unknown => Err(Unattended::Unknown.into()),
        }
    }

    /// Changes the members. Another change that is under way is waited for.
    async fn change(&self, step: Step) -> Result<(), Early> {
        for _ in 0..TRIES {
            match self.handle.change(vec![step]).await {
                Ok(_) => return Ok(()),
                Err(Unchanged::UnderWay) => sleep(self.election_timeout / TRIES * 10).await,
                Err(Unchanged::Refused(why)) => return refused(why),
                Err(Unchanged::NotNow(not_now)) => return Err(Unattended::NotNow(not_now).into()),
                Err(Unchanged::Unknown) => return Err(Unattended::Unknown.into()),
            }
        }
        refused("another change of members is under way and does not end: see the status of the cluster, and try again")
    }

    // How it is.

    async fn status(&self) -> Result<ClusterView, Early> {
        let status = self.look().await?;
        let mut nodes = status.roll.everyone();
        nodes.extend(status.members.keys());
        let mut asked = tokio::task::JoinSet::new();
        for node in nodes.iter().copied().filter(|it| *it != status.node) {
            let handle = self.handle.clone();
            asked.spawn(async move { (node, handle.inquire(Whom::Member(node)).await) });
        }
        let mut reports = vec![(status.node, Ok(inquiry::report(&status)))];
        while let Some(answered) = asked.join_next().await {
            reports.extend(answered.ok());
        }
        let leader_last = reports.iter().find(|(node, _)| Some(*node) == status.role.leader);
        let leader_last = leader_last.and_then(|(_, it)| Some(it.as_ref().ok()?.health.last));
        reports.sort_by_key(|(node, _)| *node);
        let members = reports.into_iter().map(|(node, it)| member_view(&status, node, it, leader_last)).collect();
        Ok(ClusterView {
            cluster: status.cluster.clone(),
            node: status.node.0,
            leader: status.role.leader.map(|it| it.0),
            term: status.role.term.0,
            members,
            incarnation: status.incarnation.into(),
        })
    }

    // Who comes and goes.

    async fn add(&self, wanted: AddMember) -> Result<MemberChange, Early> {
        let status = self.lead().await?;
        let AddMember { node, peer, client } = wanted;
        let node = NodeId(node);
        if peer.is_empty() {
            return refused(format!("say where the others reach node {node}: host and port of its line"));
        }
        let known = status.members.get(&node).cloned().unwrap_or_default();
        let client = if client.is_empty() { known.client.clone() } else { client };
        let member = Member { peer: peer.clone(), client, release: known.release.clone(), shall_vote: true };
        if status.roll.voters().contains(&node) {
            // It is one already: it may have moved.
            let moved = (&member.peer, &member.client) != (&known.peer, &known.client);
            if moved && node == status.node {
                return refused(format!(
                    "node {node} leads, and says itself where it is: it would take back any other address; start it with the new one"
                ));
            }
            if member.peer != known.peer {
                self.probe(&status, node, &peer).await?;
            }
            if moved {
                self.submit(members::record(node, &Member { shall_vote: known.shall_vote, ..member })).await?;
            }
            return Ok(change_of(&self.look().await?, node));
        }
        self.probe(&status, node, &peer).await?;
        // First where it is: whoever hears that it is a member must find it.
        if member != known {
            self.submit(members::record(node, &member)).await?;
        }
        if !status.roll.contains(node) {
            self.change(Step::Learner(node)).await?;
        }
        let until = Instant::now() + VOTES_WITHIN;
        loop {
            // By now another may lead: it goes on with that.
            let status = self.look().await?;
            if status.roll.voters().contains(&node) || Instant::now() >= until {
                return Ok(change_of(&status, node));
            }
            promote(&self.handle, &status).await;
            sleep(LOOKED_EVERY).await;
        }
    }

    /// Whether the node that answers there can be made a member.
    async fn probe(&self, status: &NodeStatus, node: NodeId, address: &str) -> Result<(), Early> {
        let report = match self.handle.inquire(Whom::Address(address.to_owned())).await {
            Ok(report) => report,
            Err(why) => {
                return refused(format!(
                    "node {node} does not answer at {address} ({why}): start it there as a node that joins this cluster, with an empty directory, and try again"
                ));
            }
        };
        if report.node != node.0 {
            return refused(format!(
                "at {address} node {} answers, not node {node}: correct the number or the address",
                report.node
            ));
        }
        let founded = !report.voters.is_empty() && !report.has(status.node);
        if founded && !status.roll.contains(node) {
            return refused(format!(
                "node {node} at {address} belongs to a cluster of its own, or did: start it as a node that joins, with an empty directory"
            ));
        }
        let other = status.known.iter().find(|it| it.node == node).is_some_and(|it| it.directory[..] != report.directory[..]);
        if other {
            return refused(format!(
                "node {node} was a member before, with another directory: what it promised there is forgotten; give the new one a number that was never used"
            ));
        }
        Ok(())
    }

    async fn remove(&self, wanted: RemoveMember) -> Result<MemberChange, Early> {
        let status = self.lead().await?;
        let RemoveMember { node, force } = wanted;
        let node = NodeId(node);
        if status.roll.contains(node) {
            let left: BTreeSet<NodeId> = status.roll.voters().iter().copied().filter(|it| *it != node).collect();
            if left.is_empty() {
                return refused(format!("node {node} is the only one that votes: add another first"));
            }
            let heard = left.iter().filter(|it| **it == status.node || line(&status, **it).is_some_and(is_up)).count();
            if heard <= left.len() / 2 && !force {
                return refused(format!(
                    "of the {} nodes that would be left, {heard} can be heard, and that is no majority: bring others back first, or force it if they never come back",
                    left.len()
                ));
            }
            if node == status.node {
                // A leader that removes itself would leave the others to find out: first another leads, and that one removes it.
                let leader = self.give_away(None).await?;
                return Err(Unattended::NotNow(NotNow { why: Why::NotLeading, leader: Some(leader) }).into());
            }
            self.change(Step::Remove(node)).await?;
        }
        let is_recorded = status.members.contains_key(&node);
        if is_recorded {
            self.submit(members::erase(node)).await?;
        }
        // Whoever was removed before is remembered, by the directory that it had: that may be asked again.
        if !status.roll.contains(node) && !is_recorded && status.known.iter().all(|it| it.node != node) {
            return refused(format!("node {node} is no member, and was none that was ever heard: see the status of the cluster"));
        }
        Ok(change_of(&self.look().await?, node))
    }

    // Who leads.

    async fn transfer(&self, wanted: TransferLeadership) -> Result<NodeId, Early> {
        let to = wanted.to.map(NodeId);
        let status = self.look().await?;
        if to.is_some() && status.role.leader == to {
            return Ok(status.role.leader.unwrap_or(status.node));
        }
        let status = self.lead().await?;
        if status.roll.voters().len() < 2 {
            return refused("there is no other node that votes");
        }
        if let Some(to) = to {
            if !status.roll.voters().contains(&to) {
                return refused(format!("node {to} does not vote in this cluster"));
            }
            if !line(&status, to).is_some_and(is_up) {
                return refused(format!("node {to} cannot be heard: bring it back first, or name another"));
            }
        }
        self.give_away(to).await
    }

    /// Waits until another leads.
    async fn give_away(&self, to: Option<NodeId>) -> Result<NodeId, Early> {
        let mut roles = self.handle.role();
        let until = Instant::now() + self.election_timeout * TIMEOUTS_TO_TAKE_OVER;
        while Instant::now() < until {
            let role = *roles.borrow_and_update();
            if let Some(leader) = role.leader.filter(|it| *it != self.handle.me()) {
                return Ok(leader);
            }
            if role.leads {
                self.handle.transfer(to).await;
            }
            let _ = tokio::time::timeout(self.election_timeout, roles.changed()).await;
        }
        refused("nobody has taken over in time: see the status of the cluster, and try again")
    }

    // Backups.

    async fn back_up(&self) -> Result<Attended, Early> {
        // All that was done before is known here after this.
        match self.handle.ask(Query::Status(AskStatus {}), Consistency::Linearizable).await {
            Ok(_) => {}
            Err(Unanswered::NotNow(not_now)) => return Err(Unattended::NotNow(not_now).into()),
            Err(Unanswered::Refused(refusal)) => return refused(refusal.to_string()),
        }
        self.handle.back_up().await.map(Attended::Backup).map_err(Early::Refused)
    }
}

fn line(status: &NodeStatus, node: NodeId) -> Option<&LineView> {
    status.lines.iter().find(|it| it.peer == node)
}

fn is_up(line: &LineView) -> bool {
    line.state == LineState::Up
}

fn membership(status: &NodeStatus, node: NodeId) -> Membership {
    let roll = &status.roll;
    if roll.voters().contains(&node) {
        Membership::Voter
    } else if roll.outgoing().contains(&node) {
        Membership::Leaving
    } else if roll.learners().contains(&node) {
        Membership::Learner
    } else {
        Membership::None
    }
}

fn change_of(status: &NodeStatus, node: NodeId) -> MemberChange {
    MemberChange { node: node.0, membership: membership(status, node).into(), lag: status.lags.get(&node).copied() }
}

fn member_view(status: &NodeStatus, node: NodeId, report: Result<NodeReport, String>, leader_last: Option<u64>) -> MemberView {
    let place = status.members.get(&node);
    let line = line(status, node);
    let (health, why) = match report {
        Ok(report) => (Some(report.health), String::new()),
        Err(why) => (None, why),
    };
    let round_trip = line.and_then(|it| it.round_trip).unwrap_or_default();
    MemberView {
        node: node.0,
        membership: membership(status, node).into(),
        peer: place.map(|it| it.peer.clone()).or_else(|| line.map(|it| it.address.clone())).unwrap_or_default(),
        client: place.map(|it| it.client.clone()).unwrap_or_default(),
        lag: health.as_ref().and_then(|it| lag(leader_last, it.last)),
        health,
        line_up: node == status.node || line.is_some_and(is_up),
        round_trip_us: u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX),
        why,
    }
}

/// How far behind a node is. It may have been asked a moment after the leader, and have more by then: it is not behind for that, and whoever waits for 0 is told.
fn lag(leader_last: Option<u64>, last: u64) -> Option<u64> {
    leader_last.map(|it| it.saturating_sub(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_was_asked_after_the_leader_and_has_more_is_not_behind() {
        assert_eq!(lag(Some(10), 7), Some(3));
        assert_eq!((lag(Some(10), 10), lag(Some(10), 12)), (Some(0), Some(0)));
        assert_eq!(lag(None, 7), None, "nobody leads");
    }
}
