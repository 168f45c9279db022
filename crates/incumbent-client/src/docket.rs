//! What a client has under way: requests that wait for an answer, watches, sessions that are bound. It outlives connections.
//!
//! A connection asks it what to send ([`Docket::fill`]) and gives it what has come ([`Docket::deliver`]). When a connection has ended, whatever was sent and not answered is sent again on the
//! next one; whether it may have happened meanwhile is remembered with it, so that nobody is told "not done" of something that may have been. Nothing here waits.

mod binding;
pub(crate) mod lead;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use incumbent_store::event::Event;
use incumbent_store::refusal::Refusal;
use incumbent_store::watch::Interest;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot, watch};
use tokio::time::Instant;

use self::lead::Vacancy;
use crate::client::{Clock, Line};
use crate::failure::{Ended, Failure};
use crate::frame;
use crate::message::{Asked, Ping, Tidings, ToClient, ToServer, Told, WatchFrom};
use crate::numbering::{Number, Numbering};
use crate::serve::{QUESTIONS_BYTES_MAX, QUESTIONS_MAX};
use crate::watch::{Batch, Cease};

/// So many requests are under way at once; further ones wait.
pub(crate) const REQUESTS_MAX: usize = 16 * 1024;
/// So many bytes go into one write, and one message more.
const GATHER_MAX: usize = 256 * 1024;
/// While so many bytes of requests wait for their answers, no further ones are sent: less than makes a node stop reading, so that it always hears our pings.
const IN_FLIGHT_BYTES_MAX: usize = 8 * 1024 * 1024;
const _: () = assert!(REQUESTS_MAX <= QUESTIONS_MAX && IN_FLIGHT_BYTES_MAX + frame::REQUEST_MAX <= QUESTIONS_BYTES_MAX);
/// So many sessions are bound by one message.
const BIND_MAX: usize = 10_000;
/// What a node could not do is asked again no sooner.
const AGAIN_AFTER_MIN: Duration = Duration::from_millis(5);
/// And no later, whatever it says.
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(1);
/// A node that says for so long that it cannot, and does nothing else, is left for another. It may be cut off from the others; but mostly nobody leads, and then no other could.
const NOT_NOW_MAX: Duration = Duration::from_millis(250);
/// What whoever waits is told where nodes have said so.
const NOBODY_LEADS: &str =
    "no node leads at present: a majority of the members must be up and reach each other (see `incumbent cluster status`)";
/// So many events may have one revision.
const REVISION_EVENTS_MAX: usize = 1_000_000;

/// How long a connection may be silent.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Patience {
    /// While an answer is awaited, a node of which nothing is heard for so long is asked whether it is there.
    pub(crate) ping_busy: Duration,
    /// And so often in any case.
    pub(crate) ping_idle: Duration,
    /// It must answer in so long.
    pub(crate) silence: Duration,
}

/// What a client has under way.
pub(crate) struct Docket {
    state: Mutex<State>,
    /// There is something to send.
    pub(crate) more: Notify,
    /// An answer is awaited that was not before.
    pub(crate) stirred: Notify,
    /// There are numbers to be had.
    pub(crate) numbers: Notify,
    /// A place for each request that may be under way.
    pub(crate) places: Semaphore,
    closing: Notify,
    /// Where we are connected, for whoever wants to know.
    line: watch::Sender<Line>,
    /// The last connection has been left.
    left: Semaphore,
    clock: Clock,
}

