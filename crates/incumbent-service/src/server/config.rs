//! What a node is told before it starts, and why it may not start. Every limit of the server has its name here.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use incumbent_peer::pace::Pace;
use incumbent_peer::packet::FREIGHT_MAX;
use incumbent_peer::switchboard::{Peer, Security};
use incumbent_protocol::protocol::NodeId;
use incumbent_traces::Traces;

use super::tls::Admission;
use crate::log::{Options, Refused};
use crate::replica::{BadRoll, BadStart, Settings};

/// What a letter has around the longest payload that it carries.
const LETTER_HEAD_MAX: usize = 4 * 1024;

/// A request may have a value of 1 MiB, and names and keys around it.
const PAYLOAD_BYTES_MAX: usize = (1 << 20) + (64 << 10);

const _: () = assert!(PAYLOAD_BYTES_MAX + LETTER_HEAD_MAX <= FREIGHT_MAX);

/// Keep-alives that come within this time go into the log together: they need not be fast, and there are many.
pub(super) const KEEP_ALIVES_GATHERED: Duration = Duration::from_millis(5);

/// So many sessions are kept alive by one request in the log; the next ones by another.
pub(super) const KEPT_ALIVE_AT_ONCE_MAX: usize = 10_000;

/// What came from the others and was not yet looked at. More, and their lines wait.
pub(super) const ARRIVALS_MAX: usize = 1024;

/// What users on other threads want and was not yet looked at. More, and they wait.
pub(super) const ORDERS_MAX: usize = 4096;

/// What connections have asked and was not yet looked at. More is refused. No more comes in a turn of the node.
pub(super) const CALLS_MAX: usize = 65_536;

/// So much of what one guest wants waits for its turn; more is refused. Where no tokens are asked for, all are one guest.
pub(super) const WAITING_PER_GUEST_MAX: usize = 65_536;

/// So many bytes of one guest's requests wait for their turn.
pub(super) const WAITING_BYTES_PER_GUEST_MAX: usize = 64 << 20;

/// So many bytes of all guests' requests; beyond that only of those who have little that waits.
pub(super) const WAITING_BYTES_MAX: usize = 256 << 20;

/// That is little: one request, however long.
pub(super) const WAITING_BYTES_SMALL: usize = 2 << 20;

const _: () = assert!(WAITING_BYTES_SMALL > PAYLOAD_BYTES_MAX);

/// What users of this node have on its way through the log may take about so long to apply. The rest waits for its turn, guest by guest: so whoever asks little does not wait for all that
/// somebody else has sent. Enough to keep disks and network busy: thousands of simple requests.
pub(super) const UNDER_WAY_MAX: Duration = Duration::from_millis(20);

/// So many batches of events wait for one stream. One that is further behind reads on from what the store keeps, if it keeps it still.
pub(super) const WATCH_BACKLOG_MAX: usize = 1024;

/// So many bytes of events wait for one stream, and one batch more.
pub(super) const WATCH_BACKLOG_BYTES_MAX: usize = 1 << 20;

/// So many bytes of events wait for all streams of a node, each counted for everyone it waits for. There are never more: a stream for which there is no room is ended, and its reader comes
/// back and reads on.
pub(super) const WATCH_BACKLOGS_BYTES_MAX: usize = 256 << 20;

/// A stream that is behind has room as long as all that waits for its guest is no more than so many times what is left: so a guest that reads slowly has half of it, and shuts out nobody.
pub(super) const WATCH_TIMES_LEFT_BEHIND: usize = 1;

/// The same for a stream that has read everything: something that is told to very many of one guest at once is no fault of theirs.
pub(super) const WATCH_TIMES_LEFT: usize = 3;

const _: () = assert!(WATCH_TIMES_LEFT > WATCH_TIMES_LEFT_BEHIND);

/// So many bytes of what has happened are read at once for somebody who watches, and a revision more.
pub(super) const WATCH_READ_BYTES_MAX: usize = 256 << 10;

/// Nodes save their snapshots so many parts of the usual distance apart.
const SNAPSHOTS_APART: u64 = 5;

/// More watches on one node than this are refused.
pub(super) const WATCHES_MAX: usize = 1_000_000;

/// So long a node works for its users before it looks after the others again: short beside the time after which they would elect another.
pub(super) const TURN_MAX: Duration = Duration::from_millis(5);

/// So much of what was decided may wait to be applied. A node that is further behind takes longer turns until it has caught up.
pub(super) const WORK_MAX: usize = 4096;

