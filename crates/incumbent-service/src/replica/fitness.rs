//! Whether a node should lead: how long its disk takes, whether it is starved of processors, and what the others say of themselves.
//!
//! **Problem.** A leader whose disk is slow holds up everybody (C52), as does one that is always woken late (C12); and if all are slow nobody leads while each makes way for the next. **Insight.** Slow is only
//! slower than somebody else: so nodes say in whatever they send how slow they are, and a leader makes way for one that would do clearly better, or stays. A follower has nothing to be late for: that a node is starved
//! shows when it leads, and it is believed to be so for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use incumbent_protocol::protocol::NodeId;
use incumbent_protocol::time::Instant;

use super::exchange::Health;
use super::settings::Settings;

/// A disk that was slow is trusted again after so many quick writes in a row ...
const QUICK_WRITES: u32 = 16;

/// ... or so many times as long after the last slow one as a write may take. Nobody may have anything to write, and without this a moment's hiccup would
/// make a node unfit for ever.
const PATIENCES_TO_TRUST: u32 = 10;

/// A disk is better than a slow one if it is quicker by this factor: a change of leaders costs several writes, and times of one disk differ by less.
const MUCH_QUICKER: u32 = 4;

/// ... or if it takes at most this part of what a write may take.
const QUICK_PART: u32 = 2;

/// So long a leader that was woken late is believed to be starved.
const STARVED_FOR: Duration = Duration::from_secs(60);

/// Of a disk that takes nothing.
const NEVER: Duration = Duration::from_millis(u32::MAX as u64);

#[derive(Default)]
pub(super) struct Fitness {
    /// Nothing can be written at all.
    unfit: bool,
    /// About the longest of the last writes.
    shown: Duration,
    quick_writes: u32,
    /// A slow disk is trusted again then.
    slow_until: Instant,
    /// This node was starved when it last led, and may be until then.
    starved_until: Instant,
    others: BTreeMap<NodeId, Duration>,
}

impl Fitness {
    pub(super) fn judge(&mut self, health: Health) {
        self.unfit = health == Health::Unfit;
    }

    pub(super) fn on_written(&mut self, now: Instant, took: Duration, settings: &Settings) {
        let slow = self.shown >= settings.disk_patience;
        if took >= settings.disk_patience {
            (self.shown, self.quick_writes) = (took.max(self.shown / 2), 0);
            self.slow_until = now + settings.disk_patience * PATIENCES_TO_TRUST;
        } else if slow && now < self.slow_until && self.quick_writes < QUICK_WRITES {
            self.quick_writes += 1;
        } else {
            self.shown = took;
        }
    }

    /// This node leads, and is woken late.
    pub(super) fn on_late(&mut self, now: Instant) {
        self.starved_until = now + STARVED_FOR;
    }

    /// What another node says of itself.
    pub(super) fn on_told(&mut self, from: NodeId, slow_ms: u32) {
        self.others.insert(from, Duration::from_millis(slow_ms.into()));
    }

    /// Who is no member any more has nothing to say.
    pub(super) fn forget(&mut self, is_member: impl Fn(NodeId) -> bool) {
        self.others.retain(|node, _| is_member(*node));
    }

    /// How long this node's disk takes, if the oldest write that it has not confirmed was given to it at `waiting`.
    pub(super) fn disk(&self, now: Instant, waiting: Option<Instant>, settings: &Settings) -> Duration {
        if self.unfit {
            return NEVER;
        }
        let trusted = self.shown >= settings.disk_patience && now >= self.slow_until;
        let shown = if trusted { Duration::ZERO } else { self.shown };
        waiting.map_or(Duration::ZERO, |since| now - since).max(shown)
    }

    /// How slow a node is whose disk takes so long: one that is starved is as slow as a disk that is just too slow.
    pub(super) fn slowness(&self, now: Instant, disk: Duration, settings: &Settings) -> Duration {
        if now < self.starved_until { disk.max(settings.disk_patience) } else { disk }
    }

    /// Whether `other` is known to be one that would do clearly better than one that is as slow as `own`.
    pub(super) fn is_better(&self, other: NodeId, own: Duration, settings: &Settings) -> bool {
        self.others
            .get(&other)
            .is_some_and(|slow| slow.saturating_mul(MUCH_QUICKER) < own || *slow <= settings.disk_patience / QUICK_PART)
    }

    /// Whether nothing is known against `other`.
    pub(super) fn is_quick(&self, other: NodeId, settings: &Settings) -> bool {
        self.others.get(&other).is_none_or(|slow| *slow < settings.disk_patience)
    }
}

/// As it is told to others.
pub(super) fn told(slow: Duration) -> u32 {
    u32::try_from(slow.as_millis()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    fn at(number: u64) -> Instant {
        Instant::ZERO + ms(number)
    }

    #[test]
    fn a_slow_disk_is_trusted_after_quick_writes_or_after_a_while_without_any() {
        let settings = Settings::lan();
        let mut one = Fitness::default();
        one.on_written(at(0), ms(500), &settings);
        assert_eq!(one.disk(at(1), None, &settings), ms(500));
        for _ in 0..QUICK_WRITES {
            one.on_written(at(1), ms(2), &settings);
            assert_eq!(one.disk(at(1), None, &settings), ms(500));
        }
        one.on_written(at(1), ms(2), &settings);
        assert_eq!(one.disk(at(1), None, &settings), ms(2));
        one.on_written(at(10), ms(900), &settings);
        assert_eq!(one.disk(at(2_009), None, &settings), ms(900));
        assert_eq!(one.disk(at(2_010), None, &settings), ms(0));
        assert_eq!(one.disk(at(2_010), Some(at(10)), &settings), ms(2_000), "what it has not written yet counts");
    }

    #[test]
    fn a_leader_that_was_late_is_slow_for_a_minute() {
        let settings = Settings::lan();
        let mut one = Fitness::default();
        assert_eq!(one.slowness(at(0), ms(2), &settings), ms(2));
        one.on_late(at(0));
        assert_eq!(one.slowness(at(59_999), ms(2), &settings), ms(200));
        assert_eq!(one.slowness(at(59_999), ms(900), &settings), ms(900));
        assert_eq!(one.slowness(at(60_000), ms(2), &settings), ms(2));
    }

    #[test]
    fn better_is_who_is_quick_or_much_quicker_and_not_who_is_unknown_or_full() {
        let settings = Settings::lan();
        let mut one = Fitness::default();
        for (node, slow_ms) in [(1, 100), (2, 101), (3, 700), (4, u32::MAX)] {
            one.on_told(NodeId(node), slow_ms);
        }
        let better = |own| (0..5).filter(|it| one.is_better(NodeId(*it), own, &settings)).collect::<Vec<u32>>();
        assert_eq!(better(ms(400)), [1]);
        assert_eq!(better(ms(405)), [1, 2]);
        assert_eq!(better(ms(2_801)), [1, 2, 3]);
        let mut full = Fitness::default();
        full.judge(Health::Unfit);
        assert_eq!(told(full.disk(at(1), None, &settings)), u32::MAX);
        assert_eq!(better(NEVER), [1, 2, 3]);
    }
}
