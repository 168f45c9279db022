//! One node of a search: its machine, its clock, its disk, and what others were told of it.
//!
//! A node's part in a step depends on the node and the step alone, so it is computed once and kept. All that can be judged by looking at
//! one node is judged here; what needs the others is judged by the search.

use std::panic::{AssertUnwindSafe, catch_unwind};

use incumbent_protocol::machine::{Kind, Machine, Message};
use incumbent_protocol::protocol::{Claim, Effect, Effects, Event, Input, Mark, NodeId, Record, Term, View, Wire as _};
use incumbent_protocol::settings::Settings;
use incumbent_protocol::time::Instant;

use super::report::Property;
use super::scope::Disk;
use super::step::{Deed, Envelope};
use crate::trace::Words;

/// A machine that was woken this often in a row and is still due never rests. A ballot that ends and a contest that begins are two.
const WAKES_IN_A_ROW_MAX: u8 = 4;

/// What is the same for all nodes of a search.
pub(super) struct Rules {
    pub(super) kind: Kind,
    pub(super) settings: Settings,
    pub(super) disk: Disk,
}

/// A node, up or down.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Node {
    id: NodeId,
    /// Rises with every crash.
    life: u8,
    /// `None` while it is down.
    machine: Option<Machine>,
    now: Instant,
    disk: Option<Record>,
    /// Not safe yet, in the order in which they will be.
    writing: Vec<(Mark, Record)>,
    wakes_in_a_row: u8,
    /// What the properties remember of it, whatever becomes of its disk.
    past: Past,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Past {
    /// The greatest term that anyone was told of.
    told: Term,
    /// The votes that anyone was told of.
    votes: Vec<(Term, NodeId)>,
    /// The terms it was in office, and in which life.
    held: Vec<(Term, u8)>,
}

