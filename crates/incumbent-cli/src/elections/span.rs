//! Spans of time as people write and read them: `800ms`, `3s`, `1m30s`.

use std::time::Duration;

/// Reads a span: numbers with units, one after the other. A number without a unit is refused: nobody knows whether seconds were meant.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no span of time: write it as 800ms, 3s or 1m30s (us, ms, s, m, h, d)");
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let unit_at = rest.find(|it: char| !it.is_ascii_digit() && it != '.').ok_or_else(wrong)?;
        let (number, behind) = rest.split_at(unit_at);
        let end = behind.find(|it: char| it.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(end);
        let seconds = match unit.trim() {
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return Err(wrong()),
        };
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
        sum = sum.checked_add(part).ok_or_else(wrong)?;
        rest = behind;
    }
    // Floating point leaves a few nanoseconds that nobody wrote.
    Ok(Duration::from_micros(u64::try_from((sum.as_nanos() + 500) / 1000).map_err(|_| wrong())?))
}

/// A span that was measured: three digits are as much as anybody believes.
pub(crate) fn measured(span: Duration) -> String {
    let seconds = span.as_secs_f64();
    if seconds >= 60.0 {
        long(span)
    } else if seconds >= 1.0 {
        format!("{seconds:.2}s")
    } else if seconds >= 1e-3 {
        let digits = if seconds < 1e-2 { 1 } else { 0 };
        format!("{:.digits$}ms", seconds * 1e3)
    } else {
        format!("{:.0}us", seconds * 1e6)
    }
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
    format!("{:?}", Duration::from_millis(ms))
}

/// A limit, as short as it can be said exactly; in days if it is so long that nobody cares.
pub(crate) fn short(span: Duration) -> String {
    let seconds = span.as_secs();
    match (span.subsec_nanos(), seconds % 86_400, seconds % 3600, seconds % 60) {
        (_, _, _, _) if seconds >= 100 * 86_400 => format!("{}d", seconds / 86_400),
        (0, 0, _, _) if seconds > 0 => format!("{}d", seconds / 86_400),
        (0, _, 0, _) if seconds > 0 => format!("{}h", seconds / 3600),
        (0, _, _, 0) if seconds > 0 => format!("{}m", seconds / 60),
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
    fn what_people_write_is_read() {
        for (text, ms) in [("800ms", 800), ("3s", 3000), ("1m30s", 90_000), ("1.5s", 1500), ("2h", 7_200_000), ("1d", 86_400_000)]
        {
            assert_eq!(parse(text).unwrap(), Duration::from_millis(ms), "{text}");
        }
        assert_eq!(parse("40us").unwrap(), Duration::from_micros(40));
        for bad in ["", "3", "s", "-3s", "3 parsecs", "1.2.3s", "99999999999999999999d", "3s4", "inf s", "NaNs"] {
            assert!(parse(bad).unwrap_err().contains("1m30s"), "{bad}");
        }
    }

    #[test]
    fn what_was_measured_is_printed_with_three_digits() {
        for (micros, text) in [
            (40, "40us"),
            (1_234, "1.2ms"),
            (40_500, "40ms"),
            (2_345_678, "2.35s"),
            (90_000_000, "1m30s"),
            (7_260_000_000, "2h1m"),
        ] {
            assert_eq!(measured(Duration::from_micros(micros)), text);
        }
        for (ms, text) in [(86_400_000, "1d"), (7_200_000, "2h"), (60_000, "1m"), (90_000, "90s"), (100, "100ms"), (0, "0ns")] {
            assert_eq!(short(Duration::from_millis(ms)), text);
        }
        assert_eq!(long(Duration::from_secs(200_000)), "2d7h");
        assert_eq!(ms(Duration::from_nanos(1_234_567)), 1.235);
    }
}
