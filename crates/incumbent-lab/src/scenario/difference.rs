//! Where a trace is not the one that stands in the file: the lines that differ, with a little around them.

use std::fmt;

/// Lines shown before and behind a change.
const AROUND: usize = 2;

/// One block whose trace differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The file, as the caller named it.
    pub file: String,
    /// The line at which the block's trace begins, from 1.
    pub line: usize,
    /// What stands in the file.
    pub expected: Vec<String>,
    /// What came of the run.
    pub found: Vec<String>,
}

/// What is to be done with a line to get from the first list to the second.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Edit<'a> {
    Keep(&'a str),
    Remove(&'a str),
    Add(&'a str),
}

/// A `-` before lines that stand in the file, a `+` before those that came instead.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: the trace differs", self.file, self.line)?;
        let edits = edits(&self.expected, &self.found);
        let near = |at: usize| {
            let from = at.saturating_sub(AROUND);
            edits[from..edits.len().min(at + AROUND + 1)].iter().any(|edit| !matches!(edit, Edit::Keep(_)))
        };
        let mut skipped = false;
        for (at, edit) in edits.iter().enumerate() {
            if !near(at) {
                skipped = true;
                continue;
            }
            if std::mem::take(&mut skipped) {
                write!(f, "\n   ...")?;
            }
            match edit {
                Edit::Keep(line) => write!(f, "\n   {line}")?,
                Edit::Remove(line) => write!(f, "\n - {line}")?,
                Edit::Add(line) => write!(f, "\n + {line}")?,
            }
        }
        if skipped { write!(f, "\n   ...") } else { Ok(()) }
    }
}

/// The shortest list of edits, by the longest common subsequence. What is equal at both ends is taken first, so that long
/// traces with a small change cost little.
fn edits<'a>(expected: &'a [String], found: &'a [String]) -> Vec<Edit<'a>> {
    let same = |(a, b): &(&String, &String)| a == b;
    let head = expected.iter().zip(found).take_while(same).count();
    let (old, new) = (&expected[head..], &found[head..]);
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(same).count();
    let (old, new) = (&old[..old.len() - tail], &new[..new.len() - tail]);

    // common[i][j]: lines that old[i..] and new[j..] have in common.
    let mut common = vec![vec![0u32; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i][j] = if old[i] == new[j] { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    let mut edits: Vec<Edit<'a>> = expected[..head].iter().map(|line| Edit::Keep(line)).collect();
    let (mut i, mut j) = (0, 0);
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            edits.push(Edit::Keep(&old[i]));
            (i, j) = (i + 1, j + 1);
        } else if i < old.len() && (j == new.len() || common[i + 1][j] >= common[i][j + 1]) {
            edits.push(Edit::Remove(&old[i]));
            i += 1;
        } else {
            edits.push(Edit::Add(&new[j]));
            j += 1;
        }
    }
    edits.extend(expected[expected.len() - tail..].iter().map(|line| Edit::Keep(line)));
    edits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(expected: &str, found: &str) -> String {
        let lines = |text: &str| text.split(' ').filter(|it| !it.is_empty()).map(str::to_owned).collect();
        Difference { file: "a.txt".into(), line: 7, expected: lines(expected), found: lines(found) }.to_string()
    }

    #[test]
    fn shows_what_changed_and_a_little_around_it() {
        assert_eq!(
            difference("a b c d e f g h i", "a b c d E f g h i"),
            "a.txt:7: the trace differs\n   ...\n   c\n   d\n - e\n + E\n   f\n   g\n   ..."
        );
        assert_eq!(difference("", "a"), "a.txt:7: the trace differs\n + a");
        assert_eq!(difference("a b", ""), "a.txt:7: the trace differs\n - a\n - b");
        assert_eq!(difference("a b c", "a c d"), "a.txt:7: the trace differs\n   a\n - b\n   c\n + d");
    }

    #[test]
    fn lines_that_are_repeated_are_counted() {
        assert_eq!(difference("a a", "a"), "a.txt:7: the trace differs\n   a\n - a");
    }
}
