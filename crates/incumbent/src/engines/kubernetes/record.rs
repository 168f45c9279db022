//! A Lease as an election's record: who holds it, with which token, and how it changes. Pure: no clock decides here, and times are written for people and client-go only.
//!
//! Others write the same object (client-go, the Python client) and know nothing of our annotation, which they leave as it is. So the spec says who holds the Lease, and
//! the desk in the annotation is believed only where it speaks of that holder.

use std::time::Duration;

use incumbent_protocol::protocol::{Term, Token};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;

use crate::desk::{Desk, Holder, LAPSED, whole_ms};
use crate::engine::{Bid, Error, Farewell, Leader};
use crate::identity::Identity;
use crate::name::Name;

/// Where the desk lies.
const ANNOTATION: &str = "incumbent.dev/desk";

/// A Lease and its desk.
#[derive(Clone, Debug)]
pub(super) struct Record {
    lease: Lease,
    pub(super) desk: Desk,
}

/// What changes with every sign of life of the holder, and with nothing else: a wish in the annotation must not keep a dead holder in office.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Mark {
    uid: Option<String>,
    spec: LeaseSpec,
    beat: u64,
}

/// What others may want to hear of: all but signs of life.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Scene {
    uid: Option<String>,
    holder: Option<String>,
    desk: Desk,
}

impl Record {
    /// One that is not there yet.
    pub(super) fn new(election: &Name) -> Record {
        let mut lease = Lease::default();
        lease.metadata.name = Some(election.as_str().to_owned());
        let mut record = Record { lease, desk: Desk::default() };
        record.leave_empty();
        record
    }

    pub(super) fn read(mut lease: Lease) -> Result<Record, Error> {
        // Who wrote which field is the server's business, and long.
        lease.metadata.managed_fields = None;
        let text = lease.metadata.annotations.as_ref().and_then(|it| it.get(ANNOTATION));
        let desk = match text {
            Some(text) => Desk::read(text.as_bytes()).map_err(|why| why.during(&format!("the annotation {ANNOTATION}")))?,
            None => Desk::default(),
        };
        Ok(Record { lease, desk })
    }

    /// The Lease to write: with the version and the uid it was read with, so that nothing else is overwritten and nothing deleted comes back.
    pub(super) fn into_lease(mut self) -> Lease {
        self.lease.metadata.annotations.get_or_insert_default().insert(ANNOTATION.to_owned(), self.desk.write());
        self.lease
    }

    /// In which it was read.
    pub(super) fn version(&self) -> Option<String> {
        self.lease.metadata.resource_version.clone()
    }

    pub(super) fn mark(&self) -> Mark {
        let beat = self.desk.holder.as_ref().map_or(0, |it| it.beat);
        Mark { uid: self.lease.metadata.uid.clone(), spec: self.lease.spec.clone().unwrap_or_default(), beat }
    }

    pub(super) fn scene(&self) -> Scene {
        let mut desk = self.desk.clone();
        if let Some(holder) = &mut desk.holder {
            holder.beat = 0;
        }
        Scene { uid: self.lease.metadata.uid.clone(), holder: self.holder().map(str::to_owned), desk }
    }

    /// Who holds it, ours or not.
    pub(super) fn holder(&self) -> Option<&str> {
        self.lease.spec.as_ref()?.holder_identity.as_deref().filter(|it| !it.is_empty())
    }

    /// The holder, if it is one of ours.
    pub(super) fn ours(&self) -> Option<&Holder> {
        self.desk.holder.as_ref().filter(|it| Some(it.identity.as_str()) == self.holder())
    }

    /// The seat of this leadership, if it has it.
    pub(super) fn seat_of(&mut self, identity: &Identity, token: Token) -> Option<&mut Holder> {
        self.ours()?;
        self.desk.holder.as_mut().filter(|it| it.identity == *identity && it.token == token)
    }

    /// How long the holder's silence must last; `usual` if it does not say. One of ours has written its ttl on the desk as it is: what the Lease says is for others.
    pub(super) fn duration(&self, usual: Duration) -> Duration {
        if let Some(own) = self.ours() {
            return Duration::from_millis(own.ttl_ms);
        }
        let seconds = self.lease.spec.as_ref().and_then(|it| it.lease_duration_seconds);
        seconds.and_then(|it| u64::try_from(it).ok()).map_or(usual, Duration::from_secs)
    }

    fn transitions(&self) -> u64 {
        let counted = self.lease.spec.as_ref().and_then(|it| it.lease_transitions);
        counted.and_then(|it| u64::try_from(it).ok()).unwrap_or(0)
    }

