//! What those who led before on this machine may have left behind: a command of which something lives, or a time until which a program was told that it leads.
//!
//! Where seats are leased nobody is elected before either is over. Where the kernel frees the seat as soon as its holder dies (`file:`), whoever is elected waits for both, whether
//! a command or a sidecar was there before.

use std::path::Path;
use std::time::Duration;

use incumbent::Leadership;
use incumbent_supervisor::berth::Berth;
use incumbent_supervisor::network_fence;

use super::promise::Promise;
use super::signals::{Signals, Told};
use super::{CandidacyArguments, file_of, say, unwritable};
use crate::elections::target::Target;
use crate::failure::Failure;

/// How often one looks whether a lock is free.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Whoever has given the seat back is about to leave: that is not worth a word.
const LOOKS_IN_SILENCE: u32 = 20;

/// One election's locks on this machine.
pub(crate) struct Machine {
    pub(crate) berth: Berth,
    /// Only where the kernel frees the seat.
    pub(crate) promise: Option<Promise>,
}

/// Why the way was not cleared.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Uncleared {
    /// The leadership ends.
    Lost,
    /// A signal asked this process to end.
    Told(Told),
}

impl Machine {
    /// Opens the locks, and takes none.
    pub(crate) fn open(directory: &Path, wanted: &CandidacyArguments, target: &Target) -> Result<Machine, Failure> {
        let path = file_of(directory, wanted, target, "berth")?;
        let berth = Berth::at(&path).map_err(|why| unwritable(&path, &why))?;
        let is_freed = target.place()?.scheme() == "file";
        let promise = is_freed.then(|| file_of(directory, wanted, target, "promise").map(Promise::at)).transpose()?;
        Ok(Machine { berth, promise })
    }

    /// Whether nobody contends from another machine: elections in files.
    pub(crate) fn is_all(&self) -> bool {
        self.promise.is_some()
    }

    /// Waits until nothing of former terms lives here, and nobody acts on what it was told. Then the berth is ours.
    pub(crate) async fn clear(
        &self,
        leadership: &Leadership,
        signals: &mut Signals,
        quiet: bool,
    ) -> Result<Result<(), Uncleared>, Failure> {
        let clearing = async {
            let mut looks = 0;
            while !self.berth.try_take().map_err(at_the_berth)? {
                looks += 1;
                if looks == LOOKS_IN_SILENCE {
                    say!(quiet, "waits for the former command on this machine to be dead");
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
            kill_what_was_left_behind(&self.berth).await?;
            let mut said = false;
            while let Some(left) = self.promise.as_ref().map(Promise::of_others).filter(|it| !it.is_zero()) {
                if !std::mem::replace(&mut said, true) {
                    say!(quiet, "waits for what a former sidecar on this machine has promised to pass");
                }
                tokio::time::sleep(left).await;
            }
            Ok(())
        };
        tokio::select! {
            biased;
            cleared = clearing => cleared.map(Ok),
            _ = leadership.stopping() => Ok(Err(Uncleared::Lost)),
            told = signals.told() => Ok(Err(Uncleared::Told(told))),
        }
    }

    /// Supervisor and guardian of this machine were killed together, and what had left its parent lives on. Whoever starts them again, an init system most likely, does so long
    /// before a lease has ended: so it is ended now, and not only when this host leads again.
    pub(crate) async fn end_what_was_left_behind(&self) -> Result<(), Failure> {
        // Somebody's who lives: then nothing was left behind, or its guardian is about to end it.
        if self.berth.try_take().map_err(at_the_berth)? {
            kill_what_was_left_behind(&self.berth).await?;
            self.berth.leave(None).map_err(at_the_berth)?;
        }
        // Of anybody on this machine: the kernel lets go of a fence some time after its group was removed, and then nobody may be there any more.
        network_fence::sweep();
        Ok(())
    }
}

/// For whoever has the berth. The name stays until they are dead: this process may be killed meanwhile.
async fn kill_what_was_left_behind(berth: &Berth) -> Result<(), Failure> {
    if let Some(cgroup) = berth.left_behind().map_err(at_the_berth)? {
        say!(false, "kills what a supervisor that was killed has left behind in {}", cgroup.path().display());
        // The group alone: by descent from this process it would find its own guardian.
        let killing = tokio::task::spawn_blocking(move || {
            cgroup.kill_until_empty(None);
            cgroup.remove();
        });
        let _ = killing.await;
    }
    Ok(())
}

/// The berth could not be read or written.
pub(crate) fn at_the_berth(why: std::io::Error) -> Failure {
    unwritable(Path::new("the berth of this machine"), &why)
}
