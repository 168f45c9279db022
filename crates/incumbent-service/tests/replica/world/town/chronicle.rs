//! What has happened, in the order of the log, and whether those who watch are told that and nothing else: W1 to W7 of the fault catalogue.
//!
//! It is written by whichever replica applies an entry first, and compared with what any replica tells a watcher from any revision on. Left out: bells, which say when to read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use incumbent_store::event::{Change, Event};
use incumbent_store::keys::item::Item;
use incumbent_store::query::Happened;
use incumbent_store::watch::Interest;

#[derive(Default)]
pub(crate) struct Chronicle {
    events: BTreeMap<u64, Vec<Arc<Event>>>,
    /// Keys as the events have made them.
    keys: BTreeMap<Bytes, Item>,
}

impl Chronicle {
    /// The last revision that anything happened at.
    pub(crate) fn last(&self) -> u64 {
        self.events.keys().next_back().copied().unwrap_or_default()
    }

    /// All that has happened because of one entry.
    pub(crate) fn on_entry(&mut self, events: &[Arc<Event>]) -> Result<(), String> {
        let before = self.last();
        if let Some(event) = events.iter().find(|it| it.revision <= before) {
            return Err(format!("W1: revision {} is told after {before}", event.revision));
        }
        for event in events {
            self.on_event(event)?;
        }
        Ok(())
    }

    fn on_event(&mut self, event: &Arc<Event>) -> Result<(), String> {
        let revision = event.revision;
        if revision < self.last() {
            return Err(format!("W1: revision {revision} is told after {}", self.last()));
        }
        let known = self.events.entry(revision).or_default();
        if let Some(key) = event.key() {
            if known.iter().any(|it| it.key() == Some(key)) {
                return Err(format!("W2: {key:?} is told twice at revision {revision}"));
            }
            if event.previous() != self.keys.get(key) {
                return Err(format!(
                    "W7: {key:?} was {:?} before revision {revision}, and told is {:?}",
                    self.keys.get(key),
                    event.previous()
                ));
            }
            match event.change.as_ref() {
                Some(Change::Put(put)) => drop(self.keys.insert(key.clone(), put.item.clone())),
                Some(_) | None => drop(self.keys.remove(key)),
            }
        }
        known.push(Arc::clone(event));
        Ok(())
    }

    /// A watcher has asked for what happened from a revision on, and was told this.
    pub(crate) fn judge(&self, from: u64, interest: &Interest, told: &Happened) -> Result<(), String> {
        if told.next < from {
            return Err(format!("W5: who asks from {from} on is sent back to {}", told.next));
        }
        let due: Vec<_> =
            self.events.range(from..told.next).flat_map(|(_, events)| events).filter(|it| interest.wants(it)).collect();
        let same = due.len() == told.events.len() && due.iter().zip(&told.events).all(|(one, other)| **one == *other);
        if same {
            return Ok(());
        }
        let revisions = |events: &mut dyn Iterator<Item = u64>| events.collect::<Vec<_>>();
        let (due, told_of) =
            (revisions(&mut due.iter().map(|it| it.revision)), revisions(&mut told.events.iter().map(|it| it.revision)));
        Err(format!("W3: from {from} to {} have happened {due:?}, and told are {told_of:?}", told.next))
    }

    /// Keys that are there, for those who compare.
    pub(crate) fn keys(&self) -> BTreeSet<&Bytes> {
        self.keys.keys().collect()
    }
}

/// What one who watches was told, one batch after the other: a revision is in one of them alone (W4), and what it was told up to is never taken back (W6).
pub(crate) struct Heard {
    /// All before this revision has been told.
    pub(crate) next: u64,
}

impl Heard {
    pub(crate) fn from(next: u64) -> Heard {
        Heard { next }
    }

    /// It is told this.
    pub(crate) fn on_told(&mut self, told: &Happened) -> Result<(), String> {
        if told.next < self.next {
            return Err(format!("W6: all before {} was told, and now all before {}", self.next, told.next));
        }
        if let Some(event) = told.events.iter().find(|it| it.revision < self.next) {
            return Err(format!("W6: revision {} is told after all before {} was", event.revision, self.next));
        }
        if let Some(event) = told.events.iter().find(|it| it.revision >= told.next) {
            return Err(format!("W4: of revision {} more may follow, as only all before {} is told", event.revision, told.next));
        }
        self.next = told.next;
        Ok(())
    }

