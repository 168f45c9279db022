//! What nodes say to each other about the office itself, whatever the protocol.

use core::fmt;

use crate::protocol::{Claim, NodeId, Purpose, Term, Wire};
use crate::time::Instant;

/// A message about the office: votes, signs of life, giving it back.
///
/// `sent` is the sender's own clock and comes back unchanged in the answer, so that a lease is counted from the send.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum OfficeMessage {
    /// "May I hold office in `term`?"
    VoteRequest {
        /// The term asked for.
        term: Term,
        /// A real vote, or only the question whether it would be given.
        round: Round,
        /// The leader of this term has given the office back: what was promised to it is void. 0 if none.
        released: Term,
        /// When this was sent.
        sent: Instant,
    },
    /// The answer to a vote request.
    Vote {
        /// When granted, the term asked for; when refused, the voter's own.
        term: Term,
        /// Which round is answered.
        round: Round,
        /// The answer.
        answer: Answer,
        /// When the request was sent.
        sent: Instant,
    },
    /// "I am in office."
    Heartbeat {
        /// The term of the leadership.
        term: Term,
        /// When this was sent.
        sent: Instant,
    },
    /// "I heard you": the answer to a heartbeat. With a greater term: "you are no longer in office".
    Ack {
        /// The follower's term.
        term: Term,
        /// When the heartbeat was sent.
        sent: Instant,
    },
    /// "Are you in office?" A leader answers with a heartbeat.
    Probe {
        /// The sender's term.
        term: Term,
    },
    /// "I have left office and my work has ended."
    Released {
        /// The term of the leadership that ended.
        term: Term,
    },
    /// "I have left office and my work has ended; you should lead next."
    TakeOver {
        /// The term of the leadership that ended.
        term: Term,
    },
    /// "I was told to lead next and do not stand: the office is free."
    Declined {
        /// The term of the leadership that ended.
        term: Term,
    },
}

/// The two rounds of a ballot.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Round {
    /// "Would you vote for me?" Binds nobody (thesis 9.6).
    Pre,
    /// The vote itself.
    Real,
}

/// What a voter answers.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Answer {
    /// Yes.
    Granted,
    /// No: the voter is in office, or follows the leader.
    Loyal,
    /// No: the voter knows no leader, but a vote or a leader heard not long ago binds it still.
    Bound,
    /// No: the vote of this term was given to another; in the pre-vote: the voter asks the same and is the greater.
    Taken,
    /// No: the term is over.
    Stale,
}

impl OfficeMessage {
    /// A term that somebody has reached, as far as this message shows. A pre-vote, asked for or given, speaks of one that is only wished for.
    pub(crate) fn reached(&self) -> Term {
        match *self {
            OfficeMessage::VoteRequest { round: Round::Pre, .. }
            | OfficeMessage::Vote { round: Round::Pre, answer: Answer::Granted, .. } => Term(0),
            OfficeMessage::VoteRequest { .. }
            | OfficeMessage::Vote { .. }
            | OfficeMessage::Heartbeat { .. }
            | OfficeMessage::Ack { .. }
            | OfficeMessage::Probe { .. }
            | OfficeMessage::Released { .. }
            | OfficeMessage::TakeOver { .. }
            | OfficeMessage::Declined { .. } => self.term(),
        }
    }
}

impl Wire for OfficeMessage {
    fn name(&self) -> &'static str {
        match self {
            OfficeMessage::VoteRequest { round: Round::Pre, .. } => "prevote-request",
            OfficeMessage::VoteRequest { round: Round::Real, .. } => "vote-request",
            OfficeMessage::Vote { round: Round::Pre, .. } => "prevote",
            OfficeMessage::Vote { round: Round::Real, .. } => "vote",
            OfficeMessage::Heartbeat { .. } => "heartbeat",
            OfficeMessage::Ack { .. } => "ack",
            OfficeMessage::Probe { .. } => "probe",
            OfficeMessage::Released { .. } => "released",
            OfficeMessage::TakeOver { .. } => "take-over",
            OfficeMessage::Declined { .. } => "declined",
        }
    }

    fn purpose(&self) -> Purpose {
        match self {
            OfficeMessage::VoteRequest { .. } | OfficeMessage::Vote { .. } => Purpose::Contest,
            OfficeMessage::Heartbeat { .. }
            | OfficeMessage::Ack { .. }
            | OfficeMessage::Probe { .. }
            | OfficeMessage::Released { .. }
            | OfficeMessage::TakeOver { .. }
            | OfficeMessage::Declined { .. } => Purpose::Upkeep,
        }
    }

    fn term(&self) -> Term {
        match *self {
            OfficeMessage::VoteRequest { term, .. }
            | OfficeMessage::Vote { term, .. }
            | OfficeMessage::Heartbeat { term, .. }
            | OfficeMessage::Ack { term, .. }
            | OfficeMessage::Probe { term }
            | OfficeMessage::Released { term }
            | OfficeMessage::TakeOver { term }
            | OfficeMessage::Declined { term } => term,
        }
    }

    fn claim(&self, from: NodeId, to: NodeId) -> Claim {
        match *self {
            // What would be done if asked in earnest binds nobody, and a crash cannot make it untrue.
            OfficeMessage::VoteRequest { round: Round::Pre, .. }
            | OfficeMessage::Vote { round: Round::Pre, answer: Answer::Granted, .. } => Claim::Nothing,
            OfficeMessage::VoteRequest { round: Round::Real, term, .. } => Claim::Vote { term, candidate: from },
            OfficeMessage::Vote { round: Round::Real, answer: Answer::Granted, term, .. } => Claim::Vote { term, candidate: to },
            OfficeMessage::Vote { term, .. }
            | OfficeMessage::Ack { term, .. }
            | OfficeMessage::Probe { term }
            | OfficeMessage::Declined { term } => Claim::Term(term),
            OfficeMessage::Heartbeat { term, .. } | OfficeMessage::Released { term } | OfficeMessage::TakeOver { term } => {
                Claim::Office(term)
            }
        }
    }

    fn len_bytes(&self) -> usize {
        match self {
            OfficeMessage::VoteRequest { .. } => 1 + 8 + 1 + 8 + 8,
            OfficeMessage::Vote { .. } => 1 + 8 + 1 + 1 + 8,
            OfficeMessage::Heartbeat { .. } | OfficeMessage::Ack { .. } => 1 + 8 + 8,
            OfficeMessage::Probe { .. }
            | OfficeMessage::Released { .. }
            | OfficeMessage::TakeOver { .. }
            | OfficeMessage::Declined { .. } => 1 + 8,
        }
    }
}

impl fmt::Display for OfficeMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} term={}", self.name(), self.term())?;
        match self {
            OfficeMessage::Vote { answer, round, .. } => f.write_str(match answer {
                Answer::Granted => " granted",
                Answer::Loyal => " refused: hears a leader",
                Answer::Bound => " refused: bound by a promise",
                Answer::Taken if *round == Round::Pre => " refused: stands itself",
                Answer::Taken => " refused: voted for another",
                Answer::Stale => " refused: that term is over",
            }),
            OfficeMessage::VoteRequest { .. }
            | OfficeMessage::Heartbeat { .. }
            | OfficeMessage::Ack { .. }
            | OfficeMessage::Probe { .. }
            | OfficeMessage::Released { .. }
            | OfficeMessage::TakeOver { .. }
            | OfficeMessage::Declined { .. } => Ok(()),
        }
    }
}
