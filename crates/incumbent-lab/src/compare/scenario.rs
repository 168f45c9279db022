//! What is done to the groups that are compared: a few situations that everyone who runs a group of nodes meets.
//!
//! Every time here is a multiple of the group's own patience, so that a scenario means the same at every pace. What is left to chance
//! (how fast a link flaps) follows from the run's seed and not from the protocol, so that all protocols meet the same fate.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use incumbent_protocol::chance::Chance;
use incumbent_protocol::protocol::{NodeId, Request};
use incumbent_protocol::settings::{Invalid, Settings};

use crate::fault::{Fault, Links};

/// A situation.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scenario {
    /// All nodes start at once.
    ColdStart,
    /// The leader's process dies and stays dead.
    LeaderCrash,
    /// The leader's process dies and comes back.
    LeaderReturn,
    /// More than half of the nodes die, the leader among them, and come back later.
    MajorityCrash,
    /// The leader gives the office back and its process ends.
    Resign,
    /// The leader gives the office to another node.
    HandOver,
    /// The leader and less than half of the nodes are cut off from the others for a while.
    Partition,
    /// The leader is heard but hears nobody, for a while.
    OneWay,
    /// The leader stands still for a while (a long pause of its process or its machine).
    Pause,
    /// The leader is slow over everything it is given, for a while.
    SlowNode,
    /// All links of the leader are down and up by turns.
    Flapping,
    /// A fifth of all messages is lost.
    Loss,
}

impl Scenario {
    /// All of them, from the everyday to the nasty.
    pub const ALL: [Scenario; 12] = [
        Scenario::ColdStart,
        Scenario::LeaderCrash,
        Scenario::LeaderReturn,
        Scenario::Resign,
        Scenario::HandOver,
        Scenario::MajorityCrash,
        Scenario::Partition,
        Scenario::OneWay,
        Scenario::Pause,
        Scenario::SlowNode,
        Scenario::Flapping,
        Scenario::Loss,
    ];

