//! The server's half of the stream: one connection of a client, and what it is served by.
//!
//! [`serve`] reads what a client asks and hands it to a [`Service`]; an answer is a debt that goes out whenever it is paid ([`Owed`]), in any order, many in one write. Everything that a
//! client can make a server hold is bounded by [`Bounds`]: who asks more than it reads is not read any further, and who reads nothing is cut off; so is whoever keeps most waiting where too much waits for all ([`Backlog`]). What a watch has not been told yet stays
//! in the store's own journal until the connection has room for it, so a slow reader costs nobody anything (C69). It knows neither a log nor other nodes, and spawns nothing.

mod backlog;
mod belfry;
mod farewell;
mod outbox;
mod telling;
mod weight;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use incumbent_store::command::Request;
use incumbent_store::limits::Limits;
use incumbent_store::query::ReadEvents;
use incumbent_store::refusal::Refusal;
use incumbent_store::watch::{CandidateTopic, Interest, Topic};
use prost::{DecodeError, Message};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::task::coop::consume_budget;
use tokio::time::timeout;

use crate::administration::{Administer, Administration};
use crate::frame::{self, BadFrame, GREETING_MAX, Inbox, KEPT_MAX, REQUEST_MAX};
use crate::message::{
    Asked, Hello, Inquiry, Objection, Pong, Sessions, ToClient, ToServer, Told, TurnedAway, VERSION, VERSION_OLDEST, WatchFrom,
    Welcome,
};

pub use backlog::{BACKLOG_BYTES_MAX, Backlog};
pub use belfry::Belfry;
use farewell::Batch;
pub use outbox::{Bell, Binding, Charge, Lost, Owed, Reading};
use outbox::{Kind, Outbox};
use telling::Teller;

/// What a connection is served by: a node of the service, or whoever passes on to it what is asked.
///
/// No method waits: what takes longer is answered through a value that it was given, from whichever thread. What a connection asks is to be begun in its order.
pub trait Service {
    /// What a client that was let in may do.
    type Guest;

    /// How things stand here.
    fn standing(&self) -> Standing;

    /// Whether the client is let in, and as whom.
    ///
    /// # Errors
    /// Why not, for a program and for people.
    fn admit(&self, hello: &Hello) -> Result<Self::Guest, (Objection, String)>;

    /// Carries out a command, now or later. A client's number in it makes it happen once, however often it comes.
    fn submit(&self, guest: &Self::Guest, request: Request, owed: Owed);

    /// Answers a question, now or later.
    fn ask(&self, guest: &Self::Guest, inquiry: Inquiry, owed: Owed);

    /// From now on, rings the bell with the revision of each event that is of interest. Answers a number to end it by. The charge is dropped as soon as that is done, as it is in
    /// [`unwatch`](Self::unwatch).
    ///
    /// # Errors
    /// If the client may not hear of it.
    fn watch(&self, guest: &Self::Guest, interest: &Interest, bell: Bell, charge: Charge) -> Result<u64, Refusal>;

    /// Does not ring the bell of [`watch`](Self::watch) any more.
    fn unwatch(&self, watcher: u64, charge: Charge);

    /// Reads what has happened, as far as this node knows, now or later. A watch that was begun before is in force by then. An event can be read, and its bell has been rung, before
    /// [`Standing::revision`] says so.
    fn events(&self, asked: ReadEvents, reading: Reading);

    /// A connection wants to speak for sessions: [`Binding`] says which, and takes the answer, now or later.
    fn bind(&self, guest: &Self::Guest, binding: Binding);

    /// Does what an operator wants, now or later.
    fn administer(&self, guest: &Self::Guest, administration: Administration, owed: Owed);

    /// The client's machine has closed a connection without a goodbye: its process has died, most likely. Those of its sessions that wished so end, unless they have a later binding: by
    /// [`EndSession`](incumbent_store::command::EndSession) with its number. Connections that end in any other way, by silence or because they were cut off here, are not told: their sessions
    /// have their deadlines.
    fn lost(&self, guest: &Self::Guest, sessions: Vec<Lost>);

    /// Until a client that was let in is to go, whatever it is doing; and why, for a program and for people.
    fn dismissed(&self, _guest: &Self::Guest) -> impl Future<Output = (Objection, String)> + Send {
        std::future::pending()
    }
}

