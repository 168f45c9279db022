//! What the clients do: some read, write and swap registers, some stand for elections and write under the fence, some watch. Each has a client, and chance, of its own.

use std::sync::Arc;
use std::time::Duration;

use incumbent_client::client::{Client, Done};
use incumbent_client::failure::Failure;
use incumbent_client::message::Consistency;
use incumbent_client::session::Lease;
use incumbent_client::watch::{Cease, Watch};
use incumbent_protocol::chance::Chance;
use incumbent_store::command::{Campaign, Command, OpenSession, Renew, Resign};
use incumbent_store::event::{Change, Event};
use incumbent_store::keys::item::{Item, Span};
use incumbent_store::keys::transaction::{Act, ActAnswer, Against, Comparison, Guard, Put, Transacted, Transaction};
use incumbent_store::query::{Answer, Query, Range};
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::Reply;
use incumbent_store::watch::{Interest, Topic};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::history::{Batch, Belief, Entry, History, Outcome, Told, Wanted, now};
use crate::linear::Value;

/// Few, so that many want the same.
pub(crate) const REGISTERS: u64 = 4;
pub(crate) const ELECTIONS: u64 = 2;

/// A leadership that nobody renews lasts so long. Short beside the faults, so that some end by it.
const TTL: Duration = Duration::from_millis(1000);

/// What is written to see whether anything is served.
pub(crate) const PROBE: &str = "probe";

/// Where registers are. One watches these alone.
const REGISTERS_UNDER: &str = "register/";

/// The last key that is written: then whoever watches has been told everything.
pub(crate) const LAST: &str = "register/last";

/// One who begins to watch again and again has so much patience, and hears of so many batches at most, before it begins elsewhere.
const HEARS_FOR: Duration = Duration::from_millis(500);
const HEARS_MAX: u64 = 30;

/// One who does things until it is told to stop.
pub(crate) struct Worker {
    number: u32,
    pub(crate) client: Client,
    chance: Chance,
    history: Arc<History>,
    /// Says true when it is over.
    over: watch::Receiver<bool>,
    /// So many values it has written.
    written: u64,
}

/// Two who use registers by one connection, and two who stand for elections by another: each connection is many handshakes after each fault, so two share one.
pub(crate) fn spawn_pair(
    pair: u32,
    seed: u64,
    connect: impl Fn(&str) -> Client,
    history: &Arc<History>,
    over: &watch::Receiver<bool>,
    into: &mut JoinSet<()>,
) {
    let (registers, elections) = (connect("registers"), connect("elections"));
    let worker = |number, client: &Client| Worker::new(number, seed, client, history, over);
    let [one, two, three, four] = numbers(pair);
    for (number, candidate) in [(one, three), (two, four)] {
        into.spawn(worker(number, &registers).use_registers());
        into.spawn(worker(candidate, &elections).stand_for_elections());
    }
}

/// The numbers of those four.
pub(crate) fn numbers(pair: u32) -> [u32; 4] {
    [1, 2, 3, 4].map(|it| 4 * pair + it)
}

impl Worker {
    pub(crate) fn new(number: u32, seed: u64, client: &Client, history: &Arc<History>, over: &watch::Receiver<bool>) -> Worker {
        Worker {
            number,
            client: client.clone(),
            chance: Chance::new(seed.wrapping_mul(1000).wrapping_add(u64::from(number))),
            history: Arc::clone(history),
            over: over.clone(),
            written: 0,
        }
    }

    /// A value that nobody else writes.
    fn next_value(&mut self) -> u64 {
        self.written += 1;
        self.last_value()
    }

    fn last_value(&self) -> u64 {
        u64::from(self.number) * 1_000_000 + self.written
    }

    fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Until it is over, or at most so long.
    async fn rest(&mut self, low_ms: u64, high_ms: u64) {
        let span = self.chance.between(Duration::from_millis(low_ms), Duration::from_millis(high_ms));
        // Either it is over, or the time is: both are looked at by whoever goes on.
        let _ = timeout(span, self.over.wait_for(|over| *over)).await;
    }

