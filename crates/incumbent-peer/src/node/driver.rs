//! The loop of a node: reads the clock, steps the machine that is concerned, carries its effects out in their order.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use incumbent_protocol::machine::{Machine, Message};
use incumbent_protocol::protocol::{Cause, Effect, Effects, Event, Input, Mark, NodeId, Request, Role, Token, View, Wire as _};
use incumbent_protocol::settings::Settings;
use incumbent_protocol::time::Instant;
use tokio::sync::{mpsc, oneshot};

use super::change::{Request as RollRequest, installed};
use super::recorder::Recorder;
use super::roll::{Roll, RollNumber};
use super::room::Room;
use super::{
    Contests, Declined, ELECTION_LEN_MAX, ELECTIONS_MAX, Election, Evidence, Node, Notice, Order, Plan, Report, Said, Standing,
    Unfit,
};
use crate::archive::{Archive, Failure, Members, Stored};
use crate::clock;
use crate::packet::Word;
use crate::switchboard::{Arrival, Asker, Known, Lines, Peer, Switchboard};

/// What came from the others and was not yet looked at. More, and their lines wait.
const ARRIVALS_MAX: usize = 1024;

/// The disk is not written to more often than this only to see whether it answers.
const DISK_LOOKS_APART_MIN: Duration = Duration::from_secs(1);

/// What became of a write.
struct Written {
    election: Election,
    what: Wrote,
    outcome: Result<(), Failure>,
}

enum Wrote {
    Record(Mark),
    Epoch(oneshot::Sender<Result<(), Declined>>),
    Roll(Roll, Box<dyn FnOnce(Result<(), String>) + Send>),
    /// Nothing new: only to see whether the disk answers.
    Probe,
}

struct Driver {
    plan: Plan,
    roll: Roll,
    settings: Settings,
    archive: Archive,
    switchboard: Arc<Switchboard>,
    rooms: BTreeMap<Election, Room>,
    /// What the disk knew of elections when the node started, and no machine has asked for yet.
    kept: BTreeMap<Election, Stored>,
    /// When each machine is to be woken, the next first.
    alarms: BTreeSet<(Instant, Election)>,
    written: mpsc::UnboundedSender<Written>,
    /// For what is found out beside the loop; does not keep the node alive.
    own_orders: mpsc::WeakUnboundedSender<Order>,
    /// Nodes that were told of other members: each is complained of once.
    foreign: BTreeSet<NodeId>,
    notices: mpsc::UnboundedSender<Notice>,
    effects: Effects<Message>,
    contests: Contests,
    /// Messages by name: sent, received.
    said: BTreeMap<&'static str, (u64, u64)>,
    recorder: Option<Recorder>,
    /// Members that are heard directly.
    up: BTreeSet<NodeId>,
    /// Nobody stands before this, unless a majority can be reached: whoever asks nobody for votes stands aside when others could give them.
    alone_until: Instant,
    /// When to look at the disk again.
    disk_look_at: Instant,
    /// It has kept a write waiting for longer than a leader may.
    disk_stalled: bool,
    /// The node has ended.
    broken: bool,
}

pub(super) async fn start(plan: Plan) -> Result<(Node, mpsc::UnboundedReceiver<Notice>), Unfit> {
    let archive = Archive::open(&plan.directory, &plan.cluster, plan.me).map_err(|why| Unfit(why.to_string()))?;
    start_on(archive, plan).await
}

