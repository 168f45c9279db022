//! PostgreSQL: one row for each election, leased on the server's clock. Each call is one statement, so it works through poolers that give a connection away after
//! each transaction.
//!
//! What it promises holds on a server that keeps what it has acknowledged: a failover to a standby that replicates asynchronously may forget the last leadership.
//! `LISTEN` is for hints alone; through a pooler it hears nothing, and then asking now and then serves (`listen=off` says so beforehand).
//!
//! It leaves out several seats: the one row decides.

mod session;
mod sql;

use std::future::poll_fn;
use std::hash::Hasher;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use incumbent_protocol::protocol::{Term, Token};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{MakeTlsConnect, NoTls};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::dial::{Dialer, Hosts, Slot, knocked, tls_complaint};
use super::hints::{Hints, Order as HintOrder, Orders, Topics};
use crate::desk::whole_ms;
use crate::engine::{Bid, Board, Candidate, Claim, Engine, Error, Farewell, Grant, Kind, Leader, Note, Past, Renewal, Wish};
use crate::guarantees::{Exclusive, Guarantees, Lateness, Notice, Order, Tokens, WhoseClock};
use crate::identity::Identity;
use crate::name::Name;
use crate::place::Place;
use session::Session;
pub use sql::schema_sql;

const USUAL_PORT: u16 = 5432;
const USUAL_SCHEMA: &str = "public";

/// A parameter of a statement that is no call of a function, and its type: named, because a statement that is only parsed to learn its types would be another round trip, and a name in a session.
type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// Elections on PostgreSQL.
pub struct Postgres {
    server: Arc<Server>,
    namespace: String,
    hints: Hints,
    listens: Listens,
}

/// Whether the server is asked to tell of changes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Listens {
    /// The first in line is told, and nobody else.
    ByNotify,
    /// Nobody is told: whoever asks first when the seat is free has it.
    Never,
}

/// How to reach it, and the connection.
struct Server {
    dialer: Dialer,
    hosts: Hosts,
    login: Config,
    schema: String,
    statements: sql::Statements,
    slot: Slot<Arc<Session>>,
}

/// The lock of whoever makes tables and functions. Any number that nobody else uses.
const MAKING: i64 = 0x696e_6375_6d62_656e;

/// What comes of making the same thing twice at once, depending on how far the other has come: a table is a type too.
const MADE_BY_ANOTHER: [SqlState; 4] =
    [SqlState::UNIQUE_VIOLATION, SqlState::DUPLICATE_TABLE, SqlState::DUPLICATE_SCHEMA, SqlState::DUPLICATE_OBJECT];

/// What is said by a server on which tables or functions are missing.
const NOT_MADE: [SqlState; 3] = [SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_FUNCTION, SqlState::INVALID_SCHEMA_NAME];

impl Postgres {
    /// Connects to the server in the URL. An error if it will never let us in as things are; not if it cannot be reached now.
    pub(super) async fn open(place: &Place) -> Result<Arc<dyn Engine>, Error> {
        place.knows_only(&["schema", "listen"])?;
        let listens = match place.option("listen") {
            None | Some("on") => Listens::ByNotify,
            Some("off") => Listens::Never,
            Some(other) => return Err(Error::misconfigured(format!("listen={other}: say listen=on or listen=off"))),
        };
        let schema = place.option("schema").unwrap_or(USUAL_SCHEMA).to_owned();
        let dialer = Dialer::of(place)?;
        let mut login = Config::new();
        login.application_name("incumbent");
        login.ssl_mode(if dialer.tls.is_some() { SslMode::Require } else { SslMode::Disable });
        let who = place.credentials()?;
        let user = who.as_ref().map(|it| it.user.as_str()).filter(|it| !it.is_empty()).unwrap_or("postgres");
        login.user(user);
        if let Some(who) = &who {
            login.password(&who.password);
        }
        // As in every URL of PostgreSQL's, the path begins with the database.
        let (database, namespace) = place.path().split_first().map_or((user, [].as_slice()), |(first, rest)| (first, rest));
        login.dbname(if database.is_empty() { user } else { database });
        let server = Arc::new(Server {
            dialer,
            hosts: Hosts::of(place.hosts_or_local(USUAL_PORT)),
            login,
            statements: sql::Statements::of(&schema),
            schema,
            slot: Slot::default(),
        });
        knocked(server.knock()).await?;
        Ok(Arc::new(Postgres { server, namespace: namespace.join("/"), hints: Hints::default(), listens }))
    }

