//! The loop of a node: one wake-up at a time, into the replica, and what it wants carried out in order.
//!
//! The driver decides little: when the leader proposes that time has passed, when its own disk makes it unfit to lead, and when a node that closes has finished.

mod fitness;
mod guests;
mod membership;
mod work;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use incumbent_client::serve::{Belfry, Standing};
use incumbent_peer::clock;
use incumbent_peer::packet::{Freight, Lane as LineLane};
use incumbent_peer::switchboard::{Arrival, Known as PeerKnown, Lines, Security, Switchboard};
use incumbent_protocol::protocol::NodeId;
use incumbent_protocol::time::Instant;
use incumbent_store::command::Request;
use incumbent_store::store::Store;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};

use super::administration;
use super::config::{
    ARRIVALS_MAX, Config, NotStarted, ORDERS_MAX, TIMEOUTS_TO_CLOSE, TURN_MAX, WAKEUPS_PER_TURN, WATCH_READ_BYTES_MAX,
};
use super::counter::{Calls, Counter, Notice};
use super::crew::{DiskHand, Ending, Mate, Wheel};
use super::desk::{Desk, Waiter};
use super::disk;
use super::door::Guard;
use super::expiry::Expiry;
use super::handle::{Call, Consistency, DiskStatus, End, Handle, NodeStatus, NotNow, Order, Outcome, Unanswered, Why};
use super::inquiry;
use super::keeper::{self, Keeper};
use super::members::{self, Book, Members};
use super::opening::{self, Opened};
use super::readers::Readers;
use super::rehearsal;
use super::steward::Steward;
use super::tally::Tally;
use super::tracer::{Condition, Leaderships, Tracer};
use super::watchers::Watchers;
use super::{Addresses, Report, alarmed, apply, door};
use crate::http::Annex;
use crate::log::{DirectoryId, Disk, Known};
use crate::replica::{Effect, Health, Index, Input, Lane, Origin, Place, Replica, Role, Settings, Tag};
use guests::Guests;
use work::{Done, Work};

/// A node that ends waits so long for a disk that does not answer.
const LAST_WRITES: Duration = Duration::from_secs(2);

/// A node that has ended waits so long for clients to take their answers.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

type Started = Result<(Handle, Addresses), NotStarted>;

/// A node from its start to its end, on this thread and one beside it. Nothing is left of it when `over` is dropped.
pub(super) fn run<D: Disk>(
    disk: D,
    config: Config,
    life: oneshot::Receiver<()>,
    started: &std_mpsc::Sender<Started>,
    over: std_mpsc::Sender<()>,
) {
    let opened = match opening::open(disk, &config) {
        Ok(opened) => opened,
        Err(why) => return drop(started.send(Err(why))),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(started.send(Err(NotStarted::System(error.to_string())))),
    };
    match runtime.block_on(Driver::new(opened, config)) {
        Ok((driver, inboxes, handle, addresses, mate)) => {
            // As a task like those that wake it: to wake what the runtime itself waits for takes two system calls more.
            let node = runtime.spawn(driver.run(inboxes, life));
            let _ = started.send(Ok((handle, addresses)));
            mate.steer(Wheel { runtime, node, over });
        }
        Err(why) => drop(started.send(Err(why))),
    }
}

/// All that can happen to a node.
enum Wakeup {
    /// Its threads have done something.
    Report(Report),
    /// Something came from another member.
    Arrival(Arrival),
    /// Somebody wants something.
    Call(Call),
    /// A watch was dropped.
    Unwatched(u64),
    /// It is time.
    Time,
    /// The node was dropped.
    Dropped,
}

struct Inboxes {
    reports: mpsc::UnboundedReceiver<Report>,
    arrivals: mpsc::Receiver<Arrival>,
    orders: mpsc::Receiver<Call>,
    calls: Calls,
    unwatched: mpsc::UnboundedReceiver<u64>,
}

impl Inboxes {
    async fn next(&mut self, life: &mut oneshot::Receiver<()>, wait: Duration) -> Wakeup {
        tokio::select! {
            // What is safe on disk is told first: others wait for it.
            biased;
            _ = life => Wakeup::Dropped,
            report = self.reports.recv() => Wakeup::Report(report.unwrap_or_else(|| Report::Broken("the threads have ended".to_owned()))),
            Some(arrival) = self.arrivals.recv() => Wakeup::Arrival(arrival),
            Some(call) = self.calls.recv() => Wakeup::Call(call),
            Some(call) = self.orders.recv() => Wakeup::Call(call),
            Some(number) = self.unwatched.recv() => Wakeup::Unwatched(number),
            () = rest(wait) => Wakeup::Time,
        }
    }

