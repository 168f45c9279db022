//! `managedFields`: which client wrote which field, and the conflicts of server-side apply.
//!
//! A field is a path of names as `FieldsV1` writes them (`f:spec`, `f:holderIdentity`). Whoever changes a field owns it; a field that goes
//! away is owned by nobody. An apply may not change a field that another one owns, unless it is forced.
//! Left out: lists in a patch of the strategic kind, and the merging of the oldest of more than ten owners.

use std::collections::{BTreeMap, BTreeSet};

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::lease::{Lease, Part};
use super::status::API_VERSION;
use super::time::Time;

type Path = Vec<String>;
type Set = BTreeSet<Path>;

/// How a client wrote.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Operation {
    Apply,
    Update,
}

impl Operation {
    pub(super) fn name(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// One owner and what it owns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Managed {
    pub(super) manager: String,
    pub(super) operation: Operation,
    pub(super) api_version: String,
    pub(super) time: Option<Time>,
    fields: Set,
}

impl Managed {
    pub(super) fn read(value: &Value) -> Result<Self, String> {
        let Some(part) = Part::new("metadata.managedFields", value)? else { return Err("a managed field is null".into()) };
        let operation = if part.text("operation")?.as_deref() == Some("Apply") { Operation::Apply } else { Operation::Update };
        let time = part.text("time")?.map(|it| Time::parse(&it)).transpose()?;
        let (manager, api_version) = (part.text("manager")?.unwrap_or_default(), part.text("apiVersion")?.unwrap_or_default());
        Ok(Self::new(manager, operation, api_version, time, value.get("fieldsV1").unwrap_or(&Value::Null)))
    }

    /// The fields as `FieldsV1`.
    pub(super) fn fields_v1(&self) -> Value {
        let mut root = Map::new();
        for path in &self.fields {
            let mut level = &mut root;
            for name in path {
                let below = level.entry(name.clone()).or_insert_with(|| Value::Object(Map::new()));
                level = below.as_object_mut().expect("only objects are put in");
            }
        }
        Value::Object(root)
    }

    /// `fields` as `FieldsV1`.
    pub(super) fn new(manager: String, operation: Operation, api_version: String, time: Option<Time>, fields: &Value) -> Self {
        let mut set = Set::new();
        leaves(fields, &mut Vec::new(), &mut set);
        Self { manager, operation, api_version, time, fields: set }
    }

    fn nothing_yet(manager: &str, operation: Operation, time: Option<Time>) -> Self {
        Self::new(manager.to_owned(), operation, API_VERSION.to_owned(), time, &Value::Null)
    }

    /// How a conflict calls it.
    fn describe(&self) -> String {
        let Self { manager, api_version, .. } = self;
        match (self.operation, self.time) {
            (Operation::Apply, _) => format!("{manager:?}"),
            (Operation::Update, None) => format!("{manager:?} using {api_version}"),
            (Operation::Update, Some(time)) => {
                let time = serde_json::to_string(&time).unwrap_or_default();
                format!("{manager:?} using {api_version} at {}", time.trim_matches('"'))
            }
        }
    }
}

impl Serialize for Managed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("manager", &self.manager)?;
        map.serialize_entry("operation", self.operation.name())?;
        map.serialize_entry("apiVersion", &self.api_version)?;
        if let Some(time) = &self.time {
            map.serialize_entry("time", time)?;
        }
        map.serialize_entry("fieldsType", "FieldsV1")?;
        map.serialize_entry("fieldsV1", &self.fields_v1())?;
        map.end()
    }
}

/// Notes the owner of what an update changed. `before` is the Lease as it is, or none for a new one.
pub(super) fn update(before: Option<&Lease>, after: &mut Lease, manager: &str, now: Time) {
    // A client that sends owners of its own is believed, one that sends none keeps those that are.
    let mut owners = std::mem::take(&mut after.metadata.managed_fields);
    if owners.iter().all(|it| it.fields.is_empty()) {
        owners = before.map(|it| it.metadata.managed_fields.clone()).unwrap_or_default();
    }
    let (old, new) = (before.map(values).unwrap_or_default(), values(after));
    let taken: Set = new.iter().filter(|(path, value)| old.get(*path) != Some(*value)).map(|(path, _)| path.clone()).collect();
    for owner in &mut owners {
        let own = owner.manager == manager && owner.operation == Operation::Update;
        owner.fields.retain(|path| new.contains_key(path) && (own || !taken.contains(path)));
    }
    if !taken.is_empty() {
        let position = owners.iter().position(|it| it.manager == manager && it.operation == Operation::Update);
        let at = position.unwrap_or_else(|| {
            owners.push(Managed::nothing_yet(manager, Operation::Update, None));
            owners.len() - 1
        });
        owners[at].fields.extend(taken);
        owners[at].time = Some(now);
    }
    after.metadata.managed_fields = sorted(owners);
}

