//! All nodes and messages that a search has met, each kept once and known by number, and what each step makes of a node.
//!
//! In thousands of states of the group the same node is in the same state and gets the same message. What comes of it is
//! computed the first time and looked up from then on.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash};
use std::rc::Rc;

use incumbent_protocol::protocol::{Claim, Effect, Event, NodeId, Role, Term, Wire as _};

use super::node::{Node, Outlook, Rules, Stimulus, Turn};
use super::report::{Property, Step};
use super::scope::Disk;
use super::state::State;
use super::step::{Action, Deed, Envelope, Wish};
use crate::trace::Happening;

/// A hasher with a fixed key. The tables are never gone through, so their order is nowhere to be seen.
type Fixed = BuildHasherDefault<DefaultHasher>;

/// The nodes, the messages and the steps met so far.
pub(super) struct Group {
    rules: Rules,
    nodes: Collection<Node>,
    /// By number, as the nodes.
    outlooks: Vec<Outlook>,
    envelopes: Collection<Envelope>,
    outcomes: HashMap<(u32, Change), Rc<Outcome>, Fixed>,
}

/// What happens to a node, as a key.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum Change {
    Receive(u32),
    Do(Deed),
}

/// What a step makes of a node, with all that the search must know of it.
pub(super) struct Outcome {
    /// The node afterwards, by number; `None` if its machine stopped.
    pub(super) next: Option<u32>,
    /// The messages it sent, by number.
    pub(super) sent: Vec<u32>,
    /// The terms for which it went into office.
    pub(super) elected: Vec<Term>,
    /// Whom it began to follow.
    pub(super) followed: Vec<(NodeId, Term)>,
    /// The term for which it asked for votes.
    pub(super) stood: Option<Term>,
    /// Whether it came up again with a vote on its disk.
    pub(super) remembered: bool,
    /// What it broke by itself.
    pub(super) breaches: Vec<(Property, String)>,
}

impl Group {
    pub(super) fn new(rules: Rules) -> Group {
        Group {
            rules,
            nodes: Collection::default(),
            outlooks: Vec::new(),
            envelopes: Collection::default(),
            outcomes: HashMap::default(),
        }
    }

    /// The state from which everything begins: all nodes up, with empty disks.
    pub(super) fn start(&mut self) -> State {
        let fresh = self.fresh();
        let nodes = fresh.into_iter().map(|node| self.number(node)).collect();
        State { nodes, ..State::default() }
    }

    /// The nodes as they begin.
    pub(super) fn fresh(&self) -> Vec<Node> {
        self.members().iter().map(|id| Node::fresh(*id, &self.rules)).collect()
    }

    pub(super) fn members(&self) -> &[NodeId] {
        self.rules.settings.members()
    }

    pub(super) fn node(&self, number: u32) -> &Node {
        &self.nodes.items[number as usize]
    }

    pub(super) fn node_count(&self) -> usize {
        self.nodes.items.len()
    }

    pub(super) fn envelope_count(&self) -> usize {
        self.envelopes.items.len()
    }

    /// The votes that make a leader.
    pub(super) fn votes_needed(&self) -> usize {
        self.rules.settings.quorum().unwrap_or(self.rules.settings.majority())
    }

