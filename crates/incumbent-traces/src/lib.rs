//! Traces of what a node or a candidate does, for a collector of OpenTelemetry (OTLP over HTTP, protobuf).
//!
//! ```text
//!   Traces::begin ──► Span: attributes, events ──► dropped: into a bounded queue ──► exporter.rs (a thread) ──► the collector
//! ```
//!
//! - Whoever traces never waits: a span that has no place in the queue is counted and forgotten.
//! - Switched off, which is the default, a span is nothing, and everything done to it is one branch.
//! - Where there are too many, a share of the traces is told, each whole or not at all (`Wish::share`).
//! - A collector that is away is said once, tried again more and more seldom, and said again when it is back.
//! - Nothing leaves this machine in the clear: beyond loopback there must be TLS (collector.rs).
//!
//! ```
//! use incumbent_traces::{Kind, Traces};
//!
//! let traces = Traces::off();
//! let mut span = traces.begin("campaign", Kind::Server, None);
//! span.set("incumbent.election", "nightly");
//! span.event("decided");
//! drop(span); // It ends, and would be told.
//! ```
//!
//! Left out: logs and metrics by OTLP, links between spans, and gRPC. It knows no other crate of ours.

mod collector;
mod context;
mod exporter;
mod span;
mod wire;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc as std_mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::{Notify, watch};

pub use self::collector::{Collector, NotUsable, Wish};
pub use self::context::Context;
use self::context::{Ids, Share};
use self::span::Ended;
pub use self::span::{Kind, Span, Value};

/// Spans that wait for the exporter. At a hundred thousand a second, as much as comes between two looks; some megabytes at most.
const QUEUE_MAX: usize = 16_384;

/// So many go in one request, and so many wake the exporter before its time.
const BATCH_MAX: usize = 512;

/// Whoever closes waits so long for what is left to be taken.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);

const _: () = assert!(BATCH_MAX < QUEUE_MAX / 2, "or it is woken when it is too late");

/// Who is traced: told with every span.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// `service.name`, unless `OTEL_SERVICE_NAME` says otherwise.
    pub service: String,
    /// `service.instance.id`: which of those that have the same name.
    pub instance: String,
    /// `service.version`.
    pub version: String,
    /// What else there is to say of it.
    pub more: Vec<(&'static str, Value)>,
}

/// What became of spans.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Those that the collector has taken.
    pub exported: u64,
    /// Those that were forgotten: the queue was full, the collector refused them, or it was away when this process ended.
    pub dropped: u64,
}

/// Where spans are begun. Clones are of the same; the default is off.
#[derive(Clone, Default)]
pub struct Traces(Option<Arc<Desk>>);

/// What those who trace and the exporter have in common.
pub(crate) struct Desk {
    ids: Ids,
    share: Share,
    queue: Mutex<VecDeque<Ended>>,
    exported: AtomicU64,
    dropped: AtomicU64,
    /// A batch is full.
    full: Notify,
    closing: watch::Sender<bool>,
    /// Ends when the exporter has.
    exporter: Mutex<std_mpsc::Receiver<()>>,
}

impl Traces {
    /// None.
    pub fn off() -> Traces {
        Traces(None)
    }

    /// Traces for this collector, from a thread of their own.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(collector: Collector, source: Source) -> io::Result<Traces> {
        let (alive, exporter) = std_mpsc::channel();
        let desk = Arc::new(Desk::new(collector.share, exporter));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let theirs = Arc::clone(&desk);
        let body = move || {
            runtime.block_on(exporter::run(&theirs, collector, &source));
            // A name that is being looked up must not keep the process.
            runtime.shutdown_background();
            drop(alive);
        };
        thread::Builder::new().name("incumbent-traces".to_owned()).spawn(body)?;
        Ok(Traces(Some(desk)))
    }

    /// Whether anything is traced.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Begins a span: in the trace of its parent if there is one and that one is told, else in a trace of its own. It ends when it is dropped.
    #[inline]
    pub fn begin(&self, name: &'static str, kind: Kind, parent: Option<Context>) -> Span {
        match &self.0 {
            Some(desk) => Span::begin(desk, name, kind, parent),
            None => Span::none(),
        }
    }

    /// What became of those that have ended.
    pub fn counts(&self) -> Counts {
        let Some(desk) = &self.0 else { return Counts::default() };
        Counts { exported: desk.exported.load(Ordering::Relaxed), dropped: desk.dropped.load(Ordering::Relaxed) }
    }

    /// Sends what has ended, if the collector takes it within two seconds. Nothing is sent after that.
    pub fn close(&self) {
        let Some(desk) = &self.0 else { return };
        desk.closing.send_replace(true);
        let exporter = desk.exporter.lock().unwrap_or_else(PoisonError::into_inner);
        // It never says a word; it ends.
        let _ = exporter.recv_timeout(FLUSH_WITHIN);
    }
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_on() { "Traces(on)" } else { "Traces(off)" })
    }
}