    /// The number of the present or last leadership. Not every client counts (the Python one does not): a stranger that came after one of ours is one more.
    fn term(&self) -> u64 {
        let known = [self.desk.holder.as_ref().map(|it| it.token), self.desk.past.first().map(|it| it.token)];
        let known = known.into_iter().flatten().map(|it| it.get() & Term::MAX.0).max().unwrap_or(0);
        let counted = self.transitions();
        // Ours leave nobody on the desk when they release: somebody has been there since.
        let stranger = self.ours().is_none() && (self.holder().is_some() || self.desk.holder.is_some());
        if stranger && counted <= known { known + 1 } else { counted.max(known) }
    }

    /// The holder as it is told, if it is not one of ours.
    fn stranger(&self) -> Option<Holder> {
        let holder = self.holder().filter(|_| self.ours().is_none())?;
        let since = self.lease.spec.as_ref().and_then(|it| it.acquire_time.as_ref()).map_or(0, |it| it.0.as_millisecond());
        Some(Holder {
            identity: Identity::stored(holder),
            token: Token::new(self.desk.incarnation, Term(self.term()))?,
            value: String::new(),
            priority: 0,
            ttl_ms: whole_ms(self.duration(Duration::ZERO)),
            since_ms: u64::try_from(since).unwrap_or(0),
            beat: 0,
            renewed_ms: None,
        })
    }

    pub(super) fn leader(&self) -> Option<Leader> {
        match self.ours() {
            Some(own) => Some(own.leader()),
            None => self.stranger().map(|it| Leader { heeds_wishes: false, ..it.leader() }),
        }
    }

    /// Whoever is there has left without a word: a ttl after its last sign of life, if that is dated.
    pub(super) fn bury(&mut self) {
        let ms_of = |it: Option<&MicroTime>| it.and_then(|it| u64::try_from(it.0.as_millisecond()).ok());
        let spec = self.lease.spec.as_ref();
        let renewed_ms = ms_of(spec.and_then(|it| it.renew_time.as_ref()));
        let acquired_ms = ms_of(spec.and_then(|it| it.acquire_time.as_ref()));
        let (stranger, is_ours) = (self.stranger(), self.ours().is_some());
        match self.desk.holder.take() {
            Some(former) if is_ours => self.desk.lapse(Holder { renewed_ms, ..former }),
            // Somebody else has been there since. It had ended by then.
            Some(former) => self.desk.remember_until(former, LAPSED, acquired_ms.unwrap_or(u64::MAX)),
            None => {}
        }
        if let Some(stranger) = stranger {
            self.desk.lapse(Holder { renewed_ms, ..stranger });
        }
    }

    /// Seats the bidder, with a token greater than all before.
    pub(super) fn seat(&mut self, bid: &Bid) -> Result<Token, Error> {
        let term = self.term() + 1;
        let transitions = i32::try_from(term).map_err(|_| {
            Error::misconfigured(format!(
                "leaseTransitions cannot count to {term}: use another election, or delete the Lease and raise its tokens"
            ))
        })?;
        let on_record = self.desk.holder.as_ref().map(|it| it.token).max(self.desk.past.first().map(|it| it.token));
        let token = self.desk.token(term, bid.seen.max(on_record))?;
        self.bury();
        self.desk.seat(bid, token);
        self.desk.note_for(bid, token);
        let now = now();
        let spec = self.lease.spec.get_or_insert_default();
        spec.holder_identity = Some(bid.identity.as_str().to_owned());
        spec.lease_duration_seconds = Some(seconds_for_others(bid.ttl));
        spec.lease_transitions = Some(transitions);
        spec.acquire_time = Some(now.clone());
        spec.renew_time = Some(now);
        Ok(token)
    }

    /// A sign of life.
    pub(super) fn renew(&mut self, ttl: Duration) {
        if let Some(holder) = &mut self.desk.holder {
            holder.beat += 1;
            holder.ttl_ms = whole_ms(ttl);
        }
        let spec = self.lease.spec.get_or_insert_default();
        spec.lease_duration_seconds = Some(seconds_for_others(ttl));
        spec.renew_time = Some(now());
    }

    /// The leadership with this token leaves, as client-go does it. Says whether it was there.
    pub(super) fn leave(&mut self, identity: &Identity, token: Token, farewell: &Farewell) -> bool {
        if self.seat_of(identity, token).is_none() {
            return false;
        }
        self.desk.leave(token, farewell);
        self.leave_empty();
        true
    }