    /// What else has come from the node's threads and from other nodes.
    fn try_news(&mut self) -> Option<Wakeup> {
        let report = self.reports.try_recv().ok().map(Wakeup::Report);
        report.or_else(|| self.arrivals.try_recv().ok().map(Wakeup::Arrival))
    }

    /// What else users want, of whom some come by connections and others from other threads.
    fn try_calls(&mut self) -> impl Iterator<Item = Call> {
        [self.calls.try_recv(), self.orders.try_recv().ok()].into_iter().flatten()
    }

    /// What is left when no more orders are taken. Waits for whoever is handing one in at this moment: HTTP has a thread of its own.
    async fn last_order(&mut self) -> Option<Order> {
        let call = match self.calls.try_recv() {
            Some(call) => Some(call),
            None => self.orders.recv().await,
        };
        call.map(|it| it.order)
    }
}

struct Driver {
    me: NodeId,
    settings: Settings,
    replica: Replica,
    store: Store,
    applied: Index,
    snapshot: Index,
    role: Role,
    leaderships: Leaderships,
    /// The store of a snapshot that has come, until the replica wants it.
    arrived: Option<(Index, Box<Store>)>,
    switchboard: Switchboard,
    cluster: String,
    /// How that began.
    origin: Option<Origin>,
    security: Security,
    directory: DirectoryId,
    /// Where the others are.
    book: Book,
    /// Whether this node is, or was when it last heard of it.
    is_member: bool,
    members: watch::Sender<Members>,
    /// For what it does for its users beside its own work.
    handle: Handle,
    known: BTreeMap<NodeId, Known>,
    disk: DiskHand,
    disk_status: DiskStatus,
    keeper: Keeper,
    /// What is to be done to the store, in the order of the log.
    work: VecDeque<Work>,
    /// Some who listen have not heard yet of what was done last.
    ringing: bool,
    /// What was asked of this node and done, to be told when all who listen have heard of it.
    done: Vec<Done>,
    /// In it, bytes of what was decided.
    work_bytes: usize,
    /// Then it is somebody else's turn.
    turn_until: Instant,
    readers: Readers,
    guests: Guests,
    desk: Desk,
    watchers: Watchers,
    belfry: Belfry,
    notice: Arc<Notice>,
    unwatched: mpsc::UnboundedSender<u64>,
    expiry: Expiry,
    closing: Option<Closing>,
    end: Option<End>,
    roles: watch::Sender<Role>,
    closings: watch::Sender<bool>,
    ends: watch::Sender<Option<End>>,
    /// Lets clients in.
    door: Option<tokio::task::JoinHandle<()>>,
    /// What the replica is to be given in this turn.
    inputs: Vec<Input>,
    effects: Vec<Effect>,
}

/// A node that is to end in peace.
struct Closing {
    until: Instant,
    /// When to ask again for a successor.
    transfer_again: Instant,
}

