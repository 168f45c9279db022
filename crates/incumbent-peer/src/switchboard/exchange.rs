//! Where all lines meet: routes, queues, questions, and what is told of it. One lock, never held while anything is awaited.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use incumbent_protocol::protocol::NodeId;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::crowd::Crowd;
use super::post::{Outlet, Post};
use super::stream::{Fault, Guard};
use super::{Arrival, AskError, Asker, LineState, LineView, Lines, Reply, ReplyTo};
use crate::packet::{Lane, Mail, NODES_MAX, Packet, Passport, Pulse, RELAYS_MAX, Route};
use crate::turns::Turns;

/// Pulses in a patience. A line is silent after half a patience, which is two and a half of them: as a pulse is left out only when something was sent in the
/// half before it, a healthy line is never quiet for more than one and a half, and one late wake-up is forgiven.
const PULSES_PER_PATIENCE: u32 = 5;
/// However short the patience: a node must be able to sleep.
const BEAT_MIN: Duration = Duration::from_millis(5);
/// After so many patiences of silence a connection is given up and dialled anew: TCP itself would wait ever longer after a partition.
const PATIENCES_TO_GIVE_UP: u32 = 2;
/// How long an answer may take, at least.
const ANSWER_MIN: Duration = Duration::from_secs(2);
/// Questions that may wait for their answers at one time.
const QUESTIONS_MAX: usize = 1024;
/// The same complaint is made once in this time.
const COMPLAINT_EVERY: Duration = Duration::from_secs(60);
/// Different complaints remembered. A stranger with many addresses gets the rest of them logged never.
const COMPLAINTS_MAX: usize = 256;
/// So long steps of handshakes are computed for those who dial us, and then it is the turn of the others again.
const HANDSHAKES_MAX: Duration = Duration::from_millis(2);
/// What is queued when a switchboard is closed has this long to be written.
const FAREWELL: Duration = Duration::from_millis(250);

pub(super) struct Exchange {
    pub(super) cluster: String,
    /// Which process this is.
    identity: Passport,
    pub(super) guard: Guard,
    /// Strangers' handshakes, on the thread that carries all lines.
    pub(super) turns: Turns,
    pub(super) patience: Duration,
    pub(super) arrivals: mpsc::Sender<Arrival>,
    beat: Duration,
    started: Instant,
    board: Mutex<Board>,
    tasks: Mutex<JoinSet<()>>,
    /// A connection has ended.
    ended: Notify,
}

/// What changes.
pub(super) struct Board {
    pub(super) settings: String,
    /// How the group began: a newcomer learns it later.
    origin: Option<[u8; 16]>,
    pub(super) posts: BTreeMap<NodeId, Post>,
    pub(super) known: BTreeMap<NodeId, Memory>,
    pub(super) banished: BTreeMap<NodeId, String>,
    /// Connections of guests.
    pub(super) guests: BTreeMap<u64, Outlet>,
    /// Connections that nobody has been let in by yet.
    pub(super) crowd: Crowd,
    /// Lets connections in.
    pub(super) door: Option<AbortHandle>,
    connections: u64,
    questions: BTreeMap<u64, oneshot::Sender<Vec<u8>>>,
    last_question: u64,
    complaints: BTreeMap<String, Instant>,
    closing: bool,
}

/// What is remembered of a member.
#[derive(Copy, Clone)]
pub(super) struct Memory {
    pub(super) directory: [u8; 16],
    pub(super) generation: u64,
    /// The process, if this one has seen it.
    pub(super) nonce: Option<u64>,
}

/// What a connection shall do after a look at the clock.
pub(super) struct Beat {
    pub(super) next: Instant,
    pub(super) arrival: Option<Arrival>,
    /// Nothing was heard for so long that the connection is of no use.
    pub(super) give_up: bool,
}

