//! What a node is told before it starts, and what is wrong with it. A plan that exists has been checked as far as one node can.

use std::fmt;
use std::path::PathBuf;

use incumbent_protocol::machine::Kind;
use incumbent_protocol::protocol::NodeId;
use incumbent_protocol::settings::{Builder, Detection, Guard, Invalid, Pace, Settings};

use crate::switchboard::{Peer, Security};

/// What a node is told before it starts. All members of a group are told the same, save for `me`, `listen` and `directory`.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The group's own name; nodes of other groups are refused.
    pub cluster: String,
    /// This node.
    pub me: NodeId,
    /// Where it listens, as `HOST:PORT`.
    pub listen: String,
    /// The other members, and where they listen.
    pub peers: Vec<Peer>,
    /// Who should stand, and when.
    pub protocol: Kind,
    /// The times.
    pub pace: Pace,
    /// Whether a leader needs a majority behind it.
    pub guard: Guard,
    /// How members know each other.
    pub security: Security,
    /// Where it keeps what it must not forget; nobody else's.
    pub directory: PathBuf,
    /// What counts as proof that the process of a leader is dead.
    pub death: Evidence,
    /// Whether the death of this process ends the work of its leaderships: else no evidence of it frees them.
    pub mortal: bool,
    /// Whether this node is new to a group that exists: it waits to be told who the members are.
    pub joins: bool,
    /// Where to record what the node does, line by line.
    pub trace: Option<PathBuf>,
}

/// What counts as proof that the process of a leader is dead, so that its lease need not be waited out.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Evidence {
    /// Nothing that a network can say. A refused connection only makes its followers ask sooner.
    None,
    /// Its kernel ended the connection and refuses a new one, which no living node does. True as long as nothing between the nodes forges *both*: a firewall that
    /// answers for a machine with resets does.
    Refusal,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Evidence::None => "lease",
            Evidence::Refusal => "refused",
        })
    }
}

impl Plan {
    /// The settings of the group's machines, with these members besides `me`.
    pub(super) fn settings(&self, members: impl IntoIterator<Item = NodeId>) -> Result<Settings, Invalid> {
        let builder: Builder = Settings::of(members).pace(self.pace).guard(self.guard).detection(Detection::Adaptive);
        builder.build()
    }

    /// What all members must agree on, in words that a person can compare.
    pub fn terms(&self) -> String {
        let guard = match self.guard {
            Guard::Majority => "majority".to_owned(),
            Guard::Quorum(size) => size.to_string(),
            Guard::Off => "off".to_owned(),
        };
        let pace = &self.pace;
        format!(
            "protocol={} guard={guard} patience={:?}..{:?} heartbeat={:?} reply={:?} drift={}ppm death={}",
            self.protocol, pace.patience_min, pace.patience_max, pace.heartbeat, pace.reply, pace.drift_ppm, self.death
        )
    }
}

/// Why a node cannot start. One line that says what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unfit(pub String);

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unfit {}

impl From<Invalid> for Unfit {
    fn from(why: Invalid) -> Unfit {
        Unfit(why.to_string())
    }
}