/// How things stand at a node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// The node's number.
    pub node: u64,
    /// Its cluster.
    pub cluster: String,
    /// Whether it leads.
    pub leads: bool,
    /// Where the node that leads answers clients; empty if that is not known.
    pub leader: String,
    /// Whether nobody is known to lead.
    pub leaderless: bool,
    /// Where the nodes answer clients.
    pub members: Vec<String>,
    /// The revision up to which events are here and their bells rung.
    pub revision: u64,
}

/// How much of a server one connection may take.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// A client that has not said who it is by then is cut off (C87).
    pub handshake: Duration,
    /// So many questions are under way at once; further ones wait in the client's own buffers.
    pub questions_max: usize,
    /// So many bytes of questions, and one question more.
    pub questions_bytes_max: usize,
    /// While so many bytes wait to be sent, no further questions are read, and those that were are answered by no more than a word.
    pub answers_bytes_max: usize,
    /// What waits to be sent on all connections that share this.
    pub backlog: Arc<Backlog>,
    /// So many watches.
    pub watches_max: usize,
    /// So many sessions may be bound.
    pub sessions_max: usize,
    /// A client that takes not one byte of what waits for it for so long is cut off.
    pub stall: Duration,
    /// A client of which nothing is heard for so long is cut off. It pings several times in that time.
    pub silence: Duration,
}

/// [`Bounds::questions_max`], by default: no less than a client has under way.
pub const QUESTIONS_MAX: usize = 16 * 1024;
/// [`Bounds::questions_bytes_max`], by default: no less than a client has under way.
pub const QUESTIONS_BYTES_MAX: usize = 32 * 1024 * 1024;

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            handshake: Duration::from_secs(5),
            questions_max: QUESTIONS_MAX,
            questions_bytes_max: QUESTIONS_BYTES_MAX,
            answers_bytes_max: 4 * 1024 * 1024,
            backlog: Backlog::new(BACKLOG_BYTES_MAX),
            watches_max: 100_000,
            sessions_max: 100_000,
            stall: Duration::from_secs(10),
            silence: Duration::from_secs(20),
        }
    }
}

/// Why a connection has ended.
#[derive(Debug)]
pub enum Closed {
    /// The client said goodbye.
    Goodbye,
    /// The client's machine closed it, in good order or not.
    ByClient,
    /// The client was turned away.
    TurnedAway(String),
    /// It had been let in, and is to go.
    Dismissed(Objection, String),
    /// It did not say who it is in time.
    Handshake,
    /// What came is not ours to read.
    BadFrame(BadFrame),
    /// It took nothing of what waited for it.
    Stalled,
    /// It kept more waiting, and for longer, than any other, when too much waited for all.
    Unread,
    /// Nothing was heard of it.
    Silent,
    /// The network failed.
    Broken(io::Error),
}

/// Serves one connection until it ends. `begun` is what has been read from it already, to see that it is for us: the preamble or a part of it, or nothing.
pub async fn serve<S: Service, C: AsyncRead + AsyncWrite>(connection: C, begun: &[u8], service: &S, bounds: &Bounds) -> Closed {
    let (mut reader, mut writer) = tokio::io::split(connection);
    let mut inbox = Inbox::new();
    inbox.room().extend_from_slice(begun);
    let greeting = timeout(bounds.handshake, greet(&mut reader, &mut writer, &mut inbox, service)).await;
    let guest = match greeting.unwrap_or(Err(Closed::Handshake)) {
        Ok(guest) => guest,
        Err(closed) => return closed.say(bounds, reader, writer, Batch::default()).await,
    };
    let (outbox, mut batch) = (Outbox::new(bounds), Batch::default());
    let mut counter = Counter { service, guest: &guest, bounds, outbox: &outbox, goodbye: false };
    let closed = tokio::select! {
        closed = counter.read(&mut reader, &mut inbox) => closed,
        closed = write(&mut writer, &mut batch, &outbox, service, bounds) => closed,
        () = outbox.is_cut_off() => Closed::Unread,
        (objection, why) = service.dismissed(&guest) => Closed::Dismissed(objection, why),
    };
    let closed = match (counter.goodbye, closed) {
        (true, _) => Closed::Goodbye,
        (false, Closed::ByClient) => {
            let lost = outbox.lose();
            if !lost.is_empty() {
                service.lost(&guest, lost);
            }
            Closed::ByClient
        }
        (false, closed) => closed,
    };
    // Nothing is done for it any more.
    drop(counter);
    closed.say(bounds, reader, writer, batch).await
}

