//! What we keep of an election beside its line: the ledger (who leads, what is wanted of them, who led) and a record for each candidate.
//!
//! The line decides; these are for people, for wishes, and so that tokens rise where the line alone cannot promise it.

use incumbent_protocol::protocol::{Term, Token};
use serde::{Deserialize, Serialize};

use crate::desk::{Desk, Holder, LAPSED};
use crate::engine::{Bid, Error, Farewell, Wish};

/// The document of an election. Of the desk only the incarnation and the past are used: there may be several leaders.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Ledger {
    #[serde(flatten)]
    pub(super) desk: Desk,
    pub(super) seated: Vec<Seated>,
    /// For whom each is stands in it.
    pub(super) wishes: Vec<Wish>,
    /// The greatest token that was given, as a number.
    pub(super) greatest: u64,
}

/// The ledger as it was read, and the version to replace; none if it was not there.
#[derive(Clone, Debug, Default)]
pub(super) struct Sheet {
    pub(super) ledger: Ledger,
    pub(super) version: Option<i32>,
}

/// One of ours that leads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Seated {
    /// Its node in the line.
    pub(super) child: String,
    pub(super) holder: Holder,
}

/// More than this nobody has wanted at once.
const WISHES_MAX: usize = 16;

impl Ledger {
    pub(super) fn read(text: &[u8]) -> Result<Ledger, Error> {
        // A node that was created as somebody's parent is empty.
        if text.is_empty() {
            return Ok(Ledger::default());
        }
        serde_json::from_slice(text).map_err(|why| {
            Error::misconfigured(format!(
                "what ZooKeeper keeps for this election was not written by incumbent ({why}): choose another namespace, or remove it"
            ))
        })
    }

    pub(super) fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a ledger has neither maps with odd keys nor numbers that JSON lacks")
    }

    /// The greatest token that was given; `None` if none was.
    pub(super) fn greatest(&self) -> Option<Token> {
        let incarnation = u16::try_from(self.greatest >> 48).ok()?;
        Token::new(incarnation, Term(self.greatest & Term::MAX.0)).filter(|_| self.greatest > 0)
    }

    /// Seats one of ours. Whoever sat here and is no longer in the line has left without a word.
    pub(super) fn seat(&mut self, newcomer: Seated, line: &[String]) {
        self.seated.retain(|it| it.child != newcomer.child);
        self.clear_away(line);
        self.greatest = self.greatest.max(newcomer.holder.token.get());
        self.wishes
            .retain(|wish| wish.token == newcomer.holder.token || self.seated.iter().any(|it| it.holder.token == wish.token));
        self.seated.push(newcomer);
    }

    /// Whoever is seated and no longer in the line has left without a word.
    pub(super) fn clear_away(&mut self, line: &[String]) {
        for gone in self.seated.extract_if(.., |it| !line.contains(&it.child)) {
            self.desk.remember(gone.holder, LAPSED);
        }
    }

    /// One of ours leaves. Where there is one seat, it was free when this one took it: whoever else is on record had gone by then.
    pub(super) fn leave(&mut self, former: Seated, seats: u32, farewell: &Farewell) {
        self.greatest = self.greatest.max(former.holder.token.get());
        self.seated.retain(|it| it.child != former.child);
        if seats == 1 {
            for gone in self.seated.drain(..) {
                self.desk.remember_until(gone.holder, LAPSED, former.holder.since_ms);
            }
        }
        self.wishes.retain(|it| it.token != former.holder.token);
        // It may have proclaimed something else since it was seated; the past does not tell of values.
        self.desk.remember(former.holder, &farewell.reason.to_string());
    }

    pub(super) fn ask(&mut self, wish: &Wish) {
        self.wishes.retain(|it| it.token != wish.token);
        self.wishes.push(wish.clone());
        let excess = self.wishes.len().saturating_sub(WISHES_MAX);
        self.wishes.drain(..excess);
    }

    pub(super) fn wish_for(&self, token: Token) -> Option<Wish> {
        self.wishes.iter().find(|it| it.token == token).cloned()
    }
}

