//! What can be done to a world, as plain values: they can be drawn, scheduled, printed, dropped from a failing run.
//!
//! Printed they are the words of a scenario file: `crash 3`, `cut 1 > 2`, `partition 1 2 | 3 4 5`.

use std::fmt;
use std::time::Duration;

use incumbent_protocol::protocol::{NodeId, Request};
use incumbent_protocol::settings::Settings;

use crate::network::Delay;

/// Something that happens to the world, and not by itself. What makes no sense at the time (to crash a node that is
/// down) does nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The node's process dies: all but its disk is gone.
    Crash(NodeId),
    /// A crashed node comes up again.
    Restart(NodeId),
    /// The node stands still (SIGSTOP) while its clock runs on; what arrives waits.
    Pause(NodeId),
    /// A paused node goes on, and gets what has waited, in order.
    Resume(NodeId),
    /// From now on the node needs `by` for everything it is given; zero ends it.
    Slow {
        /// The node.
        node: NodeId,
        /// How long it needs.
        by: Duration,
    },
    /// The links carry nothing any more, not even what is under way.
    Cut(Links),
    /// The links carry messages again (unless a partition or an isolation forbids it); [`Links::All`] ends those too.
    Mend(Links),
    /// The links are down and up by turns, half of `period` each.
    Flap {
        /// Which links.
        links: Links,
        /// Down and up once.
        period: Duration,
    },
    /// Only members of one group reach each other. Nodes that no group names make up one more.
    Partition(Vec<Vec<NodeId>>),
    /// Nobody reaches the node and it reaches nobody.
    Isolate(NodeId),
    /// Ends [`Fault::Isolate`].
    Rejoin(NodeId),
    /// From now on messages take this long.
    Delay {
        /// On which links.
        links: Links,
        /// How long.
        delay: Delay,
    },
    /// From now on some messages take this much longer.
    Spikes {
        /// On which links.
        links: Links,
        /// How many in a million.
        ppm: u32,
        /// By how much.
        by: Duration,
    },
    /// From now on messages are lost.
    Loss {
        /// On which links.
        links: Links,
        /// How many in a million.
        ppm: u32,
    },
    /// From now on messages arrive twice.
    Duplicate {
        /// On which links.
        links: Links,
        /// How many in a million.
        ppm: u32,
    },
    /// From now on messages are held back, so that later ones overtake them.
    Reorder {
        /// On which links.
        links: Links,
        /// How many in a million.
        ppm: u32,
        /// For how long at most.
        by: Duration,
    },
    /// From now on the node's clock is this fast, or slow if negative.
    ClockRate {
        /// The node.
        node: NodeId,
        /// In parts per million.
        ppm: i32,
    },
    /// The node's clock jumps forward.
    ClockJump {
        /// The node.
        node: NodeId,
        /// How far.
        by: Duration,
    },
    /// The node's clock stands still, then jumps to where it would have been.
    ClockFreeze {
        /// The node.
        node: NodeId,
        /// For how long.
        lasting: Duration,
    },
    /// From now on every write to the node's disk takes this much longer.
    DiskSlow {
        /// The node.
        node: NodeId,
        /// By how much.
        by: Duration,
    },
    /// From now on no write to the node's disk completes.
    DiskStall(NodeId),
    /// Ends [`Fault::DiskSlow`] and [`Fault::DiskStall`].
    DiskNormal(NodeId),
    /// The node's own user or driver wants something. [`Request::Suspect`] is a hint, true or false.
    Request {
        /// The node.
        node: NodeId,
        /// What is wanted.
        request: Request,
    },
    /// Something on the way resets healthy connections (C29): every follower gets a hint that its leader may be gone.
    ResetStorm {
        /// How often.
        every: Duration,
        /// How many times.
        times: u32,
    },
    /// Everything works again: links, disks, clocks and speeds as they were when the world began, paused nodes go on,
    /// crashed ones come up. Faults that were scheduled are called off.
    Heal,
}

/// Some of the links.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Links {
    /// Every link.
    All,
    /// The link between two nodes, both ways.
    Between(NodeId, NodeId),
    /// One way of it.
    OneWay {
        /// The sender.
        from: NodeId,
        /// The receiver.
        to: NodeId,
    },
}

impl Fault {
    /// Cuts the link between two nodes, both ways.
    pub fn cut(a: NodeId, b: NodeId) -> Fault {
        Fault::Cut(Links::Between(a, b))
    }

    /// Cuts the way from one node to another.
    pub fn cut_one_way(from: NodeId, to: NodeId) -> Fault {
        Fault::Cut(Links::OneWay { from, to })
    }

