//! One leadership: told to whoever asks, ended in time, and given back only after the work has stopped.
//!
//! ```text
//!   elected -> what was promised before has passed, and it is on record -> --on-elected -> working: /primary 200, the file is there
//!           -> stopping: /primary 503, the file is gone -> POST /stopped, or the end of the drain -> --on-lost
//!           -> stopped: given back          not said, or the hook failed: not renewed any more, ends with its lease
//! ```

use incumbent::leadership::Changes;
use incumbent::{Election, Leadership, Reason, State};
use incumbent_supervisor::clock;
use tokio::sync::mpsc;

use super::SidecarArguments;
use super::badge::Badge;
use crate::candidacy::contend::is_given_away;
use crate::candidacy::hook::{self, Cut, Hook};
use crate::candidacy::machine::{Machine, Uncleared};
use crate::candidacy::promise::Promise;
use crate::candidacy::signals::Signals;
use crate::candidacy::{NOT_GIVEN_BACK, NOT_RUN_BESIDE_ANOTHER, before, note_in_time, outlast, say};
use crate::office::publications::Publications;
use crate::office::{Asked, Office};
use crate::run::record::Record;

/// What all terms have in common.
pub(super) struct Terms<'a> {
    pub(super) wanted: &'a SidecarArguments,
    pub(super) election: &'a Election,
    pub(super) office: &'a Office,
    /// Where the kernel frees the seat as soon as its holder dies.
    pub(super) machine: Option<&'a Machine>,
    pub(super) badge: Option<&'a Badge>,
}

/// How a term went.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Served {
    /// It ended.
    Lost,
    /// It was given away.
    GivenAway,
    /// A signal asked this process to end.
    Told,
    /// The hook did not want it.
    Refused,
}

/// Why the work is to stop.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Stop {
    Lost(Reason),
    Told,
    Resigned,
    HandedOver(String),
    /// It must not go on, though it is not lost.
    Unfit(String),
}

/// What is known of the work at the end.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Work {
    /// Somebody else's from before may go on, and nothing was done for this leadership.
    NotBegun,
    Stopped,
    /// Nobody has said so.
    MayGoOn,
    /// Nobody has said so, and this process is to end at once.
    IsLeftAlone,
}

