//! Who is let in: the first two packets of a connection, from both ends.

use incumbent_protocol::protocol::NodeId;
use tokio::time::Instant;

use super::exchange::{Board, Exchange, Memory};
use super::line::Connection;
use super::stream::Fault;
use crate::packet::{Hello, Lane, Packet, Passport, Purpose, Role, VERSION, VERSION_OLDEST, Welcome};

/// Guests served at one time.
const GUESTS_MAX: usize = 64;

/// Who was let in, and for what.
pub(super) enum Admitted {
    Member(Passport, Lane),
    /// It only wanted us to dial it.
    Knocker(NodeId),
    Guest,
}

impl Exchange {
    fn hello(&self, to: NodeId, purpose: Purpose) -> Packet {
        let board = self.board();
        Packet::Hello(Hello {
            version: VERSION,
            oldest: VERSION_OLDEST,
            cluster: self.cluster.clone(),
            role: Role::Member(self.passport(&board)),
            purpose,
            settings: board.settings.clone(),
            to: Some(to),
        })
    }

    /// Greets whom we have dialled.
    pub(super) async fn greet(&self, connection: &mut Connection, to: NodeId, purpose: Purpose) -> Result<Passport, Fault> {
        let hello = self.hello(to, purpose);
        connection.write(hello).await?;
        let welcome = match connection.read_greeting().await? {
            Packet::Welcome(welcome) => welcome,
            Packet::Refusal { why } => return Err(Fault::Refusal(shown(&why))),
            other @ (Packet::Hello(_) | Packet::Pulse(_) | Packet::Mail { .. }) => return Err(Fault::Misplaced(other.kind())),
        };
        let Welcome { passport, settings, version } = welcome;
        if !(VERSION_OLDEST..=VERSION).contains(&version) {
            return Err(Fault::Unwelcome(format!(
                "it answers in version {version} of the protocol, which is not ours ({VERSION})"
            )));
        }
        connection.version = version;
        if passport.id != to {
            return Err(Fault::Unwelcome(format!(
                "node {} answers where node {to} should: correct the list of peers",
                passport.id
            )));
        }
        let board = self.board();
        same_settings(&settings, &board.settings).map_err(Fault::Unwelcome)?;
        self.check_member(&board, passport).map_err(Fault::Unwelcome)?;
        if let Purpose::Lane(Lane::Bulk) = purpose {
            same_process(&board, passport)?;
        }
        Ok(passport)
    }

    /// Answers who has dialled us.
    pub(super) async fn answer(&self, connection: &mut Connection) -> Result<Admitted, Fault> {
        let hello = match connection.read_greeting().await? {
            Packet::Hello(hello) => hello,
            other @ (Packet::Welcome(_) | Packet::Refusal { .. } | Packet::Pulse(_) | Packet::Mail { .. }) => {
                return Err(Fault::Misplaced(other.kind()));
            }
        };
        let version = hello.version.min(VERSION);
        connection.version = version;
        match self.admit(hello, connection) {
            Ok(admitted) => {
                let (passport, settings) = {
                    let board = self.board();
                    (self.passport(&board), board.settings.clone())
                };
                connection.write(Packet::Welcome(Welcome { version, passport, settings })).await?;
                Ok(admitted)
            }
            Err(fault) => {
                if let Fault::Unwelcome(why) = &fault {
                    connection.write(Packet::Refusal { why: why.clone() }).await?;
                    connection.stream.shut().await;
                }
                Err(fault)
            }
        }
    }

    fn admit(&self, hello: Hello, connection: &Connection) -> Result<Admitted, Fault> {
        let admitted = self.examine(&hello, connection).map_err(Fault::Unwelcome)?;
        if let Admitted::Member(passport, Lane::Bulk) = admitted {
            same_process(&self.board(), passport)?;
        }
        Ok(admitted)
    }

