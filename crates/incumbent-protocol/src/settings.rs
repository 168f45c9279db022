//! What a group agrees on before it elects anyone: members, pace, guard. Settings that exist are valid.
//!
//! Every default stands in this file with its reason, and so does every rule that ties two of them together.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::protocol::NodeId;

/// More members than this are refused: every leader speaks to every member.
pub const MEMBERS_MAX: usize = 4096;

/// A day: longer waits are mistakes, and shorter ones cannot overflow any sum or product here.
const LONGEST: Duration = Duration::from_secs(86_400);

/// The timing of a group.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Pace {
    /// How often a leader is heard from.
    pub heartbeat: Duration,
    /// The shortest silence after which a follower gives its leader up. Also the length of the lease that a vote or
    /// an acknowledged heartbeat gives a guarded leader, so that nobody else is elected while it may still act.
    pub patience_min: Duration,
    /// The longest. Each wait is drawn between the two, so that followers seldom give up together.
    pub patience_max: Duration,
    /// How long an answer to a direct question may take: a round trip, with room.
    pub reply: Duration,
    /// By how much two clocks may differ in rate, in parts per million.
    pub drift_ppm: u32,
    /// What a leader takes off the end of its lease for its own slowness in stopping.
    pub margin: Duration,
}

impl Pace {
    /// One machine room: the timeouts of the Raft paper (150–300 ms).
    pub const LAN: Pace = Pace {
        // Three heartbeats fit in the shortest patience: one lost packet must not cost the leadership.
        heartbeat: Duration::from_millis(50),
        patience_min: Duration::from_millis(150),
        patience_max: Duration::from_millis(300),
        // Twice a bad one-way delay of 25 ms, with room for a busy node.
        reply: Duration::from_millis(60),
        // What the design promises; an undisciplined quartz stays below 100.
        drift_ppm: 500,
        margin: Duration::from_millis(5),
    };

    /// Several regions: round trips up to about 200 ms.
    pub const WAN: Pace = Pace {
        heartbeat: Duration::from_millis(300),
        patience_min: Duration::from_millis(1200),
        patience_max: Duration::from_millis(2400),
        reply: Duration::from_millis(500),
        drift_ppm: 500,
        margin: Duration::from_millis(20),
    };

    /// The pace that follows from one number: the shortest silence after which a leader is given up. Its answers take a round trip of at most 20 ms; set
    /// [`Pace::reply`] where they take longer.
    pub fn of(patience: Duration) -> Result<Pace, Invalid> {
        if patience < Self::PATIENCE_LEAST || patience > Self::PATIENCE_MOST {
            return Err(Invalid::Hasty { patience });
        }
        Ok(Pace {
            // Four may be late or lost before the fifth costs the leadership: on a busy machine they come late together.
            heartbeat: patience / 5,
            patience_min: patience,
            patience_max: patience * 2,
            reply: (patience / 10).min(Duration::from_millis(20)),
            drift_ppm: Self::LAN.drift_ppm,
            // As in a machine room, but no longer than a busy system takes to wake a thread.
            margin: (patience / 30).clamp(Duration::from_millis(2), Duration::from_millis(20)),
        })
    }

    /// Above this nobody waits for a leader, and what is made of it would not fit in a day.
    pub const PATIENCE_MOST: Duration = Duration::from_secs(3_600);

    /// Below this a system that is merely busy looks dead.
    pub const PATIENCE_LEAST: Duration = Duration::from_millis(50);

    /// How long a leader may believe in a lease, counted from the send of what was answered: `patience_min·(1−ρ)/(1+ρ) − margin`.
    ///
    /// Its clock may run slow and the voter's fast; the quotient covers both. Rounded down.
    pub fn lease(&self) -> Duration {
        let ppm = u128::from(self.drift_ppm);
        let nanos = self.patience_min.as_nanos() * (1_000_000 - ppm) / (1_000_000 + ppm);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).saturating_sub(self.margin)
    }
}

