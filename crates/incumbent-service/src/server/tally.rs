//! Counts what was asked of a node and what came of it, by either protocol: one figure, told by HTTP with the others.
//!
//! All its words are of tables of ours, so nobody makes a new figure by asking for what is not there.

use std::borrow::Cow;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::desk::Asker;
use super::tracer::Settles;

/// Since the node was started. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(Family<Labels, Counter>);

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Labels {
    protocol: &'static str,
    method: &'static str,
    route: &'static str,
    status: Cow<'static, str>,
}

/// What was asked over the binary stream: its kind and its name, as its span has it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Operation {
    pub(super) kind: &'static str,
    pub(super) name: &'static str,
}

/// What came of it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Came {
    Done,
    Refused,
    NotNow,
    Unknown,
}

impl Came {
    fn word(self) -> &'static str {
        match self {
            Came::Done => "done",
            Came::Refused => "refused",
            Came::NotNow => "not_now",
            Came::Unknown => "unknown",
        }
    }
}

impl Tally {
    /// A request by HTTP was answered.
    pub(crate) fn http(&self, method: &'static str, route: &'static str, status: u16) {
        self.count(Labels { protocol: "http", method, route, status: status.to_string().into() });
    }

    /// A request over the binary stream was answered.
    pub(super) fn stream(&self, operation: Operation, came: Came) {
        let Operation { kind, name } = operation;
        self.count(Labels { protocol: "stream", method: kind, route: name, status: came.word().into() });
    }

    /// The same, of whoever is to answer.
    pub(super) fn counted<T: Settles + Send + 'static>(
        &self,
        operation: Operation,
        answer: impl FnOnce(T) + Send + 'static,
    ) -> Asker<T> {
        let here = self.clone();
        Asker::new(move |came: T| {
            here.stream(operation, came.came());
            answer(came);
        })
    }

    /// So that it is told.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("requests", "Requests that were answered", self.0.clone());
    }

    fn count(&self, labels: Labels) {
        self.0.get_or_create(&labels).inc();
    }
}
