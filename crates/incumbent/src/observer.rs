//! Looking on: who leads, told when it changes. Includes "nobody", and never goes back to an older leadership.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use incumbent_protocol::protocol::Token;
use incumbent_protocol::timing::Timing;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

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
    let mut sight = Sight::default();
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
                sight.show(board, &election, timing.ttl(), &view);
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

/// What has been seen before.
#[derive(Default)]
struct Sight {
    newest: Option<Token>,
    /// Since when the engine shows less than that.
    behind_since: Option<Instant>,
    /// That is said once.
    has_complained: bool,
}

impl Sight {
    /// Shows a board, unless it is of the past. An engine that shows the past for longer than `patience` has lost its memory: its leader is none that was ever to be obeyed, and the former one has gone.
    fn show(&mut self, mut board: Board, election: &Name, patience: Duration, view: &watch::Sender<View>) {
        let greatest = board.leaders.iter().map(|it| it.token).max();
        // A replica that lags behind may still show a leader that was seen to be replaced. Of several leaders the newest may go first: then the
        // others have been shown before.
        let is_shown = |token| matches!(&*view.borrow(), View::Seen(leaders) if leaders.iter().any(|it| it.token == token));
        if let (Some(greatest), Some(newest)) = (greatest, self.newest)
            && greatest < newest
            && !is_shown(greatest)
        {
            if self.behind_since.get_or_insert_with(Instant::now).elapsed() < patience {
                return;
            }
            if !std::mem::replace(&mut self.has_complained, true) {
                tracing::warn!(%election, token = %greatest, seen = %newest, "the engine has lost its memory: whoever leads has a smaller token than was seen, and counts as nobody; see `incumbent raise`");
            }
            board.leaders.clear();
        } else {
            self.behind_since = None;
            self.has_complained = false;
        }
        self.newest = self.newest.max(greatest);
        view.send_if_modified(|it| {
            let now = View::Seen(board.leaders);
            let changed = *it != now;
            *it = now;
            changed
        });
    }
}

#[cfg(test)]
mod tests {
    use incumbent_protocol::protocol::Term;

    use super::*;
    use crate::identity::Identity;

    fn board(term: u64) -> Board {
        let token = Token::new(0, Term(term)).expect("a token");
        let identity = Identity::unique();
        let leader = Leader { identity, token, value: String::new(), priority: 0, since: None, heeds_wishes: true };
        Board { leaders: vec![leader], ..Board::default() }
    }

    /// A replica that lags is passed over; an engine that has forgotten is not believed, and is not taken for the leader that was.
    #[tokio::test(start_paused = true)]
    async fn a_leader_from_before_is_never_shown_and_the_one_after_it_not_for_ever() {
        let (view, seen) = watch::channel(View::Unseen);
        let (mut sight, election) = (Sight::default(), Name::new("billing").expect("a name"));
        let patience = Duration::from_secs(10);
        let token = || first(&seen.borrow()).map(|it| it.token.get());
        sight.show(board(5), &election, patience, &view);
        sight.show(board(3), &election, patience, &view);
        assert_eq!(token(), Some(5));
        sleep(patience).await;
        sight.show(board(5), &election, patience, &view);
        sight.show(board(3), &election, patience, &view);
        assert_eq!(token(), Some(5), "it was a lagging one again");
        sleep(patience).await;
        sight.show(board(3), &election, patience, &view);
        assert_eq!(token(), None);
        sight.show(board(6), &election, patience, &view);
        assert_eq!(token(), Some(6));
    }
}
