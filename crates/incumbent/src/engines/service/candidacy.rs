//! What a process knows of its candidacies: how each stands, what it was told since, and the session that it stands on.
//!
//! A session outlives its candidacy if nothing of that can be left on it: the next candidacy has it then, and to campaign again costs no session. If it still waits it may be given a seat in this very moment, and if
//! a claim or a release was not answered, something may yet come of it: then the session ends with the candidacy. On a session that another keeps alive a seat that nobody knows of would be held for ever.

use std::sync::Mutex;
use std::time::Duration;

use incumbent_client::session::Lease;
use incumbent_protocol::protocol::Token;
use incumbent_protocol::time::Instant;
use incumbent_store::event::{Change, Event};

use crate::clock;
use crate::engine::{Bid, Error, Grant, Kind};
use crate::engines::locked::locked;

use super::token_of;

/// So many sessions are kept for later.
const IDLE_MAX: usize = 1024;

/// One who stands in one election, or leads it.
#[derive(Default)]
pub(super) struct Candidacy {
    /// Its session. The lock is held while one is opened, so that no two are.
    pub(super) session: tokio::sync::Mutex<Option<(Duration, Lease)>>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    place: Place,
    /// Claims and releases of which nobody has said what came of them.
    unanswered: u32,
}

#[derive(Default)]
enum Place {
    /// It does not stand.
    #[default]
    Out,
    InLine(InLine),
    Holds,
}

/// One who waits.
pub(super) struct InLine {
    /// What it asked for last.
    pub(super) bid: Bid,
    /// Before it asked: the service counts its lease from later.
    pub(super) asked: Instant,
    /// The revision at which it was answered: it watches from there.
    pub(super) told: u64,
    /// The token of the seat that it was told of since, and the revision of that.
    pub(super) seated: Option<(Token, u64)>,
}

/// How a candidacy stands when it is to end.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Last {
    Out,
    InLine,
    Holds,
    /// It holds nothing, but something may yet come of what it has asked.
    Unsure,
}

impl Candidacy {
    /// A claim or a release is on its way.
    pub(super) fn asks(&self) {
        locked(&self.known).unanswered += 1;
    }

    /// This came of it.
    pub(super) fn answered<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        if !matches!(&answer, Err(why) if why.kind() == Kind::Unknown) {
            locked(&self.known).unanswered -= 1;
        }
        answer
    }

    /// It waits. What it was told while it asked counts, if it happened later.
    pub(super) fn is_in_line(&self, now: InLine) {
        let mut known = locked(&self.known);
        let seated = if let Place::InLine(before) = &known.place { before.seated } else { None };
        known.place = Place::InLine(InLine { seated: seated.filter(|(_, revision)| *revision > now.told), ..now });
    }

    pub(super) fn holds(&self) {
        locked(&self.known).place = Place::Holds;
    }

    pub(super) fn is_out(&self) {
        locked(&self.known).place = Place::Out;
    }

    /// Its seat is gone. A renewal of before may be answered so late that another seat is held since: its session serves nobody else.
    pub(super) fn has_lost(&self) {
        let mut known = locked(&self.known);
        known.place = Place::Out;
        known.unanswered += 1;
    }

    pub(super) fn last(&self) -> Last {
        let known = locked(&self.known);
        match &known.place {
            Place::Holds => Last::Holds,
            Place::Out | Place::InLine(_) if known.unanswered > 0 => Last::Unsure,
            Place::InLine(_) => Last::InLine,
            Place::Out => Last::Out,
        }
    }

    /// From which revision on it is to be told; `None` for what happens from now on.
    pub(super) fn told(&self) -> Option<u64> {
        if let Place::InLine(place) = &locked(&self.known).place { Some(place.told) } else { None }
    }

    /// What the service tells whoever watches for this one.
    pub(super) fn hear(&self, event: &Event) {
        let mut known = locked(&self.known);
        let Place::InLine(place) = &mut known.place else { return };
        if event.revision <= place.told {
            return;
        }
        match &event.change {
            Some(Change::Elected(elected)) if elected.holder.identity == place.bid.identity.as_str() => {
                place.seated = token_of(elected.holder.token).ok().map(|token| (token, event.revision));
            }
            // A claim tells how it stands.
            Some(Change::Ended(_)) => place.seated = None,
            Some(_) | None => {}
        }
    }

    /// The seat that it was told of, if that is what `bid` wants and its lease is still young: once.
    pub(super) fn seat(&self, bid: &Bid) -> Option<Grant> {
        let mut known = locked(&self.known);
        let Place::InLine(place) = &mut known.place else { return None };
        let (token, _) = place.seated.take()?;
        let wanted = Bid { seen: bid.seen, ..place.bid.clone() } == *bid && bid.seen.is_none_or(|seen| token > seen);
        if !wanted || clock::now() >= place.asked + bid.ttl / 2 {
            return None;
        }
        let counted_from = Some(place.asked);
        known.place = Place::Holds;
        Some(Grant { counted_from, ..Grant::of(token) })
    }
}

/// Sessions that nothing stands on: for the next candidacies, until their time is over.
#[derive(Default)]
pub(super) struct Idle {
    sessions: Mutex<Vec<(Duration, Lease, Instant)>>,
}

impl Idle {
    pub(super) fn keep(&self, ttl: Duration, session: Lease) {
        let now = clock::now();
        let mut sessions = locked(&self.sessions);
        sessions.retain(|(ttl, _, since)| now < *since + *ttl);
        if sessions.len() < IDLE_MAX {
            sessions.push((ttl, session, now));
        }
    }