    fn leave_empty(&mut self) {
        let now = now();
        let spec = self.lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        // It must be more than nothing, and nobody has to wait for it.
        spec.lease_duration_seconds = Some(1);
        spec.lease_transitions.get_or_insert(0);
        spec.acquire_time = Some(now.clone());
        spec.renew_time = Some(now);
    }
}

/// The wall clock, for people and for client-go.
fn now() -> MicroTime {
    MicroTime(Timestamp::now())
}

/// How long others shall wait for a sign of life: rounded up, because what is promised must not become shorter on the way, and one second more, because client-go
/// compares times to the second. Two renewals within one look the same to it, and it waits from the earlier.
fn seconds_for_others(ttl: Duration) -> i32 {
    i32::try_from(ttl.as_nanos().div_ceil(1_000_000_000) + 1).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use incumbent_protocol::tenure::Reason;

    use super::*;

    fn bid(name: &str) -> Bid {
        let identity = Identity::named(name).expect("a good name");
        Bid { identity, ttl: Duration::from_millis(2500), value: String::new(), priority: 0, seats: 1, seen: None, note: None }
    }

    fn record() -> Record {
        Record::new(&Name::new("jobs").expect("good"))
    }

    /// Writes as another client does: the spec alone, and the count only if it counts.
    fn taken_by_stranger(record: &mut Record, who: &str, transitions: Option<i32>) {
        let spec = record.lease.spec.as_mut().expect("there");
        spec.holder_identity = Some(who.to_owned());
        spec.lease_transitions = transitions.or(spec.lease_transitions);
    }

    #[test]
    fn every_leadership_has_a_greater_token_whoever_was_in_between() {
        let mut record = record();
        let first = record.seat(&bid("a")).expect("fits");
        // A client that counts, as client-go.
        taken_by_stranger(&mut record, "go", Some(2));
        let seen = record.leader().expect("it leads");
        assert_eq!((seen.identity.as_str(), seen.token.get(), seen.heeds_wishes), ("go", 2, false));
        let second = record.seat(&bid("b")).expect("fits");
        // One that does not, as the Python one.
        taken_by_stranger(&mut record, "python", None);
        let uncounted = record.leader().expect("it leads").token;
        let third = record.seat(&bid("c")).expect("fits");
        assert!(first < seen.token && seen.token < second && second < uncounted && uncounted < third);
        // One that came and went.
        taken_by_stranger(&mut record, "", None);
        let fourth = record.seat(&bid("d")).expect("fits");
        assert!(fourth.get() > third.get() + 1, "somebody has been there since");
        let past: Vec<_> = record.desk.past.iter().map(|it| (it.identity.name().to_owned(), it.token)).collect();
        let expected = [("c", third), ("python", uncounted), ("b", second), ("go", seen.token), ("a", first)];
        assert_eq!(past, expected.map(|(name, token)| (name.to_owned(), token)));
    }

    #[test]
    fn a_release_looks_as_client_go_makes_it_and_the_next_is_one_more() {
        let mut record = record();
        let a = bid("a");
        let token = record.seat(&a).expect("fits");
        let farewell = Farewell { reason: Reason::HandedOver, to: Some("b".into()) };
        assert!(!record.leave(&bid("b").identity, token, &farewell));
        assert!(record.leave(&a.identity, token, &farewell) && !record.leave(&a.identity, token, &farewell));
        let spec = record.lease.spec.clone().expect("there");
        assert_eq!(
            (spec.holder_identity.as_deref(), spec.lease_duration_seconds, spec.lease_transitions),
            (Some(""), Some(1), Some(1))
        );
        assert!(record.leader().is_none() && record.desk.is_kept_from(&a.identity));
        assert_eq!(record.seat(&a).expect("fits").get(), token.get() + 1, "even by the same");
    }

    #[test]
    fn only_signs_of_life_change_the_mark_and_they_always_do() {
        let mut record = record();
        record.seat(&bid("a")).expect("fits");
        let (mark, scene) = (record.mark(), record.scene());
        let token = record.ours().expect("seated").token;
        record.desk.ask(&crate::engine::Wish { token, what: crate::engine::Demand::Evict, by: "me".into() }).expect("in office");
        assert!(record.mark() == mark && record.scene() != scene);
        let scene = record.scene();
        record.renew(bid("a").ttl);
        // Even if the wall clock stands still.
        record.lease.spec.as_mut().expect("there").renew_time = mark.spec.renew_time.clone();
        assert!(record.mark() != mark && record.scene() == scene);
    }

    /// A candidate as client-go's: it looks often, compares times to the second, and waits for what the Lease says since it saw the last change.
    struct Go {
        seen: (Option<String>, String, i32),
        since_ms: i64,
    }

    impl Go {
        fn sees(record: &Record) -> (Option<String>, String, i32) {
            let spec = record.lease.spec.as_ref().expect("there");
            let renewed = spec.renew_time.as_ref().expect("there").0;
            (spec.holder_identity.clone(), renewed.as_second().to_string(), spec.lease_duration_seconds.expect("there"))
        }

        fn takes_over(&mut self, record: &Record, now_ms: i64) -> bool {
            let sees = Go::sees(record);
            if self.seen != sees {
                (self.seen, self.since_ms) = (sees, now_ms);
            }
            now_ms >= self.since_ms + i64::from(self.seen.2) * 1000
        }
    }

    #[test]
    fn client_go_takes_over_after_our_deadline_although_it_cannot_tell_renewals_of_one_second_apart() {
        for ttl_ms in [1000, 1900, 2500] {
            let ttl = Duration::from_millis(ttl_ms);
            let at = |ms| MicroTime(Timestamp::from_millisecond(ms).expect("after 1970"));
            let mut record = record();
            record.seat(&Bid { ttl, ..bid("a") }).expect("fits");
            let (first, last) = (1_700_000_000_010, 1_700_000_000_990);
            let mut go = Go { seen: (None, String::new(), 0), since_ms: 0 };
            let taken = (first..).step_by(10).find(|&now| {
                // Ours renews all the time within one second, and then no more.
                if now <= last {
                    record.renew(ttl);
                    record.lease.spec.as_mut().expect("there").renew_time = Some(at(now));
                }
                go.takes_over(&record, now)
            });
            let deadline = last + i64::try_from(ttl_ms).expect("small");
            let taken = taken.expect("in the end");
            assert!(taken >= deadline && taken < deadline + 2000, "{taken} with a deadline of {deadline}");
        }
    }

    #[test]
    fn a_silent_holder_has_led_until_a_ttl_after_its_last_renewal() {
        let at = |second| Some(MicroTime(Timestamp::from_second(second).expect("fits")));
        let dated = |record: &mut Record, acquired, renewed| {
            let spec = record.lease.spec.as_mut().expect("there");
            (spec.acquire_time, spec.renew_time) = (at(acquired), at(renewed));
        };
        let mut record = record();
        record.seat(&bid("a")).expect("fits");
        record.desk.holder.as_mut().expect("seated").since_ms = 1000;
        dated(&mut record, 1, 9);
        record.seat(&bid("b")).expect("fits");
        assert_eq!(record.desk.past[0].until_ms, 11_500);
        // One of ours that others have followed: nobody knows better than that it had ended by then.
        record.desk.holder.as_mut().expect("seated").since_ms = 20_000;
        taken_by_stranger(&mut record, "go", Some(3));
        dated(&mut record, 30, 40);
        record.seat(&bid("c")).expect("fits");
        let past: Vec<_> = record.desk.past.iter().map(|it| (it.identity.name(), it.until_ms)).collect();
        assert_eq!(past, [("go", 44_000), ("b", 30_000), ("a", 11_500)], "a stranger's lease has four seconds");
    }

    #[test]
    fn a_ttl_is_whole_seconds_to_others_and_itself_to_ours_and_a_desk_survives_the_way() {
        let mut record = record();
        record.seat(&bid("a")).expect("fits");
        assert_eq!(record.duration(Duration::ZERO), Duration::from_millis(2500));
        taken_by_stranger(&mut record, "go", None);
        assert_eq!(record.duration(Duration::ZERO), Duration::from_secs(4), "2.5 rounded up, and one more");
        let again = Record::read(record.clone().into_lease()).expect("our own");
        assert_eq!(again.desk, record.desk);
        let mut lease = record.into_lease();
        lease.metadata.annotations.as_mut().expect("there").insert(ANNOTATION.into(), "garbage".into());
        assert!(Record::read(lease).expect_err("no desk").to_string().contains(ANNOTATION));
    }

    #[test]
    fn a_count_that_does_not_fit_is_refused_and_memory_that_was_lost_raises_the_incarnation() {
        let mut record = record();
        taken_by_stranger(&mut record, "go", Some(i32::MAX));
        assert!(record.seat(&bid("a")).is_err());
        let mut record = self::record();
        let seen = Token::new(0, Term(40));
        assert_eq!(record.seat(&Bid { seen, ..bid("a") }).expect("fits"), Token::new(1, Term(1)).expect("fits"));
    }
}
