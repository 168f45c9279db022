//! What is kept beside the line of candidates: the desk of an election, with all its seats, and a record for each candidate of ours.
//! Pure: no etcd.
//!
//! The line decides who leads. The desk only remembers: the incarnation of tokens, who is known to be seated and since when, what they are
//! asked to do, who led before. So it may lag behind the line, and whoever writes it brings it up to date.

use incumbent_protocol::protocol::{Term, Token};
use serde::{Deserialize, Serialize};

use crate::desk::{Desk, Holder, LAPSED, incarnation_of, whole_ms};
use crate::engine::{Bid, Error, Farewell, Wish};
use crate::identity::Identity;

/// The desk with all its seats. Its text is that of a [`Desk`] with the seats in `seated`; `holder`, `wish` and `term` are not used.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Ledger {
    #[serde(flatten)]
    desk: Desk,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    seated: Vec<Seated>,
}

/// One who leads, and what is wanted of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Seated {
    pub(super) holder: Holder,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) wish: Option<Wish>,
}

/// The token that a candidate at the head of the line should have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// This one.
    Plain(Token),
    /// One above this one, once the incarnation has been raised: the store has lost its memory.
    Raise(Token),
    /// None: somebody who came later has led already. It must stand in line anew.
    Missed,
}

impl Ledger {
    pub(super) fn read(text: &[u8]) -> Result<Ledger, Error> {
        serde_json::from_slice(text).map_err(|why| {
            Error::misconfigured(format!(
                "what etcd keeps for this election was not written by incumbent ({why}): choose another name or namespace, or remove it"
            ))
        })
    }

    pub(super) fn write(&self) -> String {
        serde_json::to_string(self).expect("a ledger has neither maps with odd keys nor numbers that JSON lacks")
    }

    /// The token of a candidate whose key was created at `revision`, with the store at `store_revision` now.
    pub(super) fn turn(&self, revision: i64, store_revision: i64, seen: Option<Token>) -> Result<Turn, Error> {
        let term = term(revision);
        let floor = seen.max(self.greatest());
        let usual = self.clone().desk.token(term, None)?;
        match floor {
            // A later number is to be had for the asking as long as the store counts on from there.
            Some(floor)
                if floor >= usual
                    && incarnation_of(floor) == self.desk.incarnation
                    && term_of(floor) <= self::term(store_revision) =>
            {
                Ok(Turn::Missed)
            }
            Some(floor) if floor >= usual => Ok(Turn::Raise(floor)),
            Some(_) | None => Ok(Turn::Plain(usual)),
        }
    }

    /// The greatest token of any leadership on record.
    fn greatest(&self) -> Option<Token> {
        let past = self.desk.past.iter().map(|it| it.token);
        self.seated.iter().map(|it| it.holder.token).chain(past).max()
    }

    /// The token of whoever leads with the key created at `revision`.
    pub(super) fn token_of(&self, revision: i64) -> Option<Token> {
        match self.seat_of(revision) {
            Some(seat) => Some(seat.holder.token),
            None => Token::new(self.desk.incarnation, Term(term(revision))),
        }
    }

    pub(super) fn seat_of(&self, revision: i64) -> Option<&Seated> {
        self.seated.iter().find(|it| term_of(it.holder.token) == term(revision))
    }

    /// Whether this leadership is on the desk.
    pub(super) fn knows(&self, token: Token) -> bool {
        self.seated.iter().any(|it| it.holder.token == token)
    }

    /// Seats one who leads, and clears away those who are not among the `leading` keys any more. Says whether anything changed.
    pub(super) fn seat(&mut self, holder: Holder, leading: &[i64]) -> bool {
        let known = self.knows(holder.token);
        let own = revision_of(holder.token);
        let cleared = self.clear_away(|revision| revision == own || leading.contains(&revision));
        if !known {
            self.seated.push(Seated { holder, wish: None });
        }
        cleared || !known
    }

    /// Whoever is seated with a key that does not stay has left without a word. Says whether there was one.
    pub(super) fn clear_away(&mut self, stays: impl Fn(i64) -> bool) -> bool {
        let before = self.seated.len();
        for gone in self.seated.extract_if(.., |it| !stays(revision_of(it.holder.token))) {
            self.desk.remember(gone.holder, LAPSED);
        }
        self.seated.len() != before
    }

