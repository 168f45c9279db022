//! What waits to be sent on one connection, and who will still add to it: answers that are owed, and bells of watches.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use incumbent_store::event::Event;
use incumbent_store::query::{Answered, Happened, ReadEvents};
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::Outcome;
use incumbent_store::watch::Interest;
use prost::Message;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Backlog, Bounds};
use crate::administration::{Administered, Attended};
use crate::frame::{self, ANSWER_MAX};
use crate::message::{Bound, NotNow, Sessions, Tidings, ToClient, Told, Unknown};

/// While more than this waits to be sent, events are left where they are, in the store's journal: a slow reader costs nobody anything.
const IN_HAND_BYTES_MAX: usize = 16 * 1024;
/// Answers that are no longer than this are told however much waits: there are no more of them than questions under way.
const ANSWER_SHORT_MAX: usize = 1024;
/// Why a longer one is not.
const UNREAD: &str = "too much waits to be read on this connection already: read it, or ask for less at once";
/// When to ask again then.
const UNREAD_RETRY_AFTER_MS: u64 = 50;

/// What waits to be sent. Its lock is held for the length of an encoding, and no service is called under it.
#[derive(Debug)]
pub(super) struct Outbox {
    waiting: Mutex<Waiting>,
    /// There is something to send.
    more: Notify,
    /// Something was sent or answered.
    less: Notify,
    /// It keeps too much waiting.
    cut: Notify,
    answers_bytes_max: usize,
    backlog: Arc<Backlog>,
    /// The number there.
    number: u64,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Frames.
    bytes: Vec<u8>,
    /// So many bytes are not sent: these, and those that are being sent.
    unsent: usize,
    /// There was always something since then.
    unsent_since: Option<Instant>,
    /// Questions that are not answered, and what else is not done.
    owed: usize,
    /// Their bytes.
    owed_bytes: usize,
    watches: BTreeMap<u64, Watched>,
    /// Watches that have something to tell.
    rung: BTreeSet<u64>,
    /// So many watches have not told all that they were rung for. It is counted, lest a ping costs a look at each.
    behind: usize,
    /// One of them is being told.
    telling: bool,
    /// What it is to be told is being read.
    reading: bool,
    /// It has been read.
    read: Option<Read>,
    /// Sessions that this connection speaks for, by the numbers of their bindings; none while that is not known.
    bound: BTreeMap<u64, Option<u64>>,
    /// The client's machine has closed the connection.
    lost: bool,
    closed: bool,
}

#[derive(Debug)]
struct Watched {
    /// The service's number; not there while the service is being asked for it.
    watcher: Option<u64>,
    interest: Interest,
    /// All before this revision has been told.
    next: u64,
    /// The first revision since then with something to tell.
    rung_at: Option<u64>,
    /// Nothing has been told yet, not even that it stands.
    fresh: bool,
    /// Where its bell hangs, and under which number.
    belfry: Option<(Arc<ReadOn>, u64)>,
    /// It was rung, and nothing has been read since.
    is_rung: bool,
}

/// Watches that have read on since their bells were rung, by the belfry's numbers.
#[derive(Debug, Default)]
pub(super) struct ReadOn(Mutex<Vec<u64>>);

impl ReadOn {
    fn add(&self, watcher: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(watcher);
    }

    pub(super) fn take(&self) -> Vec<u64> {
        mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Waiting {
    /// A watch has something to tell from this revision on, or from an earlier one.
    fn ring(&mut self, id: u64, revision: u64) -> Option<&mut Watched> {
        let watched = self.watches.get_mut(&id)?;
        self.behind += usize::from(watched.rung_at.is_none());
        watched.rung_at = Some(watched.rung_at.map_or(revision, |it| it.min(revision)));
        Some(watched)
    }
}

/// What is next for the watches.
#[derive(Debug)]
pub(super) enum Step {
    /// This is to be read.
    Ask(ReadEvents, Reading),
    /// This has been read.
    Tell(Read),
    /// Nothing, for now.
    Wait,
}

/// What has been read for a watch.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) id: u64,
    pub(super) fresh: bool,
    pub(super) result: Result<Happened, Refusal>,
}

/// What kind of answer is owed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Command,
    Question,
}