    /// Whether every clock stays within this bound of drift, whatever else it does.
    pub fn keeps_time(&self, drift_ppm: u32) -> bool {
        match self {
            Fault::ClockRate { ppm, .. } => ppm.unsigned_abs() <= drift_ppm,
            Fault::ClockJump { .. } | Fault::ClockFreeze { .. } => false,
            Fault::Crash(_)
            | Fault::Restart(_)
            | Fault::Pause(_)
            | Fault::Resume(_)
            | Fault::Slow { .. }
            | Fault::Cut(_)
            | Fault::Mend(_)
            | Fault::Flap { .. }
            | Fault::Partition(_)
            | Fault::Isolate(_)
            | Fault::Rejoin(_)
            | Fault::Delay { .. }
            | Fault::Spikes { .. }
            | Fault::Loss { .. }
            | Fault::Duplicate { .. }
            | Fault::Reorder { .. }
            | Fault::DiskSlow { .. }
            | Fault::DiskStall(_)
            | Fault::DiskNormal(_)
            | Fault::Request { .. }
            | Fault::ResetStorm { .. }
            | Fault::Heal => true,
        }
    }

    /// The nodes that it names.
    pub fn nodes(&self) -> Vec<NodeId> {
        match self {
            Fault::Crash(node)
            | Fault::Restart(node)
            | Fault::Pause(node)
            | Fault::Resume(node)
            | Fault::Isolate(node)
            | Fault::Rejoin(node)
            | Fault::DiskStall(node)
            | Fault::DiskNormal(node)
            | Fault::Slow { node, .. }
            | Fault::ClockRate { node, .. }
            | Fault::ClockJump { node, .. }
            | Fault::ClockFreeze { node, .. }
            | Fault::DiskSlow { node, .. } => vec![*node],
            Fault::Cut(links)
            | Fault::Mend(links)
            | Fault::Flap { links, .. }
            | Fault::Delay { links, .. }
            | Fault::Spikes { links, .. }
            | Fault::Loss { links, .. }
            | Fault::Duplicate { links, .. }
            | Fault::Reorder { links, .. } => match *links {
                Links::All => Vec::new(),
                Links::Between(a, b) => vec![a, b],
                Links::OneWay { from, to } => vec![from, to],
            },
            Fault::Partition(groups) => groups.concat(),
            Fault::Request { node, request } => match *request {
                Request::Campaign | Request::Resign | Request::Abstain | Request::Stand => vec![*node],
                Request::HandOver { to: peer } | Request::Suspect { peer } | Request::Dead { peer } => vec![*node, peer],
            },
            Fault::ResetStorm { .. } | Fault::Heal => Vec::new(),
        }
    }

    /// A node that it names and that is no member. The world takes only faults without one.
    pub fn stranger(&self, settings: &Settings) -> Option<NodeId> {
        self.nodes().into_iter().find(|node| settings.rank(*node).is_none())
    }
}

impl fmt::Display for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Links::All => f.write_str("all"),
            Links::Between(a, b) => write!(f, "{a} {b}"),
            Links::OneWay { from, to } => write!(f, "{from} > {to}"),
        }
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Delay::Constant(span) => write!(f, "{}", Span(span)),
            Delay::Uniform { min, max } => write!(f, "{} to {}", Span(min), Span(max)),
            Delay::Tail { base, mean } => write!(f, "{} tail {}", Span(base), Span(mean)),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Crash(node) => write!(f, "crash {node}"),
            Fault::Restart(node) => write!(f, "restart {node}"),
            Fault::Pause(node) => write!(f, "pause {node}"),
            Fault::Resume(node) => write!(f, "resume {node}"),
            Fault::Slow { node, by } => write!(f, "slow {node} {}", Span(*by)),
            Fault::Cut(links) => write!(f, "cut {links}"),
            Fault::Mend(links) => write!(f, "mend {links}"),
            Fault::Flap { links, period } => write!(f, "flap {links} {}", Span(*period)),
            Fault::Partition(groups) => {
                f.write_str("partition")?;
                for (index, group) in groups.iter().enumerate() {
                    f.write_str(if index == 0 { "" } else { " |" })?;
                    group.iter().try_for_each(|node| write!(f, " {node}"))?;
                }
                Ok(())
            }
            Fault::Isolate(node) => write!(f, "isolate {node}"),
            Fault::Rejoin(node) => write!(f, "rejoin {node}"),
            Fault::Delay { links, delay } => write!(f, "delay {links} {delay}"),
            Fault::Spikes { links, ppm, by } => write!(f, "spikes {links} {} {}", Percent(*ppm), Span(*by)),
            Fault::Loss { links, ppm } => write!(f, "loss {links} {}", Percent(*ppm)),
            Fault::Duplicate { links, ppm } => write!(f, "duplicate {links} {}", Percent(*ppm)),
            Fault::Reorder { links, ppm, by } => write!(f, "reorder {links} {} {}", Percent(*ppm), Span(*by)),
            Fault::ClockRate { node, ppm } => write!(f, "clock {node} rate {ppm:+}ppm"),
            Fault::ClockJump { node, by } => write!(f, "clock {node} jump {}", Span(*by)),
            Fault::ClockFreeze { node, lasting } => write!(f, "clock {node} freeze {}", Span(*lasting)),
            Fault::DiskSlow { node, by } => write!(f, "disk {node} slow {}", Span(*by)),
            Fault::DiskStall(node) => write!(f, "disk {node} stall"),
            Fault::DiskNormal(node) => write!(f, "disk {node} normal"),
            Fault::Request { node, request } => match request {
                Request::Campaign => write!(f, "campaign {node}"),
                Request::Resign => write!(f, "resign {node}"),
                Request::HandOver { to } => write!(f, "hand-over {node} {to}"),
                Request::Suspect { peer } => write!(f, "suspect {node} {peer}"),
                Request::Dead { peer } => write!(f, "dead {node} {peer}"),
                Request::Abstain => write!(f, "abstain {node}"),
                Request::Stand => write!(f, "stand {node}"),
            },
            Fault::ResetStorm { every, times } => write!(f, "reset-storm {} {times} times", Span(*every)),
            Fault::Heal => f.write_str("heal"),
        }
    }
}

