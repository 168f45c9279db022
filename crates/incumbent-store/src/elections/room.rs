//! One election with all that a change of it touches: the sessions of its candidates, the revision, the time.
//!
//! Whoever changes an election opens its room; when that is done, what is due in it later is noted.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;

use super::records::record_size;
use super::{Election, INCARNATION_MAX, TERM_BITS, TERM_MAX};
use crate::command::{Campaign, Demand};
use crate::election::{Candidate, Holder, Past, Reservation};
use crate::event::{Change, Elected, Ended, InLineChange};
use crate::journal::Journal;
use crate::limits::Limits;
use crate::refusal::Refusal;
use crate::reply::{Granted, InLine, Reply};
use crate::sessions::Sessions;
use crate::time::{Stamp, Time};

/// A candidate may make tokens rise so many incarnations above the store's by what it says it has seen, and no further: there are 32767 of them for all time, and anybody may say anything.
/// Against the store's, which no candidate raises, or it could be done step by step. A cluster begins one more with each restore, so an honest candidate is rarely more than a few ahead.
const SEEN_ABOVE_MAX: u16 = 16;

/// Names of those who wait, in a refusal: so short, in bytes, that it is always kept for a request that is repeated ([`Limits::outcome_len_max`]).
const NAMES_LEN_MAX: usize = 300;

/// So many who stand in line with a session that has ended are taken out of it for one change of the election. If more stand before the next who lives, the election wakes at once for another.
const DEAD_AT_ONCE_MAX: usize = 64;

/// In an election with many seats, so many of them cost as much as the end of one candidacy: they are looked through for it.
const SEATS_PER_STEP: usize = 64;

/// Of so many seats it is told when the next one may be free; of more, one may be free sooner.
const SEATS_TOLD_MAX: usize = 100;

/// So many who wait are looked at for names to tell.
const WAITING_TOLD_MAX: usize = 100;

/// An election that is being changed.
pub(crate) struct Room<'a> {
    pub(crate) name: &'a Arc<str>,
    pub(crate) election: &'a mut Election,
    pub(crate) sessions: &'a mut Sessions,
    pub(crate) journal: &'a mut Journal,
    pub(crate) stamp: Stamp,
    /// The store's.
    pub(crate) incarnation: u16,
    /// What notes and jobs that were done count for, in all elections.
    pub(crate) notes_bytes: usize,
    /// What seats that are kept counted for before, in all elections.
    pub(crate) reserved_bytes: usize,
    pub(crate) limits: &'a Limits,
    /// Seats that were given, and places that were taken from those who wait no more.
    pub(crate) given: usize,
}

/// How a seat is given up.
pub(crate) struct Parting<'a> {
    pub(crate) reason: &'a str,
    /// Who shall be next; empty for the first in line.
    pub(crate) to: &'a str,
    /// The former holder may still be at work: its session's lock delay holds.
    pub(crate) unclean: bool,
}