impl Outbox {
    pub(super) fn new(bounds: &Bounds) -> Arc<Outbox> {
        let backlog = Arc::clone(&bounds.backlog);
        Arc::new_cyclic(|outbox| Outbox {
            waiting: Mutex::default(),
            more: Notify::new(),
            less: Notify::new(),
            cut: Notify::new(),
            answers_bytes_max: bounds.answers_bytes_max,
            number: backlog.enter(outbox.clone()),
            backlog,
        })
    }

    /// Nothing is done by halves under this lock, so one that a panic has left is good.
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until there is something to send.
    pub(super) async fn more(&self) {
        self.more.notified().await;
    }

    /// Until another question may be read.
    pub(super) async fn room(&self, bounds: &Bounds) {
        loop {
            let less = self.less.notified();
            {
                let waiting = self.waiting();
                let few = waiting.owed < bounds.questions_max && waiting.owed_bytes < bounds.questions_bytes_max;
                if few && waiting.unsent < bounds.answers_bytes_max {
                    return;
                }
            }
            less.await;
        }
    }

    /// All that waits; what is given in its place is used again. It counts until it is [`sent`](Self::sent).
    pub(super) fn take(&self, batch: &mut Vec<u8>) {
        mem::swap(&mut self.waiting().bytes, batch);
    }

    /// So much was added to what was taken.
    pub(super) fn add(&self, bytes: usize) {
        let mut waiting = self.waiting();
        if !waiting.closed {
            self.count(&mut waiting, bytes);
        }
        drop(waiting);
        self.backlog.relieve();
    }

    /// So much of it was sent.
    pub(super) fn sent(&self, bytes: usize) {
        let mut waiting = self.waiting();
        if !waiting.closed {
            waiting.unsent -= bytes;
            self.backlog.remove(bytes);
            if waiting.unsent == 0 {
                waiting.unsent_since = None;
            }
        }
        drop(waiting);
        self.less.notify_one();
    }

    fn count(&self, waiting: &mut Waiting, bytes: usize) {
        if bytes > 0 {
            waiting.unsent += bytes;
            waiting.unsent_since.get_or_insert_with(Instant::now);
            self.backlog.add(bytes);
        }
    }

    fn append(&self, waiting: &mut Waiting, message: &ToClient) {
        if !waiting.closed {
            let before = waiting.bytes.len();
            frame::append(message, &mut waiting.bytes);
            self.count(waiting, waiting.bytes.len() - before);
        }
    }

    pub(super) fn tell(&self, message: &ToClient) {
        let mut waiting = self.waiting();
        self.append(&mut waiting, message);
        drop(waiting);
        self.more.notify_one();
        self.backlog.relieve();
    }

    /// Whether an answer of this length may wait with the others.
    fn has_room_for(&self, len: usize) -> bool {
        len <= ANSWER_SHORT_MAX || self.waiting().unsent < self.answers_bytes_max
    }

    /// What it costs all others: how much waits, and for how long.
    pub(super) fn burden(&self) -> u128 {
        let waiting = self.waiting();
        let age = waiting.unsent_since.map_or(0, |it| it.elapsed().as_millis() + 1);
        waiting.unsent as u128 * age
    }

    /// Too much waits for all: what waits here is not sent any more.
    pub(super) fn cut_off(&self) {
        let mut waiting = self.waiting();
        self.end(&mut waiting);
        drop(waiting);
        self.cut.notify_one();
    }

    /// Until it is cut off.
    pub(super) async fn is_cut_off(&self) {
        self.cut.notified().await;
    }

    fn end(&self, waiting: &mut Waiting) {
        waiting.closed = true;
        waiting.bytes = Vec::new();
        self.backlog.remove(mem::take(&mut waiting.unsent));
    }

    pub(super) fn refuse(&self, id: u64, refusal: &Refusal) {
        self.tell(&ToClient::new(id, Told::Refused(refusal.to_wire())));
    }

