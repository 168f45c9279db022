//! What replicas say to each other, in bytes: written by hand for prost, so that old and new programs can talk.
//!
//! Here is only form. Whether what a letter says can be true is judged where it is used: the engine's part in `engine/screen.rs`.

use bytes::Bytes;
use incumbent_protocol::protocol::{NodeId, Term};
use prost::Message;

use super::exchange::{ClusterTime, Snapshot};
use super::origin::Origin;
use super::roll::Roll;

/// A longer letter is not read. Twice what fits into one by any settings.
pub const LETTER_BYTES_MAX: usize = 4 << 20;

/// Something for another replica.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Letter {
    #[prost(oneof = "Body", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub(super) body: Option<Body>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Body {
    /// The engine's own.
    #[prost(message, tag = "1")]
    Raft(Raft),
    /// Proposals for the leader of a term.
    #[prost(message, tag = "2")]
    Forward(Forward),
    /// They were not appended and will not be.
    #[prost(message, tag = "3")]
    Returned(Returned),
    /// From which entry on may a read be answered?
    #[prost(message, tag = "4")]
    Ask(Ask),
    /// From this one.
    #[prost(message, tag = "5")]
    Tell(Tell),
    /// A part of a snapshot.
    #[prost(message, tag = "6")]
    Piece(Piece),
    /// How much of it has come.
    #[prost(message, tag = "7")]
    Have(Have),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, prost::Enumeration)]
