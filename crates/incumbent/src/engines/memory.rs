//! Elections inside one process, for tests and for programs that run alone. Keeps tokio's time, so a test can pause and move it.
//!
//! Also the model of what an engine is: a line, seats, tokens by a counter. It forgets everything with the process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use incumbent_protocol::protocol::Token;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::desk::{Desk, Holder, Kept, LAPSED, wall_ms, whole_ms};
use crate::engine::{Bid, Board, Candidate, Claim, Engine, Error, Farewell, Grant, Renewal, Wish};
use crate::engines::local::hints_of_place;
use crate::guarantees::{Exclusive, Guarantees, Lateness, Notice, Order, Tokens, WhoseClock};
use crate::identity::Identity;
use crate::name::Name;
use crate::place::Place;

/// Elections inside one process. Clones share them.
#[derive(Clone, Default)]
pub struct Memory {
    rooms: Arc<Mutex<BTreeMap<Name, Room>>>,
}

/// One election.
#[derive(Default)]
struct Room {
    /// Counts terms, and remembers. Its holder and wish are not used: there may be several.
    desk: Desk,
    seated: Vec<Seated>,
    /// Candidates in the order of their first claim.
    line: Vec<Waiting>,
    kept: Option<(Kept, Instant)>,
    changes: watch::Sender<u64>,
}

struct Seated {
    holder: Holder,
    until: Instant,
    wish: Option<Wish>,
}

struct Waiting {
    identity: Identity,
    priority: i32,
    until: Instant,
    wake: watch::Sender<u64>,
}

impl Memory {
    /// One that nobody else knows of.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// The one of this process under the URL's namespace.
    pub(super) fn open(place: &Place) -> Result<Arc<dyn Engine>, Error> {
        static BUILDINGS: OnceLock<Mutex<BTreeMap<String, Memory>>> = OnceLock::new();
        place.knows_only(&[])?;
        let mut buildings = BUILDINGS.get_or_init(Mutex::default).lock().expect("nobody panics with it");
        Ok(Arc::new(buildings.entry(place.namespace()).or_default().clone()))
    }

    /// Does something in the election's room, after throwing out whose time is up.
    fn in_room<T>(&self, election: &Name, act: impl FnOnce(&mut Room, Instant) -> T) -> T {
        let mut rooms = self.rooms.lock().expect("nobody panics with it");
        let room = rooms.entry(election.clone()).or_default();
        let now = Instant::now();
        room.expire(now);
        act(room, now)
    }
}

impl Room {
    fn expire(&mut self, now: Instant) {
        let (kept, gone): (Vec<Seated>, Vec<Seated>) =
            std::mem::take(&mut self.seated).into_iter().partition(|it| it.until > now);
        self.seated = kept;
        let any_gone = !gone.is_empty();
        for former in gone {
            // A test may move tokio's time, and cannot move the wall clock: the desk sees to it that no end is before its beginning.
            let until_ms = wall_ms().saturating_sub(whole_ms(now - former.until));
            self.desk.remember_until(former.holder, LAPSED, until_ms);
        }
        self.line.retain(|it| it.until > now);
        if self.kept.as_ref().is_some_and(|(_, until)| *until <= now) {
            self.kept = None;
        }
        if any_gone {
            self.wake_next();
        }
    }

    /// Who is next: the one the seat is kept for, or the first in line.
    fn next(&self) -> Option<&Waiting> {
        let kept = self.kept.as_ref().map(|(kept, _)| kept.to.as_str());
        let named = kept.and_then(|to| self.line.iter().find(|it| it.identity.as_str() == to || it.identity.name() == to));
        if kept.is_some() { named } else { self.line.first() }
    }

    fn wake_next(&self) {
        self.changes.send_modify(|it| *it += 1);
        if let Some(next) = self.next() {
            next.wake.send_modify(|it| *it += 1);
        }
    }

    fn stand_in_line(&mut self, bid: &Bid, now: Instant) {
        let until = now + bid.ttl;
        match self.line.iter_mut().find(|it| it.identity == bid.identity) {
            Some(waiting) => waiting.until = until,
            None => {
                let wake = watch::Sender::new(0);
                self.line.push(Waiting { identity: bid.identity.clone(), priority: bid.priority, until, wake });
            }
        }
    }

    fn claim(&mut self, bid: &Bid, now: Instant) -> Result<Claim, Error> {
        if let Some(own) = self.seated.iter_mut().find(|it| it.holder.identity == bid.identity) {
            own.until = now + bid.ttl;
            return Ok(Claim::Granted(Grant::of(own.holder.token)));
        }
        self.stand_in_line(bid, now);
        let is_next = self.next().is_some_and(|it| it.identity == bid.identity);
        if self.seated.len() >= bid.seats as usize || !is_next {
            let free_in = self.seated.iter().map(|it| it.until - now).min();
            return Ok(Claim::Occupied { leader: self.seated.first().map(|it| it.holder.leader()), free_in });
        }
        self.desk.term += 1;
        let token = self.desk.token(self.desk.term, bid.seen)?;
        self.line.retain(|it| it.identity != bid.identity);
        self.kept = None;
        self.desk.seat(bid, token);
        let holder = self.desk.holder.take().expect("just seated");
        self.seated.push(Seated { holder, until: now + bid.ttl, wish: None });
        // With several seats there may be one more for the next.
        self.wake_next();
        self.desk.note_for(bid, token);
        Ok(Claim::Granted(Grant::noting(bid, token)))
    }

