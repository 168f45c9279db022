//! Answers to questions that take long, on a thread of their own: the log does not wait for whoever counts a hundred thousand keys.
//!
//! What is read is a copy of the store, as it was when the question had its turn. A copy costs nothing until the store is changed, and then only what is changed.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use incumbent_store::query::{Answered, Query};
use incumbent_store::store::Store;
use tokio::sync::mpsc::UnboundedSender;

use super::config::{READINGS_MAX, READINGS_PER_GUEST_MAX};
use super::desk::{self, Asker};
use super::handle::Unanswered;
use super::{Alarm, Report};

type Answer = Asker<Result<Answered, Unanswered>>;

/// The thread, from outside. Dropped, it ends with the question that it is at.
#[derive(Debug)]
pub(super) struct Readers {
    questions: Sender<(Box<Store>, Query, Answer)>,
    waiting: Arc<Mutex<Waiting>>,
}

/// So many questions of each guest.
type Waiting = BTreeMap<Arc<str>, usize>;

impl Readers {
    pub(super) fn start(reports: UnboundedSender<Report>) -> io::Result<Readers> {
        let (questions, inbox) = channel::<(Box<Store>, Query, Answer)>();
        let waiting = Arc::<Mutex<Waiting>>::default();
        let open: Weak<Mutex<Waiting>> = Arc::downgrade(&waiting);
        let alarm = Alarm(reports);
        thread::Builder::new().name("incumbent-reader".to_owned()).spawn(move || {
            let _alarm = alarm;
            for (store, query, answer) in inbox {
                // Nobody waits for an answer of a node that has ended.
                let Some(waiting) = open.upgrade() else { return };
                leave(&mut waiting.lock().unwrap_or_else(PoisonError::into_inner), answer.guest());
                drop(waiting);
                answer.tell(desk::answered(&store, &query));
            }
        })?;
        Ok(Readers { questions, waiting })
    }

    /// Answers it in its turn, as this store stands now. Gives it back if too many wait, or too many of its guest's.
    pub(super) fn give(&self, store: &Store, query: Query, mut answer: Answer) -> Result<(), Answer> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let theirs = waiting.get(answer.guest()).copied().unwrap_or(0);
        if waiting.values().sum::<usize>() >= READINGS_MAX || theirs >= READINGS_PER_GUEST_MAX {
            return Err(answer);
        }
        waiting.insert(Arc::clone(answer.guest()), theirs + 1);
        drop(waiting);
        answer.let_go();
        // If it has ended, so has the node: whoever asked is told so when the answer is dropped.
        let _ = self.questions.send((Box::new(store.clone()), query, answer));
        Ok(())
    }
}

fn leave(waiting: &mut Waiting, guest: &Arc<str>) {
    if let Some(theirs) = waiting.get_mut(guest) {
        *theirs -= 1;
        if *theirs == 0 {
            waiting.remove(guest);
        }
    }
}
