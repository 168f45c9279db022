//! In office: heartbeats sent, acknowledgements counted, and the lease that follows from them.
//!
//! The lease begins at the send of the heartbeat (or vote request) that a quorum has answered last. Each follower's answer carries the leader's own
//! stamp back, so the leader needs no numbering of rounds and late answers cannot lengthen anything.
//!
//! When half of the lease is gone, the last heartbeats or their answers were lost; those who have not answered are then told again, at a quicker pace. With
//! one message in five lost a leader would otherwise lose its office every few seconds.

use alloc::vec;
use alloc::vec::Vec;

use super::ballot::Voters;
use super::membership::by_new_rank;
use super::{Notice, Office, OfficeMessage, Promise, Seat};
use crate::protocol::{Effects, Event, NodeId, Reason, Term};
use crate::settings::{Pace, Settings};
use crate::time::Instant;

/// How much quicker than heartbeats their repetitions follow each other: some four fit in the second half of a lease of three heartbeats.
const REPEATS_PER_HEARTBEAT: u32 = 4;

/// A leadership as its holder keeps it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Reign {
    since: Instant,
    next_beat: Instant,
    last_beat: Instant,
    /// Under guard only.
    lease: Option<Lease>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Lease {
    until: Instant,
    /// By rank: when the last thing that this member answered was sent. Our own entry is never older than the others.
    answered: Vec<Instant>,
    /// A quorum has answered what was sent at this instant, or later.
    quorum_sent: Instant,
    /// How many others have answered something later than that.
    fresher: usize,
    needed: usize,
}

impl Reign {
    pub(super) fn unguarded(now: Instant) -> Self {
        Self { since: now, next_beat: now, last_beat: now, lease: None }
    }

    /// Elected by `voters`, who answered what was sent at `sent`.
    pub(super) fn elected(now: Instant, settings: &Settings, me: NodeId, sent: Instant, voters: &Voters) -> Self {
        let mut reign = Self::unguarded(now);
        if let Some(needed) = settings.quorum() {
            let mut answered = vec![Instant::ZERO; settings.members().len()];
            for (rank, answered) in answered.iter_mut().enumerate() {
                if voters.has(rank) {
                    *answered = sent;
                }
            }
            if let Some(rank) = settings.rank(me) {
                answered[rank] = Instant::NEVER;
            }
            reign.lease = Some(Lease { until: sent + settings.pace().lease(), answered, quorum_sent: sent, fresher: 0, needed });
        }
        reign
    }

    /// The same leadership among other members. What was answered stays answered, and the lease ends when it would have ended.
    pub(super) fn reconfigure(&mut self, old: &Settings, new: &Settings, me: NodeId) {
        let (Some(lease), Some(needed)) = (&mut self.lease, new.quorum()) else { return };
        lease.answered = by_new_rank(&lease.answered, old, new);
        if let Some(rank) = new.rank(me) {
            lease.answered[rank] = Instant::NEVER;
        }
        lease.needed = needed;
        lease.count();
    }

    pub(super) fn since(&self) -> Instant {
        self.since
    }

    pub(super) fn until(&self) -> Option<Instant> {
        self.lease.as_ref().map(|lease| lease.until)
    }

    pub(super) fn has_ended(&self, now: Instant) -> bool {
        self.until().is_some_and(|until| now >= until)
    }

    pub(super) fn beat_is_due(&self, now: Instant) -> bool {
        now >= self.next_beat
    }

    /// When to tell those again who have not answered, unless enough answer before.
    pub(super) fn repeats_at(&self, pace: &Pace) -> Instant {
        match &self.lease {
            Some(lease) if lease.answered.len() > 1 => {
                (lease.quorum_sent + pace.lease() / 2).max(self.last_beat + pace.heartbeat / REPEATS_PER_HEARTBEAT)
            }
            Some(_) | None => Instant::NEVER,
        }
    }

    pub(super) fn deadline(&self, pace: &Pace) -> Instant {
        self.next_beat.min(self.until().unwrap_or(Instant::NEVER)).min(self.repeats_at(pace))
    }

    /// The member that answered last and is worth most to `worth`.
    fn freshest<W: Ord>(&self, settings: &Settings, me: NodeId, worth: impl Fn(NodeId) -> W) -> Option<NodeId> {
        let lease = self.lease.as_ref()?;
        let members = settings.members().iter().zip(&lease.answered);
        let fresh = members.filter(|(id, answered)| **id != me && **answered >= lease.quorum_sent);
        fresh.max_by_key(|(id, answered)| (worth(**id), **answered)).map(|(id, _)| *id)
    }
}

impl Lease {
    /// Member `rank` has answered what was sent at `sent`. Whether the lease moved.
    fn answered(&mut self, rank: usize, sent: Instant) -> bool {
        let before = self.answered[rank];
        if sent <= before {
            return false;
        }
        self.answered[rank] = sent;
        if before <= self.quorum_sent && sent > self.quorum_sent {
            self.fresher += 1;
        }
        if self.fresher + 1 < self.needed {
            return false;
        }
        // Once a round of heartbeats, not once an answer: linear in the members.
        self.count();
        true
    }