impl Exchange {
    pub(super) fn new(lines: &Lines, guard: Guard, arrivals: mpsc::Sender<Arrival>) -> Arc<Exchange> {
        let known =
            lines.known.iter().map(|it| (it.id, Memory { directory: it.directory, generation: it.generation, nonce: None }));
        let board = Board {
            settings: lines.settings.clone(),
            origin: lines.origin,
            posts: BTreeMap::new(),
            known: known.collect(),
            banished: BTreeMap::new(),
            guests: BTreeMap::new(),
            crowd: Crowd::default(),
            door: None,
            connections: 0,
            questions: BTreeMap::new(),
            // Answers to questions of an earlier process of this node must not look like answers to ours.
            last_question: lines.nonce << 20,
            complaints: BTreeMap::new(),
            closing: false,
        };
        Arc::new(Exchange {
            cluster: lines.cluster.clone(),
            identity: lines.passport(),
            guard,
            turns: Turns::new(HANDSHAKES_MAX),
            patience: lines.patience,
            arrivals,
            beat: (lines.patience / PULSES_PER_PATIENCE).max(BEAT_MIN),
            started: Instant::now(),
            board: Mutex::new(board),
            tasks: Mutex::new(JoinSet::new()),
            ended: Notify::new(),
        })
    }

    pub(super) fn me(&self) -> NodeId {
        self.identity.id
    }

    pub(super) fn nonce(&self) -> u64 {
        self.identity.nonce
    }

    /// As it is shown to others.
    pub(super) fn passport(&self, board: &Board) -> Passport {
        Passport { origin: board.origin, ..self.identity }
    }

    /// Nothing is left half-changed by a panic of ours, as none is thrown while it is held.
    pub(super) fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn silence(&self) -> Duration {
        (self.patience / 2).max(BEAT_MIN * 2)
    }

