//! What others may ask of a process that contends: a little HTTP, on a Unix socket for the command that it runs, on a port for health checks and for programs that are not its children.
//!
//! It answers from memory, and what it says of the leadership is never true past its deadline. A wish is passed on to whoever serves the term, who ends the work first.

mod answers;
mod door;
mod events;
mod node_figures;
pub(crate) mod publications;
mod room;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use incumbent::leadership::Watcher;
use incumbent::metrics::Metrics;
use incumbent::{Election, Identity, Leadership, Observer, State};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use self::door::{Door, Reach};
use self::room::Room;
use crate::candidacy::promise::Promise;
use crate::exit::Exit;
use crate::failure::Failure;

/// Those who listen to events keep their connection; more would leave none for questions.
const LISTENERS_MAX: usize = 64;

/// What somebody wants of the leader.
#[derive(Debug)]
pub(crate) enum Asked {
    /// Stop the work, and give the seat back.
    Resign,
    /// The same, to this candidate.
    HandOver(String),
    /// Publish this; the answer is `None`, or why not.
    Publish(String, oneshot::Sender<Option<String>>),
    /// The work has stopped. Only where [`Stops::AreSaid`].
    Stopped,
}

/// How it comes to be known that the work has ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stops {
    /// The work is our child, and we see it dead.
    AreSeen,
    /// Whoever does the work says so.
    AreSaid,
}

/// The office: open as long as this lives.
pub(crate) struct Office {
    desk: Arc<Desk>,
    metrics: Arc<Metrics>,
    room: Option<Room>,
    doors: Vec<Door>,
}

/// What is known at present.
struct Desk {
    election: String,
    stops: Stops,
    registry: Registry,
    /// Where to look who leads; nowhere before the engine has answered for the first time.
    electorate: OnceLock<Election>,
    /// Begun when somebody asks for the first time: looking costs the engine something.
    observer: Mutex<Option<Observer>>,
    term: Mutex<Option<Term>>,
    /// Something in here has changed.
    news: watch::Sender<u64>,
    listeners: Arc<Semaphore>,
}

#[derive(Clone)]
struct Term {
    identity: Identity,
    watcher: Watcher,
    asked: mpsc::UnboundedSender<Asked>,
    stage: Stage,
    promise: Option<Promise>,
    /// Tells of every change.
    herald: AbortHandle,
}

/// How far the work of a term has come, which the lease does not know.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Stage {
    /// Not begun: hooks run, what was before is being ended.
    Entering,
    Working,
    /// Told to stop, and why.
    Stopping(String),
    /// It has.
    Stopped,
}

impl Office {
    /// One that knows nothing yet but its name, and has no door.
    pub(crate) fn of(election: &str, stops: Stops) -> Office {
        let mut registry = Registry::default();
        let metrics = Arc::new(Metrics::register(&mut registry));
        let desk = Arc::new(Desk {
            election: election.to_owned(),
            stops,
            registry,
            electorate: OnceLock::new(),
            observer: Mutex::new(None),
            term: Mutex::new(None),
            news: watch::Sender::new(0),
            listeners: Arc::new(Semaphore::new(LISTENERS_MAX)),
        });
        Office { desk, metrics, room: None, doors: Vec::new() }
    }

