//! What goes over a line between two nodes: packets in frames, and nothing that a stranger's bytes could break.
//!
//! A frame is a length (u32, little endian, at most [`FRAME_MAX`]; with freight, [`MEMBER_FRAME_MAX`]), a CRC-32C of what follows (u32, little endian) and a packet in protobuf's
//! encoding, so that fields may be added: a field that a node does not know is skipped. A kind that it does not know, a term beyond [`Term::MAX`],
//! an over-long name or list is an error value, never a panic, and memory grows with the bytes that have come, not with those announced.
//!
//! Who may say what to whom is not decided here but in [`switchboard`](crate::switchboard).

mod saying;
mod wire;

use std::fmt;

use incumbent_protocol::machine::Message;
use incumbent_protocol::protocol::{NodeId, Term};

/// The version of this protocol that we speak. 2 has [`Mail::Freight`].
pub const VERSION: u32 = 3;
/// The oldest version that we still understand.
pub const VERSION_OLDEST: u32 = 1;
const _: () = assert!(VERSION_OLDEST <= VERSION);
/// The version from which on freight is understood. An older node would end the line over it, so it is sent none.
pub const FREIGHT_SINCE: u32 = 2;

/// The first version in which mail is passed on by more than one.
pub const RELAYS_SINCE: u32 = 3;

/// So many nodes pass mail on between two others: in a group of five somebody is always that near to all others, if there is a way at all; with three it need not be the leader who is in the middle.
pub const RELAYS_MAX: u8 = 3;

/// The longest packet, but for freight. Boards of elections are the largest there is, and are cut to fit.
pub const FRAME_MAX: usize = 256 * 1024;
/// The longest letter that goes as freight: an entry of a log that is as long as one may be, and room for more than what is around it.
pub const FREIGHT_MAX: usize = 2 * 1024 * 1024;
/// The longest frame between members: freight, and what is around it.
pub const MEMBER_FRAME_MAX: usize = FREIGHT_MAX + 64;
/// Length and checksum.
pub const FRAME_HEAD: usize = 8;
/// The longest packet from somebody who has not been let in yet.
pub const GREETING_MAX: usize = 16 * 1024;
/// The longest name of an election or a cluster, in bytes.
pub const NAME_MAX: usize = 1024;
/// The longest list of nodes: as many members as a group may have.
pub const NODES_MAX: usize = incumbent_protocol::settings::MEMBERS_MAX;

/// One thing said over a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Packet {
    /// The first packet of who dials.
    Hello(Hello),
    /// The first packet back: you are let in.
    Welcome(Welcome),
    /// Instead of a welcome: you are not, and what to do about it.
    Refusal {
        /// A sentence for a log.
        why: String,
    },
    /// A sign of life.
    Pulse(Pulse),
    /// From a node to a node, perhaps through a third.
    Mail {
        /// Who to whom.
        route: Route,
        /// What.
        mail: Mail,
    },
}

/// Who dials, and whom they expect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The greatest version that the sender speaks.
    pub version: u32,
    /// The oldest version that it understands.
    pub oldest: u32,
    /// The group's name.
    pub cluster: String,
    /// Who dials.
    pub role: Role,
    /// What the connection is for.
    pub purpose: Purpose,
    /// What must be equal on all members.
    pub settings: String,
    /// The node that should answer; a guest takes any.
    pub to: Option<NodeId>,
}

/// Who dials.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Role {
    /// A member of the group.
    Member(Passport),
    /// Somebody with questions.
    Guest,
}

/// What a connection is for.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Purpose {
    /// To carry this lane.
    Lane(Lane),
    /// Only to say "I am here: dial me".
    Knock,
}

/// Each line has two connections, so that a long answer never delays a heartbeat.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lane {
    /// Pulses and words.
    Urgent,
    /// Gossip, questions and answers.
    Bulk,
}

