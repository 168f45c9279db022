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
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

use crate::election::{Board, Holder, Reservation};
use crate::limits::Limits;
use crate::query::{Inquire, ListElections, Seat, Summaries, Summary};
use crate::time::Time;
use line::Line;
use records::Records;

/// A term has so many bits of a token.
pub(crate) const TERM_BITS: u32 = 48;
/// The greatest term.
pub(crate) const TERM_MAX: u64 = (1 << TERM_BITS) - 1;
/// The greatest incarnation: tokens fit a signed number.
pub(crate) const INCARNATION_MAX: u16 = (1 << 15) - 1;

/// All elections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Elections {
    elections: BTreeMap<Arc<str>, Box<Election>>,
    /// When a seat that is reserved becomes free, of each election that has one: the next.
    waking: BTreeSet<(Time, Arc<str>)>,
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
    /// When the next of its reserved seats becomes free.
    pub(crate) fn wakes(&self) -> Option<Time> {
        self.reservations.iter().map(|it| Time::from_nanos(it.until_ns)).min()
    }

    /// Whether nobody leads and nobody waits.
    pub(crate) fn is_deserted(&self) -> bool {
        self.holders.is_empty() && self.line.is_empty()
    }

    /// Whether there is nothing to remember of it.
    fn is_blank(&self) -> bool {
        self.is_deserted() && self.reservations.is_empty() && self.records.is_none() && self.incarnation == 0
    }

    pub(crate) fn holder(&self, token: u64) -> Option<&Holder> {
        self.holders.iter().find(|it| it.token == token)
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
}

impl Elections {
    pub(crate) fn len(&self) -> usize {
        self.elections.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Election)> {
        self.elections.iter().map(|(name, election)| (name, &**election))
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Election> {
        self.elections.get(name).map(|it| &**it)
    }

    /// Takes the election out, to be changed and put back: everything else can then be changed with it.
    pub(crate) fn take_out(&mut self, name: &str) -> Option<(Arc<str>, Box<Election>)> {
        let (name, election) = self.elections.remove_entry(name)?;
        if let Some(wakes) = election.wakes() {
            self.waking.remove(&(wakes, name.clone()));
        }
        Some((name, election))
    }

    /// Puts an election back, or a new one in. One of which nothing must be remembered is dropped.
    pub(crate) fn put_back(&mut self, name: Arc<str>, mut election: Box<Election>) {
        if election.is_blank() {
            return;
        }
        if election.is_deserted() && election.reservations.is_empty() {
            // The next candidates may want another number.
            election.seats = 0;
        }
        if let Some(wakes) = election.wakes() {
            self.waking.insert((wakes, name.clone()));
        }
        self.elections.insert(name, election);
    }

    /// The election in which a reserved seat becomes free next, and when.
    pub(crate) fn next_waking(&self) -> Option<&(Time, Arc<str>)> {
        self.waking.first()
    }

    /// Each election whose tokens are above this incarnation gets another of its own.
    pub(crate) fn raise_those_above(&mut self, incarnation: u16) {
        for election in self.elections.values_mut().filter(|it| it.incarnation > incarnation) {
            election.incarnation += 1;
        }
    }

    pub(crate) fn list(&self, asked: &ListElections) -> Summaries {
        let limit = match asked.limit {
            0 => Limits::LISTED_MAX,
            limit => usize::try_from(limit).unwrap_or(usize::MAX).min(Limits::LISTED_MAX),
        };
        let from: &str = if asked.after >= asked.prefix { &asked.after } else { &asked.prefix };
        let mut rest = self
            .elections
            .range::<str, _>((Bound::Included(from), Bound::Unbounded))
            .filter(|(name, _)| asked.after.is_empty() || ***name != *asked.after)
            .take_while(|(name, _)| name.starts_with(asked.prefix.as_str()));
        let elections = rest
            .by_ref()
            .take(limit)
            .map(|(name, election)| Summary {
                election: String::from(&**name),
                leader: election.holders.first().cloned(),
                leading: election.holders.len() as u64,
                waiting: election.line.len() as u64,
            })
            .collect();
        Summaries { elections, more: rest.next().is_some() }
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