struct State {
    last_id: u64,
    requests: BTreeMap<u64, Pending>,
    /// Requests to be sent, in this order.
    unsent: VecDeque<u64>,
    /// Requests to be sent again at their time.
    later: BTreeSet<(Instant, u64)>,
    /// So many have been sent on this connection and wait for their answers.
    in_flight: usize,
    /// So many bytes.
    in_flight_bytes: usize,
    /// Messages that mean something on this connection only.
    control: Vec<ToServer>,
    numberings: Vec<Numbering>,
    introducing: bool,
    watches: BTreeMap<u64, Watched>,
    /// Watches by the numbers that the node knows them by.
    registered: BTreeMap<u64, u64>,
    /// Watches that a node is to be told of.
    unregistered: BTreeSet<u64>,
    bound: BTreeSet<u64>,
    /// Requests that bind them to this connection, which nobody waits for.
    rebinding: BTreeSet<u64>,
    pulse: Pulse,
    /// The greatest revision seen.
    seen: u64,
    /// Where we are connected.
    address: String,
    /// Where the node that leads is said to be.
    leader: String,
    /// The last pong said that this one leads, and not the node itself.
    named: String,
    /// There is no reaching this one until then, whoever says that it leads.
    shunned: Option<(String, Instant)>,
    /// What came of the last attempt to reach a node that failed, for people.
    unreached: String,
    /// The node does nothing that it is asked, since then.
    idle_since: Option<Instant>,
    vacancy: Vacancy,
    connected: bool,
    done: bool,
}

struct Pulse {
    heard: Instant,
    /// The last ping.
    asked: Instant,
    /// Answers have been awaited since.
    busy_since: Instant,
    pinged: Option<Instant>,
}

struct Pending {
    asked: Asked,
    /// Whoever waits; nobody once the client is closed.
    answer: Option<oneshot::Sender<Delivered>>,
    number: Option<Number>,
    flight: Flight,
    /// A copy of it may have been carried out.
    doubt: bool,
    /// So many copies were sent.
    copies: u32,
    /// So long was the last one.
    len: usize,
    sent_first: Duration,
    sent_last: Duration,
    /// Why it is not answered yet.
    why: String,
}

