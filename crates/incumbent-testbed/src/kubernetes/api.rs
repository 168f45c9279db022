//! The verbs of the Lease API: what each checks, in the order of the real server, and what it writes.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::header::CONTENT_TYPE;
use hyper::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::Cluster;
use super::fields::{self, Applied, Force};
use super::lease::{Decoded, Lease, decode};
use super::selector::Selector;
use super::status::Status;
use super::store::Store;
use super::time::Time;
use super::wire::{self, Form, List, More};
use super::{discovery, protobuf, watch};
use crate::serving::{Access, Ask, Reply, locked};

const LEASES: &str = "leases";

/// A path of the API, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place<'a> {
    /// None for all of them.
    namespace: Option<&'a str>,
    /// None for all of them.
    name: Option<&'a str>,
}

/// What is done to Leases, as access rules call it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }

    fn needs(self) -> Access {
        match self {
            Verb::Get | Verb::List | Verb::Watch => Access::Read,
            Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => Access::Write,
        }
    }

    fn of(ask: &Ask, place: &Place<'_>) -> Option<Self> {
        let watch = ask.parameter("watch").is_some_and(|it| it == "true" || it == "1");
        match (ask.method.clone(), place.name.is_some(), place.namespace.is_some()) {
            (Method::GET, ..) if watch => Some(Verb::Watch),
            (Method::GET, true, _) => Some(Verb::Get),
            (Method::GET, false, _) => Some(Verb::List),
            (Method::POST, false, true) => Some(Verb::Create),
            (Method::PUT, true, _) => Some(Verb::Update),
            (Method::PATCH, true, _) => Some(Verb::Patch),
            (Method::DELETE, true, _) => Some(Verb::Delete),
            (Method::DELETE, false, true) => Some(Verb::DeleteCollection),
            (..) => None,
        }
    }
}

fn place(path: &str) -> Option<Place<'_>> {
    let rest = path.strip_prefix("/apis/coordination.k8s.io/v1/")?;
    let parts: Vec<&str> = rest.trim_end_matches('/').split('/').collect();
    match parts[..] {
        [LEASES] => Some(Place { namespace: None, name: None }),
        ["namespaces", namespace, LEASES] => Some(Place { namespace: Some(namespace), name: None }),
        ["namespaces", namespace, LEASES, name] => Some(Place { namespace: Some(namespace), name: Some(name) }),
        _ => None,
    }
}

/// The word under which a request is counted: a verb of the API, or the method where there is none.
pub(super) fn verb(ask: &Ask) -> String {
    let verb = place(&ask.path).and_then(|it| Verb::of(ask, &it));
    verb.map_or_else(|| ask.method.to_string(), |it| it.name().to_owned())
}

pub(super) fn answer(cluster: &Arc<Cluster>, ask: &Ask, port: u16) -> Reply {
    let reply = route(cluster, ask, port).unwrap_or_else(|status| wire::status(Form::fallback(ask), &status));
    wire::with_usual_headers(reply)
}

fn route(cluster: &Arc<Cluster>, ask: &Ask, port: u16) -> Result<Reply, Status> {
    let user = authenticate(cluster, ask)?;
    let Some(place) = place(&ask.path) else {
        if cluster.only_leases {
            return Err(Status::path_forbidden(&ask.path));
        }
        return discovery::about(&ask.path, ask, port).ok_or_else(Status::no_such_path);
    };
    let verb = Verb::of(ask, &place).ok_or_else(Status::method_not_allowed)?;
    authorize(user, verb, &place)?;
    let form = Form::wanted(ask)?;
    let name = percent_decode_str(place.name.unwrap_or_default()).decode_utf8_lossy().into_owned();
    let within = place.namespace.unwrap_or_default();
    let request = Request { cluster, ask, form, namespace: within, name: &name };
    match verb {
        Verb::Get => request.read(),
        Verb::List => request.list(Selector::new(place.namespace, ask)?),
        Verb::Watch => {
            let selector = Selector::new(place.namespace, ask)?;
            let selector = if name.is_empty() { selector } else { selector.names_one(&name) };
            watch::answer(cluster, ask, selector, form)
        }
        Verb::Create => request.create(),
        Verb::Update => request.update(),
        Verb::Patch => request.patch(),
        Verb::Delete => request.delete(),
        Verb::DeleteCollection => request.delete_collection(Selector::new(place.namespace, ask)?),
    }
}

// Who asks

#[derive(Clone, Copy)]
enum User {
    /// Nobody is asked who he is.
    Anyone,
    Known(Access),
    Anonymous,
}

