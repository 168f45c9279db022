//! Sessions: what is attached to one goes when it ends, and it ends when it has not been heard of for its ttl.
//!
//! Deadlines are cluster time, so a new leader of the log has nothing to do: promotion costs the same for ten sessions and for a million (C66). A session that ends
//! is *ending* from that entry on: nothing can be attached to it and no candidate of it is elected (C62), while what hangs on it goes in pieces (C67).

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

use prost::bytes::Bytes;

use crate::command::OpenSession;
use crate::limits::Limits;
use crate::owners::{guest_of, is_owned_by};
use crate::query::SessionView;
use crate::refusal::Refusal;
use crate::time::Time;
use crate::tree::Tree;

/// All sessions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions {
    sessions: Tree<u64, Session>,
    /// Of those that are not ending.
    deadlines: Tree<(Time, u64), ()>,
    ending: Tree<u64, ()>,
    /// Those of them that somebody still leads or waits by.
    ending_with_candidacies: Tree<u64, ()>,
    /// Session, election, identity: who leads or waits by it.
    candidacies: Tree<(u64, Arc<str>, Arc<str>), ()>,
    /// What they count for.
    candidacies_bytes: usize,
    keys: Tree<(u64, Bytes), ()>,
    /// How many each guest has.
    of_guests: Tree<Arc<str>, usize>,
}

/// One session.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) deadline: Time,
    pub(crate) ttl_ms: u64,
    pub(crate) lock_delay_ms: u64,
    pub(crate) owner: Arc<str>,
    pub(crate) ends_with_connection: bool,
    /// Which connection speaks for it; 0 is the one that it was opened on.
    pub(crate) binding: u64,
    /// The revision at which it was opened; 0 if that was not noted, as in snapshots of before.
    pub(crate) opened: u64,
    pub(crate) ending: Option<Ending>,
    /// How many lead or wait by it.
    pub(crate) candidacies: u32,
}

/// How a session ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ending {
    pub(crate) reason: Box<str>,
    pub(crate) unclean: bool,
}

