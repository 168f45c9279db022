//! A service without a log: one store behind a lock, served by as many nodes as a test wants. What one node does, all of them know at once.

#![allow(dead_code, reason = "each test uses some of it")]

pub(crate) mod wires;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use incumbent_client::administration::{Administration, Attended, ClusterView};
use incumbent_client::message::{Hello, Inquiry, NotNow, Objection};
use incumbent_client::serve::{Belfry, Bell, Binding, Bounds, Charge, Closed, Lost, Owed, Reading, Service, Standing, serve};
use incumbent_store::command::{Bind, Campaign, Command, EndSession, Expire, OpenSession, Request};
use incumbent_store::event::Event;
use incumbent_store::keys::transaction::Put;
use incumbent_store::limits::Limits;
use incumbent_store::query::{Answered, ReadEvents};
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::{Outcome, Reply};
use incumbent_store::store::Store;
use incumbent_store::time::{Stamp, Time};
use incumbent_store::watch::Interest;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub(crate) const TOKEN: &str = "open sesame";

/// What has not happened by then will not.
const NEVER: Duration = Duration::from_secs(60);

/// What all nodes share.
pub(crate) struct Town {
    state: Mutex<State>,
    /// Events are read later than they are asked for.
    pub(crate) is_slow: AtomicBool,
    /// The next read of events is forgotten.
    pub(crate) forgets: AtomicBool,
    /// Everything that a test may want to wait for.
    happened: tokio::sync::watch::Sender<Happened>,
}

#[derive(Clone, Default, Debug)]
pub(crate) struct Happened {
    /// Copies of commands that came, of those with a number.
    pub(crate) numbered: u64,
    /// Messages that kept sessions alive, and how many sessions each had.
    pub(crate) kept_alive: Vec<usize>,
    /// Connections that were closed without a goodbye, by their sessions.
    pub(crate) lost: Vec<Vec<u64>>,
    /// Why connections have ended.
    pub(crate) closed: Vec<String>,
    pub(crate) connections: u64,
    pub(crate) watches: u64,
    /// Commands that are held back.
    pub(crate) held: usize,
}

struct State {
    store: Store,
    belfry: Belfry,
    watchers: u64,
    at: Time,
    mood: Mood,
    held: Vec<(Request, Owed)>,
    leader: String,
    members: Vec<String>,
    /// Nodes that do not reach the others: they know of no leader, and keep what they are asked.
    cut_off: Vec<String>,
}

/// How commands are taken.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Mood {
    Serve,
    /// They are kept, unanswered.
    Hold,
    /// They are not carried out.
    NotNow,
    /// They are carried out, and the answer says that it is not known.
    Forgetful,
    /// The node refuses them, and does not ask the store.
    Denies,
    /// The same, before it has looked at them at all.
    Rejects,
}

impl Town {
    pub(crate) fn new() -> Arc<Town> {
        Town::with_limits(Limits::STANDARD)
    }

