//! When a job is due, and whether somebody has done it: slots of wall time in UTC, so that all hosts mean the same one and no hour comes twice.
//!
//! Pure: no clock, no engine. A slot is named by the instant at which it begins, in seconds since 1970.

use std::fmt;
use std::time::Duration;

use crate::elections::span;

/// A day.
const DAY: u64 = 86_400;

/// When a job is due.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Schedule {
    /// At every multiple of so many seconds since 1970.
    Every(u64),
    /// Every day at these seconds after midnight, in order.
    At(Vec<u64>),
}

/// The instant at which a job is due, in seconds since 1970.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Slot(pub(crate) u64);

impl Schedule {
    /// Every `span`: whole seconds, at least one.
    pub(crate) fn every(span: Duration) -> Result<Schedule, String> {
        if span.as_secs() == 0 || span.subsec_nanos() != 0 {
            return Err(format!("--every {}: give whole seconds, at least one", span::short(span)));
        }
        Ok(Schedule::Every(span.as_secs()))
    }

    /// Daily at times such as `02:30` or `06:00,18:00`.
    pub(crate) fn at(text: &str) -> Result<Schedule, String> {
        let wrong = || format!("{text:?} is no time of day: write it as 02:30, or several as 06:00,18:00 (UTC)");
        let mut times = Vec::new();
        for time in text.split(',') {
            let (hour, minute) = time.trim().split_once(':').ok_or_else(wrong)?;
            let (hour, minute): (u64, u64) = (hour.parse().map_err(|_| wrong())?, minute.parse().map_err(|_| wrong())?);
            if hour > 23 || minute > 59 {
                return Err(wrong());
            }
            times.push(hour * 3600 + minute * 60);
        }
        times.sort_unstable();
        times.dedup();
        Ok(Schedule::At(times))
    }

    /// The slot that was due last at `now`, in seconds since 1970.
    pub(crate) fn last(&self, now: u64) -> Slot {
        Slot(match self {
            Schedule::Every(span) => now - now % span,
            Schedule::At(times) => {
                let midnight = now - now % DAY;
                let today = times.iter().rev().find(|it| midnight + **it <= now).map(|it| midnight + it);
                today.unwrap_or_else(|| (midnight + times[times.len() - 1]).saturating_sub(DAY))
            }
        })
    }

    /// The first slot after `now`.
    pub(crate) fn next(&self, now: u64) -> Slot {
        Slot(match self {
            Schedule::Every(span) => now - now % span + span,
            Schedule::At(times) => {
                let midnight = now - now % DAY;
                let today = times.iter().find(|it| midnight + **it > now).map(|it| midnight + it);
                today.unwrap_or(midnight + DAY + times[0])
            }
        })
    }

    /// What has become at `now` of a slot that was the next once.
    pub(crate) fn awaited(&self, slot: Slot, now: u64) -> Awaited {
        if self.last(now) == slot {
            Awaited::Due
        } else if self.next(now) == slot {
            Awaited::NotYet
        } else {
            Awaited::Astray
        }
    }
}

/// What has become of a slot that was the next.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Awaited {
    /// It is due.
    Due,
    /// It still is the next.
    NotYet,
    /// It went by while the machine slept, or the clock was set back and others come before it.
    Astray,
}

/// Which slot to run now, and if none, until when to wait.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    /// This one.
    Now(Slot),
    /// None before that one.
    Later(Slot),
}

/// What is due at `now`, if `done` is the newest slot that was done, by anybody.
///
/// A slot that was missed is caught up on, once, however many were; but not by a schedule that has never run: whoever sets it up in the afternoon does not mean last night.
pub(crate) fn due(schedule: &Schedule, now: u64, done: Option<Slot>, catch_up: bool) -> Due {
    let last = schedule.last(now);
    match done {
        Some(done) if done < last && catch_up => Due::Now(last),
        Some(_) | None => Due::Later(schedule.next(now)),
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = std::time::UNIX_EPOCH + Duration::from_secs(self.0);
        f.write_str(&crate::elections::describe::time(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-15T00:00:00Z.
    const MIDNIGHT: u64 = 20_772 * DAY;

    #[test]
    fn slots_are_the_same_whoever_asks() {
        let hourly = Schedule::every(Duration::from_secs(3600)).unwrap();
        assert_eq!((hourly.last(MIDNIGHT + 3599), hourly.next(MIDNIGHT + 3599)), (Slot(MIDNIGHT), Slot(MIDNIGHT + 3600)));
        assert_eq!((hourly.last(MIDNIGHT + 3600), hourly.next(MIDNIGHT + 3600)), (Slot(MIDNIGHT + 3600), Slot(MIDNIGHT + 7200)));
        let daily = Schedule::at("18:00, 06:00,06:00").unwrap();
        let (six, eighteen) = (MIDNIGHT + 6 * 3600, MIDNIGHT + 18 * 3600);
        for (now, last, next) in [
            (MIDNIGHT, eighteen - DAY, six),
            (six - 1, eighteen - DAY, six),
            (six, six, eighteen),
            (eighteen + 1, eighteen, six + DAY),
        ] {
            assert_eq!((daily.last(now), daily.next(now)), (Slot(last), Slot(next)), "{now}");
        }
    }

    #[test]
    fn a_slot_is_waited_for_as_long_as_it_is_the_next() {
        let hourly = Schedule::every(Duration::from_secs(3600)).unwrap();
        let slot = Slot(MIDNIGHT + 3600);
        for (now, awaited) in [
            (MIDNIGHT + 3599, Awaited::NotYet),
            (MIDNIGHT + 3600, Awaited::Due),
            (MIDNIGHT + 7199, Awaited::Due),
            (MIDNIGHT + 7200, Awaited::Astray),
            // The clock was set back.
            (MIDNIGHT - 1, Awaited::Astray),
            (MIDNIGHT - 30 * DAY, Awaited::Astray),
        ] {
            assert_eq!(hourly.awaited(slot, now), awaited, "{now}");
        }
    }

    #[test]
    fn what_was_missed_is_caught_up_on_once_and_a_new_schedule_waits() {
        let daily = Schedule::at("02:30").unwrap();
        let slot = Slot(MIDNIGHT + 9000);
        let (before, yesterday, last_week) = (slot.0 - 1, Slot(slot.0 - DAY), Slot(slot.0 - 7 * DAY));
        let tomorrow = Slot(slot.0 + DAY);
        for (now, done, catch_up, expected) in [
            (slot.0 + 60, None, true, Due::Later(tomorrow)),
            (slot.0 + 60, Some(yesterday), true, Due::Now(slot)),
            (slot.0 + 60, Some(last_week), true, Due::Now(slot)),
            (slot.0 + 60, Some(last_week), false, Due::Later(tomorrow)),
            (slot.0 + 60, Some(slot), true, Due::Later(tomorrow)),
            (before, Some(yesterday), true, Due::Later(slot)),
            // A clock that was set back runs nothing twice.
            (before, Some(slot), true, Due::Later(slot)),
        ] {
            assert_eq!(due(&daily, now, done, catch_up), expected, "{now} {done:?}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused_with_what_is() {
        for bad in ["", "2", "24:00", "02:60", "02:30,", "noon", "-1:00"] {
            assert!(Schedule::at(bad).unwrap_err().contains("02:30"), "{bad}");
        }
        for bad in [Duration::ZERO, Duration::from_millis(1500)] {
            assert!(Schedule::every(bad).unwrap_err().contains("whole seconds"));
        }
    }
}
