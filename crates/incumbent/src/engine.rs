//! What an engine is: one lock service's own recipe for a seat. Loops, timers and retries are not here; they are the
//! [`Tenure`](incumbent_protocol::tenure::Tenure)'s and its driver's, written once for all engines.
//!
//! An engine answers in three ways: done, refused, unknown. An answer that did not come in time, or a connection that broke, is
//! [`Kind::Unknown`]: the request may have been carried out. To call that refused is the one mistake that an engine must not make.
//!
//! What every engine promises, and the conformance suite checks:
//! - A seat is granted to one bid at a time (or to [`Bid::seats`] bids), compared by the whole [`Identity`]; with a token greater than that of every
//!   leadership before. Claiming again what one holds answers [`Claim::Granted`] with the same token.
//! - It is not granted to another before the ttl has passed on the engine's clock since the last claim or renewal that reached it, or it was released.
//! - A release frees the leadership with that token or nothing: never a newer one, and twice is as good as once.
//! - A watch is a hint. It may miss things and may see things that were not; the seat's state decides.

use std::fmt;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use incumbent_protocol::protocol::Token;
use incumbent_protocol::tenure::Reason;
use incumbent_protocol::time::Instant;
use serde::{Deserialize, Serialize};

use crate::guarantees::Guarantees;
use crate::identity::Identity;
use crate::name::Name;

/// One lock service. Calls may be dropped at any await: a call that was dropped is one of unknown outcome.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// What it promises and what it cannot.
    fn guarantees(&self) -> Guarantees;

    /// Whether an election may have this name here; stricter engines say why not.
    fn accepts(&self, _election: &Name) -> Result<(), Error> {
        Ok(())
    }

    /// Gives the seat to the bidder if it is free, and puts it in line otherwise, where there is a line. Also keeps its place in the line alive, so it is
    /// called again and again while waiting.
    async fn claim(&self, election: &Name, bid: &Bid) -> Result<Claim, Error>;

    /// Begins the ttl of this leadership anew, and brings what others want of the holder.
    async fn renew(&self, election: &Name, bid: &Bid, token: Token) -> Result<Renewal, Error>;

    /// Frees the seat if this leadership still has it. `Ok` also if it did not.
    async fn release(&self, election: &Name, bid: &Bid, token: Token, farewell: &Farewell) -> Result<(), Error>;

    /// Who leads, who waits, who led. What the engine cannot tell is left empty; see [`Guarantees`].
    async fn look(&self, election: &Name) -> Result<Board, Error>;

    /// Does the bidder hold the seat? Asked after a claim of unknown outcome. Must not claim.
    async fn inquire(&self, election: &Name, bid: &Bid) -> Result<Seat, Error> {
        let board = self.look(election).await?;
        Ok(match board.leaders.iter().find(|it| it.identity == bid.identity) {
            Some(own) => Seat::Own(own.token),
            None if board.leaders.len() < bid.seats as usize => Seat::Vacant,
            None => Seat::Others(board.leaders.into_iter().next()),
        })
    }

    /// Leaves the line. Nothing to do where there is none.
    async fn withdraw(&self, _election: &Name, _bid: &Bid) -> Result<(), Error> {
        Ok(())
    }

    /// The candidacy is over, and the last of it was a release that was acknowledged: nothing of it stands in line. An engine that keeps nothing else of a candidacy has nothing to do.
    async fn depart(&self, election: &Name, bid: &Bid) -> Result<(), Error> {
        self.withdraw(election, bid).await
    }

    /// Changes what the leader publishes, if it still is the leader.
    async fn proclaim(&self, election: &Name, bid: &Bid, token: Token, value: &str) -> Result<(), Error>;

    /// Leaves a wish for the holder, who finds it with its next renewal. `Refused` if the leadership it is meant for is not in office.
    async fn ask(&self, election: &Name, wish: &Wish) -> Result<(), Error>;

    /// Raises the incarnation so that every later token is greater than `above`: after the engine was restored from a backup or wiped.
    async fn raise(&self, election: &Name, above: Token) -> Result<(), Error>;

    /// Puts a note on record for the leadership with this token, in office or ended, in place of the one before. What it says is the users' business; the
    /// greatest [`Past::KEPT_MAX`] tokens keep theirs.
    async fn annotate(&self, election: &Name, token: Token, text: &str) -> Result<(), Error>;

    /// Hints: an item whenever the seat may have become free, or anything else on the board has changed.
    ///
    /// With a bid that stands in line, only its predecessor is watched, so that a release wakes one and not all. The stream ends with an error when the
    /// connection does, and without one when the bid's place is no more, which is as good as a hint; whoever wants more watches again.
    fn watch(&self, election: &Name, bid: Option<&Bid>) -> BoxStream<'static, Result<(), Error>>;

    /// How the engine itself is, as JSON, where this process is a part of it: for people and their tools.
    async fn report(&self) -> Option<serde_json::Value> {
        None
    }

    /// Gives back what all elections shared, a session for example. Called once, after the last of them has ended.
    async fn close(&self) {}
}