/// Whether a leader needs a majority behind it.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Guard {
    /// No majority, no leader: votes before taking office, acknowledged heartbeats to stay in it.
    Majority,
    /// As [`Guard::Majority`], but this many nodes (more than half, at most all).
    Quorum(usize),
    /// No guard. Bully and the rings then elect in every part of a split network: **two leaders at once are possible**, told
    /// apart only by their tokens. Raft still votes by majority, but a leader that is cut off goes on believing until it hears of a later term.
    Off,
}

/// How a follower decides that its leader is gone.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Detection {
    /// Silence for a time drawn between `patience_min` and `patience_max`.
    Fixed,
    /// Learns how regularly heartbeats arrive: slower to give up on a slow network, and without a guard also faster on a quick one.
    Adaptive,
}

/// What a Bully node does when it finds a leader with a smaller id in office.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Takeover {
    /// Demands the office, as Garcia-Molina wrote it. The leader yields once it has served its minimum tenure.
    AtOnce,
    /// Waits until the office is free: fewer changes of leader.
    WhenFree,
}

/// Whether a Raft candidate asks first if it would be elected (thesis 9.6).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum PreVote {
    /// A node that was cut off disturbs nobody when it returns.
    On,
    /// The paper's basic algorithm: one round trip less, and a returning node may depose a healthy leader.
    Off,
}

/// The brake against flapping.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Stability {
    /// A leader is not asked to yield before it has served this long, and one that lost office sooner stands aside.
    pub min_tenure: Duration,
    /// How long a node stands aside the first time.
    pub aside_min: Duration,
    /// And at the most, after doubling.
    pub aside_max: Duration,
}

impl Stability {
    /// The brake that fits `pace`.
    pub fn of(pace: &Pace) -> Stability {
        Stability {
            // Long enough for followers to have settled, short enough not to be noticed by a person.
            min_tenure: pace.patience_max * 4,
            aside_min: pace.patience_max,
            // The longest a healed group may have to wait for its only fit candidate.
            aside_max: pace.patience_max * 8,
        }
    }
}

/// What a group agrees on. Cheap to clone: the lists are shared.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Settings {
    members: Arc<[NodeId]>,
    ring: Arc<[NodeId]>,
    priorities: Arc<[(NodeId, u8)]>,
    pace: Pace,
    quorum: Option<usize>,
    detection: Detection,
    takeover: Takeover,
    pre_vote: PreVote,
    stability: Stability,
}

impl Settings {
    /// Settings for `members`, with every default. Call [`Builder::build`] at the end.
    pub fn of(members: impl IntoIterator<Item = NodeId>) -> Builder {
        Builder {
            members: members.into_iter().collect(),
            ring: None,
            priorities: Vec::new(),
            pace: Pace::LAN,
            guard: Guard::Majority,
            detection: Detection::Fixed,
            takeover: Takeover::AtOnce,
            pre_vote: PreVote::On,
            stability: None,
        }
    }

    /// All members, in ascending order.
    pub fn members(&self) -> &[NodeId] {
        &self.members
    }

    /// All members in the order of the ring; the last is followed by the first.
    pub fn ring(&self) -> &[NodeId] {
        &self.ring
    }

    /// The timing.
    pub fn pace(&self) -> &Pace {
        &self.pace
    }

    /// How many nodes, itself included, a guarded leader needs behind it; `None` without guard.
    pub fn quorum(&self) -> Option<usize> {
        self.quorum
    }