impl Sessions {
    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Every session, also those that are ending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Session)> {
        self.sessions.iter().map(|(id, session)| (*id, session))
    }

    /// The session, if it is there and not ending.
    pub(crate) fn live(&self, id: u64) -> Option<&Session> {
        self.sessions.get(&id).filter(|it| it.ending.is_none())
    }

    /// The same as an answer.
    pub(crate) fn require(&self, id: u64) -> Result<&Session, Refusal> {
        self.live(id).ok_or(Refusal::SessionGone(id))
    }

    pub(crate) fn any(&self, id: u64) -> Option<&Session> {
        self.sessions.get(&id)
    }

    /// Whether it is there and another guest's.
    pub(crate) fn is_anothers(&self, id: u64, guest: &str) -> bool {
        !guest.is_empty() && self.sessions.get(&id).is_some_and(|it| !is_owned_by(&it.owner, guest))
    }

    /// Why a session cannot be opened on these terms, or the open one that it is. `None`: it may be opened.
    pub(crate) fn check(&self, wanted: &OpenSession, guest: &str, limits: &Limits) -> Result<Option<u64>, Refusal> {
        if wanted.ttl_ms < Limits::TTL_MS_MIN {
            return Err(Refusal::Malformed(alloc::format!("a ttl of {} ms is below {} ms", wanted.ttl_ms, Limits::TTL_MS_MIN)));
        }
        if wanted.ttl_ms > Limits::TTL_MS_MAX {
            return Err(Refusal::Limit { what: "the ttl of a session in ms".into(), max: Limits::TTL_MS_MAX });
        }
        if wanted.lock_delay_ms > Limits::LOCK_DELAY_MS_MAX {
            return Err(Refusal::Limit { what: "the lock delay of a session in ms".into(), max: Limits::LOCK_DELAY_MS_MAX });
        }
        if wanted.owner.len() > limits.identity_len_max {
            return Err(Refusal::limit("bytes in the owner of a session", limits.identity_len_max));
        }
        if wanted.session != 0
            && let Some(open) = self.sessions.get(&wanted.session)
        {
            let same = open.ending.is_none()
                && open.ttl_ms == wanted.ttl_ms
                && open.lock_delay_ms == wanted.lock_delay_ms
                && open.ends_with_connection == wanted.ends_with_connection
                && *open.owner == *wanted.owner;
            return if same { Ok(Some(wanted.session)) } else { Err(Refusal::SessionTaken(wanted.session)) };
        }
        if self.sessions.len() >= limits.sessions_max {
            return Err(Refusal::limit("sessions", limits.sessions_max));
        }
        if !guest.is_empty() && self.of_guests.get(guest).is_some_and(|it| *it >= limits.sessions_per_guest_max) {
            return Err(Refusal::limit("sessions of one guest", limits.sessions_per_guest_max));
        }
        Ok(None)
    }

    /// Opens it. Its number is the one it wants, or the first free one of those that `revision` has.
    pub(crate) fn open(&mut self, wanted: &OpenSession, at: Time, revision: u64) -> u64 {
        let id = match wanted.session {
            // Somebody may have wished for a number that the counter had not reached.
            0 => numbers(revision).find(|it| !self.sessions.contains(it)).expect("more numbers than sessions"),
            id => id,
        };
        let deadline = at.deadline(wanted.ttl_ms);
        self.restore(
            id,
            Session {
                deadline,
                ttl_ms: wanted.ttl_ms,
                lock_delay_ms: wanted.lock_delay_ms,
                owner: wanted.owner.as_str().into(),
                ends_with_connection: wanted.ends_with_connection,
                binding: 0,
                opened: revision,
                ending: None,
                candidacies: 0,
            },
        );
        id
    }

    /// Puts a session where it was.
    pub(crate) fn restore(&mut self, id: u64, session: Session) {
        if session.ending.is_some() {
            self.ending.insert(id, ());
        } else {
            self.deadlines.insert((session.deadline, id), ());
        }
        if let Some(guest) = guest_of(&session.owner) {
            match self.of_guests.find_mut(guest) {
                Some((_, count)) => *count += 1,
                None => drop(self.of_guests.insert(guest.into(), 1)),
            }
        }
        self.sessions.insert(id, session);
    }

    /// Begins its ttl anew. False if it is gone.
    pub(crate) fn keep_alive(&mut self, id: u64, at: Time) -> bool {
        let Some((_, session)) = self.sessions.find_mut(&id).filter(|(_, it)| it.ending.is_none()) else { return false };
        let deadline = at.deadline(session.ttl_ms);
        // Time does not go back, so neither does a deadline. Most often several keep-alives of one entry meet here.
        if deadline > session.deadline {
            self.deadlines.remove(&(session.deadline, id));
            self.deadlines.insert((deadline, id), ());
            session.deadline = deadline;
        }
        true
    }

    /// Whether a session was opened before another one.
    pub(crate) fn is_before(&self, id: u64, other: u64) -> bool {
        let opened = |id| self.sessions.get(&id).map_or(0, |it| it.opened);
        opened(id) < opened(other)
    }

    /// Another connection speaks for it. False if it is gone.
    pub(crate) fn bind(&mut self, id: u64, at: Time, binding: u64) -> bool {
        if !self.keep_alive(id, at) {
            return false;
        }
        if let Some((_, session)) = self.sessions.find_mut(&id) {
            session.binding = binding;
        }
        true
    }

    /// What it loses is nobody's for as long as its owner may believe that it has it.
    pub(crate) fn outlast_ttl(&mut self, id: u64) {
        if let Some((_, session)) = self.sessions.find_mut(&id) {
            session.lock_delay_ms = session.lock_delay_ms.max(Time::ZERO.ms_until(Time::ZERO.deadline(session.ttl_ms)));
        }
    }

    /// From now on nothing can be attached to it. False if it was not there or ending already.
    pub(crate) fn begin_ending(&mut self, id: u64, reason: &str, unclean: bool) -> bool {
        let Some((_, session)) = self.sessions.find_mut(&id).filter(|(_, it)| it.ending.is_none()) else { return false };
        session.ending = Some(Ending { reason: reason.into(), unclean });
        self.deadlines.remove(&(session.deadline, id));
        self.ending.insert(id, ());
        if self.has_candidacies(id) {
            self.ending_with_candidacies.insert(id, ());
        }
        true
    }

    /// Nothing is attached to it any more: it is gone.
    pub(crate) fn finish_ending(&mut self, id: u64) {
        self.ending.remove(&id);
        let Some((_, session)) = self.sessions.remove(&id) else { return };
        let Some(guest) = guest_of(&session.owner) else { return };
        if let Some((_, count)) = self.of_guests.find_mut(guest) {
            *count -= 1;
            if *count == 0 {
                self.of_guests.remove(guest);
            }
        }
    }

    /// The one whose deadline is next, and when that is.
    pub(crate) fn next_deadline(&self) -> Option<(Time, u64)> {
        self.deadlines.first().map(|(deadline, ())| *deadline)
    }

    /// Those that are ending.
    pub(crate) fn ending(&self) -> impl Iterator<Item = u64> {
        self.ending.keys().copied()
    }

    /// Those of them that somebody still leads or waits by.
    pub(crate) fn ending_with_candidacies(&self) -> impl Iterator<Item = u64> {
        self.ending_with_candidacies.keys().copied()
    }

    pub(crate) fn is_any_ending(&self) -> bool {
        !self.ending.is_empty()
    }

    /// Somebody who leads or waits by it, and what that counts for in bytes.
    pub(crate) fn attach_candidate(&mut self, id: u64, election: &Arc<str>, identity: &str, bytes: usize) {
        let is_new = self.candidacies.insert((id, election.clone(), identity.into()), ()).is_none();
        if is_new && let Some((_, session)) = self.sessions.find_mut(&id) {
            session.candidacies += 1;
        }
        self.candidacies_bytes += bytes;
        // Only while a snapshot is read: else nothing can be attached to it any more.
        if self.ending.contains(&id) {
            self.ending_with_candidacies.insert(id, ());
        }
    }

    pub(crate) fn detach_candidate(&mut self, id: u64, election: &Arc<str>, identity: &str, bytes: usize) {
        let was_there = self.candidacies.remove(&(id, election.clone(), identity.into())).is_some();
        if was_there && let Some((_, session)) = self.sessions.find_mut(&id) {
            session.candidacies -= 1;
        }
        self.candidacies_bytes -= bytes;
        if self.ending_with_candidacies.contains(&id) && !self.has_candidacies(id) {
            self.ending_with_candidacies.remove(&id);
        }
    }

    /// One of them counts for more or less.
    pub(crate) fn resize_candidate(&mut self, before: usize, after: usize) {
        self.candidacies_bytes = self.candidacies_bytes - before + after;
    }

    /// What all who lead or wait count for.
    pub(crate) fn candidacies_bytes(&self) -> usize {
        self.candidacies_bytes
    }

    /// One of its candidacies: election and identity.
    pub(crate) fn first_candidacy(&self, id: u64) -> Option<(Arc<str>, Arc<str>)> {
        let first = (id, Arc::from(""), Arc::from(""));
        let ((of, election, identity), ()) = self.candidacies.from(Bound::Included(&first)).next()?;
        (*of == id).then(|| (election.clone(), identity.clone()))
    }

    pub(crate) fn has_candidacies(&self, id: u64) -> bool {
        self.sessions.get(&id).is_some_and(|it| it.candidacies > 0)
    }

    pub(crate) fn attach_key(&mut self, id: u64, key: &Bytes) {
        self.keys.insert((id, key.clone()), ());
    }

    pub(crate) fn detach_key(&mut self, id: u64, key: &Bytes) {
        self.keys.remove(&(id, key.clone()));
    }

    /// The keys that go with it, in their order.
    pub(crate) fn keys_of(&self, id: u64) -> impl Iterator<Item = &Bytes> {
        let keys = self.keys.from(Bound::Included(&(id, Bytes::new()))).map(|(it, ())| it);
        keys.take_while(move |it| it.0 == id).map(|(_, key)| key)
    }

    /// The session as it is told. With its keys, if `whole`.
    pub(crate) fn view(&self, id: u64, now: Time, whole: bool) -> Option<SessionView> {
        let session = self.sessions.get(&id)?;
        let keys: Vec<Bytes> = if whole { self.keys_of(id).take(Limits::LISTED_MAX).cloned().collect() } else { Vec::new() };
        Some(SessionView {
            session: id,
            ttl_ms: session.ttl_ms,
            left_ms: now.ms_until(session.deadline),
            owner: session.owner.as_ref().into(),
            ends_with_connection: session.ends_with_connection,
            lock_delay_ms: session.lock_delay_ms,
            ending: session.ending.is_some(),
            candidacies: u64::from(session.candidacies),
            keys,
        })
    }

    /// Sessions behind this number.
    pub(crate) fn after(&self, id: u64) -> impl Iterator<Item = u64> {
        self.sessions.from(Bound::Excluded(&id)).map(|(id, _)| *id)
    }
}

