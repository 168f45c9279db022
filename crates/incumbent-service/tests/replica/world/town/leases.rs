//! What must be true of sessions, seats and tokens, in true time: L1 to L5 of the fault catalogue.
//!
//! It sees what clients believe, when an entry was stamped, and what the store has told; no replica and no store. A client believes until a moment that counts from the *send* of what was
//! acknowledged last, less drift and guard. Where clocks run as they like, L3 and L4 are not promised: then it counts what breaks them. Left out: lateness (L7), which is judged in
//! `condition.rs`.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Buf;
use incumbent_store::event::{Change, Event};

use crate::world::Moment;
use crate::world::clocks::Clocks;

/// What a session that nobody kept alive ends with.
const EXPIRED: &str = "lease expired";

pub(crate) struct Leases {
    clocks: Clocks,
    /// How many may lead.
    seats: BTreeMap<String, usize>,
    sessions: BTreeMap<u64, Lease>,
    /// Who believes to lead, by client.
    beliefs: BTreeMap<usize, Belief>,
    /// Sessions whose candidate has stood and not resigned.
    standing: BTreeSet<u64>,
    holders: BTreeMap<String, BTreeSet<u64>>,
    last_token: u64,
    /// The greatest token that any client was told of, by election.
    told: BTreeMap<String, u64>,
    /// The token of the last fenced write that was accepted, by its key.
    fenced: BTreeMap<Vec<u8>, u64>,
    pub(crate) expired: u64,
    pub(crate) elected: u64,
    /// How often clocks beyond their bound have cost what they may cost.
    pub(crate) outrun: u64,
}

#[derive(Default)]
struct Lease {
    until: Moment,
    /// When the entry was stamped that ended it by time.
    expired: Option<Moment>,
}

struct Belief {
    election: String,
    token: u64,
    until: Moment,
}

impl Leases {
    pub(crate) fn new(seats: &[(&str, usize)], clocks: Clocks) -> Leases {
        Leases {
            clocks,
            seats: seats.iter().map(|(name, seats)| ((*name).to_owned(), *seats)).collect(),
            sessions: BTreeMap::new(),
            beliefs: BTreeMap::new(),
            standing: BTreeSet::new(),
            holders: BTreeMap::new(),
            last_token: 0,
            told: BTreeMap::new(),
            fenced: BTreeMap::new(),
            expired: 0,
            elected: 0,
            outrun: 0,
        }
    }

    /// Something that is wrong if clocks keep to their bound, and only then.
    pub(crate) fn on_outrun(&mut self, what: String) -> Result<(), String> {
        self.outrun += 1;
        match self.clocks {
            Clocks::WithinBound => Err(what),
            Clocks::BeyondBound => Ok(()),
        }
    }

    /// Whether somebody leads anywhere.
    pub(crate) fn any_held(&self) -> bool {
        self.holders.values().any(|it| !it.is_empty())
    }

    /// A client has heard that its session was kept alive: it counts on it until then.
    pub(crate) fn on_kept(&mut self, session: u64, until: Moment) -> Result<(), String> {
        let lease = self.sessions.entry(session).or_default();
        lease.until = lease.until.max(until);
        self.judge(session)
    }