impl Terms<'_> {
    /// Serves one leadership to its end.
    pub(super) async fn serve(&self, leadership: Leadership, signals: &mut Signals) -> Served {
        let quiet = self.wanted.candidacy.quiet;
        say!(quiet, "elected for {} with token {}", leadership.election(), leadership.token());
        let mut asked = self.office.begin(&leadership);
        let entered = self.enter(&leadership, signals).await;
        let (served, stop, work) = match entered {
            Ok(()) => self.work(&leadership, signals, &mut asked).await,
            // There is nothing to wait for.
            Err((served, work)) => (served, Stop::Unfit("not entered".to_owned()), work),
        };
        drop(asked);
        self.leave(leadership, &stop, work).await;
        self.office.end();
        if let Some(Err(why)) = self.machine.map(|it| it.berth.let_go()) {
            say!(false, "cannot unlock the lock of this machine: {why}");
        }
        served
    }

    /// What was before has passed, and the hook has run.
    async fn enter(&self, leadership: &Leadership, signals: &mut Signals) -> Result<(), (Served, Work)> {
        if let Some(machine) = self.machine {
            match machine.clear(leadership, signals, self.wanted.candidacy.quiet).await {
                Ok(Ok(())) => {}
                Ok(Err(Uncleared::Lost)) => return Err((Served::Lost, Work::NotBegun)),
                Ok(Err(Uncleared::Told(_))) => return Err((Served::Told, Work::NotBegun)),
                Err(why) => {
                    say!(false, "{}; gives the seat back", why.message().map_or("", |(what, _)| what));
                    return Err((Served::Refused, Work::NotBegun));
                }
            }
        }
        // Where the kernel frees the seat, what was promised is on this machine, and nobody else is elsewhere.
        if self.machine.is_none() && !leadership.is_noted() {
            let note = Record::Led { by: leadership.identity().clone() }.to_string();
            tokio::select! {
                biased;
                _ = leadership.stopping() => return Err((Served::Lost, Work::Stopped)),
                _ = signals.told() => return Err((Served::Told, Work::Stopped)),
                () = note_in_time(self.election, leadership.token(), &note) => {}
            }
        }
        if let Some(line) = &self.wanted.candidacy.on_elected {
            match self.hook(line, leadership).run_for(leadership, self.election.timing(), signals).await {
                Ok(()) => {}
                Err(Cut::Lost) => return Err((Served::Lost, Work::Stopped)),
                Err(Cut::Told(_)) => return Err((Served::Told, Work::Stopped)),
                Err(Cut::Failed(why)) => {
                    say!(false, "--on-elected: {why}; gives the seat back");
                    return Err((Served::Refused, Work::Stopped));
                }
            }
        }
        Ok(())
    }

    fn hook<'b>(&'b self, line: &'b str, leadership: &Leadership) -> Hook<'b> {
        Hook { line, environment: hook::environment(leadership), directory: None, berth: self.machine.map(|it| &it.berth) }
    }

    fn promise(&self) -> Option<&Promise> {
        self.machine.and_then(|it| it.promise.as_ref())
    }

    async fn work(
        &self,
        leadership: &Leadership,
        signals: &mut Signals,
        asked: &mut mpsc::UnboundedReceiver<Asked>,
    ) -> (Served, Stop, Work) {
        let mut changes = leadership.changes();
        if let Err(why) = self.extend(leadership) {
            say!(false, "{why}; gives the seat back");
            return (Served::Refused, Stop::Unfit(why), Work::Stopped);
        }
        self.office.work(self.promise().cloned());
        let stop = self.hold(leadership, &mut changes, signals, asked).await;
        self.office.stop(&stop.reason());
        if let Some(badge) = self.badge {
            badge.hide();
        }
        say!(self.wanted.candidacy.quiet, "leaves office ({})", stop.reason());
        let mut served = match stop {
            Stop::Lost(_) if is_given_away(leadership) => Served::GivenAway,
            Stop::Lost(_) => Served::Lost,
            Stop::Told => Served::Told,
            Stop::Resigned | Stop::HandedOver(_) => Served::GivenAway,
            Stop::Unfit(_) => Served::Refused,
        };
        let work = self.drain(leadership, &mut changes, signals, asked, &mut served).await;
        (served, stop, work)
    }

    /// Tells the lease as it stands to those who are not asked: first what was promised, for others to wait for it.
    fn extend(&self, leadership: &Leadership) -> Result<(), String> {
        if let Some(promise) = self.promise() {
            promise.make(leadership.deadline()).map_err(|why| format!("cannot leave a promise: {why}"))?;
        }
        match self.badge.map(|it| it.show(leadership)) {
            Some(Err(why)) => Err(format!("cannot write --file: {why}")),
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// Leads until it is time to stop.
    async fn hold(
        &self,
        leadership: &Leadership,
        changes: &mut Changes,
        signals: &mut Signals,
        asked: &mut mpsc::UnboundedReceiver<Asked>,
    ) -> Stop {
        let mut publications = Publications::new(self.election, leadership);
        loop {
            tokio::select! {
                biased;
                _ = signals.told() => return Stop::Told,
                () = changes.next() => match leadership.state() {
                    State::Held | State::Jeopardy => if let Err(why) = self.extend(leadership) {
                        say!(false, "{why}");
                        return Stop::Unfit(why);
                    },
                    State::Stopping(reason) | State::Lost(reason) => return Stop::Lost(reason),
                },
                Some(asked) = asked.recv() => match asked {
                    Asked::Publish(value, answer) => publications.add(value, answer),
                    Asked::Resign => return Stop::Resigned,
                    Asked::HandOver(to) => return Stop::HandedOver(to),
                    // Nobody was told to stop: the office does not pass it on.
                    Asked::Stopped => {}
                },
                // The news of it may be late.
                reason = leadership.stopping() => return Stop::Lost(reason),
                () = publications.work() => {}
            }
        }
    }

    /// Waits until the program says that it has stopped, for as long as it may take.
    async fn drain(
        &self,
        leadership: &Leadership,
        changes: &mut Changes,
        signals: &mut Signals,
        asked: &mut mpsc::UnboundedReceiver<Asked>,
        served: &mut Served,
    ) -> Work {
        if self.wanted.no_drain {
            return Work::Stopped;
        }
        let patience = clock::now() + self.wanted.drain;
        loop {
            // What is left then is the hook's.
            let end = before(leadership.deadline(), self.election.timing().kill()).min(patience);
            let left = end - clock::now();
            if left.is_zero() {
                say!(false, "nobody has said POST /stopped: {NOT_GIVEN_BACK}");
                return Work::MayGoOn;
            }
            tokio::select! {
                biased;
                Some(asked) = asked.recv() => match asked {
                    Asked::Stopped => return Work::Stopped,
                    Asked::Publish(_, answer) => drop(answer.send(Some("it is about to end".to_owned()))),
                    Asked::Resign | Asked::HandOver(_) => {}
                },
                _ = signals.told() => match *served {
                    Served::Told => {
                        say!(false, "told twice: does not wait for the program; the seat is free when the lease has ended");
                        return Work::IsLeftAlone;
                    }
                    Served::Lost | Served::GivenAway | Served::Refused => *served = Served::Told,
                },
                () = changes.next() => if let (Some(promise), Ok(_)) = (self.promise(), leadership.check()) {
                    // The program may act as long as it drains. A promise that cannot be made anew ends sooner.
                    let _ = promise.make(leadership.deadline());
                },
                () = tokio::time::sleep(left) => {}
            }
        }
    }

    /// The hook, then the release; or the end of the lease, if the work may go on.
    async fn leave(&self, leadership: Leadership, stop: &Stop, work: Work) {
        let mut work = work;
        let is_ours = self.machine.is_none_or(|it| it.berth.try_take().unwrap_or(false)) && work != Work::NotBegun;
        if !is_ours && self.wanted.candidacy.on_lost.is_some() {
            say!(false, "{NOT_RUN_BESIDE_ANOTHER}");
        }
        if is_ours
            && work != Work::IsLeftAlone
            && let Some(line) = &self.wanted.candidacy.on_lost
            && let Err(why) = self.hook(line, &leadership).run_after().await
        {
            say!(false, "--on-lost: {why}; {NOT_GIVEN_BACK}");
            work = Work::MayGoOn;
        }
        match work {
            Work::NotBegun | Work::Stopped => {
                self.office.stopped();
                if let Some(promise) = self.promise() {
                    promise.keep();
                }
                let released = match stop {
                    Stop::HandedOver(to) => leadership.hand_over(to).await,
                    Stop::Lost(_) | Stop::Told | Stop::Resigned | Stop::Unfit(_) => leadership.resign().await,
                };
                if let Err(why) = released {
                    tracing::info!(%why, "not released");
                }
            }
            Work::MayGoOn => outlast(leadership).await,
            Work::IsLeftAlone => drop(leadership),
        }
    }
}

impl Stop {
    fn reason(&self) -> String {
        match self {
            Stop::Lost(reason) => reason.to_string(),
            Stop::Told => "told to end".to_owned(),
            Stop::Resigned => "resigned".to_owned(),
            Stop::HandedOver(_) => "handed over".to_owned(),
            Stop::Unfit(why) => why.clone(),
        }
    }
}
