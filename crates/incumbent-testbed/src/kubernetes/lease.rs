//! The Lease: its fields in the order in which the real server writes them, read from JSON and checked as the real server does.
//!
//! Left out: finalizers are kept but hold up no deletion.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use super::fields::Managed;
use super::status::{API_VERSION, Flaw, Status};
use super::time::{MicroTime, Time};

#[derive(Clone, Default, PartialEq, Debug, Serialize)]
pub(super) struct Lease {
    pub(super) metadata: Meta,
    pub(super) spec: Spec,
}

#[derive(Clone, Default, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Meta {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) generate_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) uid: String,
    /// What a client sends may be anything; what we write is a number.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) resource_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) creation_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) owner_references: Vec<Owner>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) finalizers: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) managed_fields: Vec<Managed>,
}

#[derive(Clone, Default, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Owner {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) controller: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) block_owner_deletion: Option<bool>,
}

#[derive(Clone, Default, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) holder_identity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lease_duration_seconds: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) acquire_time: Option<MicroTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) renew_time: Option<MicroTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lease_transitions: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) strategy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) preferred_holder: Option<String>,
}

/// A Lease as it is told by itself: items of a list do not say their kind.
#[derive(Serialize)]
pub(super) struct Typed<'a> {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    metadata: &'a Meta,
    spec: &'a Spec,
}

impl Lease {
    pub(super) fn typed(&self) -> Typed<'_> {
        Typed { kind: "Lease", api_version: API_VERSION, metadata: &self.metadata, spec: &self.spec }
    }

    /// Everything that is wrong with it, if anything.
    pub(super) fn validate(&self) -> Result<(), Status> {
        let mut flaws = Vec::new();
        let Meta { name, .. } = &self.metadata;
        if name.is_empty() {
            flaws.push(Flaw::required("metadata.name", "name or generateName is required"));
        } else if !is_subdomain(name) {
            flaws.push(Flaw::invalid("metadata.name", format!("{name:?}"), NOT_A_SUBDOMAIN));
        }
        if let Some(seconds) = self.spec.lease_duration_seconds.filter(|it| *it <= 0) {
            flaws.push(Flaw::invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"));
        }
        if let Some(transitions) = self.spec.lease_transitions.filter(|it| *it < 0) {
            flaws.push(Flaw::invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"));
        }
        if flaws.is_empty() { Ok(()) } else { Err(Status::invalid(name, &flaws)) }
    }

    /// What an update may not change.
    pub(super) fn validate_update(&self, before: &Lease) -> Result<(), Status> {
        if self.metadata.creation_timestamp != before.metadata.creation_timestamp {
            let given = serde_json::to_string(&self.metadata.creation_timestamp).unwrap_or_default();
            let flaw = Flaw::invalid("metadata.creationTimestamp", given, "field is immutable");
            return Err(Status::invalid(&self.metadata.name, &[flaw]));
        }
        self.validate()
    }
}

const NOT_A_SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const NAME_BYTES_MAX: usize = 253;

fn is_subdomain(name: &str) -> bool {
    let alphanumeric = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit();
    name.len() <= NAME_BYTES_MAX
        && name.split('.').all(|label| {
            label.starts_with(alphanumeric)
                && label.ends_with(alphanumeric)
                && label.chars().all(|it| alphanumeric(it) || it == '-')
        })
}

/// What was read, and what was in the text that no Lease has.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) lease: Lease,
    /// Paths, as in `spec.foo`.
    pub(super) unknown: Vec<String>,
}

/// Reads a Lease from JSON that has been parsed.
pub(super) fn decode(value: &Value) -> Result<Decoded, Status> {
    let mut unknown = Vec::new();
    let lease = read(value, &mut unknown)
        .map_err(|wrong| Status::bad_request(format!("Lease in version \"v1\" cannot be handled as a Lease: {wrong}")))?;
    Ok(Decoded { lease, unknown })
}

fn read(value: &Value, unknown: &mut Vec<String>) -> Result<Lease, String> {
    let Some(top) = Part::new("", value)? else { return Ok(Lease::default()) };
    top.note_unknown(&["kind", "apiVersion", "metadata", "spec", "status"], unknown);
    let (kind, version) = (top.text("kind")?.unwrap_or_default(), top.text("apiVersion")?.unwrap_or_default());
    if !(kind.is_empty() || kind == "Lease") || !(version.is_empty() || version == API_VERSION) {
        return Err(format!("no kind {kind:?} is registered for version {version:?} in scheme \"legacyscheme\""));
    }
    let mut lease = Lease::default();
    if let Some(meta) = top.part("metadata")? {
        lease.metadata = read_meta(&meta, unknown)?;
    }
    if let Some(spec) = top.part("spec")? {
        lease.spec = read_spec(&spec, unknown)?;
    }
    Ok(lease)
}

fn read_meta(part: &Part<'_>, unknown: &mut Vec<String>) -> Result<Meta, String> {
    const KNOWN: [&str; 16] = [
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
        "managedFields",
        "clusterName",
    ];
    part.note_unknown(&KNOWN, unknown);
    let text = |name| part.text(name).map(Option::unwrap_or_default);
    Ok(Meta {
        name: text("name")?,
        generate_name: text("generateName")?,
        namespace: text("namespace")?,
        uid: text("uid")?,
        resource_version: text("resourceVersion")?,
        creation_timestamp: part.text("creationTimestamp")?.map(|it| Time::parse(&it)).transpose()?,
        labels: part.texts("labels")?,
        annotations: part.texts("annotations")?,
        owner_references: part.list("ownerReferences")?.iter().map(read_owner).collect::<Result<_, _>>()?,
        finalizers: part.list("finalizers")?.iter().filter_map(|it| it.as_str().map(str::to_owned)).collect(),
        managed_fields: part.list("managedFields")?.iter().map(Managed::read).collect::<Result<_, _>>()?,
    })
}