/// Who wants a seat, and on what terms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bid {
    /// The bidder.
    pub identity: Identity,
    /// How long the engine keeps the seat for a holder it does not hear of.
    pub ttl: Duration,
    /// What the leader publishes: an address, for example.
    pub value: String,
    /// The greater, the better fit to lead.
    pub priority: i32,
    /// How many may lead at once; the same in all bids for one election.
    pub seats: u32,
    /// The greatest token seen. An engine that would grant a smaller one has lost its memory, and must raise its incarnation first.
    pub seen: Option<Token>,
    /// To be put on record with the seat, as [`Engine::annotate`] does, by an engine that can do both in one step: then its grant says so.
    pub note: Option<String>,
}

/// What became of a claim.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Claim {
    /// The seat is the bidder's.
    Granted(Grant),
    /// Others have it.
    Occupied {
        /// One of them, if the engine tells.
        leader: Option<Leader>,
        /// How long until it is free unless renewed, if the engine tells. A hint.
        free_in: Option<Duration>,
    },
}

/// A seat that was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The token of the leadership.
    pub token: Token,
    /// The ttl that the engine keeps; `None` if it is the one that was asked for.
    pub ttl: Option<Duration>,
    /// Since when the engine may have counted it, on the clock of [`crate::clock`], if that was before this call: a keep-alive of a shared session.
    pub counted_from: Option<Instant>,
    /// Whether [`Bid::note`] is on record. If not, whoever needs it there has yet to put it there.
    pub noted: bool,
}

impl Grant {
    /// One whose ttl is as it was asked for, and counts from the call; nothing was noted.
    pub fn of(token: Token) -> Grant {
        Grant { token, ttl: None, counted_from: None, noted: false }
    }

    /// The same of one with whose seat all was put on record that its bid wants to be noted.
    pub fn noting(bid: &Bid, token: Token) -> Grant {
        Grant { noted: bid.note.is_some(), ..Grant::of(token) }
    }
}

/// What became of a renewal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Renewal {
    /// The ttl has begun anew.
    Kept {
        /// The seat.
        grant: Grant,
        /// What somebody wants of the holder.
        wish: Option<Wish>,
    },
    /// The seat is not this leadership's any more, and never will be again.
    Gone,
}

/// Whose a seat is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seat {
    /// The bidder's.
    Own(Token),
    /// Others'.
    Others(Option<Leader>),
    /// Nobody's.
    Vacant,
}

/// How a leadership ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Farewell {
    /// Why, for the record.
    pub reason: Reason,
    /// Who should have the seat next: a candidate's whole identity, or its name.
    pub to: Option<String>,
}

/// What somebody wants of a holder. A holder that is not ours does not know of wishes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Wish {
    /// The leadership it is meant for; any other ignores it.
    #[serde(with = "crate::desk::token_as_number")]
    pub token: Token,
    /// What it should do.
    pub what: Demand,
    /// Who wants it, for the record.
    pub by: String,
}

