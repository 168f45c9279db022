//! Leases, lists, statuses and events as protobuf, byte for byte as the real server writes them.
//!
//! Go writes a text or number that is no pointer even when it is empty, so those are `Some` here where we write. On the wire an object is
//! wrapped: four letters, then a message with its type and its bytes.

use prost::Message as _;
use serde_json::Value;

use super::fields::{Managed, Operation};
use super::lease::{Lease, Meta, Owner, Spec};
use super::status::{API_VERSION, Status};
use super::time::{MicroTime, Time};
use super::wire::List;

pub(super) const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";

const MAGIC: [u8; 4] = *b"k8s\0";

/// The messages, by the numbers of Kubernetes' own definitions.
mod message {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Wrapped {
        #[prost(message, optional, tag = "1")]
        pub(super) type_meta: Option<TypeMeta>,
        #[prost(bytes = "vec", optional, tag = "2")]
        pub(super) raw: Option<Vec<u8>>,
        #[prost(string, optional, tag = "3")]
        pub(super) content_encoding: Option<String>,
        #[prost(string, optional, tag = "4")]
        pub(super) content_type: Option<String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct TypeMeta {
        #[prost(string, optional, tag = "1")]
        pub(super) api_version: Option<String>,
        #[prost(string, optional, tag = "2")]
        pub(super) kind: Option<String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Lease {
        #[prost(message, optional, tag = "1")]
        pub(super) metadata: Option<ObjectMeta>,
        #[prost(message, optional, tag = "2")]
        pub(super) spec: Option<LeaseSpec>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ObjectMeta {
        #[prost(string, optional, tag = "1")]
        pub(super) name: Option<String>,
        #[prost(string, optional, tag = "2")]
        pub(super) generate_name: Option<String>,
        #[prost(string, optional, tag = "3")]
        pub(super) namespace: Option<String>,
        #[prost(string, optional, tag = "4")]
        pub(super) self_link: Option<String>,
        #[prost(string, optional, tag = "5")]
        pub(super) uid: Option<String>,
        #[prost(string, optional, tag = "6")]
        pub(super) resource_version: Option<String>,
        #[prost(int64, optional, tag = "7")]
        pub(super) generation: Option<i64>,
        #[prost(message, optional, tag = "8")]
        pub(super) creation_timestamp: Option<Timestamp>,
        #[prost(message, repeated, tag = "11")]
        pub(super) labels: Vec<Entry>,
        #[prost(message, repeated, tag = "12")]
        pub(super) annotations: Vec<Entry>,
        #[prost(message, repeated, tag = "13")]
        pub(super) owner_references: Vec<OwnerReference>,
        #[prost(string, repeated, tag = "14")]
        pub(super) finalizers: Vec<String>,
        #[prost(message, repeated, tag = "17")]
        pub(super) managed_fields: Vec<ManagedFieldsEntry>,
    }

    /// Of a map.
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Entry {
        #[prost(string, optional, tag = "1")]
        pub(super) key: Option<String>,
        #[prost(string, optional, tag = "2")]
        pub(super) value: Option<String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct OwnerReference {
        #[prost(string, optional, tag = "1")]
        pub(super) kind: Option<String>,
        #[prost(string, optional, tag = "3")]
        pub(super) name: Option<String>,
        #[prost(string, optional, tag = "4")]
        pub(super) uid: Option<String>,
        #[prost(string, optional, tag = "5")]
        pub(super) api_version: Option<String>,
        #[prost(bool, optional, tag = "6")]
        pub(super) controller: Option<bool>,
        #[prost(bool, optional, tag = "7")]
        pub(super) block_owner_deletion: Option<bool>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ManagedFieldsEntry {
        #[prost(string, optional, tag = "1")]
        pub(super) manager: Option<String>,
        #[prost(string, optional, tag = "2")]
        pub(super) operation: Option<String>,
        #[prost(string, optional, tag = "3")]
        pub(super) api_version: Option<String>,
        #[prost(message, optional, tag = "4")]
        pub(super) time: Option<Timestamp>,
        #[prost(string, optional, tag = "6")]
        pub(super) fields_type: Option<String>,
        #[prost(message, optional, tag = "7")]
        pub(super) fields_v1: Option<Raw>,
        #[prost(string, optional, tag = "8")]
        pub(super) subresource: Option<String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Raw {
        #[prost(bytes = "vec", optional, tag = "1")]
        pub(super) raw: Option<Vec<u8>>,
    }

    /// Without seconds it is no time at all.
    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(super) struct Timestamp {
        #[prost(int64, optional, tag = "1")]
        pub(super) seconds: Option<i64>,
        #[prost(int32, optional, tag = "2")]
        pub(super) nanos: Option<i32>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct LeaseSpec {
        #[prost(string, optional, tag = "1")]
        pub(super) holder_identity: Option<String>,
        #[prost(int32, optional, tag = "2")]
        pub(super) lease_duration_seconds: Option<i32>,
        #[prost(message, optional, tag = "3")]
        pub(super) acquire_time: Option<Timestamp>,
        #[prost(message, optional, tag = "4")]
        pub(super) renew_time: Option<Timestamp>,
        #[prost(int32, optional, tag = "5")]
        pub(super) lease_transitions: Option<i32>,
        #[prost(string, optional, tag = "6")]
        pub(super) strategy: Option<String>,
        #[prost(string, optional, tag = "7")]
        pub(super) preferred_holder: Option<String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct LeaseList {
        #[prost(message, optional, tag = "1")]
        pub(super) metadata: Option<ListMeta>,
        #[prost(message, repeated, tag = "2")]
        pub(super) items: Vec<Lease>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ListMeta {
        #[prost(string, optional, tag = "1")]
        pub(super) self_link: Option<String>,
        #[prost(string, optional, tag = "2")]
        pub(super) resource_version: Option<String>,
        #[prost(string, optional, tag = "3")]
        pub(super) token: Option<String>,
        #[prost(int64, optional, tag = "4")]
        pub(super) remaining_item_count: Option<i64>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Status {
        #[prost(message, optional, tag = "1")]
        pub(super) metadata: Option<ListMeta>,
        #[prost(string, optional, tag = "2")]
        pub(super) status: Option<String>,
        #[prost(string, optional, tag = "3")]
        pub(super) message: Option<String>,
        #[prost(string, optional, tag = "4")]
        pub(super) reason: Option<String>,
        #[prost(message, optional, tag = "5")]
        pub(super) details: Option<Details>,
        #[prost(int32, optional, tag = "6")]
        pub(super) code: Option<i32>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Details {
        #[prost(string, optional, tag = "1")]
        pub(super) name: Option<String>,
        #[prost(string, optional, tag = "2")]
        pub(super) group: Option<String>,
        #[prost(string, optional, tag = "3")]
        pub(super) kind: Option<String>,
        #[prost(message, repeated, tag = "4")]
        pub(super) causes: Vec<Cause>,
        #[prost(int32, optional, tag = "5")]
        pub(super) retry_after_seconds: Option<i32>,
        #[prost(string, optional, tag = "6")]
        pub(super) uid: Option<String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Cause {
        #[prost(string, optional, tag = "1")]
        pub(super) reason: Option<String>,
        #[prost(string, optional, tag = "2")]
        pub(super) message: Option<String>,
        #[prost(string, optional, tag = "3")]
        pub(super) field: Option<String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct WatchEvent {
        #[prost(string, optional, tag = "1")]
        pub(super) name: Option<String>,
        #[prost(message, optional, tag = "2")]
        pub(super) object: Option<Raw>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct DeleteOptions {
        #[prost(message, optional, tag = "2")]
        pub(super) preconditions: Option<Preconditions>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Preconditions {
        #[prost(string, optional, tag = "1")]
        pub(super) uid: Option<String>,
        #[prost(string, optional, tag = "2")]
        pub(super) resource_version: Option<String>,
    }
}

// Writing

pub(super) fn lease(lease: &Lease) -> Vec<u8> {
    wrap(API_VERSION, "Lease", lease_out(lease).encode_to_vec())
}

pub(super) fn list(list: &List) -> Vec<u8> {
    let more = list.more.as_ref();
    let metadata = message::ListMeta {
        self_link: Some(String::new()),
        resource_version: Some(list.version.to_string()),
        token: Some(more.map(|it| it.token.clone()).unwrap_or_default()),
        remaining_item_count: more.and_then(|it| it.left).and_then(|it| i64::try_from(it).ok()),
    };
    let out = message::LeaseList { metadata: Some(metadata), items: list.items.iter().map(lease_out).collect() };
    wrap(API_VERSION, "LeaseList", out.encode_to_vec())
}

pub(super) fn status(status: &Status) -> Vec<u8> {
    let empty = || Some(String::new());
    let details = status.details.as_ref().map(|it| message::Details {
        name: Some(it.name.clone()),
        group: Some(it.group.to_owned()),
        kind: Some(it.kind.to_owned()),
        causes: it
            .causes
            .iter()
            .map(|it| message::Cause {
                reason: Some(it.reason.to_owned()),
                message: Some(it.message.clone()),
                field: Some(it.field.clone()),
            })
            .collect(),
        retry_after_seconds: Some(it.retry_after_seconds.into()),
        uid: Some(it.uid.clone()),
    });
    let out = message::Status {
        metadata: Some(message::ListMeta {
            self_link: empty(),
            resource_version: empty(),
            token: empty(),
            remaining_item_count: None,
        }),
        status: Some(status.status.to_owned()),
        message: Some(status.message.clone()),
        reason: Some(status.reason.to_owned()),
        details,
        code: Some(status.code.into()),
    };
    wrap("v1", "Status", out.encode_to_vec())
}

/// An event of a watch around an object that is wrapped already; its length stands before it.
pub(super) fn event(name: &str, object: Vec<u8>) -> Vec<u8> {
    let out = message::WatchEvent { name: Some(name.to_owned()), object: Some(message::Raw { raw: Some(object) }) };
    let length = u32::try_from(out.encoded_len()).expect("far less than four gigabytes");
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend(out.encode_to_vec());
    frame
}

fn wrap(api_version: &str, kind: &str, raw: Vec<u8>) -> Vec<u8> {
    let wrapped = message::Wrapped {
        type_meta: Some(message::TypeMeta { api_version: Some(api_version.to_owned()), kind: Some(kind.to_owned()) }),
        raw: Some(raw),
        content_encoding: Some(String::new()),
        content_type: Some(String::new()),
    };
    let mut bytes = MAGIC.to_vec();
    bytes.extend(wrapped.encode_to_vec());
    bytes
}

fn lease_out(lease: &Lease) -> message::Lease {
    let Lease { metadata: meta, spec } = lease;
    let entries = |map: &std::collections::BTreeMap<String, String>| {
        map.iter().map(|(key, value)| message::Entry { key: Some(key.clone()), value: Some(value.clone()) }).collect()
    };
    let metadata = message::ObjectMeta {
        name: Some(meta.name.clone()),
        generate_name: Some(meta.generate_name.clone()),
        namespace: Some(meta.namespace.clone()),
        self_link: Some(String::new()),
        uid: Some(meta.uid.clone()),
        resource_version: Some(meta.resource_version.clone()),
        generation: Some(0),
        creation_timestamp: Some(meta.creation_timestamp.map(seconds).unwrap_or_default()),
        labels: entries(&meta.labels),
        annotations: entries(&meta.annotations),
        owner_references: meta.owner_references.iter().map(owner_out).collect(),
        finalizers: meta.finalizers.clone(),
        managed_fields: meta.managed_fields.iter().map(managed_out).collect(),
    };
    let spec = message::LeaseSpec {
        holder_identity: spec.holder_identity.clone(),
        lease_duration_seconds: spec.lease_duration_seconds,
        acquire_time: spec.acquire_time.map(micros),
        renew_time: spec.renew_time.map(micros),
        lease_transitions: spec.lease_transitions,
        strategy: spec.strategy.clone(),
        preferred_holder: spec.preferred_holder.clone(),
    };
    message::Lease { metadata: Some(metadata), spec: Some(spec) }
}

fn owner_out(owner: &Owner) -> message::OwnerReference {
    message::OwnerReference {
        kind: Some(owner.kind.clone()),
        name: Some(owner.name.clone()),
        uid: Some(owner.uid.clone()),
        api_version: Some(owner.api_version.clone()),
        controller: owner.controller,
        block_owner_deletion: owner.block_owner_deletion,
    }
}

fn managed_out(managed: &Managed) -> message::ManagedFieldsEntry {
    message::ManagedFieldsEntry {
        manager: Some(managed.manager.clone()),
        operation: Some(managed.operation.name().to_owned()),
        api_version: Some(managed.api_version.clone()),
        time: managed.time.map(seconds),
        fields_type: Some("FieldsV1".to_owned()),
        fields_v1: Some(message::Raw { raw: Some(managed.fields_v1().to_string().into_bytes()) }),
        subresource: Some(String::new()),
    }
}

const MICROS: i64 = 1_000_000;

fn seconds(time: Time) -> message::Timestamp {
    message::Timestamp { seconds: Some(time.0), nanos: Some(0) }
}

fn micros(time: MicroTime) -> message::Timestamp {
    let nanos = i32::try_from(time.0.rem_euclid(MICROS) * 1000).expect("less than a second");
    message::Timestamp { seconds: Some(time.0.div_euclid(MICROS)), nanos: Some(nanos) }
}

// Reading

/// # Errors
/// If it is not a wrapped Lease.
pub(super) fn read_lease(bytes: &[u8]) -> Result<Lease, Status> {
    let read: message::Lease = unwrap(bytes, "Lease")?;
    let meta = read.metadata.unwrap_or_default();
    let spec = read.spec.unwrap_or_default();
    let entries = |them: Vec<message::Entry>| {
        them.into_iter().map(|it| (it.key.unwrap_or_default(), it.value.unwrap_or_default())).collect()
    };
    let metadata = Meta {
        name: meta.name.unwrap_or_default(),
        generate_name: meta.generate_name.unwrap_or_default(),
        namespace: meta.namespace.unwrap_or_default(),
        uid: meta.uid.unwrap_or_default(),
        resource_version: meta.resource_version.unwrap_or_default(),
        creation_timestamp: meta.creation_timestamp.and_then(|it| it.seconds).map(Time),
        labels: entries(meta.labels),
        annotations: entries(meta.annotations),
        owner_references: meta.owner_references.into_iter().map(owner_in).collect(),
        finalizers: meta.finalizers,
        managed_fields: meta.managed_fields.into_iter().map(managed_in).collect(),
    };
    let spec = Spec {
        holder_identity: spec.holder_identity,
        lease_duration_seconds: spec.lease_duration_seconds,
        acquire_time: spec.acquire_time.and_then(micros_in),
        renew_time: spec.renew_time.and_then(micros_in),
        lease_transitions: spec.lease_transitions,
        strategy: spec.strategy,
        preferred_holder: spec.preferred_holder,
    };
    Ok(Lease { metadata, spec })
}

/// The uid and the version that a deletion demands.
pub(super) fn read_preconditions(bytes: &[u8]) -> Result<(Option<String>, Option<String>), Status> {
    let options: message::DeleteOptions = unwrap(bytes, "DeleteOptions")?;
    let preconditions = options.preconditions.unwrap_or_default();
    Ok((preconditions.uid, preconditions.resource_version))
}

fn unwrap<M: prost::Message + Default>(bytes: &[u8], kind: &str) -> Result<M, Status> {
    let wrong = |why: String| Status::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why}"));
    let Some(rest) = bytes.strip_prefix(&MAGIC) else {
        return Err(wrong(format!("provided data does not appear to be a protobuf message, expected prefix {MAGIC:?}")));
    };
    let wrapped = message::Wrapped::decode(rest).map_err(|it| wrong(it.to_string()))?;
    let given = wrapped.type_meta.and_then(|it| it.kind).unwrap_or_default();
    if given != kind && !given.is_empty() {
        return Err(wrong(format!("it is a {given}")));
    }
    M::decode(&wrapped.raw.unwrap_or_default()[..]).map_err(|it| wrong(it.to_string()))
}

fn owner_in(owner: message::OwnerReference) -> Owner {
    Owner {
        api_version: owner.api_version.unwrap_or_default(),
        kind: owner.kind.unwrap_or_default(),
        name: owner.name.unwrap_or_default(),
        uid: owner.uid.unwrap_or_default(),
        controller: owner.controller,
        block_owner_deletion: owner.block_owner_deletion,
    }
}

fn managed_in(managed: message::ManagedFieldsEntry) -> Managed {
    let operation = if managed.operation.as_deref() == Some("Apply") { Operation::Apply } else { Operation::Update };
    let fields = managed.fields_v1.and_then(|it| it.raw).and_then(|it| serde_json::from_slice(&it).ok());
    let time = managed.time.and_then(|it| it.seconds).map(Time);
    let (manager, api_version) = (managed.manager.unwrap_or_default(), managed.api_version.unwrap_or_default());
    Managed::new(manager, operation, api_version, time, &fields.unwrap_or(Value::Null))
}

/// Cut to microseconds. An empty time is none.
fn micros_in(time: message::Timestamp) -> Option<MicroTime> {
    let nanos = i64::from(time.nanos.unwrap_or(0));
    time.seconds?.checked_mul(MICROS)?.checked_add(nanos / 1000).map(MicroTime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_what_is_not_ours_is_refused() {
        let text = serde_json::json!({
            "metadata": {
                "name": "a", "labels": { "b": "" }, "finalizers": ["f"],
                "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true }],
                "managedFields": [{ "manager": "m", "operation": "Apply", "fieldsV1": { "f:spec": { "f:renewTime": {} } } }],
            },
            "spec": { "renewTime": "1969-12-31T23:59:59.000001Z", "leaseTransitions": 0, "holderIdentity": "" },
        });
        let known = super::super::lease::decode(&text).unwrap().lease;
        assert_eq!(read_lease(&lease(&known)).unwrap(), known);
        for bytes in [&b""[..], b"k8s", b"{}", b"k8s\0\xff", &status(&Status::unauthorized())] {
            assert_eq!(read_lease(bytes).unwrap_err().code, 400, "{bytes:?}");
        }
    }
}
