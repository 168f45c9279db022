//! A client of the store: it introduces itself, opens a session, keeps it alive, stands, leads, writes under its token, resigns; and repeats what is not answered, elsewhere.
//!
//! It keeps the rules of the real client: one number for one request however often it is sent, validity counts from the first send of what is numbered and from the last of what is not,
//! and whoever resigns has stopped before. Left out: connections, watches, several requests at once.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use incumbent_protocol::chance::Chance;
use incumbent_protocol::protocol::NodeId;
use incumbent_protocol::timing::Timing;
use incumbent_store::command::{
    Campaign, Command, EndSession, Introduce, KeepAlive, OpenSession, Proclaim, Renew, Request, Resign,
};
use incumbent_store::election::Board;
use incumbent_store::keys::transaction::{Act, Guard, Put, Transaction};
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::{Outcome, Reply};

use super::leases::Leases;
use super::once::Once;
use crate::world::clocks::Clocks;
use crate::world::{MILLISECOND, Moment};

/// Of how many seats each election is; the same for all candidates.
pub(crate) const ELECTIONS: [(&str, usize); 2] = [("one", 1), ("two", 2)];

/// The longest ttl of a session.
pub(crate) const TTL_MS_MAX: u64 = 500;

/// What a client sends, and what it is about.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    pub(crate) matter: Matter,
    pub(crate) to: NodeId,
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    Submit(Request),
    /// Who leads, not older than the question.
    Look(String),
}

/// Which of a client's letters it is, for the answer: whose, in which of its lives, and when it was sent.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Matter {
    pub(crate) client: usize,
    pub(crate) life: u64,
    pub(crate) sent: Moment,
    pub(crate) kind: Kind,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    KeepAlive,
    /// The request under way, by how many there were before it.
    Call(u64),
    /// Who leads: asked by one that led with this token.
    Look(u64),
}

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Outcome(Outcome),
    /// It was not done, or nobody knows.
    Perhaps,
    Board(Board),
}

pub(crate) struct Client {
    index: usize,
    pub(crate) life: u64,
    pub(crate) is_dead: bool,
    pub(crate) paused_until: Moment,
    election: &'static str,
    seats: u32,
    identity: String,
    drift_ppm: i64,
    timing: Timing,
    node: NodeId,
    /// As the store counts it; 0 before it is introduced.
    number: u64,
    sequence: u64,
    pub(crate) session: u64,
    /// The token by which it leads, or led when it last heard of it; 0 for none.
    token: u64,
    /// It has stopped, and says so.
    resigns: bool,
    /// It wants its session no more.
    leaves: bool,
    /// It counts on its session until then.
    until: Moment,
    kept_last: Moment,
    call: Option<Call>,
    calls: u64,
    values: u64,
}

struct Call {
    request: Request,
    /// The greatest token that anyone was told of when it was sent first.
    floor: u64,
    /// What it writes.
    value: Option<u64>,
    first: Moment,
    again_at: Moment,
}

impl Client {
    pub(crate) fn new(index: usize, life: u64, clocks: Clocks, chance: &mut Chance) -> Client {
        let (election, seats) = ELECTIONS[index % ELECTIONS.len()];
        // Some come back as who they were, and find their seat or place.
        let name = if chance.happens(500_000) { 0 } else { life };
        let ttl = Duration::from_millis(150 + chance.below(TTL_MS_MAX - 149));
        Client {
            index,
            life,
            is_dead: false,
            paused_until: 0,
            election,
            seats: seats as u32,
            identity: format!("{index}.{name}"),
            drift_ppm: clocks.drift_ppm(chance),
            timing: Timing::of(ttl).build().expect("a ttl that will do"),
            node: NodeId(0),
            number: 0,
            sequence: 0,
            session: 0,
            token: 0,
            resigns: false,
            leaves: false,
            until: 0,
            kept_last: 0,
            call: None,
            calls: 0,
            values: 0,
        }
    }

    /// When its validity is over in true time, if it counts from this send: its own clock may be fast or slow.
    fn valid_until(&self, sent: Moment) -> Moment {
        let validity = self.timing.validity(self.timing.ttl()).as_nanos() as i128;
        sent + (validity * 1_000_000 / i128::from(1_000_000 + self.drift_ppm)) as u64
    }

    fn believes(&self, now: Moment) -> bool {
        self.token != 0 && !self.resigns && now < self.until
    }

