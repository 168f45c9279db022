//! Leaders, leaderships and times in words and in JSON: the same in every command.
//!
//! Tokens and sessions are texts in JSON: they have 64 bits, jq and JavaScript round numbers above 2^53, and a rounded token is another leadership's.

use std::time::{Duration, SystemTime};

use incumbent::engine::{Leader, Past};
use serde_json::{Value, json};

use super::span;

/// A leader for a program.
pub(crate) fn leader(it: &Leader) -> Value {
    json!({
        "name": it.identity.name(),
        "identity": it.identity.as_str(),
        "token": it.token.to_string(),
        "value": it.value,
        "priority": it.priority,
        "since": it.since.map(time),
        "since_ms": it.since.map(wall_ms),
        "heeds_wishes": it.heeds_wishes,
    })
}

/// An ended leadership for a program.
pub(crate) fn past(it: &Past) -> Value {
    json!({
        "name": it.identity.name(),
        "identity": it.identity.as_str(),
        "token": it.token.to_string(),
        "since": time(wall(it.since_ms)),
        "since_ms": it.since_ms,
        "until": time(wall(it.until_ms)),
        "until_ms": it.until_ms,
        "reason": it.reason,
    })
}

/// How long ago something was, by the wall clock; for people. Clocks of two machines differ, so it may seem to be to come.
pub(crate) fn ago(at: SystemTime) -> String {
    match at.elapsed() {
        Ok(past) => format!("{} ago", span::long(past)),
        Err(_) => "just now".to_owned(),
    }
}

/// A moment on the wall clock, from the milliseconds that engines store.
pub(crate) fn wall(ms: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms)).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The milliseconds since 1970; 0 before.
pub(crate) fn wall_ms(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX))
}

/// A moment as RFC 3339 has it, in UTC, to the millisecond.
pub(crate) fn time(at: SystemTime) -> String {
    let ms = wall_ms(at);
    let (days, of_day) = (ms / 86_400_000, ms % 86_400_000);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1000)
}

/// The Gregorian date of a count of days since 1970, in eras of 400 years that begin on the first of March.
fn date(days: u64) -> (u64, u64, u64) {
    const ERA: u64 = 146_097;
    // From the first of March of the year 0 to 1970.
    let days = days + 719_468;
    let (era, of_era) = (days / ERA, days % ERA);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / (ERA - 1)) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_standard_has_them() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_799, "2000-02-29T23:59:59.000Z"),
            (1_709_164_800, "2024-02-29T00:00:00.000Z"),
            (1_767_225_599, "2025-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(time(wall(seconds * 1000)), text);
        }
        assert_eq!(time(wall(1)), "1970-01-01T00:00:00.001Z");
        assert_eq!(ago(SystemTime::now() + Duration::from_secs(60)), "just now");
    }
}
