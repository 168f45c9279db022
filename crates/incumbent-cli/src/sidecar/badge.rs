//! A file that is there while this process leads: who, with which token, until when. For programs that would rather read a file than ask.
//!
//! It may be left behind by a process that was killed or is paused, so a reader must compare the deadline with its own clock.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use incumbent::Leadership;
use serde_json::json;

use crate::candidacy::promise::replace;
use crate::elections::describe;
use crate::failure::Failure;

/// The file.
#[derive(Debug)]
pub(super) struct Badge {
    path: PathBuf,
}

impl Badge {
    /// Takes away what a former process may have left there, and sees that a file can be put there.
    pub(super) fn at(path: PathBuf) -> Result<Badge, Failure> {
        let badge = Badge { path };
        let tried = replace(&badge.path, "").and_then(|()| std::fs::remove_file(&badge.path));
        tried.map_err(|why| Failure::Engine {
            what: format!("cannot write {}: {why}: name a file in a directory of this user's with --file", badge.path.display()),
            exit: crate::exit::Exit::Io,
        })?;
        Ok(badge)
    }

    /// Shows the leadership as it stands.
    pub(super) fn show(&self, leadership: &Leadership) -> std::io::Result<()> {
        let deadline = leadership.deadline();
        let (left, now) = (leadership.remaining(), SystemTime::now());
        let text = json!({
            "election": leadership.election().as_str(),
            "identity": leadership.identity().as_str(),
            "token": leadership.token().to_string(),
            "deadline_boottime_ns": deadline.as_nanos(),
            "remaining_ms": u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
            "written_at": describe::time(now),
            "valid_until": describe::time(now + left.min(Duration::from_secs(86_400))),
        });
        replace(&self.path, &format!("{text}\n"))
    }

    /// Takes it away.
    pub(super) fn hide(&self) {
        // One that stays says of itself when it ends.
        let _ = std::fs::remove_file(&self.path);
    }
}
