//! What the page shows: the comparison's figures and a few recorded runs, flat enough to be embedded as JSON.
//!
//! Everything here is bounded, so that the page opens at once on a phone: [`SAMPLES_MAX`] values a distribution,
//! [`MESSAGES_MAX`] messages a recorded run. Where something is left out, a note says so. This file measures nothing:
//! the comparison fills it in.

use incumbent_protocol::protocol::{Purpose, Role};
use serde::{Serialize, Serializer};

/// A distribution is drawn from at most this many values: more would not change the picture.
pub const SAMPLES_MAX: usize = 200;

/// A recorded run shows at most this many messages: more arrows are a black square.
pub const MESSAGES_MAX: usize = 3000;

/// A recorded run shows at most this many role periods, and as many events, faults and overlaps.
pub const ENTRIES_MAX: usize = 2000;

/// All that a page shows.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Where the figures come from.
    pub meta: Meta,
    /// The scenarios, in the order in which they are offered.
    pub scenarios: Vec<ScenarioNote>,
    /// The comparison: one entry per protocol, guard, size and scenario.
    pub results: Vec<Outcome>,
    /// The runs to watch.
    pub timelines: Vec<Timeline>,
}

/// Where the figures come from: enough to have them again.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Meta {
    /// The heading.
    pub title: String,
    /// The version of the program that measured.
    pub version: String,
    /// The command that made this report.
    pub command: String,
    /// The seed of the first run. Written as text: a browser's numbers end at 2^53.
    #[serde(serialize_with = "as_text")]
    pub seed: u64,
    /// How many runs each entry had.
    pub runs: u32,
    /// When, for people. The caller says it: nothing here looks at a clock.
    pub date: String,
    /// The timing of the groups, by name and value: `heartbeat`, `50 ms`.
    pub pace: Vec<Setting>,
    /// The measures, in the order of the table's columns; see [`glossary`].
    pub glossary: Vec<Definition>,
}

/// A setting that all runs share.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// Its value, with its unit.
    pub value: String,
}

/// What happens in a scenario.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ScenarioNote {
    /// Its name, as in [`Outcome::scenario`].
    pub name: String,
    /// What happens, in a sentence.
    pub meaning: String,
}

/// A measure in plain words.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Definition {
    /// The name of a field of [`Measures`].
    pub measure: &'static str,
    /// The head of its column.
    pub label: &'static str,
    /// What it is counted in.
    pub unit: Unit,
    /// What is measured, from when to when.
    pub meaning: &'static str,
}

/// What a measure is counted in.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Milliseconds of true time.
    Ms,
    /// Things.
    Count,
    /// Bytes.
    Bytes,
}

/// What one protocol did, with or without guard, in groups of one size, in one scenario, over all runs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcome {
    /// The protocol's name.
    pub protocol: String,
    /// Whether a leader needed a quorum behind it.
    pub guarded: bool,
    /// How many nodes a group had.
    pub nodes: u32,
    /// The scenario's name.
    pub scenario: String,
    /// How many runs were made.
    pub runs: u32,
    /// In how many of them nobody was in office at the end.
    pub leaderless_runs: u32,
    /// In how many of them two nodes were in office at one instant.
    pub split_brain_runs: u32,
    /// What was measured.
    pub measures: Measures,
}

/// What was measured. `None`: it never happened in any run (no failover in a cold start).
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[allow(missing_docs, reason = "`glossary` says what each one means")]
pub struct Measures {
    pub split_brain_ms: Option<Spread>,
    pub split_brain_incidents: Option<Spread>,
    pub failover_ms: Option<Spread>,
    pub followed_ms: Option<Spread>,
    pub election_ms: Option<Spread>,
    pub leaderless_ms: Option<Spread>,
    pub leader_changes: Option<Spread>,
    pub messages: Option<Spread>,
    pub contest_messages: Option<Spread>,
    pub bytes: Option<Spread>,
}

