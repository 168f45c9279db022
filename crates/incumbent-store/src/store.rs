//! The store: one door in for what changes it, one for what is asked of it.
//!
//! Everything is a function of the entries that were applied: no clock, no chance, ordered maps only. So replicas that have applied the same entries are equal
//! ([`Store::digest`], S4), and answer equally from then on.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::clients::Clients;
use crate::command::{Command, Request};
use crate::elections::{Elections, INCARNATION_MAX, TERM_MAX};
use crate::encoding::Entry;
use crate::event::Event;
use crate::journal::Journal;
use crate::keys::Keys;
use crate::keys::item::Span;
use crate::limits::Limits;
use crate::query::{Answer, Happened, ListSessions, Query, ReadEvents, SessionViews, Status};
use crate::refusal::Refusal;
use crate::reply::{Outcome, Reply};
use crate::sessions::Sessions;
use crate::snapshot::digest_of;
use crate::time::{Stamp, Time};

/// A revision is the term of a token. Long before they do not fit, nothing more is taken: one command may use many.
pub(crate) const REVISION_MAX: u64 = TERM_MAX - (1 << 24);

/// The state of the service.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) limits: Limits,
    pub(crate) incarnation: u16,
    /// The time of the last entry.
    pub(crate) now: Time,
    pub(crate) journal: Journal,
    pub(crate) sessions: Sessions,
    pub(crate) clients: Clients,
    pub(crate) elections: Elections,
    pub(crate) keys: Keys,
}

impl Store {
    /// An empty store. Its incarnation is 0, or greater if another of the same name was there before.
    ///
    /// # Panics
    /// If the incarnation has more than 15 bits.
    pub fn new(incarnation: u16) -> Store {
        Store::with_limits(incarnation, Limits::STANDARD)
    }

    /// An empty store with limits of its own. All replicas must have the same.
    pub fn with_limits(incarnation: u16, limits: Limits) -> Store {
        assert!(incarnation <= INCARNATION_MAX, "an incarnation has 15 bits");
        Store {
            limits,
            incarnation,
            now: Time::ZERO,
            journal: Journal::new(),
            sessions: Sessions::default(),
            clients: Clients::default(),
            elections: Elections::default(),
            keys: Keys::default(),
        }
    }

    /// The revision of the last change.
    pub fn revision(&self) -> u64 {
        self.journal.revision()
    }

    /// The time of the last entry.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Counts the lives of this store.
    pub fn incarnation(&self) -> u16 {
        self.incarnation
    }

    /// Applies all requests of an entry. What came of each, in their order; what has changed, behind what is in `events`.
    pub fn apply_entry(&mut self, entry: Entry, events: &mut Vec<Arc<Event>>) -> Vec<Outcome> {
        let stamp = entry.stamp();
        entry.requests.into_iter().map(|it| self.answer(stamp, it, events)).collect()
    }

    /// Applies one request. What has changed goes behind what is in `events`.
    ///
    /// # Panics
    /// If time goes back: a leader that stamps so is broken, and no replica may go on with it.
    pub fn apply(&mut self, stamp: Stamp, request: Request, events: &mut Vec<Arc<Event>>) -> Result<Reply, Refusal> {
        self.answer(stamp, request, events).result()
    }

    /// The same, with the revision after it. Of a request that is repeated, that is the revision after it was carried out, and not the one of now: whoever watches from there misses nothing.
    fn answer(&mut self, stamp: Stamp, request: Request, events: &mut Vec<Arc<Event>>) -> Outcome {
        assert!(stamp.at >= self.now, "cluster time never goes back");
        self.now = stamp.at;
        let Request { client, sequence, answered, guest, command } = request;
        // Only what is counted can be repeated.
        let digest = command.as_ref().filter(|_| client != 0).map(digest_of).unwrap_or_default();
        if client != 0 {
            if sequence == 0 {
                return Outcome::of(&Err(Refusal::malformed("requests of a client are counted from 1")), self.journal.revision());
            }
            if let Some(outcome) = self.clients.look_up(client, &guest, sequence, answered, digest) {
                return outcome;
            }
        }
        let outcome = self.carry_out(stamp, &guest, command);
        self.journal.settle(&self.limits, events);
        let outcome = Outcome::of(&outcome, self.journal.revision());
        if client != 0 {
            self.clients.remember(client, sequence, digest, outcome.clone(), &self.limits);
        }
        outcome
    }

