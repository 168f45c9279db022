//! Where the members are: a part of the replicated state, so that a node which is started again finds those that were added while it lived, whatever its command line says.
//!
//! Each member has a record under a key that clients cannot write. A node writes its own when it is started and something in it differs; an operator's `add` writes that of a newcomer, and of a
//! member that has moved and cannot say so itself; `remove` takes it away.
//!
//! **What wins.** Who is a member is the replica's to say, never the command line's, except on a node that knows of no cluster yet. Of where a member is, the record wins, then what the node was
//! told by its user, then its command line. But a record may be old (all nodes may have moved at once, and then none can say so): while there is no line to a member, its places are tried in turn.
//! Nothing is risked by that: who answers must be that node of that cluster, with the directory that it had.

use std::collections::BTreeMap;

use incumbent_peer::switchboard::{LineState, LineView, Peer};
use incumbent_protocol::protocol::NodeId;
use incumbent_store::command::Command;
use incumbent_store::event::Event;
use incumbent_store::keys::item::Span;
use incumbent_store::keys::transaction::{Delete, Put};
use incumbent_store::query::{Answer, Query, Range};
use incumbent_store::store::Store;
use prost::Message;

use crate::replica::Roll;

/// Keys that begin so are the service's own: clients may read and not write them.
pub const RESERVED: &[u8] = b"\0incumbent/";
const MEMBERS: &str = "\0incumbent/members/";

/// Whether keys of the service's own are among these.
pub fn is_reserved(span: &Span) -> bool {
    let reserved = Span::prefix(RESERVED);
    reserved.contains(&span.start) || (span.contains(RESERVED) && !span.is_empty())
}

/// Where a member is, as it is kept.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Member {
    /// Where the other members reach it.
    #[prost(string, tag = "1")]
    pub peer: String,
    /// Where clients reach it; empty if they do not.
    #[prost(string, tag = "2")]
    pub client: String,
    /// What it ran when it was last started.
    #[prost(string, tag = "3")]
    pub release: String,
    /// While it is a learner: it shall vote once it knows enough.
    #[prost(bool, tag = "4")]
    pub shall_vote: bool,
}

/// The members that have a record.
pub type Members = BTreeMap<NodeId, Member>;

fn key(node: NodeId) -> String {
    format!("{MEMBERS}{}", node.0)
}

/// Nodes, as people list them.
pub(super) fn listed<'a>(nodes: impl IntoIterator<Item = &'a NodeId>) -> String {
    let names: Vec<String> = nodes.into_iter().map(ToString::to_string).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(",") }
}

/// Puts it on record where a member is.
pub(super) fn record(node: NodeId, member: &Member) -> Command {
    Command::Put(Put { key: key(node).into(), value: member.encode_to_vec().into(), ..Put::default() })
}

/// Takes its record away.
pub(super) fn erase(node: NodeId) -> Command {
    Command::Delete(Delete { span: Some(Span::key(key(node))), wants_previous: false })
}

/// Takes all records away: they are of another cluster.
pub(super) fn erase_all() -> Command {
    Command::Delete(Delete { span: Some(Span::prefix(RESERVED)), wants_previous: false })
}

/// Whether these events are about where members are.
pub(super) fn are_told<'a>(mut events: impl Iterator<Item = &'a Event>) -> bool {
    events.any(|it| it.key().is_some_and(|key| key.starts_with(MEMBERS.as_bytes())))
}

/// All records. What is none of ours is left out.
pub(super) fn recorded(store: &Store) -> Members {
    let all = Range { span: Some(Span::prefix(MEMBERS)), ..Range::default() };
    let Ok(Answer::Items(items)) = store.query(&Query::Range(all)) else { return Members::new() };
    let member = |key: &[u8], value: &[u8]| {
        let node = std::str::from_utf8(key.strip_prefix(MEMBERS.as_bytes())?).ok()?.parse().ok()?;
        Some((NodeId(node), Member::decode(value).ok()?))
    };
    items.items.iter().filter_map(|it| member(&it.key, &it.value)).collect()
}

/// All that a node knows of where the others are.
#[derive(Debug)]
pub(super) struct Book {
    me: NodeId,
    /// By its command line.
    told: BTreeMap<NodeId, String>,
    /// By its user, meanwhile: these are spoken with, members or not.
    named: BTreeMap<NodeId, String>,
    pub(super) recorded: Members,
    /// Counts how often places were changed because nobody was found there.
    turn: usize,
}

impl Book {
    pub(super) fn new(me: NodeId, told: &[Peer], store: &Store) -> Book {
        Book { me, told: by_node(told), named: BTreeMap::new(), recorded: recorded(store), turn: 0 }
    }

    pub(super) fn name(&mut self, peers: &[Peer]) {
        self.named = by_node(peers);
    }

    /// Whom to speak with, and where. A line that stands is left where it is.
    pub(super) fn peers(&self, roll: &Roll, lines: &[LineView]) -> Vec<Peer> {
        let mut nodes = roll.everyone();
        nodes.extend(self.recorded.keys());
        nodes.extend(self.named.keys());
        if roll.voters().is_empty() {
            nodes.extend(self.told.keys());
        }
        nodes.remove(&self.me);
        let place = |id: NodeId| {
            let up = lines.iter().find(|it| it.peer == id && it.state == LineState::Up).map(|it| it.address.clone());
            let places = self.places(id);
            let next = || places.get(self.turn % places.len().max(1)).map(|it| (*it).to_owned());
            Some(Peer { id, address: up.or_else(next)? })
        };
        nodes.into_iter().filter_map(place).collect()
    }

