//! Consul's HTTP: paths, parameters, texts and headers. What they do is in `store.rs`.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, Response, StatusCode};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

use super::store::{Behavior, Content, Entry, LOCK_DELAY_DEFAULT, NODE, NewSession, Refused, Session, Store, malformed};
use super::{Agent, duration, txn};
use crate::serving::{Access, Ask, Reply, locked, whole};

/// How long a blocking read waits that does not say, and the longest it may.
const WAIT_DEFAULT: Duration = Duration::from_secs(300);
const WAIT_MAX: Duration = Duration::from_secs(600);
/// The real server adds up to this part of the wait, so that clients do not all come back at once; here all of it is added.
const WAIT_JITTER_DIVISOR: u32 = 16;
/// The largest value.
const VALUE_BYTES_MAX: usize = 512 << 10;
/// A lock-delay given as a smaller number is meant in seconds, a larger one in nanoseconds.
const LOCK_DELAY_SECONDS_BELOW: u64 = 1000;

/// An answer that is a plain text with a status.
#[derive(Debug)]
pub(super) struct Failure {
    status: StatusCode,
    text: String,
    /// A read that failed still has the headers of a read, those of a server that knows nothing.
    of_a_read: bool,
}

pub(super) fn fail(status: StatusCode, text: impl Into<String>) -> Failure {
    Failure { status, text: text.into(), of_a_read: false }
}

impl From<Refused> for Failure {
    fn from(Refused(text): Refused) -> Self {
        fail(StatusCode::INTERNAL_SERVER_ERROR, text)
    }
}

type Answer = Result<Reply, Failure>;

pub(super) async fn answer(agent: &Agent, ask: Ask) -> Reply {
    let mut reply = match route(agent, &ask).await {
        Ok(reply) => reply,
        Err(Failure { status, text, of_a_read }) => {
            let mut reply = plain(status, text);
            if of_a_read {
                index_header(&mut reply, 0);
                read_headers(&mut reply);
                set(&mut reply, "x-consul-knownleader", "false");
                set(&mut reply, "x-consul-query-backend", "blocking-query");
            }
            reply
        }
    };
    let policy = if agent.tokens.is_empty() { "allow" } else { "deny" };
    set(&mut reply, "x-consul-default-acl-policy", policy);
    set(&mut reply, "vary", "Accept-Encoding");
    reply
}

async fn route(agent: &Agent, ask: &Ask) -> Answer {
    // The real server is built on a library that sends whoever asks for an odd path to the one that may be meant.
    let odd = |segment: &str| matches!(segment, "." | "..");
    if ask.path.contains("//") || ask.path.split('/').any(odd) {
        return Err(fail(StatusCode::MOVED_PERMANENTLY, ""));
    }
    if ask.has("stale") && ask.has("consistent") {
        return Err(fail(StatusCode::BAD_REQUEST, "Cannot specify ?stale with ?consistent, conflicting semantics."));
    }
    let Some(path) = ask.path.strip_prefix("/v1/") else { return Err(fail(StatusCode::NOT_FOUND, "404 page not found\n")) };
    let (part, rest) = path.split_once('/').unwrap_or((path, ""));
    let rest = percent_decode_str(rest).decode_utf8_lossy().into_owned();
    match part {
        "kv" => key(agent, ask, &rest).await,
        "session" => session(agent, ask, &rest).await,
        "txn" => {
            methods(ask, &[Method::PUT])?;
            authorize(agent, ask, if txn::is_write(ask) { Access::Write } else { Access::Read })?;
            txn::answer(agent, ask)
        }
        "status" | "agent" | "catalog" => {
            methods(ask, &[Method::GET])?;
            about(agent, ask, path)
        }
        _ => Err(fail(StatusCode::NOT_FOUND, "404 page not found\n")),
    }
}

fn methods(ask: &Ask, allowed: &[Method]) -> Result<(), Failure> {
    if allowed.contains(&ask.method) {
        return Ok(());
    }
    Err(fail(StatusCode::METHOD_NOT_ALLOWED, format!("method {} not allowed", ask.method)))
}