    /// The holder leaves, whether the desk had heard of it or not. Where there is one seat, it was free when this holder took it: whoever else is on the desk had gone by then.
    pub(super) fn leave(&mut self, holder: Holder, seats: u32, farewell: &Farewell) {
        let known = self.seated.iter().position(|it| it.holder.token == holder.token);
        let holder = known.map_or(holder, |at| self.seated.remove(at).holder);
        if seats == 1 {
            for gone in self.seated.drain(..) {
                self.desk.remember_until(gone.holder, LAPSED, holder.since_ms);
            }
        }
        if self.desk.past.iter().all(|it| it.token != holder.token) {
            self.desk.remember(holder, &farewell.reason.to_string());
        }
    }

    /// What the holder is asked to do.
    pub(super) fn wish_for(&self, token: Token) -> Option<&Wish> {
        self.seated.iter().find(|it| it.holder.token == token)?.wish.as_ref()
    }

    /// Leaves a wish for one who is seated.
    pub(super) fn ask(&mut self, wish: &Wish) {
        if let Some(seat) = self.seated.iter_mut().find(|it| it.holder.token == wish.token) {
            seat.wish = Some(wish.clone());
        }
    }

    pub(super) fn raise(&mut self, above: Token) -> Result<(), Error> {
        self.desk.raise(above)
    }

    pub(super) fn note_for(&mut self, bid: &Bid, token: Token) {
        self.desk.note_for(bid, token);
    }

    pub(super) fn annotate(&mut self, token: Token, text: &str) {
        self.desk.annotate(token, text);
    }

    pub(super) fn notes(&self) -> Vec<crate::engine::Note> {
        self.desk.notes.clone()
    }

    pub(super) fn past(&self) -> Vec<crate::engine::Past> {
        self.desk.past.clone()
    }
}

/// Who a candidate of ours is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) identity: Identity,
    #[serde(default)]
    pub(super) priority: i32,
    pub(super) seats: u32,
    pub(super) ttl_ms: u64,
}

impl Record {
    pub(super) fn of(bid: &Bid) -> Record {
        Record { identity: bid.identity.clone(), priority: bid.priority, seats: bid.seats, ttl_ms: whole_ms(bid.ttl) }
    }

    /// `None` for what is no candidate's record (any more).
    pub(super) fn read(text: &[u8]) -> Option<Record> {
        serde_json::from_slice(text).ok()
    }

    pub(super) fn write(&self) -> String {
        serde_json::to_string(self).expect("a record has no maps, and no numbers that JSON lacks")
    }

    /// What the desk should know of the candidate if it leads with `token`.
    pub(super) fn holder(&self, token: Token, value: &str, since_ms: u64) -> Holder {
        Holder {
            identity: self.identity.clone(),
            token,
            value: value.to_owned(),
            priority: self.priority,
            ttl_ms: self.ttl_ms,
            since_ms,
            beat: 0,
            renewed_ms: None,
        }
    }
}

/// The term of a leadership: the revision at which its key was created.
pub(super) fn term_of(token: Token) -> u64 {
    token.get() & Term::MAX.0
}

/// Revisions of a store begin at 1.
fn term(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or(0)
}

