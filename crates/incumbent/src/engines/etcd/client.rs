//! The way to etcd: servers, connections, TLS, who we are. One call is one method here.
//!
//! Calls go to one server until it fails; then to the next. A call that was dropped without an answer, or has not been answered for a while,
//! counts as a failure of its server and of its connection: the next call takes another server and a new connection, so that a dead one costs one call's
//! time and no more. A request that never left is sent to the others at once. Nothing else is tried again here.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use tokio::sync::oneshot;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status, Streaming};

use super::fault::{self, Acquaintance, Fault};
use super::wire::proto::auth_client::AuthClient;
use super::wire::proto::kv_client::KvClient;
use super::wire::proto::lease_client::LeaseClient;
use super::wire::proto::maintenance_client::MaintenanceClient;
use super::wire::proto::watch_client::WatchClient;
use super::wire::proto::watch_request::RequestUnion;
use super::wire::proto::{
    AuthenticateRequest, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
    LeaseRevokeRequest, StatusRequest, TxnRequest, WatchCreateRequest, WatchRequest, WatchResponse,
};
use super::wire::{self, Answer, TXN_OPERATIONS_MAX};
use crate::engine::Error;
use crate::place::{Credentials, Place, TlsFiles};

/// etcd's port for clients.
const PORT: u16 = 2379;

/// Whoever has not taken a connection by then is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection on which something is awaited is probed this often, for the sake of watches: calls have less patience. etcd hangs up on those who
/// probe more than every 5 s.
const PROBE_INTERVAL: Duration = Duration::from_secs(20);

/// A probe that is not answered by then is the end of the connection.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Whoever has no lease has time.
const PATIENCE_MS_MAX: u64 = 1_000;

/// etcd computes a slow hash for each log-in; it need not fit in the time of the call that needed it.
const LOG_IN_TIMEOUT: Duration = Duration::from_secs(5);

/// A list of all candidates is the greatest answer there is.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// The way to etcd.
pub(super) struct Client {
    servers: Vec<Server>,
    /// The one that calls go to.
    current: AtomicUsize,
    /// A call that is not answered by then is still waited for, but the next goes elsewhere.
    patience_ms: AtomicU64,
    credentials: Option<Credentials>,
    admission: Mutex<Option<Admission>>,
    /// Held while logging in, so that a thousand calls log in once.
    logging_in: tokio::sync::Mutex<()>,
}

/// What a log-in has brought.
#[derive(Clone)]
enum Admission {
    /// To be shown with every request.
    Token(MetadataValue<Ascii>),
    /// Everybody is let in.
    Open,
}

impl Admission {
    fn token(self) -> Option<MetadataValue<Ascii>> {
        match self {
            Admission::Token(token) => Some(token),
            Admission::Open => None,
        }
    }
}

struct Server {
    /// For people.
    name: String,
    endpoint: Endpoint,
    connection: Mutex<Connection>,
    has_answered: AtomicBool,
    /// As long as it has not answered.
    stranger: Acquaintance,
}

impl Server {
    fn acquaintance(&self) -> Acquaintance {
        if self.has_answered.load(Ordering::Relaxed) { Acquaintance::Answered } else { self.stranger }
    }
}

#[derive(Default)]
struct Connection {
    channel: Option<Channel>,
    /// Counts connections, so that one that fails many calls at once is given up once.
    number: u64,
    /// Counts answers, so that one call that takes long is not taken for a dead connection.
    answers: u64,
}

/// One attempt's way: which server, by which connection, as whom.
struct Line {
    server: usize,
    connection: u64,
    /// So many had come by it before.
    answers: u64,
    channel: Channel,
    token: Option<MetadataValue<Ascii>>,
}

impl Line {
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }
}

/// Gives the connection up if it is dropped before there was an answer.
struct Awaited<'a> {
    client: &'a Client,
    server: usize,
    connection: u64,
    answered: bool,
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.client.give_up(self.server, self.connection);
        }
    }
}

