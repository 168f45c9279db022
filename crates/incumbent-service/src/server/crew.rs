//! The two threads that are a node: one has the wheel and turns its loop, the other is at the disk. Which is which changes.
//!
//! **Problem.** A sync on the loop's thread would leave everybody unheard for as long as the disk likes; on another thread it costs two wake-ups, which together may take as long as the sync. **Insight.** A node
//! that has said what it has to say has nothing better to do than to make safe what the others wait for. So whoever has the wheel lays it down, writes, and takes it up again: nobody is woken. Should the disk take
//! longer than a moment, the other thread takes the wheel, and the first stays at the disk. A disk that was slow lately is not waited for in this way: there the loop goes on while the other thread writes.
//!
//! - There is one wheel: whoever holds it runs the loop, so nothing of the node ever runs on two threads at once.
//! - There is one writer at a time, and it takes what is to be written in order.
//! - What can wait is done by the one at the disk, while nothing is written.

use std::collections::VecDeque;
use std::sync::mpsc as std_mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

use super::disk::{Batch, End, Scribe, Task};
use super::{Alarm, Report};
use crate::log::{Disk, Log};

/// While anything is written, whoever is at the disk looks this often whether the one who has laid down the wheel is still at it: seen twice, it is too long.
const LOOKS_EVERY: Duration = Duration::from_millis(10);

/// The same while nothing is: to be woken for the first write would cost that write as much as it is to save. With the look after it a node misses three beats of a leader, where it takes five to miss the leader.
const LOOKS_IDLY_EVERY: Duration = Duration::from_millis(50);

/// Nothing has been written from one look to the next, this often: then the log says that it is whole. Not at once: that is a write, and the next commit says it too.
const QUIET_LOOKS: u32 = 2;

/// Where writes take longer than this, two wake-ups are cheap, and a leader has better things to do meanwhile.
const QUICK: Duration = Duration::from_millis(1);

/// A slow write counts for about so many after it.
const REMEMBERED: u32 = 64;

/// A node's loop. Whoever holds it may turn it.
pub(super) struct Wheel {
    pub(super) runtime: Runtime,
    /// The node, until it has ended.
    pub(super) node: JoinHandle<()>,
    /// Dropped when nothing of the node is left.
    pub(super) over: std_mpsc::Sender<()>,
}

impl Wheel {
    /// Turns until there is something to write, or the node has ended.
    fn turn(&mut self, crew: &Crew, news: Option<Report>, reports: &UnboundedSender<Report>) -> Turned {
        let node = &mut self.node;
        self.runtime.block_on(async {
            // Told from within, it wakes nothing but the driver.
            if let Some(news) = news {
                let _ = reports.send(news);
            }
            tokio::select! {
                biased;
                // If it has failed, it has said so.
                _ = node => Turned::Ended,
                () = crew.summons.notified() => Turned::Summoned,
            }
        })
    }
}

/// Why nobody turns the wheel for a moment.
enum Turned {
    /// There is something to write.
    Summoned,
    Ended,
}

/// Where a thread is.
enum Place {
    Wheel(Wheel),
    Disk,
    /// There is nothing left to do.
    Ashore,
}