    /// The figures that it shows.
    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Opens a socket, in a directory that only this user may enter.
    pub(crate) fn open_socket(&mut self) -> Result<(), Failure> {
        let base = Room::usual_base();
        let cannot = |why: std::io::Error| Failure::Io {
            what: format!("cannot open a socket in {}: {why}", base.display()),
            hint: match why.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
                Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => "raise the limit of open files (ulimit -n)",
                Some(_) | None => "set XDG_RUNTIME_DIR or TMPDIR to a directory of this user's, with a short path",
            },
        };
        let room = Room::make(&base).map_err(cannot)?;
        let listener = UnixListener::bind(room.socket()).map_err(cannot)?;
        self.doors.push(Door::on_socket(listener, Arc::clone(&self.desk)));
        self.room = Some(room);
        Ok(())
    }

    /// Opens a port, and says which: on this machine only, unless `unprotected`, because there are neither TLS nor users.
    pub(crate) fn open_port(&mut self, address: SocketAddr, unprotected: bool) -> Result<SocketAddr, Failure> {
        if !address.ip().is_loopback() && !unprotected {
            return Err(crate::candidacy::usage(format!(
                "--listen {address} can be reached from other machines, and there are neither TLS nor users: listen on 127.0.0.1, or say --unprotected if the network itself is protected"
            )));
        }
        let cannot = |why: std::io::Error| Failure::Engine {
            what: format!("cannot listen on {address}: {why}: choose an address of this machine and a free port with --listen"),
            exit: Exit::Io,
        };
        let listener = std::net::TcpListener::bind(address).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        let bound = listener.local_addr().map_err(cannot)?;
        let listener = TcpListener::from_std(listener).map_err(cannot)?;
        let reach = if bound.ip().is_loopback() { Reach::Machine } else { Reach::Network };
        self.doors.push(Door::on_port(listener, reach, Arc::clone(&self.desk)));
        Ok(bound)
    }

    /// Where the command may ask.
    pub(crate) fn socket(&self) -> Option<PathBuf> {
        self.room.as_ref().map(Room::socket)
    }

    /// The engine has answered: from now on it can be said who leads.
    pub(crate) fn introduce(&self, election: &Election) {
        let _ = self.desk.electorate.set(election.clone());
        self.desk.tell();
    }

    /// A term has begun, its work has not; what is asked of it comes here.
    pub(crate) fn begin(&self, leadership: &Leadership) -> mpsc::UnboundedReceiver<Asked> {
        let (asked, receiver) = mpsc::unbounded_channel();
        let (identity, watcher) = (leadership.identity().clone(), leadership.watcher());
        let (desk, mut changes) = (Arc::clone(&self.desk), leadership.changes());
        let herald = tokio::spawn(async move {
            loop {
                desk.tell();
                changes.next().await;
            }
        });
        let (stage, herald) = (Stage::Entering, herald.abort_handle());
        *self.desk.term() = Some(Term { identity, watcher, asked, stage, promise: None, herald });
        receiver
    }

    /// The work begins. Nobody is told that it may act for longer than was promised, if that counts here.
    pub(crate) fn work(&self, promise: Option<Promise>) {
        self.desk.change(|term| {
            term.stage = Stage::Working;
            term.promise = promise;
        });
    }

    /// The work is told to stop: whoever asks for the leader is sent elsewhere from now on.
    pub(crate) fn stop(&self, why: &str) {
        self.desk.change(|term| {
            if term.stage != Stage::Stopped {
                term.stage = Stage::Stopping(why.to_owned());
            }
        });
    }

    /// The work has stopped.
    pub(crate) fn stopped(&self) {
        self.desk.change(|term| term.stage = Stage::Stopped);
    }

    /// The term has ended.
    pub(crate) fn end(&self) {
        if let Some(term) = self.desk.term().take() {
            term.herald.abort();
        }
        self.desk.tell();
    }

    /// Ends what is under way, and takes nothing more.
    pub(crate) async fn close(mut self) {
        for door in std::mem::take(&mut self.doors) {
            door.close().await;
        }
    }
}

impl Drop for Office {
    fn drop(&mut self) {
        self.end();
    }
}

