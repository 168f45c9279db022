//! What may be asked of an election, one function each: checks first, then the change in its room.

use alloc::boxed::Box;

use super::room::{Parting, Room, incarnation_above};
use super::{Election, INCARNATION_MAX, TERM_BITS, Unknown};
use crate::command::{Annotate, Ask, Campaign, Complete, Demand, Evict, Forget, Proclaim, Raise, Renew, Resign, Wish, Withdraw};
use crate::election::{Completion, Note};
use crate::event::{Change, Completed, Noted, Proclaimed, Wished};
use crate::refusal::Refusal;
use crate::reply::{Renewed, Reply};
use crate::store::Store;
use crate::time::{Stamp, Time};

impl Store {
    pub(crate) fn campaign(&mut self, stamp: Stamp, bid: &Campaign) -> Result<Reply, Refusal> {
        self.check_name(&bid.election)?;
        self.check_identity(&bid.identity)?;
        self.check_text_as_identity(&bid.name)?;
        self.check_value(bid.value.len())?;
        if bid.seats > self.limits.seats_max {
            return Err(Refusal::limit("seats in one election", self.limits.seats_max as usize));
        }
        self.sessions.require(bid.session)?;
        let reply = self.in_room(stamp, &bid.election, Unknown::Begin, |room| room.campaign(bid))?;
        self.sessions.keep_alive(bid.session, stamp.at);
        Ok(reply)
    }

    pub(crate) fn renew(&mut self, stamp: Stamp, asked: &Renew) -> Result<Reply, Refusal> {
        let holder = self.elections.find(&asked.election).and_then(|it| it.holder(asked.token));
        let kept = holder.and_then(|it| Some((it, self.sessions.live(it.session)?.ttl_ms)));
        let Some((holder, ttl_ms)) = kept else {
            return Ok(Reply::Renewed(Renewed { in_office: false, ttl_ms: 0, wish: None }));
        };
        let renewed = Renewed { in_office: true, ttl_ms, wish: holder.wish.as_deref().cloned() };
        let session = holder.session;
        self.sessions.keep_alive(session, stamp.at);
        Ok(Reply::Renewed(renewed))
    }

    pub(crate) fn proclaim(&mut self, stamp: Stamp, asked: &Proclaim) -> Result<Reply, Refusal> {
        self.check_value(asked.value.len())?;
        let session = self.in_room(stamp, &asked.election, Unknown::Refuse, |room| {
            let (before, after) = (room.in_office(asked.token)?.value.len(), asked.value.len());
            room.check_candidate(before, after)?;
            room.sessions.resize_candidate(before, after);
            let holder = room.in_office(asked.token)?;
            holder.value = asked.value.clone();
            let session = holder.session;
            room.journal.advance();
            let change = Proclaimed { election: asked.election.clone(), token: asked.token, value: asked.value.clone() };
            room.journal.tell(Change::Proclaimed(change));
            Ok(session)
        });
        let session = session.map_err(|why| not_in_office(why, asked.token))?;
        self.sessions.keep_alive(session, stamp.at);
        Ok(self.done())
    }

    pub(crate) fn resign(&mut self, stamp: Stamp, asked: &Resign) -> Result<Reply, Refusal> {
        self.check_text(&asked.reason)?;
        self.check_text_as_identity(&asked.to)?;
        let reason = if asked.reason.is_empty() { "resigned" } else { &asked.reason };
        let parting = Parting { reason, to: &asked.to, unclean: false };
        self.part(stamp, &asked.election, asked.token, &parting)?;
        Ok(self.done())
    }

    pub(crate) fn evict(&mut self, stamp: Stamp, asked: &Evict) -> Result<Reply, Refusal> {
        self.check_text(&asked.reason)?;
        // It has not given the seat back, so it may still be at work: a holder that heeds a wish says "evicted".
        let reason = if asked.reason.is_empty() { "evicted by force" } else { &asked.reason };
        let parting = Parting { reason, to: "", unclean: true };
        if !self.part(stamp, &asked.election, asked.token, &parting)? {
            return Err(Refusal::NotInOffice(asked.token));
        }
        Ok(self.done())
    }

    /// Whether there was such a leadership.
    fn part(&mut self, stamp: Stamp, election: &str, token: u64, parting: &Parting<'_>) -> Result<bool, Refusal> {
        match self.in_room(stamp, election, Unknown::Refuse, |room| Ok(room.vacate(token, parting))) {
            Err(Refusal::NoElection) => Ok(false),
            other => other,
        }
    }

