//! The two kinds of time in a Lease: `Time` (whole seconds) and `MicroTime` (exactly six fraction digits), read as Go reads them.

use std::time::SystemTime;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

/// Seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Time(pub(super) i64);

/// Microseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct MicroTime(pub(super) i64);

impl Time {
    pub(super) fn now() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
    }

    /// # Errors
    /// In Go's words.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        parse(text, "2006-01-02T15:04:05Z07:00").map(|it| Self(it.as_second()))
    }
}

impl MicroTime {
    /// # Errors
    /// In Go's words.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        parse(text, "2006-01-02T15:04:05.000000Z07:00").map(|it| Self(it.as_microsecond()))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let at = Timestamp::from_second(self.0).map_err(serde::ser::Error::custom)?;
        serializer.collect_str(&at.strftime("%Y-%m-%dT%H:%M:%SZ"))
    }
}

impl Serialize for MicroTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let at = Timestamp::from_microsecond(self.0).map_err(serde::ser::Error::custom)?;
        serializer.collect_str(&at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ"))
    }
}

/// The parts of Go's layouts, in their order.
const PARTS: [&str; 13] = ["2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05", ".000000", "Z07:00"];

fn parse(text: &str, layout: &str) -> Result<Timestamp, String> {
    let mut rest = text;
    for part in PARTS.into_iter().filter(|part| layout.contains(part)) {
        // Go takes a fraction behind seconds also where the layout has none, but not in the place of one that it has.
        if part == "Z07:00" && !layout.contains(".000000") {
            let digits = rest.strip_prefix('.').map_or(0, |it| it.find(|c: char| !c.is_ascii_digit()).unwrap_or(it.len()));
            rest = if digits > 0 { &rest[1 + digits..] } else { rest };
        }
        let Some(length) = length_of(part, rest) else {
            return Err(format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {part:?}"));
        };
        rest = &rest[length..];
    }
    if !rest.is_empty() {
        return Err(format!("parsing time {text:?}: extra text: {rest:?}"));
    }
    // The form is right, so what is wrong now is a number.
    text.parse().map_err(|_| format!("parsing time {text:?}: day out of range"))
}

/// How much of the text this part of a layout takes; `None` if it does not fit.
fn length_of(part: &str, text: &str) -> Option<usize> {
    let digits = |text: &str, count: usize| text.len() >= count && text.bytes().take(count).all(|it| it.is_ascii_digit());
    match part {
        "Z07:00" if text.starts_with('Z') => Some(1),
        "Z07:00" => {
            let offset = text.strip_prefix(['+', '-'])?;
            (digits(offset, 2) && offset[2..].starts_with(':') && digits(&offset[3..], 2)).then_some(6)
        }
        ".000000" => (text.starts_with('.') && digits(&text[1..], 6)).then_some(7),
        "-" | ":" | "T" => text.starts_with(part).then_some(1),
        _ => digits(text, part.len()).then_some(part.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_micro_time_has_exactly_six_fraction_digits() {
        let good = MicroTime::parse("2026-01-01T00:00:00.000001Z").unwrap();
        assert_eq!(serde_json::to_string(&good).unwrap(), "\"2026-01-01T00:00:00.000001Z\"");
        assert_eq!(MicroTime::parse("2026-01-01T02:00:00.000001+02:00"), Ok(good));
        for (text, end) in [
            ("2026-01-01T00:00:00Z", "cannot parse \"Z\" as \".000000\""),
            ("2026-01-01T00:00:00.1Z", "cannot parse \".1Z\" as \".000000\""),
            ("2026-01-01T00:00:00.1234567Z", "cannot parse \"7Z\" as \"Z07:00\""),
            ("2026-01-01 00:00:00.000000Z", "cannot parse \" 00:00:00.000000Z\" as \"T\""),
            ("2026-01-01T00:00:00.000000Zx", "extra text: \"x\""),
            ("2026-02-30T00:00:00.000000Z", "day out of range"),
            ("", "cannot parse \"\" as \"2006\""),
        ] {
            let wrong = MicroTime::parse(text).unwrap_err();
            assert!(wrong.starts_with(&format!("parsing time {text:?}")) && wrong.ends_with(end), "{wrong}");
        }
    }

    #[test]
    fn a_time_is_told_in_whole_seconds() {
        for text in ["2026-01-01T00:00:07Z", "2026-01-01T00:00:07.5Z"] {
            assert_eq!(serde_json::to_string(&Time::parse(text).unwrap()).unwrap(), "\"2026-01-01T00:00:07Z\"");
        }
    }
}
