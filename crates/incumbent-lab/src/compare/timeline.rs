//! One run as a picture: who was what when, who said what to whom, what went wrong.
//!
//! The picture begins a little before the trouble and ends a little after it. Upkeep is thinned by whole rounds of heartbeats, so that what
//! is left still reads as questions and their answers. Left out: how it is drawn.

use std::collections::BTreeMap;
use std::time::Duration;

use incumbent_protocol::machine::Message;
use incumbent_protocol::protocol::{NodeId, Purpose, View, Wire};

use super::finding::time;
use super::trial::{Ended, Trial};
use crate::fault::Fault;
use crate::observation::Moment;
use crate::report::model::{Arrow, FaultSpan, Overlap, Period, Remark, Standing, Timeline};
use crate::trace::{Entry, Happening, Recording};

/// More upkeep messages than this are thinned: a page with sixteen pictures must still open at once.
const UPKEEP_MAX: usize = 600;

/// How much of the calm before the trouble is shown, and of what follows its end, in longest patiences.
const BEFORE: u32 = 2;
const AFTER: u32 = 4;

/// The picture of one run.
pub fn timeline(trial: &Trial) -> Timeline {
    let ended = trial.run_recorded(Recording::All);
    let patience = trial.place.pace().patience_max;
    let trouble = ended.script.incidents.iter().filter_map(|incident| incident.until).max().unwrap_or_default();
    let from = Moment::ZERO + (ended.begin - Moment::ZERO).saturating_sub(patience * BEFORE);
    let until = (ended.begin + trouble + patience * AFTER).min(ended.world.now());
    let mut picture = Picture {
        from,
        until,
        lanes: BTreeMap::new(),
        roles: Vec::new(),
        arrows: Vec::new(),
        underway: BTreeMap::new(),
        remarks: Vec::new(),
    };
    for entry in ended.world.trace().entries().take_while(|entry| entry.at <= until) {
        picture.add(entry);
    }
    let (faults, overlaps) = (faults(&ended, &picture), overlaps(&ended, &picture));
    let (mut messages, notes) = thinned(picture.arrows_shown(), trial.place.pace().heartbeat);
    messages.sort_by(|a, b| a.sent_ms.total_cmp(&b.sent_ms));
    let duration_ms = picture.ms(until);
    picture.close();
    Timeline {
        title: title(trial, &ended),
        protocol: trial.kind.to_string(),
        guarded: trial.guarded,
        scenario: trial.scenario.to_string(),
        nodes: ended.world.settings().members().iter().map(|id| id.0).collect(),
        duration_ms,
        roles: picture.roles,
        messages,
        faults,
        overlaps,
        events: picture.remarks,
        notes,
    }
}

/// What is to be seen, from what was measured.
fn title(trial: &Trial, ended: &Ended) -> String {
    let guard = if trial.guarded { "with guard" } else { "without guard" };
    let figures = ended.figures();
    let seen = match figures.failover {
        _ if figures.overlaps > 0 => format!("two leaders at once for {}", time(figures.overlap_longest)),
        Some(failover) => format!("a leader after {}", time(failover)),
        None => "the leader stays in office".into(),
    };
    format!("{} {guard}, {}: {seen}", trial.kind, trial.scenario)
}

/// A picture in the making.
struct Picture {
    from: Moment,
    until: Moment,
    /// What each node is at present, and since when.
    lanes: BTreeMap<NodeId, Lane>,
    roles: Vec<Period>,
    arrows: Vec<Sending>,
    /// Messages that have not arrived yet: where they stand in `arrows`.
    underway: BTreeMap<(NodeId, NodeId, Moment), Vec<usize>>,
    remarks: Vec<Remark>,
}

#[derive(Clone, Copy)]
struct Lane {
    since: Moment,
    view: View,
    condition: Condition,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Up,
    Paused,
    Down,
}

struct Sending {
    from: NodeId,
    to: NodeId,
    sent: Moment,
    arrived: Option<Moment>,
    message: Message,
}

impl Picture {
    fn add(&mut self, entry: &Entry) {
        let at = entry.at;
        match &entry.what {
            Happening::Changed { node, view } => {
                self.turn(at, *node, |lane| (lane.view, lane.condition) = (*view, up(lane.condition)))
            }
            Happening::Crashed { node } => self.turn(at, *node, |lane| lane.condition = Condition::Down),
            Happening::Done(Fault::Pause(node)) => self.turn(at, *node, |lane| {
                if lane.condition == Condition::Up {
                    lane.condition = Condition::Paused;
                }
            }),
            Happening::Done(Fault::Resume(node)) => self.turn(at, *node, |lane| {
                if lane.condition == Condition::Paused {
                    lane.condition = Condition::Up;
                }
            }),
            Happening::Sent { from, to, message } => {
                self.underway.entry((*from, *to, at)).or_default().push(self.arrows.len());
                self.arrows.push(Sending { from: *from, to: *to, sent: at, arrived: None, message: message.clone() });
            }
            Happening::Received { from, to, message, sent } => {
                let arrows = &mut self.arrows;
                let Some(waiting) = self.underway.get_mut(&(*from, *to, *sent)) else { return };
                if let Some(place) = waiting.iter().position(|number| arrows[*number].message == *message) {
                    arrows[waiting.remove(place)].arrived = Some(at);
                }
            }
            Happening::Told { node, .. } if at >= self.from => {
                let words = entry.what.to_string();
                // The lane says who.
                let text = words.strip_prefix(&format!("{node} ")).unwrap_or(&words).to_owned();
                self.remarks.push(Remark { t_ms: self.ms(at), node: Some(node.0), text });
            }
            Happening::Told { .. }
            | Happening::Done(_)
            | Happening::Dropped { .. }
            | Happening::Requested { .. }
            | Happening::Started { .. }
            | Happening::Writing { .. }
            | Happening::Written { .. } => {}
        }
    }