/// What happens to a node.
#[derive(Copy, Clone, Debug)]
pub(super) enum Stimulus<'a> {
    Receive(&'a Envelope),
    Do(Deed),
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Turn {
    /// The node afterwards; `None` if its machine stopped on a broken invariant.
    pub(super) node: Option<Node>,
    /// What the machine wanted, in order.
    pub(super) effects: Vec<Effect<Message>>,
    /// What was broken, as far as one node shows it.
    pub(super) breaches: Vec<(Property, String)>,
}

/// What a node can do next.
#[derive(Copy, Clone, Debug)]
pub(super) struct Outlook {
    /// `None` while it is down.
    pub(super) view: Option<View>,
    /// Whether its clock has yet to come to its deadline, or has; `None` if there is no deadline.
    pub(super) due: Option<bool>,
    pub(super) writing: u8,
}

impl Node {
    /// A node that comes up for the first time.
    pub(super) fn fresh(id: NodeId, rules: &Rules) -> Node {
        let mut node = Node {
            id,
            life: 0,
            machine: None,
            now: Instant::ZERO,
            disk: None,
            writing: Vec::new(),
            wakes_in_a_row: 0,
            past: Past::default(),
        };
        node.start(rules);
        node
    }

    pub(super) fn id(&self) -> NodeId {
        self.id
    }

    /// When it wants to be woken; now if it is down.
    pub(super) fn deadline(&self) -> Instant {
        self.machine.as_ref().map_or(self.now, Machine::deadline)
    }

    pub(super) fn disk(&self) -> Option<Record> {
        self.disk
    }

    pub(super) fn writing(&self) -> &[(Mark, Record)] {
        &self.writing
    }

    pub(super) fn outlook(&self) -> Outlook {
        let deadline = self.machine.as_ref().map(Machine::deadline).filter(|it| *it < Instant::NEVER);
        Outlook {
            view: self.machine.as_ref().map(Machine::view),
            due: deadline.map(|it| it <= self.now),
            writing: u8::try_from(self.writing.len()).unwrap_or(u8::MAX),
        }
    }

    /// Whether it was ever in office in `term`.
    pub(super) fn has_held(&self, term: Term) -> bool {
        self.past.held.iter().any(|(held, _)| *held == term)
    }

    /// Whether it was in office before `term`, and has crashed since.
    pub(super) fn has_fallen_before(&self, term: Term) -> bool {
        self.past.held.iter().any(|(held, life)| *held < term && *life < self.life)
    }

    /// Whether anyone was told that it voted for `candidate` in `term`.
    pub(super) fn has_voted(&self, term: Term, candidate: NodeId) -> bool {
        self.past.votes.contains(&(term, candidate))
    }

    /// Lets something happen to the node.
    pub(super) fn turn(&self, rules: &Rules, stimulus: Stimulus<'_>) -> Turn {
        let mut turn = Turn { node: None, effects: Vec::new(), breaches: Vec::new() };
        let mut node = self.clone();
        let stands = match stimulus {
            Stimulus::Receive(envelope) => {
                node.wakes_in_a_row = 0;
                node.input(rules, Input::Receive { from: envelope.from, message: envelope.message.clone() }, &mut turn)
            }
            Stimulus::Do(deed) => node.perform(rules, deed, &mut turn),
        };
        turn.node = stands.then_some(node);
        turn
    }

    fn perform(&mut self, rules: &Rules, deed: Deed, turn: &mut Turn) -> bool {
        let in_a_row = core::mem::take(&mut self.wakes_in_a_row);
        match deed {
            Deed::Due => {
                self.now = self.now.max(self.deadline());
                true
            }
            Deed::Wake => {
                self.wakes_in_a_row = in_a_row + 1;
                let stands = self.input(rules, Input::Wake, turn);
                if self.wakes_in_a_row >= WAKES_IN_A_ROW_MAX && self.outlook().due == Some(true) {
                    let text = format!("node {} was woken {WAKES_IN_A_ROW_MAX} times at {} and is due again", self.id, self.now);
                    turn.breaches.push((Property::Rests, text));
                    return false;
                }
                stands
            }
            Deed::Sync => self.sync(rules, turn),
            Deed::Crash { kept } => {
                self.crash(rules, usize::from(kept));
                true
            }
            Deed::Start => {
                if !self.remembers() {
                    turn.breaches.push((Property::PersistedBeforeTold, self.forgotten()));
                }
                self.start(rules);
                true
            }
            Deed::Ask(wish) => self.input(rules, Input::Request(wish.request(rules.settings.members())), turn),
        }
    }

    fn start(&mut self, rules: &Rules) {
        // Each life draws other numbers: the hops of a ring must not look like those of the life before.
        let seed = u64::from(self.id.0) << 8 | u64::from(self.life);
        self.machine = Some(Machine::start(rules.kind, self.id, &rules.settings, seed, self.disk, self.now));
    }

    fn crash(&mut self, rules: &Rules, kept: usize) {
        let made_it = self.writing.drain(..).take(kept).next_back();
        self.disk = match rules.disk {
            Disk::Honest | Disk::Hasty => made_it.map(|(_, record)| record).or(self.disk),
            Disk::Forgets => None,
        };
        self.machine = None;
        self.life += 1;
    }

    fn sync(&mut self, rules: &Rules, turn: &mut Turn) -> bool {
        if self.writing.is_empty() {
            return true;
        }
        let (mark, record) = self.writing.remove(0);
        if let Some(before) = self.disk.replace(record) {
            let changed = before.term == record.term && before.vote.is_some() && before.vote != record.vote;
            if record.term < before.term || changed {
                let text = format!("node {} wrote {} over {}", self.id, Words(&record), Words(&before));
                turn.breaches.push((Property::TermsRise, text));
            }
        }
        match rules.disk {
            Disk::Honest | Disk::Forgets => self.input(rules, Input::Persisted(mark), turn),
            // It has said so long ago.
            Disk::Hasty => true,
        }
    }

    /// Gives the machine an input and carries out what it wants. False if the machine stopped.
    fn input(&mut self, rules: &Rules, input: Input<Message>, turn: &mut Turn) -> bool {
        let Some(machine) = &mut self.machine else { return true };
        let before = machine.view();
        let mut wanted = Effects::default();
        // A machine asserts its invariants. Here that is a finding like any other, with the way to it.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| machine.step(self.now, input, &mut wanted))) {
            let said = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            let text = format!("the machine of node {} stopped: {}", self.id, said.unwrap_or("no reason given"));
            turn.breaches.push((Property::NoPanic, text));
            return false;
        }
        let after = machine.view();
        if after.term < before.term {
            let text = format!("node {} went from term {} back to term {}", self.id, before.term, after.term);
            turn.breaches.push((Property::TermsRise, text));
        }
        let mut hasty = None;
        for effect in wanted.drain() {
            match &effect {
                Effect::Send { to, message } => self.tell(*to, message, turn),
                Effect::Persist { mark, record } => {
                    self.writing.push((*mark, *record));
                    hasty = (rules.disk == Disk::Hasty).then_some(*mark);
                }
                Effect::Emit(Event::Elected { term }) => {
                    if self.has_held(*term) {
                        let text = format!("node {} is in office in term {term} once more", self.id);
                        turn.breaches.push((Property::OneLeaderPerTerm, text));
                    }
                    self.past.held.push((*term, self.life));
                }
                Effect::Emit(
                    Event::Lost { .. }
                    | Event::Follows { .. }
                    | Event::LeaderGone { .. }
                    | Event::Contends { .. }
                    | Event::Rejected { .. }
                    | Event::Asked { .. }
                    | Event::Ignored { .. },
                ) => {}
            }
            turn.effects.push(effect);
        }
        hasty.is_none_or(|mark| self.input(rules, Input::Persisted(mark), turn))
    }

    /// Judges and remembers what a message claims as it leaves.
    fn tell(&mut self, to: NodeId, message: &Message, turn: &mut Turn) {
        let claim = message.claim(self.id, to);
        let (term, vote) = match claim {
            Claim::Nothing => return,
            Claim::Term(term) => (term, None),
            Claim::Office(term) => {
                if !self.has_held(term) {
                    let text = format!("node {} sent {message} but was never in office in term {term}", self.id);
                    turn.breaches.push((Property::NoPretender, text));
                }
                (term, None)
            }
            Claim::Vote { term, candidate } => (term, Some(candidate)),
        };
        if !covers(self.disk, term, vote) {
            let text = format!("node {} sent {message} to {to} with {} on its disk", self.id, self.disk_in_words());
            turn.breaches.push((Property::PersistedBeforeTold, text));
        }
        self.past.told = self.past.told.max(term);
        if let Some(candidate) = vote
            && !self.has_voted(term, candidate)
        {
            if let Some((_, other)) = self.past.votes.iter().find(|(voted_in, _)| *voted_in == term) {
                let text = format!("node {} voted in term {term} for node {other} and for node {candidate}", self.id);
                turn.breaches.push((Property::OneVotePerTerm, text));
            }
            self.past.votes.push((term, candidate));
        }
    }

    /// Whether the disk holds all that anyone was told.
    fn remembers(&self) -> bool {
        covers(self.disk, self.past.told, None)
            && self.past.votes.iter().all(|(term, candidate)| covers(self.disk, *term, Some(*candidate)))
    }

    fn disk_in_words(&self) -> String {
        self.disk.map_or("nothing".to_owned(), |record| Words(&record).to_string())
    }

    fn forgotten(&self) -> String {
        let voted = self
            .past
            .votes
            .last()
            .map_or(String::new(), |(term, candidate)| format!(" and of a vote for node {candidate} in term {term}"));
        format!(
            "node {} came up with {} on its disk but others were told of term {}{voted}",
            self.id,
            self.disk_in_words(),
            self.past.told
        )
    }
}

/// Whether a node that comes up with `disk` can do nothing that contradicts this term and vote. A later term covers the votes of earlier ones.
fn covers(disk: Option<Record>, term: Term, vote: Option<NodeId>) -> bool {
    let disk = disk.unwrap_or_default();
    disk.term > term || (disk.term == term && vote.is_none_or(|candidate| disk.vote == Some(candidate)))
}
