//! What a Consul server remembers: sessions, keys, locks and lock-delays, under one index that every write raises.
//!
//! The rules are those of Consul's state store, as far as locks need them. Two that surprise: a plain write to a held key keeps its holder
//! but sets `LockIndex` back to 0, and a write that changes nothing leaves `ModifyIndex` as it was. Time is an argument.
//! Left out: nodes other than our own, health checks, prepared queries; a session names checks but none can fail.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::duration;

/// The server's only node.
pub(super) const NODE: &str = "testbed";

/// Longer lock-delays are cut to this.
const LOCK_DELAY_MAX: Duration = Duration::from_secs(60);
/// What a session has that does not say.
pub(super) const LOCK_DELAY_DEFAULT: Duration = Duration::from_secs(15);
const TTL_MAX: Duration = Duration::from_secs(24 * 3600);

/// What becomes of a session's keys when it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Behavior {
    Release,
    Delete,
}

#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) lock_delay: Duration,
    pub(super) behavior: Behavior,
    /// As it was asked for; empty for none.
    pub(super) ttl: String,
    pub(super) node_checks: Vec<String>,
    pub(super) create_index: u64,
    pub(super) expires: Option<Instant>,
}

/// A session as a client asks for it.
#[derive(Debug)]
pub(super) struct NewSession {
    pub(super) name: String,
    pub(super) node: String,
    pub(super) lock_delay: Duration,
    pub(super) behavior: String,
    pub(super) ttl: String,
    pub(super) node_checks: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) lock_index: u64,
    pub(super) flags: u64,
    pub(super) value: Vec<u8>,
    /// Empty for none.
    pub(super) session: String,
    pub(super) create_index: u64,
    pub(super) modify_index: u64,
}

/// What a write puts into an entry.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    pub(super) value: Vec<u8>,
    pub(super) flags: u64,
}

/// How long sessions live. The real server has the first of these as `session_ttl_min`, and 2 for the second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetimes {
    pub(super) ttl_min: Duration,
    pub(super) ttl_multiplier: f64,
}

/// A write that failed; the text is the real server's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Refused(pub(super) String);

fn refused<T>(text: impl Into<String>) -> Result<T, Refused> {
    Err(Refused(text.into()))
}

/// Whether the write was made. Where it was not, someone or something else stood in the way.
pub(super) type Done = Result<bool, Refused>;

#[derive(Clone, Debug)]
pub(super) struct Store {
    /// Of the last write, or of the last attempt at one.
    index: u64,
    sessions: BTreeMap<String, Session>,
    sessions_index: u64,
    entries: BTreeMap<String, Entry>,
    /// Deleted keys, and when: a list under a prefix must see that one went away.
    graves: BTreeMap<String, u64>,
    keys_index: u64,
    lock_delays: BTreeMap<String, Instant>,
    lifetimes: Lifetimes,
}

impl Store {
    pub(super) fn new(first_index: u64, lifetimes: Lifetimes) -> Self {
        Self {
            index: first_index.saturating_sub(1),
            sessions: BTreeMap::new(),
            sessions_index: 0,
            entries: BTreeMap::new(),
            graves: BTreeMap::new(),
            keys_index: 0,
            lock_delays: BTreeMap::new(),
            lifetimes,
        }
    }

    /// Every attempt to write takes a place in the log, whether it succeeds or not.
    pub(super) fn begin_write(&mut self) {
        self.index += 1;
    }

    // Sessions