impl Pending {
    fn unsent(asked: Asked, number: Option<Number>, answer: Option<oneshot::Sender<Delivered>>) -> Pending {
        Pending {
            asked,
            answer,
            number,
            flight: Flight::Unsent,
            doubt: false,
            copies: 0,
            len: 0,
            sent_first: Duration::ZERO,
            sent_last: Duration::ZERO,
            why: String::new(),
        }
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Flight {
    Unsent,
    Sent,
    Later(Instant),
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Delivered {
    pub(crate) told: Told,
    /// When it was sent: the first copy of what is numbered (any of them may have been the one that was carried out), the last of what is not.
    pub(crate) sent: Duration,
    /// Another copy of it may have been carried out.
    pub(crate) doubt: bool,
}

struct Watched {
    interest: Interest,
    /// All before this revision is in the queue, or does not matter; 0: from whenever a node begins.
    next: u64,
    queue: Option<mpsc::Sender<Batch>>,
    /// Known to the node under this number.
    wire: Option<u64>,
    /// The node has told something since it knows.
    stands: bool,
    /// A part of a revision.
    part: Vec<Event>,
    /// Whoever watches is slow; the node need not tell more.
    paused: bool,
    ended: Option<Cease>,
}

impl Docket {
    pub(crate) fn new(clock: Clock) -> Docket {
        let now = Instant::now();
        let state = State {
            last_id: 0,
            requests: BTreeMap::new(),
            unsent: VecDeque::new(),
            later: BTreeSet::new(),
            in_flight: 0,
            in_flight_bytes: 0,
            control: Vec::new(),
            numberings: Vec::new(),
            introducing: false,
            watches: BTreeMap::new(),
            registered: BTreeMap::new(),
            unregistered: BTreeSet::new(),
            bound: BTreeSet::new(),
            rebinding: BTreeSet::new(),
            pulse: Pulse { heard: now, asked: now, busy_since: now, pinged: None },
            seen: 0,
            address: String::new(),
            leader: String::new(),
            named: String::new(),
            shunned: None,
            unreached: String::new(),
            idle_since: None,
            vacancy: Vacancy::default(),
            connected: false,
            done: false,
        };
        Docket {
            state: Mutex::new(state),
            more: Notify::new(),
            stirred: Notify::new(),
            numbers: Notify::new(),
            places: Semaphore::new(REQUESTS_MAX),
            closing: Notify::new(),
            line: watch::Sender::new(Line::Down { why: "not connected yet".to_owned() }),
            left: Semaphore::new(0),
            clock,
        }
    }

    /// Nothing is done by halves under this lock, so one that a panic has left is good.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- requests ----

    /// Takes up a request, to be sent as soon as it can be.
    pub(crate) fn begin(&self, asked: Asked, number: Option<Number>) -> (u64, oneshot::Receiver<Delivered>) {
        let (answer, receiver) = oneshot::channel();
        let mut state = self.state();
        let id = state.new_id();
        let pending = Pending::unsent(asked, number, (!state.done).then_some(answer));
        state.requests.insert(id, pending);
        state.unsent.push_back(id);
        drop(state);
        self.more.notify_one();
        (id, receiver)
    }

    /// Nobody waits for the request any more. What is known of it, unless it was answered.
    pub(crate) fn give_up(&self, id: u64) -> Option<Failure> {
        let mut state = self.state();
        let pending = state.requests.remove(&id)?;
        let because = if pending.why.is_empty() { "no answer in time".to_owned() } else { pending.why };
        let failure = match pending.flight {
            Flight::Sent => Failure::Unknown { why: because },
            Flight::Unsent | Flight::Later(_) if pending.doubt => Failure::Unknown { why: because },
            Flight::Unsent if !state.connected && because == "no answer in time" => {
                let last = if state.unreached.is_empty() { String::new() } else { format!(": {}", state.unreached) };
                Failure::NotNow { why: format!("no node answers{last}") }
            }
            Flight::Unsent | Flight::Later(_) => Failure::NotNow { why: because },
        };
        match pending.flight {
            Flight::Sent => state.land(pending.len),
            Flight::Later(at) => drop(state.later.remove(&(at, id))),
            Flight::Unsent => {}
        }
        if let Some(number) = pending.number {
            state.settle(number);
            drop(state);
            self.numbers.notify_one();
        }
        Some(failure)
    }

    /// A number for a request, if there is one to be had.
    pub(crate) fn number(&self) -> Option<Number> {
        self.state().numberings.iter_mut().find_map(Numbering::take)
    }

    /// Gives a number back that was not used.
    pub(crate) fn settle(&self, number: Number) {
        self.state().settle(number);
        self.numbers.notify_one();
    }

    /// Whether the caller is to introduce us to the store once more. If so, it must say when it has or has given up.
    pub(crate) fn begin_introduction(&self) -> bool {
        !mem::replace(&mut self.state().introducing, true)
    }

    /// The store knows us by this number too; or not.
    pub(crate) fn end_introduction(&self, client: Option<u64>) {
        let mut state = self.state();
        state.introducing = false;
        state.numberings.extend(client.map(Numbering::new));
        drop(state);
        self.numbers.notify_one();
    }

    /// The store knows nobody by this number any more.
    pub(crate) fn forgotten(&self, client: u64) {
        self.state().numberings.retain(|it| it.client() != client);
    }

    /// The greatest revision seen.
    pub(crate) fn seen(&self) -> u64 {
        self.state().seen
    }

    pub(crate) fn see(&self, revision: u64) {
        let mut state = self.state();
        state.seen = state.seen.max(revision);
    }

    // ---- watches and sessions ----

    pub(crate) fn watch(&self, interest: Interest, from: u64, queue: mpsc::Sender<Batch>) -> u64 {
        let mut state = self.state();
        let id = state.new_id();
        let watched = Watched {
            interest,
            next: from,
            queue: Some(queue),
            wire: None,
            stands: false,
            part: Vec::new(),
            paused: false,
            ended: None,
        };
        state.watches.insert(id, watched);
        if state.done {
            state.watches.entry(id).and_modify(|it| (it.ended, it.queue) = (Some(Cease::Closed), None));
        }
        state.unregistered.insert(id);
        drop(state);
        self.more.notify_one();
        id
    }

    /// Whoever watches has taken all there was. Why nothing more will come, if so.
    pub(crate) fn caught_up(&self, watch: u64) -> Option<Cease> {
        let mut state = self.state();
        let watched = state.watches.get_mut(&watch)?;
        if watched.ended.is_some() {
            return watched.ended.clone();
        }
        if mem::replace(&mut watched.paused, false) {
            state.unregistered.insert(watch);
            drop(state);
            self.more.notify_one();
        }
        None
    }

    pub(crate) fn unwatch(&self, watch: u64) {
        let mut state = self.state();
        state.unregistered.remove(&watch);
        if let Some(wire) = state.watches.remove(&watch).and_then(|it| it.wire) {
            state.unregister(wire);
            drop(state);
            self.more.notify_one();
        }
    }

    // ---- connections ----

    /// There is a connection to a node.
    pub(crate) fn connected(&self, address: &str, node: u64) {
        self.line.send_replace(Line::Up { address: address.to_owned(), node });
        let mut state = self.state();
        state.address = address.to_owned();
        let now = Instant::now();
        state.connected = true;
        state.idle_since = None;
        state.vacancy.since = None;
        state.named.clear();
        state.pulse = Pulse { heard: now, asked: now, busy_since: now, pinged: None };
        state.rebind_all();
        let live: Vec<u64> = state.watches.iter().filter(|(_, it)| it.ended.is_none() && !it.paused).map(|(id, _)| *id).collect();
        state.unregistered.extend(live);
        drop(state);
        self.more.notify_one();
        self.stirred.notify_one();
    }

    /// The connection has ended. What was sent and is not answered will be sent again.
    pub(crate) fn disconnected(&self, ended: &Ended) {
        self.line.send_replace(Line::Down { why: ended.to_string() });
        let mut guard = self.state();
        let state = &mut *guard;
        state.connected = false;
        (state.in_flight, state.in_flight_bytes) = (0, 0);
        state.control.clear();
        state.registered.clear();
        state.unregistered.clear();
        for watched in state.watches.values_mut() {
            (watched.wire, watched.stands) = (None, false);
            watched.part.clear();
        }
        // Where nobody leads, no other node could do it either.
        let vacant = matches!(ended, Ended::Rerouted) && state.vacancy.since.is_some();
        let why = if vacant { NOBODY_LEADS.to_owned() } else { ended.to_string() };
        let mut again = VecDeque::new();
        for (id, pending) in &mut state.requests {
            if pending.flight == Flight::Sent {
                pending.flight = Flight::Unsent;
                pending.doubt |= matches!(pending.asked, Asked::Submit(_) | Asked::Administer(_));
                pending.why.clone_from(&why);
                again.push_back(*id);
            }
        }
        // They have waited for longest.
        again.append(&mut state.unsent);
        state.unsent = again;
    }

    pub(crate) fn line(&self) -> watch::Receiver<Line> {
        self.line.subscribe()
    }

    /// The client is done with. Whoever waits for something is told at once what is known of it.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.done = true;
        for pending in state.requests.values_mut() {
            pending.answer = None;
            pending.why = "the client was closed".to_owned();
        }
        for watched in state.watches.values_mut().filter(|it| it.ended.is_none()) {
            (watched.ended, watched.queue) = (Some(Cease::Closed), None);
        }
        drop(state);
        self.more.notify_one();
        self.closing.notify_waiters();
    }

    /// Until the client is done with.
    pub(crate) async fn closed(&self) {
        loop {
            let closing = self.closing.notified();
            if self.state().done {
                return;
            }
            closing.await;
        }
    }

    /// The last connection has been left.
    pub(crate) fn leave(&self) {
        self.left.close();
    }

    /// Until the last connection has been left.
    pub(crate) async fn left(&self) {
        let _ = self.left.acquire().await;
    }

    /// Appends what there is to send, up to a length. Done is an end.
    pub(crate) fn fill(&self, out: &mut Vec<u8>) -> Result<(), Ended> {
        let mut guard = self.state();
        let state = &mut *guard;
        if state.done {
            return Err(Ended::Done);
        }
        for message in state.control.drain(..) {
            frame::append(&message, out);
        }
        while out.len() < GATHER_MAX
            && let Some(watch) = state.unregistered.pop_first()
        {
            state.register(watch, out);
        }
        let now = Instant::now();
        while let Some(&(at, id)) = state.later.first().filter(|(at, _)| *at <= now) {
            state.later.remove(&(at, id));
            state.requests.entry(id).and_modify(|it| it.flight = Flight::Unsent);
            state.unsent.push_back(id);
        }
        let idle = state.in_flight == 0;
        // Read once, and before anything is sent: a deadline that is counted from it is never late.
        let stamp = (self.clock)();
        while out.len() < GATHER_MAX
            && state.in_flight_bytes < IN_FLIGHT_BYTES_MAX
            && let Some(id) = state.unsent.pop_front()
        {
            state.send(id, stamp, out);
        }
        if idle && state.in_flight > 0 {
            state.pulse.busy_since = now;
            drop(guard);
            self.stirred.notify_one();
        }
        Ok(())
    }

    /// When something that waits for its time is to be sent.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.state().later.first().map(|(at, _)| *at)
    }

    /// Asks a silent node whether it is there. When to look again.
    pub(crate) fn pulse(&self, patience: Patience) -> Result<Instant, Ended> {
        let now = Instant::now();
        let mut state = self.state();
        if let Some(pinged) = state.pulse.pinged {
            let until = pinged + patience.silence;
            if state.pulse.heard < pinged {
                return if now < until { Ok(until) } else { Err(Ended::Silent) };
            }
            state.pulse.pinged = None;
        }
        // Now and then in any case: a node wants to hear of us, and tells with its answer who leads and how far our watches are.
        let unsettled = state.leader.is_empty() || !state.named.is_empty() || state.vacancy.since.is_some();
        let mut due = state.pulse.asked + if unsettled { patience.ping_idle.min(lead::LEADER_ASKED) } else { patience.ping_idle };
        if state.in_flight > 0 {
            due = due.min(state.pulse.heard.max(state.pulse.busy_since) + patience.ping_busy);
        }
        if now < due {
            return Ok(due);
        }
        (state.pulse.pinged, state.pulse.asked) = (Some(now), now);
        let id = state.new_id();
        state.control.push(ToServer::new(id, Asked::Ping(Ping {})));
        drop(state);
        self.more.notify_one();
        Ok(now + patience.silence)
    }

    /// Something has come, be it a part of something long.
    pub(crate) fn heard(&self) {
        self.state().pulse.heard = Instant::now();
    }

    /// Takes what a node has said.
    pub(crate) fn deliver(&self, message: ToClient) -> Result<(), Ended> {
        let ToClient { id, told } = message;
        let mut state = self.state();
        match told {
            // A later version's: passed over.
            None => Ok(()),
            Some(Told::Welcome(_)) => Err(Ended::Nonsense("a second welcome".to_owned())),
            Some(Told::TurnedAway(told)) => Err(Ended::TurnedAway { objection: told.objection(), why: told.why }),
            Some(told @ (Told::Outcome(_) | Told::Answered(_) | Told::Refused(_) | Told::Bound(_) | Told::Administered(_))) => {
                state.idle_since = None;
                let number = state.answer(id, told)?;
                let waiting = !state.unsent.is_empty();
                drop(state);
                if waiting {
                    self.more.notify_one();
                }
                if number.is_some() {
                    self.numbers.notify_one();
                }
                Ok(())
            }
            Some(Told::NotNow(not_now)) => {
                state.later(id, Duration::from_millis(not_now.retry_after_ms), not_now.why, false);
                let elsewhere = state.leads_elsewhere(not_now.leader);
                let now = Instant::now();
                let enough = elsewhere || now - *state.idle_since.get_or_insert(now) >= NOT_NOW_MAX;
                drop(state);
                self.more.notify_one();
                if enough { Err(Ended::Rerouted) } else { Ok(()) }
            }
            Some(Told::Unknown(unknown)) => {
                state.later(id, AGAIN_AFTER_MIN, unknown.why, true);
                drop(state);
                self.more.notify_one();
                Ok(())
            }
            Some(Told::Events(tidings)) => {
                let paused = state.tell(id, tidings)?;
                drop(state);
                if paused {
                    self.more.notify_one();
                }
                Ok(())
            }
            Some(Told::WatchEnded(refusal)) => {
                if let Some(watched) = state.registered.remove(&id).and_then(|it| state.watches.get_mut(&it)) {
                    watched.ended = Some(Cease::Refused(Refusal::from_wire(refusal)));
                    // The queue ends behind what is in it.
                    (watched.wire, watched.queue) = (None, None);
                }
                Ok(())
            }
            Some(Told::Pong(pong)) => {
                if pong.told > 0 {
                    for watched in state.watches.values_mut().filter(|it| it.stands) {
                        watched.next = watched.next.max(pong.told.saturating_add(1));
                    }
                }
                // Whoever leads answers without asking another. What is under way is not delayed for that, unless the same is said once more.
                let before = mem::take(&mut state.named);
                if state.leads_elsewhere(pong.leader) && !pong.leads {
                    if state.in_flight == 0 || before == state.leader {
                        return Err(Ended::Rerouted);
                    }
                    state.named = state.leader.clone();
                }
                if state.vacancy.told(pong.leaderless) { Err(Ended::Rerouted) } else { Ok(()) }
            }
        }
    }
}

impl State {
    fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn settle(&mut self, number: Number) {
        if let Some(numbering) = self.numberings.iter_mut().find(|it| it.client() == number.client) {
            numbering.settle(number.sequence);
        }
    }