impl Driver {
    async fn new<D: Disk>(
        opened: Opened<D>,
        config: Config,
    ) -> Result<(Driver, Inboxes, Handle, Addresses, Mate<D>), NotStarted> {
        let Opened { log, store, recovered, found } = opened;
        let system = |error: std::io::Error| NotStarted::System(error.to_string());
        let (arrivals_in, arrivals) = mpsc::channel(ARRIVALS_MAX);
        let (reports_in, reports) = mpsc::unbounded_channel();
        let (orders_in, orders) = mpsc::channel(ORDERS_MAX);
        let (unwatched_in, unwatched) = mpsc::unbounded_channel();
        let nonce = nonce();
        let applied = recovered.snapshot.index;
        let origin = recovered.snapshot.origin;
        let replica = Replica::start(config.me, nonce, nonce, config.apart(), recovered, clock::now());
        let replica = replica.map_err(NotStarted::Log)?;
        let book = Book::new(config.me, &config.peers, &store);
        let is_member = replica.roll().contains(config.me);
        let lines = Lines {
            cluster: config.cluster.clone(),
            me: config.me,
            directory: found.directory,
            generation: found.generation,
            origin: origin.map(Origin::to_bytes),
            nonce,
            listen: config.listen.clone(),
            peers: book.peers(replica.roll(), &[]),
            settings: config.terms(),
            security: config.security.clone(),
            patience: config.settings.election_timeout() * 2,
            known: found.known.iter().map(to_peer).collect(),
        };
        let switchboard = Switchboard::open(lines, arrivals_in).await.map_err(|why| NotStarted::Lines(why.to_string()))?;
        let clients = rehearsal::listen_to_clients(&config).await?;
        let clients_address = clients.as_ref().map(TcpListener::local_addr).transpose().map_err(system)?;
        let guard = Guard::read(&config.admission).map_err(NotStarted::Clients)?;
        let addresses = Addresses { peers: switchboard.local_address(), clients: clients_address };
        let keeper = Keeper::start(log.snapshots(), log.reader(), reports_in.clone()).map_err(system)?;
        let readers = Readers::start(reports_in.clone()).map_err(system)?;
        let (disk, mate) = DiskHand::start(log, reports_in.clone()).map_err(system)?;
        let role = replica.view().role;
        let (roles, role_out) = watch::channel(role);
        let (ends, ended) = watch::channel(None);
        let (closings, closing) = watch::channel(false);
        let (members, members_out) = watch::channel(book.recorded.clone());
        let tracer = Tracer::new(config.traces.clone(), role_out.clone());
        let handle = Handle {
            me: config.me,
            orders: orders_in,
            guest: Arc::default(),
            ended,
            closing,
            role: role_out,
            members: members_out,
            tracer: tracer.clone(),
            tally: Tally::default(),
        };
        let own = membership::own_place(&config, addresses);
        let steward = Steward { handle: handle.clone(), own, election_timeout: config.settings.election_timeout() };
        tokio::spawn(alarmed(reports_in.clone(), steward.attend()));
        let notice = Arc::new(Notice::new(Standing {
            node: config.me.0.into(),
            cluster: config.cluster.clone(),
            revision: store.revision(),
            leaderless: role.leader.is_none(),
            ..Standing::default()
        }));
        let (counter, calls) = Counter::new(Arc::clone(&notice), tracer, handle.tally().clone());
        let door = match clients {
            Some(listener) => {
                let annex = Annex::open(handle.clone()).map_err(system)?;
                Some(tokio::spawn(alarmed(reports_in, door::keep(listener, handle.clone(), counter, guard, annex))))
            }
            None => None,
        };
        let driver = Driver {
            me: config.me,
            settings: config.settings,
            replica,
            store,
            applied,
            snapshot: applied,
            role,
            leaderships: Leaderships::new(config.traces, role),
            arrived: None,
            switchboard,
            cluster: config.cluster,
            origin,
            security: config.security,
            directory: found.directory,
            book,
            is_member,
            members,
            handle: handle.clone(),
            known: found.known.into_iter().map(|it| (it.node, it)).collect(),
            disk,
            disk_status: DiskStatus::default(),
            keeper,
            work: VecDeque::new(),
            ringing: false,
            done: Vec::new(),
            work_bytes: 0,
            turn_until: clock::now() + TURN_MAX,
            readers,
            guests: Guests::default(),
            desk: Desk::default(),
            watchers: Watchers::default(),
            belfry: Belfry::new(),
            notice,
            unwatched: unwatched_in,
            expiry: Expiry::default(),
            closing: None,
            end: None,
            roles,
            closings,
            ends,
            door,
            inputs: Vec::new(),
            effects: Vec::new(),
        };
        Ok((driver, Inboxes { reports, arrivals, orders, calls, unwatched }, handle, addresses, mate))
    }