    fn judge(&mut self, session: u64) -> Result<(), String> {
        let Some(lease) = self.sessions.get(&session) else { return Ok(()) };
        match lease.expired {
            Some(expired) if lease.until > expired => {
                let early = lease.until - expired;
                self.on_outrun(format!("L3: session {session} has expired {early} ns before its owner could know"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// A client leads as far as it knows, until then.
    pub(crate) fn on_belief(
        &mut self,
        client: usize,
        election: &str,
        token: u64,
        now: Moment,
        until: Moment,
    ) -> Result<(), String> {
        let others =
            self.beliefs.iter().filter(|(it, belief)| **it != client && belief.election == election && belief.until > now);
        let others: Vec<usize> = others.map(|(it, _)| *it).collect();
        if until > now && others.len() >= self.seats.get(election).copied().unwrap_or(1) {
            self.on_outrun(format!("L4: client {client} believes to lead {election} with {token}, and so do {others:?}"))?;
        }
        self.beliefs.insert(client, Belief { election: election.to_owned(), token, until });
        Ok(())
    }

    /// A client has stopped its work, or is dead.
    pub(crate) fn on_end_of_belief(&mut self, client: usize) {
        self.beliefs.remove(&client);
    }

    /// A client has heard that its session is gone.
    pub(crate) fn on_told_gone(&mut self, session: u64, now: Moment) -> Result<(), String> {
        self.standing.remove(&session);
        match self.sessions.get(&session) {
            Some(lease) if lease.until > now => {
                let early = lease.until - now;
                self.on_outrun(format!("L4: session {session} is said to be gone {early} ns early"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// A client has heard that it does not lead, or that others do in its place.
    pub(crate) fn on_told_lost(&mut self, client: usize, token: u64, now: Moment) -> Result<(), String> {
        match self.beliefs.remove(&client) {
            Some(belief) if belief.token == token && belief.until > now => self.on_outrun(format!(
                "L4: client {client} is told that it has lost {token}, and had counted on it for {} ns more",
                belief.until - now
            )),
            Some(_) | None => Ok(()),
        }
    }

    pub(crate) fn on_stands(&mut self, session: u64) {
        self.standing.insert(session);
    }

    /// It has resigned, and knows that this was done.
    pub(crate) fn on_resigned(&mut self, session: u64) {
        self.standing.remove(&session);
    }

    /// Its owner counts on it no more.
    pub(crate) fn on_left(&mut self, session: u64) {
        self.sessions.remove(&session);
    }

    /// The greatest token that anyone was told of.
    pub(crate) fn told(&self, election: &str) -> u64 {
        self.told.get(election).copied().unwrap_or_default()
    }

    /// A client is told of a grant that it has asked for when others were told of tokens up to `floor`.
    pub(crate) fn on_granted(&mut self, election: &str, floor: u64, token: u64) -> Result<(), String> {
        let told = self.told.entry(election.to_owned()).or_default();
        *told = (*told).max(token);
        // Where several lead, one may be told late of a seat that it was given before another.
        let alone = self.seats.get(election).is_none_or(|it| *it == 1);
        if alone && token < floor {
            return Err(format!("L1: token {token} was asked for after {floor} was given"));
        }
        Ok(())
    }

    /// The store tells this, of an entry that was stamped then.
    pub(crate) fn on_event(&mut self, event: &Event, stamped: Moment) -> Result<(), String> {
        match event.change.as_ref() {
            Some(Change::SessionEnded(ended)) if ended.reason == EXPIRED => {
                self.expired += 1;
                let lease = self.sessions.entry(ended.session).or_default();
                lease.expired = Some(stamped);
                self.judge(ended.session)
            }
            Some(Change::Elected(it)) => self.on_elected(&it.election, it.holder.token, it.holder.session),
            Some(Change::Ended(it)) => {
                let held = self.holders.entry(it.election.clone()).or_default().remove(&it.past.token);
                let believer = self.beliefs.iter().find(|(_, belief)| belief.token == it.past.token && belief.until > stamped);
                if let Some((client, belief)) = believer {
                    let early = belief.until - stamped;
                    let (token, reason) = (it.past.token, &it.past.reason);
                    let what = format!(
                        "L4: the seat with {token} is taken ({reason}) while client {client} counts on it for {early} ns more"
                    );
                    self.on_outrun(what)?;
                }
                if held { Ok(()) } else { Err(format!("L2: {} has ended and was not in office", it.past.token)) }
            }
            Some(Change::Put(put)) if put.item.key.starts_with(b"f/") => {
                let token = put.item.value.clone().get_u64();
                let last = self.fenced.entry(put.item.key.to_vec()).or_default();
                if token < *last {
                    return Err(format!("L5: a write with {token} is accepted after one with {last}"));
                }
                *last = token;
                Ok(())
            }
            Some(
                Change::SessionEnded(_)
                | Change::Put(_)
                | Change::Deleted(_)
                | Change::Proclaimed(_)
                | Change::Wished(_)
                | Change::Joined(_)
                | Change::Left(_)
                | Change::First(_)
                | Change::Noted(_)
                | Change::Completed(_),
            )
            | None => Ok(()),
        }
    }

    fn on_elected(&mut self, election: &str, token: u64, session: u64) -> Result<(), String> {
        self.elected += 1;
        let seats = self.seats.get(election).copied().unwrap_or(1);
        let holders = self.holders.entry(election.to_owned()).or_default();
        holders.insert(token);
        if token <= self.last_token {
            return Err(format!("L1: token {token} is given after {}", self.last_token));
        }
        self.last_token = token;
        if holders.len() > seats {
            return Err(format!("L2: {holders:?} lead {election}, which has seats for {seats}"));
        }
        if !self.standing.contains(&session) {
            return Err(format!("C76: {token} is given to session {session}, which has resigned and not stood again"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use incumbent_store::election::{Holder, Past};
    use incumbent_store::event::{Elected, Ended, KeyPut, SessionEnded};
    use incumbent_store::keys::item::Item;

    use super::*;

    fn told(change: Change) -> Event {
        Event { revision: 1, change: Some(change) }
    }

    fn elected(token: u64, session: u64) -> Event {
        let holder = Holder { token, session, ..Holder::default() };
        told(Change::Elected(Box::new(Elected { election: "one".to_owned(), holder })))
    }

    fn ended(token: u64) -> Event {
        let past = Past { token, ..Past::default() };
        told(Change::Ended(Box::new(Ended { election: "one".to_owned(), past })))
    }

    fn expired(session: u64) -> Event {
        told(Change::SessionEnded(SessionEnded { session, reason: EXPIRED.to_owned() }))
    }

    fn leases() -> Leases {
        on(Clocks::WithinBound)
    }

    fn on(clocks: Clocks) -> Leases {
        let mut leases = Leases::new(&[("one", 1), ("two", 2)], clocks);
        leases.on_stands(7);
        leases
    }

    fn wrong(what: Result<(), String>, which: &str) {
        assert!(what.as_ref().is_err_and(|it| it.starts_with(which)), "{what:?}");
    }

    #[test]
    fn a_session_that_ends_before_its_owner_could_know_is_found_whichever_is_seen_first() {
        let mut late = leases();
        assert_eq!(late.on_kept(7, 100), Ok(()));
        assert_eq!(late.on_event(&expired(7), 100), Ok(()));
        let mut early = leases();
        assert_eq!(early.on_kept(7, 100), Ok(()));
        wrong(early.on_event(&expired(7), 99), "L3");
        let mut unheard = leases();
        assert_eq!(unheard.on_event(&expired(7), 99), Ok(()));
        wrong(unheard.on_kept(7, 100), "L3");
        let mut heard = leases();
        assert_eq!(heard.on_kept(7, 100), Ok(()));
        wrong(heard.on_told_gone(7, 99), "L4");
        assert_eq!(heard.on_told_gone(7, 100), Ok(()));
    }

    #[test]
    fn two_who_believe_to_lead_are_found_and_as_many_as_there_are_seats_are_not() {
        let mut leases = leases();
        assert_eq!(leases.on_belief(0, "one", 1, 10, 50), Ok(()));
        wrong(leases.on_belief(1, "one", 2, 49, 90), "L4");
        assert_eq!(leases.on_belief(1, "one", 2, 50, 90), Ok(()), "the first has stopped");
        assert_eq!(leases.on_belief(2, "two", 3, 50, 90), Ok(()));
        assert_eq!(leases.on_belief(3, "two", 4, 50, 90), Ok(()));
        wrong(leases.on_belief(4, "two", 5, 50, 90), "L4");
        leases.on_end_of_belief(2);
        assert_eq!(leases.on_belief(4, "two", 5, 50, 90), Ok(()));
    }

    #[test]
    fn a_seat_that_is_taken_from_one_who_counts_on_it_is_found() {
        let mut leases = leases();
        assert_eq!(leases.on_event(&elected(1, 7), 5), Ok(()));
        assert_eq!(leases.on_belief(0, "one", 1, 10, 50), Ok(()));
        wrong(leases.on_event(&ended(1), 49), "L4");
        assert_eq!(leases.on_belief(0, "one", 1, 10, 50), Ok(()));
        wrong(leases.on_told_lost(0, 1, 49), "L4");
        assert_eq!(leases.on_told_lost(0, 1, 49), Ok(()), "it counts on nothing any more");
        wrong(leases.on_event(&ended(3), 50), "L2");
    }

    #[test]
    fn tokens_that_do_not_rise_two_holders_and_a_seat_for_one_who_left_are_found() {
        let mut falling = leases();
        assert_eq!(falling.on_event(&elected(4, 7), 5), Ok(()));
        assert_eq!(falling.on_event(&ended(4), 6), Ok(()));
        wrong(falling.on_event(&elected(4, 7), 7), "L1");
        let mut two = leases();
        assert_eq!(two.on_event(&elected(4, 7), 5), Ok(()));
        wrong(two.on_event(&elected(5, 7), 5), "L2");
        let mut left = leases();
        left.on_resigned(7);
        wrong(left.on_event(&elected(4, 7), 5), "C76");
        let mut old = leases();
        assert_eq!(old.on_granted("one", 0, 9), Ok(()));
        assert_eq!(old.told("one"), 9);
        wrong(old.on_granted("one", 9, 8), "L1");
    }

    /// C35.
    #[test]
    fn on_clocks_beyond_their_bound_beliefs_are_counted_and_tokens_seats_and_fences_judged() {
        let mut leases = on(Clocks::BeyondBound);
        assert_eq!(leases.on_event(&elected(4, 7), 5), Ok(()));
        assert_eq!(leases.on_belief(0, "one", 4, 10, 50), Ok(()));
        assert_eq!(leases.on_event(&ended(4), 49), Ok(()), "L4, of a seat");
        assert_eq!(leases.on_belief(1, "one", 5, 49, 90), Ok(()), "L4, of two who believe");
        assert_eq!(leases.on_told_lost(0, 4, 49), Ok(()), "L4, of one who is told");
        assert_eq!((leases.on_kept(7, 100), leases.on_event(&expired(7), 99)), (Ok(()), Ok(())), "L3");
        assert_eq!((leases.on_told_gone(7, 99), leases.outrun), (Ok(()), 5), "L4, of a session");
        leases.on_stands(7);
        assert_eq!(leases.on_event(&elected(6, 7), 100), Ok(()));
        wrong(leases.on_event(&elected(8, 7), 101), "L2");
        wrong(leases.on_event(&elected(8, 7), 102), "L1");
    }

    #[test]
    fn a_write_of_a_former_leader_is_found() {
        let mut leases = on(Clocks::BeyondBound);
        let mut put = |token: u64| {
            let item = Item { key: "f/one".into(), value: token.to_be_bytes().to_vec().into(), ..Item::default() };
            leases.on_event(&told(Change::Put(Box::new(KeyPut { item, previous: None }))), 1)
        };
        assert_eq!((put(4), put(4), put(5)), (Ok(()), Ok(()), Ok(())));
        wrong(put(4), "L5");
    }
}
