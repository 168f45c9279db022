//! A run that has been played to its end, so that it can be shown at any moment, in either direction and at any pace.
//!
//! Pure: no terminal, no clock. What is on the screen at a moment follows from the moment alone.

use std::time::Duration;

use incumbent_lab::fault::Fault;
use incumbent_lab::meter::Reign;
use incumbent_lab::network::Network;
use incumbent_lab::node::Condition;
use incumbent_lab::observation::Moment;
use incumbent_lab::scenario::{Outcome, Scenario, is_routine};
use incumbent_lab::trace::{Entry, Happening};
use incumbent_protocol::machine::Kind;
use incumbent_protocol::protocol::{NodeId, Role, Term, Wire as _};

/// A message of middling delay is this long on the screen: long enough to be followed by the eye.
const FLIGHT_SHOWN: Duration = Duration::from_millis(700);
/// While nothing of note happens, so much simulated time passes in a second at least,
const CALM_A_SECOND: Duration = Duration::from_millis(200);
/// and so much more that all of it together takes no longer than this.
const CALM_SHOWN_MAX: Duration = Duration::from_secs(40);
/// Delays shorter than this look like none.
const FLIGHT_MIN: Duration = Duration::from_micros(50);

/// A played run.
pub(crate) struct Film {
    pub(crate) file: String,
    pub(crate) kind: Kind,
    pub(crate) seed: u64,
    /// The nodes, in the order in which they stand in the circle.
    pub(crate) circle: Vec<NodeId>,
    /// How the nodes look from when on, by place in the circle.
    looks: Vec<Vec<(Moment, Look)>>,
    reigns: Vec<Reign>,
    /// In the order in which they were sent.
    flights: Vec<Flight>,
    longest_flight: Duration,
    links: Vec<(Moment, Network)>,
    log: Vec<Line>,
    /// Moments worth stopping at, in order.
    stops: Vec<Moment>,
    /// Times in which something of note happens, in order and apart.
    busy: Vec<(Moment, Moment)>,
    slow_rate: f64,
    calm_rate: f64,
    pub(crate) end: Moment,
    members: Vec<NodeId>,
}

/// What is to be seen of a node.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Look {
    pub(crate) condition: Condition,
    pub(crate) role: Role,
    pub(crate) term: Term,
    pub(crate) leader: Option<NodeId>,
}

/// A message on its way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Flight {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) sent: Moment,
    pub(crate) ends: Moment,
    /// As traces have it.
    pub(crate) text: String,
    pub(crate) name: &'static str,
    pub(crate) is_lost: bool,
    /// A heartbeat, an acknowledgement.
    pub(crate) is_routine: bool,
}

/// A line of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Line {
    pub(crate) at: Moment,
    pub(crate) text: String,
    pub(crate) is_command: bool,
}

/// How a link is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    Whole,
    Cut,
    /// Only the way from the second node to the first works.
    CutForth,
    /// Only the way from the first node to the second works.
    CutBack,
}

impl Film {
    pub(crate) fn of(scenario: &Scenario, outcome: &Outcome) -> Film {
        let settings = &scenario.world.settings;
        let circle = match scenario.world.kind {
            Kind::Ring | Kind::ChangRoberts => settings.ring().to_vec(),
            Kind::Bully | Kind::Raft => settings.members().to_vec(),
        };
        let flights = flights(&outcome.entries);
        let middling = middling(&flights);
        let log = log(outcome);
        let (stops, busy) = notable(&flights, &log, middling, outcome.end);
        let busy_time: Duration = busy.iter().map(|(from, to)| *to - *from).sum();
        let calm_time = (outcome.end - Moment::ZERO).saturating_sub(busy_time);
        let slow_rate = middling.as_secs_f64() / FLIGHT_SHOWN.as_secs_f64();
        Film {
            file: scenario.file.clone(),
            kind: scenario.world.kind,
            seed: scenario.world.seed,
            looks: circle.iter().map(|node| looks(&outcome.entries, *node)).collect(),
            circle,
            reigns: outcome.meter.reigns().collect(),
            longest_flight: flights.iter().map(|flight| flight.ends - flight.sent).max().unwrap_or_default(),
            flights,
            links: outcome.acts.iter().map(|act| (act.at, act.network.clone())).collect(),
            log,
            stops,
            busy,
            slow_rate,
            calm_rate: slow_rate.max(CALM_A_SECOND.as_secs_f64()).max(calm_time.as_secs_f64() / CALM_SHOWN_MAX.as_secs_f64()),
            end: outcome.end,
            members: settings.members().to_vec(),
        }
    }

