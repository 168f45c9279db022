//! Those who use the store of a world: clients and watchers, what they say and hear, and what is judged of it.
//!
//! Letters between clients and nodes are lost, late and doubled; clients die, come back and stand still. A leader's expiries are made as the product makes them. Left out: what goes wrong with
//! the nodes (`faults.rs`), and what is true of the log alone (`oracle.rs`).

pub(crate) mod chronicle;
pub(crate) mod client;
pub(crate) mod condition;
pub(crate) mod leases;
pub(crate) mod once;

use std::collections::BTreeMap;

use bytes::{BufMut, BytesMut};
use incumbent_protocol::chance::Chance;
use incumbent_protocol::protocol::{NodeId, Term};
use incumbent_service::replica::{Committed, Content, Entry, Index, Input, Place, Tag};
use incumbent_service::server::apply;
use incumbent_store::command::Request;
use incumbent_store::keys::item::Span;
use incumbent_store::query::{Answer as Queried, Query, ReadEvents};
use incumbent_store::refusal::Refusal;
use incumbent_store::store::Store;
use incumbent_store::watch::{Interest, Topic};

use self::chronicle::{Chronicle, Heard};
use self::client::{Answer, Client, ELECTIONS, Letter, Matter, What};
use self::condition::Condition;
use self::leases::Leases;
use self::once::Once;
use super::machine::Applied;
use super::{Event, MILLISECOND, Moment, World};

/// So often, in entries, all of a store is compared.
const COMPARED: u64 = 16;

pub(crate) struct Town {
    pub(crate) clients: Vec<Client>,
    watchers: Vec<Watcher>,
    pub(crate) leases: Leases,
    pub(crate) chronicle: Chronicle,
    pub(crate) once: Once,
    pub(crate) tally: Tally,
    /// When an entry was first written, which is when it was stamped.
    stamped: BTreeMap<(Index, Term), Moment>,
    /// Whose request a proposal is, by its number.
    proposed: BTreeMap<u64, (u64, u64)>,
    /// The last entry that anyone has applied, and its term.
    seen: (Index, Term),
    pub(crate) condition: Condition,
}

/// How often what must happen sometimes has happened.
#[derive(Default, Debug)]
pub(crate) struct Tally {
    pub(crate) expired: u64,
    pub(crate) elected: u64,
    pub(crate) repeated: u64,
    pub(crate) forgotten: u64,
    /// Terms that began while somebody had a seat.
    pub(crate) failovers: u64,
    pub(crate) deaths: u64,
    pub(crate) pauses: u64,
    /// Reads of a watcher that went on at another node.
    pub(crate) resumed: u64,
    pub(crate) lagged: u64,
    pub(crate) watched: u64,
    pub(crate) looks: u64,
    /// Stores that were compared with another's at the same entry.
    pub(crate) compared: u64,
    /// Elections that were seen with somebody who waits and no seat free.
    pub(crate) waited: u64,
    /// The greatest lateness of an expiry while nothing failed, in nanoseconds.
    pub(crate) lateness: u64,
    /// What clocks beyond their bound have cost.
    pub(crate) outrun: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, world: &World) {
        let Some(town) = &world.town else { return };
        let one = &town.tally;
        self.expired += town.leases.expired;
        self.elected += town.leases.elected;
        self.repeated += town.once.repeated;
        self.forgotten += town.once.forgotten;
        self.failovers += one.failovers;
        self.deaths += one.deaths;
        self.pauses += one.pauses;
        self.resumed += one.resumed;
        self.lagged += one.lagged;
        self.watched += one.watched;
        self.looks += one.looks;
        self.compared += town.condition.compared;
        self.waited += town.condition.waited;
        self.lateness = self.lateness.max(town.condition.lateness);
        self.outrun += town.leases.outrun;
    }

    /// What every sweep must have seen.
    pub(crate) fn each(&self) -> [(&'static str, u64); 13] {
        [
            ("expired", self.expired),
            ("elected", self.elected),
            ("repeated", self.repeated),
            ("forgotten", self.forgotten),
            ("failovers", self.failovers),
            ("deaths", self.deaths),
            ("pauses", self.pauses),
            ("resumed", self.resumed),
            ("lagged", self.lagged),
            ("watched", self.watched),
            ("looks", self.looks),
            ("compared", self.compared),
            ("waited", self.waited),
        ]
    }
}