/// Finds out who is there, and says who we are.
async fn greet<S: Service, C: AsyncRead + AsyncWrite>(
    reader: &mut ReadHalf<C>,
    writer: &mut WriteHalf<C>,
    inbox: &mut Inbox,
    service: &S,
) -> Result<S::Guest, Closed> {
    while !inbox.take_preamble().map_err(Closed::BadFrame)? {
        fill(reader, inbox).await?;
    }
    let ToServer { id, asked } = loop {
        if let Some(message) = inbox.take(GREETING_MAX).map_err(Closed::BadFrame)? {
            break message;
        }
        fill(reader, inbox).await?;
    };
    let standing = service.standing();
    let admitted = match asked {
        Some(Asked::Hello(hello)) => check(&hello, &standing).and_then(|()| service.admit(&hello)),
        _ => Err((Objection::Other, "say hello first".to_owned())),
    };
    let (answer, result) = match admitted {
        Ok(guest) => {
            let Standing { node, cluster, leads, leader, leaderless: _, members, revision: _ } = standing;
            (Told::Welcome(Welcome { version: VERSION, node, cluster, leads, leader, members }), Ok(guest))
        }
        Err((objection, why)) => {
            let told = TurnedAway { objection: objection.into(), why: why.clone() };
            (Told::TurnedAway(told), Err(Closed::TurnedAway(why)))
        }
    };
    let mut bytes = Vec::new();
    frame::append(&ToClient::new(id, answer), &mut bytes);
    writer.write_all(&bytes).await.map_err(closed_by)?;
    writer.flush().await.map_err(closed_by)?;
    if result.is_err() {
        let _ = writer.shutdown().await;
    }
    result
}

fn check(hello: &Hello, standing: &Standing) -> Result<(), (Objection, String)> {
    if hello.version < VERSION_OLDEST || hello.oldest > VERSION {
        let (theirs, ours) = ((hello.oldest, hello.version), (VERSION_OLDEST, VERSION));
        let why = format!("the client speaks versions {} to {}, this node {} to {}", theirs.0, theirs.1, ours.0, ours.1);
        return Err((Objection::Version, why));
    }
    if !hello.cluster.is_empty() && hello.cluster != standing.cluster {
        return Err((Objection::Cluster, format!("this is cluster {}, not {}", standing.cluster, hello.cluster)));
    }
    Ok(())
}

async fn fill<C: AsyncRead>(reader: &mut ReadHalf<C>, inbox: &mut Inbox) -> Result<(), Closed> {
    match reader.read_buf(inbox.room()).await {
        Ok(0) => Err(Closed::ByClient),
        Ok(_) => Ok(()),
        Err(wrong) => Err(closed_by(wrong)),
    }
}

/// Whether the other machine has closed the connection, or something else is wrong with it.
fn closed_by(wrong: io::Error) -> Closed {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    if matches!(wrong.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe) {
        Closed::ByClient
    } else {
        Closed::Broken(wrong)
    }
}

/// As many as the store takes.
const OPERATIONS_MAX: usize = Limits::STANDARD.operations_max;

/// A message of which nothing matters but its number.
#[derive(Clone, PartialEq, prost::Message)]
struct Numbered {
    #[prost(uint64, tag = "1")]
    id: u64,
}

/// Where a client's questions come in.
struct Counter<'a, S: Service> {
    service: &'a S,
    guest: &'a S::Guest,
    bounds: &'a Bounds,
    outbox: &'a Arc<Outbox>,
    goodbye: bool,
}

