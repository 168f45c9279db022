//! The tenure, rule by rule.

use alloc::vec::Vec;
use core::time::Duration;

use super::*;
use crate::protocol::Term;

/// Ten seconds: validity 9.79 s, renew 2.5, timeout 1, retry 0.25 to 0.375, jeopardy 5, stop 7.29, kill 9.29, poll 2.5 to 3.75, rest 10.
pub(super) const TTL: Duration = Duration::from_secs(10);
const VALIDITY_MS: u64 = 9_790;

fn ms(at: u64) -> Instant {
    Instant::from_nanos(at * 1_000_000)
}

pub(super) fn token(term: u64) -> Token {
    Token::new(1, Term(term)).unwrap()
}

fn granted(term: u64) -> Outcome {
    Outcome::Granted { token: token(term), ttl: None, counted_from: None }
}

const OCCUPIED: Outcome = Outcome::Occupied { token: None, free_in: None };

/// A machine with its driver's hands: what it asked for and what it said.
struct Bench {
    tenure: Tenure,
    now: u64,
    /// The last call.
    call: Option<(CallId, Call)>,
    /// What it said since that was last read, and when.
    events: Vec<(u64, Event)>,
}

impl Bench {
    fn new() -> Bench {
        // The validity is rounded to whole milliseconds so that the tests can say when it ends.
        let timing = Timing::of(TTL).guard(Duration::from_nanos(200_004_997)).build().unwrap();
        Bench { tenure: Tenure::start(timing, 1, None, ms(0)), now: 0, call: None, events: Vec::new() }
    }

    /// A machine that was granted term 1 by a claim sent at 0 and answered at 10.
    fn in_office() -> Bench {
        let mut it = Bench::new();
        it.request(0, Request::Contend);
        it.answer(10, granted(1));
        assert_eq!(it.events(), [Event::Elected { token: token(1), until: ms(VALIDITY_MS) }]);
        it
    }

    fn step(&mut self, at: u64, input: Input) {
        self.now = at;
        let mut out = Vec::new();
        self.tenure.step(ms(at), input, &mut out);
        for effect in out {
            match effect {
                Effect::Call { id, call, .. } => self.call = Some((id, call)),
                Effect::Emit(event) => self.events.push((at, event)),
            }
        }
    }

    fn request(&mut self, at: u64, request: Request) {
        self.step(at, Input::Request(request));
    }

    fn work_ended(&mut self, at: u64, term: u64) {
        self.step(at, Input::WorkEnded { token: token(term) });
    }

    /// Answers the last call.
    fn answer(&mut self, at: u64, outcome: Outcome) {
        let (call, _) = self.call.take().expect("no call to answer");
        self.step(at, Input::Answer { call, outcome });
    }

    fn answer_to(&mut self, at: u64, call: CallId, outcome: Outcome) {
        self.step(at, Input::Answer { call, outcome });
    }

    /// Wakes the machine whenever it wants to be, until it calls or `end` has come; what it calls.
    fn wait(&mut self, end: u64) -> Option<Call> {
        self.call = None;
        while self.call.is_none() && self.tenure.deadline() <= ms(end) {
            let at = self.tenure.deadline();
            // Whole milliseconds, rounded up, so that no wake-up is early.
            self.step(at.as_nanos().div_ceil(1_000_000), Input::Wake);
        }
        if self.call.is_none() {
            self.now = end;
        }
        self.asked()
    }

    fn asked(&self) -> Option<Call> {
        self.call.map(|(_, call)| call)
    }

    fn events(&mut self) -> Vec<Event> {
        self.events.drain(..).map(|(_, event)| event).collect()
    }

    fn state(&self) -> State {
        self.tenure.state(ms(self.now))
    }
}

