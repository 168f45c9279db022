//! What the clients did and were told, when, and what the nemesis did meanwhile; all on one clock, and written down as lines of JSON if the run fails.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::linear::{Act, Operation, Value};

/// Nanoseconds of the clock that goes on while the machine sleeps.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// What a client wanted of a key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Wanted {
    Read,
    Write {
        value: u64,
    },
    /// Write if it is as it was seen.
    Swap {
        from: Value,
        to: u64,
    },
    /// Write if the leadership is in office.
    Fenced {
        election: String,
        token: u64,
        value: u64,
    },
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// Done: whether the guards held, what was seen, and the revision after it.
    Done { held: bool, seen: Value, revision: u64 },
    /// Not done, and it never will be.
    Not { why: String },
    /// It may have been done, or be done yet.
    Unknown { why: String },
}

/// One operation of one client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) client: u32,
    pub(crate) key: String,
    pub(crate) called: u64,
    pub(crate) returned: u64,
    pub(crate) wanted: Wanted,
    pub(crate) outcome: Outcome,
}

/// A time in which a client believed that it leads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Belief {
    pub(crate) election: String,
    pub(crate) identity: String,
    pub(crate) token: u64,
    pub(crate) from: u64,
    pub(crate) until: u64,
}

/// What somebody who watches was told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) enum Told {
    Put {
        revision: u64,
        key: String,
        version: u64,
        value: u64,
        previous: Value,
    },
    Elected {
        revision: u64,
        election: String,
        identity: String,
        token: u64,
    },
    /// That it cannot be told all: it reads on from here.
    Lagged {
        oldest: u64,
    },
}

/// One who watches: what, and what it was told, batch by batch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Watched {
    /// Only of keys that begin so; of everything if there is nothing here.
    pub(crate) prefix: Option<String>,
    /// From this revision on.
    pub(crate) from: u64,
    pub(crate) batches: Vec<Batch>,
}

/// What was told at once: all before `next` has been told then.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Batch {
    pub(crate) told: Vec<Told>,
    pub(crate) next: u64,
}

impl Watched {
    /// Whether it wants to hear of this.
    pub(crate) fn wants(&self, told: &Told) -> bool {
        let Some(prefix) = &self.prefix else { return true };
        matches!(told, Told::Put { key, .. } if key.starts_with(prefix))
    }
}

impl Told {
    pub(crate) fn revision(&self) -> Option<u64> {
        match self {
            Told::Put { revision, .. } | Told::Elected { revision, .. } => Some(*revision),
            Told::Lagged { .. } => None,
        }
    }
}

/// What clients that are elsewhere say.
#[derive(Serialize, Deserialize)]
pub(crate) enum Line {
    /// Something is asked: nobody knows what comes of it, until it is told.
    Begun(Entry),
    Entry(Entry),
    /// For now.
    Believes(Belief),
    Belief(Belief),
}

impl Line {
    /// It was written by clocks that are ahead by so much.
    pub(crate) fn put_back(&mut self, ahead: Duration) {
        let ahead = u64::try_from(ahead.as_nanos()).unwrap();
        let (one, other) = match self {
            Line::Begun(entry) | Line::Entry(entry) => (&mut entry.called, &mut entry.returned),
            Line::Believes(belief) | Line::Belief(belief) => (&mut belief.from, &mut belief.until),
        };
        *one -= ahead;
        *other -= ahead;
    }
}

/// All of a run.
#[derive(Default)]
pub(crate) struct History {
    pages: Mutex<Pages>,
    aloud: bool,
}

#[derive(Clone, Default)]
pub(crate) struct Pages {
    pub(crate) entries: Vec<Entry>,
    pub(crate) beliefs: Vec<Belief>,
    /// What the one was told who hears of everything.
    pub(crate) told: Vec<Told>,
    /// All who watch, and that one among them.
    pub(crate) watches: Vec<Watched>,
    pub(crate) schedule: Vec<Scheduled>,
    pub(crate) ordeals: Vec<Ordeal>,
}

/// What the nemesis did, on the clock of the histories and on that of the nodes' logs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Scheduled {
    pub(crate) at: u64,
    pub(crate) wall_ms: u64,
    pub(crate) what: String,
}

/// A fault: when it began, when its cause was gone, and when something was served that was asked after that.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Ordeal {
    pub(crate) fault: String,
    pub(crate) leaves_majority: bool,
    pub(crate) began: u64,
    pub(crate) over: u64,
    pub(crate) healed: u64,
}