    /// An answer to a question of so many bytes.
    pub(super) fn owe(self: &Arc<Outbox>, id: u64, kind: Kind, len: usize) -> Owed {
        let mut waiting = self.waiting();
        waiting.owed += 1;
        waiting.owed_bytes += len;
        Owed { outbox: Arc::clone(self), id, kind, len, paid: false }
    }

    /// Something of so many bytes that needs no answer.
    pub(super) fn charge(self: &Arc<Outbox>, len: usize) -> Charge {
        let mut waiting = self.waiting();
        waiting.owed += 1;
        waiting.owed_bytes += len;
        Charge { outbox: Arc::clone(self), len }
    }

    pub(super) fn watches(&self) -> usize {
        self.waiting().watches.len()
    }

    pub(super) fn watches_as(&self, id: u64) -> bool {
        self.waiting().watches.contains_key(&id)
    }

    /// A watch that will stand once the service has its bell.
    pub(super) fn expect_watch(self: &Arc<Outbox>, id: u64, interest: Interest) -> Bell {
        let watched = Watched { watcher: None, interest, next: 0, rung_at: None, fresh: true, belfry: None, is_rung: false };
        self.waiting().watches.insert(id, watched);
        Bell { outbox: Arc::clone(self), id }
    }

    /// It stands, and tells from this revision on.
    pub(super) fn begin_watch(&self, id: u64, watcher: u64, from: u64) {
        let mut waiting = self.waiting();
        if let Some(watched) = waiting.ring(id, from) {
            // Not what it was rung for before.
            (watched.watcher, watched.next, watched.rung_at) = (Some(watcher), from, Some(from));
            waiting.rung.insert(id);
        }
        drop(waiting);
        self.more.notify_one();
    }

    /// The service's number of a watch that is no more.
    pub(super) fn forget_watch(&self, id: u64) -> Option<u64> {
        let mut waiting = self.waiting();
        waiting.rung.remove(&id);
        let watched = waiting.watches.remove(&id)?;
        waiting.behind -= usize::from(watched.rung_at.is_some());
        watched.watcher
    }

    /// Whether every watch has told all that it was rung for.
    pub(super) fn has_told(&self) -> bool {
        let waiting = self.waiting();
        // One whose read came to nothing is not among those that are rung, and yet has not told.
        waiting.behind == 0 && !waiting.telling
    }

    #[cfg(test)]
    pub(super) fn behind(&self) -> usize {
        self.waiting().behind
    }

    #[cfg(test)]
    pub(super) fn unsent(&self) -> usize {
        self.waiting().unsent
    }

    #[cfg(test)]
    pub(super) fn is_closed(&self) -> bool {
        self.waiting().closed
    }

    /// What is next for the watches behind this one, round and round.
    pub(super) fn step(self: &Arc<Outbox>, behind: u64, limit: u64) -> Step {
        let mut guard = self.waiting();
        let waiting = &mut *guard;
        if let Some(read) = waiting.read.take() {
            waiting.reading = false;
            return Step::Tell(read);
        }
        if waiting.reading {
            return Step::Wait;
        }
        let id = waiting.rung.range(behind.saturating_add(1)..).next().or_else(|| waiting.rung.first()).copied();
        waiting.telling = id.is_some();
        let Some((id, watched)) = id.and_then(|id| waiting.watches.get_mut(&id).map(|it| (id, it))) else { return Step::Wait };
        waiting.rung.remove(&id);
        waiting.reading = true;
        waiting.behind -= usize::from(watched.rung_at.is_some());
        let from = watched.next.max(watched.rung_at.take().unwrap_or(0));
        // Before it is read: what happens behind what is read then rings again.
        if mem::replace(&mut watched.is_rung, false)
            && let Some((read_on, watcher)) = &watched.belfry
        {
            read_on.add(*watcher);
        }
        let fresh = mem::replace(&mut watched.fresh, false);
        let asked = ReadEvents { from, interest: Some(watched.interest.clone()), limit };
        Step::Ask(asked, Reading { outbox: Arc::clone(self), id, from, fresh, done: false })
    }