pub(super) fn until(event: &Event) -> Option<Instant> {
    match event {
        Event::Elected { until, .. } | Event::Renewed { until } => Some(*until),
        Event::Jeopardy { .. }
        | Event::Recovered { .. }
        | Event::Stopping { .. }
        | Event::Kill { .. }
        | Event::Lost { .. }
        | Event::Released { .. }
        | Event::NotReleased { .. }
        | Event::Declined { .. }
        | Event::Withdrawn => None,
    }
}

#[test]
fn validity_counts_from_the_send_not_from_the_answer() {
    let mut it = Bench::new();
    it.request(100, Request::Contend);
    it.answer(900, granted(1));
    assert_eq!(it.events(), [Event::Elected { token: token(1), until: ms(100 + VALIDITY_MS) }]);
    assert_eq!(it.wait(10_000), Some(Call::Renew { token: token(1) }));
    assert_eq!(it.now, 2_600);
    it.answer(3_500, granted(1));
    assert_eq!(it.events(), [Event::Renewed { until: ms(2_600 + VALIDITY_MS) }]);
    // The next is due from the send, too.
    assert_eq!(it.wait(10_000), Some(Call::Renew { token: token(1) }));
    assert_eq!(it.now, 5_100);
}

#[test]
fn a_renewal_that_is_answered_after_its_timeout_still_counts_from_its_send() {
    let mut it = Bench::in_office();
    it.wait(5_000);
    let (late, _) = it.call.unwrap();
    assert_eq!(it.wait(5_000), Some(Call::Renew { token: token(1) }), "no retry");
    assert!((3_750..=3_876).contains(&it.now), "{}", it.now);
    it.answer_to(4_000, late, granted(1));
    assert_eq!(it.events(), [Event::Renewed { until: ms(2_500 + VALIDITY_MS) }]);
    // The retry is still waited for, and counts from its own send.
    let sent = it.now.min(3_876);
    it.answer(4_100, granted(1));
    let [Event::Renewed { until }] = it.events()[..] else { panic!() };
    assert!(until > ms(2_500 + VALIDITY_MS) && until <= ms(sent + VALIDITY_MS));
}

#[test]
fn a_late_grant_is_not_entered_but_released() {
    let mut it = Bench::new();
    it.request(0, Request::Contend);
    let (claim, _) = it.call.unwrap();
    it.answer_to(7_290, claim, granted(1));
    assert_eq!(it.events(), [Event::Declined { token: token(1), why: Decline::TooLate }]);
    assert_eq!(it.asked(), Some(Call::Release { token: token(1), reason: Reason::Declined }));
    it.answer(7_300, Outcome::Vacant);
    it.wait(10_000);
    it.answer(it.now, granted(1));
    assert_eq!(it.events().last(), Some(&Event::Declined { token: token(1), why: Decline::Leftover }), "given back, yet entered");
    // A moment earlier there was just time enough.
    let mut it = Bench::new();
    it.request(0, Request::Contend);
    it.answer(7_289, granted(1));
    assert_eq!(it.events().first(), Some(&Event::Elected { token: token(1), until: ms(VALIDITY_MS) }));
}

#[test]
fn an_unknown_claim_is_resolved_by_asking_and_renewed_before_it_is_believed() {
    let mut it = Bench::new();
    it.request(0, Request::Contend);
    assert_eq!(it.wait(5_000), Some(Call::Inquire));
    assert!((1_250..=1_376).contains(&it.now), "{}", it.now);
    it.answer(1_400, Outcome::Held { token: token(1) });
    assert_eq!(it.asked(), Some(Call::Renew { token: token(1) }));
    assert_eq!((it.state(), it.events()), (State::Contending, Vec::new()));
    it.answer(1_500, granted(1));
    assert_eq!(it.events(), [Event::Elected { token: token(1), until: ms(1_400 + VALIDITY_MS) }]);
}

