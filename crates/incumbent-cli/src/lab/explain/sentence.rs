//! What a line of a trace means, in plain sentences: made of what happened, not written for one run.

use std::time::Duration;

use incumbent_lab::scenario::{Told, office_of};
use incumbent_lab::trace::{Entry, Happening, Undelivered};
use incumbent_lab::world::WorldSettings;
use incumbent_protocol::bully::BullyMessage;
use incumbent_protocol::circuit::{Lap, RingMessage};
use incumbent_protocol::machine::{Kind, Message};
use incumbent_protocol::office::{Answer, OfficeMessage, Round};
use incumbent_protocol::protocol::{Cause, Event, NodeId, Reason, Record, Term};
use incumbent_protocol::settings::{PreVote, Settings};

/// What happens, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sentence {
    pub(crate) what: String,
    /// What a reader needs to be told once only.
    pub(crate) why: String,
    /// Names the reason, so that it is not told twice.
    pub(crate) topic: &'static str,
}

fn sentence(topic: &'static str, what: impl Into<String>, why: impl Into<String>) -> Sentence {
    Sentence { what: what.into(), why: why.into(), topic }
}

/// Explains the lines of one run.
pub(crate) struct Teacher<'a> {
    pub(crate) world: &'a WorldSettings,
    pub(crate) entries: &'a [Entry],
}

