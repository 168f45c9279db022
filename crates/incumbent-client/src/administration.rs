//! What operators ask of a cluster, and what they are told: who its members are and how they do, who comes and goes, who leads, and its backup.
//!
//! All of it may be asked twice: a change that was made already is answered as if it had been made just now. Only the node that leads changes anything; the others say who that is.

use prost::bytes::Bytes;

/// Something that an operator wants.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Administer {
    /// What. `None` is what this version does not know.
    #[prost(oneof = "Administration", tags = "1, 2, 3, 4, 5, 6")]
    pub administration: Option<Administration>,
}

/// What an operator may want.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Administration {
    /// How the cluster is. Answered by [`Attended::Cluster`], by any node, also when nobody leads.
    #[prost(message, tag = "1")]
    Status(AskCluster),
    /// See [`AddMember`]. Answered by [`Attended::Member`].
    #[prost(message, tag = "2")]
    Add(AddMember),
    /// See [`RemoveMember`]. Answered by [`Attended::Member`].
    #[prost(message, tag = "3")]
    Remove(RemoveMember),
    /// See [`TransferLeadership`]. Answered by [`Attended::Leader`].
    #[prost(message, tag = "4")]
    Transfer(TransferLeadership),
    /// Prepares a backup of all that was done before it was asked for. Answered by [`Attended::Backup`].
    #[prost(message, tag = "5")]
    Snapshot(TakeSnapshot),
    /// See [`ReadBackup`]. Answered by [`Attended::Piece`].
    #[prost(message, tag = "6")]
    ReadBackup(ReadBackup),
}

/// How is the cluster?
#[derive(Clone, PartialEq, prost::Message)]
pub struct AskCluster {}

/// Makes a node a member: it learns what the others know, and then votes. The node runs already, with an empty directory, and waits to be added. Of a member, it changes the addresses.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AddMember {
    /// Its number. One that was removed does not come back under the same number.
    #[prost(uint32, tag = "1")]
    pub node: u32,
    /// Where the other members reach it.
    #[prost(string, tag = "2")]
    pub peer: String,
    /// Where clients reach it; empty if it says so itself.
    #[prost(string, tag = "3")]
    pub client: String,
}

/// A node is no member any more.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RemoveMember {
    /// Which.
    #[prost(uint32, tag = "1")]
    pub node: u32,
    /// Also if too few of those that are left answer for a majority.
    #[prost(bool, tag = "2")]
    pub force: bool,
}

/// Another node leads from now on.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TransferLeadership {
    /// Which; whichever is best prepared if there is none.
    #[prost(uint32, optional, tag = "1")]
    pub to: Option<u32>,
}

/// Prepares a backup.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TakeSnapshot {}

/// A part of a backup, from the node that has prepared it. It keeps the last one that it prepared.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadBackup {
    /// Which: as [`BackupView`] says.
    #[prost(uint64, tag = "1")]
    pub index: u64,
    /// Its checksum.
    #[prost(uint32, tag = "2")]
    pub checksum: u32,
    /// From where.
    #[prost(uint64, tag = "3")]
    pub offset: u64,
}

/// What came of it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Administered {
    /// What. `None` is what this version does not know.
    #[prost(oneof = "Attended", tags = "1, 2, 3, 4, 5, 6")]
    pub attended: Option<Attended>,
}

/// What came of something that an operator wanted.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Attended {
    /// How the cluster is.
    #[prost(message, tag = "1")]
    Cluster(ClusterView),
    /// What the node is now. One that is added may not vote yet: it is made a voter once it knows enough, whether somebody waits for that or not.
    #[prost(message, tag = "2")]
    Member(MemberChange),
    /// The node that leads now.
    #[prost(uint32, tag = "3")]
    Leader(u32),
    /// A backup is ready to be read.
    #[prost(message, tag = "4")]
    Backup(BackupView),
    /// A part of a backup; none at its end.
    #[prost(bytes = "bytes", tag = "5")]
    Piece(Bytes),
    /// It was not done: why, and what to do.
    #[prost(string, tag = "6")]
    Refused(String),
}

