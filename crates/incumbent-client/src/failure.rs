//! What may go wrong, and first of all whether it may have happened.

use std::fmt;
use std::io;

use incumbent_store::refusal::Refusal;

use crate::frame::BadFrame;
use crate::message::Objection;

/// Why something was not done, or is not known to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// It was not done, and asking again will not help. [`Refusal::AnswerDropped`] alone says that it was done before.
    Refused(Refusal),
    /// It was not done: no node could do it in time.
    NotNow {
        /// A sentence for people.
        why: String,
    },
    /// It may have been done, or be done yet: ask how things stand.
    Unknown {
        /// A sentence for people.
        why: String,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused(refusal) => write!(f, "refused: {refusal}"),
            Failure::NotNow { why } => write!(f, "not done: {why}"),
            Failure::Unknown { why } => write!(f, "it may have been done: {why}"),
        }
    }
}

impl std::error::Error for Failure {}

/// Why a connection has ended, or was not made.
#[derive(Debug)]
pub enum Ended {
    /// There is no reaching the address.
    Unreachable(io::Error),
    /// It is not loopback, and without TLS anybody could listen.
    Insecure(String),
    /// TLS: we do not believe the node, or it does not believe us.
    Untrusted(io::Error),
    /// No welcome in time.
    Handshake,
    /// The node does not want us.
    TurnedAway {
        /// Why, for a program.
        objection: Objection,
        /// Why, for people.
        why: String,
    },
    /// What came is not ours to read.
    BadFrame(BadFrame),
    /// What came makes no sense.
    Nonsense(String),
    /// The other side has closed it, or its machine.
    Closed(Option<io::Error>),
    /// Nothing was heard for too long.
    Silent,
    /// Another node can do what this one cannot.
    Rerouted,
    /// The client was closed.
    Done,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Unreachable(wrong) => write!(f, "cannot connect: {wrong}"),
            Ended::Insecure(address) => write!(f, "{address} is not loopback: use TLS, or say that plain text will do"),
            Ended::Untrusted(wrong) => {
                write!(f, "no trust by TLS: {wrong}: look at the certificates, and at the name that they must have")
            }
            Ended::Handshake => {
                f.write_str("no answer in time: is it a node of the service, and does it take TLS or plain text?")
            }
            Ended::TurnedAway { objection: _, why } => write!(f, "turned away: {why}"),
            Ended::BadFrame(bad) => write!(f, "{bad}"),
            Ended::Nonsense(what) => write!(f, "the node says what cannot be: {what}"),
            Ended::Closed(None) => f.write_str("the node has closed the connection"),
            Ended::Closed(Some(wrong)) => write!(f, "the connection broke: {wrong}"),
            Ended::Silent => f.write_str("the node is silent"),
            Ended::Rerouted => f.write_str("another node leads, or none that this one reaches: asks the others"),
            Ended::Done => f.write_str("the client was closed"),
        }
    }
}

impl std::error::Error for Ended {}