/// By so much is a turn longer then. Short still beside the time after which the others would elect another.
pub(super) const CATCHING_UP_MORE: Duration = Duration::from_millis(15);

/// A node with so much to apply does nothing else, for what waits takes room. No leader comes here, but one that was far behind: what is under way is bounded ([`UNDER_WAY_MAX`]).
pub(super) const WORK_HELD_MAX: usize = 16 * WORK_MAX;

/// The same in bytes.
pub(super) const WORK_HELD_BYTES_MAX: usize = 256 << 20;

/// So many questions that take long may wait ...
pub(super) const READINGS_MAX: usize = 256;

/// ... and so many of one guest.
pub(super) const READINGS_PER_GUEST_MAX: usize = READINGS_MAX / 2;

/// So much of what has come from other nodes is taken in together, and then as much of what users want.
pub(super) const WAKEUPS_PER_TURN: usize = 256;

/// So long steps of handshakes are computed for strangers, and then it is the turn of the others again.
pub(super) const HANDSHAKES_MAX: Duration = Duration::from_millis(2);

/// More connections of clients than this are not let in.
pub(super) const CONNECTIONS_MAX: usize = 10_000;

/// More connections of clients than this from one address are not let in.
pub(super) const CONNECTIONS_PER_ADDRESS_MAX: usize = 4_000;

/// New connections of all clients. All who were connected to a node that has died come to the others at once, so the burst is as large as what is taken in; but each costs a handshake
/// of the thread that serves everybody.
pub(super) const NEW_CONNECTIONS: Pace = Pace { burst: 10_000, every: Duration::from_micros(500) };

/// New connections from one address.
pub(super) const NEW_CONNECTIONS_PER_ADDRESS: Pace = Pace { burst: 4_000, every: Duration::from_millis(2) };

/// Bad tokens from one address: so many, and then nobody new is let in from there for so long after each. Whoever shares the address waits, too, but never for longer than that.
pub(super) const REFUSED_LOGINS: Pace = Pace { burst: 20, every: Duration::from_secs(1) };

/// So many addresses are remembered for the limits above, besides those from where somebody is connected.
pub(super) const ADDRESSES_REMEMBERED_MAX: usize = 20_000;

/// Connections that have not said who they are. One more, and the oldest of them is ended: so nobody keeps others out by saying nothing (C87).
pub(super) const STRANGERS_MAX: usize = 1_000;

/// So many of those who are not let in are told why, in each [`SENT_AWAY_WITHIN`]: it takes a handshake to tell them. The others are cut off without a word.
pub(super) const SENT_AWAY_MAX: usize = 64;

/// And that may take so long.
pub(super) const SENT_AWAY_WITHIN: Duration = Duration::from_secs(1);

/// Descriptors that are the node's own, whoever comes: the log's files, the lines to the others and those who knock there. As many as are left are clients', or the next segment could
/// not be made for their sake. Of few it takes a half.
const DESCRIPTORS_RESERVED: u64 = 512;

/// How many clients are let in: as many as the limits above say, or where the process may have fewer descriptors, fewer in proportion.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Room {
    pub(super) connections: usize,
    pub(super) per_address: usize,
    pub(super) strangers: usize,
}

impl Room {
    pub(super) const FULL: Room =
        Room { connections: CONNECTIONS_MAX, per_address: CONNECTIONS_PER_ADDRESS_MAX, strangers: STRANGERS_MAX };

    /// With so many descriptors; no limit is `None`.
    pub(super) fn of(descriptors: Option<u64>) -> Room {
        let left = descriptors.map_or(u64::MAX, |it| it - DESCRIPTORS_RESERVED.min(it / 2));
        let connections = usize::try_from(left).unwrap_or(usize::MAX).min(CONNECTIONS_MAX);
        let part = |of: usize| (of * connections / CONNECTIONS_MAX).max(1);
        Room { connections, per_address: part(CONNECTIONS_PER_ADDRESS_MAX), strangers: part(STRANGERS_MAX) }
    }
}

/// Certificates and tokens are looked at so often: what is withdrawn is so within this time (C96).
pub(super) const FILES_LOOKED_AT: Duration = Duration::from_millis(500);

const _: () = assert!(CONNECTIONS_PER_ADDRESS_MAX < CONNECTIONS_MAX && STRANGERS_MAX < CONNECTIONS_PER_ADDRESS_MAX);
const _: () = assert!(ADDRESSES_REMEMBERED_MAX > CONNECTIONS_MAX, "or those who are in fill it");

