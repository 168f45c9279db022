//! Who is at the door of the nodes' port and has not greeted: decided before a byte is read.
//!
//! A stranger may come as fast as it likes, and from many addresses: the first is slowed down, the second takes places from itself. Where members are there is no pace, and their places are
//! the last to be taken: one that comes back must be able to finish its greeting.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use incumbent_protocol::time::Instant;
use tokio::task::AbortHandle;

use crate::pace::{Meter, Pace, network};

/// Connections that may be in their greeting at one time.
pub(super) const STRANGERS_MAX: usize = 64;
/// New connections from an address where no member is: at once as many as there are places, and then fewer than a member needs to come back.
const NEW_CONNECTIONS_PER_ADDRESS: Pace = Pace { burst: STRANGERS_MAX as u32, every: Duration::from_millis(50) };
/// So many addresses are remembered for that.
const ADDRESSES_REMEMBERED_MAX: usize = 4096;

/// Who came.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// Somebody from an address that a member has.
    Member,
    /// Somebody else.
    Elsewhere,
}

/// Connections that nobody has been let in by yet.
#[derive(Default)]
pub(super) struct Crowd {
    paces: BTreeMap<IpAddr, Meter>,
    strangers: BTreeMap<u64, Stranger>,
}

struct Stranger {
    network: IpAddr,
    origin: Origin,
    task: AbortHandle,
}

impl Crowd {
    /// Whether one more may come from there now.
    pub(super) fn admits(&mut self, now: Instant, from: IpAddr, origin: Origin) -> bool {
        if origin == Origin::Member {
            return true;
        }
        if self.paces.len() >= ADDRESSES_REMEMBERED_MAX {
            self.paces.retain(|_, it| !it.is_idle(now));
            // Whoever has so many addresses is slowed down by nothing but the places.
            if self.paces.len() >= ADDRESSES_REMEMBERED_MAX {
                self.paces.clear();
            }
        }
        let pace = self.paces.entry(network(from)).or_insert(Meter::IDLE);
        let admitted = !pace.is_full(now, NEW_CONNECTIONS_PER_ADDRESS);
        if admitted {
            pace.count(now, NEW_CONNECTIONS_PER_ADDRESS);
        }
        admitted
    }

    /// If all places are taken: ends the oldest of those who have most of them, members' last.
    pub(super) fn make_room(&mut self) -> bool {
        if self.strangers.len() < STRANGERS_MAX {
            return false;
        }
        let elsewhere = self.strangers.values().any(|it| it.origin == Origin::Elsewhere);
        let eligible = |it: &Stranger| !elsewhere || it.origin == Origin::Elsewhere;
        let mut places: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for stranger in self.strangers.values().filter(|it| eligible(it)) {
            *places.entry(stranger.network).or_default() += 1;
        }
        let most = places.values().max().copied().unwrap_or_default();
        let oldest = self.strangers.iter().find(|(_, it)| eligible(it) && places[&it.network] == most).map(|(number, _)| *number);
        if let Some(stranger) = oldest.and_then(|it| self.strangers.remove(&it)) {
            stranger.task.abort();
        }
        true
    }

    pub(super) fn enter(&mut self, number: u64, from: IpAddr, origin: Origin, task: AbortHandle) {
        self.strangers.insert(number, Stranger { network: network(from), origin, task });
    }

    /// It was let in, or has ended.
    pub(super) fn leave(&mut self, number: u64) {
        self.strangers.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(1000) + Duration::from_millis(ms)
    }

    fn waits() -> AbortHandle {
        tokio::spawn(std::future::pending::<()>()).abort_handle()
    }

    #[test]
    fn who_comes_too_fast_is_slowed_down_and_others_and_members_are_not() {
        let mut crowd = Crowd::default();
        let came = (0..5000).filter(|ms| crowd.admits(at(ms / 5), address(1), Origin::Elsewhere)).count();
        assert_eq!(came, STRANGERS_MAX + 19, "in a second");
        assert!(crowd.admits(at(1000), address(2), Origin::Elsewhere));
        assert!((0..5000).all(|_| crowd.admits(at(1000), address(1), Origin::Member)));
    }

    #[test]
    fn what_is_remembered_of_addresses_is_bounded() {
        let mut crowd = Crowd::default();
        for number in 0..3 * ADDRESSES_REMEMBERED_MAX as u32 {
            assert!(crowd.admits(at(0), IpAddr::from(number.to_be_bytes()), Origin::Elsewhere));
        }
        assert!(crowd.paces.len() <= ADDRESSES_REMEMBERED_MAX);
    }

    #[tokio::test]
    async fn the_oldest_of_those_who_have_most_places_makes_room_and_a_member_stays() {
        let mut crowd = Crowd::default();
        let enter = |crowd: &mut Crowd, number, last, origin| crowd.enter(number, address(last), origin, waits());
        enter(&mut crowd, 0, 9, Origin::Member);
        enter(&mut crowd, 1, 1, Origin::Elsewhere);
        enter(&mut crowd, 2, 9, Origin::Member);
        (3..STRANGERS_MAX as u64).for_each(|number| enter(&mut crowd, number, 2, Origin::Elsewhere));
        assert_eq!(crowd.strangers.len(), STRANGERS_MAX);
        for ended in [3, 4] {
            assert!(crowd.make_room());
            assert!(!crowd.strangers.contains_key(&ended), "the oldest from where most are");
            enter(&mut crowd, 100 + ended, 2, Origin::Elsewhere);
        }
        assert!([0, 1, 2].iter().all(|it| crowd.strangers.contains_key(it)));
        for number in 0..STRANGERS_MAX as u64 - 2 {
            assert!(crowd.make_room());
            enter(&mut crowd, 200 + number, 9, Origin::Member);
        }
        assert!([0, 2].iter().all(|it| crowd.strangers.contains_key(it)), "though most places are theirs");
        assert!(crowd.make_room(), "members make room for each other");
        assert_eq!(crowd.strangers.len(), STRANGERS_MAX - 1);
    }
}
