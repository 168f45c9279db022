//! No input may panic a machine, move its term back, or make it say much: whatever a peer, a damaged wire or a wild clock brings.

use std::time::Duration;

use incumbent_protocol::bully::BullyMessage;
use incumbent_protocol::chance::Chance;
use incumbent_protocol::circuit::{Lap, RingMessage};
use incumbent_protocol::machine::{Kind, Machine, Message};
use incumbent_protocol::office::{Answer, OfficeMessage, Round};
use incumbent_protocol::protocol::{Effect, Effects, Input, Mark, NodeId, Record, Request, Role, Term};
use incumbent_protocol::settings::{Detection, Guard, PreVote, Settings, Takeover};
use incumbent_protocol::time::Instant;

const MEMBERS: u32 = 4;

struct Any(Chance);

impl Any {
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.0.below(of.len() as u64) as usize]
    }

    fn node(&mut self) -> NodeId {
        let near = NodeId(1 + self.0.below(u64::from(MEMBERS) + 1) as u32);
        self.pick(&[near, near, near, NodeId(0), NodeId(u32::MAX)])
    }

    fn term(&mut self, near: Term) -> Term {
        let close = Term((near.0 + self.0.below(4)).saturating_sub(1));
        self.pick(&[close, close, close, close, Term(0), Term::MAX, Term(u64::MAX), Term(near.0.saturating_add(1 << 32))])
    }

    fn instant(&mut self, now: Instant) -> Instant {
        let close = Instant::from_nanos(now.as_nanos().saturating_sub(self.0.below(200_000_000)));
        self.pick(&[close, close, now, Instant::ZERO, Instant::NEVER])
    }

    fn office(&mut self, now: Instant, near: Term) -> OfficeMessage {
        let (term, sent) = (self.term(near), self.instant(now));
        let round = self.pick(&[Round::Pre, Round::Real]);
        match self.0.below(8) {
            0 => OfficeMessage::VoteRequest { term, round, released: self.term(near), sent },
            1 => OfficeMessage::Vote {
                term,
                round,
                answer: self.pick(&[Answer::Granted, Answer::Loyal, Answer::Bound, Answer::Taken, Answer::Stale]),
                sent,
            },
            2 => OfficeMessage::Heartbeat { term, sent },
            3 => OfficeMessage::Ack { term, sent },
            4 => OfficeMessage::Probe { term },
            5 => OfficeMessage::Released { term },
            6 => OfficeMessage::Declined { term },
            _ => OfficeMessage::TakeOver { term },
        }
    }

    fn message(&mut self, now: Instant, near: Term) -> Message {
        let (term, sent) = (self.term(near), self.instant(now));
        let office = self.office(now, near);
        let hop = self.0.below(3) as u32;
        let hops = self.pick(&[0, 1, 2, 8, u32::MAX]);
        let ids = (0..self.0.below(6)).map(|_| self.node()).collect();
        match self.0.below(11) {
            0 => Message::Bully(BullyMessage::Election { term }),
            1 => Message::Bully(BullyMessage::Alive { term }),
            2 => Message::Bully(BullyMessage::Coordinator { term, sent }),
            3 => Message::Bully(BullyMessage::Demand { term }),
            4 => Message::Bully(office.into()),
            5 => Message::Ring(RingMessage::Hop { hop, lap: Lap::Election { initiator: self.node(), ids, term, hops } }),
            6 => Message::Ring(RingMessage::Hop {
                hop,
                lap: Lap::Coordinator { leader: self.node(), initiator: self.node(), term, hops },
            }),
            7 => Message::Ring(RingMessage::HopAck { hop }),
            8 => Message::Ring(RingMessage::Joined { term }),
            9 => Message::Ring(office.into()),
            _ => Message::Raft(office),
        }
    }

    fn input(&mut self, now: Instant, near: Term, last_mark: Mark) -> Input<Message> {
        let peer = self.node();
        match self.0.below(10) {
            0..=5 => Input::Receive { from: peer, message: self.message(now, near) },
            6 | 7 => Input::Wake,
            8 => Input::Persisted(self.pick(&[last_mark, last_mark, Mark(0), Mark(u64::MAX)])),
            _ => Input::Request(self.pick(&[
                Request::Campaign,
                Request::Resign,
                Request::HandOver { to: peer },
                Request::Suspect { peer },
                Request::Dead { peer },
                Request::Abstain,
                Request::Stand,
            ])),
        }
    }
}

