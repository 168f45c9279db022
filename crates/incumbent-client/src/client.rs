//! The client: asks any node of the service, and is told whether it has happened.
//!
//! ```no_run
//! use incumbent_client::client::{Client, Options};
//! use incumbent_store::command::{Campaign, Command, OpenSession};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect(["127.0.0.1:7272", "127.0.0.1:7273"], Options::default()).await?;
//! let session = client.open_session(OpenSession { ttl_ms: 3_000, ends_with_connection: true, ..OpenSession::default() }).await?;
//! let bid = Campaign { session: session.id(), election: "billing".into(), identity: "web-1_4711".into(), ..Campaign::default() };
//! let done = client.submit(Command::Campaign(bid)).await?;
//! # Ok(()) }
//! ```

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use incumbent_store::command::{Command, Introduce, OpenSession, Request};
use incumbent_store::query::{Answer, Query, Question};
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::Reply;
use incumbent_store::watch::Interest;
use prost::Message;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::administration::{Administer, Administration, Attended};
use crate::connection::Connection;
use crate::dial::{Dial, Security, Tcp};
use crate::docket::lead::{SILENT_SHUNNED, UNREACHABLE_SHUNNED};
use crate::docket::{Delivered, Docket, Patience};
use crate::failure::{Ended, Failure};
use crate::frame::REQUEST_MAX;
use crate::message::{Asked, Consistency, Hello, Inquiry, Objection, Sessions, ToServer, Told, VERSION, VERSION_OLDEST};
use crate::numbering::Number;
use crate::roster::Roster;
use crate::session::{Keeper, Lease, Session, keep_alive};
use crate::watch::{self, Watch};

/// Between two rounds over all addresses, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// A connection that lasts so many times as long as it may be silent was good.
const SILENCES_GOOD: u32 = 8;
/// Nodes that fall silent one after the other are given at most so many times as long to answer.
const INDULGENCE_MAX: u32 = 32;
/// An address is given at most so long to answer.
const DIAL_MAX: Duration = Duration::from_secs(5);

/// What operators want may take so long, at least: a node that is added is looked for first.
const ADMINISTRATION: Duration = Duration::from_secs(30);

/// A clock: the time since some beginning. It is read when something is sent.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// How a client behaves.
#[derive(Clone)]
pub struct Options {
    /// The cluster that must answer; empty for whichever answers first, and that one from then on.
    pub cluster: String,
    /// What shows who we are; empty for nobody.
    pub token: String,
    /// What we call ourselves, for people.
    pub name: String,
    /// Whether nodes may tell of further ones; else those alone are asked whose addresses were given.
    pub learns_members: bool,
    /// What protects connections.
    pub security: Security,
    /// How long a request may take, all repetitions included.
    pub timeout: Duration,
    /// How long an address may take to answer, in the first round. In each further round it may take twice as long.
    pub dial: Duration,
    /// While an answer is awaited, a node that says nothing for so long is asked whether it is there.
    pub ping_busy: Duration,
    /// And so often in any case. A node cuts off whoever it does not hear of for some times as long.
    pub ping_idle: Duration,
    /// It must answer in so long, or in three times the time that the welcome took; else another node is tried. A node that is cut off is left after this and `ping_busy`: in less than
    /// 200 ms (C31).
    pub silence: Duration,
    /// The clock whose time is told when something was sent. By default the time since the machine was started, with what it slept.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            cluster: String::new(),
            token: String::new(),
            name: String::new(),
            learns_members: true,
            security: Security::LoopbackOnly,
            timeout: Duration::from_secs(5),
            dial: Duration::from_millis(250),
            ping_busy: Duration::from_millis(30),
            ping_idle: Duration::from_secs(3),
            silence: Duration::from_millis(90),
            clock: Arc::new(boot_time),
        }
    }
}

fn boot_time() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    // Neither is ever negative, and there are less than 10⁹ nanoseconds.
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Something that was done.
#[derive(Clone, PartialEq, Debug)]
pub struct Done {
    /// What came of it.
    pub reply: Reply,
    /// The revision after it.
    pub revision: u64,
    /// When it was sent, on the client's clock: no later than when it was done. If it was sent again, then when it was sent first, unless it is one that is carried out every time.
    pub sent: Duration,
}