    /// More than half of the members.
    pub fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }

    /// How leaders are found to be gone.
    pub fn detection(&self) -> Detection {
        self.detection
    }

    /// What a greater id is worth while the office is taken.
    pub fn takeover(&self) -> Takeover {
        self.takeover
    }

    /// Whether candidates ask before they raise the term.
    pub fn pre_vote(&self) -> PreVote {
        self.pre_vote
    }

    /// The brake against flapping.
    pub fn stability(&self) -> &Stability {
        &self.stability
    }

    /// The priority of `node`: 0 unless set. Raft prefers greater ones.
    pub fn priority(&self, node: NodeId) -> u8 {
        self.priorities.iter().find(|(id, _)| *id == node).map_or(0, |(_, priority)| *priority)
    }

    /// The greatest priority of any member.
    pub fn priority_max(&self) -> u8 {
        self.priorities.iter().map(|(_, priority)| *priority).max().unwrap_or(0)
    }

    /// Whether a leader may make these its next settings: one member more or less, such that quorums of both share a node, and everything else the same.
    pub fn may_become(&self, next: &Settings) -> Result<(), Invalid> {
        self.agrees_but_for_members(next)?;
        let beyond = |one: &Settings, other: &Settings| one.members().iter().filter(|id| other.rank(**id).is_none()).count();
        let (gone, come) = (beyond(self, next), beyond(next, self));
        if gone + come != 1 {
            return Err(Invalid::Change { why: "members are added or removed one at a time" });
        }
        let quorum = |it: &Settings| it.quorum.unwrap_or(it.majority());
        if quorum(self) + quorum(next) <= self.members.len().max(next.members.len()) {
            return Err(Invalid::Change {
                why: "quorums before and after the change must share a node: change the quorum with the members",
            });
        }
        Ok(())
    }

    /// Whether a node may go on with these settings at all.
    pub(crate) fn agrees_but_for_members(&self, next: &Settings) -> Result<(), Invalid> {
        let rest = |it: &Settings| (it.pace, it.quorum.is_some(), it.detection, it.takeover, it.pre_vote, it.stability);
        if rest(self) == rest(next) {
            return Ok(());
        }
        // The length of a promise is the length of a lease: all must mean the same by it.
        Err(Invalid::Change { why: "only members and priorities may change while the group runs" })
    }

    /// Where `node` stands among the members, from 0; `None` for a stranger.
    pub fn rank(&self, node: NodeId) -> Option<usize> {
        self.members.binary_search(&node).ok()
    }
}

/// Settings in the making.
#[derive(Clone, Debug)]
pub struct Builder {
    members: Vec<NodeId>,
    ring: Option<Vec<NodeId>>,
    priorities: Vec<(NodeId, u8)>,
    pace: Pace,
    guard: Guard,
    detection: Detection,
    takeover: Takeover,
    pre_vote: PreVote,
    stability: Option<Stability>,
}

impl Builder {
    /// Sets the timing; the stability follows it unless set itself.
    #[must_use]
    pub fn pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// Sets the quorum guard.
    #[must_use]
    pub fn guard(mut self, guard: Guard) -> Self {
        self.guard = guard;
        self
    }

    /// Sets how leaders are found to be gone.
    #[must_use]
    pub fn detection(mut self, detection: Detection) -> Self {
        self.detection = detection;
        self
    }

    /// Sets what a Bully node does about a smaller leader.
    #[must_use]
    pub fn takeover(mut self, takeover: Takeover) -> Self {
        self.takeover = takeover;
        self
    }

    /// Sets whether candidates ask before they raise the term.
    #[must_use]
    pub fn pre_vote(mut self, pre_vote: PreVote) -> Self {
        self.pre_vote = pre_vote;
        self
    }

    /// Sets the order of the ring: every member once. Ascending unless set.
    #[must_use]
    pub fn ring(mut self, order: impl IntoIterator<Item = NodeId>) -> Self {
        self.ring = Some(order.into_iter().collect());
        self
    }

    /// Prefers `node` over those with smaller priorities. A preference only: it never makes or breaks a leader.
    #[must_use]
    pub fn priority(mut self, node: NodeId, priority: u8) -> Self {
        self.priorities.push((node, priority));
        self
    }

    /// Sets the brake against flapping.
    #[must_use]
    pub fn stability(mut self, stability: Stability) -> Self {
        self.stability = Some(stability);
        self
    }