impl Desk {
    fn new(share: Share, exporter: std_mpsc::Receiver<()>) -> Desk {
        Desk {
            ids: Ids::new(),
            share,
            queue: Mutex::default(),
            exported: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            full: Notify::new(),
            closing: watch::Sender::new(false),
            exporter: Mutex::new(exporter),
        }
    }

    fn push(&self, span: Ended) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.len() >= QUEUE_MAX {
            drop(queue);
            self.drop_some(1);
            return;
        }
        queue.push_back(span);
        let is_full = queue.len() == BATCH_MAX;
        drop(queue);
        if is_full {
            self.full.notify_one();
        }
    }

    /// The oldest of those that wait.
    fn take(&self) -> Vec<Ended> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let count = queue.len().min(BATCH_MAX);
        queue.drain(..count).collect()
    }

    fn drop_some(&self, count: usize) {
        self.dropped.fetch_add(count as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A desk that nobody empties.
    fn desk(share: Share) -> Arc<Desk> {
        let (_, exporter) = std_mpsc::channel();
        Arc::new(Desk::new(share, exporter))
    }

    #[test]
    fn what_has_no_place_is_counted_and_nobody_waits_for_it() {
        let traces = Traces(Some(desk(Share::ALL)));
        for _ in 0..QUEUE_MAX + 7 {
            drop(traces.begin("put", Kind::Server, None));
        }
        assert_eq!(traces.counts(), Counts { exported: 0, dropped: 7 });
        let desk = traces.0.as_ref().unwrap();
        assert_eq!((desk.take().len(), desk.take().len()), (BATCH_MAX, BATCH_MAX));
    }

    #[test]
    fn off_nothing_is_told() {
        let traces = Traces::off();
        let mut span = traces.begin("put", Kind::Server, None);
        span.set("a", 1_u64);
        span.event("decided");
        assert!(!span.is_told() && span.context().is_none() && !traces.is_on());
        traces.close();
    }

    #[test]
    fn a_child_is_told_if_its_parent_is() {
        let traces = Traces(Some(desk(Share::ALL)));
        let parent = traces.begin("GET", Kind::Server, None);
        let context = parent.context().unwrap();
        let child = traces.begin("look", Kind::Internal, Some(context)).context().unwrap();
        assert_eq!((child.trace, child.span != context.span), (context.trace, true));
        let untold = Context { is_told: false, ..context };
        assert!(!traces.begin("look", Kind::Internal, Some(untold)).is_told());
        let other = traces.begin("GET", Kind::Server, None).context().unwrap();
        assert_ne!(other.trace, context.trace);
    }

    #[test]
    fn of_a_trace_that_is_not_told_nothing_is_told() {
        let traces = Traces(Some(desk(Share::of(0.0).unwrap())));
        let parent = traces.begin("GET", Kind::Server, None);
        let context = parent.context().expect("others must be told that it is not");
        assert!(!parent.is_told() && !context.is_told);
        let child = traces.begin("look", Kind::Internal, Some(context));
        assert_eq!((child.is_told(), child.context().unwrap().trace), (false, context.trace));
        let asked = Context { is_told: true, ..context };
        assert!(traces.begin("look", Kind::Internal, Some(asked)).is_told(), "whoever asks decides");
    }
}