    fn carry_out(&mut self, stamp: Stamp, guest: &str, command: Option<Command>) -> Result<Reply, Refusal> {
        let command = command.ok_or_else(|| Refusal::malformed("a command that this version does not know"))?;
        if self.journal.revision() > REVISION_MAX {
            return Err(Refusal::TokensExhausted);
        }
        self.check_owner(guest, &command)?;
        match &command {
            Command::Introduce(_) => {
                let client = self.journal.advance();
                self.clients.introduce(client, guest, &self.limits);
                Ok(Reply::Introduced(client))
            }
            Command::OpenSession(it) => self.open_session(stamp, guest, it),
            Command::KeepAlive(it) => self.keep_alive(stamp, guest, it),
            Command::EndSession(it) => self.end_session(stamp, it),
            Command::Expire(it) => self.expire(stamp, it),
            Command::Bind(it) => self.bind(stamp, guest, it),
            Command::Campaign(it) => self.campaign(stamp, it),
            Command::Renew(it) => self.renew(stamp, it),
            Command::Proclaim(it) => self.proclaim(stamp, it),
            Command::Resign(it) => self.resign(stamp, it),
            Command::Withdraw(it) => self.withdraw(stamp, it),
            Command::Ask(it) => self.ask(stamp, guest, it),
            Command::Evict(it) => self.evict(stamp, it),
            Command::Annotate(it) => self.annotate(stamp, it),
            Command::Complete(it) => self.complete(stamp, it),
            Command::Raise(it) => self.raise(stamp, it),
            Command::Forget(it) => self.forget(it),
            Command::Put(it) => self.put(stamp, it),
            Command::Delete(it) => self.delete(stamp, it),
            Command::Transact(it) => self.transact(stamp, it),
            Command::Compact(it) => self.compact(it),
        }
    }

    /// Answers a question, as things stand at this revision.
    pub fn query(&self, query: &Query) -> Result<Answer, Refusal> {
        match query {
            Query::Status(_) => Ok(Answer::Status(self.status())),
            Query::Look(name) => {
                let known = self.elections.find(name).map(|it| it.board_told(name, self.limits.answer_bytes_max));
                Ok(Answer::Board(
                    known.unwrap_or_else(|| crate::election::Board { election: name.clone(), ..Default::default() }),
                ))
            }
            Query::Elections(asked) => Ok(Answer::Elections(self.elections.list(asked, self.limits.answer_bytes_max))),
            Query::Inquire(asked) => Ok(Answer::Seat(self.elections.inquire(asked, self.now))),
            Query::Session(id) => self.sessions.view(*id, self.now, true).map(Answer::Session).ok_or(Refusal::SessionGone(*id)),
            Query::Sessions(asked) => Ok(Answer::Sessions(self.list_sessions(asked))),
            Query::Range(asked) => self.keys.read(asked, &self.journal, &self.limits).map(Answer::Items),
            Query::Events(asked) => self.events(asked, self.limits.answer_bytes_max).map(|it| Answer::Events(it.into())),
        }
    }

    /// Tells what has happened, as far as it is kept: so many bytes of it at most, but always a whole revision.
    ///
    /// # Errors
    /// If it is not.
    pub fn events(&self, asked: &ReadEvents, bytes_max: usize) -> Result<Happened, Refusal> {
        self.journal.read(asked, bytes_max)
    }

    /// Whether a session is to end with its connection, and this guest may end it. Looks at nothing that is attached to it: one connection may have had very many.
    pub fn ends_with_connection(&self, guest: &str, session: u64) -> bool {
        self.sessions.live(session).is_some_and(|it| it.ends_with_connection) && !self.sessions.is_anothers(session, guest)
    }

    /// Whether an answer may take more than a moment: whoever has other things to do lets a copy of the store answer it elsewhere.
    pub fn takes_long(&self, query: &Query) -> bool {
        /// So many of anything are a moment.
        const FEW: usize = 100;
        match query {
            Query::Status(_) | Query::Inquire(_) | Query::Session(_) | Query::Events(_) => false,
            Query::Elections(_) | Query::Sessions(_) => true,
            Query::Look(name) => self.elections.find(name).is_some_and(|it| it.holders.len() + it.line.len() > FEW),
            Query::Range(asked) => {
                let is_short = asked.span.as_ref().is_none_or(Span::is_one)
                    || (1..=FEW as u64).contains(&asked.limit) && !asked.counts && !asked.count_only;
                // To see what was, all that came after is taken back.
                !is_short || asked.revision != 0
            }
        }
    }

    fn status(&self) -> Status {
        Status {
            revision: self.journal.revision(),
            oldest: self.journal.oldest(),
            incarnation: u32::from(self.incarnation),
            now_ns: self.now.as_nanos(),
            sessions: self.sessions.len() as u64,
            elections: self.elections.len() as u64,
            keys: self.keys.len() as u64,
            keys_bytes: self.keys.bytes() as u64,
            clients: self.clients.len() as u64,
            events: self.journal.len() as u64,
        }
    }

    fn list_sessions(&self, asked: &ListSessions) -> SessionViews {
        let limit = match asked.limit {
            0 => Limits::LISTED_MAX,
            limit => usize::try_from(limit).unwrap_or(usize::MAX).min(Limits::LISTED_MAX),
        };
        let mut rest = self.sessions.after(asked.after);
        let sessions = rest.by_ref().take(limit).filter_map(|it| self.sessions.view(it, self.now, false)).collect();
        SessionViews { sessions, more: rest.next().is_some() }
    }
}
