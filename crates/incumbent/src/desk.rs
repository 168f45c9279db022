//! What lies on the desk of an election: the document that engines keep beside or instead of a lock. Pure: no clock, no engine.
//!
//! It holds who leads, whom the seat is kept for, what the holder is asked to do, and who led before. Engines whose lock can hold a
//! text (a file, a NATS entry, a Consul key) keep the seat itself in it; others keep it beside the lock, for all but the decision.

use std::cmp::Reverse;
use std::time::{Duration, SystemTime};

use incumbent_protocol::protocol::{Term, Token};
use serde::{Deserialize, Serialize};

use crate::engine::{Bid, Board, Candidate, Error, Farewell, Leader, Note, Past, Wish};
use crate::identity::Identity;

/// The document. Unknown fields of later versions are dropped.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Desk {
    /// Rises when the engine has lost its memory.
    pub incarnation: u16,
    /// Terms counted here, for engines that have no counter of their own.
    pub term: u64,
    /// Who leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    /// Whom the seat is kept for after a hand-over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
    /// What the holder is asked to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wish: Option<Wish>,
    /// Who led before, newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub past: Vec<Past>,
    /// What was noted of leaderships, newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
}

/// A seat that was handed over and not yet taken.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// A candidate's whole identity, or its name.
    pub to: String,
    /// It is kept for so long, on the engine's clock or, where that has none, since the candidate first saw it. Then it is anybody's.
    pub ms: u64,
}

/// Who leads, as the desk knows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Holder {
    /// Who.
    pub identity: Identity,
    /// The token.
    #[serde(with = "token_as_number")]
    pub token: Token,
    /// What it publishes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// Its priority.
    #[serde(default)]
    pub priority: i32,
    /// The ttl it asked for.
    pub ttl_ms: u64,
    /// Since when, for people.
    pub since_ms: u64,
    /// Rises with every renewal, for engines in which a change is the only sign of life.
    #[serde(default)]
    pub beat: u64,
    /// When it was last renewed, by its own wall clock, for people; only where a renewal writes the desk anyhow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed_ms: Option<u64>,
}

impl Desk {
    /// Reads a desk. One that cannot be read is a reason to stop, not to begin anew: tokens would go back.
    pub fn read(text: &[u8]) -> Result<Desk, Error> {
        serde_json::from_slice(text).map_err(|why| {
            Error::misconfigured(format!(
                "what the engine keeps for this election was not written by incumbent ({why}): choose another name or namespace, or remove it"
            ))
        })
    }

    /// The text to store.
    pub fn write(&self) -> String {
        serde_json::to_string(self).expect("a desk has neither maps with odd keys nor numbers that JSON lacks")
    }

    /// The token of `term` here, raised above `seen` by a new incarnation if need be.
    pub fn token(&mut self, term: u64, seen: Option<Token>) -> Result<Token, Error> {
        let token = |incarnation| {
            Token::new(incarnation, Term(term)).ok_or_else(|| {
                Error::misconfigured(format!(
                    "incarnation {incarnation} or term {term} is too great for a token: use another election"
                ))
            })
        };
        let usual = token(self.incarnation)?;
        match seen {
            Some(seen) if seen >= usual => {
                self.incarnation = incarnation_of(seen).max(self.incarnation) + 1;
                token(self.incarnation)
            }
            Some(_) | None => Ok(usual),
        }
    }

    /// Raises the incarnation so that every later token is greater than `above`. Refused if there is none so great: no claim could succeed any more.
    pub fn raise(&mut self, above: Token) -> Result<(), Error> {
        let incarnation = self.incarnation.max(incarnation_of(above) + 1);
        if incarnation > Token::INCARNATION_MAX {
            return Err(Error::refused(format!(
                "no token is greater than every one of incarnation {}, which {above} is of: nothing was raised",
                incarnation - 1
            )));
        }
        self.incarnation = incarnation;
        Ok(())
    }

    /// Seats the bidder. Whoever sat there has left without a word.
    pub fn seat(&mut self, bid: &Bid, token: Token) {
        if let Some(former) = self.holder.take() {
            self.lapse(former);
        }
        self.holder = Some(Holder {
            identity: bid.identity.clone(),
            token,
            value: bid.value.clone(),
            priority: bid.priority,
            ttl_ms: whole_ms(bid.ttl),
            since_ms: wall_ms(),
            beat: 0,
            renewed_ms: None,
        });
        self.kept = None;
        self.wish = None;
    }

    /// Notes what a bidder who is seated wants to be noted of it. Once that is written its grant is [`Grant::noting`](crate::engine::Grant::noting).
    pub fn note_for(&mut self, bid: &Bid, token: Token) {
        if let Some(note) = &bid.note {
            self.annotate(token, note);
        }
    }