    fn key(&self, election: &Name) -> String {
        if self.namespace.is_empty() { election.to_string() } else { format!("{}/{election}", self.namespace) }
    }

    /// Of the election. A name of PostgreSQL's has at most 63 characters, so this is a digest; two elections that share one only hear more than they need.
    fn channel(&self, key: &str) -> String {
        let mut digest = Fnv::default();
        digest.write(self.server.schema.as_bytes());
        digest.write(&[0]);
        digest.write(key.as_bytes());
        format!("incumbent_{:016x}", digest.finish())
    }

    async fn ask_for(&self, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Error> {
        self.hints.beside(self.server.query(statement, parameters)).await
    }

    /// Calls a function of ours with these arguments.
    async fn call(&self, function: &sql::Function, arguments: &[Option<&str>]) -> Result<Option<String>, Error> {
        if arguments.iter().flatten().any(|it| it.contains('\0')) {
            return Err(Error::refused("PostgreSQL keeps no text with a zero byte in it"));
        }
        self.hints.beside(self.server.call(function, &sql::literals(arguments))).await
    }

    /// Somebody has been seated. The new leader need not wait for all who look on to be woken.
    fn tell_onlookers(&self, channel: String) {
        let server = Arc::clone(&self.server);
        tokio::spawn(async move {
            if let Err(why) = server.query(&server.statements.changed, &[(&channel, Type::TEXT)]).await {
                tracing::debug!(%why, "those who look on will see it later");
            }
        });
    }
}

/// A digest that is the same in every process, which the standard library's are not.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Server {
    fn host(&self) -> &str {
        self.hosts.current()
    }

    /// Says whether it lets us in. Tables and functions are made by the first who wants to change something: whoever looks on may have no right to.
    async fn knock(&self) -> Result<(), Error> {
        self.query_once("SELECT 1", &[]).await.map(drop).map_err(|(why, _)| why)
    }

