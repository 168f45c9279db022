//! One leadership: the command is started, watched over, told to stop in time, and known to be dead before the seat is given back.

use std::ffi::OsString;
use std::pin::pin;
use std::time::Duration;

use incumbent::leadership::Changes;
use incumbent::{Election, Leadership, Reason, State, Timing, Token};
use incumbent_protocol::time::Instant;
use incumbent_supervisor::{Command, Ending, Event, Guarded, clock};
use rustix::process::Signal;
use tokio::sync::mpsc;

use super::diary::Diary;
use super::fence::{Fencing, Here, SAY_EVERY, Takeover};
use super::job::{OnRecord, Task};
use super::record::{Done, Record, Unsettled, unsettled};
use super::{OnJeopardy, RunArguments};
use crate::candidacy::contend::is_given_away;
use crate::candidacy::hook::{self, Cut, Hook};
use crate::candidacy::machine::{Machine, Uncleared, at_the_berth};
use crate::candidacy::signals::{Heard, Signals, Told};
use crate::candidacy::{NOT_GIVEN_BACK, NOT_RUN_BESIDE_ANOTHER, SAY_AGAIN_AFTER, before, note_in_time, outlast, say};
use crate::elections::target::answer;
use crate::failure::Failure;
use crate::office::publications::Publications;
use crate::office::{Asked, Office};

/// For so long a supervisor whose farewell was not heard tries to say that its command is dead.
const SAY_ENDED_WITHIN: Duration = Duration::from_secs(600);

/// What all terms have in common.
pub(super) struct Terms<'a> {
    pub(super) wanted: &'a RunArguments,
    pub(super) command: &'a Command,
    pub(super) election: &'a Election,
    pub(super) machine: &'a Machine,
    pub(super) here: Here,
    pub(super) office: &'a Office,
    pub(super) fencing: &'a Fencing,
    pub(super) diary: Diary,
    /// What is to be done, if the command is a job.
    pub(super) task: Option<Task>,
    /// It is too late for it: later ones have come due since.
    pub(super) is_missed: bool,
}

/// How a term went. The command is dead in every case.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Served {
    /// The command ended by itself.
    Ended(Ending),
    /// The leadership ended first.
    Lost,
    /// The same, because it was asked to give the seat away.
    GivenAway,
    /// A signal asked this process to end; how the command ended, if it had been started.
    Told(Told, Option<Ending>),
    /// The command was not started, though there was time.
    NotStarted,
    /// A former leader could not be fenced in time, so nothing was started.
    NotFenced,
    /// Somebody has done the job, so nothing was started.
    AlreadyDone,
    /// It was too late for the job, so nothing was started.
    Missed,
}

/// Why the command is being stopped.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Stop {
    Lost,
    Told(Told),
    Asked,
}