    fn has_read(&self, read: Read) {
        let mut waiting = self.waiting();
        if !waiting.closed {
            waiting.read = Some(read);
        }
        drop(waiting);
        self.more.notify_one();
    }

    /// Nobody has read what a watch is to be told: it is looked for when it is next rung for.
    fn has_not_read(&self, id: u64, from: u64, fresh: bool) {
        let mut waiting = self.waiting();
        waiting.reading = false;
        if let Some(watched) = waiting.ring(id, from) {
            watched.fresh |= fresh;
        }
        drop(waiting);
        self.more.notify_one();
    }

    /// A watch has been told all before `next`; there may be more to tell right away. Whether it is still wanted.
    pub(super) fn told(&self, id: u64, next: u64, more: bool) -> bool {
        let mut waiting = self.waiting();
        let Some(watched) = waiting.watches.get_mut(&id) else { return false };
        watched.next = next;
        if more && waiting.ring(id, next).is_some() {
            waiting.rung.insert(id);
        }
        true
    }

    /// How many sessions the connection speaks for.
    pub(super) fn bound(&self) -> usize {
        self.waiting().bound.len()
    }

    /// The service is about to bind these.
    pub(super) fn expect_binding(self: &Arc<Outbox>, id: u64, wanted: Sessions, len: usize) -> Binding {
        let Sessions { sessions, again } = wanted;
        let mut waiting = self.waiting();
        for session in &sessions {
            waiting.bound.entry(*session).or_insert(None);
        }
        drop(waiting);
        Binding { owed: self.owe(id, Kind::Question, len), sessions, again }
    }

    pub(super) fn unbind(&self, sessions: &[u64]) {
        let mut waiting = self.waiting();
        for session in sessions {
            waiting.bound.remove(session);
        }
    }

    pub(super) fn unbind_all(&self) {
        self.waiting().bound.clear();
    }

    /// The client's machine has closed the connection: what it spoke for. Bindings that are under way say so when they are done.
    pub(super) fn lose(&self) -> Vec<Lost> {
        let mut waiting = self.waiting();
        waiting.lost = true;
        waiting.bound.iter().filter_map(|(session, binding)| Some(Lost { session: *session, binding: (*binding)? })).collect()
    }

    /// These are bound under this number. What ends at once, because the connection was lost meanwhile.
    fn has_bound(&self, sessions: &[u64], number: u64) -> Vec<Lost> {
        let mut waiting = self.waiting();
        let lost = waiting.lost;
        let mut end = Vec::new();
        for session in sessions {
            // One that is not there was unbound while it was being bound.
            if let Some(binding) = waiting.bound.get_mut(session) {
                *binding = Some(binding.map_or(number, |it| it.max(number)));
                end.extend(lost.then_some(Lost { session: *session, binding: number }));
            }
        }
        end
    }

    /// These are not: those that never were are forgotten.
    fn has_not_bound(&self, sessions: &[u64]) {
        let mut waiting = self.waiting();
        for session in sessions {
            if waiting.bound.get(session) == Some(&None) {
                waiting.bound.remove(session);
            }
        }
    }

    /// Nothing will be sent any more. The service's numbers of all watches.
    pub(super) fn close(&self) -> Vec<u64> {
        self.backlog.leave(self.number);
        let mut waiting = self.waiting();
        self.end(&mut waiting);
        waiting.rung.clear();
        waiting.behind = 0;
        waiting.read = None;
        mem::take(&mut waiting.watches).into_values().filter_map(|it| it.watcher).collect()
    }
}

/// An answer that is owed to a client. One that is dropped unpaid is answered all the same: that it is not known what came of it.
#[derive(Debug)]
#[must_use = "somebody waits for the answer"]
pub struct Owed {
    outbox: Arc<Outbox>,
    id: u64,
    kind: Kind,
    len: usize,
    paid: bool,
}

