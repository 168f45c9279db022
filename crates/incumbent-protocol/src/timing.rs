//! The times of a lease as its holder must keep them. A [`Timing`] that exists is safe, and it can explain itself.
//!
//! **Problem.** A lock service gives the seat for a ttl and gives it to another when the ttl has passed on *its* clock. The holder
//! must have stopped by then on *its own* clock, without knowing when the service began to count or how fast either clock runs.
//!
//! **What fails.** Counting from the reply: the service began to count before it answered, and a reply may be on its way for as long
//! as a request may take. Trusting both clocks to run alike: at 500 ppm each way they part by 15 ms in a lease of 15 s.
//!
//! **Insight.** The service cannot have begun before the request was *sent*. If every clock runs between `1 − ρ` and `1 + ρ` of true
//! time, the service waits at least `ttl / (1 + ρ)`, and a span `v` on the holder's clock lasts at most `v / (1 − ρ)`. So
//!
//! ```text
//!   valid_until = sent + ttl · (1 − ρ) / (1 + ρ) − guard
//! ```
//!
//! ends before the service can give the seat away. What the holder needs for stopping is taken off before that, never after:
//!
//! ```text
//!   sent ──────── renew ──────── jeopardy ──────── stopping ──── kill ── deadline ─ guard ─┤ the service may free the seat
//!                   └ retries, jittered, until acknowledged ┘   └ drain ┘└ kill ┘
//! ```
//!
//! The service's own promise is assumed: it never frees a lease before the ttl has passed on its clock since it last heard of it.

use alloc::boxed::Box;
use alloc::format;
use core::fmt;
use core::time::Duration;

use crate::chance::Chance;
use crate::time::Said;

/// A clock that differs more from true time than this is broken; one second in ten.
const DRIFT_PPM_END: u32 = 100_000;

/// The times of a lease. Made by [`Timing::of`] or [`Timing::plan`]; its `Display` is the worst case as a timeline for people.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Timing {
    ttl: Duration,
    drift_ppm: u32,
    guard: Duration,
    renew: Duration,
    retry: Duration,
    request_timeout: Duration,
    jeopardy: Duration,
    drain: Duration,
    kill: Duration,
    poll: Duration,
    rest: Duration,
}

impl Timing {
    /// Shorter leases are lost to the scheduler of an ordinary machine.
    pub const TTL_MIN: Duration = Duration::from_millis(100);
    /// Longer ones are mistakes: a crash would leave the seat empty for a day. Also keeps every sum here far from overflow.
    pub const TTL_MAX: Duration = Duration::from_secs(86_400);
    /// What the contract promises. NTP slews by at most 500 ppm; an undisciplined quartz stays below 100.
    pub const DRIFT_PPM_DEFAULT: u32 = 500;
    /// Less than a bare quartz is wishful.
    pub const DRIFT_PPM_MIN: u32 = 100;
    /// Timers of an ordinary kernel are late by up to this.
    pub const GUARD_MIN: Duration = Duration::from_millis(1);

    /// Times that fit a lease of `ttl`, each with its reason. Change what does not suit and call [`Builder::build`].
    pub fn of(ttl: Duration) -> Builder {
        Builder(Timing {
            ttl,
            drift_ppm: Self::DRIFT_PPM_DEFAULT,
            // Late timers and the moment between reading the clock and acting on it.
            guard: (ttl / 50).max(Self::GUARD_MIN),
            // Three renewals fit in a ttl: one lost packet must not cost the leadership.
            renew: ttl / 4,
            // Fast, because time is short by then; not so fast that an ailing service is beaten to death.
            retry: ttl / 40,
            // A renewal and two retries can all time out before the work has to stop.
            request_timeout: ttl / 10,
            // By then a renewal and at least one retry have failed; a single lost packet is no news.
            jeopardy: ttl / 2,
            // What a polite stop may take.
            drain: ttl / 5,
            // What an impolite one takes: a killed process of 1 GiB needs about 0.1 s to be gone.
            kill: ttl / 20,
            // Without hints the seat is found free within a quarter of a ttl.
            poll: ttl / 4,
            // Whoever else wants the seat asks at least twice in that time.
            rest: ttl,
        })
    }