    pub(super) fn create_session(&mut self, now: Instant, id: String, new: NewSession) -> Result<String, Refused> {
        let behavior = match new.behavior.as_str() {
            "" | "release" => Behavior::Release,
            "delete" => Behavior::Delete,
            other => return refused(format!("Invalid Behavior setting '{other}'")),
        };
        if !new.ttl.is_empty() {
            let Some(ttl) = duration::parse(&new.ttl) else {
                return refused(format!("Session TTL '{}' invalid: time: invalid duration \"{}\"", new.ttl, new.ttl));
            };
            if !ttl.is_zero() && (ttl < self.lifetimes.ttl_min || ttl > TTL_MAX) {
                return refused(format!(
                    "Invalid Session TTL '{}', must be between [{}={}]",
                    ttl.as_nanos(),
                    duration::text(self.lifetimes.ttl_min),
                    duration::text(TTL_MAX)
                ));
            }
        }
        self.begin_write();
        if new.node != NODE {
            return refused("raft apply failed: Missing node registration");
        }
        let mut session = Session {
            id: id.clone(),
            name: new.name,
            lock_delay: new.lock_delay.min(LOCK_DELAY_MAX),
            behavior,
            ttl: new.ttl,
            node_checks: new.node_checks,
            create_index: self.index,
            expires: None,
        };
        session.expires = self.expiry(now, &session);
        self.sessions.insert(id.clone(), session);
        self.sessions_index = self.index;
        Ok(id)
    }

    fn expiry(&self, now: Instant, session: &Session) -> Option<Instant> {
        let ttl = duration::parse(&session.ttl).filter(|it| !it.is_zero())?;
        Some(now + ttl.mul_f64(self.lifetimes.ttl_multiplier))
    }

    pub(super) fn renew_session(&mut self, now: Instant, id: &str) -> Option<&Session> {
        let expires = self.expiry(now, self.sessions.get(id)?);
        let session = self.sessions.get_mut(id)?;
        session.expires = expires;
        Some(session)
    }

    /// Ends a session and gives up its keys. One that is not there is no matter.
    pub(super) fn destroy_session(&mut self, now: Instant, id: &str) {
        self.begin_write();
        let Some(session) = self.sessions.remove(id) else { return };
        self.sessions_index = self.index;
        let held: Vec<String> = self.entries.iter().filter(|(_, it)| it.session == id).map(|(key, _)| key.clone()).collect();
        for key in held {
            match session.behavior {
                Behavior::Release => {
                    let entry = self.entries[&key].clone();
                    self.put(&key, Entry { session: String::new(), ..entry });
                }
                Behavior::Delete => self.bury(&key),
            }
            if !session.lock_delay.is_zero() {
                self.lock_delays.insert(key, now + session.lock_delay);
            }
        }
    }

