//! When is a silent leader gone? A fixed patience, or one learned from how regularly heartbeats come.
//!
//! The learned one is Jacobson's estimate (mean and mean deviation, as TCP keeps for its round trips) over the gaps between
//! heartbeats. Under a quorum guard it only ever waits longer than the fixed one: voters are bound for `patience_min` anyway.
//! It cannot foresee the first long gap; it keeps the second from costing an election.

use core::time::Duration;

use crate::chance::Chance;
use crate::protocol::NodeId;
use crate::settings::{Detection, Settings};
use crate::time::{Instant, nanos};

/// Gaps seen before the estimate is trusted.
const GAPS_MIN: u32 = 4;

/// Learned patience is at most this many times the fixed one: a leader that is heard that rarely is no use.
const LEARNED_FACTOR_MAX: u32 = 8;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Detector {
    leader: Option<NodeId>,
    heard_at: Instant,
    gaps: u32,
    mean_ns: u64,
    deviation_ns: u64,
}

impl Detector {
    pub(crate) fn new(now: Instant) -> Self {
        Self { leader: None, heard_at: now, gaps: 0, mean_ns: 0, deviation_ns: 0 }
    }

    /// Notes a heartbeat of `leader`.
    pub(crate) fn heard(&mut self, leader: NodeId, now: Instant) {
        if self.leader != Some(leader) {
            *self = Self { leader: Some(leader), ..Self::new(now) };
            return;
        }
        let gap = nanos(now - self.heard_at);
        self.heard_at = now;
        if self.gaps == 0 {
            (self.mean_ns, self.deviation_ns) = (gap, gap / 2);
        } else {
            let error = gap.abs_diff(self.mean_ns);
            self.mean_ns = self.mean_ns - self.mean_ns / 8 + gap / 8;
            self.deviation_ns = self.deviation_ns - self.deviation_ns / 4 + error / 4;
        }
        self.gaps = self.gaps.saturating_add(1);
    }

    /// Since when nothing was heard.
    pub(crate) fn heard_at(&self) -> Instant {
        self.heard_at
    }

    /// How long to wait from the last sign of life before giving up. Drawn anew each time, so that followers seldom give up together.
    pub(crate) fn patience(&self, settings: &Settings, chance: &mut Chance) -> Duration {
        let pace = settings.pace();
        let spread = pace.patience_max.saturating_sub(pace.patience_min);
        match settings.detection() {
            Detection::Adaptive if self.gaps >= GAPS_MIN => {
                let floor = match settings.quorum() {
                    Some(_) => pace.patience_min,
                    // One lost heartbeat must not look like a death.
                    None => (pace.heartbeat * 5 / 2).min(pace.patience_min),
                };
                let learned =
                    Duration::from_nanos(self.mean_ns.saturating_mul(2).saturating_add(self.deviation_ns.saturating_mul(4)));
                let low = learned.clamp(floor, pace.patience_min.max(floor) * LEARNED_FACTOR_MAX);
                low + chance.between(Duration::ZERO, spread.min(low))
            }
            Detection::Adaptive | Detection::Fixed => chance.between(pace.patience_min, pace.patience_max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Guard, Pace};

    fn learned(guard: Guard, gap: Duration) -> Duration {
        let settings = Settings::of([NodeId(1), NodeId(2)]).guard(guard).detection(Detection::Adaptive).build().unwrap();
        let mut detector = Detector::new(Instant::ZERO);
        let mut now = Instant::ZERO;
        for _ in 0..50 {
            now = now + gap;
            detector.heard(NodeId(2), now);
        }
        (0..100).map(|seed| detector.patience(&settings, &mut Chance::new(seed))).min().unwrap()
    }

    #[test]
    fn a_quick_network_is_given_up_on_sooner_but_never_before_the_lease_under_guard() {
        let gap = Pace::LAN.heartbeat;
        assert!(learned(Guard::Off, gap) < Pace::LAN.patience_min);
        assert!(learned(Guard::Majority, gap) >= Pace::LAN.patience_min);
    }

    #[test]
    fn a_slow_network_is_waited_for() {
        assert!(learned(Guard::Majority, Duration::from_millis(250)) >= Duration::from_millis(500));
    }

    #[test]
    fn a_new_leader_is_learned_anew() {
        let mut detector = Detector::new(Instant::ZERO);
        for step in 1..10u64 {
            detector.heard(NodeId(2), Instant::from_nanos(step * 1000));
        }
        detector.heard(NodeId(3), Instant::from_nanos(20_000));
        assert_eq!(detector.gaps, 0);
    }
}