    /// These times, to be changed.
    pub fn to_builder(self) -> Builder {
        Builder(self)
    }

    /// The timing with the longest lease that still keeps `goal`, or what stands in the way.
    ///
    /// The longest, because it bears the longest pause and asks least of the service.
    pub fn plan(goal: Goal) -> Result<Timing, InvalidTiming> {
        let sized = |ttl: Duration| Timing::of(ttl).build();
        let failover = |it: &Timing| it.failover_max_at(goal.late);
        let shortest = sized(Self::TTL_MIN)?;
        if failover(&shortest) > goal.failover {
            return Err(InvalidTiming::Failover { goal: goal.failover, least: failover(&shortest) });
        }
        let ttl = bisect(|ttl| sized(ttl).is_ok_and(|it| failover(&it) <= goal.failover));
        let timing = sized(ttl)?;
        // An answer that takes as long as the slowest in a hundred, twice over, must not count as lost.
        let calm = |it: &Timing| it.request_timeout / 2 >= goal.round_trip;
        let bears = |it: &Timing| it.pause_max() >= goal.pause;
        let with = |good: &dyn Fn(&Timing) -> bool| {
            let too_short = bisect(|ttl| sized(ttl).is_ok_and(|it| !good(&it)));
            sized(too_short.saturating_add(Duration::from_millis(1))).ok().filter(good).map(|it| failover(&it))
        };
        if !calm(&timing) {
            return Err(InvalidTiming::RoundTrip { goal, least: with(&calm) });
        }
        if !bears(&timing) {
            return Err(InvalidTiming::Pause { goal, bears: timing.pause_max(), least: with(&bears) });
        }
        Ok(timing)
    }

    /// How long the service keeps the seat for a holder it does not hear of, on the service's clock.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// By how much a clock's rate may differ from true time, in parts per million.
    pub fn drift_ppm(&self) -> u32 {
        self.drift_ppm
    }

    /// What is taken off the end for what the holder cannot see.
    pub fn guard(&self) -> Duration {
        self.guard
    }

    /// How long after the send of an acknowledged renewal the next is sent.
    pub fn renew(&self) -> Duration {
        self.renew
    }

    /// The shortest wait after a call that failed; see [`Timing::jittered`].
    pub fn retry(&self) -> Duration {
        self.retry
    }

    /// How long a call may take before its outcome counts as unknown.
    pub fn request_timeout(&self) -> Duration {
        self.request_timeout
    }

    /// How long after the send of the last acknowledged renewal the holder is warned.
    pub fn jeopardy(&self) -> Duration {
        self.jeopardy
    }

    /// How long work may take to end after it was told to, before it is killed.
    pub fn drain(&self) -> Duration {
        self.drain
    }

    /// How long killed work may take to be gone.
    pub fn kill(&self) -> Duration {
        self.kill
    }

    /// How often an occupied seat is asked for when no hint comes; see [`Timing::jittered`].
    pub fn poll(&self) -> Duration {
        self.poll
    }

    /// How long one that gave the seat back leaves it to others.
    pub fn rest(&self) -> Duration {
        self.rest
    }

    /// How long a grant for `ttl` is valid on the holder's clock, counted from the *send* of the call that got it. Rounded down.
    ///
    /// `ttl` is what the service granted, which may differ from what was asked for; beyond [`Timing::TTL_MAX`] it counts as that.
    pub fn validity(&self, ttl: Duration) -> Duration {
        let ppm = u128::from(self.drift_ppm);
        scale(ttl.min(Self::TTL_MAX), 1_000_000 - ppm, 1_000_000 + ppm).saturating_sub(self.guard)
    }

    /// How long before the end of the validity work is told to stop: so that it can drain, and be killed if it does not.
    pub fn stop_margin(&self) -> Duration {
        self.drain + self.kill
    }

    /// A wait of `span`, or up to half as much longer: those who failed together must not come back together.
    pub fn jittered(&self, span: Duration, chance: &mut Chance) -> Duration {
        chance.between(span, span.saturating_add(span / 2))
    }

    /// How long after the send of the last acknowledged renewal work is told to stop.
    pub fn stop_after(&self) -> Duration {
        self.validity(self.ttl).saturating_sub(self.stop_margin())
    }

