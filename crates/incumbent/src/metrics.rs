//! Figures about elections, for a registry that the application hands over. No globals: many nodes may live in one process.
//!
//! | name | kind | labels | what |
//! | --- | --- | --- | --- |
//! | `incumbent_election_duration_seconds` | histogram | `election` | from the beginning of a candidacy, or the end of the last leadership, to office |
//! | `incumbent_leadership_changes_total` | counter | `election`, `reason` | leaderships of this process that ended, and why |
//! | `incumbent_in_office` | gauge | `election` | 1 while this process leads, 0 while it does not and has contended |
//! | `incumbent_leader_uptime_seconds` | gauge | `election` | how long the present leadership has lasted, as of its last renewal |
//! | `incumbent_call_duration_seconds` | histogram | `election`, `call` | how long the engine took to answer: `claim`, `renew`, `inquire`, `release` |
//! | `incumbent_call_failures_total` | counter | `election`, `call` | calls without an answer about the seat |
//! | `incumbent_deadline_margin_seconds` | histogram | `election` | what was left of the validity when a renewal was acknowledged |
//! | `incumbent_candidates` | gauge | `election` | who waits, as last looked at |
//! | `incumbent_fence_refusals_total` | counter | `resource` | stale tokens that a guard has refused |

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use incumbent_protocol::tenure::{Outcome, Reason};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::name::Name;

type Labels = Vec<(&'static str, String)>;
type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// From a millisecond, which a local engine takes, to a minute and a half, which nobody should have to wait.
const BOUNDS_SECONDS: [f64; 14] = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0, 10.0, 30.0, 90.0];

fn histogram() -> Histogram {
    Histogram::new(BOUNDS_SECONDS)
}

/// The figures; see the [module](self). One per registry, given to every election of the process.
pub struct Metrics {
    election_duration: Histograms,
    leadership_changes: Family<Labels, Counter>,
    in_office: Family<Labels, Gauge>,
    leader_uptime: Family<Labels, Gauge<f64, AtomicU64>>,
    call_duration: Histograms,
    call_failures: Family<Labels, Counter>,
    deadline_margin: Histograms,
    candidates: Family<Labels, Gauge>,
    fence_refusals: Family<Labels, Counter>,
    since: Mutex<BTreeMap<Name, Instant>>,
}

impl Metrics {
    /// Makes the figures and registers them.
    pub fn register(registry: &mut Registry) -> Metrics {
        let it = Metrics {
            election_duration: Family::new_with_constructor(histogram),
            leadership_changes: Family::default(),
            in_office: Family::default(),
            leader_uptime: Family::default(),
            call_duration: Family::new_with_constructor(histogram),
            call_failures: Family::default(),
            deadline_margin: Family::new_with_constructor(histogram),
            candidates: Family::default(),
            fence_refusals: Family::default(),
            since: Mutex::default(),
        };
        let ours = registry.sub_registry_with_prefix("incumbent");
        let seconds = Unit::Seconds;
        ours.register_with_unit("election_duration", "From candidacy to office", seconds.clone(), it.election_duration.clone());
        ours.register("leadership_changes", "Leaderships of this process that ended", it.leadership_changes.clone());
        ours.register("in_office", "1 while this process leads", it.in_office.clone());
        ours.register_with_unit("leader_uptime", "Age of the present leadership", seconds.clone(), it.leader_uptime.clone());
        ours.register_with_unit("call_duration", "How long the engine took to answer", seconds.clone(), it.call_duration.clone());
        ours.register("call_failures", "Calls without an answer about the seat", it.call_failures.clone());
        ours.register_with_unit("deadline_margin", "Validity left at a renewal", seconds, it.deadline_margin.clone());
        ours.register("candidates", "Who waits", it.candidates.clone());
        ours.register("fence_refusals", "Stale tokens refused", it.fence_refusals.clone());
        it
    }

    /// A guard of `resource` has refused a stale token.
    pub fn on_fence_refusal(&self, resource: &str) {
        self.fence_refusals.get_or_create(&vec![("resource", resource.to_owned())]).inc();
    }

    pub(crate) fn on_call(&self, election: &Name, call: &'static str, took: Duration, outcome: Outcome) {
        let labels = vec![("election", election.to_string()), ("call", call.to_owned())];
        match outcome {
            Outcome::Refused | Outcome::Unknown => {
                self.call_failures.get_or_create(&labels).inc();
            }
            Outcome::Granted { .. } | Outcome::Held { .. } | Outcome::Occupied { .. } | Outcome::Vacant => {
                self.call_duration.get_or_create(&labels).observe(took.as_secs_f64());
            }
        }
    }

    /// Its gauge is there from now on: that nobody leads could not be told from figures that are missing.
    pub(crate) fn on_candidacy(&self, election: &Name) {
        // Not set: another candidacy of this process may be in office.
        drop(self.in_office.get_or_create(&of(election)));
    }

    pub(crate) fn on_elected(&self, election: &Name, took: Duration) {
        self.election_duration.get_or_create(&of(election)).observe(took.as_secs_f64());
        self.in_office.get_or_create(&of(election)).set(1);
        self.since.lock().expect("nobody panics with it").insert(election.clone(), Instant::now());
    }

    pub(crate) fn on_renewed(&self, election: &Name, margin: Duration) {
        self.deadline_margin.get_or_create(&of(election)).observe(margin.as_secs_f64());
        if let Some(since) = self.since.lock().expect("nobody panics with it").get(election) {
            self.leader_uptime.get_or_create(&of(election)).set(since.elapsed().as_secs_f64());
        }
    }

    pub(crate) fn on_lost(&self, election: &Name, reason: Reason) {
        let labels = vec![("election", election.to_string()), ("reason", reason.to_string())];
        self.leadership_changes.get_or_create(&labels).inc();
        self.in_office.get_or_create(&of(election)).set(0);
        self.leader_uptime.get_or_create(&of(election)).set(0.0);
        self.since.lock().expect("nobody panics with it").remove(election);
    }

    pub(crate) fn on_candidates(&self, election: &Name, count: usize) {
        self.candidates.get_or_create(&of(election)).set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}

fn of(election: &Name) -> Labels {
    vec![("election", election.to_string())]
}
