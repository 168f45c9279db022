//! Redis and Valkey: every call is one run of a script (`redis/election.lua`), so that reading and writing are one step on the server's clock.
//!
//! What it promises holds on one server that keeps what it has acknowledged. Replication is asynchronous: a failover may bring up a replica that has not heard
//! of the last leadership, and then two lead, and tokens repeat. [`Guarantees`] says so, and nothing on the client's side can mend it.
//!
//! It leaves out Redis Cluster and Sentinel: several hosts in the URL are tried in turn until one takes writes. One that lost its place in line stands at its end.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use incumbent_protocol::protocol::{Term, Token};
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, ErrorKind, FromRedisValue, RedisConnectionInfo, RedisError, Script, ServerErrorKind};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::dial::{Dialer, Hosts, Line, Slot, knocked, tls_complaint};
use super::hints::{Hints, Order as HintOrder, Orders, Topics};
use crate::desk::{incarnation_of, whole_ms};
use crate::engine::{Bid, Board, Candidate, Claim, Engine, Error, Farewell, Grant, Kind, Leader, Note, Past, Renewal, Wish};
use crate::guarantees::{Exclusive, Guarantees, Lateness, Notice, Order, Tokens, WhoseClock};
use crate::identity::Identity;
use crate::name::Name;
use crate::place::Place;

const USUAL_PORT: u16 = 6379;

/// All elections begin so in the server's key space.
const PREFIX: &str = "incumbent:";

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("redis/election.lua")));

/// Elections on Redis.
pub struct Redis {
    server: Arc<Server>,
    namespace: String,
    hints: Hints,
}

/// How to reach it, and the connection.
struct Server {
    dialer: Dialer,
    hosts: Hosts,
    login: RedisConnectionInfo,
    slot: Slot<MultiplexedConnection>,
}

impl Redis {
    /// Connects to the server in the URL. An error if it will never let us in as things are; not if it cannot be reached now.
    pub(super) async fn open(place: &Place) -> Result<Arc<dyn Engine>, Error> {
        place.knows_only(&["db"])?;
        let mut login = RedisConnectionInfo::default().set_lib_name("incumbent", env!("CARGO_PKG_VERSION"));
        if let Some(database) = place.option("db") {
            let number = database.parse().ok().filter(|it| *it >= 0);
            let number = number
                .ok_or_else(|| Error::misconfigured(format!("db={database}: say the number of a database, db=0 for example")))?;
            login = login.set_db(number);
        }
        if let Some(who) = place.credentials()? {
            if !who.user.is_empty() {
                login = login.set_username(who.user);
            }
            login = login.set_password(who.password);
        }
        let server = Arc::new(Server {
            dialer: Dialer::of(place)?,
            hosts: Hosts::of(place.hosts_or_local(USUAL_PORT)),
            login,
            slot: Slot::default(),
        });
        knocked(server.knock()).await?;
        Ok(Arc::new(Redis { server, namespace: place.namespace(), hints: Hints::default() }))
    }

    /// All keys of an election have this in braces, so that a proxy before a cluster finds them on one server.
    fn key(&self, election: &Name) -> String {
        let slash = if self.namespace.is_empty() { "" } else { "/" };
        format!("{PREFIX}{{{}{slash}{election}}}", self.namespace)
    }

    async fn run<T: FromRedisValue>(&self, election: &Name, action: &str, words: &[&str]) -> Result<T, Error> {
        self.hints.beside(self.server.run(&self.key(election), action, words)).await
    }
}

impl Server {
    fn host(&self) -> &str {
        self.hosts.current()
    }