impl<S: Service> Counter<'_, S> {
    async fn read<C: AsyncRead>(&mut self, reader: &mut ReadHalf<C>, inbox: &mut Inbox) -> Closed {
        loop {
            loop {
                self.outbox.room(self.bounds).await;
                // Very many small messages come in one read, and others are served by this thread.
                consume_budget().await;
                match inbox.take_bytes(REQUEST_MAX) {
                    Ok(Some(message)) => {
                        if let Err(bad) = self.take(message) {
                            return Closed::BadFrame(bad);
                        }
                    }
                    Ok(None) => break,
                    Err(bad) => return Closed::BadFrame(bad),
                }
            }
            match timeout(self.bounds.silence, fill(reader, inbox)).await {
                Ok(Ok(())) => {}
                Ok(Err(closed)) => return closed,
                Err(_) => return Closed::Silent,
            }
        }
    }

    fn take(&mut self, message: &[u8]) -> Result<(), BadFrame> {
        let unreadable = |wrong: DecodeError| BadFrame::Message(wrong.to_string());
        let operations = weight::operations(message).ok_or_else(|| BadFrame::Message("not a message".to_owned()))?;
        let len = message.len();
        if operations > OPERATIONS_MAX {
            let Numbered { id } = Numbered::decode(message).map_err(unreadable)?;
            let what = "guards and operations in a transaction".to_owned();
            self.outbox.refuse(id, &Refusal::Limit { what, max: OPERATIONS_MAX as u64 });
            return Ok(());
        }
        let ToServer { id, asked } = ToServer::decode(message).map_err(unreadable)?;
        let refuse = |what: &str| self.outbox.refuse(id, &Refusal::Malformed(what.to_owned()));
        match asked {
            None => refuse("a kind of question that this version does not know"),
            Some(Asked::Hello(_)) => refuse("hello was said before"),
            Some(Asked::Submit(request)) => self.service.submit(self.guest, request, self.outbox.owe(id, Kind::Command, len)),
            Some(Asked::Ask(inquiry)) => self.service.ask(self.guest, inquiry, self.outbox.owe(id, Kind::Question, len)),
            Some(Asked::Watch(wanted)) => self.watch(id, wanted, len),
            Some(Asked::Unwatch(watch)) => {
                if let Some(watcher) = self.outbox.forget_watch(watch) {
                    self.service.unwatch(watcher, self.outbox.charge(len));
                }
            }
            Some(Asked::Bind(bound)) => self.bind(id, bound, len),
            Some(Asked::Unbind(unbound)) => self.outbox.unbind(&unbound.sessions),
            Some(Asked::Ping(_)) => {
                // First the revision: what happened up to it has rung its bell, so a watch that has something to tell is seen below.
                let Standing { revision, leader, leads, leaderless, .. } = self.service.standing();
                let told = if self.outbox.has_told() { revision } else { 0 };
                self.outbox.tell(&ToClient::new(id, Told::Pong(Pong { told, leader, leads, leaderless })));
            }
            Some(Asked::Administer(Administer { administration: Some(wanted) })) => {
                self.service.administer(self.guest, wanted, self.outbox.owe(id, Kind::Command, len));
            }
            Some(Asked::Administer(Administer { administration: None })) => {
                refuse("a kind of administration that this version does not know")
            }
            Some(Asked::Goodbye(_)) => {
                self.goodbye = true;
                self.outbox.unbind_all();
            }
        }
        Ok(())
    }

    fn watch(&mut self, id: u64, wanted: WatchFrom, len: usize) {
        let WatchFrom { interest, from, seen } = wanted;
        let interest = interest.unwrap_or(Interest::EVERYTHING);
        if let Err(refusal) = check_lengths(&interest) {
            self.outbox.tell(&ToClient::new(id, Told::WatchEnded(refusal.to_wire())));
            return;
        }
        if self.outbox.watches() >= self.bounds.watches_max || self.outbox.watches_as(id) {
            let max = self.bounds.watches_max as u64;
            let refusal = Refusal::Limit { what: "watches of a connection, each with its own number".to_owned(), max };
            self.outbox.tell(&ToClient::new(id, Told::WatchEnded(refusal.to_wire())));
            return;
        }
        let bell = self.outbox.expect_watch(id, interest.clone());
        match self.service.watch(self.guest, &interest, bell, self.outbox.charge(len)) {
            Ok(watcher) => {
                // Only now: what happened before the bell was there is what this revision shows.
                let from = if from > 0 { from } else { self.service.standing().revision.max(seen).saturating_add(1) };
                self.outbox.begin_watch(id, watcher, from);
            }
            Err(refusal) => {
                self.outbox.forget_watch(id);
                self.outbox.tell(&ToClient::new(id, Told::WatchEnded(refusal.to_wire())));
            }
        }
    }

    fn bind(&mut self, id: u64, wanted: Sessions, len: usize) {
        if self.outbox.bound() + wanted.sessions.len() > self.bounds.sessions_max {
            let max = self.bounds.sessions_max as u64;
            self.outbox.refuse(id, &Refusal::Limit { what: "sessions bound to a connection".to_owned(), max });
            return;
        }
        self.service.bind(self.guest, self.outbox.expect_binding(id, wanted, len));
    }
}

