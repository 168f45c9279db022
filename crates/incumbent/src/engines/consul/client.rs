//! Consul's HTTP, as far as elections need it: sessions, keys, transactions. One call is one request; nothing is tried twice.
//!
//! The border for errors: a request that did not leave is refused, a read that failed has changed nothing, a write without an answer, or with one that
//! leaves it open, is unknown.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Method, StatusCode, Url};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use crate::desk::{Desk, whole_ms};
use crate::engine::Error;
use crate::engines::locked::locked;
use crate::engines::tls::{client_config, tls_complaint, unused_config};
use crate::place::Place;

/// Consul's usual port.
const PORT: u16 = 8500;
/// A server that has not taken the connection by then is down or behind a firewall. Less than what a lease's call may take, so that its failure is told as what it is.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(800);
/// One of several servers is given this part of a ttl to answer, as an attempt to renew is by default.
const PATIENCE_PART: u32 = 10;
/// And at least this long.
const PATIENCE_MIN: Duration = Duration::from_secs(1);
/// Whoever calls gives up sooner, when its own time is over; this is for those who do not.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// An answer that is larger is none of Consul's: a value has at most half a megabyte, and a line of candidates less.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Of a refusal's words so many characters are repeated: a sentence of Consul's, and not the page of whatever stands before it.
const TOLD_MAX: usize = 200;

/// The way to Consul.
pub(super) struct Client {
    /// Agents of one cluster; any of them will do.
    servers: Vec<Server>,
    /// The one that is asked.
    current: AtomicUsize,
    token: Mutex<Option<String>>,
    /// Where the token is from: a file may have another one by now.
    place: Place,
    datacenter: Option<String>,
}

struct Server {
    name: String,
    base: Url,
    calls: reqwest::Client,
    /// Those who wait have connections of their own: a call must not find all of them taken and dial another first.
    waits: reqwest::Client,
}

/// Whether a request that was sent may have changed something.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Purpose {
    Read,
    /// For a change to read. It may take long, and may be given up at any time.
    Wait,
    Write,
}

struct Answer {
    /// Whose it is.
    server: String,
    status: StatusCode,
    /// What to wait behind. Writes have none.
    index: u64,
    body: Vec<u8>,
}

/// A key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) value: Vec<u8>,
    /// Whose it is; empty if nobody's.
    pub(super) session: String,
    pub(super) modify_index: u64,
}

impl Entry {
    pub(super) fn desk(&self) -> Result<Desk, Error> {
        if self.value.is_empty() { Ok(Desk::default()) } else { Desk::read(&self.value).map_err(|why| why.during(&self.key)) }
    }

    pub(super) fn is_locked(&self) -> bool {
        !self.session.is_empty()
    }
}

/// What became of a transaction.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// All was done. The index is that of the write, if it wrote anything.
    Done(u64),
    /// Nothing was done: something is not as it was expected.
    Conflict(Obstacle),
}

/// Why not.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Obstacle {
    /// The holder's session has ended and the holder may not know.
    LockDelay,
    /// Our own session has ended.
    NoSession,
    /// Somebody has written in between.
    Changed,
}

/// One operation of a transaction.
pub(super) struct Operation(serde_json::Value);

impl Operation {
    pub(super) fn unchanged(entry: &Entry) -> Operation {
        Operation(json!({ "KV": { "Verb": "check-index", "Key": entry.key, "Index": entry.modify_index } }))
    }

    pub(super) fn lock(key: &str, value: &str, session: &str) -> Operation {
        Operation(json!({ "KV": { "Verb": "lock", "Key": key, "Value": STANDARD.encode(value), "Session": session } }))
    }

    pub(super) fn unlock(key: &str, value: &str, session: &str) -> Operation {
        Operation(json!({ "KV": { "Verb": "unlock", "Key": key, "Value": STANDARD.encode(value), "Session": session } }))
    }

