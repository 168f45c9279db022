//! Wakes whoever waits for an instant of the boot clock, also if the machine has slept meanwhile.
//!
//! Tokio's timers stand still while a machine is suspended, and go on for as long as they had left when it wakes. The kernel's timer on the boot clock fires
//! at once then. There is one for all who wait on an engine's thread, set to the first of their instants.
//! An alarm only ever wakes earlier than a timer of tokio's would: who uses it sleeps by both, so that without one nothing is worse than late.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use incumbent_protocol::time::Instant;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime};
use tokio::net::unix::pipe;
use tokio::sync::oneshot;

use crate::clock;

/// What fires at an instant of the boot clock.
pub(crate) trait Timer: Send + Sync {
    /// Fire then, and no longer when it was set to before.
    fn set(&self, at: Instant);
}

/// Wakes those who wait when their instant has come.
pub(crate) struct Alarm {
    timer: Arc<dyn Timer>,
    due: Mutex<Due>,
}

#[derive(Default)]
struct Due {
    bells: BTreeMap<(Instant, u64), oneshot::Sender<()>>,
    last: u64,
    /// When the timer fires. One that nobody waits for any more is let fire: that costs less than to set it anew each time.
    set_to: Option<Instant>,
}

impl Alarm {
    /// One by the kernel's boot clock, served on this runtime for as long as that lives. `None` where there is no such timer.
    pub(crate) fn by_kernel() -> Option<Arc<Alarm>> {
        let timer = Arc::new(Kernel::new().inspect_err(|why| tracing::debug!(%why, "no timer on the boot clock")).ok()?);
        let alarm = Arc::new(Alarm::new(Arc::<Kernel>::clone(&timer)));
        tokio::spawn({
            let alarm = Arc::clone(&alarm);
            async move {
                while timer.fired().await.is_ok() {
                    alarm.ring(clock::now());
                }
            }
        });
        Some(alarm)
    }

    pub(crate) fn new(timer: Arc<dyn Timer>) -> Alarm {
        Alarm { timer, due: Mutex::default() }
    }

    /// Until then.
    pub(crate) async fn wait(&self, until: Instant) {
        let (bell, rung) = oneshot::channel();
        let place = {
            let mut due = self.due();
            due.last += 1;
            let at = (until, due.last);
            due.bells.insert(at, bell);
            self.set(&mut due);
            Place { alarm: self, at }
        };
        let _ = rung.await;
        drop(place);
    }

    /// The timer has fired, or the clock has jumped: it is now `now`.
    pub(crate) fn ring(&self, now: Instant) {
        let mut due = self.due();
        due.set_to = None;
        while let Some(first) = due.bells.first_entry().filter(|it| it.key().0 <= now) {
            // Whoever has gone needs no waking.
            let _ = first.remove().send(());
        }
        self.set(&mut due);
    }

    fn set(&self, due: &mut Due) {
        if let Some(((first, _), _)) = due.bells.first_key_value()
            && due.set_to.is_none_or(|it| *first < it)
        {
            due.set_to = Some(*first);
            self.timer.set(*first);
        }
    }

    fn due(&self) -> MutexGuard<'_, Due> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gone, nobody is woken there.
struct Place<'a> {
    alarm: &'a Alarm,
    at: (Instant, u64),
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.alarm.due().bells.remove(&self.at);
    }
}

/// The kernel's timer on `CLOCK_BOOTTIME`. It is read as a pipe is, so it can be one for tokio, which has no safe way for what else there is.
struct Kernel(pipe::Receiver);

impl Kernel {
    fn new() -> io::Result<Kernel> {
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        Ok(Kernel(pipe::Receiver::from_owned_fd_unchecked(timer)?))
    }

    async fn fired(&self) -> io::Result<()> {
        loop {
            self.0.readable().await?;
            // How often it has fired.
            match self.0.try_read(&mut [0; size_of::<u64>()]) {
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
                read => return read.map(drop),
            }
        }
    }
}

impl Timer for Kernel {
    fn set(&self, at: Instant) {
        // Zero would disarm it.
        let nanos = at.as_nanos().max(1);
        let at = Timespec { tv_sec: (nanos / 1_000_000_000).cast_signed(), tv_nsec: (nanos % 1_000_000_000).cast_signed() };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let set = timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval: never, it_value: at });
        if let Err(why) = set {
            // Tokio's timer is still there.
            tracing::debug!(%why, "the timer on the boot clock cannot be set");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    use super::*;

    /// Counts how often it is set, and never fires by itself.
    #[derive(Default)]
    struct Still(Mutex<Vec<Instant>>);

    impl Timer for Still {
        fn set(&self, at: Instant) {
            self.0.lock().expect("nobody panics").push(at);
        }
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[tokio::test]
    async fn the_kernels_timer_is_on_the_boot_clock_and_wakes_whoever_waits() {
        let kernel = Kernel::new().expect("Linux has one");
        kernel.set(clock::now() + Duration::from_secs(3600));
        let says = fs::read_to_string(format!("/proc/self/fdinfo/{}", kernel.0.as_raw_fd())).expect("Linux says what it is");
        // 7 is CLOCK_BOOTTIME, 01 TFD_TIMER_ABSTIME.
        assert!(says.contains("clockid: 7\n") && says.contains("settime flags: 01\n"), "{says}");
        let alarm = Alarm::by_kernel().expect("Linux has one");
        // What is over already fires at once; and again, and in the order of the instants.
        for _ in 0..3 {
            alarm.wait(Instant::ZERO).await;
        }
        let begun = clock::now();
        let (soon, sooner) = (begun + Duration::from_millis(2), begun + Duration::from_millis(1));
        tokio::select! {
            biased;
            () = async { alarm.wait(soon).await; std::future::pending().await } => {}
            () = alarm.wait(sooner) => assert!(clock::now() >= sooner),
        }
    }

    #[tokio::test]
    async fn who_is_due_is_woken_and_the_timer_is_set_to_the_first_of_the_others() {
        let still = Arc::new(Still::default());
        let alarm = Alarm::new(Arc::<Still>::clone(&still));
        let mut waiting = [5, 3, 9].map(|it| Box::pin(alarm.wait(at(it))));
        for it in &mut waiting {
            assert!(futures_util::poll!(it).is_pending());
        }
        assert_eq!(*still.0.lock().expect("nobody panics"), [at(5), at(3)], "9 s is later");
        alarm.ring(at(6));
        let [five, three, nine] = &mut waiting;
        assert!(futures_util::poll!(five).is_ready() && futures_util::poll!(three).is_ready());
        assert!(futures_util::poll!(nine).is_pending());
        assert_eq!(still.0.lock().expect("nobody panics").last(), Some(&at(9)));
        drop(waiting);
        assert!(alarm.due().bells.is_empty(), "whoever has gone leaves nothing behind");
    }
}