    async fn run(mut self, mut inboxes: Inboxes, mut life: oneshot::Receiver<()>) {
        self.step(Input::Wake);
        while self.end.is_none() {
            let wait = self.deadline() - clock::now();
            let first = inboxes.next(&mut life, wait).await;
            if let Wakeup::Dropped = first {
                return self.let_go();
            }
            self.turn_until = clock::now() + TURN_MAX;
            self.on_wakeup(first);
            // However busy it is: whoever listens no more is not told any more.
            for _ in 0..ORDERS_MAX {
                let Ok(number) = inboxes.unwatched.try_recv() else { break };
                self.watchers.remove(number);
            }
            // However much comes from other nodes, users get their turn; and however long it takes what they want, other nodes get theirs.
            for _ in 0..WAKEUPS_PER_TURN {
                let Some(wakeup) = self.end.is_none().then(|| inboxes.try_news()).flatten() else { break };
                self.on_wakeup(wakeup);
                if clock::now() >= self.turn_until {
                    break;
                }
            }
            for _ in 0..ORDERS_MAX {
                let mut any = false;
                for call in inboxes.try_calls() {
                    self.on_call(call);
                    any = true;
                }
                if !any {
                    break;
                }
            }
            self.serve_guests();
            self.step_on();
            self.on_time();
            self.step_on();
            let mut is_busy = clock::now() >= self.turn_until;
            if !self.work.is_empty() || self.ringing {
                self.turn_until = clock::now() + TURN_MAX;
                self.work_on();
                is_busy |= !self.work.is_empty() || self.ringing;
            }
            if is_busy {
                // Whatever else is there: the lines to the others are on this thread, too.
                tokio::task::yield_now().await;
            }
        }
        // Whoever has asked meanwhile is told that it was not done, and whoever asks now need not wait.
        inboxes.orders.close();
        if self.closing.is_some() {
            self.dismiss_guests();
            let last = async {
                while let Some(order) = inboxes.last_order().await {
                    self.on_order(order);
                }
            };
            // One who may hand in an order and never does is not waited for.
            let _ = tokio::time::timeout(LAST_ANSWERS, last).await;
        }
        self.finish(inboxes).await;
    }

    fn on_wakeup(&mut self, wakeup: Wakeup) {
        match wakeup {
            Wakeup::Report(report) => self.on_report(report),
            Wakeup::Arrival(arrival) => self.on_arrival(arrival),
            Wakeup::Call(call) => self.on_call(call),
            Wakeup::Unwatched(number) => self.watchers.remove(number),
            Wakeup::Time => self.with_the_rest(Input::Wake),
            // It was the last.
            Wakeup::Dropped => {}
        }
    }

    /// When to wake, if nothing else happens before.
    fn deadline(&self) -> Instant {
        let now = clock::now();
        if !self.work.is_empty() || !self.inputs.is_empty() || self.ringing || self.guests.is_any_ready() {
            return now;
        }
        let closing = self.closing.as_ref().map(|it| it.until.min(it.transfer_again));
        let late = self.looks_for_late_guests_at();
        let deadlines = [self.replica.deadline(), self.desk.gathered_until, self.expire_at(now), late, closing];
        deadlines.into_iter().flatten().min().unwrap_or(Instant::NEVER)
    }

    /// What is due whatever has happened: however much arrives, nothing is late for it.
    fn on_time(&mut self) {
        let now = clock::now();
        if self.replica.deadline().is_some_and(|at| at <= now) {
            self.step(Input::Wake);
        }
        while let Some((tag, request)) = self.desk.gathered(now) {
            self.propose(tag, request, Place::Anywhere);
        }
        if self.expire_at(now).is_some_and(|at| at <= now) {
            let tag = self.desk.wait(Waiter::Nobody);
            let (request, place) = self.expiry.propose(tag, self.role);
            self.propose(tag, request, place);
        }
        self.refuse_late_guests(now);
        self.close_if_done(now);
    }

    // What comes in.

    /// Now, and after all that came before.
    fn step(&mut self, input: Input) {
        self.with_the_rest(input);
        self.step_on();
    }

    /// Together with what else this turn brings: one entry takes all proposals, and one letter what two answers allow.
    fn with_the_rest(&mut self, input: Input) {
        self.inputs.push(input);
    }

    fn step_on(&mut self) {
        // What the effects of a step bring about is another step.
        while !self.inputs.is_empty() {
            let (mut inputs, mut effects) = (std::mem::take(&mut self.inputs), std::mem::take(&mut self.effects));
            self.replica.step(clock::now(), inputs.drain(..), &mut effects);
            self.inputs = inputs;
            for effect in effects.drain(..) {
                // Nothing is built on a store that lacks an entry: nobody is answered from it, and no snapshot is taken of it.
                if matches!(self.end, Some(End::Broken(_))) {
                    break;
                }
                self.carry_out(effect);
            }
            self.effects = effects;
        }
    }

