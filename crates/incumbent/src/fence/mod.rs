//! Fences: what stands before a resource and refuses the writes of former leaders. Without one a token is decoration.
//!
//! A leader can be paused between its last look at the clock and its write: no lease and no deadline helps against that. What helps is
//! a resource that remembers. The rule, the same in every guard: **a token is admitted if it is not smaller than the greatest seen for this resource, and what
//! was admitted is remembered, safe on disk, before anybody hears of it.**
//!
//! Whoever reads, thinks and writes back has the token admitted *before the first read*. Else the former leader's last write may come between
//! the new leader's read and its write, and is lost: both were admitted, in the right order.
//!
//! - [`directory`]: files in a directory; also the durable memory of other fences.
//! - [`postgres`]: a function and a trigger, in the same transaction as what is written.
//! - [`redis`]: scripts that compare, remember and write in one step.
//! - `object_store`: objects in a bucket, by conditional writes (feature `fence-object-store`).
//! - `http`: a `tower` layer before any HTTP service (feature `fence-http`).
//!
//! A resource may see tokens of one election only: those of two elections are two sequences, and the greater would lock the other out.

pub mod directory;
#[cfg(feature = "fence-http")]
pub mod gate;
#[cfg(feature = "fence-http")]
pub mod http;
#[cfg(feature = "fence-object-store")]
pub mod object_store;
pub mod postgres;
pub mod redis;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use incumbent_protocol::protocol::{Term, Token};

use crate::engine::Error;
use crate::metrics::Metrics;

/// Remembers the greatest token of each resource, and refuses smaller ones.
///
/// Between `admit` and the write that it is for, a greater token may be admitted and its write done: a fence alone is as good as the time between is short.
/// The guards of this module close the gap, each in its way, and say how.
#[async_trait]
pub trait Fence: Send + Sync + 'static {
    /// `Ok` if no greater token than this has been seen for `resource`; from then on every smaller one is refused, whatever crashes.
    async fn admit(&self, resource: &str, token: Token) -> Result<(), Refusal>;
}

/// The token of a former leader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stale {
    /// What was to be written to.
    pub resource: String,
    /// The token that was offered.
    pub offered: Token,
    /// The greatest seen.
    pub seen: Token,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stale { resource, offered, seen } = self;
        write!(f, "stale token {offered} for {resource}: {seen} has been seen, so somebody else leads since")
    }
}

impl std::error::Error for Stale {}

/// Why something was not admitted.
#[derive(Debug)]
pub enum Refusal {
    /// A greater token has been seen: nothing was written, and nothing with this token ever will be.
    Stale(Stale),
    /// The fence could not say, or the write behind it failed; the [`Error`] says whether it may have happened.
    Trouble(Error),
}

impl Refusal {
    /// The stale token, if that was the reason.
    pub fn stale(&self) -> Option<&Stale> {
        match self {
            Refusal::Stale(stale) => Some(stale),
            Refusal::Trouble(_) => None,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Stale(stale) => stale.fmt(f),
            Refusal::Trouble(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for Refusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Refusal::Stale(stale) => Some(stale),
            Refusal::Trouble(why) => Some(why),
        }
    }
}

impl From<Stale> for Refusal {
    fn from(stale: Stale) -> Refusal {
        Refusal::Stale(stale)
    }
}

impl From<Error> for Refusal {
    fn from(why: Error) -> Refusal {
        Refusal::Trouble(why)
    }
}

/// What an admitted token asks of the memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Admission {
    /// It is the greatest seen: nothing to remember.
    Known,
    /// It is greater than all before: to be remembered before anybody hears of it.
    New,
}

/// The rule itself: `offered` against the greatest token seen for `resource`.
pub fn judge(resource: &str, offered: Token, seen: Option<Token>) -> Result<Admission, Stale> {
    match seen {
        Some(seen) if offered < seen => Err(Stale { resource: resource.to_owned(), offered, seen }),
        Some(seen) if offered == seen => Ok(Admission::Known),
        Some(_) | None => Ok(Admission::New),
    }
}

/// The token that `number` is, from a header, a column or a file; `None` if it is none.
pub fn token(number: u64) -> Option<Token> {
    let incarnation = u16::try_from(number >> 48).ok()?;
    Token::new(incarnation, Term(number & Term::MAX.0))
}

/// The token that `text` is: digits and nothing else, so that every guard understands it in the same way.
pub fn parse_token(text: &str) -> Option<Token> {
    let is_plain = text.bytes().all(|it| it.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_plain).and_then(token)
}

/// A fence whose refusals are counted.
pub struct Counted {
    fence: Arc<dyn Fence>,
    metrics: Arc<Metrics>,
}

impl Counted {
    /// Counts what `fence` refuses into `metrics`.
    pub fn new(fence: Arc<dyn Fence>, metrics: Arc<Metrics>) -> Counted {
        Counted { fence, metrics }
    }
}

#[async_trait]
impl Fence for Counted {
    async fn admit(&self, resource: &str, token: Token) -> Result<(), Refusal> {
        let verdict = self.fence.admit(resource, token).await;
        if let Err(Refusal::Stale(_)) = verdict {
            self.metrics.on_fence_refusal(resource);
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(number: u64) -> Token {
        token(number).expect("fits")
    }

    #[test]
    fn the_greatest_seen_and_greater_ones_are_admitted() {
        assert_eq!(judge("x", of(0), None), Ok(Admission::New));
        assert_eq!(judge("x", of(7), Some(of(6))), Ok(Admission::New));
        assert_eq!(judge("x", of(7), Some(of(7))), Ok(Admission::Known));
        assert_eq!(
            judge("x", of(1 << 48), Some(of((1 << 48) - 1))),
            Ok(Admission::New),
            "a new incarnation is greater than any term"
        );
    }

    #[test]
    fn a_smaller_one_is_refused_and_told_what_was_seen() {
        let stale = judge("ledger", of(41), Some(of(42))).expect_err("smaller");
        assert_eq!(stale, Stale { resource: "ledger".into(), offered: of(41), seen: of(42) });
        let text = Refusal::from(stale).to_string();
        assert!(text.contains("41") && text.contains("ledger") && text.contains("42 has been seen"), "{text}");
    }

    #[test]
    fn tokens_are_read_in_one_form_only() {
        for good in ["0", "7", "281474976710656", "9223372036854775807"] {
            assert_eq!(parse_token(good).map(|it| it.to_string()).as_deref(), Some(good));
        }
        for odd in ["", " 7", "7 ", "+7", "-7", "07", "00", "0x7", "7.0", "9223372036854775808", "18446744073709551616", "seven"]
        {
            assert_eq!(parse_token(odd), None, "{odd:?}");
        }
    }
}