/// What an apply makes of a Lease.
pub(super) enum Applied {
    Merged(Box<Lease>),
    /// Who owns which field that it would change.
    Conflicts(Vec<(String, String)>),
}

/// Whether an apply may take fields from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Force {
    Yes,
    No,
}

/// Lays the applied Lease over the one that is.
pub(super) fn apply(before: Option<&Lease>, applied: &Lease, manager: &str, force: Force, now: Time) -> Applied {
    let live = before.cloned().unwrap_or_default();
    let (old, wanted) = (values(&live), values(applied));
    let mut owners = live.metadata.managed_fields.clone();
    let own = |it: &Managed| it.manager == manager && it.operation == Operation::Apply;
    let changed: Set =
        wanted.iter().filter(|(path, value)| old.get(*path) != Some(*value)).map(|(path, _)| path.clone()).collect();
    if force == Force::No {
        let others = owners.iter().filter(|it| !own(it));
        let conflicts: Vec<(String, String)> =
            others.flat_map(|owner| owner.fields.intersection(&changed).map(|path| (owner.describe(), dotted(path)))).collect();
        if !conflicts.is_empty() {
            return Applied::Conflicts(conflicts);
        }
    }
    let given_up: Set =
        owners.iter().filter(|it| own(it)).flat_map(|it| &it.fields).filter(|it| !wanted.contains_key(*it)).cloned().collect();
    for owner in owners.iter_mut().filter(|it| !own(it)) {
        owner.fields.retain(|path| !changed.contains(path));
    }
    // What it applied before and does not any more goes away, unless another owns it too.
    let orphaned: Set =
        given_up.into_iter().filter(|path| !owners.iter().any(|it| !own(it) && it.fields.contains(path))).collect();
    let mut merged = live.clone();
    overlay(&mut merged, applied, &orphaned);
    let was = owners.iter().find(|it| own(it)).map(|it| it.fields.clone());
    let fields: Set = wanted.into_keys().collect();
    owners.retain(|it| !own(it));
    let mut mine = Managed::nothing_yet(manager, Operation::Apply, Some(now));
    let before_mine = live.metadata.managed_fields.iter().find(|it| own(it));
    if changed.is_empty() && orphaned.is_empty() && was.as_ref() == Some(&fields) {
        // Nothing changes, not even the time.
        mine.time = before_mine.and_then(|it| it.time);
    }
    mine.fields = fields;
    owners.push(mine);
    merged.metadata.managed_fields = sorted(owners);
    Applied::Merged(Box::new(merged))
}

fn overlay(merged: &mut Lease, applied: &Lease, orphaned: &Set) {
    let is_orphaned = |part: &str, name: &str| orphaned.iter().any(|path| path.len() == 2 && path[0] == part && path[1] == name);
    macro_rules! lay {
        ($($field:ident $name:literal),*) => {$(
            if applied.spec.$field.is_some() {
                merged.spec.$field = applied.spec.$field.clone();
            } else if is_orphaned("f:spec", concat!("f:", $name)) {
                merged.spec.$field = None;
            }
        )*};
    }
    lay!(
        holder_identity "holderIdentity",
        lease_duration_seconds "leaseDurationSeconds",
        acquire_time "acquireTime",
        renew_time "renewTime",
        lease_transitions "leaseTransitions",
        strategy "strategy",
        preferred_holder "preferredHolder"
    );
    let (meta, given) = (&mut merged.metadata, &applied.metadata);
    for (map, given, name) in
        [(&mut meta.labels, &given.labels, "f:labels"), (&mut meta.annotations, &given.annotations, "f:annotations")]
    {
        map.retain(|key, _| !orphaned.contains(&vec!["f:metadata".to_owned(), name.to_owned(), format!("f:{key}")]));
        map.extend(given.clone());
    }
    for owner in &given.owner_references {
        meta.owner_references.retain(|it| it.uid != owner.uid);
        meta.owner_references.push(owner.clone());
    }
    for finalizer in &given.finalizers {
        if !meta.finalizers.contains(finalizer) {
            meta.finalizers.push(finalizer.clone());
        }
    }
}

