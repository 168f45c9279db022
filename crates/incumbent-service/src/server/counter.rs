//! What clients are served by: passes what their connections ask on to the driver, in its order, and the answers back.
//!
//! Nothing here waits. The driver works off what is asked on the same thread, so a request costs no change of threads between the socket and the log.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use incumbent_client::administration::Administration;
use incumbent_client::message::{self, Hello, Inquiry, Objection};
use incumbent_client::serve::{Bell, Binding, Charge, Lost, Owed, Reading, Service, Standing};
use incumbent_store::command::{Bind, Command, Request};
use incumbent_store::query::ReadEvents;
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::{self, Reply};
use incumbent_store::watch::Interest;
use tokio::sync::mpsc;

use super::administration::Unattended;
use super::config::{CALLS_MAX, WATCHES_MAX};
use super::handle::{Call, Consistency, NotNow, Order, Outcome, Unanswered, Why};
use super::tally::{Came, Operation, Tally};
use super::tracer::{self, Tracer};
use super::visit::Visit;
use crate::rights::{Denied, Errand, Guest};

/// A client waits so long before it asks again what could not be done now: about as long as another node needs to be elected.
const RETRY_AFTER_MS: u64 = 10;

const WATCH: Operation = Operation { kind: "watch", name: "watch" };

const FULL: NotNow = NotNow { why: Why::Full, leader: None };

/// How things stand, for everybody who has a connection: the driver writes it down whenever it changes.
#[derive(Debug)]
pub(super) struct Notice {
    revision: AtomicU64,
    standing: Mutex<Standing>,
}

impl Notice {
    pub(super) fn new(standing: Standing) -> Notice {
        Notice { revision: AtomicU64::new(standing.revision), standing: Mutex::new(standing) }
    }

    /// Everything up to this revision can be read, and its bells have been rung.
    pub(super) fn reach(&self, revision: u64) {
        self.revision.store(revision, Ordering::Release);
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Standing)) {
        change(&mut self.standing.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn read(&self) -> Standing {
        let standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Standing { revision: self.revision.load(Ordering::Acquire), ..standing }
    }

    fn leader(&self) -> String {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).leader.clone()
    }
}

/// What connections have asked and the driver has not looked at.
pub(super) struct Calls {
    calls: mpsc::UnboundedReceiver<Call>,
    waiting: Arc<AtomicUsize>,
}

impl Calls {
    pub(super) async fn recv(&mut self) -> Option<Call> {
        let call = self.calls.recv().await?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(call)
    }

    pub(super) fn try_recv(&mut self) -> Option<Call> {
        let call = self.calls.try_recv().ok()?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(call)
    }
}

/// Where clients' connections bring what they ask.
#[derive(Clone, Debug)]
pub(super) struct Counter {
    notice: Arc<Notice>,
    calls: mpsc::UnboundedSender<Call>,
    waiting: Arc<AtomicUsize>,
    watchers: Arc<Watchers>,
    visit: Arc<Visit>,
    tracer: Tracer,
    tally: Tally,
}

#[derive(Debug, Default)]
struct Watchers {
    last: AtomicU64,
    count: AtomicUsize,
}

impl Counter {
    pub(super) fn new(notice: Arc<Notice>, tracer: Tracer, tally: Tally) -> (Counter, Calls) {
        let (sender, calls) = mpsc::unbounded_channel();
        let waiting = Arc::<AtomicUsize>::default();
        let (watchers, visit) = (Arc::default(), Arc::default());
        let counter = Counter { notice, calls: sender, waiting: Arc::clone(&waiting), watchers, visit, tracer, tally };
        (counter, Calls { calls, waiting })
    }

    /// The same for a connection: it decides who is let in.
    pub(super) fn visited(&self, visit: Arc<Visit>) -> Counter {
        Counter { visit, ..self.clone() }
    }

