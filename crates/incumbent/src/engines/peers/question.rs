//! What nodes, and operators' commands, ask each other. JSON: it is seldom, small, and later versions may add to it.

use incumbent_protocol::protocol::Token;
use serde::{Deserialize, Serialize};

use super::hall::Waits;
use super::minutes::Minutes;
use crate::desk::{Holder, token_as_number};
use crate::engine::{Board, Candidate, Error, Kind, Wish};

/// What somebody wants of a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Question {
    /// Who leads, who waits, who led.
    Look { election: String },
    /// Take this in; say so when it is on the disk, or at once if that will do.
    Hear { election: String, minutes: Minutes, safely: bool },
    /// Tell the holder.
    Ask { election: String, wish: Wish },
    /// Never give a token of a smaller incarnation again.
    Raise { election: String, epoch: u16 },
    /// Note this of a leadership, on all nodes.
    Note {
        election: String,
        #[serde(with = "token_as_number")]
        token: Token,
        text: String,
    },
    /// How the node itself is, and who the members are.
    Report,
    /// Take a member in, or leave one out.
    Change {
        #[serde(skip_serializing_if = "Option::is_none")]
        add: Option<(u32, String)>,
        #[serde(skip_serializing_if = "Option::is_none")]
        remove: Option<u32>,
    },
}

/// What a node answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    Board(Box<Seen>),
    Report(serde_json::Value),
    Done,
    Refused(String),
    Unknown(String),
    Misconfigured(String),
}

/// An election as a node sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Seen {
    pub(super) leader: Option<Holder>,
    pub(super) candidates: Vec<Waits>,
    pub(super) minutes: Minutes,
}

/// What a node tells the others unasked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Gossip {
    /// These of its candidates wait.
    Line(Vec<Waits>),
    /// What it knows.
    Minutes(Minutes),
}

impl Answer {
    pub(super) fn of(outcome: Result<(), Error>) -> Answer {
        match outcome {
            Ok(()) => Answer::Done,
            Err(why) => Answer::from_error(&why),
        }
    }

    pub(super) fn from_error(why: &Error) -> Answer {
        let text = why.to_string();
        match why.kind() {
            Kind::Refused => Answer::Refused(text),
            Kind::Unknown => Answer::Unknown(text),
            Kind::Misconfigured => Answer::Misconfigured(text),
        }
    }

    /// What is wrong with an answer that was not hoped for.
    pub(super) fn trouble(self) -> Error {
        match self {
            Answer::Refused(why) => Error::refused(why),
            Answer::Unknown(why) => Error::unknown(why),
            Answer::Misconfigured(why) => Error::misconfigured(why),
            Answer::Board(_) | Answer::Report(_) | Answer::Done => Error::unknown("a node gave an answer to another question"),
        }
    }

    pub(super) fn done(self) -> Result<(), Error> {
        if self == Answer::Done { Ok(()) } else { Err(self.trouble()) }
    }

    pub(super) fn board(self) -> Result<Board, Error> {
        let Answer::Board(seen) = self else { return Err(self.trouble()) };
        let Seen { leader, candidates, minutes } = *seen;
        Ok(Board {
            leaders: leader.iter().map(Holder::leader).collect(),
            candidates: candidates.into_iter().map(|it| Candidate { identity: it.identity, priority: it.priority }).collect(),
            notes: minutes.notes(),
            past: minutes.past,
        })
    }
}

pub(super) fn write<T: Serialize>(what: &T) -> Vec<u8> {
    serde_json::to_vec(what).expect("neither maps with odd keys nor numbers that JSON lacks")
}

pub(super) fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes)
        .map_err(|why| Error::unknown(format!("a node spoke in words that are not ours ({why}): do all run the same version?")))
}