    pub(super) fn give_up_after(&self) -> Duration {
        (self.patience * PATIENCES_TO_GIVE_UP).max(BEAT_MIN * 4)
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task)
    }

    /// Sends mail of ours.
    pub(super) fn send(&self, to: NodeId, mail: Mail) {
        self.board().send(self.me(), to, mail);
    }

    pub(super) async fn ask(&self, to: NodeId, body: Vec<u8>) -> Result<Vec<u8>, AskError> {
        let (tell, answer) = oneshot::channel();
        let id = {
            let mut board = self.board();
            if !board.reaches(to) {
                let why = board.posts.get(&to).and_then(|it| it.trouble.as_ref()).map(|it| format!(": {it}"));
                return Err(AskError::Unreachable(format!("node {to} cannot be reached{}", why.unwrap_or_default())));
            }
            if board.questions.len() >= QUESTIONS_MAX {
                return Err(AskError::Unreachable(format!("{QUESTIONS_MAX} questions wait for answers already")));
            }
            board.last_question = board.last_question.wrapping_add(1);
            let id = board.last_question;
            board.questions.insert(id, tell);
            board.send(self.me(), to, Mail::Ask { id, body });
            id
        };
        let question = Question { exchange: self, id };
        let answer = tokio::time::timeout((self.patience * 4).max(ANSWER_MIN), answer).await;
        drop(question);
        match answer {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(_)) | Err(_) => Err(AskError::TimedOut),
        }
    }

    pub(super) fn answer_guest(&self, connection: u64, mail: Mail) {
        let route = Route { from: self.me(), to: self.me(), relayed: false, more: 0 };
        if let Some(outlet) = self.board().guests.get_mut(&connection) {
            outlet.push(Packet::Mail { route, mail });
        }
    }

    pub(super) fn guest_left(&self, connection: u64) {
        self.board().guests.remove(&connection);
        self.ended.notify_waiters();
    }

    pub(super) fn set_settings(&self, settings: String) {
        self.board().settings = settings;
    }

    pub(super) fn set_origin(&self, origin: [u8; 16]) {
        let mut board = self.board();
        board.origin = Some(origin);
        let differs = |post: &&mut Post| post.passport.and_then(|it| it.origin).is_some_and(|it| it != origin);
        board.posts.values_mut().filter(differs).for_each(Post::hang_up);
    }

    pub(super) fn banish(&self, peer: NodeId, why: &str) {
        let mut board = self.board();
        board.banished.insert(peer, why.to_owned());
        if let Some(post) = board.posts.get_mut(&peer) {
            post.hang_up();
        }
    }

    /// A number for a new connection.
    pub(super) fn number(&self) -> u64 {
        let mut board = self.board();
        board.connections += 1;
        board.connections
    }

    /// Moves what waits for this connection to `out`, if there is room, up to a limit. `None` if the connection is not wanted any longer.
    pub(super) fn take(&self, carries: Carries, connection: u64, waker: &Waker, out: Option<&mut Vec<u8>>) -> Option<()> {
        /// Enough for a good write, and little enough to keep.
        const WRITE_MAX: usize = 32 * 1024;
        let mut board = self.board();
        let closing = board.closing;
        let outlet = board.outlet(carries, connection).filter(|outlet| outlet.connection == Some(connection))?;
        outlet.wake_later(waker);
        let Some(out) = out else { return Some(()) };
        let mut unsendable = None;
        while out.len() < WRITE_MAX {
            let Some(packet) = outlet.pop() else { break };
            let kind = packet.kind();
            if let Err(wrong) = packet.encode(out) {
                unsendable = Some(format!("a {kind} was not sent: {wrong}"));
            }
        }
        if out.is_empty() && closing {
            return None;
        }
        drop(board);
        if let Some(what) = unsendable {
            self.complain("this node", "unsendable", what);
        }
        Some(())
    }

    /// A lane to a member stands: what to tell first. `Err` if another connection is there already, or it is not wanted.
    pub(super) fn connected(
        &self,
        peer: NodeId,
        passport: Passport,
        lane: Lane,
        version: u32,
        connection: u64,
    ) -> Result<Vec<Arrival>, Fault> {
        let now = Instant::now();
        let mut board = self.board();
        if board.closing {
            return Err(Fault::Closed);
        }
        let Some(post) = board.posts.get_mut(&peer) else { return Err(Fault::Unwelcome("it is not a member".into())) };
        let mut told = Vec::new();
        let outlet = post.outlet(lane);
        outlet.connection = Some(connection);
        // The one before it, if any, sees that it is not wanted any longer.
        outlet.wake();
        if lane == Lane::Bulk {
            return Ok(told);
        }
        let another = post.passport.is_some_and(|it| it.nonce != passport.nonce);
        (post.passport, post.version, post.trouble) = (Some(passport), version, None);
        if another && post.up {
            told.push(Arrival::Down { peer });
            post.up = false;
        }
        (post.heard, post.hears_us, post.hung_up, post.pulse) = (now, true, None, None);
        post.hears.clear();
        post.beyond.clear();
        post.nudge_bulk.notify_one();
        if !post.up {
            post.up = true;
            told.push(Arrival::Up { peer, directory: passport.directory, generation: passport.generation });
        }
        let memory = Memory { directory: passport.directory, generation: passport.generation, nonce: Some(passport.nonce) };
        board.known.insert(peer, memory);
        self.pulse_all(&mut board, now);
        Ok(told)
    }

    /// A lane to a member has ended.
    pub(super) fn disconnected(
        &self,
        peer: NodeId,
        lane: Lane,
        connection: u64,
        fault: &Fault,
        remote: SocketAddr,
    ) -> Option<Arrival> {
        let mut board = self.board();
        self.ended.notify_waiters();
        let post = board.posts.get_mut(&peer)?;
        let outlet = post.outlet(lane);
        let replaced = outlet.connection.is_some_and(|it| it != connection);
        if replaced {
            return None;
        }
        outlet.connection = None;
        let dropped = outlet.clear();
        post.dropped += dropped;
        if lane == Lane::Bulk {
            return None;
        }
        (post.passport, post.hears_us, post.round_trip) = (None, false, None);
        post.hears.clear();
        post.beyond.clear();
        post.hung_up = matches!(fault, Fault::Ended | Fault::Reset).then_some(remote.ip());
        // The lane for long packets goes with it: who is gone is gone on both.
        post.bulk.connection = None;
        post.bulk.wake();
        // Who knocks waits for this; who dials has carried the lane itself, and needs no nudge.
        if self.me() > peer {
            post.nudge.notify_one();
        }
        let told = post.up.then_some(Arrival::Down { peer });
        post.up = false;
        self.pulse_all(&mut board, Instant::now());
        told
    }

    /// Something came from a member: it is heard.
    pub(super) fn heard(&self, peer: NodeId) -> Option<Arrival> {
        let now = Instant::now();
        let mut board = self.board();
        let post = board.posts.get_mut(&peer)?;
        post.heard = now;
        let passport = post.passport?;
        if post.up {
            return None;
        }
        post.up = true;
        self.pulse_all(&mut board, now);
        Some(Arrival::Up { peer, directory: passport.directory, generation: passport.generation })
    }

    pub(super) fn on_pulse(&self, peer: NodeId, pulse: Pulse) {
        let now = Instant::now();
        let mut board = self.board();
        let Some(post) = board.posts.get_mut(&peer) else { return };
        post.received_counts.pulses += 1;
        post.hears_us = pulse.hears.contains(&self.me());
        (post.hears, post.beyond) = (pulse.hears, pulse.beyond);
        post.pulse = Some((pulse.sent, now));
        if pulse.echo != 0 {
            let nanos = self.nanos(now).saturating_sub(pulse.echo).saturating_sub(pulse.held);
            post.round_trip = Some(Duration::from_nanos(nanos));
        }
    }

    /// Mail has come over the line of `peer`: for us, or to be passed on. `Err` with what is wrong about it.
    pub(super) fn on_mail(self: &Arc<Self>, peer: NodeId, route: Route, mail: Mail) -> Result<Option<Arrival>, String> {
        let me = self.me();
        let mut board = self.board();
        if route.to != me {
            let is_its_own = route.from == peer;
            let may_bring = is_its_own || board.posts.get(&peer).is_some_and(Post::passes_on);
            if !route.relayed || !may_bring || route.to == peer {
                return Err(format!("it sent mail from {} to {}, which is not for node {me}", route.from, route.to));
            }
            // Who is no member has nothing passed on; and what has come back to its author has lost its way.
            if !is_its_own && !board.posts.contains_key(&route.from) {
                return Ok(None);
            }
            board.pass_on(peer, route, mail);
            return Ok(None);
        }
        let from = route.from;
        if from == me || (from != peer && !route.relayed) {
            return Err(format!("it sent mail in the name of node {from}"));
        }
        let Some(post) = board.posts.get_mut(&from) else {
            return Err(format!("it passed on mail of node {from}, which is no member"));
        };
        post.received_counts.count(&mail);
        Ok(match mail {
            Mail::Word(word) => Some(Arrival::Word { from, word }),
            Mail::Gossip(gossip) => Some(Arrival::Gossip { from, gossip }),
            Mail::Freight(freight) => Some(Arrival::Freight { from, body: freight.body }),
            Mail::Ask { id, body } => {
                let reply = Reply { exchange: Arc::clone(self), to: ReplyTo::Member(from), id };
                Some(Arrival::Asked { asker: Asker::Member(from), body, reply })
            }
            Mail::Answer { id, body } => {
                if let Some(tell) = board.questions.remove(&id) {
                    let _ = tell.send(body);
                }
                None
            }
        })
    }

    /// The clock of a member's urgent lane: sends a pulse when one is due, and notices silence.
    pub(super) fn beat(&self, peer: NodeId, connection: u64) -> Beat {
        let now = Instant::now();
        // All lines of a node wake at the same moments, so that it sleeps undisturbed between them.
        let beats = now.duration_since(self.started).as_nanos() / self.beat.as_nanos() + 1;
        let next = self.started + self.beat * u32::try_from(beats).unwrap_or(u32::MAX);
        let next = if next <= now { now + self.beat } else { next };
        let mut board = self.board();
        let mut beat = Beat { next, arrival: None, give_up: false };
        let Some(post) = board.posts.get_mut(&peer).filter(|post| post.urgent.connection == Some(connection)) else {
            return beat;
        };
        let quiet = now.duration_since(post.heard);
        beat.give_up = quiet >= self.give_up_after();
        if post.up && quiet >= self.silence() {
            post.up = false;
            beat.arrival = Some(Arrival::Down { peer });
            self.pulse_all(&mut board, now);
        } else if now.duration_since(post.sent) >= self.beat / 2 {
            self.pulse(&mut board, peer, now);
        }
        beat
    }

    /// What we hear has changed: those who would send through us should know.
    fn pulse_all(&self, board: &mut Board, now: Instant) {
        let peers: Vec<NodeId> = board.posts.keys().copied().collect();
        for peer in peers {
            self.pulse(board, peer, now);
        }
    }

    fn pulse(&self, board: &mut Board, peer: NodeId, now: Instant) {
        let hears = board.posts.iter().filter(|(_, post)| post.up).map(|(id, _)| *id).collect();
        let beyond = board.beyond(peer);
        let Some(post) = board.posts.get_mut(&peer).filter(|post| post.urgent.connection.is_some()) else { return };
        let (echo, held) = post.pulse.map_or((0, 0), |(sent, came)| (sent, as_nanos(now.duration_since(came))));
        post.sent = now;
        post.sent_counts.pulses += 1;
        post.push(Lane::Urgent, Packet::Pulse(Pulse { sent: self.nanos(now), echo, held, hears, beyond }));
    }

    /// Never 0, which means none.
    fn nanos(&self, now: Instant) -> u64 {
        as_nanos(now.duration_since(self.started)).max(1)
    }

    /// Says once in a while, in the log and to the driver, what is wrong with an address.
    pub(super) fn complain(&self, address: &str, cause: &str, what: String) {
        let now = Instant::now();
        {
            let mut board = self.board();
            let key = format!("{address} {cause}");
            if board.complaints.get(&key).is_some_and(|last| now.duration_since(*last) < COMPLAINT_EVERY) {
                return;
            }
            if board.complaints.len() >= COMPLAINTS_MAX {
                board.complaints.retain(|_, last| now.duration_since(*last) < COMPLAINT_EVERY);
                if board.complaints.len() >= COMPLAINTS_MAX {
                    return;
                }
            }
            board.complaints.insert(key, now);
        }
        tracing::warn!(address, "{what}");
        // It stands in the log: a driver that is behind need not see it too.
        let _ = self.arrivals.try_send(Arrival::Complaint { address: address.to_owned(), what });
    }

    pub(super) fn views(&self) -> Vec<LineView> {
        let board = self.board();
        let view = |(id, post): (&NodeId, &Post)| LineView {
            peer: *id,
            address: post.address.clone(),
            state: match (post.up, post.urgent.connection) {
                (true, _) => LineState::Up,
                (false, Some(_)) => LineState::Silent,
                (false, None) => LineState::Down,
            },
            round_trip: post.round_trip,
            via: if post.is_good() { None } else { board.relay_to(*id) },
            sent: post.sent_counts,
            received: post.received_counts,
            relayed: post.relayed,
            dropped: post.dropped,
            trouble: post.trouble.clone(),
        };
        board.posts.iter().map(view).collect()
    }

    pub(super) async fn close(&self) {
        self.board().begin_closing();
        let until = Instant::now() + FAREWELL;
        loop {
            let ended = self.ended.notified();
            if self.board().is_quiet() || tokio::time::timeout_at(until, ended).await.is_err() {
                break;
            }
        }
        self.abort();
    }

    pub(super) fn abort(&self) {
        self.board().begin_closing();
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}