    fn is_full(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) >= CALLS_MAX
    }

    /// A node that has ended drops it, and whoever waits for an answer is told so.
    fn call(&self, order: Order) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _ = self.calls.send(Call { guest: self.visit.name(), order });
    }

    fn not_now(&self, why: &str) -> message::NotNow {
        message::NotNow { why: why.to_owned(), leader: self.notice.leader(), retry_after_ms: RETRY_AFTER_MS }
    }

    /// The connection that spoke for them is gone.
    fn lose(&self, guest: &Guest, sessions: Vec<Lost>) {
        if !sessions.is_empty() {
            self.call(Order::Lost { guest: guest.signs_as(), sessions });
        }
    }

    fn full(&self) -> message::NotNow {
        self.not_now(&FULL.to_string())
    }
}

impl Service for Counter {
    type Guest = Guest;

    fn standing(&self) -> Standing {
        self.notice.read()
    }

    fn admit(&self, hello: &Hello) -> Result<Guest, (Objection, String)> {
        self.visit.admit(&hello.token).map_err(|denied| (Objection::Token, denied.to_string()))
    }

    fn submit(&self, guest: &Guest, request: Request, owed: Owed) {
        let (mut span, operation) = (self.tracer.request(&request), tracer::request(&request));
        let request = match guest.sign(request) {
            Ok(request) => request,
            Err(denied) => {
                let refusal = denied.into();
                tracer::refused(&mut span, &refusal);
                self.tally.stream(operation, Came::Refused);
                return owed.outcome(reply::Outcome::of(&Err(refusal), 0));
            }
        };
        if self.is_full() {
            tracer::not_now(&mut span, &FULL);
            self.tally.stream(operation, Came::NotNow);
            return owed.not_now(self.full());
        }
        let here = self.clone();
        let answer = self.tally.counted(operation, move |outcome| match outcome {
            Outcome::Done { reply, revision } => owed.outcome(reply::Outcome { revision, refusal: None, reply: Some(reply) }),
            Outcome::Refused(refusal) => owed.outcome(reply::Outcome::of(&Err(refusal), 0)),
            Outcome::NotNow(not_now) => owed.not_now(here.not_now(&not_now.to_string())),
            Outcome::Unknown => owed.unknown("the node that was to do it has lost the lead"),
        });
        self.call(Order::Submit { request, answer: answer.traced(span) });
    }

    fn ask(&self, guest: &Guest, inquiry: Inquiry, owed: Owed) {
        let consistency = match inquiry.consistency() {
            message::Consistency::Linearizable => Consistency::Linearizable,
            message::Consistency::Local => Consistency::Local,
        };
        let Inquiry { question, seen, .. } = inquiry;
        let Some(query) = question.and_then(|it| it.query) else {
            return owed.refuse(&Refusal::Malformed("a question that this version does not know".to_owned()));
        };
        let (mut span, operation) = (self.tracer.question(&query), tracer::question(&query));
        if self.is_full() {
            tracer::not_now(&mut span, &FULL);
            self.tally.stream(operation, Came::NotNow);
            return owed.not_now(self.full());
        }
        if let Err(denied) = guest.may_ask(&query) {
            let refusal = denied.into();
            tracer::refused(&mut span, &refusal);
            self.tally.stream(operation, Came::Refused);
            return owed.refuse(&refusal);
        }
        let here = self.clone();
        let answer = self.tally.counted(operation, move |answered| match answered {
            Ok(answered) => owed.answer(answered),
            Err(Unanswered::Refused(refusal)) => owed.refuse(&refusal),
            Err(Unanswered::NotNow(not_now)) => owed.not_now(here.not_now(&not_now.to_string())),
        });
        self.call(Order::Ask { query, consistency, seen, answer: answer.traced(span) });
    }

    fn watch(&self, guest: &Guest, interest: &Interest, bell: Bell, charge: Charge) -> Result<u64, Refusal> {
        let count = |came| self.tally.stream(WATCH, came);
        guest.may_watch(interest).inspect_err(|_| count(Came::Refused))?;
        if self.watchers.count.fetch_add(1, Ordering::Relaxed) >= WATCHES_MAX {
            self.watchers.count.fetch_sub(1, Ordering::Relaxed);
            count(Came::Refused);
            return Err(Refusal::Limit { what: "watches on this node".to_owned(), max: WATCHES_MAX as u64 });
        }
        let watcher = self.watchers.last.fetch_add(1, Ordering::Relaxed) + 1;
        count(Came::Done);
        self.call(Order::Attend { watcher, interest: interest.clone(), bell, charge });
        Ok(watcher)
    }

