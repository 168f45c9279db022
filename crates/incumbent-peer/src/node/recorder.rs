//! What a node did, line by line, for whoever wants to know afterwards: a JSON object each, stamped with the machine's own clock (`CLOCK_BOOTTIME`, in nanoseconds).
//!
//! Nodes on one machine share that clock, so their records can be merged and judged as one run: what the lab sees of its own worlds can be seen of a real one.
//! Each line is written at once; what a node did not get to write before it was killed, it did not tell anyone either, save for the last message.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use incumbent_protocol::machine::Message;
use incumbent_protocol::protocol::{Claim, Event, NodeId, Purpose, Record, Term, Wire};
use incumbent_protocol::time::Instant;

pub(super) struct Recorder {
    file: File,
    me: NodeId,
    line: String,
}

impl Recorder {
    pub(super) fn open(path: &Path, me: NodeId) -> io::Result<Recorder> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Recorder { file, me, line: String::new() })
    }

    pub(super) fn started(&mut self, at: Instant, election: &str, disk: Option<Record>) {
        self.begin(at, election, "started");
        self.record(disk);
        self.end();
    }

    pub(super) fn in_office(&mut self, at: Instant, election: &str, term: Term, until: Option<Instant>) {
        self.begin(at, election, "in-office");
        self.number("term", term.0);
        if let Some(until) = until {
            self.number("until", until.as_nanos());
        }
        self.end();
    }

    pub(super) fn out_of_office(&mut self, at: Instant, election: &str, term: Term) {
        self.begin(at, election, "out-of-office");
        self.number("term", term.0);
        self.end();
    }

    pub(super) fn told(&mut self, at: Instant, election: &str, event: &Event) {
        let (name, term, node) = match *event {
            Event::Elected { term } => ("elected", Some(term), None),
            Event::Lost { term, .. } => ("lost", Some(term), None),
            Event::Follows { leader, term } => ("follows", Some(term), Some(leader)),
            Event::LeaderGone { leader, term, .. } => ("leader-gone", Some(term), Some(leader)),
            Event::Contends { term } => ("contends", Some(term), None),
            Event::Rejected { term } => ("rejected", Some(term), None),
            Event::Asked { to } => ("asked", None, Some(to)),
            Event::Ignored { from } => ("ignored", None, Some(from)),
        };
        self.begin(at, election, name);
        if let Some(term) = term {
            self.number("term", term.0);
        }
        if let Some(node) = node {
            self.number("other", u64::from(node.0));
        }
        match event {
            Event::Lost { reason, .. } => self.text("reason", &reason.to_string()),
            Event::LeaderGone { cause, .. } => self.text("cause", &cause.to_string()),
            Event::Elected { .. }
            | Event::Follows { .. }
            | Event::Contends { .. }
            | Event::Rejected { .. }
            | Event::Asked { .. }
            | Event::Ignored { .. } => {}
        }
        self.end();
    }

    /// A message, and what was safe on the disk when it was sent.
    pub(super) fn sent(&mut self, at: Instant, election: &str, to: NodeId, message: &Message, durable: Option<Record>) {
        self.begin(at, election, "sent");
        self.number("to", u64::from(to.0));
        self.text("name", message.name());
        self.text(
            "purpose",
            match message.purpose() {
                Purpose::Contest => "contest",
                Purpose::Guard => "guard",
                Purpose::Upkeep => "upkeep",
            },
        );
        match message.claim(self.me, to) {
            Claim::Nothing => {}
            Claim::Term(term) => self.number("claims-term", term.0),
            Claim::Vote { term, candidate } => {
                self.number("claims-vote-in", term.0);
                self.number("claims-vote-for", u64::from(candidate.0));
            }
            Claim::Office(term) => self.number("claims-office", term.0),
        }
        self.record(durable);
        self.end();
    }

    fn begin(&mut self, at: Instant, election: &str, what: &str) {
        self.line.clear();
        let _ =
            write!(self.line, "{{\"at\":{},\"node\":{},\"election\":{election:?},\"what\":\"{what}\"", at.as_nanos(), self.me);
    }

    fn number(&mut self, key: &str, value: u64) {
        let _ = write!(self.line, ",\"{key}\":{value}");
    }

    fn text(&mut self, key: &str, value: &str) {
        let _ = write!(self.line, ",\"{key}\":{value:?}");
    }

    fn record(&mut self, record: Option<Record>) {
        if let Some(record) = record {
            self.number("disk-term", record.term.0);
            if let Some(vote) = record.vote {
                self.number("disk-vote", u64::from(vote.0));
            }
        }
    }

    fn end(&mut self) {
        self.line.push_str("}\n");
        if let Err(why) = self.file.write_all(self.line.as_bytes()) {
            tracing::warn!(%why, "cannot record what this node does");
        }
    }
}
