//! Who wants to hear of which event.
//!
//! [`Interest`] is what somebody watches; it says of any event whether it is wanted, so that what is told is the log, filtered, and nothing else (W3).
//! [`Watches`] finds those who want an event without asking them all. It is a server's own and no part of the replicated state.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use prost::bytes::Bytes;

use crate::event::{Change, Event};
use crate::keys::item::Span;

/// What somebody watches.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Interest {
    /// What. `None`: everything.
    #[prost(oneof = "Topic", tags = "1, 2, 3, 4, 5")]
    pub topic: Option<Topic>,
}

/// What may be watched.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Topic {
    /// Keys.
    #[prost(message, tag = "1")]
    Keys(Span),
    /// All of one election.
    #[prost(string, tag = "2")]
    Election(String),
    /// All of the elections whose names begin so.
    #[prost(string, tag = "3")]
    ElectionsUnder(String),
    /// What concerns one candidate itself: it is elected, becomes the first in line, loses its seat or place, is asked for something. Of a thousand who wait,
    /// a release wakes one (C64).
    #[prost(message, tag = "4")]
    Candidate(CandidateTopic),
    /// That a session ends.
    #[prost(uint64, tag = "5")]
    Session(u64),
}

/// A candidate in an election.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Message)]
pub struct CandidateTopic {
    /// The election.
    #[prost(string, tag = "1")]
    pub election: String,
    /// Who.
    #[prost(string, tag = "2")]
    pub identity: String,
}

impl Interest {
    /// Everything there is.
    pub const EVERYTHING: Interest = Interest { topic: None };

    /// Interest in this.
    pub fn of(topic: Topic) -> Interest {
        Interest { topic: Some(topic) }
    }

    /// Whether the event is wanted.
    pub fn wants(&self, event: &Event) -> bool {
        match &self.topic {
            None => true,
            Some(Topic::Keys(span)) => event.key().is_some_and(|key| span.contains(key)),
            Some(Topic::Election(name)) => event.election() == Some(name),
            Some(Topic::ElectionsUnder(prefix)) => event.election().is_some_and(|it| it.starts_with(prefix.as_str())),
            Some(Topic::Candidate(who)) => event.election() == Some(&who.election) && event.concerns() == Some(&who.identity),
            Some(Topic::Session(session)) => ended_session(event) == Some(*session),
        }
    }
}

fn ended_session(event: &Event) -> Option<u64> {
    if let Some(Change::SessionEnded(it)) = &event.change { Some(it.session) } else { None }
}

/// Those who watch, by their numbers. A number is whatever its owner wants it to be.
#[derive(Clone, Debug, Default)]
pub struct Watches {
    interests: BTreeMap<u64, Interest>,
    everything: BTreeSet<u64>,
    keys: BTreeMap<Bytes, BTreeSet<u64>>,
    key_prefixes: Prefixes,
    /// Spans that are neither one key nor a prefix, by what all of their keys begin with: those are asked one after the other, so that a key somewhere else asks none of them.
    spans: Prefixes,
    elections: BTreeMap<String, BTreeSet<u64>>,
    election_prefixes: Prefixes,
    candidates: BTreeMap<CandidateTopic, BTreeSet<u64>>,
    sessions: BTreeMap<u64, BTreeSet<u64>>,
}

impl Watches {
    /// Nobody.
    pub fn new() -> Watches {
        Watches::default()
    }

    /// So many watch.
    pub fn len(&self) -> usize {
        self.interests.len()
    }

    /// Whether nobody watches.
    pub fn is_empty(&self) -> bool {
        self.interests.is_empty()
    }

    /// The watcher with this number watches this, and nothing else that it may have watched before.
    pub fn add(&mut self, watcher: u64, interest: Interest) {
        self.remove(watcher);
        match &interest.topic {
            None => drop(self.everything.insert(watcher)),
            Some(Topic::Keys(span)) if span.is_one() => {
                self.keys.entry(span.start.clone()).or_default().insert(watcher);
            }
            Some(Topic::Keys(span)) => match span.as_prefix() {
                Some(prefix) => self.key_prefixes.add(prefix, watcher),
                None => self.spans.add(&span.common_prefix(), watcher),
            },
            Some(Topic::Election(name)) => drop(self.elections.entry(name.clone()).or_default().insert(watcher)),
            Some(Topic::ElectionsUnder(prefix)) => {
                self.election_prefixes.add(&Bytes::copy_from_slice(prefix.as_bytes()), watcher)
            }
            Some(Topic::Candidate(who)) => drop(self.candidates.entry(who.clone()).or_default().insert(watcher)),
            Some(Topic::Session(session)) => drop(self.sessions.entry(*session).or_default().insert(watcher)),
        }
        self.interests.insert(watcher, interest);
    }

