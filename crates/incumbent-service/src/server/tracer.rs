//! Traces of what a node does for others: a span for each request, and for each time in which nobody led or this node did.
//!
//! A span says which operation, in which election or under which keys, in which term, what came of it and where the time went. It has no value, no token, no whole key, and of a refusal its kind alone: its
//! words may quote what was asked. Keep-alives are not traced, for they are many and all the same.

use incumbent_client::administration::{Administration, Attended};
use incumbent_store::command::{Command, Request};
use incumbent_store::keys::item::Span as Keys;
use incumbent_store::keys::transaction::{Act, Transaction};
use incumbent_store::query::{Answered, Query};
use incumbent_store::refusal::Refusal;
use incumbent_traces::{Context, Counts, Kind, Span, Traces};
use tokio::sync::watch;

use super::administration::Unattended;
use super::handle::{NotNow, Outcome, Unanswered, Why};
use super::tally::{Came, Operation};
use crate::replica::Role;

/// What a request has that nobody has answered.
const UNANSWERED: &str = "nobody has answered it";

const ELECTION: &str = "incumbent.election";
const KEYS_UNDER: &str = "incumbent.keys_under";
const OUTCOME: &str = "incumbent.outcome";
const REASON: &str = "incumbent.reason";
const REVISION: &str = "incumbent.revision";
const TERM: &str = "incumbent.term";
const LEADER: &str = "incumbent.leader";
const WHY: &str = "incumbent.why";

/// Begins the spans of a node.
#[derive(Clone, Debug)]
pub(crate) struct Tracer {
    traces: Traces,
    role: watch::Receiver<Role>,
}

impl Tracer {
    pub(super) fn new(traces: Traces, role: watch::Receiver<Role>) -> Tracer {
        Tracer { traces, role }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.traces.counts()
    }

    /// A request by HTTP. `caller` is what the request says of its own trace.
    pub(crate) fn http(&self, caller: impl FnOnce() -> Option<Context>) -> Span {
        if !self.traces.is_on() {
            return Span::none();
        }
        self.begin("http", Kind::Server, caller())
    }

    /// A request of a client of ours.
    pub(super) fn request(&self, request: &Request) -> Span {
        self.command(request, Kind::Server, None)
    }

    /// A question of a client of ours.
    pub(super) fn question(&self, query: &Query) -> Span {
        self.query(query, Kind::Server, None)
    }

    /// A request that is made for another span.
    pub(super) fn request_within(&self, request: &Request, within: Option<Context>) -> Span {
        if within.is_some() { self.command(request, Kind::Internal, within) } else { Span::none() }
    }

    /// A question that is asked for another span.
    pub(super) fn question_within(&self, query: &Query, within: Option<Context>) -> Span {
        if within.is_some() { self.query(query, Kind::Internal, within) } else { Span::none() }
    }

    /// An errand of an operator.
    pub(super) fn errand(&self, administration: &Administration) -> Span {
        self.begin(errand(administration).name, Kind::Server, None)
    }

    #[inline]
    fn begin(&self, name: &'static str, kind: Kind, parent: Option<Context>) -> Span {
        let mut span = self.traces.begin(name, kind, parent);
        if span.is_told() {
            span.set(TERM, self.role.borrow().term.0);
            span.fault(Some(UNANSWERED));
        }
        span
    }

    #[inline]
    fn command(&self, request: &Request, kind: Kind, parent: Option<Context>) -> Span {
        if !self.traces.is_on() {
            return Span::none();
        }
        let Some(command) = &request.command else { return Span::none() };
        let (name, subject) = of_command(command);
        if matches!(command, Command::KeepAlive(_)) {
            return Span::none();
        }
        let mut span = self.begin(name, kind, parent);
        subject.tell(&mut span);
        span
    }

    #[inline]
    fn query(&self, query: &Query, kind: Kind, parent: Option<Context>) -> Span {
        if !self.traces.is_on() {
            return Span::none();
        }
        let (name, subject) = of_query(query);
        let mut span = self.begin(name, kind, parent);
        subject.tell(&mut span);
        span
    }
}