    /// The longest pause of the holder that cannot cost it the seat while service and network are well.
    pub fn pause_max(&self) -> Duration {
        // The worst pause begins just before a renewal falls due.
        self.stop_after().saturating_sub(self.renew + self.request_timeout)
    }

    /// The earliest, in true time after the last renewal was sent, that the service can give the seat to another: its clock runs fast.
    pub fn takeover_min(&self) -> Duration {
        scale(self.ttl, 1_000_000, 1_000_000 + u128::from(self.drift_ppm))
    }

    /// The latest, in true time after a holder crashed, that a healthy candidate has the seat, if no hint reaches it and no packet is lost. At a service
    /// that frees the seat when the ttl has passed; not every one does: [`Timing::failover_max_at`].
    pub fn failover_max(&self) -> Duration {
        self.failover_max_at(Lateness::NONE)
    }

    /// The same at a service that may be so late.
    pub fn failover_max_at(&self, late: Lateness) -> Duration {
        // The last renewal arrived as the holder died; the service's clock runs slow, and so does the candidate's, which has just asked.
        self.freed_max(late) + self.slowed(self.poll + self.poll / 2) + self.request_timeout
    }

    /// The latest, in true time after the last renewal arrived, that the service has freed the seat.
    fn freed_max(&self, late: Lateness) -> Duration {
        self.slowed(self.ttl.saturating_add(late.after(self.ttl)))
    }

    /// What `span` on a clock that runs as slow as it may lasts in true time.
    fn slowed(&self, span: Duration) -> Duration {
        scale(span, 1_000_000, 1_000_000 - u128::from(self.drift_ppm))
    }

    /// The worst case at a service that may be so late, step by step, for people.
    pub fn timeline(&self, late: Lateness) -> impl fmt::Display {
        Timeline { timing: *self, late }
    }

    /// What must fit between an acknowledged renewal and the stop: the next one, and one retry after it was lost.
    fn attempts(&self) -> Duration {
        self.renew + self.request_timeout * 2 + self.retry + self.retry / 2
    }

    /// The shortest ttl that leaves `room` before the stop, other times being equal. Rounded up.
    fn ttl_for(&self, room: Duration) -> Duration {
        let ppm = u128::from(self.drift_ppm);
        let span = scale(room + self.stop_margin() + self.guard, 1_000_000 + ppm, 1_000_000 - ppm);
        rounded(span) + Duration::from_millis(1)
    }

    fn check(&self) -> Result<(), InvalidTiming> {
        if !(Self::TTL_MIN..=Self::TTL_MAX).contains(&self.ttl) {
            return Err(InvalidTiming::Ttl { ttl: self.ttl });
        }
        if !(Self::DRIFT_PPM_MIN..DRIFT_PPM_END).contains(&self.drift_ppm) {
            return Err(InvalidTiming::Drift { ppm: self.drift_ppm });
        }
        for (name, span, least) in [
            ("guard", self.guard, Self::GUARD_MIN),
            ("renew", self.renew, Duration::from_millis(1)),
            ("retry", self.retry, Duration::from_millis(1)),
            ("request-timeout", self.request_timeout, Duration::from_millis(1)),
            ("jeopardy", self.jeopardy, Duration::from_millis(1)),
            ("drain", self.drain, Duration::ZERO),
            ("kill", self.kill, Duration::ZERO),
            ("poll", self.poll, Duration::from_millis(1)),
            ("rest", self.rest, Duration::ZERO),
        ] {
            if span < least || span > Self::TTL_MAX {
                return Err(InvalidTiming::Span { name, span, least });
            }
        }
        if self.attempts() > self.stop_after() {
            return Err(InvalidTiming::NoRoom { timing: Box::new(*self) });
        }
        let earliest = self.renew + self.request_timeout;
        if !(earliest..=self.stop_after()).contains(&self.jeopardy) {
            return Err(InvalidTiming::Jeopardy { given: self.jeopardy, earliest, latest: self.stop_after() });
        }
        Ok(())
    }
}

/// A timing in the making. Starts from the defaults of [`Timing::of`].
#[derive(Clone, Debug)]
pub struct Builder(Timing);