#[test]
fn an_unknown_claim_may_be_resolved_by_an_inquiry_that_renews_or_by_its_own_late_answer() {
    let mut it = Bench::new();
    it.request(0, Request::Contend);
    let (claim, _) = it.call.unwrap();
    it.answer_to(500, claim, Outcome::Unknown);
    it.wait(5_000);
    let asked_at = it.now;
    let mut other = Bench { tenure: it.tenure.clone(), now: it.now, call: it.call, events: Vec::new() };
    it.answer(1_000, granted(1));
    assert_eq!(it.events(), [Event::Elected { token: token(1), until: ms(asked_at + VALIDITY_MS) }]);

    other.answer_to(1_000, claim, granted(1));
    assert_eq!(other.events(), [Event::Elected { token: token(1), until: ms(VALIDITY_MS) }]);
    // The inquiry was overtaken: what it finds does not end the leadership.
    other.answer(1_100, Outcome::Vacant);
    assert_eq!(other.state(), State::Held { token: token(1), until: ms(VALIDITY_MS) });
}

#[test]
fn an_unknown_claim_that_was_not_granted_is_claimed_again() {
    for (found, soonest, latest) in [(Outcome::Vacant, 0, 0), (OCCUPIED, 2_500, 3_750)] {
        let mut it = Bench::new();
        it.request(0, Request::Contend);
        it.wait(5_000);
        let asked_at = it.now;
        it.answer(asked_at, found);
        if it.asked().is_none() {
            it.wait(10_000);
        }
        assert_eq!(it.asked(), Some(Call::Claim), "{found:?}");
        assert!((asked_at + soonest..=asked_at + latest + 1).contains(&it.now), "{found:?} {}", it.now);
    }
    // Nobody answers at all: it goes on asking, and never claims on a guess.
    let mut it = Bench::new();
    it.request(0, Request::Contend);
    for _ in 0..20 {
        assert_eq!(it.wait(200_000), Some(Call::Inquire));
    }
}

#[test]
fn after_a_failure_it_retries_fast_then_warns_then_recovers() {
    let mut it = Bench::in_office();
    let mut tries = Vec::new();
    while it.now < 5_500 {
        it.wait(5_500);
        tries.push(it.now);
    }
    // At 2.5 s, then after each timeout of 1 s and a jittered wait.
    assert_eq!(tries.len(), 4, "{tries:?}");
    assert_eq!(it.events(), [Event::Jeopardy { until: ms(VALIDITY_MS) }]);
    assert_eq!(it.state(), State::Jeopardy { token: token(1), until: ms(VALIDITY_MS) });
    it.wait(7_000);
    let sent = it.now;
    it.answer(sent + 10, granted(1));
    let until = ms(sent + VALIDITY_MS);
    assert_eq!(it.events(), [Event::Renewed { until }, Event::Recovered { until }]);
    assert_eq!(it.state(), State::Held { token: token(1), until });
    it.wait(20_000);
    assert_eq!(it.now, sent + 2_500, "calm again");
}

#[test]
fn without_renewals_it_stops_kills_and_is_lost_at_its_marks_and_releases_only_after_the_work_has_ended() {
    let mut it = Bench::in_office();
    while it.now < 15_000 {
        let call = it.wait(15_000);
        assert!(call.is_none_or(|call| call == Call::Renew { token: token(1) }), "{call:?}");
    }
    let end = ms(VALIDITY_MS);
    assert_eq!(
        core::mem::take(&mut it.events),
        [
            (5_000, Event::Jeopardy { until: end }),
            (7_290, Event::Stopping { reason: Reason::Expired, until: end }),
            (9_290, Event::Kill { until: end }),
            (9_790, Event::Lost { token: token(1), reason: Reason::Expired }),
        ]
    );
    assert_eq!(it.state(), State::Lost { token: token(1) });
    it.work_ended(16_000, 7);
    assert_eq!(it.asked(), None, "another leadership's work");
    it.work_ended(16_000, 1);
    assert_eq!(it.asked(), Some(Call::Release { token: token(1), reason: Reason::Expired }));
    it.answer(16_010, Outcome::Vacant);
    assert_eq!(it.events(), [Event::Released { token: token(1) }]);
    assert_eq!(it.wait(17_000), Some(Call::Claim), "it contends again by itself");
}