impl Teacher<'_> {
    /// What a line means.
    pub(crate) fn sentence(&self, told: &Told) -> Sentence {
        let index = told.entries[0];
        let who = self.actors(told);
        match &self.entries[index].what {
            Happening::Told { event, .. } => self.event(index, event, &who),
            Happening::Sent { message, .. } => self.message(index, &who, &self.receivers(told), message),
            Happening::Dropped { why, .. } => dropped(*why, &self.receivers(told)),
            Happening::Started { node, disk } => started(*node, *disk),
            Happening::Received { .. }
            | Happening::Requested { .. }
            | Happening::Changed { .. }
            | Happening::Done(_)
            | Happening::Crashed { .. }
            | Happening::Writing { .. }
            | Happening::Written { .. } => sentence("nothing", "", ""),
        }
    }

    fn settings(&self) -> &Settings {
        &self.world.settings
    }

    /// Who does what the line tells, each once.
    fn actors(&self, told: &Told) -> Vec<NodeId> {
        let of = |index: &usize| {
            if let Happening::Told { node, .. } | Happening::Sent { from: node, .. } = &self.entries[*index].what {
                Some(*node)
            } else {
                None
            }
        };
        let mut who: Vec<NodeId> = told.entries.iter().filter_map(of).collect();
        who.dedup();
        who
    }

    fn receivers(&self, told: &Told) -> Vec<NodeId> {
        let of = |index: &usize| {
            if let Happening::Sent { to, .. } | Happening::Dropped { to, .. } = &self.entries[*index].what {
                Some(*to)
            } else {
                None
            }
        };
        let mut to: Vec<NodeId> = told.entries.iter().filter_map(of).collect();
        to.dedup();
        to
    }

    fn event(&self, index: usize, event: &Event, who: &[NodeId]) -> Sentence {
        let several = who.len() > 1;
        let nodes = nodes(who);
        match event {
            Event::Contends { term } => self.contends(who[0], *term),
            Event::Elected { term } => self.elected(index, who[0], *term),
            Event::Lost { reason, .. } => lost(who[0], reason),
            Event::Follows { leader, .. } => {
                let verb =
                    if several { "hear that {} is in office and follow it" } else { "hears that {} is in office and follows it" };
                let what = format!("{nodes} {}.", verb.replace("{}", &leader.to_string()));
                sentence("follows", what, "From now on its heartbeats are what counts: as long as they come, nobody contends.")
            }
            Event::LeaderGone { leader, cause, .. } => self.gone(&nodes, several, *leader, *cause),
            Event::Rejected { term } => {
                let why = format!(
                    "It takes {} of {} nodes, itself included. Who fails waits for a random time and tries again.",
                    self.needed(),
                    self.settings().members().len()
                );
                sentence("rejected", format!("{nodes} does not get term {term}."), why)
            }
            Event::Asked { to } => sentence(
                "asked",
                format!("{nodes} is in office and well, but {to} should lead."),
                "The leader's user is asked to end the work first; only then the office is given away.",
            ),
            Event::Ignored { from } => {
                sentence("ignored", format!("{nodes} cannot make sense of what {from} said, and ignores it."), "")
            }
        }
    }

    /// How many votes it takes.
    fn needed(&self) -> usize {
        self.settings().quorum().unwrap_or_else(|| self.settings().majority())
    }

    fn contends(&self, node: NodeId, term: Term) -> Sentence {
        let is_greatest = self.settings().members().last() == Some(&node);
        match self.world.kind {
            Kind::Bully if is_greatest => sentence(
                "contends greatest",
                format!("Node {node} wants to lead."),
                "It has the greatest id of all, so there is nobody to ask: it has won the contest already.",
            ),
            Kind::Bully => sentence(
                "contends",
                format!("Node {node} starts an election."),
                "It will ask every node with a greater id whether it is there.",
            ),
            Kind::Ring => sentence(
                "contends",
                format!("Node {node} starts an election: a list with its own id on it goes round the ring."),
                "",
            ),
            Kind::ChangRoberts => {
                sentence("contends", format!("Node {node} starts an election: its own id goes round the ring."), "")
            }
            Kind::Raft if self.settings().pre_vote() == PreVote::On => sentence(
                "contends pre-vote",
                format!("Node {node} wants to lead the term after {term}."),
                "Before it raises the term it asks the others whether they would vote for it (pre-vote): a node that cannot win should not disturb \
                 those who have a leader.",
            ),
            Kind::Raft => sentence(
                "contends",
                format!("Node {node} stands for office: it raises the term above {term}, votes for itself, and asks the others."),
                "",
            ),
        }
    }

    fn elected(&self, index: usize, node: NodeId, term: Term) -> Sentence {
        let what = format!("Node {node} is in office, in term {term}.");
        let pace = self.settings().pace();
        if self.settings().quorum().is_some() {
            let why = format!(
                "{} of {} nodes have voted for it, and vote for nobody else for {}. It holds itself to be in office for a little less ({}), and for longer \
                 only if a majority answers its heartbeats. The term is its token: no other leadership ever has the same.",
                self.needed(),
                self.settings().members().len(),
                millis(pace.patience_min),
                millis(pace.lease()),
            );
            return sentence("elected guarded", what, why);
        }
        if self.was_called(index, node) {
            return sentence("elected called", what, "The one before it has left office for it, so nobody needs to be asked.");
        }
        match self.world.kind {
            Kind::Raft => sentence(
                "elected",
                what,
                "A majority has voted for it, and nobody else can get one in that term: every node has one vote a term.",
            ),
            Kind::Bully | Kind::Ring | Kind::ChangRoberts => sentence(
                "elected",
                what,
                "Nobody had to agree: it won the contest, and without the quorum guard that is all. Its term was never used before and never will be \
                 again: it is the token by which this leadership can be told from every other.",
            ),
        }
    }

    /// Whether the leader before it has just told `node` to take over.
    fn was_called(&self, index: usize, node: NodeId) -> bool {
        self.at_this_moment(index).any(|what| {
            matches!(what, Happening::Received { to, message, .. }
                if *to == node && matches!(office_of(message), Some(OfficeMessage::TakeOver { .. })))
        })
    }

    /// What happened before `index`, at the same moment.
    fn at_this_moment(&self, index: usize) -> impl Iterator<Item = &Happening> {
        let at = self.entries[index].at;
        self.entries[..index].iter().rev().take_while(move |entry| entry.at == at).map(|entry| &entry.what)
    }

    fn gone(&self, nodes: &str, several: bool, leader: NodeId, cause: Cause) -> Sentence {
        let pace = self.settings().pace();
        let (has, takes, hears) = if several { ("have", "take", "hear") } else { ("has", "takes", "hears") };
        match cause {
            Cause::Silent => {
                let why = format!(
                    "Heartbeats come every {}; how long to wait for one is drawn anew each time, between {} and {}. The leader may also be slow, or the link \
                     broken: from silence alone nobody can tell.",
                    millis(pace.heartbeat),
                    millis(pace.patience_min),
                    millis(pace.patience_max),
                );
                sentence("silent", format!("{nodes} {has} heard nothing of {leader} for too long, and {takes} it for gone."), why)
            }
            Cause::Released => sentence(
                "released",
                format!("{nodes} {hears} from {leader} itself that it has left office."),
                "Nobody is bound to it any more.",
            ),
            Cause::Dead => {
                sentence("dead", format!("The process of {leader} is proven dead."), "What was promised to it is void, at once.")
            }
            Cause::Challenged => sentence(
                "challenged",
                format!("{nodes} {has} not heard {leader} just now either, and another node has called an election."),
                "So it counts on that leader no longer, and contends too.",
            ),
        }
    }

    fn message(&self, index: usize, from: &[NodeId], to: &[NodeId], message: &Message) -> Sentence {
        if let Some(office) = office_of(message) {
            return self.office(from, to, office);
        }
        match message {
            Message::Bully(message) => self.bully(from, to, message),
            Message::Ring(message) => self.ring(index, from[0], to, message),
            Message::Raft(_) => sentence("nothing", "", ""),
        }
    }

    fn bully(&self, from: &[NodeId], to: &[NodeId], message: &BullyMessage) -> Sentence {
        let sender = nodes(from);
        match message {
            BullyMessage::Election { .. } => {
                let why = format!("If none of them answers within {}, {sender} has won.", millis(self.settings().pace().reply));
                sentence("election", format!("{sender} asks the greater ids: is one of you there?"), why)
            }
            BullyMessage::Alive { .. } => sentence(
                "alive",
                format!("{sender} is there, and greater than {}.", list(to)),
                "So the smaller one need not go on: the greater takes it from here, \"bullies\" it out of the contest.",
            ),
            BullyMessage::Coordinator { .. } => {
                sentence("coordinator", format!("{sender} tells everyone that it leads."), "This is also its first heartbeat.")
            }
            BullyMessage::Demand { .. } => sentence(
                "demand",
                format!("{sender} hears a leader with a smaller id than its own, and demands the office."),
                "The leader serves its minimum tenure first, so that a node which comes and goes does not take the office with it each time.",
            ),
            BullyMessage::Office(_) => sentence("nothing", "", ""),
        }
    }

    fn ring(&self, index: usize, from: NodeId, to: &[NodeId], message: &RingMessage) -> Sentence {
        match message {
            RingMessage::Hop { lap, .. } => self.hop(index, from, to, lap),
            RingMessage::HopAck { .. } => sentence(
                "hop-ack",
                format!("Node {from} confirms the hop to {}.", list(to)),
                "A node that does not is asked once more, and then skipped.",
            ),
            RingMessage::Joined { .. } => {
                sentence("joined", format!("Node {from} is back, and says so: it need not be skipped any longer."), "")
            }
            RingMessage::Office(_) => sentence("nothing", "", ""),
        }
    }

    fn hop(&self, index: usize, from: NodeId, to: &[NodeId], lap: &Lap) -> Sentence {
        match self.last_try(index, from, lap) {
            Some(silent) if to == [silent] => sentence(
                "repeated",
                format!("Node {from} got no answer and sends it once more."),
                "If that is not answered either, the ring skips the silent node.",
            ),
            Some(silent) => {
                sentence("skipped", format!("Node {from} skips {silent}, and sends the lap to {} instead.", list(to)), "")
            }
            None => match lap {
                Lap::Election { ids, .. } => self.election_hop(index, from, ids),
                Lap::Coordinator { leader, initiator, .. } if *initiator == from => sentence(
                    "complete",
                    format!("The lap is complete, and {leader} is the greatest id. Node {from} sends that news round the ring."),
                    "The news alone makes nobody the leader: only the winner's own heartbeat does, so a winner that has died meanwhile is never followed.",
                ),
                Lap::Coordinator { leader, .. } => sentence("news", format!("Node {from} passes on that {leader} has won."), ""),
            },
        }
    }

    /// To whom `from` has sent this very lap before, last.
    fn last_try(&self, index: usize, from: NodeId, lap: &Lap) -> Option<NodeId> {
        let earlier = |entry: &Entry| {
            let Happening::Sent { from: it, to, message: Message::Ring(RingMessage::Hop { lap: sent, .. }) } = &entry.what else {
                return None;
            };
            (*it == from && sent == lap).then_some(*to)
        };
        self.entries[..index].iter().rev().find_map(earlier)
    }

    fn election_hop(&self, index: usize, from: NodeId, ids: &[NodeId]) -> Sentence {
        let greatest = ids.iter().max().copied().unwrap_or(from);
        let has_just_begun = self
            .at_this_moment(index)
            .any(|what| matches!(what, Happening::Told { node, event: Event::Contends { .. } } if *node == from));
        let collects = self.world.kind != Kind::ChangRoberts;
        if has_just_begun {
            sentence("lap begins", format!("The lap begins: node {from} sends its own id to the next node on the ring."), "")
        } else if collects && ids.last() == Some(&from) {
            sentence("adds", format!("Node {from} adds its id to the list and passes it on."), "")
        } else if collects {
            sentence("passes", format!("Node {from} passes the list on."), "")
        } else if greatest == from {
            sentence(
                "greater",
                format!("Node {from} is greater than the id that came, and sends its own on instead."),
                "The smaller id ends here: it cannot win.",
            )
        } else {
            sentence("passes", format!("{greatest} is greater than {from}, so node {from} passes it on as it is."), "")
        }
    }

    fn office(&self, from: &[NodeId], to: &[NodeId], message: &OfficeMessage) -> Sentence {
        let several = from.len() > 1;
        let (sender, receiver) = (nodes(from), list(to));
        let pace = self.settings().pace();
        match message {
            OfficeMessage::VoteRequest { round: Round::Pre, term, .. } => sentence(
                "pre-vote request",
                format!("{sender} asks: would you vote for me in term {term}?"),
                "The answer binds nobody, and no term is raised by the question.",
            ),
            OfficeMessage::VoteRequest { round: Round::Real, term, .. } => sentence(
                "vote request",
                format!("{sender} asks for the votes of term {term}."),
                "That it votes for itself it has written to its disk before.",
            ),
            OfficeMessage::Vote { answer: Answer::Granted, round: Round::Pre, .. } => sentence(
                "pre-vote",
                format!("{sender} would vote for {receiver}."),
                "Whoever hears a leader, or has promised its vote to another, says no.",
            ),
            OfficeMessage::Vote { answer: Answer::Granted, round: Round::Real, term, .. } => {
                let gives = if several { "give their votes" } else { "gives its vote" };
                let why = format!(
                    "A vote is on disk before it is said, so that no crash can make a node vote twice; and it is a promise to vote for nobody else for {}.",
                    millis(pace.patience_min)
                );
                sentence("vote", format!("{sender} {gives} of term {term} to {receiver}."), why)
            }
            OfficeMessage::Vote { answer: Answer::Loyal, .. } => {
                let why = format!("It is in office, or has heard the leader within the last {}.", millis(pace.patience_min));
                sentence("loyal", format!("{sender} {}: there is a leader.", if several { "refuse" } else { "refuses" }), why)
            }
            OfficeMessage::Vote { answer: Answer::Bound, .. } => {
                let why = format!(
                    "It has given its vote to another, or heard a leader, within the last {}.",
                    millis(pace.patience_min)
                );
                sentence("bound", format!("{sender} {}: bound to another.", if several { "refuse" } else { "refuses" }), why)
            }
            OfficeMessage::Vote { answer: Answer::Taken, round: Round::Pre, .. } => sentence(
                "stands itself",
                format!("{sender} asks the same question itself."),
                "Of two that ask at once the lesser gives way, so that they do not split the votes.",
            ),
            OfficeMessage::Vote { answer: Answer::Taken, round: Round::Real, .. } => sentence(
                "taken",
                format!("{sender} {}: this term's vote was given to another.", if several { "refuse" } else { "refuses" }),
                "Every node has one vote a term. So a term has at most one leader.",
            ),
            OfficeMessage::Vote { answer: Answer::Stale, .. } => {
                sentence("stale", format!("{sender} {} a later term, and says so.", if several { "know" } else { "knows" }), "")
            }
            OfficeMessage::Heartbeat { .. } => {
                sentence("heartbeat", format!("{sender} is still in office, and says so every {}.", millis(pace.heartbeat)), "")
            }
            OfficeMessage::Ack { .. } => sentence(
                "ack",
                format!("{sender} {} heard {receiver}.", if several { "have" } else { "has" }),
                "A majority of such answers extends the leader's lease, counted from the moment the heartbeat was sent.",
            ),
            OfficeMessage::Probe { .. } => {
                sentence("probe", format!("{sender} got a hint that {receiver} may be gone, and asks it."), "")
            }
            OfficeMessage::Released { .. } => {
                sentence("released", format!("{sender} tells {receiver} that the office is free, and its work has ended."), "")
            }
            OfficeMessage::TakeOver { .. } => sentence(
                "take-over",
                format!("{sender} has left office, its work has ended, and {receiver} shall lead next."),
                "",
            ),
            OfficeMessage::Declined { .. } => sentence(
                "declined",
                format!("{sender} was to lead next and {} not: {receiver} may.", if several { "do" } else { "does" }),
                "It votes and follows, but leaves the office to others.",
            ),
        }
    }
}