/// What the measures mean, in the order in which they matter to a person who must choose.
pub fn glossary() -> Vec<Definition> {
    let define = |measure, label, unit, meaning| Definition { measure, label, unit, meaning };
    vec![
        define(
            "split_brain_ms",
            "Two leaders",
            Unit::Ms,
            "How long two or more nodes held themselves to be in office at once, in one run. Anything but zero is a danger to what they write to.",
        ),
        define(
            "split_brain_incidents",
            "Incidents",
            Unit::Count,
            "How many times a run went from at most one leader to two or more.",
        ),
        define(
            "failover_ms",
            "Failover",
            Unit::Ms,
            "From the beginning of the trouble (in a cold start: from the start) until the next node is in office.",
        ),
        define("followed_ms", "Followed", Unit::Ms, "The same, until a majority of all nodes follows it."),
        define("election_ms", "Election", Unit::Ms, "From the first node that contends until one is in office."),
        define("leaderless_ms", "Leaderless", Unit::Ms, "How long nobody was in office, in one run."),
        define("leader_changes", "Changes", Unit::Count, "How many times the office went to another node or another term."),
        define("messages", "Messages", Unit::Count, "All messages handed to the network, heartbeats included, in one run."),
        define(
            "contest_messages",
            "Contest",
            Unit::Count,
            "The algorithm's own election messages, without heartbeats and the guard's votes: what the textbooks count.",
        ),
        define("bytes", "Traffic", Unit::Bytes, "The length of all messages without the frames around them."),
    ]
}

/// How a measure is spread over the runs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// Half of the runs stayed at or below.
    pub p50: f64,
    /// 99 of 100 runs stayed at or below.
    pub p99: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// The average.
    pub mean: f64,
    /// Values at even ranks, ascending, the least and the greatest among them; at most [`SAMPLES_MAX`]. Empty: no distribution is drawn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<f64>,
}

impl Spread {
    /// The figures of `values` (each finite) without a distribution; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Spread> {
        Spread::with_samples(values).map(|spread| Spread { samples: Vec::new(), ..spread })
    }

    /// The figures of `values` (each finite) with their distribution; `None` if there are none.
    pub fn with_samples(values: &[f64]) -> Option<Spread> {
        assert!(values.iter().all(|value| value.is_finite()), "a measured value is a number");
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        // Nearest rank: a percentile is a value that was measured, never one between two.
        let percentile = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1];
        let kept = sorted.len().min(SAMPLES_MAX);
        let samples = match kept {
            1 => vec![min],
            _ => (0..kept).map(|rank| sorted[rank * (sorted.len() - 1) / (kept - 1)]).map(to_micro).collect(),
        };
        Some(Spread {
            p50: to_micro(percentile(50)),
            p99: to_micro(percentile(99)),
            min: to_micro(min),
            max: to_micro(max),
            mean: to_micro(sorted.iter().sum::<f64>() / sorted.len() as f64),
            samples,
        })
    }
}

/// A recorded run.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Timeline {
    /// What is to be seen in it.
    pub title: String,
    /// The protocol's name.
    pub protocol: String,
    /// Whether a leader needed a quorum behind it.
    pub guarded: bool,
    /// The scenario's name.
    pub scenario: String,
    /// The nodes, in the order of their lanes.
    pub nodes: Vec<u32>,
    /// How long the run was.
    pub duration_ms: f64,
    /// Who was what, when. The periods of a node do not overlap.
    pub roles: Vec<Period>,
    /// Who said what to whom.
    pub messages: Vec<Arrow>,
    /// What went wrong on purpose.
    pub faults: Vec<FaultSpan>,
    /// When two or more nodes were in office at once.
    pub overlaps: Vec<Overlap>,
    /// What the nodes told their users.
    pub events: Vec<Remark>,
    /// What is left out of the picture, if anything.
    pub notes: Vec<String>,
}

/// What a node is, as a spectator sees it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// Follows a leader or waits for one.
    Follower,
    /// Takes part in an election that it may win.
    Candidate,
    /// In office by its own belief, until it says otherwise or its lease has run out.
    Leader,
    /// Crashed.
    Down,
    /// Stopped for a while, and does not know it.
    Paused,
}

impl From<Role> for Standing {
    fn from(role: Role) -> Standing {
        match role {
            Role::Follower => Standing::Follower,
            Role::Candidate => Standing::Candidate,
            Role::Leader => Standing::Leader,
        }
    }
}

/// A node was something for a while.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Period {
    /// Which node.
    pub node: u32,
    /// From when.
    pub from_ms: f64,
    /// Until when.
    pub to_ms: f64,
    /// What it was.
    pub role: Standing,
    /// The term it was in.
    pub term: u64,
    /// The node it took for the leader.
    pub leader: Option<u32>,
}

/// A message from one lane to another.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Arrow {
    /// Who sent it.
    pub from: u32,
    /// To whom.
    pub to: u32,
    /// When it was sent.
    pub sent_ms: f64,
    /// When it arrived; `None` if it was lost.
    pub arrived_ms: Option<f64>,
    /// Its name.
    pub name: String,
    /// The term it speaks of.
    pub term: u64,
    /// What it was for. Upkeep is thinned when there is too much of it.
    #[serde(serialize_with = "as_word")]
    pub purpose: Purpose,
}