impl Room<'_> {
    /// Takes a seat or a place in the line for a candidate whose session lives.
    pub(crate) fn campaign(&mut self, bid: &Campaign) -> Result<Reply, Refusal> {
        let seats = bid.seats.max(1);
        if self.election.seats == 0 {
            self.election.seats = seats;
        }
        if self.election.seats != seats {
            return Err(Refusal::SeatsDiffer(self.election.seats));
        }
        if self.has_moved_on(&bid.identity, bid.session) {
            return Ok(self.in_line(&bid.identity));
        }
        let holds = self.election.holders.iter().position(|it| it.identity == bid.identity);
        if let Some(at) = holds.filter(|at| self.sessions.live(self.election.holders[*at].session).is_some()) {
            return self.claim_again(at, bid);
        }
        // A seat or place that it has by a session which is ending counts as one that it leaves.
        let waits = self.election.line.find(&bid.identity);
        let before = holds.map(|at| self.election.holders[at].kept_bytes()).or(waits.map(Candidate::kept_bytes));
        let candidate = candidate(bid);
        self.check_candidate(before.unwrap_or(0), candidate.kept_bytes())?;
        if waits.is_none() && self.election.line.len() >= self.limits.line_len_max {
            return Err(Refusal::limit("candidates in one line", self.limits.line_len_max));
        }
        self.rise_above(bid.seen, self.incarnation.saturating_add(SEEN_ABOVE_MAX))?;
        // Nothing is refused from here on: a refusal has changed nothing.
        self.end_former(&bid.identity);
        if bid.only_if_free && self.election.line.find(&bid.identity).is_none() && !self.is_free(&candidate) {
            return Ok(self.in_line(&bid.identity));
        }
        let first = self.first();
        let (identity, name) = (candidate.identity.clone(), candidate.name.clone());
        let is_news = self.stand(candidate);
        self.give_away([&identity, &name]);
        // Whoever finds a seat free has never waited.
        if let Some(candidate) = self.election.line.find(&bid.identity).filter(|_| is_news) {
            let change = self.about(candidate);
            self.journal.tell(Change::Joined(change));
        }
        self.tell_first(first);
        match self.election.holders.iter().find(|it| it.identity == bid.identity) {
            Some(own) => Ok(self.granted(own.token, own.session)),
            None => Ok(self.in_line(&bid.identity)),
        }
    }

    /// A seat or place that it has by a session which is ending is lost, though it may not be taken yet: whoever heard that a leadership is gone must not find it in office again.
    fn end_former(&mut self, identity: &str) {
        let waits = self.election.line.find(identity).map(|it| it.session);
        if waits.is_some_and(|it| self.sessions.live(it).is_none()) {
            self.leave(identity);
        }
        let holds = self.election.holders.iter().find(|it| it.identity == identity).map(|it| (it.token, it.session));
        if let Some((token, session)) = holds
            && let Some(ending) = self.sessions.any(session).and_then(|it| it.ending.clone())
        {
            self.vacate(token, &Parting { reason: &ending.reason, to: "", unclean: ending.unclean });
        }
    }

    /// A candidate that has come back with a newer session does not go with an older one again: who was killed may have asked for the seat, and that may arrive when the next process of the
    /// same identity has it. It would be lost with a session that nobody keeps alive, while its holder keeps another.
    fn has_moved_on(&self, identity: &str, session: u64) -> bool {
        let holds = self.election.holders.iter().find(|it| it.identity == identity).map(|it| it.session);
        let now = holds.or_else(|| self.election.line.find(identity).map(|it| it.session));
        // One that is ending keeps nothing.
        let now = now.filter(|it| self.sessions.live(*it).is_some());
        now.is_some_and(|now| now != session && self.sessions.is_before(session, now))
    }

    /// With the same session it is the same leadership. With a newer one it is another process, with a bid of its own: what the former one has said, a resignation or a write under the fence, may
    /// still arrive, and must not be taken for this one's.
    fn claim_again(&mut self, at: usize, bid: &Campaign) -> Result<Reply, Refusal> {
        let former = &self.election.holders[at];
        if former.session == bid.session {
            return Ok(self.granted(former.token, bid.session));
        }
        let candidate = candidate(bid);
        self.check_candidate(former.kept_bytes(), candidate.kept_bytes())?;
        self.rise_above(bid.seen, self.incarnation.saturating_add(SEEN_ABOVE_MAX))?;
        self.end_leadership(at, "came back with another session");
        self.sessions.attach_candidate(candidate.session, self.name, &candidate.identity, candidate.kept_bytes());
        let token = self.begin_leadership(candidate);
        Ok(self.granted(token, bid.session))
    }

    fn granted(&self, token: u64, session: u64) -> Reply {
        let ttl_ms = self.sessions.any(session).map_or(0, |it| it.ttl_ms);
        Reply::Granted(Granted { token, ttl_ms })
    }

    fn in_line(&self, identity: &str) -> Reply {
        let holders = self.election.holders.iter().take(SEATS_TOLD_MAX);
        let deadlines = holders.filter_map(|it| Some(self.sessions.any(it.session)?.deadline));
        let reserved = self.election.reservations.iter().take(SEATS_TOLD_MAX).map(|it| Time::from_nanos(it.until_ns));
        let free_in_ms = deadlines.chain(reserved).min().map_or(0, |it| self.stamp.at.ms_until(it));
        let place = self.election.line.place(identity).unwrap_or(0);
        Reply::InLine(InLine { place, leader: self.election.holders.first().cloned(), free_in_ms })
    }

    /// Whether the candidate would be seated if it came now: a seat is kept for it, or one is free and nobody waits.
    fn is_free(&self, candidate: &Candidate) -> bool {
        let reservations = || self.election.reservations.iter().filter(|it| Time::from_nanos(it.until_ns) > self.stamp.at);
        // As a seat is given: whoever has the identity goes before those who have the name, and of these the first in line.
        let is_kept = |to: &String| {
            !to.is_empty() && (*to == candidate.identity || (*to == candidate.name && self.election.line.named(to).is_none()))
        };
        let is_vacant = || self.election.holders.len() + reservations().count() < self.election.seats as usize;
        reservations().any(|it| is_kept(&it.to)) || (self.election.line.is_empty() && is_vacant())
    }

    /// Puts the candidate in line, or its bid up to date if it stands there. False if that changes nothing.
    fn stand(&mut self, mut candidate: Candidate) -> bool {
        match self.election.line.find(&candidate.identity) {
            Some(before) => {
                candidate.arrival = before.arrival;
                if *before == candidate {
                    return false;
                }
                self.sessions.detach_candidate(before.session, self.name, &before.identity, before.kept_bytes());
                self.journal.advance();
            }
            None => candidate.arrival = self.journal.advance(),
        }
        self.sessions.attach_candidate(candidate.session, self.name, &candidate.identity, candidate.kept_bytes());
        self.election.line.stand(candidate);
        true
    }

    /// Takes a candidate out of the line.
    pub(crate) fn leave(&mut self, identity: &str) -> bool {
        let first = self.first();
        let Some(name) = self.take_out(identity) else { return false };
        // A seat may be kept for another of that name, who stood behind.
        if self.kept_for([identity, &name]).is_some() {
            self.give_away([identity, &name]);
        }
        self.tell_first(first);
        true
    }

    /// Answers the name of whoever was taken out.
    fn take_out(&mut self, identity: &str) -> Option<String> {
        let candidate = self.election.line.leave(identity)?;
        self.sessions.detach_candidate(candidate.session, self.name, identity, candidate.kept_bytes());
        self.journal.advance();
        let change = self.about(&candidate);
        self.journal.tell(Change::Left(change));
        Some(candidate.name)
    }

    /// Gives up the seat of a leadership, and gives it to the next. False if it is not in office.
    pub(crate) fn vacate(&mut self, token: u64, parting: &Parting<'_>) -> bool {
        let Some(at) = self.election.holders.iter().position(|it| it.token == token) else { return false };
        let session = self.election.holders[at].session;
        let (ttl_ms, lock_delay_ms) = self.sessions.any(session).map_or((0, 0), |it| (it.ttl_ms, it.lock_delay_ms));
        self.end_leadership(at, parting.reason);
        if parting.unclean && lock_delay_ms > 0 {
            self.reserve("", self.stamp.at.after_ms(lock_delay_ms));
        } else if !parting.to.is_empty() {
            self.reserve(parting.to, self.stamp.at.deadline(ttl_ms));
        }
        self.fill(parting.to);
        true
    }

    /// The one place where a leadership ends.
    fn end_leadership(&mut self, at: usize, reason: &str) {
        let holder = self.election.holders.remove(at);
        self.sessions.detach_candidate(holder.session, self.name, &holder.identity, holder.kept_bytes());
        self.journal.advance();
        let past = Past {
            identity: holder.identity.clone(),
            name: holder.name.clone(),
            token: holder.token,
            since_wall_ms: holder.since_wall_ms,
            until_wall_ms: self.stamp.wall_ms.max(holder.since_wall_ms),
            lasted_ms: self.stamp.at.as_nanos().saturating_sub(holder.since_ns) / 1_000_000,
            reason: reason.into(),
        };
        self.election.records().remember(past.clone(), self.limits.records_max);
        self.journal.tell(Change::Ended(Box::new(Ended { election: String::from(&**self.name), past })));
    }

    fn reserve(&mut self, to: &str, until: Time) {
        self.election.reservations.push(Reservation { to: to.into(), until_ns: until.as_nanos() });
    }

    /// Gives away every seat that is free: first one that is kept for `to`, if that is here, then the others down the line.
    pub(crate) fn fill(&mut self, to: &str) {
        let first = self.first();
        self.give_away(["", to]);
        self.tell_first(first);
    }

    /// Seats may be kept for whoever has one of these names, and for nobody else who is here: it would have one. So that is all that is looked for, however many are kept.
    fn give_away(&mut self, names: [&str; 2]) {
        let at = self.stamp.at;
        self.election.reservations.retain(|it| Time::from_nanos(it.until_ns) > at);
        let (mut names, mut dead) = (names.map(String::from), 0);
        loop {
            let next = match self.kept_for([&names[0], &names[1]]) {
                Some((index, identity)) => {
                    self.election.reservations.remove(index);
                    identity
                }
                None if !self.election.is_unfilled() => break,
                None => {
                    let Some(first) = self.election.line.first() else { break };
                    let (identity, session) = (first.identity.clone(), first.session);
                    // One whose session has ended waits no more, though it may still stand there (C62).
                    if self.sessions.live(session).is_none() {
                        if dead == DEAD_AT_ONCE_MAX {
                            break;
                        }
                        dead += 1;
                        // A seat may be kept for another of that name, who stood behind.
                        if let Some(name) = self.take_out(&identity) {
                            names = [identity, name];
                        }
                        continue;
                    }
                    identity
                }
            };
            self.seat(&next);
            self.given += 1;
        }
        self.given += dead;
    }

    /// A seat that is kept for somebody of these names who is here.
    fn kept_for(&self, names: [&str; 2]) -> Option<(usize, String)> {
        // The first that is kept for a name: all of them find the same candidate.
        names.into_iter().filter(|it| !it.is_empty()).find_map(|name| {
            let index = self.election.reservations.iter().position(|it| it.to == name)?;
            let candidate = self.election.line.named(name).filter(|it| self.sessions.live(it.session).is_some())?;
            Some((index, candidate.identity.clone()))
        })
    }

    /// What it has cost: 1 for a change in an election with few seats.
    pub(crate) fn cost(&self) -> usize {
        1 + self.given + (self.election.holders.len() + self.election.reservations.len()) / SEATS_PER_STEP
    }

    /// The candidate is seated.
    fn seat(&mut self, identity: &str) {
        let candidate = self.election.line.leave(identity).expect("it was found in line");
        self.begin_leadership(candidate);
    }

    /// The one place where a leadership begins. Answers its token.
    fn begin_leadership(&mut self, candidate: Candidate) -> u64 {
        let term = self.journal.advance();
        assert!(term <= TERM_MAX, "the store stops before its revisions do not fit");
        let token = u64::from(self.incarnation.max(self.election.incarnation)) << TERM_BITS | term;
        let (since_ns, since_wall_ms) = (self.stamp.at.as_nanos(), self.stamp.wall_ms);
        let Candidate { identity, name, value, priority, session, tenure_ms_min, arrival: _ } = candidate;
        let holder =
            Holder { identity, name, token, value, priority, session, since_ns, since_wall_ms, tenure_ms_min, wish: None };
        let elected = Elected { election: String::from(&**self.name), holder: holder.clone() };
        self.journal.tell(Change::Elected(Box::new(elected)));
        // Nearly always the only one: room for four would be most of what an election costs.
        self.election.holders.reserve_exact(1);
        self.election.holders.push(holder);
        token
    }

    /// Makes every later token greater than `seen`, if that takes no greater incarnation than `most`.
    pub(crate) fn rise_above(&mut self, seen: u64, most: u16) -> Result<(), Refusal> {
        let incarnation = self.incarnation.max(self.election.incarnation);
        let next = u64::from(incarnation) << TERM_BITS | (self.journal.revision() + 1);
        if next <= seen {
            let needed = incarnation_above(seen)?;
            if needed > most {
                return Err(Refusal::Denied(format!(
                    "token {seen} was seen, of incarnation {}, and this is {}: if it was a token of this election, have the election raised above it (incumbent raise)",
                    needed - 1,
                    self.incarnation
                )));
            }
            self.election.incarnation = needed;
        }
        Ok(())
    }

    fn first(&self) -> Option<String> {
        self.election.line.first().map(|it| it.identity.clone())
    }

    fn tell_first(&mut self, before: Option<String>) {
        if let Some(first) = self.election.line.first().filter(|it| before.as_ref() != Some(&it.identity)) {
            let change = self.about(first);
            self.journal.tell(Change::First(change));
        }
    }

    fn about(&self, candidate: &Candidate) -> InLineChange {
        InLineChange {
            election: String::from(&**self.name),
            identity: candidate.identity.clone(),
            priority: candidate.priority,
            session: candidate.session,
        }
    }

    /// Refuses what a candidate wants, unless it is a seat for one of the guest's own that stands in line before this priority.
    pub(crate) fn check_better(&self, guest: &str, demand: Demand, to: &str, priority: i32) -> Result<(), Refusal> {
        let own = |it: &&Candidate| self.sessions.live(it.session).is_some() && !self.sessions.is_anothers(it.session, guest);
        let better = self.election.line.named(to).filter(own).filter(|it| it.priority > priority);
        if demand != Demand::HandOver || better.is_none() {
            let why = "a candidate may ask for a seat for itself, while it stands in line with a greater priority than the leader's; anything else needs the right to evict";
            return Err(Refusal::Denied(why.into()));
        }
        Ok(())
    }

    /// Refuses to hand over to a name that nobody in line has, and says who is there.
    pub(crate) fn check_in_line(&self, to: &str) -> Result<(), Refusal> {
        let waits = |it: &&Candidate| self.sessions.live(it.session).is_some();
        if self.election.line.named(to).is_some_and(|it| waits(&it)) {
            return Ok(());
        }
        let mut names = String::new();
        for candidate in self.election.line.iter().take(WAITING_TOLD_MAX).filter(waits) {
            let name = if candidate.name.is_empty() { &candidate.identity } else { &candidate.name };
            if !names.is_empty() {
                names.push_str(", ");
            }
            if names.len() + name.len() > NAMES_LEN_MAX {
                names.push_str("and others");
                break;
            }
            names.push_str(name);
        }
        let who = if names.is_empty() { "nobody does".into() } else { format!("there wait {names}") };
        Err(Refusal::NotInLine(format!("no candidate \"{to}\" waits in this election; {who}")))
    }

    /// Refuses one who leads or waits and counts for so much, in place of one that counted for so much before, if it is too much for all.
    pub(crate) fn check_candidate(&self, before: usize, after: usize) -> Result<(), Refusal> {
        let (max, all) = (self.limits.candidacies_bytes_max, self.sessions.candidacies_bytes() + self.reserved_bytes);
        // What is no longer than before makes nothing worse.
        if after > before && all - before + after > max {
            return Err(Refusal::limit("bytes in all who lead or wait", max));
        }
        Ok(())
    }

    /// Refuses a note or a job that was done, with these texts, if there is no room for one more.
    pub(crate) fn check_notes(&self, texts: &[&str]) -> Result<(), Refusal> {
        let max = self.limits.notes_bytes_max;
        if self.notes_bytes + record_size(texts) > max {
            return Err(Refusal::limit("bytes in all notes and jobs that were done", max));
        }
        Ok(())
    }

    /// The holder in office under this token: its session lives.
    pub(crate) fn in_office(&mut self, token: u64) -> Result<&mut Holder, Refusal> {
        let sessions = &*self.sessions;
        let holder = self.election.holders.iter_mut().find(|it| it.token == token && sessions.live(it.session).is_some());
        holder.ok_or(Refusal::NotInOffice(token))
    }
}

/// Whoever bids, before its place is known.
fn candidate(bid: &Campaign) -> Candidate {
    let name = if bid.name.is_empty() { &bid.identity } else { &bid.name };
    Candidate {
        identity: bid.identity.clone(),
        name: name.clone(),
        value: bid.value.clone(),
        priority: bid.priority,
        session: bid.session,
        arrival: 0,
        tenure_ms_min: bid.tenure_ms_min,
    }
}

/// The first incarnation all of whose tokens are greater.
pub(crate) fn incarnation_above(token: u64) -> Result<u16, Refusal> {
    u16::try_from((token >> TERM_BITS) + 1).ok().filter(|it| *it <= INCARNATION_MAX).ok_or(Refusal::TokensExhausted)
}