#[test]
fn a_stop_is_final_but_renewals_go_on_to_give_the_work_time() {
    let mut it = Bench::in_office();
    while it.tenure.deadline() < ms(7_290) {
        it.wait(7_289);
    }
    it.wait(7_400);
    let (renewal, _) = it.call.unwrap_or((CallId(it.tenure.next_id - 1), Call::Claim));
    it.events();
    it.answer_to(7_400, renewal, granted(1));
    assert!(matches!(it.events()[..], [Event::Renewed { .. }]));
    assert!(matches!(it.state(), State::Stopping { .. }));
    it.work_ended(7_500, 1);
    assert_eq!(it.events(), [Event::Lost { token: token(1), reason: Reason::Expired }]);
    assert_eq!(it.asked(), Some(Call::Release { token: token(1), reason: Reason::Expired }));
}

#[test]
fn who_resigns_stops_first_then_releases_then_rests() {
    for (request, reason) in [(Request::Resign, Reason::Resigned), (Request::HandOver, Reason::HandedOver)] {
        let mut it = Bench::in_office();
        it.call = None;
        it.request(1_000, request);
        assert_eq!(it.events(), [Event::Stopping { reason, until: ms(VALIDITY_MS) }]);
        assert_eq!(it.asked(), None, "released before the work has ended");
        // The work takes its time, so the seat is kept; but not for ever: it was promised 2 s.
        assert_eq!(it.wait(2_999), Some(Call::Renew { token: token(1) }));
        it.answer(2_600, granted(1));
        assert_eq!(it.wait(3_000), None);
        assert_eq!(it.events().last(), Some(&Event::Kill { until: ms(2_500 + VALIDITY_MS) }));
        it.work_ended(3_100, 1);
        assert_eq!(it.events(), [Event::Lost { token: token(1), reason }]);
        assert_eq!(it.asked(), Some(Call::Release { token: token(1), reason }));
        it.answer(3_200, Outcome::Vacant);
        it.step(3_300, Input::Hint);
        assert_eq!(it.asked(), None, "took the seat that it has just given to others");
        assert_eq!(it.wait(30_000), Some(Call::Claim));
        assert_eq!(it.now, 13_200);
    }
}

#[test]
fn work_that_ends_by_itself_gives_the_seat_back_at_once() {
    let mut it = Bench::in_office();
    it.wait(2_500);
    assert_eq!(it.asked(), Some(Call::Renew { token: token(1) }));
    // C82. The release does not wait for the renewal that is under way.
    it.work_ended(2_600, 1);
    assert_eq!(it.asked(), Some(Call::Release { token: token(1), reason: Reason::Finished }));
    assert_eq!(it.events(), [Event::Lost { token: token(1), reason: Reason::Finished }]);
}

#[test]
fn one_whose_renewal_finds_the_seat_gone_is_out_at_once_and_gives_nothing_back() {
    for outcome in [OCCUPIED, Outcome::Vacant, granted(9)] {
        for late in [false, true] {
            let mut it = Bench::in_office();
            it.wait(5_000);
            let (renewal, _) = it.call.unwrap();
            if late {
                it.wait(5_000);
            }
            it.call = None;
            it.answer_to(5_000, renewal, outcome);
            assert_eq!(it.events().last(), Some(&Event::Lost { token: token(1), reason: Reason::Superseded }));
            assert_eq!(it.wait(60_000), None, "contends while the work runs");
            it.work_ended(60_000, 1);
            assert_eq!(it.asked(), None);
            assert_eq!(it.wait(70_000), Some(Call::Claim));
        }
    }
}

