//! Every packet comes back as it was sent, and bytes that are no packet are refused.

use incumbent_protocol::bully::BullyMessage;
use incumbent_protocol::circuit::{Lap, RingMessage};
use incumbent_protocol::machine::Message;
use incumbent_protocol::office::{Answer, OfficeMessage, Round};
use incumbent_protocol::time::Instant;

use super::*;

fn office() -> Vec<OfficeMessage> {
    let (term, sent) = (Term::MAX, Instant::from_nanos(u64::MAX));
    let mut all = vec![
        OfficeMessage::Heartbeat { term, sent },
        OfficeMessage::Ack { term: Term(0), sent: Instant::ZERO },
        OfficeMessage::Probe { term },
        OfficeMessage::Released { term },
        OfficeMessage::TakeOver { term },
        OfficeMessage::Declined { term },
    ];
    for round in [Round::Pre, Round::Real] {
        all.push(OfficeMessage::VoteRequest { term, round, released: Term(3), sent });
        for answer in [Answer::Granted, Answer::Loyal, Answer::Bound, Answer::Taken, Answer::Stale] {
            all.push(OfficeMessage::Vote { term, round, answer, sent });
        }
    }
    all
}

fn messages() -> Vec<Message> {
    let (term, sent) = (Term(7), Instant::from_nanos(12));
    let laps = [
        Lap::Election { initiator: NodeId(9), ids: vec![NodeId(0), NodeId(u32::MAX)], term, hops: 8 },
        Lap::Coordinator { leader: NodeId(3), initiator: NodeId(4), term, hops: 5 },
    ];
    let bully = [
        BullyMessage::Election { term },
        BullyMessage::Alive { term },
        BullyMessage::Coordinator { term, sent },
        BullyMessage::Demand { term },
    ];
    let mut all: Vec<Message> = bully.map(Message::Bully).to_vec();
    all.extend(laps.map(|lap| Message::Ring(RingMessage::Hop { hop: 77, lap })));
    all.push(Message::Ring(RingMessage::HopAck { hop: 1 }));
    all.push(Message::Ring(RingMessage::Joined { term }));
    for message in office() {
        all.push(Message::Raft(message));
        all.push(Message::Bully(BullyMessage::Office(message)));
        all.push(Message::Ring(RingMessage::Office(message)));
    }
    all
}

fn passport() -> Passport {
    Passport { id: NodeId(3), directory: [7; 16], generation: u64::MAX, nonce: 99, origin: None }
}

fn hello(role: Role, purpose: Purpose) -> Packet {
    let (cluster, settings) = ("blue".to_owned(), "raft 1,2,3".to_owned());
    Packet::Hello(Hello { version: 1, oldest: 1, cluster, role, purpose, settings, to: Some(NodeId(0)) })
}

fn word(body: Message) -> Packet {
    let word = Word { election: "jobs".into(), config: 2, epoch: 3, dies_with_node: true, body };
    Packet::Mail { route: Route { from: NodeId(1), to: NodeId(2), relayed: true, more: 2 }, mail: Mail::Word(word) }
}

fn packets() -> Vec<Packet> {
    let route = Route { from: NodeId(0), to: NodeId(u32::MAX), relayed: false, more: 0 };
    let hears = vec![NodeId(1), NodeId(5)];
    let mut all = vec![
        hello(Role::Member(passport()), Purpose::Lane(Lane::Urgent)),
        hello(Role::Guest, Purpose::Lane(Lane::Bulk)),
        hello(Role::Member(passport()), Purpose::Knock),
        hello(Role::Member(Passport { origin: Some([8; 16]), ..passport() }), Purpose::Knock),
        Packet::Welcome(Welcome { version: 1, passport: passport(), settings: String::new() }),
        Packet::Refusal { why: "no".into() },
        Packet::Pulse(Pulse { sent: 1, echo: u64::MAX, held: 3, hears, beyond: vec![(NodeId(7), 2)] }),
        Packet::Pulse(Pulse::default()),
        Packet::Mail { route, mail: Mail::Gossip(Gossip { election: "jobs".into(), body: vec![0; 1000] }) },
        Packet::Mail { route, mail: Mail::Ask { id: 8, body: vec![1] } },
        Packet::Mail { route, mail: Mail::Answer { id: u64::MAX, body: vec![] } },
        Packet::Mail { route, mail: Mail::Freight(Freight { lane: Lane::Urgent, body: vec![] }) },
        Packet::Mail { route, mail: Mail::Freight(Freight { lane: Lane::Bulk, body: vec![7; FREIGHT_MAX] }) },
    ];
    all.extend(messages().into_iter().map(word));
    all
}