impl Entry {
    /// As an operation of a register; none if it says nothing about it.
    pub(crate) fn operation(&self) -> Option<Operation> {
        let (returned, act) = match (&self.outcome, &self.wanted) {
            (Outcome::Not { .. }, _) | (Outcome::Unknown { .. }, Wanted::Read) => return None,
            (Outcome::Done { held: false, .. }, Wanted::Fenced { .. }) => return None,
            (Outcome::Done { seen, .. }, Wanted::Read) | (Outcome::Done { held: false, seen, .. }, Wanted::Swap { .. }) => {
                (Some(self.returned), Act::Read(*seen))
            }
            (outcome, Wanted::Write { value } | Wanted::Fenced { value, .. }) => (self.known(outcome), Act::Write(*value)),
            (outcome, Wanted::Swap { from, to }) => (self.known(outcome), Act::Swap { from: *from, to: *to }),
        };
        Some(Operation { act, called: self.called, returned })
    }

    fn known(&self, outcome: &Outcome) -> Option<u64> {
        matches!(outcome, Outcome::Done { .. }).then_some(self.returned)
    }

    /// The value that it would have written.
    pub(crate) fn value(&self) -> Value {
        match self.wanted {
            Wanted::Read => None,
            Wanted::Write { value } | Wanted::Swap { to: value, .. } | Wanted::Fenced { value, .. } => Some(value),
        }
    }
}

impl History {
    fn open(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that says what clients did to whoever listens.
    pub(crate) fn aloud() -> History {
        History { aloud: true, ..History::default() }
    }

    pub(crate) fn enter(&self, entry: Entry) {
        self.add(Line::Entry(entry));
    }

    /// Only said: whoever listens needs it when the process is killed.
    pub(crate) fn begin(&self, entry: Entry) {
        if self.aloud {
            self.add(Line::Begun(entry));
        }
    }

    pub(crate) fn believed(&self, belief: Belief) {
        self.add(Line::Belief(belief));
    }

    /// Only said, as what was begun.
    pub(crate) fn believes(&self, belief: Belief) {
        if self.aloud {
            self.add(Line::Believes(belief));
        }
    }

    #[allow(clippy::print_stdout, reason = "another process listens")]
    pub(crate) fn add(&self, line: Line) {
        if self.aloud {
            println!("{}", serde_json::to_string(&line).unwrap());
            return;
        }
        match line {
            Line::Entry(entry) => self.open().entries.push(entry),
            Line::Belief(belief) => self.open().beliefs.push(belief),
            Line::Begun(_) | Line::Believes(_) => {}
        }
    }

    pub(crate) fn told(&self, told: Told) {
        self.open().told.push(told);
    }

    /// Somebody begins to watch. Returns by which number its batches are added.
    pub(crate) fn watches(&self, prefix: Option<&str>, from: u64) -> usize {
        let mut pages = self.open();
        pages.watches.push(Watched { prefix: prefix.map(str::to_owned), from, batches: Vec::new() });
        pages.watches.len() - 1
    }

    pub(crate) fn heard(&self, watch: usize, batch: Batch) {
        self.open().watches[watch].batches.push(batch);
    }

    /// The last revision that anybody who watches was told of.
    pub(crate) fn last_told(&self) -> u64 {
        self.open().told.iter().rev().find_map(Told::revision).unwrap_or_default()
    }

    pub(crate) fn scheduled(&self, what: String) {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let wall_ms = u64::try_from(wall.as_millis()).unwrap();
        self.open().schedule.push(Scheduled { at: now(), wall_ms, what });
    }

    pub(crate) fn endured(&self, ordeal: Ordeal) {
        self.open().ordeals.push(ordeal);
    }

    pub(crate) fn pages(&self) -> Pages {
        self.open().clone()
    }
}

impl Pages {
    /// Writes all of it to a folder.
    pub(crate) fn write(&self, folder: &Path) {
        fs::create_dir_all(folder).unwrap();
        write_lines(folder, "operations", &self.entries);
        write_lines(folder, "beliefs", &self.beliefs);
        write_lines(folder, "watched", &self.told);
        write_lines(folder, "watches", &self.watches);
        write_lines(folder, "schedule", &self.schedule);
        write_lines(folder, "ordeals", &self.ordeals);
    }
}

fn write_lines(folder: &Path, name: &str, lines: &[impl Serialize]) {
    let text: String = lines.iter().map(|it| serde_json::to_string(it).unwrap() + "\n").collect();
    fs::write(folder.join(format!("{name}.jsonl")), text).unwrap();
}
