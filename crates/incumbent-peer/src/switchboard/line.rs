//! One connection: frames out of bytes and into bytes, and the loop that carries a lane over it.
//!
//! One task reads and writes: what waits is written with one call, and neither way waits for the other. Buffers grow with the bytes that come
//! and are given back after a long packet.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use incumbent_protocol::protocol::NodeId;
use tokio::io::ReadBuf;
use tokio::time::{Instant, sleep_until, timeout};

use super::exchange::{Carries, Exchange};
use super::stream::{Fault, Stream};
use super::{Arrival, Asker, Reply, ReplyTo};
use crate::packet::{FRAME_MAX, GREETING_MAX, Lane, MEMBER_FRAME_MAX, Mail, Packet, Passport};

/// What a buffer has at first. Nearly all packets are shorter than a hundred bytes.
const BUFFER_START: usize = 1024;
/// A buffer that has grown beyond this is given back when it is empty.
const BUFFER_KEPT: usize = 16 * 1024;

/// The other end of a connection that we end has so long to end it too.
const PARTING: Duration = Duration::from_millis(200);

/// A guest that asks nothing for so long makes room for others.
const GUEST_IDLE: Duration = Duration::from_secs(60);

pub(super) struct Connection {
    pub(super) stream: Stream,
    pub(super) remote: SocketAddr,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    written: usize,
    /// The version of the protocol that both ends have agreed on; 0 before they have.
    pub(super) version: u32,
}

impl Connection {
    pub(super) fn new(stream: Stream, remote: SocketAddr) -> Connection {
        Connection { stream, remote, inbox: Vec::new(), outbox: Vec::new(), written: 0, version: 0 }
    }

    /// Reads one packet of a greeting.
    pub(super) async fn read_greeting(&mut self) -> Result<Packet, Fault> {
        self.read(GREETING_MAX).await
    }

    /// Reads one packet of at most `max` bytes.
    pub(super) async fn read(&mut self, max: usize) -> Result<Packet, Fault> {
        loop {
            if let Some(packet) = self.next_packet(max)? {
                return Ok(packet);
            }
            poll_fn(|cx| self.poll_fill(cx)).await?;
        }
    }

    /// Writes one packet at once.
    pub(super) async fn write(&mut self, packet: Packet) -> Result<(), Fault> {
        packet.encode(&mut self.outbox)?;
        poll_fn(|cx| self.poll_empty(cx)).await
    }

    /// The next packet that has come in full.
    fn next_packet(&mut self, max: usize) -> Result<Option<Packet>, Fault> {
        let Some((packet, used)) = Packet::decode(&self.inbox, max)? else { return Ok(None) };
        self.inbox.drain(..used);
        if self.inbox.is_empty() && self.inbox.capacity() > BUFFER_KEPT {
            self.inbox = Vec::new();
        }
        Ok(Some(packet))
    }

    /// Reads what is there; at the end of the stream, an error.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        let filled = self.inbox.len();
        // Twice what has come: the length that a frame announces costs a stranger nothing, its bytes do.
        let room = filled.max(BUFFER_START);
        self.inbox.resize(filled + room, 0);
        let mut space = ReadBuf::new(&mut self.inbox[filled..]);
        let outcome = self.stream.poll_read(cx, &mut space);
        let came = space.filled().len();
        self.inbox.truncate(filled + came);
        ready!(outcome)?;
        Poll::Ready(if came == 0 { Err(Fault::Ended) } else { Ok(()) })
    }

    /// Says that nothing more comes, and reads until the other end says so too. A socket that is closed with something unread is reset by the kernel, and a reset takes away what the other
    /// end has not read yet: a hand-over, above all.
    async fn part(&mut self) {
        self.stream.shut().await;
        let ended = poll_fn(|cx| {
            while ready!(self.poll_fill(cx)).is_ok() {
                self.inbox.clear();
            }
            Poll::Ready(())
        });
        let _ = timeout(PARTING, ended).await;
    }

    /// Writes what is in the outbox.
    fn poll_empty(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        while self.written < self.outbox.len() {
            let written = ready!(self.stream.poll_write(cx, &self.outbox[self.written..]))?;
            if written == 0 {
                return Poll::Ready(Err(Fault::Reset));
            }
            self.written += written;
        }
        ready!(self.stream.poll_flush(cx))?;
        self.written = 0;
        self.outbox.clear();
        if self.outbox.capacity() > BUFFER_KEPT {
            self.outbox = Vec::new();
        }
        Poll::Ready(Ok(()))
    }

    /// Writes what waits for this connection, and comes back when something was read.
    fn poll_both(&mut self, cx: &mut Context<'_>, exchange: &Exchange, carries: Carries, number: u64) -> Poll<Result<(), Fault>> {
        let unwritten = loop {
            let stuck = match self.poll_empty(cx) {
                Poll::Pending => true,
                Poll::Ready(Err(fault)) => break Some(fault),
                Poll::Ready(Ok(())) => false,
            };
            // One that the other end does not read from must see too that it is not wanted any longer.
            let room = (!stuck).then_some(&mut self.outbox);
            if exchange.take(carries, number, cx.waker(), room).is_none() {
                return Poll::Ready(Err(Fault::Closed));
            }
            if stuck || self.outbox.is_empty() {
                break None;
            }
        };
        // The last words of one that is gone may be here, unread, when a write finds that it is gone: a hand-over, above all.
        match (self.poll_fill(cx), unwritten) {
            (Poll::Pending, Some(fault)) => Poll::Ready(Err(fault)),
            (polled, _) => polled,
        }
    }
}

