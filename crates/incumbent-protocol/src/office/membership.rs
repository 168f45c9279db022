//! Other members: a node goes on with new settings and keeps all that it has promised.
//!
//! **The problem.** Quorums of the old members and of the new ones need not share a node. And nobody changes at the same instant.
//!
//! **The insight.** (Schultz, Zhou, Dardik and Tripakis, *Design and Analysis of a Logless Dynamic Reconfiguration Protocol*, 2021.) A promise, a vote and a term belong to the
//! node that gave them, whatever members it knows. So nothing has to be replicated: it is enough that a node never goes back to members that it has left, and that
//! members which are in use at the same time differ by one. The driver keeps these rules:
//!
//! 1. *Members have a version*: the term of the leader that made them, then a count. Greater ones replace lesser ones, and a node persists them before it uses them.
//! 2. *Nodes hear each other only under the same version.* A message under another one goes no further than the driver, which passes on the greater members instead.
//! 3. *Only a leader makes new members*, from those under which it was elected, by adding or removing one ([`Settings::may_become`](crate::settings::Settings::may_become)). Before that, a
//!    majority must have used the present version for `2 · patience_max`, and the leader must still be in office. Where the members are those of one election only, it is enough that
//!    its leader is in office and has used the present version itself for that long.
//!
//! **Why that is enough.** Say members C were followed by D and D by E, each by one step. Quorums of C and D share a node, and that node's promise binds it under both: so a leader under
//! C and one under D are never in office together, by the argument of [the office](super), which needs a common voter and no common settings. The same holds for D and E. Quorums of C
//! and E may have no common node. But every quorum of C has a node in common with the majority of D that uses D by rule 3, and that node hears nothing under C any more. So the last word of a
//! quorum of C is older than `2 · patience_max` when E is made, and whoever was in office by it is so no longer: a lease is shorter than that, and is counted from the send of what
//! was answered, however late the answer comes.
//!
//! If the leader's own time is all that is known, the majority may have left C just now. Then its lease says the rest: it rests on heartbeats that a quorum of D acknowledged under D. A node of
//! that quorum also gave its word to whoever is in office by a quorum of C, before it left C. If that one's term were greater than the leader's, the node would have deposed the leader
//! instead; so it is lesser, and the leader was elected by a quorum with a node that was free only after that lease had ended.
//!
//! Of members that were made from C in two terms, the greater version wins. The later leader was elected under C, so the others were not used by a majority then; nobody could make
//! members from them before they were, and who changes to the greater version leaves them.
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
        if (self.settings.members(), self.settings.quorum()) == (settings.members(), settings.quorum()) {
            // A new version of the same members: all quorums are what they were.
            self.settings = settings.clone();
            return Ok(());
        }
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