/// A watch. Dropping the answers alone would not end it: the connection keeps a request until all of it is sent, and the server a watch until then.
pub(super) struct Watch {
    pub(super) events: Streaming<WatchResponse>,
    _open: oneshot::Sender<()>,
}

impl Client {
    /// Reads what the URL names, and connects to nobody yet.
    pub(super) fn new(place: &Place) -> Result<Client, Error> {
        let files = place.tls()?;
        let stranger = match &files {
            None => Acquaintance::NeverWithoutTls,
            Some(files) if files.cert.is_none() => Acquaintance::NeverWithoutCertificate,
            Some(_) => Acquaintance::Never,
        };
        let tls = files.map(|files| tls_config(&files)).transpose()?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let mut servers = Vec::new();
        for name in place.hosts_or_local(PORT) {
            let bad = |why: tonic::transport::Error| {
                let why = std::error::Error::source(&why).map_or_else(|| why.to_string(), ToString::to_string);
                Error::misconfigured(format!("cannot use {name} ({why}): check the host, and the files for TLS, in the URL"))
            };
            let mut endpoint = Endpoint::from_shared(format!("{scheme}://{name}"))
                .map_err(bad)?
                .connect_timeout(CONNECT_TIMEOUT)
                .http2_keep_alive_interval(PROBE_INTERVAL)
                .keep_alive_timeout(PROBE_TIMEOUT);
            if let Some(tls) = &tls {
                endpoint = endpoint.tls_config(tls.clone()).map_err(bad)?;
            }
            servers.push(Server { name, endpoint, connection: Mutex::default(), has_answered: AtomicBool::new(false), stranger });
        }
        Ok(Client {
            servers,
            current: AtomicUsize::new(0),
            patience_ms: AtomicU64::new(PATIENCE_MS_MAX),
            credentials: place.credentials()?,
            admission: Mutex::default(),
            logging_in: tokio::sync::Mutex::default(),
        })
    }

    /// Reads or writes in one step.
    pub(super) async fn txn(self: &Arc<Self>, txn: TxnRequest) -> Result<Answer, Fault> {
        debug_assert!([txn.compare.len(), txn.success.len(), txn.failure.len()].iter().all(|it| *it <= TXN_OPERATIONS_MAX));
        let reads = wire::only_reads(&txn);
        let response = self.ask(|line| {
            let request = line.request(txn.clone());
            let asking = async move {
                Ok(KvClient::new(line.channel).max_decoding_message_size(ANSWER_BYTES_MAX).txn(request).await?.into_inner())
            };
            async move {
                // etcd before 3.4.21 and 3.5.5 dies of a transaction that only reads and is cancelled (etcd#14110). So it is never
                // cancelled: its answer is waited for, whether or not anybody still wants it.
                if reads {
                    tokio::spawn(asking).await.unwrap_or_else(|_| Err(Status::cancelled("the runtime is ending")))
                } else {
                    asking.await
                }
            }
        });
        Ok(response.await?.into())
    }

    /// Makes a lease with this number.
    pub(super) async fn grant(self: &Arc<Self>, id: i64, ttl: i64) -> Result<LeaseGrantResponse, Fault> {
        self.ask(|line| {
            let request = line.request(LeaseGrantRequest { ttl, id });
            async move { Ok(LeaseClient::new(line.channel).lease_grant(request).await?.into_inner()) }
        })
        .await
    }

    /// Begins the ttl of a lease anew.
    pub(super) async fn keep_alive(self: &Arc<Self>, id: i64) -> Result<LeaseKeepAliveResponse, Fault> {
        self.ask(|line| {
            let request = line.request(stream::iter([LeaseKeepAliveRequest { id }]));
            async move {
                let mut responses = LeaseClient::new(line.channel).lease_keep_alive(request).await?.into_inner();
                responses.message().await?.ok_or_else(|| Status::unavailable("the server closed the stream of keep-alives"))
            }
        })
        .await
    }

    /// Ends a lease, and all keys that hang on it.
    pub(super) async fn revoke(self: &Arc<Self>, id: i64) -> Result<(), Fault> {
        self.ask(|line| {
            let request = line.request(LeaseRevokeRequest { id });
            async move { LeaseClient::new(line.channel).lease_revoke(request).await.map(drop) }
        })
        .await
    }