/// What the two threads know of each other.
#[derive(Default)]
struct Crew {
    state: Mutex<State>,
    /// For whoever is at the disk.
    changed: Condvar,
    /// For whoever has the wheel.
    summons: Notify,
    /// For whoever waits for the end.
    over: Condvar,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    writer: Writer,
    /// While whoever had it writes.
    wheel: Option<Wheel>,
    /// There is somebody at the wheel who can be asked to write.
    steered: bool,
    /// Writes that have begun.
    begun: u64,
    /// About the longest of the last writes.
    lately: Duration,
    /// Nothing more will come.
    closed: bool,
    /// Nothing more will be written.
    over: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
enum Writer {
    #[default]
    Nobody,
    /// Whoever has the wheel is to write, and has not begun.
    Summoned,
    /// One of the two.
    Busy,
}

/// What there is to do at the disk.
enum Duty {
    Write(Batch),
    /// Nothing waits: what would otherwise delay a later write.
    Maintain,
    /// Nothing has come for a while.
    Rest,
    /// The one who had it is held up.
    Steer(Wheel),
    /// Nobody asks any more.
    Leave,
}

/// What the one at the disk has seen.
#[derive(Default)]
struct Seen {
    /// How many writes had begun when all was maintained, if it is.
    maintained: Option<u64>,
    /// The same at the last look.
    begun: u64,
    quiet: u32,
    /// The log has said that it is whole since anything was written.
    rested: bool,
}

impl Crew {
    /// Nothing is left half-changed by a panic of ours, as none is thrown while it is held.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give(&self, task: Task) {
        let mut state = self.state();
        if state.over {
            return;
        }
        // Not before what the other was told of already.
        let here = matches!(task, Task::Write(..)) && state.tasks.is_empty() && state.steered && state.lately <= QUICK;
        state.tasks.push_back(task);
        match state.writer {
            // Whoever writes looks again.
            Writer::Summoned | Writer::Busy => {}
            Writer::Nobody if here => {
                state.writer = Writer::Summoned;
                drop(state);
                self.summons.notify_one();
            }
            Writer::Nobody => {
                drop(state);
                self.changed.notify_one();
            }
        }
    }

    fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    /// Lays down the wheel for what is to be written. The wheel comes back at once if another has done so.
    fn lay_down(&self, wheel: Wheel) -> Result<Batch, Wheel> {
        let mut state = self.state();
        if state.writer != Writer::Summoned {
            return Err(wheel);
        }
        state.wheel = Some(wheel);
        state.begin();
        Ok(Batch::of_writes(&mut state.tasks))
    }

    /// Takes it up again, unless the other has it. What was written has taken so long.
    fn take_up(&self, took: Duration) -> Option<Wheel> {
        let mut state = self.state();
        state.written(took);
        if !state.tasks.is_empty() {
            self.changed.notify_one();
        }
        state.wheel.take()
    }

    /// Waits until there is something to do at the disk.
    fn duty(&self, seen: &mut Seen) -> Duty {
        let mut state = self.state();
        loop {
            // Who is summoned to write by a node that has ended will not come.
            if state.writer == Writer::Nobody || (state.closed && state.writer == Writer::Summoned) {
                if !state.tasks.is_empty() {
                    state.begin();
                    return Duty::Write(Batch::of(&mut state.tasks));
                }
                if state.closed {
                    state.writer = Writer::Busy;
                    return Duty::Leave;
                }
                if seen.maintained != Some(state.begun) {
                    (seen.maintained, seen.rested) = (Some(state.begun), false);
                    state.writer = Writer::Busy;
                    return Duty::Maintain;
                }
            }
            let idle = seen.rested && seen.begun == state.begun && state.writer == Writer::Nobody;
            let look = if idle { LOOKS_IDLY_EVERY } else { LOOKS_EVERY };
            let (woken, late) = self.changed.wait_timeout(state, look).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if !late.timed_out() || (idle && seen.begun == state.begun) {
                continue;
            }
            if seen.begun != state.begun {
                (seen.begun, seen.quiet) = (state.begun, 0);
            } else if let Some(wheel) = state.wheel.take() {
                return Duty::Steer(wheel);
            } else if state.writer == Writer::Nobody {
                seen.quiet += 1;
                if seen.quiet >= QUIET_LOOKS {
                    (seen.quiet, seen.rested) = (0, true);
                    state.writer = Writer::Busy;
                    return Duty::Rest;
                }
            }
        }
    }

    /// Nothing will be written any more: the directory is free.
    fn finish(&self) {
        let mut state = self.state();
        state.over = true;
        state.tasks.clear();
        drop(state);
        self.over.notify_all();
    }

