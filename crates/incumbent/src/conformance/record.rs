//! Who believed to lead when, and whether two ever did at once.

use std::sync::Mutex;

use incumbent_protocol::protocol::Token;
use incumbent_protocol::time::Instant;

use super::Verdict;
use crate::clock;
use crate::leadership::Leadership;

/// One leadership as its holder saw it, on the machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Belief {
    /// Its token.
    pub token: Token,
    /// When its holder began to believe.
    pub from: Instant,
    /// When it stopped: it gave the seat back, or its deadline passed.
    pub until: Instant,
}

/// The beliefs of all holders of one election.
#[derive(Default)]
pub struct Record(Mutex<Vec<Belief>>);

impl Record {
    /// An empty one.
    pub fn new() -> Record {
        Record::default()
    }

    /// Puts on record that a holder believed from `from` until now, or until its deadline if that has passed.
    pub fn believed(&self, leadership: &Leadership, from: Instant) {
        let until = clock::now().min(leadership.deadline());
        self.add(Belief { token: leadership.token(), from, until });
    }

    /// Puts a belief on record.
    pub fn add(&self, belief: Belief) {
        self.0.lock().expect("nobody panics with it").push(belief);
    }

    /// How many leaderships there were.
    pub fn len(&self) -> usize {
        self.0.lock().expect("nobody panics with it").len()
    }

    /// Whether there was none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// At most one at any instant, and tokens rise from one to the next.
    pub fn verdict(&self) -> Verdict {
        let mut beliefs = self.0.lock().expect("nobody panics with it").clone();
        beliefs.sort_by_key(|it| (it.from, it.until));
        for pair in beliefs.windows(2) {
            let (first, second) = (pair[0], pair[1]);
            if first.until > second.from {
                return Err(format!("two led at once for {:?}: {first:?} and {second:?}", first.until - second.from));
            }
            if first.token >= second.token {
                return Err(format!("the token did not rise: {first:?} then {second:?}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use incumbent_protocol::protocol::Term;

    use super::*;

    fn record(beliefs: &[(u64, u64, u64)]) -> Record {
        let record = Record::new();
        for &(term, from, until) in beliefs {
            let token = Token::new(0, Term(term)).expect("fits");
            record.add(Belief { token, from: Instant::from_nanos(from), until: Instant::from_nanos(until) });
        }
        record
    }

    #[test]
    fn an_overlap_and_a_token_that_does_not_rise_are_found() {
        assert_eq!(record(&[(2, 20, 30), (1, 10, 20)]).verdict(), Ok(()));
        assert!(record(&[(1, 10, 21), (2, 20, 30)]).verdict().expect_err("overlaps").contains("at once"));
        assert!(record(&[(2, 10, 20), (2, 20, 30)]).verdict().expect_err("same token").contains("rise"));
        assert!(record(&[(3, 10, 20), (2, 20, 30)]).verdict().expect_err("smaller token").contains("rise"));
    }
}