/// Which process a member is, and what it remembers with.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Passport {
    /// The node.
    pub id: NodeId,
    /// The identity of the directory where its records are.
    pub directory: [u8; 16],
    /// How often that directory has been opened.
    pub generation: u64,
    /// Drawn anew by every process: two with the same id differ in it.
    pub nonce: u64,
    /// How its group began, if that is told apart and it knows.
    pub origin: Option<[u8; 16]>,
}

/// The answer to a [`Hello`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// The version that both speak from now on.
    pub version: u32,
    /// Who answers.
    pub passport: Passport,
    /// What must be equal on all members.
    pub settings: String,
}

/// A sign of life, and what is needed for round-trip times and relays. Times are of their own node's clock, in nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pulse {
    /// When it was sent.
    pub sent: u64,
    /// `sent` of the last pulse that came from the receiver; 0 if none has.
    pub echo: u64,
    /// How long ago that was.
    pub held: u64,
    /// Whom the sender hears directly.
    pub hears: Vec<NodeId>,
    /// Whom else it could pass mail on to, and how many others must do so after it. None of these ways leads through the receiver.
    pub beyond: Vec<(NodeId, u8)>,
}

/// From whom to whom, end to end.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// Who said it.
    pub from: NodeId,
    /// Who shall hear it.
    pub to: NodeId,
    /// Whether a third node passes it on.
    pub relayed: bool,
    /// By so many more after that one. Each of them makes it one less, so nothing goes round for ever.
    pub more: u8,
}

/// What nodes say to each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mail {
    /// One message of an election's machine.
    Word(Word),
    /// News of an election, for the driver.
    Gossip(Gossip),
    /// A question.
    Ask {
        /// To find the question to an answer.
        id: u64,
        /// The question.
        body: Vec<u8>,
    },
    /// Its answer.
    Answer {
        /// The question's.
        id: u64,
        /// The answer.
        body: Vec<u8>,
    },
    /// A letter that the transport does not look into.
    Freight(Freight),
}

impl Mail {
    /// The lane that carries it.
    pub fn lane(&self) -> Lane {
        match self {
            Mail::Word(_) => Lane::Urgent,
            Mail::Freight(freight) => freight.lane,
            Mail::Gossip(_) | Mail::Ask { .. } | Mail::Answer { .. } => Lane::Bulk,
        }
    }
}

/// One message of an election's machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Word {
    /// The election.
    pub election: String,
    /// The version of the membership that the sender goes by.
    pub config: u64,
    /// The sender's incarnation of the election.
    pub epoch: u32,
    /// If the sender leads, its work ends when its process does.
    pub dies_with_node: bool,
    /// What it says.
    pub body: Message,
}

/// A letter that the transport does not look into, on the lane that its sender chose.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Freight {
    /// What must not wait behind what is long goes on the urgent one.
    pub lane: Lane,
    /// At most [`FREIGHT_MAX`].
    pub body: Vec<u8>,
}

/// News of an election, opaque to the transport.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gossip {
    /// The election.
    pub election: String,
    /// The driver's.
    pub body: Vec<u8>,
}

/// Why bytes are no packet. The line that they came over cannot be trusted any further.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// A frame longer than allowed.
    TooLong {
        /// The length announced.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// The checksum is not that of the bytes: not our protocol, or damage on the way.
    Checksum,
    /// Not protobuf.
    Encoding(String),
    /// A part that must be there is not, or has a value that we do not know: perhaps of a later version.
    Unknown {
        /// Which part.
        what: &'static str,
        /// Its value; 0 if it is not there.
        value: u64,
    },
    /// A term beyond [`Term::MAX`].
    Term(u64),
    /// A name or a list beyond its limit.
    Oversized {
        /// Which part.
        what: &'static str,
        /// Its length.
        len: usize,
    },
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::TooLong { len, max } => write!(f, "a frame of {len} bytes, where {max} are allowed"),
            Malformed::Checksum => f.write_str("a frame with a wrong checksum"),
            Malformed::Encoding(why) => write!(f, "a frame that is no packet: {why}"),
            Malformed::Unknown { what, value } => write!(f, "a packet with an unknown {what} ({value})"),
            Malformed::Term(term) => write!(f, "a packet with term {term}, beyond the greatest ({})", Term::MAX),
            Malformed::Oversized { what, len } => write!(f, "a packet with an over-long {what} ({len})"),
        }
    }
}

