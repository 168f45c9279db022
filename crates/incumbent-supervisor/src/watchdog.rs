//! A hardware watchdog as the last line: the machine is reset if nobody has killed the tree in time, because guardian, supervisor or kernel hang.
//!
//! **Problem.** A watchdog that is armed resets the machine `timeout` after it was last petted. Whoever pets it in a loop that also renews the lease may pet it once more just before the lease
//! turns out to be gone: then the reset comes `timeout` later, when somebody else has long been elected.
//!
//! **Rule.** It is petted only while `now + timeout <= deadline`, with the deadline of the last acknowledged renewal. So whenever the petting stops, for whatever reason, the reset comes before the
//! deadline. As long as the guardian runs there is none: it kills the tree before the deadline, and disarms the watchdog once the tree is dead.
//!
//! For that the last petting must not come much earlier than the rule allows either: on a beat of one second the reset could come a second before the deadline, and so before the kill. So the guardian
//! wakes each time half of what is left has passed, and the reset comes earlier than the deadline by no more than twice what the guardian is late.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use incumbent_protocol::time::Instant;
use incumbent_protocol::timing::Timing;

use crate::clock;

/// Shorter ones leave no room for a guardian that is late by a second.
pub const TIMEOUT_MIN: Duration = Duration::from_secs(2);
/// From the kill to the reset at least: a killed process of 1 GiB needs about 0.1 s to be gone, and no healthy machine may be reset because its guardian was late by as much.
pub const KILL_MIN: Duration = Duration::from_millis(200);
/// How often it is petted while there is time.
const PET_EVERY: Duration = Duration::from_secs(1);
/// The last petting may come so much before the last moment for it.
const PET_LAST: Duration = Duration::from_millis(5);

/// A watchdog that can be armed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Its device.
    pub device: PathBuf,
    /// How long after the last petting it resets the machine, as the device has been set.
    pub timeout: Duration,
}

impl Settings {
    /// What the kernel says of a device such as /dev/watchdog or /dev/watchdog1. An error says in one line what to do.
    pub fn of(device: &Path) -> Result<Settings, String> {
        let name = device.file_name().and_then(|it| it.to_str()).unwrap_or_default();
        let name = if name == "watchdog" { "watchdog0" } else { name };
        let told = Path::new("/sys/class/watchdog").join(name);
        let read = |file: &str| fs::read_to_string(told.join(file)).ok().map(|it| it.trim().to_owned());
        let seconds = read("timeout").and_then(|it| it.parse().ok()).ok_or_else(|| {
            format!(
                "the kernel knows no watchdog {}: load its driver (softdog, if there is no hardware), or say its timeout",
                device.display()
            )
        })?;
        Ok(Settings { device: device.to_owned(), timeout: Duration::from_secs(seconds) })
    }

    /// Whether it fits a lease with these times. An error says in one line what to do.
    pub fn fits(&self, timing: &Timing) -> Result<(), String> {
        // So much is left of the lease at any time while renewals are answered: it can be armed whenever a command is to start.
        let most = timing.validity(timing.ttl()).saturating_sub(timing.renew() + timing.request_timeout());
        if timing.kill() < KILL_MIN || most < TIMEOUT_MIN {
            return Err(format!("a lease of {:?} is too short for a watchdog: take a longer --ttl", timing.ttl()));
        }
        if self.timeout < TIMEOUT_MIN || self.timeout > most {
            return Err(format!(
                "a watchdog of {:?} does not fit this lease: set it to between {TIMEOUT_MIN:?} and {} s (wdctl --settimeout N {}), or take another --ttl",
                self.timeout,
                most.as_secs(),
                self.device.display()
            ));
        }
        Ok(())
    }

    /// Whether a lease with this deadline lasts long enough to arm it.
    pub(crate) fn can_be_armed(&self, deadline: Instant) -> bool {
        clock::now() + self.timeout <= deadline
    }
}

impl Settings {
    /// Disarms what somebody who is dead has left armed. The tree is dead too.
    pub(crate) fn disarm_left(&self) {
        // If it cannot be opened, somebody else has it, or it resets the machine: one more restart, and nothing that lives twice.
        if let Ok(device) = OpenOptions::new().write(true).open(&self.device) {
            Watchdog { device, timeout: self.timeout }.disarm();
        }
    }
}

