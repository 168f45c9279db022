//! The guardian: a small process between the supervisor and the command that knows until when the tree may live, and kills it then even if the supervisor is stopped, hung or gone.
//!
//! It is the command's parent and a subreaper, so the whole tree descends from it. It has one thread, memory that is not swapped out, a timer on the boot clock, and no part in
//! any election. Three things end the tree: an order, the deadline it was last given, and silence on the socket, which is the supervisor's death.
//!
//! A supervisor that is stopped keeps the berth with which others of this machine are made to wait. When the tree is dead, the lease over and nothing heard, the guardian gives it back for both.
//!
//! What it cannot do is run while it is itself stopped; then the supervisor kills the tree instead (see [`crate::guarded`]).

use std::ffi::{CStr, OsString};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use incumbent_protocol::time::Instant;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, getpriority_process, pidfd_send_signal, set_child_subreaper,
    setpriority_process, wait,
};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};
use tokio::signal::unix::SignalKind;

use crate::berth::Berth;
use crate::cgroup::Cgroup;
use crate::clock;
use crate::launcher::{Launcher, Standing};
use crate::network_fence::NetworkFence;
use crate::tree::Tree;
use crate::watchdog::{self, Watchdog};
use crate::wire::{Ending, Launch, Lease, Order, Report, line, receive_descriptors, take_lines};

/// What it is called among the processes.
pub(crate) const NAME: &str = "incumbent-guardian";
/// Its name in the kernel. Not the program's: whoever kills all processes of that name must not kill the one that cleans up after them.
const KERNEL_NAME: &CStr = c"guardian";
/// On a busy machine it comes before the work that it watches over, and before most others, where it may.
const MORE_URGENT_BY: i32 = 10;
/// Groups that former guardians have left are swept after this time.
const SWEPT_AFTER: Duration = Duration::from_secs(60);
/// How often it buries the dead that were left to it, while nothing else happens.
const BURY_EVERY: Duration = Duration::from_secs(1);
/// How often it looks whether a tree that was told to end has.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// When a tree is dead, the processors are left to whoever takes over for so long, before the next launcher is begun.
const PREPARE_AFTER: Duration = Duration::from_millis(50);
/// For so long it buries without a look at anything else: there are trees whose processes die faster than anybody buries them.
const BURY_WITHIN: Duration = Duration::from_millis(50);
/// What the command leaves behind when it ends by itself has so long to end too, before it is killed.
const REMNANTS_END_WITHIN: Duration = Duration::from_secs(2);

/// What a guardian is told on its command line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Charge {
    pub(crate) network_fence: bool,
    pub(crate) watchdog: Option<watchdog::Settings>,
}

impl Charge {
    /// As words.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let device = self.watchdog.as_ref().map(|it| it.device.clone().into_os_string());
        let timeout = self.watchdog.as_ref().map(|it| OsString::from(it.timeout.as_millis().to_string()));
        let fence = if self.network_fence { "network-fence" } else { "-" };
        [Some(OsString::from(fence)), device, timeout].into_iter().flatten().collect()
    }

    fn read(mut words: impl Iterator<Item = OsString>) -> Charge {
        let network_fence = words.next().is_some_and(|it| it == "network-fence");
        let device = words.next().map(PathBuf::from);
        let millis = words.next().and_then(|it| it.to_str().and_then(|it| it.parse().ok()));
        let watchdog =
            device.zip(millis).map(|(device, millis)| watchdog::Settings { device, timeout: Duration::from_millis(millis) });
        Charge { network_fence, watchdog }
    }
}

/// Serves one supervisor to its end.
pub(crate) fn run(words: impl Iterator<Item = OsString>) -> io::Result<()> {
    let charge = Charge::read(words);
    let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut descriptors = receive_descriptors(&control)?.into_iter();
    let stdin = descriptors.next();
    // Held open for as long as this process lives: it may be locked, and then the lock outlives the supervisor.
    let berth = descriptors.next().map(Berth::of);
    let mut guardian = Guardian::begin(control, stdin, berth, charge)?;
    let served = guardian.serve();
    guardian.tree.kill_until_dead(None);
    guardian.disarm();
    if let Some(cgroup) = &guardian.tree.cgroup {
        cgroup.remove();
    }
    served
}