/// With a disk that was opened by somebody else.
pub(super) async fn start_on(archive: Archive, plan: Plan) -> Result<(Node, mpsc::UnboundedReceiver<Notice>), Unfit> {
    let roll = first_roll(&plan, archive.members());
    let settings = plan.settings(roll.members().iter().map(|(id, _)| *id))?;
    let recorder = plan
        .trace
        .as_ref()
        .map(|path| Recorder::open(path, plan.me).map_err(|why| Unfit(format!("cannot record to {}: {why}", path.display()))));
    let recorder = recorder.transpose()?;
    let (arrivals_in, arrivals) = mpsc::channel(ARRIVALS_MAX);
    let lines = Lines {
        cluster: plan.cluster.clone(),
        me: plan.me,
        directory: archive.directory_id(),
        generation: archive.generation(),
        // Who elects has no data that began somewhere.
        origin: None,
        nonce: nonce(),
        listen: plan.listen.clone(),
        peers: peers_of(&roll, plan.me),
        known: archive.known().iter().map(|&(id, directory, generation)| Known { id, directory, generation }).collect(),
        settings: plan.terms(),
        security: plan.security.clone(),
        patience: plan.pace.patience_min,
    };
    let switchboard = Arc::new(Switchboard::open(lines, arrivals_in).await.map_err(|why| Unfit(why.to_string()))?);
    let (orders_in, orders) = mpsc::unbounded_channel();
    let (notices, notices_out) = mpsc::unbounded_channel();
    let (written, writes) = mpsc::unbounded_channel();
    let node = Node {
        me: plan.me,
        protocol: plan.protocol,
        patience: plan.pace.patience_max,
        orders: orders_in,
        switchboard: Arc::clone(&switchboard),
    };
    let kept = archive.elections().iter().map(|(name, stored)| (Arc::from(name.as_str()), *stored)).collect();
    let alone_until = if settings.majority() == 1 { Instant::ZERO } else { clock::now() + plan.pace.patience_min };
    let driver = Driver {
        plan,
        roll,
        settings,
        archive,
        switchboard,
        rooms: BTreeMap::new(),
        kept,
        alarms: BTreeSet::new(),
        written,
        own_orders: node.orders.downgrade(),
        foreign: BTreeSet::new(),
        notices,
        effects: Effects::default(),
        contests: Contests::default(),
        said: BTreeMap::new(),
        recorder,
        up: BTreeSet::new(),
        alone_until,
        disk_look_at: Instant::NEVER,
        disk_stalled: false,
        broken: false,
    };
    tokio::spawn(driver.run(arrivals, orders, writes));
    Ok((node, notices_out))
}

/// The members as they were last changed, else as this node was told.
fn first_roll(plan: &Plan, kept: Option<&Members>) -> Roll {
    let told = plan.peers.iter().map(|it| (it.id, it.address.clone())).chain([(plan.me, plan.listen.clone())]).collect();
    match kept {
        Some(kept) => Roll::stored(kept.version, kept.list.clone()),
        None if plan.joins => Roll::unknown(told),
        None => Roll::told(told),
    }
}

fn peers_of(roll: &Roll, me: NodeId) -> Vec<Peer> {
    let others = roll.members().iter().filter(|(id, _)| *id != me);
    others.map(|(id, address)| Peer { id: *id, address: address.clone() }).collect()
}

/// 64 bits that no other start of a node has.
fn nonce() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.write_u64(clock::now().as_nanos());
    hasher.finish()
}

impl Driver {
    async fn run(
        mut self,
        mut arrivals: mpsc::Receiver<Arrival>,
        mut orders: mpsc::UnboundedReceiver<Order>,
        mut writes: mpsc::UnboundedReceiver<Written>,
    ) {
        while !self.broken {
            let mut next = self.alarms.first().map_or(Instant::NEVER, |(at, _)| *at).min(self.disk_look_at);
            if self.alone_until != Instant::ZERO {
                next = next.min(self.alone_until);
            }
            let wait = next - clock::now();
            tokio::select! {
                // What is safe on disk is told first: others wait for it.
                biased;
                Some(written) = writes.recv() => self.on_written(written),
                Some(arrival) = arrivals.recv() => self.on_arrival(arrival),
                order = orders.recv() => match order {
                    Some(Order::Close { done }) => {
                        self.close().await;
                        let _ = done.send(());
                        return;
                    }
                    Some(order) => self.on_order(order),
                    None => return self.close().await,
                },
                () = tokio::time::sleep(wait) => {}
            }
            // However much arrives, nobody is woken late for it.
            self.wake_due();
            self.look_at_disk();
        }
        // Nobody waits for an answer that cannot come.
        drop(orders);
        if self.rooms.values().any(|it| it.own.is_some()) {
            // Whoever leads by its leave believes in that until the lease ends, and an address that refuses would count as a death.
            tokio::time::sleep(self.settings.pace().patience_min).await;
        }
        self.close().await;
    }

