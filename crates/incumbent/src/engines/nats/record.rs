//! What a key of the bucket says: the desk, its revision, and what of it is a sign of life. Pure.

use std::time::Duration;

use incumbent_protocol::protocol::Token;

use crate::desk::{Desk, Holder};
use crate::engine::Error;
use crate::engines::observed::outlasting;
use crate::identity::Identity;

/// A key as it was read.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// The stream sequence of the last write to the key. Every write says which one it expects.
    pub(super) revision: u64,
    pub(super) desk: Desk,
    /// Somebody has deleted the key and left a mark; whoever held it may still believe.
    pub(super) deleted: bool,
}

/// What changes with every sign of life of the holder, and with nothing else: a wish must not keep a dead holder in office.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Mark {
    Held { identity: Identity, token: Token, beat: u64 },
    Vacant { revision: u64 },
}

/// What others may want to hear of: all but signs of life.
pub(super) type Scene = (bool, Desk);

impl Record {
    pub(super) fn read(revision: u64, value: &[u8]) -> Result<Record, Error> {
        Ok(Record { revision, desk: Desk::read(value)?, deleted: false })
    }

    pub(super) fn deleted(revision: u64) -> Record {
        Record { revision, desk: Desk::default(), deleted: true }
    }

    pub(super) fn mark(&self) -> Mark {
        match &self.desk.holder {
            Some(it) => Mark::Held { identity: it.identity.clone(), token: it.token, beat: it.beat },
            None => Mark::Vacant { revision: self.revision },
        }
    }

    pub(super) fn scene(&self) -> Scene {
        let mut desk = self.desk.clone();
        if let Some(holder) = &mut desk.holder {
            (holder.beat, holder.renewed_ms) = (0, None);
        }
        (self.deleted, desk)
    }

    /// Whether anybody may take the seat at once.
    pub(super) fn is_free(&self) -> bool {
        self.desk.holder.is_none() && self.desk.kept.is_none() && !self.deleted
    }

    /// The seat of this leadership, if it has it.
    pub(super) fn seat_of(&mut self, identity: &Identity, token: Token) -> Option<&mut Holder> {
        self.desk.holder.as_mut().filter(|it| it.identity == *identity && it.token == token)
    }

    /// How long nothing may have changed before the seat is this bidder's to take.
    pub(super) fn patience(&self, bidder: &Identity, ttl: Duration) -> Duration {
        match (&self.desk.holder, &self.desk.kept) {
            (Some(holder), _) => outlasting(Duration::from_millis(holder.ttl_ms)),
            // Nobody knows what stood there, so it is waited for as for one of ours.
            (None, _) if self.deleted => outlasting(ttl),
            (None, Some(kept)) if self.desk.is_kept_from(bidder) => Duration::from_millis(kept.ms),
            (None, _) => Duration::ZERO,
        }
    }

    /// Seats the bidder, with a token greater than all before: the revision that the write will expect. Every grant is a write, so the next one expects a greater.
    pub(super) fn seat(&mut self, bid: &crate::engine::Bid) -> Result<Token, Error> {
        // Keys can be copied from one bucket to another, and revisions not.
        let on_record = self.desk.holder.as_ref().map(|it| it.token).max(self.desk.past.first().map(|it| it.token));
        let token = self.desk.token(self.revision, bid.seen.max(on_record))?;
        self.desk.seat(bid, token);
        if let Some(holder) = &mut self.desk.holder {
            holder.renewed_ms = Some(holder.since_ms);
        }
        self.desk.note_for(bid, token);
        self.deleted = false;
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use incumbent_protocol::protocol::Term;

    use super::*;
    use crate::engine::{Bid, Demand, Wish};

    fn bid(name: &str) -> Bid {
        let identity = Identity::named(name).expect("a good name");
        Bid { identity, ttl: Duration::from_secs(2), value: String::new(), priority: 0, seats: 1, seen: None, note: None }
    }

    fn vacant(revision: u64) -> Record {
        Record { revision, desk: Desk::default(), deleted: false }
    }

    #[test]
    fn only_signs_of_life_change_the_mark_and_they_always_do() {
        let mut record = vacant(7);
        let token = record.seat(&bid("a")).expect("fits");
        let (mark, scene) = (record.mark(), record.scene());
        record.revision += 1;
        record.desk.ask(&Wish { token, what: Demand::Evict, by: "me".into() }).expect("in office");
        assert!(record.mark() == mark && record.scene() != scene);
        let scene = record.scene();
        let holder = record.desk.holder.as_mut().expect("seated");
        (holder.beat, holder.renewed_ms) = (holder.beat + 1, holder.renewed_ms.map(|it| it + 1));
        assert!(record.mark() != mark && record.scene() == scene);
    }

    #[test]
    fn a_holder_and_what_was_deleted_are_outlasted_and_a_free_seat_is_not() {
        let (a, b) = (bid("a"), bid("b"));
        let mut record = vacant(7);
        assert_eq!(record.patience(&a.identity, a.ttl), Duration::ZERO);
        assert!(Record::deleted(8).patience(&a.identity, a.ttl) > a.ttl);
        record.seat(&Bid { ttl: a.ttl * 5, ..a }).expect("fits");
        assert!(record.patience(&b.identity, b.ttl) > b.ttl * 5, "the holder's ttl counts, not one's own");
    }

    #[test]
    fn a_silent_holder_has_led_until_a_ttl_after_its_last_renewal() {
        let mut record = vacant(7);
        record.seat(&bid("a")).expect("fits");
        let holder = record.desk.holder.as_mut().expect("seated");
        assert_eq!(holder.renewed_ms, Some(holder.since_ms), "its claim counts as one");
        (holder.since_ms, holder.renewed_ms) = (1000, Some(9000));
        record.seat(&bid("b")).expect("fits");
        assert_eq!(record.desk.past[0].until_ms, 11_000);
    }

    #[test]
    fn a_bucket_that_lost_its_memory_raises_the_incarnation() {
        let token = |incarnation, term| Token::new(incarnation, Term(term)).expect("fits");
        let mut record = vacant(7);
        assert_eq!(record.seat(&bid("a")).expect("fits"), token(0, 7));
        record.revision = 3;
        assert_eq!(record.seat(&bid("b")).expect("fits"), token(1, 3), "the desk itself was copied");
        let seen = Some(token(4, 9));
        assert_eq!(vacant(1).seat(&Bid { seen, ..bid("c") }).expect("fits"), token(5, 1));
    }
}