    /// How the nodes look, by place in the circle.
    pub(crate) fn looks(&self, at: Moment) -> impl Iterator<Item = (NodeId, Look)> {
        self.circle.iter().zip(&self.looks).map(move |(node, looks)| {
            let count = looks.partition_point(|(since, _)| *since <= at);
            let look = count.checked_sub(1).map_or(Look::UNSEEN, |last| looks[last].1);
            (*node, look)
        })
    }

    /// The nodes in office, with their terms.
    pub(crate) fn in_office(&self, at: Moment) -> Vec<(NodeId, Term)> {
        let holds =
            |reign: &&Reign| reign.during.from <= at && (at < reign.during.to || (at == self.end && reign.during.to == at));
        self.reigns.iter().filter(holds).map(|reign| (reign.node, reign.term)).collect()
    }

    /// The messages in flight.
    pub(crate) fn in_flight(&self, at: Moment) -> impl Iterator<Item = &Flight> {
        let earliest = Moment(at.0.saturating_sub(u64::try_from(self.longest_flight.as_nanos()).unwrap_or(u64::MAX)));
        let from = self.flights.partition_point(|flight| flight.sent < earliest);
        let to = self.flights.partition_point(|flight| flight.sent <= at);
        self.flights[from..to].iter().filter(move |flight| at < flight.ends || at == flight.sent)
    }

    /// How the link between two nodes is.
    pub(crate) fn link(&self, at: Moment, a: NodeId, b: NodeId) -> Link {
        let count = self.links.partition_point(|(since, _)| *since <= at);
        let Some((_, network)) = count.checked_sub(1).map(|last| &self.links[last]) else { return Link::Whole };
        let rank = |node: NodeId| self.members.binary_search(&node).ok().and_then(|rank| u32::try_from(rank).ok());
        let (Some(a), Some(b)) = (rank(a), rank(b)) else { return Link::Whole };
        match (network.carries(a, b, at), network.carries(b, a, at)) {
            (true, true) => Link::Whole,
            (false, true) => Link::CutForth,
            (true, false) => Link::CutBack,
            (false, false) => Link::Cut,
        }
    }

    /// What stands in the log, oldest first.
    pub(crate) fn log(&self, at: Moment) -> &[Line] {
        &self.log[..self.log.partition_point(|line| line.at <= at)]
    }

    /// The next moment worth stopping at.
    pub(crate) fn next_stop(&self, at: Moment) -> Moment {
        let next = self.stops.partition_point(|stop| *stop <= at);
        self.stops.get(next).copied().unwrap_or(self.end)
    }

    /// The one before.
    pub(crate) fn last_stop(&self, at: Moment) -> Moment {
        let count = self.stops.partition_point(|stop| *stop < at);
        count.checked_sub(1).map_or(Moment::ZERO, |last| self.stops[last])
    }

    /// Where the film is when it has gone on for `shown` of real time, at `speed` times its own pace.
    pub(crate) fn after(&self, at: Moment, shown: Duration, speed: f64) -> Moment {
        let mut at = at;
        let mut left = shown.as_secs_f64() * speed;
        while left > 0.0 && at < self.end {
            let (rate, until) = self.rate(at);
            let needed = (until - at).as_secs_f64() / rate;
            if needed > left {
                // At least a nanosecond, or a slow film would stand still.
                return (at + Duration::from_secs_f64(left * rate).max(Duration::from_nanos(1))).min(self.end);
            }
            left -= needed;
            at = until;
        }
        at
    }

    /// How fast simulated time passes now, and until when.
    fn rate(&self, at: Moment) -> (f64, Moment) {
        let next = self.busy.partition_point(|(_, to)| *to <= at);
        match self.busy.get(next) {
            Some((from, to)) if *from <= at => (self.slow_rate, *to),
            Some((from, _)) => (self.calm_rate, *from),
            None => (self.calm_rate, self.end),
        }
    }
}

impl Look {
    const UNSEEN: Look = Look { condition: Condition::Up, role: Role::Follower, term: Term(0), leader: None };
}

impl Flight {
    /// How far it has come, from 0 to 1.
    pub(crate) fn way(&self, at: Moment) -> f64 {
        let length = (self.ends - self.sent).as_secs_f64();
        if length > 0.0 { ((at - self.sent).as_secs_f64() / length).min(1.0) } else { 0.0 }
    }
}