    /// What is queued is sent, and what waits for the disk is written.
    async fn close(self) {
        self.switchboard.close().await;
        let archive = self.archive;
        // It joins a thread that may wait for a disk.
        let _ = tokio::task::spawn_blocking(move || archive.close()).await;
    }

    fn wake_due(&mut self) {
        let now = clock::now();
        if now >= self.alone_until {
            self.begin();
        }
        while let Some((at, election)) = self.alarms.first().cloned()
            && at <= now
        {
            self.alarms.pop_first();
            if let Some(room) = self.rooms.get_mut(&election) {
                room.alarm = Instant::NEVER;
            }
            self.step(&election, Input::Wake);
        }
    }

    fn on_arrival(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Word { from, word } => self.on_word(from, word),
            Arrival::Gossip { from, gossip } => {
                self.tell(Notice::Gossip { election: Arc::from(gossip.election), from, body: gossip.body });
            }
            Arrival::Asked { asker, body, reply } => match (asker, RollRequest::read(&body)) {
                (Asker::Member(_), Some(Some(RollRequest::Which))) => reply.send(self.roll.write()),
                (Asker::Member(_), Some(Some(RollRequest::Install(roll)))) => {
                    self.install(roll, move |outcome| reply.send(installed(outcome)));
                }
                // Nonsense, or a stranger's.
                (_, Some(_)) => {}
                (_, None) => self.tell(Notice::Question { from: asker, body, reply }),
            },
            // The switchboard has logged it.
            // Nobody sends any to peers that elect one of themselves.
            Arrival::Complaint { .. } | Arrival::Freight { .. } => {}
            Arrival::Up { peer, directory, generation } => {
                self.archive.remember(peer, directory, generation);
                self.up.insert(peer);
                if self.up.len() + 1 >= self.settings.majority() {
                    self.begin();
                }
                self.tell(Notice::Up(peer));
            }
            Arrival::Down { peer } => {
                self.up.remove(&peer);
                self.tell(Notice::Down(peer));
            }
            Arrival::Refused { peer } => self.on_refused(peer),
        }
    }

    fn on_word(&mut self, from: NodeId, word: Word) {
        let election: Election = Arc::from(word.election);
        if !self.goes_by_the_same_roll(from, RollNumber(word.config)) || self.enter(&election).is_err() {
            return;
        }
        let Some(room) = self.rooms.get_mut(&election) else { return };
        room.mortals.insert(from, word.dies_with_node);
        // One that fits no token is nonsense.
        let epoch = u16::try_from(word.epoch).ok().filter(|it| *it <= Token::INCARNATION_MAX).unwrap_or(0);
        if epoch > room.epoch {
            // A later leader is elected by a majority, one of which has it on its disk: there is no need to wait for ours.
            room.epoch = epoch;
            self.write(&election, Wrote::Probe);
        }
        self.said.entry(word.body.name()).or_default().1 += 1;
        self.step(&election, Input::Receive { from, message: word.body });
    }

    /// The kernel of `peer` has ended its connection and refuses another: its process is gone, if nobody forges that.
    fn on_refused(&mut self, peer: NodeId) {
        for election in self.elections(|_| true) {
            let Some(room) = self.rooms.get(&election) else { continue };
            let proof = self.plan.death == Evidence::Refusal && room.mortals.get(&peer) == Some(&true);
            let request = if proof { Request::Dead { peer } } else { Request::Suspect { peer } };
            self.step(&election, Input::Request(request));
        }
    }

    fn on_order(&mut self, order: Order) {
        match order {
            Order::Stand { election, answer } => {
                let entered = self.enter(&election);
                if entered.is_ok() {
                    self.stand(&election);
                }
                let _ = answer.send(entered);
            }
            Order::Abstain { election } => {
                if let Some(room) = self.rooms.get_mut(&election) {
                    room.stands = false;
                    self.step(&election, Input::Request(Request::Abstain));
                }
            }
            Order::Resign { election } => self.step(&election, Input::Request(Request::Resign)),
            Order::HandOver { election, to } => self.step(&election, Input::Request(Request::HandOver { to })),
            Order::Look { election, answer } => {
                let _ = answer.send(self.standing(&election));
            }
            Order::Raise { election, epoch, answer } => match self.enter(&election) {
                Err(why) => {
                    let _ = answer.send(Err(why));
                }
                Ok(()) => {
                    if let Some(room) = self.rooms.get_mut(&election) {
                        room.epoch = room.epoch.max(epoch);
                    }
                    self.write(&election, Wrote::Epoch(answer));
                }
            },
            Order::Report { answer } => {
                let elections = self.rooms.keys().map(|it| (Arc::clone(it), self.standing(it))).collect();
                let _ = answer.send(Report {
                    lines: self.switchboard.lines(),
                    disk: self.archive.vitals(),
                    elections,
                    roll: self.roll.clone(),
                    said: self.said.iter().map(|(name, &(sent, received))| Said { name, sent, received }).collect(),
                    contests: self.contests,
                });
            }
            Order::Roll { answer } => {
                let _ = answer.send(self.roll.clone());
            }
            Order::Install { roll, answer } => self.install(roll, move |outcome| {
                let _ = answer.send(outcome);
            }),
            Order::Close { .. } => unreachable!("looked at by the loop"),
        }
    }

    fn stand(&mut self, election: &Election) {
        let Some(room) = self.rooms.get_mut(election) else { return };
        if !room.stands {
            room.stands = true;
            if !self.disk_stalled && self.is_member() && self.alone_until == Instant::ZERO {
                self.step(election, Input::Request(Request::Stand));
            }
        }
    }

    /// Whoever wants to stand may do so from now on.
    fn begin(&mut self) {
        if self.alone_until == Instant::ZERO {
            return;
        }
        self.alone_until = Instant::ZERO;
        for election in self.elections(|it| it.stands) {
            if self.is_member() && !self.disk_stalled {
                self.step(&election, Input::Request(Request::Stand));
            }
        }
    }

    fn standing(&self, election: &Election) -> Standing {
        self.rooms.get(election).map_or_else(Standing::default, |it| it.standing(clock::now(), self.settings.pace()))
    }

    /// Makes the machine of this election, if there is none: it votes and follows.
    fn enter(&mut self, election: &Election) -> Result<(), Declined> {
        if self.rooms.contains_key(election) {
            return Ok(());
        }
        if election.is_empty() || election.len() > ELECTION_LEN_MAX || self.rooms.len() >= ELECTIONS_MAX {
            return Err(Declined::TooManyElections);
        }
        let stored = self.kept.remove(election).unwrap_or_default();
        let machine = Machine::start(self.plan.protocol, self.plan.me, &self.settings, nonce(), stored.record, clock::now());
        if let Some(recorder) = &mut self.recorder {
            recorder.started(clock::now(), election, stored.record);
        }
        self.rooms.insert(Arc::clone(election), Room::new(machine, stored));
        self.step(election, Input::Request(Request::Abstain));
        Ok(())
    }

    fn step(&mut self, election: &Election, input: Input<Message>) {
        let Some(room) = self.rooms.get_mut(election) else { return };
        let now = clock::now();
        let mut effects = std::mem::take(&mut self.effects);
        let before = room.machine.view();
        room.machine.step(now, input, &mut effects);
        let after = room.machine.view();
        if let Some(recorder) = &mut self.recorder {
            let own = |view: &View| (view.role == Role::Leader).then_some((view.term, view.until));
            if let Some((term, _)) = own(&before).filter(|(term, _)| own(&after).is_none_or(|(later, _)| later != *term)) {
                recorder.out_of_office(now, election, term);
            }
            if let Some((term, until)) = own(&after).filter(|it| own(&before) != Some(*it)) {
                recorder.in_office(now, election, term, until);
            }
        }
        for effect in effects.drain() {
            self.carry_out(election, effect);
        }
        self.effects = effects;
        self.set_alarm(election);
    }

    fn set_alarm(&mut self, election: &Election) {
        let Some(room) = self.rooms.get_mut(election) else { return };
        let alarm = room.machine.deadline();
        if alarm != room.alarm {
            self.alarms.remove(&(room.alarm, Arc::clone(election)));
            self.alarms.insert((alarm, Arc::clone(election)));
            room.alarm = alarm;
        }
    }

    fn carry_out(&mut self, election: &Election, effect: Effect<Message>) {
        let Some(room) = self.rooms.get_mut(election) else { return };
        if let Some(recorder) = &mut self.recorder {
            match &effect {
                Effect::Send { to, message } => recorder.sent(clock::now(), election, *to, message, room.durable),
                Effect::Emit(event) => recorder.told(clock::now(), election, event),
                Effect::Persist { .. } => {}
            }
        }
        match effect {
            Effect::Send { to, message } => {
                self.said.entry(message.name()).or_default().0 += 1;
                let word = Word {
                    election: election.to_string(),
                    config: self.roll.number().0,
                    epoch: u32::from(room.epoch),
                    dies_with_node: self.plan.mortal,
                    body: message,
                };
                self.switchboard.send_word(to, word);
            }
            Effect::Persist { mark, record } => {
                room.record = Some(record);
                room.records.push_back((mark, record));
                self.write(election, Wrote::Record(mark));
            }
            Effect::Emit(event) => self.on_event(election, event),
        }
    }

    fn on_event(&mut self, election: &Election, event: Event) {
        let Some(room) = self.rooms.get_mut(election) else { return };
        let election = Arc::clone(election);
        match event {
            Event::Elected { term } => {
                self.contests.won += 1;
                // Epochs and terms that do not fit are refused where they are made.
                let Some(token) = Token::new(room.epoch, term) else { return };
                room.own = Some(token);
                self.disk_look_at = self.disk_look_at.min(clock::now() + self.settings.pace().patience_min);
                tracing::info!(%election, %token, "in office");
                self.tell(Notice::Elected { election, token });
            }
            Event::Lost { term, reason } => {
                let token = room.own.take().or_else(|| Token::new(room.epoch, term));
                let Some(token) = token else { return };
                tracing::info!(%election, %token, %reason, "out of office");
                self.tell(Notice::Lost { election, token, reason });
            }
            Event::Follows { leader, term } => {
                tracing::info!(%election, %leader, %term, "follows");
                self.tell(Notice::Follows { election, leader, term });
            }
            Event::LeaderGone { leader, term, cause } => {
                match cause {
                    Cause::Silent => self.contests.silences += 1,
                    Cause::Dead => self.contests.deaths += 1,
                    Cause::Released | Cause::Challenged => {}
                }
                tracing::info!(%election, %leader, %term, %cause, "no leader");
                self.tell(Notice::LeaderGone { election, leader, term, cause });
            }
            Event::Contends { term } => {
                self.contests.begun += 1;
                tracing::debug!(%election, %term, "contends");
            }
            Event::Rejected { term } => {
                self.contests.lost += 1;
                tracing::debug!(%election, %term, "not elected");
                self.tell(Notice::Rejected { election });
            }
            Event::Asked { to } => {
                self.tell(Notice::ShouldHandOver { election, to: Some(to), why: "another node is fitter to lead" });
            }
            Event::Ignored { from } => {
                tracing::warn!(%election, %from, "a message that cannot be right was ignored: do all nodes run the same version and settings?");
            }
        }
    }

    fn write(&mut self, election: &Election, what: Wrote) {
        let Some(room) = self.rooms.get(election) else { return };
        let (written, name) = (self.written.clone(), Arc::clone(election));
        self.archive.write(election, room.stored(), move |outcome| {
            let _ = written.send(Written { election: name, what, outcome });
        });
    }

    fn on_written(&mut self, written: Written) {
        match (written.outcome, written.what) {
            (Ok(()), Wrote::Record(mark)) => {
                if let Some(room) = self.rooms.get_mut(&written.election) {
                    room.owed = room.owed.filter(|owed| *owed > mark);
                    while let Some((_, record)) = room.records.front().filter(|(it, _)| *it <= mark).copied() {
                        room.records.pop_front();
                        room.durable = Some(record);
                    }
                }
                self.step(&written.election, Input::Persisted(mark));
            }
            (Ok(()), Wrote::Epoch(answer)) => {
                let _ = answer.send(Ok(()));
            }
            (Ok(()), Wrote::Roll(roll, done)) => {
                self.go_by(roll);
                done(Ok(()));
            }
            (Ok(()), Wrote::Probe) => {}
            (Err(why), _) if why.is_final() => {
                // What the disk says after a failed sync cannot be trusted: another node must lead.
                tracing::error!(%why, "the disk has failed: this node has ended");
                self.tell(Notice::Broken(why.to_string()));
                self.broken = true;
            }
            (Err(why), what) => {
                tracing::warn!(%why, "cannot write: this node leaves the office to others until it can");
                if let (Wrote::Record(mark), Some(room)) = (what, self.rooms.get_mut(&written.election)) {
                    room.owed = room.owed.max(Some(mark));
                }
                self.disk_look_at = self.disk_look_at.min(clock::now());
            }
        }
    }

    /// A leader that could not vote, or come back as itself, is not fit to lead: while in office it writes now and then, and hands over when the disk does not answer.
    fn look_at_disk(&mut self) {
        let now = clock::now();
        if now < self.disk_look_at {
            return;
        }
        let patience = self.settings.pace().patience_min;
        let vitals = self.archive.vitals();
        let stalled = vitals.failure.is_some() || vitals.busy_since.is_some_and(|since| now - since >= patience);
        let in_office = self.elections(|it| it.own.is_some());
        if stalled != self.disk_stalled {
            self.disk_stalled = stalled;
            tracing::warn!("the disk of this node {}", if stalled { "does not answer" } else { "answers again" });
            for election in self.elections(|it| it.stands) {
                if stalled && in_office.contains(&election) {
                    let why = "the disk of the leader does not answer";
                    self.tell(Notice::ShouldHandOver { election, to: None, why });
                } else {
                    self.step(&election, Input::Request(if stalled { Request::Abstain } else { Request::Stand }));
                }
            }
        }
        if vitals.busy_since.is_none() {
            for election in self.elections(|it| it.owed.is_some()) {
                let owed = self.rooms.get(&election).and_then(|it| it.owed);
                self.write(&election, owed.map_or(Wrote::Probe, Wrote::Record));
            }
            let probed = in_office.first().cloned().or_else(|| self.rooms.keys().next().filter(|_| stalled).cloned());
            if let Some(election) = probed {
                self.write(&election, Wrote::Probe);
            }
        }
        self.disk_look_at =
            if in_office.is_empty() && !stalled { Instant::NEVER } else { now + patience.max(DISK_LOOKS_APART_MIN) };
    }

    /// Whether this node takes part: it was told who the members are, and is one.
    fn is_member(&self) -> bool {
        self.roll.number() != RollNumber::UNKNOWN && self.roll.has(self.plan.me)
    }

    /// Whether `from` counts the same members. If it goes by a newer roll, that is fetched; if by an older one, it is told.
    fn goes_by_the_same_roll(&mut self, from: NodeId, theirs: RollNumber) -> bool {
        match self.roll.number().compared(theirs) {
            Some(Ordering::Equal) => return self.is_member(),
            Some(Ordering::Greater) => {
                let asked = self.switchboard.ask(from, RollRequest::Install(self.roll.clone()).write());
                tokio::spawn(asked);
            }
            Some(Ordering::Less) => {
                let (asked, orders) = (self.switchboard.ask(from, RollRequest::Which.write()), self.own_orders.clone());
                tokio::spawn(async move {
                    let Some(roll) = asked.await.ok().and_then(|it| Roll::read(&it)) else { return };
                    if let Some(orders) = orders.upgrade() {
                        let _ = orders.send(Order::Install { roll, answer: oneshot::channel().0 });
                    }
                });
            }
            None if self.foreign.insert(from) => {
                tracing::warn!(%from, "node {from} was told of other members than this one: give all nodes of a group the same");
            }
            None => {}
        }
        false
    }

    /// Goes by this roll as soon as it is on the disk, unless a newer one is known.
    fn install(&mut self, roll: Roll, done: impl FnOnce(Result<(), String>) + Send + 'static) {
        match self.roll.number().compared(roll.number()) {
            Some(Ordering::Equal) => done(Ok(())),
            Some(Ordering::Less) => {
                let members = Members { version: roll.number().0, list: roll.members().to_vec() };
                let written = self.written.clone();
                self.archive.keep_members(members, move |outcome| {
                    let _ = written.send(Written { election: Arc::from(""), what: Wrote::Roll(roll, Box::new(done)), outcome });
                });
            }
            Some(Ordering::Greater) | None => done(Err("another roll is known here".to_owned())),
        }
    }

    fn go_by(&mut self, roll: Roll) {
        // A newer one may have come while this was written.
        if self.roll.number().compared(roll.number()) != Some(Ordering::Less) {
            return;
        }
        let ids: Vec<String> = roll.members().iter().map(|(id, _)| id.to_string()).collect();
        tracing::info!(members = ids.join(","), roll = %roll.number(), "members");
        let was_member = self.is_member();
        self.roll = roll;
        self.switchboard.set_peers(peers_of(&self.roll, self.plan.me));
        self.up.retain(|it| self.roll.has(*it));
        // A roll that leaves nothing to elect was never made.
        let Ok(settings) = self.plan.settings(self.roll.members().iter().map(|(id, _)| *id)) else { return };
        self.settings = settings;
        self.tell(Notice::Members(self.roll.members().iter().map(|(id, _)| *id).collect()));
        for election in self.elections(|_| true) {
            let Some(room) = self.rooms.get_mut(&election) else { continue };
            let mut effects = std::mem::take(&mut self.effects);
            if let Err(why) = room.machine.reconfigure(clock::now(), &self.settings, &mut effects) {
                tracing::error!(%why, "cannot go on with other members");
            }
            for effect in effects.drain() {
                self.carry_out(&election, effect);
            }
            self.effects = effects;
            self.set_alarm(&election);
        }
        if !self.is_member() {
            return self.tell(Notice::Removed);
        }
        if !was_member && !self.disk_stalled && self.alone_until == Instant::ZERO {
            for election in self.elections(|it| it.stands) {
                self.step(&election, Input::Request(Request::Stand));
            }
        }
    }

    fn elections(&self, which: impl Fn(&Room) -> bool) -> Vec<Election> {
        self.rooms.iter().filter(|(_, it)| which(it)).map(|(it, _)| Arc::clone(it)).collect()
    }

    fn tell(&self, notice: Notice) {
        // A user that has gone wants nothing more.
        let _ = self.notices.send(notice);
    }
}
