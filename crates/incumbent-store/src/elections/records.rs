//! What is remembered of an election: leaderships that have ended, notes, jobs that were done. Bounded; the oldest goes first.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::election::{Completion, Note, Past};

/// What is remembered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    /// Newest first.
    pub(crate) past: VecDeque<Past>,
    /// The greatest token first.
    pub(crate) notes: Vec<Note>,
    /// Newest first.
    pub(crate) completions: VecDeque<Completion>,
}

impl Records {
    pub(crate) fn is_empty(&self) -> bool {
        self.past.is_empty() && self.notes.is_empty() && self.completions.is_empty()
    }

    pub(crate) fn remember(&mut self, past: Past, max: usize) {
        self.past.push_front(past);
        self.past.truncate(max);
    }

    /// In place of the note before; the smallest token loses its note if there are too many.
    pub(crate) fn annotate(&mut self, note: Note, max: usize) {
        match self.notes.binary_search_by(|it| note.token.cmp(&it.token)) {
            Ok(at) => self.notes[at] = note,
            Err(at) => {
                self.notes.insert(at, note);
                self.notes.truncate(max);
            }
        }
    }

    pub(crate) fn completion(&self, job: &str) -> Option<&Completion> {
        self.completions.iter().find(|it| it.job == job)
    }

    pub(crate) fn complete(&mut self, completion: Completion, max: usize) {
        self.completions.push_front(completion);
        self.completions.truncate(max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_tokens_keep_their_notes() {
        let mut records = Records::default();
        for (token, text) in [(5, "a"), (9, "b"), (7, "c"), (5, "d"), (1, "e"), (8, "f")] {
            records.annotate(Note { token, text: text.into() }, 3);
        }
        let notes: Vec<_> = records.notes.iter().map(|it| (it.token, it.text.as_str())).collect();
        assert_eq!(notes, [(9, "b"), (8, "f"), (7, "c")]);
    }
}