/// Something that went wrong on purpose.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FaultSpan {
    /// From when.
    pub from_ms: f64,
    /// Until when.
    pub to_ms: f64,
    /// What it was, as a state that begins and ends: `node 3 is down`.
    pub text: String,
    /// Whom it hit; empty: all.
    pub nodes: Vec<u32>,
}

/// Two or more nodes in office at once.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Overlap {
    /// From when.
    pub from_ms: f64,
    /// Until when.
    pub to_ms: f64,
    /// Which nodes.
    pub nodes: Vec<u32>,
}

/// Something a node told its user, or that happened to it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Remark {
    /// When.
    pub t_ms: f64,
    /// To which node; `None`: to all.
    pub node: Option<u32>,
    /// What, in words that follow the node's number: `is elected in term 2`.
    pub text: String,
}

impl Timeline {
    /// The same run within the limits of a page, its times rounded to microseconds, in the order of time.
    ///
    /// Upkeep messages are thinned evenly. If that is not enough the run is cut short. A note says which was done.
    #[must_use]
    pub fn within_limits(&self) -> Timeline {
        let mut run = self.clone();
        run.round();
        run.sort();
        run.shorten();
        run.thin();
        run
    }

    fn round(&mut self) {
        let arrivals = self.messages.iter_mut().filter_map(|it| it.arrived_ms.as_mut());
        let periods = self.roles.iter_mut().flat_map(|it| [&mut it.from_ms, &mut it.to_ms]);
        let faults = self.faults.iter_mut().flat_map(|it| [&mut it.from_ms, &mut it.to_ms]);
        let overlaps = self.overlaps.iter_mut().flat_map(|it| [&mut it.from_ms, &mut it.to_ms]);
        let rest = periods.chain(faults).chain(overlaps).chain(self.events.iter_mut().map(|it| &mut it.t_ms));
        for time in arrivals.chain(rest).chain([&mut self.duration_ms]) {
            *time = to_micro(*time);
        }
        // Apart, because the arrivals above hold the messages already.
        for message in &mut self.messages {
            message.sent_ms = to_micro(message.sent_ms);
        }
    }

    fn sort(&mut self) {
        self.messages.sort_by(|a, b| a.sent_ms.total_cmp(&b.sent_ms));
        self.roles.sort_by(|a, b| a.from_ms.total_cmp(&b.from_ms));
        self.faults.sort_by(|a, b| a.from_ms.total_cmp(&b.from_ms));
        self.overlaps.sort_by(|a, b| a.from_ms.total_cmp(&b.from_ms));
        self.events.sort_by(|a, b| a.t_ms.total_cmp(&b.t_ms));
    }

    /// Ends the run where the first list would grow too long.
    fn shorten(&mut self) {
        let contest = self.messages.iter().filter(|it| it.purpose != Purpose::Upkeep).map(|it| it.sent_ms);
        let ends = [
            contest.skip(MESSAGES_MAX).min_by(f64::total_cmp),
            self.roles.get(ENTRIES_MAX).map(|it| it.from_ms),
            self.faults.get(ENTRIES_MAX).map(|it| it.from_ms),
            self.overlaps.get(ENTRIES_MAX).map(|it| it.from_ms),
            self.events.get(ENTRIES_MAX).map(|it| it.t_ms),
        ];
        let Some(end) = ends.into_iter().flatten().min_by(f64::total_cmp) else { return };
        self.notes.push(format!("Shown: the first {:.0} of {:.0} ms. The rest is too busy to draw.", end, self.duration_ms));
        self.duration_ms = end;
        // Strictly before the end: what happens at the end itself may be the first too many.
        self.messages.retain(|it| it.sent_ms < end);
        self.roles.retain(|it| it.from_ms < end);
        self.faults.retain(|it| it.from_ms < end);
        self.overlaps.retain(|it| it.from_ms < end);
        self.events.retain(|it| it.t_ms < end);
        let faults = self.faults.iter_mut().map(|it| &mut it.to_ms);
        let overlaps = self.overlaps.iter_mut().map(|it| &mut it.to_ms);
        for to in self.roles.iter_mut().map(|it| &mut it.to_ms).chain(faults).chain(overlaps) {
            *to = to.min(end);
        }
    }

