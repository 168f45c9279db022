//! One way of one connection: a queue between the thread that reads and the thread that writes.
//!
//! The reader puts in what comes, whatever the way is; the writer gets it when the way lets it pass. So a way can change at any time, and
//! applies to what is already inside.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Way, held};

/// The queue of one way.
pub(super) struct Pipe {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    way: Way,
    /// An inspector's verdict on this pipe alone, stronger than the way.
    halted: Option<Halt>,
    items: VecDeque<(Instant, Item)>,
    /// Bytes in the queue.
    size: usize,
    /// When the first of the queue gets through, if its way is lossy.
    sent_again: Option<Instant>,
    /// Something was thrown away.
    holed: bool,
    closed: bool,
}

/// What an inspector may do to a pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Halt {
    Hold,
    Lose,
}

/// What goes through.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Item {
    Bytes(Vec<u8>),
    /// The sender has closed its side.
    End,
}

/// What the writer is to do next.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Pass it on.
    Pass(Item),
    /// So many bytes were thrown away.
    Lost(usize),
    /// The connection was closed.
    Closed,
}

/// Unlucky chunks get through at last.
const ATTEMPTS_MAX: u32 = 6;

/// More than this is not kept: the sender has to wait, as it would for a full window.
const SIZE_MAX: usize = 4 << 20;

impl Pipe {
    pub(super) fn new(way: Way) -> Pipe {
        let state = State { way, halted: None, items: VecDeque::new(), size: 0, sent_again: None, holed: false, closed: false };
        Pipe { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Puts in what has come, as soon as there is room; false if the connection was closed.
    pub(super) fn put(&self, arrived: Instant, item: Item, halt: Option<Halt>) -> bool {
        let mut state = held(&self.state);
        while state.size > SIZE_MAX && !state.closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed {
            return false;
        }
        state.halted = state.halted.or(halt);
        state.size += item.size();
        state.items.push_back((arrived, item));
        self.changed.notify_all();
        true
    }

    /// Waits until something may pass, is lost, or the connection is closed.
    pub(super) fn next(&self) -> Next {
        let mut state = held(&self.state);
        loop {
            if state.closed {
                let lost = state.size;
                state.items.clear();
                state.size = 0;
                return if lost > 0 { Next::Lost(lost) } else { Next::Closed };
            }
            let Some((arrived, _)) = state.items.front() else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let way = match state.halted {
                None => state.way,
                Some(Halt::Hold) => Way::Hold,
                Some(Halt::Lose) => Way::Lose,
            };
            let due = match way {
                Way::Pass => *arrived,
                Way::Delay(delay) => *arrived + delay,
                Way::Lossy { percent, again } => {
                    let arrived = *arrived;
                    *state.sent_again.get_or_insert_with(|| arrived + resent(percent, again))
                }
                Way::Hold => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                Way::Lose => {
                    let lost = state.size;
                    state.items.clear();
                    state.size = 0;
                    state.holed = true;
                    self.changed.notify_all();
                    return Next::Lost(lost);
                }
            };
            let wait = due.saturating_duration_since(Instant::now());
            if !wait.is_zero() {
                state = self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let (_, item) = state.items.pop_front().expect("it was there");
            state.sent_again = None;
            state.size -= item.size();
            self.changed.notify_all();
            return Next::Pass(item);
        }
    }

    /// Changes the way; false if something was lost and the new way would let the rest pass.
    pub(super) fn set(&self, way: Way) -> bool {
        let mut state = held(&self.state);
        // What would have been lost, had the writer been quicker, is lost.
        state.holed |= state.way == Way::Lose && !state.items.is_empty();
        state.way = way;
        self.changed.notify_all();
        !state.holed || !way.is_open()
    }

    /// Opens the way and forgets an inspector's verdict; false if something was lost.
    pub(super) fn heal(&self) -> bool {
        let mut state = held(&self.state);
        state.holed |= state.halted == Some(Halt::Lose);
        state.halted = None;
        drop(state);
        self.set(Way::Pass)
    }

    /// Ends reader and writer; what is inside goes nowhere.
    pub(super) fn close(&self) {
        held(&self.state).closed = true;
        self.changed.notify_all();
    }
}

/// How long it takes until a chunk gets through.
fn resent(percent: u8, again: Duration) -> Duration {
    let mut wait = Duration::ZERO;
    let mut next = again;
    for attempt in 0..ATTEMPTS_MAX {
        if RandomState::new().hash_one(attempt) % 100 >= u64::from(percent) {
            break;
        }
        wait += next;
        next *= 2;
    }
    wait
}

impl Item {
    fn size(&self) -> usize {
        match self {
            Item::Bytes(bytes) => bytes.len(),
            Item::End => 0,
        }
    }
}