    /// Opens a stream of what happens to these keys. What breaks it later is judged by [`Client::judge_broken`].
    pub(super) async fn watch(self: &Arc<Self>, wanted: &[WatchCreateRequest]) -> Result<Watch, Fault> {
        self.ask(|line| {
            let (open, closed) = oneshot::channel::<()>();
            let created: Vec<_> =
                wanted.iter().map(|it| WatchRequest { request_union: Some(RequestUnion::CreateRequest(it.clone())) }).collect();
            // Our side of the stream says nothing more, and ends with the watch.
            let end = stream::once(closed).filter_map(|_| std::future::ready(None));
            let mut request = line.request(stream::iter(created).chain(end));
            // A server that is cut off from its leader hears of nothing: it shall say so.
            request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
            async move {
                let client = WatchClient::new(line.channel).max_decoding_message_size(ANSWER_BYTES_MAX);
                Ok(Watch { events: { client }.watch(request).await?.into_inner(), _open: open })
            }
        })
        .await
    }

    /// Why a stream that had been opened ended.
    pub(super) fn judge_broken(&self, status: &Status) -> Fault {
        let server = self.current.load(Ordering::Relaxed) % self.servers.len();
        if fault::wants_log_in(status) {
            self.forget_admission();
        }
        fault::judge(status, &self.servers[server].name, self.servers[server].acquaintance())
    }

    /// Is somebody there, and do they let us in?
    pub(super) async fn knock(self: &Arc<Self>) -> Result<(), Fault> {
        self.ask(|line| {
            let request = line.request(StatusRequest {});
            async move { MaintenanceClient::new(line.channel).status(request).await.map(drop) }
        })
        .await
    }