struct Guardian {
    control: UnixStream,
    heard: Vec<u8>,
    stdin: Option<OwnedFd>,
    timer: OwnedFd,
    tree: Tree,
    /// What the kernel thought of us before.
    standing: Standing,
    lease: Option<Lease>,
    /// In place for the next command; none while a tree lives.
    launcher: Option<Launcher>,
    /// One is to be put in place, once.
    is_unprepared: bool,
    running: Option<Running>,
    /// Closed until there is a lease, and from its deadline on.
    fence: Option<NetworkFence>,
    charge: Charge,
    /// Armed while a tree may live.
    watchdog: Option<Watchdog>,
    berth: Option<Berth>,
    /// No tree lives, and the berth is given back for a supervisor that stands still, if nothing is heard of it by then: the deadline of its last lease. Until then it may be about to go on.
    unheard: Option<Instant>,
}

/// A tree that is not known to be dead.
struct Running {
    pid: Pid,
    /// `None` once the command itself has ended.
    command: Option<OwnedFd>,
    /// It was told to end, and will be killed then.
    kill_at: Option<Instant>,
    /// By this signal, which not everybody in it may have heard as that: what a shell starts in the background is deaf to SIGINT.
    told: Option<Signal>,
    killed: bool,
    frozen: bool,
    /// The supervisor was told that the lease is over.
    is_time_up: bool,
}