    /// When the next session ends unless it is renewed.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.sessions.values().filter_map(|it| it.expires).min()
    }

    /// Ends the sessions whose time has come.
    pub(super) fn expire(&mut self, now: Instant) {
        let over: Vec<String> =
            self.sessions.values().filter(|it| it.expires.is_some_and(|at| at <= now)).map(|it| it.id.clone()).collect();
        for id in over {
            self.destroy_session(now, &id);
        }
    }

    /// What a new leader of a Consul cluster does: every session gets its whole time again, and lock-delays are forgotten, for they
    /// are not in the log.
    pub(super) fn restart(&mut self, now: Instant) {
        self.lock_delays.clear();
        let expiries: Vec<_> = self.sessions.values().map(|it| self.expiry(now, it)).collect();
        for (session, expires) in self.sessions.values_mut().zip(expiries) {
            session.expires = expires;
        }
    }

    pub(super) fn session(&self, id: &str) -> Option<&Session> {
        self.sessions.get(id)
    }

    /// In the order of their ids.
    pub(super) fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.sessions.values()
    }

    pub(super) fn sessions_index(&self) -> u64 {
        self.sessions_index
    }

    // Keys

    /// The entry and the index to wait behind. For a missing key that is the index of all keys.
    pub(super) fn entry(&self, key: &str) -> (Option<&Entry>, u64) {
        let entry = self.entries.get(key);
        (entry, entry.map_or(self.keys_index, |it| it.modify_index))
    }

    /// What lies under a prefix and the index to wait behind.
    pub(super) fn under(&self, prefix: &str) -> (Vec<(&str, &Entry)>, u64) {
        let found: Vec<_> = self.entries.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix)).collect();
        let graves =
            self.graves.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix)).map(|(_, index)| *index);
        let index = found.iter().map(|(_, it)| it.modify_index).chain(graves).max().unwrap_or(self.keys_index);
        (found.into_iter().map(|(key, entry)| (key.as_str(), entry)).collect(), index)
    }

    /// Writes without regard to locks.
    pub(super) fn set(&mut self, key: &str, content: Content) {
        let session = self.entries.get(key).map(|it| it.session.clone()).unwrap_or_default();
        self.put(key, self.fresh(content, session, 0));
    }

    /// Writes if the key has this `ModifyIndex`; 0 stands for a key that is not there.
    pub(super) fn set_at(&mut self, key: &str, content: Content, expected: u64) -> bool {
        let fits = self.modify_index(key) == expected;
        if fits {
            self.set(key, content);
        }
        fits
    }

    pub(super) fn lock(&mut self, key: &str, content: Content, session: &str) -> Done {
        if session.is_empty() {
            return refused("missing session");
        }
        if let Some(wrong) = malformed(session) {
            return refused(wrong);
        }
        if !self.sessions.contains_key(session) {
            return refused(format!("invalid session {session:?}"));
        }
        let lock_index = match self.entries.get(key) {
            Some(held) if held.session == session => held.lock_index,
            Some(held) if !held.session.is_empty() => return Ok(false),
            Some(free) => free.lock_index + 1,
            None => 1,
        };
        self.put(key, self.fresh(content, session.to_owned(), lock_index));
        Ok(true)
    }

    pub(super) fn unlock(&mut self, key: &str, content: Content, session: &str) -> Done {
        if session.is_empty() {
            return refused("missing session");
        }
        match self.entries.get(key) {
            Some(held) if held.session == session => {
                let lock_index = held.lock_index;
                self.put(key, self.fresh(content, String::new(), lock_index));
                Ok(true)
            }
            Some(_) | None => Ok(false),
        }
    }

    /// Whether nobody may lock the key yet, because its holder's session ended and the holder may not know.
    pub(super) fn is_in_lock_delay(&self, now: Instant, key: &str) -> bool {
        self.lock_delays.get(key).is_some_and(|until| *until > now)
    }

    pub(super) fn delete(&mut self, key: &str) {
        if self.entries.contains_key(key) {
            self.bury(key);
        }
    }

    /// Deletes if the key has this `ModifyIndex`. A key that is not there counts as deleted.
    pub(super) fn delete_at(&mut self, key: &str, expected: u64) -> bool {
        let fits = self.entries.get(key).is_none_or(|it| it.modify_index == expected);
        if fits {
            self.delete(key);
        }
        fits
    }

    pub(super) fn delete_under(&mut self, prefix: &str) {
        let keys: Vec<String> = self.under(prefix).0.into_iter().map(|(key, _)| key.to_owned()).collect();
        for key in keys {
            self.bury(&key);
        }
    }

    fn modify_index(&self, key: &str) -> u64 {
        self.entries.get(key).map_or(0, |it| it.modify_index)
    }

    fn fresh(&self, content: Content, session: String, lock_index: u64) -> Entry {
        let Content { value, flags } = content;
        Entry { lock_index, flags, value, session, create_index: self.index, modify_index: self.index }
    }

    fn put(&mut self, key: &str, mut entry: Entry) {
        if let Some(before) = self.entries.get(key) {
            entry.create_index = before.create_index;
            entry.modify_index = before.modify_index;
            if *before == entry {
                return;
            }
        }
        entry.modify_index = self.index;
        self.entries.insert(key.to_owned(), entry);
        self.graves.remove(key);
        self.keys_index = self.index;
    }

    fn bury(&mut self, key: &str) {
        self.entries.remove(key);
        self.graves.insert(key.to_owned(), self.index);
        self.keys_index = self.index;
    }
}