    /// Its turn: what it sends now.
    pub(crate) fn beat(&mut self, now: Moment, chance: &mut Chance, nodes: u32, leases: &mut Leases) -> Vec<Letter> {
        let mut letters = Vec::new();
        if self.call.as_ref().is_some_and(|it| now >= it.again_at) {
            self.node = NodeId(chance.below(u64::from(nodes)) as u32);
            letters.extend(self.send_call(now, chance));
        } else if self.call.is_none()
            && let Some((command, value)) = self.wish(now, chance, leases)
        {
            let request = self.request(command);
            self.calls += 1;
            let floor = leases.told(self.election);
            self.call = Some(Call { request, floor, value, first: now, again_at: now });
            letters.extend(self.send_call(now, chance));
        }
        let ttl = self.timing.ttl().as_nanos() as u64;
        if self.session != 0 && !self.leaves && now >= self.kept_last + ttl / 4 {
            self.kept_last = now;
            // By another way than the call under way, now and then: that one may be cut off.
            let to = if chance.happens(200_000) { NodeId(chance.below(u64::from(nodes)) as u32) } else { self.node };
            let request = Request::of(Command::KeepAlive(KeepAlive { sessions: vec![self.session] }));
            letters.push(Letter { matter: self.matter(now, Kind::KeepAlive), to, what: What::Submit(request) });
        }
        if self.believes(now) && chance.happens(100_000) {
            letters.push(Letter {
                matter: self.matter(now, Kind::Look(self.token)),
                to: self.node,
                what: What::Look(self.election.to_owned()),
            });
        }
        letters
    }

    fn matter(&self, sent: Moment, kind: Kind) -> Matter {
        Matter { client: self.index, life: self.life, sent, kind }
    }

    fn request(&mut self, command: Command) -> Request {
        if self.number == 0 {
            return Request::of(command);
        }
        self.sequence += 1;
        // One at a time: all before it were answered.
        Request { answered: self.sequence - 1, ..Request::numbered(self.number, self.sequence, command) }
    }

    fn send_call(&mut self, now: Moment, chance: &mut Chance) -> Option<Letter> {
        let matter = self.matter(now, Kind::Call(self.calls));
        let call = self.call.as_mut()?;
        call.again_at = now + 40 * MILLISECOND + chance.below(80 * MILLISECOND);
        Some(Letter { matter, to: self.node, what: What::Submit(call.request.clone()) })
    }

    /// What it wants next, and the value that this writes.
    fn wish(&mut self, now: Moment, chance: &mut Chance, leases: &mut Leases) -> Option<(Command, Option<u64>)> {
        let election = self.election.to_owned();
        if self.number == 0 {
            return Some((Command::Introduce(Introduce {}), None));
        }
        if self.session == 0 {
            let ttl_ms = self.timing.ttl().as_millis() as u64;
            let lock_delay_ms = if chance.happens(200_000) { chance.below(100) } else { 0 };
            return Some((Command::OpenSession(OpenSession { ttl_ms, lock_delay_ms, ..OpenSession::default() }), None));
        }
        let draw = chance.below(100);
        if self.token == 0 {
            return Some(match draw {
                0..80 => {
                    leases.on_stands(self.session);
                    let priority = chance.below(3) as i32;
                    let bid = Campaign {
                        session: self.session,
                        election,
                        identity: self.identity.clone(),
                        priority,
                        ..Campaign::default()
                    };
                    (Command::Campaign(Campaign { seats: self.seats, ..bid }), None)
                }
                80..98 => self.put(if draw < 90 { self.session } else { 0 }),
                _ => {
                    self.leaves = true;
                    leases.on_left(self.session);
                    (Command::EndSession(EndSession { session: self.session, ..EndSession::default() }), None)
                }
            });
        }
        if !self.believes(now) {
            return Some((Command::Renew(Renew { election, token: self.token }), None));
        }
        match draw {
            0..45 => Some(self.fenced_write()),
            45..53 => {
                Some((Command::Proclaim(Proclaim { election, token: self.token, value: Bytes::from(format!("{now}")) }), None))
            }
            53..60 => Some((Command::Renew(Renew { election, token: self.token }), None)),
            60..66 => {
                // It stops before it says so.
                self.resigns = true;
                leases.on_end_of_belief(self.index);
                let to = if draw == 60 { format!("{}.0", chance.below(6)) } else { String::new() };
                Some((Command::Resign(Resign { election, token: self.token, reason: String::new(), to }), None))
            }
            _ => None,
        }
    }

    fn value(&mut self) -> (u64, Bytes) {
        self.values += 1;
        let value = (self.index as u64) << 48 | self.life << 32 | self.values;
        (value, value.to_be_bytes().to_vec().into())
    }

    fn put(&mut self, session: u64) -> (Command, Option<u64>) {
        let (value, bytes) = self.value();
        let put = Put { key: format!("w/{}", self.index).into(), value: bytes, session, ..Put::default() };
        (Command::Put(put), Some(value))
    }

    /// A write that counts only while it leads (L5).
    fn fenced_write(&mut self) -> (Command, Option<u64>) {
        let (value, bytes) = self.value();
        let own = Put { key: format!("w/{}", self.index).into(), value: bytes, ..Put::default() };
        let mut token = BytesMut::with_capacity(8);
        token.put_u64(self.token);
        let shared = Put { key: format!("f/{}", self.election).into(), value: token.freeze(), ..Put::default() };
        let mut then = vec![Act::Put(own).into()];
        // Where several lead, their tokens do not rise one after the other.
        if self.seats == 1 {
            then.push(Act::Put(shared).into());
        }
        let guards = vec![Guard::holds(self.election, self.token)];
        (Command::Transact(Transaction { guards, then, otherwise: Vec::new() }), Some(value))
    }