/// Carries one lane of a member until it ends, and tells of it.
pub(super) async fn carry(
    exchange: &Arc<Exchange>,
    mut connection: Connection,
    number: u64,
    passport: Passport,
    lane: Lane,
) -> Fault {
    let peer = passport.id;
    let remote = connection.remote;
    let told = match exchange.connected(peer, passport, lane, connection.version, number) {
        Ok(told) => told,
        Err(fault) => return fault,
    };
    for arrival in told {
        tell(exchange, arrival).await;
    }
    let fault = match lane {
        Lane::Urgent => carry_urgent(exchange, &mut connection, number, peer).await,
        Lane::Bulk => carry_bulk(exchange, &mut connection, number, peer).await,
    };
    let fault = match fault {
        Ok(never) => match never {},
        Err(fault) => fault,
    };
    if let Fault::Closed = fault {
        connection.part().await;
    }
    drop(connection);
    if let Some(arrival) = exchange.disconnected(peer, lane, number, &fault, remote) {
        tell(exchange, arrival).await;
    }
    fault
}

enum Never {}

/// The driver may be behind; then this line waits, and TCP makes its other end wait.
async fn tell(exchange: &Exchange, arrival: Arrival) {
    let _ = exchange.arrivals.send(arrival).await;
}

async fn carry_urgent(exchange: &Arc<Exchange>, connection: &mut Connection, number: u64, peer: NodeId) -> Result<Never, Fault> {
    let carries = Carries::Lane(peer, Lane::Urgent);
    let mut timer = pin!(sleep_until(Instant::now()));
    loop {
        let read = poll_fn(|cx| {
            if let Poll::Ready(outcome) = connection.poll_both(cx, exchange, carries, number) {
                return Poll::Ready(outcome.map(|()| true));
            }
            timer.as_mut().poll(cx).map(|()| Ok(false))
        });
        if !read.await? {
            let beat = exchange.beat(peer, number);
            timer.as_mut().reset(beat.next);
            if let Some(arrival) = beat.arrival {
                tell(exchange, arrival).await;
            }
            if beat.give_up {
                return Err(Fault::Silent);
            }
            continue;
        }
        if let Some(arrival) = exchange.heard(peer) {
            tell(exchange, arrival).await;
        }
        receive(exchange, connection, peer).await?;
    }
}

async fn carry_bulk(exchange: &Arc<Exchange>, connection: &mut Connection, number: u64, peer: NodeId) -> Result<Never, Fault> {
    let carries = Carries::Lane(peer, Lane::Bulk);
    loop {
        poll_fn(|cx| connection.poll_both(cx, exchange, carries, number)).await?;
        receive(exchange, connection, peer).await?;
    }
}

/// Deals with the packets that have come.
async fn receive(exchange: &Arc<Exchange>, connection: &mut Connection, peer: NodeId) -> Result<(), Fault> {
    while let Some(packet) = connection.next_packet(MEMBER_FRAME_MAX)? {
        match packet {
            Packet::Pulse(pulse) => exchange.on_pulse(peer, pulse),
            Packet::Mail { route, mail } => match exchange.on_mail(peer, route, mail) {
                Ok(Some(arrival)) => tell(exchange, arrival).await,
                Ok(None) => {}
                Err(what) => exchange.complain(&connection.remote.ip().to_string(), "mail", format!("node {peer}: {what}")),
            },
            Packet::Hello(_) | Packet::Welcome(_) | Packet::Refusal { .. } => return Err(Fault::Misplaced(packet.kind())),
        }
    }
    Ok(())
}

/// Serves a guest until it hangs up.
pub(super) async fn serve(exchange: &Arc<Exchange>, connection: &mut Connection, number: u64) -> Fault {
    loop {
        let asking = poll_fn(|cx| connection.poll_both(cx, exchange, Carries::Guest, number));
        if let Err(fault) = timeout(GUEST_IDLE, asking).await.unwrap_or(Err(Fault::Closed)) {
            return fault;
        }
        loop {
            match connection.next_packet(FRAME_MAX) {
                Ok(None) => break,
                Ok(Some(Packet::Mail { mail: Mail::Ask { id, body }, .. })) => {
                    let reply = Reply { exchange: Arc::clone(exchange), to: ReplyTo::Guest { connection: number }, id };
                    tell(exchange, Arrival::Asked { asker: Asker::Guest(connection.remote), body, reply }).await;
                }
                Ok(Some(packet)) => return Fault::Misplaced(packet.kind()),
                Err(fault) => return fault,
            }
        }
    }
}