#[repr(i32)]
pub(super) enum Kind {
    None = 0,
    Append = 1,
    AppendAnswer = 2,
    Heartbeat = 3,
    HeartbeatAnswer = 4,
    VoteRequest = 5,
    VoteAnswer = 6,
    PreVoteRequest = 7,
    PreVoteAnswer = 8,
    StandNow = 9,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Raft {
    #[prost(enumeration = "Kind", tag = "1")]
    pub(super) kind: i32,
    #[prost(uint64, tag = "2")]
    pub(super) term: u64,
    #[prost(uint64, tag = "3")]
    pub(super) log_term: u64,
    #[prost(uint64, tag = "4")]
    pub(super) index: u64,
    /// The first one's index is `index + 1`.
    #[prost(message, repeated, tag = "5")]
    pub(super) entries: Vec<Line>,
    #[prost(uint64, tag = "6")]
    pub(super) commit: u64,
    #[prost(uint64, tag = "7")]
    pub(super) commit_term: u64,
    #[prost(bool, tag = "8")]
    pub(super) reject: bool,
    #[prost(uint64, tag = "9")]
    pub(super) reject_hint: u64,
    #[prost(bytes = "bytes", tag = "10")]
    pub(super) context: Bytes,
    /// The vote is asked for by the leader's own wish.
    #[prost(bool, tag = "11")]
    pub(super) transfer: bool,
    /// How long the sender would hold up those whom it led.
    #[prost(uint32, tag = "12")]
    pub(super) slow_ms: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Line {
    #[prost(uint64, tag = "1")]
    pub(super) term: u64,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) bytes: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Forward {
    #[prost(uint64, tag = "1")]
    pub(super) term: u64,
    #[prost(fixed64, tag = "2")]
    pub(super) run: u64,
    #[prost(message, repeated, tag = "3")]
    pub(super) items: Vec<ForwardItem>,
    /// Rises from letter to letter, so that a copy can be told.
    #[prost(uint64, tag = "4")]
    pub(super) number: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ForwardItem {
    #[prost(uint64, tag = "1")]
    pub(super) tag: u64,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) payload: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Returned {
    #[prost(fixed64, tag = "1")]
    pub(super) run: u64,
    #[prost(uint64, tag = "2")]
    pub(super) term: u64,
    #[prost(uint64, repeated, tag = "3")]
    pub(super) tags: Vec<u64>,
    /// Because as much waits there as may; else because the receiver does not lead in that term.
    #[prost(bool, tag = "4")]
    pub(super) full: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Ask {
    #[prost(fixed64, tag = "1")]
    pub(super) run: u64,
    #[prost(uint64, tag = "2")]
    pub(super) round: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Tell {
    #[prost(fixed64, tag = "1")]
    pub(super) run: u64,
    #[prost(uint64, tag = "2")]
    pub(super) round: u64,
    /// None: ask somebody else.
    #[prost(uint64, optional, tag = "3")]
    pub(super) index: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Piece {
    #[prost(uint64, tag = "1")]
    pub(super) term: u64,
    #[prost(message, optional, tag = "2")]
    pub(super) snapshot: Option<Outline>,
    #[prost(uint64, tag = "3")]
    pub(super) total: u64,
    #[prost(uint64, tag = "4")]
    pub(super) offset: u64,
    /// Empty in the first letter, which only asks how much is there already.
    #[prost(bytes = "bytes", tag = "5")]
    pub(super) bytes: Bytes,
    /// Of all of it.
    #[prost(fixed32, tag = "6")]
    pub(super) checksum: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Have {
    #[prost(uint64, tag = "1")]
    pub(super) index: u64,
    #[prost(uint64, tag = "2")]
    pub(super) snapshot_term: u64,
    #[prost(uint64, tag = "3")]
    pub(super) bytes: u64,
    /// It will not be taken: it is damaged, or of no use.
    #[prost(bool, tag = "4")]
    pub(super) refused: bool,
    /// The receiver's own term, so that a leader of the past hears that it is one.
    #[prost(uint64, tag = "5")]
    pub(super) term: u64,
}

/// What a snapshot stands for.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Outline {
    #[prost(uint64, tag = "1")]
    pub(super) index: u64,
    #[prost(uint64, tag = "2")]
    pub(super) term: u64,
    #[prost(uint64, tag = "3")]
    pub(super) at: u64,
    #[prost(uint32, repeated, tag = "4")]
    pub(super) voters: Vec<u32>,
    #[prost(uint32, repeated, tag = "5")]
    pub(super) learners: Vec<u32>,
    #[prost(uint32, repeated, tag = "6")]
    pub(super) outgoing: Vec<u32>,
    #[prost(uint32, repeated, tag = "7")]
    pub(super) learners_next: Vec<u32>,
    /// Empty if the cluster has none.
    #[prost(bytes = "bytes", tag = "8")]
    pub(super) origin: Bytes,
}

impl Outline {
    pub(super) fn of(snapshot: &Snapshot) -> Outline {
        let ids = |ids: &std::collections::BTreeSet<NodeId>| ids.iter().map(|id| id.0).collect();
        Outline {
            index: snapshot.index,
            term: snapshot.term.0,
            at: snapshot.at.0,
            voters: ids(snapshot.roll.voters()),
            learners: ids(snapshot.roll.learners()),
            outgoing: ids(snapshot.roll.outgoing()),
            learners_next: ids(snapshot.roll.learners_next()),
            origin: snapshot.origin.map(|it| Bytes::copy_from_slice(&it.to_bytes())).unwrap_or_default(),
        }
    }

    /// None if no cluster can have such members, or no log such an entry.
    pub(super) fn snapshot(&self) -> Option<Snapshot> {
        let ids = |ids: &[u32]| ids.iter().copied().map(NodeId).collect::<Vec<_>>();
        let roll = Roll::assemble(ids(&self.voters), ids(&self.learners), ids(&self.outgoing), ids(&self.learners_next)).ok()?;
        let possible = self.index > 0 && self.term > 0 && self.term <= Term::MAX.0;
        let origin = if self.origin.is_empty() { None } else { Some(Origin::from_bytes(&self.origin)?) };
        possible.then_some(Snapshot { index: self.index, term: Term(self.term), at: ClusterTime(self.at), roll, origin })
    }
}

/// Takes a letter from a stranger's bytes. None if it is none, or too long.
pub(super) fn open(bytes: &Bytes) -> Option<Body> {
    if bytes.len() > LETTER_BYTES_MAX {
        return None;
    }
    Letter::decode(bytes.clone()).ok()?.body
}

/// The bytes of a letter.
pub(super) fn seal(body: Body) -> Bytes {
    Letter { body: Some(body) }.encode_to_vec().into()
}

/// What a letter promises on behalf of its sender: for traces, and for tests that hold it against the sender's disk.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Promise {
    /// The sender has voted for the receiver in this term.
    Vote(Term),
    /// The sender asks for votes in this term, so it has voted for itself.
    Candidacy(Term),
    /// The sender, in this term, keeps the receiver's entries up to this index.
    Keeps(Term, u64),
    /// The sender leads in this term.
    Leads(Term),
}

/// The promise in a letter, if there is one.
pub fn promise(bytes: &Bytes) -> Option<Promise> {
    let Body::Raft(raft) = open(bytes)? else { return None };
    let term = Term(raft.term);
    match Kind::try_from(raft.kind).ok()? {
        Kind::VoteAnswer => (!raft.reject).then_some(Promise::Vote(term)),
        Kind::AppendAnswer => (!raft.reject).then_some(Promise::Keeps(term, raft.index)),
        Kind::VoteRequest => Some(Promise::Candidacy(term)),
        Kind::Append | Kind::Heartbeat | Kind::StandNow => Some(Promise::Leads(term)),
        Kind::None | Kind::HeartbeatAnswer | Kind::PreVoteRequest | Kind::PreVoteAnswer => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_comes_out_as_it_went_in_and_garbage_does_not_come_out_at_all() {
        let piece = Piece { term: 3, snapshot: None, total: 9, offset: 2, bytes: Bytes::from_static(b"x"), checksum: 1 };
        let bytes = seal(Body::Piece(piece.clone()));
        assert_eq!(open(&bytes), Some(Body::Piece(piece)));
        assert_eq!(open(&bytes.slice(..bytes.len() - 1)), None);
        assert_eq!(open(&Bytes::from_static(b"\xff\xff\xff")), None);
        assert_eq!(open(&Bytes::new()), None);
        assert_eq!(open(&Bytes::from(vec![0; LETTER_BYTES_MAX + 1])), None);
    }

    #[test]
    fn an_outline_of_an_impossible_snapshot_is_none() {
        let roll = Roll::of([NodeId(0), NodeId(2)]).expect("two voters");
        let origin = Some(Origin::empty(&roll));
        let snapshot = Snapshot { index: 7, term: Term(2), at: ClusterTime(5), roll, origin };
        let good = Outline::of(&snapshot);
        assert_eq!(good.snapshot(), Some(snapshot));
        assert_eq!(Outline { voters: vec![], ..good.clone() }.snapshot(), None);
        assert_eq!(Outline { learners: vec![2], ..good.clone() }.snapshot(), None);
        assert_eq!(Outline { term: 0, ..good.clone() }.snapshot(), None);
        assert_eq!(Outline { origin: Bytes::from_static(b"short"), ..good.clone() }.snapshot(), None);
        assert_eq!(Outline { index: 0, ..good }.snapshot(), None);
    }

    /// Nodes of two releases talk to each other while a cluster is upgraded (C57): numbers of fields are for ever.
    #[test]
    fn the_bytes_of_letters_never_change() {
        let hex = |body: Body| seal(body).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let entries = vec![Line { term: 4, bytes: Bytes::from_static(b"e") }];
        let context = Bytes::from_static(b"c");
        let raft = Raft {
            kind: 1,
            term: 2,
            log_term: 3,
            index: 4,
            entries,
            commit: 5,
            commit_term: 6,
            reject: true,
            reject_hint: 7,
            context,
            transfer: true,
            slow_ms: 300,
        };
        assert_eq!(hex(Body::Raft(raft)), "0a1f08011002180320042a0508041201653005380640014807520163580160ac02");
        let item = ForwardItem { tag: 9, payload: Bytes::from_static(b"p") };
        assert_eq!(
            hex(Body::Forward(Forward { term: 2, run: 3, items: vec![item], number: 4 })),
            "121408021103000000000000001a0508091201702004"
        );
        assert_eq!(
            hex(Body::Returned(Returned { run: 3, term: 2, tags: vec![9, 300], full: true })),
            "1a1209030000000000000010021a0309ac022001"
        );
        assert_eq!(hex(Body::Ask(Ask { run: 3, round: 4 })), "220b0903000000000000001004");
        assert_eq!(hex(Body::Tell(Tell { run: 3, round: 4, index: Some(5) })), "2a0d09030000000000000010041805");
        let outline = Outline {
            index: 1,
            term: 2,
            at: 3,
            voters: vec![0, 1],
            learners: vec![2],
            outgoing: vec![3],
            learners_next: vec![4],
            origin: Bytes::new(),
        };
        let piece = Piece { term: 2, snapshot: Some(outline), total: 9, offset: 8, bytes: Bytes::from_static(b"s"), checksum: 7 };
        assert_eq!(hex(Body::Piece(piece)), "322308021213080110021803220200012a01023201033a0104180920082a01733507000000");
        let outline = Outline { origin: Bytes::from_static(b"0123456789abcdef"), ..Outline::default() };
        let piece = Piece { snapshot: Some(outline), ..Piece::default() };
        assert_eq!(hex(Body::Piece(piece)), "32141212421030313233343536373839616263646566");
        assert_eq!(
            hex(Body::Have(Have { index: 1, snapshot_term: 2, bytes: 3, refused: true, term: 4 })),
            "3a0a08011002180320012804"
        );
    }
}
