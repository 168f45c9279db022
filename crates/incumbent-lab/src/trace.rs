//! What happened in a world, kept for people: text scenarios, timelines, the last lines before a failure.
//!
//! Entries keep their values; words are made of them only when someone reads. Whoever runs thousands of worlds records
//! nothing and runs the one that failed again.

use std::collections::VecDeque;
use std::fmt;

use incumbent_protocol::machine::Message;
use incumbent_protocol::protocol::{Event, NodeId, Record, Request, View};

use crate::fault::Fault;
use crate::observation::Moment;

/// How much of a run is kept.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Recording {
    /// Nothing.
    Off,
    /// The last so many entries.
    Last(usize),
    /// Everything: for runs whose length is known.
    All,
}

/// How much of what was kept is shown. Each shows what the one before it shows, and more.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Detail {
    /// What was done to the world and what nodes told their users.
    Nodes,
    /// What was sent, and what got lost.
    Messages,
    /// Arrivals, changes of role, disks, starts.
    Everything,
}

/// One thing that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// When, in true time.
    pub at: Moment,
    /// What.
    pub what: Happening,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Happening {
    /// `from` handed a message to the network.
    Sent {
        /// The sender.
        from: NodeId,
        /// The receiver.
        to: NodeId,
        /// What was said.
        message: Message,
    },
    /// `to` got it. Twice, if the network repeated it; late, if `to` was paused or slow.
    Received {
        /// The sender.
        from: NodeId,
        /// The receiver.
        to: NodeId,
        /// What was said.
        message: Message,
        /// When it was sent.
        sent: Moment,
    },
    /// `to` never got it.
    Dropped {
        /// The sender.
        from: NodeId,
        /// The receiver.
        to: NodeId,
        /// What was said.
        message: Message,
        /// When it was sent.
        sent: Moment,
        /// What became of it.
        why: Undelivered,
    },
    /// `node` told its user something.
    Told {
        /// Who.
        node: NodeId,
        /// What.
        event: Event,
    },
    /// `node`'s machine got a request or a hint.
    Requested {
        /// Who.
        node: NodeId,
        /// For what.
        request: Request,
    },
    /// What `node` does, its term, or whom it takes for the leader, changed.
    Changed {
        /// Who.
        node: NodeId,
        /// How it looks now. `until` is on the node's own clock.
        view: View,
    },
    /// Something was done to the world.
    Done(Fault),
    /// `node` came up.
    Started {
        /// Who.
        node: NodeId,
        /// What its disk held.
        disk: Option<Record>,
    },
    /// `node` went down.
    Crashed {
        /// Who.
        node: NodeId,
    },
    /// `node` began to write a record.
    Writing {
        /// Who.
        node: NodeId,
        /// What.
        record: Record,
    },
    /// The record is safe on `node`'s disk.
    Written {
        /// Who.
        node: NodeId,
        /// What.
        record: Record,
    },
}

/// Why a message was not received.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Undelivered {
    /// The link did not carry it when it was sent, or no longer when it was to arrive.
    Cut,
    /// Lost on a working link.
    Lost,
    /// The receiver was down.
    Down,
    /// Too much was waiting for the receiver already.
    Full,
}

/// The entries that were kept.
#[derive(Clone, Debug)]
pub struct Trace {
    recording: Recording,
    entries: VecDeque<Entry>,
    forgotten: u64,
}

impl Trace {
    pub(crate) fn new(recording: Recording) -> Trace {
        Trace { recording, entries: VecDeque::new(), forgotten: 0 }
    }

    /// What was kept, in order.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> + ExactSizeIterator {
        self.entries.iter()
    }

    /// How many entries were dropped to keep only the last ones.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Forgets all entries. Recording goes on.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.forgotten = 0;
    }

    /// The entries as lines of text, as far as `detail` goes.
    pub fn lines(&self, detail: Detail) -> impl Iterator<Item = String> + '_ {
        self.entries.iter().filter(move |entry| entry.what.detail() <= detail).map(Entry::to_string)
    }

    /// Keeps what `happening` makes, which is called only if anything is kept at all.
    #[inline]
    pub(crate) fn record(&mut self, at: Moment, happening: impl FnOnce() -> Happening) {
        match self.recording {
            Recording::Off => {}
            Recording::Last(count) => {
                if count == 0 {
                    return;
                }
                while self.entries.len() >= count {
                    self.entries.pop_front();
                    self.forgotten += 1;
                }
                self.entries.push_back(Entry { at, what: happening() });
            }
            Recording::All => self.entries.push_back(Entry { at, what: happening() }),
        }
    }
}

