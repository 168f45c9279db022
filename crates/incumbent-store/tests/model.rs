//! Sessions and elections against a model that is slow and plain: lists, searched from one end to the other.
//!
//! The model says who must lead and who must wait after every command, in which order; the store says which tokens. Beside the store runs one that is saved and loaded now and then: it must
//! answer the same, and come to the same digest.

mod scene;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use incumbent_store::command::*;
use incumbent_store::limits::Limits;
use incumbent_store::query::{Answer, Query};
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::Reply;
use incumbent_store::store::Store;
use incumbent_store::time::{Stamp, Time};
use proptest::prelude::*;
use scene::Scene;

const ELECTIONS: [&str; 2] = ["e", "e.f"];
const IDENTITIES: [&str; 6] = ["a_1", "a_2", "b_1", "c_1", "d_1", "a"];
const SESSIONS: std::ops::Range<u64> = 100..104;

#[derive(Default)]
struct Model {
    now: u64,
    arrivals: u64,
    opened: u64,
    sessions: Vec<Session>,
    rooms: Vec<Room>,
}

#[derive(Clone, PartialEq)]
struct Session {
    id: u64,
    ttl_ms: u64,
    lock_delay_ms: u64,
    deadline: u64,
    /// How often it was bound.
    bindings: usize,
    /// How many were opened before it.
    opened: u64,
}

#[derive(Clone)]
struct Room {
    name: String,
    seats: usize,
    /// Oldest first.
    holders: Vec<(String, u64)>,
    line: Vec<Waiting>,
    reserved: Vec<(String, u64)>,
}

#[derive(Clone)]
struct Waiting {
    identity: String,
    session: u64,
    priority: i32,
    arrival: u64,
}

impl Model {
    fn deadline(&self, ttl_ms: u64) -> u64 {
        Time::from_nanos(self.now).deadline(ttl_ms).as_nanos()
    }

    fn session(&mut self, id: u64) -> Option<&mut Session> {
        self.sessions.iter_mut().find(|it| it.id == id)
    }

    fn keep_alive(&mut self, id: u64) {
        let now = Time::from_nanos(self.now);
        if let Some(session) = self.session(id) {
            session.deadline = now.deadline(session.ttl_ms).as_nanos();
        }
    }

    fn room(&mut self, name: &str) -> &mut Room {
        if !self.rooms.iter().any(|it| it.name == name) {
            let room = Room { name: name.into(), seats: 0, holders: vec![], line: vec![], reserved: vec![] };
            self.rooms.push(room);
        }
        self.rooms.iter_mut().find(|it| it.name == name).expect("there")
    }

    fn campaign(&mut self, bid: &Campaign) -> bool {
        if !self.sessions.iter().any(|it| it.id == bid.session) {
            return false;
        }
        let (now, arrival) = (self.now, self.arrivals);
        self.arrivals += 1;
        let alive: Vec<u64> = self.sessions.iter().map(|it| it.id).collect();
        let opened: BTreeMap<u64, u64> = self.sessions.iter().map(|it| (it.id, it.opened)).collect();
        let room = self.room(&bid.election);
        if room.holders.is_empty() && room.line.is_empty() && room.reserved.is_empty() {
            room.seats = 0;
        }
        let seats = bid.seats.max(1) as usize;
        if room.seats != 0 && room.seats != seats {
            return false;
        }
        room.seats = seats;
        let waits = room.line.iter().find(|it| it.identity == bid.identity).map(|it| it.session);
        let goes_with = room.holders.iter().find(|it| it.0 == bid.identity).map(|it| it.1).or(waits);
        if goes_with.is_some_and(|it| opened.get(&bid.session) < opened.get(&it)) {
            self.keep_alive(bid.session);
            return true;
        }
        match room.holders.iter().position(|it| it.0 == bid.identity) {
            Some(at) if room.holders[at].1 == bid.session => {}
            // It is another leadership, and the youngest.
            Some(at) => {
                room.holders.remove(at);
                room.holders.push((bid.identity.clone(), bid.session));
            }
            None => {
                let before = room.line.iter().find(|it| it.identity == bid.identity).map(|it| it.arrival);
                room.line.retain(|it| it.identity != bid.identity);
                room.line.push(Waiting {
                    identity: bid.identity.clone(),
                    session: bid.session,
                    priority: bid.priority,
                    arrival: before.unwrap_or(arrival),
                });
                room.fill(now, &alive);
            }
        }
        self.keep_alive(bid.session);
        true
    }

