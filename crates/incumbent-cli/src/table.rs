//! Tables for people: columns that line up, with or without colour.

use std::io;

use crate::console::{Console, on_one_line};

/// How a column stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// What a cell means for the reader. The words say it too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tone {
    Plain,
    Good,
    Bad,
}

/// One entry.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    text: String,
    tone: Tone,
}

impl Entry {
    pub(crate) fn new(text: impl Into<String>, tone: Tone) -> Entry {
        Entry { text: on_one_line(&text.into()), tone }
    }
}

/// Plain text.
impl<T: Into<String>> From<T> for Entry {
    fn from(text: T) -> Entry {
        Entry::new(text, Tone::Plain)
    }
}

/// Rows under heads.
pub(crate) struct Table {
    heads: Vec<(String, Side)>,
    rows: Vec<Vec<Entry>>,
}

impl Table {
    pub(crate) fn new(heads: impl IntoIterator<Item = (impl Into<String>, Side)>) -> Table {
        Table { heads: heads.into_iter().map(|(head, side)| (head.into(), side)).collect(), rows: Vec::new() }
    }

    /// Adds a row: one entry a head.
    pub(crate) fn row(&mut self, entries: Vec<Entry>) {
        assert_eq!(entries.len(), self.heads.len(), "one entry a column");
        self.rows.push(entries);
    }

    /// Prints it, every line after `indent`.
    pub(crate) fn print(&self, indent: &str, console: &mut Console<'_>) -> io::Result<()> {
        let paint = console.paint;
        let width = |text: &str| text.chars().count();
        let widths: Vec<usize> = self
            .heads
            .iter()
            .enumerate()
            .map(|(column, (head, _))| {
                self.rows.iter().map(|row| width(&row[column].text)).chain([width(head)]).max().unwrap_or(0)
            })
            .collect();
        let heads = self.heads.iter().map(|(head, _)| head.as_str());
        let line = lined_up(heads, &self.heads, &widths);
        writeln!(console.out, "{indent}{}", paint.strong(line.join("  ").trim_end()))?;
        for row in &self.rows {
            let texts = lined_up(row.iter().map(|entry| entry.text.as_str()), &self.heads, &widths);
            let last = texts.len().saturating_sub(1);
            write!(console.out, "{indent}")?;
            for (column, (text, entry)) in texts.iter().zip(row).enumerate() {
                let text = if column == last { text.trim_end() } else { text };
                match entry.tone {
                    Tone::Plain => write!(console.out, "{text}")?,
                    Tone::Good => write!(console.out, "{}", paint.good(text))?,
                    Tone::Bad => write!(console.out, "{}", paint.bad(text))?,
                }
                console.out.write_all(if column == last { b"\n" } else { b"  " })?;
            }
        }
        Ok(())
    }
}

fn lined_up<'a>(texts: impl Iterator<Item = &'a str>, heads: &[(String, Side)], widths: &[usize]) -> Vec<String> {
    let pad = |(text, ((_, side), width)): (&str, (&(String, Side), &usize))| match side {
        Side::Left => format!("{text:<width$}"),
        Side::Right => format!("{text:>width$}"),
    };
    texts.zip(heads.iter().zip(widths)).map(pad).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::style::{Colour, Paint};

    fn printed(colour: Colour) -> String {
        let mut table = Table::new([("name", Side::Left), ("n", Side::Right), ("note", Side::Left)]);
        table.row(vec!["bully".into(), "10".into(), Entry::new("bad", Tone::Bad)]);
        table.row(vec!["chang-roberts".into(), "7".into(), Entry::new("never", Tone::Good)]);
        let mut bytes = Vec::new();
        table.print("  ", &mut Console { out: &mut bytes, paint: Paint::on_a(false, colour) }).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn columns_line_up_and_no_line_ends_in_blanks() {
        let text = printed(Colour::Never);
        assert_eq!(text, "  name            n  note\n  bully          10  bad\n  chang-roberts   7  never\n");
    }

    #[test]
    fn colour_changes_nothing_but_colour() {
        let painted = printed(Colour::Always);
        assert!(painted.contains('\u{1b}'));
        let mut plain = String::new();
        let mut within = false;
        for letter in painted.chars() {
            match letter {
                '\u{1b}' => within = true,
                'm' if within => within = false,
                _ if within => {}
                letter => plain.push(letter),
            }
        }
        assert_eq!(plain, printed(Colour::Never));
    }
}