    async fn make_tables(&self) -> Result<(), Error> {
        let lent = self.slot.borrow(self.connect()).await?;
        let client = &Arc::clone(&lent.connection).client;
        let is_there = "SELECT to_regnamespace(quote_ident($1)) IS NOT NULL";
        let made = async {
            let rows = client.query_typed(is_there, &[(&self.schema, Type::TEXT)]).await?;
            let has_schema = rows.first().is_some_and(|row| row.get::<_, bool>(0));
            let text = if has_schema { sql::tables_sql(&self.schema) } else { schema_sql(&self.schema) };
            // One transaction, and one maker at a time: two that replace a function at once trip over each other.
            client.batch_execute(&format!("SELECT pg_advisory_xact_lock({MAKING});\n{text}")).await
        };
        match made.await {
            Ok(()) => {
                lent.answered();
                Ok(())
            }
            // Somebody made them at the same time, and was quicker.
            Err(why) if why.code().is_some_and(|it| MADE_BY_ANOTHER.contains(it)) => {
                lent.answered();
                Ok(())
            }
            Err(why) if why.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
                lent.answered();
                Err(Error::misconfigured(format!(
                    "the user {:?} may not create the tables and functions ({}): have somebody run once what `incumbent engines --sql='{}'` prints, and grant this user USAGE on the schema, and SELECT, INSERT, UPDATE, DELETE on the tables incumbent_* in it",
                    self.login.get_user().unwrap_or_default(),
                    said(&why),
                    self.schema
                )))
            }
            Err(why) => Err(self.complaint(&why)),
        }
    }

    /// Asks, and makes tables and functions first if they are not there.
    async fn query(&self, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Error> {
        self.once_made(|| self.query_once(statement, parameters)).await
    }

    /// Calls a function, and makes tables and functions first if they are not there.
    async fn call(&self, function: &sql::Function, literals: &str) -> Result<Option<String>, Error> {
        self.once_made(|| self.ask_once(|session| session.call(function, literals))).await
    }

    async fn once_made<T, F>(&self, ask: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, (Error, Option<SqlState>)>>,
    {
        if let Some(answer) = Server::if_made(&ask).await? {
            return Ok(answer);
        }
        self.make_tables().await?;
        ask().await.map_err(|(why, _)| why)
    }

    /// Asks; `None` if tables or functions are not there.
    async fn if_made<T, F>(ask: impl Fn() -> F) -> Result<Option<T>, Error>
    where
        F: Future<Output = Result<T, (Error, Option<SqlState>)>>,
    {
        let mut answer = ask().await;
        // A pooler whose other client hung up in the middle of a message can hand us a connection on which the rest is still awaited: what we said was not understood, and
        // nothing was done. The next call has another connection; and every statement may be said twice.
        if let Err((_, Some(code))) = &answer
            && *code == SqlState::PROTOCOL_VIOLATION
        {
            answer = ask().await;
        }
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err((_, Some(code))) if NOT_MADE.contains(&code) => Ok(None),
            Err((why, _)) => Err(why),
        }
    }

    async fn query_once(&self, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, (Error, Option<SqlState>)> {
        self.ask_once(|session| async move { session.client.query_typed(statement, parameters).await }).await
    }

    async fn ask_once<T, F>(&self, ask: impl FnOnce(Arc<Session>) -> F) -> Result<T, (Error, Option<SqlState>)>
    where
        F: Future<Output = Result<T, tokio_postgres::Error>>,
    {
        let lent = self.slot.borrow(self.connect()).await.map_err(|why| (why, None))?;
        match ask(Arc::clone(&lent.connection)).await {
            Ok(answer) => {
                lent.answered();
                Ok(answer)
            }
            Err(why) => {
                let code = why.code().cloned();
                if code == Some(SqlState::READ_ONLY_SQL_TRANSACTION) {
                    // A standby now: the next call tries the next host.
                    self.hosts.leave();
                } else if code.as_ref().is_some_and(|it| !ends_the_connection(it)) {
                    lent.answered();
                }
                Err((self.complaint(&why), code))
            }
        }
    }

    async fn connect(&self) -> Result<Arc<Session>, Error> {
        let connected = |host| async move {
            let client = self.connect_to(host, Plain).await?;
            match self.refuses_writes(&client).await {
                None => Ok(Arc::new(Session::with(client))),
                Some(why) => Err(why),
            }
        };
        self.hosts.first(connected).await
    }

    /// One of several hosts may be a standby.
    async fn refuses_writes(&self, client: &Client) -> Option<Error> {
        if !self.hosts.are_several() {
            return None;
        }
        match client.query_typed("SELECT current_setting('transaction_read_only') = 'on'", &[]).await {
            Ok(rows) if rows.first().is_some_and(|row| row.get::<_, bool>(0)) => {
                Some(Error::refused(format!("PostgreSQL at {} is a standby: name the primary, too", self.host())))
            }
            Ok(_) => None,
            Err(why) => Some(not_asked(self.complaint(&why))),
        }
    }

    /// Connects and gives what speaks for the connection to `driver`.
    async fn connect_to<D: Driver>(&self, host: &str, driver: D) -> Result<Client, Error> {
        let stream = self.dialer.tcp(host).await?;
        let failed = |why: tokio_postgres::Error| not_asked(self.complaint(&why));
        match &self.dialer.tls {
            None => {
                let (client, connection) = self.login.connect_raw(stream, NoTls).await.map_err(failed)?;
                driver.take(connection);
                Ok(client)
            }
            Some(tls) => {
                let name = tls.name_at(host)?.to_str().into_owned();
                let mut maker = MakeRustlsConnect::new((*tls.config).clone());
                let secure = <MakeRustlsConnect as MakeTlsConnect<TcpStream>>::make_tls_connect(&mut maker, &name)
                    .expect("it only takes the name");
                let (client, connection) = self.login.connect_raw(stream, secure).await.map_err(failed)?;
                driver.take(connection);
                Ok(client)
            }
        }
    }

    /// Hears channels and tells who listens, until the connection ends. A topic is `CHANNEL PAYLOAD`.
    async fn hear(self: Arc<Server>, mut orders: Orders) -> Error {
        let (tell, mut heard) = mpsc::unbounded_channel();
        let client = match self.connect_to(self.host(), Ear(tell)).await {
            Ok(client) => client,
            Err(why) => return why,
        };
        let mut topics = Topics::default();
        loop {
            tokio::select! {
                topic = heard.recv() => match topic {
                    Some(topic) => topics.tell(&topic),
                    None => return Error::refused("the connection for hints was closed"),
                },
                order = orders.recv() => match order {
                    Some(HintOrder::Listen(topic, tell)) => {
                        if !topics.any_of(channel_of(&topic)) && let Err(why) = client.batch_execute(&format!("LISTEN {}", channel_of(&topic))).await {
                            return self.complaint(&why);
                        }
                        topics.enter(&topic);
                        topics.seat(&topic, tell);
                    }
                    Some(HintOrder::Leave(topic)) => {
                        topics.leave(&topic);
                        if !topics.any_of(channel_of(&topic)) && let Err(why) = client.batch_execute(&format!("UNLISTEN {}", channel_of(&topic))).await {
                            return self.complaint(&why);
                        }
                    }
                    None => return Error::refused("nobody listens"),
                },
            }
        }
    }

    /// The one place where the client's errors become ours.
    fn complaint(&self, why: &tokio_postgres::Error) -> Error {
        let host = self.host();
        let Some(code) = why.code() else {
            let text = std::error::Error::source(why).map_or_else(|| why.to_string(), |it| format!("{why}: {it}"));
            return tls_complaint(host, why).unwrap_or_else(|| {
                if text.contains("server does not support TLS") {
                    Error::misconfigured(format!(
                        "PostgreSQL at {host} does not speak TLS: leave out tls=on and the files for it"
                    ))
                } else if text.contains("password missing") {
                    Error::misconfigured(format!("PostgreSQL at {host} wants a password: {GIVE_PASSWORD}"))
                } else {
                    Error::unknown(format!("PostgreSQL at {host}: {text}"))
                }
            });
        };
        let said = said(why);
        match code.code() {
            "28P01" => Error::misconfigured(format!("PostgreSQL at {host} does not let us in ({said}): {GIVE_PASSWORD}")),
            "28000" => Error::misconfigured(format!(
                "PostgreSQL at {host} does not let us in ({said}): correct the user, say tls=on if it wants encryption, or add a line to its pg_hba.conf"
            )),
            "3D000" => Error::misconfigured(format!(
                "PostgreSQL at {host} has no such database ({said}): write it as postgres://{host}/DATABASE"
            )),
            "42501" => Error::misconfigured(format!(
                "PostgreSQL at {host} forbids it ({said}): grant the user SELECT, INSERT, UPDATE, DELETE on the tables incumbent_* in schema {:?}, EXECUTE on the functions, and USAGE on it",
                self.schema
            )),
            "23514" => Error::misconfigured(format!("the election has used up its tokens ({said}): use another name")),
            "25006" => Error::refused(format!("PostgreSQL at {host} is a standby: name the primary, or all of them")),
            // A table of that name with other columns, or none that we know how to make.
            code if code.starts_with("42") => Error::misconfigured(format!(
                "the tables incumbent_* in schema {:?} at {host} are not those of this version ({said}): say schema=NAME to use others",
                self.schema
            )),
            // Said while the statement may have been at its end.
            code if ends_the_connection(&SqlState::from_code(code)) => Error::unknown(format!("PostgreSQL at {host}: {said}")),
            _ => Error::refused(format!("PostgreSQL at {host}: {said}")),
        }
    }
}

const GIVE_PASSWORD: &str = Place::GIVE_PASSWORD;

/// After these the connection is of no use: it was broken (08), or its server is ending it (57).
fn ends_the_connection(code: &SqlState) -> bool {
    code.code().starts_with("08") || code.code().starts_with("57")
}

/// Nothing has been asked yet: whatever goes wrong, the request did not happen.
fn not_asked(why: Error) -> Error {
    if why.kind() == Kind::Unknown { Error::refused(why.to_string()) } else { why }
}

fn said(why: &tokio_postgres::Error) -> String {
    why.as_db_error().map_or_else(|| why.to_string(), |it| it.message().to_owned())
}

fn channel_of(topic: &str) -> &str {
    topic.split(' ').next().unwrap_or(topic)
}

/// Speaks for a connection, with TLS or without.
trait Driver {
    fn take<S, T>(self, connection: Connection<S, T>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static;
}

/// One that only answers: what goes wrong is told to whoever has asked.
struct Plain;

/// One that also tells what it hears.
struct Ear(mpsc::UnboundedSender<String>);

impl Driver for Plain {
    fn take<S, T>(self, connection: Connection<S, T>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        tokio::spawn(connection);
    }
}

impl Driver for Ear {
    fn take<S, T>(self, mut connection: Connection<S, T>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                if let AsyncMessage::Notification(notice) = message
                    && self.0.send(format!("{} {}", notice.channel(), notice.payload())).is_err()
                {
                    return;
                }
            }
        });
    }
}

