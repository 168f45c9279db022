//! `Status`: how Kubernetes says no, and how it says that something was deleted. The texts are the real server's.

use serde::Serialize;

pub(super) const GROUP: &str = "coordination.k8s.io";
pub(super) const API_VERSION: &str = "coordination.k8s.io/v1";

/// An answer that is no object.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Status {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    metadata: Empty,
    pub(super) status: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) message: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) details: Option<Box<Details>>,
    /// 0 for a success, which does not say.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) code: u16,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
struct Empty {}

#[derive(Clone, Default, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Details {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) group: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) causes: Vec<Cause>,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) retry_after_seconds: u16,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Cause {
    pub(super) reason: &'static str,
    pub(super) message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) field: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u16) -> bool {
    *number == 0
}

/// What is wrong with one field.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Flaw {
    field: &'static str,
    reason: &'static str,
    text: String,
}

impl Flaw {
    pub(super) fn invalid(field: &'static str, value: impl std::fmt::Display, why: &str) -> Self {
        Self { field, reason: "FieldValueInvalid", text: format!("Invalid value: {value}: {why}") }
    }

    pub(super) fn required(field: &'static str, why: &str) -> Self {
        Self { field, reason: "FieldValueRequired", text: format!("Required value: {why}") }
    }
}

/// Of one Lease.
fn of(name: &str, kind: &'static str) -> Option<Details> {
    Some(Details { name: name.to_owned(), group: GROUP, kind, ..Details::default() })
}

fn failure(code: u16, reason: &'static str, message: impl Into<String>, details: Option<Details>) -> Status {
    let (message, details) = (message.into(), details.map(Box::new));
    Status { kind: "Status", api_version: "v1", metadata: Empty {}, status: "Failure", message, reason, details, code }
}

impl Status {
    pub(super) fn deleted(name: &str, uid: &str) -> Self {
        let details = of(name, "leases").map(|it| Details { uid: uid.to_owned(), ..it });
        Self { status: "Success", ..failure(0, "", "", details) }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        failure(400, "BadRequest", message, None)
    }

    pub(super) fn unauthorized() -> Self {
        failure(401, "Unauthorized", "Unauthorized", None)
    }

    /// `place` says where, after "in API group …".
    pub(super) fn forbidden(name: &str, user: &str, verb: &str, place: &str) -> Self {
        let quoted = if name.is_empty() { String::new() } else { format!(" {name:?}") };
        let message = format!(
            "leases.{GROUP}{quoted} is forbidden: User {user:?} cannot {verb} resource \"leases\" in API group {GROUP:?} {place}"
        );
        failure(403, "Forbidden", message, of(name, "leases"))
    }

    /// Of what is no resource.
    pub(super) fn path_forbidden(path: &str) -> Self {
        let message = format!("forbidden: User \"testbed\" cannot get path {path:?}");
        failure(403, "Forbidden", message, Some(Details::default()))
    }

    pub(super) fn not_found(name: &str) -> Self {
        failure(404, "NotFound", format!("leases.{GROUP} {name:?} not found"), of(name, "leases"))
    }

    pub(super) fn namespace_not_found(name: &str) -> Self {
        let details = Details { name: name.to_owned(), kind: "namespaces", ..Details::default() };
        failure(404, "NotFound", format!("namespaces {name:?} not found"), Some(details))
    }

    /// For paths that lead nowhere.
    pub(super) fn no_such_path() -> Self {
        failure(404, "NotFound", "the server could not find the requested resource", Some(Details::default()))
    }

    pub(super) fn method_not_allowed() -> Self {
        failure(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
            Some(Details::default()),
        )
    }

    pub(super) fn not_acceptable() -> Self {
        let message = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf";
        failure(406, "NotAcceptable", message, Some(Details::default()))
    }

    pub(super) fn already_exists(name: &str) -> Self {
        failure(409, "AlreadyExists", format!("leases.{GROUP} {name:?} already exists"), of(name, "leases"))
    }

    pub(super) fn modified(name: &str) -> Self {
        Self::conflict(name, "the object has been modified; please apply your changes to the latest version and try again")
    }