fn authorize(agent: &Agent, ask: &Ask, needed: Access) -> Result<(), Failure> {
    if agent.tokens.is_empty() {
        return Ok(());
    }
    let bearer = ask.header("authorization").and_then(|it| it.strip_prefix("Bearer ")).map(str::to_owned);
    let token = ask.parameter("token").or_else(|| ask.header("x-consul-token").map(str::to_owned)).or(bearer);
    let forbidden = |text| Err(fail(StatusCode::FORBIDDEN, text));
    match token.as_deref() {
        // Who has no token is anonymous, and may do nothing.
        None | Some("") => forbidden("Permission denied"),
        Some(token) => match (agent.tokens.get(token), needed) {
            (None, _) => forbidden("ACL not found"),
            (Some(Access::Read), Access::Write) => forbidden("Permission denied"),
            (Some(Access::Write), _) | (Some(Access::Read), Access::Read) => Ok(()),
        },
    }
}

// Keys

async fn key(agent: &Agent, ask: &Ask, key: &str) -> Answer {
    methods(ask, &[Method::GET, Method::PUT, Method::DELETE])?;
    let many = ask.has("recurse") || (ask.method == Method::GET && ask.has("keys"));
    if key.is_empty() && !many {
        return Err(fail(StatusCode::BAD_REQUEST, "Missing key name"));
    }
    if ask.method == Method::GET {
        authorize(agent, ask, Access::Read)?;
        return if ask.has("keys") {
            keys(agent, ask, key).await
        } else if ask.has("recurse") {
            under(agent, ask, key).await
        } else {
            one(agent, ask, key).await
        };
    }
    authorize(agent, ask, Access::Write)?;
    let exclusive: &[&str] = if ask.method == Method::PUT { &["cas", "acquire", "release"] } else { &["recurse", "cas"] };
    if exclusive.iter().filter(|it| ask.has(it)).count() > 1 {
        return Err(fail(StatusCode::BAD_REQUEST, format!("Conflicting flags: {}", ask.query)));
    }
    let done = if ask.method == Method::PUT { put(agent, ask, key)? } else { delete(agent, ask, key)? };
    Ok(json(ask, StatusCode::OK, &done))
}

async fn one(agent: &Agent, ask: &Ask, key: &str) -> Answer {
    read(agent, ask, |store| {
        let (entry, index) = store.entry(key);
        let reply = match entry {
            None => Response::builder().status(StatusCode::NOT_FOUND).body(whole("")).expect("a valid head"),
            Some(entry) if ask.has("raw") => {
                let mut reply = Response::new(whole(entry.value.clone()));
                set(&mut reply, CONTENT_TYPE.as_str(), "text/plain");
                set(&mut reply, "x-content-type-options", "nosniff");
                set(&mut reply, "content-security-policy", "sandbox");
                reply
            }
            Some(entry) => json(ask, StatusCode::OK, &[EntryOut::new(key, entry)]),
        };
        Ok((index, reply))
    })
    .await
}

async fn under(agent: &Agent, ask: &Ask, prefix: &str) -> Answer {
    read(agent, ask, |store| {
        let (found, index) = store.under(prefix);
        let found: Vec<EntryOut> = found.into_iter().map(|(key, entry)| EntryOut::new(key, entry)).collect();
        Ok((index, json_or_not_found(ask, &found)))
    })
    .await
}

/// Names only; behind the separator, if one is given, they are cut off, and each is told once.
async fn keys(agent: &Agent, ask: &Ask, prefix: &str) -> Answer {
    let separator = ask.parameter("separator").unwrap_or_default();
    read(agent, ask, |store| {
        let (found, index) = store.under(prefix);
        let mut names: Vec<&str> = Vec::new();
        for (key, _) in found {
            let cut = if separator.is_empty() { None } else { key[prefix.len()..].find(&separator) };
            names.push(cut.map_or(key, |at| &key[..prefix.len() + at + separator.len()]));
        }
        names.dedup();
        Ok((index, json_or_not_found(ask, &names)))
    })
    .await
}

fn put(agent: &Agent, ask: &Ask, key: &str) -> Result<bool, Failure> {
    if ask.body.len() > VALUE_BYTES_MAX {
        let text = format!(
            "Request body({} bytes) too large, max size: {VALUE_BYTES_MAX} bytes. See https://www.consul.io/docs/agent/options.html#kv_max_value_size.",
            ask.body.len()
        );
        return Err(fail(StatusCode::PAYLOAD_TOO_LARGE, text));
    }
    let flags = number(ask, "flags")?.unwrap_or_default();
    let content = Content { value: ask.body.to_vec(), flags };
    if let Some(expected) = number(ask, "cas")? {
        return Ok(agent.write(|store, _| {
            store.begin_write();
            store.set_at(key, content, expected)
        }));
    }
    let in_log = |Refused(text)| fail(StatusCode::INTERNAL_SERVER_ERROR, format!("raft apply failed: {text}"));
    if let Some(session) = ask.parameter("acquire") {
        return agent.write(|store, now| {
            // Looked at before the log: it takes no index.
            if store.is_in_lock_delay(now, key) {
                return Ok(false);
            }
            store.begin_write();
            store.lock(key, content, &session).map_err(in_log)
        });
    }
    agent.write(|store, _| {
        store.begin_write();
        match ask.parameter("release") {
            Some(session) => store.unlock(key, content, &session).map_err(in_log),
            None => {
                store.set(key, content);
                Ok(true)
            }
        }
    })
}

