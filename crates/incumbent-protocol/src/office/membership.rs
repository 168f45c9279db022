//! Other members: a node goes on with new settings and keeps all that it has promised.
//!
//! **The problem.** Quorums of the old members and of the new ones need not share a node. And nobody changes at the same instant.
//!
//! **The insight.** (Schultz, Zhou, Dardik and Tripakis, *Design and Analysis of a Logless Dynamic Reconfiguration Protocol*, 2021.) A promise, a vote and a
//! term belong to the node that gave them, whatever members it knows. So nothing has to be replicated: it is enough that a node never goes back to members
//! that it has left, and that members which are in use at the same time differ by one. The driver keeps these rules:
//!
//! 1. *Members have a version*: the term of the leader that made them, then a count. Greater ones replace lesser ones, and a node persists them before it uses them.
//! 2. *Nodes hear each other only under the same version.* A message under another one goes no further than the driver, which passes on the greater members instead.
//! 3. *Only a leader makes new members*, by adding or removing one ([`Settings::may_become`](crate::settings::Settings::may_become)), and only if it is in office and has used the present
//!    members for at least `2 · patience_max`.
//!
//! **Why that is enough.** Say members C were followed by D and D by E, each by one step. Quorums of C and D share a node, and that node's promise binds
//! it under both: so a leader under C and one under D are never in office together, by the argument of [the office](super), which needs a common voter and no common
//! settings. C and E may have quorums without a common node. But E was made by a leader M that was in office under D, after so long a time under D that its lease rests on
//! heartbeats which a quorum of D acknowledged *under D*. Every quorum of C has a node of that quorum in it: one that has left C. So whoever is in office by a quorum of C got that node's word
//! before it left. Then its term is not M's; if it were greater, that node would have deposed M instead of acknowledging; so it is lesser, and M was elected by a
//! quorum that shares a node with it, which was free only after that lease had ended. It is over, and under C there can be no other: the node has left.
//! Of two leaders that make members from C in different terms, the greater version wins; the other was never in office long enough under its own to
//! make a third.
//!
//! What a node does about it: terms, votes, promises and the lease stay. The lease is never lengthened by the change, and the votes of a ballot are not counted on.

use alloc::vec::Vec;

use super::{Effects, Event, Instant, NodeId, Office, OfficeMessage, Reason, Seat};
use crate::settings::{Invalid, Settings};

impl Office {
    /// Goes on with these settings. Refused if they differ in more than members and priorities.
    pub(crate) fn reconfigure<M: From<OfficeMessage>>(
        &mut self,
        now: Instant,
        settings: &Settings,
        successor: Option<NodeId>,
        out: &mut Effects<M>,
    ) -> Result<(), Invalid> {
        self.settings.agrees_but_for_members(settings)?;
        if settings.rank(self.me).is_none() {
            // Still under the old members: under the new ones nobody listens to us.
            self.resign(now, successor, out);
        }
        self.reject(now, out);
        if self.settings.may_become(settings).is_err() {
            // Somebody else has made them, so somebody else was in office since.
            self.step_down(now, Reason::QuorumLost, out);
        }
        if let Seat::Leader(reign) = &mut self.seat {
            reign.reconfigure(&self.settings, settings, self.me);
        }
        // Said under the old members, it must not be heard under the new ones.
        self.held.clear();
        let gone = |id: &NodeId| settings.rank(*id).is_none();
        if let Some(leader) = self.leader.filter(gone) {
            self.leader = None;
            if leader != self.me {
                out.emit(Event::LeaderGone { leader, term: self.term, cause: super::Cause::Released });
            }
        }
        self.settings = settings.clone();
        Ok(())
    }

    /// Whether this node is no member any more. It then says nothing and does nothing, ever.
    pub(crate) fn is_removed(&self) -> bool {
        self.settings.rank(self.me).is_none()
    }
}

/// What was known by the rank of members, by the rank of others. Who is new gets what `Default` says.
pub(super) fn by_new_rank<T: Copy + Default>(known: &[T], old: &Settings, new: &Settings) -> Vec<T> {
    let of = |id: &NodeId| old.rank(*id).map_or_else(T::default, |rank| known[rank]);
    new.members().iter().map(of).collect()
}