#[test]
fn any_sequence_of_inputs_is_survived() {
    let mut reached_office = 0;
    for seed in 0..4000u64 {
        let mut any = Any(Chance::new(seed));
        let kind = any.pick(&Kind::ALL);
        let guard = any.pick(&[Guard::Majority, Guard::Off]);
        let detection = any.pick(&[Detection::Fixed, Detection::Adaptive]);
        let takeover = any.pick(&[Takeover::AtOnce, Takeover::WhenFree]);
        let pre_vote = any.pick(&[PreVote::On, PreVote::Off]);
        let priority = any.pick(&[0, 1, u8::MAX]);
        let settings_of = |first: u32, last: u32| {
            let all =
                Settings::of((first..=last).map(NodeId)).guard(guard).detection(detection).takeover(takeover).pre_vote(pre_vote);
            all.priority(NodeId(first), priority).build().unwrap()
        };
        let mut settings = settings_of(1, MEMBERS);
        let me = NodeId(1 + any.0.below(u64::from(MEMBERS)) as u32);
        let disk = any.pick(&[
            None,
            Some(Record { term: Term(3), vote: Some(NodeId(2)) }),
            Some(Record { term: Term(Term::MAX.0 - 2), vote: None }),
        ]);
        let mut now = any.pick(&[Instant::ZERO, Instant::from_nanos(u64::MAX - 1_000_000_000)]);
        let mut machine = Machine::start(kind, me, &settings, seed, disk, now);
        let mut out = Effects::default();
        let mut last_mark = Mark(0);
        let mut term = machine.view().term;
        for _ in 0..300 {
            let step = any.pick(&[Duration::ZERO, Duration::from_millis(1), Duration::from_millis(60), Duration::from_secs(1)]);
            now = now + step;
            if any.0.happens(300_000) {
                now = now.max(machine.deadline().min(now + Duration::from_secs(10)));
            }
            let input = any.input(now, machine.view().term, last_mark);
            let what = format!("seed {seed} {kind} {input:?}");
            machine.step(now, input, &mut out);
            if kind == Kind::Raft && any.0.happens(10_000) {
                let (first, last) = (1 + any.0.below(2) as u32, MEMBERS - 1 + any.0.below(3) as u32);
                settings = settings_of(first, last);
                machine.reconfigure(now, &settings, &mut out).unwrap();
            }

            assert!(out.as_slice().len() <= 300, "{what}: {} effects", out.as_slice().len());
            for effect in out.drain() {
                match effect {
                    // Before a change to those who were members then, and nobody has more than all of these.
                    Effect::Send { to, .. } => assert!(to != me && (1..=MEMBERS + 1).contains(&to.0), "{what}: sends to {to}"),
                    Effect::Persist { mark, record } => {
                        assert!(mark > last_mark, "{what}: marks rise");
                        assert!(record.term <= Term::MAX, "{what}: {record:?}");
                        last_mark = mark;
                    }
                    Effect::Emit(_) => {}
                }
            }
            let view = machine.view();
            assert!(view.term >= term, "{what}: term {term} then {}", view.term);
            assert!(view.role != Role::Leader || view.leader == Some(me), "{what}");
            reached_office += usize::from(view.role == Role::Leader);
            term = view.term;
        }
    }
    assert!(reached_office > 1000, "the interesting states were hardly reached: {reached_office}");
}