/// A node that closes waits so many election timeouts for a successor, and for what is in flight.
pub(super) const TIMEOUTS_TO_CLOSE: u32 = 20;

/// What a node is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// The cluster's name: nodes of others are refused, and so are their directories.
    pub cluster: String,
    /// This node.
    pub me: NodeId,
    /// Where it keeps what it must not forget. Made if it is not there.
    pub directory: PathBuf,
    /// Host and port for the other members. Port 0 takes any.
    pub listen: String,
    /// Host and port for clients. Port 0 takes any; without it, the node serves through its [`Handle`](super::Handle) alone.
    pub clients: Option<String>,
    /// Who is let in there. On loopback this may be anybody.
    pub admission: Admission,
    /// Where the other members reach it, if that is not the address on which it listens.
    pub peer_address: Option<String>,
    /// Where clients reach it, if that is not the address on which it listens to them.
    pub client_address: Option<String>,
    /// The other members and where they are. Once there is a cluster that knows better, that counts (members.rs): of a newcomer's, one that answers is enough.
    pub peers: Vec<Peer>,
    /// What an empty directory means.
    pub beginning: Beginning,
    /// Who is let in by the others' port.
    pub security: Security,
    /// How fast it is, and how much it takes in. The same on all nodes.
    pub settings: Settings,
    /// How the log is kept.
    pub log: Options,
    /// Where spans of what it does are sent. Whoever starts a node closes them after its end.
    pub traces: Traces,
}

/// What a node with an empty directory is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Beginning {
    /// A founder: the cluster begins with this node and its peers, all of which vote. All founders must be told the same.
    Founds,
    /// A newcomer: the cluster is there, and will be told to add this node.
    Joins,
}

impl Config {
    /// A cluster of one, on loopback.
    pub fn alone(directory: impl Into<PathBuf>) -> Config {
        Config {
            cluster: "incumbent".to_owned(),
            me: NodeId(1),
            directory: directory.into(),
            listen: "127.0.0.1:0".to_owned(),
            clients: None,
            admission: Admission::default(),
            peer_address: None,
            client_address: None,
            peers: Vec::new(),
            beginning: Beginning::Founds,
            security: Security::Open,
            settings: Config::lan(),
            log: Options::default(),
            traces: Traces::off(),
        }
    }

    /// [`Settings::lan`], with room for the longest request that a store takes.
    pub fn lan() -> Settings {
        Settings { payload_bytes_max: PAYLOAD_BYTES_MAX, ..Settings::lan() }
    }

    /// Nodes that have the same log would all save a snapshot at the same entry, and be slow together: each a little later than the one before.
    pub(super) fn apart(&self) -> Settings {
        let later = self.settings.snapshot_entries / SNAPSHOTS_APART * u64::from(self.me.0 % SNAPSHOTS_APART as u32);
        Settings { snapshot_entries: self.settings.snapshot_entries + later, ..self.settings.clone() }
    }

    /// What must be equal on all members, for people.
    pub(super) fn terms(&self) -> String {
        let Settings { tick, heartbeat_ticks, election_ticks, payload_bytes_max, reads, .. } = &self.settings;
        format!(
            "service, heartbeats every {:?}, elections after {:?}, requests up to {payload_bytes_max} bytes, reads by {reads:?}",
            *tick * *heartbeat_ticks,
            *tick * *election_ticks
        )
    }

    /// The longest entry there can be.
    pub(super) fn entry_bytes_max(&self) -> usize {
        self.settings.payload_bytes_max.max(self.settings.entry_bytes_max).saturating_add(LETTER_HEAD_MAX)
    }

    /// Refuses what cannot work and is not refused elsewhere.
    pub(super) fn check(&self) -> Result<(), NotStarted> {
        check_name(&self.cluster).map_err(NotStarted::Config)?;
        if self.peers.iter().any(|it| it.id == self.me) {
            return Err(NotStarted::Config(format!("node {} is named as its own peer: name the others only", self.me)));
        }
        let own = self.peer_address.as_ref().unwrap_or(&self.listen);
        for (at, Peer { id, address }) in self.peers.iter().enumerate() {
            let before = &self.peers[..at];
            if before.iter().any(|it| it.id == *id) {
                return Err(NotStarted::Config(format!("node {id} is named twice: give each node its own number")));
            }
            let there = before.iter().find(|it| it.address == *address).map(|it| it.id);
            if let Some(other) = there.or((address == own).then_some(self.me)) {
                return Err(NotStarted::Config(format!(
                    "node {id} and node {other} are both at {address}: correct the list of peers"
                )));
            }
        }
        let Settings { payload_bytes_max, entry_bytes_max, message_bytes_max, piece_bytes, .. } = self.settings;
        let longest = payload_bytes_max.max(entry_bytes_max).max(message_bytes_max);
        let longest = longest.max(usize::try_from(piece_bytes).unwrap_or(usize::MAX)).saturating_add(LETTER_HEAD_MAX);
        if longest > FREIGHT_MAX {
            return Err(NotStarted::Config(format!(
                "letters of up to {longest} bytes do not fit a line, which takes {FREIGHT_MAX}: lower the limits of payloads, entries, messages or pieces"
            )));
        }
        Ok(())
    }
}