impl Owed {
    /// What came of a command.
    pub fn outcome(self, outcome: Outcome) {
        let revision = outcome.revision;
        let told = ToClient::new(self.id, Told::Outcome(outcome));
        let len = told.encoded_len();
        if len <= ANSWER_MAX && self.outbox.has_room_for(len) {
            self.pay(told);
        } else {
            let dropped = Outcome::of(&Err(Refusal::AnswerDropped(revision)), revision);
            let told = ToClient::new(self.id, Told::Outcome(dropped));
            self.pay(told);
        }
    }

    /// The answer to a question.
    pub fn answer(self, answered: Answered) {
        let told = ToClient::new(self.id, Told::Answered(answered));
        let len = told.encoded_len();
        if len > ANSWER_MAX {
            self.refuse(&Refusal::Limit { what: "bytes of an answer".to_owned(), max: ANSWER_MAX as u64 });
        } else if self.outbox.has_room_for(len) {
            self.pay(told);
        } else {
            self.not_now(NotNow { why: UNREAD.to_owned(), leader: String::new(), retry_after_ms: UNREAD_RETRY_AFTER_MS });
        }
    }

    /// What came of something that an operator wanted.
    pub fn administered(self, attended: Attended) {
        let told = ToClient::new(self.id, Told::Administered(Administered { attended: Some(attended) }));
        let len = told.encoded_len();
        if len > ANSWER_MAX {
            self.refuse(&Refusal::Limit { what: "bytes of an answer".to_owned(), max: ANSWER_MAX as u64 });
        } else if self.outbox.has_room_for(len) {
            self.pay(told);
        } else {
            self.unknown(UNREAD);
        }
    }

    /// Nothing was done, and asking again will not help.
    pub fn refuse(self, refusal: &Refusal) {
        let told = ToClient::new(self.id, Told::Refused(refusal.to_wire()));
        self.pay(told);
    }

    /// Nothing was done by this copy of the question; the client asks again.
    pub fn not_now(self, not_now: NotNow) {
        let told = ToClient::new(self.id, Told::NotNow(not_now));
        self.pay(told);
    }

    /// It may have been done, or be done yet.
    pub fn unknown(self, why: &str) {
        let told = ToClient::new(self.id, Told::Unknown(Unknown { why: why.to_owned() }));
        self.pay(told);
    }

    fn pay(mut self, told: ToClient) {
        self.paid = true;
        self.settle(&told);
    }

    fn settle(&self, told: &ToClient) {
        let mut waiting = self.outbox.waiting();
        waiting.owed -= 1;
        waiting.owed_bytes -= self.len;
        drop(waiting);
        self.outbox.tell(told);
        self.outbox.less.notify_one();
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if !self.paid {
            let why = "the node gave it up".to_owned();
            let told = match self.kind {
                Kind::Command => Told::Unknown(Unknown { why }),
                Kind::Question => Told::NotNow(NotNow { why, ..NotNow::default() }),
            };
            self.settle(&ToClient::new(self.id, told));
        }
    }
}

/// Something that a client wants and that needs no answer. It counts among the client's questions until this is dropped, by whoever has done it: who wants it faster than it is done is not read
/// any further.
#[derive(Debug)]
#[must_use = "it counts until it is done"]
pub struct Charge {
    outbox: Arc<Outbox>,
    len: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut waiting = self.outbox.waiting();
        waiting.owed -= 1;
        waiting.owed_bytes -= self.len;
        drop(waiting);
        self.outbox.less.notify_one();
    }
}

/// A session whose connection the client's machine has closed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// The session.
    pub session: u64,
    /// The number of the binding that was lost: a later one keeps the session.
    pub binding: u64,
}

/// Sessions that a connection wants to speak for. Dropped, they are not bound, and the client asks again.
#[derive(Debug)]
#[must_use = "somebody waits for the answer"]
pub struct Binding {
    owed: Owed,
    sessions: Vec<u64>,
    again: bool,
}

impl Binding {
    /// The sessions.
    pub fn sessions(&self) -> &[u64] {
        &self.sessions
    }