/// What an operation is about.
enum Subject<'a> {
    Election(&'a str),
    Keys(&'a [u8]),
    Nothing,
}

impl Subject<'_> {
    fn tell(self, span: &mut Span) {
        if !span.is_told() {
            return;
        }
        match self {
            Subject::Election(name) => span.set(ELECTION, name.to_owned()),
            Subject::Keys(key) => {
                let folder = key.iter().rposition(|it| *it == b'/').map_or(&[][..], |at| &key[..=at]);
                span.set(KEYS_UNDER, String::from_utf8_lossy(folder).into_owned());
            }
            Subject::Nothing => {}
        }
    }
}

fn keys(span: Option<&Keys>) -> Subject<'_> {
    span.map_or(Subject::Nothing, |it| Subject::Keys(&it.start))
}

/// What a request over the binary stream is called.
pub(super) fn request(request: &Request) -> Operation {
    Operation { kind: "command", name: request.command.as_ref().map_or("other", |it| of_command(it).0) }
}

/// What a question is called.
pub(super) fn question(query: &Query) -> Operation {
    Operation { kind: "question", name: of_query(query).0 }
}

/// What an operator's errand is called.
pub(super) fn errand(administration: &Administration) -> Operation {
    let name = match administration {
        Administration::Status(_) => "cluster status",
        Administration::Add(_) => "cluster add",
        Administration::Remove(_) => "cluster remove",
        Administration::Transfer(_) => "cluster transfer",
        Administration::Snapshot(_) => "cluster snapshot",
        Administration::ReadBackup(_) => "cluster read backup",
    };
    Operation { kind: "errand", name }
}

fn of_command(command: &Command) -> (&'static str, Subject<'_>) {
    use Subject::{Election, Nothing};
    match command {
        Command::Introduce(_) => ("introduce", Nothing),
        Command::OpenSession(_) => ("open session", Nothing),
        Command::KeepAlive(_) => ("keep alive", Nothing),
        Command::EndSession(_) => ("end session", Nothing),
        Command::Expire(_) => ("expire", Nothing),
        Command::Bind(_) => ("bind sessions", Nothing),
        Command::Campaign(it) => ("campaign", Election(&it.election)),
        Command::Renew(it) => ("renew", Election(&it.election)),
        Command::Proclaim(it) => ("proclaim", Election(&it.election)),
        Command::Resign(it) => ("resign", Election(&it.election)),
        Command::Withdraw(it) => ("withdraw", Election(&it.election)),
        Command::Ask(it) => ("ask holder", Election(&it.election)),
        Command::Evict(it) => ("evict", Election(&it.election)),
        Command::Annotate(it) => ("annotate", Election(&it.election)),
        Command::Complete(it) => ("complete", Election(&it.election)),
        Command::Raise(it) => ("raise", Election(&it.election)),
        Command::Forget(it) => ("forget", Election(&it.election)),
        Command::Put(it) => ("put", Subject::Keys(&it.key)),
        Command::Delete(it) => ("delete", keys(it.span.as_ref())),
        Command::Transact(it) => ("transact", of_transaction(it)),
        Command::Compact(_) => ("compact", Nothing),
    }
}

/// What it does first: most have one thing to do.
fn of_transaction(transaction: &Transaction) -> Subject<'_> {
    match transaction.then.first().and_then(|it| it.act.as_ref()) {
        Some(Act::Put(it)) => Subject::Keys(&it.key),
        Some(Act::Delete(it)) => keys(it.span.as_ref()),
        Some(Act::Read(it)) => keys(it.span.as_ref()),
        Some(Act::Transact(_) | Act::Abort(_)) | None => Subject::Nothing,
    }
}

fn of_query(query: &Query) -> (&'static str, Subject<'_>) {
    match query {
        Query::Status(_) => ("status", Subject::Nothing),
        Query::Look(election) => ("look", Subject::Election(election)),
        Query::Elections(_) => ("list elections", Subject::Nothing),
        Query::Inquire(it) => ("inquire", Subject::Election(&it.election)),
        Query::Session(_) => ("session", Subject::Nothing),
        Query::Sessions(_) => ("list sessions", Subject::Nothing),
        Query::Range(it) => ("range", keys(it.span.as_ref())),
        Query::Events(_) => ("events", Subject::Nothing),
    }
}

