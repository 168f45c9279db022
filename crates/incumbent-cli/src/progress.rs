//! How far a long command is: a bar on the standard error, if that is a terminal. The result never waits for it.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use incumbent_lab::jobs::Audience;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::interrupt::Interrupt;

/// Whoever waits in front of the terminal: sees the bar, and may press Ctrl-C.
pub(crate) struct Progress<'a> {
    bar: ProgressBar,
    interrupt: &'a Interrupt,
}

impl<'a> Progress<'a> {
    /// A bar for `runs` runs.
    pub(crate) fn new(runs: usize, interrupt: &'a Interrupt) -> Progress<'a> {
        Progress::with(runs, "{bar:32} {pos}/{len} runs, {eta} left; Ctrl-C prints what is there", interrupt)
    }

    /// A bar for at most `states` states: a search may come to its end long before.
    pub(crate) fn of_states(states: usize, interrupt: &'a Interrupt) -> Progress<'a> {
        Progress::with(states, "{bar:32} {human_pos} of at most {human_len} states; Ctrl-C prints what is there", interrupt)
    }

    /// A bar for `rounds` rounds of a drill.
    pub(crate) fn of_rounds(rounds: usize, interrupt: &'a Interrupt) -> Progress<'a> {
        Progress::with(rounds, "{bar:32} {pos}/{len} rounds, {eta} left; Ctrl-C prints what is there", interrupt)
    }

    fn with(end: usize, template: &str, interrupt: &'a Interrupt) -> Progress<'a> {
        let terminal = io::stderr().is_terminal();
        let target = if terminal { ProgressDrawTarget::stderr_with_hz(10) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(end as u64), target);
        bar.set_style(ProgressStyle::with_template(template).expect("the template is well formed"));
        if terminal {
            // A single run of a great group can take a while: the bar must not look dead.
            bar.enable_steady_tick(Duration::from_millis(500));
        }
        Progress { bar, interrupt }
    }

    /// The same bar for a part of the runs, of which `before` came earlier.
    pub(crate) fn after(&self, before: u64) -> Part<'_> {
        Part { whole: self, before }
    }
}

/// A part of the runs that a bar is for.
pub(crate) struct Part<'a> {
    whole: &'a Progress<'a>,
    before: u64,
}

impl Audience for Part<'_> {
    fn progress(&self, done: usize) {
        self.whole.bar.set_position(self.before + done as u64);
    }

    fn has_enough(&self) -> bool {
        self.whole.has_enough()
    }
}

impl Audience for Progress<'_> {
    fn progress(&self, done: usize) {
        self.bar.set_position(done as u64);
    }

    fn has_enough(&self) -> bool {
        self.interrupt.asked()
    }
}

/// The bar goes before the result comes.
impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