    /// Leaves out upkeep messages, evenly, until the rest fits.
    fn thin(&mut self) {
        let upkeep = self.messages.iter().filter(|it| it.purpose == Purpose::Upkeep).count();
        let room = MESSAGES_MAX - (self.messages.len() - upkeep);
        if upkeep <= room {
            return;
        }
        let mut seen = 0;
        self.messages.retain(|it| {
            if it.purpose != Purpose::Upkeep {
                return true;
            }
            seen += 1;
            // Kept whenever the even share so far reaches the next whole message: `room` times in all.
            seen * room / upkeep > (seen - 1) * room / upkeep
        });
        self.notes.push(format!("Shown: {room} of {upkeep} heartbeats and other upkeep messages, evenly thinned."));
    }
}

/// Rounded to a thousandth: a microsecond, when it is a time.
fn to_micro(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn as_text<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

fn as_word<S: Serializer>(purpose: &Purpose, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match purpose {
        Purpose::Contest => "contest",
        Purpose::Guard => "guard",
        Purpose::Upkeep => "upkeep",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrow(at: f64, purpose: Purpose) -> Arrow {
        Arrow { from: 1, to: 2, sent_ms: at, arrived_ms: None, name: "word".into(), term: 1, purpose }
    }

    #[test]
    fn the_glossary_defines_every_measure_and_no_other() {
        let serde_json::Value::Object(fields) = serde_json::to_value(Measures::default()).unwrap() else {
            panic!("a struct becomes an object")
        };
        let mut defined: Vec<&str> = glossary().iter().map(|it| it.measure).collect();
        defined.sort_unstable();
        let mut measured: Vec<&str> = fields.keys().map(String::as_str).collect();
        measured.sort_unstable();
        assert_eq!(defined, measured);
    }

    #[test]
    fn percentiles_are_measured_values_and_samples_are_bounded_and_keep_both_ends() {
        let values: Vec<f64> = (1..=1000).rev().map(f64::from).collect();
        let spread = Spread::with_samples(&values).unwrap();
        assert_eq!((spread.p50, spread.p99, spread.min, spread.max, spread.mean), (500.0, 990.0, 1.0, 1000.0, 500.5));
        assert_eq!(spread.samples.len(), SAMPLES_MAX);
        assert_eq!((spread.samples[0], spread.samples[SAMPLES_MAX - 1]), (1.0, 1000.0));
        assert!(Spread::of(&values).unwrap().samples.is_empty());
        assert_eq!(Spread::with_samples(&[7.0]).unwrap().samples, [7.0]);
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn too_many_heartbeats_are_thinned_evenly_and_the_contest_is_kept_whole() {
        let mut run = Timeline { duration_ms: 10_000.0, ..Timeline::default() };
        run.messages = (0..10_000).map(|at| arrow(f64::from(at), Purpose::Upkeep)).collect();
        run.messages.extend((0..100).map(|at| arrow(f64::from(at) * 100.0 + 0.5, Purpose::Contest)));
        let shown = run.within_limits();
        assert_eq!(shown.messages.len(), MESSAGES_MAX);
        assert_eq!(shown.messages.iter().filter(|it| it.purpose == Purpose::Contest).count(), 100);
        let first_half = shown.messages.iter().filter(|it| it.sent_ms < 5_000.0).count();
        assert!(first_half.abs_diff(MESSAGES_MAX / 2) <= 2, "{first_half}");
        assert_eq!(shown.notes, ["Shown: 2900 of 10000 heartbeats and other upkeep messages, evenly thinned."]);
    }

    #[test]
    fn a_contest_beyond_the_limit_cuts_the_run_short() {
        let mut run = Timeline { duration_ms: 10_000.0, ..Timeline::default() };
        run.messages = (0..10_000).map(|at| arrow(f64::from(at), Purpose::Contest)).collect();
        run.overlaps = vec![Overlap { from_ms: 10.0, to_ms: 9_000.0, nodes: vec![1, 2] }];
        let shown = run.within_limits();
        assert_eq!((shown.messages.len(), shown.duration_ms, shown.overlaps[0].to_ms), (MESSAGES_MAX, 3000.0, 3000.0));
        assert_eq!(shown.notes.len(), 1);
    }

    #[test]
    fn a_run_within_the_limits_is_only_rounded_and_sorted() {
        let run = Timeline {
            duration_ms: 10.000_000_4,
            messages: vec![arrow(5.123_456_7, Purpose::Contest), arrow(1.0, Purpose::Upkeep)],
            ..Timeline::default()
        };
        let shown = run.within_limits();
        assert_eq!(shown.duration_ms, 10.0);
        assert_eq!(shown.messages.iter().map(|it| it.sent_ms).collect::<Vec<_>>(), [1.0, 5.123]);
        assert!(shown.notes.is_empty());
    }
}