/// What somebody watches is kept for as long as it does: nothing is that can be the name of nothing.
fn check_lengths(interest: &Interest) -> Result<(), Refusal> {
    const LIMITS: Limits = Limits::STANDARD;
    let at_most = |len: usize, max: usize, what: &str| {
        if len <= max { Ok(()) } else { Err(Refusal::Limit { what: format!("bytes in {what}"), max: max as u64 }) }
    };
    let name = |name: &str| at_most(name.len(), LIMITS.name_len_max, "the name of an election");
    match &interest.topic {
        None | Some(Topic::Session(_)) => Ok(()),
        Some(Topic::Keys(span)) => {
            at_most(span.start.len(), LIMITS.key_len_max, "a key")?;
            // Right behind the longest key.
            at_most(span.end.len(), LIMITS.key_len_max + 1, "the end of a span of keys")
        }
        Some(Topic::Election(election) | Topic::ElectionsUnder(election)) => name(election),
        Some(Topic::Candidate(CandidateTopic { election, identity })) => {
            name(election)?;
            at_most(identity.len(), LIMITS.identity_len_max, "an identity")
        }
    }
}

/// However it ends, nobody rings the bells of a connection that is gone.
impl<S: Service> Drop for Counter<'_, S> {
    fn drop(&mut self) {
        for watcher in self.outbox.close() {
            self.service.unwatch(watcher, self.outbox.charge(0));
        }
    }
}