    fn propose(&mut self, tag: Tag, request: Request, place: Place) {
        self.with_the_rest(Input::Propose { tag, payload: apply::payload(request, wall_ms()), place });
    }

    fn on_report(&mut self, report: Report) {
        match report {
            Report::Persisted { mark, took } => {
                self.with_the_rest(Input::Persisted(mark));
                self.note_write(took);
            }
            Report::Full(error) => {
                tracing::error!(node = %self.me, %error, "the disk is full: this node confirms nothing and only answers questions; make room");
                self.disk_status.full = Some(error);
                self.step(Input::Health(Health::Unfit));
            }
            Report::Room => {
                tracing::info!(node = %self.me, "the disk has room again");
                self.disk_status.full = None;
                self.step(Input::Health(Health::Fit));
            }
            Report::Broken(why) => self.end = Some(End::Broken(why)),
            Report::Saved { index, extent } => {
                self.snapshot = self.snapshot.max(index);
                self.step(Input::Saved { index, extent });
            }
            Report::Unsaved { index } => self.step(Input::Unsaved { index }),
            Report::Piece { to, index, offset, bytes } => self.step(Input::Piece { to, index, offset, bytes }),
            Report::Expecting { index, have } => self.step(Input::Expecting { index, have }),
            Report::Kept { index, have } => self.step(Input::Kept { index, have }),
            Report::Stored { index, store } => {
                let whole = store.is_some();
                self.arrived = store.map(|store| (index, store));
                self.step(Input::Stored { index, whole });
            }
        }
    }

