//! What is yet to happen, in the order in which it will: by moment, and at one moment in the order it was put in.
//!
//! The heap holds small keys only; what they stand for lies still in slots that are used again, so that a running
//! world allocates nothing once its busiest moment is behind it. Nothing is ever taken back from the middle: what has
//! become void is recognised by its owner when it comes up.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::observation::Moment;

/// A priority queue that keeps the order of insertion among equals.
#[derive(Clone, Debug)]
pub struct Queue<T> {
    keys: BinaryHeap<Key>,
    slots: Vec<Option<T>>,
    free: Vec<u32>,
    put: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { keys: BinaryHeap::new(), slots: Vec::new(), free: Vec::new(), put: 0 }
    }
}

impl<T> Queue<T> {
    /// Puts `what` in, to come up at `at`.
    pub fn put(&mut self, at: Moment, what: T) {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(what);
                slot
            }
            None => {
                let slot = u32::try_from(self.slots.len()).expect("fewer than 2^32 events are pending");
                self.slots.push(Some(what));
                slot
            }
        };
        self.keys.push(Key { at, order: self.put, slot });
        self.put += 1;
    }

    /// When the next one comes up.
    pub fn next_at(&self) -> Option<Moment> {
        self.keys.peek().map(|key| key.at)
    }

    /// Takes the next one out.
    pub fn take(&mut self) -> Option<(Moment, T)> {
        let key = self.keys.pop()?;
        let what = self.slots[key.slot as usize].take().expect("a key has its slot");
        self.free.push(key.slot);
        Some((key.at, what))
    }

    /// How many are pending.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

/// Ordered so that the greatest key is the one that comes up first, as the heap wants it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Key {
    at: Moment,
    order: u64,
    slot: u32,
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use incumbent_protocol::chance::Chance;

    #[test]
    fn comes_up_by_moment_and_among_equals_in_the_order_put() {
        let mut chance = Chance::new(1);
        let mut queue = Queue::default();
        let mut expected = Vec::new();
        for index in 0..1000 {
            let at = Moment(chance.below(50));
            queue.put(at, index);
            expected.push((at, index));
        }
        expected.sort();
        let taken: Vec<_> = std::iter::from_fn(|| queue.take()).collect();
        assert_eq!(taken, expected);
        assert!(queue.is_empty());
    }

    #[test]
    fn slots_are_used_again() {
        let mut queue = Queue::default();
        for round in 0..1000 {
            queue.put(Moment(round), round);
            queue.put(Moment(round), round);
            queue.take();
            queue.take();
        }
        assert_eq!(queue.slots.len(), 2);
    }
}
