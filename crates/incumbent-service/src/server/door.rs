//! Where clients come in: one port, with TLS or without, on which the first bytes say whether it is our own stream; else it is HTTP.
//!
//! Nobody is served before it has said who it is, and has only so long for that (C87). How many come in, and how fast, is the lobby's; some of those who are not let in are told why. A guest whose token is withdrawn is shown out,
//! whatever it is doing (C96).

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use incumbent_client::frame;
use incumbent_client::message::{Objection, ToClient, Told, TurnedAway};
use incumbent_client::serve::{Bounds, Closed, serve};
use incumbent_peer::turns::Turns;
use rustix::process::{Resource, getrlimit};
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};

use super::config::{CONNECTIONS_MAX, FILES_LOOKED_AT, HANDSHAKES_MAX, Room, SENT_AWAY_MAX, SENT_AWAY_WITHIN};
use super::counter::Counter;
use super::handle::Handle;
use super::lobby::{Lobby, Place};
use super::tls::{Admission, Credentials};
use super::turnstile::Crowded;
use super::visit::Visit;
use crate::http::{Annex, crowded};
use crate::rights::{Reread, Tokens};

/// After a failed accept, which is a lack of something on this machine, so long until the next.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// What a client must show.
#[derive(Clone)]
pub(super) struct Guard {
    credentials: Option<Arc<Credentials>>,
    tokens: Option<Arc<Tokens>>,
}

impl Guard {
    pub(super) fn read(admission: &Admission) -> Result<Guard, String> {
        let credentials = admission.tls.as_ref().map(Credentials::read).transpose()?.map(Arc::new);
        let tokens = admission.tokens.as_ref().map(Tokens::read).transpose()?.map(Arc::new);
        Ok(Guard { credentials, tokens })
    }

