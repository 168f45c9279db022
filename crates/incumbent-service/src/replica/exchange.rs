//! What goes into a replica and what comes out: plain values, so that they can be compared, written down and had again.

use std::fmt;

use bytes::Bytes;
use incumbent_protocol::protocol::{NodeId, Term};
use prost::Message;

use super::content;
use super::letter::Outline;
use super::origin::Origin;
use super::roll::Roll;

/// A position in the log. The first entry of a cluster stands behind its birth, which has the index 1.
pub type Index = u64;

/// The caller's name for a request, given back with its outcome. Never used twice between two starts.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag(pub u64);

/// Names a write; marks rise, and a mark that is persisted says so of all before it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Mark(pub u64);

/// The service's own time in nanoseconds: what the log says it is. Never goes back, and stands still while nobody leads.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ClusterTime(pub u64);

/// All that can happen to a replica.
#[derive(Clone, PartialEq, Debug)]
pub enum Input {
    /// Time has passed. Early or repeated ones do no harm.
    Wake,
    /// Bytes from `from`. The driver vouches for the sender (its certificate, its cluster), not for what it says.
    Receive {
        /// Who sent them.
        from: NodeId,
        /// What it sent: the `bytes` of an [`Effect::Send`], if nothing went wrong.
        bytes: Bytes,
    },
    /// Wants `payload` in the log.
    Propose {
        /// Comes back with the outcome.
        tag: Tag,
        /// Opaque; at most [`Settings::payload_bytes_max`](super::Settings::payload_bytes_max).
        payload: Bytes,
        /// Where it may be appended: a decision that a leader made by its own clock counts in its own term alone (L3).
        place: Place,
    },
    /// Wants to know up to which entry the state must be read, so that the answer is not older than this question (R1).
    Read {
        /// Comes back with the outcome.
        tag: Tag,
    },
    /// Wants the leadership to go to `to`, or to whoever is best prepared.
    Transfer {
        /// The successor, if the caller cares.
        to: Option<NodeId>,
    },
    /// Wants other members. Steps given together take effect together.
    Change {
        /// Comes back with the outcome.
        tag: Tag,
        /// What is to change.
        steps: Vec<Step>,
    },
    /// All writes up to this mark are on the disk, and will be there after a crash.
    Persisted(Mark),
    /// A snapshot that was asked for by [`Effect::TakeSnapshot`] is on the disk.
    Saved {
        /// Its index, as in the effect.
        index: Index,
        /// How long it is, and its checksum.
        extent: Extent,
    },
    /// A snapshot that was asked for could not be saved: it will be asked for again when the log has grown further.
    Unsaved {
        /// Its index, as in the effect.
        index: Index,
    },
    /// A part of a snapshot, as asked for by [`Effect::ReadPiece`].
    Piece {
        /// Who waits for it.
        to: NodeId,
        /// Which snapshot.
        index: Index,
        /// Where the part begins.
        offset: u64,
        /// The part; empty if the snapshot cannot be read.
        bytes: Bytes,
    },
    /// The disk is ready for the snapshot that was announced by [`Effect::Expect`].
    Expecting {
        /// Which snapshot.
        index: Index,
        /// So much of it is there already, from before a restart or from another node.
        have: u64,
    },
    /// The disk has kept a part that came by [`Effect::StorePiece`] and was not the last: only then may more come.
    Kept {
        /// Which snapshot.
        index: Index,
        /// So much of it is there now.
        have: u64,
    },
    /// What came by [`Effect::StorePiece`] is complete, checked and on the disk, or is not to be had.
    Stored {
        /// Which snapshot.
        index: Index,
        /// Whether it is whole and its checksums are right.
        whole: bool,
    },
    /// Messages to this node are being lost. Costs it nothing but a slower start afterwards.
    Unreachable(NodeId),
    /// This node's process is dead: its machine said so (a refused connection), not merely its silence or a reset one.
    Refused(NodeId),
    /// The driver's own judgement of this node: a disk that is full. That it is slow, the replica sees by itself.
    Health(Health),
}

/// Where a proposal may be appended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// By whoever leads: here, or forwarded to the leader.
    Anywhere,
    /// By this node, in this term, or not at all.
    Here(Term),
}

/// Whether a node is fit to lead.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Health {
    /// It is.
    Fit,
    /// It is not: it gives the leadership away if another would do better, and stands for none.
    Unfit,
}

/// One step of a change of members.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Hears everything, votes nowhere; a voter that becomes one stays a member.
    Learner(NodeId),
    /// Votes. A node that is new must be a learner first.
    Voter(NodeId),
    /// Takes part no longer.
    Remove(NodeId),
}

