//! The whole store in pieces, and its digest.
//!
//! A snapshot is a stream of records: the head, then sessions, clients, elections with their lines, keys, delays, events. A piece holds as many as fit in [`PIECE_MAX`],
//! so nobody needs the snapshot in memory beside the store. Pieces are numbered, and the last holds the digest of all: one that is missing, repeated, or from another snapshot is found.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use prost::Message;
use prost::bytes::Bytes;

use crate::clients::{Client, Kept};
use crate::command::Command;
use crate::election::{Board, Candidate};
use crate::elections::records::Records;
use crate::elections::{Election, INCARNATION_MAX, TERM_MAX};
use crate::encoding::{Damaged, open, seal};
use crate::event::Event;
use crate::journal::Journal;
use crate::keys::item::Item;
use crate::limits::Limits;
use crate::sessions::{Ending, Session};
use crate::store::Store;
use crate::time::Time;

/// A piece has so many bytes at most, or one record.
pub const PIECE_MAX: usize = 64 * 1024;

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Piece {
    /// From 0.
    #[prost(uint64, tag = "1")]
    number: u64,
    /// Each a [`Record`], encoded once.
    #[prost(bytes = "vec", repeated, tag = "2")]
    records: Vec<Vec<u8>>,
    /// Of all records; in the last piece.
    #[prost(fixed64, optional, tag = "3")]
    digest: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Record {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6, 7, 8")]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, Eq, prost::Oneof)]
enum Kind {
    #[prost(message, tag = "1")]
    Head(Head),
    #[prost(message, tag = "2")]
    Session(SavedSession),
    #[prost(message, tag = "3")]
    Client(SavedClient),
    /// Without its line.
    #[prost(message, tag = "4")]
    Election(Board),
    /// One in the line of the election before.
    #[prost(message, tag = "5")]
    Candidate(Candidate),
    #[prost(message, tag = "6")]
    Key(Item),
    #[prost(message, tag = "7")]
    Delay(SavedDelay),
    #[prost(message, tag = "8")]
    Event(Event),
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Head {
    #[prost(uint64, tag = "1")]
    revision: u64,
    #[prost(uint64, tag = "2")]
    now_ns: u64,
    #[prost(uint32, tag = "3")]
    incarnation: u32,
    #[prost(uint64, tag = "4")]
    oldest: u64,
    #[prost(uint64, tag = "5")]
    compacted: u64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct SavedSession {
    #[prost(uint64, tag = "1")]
    session: u64,
    #[prost(uint64, tag = "2")]
    ttl_ms: u64,
    #[prost(uint64, tag = "3")]
    deadline_ns: u64,
    #[prost(uint64, tag = "4")]
    lock_delay_ms: u64,
    #[prost(string, tag = "5")]
    owner: String,
    #[prost(bool, tag = "6")]
    ends_with_connection: bool,
    #[prost(string, optional, tag = "7")]
    ending: Option<String>,
    #[prost(bool, tag = "8")]
    unclean: bool,
    #[prost(uint64, tag = "9")]
    binding: u64,
    #[prost(uint64, tag = "10")]
    opened: u64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct SavedClient {
    #[prost(uint64, tag = "1")]
    client: u64,
    #[prost(uint64, tag = "2")]
    used: u64,
    #[prost(uint64, tag = "3")]
    floor: u64,
    #[prost(message, repeated, tag = "4")]
    outcomes: Vec<SavedOutcome>,
    #[prost(string, tag = "5")]
    guest: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct SavedOutcome {
    #[prost(uint64, tag = "1")]
    sequence: u64,
    #[prost(bytes = "vec", tag = "2")]
    outcome: Vec<u8>,
    #[prost(fixed64, tag = "3")]
    command: u64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct SavedDelay {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(uint64, tag = "2")]
    until_ns: u64,
}

impl Store {
    /// The store in pieces, each of them whole in itself: at most [`PIECE_MAX`] bytes, or one record. The same store makes the same pieces.
    pub fn save(&self) -> impl Iterator<Item = Vec<u8>> {
        let mut records = self.saved().map(|it| it.encode_to_vec()).peekable();
        let mut digest = Digest::new();
        let mut number = 0;
        let mut complete = false;
        core::iter::from_fn(move || {
            if complete {
                return None;
            }
            let mut piece = Piece { number, records: Vec::new(), digest: None };
            number += 1;
            let mut left = PIECE_MAX - 64;
            while let Some(record) = records.peek() {
                let len = record.len() + 8;
                if len > left && !piece.records.is_empty() {
                    break;
                }
                left = left.saturating_sub(len);
                let record = records.next().expect("it was just seen");
                digest.take(&record);
                piece.records.push(record);
            }
            if records.peek().is_none() {
                complete = true;
                piece.digest = Some(digest.value());
            }
            Some(seal(&piece))
        })
    }

    /// The store that was saved.
    pub fn load(pieces: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<Store, Damaged> {
        Store::load_with_limits(pieces, Limits::STANDARD)
    }

    /// The same, with limits of its own.
    pub fn load_with_limits(pieces: impl IntoIterator<Item = impl AsRef<[u8]>>, limits: Limits) -> Result<Store, Damaged> {
        let mut store = Store::with_limits(0, limits);
        let mut loading = Loading::default();
        let mut digest = Digest::new();
        let mut complete = false;
        for (number, bytes) in (0..).zip(pieces) {
            let piece: Piece = open(bytes.as_ref())?;
            if complete || piece.number != number {
                return Err(Damaged::Content("a piece of the snapshot is missing, or one too many"));
            }
            for bytes in piece.records {
                digest.take(&bytes);
                let record = Record::decode(&bytes[..]).map_err(|_| Damaged::Content("a record that cannot be read"))?;
                store.restore(record, &mut loading)?;
            }
            if let Some(expected) = piece.digest {
                complete = true;
                if expected != digest.value() {
                    return Err(Damaged::Content("the pieces of the snapshot do not belong together"));
                }
            }
        }
        if !complete {
            return Err(Damaged::Content("the end of the snapshot is missing"));
        }
        store.put_election_back(&mut loading);
        // What was written differs from what was read only if it was never a store: one candidate in two places, for example.
        if !loading.has_head || store.digest() != digest.value() {
            return Err(Damaged::Content("the snapshot is not one of a store"));
        }
        Ok(store)
    }

    /// A number that is equal for equal stores, and most likely for no others (S4). Reads all of the store.
    pub fn digest(&self) -> u64 {
        let (mut digest, mut bytes) = (Digest::new(), Vec::new());
        for record in self.saved() {
            bytes.clear();
            record.encode(&mut bytes).expect("a vector grows");
            digest.take(&bytes);
        }
        digest.value()
    }

    fn saved(&self) -> impl Iterator<Item = Record> {
        let head = Head {
            revision: self.journal.revision(),
            now_ns: self.now.as_nanos(),
            incarnation: u32::from(self.incarnation),
            oldest: self.journal.oldest(),
            compacted: self.journal.compacted(),
        };
        let sessions = self.sessions.iter().map(|(id, session)| Kind::Session(saved_session(id, session)));
        let clients = self.clients.iter().map(|(id, client)| Kind::Client(saved_client(id, client)));
        let elections = self.elections.iter().flat_map(|(name, election)| {
            let board = Board { waiting: 0, ..election.board(name, 0) };
            core::iter::once(Kind::Election(board)).chain(election.line.iter().cloned().map(Kind::Candidate))
        });
        let keys = self.keys.iter().cloned().map(Kind::Key);
        let delays = self.keys.delays().map(|(key, until)| SavedDelay { key: key.clone(), until_ns: until.as_nanos() });
        let events = self.journal.events().map(|it| Kind::Event(Event::clone(it)));
        core::iter::once(Kind::Head(head))
            .chain(sessions)
            .chain(clients)
            .chain(elections)
            .chain(keys)
            .chain(delays.map(Kind::Delay))
            .chain(events)
            .map(|kind| Record { kind: Some(kind) })
    }

    fn restore(&mut self, record: Record, loading: &mut Loading) -> Result<(), Damaged> {
        match record.kind.ok_or(Damaged::Content("a record that this version does not know"))? {
            Kind::Head(head) => {
                if head.revision > TERM_MAX || head.oldest > head.revision + 1 || head.compacted > head.revision {
                    return Err(Damaged::Content("revisions that do not fit"));
                }
                self.incarnation = narrow(head.incarnation)?;
                self.now = Time::from_nanos(head.now_ns);
                self.journal = Journal::restored(head.revision, head.oldest, head.compacted);
                loading.has_head = true;
            }
            Kind::Session(saved) => {
                let (unclean, ending) = (saved.unclean, saved.ending);
                let session = Session {
                    deadline: Time::from_nanos(saved.deadline_ns),
                    ttl_ms: saved.ttl_ms,
                    lock_delay_ms: saved.lock_delay_ms,
                    owner: saved.owner.into(),
                    ends_with_connection: saved.ends_with_connection,
                    binding: saved.binding,
                    opened: saved.opened,
                    ending: ending.map(|reason| Ending { reason: reason.into(), unclean }),
                    candidacies: 0,
                };
                self.sessions.restore(saved.session, session);
            }
            Kind::Client(saved) => {
                let kept = |it: SavedOutcome| (it.sequence, Kept { outcome: it.outcome.into(), command: it.command });
                let outcomes = saved.outcomes.into_iter().map(kept).collect();
                self.clients
                    .restore(saved.client, Client { guest: saved.guest.into(), used: saved.used, floor: saved.floor, outcomes });
            }
            Kind::Election(board) => {
                self.put_election_back(loading);
                loading.election = Some(self.restored_election(board)?);
            }
            Kind::Candidate(candidate) => {
                let (name, election) = loading.election.as_mut().ok_or(Damaged::Content("a candidate without an election"))?;
                self.sessions.attach_candidate(candidate.session, name, &candidate.identity, candidate.kept_bytes());
                election.line.stand(candidate);
            }
            Kind::Key(item) => {
                if item.session != 0 {
                    self.sessions.attach_key(item.session, &item.key);
                }
                let key = item.key.clone();
                self.keys.replace(&key, Some(item));
            }
            Kind::Delay(saved) => self.keys.delay(&saved.key, Time::from_nanos(saved.until_ns)),
            Kind::Event(event) => self.journal.restore(event),
        }
        Ok(())
    }

    fn restored_election(&mut self, board: Board) -> Result<(Arc<str>, Election), Damaged> {
        let name: Arc<str> = board.election.into();
        for holder in &board.leaders {
            self.sessions.attach_candidate(holder.session, &name, &holder.identity, holder.kept_bytes());
        }
        let mut election = Election {
            seats: board.seats,
            incarnation: narrow(board.incarnation)?,
            holders: board.leaders,
            reservations: board.reservations,
            ..Election::default()
        };
        let records = Records::restored(board.past, board.notes, board.completions);
        if !records.is_empty() {
            election.records = Some(Box::new(records));
        }
        Ok((name, election))
    }

    /// The election whose line is complete now.
    fn put_election_back(&mut self, loading: &mut Loading) {
        if let Some((name, election)) = loading.election.take() {
            self.elections.begin(name, election);
        }
    }
}

/// What is known while a snapshot is read.
#[derive(Default)]
struct Loading {
    has_head: bool,
    election: Option<(Arc<str>, Election)>,
}

fn narrow(incarnation: u32) -> Result<u16, Damaged> {
    let narrow = u16::try_from(incarnation).ok().filter(|it| *it <= INCARNATION_MAX);
    narrow.ok_or(Damaged::Content("an incarnation that does not fit"))
}

fn saved_session(id: u64, session: &Session) -> SavedSession {
    SavedSession {
        session: id,
        ttl_ms: session.ttl_ms,
        deadline_ns: session.deadline.as_nanos(),
        lock_delay_ms: session.lock_delay_ms,
        owner: session.owner.as_ref().into(),
        ends_with_connection: session.ends_with_connection,
        ending: session.ending.as_ref().map(|it| it.reason.as_ref().into()),
        unclean: session.ending.as_ref().is_some_and(|it| it.unclean),
        binding: session.binding,
        opened: session.opened,
    }
}

fn saved_client(id: u64, client: &Client) -> SavedClient {
    let saved = |(sequence, kept): (&u64, &Kept)| SavedOutcome {
        sequence: *sequence,
        outcome: kept.outcome.to_vec(),
        command: kept.command,
    };
    let outcomes = client.outcomes.iter().map(saved).collect();
    SavedClient { client: id, used: client.used, floor: client.floor, outcomes, guest: client.guest.as_ref().into() }
}

/// Of records as they are written, one after the other: eight bytes at a time, each multiplied into all that came before.
struct Digest(u64);

/// A number that is equal for equal commands, and most likely for no others; never 0.
pub(crate) fn digest_of(command: &Command) -> u64 {
    let (mut digest, mut bytes) = (Digest::new(), Vec::with_capacity(command.encoded_len()));
    command.encode(&mut bytes);
    digest.take(&bytes);
    digest.value().max(1)
}

impl Digest {
    fn new() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }

    fn take(&mut self, record: &[u8]) {
        let (words, rest) = record.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let words = words.iter().chain([&last]).map(|it| u64::from_le_bytes(*it));
        // With its length, or where one record ends and the next begins would not matter.
        for word in words.chain([record.len() as u64]) {
            self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.0 ^= self.0 >> 32;
        }
    }

    fn value(&self) -> u64 {
        self.0
    }
}