/// A watchdog that is armed. Dropping it does not disarm it.
#[derive(Debug)]
pub(crate) struct Watchdog {
    device: File,
    timeout: Duration,
}

impl Watchdog {
    /// Arms it, if the lease still lasts long enough for that: opening it is the first petting.
    pub(crate) fn arm(settings: &Settings, deadline: Instant) -> io::Result<Watchdog> {
        if !settings.can_be_armed(deadline) {
            return Err(io::Error::other("the lease ends too soon for the watchdog"));
        }
        let device = OpenOptions::new().write(true).open(&settings.device)?;
        Ok(Watchdog { device, timeout: settings.timeout })
    }

    /// Pets it, if the rule allows.
    pub(crate) fn pet(&mut self, deadline: Instant) {
        if clock::now() + self.timeout <= deadline {
            // One that takes no petting resets the machine, which is what it is for.
            let _ = self.device.write_all(b"\0");
        }
    }

    /// When it is to be petted next. Never, once the rule does not allow it.
    pub(crate) fn pet_at(&self, deadline: Instant) -> Option<Instant> {
        next_pet(clock::now(), deadline.before(self.timeout))
    }

    /// The tree is dead: nobody needs to be reset. Drivers that cannot be disarmed go on, and reset the machine.
    pub(crate) fn disarm(mut self) {
        let _ = self.device.write_all(b"V");
    }
}

fn next_pet(now: Instant, last: Instant) -> Option<Instant> {
    let left = last - now;
    (left > PET_LAST).then(|| now + (left / 2).min(PET_EVERY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_petting_is_earlier_than_it_might_be_by_no_more_than_twice_what_the_guardian_is_late() {
        let last = Instant::ZERO + Duration::from_secs(100);
        for left_ms in 1..5000 {
            for late in [0, 1, 3, 10, 50, 200].map(Duration::from_millis) {
                let mut petted = last.before(Duration::from_millis(left_ms));
                while let Some(wake) = next_pet(petted, last).map(|it| it + late).filter(|it| *it <= last) {
                    assert!(wake > petted && wake - petted <= PET_EVERY + late);
                    petted = wake;
                }
                let early = last - petted;
                assert!(
                    early <= (late * 2).max(PET_LAST),
                    "{early:?} early, with a guardian that is {late:?} late, from {left_ms} ms on"
                );
            }
        }
    }

    #[test]
    fn it_is_petted_only_while_the_reset_would_come_before_the_deadline() {
        let device = std::env::temp_dir().join(format!("incumbent-watchdog-{}", std::process::id()));
        fs::write(&device, "").unwrap();
        let settings = Settings { device: device.clone(), timeout: Duration::from_secs(10) };
        let in_time = clock::now() + Duration::from_secs(3600);
        let too_late = clock::now() + Duration::from_secs(9);
        assert!(Watchdog::arm(&settings, too_late).is_err());
        let mut watchdog = Watchdog::arm(&settings, in_time).unwrap();
        watchdog.pet(in_time);
        watchdog.pet(too_late);
        watchdog.disarm();
        assert_eq!(fs::read(&device).unwrap(), b"\0V");
        fs::remove_file(&device).unwrap();
    }

    #[test]
    fn a_timeout_that_does_not_fit_the_lease_is_refused_with_one_that_does() {
        let of = |seconds| Settings { device: PathBuf::from("/dev/watchdog"), timeout: Duration::from_secs(seconds) };
        let lease = |seconds| Timing::of(Duration::from_secs(seconds)).build().unwrap();
        for right in [2, 9] {
            assert_eq!(of(right).fits(&lease(15)), Ok(()));
        }
        for wrong in [1, 10, 60] {
            let why = of(wrong).fits(&lease(15)).unwrap_err();
            assert!(why.contains("and 9 s") && !why.contains('\n'), "{why}");
        }
        // Nothing fits one that leaves no time between the kill and the reset.
        assert_eq!(of(2).fits(&lease(4)), Ok(()));
        let tight = Timing::of(Duration::from_secs(15)).kill(Duration::from_millis(199)).build().unwrap();
        for short in [lease(3), tight] {
            let why = of(2).fits(&short).unwrap_err();
            assert!(why.contains("longer --ttl") && !why.contains('\n'), "{why}");
        }
        assert!(Settings::of(Path::new("/dev/no-such-watchdog")).unwrap_err().contains("softdog"));
    }
}