/// An answer to a question.
#[derive(Clone, PartialEq, Debug)]
pub struct Shown {
    /// The answer.
    pub answer: Answer,
    /// The revision that it shows.
    pub revision: u64,
}

/// Whether there is a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line {
    /// There is.
    Up {
        /// To this address.
        address: String,
        /// To this node.
        node: u64,
    },
    /// There is none, and another is being made.
    Down {
        /// Why, for people.
        why: String,
    },
}

/// A client. Its clones share one connection. When the last one is dropped the connection is closed, and sessions that wished so end with it; [`close`](Client::close) leaves them.
#[derive(Clone)]
pub struct Client {
    core: Arc<Core>,
}

pub(crate) struct Core {
    pub(crate) docket: Arc<Docket>,
    pub(crate) keeper: Arc<Keeper>,
    timeout: Duration,
    driver: JoinHandle<()>,
    keeping: JoinHandle<()>,
}

impl Drop for Core {
    fn drop(&mut self) {
        self.driver.abort();
        self.keeping.abort();
        self.docket.close();
    }
}

impl Client {
    /// Connects to one of the nodes: to the one that leads, if that is known.
    ///
    /// # Errors
    /// If none of them answers in time, or those that do turn us away.
    pub async fn connect(addresses: impl IntoIterator<Item = impl Into<String>>, options: Options) -> Result<Client, Ended> {
        let tcp = Tcp::new(options.security.clone());
        Client::connect_by(Arc::new(tcp), addresses, options).await
    }

    /// The same, over something else than TCP.
    ///
    /// # Errors
    /// If no node answers in time, or those that do turn us away.
    pub async fn connect_by(
        dial: Arc<dyn Dial>,
        addresses: impl IntoIterator<Item = impl Into<String>>,
        options: Options,
    ) -> Result<Client, Ended> {
        let mut driver = Driver::new(dial, addresses.into_iter().map(Into::into), options);
        let (address, connection) = driver.establish(Some(Instant::now() + driver.options.timeout)).await?;
        driver.docket.connected(&address, connection.welcome.node);
        Ok(Client::drive(driver, Some((address, connection))))
    }

    /// The same without waiting for a node: what is asked before one answers waits for it, as it does when a connection is lost.
    pub fn start(addresses: impl IntoIterator<Item = impl Into<String>>, options: Options) -> Client {
        let tcp = Tcp::new(options.security.clone());
        Client::drive(Driver::new(Arc::new(tcp), addresses.into_iter().map(Into::into), options), None)
    }

    fn drive(driver: Driver, connection: Option<(String, Connection)>) -> Client {
        let (docket, timeout) = (Arc::clone(&driver.docket), driver.options.timeout);
        let keeper = Arc::new(Keeper::default());
        let keeping = tokio::spawn(keep_alive(Arc::clone(&docket), Arc::clone(&keeper)));
        let driver = tokio::spawn(driver.drive(connection));
        Client { core: Arc::new(Core { docket, keeper, timeout, driver, keeping }) }
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// Carries out a command, once. Commands that are under way together may be carried out in any order. One whose future is dropped may have been, or may be yet.
    ///
    /// # Errors
    /// See [`Failure`]: it says first whether it may have happened.
    pub async fn submit(&self, command: Command) -> Result<Done, Failure> {
        submit(&self.core.docket, command, self.core.timeout).await
    }

    /// The same, in this time.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn submit_within(&self, command: Command, within: Duration) -> Result<Done, Failure> {
        submit(&self.core.docket, command, within).await
    }

