//! Why the store did not do what it was asked: one closed list, with a sentence for each, and its form on the wire.
//!
//! A refusal is an outcome like any other: every replica refuses the same, and a repeated request is refused as it was the first time.

use alloc::string::String;
use core::fmt;

/// Why it was not done. Nothing has changed, except where [`Refusal::may_have_happened`] says otherwise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It makes no sense: what is wrong with it.
    Malformed(String),
    /// Too long, too many or out of range.
    Limit {
        /// Of what.
        what: String,
        /// What would be allowed.
        max: u64,
    },
    /// There is no such session any more.
    SessionGone(u64),
    /// A session of this number is open, on other terms.
    SessionTaken(u64),
    /// The leadership with this token is not in office.
    NotInOffice(u64),
    /// The election has another number of seats.
    SeatsDiffer(u32),
    /// The leadership has not served its minimum tenure: ask again in so many milliseconds.
    TooEarly(u64),
    /// The job is on record already, done under this token.
    AlreadyComplete(u64),
    /// There is no greater token. Begin a new election under another name.
    TokensExhausted,
    /// Somebody leads or waits there.
    Occupied,
    /// There is no such election.
    NoElection,
    /// There is no such key, and the operation needs one.
    NoKey,
    /// The key whose child it should be is not there.
    NoParent,
    /// A transaction came to where it says [`Abort`](crate::keys::transaction::Act::Abort), with this number.
    Aborted(u64),
    /// The client is not known any more, or this request of it: it may have happened. Ask how things stand; then introduce yourself anew.
    Forgotten,
    /// It was done before, at this revision or earlier, and its answer was too long to keep.
    AnswerDropped(u64),
    /// The client has used this number for another request: this one was not done.
    NumberUsed(u64),
    /// Events and reads of before this revision were dropped by [`crate::command::Compact`].
    Compacted(u64),
    /// The same, because only so many are kept: whoever watches was too slow.
    Lagged(u64),
    /// The store is only at this revision.
    Future(u64),
    /// Whoever asks may not: what is missing.
    Denied(String),
    /// Nobody of that name waits to be handed the seat, and the holder was not told: who waits instead.
    NotInLine(String),
}

impl Refusal {
    pub(crate) fn malformed(what: &str) -> Refusal {
        Refusal::Malformed(what.into())
    }

    pub(crate) fn limit(what: &str, max: usize) -> Refusal {
        Refusal::Limit { what: what.into(), max: max as u64 }
    }

    /// Whether what was asked may have been done, now or before. All others leave the store as it was.
    pub fn may_have_happened(&self) -> bool {
        matches!(self, Refusal::Forgotten | Refusal::AnswerDropped(_))
    }

    /// As it is written.
    pub fn to_wire(&self) -> RefusalOnWire {
        let (code, number, what) = match self {
            Refusal::Malformed(what) => (1, 0, what.as_str()),
            Refusal::Limit { what, max } => (2, *max, what.as_str()),
            Refusal::SessionGone(session) => (3, *session, ""),
            Refusal::SessionTaken(session) => (4, *session, ""),
            Refusal::NotInOffice(token) => (5, *token, ""),
            Refusal::SeatsDiffer(seats) => (6, u64::from(*seats), ""),
            Refusal::TooEarly(ms) => (7, *ms, ""),
            Refusal::AlreadyComplete(token) => (8, *token, ""),
            Refusal::TokensExhausted => (9, 0, ""),
            Refusal::Occupied => (10, 0, ""),
            Refusal::NoElection => (11, 0, ""),
            Refusal::NoKey => (12, 0, ""),
            Refusal::NoParent => (13, 0, ""),
            Refusal::Forgotten => (14, 0, ""),
            Refusal::AnswerDropped(revision) => (15, *revision, ""),
            Refusal::Compacted(revision) => (16, *revision, ""),
            Refusal::Lagged(revision) => (17, *revision, ""),
            Refusal::Future(revision) => (18, *revision, ""),
            Refusal::Aborted(number) => (19, *number, ""),
            Refusal::Denied(what) => (20, 0, what.as_str()),
            Refusal::NumberUsed(sequence) => (21, *sequence, ""),
            Refusal::NotInLine(what) => (22, 0, what.as_str()),
        };
        RefusalOnWire { code, number, what: what.into() }
    }

