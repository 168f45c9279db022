//! The disk thread: makes safe what a replica wants written, in its order, and says when it is.
//!
//! - Group commit: what came while the last sync ran goes with one write and one sync.
//! - A disk that fails ends the thread with [`Report::Broken`]: nothing is ever written after a failed sync (C46).
//! - A full disk confirms nothing and forgets nothing (C47): the same is tried again until there is room, and both are told.
//!
//! What can wait (putting old entries away, remembering the others, segments for later) is done when nothing else is to be.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, thread};

use tokio::sync::mpsc::UnboundedSender;

use super::{Alarm, Report};
use crate::log::{Append, Disk, Entry, Failure, HardState, Known, Log, Mark as LogMark};
use crate::replica::{Index, Mark, Write};

/// As much goes with one write; the rest with the next.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// When nothing has come for so long, the log says that it is whole. Not at once: that is a write, and the next commit says it too.
const RESTS_AFTER: Duration = Duration::from_millis(20);

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

/// The thread, from outside. Dropped, it ends when it has done what is in hand.
#[derive(Debug)]
pub(super) struct DiskThread {
    tasks: Sender<Task>,
    thread: JoinHandle<()>,
}

impl DiskThread {
    pub(super) fn start<D: Disk>(log: Log<D>, reports: UnboundedSender<Report>) -> io::Result<DiskThread> {
        let (tasks, inbox) = channel();
        let alarm = Alarm(reports.clone());
        let worker = Worker { log, inbox, reports, waiting: VecDeque::new(), full: false };
        let thread = thread::Builder::new().name("incumbent-disk".to_owned()).spawn(move || {
            let _alarm = alarm;
            worker.run();
        })?;
        Ok(DiskThread { tasks, thread })
    }

    pub(super) fn give(&self, task: Task) {
        // One that has ended has said why, or its reports' end says it.
        let _ = self.tasks.send(task);
    }

    /// Lets it finish what it was given. The handle tells when it has.
    pub(super) fn end(self) -> JoinHandle<()> {
        self.thread
    }
}

struct Worker<D: Disk> {
    log: Log<D>,
    inbox: Receiver<Task>,
    reports: UnboundedSender<Report>,
    /// Taken from the inbox, not begun.
    waiting: VecDeque<Task>,
    /// The disk was full when it was last written to.
    full: bool,
}

/// Why the thread ends.
enum End {
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
struct Batch {
    appends: Vec<Append>,
    bytes: usize,
    mark: Option<Mark>,
    /// When the first of it was asked for.
    asked: Option<Instant>,
    compact: Option<Index>,
    known: Option<Vec<Known>>,
}

impl Batch {
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

impl<D: Disk> Worker<D> {
    fn run(mut self) {
        loop {
            match self.turn() {
                Ok(()) => {}
                Err(End::NobodyAsks) => return,
                Err(End::Broken(why)) => {
                    let _ = self.reports.send(Report::Broken(why));
                    return;
                }
            }
        }
    }

    /// One batch, from the first task to its report.
    fn turn(&mut self) -> Result<(), End> {
        let first = self.next_task()?;
        let mut batch = Batch::default();
        batch.take(first);
        self.fetch();
        while batch.bytes < BATCH_BYTES_MAX
            && let Some(task) = self.waiting.pop_front()
        {
            batch.take(task);
        }
        if let Some(mark) = batch.mark {
            self.write(&batch.appends)?;
            self.log.sync()?;
            let took = batch.asked.map_or(Duration::ZERO, |it| it.elapsed());
            let _ = self.reports.send(Report::Persisted { mark, took });
        }
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

    /// Does what can wait, until there is a task.
    fn next_task(&mut self) -> Result<Task, End> {
        loop {
            if let Some(task) = self.waiting.pop_front() {
                return Ok(task);
            }
            match self.inbox.try_recv() {
                Ok(task) => return Ok(task),
                Err(TryRecvError::Disconnected) => return Err(self.last()),
                Err(TryRecvError::Empty) => {}
            }
            let more = match self.log.maintain() {
                Ok(more) => more,
                Err(failure) if failure.is_final() => return Err(failure.into()),
                // Whoever needs the room will say so.
                Err(_) => false,
            };
            if more {
                continue;
            }
            let came = if self.log.is_restless() {
                self.inbox.recv_timeout(RESTS_AFTER)
            } else {
                self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match came {
                Ok(task) => return Ok(task),
                Err(RecvTimeoutError::Timeout) => self.log.rest()?,
                Err(RecvTimeoutError::Disconnected) => return Err(self.last()),
            }
        }
    }

    /// Nobody asks any more: what is left to do.
    fn last(&mut self) -> End {
        self.log.rest().map_or_else(End::from, |()| End::NobodyAsks)
    }

    fn fetch(&mut self) {
        while let Ok(task) = self.inbox.try_recv() {
            self.waiting.push_back(task);
        }
    }

    /// Comes back when it is written, however long that takes.
    fn write(&mut self, appends: &[Append]) -> Result<(), End> {
        loop {
            match self.log.write(appends) {
                Ok(()) => break,
                Err(Failure::Full { error }) => self.wait_for_room(error)?,
                Err(failure @ (Failure::TooLarge { .. } | Failure::Broken { .. })) => return Err(failure.into()),
            }
        }
        if std::mem::take(&mut self.full) {
            let _ = self.reports.send(Report::Room);
        }
        Ok(())
    }

    fn wait_for_room(&mut self, error: String) -> Result<(), End> {
        if !std::mem::replace(&mut self.full, true) {
            let _ = self.reports.send(Report::Full(error));
        }
        let until = Instant::now() + ROOM_LOOKED_FOR;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            match self.inbox.recv_timeout(left) {
                Ok(task) => self.waiting.push_back(task),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return Err(End::NobodyAsks),
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
}