    fn vacate(&mut self, election: &str, identity: &str, to: &str, unclean: bool) {
        let now = self.now;
        let alive: Vec<u64> = self.sessions.iter().map(|it| it.id).collect();
        let Some(at) = self.room(election).holders.iter().position(|it| it.0 == identity) else { return };
        let (_, id) = self.room(election).holders.remove(at);
        let session = self.session(id).cloned().expect("it held by it");
        let reserve = if unclean && session.lock_delay_ms > 0 {
            Some((String::new(), now + session.lock_delay_ms * 1_000_000))
        } else if !to.is_empty() {
            Some((to.to_owned(), self.deadline(session.ttl_ms)))
        } else {
            None
        };
        let room = self.room(election);
        room.reserved.extend(reserve);
        room.fill(now, &alive);
    }

    fn end(&mut self, ended: &[u64], unclean: bool) {
        // Nobody who has ended is elected, though what they have goes one by one.
        let gone: Vec<Session> = self.sessions.iter().filter(|it| ended.contains(&it.id)).cloned().collect();
        for session in gone {
            let mut attached = vec![];
            for room in &self.rooms {
                attached.extend(room.holders.iter().filter(|it| it.1 == session.id).map(|it| (room.name.clone(), it.0.clone())));
                attached.extend(
                    room.line.iter().filter(|it| it.session == session.id).map(|it| (room.name.clone(), it.identity.clone())),
                );
            }
            attached.sort();
            for (election, identity) in attached {
                let alive: Vec<u64> = self.sessions.iter().map(|it| it.id).filter(|it| !ended.contains(it)).collect();
                let now = self.now;
                self.room(&election).leave(&identity, now, &alive);
                // Only while this seat is given away are those who have ended out of sight.
                let all = self.sessions.clone();
                let keeper = session.clone();
                self.sessions.retain(|it| !ended.contains(&it.id));
                self.sessions.push(Session { id: u64::MAX - keeper.id, ..keeper.clone() });
                for holder in self.room(&election).holders.iter_mut().filter(|it| it.0 == identity) {
                    holder.1 = u64::MAX - keeper.id;
                }
                self.vacate(&election, &identity, "", unclean);
                self.sessions = all;
            }
        }
        self.sessions.retain(|it| !ended.contains(&it.id));
    }

    fn expire(&mut self) {
        let now = self.now;
        let alive: Vec<u64> = self.sessions.iter().map(|it| it.id).collect();
        let mut due: Vec<(u64, usize)> = vec![];
        for (at, room) in self.rooms.iter().enumerate() {
            due.extend(room.reserved.iter().map(|it| it.1).min().filter(|it| *it <= now).map(|it| (it, at)));
        }
        for (_, at) in due {
            self.rooms[at].fill(now, &alive);
        }
        let mut ended: Vec<u64> = self.sessions.iter().filter(|it| it.deadline <= now).map(|it| it.id).collect();
        ended.sort();
        self.sessions.sort_by_key(|it| it.id);
        self.end(&ended, true);
    }
}

impl Room {
    /// Who was taken out of the line may have stood before another of its name, for whom a seat is kept.
    fn leave(&mut self, identity: &str, now: u64, alive: &[u64]) {
        let waiting = self.line.len();
        self.line.retain(|it| it.identity != identity);
        self.line.sort_by_key(|it| (Reverse(it.priority), it.arrival));
        if self.line.len() < waiting && self.kept(alive).is_some() {
            self.fill(now, alive);
        }
    }

    fn named(&self, to: &str) -> Option<&Waiting> {
        let whole = self.line.iter().find(|it| it.identity == to);
        whole.or_else(|| self.line.iter().find(|it| it.identity.split('_').next() == Some(to)))
    }

    fn kept(&self, alive: &[u64]) -> Option<usize> {
        self.reserved.iter().position(|(to, _)| self.named(to).is_some_and(|it| alive.contains(&it.session)))
    }

    fn fill(&mut self, now: u64, alive: &[u64]) {
        self.reserved.retain(|it| it.1 > now);
        self.line.sort_by_key(|it| (Reverse(it.priority), it.arrival));
        loop {
            let next = match self.kept(alive) {
                Some(at) => {
                    let to = self.reserved.remove(at).0;
                    self.named(&to).map(|it| it.identity.clone())
                }
                None if self.holders.len() + self.reserved.len() >= self.seats => None,
                None => self.line.iter().find(|it| alive.contains(&it.session)).map(|it| it.identity.clone()),
            };
            let Some(next) = next else { return };
            let at = self.line.iter().position(|it| it.identity == next).expect("in line");
            let elected = self.line.remove(at);
            self.holders.push((elected.identity, elected.session));
        }
    }
}

