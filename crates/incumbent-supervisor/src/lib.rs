//! Runs a command while a lease lasts, and proves its whole process tree dead before it ends. Linux only; knows no engine and no election.
//!
//! ```text
//!   supervisor ── orders: lease, start, stop ──▶ guardian ── parent of ──▶ command and all it forks
//!   (Guarded)  ◀── reports: ended, dead ───────  (kills at the deadline)    (a control group, and its descent)
//! ```
//!
//! Whichever of the first two is killed, stopped or hung, the other kills the tree. The program that uses this calls [`stage`] first of all in its `main`, because guardian
//! and launcher are that same program under other names.

pub mod berth;
pub mod cgroup;
pub mod clock;
mod descendants;
pub mod guarded;
mod guardian;
mod launcher;
pub mod network_fence;
pub mod tree;
pub mod watchdog;
mod wire;

use std::ffi::OsString;
use std::process::ExitCode;

pub use guarded::{Command, Event, Guarded, Setup};
pub use wire::Ending;

/// Runs the guardian or the launcher, if that is what this process was started as; `None` if it is the program itself.
pub fn stage(mut words: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let name = words.next()?;
    if name == launcher::NAME {
        return Some(launcher::run(words).into());
    }
    if name == guardian::NAME {
        // Whatever went wrong, the tree is dead by now; the supervisor sees that its guardian has gone.
        return Some(if guardian::run(words).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    None
}
