//! Which seats this process may hold on a shared session, and when their candidacies were last heard of.
//!
//! All elections of a process with one ttl share one session, so the session lives as long as any of them does. A candidacy that fell silent (its
//! leadership was dropped, its release was lost, the reply to its claim never came) would keep its seat for ever. So whoever renews the session first lets
//! go of the seats that nobody has spoken for within a ttl.

use std::collections::BTreeMap;
use std::time::Duration;

use incumbent_protocol::time::Instant;

use crate::engines::observed::outlasting;
use crate::identity::Identity;
use crate::name::Name;

/// The seats. An entry is made before the seat is asked for: the answer may be lost.
#[derive(Default)]
pub(super) struct Seats {
    heard: BTreeMap<(Name, Identity), (Duration, Instant)>,
}

impl Seats {
    /// The candidacy claims or holds the seat.
    pub(super) fn hear(&mut self, election: &Name, identity: &Identity, ttl: Duration, now: Instant) {
        self.heard.insert((election.clone(), identity.clone()), (ttl, now));
    }

    /// It surely does not hold it.
    pub(super) fn forget(&mut self, election: &Name, identity: &Identity) {
        self.heard.remove(&(election.clone(), identity.clone()));
    }

    /// Those on a session of `ttl` that nobody has spoken for within it.
    pub(super) fn silent(&self, ttl: Duration, now: Instant) -> Vec<(Name, Identity)> {
        self.heard.iter().filter(|(_, it)| is_silent(it, ttl, now)).map(|(who, _)| who.clone()).collect()
    }

    /// Whether this is one of those.
    pub(super) fn is_silent(&self, election: &Name, identity: &Identity, ttl: Duration, now: Instant) -> bool {
        self.heard.get(&(election.clone(), identity.clone())).is_some_and(|it| is_silent(it, ttl, now))
    }
}

fn is_silent((of, heard): &(Duration, Instant), ttl: Duration, now: Instant) -> bool {
    *of == ttl && now - *heard > outlasting(ttl)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_is_silent_when_nobody_has_spoken_for_it_within_the_ttl() {
        let (ttl, mut seats) = (Duration::from_secs(10), Seats::default());
        let (jobs, a) = (Name::new("jobs").expect("good"), Identity::named("a").expect("good"));
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        seats.hear(&jobs, &a, ttl, at(100));
        assert!(seats.silent(ttl, at(110)).is_empty(), "a clock may be slow");
        assert_eq!(seats.silent(ttl, at(111)), [(jobs.clone(), a.clone())]);
        assert!(seats.is_silent(&jobs, &a, ttl, at(111)));
        assert!(seats.silent(Duration::from_secs(11), at(200)).is_empty(), "that is another session");
        seats.hear(&jobs, &a, ttl, at(111));
        assert!(seats.silent(ttl, at(112)).is_empty() && !seats.is_silent(&jobs, &a, ttl, at(112)));
        seats.forget(&jobs, &a);
        assert!(seats.silent(ttl, at(200)).is_empty());
    }
}
