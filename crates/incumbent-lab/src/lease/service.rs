//! The simulated lock service: one seat, leases on its own clock, tokens that strictly increase.
//!
//! It keeps the one promise that [`incumbent_protocol::timing`] assumes: a lease is not freed before its ttl has passed on the
//! service's clock since the service last heard of it, not even across a restart. In all else it is as odd as real ones are
//! ([`Habits`]): it may take a repeated claim for a renewal or not, tell whose the seat is or not, refuse for no good reason.

use core::time::Duration;

use incumbent_protocol::protocol::{Term, Token};
use incumbent_protocol::tenure::{Call, Outcome};
use incumbent_protocol::time::Instant;

use super::sighting::{Freed, HolderId, Sighting};

/// What a service does when it is asked by the one who has the seat already.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Reentry {
    /// Begins the ttl anew.
    Renews,
    /// Says that the seat is the caller's.
    Tells,
    /// Says that the seat is taken. To an inquiry it tells all the same.
    Denies,
}

/// How a service differs from others.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Habits {
    /// What a claim by the holder of the seat means.
    pub claim: Reentry,
    /// What an inquiry by the holder of the seat means.
    pub inquiry: Reentry,
    /// Whether those who find the seat taken hear by whom and for how long.
    pub tells_of_holder: bool,
    /// How many calls in a million it refuses although nothing is wrong.
    pub refusal_ppm: u32,
    /// Whether those who wait hear that the seat has become free.
    pub hints: bool,
    /// Whether leases begin anew when it restarts; else they go on as they were.
    pub lengthens_on_restart: bool,
}

/// The service.
#[derive(Clone, Debug)]
pub struct Service {
    habits: Habits,
    ttl: Duration,
    seat: Option<Seat>,
    term: Term,
}

#[derive(Copy, Clone, Debug)]
struct Seat {
    holder: HolderId,
    token: Token,
    ends: Instant,
}

impl Service {
    /// A service that gives leases of `ttl`.
    pub fn new(ttl: Duration, habits: Habits) -> Service {
        Service { habits, ttl, seat: None, term: Term(0) }
    }

    /// When the lease ends, on the service's clock.
    pub fn ends(&self) -> Option<Instant> {
        self.seat.map(|seat| seat.ends)
    }

    /// Frees the seat if its time has come.
    pub fn expire(&mut self, now: Instant, seen: &mut Vec<Sighting>) {
        if let Some(seat) = self.seat.filter(|seat| now >= seat.ends) {
            self.seat = None;
            seen.push(Sighting::Freed { token: seat.token, how: Freed::Expired });
        }
    }

    /// The service comes up again with what was on its disk.
    pub fn restart(&mut self, now: Instant) {
        if self.habits.lengthens_on_restart
            && let Some(seat) = &mut self.seat
        {
            seat.ends = seat.ends.max(now + self.ttl);
        }
    }

    /// Does what `caller` asks at `now`.
    pub fn answer(&mut self, now: Instant, caller: HolderId, call: Call, seen: &mut Vec<Sighting>) -> Outcome {
        self.expire(now, seen);
        let own = self.seat.filter(|seat| seat.holder == caller);
        match (call, own) {
            (Call::Claim, None) if self.seat.is_none() => self.grant(now, caller, seen),
            (Call::Inquire, None) if self.seat.is_none() => Outcome::Vacant,
            (Call::Claim, Some(seat)) => self.reenter(now, seat, self.habits.claim),
            (Call::Inquire, Some(seat)) => match self.habits.inquiry {
                Reentry::Renews => self.reenter(now, seat, Reentry::Renews),
                Reentry::Tells | Reentry::Denies => Outcome::Held { token: seat.token },
            },
            (Call::Renew { token }, Some(seat)) if seat.token == token => self.reenter(now, seat, Reentry::Renews),
            (Call::Release { token, .. }, Some(seat)) if seat.token == token => {
                self.seat = None;
                seen.push(Sighting::Freed { token, how: Freed::Released });
                Outcome::Vacant
            }
            (Call::Claim | Call::Inquire | Call::Renew { .. } | Call::Release { .. }, _) => self.taken(now),
        }
    }

    fn grant(&mut self, now: Instant, holder: HolderId, seen: &mut Vec<Sighting>) -> Outcome {
        self.term = self.term.next().expect("no world has 2^48 leaderships");
        let token = Token::new(1, self.term).expect("a term that fits makes a token");
        self.seat = Some(Seat { holder, token, ends: now + self.ttl });
        seen.push(Sighting::Granted { holder, token });
        Outcome::Granted { token, ttl: Some(self.ttl), counted_from: None }
    }

