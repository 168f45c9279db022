//! The supervisor's side of a guarded command: gives the guardian its orders, hears what became of them, and is the second line.
//!
//! Either of the two kills the tree alone. The guardian does when the supervisor is silent; the supervisor does when the guardian is dead, or when the tree should be dead by
//! its orders and no word of it has come.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::time::Duration;

use incumbent_protocol::time::Instant;
use rustix::process::{Pid, Signal, getpid, set_child_subreaper};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::cgroup::Cgroup;
use crate::clock;
use crate::guardian::{self, Charge};
use crate::tree::Tree;
use crate::watchdog;
use crate::wire::{Ending, Launch, Lease, Order, Report, line, send_descriptors, take_lines};

/// A guardian that was stopped, or a machine that is busy, has so long to do what is due before the supervisor does it.
const SECOND_LINE_AFTER: Duration = Duration::from_millis(20);
/// A guardian that has no tree has nothing else to do than to answer.
const SETTLES_WITHIN: Duration = Duration::from_millis(100);
/// Somebody who waits for a command is not waited for any longer when there will be none.
const EMPTY_WITHIN: Duration = Duration::from_secs(2);
/// More are never waiting: a lease and a start, or a lease and a stop.
const ORDERS_AT_ONCE: usize = 8;
/// A guardian that is not ready by then will not be.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// A command to start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Command {
    /// Where it is; not looked for elsewhere.
    pub program: PathBuf,
    /// What it is told.
    pub arguments: Vec<OsString>,
    /// Beside what the supervisor has.
    pub environment: Vec<(OsString, OsString)>,
    /// What the supervisor has and the command does not get.
    pub without: Vec<OsString>,
    /// Where it runs, if not where the supervisor does.
    pub directory: Option<PathBuf>,
}

/// What a guardian needs.
#[derive(Debug)]
pub struct Setup<'a> {
    /// This very program, or one that calls [`crate::stage`] first of all.
    pub program: &'a Path,
    /// What the command reads.
    pub stdin: BorrowedFd<'a>,
    /// Held open by the guardian, so that a lock on it outlives the supervisor.
    pub berth: Option<&'a File>,
    /// Whether the kernel shall drop what the tree sends after the deadline. Then each command needs a guardian of its own.
    pub network_fence: bool,
    /// What resets the machine if the tree outlives its lease.
    pub watchdog: Option<watchdog::Settings>,
}

/// What has happened to the tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The command was started.
    Started {
        /// Its process.
        pid: i32,
    },
    /// It could not be started; nothing of it runs.
    NotStarted {
        /// Why.
        why: String,
    },
    /// The lease had ended before it could be started; nothing of it runs.
    TooLate,
    /// The command itself has ended. Others of its tree may live.
    Ended(Ending),
    /// Nobody of the tree lives any more. The last event of a command that was started.
    Dead {
        /// It did not end by itself.
        killed: bool,
    },
    /// The tree could not be stopped where it is.
    NotFrozen {
        /// Why.
        why: String,
    },
    /// The guardian tells the tree to end, or kills it, because the lease that it knows of is over. How the command ends from now on says nothing of its work.
    TimeUp,
    /// The guardian is no more. If a tree lived, it is being killed, and [`Event::Dead`] will follow. This one is of no use for another command.
    GuardianDied,
}

/// A guardian with at most one tree.
pub struct Guarded {
    guardian: Child,
    tree: Tree,
    /// Why no control group holds the tree.
    no_cgroup: Option<String>,
    /// Why there is no network fence.
    unfenced: Option<String>,
    /// A command has been started, and no other may be.
    single_use: bool,
    watchdog: Option<watchdog::Settings>,
    orders: mpsc::UnboundedSender<Order>,
    reports: OwnedReadHalf,
    heard: Vec<u8>,
    waiting: Vec<Event>,
    was_used: bool,
    /// A tree may live.
    lives: bool,
    /// By when it must not, by its lease.
    lease_end: Option<Instant>,
    /// By when it must not, by an order.
    stop_by: Option<Instant>,
    guardian_died: bool,
    /// It did not die by itself, and nobody has been told yet.
    late_guardian: bool,
    /// The second line at work.
    killing: Option<JoinHandle<bool>>,
    /// The guardian may give the berth back for both, if it does not hear of us.
    unsettled: bool,
}

