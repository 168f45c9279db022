//! How many clients may come in, from where, and how fast: decided before a byte of theirs is read.
//!
//! Everything is counted by address, an IPv6 network of 64 bits being one: so a flood from somewhere leaves room for others. Whoever shows bad tokens again and again is
//! sent away for a while without being asked (guessing is hopeless, but it costs us digests and log lines). What is remembered of addresses is bounded. Time is an argument.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use incumbent_peer::pace::{Meter, network};
use incumbent_protocol::time::Instant;

use super::config::{ADDRESSES_REMEMBERED_MAX, NEW_CONNECTIONS, NEW_CONNECTIONS_PER_ADDRESS, REFUSED_LOGINS, Room};

/// Why somebody is not let in.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Crowded {
    /// So many are in, which is too many.
    Full(usize),
    /// The same from there.
    FullFromThere(usize),
    /// Too many come at once.
    Fast,
    /// Too many come from there at once.
    FastFromThere,
    /// Too many bad tokens have come from there.
    BadTokens,
}

impl fmt::Display for Crowded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Crowded::Full(inside) => write!(f, "there are {inside} connections, and no more are taken"),
            Crowded::FullFromThere(inside) => {
                write!(f, "there are {inside} connections from its address, and no more are taken")
            }
            Crowded::Fast => f.write_str("more connections come than are taken in so short a time"),
            Crowded::FastFromThere => f.write_str("more connections come from its address than are taken in so short a time"),
            Crowded::BadTokens => f.write_str("too many tokens from its address were bad: it is not listened to for a while"),
        }
    }
}

/// Counts who is in.
#[derive(Debug)]
pub(super) struct Turnstile {
    room: Room,
    inside: usize,
    entering: Meter,
    visits: BTreeMap<IpAddr, Visits>,
}

/// From one address.
#[derive(Copy, Clone, Debug)]
struct Visits {
    inside: usize,
    entering: Meter,
    refused: Meter,
}

impl Turnstile {
    pub(super) fn new(room: Room) -> Turnstile {
        Turnstile { room, inside: 0, entering: Meter::IDLE, visits: BTreeMap::new() }
    }

    /// Lets a connection in; each is to be told to [`leave`](Turnstile::leave).
    pub(super) fn enter(&mut self, now: Instant, from: IpAddr) -> Result<(), Crowded> {
        let Room { connections, per_address, .. } = self.room;
        if self.inside >= connections {
            return Err(Crowded::Full(self.inside));
        }
        let entering = self.entering;
        let visits = self.visits(now, from);
        if visits.inside >= per_address {
            return Err(Crowded::FullFromThere(visits.inside));
        }
        if visits.refused.is_full(now, REFUSED_LOGINS) {
            return Err(Crowded::BadTokens);
        }
        if visits.entering.is_full(now, NEW_CONNECTIONS_PER_ADDRESS) {
            return Err(Crowded::FastFromThere);
        }
        // Asked last: what one address sends in vain is not counted against all.
        if entering.is_full(now, NEW_CONNECTIONS) {
            return Err(Crowded::Fast);
        }
        visits.entering.count(now, NEW_CONNECTIONS_PER_ADDRESS);
        visits.inside += 1;
        self.entering.count(now, NEW_CONNECTIONS);
        self.inside += 1;
        Ok(())
    }

    /// A connection that was let in has ended.
    pub(super) fn leave(&mut self, from: IpAddr) {
        self.inside -= 1;
        if let Some(visits) = self.visits.get_mut(&network(from)) {
            visits.inside -= 1;
        }
    }

    /// A bad token came from there.
    pub(super) fn refuse(&mut self, now: Instant, from: IpAddr) {
        self.visits(now, from).refused.count(now, REFUSED_LOGINS);
    }