    /// The holder leaves, if it is the one with this token. Says whether it was.
    pub fn leave(&mut self, token: Token, farewell: &Farewell) -> bool {
        if self.holder.as_ref().is_none_or(|it| it.token != token) {
            return false;
        }
        let former = self.holder.take().expect("looked at above");
        // A candidate that is alive asks at least twice in a ttl.
        self.kept = farewell.to.clone().map(|to| Kept { to, ms: former.ttl_ms });
        self.remember(former, &farewell.reason.to_string());
        self.wish = None;
        true
    }

    /// Notes something of a leadership, in place of what was noted before.
    pub fn annotate(&mut self, token: Token, text: &str) {
        self.notes.retain(|it| it.token != token);
        let at = self.notes.iter().position(|it| it.token < token).unwrap_or(self.notes.len());
        self.notes.insert(at, Note { token, text: text.to_owned() });
        self.notes.truncate(Past::KEPT_MAX);
    }

    /// Leaves a wish for the holder; refused if it is not the one that is meant.
    pub fn ask(&mut self, wish: &Wish) -> Result<(), Error> {
        match &self.holder {
            Some(holder) if holder.token == wish.token => {
                self.wish = Some(wish.clone());
                Ok(())
            }
            Some(_) | None => Err(Error::refused(format!("the leadership with token {} is no longer in office", wish.token))),
        }
    }

    /// The wish that the holder with this token should heed.
    pub fn wish_for(&self, token: Token) -> Option<Wish> {
        self.wish.clone().filter(|it| it.token == token)
    }

    /// Whether the seat is kept for somebody other than this bidder.
    pub fn is_kept_from(&self, bidder: &Identity) -> bool {
        self.kept.as_ref().is_some_and(|it| it.to != bidder.as_str() && it.to != bidder.name())
    }

    /// What people see of it.
    pub fn board(&self, candidates: Vec<Candidate>) -> Board {
        Board {
            leaders: self.holder.iter().map(Holder::leader).collect(),
            candidates,
            past: self.past.clone(),
            notes: self.notes.clone(),
        }
    }

    /// Puts on record a leadership that ends now, or has ended nobody knows when.
    pub fn remember(&mut self, former: Holder, reason: &str) {
        self.remember_until(former, reason, u64::MAX);
    }

    /// Puts on record a leadership whose holder has left without a word: it has ended when its lease did, if that is known.
    pub fn lapse(&mut self, former: Holder) {
        let until_ms = former.renewed_ms.map_or(u64::MAX, |it| it.saturating_add(former.ttl_ms));
        self.remember_until(former, LAPSED, until_ms);
    }

    /// Puts an ended leadership on record: no end is later than now, or before its beginning.
    pub fn remember_until(&mut self, former: Holder, reason: &str, until_ms: u64) {
        let past = Past {
            identity: former.identity,
            token: former.token,
            since_ms: former.since_ms,
            until_ms: until_ms.min(wall_ms()).max(former.since_ms),
            reason: reason.to_owned(),
        };
        self.past.insert(0, past);
        // Who is missed late may have led before those who have ended since.
        self.past.sort_by_key(|it| Reverse(it.token));
        self.past.truncate(Past::KEPT_MAX);
    }
}

/// Why a leadership has ended whose holder has left without a word.
pub(crate) const LAPSED: &str = "lease expired";

impl Holder {
    /// What people see of it.
    pub fn leader(&self) -> Leader {
        Leader {
            identity: self.identity.clone(),
            token: self.token,
            value: self.value.clone(),
            priority: self.priority,
            since: Some(SystemTime::UNIX_EPOCH + Duration::from_millis(self.since_ms)),
            heeds_wishes: true,
        }
    }
}

/// The incarnation that a token is of.
pub fn incarnation_of(token: Token) -> u16 {
    u16::try_from(token.get() >> 48).expect("a token has 15 bits of incarnation")
}

/// The wall clock, for people.
pub fn wall_ms() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, whole_ms)
}

/// A span in milliseconds, rounded up: what is promised must not become shorter on the way.
pub fn whole_ms(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Tokens as numbers in JSON.
pub mod token_as_number {
    use incumbent_protocol::protocol::{Term, Token};
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes one.
    pub fn serialize<S: Serializer>(token: &Token, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_u64(token.get())
    }

    /// Reads one.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Token, D::Error> {
        let number = u64::deserialize(from)?;
        let incarnation = u16::try_from(number >> 48).unwrap_or(u16::MAX);
        Token::new(incarnation, Term(number & Term::MAX.0)).ok_or_else(|| D::Error::custom(format!("{number} is no token")))
    }
}

