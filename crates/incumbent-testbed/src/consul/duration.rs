//! Durations as Go writes and reads them: `10s`, `1h30m`, `1.5s`, `24h0m0s`.

use std::time::Duration;

const UNITS: [(&str, u64); 7] = [
    // "ms" before "m", for the first that fits is taken.
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads what Go's `time.ParseDuration` reads, except negative durations, which no API here takes.
pub(super) fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut nanos = 0_f64;
    while !rest.is_empty() {
        let end = rest.find(|it: char| !it.is_ascii_digit() && it != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let (unit, length_ns) = UNITS.iter().find(|(unit, _)| rest.starts_with(unit))?;
        nanos += number * *length_ns as f64;
        rest = &rest[unit.len()..];
    }
    (!text.is_empty() && nanos < u64::MAX as f64).then(|| Duration::from_nanos(nanos.round() as u64))
}

/// Writes as Go's `Duration.String`.
pub(super) fn text(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let decimal = |unit: u128| {
        let fraction = format!("{:0width$}", nanos % unit, width = unit.ilog10() as usize);
        format!("{}.{fraction}", nanos / unit).trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match nanos {
        0 => "0s".into(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => format!("{}µs", decimal(1_000)),
        1_000_000..1_000_000_000 => format!("{}ms", decimal(1_000_000)),
        _ => {
            let (hours, minutes) = (duration.as_secs() / 3600, duration.as_secs() / 60 % 60);
            let within_minute =
                Duration::from_secs(duration.as_secs() % 60) + Duration::from_nanos(duration.subsec_nanos().into());
            let seconds = format!("{:.9}", within_minute.as_secs_f64());
            let seconds = seconds.trim_end_matches('0').trim_end_matches('.');
            match (hours, minutes) {
                (0, 0) => format!("{seconds}s"),
                (0, _) => format!("{minutes}m{seconds}s"),
                (_, _) => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, milliseconds) in
            [("10s", 10_000), ("1.5s", 1_500), ("1h0m1s", 3_601_000), ("250ms", 250), ("2m", 120_000), ("0", 0)]
        {
            assert_eq!(parse(text), Some(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "x", "10", "s", "1.1.1s", "-1s", "10 s"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn durations_are_written_as_go_writes_them() {
        for written in ["0s", "10s", "24h0m0s", "1m0s", "1.5s", "500ms", "1.25ms", "2µs", "7ns", "1h0m0.5s"] {
            assert_eq!(text(parse(written).unwrap()), written);
        }
    }
}