fn frame(packet: &Packet) -> Vec<u8> {
    let mut bytes = Vec::new();
    packet.clone().encode(&mut bytes).expect("fits");
    bytes
}

/// A frame around any bytes.
fn framed(body: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(body.len()).expect("short").to_le_bytes().to_vec();
    bytes.extend(crc32c::crc32c(body).to_le_bytes());
    bytes.extend(body);
    bytes
}

#[test]
fn every_packet_comes_back_as_it_was() {
    for packet in packets() {
        let bytes = frame(&packet);
        assert_eq!(Packet::decode(&bytes, MEMBER_FRAME_MAX), Ok(Some((packet, bytes.len()))));
    }
}

#[test]
fn only_freight_may_be_longer_than_the_rest() {
    let route = Route { from: NodeId(1), to: NodeId(2), relayed: false, more: 0 };
    let freight = |len| Packet::Mail { route, mail: Mail::Freight(Freight { lane: Lane::Bulk, body: vec![7; len] }) };
    let too_long = Malformed::Oversized { what: "freight", len: FREIGHT_MAX + 1 };
    assert_eq!(freight(FREIGHT_MAX + 1).encode(&mut Vec::new()), Err(too_long));
    // An answer of the same length, by the tag of its kind.
    let mut answer = vec![8 << 3 | 2];
    let body = vec![2 << 3 | 2];
    let len = FRAME_MAX + 1;
    let mut inner = body;
    prost::encoding::encode_varint(len as u64, &mut inner);
    inner.resize(inner.len() + len, 0);
    prost::encoding::encode_varint(inner.len() as u64, &mut answer);
    answer.extend(inner);
    let refused = Packet::decode(&framed(&answer), MEMBER_FRAME_MAX);
    assert_eq!(refused, Err(Malformed::TooLong { len: answer.len(), max: FRAME_MAX }));
    // A lane of tomorrow.
    let lane = Packet::decode(&framed(&[9 << 3 | 2, 2, 1 << 3, 3]), MEMBER_FRAME_MAX);
    assert_eq!(lane, Err(Malformed::Unknown { what: "lane of freight", value: 3 }));
}

#[test]
fn frames_follow_each_other_and_a_half_one_is_waited_for() {
    let all = packets();
    let stream: Vec<u8> = all.iter().flat_map(frame).collect();
    let (mut rest, mut seen) = (stream.as_slice(), Vec::new());
    while let Some((packet, used)) = Packet::decode(rest, MEMBER_FRAME_MAX).expect("whole") {
        let short = &rest[..used - 1];
        assert_eq!(Packet::decode(short, MEMBER_FRAME_MAX), Ok(None), "{packet:?}");
        rest = &rest[used..];
        seen.push(packet);
    }
    assert_eq!(seen, all);
}

#[test]
fn every_flipped_bit_is_noticed() {
    let whole = frame(&word(messages().remove(0)));
    for bit in 0..whole.len() * 8 {
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        // A longer length waits for bytes that do not come; all else is an error.
        let outcome = Packet::decode(&damaged, FRAME_MAX);
        assert!(matches!(outcome, Ok(None) | Err(_)), "bit {bit}: {outcome:?}");
    }
}

#[test]
fn an_announced_length_beyond_the_limit_is_refused_before_its_bytes_come() {
    let len = FRAME_MAX + 1;
    let mut bytes = u32::try_from(len).expect("short").to_le_bytes().to_vec();
    bytes.extend([0; 4]);
    assert_eq!(Packet::decode(&bytes, FRAME_MAX), Err(Malformed::TooLong { len, max: FRAME_MAX }));
    let hello = frame(&hello(Role::Guest, Purpose::Lane(Lane::Bulk)));
    assert!(matches!(Packet::decode(&hello, 10), Err(Malformed::TooLong { max: 10, .. })));
}

