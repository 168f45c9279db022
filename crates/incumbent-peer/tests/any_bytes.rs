//! Any bytes from a wire: no panic, and what is taken for a packet comes back the same when it is sent on. `fuzz/` asks the same for as long as one likes.

use incumbent_peer::packet::{
    FRAME_HEAD, Freight, Gossip, Hello, Lane, MEMBER_FRAME_MAX, Mail, Packet, Passport, Pulse, Purpose, Role, Route, Word,
};
use incumbent_protocol::circuit::{Lap, RingMessage};
use incumbent_protocol::machine::Message;
use incumbent_protocol::office::{OfficeMessage, Round};
use incumbent_protocol::protocol::{NodeId, Term};
use incumbent_protocol::time::Instant;
use proptest::prelude::*;

fn framed(body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).expect("short");
    [&len.to_le_bytes(), &crc32c::crc32c(body).to_le_bytes(), body].concat()
}

/// What is taken can be sent on, and is the same then.
fn is_stable(body: &[u8]) {
    let frame = framed(body);
    if let Ok(Some((packet, used))) = Packet::decode(&frame, MEMBER_FRAME_MAX) {
        assert_eq!(used, frame.len());
        let mut again = Vec::new();
        packet.clone().encode(&mut again).expect("what was taken can be sent");
        assert_eq!(Packet::decode(&again, MEMBER_FRAME_MAX), Ok(Some((packet, again.len()))));
    }
}

/// Packets to begin with: with every kind of field in them.
fn seeds() -> Vec<Vec<u8>> {
    let route = Route { from: NodeId(1), to: NodeId(2), relayed: true, more: 1 };
    let said = |body| Mail::Word(Word { election: "jobs".into(), config: 1, epoch: 2, dies_with_node: true, body });
    let (term, sent) = (Term::MAX, Instant::from_nanos(u64::MAX));
    let vote = OfficeMessage::VoteRequest { term, round: Round::Real, released: Term(1), sent };
    let lap = Lap::Election { initiator: NodeId(3), ids: vec![NodeId(1), NodeId(9)], term, hops: 4 };
    let passport = Passport { id: NodeId(1), directory: [1; 16], generation: 1, nonce: 1, origin: None };
    let hello = Hello {
        version: 1,
        oldest: 1,
        cluster: "blue".into(),
        role: Role::Member(passport),
        purpose: Purpose::Lane(Lane::Bulk),
        settings: "raft".into(),
        to: Some(NodeId(2)),
    };
    let packets = [
        Packet::Hello(hello),
        Packet::Pulse(Pulse { sent: 1, echo: 2, held: 3, hears: vec![NodeId(1), NodeId(300)], beyond: vec![(NodeId(9), 1)] }),
        Packet::Mail { route, mail: said(Message::Raft(vote)) },
        Packet::Mail { route, mail: said(Message::Ring(RingMessage::Hop { hop: 1, lap })) },
        Packet::Mail { route, mail: Mail::Gossip(Gossip { election: "jobs".into(), body: vec![1, 2, 3] }) },
        Packet::Mail { route, mail: Mail::Ask { id: 7, body: vec![4] } },
        Packet::Mail { route, mail: Mail::Freight(Freight { lane: Lane::Urgent, body: vec![5; 9] }) },
    ];
    let body = |packet: Packet| {
        let mut frame = Vec::new();
        packet.encode(&mut frame).expect("fits");
        frame.split_off(FRAME_HEAD)
    };
    packets.map(body).to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Packet::decode(&bytes, MEMBER_FRAME_MAX);
        is_stable(&bytes);
    }

    #[test]
    fn a_packet_that_was_changed_is_taken_or_refused(
        seed in prop::sample::select(seeds()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        tail in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut body = seed;
        for (at, byte) in changes {
            let at = at.index(body.len());
            body[at] = byte;
        }
        is_stable(&body);
        body.truncate(cut.index(body.len() + 1));
        is_stable(&body);
        body.extend(tail);
        is_stable(&body);
    }
}
