//! What the log holds, in memory: of each entry its term and where it stands. The same changes make it when they are written and when they are read again.

use std::collections::VecDeque;

use super::record::{Place, Summary};
use super::{HardState, Mark};

/// Where an entry stands.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    pub(super) term: u64,
    pub(super) place: Place,
    /// Of its content.
    pub(super) length: u32,
}

/// What one record does.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Entry { index: u64, slot: Slot },
    Truncate { from: u64 },
    Compact(Mark),
    Restart(Mark),
    State(HardState),
}

/// A change that no log of ours has.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Nonsense(pub(super) &'static str);

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Contents {
    base: Mark,
    /// The index of the first slot: the one after the base, unless segments are being read and the first has not said yet where the log begins.
    front: u64,
    slots: VecDeque<Slot>,
    state: HardState,
}

impl Contents {
    /// What holds at the beginning of a segment whose forerunners are not there.
    pub(super) fn from_summary(summary: Summary) -> Self {
        let Summary { base, last, state } = summary;
        Contents { base, front: last + 1, slots: VecDeque::new(), state }
    }

    pub(super) fn summary(&self) -> Summary {
        Summary { base: self.base, last: self.last(), state: self.state }
    }

    pub(super) fn base(&self) -> Mark {
        self.base
    }

    pub(super) fn last(&self) -> u64 {
        self.front + self.slots.len() as u64 - 1
    }

    pub(super) fn state(&self) -> HardState {
        self.state
    }

    pub(super) fn slot(&self, index: u64) -> Option<Slot> {
        self.slots.get(usize::try_from(index.checked_sub(self.front)?).ok()?).copied()
    }

    /// Also of the base, which is not there itself.
    pub(super) fn term(&self, index: u64) -> Option<u64> {
        if index == self.base.index { Some(self.base.term) } else { self.slot(index).map(|it| it.term) }
    }

    /// The segment of the first entry; none before it is needed.
    pub(super) fn first_sequence(&self) -> Option<u32> {
        self.slots.front().map(|it| it.place.sequence())
    }

    /// An entry that is missing between the base and the first that is there.
    pub(super) fn missing(&self) -> Option<u64> {
        (self.front > self.base.index + 1).then_some(self.base.index + 1)
    }

    pub(super) fn apply(&mut self, change: Change) -> Result<(), Nonsense> {
        match change {
            Change::Entry { index, slot } => {
                if index > self.last() + 1 {
                    return Err(Nonsense("an entry that does not follow the one before it"));
                }
                self.cut(index)?;
                self.slots.push_back(slot);
            }
            Change::Truncate { from } => self.cut(from)?,
            Change::Compact(mark) => {
                if mark.index < self.base.index || mark.index > self.last() {
                    return Err(Nonsense("entries put away that are not there"));
                }
                let gone = (mark.index + 1).saturating_sub(self.front);
                self.slots.drain(..usize::try_from(gone).unwrap_or(usize::MAX).min(self.slots.len()));
                self.front = self.front.max(mark.index + 1);
                self.base = mark;
            }
            Change::Restart(mark) => {
                self.slots.clear();
                self.front = mark.index + 1;
                self.base = mark;
            }
            Change::State(state) => self.state = state,
        }
        Ok(())
    }

    /// Drops entries from `from` on.
    fn cut(&mut self, from: u64) -> Result<(), Nonsense> {
        if from <= self.base.index {
            return Err(Nonsense("an entry changed that is in the snapshot"));
        }
        match from.checked_sub(self.front) {
            Some(kept) => self.slots.truncate(usize::try_from(kept).unwrap_or(usize::MAX)),
            None => {
                self.slots.clear();
                self.front = from;
            }
        }
        Ok(())
    }
}

impl Summary {
    /// The same as [`Contents::apply`], without the entries.
    pub(super) fn follow(&mut self, change: &Change) {
        match *change {
            Change::Entry { index, .. } => self.last = index,
            Change::Truncate { from } => self.last = self.last.min(from - 1),
            Change::Compact(mark) => self.base = mark,
            Change::Restart(mark) => (self.base, self.last) = (mark, mark.index),
            Change::State(state) => self.state = state,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u64, term: u64) -> Change {
        Change::Entry { index, slot: Slot { term, place: Place::new(1, 512), length: 0 } }
    }

    fn filled(last: u64) -> Contents {
        let mut contents = Contents::from_summary(Summary::default());
        (1..=last).for_each(|index| contents.apply(entry(index, 1)).unwrap());
        contents
    }

    #[test]
    fn an_entry_at_a_taken_index_ends_what_followed_it() {
        let mut contents = filled(5);
        contents.apply(entry(3, 2)).unwrap();
        assert_eq!((contents.last(), contents.term(3), contents.term(2), contents.term(4)), (3, Some(2), Some(1), None));
        assert!(contents.apply(entry(5, 2)).is_err(), "a gap");
    }

    #[test]
    fn what_was_put_away_is_known_by_its_last_term_alone() {
        let mut contents = filled(5);
        contents.apply(Change::Compact(Mark { index: 3, term: 1 })).unwrap();
        assert_eq!((contents.term(2), contents.term(3), contents.slot(3), contents.last()), (None, Some(1), None, 5));
        assert!(contents.apply(entry(3, 2)).is_err());
        assert!(contents.apply(Change::Compact(Mark { index: 6, term: 1 })).is_err());
        contents.apply(Change::Restart(Mark { index: 9, term: 4 })).unwrap();
        assert_eq!((contents.last(), contents.term(9), contents.term(5)), (9, Some(4), None));
    }

    #[test]
    fn without_earlier_segments_the_entries_must_begin_where_the_snapshot_ends() {
        let mut contents = Contents::from_summary(Summary { last: 10, ..Summary::default() });
        contents.apply(entry(11, 1)).unwrap();
        assert_eq!(contents.missing(), Some(1));
        contents.apply(Change::Compact(Mark { index: 10, term: 1 })).unwrap();
        assert_eq!(contents.missing(), None);
    }
}
