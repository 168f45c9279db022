//! Whether a history of one register is linearizable: whether its operations can be put in one order, each at a moment between its call and its return, in which every answer is right.
//!
//! Wing and Gong's search with Lowe's memory: the calls and returns lie in a list in the order of time; a call that fits the state is taken out together with its return, and one whose return
//! comes before it was taken out sends the search back. What was taken out and the state that it led to are remembered, so that nothing is tried twice.
//!
//! An operation whose outcome is unknown may take effect at any time after its call, or never: its return lies behind everything. Values are written once each, so one that nobody has ever
//! seen need not have been written, and is left out before the search: else each of them would double it.

use std::collections::{BTreeSet, HashSet};

/// A value; none if nothing was written yet.
pub(crate) type Value = Option<u64>;

/// What was done to a register, and what was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    /// It was seen.
    Read(Value),
    /// It was written.
    Write(u64),
    /// It was this, and was written.
    Swap { from: Value, to: u64 },
}

/// An operation, and when: on one clock for all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Operation {
    pub(crate) act: Act,
    pub(crate) called: u64,
    /// None if it is not known to have been done.
    pub(crate) returned: Option<u64>,
}

impl Act {
    fn seen(self) -> Value {
        match self {
            Act::Read(value) => value,
            Act::Swap { from, .. } => from,
            Act::Write(_) => None,
        }
    }

    fn written(self) -> Option<u64> {
        match self {
            Act::Read(_) => None,
            Act::Write(value) | Act::Swap { to: value, .. } => Some(value),
        }
    }

    /// The state after it; none if it cannot be here.
    fn applied(self, state: Value) -> Option<Value> {
        match self {
            Act::Read(value) => (value == state).then_some(state),
            Act::Write(value) => Some(Some(value)),
            Act::Swap { from, to } => (from == state).then_some(Some(to)),
        }
    }
}

/// The operation that fits nowhere in the longest order that was found, and the state there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stuck {
    pub(crate) at: Operation,
    pub(crate) state: Value,
    pub(crate) placed: usize,
}

/// One end of an operation in the list.
#[derive(Clone, Copy)]
struct End {
    operation: usize,
    is_return: bool,
}

/// The list. 0 is its head; an entry that was taken out keeps its own links, so that it can be put back.
struct List {
    next: Vec<usize>,
    before: Vec<usize>,
}

impl List {
    fn take(&mut self, entry: usize) {
        let (before, next) = (self.before[entry], self.next[entry]);
        self.next[before] = next;
        self.before[next] = before;
    }

    fn put_back(&mut self, entry: usize) {
        let (before, next) = (self.before[entry], self.next[entry]);
        self.next[before] = entry;
        self.before[next] = entry;
    }
}