/// What a candidate of ours says beyond its identity. Only written if it differs from this default.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Record {
    pub(super) priority: i32,
    pub(super) value: String,
    pub(super) seats: u32,
}

impl Default for Record {
    fn default() -> Self {
        Record { priority: 0, value: String::new(), seats: 1 }
    }
}

impl Record {
    pub(super) fn of(bid: &Bid) -> Record {
        Record { priority: bid.priority, value: bid.value.clone(), seats: bid.seats }
    }

    /// One that cannot be read says nothing: it decides nothing either.
    pub(super) fn read(text: &[u8]) -> Record {
        serde_json::from_slice(text).unwrap_or_default()
    }

    pub(super) fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a record has neither maps with odd keys nor numbers that JSON lacks")
    }
}

#[cfg(test)]
mod tests {
    use incumbent_protocol::tenure::Reason;

    use super::*;
    use crate::engine::Demand;
    use crate::identity::Identity;

    fn seated(child: &str, term: u64) -> Seated {
        let token = Token::new(0, Term(term)).expect("fits");
        let identity = Identity::stored(child);
        let holder =
            Holder { identity, token, value: String::new(), priority: 0, ttl_ms: 1, since_ms: 1, beat: 0, renewed_ms: None };
        Seated { child: child.to_owned(), holder }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut ledger = Ledger::default();
        ledger.seat(seated("a", 7), &[]);
        ledger.ask(&Wish { token: ledger.seated[0].holder.token, what: Demand::Evict, by: "me".into() });
        let again = Ledger::read(&ledger.write()).expect("just written");
        assert_eq!(again.write(), ledger.write());
        assert_eq!(again.greatest().map(Token::get), Some(7));
        assert!(Ledger::read(b"").expect("empty").greatest().is_none());
        assert!(Ledger::read(b"hello").is_err());
    }

    #[test]
    fn whoever_is_out_of_the_line_has_left_without_a_word() {
        let mut ledger = Ledger::default();
        for (child, term) in [("a", 1), ("b", 2)] {
            ledger.seat(seated(child, term), &["a".into()]);
        }
        ledger.ask(&Wish { token: seated("a", 1).holder.token, what: Demand::Resign, by: String::new() });
        ledger.seat(seated("c", 3), &["a".into(), "c".into()]);
        assert_eq!(ledger.seated.iter().map(|it| it.child.as_str()).collect::<Vec<_>>(), ["a", "c"]);
        assert_eq!((ledger.desk.past[0].identity.as_str(), ledger.desk.past[0].reason.as_str()), ("b", "lease expired"));
        assert!(ledger.wish_for(seated("a", 1).holder.token).is_some());
        ledger.leave(seated("a", 1), 2, &Farewell { reason: Reason::Resigned, to: None });
        assert!(ledger.wishes.is_empty() && ledger.greatest == 3 && ledger.desk.past.len() == 2);
        assert_eq!(ledger.desk.past[0].identity.as_str(), "b", "which came later, though it was gone first");
    }

    /// One that leaves before it was put on record does not leave its predecessor there.
    #[test]
    fn who_was_gone_before_the_last_came_has_ended_by_then() {
        let mut ledger = Ledger::default();
        ledger.seat(seated("a", 1), &[]);
        let mut last = seated("b", 2);
        last.holder.since_ms = 4000;
        ledger.leave(last, 1, &Farewell { reason: Reason::Resigned, to: None });
        let past: Vec<_> = ledger.desk.past.iter().map(|it| (it.identity.as_str(), it.reason.as_str())).collect();
        assert_eq!(past, [("b", "resigned"), ("a", "lease expired")]);
        assert_eq!(ledger.desk.past[1].until_ms, 4000, "and not when somebody looks");
    }
}
