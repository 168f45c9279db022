//! A node's own clock: how its time follows from true time, and true time from it.
//!
//! A clock starts anywhere, runs a little fast or slow, may jump forward and may stand still for a while; it never goes
//! back. Both directions are exact integer arithmetic: [`Clock::moment`] gives the first moment at which the clock shows an
//! instant, so a node woken then is never woken too early.

use std::time::Duration;

use incumbent_protocol::chance::Chance;
use incumbent_protocol::time::Instant;

use crate::observation::Moment;

/// A rate is a multiple of 2^-32: finer than a thousandth of a part per million, and a multiplication away from use.
const UNIT: u64 = 1 << 32;

/// How the clocks of a world differ from true time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ClockSettings {
    /// Each clock's rate is drawn within this many parts per million of true, on both sides.
    pub rate_ppm_max: u32,
    /// Each clock shows an instant of its own when the world begins, drawn below this.
    pub origin_max: Instant,
}

impl ClockSettings {
    /// Clocks that show true time.
    pub const EXACT: ClockSettings = ClockSettings { rate_ppm_max: 0, origin_max: Instant::ZERO };

    /// Clocks that differ by at most `ppm` and have been up for at most 100 days.
    pub const fn within(ppm: u32) -> ClockSettings {
        ClockSettings { rate_ppm_max: ppm, origin_max: Instant::from_nanos(100 * 86_400 * 1_000_000_000) }
    }
}

/// One node's clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Clock {
    /// The present line: at `since` the clock showed `shown`, and it runs at `rate` from there.
    since: Moment,
    shown: Instant,
    rate: u64,
    /// The rate that the clock has when nothing is wrong with it.
    natural: u64,
    /// While the clock stands still: the rate it goes on with.
    held: Option<u64>,
}

impl Clock {
    /// The clock that `chance` draws.
    pub fn draw(settings: &ClockSettings, chance: &mut Chance) -> Clock {
        let shown = Instant::from_nanos(chance.below(settings.origin_max.as_nanos().saturating_add(1)));
        let span = i64::from(settings.rate_ppm_max);
        let ppm = chance.below(span.unsigned_abs() * 2 + 1).cast_signed() - span;
        let rate = rate_of(i32::try_from(ppm).unwrap_or(0));
        Clock { since: Moment::ZERO, shown, rate, natural: rate, held: None }
    }

    /// What the clock shows at `now`, which is never before the last change.
    pub fn read(&self, now: Moment) -> Instant {
        let elapsed = now.0 - self.since.0;
        let local = if self.rate == UNIT { elapsed } else { scale(elapsed, self.rate) };
        Instant::from_nanos(self.shown.as_nanos().saturating_add(local))
    }

    /// The first moment at which the clock shows `instant` or later, if it goes on as it does now.
    /// Not before the last change; [`Moment::NEVER`] if it never shows it.
    pub fn moment(&self, instant: Instant) -> Moment {
        if instant == Instant::NEVER {
            return Moment::NEVER;
        }
        let local = instant.as_nanos().saturating_sub(self.shown.as_nanos());
        let elapsed = match (local, self.rate) {
            (0, _) => 0,
            (_, 0) => return Moment::NEVER,
            (local, UNIT) => local,
            // Up to four seconds, which is the common case, the division fits into 64 bits.
            (local, rate) if local <= u64::from(u32::MAX) => (local << 32).div_ceil(rate),
            (local, rate) => u64::try_from((u128::from(local) << 32).div_ceil(u128::from(rate))).unwrap_or(u64::MAX),
        };
        Moment(self.since.0.saturating_add(elapsed))
    }

    /// From `now` on the clock runs `ppm` parts per million fast, or slow if negative. It cannot run backwards.
    pub fn set_rate(&mut self, now: Moment, ppm: i32) {
        self.turn(now);
        match &mut self.held {
            Some(held) => *held = rate_of(ppm),
            None => self.rate = rate_of(ppm),
        }
    }

    /// At `now` the clock jumps forward.
    pub fn jump(&mut self, now: Moment, by: Duration) {
        self.turn(now);
        self.shown = self.shown + by;
    }

    /// At `now` the clock stops.
    pub fn freeze(&mut self, now: Moment) {
        self.turn(now);
        if self.held.is_none() {
            self.held = Some(std::mem::take(&mut self.rate));
        }
    }

    /// At `now` the clock goes on, and jumps to where it would be had it never stopped (at `stopped`).
    pub fn thaw(&mut self, now: Moment, stopped: Moment) {
        self.turn(now);
        if let Some(held) = self.held.take() {
            self.rate = held;
            self.shown = self.shown + Duration::from_nanos(scale(now.0 - stopped.0, held));
        }
    }