    /// One with this ttl. It may have ended: then the claim says so.
    pub(super) fn take(&self, ttl: Duration) -> Option<Lease> {
        let now = clock::now();
        let mut sessions = locked(&self.sessions);
        let at = sessions.iter().rposition(|(its, _, since)| *its == ttl && now < *since + ttl)?;
        Some(sessions.swap_remove(at).1)
    }

    pub(super) fn take_all(&self) -> Vec<Lease> {
        locked(&self.sessions).drain(..).map(|(_, session, _)| session).collect()
    }
}

#[cfg(test)]
mod tests {
    use incumbent_store::election::{Holder, Past};
    use incumbent_store::event::{Elected, Ended};

    use super::*;
    use crate::identity::Identity;

    const TTL: Duration = Duration::from_secs(3600);

    fn bid() -> Bid {
        Bid { identity: Identity::stored("a"), ttl: TTL, value: String::new(), priority: 0, seats: 1, seen: None, note: None }
    }

    fn elected(who: &str, revision: u64) -> Event {
        let holder = Holder { identity: who.to_owned(), token: revision, ..Holder::default() };
        Event { revision, change: Some(Change::Elected(Box::new(Elected { election: "e".to_owned(), holder }))) }
    }

    fn ended(revision: u64) -> Event {
        let past = Past { identity: "a".to_owned(), ..Past::default() };
        Event { revision, change: Some(Change::Ended(Box::new(Ended { election: "e".to_owned(), past }))) }
    }

    /// It was told at revision 10 that it waits.
    fn waiting(asked: Instant) -> Candidacy {
        let candidacy = Candidacy::default();
        candidacy.is_in_line(InLine { bid: bid(), asked, told: 10, seated: None });
        candidacy
    }

    #[test]
    fn a_seat_that_was_told_is_taken_once_and_counts_from_the_claim() {
        let asked = clock::now();
        let candidacy = waiting(asked);
        assert_eq!(candidacy.seat(&bid()), None);
        candidacy.hear(&elected("b", 11));
        assert_eq!(candidacy.seat(&bid()), None, "another's");
        candidacy.hear(&elected("a", 12));
        let seen = token_of(10).ok();
        let grant = candidacy.seat(&Bid { seen, ..bid() }).expect("it was told");
        assert_eq!((grant.token, grant.counted_from), (token_of(12).expect("a token"), Some(asked)));
        assert_eq!(candidacy.seat(&bid()), None);
        assert_eq!(candidacy.last(), Last::Holds);
        candidacy.hear(&elected("a", 13));
        assert_eq!(candidacy.seat(&bid()), None, "it does not wait");
    }

    #[test]
    fn what_was_before_the_last_answer_or_is_over_is_no_seat() {
        let candidacy = waiting(clock::now());
        candidacy.hear(&elected("a", 10));
        assert_eq!(candidacy.seat(&bid()), None, "a seat of before");
        candidacy.hear(&elected("a", 11));
        candidacy.hear(&ended(12));
        assert_eq!(candidacy.seat(&bid()), None, "a seat that has ended");
        // Told while a claim was under way: it counts if the answer is older, and not if it is newer.
        candidacy.hear(&elected("a", 20));
        candidacy.is_in_line(InLine { bid: bid(), asked: clock::now(), told: 15, seated: None });
        assert!(candidacy.seat(&bid()).is_some());
        let candidacy = waiting(clock::now());
        candidacy.hear(&elected("a", 20));
        candidacy.is_in_line(InLine { bid: bid(), asked: clock::now(), told: 25, seated: None });
        assert_eq!(candidacy.seat(&bid()), None);
    }

    #[test]
    fn an_old_lease_another_bid_or_an_old_token_is_claimed_by_asking() {
        let seated = |asked| {
            let candidacy = waiting(asked);
            candidacy.hear(&elected("a", 12));
            candidacy
        };
        let now = clock::now();
        assert!(seated(now).seat(&bid()).is_some());
        assert_eq!(seated(now).seat(&Bid { value: "other".to_owned(), ..bid() }), None);
        assert_eq!(seated(now).seat(&Bid { seen: token_of(12).ok(), ..bid() }), None);
        let short = Bid { ttl: Duration::from_nanos(1), ..bid() };
        let candidacy = Candidacy::default();
        candidacy.is_in_line(InLine { bid: short.clone(), asked: now, told: 10, seated: None });
        candidacy.hear(&elected("a", 12));
        assert_eq!(candidacy.seat(&short), None, "half of its time is over");
    }

    #[test]
    fn what_was_not_answered_leaves_a_doubt() {
        let candidacy = Candidacy::default();
        assert_eq!(candidacy.last(), Last::Out);
        candidacy.asks();
        assert_eq!(candidacy.last(), Last::Unsure);
        let _ = candidacy.answered(Err::<(), _>(Error::refused("no")));
        assert_eq!(candidacy.last(), Last::Out);
        candidacy.asks();
        let _ = candidacy.answered(Err::<(), _>(Error::unknown("silence")));
        assert_eq!(candidacy.last(), Last::Unsure);
        candidacy.holds();
        assert_eq!(candidacy.last(), Last::Holds, "what it holds is not given up for a doubt");
        candidacy.is_out();
        assert_eq!(candidacy.last(), Last::Unsure);
        assert_eq!(waiting(clock::now()).last(), Last::InLine);
    }
}
