//! How what happened reads in a trace: one line for each change of a node, and for each message if they are wanted.
//!
//! What several nodes do at one moment, or one node says to several, is one line. A candidate that was refused is told
//! together with who refused it and why: the machine's own event only says that it was.

use std::ops::Range;

use incumbent_protocol::bully::BullyMessage;
use incumbent_protocol::circuit::RingMessage;
use incumbent_protocol::machine::Message;
use incumbent_protocol::office::{Answer, OfficeMessage, Round};
use incumbent_protocol::protocol::{Event, NodeId, Record, Role, Term, Wire};

use super::Messages;
use crate::observation::Moment;
use crate::trace::{Entry, Happening};

/// A line of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// When, in true time.
    pub at: Moment,
    /// The line, without its time.
    pub text: String,
    /// The entries that it tells, by index. The first says what kind of thing happened.
    pub entries: Vec<usize>,
}

impl Told {
    /// The line: `t=0.171 1 leads term=1`.
    pub fn line(&self) -> String {
        format!("t={} {}", self.at, self.text)
    }
}

/// Tells the entries in `range`. Those before it are looked at for reasons.
pub fn tell(entries: &[Entry], range: Range<usize>, messages: Messages) -> Vec<Told> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for index in range {
        if !is_told(entries, index, messages) {
            continue;
        }
        match groups.last_mut() {
            Some(group) if belongs(entries, group, &entries[index]) => group.push(index),
            Some(_) | None => groups.push(vec![index]),
        }
    }
    groups.into_iter().map(|group| Told { at: entries[group[0]].at, text: words(entries, &group), entries: group }).collect()
}

/// What a message says about the office, if it does.
pub fn office_of(message: &Message) -> Option<&OfficeMessage> {
    match message {
        Message::Raft(message) | Message::Bully(BullyMessage::Office(message)) | Message::Ring(RingMessage::Office(message)) => {
            Some(message)
        }
        Message::Bully(
            BullyMessage::Election { .. }
            | BullyMessage::Alive { .. }
            | BullyMessage::Coordinator { .. }
            | BullyMessage::Demand { .. },
        )
        | Message::Ring(RingMessage::Hop { .. } | RingMessage::HopAck { .. } | RingMessage::Joined { .. }) => None,
    }
}

/// Whether a message is sent over and over while nothing happens, or answers one that is.
pub fn is_routine(message: &Message) -> bool {
    let acknowledges_hop = matches!(message, Message::Ring(RingMessage::HopAck { .. }));
    acknowledges_hop || matches!(office_of(message), Some(OfficeMessage::Heartbeat { .. } | OfficeMessage::Ack { .. }))
}

fn is_told(entries: &[Entry], index: usize, messages: Messages) -> bool {
    let wanted = |message: &Message| match messages {
        Messages::Off => false,
        Messages::On => !is_routine(message),
        Messages::All => true,
    };
    match &entries[index].what {
        Happening::Told { .. } | Happening::Started { .. } => true,
        // One that is lost in the sending is told once, by its loss.
        Happening::Sent { message, .. } => wanted(message) && !is_lost_at_once(entries, index),
        Happening::Dropped { message, .. } => wanted(message),
        Happening::Received { .. }
        | Happening::Requested { .. }
        | Happening::Changed { .. }
        | Happening::Done(_)
        | Happening::Crashed { .. }
        | Happening::Writing { .. }
        | Happening::Written { .. } => false,
    }
}

fn is_lost_at_once(entries: &[Entry], index: usize) -> bool {
    let Happening::Sent { from, to, .. } = &entries[index].what else { return false };
    let at = entries[index].at;
    entries.get(index + 1).is_some_and(|next| {
        matches!(&next.what, Happening::Dropped { from: f, to: t, sent, .. } if (f, t, *sent) == (from, to, at)) && next.at == at
    })
}

/// Whether `next` can be told in one line with the entries of `group`.
fn belongs(entries: &[Entry], group: &[usize], next: &Entry) -> bool {
    let first = &entries[group[0]];
    if first.at != next.at {
        return false;
    }
    match (&first.what, &next.what) {
        (Happening::Told { event: a, .. }, Happening::Told { event: b, .. }) => {
            a == b && matches!(a, Event::Follows { .. } | Event::LeaderGone { .. })
        }
        (Happening::Sent { message: m, .. }, Happening::Sent { message: n, .. }) => m == n && shares_an_end(entries, group, next),
        (Happening::Dropped { message: m, why: x, sent: s, .. }, Happening::Dropped { message: n, why: y, sent: t, .. }) => {
            m == n && x == y && s == t && shares_an_end(entries, group, next)
        }
        (_, _) => false,
    }
}

