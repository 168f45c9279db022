//! The way to a bucket: one connection that all share, requests, and what their failures mean. Nothing is tried twice.
//!
//! The client crate would reconnect by itself and send later what it could not send now. A claim that is carried out long after its caller has given up helps nobody, so a connection
//! that breaks is given up with all that is under way on it, and the next call makes another and looks at the bucket anew.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::jetstream::consumer::{DeliverPolicy, ReplayPolicy, push};
use async_nats::{ConnectError, ConnectErrorKind, ConnectOptions, Event, HeaderMap, ServerError};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use rustls::ClientConfig;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::bucket::{Bucket, Described};
use super::record::Record;
use crate::desk::{Desk, wall_ms};
use crate::engine::Error;
use crate::engines::slot::{Borrowed, Slot};
use crate::engines::tls::{client_config_for_the_name, tls_complaint, unused_config};
use crate::place::Place;

const USUAL_PORT: u16 = 4222;
/// A server that has not greeted us by then is down or behind a firewall.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Whoever calls gives up sooner, when its own time is over; this is for those who do not.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// A line that died in silence while nobody calls is noticed after three of these.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// What is remembered of refusals that name a subject; then it begins anew.
const FORBIDDEN_MAX: usize = 1024;

/// The header that names what the last revision of the key must be.
const EXPECTED_REVISION: &str = "Nats-Expected-Last-Subject-Sequence";
/// The header that names which stream must take it.
const EXPECTED_STREAM: &str = "Nats-Expected-Stream";

/// NATS' own numbers for what went wrong.
mod code {
    pub(super) const NO_MESSAGE: u32 = 10037;
    pub(super) const NOT_ENABLED: [u32; 2] = [10039, 10076];
    pub(super) const TOO_LARGE: u32 = 10054;
    pub(super) const STREAM_NAME_IN_USE: u32 = 10058;
    pub(super) const NO_STREAM: u32 = 10059;
    pub(super) const OTHER_REVISION: [u32; 2] = [10071, 10164];
    /// Servers do not find each other yet.
    pub(super) const NOT_YET: [u32; 3] = [10005, 10008, 10009];
    /// Limits, missing resources or servers: said before anything is stored.
    pub(super) const NOT_NOW: [u32; 10] = [10002, 10005, 10008, 10009, 10023, 10026, 10027, 10028, 10047, 10074];
}

/// One bucket on one NATS.
pub(super) struct Client {
    hosts: Vec<String>,
    /// The one that was tried last.
    at: AtomicUsize,
    login: Login,
    tls: ClientConfig,
    tls_wanted: bool,
    bucket: Bucket,
    slot: Slot<Connection>,
    /// How many connections there have been.
    made: watch::Sender<u64>,
    /// JetStream has been there: if it is not, that will pass.
    served: AtomicBool,
    /// The bucket was there when it was last looked for.
    has_bucket: AtomicBool,
}

/// What we show. Never printed.
enum Login {
    Nothing,
    Password {
        user: String,
        password: String,
    },
    Token(String),
    /// The seed of a key.
    Nkey(String),
    /// The text of a `.creds` file.
    Credentials(String),
}

/// A connection in use.
#[derive(Clone)]
pub(super) struct Connection {
    client: async_nats::Client,
    health: watch::Receiver<Health>,
    /// Changes when another was made: somebody has found this one dead.
    replaced: watch::Receiver<u64>,
}

/// What the server and the line have told us unasked.
#[derive(Clone, Default)]
struct Health {
    broken: bool,
    /// What we may not do, in the server's words, and how often it said so.
    forbidden: BTreeMap<String, u64>,
}

/// Why a request brought no answer of the kind that was hoped for.
enum Failure {
    Silence,
    Broken,
    /// Nobody is there to hear it: it did not happen.
    NoResponders,
    Forbidden(String),
    TooLarge,
    Odd(String),
    Told(Told),
    /// There was no connection to send it on.
    NotSent(Error),
}

/// An error as JetStream tells it.
#[derive(Clone, Debug, Deserialize)]
struct Told {
    #[serde(default)]
    err_code: u32,
    #[serde(default)]
    description: String,
}

