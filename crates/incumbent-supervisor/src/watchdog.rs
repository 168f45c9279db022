//! A hardware watchdog as the last line: the machine is reset if nobody has killed the tree in time, because guardian, supervisor or kernel hang.
//!
//! **Problem.** A watchdog that is armed resets the machine `timeout` after it was last petted. Whoever pets it in a loop that also renews the lease may pet it once more just before the lease
//! turns out to be gone: then the reset comes `timeout` later, when somebody else has long been elected.
//!
//! **Rule.** It is petted only while `now + timeout <= deadline`, with the deadline of the last acknowledged renewal. So whenever the petting stops, for whatever reason, the reset comes before the
//! deadline. As long as the guardian runs there is none: it kills the tree before the deadline, and disarms the watchdog once the tree is dead.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use incumbent_protocol::time::Instant;

use crate::clock;

/// Shorter ones leave no room for a guardian that is late by a second.
pub const TIMEOUT_MIN: Duration = Duration::from_secs(2);

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

    /// Whether it fits a lease that is valid for `validity` from the send of a renewal that may take `request_timeout`. An error says in one line what to do.
    pub fn fits(&self, validity: Duration, request_timeout: Duration) -> Result<(), String> {
        let most = validity.saturating_sub(request_timeout);
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
        if clock::now() + settings.timeout > deadline {
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

    /// The tree is dead: nobody needs to be reset. Drivers that cannot be disarmed go on, and reset the machine.
    pub(crate) fn disarm(mut self) {
        let _ = self.device.write_all(b"V");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let lease = (Duration::from_secs(14), Duration::from_secs(2));
        assert_eq!(of(12).fits(lease.0, lease.1), Ok(()));
        for wrong in [1, 13, 60] {
            let why = of(wrong).fits(lease.0, lease.1).unwrap_err();
            assert!(why.contains("and 12 s") && !why.contains('\n'), "{why}");
        }
        assert!(Settings::of(Path::new("/dev/no-such-watchdog")).unwrap_err().contains("softdog"));
    }
}