    pub(crate) fn with_limits(limits: Limits) -> Arc<Town> {
        let state = State {
            store: Store::with_limits(0, limits),
            belfry: Belfry::new(),
            watchers: 0,
            at: Time::ZERO,
            mood: Mood::Serve,
            held: Vec::new(),
            leader: String::new(),
            members: Vec::new(),
            cut_off: Vec::new(),
        };
        Arc::new(Town {
            state: Mutex::new(state),
            is_slow: AtomicBool::new(false),
            forgets: AtomicBool::new(false),
            happened: tokio::sync::watch::channel(Happened::default()).0,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, change: impl FnOnce(&mut Happened)) {
        self.happened.send_modify(change);
    }

    pub(crate) fn happened(&self) -> Happened {
        self.happened.borrow().clone()
    }

    /// Until it is as wanted.
    pub(crate) async fn until(&self, wanted: impl Fn(&Happened) -> bool) -> Happened {
        let mut happened = self.happened.subscribe();
        let Ok(as_wanted) = timeout(NEVER, happened.wait_for(|it| wanted(it))).await.map(|it| it.map(|it| it.clone())) else {
            panic!("it never came to what was wanted: {:?}", self.happened());
        };
        as_wanted.expect("the town stands")
    }

    pub(crate) fn set_leader(&self, address: &str) {
        self.state().leader = address.to_owned();
    }

    pub(crate) fn cut_off(&self, addresses: &[&str]) {
        self.state().cut_off = addresses.iter().map(|it| (*it).to_owned()).collect();
    }

    pub(crate) fn set_members(&self, members: &[&str]) {
        self.state().members = members.iter().map(|it| (*it).to_owned()).collect();
    }

    pub(crate) fn set_mood(&self, mood: Mood) {
        let held = {
            let mut state = self.state();
            state.mood = mood;
            if mood == Mood::Hold { Vec::new() } else { std::mem::take(&mut state.held) }
        };
        for (request, owed) in held {
            self.carry_out(request, owed, mood);
        }
    }

    /// Applies something as if another client had asked for it.
    pub(crate) fn apply(&self, command: Command) -> Outcome {
        self.state().apply(Request::of(command))
    }

    /// Takes another store's place, as a node does that was given a snapshot.
    pub(crate) fn leap(&self, store: Store) {
        let mut state = self.state();
        let before = state.store.revision();
        state.store = store;
        state.belfry.ring_all(before);
    }

    pub(crate) fn pass_ms(&self, ms: u64) {
        let mut state = self.state();
        state.at = state.at.after_ms(ms);
    }

    pub(crate) fn expire(&self) {
        self.apply(Command::Expire(Expire { limit: 0 }));
    }

    pub(crate) fn read<T>(&self, look: impl FnOnce(&Store) -> T) -> T {
        look(&self.state().store)
    }

    fn carry_out(&self, request: Request, owed: Owed, mood: Mood) {
        match mood {
            Mood::Serve => {
                let outcome = self.state().apply(request);
                owed.outcome(outcome);
            }
            Mood::Forgetful => {
                self.state().apply(request);
                owed.unknown("lost the lead");
            }
            Mood::NotNow => {
                let leader = self.state().leader.clone();
                owed.not_now(NotNow { why: "nobody leads".to_owned(), leader, retry_after_ms: 20 });
            }
            Mood::Denies => owed.outcome(Outcome::of(&Err(Refusal::Denied("withdrawn".to_owned())), 0)),
            Mood::Rejects => owed.refuse(&Refusal::Limit { what: "operations".to_owned(), max: 0 }),
            Mood::Hold => unreachable!("kept by the caller"),
        }
    }
}

impl State {
    fn apply(&mut self, request: Request) -> Outcome {
        let mut events: Vec<Arc<Event>> = Vec::new();
        let result = self.store.apply(Stamp::at(self.at), request, &mut events);
        let mut more = self.belfry.ring(&events);
        while more {
            more = self.belfry.ring_on();
        }
        Outcome::of(&result, self.store.revision())
    }
}

/// One node of the town.
pub(crate) struct Node {
    pub(crate) town: Arc<Town>,
    pub(crate) number: u64,
    pub(crate) address: String,
}

impl Service for Node {
    type Guest = ();

    fn standing(&self) -> Standing {
        let state = self.town.state();
        let cut_off = state.cut_off.contains(&self.address);
        Standing {
            node: self.number,
            cluster: "town".to_owned(),
            leads: state.leader == self.address && !cut_off,
            leader: if cut_off { String::new() } else { state.leader.clone() },
            leaderless: cut_off,
            members: state.members.clone(),
            revision: state.store.revision(),
        }
    }

    fn admit(&self, hello: &Hello) -> Result<(), (Objection, String)> {
        if hello.token.is_empty() || hello.token == TOKEN { Ok(()) } else { Err((Objection::Token, "who are you?".to_owned())) }
    }

    fn submit(&self, (): &(), request: Request, owed: Owed) {
        if let Some(Command::KeepAlive(kept)) = &request.command {
            self.town.note(|it| it.kept_alive.push(kept.sessions.len()));
        }
        if request.client != 0 {
            self.town.note(|it| it.numbered += 1);
        }
        let mood = {
            let state = self.town.state();
            if state.cut_off.contains(&self.address) { Mood::Hold } else { state.mood }
        };
        if mood == Mood::Hold && !matches!(request.command, Some(Command::Introduce(_))) {
            let held = {
                let mut state = self.town.state();
                state.held.push((request, owed));
                state.held.len()
            };
            self.town.note(|it| it.held = held);
        } else {
            self.town.carry_out(request, owed, if mood == Mood::Hold { Mood::Serve } else { mood });
        }
    }

    fn ask(&self, (): &(), inquiry: Inquiry, owed: Owed) {
        let state = self.town.state();
        let revision = state.store.revision();
        assert!(inquiry.seen <= revision, "R2: nobody has seen what has not happened");
        let query = inquiry.question.and_then(|it| it.query);
        let result = query.map_or(Err(Refusal::Malformed("no question".to_owned())), |it| state.store.query(&it));
        drop(state);
        match result {
            Ok(answer) => owed.answer(Answered { revision, answer: Some(answer) }),
            Err(refusal) => owed.refuse(&refusal),
        }
    }

    fn watch(&self, (): &(), interest: &Interest, bell: Bell, _: Charge) -> Result<u64, Refusal> {
        let mut state = self.town.state();
        state.watchers += 1;
        let watcher = state.watchers;
        state.belfry.add_as(watcher, interest.clone(), bell);
        let watches = state.belfry.len() as u64;
        drop(state);
        self.town.note(|it| it.watches = watches);
        Ok(watcher)
    }

    fn unwatch(&self, watcher: u64, _: Charge) {
        let mut state = self.town.state();
        state.belfry.remove(watcher);
        let watches = state.belfry.len() as u64;
        drop(state);
        self.town.note(|it| it.watches = watches);
    }

    fn events(&self, asked: ReadEvents, reading: Reading) {
        if self.town.forgets.swap(false, Ordering::Relaxed) {
            return;
        }
        let result = self.town.state().store.events(&asked, usize::MAX);
        if self.town.is_slow.load(Ordering::Relaxed) {
            // As from another thread: others come first.
            tokio::spawn(async move {
                tokio::task::yield_now().await;
                reading.done(result);
            });
        } else {
            reading.done(result);
        }
    }

    fn bind(&self, (): &(), binding: Binding) {
        let mut number = 0;
        if binding.again() {
            let bound = self.town.apply(Command::Bind(Bind { sessions: binding.sessions().to_vec() }));
            let Ok(Reply::Bound(bound)) = bound.result() else { panic!("not bound") };
            number = bound.binding;
        }
        let lost = binding.done(number);
        assert!(lost.is_empty(), "it was done at once");
    }

    fn administer(&self, (): &(), administration: Administration, owed: Owed) {
        let leader = self.town.state().leader.clone();
        if leader == self.address || matches!(administration, Administration::Status(_)) {
            let view = ClusterView { node: u32::try_from(self.number).expect("small"), ..ClusterView::default() };
            owed.administered(Attended::Cluster(view));
        } else {
            owed.not_now(NotNow { why: "another leads".to_owned(), leader, retry_after_ms: 0 });
        }
    }

    fn lost(&self, (): &(), sessions: Vec<Lost>) {
        for Lost { session, binding } in &sessions {
            let (reason, binding) = ("process died".to_owned(), Some(*binding));
            self.town.apply(Command::EndSession(EndSession { session: *session, reason, unclean: true, binding }));
        }
        self.town.note(|it| it.lost.push(sessions.iter().map(|it| it.session).collect()));
    }
}

/// A node on a real socket. Dropping it is its death: its connections are reset or closed by the machine.
pub(crate) struct Listening {
    pub(crate) address: String,
    door: JoinHandle<()>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.door.abort();
    }
}

pub(crate) async fn listen(town: &Arc<Town>, number: u64, bounds: Bounds) -> Listening {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address: SocketAddr = listener.local_addr().expect("bound");
    let address = address.to_string();
    let node = Arc::new(Node { town: Arc::clone(town), number, address: address.clone() });
    let door = tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((tcp, _)) = listener.accept().await {
            let (node, bounds) = (Arc::clone(&node), bounds.clone());
            node.town.note(|it| it.connections += 1);
            connections.spawn(async move {
                let closed = serve(tcp, &[], &*node, &bounds).await;
                node.town.note(|it| it.closed.push(name(&closed)));
            });
        }
    });
    Listening { address, door }
}

pub(crate) fn name(closed: &Closed) -> String {
    format!("{closed:?}")
}

pub(crate) fn session(ttl_ms: u64) -> OpenSession {
    OpenSession { ttl_ms, owner: "test".to_owned(), ..OpenSession::default() }
}

pub(crate) fn bid(session: u64, election: &str, identity: &str) -> Command {
    Command::Campaign(Campaign { session, election: election.into(), identity: identity.into(), ..Campaign::default() })
}

pub(crate) fn put(key: &str, value: &str) -> Command {
    Command::Put(Put { key: key.to_owned().into(), value: value.to_owned().into(), ..Put::default() })
}

/// A channel that tells a test what tasks do.
pub(crate) fn channel<T>() -> (mpsc::UnboundedSender<T>, mpsc::UnboundedReceiver<T>) {
    mpsc::unbounded_channel()
}