fn lost(node: NodeId, reason: &Reason) -> Sentence {
    match reason {
        Reason::QuorumLost => sentence(
            "lost quorum",
            format!("No majority has answered node {node} for the length of its lease, so it is out of office."),
            "Its voters are bound for a little longer than the lease lasts: nobody else can be elected before it has stopped.",
        ),
        Reason::Superseded { term } => sentence(
            "superseded",
            format!("Node {node} hears of term {term}, which is later than its own, and is out of office."),
            "A later term means that somebody else leads, or that votes were given since.",
        ),
        Reason::HandedOver { to } => sentence(
            "handed over",
            format!("Node {node} has ended its work and gives the office to {to}."),
            "It leaves before the other can enter.",
        ),
        Reason::Resigned => sentence("resigned", format!("Node {node} has ended its work and gives the office back."), ""),
    }
}

fn dropped(why: Undelivered, to: &[NodeId]) -> Sentence {
    match why {
        Undelivered::Cut => sentence("cut", "The link is cut: the message is lost.", "Nobody is told."),
        Undelivered::Lost => sentence("lost", "The network loses the message.", "Nobody is told."),
        Undelivered::Down => {
            let are = if to.len() > 1 { "are" } else { "is" };
            sentence(
                "down",
                format!("{} {are} down: no answer will come.", nodes(to)),
                "The sender learns it only from the silence that follows.",
            )
        }
        Undelivered::Full => sentence("full", "Too much is waiting at the receiver already: the message is lost.", ""),
    }
}

fn started(node: NodeId, disk: Option<Record>) -> Sentence {
    match disk {
        Some(record) => {
            let vote = record.vote.map_or_else(|| "no vote in it".to_owned(), |vote| format!("its vote for {vote}"));
            let what = format!("Node {node} comes up again with what is on its disk: term {} and {vote}.", record.term);
            sentence("started", what, "All else it has forgotten.")
        }
        None => {
            sentence("started empty", format!("Node {node} comes up with an empty disk."), "It has promised nothing to anybody.")
        }
    }
}

/// `Node 1`, `Nodes 1 and 2`, `Nodes 1, 2 and 3`
fn nodes(ids: &[NodeId]) -> String {
    format!("{} {}", if ids.len() > 1 { "Nodes" } else { "Node" }, list(ids))
}

fn list(ids: &[NodeId]) -> String {
    let names: Vec<String> = ids.iter().map(NodeId::to_string).collect();
    match names.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        Some(_) | None => names.concat(),
    }
}

/// Whole milliseconds where they are whole.
fn millis(span: Duration) -> String {
    let micros = span.as_micros();
    if micros.is_multiple_of(1_000) { format!("{} ms", micros / 1_000) } else { format!("{:.1} ms", micros as f64 / 1_000.0) }
}
