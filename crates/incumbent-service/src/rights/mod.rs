//! Who may do what: guests of the service, their tokens, and the one table of what each operation needs.
//!
//! - Denied is whatever is not granted. A right is good for the elections and keys whose names begin with its prefix, byte by byte; what reaches beyond is denied as a whole (C92).
//! - What an operation needs stands in `needs.rs` and nowhere else; every way into the service asks there: [`Guest::sign`] for commands, [`Guest::may_ask`], [`Guest::may_watch`],
//!   [`Guest::may_administer`].
//! - Whose a session is, the store knows: [`Guest::sign`] writes the guest's name into each request, and the store compares (incumbent-store, owners.rs).
//! - A token is a secret: kept as its digest, compared in constant time, shown by nothing.
//!
//! Only file.rs touches the world. Left out: encryption, which is the door's.

mod file;
mod needs;
#[cfg(test)]
mod tests;
mod tokens;

use std::fmt;
use std::sync::Arc;

use incumbent_store::command::{Command, Request};
use incumbent_store::keys::item::Span;
use incumbent_store::query::Query;
use incumbent_store::refusal::Refusal;
use incumbent_store::watch::Interest;
use tokio::sync::watch;

pub use file::Tokens;
pub use needs::Errand;
use needs::{Need, Scope};
pub use tokens::{Made, make};

pub use incumbent_peer::reread::Reread;

/// What begins with this byte is the service's own: nobody writes it from outside, and only who has [`Right::Admin`] of everything reads it.
pub const RESERVED: u8 = 0;

/// A guest's session lasts for so long at most after it was last heard of, whatever the store could keep: what a guest leaves behind is gone in a day.
pub const SESSION_TTL_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// What may be granted, each for a prefix of names.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Right {
    /// See who leads and who waits, and watch it.
    Observe,
    /// Stand for election, lead, resign. With it goes [`Right::Observe`].
    Campaign,
    /// Ask or make others leave office. With it goes [`Right::Observe`].
    Evict,
    /// Read and watch keys.
    Read,
    /// Write and delete keys. What was there before is told only with [`Right::Read`].
    Write,
    /// All of the others, and to forget or raise elections. With an empty prefix: the cluster itself, and everybody's sessions.
    Admin,
}

impl Right {
    /// All of them.
    pub const ALL: [Right; 6] = [Right::Observe, Right::Campaign, Right::Evict, Right::Read, Right::Write, Right::Admin];

