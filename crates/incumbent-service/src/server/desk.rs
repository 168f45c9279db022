//! Who waits for what: a tag for everything that was given to the replica, and what to do when it comes back.
//!
//! Keep-alives that come within a few milliseconds are one request in the log; each of those who asked is told of its own sessions.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use incumbent_protocol::protocol::NodeId;
use incumbent_protocol::time::Instant;
use incumbent_store::command::{Command, KeepAlive, Request};
use incumbent_store::query::{Answered, Query};
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::{KeptAlive, Reply};
use incumbent_store::store::Store;
use incumbent_traces::Span;
use tokio::sync::oneshot;

use super::config::{KEEP_ALIVES_GATHERED, KEPT_ALIVE_AT_ONCE_MAX};
use super::handle::{NotNow, Outcome, Unanswered, Unchanged, Why};
use super::queues::Ticket;
use super::tracer::Settles;
use crate::replica::{Reason, Roll, Tag};

/// Who is to be told what comes of something: a user on another thread, or a client's connection. Dropped untold, each finds out in its own way that nobody will say.
pub(super) struct Asker<T> {
    tell: Box<dyn FnOnce(T) + Send>,
    span: Span,
    /// As long as it waits for the log.
    ticket: Option<Ticket>,
    /// In whose name it asks.
    guest: Arc<str>,
}

impl<T> Asker<T> {
    pub(super) fn new(tell: impl FnOnce(T) + Send + 'static) -> Asker<T> {
        Asker { tell: Box::new(tell), span: Span::none(), ticket: None, guest: Arc::default() }
    }

    /// The span ends when the asker is told.
    pub(super) fn traced(self, span: Span) -> Asker<T> {
        Asker { span, ..self }
    }

    /// In the name of a guest, and under way until it is told, or does not wait for the log any more.
    pub(super) fn hold(&mut self, guest: &Arc<str>, ticket: Option<Ticket>) {
        self.guest = Arc::clone(guest);
        self.ticket = ticket;
    }

    /// What it waits for now is not the log.
    pub(super) fn let_go(&mut self) {
        self.ticket = None;
    }

    pub(super) fn guest(&self) -> &Arc<str> {
        &self.guest
    }
}

impl<T: Settles> Asker<T> {
    pub(super) fn tell(mut self, what: T) {
        if self.span.is_told() {
            what.settle(&mut self.span);
        }
        (self.tell)(what);
    }
}

impl<T: Send + 'static> From<oneshot::Sender<T>> for Asker<T> {
    fn from(answer: oneshot::Sender<T>) -> Asker<T> {
        // Whoever has gone does not want to know.
        Asker::new(move |what| drop(answer.send(what)))
    }
}

impl<T> fmt::Debug for Asker<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Asker")
    }
}

pub(super) type Answer = Asker<Outcome>;

/// One that waits.
#[derive(Debug)]
pub(super) enum Waiter {
    Submit(Answer),
    KeepAlives(Vec<(Vec<u64>, Answer)>),
    /// The node itself: time has passed, or a client's connection has ended.
    Nobody,
    Ask(Query, Asker<Result<Answered, Unanswered>>),
    Change(oneshot::Sender<Result<Roll, Unchanged>>),
}

/// All who wait.
#[derive(Debug, Default)]
pub(super) struct Desk {
    last: u64,
    waiters: BTreeMap<Tag, Waiter>,
    /// By guest: what a guest may not keep alive, it must not by another's request.
    gathered: BTreeMap<String, Vec<(Vec<u64>, Answer)>>,
    gathered_sessions: usize,
    /// When what was gathered goes to the log.
    pub(super) gathered_until: Option<Instant>,
}

