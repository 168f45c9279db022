//! Lets requests pass in the order of their tokens: when one with a greater token begins, none with a smaller is under way.
//!
//! A fence alone leaves a gap: a request is admitted, delayed, and reaches the resource behind one of a newer leader. So the gate keeps count of what it has let
//! through until it has been answered. A greater token is remembered first (from then on smaller ones are refused), then waits for what is still under way.
//!
//! The count is this process's own. Before one resource there is one gate, or else the gap is back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use incumbent_protocol::protocol::Token;
use tokio::sync::watch;

use super::{Fence, Refusal, judge};
use crate::engine::Error;

/// A gate before resources. Clones are the same gate.
#[derive(Clone)]
pub struct Gate {
    fence: Arc<dyn Fence>,
    lanes: Arc<Mutex<BTreeMap<String, Lane>>>,
    patience: Duration,
}

/// What goes on before one resource; gone when nobody is there.
#[derive(Default)]
struct Lane {
    /// Who holds a [`Passage`], or is about to.
    visitors: usize,
    greatest: Option<Token>,
    under_way: BTreeMap<Token, usize>,
    ended: watch::Sender<u64>,
}

/// The right to go on to the resource. Dropping it says that the request has been answered, or will never do anything any more.
#[must_use = "the request is under way as long as this lives"]
pub struct Passage {
    lanes: Arc<Mutex<BTreeMap<String, Lane>>>,
    resource: String,
    /// `None` until it may begin.
    token: Option<Token>,
}

impl Gate {
    /// Longer than a request takes, shorter than people wait.
    pub const PATIENCE_DEFAULT: Duration = Duration::from_secs(10);

    /// A gate that remembers in `fence`.
    pub fn new(fence: Arc<dyn Fence>) -> Gate {
        Gate { fence, lanes: Arc::default(), patience: Self::PATIENCE_DEFAULT }
    }

    /// How long a greater token waits for what is under way with smaller ones, before it gives up.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Gate {
        self.patience = patience;
        self
    }

    /// Waits until a request with this token may go on.
    pub async fn enter(&self, resource: &str, token: Token) -> Result<Passage, Refusal> {
        // Before the fence is asked: the lane must outlive the time between its answer and the beginning.
        let mut passage = Passage::before(&self.lanes, resource);
        self.fence.admit(resource, token).await?;
        let mut ended = passage.begin(token)?;
        let alone = async {
            // The senders live as long as the lane, and that as long as the passage.
            while passage.is_behind(token) && ended.changed().await.is_ok() {}
        };
        match tokio::time::timeout(self.patience, alone).await {
            Ok(()) => Ok(passage),
            Err(_) => Err(Refusal::Trouble(Error::refused(format!(
                "requests with smaller tokens than {token} for {resource} are still under way after {:?}: ask again",
                self.patience
            )))),
        }
    }
}

impl Passage {
    fn before(lanes: &Arc<Mutex<BTreeMap<String, Lane>>>, resource: &str) -> Passage {
        lock(lanes).entry(resource.to_owned()).or_default().visitors += 1;
        Passage { lanes: Arc::clone(lanes), resource: resource.to_owned(), token: None }
    }

    /// Counts as under way from now on, unless a greater token was quicker since the fence was asked.
    fn begin(&mut self, token: Token) -> Result<watch::Receiver<u64>, Refusal> {
        let mut lanes = lock(&self.lanes);
        let lane = lanes.get_mut(&self.resource).expect("it lives as long as its visitors");
        judge(&self.resource, token, lane.greatest)?;
        lane.greatest = Some(token);
        *lane.under_way.entry(token).or_default() += 1;
        self.token = Some(token);
        Ok(lane.ended.subscribe())
    }

    /// Whether something with a smaller token is under way.
    fn is_behind(&self, token: Token) -> bool {
        lock(&self.lanes).get(&self.resource).is_some_and(|lane| lane.under_way.range(..token).next().is_some())
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        let mut lanes = lock(&self.lanes);
        let Some(lane) = lanes.get_mut(&self.resource) else { return };
        if let Some(token) = self.token
            && let Some(count) = lane.under_way.get_mut(&token)
        {
            *count -= 1;
            if *count == 0 {
                lane.under_way.remove(&token);
                lane.ended.send_modify(|it| *it += 1);
            }
        }
        lane.visitors -= 1;
        if lane.visitors == 0 {
            lanes.remove(&self.resource);
        }
    }
}

fn lock(lanes: &Mutex<BTreeMap<String, Lane>>) -> MutexGuard<'_, BTreeMap<String, Lane>> {
    lanes.lock().expect("nobody panics with it")
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use futures_util::FutureExt;

    use super::*;
    use crate::fence::token;

    fn of(number: u64) -> Token {
        token(number).expect("fits")
    }

    /// Admits everything, so that what is refused was refused by the gate.
    struct Open;

    #[async_trait]
    impl Fence for Open {
        async fn admit(&self, _resource: &str, _token: Token) -> Result<(), Refusal> {
            Ok(())
        }
    }

    /// Says yes only when told to, as a slow disk does.
    struct Slow(watch::Receiver<bool>);

    #[async_trait]
    impl Fence for Slow {
        async fn admit(&self, _resource: &str, token: Token) -> Result<(), Refusal> {
            if token == of(1) {
                let _ = self.0.clone().wait_for(|open| *open).await;
            }
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_greater_token_waits_for_what_is_under_way_and_nothing_smaller_begins() {
        let gate = Gate::new(Arc::new(Open));
        let (first, second) = (gate.enter("a", of(1)).await.unwrap(), gate.enter("a", of(1)).await.unwrap());
        let mut greater = Box::pin(gate.enter("a", of(2)));
        assert!((&mut greater).now_or_never().is_none());
        assert!(gate.enter("a", of(1)).await.err().expect("a greater one waits").stale().is_some());
        let _elsewhere = gate.enter("b", of(1)).await.unwrap();
        drop(first);
        assert!((&mut greater).now_or_never().is_none());
        drop(second);
        let _passage = greater.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_was_admitted_and_then_delayed_does_not_come_behind_a_greater() {
        let (open, opened) = watch::channel(false);
        let gate = Gate::new(Arc::new(Slow(opened)));
        let mut delayed = Box::pin(gate.enter("a", of(1)));
        assert!((&mut delayed).now_or_never().is_none());
        drop(gate.enter("a", of(2)).await.unwrap());
        open.send_replace(true);
        assert_eq!(delayed.await.err().and_then(|it| it.stale().map(|it| it.seen)), Some(of(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_never_ends_is_not_waited_for_for_ever_and_nothing_is_left_behind() {
        let gate = Gate::new(Arc::new(Open));
        let stuck = gate.enter("a", of(1)).await.unwrap();
        let why = gate.enter("a", of(2)).await.err().expect("stuck").to_string();
        assert!(why.contains("still under way after 10s"), "{why}");
        assert!(gate.enter("a", of(1)).await.err().expect("2 was seen").stale().is_some());
        drop(stuck);
        drop(gate.enter("a", of(2)).await.unwrap());
        assert!(lock(&gate.lanes).is_empty());
    }
}