impl Guarded {
    /// Starts a guardian. An error says in one line what could not be had.
    pub async fn begin(setup: &Setup<'_>) -> io::Result<Guarded> {
        // What the guardian leaves behind when it is killed comes to us.
        set_child_subreaper(Some(getpid()))?;
        let charge = Charge { network_fence: setup.network_fence, watchdog: setup.watchdog.clone() };
        let (ours, theirs) = StdStream::pair()?;
        let guardian = Process::new(setup.program)
            .arg0(guardian::NAME)
            .args(charge.words())
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            // Ctrl-C on a terminal goes to a whole group; this one has other work then.
            .process_group(0)
            .spawn()?;
        let descriptors: Vec<BorrowedFd<'_>> = [setup.stdin].into_iter().chain(setup.berth.map(File::as_fd)).collect();
        send_descriptors(&ours, &descriptors)?;
        ours.set_nonblocking(true)?;
        let (reports, mut writer) = UnixStream::from_std(ours)?.into_split();
        let (orders, mut to_send) = mpsc::unbounded_channel::<Order>();
        tokio::spawn(async move {
            let mut due: Vec<Order> = Vec::new();
            while to_send.recv_many(&mut due, ORDERS_AT_ONCE).await > 0 {
                // In one piece, so that the guardian is woken once. One that is gone is noticed by whoever reads its reports.
                let lines: Vec<u8> = due.drain(..).flat_map(|it| line(&it)).collect();
                if writer.write_all(&lines).await.is_err() {
                    break;
                }
            }
        });
        let root = Pid::from_raw(guardian.id().cast_signed()).ok_or_else(|| io::Error::other("the kernel gave no process"))?;
        let mut guarded = Guarded {
            guardian,
            tree: Tree { root, cgroup: None },
            no_cgroup: None,
            unfenced: None,
            single_use: setup.network_fence,
            watchdog: setup.watchdog.clone(),
            orders,
            reports,
            heard: Vec::new(),
            waiting: Vec::new(),
            was_used: false,
            lives: false,
            lease_end: None,
            stop_by: None,
            guardian_died: false,
            late_guardian: false,
            killing: None,
            unsettled: false,
        };
        match tokio::time::timeout(READY_WITHIN, guarded.hear()).await {
            Ok(true) => match guarded.unfenced.take() {
                None => Ok(guarded),
                Some(why) => Err(io::Error::other(why)),
            },
            Ok(false) => Err(io::Error::other("the guardian ended at once")),
            Err(_) => Err(io::Error::other("the guardian does not answer")),
        }
    }

    /// The control group that holds the tree, or why none does: then its descent alone does.
    pub fn cgroup(&self) -> Result<&Path, &str> {
        match &self.tree.cgroup {
            Some(cgroup) => Ok(cgroup.path()),
            None => Err(self.no_cgroup.as_deref().unwrap_or("none was made")),
        }
    }

    /// The guardian's process.
    pub fn guardian(&self) -> u32 {
        self.guardian.id()
    }

    /// Whether a tree may live.
    pub fn lives(&self) -> bool {
        self.lives
    }

    /// Whether another command can be started; otherwise a new one must be begun.
    pub fn is_usable(&mut self) -> bool {
        // Nobody listens to it while there is nothing to hear, so its death may not be known yet.
        let is_there = !self.guardian_died && matches!(self.guardian.try_wait(), Ok(None));
        is_there && !(self.lives || self.single_use && self.was_used)
    }

    /// The tree is told to end at `stop_at`, killed at `kill_at`, and must be dead at `deadline`. To be called before [`Guarded::start`], and whenever the lease
    /// is renewed.
    pub fn lease(&mut self, stop_at: Instant, kill_at: Instant, deadline: Instant) {
        self.lease_end = Some(kill_at);
        self.unsettled = true;
        let nanos = Instant::as_nanos;
        self.order(Order::Lease(Lease { stop_at: nanos(stop_at), kill_at: nanos(kill_at), deadline: nanos(deadline) }));
    }

    /// Starts the command. [`Event::Started`], [`Event::NotStarted`] or [`Event::TooLate`] will say whether it was.
    pub fn start(&mut self, command: Command) {
        self.lives = true;
        self.was_used = true;
        self.order(Order::Start(Launch {
            program: command.program.into_os_string().into(),
            arguments: command.arguments.into_iter().map(Into::into).collect(),
            environment: command.environment.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            without: command.without.into_iter().map(Into::into).collect(),
            directory: command.directory.map(|it| it.into_os_string().into()),
        }));
    }

    /// Sends a signal to the command itself.
    pub fn signal(&self, signal: Signal) {
        self.order(Order::Signal(signal.as_raw()));
    }

    /// Sends `signal` to the whole tree, which is killed at `kill_at` or at the end of its lease if it has not ended by then.
    pub fn stop(&mut self, signal: Signal, kill_at: Instant) {
        self.stop_by = Some(self.stop_by.map_or(kill_at, |it| it.min(kill_at)));
        self.order(Order::Stop { signal: signal.as_raw(), kill_at: kill_at.as_nanos() });
    }

    /// Kills the tree.
    pub fn kill(&mut self) {
        self.stop_by = Some(clock::now());
        self.order(Order::Kill);
    }

    /// Stops the tree where it is, until it is thawed or dead.
    pub fn freeze(&self) {
        self.order(Order::Freeze);
    }

    /// Lets the tree go on.
    pub fn thaw(&self) {
        self.order(Order::Thaw);
    }