    fn examine(&self, hello: &Hello, connection: &Connection) -> Result<Admitted, String> {
        let me = self.me();
        if hello.oldest > VERSION || hello.version < VERSION_OLDEST {
            let theirs = format!("{} to {}", hello.oldest, hello.version);
            return Err(format!(
                "it speaks versions {theirs} of the protocol, and node {me} {VERSION_OLDEST} to {VERSION}: upgrade the older"
            ));
        }
        if hello.cluster != self.cluster {
            return Err(format!("it belongs to cluster {:?}, and node {me} to {:?}", hello.cluster, self.cluster));
        }
        if let Some(to) = hello.to.filter(|to| *to != me) {
            return Err(format!("it wants node {to}, and this is node {me}: correct its list of peers"));
        }
        let passport = match hello.role {
            Role::Member(passport) => passport,
            Role::Guest => {
                let guests = self.board().guests.len();
                return if guests < GUESTS_MAX { Ok(Admitted::Guest) } else { Err(format!("{guests} guests are here already")) };
            }
        };
        connection.stream.vouches_for(&self.cluster, passport.id)?;
        let board = self.board();
        if passport.id == me {
            return Err(if passport.nonce == self.nonce() {
                format!("node {me} has dialled itself: correct its list of peers")
            } else {
                format!("it calls itself node {me}, as this node does: give each its own id")
            });
        }
        self.check_member(&board, passport)?;
        same_settings(&hello.settings, &board.settings)?;
        match hello.purpose {
            Purpose::Lane(_) if passport.id > me => {
                Err(format!("node {} should knock, not dial, as its id is the greater", passport.id))
            }
            Purpose::Lane(lane) => Ok(Admitted::Member(passport, lane)),
            Purpose::Knock => Ok(Admitted::Knocker(passport.id)),
        }
    }

    /// Whether this process may be the member that it says it is.
    fn check_member(&self, board: &Board, passport: Passport) -> Result<(), String> {
        let Passport { id, directory, nonce, origin, .. } = passport;
        if let Some(why) = board.banished.get(&id) {
            return Err(why.clone());
        }
        let Some(post) = board.posts.get(&id) else {
            return Err(format!("node {id} is not a member of this group, as node {} knows it", self.me()));
        };
        if let Some(first) = post.passport.filter(|first| first.nonce != nonce) {
            // One that has just died may be thought alive for a moment; its successor tries again.
            if post.up && Instant::now().duration_since(post.heard) < self.silence() && post.urgent.connection.is_some() {
                let same = if first.directory == directory { "the same directory" } else { "another directory" };
                return Err(format!("node {id} is in use by another live process (with {same}): give each its own id"));
            }
        }
        if let Some(known) = board.known.get(&id) {
            same_memory(known, passport)?;
        }
        // Who has yet to learn it, or is older than origins, is believed by the name.
        if let (Some(theirs), Some(ours)) = (origin, self.passport(board).origin)
            && theirs != ours
        {
            return Err(format!(
                "node {id} is of another cluster named {:?} than node {}: the two did not begin with the same members and the same data, so they cannot be joined; \
                 keep one of them, and begin the nodes of the other anew, from the same backup or by adding them",
                self.cluster,
                self.me()
            ));
        }
        Ok(())
    }
}

/// Whether a member has the directory that it had.
fn same_memory(known: &Memory, passport: Passport) -> Result<(), String> {
    let Passport { id, directory, generation, nonce, .. } = passport;
    if known.directory != directory {
        return Err(format!(
            "node {id} has come with another directory than it had: what it promised there is forgotten; bring the old one back, or remove it from the \
             group and add it with a new id"
        ));
    }
    let copied = known.generation == generation && known.nonce.is_some_and(|it| it != nonce);
    if known.generation > generation || copied {
        return Err(format!(
            "the directory of node {id} is older than it was (opened {generation} times, after {} had been seen): it was restored from a copy, and what \
             it promised since is forgotten; remove it from the group and add it with a new id",
            known.generation
        ));
    }
    Ok(())
}

fn same_settings(theirs: &str, ours: &str) -> Result<(), String> {
    if theirs == ours { Ok(()) } else { Err(format!("its settings differ: it has [{}], and this node [{ours}]", shown(theirs))) }
}

/// What a stranger wrote, as it may stand in one line of a log.
pub(super) fn shown(text: &str) -> String {
    const SHOWN_MAX: usize = 500;
    text.chars().take(SHOWN_MAX).map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// A lane for long packets must lead to the same process as the other.
fn same_process(board: &Board, passport: Passport) -> Result<(), Fault> {
    match board.posts.get(&passport.id).and_then(|post| post.passport) {
        Some(first) if first.nonce == passport.nonce => Ok(()),
        Some(_) => Err(Fault::Unwelcome(format!("two processes answer as node {}: give each its own id", passport.id))),
        // The other has just ended, and one end knows it sooner: weather.
        None => Err(Fault::Closed),
    }
}