/// The store under test, the one that is saved and loaded, the model, and all tokens ever.
struct Trial {
    scene: Scene,
    reloaded: Store,
    model: Model,
    tokens: Vec<(String, String, u64)>,
    /// The numbers of all bindings of each session, in their order.
    bindings: std::collections::BTreeMap<u64, Vec<u64>>,
}

impl Trial {
    fn new() -> Trial {
        let scene = Scene::new();
        let reloaded = scene.store.clone();
        Trial { scene, reloaded, model: Model::default(), tokens: vec![], bindings: Default::default() }
    }

    fn ask(&mut self, command: Command) -> Result<Reply, Refusal> {
        let (request, mut events) = (Request::of(command), vec![]);
        let wall_ms = 1_700_000_000_000 + self.scene.at.as_nanos() / 1_000_000;
        let twin = self.reloaded.apply(Stamp { at: self.scene.at, wall_ms }, request.clone(), &mut events);
        let outcome = self.scene.request(request);
        assert_eq!((&outcome, &self.scene.events), (&twin, &events), "the one that was loaded differs");
        outcome
    }

    fn step(&mut self, (kind, a, b, c): (u8, u8, u8, u8)) {
        let session = SESSIONS.start + u64::from(a) % 4;
        let election = ELECTIONS[b as usize % 2];
        let identity = IDENTITIES[c as usize % 6];
        match kind {
            0..=2 => self.open(session, a, b),
            3..=11 => {
                let name = identity.split('_').next().unwrap_or_default().into();
                let seats = if b >= 6 { 2 } else { 1 };
                let seen = if a == 7 && c == 7 { 1 << 48 } else { 0 };
                let (election, identity) = (election.to_owned(), identity.to_owned());
                let priority = i32::from(c / 6);
                let bid = Campaign { session, election, identity, name, priority, seats, seen, ..Campaign::default() };
                self.model.now = self.scene.at.as_nanos();
                let expected = self.model.campaign(&bid);
                assert_eq!(self.ask(Command::Campaign(bid)).is_ok(), expected);
            }
            12..=15 => self.leave_office(kind == 15, usize::from(a) * 8 + usize::from(b), identity, c),
            16 => {
                let (now, alive) = (self.scene.at.as_nanos(), self.model.sessions.iter().map(|it| it.id).collect::<Vec<_>>());
                self.model.room(election).leave(identity, now, &alive);
                let withdraw = Withdraw { election: election.into(), identity: identity.into() };
                self.ask(Command::Withdraw(withdraw)).expect("it is always done");
            }
            17 => {
                self.model.now = self.scene.at.as_nanos();
                self.model.keep_alive(session);
                self.ask(Command::KeepAlive(KeepAlive { sessions: vec![session] })).expect("it is always done");
            }
            18 => {
                self.model.now = self.scene.at.as_nanos();
                let unclean = b % 2 == 1;
                // Some speak of a connection: of the newest, or of one that was left.
                let bindings = self.bindings.get(&session).cloned().unwrap_or_default();
                let lost = (c >= 4).then(|| bindings.len().saturating_sub(usize::from(c - 4)));
                let binding = lost.map(|it| it.checked_sub(1).map_or(0, |it| bindings[it]));
                let lives = self.model.session(session).cloned();
                if lives.as_ref().is_some_and(|it| lost.is_none_or(|lost| lost >= it.bindings)) {
                    self.model.end(&[session], unclean);
                }
                let end = EndSession { session, reason: String::new(), unclean, binding };
                assert_eq!(self.ask(Command::EndSession(end)).is_ok(), lives.is_some());
            }
            19..=20 => {
                self.model.now = self.scene.at.as_nanos();
                self.model.expire();
                self.ask(Command::Expire(Expire { limit: 0 })).expect("it is always done");
            }
            21 => {
                // What may be refused or not is not the model's business; that nothing goes wrong is.
                drop(self.ask(Command::Forget(Forget { election: election.into() })));
                drop(self.ask(Command::Raise(Raise { election: election.into(), above: u64::from(a) << 48 })));
            }
            22 => {
                let pieces: Vec<Vec<u8>> = self.reloaded.save().collect();
                self.reloaded = Store::load(&pieces).expect("just saved");
            }
            23 => self.bind(session),
            _ => self.scene.pass_ms(u64::from(a) * 40 + u64::from(b) * 150),
        }
    }