    /// Says whether it lets us in, and warns if it is set up to throw tokens away.
    async fn knock(&self) -> Result<(), Error> {
        let lent = self.slot.borrow(self.connect()).await?;
        let mut connection = lent.connection.clone();
        let answer = redis::cmd("INFO").arg("memory").query_async::<String>(&mut connection).await;
        lent.answered();
        match answer {
            Ok(memory) => {
                let value = |key: &str| memory.lines().find_map(|it| it.strip_prefix(key)).map(str::trim);
                let policy = value("maxmemory_policy:").unwrap_or_default();
                if policy.starts_with("allkeys") && value("maxmemory:") != Some("0") {
                    tracing::warn!(
                        server = self.host(),
                        policy,
                        "Redis may throw away tokens when memory is short: set maxmemory-policy to noeviction or volatile-lru"
                    );
                }
                Ok(())
            }
            // Who may not ask that may still elect.
            Err(why) if why.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) => Ok(()),
            Err(why) => Err(self.complaint(&why)),
        }
    }

    /// A line to the first host that takes us, beginning with the one that took writes last.
    async fn dial<C, F: Future<Output = Result<C, RedisError>>>(&self, greet: impl Fn(Box<dyn Line>) -> F) -> Result<C, Error> {
        let greet = &greet;
        let greeted = |host| async move {
            // Nothing has been asked yet: whatever goes wrong, the request did not happen.
            greet(self.dialer.line(host).await?).await.map_err(|why| match self.complaint(&why) {
                unknown if unknown.kind() == Kind::Unknown => {
                    // A server that waits for TLS hangs up on whoever begins without.
                    let hint = if self.dialer.tls.is_none() { ": if it wants TLS, say tls=on, or ca=FILE" } else { "" };
                    Error::refused(format!("{unknown}{hint}"))
                }
                known => known,
            })
        };
        self.hosts.first(greeted).await
    }

    async fn connect(&self) -> Result<MultiplexedConnection, Error> {
        // Who calls decides how long to wait.
        let patient = || AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let (connection, driver) = self.dial(|line| MultiplexedConnection::new_with_config(&self.login, line, patient())).await?;
        tokio::spawn(driver);
        Ok(connection)
    }

    async fn run<T: FromRedisValue>(&self, key: &str, action: &str, words: &[&str]) -> Result<T, Error> {
        let lent = self.slot.borrow(self.connect()).await?;
        let mut connection = lent.connection.clone();
        let mut script = SCRIPT.prepare_invoke();
        for suffix in ["", ":held", ":line", ":alive", ":papers", ":past", ":notes"] {
            script.key(format!("{key}{suffix}"));
        }
        script.arg(action).arg(format!("{key}:"));
        for word in words {
            script.arg(word);
        }
        let answer = script.invoke_async::<T>(&mut connection).await;
        match answer {
            Ok(answer) => {
                lent.answered();
                Ok(answer)
            }
            Err(why) => {
                let complaint = self.complaint(&why);
                if why.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly) {
                    // A replica now: the next call tries the next host.
                    self.hosts.leave();
                } else if !why.is_io_error() {
                    lent.answered();
                }
                Err(complaint)
            }
        }
    }

    /// Hears channels and tells who listens, until the connection ends.
    async fn hear(self: Arc<Server>, mut orders: Orders) -> Error {
        let (mut sink, mut messages) = match self.dial(|line| PubSub::new(&self.login, line)).await {
            Ok(connection) => connection.split(),
            Err(why) => return why,
        };
        let mut topics = Topics::default();
        loop {
            tokio::select! {
                message = messages.next() => match message {
                    Some(message) => topics.tell(message.get_channel_name()),
                    None => return Error::refused("the connection for hints was closed"),
                },
                order = orders.recv() => match order {
                    Some(HintOrder::Listen(channel, tell)) => {
                        if topics.enter(&channel) && let Err(why) = sink.subscribe(&channel).await {
                            return self.complaint(&why);
                        }
                        topics.seat(&channel, tell);
                    }
                    Some(HintOrder::Leave(channel)) => {
                        if topics.leave(&channel) && let Err(why) = sink.unsubscribe(&channel).await {
                            return self.complaint(&why);
                        }
                    }
                    None => return Error::refused("nobody listens"),
                },
            }
        }
    }

    /// The one place where the client's errors become ours.
    fn complaint(&self, why: &RedisError) -> Error {
        let host = self.host();
        match (why.kind(), why.code()) {
            (ErrorKind::AuthenticationFailed, _) | (_, Some("WRONGPASS" | "NOAUTH")) => {
                Error::misconfigured(format!("Redis at {host} does not let us in ({}): {}", detail(why), Place::GIVE_PASSWORD))
            }
            // Of what a script may not do it tells in words alone.
            (kind, _) if kind == ErrorKind::Server(ServerErrorKind::NoPerm) || is_forbidden_in_script(why) => {
                Error::misconfigured(format!(
                    "Redis at {host} forbids it ({}): allow the user ~{PREFIX}* &{PREFIX}* +@scripting +@write +@read +@pubsub +time",
                    detail(why)
                ))
            }
            (ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask | ServerErrorKind::CrossSlot), _) => {
                Error::misconfigured(format!(
                    "{host} is a node of a Redis Cluster, which is not supported: name a server or a proxy"
                ))
            }
            (_, Some("WRONGTYPE")) => Error::misconfigured(format!(
                "Redis at {host} has something else under the election's key ({}): choose another name or namespace",
                detail(why)
            )),
            (ErrorKind::Server(ServerErrorKind::ReadOnly), _) => {
                Error::refused(format!("Redis at {host} is a replica: name the primary, or all of them"))
            }
            // Said before the script has begun.
            (ErrorKind::Server(kind), _) if kind != ServerErrorKind::ResponseError => {
                Error::refused(format!("Redis at {host} cannot now: {why}"))
            }
            (_, Some("OOM" | "MISCONF" | "NOREPLICAS" | "BUSY")) => Error::refused(format!("Redis at {host} cannot now: {why}")),
            (_, Some("ERR")) if detail(why).contains("DB index") => {
                Error::misconfigured(format!("Redis at {host} has no such database: say db=0"))
            }
            (_, _) => tls_complaint(host, why).unwrap_or_else(|| Error::unknown(format!("Redis at {host}: {why}"))),
        }
    }
}

