//! The end of sessions, and all that happens because time has passed: [`Expire`] is the one command that looks at the time.
//!
//! Sessions that end give up their seats and places first, then their keys, so many at a time. A million sessions that end in one second, or one with a million keys,
//! are ended over many entries, and between them others are served (C65, C67).

use alloc::vec::Vec;

use prost::bytes::Bytes;

use crate::command::{Bind, EndSession, Expire, KeepAlive, OpenSession};
use crate::event::{Change, SessionEnded};
use crate::owners::owned_by;
use crate::refusal::Refusal;
use crate::reply::{Bound, Expired, KeptAlive, Reply};
use crate::store::Store;
use crate::time::{Stamp, Time};

/// What a session that is ending may do at most before it is another's turn: one with a million keys must not make others wait.
const TURN: usize = 64;

impl Store {
    pub(crate) fn open_session(&mut self, stamp: Stamp, guest: &str, wanted: &OpenSession) -> Result<Reply, Refusal> {
        let wanted = &OpenSession { owner: owned_by(guest, &wanted.owner), ..wanted.clone() };
        if let Some(open) = self.sessions.check(wanted, guest, &self.limits)? {
            self.sessions.keep_alive(open, stamp.at);
            return Ok(Reply::Opened(open));
        }
        let revision = self.journal.advance();
        Ok(Reply::Opened(self.sessions.open(wanted, stamp.at, revision)))
    }

    pub(crate) fn keep_alive(&mut self, stamp: Stamp, guest: &str, asked: &KeepAlive) -> Result<Reply, Refusal> {
        if asked.sessions.len() > self.limits.kept_alive_max {
            return Err(Refusal::limit("sessions in one keep-alive", self.limits.kept_alive_max));
        }
        let sessions = &mut self.sessions;
        // Another's is none that this guest could keep.
        let mut kept = |id| !sessions.is_anothers(id, guest) && sessions.keep_alive(id, stamp.at);
        let gone = asked.sessions.iter().copied().filter(|it| !kept(*it)).collect();
        Ok(Reply::KeptAlive(KeptAlive { gone }))
    }

    pub(crate) fn bind(&mut self, stamp: Stamp, guest: &str, asked: &Bind) -> Result<Reply, Refusal> {
        if asked.sessions.len() > self.limits.kept_alive_max {
            return Err(Refusal::limit("sessions bound at once", self.limits.kept_alive_max));
        }
        let binding = self.journal.advance();
        let sessions = &mut self.sessions;
        let mut bound = |id| !sessions.is_anothers(id, guest) && sessions.bind(id, stamp.at, binding);
        let gone = asked.sessions.iter().copied().filter(|it| !bound(*it)).collect();
        Ok(Reply::Bound(Bound { binding, gone }))
    }

    pub(crate) fn end_session(&mut self, stamp: Stamp, asked: &EndSession) -> Result<Reply, Refusal> {
        self.check_text(&asked.reason)?;
        let reason = if asked.reason.is_empty() { "session ended" } else { &asked.reason };
        if asked.binding.is_some_and(|lost| self.sessions.require(asked.session).is_ok_and(|it| it.binding > lost)) {
            // It has moved on: what was lost is a connection that it had left.
            return Ok(self.done());
        }
        if !self.begin_ending(asked.session, reason, asked.unclean) {
            return Err(Refusal::SessionGone(asked.session));
        }
        self.drain(stamp, asked.session, self.limits.ended_at_once_max);
        Ok(self.done())
    }