    /// Whether they may be bound to another connection, here or on another node: then it takes a [`Bind`](incumbent_store::command::Bind) in the log, and its number. If not, they were opened on
    /// this one, and their number is 0.
    pub fn again(&self) -> bool {
        self.again
    }

    /// They are bound under this number, and the log says so. What is answered has lost its connection meanwhile, and is to be treated as [`Service::lost`](super::Service::lost) says.
    #[must_use = "they would live on until their deadline"]
    pub fn done(self, number: u64) -> Vec<Lost> {
        let Binding { owed, sessions, .. } = self;
        let lost = owed.outbox.has_bound(&sessions, number);
        let told = ToClient::new(owed.id, Told::Bound(Bound {}));
        owed.pay(told);
        lost
    }

    /// The client may not.
    pub fn refuse(self, refusal: &Refusal) {
        self.owed.outbox.has_not_bound(&self.sessions);
        self.owed.refuse(refusal);
    }

    /// Not now; the client asks again.
    pub fn not_now(self, not_now: NotNow) {
        self.owed.outbox.has_not_bound(&self.sessions);
        self.owed.not_now(not_now);
    }
}

/// A read of events that somebody waits for.
#[derive(Debug)]
#[must_use = "a watch waits for it"]
pub struct Reading {
    outbox: Arc<Outbox>,
    id: u64,
    from: u64,
    fresh: bool,
    done: bool,
}

impl Reading {
    /// This was read; or why it cannot be.
    pub fn done(mut self, result: Result<Happened, Refusal>) {
        self.done = true;
        self.outbox.has_read(Read { id: self.id, fresh: self.fresh, result });
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if !self.done {
            self.outbox.has_not_read(self.id, self.from, self.fresh);
        }
    }
}

/// Wakes a watch.
#[derive(Clone, Debug)]
pub struct Bell {
    outbox: Arc<Outbox>,
    id: u64,
}

impl Bell {
    /// It hangs in a belfry, under this number. What it is rung for is of this interest; `None` if the watch is no more.
    pub(super) fn hang(&self, read_on: &Arc<ReadOn>, watcher: u64) -> Option<Interest> {
        let mut waiting = self.outbox.waiting();
        let watched = waiting.watches.get_mut(&self.id)?;
        watched.belfry = Some((Arc::clone(read_on), watcher));
        Some(watched.interest.clone())
    }

    /// These have happened, all that is of interest at their revisions: they are told at once, if all before them has been and little else waits to be sent. If not, the bell is rung, and whoever
    /// watches reads them when it can: the answer is `false`.
    pub fn tell(&self, events: &[Arc<Event>]) -> bool {
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return true };
        let mut guard = self.outbox.waiting();
        let waiting = &mut *guard;
        let busy = waiting.closed || waiting.telling;
        let watched = waiting.watches.get_mut(&self.id).filter(|it| {
            let has_told = it.watcher.is_some() && !it.fresh && it.rung_at.is_none();
            has_told && it.next <= first.revision && !busy
        });
        let len: usize = waiting.bytes.len() + events.iter().map(|it| it.encoded_len()).sum::<usize>();
        let Some(watched) = watched.filter(|_| len <= IN_HAND_BYTES_MAX) else {
            drop(guard);
            self.ring(first.revision);
            return false;
        };
        watched.next = last.revision.saturating_add(1);
        let tidings = Tidings { events: events.iter().map(|it| Event::clone(it)).collect(), next: watched.next };
        self.outbox.append(waiting, &ToClient::new(self.id, Told::Events(tidings)));
        drop(guard);
        self.outbox.more.notify_one();
        self.outbox.backlog.relieve();
        true
    }

    /// Something of interest has happened at this revision.
    pub fn ring(&self, revision: u64) {
        let mut waiting = self.outbox.waiting();
        let Some(watched) = waiting.ring(self.id, revision) else { return };
        watched.is_rung = true;
        // One that does not stand yet begins by looking.
        if watched.watcher.is_some() {
            waiting.rung.insert(self.id);
        }
        drop(waiting);
        self.outbox.more.notify_one();
    }
}

#[cfg(test)]
mod tests;
