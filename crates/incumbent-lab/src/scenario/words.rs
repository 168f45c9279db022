//! A line of a scenario as words, and what is wrong with it: where, what was expected, what stands there.

use std::fmt;
use std::time::Duration;

use incumbent_protocol::protocol::NodeId;

use crate::network::Delay;

/// What is wrong with a scenario file. Printed it shows the line, with a caret under the word.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mistake {
    /// The file, as the caller named it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column of the first character that is wrong, from 1.
    pub column: usize,
    /// How many characters are wrong, at least one.
    pub width: usize,
    /// What was expected, or what to change.
    pub what: String,
    /// The line itself.
    pub text: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        let gutter = " ".repeat(number.len());
        // A tab stays a tab, so that the caret stands under the word whatever the width of a tab.
        let before: String = self.text.chars().take(self.column - 1).map(|it| if it == '\t' { '\t' } else { ' ' }).collect();
        writeln!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.what)?;
        writeln!(f, " {number} | {}", self.text)?;
        write!(f, " {gutter} | {before}{}", "^".repeat(self.width))
    }
}

impl std::error::Error for Mistake {}

/// What is wrong, before the file and the line are known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Wrong {
    pub(super) column: usize,
    pub(super) width: usize,
    pub(super) what: String,
}

/// A word and where it stands.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Word<'a> {
    pub(super) text: &'a str,
    /// From 1, in characters.
    pub(super) column: usize,
}

impl Word<'_> {
    /// This word is wrong.
    pub(super) fn wrong(&self, what: impl Into<String>) -> Wrong {
        Wrong { column: self.column, width: self.text.chars().count().max(1), what: what.into() }
    }

    /// Something else was expected here.
    pub(super) fn expected(&self, what: impl fmt::Display) -> Wrong {
        self.wrong(format!("expected {what}, found '{}'", self.text))
    }
}

/// The words of a line, taken from the left.
#[derive(Clone, Debug)]
pub(super) struct Words<'a> {
    words: Vec<Word<'a>>,
    at: usize,
    /// The column behind the last character.
    end: usize,
}

impl<'a> Words<'a> {
    pub(super) fn of(line: &'a str) -> Words<'a> {
        let mut words = Vec::new();
        let mut begun = None;
        for (column, (at, letter)) in (1..).zip(line.char_indices()) {
            match (letter.is_whitespace(), begun) {
                (false, None) => begun = Some((at, column)),
                (true, Some((from, column))) => {
                    words.push(Word { text: &line[from..at], column });
                    begun = None;
                }
                (false, Some(_)) | (true, None) => {}
            }
        }
        if let Some((from, column)) = begun {
            words.push(Word { text: &line[from..], column });
        }
        let end = words.last().map_or(1, |word| word.column + word.text.chars().count());
        Words { words, at: 0, end }
    }

    pub(super) fn peek(&self) -> Option<Word<'a>> {
        self.words.get(self.at).copied()
    }

    /// The next word, which must be there.
    pub(super) fn next(&mut self, expected: impl fmt::Display) -> Result<Word<'a>, Wrong> {
        let word = self.peek().ok_or_else(|| self.missing(expected))?;
        self.at += 1;
        Ok(word)
    }

    /// Takes the next word if it is `text`.
    pub(super) fn take(&mut self, text: &str) -> bool {
        let found = self.peek().is_some_and(|word| word.text == text);
        self.at += usize::from(found);
        found
    }

    /// The next word must be `text`.
    pub(super) fn demand(&mut self, text: &str) -> Result<(), Wrong> {
        let word = self.next(format_args!("'{text}'"))?;
        if word.text == text { Ok(()) } else { Err(word.expected(format_args!("'{text}'"))) }
    }

    /// The line must end here.
    pub(super) fn end(&self) -> Result<(), Wrong> {
        self.peek().map_or(Ok(()), |word| Err(word.expected("the end of the line")))
    }

    /// The line ends too soon.
    pub(super) fn missing(&self, expected: impl fmt::Display) -> Wrong {
        Wrong {
            column: self.end + usize::from(self.end > 1),
            width: 1,
            what: format!("expected {expected}, found the end of the line"),
        }
    }

    /// The next word is a member of the group.
    pub(super) fn node(&mut self, members: &[NodeId]) -> Result<NodeId, Wrong> {
        let word = self.next("a node")?;
        member(word, members)
    }

    pub(super) fn span(&mut self) -> Result<Duration, Wrong> {
        let word = self.next("a time such as 300ms")?;
        span(word.text).ok_or_else(|| word.expected(SPAN))
    }

    pub(super) fn percent(&mut self) -> Result<u32, Wrong> {
        let word = self.next("a share such as 30%")?;
        percent(word.text).ok_or_else(|| word.expected(PERCENT))
    }

    /// `5ms`, `1ms to 20ms` or `1ms tail 2ms`.
    pub(super) fn delay(&mut self) -> Result<Delay, Wrong> {
        let first = self.span()?;
        let Some(word) = self.peek() else { return Ok(Delay::Constant(first)) };
        match word.text {
            "to" => {
                self.at += 1;
                let second = self.span()?;
                if first > second {
                    return Err(word.wrong("the first time must not be greater than the second: exchange them"));
                }
                Ok(Delay::Uniform { min: first, max: second })
            }
            "tail" => {
                self.at += 1;
                Ok(Delay::Tail { base: first, mean: self.span()? })
            }
            _ => Ok(Delay::Constant(first)),
        }
    }
}

