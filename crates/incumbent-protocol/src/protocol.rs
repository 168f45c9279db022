//! The shape of every election protocol: one door in, one list out, one deadline.
//!
//! ```text
//!   Input ──► step(now, input, out) ──► Effects      Send, Persist, Emit
//!                     ▲
//!               deadline(): when to call step(Wake) next
//! ```
//!
//! A machine owns no clock, no socket, no file and no source of chance but the seed it was given. What depends on a
//! record being safe on disk is held back by the machine itself until [`Input::Persisted`] says so; the driver
//! never has to know which message that was.

use alloc::vec::Vec;
use core::fmt;

use crate::settings::Settings;
use crate::time::Instant;

/// A member of the group. Unique, and never used again for another member.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u32);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Counts leaderships: each has a greater term than every one before it. Also called epoch.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Term(pub u64);

impl Term {
    /// The greatest term there is: 48 bits, so that a term and an incarnation make one [`Token`].
    pub const MAX: Term = Term((1 << 48) - 1);

    /// The term after this one, or `None` when there is none: terms are refused, never wrapped.
    pub fn next(self) -> Option<Term> {
        (self < Term::MAX).then(|| Term(self.0 + 1))
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The fencing token of a leadership: `incarnation << 48 | term`. Fits a signed 64-bit column.
///
/// Whoever takes writes from leaders refuses a smaller token than the greatest it has seen.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(u64);

impl Token {
    /// The greatest incarnation: 15 bits, so that the sign bit stays clear.
    pub const INCARNATION_MAX: u16 = (1 << 15) - 1;

    /// The token of `term` in `incarnation`, or `None` if one of them does not fit.
    pub fn new(incarnation: u16, term: Term) -> Option<Token> {
        (incarnation <= Self::INCARNATION_MAX && term <= Term::MAX).then(|| Token(u64::from(incarnation) << 48 | term.0))
    }

    /// The number to store and compare.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Numbers the records a machine asks to be persisted, in order.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Mark(pub u64);

/// What a node must not forget: the greatest term it has told anyone of, and whom it voted for in that term.
/// A later record replaces an earlier one.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Record {
    /// The node's term.
    pub term: Term,
    /// The node's vote in `term`, if it has given one.
    pub vote: Option<NodeId>,
}

/// What may happen to a machine.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Input<M> {
    /// The deadline has come. Early or repeated wake-ups are harmless.
    Wake,
    /// A message has arrived. Messages may be lost, late, repeated and out of order.
    Receive {
        /// The node that sent it (authenticated by the transport).
        from: NodeId,
        /// What it said.
        message: M,
    },
    /// The node's own user or driver wants something.
    Request(Request),
    /// The record with this mark, and all before it, are safe on disk.
    Persisted(Mark),
}

/// What a node's own user or driver may ask of its machine.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Request {
    /// Call an election now. A healthy leader answers it and stays.
    Campaign,
    /// The work has ended: give the office back. Ignored unless in office.
    Resign,
    /// The work has ended: give the office to `to`. Ignored unless in office. To itself: leave it and take it again, in a new term, for other work.
    HandOver {
        /// The node that shall lead next.
        to: NodeId,
    },
    /// A hint that `peer` may be gone (a refused connection). Speeds up detection; deposes nobody by itself.
    Suspect {
        /// The suspected node.
        peer: NodeId,
    },
    /// Proof that the process of `peer` is dead (its guardian said so, it was fenced): what was promised to it is void.
    Dead {
        /// The dead node.
        peer: NodeId,
    },
    /// Do not lead from now on: vote, follow and answer as always, but never contend, not even if called. A leader resigns: its work has ended.
    Abstain,
    /// Contend again as usual, as every node does that has just come up; at once, if no leader is known.
    Stand,
}