impl Builder {
    /// Sets the drift bound ρ: how far a clock's rate may be from true time, in parts per million.
    #[must_use]
    pub fn drift_ppm(mut self, ppm: u32) -> Self {
        self.0.drift_ppm = ppm;
        self
    }

    /// Sets what is taken off the end of the validity.
    #[must_use]
    pub fn guard(mut self, span: Duration) -> Self {
        self.0.guard = span;
        self
    }

    /// Sets how often the lease is renewed while all is well.
    #[must_use]
    pub fn renew(mut self, span: Duration) -> Self {
        self.0.renew = span;
        self
    }

    /// Sets the shortest wait after a failed call; each wait is drawn up to half as much longer.
    #[must_use]
    pub fn retry(mut self, span: Duration) -> Self {
        self.0.retry = span;
        self
    }

    /// Sets how long a call may take before its outcome counts as unknown.
    #[must_use]
    pub fn request_timeout(mut self, span: Duration) -> Self {
        self.0.request_timeout = span;
        self
    }

    /// Sets how long after the last acknowledged renewal the holder is warned.
    #[must_use]
    pub fn jeopardy(mut self, span: Duration) -> Self {
        self.0.jeopardy = span;
        self
    }

    /// Sets how long work may take to end politely.
    #[must_use]
    pub fn drain(mut self, span: Duration) -> Self {
        self.0.drain = span;
        self
    }

    /// Sets how long killed work may take to be gone.
    #[must_use]
    pub fn kill(mut self, span: Duration) -> Self {
        self.0.kill = span;
        self
    }

    /// Sets how often an occupied seat is asked for; each wait is drawn up to half as much longer.
    #[must_use]
    pub fn poll(mut self, span: Duration) -> Self {
        self.0.poll = span;
        self
    }

    /// Sets how long one that gave the seat back leaves it to others.
    #[must_use]
    pub fn rest(mut self, span: Duration) -> Self {
        self.0.rest = span;
        self
    }

    /// The timing, or what to change.
    pub fn build(self) -> Result<Timing, InvalidTiming> {
        self.0.check()?;
        Ok(self.0)
    }
}

/// How much later than its ttl a service frees a seat at the most: some count in ticks or whole seconds, some keep a seat back for a while.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Lateness {
    /// This part of the ttl, in percent,
    pub percent: u32,
    /// and this much besides.
    pub span: Duration,
}

impl Lateness {
    /// The seat is free when the ttl has passed.
    pub const NONE: Lateness = Lateness { percent: 0, span: Duration::ZERO };

    /// How long after the end of such a ttl the seat is free at the latest.
    pub fn after(self, ttl: Duration) -> Duration {
        scale(ttl, u128::from(self.percent), 100).saturating_add(self.span)
    }
}

/// What a person knows when they choose times.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Goal {
    /// How soon after a crash the next holder must be in office.
    pub failover: Duration,
    /// How long a healthy holder may stand still (garbage collection, a busy host) without losing the seat.
    pub pause: Duration,
    /// How long the slowest in a hundred answers of the service takes.
    pub round_trip: Duration,
    /// How late the service may be.
    pub late: Lateness,
}

/// Why times were refused. Each says what to change.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the messages below say it better")]
pub enum InvalidTiming {
    Ttl { ttl: Duration },
    Drift { ppm: u32 },
    Span { name: &'static str, span: Duration, least: Duration },
    NoRoom { timing: Box<Timing> },
    Jeopardy { given: Duration, earliest: Duration, latest: Duration },
    Failover { goal: Duration, least: Duration },
    RoundTrip { goal: Goal, least: Option<Duration> },
    Pause { goal: Goal, bears: Duration, least: Option<Duration> },
}

impl InvalidTiming {
    /// What is wrong, without what would be enough: for whoever has more to keep than times know of.
    pub fn cause(&self) -> impl fmt::Display {
        Cause(self)
    }