    /// A node becomes something else.
    fn turn(&mut self, at: Moment, node: NodeId, change: impl FnOnce(&mut Lane)) {
        let fresh = || {
            let view =
                View { role: incumbent_protocol::protocol::Role::Follower, term: Default::default(), leader: None, until: None };
            Lane { since: at, view, condition: Condition::Up }
        };
        let mut lane = self.lanes.get(&node).copied().unwrap_or_else(fresh);
        self.end_period(node, &lane, at);
        change(&mut lane);
        lane.since = at;
        self.lanes.insert(node, lane);
    }

    fn end_period(&mut self, node: NodeId, lane: &Lane, at: Moment) {
        let since = lane.since.max(self.from);
        if at <= since {
            return;
        }
        let role = match lane.condition {
            Condition::Up => lane.view.role.into(),
            Condition::Paused => Standing::Paused,
            Condition::Down => Standing::Down,
        };
        let (from_ms, to_ms) = (self.ms(since), self.ms(at));
        let leader = lane.view.leader.map(|leader| leader.0);
        self.roles.push(Period { node: node.0, from_ms, to_ms, role, term: lane.view.term.0, leader });
    }

    /// The picture ends: so do all periods.
    fn close(&mut self) {
        for (node, lane) in self.lanes.clone() {
            self.end_period(node, &lane, self.until);
        }
    }

    fn arrows_shown(&self) -> Vec<Arrow> {
        let shown = self.arrows.iter().filter(|it| it.sent >= self.from && it.arrived.is_none_or(|at| at <= self.until));
        let arrow = |it: &Sending| Arrow {
            from: it.from.0,
            to: it.to.0,
            sent_ms: self.ms(it.sent),
            arrived_ms: it.arrived.map(|at| self.ms(at)),
            name: it.message.name().to_owned(),
            term: it.message.term().0,
            purpose: it.message.purpose(),
        };
        // What was sent just before the end has not arrived, but is not lost either.
        let fresh = |it: &&Sending| it.arrived.is_some() || self.until - it.sent > UNDERWAY_AT_END;
        shown.filter(fresh).map(arrow).collect()
    }

    fn ms(&self, at: Moment) -> f64 {
        (at - self.from).as_secs_f64() * 1000.0
    }
}

/// A message sent this short before the end of the picture, and not arrived, is left out.
const UNDERWAY_AT_END: Duration = Duration::from_millis(200);

fn up(condition: Condition) -> Condition {
    match condition {
        Condition::Up | Condition::Down => Condition::Up,
        Condition::Paused => Condition::Paused,
    }
}

fn faults(ended: &Ended, picture: &Picture) -> Vec<FaultSpan> {
    let span = |incident: &super::scenario::Incident| {
        let end = incident.until.map_or(picture.until, |until| (ended.begin + until).min(picture.until));
        FaultSpan {
            from_ms: picture.ms(ended.begin),
            to_ms: picture.ms(end),
            text: incident.text.clone(),
            nodes: incident.nodes.iter().map(|id| id.0).collect(),
        }
    };
    ended.script.incidents.iter().map(span).collect()
}

fn overlaps(ended: &Ended, picture: &Picture) -> Vec<Overlap> {
    let meter = ended.world.meter();
    let shown = meter.overlaps().iter().filter(|it| it.to > picture.from && it.from < picture.until);
    let overlap = |it: &crate::meter::Interval| {
        let within = meter.reigns().filter(|reign| reign.during.from < it.to && reign.during.to > it.from);
        let mut nodes: Vec<u32> = within.map(|reign| reign.node.0).collect();
        nodes.sort_unstable();
        nodes.dedup();
        Overlap { from_ms: picture.ms(it.from.max(picture.from)), to_ms: picture.ms(it.to.min(picture.until)), nodes }
    };
    shown.map(overlap).collect()
}