/// Why a text cannot be a session's id, in the real server's words.
pub(super) fn malformed(session: &str) -> Option<String> {
    let length_ok = session.len() == 36;
    let dashes_ok = length_ok && session.char_indices().all(|(at, it)| (it == '-') == matches!(at, 8 | 13 | 18 | 23));
    let wrong = if !length_ok {
        "UUID must be 36 characters"
    } else if !dashes_ok {
        "UUID should have 4 \"-\""
    } else {
        return None;
    };
    Some(format!("failed session lookup: index error: {wrong}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const S1: &str = "11111111-1111-1111-1111-111111111111";
    const S2: &str = "22222222-2222-2222-2222-222222222222";

    fn store(now: Instant, lock_delay: Duration, behavior: &str) -> Store {
        let mut store = Store::new(1, Lifetimes { ttl_min: SECOND, ttl_multiplier: 2.0 });
        for id in [S1, S2] {
            let new = NewSession {
                name: String::new(),
                node: NODE.into(),
                lock_delay,
                behavior: behavior.into(),
                ttl: "10s".into(),
                node_checks: Vec::new(),
            };
            store.create_session(now, id.into(), new).unwrap();
        }
        store
    }

    fn content(value: &str) -> Content {
        Content { value: value.into(), flags: 0 }
    }

    #[test]
    fn a_session_that_is_not_renewed_ends_after_twice_its_ttl_and_its_keys_are_kept_back_for_the_lock_delay() {
        let start = Instant::now();
        let mut store = store(start, SECOND, "release");
        store.begin_write();
        assert!(store.lock("k", content("v"), S1).unwrap());
        store.renew_session(start + 5 * SECOND, S2);
        assert_eq!(store.deadline(), Some(start + 20 * SECOND));
        store.expire(start + 19 * SECOND);
        assert!(store.session(S1).is_some());
        let end = start + 20 * SECOND;
        store.expire(end);
        assert!(store.session(S1).is_none() && store.session(S2).is_some());
        assert_eq!(store.entry("k").0.unwrap().session, "");
        assert!(store.is_in_lock_delay(end, "k"));
        assert!(!store.is_in_lock_delay(end + SECOND, "k"));
    }

    #[test]
    fn a_restart_gives_every_session_its_whole_time_and_forgets_lock_delays() {
        let start = Instant::now();
        let mut store = store(start, SECOND, "delete");
        store.begin_write();
        assert!(store.lock("k", content("v"), S1).unwrap());
        store.destroy_session(start, S1);
        assert!(store.entry("k").0.is_none() && store.is_in_lock_delay(start, "k"));
        store.restart(start + 5 * SECOND);
        assert!(!store.is_in_lock_delay(start, "k"));
        assert_eq!(store.deadline(), Some(start + 25 * SECOND));
    }

    #[test]
    fn a_plain_write_to_a_held_key_sets_the_lock_index_back_and_keeps_the_holder() {
        let mut store = store(Instant::now(), SECOND, "release");
        store.begin_write();
        assert!(store.lock("k", content("v"), S1).unwrap());
        store.begin_write();
        store.set("k", content("w"));
        let entry = store.entry("k").0.unwrap();
        assert_eq!((entry.lock_index, entry.session.as_str()), (0, S1));
        store.begin_write();
        assert!(!store.lock("k", content("x"), S2).unwrap());
        assert!(!store.unlock("k", content("x"), S2).unwrap());
    }

    #[test]
    fn a_write_that_changes_nothing_leaves_the_modify_index() {
        let mut store = store(Instant::now(), SECOND, "release");
        store.begin_write();
        store.set("k", content("v"));
        let before = store.entry("k").1;
        store.begin_write();
        store.set("k", content("v"));
        assert_eq!(store.entry("k").1, before);
        store.begin_write();
        assert!(!store.set_at("k", content("w"), before - 1));
        assert!(store.set_at("k", content("w"), before));
        assert!(store.entry("k").1 > before);
    }

    #[test]
    fn a_list_under_a_prefix_sees_that_a_key_went_away() {
        let mut store = store(Instant::now(), SECOND, "release");
        for key in ["a/1", "a/2", "b"] {
            store.begin_write();
            store.set(key, content(key));
        }
        let before = store.under("a/").1;
        assert!(before < store.under("b").1);
        store.begin_write();
        store.delete_under("a/1");
        let (found, after) = store.under("a/");
        assert_eq!(found.len(), 1);
        assert!(after > before);
    }
}