    fn seat_of(&mut self, token: Token) -> Option<&mut Seated> {
        self.seated.iter_mut().find(|it| it.holder.token == token)
    }

    fn release(&mut self, token: Token, farewell: &Farewell, now: Instant) {
        let Some(at) = self.seated.iter().position(|it| it.holder.token == token) else { return };
        let former = self.seated.remove(at).holder;
        let ttl = Duration::from_millis(former.ttl_ms);
        self.kept = farewell.to.clone().map(|to| (Kept { to, ms: former.ttl_ms }, now + ttl));
        self.desk.remember(former, &farewell.reason.to_string());
        self.wake_next();
    }
}

#[async_trait]
impl Engine for Memory {
    fn guarantees(&self) -> Guarantees {
        Guarantees {
            engine: "memory",
            exclusive: Exclusive::InOneProcess,
            tokens: Tokens::WhileTheProcessLives,
            token_source: "a counter",
            clock: WhoseClock::Engine,
            notice: Notice::Pushed,
            order: Order::Line,
            seats_max: u32::MAX,
            lists_candidates: true,
            keeps_history: true,
            ttl_min: Duration::from_millis(1),
            ttl_max: Duration::from_secs(86_400),
            late: Lateness::NONE,
            caveats: vec!["It knows nothing of other processes, and forgets everything with its own."],
        }
    }

    async fn claim(&self, election: &Name, bid: &Bid) -> Result<Claim, Error> {
        self.in_room(election, |room, now| room.claim(bid, now))
    }

    async fn renew(&self, election: &Name, bid: &Bid, token: Token) -> Result<Renewal, Error> {
        self.in_room(election, |room, now| {
            Ok(match room.seat_of(token) {
                Some(seat) => {
                    seat.until = now + bid.ttl;
                    Renewal::Kept { grant: Grant::of(token), wish: seat.wish.clone() }
                }
                None => Renewal::Gone,
            })
        })
    }

    async fn release(&self, election: &Name, _bid: &Bid, token: Token, farewell: &Farewell) -> Result<(), Error> {
        self.in_room(election, |room, now| room.release(token, farewell, now));
        Ok(())
    }

    async fn look(&self, election: &Name) -> Result<Board, Error> {
        self.in_room(election, |room, _| {
            Ok(Board {
                leaders: room.seated.iter().map(|it| it.holder.leader()).collect(),
                candidates: room
                    .line
                    .iter()
                    .map(|it| Candidate { identity: it.identity.clone(), priority: it.priority })
                    .collect(),
                past: room.desk.past.clone(),
                notes: room.desk.notes.clone(),
            })
        })
    }

    async fn withdraw(&self, election: &Name, bid: &Bid) -> Result<(), Error> {
        self.in_room(election, |room, _| {
            room.line.retain(|it| it.identity != bid.identity);
            // It may have been woken already; somebody else must be.
            room.wake_next();
        });
        Ok(())
    }

    async fn proclaim(&self, election: &Name, _bid: &Bid, token: Token, value: &str) -> Result<(), Error> {
        self.in_room(election, |room, _| {
            let seat = room.seat_of(token).ok_or_else(|| Error::refused(format!("token {token} is no longer in office")))?;
            value.clone_into(&mut seat.holder.value);
            room.changes.send_modify(|it| *it += 1);
            Ok(())
        })
    }

    async fn ask(&self, election: &Name, wish: &Wish) -> Result<(), Error> {
        self.in_room(election, |room, _| {
            let seat = room
                .seat_of(wish.token)
                .ok_or_else(|| Error::refused(format!("the leadership with token {} is no longer in office", wish.token)))?;
            seat.wish = Some(wish.clone());
            room.changes.send_modify(|it| *it += 1);
            Ok(())
        })
    }

    async fn raise(&self, election: &Name, above: Token) -> Result<(), Error> {
        self.in_room(election, |room, _| room.desk.raise(above))
    }

    async fn annotate(&self, election: &Name, token: Token, text: &str) -> Result<(), Error> {
        self.in_room(election, |room, _| {
            room.desk.annotate(token, text);
            room.changes.send_modify(|it| *it += 1);
        });
        Ok(())
    }

    fn watch(&self, election: &Name, bid: Option<&Bid>) -> BoxStream<'static, Result<(), Error>> {
        let changes = self.in_room(election, |room, now| match bid {
            Some(bid) if !room.seated.iter().any(|it| it.holder.identity == bid.identity) => {
                room.stand_in_line(bid, now);
                let own = room.line.iter().find(|it| it.identity == bid.identity);
                let mut woken = own.map(|it| it.wake.subscribe())?;
                // It may have become free since the claim.
                if room.seated.len() < bid.seats as usize && room.next().is_some_and(|it| it.identity == bid.identity) {
                    woken.mark_changed();
                }
                Some(woken)
            }
            Some(_) | None => Some(room.changes.subscribe()),
        });
        changes.map_or_else(|| stream::empty().boxed(), hints_of_place)
    }
}