    fn bind(&mut self, session: u64) {
        self.model.now = self.scene.at.as_nanos();
        self.model.keep_alive(session);
        let bound = self.ask(Command::Bind(Bind { sessions: vec![session] }));
        let Ok(Reply::Bound(bound)) = bound else { panic!("{bound:?}") };
        let Some(lives) = self.model.session(session) else { return assert_eq!(bound.gone, [session]) };
        let bindings = self.bindings.entry(session).or_default();
        // A session of the same number that was there before had bindings too.
        assert!(bindings.iter().all(|it| *it < bound.binding), "bindings rise");
        bindings.push(bound.binding);
        lives.bindings = bindings.len();
    }

    fn open(&mut self, id: u64, a: u8, b: u8) {
        let (ttl_ms, lock_delay_ms) = (100 + u64::from(a) * 70, if b.is_multiple_of(3) { 200 } else { 0 });
        self.model.now = self.scene.at.as_nanos();
        let fresh =
            Session { id, ttl_ms, lock_delay_ms, deadline: self.model.deadline(ttl_ms), bindings: 0, opened: self.model.opened };
        let expected = match self.model.session(id) {
            Some(open) => {
                let same = open.ttl_ms == ttl_ms && open.lock_delay_ms == lock_delay_ms;
                if same {
                    *open = Session { bindings: open.bindings, opened: open.opened, ..fresh };
                }
                same
            }
            None => {
                self.model.sessions.push(fresh);
                self.model.opened += 1;
                true
            }
        };
        let open = OpenSession { session: id, ttl_ms, lock_delay_ms, ..OpenSession::default() };
        assert_eq!(self.ask(Command::OpenSession(open)).is_ok(), expected);
    }

    /// Resigns or is evicted: any leadership there ever was.
    fn leave_office(&mut self, forced: bool, which: usize, to: &str, c: u8) {
        let Some((election, identity, token)) = self.tokens.get(which % self.tokens.len().max(1)).cloned() else { return };
        let in_office = self.scene.leaders(&election).iter().any(|it| it.1 == token);
        let to = if c < 4 || forced { "" } else { to.split('_').next().unwrap_or_default() };
        self.model.now = self.scene.at.as_nanos();
        if in_office {
            self.model.vacate(&election, &identity, to, forced);
        }
        if forced {
            let evict = Evict { election, token, reason: String::new() };
            assert_eq!(self.ask(Command::Evict(evict)).is_ok(), in_office);
        } else {
            let resign = Resign { election, token, reason: String::new(), to: to.into() };
            self.ask(Command::Resign(resign)).expect("it is always done");
        }
    }

    fn check(&mut self) {
        for name in ELECTIONS {
            let room = self.model.room(name).clone();
            let board = self.scene.look(name);
            let leading: Vec<(String, u64)> = board.leaders.iter().map(|it| (it.identity.clone(), it.session)).collect();
            assert_eq!(leading, room.holders, "who leads {name}");
            let mut line = room.line.clone();
            line.sort_by_key(|it| (Reverse(it.priority), it.arrival));
            let waiting: Vec<&str> = board.candidates.iter().map(|it| it.identity.as_str()).collect();
            assert_eq!(waiting, line.iter().map(|it| it.identity.as_str()).collect::<Vec<_>>(), "who waits for {name}");
            assert!(board.leaders.len() <= board.seats.max(1) as usize, "L2: never two for one seat");
            for leader in board.leaders {
                let known = self.tokens.iter().any(|it| it.0 == name && it.2 == leader.token);
                if !known {
                    let greatest = self.tokens.iter().filter(|it| it.0 == name).map(|it| it.2).max().unwrap_or(0);
                    assert!(leader.token > greatest, "L1: {} after {greatest}", leader.token);
                    self.tokens.push((name.to_owned(), leader.identity, leader.token));
                }
            }
        }
        let open: Vec<u64> = {
            let mut open: Vec<u64> = self.model.sessions.iter().map(|it| it.id).collect();
            open.sort();
            open
        };
        let known = SESSIONS.filter(|it| {
            let Ok(Answer::Session(view)) = self.scene.store.query(&Query::Session(*it)) else { return false };
            let of = |room: &Room| {
                let holds = room.holders.iter().filter(|holder| holder.1 == *it).count();
                holds + room.line.iter().filter(|waits| waits.session == *it).count()
            };
            let expected: usize = self.model.rooms.iter().map(of).sum();
            assert_eq!(view.candidacies, expected as u64, "so many lead or wait by it");
            true
        });
        assert_eq!(known.collect::<Vec<_>>(), open, "which sessions live");
    }
}