fn authenticate(cluster: &Cluster, ask: &Ask) -> Result<User, Status> {
    if cluster.tokens.is_empty() {
        return Ok(User::Anyone);
    }
    match ask.header("authorization").map(|it| it.strip_prefix("Bearer ").unwrap_or_default().trim()) {
        None => Ok(User::Anonymous),
        Some(token) => cluster.tokens.get(token).map(|it| User::Known(*it)).ok_or_else(Status::unauthorized),
    }
}

fn authorize(user: User, verb: Verb, place: &Place<'_>) -> Result<(), Status> {
    let name = match (user, verb.needs()) {
        (User::Anyone | User::Known(Access::Write), _) | (User::Known(Access::Read), Access::Read) => return Ok(()),
        (User::Known(Access::Read), Access::Write) => "testbed",
        (User::Anonymous, _) => "system:anonymous",
    };
    let at = place.namespace.map_or("at the cluster scope".to_owned(), |it| format!("in the namespace {it:?}"));
    Err(Status::forbidden(place.name.unwrap_or_default(), name, verb.name(), &at))
}

// The verbs

struct Request<'a> {
    cluster: &'a Cluster,
    ask: &'a Ask,
    form: Form,
    namespace: &'a str,
    /// Empty where the path has none.
    name: &'a str,
}

type Answer = Result<Reply, Status>;