/// Whether a request that was sent may have changed something.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Purpose {
    Read,
    Write,
}

/// What becomes of a bucket that is not there. Whoever only looks makes none.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Missing {
    IsMade,
    StaysSo,
}

/// Whose fault a request's failure may be, for what to do about it.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Task {
    Elect,
    MakeBucket,
}

impl Client {
    pub(super) fn new(place: &Place) -> Result<Client, Error> {
        let files = place.tls()?;
        let hosts = place.hosts_or_local(USUAL_PORT);
        Ok(Client {
            at: AtomicUsize::new(hosts.len() - 1),
            hosts,
            login: Login::of(place)?,
            tls: files.as_ref().map_or_else(|| Ok(unused_config()), client_config_for_the_name)?,
            tls_wanted: files.is_some(),
            bucket: Bucket::of(place)?,
            slot: Slot::default(),
            made: watch::Sender::new(0),
            served: AtomicBool::new(false),
            has_bucket: AtomicBool::new(false),
        })
    }

    /// Whether it lets us in, and the bucket is fit if it is there.
    pub(super) async fn knock(&self) -> Result<(), Error> {
        self.borrow().await?.answered();
        Ok(())
    }

    /// The key, as the stream's leader has it: a replica may lag behind.
    pub(super) async fn read(&self, key: &str) -> Result<Option<Record>, Error> {
        if !self.finds_bucket(Missing::StaysSo).await? {
            return Ok(None);
        }
        let subject = format!("$JS.API.STREAM.MSG.GET.{}", self.bucket.stream());
        let wanted = serde_json::json!({ "last_by_subj": self.bucket.subject(key) }).to_string();
        match self.request::<Got>(&subject, HeaderMap::new(), wanted).await {
            Ok(got) => got.message.record().map(Some).map_err(|why| why.during(&format!("the key {key}"))),
            Err(Failure::Told(told)) if told.err_code == code::NO_MESSAGE => Ok(None),
            Err(why) => Err(self.error(Purpose::Read, Task::Elect, why)),
        }
    }

    /// Writes the key if its last revision is the expected one, 0 if there must be none. Says which one it has now; `None` if nothing was written.
    pub(super) async fn write(&self, key: &str, desk: &Desk, expected: u64) -> Result<Option<u64>, Error> {
        self.finds_bucket(Missing::IsMade).await?;
        let mut headers = HeaderMap::new();
        headers.insert(EXPECTED_REVISION, expected.to_string());
        headers.insert(EXPECTED_STREAM, self.bucket.stream());
        match self.request::<Stored>(&self.bucket.subject(key), headers, desk.write()).await {
            Ok(stored) => Ok(Some(stored.seq)),
            Err(Failure::Told(told)) if code::OTHER_REVISION.contains(&told.err_code) => Ok(None),
            Err(why) => Err(self.error(Purpose::Write, Task::Elect, why)),
        }
    }

    /// A connection for hints.
    pub(super) async fn connection(&self) -> Result<Connection, Error> {
        let lent = self.borrow().await?;
        let connection = lent.connection.clone();
        lent.answered();
        Ok(connection)
    }