/// What a node is in a cluster.
#[derive(Copy, Clone, PartialEq, Eq, Debug, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Membership {
    /// No member.
    None = 0,
    /// Hears everything, and decides nothing yet.
    Learner = 1,
    /// Votes.
    Voter = 2,
    /// Votes until a change that is under way has ended.
    Leaving = 3,
}

/// What a node has become.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MemberChange {
    /// The node.
    #[prost(uint32, tag = "1")]
    pub node: u32,
    /// What it is.
    #[prost(enumeration = "Membership", tag = "2")]
    pub membership: i32,
    /// So many entries it has to learn; none if it has not shown that it has any.
    #[prost(uint64, optional, tag = "3")]
    pub lag: Option<u64>,
}

/// A cluster, as one of its nodes sees it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ClusterView {
    /// Its name.
    #[prost(string, tag = "1")]
    pub cluster: String,
    /// The node that tells.
    #[prost(uint32, tag = "2")]
    pub node: u32,
    /// Who leads, if that is known.
    #[prost(uint32, optional, tag = "3")]
    pub leader: Option<u32>,
    /// The term.
    #[prost(uint64, tag = "4")]
    pub term: u64,
    /// The members, in the order of their numbers; also nodes that are about to be added.
    #[prost(message, repeated, tag = "5")]
    pub members: Vec<MemberView>,
    /// Counts the lives of the store: one more after each restore.
    #[prost(uint32, tag = "6")]
    pub incarnation: u32,
}

/// A member.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MemberView {
    /// Its number.
    #[prost(uint32, tag = "1")]
    pub node: u32,
    /// What it is.
    #[prost(enumeration = "Membership", tag = "2")]
    pub membership: i32,
    /// Where the other members reach it.
    #[prost(string, tag = "3")]
    pub peer: String,
    /// Where clients reach it; empty if that is not known.
    #[prost(string, tag = "4")]
    pub client: String,
    /// How it does, as it says itself; none if it does not answer.
    #[prost(message, optional, tag = "5")]
    pub health: Option<Health>,
    /// So many entries behind the node that leads; none if that is not known.
    #[prost(uint64, optional, tag = "6")]
    pub lag: Option<u64>,
    /// Whether the node that tells hears it directly.
    #[prost(bool, tag = "7")]
    pub line_up: bool,
    /// The last round trip on that line, in microseconds; 0 if none was measured.
    #[prost(uint64, tag = "8")]
    pub round_trip_us: u64,
    /// Why it does not answer.
    #[prost(string, tag = "9")]
    pub why: String,
}

/// How a node does.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Health {
    /// What it runs.
    #[prost(string, tag = "1")]
    pub release: String,
    /// Up to where entries are known to be decided.
    #[prost(uint64, tag = "2")]
    pub commit: u64,
    /// Up to where they are applied.
    #[prost(uint64, tag = "3")]
    pub applied: u64,
    /// The last entry.
    #[prost(uint64, tag = "4")]
    pub last: u64,
    /// The last snapshot.
    #[prost(uint64, tag = "5")]
    pub snapshot: u64,
    /// The store's revision.
    #[prost(uint64, tag = "6")]
    pub revision: u64,
    /// How long the last write to its disk took, in microseconds.
    #[prost(uint64, tag = "7")]
    pub disk_last_us: u64,
    /// How long the longest took.
    #[prost(uint64, tag = "8")]
    pub disk_longest_us: u64,
    /// Whether its disk is too slow for a leader's.
    #[prost(bool, tag = "9")]
    pub disk_slow: bool,
    /// What the system says while its disk is full; empty if it is not.
    #[prost(string, tag = "10")]
    pub disk_full: String,
}

/// A backup that is ready to be read.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BackupView {
    /// The last entry that is in it.
    #[prost(uint64, tag = "1")]
    pub index: u64,
    /// CRC-32C of its bytes.
    #[prost(uint32, tag = "2")]
    pub checksum: u32,
    /// So many bytes.
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
    /// The store's revision in it.
    #[prost(uint64, tag = "4")]
    pub revision: u64,
}