    /// Whether a longer failover would do.
    pub fn is_haste(&self) -> bool {
        match self {
            InvalidTiming::Failover { .. } => true,
            InvalidTiming::RoundTrip { least, .. } | InvalidTiming::Pause { least, .. } => least.is_some(),
            InvalidTiming::Ttl { .. }
            | InvalidTiming::Drift { .. }
            | InvalidTiming::Span { .. }
            | InvalidTiming::NoRoom { .. }
            | InvalidTiming::Jeopardy { .. } => false,
        }
    }
}

impl fmt::Display for InvalidTiming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause().fmt(f)?;
        match self {
            InvalidTiming::Failover { least, .. } => advise(f, Some(*least)),
            InvalidTiming::RoundTrip { least, .. } | InvalidTiming::Pause { least, .. } => advise(f, *least),
            InvalidTiming::Ttl { .. }
            | InvalidTiming::Drift { .. }
            | InvalidTiming::Span { .. }
            | InvalidTiming::NoRoom { .. }
            | InvalidTiming::Jeopardy { .. } => Ok(()),
        }
    }
}

struct Cause<'a>(&'a InvalidTiming);

impl fmt::Display for Cause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            InvalidTiming::Ttl { ttl } => write!(f, "a ttl of {}: it must be between 100ms and a day", Said(*ttl)),
            InvalidTiming::Drift { ppm } => {
                write!(
                    f,
                    "a drift of {ppm} ppm: it must be at least {} and below {DRIFT_PPM_END} (default 500)",
                    Timing::DRIFT_PPM_MIN
                )
            }
            InvalidTiming::Span { name, span, least } => {
                write!(f, "{name} is {}: it must be at least {} and at most a day", Said(*span), Said(*least))
            }
            InvalidTiming::NoRoom { timing } => write!(
                f,
                "a renewal and one retry take up to {} (renew {}, twice request-timeout {}, retry up to {}), but work is told to stop \
                 {:?} after the last acknowledged renewal (ttl {:?} less drift, guard {}, drain {}, kill {}): \
                 raise ttl to {:?}, or lower the others by {:?}",
                Said(timing.attempts()),
                Said(timing.renew),
                Said(timing.request_timeout),
                Said(timing.retry + timing.retry / 2),
                rounded(timing.stop_after()),
                timing.ttl,
                Said(timing.guard),
                Said(timing.drain),
                Said(timing.kill),
                timing.ttl_for(timing.attempts()),
                rounded(timing.attempts() - timing.stop_after()) + Duration::from_millis(1),
            ),
            InvalidTiming::Jeopardy { given, earliest, latest } => write!(
                f,
                "jeopardy at {given:?}: a renewal sent on time may be answered until {earliest:?} and work is told to stop at {:?}; \
                 choose a time between",
                rounded(*latest)
            ),
            InvalidTiming::Failover { goal, .. } => {
                write!(f, "a failover within {} needs a lease shorter than 100ms", Said(*goal))
            }
            InvalidTiming::RoundTrip { goal, .. } => {
                write!(
                    f,
                    "answers that take {} are too slow for a failover within {}",
                    Said(goal.round_trip),
                    Said(goal.failover)
                )
            }
            InvalidTiming::Pause { goal, bears, .. } => {
                write!(
                    f,
                    "a failover within {} bears pauses of {:?}, not of {}",
                    Said(goal.failover),
                    rounded(*bears),
                    Said(goal.pause)
                )
            }
        }
    }
}

impl core::error::Error for InvalidTiming {}

fn advise(f: &mut fmt::Formatter<'_>, least: Option<Duration>) -> fmt::Result {
    match least {
        Some(least) => write!(f, ": allow at least {:?}", rounded(least) + Duration::from_millis(1)),
        None => f.write_str(": no lease of at most a day can do that"),
    }
}

/// The worst case, step by step, at a service that is never late.
impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Timeline { timing: *self, late: Lateness::NONE }.fmt(f)
    }
}