    /// Before it is asked: its process may be killed before anything is known.
    fn begin(&self, key: &str, called: u64, wanted: &Wanted) {
        let outcome = Outcome::Unknown { why: "its process was killed".to_owned() };
        let (client, key, wanted) = (self.number, key.into(), wanted.clone());
        self.history.begin(Entry { client, key, called, returned: called, wanted, outcome });
    }

    fn enter(&self, key: &str, called: u64, wanted: Wanted, outcome: Outcome) {
        let entry = Entry { client: self.number, key: key.into(), called, returned: now(), wanted, outcome };
        self.history.enter(entry);
    }

    /// Reads, writes and swaps registers.
    pub(crate) async fn use_registers(mut self) {
        let mut seen: Vec<Value> = vec![None; usize::try_from(REGISTERS).unwrap()];
        while !self.is_over() {
            let register = usize::try_from(self.chance.below(REGISTERS)).unwrap();
            let key = format!("{REGISTERS_UNDER}{register}");
            seen[register] = match self.chance.below(10) {
                0..4 => self.read(&key).await,
                4..6 => self.write(&key).await,
                _ => self.swap(&key, seen[register]).await,
            };
            self.rest(5, 60).await;
        }
    }

    /// What it sees, if anything.
    pub(crate) async fn read(&mut self, key: &str) -> Value {
        let called = now();
        let range = Range { span: Some(Span::key(key.to_owned())), ..Range::default() };
        let (seen, outcome) = match self.client.ask(Query::Range(range), Consistency::Linearizable).await {
            Ok(shown) => {
                let Answer::Items(items) = shown.answer else { panic!("asked for keys, told {:?}", shown.answer) };
                let seen = items.items.first().map(value_of);
                (seen, Outcome::Done { held: true, seen, revision: shown.revision })
            }
            Err(failure) => (None, outcome_of(failure)),
        };
        self.enter(key, called, Wanted::Read, outcome);
        seen
    }

    async fn write(&mut self, key: &str) -> Value {
        self.tries_to_write(key).await;
        Some(self.last_value())
    }

    /// Whether it was done, as far as is known.
    pub(crate) async fn tries_to_write(&mut self, key: &str) -> bool {
        let (value, called) = (self.next_value(), now());
        self.begin(key, called, &Wanted::Write { value });
        let outcome = match self.client.submit(Command::Put(put(key, value))).await {
            Ok(done) => Outcome::Done { held: true, seen: None, revision: done.revision },
            Err(failure) => outcome_of(failure),
        };
        let is_done = matches!(outcome, Outcome::Done { .. });
        self.enter(key, called, Wanted::Write { value }, outcome);
        is_done
    }

    /// A request of this length goes through the log, and changes nothing.
    pub(crate) async fn writes_in_vain(&self, bytes: usize) {
        let ballast = Put { key: "ballast".into(), value: vec![7; bytes].into(), ..Put::default() };
        // There is one from the beginning on.
        let guards = vec![Guard::absent(PROBE.to_owned())];
        let transaction = Transaction { guards, then: vec![Act::Put(ballast).into()], otherwise: Vec::new() };
        // Whatever comes of it: the log has grown or has not.
        let _ = self.transact(transaction).await;
    }

    /// Whether this client is answered, with what the node has.
    pub(crate) async fn asks(&self, client: &Client) -> bool {
        let range = Range { span: Some(Span::key(PROBE.to_owned())), ..Range::default() };
        client.ask(Query::Range(range), Consistency::Local).await.is_ok()
    }