    /// Its name in a file of tokens.
    pub fn name(self) -> &'static str {
        match self {
            Right::Observe => "observe",
            Right::Campaign => "campaign",
            Right::Evict => "evict",
            Right::Read => "read",
            Right::Write => "write",
            Right::Admin => "admin",
        }
    }

    /// Whether who has this may what needs the other.
    fn includes(self, needed: Right) -> bool {
        match self {
            Right::Admin => true,
            Right::Campaign | Right::Evict => needed == self || needed == Right::Observe,
            Right::Observe | Right::Read | Right::Write => needed == self,
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A right, and where it is good.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Grant {
    right: Right,
    /// All that begins with its start.
    within: Span,
}

impl Grant {
    fn new(right: Right, prefix: impl Into<bytes::Bytes>) -> Grant {
        Grant { right, within: Span::prefix(prefix) }
    }

    fn covers(&self, scope: Scope<'_>) -> bool {
        let prefix = &self.within.start[..];
        match scope {
            Scope::Name(name) => name.starts_with(prefix),
            Scope::Under(wanted) => wanted.starts_with(prefix),
            // A span that begins within the prefix is within it as long as it does not go behind its last key.
            Scope::Keys(span) => {
                let bounded = span.is_one() || self.within.is_open() || (!span.is_open() && span.end <= self.within.end);
                span.start.starts_with(prefix) && bounded
            }
            Scope::Everything => prefix.is_empty(),
        }
    }
}

/// Why something is denied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Denied {
    /// There is no token, and the service wants one.
    NoToken,
    /// It is nobody's token.
    BadToken,
    /// The token was good, and is not any more or not for the same.
    Withdrawn,
    /// A right is missing.
    Missing {
        /// Who asks.
        guest: String,
        /// What it would need.
        right: Right,
        /// And of what, for people.
        of: String,
    },
    /// Any one of some rights would do, and it has none of them.
    Useless {
        /// Who asks.
        guest: String,
        /// What it would need one for.
        purpose: &'static str,
        /// Which.
        rights: &'static [Right],
    },
    /// A session would be kept for longer than a guest's may be: for so many milliseconds at most.
    Lasting(u64),
    /// It is the service's own.
    Reserved,
    /// Nobody may, from outside: what it is.
    Nobody(&'static str),
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Denied::NoToken => f.write_str("this service wants a token: ask whoever runs it for one"),
            Denied::BadToken => f.write_str("the token is not known here"),
            Denied::Withdrawn => f.write_str("the token was withdrawn, or its rights have changed: connect again"),
            Denied::Missing { guest, right, of } => {
                let prefix = if *of == Scope::Everything.to_string() { "" } else { "PREFIX" };
                write!(f, "{guest} has no right to {right} {of}: it needs {right}:{prefix} in the file of tokens")
            }
            Denied::Useless { guest, purpose, rights } => {
                let rights: Vec<_> = rights.iter().map(|it| format!("{it}:PREFIX")).collect();
                write!(f, "{guest} has no right to {purpose}: it needs {} in the file of tokens", rights.join(" or "))
            }
            Denied::Lasting(max) => {
                write!(f, "a session that is kept for more than {max} ms without a word needs admin: in the file of tokens")
            }
            Denied::Reserved => {
                f.write_str("names and keys that begin with a zero byte are the service's own: begin behind them, with byte 1")
            }
            Denied::Nobody(what) => write!(f, "{what} is not to be had from outside"),
        }
    }
}

impl std::error::Error for Denied {}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Refusal {
        Refusal::Denied(denied.to_string())
    }
}

/// Who is there, and what it may. Clones are of the same.
#[derive(Clone)]
pub struct Guest(Arc<Standing>);

struct Standing {
    name: String,
    /// Without tokens there are no names: nobody's things are told from another's.
    is_anybody: bool,
    grants: Vec<Grant>,
    withdrawn: watch::Sender<bool>,
}

/// The name of a guest where nobody needs a token. No token can have it.
const ANYBODY: &str = "anybody";

impl Guest {
    /// Whoever reaches a service that wants no tokens: on the same machine, and only there. May do everything.
    pub fn anybody() -> Guest {
        Guest::new(ANYBODY.to_owned(), true, vec![Grant::new(Right::Admin, "")])
    }

    fn named(name: &str, grants: Vec<Grant>) -> Guest {
        Guest::new(name.to_owned(), false, grants)
    }

