//! What a leader wants to be published, one after the other, beside all that its term brings: an engine that does not answer holds up nothing.

use std::collections::VecDeque;
use std::pin::Pin;

use incumbent::{Election, Leadership};
use tokio::sync::oneshot;

type Answer = oneshot::Sender<Option<String>>;

/// What is being published, and what comes then.
pub(crate) struct Publications<'a> {
    election: &'a Election,
    leadership: &'a Leadership,
    waiting: VecDeque<(String, Answer)>,
    under_way: Option<Pin<Box<dyn Future<Output = ()> + 'a>>>,
}

impl<'a> Publications<'a> {
    pub(crate) fn new(election: &'a Election, leadership: &'a Leadership) -> Publications<'a> {
        Publications { election, leadership, waiting: VecDeque::new(), under_way: None }
    }

    /// Publishes it in its turn, and answers.
    pub(crate) fn add(&mut self, value: String, answer: Answer) {
        self.waiting.push_back((value, answer));
    }

    /// Works on what there is; waits for ever if there is nothing. May be dropped at any point, and goes on when it is called again.
    pub(crate) async fn work(&mut self) {
        let (election, leadership) = (self.election, self.leadership);
        loop {
            if self.under_way.is_none() {
                let Some((value, answer)) = self.waiting.pop_front() else { return std::future::pending().await };
                let publish = async move {
                    let published = election.proclaim(leadership, &value).await;
                    // Whoever has gone does not want to know.
                    let _ = answer.send(published.err().map(|why| why.to_string()));
                };
                self.under_way = Some(Box::pin(publish));
            }
            if let Some(under_way) = &mut self.under_way {
                under_way.await;
                self.under_way = None;
            }
        }
    }
}