    fn send(&mut self, id: u64, stamp: Duration, out: &mut Vec<u8>) {
        let Some(pending) = self.requests.get_mut(&id) else { return };
        if let (Asked::Submit(request), Some(number)) = (&mut pending.asked, pending.number) {
            let numbering = self.numberings.iter().find(|it| it.client() == number.client);
            request.answered = numbering.map_or(request.answered, Numbering::answered);
        }
        if let Asked::Bind(sessions) = &mut pending.asked
            && pending.copies > 0
        {
            // It may have been bound by a copy that went over another connection.
            sessions.again = true;
        }
        // Taken out for the length of the encoding, so that a long value is not copied.
        let message = ToServer::new(id, mem::replace(&mut pending.asked, Asked::Ping(Ping {})));
        let begin = out.len();
        frame::append(&message, out);
        pending.len = out.len() - begin;
        pending.asked = message.asked.unwrap_or(Asked::Ping(Ping {}));
        pending.sent_last = stamp;
        if pending.copies == 0 {
            pending.sent_first = stamp;
        }
        pending.copies += 1;
        pending.flight = Flight::Sent;
        self.in_flight += 1;
        self.in_flight_bytes += pending.len;
    }

    /// Something that was sent needs no answer any more.
    fn land(&mut self, len: usize) {
        self.in_flight -= 1;
        self.in_flight_bytes -= len;
    }

