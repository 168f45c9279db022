//! The messages of the machines as they stand in a packet: one flat form for all protocols, in which what a message does not have is left out.
//!
//! The numbers of kinds are for ever: a new message gets a new number, and an old number is never used again.

use incumbent_protocol::bully::BullyMessage;
use incumbent_protocol::circuit::{Lap, RingMessage};
use incumbent_protocol::machine::Message;
use incumbent_protocol::office::{Answer, OfficeMessage, Round};
use incumbent_protocol::protocol::{NodeId, Term};
use incumbent_protocol::time::Instant;

use super::Malformed;
use super::wire::{Saying, nodes, numbers};

const BULLY: u32 = 1;
const RING: u32 = 2;
const RAFT: u32 = 3;

// About the office, in any protocol.
const VOTE_REQUEST: u32 = 1;
const VOTE: u32 = 2;
const HEARTBEAT: u32 = 3;
const ACK: u32 = 4;
const PROBE: u32 = 5;
const RELEASED: u32 = 6;
const TAKE_OVER: u32 = 7;
const DECLINED: u32 = 8;

// Bully's own.
const ELECTION: u32 = 16;
const ALIVE: u32 = 17;
const COORDINATOR: u32 = 18;
const DEMAND: u32 = 19;

// The rings' own.
const HOP_ELECTION: u32 = 32;
const HOP_COORDINATOR: u32 = 33;
const HOP_ACK: u32 = 34;
const JOINED: u32 = 35;

impl TryFrom<Message> for Saying {
    type Error = Malformed;

    fn try_from(message: Message) -> Result<Saying, Malformed> {
        let saying = match message {
            Message::Bully(message) => Saying { protocol: BULLY, ..of_bully(message) },
            Message::Ring(message) => Saying { protocol: RING, ..of_ring(message)? },
            Message::Raft(message) => Saying { protocol: RAFT, ..of_office(message) },
        };
        term(saying.term)?;
        Ok(saying)
    }
}

impl TryFrom<Saying> for Message {
    type Error = Malformed;

    fn try_from(saying: Saying) -> Result<Message, Malformed> {
        match saying.protocol {
            BULLY => Ok(Message::Bully(to_bully(&saying)?)),
            RING => Ok(Message::Ring(to_ring(saying)?)),
            RAFT => Ok(Message::Raft(to_office(&saying)?)),
            other => Err(Malformed::Unknown { what: "protocol", value: other.into() }),
        }
    }
}

fn term(term: u64) -> Result<Term, Malformed> {
    if term > Term::MAX.0 { Err(Malformed::Term(term)) } else { Ok(Term(term)) }
}

fn of_office(message: OfficeMessage) -> Saying {
    let base = Saying::default();
    match message {
        OfficeMessage::VoteRequest { term, round, released, sent } => Saying {
            kind: VOTE_REQUEST,
            term: term.0,
            round: of_round(round),
            released: released.0,
            sent: sent.as_nanos(),
            ..base
        },
        OfficeMessage::Vote { term, round, answer, sent } => {
            let answer = match answer {
                Answer::Granted => 1,
                Answer::Loyal => 2,
                Answer::Bound => 3,
                Answer::Taken => 4,
                Answer::Stale => 5,
            };
            Saying { kind: VOTE, term: term.0, round: of_round(round), answer, sent: sent.as_nanos(), ..base }
        }
        OfficeMessage::Heartbeat { term, sent } => Saying { kind: HEARTBEAT, term: term.0, sent: sent.as_nanos(), ..base },
        OfficeMessage::Ack { term, sent } => Saying { kind: ACK, term: term.0, sent: sent.as_nanos(), ..base },
        OfficeMessage::Probe { term } => Saying { kind: PROBE, term: term.0, ..base },
        OfficeMessage::Released { term } => Saying { kind: RELEASED, term: term.0, ..base },
        OfficeMessage::TakeOver { term } => Saying { kind: TAKE_OVER, term: term.0, ..base },
        OfficeMessage::Declined { term } => Saying { kind: DECLINED, term: term.0, ..base },
    }
}

fn of_round(round: Round) -> u32 {
    match round {
        Round::Pre => 1,
        Round::Real => 2,
    }
}