    /// Writes a key that has this index; 0 for one that is not there. Its lock stays as it is.
    pub(super) fn write(key: &str, value: &str, index: u64) -> Operation {
        Operation(json!({ "KV": { "Verb": "cas", "Key": key, "Value": STANDARD.encode(value), "Index": index } }))
    }

    pub(super) fn delete(key: &str) -> Operation {
        Operation(json!({ "KV": { "Verb": "delete", "Key": key } }))
    }

    pub(super) fn delete_unchanged(entry: &Entry) -> Operation {
        Operation(json!({ "KV": { "Verb": "delete-cas", "Key": entry.key, "Index": entry.modify_index } }))
    }
}

impl Client {
    /// Reads what the URL names, and connects to nobody yet.
    pub(super) fn new(place: &Place) -> Result<Client, Error> {
        let files = place.tls()?;
        let settings = files.as_ref().map_or_else(|| Ok(unused_config()), client_config)?;
        let scheme = if files.is_some() { "https" } else { "http" };
        let mut servers = Vec::new();
        for name in place.hosts_or_local(PORT) {
            let bad = |why: String| Error::misconfigured(format!("cannot use {name} ({why}): correct the host in the URL"));
            let mut base = Url::parse(&format!("{scheme}://{name}/v1")).map_err(|why| bad(why.to_string()))?;
            // The certificate's name goes into the URL, and the host that it stands for is looked up beforehand.
            let expected = files.as_ref().and_then(|it| it.server_name.as_deref());
            let mut addresses = Vec::new();
            if let Some(expected) = expected {
                use std::net::ToSocketAddrs as _;
                addresses.extend(name.to_socket_addrs().map_err(|why| bad(why.to_string()))?);
                base.set_host(Some(expected)).map_err(|why| bad(why.to_string()))?;
            }
            let connections = || {
                let http = reqwest::Client::builder()
                    .tls_backend_preconfigured(settings.clone())
                    .connect_timeout(CONNECT_TIMEOUT)
                    .timeout(ANSWER_TIMEOUT)
                    .tcp_nodelay(true)
                    .redirect(reqwest::redirect::Policy::none())
                    .no_proxy();
                let http = expected.into_iter().fold(http, |http, expected| http.resolve_to_addrs(expected, &addresses));
                http.build().map_err(|why| bad(why.to_string()))
            };
            let (calls, waits) = (connections()?, connections()?);
            servers.push(Server { base, calls, waits, name });
        }
        Ok(Client {
            servers,
            current: AtomicUsize::new(0),
            token: Mutex::new(token_of(place)?),
            place: place.clone(),
            datacenter: place.option("dc").map(str::to_owned),
        })
    }

