//! Spans of time as people write and read them: `800ms`, `3s`, `1m30s`.

use std::time::Duration;

pub(crate) use incumbent::place::span as parse;
use incumbent_protocol::time::Said;

/// A span that was measured.
pub(crate) fn measured(span: Duration) -> String {
    if span.as_secs() >= 60 { long(span) } else { Said(span).to_string() }
}

/// A span of the size of a leadership: its two greatest units.
pub(crate) fn long(span: Duration) -> String {
    let seconds = span.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds}s"),
        (0, 0, minutes, seconds) => format!("{minutes}m{seconds}s"),
        (0, hours, minutes, _) => format!("{hours}h{minutes}m"),
        (days, hours, _, _) => format!("{days}d{hours}h"),
    }
}

/// A bound, in whole milliseconds that it does not exceed.
pub(crate) fn rounded_up(span: Duration) -> String {
    let ms = u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    short(Duration::from_millis(ms))
}

/// A limit, as short as it can be said exactly; in days if it is so long that nobody cares.
pub(crate) fn short(span: Duration) -> String {
    let seconds = span.as_secs();
    match (span.subsec_nanos(), seconds % 86_400, seconds % 3600, seconds % 60) {
        (_, _, _, _) if seconds >= 100 * 86_400 => format!("{}d", seconds / 86_400),
        (0, 0, _, _) if seconds > 0 => format!("{}d", seconds / 86_400),
        (0, _, 0, _) if seconds > 0 => format!("{}h", seconds / 3600),
        (0, _, _, 0) if seconds > 0 => format!("{}m", seconds / 60),
        (0, 0, _, _) => "0s".to_owned(),
        (_, _, _, _) => format!("{span:?}"),
    }
}

/// Milliseconds for a program to read, to the microsecond.
pub(crate) fn ms(span: Duration) -> f64 {
    (span.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_printed_with_three_digits() {
        for (micros, text) in [
            (40, "40us"),
            (0, "0s"),
            (1_234, "1.23ms"),
            (40_500, "40.5ms"),
            (508_237, "508ms"),
            (2_345_678, "2.35s"),
            (90_000_000, "1m30s"),
            (7_260_000_000, "2h1m"),
        ] {
            assert_eq!(measured(Duration::from_micros(micros)), text);
        }
        for (ms, text) in [(86_400_000, "1d"), (7_200_000, "2h"), (60_000, "1m"), (90_000, "90s"), (100, "100ms"), (0, "0s")] {
            assert_eq!(short(Duration::from_millis(ms)), text);
        }
        assert_eq!(long(Duration::from_secs(200_000)), "2d7h");
        assert_eq!(ms(Duration::from_nanos(1_234_567)), 1.235);
    }
}