#[test]
fn a_refused_or_fruitless_renewal_costs_nothing_yet() {
    for outcome in [Outcome::Refused, Outcome::Unknown, Outcome::Held { token: token(1) }] {
        let mut it = Bench::in_office();
        it.wait(5_000);
        it.answer(2_510, outcome);
        assert_eq!(it.state(), State::Held { token: token(1), until: ms(VALIDITY_MS) });
        assert_eq!(it.wait(5_000), Some(Call::Renew { token: token(1) }));
        assert!((2_760..=2_886).contains(&it.now), "{}", it.now);
    }
}

#[test]
fn a_token_that_is_not_greater_than_all_before_is_not_entered() {
    for (term, why) in [(5, Decline::Leftover), (4, Decline::Regressed { seen: token(5) })] {
        for outcome in [granted(term), Outcome::Held { token: token(term) }] {
            let timing = Timing::of(TTL).build().unwrap();
            let tenure = Tenure::start(timing, 1, Some(token(5)), ms(0));
            let mut it = Bench { tenure, ..Bench::new() };
            it.request(0, Request::Contend);
            it.answer(10, outcome);
            assert_eq!(it.events(), [Event::Declined { token: token(term), why }]);
            assert_eq!(it.asked(), Some(Call::Release { token: token(term), reason: Reason::Declined }));
        }
    }
    // What is seen of others counts, too.
    let mut it = Bench::new();
    it.request(0, Request::Contend);
    it.answer(10, Outcome::Occupied { token: Some(token(8)), free_in: None });
    it.wait(10_000);
    it.answer(it.now, granted(8));
    assert!(matches!(it.events()[..], [Event::Declined { .. }]));
}

#[test]
fn one_that_withdraws_first_finds_out_what_became_of_its_claim() {
    // Not granted: done.
    let mut it = Bench::new();
    it.request(0, Request::Contend);
    it.request(5, Request::Withdraw);
    assert_eq!((it.events(), it.state()), (Vec::new(), State::Contending));
    it.answer(10, OCCUPIED);
    assert_eq!((it.events(), it.state()), (Vec::from([Event::Withdrawn]), State::Idle));
    assert_eq!(it.wait(1_000_000), None);
    // Granted: given back.
    let mut it = Bench::new();
    it.request(0, Request::Contend);
    it.request(5, Request::HealthFailed);
    it.answer(10, granted(1));
    assert_eq!(it.events(), [Event::Declined { token: token(1), why: Decline::Unwanted }]);
    it.answer(20, Outcome::Vacant);
    assert_eq!(it.events(), [Event::Released { token: token(1) }, Event::Withdrawn]);
    // Unknown: asked for, but not for ever. Should it turn up later, it is given back then.
    let mut it = Bench::new();
    it.request(0, Request::Contend);
    let (claim, _) = it.call.unwrap();
    it.request(5, Request::Withdraw);
    let asked = core::iter::from_fn(|| it.wait(100_000)).count();
    assert_eq!(asked as u32, LETTING_GO_TRIES_MAX - 1);
    assert_eq!((it.events(), it.state()), (Vec::from([Event::Withdrawn]), State::Idle));
    it.answer_to(100_000, claim, granted(1));
    assert_eq!(it.asked(), Some(Call::Release { token: token(1), reason: Reason::Declined }));
}

#[test]
fn one_in_office_that_withdraws_stops_releases_and_stays_out() {
    for (request, reason) in [(Request::Withdraw, Reason::Resigned), (Request::HealthFailed, Reason::HealthFailed)] {
        let mut it = Bench::in_office();
        it.request(1_000, request);
        assert_eq!(it.events(), [Event::Stopping { reason, until: ms(VALIDITY_MS) }]);
        it.work_ended(1_100, 1);
        it.answer(1_200, Outcome::Vacant);
        let told = [Event::Lost { token: token(1), reason }, Event::Released { token: token(1) }, Event::Withdrawn];
        assert_eq!(it.events(), told);
        assert_eq!(it.wait(1_000_000), None);
        it.request(1_000_000, Request::Contend);
        assert_eq!(it.asked(), Some(Call::Claim));
    }
}

