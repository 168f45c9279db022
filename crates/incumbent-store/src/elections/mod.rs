//! The elections: who leads, who waits, and the one rule by which a seat is given.
//!
//! A seat is given in one place, `Room::fill`, and taken in one, `Room::vacate`. Both advance the revision, and the token of a leadership is the revision at which it began,
//! below the incarnation: so tokens rise whatever happens, and nothing must be remembered for that of an election that is gone.
//!
//! - `line.rs`: who waits, by priority and arrival.
//! - `room.rs`: one election with all that a change of it touches.
//! - `records.rs`: who led, what was noted, what was done.
//! - `commands.rs`: what may be asked.

mod commands;
pub(crate) mod line;
pub(crate) mod records;
pub(crate) mod room;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

use prost::bytes::Bytes;

use crate::election::{Board, Holder, Reservation};
use crate::limits::Limits;
use crate::query::{Inquire, ListElections, Seat, Summaries, Summary};
use crate::refusal::Refusal;
use crate::time::Time;
use crate::tree::Tree;
use line::Line;
use records::Records;

/// A term has so many bits of a token.
pub(crate) const TERM_BITS: u32 = 48;
/// The greatest term.
pub(crate) const TERM_MAX: u64 = (1 << TERM_BITS) - 1;
/// The greatest incarnation: tokens fit a signed number.
pub(crate) const INCARNATION_MAX: u16 = (1 << 15) - 1;

/// What to do where nobody knows the election.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Unknown {
    Refuse,
    Begin,
}

/// All elections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Elections {
    elections: Tree<Arc<str>, Arc<Election>>,
    /// When something is to be done in an election because time has passed: a seat that was reserved becomes free.
    waking: Tree<(Time, Arc<str>), ()>,
    /// Those of which only history is left, by the token of their last leadership. The first is forgotten where another needs the room.
    idle: Tree<(u64, Arc<str>), ()>,
    /// What leaderships that have ended count for, in all elections.
    past_bytes: usize,
    /// What notes and jobs that were done count for.
    notes_bytes: usize,
    /// What seats that are kept count for.
    reserved_bytes: usize,
}

/// What is kept of an election beside it, for all elections together.
#[derive(Copy, Clone, PartialEq, Eq, Default)]
struct Mark {
    wakes: Option<Time>,
    idle_since: Option<u64>,
    past_bytes: usize,
    notes_bytes: usize,
    reserved_bytes: usize,
}

/// One election.
#[derive(Clone, Debug, Default)]
pub(crate) struct Election {
    /// 0 until a candidate has said.
    pub(crate) seats: u32,
    /// Of its tokens, if it is above the store's.
    pub(crate) incarnation: u16,
    /// Who leads, oldest first.
    pub(crate) holders: Vec<Holder>,
    pub(crate) line: Line,
    /// Seats that are free and yet not to be had.
    pub(crate) reservations: Vec<Reservation>,
    /// Most elections have none.
    pub(crate) records: Option<Box<Records>>,
}

impl Election {
    /// When the next of its reserved seats becomes free; long ago, if there is one for somebody who waits.
    pub(crate) fn wakes(&self) -> Option<Time> {
        if self.is_unfilled() && !self.line.is_empty() {
            return Some(Time::ZERO);
        }
        self.reservations.iter().map(|it| Time::from_nanos(it.until_ns)).min()
    }

    /// Whether a seat is free and not kept.
    pub(crate) fn is_unfilled(&self) -> bool {
        self.holders.len() + self.reservations.len() < self.seats as usize
    }

    /// Whether nobody leads and nobody waits.
    pub(crate) fn is_deserted(&self) -> bool {
        self.holders.is_empty() && self.line.is_empty()
    }

