//! A state of the group as a short list of numbers: what is left of the budget, the nodes, the messages under way.

use std::hash::Hasher;

use super::scope::Budget;
use super::step::{Action, Deed};

/// A state, unpacked.
#[derive(Clone, Default, Debug)]
pub(super) struct State {
    /// What is left of the budget.
    pub(super) left: Budget,
    /// By rank: the node's number.
    pub(super) nodes: Vec<u32>,
    /// The numbers of the messages under way, in ascending order: which was sent first makes no difference.
    pub(super) flying: Vec<u32>,
}

impl State {
    /// A message is under way.
    pub(super) fn add(&mut self, envelope: u32) {
        let place = self.flying.partition_point(|it| *it < envelope);
        self.flying.insert(place, envelope);
    }

    /// Takes off what `action` uses up: of the messages under way, of the budget.
    pub(super) fn spend(&mut self, action: Action) {
        let left = &mut self.left;
        let (used, arrived) = match action {
            Action::Deliver(envelope) => (None, Some(envelope)),
            Action::Repeat(_) => (Some(&mut left.repeats), None),
            Action::Lose(envelope) => (Some(&mut left.losses), Some(envelope)),
            Action::Do(_, Deed::Due) => (Some(&mut left.wakes), None),
            Action::Do(_, Deed::Crash { .. }) => (Some(&mut left.crashes), None),
            Action::Do(_, Deed::Ask(_)) => (Some(&mut left.requests), None),
            Action::Do(_, Deed::Wake | Deed::Sync | Deed::Start) => (None, None),
        };
        if let Some(used) = used {
            *used -= 1;
        }
        if let Some(envelope) = arrived {
            let place = self.flying.partition_point(|it| *it < envelope);
            self.flying.remove(place);
        }
    }

    pub(super) fn write(&self, words: &mut Vec<u32>) {
        let Budget { crashes, losses, repeats, wakes, requests } = self.left;
        words.push(u32::from_le_bytes([crashes, losses, repeats, wakes]));
        words.push(u32::from(requests));
        words.extend_from_slice(&self.nodes);
        words.extend_from_slice(&self.flying);
    }

    /// The opposite of [`State::write`], for a group of `size` nodes.
    pub(super) fn read(&mut self, words: &[u32], size: usize) {
        let [crashes, losses, repeats, wakes] = words[0].to_le_bytes();
        let [requests, ..] = words[1].to_le_bytes();
        self.left = Budget { crashes, losses, repeats, wakes, requests };
        let (nodes, flying) = words[2..].split_at(size);
        self.nodes.clear();
        self.nodes.extend_from_slice(nodes);
        self.flying.clear();
        self.flying.extend_from_slice(flying);
    }
}

/// States one after the other in one piece of memory.
#[derive(Default)]
pub(super) struct Frontier {
    words: Vec<u32>,
    ends: Vec<usize>,
}

impl Frontier {
    pub(super) fn push(&mut self, words: &[u32]) {
        self.words.extend_from_slice(words);
        self.ends.push(self.words.len());
    }

    pub(super) fn words(&self, place: usize) -> &[u32] {
        let start = if place == 0 { 0 } else { self.ends[place - 1] };
        &self.words[start..self.ends[place]]
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.words.clear();
        self.ends.clear();
    }
}

/// A fingerprint of a state: two halves, mixed by the constants of SplitMix64 and of MurmurHash3.
pub(super) fn fingerprint(words: &[u32]) -> u128 {
    let (mut low, mut high) = (0x243F_6A88_85A3_08D3, 0x1319_8A2E_0370_7344);
    let mut add = |word: u64| {
        low = mix(low ^ word, 0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB);
        high = mix(high ^ word, 0xFF51_AFD7_ED55_8CCD, 0xC4CE_B9FE_1A85_EC53);
    };
    // Mixed in by itself: beside the first word it could make up for a difference there.
    add(words.len() as u64);
    for pair in words.chunks(2) {
        add(u64::from(pair[0]) | pair.get(1).map_or(0, |it| u64::from(*it) << 32));
    }
    u128::from(high) << 64 | u128::from(low)
}

fn mix(mut word: u64, first: u64, second: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(first);
    word = (word ^ (word >> 27)).wrapping_mul(second);
    word ^ (word >> 31)
}

/// For tables of fingerprints, which need no further mixing.
#[derive(Default)]
pub(super) struct Fingerprinted(u64);

impl Hasher for Fingerprinted {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u128(&mut self, fingerprint: u128) {
        self.0 = fingerprint as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let budget = Budget { crashes: 1, losses: 2, repeats: 3, wakes: 4, requests: 5 };
        let mut state = State { left: budget, nodes: vec![7, 8, 9], flying: Vec::new() };
        state.add(6);
        state.add(2);
        state.add(6);
        assert_eq!(state.flying, [2, 6, 6]);
        let mut words = Vec::new();
        state.write(&mut words);
        let mut again = State::default();
        again.read(&words, 3);
        assert_eq!((again.left, &again.nodes, &again.flying), (budget, &state.nodes, &state.flying));
        again.spend(Action::Lose(6));
        assert_eq!((again.left.losses, again.flying.as_slice()), (1, &[2, 6][..]));
    }

    #[test]
    fn fingerprints_tell_states_apart_that_differ_by_little() {
        let mut seen = std::collections::BTreeSet::new();
        let mut count = 0;
        for length in 0..6 {
            for bits in 0..1u32 << (2 * length) {
                let words: Vec<u32> = (0..length).map(|place| bits >> (2 * place) & 3).collect();
                // Both halves must do so: each is half of the promise.
                let fingerprint = fingerprint(&words);
                seen.insert((0, fingerprint as u64));
                seen.insert((1, (fingerprint >> 64) as u64));
                count += 2;
            }
        }
        assert_eq!(seen.len(), count);
    }
}