    fn on_arrival(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Freight { from, body } => self.with_the_rest(Input::Receive { from, bytes: body.into() }),
            Arrival::Up { peer, directory, generation } => {
                let known = Known { node: peer, directory, generation };
                if self.known.insert(peer, known) != Some(known) {
                    self.disk.give(disk::Task::Remember(self.known.values().copied().collect()));
                }
            }
            Arrival::Down { peer } => self.step(Input::Unreachable(peer)),
            Arrival::Refused { peer } => self.step(Input::Refused(peer)),
            // The switchboard has logged it.
            Arrival::Complaint { .. } => {}
            // These belong to peers that elect one of themselves.
            Arrival::Word { .. } | Arrival::Gossip { .. } => {}
            Arrival::Asked { body, reply, .. } => reply.send(inquiry::answer(&body, &self.status())),
        }
    }

    fn on_order(&mut self, order: Order) {
        match order {
            Order::Submit { request, answer } => {
                if let Some(why) = self.unwilling() {
                    answer.tell(Outcome::NotNow(self.not_now(why)));
                } else if let Some((request, answer)) = self.desk.gather(clock::now(), request, answer) {
                    let tag = self.desk.wait(Waiter::Submit(answer));
                    self.propose(tag, request, Place::Anywhere);
                }
            }
            Order::Ask { query, consistency: Consistency::Local, seen, answer } if seen <= self.store.revision() => {
                self.answer(query, answer);
            }
            // What is behind what the asker has seen is caught up with as for any that must be new.
            Order::Ask { query, consistency: Consistency::Local | Consistency::Linearizable, seen: _, answer } => {
                if self.closing.is_some() {
                    answer.tell(Err(Unanswered::NotNow(self.not_now(Why::Closing))));
                } else {
                    let tag = self.desk.wait(Waiter::Ask(query, answer));
                    self.with_the_rest(Input::Read { tag });
                }
            }
            Order::Watch { interest, guest, from, answer } => {
                let _ = answer.send(self.watchers.add(interest, guest, from, &self.store, self.unwatched.clone()));
            }
            Order::Status { answer } => drop(answer.send(self.status())),
            Order::Digest { answer } => self.work(Work::Digest(answer)),
            Order::Transfer { to } => self.step(Input::Transfer { to }),
            Order::Change { steps, answer } => {
                let tag = self.desk.wait(Waiter::Change(answer));
                self.step(Input::Change { tag, steps });
            }
            Order::Peers { peers } => {
                self.book.name(&peers);
                self.set_peers();
            }
            Order::Close => {
                let now = clock::now();
                let until = now + self.settings.election_timeout() * TIMEOUTS_TO_CLOSE;
                self.closing.get_or_insert(Closing { until, transfer_again: now });
                self.closings.send_replace(true);
            }
            Order::Attend { watcher, interest, bell, charge: _done } => self.belfry.add_as(watcher, interest, bell),
            Order::Leave { watcher, charge: _done } => self.belfry.remove(watcher),
            Order::Events { asked, reading } => reading.done(self.store.events(&asked, WATCH_READ_BYTES_MAX)),
            Order::Lost { guest, sessions } => self.work(Work::EndSessions(guest, sessions.into_iter())),
            Order::Administer { administration, answer } => {
                let (handle, timeout) = (self.handle.clone(), self.settings.election_timeout());
                tokio::spawn(async move { answer.tell(administration::attend(handle, timeout, administration).await) });
            }
            Order::Inquire { whom, answer } => self.inquire(whom, answer),
            Order::LookElsewhere => {
                if self.book.look_elsewhere(&self.switchboard.lines()) {
                    self.set_peers();
                }
            }
            Order::Removed { by, index } => self.be_removed(&format!("as node {by} has it, at entry {index}")),
            Order::BackUp { answer } => self.work(Work::BackUp(answer)),
            Order::ReadBackup { wanted, answer } => self.keeper.give(keeper::Task::ReadBackup { wanted, answer }),
        }
    }

    /// Why no request is taken.
    fn unwilling(&self) -> Option<Why> {
        if self.closing.is_some() {
            Some(Why::Closing)
        } else if self.disk_status.full.is_some() {
            Some(Why::ReadOnly)
        } else {
            None
        }
    }

    /// What may cost this node the lead.
    fn condition(&self) -> Condition {
        match (&self.closing, &self.disk()) {
            (Some(_), _) => Condition::Closing,
            (None, DiskStatus { full: Some(_), .. }) => Condition::DiskFull,
            (None, DiskStatus { slow: true, .. }) => Condition::DiskSlow,
            (None, DiskStatus { .. }) => Condition::Well,
        }
    }

    fn not_now(&self, why: Why) -> NotNow {
        // Who cannot do it is not the one to ask.
        let leader = self.role.leader.filter(|it| why != Why::ReadOnly || *it != self.me);
        NotNow { why, leader }
    }

    // What the replica wants.

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Send { to, lane, bytes } => {
                let lane = match lane {
                    Lane::Prompt => LineLane::Urgent,
                    Lane::Bulk => LineLane::Bulk,
                };
                self.switchboard.send_freight(to, Freight { lane, body: bytes.into() });
            }
            Effect::Write(write) => self.disk.give(disk::Task::Write(write, std::time::Instant::now())),
            Effect::Commit(entries) => self.commit(entries),
            Effect::ReadAt { tag, .. } => self.work(Work::Read(tag)),
            Effect::Reject { tag, why, leader } => {
                self.forget_expiry(tag);
                self.desk.reject(tag, why, leader, self.settings.payload_bytes_max);
            }
            Effect::Unknown { tag } => {
                self.forget_expiry(tag);
                self.desk.unknown(tag, self.role.leader);
            }
            Effect::TakeSnapshot(snapshot) => self.work(Work::Snapshot(snapshot)),
            Effect::Compact(index) => self.disk.give(disk::Task::Compact(index)),
            Effect::ReadPiece { to, index, offset, bytes_max } => {
                self.keeper.give(keeper::Task::Read { to, index, offset, bytes_max });
            }
            Effect::Expect { snapshot, extent } => self.keeper.give(keeper::Task::Expect(snapshot, extent)),
            Effect::StorePiece { index, offset, bytes, last } => {
                self.keeper.give(keeper::Task::Keep { index, offset, bytes, last });
            }
            // Another may come before this one's turn.
            Effect::Install(snapshot) => {
                let arrived = self.arrived.take();
                self.work(Work::Install(snapshot, arrived));
            }
            Effect::Role(role) => {
                self.leaderships.change(role, self.condition());
                let why = self.leaderships.why();
                tracing::info!(node = %self.me, term = %role.term, leader = %members::listed(&role.leader), leads = role.leads, why, "who leads");
                self.role = role;
                self.tell_clients();
                self.roles.send_replace(role);
            }
            Effect::Members { index, roll } => {
                let [voters, learners, leaving] = [roll.voters(), roll.learners(), roll.outgoing()].map(members::listed);
                tracing::info!(node = %self.me, index, %voters, %learners, %leaving, "the members have changed");
                if self.is_member && !roll.contains(self.me) {
                    self.be_removed(&format!("at entry {index}"));
                }
                self.is_member = roll.contains(self.me);
                self.look_around();
            }
            Effect::Halt { index, why } => self.halt(index, why),
        }
    }

    // What ends by time.

    /// When the leader is to say that time has passed.
    fn expire_at(&self, now: Instant) -> Option<Instant> {
        if self.closing.is_some() {
            return None;
        }
        self.expiry.due(now, self.role, &self.replica, &self.store)
    }

    /// The proposal was not taken, or nobody knows.
    fn forget_expiry(&mut self, tag: Tag) {
        self.expiry.failed(tag, clock::now(), self.settings.election_timeout());
    }

    // The end.

    fn close_if_done(&mut self, now: Instant) {
        let Some(closing) = &mut self.closing else { return };
        let heirs = self.replica.roll().voters().len() > 1;
        let idle = self.desk.is_empty() && self.guests.is_empty() && !(self.role.leads && heirs);
        if idle || now >= closing.until {
            self.end.get_or_insert(End::Closed);
        } else if now >= closing.transfer_again {
            closing.transfer_again = now + self.settings.election_timeout();
            self.step(Input::Transfer { to: None });
        }
    }

    async fn finish(self, inboxes: Inboxes) {
        let Driver { switchboard, ends, end, disk, keeper, desk, watchers, me, leaderships, door, .. } = self;
        leaderships.end();
        // Why is said by whoever waits for the end, once.
        match &end {
            Some(End::Broken(_)) => tracing::error!(node = %me, "the node ends"),
            Some(End::Removed(_)) => tracing::warn!(node = %me, "the node ends"),
            Some(End::Closed) | None => {}
        }
        switchboard.close().await;
        drop(switchboard);
        // Nobody waits for an answer that cannot come.
        drop((desk, watchers, inboxes));
        wait_for(disk.end(), keeper.end()).await;
        ends.send_replace(end);
        if let Some(door) = door {
            let _ = tokio::time::timeout(LAST_ANSWERS, door).await;
        }
    }

    /// As if the process were killed: but the directory must be free afterwards.
    fn let_go(self) {
        let Driver { switchboard, disk, keeper, ends, .. } = self;
        drop(switchboard);
        disk.end().wait();
        let _ = keeper.end().join();
        ends.send_replace(Some(End::Closed));
    }

    fn status(&self) -> NodeStatus {
        let view = self.replica.view();
        NodeStatus {
            node: self.me,
            role: self.role,
            why: self.leaderships.why(),
            roll: self.replica.roll().clone(),
            commit: view.commit,
            applied: self.applied,
            first: view.first,
            last: view.last,
            revision: self.store.revision(),
            snapshot: self.snapshot,
            disk: self.disk(),
            watches: self.watchers.len() + self.belfry.len(),
            waiting: self.desk.len() + self.guests.len(),
            lines: self.switchboard.lines(),
            cluster: self.cluster.clone(),
            origin: self.origin,
            incarnation: self.store.incarnation(),
            members: self.book.recorded.clone(),
            places: self.book.everywhere(),
            lags: self.replica.lags(),
            directory: self.directory,
            known: self.known.values().copied().collect(),
        }
    }
}

/// Nothing is to be done before; or there is, and all others are let through first.
async fn rest(wait: Duration) {
    if wait.is_zero() { tokio::task::yield_now().await } else { tokio::time::sleep(wait).await }
}

/// A disk that does not answer must not keep a node from ending.
async fn wait_for(disk: Ending, keeper: JoinHandle<()>) {
    let (ended, end) = oneshot::channel::<()>();
    let joining = std::thread::Builder::new().name("incumbent-end".to_owned()).spawn(move || {
        disk.wait();
        let _ = keeper.join();
        drop(ended);
    });
    if joining.is_ok() {
        let _ = tokio::time::timeout(LAST_WRITES, end).await;
    }
}

/// For people.
fn wall_ms() -> u64 {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(wall.as_millis()).unwrap_or(u64::MAX)
}

fn to_peer(known: &Known) -> PeerKnown {
    PeerKnown { id: known.node, directory: known.directory, generation: known.generation }
}

/// 64 bits that no other start of a node has.
fn nonce() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.write_u64(clock::now().as_nanos());
    hasher.finish()
}

#[cfg(test)]
mod tests;
