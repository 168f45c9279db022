//! The oracles: one file for each thing that must be true of every run, each with the history that it would catch.
//!
//! They see [`Observation`]s in the order in which they happened and nothing else. An oracle keeps the first violation it
//! finds, and counts how often the case it is there for came up at all: a swarm in which a count stays zero has proved
//! nothing, and fails ([`Sometimes`]). An observation costs each oracle constant time and no allocation.
//!
//! What an oracle may demand depends on the group (is it guarded?) and on the weather (do the clocks keep the drift bound?);
//! [`Demands`] says it.

mod agreement;
mod liveness;
mod one_leader_at_a_time;
mod one_leader_per_term;
mod persisted_before_told;
mod seats;
mod termination;
mod tokens_increase;

use core::fmt;
use core::time::Duration;

use incumbent_protocol::protocol::NodeId;
use incumbent_protocol::settings::Settings;

use crate::observation::{Moment, Observation, Observer};

pub use agreement::Agreement;
pub use liveness::Liveness;
pub use one_leader_at_a_time::{Exclusion, OneLeaderAtATime, Splits};
pub use one_leader_per_term::OneLeaderPerTerm;
pub use persisted_before_told::PersistedBeforeTold;
pub use termination::Termination;
pub use tokens_increase::{Order, TokensIncrease};

/// Something that must be true of every run.
pub trait Oracle {
    /// Its name, as in the name of its file.
    const NAME: &'static str;
    /// The case without which it proves nothing.
    const SOMETIMES: &'static str;

    /// Takes note of what happened at `at`. Time never goes back from one call to the next.
    fn see(&mut self, at: Moment, seen: &Observation<'_>);
    /// The run has ended: what is still open is judged now.
    fn finish(&mut self, at: Moment);
    /// The first violation, if there was one.
    fn violation(&self) -> Option<&Violation>;
    /// How often [`Oracle::SOMETIMES`] was true.
    fn sometimes(&self) -> u64;
}

/// A broken promise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The name of the oracle that saw it.
    pub oracle: &'static str,
    /// When, in true time.
    pub at: Moment,
    /// What happened, in a sentence with nodes, terms and times.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t={} {}: {}", self.at, self.oracle, self.text)
    }
}

/// Keeps the first violation of an oracle; the text of later ones is never even built.
fn note(kept: &mut Option<Violation>, oracle: &'static str, at: Moment, text: impl FnOnce() -> String) {
    if kept.is_none() {
        *kept = Some(Violation { oracle, at, text: text() });
    }
}

/// What may be demanded of a group in a given weather.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Demands {
    /// Whether two leaders at one instant are a violation.
    pub exclusion: Exclusion,
    /// In which order terms must come.
    pub order: Order,
    /// How long after healing somebody must be in office.
    pub elected_within: Duration,
    /// How long after healing all must agree, and change their minds no more.
    pub settled_within: Duration,
    /// How long after healing a contest may last.
    pub contest_within: Duration,
}

/// The members in ascending order, and where each stands among them.
#[derive(Clone, Debug)]
struct Roster {
    first: u32,
    /// The ranks of the ids from `first` on; [`Roster::STRANGER`] where there is a gap.
    ranks: Vec<u32>,
    count: usize,
}

impl Roster {
    const STRANGER: u32 = u32::MAX;
    /// Ids are small numbers in the lab; a table this long is a mistake of the test.
    const SPAN_MAX: usize = 1 << 20;

    fn of(members: &[NodeId]) -> Roster {
        let first = members.first().map_or(0, |it| it.0);
        let last = members.last().map_or(0, |it| it.0);
        let span = (last - first) as usize + 1;
        assert!(span <= Self::SPAN_MAX, "ids from {first} to {last} are too far apart for the lab");
        let mut ranks = vec![Self::STRANGER; span];
        for (rank, member) in members.iter().enumerate() {
            ranks[(member.0 - first) as usize] = rank as u32;
        }
        Roster { first, ranks, count: members.len() }
    }