    /// Sends a request, as often as it has surely not been carried out and there is another way to send it.
    async fn ask<A, F>(self: &Arc<Self>, attempt: impl Fn(Line) -> F) -> Result<A, Fault>
    where
        F: Future<Output = Result<A, Status>>,
    {
        let mut unreachable = 0;
        let mut logged_in_again = false;
        loop {
            let token = self.token().await?;
            let line = self.line(token);
            let (server, connection, answers) = (line.server, line.connection, line.answers);
            let mut awaited = Awaited { client: self, server, connection, answered: false };
            let mut answer = pin!(attempt(line));
            let outcome = match tokio::time::timeout(self.patience(), &mut answer).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    if self.connection(server).answers == answers {
                        self.give_up(server, connection);
                    }
                    answer.await
                }
            };
            awaited.answered = true;
            let status = match outcome {
                Ok(answer) => {
                    self.note_answer(server, connection);
                    return Ok(answer);
                }
                Err(status) => status,
            };
            if fault::try_another_server(&status) {
                self.give_up(server, connection);
            }
            if fault::never_left(&status) && unreachable + 1 < self.servers.len() {
                unreachable += 1;
            } else if self.credentials.is_some() && fault::wants_log_in(&status) && !logged_in_again {
                self.forget_admission();
                logged_in_again = true;
            } else {
                let all = unreachable > 0 && fault::never_left(&status);
                let name = if all { self.names() } else { self.servers[server].name.clone() };
                return Err(fault::judge(&status, &name, self.servers[server].acquaintance()));
            }
        }
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(self.patience_ms.load(Ordering::Relaxed))
    }

    /// No call may be waited for without doubts for longer than this from now on.
    pub(super) fn hurry(&self, patience: Duration) {
        let patience = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX).max(1);
        self.patience_ms.fetch_min(patience, Ordering::Relaxed);
    }

    fn names(&self) -> String {
        self.servers.iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    fn line(&self, token: Option<MetadataValue<Ascii>>) -> Line {
        let server = self.current.load(Ordering::Relaxed) % self.servers.len();
        let mut connection = self.connection(server);
        let channel = connection.channel.get_or_insert_with(|| self.servers[server].endpoint.connect_lazy()).clone();
        Line { server, connection: connection.number, answers: connection.answers, channel, token }
    }

    fn connection(&self, server: usize) -> MutexGuard<'_, Connection> {
        self.servers[server].connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_answer(&self, server: usize, number: u64) {
        self.servers[server].has_answered.store(true, Ordering::Relaxed);
        let mut connection = self.connection(server);
        if connection.number == number {
            connection.answers += 1;
        }
    }

    /// The next call goes to another server, and the next one to this server by a new connection.
    fn give_up(&self, server: usize, number: u64) {
        let mut connection = self.connection(server);
        if connection.number == number {
            *connection = Connection { channel: None, number: number + 1, answers: 0 };
            let next = (server + 1) % self.servers.len();
            // Only if nobody has moved on already.
            let _ = self.current.compare_exchange(server, next, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn forget_admission(&self) {
        *self.admission.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    async fn token(self: &Arc<Self>) -> Result<Option<MetadataValue<Ascii>>, Fault> {
        if self.credentials.is_none() {
            return Ok(None);
        }
        if let Some(admission) = self.admission() {
            return Ok(admission.token());
        }
        // In a task of its own: it takes longer than many a call may, and would be begun for nothing again and again.
        let client = Arc::clone(self);
        let log_in = tokio::spawn(async move { tokio::time::timeout(LOG_IN_TIMEOUT, client.log_in()).await });
        match log_in.await {
            Ok(Ok(outcome)) => Ok(outcome?.token()),
            Ok(Err(_)) | Err(_) => Err(Error::refused(format!("etcd at {} does not answer a log-in", self.names())).into()),
        }
    }

    fn admission(&self) -> Option<Admission> {
        self.admission.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn admit(&self, admission: Admission) -> Admission {
        *self.admission.lock().unwrap_or_else(PoisonError::into_inner) = Some(admission.clone());
        admission
    }

    async fn log_in(self: Arc<Self>) -> Result<Admission, Fault> {
        let _alone = self.logging_in.lock().await;
        if let Some(admission) = self.admission() {
            return Ok(admission);
        }
        let Some(Credentials { user, password }) = self.credentials.clone() else { return Ok(Admission::Open) };
        let mut unreachable = 0;
        loop {
            let line = self.line(None);
            let (server, connection) = (line.server, line.connection);
            let mut awaited = Awaited { client: &self, server, connection, answered: false };
            let request = AuthenticateRequest { name: user.clone(), password: password.clone() };
            let outcome = AuthClient::new(line.channel).authenticate(request).await;
            awaited.answered = true;
            match outcome {
                Ok(response) => {
                    let mut token: MetadataValue<Ascii> = response
                        .into_inner()
                        .token
                        .parse()
                        .map_err(|_| Error::refused("etcd gave a token that cannot be sent"))?;
                    token.set_sensitive(true);
                    return Ok(self.admit(Admission::Token(token)));
                }
                // Whoever is let in without a password is let in with one.
                Err(status) if status.message().contains("authentication is not enabled") => {
                    return Ok(self.admit(Admission::Open));
                }
                Err(status) if fault::never_left(&status) && unreachable + 1 < self.servers.len() => {
                    self.give_up(server, connection);
                    unreachable += 1;
                }
                Err(status) => {
                    let all = fault::never_left(&status);
                    if all {
                        self.give_up(server, connection);
                    }
                    let name = if all { self.names() } else { self.servers[server].name.clone() };
                    return Err(fault::judge(&status, &name, self.servers[server].acquaintance()));
                }
            }
        }
    }
}

fn tls_config(files: &TlsFiles) -> Result<ClientTlsConfig, Error> {
    let read = |path: &std::path::Path| {
        std::fs::read(path).map_err(|why| Error::misconfigured(format!("cannot read {}: {why}", path.display())))
    };
    let mut config = match &files.ca {
        Some(ca) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(ca)?)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    if let (Some(cert), Some(key)) = (&files.cert, &files.key) {
        config = config.identity(Identity::from_pem(read(cert)?, read(key)?));
    }
    if let Some(name) = &files.server_name {
        config = config.domain_name(name);
    }
    Ok(config)
}
