//! Packets as protobuf has them. Field numbers are for ever; a field may be added, and who does not know it skips it.

use incumbent_protocol::protocol::NodeId;

use super::{self as ours, FREIGHT_MAX, Lane, Mail, Malformed, NAME_MAX, NODES_MAX, Passport, Purpose, Role, Route};

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Packet {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9")]
    kind: Option<Kind>,
    // The route of mail stands beside it and not in it, so that a relay finds it in the same place for all kinds.
    #[prost(uint32, tag = "14")]
    from: u32,
    #[prost(uint32, tag = "15")]
    to: u32,
    #[prost(bool, tag = "13")]
    relayed: bool,
    #[prost(uint32, tag = "12")]
    more: u32,
}

#[derive(Clone, PartialEq, prost::Oneof)]
#[allow(clippy::large_enum_variant, reason = "it lives for the time of one conversion")]
enum Kind {
    #[prost(message, tag = "1")]
    Hello(Hello),
    #[prost(message, tag = "2")]
    Welcome(Welcome),
    #[prost(message, tag = "3")]
    Refusal(Refusal),
    #[prost(message, tag = "4")]
    Pulse(Pulse),
    #[prost(message, tag = "5")]
    Word(Word),
    #[prost(message, tag = "6")]
    Gossip(Gossip),
    #[prost(message, tag = "7")]
    Ask(Exchange),
    #[prost(message, tag = "8")]
    Answer(Exchange),
    #[prost(message, tag = "9")]
    Freight(Freight),
}

#[derive(Clone, PartialEq, prost::Message)]
struct Hello {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(uint32, tag = "2")]
    oldest: u32,
    #[prost(string, tag = "3")]
    cluster: String,
    /// A guest has none.
    #[prost(message, optional, tag = "4")]
    member: Option<Member>,
    #[prost(uint32, tag = "5")]
    purpose: u32,
    #[prost(string, tag = "6")]
    settings: String,
    #[prost(uint32, optional, tag = "7")]
    to: Option<u32>,
}

const URGENT: u32 = 1;
const BULK: u32 = 2;
const KNOCK: u32 = 3;