    pub(crate) fn withdraw(&mut self, stamp: Stamp, asked: &Withdraw) -> Result<Reply, Refusal> {
        match self.in_room(stamp, &asked.election, Unknown::Refuse, |room| Ok(room.leave(&asked.identity))) {
            Ok(_) | Err(Refusal::NoElection) => Ok(self.done()),
            Err(other) => Err(other),
        }
    }

    pub(crate) fn ask(&mut self, stamp: Stamp, guest: &str, asked: &Ask) -> Result<Reply, Refusal> {
        let wish = asked.wish.as_ref().ok_or_else(|| Refusal::malformed("a wish is missing"))?;
        self.check_text(&wish.by)?;
        self.check_text_as_identity(&wish.to)?;
        let demand = Demand::try_from(wish.demand).map_err(|_| Refusal::malformed("a demand that this version does not know"))?;
        if (demand == Demand::HandOver) == wish.to.is_empty() {
            return Err(Refusal::malformed("to hand over takes somebody to hand over to, and nothing else does"));
        }
        let wished = self.in_room(stamp, &asked.election, Unknown::Refuse, |room| {
            let priority = room.in_office(wish.token)?.priority;
            if asked.as_candidate {
                room.check_better(guest, demand, &wish.to, priority)?;
            }
            if asked.only_in_line && demand == Demand::HandOver {
                room.check_in_line(&wish.to)?;
            }
            let holder = room.in_office(wish.token)?;
            let served = Time::from_nanos(holder.since_ns).after_ms(holder.tenure_ms_min);
            if asked.after_tenure && stamp.at < served {
                return Err(Refusal::TooEarly(stamp.at.ms_until(served)));
            }
            let (before, after) = (holder.wish.as_deref().map_or(0, Wish::kept_bytes), wish.kept_bytes());
            room.check_candidate(before, after)?;
            room.sessions.resize_candidate(before, after);
            let holder = room.in_office(wish.token)?;
            holder.wish = Some(Box::new(wish.clone()));
            let identity = holder.identity.clone();
            room.journal.advance();
            let wished = Wished { election: asked.election.clone(), identity, wish: wish.clone() };
            room.journal.tell(Change::Wished(Box::new(wished)));
            Ok(())
        });
        wished.map_err(|why| not_in_office(why, wish.token))?;
        Ok(self.done())
    }

    pub(crate) fn annotate(&mut self, stamp: Stamp, asked: &Annotate) -> Result<Reply, Refusal> {
        self.check_text(&asked.text)?;
        self.in_room(stamp, &asked.election, Unknown::Refuse, |room| {
            let incarnation = room.incarnation.max(room.election.incarnation);
            if asked.token > (u64::from(incarnation) << TERM_BITS | room.journal.revision()) {
                // Nobody has had it yet; its note would stand above all others for ever.
                return Err(Refusal::NotInOffice(asked.token));
            }
            room.check_notes(&[&asked.text])?;
            let note = Note { token: asked.token, text: asked.text.clone() };
            let max = room.limits.records_max;
            room.election.records().annotate(note.clone(), max);
            room.journal.advance();
            room.journal.tell(Change::Noted(Noted { election: asked.election.clone(), note }));
            Ok(())
        })?;
        Ok(self.done())
    }

    pub(crate) fn complete(&mut self, stamp: Stamp, asked: &Complete) -> Result<Reply, Refusal> {
        self.check_text(&asked.outcome)?;
        self.check_text_as_identity(&asked.job)?;
        let completed = self.in_room(stamp, &asked.election, Unknown::Refuse, |room| {
            if let Some(before) = room.election.records.as_ref().and_then(|it| it.completion(&asked.job)) {
                return Err(Refusal::AlreadyComplete(before.token));
            }
            room.in_office(asked.token)?;
            room.check_notes(&[&asked.job, &asked.outcome])?;
            let (job, outcome) = (asked.job.clone(), asked.outcome.clone());
            let completion = Completion { job, token: asked.token, wall_ms: stamp.wall_ms, outcome };
            let max = room.limits.records_max;
            room.election.records().complete(completion.clone(), max);
            room.journal.advance();
            let completed = Completed { election: asked.election.clone(), completion };
            room.journal.tell(Change::Completed(Box::new(completed)));
            Ok(())
        });
        completed.map_err(|why| not_in_office(why, asked.token))?;
        Ok(self.done())
    }

    pub(crate) fn raise(&mut self, stamp: Stamp, asked: &Raise) -> Result<Reply, Refusal> {
        if asked.election.is_empty() {
            if (u64::from(self.incarnation) << TERM_BITS | (self.journal.revision() + 1)) <= asked.above {
                self.incarnation = incarnation_above(asked.above)?;
            }
        } else {
            self.check_name(&asked.election)?;
            self.in_room(stamp, &asked.election, Unknown::Begin, |room| room.rise_above(asked.above, INCARNATION_MAX))?;
        }
        Ok(self.done())
    }

