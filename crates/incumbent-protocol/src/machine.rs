//! Any of the protocols behind one type, for those who choose at run time: the lab, the peers, the command line.

use alloc::string::ToString;
use core::fmt;
use core::str::FromStr;

use crate::bully::{Bully, BullyMessage};
use crate::chang_roberts::ChangRoberts;
use crate::circuit::RingMessage;
use crate::office::OfficeMessage;
use crate::protocol::{Claim, Effect, Effects, Event, Input, NodeId, Protocol, Purpose, Record, Term, View, Wire};
use crate::raft::Raft;
use crate::ring::Ring;
use crate::settings::{Invalid, Settings};
use crate::time::Instant;

/// Which protocol.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// [`crate::bully`]
    Bully,
    /// [`crate::ring`]
    Ring,
    /// [`crate::chang_roberts`]
    ChangRoberts,
    /// [`crate::raft`]
    Raft,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 4] = [Kind::Bully, Kind::Ring, Kind::ChangRoberts, Kind::Raft];

    /// Its name, as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Bully => "bully",
            Kind::Ring => "ring",
            Kind::ChangRoberts => "chang-roberts",
            Kind::Raft => "raft",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Kind {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Kind::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| Invalid::Unknown {
            what: "protocol",
            given: text.to_string(),
            known: "bully, ring, chang-roberts, raft",
        })
    }
}

/// A message of any protocol.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Message {
    /// Of [`Kind::Bully`].
    Bully(BullyMessage),
    /// Of [`Kind::Ring`] and [`Kind::ChangRoberts`].
    Ring(RingMessage),
    /// Of [`Kind::Raft`].
    Raft(OfficeMessage),
}

impl From<BullyMessage> for Message {
    fn from(message: BullyMessage) -> Self {
        Message::Bully(message)
    }
}

impl From<RingMessage> for Message {
    fn from(message: RingMessage) -> Self {
        Message::Ring(message)
    }
}

impl From<OfficeMessage> for Message {
    fn from(message: OfficeMessage) -> Self {
        Message::Raft(message)
    }
}

impl Message {
    fn as_wire(&self) -> &dyn Wire {
        match self {
            Message::Bully(message) => message,
            Message::Ring(message) => message,
            Message::Raft(message) => message,
        }
    }
}

impl Wire for Message {
    fn name(&self) -> &'static str {
        self.as_wire().name()
    }

    fn purpose(&self) -> Purpose {
        self.as_wire().purpose()
    }

    fn term(&self) -> Term {
        self.as_wire().term()
    }

    fn claim(&self, from: NodeId, to: NodeId) -> Claim {
        self.as_wire().claim(from, to)
    }

    fn len_bytes(&self) -> usize {
        self.as_wire().len_bytes()
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Message::Bully(message) => message.fmt(f),
            Message::Ring(message) => message.fmt(f),
            Message::Raft(message) => message.fmt(f),
        }
    }
}

/// A node of any protocol.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(clippy::large_enum_variant, reason = "a group runs one protocol, so all its nodes are of one size")]
pub enum Machine {
    /// Of [`Kind::Bully`].
    Bully(Bully),
    /// Of [`Kind::Ring`].
    Ring(Ring),
    /// Of [`Kind::ChangRoberts`].
    ChangRoberts(ChangRoberts),
    /// Of [`Kind::Raft`].
    Raft(Raft),
}

impl Machine {
    /// As [`Protocol::start`], with the protocol named by `kind`.
    pub fn start(kind: Kind, me: NodeId, settings: &Settings, seed: u64, disk: Option<Record>, now: Instant) -> Self {
        match kind {
            Kind::Bully => Machine::Bully(Protocol::start(me, settings, seed, disk, now)),
            Kind::Ring => Machine::Ring(Protocol::start(me, settings, seed, disk, now)),
            Kind::ChangRoberts => Machine::ChangRoberts(Protocol::start(me, settings, seed, disk, now)),
            Kind::Raft => Machine::Raft(Protocol::start(me, settings, seed, disk, now)),
        }
    }