    /// Whether nothing is known of it, but perhaps that its tokens go on above others that were given.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.is_deserted() && self.reservations.is_empty() && self.records.is_none()
    }

    /// Whether there is nothing to remember of it.
    fn is_blank(&self) -> bool {
        self.is_forgotten() && self.incarnation == 0
    }

    /// The token of the last leadership, if nothing but what has been must be remembered: tokens come from the revision, so they go on rising if it is forgotten and begins again. Those of one
    /// that was raised would not, nor would a note or a job that was done come back.
    fn idle_since(&self) -> Option<u64> {
        let records = self.records.as_ref().filter(|it| it.notes.is_empty() && it.completions.is_empty())?;
        let is_idle = self.is_deserted() && self.reservations.is_empty() && self.incarnation == 0;
        is_idle.then(|| records.past.front().map_or(0, |it| it.token))
    }

    fn mark(&self) -> Mark {
        let (past_bytes, notes_bytes) = self.records.as_ref().map_or((0, 0), |it| (it.past_bytes, it.notes_bytes));
        let reserved_bytes = self.reservations.iter().map(Reservation::kept_bytes).sum();
        Mark { wakes: self.wakes(), idle_since: self.idle_since(), past_bytes, notes_bytes, reserved_bytes }
    }

    fn settle(&mut self) {
        if self.is_deserted() && self.reservations.is_empty() {
            // The next candidates may want another number.
            self.seats = 0;
            // Many may stay as they are for ever: the room for a holder would be a quarter of what such a one costs.
            self.holders = Vec::new();
        }
    }

    pub(crate) fn holder(&self, token: u64) -> Option<&Holder> {
        self.holders.iter().find(|it| it.token == token)
    }

    /// Forgets its oldest leaderships, of so many bytes or all.
    fn forget_past(&mut self, bytes: usize) {
        if let Some(records) = &mut self.records {
            records.forget_past(bytes);
            if records.is_empty() {
                self.records = None;
            }
        }
    }

    pub(crate) fn records(&mut self) -> &mut Records {
        self.records.get_or_insert_default()
    }

    /// All of it, with so many candidates at most.
    pub(crate) fn board(&self, name: &str, candidates_max: usize) -> Board {
        let records = self.records.as_deref();
        Board {
            election: name.into(),
            seats: self.seats,
            leaders: self.holders.clone(),
            candidates: self.line.iter().take(candidates_max).cloned().collect(),
            past: records.map(|it| it.past.iter().cloned().collect()).unwrap_or_default(),
            notes: records.map(|it| it.notes.clone()).unwrap_or_default(),
            completions: records.map(|it| it.completions.iter().cloned().collect()).unwrap_or_default(),
            reservations: self.reservations.clone(),
            incarnation: u32::from(self.incarnation),
            waiting: self.line.len() as u64,
        }
    }

    /// The same as an answer: cut to a thousand candidates, and to so many bytes of values.
    pub(crate) fn board_told(&self, name: &str, values_bytes_max: usize) -> Board {
        let mut board = self.board(name, Limits::LISTED_MAX);
        let mut left = values_bytes_max;
        let leaders = board.leaders.iter_mut().map(|it| &mut it.value);
        for value in leaders.chain(board.candidates.iter_mut().map(|it| &mut it.value)) {
            match left.checked_sub(value.len()) {
                Some(rest) => left = rest,
                None => *value = Bytes::new(),
            }
        }
        board
    }
}

impl Elections {
    pub(crate) fn len(&self) -> usize {
        self.elections.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Election)> {
        self.elections.iter().map(|(name, election)| (name, &**election))
    }

    /// What notes and jobs that were done count for.
    pub(crate) fn notes_bytes(&self) -> usize {
        self.notes_bytes
    }