    /// The watcher watches nothing any more.
    pub fn remove(&mut self, watcher: u64) {
        let Some(interest) = self.interests.remove(&watcher) else { return };
        match &interest.topic {
            None => drop(self.everything.remove(&watcher)),
            Some(Topic::Keys(span)) if span.is_one() => leave(&mut self.keys, &span.start, watcher),
            Some(Topic::Keys(span)) => match span.as_prefix() {
                Some(prefix) => self.key_prefixes.remove(prefix, watcher),
                None => self.spans.remove(&span.common_prefix(), watcher),
            },
            Some(Topic::Election(name)) => leave(&mut self.elections, name, watcher),
            Some(Topic::ElectionsUnder(prefix)) => {
                self.election_prefixes.remove(&Bytes::copy_from_slice(prefix.as_bytes()), watcher);
            }
            Some(Topic::Candidate(who)) => leave(&mut self.candidates, who, watcher),
            Some(Topic::Session(session)) => leave(&mut self.sessions, session, watcher),
        }
    }

    /// Who wants the event: each once, in the order of their numbers.
    pub fn wanting(&self, event: &Event) -> Vec<u64> {
        let mut watchers: Vec<u64> = self.everything.iter().copied().collect();
        if let Some(key) = event.key() {
            watchers.extend(self.keys.get(key).into_iter().flatten());
            self.key_prefixes.collect(key, &mut watchers);
            let mut spans = Vec::new();
            self.spans.collect(key, &mut spans);
            watchers.extend(spans.into_iter().filter(|it| self.interests.get(it).is_some_and(|it| it.wants(event))));
        }
        if let Some(election) = event.election() {
            watchers.extend(self.elections.get(election).into_iter().flatten());
            self.election_prefixes.collect(election.as_bytes(), &mut watchers);
            if let Some(identity) = event.concerns().filter(|_| !self.candidates.is_empty()) {
                let who = CandidateTopic { election: election.into(), identity: identity.into() };
                watchers.extend(self.candidates.get(&who).into_iter().flatten());
            }
        }
        if let Some(session) = ended_session(event) {
            watchers.extend(self.sessions.get(&session).into_iter().flatten());
        }
        watchers.sort_unstable();
        watchers
    }
}

fn leave<K: Ord>(map: &mut BTreeMap<K, BTreeSet<u64>>, key: &K, watcher: u64) {
    if let Some(watchers) = map.get_mut(key) {
        watchers.remove(&watcher);
        if watchers.is_empty() {
            map.remove(key);
        }
    }
}

/// Watchers of prefixes. An event is looked up once for each length that any prefix has.
#[derive(Clone, Debug, Default)]
struct Prefixes {
    watchers: BTreeMap<Bytes, BTreeSet<u64>>,
    /// So many different prefixes of each length.
    lengths: BTreeMap<usize, usize>,
}

impl Prefixes {
    fn add(&mut self, prefix: &Bytes, watcher: u64) {
        let watchers = self.watchers.entry(prefix.clone()).or_default();
        if watchers.is_empty() {
            *self.lengths.entry(prefix.len()).or_default() += 1;
        }
        watchers.insert(watcher);
    }

    fn remove(&mut self, prefix: &Bytes, watcher: u64) {
        leave(&mut self.watchers, prefix, watcher);
        if !self.watchers.contains_key(prefix)
            && let Some(count) = self.lengths.get_mut(&prefix.len())
        {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&prefix.len());
            }
        }
    }

    fn collect(&self, text: &[u8], watchers: &mut Vec<u64>) {
        for len in self.lengths.keys().take_while(|len| **len <= text.len()) {
            watchers.extend(self.watchers.get(&text[..*len]).into_iter().flatten());
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use alloc::vec;

    use super::*;
    use crate::event::KeyPut;
    use crate::keys::item::Item;

    #[test]
    fn a_key_asks_no_span_that_lies_elsewhere() {
        let span = |start: &'static str, end: &'static str| Span { start: start.into(), end: end.into() };
        let mut watches = Watches::new();
        for watcher in 0..1_000 {
            watches.add(watcher, Interest::of(Topic::Keys(span("x/a", "x/c"))));
        }
        let spans = [
            span("y/a", "y/bb"),
            span("y/a", "z"),
            span("a", "\u{7f}"),
            Span { start: "y".into(), end: Bytes::from_static(&[0]) },
        ];
        for (watcher, span) in (1_000..).zip(spans) {
            watches.add(watcher, Interest::of(Topic::Keys(span)));
        }
        let put = |key: &'static str| {
            let item = Item { key: key.into(), ..Item::default() };
            Event { revision: 1, change: Some(Change::Put(Box::new(KeyPut { item, ..KeyPut::default() }))) }
        };
        let asked = |key: &str| {
            let mut asked = Vec::new();
            watches.spans.collect(key.as_bytes(), &mut asked);
            asked.len()
        };
        assert_eq!((asked("y/aa"), asked("x/b"), asked("q")), (4, 1_003, 3));
        assert_eq!(watches.wanting(&put("y/aa")), [1_000, 1_001, 1_002, 1_003]);
        assert_eq!(watches.wanting(&put("y/c")), [1_001, 1_002, 1_003]);
        assert_eq!(watches.wanting(&put("x/b")).len(), 1_001);
        assert_eq!(watches.wanting(&put("x/d")), [1_002]);
        for watcher in 0..1_003 {
            watches.remove(watcher);
        }
        assert_eq!((watches.wanting(&put("x/b")), watches.wanting(&put("zz"))), (vec![], vec![1_003]));
    }
}