/// What it promises.
pub(super) fn promises() -> Guarantees {
    Guarantees {
        engine: "postgres",
        exclusive: Exclusive::UnlessItFailsOver,
        tokens: Tokens::UnlessItForgets,
        token_source: "a column, raised by the statement that seats",
        clock: WhoseClock::Engine,
        notice: Notice::Pushed,
        order: Order::Line,
        seats_max: 1,
        lists_candidates: true,
        keeps_history: true,
        ttl_min: Duration::from_millis(100),
        ttl_max: Duration::from_secs(86_400),
        late: Lateness::NONE,
        caveats: vec![
            "A failover to a standby that replicates asynchronously can put two leaders in office and repeat tokens; synchronous replication prevents it.",
            "It counts by the server's wall clock: whoever sets it forward, or fails over to a server whose clock is ahead, frees seats too early.",
            "Through a pooler in transaction mode notifications do not arrive: a free seat is found within a quarter of a ttl.",
            "A transaction of somebody else's that holds the election's row locked keeps renewals waiting.",
        ],
    }
}

#[async_trait]
impl Engine for Postgres {
    fn guarantees(&self) -> Guarantees {
        match self.listens {
            Listens::ByNotify => promises(),
            Listens::Never => Guarantees { notice: Notice::Polled, order: Order::Race, ..promises() },
        }
    }

