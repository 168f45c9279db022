//! What is written of what a replica wants safe, in its order.
//!
//! - Group commit: what came while the last sync ran goes with one write and one sync.
//! - A disk that fails is [`Report::Broken`]: nothing is ever written after a failed sync (C46).
//! - A full disk confirms nothing and forgets nothing (C47): the same is tried again until there is room, and both are told.
//!
//! On which thread, and when there is time for what can wait (putting old entries away, remembering the others, segments for later), is `crew.rs`.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;

use super::Report;
use crate::log::{Append, Disk, Entry, Failure, HardState, Known, Log, Mark as LogMark};
use crate::replica::{Index, Mark, Write};

/// As much goes with one write; the rest with the next.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// A full disk is tried again this often.
const ROOM_LOOKED_FOR: Duration = Duration::from_millis(100);

/// What the disk is to do.
#[derive(Debug)]
pub(super) enum Task {
    /// Make this safe. Its time counts from then on: whoever waits does not care what the disk was doing before.
    Write(Write, Instant),
    /// Entries up to this one are needed no longer.
    Compact(Index),
    /// The others, and which directories they have.
    Remember(Vec<Known>),
}

/// Why nothing more is written.
pub(super) enum End {
    NobodyAsks,
    Broken(String),
}

impl From<Failure> for End {
    fn from(failure: Failure) -> End {
        End::Broken(failure.to_string())
    }
}

/// What goes together.
#[derive(Default)]
pub(super) struct Batch {
    appends: Vec<Append>,
    bytes: usize,
    mark: Option<Mark>,
    /// When the first of it was asked for.
    asked: Option<Instant>,
    compact: Option<Index>,
    known: Option<Vec<Known>>,
}

impl Batch {
    /// As much as goes together, from the front.
    pub(super) fn of(tasks: &mut VecDeque<Task>) -> Batch {
        Batch::of_those(tasks, |_| true)
    }

    /// The same, up to the first that nobody waits for.
    pub(super) fn of_writes(tasks: &mut VecDeque<Task>) -> Batch {
        Batch::of_those(tasks, |it| matches!(it, Task::Write(..)))
    }

    fn of_those(tasks: &mut VecDeque<Task>, wanted: impl Fn(&Task) -> bool) -> Batch {
        let mut batch = Batch::default();
        while batch.bytes < BATCH_BYTES_MAX
            && tasks.front().is_some_and(&wanted)
            && let Some(task) = tasks.pop_front()
        {
            batch.take(task);
        }
        batch
    }

    fn take(&mut self, task: Task) {
        match task {
            Task::Write(Write { mark, reset, entries, vote }, asked) => {
                self.asked.get_or_insert(asked);
                let restart = reset.map(|it| Append::Restart(LogMark { index: it.index, term: it.term.0 }));
                self.appends.extend(restart);
                for entry in entries {
                    self.bytes += entry.bytes.len();
                    self.appends.push(Append::Entry(Entry {
                        index: entry.index,
                        term: entry.term.0,
                        payload: entry.bytes.into(),
                    }));
                }
                let state = vote.map(|it| HardState { term: it.term.0, vote: it.candidate, commit: it.commit });
                self.appends.extend(state.map(Append::State));
                self.mark = Some(mark);
            }
            Task::Compact(index) => self.compact = self.compact.max(Some(index)),
            Task::Remember(known) => self.known = Some(known),
        }
    }
}

/// Writes the log.
pub(super) struct Scribe<D: Disk> {
    log: Log<D>,
    reports: UnboundedSender<Report>,
    /// The disk was full when it was last written to.
    full: bool,
}

impl<D: Disk> Scribe<D> {
    pub(super) fn new(log: Log<D>, reports: UnboundedSender<Report>) -> Scribe<D> {
        Scribe { log, reports, full: false }
    }

    /// Makes a batch safe, however long that takes: what to tell of it. `pause` waits a while for room, and is false if nobody wants it any more.
    pub(super) fn write(&mut self, batch: &Batch, pause: impl Fn(Duration) -> bool) -> Result<Option<Report>, End> {
        let Some(mark) = batch.mark else { return Ok(None) };
        loop {
            match self.log.write(&batch.appends) {
                Ok(()) => break,
                Err(Failure::Full { error }) => {
                    if !std::mem::replace(&mut self.full, true) {
                        let _ = self.reports.send(Report::Full(error));
                    }
                    if !pause(ROOM_LOOKED_FOR) {
                        return Err(End::NobodyAsks);
                    }
                }
                Err(failure @ (Failure::TooLarge { .. } | Failure::Broken { .. })) => return Err(failure.into()),
            }
        }
        if std::mem::take(&mut self.full) {
            let _ = self.reports.send(Report::Room);
        }
        self.log.sync()?;
        let took = batch.asked.map_or(Duration::ZERO, |it| it.elapsed());
        Ok(Some(Report::Persisted { mark, took }))
    }

    /// What of a batch can wait.
    pub(super) fn tidy(&mut self, batch: Batch) -> Result<(), End> {
        if let Some(index) = batch.compact {
            self.compact(index)?;
        }
        if let Some(known) = batch.known {
            match self.log.remember(&known) {
                Ok(()) => {}
                Err(failure) if failure.is_final() => return Err(failure.into()),
                // It will be told again when one of them comes back.
                Err(failure) => tracing::warn!(%failure, "the other nodes' directories are not remembered"),
            }
        }
        Ok(())
    }

    /// Nobody waits for it, so it is synced with what comes next. What is put away already is no error.
    fn compact(&mut self, index: Index) -> Result<(), End> {
        let reader = self.log.reader();
        let Some(term) = reader.term(index).ok().filter(|_| index >= reader.first()) else { return Ok(()) };
        match self.log.write(&[Append::Compact(LogMark { index, term })]) {
            Ok(()) | Err(Failure::Full { .. }) => Ok(()),
            Err(failure @ (Failure::TooLarge { .. } | Failure::Broken { .. })) => Err(failure.into()),
        }
    }

    /// A small piece of what would otherwise delay a later write. True if there is more.
    pub(super) fn maintain(&mut self) -> Result<bool, End> {
        match self.log.maintain() {
            Ok(more) => Ok(more),
            Err(failure) if failure.is_final() => Err(failure.into()),
            // Whoever needs the room will say so.
            Err(_) => Ok(false),
        }
    }

    /// Nothing has come for a while, or will come.
    pub(super) fn rest(&mut self) -> Result<(), End> {
        Ok(self.log.rest()?)
    }
}