    /// Makes a session that ends `ttl` after its last renewal or later, and keeps its locks back for `lock_delay` when it does.
    pub(super) async fn create_session(&self, ttl: Duration, lock_delay: Duration) -> Result<String, Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "UPPERCASE")]
        struct Created {
            id: String,
        }
        // Without checks: the ttl alone says whether we live. The agent's own health, which is the default, would only end sessions of the living.
        let wanted = json!({
            "Name": "incumbent",
            "TTL": format!("{}ms", whole_ms(ttl)),
            "LockDelay": format!("{}ms", whole_ms(lock_delay)),
            "Behavior": "release",
            "NodeChecks": [],
        });
        let body = Some(wanted.to_string());
        let answer = self.ask(Purpose::Write, Method::PUT, &["session", "create"], &[], body, self.patience(ttl)).await?;
        Ok(parsed::<Created>(&answer)?.id)
    }

    /// Begins the session's ttl anew; `false` if it has ended.
    pub(super) async fn renew_session(&self, id: &str, ttl: Duration) -> Result<bool, Error> {
        let answer = self.ask(Purpose::Write, Method::PUT, &["session", "renew", id], &[], None, self.patience(ttl)).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return if answer.body.starts_with(b"Session id") { Ok(false) } else { Err(not_consul(&answer.server)) };
        }
        parsed::<Vec<IgnoredAny>>(&answer).map(|_| true)
    }

    /// A key as a majority of the servers knows it.
    pub(super) async fn read(&self, key: &str) -> Result<Option<Entry>, Error> {
        self.read_within(key, ANSWER_TIMEOUT).await
    }

    /// The same, if the answer comes by then.
    pub(super) async fn read_within(&self, key: &str, patience: Duration) -> Result<Option<Entry>, Error> {
        let patience = patience.min(ANSWER_TIMEOUT);
        let answer = self.ask(Purpose::Read, Method::GET, &path(key), &[("consistent", "")], None, patience).await?;
        Ok(entries(&answer)?.into_iter().next())
    }

    /// How long an answer may take that a lease of this ttl hangs on. One of several servers is left so soon that another can be asked within the ttl; the only one
    /// is waited for.
    pub(super) fn patience(&self, ttl: Duration) -> Duration {
        if self.servers.len() > 1 { (ttl / PATIENCE_PART).max(PATIENCE_MIN).min(ttl) } else { ttl }
    }

    /// All keys that begin so.
    pub(super) async fn list(&self, prefix: &str) -> Result<Vec<Entry>, Error> {
        let query = [("consistent", ""), ("recurse", "")];
        entries(&self.ask(Purpose::Read, Method::GET, &path(prefix), &query, None, ANSWER_TIMEOUT).await?)
    }

    /// Waits until a key has changed since `index` or `wait` is over; says what to wait behind next, and what was there. At once without an index.
    pub(super) async fn wait(&self, key: &str, index: Option<u64>, wait: Duration) -> Result<(u64, Option<Entry>), Error> {
        let (index, span) = (index.map(|it| it.to_string()), format!("{}ms", whole_ms(wait)));
        let mut query = Vec::new();
        if let Some(index) = &index {
            query.extend([("index", index.as_str()), ("wait", span.as_str())]);
        }
        // Consul adds up to a sixteenth to the wait.
        let patience = if query.is_empty() { ANSWER_TIMEOUT } else { wait + wait / 16 + ANSWER_TIMEOUT };
        let answer = self.ask(Purpose::Wait, Method::GET, &path(key), &query, None, patience).await?;
        Ok((answer.index, entries(&answer)?.into_iter().next()))
    }

    /// Does all of it or nothing.
    pub(super) async fn transact(&self, operations: Vec<Operation>) -> Result<Outcome, Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Refusal {
            errors: Vec<Wrong>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Wrong {
            what: String,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Success {
            results: Option<Vec<Written>>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "UPPERCASE")]
        struct Written {
            kv: Indexed,
        }
        // The rest is what we have just said ourselves, some kilobytes of it.
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Indexed {
            modify_index: u64,
        }
        let body = serde_json::Value::from(operations.into_iter().map(|it| it.0).collect::<Vec<_>>()).to_string();
        let token = locked(&self.token).clone();
        let answer = self.ask(Purpose::Write, Method::PUT, &["txn"], &[], Some(body), ANSWER_TIMEOUT).await?;
        if answer.status != StatusCode::CONFLICT {
            let written = parsed::<Success>(&answer)?.results;
            return Ok(Outcome::Done(written.iter().flatten().map(|it| it.kv.modify_index).max().unwrap_or(0)));
        }
        let wrong = parsed::<Refusal>(&answer)?.errors;
        let any = |words: &str| wrong.iter().any(|it| it.what.contains(words));
        if any("Permission denied") {
            return Err(self.forbidden(token.as_deref(), "Permission denied"));
        }
        // What has changed comes first: then the rest says nothing.
        Ok(Outcome::Conflict(if any("index check") || any("is stale") || any("already held") || any("doesn't exist") {
            Obstacle::Changed
        } else if any("lock delay") {
            Obstacle::LockDelay
        } else if any("invalid session") {
            Obstacle::NoSession
        } else {
            Obstacle::Changed
        }))
    }

    async fn ask(
        &self,
        purpose: Purpose,
        method: Method,
        segments: &[&str],
        query: &[(&str, &str)],
        body: Option<String>,
        patience: Duration,
    ) -> Result<Answer, Error> {
        let at = self.current.load(Ordering::Relaxed);
        let server = &self.servers[at % self.servers.len()];
        let mut url = server.base.clone();
        url.path_segments_mut().expect("http has a path").extend(segments);
        for (key, value) in query.iter().copied().chain(self.datacenter.as_deref().map(|it| ("dc", it))) {
            url.query_pairs_mut().append_pair(key, value);
        }
        let connections = if purpose == Purpose::Wait { &server.waits } else { &server.calls };
        let mut request = connections.request(method, url).timeout(patience);
        let token = locked(&self.token).clone();
        if let Some(token) = &token {
            request = request.header("X-Consul-Token", token);
        }
        if let Some(body) = body {
            request = request.body(body);
        }
        let mut turn = Turn { current: &self.current, at, is_over: purpose != Purpose::Wait };
        let failed = |why: reqwest::Error| {
            drop(Turn { current: &self.current, at, is_over: true });
            fault(&server.name, purpose, &why)
        };
        let mut response = request.send().await.map_err(failed)?;
        let index = response.headers().get("X-Consul-Index").and_then(|it| it.to_str().ok()?.parse().ok());
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(not_consul(&server.name));
            }
            body.extend_from_slice(&chunk);
        }
        turn.is_over = is_ailing(status, &body);
        let index = if purpose == Purpose::Write { Some(0) } else { index };
        match status {
            // Consul tells the index also of a key that is not there: without one, this is anybody's 404.
            StatusCode::OK | StatusCode::NOT_FOUND | StatusCode::CONFLICT => match index {
                Some(index) => Ok(Answer { server: server.name.clone(), status, index, body }),
                None => Err(not_consul(&server.name)),
            },
            refused => Err(self.refusal(&server.name, purpose, refused, &String::from_utf8_lossy(&body), token.as_deref())),
        }
    }

    /// An answer with a status that says no, or that says nothing.
    fn refusal(&self, server: &str, purpose: Purpose, status: StatusCode, text: &str, token: Option<&str>) -> Error {
        let short = shortened(text);
        let told = format!("{server} answered {}: {short}", status.as_u16());
        let says = |words: &[&str]| words.iter().any(|it| text.contains(it));
        // Consul sends nobody elsewhere and writes no pages here; a proxy's page while Consul is away has a status of 500 or more.
        if status.is_redirection() || (status.is_client_error() && text.trim_start().starts_with('<')) {
            not_consul(server)
        } else if matches!(status, StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED)
            || says(&["Permission denied", "ACL not found"])
        {
            self.forbidden(token, &short)
        } else if let Some(datacenter) = self.datacenter.as_ref().filter(|_| says(&["cross datacenter lock"])) {
            Error::misconfigured(format!("{told}: {}", in_its_own_datacenter(datacenter)))
        } else if let Some(datacenter) = self.datacenter.as_ref().filter(|_| says(&["Missing node registration"])) {
            // A server's way to say the same; but an agent that has just started says so too.
            Error::refused(format!("{told}: {}", in_its_own_datacenter(datacenter)))
        } else if says(&["Invalid Session TTL"]) {
            Error::misconfigured(format!("{told}: ask for a ttl within that"))
        } else if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS {
            Error::misconfigured(told)
        } else if purpose != Purpose::Write || status == StatusCode::TOO_MANY_REQUESTS || says(UNDONE) {
            Error::refused(told)
        } else {
            Error::unknown(told)
        }
    }

    /// What was asked with this token is not allowed. If there is another one by now, the next call takes that.
    fn forbidden(&self, token: Option<&str>, text: &str) -> Error {
        if let Ok(other) = token_of(&self.place)
            && other.as_deref() != token
        {
            *locked(&self.token) = other;
            return Error::refused(format!("Consul says {text:?}: there is another token now, with which the next call tries"));
        }
        let token = if token.is_some() { "the token may not do this" } else { "a token is needed" };
        Error::misconfigured(format!(
            "Consul says {text:?}: {token}; give one whose policy has key_prefix \"NAMESPACE/\" and session_prefix \"\" with \"write\", \
             as the URL's password, in INCUMBENT_PASSWORD or in CONSUL_HTTP_TOKEN"
        ))
    }
}

