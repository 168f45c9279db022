//! One candidacy: what an application holds of the clerk that serves it on the engine's thread.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use incumbent_protocol::protocol::Token;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::clerk::{Brief, Clerk, Order, Progress};
use crate::engine::Error;
use crate::hub::Hub;
use crate::leadership::Term;
use crate::name::Name;

/// A candidacy under way. Dropping it withdraws: what runs for it must have ended by then, or [`Candidacy::abandon`] be called instead.
pub(crate) struct Candidacy {
    orders: mpsc::UnboundedSender<Order>,
    progress: watch::Receiver<Progress>,
    probe: Option<ProbeTask>,
}

/// A probe of whether this process is fit to lead.
pub(crate) struct Health {
    pub(crate) probe: Probe,
    pub(crate) every: Duration,
}

/// A probe that has said nothing for so many of its intervals hangs.
const INTERVALS_UNTIL_IT_HANGS: u32 = 10;
/// And not before this, however short they are.
const HANGS_AFTER_MIN: Duration = Duration::from_secs(60);

impl Health {
    /// What the probe says. One that panics or hangs is no better than one that says no.
    async fn ask(&self) -> Result<(), String> {
        let limit = (self.every * INTERVALS_UNTIL_IT_HANGS).max(HANGS_AFTER_MIN);
        // A set ends what is in it when it is dropped.
        let mut asked = JoinSet::new();
        asked.spawn((self.probe)());
        match tokio::time::timeout(limit, asked.join_next()).await {
            Ok(Some(Ok(found))) => found,
            Ok(_) => Err("the probe has panicked".to_owned()),
            Err(_) => Err(format!("the probe has said nothing for {limit:?}")),
        }
    }
}

type Probe = Box<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

impl Candidacy {
    /// Sends a clerk to contend, and counts it among those who have not ended.
    pub(crate) fn begin(hub: &Arc<Hub>, brief: Brief, health: Option<Arc<Health>>, open: Arc<watch::Sender<usize>>) -> Candidacy {
        let (orders, receiver) = mpsc::unbounded_channel();
        let (sender, progress) = watch::channel(Progress::default());
        let probe = health.map(|health| ProbeTask::begin(health, brief.election.clone(), orders.clone()));
        let clerk = Clerk::new(brief, receiver, sender);
        let counted = Counted::among(open);
        hub.spawn(async move {
            let _counted = counted;
            clerk.serve().await;
        });
        Candidacy { orders, progress, probe }
    }

    /// Tells the clerk something. One that has ended does not listen, and need not.
    pub(crate) fn tell(&self, order: Order) {
        let _ = self.orders.send(order);
    }

    /// Waits for a leadership newer than `after`; `None` if the clerk has ended.
    pub(crate) async fn elected(&mut self, after: Option<Token>) -> Option<Arc<Term>> {
        self.until(|it| it.term.clone().filter(|term| after.is_none_or(|after| term.token > after))).await
    }

    /// Waits until `found` finds something in the progress; `None` if the clerk has ended.
    pub(crate) async fn until<T>(&mut self, found: impl Fn(&Progress) -> Option<T>) -> Option<T> {
        loop {
            if let Some(found) = found(&self.progress.borrow_and_update()) {
                return Some(found);
            }
            self.progress.changed().await.ok()?;
        }
    }

    /// The work for `token` has ended: gives the seat back, to `to` if named, and waits for the clerk to end.
    pub(crate) async fn leave(mut self, token: Token, to: Option<String>) -> Result<(), Error> {
        // One order, because each wakes the clerk's thread.
        self.tell(Order::Leave { token, to });
        self.ended().await;
        match self.progress.borrow().not_released == Some(token) {
            true => Err(Error::unknown("the engine did not acknowledge the release: the seat is free when its time has passed")),
            false => Ok(()),
        }
    }

    /// Withdraws and waits for the clerk to end. It may have been elected since it was last heard of: for that leadership nothing runs.
    pub(crate) async fn give_up(mut self) {
        self.tell(Order::Gone);
        self.ended().await;
    }

    /// Waits for the clerk to end, which has been told to. Nobody asks any more whether this process is fit.
    pub(crate) async fn ended(&mut self) {
        drop(self.probe.take());
        while self.progress.changed().await.is_ok() {}
    }

    /// Stops renewing without a word: nobody knows whether the work has ended.
    pub(crate) fn abandon(self) {
        self.tell(Order::Abandon);
    }
}

impl Drop for Candidacy {
    fn drop(&mut self) {
        // After `abandon` this comes second, and changes nothing.
        self.tell(Order::Gone);
    }
}

/// A clerk that has not ended. One that panics has: whoever waits for the last of them must not wait for ever.
struct Counted(Arc<watch::Sender<usize>>);

impl Counted {
    fn among(open: Arc<watch::Sender<usize>>) -> Counted {
        open.send_modify(|it| *it += 1);
        Counted(open)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|it| *it -= 1);
    }
}

/// Asks the application how it is, on the application's own runtime: a probe that blocks must not block renewals.
struct ProbeTask(AbortHandle);

impl ProbeTask {
    fn begin(health: Arc<Health>, election: Name, orders: mpsc::UnboundedSender<Order>) -> ProbeTask {
        let task = tokio::spawn(async move {
            // Nobody contends before it is known to be fit.
            let mut fit = false;
            let mut said = false;
            loop {
                let found = health.ask().await;
                match &found {
                    Err(why) if !said => tracing::warn!(%election, %why, "not fit to lead"),
                    Ok(()) if said => tracing::info!(%election, "fit to lead again"),
                    Ok(()) | Err(_) => {}
                }
                let told = match &found {
                    // Told once.
                    Err(why) if !said => orders.send(Order::HealthFailed(why.clone())),
                    Ok(()) if !fit => orders.send(Order::Contend),
                    Ok(()) | Err(_) => Ok(()),
                };
                if told.is_err() || orders.is_closed() {
                    return;
                }
                (fit, said) = (found.is_ok(), found.is_err());
                tokio::time::sleep(health.every).await;
            }
        });
        ProbeTask(task.abort_handle())
    }
}

impl Drop for ProbeTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