/// Leaves out whole rounds of heartbeats until few enough upkeep messages are left, and says so.
fn thinned(arrows: Vec<Arrow>, heartbeat: Duration) -> (Vec<Arrow>, Vec<String>) {
    let upkeep = arrows.iter().filter(|it| it.purpose == Purpose::Upkeep).count();
    let every = upkeep.div_ceil(UPKEEP_MAX).max(1) as u64;
    if every == 1 {
        return (arrows, Vec::new());
    }
    let round_ms = heartbeat.as_secs_f64() * 1000.0;
    let round = |it: &Arrow| (it.sent_ms / round_ms) as u64;
    let kept: Vec<Arrow> =
        arrows.into_iter().filter(|it| it.purpose != Purpose::Upkeep || round(it).is_multiple_of(every)).collect();
    let left = kept.iter().filter(|it| it.purpose == Purpose::Upkeep).count();
    (kept, vec![format!("Shown: {left} of {upkeep} heartbeats and other upkeep messages, in whole rounds.")])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::scenario::Scenario;
    use crate::compare::trial::Place;
    use incumbent_protocol::machine::Kind;

    fn drawn(kind: Kind, guarded: bool, scenario: Scenario) -> Timeline {
        timeline(&Trial { kind, guarded, nodes: 5, scenario, place: Place::Lan, seed: 1 })
    }

    fn at(run: &Timeline, node: u32, t_ms: f64) -> &Period {
        run.roles.iter().find(|it| it.node == node && it.from_ms <= t_ms && t_ms < it.to_ms).unwrap()
    }

    #[test]
    fn every_lane_is_filled_without_gaps_or_overlaps() {
        for scenario in [Scenario::Partition, Scenario::Pause, Scenario::LeaderReturn, Scenario::ColdStart] {
            for kind in Kind::ALL {
                let run = drawn(kind, true, scenario);
                for node in &run.nodes {
                    let mut lane: Vec<&Period> = run.roles.iter().filter(|it| it.node == *node).collect();
                    lane.sort_by(|a, b| a.from_ms.total_cmp(&b.from_ms));
                    assert_eq!((lane[0].from_ms, lane[lane.len() - 1].to_ms), (0.0, run.duration_ms), "{kind} {scenario} {node}");
                    assert!(lane.windows(2).all(|pair| pair[0].to_ms == pair[1].from_ms), "{kind} {scenario} {node}");
                }
                let arrived = |it: &Arrow| it.arrived_ms.is_none_or(|at| at >= it.sent_ms && at <= run.duration_ms);
                assert!(run.messages.iter().all(arrived), "{kind} {scenario}");
            }
        }
    }

    #[test]
    fn two_leaders_in_a_partition_are_drawn_as_such_and_a_guarded_group_has_none() {
        let run = drawn(Kind::Bully, false, Scenario::Partition);
        let [overlap] = &run.overlaps[..] else { panic!("{:?}", run.overlaps) };
        assert_eq!(overlap.nodes.len(), 2);
        let middle = (overlap.from_ms + overlap.to_ms) / 2.0;
        for node in &overlap.nodes {
            assert_eq!(at(&run, *node, middle).role, Standing::Leader);
        }
        let fault = &run.faults[0];
        assert!(fault.from_ms < overlap.from_ms && fault.to_ms < overlap.to_ms && overlap.to_ms < run.duration_ms, "{run:?}");
        assert!(run.title.starts_with("bully without guard, partition: two leaders at once for 2."), "{}", run.title);
        // Across the split nothing arrives.
        let across = |it: &&Arrow| (fault.nodes.contains(&it.from)) != fault.nodes.contains(&it.to);
        let during = |it: &&Arrow| it.sent_ms > fault.from_ms && it.sent_ms < fault.to_ms;
        let lost: Vec<&Arrow> = run.messages.iter().filter(across).filter(during).collect();
        assert!(lost.len() > 20 && lost.iter().all(|it| it.arrived_ms.is_none()));
        assert!(drawn(Kind::Bully, true, Scenario::Partition).overlaps.is_empty());
    }

    #[test]
    fn the_dead_and_the_paused_are_seen_as_such() {
        let run = drawn(Kind::Raft, true, Scenario::LeaderCrash);
        let fault = &run.faults[0];
        assert_eq!(at(&run, fault.nodes[0], fault.from_ms - 1.0).role, Standing::Leader);
        assert_eq!(at(&run, fault.nodes[0], fault.from_ms + 1.0).role, Standing::Down);
        assert!(run.events.iter().any(|it| it.text.starts_with("leads term=")), "{:?}", run.events);
        let run = drawn(Kind::Raft, true, Scenario::Pause);
        let fault = &run.faults[0];
        assert_eq!(at(&run, fault.nodes[0], (fault.from_ms + fault.to_ms) / 2.0).role, Standing::Paused);
    }

    #[test]
    fn upkeep_is_thinned_and_nothing_else() {
        let run = drawn(Kind::Raft, true, Scenario::Partition);
        let upkeep = run.messages.iter().filter(|it| it.purpose == Purpose::Upkeep).count();
        assert!((100..=UPKEEP_MAX).contains(&upkeep), "{upkeep}");
        assert_eq!(run.notes.len(), 1);
    }
}