impl Request<'_> {
    fn read(&self) -> Answer {
        let store = locked(&self.cluster.store);
        let lease = store.lease(self.namespace, self.name).ok_or_else(|| Status::not_found(self.name))?;
        Ok(wire::lease(self.form, StatusCode::OK, lease))
    }

    fn list(&self, selector: Selector) -> Answer {
        let store = locked(&self.cluster.store);
        let asked = match self.ask.parameter("resourceVersion").as_deref() {
            None | Some("" | "0") => None,
            Some(text) => Some(text.parse::<u64>().map_err(|_| Status::version_malformed(text))?),
        };
        if let Some(version) = asked.filter(|it| *it > store.version()) {
            return Err(Status::version_too_large(version, store.version()));
        }
        let exact = asked.filter(|_| self.ask.parameter("resourceVersionMatch").as_deref() == Some("Exact"));
        let token = self.ask.parameter("continue").filter(|it| !it.is_empty()).map(|it| Token::read(&it)).transpose()?;
        let past = token.as_ref().map(|it| it.rv).or(exact);
        let leases = match past {
            None => store.leases().clone(),
            Some(version) => store.leases_at(version).ok_or_else(|| Status::expired(TOO_OLD))?,
        };
        let version = past.unwrap_or(store.version());
        let found: Vec<(String, Lease)> = leases
            .into_values()
            .filter(|it| selector.matches(it))
            .map(|it| (token_key(&selector, &it), it))
            .skip_while(|(key, _)| token.as_ref().is_some_and(|it| *key < it.start))
            .collect();
        let limit = self.ask.parameter("limit").and_then(|it| it.parse().ok()).filter(|it| *it > 0).unwrap_or(usize::MAX);
        let left = found.len().saturating_sub(limit);
        let page = &found[..found.len() - left];
        let more = page.last().filter(|_| left > 0).map(|(key, _)| More {
            token: Token { v: TOKEN_VERSION.to_owned(), rv: version, start: format!("{key}\0") }.text(),
            left: selector.is_everything().then_some(left),
        });
        let items = page.iter().map(|(_, lease)| lease.clone()).collect();
        Ok(wire::list(self.form, &List { version, more, items }))
    }

    fn create(&self) -> Answer {
        let Decoded { lease, unknown } = self.body()?;
        let warning = self.check_unknown(&unknown)?;
        self.check_namespace(&lease)?;
        let mut store = locked(&self.cluster.store);
        let created = self.create_in(&mut store, lease, &self.manager())?;
        Ok(self.answer(StatusCode::CREATED, &created, warning))
    }

    /// Shared by everything that can make a Lease.
    fn create_in(&self, store: &mut Store, lease: Lease, manager: &str) -> Result<Lease, Status> {
        let now = Time::now();
        let mut lease = self.fresh(lease, store, now)?;
        fields::update(None, &mut lease, manager, now);
        self.insert(store, lease)
    }

    /// What the server decides about a new Lease.
    fn fresh(&self, mut lease: Lease, store: &Store, now: Time) -> Result<Lease, Status> {
        if !store.namespaces.contains(self.namespace) {
            return Err(Status::namespace_not_found(self.namespace));
        }
        let meta = &mut lease.metadata;
        meta.namespace = self.namespace.to_owned();
        if meta.name.is_empty() && !meta.generate_name.is_empty() {
            meta.name = format!("{}{}", meta.generate_name, suffix());
        }
        meta.uid = Uuid::new_v4().to_string();
        meta.creation_timestamp = Some(now);
        meta.managed_fields.clear();
        lease.validate()?;
        Ok(lease)
    }

    fn insert(&self, store: &mut Store, mut lease: Lease) -> Result<Lease, Status> {
        if !lease.metadata.resource_version.is_empty() {
            return Err(Status::version_on_create());
        }
        if store.lease(self.namespace, &lease.metadata.name).is_some() {
            return Err(Status::already_exists(&lease.metadata.name));
        }
        if self.is_dry() {
            lease.metadata.resource_version.clear();
            return Ok(lease);
        }
        Ok(self.cluster.put(store, lease))
    }

    fn update(&self) -> Answer {
        let Decoded { mut lease, unknown } = self.body()?;
        let warning = self.check_unknown(&unknown)?;
        if lease.metadata.name != self.name {
            let text =
                format!("the name of the object ({}) does not match the name on the URL ({})", lease.metadata.name, self.name);
            return Err(Status::bad_request(text));
        }
        self.check_namespace(&lease)?;
        let mut store = locked(&self.cluster.store);
        let Some(before) = store.lease(self.namespace, self.name).cloned() else {
            let uid = &lease.metadata.uid;
            if !uid.is_empty() {
                return Err(Status::other_uid(self.namespace, self.name, uid, ""));
            }
            // A version means nothing for what is not there: this is how a late client brings a deleted Lease back.
            lease.metadata.resource_version.clear();
            let created = self.create_in(&mut store, lease, &self.manager())?;
            return Ok(self.answer(StatusCode::CREATED, &created, warning));
        };
        let updated = self.replace(&mut store, &before, lease)?;
        Ok(self.answer(StatusCode::OK, &updated, warning))
    }

    /// Writes over a Lease that is there.
    fn replace(&self, store: &mut Store, before: &Lease, mut lease: Lease) -> Result<Lease, Status> {
        self.check_unmoved(before, &mut lease)?;
        fields::update(Some(before), &mut lease, &self.manager(), Time::now());
        self.overwrite(store, before, lease)
    }

    /// The Lease must be the one, and in the version, that the client has seen.
    fn check_unmoved(&self, before: &Lease, lease: &mut Lease) -> Result<(), Status> {
        let (meta, known) = (&mut lease.metadata, &before.metadata);
        if !meta.uid.is_empty() && meta.uid != known.uid {
            return Err(Status::other_uid(self.namespace, self.name, &meta.uid, &known.uid));
        }
        if meta.resource_version.is_empty() || meta.resource_version == "0" {
            return Err(Status::version_missing(self.name));
        }
        if meta.resource_version.parse::<u64>().is_err() {
            return Err(Status::version_malformed(&meta.resource_version));
        }
        if meta.resource_version != known.resource_version {
            return Err(Status::modified(self.name));
        }
        meta.uid.clone_from(&known.uid);
        meta.namespace.clone_from(&known.namespace);
        meta.creation_timestamp = meta.creation_timestamp.or(known.creation_timestamp);
        // Whoever forgets it does not take it away.
        if meta.generate_name.is_empty() {
            meta.generate_name.clone_from(&known.generate_name);
        }
        Ok(())
    }

    fn overwrite(&self, store: &mut Store, before: &Lease, mut lease: Lease) -> Result<Lease, Status> {
        lease.validate_update(before)?;
        if self.is_dry() {
            lease.metadata.resource_version.clone_from(&before.metadata.resource_version);
            return Ok(lease);
        }
        Ok(self.cluster.put(store, lease))
    }

    fn patch(&self) -> Answer {
        let content_type = self.ask.header(CONTENT_TYPE.as_str()).unwrap_or_default();
        let kind = content_type.split(';').next().unwrap_or_default().trim();
        let text = &self.ask.body;
        let given: Value = match kind {
            "application/json-patch+json"
            | "application/merge-patch+json"
            | "application/strategic-merge-patch+json"
            | "application/apply-patch+yaml" => {
                serde_json::from_slice(text).map_err(|wrong| Status::bad_request(format!("error decoding patch: {wrong}")))?
            }
            _ => {
                return Err(Status::unsupported_media_type(
                    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml, application/strategic-merge-patch+json",
                ));
            }
        };
        if kind == "application/apply-patch+yaml" {
            return self.apply(&given);
        }
        let mut store = locked(&self.cluster.store);
        let before = store.lease(self.namespace, self.name).cloned().ok_or_else(|| Status::not_found(self.name))?;
        let mut patched = serde_json::to_value(before.typed()).expect("our own type");
        if kind == "application/json-patch+json" {
            let patch: json_patch::Patch =
                serde_json::from_value(given).map_err(|wrong| Status::bad_request(format!("error decoding patch: {wrong}")))?;
            json_patch::patch(&mut patched, &patch).map_err(|_| Status::patch_failed())?;
        } else {
            json_patch::merge(&mut patched, &given);
        }
        let Decoded { lease, unknown } = decode(&patched)?;
        let warning = self.check_unknown(&unknown)?;
        if lease.metadata.name != self.name {
            return Err(Status::bad_request("the name of the object does not match the name on the URL"));
        }
        let updated = self.replace(&mut store, &before, lease)?;
        Ok(self.answer(StatusCode::OK, &updated, warning))
    }

    fn apply(&self, given: &Value) -> Answer {
        let Some(manager) = self.ask.parameter("fieldManager").filter(|it| !it.is_empty()) else {
            return Err(Status::field_manager_missing());
        };
        let force = match self.ask.parameter("force").as_deref() {
            Some("true" | "1") => Force::Yes,
            Some(_) | None => Force::No,
        };
        let Decoded { mut lease, .. } = decode(given)?;
        lease.metadata.managed_fields.clear();
        self.check_namespace(&lease)?;
        let mut store = locked(&self.cluster.store);
        let before = store.lease(self.namespace, self.name).cloned();
        let now = Time::now();
        let merged = match fields::apply(before.as_ref(), &lease, &manager, force, now) {
            Applied::Merged(merged) => *merged,
            Applied::Conflicts(owned) => return Err(Status::apply_conflicts(&owned)),
        };
        match before {
            Some(before) => {
                let version = &lease.metadata.resource_version;
                if !version.is_empty() && *version != before.metadata.resource_version {
                    return Err(Status::modified(self.name));
                }
                let updated = self.overwrite(&mut store, &before, merged)?;
                Ok(self.answer(StatusCode::OK, &updated, None))
            }
            None => {
                let owners = merged.metadata.managed_fields.clone();
                let mut named = merged;
                named.metadata.name = self.name.to_owned();
                let mut fresh = self.fresh(named, &store, now)?;
                fresh.metadata.managed_fields = owners;
                let created = self.insert(&mut store, fresh)?;
                Ok(self.answer(StatusCode::CREATED, &created, None))
            }
        }
    }

    fn delete(&self) -> Answer {
        let preconditions = self.preconditions()?;
        let mut store = locked(&self.cluster.store);
        let lease = store.lease(self.namespace, self.name).ok_or_else(|| Status::not_found(self.name))?;
        let meta = &lease.metadata;
        if let Some(uid) = preconditions.uid.filter(|it| *it != meta.uid) {
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
                meta.uid
            );
            return Err(Status::precondition_failed(self.name, &why));
        }
        if let Some(version) = preconditions.resource_version.filter(|it| *it != meta.resource_version) {
            let why = format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The object might have been modified",
                meta.resource_version
            );
            return Err(Status::precondition_failed(self.name, &why));
        }
        let uid = meta.uid.clone();
        if !self.is_dry() {
            self.cluster.delete(&mut store, self.namespace, self.name);
        }
        Ok(wire::status(self.form, &Status::deleted(self.name, &uid)))
    }

    /// Answers with what was there.
    fn delete_collection(&self, selector: Selector) -> Answer {
        let mut store = locked(&self.cluster.store);
        let version = store.version();
        let items: Vec<Lease> = store.leases().values().filter(|it| selector.matches(it)).cloned().collect();
        if !self.is_dry() {
            for lease in &items {
                self.cluster.delete(&mut store, &lease.metadata.namespace, &lease.metadata.name);
            }
        }
        Ok(wire::list(self.form, &List { version, more: None, items }))
    }

    // What the verbs share

    fn body(&self) -> Result<Decoded, Status> {
        const TAKEN: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
        let content_type = self.ask.header(CONTENT_TYPE.as_str()).unwrap_or("application/json");
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json" => {
                let value = serde_json::from_slice(&self.ask.body).map_err(|wrong| unrecognized(&self.ask.body, &wrong))?;
                decode(&value)
            }
            protobuf::CONTENT_TYPE => Ok(Decoded { lease: protobuf::read_lease(&self.ask.body)?, unknown: Vec::new() }),
            _ => Err(Status::unsupported_media_type(TAKEN)),
        }
    }

    /// A warning for the client, or a refusal if it wants to be strict.
    fn check_unknown(&self, unknown: &[String]) -> Result<Option<String>, Status> {
        let list = unknown.iter().map(|it| format!("unknown field {it:?}")).collect::<Vec<_>>().join(", ");
        match self.ask.parameter("fieldValidation").as_deref() {
            _ if unknown.is_empty() => Ok(None),
            Some("Ignore") => Ok(None),
            Some("Strict") => Err(Status::bad_request(format!(
                "Lease in version \"v1\" cannot be handled as a Lease: strict decoding error: {list}"
            ))),
            Some(_) | None => Ok(Some(format!("299 - {list:?}"))),
        }
    }

    fn check_namespace(&self, lease: &Lease) -> Result<(), Status> {
        let given = &lease.metadata.namespace;
        if given.is_empty() || given == self.namespace {
            return Ok(());
        }
        Err(Status::bad_request("the namespace of the provided object does not match the namespace sent on the request"))
    }

    fn answer(&self, status: StatusCode, lease: &Lease, warning: Option<String>) -> Reply {
        let mut reply = wire::lease(self.form, status, lease);
        if let Some(warning) = warning {
            wire::set(&mut reply, "warning", &warning);
        }
        reply
    }

    fn is_dry(&self) -> bool {
        self.ask.parameter("dryRun").is_some_and(|it| it == "All")
    }

    /// Who writes: what it calls itself, or the first part of its user agent.
    fn manager(&self) -> String {
        let agent = self.ask.header("user-agent").unwrap_or("unknown");
        let named = self.ask.parameter("fieldManager").filter(|it| !it.is_empty());
        named.unwrap_or_else(|| agent.split('/').next().unwrap_or_default().to_owned())
    }

    fn preconditions(&self) -> Result<Preconditions, Status> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Options {
            preconditions: Option<Preconditions>,
        }
        if self.ask.body.is_empty() {
            return Ok(Preconditions::default());
        }
        if self.ask.header(CONTENT_TYPE.as_str()).is_some_and(|it| it.starts_with(protobuf::CONTENT_TYPE)) {
            let (uid, resource_version) = protobuf::read_preconditions(&self.ask.body)?;
            return Ok(Preconditions { uid, resource_version });
        }
        let options: Options = serde_json::from_slice(&self.ask.body).map_err(|wrong| unrecognized(&self.ask.body, &wrong))?;
        Ok(options.preconditions.unwrap_or_default())
    }
}