#[test]
fn a_release_is_tried_a_few_times_and_then_left_to_the_ttl() {
    let mut it = Bench::in_office();
    it.work_ended(100, 1);
    it.events();
    let mut tries = 1;
    while it.wait(60_000) == Some(Call::Release { token: token(1), reason: Reason::Finished }) {
        tries += 1;
    }
    assert_eq!(tries, LETTING_GO_TRIES_MAX);
    assert_eq!(it.events(), [Event::NotReleased { token: token(1) }]);
    assert_eq!(it.asked(), Some(Call::Claim));
    // The seat is still ours at the service: given back again, not entered again.
    it.answer(it.now, Outcome::Held { token: token(1) });
    assert_eq!(it.events(), [Event::Declined { token: token(1), why: Decline::Leftover }]);
}

#[test]
fn one_that_withdraws_waits_for_a_silent_service_no_longer_than_some_seconds() {
    let long = |seed| {
        let timing = Timing::of(TTL * 60).build().unwrap();
        Bench { tenure: Tenure::start(timing, seed, None, ms(0)), now: 0, call: None, events: Vec::new() }
    };
    for seed in 0..20 {
        // Its claim has its time to be answered, and is not asked for any more.
        let mut it = long(seed);
        it.request(0, Request::Contend);
        it.request(5, Request::Withdraw);
        while it.wait(1_000_000).is_some() {}
        let ended = it.events.pop().unwrap();
        assert_eq!(ended.1, Event::Withdrawn);
        assert_eq!(ended.0, TTL.as_millis() as u64 * 6);
        // The release is not answered. The time that the work takes to end does not count.
        let mut it = long(seed);
        it.request(0, Request::Contend);
        it.answer(10, granted(1));
        it.request(1_000, Request::Withdraw);
        it.work_ended(20_000, 1);
        while it.wait(1_000_000).is_some() {}
        let (ended, told) = (it.events.pop().unwrap(), it.events.pop().unwrap());
        assert_eq!((ended.1, told.1), (Event::Withdrawn, Event::NotReleased { token: token(1) }));
        assert!(ended.0 <= 20_000 + LETTING_GO_MAX.as_millis() as u64, "{ended:?}");
    }
    // One that is not fit does not end, and goes on trying.
    let mut it = long(1);
    it.request(0, Request::Contend);
    it.answer(10, granted(1));
    it.request(1_000, Request::HealthFailed);
    it.work_ended(20_000, 1);
    while it.wait(1_000_000).is_some() {}
    assert!(it.events.pop().unwrap().0 > 20_000 + LETTING_GO_MAX.as_millis() as u64);
}

#[test]
fn an_answer_cannot_bring_back_what_has_expired_but_can_save_what_has_not() {
    // C13: paused across the deadline; the answer has been waiting in a buffer.
    let mut it = Bench::in_office();
    it.wait(5_000);
    it.answer(9_790, granted(1));
    assert_eq!(it.events().first(), Some(&Event::Lost { token: token(1), reason: Reason::Expired }));
    assert_eq!(it.state(), State::Lost { token: token(1) });
    // Paused across the stop mark only.
    let mut it = Bench::in_office();
    it.wait(5_000);
    it.answer(9_789, granted(1));
    assert!(!it.events().iter().any(|event| matches!(event, Event::Lost { .. })));
    // Not woken at all, the state is right all the same.
    let it = Bench::in_office();
    let at = |at| it.tenure.state(ms(at));
    let (token, until) = (token(1), ms(VALIDITY_MS));
    assert_eq!(at(4_999), State::Held { token, until });
    assert_eq!(at(5_000), State::Jeopardy { token, until });
    assert_eq!(at(7_290), State::Stopping { token, until });
    assert_eq!(at(9_790), State::Lost { token });
}

