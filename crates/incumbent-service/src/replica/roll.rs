//! Who takes part: voters, learners, and both sides of a change that is under way.
//!
//! A roll that exists is one that the engine can be started with; what came from a wire or a disk is checked here first.

use std::collections::BTreeSet;

use incumbent_protocol::protocol::NodeId;

/// More voters make every commit slower and nothing safer.
pub const VOTERS_MAX: usize = 15;

/// More learners than this belong behind a relay, not behind a leader.
pub const LEARNERS_MAX: usize = 64;

/// The members of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Roll {
    voters: BTreeSet<NodeId>,
    learners: BTreeSet<NodeId>,
    outgoing: BTreeSet<NodeId>,
    learners_next: BTreeSet<NodeId>,
}

/// Why a list of members is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadRoll {
    /// Nobody could ever elect anyone.
    NoVoters,
    /// More than [`VOTERS_MAX`] voters or [`LEARNERS_MAX`] learners.
    TooMany,
    /// A node is a voter and a learner, or stands twice.
    Twice(NodeId),
    /// A node waits to become a learner and is not about to leave the voters.
    NotLeaving(NodeId),
}

impl Roll {
    /// The roll of a cluster that starts with these voters.
    pub fn of(voters: impl IntoIterator<Item = NodeId>) -> Result<Roll, BadRoll> {
        Roll { voters: voters.into_iter().collect(), ..Roll::default() }.checked()
    }

    /// The roll of a node that has not been told of any cluster yet: it waits to be added.
    pub fn empty() -> Roll {
        Roll::default()
    }

    /// Puts a roll together from its four lists, as they come from a wire, a disk or the engine.
    pub(super) fn assemble(
        voters: impl IntoIterator<Item = NodeId>,
        learners: impl IntoIterator<Item = NodeId>,
        outgoing: impl IntoIterator<Item = NodeId>,
        learners_next: impl IntoIterator<Item = NodeId>,
    ) -> Result<Roll, BadRoll> {
        Roll {
            voters: voters.into_iter().collect(),
            learners: learners.into_iter().collect(),
            outgoing: outgoing.into_iter().collect(),
            learners_next: learners_next.into_iter().collect(),
        }
        .checked()
    }

    fn checked(self) -> Result<Roll, BadRoll> {
        if self.voters.is_empty() {
            return Err(BadRoll::NoVoters);
        }
        if self.voters.len().max(self.outgoing.len()) > VOTERS_MAX
            || self.learners.len() + self.learners_next.len() > LEARNERS_MAX
        {
            return Err(BadRoll::TooMany);
        }
        let votes = |id: &NodeId| self.voters.contains(id) || self.outgoing.contains(id);
        if let Some(id) = self.learners.iter().find(|id| votes(id) || self.learners_next.contains(id)) {
            return Err(BadRoll::Twice(*id));
        }
        if let Some(id) = self.learners_next.iter().find(|id| self.voters.contains(id)) {
            return Err(BadRoll::Twice(*id));
        }
        if let Some(id) = self.learners_next.iter().find(|id| !self.outgoing.contains(id)) {
            return Err(BadRoll::NotLeaving(*id));
        }
        Ok(self)
    }

    /// Who votes; while a change is under way, by the new rules.
    pub fn voters(&self) -> &BTreeSet<NodeId> {
        &self.voters
    }

    /// Who hears everything and decides nothing.
    pub fn learners(&self) -> &BTreeSet<NodeId> {
        &self.learners
    }

    /// Who voted before the change that is under way; empty when none is. Decisions then need a majority of both.
    pub fn outgoing(&self) -> &BTreeSet<NodeId> {
        &self.outgoing
    }

    /// Who becomes a learner when the change under way has ended.
    pub fn learners_next(&self) -> &BTreeSet<NodeId> {
        &self.learners_next
    }

    /// Whether a change of several members is under way.
    pub fn joint(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Whether `node` takes part at all.
    pub fn contains(&self, node: NodeId) -> bool {
        self.voters.contains(&node) || self.learners.contains(&node) || self.outgoing.contains(&node)
    }

    /// Everyone who takes part, each once, in order.
    pub fn everyone(&self) -> BTreeSet<NodeId> {
        self.voters.iter().chain(&self.learners).chain(&self.outgoing).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[u32]) -> Vec<NodeId> {
        ids.iter().copied().map(NodeId).collect()
    }

    #[test]
    fn a_roll_that_the_engine_would_choke_on_does_not_exist() {
        assert!(Roll::of(ids(&[0, 1, 2])).is_ok());
        assert_eq!(Roll::of([]), Err(BadRoll::NoVoters));
        assert_eq!(Roll::of((0..99).map(NodeId)), Err(BadRoll::TooMany));
        let of = |v: &[u32], l: &[u32], o: &[u32], n: &[u32]| Roll::assemble(ids(v), ids(l), ids(o), ids(n));
        assert_eq!(of(&[1], &[1], &[], &[]), Err(BadRoll::Twice(NodeId(1))));
        assert_eq!(of(&[1], &[2], &[2], &[]), Err(BadRoll::Twice(NodeId(2))));
        assert_eq!(of(&[1], &[], &[], &[3]), Err(BadRoll::NotLeaving(NodeId(3))));
        assert!(of(&[1, 4], &[5], &[1, 2, 3], &[3]).is_ok_and(|it| it.joint()));
    }
}
