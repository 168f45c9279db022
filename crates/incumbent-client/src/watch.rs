//! A watch: what happens, told once and in order, whichever nodes tell it.

use std::sync::Arc;

use incumbent_store::event::Event;
use incumbent_store::refusal::Refusal;
use tokio::sync::mpsc;

use crate::docket::Docket;

/// So many batches wait for a slow reader. What is behind them stays with the node.
pub(crate) const QUEUE_MAX: usize = 64;

/// What has happened, some revisions at once. A revision is never divided (W4).
#[derive(Clone, PartialEq, Debug)]
pub struct Batch {
    /// In their order; at least one.
    pub events: Vec<Event>,
    /// All that is of interest before this revision has been told: a watch from here goes on without gap or repetition (W5).
    pub next: u64,
}

/// Why nothing more will be told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cease {
    /// [`Refusal::Lagged`] or [`Refusal::Compacted`]: what comes next is not kept any more, so read how things stand and watch anew from there. Or why there is no watching this at all.
    Refused(Refusal),
    /// The client was closed.
    Closed,
}

/// A watch. It goes on across connections and nodes; dropping it ends it.
#[must_use = "a watch that is dropped hears nothing"]
pub struct Watch {
    docket: Arc<Docket>,
    id: u64,
    queue: mpsc::Receiver<Batch>,
}

impl Watch {
    pub(crate) fn new(docket: Arc<Docket>, id: u64, queue: mpsc::Receiver<Batch>) -> Watch {
        Watch { docket, id, queue }
    }

    /// What has happened next. May be dropped and called again: nothing is lost.
    ///
    /// # Errors
    /// If nothing more will be told. From then on the answer is the same.
    pub async fn next(&mut self) -> Result<Batch, Cease> {
        loop {
            if let Ok(batch) = self.queue.try_recv() {
                return Ok(batch);
            }
            if let Some(cease) = self.docket.caught_up(self.id) {
                // Its last words may have come between the two looks.
                return self.queue.try_recv().map_err(|_| cease);
            }
            if let Some(batch) = self.queue.recv().await {
                return Ok(batch);
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.docket.unwatch(self.id);
    }
}
