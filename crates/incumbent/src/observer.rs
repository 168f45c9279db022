//! Looking on: who leads, told when it changes. Includes "nobody", and never goes back to an older leadership.

use std::sync::Arc;

use futures_util::StreamExt;
use incumbent_protocol::protocol::Token;
use incumbent_protocol::timing::Timing;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::engine::{Board, Error, Leader};
use crate::hub::Hub;
use crate::metrics::Metrics;
use crate::name::Name;

/// A view of an election. Ends its looking when it is dropped.
#[derive(Clone)]
pub struct Observer {
    view: watch::Receiver<View>,
    told: View,
}

/// What has been seen so far.
#[derive(Clone, Debug, Default, PartialEq)]
enum View {
    /// Nothing yet.
    #[default]
    Unseen,
    /// Who leads, oldest first; nobody, if empty.
    Seen(Vec<Leader>),
}

impl Observer {
    pub(crate) fn begin(hub: &Arc<Hub>, election: Name, timing: Timing, metrics: Option<Arc<Metrics>>) -> Observer {
        let (sender, view) = watch::channel(View::Unseen);
        hub.spawn(look_on(Arc::clone(hub), election, timing, metrics, sender));
        Observer { view, told: View::Unseen }
    }

    /// Who leads, as last seen; waits for the first look.
    pub async fn leader(&mut self) -> Option<Leader> {
        match self.view.wait_for(|it| *it != View::Unseen).await {
            Ok(seen) => self.told.clone_from(&seen),
            Err(_) => return None,
        }
        first(&self.told)
    }

    /// Waits until it is another than was told last, and says who leads then: nobody is an answer.
    pub async fn next(&mut self) -> Option<Leader> {
        let told = first(&self.told);
        let nothing_told = self.told == View::Unseen;
        let is_news = |it: &View| *it != View::Unseen && (nothing_told || !same(&first(it), &told));
        // Copied before anything else is awaited: a guard would keep the future from being sent to another thread.
        let seen = self.view.wait_for(is_news).await.ok().map(|it| it.clone());
        match seen {
            Some(seen) => self.told = seen,
            // The engine's thread has ended with the process; there is nothing more to see.
            None => return std::future::pending().await,
        }
        first(&self.told)
    }
}

fn first(view: &View) -> Option<Leader> {
    match view {
        View::Unseen => None,
        View::Seen(leaders) => leaders.first().cloned(),
    }
}

/// Whether that is the same leadership, publishing the same. Since when it lasts may come to be known later.
fn same(one: &Option<Leader>, other: &Option<Leader>) -> bool {
    let told = |it: &Leader| (it.token, it.identity.clone(), it.value.clone(), it.priority);
    one.as_ref().map(told) == other.as_ref().map(told)
}

async fn look_on(hub: Arc<Hub>, election: Name, timing: Timing, metrics: Option<Arc<Metrics>>, view: watch::Sender<View>) {
    let mut newest: Option<Token> = None;
    let mut hints = None;
    // Said once when it begins and once when it ends, however long it lasts.
    let mut is_blind = false;
    loop {
        if hints.is_none() {
            hints = Some(hub.engine.watch(&election, None));
        }
        let looked = timeout(timing.poll(), hub.engine.look(&election)).await;
        let looked = looked.unwrap_or_else(|_| Err(Error::unknown("no answer in time")));
        match looked {
            Ok(board) => {
                if std::mem::take(&mut is_blind) {
                    tracing::warn!(%election, "can look again");
                }
                // An engine that does not know who waits says nothing, and not that nobody does.
                if let Some(metrics) = metrics.as_ref().filter(|_| hub.engine.guarantees().lists_candidates) {
                    metrics.on_candidates(&election, board.candidates.len());
                }
                show(board, &mut newest, &view);
            }
            // Not seeing is not the same as seeing nobody: the last view stays.
            Err(error) if is_blind => tracing::debug!(%election, %error, "still cannot look"),
            Err(error) => {
                is_blind = true;
                tracing::warn!(%election, %error, "cannot look, and goes on trying");
            }
        }
        tokio::select! {
            () = view.closed() => return,
            () = sleep(timing.poll()) => {}
            hint = next(&mut hints) => {
                if let Some(Ok(())) = hint {
                    continue;
                }
                hints = None;
                sleep(timing.retry()).await;
            }
        }
    }
}

async fn next(
    hints: &mut Option<futures_util::stream::BoxStream<'static, Result<(), crate::engine::Error>>>,
) -> Option<Result<(), crate::engine::Error>> {
    match hints {
        Some(hints) => hints.next().await,
        None => std::future::pending().await,
    }
}

fn show(board: Board, newest: &mut Option<Token>, view: &watch::Sender<View>) {
    let greatest = board.leaders.iter().map(|it| it.token).max();
    // A replica that lags behind may still show a leader that was seen to be replaced. Of several leaders the newest may go first: then the
    // others have been shown before.
    let is_shown = |token| matches!(&*view.borrow(), View::Seen(leaders) if leaders.iter().any(|it| it.token == token));
    if let (Some(greatest), Some(newest)) = (greatest, *newest)
        && greatest < newest
        && !is_shown(greatest)
    {
        return;
    }
    *newest = (*newest).max(greatest);
    view.send_if_modified(|it| {
        let now = View::Seen(board.leaders);
        let changed = *it != now;
        *it = now;
        changed
    });
}