    /// The settings, or what is wrong with them.
    pub fn build(self) -> Result<Settings, Invalid> {
        let mut members = self.members;
        members.sort_unstable();
        let count = members.len();
        if count == 0 {
            return Err(Invalid::NoMembers);
        }
        if count > MEMBERS_MAX {
            return Err(Invalid::TooManyMembers { count });
        }
        if let Some(pair) = members.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Invalid::RepeatedMember { node: pair[0] });
        }
        let ring = self.ring.unwrap_or_else(|| members.clone());
        let mut sorted = ring.clone();
        sorted.sort_unstable();
        if sorted != members {
            return Err(Invalid::Ring);
        }
        if let Some(&(node, _)) = self.priorities.iter().find(|(node, _)| !members.contains(node)) {
            return Err(Invalid::Stranger { node });
        }
        let quorum = match self.guard {
            Guard::Off => None,
            Guard::Majority => Some(count / 2 + 1),
            Guard::Quorum(size) if size > count / 2 && size <= count => Some(size),
            Guard::Quorum(size) => return Err(Invalid::Quorum { size, count }),
        };
        check_pace(&self.pace)?;
        let stability = self.stability.unwrap_or_else(|| Stability::of(&self.pace));
        for (name, span) in [("min-tenure", stability.min_tenure), ("aside-max", stability.aside_max)] {
            if span > LONGEST {
                return Err(Invalid::Span { name, span });
            }
        }
        if stability.aside_min > stability.aside_max {
            return Err(Invalid::Aside { min: stability.aside_min, max: stability.aside_max });
        }
        Ok(Settings {
            members: members.into(),
            ring: ring.into(),
            priorities: self.priorities.into(),
            pace: self.pace,
            quorum,
            detection: self.detection,
            takeover: self.takeover,
            pre_vote: self.pre_vote,
            stability,
        })
    }
}

/// The rules between the times of a pace.
fn check_pace(pace: &Pace) -> Result<(), Invalid> {
    for (name, span) in [
        ("heartbeat", pace.heartbeat),
        ("patience-min", pace.patience_min),
        ("patience-max", pace.patience_max),
        ("reply", pace.reply),
    ] {
        if span.is_zero() || span > LONGEST {
            return Err(Invalid::Span { name, span });
        }
    }
    if pace.patience_min > pace.patience_max {
        return Err(Invalid::Patience { min: pace.patience_min, max: pace.patience_max });
    }
    // A drift of a tenth is no clock at all.
    if pace.drift_ppm >= 100_000 {
        return Err(Invalid::Drift { ppm: pace.drift_ppm });
    }
    // Two heartbeats must fit in the lease, or the first lost packet costs the leadership.
    if pace.heartbeat * 2 > pace.lease() {
        return Err(Invalid::Heartbeat { heartbeat: pace.heartbeat, lease: pace.lease() });
    }
    Ok(())
}

/// Why settings were refused. Each says what to change.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the messages below say it better")]
pub enum Invalid {
    NoMembers,
    TooManyMembers { count: usize },
    RepeatedMember { node: NodeId },
    Ring,
    Stranger { node: NodeId },
    Quorum { size: usize, count: usize },
    Span { name: &'static str, span: Duration },
    Hasty { patience: Duration },
    Patience { min: Duration, max: Duration },
    Drift { ppm: u32 },
    Heartbeat { heartbeat: Duration, lease: Duration },
    Aside { min: Duration, max: Duration },
    Change { why: &'static str },
    Unknown { what: &'static str, given: String, known: &'static str },
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Invalid::NoMembers => f.write_str("a group needs at least one node: name its members"),
            Invalid::TooManyMembers { count } => {
                write!(f, "{count} nodes are too many: at most {MEMBERS_MAX} can elect one of themselves")
            }
            Invalid::RepeatedMember { node } => write!(f, "node {node} is named twice: give every node an id of its own"),
            Invalid::Ring => f.write_str("the ring must name every member exactly once"),
            Invalid::Stranger { node } => write!(f, "node {node} has a priority but is no member: add it or remove the priority"),
            Invalid::Quorum { size, count } => write!(
                f,
                "a quorum of {size} among {count} nodes: it must be more than half and at most all, so between {} and {count}",
                count / 2 + 1
            ),
            Invalid::Span { name, span } => write!(f, "{name} is {span:?}: it must be more than zero and at most a day"),
            Invalid::Hasty { patience } => write!(
                f,
                "a patience of {patience:?}: it must be at least {:?}, or a busy node is taken for a dead one, and at most an hour",
                Pace::PATIENCE_LEAST
            ),
            Invalid::Patience { min, max } => {
                write!(f, "patience-min ({min:?}) is greater than patience-max ({max:?}): exchange them, or raise the second")
            }
            Invalid::Drift { ppm } => {
                write!(f, "a drift of {ppm} ppm is beyond any clock: it must be below 100000 (default 500)")
            }
            Invalid::Heartbeat { heartbeat, lease } => write!(
                f,
                "a heartbeat every {heartbeat:?} is too slow for a lease of {lease:?}: two must fit; lower heartbeat or raise patience-min"
            ),
            Invalid::Aside { min, max } => write!(f, "aside-min ({min:?}) is greater than aside-max ({max:?}): exchange them"),
            Invalid::Change { why } => f.write_str(why),
            Invalid::Unknown { what, given, known } => write!(f, "unknown {what} '{given}': it is one of {known}"),
        }
    }
}