impl Desk {
    fn term(&self) -> MutexGuard<'_, Option<Term>> {
        self.term.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Term)) {
        if let Some(term) = self.term().as_mut() {
            change(term);
        }
        self.tell();
    }

    fn tell(&self) {
        self.news.send_modify(|it| *it = it.wrapping_add(1));
    }

    /// Looks on from now on; `None` before the engine has answered.
    fn observer(&self) -> Option<Observer> {
        let mut observer = self.observer.lock().unwrap_or_else(PoisonError::into_inner);
        if observer.is_none() {
            *observer = self.electorate.get().map(Election::observe);
        }
        observer.clone()
    }

    /// Whether to send work here: in office, begun, not on the way out, and all that at this very moment.
    fn is_primary(&self) -> bool {
        self.term().as_ref().is_some_and(|it| matches!(it.state(), "held" | "jeopardy"))
    }

    /// What this process is, without what changes all the time.
    fn status(&self) -> Value {
        let Some(term) = self.term().clone() else {
            return json!({ "election": self.election, "leading": false, "state": "standby" });
        };
        let mut status = json!({
            "election": self.election,
            "leading": !term.left().is_zero(),
            "state": term.state(),
            "identity": term.identity.as_str(),
            "token": term.watcher.token().to_string(),
        });
        if let Some(reason) = term.reason() {
            status["reason"] = reason.into();
        }
        status
    }
}

impl Term {
    /// How long the work may go on.
    fn left(&self) -> Duration {
        match &self.stage {
            Stage::Entering | Stage::Stopped => Duration::ZERO,
            Stage::Working | Stage::Stopping(_) => {
                let left = self.watcher.check().unwrap_or_default();
                self.promise.as_ref().map_or(left, |it| it.left().min(left))
            }
        }
    }

    fn state(&self) -> &'static str {
        match (&self.stage, self.watcher.state()) {
            (Stage::Stopped, _) => "stopped",
            (Stage::Entering | Stage::Working | Stage::Stopping(_), State::Lost(_)) => "lost",
            (Stage::Working | Stage::Stopping(_), State::Held | State::Jeopardy | State::Stopping(_))
                if self.left().is_zero() =>
            {
                "lost"
            }
            (Stage::Entering | Stage::Working, State::Stopping(_)) | (Stage::Stopping(_), _) => "stopping",
            (Stage::Entering, State::Held | State::Jeopardy) => "entering",
            (Stage::Working, State::Held) => "held",
            (Stage::Working, State::Jeopardy) => "jeopardy",
        }
    }

    /// Why it ends, if it does.
    fn reason(&self) -> Option<String> {
        match (&self.stage, self.watcher.state()) {
            (Stage::Stopping(why), _) => Some(why.clone()),
            (_, State::Stopping(reason) | State::Lost(reason)) => Some(reason.to_string()),
            (Stage::Entering | Stage::Working | Stage::Stopped, State::Held | State::Jeopardy) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever serves the term may be late, or hang: what is told must not depend on it.
    #[tokio::test(start_paused = true)]
    async fn nobody_is_told_that_it_leads_past_its_deadline_even_if_nobody_has_told_the_office() {
        let office = Office::of("job", Stops::AreSaid);
        assert!(!office.desk.is_primary() && office.desk.status()["state"] == "standby");
        let election = Election::in_test(Arc::new(incumbent::engines::memory::Memory::new()), "job").build().await.unwrap();
        let leadership = election.campaign().await.unwrap();
        let _asked = office.begin(&leadership);
        assert!(!office.desk.is_primary() && office.desk.status()["state"] == "entering");
        office.work(None);
        assert!(office.desk.is_primary() && office.desk.status()["state"] == "held");
        let folder = tempfile::tempdir().unwrap();
        let promise = Promise::at(folder.path().join("promise"));
        office.work(Some(promise.clone()));
        assert!(!office.desk.is_primary(), "nothing was promised");
        promise.make(incumbent_supervisor::clock::now() + Duration::from_secs(60)).unwrap();
        assert!(office.desk.is_primary());
        let watcher = leadership.watcher();
        drop(leadership);
        watcher.lost().await;
        assert!(!office.desk.is_primary() && office.desk.status()["leading"] == false, "{}", office.desk.status());
        let leadership = election.campaign().await.unwrap();
        let _asked = office.begin(&leadership);
        office.work(None);
        assert!(office.desk.is_primary());
        office.stop("resigned");
        assert!(!office.desk.is_primary() && office.desk.status()["leading"] == true, "{}", office.desk.status());
        office.stopped();
        assert!(office.desk.status()["leading"] == false);
    }
}