    fn new(name: String, is_anybody: bool, grants: Vec<Grant>) -> Guest {
        Guest(Arc::new(Standing { name, is_anybody, grants, withdrawn: watch::Sender::new(false) }))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether it may submit the command. What goes to the store goes through [`Guest::sign`].
    ///
    /// # Errors
    /// What is missing.
    pub fn may_submit(&self, command: &Command) -> Result<(), Denied> {
        self.stands()?;
        needs::of_command(command, &mut |need| self.check(need))?;
        if let Command::OpenSession(it) = command
            && it.ttl_ms > SESSION_TTL_MS_MAX
            && !self.is_admin()
        {
            return Err(Denied::Lasting(SESSION_TTL_MS_MAX));
        }
        Ok(())
    }

    /// The request as the store may have it: checked, and with the guest's name in it and whether it asks as a candidate only, whatever the client has written there.
    /// The store then keeps guests from using each other's sessions, from taking a seat by a wish, and from deposing a leader in favour of a name that nobody has.
    ///
    /// # Errors
    /// What is missing.
    pub fn sign(&self, mut request: Request) -> Result<Request, Denied> {
        match &request.command {
            Some(command) => self.may_submit(command)?,
            // The store refuses it, whoever asks.
            None => self.stands()?,
        }
        request.guest = self.signature(request.command.as_ref());
        if let Some(Command::Ask(ask)) = &mut request.command {
            ask.as_candidate = !self.has(Right::Evict, Scope::Name(ask.election.as_bytes()));
            ask.only_in_line = true;
        }
        Ok(request)
    }

    /// How it signs what it does with its sessions.
    pub(crate) fn signs_as(&self) -> String {
        self.signature(None)
    }

    /// Who has everything may use everybody's; but what it opens is its own.
    fn signature(&self, command: Option<&Command>) -> String {
        let opens = matches!(command, Some(Command::OpenSession(_) | Command::Introduce(_)));
        if self.0.is_anybody || (self.is_admin() && !opens) { String::new() } else { self.0.name.clone() }
    }

    /// Whether it may ask this.
    ///
    /// # Errors
    /// What is missing.
    pub fn may_ask(&self, query: &Query) -> Result<(), Denied> {
        self.stands()?;
        needs::of_query(query, &mut |need| self.check(need))
    }

    /// Whether it may hear of this.
    ///
    /// # Errors
    /// What is missing.
    pub fn may_watch(&self, interest: &Interest) -> Result<(), Denied> {
        self.stands()?;
        needs::of_interest(interest, &mut |need| self.check(need))
    }

    /// Whether it may do this to the cluster.
    ///
    /// # Errors
    /// What is missing.
    pub fn may_administer(&self, errand: Errand) -> Result<(), Denied> {
        self.stands()?;
        needs::of_errand(errand, &mut |need| self.check(need))
    }

    /// Until its token is withdrawn or its rights change: then its connections are to be closed, and with them its watches.
    pub async fn withdrawn(&self) {
        let mut withdrawn = self.0.withdrawn.subscribe();
        // The sender lives as long as we do.
        let _ = withdrawn.wait_for(|it| *it).await;
    }

    fn withdraw(&self) {
        self.0.withdrawn.send_replace(true);
    }

    fn stands(&self) -> Result<(), Denied> {
        if *self.0.withdrawn.borrow() { Err(Denied::Withdrawn) } else { Ok(()) }
    }

    fn is_admin(&self) -> bool {
        self.has(Right::Admin, Scope::Everything)
    }

    fn has(&self, right: Right, scope: Scope<'_>) -> bool {
        self.0.grants.iter().any(|it| it.right.includes(right) && it.covers(scope))
    }

    fn check(&self, need: Need<'_>) -> Result<(), Denied> {
        let (right, scope) = match need {
            Need::Token => return Ok(()),
            Need::Nobody(what) => return Err(Denied::Nobody(what)),
            Need::Some(rights, purpose) => {
                let has = |needed: &Right| self.0.grants.iter().any(|it| it.right.includes(*needed));
                let useless = || Denied::Useless { guest: self.0.name.clone(), purpose, rights };
                return if rights.iter().any(has) { Ok(()) } else { Err(useless()) };
            }
            Need::Right(right, scope) => (right, scope),
        };
        if scope.touches_reserved() {
            let reads = match right {
                Right::Observe | Right::Read | Right::Admin => true,
                Right::Campaign | Right::Evict | Right::Write => false,
            };
            return if reads && self.is_admin() { Ok(()) } else { Err(Denied::Reserved) };
        }
        if self.has(right, scope) {
            return Ok(());
        }
        Err(Denied::Missing { guest: self.0.name.clone(), right, of: scope.to_string() })
    }
}

/// Two are the same if they are one login.
impl PartialEq for Guest {
    fn eq(&self, other: &Guest) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guest({})", self.0.name)
    }
}
