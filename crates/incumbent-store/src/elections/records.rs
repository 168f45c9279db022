//! What is remembered of an election: leaderships that have ended, notes, jobs that were done. Bounded; the oldest goes first.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::election::{Completion, Note, Past};

/// What one of them costs beside its texts, about: many short ones must count, too.
const RECORD_BYTES: usize = 100;

/// What is remembered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    /// Newest first.
    pub(crate) past: VecDeque<Past>,
    /// The greatest token first.
    pub(crate) notes: Vec<Note>,
    /// Newest first.
    pub(crate) completions: VecDeque<Completion>,
    /// What the leaderships count for in limits.
    pub(crate) past_bytes: usize,
    /// What notes and completions count for.
    pub(crate) notes_bytes: usize,
}

impl Records {
    pub(crate) fn is_empty(&self) -> bool {
        self.past.is_empty() && self.notes.is_empty() && self.completions.is_empty()
    }

    /// Takes up what was saved.
    pub(crate) fn restored(past: Vec<Past>, notes: Vec<Note>, completions: Vec<Completion>) -> Records {
        let mut records = Records { past: past.into(), notes, completions: completions.into(), ..Records::default() };
        records.count();
        records
    }

    fn count(&mut self) {
        self.past_bytes = self.past.iter().map(past_size).sum();
        let notes = self.notes.iter().map(|it| record_size(&[&it.text]));
        self.notes_bytes = notes.chain(self.completions.iter().map(|it| record_size(&[&it.job, &it.outcome]))).sum();
    }

    pub(crate) fn remember(&mut self, past: Past, max: usize) {
        if self.past.is_empty() {
            // Most elections are held once or few times: room for four would be most of what an idle one costs.
            self.past.reserve_exact(1);
        }
        self.past.push_front(past);
        self.past.truncate(max);
        self.count();
    }

    /// Forgets the oldest leaderships, of so many bytes or all.
    pub(crate) fn forget_past(&mut self, bytes: usize) {
        let mut left = bytes;
        while left > 0
            && let Some(oldest) = self.past.pop_back()
        {
            left = left.saturating_sub(past_size(&oldest));
        }
        self.count();
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
        self.count();
    }

    pub(crate) fn completion(&self, job: &str) -> Option<&Completion> {
        self.completions.iter().find(|it| it.job == job)
    }

    pub(crate) fn complete(&mut self, completion: Completion, max: usize) {
        self.completions.push_front(completion);
        self.completions.truncate(max);
        self.count();
    }
}

fn past_size(past: &Past) -> usize {
    record_size(&[&past.identity, &past.name, &past.reason])
}

/// What a record with these texts counts for in limits.
pub(crate) fn record_size(texts: &[&str]) -> usize {
    RECORD_BYTES + texts.iter().map(|it| it.len()).sum::<usize>()
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