/// Whether a script was run by a user who lacks a right to what it does. It ends there, and nobody is told of a seat by it.
fn is_forbidden_in_script(why: &RedisError) -> bool {
    let said = detail(why);
    said.contains("user executing the script") || said.contains("NOPERM")
}

/// What the server said; what the client makes of it if it did not keep that.
fn detail(why: &RedisError) -> String {
    why.detail().map_or_else(|| why.to_string(), str::to_owned)
}

/// What elections on Redis promise, wherever they are.
pub(super) fn promises() -> Guarantees {
    Guarantees {
        engine: "redis",
        exclusive: Exclusive::UnlessItFailsOver,
        tokens: Tokens::UnlessItForgets,
        token_source: "a counter, raised by the script that seats",
        clock: WhoseClock::Engine,
        notice: Notice::Pushed,
        order: Order::Line,
        seats_max: u32::MAX,
        lists_candidates: true,
        keeps_history: true,
        ttl_min: Duration::from_millis(100),
        ttl_max: Duration::from_secs(86_400),
        late: Lateness::NONE,
        caveats: vec![
            "A failover to a replica can put two leaders in office and repeat tokens: replication is asynchronous, and no client can mend that.",
            "With appendfsync other than always, a crash of the server's machine forgets the last leaderships.",
            "It counts by the server's wall clock: whoever sets it forward frees seats too early.",
            "Set maxmemory-policy to noeviction or volatile-*: any other throws tokens away when memory is short.",
        ],
    }
}

#[async_trait]
impl Engine for Redis {
    fn guarantees(&self) -> Guarantees {
        promises()
    }