    async fn claim(&self, election: &Name, bid: &Bid) -> Result<Claim, Error> {
        let key = self.key(election);
        let channel = self.channel(&key);
        let (priority, ttl) = (bid.priority.to_string(), whole_ms(bid.ttl).to_string());
        let seen = bid.seen.map_or(-1, signed).to_string();
        let by_turns = match self.listens {
            Listens::ByNotify => "true",
            Listens::Never => "false",
        };
        let arguments =
            [&key, bid.identity.as_str(), bid.identity.name(), &priority, &bid.value, &ttl, &channel, &seen, by_turns];
        let told = self.call(&self.server.statements.claim, &arguments.map(Some)).await?.ok_or_else(|| odd_answer(&"nothing"))?;
        match serde_json::from_str(&told).map_err(|why| odd_answer(&why))? {
            Claimed::Granted(token) => {
                self.tell_onlookers(channel);
                Ok(Claim::Granted(Grant::of(token_of(token)?)))
            }
            Claimed::Occupied(Some(it)) => {
                let leader = Leader {
                    identity: it.identity,
                    token: token_of(it.token)?,
                    value: it.value,
                    priority: it.priority,
                    since: Some(std::time::UNIX_EPOCH + Duration::from_millis(it.since_ms)),
                    heeds_wishes: true,
                };
                Ok(Claim::Occupied { leader: Some(leader), free_in: Some(Duration::from_millis(it.free_in_ms)) })
            }
            Claimed::Occupied(None) => Ok(Claim::Occupied { leader: None, free_in: None }),
        }
    }