fn delete(agent: &Agent, ask: &Ask, key: &str) -> Result<bool, Failure> {
    let expected = number(ask, "cas")?;
    if expected == Some(0) {
        return Err(fail(StatusCode::BAD_REQUEST, "Invalid cas index: 0"));
    }
    Ok(agent.write(|store, _| {
        store.begin_write();
        if let Some(expected) = expected {
            return store.delete_at(key, expected);
        }
        if ask.has("recurse") {
            store.delete_under(key)
        } else {
            store.delete(key)
        }
        true
    }))
}

/// A key as it is told.
#[derive(Serialize, Debug)]
#[serde(rename_all = "PascalCase")]
pub(super) struct EntryOut {
    lock_index: u64,
    key: String,
    flags: u64,
    value: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    session: String,
    create_index: u64,
    modify_index: u64,
}

impl EntryOut {
    pub(super) fn new(key: &str, entry: &Entry) -> Self {
        Self {
            lock_index: entry.lock_index,
            key: key.to_owned(),
            flags: entry.flags,
            value: (!entry.value.is_empty()).then(|| STANDARD.encode(&entry.value)),
            session: entry.session.clone(),
            create_index: entry.create_index,
            modify_index: entry.modify_index,
        }
    }

    pub(super) fn without_value(key: &str, entry: &Entry) -> Self {
        Self { value: None, ..Self::new(key, entry) }
    }
}

// Sessions

async fn session(agent: &Agent, ask: &Ask, path: &str) -> Answer {
    let (verb, id) = path.split_once('/').unwrap_or((path, ""));
    let writes = matches!(verb, "create" | "destroy" | "renew");
    if !writes && !matches!(verb, "info" | "list" | "node") {
        return Err(fail(StatusCode::NOT_FOUND, "404 page not found\n"));
    }
    methods(ask, &[if writes { Method::PUT } else { Method::GET }])?;
    authorize(agent, ask, if writes { Access::Write } else { Access::Read })?;
    if id.is_empty() && !matches!(verb, "create" | "list") {
        return Err(fail(StatusCode::BAD_REQUEST, if verb == "node" { "Missing node name" } else { "Missing session" }));
    }
    match verb {
        "create" => {
            let new = new_session(ask)?;
            let id = agent.write(|store, now| store.create_session(now, Uuid::new_v4().to_string(), new))?;
            Ok(json(ask, StatusCode::OK, &json!({ "ID": id })))
        }
        "destroy" => {
            if let Some(wrong) = malformed(id) {
                agent.write(|store, _| store.begin_write());
                return Err(fail(StatusCode::INTERNAL_SERVER_ERROR, format!("raft apply failed: {wrong}")));
            }
            agent.write(|store, now| store.destroy_session(now, id));
            Ok(json(ask, StatusCode::OK, &true))
        }
        "renew" => {
            if let Some(wrong) = malformed(id) {
                return Err(fail(StatusCode::INTERNAL_SERVER_ERROR, wrong));
            }
            match agent.write(|store, now| store.renew_session(now, id).map(SessionOut::new)) {
                Some(session) => Ok(json(ask, StatusCode::OK, &[session])),
                None => Err(fail(StatusCode::NOT_FOUND, format!("Session id '{id}' not found"))),
            }
        }
        "info" => {
            read(agent, ask, |store| {
                if let Some(wrong) = malformed(id) {
                    return Err(Failure { of_a_read: true, ..fail(StatusCode::INTERNAL_SERVER_ERROR, wrong) });
                }
                let found: Vec<SessionOut> = store.session(id).map(SessionOut::new).into_iter().collect();
                Ok((store.sessions_index(), json(ask, StatusCode::OK, &found)))
            })
            .await
        }
        _ => {
            read(agent, ask, |store| {
                let of_node = verb == "list" || id == NODE;
                let found: Vec<SessionOut> = store.sessions().filter(|_| of_node).map(SessionOut::new).collect();
                Ok((store.sessions_index(), json(ask, StatusCode::OK, &found)))
            })
            .await
        }
    }
}