impl Terms<'_> {
    /// Serves one leadership to its end.
    pub(super) async fn serve(
        &self,
        leadership: Leadership,
        guarded: &mut Guarded,
        signals: &mut Signals,
    ) -> Result<Served, Failure> {
        let token = leadership.token();
        say!(self.wanted.candidacy.quiet, "elected for {} with token {token}", self.wanted.candidacy.election);
        let mut asked = self.office.begin(&leadership);
        let mut entry = Entry { hides_nobody: !self.fencing.is_wanted(), last_done: None, is_on_record: leadership.is_noted() };
        let way = self.enter(&leadership, guarded, signals, &mut entry).await?;
        let served = match way {
            Way::Clear => self.work(&leadership, guarded, signals, &mut asked).await,
            Way::Lost => (Served::Lost, None),
            Way::Told(told) => (Served::Told(told, None), None),
            Way::Refused => (Served::NotStarted, None),
            Way::NotFenced => (Served::NotFenced, None),
            Way::AlreadyDone => (Served::AlreadyDone, None),
            Way::Missed => (Served::Missed, None),
        };
        self.office.end();
        let (served, to) = served;
        let mut served = if served == Served::Lost && is_given_away(&leadership) { Served::GivenAway } else { served };
        let done = self.task.filter(|_| served == Served::Ended(Ending::Code(0))).map(Task::done);
        let mut is_done = false;
        if let Some(done) = &done {
            match Task::put_on_record(self.election, &leadership, done, signals).await {
                OnRecord::Yes => is_done = true,
                OnRecord::NotInTime => {}
                OnRecord::Told(told) => served = Served::Told(told, Some(Ending::Code(0))),
            }
            if !is_done {
                say!(false, "the job is done, but the engine did not take note of it in time: another host may do it again");
            }
        }
        let is_tidy = self.say_farewell(&leadership, guarded).await?;
        // A seat that is given back says that all is well with those who had it before, unless it is on record that nothing was started.
        if !entry.hides_nobody && self.say_idle(token).await.is_err() {
            self.leave_berth(guarded).await;
            drop(leadership);
            return Ok(served);
        }
        if !is_tidy {
            self.diary.note("not released");
            // Who is told once more does not wait, and the lease ends by itself.
            let told = tokio::select! {
                () = outlast(leadership) => None,
                told = signals.told() => Some(told),
            };
            self.leave_berth(guarded).await;
            return Ok(match (told, served) {
                (None, served) | (Some(_), served @ Served::Told(..)) => served,
                (Some(told), Served::Ended(ending)) => Served::Told(told, Some(ending)),
                (
                    Some(told),
                    Served::Lost
                    | Served::GivenAway
                    | Served::NotStarted
                    | Served::NotFenced
                    | Served::AlreadyDone
                    | Served::Missed,
                ) => Served::Told(told, None),
            });
        }
        let is_late = matches!(leadership.state(), State::Lost(_));
        let release = async {
            match to {
                Some(to) => leadership.hand_over(&to).await,
                None => leadership.resign().await,
            }
        };
        // The engine is told first: to write to the berth can take as long as it does, where the disk is busy. Whoever is elected on this machine waits for it.
        let (released, ()) = tokio::join!(biased; release, self.leave_berth(guarded));
        self.diary.note(if released.is_ok() { "released" } else { "not released" });
        if let Err(why) = &released {
            tracing::info!(%why, "not released");
        }
        if entry.is_on_record && !is_done && (is_late || released.is_err()) {
            // That it was done may have reached the engine, though no answer came back: that must not be unsaid.
            self.say_ended(token, done.map_or_else(|| Record::Ended.after(entry.last_done), |it| it.to_string())).await;
        }
        Ok(served)
    }

    /// Puts on record that nothing was started, and who has to be made sure of all the same.
    async fn say_idle(&self, token: Token) -> Result<(), incumbent::Error> {
        let board = answer(self.election.look()).await?;
        let silent: Vec<Unsettled> = unsettled(&board).into_iter().filter(|it| it.token < token).collect();
        let done = self.task.and_then(|it| it.newest(&board));
        answer(self.election.annotate(token, &Record::idle(&silent).after(done))).await
    }

    async fn leave_berth(&self, guarded: &mut Guarded) {
        guarded.settle().await;
        if let Err(why) = self.machine.berth.leave(guarded.cgroup().ok()) {
            say!(false, "cannot unlock the lock of this machine: {why}");
        }
    }

    /// Says afterwards that nothing of a command lives whose supervisor was not heard in time: its host need not be fenced for it.
    async fn say_ended(&self, token: Token, note: String) {
        let mut say = Box::pin(keep_saying(self.election.clone(), token, note));
        // Where the engine is not there, this process has better to do than to wait for it.
        if tokio::time::timeout(self.election.timing().request_timeout(), &mut say).await.is_err() {
            tokio::spawn(tokio::time::timeout(SAY_ENDED_WITHIN, say));
        }
    }

    /// Whatever of a former term may live on this machine is dead, and the hook has run.
    async fn enter(
        &self,
        leadership: &Leadership,
        guarded: &mut Guarded,
        signals: &mut Signals,
        entry: &mut Entry,
    ) -> Result<Way, Failure> {
        let way = {
            let mut clearing = pin!(self.clear_the_way(leadership, signals, entry));
            let mut changes = leadership.changes();
            loop {
                // That may take long, and somebody may stop this process meanwhile: the guardian knows until when the berth is ours.
                self.keep_lease(leadership, guarded);
                tokio::select! {
                    biased;
                    way = &mut clearing => break way?,
                    () = changes.next() => {}
                }
            }
        };
        let (Some(line), Way::Clear) = (&self.wanted.candidacy.on_elected, &way) else { return Ok(way) };
        // A hook is a tree of which only its own guardian knows whether it is dead.
        guarded.settle().await;
        match self.machine.berth.try_take().map_err(at_the_berth)? {
            true => self.greet(line, leadership, signals).await,
            false => Ok(Way::Lost),
        }
    }

    async fn greet(&self, line: &str, leadership: &Leadership, signals: &mut Signals) -> Result<Way, Failure> {
        Ok(match self.hook(line, leadership).run_for(leadership, self.election.timing(), signals).await {
            Ok(()) => Way::Clear,
            Err(Cut::Lost) => Way::Lost,
            Err(Cut::Told(told)) => Way::Told(told),
            Err(Cut::Failed(why)) => {
                say!(false, "--on-elected: {why}; gives the seat back");
                Way::Refused
            }
        })
    }

    /// Runs the hook for the end of a term. Says whether all is as it was before.
    async fn say_farewell(&self, leadership: &Leadership, guarded: &mut Guarded) -> Result<bool, Failure> {
        let Some(line) = &self.wanted.candidacy.on_lost else { return Ok(true) };
        guarded.settle().await;
        if !self.machine.berth.try_take().map_err(at_the_berth)? {
            say!(false, "{NOT_RUN_BESIDE_ANOTHER}");
            return Ok(true);
        }
        let ended = self.hook(line, leadership).run_after().await;
        if let Err(why) = &ended {
            say!(false, "--on-lost: {why}; {NOT_GIVEN_BACK}");
        }
        Ok(ended.is_ok())
    }

    /// Nothing of a former term lives on this machine or is to be feared elsewhere, and that something may run here is on record.
    async fn clear_the_way(&self, leadership: &Leadership, signals: &mut Signals, entry: &mut Entry) -> Result<Way, Failure> {
        match self.machine.clear(leadership, signals, self.wanted.candidacy.quiet).await? {
            Ok(()) => {}
            Err(Uncleared::Lost) => return Ok(Way::Lost),
            Err(Uncleared::Told(told)) => return Ok(Way::Told(told)),
        }
        if let Some(task) = self.task {
            entry.last_done = tokio::select! {
                _ = leadership.stopping() => return Ok(Way::Lost),
                told = signals.told() => return Ok(Way::Told(told)),
                done = task.last_done(self.election) => done,
            };
            if let Some(done) = entry.last_done.filter(|it| task.is_done_by(it)) {
                say!(self.wanted.candidacy.quiet, "already done with token {}", done.token);
                return Ok(Way::AlreadyDone);
            }
            if self.is_missed {
                say!(self.wanted.candidacy.quiet, "too late: it is due again by now, and what was missed is not made up for");
                return Ok(Way::Missed);
            }
        }
        if self.fencing.is_wanted() {
            let way = self.fence(leadership, signals, &mut entry.hides_nobody).await;
            if !matches!(way, Way::Clear) {
                return Ok(way);
            }
        }
        // Before the hook too, which acts for the leader as the command does: an address that it has brought up may outlive this host's supervisor.
        if !std::mem::replace(&mut entry.is_on_record, true) {
            return Ok(self.put_on_record(leadership, entry.last_done, signals).await);
        }
        Ok(Way::Clear)
    }

    /// Every former leader that left without a word is known to be dead.
    async fn fence(&self, leadership: &Leadership, signals: &mut Signals, hides_nobody: &mut bool) -> Way {
        let mut takeover = Takeover::new(self.fencing, self.election, leadership, &self.here, self.task);
        let give_up = async {
            match self.fencing.give_up {
                Some(span) => tokio::time::sleep(span).await,
                None => std::future::pending().await,
            }
        };
        let way = tokio::select! {
            biased;
            _ = leadership.stopping() => Way::Lost,
            told = signals.told() => Way::Told(told),
            () = takeover.settle() => Way::Clear,
            () = give_up => {
                say!(false, "gives the seat back: no fence has succeeded in time");
                Way::NotFenced
            }
        };
        *hides_nobody = takeover.hides_nobody;
        way
    }

    /// Where the engine has not done it with the seat: that a command runs is known to whoever comes next, before it does: so one that is killed before that has started nothing, and leaves nobody to be feared. Also if this leader does not
    /// fence, because the next one may.
    async fn put_on_record(&self, leadership: &Leadership, last_done: Option<Done>, signals: &mut Signals) -> Way {
        let note = self.here.guarded(leadership.identity()).after(last_done);
        let is_needed = self.fencing.is_wanted() || self.task.is_some();
        if !is_needed && self.machine.is_all() {
            // Whoever comes next has the same berth, which tells it as much; to wait for the disk would take longer than all the rest.
            let write = keep_saying(self.election.clone(), leadership.token(), note);
            tokio::spawn(tokio::time::timeout(self.election.timing().ttl(), write));
            return Way::Clear;
        }
        let write = async {
            if is_needed {
                self.insist(leadership.token(), &note).await;
            } else {
                note_in_time(self.election, leadership.token(), &note).await;
            }
        };
        tokio::select! {
            biased;
            _ = leadership.stopping() => Way::Lost,
            told = signals.told() => Way::Told(told),
            () = write => Way::Clear,
        }
    }

    /// Puts on record what must be there before anything is started, however long that takes, and says so.
    async fn insist(&self, token: Token, note: &str) {
        let mut said: Option<tokio::time::Instant> = None;
        while let Err(why) = answer(self.election.annotate(token, note)).await {
            if said.is_none_or(|it| it.elapsed() >= SAY_EVERY) {
                say!(false, "NOT STARTED: the engine does not take note of it: {why}. Keeps the seat and goes on trying");
                said = Some(tokio::time::Instant::now());
            }
            tokio::time::sleep(SAY_AGAIN_AFTER).await;
        }
    }

    async fn work(
        &self,
        leadership: &Leadership,
        guarded: &mut Guarded,
        signals: &mut Signals,
        asked: &mut mpsc::UnboundedReceiver<Asked>,
    ) -> (Served, Option<String>) {
        let mut work = Work { terms: self, leadership, stop: None, ending: None, frozen: false, to: None };
        let mut changes = leadership.changes();
        // What came before that is not told as a change.
        if !matches!(leadership.state(), State::Held | State::Jeopardy) {
            return (Served::Lost, None);
        }
        self.keep_lease(leadership, guarded);
        let mut command = self.command.clone();
        command.environment.extend(self.environment(leadership));
        // Whoever stood still during the hook may have lost it.
        let named = self.machine.berth.try_take().and_then(|is_ours| match is_ours {
            true => self.machine.berth.name(guarded.cgroup().ok()).map(|()| true),
            false => Ok(false),
        });
        match named {
            Ok(true) => {}
            Ok(false) => return (Served::Lost, None),
            Err(why) => {
                say!(
                    false,
                    "cannot write to the lock of this machine, in the state directory ({why}): make room there, or name another with --state-dir"
                );
                return (Served::NotStarted, None);
            }
        }
        self.office.work(None);
        guarded.start(command);
        // A jeopardy that was there before is not told as a change, either.
        work.on_change(guarded);
        let died = work.watch_over(guarded, &mut changes, signals, asked).await;
        let served = match (died, work.stop, work.ending) {
            (Died::NeverLived, Some(Stop::Told(told)), _) => Served::Told(told, None),
            (_, Some(Stop::Asked), _) => Served::GivenAway,
            (Died::NeverLived, Some(Stop::Lost), _) => Served::Lost,
            (Died::NeverLived, None, _) => Served::NotStarted,
            // If nobody saw how it ended, it was the supervisor that killed it: the guardian did not.
            (Died::Dead, Some(Stop::Told(told)), ending) => {
                Served::Told(told, Some(ending.unwrap_or(Ending::Signal(Signal::KILL.as_raw()))))
            }
            (Died::Dead, Some(Stop::Lost), _) | (Died::Dead, None, None) => Served::Lost,
            (Died::Dead, None, Some(ending)) => Served::Ended(ending),
        };
        (served, work.to)
    }

    /// Gives the guardian the times of the lease as it stands.
    fn keep_lease(&self, leadership: &Leadership, guarded: &mut Guarded) {
        let (stop_at, kill_at) = self.last_times(leadership);
        guarded.lease(stop_at, kill_at, leadership.deadline());
    }

    /// When the guardian tells a command to end that is not frozen, and when it kills it.
    fn last_times(&self, leadership: &Leadership) -> (Instant, Instant) {
        let timing = self.election.timing();
        let kill_at = before(leadership.deadline(), timing.kill());
        // One that should be frozen by then and is not has a supervisor that stands still: it drains like any other.
        (before(kill_at, Timing::of(timing.ttl()).build().map_or(timing.drain(), |it| it.drain())), kill_at)
    }

    fn hook<'b>(&'b self, line: &'b str, leadership: &Leadership) -> Hook<'b> {
        let (environment, directory) = (self.environment(leadership), self.wanted.chdir.as_deref());
        Hook { line, environment, directory, berth: Some(&self.machine.berth) }
    }

    fn environment(&self, leadership: &Leadership) -> Vec<(OsString, OsString)> {
        let mut environment = hook::environment(leadership);
        environment.extend(self.office.socket().map(|it| (OsString::from("INCUMBENT_SOCKET"), it.into_os_string())));
        let slot = self.task.and_then(Task::slot);
        environment.extend(self.diary.context().map(|it| (OsString::from("TRACEPARENT"), it.to_string().into())));
        environment.extend(slot.map(|it| (OsString::from("INCUMBENT_SLOT"), OsString::from(it.0.to_string()))));
        environment
    }
}