/// Whether all messages of `group` and `next` have one sender, or all have one receiver.
fn shares_an_end(entries: &[Entry], group: &[usize], next: &Entry) -> bool {
    let same = |end: fn(&Happening) -> Option<NodeId>| group.iter().all(|index| end(&entries[*index].what) == end(&next.what));
    same(sender) || same(receiver)
}

fn words(entries: &[Entry], group: &[usize]) -> String {
    let list = |of: fn(&Happening) -> Option<NodeId>| {
        let mut ids: Vec<String> = group.iter().filter_map(|index| of(&entries[*index].what)).map(|id| id.to_string()).collect();
        ids.dedup();
        ids.join(" ")
    };
    let first = group[0];
    match &entries[first].what {
        Happening::Sent { message, .. } => format!("{} -> {} {message}", list(sender), list(receiver)),
        Happening::Dropped { message, why, .. } => format!("{} x> {} {message} ({why})", list(sender), list(receiver)),
        Happening::Told { event: Event::Follows { leader, term }, .. } if group.len() > 1 => {
            format!("{} follow {leader} term={term}", list(teller))
        }
        Happening::Told { event: Event::LeaderGone { leader, term, cause }, .. } if group.len() > 1 => {
            format!("{} give up on {leader} term={term}: {cause}", list(teller))
        }
        Happening::Told { node, event: Event::Rejected { term } } => rejected(entries, first, *node, *term),
        other @ (Happening::Told { .. }
        | Happening::Started { .. }
        | Happening::Received { .. }
        | Happening::Requested { .. }
        | Happening::Changed { .. }
        | Happening::Done(_)
        | Happening::Crashed { .. }
        | Happening::Writing { .. }
        | Happening::Written { .. }) => other.to_string(),
    }
}

fn sender(what: &Happening) -> Option<NodeId> {
    if let Happening::Sent { from, .. } | Happening::Dropped { from, .. } = what { Some(*from) } else { None }
}

fn receiver(what: &Happening) -> Option<NodeId> {
    if let Happening::Sent { to, .. } | Happening::Dropped { to, .. } = what { Some(*to) } else { None }
}

fn teller(what: &Happening) -> Option<NodeId> {
    if let Happening::Told { node, .. } = what { Some(*node) } else { None }
}

/// Why a voter refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Refusal {
    InOffice,
    HearsLeader,
    Bound,
    Stands,
    Taken,
    Stale,
}

impl Refusal {
    /// Behind the name of one voter, and behind the names of several.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Refusal::InOffice => ("is in office", "are in office"),
            Refusal::HearsLeader => ("hears the leader", "hear the leader"),
            Refusal::Bound => ("is bound by a promise", "are bound by a promise"),
            Refusal::Stands => ("stands itself", "stand themselves"),
            Refusal::Taken => ("voted for another", "voted for another"),
            Refusal::Stale => ("knows a later term", "know a later term"),
        }
    }
}

/// The line about a candidate that was refused.
fn rejected(entries: &[Entry], index: usize, node: NodeId, term: Term) -> String {
    let begun = entries[..index]
        .iter()
        .rposition(|entry| matches!(entry.what, Happening::Told { node: it, event: Event::Contends { .. } } if it == node))
        .unwrap_or(0);
    let mut earnest = false;
    let mut refusals: Vec<(NodeId, Refusal)> = Vec::new();
    for (at, entry) in entries.iter().enumerate().take(index).skip(begun) {
        // Who stands in earnest first writes that it has voted for itself.
        earnest |= matches!(&entry.what, Happening::Writing { node: it, record } if *it == node && record.vote == Some(node));
        if let Happening::Received { from, to, message, .. } = &entry.what
            && *to == node
            && let Some(refusal) = refusal(&entries[..at], *from, message)
        {
            refusals.retain(|(voter, _)| voter != from);
            refusals.push((*from, refusal));
        }
    }
    if let Some(greater) = gave_way(entries, index, node) {
        return format!("{node} gives way to {greater} in the pre-vote for term={term}");
    }
    let round = if earnest { "" } else { " in the pre-vote" };
    format!("{node} rejected term={term}{round}: {}", reasons(&refusals).unwrap_or_else(|| cause(entries, index, node, term)))
}