    /// Asks. The answer is never older than what this client has seen before, whichever node it came from.
    ///
    /// # Errors
    /// [`Failure::Refused`] or [`Failure::NotNow`].
    pub async fn ask(&self, query: Query, consistency: Consistency) -> Result<Shown, Failure> {
        let docket = &self.core.docket;
        let question = Some(Question { query: Some(query) });
        let inquiry = Inquiry { question, consistency: consistency.into(), seen: docket.seen() };
        let delivered = call(docket, Asked::Ask(inquiry), None, Instant::now() + self.core.timeout).await;
        // A question changes nothing, so there is nothing that may have happened.
        let delivered = delivered.map_err(|failure| match failure {
            Failure::Unknown { why } | Failure::NotNow { why } => Failure::NotNow { why },
            Failure::Refused(refusal) => Failure::Refused(refusal),
        })?;
        let Told::Answered(answered) = delivered.told else { return Err(refusal_in(delivered.told)) };
        docket.see(answered.revision);
        let answer = answered.answer.ok_or_else(|| unreadable("an answer that this version does not know"))?;
        Ok(Shown { answer, revision: answered.revision })
    }

    /// Watches from a revision on; 0 for what happens once a node knows of it. To miss nothing: ask how things stand, and watch from the revision after the one that the answer shows.
    pub fn watch(&self, interest: Interest, from: u64) -> Watch {
        let (sender, receiver) = mpsc::channel(watch::QUEUE_MAX);
        let id = self.core.docket.watch(interest, from, sender);
        Watch::new(Arc::clone(&self.core.docket), id, receiver)
    }

    /// Opens a session and keeps it alive. One that wishes to end with its connection is bound to this client's, and to each that follows it.
    ///
    /// # Errors
    /// See [`Failure`]. A session that may have been opened ends by its deadline.
    pub async fn open_session(&self, wanted: OpenSession) -> Result<Session, Failure> {
        let ttl = Duration::from_millis(wanted.ttl_ms);
        let (lease, sent) = self.open(wanted).await?;
        Ok(Session::begin(self, lease, ttl, sent))
    }

    /// Opens a session that is kept alive by what is asked in its name alone: campaigns, renewals.
    ///
    /// # Errors
    /// As [`Client::open_session`].
    pub async fn open_lease(&self, wanted: OpenSession) -> Result<Lease, Failure> {
        Ok(self.open(wanted).await?.0)
    }

    async fn open(&self, wanted: OpenSession) -> Result<(Lease, Duration), Failure> {
        let bound = wanted.ends_with_connection;
        let done = self.submit(Command::OpenSession(wanted)).await?;
        let Reply::Opened(id) = done.reply else { return Err(unreadable("no session in the reply")) };
        // Before it is bound: dropped, it is not bound to any further connection, whoever gives up waiting for that and when.
        let lease = Lease::begin(self, id);
        if bound {
            self.bind(id).await?;
        }
        Ok((lease, done.sent))
    }

    async fn bind(&self, session: u64) -> Result<(), Failure> {
        let asked = Asked::Bind(Sessions { sessions: vec![session], again: false });
        let delivered = call(&self.core.docket, asked, None, Instant::now() + self.core.timeout).await?;
        let Told::Bound(_) = delivered.told else { return Err(refusal_in(delivered.told)) };
        Ok(())
    }

    /// Has something done that operators want. What is only for the node that leads goes there. It may be asked again, whatever came of it.
    ///
    /// # Errors
    /// See [`Failure`]. What a node has looked at and refuses is [`Attended::Refused`], with what to do.
    pub async fn administer(&self, administration: Administration) -> Result<Attended, Failure> {
        let asked = Asked::Administer(Administer { administration: Some(administration) });
        let deadline = Instant::now() + self.core.timeout.max(ADMINISTRATION);
        let delivered = call(&self.core.docket, asked, None, deadline).await?;
        let Told::Administered(administered) = delivered.told else {
            return Err(in_doubt(refusal_in(delivered.told), delivered.doubt));
        };
        administered.attended.ok_or_else(|| unreadable("something that this version does not know"))
    }

    /// Whether there is a connection, from now on. A session that wished to end with its connection may have ended when it is down: whoever leads by one stops, or makes sure.
    pub fn line(&self) -> tokio::sync::watch::Receiver<Line> {
        self.core.docket.line()
    }

    /// Says goodbye: the connection is closed, and no session ends with it. What is under way is told at once what is known of it.
    pub async fn close(self) {
        self.core.docket.close();
        self.core.docket.left().await;
    }
}

fn unreadable(what: &str) -> Failure {
    Failure::Unknown { why: format!("the node's answer makes no sense: {what}") }
}