/// Finds an order, or says where there is none.
pub(crate) fn check(history: &[Operation]) -> Result<(), Stuck> {
    let seen: BTreeSet<u64> = history.iter().filter_map(|it| it.act.seen()).collect();
    let matters = |it: &&Operation| it.returned.is_some() || it.act.written().is_some_and(|value| seen.contains(&value));
    let operations: Vec<Operation> = history.iter().filter(matters).copied().collect();

    let mut ends: Vec<(u64, End)> = Vec::new();
    for (operation, it) in operations.iter().enumerate() {
        ends.push((it.called, End { operation, is_return: false }));
        ends.push((it.returned.unwrap_or(u64::MAX), End { operation, is_return: true }));
    }
    // Calls before returns of the same moment: then they overlap, which allows more.
    ends.sort_by_key(|(at, end)| (*at, end.is_return));
    let last = ends.len() + 1;
    let mut list = List { next: (1..=last + 1).collect(), before: (0..=last).map(|it| it.saturating_sub(1)).collect() };
    let mut returns = vec![0; operations.len()];
    for (at, (_, end)) in ends.iter().enumerate() {
        if end.is_return {
            returns[end.operation] = at + 1;
        }
    }

    let (mut state, mut placed) = (None, vec![0_u64; operations.len().div_ceil(64)]);
    let mut tried: HashSet<(Vec<u64>, Value)> = HashSet::new();
    let mut order: Vec<(usize, Value)> = Vec::new();
    let mut worst: Option<Stuck> = None;
    let mut entry = list.next[0];
    while entry != last {
        let End { operation, is_return } = ends[entry - 1].1;
        let it = operations[operation];
        if is_return {
            if it.returned.is_none() {
                // All returns that are known lie before it, and none is left there.
                return Ok(());
            }
            if worst.as_ref().is_none_or(|worst| order.len() >= worst.placed) {
                worst = Some(Stuck { at: it, state, placed: order.len() });
            }
            let Some((call, former)) = order.pop() else { break };
            let undone = ends[call - 1].1.operation;
            list.put_back(returns[undone]);
            list.put_back(call);
            placed[undone / 64] &= !(1 << (undone % 64));
            (state, entry) = (former, list.next[call]);
            continue;
        }
        if let Some(after) = it.act.applied(state) {
            placed[operation / 64] |= 1 << (operation % 64);
            if tried.insert((placed.clone(), after)) {
                order.push((entry, state));
                state = after;
                list.take(entry);
                list.take(returns[operation]);
                entry = list.next[0];
                continue;
            }
            placed[operation / 64] &= !(1 << (operation % 64));
        }
        entry = list.next[entry];
    }
    if entry == last { Ok(()) } else { Err(worst.expect("it was stuck somewhere")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(act: Act, called: u64, returned: u64) -> Operation {
        Operation { act, called, returned: Some(returned) }
    }

    fn unknown(act: Act, called: u64) -> Operation {
        Operation { act, called, returned: None }
    }

    #[test]
    fn what_overlaps_may_be_put_in_any_order() {
        let history = [
            known(Act::Write(1), 0, 10),
            known(Act::Write(2), 1, 9),
            known(Act::Read(Some(1)), 2, 3),
            known(Act::Swap { from: Some(1), to: 3 }, 4, 5),
            known(Act::Read(Some(2)), 11, 12),
        ];
        assert_eq!(check(&history), Ok(()), "1, read, 3, 2, read");
        assert_eq!(check(&[]), Ok(()));
    }

    #[test]
    fn a_stale_read_is_found() {
        let history = [known(Act::Write(1), 0, 1), known(Act::Write(2), 2, 3), known(Act::Read(Some(1)), 4, 5)];
        let stuck = check(&history).unwrap_err();
        assert_eq!((stuck.at, stuck.state, stuck.placed), (history[2], Some(2), 2));
        assert!(check(&[known(Act::Write(1), 0, 1), known(Act::Read(None), 2, 3)]).is_err(), "a write that was lost");
    }

    #[test]
    fn two_who_swap_the_same_value_are_found() {
        let both = [
            known(Act::Write(1), 0, 1),
            known(Act::Swap { from: Some(1), to: 2 }, 2, 9),
            known(Act::Swap { from: Some(1), to: 3 }, 2, 9),
        ];
        assert!(check(&both).is_err());
    }

    #[test]
    fn what_is_unknown_may_happen_late_or_never_but_once_and_not_before_its_call() {
        let write = unknown(Act::Write(1), 5);
        assert_eq!(check(&[write, known(Act::Read(None), 10, 11)]), Ok(()), "never");
        assert_eq!(check(&[write, known(Act::Read(None), 10, 11), known(Act::Read(Some(1)), 12, 13)]), Ok(()), "late");
        assert!(check(&[write, known(Act::Read(Some(1)), 1, 2)]).is_err(), "before its call");
        let twice = [
            write,
            known(Act::Read(Some(1)), 6, 7),
            known(Act::Write(2), 8, 9),
            known(Act::Read(Some(2)), 10, 11),
            known(Act::Read(Some(1)), 12, 13),
        ];
        assert!(check(&twice).is_err(), "twice");
    }

    #[test]
    fn two_readers_who_see_the_new_value_and_then_the_old_one_are_found() {
        let history = [known(Act::Write(1), 0, 100), known(Act::Read(Some(1)), 10, 20), known(Act::Read(None), 30, 40)];
        assert!(check(&history).is_err());
        assert_eq!(check(&[history[0], history[2], known(Act::Read(Some(1)), 50, 60)]), Ok(()));
    }

    #[test]
    fn many_that_overlap_are_searched_in_good_time() {
        let mut history: Vec<Operation> = (0..1000).map(|it| known(Act::Write(it), it * 10, it * 10 + 25)).collect();
        history.extend((0..1000).map(|it| known(Act::Read(Some(it)), it * 10 + 1, it * 10 + 24)));
        assert_eq!(check(&history), Ok(()));
        history.push(known(Act::Read(Some(7)), 20_000, 20_001));
        assert!(check(&history).is_err());
    }
}