/// What an agent says that did nothing because it could not. Another may.
const UNDONE: &[&str] = &["No cluster leader", "No known Consul servers", "rate limit"];

/// Whether another agent is the better one to ask.
fn is_ailing(status: StatusCode, body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body);
    let busy =
        [StatusCode::TOO_MANY_REQUESTS, StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT];
    busy.contains(&status) || (status.is_server_error() && UNDONE.iter().any(|it| text.contains(it)))
}

/// A server's turn to be asked. If it is over when this goes, also because nobody waited any longer, the next call asks the next one.
struct Turn<'a> {
    current: &'a AtomicUsize,
    at: usize,
    is_over: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.is_over {
            // Unless somebody has moved on already.
            let _ = self.current.compare_exchange(self.at, self.at.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// The URL's, or its file's, or the environment's.
fn token_of(place: &Place) -> Result<Option<String>, Error> {
    let environment = || std::env::var("CONSUL_HTTP_TOKEN").ok().filter(|it| !it.is_empty());
    Ok(place.credentials()?.map(|it| it.password).filter(|it| !it.is_empty()).or_else(environment))
}

fn in_its_own_datacenter(datacenter: &str) -> String {
    format!(
        "a session belongs to an agent, and dc={datacenter} is not that agent's datacenter: name agents of {datacenter} in the URL instead"
    )
}

fn path(key: &str) -> Vec<&str> {
    std::iter::once("kv").chain(key.split('/')).collect()
}

fn fault(server: &str, purpose: Purpose, why: &reqwest::Error) -> Error {
    if let Some(complaint) = tls_complaint(server, why) {
        return complaint;
    }
    let mut cause: &dyn std::error::Error = why;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    if why.is_connect() {
        Error::refused(format!("cannot reach {server} ({cause}): is Consul running there, and may this machine connect to it?"))
    } else if purpose != Purpose::Write {
        Error::refused(format!("{server} did not answer: {cause}"))
    } else {
        Error::unknown(format!("{server} did not answer: {cause}"))
    }
}

/// What an answer says. One that Consul would not give is a reason to stop.
fn parsed<'a, T: Deserialize<'a>>(answer: &'a Answer) -> Result<T, Error> {
    serde_json::from_slice(&answer.body).map_err(|_| not_consul(&answer.server))
}

fn not_consul(server: &str) -> Error {
    Error::misconfigured(format!("{server} does not answer as Consul does: correct the host and the port in the URL"))
}

/// The beginning of what somebody says, in one line.
fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(TOLD_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// A key as Consul tells it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Told {
    key: String,
    value: Option<String>,
    #[serde(default)]
    session: String,
    modify_index: u64,
}

fn entries(answer: &Answer) -> Result<Vec<Entry>, Error> {
    if answer.status == StatusCode::NOT_FOUND {
        return Ok(Vec::new());
    }
    let told: Vec<Told> = parsed(answer)?;
    told.into_iter()
        .map(|Told { key, value, session, modify_index }| {
            let value = STANDARD.decode(value.unwrap_or_default());
            let value = value.map_err(|_| not_consul(&answer.server))?;
            Ok(Entry { key, value, session, modify_index })
        })
        .collect()
}
