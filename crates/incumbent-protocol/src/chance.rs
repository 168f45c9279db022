//! Chance as a value: a small generator that starts from a seed, so that a run can be had again.

use core::time::Duration;

/// SplitMix64 (Steele, Lea and Flood 2014): eight bytes of state, no bad seeds, plenty for timeouts and faults. Not for secrets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Chance(u64);

impl Chance {
    /// A generator that always gives the same numbers for the same `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0..end`; 0 if `end` is 0. The bias of at most `end / 2^64` does not matter here.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// A span in `low..=high`; `low` if the range is empty.
    pub fn between(&mut self, low: Duration, high: Duration) -> Duration {
        let width = crate::time::nanos(high.saturating_sub(low));
        low + Duration::from_nanos(self.below(width.saturating_add(1)))
    }

    /// True `parts_per_million` times in a million.
    pub fn happens(&mut self, parts_per_million: u32) -> bool {
        self.below(1_000_000) < u64::from(parts_per_million)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_and_stays_in_range() {
        let (mut a, mut b) = (Chance::new(7), Chance::new(7));
        for _ in 0..1000 {
            assert_eq!(a.bits(), b.bits());
            let span = a.between(Duration::from_millis(150), Duration::from_millis(300));
            b.bits();
            assert!((150..=300).contains(&span.as_millis()));
        }
        assert_eq!(a.below(0), 0);
        assert!(!a.happens(0) && a.happens(1_000_000));
    }
}