/// What came of something, as its span has it.
pub(super) trait Settles {
    /// Says it of the span. What is not the asker's doing is a fault.
    fn settle(&self, span: &mut Span);

    /// The same, in one word.
    fn came(&self) -> Came;
}

impl Settles for Outcome {
    fn settle(&self, span: &mut Span) {
        match self {
            Outcome::Done { revision, .. } => done(span, Some(*revision)),
            Outcome::Refused(refusal) => refused(span, refusal),
            Outcome::NotNow(why) => not_now(span, why),
            Outcome::Unknown => unknown(span),
        }
    }

    fn came(&self) -> Came {
        match self {
            Outcome::Done { .. } => Came::Done,
            Outcome::Refused(_) => Came::Refused,
            Outcome::NotNow(_) => Came::NotNow,
            Outcome::Unknown => Came::Unknown,
        }
    }
}

impl Settles for Result<Answered, Unanswered> {
    fn settle(&self, span: &mut Span) {
        match self {
            Ok(answered) => done(span, Some(answered.revision)),
            Err(Unanswered::Refused(refusal)) => refused(span, refusal),
            Err(Unanswered::NotNow(why)) => not_now(span, why),
        }
    }

    fn came(&self) -> Came {
        match self {
            Ok(_) => Came::Done,
            Err(Unanswered::Refused(_)) => Came::Refused,
            Err(Unanswered::NotNow(_)) => Came::NotNow,
        }
    }
}

impl Settles for Result<Attended, Unattended> {
    fn settle(&self, span: &mut Span) {
        match self {
            Ok(Attended::Refused(_)) => {
                span.set(OUTCOME, "refused");
                span.fault(None);
            }
            Ok(Attended::Cluster(_) | Attended::Member(_) | Attended::Leader(_) | Attended::Backup(_) | Attended::Piece(_)) => {
                done(span, None)
            }
            Err(Unattended::NotNow(why)) => not_now(span, why),
            Err(Unattended::Unknown) => unknown(span),
        }
    }

    fn came(&self) -> Came {
        match self {
            Ok(Attended::Refused(_)) => Came::Refused,
            Ok(Attended::Cluster(_) | Attended::Member(_) | Attended::Leader(_) | Attended::Backup(_) | Attended::Piece(_)) => {
                Came::Done
            }
            Err(Unattended::NotNow(_)) => Came::NotNow,
            Err(Unattended::Unknown) => Came::Unknown,
        }
    }
}

/// It was refused before the store heard of it.
pub(super) fn refused(span: &mut Span, refusal: &Refusal) {
    span.set(OUTCOME, "refused");
    span.set(REASON, refusal_kind(refusal));
    span.fault(None);
}

/// It has not been done, and may be asked again.
pub(super) fn not_now(span: &mut Span, not_now: &NotNow) {
    let why = match not_now.why {
        Why::NoLeader => "nobody leads",
        Why::NotLeading => "another node leads",
        Why::Superseded => "another node has taken over",
        Why::Full => "too much waits",
        Why::ReadOnly => "the disk is full",
        Why::Closing => "this node is closing",
    };
    span.set(OUTCOME, "not now");
    span.set(REASON, why);
    span.fault(Some(why));
}

fn done(span: &mut Span, revision: Option<u64>) {
    span.set(OUTCOME, "done");
    if let Some(revision) = revision {
        span.set(REVISION, revision);
    }
    span.fault(None);
}

fn unknown(span: &mut Span) {
    span.set(OUTCOME, "unknown");
    span.fault(Some("it is not known whether it was done"));
}

fn refusal_kind(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Malformed(_) => "malformed",
        Refusal::Limit { .. } => "limit",
        Refusal::SessionGone(_) => "session gone",
        Refusal::SessionTaken(_) => "session taken",
        Refusal::NotInOffice(_) => "not in office",
        Refusal::SeatsDiffer(_) => "seats differ",
        Refusal::TooEarly(_) => "too early",
        Refusal::AlreadyComplete(_) => "already complete",
        Refusal::TokensExhausted => "tokens exhausted",
        Refusal::Occupied => "occupied",
        Refusal::NoElection => "no election",
        Refusal::NoKey => "no key",
        Refusal::NoParent => "no parent",
        Refusal::Aborted(_) => "aborted",
        Refusal::Forgotten => "forgotten",
        Refusal::AnswerDropped(_) => "answer dropped",
        Refusal::NumberUsed(_) => "number used",
        Refusal::Compacted(_) => "compacted",
        Refusal::Lagged(_) => "lagged",
        Refusal::Future(_) => "future",
        Refusal::Denied(_) => "denied",
        Refusal::NotInLine(_) => "not in line",
    }
}

