//! What a candidacy is in traces: a span from standing by to being elected, and below it one for the time in office, with what happened to the command.

use std::cell::RefCell;

use incumbent::Leadership;
use incumbent_supervisor::Ending;
use incumbent_traces::{Context, Kind, Span, Traces};

use super::term::Served;

/// Written by whoever serves the term; nothing where nobody traces.
pub(super) struct Diary {
    traces: Traces,
    election: String,
    /// The campaign, then the time in office.
    span: RefCell<Span>,
}

impl Diary {
    pub(super) fn new(traces: Traces, election: &str) -> Diary {
        Diary { traces, election: election.to_owned(), span: RefCell::default() }
    }

    /// A candidate from now on.
    pub(super) fn stand_by(&self) {
        let mut span = self.traces.begin("campaign", Kind::Internal, None);
        span.set("incumbent.election", self.election.clone());
        *self.span.borrow_mut() = span;
    }

    /// The campaign is over, and the term begins.
    pub(super) fn enter(&self, leadership: &Leadership) {
        let mut span = self.span.borrow_mut();
        span.set("incumbent.outcome", "elected");
        let mut office = self.traces.begin("in office", Kind::Internal, span.context());
        office.set("incumbent.election", self.election.clone());
        office.set("incumbent.identity", leadership.identity().as_str().to_owned());
        office.set("incumbent.token", leadership.token().get());
        *span = office;
    }

    /// Something has happened.
    pub(super) fn note(&self, event: &'static str) {
        self.span.borrow_mut().event(event);
    }

    /// The command is told to end.
    pub(super) fn stop(&self, why: &str) {
        let mut span = self.span.borrow_mut();
        span.event("stopping");
        span.set("incumbent.why", why.to_owned());
    }

    /// The term is over; `None` if it ended by a failure of this process.
    pub(super) fn leave(&self, served: Option<Served>) {
        let mut span = self.span.take();
        let outcome = match served {
            Some(Served::Ended(Ending::Code(code))) => {
                span.set("process.exit.code", u64::try_from(code).unwrap_or_default());
                "command ended"
            }
            Some(Served::Ended(Ending::Signal(_))) => "command ended by a signal",
            Some(Served::Lost) => "lost",
            Some(Served::GivenAway) => "given away",
            Some(Served::Told(..)) => "told to end",
            Some(Served::NotStarted) => "command not started",
            Some(Served::NotFenced) => "former leader not fenced",
            Some(Served::AlreadyDone) => "already done",
            Some(Served::Missed) => "missed",
            None => "failed",
        };
        span.set("incumbent.outcome", outcome);
    }

    /// For the command, which may go on with the trace.
    pub(super) fn context(&self) -> Option<Context> {
        self.span.borrow().context()
    }
}
