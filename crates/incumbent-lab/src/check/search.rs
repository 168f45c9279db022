//! The search itself: breadth first, so that the first way found to anything is a shortest one.
//!
//! A state that was seen is known again by a fingerprint of 128 bits with a fixed key: that any two of a hundred million states share one has a
//! chance below 10^-22.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;

use super::group::{Group, Outcome};
use super::node::Rules;
use super::report::{Case, Counterexample, End, Property, Report};
use super::scope::{Begin, Budget, Refused, Scope};
use super::state::{Fingerprinted, Frontier, State, fingerprint};
use super::step::{Action, Deed};
use crate::jobs::Audience;

/// How many states are expanded between two looks at the audience.
const LOOK_EVERY: u64 = 1 << 14;

/// A calm election takes some thirty steps.
const STEPS_TO_A_LEADER_MAX: usize = 1000;

/// What the way to the first leader may cost.
const LAVISH: Budget = Budget { crashes: 0, losses: 0, repeats: 0, wakes: u8::MAX, requests: 0 };

/// Goes through all of `scope`, or as much of it as `audience` has the patience for. Same scope, same report.
pub fn check(scope: &Scope, audience: &dyn Audience) -> Result<Report, Refused> {
    let rules = Rules { kind: scope.protocol, settings: scope.settings()?, disk: scope.disk };
    let mut search = Search::new(scope, rules);
    let end = search.run(audience);
    Ok(search.report(end))
}

/// Where a state was found: from which other, by what. Twelve bytes, and as many states as memory holds.
type Origin = (u32, Action);
const _: () = assert!(size_of::<Origin>() == 12);

struct Search<'a> {
    scope: &'a Scope,
    group: Group,
    seen: HashSet<u128, BuildHasherDefault<Fingerprinted>>,
    /// In the order of discovery.
    origins: Vec<Origin>,
    /// The states to expand now, which are the last ones of `origins` before `next`.
    level: Frontier,
    next: Frontier,
    depth: usize,
    transitions: u64,
    met: [u64; Case::ALL.len()],
    /// At most one a property.
    found: Vec<Found>,
}

/// A violation, and the step that showed it.
struct Found {
    property: Property,
    text: String,
    at: Origin,
}

/// What can come after a step.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Onward {
    /// A state that is worth a look.
    On,
    /// Nothing that could not also come if the message stayed under way for ever.
    Idle,
    /// Nothing: a machine has stopped.
    Nowhere,
}

impl<'a> Search<'a> {
    fn new(scope: &'a Scope, rules: Rules) -> Self {
        let mut group = Group::new(rules);
        let mut state = group.start();
        let mut search = Search {
            scope,
            group,
            seen: HashSet::default(),
            // Nothing came before the first state, so its origin is never looked at.
            origins: vec![(0, Action::Lose(0))],
            level: Frontier::default(),
            next: Frontier::default(),
            depth: 0,
            transitions: 0,
            met: [0; Case::ALL.len()],
            found: Vec::new(),
        };
        match scope.begin {
            Begin::Cold => {}
            Begin::Led => search.let_one_lead(&mut state),
        }
        state.left = scope.budget;
        let mut words = Vec::new();
        state.write(&mut words);
        search.seen.insert(fingerprint(&words));
        search.next.push(&words);
        search
    }

    /// Goes straight on, one step after the other, until a leader is in office and all is quiet.
    fn let_one_lead(&mut self, state: &mut State) {
        let mut successor = State::default();
        while let Some(action) = self.group.calm_step(state) {
            let led = self.met[Case::Elected as usize] > 0;
            if led && matches!(action, Action::Do(_, Deed::Due)) {
                break;
            }
            assert!(self.origins.len() < STEPS_TO_A_LEADER_MAX, "without faults there is a leader in the end");
            state.left = LAVISH;
            let from = (self.origins.len() - 1) as u32;
            if self.take(state, &mut successor, (from, action)) == Onward::Nowhere {
                break;
            }
            core::mem::swap(state, &mut successor);
            self.origins.push((from, action));
        }
        self.met = [0; Case::ALL.len()];
    }

