//! The loop that `incumbent run` and `incumbent sidecar` share: stand by, be elected, serve, and again.
//!
//! What a leadership is for, and what follows from its end, is told by a [`Service`].

use std::time::Duration;

use incumbent::{Election, Leadership};

use super::notify::Notify;
use super::signals::{Signals, Told};
use super::{CandidacyArguments, Elected, elected, say};
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

/// Why a process ends between two terms.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unserved {
    /// A signal asked it to.
    Told(Told),
    /// The first leadership did not come in time.
    NotInTime,
}

/// Contends and serves until there is an end to it.
pub(crate) async fn contend(
    wanted: &CandidacyArguments,
    election: &Election,
    notify: &Notify,
    signals: &mut Signals,
    service: &mut impl Service,
) -> Result<Exit, Failure> {
    let mut began = None;
    let mut was_elected = false;
    notify.ready();
    loop {
        if let Err(exit) = service.want(signals).await {
            return Ok(exit);
        }
        say!(wanted.quiet, "standing by for {}", wanted.election);
        notify.status("standing by");
        // A job that is not due yet is not waited for.
        let began = began.get_or_insert_with(tokio::time::Instant::now);
        let patience = wanted.max_wait.filter(|_| !was_elected).map(|it| it.saturating_sub(began.elapsed()));
        let leadership = match elected(election, patience, signals).await? {
            Elected::Now(leadership) => leadership,
            Elected::NotInTime => {
                say!(false, "not elected within {:?}", wanted.max_wait.unwrap_or_default());
                return Ok(service.unserved(Unserved::NotInTime));
            }
            Elected::Told(told) => return Ok(service.unserved(Unserved::Told(told))),
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
            () = notify.keep_alive() => unreachable!("it never returns"),
        }
    });
    notify.stopping();
    // What waits for a file or a child in a thread must not keep the process.
    runtime.shutdown_background();
    ended
}

/// Leaves the line: a place in it that nobody serves would hold up the others until its time has passed.
pub(crate) async fn leave_the_line(election: Election) {
    let patience = election.timing().request_timeout() * 4;
    let _ = tokio::time::timeout(patience, election.close()).await;
}
