//! Why a command could not do what it was asked: what went wrong, what to do about it, which exit code says so.

use std::io;
use std::path::Path;

use incumbent::engine::{Error, Kind};

use crate::exit::Exit;

/// What went wrong. Each says what to do.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A file, stream or signal could not be had.
    Io { what: String, hint: &'static str },
    /// A file that was given cannot be understood, or what was asked for cannot be done here.
    Input { what: String, hint: &'static str },
    /// An engine did not do what it was asked, or a setting for it is wrong. The library says in one line what to do.
    Engine { what: String, exit: Exit },
    /// Whoever read our output has closed it. Nothing is wrong: `| head` does so.
    ReaderGone,
}

impl Failure {
    /// `doing` (as in "cannot write") `path` failed.
    pub(crate) fn file(doing: &str, path: &Path, wrong: &io::Error) -> Failure {
        Failure::Io { what: format!("cannot {doing} {}: {wrong}", path.display()), hint: hint(wrong.kind()) }
    }

    /// A setting that the library refused.
    pub(crate) fn setting(wrong: &Error) -> Failure {
        Failure::Engine { what: wrong.to_string(), exit: Exit::Usage }
    }

    /// An engine could not be asked something. Asking changes nothing, so there is no doubt whether it happened.
    pub(crate) fn asking(wrong: &Error) -> Failure {
        let exit = match wrong.kind() {
            Kind::Misconfigured => Exit::Usage,
            Kind::Refused | Kind::Unknown => Exit::Refused,
        };
        Failure::Engine { what: wrong.to_string(), exit }
    }

    /// An engine has not changed something, or may have.
    pub(crate) fn changing(wrong: &Error) -> Failure {
        let (what, exit) = match wrong.kind() {
            Kind::Misconfigured => (wrong.to_string(), Exit::Usage),
            Kind::Refused => (wrong.to_string(), Exit::Refused),
            Kind::Unknown => (format!("{wrong}; it may have happened: look before asking again"), Exit::Unknown),
        };
        Failure::Engine { what, exit }
    }

    /// What to tell the person, if there is something to tell: what went wrong, and what to do unless that says it already.
    pub(crate) fn message(&self) -> Option<(&str, Option<&str>)> {
        match self {
            Failure::Io { what, hint } | Failure::Input { what, hint } => Some((what, Some(hint))),
            Failure::Engine { what, .. } => Some((what, None)),
            Failure::ReaderGone => None,
        }
    }

    /// How a command that failed so ends.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Failure::Io { .. } => Exit::Io,
            Failure::Input { .. } => Exit::Usage,
            Failure::Engine { exit, .. } => *exit,
            Failure::ReaderGone => Exit::Done,
        }
    }
}

/// For the standard output only: a file's failure must name the file ([`Failure::file`]).
impl From<io::Error> for Failure {
    fn from(wrong: io::Error) -> Failure {
        if wrong.kind() == io::ErrorKind::BrokenPipe {
            return Failure::ReaderGone;
        }
        Failure::Io { what: format!("cannot write to the standard output: {wrong}"), hint: hint(wrong.kind()) }
    }
}

#[allow(clippy::wildcard_enum_match_arm, reason = "the enum is the standard library's and grows")]
fn hint(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::NotFound => "check the path; the folder above it must exist",
        io::ErrorKind::PermissionDenied => "choose a place you may write to, or ask for the right to",
        io::ErrorKind::StorageFull => "make room on the disk, or write elsewhere",
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "a file stands where a folder is needed: choose another path"
        }
        io::ErrorKind::IsADirectory => "this is a folder: name a file",
        _ => "the operating system refused it; try another path",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_no_error_but_a_full_disk_is() {
        let closed = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((closed.message(), closed.exit()), (None, Exit::Done));
        let full = Failure::from(io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(full.exit(), Exit::Io);
        assert!(full.message().unwrap().1.unwrap().contains("make room"));
    }
}