fn as_nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// What a connection carries.
#[derive(Copy, Clone)]
pub(super) enum Carries {
    Lane(NodeId, Lane),
    Guest,
}

impl Board {
    fn outlet(&mut self, carries: Carries, connection: u64) -> Option<&mut Outlet> {
        match carries {
            Carries::Lane(peer, lane) => self.posts.get_mut(&peer).map(|post| post.outlet(lane)),
            Carries::Guest => self.guests.get_mut(&connection),
        }
    }

    /// A node through which `to` can be spoken to, by as few as possible, and through how many in all; of those alike the nearest to us.
    fn relay(&self, to: NodeId, fits: impl Fn(NodeId, &Post) -> bool) -> Option<(NodeId, u8)> {
        let carriers = self.posts.iter().filter(|(id, post)| **id != to && fits(**id, post));
        let ways = carriers.filter_map(|(id, post)| Some((post.relays_to(to)?, post.round_trip.unwrap_or(Duration::MAX), *id)));
        ways.min().map(|(relays, _, id)| (id, relays))
    }

    fn relay_to(&self, to: NodeId) -> Option<NodeId> {
        self.relay(to, |_, _| true).map(|(id, _)| id)
    }

    /// Whom we do not hear and could pass mail on to, for one through whom that must not go.
    fn beyond(&self, receiver: NodeId) -> Vec<(NodeId, u8)> {
        let unheard = self.posts.iter().filter(|(id, post)| !post.up && **id != receiver);
        let ways = unheard.filter_map(|(id, _)| {
            let (_, relays) = self.relay(*id, |carrier, post| carrier != receiver && post.passes_on())?;
            (relays < RELAYS_MAX).then_some((*id, relays))
        });
        ways.take(NODES_MAX).collect()
    }