fn seats(election: &str) -> u32 {
    if election == ELECTIONS[0] { 1 } else { 2 }
}

/// Though much of what has ended is still there: no seat is kept for somebody who lives and waits, and none is free while such a one waits and nothing is due.
fn check_nobody_is_kept_waiting(scene: &Scene, election: &str) {
    let board = scene.look(election);
    let lives = |session| match scene.store.query(&Query::Session(session)) {
        Ok(Answer::Session(view)) => !view.ending,
        other => panic!("who waits has a session: {other:?}"),
    };
    let kept = board.reservations.iter().filter(|it| Time::from_nanos(it.until_ns) > scene.at);
    for to in kept.map(|it| &it.to) {
        let whole = board.candidates.iter().find(|it| it.identity == *to);
        let named = whole.or_else(|| board.candidates.iter().find(|it| it.name == *to));
        assert!(!named.is_some_and(|it| lives(it.session)), "a seat of {election} is kept for {to}, who waits");
    }
    let is_due = scene.store.expiry().is_some_and(|it| it <= scene.at);
    let is_free = board.leaders.len() + board.reservations.len() < board.seats as usize;
    assert!(is_due || !is_free || board.candidates.is_empty(), "a seat of {election} is free, and somebody waits");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_does_what_the_model_does(steps in prop::collection::vec((0u8..27, 0u8..8, 0u8..8, 0u8..8), 1..120)) {
        let mut trial = Trial::new();
        for step in steps {
            trial.step(step);
            trial.check();
        }
        prop_assert_eq!(trial.scene.store.digest(), trial.reloaded.digest());
        prop_assert_eq!(trial.scene.store.expiry(), trial.reloaded.expiry());
    }
}

proptest! {
    // A seat that nobody is told of takes many things at once.
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// With little work a command, what is ended takes many; in the end it is all the same.
    #[test]
    fn what_ends_in_pieces_ends_as_it_would_at_once(steps in prop::collection::vec((0u8..20, 0u8..8, 0u8..8, 0u8..8), 1..160)) {
        let mut trial = Trial::new();
        let limits = Limits { ended_at_once_max: 1, ..Limits::STANDARD };
        trial.scene = Scene::with_limits(limits);
        for session in SESSIONS {
            trial.scene.open_as(OpenSession { session, ttl_ms: 4000, ..OpenSession::default() }).expect("opened");
        }
        for identity in ["b_1", "c_1"] {
            trial.scene.win(Campaign { seats: 2, ..scene::bid(103, ELECTIONS[1], identity) });
        }
        for (kind, a, b, c) in steps {
            let session = SESSIONS.start + u64::from(a) % 4;
            match kind {
                0..=1 => {
                    let open = OpenSession { session, ttl_ms: 100 + u64::from(b) * 500, ..OpenSession::default() };
                    drop(trial.scene.ask(Command::OpenSession(open)));
                }
                2..=10 => {
                    let bid = scene::bid(session, ELECTIONS[usize::from(b % 3).min(1)], IDENTITIES[usize::from(c) % 6]);
                    drop(trial.scene.campaign(Campaign { seats: seats(&bid.election), ..bid }));
                }
                11 => {
                    let (key, session) = (format!("k{b}{c}"), session);
                    drop(trial.scene.ask(Command::Put(incumbent_store::keys::transaction::Put { session, ..scene::put(&key, "") })));
                }
                12..=13 => drop(trial.scene.end(session)),
                14 => drop(trial.scene.expire()),
                15..=18 => {
                    let election = ELECTIONS[usize::from(b % 3).min(1)];
                    let to = IDENTITIES[usize::from(c) % 6].split('_').next().filter(|_| a % 2 == 0).unwrap_or_default();
                    if let Some((_, token)) = trial.scene.leaders(election).first() {
                        trial.scene.resign(election, *token, to).expect("it is always done");
                    }
                }
                _ => trial.scene.pass_ms(u64::from(a) * 50),
            }
            for election in ELECTIONS {
                prop_assert!(trial.scene.leaders(election).len() <= seats(election) as usize);
                check_nobody_is_kept_waiting(&trial.scene, election);
            }
        }
        trial.scene.pass_ms(10_000);
        for _ in 0..1000 {
            if !trial.scene.expire().more {
                break;
            }
        }
        prop_assert_eq!(trial.scene.store.expiry(), None, "everything ends");
        for election in ELECTIONS {
            prop_assert!(trial.scene.leaders(election).is_empty() && trial.scene.look(election).candidates.is_empty());
        }
    }
}