pub(super) const SPAN: &str = "a time of at most a day, such as 300ms (units: s, ms, us, ns)";
pub(super) const PERCENT: &str = "a share between 0% and 100%, such as 30% or 0.5%";

/// No scenario waits longer than this for anything.
const LONGEST: Duration = Duration::from_secs(86_400);

/// `word` as one of the members.
pub(super) fn member(word: Word<'_>, members: &[NodeId]) -> Result<NodeId, Wrong> {
    let id = word.text.parse().map(NodeId).map_err(|_| word.expected("the number of a node"))?;
    if !members.contains(&id) {
        let list: Vec<String> = members.iter().map(NodeId::to_string).collect();
        return Err(word.wrong(format!("node {id} is no member: the cluster has {}", list.join(" "))));
    }
    Ok(id)
}

/// A time with its unit: `2s`, `1.5s`, `300ms`, `20us`, `7ns`.
pub(super) fn span(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|it: char| it.is_ascii_alphabetic())?);
    let unit_nanos = match unit {
        "s" => 1_000_000_000,
        "ms" => 1_000_000,
        "us" => 1_000,
        "ns" => 1,
        _ => return None,
    };
    let nanos = decimal(number, unit_nanos)?;
    Some(Duration::from_nanos(nanos)).filter(|span| *span <= LONGEST)
}

/// A share in parts per million: `30%`, `0.05%`.
pub(super) fn percent(text: &str) -> Option<u32> {
    let ppm = decimal(text.strip_suffix('%')?, 10_000)?;
    u32::try_from(ppm).ok().filter(|ppm| *ppm <= 1_000_000)
}

/// A decimal number times `unit`, if that is whole. Nothing is rounded.
fn decimal(text: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.len() <= 12 && part.bytes().all(|it| it.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let scale = 10u128.pow(fraction.len() as u32);
    let value = (whole.parse::<u128>().ok()? * scale + fraction.parse::<u128>().ok()?) * u128::from(unit);
    (value.is_multiple_of(scale)).then(|| u64::try_from(value / scale).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_know_their_columns_also_behind_tabs_and_foreign_letters() {
        let words = Words::of("  cut\té 2 ");
        let seen: Vec<(&str, usize)> = words.words.iter().map(|word| (word.text, word.column)).collect();
        assert_eq!(seen, [("cut", 3), ("é", 7), ("2", 9)]);
        assert_eq!(words.end, 10);
    }

    #[test]
    fn times_and_shares_are_read_exactly_or_not_at_all() {
        for (text, nanos) in [("2s", 2_000_000_000), ("1.5s", 1_500_000_000), ("300ms", 300_000_000), ("0.5us", 500), ("0ms", 0)]
        {
            assert_eq!(span(text), Some(Duration::from_nanos(nanos)), "{text}");
        }
        for text in ["2", "s", "-1s", "1.s", ".5s", "1.5ns", "2m", "86401s", "99999999999999s", "1e3s", "5 s", "٣s"] {
            assert_eq!(span(text), None, "{text}");
        }
        for (text, ppm) in [("30%", 300_000), ("0.05%", 500), ("100%", 1_000_000), ("0%", 0)] {
            assert_eq!(percent(text), Some(ppm), "{text}");
        }
        for text in ["101%", "30", "%", "0.00005%", "-1%"] {
            assert_eq!(percent(text), None, "{text}");
        }
    }

    #[test]
    fn a_caret_stands_under_the_word() {
        let mistake =
            Mistake { file: "a.txt".into(), line: 12, column: 5, width: 3, what: "expected x".into(), text: "cut\tfoo".into() };
        assert_eq!(mistake.to_string(), "a.txt:12:5: expected x\n 12 | cut\tfoo\n    |    \t^^^");
    }
}