    /// All that may happen next.
    pub(super) fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (number, rank) in state.nodes.iter().zip(0u8..) {
            self.deeds(state, rank, &self.outlooks[*number as usize], |deed| actions.push(Action::Do(rank, deed)));
        }
        let left = state.left;
        let mut last = None;
        for &envelope in &state.flying {
            // Of two equal messages it makes no difference which one arrives.
            if last.replace(envelope) == Some(envelope) {
                continue;
            }
            if left.losses > 0 {
                actions.push(Action::Lose(envelope));
            }
            if self.outlooks[state.nodes[self.receiver(envelope)] as usize].view.is_some() {
                actions.push(Action::Deliver(envelope));
                if left.repeats > 0 {
                    actions.push(Action::Repeat(envelope));
                }
            }
        }
    }

    /// What happens next where nothing goes wrong: disks first, then messages, then whoever is due, and only then does time pass, for the
    /// greatest id, whom all protocols but Raft want.
    pub(super) fn calm_step(&self, state: &State) -> Option<Action> {
        let first = |deed: Deed, is_next: fn(&Outlook) -> bool| {
            let rank = state.nodes.iter().rposition(|number| is_next(&self.outlooks[*number as usize]))?;
            Some(Action::Do(rank as u8, deed))
        };
        first(Deed::Sync, |it| it.writing > 0)
            .or(state.flying.first().map(|envelope| Action::Deliver(*envelope)))
            .or(first(Deed::Wake, |it| it.due == Some(true)))
            .or(first(Deed::Due, |it| it.due == Some(false)))
    }

    fn deeds(&self, state: &State, rank: u8, outlook: &Outlook, mut may: impl FnMut(Deed)) {
        let left = state.left;
        let Some(view) = outlook.view else { return may(Deed::Start) };
        match outlook.due {
            Some(true) => may(Deed::Wake),
            Some(false) if left.wakes > 0 => may(Deed::Due),
            Some(false) | None => {}
        }
        if outlook.writing > 0 {
            may(Deed::Sync);
        }
        if left.crashes > 0 {
            let kept_max = match self.rules.disk {
                Disk::Honest | Disk::Hasty => outlook.writing,
                Disk::Forgets => 0,
            };
            (0..=kept_max).for_each(|kept| may(Deed::Crash { kept }));
        }
        if left.requests > 0 {
            let others = || (0u8..).zip(&state.nodes).filter(|(other, _)| *other != rank);
            match view.role {
                Role::Leader => {
                    may(Deed::Ask(Wish::Resign));
                    others().for_each(|(other, _)| may(Deed::Ask(Wish::HandOver(other))));
                }
                Role::Follower | Role::Candidate => may(Deed::Ask(Wish::Campaign)),
            }
            for (other, number) in others() {
                if view.leader == Some(self.members()[usize::from(other)]) {
                    may(Deed::Ask(Wish::Suspect(other)));
                }
                // Only what is true can be proved.
                if self.outlooks[*number as usize].view.is_none() {
                    may(Deed::Ask(Wish::Dead(other)));
                }
            }
        }
    }

    /// To whom `action` happens, by rank, and what comes of it; `None` if it happens to no node.
    pub(super) fn outcome(&mut self, state: &State, action: Action) -> Option<(usize, Rc<Outcome>)> {
        let (rank, change) = match action {
            Action::Deliver(envelope) | Action::Repeat(envelope) => (self.receiver(envelope), Change::Receive(envelope)),
            Action::Do(rank, deed) => (usize::from(rank), Change::Do(deed)),
            Action::Lose(_) => return None,
        };
        let number = state.nodes[rank];
        if let Some(known) = self.outcomes.get(&(number, change)) {
            return Some((rank, Rc::clone(known)));
        }
        let turn = match change {
            Change::Receive(envelope) => {
                self.node(number).turn(&self.rules, Stimulus::Receive(&self.envelopes.items[envelope as usize]))
            }
            Change::Do(deed) => self.node(number).turn(&self.rules, Stimulus::Do(deed)),
        };
        let outcome = Rc::new(self.summed_up(number, change, turn));
        self.outcomes.insert((number, change), Rc::clone(&outcome));
        Some((rank, outcome))
    }

    fn summed_up(&mut self, number: u32, change: Change, turn: Turn) -> Outcome {
        let from = self.node(number).id();
        let came_up = change == Change::Do(Deed::Start);
        let mut outcome = Outcome {
            next: None,
            sent: Vec::new(),
            elected: Vec::new(),
            followed: Vec::new(),
            stood: None,
            remembered: came_up && self.node(number).disk().is_some_and(|it| it.vote.is_some()),
            breaches: turn.breaches,
        };
        for effect in turn.effects {
            match effect {
                Effect::Send { to, message } => {
                    if let Claim::Vote { term, candidate } = message.claim(from, to)
                        && candidate == from
                    {
                        outcome.stood = Some(term);
                    }
                    outcome.sent.push(self.envelopes.number(Envelope { from, to, message }));
                }
                Effect::Persist { .. } => {}
                Effect::Emit(Event::Elected { term }) => outcome.elected.push(term),
                Effect::Emit(Event::Follows { leader, term }) => outcome.followed.push((leader, term)),
                Effect::Emit(
                    Event::Lost { .. }
                    | Event::LeaderGone { .. }
                    | Event::Contends { .. }
                    | Event::Rejected { .. }
                    | Event::Asked { .. }
                    | Event::Ignored { .. },
                ) => {}
            }
        }
        outcome.next = turn.node.map(|node| self.number(node));
        outcome
    }

    /// Whether two nodes contend, each in the hope of the same term.
    pub(super) fn two_contend(&self, state: &State) -> bool {
        let contends_in = |number: u32| {
            let view = self.outlooks[number as usize].view?;
            (view.role == Role::Candidate).then_some(view.term)
        };
        let contending = state.nodes.iter().enumerate().filter_map(|(rank, number)| Some((rank, contends_in(*number)?)));
        contending.clone().any(|(rank, term)| contending.clone().any(|(other, its)| other > rank && its == term))
    }

    /// Lets `action` happen to `nodes`, and tells what came of it.
    pub(super) fn tell(&self, nodes: &mut [Node], action: Action) -> Step {
        let envelope = |number: u32| &self.envelopes.items[number as usize];
        let (rank, said, stimulus) = match action {
            Action::Lose(number) => return Step { action: format!("{} lost", sent(envelope(number))), effects: Vec::new() },
            Action::Deliver(number) => {
                (self.receiver(number), format!("{} delivered", sent(envelope(number))), Stimulus::Receive(envelope(number)))
            }
            Action::Repeat(number) => {
                let said = format!("{} delivered, and once more later", sent(envelope(number)));
                (self.receiver(number), said, Stimulus::Receive(envelope(number)))
            }
            Action::Do(rank, deed) => {
                let rank = usize::from(rank);
                (rank, self.deed_in_words(&nodes[rank], deed), Stimulus::Do(deed))
            }
        };
        let node = nodes[rank].id();
        let turn = nodes[rank].turn(&self.rules, stimulus);
        let effects = turn.effects.into_iter().map(|effect| match effect {
            Effect::Send { to, message } => Happening::Sent { from: node, to, message }.to_string(),
            Effect::Persist { record, .. } => Happening::Writing { node, record }.to_string(),
            Effect::Emit(event) => Happening::Told { node, event }.to_string(),
        });
        let step = Step { action: said, effects: effects.collect() };
        if let Some(node) = turn.node {
            nodes[rank] = node;
        }
        step
    }

    fn deed_in_words(&self, of: &Node, deed: Deed) -> String {
        let node = of.id();
        match deed {
            Deed::Due => format!("the clock of {node} comes to {}", of.deadline()),
            Deed::Wake => format!("{node} wakes"),
            Deed::Sync => match of.writing().first() {
                Some((_, record)) => Happening::Written { node, record: *record }.to_string(),
                None => format!("{node} has nothing to write"),
            },
            Deed::Crash { kept } => match (self.rules.disk, of.writing().len()) {
                (Disk::Forgets, _) => format!("{node} crashes, and its disk is empty"),
                (Disk::Honest | Disk::Hasty, 0) => format!("{node} crashes"),
                (Disk::Honest | Disk::Hasty, writing) => format!("{node} crashes, with {kept} of {writing} writes done"),
            },
            Deed::Start => Happening::Started { node, disk: of.disk() }.to_string(),
            Deed::Ask(wish) => Happening::Requested { node, request: wish.request(self.members()) }.to_string(),
        }
    }

    fn receiver(&self, envelope: u32) -> usize {
        let to = self.envelopes.items[envelope as usize].to;
        self.rules.settings.rank(to).expect("machines write to members only")
    }

    fn number(&mut self, node: Node) -> u32 {
        let outlook = node.outlook();
        let number = self.nodes.number(node);
        if number as usize == self.outlooks.len() {
            self.outlooks.push(outlook);
        }
        number
    }
}

fn sent(Envelope { from, to, message }: &Envelope) -> Happening {
    Happening::Sent { from: *from, to: *to, message: message.clone() }
}

/// Things that are kept once each, in the order in which they were met.
struct Collection<T> {
    items: Vec<Rc<T>>,
    numbers: HashMap<Rc<T>, u32, Fixed>,
}

impl<T> Default for Collection<T> {
    fn default() -> Self {
        Collection { items: Vec::new(), numbers: HashMap::default() }
    }
}

impl<T: Eq + Hash> Collection<T> {
    fn number(&mut self, item: T) -> u32 {
        if let Some(number) = self.numbers.get(&item) {
            return *number;
        }
        let number = u32::try_from(self.items.len()).expect("memory ends before the numbers do");
        let item = Rc::new(item);
        self.items.push(Rc::clone(&item));
        self.numbers.insert(item, number);
        number
    }
}