    fn rank(&self, node: NodeId) -> usize {
        let rank = self.ranks[node.0.wrapping_sub(self.first) as usize];
        assert!(rank != Self::STRANGER, "node {node} is no member");
        rank as usize
    }
}

/// All seven oracles over one run.
#[derive(Clone, Debug)]
pub struct Oracles {
    /// No term is held twice.
    pub one_leader_per_term: OneLeaderPerTerm,
    /// No two nodes are in office at one instant.
    pub one_leader_at_a_time: OneLeaderAtATime,
    /// Each leadership has a greater term than those before it.
    pub tokens_increase: TokensIncrease,
    /// A healed group comes to name one leader.
    pub agreement: Agreement,
    /// A contest comes to an end.
    pub termination: Termination,
    /// A healed group gets a leader and keeps it.
    pub liveness: Liveness,
    /// Nobody is told what a crash could make untrue.
    pub persisted_before_told: PersistedBeforeTold,
}

impl Oracles {
    /// How many there are.
    pub const COUNT: usize = 7;

    /// Oracles for a group with these `settings`, at the beginning of a run.
    pub fn new(settings: &Settings, demands: &Demands) -> Oracles {
        let members = settings.members();
        Oracles {
            one_leader_per_term: OneLeaderPerTerm::new(members),
            one_leader_at_a_time: OneLeaderAtATime::new(demands.exclusion),
            tokens_increase: TokensIncrease::new(members, demands.order),
            agreement: Agreement::new(members, demands.settled_within),
            termination: Termination::new(members, demands.contest_within),
            liveness: Liveness::new(members, demands.elected_within, demands.settled_within),
            persisted_before_told: PersistedBeforeTold::new(members),
        }
    }

    /// The run has ended at `at`.
    pub fn finish(&mut self, at: Moment) {
        self.one_leader_per_term.finish(at);
        self.one_leader_at_a_time.finish(at);
        self.tokens_increase.finish(at);
        self.agreement.finish(at);
        self.termination.finish(at);
        self.liveness.finish(at);
        self.persisted_before_told.finish(at);
    }

    /// What was broken: at most one violation an oracle, safety first.
    pub fn violations(&self) -> impl Iterator<Item = &Violation> {
        [
            self.one_leader_per_term.violation(),
            self.one_leader_at_a_time.violation(),
            self.tokens_increase.violation(),
            self.persisted_before_told.violation(),
            self.agreement.violation(),
            self.termination.violation(),
            self.liveness.violation(),
        ]
        .into_iter()
        .flatten()
    }

    /// How often each oracle met the case it is there for.
    pub fn sometimes(&self) -> Sometimes {
        Sometimes([
            self.one_leader_per_term.sometimes(),
            self.one_leader_at_a_time.sometimes(),
            self.tokens_increase.sometimes(),
            self.agreement.sometimes(),
            self.termination.sometimes(),
            self.liveness.sometimes(),
            self.persisted_before_told.sometimes(),
        ])
    }
}

impl Observer for Oracles {
    fn observe(&mut self, at: Moment, seen: &Observation<'_>) {
        self.one_leader_per_term.see(at, seen);
        self.one_leader_at_a_time.see(at, seen);
        self.tokens_increase.see(at, seen);
        self.agreement.see(at, seen);
        self.termination.see(at, seen);
        self.liveness.see(at, seen);
        self.persisted_before_told.see(at, seen);
    }
}

/// How often the interesting cases came up: over one run, or added up over many.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Sometimes([u64; Oracles::COUNT]);

