//! A store that goes on in another cluster: what was saved there is brought back here, and nothing that was given there may be given again (C60).
//!
//! **Problem.** After the backup the old cluster went on: it gave tokens, numbers of sessions and of clients, and revisions that nobody here has seen; and whoever led there may still
//! believe that it leads. **Insight.** Tokens begin with the incarnation, so one more of it is above them all; everything else is counted by the revision, so a leap of it is. And a belief
//! lasts no longer than a ttl, so every seat that was held is nobody's for as long.

use alloc::vec::Vec;

use crate::elections::INCARNATION_MAX;
use crate::elections::room::incarnation_above;
use crate::journal::Journal;
use crate::refusal::Refusal;
use crate::store::{REVISION_MAX, Store};
use crate::time::Stamp;

/// So many revisions are left out. More than any cluster makes between a backup and its end, and few enough that there are thousands of such leaps.
pub const REVISIONS_LEFT_OUT: u64 = 1 << 32;

/// Why a session has ended, for the record of its leaderships.
const REASON: &str = "restored from a backup";

impl Store {
    /// Makes this store the beginning of another cluster. Every token that it gives is greater than all that the former cluster gave before the save and after it, unless that raised its
    /// incarnation meanwhile ([`Raise`](crate::command::Raise), or a candidate that had seen a greater token): then say which token to be `above`.
    ///
    /// Sessions end, with their seats, places and keys; a seat or key that was held is nobody's for the session's ttl and the drift, or its lock delay if that is longer, from when the new
    /// cluster's time begins. So if the former cluster has stopped before, those whom the save knew have stopped believing. What it does not know is who came later: start the new cluster no
    /// sooner than the longest ttl after the former one's end, or fence what must not be done twice. Clients are forgotten, and so are events: nobody resumes where another history went on.
    ///
    /// # Errors
    /// [`Refusal::TokensExhausted`] if there is no greater incarnation, or no room for the revisions. The store is as it was.
    pub fn begin_anew(&mut self, wall_ms: u64, above: u64) -> Result<(), Refusal> {
        let former = self.incarnation;
        let mut incarnation = former.checked_add(1).filter(|it| *it <= INCARNATION_MAX).ok_or(Refusal::TokensExhausted)?;
        if above > 0 {
            incarnation = incarnation.max(incarnation_above(above)?);
        }
        // To end a session takes few revisions for each thing attached to it, and there is room for many more than there can be.
        let revision = self.journal.revision() + REVISIONS_LEFT_OUT;
        if revision > REVISION_MAX {
            return Err(Refusal::TokensExhausted);
        }
        self.end_all_sessions(wall_ms);
        self.clients = Default::default();
        // One that was raised above the others had tokens of its own.
        self.elections.raise_those_above(former);
        self.journal = Journal::restored(revision, revision + 1, revision);
        self.incarnation = incarnation;
        Ok(())
    }

    fn end_all_sessions(&mut self, wall_ms: u64) {
        let stamp = Stamp { at: self.now, wall_ms };
        let sessions: Vec<u64> = self.sessions.iter().map(|(id, _)| id).collect();
        // All of them first: a seat must not go to one who is next to lose it.
        for session in &sessions {
            self.sessions.outlast_ttl(*session);
            self.sessions.begin_ending(*session, REASON, true);
        }
        for session in sessions {
            self.drain(stamp, session, usize::MAX);
        }
    }
}