    /// Gives an answer to whoever waits for it. Its number, if it had one.
    fn answer(&mut self, id: u64, told: Told) -> Result<Option<Number>, Ended> {
        // Whoever waited may have given up meanwhile.
        let Some(pending) = self.requests.get(&id) else { return Ok(None) };
        if pending.flight != Flight::Sent {
            return Err(Ended::Nonsense(format!("an answer to {id}, which it was not asked")));
        }
        let Some(pending) = self.requests.remove(&id) else { return Ok(None) };
        let nobody_waits = self.rebinding.remove(&id);
        self.land(pending.len);
        if let (Asked::Bind(asked), Told::Bound(_)) = (&pending.asked, &told)
            && !nobody_waits
        {
            // Here, and not by whoever waits for it: the connection may be another before that one has its turn.
            self.bound.extend(&asked.sessions);
        }
        let sent = if pending.number.is_some() { pending.sent_first } else { pending.sent_last };
        if let Some(number) = pending.number {
            self.settle(number);
        }
        // Whoever has given up has said so before, or does right now.
        if let Some(answer) = pending.answer {
            let _ = answer.send(Delivered { told, sent, doubt: pending.doubt });
        }
        Ok(pending.number)
    }

    /// The request is to be sent again.
    fn later(&mut self, id: u64, after: Duration, why: String, doubt: bool) {
        let Some(pending) = self.requests.get_mut(&id).filter(|it| it.flight == Flight::Sent) else { return };
        let at = Instant::now() + after.clamp(AGAIN_AFTER_MIN, AGAIN_AFTER_MAX);
        pending.flight = Flight::Later(at);
        pending.doubt |= doubt;
        pending.why = why;
        let len = pending.len;
        self.land(len);
        self.later.insert((at, id));
    }

