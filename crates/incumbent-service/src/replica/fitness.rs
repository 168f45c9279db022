//! Whether a node should lead: how long its disk takes, and what the others say of theirs.
//!
//! **Problem.** A leader whose disk is slow holds up everybody (C52), and if all disks are slow nobody leads while each makes way for the next. **Insight.** Slow is only
//! slower than somebody else: so nodes say in whatever they send how long their disks take, and a leader makes way for one that would do clearly better, or stays.

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

    /// What another node says of its disk.
    pub(super) fn on_told(&mut self, from: NodeId, disk_ms: u32) {
        self.others.insert(from, Duration::from_millis(disk_ms.into()));
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

    /// Whether `other` is known to have a disk with which it would do clearly better than one that takes as long as `own`.
    pub(super) fn is_better(&self, other: NodeId, own: Duration, settings: &Settings) -> bool {
        self.others
            .get(&other)
            .is_some_and(|disk| disk.saturating_mul(MUCH_QUICKER) < own || *disk <= settings.disk_patience / QUICK_PART)
    }

    /// Whether nothing is known against the disk of `other`.
    pub(super) fn is_quick(&self, other: NodeId, settings: &Settings) -> bool {
        self.others.get(&other).is_none_or(|disk| *disk < settings.disk_patience)
    }
}

/// As it is told to others.
pub(super) fn told(disk: Duration) -> u32 {
    u32::try_from(disk.as_millis()).unwrap_or(u32::MAX)
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
    fn better_is_who_is_quick_or_much_quicker_and_not_who_is_unknown_or_full() {
        let settings = Settings::lan();
        let mut one = Fitness::default();
        for (node, disk_ms) in [(1, 100), (2, 101), (3, 700), (4, u32::MAX)] {
            one.on_told(NodeId(node), disk_ms);
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
