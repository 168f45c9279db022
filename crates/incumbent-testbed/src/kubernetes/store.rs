//! What the server remembers: Leases under one version that every write raises, and the history since the last compaction.
//!
//! The history is what watches and reads of the past live on. What is older is gone: a watch that starts there is told 410.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::lease::Lease;
use super::status::Status;

/// Namespace, then name.
pub(super) type Key = (String, String);
pub(super) type Leases = BTreeMap<Key, Lease>;

/// Older changes than these are compacted away: as many as the watch cache of the real server keeps at most.
const CHANGES_MAX: usize = 100 << 10;

#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) version: u64,
    /// None for a creation.
    pub(super) before: Option<Lease>,
    /// None for a deletion.
    pub(super) after: Option<Lease>,
}

#[derive(Debug)]
pub(super) struct Store {
    version: u64,
    leases: Leases,
    pub(super) namespaces: BTreeSet<String>,
    /// The version of `past`; of what was before nothing is known.
    compacted: u64,
    past: Leases,
    changes: VecDeque<Change>,
}

impl Store {
    pub(super) fn new(first_version: u64) -> Self {
        let namespaces = ["default", "kube-node-lease", "kube-public", "kube-system"];
        Self {
            version: first_version.saturating_sub(1),
            leases: Leases::new(),
            namespaces: namespaces.into_iter().map(str::to_owned).collect(),
            // A new server knows all its history: it is empty.
            compacted: 0,
            past: Leases::new(),
            changes: VecDeque::new(),
        }
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn lease(&self, namespace: &str, name: &str) -> Option<&Lease> {
        self.leases.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// In the order of their keys.
    pub(super) fn leases(&self) -> &Leases {
        &self.leases
    }

    /// Writes a Lease under a new version. A write that changes nothing keeps the version.
    pub(super) fn put(&mut self, mut lease: Lease) -> Lease {
        let key = (lease.metadata.namespace.clone(), lease.metadata.name.clone());
        let before = self.leases.get(&key).cloned();
        if let Some(before) = &before {
            lease.metadata.resource_version.clone_from(&before.metadata.resource_version);
            if *before == lease {
                return lease;
            }
        }
        self.version += 1;
        lease.metadata.resource_version = self.version.to_string();
        self.leases.insert(key, lease.clone());
        self.note(before, Some(lease.clone()));
        lease
    }

    pub(super) fn delete(&mut self, namespace: &str, name: &str) -> Option<Lease> {
        let lease = self.leases.remove(&(namespace.to_owned(), name.to_owned()))?;
        self.version += 1;
        self.note(Some(lease.clone()), None);
        Some(lease)
    }

    fn note(&mut self, before: Option<Lease>, after: Option<Lease>) {
        self.changes.push_back(Change { version: self.version, before, after });
        if self.changes.len() > CHANGES_MAX {
            let half = self.changes[CHANGES_MAX / 2].version;
            self.compact(half);
        }
    }

    /// Forgets what was before this version.
    pub(super) fn compact(&mut self, version: u64) {
        let version = version.min(self.version);
        while self.changes.front().is_some_and(|it| it.version <= version) {
            let change = self.changes.pop_front().expect("there is a first");
            replay(&mut self.past, change);
        }
        self.compacted = self.compacted.max(version);
    }

    /// The changes after a version.
    pub(super) fn changes_since(&self, version: u64) -> Result<impl Iterator<Item = &Change>, Status> {
        if version < self.compacted {
            return Err(Status::expired(format!("too old resource version: {version} ({})", self.compacted)));
        }
        Ok(self.changes.range(self.changes.partition_point(|it| it.version <= version)..))
    }

    /// All Leases as they were at a version; none if that is forgotten.
    pub(super) fn leases_at(&self, version: u64) -> Option<Leases> {
        if version < self.compacted {
            return None;
        }
        let mut leases = self.past.clone();
        for change in self.changes.iter().take_while(|it| it.version <= version) {
            replay(&mut leases, change.clone());
        }
        Some(leases)
    }
}

fn replay(leases: &mut Leases, change: Change) {
    let key = |it: &Lease| (it.metadata.namespace.clone(), it.metadata.name.clone());
    match (change.before, change.after) {
        (_, Some(after)) => {
            leases.insert(key(&after), after);
        }
        (Some(before), None) => {
            leases.remove(&key(&before));
        }
        (None, None) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(name: &str, holder: &str) -> Lease {
        let mut lease = Lease::default();
        lease.metadata.namespace = "default".into();
        lease.metadata.name = name.into();
        lease.spec.holder_identity = Some(holder.into());
        lease
    }

    #[test]
    fn an_unchanged_write_keeps_the_version() {
        let mut store = Store::new(10);
        assert_eq!(store.put(lease("x", "a")).metadata.resource_version, "10");
        assert_eq!(store.put(lease("x", "a")).metadata.resource_version, "10");
        assert_eq!(store.put(lease("x", "b")).metadata.resource_version, "11");
        assert_eq!(store.changes_since(10).unwrap().count(), 1);
    }

    #[test]
    fn the_past_can_be_read_until_it_is_compacted() {
        let mut store = Store::new(1);
        store.put(lease("x", "a"));
        store.put(lease("y", "a"));
        store.delete("default", "x");
        store.put(lease("y", "b"));
        let names = |leases: Option<Leases>| leases.map(|it| it.into_keys().map(|(_, name)| name).collect::<Vec<_>>());
        assert_eq!(names(store.leases_at(2)).unwrap(), ["x", "y"]);
        store.compact(3);
        assert_eq!(names(store.leases_at(2)), None);
        assert_eq!(names(store.leases_at(3)).unwrap(), ["y"]);
        assert_eq!(store.leases_at(3).unwrap().into_values().next().unwrap().spec.holder_identity.unwrap(), "a");
        assert_eq!(store.changes_since(2).err().unwrap().code, 410);
        assert_eq!(store.changes_since(3).unwrap().count(), 1);
    }
}