#[test]
fn what_we_send_is_held_to_the_limits_too() {
    let long = |election: String, len| {
        let gossip = Gossip { election, body: vec![0; len] };
        Packet::Mail { route: Route { from: NodeId(1), to: NodeId(2), relayed: false, more: 0 }, mail: Mail::Gossip(gossip) }
    };
    let mut out = vec![1, 2, 3];
    assert!(matches!(long("jobs".into(), FRAME_MAX).encode(&mut out), Err(Malformed::TooLong { .. })));
    assert!(matches!(long("x".repeat(NAME_MAX + 1), 1).encode(&mut out), Err(Malformed::Oversized { .. })));
    let late = word(Message::Raft(OfficeMessage::Probe { term: Term(Term::MAX.0 + 1) }));
    assert_eq!(late.encode(&mut out), Err(Malformed::Term(1 << 48)));
    assert_eq!(out, [1, 2, 3]);
}

/// A packet of one word, whose saying has these fields: pairs of a tag and a number.
fn saying(fields: &[(u8, u64)]) -> Vec<u8> {
    let mut said = Vec::new();
    for (tag, value) in fields {
        said.push(tag << 3);
        prost::encoding::encode_varint(*value, &mut said);
    }
    let mut word = vec![5 << 3 | 2, u8::try_from(said.len()).expect("short")];
    word.extend(said);
    let mut packet = vec![5 << 3 | 2, u8::try_from(word.len()).expect("short")];
    packet.extend(word);
    framed(&packet)
}

#[test]
fn values_beyond_reason_are_refused_and_unknown_fields_are_skipped() {
    let outcome = |fields: &[(u8, u64)]| Packet::decode(&saying(fields), FRAME_MAX).map(|it| it.map(|(packet, _)| packet.kind()));
    assert_eq!(outcome(&[(1, 3), (2, 5), (3, Term::MAX.0)]), Ok(Some("word")));
    assert_eq!(outcome(&[(1, 3), (2, 5), (3, Term::MAX.0), (15, 1)]), Ok(Some("word")), "a field of tomorrow");
    assert_eq!(outcome(&[(1, 3), (2, 5), (3, u64::MAX)]), Err(Malformed::Term(u64::MAX)));
    assert_eq!(outcome(&[(1, 3), (2, 1), (3, 1), (4, 2), (5, 1 << 48)]), Err(Malformed::Term(1 << 48)), "the term released");
    assert_eq!(outcome(&[(1, 4), (2, 5)]), Err(Malformed::Unknown { what: "protocol", value: 4 }));
    assert_eq!(outcome(&[(1, 3), (2, 16)]), Err(Malformed::Unknown { what: "kind of message", value: 16 }), "Bully's in Raft");
    assert_eq!(
        outcome(&[(1, 3), (2, 2), (4, 2), (6, 6)]),
        Err(Malformed::Unknown { what: "answer to a vote request", value: 6 })
    );
    assert_eq!(outcome(&[(1, 3), (2, 2), (4, 3), (6, 1)]), Err(Malformed::Unknown { what: "round of a vote", value: 3 }));
    let nothing = Packet::decode(&framed(&[]), FRAME_MAX);
    assert_eq!(nothing, Err(Malformed::Unknown { what: "kind of packet", value: 0 }));
}

#[test]
fn a_list_beyond_the_greatest_group_is_refused() {
    let mut pulse = vec![4 << 3 | 2];
    prost::encoding::encode_varint(NODES_MAX as u64 + 1, &mut pulse);
    pulse.extend(vec![1; NODES_MAX + 1]);
    let mut packet = vec![4 << 3 | 2];
    prost::encoding::encode_varint(pulse.len() as u64, &mut packet);
    packet.extend(pulse);
    let refused = Malformed::Oversized { what: "list of nodes heard", len: NODES_MAX + 1 };
    assert_eq!(Packet::decode(&framed(&packet), FRAME_MAX), Err(refused));
}
