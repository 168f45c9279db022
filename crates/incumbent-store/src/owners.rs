//! What is whose: a guest of the service uses its own sessions and leaderships, and nobody else's.
//!
//! Numbers of sessions and tokens of leaderships are no secrets: they are small, they rise, and observers see them. So who asks is written into each request
//! ([`Request::guest`](crate::command::Request::guest)), and compared here with who has opened the session, on every replica alike. To a guest, another's session is one that is gone.
//! Which elections and keys a guest may touch at all is not the store's business.

use alloc::format;
use alloc::string::String;

use crate::command::Command;
use crate::keys::transaction::{Act, Operation, Put, Transaction};
use crate::refusal::Refusal;
use crate::store::Store;

/// The owner of what a guest opens. Names of guests have no slash in them, so what is nobody's has none before its first slash: it must not pass for a guest's.
pub(crate) fn owned_by(guest: &str, owner: &str) -> String {
    if guest.is_empty() && !owner.contains('/') { owner.into() } else { format!("{guest}/{owner}") }
}

/// The guest that has opened what has this owner, if it was one.
pub(crate) fn guest_of(owner: &str) -> Option<&str> {
    owner.split_once('/').map(|(guest, _)| guest).filter(|it| !it.is_empty())
}

pub(crate) fn is_owned_by(owner: &str, guest: &str) -> bool {
    owner.strip_prefix(guest).is_some_and(|rest| rest.starts_with('/'))
}

impl Store {
    /// Refuses a guest what needs a session that is another's. Anything else is refused, if at all, where it is carried out.
    pub(crate) fn check_owner(&self, guest: &str, command: &Command) -> Result<(), Refusal> {
        if guest.is_empty() {
            return Ok(());
        }
        match command {
            Command::EndSession(it) => self.check_session(guest, it.session),
            Command::Campaign(it) => {
                self.check_session(guest, it.session)?;
                self.check_candidate(guest, &it.election, &it.identity)
            }
            Command::Withdraw(it) => self.check_candidate(guest, &it.election, &it.identity),
            Command::Renew(it) => self.check_holder(guest, &it.election, it.token),
            Command::Proclaim(it) => self.check_holder(guest, &it.election, it.token),
            Command::Resign(it) => self.check_holder(guest, &it.election, it.token),
            Command::Complete(it) => self.check_holder(guest, &it.election, it.token),
            Command::Put(it) => self.check_put(guest, it),
            Command::Transact(it) => self.check_transaction(guest, it),
            // Sessions of others are passed over one by one.
            Command::KeepAlive(_) | Command::Bind(_) => Ok(()),
            // These use no session that is there already; a number that is taken is refused as such.
            Command::OpenSession(_) | Command::Introduce(_) | Command::Expire(_) | Command::Delete(_) | Command::Compact(_) => {
                Ok(())
            }
            // These are about whoever holds a seat, and need a right of their own. For whom a candidate asks is checked there.
            Command::Ask(_) | Command::Evict(_) | Command::Annotate(_) | Command::Raise(_) | Command::Forget(_) => Ok(()),
        }
    }

    fn check_session(&self, guest: &str, session: u64) -> Result<(), Refusal> {
        if self.sessions.is_anothers(session, guest) { Err(Refusal::SessionGone(session)) } else { Ok(()) }
    }

    /// A leadership is its holder's alone: to resign for another would be to evict it.
    fn check_holder(&self, guest: &str, election: &str, token: u64) -> Result<(), Refusal> {
        let holder = self.elections.find(election).and_then(|it| it.holder(token));
        let anothers = holder.is_some_and(|it| self.sessions.is_anothers(it.session, guest));
        if anothers { Err(Refusal::NotInOffice(token)) } else { Ok(()) }
    }

    /// Whoever campaigns under an identity has the seat of that identity: it must not be another's.
    fn check_candidate(&self, guest: &str, election: &str, identity: &str) -> Result<(), Refusal> {
        let Some(election) = self.elections.find(election) else { return Ok(()) };
        let holds = election.holders.iter().find(|it| it.identity == identity).map(|it| it.session);
        let waits = election.line.find(identity).map(|it| it.session);
        if holds.into_iter().chain(waits).any(|it| self.sessions.is_anothers(it, guest)) {
            return Err(Refusal::Denied("another guest stands there under this identity: choose another identity".into()));
        }
        Ok(())
    }

    fn check_put(&self, guest: &str, put: &Put) -> Result<(), Refusal> {
        self.check_session(guest, put.session)
    }

    fn check_transaction(&self, guest: &str, transaction: &Transaction) -> Result<(), Refusal> {
        let operations = transaction.then.iter().chain(&transaction.otherwise);
        for Operation { act } in operations {
            match act {
                Some(Act::Put(put)) => self.check_put(guest, put)?,
                Some(Act::Transact(nested)) => self.check_transaction(guest, nested)?,
                Some(Act::Delete(_) | Act::Read(_) | Act::Abort(_)) | None => {}
            }
        }
        Ok(())
    }
}