/// What a machine wants done. The order matters: a driver carries effects out in the order they stand.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Effect<M> {
    /// Send `message` to `to`; it may get lost.
    Send {
        /// The receiver, never the node itself.
        to: NodeId,
        /// What to say.
        message: M,
    },
    /// Write `record` and sync it, then answer [`Input::Persisted`]. Records are written in the order of their marks.
    Persist {
        /// What to answer with.
        mark: Mark,
        /// What to write.
        record: Record,
    },
    /// Tell the node's user.
    Emit(Event),
}

/// What a machine tells its user.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// This node is in office from now on. How long: see [`View::until`].
    Elected {
        /// The term of the leadership.
        term: Term,
    },
    /// This node is out of office.
    Lost {
        /// The term of the leadership that ended.
        term: Term,
        /// Why it ended.
        reason: Reason,
    },
    /// This node now follows `leader`.
    Follows {
        /// The node in office.
        leader: NodeId,
        /// Its term.
        term: Term,
    },
    /// The leader that this node followed is silent, or has given the office back.
    LeaderGone {
        /// The node that was in office.
        leader: NodeId,
        /// Its term.
        term: Term,
        /// Why it is thought gone.
        cause: Cause,
    },
    /// This node has begun to contend.
    Contends {
        /// The term in force when it began.
        term: Term,
    },
    /// This node could not get a majority, or gave way to another that asked at the same time; it stands aside for a while. Or it abstains.
    Rejected {
        /// The term it tried to win.
        term: Term,
    },
    /// This node is in office and is asked to hand over to `to`. The user ends the work and then answers with
    /// [`Request::HandOver`]; until then nothing changes.
    Asked {
        /// The node that should lead.
        to: NodeId,
    },
    /// A message was ignored because it cannot be right (a term far beyond reason, an unknown sender).
    Ignored {
        /// Who sent it.
        from: NodeId,
    },
}

/// Why a leadership ended.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reason {
    /// The leader gave the office back.
    Resigned,
    /// The leader gave the office to another node.
    HandedOver {
        /// The node it was given to.
        to: NodeId,
    },
    /// No majority has answered for the length of a lease.
    QuorumLost,
    /// Another node is in office, or votes were given, in a later term.
    Superseded {
        /// The later term.
        term: Term,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Resigned => f.write_str("resigned"),
            Reason::HandedOver { to } => write!(f, "handed over to {to}"),
            Reason::QuorumLost => f.write_str("lost quorum"),
            Reason::Superseded { term } => write!(f, "superseded by term {term}"),
        }
    }
}

/// Why a follower no longer counts on its leader.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cause {
    /// Nothing was heard from it for longer than the detector allows.
    Silent,
    /// It said that it has left office.
    Released,
    /// Its process is proven dead.
    Dead,
    /// An election was called, by this node's user or by another node. If the leader is well, it is followed again at once.
    Challenged,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::Silent => "silent",
            Cause::Released => "left office",
            Cause::Dead => "proven dead",
            Cause::Challenged => "challenged",
        })
    }
}

/// What a node is doing, as seen from outside.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// Follows a leader or waits for one.
    Follower,
    /// Takes part in an election that it may win.
    Candidate,
    /// In office.
    Leader,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Follower => "follower",
            Role::Candidate => "candidate",
            Role::Leader => "leader",
        })
    }
}

/// A machine as its oracles see it. Never for decisions: what may be done is told by events and deadlines.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct View {
    /// What the node is doing.
    pub role: Role,
    /// The greatest term the node knows of.
    pub term: Term,
    /// The node it takes for the leader; itself when in office.
    pub leader: Option<NodeId>,
    /// For a leader: the instant at which its leadership ends unless it is renewed. `None`: nothing bounds it (no quorum guard).
    pub until: Option<Instant>,
}

impl View {
    /// Whether the node holds itself to be in office at `now`, on its own clock.
    pub fn in_office(&self, now: Instant) -> bool {
        self.role == Role::Leader && self.until.is_none_or(|until| now < until)
    }
}

/// The list of effects that a step fills. Kept by the driver and reused, so that a step allocates nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Effects<M>(Vec<Effect<M>>);