/// Who leads, as spans: one for each time without a leader, and one for each in which this node leads.
#[derive(Debug)]
pub(super) struct Leaderships {
    traces: Traces,
    role: Role,
    /// Since nobody is known to lead.
    vacancy: Span,
    /// Since this node leads.
    office: Span,
    /// Why it has last changed who leads, as far as this node can tell.
    why: &'static str,
}

/// What a node knows of itself that may cost it the lead.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Condition {
    Well,
    Closing,
    DiskSlow,
    DiskFull,
}

impl Leaderships {
    pub(super) fn new(traces: Traces, role: Role) -> Leaderships {
        let mut vacancy = traces.begin("leader election", Kind::Internal, None);
        let why = "this node has started";
        vacancy.set(WHY, why);
        Leaderships { traces, role, vacancy, office: Span::none(), why }
    }

    pub(super) fn why(&self) -> &'static str {
        self.why
    }

    /// It has changed.
    pub(super) fn change(&mut self, role: Role, condition: Condition) {
        let before = std::mem::replace(&mut self.role, role);
        self.why = changed_why(before, role, condition);
        if !self.traces.is_on() {
            return;
        }
        if before.leads && (!role.leads || role.term != before.term) {
            let mut office = std::mem::take(&mut self.office);
            office.set(WHY, lost_why(role, condition));
        }
        if before.leader.is_some() && role.leader.is_none() {
            self.vacancy = self.traces.begin("leader election", Kind::Internal, None);
            self.vacancy.set(WHY, vacant_why(before, condition));
        }
        if let Some(leader) = role.leader
            && (before.leader, before.term) != (role.leader, role.term)
        {
            let mut vacancy = std::mem::take(&mut self.vacancy);
            if !vacancy.is_told() {
                // Nobody has missed a leader: it was given away, or another was faster than we noticed.
                vacancy = self.traces.begin("leader election", Kind::Internal, None);
                vacancy.set(WHY, if before.leads { lost_why(role, condition) } else { "another leader was heard of" });
            }
            vacancy.set(TERM, role.term.0);
            vacancy.set(LEADER, u64::from(leader.0));
            vacancy.set("incumbent.leads", role.leads);
        }
        if role.leads && (!before.leads || role.term != before.term) {
            self.office = self.traces.begin("leads", Kind::Internal, None);
            self.office.set(TERM, role.term.0);
        }
    }

    /// The node ends.
    pub(super) fn end(mut self) {
        self.office.set(WHY, "this node has ended");
    }
}

fn changed_why(before: Role, role: Role, condition: Condition) -> &'static str {
    match (before.leader, role.leader) {
        _ if before.leads && !role.leads => lost_why(role, condition),
        (Some(_), None) => vacant_why(before, condition),
        (_, Some(_)) if role.leads => "this node was elected",
        (None, Some(_)) => "a leader was elected, or is heard again",
        (Some(_), Some(_)) => "another leader was heard of",
        (None, None) => "a node stands for election",
    }
}

fn lost_why(role: Role, condition: Condition) -> &'static str {
    match (condition, role.leader) {
        (Condition::Closing, _) => "this node is closing, and gave the lead away",
        (Condition::DiskFull, _) => "the disk of this node is full",
        (Condition::DiskSlow, _) => "the disk of this node is slow",
        (Condition::Well, Some(_)) => "another node leads in a later term: it was given the lead, or did not hear this one",
        (Condition::Well, None) => "a majority was not heard in time, or another node stands",
    }
}

fn vacant_why(before: Role, condition: Condition) -> &'static str {
    if before.leads {
        lost_why(Role { leader: None, ..before }, condition)
    } else {
        "the leader was not heard in time, has gone, or another node stands"
    }
}