    /// From `now` on the clock runs as it did when the world began.
    pub fn restore(&mut self, now: Moment) {
        self.turn(now);
        self.held = None;
        self.rate = self.natural;
    }

    /// By how many parts per million the clock runs fast at present; -1000000 when it stands still.
    pub fn rate_ppm(&self) -> i64 {
        let millionths = (u128::from(self.rate) * 1_000_000 + u128::from(UNIT / 2)) >> 32;
        i64::try_from(millionths).unwrap_or(i64::MAX) - 1_000_000
    }

    /// Starts a new line where the old one ends.
    fn turn(&mut self, now: Moment) {
        self.shown = self.read(now);
        self.since = now;
    }
}

fn rate_of(ppm: i32) -> u64 {
    let millionths = u64::try_from(1_000_000 + i64::from(ppm)).unwrap_or(0);
    (millionths << 32) / 1_000_000
}

fn scale(elapsed: u64, rate: u64) -> u64 {
    u64::try_from((u128::from(elapsed) * u128::from(rate)) >> 32).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn clock(ppm: i32, shown: u64) -> Clock {
        let rate = rate_of(ppm);
        Clock { since: Moment::ZERO, shown: Instant::from_nanos(shown), rate, natural: rate, held: None }
    }

    #[test]
    fn a_moment_is_the_first_at_which_the_instant_shows_whatever_happened_to_the_clock() {
        let mut chance = Chance::new(11);
        for _ in 0..2_000 {
            let mut clock = Clock::draw(&ClockSettings::within(100_000), &mut chance);
            let mut now = Moment::ZERO;
            for _ in 0..5 {
                now = now + Duration::from_nanos(chance.below(20 * SECOND));
                match chance.below(5) {
                    0 => clock.set_rate(now, chance.below(1_900_000) as i32 - 900_000),
                    1 => clock.jump(now, Duration::from_nanos(chance.below(SECOND))),
                    2 => clock.restore(now),
                    3 => {
                        clock.freeze(now);
                        let stopped = now;
                        now = now + Duration::from_nanos(chance.below(SECOND));
                        clock.thaw(now, stopped);
                    }
                    _ => {}
                }
                let shown = clock.read(now);
                let wanted = shown + Duration::from_nanos(chance.below(10 * SECOND));
                let at = clock.moment(wanted);
                assert!(at >= now);
                assert!(clock.read(at) >= wanted, "woken too early: {clock:?} {wanted:?} {at:?}");
                assert!(at == now || clock.read(Moment(at.0 - 1)) < wanted, "woken late: {clock:?} {wanted:?} {at:?}");
            }
        }
    }

    #[test]
    fn a_clock_never_goes_back_when_its_rate_changes() {
        let mut clock = clock(500, 7);
        let mut last = clock.read(Moment::ZERO);
        for step in 1..10_000 {
            let now = Moment(step * 1_003);
            clock.set_rate(now, if step % 2 == 0 { -333 } else { 333 });
            assert!(clock.read(now) >= last);
            last = clock.read(now);
        }
    }

    #[test]
    fn a_frozen_clock_shows_the_instant_it_stopped_at_and_then_catches_up() {
        let mut clock = clock(0, 0);
        clock.freeze(Moment(SECOND));
        assert_eq!(clock.read(Moment(3 * SECOND)), Instant::from_nanos(SECOND));
        assert_eq!(clock.moment(Instant::from_nanos(SECOND + 1)), Moment::NEVER);
        assert_eq!(clock.rate_ppm(), -1_000_000);
        clock.thaw(Moment(6 * SECOND), Moment(SECOND));
        assert_eq!(clock.read(Moment(6 * SECOND)), Instant::from_nanos(6 * SECOND));
    }

    #[test]
    fn rates_are_what_they_say() {
        for ppm in [-500_000, -500, 0, 1, 500, 83_333] {
            let clock = clock(ppm, 0);
            assert_eq!(clock.rate_ppm(), i64::from(ppm));
            let shown = clock.read(Moment(1000 * SECOND)).as_nanos().cast_signed();
            let expected = 1000 * (1_000_000 + i64::from(ppm)) * 1000;
            assert!((shown - expected).abs() < 1000, "{shown} instead of {expected}");
        }
    }

    #[test]
    fn the_end_of_time_does_not_overflow() {
        let clock = clock(500, u64::MAX - 5);
        assert_eq!(clock.read(Moment(SECOND)), Instant::NEVER);
        assert_eq!(clock.moment(Instant::NEVER), Moment::NEVER);
    }
}