fn looks(entries: &[Entry], node: NodeId) -> Vec<(Moment, Look)> {
    let mut looks = Vec::new();
    let mut look = Look::UNSEEN;
    for entry in entries {
        let before = look;
        match &entry.what {
            Happening::Changed { node: it, view } if *it == node => {
                look = Look { role: view.role, term: view.term, leader: view.leader, ..look };
            }
            Happening::Started { node: it, .. } if *it == node => look = Look::UNSEEN,
            Happening::Crashed { node: it } if *it == node => look.condition = Condition::Down,
            Happening::Done(Fault::Pause(it)) if *it == node && look.condition == Condition::Up => {
                look.condition = Condition::Paused
            }
            Happening::Done(Fault::Resume(it)) if *it == node && look.condition == Condition::Paused => {
                look.condition = Condition::Up
            }
            Happening::Done(Fault::Heal) if look.condition == Condition::Paused => look.condition = Condition::Up,
            Happening::Changed { .. }
            | Happening::Started { .. }
            | Happening::Crashed { .. }
            | Happening::Done(_)
            | Happening::Sent { .. }
            | Happening::Received { .. }
            | Happening::Dropped { .. }
            | Happening::Told { .. }
            | Happening::Requested { .. }
            | Happening::Writing { .. }
            | Happening::Written { .. } => {}
        }
        if look != before {
            looks.push((entry.at, look));
        }
    }
    looks
}

fn flights(entries: &[Entry]) -> Vec<Flight> {
    let flight = |entry: &Entry| match &entry.what {
        Happening::Received { from, to, message, sent } => Some((*from, *to, message.clone(), *sent, false)),
        Happening::Dropped { from, to, message, sent, .. } => Some((*from, *to, message.clone(), *sent, true)),
        Happening::Sent { .. }
        | Happening::Told { .. }
        | Happening::Requested { .. }
        | Happening::Changed { .. }
        | Happening::Done(_)
        | Happening::Started { .. }
        | Happening::Crashed { .. }
        | Happening::Writing { .. }
        | Happening::Written { .. } => None,
    };
    let mut flights: Vec<Flight> = entries
        .iter()
        .filter_map(|entry| flight(entry).map(|it| (entry.at, it)))
        .map(|(ends, (from, to, message, sent, is_lost))| Flight {
            from,
            to,
            sent,
            ends,
            text: message.to_string(),
            name: message.name(),
            is_lost,
            is_routine: is_routine(&message),
        })
        .collect();
    flights.sort_by_key(|flight| flight.sent);
    let middling = middling(&flights);
    // What is lost in the sending would not be seen at all.
    for flight in flights.iter_mut().filter(|flight| flight.is_lost && flight.ends == flight.sent) {
        flight.ends = flight.sent + middling;
    }
    flights
}

/// How long most messages take.
fn middling(flights: &[Flight]) -> Duration {
    let mut lengths: Vec<Duration> =
        flights.iter().filter(|flight| !flight.is_lost).map(|flight| flight.ends - flight.sent).collect();
    lengths.sort_unstable();
    lengths.get(lengths.len() / 2).copied().unwrap_or_default().max(FLIGHT_MIN)
}

fn log(outcome: &Outcome) -> Vec<Line> {
    let mut log = Vec::new();
    for (index, act) in outcome.acts.iter().enumerate() {
        log.push(Line { at: act.at, text: act.text.clone(), is_command: true });
        log.extend(outcome.told(act).into_iter().map(|told| Line { at: told.at, text: told.line(), is_command: false }));
        let end = outcome.acts.get(index + 1).map_or(outcome.end, |next| next.at);
        log.extend(act.shown.iter().map(|text| Line { at: end, text: text.clone(), is_command: false }));
    }
    log
}

/// Where to stop, and when to go slowly.
fn notable(flights: &[Flight], log: &[Line], middling: Duration, end: Moment) -> (Vec<Moment>, Vec<(Moment, Moment)>) {
    let mut stops: Vec<Moment> = log.iter().map(|line| line.at).collect();
    let mut spans: Vec<(Moment, Moment)> = log.iter().map(|line| (line.at, (line.at + middling).min(end))).collect();
    for flight in flights.iter().filter(|flight| !flight.is_routine) {
        stops.extend([flight.sent, flight.sent + (flight.ends - flight.sent) / 2, flight.ends]);
        spans.push((flight.sent, flight.ends));
    }
    stops.sort_unstable();
    stops.dedup();
    spans.sort_unstable();
    let mut busy: Vec<(Moment, Moment)> = Vec::new();
    for (from, to) in spans {
        match busy.last_mut() {
            Some((_, last)) if from <= *last => *last = to.max(*last),
            Some(_) | None => busy.push((from, to)),
        }
    }
    (stops, busy)
}