/// The revision at which the key of this leadership was created.
pub(super) fn revision_of(token: Token) -> i64 {
    i64::try_from(term_of(token)).expect("a term has 48 bits")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use incumbent_protocol::tenure::Reason;

    use super::*;
    use crate::engine::Demand;

    fn token(incarnation: u16, term: u64) -> Token {
        Token::new(incarnation, Term(term)).expect("fits")
    }

    fn holder(name: &str, token: Token) -> Holder {
        let identity = Identity::named(name).expect("a good name");
        let bid =
            Bid { identity, ttl: Duration::from_secs(3), value: String::new(), priority: 0, seats: 1, seen: None, note: None };
        Record::of(&bid).holder(token, "", 1)
    }

    #[test]
    fn what_is_written_is_read() {
        let mut ledger = Ledger::default();
        assert!(ledger.seat(holder("a", token(0, 5)), &[5]));
        assert!(!ledger.clone().seat(holder("a", token(0, 5)), &[5]), "nothing new");
        ledger.ask(&Wish { token: token(0, 5), what: Demand::Evict, by: "me".into() });
        assert_eq!(Ledger::read(ledger.write().as_bytes()).expect("just written"), ledger);
        assert_eq!(Ledger::read(b"{}").expect("nothing on it"), Ledger::default());
        assert!(Ledger::read(b"value").is_err());
        assert_eq!(Desk::read(ledger.write().as_bytes()).expect("a desk").past, Vec::new());
    }

    #[test]
    fn who_is_gone_is_remembered_once() {
        let mut ledger = Ledger::default();
        ledger.seat(holder("a", token(0, 5)), &[5]);
        ledger.seat(holder("b", token(0, 7)), &[7, 8]);
        assert_eq!((ledger.past()[0].token, ledger.past()[0].reason.as_str()), (token(0, 5), "lease expired"));
        assert!(!ledger.clear_away(|revision| revision == 7), "it stays");
        let farewell = Farewell { reason: Reason::Resigned, to: None };
        ledger.leave(holder("b", token(0, 7)), 1, &farewell);
        ledger.leave(holder("b", token(0, 7)), 1, &farewell);
        ledger.leave(holder("c", token(0, 8)), 1, &farewell);
        let past: Vec<Token> = ledger.past().iter().map(|it| it.token).collect();
        assert_eq!(past, [token(0, 8), token(0, 7), token(0, 5)]);
    }

    /// One that leaves before it was written on the desk does not leave its predecessor there.
    #[test]
    fn who_was_gone_before_the_last_came_has_ended_by_then() {
        let mut ledger = Ledger::default();
        ledger.seat(holder("a", token(0, 5)), &[5]);
        let farewell = Farewell { reason: Reason::Resigned, to: None };
        ledger.leave(Holder { since_ms: 4000, ..holder("b", token(0, 7)) }, 1, &farewell);
        let past: Vec<_> = ledger.past().into_iter().map(|it| (it.token, it.reason)).collect();
        assert_eq!(past, [(token(0, 7), "resigned".to_owned()), (token(0, 5), "lease expired".to_owned())]);
        assert_eq!(ledger.past()[1].until_ms, 4000, "and not when somebody looks");
        // With two seats nobody knows that.
        let mut ledger = Ledger::default();
        ledger.seat(holder("a", token(0, 5)), &[5, 7]);
        ledger.leave(holder("b", token(0, 7)), 2, &farewell);
        assert!(ledger.knows(token(0, 5)));
    }

    #[test]
    fn who_is_missed_late_is_told_of_in_its_place() {
        let mut ledger = Ledger::default();
        ledger.seat(holder("a", token(0, 5)), &[5, 7]);
        ledger.leave(holder("b", token(0, 7)), 2, &Farewell { reason: Reason::Resigned, to: None });
        assert!(ledger.clear_away(|_| false));
        assert_eq!(ledger.past().iter().map(|it| it.token).collect::<Vec<_>>(), [token(0, 7), token(0, 5)]);
    }

    #[test]
    fn with_two_seats_both_stay() {
        let mut ledger = Ledger::default();
        ledger.seat(holder("a", token(0, 5)), &[5, 6]);
        ledger.seat(holder("b", token(0, 6)), &[5, 6]);
        assert!(ledger.knows(token(0, 5)) && ledger.knows(token(0, 6)) && ledger.past().is_empty());
        assert_eq!(ledger.turn(4, 9, None).expect("fits"), Turn::Missed, "one who came earlier must not lead with less");
        assert_eq!(ledger.turn(7, 9, None).expect("fits"), Turn::Plain(token(0, 7)));
    }

    #[test]
    fn a_store_that_has_lost_its_memory_raises_its_tokens() {
        let ledger = Ledger::default();
        assert_eq!(ledger.turn(3, 4, Some(token(0, 900))).expect("fits"), Turn::Raise(token(0, 900)));
        let mut raised = ledger;
        raised.raise(token(0, 900)).expect("fits");
        assert_eq!(raised.turn(3, 4, Some(token(0, 900))).expect("fits"), Turn::Plain(token(1, 3)));
        let mut ledger = Ledger::default();
        ledger.raise(token(6, 1)).expect("fits");
        assert_eq!(ledger.token_of(9), Some(token(7, 9)));
        assert!(ledger.raise(token(Token::INCARNATION_MAX, 1)).is_err());
    }
}