/// The numbers that a session which is opened at this revision may have: first the revision, then others that are strewn over all that there are. If they were the next ones, whoever
/// wishes for a million in a row would make each opening among them walk along the row; so each number that is taken is in the way of one revision at most, and once.
fn numbers(revision: u64) -> impl Iterator<Item = u64> {
    // A revision has 48 bits, so the first 65,535 attempts of no two revisions are the same; nor are any two of one, as `strew` gives no number twice.
    let others = (1..=u64::MAX).map(move |attempt| strew(revision ^ attempt.rotate_right(16)));
    core::iter::once(revision).chain(others).filter(|it| *it != 0)
}

/// Another number for each number, near to no other's: each step can be taken back, so no two become one.
fn strew(number: u64) -> u64 {
    let number = (number ^ number >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    number ^ number >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_were_wished_for_in_a_row_do_not_make_each_opening_walk_along_it() {
        let mut sessions = Sessions::default();
        let wish = |session| OpenSession { session, ttl_ms: 1000, ..OpenSession::default() };
        for session in 1..=10_000 {
            sessions.open(&wish(session), Time::ZERO, session);
        }
        let mut looks = 0;
        for revision in 1..=10_000 {
            looks += numbers(revision).take_while(|it| sessions.sessions.contains(it)).count();
            sessions.open(&wish(0), Time::ZERO, revision);
        }
        assert_eq!(sessions.len(), 20_000, "each has a number of its own");
        assert_eq!(looks, 10_000, "one is taken, the next is free");
        assert!(sessions.any(0).is_none());
    }

    #[test]
    fn whoever_wishes_for_the_numbers_that_come_next_is_in_the_way_once_for_each() {
        // Two revisions have no number in common, so a number that is taken is looked at for one of them alone.
        let mut all: Vec<u64> = (1..=300).flat_map(|it| numbers(it).skip(1).take(300)).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 300 * 300);
        // However many are tried, none comes twice.
        let mut of_one: Vec<u64> = numbers(7).take(200_000).collect();
        of_one.sort_unstable();
        of_one.dedup();
        assert_eq!(of_one.len(), 200_000);
    }
}