fn to_office(saying: &Saying) -> Result<OfficeMessage, Malformed> {
    let term_said = term(saying.term)?;
    let sent = Instant::from_nanos(saying.sent);
    let round = || match saying.round {
        1 => Ok(Round::Pre),
        2 => Ok(Round::Real),
        other => Err(Malformed::Unknown { what: "round of a vote", value: other.into() }),
    };
    Ok(match saying.kind {
        VOTE_REQUEST => OfficeMessage::VoteRequest { term: term_said, round: round()?, released: term(saying.released)?, sent },
        VOTE => {
            let answer = match saying.answer {
                1 => Answer::Granted,
                2 => Answer::Loyal,
                3 => Answer::Bound,
                4 => Answer::Taken,
                5 => Answer::Stale,
                other => return Err(Malformed::Unknown { what: "answer to a vote request", value: other.into() }),
            };
            OfficeMessage::Vote { term: term_said, round: round()?, answer, sent }
        }
        HEARTBEAT => OfficeMessage::Heartbeat { term: term_said, sent },
        ACK => OfficeMessage::Ack { term: term_said, sent },
        PROBE => OfficeMessage::Probe { term: term_said },
        RELEASED => OfficeMessage::Released { term: term_said },
        TAKE_OVER => OfficeMessage::TakeOver { term: term_said },
        DECLINED => OfficeMessage::Declined { term: term_said },
        other => return Err(Malformed::Unknown { what: "kind of message", value: other.into() }),
    })
}

fn of_bully(message: BullyMessage) -> Saying {
    let base = Saying::default();
    match message {
        BullyMessage::Election { term } => Saying { kind: ELECTION, term: term.0, ..base },
        BullyMessage::Alive { term } => Saying { kind: ALIVE, term: term.0, ..base },
        BullyMessage::Coordinator { term, sent } => Saying { kind: COORDINATOR, term: term.0, sent: sent.as_nanos(), ..base },
        BullyMessage::Demand { term } => Saying { kind: DEMAND, term: term.0, ..base },
        BullyMessage::Office(message) => of_office(message),
    }
}

fn to_bully(saying: &Saying) -> Result<BullyMessage, Malformed> {
    let term_said = term(saying.term)?;
    Ok(match saying.kind {
        ELECTION => BullyMessage::Election { term: term_said },
        ALIVE => BullyMessage::Alive { term: term_said },
        COORDINATOR => BullyMessage::Coordinator { term: term_said, sent: Instant::from_nanos(saying.sent) },
        DEMAND => BullyMessage::Demand { term: term_said },
        _ => BullyMessage::Office(to_office(saying)?),
    })
}

fn of_ring(message: RingMessage) -> Result<Saying, Malformed> {
    let base = Saying::default();
    Ok(match message {
        RingMessage::Hop { hop, lap: Lap::Election { initiator, ids, term, hops } } => Saying {
            kind: HOP_ELECTION,
            hop,
            initiator: initiator.0,
            ids: numbers("list of candidates", ids)?,
            term: term.0,
            hops,
            ..base
        },
        RingMessage::Hop { hop, lap: Lap::Coordinator { leader, initiator, term, hops } } => {
            Saying { kind: HOP_COORDINATOR, hop, leader: leader.0, initiator: initiator.0, term: term.0, hops, ..base }
        }
        RingMessage::HopAck { hop } => Saying { kind: HOP_ACK, hop, ..base },
        RingMessage::Joined { term } => Saying { kind: JOINED, term: term.0, ..base },
        RingMessage::Office(message) => of_office(message),
    })
}

fn to_ring(saying: Saying) -> Result<RingMessage, Malformed> {
    let term_said = term(saying.term)?;
    let (hop, hops, initiator) = (saying.hop, saying.hops, NodeId(saying.initiator));
    Ok(match saying.kind {
        HOP_ELECTION => {
            let ids = nodes("list of candidates", saying.ids)?;
            RingMessage::Hop { hop, lap: Lap::Election { initiator, ids, term: term_said, hops } }
        }
        HOP_COORDINATOR => {
            let leader = NodeId(saying.leader);
            RingMessage::Hop { hop, lap: Lap::Coordinator { leader, initiator, term: term_said, hops } }
        }
        HOP_ACK => RingMessage::HopAck { hop },
        JOINED => RingMessage::Joined { term: term_said },
        _ => RingMessage::Office(to_office(&saying)?),
    })
}
