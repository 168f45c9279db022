//! Whether a request that was sent several times has happened once (C76 of the fault catalogue).
//!
//! Every write of a client has a value of its own, so what it has done is seen in the events. Left out: requests without a number, which may happen as often as they are sent.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Buf;
use incumbent_store::event::{Change, Event};
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::Outcome;

#[derive(Default)]
pub(crate) struct Once {
    /// What came of a request when it was applied first, by client and number.
    outcomes: BTreeMap<(u64, u64), Outcome>,
    /// The values that were written, and those that were said never to be.
    written: BTreeSet<u64>,
    never: BTreeSet<u64>,
    /// So many were applied again and changed nothing; so many came when they were long forgotten.
    pub(crate) repeated: u64,
    pub(crate) forgotten: u64,
}

impl Once {
    /// A request is in the log, again perhaps, and the store has answered this.
    pub(crate) fn on_applied(&mut self, client: u64, sequence: u64, outcome: &Outcome) -> Result<(), String> {
        let Some(first) = self.outcomes.get(&(client, sequence)) else {
            self.outcomes.insert((client, sequence), outcome.clone());
            return Ok(());
        };
        if outcome == first {
            self.repeated += 1;
            Ok(())
        } else if outcome.clone().result() == Err(Refusal::Forgotten) {
            self.forgotten += 1;
            Ok(())
        } else {
            Err(format!("C76: request {sequence} of client {client} came to {first:?}, and repeated to {outcome:?}"))
        }
    }

    /// Something has happened.
    pub(crate) fn on_event(&mut self, event: &Event) -> Result<(), String> {
        let Some(Change::Put(put)) = event.change.as_ref().filter(|_| event.key().is_some_and(|it| it.starts_with(b"w/"))) else {
            return Ok(());
        };
        let value = put.item.value.clone().get_u64();
        if !self.written.insert(value) {
            return Err(format!("C76: {value} is written twice, now at revision {}", event.revision));
        }
        if self.never.contains(&value) {
            return Err(format!("C76: {value} is written, and its client was told that it was not"));
        }
        Ok(())
    }

    /// A client is told whether its write was made.
    pub(crate) fn on_told(&mut self, value: u64, made: bool) -> Result<(), String> {
        if made == self.written.contains(&value) {
            if !made {
                self.never.insert(value);
            }
            return Ok(());
        }
        Err(format!("C76: a client is told that {value} was {}written", if made { "" } else { "not " }))
    }
}

#[cfg(test)]
mod tests {
    use incumbent_store::event::KeyPut;
    use incumbent_store::keys::item::Item;
    use incumbent_store::reply::Reply;

    use super::*;

    fn put(value: u64) -> Event {
        let item = Item { key: "w/0".into(), value: value.to_be_bytes().to_vec().into(), ..Item::default() };
        Event { revision: 1, change: Some(Change::Put(Box::new(KeyPut { item, previous: None }))) }
    }

    #[test]
    fn what_happens_twice_or_is_told_otherwise_is_found() {
        let mut once = Once::default();
        assert_eq!(once.on_event(&put(1)), Ok(()));
        assert!(once.on_event(&put(1)).is_err(), "twice");
        assert_eq!(once.on_told(1, true), Ok(()));
        assert!(once.on_told(1, false).is_err() && once.on_told(2, true).is_err(), "told otherwise");
        assert_eq!(once.on_told(2, false), Ok(()));
        assert!(once.on_event(&put(2)).is_err(), "and then it happens");
    }

    #[test]
    fn a_repeated_request_that_comes_to_something_else_is_found() {
        let mut once = Once::default();
        let outcome = |revision| Outcome::of(&Ok(Reply::Done(3)), revision);
        assert_eq!(once.on_applied(1, 1, &outcome(3)), Ok(()));
        assert_eq!(once.on_applied(1, 1, &outcome(3)), Ok(()));
        assert_eq!(once.on_applied(1, 1, &Outcome::of(&Err(Refusal::Forgotten), 0)), Ok(()));
        assert_eq!((once.repeated, once.forgotten), (1, 1));
        assert!(once.on_applied(1, 1, &outcome(4)).is_err());
    }
}
