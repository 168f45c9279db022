//! In which form an answer is written: JSON, as a table or as metadata alone if asked for, or protobuf; and the headers that go with it.
//!
//! Left out: YAML and CBOR, which the real server takes and gives too.

use hyper::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::lease::{Lease, Meta};
use super::protobuf;
use super::status::{API_VERSION, Status};
use super::time::Time;
use crate::serving::{Ask, Reply, whole};

const JSON: &str = "application/json";

/// What the client wants to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Json(Layout, Shape),
    Protobuf,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Layout {
    Compact,
    /// For people: those who ask for it, and those who use curl or a browser.
    Indented,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    Object,
    Table,
    Metadata,
}

impl Form {
    /// The first of the accepted forms that we have.
    pub(super) fn wanted(ask: &Ask) -> Result<Self, Status> {
        let layout = layout(ask);
        let accept = ask.header(ACCEPT.as_str()).unwrap_or("*/*");
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let shape = match parts.find_map(|it| it.strip_prefix("as=")) {
                None => Shape::Object,
                Some("Table") => Shape::Table,
                Some("PartialObjectMetadata" | "PartialObjectMetadataList") => Shape::Metadata,
                Some(_) => continue,
            };
            match media {
                "application/json" | "application/*" | "*/*" | "" => return Ok(Form::Json(layout, shape)),
                protobuf::CONTENT_TYPE if shape == Shape::Object => return Ok(Form::Protobuf),
                _ => {}
            }
        }
        Err(Status::not_acceptable())
    }

    /// For errors that come before the form is known, or because of it.
    pub(super) fn fallback(ask: &Ask) -> Self {
        Self::wanted(ask).unwrap_or(Form::Json(layout(ask), Shape::Object))
    }

    pub(super) fn watch_content_type(self) -> &'static str {
        match self {
            Form::Json(..) => JSON,
            Form::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }
}

pub(super) fn layout(ask: &Ask) -> Layout {
    let agent = ask.header("user-agent").unwrap_or_default();
    let for_people = match ask.parameter("pretty").as_deref() {
        Some("1" | "true") => true,
        Some(_) => false,
        None => ["curl", "Wget", "Mozilla/5.0"].iter().any(|it| agent.starts_with(it)),
    };
    if for_people { Layout::Indented } else { Layout::Compact }
}

/// Leases under a version.
#[derive(Clone, Debug)]
pub(super) struct List {
    pub(super) version: u64,
    /// Where to go on, and how many are left, if there are more.
    pub(super) more: Option<More>,
    pub(super) items: Vec<Lease>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct More {
    pub(super) token: String,
    /// Not told when a selector narrows the list.
    pub(super) left: Option<usize>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining_item_count: Option<usize>,
}

impl ListMeta {
    fn of_one(lease: &Lease) -> Self {
        Self { resource_version: lease.metadata.resource_version.clone(), token: None, remaining_item_count: None }
    }

    fn new(list: &List) -> Self {
        Self {
            resource_version: list.version.to_string(),
            token: list.more.as_ref().map(|it| it.token.clone()),
            remaining_item_count: list.more.as_ref().and_then(|it| it.left),
        }
    }
}

/// Anything that says its kind and has items or cells or nothing.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a, M, T> {
    kind: &'static str,
    api_version: &'static str,
    metadata: M,
    #[serde(skip_serializing_if = "Option::is_none")]
    column_definitions: Option<&'a [Column]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    items: Option<Vec<T>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<Vec<Row<'a>>>,
}

#[derive(Serialize)]
struct Column {
    name: &'static str,
    r#type: &'static str,
    format: &'static str,
    description: &'static str,
    priority: u8,
}

const COLUMNS: [Column; 3] = [
    Column {
        name: "Name",
        r#type: "string",
        format: "name",
        description: "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names",
        priority: 0,
    },
    Column {
        name: "Holder",
        r#type: "string",
        format: "",
        description: "holderIdentity contains the identity of the holder of a current lease. If Coordinated Leader Election is used, the holder identity must be equal to the elected LeaseCandidate.metadata.name field.",
        priority: 0,
    },
    Column {
        name: "Age",
        r#type: "string",
        format: "",
        description: "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
        priority: 0,
    },
];

#[derive(Serialize)]
struct Row<'a> {
    cells: [String; 3],
    object: Metadata<'a>,
}

/// A Lease without its spec.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: &'a Meta,
}

const META_VERSION: &str = "meta.k8s.io/v1";

impl<'a> Metadata<'a> {
    fn new(lease: &'a Lease) -> Self {
        Self { kind: "PartialObjectMetadata", api_version: META_VERSION, metadata: &lease.metadata }
    }
}

fn row(lease: &Lease) -> Row<'_> {
    let age = lease.metadata.creation_timestamp.map_or(0, |it| Time::now().0 - it.0);
    let age = match age {
        0..120 => format!("{age}s"),
        120..7200 => format!("{}m", age / 60),
        _ => format!("{}h", age / 3600),
    };
    let holder = lease.spec.holder_identity.clone().unwrap_or_default();
    Row { cells: [lease.metadata.name.clone(), holder, age], object: Metadata::new(lease) }
}

fn table<'a>(metadata: ListMeta, rows: Vec<Row<'a>>) -> Document<'a, ListMeta, Value> {
    Document {
        kind: "Table",
        api_version: META_VERSION,
        metadata,
        column_definitions: Some(&COLUMNS),
        items: None,
        rows: Some(rows),
    }
}