/// Every field that can be owned, with its value.
fn values(lease: &Lease) -> BTreeMap<Path, Value> {
    let mut found = BTreeMap::new();
    let path = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Path>();
    let spec = serde_json::to_value(&lease.spec).expect("our own type");
    for (name, value) in spec.as_object().expect("a struct") {
        found.insert(path(&["f:spec", &format!("f:{name}")]), value.clone());
    }
    let meta = &lease.metadata;
    if !meta.generate_name.is_empty() {
        found.insert(path(&["f:metadata", "f:generateName"]), meta.generate_name.clone().into());
    }
    // A map or list is a field itself, besides what is in it.
    let mut members = |name: &str, members: Vec<(String, Value)>| {
        if !members.is_empty() {
            found.insert(path(&["f:metadata", name, "."]), Value::Null);
        }
        for (member, value) in members {
            found.insert(path(&["f:metadata", name, &member]), value);
        }
    };
    for (name, map) in [("f:labels", &meta.labels), ("f:annotations", &meta.annotations)] {
        members(name, map.iter().map(|(key, value)| (format!("f:{key}"), value.clone().into())).collect());
    }
    let owners = meta.owner_references.iter();
    let owners = owners.map(|it| (format!("k:{{\"uid\":{:?}}}", it.uid), serde_json::to_value(it).expect("our own type")));
    members("f:ownerReferences", owners.collect());
    members("f:finalizers", meta.finalizers.iter().map(|it| (format!("v:{it:?}"), Value::Null)).collect());
    found
}

fn leaves(value: &Value, path: &mut Path, found: &mut Set) {
    for (name, below) in value.as_object().into_iter().flatten() {
        path.push(name.clone());
        if below.as_object().is_none_or(Map::is_empty) {
            found.insert(path.clone());
        } else {
            leaves(below, path, found);
        }
        path.pop();
    }
}

/// Owners of nothing are none.
fn sorted(mut owners: Vec<Managed>) -> Vec<Managed> {
    owners.retain(|it| !it.fields.is_empty());
    owners.sort_by(|a, b| (a.operation, a.time, &a.manager).cmp(&(b.operation, b.time, &b.manager)));
    owners
}

/// As conflicts write a path: `.spec.holderIdentity`.
fn dotted(path: &Path) -> String {
    path.iter().filter(|it| *it != ".").map(|it| format!(".{}", it.strip_prefix("f:").unwrap_or(it))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: &str) -> Lease {
        let mut lease = Lease::default();
        lease.spec.holder_identity = Some(holder.to_owned());
        lease
    }

    fn owners(lease: &Lease) -> Vec<(&str, Operation, String)> {
        lease.metadata.managed_fields.iter().map(|it| (it.manager.as_str(), it.operation, it.fields_v1().to_string())).collect()
    }

    const HOLDER: &str = r#"{"f:spec":{"f:holderIdentity":{}}}"#;

    #[test]
    fn who_changes_a_field_owns_it_and_who_changes_nothing_leaves_the_time() {
        let mut first = held_by("x");
        update(None, &mut first, "a", Time(1));
        assert_eq!(owners(&first), [("a", Operation::Update, HOLDER.to_owned())]);
        let mut same = held_by("x");
        update(Some(&first), &mut same, "b", Time(2));
        assert_eq!(same, first);
        let mut other = held_by("y");
        other.spec.lease_duration_seconds = Some(1);
        update(Some(&same), &mut other, "b", Time(3));
        assert_eq!(owners(&other).len(), 1);
        assert_eq!(owners(&other)[0].0, "b");
        let mut gone = Lease::default();
        update(Some(&other), &mut gone, "c", Time(4));
        assert_eq!(owners(&gone), []);
    }

    #[test]
    fn an_apply_takes_nothing_from_others_unless_forced_and_gives_up_what_it_leaves_out() {
        let mut live = held_by("x");
        update(None, &mut live, "a", Time(1));
        let Applied::Conflicts(conflicts) = apply(Some(&live), &held_by("y"), "b", Force::No, Time(2)) else { panic!() };
        assert_eq!(
            conflicts[0],
            ("\"a\" using coordination.k8s.io/v1 at 1970-01-01T00:00:01Z".into(), ".spec.holderIdentity".into())
        );
        let Applied::Merged(forced) = apply(Some(&live), &held_by("y"), "b", Force::Yes, Time(2)) else { panic!() };
        assert_eq!(owners(&forced), [("b", Operation::Apply, HOLDER.to_owned())]);
        let Applied::Merged(again) = apply(Some(&forced), &held_by("y"), "b", Force::No, Time(3)) else { panic!() };
        assert_eq!(again, forced);
        let Applied::Merged(left) = apply(Some(&again), &Lease::default(), "b", Force::No, Time(4)) else { panic!() };
        assert_eq!(left.spec.holder_identity, None);
        assert_eq!(owners(&left), []);
    }
}