    async fn claim(&self, election: &Name, bid: &Bid) -> Result<Claim, Error> {
        let seen = bid.seen.map(token_text).unwrap_or_default();
        let (ttl, priority, seats) = (micros(bid.ttl), bid.priority.to_string(), bid.seats.to_string());
        let papers = papers_open(bid, &priority);
        let words = [bid.identity.as_str(), bid.identity.name(), &ttl, &priority, &seats, &seen, &papers];
        let answer: Vec<String> = self.run(election, "claim", &words).await?;
        match answer.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["granted", token] => Ok(Claim::Granted(Grant::of(token_of(token)?))),
            ["occupied", ends, token, seat] => Ok(Claim::Occupied {
                leader: Some(read::<Seated>(seat)?.leader(token_of(token)?)),
                free_in: ends.parse().ok().map(Duration::from_micros),
            }),
            ["occupied"] => Ok(Claim::Occupied { leader: None, free_in: None }),
            ["spent"] => Err(spent()),
            odd => Err(unexpected(odd)),
        }
    }

    async fn renew(&self, election: &Name, bid: &Bid, token: Token) -> Result<Renewal, Error> {
        let words = [bid.identity.as_str(), &token_text(token), &micros(bid.ttl)];
        let answer: Vec<String> = self.run(election, "renew", &words).await?;
        match answer.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["kept", ""] => Ok(Renewal::Kept { grant: Grant::of(token), wish: None }),
            ["kept", wish] => Ok(Renewal::Kept { grant: Grant::of(token), wish: Some(read(wish)?) }),
            ["gone"] => Ok(Renewal::Gone),
            odd => Err(unexpected(odd)),
        }
    }

    async fn release(&self, election: &Name, _bid: &Bid, token: Token, farewell: &Farewell) -> Result<(), Error> {
        let words = [&token_text(token), &farewell.reason.to_string(), farewell.to.as_deref().unwrap_or_default()];
        self.run::<Vec<String>>(election, "release", &words).await.map(drop)
    }

    async fn look(&self, election: &Name) -> Result<Board, Error> {
        let [held, line, past, notes]: [Vec<String>; 4] = self.run(election, "look", &[]).await?;
        let mut leaders = Vec::new();
        for pair in held.chunks_exact(2) {
            leaders.push(read::<Seated>(&pair[1])?.leader(token_of(&pair[0])?));
        }
        leaders.sort_by_key(|it| it.token);
        let candidate = |pair: &[String]| {
            let papers: Papers = read(&pair[1])?;
            Ok(Candidate { identity: Identity::stored(&pair[0]), priority: papers.priority.parse().unwrap_or(0) })
        };
        let note = |pair: &[String]| Ok(Note { token: token_of(&pair[0])?, text: pair[1].clone() });
        let mut notes = notes.chunks_exact(2).map(note).collect::<Result<Vec<_>, Error>>()?;
        notes.sort_by_key(|it| std::cmp::Reverse(it.token));
        let mut past = past.iter().map(|it| read::<Ended>(it)?.past()).collect::<Result<Vec<_>, Error>>()?;
        // With several seats the last to end may have begun first.
        past.sort_by_key(|it| std::cmp::Reverse(it.token));
        Ok(Board { leaders, candidates: line.chunks_exact(2).map(candidate).collect::<Result<_, Error>>()?, past, notes })
    }

    async fn withdraw(&self, election: &Name, bid: &Bid) -> Result<(), Error> {
        self.run::<Vec<String>>(election, "withdraw", &[bid.identity.as_str()]).await.map(drop)
    }

    async fn depart(&self, _election: &Name, _bid: &Bid) -> Result<(), Error> {
        // Whoever is seated is taken out of the line by the same step.
        Ok(())
    }

    async fn proclaim(&self, election: &Name, _bid: &Bid, token: Token, value: &str) -> Result<(), Error> {
        let answer: Vec<String> = self.run(election, "proclaim", &[&token_text(token), value]).await?;
        in_office(&answer, token)
    }

    async fn ask(&self, election: &Name, wish: &Wish) -> Result<(), Error> {
        let text = serde_json::to_string(wish).expect("a wish is plain");
        let answer: Vec<String> = self.run(election, "ask", &[&token_text(wish.token), &text]).await?;
        in_office(&answer, wish.token)
    }

    async fn raise(&self, election: &Name, above: Token) -> Result<(), Error> {
        let answer: Vec<String> = self.run(election, "raise", &[&token_text(above)]).await?;
        if answer == ["spent"] { Err(spent()) } else { Ok(()) }
    }

    async fn annotate(&self, election: &Name, token: Token, text: &str) -> Result<(), Error> {
        self.run::<Vec<String>>(election, "annotate", &[&token_text(token), text]).await.map(drop)
    }

    fn watch(&self, election: &Name, bid: Option<&Bid>) -> BoxStream<'static, Result<(), Error>> {
        let key = self.key(election);
        let serve = |orders| Arc::clone(&self.server).hear(orders);
        match bid {
            Some(bid) => {
                let (server, identity) = (Arc::clone(&self.server), bid.identity.clone());
                let channel = format!("{key}:for:{}", identity.as_str());
                self.hints.listen(channel, serve, async move {
                    Ok(server.run::<Vec<String>>(&key, "missed", &[identity.as_str()]).await? == ["yes"])
                })
            }
            None => self.hints.listen(format!("{key}:changes"), serve, async { Ok(true) }),
        }
    }

    async fn close(&self) {
        self.hints.hang_up();
    }
}