/// The worst case, step by step.
struct Timeline {
    timing: Timing,
    late: Lateness,
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Timeline { timing, late } = *self;
        let Timing { ttl, drift_ppm, guard, renew, retry, request_timeout, jeopardy, drain, kill, poll, rest } = timing;
        let deadline = timing.validity(ttl);
        let (retry_max, poll_max) = (Said(retry + retry / 2), Said(poll + poll / 2));
        let [guard, retry, request_timeout, drain] = [guard, retry, request_timeout, drain].map(Said);
        let as_late = if late == Lateness::NONE { "" } else { " and it takes as long as it may" };
        writeln!(f, "lease of {ttl:?}, clock rates within {drift_ppm} ppm of true time")?;
        writeln!(f, "on the holder's clock, from the send of the last acknowledged renewal:")?;
        for (at, what) in [
            (
                renew,
                format_args!("renews; an answer may take {request_timeout}; if none comes, again after {retry} to {retry_max}"),
            ),
            (jeopardy, format_args!("jeopardy: warns that no renewal has been acknowledged")),
            (timing.stop_after(), format_args!("stopping: tells the work to end, which has {drain}")),
            (deadline.saturating_sub(kill), format_args!("kill: ends what is left of it, which has {}", Said(kill))),
            (deadline, format_args!("deadline: nothing may act for this leadership any more")),
        ] {
            writeln!(f, "{:>12}  {what}", format!("{:?}", rounded(at)))?;
        }
        writeln!(f, "in true time, at the worst:")?;
        for (at, what) in [
            (timing.slowed(deadline), format_args!("deadline, if the holder's clock runs slow")),
            (
                timing.takeover_min(),
                format_args!("the service may free the seat, if its clock runs fast; the guard of {guard} lies between"),
            ),
            (timing.freed_max(late), format_args!("the service has freed it, if its clock runs slow{as_late}")),
            (
                timing.failover_max_at(late),
                format_args!("a successor is in office, asking every {} to {poll_max} without a hint", Said(poll)),
            ),
        ] {
            writeln!(f, "{:>12}  {what}", format!("{:?}", rounded(at)))?;
        }
        writeln!(f, "a holder that pauses for up to {:?} keeps the seat", rounded(timing.pause_max()))?;
        write!(f, "one that gave the seat back leaves it to others for {}", Said(rest))
    }
}