impl Desk {
    pub(super) fn len(&self) -> usize {
        self.waiters.len() + self.gathered.values().map(Vec::len).sum::<usize>()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A tag that was never given before.
    pub(super) fn wait(&mut self, mut waiter: Waiter) -> Tag {
        waiter.mark("taken");
        self.last += 1;
        let tag = Tag(self.last);
        self.waiters.insert(tag, waiter);
        tag
    }

    /// Keeps a keep-alive back for a moment. Gives back what is none, or must not wait for others.
    pub(super) fn gather(&mut self, now: Instant, request: Request, answer: Answer) -> Option<(Request, Answer)> {
        match request {
            Request { client: 0, guest, command: Some(Command::KeepAlive(KeepAlive { sessions })), .. }
                if sessions.len() <= KEPT_ALIVE_AT_ONCE_MAX =>
            {
                self.gathered_sessions += sessions.len();
                self.gathered.entry(guest).or_default().push((sessions, answer));
                self.gathered_until.get_or_insert(now + KEEP_ALIVES_GATHERED);
                None
            }
            request => Some((request, answer)),
        }
    }

    /// What was gathered, if its time has come: as one request for each guest, or several where one takes no more, and under its tag. To be asked until there is no more.
    pub(super) fn gathered(&mut self, now: Instant) -> Option<(Tag, Request)> {
        let due = self.gathered_until.is_some_and(|until| until <= now) || self.gathered_sessions >= KEPT_ALIVE_AT_ONCE_MAX;
        if !due {
            return None;
        }
        let mut first = self.gathered.first_entry()?;
        let guest = first.key().clone();
        let waiting = first.get_mut();
        let mut sum = 0;
        let fits = |(sessions, _): &&(Vec<u64>, Answer)| {
            sum += sessions.len();
            sum <= KEPT_ALIVE_AT_ONCE_MAX
        };
        let count = waiting.iter().take_while(fits).count();
        let gathered: Vec<_> = waiting.drain(..count).collect();
        if waiting.is_empty() {
            first.remove();
        }
        if self.gathered.is_empty() {
            self.gathered_until = None;
            self.gathered_sessions = 0;
        }
        let mut sessions: Vec<u64> = gathered.iter().flat_map(|(sessions, _)| sessions).copied().collect();
        sessions.sort_unstable();
        sessions.dedup();
        let tag = self.wait(Waiter::KeepAlives(gathered));
        Some((tag, Request { guest, ..Request::of(Command::KeepAlive(KeepAlive { sessions })) }))
    }

    /// It is in the log, and this came of it.
    pub(super) fn done(&mut self, tag: Tag, result: Result<Reply, Refusal>, revision: u64) {
        match self.waiters.remove(&tag) {
            Some(Waiter::Submit(mut answer)) => {
                answer.span.event("decided");
                answer.tell(outcome(result, revision));
            }
            Some(Waiter::KeepAlives(askers)) => {
                for (sessions, answer) in askers {
                    answer.tell(outcome(own_part(&result, &sessions), revision));
                }
            }
            // Reads do not go through the log, and a change of members is no request.
            Some(Waiter::Nobody | Waiter::Ask(..) | Waiter::Change(_)) | None => {}
        }
    }

    /// The members have changed.
    pub(super) fn changed(&mut self, tag: Tag, roll: Roll) {
        if let Some(Waiter::Change(answer)) = self.waiters.remove(&tag) {
            let _ = answer.send(Ok(roll));
        }
    }

    /// The state is new enough for this question.
    pub(super) fn read(&mut self, tag: Tag) -> Option<(Query, Asker<Result<Answered, Unanswered>>)> {
        let Some(Waiter::Ask(query, mut answer)) = self.waiters.remove(&tag) else { return None };
        answer.span.event("confirmed");
        Some((query, answer))
    }

    /// It has not happened.
    pub(super) fn reject(&mut self, tag: Tag, why: Reason, leader: Option<NodeId>, payload_bytes_max: usize) {
        let Some(waiter) = self.waiters.remove(&tag) else { return };
        let not_now = |why| NotNow { why, leader };
        if let Waiter::Change(answer) = waiter {
            let _ = answer.send(Err(unchanged(why, leader)));
            return;
        }
        let rejected = match why {
            Reason::NoLeader | Reason::NotHere | Reason::ChangeUnderWay | Reason::Behind => Ok(not_now(Why::NoLeader)),
            Reason::Superseded => Ok(not_now(Why::Superseded)),
            Reason::Full => Ok(not_now(Why::Full)),
            Reason::Halted => Ok(not_now(Why::Closing)),
            Reason::TooLong => Err(Refusal::Limit { what: "bytes of a request".to_owned(), max: payload_bytes_max as u64 }),
            Reason::BadChange => Err(Refusal::Malformed("these members make no cluster".to_owned())),
        };
        let outcome = match rejected {
            Ok(not_now) => Outcome::NotNow(not_now),
            Err(refusal) => Outcome::Refused(refusal),
        };
        waiter.fail(&outcome);
    }

    /// Nobody knows whether it has happened.
    pub(super) fn unknown(&mut self, tag: Tag, leader: Option<NodeId>) {
        match self.waiters.remove(&tag) {
            // A question does no harm.
            Some(ask @ Waiter::Ask(..)) => ask.fail(&Outcome::NotNow(NotNow { why: Why::NoLeader, leader })),
            Some(waiter) => waiter.fail(&Outcome::Unknown),
            None => {}
        }
    }
}

impl Waiter {
    fn mark(&mut self, event: &'static str) {
        match self {
            Waiter::Submit(answer) => answer.span.event(event),
            Waiter::Ask(_, answer) => answer.span.event(event),
            // Keep-alives are not traced, and what nodes do for themselves is not asked for by anybody.
            Waiter::KeepAlives(_) | Waiter::Nobody | Waiter::Change(_) => {}
        }
    }

