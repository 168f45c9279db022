//! Who listens for what: all watches of one engine share one connection for hints.
//!
//! The engine's own task serves the [`Orders`]: it tells the server what is to be heard, and tells the listeners. When the task ends, all of them hear so, and the
//! next one to listen starts another. Nothing here is needed for safety: whoever hears nothing asks now and then.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use crate::engine::Error;

/// The task that hears, if one runs.
#[derive(Default)]
pub(super) struct Hints {
    task: Mutex<Option<Task>>,
}

struct Task {
    orders: mpsc::UnboundedSender<Order>,
    end: AbortHandle,
}

/// What the task is told to do.
pub(super) enum Order {
    /// Somebody wants to hear of a topic.
    Listen(String, oneshot::Sender<watch::Receiver<u64>>),
    /// Somebody has gone.
    Leave(String),
}

/// Comes to the task.
pub(super) type Orders = mpsc::UnboundedReceiver<Order>;

impl Hints {
    /// Hints about `topic`. The first one comes at once if `begin`, asked once everything after it will be heard, says that there is something to see.
    pub(super) fn listen<T, B>(
        &self,
        topic: String,
        serve: impl FnOnce(Orders) -> T,
        begin: B,
    ) -> BoxStream<'static, Result<(), Error>>
    where
        T: Future<Output = Error> + Send + 'static,
        B: Future<Output = Result<bool, Error>> + Send + 'static,
    {
        let orders = self.orders(serve);
        let (tell, told) = oneshot::channel();
        let placed = orders.send(Order::Listen(topic.clone(), tell));
        let first = async move {
            placed.map_err(|_| ended())?;
            let changes = told.await.map_err(|_| ended())?;
            let listener = Listener { changes: Some(changes), topic, orders };
            Ok((begin.await?, listener))
        };
        let first = stream::once(first).flat_map(|begun| match begun {
            Ok((at_once, listener)) => {
                let now = stream::iter(at_once.then_some(Ok(())));
                now.chain(stream::unfold(Some(listener), Listener::next)).boxed()
            }
            Err(why) => stream::iter([Err(why)]).boxed(),
        });
        first.boxed()
    }

    /// Ends the task: the server does not answer, or all is over.
    pub(super) fn hang_up(&self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.end.abort();
        }
    }

    fn orders<T>(&self, serve: impl FnOnce(Orders) -> T) -> mpsc::UnboundedSender<Order>
    where
        T: Future<Output = Error> + Send + 'static,
    {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = task.as_ref().filter(|it| !it.orders.is_closed()) {
            return running.orders.clone();
        }
        let (orders, taken) = mpsc::unbounded_channel();
        let serving = serve(taken);
        let end = tokio::spawn(async move {
            let why = serving.await;
            tracing::debug!(%why, "no hints for a while");
        });
        *task = Some(Task { orders: orders.clone(), end: end.abort_handle() });
        orders
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        self.hang_up();
    }
}

fn ended() -> Error {
    Error::refused("the connection for hints has ended")
}

/// One that listens; says when it goes.
struct Listener {
    changes: Option<watch::Receiver<u64>>,
    topic: String,
    orders: mpsc::UnboundedSender<Order>,
}

impl Listener {
    async fn next(listener: Option<Listener>) -> Option<(Result<(), Error>, Option<Listener>)> {
        let mut listener = listener?;
        match listener.changes.as_mut()?.changed().await {
            Ok(()) => Some((Ok(()), Some(listener))),
            Err(_) => Some((Err(ended()), None)),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // First the ear, then the word: the task counts ears.
        drop(self.changes.take());
        let _ = self.orders.send(Order::Leave(std::mem::take(&mut self.topic)));
    }
}

/// The task's list of topics and who listens to them.
#[derive(Default)]
pub(super) struct Topics(BTreeMap<String, watch::Sender<u64>>);

impl Topics {
    /// One more listens. Says whether the topic is new.
    pub(super) fn enter(&mut self, topic: &str) -> bool {
        let new = !self.0.contains_key(topic);
        self.0.entry(topic.to_owned()).or_default();
        new
    }

    /// Lets somebody who wants to hear of the topic hear of it.
    pub(super) fn seat(&self, topic: &str, tell: oneshot::Sender<watch::Receiver<u64>>) {
        if let Some(sender) = self.0.get(topic) {
            let _ = tell.send(sender.subscribe());
        }
    }

    /// One has gone. Says whether it was the topic's last.
    pub(super) fn leave(&mut self, topic: &str) -> bool {
        let deserted = self.0.get(topic).is_some_and(|it| it.receiver_count() == 0);
        if deserted {
            self.0.remove(topic);
        }
        deserted
    }

    /// Whether anybody listens to a topic that begins with this word.
    #[cfg(feature = "postgres")]
    pub(super) fn any_of(&self, word: &str) -> bool {
        self.0.keys().any(|it| it.split(' ').next() == Some(word))
    }

    /// Tells all who listen to the topic.
    pub(super) fn tell(&self, topic: &str) {
        if let Some(sender) = self.0.get(topic) {
            sender.send_modify(|it| *it += 1);
        }
    }
}