impl Happening {
    /// From which detail on it is shown.
    pub fn detail(&self) -> Detail {
        match self {
            Happening::Told { .. } | Happening::Done(_) => Detail::Nodes,
            Happening::Sent { .. } | Happening::Dropped { .. } => Detail::Messages,
            Happening::Received { .. }
            | Happening::Requested { .. }
            | Happening::Changed { .. }
            | Happening::Started { .. }
            | Happening::Crashed { .. }
            | Happening::Writing { .. }
            | Happening::Written { .. } => Detail::Everything,
        }
    }
}

/// `t=2.203 3 -> 1 vote-request term=2`
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t={} {}", self.at, self.what)
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Happening::Sent { from, to, message } => write!(f, "{from} -> {to} {message}"),
            Happening::Received { from, to, message, sent } => write!(f, "{to} <- {from} {message} (sent {sent})"),
            Happening::Dropped { from, to, message, sent: _, why } => write!(f, "{from} x> {to} {message} ({why})"),
            Happening::Told { node, event } => write!(f, "{node} {}", Words(event)),
            Happening::Requested { node, request } => write!(f, "{node} gets a request: {}", Words(request)),
            Happening::Changed { node, view } => {
                write!(f, "{node} is {} term={}", view.role, view.term)?;
                match view.leader {
                    Some(leader) => write!(f, " leader={leader}"),
                    None => Ok(()),
                }
            }
            Happening::Done(fault) => write!(f, "* {fault}"),
            Happening::Started { node, disk: None } => write!(f, "{node} starts with an empty disk"),
            Happening::Started { node, disk: Some(record) } => write!(f, "{node} starts with {}", Words(record)),
            Happening::Crashed { node } => write!(f, "{node} is down"),
            Happening::Writing { node, record } => write!(f, "{node} writes {}", Words(record)),
            Happening::Written { node, record } => write!(f, "{node} has written {}", Words(record)),
        }
    }
}

impl fmt::Display for Undelivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Undelivered::Cut => "cut",
            Undelivered::Lost => "lost",
            Undelivered::Down => "down",
            Undelivered::Full => "full",
        })
    }
}

/// How a value of the protocol reads in a line.
pub(crate) struct Words<'a, T>(pub(crate) &'a T);

impl fmt::Display for Words<'_, Record> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "term={}", self.0.term)?;
        match self.0.vote {
            Some(vote) => write!(f, " vote={vote}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Words<'_, Request> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Request::Campaign => f.write_str("campaign"),
            Request::Resign => f.write_str("resign"),
            Request::HandOver { to } => write!(f, "hand over to {to}"),
            Request::Suspect { peer } => write!(f, "suspect {peer}"),
            Request::Dead { peer } => write!(f, "hold {peer} for dead"),
            Request::Abstain => f.write_str("abstain"),
            Request::Stand => f.write_str("stand"),
        }
    }
}

impl fmt::Display for Words<'_, Event> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Event::Elected { term } => write!(f, "leads term={term}"),
            Event::Lost { term, reason } => write!(f, "leaves office term={term}: {reason}"),
            Event::Follows { leader, term } => write!(f, "follows {leader} term={term}"),
            Event::LeaderGone { leader, term, cause } => write!(f, "gives up on {leader} term={term}: {cause}"),
            Event::Contends { term } => write!(f, "contends term={term}"),
            Event::Rejected { term } => write!(f, "rejected term={term}"),
            Event::Asked { to } => write!(f, "is asked to hand over to {to}"),
            Event::Ignored { from } => write!(f, "ignores a message from {from}"),
        }
    }
}
