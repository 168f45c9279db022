//! The loop that `incumbent run` and `incumbent sidecar` share: stand by, be elected, serve, and again.
//!
//! What a leadership is for, and what follows from its end, is told by a [`Service`].

use std::time::Duration;

use incumbent::{Election, Leadership, Reason, State};
use tokio::time::Instant;

use super::notify::Notify;
use super::signals::{Signals, Told};
use super::{CandidacyArguments, Elected, Patience, elected, say, say_not_in_time};
use crate::exit::Exit;
use crate::failure::Failure;

/// What is done with one leadership after the other.
pub(crate) trait Service {
    /// Waits until a leadership is of use. `Err` if it will not be: how this process ends.
    async fn want(&mut self, signals: &mut Signals) -> Result<(), Exit>;

    /// Serves one leadership to its end.
    async fn serve(&mut self, leadership: Leadership, signals: &mut Signals) -> Result<Next, Failure>;

    /// How this process ends when nobody could be served.
    fn unserved(&self, why: Unserved) -> Exit;
}

/// What comes after a term.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Contend again, after this long.
    ContendAfter(Duration),
    /// End.
    End(Exit),
}

impl Next {
    /// Contend again at once.
    pub(crate) const CONTEND: Next = Next::ContendAfter(Duration::ZERO);
}

/// Whether this leadership ends because somebody wanted the seat for another: whoever had it must leave it to others for a while, as [`Election::run`] does. Where there is no line, the former
/// leader is the quickest of all who contend.
pub(crate) fn is_given_away(leadership: &Leadership) -> bool {
    match leadership.state() {
        State::Stopping(reason) | State::Lost(reason) => {
            matches!(reason, Reason::Resigned | Reason::HandedOver | Reason::Evicted)
        }
        State::Held | State::Jeopardy => false,
    }
}

/// Why a process ends between two terms.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unserved {
    /// A signal asked it to.
    Told(Told),
    /// The first leadership did not come in time.
    NotInTime,
}

/// Contends and serves until there is an end to it. `began` is when the patience of `--max-wait` began, if it has.
pub(crate) async fn contend(
    wanted: &CandidacyArguments,
    election: &Election,
    mut began: Option<Instant>,
    notify: &Notify,
    signals: &mut Signals,
    service: &mut impl Service,
) -> Result<Exit, Failure> {
    let mut was_elected = false;
    notify.ready();
    loop {
        if let Err(exit) = service.want(signals).await {
            return Ok(exit);
        }
        say!(wanted.quiet, "standing by for {}", wanted.election);
        notify.status("standing by");
        // A job that is not due yet is not waited for.
        let began = began.get_or_insert_with(Instant::now);
        let patience = if was_elected { Patience::Endless } else { Patience::of(wanted, *began) };
        let leadership = match elected(wanted, election, patience, signals).await? {
            Elected::Now(leadership) => leadership,
            Elected::Not(why) => {
                if why == Unserved::NotInTime {
                    say_not_in_time(wanted);
                }
                return Ok(service.unserved(why));
            }
        };
        was_elected = true;
        notify.status(&format!("leads with token {}", leadership.token()));
        let wait = match service.serve(leadership, signals).await? {
            Next::ContendAfter(wait) => wait,
            Next::End(exit) => return Ok(exit),
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            told = signals.told() => return Ok(service.unserved(Unserved::Told(told))),
        }
    }
}

/// Runs what contends to its end, and tells whoever started this process how it does meanwhile.
pub(crate) fn run(contend: impl AsyncFnOnce(&Notify) -> Result<Exit, Failure>) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|wrong| Failure::Io {
        what: format!("cannot start: {wrong}"),
        hint: "raise the limit of open files, or close some",
    })?;
    let notify = Notify::from_environment();
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = contend(&notify) => ended,
            () = notify.keep_alive(async || {}) => unreachable!("it never returns"),
        }
    });
    notify.stopping();
    // What waits for a file or a child in a thread must not keep the process.
    runtime.shutdown_background();
    ended
}

/// Who is gone from the line is waited for so long at least ...
const LEAVE_WITHIN: Duration = Duration::from_millis(100);
/// ... and so many times as long as the engine took to answer last: to leave may take more calls than one, and one may be under way.
const ANSWERS_TO_LEAVE: u32 = 8;

/// Leaves the line: a place in it that nobody serves would hold up the others until its time has passed. Where the engine does not answer that cannot be helped, and nobody who wants
/// this process to end is kept waiting for it.
pub(crate) async fn leave_the_line(election: Election, signals: &mut Signals) {
    let answers = election.answered_in().unwrap_or_default().saturating_mul(ANSWERS_TO_LEAVE);
    let patience = answers.min(election.timing().request_timeout() * 4).max(LEAVE_WITHIN);
    tokio::select! {
        _ = tokio::time::timeout(patience, election.close()) => {}
        _ = signals.told() => {}
    }
}