impl<M> Default for Effects<M> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<M> Effects<M> {
    /// Asks for `message` to be sent to `to`.
    pub fn send(&mut self, to: NodeId, message: impl Into<M>) {
        self.0.push(Effect::Send { to, message: message.into() });
    }

    /// Asks for `record` to be persisted.
    pub fn persist(&mut self, mark: Mark, record: Record) {
        self.0.push(Effect::Persist { mark, record });
    }

    /// Tells the node's user.
    pub fn emit(&mut self, event: Event) {
        self.0.push(Effect::Emit(event));
    }

    /// What was asked for so far.
    pub fn as_slice(&self) -> &[Effect<M>] {
        &self.0
    }

    /// Takes all effects out, in order, and leaves the list empty.
    pub fn drain(&mut self) -> alloc::vec::Drain<'_, Effect<M>> {
        self.0.drain(..)
    }
}

/// What a message is for: the theory counts the first kind only.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Purpose {
    /// The algorithm's own election messages: ELECTION, ALIVE, COORDINATOR; Raft's votes.
    Contest,
    /// Votes that the quorum guard adds to a protocol that has none of its own.
    Guard,
    /// Heartbeats and what answers them, hop acknowledgements, notices.
    Upkeep,
}

impl Purpose {
    /// The purpose of an office message in a protocol that has no votes of its own.
    pub(crate) fn for_guard(self) -> Purpose {
        match self {
            Purpose::Contest | Purpose::Guard => Purpose::Guard,
            Purpose::Upkeep => Purpose::Upkeep,
        }
    }
}

/// What a message claims of its sender, and what therefore must be on the sender's disk.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Claim {
    /// Nothing that a crash could make untrue.
    Nothing,
    /// "My term is at least this."
    Term(Term),
    /// "I gave my vote in `term` to `candidate`" (a candidate votes for itself before it asks).
    Vote {
        /// The term of the vote.
        term: Term,
        /// Who got it.
        candidate: NodeId,
    },
    /// "I am in office in this term."
    Office(Term),
}

/// What the lab, the metrics and the traces want to know of a message.
pub trait Wire {
    /// Its name as people know it, in lower case: `election`, `alive`, `heartbeat`.
    fn name(&self) -> &'static str;
    /// What it is for.
    fn purpose(&self) -> Purpose;
    /// The term it speaks of.
    fn term(&self) -> Term;
    /// What it claims of its sender when `from` sends it to `to`.
    fn claim(&self, from: NodeId, to: NodeId) -> Claim;
    /// Its length on a wire without the frame around it: a byte for the kind, then its fields.
    fn len_bytes(&self) -> usize;
}

/// An election protocol as a pure machine: same start, same inputs, same effects, on every run.
pub trait Protocol: Sized {
    /// What the nodes say to each other.
    type Message: Wire + Clone;

    /// A node that has just come up at `now`. `disk` is the last record that was persisted, if there is one.
    fn start(me: NodeId, settings: &Settings, seed: u64, disk: Option<Record>, now: Instant) -> Self;

    /// The only door in.
    fn step(&mut self, now: Instant, input: Input<Self::Message>, out: &mut Effects<Self::Message>);

    /// When to wake the machine. An instant in the past means at once.
    fn deadline(&self) -> Instant;

    /// For oracles, traces and people.
    fn view(&self) -> View;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_orders_by_incarnation_then_term_and_refuses_what_does_not_fit() {
        let token = |incarnation, term| Token::new(incarnation, Term(term));
        assert!(token(0, Term::MAX.0) < token(1, 0));
        assert!(token(1, 1) < token(1, 2));
        assert!(i64::try_from(token(Token::INCARNATION_MAX, Term::MAX.0).unwrap().get()).is_ok());
        assert_eq!(token(Token::INCARNATION_MAX + 1, 0), None);
        assert_eq!(token(0, Term::MAX.0 + 1), None);
        assert_eq!(Term::MAX.next(), None);
    }
}