impl Step {
    /// Whom it concerns.
    pub fn node(self) -> NodeId {
        match self {
            Step::Learner(node) | Step::Voter(node) | Step::Remove(node) => node,
        }
    }
}

/// All that a replica can want. To be carried out in order.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// Send `bytes` to `to`. May be lost, doubled, late.
    Send {
        /// Where to.
        to: NodeId,
        /// What must not wait behind what.
        lane: Lane,
        /// What.
        bytes: Bytes,
    },
    /// Write this and sync it, then give [`Input::Persisted`]. Writes are made in order; one sync may serve many of them.
    Write(Write),
    /// These are decided: apply them, in order.
    Commit(Vec<Committed>),
    /// The state after the entry `index` answers this read, and whatever came by [`Effect::Commit`] until now suffices.
    ReadAt {
        /// Which read.
        tag: Tag,
        /// How far the state must be.
        index: Index,
    },
    /// It has not happened and never will; for reads: ask again.
    Reject {
        /// What was asked.
        tag: Tag,
        /// Why not.
        why: Reason,
        /// Who leads, as far as is known.
        leader: Option<NodeId>,
    },
    /// It may have happened or may yet happen.
    Unknown {
        /// What was asked.
        tag: Tag,
    },
    /// Save the state as it is after all that came by [`Effect::Commit`] until now, then give [`Input::Saved`].
    TakeSnapshot(Snapshot),
    /// Entries up to and including this one are needed no longer; nor are snapshots before the last that was saved.
    Compact(Index),
    /// Read up to `bytes_max` of the snapshot `index` from `offset` on, then give [`Input::Piece`].
    ReadPiece {
        /// Who will get it.
        to: NodeId,
        /// Which snapshot.
        index: Index,
        /// From where.
        offset: u64,
        /// How much.
        bytes_max: u64,
    },
    /// A snapshot is on its way here: look how much of it is there, then give [`Input::Expecting`]. What there is of any other is void.
    Expect {
        /// Which snapshot.
        snapshot: Snapshot,
        /// Its length and checksum, by which two are told apart.
        extent: Extent,
    },
    /// Keep a part of the snapshot that is expected.
    StorePiece {
        /// Which snapshot.
        index: Index,
        /// Where the part belongs.
        offset: u64,
        /// The part; empty if all was there already.
        bytes: Bytes,
        /// Whether it is the last: check all of it, sync, then give [`Input::Stored`]; else give [`Input::Kept`].
        last: bool,
    },
    /// The state is now that of this snapshot, which was stored before; what was applied until now is void.
    Install(Snapshot),
    /// Who leads has changed, or the term.
    Role(Role),
    /// The members are these from here on.
    Members {
        /// Decided by the entry with this index.
        index: Index,
        /// The members.
        roll: Roll,
    },
    /// It must not go on, and does not.
    Halt {
        /// The entry that it must not go beyond.
        index: Index,
        /// Why.
        why: Halt,
    },
}

/// Why a node must not go on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Halt {
    /// The log says what this program cannot read.
    Unreadable,
    /// A leader knows by this node's own word that it had the entry, and it has it no more: its directory is an older copy of itself, or its disk has lost what it had confirmed.
    Forgotten {
        /// The leader.
        by: NodeId,
    },
    /// A leader has another entry where this node has a decided one: a majority has lost what it had acknowledged.
    Contradicted {
        /// The leader.
        by: NodeId,
    },
}

/// Which of a line's lanes a message takes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Lane {
    /// Small, and must not wait: heartbeats, votes, answers.
    Prompt,
    /// Entries and snapshots.
    Bulk,
}

/// What must be on the disk: first the reset, then the cut with the entries, and the vote with them.
#[derive(Clone, PartialEq, Debug)]
pub struct Write {
    /// Comes back with [`Input::Persisted`].
    pub mark: Mark,
    /// The log begins anew behind this snapshot, which was stored before and becomes the one to start from.
    pub reset: Option<Snapshot>,
    /// Appended at their index; whatever stands there or behind it goes.
    pub entries: Vec<Entry>,
    /// Term, vote and commit, if they have changed.
    pub vote: Option<Vote>,
}

/// An entry as it stands in the log. `bytes` says itself of what kind it is.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where it stands.
    pub index: Index,
    /// Whose it is.
    pub term: Term,
    /// What it says.
    pub bytes: Bytes,
}

impl Entry {
    /// Whether it is about who the members are.
    pub fn changes_members(&self) -> bool {
        content::kind(&self.bytes) == Some(content::Kind::Change)
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{} ({} bytes)", self.index, self.term, self.bytes.len())
    }
}