    /// A writer waits for room. False if nobody wants it to any more.
    fn pause(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut state = self.state();
        while !state.closed
            && let Some(left) = until.checked_duration_since(Instant::now())
        {
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        !state.closed
    }
}

impl State {
    fn begin(&mut self) {
        self.writer = Writer::Busy;
        self.begun += 1;
    }

    fn written(&mut self, took: Duration) {
        self.writer = Writer::Nobody;
        self.lately = took.max(self.lately - self.lately / REMEMBERED);
    }
}

/// The disk, for the node's loop. Dropped, it ends when it has done what is in hand.
pub(super) struct DiskHand {
    crew: Arc<Crew>,
}

impl DiskHand {
    /// Somebody is at the disk from now on. Whoever is to have the wheel is what comes second.
    pub(super) fn start<D: Disk>(log: Log<D>, reports: UnboundedSender<Report>) -> io::Result<(DiskHand, Mate<D>)> {
        let crew = Arc::new(Crew::default());
        let scribe = Arc::new(Mutex::new(Some(Scribe::new(log, reports.clone()))));
        let mate = Mate { crew: Arc::clone(&crew), scribe, reports };
        let other = mate.clone();
        thread::Builder::new().name("incumbent-disk".to_owned()).spawn(move || other.serve(Place::Disk))?;
        Ok((DiskHand { crew }, mate))
    }

    pub(super) fn give(&self, task: Task) {
        self.crew.give(task);
    }