/// What must be so for a deletion.
#[derive(Deserialize, Default, Debug)]
#[serde(rename_all = "camelCase", default)]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

/// Text that is not JSON, in Go's words where they are simple.
fn unrecognized(body: &[u8], wrong: &serde_json::Error) -> Status {
    let why = if wrong.is_eof() { "unexpected end of JSON input".to_owned() } else { wrong.to_string() };
    let body = String::from_utf8_lossy(body);
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type Lease): couldn't get version/kind; json parse error: {why} ({body})"
    ))
}

/// Letters that make no words, as the real server draws them.
fn suffix() -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    Uuid::new_v4().as_bytes()[..5].iter().map(|it| char::from(LETTERS[usize::from(*it) % LETTERS.len()])).collect()
}

const TOKEN_VERSION: &str = "meta.k8s.io/v1";
const TOO_OLD: &str = "The provided continue parameter is too old to display a consistent list result. You must start a new list without the continue parameter.";

/// Where a list goes on: after which key, in which version.
#[derive(Serialize, Deserialize)]
struct Token {
    v: String,
    rv: u64,
    start: String,
}

impl Token {
    fn read(text: &str) -> Result<Self, Status> {
        let wrong = || Status::bad_request("continue key is not valid");
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| wrong())?;
        serde_json::from_slice(&bytes).map_err(|_| wrong())
    }

    fn text(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).expect("our own type"))
    }
}

/// A Lease's key as tokens write it: relative to what is listed.
fn token_key(selector: &Selector, lease: &Lease) -> String {
    match selector.namespace {
        Some(_) => format!("/{}", lease.metadata.name),
        None => format!("/{}/{}", lease.metadata.namespace, lease.metadata.name),
    }
}