/// What was told in place of what was asked for.
fn refusal_in(told: Told) -> Failure {
    if let Told::Refused(refusal) = told {
        Failure::Refused(Refusal::from_wire(refusal))
    } else {
        unreadable("it answers another question")
    }
}

/// Carries out a command, once.
pub(crate) async fn submit(docket: &Docket, command: Command, within: Duration) -> Result<Done, Failure> {
    let deadline = Instant::now().checked_add(within).unwrap_or_else(far_away);
    loop {
        let number = if may_be_repeated(&command) { None } else { Some(number(docket, deadline).await?) };
        let (client, sequence) = number.map_or((0, 0), |it| (it.client, it.sequence));
        let request = Request::numbered(client, sequence, command.clone());
        let Delivered { told, sent, doubt } = call(docket, Asked::Submit(request), number, deadline).await?;
        let Told::Outcome(outcome) = told else { return Err(in_doubt(refusal_in(told), doubt)) };
        let revision = outcome.revision;
        docket.see(revision);
        match outcome.result() {
            Ok(reply) => return Ok(Done { reply, revision, sent }),
            Err(Refusal::Forgotten) => {
                docket.forgotten(client);
                if doubt {
                    return Err(Failure::Unknown { why: Refusal::Forgotten.to_string() });
                }
                // No other copy of it was carried out, and this one was not: so it has not happened. We were silent for too long, and get another number.
            }
            // A node says these without the store, of this copy alone: it does not know of the others.
            Err(refusal @ (Refusal::Denied(_) | Refusal::Limit { .. })) => {
                return Err(in_doubt(Failure::Refused(refusal), doubt));
            }
            Err(refusal) => return Err(Failure::Refused(refusal)),
        }
    }
}

/// What is refused to one copy may have been done by another.
fn in_doubt(failure: Failure, doubt: bool) -> Failure {
    match failure {
        Failure::Refused(refusal) if doubt => Failure::Unknown { why: format!("asked once more, it was refused: {refusal}") },
        known @ (Failure::Refused(_) | Failure::NotNow { .. } | Failure::Unknown { .. }) => known,
    }
}

fn far_away() -> Instant {
    Instant::now() + Duration::from_secs(365 * 24 * 3600)
}

/// Whether a command may as well be carried out twice: it needs no number, and no place in the store's memory.
fn may_be_repeated(command: &Command) -> bool {
    match command {
        Command::Introduce(_) | Command::KeepAlive(_) | Command::Renew(_) | Command::Expire(_) | Command::Bind(_) => true,
        Command::OpenSession(_)
        | Command::EndSession(_)
        | Command::Campaign(_)
        | Command::Proclaim(_)
        | Command::Resign(_)
        | Command::Withdraw(_)
        | Command::Ask(_)
        | Command::Evict(_)
        | Command::Annotate(_)
        | Command::Complete(_)
        | Command::Raise(_)
        | Command::Forget(_)
        | Command::Put(_)
        | Command::Delete(_)
        | Command::Transact(_)
        | Command::Compact(_) => false,
    }
}

/// A number for a request. Introduces us to the store if there is none to be had.
async fn number(docket: &Docket, deadline: Instant) -> Result<Number, Failure> {
    loop {
        let more = docket.numbers.notified();
        if let Some(number) = docket.number() {
            // There may be more for others who wait.
            docket.numbers.notify_one();
            return Ok(number);
        }
        if docket.begin_introduction() {
            let mut introduction = Introduction { docket, client: None };
            let asked = Asked::Submit(Request::of(Command::Introduce(Introduce {})));
            let told = call(docket, asked, None, deadline).await.map_err(not_begun)?.told;
            let Told::Outcome(outcome) = told else { return Err(not_begun(refusal_in(told))) };
            let reply = outcome.result().map_err(Failure::Refused)?;
            let Reply::Introduced(client) = reply else { return Err(not_begun(unreadable("no number in an introduction"))) };
            introduction.client = Some(client);
        } else if timeout_at(deadline, more).await.is_err() {
            return Err(Failure::NotNow { why: "too many requests are under way, or the store does not know us yet".to_owned() });
        }
    }
}

