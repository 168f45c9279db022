//! What the nodes have recorded, merged by the clock that they share, and shown to the lab's own oracles.
//!
//! A node that is killed does not record it: that is added here, at the moment before the signal or at its last line, whichever is later. So nobody is taken for dead while it may still have acted.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use incumbent_lab::observation::{Moment, Observation, Observer as _};
use incumbent_lab::oracle::{Demands, Exclusion, Oracles, Order};
use incumbent_protocol::machine::Kind;
use incumbent_protocol::protocol::{Cause, Claim, Event, NodeId, Purpose, Reason, Record as Disk, Term};
use incumbent_protocol::settings::Settings;
use serde::Deserialize;

use crate::world::{nanos, now};

/// What one process of a node has recorded.
pub(crate) struct Record {
    id: u32,
    path: PathBuf,
    file: Option<File>,
    /// What was read and is no whole line yet.
    rest: String,
    /// The last line that was read.
    last: u64,
    /// When it was told to end; it has ended since.
    pub(crate) ended: Option<u64>,
    over: bool,
}

impl Record {
    pub(crate) fn new(id: u32, path: PathBuf) -> Record {
        Record { id, path, file: None, rest: String::new(), last: 0, ended: None, over: false }
    }

    /// The lines that were written since.
    fn lines(&mut self) -> Vec<Line> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        if let Some(file) = &mut self.file {
            file.read_to_string(&mut self.rest).unwrap();
        }
        // One that was killed in the middle of a line has not said it.
        let whole = self.rest.rfind('\n').map_or(0, |it| it + 1);
        let rest = self.rest.split_off(whole);
        let lines = std::mem::replace(&mut self.rest, rest);
        lines.lines().map(|it| serde_json::from_str(it).unwrap_or_else(|why| panic!("{why}: {it}"))).collect()
    }
}

/// A line as nodes write it.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Line {
    at: u64,
    election: String,
    what: String,
    term: Option<u64>,
    until: Option<u64>,
    other: Option<u32>,
    reason: Option<String>,
    cause: Option<String>,
    to: Option<u32>,
    name: Option<String>,
    purpose: Option<String>,
    claims_term: Option<u64>,
    claims_vote_in: Option<u64>,
    claims_vote_for: Option<u32>,
    claims_office: Option<u64>,
    disk_term: Option<u64>,
    disk_vote: Option<u32>,
}