/// The name stands in paths, in URLs and in certificates.
pub(super) fn check_name(cluster: &str) -> Result<(), String> {
    if cluster.is_empty() || cluster.contains(|it: char| it == '/' || it.is_whitespace() || it.is_control()) {
        return Err(format!("{cluster:?} is no name of a cluster: give it one without slashes and spaces"));
    }
    Ok(())
}

/// Why a node does not start. Each says what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotStarted {
    /// It was told what cannot be.
    Config(String),
    /// Its directory cannot be used.
    Directory(Refused),
    /// What the directory holds cannot be a replica's.
    Log(BadStart),
    /// Its snapshot cannot be read.
    Snapshot(String),
    /// The members are none.
    Members(BadRoll),
    /// It cannot speak with the others.
    Lines(String),
    /// It cannot listen to clients.
    Clients(String),
    /// It would listen to anybody on the network, without TLS or tokens.
    Exposed(String),
    /// The system gives it no thread.
    System(String),
}

impl fmt::Display for NotStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotStarted::Config(what) => f.write_str(what),
            NotStarted::Directory(refused) => refused.fmt(f),
            NotStarted::Log(BadStart::UnknownKind(index)) => {
                write!(f, "entry {index} of the log was written by a later release: start that one")
            }
            NotStarted::Log(bad) => write!(
                f,
                "the log does not fit together ({bad:?}): remove this node from the cluster and add it under a new id with an empty directory"
            ),
            NotStarted::Snapshot(why) => write!(
                f,
                "the snapshot cannot be read: {why}; bring the file back, or remove this node from the cluster and add it under a new id with an empty directory"
            ),
            NotStarted::Members(bad) => write!(f, "these members make no cluster ({bad:?}): correct the list of peers"),
            NotStarted::Lines(why) | NotStarted::Clients(why) | NotStarted::Exposed(why) => f.write_str(why),
            NotStarted::System(why) => write!(f, "the system refuses: {why}"),
        }
    }
}

impl std::error::Error for NotStarted {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_few_descriptors_fewer_clients_are_let_in_and_the_node_keeps_its_own() {
        assert_eq!(Room::of(None), Room::FULL);
        assert_eq!(Room::of(Some(65_536)), Room::FULL);
        for descriptors in [1, 2, 64, 256, 1_000, 1_024, 4_096, 10_000] {
            let Room { connections, per_address, strangers } = Room::of(Some(descriptors));
            let own = descriptors - connections as u64;
            assert!(own >= DESCRIPTORS_RESERVED.min(descriptors / 2), "{descriptors}: {own}");
            assert!(descriptors < 64 || strangers < per_address && per_address < connections, "{descriptors}");
        }
    }

    #[test]
    fn nodes_and_places_that_are_named_twice_and_names_that_are_paths_are_refused() {
        let told = |peers: &[(u32, &str)]| Config {
            listen: "h:1".to_owned(),
            peers: peers.iter().map(|(id, address)| Peer { id: NodeId(*id), address: (*address).to_owned() }).collect(),
            ..Config::alone("/nowhere")
        };
        let why = |config: Config| config.check().expect_err("refused").to_string();
        assert_eq!(told(&[(2, "h:2"), (3, "h:3")]).check(), Ok(()));
        assert!(why(told(&[(2, "h:2"), (3, "h:3"), (2, "h:4")])).contains("node 2 is named twice"));
        assert!(why(told(&[(2, "h:2"), (3, "h:2")])).contains("node 3 and node 2 are both at h:2"));
        assert!(why(told(&[(2, "h:1")])).contains("node 2 and node 1 are both at h:1"));
        for cluster in ["a/b", "", "a b", "a\n"] {
            assert!(why(Config { cluster: cluster.to_owned(), ..told(&[]) }).contains("no name of a cluster"), "{cluster:?}");
        }
    }
}
