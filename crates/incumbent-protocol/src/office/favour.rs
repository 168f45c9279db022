//! How soon a leader obliges a node that should lead in its place, after such nodes could not keep the office.
//!
//! **The problem.** A favourite that reaches its leader but no majority, or whose links flap, gets the office and loses it over and over (C77). If each
//! leader only counts what it gave away itself, the next one begins anew: with n nodes the group pays n times.
//!
//! **The insight.** Everyone hears who leads. So each node keeps count for itself of how often a favourite did not take the office that was given to it, or soon
//! lost it, whoever gave it; whichever of them leads next knows it too. The first time is bad luck and costs no more than the least tenure, then the
//! wait grows fourfold with each; a tenure long beside the wait clears the count. There is one count for all favourites, or several that cannot lead
//! would take turns; a fit one then has to wait for its turn, but meanwhile there is a leader.

use core::time::Duration;

use crate::protocol::{NodeId, Term};
use crate::time::Instant;

/// Beyond this the wait no longer grows: about an hour and a half with the default tenure.
const FAILURES_COUNTED_MAX: u32 = 7;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Favour {
    rest: Duration,
    failures: u32,
    /// Before this no favourite is obliged.
    obliges_from: Instant,
    /// The favourite in office, as far as we know.
    tenure: Option<Tenure>,
    /// Whom we gave the office to, until somebody is heard to have it.
    given_to: Option<NodeId>,
}

#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
struct Tenure {
    leader: NodeId,
    term: Term,
    since: Instant,
}

impl Favour {
    /// `rest`: the unit of the waits.
    pub(super) fn new(rest: Duration) -> Self {
        Self { rest, failures: 0, obliges_from: Instant::ZERO, tenure: None, given_to: None }
    }

    /// Whether our user is to be asked now to hand over to a favourite. If so, it is not asked again for a while: its work may take time to end.
    pub(super) fn obliges(&mut self, now: Instant) -> bool {
        let obliges = now >= self.obliges_from;
        if obliges {
            self.obliges_from = now + self.rest * 4;
        }
        obliges
    }

    /// We gave the office to `favourite`.
    pub(super) fn gave(&mut self, favourite: NodeId) {
        self.given_to = Some(favourite);
    }

    /// `leader` is in office, ourselves perhaps; `favoured` if we would make way for it.
    pub(super) fn leads(&mut self, leader: NodeId, term: Term, favoured: bool, now: Instant) {
        if self.tenure.is_some_and(|it| (it.leader, it.term) == (leader, term)) {
            return;
        }
        if self.given_to.take().is_some_and(|favourite| favourite != leader) {
            self.failed(now);
        }
        let next = favoured.then_some(Tenure { leader, term, since: now });
        if let Some(last) = core::mem::replace(&mut self.tenure, next) {
            if now - last.since >= self.rest * 4u32.pow(self.failures + 1) {
                (self.failures, self.obliges_from) = (0, now);
            } else {
                self.failed(now);
            }
        }
    }

    fn failed(&mut self, now: Instant) {
        self.obliges_from = now + self.rest * 4u32.pow(self.failures);
        self.failures = (self.failures + 1).min(FAILURES_COUNTED_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: Duration = Duration::from_secs(1);
    const ME: NodeId = NodeId(1);
    const FAVOURITE: NodeId = NodeId(3);

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn short_tenures_count_whoever_gave_them_and_a_long_one_clears_the_count() {
        let mut it = Favour::new(REST);
        it.leads(FAVOURITE, Term(1), true, at(10));
        it.leads(FAVOURITE, Term(1), true, at(11));
        it.leads(ME, Term(2), false, at(12));
        assert!(!it.obliges(at(12)));
        assert!(it.obliges(at(13)));
        // Not again at once: the user may still be ending its work.
        assert!(!it.obliges(at(16)));

        it.leads(FAVOURITE, Term(3), true, at(20));
        it.leads(ME, Term(4), false, at(30));
        assert!(!it.obliges(at(33)), "the second time: 4 s");
        assert!(it.obliges(at(34)));

        it.leads(FAVOURITE, Term(5), true, at(50));
        it.leads(ME, Term(6), false, at(114));
        assert!(it.obliges(at(114)), "64 s in office");
    }

    #[test]
    fn an_office_that_was_given_and_not_taken_counts() {
        let mut it = Favour::new(REST);
        it.gave(FAVOURITE);
        it.leads(ME, Term(2), false, at(1));
        assert!(!it.obliges(at(1)) && it.obliges(at(2)));
        it.gave(FAVOURITE);
        it.leads(ME, Term(4), false, at(3));
        assert!(!it.obliges(at(6)) && it.obliges(at(7)));
    }
}