/// A span in the greatest unit that needs no fraction: `1500ms`, `2s`, `20us`.
struct Span(Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let (size, unit) = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")]
            .into_iter()
            .find(|(size, _)| nanos.is_multiple_of(*size))
            .unwrap_or((1, "ns"));
        write!(f, "{}{unit}", nanos / size)
    }
}

/// Parts per million as percent, without trailing zeros: `30%`, `0.05%`.
struct Percent(u32);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 10_000, self.0 % 10_000);
        if rest == 0 {
            return write!(f, "{whole}%");
        }
        let digits = format!("{rest:04}");
        write!(f, "{whole}.{}%", digits.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn n(id: u32) -> NodeId {
        NodeId(id)
    }

    #[test]
    fn prints_the_words_of_a_scenario_file() {
        for (fault, words) in [
            (Fault::Crash(n(3)), "crash 3"),
            (Fault::cut(n(1), n(2)), "cut 1 2"),
            (Fault::cut_one_way(n(1), n(2)), "cut 1 > 2"),
            (Fault::Mend(Links::All), "mend all"),
            (Fault::Partition(vec![vec![n(1), n(2)], vec![n(3), n(4), n(5)]]), "partition 1 2 | 3 4 5"),
            (Fault::Flap { links: Links::Between(n(1), n(2)), period: MS * 300 }, "flap 1 2 300ms"),
            (Fault::Slow { node: n(2), by: MS * 2000 }, "slow 2 2s"),
            (Fault::Loss { links: Links::All, ppm: 300_000 }, "loss all 30%"),
            (Fault::Loss { links: Links::OneWay { from: n(1), to: n(2) }, ppm: 500 }, "loss 1 > 2 0.05%"),
            (Fault::Delay { links: Links::All, delay: Delay::Uniform { min: MS, max: MS * 20 } }, "delay all 1ms to 20ms"),
            (Fault::Delay { links: Links::All, delay: Delay::Tail { base: MS / 5, mean: MS } }, "delay all 200us tail 1ms"),
            (Fault::ClockRate { node: n(4), ppm: -500 }, "clock 4 rate -500ppm"),
            (Fault::DiskStall(n(4)), "disk 4 stall"),
            (Fault::Request { node: n(1), request: Request::HandOver { to: n(2) } }, "hand-over 1 2"),
            (Fault::ResetStorm { every: MS * 20, times: 50 }, "reset-storm 20ms 50 times"),
        ] {
            assert_eq!(fault.to_string(), words);
        }
    }

    #[test]
    fn a_stranger_is_found_wherever_it_is_named() {
        let settings = Settings::of([n(1), n(2)]).build().unwrap();
        assert_eq!(Fault::cut(n(1), n(2)).stranger(&settings), None);
        for fault in [
            Fault::cut(n(1), n(9)),
            Fault::Crash(n(9)),
            Fault::Partition(vec![vec![n(1)], vec![n(2), n(9)]]),
            Fault::Request { node: n(1), request: Request::Suspect { peer: n(9) } },
        ] {
            assert_eq!(fault.stranger(&settings), Some(n(9)), "{fault}");
        }
    }
}
