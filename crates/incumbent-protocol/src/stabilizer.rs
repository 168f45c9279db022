//! The brake against flapping: who failed, or lost the office soon after winning it, stands aside for a while.
//!
//! Standing aside is a courtesy between equals, never a vote: a node that stands aside still votes and still follows. The wait doubles with every
//! strike up to a bound, so that a group whose only fit candidate had bad luck is not kept waiting for long. Who gave the office away stands aside
//! too, but not if nobody else takes it.

use crate::chance::Chance;
use crate::settings::Stability;
use crate::time::Instant;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Stabilizer {
    rules: Stability,
    strikes: u32,
    aside_until: Instant,
    /// The same for having given the office away.
    generous_until: Instant,
}

impl Stabilizer {
    pub(crate) fn new(rules: Stability) -> Self {
        Self { rules, strikes: 0, aside_until: Instant::ZERO, generous_until: Instant::ZERO }
    }

    /// Whether the node may contend now.
    pub(crate) fn may_stand(&self, now: Instant) -> bool {
        now >= self.aside_until && now >= self.generous_until
    }

    /// Whether a tenure that began at `since` has lasted long enough to be ended for another's sake.
    pub(crate) fn has_served(&self, since: Instant, now: Instant) -> bool {
        now - since >= self.rules.min_tenure
    }

    /// The node did not get the votes it asked for.
    pub(crate) fn rejected(&mut self, now: Instant, chance: &mut Chance) {
        let wait = self.rules.aside_min.saturating_mul(1 << self.strikes.min(16)).min(self.rules.aside_max);
        self.strikes = self.strikes.saturating_add(1);
        // Half of it drawn: two that failed together must not return together.
        self.aside_until = now + chance.between(wait / 2, wait);
    }

    /// The node lost the office it had held since `since`, against its will.
    pub(crate) fn deposed(&mut self, since: Instant, now: Instant, chance: &mut Chance) {
        if self.has_served(since, now) {
            self.strikes = 0;
        } else {
            self.rejected(now, chance);
        }
    }

    /// The node gave the office away and must not snatch it back.
    pub(crate) fn gave_away(&mut self, now: Instant) {
        self.strikes = 0;
        self.generous_until = now + self.rules.min_tenure.max(self.rules.aside_min);
    }

    /// A whole patience has gone by without a leader: what was given away was not taken.
    pub(crate) fn unclaimed(&mut self, now: Instant) {
        self.generous_until = self.generous_until.min(now);
    }

    /// The others want this node: what was held against it is forgotten.
    pub(crate) fn called(&mut self, now: Instant) {
        self.aside_until = self.aside_until.min(now);
        self.generous_until = self.generous_until.min(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Pace;
    use core::time::Duration;

    #[test]
    fn strikes_double_the_wait_up_to_a_bound_and_a_full_tenure_clears_them() {
        let rules = Stability::of(&Pace::LAN);
        let (mut it, mut chance) = (Stabilizer::new(rules), Chance::new(1));
        assert!(it.may_stand(Instant::ZERO));
        let mut waits = [Duration::ZERO; 8];
        for wait in &mut waits {
            it.rejected(Instant::ZERO, &mut chance);
            *wait = it.aside_until - Instant::ZERO;
        }
        assert!(waits[0] <= rules.aside_min && waits[0] >= rules.aside_min / 2);
        assert!(waits[7] > rules.aside_min && waits[7] <= rules.aside_max);
        assert!(!it.may_stand(Instant::ZERO + rules.aside_min / 4));
        assert!(it.may_stand(Instant::ZERO + rules.aside_max));

        it.deposed(Instant::ZERO, Instant::ZERO + rules.min_tenure, &mut chance);
        assert_eq!(it.strikes, 0);
    }

    #[test]
    fn who_gave_the_office_away_stands_aside_unless_nobody_takes_it() {
        let mut it = Stabilizer::new(Stability::of(&Pace::LAN));
        let now = Instant::ZERO + Duration::from_secs(9);
        it.gave_away(now);
        assert!(!it.may_stand(now + Duration::from_secs(1)));
        it.unclaimed(now);
        assert!(it.may_stand(now));
    }
}