    /// Its name, as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::ColdStart => "cold-start",
            Scenario::LeaderCrash => "leader-crash",
            Scenario::LeaderReturn => "leader-return",
            Scenario::MajorityCrash => "majority-crash",
            Scenario::Resign => "resign",
            Scenario::HandOver => "handover",
            Scenario::Partition => "partition",
            Scenario::OneWay => "one-way",
            Scenario::Pause => "pause",
            Scenario::SlowNode => "slow-node",
            Scenario::Flapping => "flapping",
            Scenario::Loss => "loss",
        }
    }

    /// What happens, in a sentence.
    pub fn meaning(self) -> &'static str {
        match self {
            Scenario::ColdStart => "All nodes start at once; nobody has led before.",
            Scenario::LeaderCrash => "The leader's process dies and stays dead.",
            Scenario::LeaderReturn => "The leader's process dies and is back a little later.",
            Scenario::MajorityCrash => "More than half of the nodes die, the leader among them, and come back later.",
            Scenario::Resign => "The leader gives the office back and its process ends, as in an upgrade.",
            Scenario::HandOver => "The leader gives the office to another node.",
            Scenario::Partition => {
                "The leader and less than half of the nodes are cut off from the others; later the network heals."
            }
            Scenario::OneWay => "Nothing reaches the leader any more, but all still hear it; later the network heals.",
            Scenario::Pause => {
                "The leader's process stands still (SIGSTOP, a suspended machine), then goes on as if nothing had happened."
            }
            Scenario::SlowNode => {
                "The leader takes as long over everything it is given as an answer may take at the most; later it is well again."
            }
            Scenario::Flapping => "All links of the leader are down and up by turns, faster or slower than patience ends.",
            Scenario::Loss => "A fifth of all messages is lost.",
        }
    }

    /// The sizes that are compared unless others are asked for. Where the growth of messages is the question, great ones too.
    pub fn sizes(self) -> &'static [u32] {
        match self {
            Scenario::ColdStart | Scenario::LeaderCrash => &[3, 5, 10, 50, 100],
            Scenario::LeaderReturn
            | Scenario::MajorityCrash
            | Scenario::Resign
            | Scenario::HandOver
            | Scenario::Partition
            | Scenario::OneWay
            | Scenario::Pause
            | Scenario::SlowNode
            | Scenario::Flapping
            | Scenario::Loss => &[5],
        }
    }

    /// The smallest group to which it can happen.
    pub fn nodes_min(self) -> u32 {
        match self {
            Scenario::ColdStart | Scenario::Loss => 1,
            Scenario::LeaderCrash
            | Scenario::LeaderReturn
            | Scenario::MajorityCrash
            | Scenario::Resign
            | Scenario::HandOver
            | Scenario::Partition
            | Scenario::OneWay
            | Scenario::Pause
            | Scenario::SlowNode
            | Scenario::Flapping => 2,
        }
    }

    /// Whether it begins with a group that has a leader already.
    pub(crate) fn begins_led(self) -> bool {
        self != Scenario::ColdStart
    }

    /// What is done to a group that `leader` leads.
    pub(crate) fn script(self, settings: &Settings, leader: NodeId, chance: &mut Chance) -> Script {
        let patience = settings.pace().patience_max;
        let others: Vec<NodeId> = settings.members().iter().copied().filter(|id| *id != leader).collect();
        let incident = |begins, until, ends, text: String, nodes| Incident { until, begins, ends, text, nodes };
        let (incidents, lasts) = match self {
            Scenario::ColdStart => (vec![], 10),
            Scenario::LeaderCrash => {
                (vec![incident(vec![Fault::Crash(leader)], None, vec![], format!("node {leader} is down"), vec![leader])], 10)
            }
            Scenario::LeaderReturn => {
                let (dies, returns) = (vec![Fault::Crash(leader)], vec![Fault::Restart(leader)]);
                (vec![incident(dies, Some(patience * 3), returns, format!("node {leader} is down"), vec![leader])], 20)
            }
            Scenario::MajorityCrash => {
                let fallen: Vec<NodeId> = [leader].into_iter().chain(others).take(settings.majority()).collect();
                let dies = fallen.iter().map(|id| Fault::Crash(*id)).collect();
                let returns = fallen.iter().map(|id| Fault::Restart(*id)).collect();
                (vec![incident(dies, Some(patience * 10), returns, format!("nodes {} are down", list(&fallen)), fallen)], 20)
            }
            Scenario::Resign => {
                let gives = vec![Fault::Request { node: leader, request: Request::Resign }, Fault::Crash(leader)];
                (vec![incident(gives, None, vec![], format!("node {leader} has resigned and ended"), vec![leader])], 10)
            }
            Scenario::HandOver => {
                let to = neighbour(&others, leader);
                let gives = vec![Fault::Request { node: leader, request: Request::HandOver { to } }];
                (
                    vec![incident(
                        gives,
                        Some(Duration::ZERO),
                        vec![],
                        format!("node {leader} hands over to {to}"),
                        vec![leader, to],
                    )],
                    10,
                )
            }
            Scenario::Partition => {
                // The greatest ids go with the leader: the other side must make do without them.
                let company = ((settings.members().len() - 1) / 2).saturating_sub(1);
                let few: Vec<NodeId> = [leader].into_iter().chain(others.iter().rev().copied().take(company)).collect();
                let many: Vec<NodeId> = others.iter().copied().filter(|id| !few.contains(id)).collect();
                let splits = vec![Fault::Partition(vec![few.clone(), many])];
                let mends = vec![Fault::Mend(Links::All)];
                (
                    vec![incident(
                        splits,
                        Some(patience * 10),
                        mends,
                        format!("nodes {} are cut off from the others", list(&few)),
                        few,
                    )],
                    20,
                )
            }
            Scenario::OneWay => {
                let cuts = others.iter().map(|id| Fault::cut_one_way(*id, leader)).collect();
                let mends = vec![Fault::Mend(Links::All)];
                (vec![incident(cuts, Some(patience * 10), mends, format!("node {leader} hears nobody"), vec![leader])], 20)
            }
            Scenario::Pause => {
                let (stops, goes_on) = (vec![Fault::Pause(leader)], vec![Fault::Resume(leader)]);
                (vec![incident(stops, Some(patience * 5), goes_on, format!("node {leader} stands still"), vec![leader])], 15)
            }
            Scenario::SlowNode => {
                // As long as an answer may take: bearable for one question, hopeless for a stream of them.
                let slow = |by| vec![Fault::Slow { node: leader, by }];
                let by = settings.pace().reply;
                (
                    vec![incident(
                        slow(by),
                        Some(patience * 10),
                        slow(Duration::ZERO),
                        format!("node {leader} is slow"),
                        vec![leader],
                    )],
                    20,
                )
            }
            Scenario::Flapping => {
                let period = chance.between(patience * 3 / 10, patience * 3);
                let flaps = others.iter().map(|id| Fault::Flap { links: Links::Between(leader, *id), period }).collect();
                (vec![incident(flaps, None, vec![], format!("the links of node {leader} flap"), vec![leader])], 40)
            }
            Scenario::Loss => {
                let loses = vec![Fault::Loss { links: Links::All, ppm: 200_000 }];
                (vec![incident(loses, None, vec![], "a fifth of all messages is lost".into(), vec![])], 40)
            }
        };
        Script { incidents, lasts: patience * lasts }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Scenario {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Scenario::ALL.into_iter().find(|it| it.name() == text).ok_or_else(|| Invalid::Unknown {
            what: "scenario",
            given: text.to_owned(),
            known: "cold-start, leader-crash, leader-return, resign, handover, majority-crash, partition, one-way, pause, slow-node, \
                    flapping, loss",
        })
    }
}