    /// Finds what a quorum has answered.
    fn count(&mut self) {
        let mut stamps = self.answered.clone();
        let (_, quorum_sent, _) = stamps.select_nth_unstable_by(self.needed - 1, |a, b| b.cmp(a));
        self.quorum_sent = *quorum_sent;
        // Our own stamp is the greatest there is and not an answer.
        self.fresher = self.answered.iter().filter(|it| **it > self.quorum_sent).count().saturating_sub(1);
    }
}

impl Office {
    /// Tells everyone that we are in office, and sets the time for the next such message.
    pub(crate) fn beat<M: From<OfficeMessage>>(&mut self, now: Instant, out: &mut Effects<M>) {
        let term = self.term;
        if self.announced(now) {
            for to in self.others() {
                out.send(to, OfficeMessage::Heartbeat { term, sent: now });
            }
        }
    }

    /// Tells those again who have answered nothing since what the lease rests on.
    pub(super) fn repeat_beat<M: From<OfficeMessage>>(&mut self, now: Instant, out: &mut Effects<M>) {
        let term = self.term;
        let Seat::Leader(reign) = &mut self.seat else { return };
        let Some(lease) = &reign.lease else { return };
        reign.last_beat = now;
        for (to, answered) in self.settings.members().iter().zip(&lease.answered) {
            if *to != self.me && *answered <= lease.quorum_sent {
                out.send(*to, OfficeMessage::Heartbeat { term, sent: now });
            }
        }
    }

    /// The protocol tells everyone itself this time. False when not in office.
    pub(crate) fn announced(&mut self, now: Instant) -> bool {
        let heartbeat = self.settings.pace().heartbeat;
        let Seat::Leader(reign) = &mut self.seat else { return false };
        (reign.last_beat, reign.next_beat) = (now, now + heartbeat);
        if let (Some(lease), true) = (&mut reign.lease, self.settings.members().len() == 1) {
            // Alone, we are the quorum.
            lease.until = now + self.settings.pace().lease();
        }
        true
    }

    /// Tells `to` that we are in office, if we are.
    pub(crate) fn assure<M: From<OfficeMessage>>(&mut self, now: Instant, to: NodeId, out: &mut Effects<M>) {
        if self.is_in_office(now) {
            out.send(to, OfficeMessage::Heartbeat { term: self.term, sent: now });
        }
    }

    pub(crate) fn is_in_office(&self, now: Instant) -> bool {
        matches!(&self.seat, Seat::Leader(reign) if !reign.has_ended(now))
    }

    pub(crate) fn on_heartbeat<M: From<OfficeMessage>>(
        &mut self,
        now: Instant,
        from: NodeId,
        term: Term,
        sent: Instant,
        out: &mut Effects<M>,
    ) -> Notice {
        if self.buried.is_some_and(|(dead, until)| dead == from && term <= until) {
            // Sent before it died.
            return Notice::Nothing;
        }
        if term < self.term {
            self.say(from, OfficeMessage::Ack { term: self.term, sent }, out);
            return Notice::Nothing;
        }
        if term > self.term {
            self.adopt(now, term, out);
            self.persist(out);
        }
        if matches!(self.seat, Seat::Leader(_)) {
            // Nobody else can hold our term: two nodes share an id, or memory is damaged.
            out.emit(Event::Ignored { from });
            return Notice::Nothing;
        }
        self.seat = Seat::Follower;
        self.promise = Promise { to: Some(from), term, until: now + self.settings.pace().patience_min };
        self.detector.heard(from, now);
        (self.asked_in_vain, self.hurries) = (false, 0);
        self.wait(now);
        self.favour.leads(from, term, self.favours(from), now);
        if self.leader != Some(from) {
            self.leader = Some(from);
            out.emit(Event::Follows { leader: from, term });
        }
        if self.settings.quorum().is_some() {
            self.say(from, OfficeMessage::Ack { term, sent }, out);
        }
        Notice::Heard(from)
    }

    pub(super) fn on_ack<M>(&mut self, now: Instant, from: NodeId, term: Term, sent: Instant, out: &mut Effects<M>) {
        if term > self.term {
            self.adopt(now, term, out);
            self.persist(out);
            return;
        }
        let (Seat::Leader(reign), Some(rank)) = (&mut self.seat, self.settings.rank(from)) else { return };
        if reign.has_ended(now) {
            // An answer that comes after the end cannot undo it: the voters may already be bound to another.
            self.step_down(now, Reason::QuorumLost, out);
            return;
        }
        let Some(lease) = &mut reign.lease else { return };
        // A stamp from the future is not ours.
        if term == self.term && sent <= now && lease.answered(rank, sent) {
            lease.until = lease.until.max(lease.quorum_sent + self.settings.pace().lease());
        }
    }

    /// Asks the user to hand over to `to`, unless the tenure is still too short, or favourites could not keep the office lately.
    pub(crate) fn yield_to<M>(&mut self, now: Instant, to: NodeId, out: &mut Effects<M>) {
        let Seat::Leader(reign) = &self.seat else { return };
        if self.stabilizer.has_served(reign.since, now) && self.favour.obliges(now) {
            out.emit(Event::Asked { to });
        }
    }

    /// Who should lead after us: the member of the greatest priority among those who answered lately.
    pub(crate) fn heir(&self) -> Option<NodeId> {
        let Seat::Leader(reign) = &self.seat else { return None };
        reign.freshest(&self.settings, self.me, |id| self.settings.priority(id))
    }
}