    async fn renew(&self, election: &Name, bid: &Bid, token: Token) -> Result<Renewal, Error> {
        let (key, number, ttl) = (self.key(election), token.get().to_string(), whole_ms(bid.ttl).to_string());
        let arguments = [&key, bid.identity.as_str(), &number, &ttl].map(Some);
        match self.call(&self.server.statements.renew, &arguments).await?.as_deref() {
            None => Ok(Renewal::Gone),
            Some("") => Ok(Renewal::Kept { grant: Grant::of(token), wish: None }),
            Some(wish) => Ok(Renewal::Kept { grant: Grant::of(token), wish: Some(read(wish)?) }),
        }
    }

    async fn release(&self, election: &Name, bid: &Bid, token: Token, farewell: &Farewell) -> Result<(), Error> {
        let key = self.key(election);
        let (channel, number, reason) = (self.channel(&key), token.get().to_string(), farewell.reason.to_string());
        let identity = bid.identity.as_str();
        let arguments = [Some(&*key), Some(identity), Some(&*number), Some(&*reason), farewell.to.as_deref(), Some(&*channel)];
        self.call(&self.server.statements.release, &arguments).await.map(drop)
    }

    async fn look(&self, election: &Name) -> Result<Board, Error> {
        let key = self.key(election);
        let parameters: [Parameter<'_>; 1] = [(&key, Type::TEXT)];
        let looked =
            self.hints.beside(Server::if_made(|| self.server.query_once(&self.server.statements.look, &parameters))).await?;
        // Where there are no tables nobody leads, and whoever only looks makes none.
        let Some(rows) = looked else { return Ok(Board::default()) };
        let row = only(rows)?;
        let waiting: Vec<Waiting> = read(&column::<String>(&row, "candidates")?)?;
        let past: Vec<Past> = read(&column::<String>(&row, "past")?)?;
        let candidates = waiting.into_iter().map(|it| Candidate { identity: it.identity, priority: it.priority }).collect();
        let notes: Vec<Note> = read(&column::<String>(&row, "notes")?)?;
        Ok(Board { leaders: leader(&row)?.into_iter().collect(), candidates, past, notes })
    }

    async fn withdraw(&self, election: &Name, bid: &Bid) -> Result<(), Error> {
        let key = self.key(election);
        let (channel, identity) = (self.channel(&key), bid.identity.as_str());
        let parameters: [Parameter<'_>; 3] = [(&key, Type::TEXT), (&identity, Type::TEXT), (&channel, Type::TEXT)];
        self.ask_for(&self.server.statements.withdraw, &parameters).await.map(drop)
    }

    async fn depart(&self, _election: &Name, _bid: &Bid) -> Result<(), Error> {
        // Whoever is seated is taken out of the line by the same step.
        Ok(())
    }

    async fn proclaim(&self, election: &Name, _bid: &Bid, token: Token, value: &str) -> Result<(), Error> {
        let key = self.key(election);
        let (channel, number) = (self.channel(&key), signed(token));
        let parameters: [Parameter<'_>; 4] =
            [(&key, Type::TEXT), (&number, Type::INT8), (&value, Type::TEXT), (&channel, Type::TEXT)];
        in_office(&self.ask_for(&self.server.statements.proclaim, &parameters).await?, token)
    }

    async fn ask(&self, election: &Name, wish: &Wish) -> Result<(), Error> {
        let key = self.key(election);
        let (channel, number) = (self.channel(&key), signed(wish.token));
        let text = serde_json::to_string(wish).expect("a wish is plain");
        let parameters: [Parameter<'_>; 4] =
            [(&key, Type::TEXT), (&number, Type::INT8), (&text, Type::TEXT), (&channel, Type::TEXT)];
        in_office(&self.ask_for(&self.server.statements.ask, &parameters).await?, wish.token)
    }

    async fn raise(&self, election: &Name, above: Token) -> Result<(), Error> {
        let (key, above) = (self.key(election), signed(above));
        self.ask_for(&self.server.statements.raise, &[(&key, Type::TEXT), (&above, Type::INT8)]).await.map(drop)
    }

    async fn annotate(&self, election: &Name, token: Token, text: &str) -> Result<(), Error> {
        let key = self.key(election);
        let (channel, number) = (self.channel(&key), signed(token));
        let parameters: [Parameter<'_>; 4] =
            [(&key, Type::TEXT), (&number, Type::INT8), (&text, Type::TEXT), (&channel, Type::TEXT)];
        self.ask_for(&self.server.statements.annotate, &parameters).await.map(drop)
    }

    fn watch(&self, election: &Name, bid: Option<&Bid>) -> BoxStream<'static, Result<(), Error>> {
        if self.listens == Listens::Never {
            return stream::pending().boxed();
        }
        let key = self.key(election);
        let channel = self.channel(&key);
        let serve = |orders| Arc::clone(&self.server).hear(orders);
        match bid {
            Some(bid) => {
                let (server, identity) = (Arc::clone(&self.server), bid.identity.clone());
                self.hints.listen(format!("{channel} {}", identity.as_str()), serve, async move {
                    let identity = identity.as_str();
                    let parameters: [Parameter<'_>; 2] = [(&key, Type::TEXT), (&identity, Type::TEXT)];
                    let row = only(server.query(&server.statements.missed, &parameters).await?)?;
                    Ok(row.try_get::<_, Option<bool>>(0).ok().flatten().unwrap_or(true))
                })
            }
            None => self.hints.listen(format!("{channel} *"), serve, async { Ok(true) }),
        }
    }

    async fn close(&self) {
        self.hints.hang_up();
    }
}

/// What a claim comes to, as the function tells it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Claimed {
    Granted(i64),
    Occupied(Option<Seated>),
}

/// Who leads, as the function tells of it.
#[derive(Deserialize)]
struct Seated {
    identity: Identity,
    token: i64,
    value: String,
    priority: i32,
    since_ms: u64,
    free_in_ms: u64,
}

/// One in line, as the statement tells of it.
#[derive(Deserialize)]
struct Waiting {
    identity: Identity,
    priority: i32,
}

fn leader(row: &Row) -> Result<Option<Leader>, Error> {
    let Some(holder) = column::<Option<String>>(row, "holder")? else { return Ok(None) };
    let since = u64::try_from(column::<i64>(row, "since_ms")?).ok().map(|it| std::time::UNIX_EPOCH + Duration::from_millis(it));
    Ok(Some(Leader {
        identity: Identity::stored(holder),
        token: token_of(column(row, "token")?)?,
        value: column(row, "value")?,
        priority: column(row, "priority")?,
        since,
        heeds_wishes: true,
    }))
}

fn odd_answer(why: &dyn std::fmt::Display) -> Error {
    Error::misconfigured(format!("the tables are not those of this version ({why}): say schema=NAME to use others"))
}

fn only(rows: Vec<Row>) -> Result<Row, Error> {
    rows.into_iter().next().ok_or_else(|| Error::unknown("PostgreSQL answered with no row where one always comes"))
}

fn column<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, name: &str) -> Result<T, Error> {
    row.try_get(name).map_err(|why| odd_answer(&why))
}

fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|why| {
        Error::misconfigured(format!("what the tables hold was not written by incumbent ({why}): say schema=NAME to use others"))
    })
}

fn in_office(rows: &[Row], token: Token) -> Result<(), Error> {
    if rows.is_empty() {
        Err(Error::refused(format!("the leadership with token {token} is no longer in office")))
    } else {
        Ok(())
    }
}

fn signed(token: Token) -> i64 {
    i64::try_from(token.get()).expect("a token has room for a sign")
}

fn token_of(number: i64) -> Result<Token, Error> {
    let token = u64::try_from(number).ok().and_then(|it| Token::new(u16::try_from(it >> 48).ok()?, Term(it & Term::MAX.0)));
    token.ok_or_else(|| {
        Error::misconfigured(format!("{number} in the table is no token of incumbent: say schema=NAME to use others"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_there_and_back() {
        let token = Token::new(Token::INCARNATION_MAX, Term::MAX).expect("the greatest");
        assert_eq!(token_of(signed(token)).expect("just made"), token);
        assert!(token_of(-1).is_err());
    }

    #[test]
    fn the_digest_is_the_known_one() {
        let mut digest = Fnv::default();
        digest.write(b"foobar");
        assert_eq!(digest.finish(), 0x8594_4171_f739_67e8);
    }
}