#[test]
fn hints_bring_the_claim_forward_but_make_no_storm() {
    let mut it = Bench::new();
    it.request(0, Request::Contend);
    it.answer(10, OCCUPIED);
    it.step(20, Input::Hint);
    let mut claims = 0;
    for at in 20..5_020 {
        it.step(at, Input::Hint);
        if it.call.is_some() {
            claims += 1;
            it.answer(at, OCCUPIED);
        }
    }
    // One at once, then at most one in a retry of 250 ms; at least one in the longest of 375 ms and a bit.
    assert!((13..=20).contains(&claims), "{claims}");
    // A hint that comes while a claim is under way is not lost.
    let mut it = Bench::new();
    it.request(0, Request::Contend);
    it.step(5, Input::Hint);
    it.answer(10, OCCUPIED);
    assert_eq!(it.call.map(|(_, call)| call), Some(Call::Claim), "followed at once, the first time");
    it.step(15, Input::Hint);
    it.answer(20, OCCUPIED);
    it.wait(10_000);
    assert!((270..=396).contains(&it.now), "{}", it.now);
}

#[test]
fn a_service_that_says_when_the_seat_is_free_is_asked_then() {
    for (free_in, soonest, latest) in [(0, 250, 376), (1_000, 1_000, 1_501), (60_000, 2_500, 3_751)] {
        let mut it = Bench::new();
        it.request(0, Request::Contend);
        it.answer(0, Outcome::Occupied { token: None, free_in: Some(Duration::from_millis(free_in)) });
        assert_eq!(it.wait(10_000), Some(Call::Claim));
        assert!((soonest..=latest).contains(&it.now), "{free_in}: {}", it.now);
    }
}

#[test]
fn waits_double_while_the_service_refuses_up_to_a_poll() {
    let mut it = Bench::new();
    it.request(0, Request::Contend);
    let mut shortest = 250;
    for _ in 0..40 {
        let before = it.now;
        it.answer(before, Outcome::Refused);
        assert_eq!(it.wait(1_000_000), Some(Call::Claim));
        assert!((shortest..=shortest * 3 / 2 + 1).contains(&(it.now - before)), "{} {shortest}", it.now - before);
        shortest = (shortest * 2).min(2_500);
    }
}

#[test]
fn the_ttl_that_the_service_keeps_is_the_one_that_counts() {
    let with = |secs| Outcome::Granted { token: token(1), ttl: Some(Duration::from_secs(secs)), counted_from: None };
    for (secs, end) in [(6, 5_794), (20, 19_780)] {
        let mut it = Bench::new();
        it.request(0, Request::Contend);
        it.answer(10, with(secs));
        let elected = it.events();
        let until = until(&elected[0]).unwrap();
        assert!(ms(end - 1) <= until && until <= ms(end + 1), "{until}");
        it.wait(10_000);
        // 5.794 s less 2.5 s for stopping, halved: sooner than planned.
        assert_eq!(it.now, if secs == 6 { 1_647 } else { 2_500 });
    }
    // Too short to stop in: declined. Cut short later: stopped, or lost, at once.
    let mut it = Bench::new();
    it.request(0, Request::Contend);
    it.answer(10, with(2));
    assert_eq!(it.events(), [Event::Declined { token: token(1), why: Decline::TooLate }]);
    let mut it = Bench::in_office();
    it.wait(5_000);
    it.answer(2_600, with(0));
    assert_eq!(it.events().last(), Some(&Event::Lost { token: token(1), reason: Reason::Expired }));
}