impl core::error::Error for Invalid {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn nodes(count: u32) -> Builder {
        Settings::of((1..=count).map(NodeId))
    }

    #[test]
    fn defaults_are_valid_and_both_presets_keep_their_rules() {
        for pace in [Pace::LAN, Pace::WAN] {
            let settings = nodes(5).pace(pace).build().unwrap();
            assert_eq!(settings.quorum(), Some(3));
            assert!(settings.pace().lease() < pace.patience_min);
        }
    }

    #[test]
    fn a_pace_from_one_number_is_valid_down_to_the_least() {
        for millis in [50, 51, 150, 1_000, 3_600_000] {
            let pace = Pace::of(Duration::from_millis(millis)).unwrap();
            nodes(3).pace(pace).build().unwrap();
            // Of five heartbeats four must fit in the lease with time to stop.
            assert!(pace.heartbeat * 4 < pace.lease(), "{pace:?}");
            assert!(pace.reply <= Duration::from_millis(20) && pace.patience_max == pace.patience_min * 2);
        }
        for wrong in [Duration::ZERO, Duration::from_millis(49), Duration::MAX] {
            assert!(Pace::of(wrong).unwrap_err().to_string().contains("at least 50ms"));
        }
    }

    #[test]
    fn impossible_settings_are_refused_with_what_to_change() {
        let pace = |change: fn(&mut Pace)| {
            let mut pace = Pace::LAN;
            change(&mut pace);
            nodes(3).pace(pace).build().unwrap_err()
        };
        for (error, says) in [
            (nodes(0).build().unwrap_err(), "at least one node"),
            (nodes(3).guard(Guard::Quorum(4)).build().unwrap_err(), "between 2 and 3"),
            (nodes(4).guard(Guard::Quorum(2)).build().unwrap_err(), "between 3 and 4"),
            (Settings::of([NodeId(1), NodeId(1)]).build().unwrap_err(), "named twice"),
            (nodes(3).ring([NodeId(1)]).build().unwrap_err(), "every member"),
            (nodes(3).priority(NodeId(9), 1).build().unwrap_err(), "no member"),
            (pace(|it| it.patience_max = Duration::from_millis(1)), "exchange them"),
            (pace(|it| it.heartbeat = Duration::ZERO), "more than zero"),
            (pace(|it| it.heartbeat = Duration::from_millis(100)), "lower heartbeat"),
            (pace(|it| it.reply = Duration::MAX), "at most a day"),
            (pace(|it| it.drift_ppm = 1_000_000), "below 100000"),
            (
                nodes(3).stability(Stability { min_tenure: Duration::MAX, ..Stability::of(&Pace::LAN) }).build().unwrap_err(),
                "min-tenure",
            ),
        ] {
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn the_lease_is_shorter_than_the_promise_by_drift_on_both_sides_and_the_margin() {
        let lease = Pace::LAN.lease();
        // 150 ms · 0.9995 / 1.0005 − 5 ms
        assert_eq!(lease.as_micros(), 144_850);
    }
}