    pub(crate) fn expire(&mut self, stamp: Stamp, asked: &Expire) -> Result<Reply, Refusal> {
        let max = self.limits.ended_at_once_max;
        let mut budget = match asked.limit {
            0 => max,
            limit => usize::try_from(limit).unwrap_or(max).min(max),
        };
        // Half of it at most: however many elections are due, sessions end.
        let mut wakings = budget.div_ceil(2);
        while wakings > 0
            && let Some(election) = self.elections.next_waking().filter(|it| it.0 <= stamp.at).map(|it| it.1.clone())
        {
            let cost = self.wake_election(stamp, &election);
            wakings = wakings.saturating_sub(cost);
            budget = budget.saturating_sub(cost);
        }
        // All who are due end before anything is taken from any of them: a seat must not go to one who is next to lose it. But half of the work is left for those who
        // are ending already, or a million sessions would end before the first seat is free.
        let mut marks = if self.sessions.is_any_ending() { budget / 2 } else { budget.div_ceil(2) };
        let mut sessions = 0;
        while marks > 0
            && let Some((_, session)) = self.sessions.next_deadline().filter(|it| it.0 <= stamp.at)
        {
            self.begin_ending(session, "lease expired", true);
            sessions += 1;
            marks -= 1;
            budget -= 1;
        }
        // Somebody waits for the seats: no key goes before all of them are free, whosever they are.
        while budget > 0 {
            let ending: Vec<u64> = self.sessions.ending_with_candidacies().take(budget).collect();
            let Some(share) = budget.checked_div(ending.len()) else { break };
            for session in ending {
                // What one costs may be more than its share.
                if budget > 0 {
                    budget = budget.saturating_sub(self.drain_candidacies(stamp, session, share));
                }
            }
        }
        while budget > 0 && self.sessions.is_any_ending() {
            // As many as there can be work for: there may be a million.
            let ending: Vec<u64> = self.sessions.ending().take(budget).collect();
            for session in ending {
                if budget > 0 {
                    budget = budget.saturating_sub(self.drain(stamp, session, budget.min(TURN)));
                }
            }
        }
        while budget > 0 && self.keys.forget_delay(stamp.at) {
            budget -= 1;
        }
        let more = self.expiry().is_some_and(|it| it <= stamp.at);
        Ok(Reply::Expired(Expired { sessions, more }))
    }

    /// When there is something to do because time has passed: then whoever leads the log proposes [`Expire`]. In the past if it is overdue.
    pub fn expiry(&self) -> Option<Time> {
        if self.sessions.is_any_ending() {
            return Some(self.now);
        }
        let session = self.sessions.next_deadline().map(|it| it.0);
        let election = self.elections.next_waking().map(|it| it.0);
        [session, election, self.keys.next_delay()].into_iter().flatten().min()
    }

    fn begin_ending(&mut self, session: u64, reason: &str, unclean: bool) -> bool {
        if !self.sessions.begin_ending(session, reason, unclean) {
            return false;
        }
        self.journal.advance();
        self.journal.tell(Change::SessionEnded(SessionEnded { session, reason: reason.into() }));
        true
    }

    /// Takes from an ending session what is attached to it, so much at most and what the last of it costs; when nothing is left, it is gone. Answers how much it was.
    pub(crate) fn drain(&mut self, stamp: Stamp, session: u64, budget: usize) -> usize {
        let spent = self.drain_candidacies(stamp, session, budget);
        spent + self.drain_keys(stamp, session, budget.saturating_sub(spent))
    }

    fn drain_candidacies(&mut self, stamp: Stamp, session: u64, budget: usize) -> usize {
        let Some(ending) = self.sessions.any(session).and_then(|it| it.ending.clone()) else { return 0 };
        let mut spent = 0;
        while spent < budget
            && let Some((election, identity)) = self.sessions.first_candidacy(session)
        {
            spent += self.end_candidacy(stamp, &election, &identity, &ending.reason, ending.unclean);
        }
        self.finish_if_bare(session);
        spent
    }

    fn drain_keys(&mut self, stamp: Stamp, session: u64, budget: usize) -> usize {
        let Some(unclean) = self.sessions.any(session).and_then(|it| Some(it.ending.as_ref()?.unclean)) else { return 0 };
        let keys: Vec<Bytes> = self.sessions.keys_of(session).take(budget).cloned().collect();
        self.end_keys(stamp, session, &keys, unclean);
        self.finish_if_bare(session);
        keys.len()
    }

    fn finish_if_bare(&mut self, session: u64) {
        if !self.sessions.has_candidacies(session) && self.sessions.keys_of(session).next().is_none() {
            self.sessions.finish_ending(session);
        }
    }
}