/// What happened, as the lab's [`Observation`], but with what it holds its own.
#[derive(Clone, Debug)]
enum Seen {
    Plain(Observation<'static>),
    Sent { to: NodeId, claim: Claim, purpose: Purpose, name: &'static str, durable: Option<Disk> },
}

impl Line {
    fn seen(&self, node: NodeId) -> Seen {
        let term = Term(self.term.unwrap_or(0));
        let other = NodeId(self.other.unwrap_or(0));
        let told = |event: Event| Seen::Plain(Observation::Told { node, event });
        match self.what.as_str() {
            "started" => Seen::Plain(Observation::Started { node, disk: self.disk() }),
            "in-office" => Seen::Plain(Observation::InOffice { node, term, until: self.until.map_or(Moment::NEVER, Moment) }),
            "out-of-office" => Seen::Plain(Observation::OutOfOffice { node, term }),
            "elected" => told(Event::Elected { term }),
            "lost" => told(Event::Lost { term, reason: reason(self.reason.as_deref().unwrap()) }),
            "follows" => told(Event::Follows { leader: other, term }),
            "leader-gone" => told(Event::LeaderGone { leader: other, term, cause: cause(self.cause.as_deref().unwrap()) }),
            "contends" => told(Event::Contends { term }),
            "rejected" => told(Event::Rejected { term }),
            "asked" => told(Event::Asked { to: other }),
            "ignored" => told(Event::Ignored { from: other }),
            "sent" => self.sent(),
            what => panic!("a line of which nothing is known here: {what}"),
        }
    }

    fn sent(&self) -> Seen {
        let claim = match (self.claims_term, self.claims_vote_in, self.claims_office) {
            (Some(term), None, None) => Claim::Term(Term(term)),
            (None, Some(term), None) => Claim::Vote { term: Term(term), candidate: NodeId(self.claims_vote_for.unwrap()) },
            (None, None, Some(term)) => Claim::Office(Term(term)),
            (None, None, None) => Claim::Nothing,
            other => panic!("more than one claim: {other:?}"),
        };
        let purpose = match self.purpose.as_deref().unwrap() {
            "contest" => Purpose::Contest,
            "guard" => Purpose::Guard,
            "upkeep" => Purpose::Upkeep,
            other => panic!("a purpose of which nothing is known here: {other}"),
        };
        // A process that ends with its test may keep what it has read.
        let name = Box::leak(self.name.clone().unwrap().into_boxed_str());
        Seen::Sent { to: NodeId(self.to.unwrap()), claim, purpose, name, durable: self.disk() }
    }

    fn disk(&self) -> Option<Disk> {
        self.disk_term.map(|term| Disk { term: Term(term), vote: self.disk_vote.map(NodeId) })
    }
}

fn reason(text: &str) -> Reason {
    let number = |it: &str| it.parse().unwrap();
    match (text, text.strip_prefix("handed over to "), text.strip_prefix("superseded by term ")) {
        ("resigned", ..) => Reason::Resigned,
        ("lost quorum", ..) => Reason::QuorumLost,
        (_, Some(to), _) => Reason::HandedOver { to: NodeId(u32::try_from(number(to)).unwrap()) },
        (_, _, Some(term)) => Reason::Superseded { term: Term(number(term)) },
        (other, None, None) => panic!("a reason of which nothing is known here: {other}"),
    }
}

fn cause(text: &str) -> Cause {
    let all = [Cause::Silent, Cause::Released, Cause::Dead, Cause::Challenged];
    all.into_iter().find(|it| it.to_string() == text).unwrap_or_else(|| panic!("a cause of which nothing is known here: {text}"))
}

/// All that happened, and how things stand.
pub(crate) struct Scene {
    /// Not yet in order: each node's own are.
    seen: Vec<(u64, NodeId, Seen)>,
    nodes: BTreeMap<u32, Standing>,
    /// When somebody last took or left the office, or named another leader.
    pub(crate) changed: u64,
}

/// How a node stands.
#[derive(Clone, Copy, Default)]
struct Standing {
    named: Option<(u32, u64)>,
    /// Its term of office, and until when.
    office: Option<(u64, u64)>,
    /// The greatest term that it has spoken of.
    term: u64,
}

impl Scene {
    pub(crate) fn new(count: u32) -> Scene {
        Scene { seen: Vec::new(), nodes: (1..=count).map(|id| (id, Standing::default())).collect(), changed: 0 }
    }

    /// Takes what is new in a record.
    pub(crate) fn take(&mut self, record: &mut Record) {
        let node = NodeId(record.id);
        for line in record.lines() {
            record.last = line.at;
            if line.election == "leader" {
                self.add(line.at, node, line.seen(node));
            }
        }
        if let Some(ended) = record.ended
            && !record.over
        {
            record.over = true;
            self.add(ended.max(record.last), node, Seen::Plain(Observation::Crashed { node }));
        }
    }

    fn add(&mut self, at: u64, node: NodeId, seen: Seen) {
        let standing = self.nodes.get_mut(&node.0).unwrap();
        let before = (standing.named, standing.office.map(|it| it.0));
        match &seen {
            Seen::Plain(Observation::InOffice { term, until, .. }) => standing.office = Some((term.0, until.0)),
            Seen::Plain(Observation::OutOfOffice { .. }) => standing.office = None,
            Seen::Plain(Observation::Crashed { .. } | Observation::Started { .. }) => {
                *standing = Standing { term: standing.term, ..Standing::default() };
            }
            Seen::Plain(Observation::Told { event, .. }) => match event {
                Event::Elected { term } => standing.named = Some((node.0, term.0)),
                Event::Follows { leader, term } => standing.named = Some((leader.0, term.0)),
                Event::Lost { .. } | Event::LeaderGone { .. } => standing.named = None,
                Event::Contends { .. } | Event::Rejected { .. } | Event::Asked { .. } | Event::Ignored { .. } => {}
            },
            Seen::Plain(Observation::Sent { .. } | Observation::Healed) => {}
            Seen::Sent { claim, .. } => {
                let term = match claim {
                    Claim::Nothing => Term(0),
                    Claim::Term(term) | Claim::Office(term) | Claim::Vote { term, .. } => *term,
                };
                standing.term = standing.term.max(term.0);
            }
        }
        if before != (standing.named, standing.office.map(|it| it.0)) {
            self.changed = self.changed.max(at);
        }
        self.seen.push((at, node, seen));
    }

    /// Who is in office now, and in which terms.
    pub(crate) fn leaders(&self) -> Vec<(u32, u64)> {
        let now = now();
        let in_office = |(id, it): (&u32, &Standing)| it.office.filter(|(_, until)| *until > now).map(|(term, _)| (*id, term));
        self.nodes.iter().filter_map(in_office).collect()
    }

    /// The leader that is in office and that all of these name, in its term.
    pub(crate) fn agreed(&self, some: &[u32]) -> Option<u32> {
        let leaders = self.leaders();
        let [leader] = leaders[..] else { return None };
        let all = some.iter().all(|it| self.nodes[it].named == Some(leader));
        (all && some.contains(&leader.0)).then_some(leader.0)
    }

    /// Whom a node names.
    pub(crate) fn named(&self, id: u32) -> Option<u32> {
        self.nodes[&id].named.map(|it| it.0)
    }

    /// The greatest term that anybody has spoken of.
    pub(crate) fn term(&self) -> u64 {
        self.nodes.values().map(|it| it.term).max().unwrap_or(0)
    }

    /// Each leadership: who, in which term, from when; in the order of time.
    pub(crate) fn leaderships(&self) -> Vec<(u32, u64, u64)> {
        let mut all: Vec<(u32, u64, u64)> = Vec::new();
        for (at, node, seen) in self.in_order() {
            if let Seen::Plain(Observation::Told { event: Event::Elected { term }, .. }) = seen {
                all.push((node.0, term.0, *at));
            }
        }
        all
    }

    /// When this node was last seen to be out of office in this term, or when its lease ended.
    pub(crate) fn left_office(&self, id: u32, wanted: u64) -> Option<u64> {
        let mut left = None;
        for (at, node, seen) in &self.seen {
            match seen {
                Seen::Plain(Observation::OutOfOffice { term, .. }) if node.0 == id && term.0 == wanted => left = Some(*at),
                Seen::Plain(_) | Seen::Sent { .. } => {}
            }
        }
        left
    }

    fn in_order(&self) -> Vec<&(u64, NodeId, Seen)> {
        let mut all: Vec<_> = self.seen.iter().collect();
        // What happened at one moment stays in the order of its node.
        all.sort_by_key(|it| it.0);
        all
    }

    /// The last of what happened, without what was sent.
    pub(crate) fn tail(&self, count: usize) -> String {
        let told: Vec<_> = self.in_order().into_iter().filter(|it| matches!(it.2, Seen::Plain(_))).collect();
        lines(&told[told.len().saturating_sub(count)..])
    }

    /// What happened around this moment.
    pub(crate) fn around(&self, at: u64, span: Duration) -> String {
        let near = |it: &&(u64, NodeId, Seen)| it.0.abs_diff(at) <= nanos(span);
        lines(&self.in_order().into_iter().filter(near).collect::<Vec<_>>())
    }
}

fn lines(all: &[&(u64, NodeId, Seen)]) -> String {
    let line = |(at, node, seen): &(u64, NodeId, Seen)| match seen {
        Seen::Plain(it) => format!("t={} {node} {it:?}\n", Moment(*at)),
        Seen::Sent { to, claim, name, durable, .. } => {
            format!("t={} {node} -> {to} {name} {claim:?}, on disk {durable:?}\n", Moment(*at))
        }
    };
    all.iter().map(|it| line(it)).collect()
}

/// Shows all that happened to the lab's oracles; returns what they say is wrong, with what happened around it.
pub(crate) fn judge(scene: &Scene, settings: &Settings, kind: Kind, healed: Option<u64>, end: u64) -> String {
    let guarded = settings.quorum().is_some();
    // How long it took to settle was waited for, within a bound; that it holds from then on is theirs to see.
    let settled = Duration::from_nanos(healed.map_or(0, |it| scene.changed.saturating_sub(it) + 1));
    let demands = Demands {
        exclusion: if guarded { Exclusion::Demanded } else { Exclusion::Counted },
        order: match (guarded, kind) {
            (true, _) => Order::Whole,
            (false, Kind::Raft) => Order::SinceContest,
            (false, Kind::Bully | Kind::Ring | Kind::ChangRoberts) => Order::PerNode,
        },
        elected_within: settled,
        settled_within: settled,
        contest_within: settled + settings.pace().patience_max * 2,
    };
    let mut oracles = Oracles::new(settings, &demands);
    let mut healed = healed;
    for (at, node, seen) in scene.in_order() {
        if let Some(moment) = healed.take_if(|it| *it <= *at) {
            oracles.observe(Moment(moment), &Observation::Healed);
        }
        match seen {
            Seen::Plain(it) => oracles.observe(Moment(*at), it),
            Seen::Sent { to, claim, purpose, name, durable } => oracles.observe(
                Moment(*at),
                &Observation::Sent { from: *node, to: *to, claim: *claim, purpose: *purpose, name, durable: durable.as_ref() },
            ),
        }
    }
    oracles.finish(Moment(end));
    let told = |it: &incumbent_lab::oracle::Violation| format!("{it}\n{}\n", scene.around(it.at.0, settings.pace().patience_max));
    oracles.violations().map(told).collect()
}