    async fn swap(&mut self, key: &str, from: Value) -> Value {
        let (to, called) = (self.next_value(), now());
        self.begin(key, called, &Wanted::Swap { from, to });
        let guard = match from {
            Some(value) => Guard::key(key.to_owned(), Comparison::Equal, Against::Value(value.to_string().into_bytes().into())),
            None => Guard::absent(key.to_owned()),
        };
        let look = Act::Read(Range { span: Some(Span::key(key.to_owned())), ..Range::default() });
        let transaction =
            Transaction { guards: vec![guard], then: vec![Act::Put(put(key, to)).into()], otherwise: vec![look.into()] };
        let (seen, outcome) = match self.transact(transaction).await {
            Ok((transacted, revision)) if transacted.held => (Some(to), Outcome::Done { held: true, seen: from, revision }),
            Ok((transacted, revision)) => {
                let seen = seen_in(&transacted);
                (seen, Outcome::Done { held: false, seen, revision })
            }
            Err(failure) => (from, outcome_of(failure)),
        };
        self.enter(key, called, Wanted::Swap { from, to }, outcome);
        seen
    }

    async fn transact(&self, transaction: Transaction) -> Result<(Transacted, u64), Failure> {
        let done = self.client.submit(Command::Transact(transaction)).await?;
        let Reply::Transacted(transacted) = done.reply else { panic!("a transaction was answered by {:?}", done.reply) };
        Ok((transacted, done.revision))
    }

    /// Stands for elections, leads for a while, and gives it back or lets it lapse.
    pub(crate) async fn stand_for_elections(mut self) {
        let mut stood = 0;
        while !self.is_over() {
            self.rest(1, 50).await;
            stood += 1;
            let identity = format!("c{}-{stood}", self.number);
            let wanted = OpenSession { ttl_ms: TTL.as_millis() as u64, owner: identity.clone(), ..OpenSession::default() };
            // Nothing keeps it alive but what is asked here, so what is believed is what was answered.
            if let Ok(lease) = self.client.open_lease(wanted).await {
                let election = format!("election-{}", self.chance.below(ELECTIONS));
                self.stand(&election, &identity, &lease).await;
            }
        }
    }

    /// Waits for its turn, and leads.
    async fn stand(&mut self, election: &str, identity: &str, lease: &Lease) {
        let bid = Campaign { session: lease.id(), election: election.into(), identity: identity.into(), ..Campaign::default() };
        while !self.is_over() {
            match self.client.submit(Command::Campaign(bid.clone())).await {
                Ok(Done { reply: Reply::Granted(granted), sent, .. }) => {
                    let mut office = Office::begin(election, identity, granted.token, &self.history);
                    office.renewed(sent, granted.ttl_ms);
                    return self.lead(office).await;
                }
                Ok(Done { reply: Reply::InLine(_), .. }) => {}
                Ok(Done { reply, .. }) => panic!("a campaign was answered by {reply:?}"),
                Err(Failure::Refused(Refusal::SessionGone(_))) => return,
                Err(Failure::Refused(refusal)) => panic!("a campaign was refused: {refusal}"),
                Err(Failure::NotNow { .. } | Failure::Unknown { .. }) => {}
            }
            self.rest(50, 200).await;
        }
    }

    /// Renews and writes under the fence. It goes on writing when it does not believe any more: the fence must hold.
    async fn lead(&mut self, mut office: Office) {
        let key = format!("fenced/{}", office.belief.election);
        for _ in 0..self.chance.below(10) {
            let renewal = Renew { election: office.belief.election.clone(), token: office.belief.token };
            match self.client.submit(Command::Renew(renewal)).await {
                Ok(Done { reply: Reply::Renewed(renewed), sent, .. }) if renewed.in_office => {
                    office.renewed(sent, renewed.ttl_ms)
                }
                Ok(Done { reply: Reply::Renewed(_), .. }) => {
                    // What it had counted on stays on record: if that is not over, it was robbed, and what it writes now says so.
                    self.write_fenced(&key, &office).await;
                    return;
                }
                Ok(Done { reply, .. }) => panic!("a renewal was answered by {reply:?}"),
                Err(_) => {}
            }
            self.write_fenced(&key, &office).await;
            self.rest(10, 200).await;
            if self.is_over() {
                break;
            }
        }
        if self.chance.below(3) > 0 {
            office.ends();
            let (election, token) = (office.belief.election.clone(), office.belief.token);
            // Whatever comes of it: nobody believes in it any more.
            let _ = self.client.submit(Command::Resign(Resign { election, token, ..Resign::default() })).await;
        }
    }

