//! How a command ends, as the shell sees it. The codes are part of the interface: scripts rely on them.

use std::process::ExitCode;

/// The table that `--help` and docs/cli.md show.
pub(crate) const CODES: &str = "\
Exit codes:
  0    the command did what it was asked
  1    a finding: a violation, an ailment, two leaders, no such key, a guard that does not hold
  2    the command line, a file or a setting is wrong, or a right is missing; nothing was done
  3    a file or stream could not be read or written
  4    nobody leads
  5    the engine could not be reached, or would not do it; nothing was changed
  6    it is not known whether it happened, or it has not yet: no answer or new leader came in time
  130  interrupted by Ctrl-C or SIGTERM; what was found so far is printed";

/// The table of `incumbent run`, whose codes must not be taken for those of the command.
pub(crate) const RUN_CODES: &str = "\
Exit codes:
  N    the command's own, and 128 + N if a signal ended it
  120  the command line or a setting is wrong; nothing was run
  121  not elected within --max-wait; nothing was run
  122  the leadership was lost and --after-loss is exit; the command was stopped, and is dead
  123  the former leader could not be fenced; nothing was run
  125  incumbent itself failed: a file, a right or the engine; the command, if it ran, is dead
  126  the command is there and cannot be run
  127  the command is not there";

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// It did what it was asked.
    Done,
    /// It found what it looks for.
    Found,
    /// The command line is wrong.
    Usage,
    /// A file or stream failed.
    Io,
    /// Nobody leads.
    Vacant,
    /// The engine did not do it.
    Refused,
    /// The engine may have done it, or may yet.
    Unknown,
    /// It was stopped before its end.
    Interrupted,
    /// A command that was run ended so.
    Command(u8),
    /// [`RUN_CODES`]: a setting is wrong.
    RunUsage,
    /// [`RUN_CODES`]: not elected in time.
    RunNotElected,
    /// [`RUN_CODES`]: the leadership was lost.
    RunLost,
    /// [`RUN_CODES`]: the former leader could not be fenced.
    RunNotFenced,
    /// [`RUN_CODES`]: incumbent failed.
    RunFailed,
}

impl Exit {
    /// How a command that was interrupted ends. What was found stays found: that is more than that the search was cut short.
    pub(crate) fn interrupted(self) -> Exit {
        if self == Exit::Done { Exit::Interrupted } else { self }
    }

    /// The same from `incumbent run`, which leaves the small numbers to the command.
    pub(crate) fn of_run(self) -> Exit {
        match self {
            Exit::Usage => Exit::RunUsage,
            Exit::Io | Exit::Refused | Exit::Unknown | Exit::Found | Exit::Vacant => Exit::RunFailed,
            Exit::Done
            | Exit::Interrupted
            | Exit::Command(_)
            | Exit::RunUsage
            | Exit::RunNotElected
            | Exit::RunLost
            | Exit::RunNotFenced
            | Exit::RunFailed => self,
        }
    }

    /// The number that the shell sees.
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Found => 1,
            Exit::Usage => 2,
            Exit::Io => 3,
            Exit::Vacant => 4,
            Exit::Refused => 5,
            Exit::Unknown => 6,
            Exit::Interrupted => 130,
            Exit::Command(code) => code,
            Exit::RunUsage => 120,
            Exit::RunNotElected => 121,
            Exit::RunLost => 122,
            Exit::RunNotFenced => 123,
            Exit::RunFailed => 125,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_those_of_the_table_and_the_handbook_has_the_same() {
        let all = [Exit::Done, Exit::Found, Exit::Usage, Exit::Io, Exit::Vacant, Exit::Refused, Exit::Unknown, Exit::Interrupted];
        for exit in all {
            assert!(CODES.contains(&format!("\n  {:<4} ", exit.code())), "{exit:?}");
        }
        for exit in [Exit::RunUsage, Exit::RunNotElected, Exit::RunLost, Exit::RunNotFenced, Exit::RunFailed] {
            assert!(RUN_CODES.contains(&format!("\n  {:<4} ", exit.code())), "{exit:?}");
        }
        for (codes, name, handbook) in [
            (CODES, "docs/cli.md", include_str!("../../../docs/cli.md")),
            (RUN_CODES, "docs/run.md", include_str!("../../../docs/run.md")),
        ] {
            for line in codes.lines() {
                assert!(handbook.contains(line), "{name} lacks: {line}");
            }
        }
    }

    #[test]
    fn what_was_found_before_an_interrupt_stays_found() {
        assert_eq!(Exit::Found.interrupted(), Exit::Found);
        assert_eq!(Exit::Done.interrupted(), Exit::Interrupted);
    }
}