    fn reread(&self) -> [(&'static str, Reread); 2] {
        let credentials = self.credentials.as_ref().map_or(Reread::Unchanged, |it| it.reread_if_changed());
        let tokens = self.tokens.as_ref().map_or(Reread::Unchanged, |it| it.reread_if_changed());
        [("certificate", credentials), ("tokens", tokens)]
    }

    /// Until the node ends: what has changed holds from then on.
    async fn follow(&self) {
        if self.credentials.is_none() && self.tokens.is_none() {
            return std::future::pending().await;
        }
        loop {
            sleep(FILES_LOOKED_AT).await;
            let here = self.clone();
            // A disk may be slow, and this thread serves everybody.
            let Ok(looked) = tokio::task::spawn_blocking(move || here.reread()).await else {
                tracing::error!("what clients are let in by could not be looked at: it is looked at again");
                continue;
            };
            for (what, reread) in looked {
                match reread {
                    Reread::Unchanged => {}
                    Reread::Changed => tracing::info!(what, "what clients are let in by has changed"),
                    Reread::Kept(why) => {
                        tracing::error!(what, %why, "what clients are let in by has changed and cannot be used: the former stays in force")
                    }
                }
            }
        }
    }
}

/// Lets clients in until the node has ended. Then those are let in who were at the door, lest they are cut off without a word; and it waits until whoever speaks HTTP has its answer.
pub(super) async fn keep(listener: TcpListener, handle: Handle, counter: Counter, guard: Guard, annex: Annex) {
    let sent_away = Arc::new(Semaphore::new(SENT_AWAY_MAX));
    let hall = Arc::new(Hall {
        counter,
        guard,
        turns: Turns::new(HANDSHAKES_MAX),
        annex,
        lobby: Lobby::new(room()),
        bounds: Bounds::default(),
        sent_away,
    });
    let (busy, mut all_answered) = mpsc::channel(1);
    tokio::select! {
        () = let_in(&hall, &listener, &busy) => {}
        () = hall.guard.follow() => {}
        _ = handle.ended() => {}
    }
    if let Ok(listener) = listener.into_std() {
        while let Ok((connection, from)) = listener.accept() {
            let connection = connection.set_nonblocking(true).and_then(|()| TcpStream::from_std(connection));
            if let Ok(connection) = connection {
                welcome(&hall, connection, from, busy.clone());
            }
        }
    }
    drop(busy);
    let _ = all_answered.recv().await;
}

/// For as many clients as there are descriptors for, and not those that the node itself needs.
fn room() -> Room {
    let descriptors = getrlimit(Resource::Nofile).current;
    let room = Room::of(descriptors);
    if room != Room::FULL {
        tracing::warn!(
            descriptors,
            connections = room.connections,
            "the limit of open files is low: instead of {CONNECTIONS_MAX} connections of clients fewer are taken; raise it (LimitNOFILE, ulimit -n)"
        );
    }
    room
}

async fn let_in(hall: &Arc<Hall>, listener: &TcpListener, busy: &Busy) {
    loop {
        match listener.accept().await {
            Ok((connection, from)) => welcome(hall, connection, from, busy.clone()),
            Err(error) => {
                tracing::warn!(%error, "a client cannot be let in");
                sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

fn welcome(hall: &Arc<Hall>, connection: TcpStream, from: SocketAddr, busy: Busy) {
    let place = match hall.lobby.enter(from.ip()) {
        Ok(place) => place,
        Err(why) => {
            tracing::debug!(%from, %why, "a client is sent away");
            return send_away(hall, connection, why);
        }
    };
    let (number, here) = (place.number(), Arc::clone(hall));
    let task = tokio::spawn(async move {
        let closed = receive(&here, &place, connection, busy).await;
        tracing::debug!(%from, ?closed, "a client's connection has ended");
    });
    hall.lobby.await_greeting(number, task.abort_handle());
}

/// Tells why, if few are sent away. Whoever is told counts for as long as it may take, so that a flood of them costs no more than that.
fn send_away(hall: &Arc<Hall>, connection: TcpStream, why: Crowded) {
    let Ok(counted) = Arc::clone(&hall.sent_away).try_acquire_owned() else { return };
    let here = Arc::clone(hall);
    tokio::spawn(async move {
        let telling = timeout(SENT_AWAY_WITHIN, tell_away(&here, connection, &why));
        let _ = tokio::join!(telling, sleep(SENT_AWAY_WITHIN));
        drop(counted);
    });
}

async fn tell_away(hall: &Hall, connection: TcpStream, why: &Crowded) -> io::Result<()> {
    let Begun { mut line, is_ours, .. } = begin(hall, connection).await?;
    let bytes = if is_ours {
        let told = TurnedAway { objection: Objection::Busy.into(), why: format!("{why}: try again later, or another node") };
        let mut bytes = Vec::new();
        frame::append(&ToClient::new(0, Told::TurnedAway(told)), &mut bytes);
        bytes
    } else {
        crowded(why)
    };
    line.write_all(&bytes).await?;
    line.shutdown().await?;
    // What is unread when a socket is closed makes a reset of it, which overtakes what was said.
    let mut unread = [0; 4096];
    while line.read(&mut unread).await? > 0 {}
    Ok(())
}

/// Held for as long as somebody may wait for an answer by HTTP.
type Busy = mpsc::Sender<Infallible>;

/// What those who are in are served by.
struct Hall {
    counter: Counter,
    guard: Guard,
    /// Strangers may come a thousand at once, and the thread that computes with them is the node's.
    turns: Turns,
    annex: Annex,
    lobby: Arc<Lobby>,
    /// Shared by all: what waits for them is bounded together.
    bounds: Bounds,
    /// Room for those who are told why they are not let in.
    sent_away: Arc<Semaphore>,
}

/// A connection, whatever protects it.
trait Line: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Line for T {}

/// What is known of a connection by its first bytes.
struct Begun {
    line: Box<dyn Line>,
    certificate: Option<CertificateDer<'static>>,
    bytes: Vec<u8>,
    is_ours: bool,
}

async fn receive(hall: &Hall, place: &Place, connection: TcpStream, busy: Busy) -> Closed {
    let bounds = &hall.bounds;
    let begun = match timeout(bounds.handshake, begin(hall, connection)).await {
        Ok(Ok(begun)) => begun,
        Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => return Closed::ByClient,
        Ok(Err(error)) => return Closed::Broken(error),
        Err(_) => return Closed::Handshake,
    };
    let Begun { line, certificate, bytes, is_ours } = begun;
    let visit = Arc::new(Visit::new(hall.guard.tokens.clone(), certificate));
    if !is_ours {
        // There each request says who asks. Whoever only asks how the node is stays a stranger, who makes room for others.
        let known = async {
            visit.admitted().await;
            place.is_known();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = hall.annex.serve(line, bytes, Arc::clone(&visit) as _) => {}
            () = known => {}
        }
        if visit.was_refused() {
            place.is_refused();
        }
        return Closed::ByClient;
    }
    // Clients of ours go to another node, and repeat there what was not answered.
    drop(busy);
    let counter = hall.counter.visited(Arc::clone(&visit));
    let known = async {
        visit.admitted().await;
        place.is_known();
        std::future::pending().await
    };
    let closed = tokio::select! {
        closed = serve(line, &bytes, &counter, bounds) => closed,
        closed = known => closed,
    };
    if visit.was_refused() {
        place.is_refused();
    }
    closed
}

/// The handshake, and the first bytes behind it.
async fn begin(hall: &Hall, connection: TcpStream) -> io::Result<Begun> {
    // What is sent is sent whole: there is nothing to wait for.
    connection.set_nodelay(true)?;
    let (mut line, certificate): (Box<dyn Line>, _) = match &hall.guard.credentials {
        Some(credentials) => {
            let stream = hall.turns.take(credentials.acceptor().accept(connection)).await?;
            let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).map(|it| it.clone().into_owned());
            (Box::new(stream), shown)
        }
        None => (Box::new(connection), None),
    };
    let mut bytes = Vec::new();
    loop {
        if let Some(is_ours) = frame::is_ours(&bytes) {
            return Ok(Begun { line, certificate, bytes, is_ours });
        }
        if line.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