    fn fail(self, outcome: &Outcome) {
        match self {
            Waiter::Submit(answer) => answer.tell(outcome.clone()),
            Waiter::KeepAlives(askers) => {
                for (_, answer) in askers {
                    answer.tell(outcome.clone());
                }
            }
            Waiter::Nobody => {}
            Waiter::Change(answer) => drop(answer.send(Err(Unchanged::Unknown))),
            Waiter::Ask(_, answer) => {
                let why = match outcome {
                    Outcome::NotNow(not_now) => Unanswered::NotNow(not_now.clone()),
                    Outcome::Refused(refusal) => Unanswered::Refused(refusal.clone()),
                    Outcome::Unknown | Outcome::Done { .. } => Unanswered::NotNow(NotNow { why: Why::NoLeader, leader: None }),
                };
                answer.tell(Err(why));
            }
        }
    }
}

fn unchanged(why: Reason, leader: Option<NodeId>) -> Unchanged {
    let not_now = |why| Unchanged::NotNow(NotNow { why, leader });
    match why {
        Reason::NoLeader | Reason::NotHere => not_now(Why::NoLeader),
        Reason::Superseded => not_now(Why::Superseded),
        Reason::Full | Reason::TooLong => not_now(Why::Full),
        Reason::Halted => not_now(Why::Closing),
        Reason::ChangeUnderWay => Unchanged::UnderWay,
        Reason::BadChange => Unchanged::Refused("it makes no sense: nobody would vote, too many would, or nothing would change"),
        Reason::Behind => {
            Unchanged::Refused("the node does not know enough yet: make it a learner, and wait until it has caught up")
        }
    }
}

fn outcome(result: Result<Reply, Refusal>, revision: u64) -> Outcome {
    match result {
        Ok(reply) => Outcome::Done { reply, revision },
        Err(refusal) => Outcome::Refused(refusal),
    }
}

/// Of the sessions that are gone, those that the asker asked for.
fn own_part(result: &Result<Reply, Refusal>, sessions: &[u64]) -> Result<Reply, Refusal> {
    match result {
        Ok(Reply::KeptAlive(KeptAlive { gone })) => {
            // They were asked for in order, and are told in order.
            let gone = sessions.iter().filter(|it| gone.binary_search(it).is_ok()).copied().collect();
            Ok(Reply::KeptAlive(KeptAlive { gone }))
        }
        other => other.clone(),
    }
}

/// The store's answer to a question.
pub(super) fn answered(store: &Store, query: &Query) -> Result<Answered, Unanswered> {
    match store.query(query) {
        Ok(answer) => Ok(Answered { revision: store.revision(), answer: Some(answer) }),
        Err(refusal) => Err(Unanswered::Refused(refusal)),
    }
}
