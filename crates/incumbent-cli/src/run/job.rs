//! A command that is done at some time: once, or once in every slot of a schedule. That it was done is on record in the election, so no other host does it again.
//!
//! At least once: a host that dies after its command has ended well and before that is on record leaves the job to another.

use std::time::{Duration, SystemTime};

use incumbent::engine::Board;
use incumbent::{Election, Leadership, Token};

use super::record::Record;
use super::schedule::{Due, Schedule, Slot, due};
use super::{CatchUp, RunArguments};
use crate::candidacy::signals::{Signals, Told};
use crate::candidacy::{say, usage};
use crate::elections::target::answer;
use crate::failure::Failure;

/// An engine that could not be asked is asked again after this.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// The wall clock may be set while we sleep, so nobody sleeps for longer.
const NAP_MAX: Duration = Duration::from_secs(30);

/// What is to be done, and when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Job {
    /// Once, and not again within this time.
    Once(Duration),
    /// Once in every slot.
    Slots { schedule: Schedule, catch_up: bool },
}

/// One doing of it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Task {
    /// Unless somebody has within this time.
    Once(Duration),
    /// Unless somebody has.
    For(Slot),
}

/// That somebody has done it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Done {
    /// The leadership that did it.
    pub(super) token: Token,
    /// When, in seconds since 1970.
    pub(super) at: u64,
}

impl Job {
    /// What the command line asks for; `None` if the command is no job.
    pub(super) fn wanted(wanted: &RunArguments) -> Result<Option<Job>, Failure> {
        let schedule = match (wanted.every, &wanted.at) {
            (Some(span), _) => Schedule::every(span),
            (None, Some(text)) => Schedule::at(text),
            (None, None) => return Ok(wanted.once.map(Job::Once)),
        };
        let schedule = schedule.map_err(usage)?;
        Ok(Some(Job::Slots { schedule, catch_up: wanted.catch_up == CatchUp::Last }))
    }

    /// Waits until there is something to do. `tried` is the slot that this process has tried already.
    pub(super) async fn next(
        &self,
        election: &Election,
        signals: &mut Signals,
        tried: Option<Slot>,
        quiet: bool,
    ) -> Result<Task, Told> {
        let (schedule, catch_up) = match self {
            Job::Once(within) => return Ok(Task::Once(*within)),
            Job::Slots { schedule, catch_up } => (schedule, *catch_up),
        };
        let mut waits_for: Option<Slot> = None;
        loop {
            let now = wall_secs();
            let slot = match waits_for {
                Some(slot) if now >= slot.0 && schedule.last(now) == slot => return Ok(Task::For(slot)),
                // A slot that went by while the machine slept is one that was missed.
                Some(slot) if now < slot.0 => slot,
                Some(_) | None => {
                    let done = self.newest(election, signals).await?;
                    let slot = match due(schedule, now, done, catch_up) {
                        Due::Now(slot) if tried != Some(slot) => return Ok(Task::For(slot)),
                        Due::Now(_) => schedule.next(now),
                        Due::Later(slot) => slot,
                    };
                    say!(quiet, "next due at {slot}");
                    waits_for = Some(slot);
                    slot
                }
            };
            tokio::select! {
                told = signals.told() => return Err(told),
                () = tokio::time::sleep(Duration::from_secs(slot.0.saturating_sub(now)).min(NAP_MAX)) => {}
            }
        }
    }

    /// The newest slot that was done.
    async fn newest(&self, election: &Election, signals: &mut Signals) -> Result<Option<Slot>, Told> {
        tokio::select! {
            told = signals.told() => Err(told),
            board = look(election) => Ok(records(&board).filter_map(|(_, slot, _)| slot).max()),
        }
    }
}

impl Task {
    /// Who has done it, if anybody.
    pub(super) fn done(self, board: &Board) -> Option<Done> {
        let now = wall_secs();
        records(board)
            .filter(|(_, slot, at)| match self {
                Task::Once(within) => now.abs_diff(*at) <= within.as_secs(),
                Task::For(wanted) => slot.is_some_and(|it| it >= wanted),
            })
            .map(|(token, _, at)| Done { token, at })
            .max_by_key(|it| it.token)
    }

    /// Whether somebody has done it, as the leader sees it.
    pub(super) async fn is_done(self, election: &Election) -> Option<Done> {
        self.done(&look(election).await)
    }

    /// Puts on record that the leadership has done it. `false` if the seat was lost before that was acknowledged: then another may do it again.
    pub(super) async fn put_on_record(self, election: &Election, leadership: &Leadership) -> bool {
        let slot = match self {
            Task::Once(_) => None,
            Task::For(slot) => Some(slot.0),
        };
        let note = Record::Done { slot, at: wall_secs() }.to_string();
        let saying = async {
            while answer(election.annotate(leadership.token(), &note)).await.is_err() {
                tokio::time::sleep(ASK_AGAIN_AFTER).await;
            }
        };
        tokio::select! {
            biased;
            () = saying => true,
            _ = leadership.lost() => false,
        }
    }

    /// The slot, if it is for one.
    pub(super) fn slot(self) -> Option<Slot> {
        match self {
            Task::Once(_) => None,
            Task::For(slot) => Some(slot),
        }
    }
}

/// What stands on record as done: by which leadership, for which slot, and when.
fn records(board: &Board) -> impl Iterator<Item = (Token, Option<Slot>, u64)> + '_ {
    board.notes.iter().filter_map(|note| match Record::read(&note.text)? {
        Record::Done { slot, at } => Some((note.token, slot.map(Slot), at)),
        Record::Idle { .. } | Record::Guarded { .. } | Record::Ended | Record::Settled { .. } => None,
    })
}

/// Asks until there is an answer: a job that was done must not be done again because nobody could say so.
async fn look(election: &Election) -> Board {
    let mut said = false;
    loop {
        match answer(election.look()).await {
            Ok(board) => return board,
            Err(why) if !said => {
                say!(false, "cannot see whether the job is done: {why}; goes on trying");
                said = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(ASK_AGAIN_AFTER).await;
    }
}

fn wall_secs() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |it| it.as_secs())
}

#[cfg(test)]
mod tests {
    use incumbent::engine::Note;
    use incumbent_protocol::protocol::Term;

    use super::*;

    fn board(notes: &[(u64, String)]) -> Board {
        let note = |(term, text): &(u64, String)| Note { token: Token::new(0, Term(*term)).unwrap(), text: text.clone() };
        Board { notes: notes.iter().map(note).collect(), ..Board::default() }
    }

    #[test]
    fn a_slot_is_done_by_whoever_did_it_or_a_later_one() {
        let done = |slot| Record::Done { slot: Some(slot), at: 5 }.to_string();
        let board = board(&[(9, "guarded as=a berth=1:2".into()), (8, done(100)), (7, done(90)), (6, "rubbish".into())]);
        assert_eq!(Task::For(Slot(100)).done(&board).map(|it| it.token.get()), Some(8));
        assert_eq!(Task::For(Slot(80)).done(&board).map(|it| it.token.get()), Some(8));
        assert_eq!(Task::For(Slot(110)).done(&board), None);
    }

    #[test]
    fn once_counts_for_a_while() {
        let at = |seconds_ago| Record::Done { slot: None, at: wall_secs() - seconds_ago }.to_string();
        let hour = Task::Once(Duration::from_secs(3600));
        assert!(hour.done(&board(&[(3, at(60))])).is_some());
        assert!(hour.done(&board(&[(3, at(7200))])).is_none());
        assert!(hour.done(&board(&[])).is_none());
    }
}