    /// Says that this process goes on, when no tree lives any more. After that nobody but this process touches its berth until there is another lease; it may have been given back before, for one
    /// that stood still, and taken by another: [`crate::berth::Berth::try_take`] tells.
    pub async fn settle(&mut self) {
        if self.unsettled && !self.guardian_died {
            self.order(Order::Settle);
        }
        let answered = async {
            while self.unsettled && !self.guardian_died {
                if !self.hear().await {
                    self.guardian_died = true;
                }
            }
        };
        if tokio::time::timeout(SETTLES_WITHIN, answered).await.is_err() {
            // It is stopped, or too busy to be waited for: then another will do.
            self.end_guardian();
            self.guardian_died = true;
        }
        self.unsettled = false;
    }

    /// What happens next. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Event {
        loop {
            if !self.waiting.is_empty() {
                return self.waiting.remove(0);
            }
            if self.guardian_died {
                if !self.lives {
                    std::future::pending::<()>().await;
                }
                self.bring_to_an_end().await;
                continue;
            }
            let due = [self.lease_end, self.stop_by].into_iter().flatten().min();
            let due = due.filter(|_| self.lives).map(|it| (it + SECOND_LINE_AFTER) - clock::now());
            tokio::select! {
                biased;
                is_there = self.hear() => {
                    if !is_there {
                        self.guardian_died = true;
                        self.waiting.push(Event::GuardianDied);
                    }
                }
                () = sleep(due), if due.is_some() => self.bring_to_an_end().await,
            }
        }
    }

    /// The second line: kills the tree itself, however long that takes.
    async fn bring_to_an_end(&mut self) {
        if !self.guardian_died {
            // It was late. It may still have a start before it that is not carried out, and may report any time what would be taken for the next tree's: it goes first.
            self.end_guardian();
            self.guardian_died = true;
            self.late_guardian = true;
        }
        // One at a time, whoever has stopped waiting for it meanwhile: one that is left behind would kill the next guardian.
        let killing = self.killing.get_or_insert_with(|| {
            // Its orphans are our children now, so everything that descends from us is the tree.
            let tree = Tree { root: getpid(), cgroup: self.tree.cgroup.clone() };
            tokio::task::spawn_blocking(move || tree.kill_until_dead(None))
        });
        let killed = killing.await;
        self.killing = None;
        // It returns when they are dead, and cannot fail before.
        if let Ok(true) = killed {
            self.bury();
            self.waiting.push(Event::Dead { killed: true });
            if std::mem::take(&mut self.late_guardian) {
                self.waiting.push(Event::GuardianDied);
            }
            if let Some(cgroup) = &self.tree.cgroup {
                cgroup.remove();
            }
            if let Some(watchdog) = &self.watchdog {
                // The guardian has armed it and cannot disarm it any more.
                watchdog.disarm_left();
            }
        }
    }

    /// No tree lives.
    fn bury(&mut self) {
        self.lives = false;
        self.lease_end = None;
        self.stop_by = None;
    }

    /// Hears one or more reports. `false` once the guardian is gone.
    async fn hear(&mut self) -> bool {
        let mut bytes = [0; 4096];
        let count = self.reports.read(&mut bytes).await.unwrap_or(0);
        self.heard.extend(&bytes[..count]);
        // One that cannot be understood is none of ours.
        let Ok(reports) = take_lines(&mut self.heard) else { return false };
        for report in reports {
            self.on_report(report);
        }
        count > 0
    }

    fn on_report(&mut self, report: Report) {
        let event = match report {
            Report::Ready { cgroup, unfenced } => {
                match cgroup {
                    Ok(path) => self.tree.cgroup = Some(Cgroup::at(path)),
                    Err(why) => self.no_cgroup = Some(why),
                }
                self.unfenced = unfenced;
                return;
            }
            Report::Started { pid } => Event::Started { pid },
            Report::NotStarted { why } => {
                self.bury();
                Event::NotStarted { why }
            }
            Report::TooLate => {
                self.bury();
                Event::TooLate
            }
            Report::Ended(ending) => Event::Ended(ending),
            Report::Dead { killed } => {
                self.bury();
                Event::Dead { killed }
            }
            Report::NotFrozen { why } => Event::NotFrozen { why },
            Report::TimeUp => Event::TimeUp,
            Report::Settled => {
                self.unsettled = false;
                return;
            }
        };
        self.waiting.push(event);
    }

    fn order(&self, order: Order) {
        // Nobody receives it if the guardian is gone, which is noticed by whoever reads its reports.
        let _ = self.orders.send(order);
    }

    fn end_guardian(&mut self) {
        let _ = self.guardian.kill();
        let _ = self.guardian.wait();
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // First, so that it does not carry out a start that is still before it.
        self.end_guardian();
        if self.lives {
            // Whoever drops it has let go of a tree that may live.
            Tree { root: getpid(), cgroup: self.tree.cgroup.clone() }.kill_until_dead(None);
        }
        if let Some(cgroup) = &self.tree.cgroup {
            // Whoever waited there for a command dies with the guardian, a moment later. It has nothing to do with any leadership: who cannot see it gone goes all the same.
            cgroup.kill_until_empty(Some(clock::now() + EMPTY_WITHIN));
            cgroup.remove();
        }
    }
}

async fn sleep(span: Option<Duration>) {
    tokio::time::sleep(span.unwrap_or_default()).await;
}