    /// What `peer` has brought goes to the one it is for, or to another who passes it on.
    fn pass_on(&mut self, peer: NodeId, route: Route, mail: Mail) {
        let is_near = self.posts.get(&route.to).is_some_and(|post| post.is_good());
        let (carrier, route) = if is_near {
            (route.to, route)
        } else {
            let Some(more) = route.more.checked_sub(1) else { return };
            let way = self.relay(route.to, |carrier, post| carrier != peer && carrier != route.from && post.passes_on());
            let Some((carrier, _)) = way.filter(|(_, relays)| *relays <= route.more) else { return };
            (carrier, Route { more, ..route })
        };
        if let Some(post) = self.posts.get_mut(&carrier).filter(|post| post.understands(&mail)) {
            post.relayed += 1;
            post.sent = Instant::now();
            post.push(mail.lane(), Packet::Mail { route, mail });
        }
    }

    fn reaches(&self, to: NodeId) -> bool {
        self.posts.get(&to).is_some_and(Post::is_good) || self.relay_to(to).is_some()
    }

    fn send(&mut self, from: NodeId, to: NodeId, mail: Mail) {
        let via = match self.posts.get(&to) {
            None => return,
            Some(post) if post.is_good() => None,
            Some(_) => self.relay(to, |_, _| true),
        };
        let (via, more) = (via.map(|it| it.0), via.map_or(0, |(_, relays)| relays - 1));
        let lane = mail.lane();
        let understood = self.posts.get(&via.unwrap_or(to)).is_some_and(|carrier| carrier.understands(&mail));
        let Some(post) = self.posts.get_mut(&to) else { return };
        if !understood || (via.is_none() && post.urgent.connection.is_none()) {
            post.dropped += 1;
            return;
        }
        post.sent_counts.count(&mail);
        let packet = Packet::Mail { route: Route { from, to, relayed: via.is_some(), more }, mail };
        let Some(carrier) = self.posts.get_mut(&via.unwrap_or(to)) else { return };
        if lane == Lane::Urgent {
            carrier.sent = Instant::now();
        }
        carrier.push(lane, packet);
    }

    fn begin_closing(&mut self) {
        self.closing = true;
        // First, so that a peer that looks whether we are gone finds that we are.
        if let Some(door) = self.door.take() {
            door.abort();
        }
        for outlet in self.posts.values_mut().flat_map(|post| [&mut post.urgent, &mut post.bulk]).chain(self.guests.values_mut())
        {
            outlet.wake();
        }
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Whether a member is at this address, as far as it is known: where its name led when it was last dialled, or from where it came.
    pub(super) fn is_of_member(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.posts.values().any(|post| post.came_from == Some(address) || post.leads_to.contains(&address))
    }

    /// No connection is left that has something to write.
    fn is_quiet(&self) -> bool {
        let lanes = self.posts.values().flat_map(|post| [&post.urgent, &post.bulk]);
        lanes.chain(self.guests.values()).all(|outlet| outlet.connection.is_none())
    }
}

/// A question that waits for its answer; forgotten when nobody does any longer.
struct Question<'a> {
    exchange: &'a Exchange,
    id: u64,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        self.exchange.board().questions.remove(&self.id);
    }
}