/// A session as it is told.
#[derive(Serialize, Debug)]
#[serde(rename_all = "PascalCase")]
struct SessionOut {
    #[serde(rename = "ID")]
    id: String,
    name: String,
    node: &'static str,
    lock_delay: u64,
    behavior: &'static str,
    #[serde(rename = "TTL")]
    ttl: String,
    node_checks: Vec<String>,
    service_checks: Option<Vec<()>>,
    create_index: u64,
    modify_index: u64,
}

impl SessionOut {
    fn new(session: &Session) -> Self {
        Self {
            id: session.id.clone(),
            name: session.name.clone(),
            node: NODE,
            lock_delay: u64::try_from(session.lock_delay.as_nanos()).unwrap_or(u64::MAX),
            behavior: match session.behavior {
                Behavior::Release => "release",
                Behavior::Delete => "delete",
            },
            ttl: session.ttl.clone(),
            node_checks: session.node_checks.clone(),
            service_checks: None,
            create_index: session.create_index,
            modify_index: session.create_index,
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct SessionIn {
    name: String,
    node: Option<String>,
    lock_delay: Option<LockDelayIn>,
    behavior: String,
    #[serde(rename = "TTL")]
    ttl: String,
    node_checks: Option<Vec<String>>,
    checks: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum LockDelayIn {
    Number(u64),
    Text(String),
}

fn new_session(ask: &Ask) -> Result<NewSession, Failure> {
    let undecodable = |wrong: String| fail(StatusCode::BAD_REQUEST, format!("Request decode failed: {wrong}"));
    let asked: SessionIn = if ask.body.is_empty() {
        SessionIn::default()
    } else {
        serde_json::from_slice(&ask.body).map_err(|wrong| undecodable(wrong.to_string()))?
    };
    let lock_delay = match asked.lock_delay {
        None => LOCK_DELAY_DEFAULT,
        Some(LockDelayIn::Number(seconds)) if seconds < LOCK_DELAY_SECONDS_BELOW => Duration::from_secs(seconds),
        Some(LockDelayIn::Number(nanos)) => Duration::from_nanos(nanos),
        Some(LockDelayIn::Text(text)) => {
            duration::parse(&text).ok_or_else(|| undecodable(format!("time: invalid duration \"{text}\"")))?
        }
    };
    Ok(NewSession {
        name: asked.name,
        node: asked.node.unwrap_or_else(|| NODE.to_owned()),
        lock_delay,
        behavior: asked.behavior,
        ttl: asked.ttl,
        node_checks: asked.node_checks.or(asked.checks).unwrap_or_else(|| vec!["serfHealth".to_owned()]),
    })
}

// The server itself

fn about(agent: &Agent, ask: &Ask, path: &str) -> Answer {
    const PEER: &str = "127.0.0.1:8300";
    const NODE_ID: &str = "7a598f8d-65cd-0cab-38b7-21b81110aab4";
    let ok = |body: serde_json::Value| Ok(json(ask, StatusCode::OK, &body));
    match path {
        "status/leader" => ok(json!(PEER)),
        "status/peers" => ok(json!([PEER])),
        "agent/self" => {
            authorize(agent, ask, Access::Read)?;
            ok(json!({
                "Config": {
                    "Datacenter": "dc1",
                    "PrimaryDatacenter": "dc1",
                    "NodeName": NODE,
                    "NodeID": NODE_ID,
                    "Revision": "",
                    "Server": true,
                    "Version": "1.10.12",
                },
                // A setting that is not set shows as 0s.
                "DebugConfig": { "SessionTTLMin": duration::text(if agent.session_ttl_min == Duration::from_secs(10) {
                    Duration::ZERO
                } else {
                    agent.session_ttl_min
                }) },
                "Coord": null,
                "Member": { "Name": NODE, "Addr": "127.0.0.1", "Port": 8301, "Status": 1 },
                "Stats": { "consul": { "leader": "true", "server": "true" } },
                "Meta": { "consul-network-segment": "" },
                "xDS": { "SupportedProxies": {} },
            }))
        }
        "catalog/nodes" => {
            authorize(agent, ask, Access::Read)?;
            const REGISTERED_AT: u64 = 7;
            let mut reply = json(ask, StatusCode::OK, &[NodeOut::new(NODE_ID, REGISTERED_AT)]);
            index_header(&mut reply, REGISTERED_AT);
            read_headers(&mut reply);
            set(&mut reply, "x-consul-query-backend", "blocking-query");
            set(&mut reply, "x-consul-effective-consistency", "leader");
            Ok(reply)
        }
        _ => Err(fail(StatusCode::NOT_FOUND, "404 page not found\n")),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct NodeOut {
    #[serde(rename = "ID")]
    id: &'static str,
    node: &'static str,
    address: &'static str,
    datacenter: &'static str,
    tagged_addresses: serde_json::Value,
    meta: serde_json::Value,
    create_index: u64,
    modify_index: u64,
}

impl NodeOut {
    fn new(id: &'static str, index: u64) -> Self {
        const HERE: &str = "127.0.0.1";
        Self {
            id,
            node: NODE,
            address: HERE,
            datacenter: "dc1",
            tagged_addresses: json!({ "lan": HERE, "lan_ipv4": HERE, "wan": HERE, "wan_ipv4": HERE }),
            meta: json!({ "consul-network-segment": "" }),
            create_index: index,
            modify_index: index,
        }
    }
}

// Reading and replying

/// Answers with what `look` finds, at once or, with `?index`, when its index has passed that.
async fn read(agent: &Agent, ask: &Ask, look: impl Fn(&Store) -> Result<(u64, Reply), Failure>) -> Answer {
    let behind = match ask.parameter("index") {
        None => 0,
        Some(text) => text.parse().map_err(|_| fail(StatusCode::BAD_REQUEST, "Invalid index"))?,
    };
    let wait = match ask.parameter("wait") {
        None => WAIT_DEFAULT,
        Some(text) => duration::parse(&text).ok_or_else(|| fail(StatusCode::BAD_REQUEST, "Invalid wait time"))?.min(WAIT_MAX),
    };
    let until = Instant::now() + wait + wait / WAIT_JITTER_DIVISOR;
    // Subscribed before the first look, so that no write falls in between.
    let mut changed = agent.changed.subscribe();
    loop {
        let (index, mut reply) = look(&locked(&agent.store))?;
        let over = Instant::now() >= until;
        if index > behind || behind == 0 || over {
            index_header(&mut reply, index);
            read_headers(&mut reply);
            set(&mut reply, "x-consul-query-backend", "blocking-query");
            return Ok(reply);
        }
        // What woke it does not matter: it looks again.
        let _ = tokio::time::timeout_at(until.into(), changed.changed()).await;
    }
}

fn number(ask: &Ask, name: &str) -> Result<Option<u64>, Failure> {
    let Some(text) = ask.parameter(name) else { return Ok(None) };
    let wrong = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
    text.parse().map(Some).map_err(|_| fail(StatusCode::INTERNAL_SERVER_ERROR, wrong))
}

fn plain(status: StatusCode, text: String) -> Reply {
    let mut reply = Response::new(whole(text));
    *reply.status_mut() = status;
    set(&mut reply, CONTENT_TYPE.as_str(), "text/plain; charset=utf-8");
    reply
}

/// With `?pretty` it is indented, by four, and ends its line.
pub(super) fn json(ask: &Ask, status: StatusCode, body: &impl Serialize) -> Reply {
    let mut text = Vec::new();
    if ask.has("pretty") {
        let indented = serde_json::ser::PrettyFormatter::with_indent(b"    ");
        let mut serializer = serde_json::Serializer::with_formatter(&mut text, indented);
        body.serialize(&mut serializer).expect("our own types, in memory");
        text.push(b'\n');
    } else {
        serde_json::to_writer(&mut text, body).expect("our own types, in memory");
    }
    let mut reply = Response::new(whole(text));
    *reply.status_mut() = status;
    set(&mut reply, CONTENT_TYPE.as_str(), "application/json");
    reply
}

fn json_or_not_found<T: Serialize>(ask: &Ask, found: &[T]) -> Reply {
    if found.is_empty() {
        let mut reply = Response::new(whole(""));
        *reply.status_mut() = StatusCode::NOT_FOUND;
        return reply;
    }
    json(ask, StatusCode::OK, &found)
}

fn index_header(reply: &mut Reply, index: u64) {
    // Never 0: a client that waits behind 0 does not wait at all.
    set(reply, "x-consul-index", &index.max(1).to_string());
}

pub(super) fn read_headers(reply: &mut Reply) {
    set(reply, "x-consul-knownleader", "true");
    set(reply, "x-consul-lastcontact", "0");
}

fn set(reply: &mut Reply, name: &str, value: &str) {
    let name = HeaderName::from_bytes(name.as_bytes()).expect("a name of ours");
    reply.headers_mut().insert(name, HeaderValue::from_str(value).expect("a value of ours"));
}