fn read_owner(value: &Value) -> Result<Owner, String> {
    let Some(part) = Part::new("metadata.ownerReferences", value)? else { return Ok(Owner::default()) };
    let text = |name| part.text(name).map(Option::unwrap_or_default);
    Ok(Owner {
        api_version: text("apiVersion")?,
        kind: text("kind")?,
        name: text("name")?,
        uid: text("uid")?,
        controller: part.fields.get("controller").and_then(Value::as_bool),
        block_owner_deletion: part.fields.get("blockOwnerDeletion").and_then(Value::as_bool),
    })
}

fn read_spec(part: &Part<'_>, unknown: &mut Vec<String>) -> Result<Spec, String> {
    const KNOWN: [&str; 7] =
        ["holderIdentity", "leaseDurationSeconds", "acquireTime", "renewTime", "leaseTransitions", "strategy", "preferredHolder"];
    part.note_unknown(&KNOWN, unknown);
    let time = |name| part.text(name)?.map(|it| MicroTime::parse(&it)).transpose();
    Ok(Spec {
        holder_identity: part.text("holderIdentity")?,
        lease_duration_seconds: part.number("leaseDurationSeconds")?,
        acquire_time: time("acquireTime")?,
        renew_time: time("renewTime")?,
        lease_transitions: part.number("leaseTransitions")?,
        strategy: part.text("strategy")?,
        preferred_holder: part.text("preferredHolder")?,
    })
}

/// An object within the text, and where. What is null counts as absent.
pub(super) struct Part<'a> {
    path: String,
    fields: &'a Map<String, Value>,
}

impl<'a> Part<'a> {
    pub(super) fn new(path: &str, value: &'a Value) -> Result<Option<Self>, String> {
        match value {
            Value::Null => Ok(None),
            Value::Object(fields) => Ok(Some(Self { path: path.to_owned(), fields })),
            other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                Err(mismatch(other, path, "struct"))
            }
        }
    }

    fn at(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    fn note_unknown(&self, known: &[&str], unknown: &mut Vec<String>) {
        unknown.extend(self.fields.keys().filter(|it| !known.contains(&it.as_str())).map(|it| self.at(it)));
    }

    fn part(&self, name: &str) -> Result<Option<Part<'a>>, String> {
        self.fields.get(name).map_or(Ok(None), |value| Part::new(&self.at(name), value))
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<String>, String> {
        match self.fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(mismatch(other, &self.at(name), "string")),
        }
    }

    fn number(&self, name: &str) -> Result<Option<i32>, String> {
        match self.fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_i64().and_then(|it| i32::try_from(it).ok()) {
                Some(number) => Ok(Some(number)),
                None => Err(mismatch(value, &self.at(name), "int32")),
            },
        }
    }

    fn texts(&self, name: &str) -> Result<BTreeMap<String, String>, String> {
        let Some(part) = self.part(name)? else { return Ok(BTreeMap::new()) };
        part.fields.keys().map(|key| Ok((key.clone(), part.text(key)?.unwrap_or_default()))).collect()
    }

    fn list(&self, name: &str) -> Result<&'a [Value], String> {
        match self.fields.get(name) {
            None | Some(Value::Null) => Ok(&[]),
            Some(Value::Array(items)) => Ok(items),
            Some(other) => Err(mismatch(other, &self.at(name), "slice")),
        }
    }
}

/// In the words of Go's JSON.
fn mismatch(value: &Value, path: &str, wanted: &str) -> String {
    let found = match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(number) => format!("number {number}"),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    };
    format!("json: cannot unmarshal {found} into Go struct field Lease.{path} of type {wanted}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_is_read_again() {
        let text = json!({
            "kind": "Lease", "apiVersion": API_VERSION,
            "metadata": { "name": "a", "labels": { "b": "c" }, "ownerReferences": [
                { "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true }
            ] },
            "spec": { "holderIdentity": "", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000001Z" },
        });
        let decoded = decode(&text).unwrap();
        assert_eq!(serde_json::to_value(decoded.lease.typed()).unwrap(), text);
        assert!(decoded.unknown.is_empty());
    }

    #[test]
    fn a_time_without_six_digits_and_a_number_in_quotes_are_refused() {
        for (spec, text) in [
            (json!({ "renewTime": "2026-01-01T00:00:00Z" }), "as \"2006-01-02T15:04:05.000000Z07:00\""),
            (json!({ "leaseDurationSeconds": "15" }), "json: cannot unmarshal string"),
            (json!({ "leaseDurationSeconds": 1.5 }), "json: cannot unmarshal number 1.5"),
            (json!([]), "json: cannot unmarshal array"),
        ] {
            let wrong = decode(&json!({ "spec": spec })).unwrap_err();
            assert!(wrong.code == 400 && wrong.message.contains(text), "{wrong:?}");
        }
    }

    #[test]
    fn names_are_subdomains() {
        for name in ["a", "a.b-c.1", "0"] {
            assert!(is_subdomain(name), "{name}");
        }
        for name in ["A", "a_b", "-a", "a-", "a..b", ".", &"a".repeat(254)] {
            assert!(!is_subdomain(name), "{name}");
        }
    }
}