impl std::error::Error for Malformed {}

impl Packet {
    /// Appends the packet's frame to `out`.
    ///
    /// # Errors
    /// If it does not fit a frame or breaks a limit; `out` is then as it was.
    pub fn encode(self, out: &mut Vec<u8>) -> Result<(), Malformed> {
        let max = self.frame_max();
        let packet = wire::Packet::try_from(self)?;
        let len = prost::Message::encoded_len(&packet);
        if len > max {
            return Err(Malformed::TooLong { len, max });
        }
        let start = out.len();
        out.reserve(FRAME_HEAD + len);
        out.extend_from_slice(&[0; FRAME_HEAD]);
        // A vector grows as needed, so there is always room.
        prost::Message::encode(&packet, out).map_err(|wrong| Malformed::Encoding(wrong.to_string()))?;
        let sum = crc32c::crc32c(&out[start + FRAME_HEAD..]);
        let len = u32::try_from(len).map_err(|_| Malformed::TooLong { len, max })?;
        out[start..start + 4].copy_from_slice(&len.to_le_bytes());
        out[start + 4..start + FRAME_HEAD].copy_from_slice(&sum.to_le_bytes());
        Ok(())
    }

    /// The first frame of `bytes` and its length, or `None` while it is not complete.
    ///
    /// # Errors
    /// If these bytes are no packet of at most `max` bytes.
    pub fn decode(bytes: &[u8], max: usize) -> Result<Option<(Packet, usize)>, Malformed> {
        let Some((head, rest)) = bytes.split_first_chunk::<FRAME_HEAD>() else { return Ok(None) };
        let [l0, l1, l2, l3, s0, s1, s2, s3] = *head;
        let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if len > max {
            return Err(Malformed::TooLong { len, max });
        }
        let Some(body) = rest.get(..len) else { return Ok(None) };
        if crc32c::crc32c(body) != u32::from_le_bytes([s0, s1, s2, s3]) {
            return Err(Malformed::Checksum);
        }
        let packet = <wire::Packet as prost::Message>::decode(body).map_err(|wrong| Malformed::Encoding(wrong.to_string()))?;
        let packet = Packet::try_from(packet)?;
        if len > packet.frame_max() {
            return Err(Malformed::TooLong { len, max: packet.frame_max() });
        }
        Ok(Some((packet, FRAME_HEAD + len)))
    }

    /// The longest frame for a packet of its kind.
    fn frame_max(&self) -> usize {
        match self {
            Packet::Mail { mail: Mail::Freight(_), .. } => MEMBER_FRAME_MAX,
            Packet::Mail { mail: Mail::Word(_) | Mail::Gossip(_) | Mail::Ask { .. } | Mail::Answer { .. }, .. }
            | Packet::Hello(_)
            | Packet::Welcome(_)
            | Packet::Refusal { .. }
            | Packet::Pulse(_) => FRAME_MAX,
        }
    }

    /// The name of its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Packet::Hello(_) => "hello",
            Packet::Welcome(_) => "welcome",
            Packet::Refusal { .. } => "refusal",
            Packet::Pulse(_) => "pulse",
            Packet::Mail { mail: Mail::Word(_), .. } => "word",
            Packet::Mail { mail: Mail::Gossip(_), .. } => "gossip",
            Packet::Mail { mail: Mail::Ask { .. }, .. } => "ask",
            Packet::Mail { mail: Mail::Answer { .. }, .. } => "answer",
            Packet::Mail { mail: Mail::Freight(_), .. } => "freight",
        }
    }
}

#[cfg(test)]
mod tests;