    /// Where a member may be, most likely first.
    pub(super) fn places(&self, node: NodeId) -> Vec<&str> {
        let recorded = self.recorded.get(&node).map(|it| it.peer.as_str()).filter(|it| !it.is_empty());
        let mut places: Vec<&str> = Vec::new();
        for place in [recorded, self.named.get(&node).map(String::as_str), self.told.get(&node).map(String::as_str)] {
            places.extend(place.filter(|it| !places.contains(it)));
        }
        places
    }

    /// Everywhere where somebody may be, but for this node.
    pub(super) fn everywhere(&self) -> Vec<String> {
        let nodes = self.recorded.keys().chain(self.named.keys()).chain(self.told.keys()).filter(|it| **it != self.me);
        let mut places: Vec<String> = nodes.flat_map(|it| self.places(*it)).map(str::to_owned).collect();
        places.sort();
        places.dedup();
        places
    }

    /// Looks for those who are not found in another place, if there is one. Whether there is.
    pub(super) fn look_elsewhere(&mut self, lines: &[LineView]) -> bool {
        let lost = lines.iter().any(|it| it.state != LineState::Up && self.places(it.peer).len() > 1);
        self.turn += usize::from(lost);
        lost
    }
}

fn by_node(peers: &[Peer]) -> BTreeMap<NodeId, String> {
    peers.iter().map(|it| (it.id, it.address.clone())).collect()
}

#[cfg(test)]
mod tests {
    use incumbent_store::command::Request;
    use incumbent_store::time::{Stamp, Time};

    use super::*;

    fn apply(store: &mut Store, command: Command) {
        store.apply(Stamp::at(Time::ZERO), Request::of(command), &mut Vec::new()).expect("done");
    }

    fn line(peer: u32, address: &str, state: LineState) -> LineView {
        LineView {
            peer: NodeId(peer),
            address: address.to_owned(),
            state,
            round_trip: None,
            via: None,
            sent: Default::default(),
            received: Default::default(),
            relayed: 0,
            dropped: 0,
            trouble: None,
        }
    }

    fn told(peer: u32, address: &str) -> Peer {
        Peer { id: NodeId(peer), address: address.to_owned() }
    }

    fn at(peer: &str) -> Member {
        Member { peer: peer.to_owned(), ..Member::default() }
    }

    #[test]
    fn records_come_and_go_with_the_store() {
        let mut store = Store::new(0);
        apply(&mut store, record(NodeId(3), &at("c:1")));
        apply(&mut store, record(NodeId(10), &at("d:1")));
        apply(&mut store, Command::Put(Put { key: format!("{MEMBERS}nobody").into(), ..Put::default() }));
        assert_eq!(recorded(&store), Members::from([(NodeId(3), at("c:1")), (NodeId(10), at("d:1"))]));
        apply(&mut store, erase(NodeId(3)));
        assert_eq!(recorded(&store).len(), 1);
        apply(&mut store, erase_all());
        assert!(recorded(&store).is_empty());
    }

    /// It is in the stores of clusters that are there.
    #[test]
    fn a_record_is_what_it_was() {
        let (peer, client, release) = ("p".to_owned(), "c".to_owned(), "r".to_owned());
        let Command::Put(put) = record(NodeId(12), &Member { peer, client, release, shall_vote: true }) else { panic!("no put") };
        assert_eq!(put.key, "\0incumbent/members/12");
        assert_eq!(put.value, &b"\x0a\x01p\x12\x01c\x1a\x01r\x20\x01"[..]);
    }

    #[test]
    fn a_record_wins_over_a_command_line_and_neither_makes_a_member() {
        let mut store = Store::new(0);
        let command_line = [told(2, "b:old"), told(3, "c:1"), told(9, "gone:1")];
        let roll = Roll::of([NodeId(1), NodeId(2), NodeId(3)]).expect("voters");
        apply(&mut store, record(NodeId(2), &at("b:new")));
        apply(&mut store, record(NodeId(4), &at("d:1")));
        let mut book = Book::new(NodeId(1), &command_line, &store);
        assert_eq!(book.peers(&roll, &[]), [told(2, "b:new"), told(3, "c:1"), told(4, "d:1")]);
        // The record may be old: then the other place is tried, unless a line stands.
        assert!(book.look_elsewhere(&[line(2, "b:new", LineState::Down)]));
        assert_eq!(book.peers(&roll, &[])[0], told(2, "b:old"));
        assert_eq!(book.peers(&roll, &[line(2, "b:new", LineState::Up)])[0], told(2, "b:new"));
        assert!(!book.look_elsewhere(&[line(3, "c:1", LineState::Down)]), "there is no other place");
        assert_eq!(Book::new(NodeId(1), &command_line, &Store::new(0)).peers(&Roll::empty(), &[]), command_line);
        book.name(&[told(7, "e:1")]);
        assert!(book.peers(&roll, &[]).contains(&told(7, "e:1")));
    }

    #[test]
    fn what_touches_reserved_keys_is_known() {
        for span in [Span::all(), Span::prefix(RESERVED), Span::key(key(NodeId(1))), Span::prefix("\0")] {
            assert!(is_reserved(&span), "{span:?}");
        }
        for span in [Span::prefix("a"), Span::key("\0"), Span::key("\0incumbent"), Span::prefix("\0other")] {
            assert!(!is_reserved(&span), "{span:?}");
        }
    }
}