    /// As [`Protocol::step`]. A message of another protocol is ignored: it comes from a node that is set up differently.
    pub fn step(&mut self, now: Instant, input: Input<Message>, out: &mut Effects<Message>) {
        match self {
            Machine::Bully(it) => step(it, now, input, out, |message| match message {
                Message::Bully(message) => Some(message),
                Message::Ring(_) | Message::Raft(_) => None,
            }),
            Machine::Ring(it) => step(it, now, input, out, of_ring),
            Machine::ChangRoberts(it) => step(it, now, input, out, of_ring),
            Machine::Raft(it) => step(it, now, input, out, |message| match message {
                Message::Raft(message) => Some(message),
                Message::Bully(_) | Message::Ring(_) => None,
            }),
        }
    }

    /// Goes on with other members, in the same term and with the same vote and promises. A leader stays in office, for as long as it would have; a candidate gives up; a
    /// node that is no member any more resigns and is silent from then on.
    ///
    /// Safe under the rules for the driver in `office/membership.rs`: nodes hear each other under the same version of the members only, versions only rise and are persisted
    /// before they are used, and new members are made by a leader, one added or removed ([`Settings::may_become`]), when a majority has used the present ones for `2 · patience_max`.
    ///
    /// Refused, with nothing changed, for another protocol than Raft and for settings that differ in more than members and priorities.
    pub fn reconfigure(&mut self, now: Instant, settings: &Settings, out: &mut Effects<Message>) -> Result<(), Invalid> {
        let Machine::Raft(raft) = self else {
            return Err(Invalid::Change {
                why: "only Raft can change its members: stop all nodes and start them with the new ones",
            });
        };
        let mut effects = Effects::default();
        let changed = raft.reconfigure(now, settings, &mut effects);
        pass_on(&mut effects, out);
        changed
    }

    /// As [`Protocol::deadline`].
    pub fn deadline(&self) -> Instant {
        match self {
            Machine::Bully(it) => it.deadline(),
            Machine::Ring(it) => it.deadline(),
            Machine::ChangRoberts(it) => it.deadline(),
            Machine::Raft(it) => it.deadline(),
        }
    }

    /// As [`Protocol::view`].
    pub fn view(&self) -> View {
        match self {
            Machine::Bully(it) => it.view(),
            Machine::Ring(it) => it.view(),
            Machine::ChangRoberts(it) => it.view(),
            Machine::Raft(it) => it.view(),
        }
    }
}

fn of_ring(message: Message) -> Option<RingMessage> {
    match message {
        Message::Ring(message) => Some(message),
        Message::Bully(_) | Message::Raft(_) => None,
    }
}

fn step<P: Protocol>(
    protocol: &mut P,
    now: Instant,
    input: Input<Message>,
    out: &mut Effects<Message>,
    own: impl FnOnce(Message) -> Option<P::Message>,
) where
    Message: From<P::Message>,
{
    let input = match input {
        Input::Wake => Input::Wake,
        Input::Receive { from, message } => match own(message) {
            Some(message) => Input::Receive { from, message },
            None => return out.emit(Event::Ignored { from }),
        },
        Input::Request(request) => Input::Request(request),
        Input::Persisted(mark) => Input::Persisted(mark),
    };
    let mut effects = Effects::default();
    protocol.step(now, input, &mut effects);
    pass_on(&mut effects, out);
}

fn pass_on<M>(effects: &mut Effects<M>, out: &mut Effects<Message>)
where
    Message: From<M>,
{
    for effect in effects.drain() {
        match effect {
            Effect::Send { to, message } => out.send(to, message),
            Effect::Persist { mark, record } => out.persist(mark, record),
            Effect::Emit(event) => out.emit(event),
        }
    }
}
