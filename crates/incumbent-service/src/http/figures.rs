//! Figures for Prometheus: of the node, as it is when it is asked, and of what was asked of it. Their names and meanings stand in docs/http.md, and a test compares.

use std::sync::atomic::AtomicU64;

use incumbent_peer::switchboard::LineState;
use incumbent_store::query::Status;
use incumbent_traces::Counts;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::{Registry, Unit};

use super::limits::STREAMS_MAX;
use crate::server::{NodeStatus, Tally};

type Labels = Vec<(&'static str, String)>;

/// All of them as text. `streams_free`: so many streams may still be opened.
pub(super) fn tell(
    node: &NodeStatus,
    stored: &Status,
    tally: &Tally,
    spans: Counts,
    streams_free: usize,
) -> Result<String, std::fmt::Error> {
    let mut now = Registry::with_prefix("incumbent_service");
    register_node(&mut now, node);
    register_lines(&mut now, node);
    register_store(&mut now, stored);
    now.register("spans_exported", "Spans that a collector has taken", ConstCounter::new(spans.exported));
    now.register("spans_dropped", "Spans that no collector has taken in time", ConstCounter::new(spans.dropped));
    tally.register(&mut now);
    let streams = STREAMS_MAX.saturating_sub(streams_free);
    now.register("http_streams", "Streams of events that are open", ConstGauge::new(streams));
    let mut text = String::new();
    encode_registry(&mut text, &now)?;
    encode_eof(&mut text)?;
    Ok(text)
}

fn flag(is_so: bool) -> ConstGauge<u32> {
    ConstGauge::new(u32::from(is_so))
}

fn register_node(now: &mut Registry, node: &NodeStatus) {
    now.register("leads", "1 while this node leads", flag(node.role.leads));
    now.register("leader_known", "1 while this node knows who leads", flag(node.role.leader.is_some()));
    now.register("term", "The term", ConstGauge::new(node.role.term.0));
    now.register("voters", "Members that vote", ConstGauge::new(node.roll.voters().len()));
    now.register("learners", "Members that only learn", ConstGauge::new(node.roll.learners().len()));
    now.register("commit_index", "Up to where entries are known to be decided", ConstGauge::new(node.commit));
    now.register("applied_index", "Up to where entries are applied", ConstGauge::new(node.applied));
    now.register("first_index", "The first entry that is kept", ConstGauge::new(node.first));
    now.register("last_index", "The last entry", ConstGauge::new(node.last));
    now.register("snapshot_index", "The last snapshot", ConstGauge::new(node.snapshot));
    now.register("revision", "The revision of the store", ConstGauge::new(node.revision));
    now.register("watches", "Watches on this node", ConstGauge::new(node.watches));
    now.register("waiting", "Requests and questions that wait", ConstGauge::new(node.waiting));
    let disk = &node.disk;
    now.register("disk_writes", "Writes with their syncs", ConstCounter::new(disk.writes));
    let (last, longest) = (ConstGauge::new(disk.last.as_secs_f64()), ConstGauge::new(disk.longest.as_secs_f64()));
    now.register_with_unit("disk_last_write", "How long the last write took", Unit::Seconds, last);
    now.register_with_unit("disk_longest_write", "How long the longest write took", Unit::Seconds, longest);
    now.register("disk_slow", "1 while the disk is too slow for a leader", flag(disk.slow));
    now.register("disk_full", "1 while the disk is full", flag(disk.full.is_some()));
}

fn register_lines(now: &mut Registry, node: &NodeStatus) {
    let up: Family<Labels, Gauge> = Family::default();
    let round_trip: Family<Labels, Gauge<f64, AtomicU64>> = Family::default();
    for line in &node.lines {
        let labels = vec![("node", line.peer.to_string())];
        up.get_or_create(&labels).set(i64::from(line.state == LineState::Up));
        if let Some(took) = line.round_trip {
            round_trip.get_or_create(&labels).set(took.as_secs_f64());
        }
    }
    now.register("line_up", "1 while another node is heard directly", up);
    now.register_with_unit("line_round_trip", "The last round trip to another node", Unit::Seconds, round_trip);
}

fn register_store(now: &mut Registry, stored: &Status) {
    now.register("oldest_revision", "The oldest revision whose events are kept", ConstGauge::new(stored.oldest));
    now.register("incarnation", "The incarnation of the store", ConstGauge::new(stored.incarnation));
    now.register("sessions", "Sessions", ConstGauge::new(stored.sessions));
    now.register("elections", "Elections", ConstGauge::new(stored.elections));
    now.register("keys", "Keys", ConstGauge::new(stored.keys));
    now.register_with_unit("keys", "Bytes in keys and values", Unit::Bytes, ConstGauge::new(stored.keys_bytes));
    now.register("clients", "Clients whose requests are remembered", ConstGauge::new(stored.clients));
    now.register("events", "Events that are kept", ConstGauge::new(stored.events));
}