    fn visits(&mut self, now: Instant, from: IpAddr) -> &mut Visits {
        if self.visits.len() >= ADDRESSES_REMEMBERED_MAX {
            self.visits.retain(|_, it| it.inside > 0 || !it.entering.is_idle(now) || !it.refused.is_idle(now));
            // Still too many: those who are in are not forgotten, and they are bounded.
            if self.visits.len() >= ADDRESSES_REMEMBERED_MAX {
                self.visits.retain(|_, it| it.inside > 0);
            }
        }
        let new = Visits { inside: 0, entering: Meter::IDLE, refused: Meter::IDLE };
        self.visits.entry(network(from)).or_insert(new)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use incumbent_peer::pace::Pace;

    use super::super::config::{CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX};
    use super::*;

    fn address(last: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + last).into())
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(1000) + Duration::from_millis(ms)
    }

    #[test]
    fn so_many_come_in_from_one_address_and_others_still_do() {
        let mut turnstile = Turnstile::new(Room::FULL);
        let mut now = at(0);
        for _ in 0..CONNECTIONS_PER_ADDRESS_MAX {
            assert_eq!(turnstile.enter(now, address(1)), Ok(()));
            now = now + NEW_CONNECTIONS_PER_ADDRESS.every;
        }
        assert_eq!(turnstile.enter(now, address(1)), Err(Crowded::FullFromThere(CONNECTIONS_PER_ADDRESS_MAX)));
        assert_eq!(turnstile.enter(now, address(2)), Ok(()));
        turnstile.leave(address(1));
        assert_eq!(turnstile.enter(now, address(1)), Ok(()));
    }

    #[test]
    fn so_many_come_in_at_all() {
        let mut turnstile = Turnstile::new(Room::FULL);
        let mut now = at(0);
        for number in 0..u32::try_from(CONNECTIONS_MAX).expect("fits") {
            assert_eq!(turnstile.enter(now, address(number)), Ok(()));
            now = now + NEW_CONNECTIONS.every;
        }
        assert_eq!(turnstile.enter(now, address(0)), Err(Crowded::Full(CONNECTIONS_MAX)));
        turnstile.leave(address(7));
        assert_eq!(turnstile.enter(now, address(0)), Ok(()));
    }

    #[test]
    fn a_burst_passes_and_then_one_at_a_time() {
        let mut turnstile = Turnstile::new(Room::FULL);
        let Pace { burst, every } = NEW_CONNECTIONS_PER_ADDRESS;
        for _ in 0..burst {
            assert_eq!(turnstile.enter(at(0), address(1)), Ok(()));
            turnstile.leave(address(1));
        }
        assert_eq!(turnstile.enter(at(0), address(1)), Err(Crowded::FastFromThere));
        assert_eq!(turnstile.enter(at(0), address(2)), Ok(()), "others are not held up");
        assert_eq!(turnstile.enter(at(0) + every, address(1)), Ok(()));
        assert_eq!(turnstile.enter(at(0) + every, address(1)), Err(Crowded::FastFromThere));
    }

    #[test]
    fn a_burst_from_everywhere_is_bounded_too() {
        let mut turnstile = Turnstile::new(Room::FULL);
        let mut entered = 0;
        for number in 0..NEW_CONNECTIONS.burst + 10 {
            if turnstile.enter(at(0), address(number)).is_ok() {
                entered += 1;
                turnstile.leave(address(number));
            }
        }
        assert_eq!(entered, NEW_CONNECTIONS.burst);
        assert_eq!(turnstile.enter(at(0), address(0)), Err(Crowded::Fast));
    }

    #[test]
    fn who_brings_bad_tokens_is_not_listened_to_for_a_while() {
        let mut turnstile = Turnstile::new(Room::FULL);
        for _ in 0..REFUSED_LOGINS.burst {
            assert_eq!(turnstile.enter(at(0), address(1)), Ok(()));
            turnstile.refuse(at(0), address(1));
            turnstile.leave(address(1));
        }
        assert_eq!(turnstile.enter(at(0), address(1)), Err(Crowded::BadTokens));
        assert_eq!(turnstile.enter(at(0), address(2)), Ok(()));
        assert_eq!(turnstile.enter(at(0) + REFUSED_LOGINS.every, address(1)), Ok(()));
    }

    /// Connections that were let in before any of them had shown its token may bring a thousand of them at once.
    #[test]
    fn however_many_bad_tokens_come_at_once_others_from_there_are_let_in_a_moment_later() {
        let mut turnstile = Turnstile::new(Room::FULL);
        for _ in 0..1_000 {
            turnstile.refuse(at(0), address(1));
        }
        assert_eq!(turnstile.enter(at(0), address(1)), Err(Crowded::BadTokens));
        let soon = at(0) + REFUSED_LOGINS.every;
        assert_eq!(turnstile.enter(soon, address(1)), Ok(()));
        turnstile.refuse(soon, address(1));
        assert_eq!(turnstile.enter(soon, address(1)), Err(Crowded::BadTokens), "one more, and it begins anew");
    }

    #[test]
    fn a_network_counts_as_one_and_what_is_remembered_is_bounded() {
        let mut turnstile = Turnstile::new(Room::FULL);
        for host in 0..REFUSED_LOGINS.burst {
            turnstile.refuse(at(0), IpAddr::V6((0x2001_0db8_0000_0001_u128 << 64 | u128::from(host)).into()));
        }
        let neighbour: IpAddr = "2001:db8:0:1:ffff::1".parse().expect("an address");
        assert_eq!(turnstile.enter(at(0), neighbour), Err(Crowded::BadTokens));
        assert_eq!(turnstile.enter(at(0), "2001:db8:0:2::1".parse().expect("an address")), Ok(()));
        assert_eq!(turnstile.enter(at(0), address(5)), Ok(()));
        for number in 0..3 * u32::try_from(ADDRESSES_REMEMBERED_MAX).expect("fits") {
            turnstile.refuse(at(0), address(number));
        }
        assert!(turnstile.visits.len() <= ADDRESSES_REMEMBERED_MAX);
        turnstile.leave(address(5));
        assert_eq!(turnstile.visits[&address(5)].inside, 0, "who is in is not forgotten");
        assert_eq!(network("::ffff:10.0.0.5".parse().expect("an address")), address(5));
    }
}
