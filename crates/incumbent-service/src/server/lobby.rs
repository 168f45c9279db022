//! Where clients are until they have said who they are, and who is in.
//!
//! There may be many strangers; then the oldest makes room for the next, so that nobody keeps others out by saying nothing (C87): who means it has said who it is long since.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use incumbent_peer::clock;
use tokio::task::AbortHandle;

use super::config::Room;
use super::turnstile::{Crowded, Turnstile};

/// Who is in.
pub(super) struct Lobby(Mutex<Places>);

struct Places {
    room: Room,
    turnstile: Turnstile,
    last: u64,
    /// Those who have not said who they are.
    strangers: BTreeMap<u64, Option<AbortHandle>>,
}

impl Lobby {
    pub(super) fn new(room: Room) -> Arc<Lobby> {
        let places = Places { room, turnstile: Turnstile::new(room), last: 0, strangers: BTreeMap::new() };
        Arc::new(Lobby(Mutex::new(places)))
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a stranger in, and the oldest out if there are too many.
    pub(super) fn enter(self: &Arc<Lobby>, from: IpAddr) -> Result<Place, Crowded> {
        let mut places = self.places();
        places.turnstile.enter(clock::now(), from)?;
        places.last += 1;
        let number = places.last;
        places.strangers.insert(number, None);
        let crowded = places.strangers.len() > places.room.strangers;
        let oldest = if crowded { places.strangers.pop_first() } else { None };
        drop(places);
        if let Some((_, Some(oldest))) = oldest {
            oldest.abort();
        }
        Ok(Place { lobby: Arc::clone(self), number, from })
    }

    /// What is to be ended if it must make room.
    pub(super) fn await_greeting(&self, number: u64, task: AbortHandle) {
        // It may have come and gone already.
        if let Some(stranger) = self.places().strangers.get_mut(&number) {
            *stranger = Some(task);
        }
    }
}

/// A client's place, until it is dropped.
pub(super) struct Place {
    lobby: Arc<Lobby>,
    number: u64,
    from: IpAddr,
}

impl Place {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// It has said who it is.
    pub(super) fn is_known(&self) {
        self.lobby.places().strangers.remove(&self.number);
    }

    /// Its token was bad.
    pub(super) fn is_refused(&self) {
        self.lobby.places().turnstile.refuse(clock::now(), self.from);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.lobby.places();
        places.strangers.remove(&self.number);
        places.turnstile.leave(self.from);
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::STRANGERS_MAX;
    use super::*;

    #[tokio::test]
    async fn the_oldest_stranger_makes_room_and_who_has_said_who_it_is_stays() {
        let lobby = Lobby::new(Room::FULL);
        let visit = |is_known: bool| {
            let place = lobby.enter(IpAddr::from([127, 0, 0, 1])).expect("there is room");
            let number = place.number();
            if is_known {
                place.is_known();
            }
            let task = tokio::spawn(async move {
                let _place = place;
                std::future::pending::<()>().await;
            });
            lobby.await_greeting(number, task.abort_handle());
            task
        };
        let known = visit(true);
        let strangers: Vec<_> = (0..STRANGERS_MAX).map(|_| visit(false)).collect();
        assert!(strangers.iter().all(|it| !it.is_finished()));
        let last = visit(false);
        let first = strangers.into_iter().next().expect("one");
        assert!(first.await.expect_err("ended").is_cancelled());
        assert!(!known.is_finished() && !last.is_finished());
        assert_eq!(lobby.places().strangers.len(), STRANGERS_MAX);
    }

    #[test]
    fn where_there_is_room_for_few_no_more_are_let_in() {
        let lobby = Lobby::new(Room { connections: 3, per_address: 2, strangers: 1 });
        let from = |last: u8| lobby.enter(IpAddr::from([10, 0, 0, last]));
        let _inside = [from(1).expect("room"), from(1).expect("room")];
        assert_eq!(from(1).err(), Some(Crowded::FullFromThere(2)));
        let _last = from(2).expect("room");
        assert_eq!(from(3).err(), Some(Crowded::Full(3)));
        assert_eq!(lobby.places().strangers.len(), 1);
    }
}