/// One who reads what has happened, wherever it can, and goes on from where it was.
struct Watcher {
    interest: Interest,
    heard: Heard,
    node: NodeId,
}

/// What happens in a town.
pub(crate) enum Scene {
    /// A client's turn.
    Beat { client: usize, life: u64 },
    /// Another process takes the place of one that died.
    Reborn { client: usize },
    /// Something a client sent arrives.
    Asked { letter: Letter },
    /// What became of it arrives.
    Told { matter: Matter, answer: Answer },
    /// A watcher reads.
    Watch { watcher: usize },
    /// The leader may have to say that time has passed.
    Expire { node: NodeId, life: u64 },
}

impl Scene {
    /// The node that it concerns.
    pub(crate) fn node(&self) -> Option<NodeId> {
        match self {
            Scene::Asked { letter } => Some(letter.to),
            Scene::Expire { node, .. } => Some(*node),
            Scene::Beat { .. } | Scene::Reborn { .. } | Scene::Told { .. } | Scene::Watch { .. } => None,
        }
    }
}

impl Town {
    /// Entries are written somewhere.
    pub(crate) fn on_write(&mut self, entries: &[Entry], now: Moment) {
        for entry in entries {
            self.stamped.entry((entry.index, entry.term)).or_insert(now);
        }
    }

    /// A node has applied an entry.
    pub(crate) fn on_applied(&mut self, entry: &Committed, applied: &Applied, store: &Store, now: Moment) -> Result<(), String> {
        if entry.index.is_multiple_of(COMPARED) {
            self.on_store(entry.index, store)?;
        }
        let (seen, term) = self.seen;
        if entry.index <= seen {
            return Ok(());
        }
        self.seen = (entry.index, entry.term);
        self.tally.failovers += u64::from(entry.term > term && self.leases.any_held());
        let stamped = self.stamped.get(&(entry.index, entry.term)).copied().unwrap_or(now);
        for event in &applied.events {
            self.leases.on_event(event, stamped)?;
            self.once.on_event(event)?;
        }
        self.chronicle.on_entry(&applied.events)?;
        if let Content::Batch { items, .. } = &entry.content {
            for (item, outcome) in items.iter().zip(&applied.outcomes) {
                if let Some((client, sequence)) = self.proposed.get(&super::number(&item.payload)) {
                    self.once.on_applied(*client, *sequence, outcome)?;
                }
            }
        }
        self.condition.on_overdue(entry.index, applied.overdue)
    }

    /// All of a store is looked at.
    pub(crate) fn on_store(&mut self, index: Index, store: &Store) -> Result<(), String> {
        self.condition.on_digest(index, store.digest())?;
        for (election, seats) in ELECTIONS {
            let Ok(Queried::Board(board)) = store.query(&Query::Look(election.to_owned())) else { continue };
            let lives = |session| matches!(store.query(&Query::Session(session)), Ok(Queried::Session(it)) if !it.ending);
            let waits = board.candidates.iter().find(|it| lives(it.session)).map(|it| it.identity.as_str());
            self.condition.on_line(index, election, seats, board.leaders.len() + board.reservations.len(), waits)?;
        }
        Ok(())
    }

    /// What a watcher gets from a store.
    fn watch(&mut self, watcher: usize, node: NodeId, store: &Store, limit: u64) -> Result<(), String> {
        let watcher = &mut self.watchers[watcher];
        let (from, interest) = (watcher.heard.next, Some(watcher.interest.clone()));
        match store.events(&ReadEvents { from, interest, limit }, usize::MAX) {
            Ok(happened) => {
                self.chronicle.judge(from, &watcher.interest, &happened)?;
                self.tally.watched += happened.events.len() as u64;
                self.tally.resumed += u64::from(node != watcher.node && !happened.events.is_empty());
                watcher.node = node;
                watcher.heard.on_told(&happened)
            }
            Err(Refusal::Lagged(oldest)) if from < oldest => {
                self.tally.lagged += 1;
                watcher.heard.on_lagged(oldest);
                Ok(())
            }
            Err(other) => Err(format!("W5: who asks from {from} on is told {other}")),
        }
    }
}