/// What a holder may be asked to do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Demand {
    /// Stop, release, rest.
    Resign,
    /// The same, because an operator wants somebody else.
    Evict,
    /// Stop, and release to this candidate: its whole identity, or its name.
    HandOver(String),
}

/// What an engine knows of an election.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Board {
    /// Who leads: nobody, one, or up to [`Bid::seats`], oldest first.
    pub leaders: Vec<Leader>,
    /// Who waits, next one first where there is a line.
    pub candidates: Vec<Candidate>,
    /// Leaderships that have ended, the greatest token first; at most [`Past::KEPT_MAX`]. One whose holder has died is among them as soon as it leads no longer, and not only when it is followed.
    pub past: Vec<Past>,
    /// What was noted of leaderships, newest first; see [`Engine::annotate`].
    pub notes: Vec<Note>,
}

/// What was noted of a leadership.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Note {
    /// The leadership.
    #[serde(with = "crate::desk::token_as_number")]
    pub token: Token,
    /// What was noted.
    pub text: String,
}

/// One who leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leader {
    /// Who.
    pub identity: Identity,
    /// The token of the leadership.
    pub token: Token,
    /// What it publishes.
    pub value: String,
    /// Its priority; 0 if it is not one of ours.
    pub priority: i32,
    /// Since when, by the wall clock of whoever wrote it. For people.
    pub since: Option<SystemTime>,
    /// Whether it is one of ours and reads wishes.
    pub heeds_wishes: bool,
}

/// One who waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Who.
    pub identity: Identity,
    /// Its priority; 0 if it is not one of ours.
    pub priority: i32,
}

/// A leadership that has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Past {
    /// Who led.
    pub identity: Identity,
    /// Its token.
    #[serde(with = "crate::desk::token_as_number")]
    pub token: Token,
    /// When it began and ended, by the wall clock of whoever wrote it, in milliseconds since 1970. For people.
    pub since_ms: u64,
    /// See `since_ms`. If its holder left without a word, when its lease ended; where the engine does not know that, when it was missed.
    pub until_ms: u64,
    /// Why it ended, in words.
    pub reason: String,
}

impl Past {
    /// An engine keeps this many of an election. Enough for a bad night.
    pub const KEPT_MAX: usize = 32;
}

/// Why a call brought no answer about the seat.
pub struct Error {
    kind: Kind,
    what: String,
}

/// Whether what was asked for may have happened, and whether asking again can help.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It did not happen; ask again later.
    Refused,
    /// It may have happened.
    Unknown,
    /// It did not happen, and will not until somebody changes a setting, a credential or a right.
    Misconfigured,
}

impl Error {
    /// It did not happen. One line; says what to do if there is anything to do.
    pub fn refused(what: impl Into<String>) -> Error {
        Error { kind: Kind::Refused, what: one_line(what.into()) }
    }

    /// It may have happened.
    pub fn unknown(what: impl Into<String>) -> Error {
        Error { kind: Kind::Unknown, what: one_line(what.into()) }
    }

    /// It did not happen, and will not until somebody changes something: say what.
    pub fn misconfigured(what: impl Into<String>) -> Error {
        Error { kind: Kind::Misconfigured, what: one_line(what.into()) }
    }

    /// Whether it may have happened.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn clone_of(error: &Error) -> Error {
        Error { kind: error.kind, what: error.what.clone() }
    }

    /// The same with what was being done before it.
    #[must_use]
    pub fn during(self, what: &str) -> Error {
        Error { what: format!("{what}: {}", self.what), kind: self.kind }
    }
}

/// Libraries' errors bring line breaks along; ours are one line.
fn one_line(text: String) -> String {
    if text.contains(['\n', '\r']) { text.split_whitespace().collect::<Vec<_>>().join(" ") } else { text }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.what)
    }
}

impl std::error::Error for Error {}
