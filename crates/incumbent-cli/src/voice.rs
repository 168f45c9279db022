//! The standard error of a process that stays. Whoever reads it may stand still, and a full pipe would hold up whoever writes: renewals, or a supervisor that is about to tell its command to end. So
//! what nobody takes is not said, and how much that was is said later.
//!
//! Left out: a pipe that somebody else fills between our look and our line. Then we wait for its reader, as everybody does.

use std::fmt;
use std::io::{self, Stderr, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

static LOST: AtomicU64 = AtomicU64::new(0);

/// Says one line.
pub(crate) fn say(what: fmt::Arguments<'_>) {
    // In one piece, so that nobody else's comes in between. The terminal may be gone; the work goes on.
    let _ = Voice::default().write_all(format!("incumbent: {what}\n").as_bytes());
}

/// Takes a line at a time.
pub(crate) struct Voice(Stderr);

impl Default for Voice {
    fn default() -> Voice {
        Voice(io::stderr())
    }
}

impl Write for Voice {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !is_taken(&self.0) {
            LOST.fetch_add(1, Ordering::Relaxed);
            return Ok(line.len());
        }
        let lost = LOST.swap(0, Ordering::Relaxed);
        if lost > 0 {
            self.0.write_all(format!("incumbent: {lost} lines were lost here, because nobody has read them\n").as_bytes())?;
        }
        self.0.write_all(line)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether a line can be written at once. What cannot be asked is written to, and says itself what is wrong with it.
fn is_taken(stderr: &Stderr) -> bool {
    let mut asked = [PollFd::new(stderr, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut asked, Some(&at_once)) != Ok(0)
}