impl World {
    /// People move in: from now on the nodes' stores are used. They must have some.
    pub(crate) fn settle(&mut self, clients: usize) {
        let (mut chance, clocks) = (Chance::new(self.chance.bits()), self.clocks);
        let interests = [
            Interest::EVERYTHING,
            Interest::of(Topic::Election(ELECTIONS[0].0.to_owned())),
            Interest::of(Topic::Keys(Span::prefix("w/"))),
        ];
        let watchers = interests.map(|interest| Watcher { interest, heard: Heard::from(1), node: NodeId(0) });
        self.town = Some(Box::new(Town {
            clients: (0..clients).map(|it| Client::new(it, 0, clocks, &mut chance)).collect(),
            watchers: watchers.into(),
            leases: Leases::new(&ELECTIONS, clocks),
            chronicle: Chronicle::default(),
            once: Once::default(),
            tally: Tally::default(),
            stamped: BTreeMap::new(),
            proposed: BTreeMap::new(),
            seen: (1, Term(1)),
            condition: Condition::default(),
        }));
        for client in 0..clients {
            self.schedule(self.now + chance.below(20 * MILLISECOND), Event::Town(Scene::Beat { client, life: 0 }));
        }
        for watcher in 0..3 {
            self.schedule(self.now, Event::Town(Scene::Watch { watcher }));
        }
    }

    pub(crate) fn act(&mut self, scene: Scene) {
        let Some(mut town) = self.town.take() else { return };
        let judged = self.play(&mut town, scene);
        self.town = Some(town);
        match judged {
            Ok(Some((node, input))) => self.step(node, input),
            Ok(None) => {}
            Err(wrong) => drop(self.wrong.get_or_insert(wrong)),
        }
    }

    /// What a node is given because of it, if anything.
    fn play(&mut self, town: &mut Town, scene: Scene) -> Result<Option<(NodeId, Input)>, String> {
        match scene {
            Scene::Beat { client, life } => self.beat(town, client, life),
            Scene::Reborn { client } => {
                let life = town.clients[client].life + 1;
                town.clients[client] = Client::new(client, life, self.clocks, &mut self.chance);
                self.schedule(self.now, Event::Town(Scene::Beat { client, life }));
            }
            Scene::Asked { letter } => return Ok(self.asked(town, letter)),
            Scene::Told { matter, answer } => {
                let client = &mut town.clients[matter.client];
                if client.paused_until > self.now {
                    self.schedule(client.paused_until, Event::Town(Scene::Told { matter, answer }));
                } else if client.life == matter.life && !client.is_dead {
                    client.hear(self.now, matter, answer, &mut town.leases, &mut town.once)?;
                }
            }
            Scene::Watch { watcher } => {
                let pause = self.chance.below(25 * MILLISECOND);
                // One who stays away for long finds that it has missed something.
                let away = town.condition.storms() && self.chance.happens(20_000);
                let pause = if away { 20 * pause } else { pause };
                self.schedule(self.now + pause, Event::Town(Scene::Watch { watcher }));
                let node = NodeId(self.chance.below(self.nodes.len() as u64) as u32);
                let limit = 1 + self.chance.below(20);
                let there = &self.nodes[node.0 as usize];
                if let Some(store) = there.machine.store.as_ref().filter(|_| there.replica.is_some()) {
                    town.watch(watcher, node, store, limit)?;
                }
            }
            Scene::Expire { node, life } => return Ok(self.expire(node, life)),
        }
        Ok(None)
    }

    fn beat(&mut self, town: &mut Town, index: usize, life: u64) {
        let nodes = self.nodes.len() as u32;
        let client = &mut town.clients[index];
        if client.life != life || client.is_dead {
            return;
        }
        let next = |world: &mut World, at| world.schedule(at, Event::Town(Scene::Beat { client: index, life }));
        if client.paused_until > self.now {
            return next(self, client.paused_until);
        }
        let stormy = town.condition.storms();
        if stormy && self.chance.happens(6_000) {
            town.kill(index);
            // Some are started again at once, while what they said before is still on its way.
            let most = if self.chance.happens(500_000) { 10 } else { 600 };
            let at = self.now + self.chance.below(most * MILLISECOND);
            return self.schedule(at, Event::Town(Scene::Reborn { client: index }));
        }
        if stormy && self.chance.happens(4_000) {
            town.tally.pauses += 1;
            client.paused_until = self.now + self.chance.below(800 * MILLISECOND);
        }
        let letters = client.beat(self.now, &mut self.chance, nodes, &mut town.leases);
        for letter in letters {
            self.note(|| format!("{:?} to {}: {:?}", letter.matter, letter.to, letter.what));
            if let Some(at) = self.travel() {
                self.schedule(at, Event::Town(Scene::Asked { letter }));
            }
        }
        let pause = 10 * MILLISECOND + self.chance.below(30 * MILLISECOND);
        next(self, self.now + pause);
    }