impl Guardian {
    fn begin(control: UnixStream, stdin: Option<OwnedFd>, berth: Option<Berth>, charge: Charge) -> io::Result<Guardian> {
        set_child_subreaper(Some(getpid()))?;
        outlive_signals()?;
        // What follows makes it sturdier and may be forbidden; without it it still does its work.
        let _ = rustix::thread::set_name(KERNEL_NAME);
        let oom_score = fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_else(|_| "0".to_owned()).trim().to_owned();
        let _ = fs::write("/proc/self/oom_score_adj", "-1000");
        let niceness = getpriority_process(None).unwrap_or(0);
        let _ = setpriority_process(None, niceness - MORE_URGENT_BY);
        // Only what it touches: the program is large, and most of it is not this.
        let _ = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT);
        let cgroup = Cgroup::make(&Cgroup::name_here());
        if let Ok(cgroup) = &cgroup {
            cgroup.sweep_beside(SWEPT_AFTER);
        }
        let (fence, unfenced) = match (charge.network_fence, &cgroup) {
            (false, _) => (None, None),
            (true, Err(why)) => (None, Some(why.clone())),
            (true, Ok(cgroup)) => match NetworkFence::attach(cgroup.path()) {
                Ok(fence) => (Some(fence), None),
                Err(why) => (None, Some(why.to_string())),
            },
        };
        let mut guardian = Guardian {
            control,
            heard: Vec::new(),
            stdin,
            timer: timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?,
            tree: Tree { root: getpid(), cgroup: cgroup.as_ref().ok().cloned() },
            standing: Standing { oom_score, niceness },
            lease: None,
            launcher: None,
            is_unprepared: false,
            running: None,
            fence,
            charge,
            watchdog: None,
            berth,
            unheard: None,
        };
        // A rehearsal: what kills is in memory from now on.
        guardian.tree.kill_until_dead(None);
        guardian.control.set_nonblocking(true)?;
        guardian.report(&[Report::Ready { cgroup: cgroup.map(|it| it.path().to_owned()), unfenced }]);
        guardian.prepare();
        Ok(guardian)
    }

    /// Returns when the supervisor is gone.
    fn serve(&mut self) -> io::Result<()> {
        loop {
            self.keep_time()?;
            self.bury();
            self.wait()?;
            if !self.listen()? {
                return Ok(());
            }
        }
    }

    /// Waits for the supervisor, the end of the command, the timer, or the next look.
    fn wait(&mut self) -> io::Result<()> {
        self.set_timer()?;
        let patience = match &self.running {
            None => self.is_unprepared.then_some(PREPARE_AFTER),
            Some(running) if running.command.is_none() || running.kill_at.is_some() || running.killed => Some(LOOK_EVERY),
            Some(_) => Some(BURY_EVERY),
        };
        let patience = patience.map(|it| Timespec { tv_sec: it.as_secs().cast_signed(), tv_nsec: i64::from(it.subsec_nanos()) });
        let mut watched = vec![PollFd::new(&self.control, PollFlags::IN), PollFd::new(&self.timer, PollFlags::IN)];
        if let Some(command) = self.running.as_ref().and_then(|it| it.command.as_ref()) {
            watched.push(PollFd::new(command, PollFlags::IN));
        }
        match poll(&mut watched, patience.as_ref()) {
            Ok(0) if self.is_unprepared => {
                self.prepare();
                Ok(())
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(why) => Err(why.into()),
        }
    }

    /// Carries out what the supervisor has said. `false` once it is gone.
    fn listen(&mut self) -> io::Result<bool> {
        let mut bytes = [0; 4096];
        loop {
            match self.control.read(&mut bytes) {
                Ok(0) => return Ok(false),
                Ok(count) => self.heard.extend(&bytes[..count]),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => break,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                // Reset by the death of the other side.
                Err(_) => return Ok(false),
            }
        }
        for order in take_lines(&mut self.heard)? {
            self.obey(order);
        }
        Ok(true)
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Start(launch) => self.start(&launch),
            Order::Lease(lease) => {
                self.lease = Some(lease);
                if self.running.is_none() {
                    self.unheard = Some(Instant::from_nanos(lease.deadline));
                }
                if let Some(fence) = &self.fence
                    && fence.extend(Instant::from_nanos(lease.deadline)).is_err()
                {
                    // It stays closed at the old deadline, and a command that cannot speak is no use.
                    self.kill();
                }
            }
            Order::Signal(number) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    self.signal_command(signal);
                }
            }
            Order::Stop { signal, kill_at } => {
                self.stop(Signal::from_named_raw(signal).unwrap_or(Signal::TERM), Instant::from_nanos(kill_at))
            }
            Order::Kill => self.kill(),
            Order::Freeze => self.freeze(),
            Order::Thaw => self.thaw(),
            Order::Settle => {
                self.unheard = None;
                self.report(&[Report::Settled]);
            }
        }
    }

    fn start(&mut self, launch: &Launch) {
        let now = clock::now();
        let started = match (&self.running, self.lease) {
            (Some(_), _) => Err("the tree before it still lives".to_owned()),
            (None, Some(lease)) if lease.stop_at > now.as_nanos() && self.can_be_armed(lease) && self.is_at_berth() => {
                let within = Instant::from_nanos(lease.stop_at) - now;
                self.spawn(launch, within).map_err(|why| why.to_string())
            }
            (None, _) => return self.report(&[Report::TooLate]),
        };
        match started {
            Ok((pid, command)) => {
                self.unheard = None;
                let command = Some(command);
                let (kill_at, told) = (None, None);
                self.running = Some(Running { pid, command, kill_at, told, killed: false, frozen: false, is_time_up: false });
                self.report(&[Report::Started { pid: pid.as_raw_nonzero().get() }]);
            }
            Err(why) => {
                self.disarm();
                self.report(&[Report::NotStarted { why }]);
            }
        }
    }

    /// It may have been given back from here for a supervisor that stood still, which has not heard of it yet.
    fn is_at_berth(&self) -> bool {
        self.berth.as_ref().is_none_or(|it| it.try_take().unwrap_or(false))
    }

    fn can_be_armed(&self, lease: Lease) -> bool {
        self.charge.watchdog.as_ref().is_none_or(|it| it.can_be_armed(Instant::from_nanos(lease.deadline)))
    }

    fn disarm(&mut self) {
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.disarm();
        }
    }

    fn spawn(&mut self, launch: &Launch, within: Duration) -> io::Result<(Pid, OwnedFd)> {
        if let (Some(settings), Some(lease)) = (&self.charge.watchdog, self.lease) {
            self.watchdog = Some(Watchdog::arm(settings, Instant::from_nanos(lease.deadline))?);
        }
        self.is_unprepared = false;
        let stdin = self.stdin.as_ref().map(|it| it.as_fd());
        if let Some(waiting) = self.launcher.take()
            && let Ok(started) = waiting.launch(launch, stdin, within)
        {
            return Ok(started);
        }
        // There was none, or it has been killed while it waited.
        Launcher::begin(self.tree.root, self.tree.cgroup.as_ref(), &self.standing)?.launch(launch, stdin, within)
    }

    /// Has somebody in place before there is anything to run.
    fn prepare(&mut self) {
        self.is_unprepared = false;
        // What cannot be had now is tried again when it is needed, and its absence said then.
        self.launcher = Launcher::begin(self.tree.root, self.tree.cgroup.as_ref(), &self.standing).ok();
    }

    fn stop(&mut self, signal: Signal, kill_at: Instant) {
        self.thaw();
        if let Some(running) = &mut self.running {
            running.kill_at = Some(running.kill_at.map_or(kill_at, |it| it.min(kill_at)));
            running.told = Some(signal);
            let give_up = self.kill_due();
            if clock::now() < give_up {
                self.tree.signal(signal, give_up);
                // Whoever is stopped, by its terminal most likely, could not heed it.
                self.tree.signal(Signal::CONT, give_up);
            } else {
                // All of them are killed at once, and there is no time but for this.
                self.signal_command(signal);
            }
        }
    }

    fn signal_command(&self, signal: Signal) {
        if let Some(command) = self.running.as_ref().and_then(|it| it.command.as_ref()) {
            // It may end at this instant.
            let _ = pidfd_send_signal(command, signal);
        }
    }

    fn kill(&mut self) {
        if let Some(running) = &mut self.running {
            running.killed = true;
            self.tree.kill();
        }
    }

    fn freeze(&mut self) {
        let Some(running) = self.running.as_mut().filter(|it| !it.frozen && !it.killed) else { return };
        running.frozen = true;
        if let Err(why) = self.tree.freeze(self.kill_due()) {
            self.report(&[Report::NotFrozen { why: why.to_string() }]);
        }
    }

    fn thaw(&mut self) {
        if let Some(running) = self.running.as_mut().filter(|it| it.frozen) {
            running.frozen = false;
            // A tree that cannot be thawed is killed at its deadline.
            let _ = self.tree.thaw(self.kill_due());
        }
    }

    /// Tells the tree to end, or kills it, when the time for it has come.
    fn keep_time(&mut self) -> io::Result<()> {
        if let (Some(watchdog), Some(lease)) = (&mut self.watchdog, self.lease) {
            watchdog.pet(Instant::from_nanos(lease.deadline));
        }
        let mut spent = [0; 8];
        // How often it fired does not matter, only what time it is.
        let _ = rustix::io::read(&self.timer, &mut spent);
        self.give_back();
        let (now, lease_end, kill_due) = (clock::now(), self.lease_end(), self.kill_due());
        let stop_at = self.lease.map_or(now, |it| Instant::from_nanos(it.stop_at));
        let Some(running) = &mut self.running else { return Ok(()) };
        let is_to_stop = now >= stop_at && running.kill_at.is_none() && !running.frozen;
        let is_to_die = running.killed || now >= kill_due;
        if !running.killed && !running.is_time_up && (is_to_stop || now >= lease_end) {
            running.is_time_up = true;
            // First: what the command does when it is told so must not be taken for the end of its work.
            self.report(&[Report::TimeUp]);
        }
        if is_to_die {
            self.kill();
        } else if is_to_stop {
            self.stop(Signal::TERM, lease_end);
        }
        Ok(())
    }

    /// Whoever is elected next on this machine need not wait for a supervisor that stands still, once nothing of its work can live any more.
    fn give_back(&mut self) {
        if self.unheard.take_if(|it| clock::now() >= *it).is_none() {
            return;
        }
        // Where that fails they wait, as they would without us.
        let _ = self.berth.as_ref().map(|it| it.leave(self.tree.cgroup.as_ref().map(Cgroup::path)));
    }

    /// When a tree is to be killed that has not been. Nothing else may take longer than until then, however many processes there are.
    fn kill_due(&self) -> Instant {
        let Some(running) = self.running.as_ref().filter(|it| !it.killed) else { return Instant::NEVER };
        running.kill_at.map_or(self.lease_end(), |it| it.min(self.lease_end()))
    }

    /// When it is killed at the latest. Without a lease it may not live at all.
    fn lease_end(&self) -> Instant {
        self.lease.map_or(Instant::ZERO, |it| Instant::from_nanos(it.kill_at))
    }

    /// Sets the timer to the next instant at which something is due.
    fn set_timer(&self) -> io::Result<()> {
        let tree = self.running.as_ref().and_then(|running| {
            let lease = self.lease?;
            let is_told = running.kill_at.is_some() || running.frozen;
            let due = if is_told { self.kill_due().as_nanos() } else { lease.stop_at };
            (!running.killed).then_some(due.max(1))
        });
        let deadline = self.lease.map(|it| Instant::from_nanos(it.deadline));
        let pet = self.watchdog.as_ref().zip(deadline).and_then(|(watchdog, deadline)| watchdog.pet_at(deadline));
        let unheard = self.unheard.map(|it| it.as_nanos().max(1));
        // Zero disarms it.
        let nanos = tree.into_iter().chain(pet.map(Instant::as_nanos)).chain(unheard).min().unwrap_or(0);
        let at = Timespec { tv_sec: (nanos / 1_000_000_000).cast_signed(), tv_nsec: (nanos % 1_000_000_000).cast_signed() };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval: never, it_value: at })?;
        Ok(())
    }

    /// Waits for those who have ended, says how the command did, and notices when nobody is left.
    fn bury(&mut self) {
        let mut reports = Vec::new();
        let enough = self.kill_due().min(clock::now() + BURY_WITHIN);
        while clock::now() < enough
            && let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG)
        {
            self.launcher = self.launcher.take().filter(|it| it.pid() != pid);
            if let Some(running) = self.running.as_mut().filter(|it| it.pid == pid && it.command.is_some()) {
                running.command = None;
                reports.push(Report::Ended(ending(status)));
            }
        }
        let Some(running) = self.running.as_ref().filter(|it| it.command.is_none()) else { return };
        let (killed, frozen, told) = (running.killed, running.frozen, running.told);
        if !self.tree.is_dead(self.kill_due()).unwrap_or(false) {
            let has_ended = !reports.is_empty();
            self.report(&reports);
            // So must what it has left behind.
            match told {
                None if has_ended && !killed => self.stop(Signal::TERM, clock::now() + REMNANTS_END_WITHIN),
                Some(other) if has_ended && !killed && other != Signal::TERM => self.stop(Signal::TERM, self.lease_end()),
                Some(_) | None => {}
            }
            return;
        }
        self.running = None;
        self.unheard = Some(self.lease.take().map_or(clock::now(), |it| Instant::from_nanos(it.deadline)));
        if let Some(fence) = &self.fence {
            // The kernel goes on sending what a dead process has left in its connections. If it cannot be closed it closes at the deadline.
            let _ = fence.close();
        }
        self.disarm();
        // Both at once: most commands leave nothing behind, and the supervisor is woken once.
        reports.push(Report::Dead { killed });
        self.report(&reports);
        if frozen {
            // Killed while frozen it would stay so for the next.
            let _ = self.tree.thaw(Instant::NEVER);
        }
        // Fenced, each command has a guardian of its own.
        self.is_unprepared = self.fence.is_none();
    }

    fn report(&mut self, reports: &[Report]) {
        // A supervisor that does not read is stopped or dead; the tree's life does not depend on telling it.
        let _ = self.control.write_all(&reports.iter().flat_map(line).collect::<Vec<u8>>());
    }
}