/// What a node has promised. One record: neither term nor vote is ever on the disk without the other.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Vote {
    /// The greatest term it has seen.
    pub term: Term,
    /// For whom it has voted in it.
    pub candidate: Option<NodeId>,
    /// Up to where it knows that entries are decided. May be older than the truth.
    pub commit: Index,
}

/// A decided entry.
#[derive(Clone, PartialEq, Debug)]
pub struct Committed {
    /// Where it stands.
    pub index: Index,
    /// Whose it is.
    pub term: Term,
    /// What it says.
    pub content: Content,
}

/// What an entry says to the state machine.
#[derive(Clone, PartialEq, Debug)]
pub enum Content {
    /// Nothing: a new leader's first entry.
    Nothing,
    /// Payloads, all at one time, to be applied in their order.
    Batch {
        /// When.
        at: ClusterTime,
        /// What.
        items: Vec<Item>,
    },
    /// The members have changed, or a change has ended. The tag is there as with payloads.
    Members {
        /// Set on the node where it was asked for, if it still waits for it.
        tag: Option<Tag>,
        /// The members from here on.
        roll: Roll,
    },
}

/// A payload in the log.
#[derive(Clone, PartialEq, Debug)]
pub struct Item {
    /// Set on the node where it was proposed, if that still waits for it: this is its outcome, done.
    pub tag: Option<Tag>,
    /// What was proposed.
    pub payload: Bytes,
}

/// What a snapshot stands for.
#[derive(Clone, PartialEq, Debug)]
pub struct Snapshot {
    /// The last entry that is in it.
    pub index: Index,
    /// That entry's term.
    pub term: Term,
    /// The last time that the log up to there says.
    pub at: ClusterTime,
    /// The members at that entry.
    pub roll: Roll,
    /// How the cluster began; none in what was begun before there were origins.
    pub origin: Option<Origin>,
}

/// How long a snapshot is on the disk, and the checksum of those bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Extent {
    /// Its length.
    pub bytes: u64,
    /// Its checksum, whatever the disk takes for one.
    pub checksum: u32,
}

impl Snapshot {
    /// What stands in a snapshot's file before the state.
    pub fn to_bytes(&self) -> Vec<u8> {
        Outline::of(self).encode_to_vec()
    }

    /// None if that was not written by [`Snapshot::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Option<Snapshot> {
        Outline::decode(bytes).ok()?.snapshot()
    }
}

/// Who leads, as this node sees it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Role {
    /// The term.
    pub term: Term,
    /// Who leads in it, if that is known.
    pub leader: Option<NodeId>,
    /// Whether that is this node.
    pub leads: bool,
}

/// Why something has certainly not happened.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Nobody leads, and the caller's patience is over; or this node must decide and does not lead.
    NoLeader,
    /// [`Place::Here`], and this node does not lead in that term.
    NotHere,
    /// Others have decided: the entry was cut off, or will be.
    Superseded,
    /// As much waits already as may wait, or the log is too long because no snapshot can be saved.
    Full,
    /// The payload is longer than the limit.
    TooLong,
    /// A change of members is under way, or may be.
    ChangeUnderWay,
    /// The change makes no sense: nobody would vote, too many would, or nothing would change.
    BadChange,
    /// The node that should vote is no learner, or does not know enough yet.
    Behind,
    /// This node has halted.
    Halted,
}

/// What a disk held when the node started.
#[derive(Clone, PartialEq, Debug)]
pub struct Recovered {
    /// What it has promised.
    pub vote: Vote,
    /// The snapshot that the state was loaded from. On a node that was never in a cluster: [`Recovered::nothing`].
    pub snapshot: Snapshot,
    /// Its length and checksum.
    pub extent: Extent,
    /// What stands in the log, in order; may begin before the snapshot.
    pub entries: Vec<Entry>,
}

impl Recovered {
    /// The start of every member of a new cluster. All of them must be given the same `roll`.
    pub fn birth(roll: Roll) -> Recovered {
        let origin = Some(Origin::empty(&roll));
        let snapshot = Snapshot { index: 1, term: Term(1), at: ClusterTime(0), roll, origin };
        Recovered {
            vote: Vote { term: Term(1), candidate: None, commit: 1 },
            snapshot,
            extent: Extent::default(),
            entries: Vec::new(),
        }
    }

    /// The start of a node that will be added to a cluster that is there already.
    pub fn nothing() -> Recovered {
        let snapshot = Snapshot { index: 0, term: Term(0), at: ClusterTime(0), roll: Roll::empty(), origin: None };
        Recovered { vote: Vote::default(), snapshot, extent: Extent::default(), entries: Vec::new() }
    }
}
