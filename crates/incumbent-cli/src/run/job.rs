//! A command that is done at some time: once, or once in every slot of a schedule. That it was done is on record in the election, so no other host does it again.
//!
//! At least once: a host that dies after its command has ended well and before that is on record leaves the job to another.

use std::time::{Duration, SystemTime};

use incumbent::engine::Board;
use incumbent::{Election, Leadership};

use super::record::{Done, Record};
use super::schedule::{Awaited, Due, Schedule, Slot, due};
use super::{CatchUp, RunArguments};
use crate::candidacy::signals::{Signals, Told};
use crate::candidacy::{say, usage};
use crate::elections::span;
use crate::elections::target::answer;
use crate::failure::Failure;

/// An engine that could not be asked is asked again after this.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// The wall clock may be set while we sleep, so nobody sleeps for longer.
const NAP_MAX: Duration = Duration::from_secs(30);
/// The clocks of hosts may differ by this. A slot that is further ahead was done by one whose clock was wrong, or ours is: it does not count, or nobody would do the job until then.
const AHEAD_MAX_SECS: u64 = 300;

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

impl Job {
    /// What the command line asks for; `None` if the command is no job.
    pub(super) fn wanted(wanted: &RunArguments) -> Result<Option<Job>, Failure> {
        let schedule = match (wanted.every, &wanted.at) {
            (Some(span), _) => Schedule::every(span),
            (None, Some(text)) => Schedule::at(text),
            (None, None) => return wanted.once.map(Job::once).transpose(),
        };
        let schedule = schedule.map_err(usage)?;
        Ok(Some(Job::Slots { schedule, catch_up: wanted.catch_up == CatchUp::Last }))
    }