    fn reenter(&mut self, now: Instant, seat: Seat, how: Reentry) -> Outcome {
        match how {
            Reentry::Renews => {
                self.seat = Some(Seat { ends: now + self.ttl, ..seat });
                Outcome::Granted { token: seat.token, ttl: Some(self.ttl), counted_from: None }
            }
            Reentry::Tells => Outcome::Held { token: seat.token },
            Reentry::Denies => self.taken(now),
        }
    }

    fn taken(&self, now: Instant) -> Outcome {
        match self.seat {
            None => Outcome::Vacant,
            Some(seat) if self.habits.tells_of_holder => {
                Outcome::Occupied { token: Some(seat.token), free_in: Some(seat.ends - now) }
            }
            Some(_) => Outcome::Occupied { token: None, free_in: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(1);
    const HABITS: Habits = Habits {
        claim: Reentry::Tells,
        inquiry: Reentry::Tells,
        tells_of_holder: false,
        refusal_ppm: 0,
        hints: true,
        lengthens_on_restart: true,
    };
    const OCCUPIED: Outcome = Outcome::Occupied { token: None, free_in: None };

    fn token(term: u64) -> Token {
        Token::new(1, Term(term)).unwrap()
    }

    fn granted(term: u64) -> Outcome {
        Outcome::Granted { token: token(term), ttl: Some(TTL), counted_from: None }
    }

    fn release(term: u64) -> Call {
        Call::Release { token: token(term), reason: incumbent_protocol::tenure::Reason::Resigned }
    }

    /// Asks a service with `habits`, call after call at millisecond after millisecond.
    fn answers(habits: Habits, calls: &[(u64, u32, Call)]) -> Vec<Outcome> {
        let mut service = Service::new(TTL, habits);
        let ask = |&(at, who, call): &(u64, u32, Call)| {
            service.answer(Instant::from_nanos(at * 1_000_000), HolderId(who), call, &mut Vec::new())
        };
        calls.iter().map(ask).collect()
    }

    #[test]
    fn a_lease_ends_at_its_ttl_after_the_last_renewal_and_not_before() {
        let calls = [
            (0, 1, Call::Claim),
            (900, 1, Call::Renew { token: token(1) }),
            (1_899, 2, Call::Claim),
            (1_900, 2, Call::Claim),
            (1_901, 1, Call::Renew { token: token(1) }),
        ];
        assert_eq!(answers(HABITS, &calls), [granted(1), granted(1), OCCUPIED, granted(2), OCCUPIED]);
    }

    #[test]
    fn a_release_frees_only_its_own_leadership() {
        let calls = [
            (0, 1, Call::Claim),
            (1, 2, release(1)),
            (2, 1, release(1)),
            (3, 1, Call::Claim),
            // Its own release of before, repeated by the network.
            (4, 1, release(1)),
            (5, 1, Call::Renew { token: token(2) }),
        ];
        assert_eq!(answers(HABITS, &calls), [granted(1), OCCUPIED, Outcome::Vacant, granted(2), OCCUPIED, granted(2)]);
    }

    #[test]
    fn the_holder_hears_what_the_habits_say() {
        for (reentry, to_claim, to_inquiry) in [
            (Reentry::Renews, granted(1), granted(1)),
            (Reentry::Tells, Outcome::Held { token: token(1) }, Outcome::Held { token: token(1) }),
            (Reentry::Denies, OCCUPIED, Outcome::Held { token: token(1) }),
        ] {
            let calls =
                [(0, 1, Call::Inquire), (0, 1, Call::Claim), (1, 1, Call::Claim), (2, 1, Call::Inquire), (3, 2, Call::Inquire)];
            let habits = Habits { claim: reentry, inquiry: reentry, ..HABITS };
            assert_eq!(answers(habits, &calls), [Outcome::Vacant, granted(1), to_claim, to_inquiry, OCCUPIED]);
        }
    }

    #[test]
    fn a_restart_never_shortens_a_lease() {
        for (lengthens_on_restart, ends) in [(true, 1_700), (false, 1_000)] {
            let mut service = Service::new(TTL, Habits { lengthens_on_restart, ..HABITS });
            service.answer(Instant::ZERO, HolderId(1), Call::Claim, &mut Vec::new());
            service.restart(Instant::from_nanos(700_000_000));
            assert_eq!(service.ends(), Some(Instant::from_nanos(ends * 1_000_000)));
        }
    }
}
