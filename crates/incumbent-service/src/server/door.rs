//! Where clients come in: one port, with TLS or without, on which the first bytes say whether it is our own stream.
//!
//! Nobody is served before it has said who it is, and has only so long for that. Those who have not are strangers: there may be many, and then the oldest makes room, so that nobody
//! keeps others out by saying nothing (C87). How many come in, and how fast, is the turnstile's. A guest whose token is withdrawn is shown out, whatever it is doing (C96).

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use incumbent_client::frame;
use incumbent_client::serve::{Bounds, Closed, serve};
use incumbent_peer::clock;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::config::{FILES_LOOKED_AT, STRANGERS_MAX};
use super::counter::Counter;
use super::tls::{Admission, Credentials};
use super::turnstile::Turnstile;
use super::visit::Visit;
use crate::rights::{Denied, Reread, Tokens};

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
        while self.credentials.is_some() || self.tokens.is_some() {
            sleep(FILES_LOOKED_AT).await;
            let here = self.clone();
            // A disk may be slow, and this thread serves everybody.
            let Ok(looked) = tokio::task::spawn_blocking(move || here.reread()).await else { return };
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

/// Lets clients in until it is dropped.
pub(super) async fn keep(listener: TcpListener, counter: Counter, guard: Guard) {
    let hall = Arc::new(Hall { counter, guard, places: Mutex::new(Places::new()) });
    tokio::join!(let_in(&hall, listener), hall.guard.follow());
}

async fn let_in(hall: &Arc<Hall>, listener: TcpListener) {
    loop {
        let (connection, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a client cannot be let in");
                sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let place = match hall.enter(from.ip()) {
            Ok(place) => place,
            Err(why) => {
                tracing::debug!(%from, %why, "a client is sent away");
                continue;
            }
        };
        let (number, visited) = (place.number, Arc::clone(hall));
        let task = tokio::spawn(async move {
            let closed = receive(&visited, &place, connection).await;
            tracing::debug!(%from, ?closed, "a client's connection has ended");
        });
        hall.places().await_greeting(number, task.abort_handle());
    }
}

/// Who is in, and what they are served by.
struct Hall {
    counter: Counter,
    guard: Guard,
    places: Mutex<Places>,
}

struct Places {
    turnstile: Turnstile,
    last: u64,
    /// Those who have not said who they are.
    strangers: BTreeMap<u64, Option<AbortHandle>>,
}

impl Places {
    fn new() -> Places {
        Places { turnstile: Turnstile::new(), last: 0, strangers: BTreeMap::new() }
    }

    fn await_greeting(&mut self, number: u64, task: AbortHandle) {
        // It may have come and gone already.
        if let Some(stranger) = self.strangers.get_mut(&number) {
            *stranger = Some(task);
        }
    }
}

impl Hall {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(self: &Arc<Hall>, from: IpAddr) -> Result<Place, String> {
        let mut places = self.places();
        places.turnstile.enter(clock::now(), from).map_err(|why| why.to_string())?;
        places.last += 1;
        let number = places.last;
        places.strangers.insert(number, None);
        let crowded = places.strangers.len() > STRANGERS_MAX;
        let oldest = if crowded { places.strangers.pop_first() } else { None };
        drop(places);
        if let Some((_, Some(oldest))) = oldest {
            oldest.abort();
        }
        Ok(Place { hall: Arc::clone(self), number, from })
    }
}

/// A place in the hall, until it is dropped.
struct Place {
    hall: Arc<Hall>,
    number: u64,
    from: IpAddr,
}

impl Place {
    /// It has said who it is.
    fn is_known(&self) {
        self.hall.places().strangers.remove(&self.number);
    }

    fn is_refused(&self) {
        self.hall.places().turnstile.refuse(clock::now(), self.from);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.hall.places();
        places.strangers.remove(&self.number);
        places.turnstile.leave(self.from);
    }
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

async fn receive(hall: &Hall, place: &Place, connection: TcpStream) -> Closed {
    let bounds = Bounds::default();
    let begun = match timeout(bounds.handshake, begin(&hall.guard, connection)).await {
        Ok(Ok(begun)) => begun,
        Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => return Closed::ByClient,
        Ok(Err(error)) => return Closed::Broken(error),
        Err(_) => return Closed::Handshake,
    };
    let Begun { line, certificate, bytes, is_ours } = begun;
    if !is_ours {
        return Closed::TurnedAway("it speaks something else than our stream".to_owned());
    }
    let visit = Arc::new(Visit::new(hall.guard.tokens.clone(), certificate));
    let counter = hall.counter.visited(Arc::clone(&visit));
    let shown_out = async {
        let guest = visit.admitted().await;
        place.is_known();
        guest.withdrawn().await;
    };
    let closed = tokio::select! {
        closed = serve(line, &bytes, &counter, &bounds) => closed,
        () = shown_out => Closed::TurnedAway(Denied::Withdrawn.to_string()),
    };
    if visit.was_refused() {
        place.is_refused();
    }
    closed
}

/// The handshake, and the first bytes behind it.
async fn begin(guard: &Guard, connection: TcpStream) -> io::Result<Begun> {
    // What is sent is sent whole: there is nothing to wait for.
    connection.set_nodelay(true)?;
    let (mut line, certificate): (Box<dyn Line>, _) = match &guard.credentials {
        Some(credentials) => {
            let stream = credentials.acceptor().accept(connection).await?;
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

#[cfg(test)]
mod tests {
    use incumbent_client::serve::Standing;

    use super::super::counter::Notice;
    use super::*;

    #[tokio::test]
    async fn the_oldest_stranger_makes_room_and_who_has_said_who_it_is_stays() {
        let (counter, _calls) = Counter::new(Arc::new(Notice::new(Standing::default())));
        let guard = Guard { credentials: None, tokens: None };
        let hall = Arc::new(Hall { counter, guard, places: Mutex::new(Places::new()) });
        let here = IpAddr::from([127, 0, 0, 1]);
        let visit = |is_known: bool| {
            let place = hall.enter(here).expect("there is room");
            let number = place.number;
            if is_known {
                place.is_known();
            }
            let task = tokio::spawn(async move {
                let _place = place;
                std::future::pending::<()>().await;
            });
            hall.places().await_greeting(number, task.abort_handle());
            task
        };
        let known = visit(true);
        let strangers: Vec<_> = (0..STRANGERS_MAX).map(|_| visit(false)).collect();
        assert!(strangers.iter().all(|it| !it.is_finished()));
        let last = visit(false);
        let first = strangers.into_iter().next().expect("one");
        assert!(first.await.expect_err("ended").is_cancelled());
        assert!(!known.is_finished() && !last.is_finished());
        assert_eq!(hall.places().strangers.len(), STRANGERS_MAX);
    }
}