    /// When a letter between a client and a node arrives, if it does.
    fn travel(&mut self) -> Option<Moment> {
        if self.chance.happens(10_000) {
            return None;
        }
        let most = if self.chance.happens(30_000) { 400 * MILLISECOND } else { MILLISECOND / 2 };
        Some(self.now + MILLISECOND / 20 + self.chance.below(most))
    }

    fn asked(&mut self, town: &mut Town, letter: Letter) -> Option<(NodeId, Input)> {
        let Letter { matter, to, what } = letter;
        let kind = match &what {
            What::Submit(_) => super::Kind::Write,
            What::Look(_) => super::Kind::Read,
        };
        let Some((tag, number)) = self.open(to, kind) else {
            // Nobody is there.
            self.answer(matter, Answer::Perhaps);
            return None;
        };
        let asked = super::Asked { matter, look: if let What::Look(election) = &what { Some(election.clone()) } else { None } };
        if let Some(operation) = self.operations.get_mut(&(to, tag)) {
            operation.asked = Some(asked);
        }
        match what {
            What::Submit(request) => {
                if request.client != 0 {
                    town.proposed.insert(number, (request.client, request.sequence));
                }
                Some((to, self.proposal(to, tag, number, request, Place::Anywhere)))
            }
            What::Look(_) => Some((to, Input::Read { tag })),
        }
    }

    /// A proposal as a node of the service makes it, behind its number.
    fn proposal(&self, node: NodeId, tag: Tag, number: u64, request: Request, place: Place) -> Input {
        // Wall clocks differ, and decide nothing.
        let wall_ms = self.nodes[node.0 as usize].clock(self.now).as_nanos() / MILLISECOND;
        let payload = apply::payload(request, wall_ms);
        let mut bytes = BytesMut::with_capacity(8 + payload.len());
        bytes.put_u64(number);
        bytes.put(payload);
        Input::Propose { tag, payload: bytes.freeze(), place }
    }

    /// Tells a client something, if it arrives.
    pub(crate) fn answer(&mut self, matter: Matter, answer: Answer) {
        if let Some(at) = self.travel() {
            self.schedule(at, Event::Town(Scene::Told { matter, answer }));
        }
    }

    /// The leader says that time has passed, if it is so.
    fn expire(&mut self, id: NodeId, life: u64) -> Option<(NodeId, Input)> {
        let now = self.now;
        let node = self.node(id);
        let (clock, role) = (node.clock(now), node.role);
        node.expire_at = Moment::MAX;
        if node.life != life || node.expiry_due(clock).is_none_or(|at| at > clock) {
            return None;
        }
        let (tag, number) = self.open(id, super::Kind::Write)?;
        let (request, place) = self.node(id).expiry.propose(tag, role);
        Some((id, self.proposal(id, tag, number, request, place)))
    }

    /// Lets the leader look at its clock when it must.
    pub(crate) fn expect_expiry(&mut self, id: NodeId) {
        let now = self.now;
        let node = self.node(id);
        let Some(due) = node.expiry_due(node.clock(now)) else { return };
        let (at, life) = (node.moment(due).max(now), node.life);
        if at < node.expire_at {
            node.expire_at = at;
            self.schedule(at, Event::Town(Scene::Expire { node: id, life }));
        }
    }
}

impl Town {
    /// A client's process is dead, for now or for good.
    pub(crate) fn kill(&mut self, client: usize) {
        self.tally.deaths += 1;
        self.clients[client].is_dead = true;
        self.leases.on_end_of_belief(client);
    }

    /// The sessions of those who are dead.
    pub(crate) fn bereaved(&self) -> Vec<u64> {
        self.clients.iter().filter(|it| it.is_dead && it.session != 0).map(|it| it.session).collect()
    }

    /// Whether every watcher has been told of all that has happened.
    pub(crate) fn all_told(&self) -> bool {
        self.watchers.iter().all(|it| it.heard.next > self.chronicle.last())
    }
}

/// What a client looked for, as a store has it.
pub(crate) fn look(store: &Store, election: &str) -> Answer {
    match store.query(&Query::Look(election.to_owned())) {
        Ok(Queried::Board(board)) => Answer::Board(board),
        Ok(_) | Err(_) => Answer::Perhaps,
    }
}