    /// The key as it is and as it becomes, for hints.
    pub(super) async fn follow(&self, connection: &Connection, key: &str) -> Result<BoxStream<'static, Option<Record>>, Error> {
        let trouble = |why: &dyn std::fmt::Display| Error::refused(format!("no hints from NATS: {why}"));
        let jetstream = async_nats::jetstream::new(connection.client.clone());
        let stream = jetstream.get_stream_no_info(self.bucket.stream()).await.map_err(|why| trouble(&why))?;
        let inbox = connection.client.new_inbox();
        let wanted = push::OrderedConfig {
            // One with a name is asked for by a subject that tells the key, so that rights can be given by keys.
            name: inbox.rsplit('.').next().map(|it| format!("incumbent-{it}")),
            deliver_subject: inbox,
            filter_subject: self.bucket.subject(key),
            deliver_policy: DeliverPolicy::LastPerSubject,
            replay_policy: ReplayPolicy::Instant,
            ..push::OrderedConfig::default()
        };
        let consumer = stream.create_consumer(wanted).await.map_err(|why| trouble(&why))?;
        let messages = consumer.messages().await.map_err(|why| trouble(&why))?;
        // What cannot be read is said by the next claim.
        Ok(messages
            .map(|message| {
                let message = message.ok()?;
                let revision = message.info().ok()?.stream_sequence;
                let headers = message.headers.as_ref();
                let is_mark = headers.is_some_and(|it| MARKS.iter().any(|mark| it.get(*mark).is_some()));
                if is_mark { Some(Record::deleted(revision)) } else { Record::read(revision, &message.payload).ok() }
            })
            .boxed())
    }

    async fn request<T: DeserializeOwned>(&self, subject: &str, headers: HeaderMap, payload: String) -> Result<T, Failure> {
        let lent = self.borrow().await.map_err(Failure::NotSent)?;
        let answer = lent.connection.request(subject, headers, payload).await;
        match &answer {
            // A bucket that has gone is to be looked for again, and so is a line that says nothing.
            Err(Failure::Silence | Failure::Broken | Failure::NoResponders | Failure::NotSent(_)) => {
                self.has_bucket.store(false, Ordering::Relaxed);
            }
            Err(Failure::Told(told)) if told.err_code == code::NO_STREAM => self.has_bucket.store(false, Ordering::Relaxed),
            Ok(_) | Err(Failure::Forbidden(_) | Failure::TooLarge | Failure::Odd(_) | Failure::Told(_)) => lent.answered(),
        }
        answer
    }

    /// The connection that all share, or a new one if that is known to be broken.
    async fn borrow(&self) -> Result<Borrowed<'_, Connection>, Error> {
        let lent = self.slot.borrow(self.connect()).await?;
        if !lent.connection.is_broken() {
            return Ok(lent);
        }
        drop(lent);
        self.slot.borrow(self.connect()).await
    }

    fn host(&self) -> &str {
        &self.hosts[self.at.load(Ordering::Relaxed) % self.hosts.len()]
    }

    /// A connection to the first host that takes us and has no bucket that is not fit. Each time another is asked first, before anything is waited for: the last one may be cut
    /// off from the others, take us, and leave us without an answer until our caller gives up.
    async fn connect(&self) -> Result<Connection, Error> {
        let mut trouble = None;
        for _ in 0..self.hosts.len() {
            self.at.fetch_add(1, Ordering::Relaxed);
            match self.connect_to(self.host()).await {
                Ok(connection) => match self.look_at_bucket(&connection, Missing::StaysSo).await {
                    Ok(_) => return Ok(connection),
                    Err(why) => trouble = Some(why),
                },
                Err(why) => trouble = Some(why),
            }
        }
        Err(trouble.expect("there is at least one host"))
    }

    async fn connect_to(&self, host: &str) -> Result<Connection, Error> {
        let (tell, health) = watch::channel(Health::default());
        let tell = Arc::new(tell);
        let options = self
            .login
            .options()?
            .name("incumbent")
            .connection_timeout(CONNECT_TIMEOUT)
            .ping_interval(PING_INTERVAL)
            .request_timeout(Some(ANSWER_TIMEOUT))
            // One attempt is the fewest that there are; what is broken is not used again anyway.
            .max_reconnects(1)
            // The servers of a cluster tell of each other by names that need not mean anything here.
            .ignore_discovered_servers()
            .require_tls(self.tls_wanted)
            .tls_client_config(self.tls.clone())
            .event_callback(move |event| {
                tell.send_if_modified(|health| health.hear(&event));
                std::future::ready(())
            });
        let client = options.connect(format!("nats://{host}")).await.map_err(|why| self.complaint(host, &why))?;
        // Whoever listens for hints on an older one moves over.
        self.made.send_modify(|it| *it += 1);
        Ok(Connection { client, health, replaced: self.made.subscribe() })
    }

    /// Whether the bucket is there. One that was not is looked for again.
    async fn finds_bucket(&self, missing: Missing) -> Result<bool, Error> {
        if self.has_bucket.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let lent = self.borrow().await?;
        // A new connection has looked already.
        let found = self.has_bucket.load(Ordering::Relaxed) || self.look_at_bucket(&lent.connection, missing).await?;
        lent.answered();
        Ok(found)
    }

    /// Whether the bucket is there; complains if it is not fit.
    async fn look_at_bucket(&self, connection: &Connection, missing: Missing) -> Result<bool, Error> {
        let subject = format!("$JS.API.STREAM.INFO.{}", self.bucket.stream());
        let found = match connection.request::<Described>(&subject, HeaderMap::new(), String::new()).await {
            Ok(found) => Some(found),
            Err(Failure::Told(told)) if told.err_code == code::NO_STREAM => match missing {
                Missing::IsMade => Some(self.make_bucket(connection).await?),
                Missing::StaysSo => None,
            },
            Err(why) => return Err(self.error(Purpose::Read, Task::Elect, why)),
        };
        self.served.store(true, Ordering::Relaxed);
        self.has_bucket.store(found.is_some(), Ordering::Relaxed);
        found.as_ref().map_or(Ok(()), |it| self.bucket.check(it))?;
        Ok(found.is_some())
    }

    async fn make_bucket(&self, connection: &Connection) -> Result<Described, Error> {
        let subject = |verb: &str| format!("$JS.API.STREAM.{verb}.{}", self.bucket.stream());
        let order = self.bucket.order(wall_ms());
        match connection.request(&subject("CREATE"), HeaderMap::new(), order).await {
            Ok(made) => Ok(made),
            // Somebody else was quicker.
            Err(Failure::Told(told)) if told.err_code == code::STREAM_NAME_IN_USE => connection
                .request(&subject("INFO"), HeaderMap::new(), String::new())
                .await
                .map_err(|why| self.error(Purpose::Read, Task::Elect, why)),
            // Whatever became of it: it is only a bucket, and no seat.
            Err(why) => Err(self.error(Purpose::Read, Task::MakeBucket, why)),
        }
    }

    /// The one place where failures of requests become ours.
    fn error(&self, purpose: Purpose, task: Task, failure: Failure) -> Error {
        let open = |text: String| if purpose == Purpose::Read { Error::refused(text) } else { Error::unknown(text) };
        let (host, command) = (self.host(), self.bucket.command());
        match failure {
            Failure::NotSent(why) => why,
            Failure::Silence => open(format!("NATS at {host} did not answer")),
            Failure::Broken => open(format!("the connection to NATS at {host} broke")),
            Failure::Odd(why) => open(format!("NATS at {host} answered oddly: {why}")),
            Failure::NoResponders if self.served.load(Ordering::Relaxed) => {
                Error::refused(format!("JetStream at {host} is not there now, or the bucket has gone"))
            }
            Failure::NoResponders => no_jetstream(host, "nobody answers for it"),
            Failure::TooLarge => Error::misconfigured(format!(
                "what is to be written is too large for NATS at {host}: publish a shorter value, or raise max_payload"
            )),
            Failure::Forbidden(why) if task == Task::MakeBucket => Error::misconfigured(format!(
                "there is no bucket, and NATS at {host} does not let us make one ({why}): let an operator run `{command}`"
            )),
            Failure::Forbidden(why) => Error::misconfigured(format!(
                "NATS at {host} forbids it ({why}): allow the user to publish to {}, $JS.API.STREAM.INFO.{stream}, \
                 $JS.API.STREAM.MSG.GET.{stream} and $JS.API.CONSUMER.CREATE.{stream}.>, and to subscribe to _INBOX.>",
                self.bucket.subject(">"),
                stream = self.bucket.stream()
            )),
            Failure::Told(Told { err_code, description }) => {
                let told = format!("JetStream at {host} says: {description} ({err_code})");
                if code::NOT_ENABLED.contains(&err_code) {
                    no_jetstream(host, &description)
                } else if task == Task::MakeBucket {
                    let advice = format!("{told}: there is no bucket and it cannot be made; let an operator run `{command}`");
                    if code::NOT_YET.contains(&err_code) { Error::refused(advice) } else { Error::misconfigured(advice) }
                } else if err_code == code::TOO_LARGE {
                    Error::misconfigured(format!("{told}: publish a shorter value, or let the bucket take larger ones"))
                } else if err_code == code::NO_STREAM || code::NOT_NOW.contains(&err_code) {
                    Error::refused(told)
                } else {
                    open(told)
                }
            }
        }
    }

    /// The one place where failures to connect become ours. Nothing was asked yet.
    fn complaint(&self, host: &str, why: &ConnectError) -> Error {
        if let Some(about_tls) = tls_complaint(host, why) {
            if self.tls_wanted {
                return about_tls;
            }
            return Error::misconfigured(format!(
                "NATS at {host} wants TLS: say tls=on, or ca=FILE if its authority is your own"
            ));
        }
        let cause = innermost(why);
        match why.kind() {
            ConnectErrorKind::AuthorizationViolation => Error::misconfigured(format!(
                "NATS at {host} does not let us in: give user and password in the URL, a token as the password alone, password-file=FILE, \
                 INCUMBENT_PASSWORD, creds=FILE or nkey=FILE"
            )),
            ConnectErrorKind::Authentication => {
                Error::misconfigured(format!("NATS at {host} wants a signature and there is none: check creds=FILE or nkey=FILE"))
            }
            ConnectErrorKind::ServerParse => Error::misconfigured(format!("{host} is no address of a server: {cause}")),
            ConnectErrorKind::Tls => Error::misconfigured(format!("no TLS with {host}: {cause}")),
            ConnectErrorKind::Dns | ConnectErrorKind::TimedOut | ConnectErrorKind::Io | ConnectErrorKind::MaxReconnects => {
                Error::refused(format!(
                    "cannot reach NATS at {host} ({cause}): is the server running there, and may this machine connect to it?"
                ))
            }
        }
    }
}