    pub(super) fn other_uid(namespace: &str, name: &str, expected: &str, found: &str) -> Self {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/leases/{namespace}/{name}, ResourceVersion: 0, \
             AdditionalErrorMsg: Precondition failed: UID in precondition: {expected}, UID in object meta: {found}"
        );
        Self::conflict(name, &why)
    }

    fn conflict(name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on leases.{GROUP} {name:?}: {why}");
        failure(409, "Conflict", message, of(name, "leases"))
    }

    /// A delete whose precondition fails names the kind where others name the resource.
    pub(super) fn precondition_failed(name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on Lease.{GROUP} {name:?}: {why}");
        failure(409, "Conflict", message, of(name, "Lease"))
    }

    /// `owned` is who owns which field.
    pub(super) fn apply_conflicts(owned: &[(String, String)]) -> Self {
        let causes: Vec<Cause> = owned
            .iter()
            .map(|(owner, field)| Cause {
                reason: "FieldManagerConflict",
                message: format!("conflict with {owner}"),
                field: field.clone(),
            })
            .collect();
        let text = match owned {
            [(owner, field)] => format!("Apply failed with 1 conflict: conflict with {owner}: {field}"),
            several => {
                let mut text = format!("Apply failed with {} conflicts:", several.len());
                for (at, (owner, field)) in several.iter().enumerate() {
                    if at == 0 || several[at - 1].0 != *owner {
                        text.push_str(&format!("{} conflicts with {owner}:", if at == 0 { "" } else { "\n" }));
                    }
                    text.push_str(&format!("\n- {field}"));
                }
                text
            }
        };
        failure(409, "Conflict", text, Some(Details { causes, ..Details::default() }))
    }

    pub(super) fn expired(message: impl Into<String>) -> Self {
        failure(410, "Expired", message, None)
    }

    pub(super) fn unsupported_media_type(accepted: &str) -> Self {
        let message = format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
        failure(415, "UnsupportedMediaType", message, None)
    }

    pub(super) fn invalid(name: &str, flaws: &[Flaw]) -> Self {
        Self::unprocessable("Lease", GROUP, name, flaws)
    }

    /// An update that says no version names the resource where other invalid objects name the kind.
    pub(super) fn version_missing(name: &str) -> Self {
        let flaw = Flaw::invalid("metadata.resourceVersion", 0, "must be specified for an update");
        Self::unprocessable("leases", GROUP, name, &[flaw])
    }

    pub(super) fn field_manager_missing() -> Self {
        let flaw = Flaw::required("fieldManager", "is required for apply patch");
        Self::unprocessable("PatchOptions", "meta.k8s.io", "", &[flaw])
    }

    fn unprocessable(kind: &'static str, group: &'static str, name: &str, flaws: &[Flaw]) -> Self {
        let list: Vec<String> = flaws.iter().map(|it| format!("{}: {}", it.field, it.text)).collect();
        let list = if let [one] = &list[..] { one.clone() } else { format!("[{}]", list.join(", ")) };
        let causes = flaws.iter().map(|it| Cause { reason: it.reason, message: it.text.clone(), field: it.field.to_owned() });
        let details = Details { name: name.to_owned(), group, kind, causes: causes.collect(), ..Details::default() };
        failure(422, "Invalid", format!("{kind}.{group} {name:?} is invalid: {list}"), Some(details))
    }

    pub(super) fn patch_failed() -> Self {
        let message = "the server rejected our request due to an error in our request";
        failure(422, "Invalid", message, Some(Details::default()))
    }

    pub(super) fn version_on_create() -> Self {
        failure(500, "", "resourceVersion should not be set on objects to be created", None)
    }

    pub(super) fn version_malformed(text: &str) -> Self {
        let wrong = format!("resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax");
        failure(500, "", wrong, None)
    }

    pub(super) fn version_too_large(asked: u64, current: u64) -> Self {
        let cause =
            Cause { reason: "ResourceVersionTooLarge", message: "Too large resource version".into(), field: String::new() };
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        failure(504, "Timeout", message, Some(Details { causes: vec![cause], retry_after_seconds: 1, ..Details::default() }))
    }
}