    /// Lets it finish what it was given.
    pub(super) fn end(self) -> Ending {
        Ending(Arc::clone(&self.crew))
    }
}

impl Drop for DiskHand {
    fn drop(&mut self) {
        self.crew.close();
    }
}

/// A disk that was told to end.
pub(super) struct Ending(Arc<Crew>);

impl Ending {
    /// Until nothing more will be written.
    pub(super) fn wait(self) {
        let mut state = self.0.state();
        while !state.over {
            state = self.0.over.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// One of the two threads.
pub(super) struct Mate<D: Disk> {
    crew: Arc<Crew>,
    /// For the one writer.
    scribe: Arc<Mutex<Option<Scribe<D>>>>,
    reports: UnboundedSender<Report>,
}

impl<D: Disk> Clone for Mate<D> {
    fn clone(&self) -> Mate<D> {
        Mate { crew: Arc::clone(&self.crew), scribe: Arc::clone(&self.scribe), reports: self.reports.clone() }
    }
}

impl<D: Disk> Mate<D> {
    /// Takes the wheel of a node that begins.
    pub(super) fn steer(self, wheel: Wheel) {
        self.crew.state().steered = true;
        self.serve(Place::Wheel(wheel));
    }

    /// With the wheel or at the disk, until there is nothing left to do.
    fn serve(self, mut place: Place) {
        let _alarm = Alarm(self.reports.clone());
        let _last_word = LastWord(&self.crew);
        loop {
            place = match place {
                Place::Wheel(wheel) => self.at_the_wheel(wheel),
                Place::Disk => self.at_the_disk(),
                Place::Ashore => return,
            };
        }
    }

    /// Until the node has ended, or the other has the wheel.
    fn at_the_wheel(&self, mut wheel: Wheel) -> Place {
        let mut news = None;
        loop {
            match wheel.turn(&self.crew, news.take(), &self.reports) {
                Turned::Summoned => {}
                Turned::Ended => {
                    let Wheel { runtime, node: _, over } = wheel;
                    // A name that nobody resolves, or a file on a disk that hangs, is not waited for.
                    runtime.shutdown_background();
                    drop(over);
                    return Place::Ashore;
                }
            }
            let batch = match self.crew.lay_down(wheel) {
                Ok(batch) => batch,
                Err(kept) => {
                    wheel = kept;
                    continue;
                }
            };
            let began = Instant::now();
            let report = match self.with_scribe(|it| it.write(&batch, |time| self.crew.pause(time))) {
                Ok(report) => report.flatten(),
                Err(end) => self.close_the_log(end),
            };
            match self.crew.take_up(began.elapsed()) {
                Some(taken) => (wheel, news) = (taken, report),
                None => {
                    self.tell(report);
                    return Place::Disk;
                }
            }
        }
    }

    /// Until nobody asks any more, or the one who has the wheel is held up.
    fn at_the_disk(&self) -> Place {
        let mut seen = Seen::default();
        loop {
            // How long it takes to put things in order says nothing of what a write takes.
            let mut took = Duration::ZERO;
            let done = match self.crew.duty(&mut seen) {
                Duty::Write(batch) => {
                    let began = Instant::now();
                    let written = self.with_scribe(|it| it.write(&batch, |time| self.crew.pause(time)));
                    took = began.elapsed();
                    written.and_then(|report| {
                        self.tell(report.flatten());
                        self.with_scribe(|it| it.tidy(batch)).map(drop)
                    })
                }
                Duty::Maintain => self.with_scribe(Scribe::maintain).map(|more| {
                    if more == Some(true) {
                        seen.maintained = None;
                    }
                }),
                Duty::Rest => self.with_scribe(Scribe::rest).map(drop),
                Duty::Steer(wheel) => return Place::Wheel(wheel),
                Duty::Leave => self.with_scribe(Scribe::rest).and(Err(End::NobodyAsks)),
            };
            match done {
                Ok(()) => self.crew.state().written(took),
                Err(end) => {
                    self.tell(self.close_the_log(end));
                    return Place::Ashore;
                }
            }
        }
    }

    /// Nothing, if nothing is written any more.
    fn with_scribe<T>(&self, act: impl FnOnce(&mut Scribe<D>) -> Result<T, End>) -> Result<Option<T>, End> {
        let mut scribe = self.scribe.lock().unwrap_or_else(PoisonError::into_inner);
        scribe.as_mut().map(act).transpose()
    }

    /// Nothing will be written any more, and the directory is free: what to tell of that.
    fn close_the_log(&self, end: End) -> Option<Report> {
        drop(self.scribe.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.crew.finish();
        match end {
            End::NobodyAsks => None,
            End::Broken(why) => Some(Report::Broken(why)),
        }
    }

    fn tell(&self, report: Option<Report>) {
        if let Some(report) = report {
            let _ = self.reports.send(report);
        }
    }
}

/// Whoever waits for the end does so even if a thread has come to an end that it was not meant to.
struct LastWord<'a>(&'a Crew);

impl Drop for LastWord<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use incumbent_protocol::protocol::{NodeId, Term};
    use tokio::sync::mpsc;

    use super::*;
    use crate::log::sim::{Loss, SimDisk, Weather};
    use crate::log::{Identity, Options};
    use crate::replica::{Entry, Mark, Write};

    fn open(disk: &SimDisk) -> Log<SimDisk> {
        let identity = Identity { cluster: "test".to_owned(), node: NodeId(1) };
        Log::open(disk.clone(), &identity, Options::segments_of(4096)).expect("opens").0
    }

    fn entry(index: u64) -> Task {
        let entries = vec![Entry { index, term: Term(1), bytes: bytes::Bytes::from_static(b"x") }];
        Task::Write(Write { mark: Mark(index), reset: None, entries, vote: None }, Instant::now())
    }

    /// Turns the wheel on this thread for a node that does this.
    fn steer<D: Disk>(mate: Mate<D>, node: impl Future<Output = ()> + Send + 'static) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (over, ends) = std_mpsc::channel();
        let node = runtime.spawn(node);
        mate.steer(Wheel { runtime, node, over });
        let _ = ends.recv();
    }

    async fn persisted(reports: &mut mpsc::UnboundedReceiver<Report>, index: u64) {
        let Some(Report::Persisted { mark, .. }) = reports.recv().await else { panic!("not persisted") };
        assert_eq!(mark, Mark(index));
    }

    /// Nobody is at the disk yet.
    fn alone(disk: &SimDisk, reports: UnboundedSender<Report>) -> (DiskHand, Mate<SimDisk>) {
        let crew = Arc::new(Crew::default());
        let scribe = Arc::new(Mutex::new(Some(Scribe::new(open(disk), reports.clone()))));
        (DiskHand { crew: Arc::clone(&crew) }, Mate { crew, scribe, reports })
    }

    #[test]
    fn whoever_has_the_wheel_writes_by_itself() {
        let (said, mut reports) = mpsc::unbounded_channel();
        let (disk, mate) = alone(&SimDisk::new(1), said);
        steer(mate, async move {
            for index in 1..=3 {
                disk.give(entry(index));
                persisted(&mut reports, index).await;
            }
        });
    }

    #[test]
    fn the_loop_goes_on_while_a_disk_stands_still() {
        let (said, mut reports) = mpsc::unbounded_channel();
        let still = SimDisk::new(1);
        let (disk, mate) = alone(&still, said);
        let (crew, here, other) = (Arc::clone(&disk.crew), thread::current().id(), mate.clone());
        still.turns(Weather::Still);
        let weather = still.clone();
        steer(mate, async move {
            disk.give(entry(1));
            thread::spawn(|| other.serve(Place::Disk));
            // Somebody else has to come for that.
            let elsewhere = |cx: &mut std::task::Context<'_>| {
                cx.waker().wake_by_ref();
                if thread::current().id() == here { Poll::Pending } else { Poll::Ready(()) }
            };
            poll_fn(elsewhere).await;
            disk.give(entry(2));
            weather.turns(Weather::Fair);
            persisted(&mut reports, 1).await;
            persisted(&mut reports, 2).await;
            // It is not to be trusted until many have been quick.
            assert!(crew.state().lately > QUICK);
            let mut index = 2;
            while crew.state().lately > QUICK {
                index += 1;
                disk.give(entry(index));
                persisted(&mut reports, index).await;
            }
            assert!(index > 10, "{index}");
            disk.give(entry(index + 1));
            persisted(&mut reports, index + 1).await;
            // All is written before the directory is free.
            disk.end().wait();
        });
        still.crash(Loss::Everything);
        assert!(open(&still).reader().last() > 10);
    }

    /// As one that is killed does: it waits for its disk, and so cannot come to it.
    #[test]
    fn what_a_node_is_to_write_when_it_ends_is_written_all_the_same() {
        let (said, _reports) = mpsc::unbounded_channel();
        let sim = SimDisk::new(1);
        let (disk, mate) = alone(&sim, said);
        let other = mate.clone();
        steer(mate, async move {
            disk.give(entry(1));
            thread::spawn(|| other.serve(Place::Disk));
            disk.end().wait();
        });
        sim.crash(Loss::Everything);
        assert_eq!(open(&sim).reader().last(), 1);
    }

    #[test]
    fn nobody_waits_for_ever_for_a_thread_that_has_panicked() {
        let (said, _reports) = mpsc::unbounded_channel();
        let (disk, mate) = alone(&SimDisk::new(1), said);
        let steered = thread::spawn(move || {
            let outer = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            // No runtime runs inside of another.
            outer.block_on(async { steer(mate, std::future::pending()) });
        });
        steered.join().expect_err("it has panicked");
        disk.end().wait();
    }

    #[test]
    fn a_disk_that_fails_under_whoever_has_the_wheel_is_told_of() {
        let (said, mut reports) = mpsc::unbounded_channel();
        let sim = SimDisk::new(1);
        let (disk, mate) = alone(&sim, said);
        let other = mate.clone();
        sim.turns(Weather::Broken);
        steer(mate, async move {
            disk.give(entry(1));
            assert!(matches!(reports.recv().await, Some(Report::Broken(_))));
            // Nothing is written any more, and nobody waits for it.
            disk.give(entry(2));
            thread::spawn(|| other.serve(Place::Disk));
            disk.end().wait();
        });
    }
}