/// Whose question made `node` give up its own at `index`, if it was that.
fn gave_way(entries: &[Entry], index: usize, node: NodeId) -> Option<NodeId> {
    match last_heard(entries, index, node) {
        Some((from, message)) => match office_of(message) {
            Some(OfficeMessage::VoteRequest { round: Round::Pre, .. }) => Some(from),
            Some(_) | None => None,
        },
        None => None,
    }
}

/// What `node` received last, if it was at the moment of `index`.
fn last_heard(entries: &[Entry], index: usize, node: NodeId) -> Option<(NodeId, &Message)> {
    let now = entries[index].at;
    entries[..index].iter().rev().take_while(|entry| entry.at == now).find_map(|entry| {
        let Happening::Received { from, to, message, .. } = &entry.what else { return None };
        (*to == node).then_some((*from, message))
    })
}

/// Why `from` refused, if `message` is a refusal. `before`: what happened until then.
fn refusal(before: &[Entry], from: NodeId, message: &Message) -> Option<Refusal> {
    let Some(OfficeMessage::Vote { answer, round, .. }) = office_of(message) else { return None };
    match answer {
        Answer::Granted => None,
        Answer::Taken => Some(match round {
            Round::Pre => Refusal::Stands,
            Round::Real => Refusal::Taken,
        }),
        Answer::Stale => Some(Refusal::Stale),
        Answer::Loyal => {
            let view_of =
                |entry: &Entry| if let Happening::Changed { node, view } = &entry.what { Some((*node, *view)) } else { None };
            let last = before.iter().rev().filter_map(view_of).find(|(node, _)| *node == from);
            Some(match last.map(|(_, view)| view) {
                Some(view) if view.role == Role::Leader => Refusal::InOffice,
                Some(_) | None => Refusal::HearsLeader,
            })
        }
        Answer::Bound => Some(Refusal::Bound),
    }
}

/// `1 2 hear the leader, 4 voted for another`
fn reasons(refusals: &[(NodeId, Refusal)]) -> Option<String> {
    let kinds = [Refusal::InOffice, Refusal::HearsLeader, Refusal::Bound, Refusal::Stands, Refusal::Taken, Refusal::Stale];
    let mut parts = Vec::new();
    for kind in kinds {
        let mut voters: Vec<NodeId> = refusals.iter().filter(|(_, it)| *it == kind).map(|(voter, _)| *voter).collect();
        voters.sort_unstable();
        let (one, several) = kind.words();
        let names: Vec<String> = voters.iter().map(NodeId::to_string).collect();
        match voters.len() {
            0 => {}
            1 => parts.push(format!("{} {one}", names.join(" "))),
            _ => parts.push(format!("{} {several}", names.join(" "))),
        }
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Why a ballot ended that nobody refused.
fn cause(entries: &[Entry], index: usize, node: NodeId, term: Term) -> String {
    match last_heard(entries, index, node) {
        Some((_, message)) if matches!(office_of(message), Some(OfficeMessage::Vote { .. })) => {
            "the votes came when the voters were no longer bound".to_owned()
        }
        Some((from, message)) if message.term() >= term => format!("{from} speaks of term {}", message.term()),
        Some(_) | None if !has_written(entries, index, node, term) => "its own vote is not on disk yet".to_owned(),
        Some(_) | None => "too few answered in time".to_owned(),
    }
}

/// Whether what `node` began to write for `term`, if it did, was safe before `index`.
fn has_written(entries: &[Entry], index: usize, node: NodeId, term: Term) -> bool {
    let before = || entries[..index].iter().rev().map(|entry| &entry.what);
    let of_term = |who: &NodeId, record: &Record| *who == node && record.term == term;
    let began = before().any(|what| matches!(what, Happening::Writing { node, record } if of_term(node, record)));
    let ended = before().any(|what| matches!(what, Happening::Written { node, record } if of_term(node, record)));
    ended || !began
}
