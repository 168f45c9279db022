//! By how much the clocks of a world differ from true time: those of its nodes, and those of its clients.

use incumbent_protocol::chance::Chance;

/// By how much the clocks of a world may differ from true time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Clocks {
    /// By what every lease allows for.
    WithinBound,
    /// By far more, one way or the other (C35).
    BeyondBound,
}

impl Clocks {
    const BOUND_PPM: i64 = 500;
    const BEYOND_PPM: i64 = 83_000;

    pub(crate) fn drift_ppm(self, chance: &mut Chance) -> i64 {
        match self {
            Clocks::WithinBound => chance.below(2 * Clocks::BOUND_PPM as u64 + 1) as i64 - Clocks::BOUND_PPM,
            Clocks::BeyondBound if chance.happens(500_000) => Clocks::BEYOND_PPM,
            Clocks::BeyondBound => -Clocks::BEYOND_PPM,
        }
    }
}