fn no_jetstream(host: &str, why: &str) -> Error {
    Error::misconfigured(format!(
        "there is no JetStream at {host} ({why}): start nats-server with -js, or enable jetstream for the server and the account"
    ))
}

fn innermost(why: &dyn std::error::Error) -> String {
    let mut cause = why;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

impl Login {
    fn of(place: &Place) -> Result<Login, Error> {
        let text = |file: &str, what: &str| {
            std::fs::read_to_string(file).map_err(|why| Error::misconfigured(format!("cannot read {what} from {file}: {why}")))
        };
        let login = match (place.option("creds"), place.option("nkey"), place.credentials()?) {
            (Some(_), Some(_), _) => {
                return Err(Error::misconfigured("creds=FILE and nkey=FILE are two ways in: leave one of them out"));
            }
            (Some(file), None, _) => Login::Credentials(text(file, "the credentials")?),
            (None, Some(file), _) => Login::Nkey(text(file, "the seed of the key")?.trim().to_owned()),
            (None, None, None) => Login::Nothing,
            (None, None, Some(who)) if who.user.is_empty() => Login::Token(who.password),
            (None, None, Some(who)) => Login::Password { user: who.user, password: who.password },
        };
        // What is wrong with them is said at once.
        login.options()?;
        Ok(login)
    }

    fn options(&self) -> Result<ConnectOptions, Error> {
        let options = ConnectOptions::new();
        Ok(match self {
            Login::Nothing => options,
            Login::Password { user, password } => options.user_and_password(user.clone(), password.clone()),
            Login::Token(token) => options.token(token.clone()),
            Login::Nkey(seed) => options.nkey(seed.clone()),
            Login::Credentials(text) => options.credentials(text).map_err(|why: io::Error| {
                Error::misconfigured(format!(
                    "the file of creds=FILE holds no credentials ({why}): make one with `nsc generate creds`"
                ))
            })?,
        })
    }
}

impl Connection {
    fn is_broken(&self) -> bool {
        // Nobody left to tell is the end of the client, too.
        self.health.borrow().broken || self.health.has_changed().is_err()
    }

    /// Ends when the connection does, or when somebody has replaced it because it did not answer.
    pub(super) async fn ended(&self) -> Error {
        let (mut health, mut replaced) = (self.health.clone(), self.replaced.clone());
        // An error is the end of the client, too.
        tokio::select! {
            _ = health.wait_for(|it| it.broken) => {}
            _ = replaced.changed() => {}
        }
        Error::refused("the connection to NATS broke")
    }

    async fn request<T: DeserializeOwned>(&self, subject: &str, headers: HeaderMap, payload: String) -> Result<T, Failure> {
        let mut health = self.health.clone();
        let refusals = health.borrow().refusals_of(subject);
        let mut request = async_nats::Request::new().payload(payload.into());
        if !headers.is_empty() {
            request = request.headers(headers);
        }
        let answer = tokio::select! {
            answer = self.client.send_request(subject.to_owned(), request) => answer,
            // NATS does not answer what it forbids; it says so on the side.
            told = health.wait_for(|it| it.broken || it.refusals_of(subject) > refusals) => {
                let why = told.ok().filter(|it| !it.broken).and_then(|it| it.refusal_of(subject).map(str::to_owned));
                return Err(why.map_or(Failure::Broken, Failure::Forbidden));
            }
        };
        let answer = answer.map_err(|why| match why.kind() {
            RequestErrorKind::TimedOut => Failure::Silence,
            RequestErrorKind::NoResponders => Failure::NoResponders,
            RequestErrorKind::MaxPayloadExceeded => Failure::TooLarge,
            RequestErrorKind::InvalidSubject | RequestErrorKind::Other => Failure::Broken,
        })?;
        let odd = |why: serde_json::Error| Failure::Odd(why.to_string());
        if let Some(told) = serde_json::from_slice::<Refused>(&answer.payload).map_err(odd)?.error {
            return Err(Failure::Told(told));
        }
        serde_json::from_slice(&answer.payload).map_err(odd)
    }
}

impl Health {
    /// Says whether it is news.
    fn hear(&mut self, event: &Event) -> bool {
        match event {
            Event::Disconnected | Event::Closed => {
                self.broken = true;
                true
            }
            Event::ServerError(ServerError::Other(why)) if why.to_lowercase().contains("permissions violation") => {
                if self.forbidden.len() >= FORBIDDEN_MAX {
                    self.forbidden.clear();
                }
                *self.forbidden.entry(why.clone()).or_default() += 1;
                true
            }
            Event::Connected
            | Event::LameDuckMode
            | Event::Draining
            | Event::SlowConsumer(_)
            | Event::ServerError(_)
            | Event::ClientError(_) => false,
        }
    }

    /// Without its inbox a client hears no answers at all.
    fn concerns(why: &str, subject: &str) -> bool {
        why.contains(&format!("\"{subject}\"")) || why.contains("\"_INBOX")
    }

    fn refusals_of(&self, subject: &str) -> u64 {
        self.forbidden.iter().filter(|(why, _)| Self::concerns(why, subject)).map(|(_, times)| times).sum()
    }

    fn refusal_of(&self, subject: &str) -> Option<&str> {
        self.forbidden.keys().map(String::as_str).find(|why| Self::concerns(why, subject))
    }
}

/// Any answer of JetStream, as far as it is an error.
#[derive(Deserialize)]
struct Refused {
    error: Option<Told>,
}

#[derive(Deserialize)]
struct Stored {
    seq: u64,
}

#[derive(Deserialize)]
struct Got {
    message: Message,
}

#[derive(Deserialize)]
struct Message {
    seq: u64,
    #[serde(default)]
    data: String,
    #[serde(default)]
    hdrs: String,
}

/// Headers of what stands where an entry was: of a deletion, or of a server that removed it.
const MARKS: [&str; 2] = ["KV-Operation", "Nats-Marker-Reason"];

impl Message {
    fn record(&self) -> Result<Record, Error> {
        let bytes = |text: &str| BASE64.decode(text).map_err(|why| Error::refused(format!("NATS answered oddly: {why}")));
        let headers = String::from_utf8_lossy(&bytes(&self.hdrs)?).into_owned();
        let is_mark = headers.lines().any(|line| line.split_once(':').is_some_and(|(name, _)| MARKS.contains(&name)));
        if is_mark { Ok(Record::deleted(self.seq)) } else { Record::read(self.seq, &bytes(&self.data)?) }
    }
}