    /// What seats that are kept count for.
    pub(crate) fn reserved_bytes(&self) -> usize {
        self.reserved_bytes
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Election> {
        self.elections.get(name).map(|it| &**it)
    }

    /// Changes an election where it stands. One of which nothing must be remembered after that is dropped.
    pub(crate) fn change<T>(
        &mut self,
        name: &str,
        unknown: Unknown,
        limits: &Limits,
        act: impl FnOnce(&Arc<str>, &mut Election) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let Some((name, election)) = self.elections.find_mut(name) else {
            return match unknown {
                Unknown::Refuse => Err(Refusal::NoElection),
                Unknown::Begin if self.elections.len() >= limits.elections_max && self.idle.is_empty() => {
                    Err(Refusal::limit("elections", limits.elections_max))
                }
                Unknown::Begin => {
                    let (name, mut election) = (name.into(), Election::default());
                    let done = act(&name, &mut election);
                    // If it was refused, there is nothing to make room for.
                    if !election.is_blank() && self.elections.len() >= limits.elections_max {
                        self.forget_idle();
                    }
                    self.begin(name, election);
                    done
                }
            };
        };
        let (name, before, election) = (name.clone(), election.mark(), Arc::make_mut(election));
        let done = act(&name, election);
        election.settle();
        let (after, is_blank) = (election.mark(), election.is_blank());
        if is_blank {
            self.elections.remove(&name);
        }
        self.remark(&name, before, after);
        if self.past_bytes > limits.past_bytes_max {
            self.forget_past(&name, limits.past_bytes_max);
        }
        done
    }

    /// Forgets the idle election whose last leadership began longest ago. False if none is idle.
    fn forget_idle(&mut self) -> bool {
        let Some((_, name)) = self.idle.first().map(|(it, ())| it.clone()) else { return false };
        self.forget(&name);
        true
    }

    /// Forgets leaderships that have ended until the others fit: elections that have long been idle, and then what this one was before.
    fn forget_past(&mut self, name: &str, max: usize) {
        while self.past_bytes > max && self.forget_idle() {}
        let excess = self.past_bytes.saturating_sub(max);
        if excess > 0
            && let Some((name, election)) = self.elections.find_mut(name)
        {
            let (name, before, election) = (name.clone(), election.mark(), Arc::make_mut(election));
            election.forget_past(excess);
            let after = election.mark();
            self.remark(&name, before, after);
        }
    }

    /// Takes up an election that is new, or was saved.
    pub(crate) fn begin(&mut self, name: Arc<str>, mut election: Election) {
        election.settle();
        if !election.is_blank() {
            self.remark(&name, Mark::default(), election.mark());
            self.elections.insert(name, Arc::new(election));
        }
    }

    pub(crate) fn forget(&mut self, name: &str) {
        if let Some((name, election)) = self.elections.remove(name) {
            self.remark(&name, election.mark(), Mark::default());
        }
    }

    fn remark(&mut self, name: &Arc<str>, before: Mark, after: Mark) {
        self.past_bytes = self.past_bytes - before.past_bytes + after.past_bytes;
        self.notes_bytes = self.notes_bytes - before.notes_bytes + after.notes_bytes;
        self.reserved_bytes = self.reserved_bytes - before.reserved_bytes + after.reserved_bytes;
        if before.wakes != after.wakes {
            move_mark(&mut self.waking, name, before.wakes, after.wakes);
        }
        if before.idle_since != after.idle_since {
            move_mark(&mut self.idle, name, before.idle_since, after.idle_since);
        }
    }

    /// The election in which a reserved seat becomes free next, and when.
    pub(crate) fn next_waking(&self) -> Option<&(Time, Arc<str>)> {
        self.waking.first().map(|(it, ())| it)
    }

    /// Each election whose tokens are above this incarnation gets another of its own. One that has the last stays there: its tokens go on rising by the revisions that a store leaves out when
    /// it begins anew, and it must not keep all others from being brought back.
    pub(crate) fn raise_those_above(&mut self, incarnation: u16) {
        let above = self.elections.iter().filter(|(_, it)| it.incarnation > incarnation);
        for name in above.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            if let Some((_, election)) = self.elections.find_mut(&name) {
                let election = Arc::make_mut(election);
                election.incarnation = (election.incarnation + 1).min(INCARNATION_MAX);
            }
        }
    }

    pub(crate) fn list(&self, asked: &ListElections, bytes_max: usize) -> Summaries {
        let limit = match asked.limit {
            0 => Limits::LISTED_MAX,
            limit => usize::try_from(limit).unwrap_or(usize::MAX).min(Limits::LISTED_MAX),
        };
        let from: &str = if asked.after >= asked.prefix { &asked.after } else { &asked.prefix };
        let rest = self
            .elections
            .from(Bound::Included(from))
            .filter(|(name, _)| asked.after.is_empty() || ***name != *asked.after)
            .take_while(|(name, _)| name.starts_with(asked.prefix.as_str()))
            .filter(|(_, election)| !election.is_forgotten());
        let (mut elections, mut bytes) = (Vec::new(), 0);
        for (name, election) in rest {
            let leader = election.holders.first();
            bytes += name.len() + leader.map_or(0, Holder::size);
            // One is told however long it is, or nobody would ever come past it.
            if elections.len() >= limit || (bytes > bytes_max && !elections.is_empty()) {
                return Summaries { elections, more: true };
            }
            elections.push(Summary {
                election: String::from(&**name),
                leader: leader.cloned(),
                leading: election.holders.len() as u64,
                waiting: election.line.len() as u64,
            });
        }
        Summaries { elections, more: false }
    }

    pub(crate) fn inquire(&self, asked: &Inquire, now: Time) -> Seat {
        let Some(election) = self.find(&asked.election) else { return Seat { token: 0, vacant: true, leader: None } };
        let own = election.holders.iter().find(|it| it.identity == asked.identity);
        let reserved = election.reservations.iter().filter(|it| Time::from_nanos(it.until_ns) > now).count();
        Seat {
            token: own.map_or(0, |it| it.token),
            vacant: election.holders.len() + reserved < election.seats.max(1) as usize,
            leader: election.holders.first().cloned(),
        }
    }
}

fn move_mark<T: Ord + Clone>(marks: &mut Tree<(T, Arc<str>), ()>, name: &Arc<str>, before: Option<T>, after: Option<T>) {
    if let Some(before) = before {
        marks.remove(&(before, name.clone()));
    }
    if let Some(after) = after {
        marks.insert((after, name.clone()), ());
    }
}