/// `span · numerator / denominator`, rounded down. Spans up to a day and factors of a million cannot overflow.
fn scale(span: Duration, numerator: u128, denominator: u128) -> Duration {
    let nanos = span.as_nanos().saturating_mul(numerator) / denominator;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// `span` as people read it: whole milliseconds. Rounded down.
fn rounded(span: Duration) -> Duration {
    Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

/// The longest ttl, in whole milliseconds, for which `good` holds, if it holds up to some ttl and not beyond; else the shortest there is.
fn bisect(good: impl Fn(Duration) -> bool) -> Duration {
    let (mut low, mut high) = (Timing::TTL_MIN.as_millis() as u64, Timing::TTL_MAX.as_millis() as u64);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if good(Duration::from_millis(middle)) { low = middle } else { high = middle - 1 }
    }
    Duration::from_millis(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn secs(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn the_validity_is_the_contracts_formula() {
        let timing = Timing::of(secs(15)).build().unwrap();
        // 15 s · 0.9995 / 1.0005 − 300 ms
        assert_eq!(timing.validity(secs(15)), Duration::from_nanos(14_685_007_496));
        assert_eq!(timing.validity(Duration::ZERO), Duration::ZERO);
        assert_eq!(timing.validity(Duration::MAX), timing.validity(Timing::TTL_MAX));
    }

    /// C35, as arithmetic: a holder as slow as allowed is done before a service as fast as allowed can free the seat.
    #[test]
    fn a_slow_holder_is_done_before_a_fast_service_frees_the_seat() {
        let mut chance = Chance::new(1);
        for _ in 0..10_000 {
            let ttl = chance.between(Timing::TTL_MIN, Timing::TTL_MAX);
            let ppm = Timing::DRIFT_PPM_MIN + chance.below(99_900) as u32;
            let Ok(timing) = Timing::of(ttl).drift_ppm(ppm).build() else { continue };
            let (slow_rate, fast_rate) = (1_000_000 - u128::from(ppm), 1_000_000 + u128::from(ppm));
            // (validity + guard) / slow_rate ≤ ttl / fast_rate, multiplied out so that nothing is rounded.
            let held = (timing.validity(ttl) + timing.guard()).as_nanos();
            assert!(held * fast_rate <= ttl.as_nanos() * slow_rate, "{ttl:?} {ppm}");
            // And nothing is given away: a nanosecond more would be too much.
            assert!((held + 1) * fast_rate > ttl.as_nanos() * slow_rate, "{ttl:?} {ppm}");
        }
    }

    #[test]
    fn the_defaults_are_valid_for_every_ttl_and_bear_two_lost_renewals() {
        let mut chance = Chance::new(2);
        for ttl in [Timing::TTL_MIN, Timing::TTL_MAX]
            .into_iter()
            .chain((0..1000).map(|_| chance.between(Timing::TTL_MIN, Timing::TTL_MAX)))
        {
            let it = Timing::of(ttl).build().unwrap();
            let three_attempts = it.renew() + (it.request_timeout() + it.retry() * 3 / 2) * 2 + it.request_timeout();
            assert!(three_attempts < it.stop_after(), "{ttl:?}");
            assert!(it.renew() * 3 < ttl && it.rest() > it.poll() * 3);
        }
    }

    #[test]
    fn unsafe_times_are_refused_with_what_to_change() {
        let of = || Timing::of(secs(15));
        for (builder, says) in [
            (Timing::of(Duration::ZERO), "between 100ms and a day"),
            (Timing::of(Duration::from_nanos(1)), "between 100ms and a day"),
            (Timing::of(Duration::from_millis(99)), "between 100ms and a day"),
            (Timing::of(Duration::from_nanos(u64::MAX)), "between 100ms and a day"),
            (Timing::of(Duration::MAX), "between 100ms and a day"),
            (of().drift_ppm(0), "at least 100"),
            (of().drift_ppm(u32::MAX), "below 100000"),
            (of().guard(Duration::ZERO), "guard is 0s"),
            (of().retry(Duration::ZERO), "retry is 0s"),
            (of().rest(Duration::MAX), "at most a day"),
            (of().drain(secs(9)), "raise ttl to 17.38s, or lower the others by 2.378s"),
            (of().renew(secs(86_400)), "raise ttl to"),
            (of().renew(secs(8)), "work is told to stop 10.935s after"),
            (of().jeopardy(secs(1)), "between"),
            (of().jeopardy(secs(12)), "work is told to stop at 10.935s"),
        ] {
            let error = builder.build().unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn the_advice_of_a_refusal_is_good() {
        let short = |ttl| {
            Timing::of(ttl).renew(secs(4)).request_timeout(secs(3)).drain(secs(6)).jeopardy(secs(8)).retry(secs(1)).guard(secs(1))
        };
        let Err(InvalidTiming::NoRoom { timing }) = short(secs(15)).build() else { panic!("accepted") };
        let advised = timing.ttl_for(timing.attempts());
        assert!(advised > secs(15));
        // `of` derives the rest from the new ttl, so set it as it was.
        assert!(short(advised).kill(timing.kill()).build().is_ok(), "{advised:?}");
        assert!(short(advised - Duration::from_millis(2)).kill(timing.kill()).build().is_err(), "{advised:?}");
    }

    /// C41: whatever is put in, nothing overflows.
    #[test]
    fn no_input_overflows() {
        let spans = [
            Duration::ZERO,
            Duration::from_nanos(1),
            secs(1),
            secs(60),
            Timing::TTL_MAX,
            Duration::from_nanos(u64::MAX),
            Duration::MAX,
        ];
        let (mut built, mut chance) = (0, Chance::new(3));
        for ttl in spans {
            for a in spans {
                for b in spans {
                    let mut set = |builder: Builder, value: Duration| match chance.below(9) {
                        0 => builder.guard(value),
                        1 => builder.renew(value),
                        2 => builder.retry(value),
                        3 => builder.request_timeout(value),
                        4 => builder.jeopardy(value),
                        5 => builder.drain(value),
                        6 => builder.kill(value),
                        7 => builder.poll(value),
                        _ => builder.rest(value),
                    };
                    let builder = set(Timing::of(ttl).drift_ppm(99_999), a);
                    let builder = set(builder, b);
                    match builder.build() {
                        Ok(timing) => built += usize::from(!timing.to_string().is_empty()),
                        Err(error) => assert!(!error.to_string().is_empty()),
                    }
                    let late = Lateness { percent: u32::MAX, span: b };
                    let goal = Goal { failover: ttl, pause: a, round_trip: b, late };
                    match Timing::plan(goal) {
                        Ok(timing) => built += usize::from(!timing.to_string().is_empty()),
                        Err(error) => assert!(!error.to_string().is_empty()),
                    }
                }
            }
        }
        assert!(built > 0);
    }

    #[test]
    fn a_plan_keeps_its_goal_or_says_which_goal_can_be_kept() {
        let (pause, round_trip) = (Duration::from_millis(700), Duration::from_millis(40));
        let goal = Goal { failover: secs(3), pause, round_trip, late: Lateness::NONE };
        let timing = Timing::plan(goal).unwrap();
        assert!(timing.failover_max() <= goal.failover && timing.pause_max() >= goal.pause);
        let longer = Timing::of(timing.ttl() + Duration::from_millis(1)).build().unwrap();
        assert!(longer.failover_max() > goal.failover, "a longer lease would do");

        for (goal, says) in
            [(Goal { round_trip: secs(1), ..goal }, "too slow"), (Goal { pause: secs(2), ..goal }, "bears pauses")]
        {
            let error = Timing::plan(goal).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
            let (InvalidTiming::RoundTrip { least: Some(least), .. } | InvalidTiming::Pause { least: Some(least), .. }) = error
            else {
                panic!("no advice")
            };
            let advised = rounded(least) + Duration::from_millis(1);
            assert!(Timing::plan(Goal { failover: advised, ..goal }).is_ok(), "bad advice: {error}");
            assert!(Timing::plan(Goal { failover: advised - Duration::from_millis(9), ..goal }).is_err(), "needless: {error}");
        }
        let hasty = Timing::plan(Goal { failover: Duration::from_millis(20), ..goal }).unwrap_err();
        assert!(hasty.to_string().contains("allow at least 148ms"), "{hasty}");
        let endless = Timing::plan(Goal { pause: Duration::MAX, ..goal }).unwrap_err();
        assert!(endless.to_string().contains("no lease of at most a day"), "{endless}");
    }

    #[test]
    fn a_service_that_is_late_is_planned_for() {
        let late = Lateness { percent: 200, span: secs(1) };
        assert_eq!(late.after(secs(10)), secs(21));
        let goal = Goal { failover: secs(60), pause: Duration::ZERO, round_trip: Duration::from_millis(5), late };
        let timing = Timing::plan(goal).unwrap();
        // Three ttls and a second, drift, and what asking takes.
        assert!(timing.ttl() > secs(16) && timing.ttl() < secs(18), "{timing}");
        assert!(timing.failover_max_at(late) <= goal.failover && timing.failover_max() < goal.failover / 2);
        let longer = Timing::of(timing.ttl() + Duration::from_millis(1)).build().unwrap();
        assert!(longer.failover_max_at(late) > goal.failover, "a longer lease would do");
        let hasty = Timing::plan(Goal { failover: Duration::from_millis(500), ..goal }).unwrap_err();
        assert!(hasty.to_string().contains("allow at least 1.3"), "{hasty}");
        let text = Timing::of(secs(10)).build().unwrap().timeline(late).to_string();
        assert!(text.contains("     31.015s  the service has freed it, if its clock runs slow and it takes as long"), "{text}");
        assert!(text.contains("     35.767s  a successor is in office"), "{text}");
    }

    #[test]
    fn the_timeline_is_written_for_people() {
        let text = Timing::of(secs(15)).build().unwrap().to_string();
        let expected = "\
lease of 15s, clock rates within 500 ppm of true time
on the holder's clock, from the send of the last acknowledged renewal:
       3.75s  renews; an answer may take 1.5s; if none comes, again after 375ms to 563ms
        7.5s  jeopardy: warns that no renewal has been acknowledged
     10.935s  stopping: tells the work to end, which has 3s
     13.935s  kill: ends what is left of it, which has 750ms
     14.685s  deadline: nothing may act for this leadership any more
in true time, at the worst:
     14.692s  deadline, if the holder's clock runs slow
     14.992s  the service may free the seat, if its clock runs fast; the guard of 300ms lies between
     15.007s  the service has freed it, if its clock runs slow
     22.135s  a successor is in office, asking every 3.75s to 5.63s without a hint
a holder that pauses for up to 5.685s keeps the seat
one that gave the seat back leaves it to others for 15s";
        assert_eq!(text, expected);
    }
}