/// What is done in one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Script {
    /// All begin together, when the figures begin to count.
    pub(crate) incidents: Vec<Incident>,
    /// How long the run is observed from there.
    pub(crate) lasts: Duration,
}

/// Something that goes wrong, and perhaps is put right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Incident {
    /// What begins it.
    pub(crate) begins: Vec<Fault>,
    /// After how long it ends; `None` if it does not.
    pub(crate) until: Option<Duration>,
    /// What ends it.
    pub(crate) ends: Vec<Fault>,
    /// What it is, for people.
    pub(crate) text: String,
    /// Whom it hits; empty: all.
    pub(crate) nodes: Vec<NodeId>,
}

/// The greatest id below `leader`, or the greatest of all if it is the smallest.
fn neighbour(others: &[NodeId], leader: NodeId) -> NodeId {
    let below = others.iter().rev().find(|id| **id < leader);
    *below.or(others.last()).expect("a scenario with another node has one")
}

fn list(nodes: &[NodeId]) -> String {
    nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_an_unknown_one_lists_all() {
        for scenario in Scenario::ALL {
            assert_eq!(scenario.name().parse(), Ok(scenario));
            let error = "leader-chrash".parse::<Scenario>().unwrap_err().to_string();
            assert!(error.contains(scenario.name()), "{error}");
        }
    }

    #[test]
    fn every_scenario_is_possible_in_its_smallest_group_whoever_leads() {
        for scenario in Scenario::ALL {
            for count in scenario.nodes_min()..=6 {
                let settings = Settings::of((1..=count).map(NodeId)).build().unwrap();
                for leader in settings.members() {
                    let script = scenario.script(&settings, *leader, &mut Chance::new(1));
                    for incident in &script.incidents {
                        for fault in incident.begins.iter().chain(&incident.ends) {
                            assert_eq!(fault.stranger(&settings), None, "{scenario}: {fault}");
                        }
                        assert!(incident.until.is_none_or(|until| until < script.lasts), "{scenario}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_partition_leaves_the_leader_with_less_than_half() {
        for count in 2..=9u32 {
            let settings = Settings::of((1..=count).map(NodeId)).build().unwrap();
            let script = Scenario::Partition.script(&settings, NodeId(1), &mut Chance::new(1));
            let Fault::Partition(groups) = &script.incidents[0].begins[0] else { panic!() };
            let (few, many) = (&groups[0], &groups[1]);
            assert_eq!(few.len() + many.len(), count as usize);
            assert!(few.contains(&NodeId(1)));
            assert!(many.len() >= settings.majority() || count == 2, "{count}: {groups:?}");
        }
    }
}