impl Sometimes {
    /// The oracles and their cases, in the order of the counts.
    const CASES: [(&'static str, &'static str); Oracles::COUNT] = [
        (OneLeaderPerTerm::NAME, OneLeaderPerTerm::SOMETIMES),
        (OneLeaderAtATime::NAME, OneLeaderAtATime::SOMETIMES),
        (TokensIncrease::NAME, TokensIncrease::SOMETIMES),
        (Agreement::NAME, Agreement::SOMETIMES),
        (Termination::NAME, Termination::SOMETIMES),
        (Liveness::NAME, Liveness::SOMETIMES),
        (PersistedBeforeTold::NAME, PersistedBeforeTold::SOMETIMES),
    ];

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Sometimes) {
        for (mine, others) in self.0.iter_mut().zip(other.0) {
            *mine = mine.saturating_add(others);
        }
    }

    /// Each oracle's name, its case and how often that was true.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        Self::CASES.into_iter().zip(self.0).map(|((oracle, case), count)| (oracle, case, count))
    }

    /// The oracles that have proved nothing, with the case that never came up.
    pub fn never(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.counts().filter(|(_, _, count)| *count == 0).map(|(oracle, case, _)| (oracle, case))
    }
}

/// Histories for the oracles' tests.
#[cfg(test)]
mod history {
    use super::*;
    use incumbent_protocol::protocol::{Event, Term};

    pub(super) const MEMBERS: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

    pub(super) fn ms(millis: u64) -> Moment {
        Moment(millis * 1_000_000)
    }

    pub(super) fn in_office(node: u32, term: u64, until: Moment) -> Observation<'static> {
        Observation::InOffice { node: NodeId(node), term: Term(term), until }
    }

    pub(super) fn out_of_office(node: u32, term: u64) -> Observation<'static> {
        Observation::OutOfOffice { node: NodeId(node), term: Term(term) }
    }

    pub(super) fn told(node: u32, event: Event) -> Observation<'static> {
        Observation::Told { node: NodeId(node), event }
    }

    pub(super) fn follows(node: u32, leader: u32, term: u64) -> Observation<'static> {
        told(node, Event::Follows { leader: NodeId(leader), term: Term(term) })
    }

    pub(super) fn elected(node: u32, term: u64) -> Observation<'static> {
        told(node, Event::Elected { term: Term(term) })
    }

    pub(super) fn contends(node: u32, term: u64) -> Observation<'static> {
        told(node, Event::Contends { term: Term(term) })
    }

    pub(super) fn crashed(node: u32) -> Observation<'static> {
        Observation::Crashed { node: NodeId(node) }
    }

    /// Shows `oracle` a history and its end; gives the text of the violation, or an empty one.
    pub(super) fn verdict(oracle: &mut impl Oracle, end: Moment, seen: &[(u64, Observation<'_>)]) -> String {
        for (at, it) in seen {
            oracle.see(ms(*at), it);
        }
        oracle.finish(end);
        oracle.violation().map_or(String::new(), |it| it.text.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_roster_knows_ranks_with_and_without_gaps() {
        let roster = Roster::of(&[NodeId(3), NodeId(4), NodeId(9)]);
        assert_eq!([3, 4, 9].map(|id| roster.rank(NodeId(id))), [0, 1, 2]);
        assert_eq!(roster.count, 3);
    }

    #[test]
    #[should_panic(expected = "node 5 is no member")]
    fn a_stranger_is_a_mistake_of_the_world() {
        Roster::of(&[NodeId(3), NodeId(9)]).rank(NodeId(5));
    }

    #[test]
    fn counts_add_up_and_name_what_never_happened() {
        let mut sum = Sometimes::default();
        assert_eq!(sum.never().count(), Oracles::COUNT);
        sum.add(&Sometimes([1, 0, 2, 1, 1, 1, u64::MAX]));
        sum.add(&Sometimes([1, 0, 2, 1, 1, 1, 1]));
        assert_eq!(sum.never().map(|it| it.0).collect::<Vec<_>>(), ["one_leader_at_a_time"]);
        assert_eq!(sum.counts().map(|it| it.2).collect::<Vec<_>>(), [2, 0, 4, 2, 2, 2, u64::MAX]);
    }
}