/// Whoever is to clean up must not end before it has, and its way out is the silence of its supervisor. Two that send it signals and mean no harm: a service manager that tells all processes of a
/// service to end, the command among them, which may need its time to drain; and the kernel, which finds a group of processes without anybody to let it go on when a supervisor is killed whose
/// guardian is stopped, and sends it SIGHUP and SIGCONT.
fn outlive_signals() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _inside = runtime.enter();
    for kind in [
        SignalKind::hangup(),
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::quit(),
        SignalKind::alarm(),
        SignalKind::user_defined1(),
        SignalKind::user_defined2(),
    ] {
        // That somebody has listened is enough: what was installed for it stays as long as the process, and is not passed on to the command.
        tokio::signal::unix::signal(kind).map(drop)?;
    }
    Ok(())
}

fn ending(status: WaitStatus) -> Ending {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Ending::Code(code),
        (None, Some(signal)) => Ending::Signal(signal),
        (None, None) => Ending::Code(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_is_read_as_it_was_said() {
        let watchdog = watchdog::Settings { device: PathBuf::from("/dev/watchdog"), timeout: Duration::from_secs(9) };
        for charge in [
            Charge::default(),
            Charge { network_fence: true, watchdog: None },
            Charge { network_fence: false, watchdog: Some(watchdog) },
        ] {
            assert_eq!(Charge::read(charge.words().into_iter()), charge);
        }
    }
}