/// Sends what waits, all of it at once; and when there is room, what the watches have to tell.
async fn write<S: Service, C: AsyncWrite>(
    writer: &mut WriteHalf<C>,
    batch: &mut Batch,
    outbox: &Arc<Outbox>,
    service: &S,
    bounds: &Bounds,
) -> Closed {
    let mut teller = Teller::new(outbox);
    loop {
        batch.sent = 0;
        batch.bytes.clear();
        if batch.bytes.capacity() > KEPT_MAX {
            batch.bytes = Vec::new();
        }
        outbox.take(&mut batch.bytes);
        let taken = batch.bytes.len();
        teller.tell(service, &mut batch.bytes);
        outbox.add(batch.bytes.len() - taken);
        if batch.bytes.is_empty() {
            outbox.more().await;
            continue;
        }
        while batch.sent < batch.bytes.len() {
            match timeout(bounds.stall, writer.write(&batch.bytes[batch.sent..])).await {
                Ok(Ok(0)) => return Closed::ByClient,
                Ok(Ok(sent)) => batch.sent += sent,
                Ok(Err(wrong)) => return closed_by(wrong),
                Err(_) => return Closed::Stalled,
            }
        }
        match timeout(bounds.stall, writer.flush()).await {
            Ok(Ok(())) => {}
            Ok(Err(wrong)) => return closed_by(wrong),
            Err(_) => return Closed::Stalled,
        }
        outbox.sent(batch.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use incumbent_store::keys::item::Span;

    use super::*;
    use crate::frame::{ANSWER_MAX, PREAMBLE};
    use crate::message::Ping;

    /// A node that does nothing that it is asked, yet.
    #[derive(Default)]
    struct Busy {
        charges: RefCell<Vec<Charge>>,
        /// So often it was asked how things stand.
        looked_at: Cell<u32>,
    }

    impl Service for Busy {
        type Guest = ();
        fn standing(&self) -> Standing {
            self.looked_at.set(self.looked_at.get() + 1);
            Standing::default()
        }
        fn admit(&self, _: &Hello) -> Result<(), (Objection, String)> {
            Ok(())
        }
        fn submit(&self, (): &(), _: Request, _: Owed) {}
        fn ask(&self, (): &(), _: Inquiry, _: Owed) {}
        fn watch(&self, (): &(), _: &Interest, _: Bell, charge: Charge) -> Result<u64, Refusal> {
            self.charges.borrow_mut().push(charge);
            Ok(1)
        }
        fn unwatch(&self, _: u64, charge: Charge) {
            self.charges.borrow_mut().push(charge);
        }
        fn events(&self, _: ReadEvents, _: Reading) {}
        fn bind(&self, (): &(), _: Binding) {}
        fn administer(&self, (): &(), _: Administration, _: Owed) {}
        fn lost(&self, (): &(), _: Vec<Lost>) {}
    }

    #[tokio::test(start_paused = true)]
    async fn who_begins_and_ends_watches_faster_than_the_node_is_not_read_any_further() {
        let (busy, outbox) = (Busy::default(), Outbox::new(&Bounds::default()));
        let bounds = Bounds { questions_max: 10, ..Bounds::default() };
        let mut counter = Counter { service: &busy, guest: &(), bounds: &bounds, outbox: &outbox, goodbye: false };
        let may_go_on = || async { timeout(Duration::from_secs(1), outbox.room(&bounds)).await.is_ok() };
        for id in 1..=5 {
            assert!(may_go_on().await, "{id}");
            for asked in [Asked::Watch(WatchFrom::default()), Asked::Unwatch(id)] {
                counter.take(&ToServer::new(id, asked).encode_to_vec()).expect("good");
            }
        }
        assert_eq!((outbox.watches(), busy.charges.borrow().len()), (0, 10));
        assert!(!may_go_on().await, "nothing of it is done");
        busy.charges.borrow_mut().pop();
        assert!(may_go_on().await);
        busy.charges.borrow_mut().clear();
        // A question that is not done counts as ever.
        let _owed = outbox.owe(7, Kind::Question, bounds.questions_bytes_max);
        assert!(!may_go_on().await);
    }

    #[tokio::test(start_paused = true)]
    async fn very_many_messages_in_one_read_leave_others_their_turns() {
        const PINGS: u32 = 2_000;
        let mut bytes = PREAMBLE.to_vec();
        frame::append(&ToServer::new(1, Asked::Hello(Hello { version: 1, oldest: 1, ..Hello::default() })), &mut bytes);
        for id in 0..PINGS {
            frame::append(&ToServer::new(id.into(), Asked::Ping(Ping {})), &mut bytes);
        }
        let (busy, bounds) = (Busy::default(), Bounds::default());
        let (_ours, theirs) = tokio::io::duplex(1024 * 1024);
        let others = async {
            let (mut before, mut most) = (0, 0);
            while before < PINGS {
                tokio::task::yield_now().await;
                most = most.max(busy.looked_at.get() - before);
                before = busy.looked_at.get();
            }
            most
        };
        let most = tokio::select! {
            closed = serve(theirs, &bytes, &busy, &bounds) => panic!("{closed:?}"),
            most = others => most,
        };
        assert!(most < PINGS / 4, "{most} at once");
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_nothing_when_too_much_waits_for_all_is_cut_off_at_once() {
        let mut bytes = PREAMBLE.to_vec();
        frame::append(&ToServer::new(1, Asked::Hello(Hello { version: 1, oldest: 1, ..Hello::default() })), &mut bytes);
        for id in 0..100 {
            frame::append(&ToServer::new(id, Asked::Ping(Ping {})), &mut bytes);
        }
        let bounds = Bounds { backlog: Backlog::new(500), ..Bounds::default() };
        let (_ours, theirs) = tokio::io::duplex(64);
        let began = tokio::time::Instant::now();
        let closed = timeout(bounds.stall / 2, serve(theirs, &bytes, &Busy::default(), &bounds)).await;
        assert!(matches!(closed, Ok(Closed::Unread)), "{closed:?}");
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn whose_connection_is_ended_is_told_why_behind_all_that_it_was_being_told() {
        let mut hello = PREAMBLE.to_vec();
        frame::append(&ToServer::new(1, Asked::Hello(Hello { version: 1, oldest: 1, ..Hello::default() })), &mut hello);
        let mut pings = hello.clone();
        for id in 0..50 {
            frame::append(&ToServer::new(id, Asked::Ping(Ping {})), &mut pings);
        }
        let mut nonsense = vec![2, 0, 0, 0];
        nonsense.extend(crc32c::crc32c(&[0xff; 2]).to_le_bytes());
        nonsense.extend([0xff; 2]);
        let behind = |begun: &[u8], more: &[u8]| [begun, more].concat();
        let ended = [
            (b"INCB\x07".to_vec(), Objection::Version, "version 7"),
            (PREAMBLE.to_vec(), Objection::Late, "no hello has come in 5s"),
            (hello.clone(), Objection::Late, "nothing was heard for 20s"),
            (behind(&PREAMBLE, &[0xff; 64]), Objection::Unreadable, "16384 are allowed"),
            (behind(&hello, &[0xff; 64]), Objection::Unreadable, "2097152 are allowed"),
            (behind(&hello, &[1, 0, 0, 0, 9, 9, 9, 9, 9]), Objection::Unreadable, "checksum"),
            (behind(&hello, &nonsense), Objection::Unreadable, "not a message"),
            (behind(&pings, &[0xff; 64]), Objection::Unreadable, "2097152 are allowed"),
        ];
        for (bytes, objection, words) in ended {
            let (ours, theirs) = tokio::io::duplex(16);
            let (mut reader, mut writer) = tokio::io::split(ours);
            let (mut inbox, bounds, busy) = (Inbox::new(), Bounds::default(), Busy::default());
            let writing = async {
                // What is not heard any more is passed over, and nobody waits for it.
                writer.write_all(&bytes).await.expect("heard to the end");
                std::future::pending::<()>().await;
            };
            let reading = async { while reader.read_buf(inbox.room()).await.expect("an end") > 0 {} };
            tokio::select! {
                _ = async { tokio::join!(serve(theirs, &[], &busy, &bounds), reading) } => {}
                () = writing => {}
            }
            let mut told = Vec::new();
            while let Some(ToClient { told: Some(it), .. }) = inbox.take(ANSWER_MAX).expect("good") {
                told.push(it);
            }
            let Some(Told::TurnedAway(last)) = told.pop() else { panic!("{objection:?}: not told") };
            assert!(last.objection() == objection && last.why.contains(words), "{last:?}");
            assert!(inbox.is_empty() && told.iter().skip(1).all(|it| matches!(it, Told::Pong(_))), "{told:?}");
        }
    }

    #[tokio::test]
    async fn what_can_be_the_name_of_nothing_is_not_watched() {
        let (busy, outbox, bounds) = (Busy::default(), Outbox::new(&Bounds::default()), Bounds::default());
        let mut counter = Counter { service: &busy, guest: &(), bounds: &bounds, outbox: &outbox, goodbye: false };
        let Limits { name_len_max, identity_len_max, key_len_max, .. } = Limits::STANDARD;
        let candidate = |election: usize, identity: usize| {
            Topic::Candidate(CandidateTopic { election: "e".repeat(election), identity: "i".repeat(identity) })
        };
        let keys = |start: usize, end: usize| Topic::Keys(Span { start: vec![1; start].into(), end: vec![2; end].into() });
        let fitting = [
            Topic::Election("e".repeat(name_len_max)),
            Topic::ElectionsUnder("e".repeat(name_len_max)),
            candidate(name_len_max, identity_len_max),
            keys(key_len_max, key_len_max + 1),
        ];
        let too_long = [
            Topic::Election("e".repeat(name_len_max + 1)),
            Topic::ElectionsUnder("e".repeat(name_len_max + 1)),
            candidate(name_len_max + 1, 1),
            candidate(1, identity_len_max + 1),
            keys(key_len_max + 1, 1),
            keys(1, key_len_max + 2),
        ];
        let (fit, all) = (fitting.len(), fitting.len() + too_long.len());
        for (topic, id) in fitting.into_iter().chain(too_long).zip(1..) {
            let wanted = WatchFrom { interest: Some(Interest::of(topic)), ..WatchFrom::default() };
            counter.take(&ToServer::new(id, Asked::Watch(wanted)).encode_to_vec()).expect("good");
        }
        let mut inbox = Inbox::new();
        outbox.take(inbox.room());
        let mut refused = Vec::new();
        while let Some(ToClient { id, told: Some(Told::WatchEnded(why)) }) = inbox.take(ANSWER_MAX).expect("good") {
            assert!(matches!(Refusal::from_wire(why), Refusal::Limit { .. }));
            refused.push(id);
        }
        assert_eq!(refused, (fit as u64 + 1..=all as u64).collect::<Vec<_>>());
        assert_eq!((outbox.watches(), busy.charges.borrow().len()), (fit, fit), "the node never heard of the others");
    }
}