#[test]
fn repeated_and_foreign_answers_change_nothing() {
    let mut it = Bench::in_office();
    let before = it.tenure.clone();
    for id in [0, 1, 2, u64::MAX] {
        for outcome in [granted(1), granted(2), OCCUPIED, Outcome::Vacant, Outcome::Unknown] {
            it.answer_to(10, CallId(id), outcome);
        }
    }
    assert_eq!(alloc::format!("{:?}", it.tenure), alloc::format!("{before:?}"));
    assert_eq!(it.events(), []);
    // What is over is over: a renewal acknowledged after the release neither undoes it nor calls for another.
    it.wait(5_000);
    let (first, _) = it.call.unwrap();
    it.wait(5_000);
    let (second, _) = it.call.unwrap();
    it.request(4_000, Request::Withdraw);
    it.work_ended(4_100, 1);
    it.events();
    it.answer_to(4_200, first, Outcome::Vacant);
    assert_eq!((it.events(), it.state()), (Vec::new(), State::Releasing { token: token(1) }));
    it.answer(4_300, Outcome::Vacant);
    it.answer_to(4_400, second, granted(1));
    assert_eq!((it.asked(), it.state()), (None, State::Idle));
}

#[test]
fn acknowledgements_out_of_order_never_take_validity_back() {
    let mut it = Bench::in_office();
    it.wait(5_000);
    let (first, _) = it.call.unwrap();
    it.wait(5_000);
    let sent = it.now;
    it.answer(sent + 10, granted(1));
    it.events();
    it.answer_to(sent + 20, first, granted(1));
    assert_eq!(it.events(), []);
    assert_eq!(it.state(), State::Held { token: token(1), until: ms(sent + VALIDITY_MS) });
}

#[test]
fn an_acknowledgement_so_late_that_the_warning_still_stands_does_not_end_it() {
    let mut it = Bench::in_office();
    it.wait(5_000);
    let (first, _) = it.call.unwrap();
    while it.now < 7_000 {
        it.wait(7_000);
    }
    it.events();
    it.answer_to(7_500, first, granted(1));
    assert_eq!(it.events(), [Event::Renewed { until: ms(2_500 + VALIDITY_MS) }]);
    assert!(matches!(it.state(), State::Jeopardy { .. }));
}

#[test]
fn a_shared_keep_alive_counts_from_its_own_send() {
    let mut it = Bench::in_office();
    it.step(2_500, Input::Wake);
    it.answer(2_510, Outcome::Granted { token: token(1), ttl: None, counted_from: Some(ms(2_000)) });
    assert_eq!(it.events(), [Event::Renewed { until: ms(2_000 + VALIDITY_MS) }]);
    assert_eq!(it.tenure.deadline(), ms(4_500), "and so all that share it renew together");
    it.step(4_500, Input::Wake);
    it.answer(4_510, Outcome::Granted { token: token(1), ttl: None, counted_from: Some(ms(1_000)) });
    assert_eq!(it.events(), [], "an older one than the last tells nothing new");
    assert_eq!(it.tenure.deadline(), ms(4_760), "but asks again, as after any other");
    it.step(4_760, Input::Wake);
    let (_, call) = it.call.expect("renews");
    assert_eq!(call, Call::Renew { token: token(1) });
}

#[test]
fn a_hint_in_office_renews_early_but_not_without_end() {
    let mut it = Bench::in_office();
    it.step(100, Input::Hint);
    assert_eq!((it.call.take(), it.tenure.deadline()), (None, ms(250)), "a retry after the last");
    it.step(1_000, Input::Hint);
    let (_, call) = it.call.expect("renews at once");
    assert_eq!(call, Call::Renew { token: token(1) });
    it.step(1_001, Input::Hint);
    assert_eq!(it.tenure.deadline(), ms(2_000), "waits for the answer");
}

#[test]
fn one_that_was_evicted_leaves_the_seat_to_others() {
    let mut it = Bench::in_office();
    it.request(100, Request::Evict);
    it.work_ended(200, 1);
    it.answer(210, Outcome::Vacant);
    assert!(it.events().contains(&Event::Lost { token: token(1), reason: Reason::Evicted }));
    assert_eq!(it.tenure.deadline(), ms(10_210), "rests before it contends again");
}