    /// As it was written. A code of a later version is [`Refusal::Malformed`], with its number.
    pub fn from_wire(wire: RefusalOnWire) -> Refusal {
        let RefusalOnWire { code, number, what } = wire;
        match code {
            1 => Refusal::Malformed(what),
            2 => Refusal::Limit { what, max: number },
            3 => Refusal::SessionGone(number),
            4 => Refusal::SessionTaken(number),
            5 => Refusal::NotInOffice(number),
            6 => Refusal::SeatsDiffer(u32::try_from(number).unwrap_or(u32::MAX)),
            7 => Refusal::TooEarly(number),
            8 => Refusal::AlreadyComplete(number),
            9 => Refusal::TokensExhausted,
            10 => Refusal::Occupied,
            11 => Refusal::NoElection,
            12 => Refusal::NoKey,
            13 => Refusal::NoParent,
            14 => Refusal::Forgotten,
            15 => Refusal::AnswerDropped(number),
            16 => Refusal::Compacted(number),
            17 => Refusal::Lagged(number),
            18 => Refusal::Future(number),
            19 => Refusal::Aborted(number),
            20 => Refusal::Denied(what),
            21 => Refusal::NumberUsed(number),
            22 => Refusal::NotInLine(what),
            later => Refusal::Malformed(alloc::format!("refused for reason {later}, which this version does not know: {what}")),
        }
    }
}

/// A refusal as it is written.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RefusalOnWire {
    /// Which one.
    #[prost(uint32, tag = "1")]
    pub code: u32,
    /// Its number, if it has one.
    #[prost(uint64, tag = "2")]
    pub number: u64,
    /// Its text, if it has one.
    #[prost(string, tag = "3")]
    pub what: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Malformed(what) => write!(f, "malformed: {what}"),
            Refusal::Limit { what, max } => write!(f, "{what}: at most {max}"),
            Refusal::SessionGone(session) => write!(f, "session {session} is gone: open another"),
            Refusal::SessionTaken(session) => write!(f, "session {session} is open on other terms: choose another number"),
            Refusal::NotInOffice(token) => write!(f, "the leadership with token {token} is not in office"),
            Refusal::SeatsDiffer(seats) => write!(f, "the election has {seats} seats: all candidates must say the same"),
            Refusal::TooEarly(ms) => write!(f, "its minimum tenure is not served yet: ask again in {ms} ms"),
            Refusal::AlreadyComplete(token) => write!(f, "done already, under token {token}"),
            Refusal::TokensExhausted => f.write_str("there is no greater token: begin a new election under another name"),
            Refusal::Occupied => f.write_str("somebody leads or waits in this election"),
            Refusal::NoElection => f.write_str("there is no such election"),
            Refusal::NoKey => f.write_str("there is no such key"),
            Refusal::NoParent => f.write_str("the key whose child it should be is not there"),
            Refusal::Forgotten => f.write_str(
                "the client or its request is forgotten, and it may have happened: look, then introduce yourself anew",
            ),
            Refusal::AnswerDropped(revision) => {
                write!(f, "done before, at revision {revision} or earlier; the answer was too long to keep")
            }
            Refusal::NumberUsed(sequence) => {
                write!(
                    f,
                    "number {sequence} of this client was used for another request: nothing was done of this one; take the next number"
                )
            }
            Refusal::Compacted(oldest) => write!(f, "compacted: the oldest revision is {oldest}"),
            Refusal::Lagged(oldest) => write!(f, "too far behind: the oldest revision is {oldest}"),
            Refusal::Aborted(number) => write!(f, "aborted by the transaction itself, with {number}"),
            Refusal::Future(revision) => write!(f, "not there yet: the store is at revision {revision}"),
            Refusal::Denied(what) => write!(f, "denied: {what}"),
            Refusal::NotInLine(what) => write!(f, "nobody is asked to hand over: {what}"),
        }
    }
}

impl core::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_survives_the_wire_and_a_later_one_is_told() {
        for code in 1..=22 {
            let wire = RefusalOnWire { code, number: 7, what: "what".into() };
            let refusal = Refusal::from_wire(wire);
            assert_eq!(Refusal::from_wire(refusal.to_wire()), refusal);
            assert_eq!(refusal.to_wire().code, code);
        }
        let later = Refusal::from_wire(RefusalOnWire { code: 99, number: 0, what: String::new() });
        assert!(alloc::format!("{later}").contains("99"));
    }
}