    fn unwatch(&self, watcher: u64, charge: Charge) {
        self.watchers.count.fetch_sub(1, Ordering::Relaxed);
        self.call(Order::Leave { watcher, charge });
    }

    fn events(&self, asked: ReadEvents, reading: Reading) {
        self.call(Order::Events { asked, reading });
    }

    fn bind(&self, guest: &Guest, binding: Binding) {
        let request = Request::of(Command::Bind(Bind { sessions: binding.sessions().to_vec() }));
        let operation = tracer::request(&request);
        if !binding.again() {
            // They were opened on this connection, as it says, and are bound to it already: nothing comes of it but their end, which is for those who may have sessions.
            return match request.command.as_ref().map_or(Ok(()), |it| guest.may_submit(it)) {
                Ok(()) => self.lose(guest, binding.done(0)),
                Err(denied) => {
                    self.tally.stream(operation, Came::Refused);
                    binding.refuse(&denied.into());
                }
            };
        }
        if self.is_full() {
            self.tally.stream(operation, Came::NotNow);
            return binding.not_now(self.full());
        }
        let request = match guest.sign(request) {
            Ok(request) => request,
            Err(denied) => {
                self.tally.stream(operation, Came::Refused);
                return binding.refuse(&denied.into());
            }
        };
        let (here, guest) = (self.clone(), guest.clone());
        let answer = self.tally.counted(operation, move |outcome| match outcome {
            Outcome::Done { reply: Reply::Bound(bound), .. } => here.lose(&guest, binding.done(bound.binding)),
            Outcome::Refused(refusal) => binding.refuse(&refusal),
            // It may be bound twice: the later number counts.
            Outcome::Done { .. } | Outcome::Unknown => binding.not_now(here.not_now("it is not known whether they are bound")),
            Outcome::NotNow(not_now) => binding.not_now(here.not_now(&not_now.to_string())),
        });
        self.call(Order::Submit { request, answer });
    }

    fn administer(&self, guest: &Guest, administration: Administration, owed: Owed) {
        let (mut span, operation) = (self.tracer.errand(&administration), tracer::errand(&administration));
        if let Err(denied) = guest.may_administer(errand(&administration)) {
            let refusal = denied.into();
            tracer::refused(&mut span, &refusal);
            self.tally.stream(operation, Came::Refused);
            return owed.refuse(&refusal);
        }
        if self.is_full() {
            tracer::not_now(&mut span, &FULL);
            self.tally.stream(operation, Came::NotNow);
            return owed.not_now(self.full());
        }
        let here = self.clone();
        let answer = self.tally.counted(operation, move |attended| match attended {
            Ok(attended) => owed.administered(attended),
            Err(Unattended::NotNow(not_now)) => owed.not_now(here.not_now(&not_now.to_string())),
            Err(Unattended::Unknown) => owed.unknown("the node that was to do it has lost the lead"),
        });
        self.call(Order::Administer { administration, answer: answer.traced(span) });
    }

    fn lost(&self, guest: &Guest, sessions: Vec<Lost>) {
        self.lose(guest, sessions);
    }

    async fn dismissed(&self, guest: &Guest) -> (Objection, String) {
        guest.withdrawn().await;
        (Objection::Token, Denied::Withdrawn.to_string())
    }
}

/// What is needed for it.
fn errand(administration: &Administration) -> Errand {
    match administration {
        Administration::Status(_) => Errand::Status,
        Administration::Add(_) | Administration::Remove(_) => Errand::Members,
        Administration::Transfer(_) => Errand::Transfer,
        Administration::Snapshot(_) => Errand::Snapshot,
        Administration::ReadBackup(_) => Errand::Backup,
    }
}
