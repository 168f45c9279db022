//! Who listens for what: all watches of one engine share one connection for hints.
//!
//! The engine's own task serves the [`Orders`]: it tells the server what is to be heard, and tells the listeners. When the task ends, all of them hear so, and the
//! next one to listen starts another. Nothing here is needed for safety: whoever hears nothing asks now and then.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use crate::engine::Error;

/// Longer than any server takes that answers at all.
const BEGIN_WITHIN: Duration = Duration::from_secs(10);

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
    ///
    /// What `begin` asks goes on by itself: it may have the engine's connection in its hands, which those who renew wait for, and the stream is not polled while they do.
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
        // From now on it is heard for: whoever goes says so, even if the stream is never polled.
        let mut listener = Listener { ear: Ear::Wanted(told), topic, orders };
        let first = async move {
            placed.map_err(|_| ended())?;
            listener.be_seated().await?;
            let begun = tokio::spawn(tokio::time::timeout(BEGIN_WITHIN, begin)).await.map_err(|_| ended())?;
            Ok((begun.map_err(|_| Error::unknown("no answer in time"))??, listener))
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

    /// Carries out a call on the engine's other line. If it is left without an answer, dropped as one that takes too long is, this line may be as dead as that one, and nobody would
    /// notice: it is hung up.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub(super) async fn beside<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let mut waiting = Waiting { hints: self, unanswered: true };
        let answer = call.await;
        waiting.unanswered = answer.as_ref().is_err_and(|why| why.kind() == crate::engine::Kind::Unknown);
        answer
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

/// A call on the other line; see [`Hints::beside`].
#[cfg(any(feature = "postgres", feature = "redis"))]
struct Waiting<'a> {
    hints: &'a Hints,
    unanswered: bool,
}

#[cfg(any(feature = "postgres", feature = "redis"))]
impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.unanswered {
            self.hints.hang_up();
        }
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

/// One that listens, or wants to; says when it goes.
struct Listener {
    ear: Ear,
    topic: String,
    orders: mpsc::UnboundedSender<Order>,
}

/// How far it has come.
enum Ear {
    /// The task has not said yet that it hears.
    Wanted(oneshot::Receiver<watch::Receiver<u64>>),
    Open(watch::Receiver<u64>),
    Shut,
}

impl Listener {
    /// Waits until everything that happens will be heard.
    async fn be_seated(&mut self) -> Result<(), Error> {
        if let Ear::Wanted(told) = &mut self.ear {
            self.ear = Ear::Open(told.await.map_err(|_| ended())?);
        }
        Ok(())
    }

    async fn next(listener: Option<Listener>) -> Option<(Result<(), Error>, Option<Listener>)> {
        let mut listener = listener?;
        let Ear::Open(changes) = &mut listener.ear else { return None };
        match changes.changed().await {
            Ok(()) => Some((Ok(()), Some(listener))),
            Err(_) => Some((Err(ended()), None)),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // First the ear, then the word: the task counts ears, also those that it has given and nobody has taken.
        self.ear = Ear::Shut;
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

#[cfg(all(test, any(feature = "postgres", feature = "redis")))]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Notify;
    use tokio::time::timeout;

    use super::*;
    use crate::engines::slot::Slot;

    /// A server that hears nothing.
    async fn serve(orders: Orders) -> Error {
        serve_with(Arc::default(), orders).await
    }

    /// The same, with its list where it can be looked at.
    async fn serve_with(topics: Arc<Mutex<Topics>>, mut orders: Orders) -> Error {
        while let Some(order) = orders.recv().await {
            let mut topics = topics.lock().expect("nobody panics with it");
            match order {
                Order::Listen(topic, tell) => {
                    topics.enter(&topic);
                    topics.seat(&topic, tell);
                }
                Order::Leave(topic) => drop(topics.leave(&topic)),
            }
        }
        ended()
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_goes_before_its_watch_has_begun_leaves_nothing_behind() {
        let (hints, topics) = (Hints::default(), Arc::new(Mutex::new(Topics::default())));
        let count = || topics.lock().expect("nobody panics with it").0.len();
        let listen = |topic: &str| {
            hints.listen(topic.to_owned(), |orders| serve_with(Arc::clone(&topics), orders), std::future::pending())
        };
        let unpolled = listen("unpolled");
        let mut polled = listen("polled");
        assert!(futures_util::poll!(polled.next()).is_pending());
        drop(listen("gone before it was heard of"));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(count(), 2, "those who may still listen are heard for");
        drop((unpolled, polled));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_watch_asks_first_holds_up_nobody_though_nobody_polls_it() {
        let (hints, slot) = (Hints::default(), Arc::new(Slot::<u32>::default()));
        let (asks, connected) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let begin = {
            let (slot, asks, connected) = (Arc::clone(&slot), Arc::clone(&asks), Arc::clone(&connected));
            async move {
                let connect = async {
                    asks.notify_one();
                    connected.notified().await;
                    Ok(1)
                };
                slot.borrow(connect).await?.answered();
                Ok(false)
            }
        };
        let mut watch = hints.listen("x".to_owned(), serve, begin);
        // Until it connects, and no further.
        tokio::select! {
            _ = watch.next() => panic!("it has nothing to tell"),
            () = asks.notified() => {}
        }
        connected.notify_one();
        let renewal = timeout(Duration::from_secs(60), slot.borrow(async { Ok(2) })).await;
        assert_eq!(renewal.expect("nobody holds it for ever").expect("connects").connection, 1);
        drop(watch);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_dropped_without_an_answer_hangs_up() {
        let hints = Hints::default();
        let mut watch = hints.listen("x".to_owned(), serve, async { Ok(true) });
        assert!(matches!(watch.next().await, Some(Ok(()))));
        hints.beside(async { Ok(()) }).await.expect("answered");
        hints.beside(async { Err::<(), _>(Error::refused("no")) }).await.expect_err("answered too");
        assert!(futures_util::poll!(watch.next()).is_pending(), "the line is well");
        let left = timeout(Duration::from_secs(1), hints.beside(std::future::pending::<Result<(), Error>>())).await;
        left.expect_err("no answer");
        let told = timeout(Duration::from_secs(1), watch.next()).await.expect("is told");
        assert!(matches!(told, Some(Err(_))), "{told:?}");
    }
}