/// One in office, as the script writes it.
#[derive(Deserialize)]
struct Seated {
    identity: Identity,
    value: String,
    priority: String,
    since: String,
}

impl Seated {
    fn leader(self, token: Token) -> Leader {
        let since = self.since.parse().ok().map(|it| std::time::UNIX_EPOCH + Duration::from_millis(it));
        let priority = self.priority.parse().unwrap_or(0);
        Leader { identity: self.identity, token, value: self.value, priority, since, heeds_wishes: true }
    }
}

/// What stands on a seat, as far as the bidder knows it: the script adds the rest, and the brace. Made here, because that costs the server more than us.
fn papers_open(bid: &Bid, priority: &str) -> String {
    let text = |it: &str| serde_json::to_string(it).expect("a text is plain");
    let (identity, value, priority) = (text(bid.identity.as_str()), text(&bid.value), text(priority));
    format!(r#"{{"identity":{identity},"value":{value},"priority":{priority}"#)
}

/// What a candidate shows, as the script writes it.
#[derive(Deserialize)]
struct Papers {
    priority: String,
}

/// A leadership that has ended, as the script writes it.
#[derive(Deserialize)]
struct Ended {
    identity: Identity,
    token: String,
    since: String,
    until: String,
    reason: String,
}

impl Ended {
    fn past(self) -> Result<Past, Error> {
        let (since_ms, until_ms) = (self.since.parse().unwrap_or(0), self.until.parse().unwrap_or(0));
        Ok(Past { identity: self.identity, token: token_of(&self.token)?, since_ms, until_ms, reason: self.reason })
    }
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|why| {
        Error::misconfigured(format!(
            "what Redis keeps for this election was not written by incumbent ({why}): choose another name or namespace, or remove it"
        ))
    })
}

fn unexpected(answer: &[&str]) -> Error {
    Error::unknown(format!("Redis answered {answer:?}, which the script never says"))
}

fn spent() -> Error {
    Error::misconfigured("the election has used up its tokens: use another name")
}

fn in_office(answer: &[String], token: Token) -> Result<(), Error> {
    if answer == ["gone"] {
        Err(Error::refused(format!("the leadership with token {token} is no longer in office")))
    } else {
        Ok(())
    }
}

/// As the script knows tokens: a number of Lua would not hold all digits of the whole.
fn token_text(token: Token) -> String {
    format!("{}.{}", incarnation_of(token), token.get() & Term::MAX.0)
}

fn token_of(text: &str) -> Result<Token, Error> {
    let parts = text.split_once('.').and_then(|(incarnation, term)| Some((incarnation.parse().ok()?, term.parse().ok()?)));
    parts.and_then(|(incarnation, term)| Token::new(incarnation, Term(term))).ok_or_else(|| {
        Error::misconfigured(format!("{text:?} in Redis is no token of incumbent: choose another name or namespace"))
    })
}

/// Rounded up: what is promised must not become shorter on the way.
fn micros(span: Duration) -> String {
    (whole_ms(span) * 1000).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_there_and_back() {
        let token = Token::new(Token::INCARNATION_MAX, Term::MAX).expect("the greatest");
        assert_eq!(token_of(&token_text(token)).expect("just written"), token);
        for odd in ["", "1", "1.", "32768.1", "1.281474976710656", "-1.2"] {
            assert!(token_of(odd).is_err(), "{odd}");
        }
    }
}
