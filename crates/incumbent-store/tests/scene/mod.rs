//! A store with a clock that a test moves, and short words for what it asks.

#![allow(dead_code, reason = "each test uses some of it")]

use std::sync::Arc;

use incumbent_store::command::*;
use incumbent_store::election::Board;
use incumbent_store::event::{Change, Event};
use incumbent_store::keys::item::{Item, Span};
use incumbent_store::keys::transaction::*;
use incumbent_store::limits::Limits;
use incumbent_store::query::*;
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::{Expired, InLine, Reply};
use incumbent_store::store::Store;
use incumbent_store::time::{Stamp, Time};

pub(crate) type Outcome = Result<Reply, Refusal>;

pub(crate) struct Scene {
    pub(crate) store: Store,
    pub(crate) at: Time,
    /// Those of the last command.
    pub(crate) events: Vec<Arc<Event>>,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        Scene::with_limits(Limits::STANDARD)
    }

    pub(crate) fn with_limits(limits: Limits) -> Scene {
        Scene { store: Store::with_limits(0, limits), at: Time::ZERO, events: Vec::new() }
    }

    pub(crate) fn pass_ms(&mut self, ms: u64) {
        self.at = self.at.after_ms(ms);
    }

    pub(crate) fn request(&mut self, request: Request) -> Outcome {
        self.events.clear();
        let wall_ms = 1_700_000_000_000 + self.at.as_nanos() / 1_000_000;
        self.store.apply(Stamp { at: self.at, wall_ms }, request, &mut self.events)
    }

    pub(crate) fn ask(&mut self, command: Command) -> Outcome {
        self.request(Request::of(command))
    }

    /// What the events of the last command were about, in short.
    pub(crate) fn heard(&self) -> Vec<String> {
        self.events.iter().map(|it| told(it)).collect()
    }

    pub(crate) fn open(&mut self, ttl_ms: u64) -> u64 {
        self.open_as(OpenSession { ttl_ms, ..OpenSession::default() }).expect("opened")
    }

    pub(crate) fn open_as(&mut self, wanted: OpenSession) -> Result<u64, Refusal> {
        let Reply::Opened(session) = self.ask(Command::OpenSession(wanted))? else { panic!("not opened") };
        Ok(session)
    }

    pub(crate) fn keep_alive(&mut self, sessions: &[u64]) -> Vec<u64> {
        match self.ask(Command::KeepAlive(KeepAlive { sessions: sessions.to_vec() })) {
            Ok(Reply::KeptAlive(kept)) => kept.gone,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn expire(&mut self) -> Expired {
        match self.ask(Command::Expire(Expire { limit: 0 })) {
            Ok(Reply::Expired(expired)) => expired,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn end(&mut self, session: u64) -> Outcome {
        self.ask(Command::EndSession(EndSession { session, ..EndSession::default() }))
    }

    pub(crate) fn campaign(&mut self, bid: Campaign) -> Outcome {
        self.ask(Command::Campaign(bid))
    }

    /// The token of one that must be granted.
    pub(crate) fn win(&mut self, bid: Campaign) -> u64 {
        match self.campaign(bid) {
            Ok(Reply::Granted(granted)) => granted.token,
            other => panic!("not granted: {other:?}"),
        }
    }

    /// How things stand for one that must wait.
    pub(crate) fn wait(&mut self, bid: Campaign) -> InLine {
        match self.campaign(bid) {
            Ok(Reply::InLine(in_line)) => in_line,
            other => panic!("not in line: {other:?}"),
        }
    }

    pub(crate) fn resign(&mut self, election: &str, token: u64, to: &str) -> Outcome {
        let resign = Resign { election: election.into(), token, reason: String::new(), to: to.into() };
        self.ask(Command::Resign(resign))
    }

    pub(crate) fn look(&self, election: &str) -> Board {
        match self.store.query(&Query::Look(election.into())) {
            Ok(Answer::Board(board)) => board,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn leaders(&self, election: &str) -> Vec<(String, u64)> {
        self.look(election).leaders.into_iter().map(|it| (it.identity, it.token)).collect()
    }

    pub(crate) fn put(&mut self, key: &str, value: &str) -> Outcome {
        self.ask(Command::Put(put(key, value)))
    }

    pub(crate) fn item(&self, key: &str) -> Option<Item> {
        self.range(Range { span: Some(Span::key(key.to_owned())), ..Range::default() }).expect("read").items.pop()
    }

    pub(crate) fn value(&self, key: &str) -> Option<String> {
        self.item(key).map(|it| String::from_utf8(it.value.to_vec()).expect("text"))
    }

    pub(crate) fn range(&self, range: Range) -> Result<Items, Refusal> {
        let Answer::Items(items) = self.store.query(&Query::Range(range))? else { panic!("not read") };
        Ok(items)
    }

    pub(crate) fn transact(&mut self, guards: Vec<Guard>, then: Vec<Act>, otherwise: Vec<Act>) -> Result<Transacted, Refusal> {
        let operations = |acts: Vec<Act>| acts.into_iter().map(Operation::from).collect();
        let transaction = Transaction { guards, then: operations(then), otherwise: operations(otherwise) };
        let Reply::Transacted(done) = self.ask(Command::Transact(transaction))? else { panic!("not transacted") };
        Ok(done)
    }
}

pub(crate) fn bid(session: u64, election: &str, identity: &str) -> Campaign {
    let name = identity.split('_').next().unwrap_or_default().to_owned();
    Campaign { session, election: election.into(), identity: identity.into(), name, ..Campaign::default() }
}

pub(crate) fn put(key: &str, value: &str) -> Put {
    Put { key: key.to_owned().into(), value: value.to_owned().into(), ..Put::default() }
}

pub(crate) fn told(event: &Event) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match event.change.as_ref().expect("known") {
        Change::Put(it) => format!("put {}", text(&it.item.key)),
        Change::Deleted(it) => format!("deleted {}", text(&it.previous.key)),
        Change::SessionEnded(it) => format!("session ended: {}", it.reason),
        Change::Elected(it) => format!("elected {}", it.holder.identity),
        Change::Ended(it) => format!("ended {}: {}", it.past.identity, it.past.reason),
        Change::Proclaimed(it) => format!("proclaimed {}", text(&it.value)),
        Change::Wished(it) => format!("wished of {} by {}", it.identity, it.wish.by),
        Change::Joined(it) => format!("joined {}", it.identity),
        Change::Left(it) => format!("left {}", it.identity),
        Change::First(it) => format!("first {}", it.identity),
        Change::Noted(it) => format!("noted {}", it.note.text),
        Change::Completed(it) => format!("completed {}", it.completion.job),
    }
}