/// What failed was the introduction: the request itself was never sent.
fn not_begun(failure: Failure) -> Failure {
    match failure {
        Failure::Unknown { why } | Failure::NotNow { why } => Failure::NotNow { why },
        Failure::Refused(refusal) => Failure::Refused(refusal),
    }
}

/// Whoever introduces us says what came of it, also when it is dropped half-way.
struct Introduction<'a> {
    docket: &'a Docket,
    client: Option<u64>,
}

impl Drop for Introduction<'_> {
    fn drop(&mut self) {
        self.docket.end_introduction(self.client);
    }
}

/// Asks, and waits for the answer.
async fn call(docket: &Docket, asked: Asked, number: Option<Number>, deadline: Instant) -> Result<Delivered, Failure> {
    let mut call = Call { docket, id: 0, number };
    let message = ToServer::new(0, asked);
    if message.encoded_len() + 32 > REQUEST_MAX {
        return Err(Failure::Refused(Refusal::Limit { what: "bytes of a request".to_owned(), max: REQUEST_MAX as u64 }));
    }
    let Ok(Ok(_place)) = timeout_at(deadline, docket.places.acquire()).await else {
        return Err(Failure::NotNow { why: "too many requests are under way".to_owned() });
    };
    let asked = message.asked.unwrap_or_else(|| unreachable!("put in above"));
    let (id, answer) = docket.begin(asked, number);
    // From here on the number is the request's.
    (call.id, call.number) = (id, None);
    match timeout_at(deadline, answer).await {
        Ok(Ok(delivered)) => Ok(delivered),
        Ok(Err(_)) | Err(_) => Err(docket.give_up(id).unwrap_or_else(|| unreadable("answered too late"))),
    }
}

/// A request that somebody waits for; one that is dropped is given up.
struct Call<'a> {
    docket: &'a Docket,
    id: u64,
    number: Option<Number>,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.docket.settle(number);
        }
        // Nothing happens if it was answered.
        self.docket.give_up(self.id);
    }
}

/// Makes one connection after the other.
struct Driver {
    docket: Arc<Docket>,
    dial: Arc<dyn Dial>,
    roster: Roster,
    options: Options,
}

impl Driver {
    fn new(dial: Arc<dyn Dial>, addresses: impl IntoIterator<Item = String>, options: Options) -> Driver {
        let docket = Arc::new(Docket::new(Arc::clone(&options.clock)));
        Driver { docket, dial, roster: Roster::new(addresses), options }
    }

    async fn drive(mut self, mut connection: Option<(String, Connection)>) {
        let Options { ping_busy, ping_idle, silence, .. } = self.options;
        let docket = Arc::clone(&self.docket);
        let mut indulgence = 1;
        loop {
            let (address, conversation) = match connection.take() {
                Some(connected) => connected,
                None => tokio::select! {
                    next = self.establish(None) => match next {
                        Ok((address, conversation)) => {
                            docket.connected(&address, conversation.welcome.node);
                            (address, conversation)
                        }
                        // Only a deadline or an empty list ends it, and there is no deadline.
                        Err(_) => break,
                    },
                    () = docket.closed() => break,
                },
            };
            let began = Instant::now();
            let patience = Patience { ping_busy, ping_idle, silence: silence * indulgence };
            let ended = conversation.converse(&docket, patience).await;
            // One node after the other falls silent: it is us who are slow, or what we send is much. Each is given more time than the one before.
            let silent = matches!(ended, Ended::Silent);
            let again = silent && began.elapsed() < patience.silence * SILENCES_GOOD;
            indulgence = if again { (indulgence * 2).min(INDULGENCE_MAX) } else { 1 };
            tracing::debug!(address, %ended, "connection ended");
            docket.disconnected(&ended);
            if silent {
                docket.shun(&address, &ended.to_string(), SILENT_SHUNNED);
            }
            self.roster.put_last(&address);
            let leader = docket.leader();
            if !leader.is_empty() && leader != address && self.may_go_to(&leader) {
                self.roster.prefer(&leader);
            }
            if matches!(ended, Ended::Done) {
                break;
            }
        }
        docket.leave();
    }