    async fn write_fenced(&mut self, key: &str, office: &Office) {
        let (value, called) = (self.next_value(), now());
        let (election, token) = (office.belief.election.clone(), office.belief.token);
        self.begin(key, called, &Wanted::Fenced { election: election.clone(), token, value });
        let guards = vec![Guard::holds(election.clone(), token)];
        let transaction = Transaction { guards, then: vec![Act::Put(put(key, value)).into()], otherwise: Vec::new() };
        let outcome = match self.transact(transaction).await {
            Ok((transacted, revision)) => Outcome::Done { held: transacted.held, seen: None, revision },
            Err(failure) => outcome_of(failure),
        };
        self.enter(key, called, Wanted::Fenced { election, token, value }, outcome);
    }
}

/// A leadership, as its holder sees it: believed until its ttl is over, counted from when the last renewal was sent. What was believed goes on record.
struct Office {
    belief: Belief,
    history: Arc<History>,
}

impl Office {
    /// Nothing is believed before it is said when the grant was asked for.
    fn begin(election: &str, identity: &str, token: u64, history: &Arc<History>) -> Office {
        let belief = Belief { election: election.into(), identity: identity.into(), token, from: 0, until: 0 };
        Office { belief, history: Arc::clone(history) }
    }

    fn renewed(&mut self, sent: Duration, ttl_ms: u64) {
        let until = u64::try_from((sent + Duration::from_millis(ttl_ms)).as_nanos()).unwrap();
        let now = now();
        if now > self.belief.until {
            // It had lapsed in between, or begins now.
            self.record();
            (self.belief.from, self.belief.until) = (now, until);
        }
        self.belief.until = self.belief.until.max(until);
        self.history.believes(self.belief.clone());
    }

    /// It is not believed any more.
    fn ends(&mut self) {
        self.belief.until = self.belief.until.min(now());
        self.history.believes(self.belief.clone());
    }

    fn record(&self) {
        if self.belief.until > self.belief.from {
            self.history.believed(self.belief.clone());
        }
    }
}

impl Drop for Office {
    fn drop(&mut self) {
        self.record();
    }
}

/// Hears of everything from the beginning until the last key is written.
pub(crate) async fn watch_everything(client: Client, history: Arc<History>) {
    let mut from = 1;
    loop {
        let mut watching = Watching::begin(&client, None, from, &history);
        loop {
            match watching.hear().await {
                Ok(told) => {
                    let is_last = told.iter().any(is_last);
                    told.into_iter().for_each(|it| history.told(it));
                    if is_last {
                        return;
                    }
                }
                Err(oldest) => {
                    history.told(Told::Lagged { oldest });
                    from = oldest;
                    break;
                }
            }
        }
    }
}

/// Hears of the registers, from the beginning until the last key is written.
pub(crate) async fn watch_registers(client: Client, history: Arc<History>) {
    let mut from = 1;
    loop {
        let mut watching = Watching::begin(&client, Some(REGISTERS_UNDER), from, &history);
        loop {
            match watching.hear().await {
                Ok(told) if told.iter().any(is_last) => return,
                Ok(_) => {}
                Err(oldest) => {
                    from = oldest;
                    break;
                }
            }
        }
    }
}