    /// It has missed something: what is kept begins here.
    pub(crate) fn on_lagged(&mut self, oldest: u64) {
        self.next = self.next.max(oldest);
    }
}

#[cfg(test)]
mod tests {
    use incumbent_store::event::{KeyDeleted, KeyPut};

    use super::*;

    fn item(value: &'static str) -> Item {
        Item { key: "k".into(), value: value.into(), ..Item::default() }
    }

    fn put(revision: u64, value: &'static str, previous: Option<&'static str>) -> Arc<Event> {
        let put = KeyPut { item: item(value), previous: previous.map(item) };
        Arc::new(Event { revision, change: Some(Change::Put(Box::new(put))) })
    }

    fn deleted(revision: u64, previous: &'static str) -> Arc<Event> {
        Arc::new(Event { revision, change: Some(Change::Deleted(Box::new(KeyDeleted { previous: item(previous) }))) })
    }

    fn wrong(what: Result<(), String>, which: &str) {
        assert!(what.as_ref().is_err_and(|it| it.starts_with(which)), "{what:?}");
    }

    fn three() -> (Chronicle, Vec<Arc<Event>>) {
        let mut chronicle = Chronicle::default();
        let events = vec![put(2, "a", None), put(4, "b", Some("a")), deleted(5, "b")];
        for event in &events {
            assert_eq!(chronicle.on_entry(std::slice::from_ref(event)), Ok(()));
        }
        (chronicle, events)
    }

    #[test]
    fn what_is_told_out_of_order_twice_or_with_another_past_is_found() {
        let (mut chronicle, _) = three();
        assert_eq!((chronicle.last(), chronicle.keys().len()), (5, 0));
        wrong(chronicle.on_entry(&[put(5, "c", None)]), "W1");
        wrong(chronicle.on_entry(&[put(7, "c", None), put(6, "d", Some("c"))]), "W1");
        wrong(three().0.on_entry(&[put(6, "c", None), put(6, "d", Some("c"))]), "W2");
        wrong(three().0.on_entry(&[put(6, "c", Some("b"))]), "W7");
    }

    #[test]
    fn a_watch_with_a_hole_a_repetition_or_half_a_revision_is_found() {
        let (chronicle, events) = three();
        let told = |events: &[Arc<Event>], next| Happened { events: events.to_vec(), next, more: false };
        let judge = |from, happened: &Happened| chronicle.judge(from, &Interest::EVERYTHING, happened);
        assert_eq!(judge(1, &told(&events, 6)), Ok(()));
        assert_eq!(judge(3, &told(&events[1..2], 5)), Ok(()));
        assert_eq!(judge(9, &told(&[], 9)), Ok(()));
        wrong(judge(1, &told(&events[1..], 6)), "W3");
        wrong(judge(3, &told(&events, 6)), "W3");
        wrong(judge(3, &told(&events[1..2], 6)), "W3");
        wrong(judge(3, &told(&[], 2)), "W5");
    }
    #[test]
    fn what_is_told_after_it_was_said_to_be_told_and_a_revision_in_two_batches_are_found() {
        let told = |events: &[Arc<Event>], next| Happened { events: events.to_vec(), next, more: false };
        let heard = || {
            let mut heard = Heard::from(2);
            assert_eq!(heard.on_told(&told(&[put(2, "a", None), put(4, "b", Some("a"))], 5)), Ok(()));
            heard
        };
        assert_eq!(heard().on_told(&told(&[], 5)), Ok(()));
        assert_eq!(heard().on_told(&told(&[deleted(5, "b")], 9)), Ok(()));
        wrong(heard().on_told(&told(&[], 4)), "W6");
        wrong(heard().on_told(&told(&[put(4, "b", Some("a"))], 6)), "W6");
        wrong(heard().on_told(&told(&[put(6, "c", Some("b"))], 6)), "W4");
        let mut late = heard();
        late.on_lagged(8);
        wrong(late.on_told(&told(&[deleted(7, "b")], 9)), "W6");
    }
}
