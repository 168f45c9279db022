//! The tenure under every order of inputs that chance can think of: whatever comes, no promise is broken and nothing panics.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use super::tests::{TTL, token, until};
use super::*;

/// Any input at any time, including clocks that jump, stand still, or go back, and a service that tells any tale.
struct Storm {
    tenure: Tenure,
    chance: Chance,
    now: Instant,
    /// When each call was sent.
    sends: BTreeMap<CallId, Instant>,
    waiting: Option<(CallId, Call, Instant)>,
    /// The leadership whose work has not ended.
    working: Option<Token>,
    /// Emitted `Elected` and not yet `Lost`.
    in_office: Option<Token>,
    greatest: Option<Token>,
    /// How often what happened.
    tally: BTreeMap<&'static str, u32>,
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let timing = Timing::of(TTL).build().unwrap();
        let mut chance = Chance::new(seed);
        let now =
            Instant::from_nanos(if chance.happens(50_000) { u64::MAX - chance.below(1 << 40) } else { chance.below(1 << 40) });
        let tenure = Tenure::start(timing, seed, None, now);
        let (sends, tally) = (BTreeMap::new(), BTreeMap::new());
        Storm { tenure, chance, now, sends, waiting: None, working: None, in_office: None, greatest: None, tally }
    }

    fn run(mut self, steps: u32) -> BTreeMap<&'static str, u32> {
        for _ in 0..steps {
            self.pass_time();
            let input = self.draw_input();
            self.step(input);
        }
        self.tally
    }

    fn pass_time(&mut self) {
        let span = match self.chance.below(8) {
            0 => Duration::ZERO,
            1 => Duration::from_nanos(1),
            2 => Duration::from_nanos(self.chance.below(20_000_000_000)),
            3..=5 => Duration::from_nanos(self.chance.below(400_000_000)),
            _ => self.tenure.deadline() - self.now,
        };
        if self.chance.happens(10_000) {
            self.now = self.now.before(span);
        } else if span < TTL * 1000 {
            self.now = self.now + span;
        }
    }

    fn draw_input(&mut self) -> Input {
        let greatest = self.greatest.map_or(0, |it| it.get() & 0xFFFF);
        let token = token((greatest + 3).saturating_sub(self.chance.below(5)));
        let requests =
            [Request::Contend, Request::Resign, Request::HandOver, Request::Withdraw, Request::HealthFailed, Request::Evict];
        match self.chance.below(16) {
            0..=3 => Input::Wake,
            4 => Input::Hint,
            5 => Input::Request(requests[self.chance.below(6) as usize]),
            6 | 7 => Input::Request(Request::Contend),
            8 => Input::WorkEnded { token: self.working.filter(|_| self.chance.happens(800_000)).unwrap_or(token) },
            _ => {
                let next = self.tenure.next_id;
                let back = if self.chance.happens(600_000) { 1 } else { self.chance.below(12) };
                let call = CallId(next.saturating_sub(back));
                let held = self.in_office.or(self.working).unwrap_or(token);
                let ttl = self.chance.happens(100_000).then(|| Duration::from_nanos(self.chance.below(30_000_000_000)));
                let free_in = self.chance.happens(500_000).then(|| Duration::from_nanos(self.chance.bits()));
                let outcome = match self.chance.below(12) {
                    0..=4 => Outcome::Granted {
                        token: if self.chance.happens(700_000) { held } else { token },
                        ttl,
                        counted_from: self
                            .chance
                            .happens(300_000)
                            .then(|| Instant::from_nanos(self.chance.below(self.now.as_nanos().max(1)))),
                    },
                    5 => Outcome::Held { token },
                    6 => Outcome::Occupied { token: self.chance.happens(100_000).then_some(token), free_in },
                    7 => Outcome::Vacant,
                    8 => Outcome::Refused,
                    _ => Outcome::Unknown,
                };
                Input::Answer { call, outcome }
            }
        }
    }

    fn step(&mut self, input: Input) {
        if let Input::WorkEnded { token } = input
            && self.working == Some(token)
        {
            self.working = None;
        }
        if let Input::Answer { call, outcome } = input {
            if let Outcome::Granted { token, .. } | Outcome::Held { token } | Outcome::Occupied { token: Some(token), .. } =
                outcome
            {
                self.greatest = self.greatest.max(Some(token));
            }
            self.waiting = self.waiting.filter(|(id, ..)| *id != call);
        }
        let now = self.tenure.now.max(self.now);
        self.waiting = self.waiting.filter(|(.., until)| now < *until);
        let mut out = Vec::new();
        self.tenure.step(self.now, input, &mut out);
        for effect in out {
            match effect {
                Effect::Call { id, call, timeout } => self.on_call(now, id, call, timeout),
                Effect::Emit(event) => self.on_event(now, input, event),
            }
        }
        if let Some((_, until)) = self.tenure.state(self.now).office() {
            assert!(now < until, "in office after the end");
            assert!(self.in_office.is_some());
        }
        assert!(self.tenure.deadline() > now || now == Instant::NEVER, "would be woken for ever: {:?}", self.tenure);
        if let Phase::InOffice(office) = &self.tenure.phase {
            let renews = self.tenure.waiting.is_some() || office.renew_at != Instant::NEVER;
            assert!(renews || now + TTL == Instant::NEVER, "would run out without a word: {:?}", self.tenure);
        }
    }

    fn on_call(&mut self, now: Instant, id: CallId, call: Call, timeout: Duration) {
        assert!(self.sends.insert(id, now).is_none(), "an id was used twice");
        if let Some((_, other, _)) = self.waiting {
            // A release waits for nothing, and the late answer to a former call may overtake the present one. But nobody asks the same
            // again, or contends, before the question that is open has been answered or has timed out.
            let overtakes = match call {
                Call::Claim => matches!(other, Call::Release { .. }),
                Call::Inquire => false,
                Call::Renew { .. } | Call::Release { .. } => call != other,
            };
            assert!(overtakes, "{call:?} while {other:?} is under way");
            *self.tally.entry("overtook").or_default() += 1;
        }
        self.waiting = Some((id, call, now + timeout));
        let name = match call {
            Call::Claim | Call::Inquire => {
                assert_eq!(self.working, None, "contends while work runs");
                if call == Call::Claim { "claimed" } else { "inquired" }
            }
            Call::Renew { .. } => {
                assert_eq!(self.working, self.in_office, "renewed out of office");
                "renewed"
            }
            Call::Release { .. } => {
                assert_eq!(self.working, None, "released before the work had ended");
                "released"
            }
        };
        *self.tally.entry(name).or_default() += 1;
    }

    fn on_event(&mut self, now: Instant, input: Input, event: Event) {
        let name = match event {
            Event::Elected { token, .. } => {
                assert!(self.working.replace(token).is_none() && self.in_office.replace(token).is_none());
                assert!(
                    self.tally
                        .insert("last elected", token.get() as u32)
                        .is_none_or(|last| u64::from(last) < token.get() & 0xFFFF_FFFF)
                );
                "elected"
            }
            Event::Lost { token, reason } => {
                assert_eq!(self.in_office.take(), Some(token));
                match reason {
                    Reason::Expired => "expired",
                    Reason::Superseded => "superseded",
                    Reason::Resigned | Reason::HandedOver | Reason::Finished | Reason::HealthFailed | Reason::Evicted => {
                        "stepped down"
                    }
                    Reason::Declined => panic!("a declined leadership was never entered"),
                }
            }
            Event::Renewed { .. } => "extended",
            Event::Jeopardy { .. } => "jeopardy",
            Event::Recovered { .. } => "recovered",
            Event::Stopping { .. } => "stopping",
            Event::Kill { .. } => "kill",
            Event::Released { .. } => "taken back",
            Event::NotReleased { .. } => "not taken back",
            Event::Declined { why: Decline::TooLate, .. } => "too late",
            Event::Declined { .. } => "declined",
            Event::Withdrawn => "withdrawn",
        };
        if let Some(until) = until(&event) {
            let Input::Answer { call, outcome: Outcome::Granted { ttl, counted_from, .. } } = input else {
                panic!("validity from {input:?}")
            };
            let from = self.sends[&call].min(counted_from.unwrap_or(Instant::NEVER));
            assert_eq!(until, from + self.tenure.timing().validity(ttl.unwrap_or(TTL)), "not counted from the send");
            assert!(now < until || self.in_office.is_some());
        }
        *self.tally.entry(name).or_default() += 1;
    }
}

#[test]
fn no_order_of_inputs_breaks_a_promise() {
    let mut total: BTreeMap<&'static str, u32> = BTreeMap::new();
    for seed in 0..3_000 {
        for (name, count) in Storm::new(seed).run(300) {
            *total.entry(name).or_default() += u32::from(name != "last elected") * count;
        }
    }
    // And everything that can happen did, or the above says little.
    for name in [
        "claimed",
        "inquired",
        "renewed",
        "released",
        "overtook",
        "elected",
        "extended",
        "jeopardy",
        "recovered",
        "stopping",
        "kill",
        "expired",
        "superseded",
        "stepped down",
        "taken back",
        "not taken back",
        "too late",
        "declined",
        "withdrawn",
    ] {
        assert!(total.get(name).is_some_and(|count| *count >= 20), "{name}: {total:?}");
    }
}