/// Begins to watch, again and again, from some revision of the past, until it is told of the last key.
pub(crate) async fn watch_from_anywhere(client: Client, seed: u64, history: Arc<History>) {
    let mut chance = Chance::new(seed);
    loop {
        let from = 1 + chance.below(history.last_told() + 1);
        let mut watching = Watching::begin(&client, None, from, &history);
        for _ in 0..=chance.below(HEARS_MAX) {
            match timeout(HEARS_FOR, watching.hear()).await {
                Ok(Ok(told)) if told.iter().any(is_last) => return,
                Ok(Ok(_)) => {}
                // Nothing happens, or what it wanted is not kept any more.
                Err(_) | Ok(Err(_)) => break,
            }
        }
    }
}

fn is_last(told: &Told) -> bool {
    matches!(told, Told::Put { key, .. } if key == LAST)
}

/// A watch, whose batches go on record.
struct Watching {
    watch: Watch,
    number: usize,
    history: Arc<History>,
}

impl Watching {
    fn begin(client: &Client, prefix: Option<&str>, from: u64, history: &Arc<History>) -> Watching {
        let interest = prefix.map_or(Interest::EVERYTHING, |it| Interest::of(Topic::Keys(Span::prefix(it.to_owned()))));
        Watching { watch: client.watch(interest, from), number: history.watches(prefix, from), history: Arc::clone(history) }
    }

    /// What is told next; or from which revision on there is anything to be told.
    async fn hear(&mut self) -> Result<Vec<Told>, u64> {
        let batch = match self.watch.next().await {
            Ok(batch) => batch,
            Err(Cease::Refused(Refusal::Lagged(oldest) | Refusal::Compacted(oldest))) => return Err(oldest),
            Err(cease) => panic!("the watch has ended: {cease:?}"),
        };
        let told: Vec<Told> = batch.events.iter().filter_map(told_by).collect();
        self.history.heard(self.number, Batch { told: told.clone(), next: batch.next });
        Ok(told)
    }
}

/// What is judged of an event, if anything is.
fn told_by(event: &Event) -> Option<Told> {
    if event.key().is_some_and(|key| key.starts_with(&[0])) {
        // The service's own.
        return None;
    }
    match event.change.as_ref()? {
        Change::Put(put) => Some(Told::Put {
            revision: event.revision,
            key: String::from_utf8_lossy(&put.item.key).into_owned(),
            version: put.item.version,
            value: value_of(&put.item),
            previous: put.previous.as_ref().map(value_of),
        }),
        Change::Elected(elected) => Some(Told::Elected {
            revision: event.revision,
            election: elected.election.clone(),
            identity: elected.holder.identity.clone(),
            token: elected.holder.token,
        }),
        Change::Deleted(deleted) => panic!("nobody deletes anything, and yet {deleted:?}"),
        Change::SessionEnded(_)
        | Change::Ended(_)
        | Change::Proclaimed(_)
        | Change::Wished(_)
        | Change::Joined(_)
        | Change::Left(_)
        | Change::First(_)
        | Change::Noted(_)
        | Change::Completed(_) => None,
    }
}

fn put(key: &str, value: u64) -> Put {
    Put { key: key.to_owned().into(), value: value.to_string().into_bytes().into(), ..Put::default() }
}

fn value_of(item: &Item) -> u64 {
    String::from_utf8_lossy(&item.value).parse().unwrap_or_else(|_| panic!("nobody writes such a value: {item:?}"))
}

/// What the guard that did not hold has found in its place.
fn seen_in(transacted: &Transacted) -> Value {
    match transacted.results.first().and_then(|it| it.answer.as_ref()) {
        Some(ActAnswer::Read(items)) => items.items.first().map(value_of),
        other => panic!("a read was answered by {other:?}"),
    }
}

fn outcome_of(failure: Failure) -> Outcome {
    let why = failure.to_string();
    match failure {
        Failure::Refused(_) | Failure::NotNow { .. } => Outcome::Not { why },
        Failure::Unknown { .. } => Outcome::Unknown { why },
    }
}