    /// Once, and not again within this time. What is on record of it is in whole seconds.
    fn once(within: Duration) -> Result<Job, Failure> {
        match within.as_secs() {
            0 => Err(usage(format!("--once={}: give at least a second", span::short(within)))),
            _ => Ok(Job::Once(within)),
        }
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
            let slot = match waits_for.map(|slot| (slot, schedule.awaited(slot, now))) {
                Some((slot, Awaited::Due)) => return Ok(Task::For(slot)),
                Some((slot, Awaited::NotYet)) => slot,
                Some((_, Awaited::Astray)) | None => {
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

    /// What is to be done of a task by one who is elected only `now`: others may have come due while it stood in the line. `None` if it is too late for it.
    pub(super) fn still(&self, task: Task, now: u64) -> Option<Task> {
        match (self, task) {
            (Job::Slots { schedule, catch_up }, Task::For(slot)) => match schedule.last(now) {
                last if last <= slot => Some(task),
                last if *catch_up => Some(Task::For(last)),
                _ => None,
            },
            (Job::Slots { .. } | Job::Once(_), _) => Some(task),
        }
    }

    /// The newest slot that was done.
    async fn newest(&self, election: &Election, signals: &mut Signals) -> Result<Option<Slot>, Told> {
        tokio::select! {
            told = signals.told() => Err(told),
            board = look(election) => {
                warn_of_clocks(&board);
                Ok(slots(&board).filter_map(|it| it.slot).max().map(Slot))
            }
        }
    }
}

/// Whether it is known that a job is done.
pub(super) enum OnRecord {
    Yes,
    /// The seat was lost before that was acknowledged: another may do it again.
    NotInTime,
    /// So was it when a signal asked this process to end.
    Told(Told),
}

impl Task {
    /// When something of its kind was done last.
    pub(super) fn newest(self, board: &Board) -> Option<Done> {
        let now = wall_secs();
        match self {
            // One whose clock is ahead by more than this must not hide the others.
            Task::Once(within) => {
                records(board).filter(|it| it.at <= now.saturating_add(within.as_secs())).max_by_key(|it| it.at)
            }
            Task::For(_) => slots(board).max_by_key(|it| it.slot),
        }
    }

    /// The same, as the leader sees it.
    pub(super) async fn last_done(self, election: &Election) -> Option<Done> {
        let board = look(election).await;
        if self.slot().is_some() {
            warn_of_clocks(&board);
        }
        self.newest(&board)
    }

    /// Whether it need not be done again after that.
    pub(super) fn is_done_by(self, done: &Done) -> bool {
        match self {
            Task::Once(within) => wall_secs().abs_diff(done.at) <= within.as_secs(),
            Task::For(wanted) => done.slot.is_some_and(|it| it >= wanted.0),
        }
    }

    /// That it is done, as of now.
    pub(super) fn done(self) -> Record {
        Record::Done { slot: self.slot().map(|it| it.0), at: wall_secs() }
    }

    /// Puts on record that the leadership has done it.
    pub(super) async fn put_on_record(
        election: &Election,
        leadership: &Leadership,
        done: &Record,
        signals: &mut Signals,
    ) -> OnRecord {
        let note = done.to_string();
        let saying = async {
            let mut said = false;
            while let Err(why) = answer(election.annotate(leadership.token(), &note)).await {
                if !std::mem::replace(&mut said, true) {
                    say!(false, "the job is done, and the engine does not take note of it: {why}; goes on trying");
                }
                tokio::time::sleep(ASK_AGAIN_AFTER).await;
            }
        };
        tokio::select! {
            biased;
            () = saying => OnRecord::Yes,
            _ = leadership.lost() => OnRecord::NotInTime,
            // Renewals may go on for ever where notes do not: somebody must be able to end that.
            told = signals.told() => OnRecord::Told(told),
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

/// What stands on record as done.
fn records(board: &Board) -> impl Iterator<Item = Done> + '_ {
    board.notes.iter().filter_map(Done::read)
}

/// Those for a slot, as far as they count.
fn slots(board: &Board) -> impl Iterator<Item = Done> + '_ {
    records(board).filter(|it| it.slot.is_some() && !is_ahead(it))
}

fn is_ahead(done: &Done) -> bool {
    done.slot.is_some_and(|it| it > wall_secs() + AHEAD_MAX_SECS)
}

fn warn_of_clocks(board: &Board) {
    if let Some(Done { token, slot: Some(slot), .. }) = records(board).find(is_ahead) {
        say!(
            false,
            "token {token} is on record as done for {}, which is more than five minutes ahead of this host's clock: one of the two clocks is wrong, and it does not count",
            Slot(slot)
        );
    }
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

pub(super) fn wall_secs() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |it| it.as_secs())
}

#[cfg(test)]
mod tests {
    use incumbent::Token;
    use incumbent::engine::{Note, Past};
    use incumbent_protocol::protocol::Term;

    use super::*;

    fn board(notes: &[(u64, String)]) -> Board {
        let note = |(term, text): &(u64, String)| Note { token: Token::new(0, Term(*term)).unwrap(), text: text.clone() };
        Board { notes: notes.iter().map(note).collect(), ..Board::default() }
    }

    /// Who has done it, if anybody.
    fn done(task: Task, board: &Board) -> Option<u64> {
        task.newest(board).filter(|it| task.is_done_by(it)).map(|it| it.token.get())
    }

    #[test]
    fn a_slot_is_done_by_whoever_did_it_or_a_later_one() {
        let noted = |slot| Record::Done { slot: Some(slot), at: 5 }.to_string();
        let board = board(&[(9, "guarded as=a berth=1:2".into()), (8, noted(100)), (7, noted(90)), (6, "rubbish".into())]);
        assert_eq!(done(Task::For(Slot(100)), &board), Some(8));
        assert_eq!(done(Task::For(Slot(80)), &board), Some(8));
        assert_eq!(done(Task::For(Slot(110)), &board), None);
    }

    #[test]
    fn a_slot_that_was_done_by_a_clock_far_ahead_does_not_count() {
        let noted = |slot| Record::Done { slot: Some(slot), at: slot }.to_string();
        let now = Task::For(Slot(wall_secs()));
        assert_eq!(done(now, &board(&[(2, noted(wall_secs() + 60))])), Some(2), "clocks differ a little");
        let ahead = (3, noted(wall_secs() + 30 * 86_400));
        assert_eq!(done(now, &board(std::slice::from_ref(&ahead))), None);
        assert_eq!(done(now, &board(&[ahead, (2, noted(wall_secs()))])), Some(2), "and hides nobody");
    }

    #[test]
    fn of_the_slots_that_came_due_in_the_line_only_the_last_is_left() {
        let job = |catch_up| Job::Slots { schedule: Schedule::every(Duration::from_secs(60)).unwrap(), catch_up };
        let task = Task::For(Slot(600));
        for (now, last, none) in [
            (600, Some(task), Some(task)),
            (659, Some(task), Some(task)),
            (660, Some(Task::For(Slot(660))), None),
            (905, Some(Task::For(Slot(900))), None),
            // The clock was set back.
            (500, Some(task), Some(task)),
        ] {
            assert_eq!((job(true).still(task, now), job(false).still(task, now)), (last, none), "{now}");
        }
        let once = Task::Once(Duration::from_secs(60));
        assert_eq!(Job::Once(Duration::from_secs(60)).still(once, 9000), Some(once));
    }

    #[test]
    fn once_counts_for_a_while() {
        let at = |seconds_ago| Record::Done { slot: None, at: wall_secs() - seconds_ago }.to_string();
        let hour = Task::Once(Duration::from_secs(3600));
        assert_eq!(done(hour, &board(&[(3, at(60))])), Some(3));
        assert_eq!(done(hour, &board(&[(3, at(7200))])), None);
        assert_eq!(done(hour, &board(&[])), None);
        let ahead = Record::Done { slot: None, at: wall_secs() + 7200 }.to_string();
        assert_eq!(done(hour, &board(&[(4, ahead), (3, at(60))])), Some(3), "a clock that was wrong hides nobody");
    }

    #[test]
    fn what_was_done_is_known_when_more_have_led_since_than_an_engine_remembers() {
        for (task, slot) in [(Task::Once(Duration::from_secs(3600)), None), (Task::For(Slot(100)), Some(100))] {
            let mut board = board(&[(1, Record::Done { slot, at: wall_secs() }.to_string())]);
            for term in 2..100 {
                let record = if term % 2 == 0 { Record::idle(&[]) } else { Record::Ended };
                let text = record.after(task.newest(&board));
                board.notes.insert(0, Note { token: Token::new(0, Term(term)).unwrap(), text });
                board.notes.truncate(Past::KEPT_MAX);
                assert_eq!(done(task, &board), Some(1), "after {term}");
            }
        }
    }
}
