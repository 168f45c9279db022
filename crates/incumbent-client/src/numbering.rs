//! Numbers for requests, so that each is applied once however often it is sent.
//!
//! The store remembers a bounded number of outcomes of each client, so a numbering has a window: a request that is that far behind could be forgotten. A process that has more under way
//! at once is several clients to the store.

use std::collections::BTreeSet;

use incumbent_store::limits::Limits;

/// So many requests of one numbering are under way at once: as many as the store remembers the outcomes of.
pub(crate) const WINDOW: u64 = Limits::STANDARD.outcomes_max as u64;

/// A request's number: never given twice.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Number {
    pub(crate) client: u64,
    pub(crate) sequence: u64,
}

/// The requests of one client, as the store counts them.
#[derive(Clone, Debug)]
pub(crate) struct Numbering {
    client: u64,
    /// The next request's number.
    next: u64,
    /// Those that may still be sent, again perhaps.
    open: BTreeSet<u64>,
}

impl Numbering {
    /// Of a client that the store knows by this number.
    pub(crate) fn new(client: u64) -> Numbering {
        Numbering { client, next: 1, open: BTreeSet::new() }
    }

    pub(crate) fn client(&self) -> u64 {
        self.client
    }

    /// A number for a request; none while the window is full.
    pub(crate) fn take(&mut self) -> Option<Number> {
        // The request would be the last of those behind the answered ones that are remembered.
        if self.next - self.answered() > WINDOW {
            return None;
        }
        let sequence = self.next;
        self.next += 1;
        self.open.insert(sequence);
        Some(Number { client: self.client, sequence })
    }

    /// The request with this number will not be sent any more.
    pub(crate) fn settle(&mut self, sequence: u64) {
        self.open.remove(&sequence);
    }

    /// No request up to this one will be sent any more.
    pub(crate) fn answered(&self) -> u64 {
        self.open.first().map_or(self.next, |first| *first) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_as_wide_as_the_stores_memory_and_moves_with_the_oldest() {
        let mut numbering = Numbering::new(7);
        for sequence in 1..=WINDOW {
            assert_eq!(numbering.take(), Some(Number { client: 7, sequence }));
        }
        assert_eq!(numbering.take(), None);
        numbering.settle(2);
        assert_eq!((numbering.answered(), numbering.take()), (0, None), "the oldest is not answered");
        numbering.settle(1);
        assert_eq!(numbering.answered(), 2);
        assert!(numbering.take().is_some() && numbering.take().is_some() && numbering.take().is_none());
    }
}