    /// Connects to a node, however long it takes; or until then.
    async fn establish(&mut self, until: Option<Instant>) -> Result<(String, Connection), Ended> {
        if self.roster.is_empty() {
            let none = std::io::Error::new(std::io::ErrorKind::InvalidInput, "no addresses were given");
            return Err(Ended::Unreachable(none));
        }
        let (mut pause, mut patience) = (PAUSE_MIN, self.options.dial);
        let mut failed: Option<Ended> = None;
        loop {
            for address in self.roster.round() {
                match self.attempt(&address, patience, until).await {
                    Ok(connection) => return Ok(self.prefer_leader(address, connection, patience, until).await),
                    Err(ended) => {
                        tracing::debug!(address, %ended, "not connected");
                        self.docket.shun(&address, &ended.to_string(), UNREACHABLE_SHUNNED);
                        // What somebody must change is told before what may pass, and anything before that there was no time for it.
                        let says_less =
                            failed.as_ref().is_some_and(is_lasting) || (failed.is_some() && matches!(ended, Ended::Handshake));
                        if !says_less {
                            failed = Some(ended);
                        }
                    }
                }
            }
            if let Some(until) = until
                && (Instant::now() >= until || failed.as_ref().is_some_and(is_lasting))
            {
                return Err(failed.unwrap_or(Ended::Handshake));
            }
            sleep(pause + jitter(pause)).await;
            pause = (pause * 2).min(PAUSE_MAX);
            patience = (patience * 2).min(DIAL_MAX);
        }
    }

    async fn attempt(&self, address: &str, patience: Duration, until: Option<Instant>) -> Result<Connection, Ended> {
        let patience = until.map_or(patience, |it| patience.min(it.saturating_duration_since(Instant::now())));
        let Options { cluster, token, name, .. } = self.options.clone();
        let hello = Hello { version: VERSION, oldest: VERSION_OLDEST, cluster, token, name };
        let opening = async { Connection::open(self.dial.dial(address).await?, hello).await };
        timeout(patience, opening).await.unwrap_or(Err(Ended::Handshake))
    }

    /// Nodes may call themselves by names that lead nowhere from here, or past what somebody has put in between.
    fn may_go_to(&self, address: &str) -> bool {
        self.options.learns_members || self.roster.contains(address)
    }

    /// A node that leads answers without asking another. But any will do.
    async fn prefer_leader(
        &mut self,
        address: String,
        connection: Connection,
        patience: Duration,
        until: Option<Instant>,
    ) -> (String, Connection) {
        let welcome = &connection.welcome;
        // From now on no other cluster will do: its revisions would mean something else.
        self.options.cluster.clone_from(&welcome.cluster);
        if self.options.learns_members {
            self.roster.learn(welcome.members.iter().cloned());
        }
        let leader = if welcome.leads { address.clone() } else { welcome.leader.clone() };
        self.docket.lead_by(&leader);
        if !leader.is_empty() && leader != address && !self.docket.shuns(&leader) {
            let why = match self.may_go_to(&leader) {
                true => match self.attempt(&leader, patience, until).await {
                    Ok(better) => return (leader, better),
                    Err(ended) => ended.to_string(),
                },
                false => "no node that was named".to_owned(),
            };
            self.docket.shun(&leader, &why, UNREACHABLE_SHUNNED);
        }
        (address, connection)
    }
}

/// Whether it stays so until somebody does something about it.
fn is_lasting(ended: &Ended) -> bool {
    match ended {
        Ended::TurnedAway { objection, .. } => match objection {
            Objection::Version | Objection::Cluster | Objection::Token => true,
            Objection::Other | Objection::Busy | Objection::Unreadable | Objection::Late => false,
        },
        Ended::Insecure(_) | Ended::Untrusted(_) => true,
        Ended::Unreachable(_)
        | Ended::Handshake
        | Ended::BadFrame(_)
        | Ended::Nonsense(_)
        | Ended::Closed(_)
        | Ended::Silent
        | Ended::Rerouted
        | Ended::Done => false,
    }
}

/// Up to as long again, by chance: so that those who lost the same node do not come to the next all at once.
fn jitter(pause: Duration) -> Duration {
    let chance = RandomState::new().hash_one(0u8);
    Duration::from_nanos(chance % u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX).max(1))
}
