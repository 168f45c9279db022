//! Until when somebody outside may have been told that it leads, for elections whose seat the kernel frees at once when its holder dies (`file:`).
//!
//! The problem: a program that is not our child was told "ten seconds more", and then we are killed. Where seats are leased nobody else is granted one before that time has
//! passed; a lock on a file is free at once. The insight: on one machine there is one clock, so the time itself can be left in a file. It is written before it is told to
//! anybody, and whoever is elected next waits for it. After a reboot nobody lives who was told anything, so a promise of another boot counts for nothing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use incumbent_protocol::time::Instant;
use incumbent_supervisor::clock;

/// A promise that is there and cannot be read now is looked for again after this.
const READ_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// The file of one election on this machine.
#[derive(Clone, Debug)]
pub(crate) struct Promise {
    path: PathBuf,
    boot: String,
    /// What was promised by this process; 0 if nothing.
    until: Arc<AtomicU64>,
}

impl Promise {
    /// Nothing is read or written yet.
    pub(crate) fn at(path: PathBuf) -> Promise {
        Promise { path, boot: boot_id(), until: Arc::default() }
    }

    /// How long it takes until what a former holder has promised has passed.
    pub(crate) fn of_others(&self) -> Duration {
        let text = match std::fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Duration::ZERO,
            // No file descriptor is left, for example: that nothing was promised is not known.
            Err(_) => return READ_AGAIN_AFTER,
        };
        let until =
            text.trim_end().split_once(' ').filter(|(boot, _)| *boot == self.boot).and_then(|(_, until)| until.parse().ok());
        until.map_or(Duration::ZERO, |it| Instant::from_nanos(it) - clock::now())
    }

    /// From now on others may be told so.
    pub(crate) fn make(&self, until: Instant) -> io::Result<()> {
        // Not synced: it need not outlast the kernel.
        replace(&self.path, &self.text(until.as_nanos()))?;
        self.until.store(until.as_nanos(), Ordering::Release);
        Ok(())
    }

    /// How long what was promised lasts.
    pub(crate) fn left(&self) -> Duration {
        Instant::from_nanos(self.until.load(Ordering::Acquire)) - clock::now()
    }

    /// Whoever was told so has stopped.
    pub(crate) fn keep(&self) {
        let own = self.until.swap(0, Ordering::AcqRel);
        // What another has promised is not ours to take back, though we lead, or wait to.
        if own != 0 && std::fs::read_to_string(&self.path).is_ok_and(|it| it == self.text(own)) {
            // One that stays costs the next holder a wait, and nothing else.
            let _ = std::fs::remove_file(&self.path);
        }
    }

    fn text(&self, until: u64) -> String {
        format!("{} {until}\n", self.boot)
    }
}

/// Puts a file in the place of another, so that a reader has the one or the other.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let new = PathBuf::from(name);
    std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path)).inspect_err(|_| {
        let _ = std::fs::remove_file(&new);
    })
}

fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_binds_the_next_holder_until_it_has_passed_or_was_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job.promise");
        let (former, next) = (Promise::at(path.clone()), Promise::at(path.clone()));
        assert!(next.of_others().is_zero() && former.left().is_zero());
        former.make(clock::now() + Duration::from_secs(60)).unwrap();
        assert!(next.of_others() > Duration::from_secs(50) && former.left() > Duration::from_secs(50));
        assert!(next.left().is_zero(), "what another has promised is not ours to tell");
        former.keep();
        assert!(next.of_others().is_zero() && former.left().is_zero());
        std::fs::write(&path, "another-boot 99999999999999999\n").unwrap();
        assert!(next.of_others().is_zero());
        former.make(Instant::ZERO).unwrap();
        assert!(next.of_others().is_zero());
    }

    /// Somebody is killed, and whoever is elected next leaves before what was promised has passed.
    #[test]
    fn nobody_takes_back_what_another_has_promised() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job.promise");
        let [killed, waits, last] = [(); 3].map(|()| Promise::at(path.clone()));
        killed.make(clock::now() + Duration::from_secs(60)).unwrap();
        waits.keep();
        assert!(last.of_others() > Duration::from_secs(50));
        last.make(clock::now() + Duration::from_secs(120)).unwrap();
        killed.keep();
        assert!(waits.of_others() > Duration::from_secs(100), "it was replaced");
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!Promise::at(folder.path().to_owned()).of_others().is_zero());
    }
}