/// What is known of a leadership when its command is started, or is not.
struct Entry {
    /// The seat may be given back without hiding a former leader from whoever comes next.
    hides_nobody: bool,
    /// When the job was done last.
    last_done: Option<Done>,
    /// It stands on record that something runs, or may.
    is_on_record: bool,
}

enum Way {
    /// The command may be started.
    Clear,
    Lost,
    Told(Told),
    Refused,
    /// A former leader may live, and it was waited long enough.
    NotFenced,
    AlreadyDone,
    Missed,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Died {
    Dead,
    NeverLived,
}

/// A command under way.
struct Work<'a> {
    terms: &'a Terms<'a>,
    leadership: &'a Leadership,
    stop: Option<Stop>,
    ending: Option<Ending>,
    frozen: bool,
    /// To whom the seat shall go.
    to: Option<String>,
}

impl Work<'_> {
    async fn watch_over(
        &mut self,
        guarded: &mut Guarded,
        changes: &mut Changes,
        signals: &mut Signals,
        asked: &mut mpsc::UnboundedReceiver<Asked>,
    ) -> Died {
        let mut late = false;
        let mut publications = Publications::new(self.terms.election, self.leadership);
        loop {
            let left = self.leadership.deadline() - clock::now();
            tokio::select! {
                biased;
                event = guarded.next() => match event {
                    Event::Started { pid } => self.on_start(pid),
                    Event::NotStarted { why } => {
                        say!(false, "the command was not started: {why}");
                        return Died::NeverLived;
                    }
                    Event::TooLate => {
                        // Not the command's fault, nor ours: a busy machine, and the seat is lost as it would be a moment later.
                        say!(self.terms.wanted.candidacy.quiet, "the lease ended before the command could be started");
                        self.stop.get_or_insert(Stop::Lost);
                        return Died::NeverLived;
                    }
                    Event::Ended(ending) => self.on_end(ending),
                    Event::Dead { killed } => {
                        self.say_end(killed);
                        return Died::Dead;
                    }
                    Event::NotFrozen { why } => {
                        say!(false, "the command could not be frozen ({why}), so it is killed");
                        self.stop.get_or_insert(Stop::Lost);
                        self.say_stop("not frozen");
                        guarded.kill();
                    }
                    Event::TimeUp => self.on_time_up(),
                    Event::GuardianDied => {
                        say!(false, "the guardian of the command has died: the command is killed, and started again by whoever leads next");
                        self.stop.get_or_insert(Stop::Lost);
                        self.say_stop("guardian died");
                    }
                },
                () = changes.next() => self.on_change(guarded),
                heard = signals.next() => self.on_signal(heard, guarded),
                Some(asked) = asked.recv() => self.on_asked(asked, &mut publications, guarded),
                () = publications.work() => {}
                () = tokio::time::sleep(left), if !late => {
                    late = clock::now() >= self.leadership.deadline();
                    if late && self.stop != Some(Stop::Lost) {
                        // The last renewal's news may still be on its way; the guardian has its own clock in any case.
                        self.lose(Reason::Expired, guarded);
                    }
                    if late {
                        say!(false, "the command is not known to be dead at the deadline; it is being killed");
                    }
                }
            }
        }
    }

    fn on_start(&mut self, pid: i32) {
        self.terms.diary.note("command started");
        say!(self.terms.wanted.candidacy.quiet, "started {} as process {pid}", self.terms.command.program.display());
    }

    fn on_end(&mut self, ending: Ending) {
        self.ending = Some(ending);
    }

    /// The guardian has acted by its own clock, on the lease that it knows of. This process may have stood still, or be a moment later than it.
    fn on_time_up(&mut self) {
        if self.stop.is_none() {
            self.stop = Some(Stop::Lost);
            let (reason, quiet) = (Reason::Expired, self.terms.wanted.candidacy.quiet);
            self.say_stop(&reason.to_string());
            if self.frozen {
                say!(quiet, "leaves office ({reason}): the guardian has killed the command where it stands");
            } else {
                say!(quiet, "leaves office ({reason}): the guardian has told the command to end");
            }
        }
    }

    fn on_change(&mut self, guarded: &mut Guarded) {
        match self.leadership.state() {
            State::Held => {
                self.terms.keep_lease(self.leadership, guarded);
                if self.frozen {
                    self.frozen = false;
                    say!(self.terms.wanted.candidacy.quiet, "the engine answers again: the command goes on");
                    guarded.thaw();
                }
            }
            State::Jeopardy => {
                // A renewal that was long on its way gives time without ending the jeopardy.
                self.terms.keep_lease(self.leadership, guarded);
                if self.terms.wanted.on_jeopardy == OnJeopardy::Freeze && !self.frozen && self.stop.is_none() {
                    self.frozen = true;
                    say!(self.terms.wanted.candidacy.quiet, "the engine does not answer: the command is frozen");
                    guarded.freeze();
                }
            }
            State::Stopping(reason) => {
                // Renewals go on until the work has ended: whoever was asked to go has the time to do so.
                self.terms.keep_lease(self.leadership, guarded);
                self.lose(reason, guarded);
            }
            State::Lost(reason) => self.lose(reason, guarded),
        }
    }

    fn lose(&mut self, reason: Reason, guarded: &mut Guarded) {
        if self.stop.is_some() {
            return;
        }
        self.stop = Some(Stop::Lost);
        self.say_stop(&reason.to_string());
        // A frozen one is left frozen until it is killed: nobody has said that it may act.
        if self.frozen && reason == Reason::Expired {
            say!(self.terms.wanted.candidacy.quiet, "leaves office ({reason}): the command is killed where it stands");
        } else {
            say!(self.terms.wanted.candidacy.quiet, "leaves office ({reason}): the command is told to end");
            // The guardian knows the end of the lease by itself.
            guarded.stop(Signal::TERM, clock::now() + self.terms.wanted.grace);
        }
    }

    fn on_signal(&mut self, heard: Heard, guarded: &mut Guarded) {
        match (heard, self.stop) {
            (Heard::Passed(signal), _) => guarded.signal(signal),
            (Heard::Told(_), Some(Stop::Told(_))) => {
                say!(self.terms.wanted.candidacy.quiet, "told twice: the command is killed");
                guarded.kill();
            }
            (Heard::Told(told), _) => {
                self.stop = Some(Stop::Told(told));
                self.say_stop("told to end");
                // Renewals go on, so only the person's patience counts; the lease's end is the guardian's.
                guarded.stop(told.0, clock::now() + self.terms.wanted.grace);
            }
        }
    }

    fn on_asked(&mut self, asked: Asked, publications: &mut Publications<'_>, guarded: &mut Guarded) {
        let to = match asked {
            Asked::Publish(value, answer) => return publications.add(value, answer),
            Asked::Resign => None,
            Asked::HandOver(to) => Some(to),
            // The office does not pass it on: we see for ourselves.
            Asked::Stopped => return,
        };
        if self.stop.is_none() {
            self.stop = Some(Stop::Asked);
            self.say_stop(if to.is_some() { "handed over" } else { "resigned" });
            self.to = to;
            guarded.stop(Signal::TERM, clock::now() + self.terms.wanted.grace);
        }
    }

    /// To those who ask, and to those who read traces.
    fn say_stop(&self, why: &str) {
        self.terms.office.stop(why);
        self.terms.diary.stop(why);
    }

    fn say_end(&self, killed: bool) {
        self.terms.diary.note(if killed { "command killed" } else { "command dead" });
        let how = match (self.ending, killed) {
            (_, true) => "was killed".to_owned(),
            (Some(Ending::Code(code)), false) => format!("ended with code {code}"),
            (Some(Ending::Signal(signal)), false) => format!("was ended by signal {signal}"),
            (None, false) => "has ended".to_owned(),
        };
        say!(self.terms.wanted.candidacy.quiet, "the command {how}; nothing of it lives");
    }
}

/// Puts something on record, however often it takes.
async fn keep_saying(election: Election, token: Token, note: String) {
    while let Err(why) = answer(election.annotate(token, &note)).await {
        tracing::info!(%why, note, "not on record yet");
        tokio::time::sleep(SAY_AGAIN_AFTER).await;
    }
}