#[derive(Clone, PartialEq, prost::Message)]
struct Member {
    #[prost(uint32, tag = "1")]
    id: u32,
    #[prost(bytes = "vec", tag = "2")]
    directory: Vec<u8>,
    #[prost(uint64, tag = "3")]
    generation: u64,
    #[prost(fixed64, tag = "4")]
    nonce: u64,
    /// Empty if it has none.
    #[prost(bytes = "vec", tag = "5")]
    origin: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Welcome {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(message, optional, tag = "2")]
    member: Option<Member>,
    #[prost(string, tag = "3")]
    settings: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Refusal {
    #[prost(string, tag = "1")]
    why: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Pulse {
    #[prost(fixed64, tag = "1")]
    sent: u64,
    #[prost(fixed64, tag = "2")]
    echo: u64,
    #[prost(uint64, tag = "3")]
    held: u64,
    #[prost(uint32, repeated, tag = "4")]
    hears: Vec<u32>,
    #[prost(message, repeated, tag = "5")]
    beyond: Vec<Beyond>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Beyond {
    #[prost(uint32, tag = "1")]
    node: u32,
    #[prost(uint32, tag = "2")]
    through: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Word {
    #[prost(string, tag = "1")]
    election: String,
    #[prost(uint64, tag = "2")]
    config: u64,
    #[prost(uint32, tag = "3")]
    epoch: u32,
    #[prost(bool, tag = "4")]
    dies_with_node: bool,
    #[prost(message, optional, tag = "5")]
    body: Option<Saying>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Saying {
    #[prost(uint32, tag = "1")]
    pub(super) protocol: u32,
    #[prost(uint32, tag = "2")]
    pub(super) kind: u32,
    #[prost(uint64, tag = "3")]
    pub(super) term: u64,
    #[prost(uint32, tag = "4")]
    pub(super) round: u32,
    #[prost(uint64, tag = "5")]
    pub(super) released: u64,
    #[prost(uint32, tag = "6")]
    pub(super) answer: u32,
    #[prost(fixed64, tag = "7")]
    pub(super) sent: u64,
    #[prost(uint32, tag = "8")]
    pub(super) hop: u32,
    #[prost(uint32, tag = "9")]
    pub(super) initiator: u32,
    #[prost(uint32, tag = "10")]
    pub(super) leader: u32,
    #[prost(uint32, repeated, tag = "11")]
    pub(super) ids: Vec<u32>,
    #[prost(uint32, tag = "12")]
    pub(super) hops: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Gossip {
    #[prost(string, tag = "1")]
    election: String,
    #[prost(bytes = "vec", tag = "2")]
    body: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Exchange {
    #[prost(fixed64, tag = "1")]
    id: u64,
    #[prost(bytes = "vec", tag = "2")]
    body: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Freight {
    #[prost(uint32, tag = "1")]
    lane: u32,
    #[prost(bytes = "vec", tag = "2")]
    body: Vec<u8>,
}

impl TryFrom<ours::Packet> for Packet {
    type Error = Malformed;

    fn try_from(packet: ours::Packet) -> Result<Packet, Malformed> {
        let plain = |kind| Packet { kind: Some(kind), from: 0, to: 0, relayed: false, more: 0 };
        Ok(match packet {
            ours::Packet::Hello(hello) => plain(Kind::Hello(hello.try_into()?)),
            ours::Packet::Welcome(ours::Welcome { version, passport, settings }) => {
                plain(Kind::Welcome(Welcome { version, member: Some(passport.into()), settings }))
            }
            ours::Packet::Refusal { why } => plain(Kind::Refusal(Refusal { why })),
            ours::Packet::Pulse(ours::Pulse { sent, echo, held, hears, beyond }) => {
                let hears = numbers("list of nodes heard", hears)?;
                if beyond.len() > NODES_MAX {
                    return Err(Malformed::Oversized { what: "list of nodes beyond", len: beyond.len() });
                }
                let beyond = beyond.into_iter().map(|(node, through)| Beyond { node: node.0, through: through.into() }).collect();
                plain(Kind::Pulse(Pulse { sent, echo, held, hears, beyond }))
            }
            ours::Packet::Mail { route: Route { from, to, relayed, more }, mail } => {
                Packet { kind: Some(mail.try_into()?), from: from.0, to: to.0, relayed, more: more.into() }
            }
        })
    }
}

impl TryFrom<Packet> for ours::Packet {
    type Error = Malformed;

    fn try_from(packet: Packet) -> Result<ours::Packet, Malformed> {
        let more =
            u8::try_from(packet.more).map_err(|_| Malformed::Unknown { what: "number of relays", value: packet.more.into() })?;
        let route = Route { from: NodeId(packet.from), to: NodeId(packet.to), relayed: packet.relayed, more };
        let mail = match packet.kind.ok_or(Malformed::Unknown { what: "kind of packet", value: 0 })? {
            Kind::Hello(hello) => return Ok(ours::Packet::Hello(hello.try_into()?)),
            Kind::Welcome(Welcome { version, member, settings }) => {
                let passport = member.ok_or(Malformed::Unknown { what: "member", value: 0 })?.try_into()?;
                return Ok(ours::Packet::Welcome(ours::Welcome { version, passport, settings }));
            }
            Kind::Refusal(Refusal { why }) => return Ok(ours::Packet::Refusal { why }),
            Kind::Pulse(Pulse { sent, echo, held, hears, beyond }) => {
                let hears = nodes("list of nodes heard", hears)?;
                if beyond.len() > NODES_MAX {
                    return Err(Malformed::Oversized { what: "list of nodes beyond", len: beyond.len() });
                }
                // Farther than any number that counts is as far as any other.
                let beyond =
                    beyond.into_iter().map(|it| (NodeId(it.node), u8::try_from(it.through).unwrap_or(u8::MAX))).collect();
                return Ok(ours::Packet::Pulse(ours::Pulse { sent, echo, held, hears, beyond }));
            }
            Kind::Word(Word { election, config, epoch, dies_with_node, body }) => {
                let body = body.ok_or(Malformed::Unknown { what: "message", value: 0 })?.try_into()?;
                Mail::Word(ours::Word { election: name("name of an election", election)?, config, epoch, dies_with_node, body })
            }
            Kind::Gossip(Gossip { election, body }) => {
                Mail::Gossip(ours::Gossip { election: name("name of an election", election)?, body })
            }
            Kind::Ask(Exchange { id, body }) => Mail::Ask { id, body },
            Kind::Answer(Exchange { id, body }) => Mail::Answer { id, body },
            Kind::Freight(Freight { lane, body }) => {
                let lane = match lane {
                    URGENT => Lane::Urgent,
                    BULK => Lane::Bulk,
                    other => return Err(Malformed::Unknown { what: "lane of freight", value: other.into() }),
                };
                Mail::Freight(ours::Freight { lane, body: letter(body)? })
            }
        };
        Ok(ours::Packet::Mail { route, mail })
    }
}

impl TryFrom<Mail> for Kind {
    type Error = Malformed;

    fn try_from(mail: Mail) -> Result<Kind, Malformed> {
        Ok(match mail {
            Mail::Word(ours::Word { election, config, epoch, dies_with_node, body }) => Kind::Word(Word {
                election: name("name of an election", election)?,
                config,
                epoch,
                dies_with_node,
                body: Some(body.try_into()?),
            }),
            Mail::Gossip(ours::Gossip { election, body }) => {
                Kind::Gossip(Gossip { election: name("name of an election", election)?, body })
            }
            Mail::Ask { id, body } => Kind::Ask(Exchange { id, body }),
            Mail::Answer { id, body } => Kind::Answer(Exchange { id, body }),
            Mail::Freight(ours::Freight { lane, body }) => {
                let lane = match lane {
                    Lane::Urgent => URGENT,
                    Lane::Bulk => BULK,
                };
                Kind::Freight(Freight { lane, body: letter(body)? })
            }
        })
    }
}

impl TryFrom<ours::Hello> for Hello {
    type Error = Malformed;

    fn try_from(hello: ours::Hello) -> Result<Hello, Malformed> {
        let ours::Hello { version, oldest, cluster, role, purpose, settings, to } = hello;
        let member = match role {
            Role::Member(passport) => Some(passport.into()),
            Role::Guest => None,
        };
        let purpose = match purpose {
            Purpose::Lane(Lane::Urgent) => URGENT,
            Purpose::Lane(Lane::Bulk) => BULK,
            Purpose::Knock => KNOCK,
        };
        let cluster = name("name of a cluster", cluster)?;
        Ok(Hello { version, oldest, cluster, member, purpose, settings, to: to.map(|id| id.0) })
    }
}

impl TryFrom<Hello> for ours::Hello {
    type Error = Malformed;

    fn try_from(hello: Hello) -> Result<ours::Hello, Malformed> {
        let Hello { version, oldest, cluster, member, purpose, settings, to } = hello;
        let role = match member {
            Some(member) => Role::Member(member.try_into()?),
            None => Role::Guest,
        };
        let purpose = match purpose {
            URGENT => Purpose::Lane(Lane::Urgent),
            BULK => Purpose::Lane(Lane::Bulk),
            KNOCK => Purpose::Knock,
            other => return Err(Malformed::Unknown { what: "purpose of a connection", value: other.into() }),
        };
        let cluster = name("name of a cluster", cluster)?;
        Ok(ours::Hello { version, oldest, cluster, role, purpose, settings, to: to.map(NodeId) })
    }
}

impl From<Passport> for Member {
    fn from(Passport { id, directory, generation, nonce, origin }: Passport) -> Member {
        let origin = origin.map(Vec::from).unwrap_or_default();
        Member { id: id.0, directory: directory.to_vec(), generation, nonce, origin }
    }
}

impl TryFrom<Member> for Passport {
    type Error = Malformed;

    fn try_from(Member { id, directory, generation, nonce, origin }: Member) -> Result<Passport, Malformed> {
        let sixteen = |what, bytes: Vec<u8>| {
            <[u8; 16]>::try_from(bytes).map_err(|given| Malformed::Unknown { what, value: given.len() as u64 })
        };
        let directory = sixteen("identity of a directory, by its length", directory)?;
        let origin = if origin.is_empty() { None } else { Some(sixteen("origin of a group, by its length", origin)?) };
        Ok(Passport { id: NodeId(id), directory, generation, nonce, origin })
    }
}

fn letter(body: Vec<u8>) -> Result<Vec<u8>, Malformed> {
    if body.len() > FREIGHT_MAX { Err(Malformed::Oversized { what: "freight", len: body.len() }) } else { Ok(body) }
}

fn name(what: &'static str, name: String) -> Result<String, Malformed> {
    if name.len() > NAME_MAX { Err(Malformed::Oversized { what, len: name.len() }) } else { Ok(name) }
}

pub(super) fn numbers(what: &'static str, nodes: Vec<NodeId>) -> Result<Vec<u32>, Malformed> {
    if nodes.len() > NODES_MAX {
        return Err(Malformed::Oversized { what, len: nodes.len() });
    }
    Ok(nodes.into_iter().map(|id| id.0).collect())
}

pub(super) fn nodes(what: &'static str, numbers: Vec<u32>) -> Result<Vec<NodeId>, Malformed> {
    if numbers.len() > NODES_MAX {
        return Err(Malformed::Oversized { what, len: numbers.len() });
    }
    Ok(numbers.into_iter().map(NodeId).collect())
}