    fn register(&mut self, watch: u64, out: &mut Vec<u8>) {
        let wire = self.new_id();
        let seen = self.seen;
        let Some(watched) = self.watches.get_mut(&watch) else { return };
        (watched.wire, watched.stands) = (Some(wire), false);
        watched.part.clear();
        self.registered.insert(wire, watch);
        let wanted = WatchFrom { interest: Some(watched.interest.clone()), from: watched.next, seen };
        frame::append(&ToServer::new(wire, Asked::Watch(wanted)), out);
    }

    fn unregister(&mut self, wire: u64) {
        if self.registered.remove(&wire).is_some() {
            let id = self.new_id();
            self.control.push(ToServer::new(id, Asked::Unwatch(wire)));
        }
    }

    /// Passes on what has happened. Whether the watch had to be paused.
    fn tell(&mut self, wire: u64, tidings: Tidings) -> Result<bool, Ended> {
        // One that is not wanted any more may still be told.
        let Some(watched) = self.registered.get(&wire).and_then(|it| self.watches.get_mut(it)) else { return Ok(false) };
        let Tidings { mut events, next } = tidings;
        let mut last = watched.part.last().map_or(watched.next, |it| it.revision);
        for event in &events {
            if event.revision < last || (next > 0 && event.revision >= next) {
                return Err(Ended::Nonsense(format!("events of revision {} after {last} and before {next}", event.revision)));
            }
            last = event.revision;
        }
        watched.stands = true;
        if !watched.part.is_empty() || next == 0 {
            watched.part.append(&mut events);
            if watched.part.len() > REVISION_EVENTS_MAX {
                return Err(Ended::Nonsense(format!("more than {REVISION_EVENTS_MAX} events at revision {last}")));
            }
            if next == 0 {
                return Ok(false);
            }
            events = mem::take(&mut watched.part);
        }
        if next < watched.next {
            return Err(Ended::Nonsense(format!("told up to {next}, and before that up to {}", watched.next)));
        }
        self.seen = self.seen.max(last);
        if events.is_empty() {
            watched.next = next;
            return Ok(false);
        }
        match watched.queue.as_ref().map(|it| it.try_send(Batch { events, next })) {
            Some(Ok(())) => {
                watched.next = next;
                Ok(false)
            }
            // What does not fit is not kept here: the node keeps it, and tells it again from where the queue ends.
            Some(Err(mpsc::error::TrySendError::Full(_))) => {
                watched.paused = true;
                (watched.wire, watched.stands) = (None, false);
                self.unregister(wire);
                Ok(true)
            }
            // The watch is being dropped.
            Some(Err(mpsc::error::TrySendError::Closed(_))) | None => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests;