    pub(crate) fn forget(&mut self, asked: &Forget) -> Result<Reply, Refusal> {
        // One that is to be remembered for its incarnation alone has been forgotten as far as it can be.
        let known = self.elections.find(&asked.election).filter(|it| !it.is_forgotten() || it.incarnation <= self.incarnation);
        let election = known.ok_or(Refusal::NoElection)?;
        if !election.is_deserted() || !election.reservations.is_empty() {
            return Err(Refusal::Occupied);
        }
        // Its tokens must not come again under the same name. If it was raised above the others, that alone is remembered: whoever may forget one election must not use up the tokens of all.
        let incarnation = if election.incarnation > self.incarnation { election.incarnation } else { 0 };
        self.elections.change(&asked.election, Unknown::Refuse, &self.limits, |_, election| {
            *election = Election { incarnation, ..Election::default() };
            Ok(())
        })?;
        Ok(self.done())
    }

    /// A candidate goes with its session. Answers what that has cost.
    pub(crate) fn end_candidacy(&mut self, stamp: Stamp, election: &str, identity: &str, reason: &str, unclean: bool) -> usize {
        let ended = self.in_room(stamp, election, Unknown::Refuse, |room| {
            if !room.leave(identity)
                && let Some(holder) = room.election.holders.iter().find(|it| it.identity == identity)
            {
                let token = holder.token;
                room.vacate(token, &Parting { reason, to: "", unclean });
            }
            Ok(room.cost())
        });
        ended.expect("who is attached to a session stands in an election")
    }

    /// Seats whose delay is over are given away. Answers what that has cost.
    pub(crate) fn wake_election(&mut self, stamp: Stamp, election: &str) -> usize {
        let woken = self.in_room(stamp, election, Unknown::Refuse, |room| {
            room.fill("");
            Ok(room.cost())
        });
        woken.expect("an election that is due is there")
    }

    fn in_room<T>(
        &mut self,
        stamp: Stamp,
        name: &str,
        unknown: Unknown,
        act: impl FnOnce(&mut Room<'_>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let (notes_bytes, reserved_bytes) = (self.elections.notes_bytes(), self.elections.reserved_bytes());
        self.elections.change(name, unknown, &self.limits, |name, election| {
            act(&mut Room {
                name,
                election,
                sessions: &mut self.sessions,
                journal: &mut self.journal,
                stamp,
                incarnation: self.incarnation,
                notes_bytes,
                reserved_bytes,
                limits: &self.limits,
                given: 0,
            })
        })
    }

    fn check_name(&self, name: &str) -> Result<(), Refusal> {
        match name.len() {
            0 => Err(Refusal::malformed("an election has a name")),
            len if len > self.limits.name_len_max => {
                Err(Refusal::limit("bytes in the name of an election", self.limits.name_len_max))
            }
            _ => Ok(()),
        }
    }

    fn check_identity(&self, identity: &str) -> Result<(), Refusal> {
        if identity.is_empty() {
            return Err(Refusal::malformed("a candidate has an identity"));
        }
        self.check_text_as_identity(identity)
    }

    fn check_text_as_identity(&self, text: &str) -> Result<(), Refusal> {
        let max = self.limits.identity_len_max;
        if text.len() > max { Err(Refusal::limit("bytes in an identity, a name or a job", max)) } else { Ok(()) }
    }

    pub(crate) fn check_text(&self, text: &str) -> Result<(), Refusal> {
        let max = self.limits.text_len_max;
        if text.len() > max { Err(Refusal::limit("bytes in a text", max)) } else { Ok(()) }
    }

    fn check_value(&self, len: usize) -> Result<(), Refusal> {
        let max = self.limits.value_len_max;
        if len > max { Err(Refusal::limit("bytes in a value", max)) } else { Ok(()) }
    }

    pub(crate) fn done(&self) -> Reply {
        Reply::Done(self.journal.revision())
    }

    /// Whether the leadership is in office, and its session lives: the fence.
    pub fn is_in_office(&self, election: &str, token: u64) -> bool {
        let holder = self.elections.find(election).and_then(|it| it.holder(token));
        holder.is_some_and(|it| self.sessions.live(it.session).is_some())
    }
}

/// Where there is no election, no leadership is in office.
fn not_in_office(why: Refusal, token: u64) -> Refusal {
    if why == Refusal::NoElection { Refusal::NotInOffice(token) } else { why }
}