pub(super) fn lease(form: Form, status: StatusCode, lease: &Lease) -> Reply {
    match form {
        Form::Protobuf => bytes(status, protobuf::CONTENT_TYPE, protobuf::lease(lease)),
        Form::Json(layout, Shape::Object) => json(layout, status, &lease.typed()),
        Form::Json(layout, Shape::Metadata) => json(layout, status, &Metadata::new(lease)),
        Form::Json(layout, Shape::Table) => json(layout, status, &table(ListMeta::of_one(lease), vec![row(lease)])),
    }
}

pub(super) fn list(form: Form, list: &List) -> Reply {
    let metadata = ListMeta::new(list);
    match form {
        Form::Protobuf => bytes(StatusCode::OK, protobuf::CONTENT_TYPE, protobuf::list(list)),
        Form::Json(layout, Shape::Table) => json(layout, StatusCode::OK, &table(metadata, list.items.iter().map(row).collect())),
        Form::Json(layout, Shape::Metadata) => {
            let items = Some(list.items.iter().map(Metadata::new).collect());
            let kind = "PartialObjectMetadataList";
            let document = Document { kind, api_version: META_VERSION, metadata, column_definitions: None, items, rows: None };
            json(layout, StatusCode::OK, &document)
        }
        Form::Json(layout, Shape::Object) => {
            let items = Some(list.items.iter().collect());
            let kind = "LeaseList";
            let document = Document { kind, api_version: API_VERSION, metadata, column_definitions: None, items, rows: None };
            json(layout, StatusCode::OK, &document)
        }
    }
}

pub(super) fn status(form: Form, status: &Status) -> Reply {
    let code = if status.code == 0 { StatusCode::OK } else { StatusCode::from_u16(status.code).expect("a code of ours") };
    let mut reply = match form {
        Form::Json(layout, _) => json(layout, code, status),
        Form::Protobuf => bytes(code, protobuf::CONTENT_TYPE, protobuf::status(status)),
    };
    if let Some(details) = status.details.as_ref().filter(|it| it.retry_after_seconds > 0) {
        set(&mut reply, "retry-after", &details.retry_after_seconds.to_string());
    }
    reply
}

/// What a watch tells.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Added(Lease),
    Modified(Lease),
    /// As it was, under the version of its deletion.
    Deleted(Lease),
    /// Everything up to this version has been told.
    Bookmark {
        version: u64,
        ends_initial: bool,
    },
    Error(Status),
}

impl Event {
    fn name(&self) -> &'static str {
        match self {
            Event::Added(_) => "ADDED",
            Event::Modified(_) => "MODIFIED",
            Event::Deleted(_) => "DELETED",
            Event::Bookmark { .. } => "BOOKMARK",
            Event::Error(_) => "ERROR",
        }
    }
}

pub(super) fn event(form: Form, event: &Event) -> Vec<u8> {
    let bookmark;
    let told = match event {
        Event::Added(lease) | Event::Modified(lease) | Event::Deleted(lease) => Ok(lease),
        Event::Bookmark { version, ends_initial } => {
            let mut lease = Lease::default();
            lease.metadata.resource_version = version.to_string();
            if *ends_initial {
                lease.metadata.annotations.insert("k8s.io/initial-events-end".into(), "true".into());
            }
            bookmark = lease;
            Ok(&bookmark)
        }
        Event::Error(status) => Err(status),
    };
    let name = event.name();
    match (told, form) {
        (Err(status), Form::Json(..)) => line(name, status),
        (Ok(lease), Form::Json(_, Shape::Object)) => line(name, &lease.typed()),
        (Ok(lease), Form::Json(_, Shape::Metadata)) => line(name, &Metadata::new(lease)),
        (Ok(lease), Form::Json(_, Shape::Table)) => line(name, &table(ListMeta::of_one(lease), vec![row(lease)])),
        (Err(status), Form::Protobuf) => protobuf::event(name, protobuf::status(status)),
        (Ok(lease), Form::Protobuf) => protobuf::event(name, protobuf::lease(lease)),
    }
}

fn line(name: &str, object: &impl Serialize) -> Vec<u8> {
    #[derive(Serialize)]
    struct Line<'a, T> {
        r#type: &'a str,
        object: &'a T,
    }
    let mut text = serde_json::to_vec(&Line { r#type: name, object }).expect("our own types, in memory");
    text.push(b'\n');
    text
}

pub(super) fn json(layout: Layout, status: StatusCode, body: &impl Serialize) -> Reply {
    let text = match layout {
        Layout::Indented => serde_json::to_vec_pretty(body),
        Layout::Compact => serde_json::to_vec(body).map(|mut text| {
            text.push(b'\n');
            text
        }),
    };
    bytes(status, JSON, text.expect("our own types, in memory"))
}

pub(super) fn bytes(status: StatusCode, content_type: &str, body: Vec<u8>) -> Reply {
    let mut reply = Response::new(whole(body));
    *reply.status_mut() = status;
    set(&mut reply, CONTENT_TYPE.as_str(), content_type);
    reply
}

/// What every answer has.
pub(super) fn with_usual_headers(mut reply: Reply) -> Reply {
    set(&mut reply, "audit-id", &Uuid::new_v4().to_string());
    set(&mut reply, CACHE_CONTROL.as_str(), "no-cache, private");
    reply
}

pub(super) fn set(reply: &mut Reply, name: &str, value: &str) {
    let name = HeaderName::from_bytes(name.as_bytes()).expect("a name of ours");
    // A warning quotes the client, who may have sent anything.
    if let Ok(value) = HeaderValue::from_str(value) {
        reply.headers_mut().insert(name, value);
    }
}