    fn run(&mut self, audience: &dyn Audience) -> End {
        let mut expanded = 0u64;
        let mut state = State::default();
        let mut successor = State::default();
        let mut actions = Vec::new();
        let mut words = Vec::new();
        while !self.next.is_empty() {
            core::mem::swap(&mut self.level, &mut self.next);
            self.next.clear();
            let first = self.origins.len() - self.level.len();
            for place in 0..self.level.len() {
                if self.origins.len() >= self.scope.states_max {
                    return End::Cut;
                }
                if expanded.is_multiple_of(LOOK_EVERY) {
                    if audience.has_enough() {
                        return End::Stopped;
                    }
                    audience.progress(self.origins.len());
                }
                expanded += 1;
                state.read(self.level.words(place), self.group.members().len());
                self.group.actions(&state, &mut actions);
                let from = (first + place) as u32;
                for action in actions.drain(..) {
                    self.transitions += 1;
                    if self.take(&state, &mut successor, (from, action)) == Onward::On {
                        words.clear();
                        successor.write(&mut words);
                        self.visit(&words, (from, action));
                    }
                }
            }
            if !self.next.is_empty() {
                self.depth += 1;
            }
        }
        End::Complete
    }

    /// Takes one step and judges it.
    fn take(&mut self, state: &State, successor: &mut State, at: Origin) -> Onward {
        let (_, action) = at;
        successor.clone_from(state);
        successor.spend(action);
        let Some((rank, outcome)) = self.group.outcome(state, action) else { return Onward::On };
        for (property, text) in &outcome.breaches {
            note(&mut self.found, *property, at, || text.clone());
        }
        self.judge(state, rank, &outcome, at);
        let Some(node) = outcome.next else { return Onward::Nowhere };
        if node == state.nodes[rank] && outcome.sent.is_empty() {
            return Onward::Idle;
        }
        successor.nodes[rank] = node;
        for envelope in &outcome.sent {
            successor.add(*envelope);
        }
        if !self.scope.votes() && self.group.two_contend(successor) {
            self.met[Case::Contested as usize] += 1;
        }
        Onward::On
    }

    /// Judges what needs a look at the other nodes.
    fn judge(&mut self, state: &State, rank: usize, outcome: &Outcome, at: Origin) {
        let me = self.group.members()[rank];
        let all = || state.nodes.iter().map(|number| self.group.node(*number));
        let others = || all().filter(|it| it.id() != me);
        for &term in &outcome.elected {
            self.met[Case::Elected as usize] += 1;
            self.met[Case::Succeeded as usize] += u64::from(all().any(|it| it.has_fallen_before(term)));
            if let Some(other) = others().find(|it| it.has_held(term)) {
                note(&mut self.found, Property::OneLeaderPerTerm, at, || {
                    format!("node {me} is in office in term {term}, in which node {} was", other.id())
                });
            }
            let votes = all().filter(|it| it.has_voted(term, me)).count();
            if self.scope.votes() && votes < self.group.votes_needed() {
                note(&mut self.found, Property::QuorumBehindLeader, at, || {
                    format!("node {me} is in office in term {term} with {votes} of {} votes", self.group.votes_needed())
                });
            }
        }
        for &(leader, term) in &outcome.followed {
            if !others().any(|it| it.id() == leader && it.has_held(term)) {
                note(&mut self.found, Property::NoPretender, at, || {
                    format!("node {me} follows node {leader} in term {term}, which that one never won")
                });
            }
        }
        if let Some(term) = outcome.stood
            && others().any(|it| it.has_voted(term, it.id()))
        {
            self.met[Case::Contested as usize] += 1;
        }
        self.met[Case::Remembered as usize] += u64::from(outcome.remembered);
    }

    fn visit(&mut self, words: &[u32], origin: Origin) {
        if self.seen.insert(fingerprint(words)) {
            self.origins.push(origin);
            self.next.push(words);
        }
    }

    fn report(self, end: End) -> Report {
        let mut violations: Vec<_> = self.found.iter().map(|it| self.counterexample(it)).collect();
        violations.sort_by_key(|it| (it.steps.len(), it.property));
        Report {
            scope: self.scope.clone(),
            states: self.origins.len(),
            transitions: self.transitions,
            depth: self.depth,
            node_states: self.group.node_count(),
            messages: self.group.envelope_count(),
            end,
            met: self.met,
            violations,
        }
    }

    fn counterexample(&self, found: &Found) -> Counterexample {
        let (mut from, last) = found.at;
        let mut actions = vec![last];
        while from != 0 {
            let (before, action) = self.origins[from as usize];
            actions.push(action);
            from = before;
        }
        let mut nodes = self.group.fresh();
        let steps = actions.iter().rev().map(|action| self.group.tell(&mut nodes, *action)).collect();
        Counterexample { property: found.property, text: found.text.clone(), steps }
    }
}

/// Keeps the first violation of a property: the search is breadth first, so no later one is shorter.
fn note(found: &mut Vec<Found>, property: Property, at: Origin, text: impl FnOnce() -> String) {
    if found.iter().all(|other| other.property != property) {
        found.push(Found { property, text: text(), at });
    }
}