    /// What has become of something that it sent.
    pub(crate) fn hear(
        &mut self,
        now: Moment,
        matter: Matter,
        answer: Answer,
        leases: &mut Leases,
        once: &mut Once,
    ) -> Result<(), String> {
        match (matter.kind, answer) {
            (Kind::KeepAlive, Answer::Outcome(_)) if self.leaves => Ok(()),
            (Kind::KeepAlive, Answer::Outcome(outcome)) => match outcome.result() {
                Ok(Reply::KeptAlive(kept)) if kept.gone.contains(&self.session) => self.lose_session(now, leases),
                // It may speak of a session that this client has left.
                Ok(Reply::KeptAlive(kept)) if kept.gone.is_empty() && self.session != 0 => self.keep(now, matter.sent, leases),
                Ok(Reply::KeptAlive(_)) => Ok(()),
                other => Err(format!("a keep-alive came to {other:?}")),
            },
            (Kind::Call(call), Answer::Outcome(outcome)) if call == self.calls => match self.call.take() {
                Some(call) => self.settle(now, call, outcome, leases, once),
                None => Ok(()),
            },
            (Kind::Call(call), Answer::Perhaps) if call == self.calls => {
                if let Some(call) = &mut self.call {
                    call.again_at = call.again_at.min(now + 5 * MILLISECOND);
                }
                Ok(())
            }
            (Kind::Look(token), Answer::Board(board))
                if token == self.token && self.believes(now) && board.leaders.iter().all(|it| it.token != self.token) =>
            {
                leases.on_outrun(format!(
                    "L4: client {} leads with {} and sees {:?} in its place",
                    self.index, self.token, board.leaders
                ))
            }
            (Kind::KeepAlive | Kind::Call(_) | Kind::Look(_), Answer::Outcome(_) | Answer::Perhaps | Answer::Board(_)) => Ok(()),
        }
    }

    fn settle(&mut self, now: Moment, call: Call, outcome: Outcome, leases: &mut Leases, once: &mut Once) -> Result<(), String> {
        let first = call.first;
        match outcome.result() {
            Ok(Reply::Introduced(number)) => {
                self.number = number;
                Ok(())
            }
            Ok(Reply::Opened(session)) => {
                self.session = session;
                (self.until, self.token) = (0, 0);
                self.keep(now, first, leases)
            }
            // It has lost the session meanwhile, and with it what it was granted.
            Ok(Reply::Granted(_) | Reply::InLine(_)) if self.session == 0 => Ok(()),
            Ok(Reply::Granted(granted)) => {
                leases.on_granted(self.election, call.floor, granted.token)?;
                self.token = granted.token;
                self.keep(now, first, leases)
            }
            Ok(Reply::InLine(_)) => self.keep(now, first, leases),
            Ok(Reply::Renewed(renewed)) if renewed.in_office => self.keep(now, first, leases),
            Ok(Reply::Renewed(_)) => self.lose_seat(now, leases),
            Ok(Reply::Transacted(done)) => {
                call.value.map_or(Ok(()), |value| once.on_told(value, done.held))?;
                if done.held { Ok(()) } else { self.lose_seat(now, leases) }
            }
            Ok(Reply::Written(_)) => call.value.map_or(Ok(()), |value| once.on_told(value, true)),
            Ok(Reply::Done(_)) => match call.request.command {
                Some(Command::Resign(_)) => {
                    leases.on_resigned(self.session);
                    (self.token, self.resigns) = (0, false);
                    Ok(())
                }
                Some(Command::EndSession(_)) => {
                    (self.session, self.leaves) = (0, false);
                    Ok(())
                }
                Some(_) | None => self.keep(now, first, leases),
            },
            Err(Refusal::SessionGone(_)) => {
                call.value.map_or(Ok(()), |value| once.on_told(value, false))?;
                self.lose_session(now, leases)
            }
            Err(Refusal::NotInOffice(_)) => self.lose_seat(now, leases),
            other => Err(format!("client {} asked for {:?} and is told {other:?}", self.index, call.request.command)),
        }
    }

    /// Its session lives, and with it the seat, for as long as it may count on what was sent then.
    fn keep(&mut self, now: Moment, sent: Moment, leases: &mut Leases) -> Result<(), String> {
        self.until = self.until.max(self.valid_until(sent));
        leases.on_kept(self.session, self.until)?;
        if self.token == 0 || self.resigns {
            return Ok(());
        }
        leases.on_belief(self.index, self.election, self.token, now, self.until)
    }

    fn lose_session(&mut self, now: Moment, leases: &mut Leases) -> Result<(), String> {
        let session = std::mem::take(&mut self.session);
        self.leaves = false;
        self.lose_seat(now, leases)?;
        if session == 0 { Ok(()) } else { leases.on_told_gone(session, now) }
    }

    fn lose_seat(&mut self, now: Moment, leases: &mut Leases) -> Result<(), String> {
        let token = std::mem::take(&mut self.token);
        let resigned = std::mem::take(&mut self.resigns);
        if token == 0 || resigned { Ok(()) } else { leases.on_told_lost(self.index, token, now) }
    }
}