#[cfg(test)]
mod tests {
    use incumbent_protocol::tenure::Reason;

    use super::*;
    use crate::engine::Demand;

    fn bid(name: &str) -> Bid {
        let identity = Identity::named(name).expect("a good name");
        Bid { identity, ttl: Duration::from_secs(3), value: "here".into(), priority: 0, seats: 1, seen: None, note: None }
    }

    fn token(incarnation: u16, term: u64) -> Token {
        Token::new(incarnation, Term(term)).expect("fits")
    }

    #[test]
    fn what_is_written_is_read() {
        let mut desk = Desk::default();
        desk.seat(&bid("a"), token(0, 1));
        desk.seat(&bid("b"), token(0, 2));
        desk.ask(&Wish { token: token(0, 2), what: Demand::HandOver("a".into()), by: "me".into() }).expect("b leads");
        assert_eq!(Desk::read(desk.write().as_bytes()).expect("just written"), desk);
        assert_eq!(desk.past[0].reason, "lease expired");
        assert!(Desk::read(b"hello").is_err());
        assert!(Desk::read(br#"{"holder":{"token":18446744073709551615}}"#).is_err(), "a token without room for the sign");
    }

    #[test]
    fn the_past_is_told_newest_first_whoever_was_missed_first() {
        let mut desk = Desk::default();
        for term in [2, 1, 3] {
            desk.seat(&bid("a"), token(0, term));
            let former = desk.holder.take().expect("just seated");
            desk.remember(former, LAPSED);
        }
        assert_eq!(desk.past.iter().map(|it| it.token).collect::<Vec<_>>(), [token(0, 3), token(0, 2), token(0, 1)]);
    }

    #[test]
    fn a_silent_leadership_has_ended_with_its_lease_if_that_is_known() {
        let until_ms = |since_ms, renewed_ms| {
            let mut desk = Desk::default();
            desk.seat(&bid("a"), token(0, 1));
            let holder = desk.holder.as_mut().expect("just seated");
            (holder.since_ms, holder.renewed_ms) = (since_ms, renewed_ms);
            let noticed = wall_ms();
            desk.seat(&bid("b"), token(0, 2));
            (desk.past[0].until_ms, noticed)
        };
        assert_eq!(until_ms(1000, Some(5000)).0, 8000, "three seconds after its last renewal");
        let (until, noticed) = until_ms(1000, None);
        assert!(until >= noticed, "nobody knows better");
        let (until, noticed) = until_ms(1000, Some(u64::MAX));
        assert!(until >= noticed && until <= wall_ms(), "no end is in the future");
        assert_eq!(until_ms(u64::MAX - 1, Some(5000)).0, u64::MAX - 1, "nor before the beginning");
    }

    #[test]
    fn only_the_leadership_that_is_meant_leaves_or_is_asked() {
        let mut desk = Desk::default();
        desk.seat(&bid("a"), token(0, 1));
        let farewell = Farewell { reason: Reason::HandedOver, to: Some("b".into()) };
        assert!(!desk.leave(token(0, 2), &farewell));
        assert!(desk.ask(&Wish { token: token(0, 2), what: Demand::Resign, by: String::new() }).is_err());
        assert!(desk.leave(token(0, 1), &farewell));
        assert!(desk.is_kept_from(&bid("a").identity) && !desk.is_kept_from(&bid("b").identity));
        assert!(!desk.leave(token(0, 1), &farewell), "twice is as good as once");
    }

    #[test]
    fn a_token_is_raised_above_all_that_were_seen() {
        let mut desk = Desk::default();
        assert_eq!(desk.token(5, None).expect("fits"), token(0, 5));
        assert_eq!(desk.token(5, Some(token(0, 4))).expect("fits"), token(0, 5));
        assert_eq!(desk.token(5, Some(token(0, 5))).expect("fits"), token(1, 5), "the engine has lost its memory");
        assert_eq!(desk.token(6, Some(token(3, 9))).expect("fits"), token(4, 6));
        desk.raise(token(7, 1)).expect("fits");
        assert_eq!(desk.token(1, None).expect("fits"), token(8, 1));
        assert!(desk.raise(token(Token::INCARNATION_MAX, 1)).is_err());
        assert_eq!(desk.token(1, None).expect("fits"), token(8, 1), "what was refused has changed nothing");
        assert!(desk.token(1, Some(token(Token::INCARNATION_MAX, 9))).is_err());
        assert!(desk.token(1 << 48, None).is_err(), "refused, never wrapped");
    }
}
